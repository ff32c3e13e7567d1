//! Handles an event in one transaction with its claim: what the stores over asynchronous drivers share.

use std::any::Any;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

use super::error::{Failure, StoreError};
use super::receipt::Receipt;
use super::{FailureLog, Settings, report_conflict, report_receipt, report_rollback};
use crate::causes::causes;
use crate::webhooks::VerifiedEvent;

/// Why a transaction had no effect, or why that is not known.
pub(super) enum Undone {
    /// Another transaction was faster, or the connection was lost or of no use. A second run may succeed.
    Retry(StoreError),
    /// The database failed, and a second run would fail, too.
    Store(StoreError),
    /// The handler returned an error.
    Handler(Failure),
    /// The handler panicked.
    Panic(Failure),
}

impl From<StoreError> for Undone {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Undone {
    /// Reads the error of a handler. `is_temporary` tells whether an error in its chain means that a second run may
    /// succeed, for example because the transaction lost against another one.
    pub(super) fn of_handler(
        error: Box<dyn Error + Send + Sync>,
        is_temporary: impl Fn(&(dyn Error + 'static)) -> bool,
    ) -> Self {
        let may_succeed = causes(error.as_ref()).any(is_temporary);
        match may_succeed {
            true => Self::Retry(StoreError::unavailable(error)),
            false => Self::Handler(Failure::of_error(error.as_ref())),
        }
    }

    /// Returns whether the database failed, and such an error is in the chain of its error.
    pub(super) fn is_caused_by(&self, is_it: impl Fn(&(dyn Error + 'static)) -> bool) -> bool {
        match self {
            Self::Retry(error) | Self::Store(error) => causes(error).any(is_it),
            Self::Handler(_) | Self::Panic(_) => false,
        }
    }

    /// Returns the error of a handler that ran in a transaction without effect.
    pub(super) fn into_error(self) -> Box<dyn Error + Send + Sync> {
        match self {
            Self::Retry(error) | Self::Store(error) => error.into(),
            Self::Handler(failure) | Self::Panic(failure) => failure.reason().into(),
        }
    }

    pub(super) fn of_panic(panic: &(dyn Any + Send)) -> Self {
        Self::Panic(Failure::of_panic(panic))
    }
}

/// Counts the transactions of one delivery.
#[cfg(any(feature = "inbox-postgres", feature = "inbox-sqlx-postgres"))]
#[derive(Default)]
pub(super) struct Retries(u32);

/// How often a transaction is retried.
#[cfg(any(feature = "inbox-postgres", feature = "inbox-sqlx-postgres"))]
const MAX_RETRIES: u32 = 6;

#[cfg(any(feature = "inbox-postgres", feature = "inbox-sqlx-postgres"))]
impl Retries {
    /// Waits before the next run of a transaction. Returns why there is none.
    pub(super) async fn wait_after(&mut self, undone: Undone) -> Result<(), Undone> {
        match undone {
            Undone::Retry(_) if self.0 < MAX_RETRIES => {
                self.0 += 1;
                // The delay is random, so that the transactions that met do not meet again.
                let delay = Duration::from_millis(fastrand::u64(0..4 << self.0));
                tokio::time::sleep(delay).await;
                Ok(())
            }
            undone => Err(undone),
        }
    }
}

/// Runs a handler to its end. A panic is a failure.
pub(super) async fn run_handler<E>(
    handler: impl Future<Output = Result<(), E>>,
    is_temporary: impl Fn(&(dyn Error + 'static)) -> bool,
) -> Result<(), Undone>
where
    E: Into<Box<dyn Error + Send + Sync>>,
{
    let mut handler = pin!(handler);
    std::future::poll_fn(|context| {
        // After a panic the handler is not polled again. The text of its error is made by its code, too.
        let polled = catch_unwind(AssertUnwindSafe(|| {
            let handled = handler.as_mut().poll(context);
            handled.map_err(|error| Undone::of_handler(error.into(), &is_temporary))
        }));
        polled.unwrap_or_else(|panic| Poll::Ready(Err(Undone::of_panic(panic.as_ref()))))
    })
    .await
}

/// Awaits the transactions of a delivery, but not for longer than the service waits for the response. Reports and
/// returns the receipt.
pub(super) async fn respond_in_time(
    failures: &FailureLog,
    endpoint: &str,
    delivery: &VerifiedEvent,
    handled: impl Future<Output = Result<Receipt, Undone>>,
) -> Receipt {
    let respond_within = Settings::default().respond_within;
    let respond_by = delivery.arrived_at().unwrap_or_else(Instant::now) + respond_within;
    let handled = tokio::time::timeout_at(respond_by, handled).await;
    let receipt = match handled.unwrap_or_else(|_| Err(Undone::Store(late(respond_within)))) {
        Ok(receipt) => receipt,
        Err(Undone::Handler(failure) | Undone::Panic(failure)) => {
            report_rollback(endpoint, &delivery.id, &failure);
            Receipt::Failed
        }
        Err(Undone::Retry(error) | Undone::Store(error)) => {
            failures.report(Some(endpoint), "handle_in", &error);
            Receipt::of_store_error(&error)
        }
    };
    if receipt == Receipt::Conflict {
        report_conflict(endpoint, &delivery.id);
    }
    report_receipt(endpoint, &delivery.id, receipt);
    receipt
}

fn late(respond_within: Duration) -> StoreError {
    let milliseconds = respond_within.as_millis();
    StoreError::unavailable(format!(
        "the transaction of the event did not end within {milliseconds} ms and was cancelled"
    ))
}
