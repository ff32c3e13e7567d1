//! Reports to `tracing` (feature `tracing`), with the target `audience::inbox`. No id, address or body is
//! reported; the text of a handler's error is.

#![cfg_attr(
    not(feature = "tracing"),
    expect(unused_variables, reason = "only tracing reads them")
)]

use super::error::{Failure, StoreError};
use super::receipt::Receipt;

macro_rules! report {
    ($level:ident, $($field:tt)*) => {
        #[cfg(feature = "tracing")]
        tracing::$level!(target: "audience::inbox", $($field)*);
    };
}

pub(super) fn receipt(endpoint: &str, receipt: Receipt) {
    report!(
        debug,
        endpoint,
        status = receipt.status().as_u16(),
        receipt = receipt.name(),
        "webhook event received"
    );
}

pub(super) fn failed(endpoint: &str, attempt: u32, remaining: u32, failure: &Failure) {
    report!(
        warn,
        endpoint,
        attempt,
        remaining,
        error = failure.reason(),
        "handler of a webhook event failed"
    );
}

#[cfg(feature = "inbox-sqlite")]
pub(super) fn rolled_back(endpoint: &str, failure: &Failure) {
    report!(
        warn,
        endpoint,
        error = failure.reason(),
        "transaction of a webhook event rolled back"
    );
}

pub(super) fn conflict(endpoint: &str) {
    report!(
        error,
        endpoint,
        "webhook event id received with another body"
    );
}

pub(super) fn lease_lost(endpoint: &str) {
    report!(warn, endpoint, "lease of a webhook event lost");
}

pub(super) fn store_failed(operation: &'static str, error: &StoreError) {
    report!(error, operation, %error, cause = std::error::Error::source(error), "inbox store failed");
}

pub(super) fn parked(endpoint: &str) {
    report!(error, endpoint, "webhook event parked");
}
