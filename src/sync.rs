//! Small types that tasks and threads share. The tests explore their interleavings.
//!
//! `tests/interleavings.rs` includes this file, with the types of shuttle in place of `crate::primitives`.

#[cfg(any(
    feature = "inbox",
    feature = "actix",
    feature = "axum",
    feature = "tower"
))]
use std::sync::Arc;
#[cfg(feature = "client")]
use std::time::Duration;

#[cfg(feature = "client")]
use tokio::time::Instant;

#[cfg(any(feature = "inbox", feature = "mock"))]
use crate::primitives::Notify;
#[cfg(any(
    feature = "inbox",
    feature = "actix",
    feature = "axum",
    feature = "tower"
))]
use crate::primitives::{AtomicUsize, Ordering};
#[cfg(any(feature = "client", feature = "inbox"))]
use crate::primitives::{Mutex, MutexGuard, PoisonError};

/// Locks what several share, also after a panic of another holder. Use it only if a panic cannot leave the value half
/// changed.
#[cfg(any(feature = "client", feature = "inbox"))]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The longest hold, so that one absurd `Retry-After` does not stop a client permanently.
#[cfg(feature = "client")]
pub(crate) const LONGEST_HOLD: Duration = Duration::from_secs(3_600);

/// When the service allows the next request. All clones of a client share it.
#[cfg(feature = "client")]
#[derive(Debug, Default)]
pub(crate) struct Hold(Mutex<Option<Instant>>);

#[cfg(feature = "client")]
impl Hold {
    /// Holds back requests for this long from `now`, at most an hour, unless a hold that ends later is
    /// already set.
    pub(crate) fn extend(&self, now: Instant, wait: Duration) {
        let end = now + wait.min(LONGEST_HOLD);
        let mut current = lock(&self.0);
        *current = (*current).max(Some(end));
    }

    /// Returns the time from `now` to the end of the hold; zero if there is none.
    pub(crate) fn left(&self, now: Instant) -> Duration {
        let end = *lock(&self.0);
        end.map_or(Duration::ZERO, |end| end.saturating_duration_since(now))
    }
}

/// A part of an amount that several share. It is released on drop.
#[cfg(any(feature = "actix", feature = "axum", feature = "tower"))]
pub(crate) struct Share {
    held: Arc<AtomicUsize>,
    amount: usize,
}

#[cfg(any(feature = "actix", feature = "axum", feature = "tower"))]
impl Share {
    /// Creates an empty share of the amount that `held` counts.
    pub(crate) fn new(held: &Arc<AtomicUsize>) -> Self {
        Self {
            held: Arc::clone(held),
            amount: 0,
        }
    }

    /// Grows to `amount`, or returns `false` if all shares together would exceed the limit.
    pub(crate) fn grow_to(&mut self, amount: usize, limit: usize) -> bool {
        let more = amount.saturating_sub(self.amount);
        // One step for the check and the addition: two shares must not both take the rest.
        let grown = |held: usize| held.checked_add(more).filter(|held| *held <= limit);
        let fits = self
            .held
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown)
            .is_ok();
        if fits {
            self.amount += more;
        }
        fits
    }
}

#[cfg(any(feature = "actix", feature = "axum", feature = "tower"))]
impl Drop for Share {
    fn drop(&mut self) {
        self.held.fetch_sub(self.amount, Ordering::Relaxed);
    }
}

/// Wakes the tasks that wait until something is true.
#[cfg(any(feature = "inbox", feature = "mock"))]
#[derive(Debug, Default)]
pub(crate) struct Condition(Notify);

#[cfg(any(feature = "inbox", feature = "mock"))]
impl Condition {
    /// Wakes every task that waits, so that it checks again. Call it after each change that may end a wait.
    pub(crate) fn notify(&self) {
        self.0.notify_waiters();
    }

    /// Waits until `is_met` returns `true`.
    pub(crate) async fn wait_until(&self, is_met: impl Fn() -> bool) {
        loop {
            // Created before the check: otherwise, a change in between would wake nobody.
            let changed = self.0.notified();
            if is_met() {
                return;
            }
            changed.await;
        }
    }
}

/// Counts what is running.
#[cfg(feature = "inbox")]
#[derive(Debug, Default)]
pub(crate) struct Running {
    count: AtomicUsize,
    ended: Condition,
}

#[cfg(feature = "inbox")]
impl Running {
    /// Counts one more, until the guard is dropped.
    pub(crate) fn start(self: &Arc<Self>) -> RunningGuard {
        self.count.fetch_add(1, Ordering::SeqCst);
        RunningGuard(Arc::clone(self))
    }

    /// Waits until nothing is running.
    pub(crate) async fn wait_idle(&self) {
        let is_idle = || self.count.load(Ordering::SeqCst) == 0;
        self.ended.wait_until(is_idle).await;
    }
}

#[cfg(feature = "inbox")]
pub(crate) struct RunningGuard(Arc<Running>);

#[cfg(feature = "inbox")]
impl Drop for RunningGuard {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.ended.notify();
        }
    }
}
