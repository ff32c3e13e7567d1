//! A handler whose effect is a transaction: what the stores with transactions share.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use super::Attempt;
use super::error::{InboxError, StoreError};
use super::receipt::Receipt;
use crate::webhooks::Event;

/// A handler of events, for [`Inbox::worker`](crate::inbox::Inbox::worker) and
/// [`Inbox::handle`](crate::inbox::Inbox::handle). Every function that takes an [`Event`] and an [`Attempt`] and
/// returns a future is one.
///
/// The trait names the type that `handler_in` of the stores returns, such as
/// [`SqliteStore::handler_in`](crate::inbox::SqliteStore::handler_in). The compiler finds out whether its future is
/// `Send`, as for an `async fn`.
pub trait EventHandler: Fn(Event, Attempt) -> Self::Future {
    /// The future that handles an event.
    type Future: Future;
}

impl<F, Fut> EventHandler for F
where
    F: Fn(Event, Attempt) -> Fut,
    Fut: Future,
{
    type Future = Fut;
}

/// How long a transaction may take: less than the shutdown of a worker, and than a lease.
const TIME_LIMIT: Duration = Duration::from_secs(15);

/// Names the claims that are made in transactions. The inbox holds a claim of its own under the name of the endpoint.
/// These are forgotten after the retention, even if the event is still in the inbox.
pub(super) fn effects_of(endpoint: &str) -> Arc<str> {
    format!("{endpoint}-effects").into()
}

/// Awaits the transaction of an event, but not for longer than its time limit.
pub(super) async fn apply_in_time(
    applied: impl Future<Output = Result<Receipt, Box<dyn Error + Send + Sync>>>,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let Ok(applied) = tokio::time::timeout(TIME_LIMIT, applied).await else {
        let seconds = TIME_LIMIT.as_secs();
        let late = format!("the transaction of the event did not end within {seconds} s");
        return Err(StoreError::unavailable(late).into());
    };
    // A duplicate was applied before. A claim without the body is never a conflict.
    if applied?.is_success() {
        Ok(())
    } else {
        Err(InboxError::InProgress.into())
    }
}
