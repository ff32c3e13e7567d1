//! Tells whether the current thread runs async code of tokio.

use std::pin::pin;
use std::task::{Context, Waker};

use tokio::task::coop::consume_budget;

/// More than the 128 units of budget that tokio gives a task for one poll.
const MORE_THAN_A_BUDGET: usize = 256;

/// Returns whether a future is being polled by tokio on this thread. Blocking then stalls other tasks.
///
/// tokio gives each task a budget for one poll, and makes the task yield when it is used up. Where blocking is
/// allowed, as in `spawn_blocking`, there is no budget to use up. If there is one, this function uses it up,
/// so the task yields once at its next await.
///
/// Not recognized: a task in `tokio::task::unconstrained`, and other runtimes. There, a call just blocks.
pub(super) fn is_running() -> bool {
    let mut context = Context::from_waker(Waker::noop());
    (0..MORE_THAN_A_BUDGET).any(|_| pin!(consume_budget()).poll(&mut context).is_pending())
}
