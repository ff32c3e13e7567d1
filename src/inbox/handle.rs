//! Runs a handler under a claim, or stores a delivery for a worker.

use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

use super::error::{Failure, StoreError};
use super::receipt::Receipt;
use super::shared::{Shared, report_lost_lease, report_receipt};
use super::store::{Fingerprint, HeldClaim, NewDelivery, Release, Token};
use crate::webhooks::{Event, VerifiedEvent};

/// How many attempts the service makes (interface section 6.5).
const ATTEMPTS_OF_THE_SERVICE: u32 = 10;

const FIRST_DELAY: Duration = Duration::from_millis(50);
const LONGEST_DELAY: Duration = Duration::from_secs(2);

/// Which attempt at an event a handler is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    number: u32,
    limit: u32,
}

impl Attempt {
    /// Creates an attempt, for a test of your own handler.
    #[must_use]
    pub fn new(number: u32, limit: u32) -> Self {
        Self { number, limit }
    }

    /// Returns which attempt this is. The first is 1.
    ///
    /// An attempt that ended with the process counts, too.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns how many attempts follow if this one fails.
    ///
    /// In [`handle`](super::Inbox::handle) this is an estimate: the service makes ten attempts (interface
    /// section 6.5), and those that never reached the inbox are not counted here.
    #[must_use]
    pub fn remaining(&self) -> u32 {
        self.limit.saturating_sub(self.number)
    }

    /// Returns whether no attempt follows if this one fails.
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.remaining() == 0
    }
}

pub(super) async fn handle<F, Fut, E>(
    shared: &Arc<Shared>,
    delivery: VerifiedEvent,
    handler: F,
) -> Receipt
where
    F: FnOnce(Event, Attempt) -> Fut + Send + 'static,
    Fut: Future<Output = Result<(), E>> + Send + 'static,
    E: Into<Box<dyn Error + Send + Sync>> + Send,
{
    let respond_by = respond_by(shared, &delivery);
    let running = shared.start_handler();
    let task_shared = Arc::clone(shared);
    let task = tokio::spawn(async move {
        let _running = running;
        task_shared.purge_if_due();
        claim_and_run(&task_shared, delivery, handler).await
    });
    let receipt = match tokio::time::timeout_at(respond_by, task).await {
        Ok(Ok(receipt)) => receipt,
        Ok(Err(error)) if error.is_panic() => {
            let error = StoreError::unavailable("the store panicked");
            receipt_of_store_error(shared, "handle", &error)
        }
        // The runtime is shutting down.
        Ok(Err(_)) => Receipt::Unavailable,
        Err(_) => Receipt::StillRunning,
    };
    report_receipt(&shared.settings.endpoint, receipt);
    receipt
}

async fn claim_and_run<F, Fut, E>(shared: &Shared, delivery: VerifiedEvent, handler: F) -> Receipt
where
    F: FnOnce(Event, Attempt) -> Fut,
    Fut: Future<Output = Result<(), E>>,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    let id = delivery.id.clone();
    let held = HeldClaim {
        key: shared.key(&id),
        token: Token::random(),
    };
    let fingerprint = Fingerprint::of(delivery.body());
    let attempt = match shared.claim(held, Some(fingerprint)).await {
        Ok(Ok(attempt)) => Attempt::new(attempt, ATTEMPTS_OF_THE_SERVICE),
        Ok(Err(receipt)) => return receipt,
        Err(error) => return Receipt::of_store_error(&error),
    };

    let event = delivery.into_event();
    let handler = async move { handler(event, attempt).await };
    match run(shared, held, handler).await {
        Ok(()) => finish_success(shared, held).await,
        Err(failure) => finish_failure(shared, held, attempt, &failure).await,
    }
}

async fn finish_success(shared: &Shared, held: HeldClaim<'_>) -> Receipt {
    match complete(shared, held).await {
        Ok(true) => {
            shared.count(|metrics| metrics.handled += 1);
            Receipt::Handled
        }
        Ok(false) => {
            shared.lease_lost();
            Receipt::InProgress {
                retry_after: shared.settings.lease,
            }
        }
        Err(error) => Receipt::of_store_error(&error),
    }
}

async fn finish_failure(
    shared: &Shared,
    held: HeldClaim<'_>,
    attempt: Attempt,
    failure: &Failure,
) -> Receipt {
    shared.handler_failed(attempt.number(), attempt.remaining(), failure);
    let release = Release {
        delay: Duration::ZERO,
        retention: shared.settings.retention,
        reason: failure.reason(),
    };
    match shared.store.release(held, release).await {
        Ok(true) => {}
        Ok(false) => shared.lease_lost(),
        // The claim ends with its lease.
        Err(error) => shared.store_failed("release", &error),
    }
    Receipt::Failed
}

/// Runs a handler to its end and extends its lease meanwhile. A panic is a failure.
pub(super) async fn run<E>(
    shared: &Shared,
    held: HeldClaim<'_>,
    handler: impl Future<Output = Result<(), E>>,
) -> Result<(), Failure>
where
    E: Into<Box<dyn Error + Send + Sync>>,
{
    let mut handler = pin!(handler);
    let mut lease = pin!(keep_extended(shared, held, Instant::now()));
    let mut is_extended = false;
    std::future::poll_fn(|context| {
        // The lease has no result. A handler that is ready immediately needs no timer for it.
        if is_extended {
            let _: Poll<()> = lease.as_mut().poll(context);
        }
        // After a panic the handler is not polled again. The text of its error is made by its code, too.
        let polled = catch_unwind(AssertUnwindSafe(|| {
            let handled = handler.as_mut().poll(context);
            handled.map_err(|error| Failure::of_error(error.into().as_ref()))
        }));
        let polled =
            polled.unwrap_or_else(|panic| Poll::Ready(Err(Failure::of_panic(panic.as_ref()))));
        if polled.is_pending() && !is_extended {
            is_extended = true;
            let _: Poll<()> = lease.as_mut().poll(context);
        }
        polled
    })
    .await
}

/// Extends a lease for as long as it is polled. Never ends.
async fn keep_extended(shared: &Shared, held: HeldClaim<'_>, claimed_at: Instant) {
    let lease = shared.settings.lease;
    let mut extended_at = claimed_at;
    loop {
        tokio::time::sleep_until(extended_at + lease / 3).await;
        let extended = shared.store.extend(held, lease).await;
        extended_at = Instant::now();
        match extended {
            Ok(true) => {}
            Ok(false) => {
                report_lost_lease(&shared.settings.endpoint);
                return std::future::pending().await;
            }
            Err(error) => shared.store_failed("extend", &error),
        }
    }
}

/// Marks an event as done. Retries while the store is down, for as long as a lease.
///
/// Returns whether the claim was held.
pub(super) async fn complete(shared: &Shared, held: HeldClaim<'_>) -> Result<bool, StoreError> {
    let end = Instant::now() + shared.settings.lease;
    let mut delay = FIRST_DELAY;
    loop {
        let error = match shared.store.complete(held, shared.settings.retention).await {
            Ok(is_held) => return Ok(is_held),
            Err(error) => error,
        };
        shared.store_failed("complete", &error);
        if !error.is_temporary() || Instant::now() + delay > end {
            return Err(error);
        }
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(LONGEST_DELAY);
    }
}

pub(super) async fn accept(shared: &Arc<Shared>, delivery: VerifiedEvent) -> Receipt {
    let respond_by = respond_by(shared, &delivery);
    let accepted = shared.store.accept(NewDelivery {
        key: shared.key(&delivery.id),
        body: delivery.body(),
        fingerprint: Fingerprint::of(delivery.body()),
    });
    shared.purge_if_due();
    let receipt = match tokio::time::timeout_at(respond_by, accepted).await {
        Ok(Ok(state)) => shared.counted(Receipt::of_accept(state)),
        Ok(Err(error)) => receipt_of_store_error(shared, "accept", &error),
        Err(_) => {
            let error = StoreError::unavailable("it did not respond in time");
            receipt_of_store_error(shared, "accept", &error)
        }
    };
    if receipt == Receipt::Accepted {
        shared.accepted.notify_one();
    }
    report_receipt(&shared.settings.endpoint, receipt);
    receipt
}

fn respond_by(shared: &Shared, delivery: &VerifiedEvent) -> Instant {
    delivery.arrived_at().unwrap_or_else(Instant::now) + shared.settings.respond_within
}

fn receipt_of_store_error(shared: &Shared, operation: &'static str, error: &StoreError) -> Receipt {
    shared.store_failed(operation, error);
    Receipt::of_store_error(error)
}
