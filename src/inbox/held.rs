//! Runs a handler under a claim.

use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

use super::error::{Failure, StoreError};
use super::shared::Shared;
use super::store::HeldClaim;
use super::trace;

const FIRST_DELAY: Duration = Duration::from_millis(50);
const LONGEST_DELAY: Duration = Duration::from_secs(2);

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
        // The lease only goes on; it has no result. A handler that is ready at once needs no timer for it.
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
                trace::lease_lost(&shared.settings.endpoint);
                return std::future::pending().await;
            }
            Err(error) => shared.store_failed("extend", &error),
        }
    }
}

/// Marks an event as done. Tries again while the store is down, for as long as a lease.
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
