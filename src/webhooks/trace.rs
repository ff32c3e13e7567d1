//! Reports outcomes to `tracing` (feature `tracing`). No secret, MAC or body is reported.

use super::error::VerifyError;

#[cfg(feature = "tracing")]
pub(super) fn authenticated(secret_name: &str, skew: i64) {
    tracing::trace!(secret = secret_name, skew, "webhook delivery authenticated");
}

#[cfg(feature = "tracing")]
pub(super) fn refused(error: &VerifyError) {
    tracing::debug!(%error, "webhook delivery refused");
}

#[cfg(not(feature = "tracing"))]
pub(super) fn authenticated(_: &str, _: i64) {}

#[cfg(not(feature = "tracing"))]
pub(super) fn refused(_: &VerifyError) {}
