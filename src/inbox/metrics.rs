use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What an inbox has counted since it was built, in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InboxMetrics {
    /// Events stored for a worker.
    pub accepted: u64,
    /// Events whose handler succeeded.
    pub handled: u64,
    /// Deliveries of an event that was received before.
    pub repeated: u64,
    /// Deliveries of an event that another attempt was handling.
    pub in_progress: u64,
    /// Attempts that returned an error or panicked.
    pub failed: u64,
    /// Events parked.
    pub parked: u64,
    /// Deliveries whose id was received before with another body.
    pub conflicts: u64,
    /// Handlers that ended after their lease was lost, and claims by hand that were found lost.
    pub leases_lost: u64,
    /// Calls that the store failed, or did not respond to in time.
    pub store_errors: u64,
    /// How long the event that a worker took last had been due. It stays while there is nothing to take;
    /// [`Inbox::backlog`](super::Inbox::backlog) has the lag of now.
    pub lag: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) accepted: Counter,
    pub(super) handled: Counter,
    pub(super) repeated: Counter,
    pub(super) in_progress: Counter,
    pub(super) failed: Counter,
    pub(super) parked: Counter,
    pub(super) conflicts: Counter,
    pub(super) leases_lost: Counter,
    pub(super) store_errors: Counter,
    lag_ms: AtomicU64,
}

#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    pub(super) fn record_lag(&self, lag: Duration) {
        let lag = u64::try_from(lag.as_millis()).unwrap_or(u64::MAX);
        self.lag_ms.store(lag, Ordering::Relaxed);
    }

    pub(super) fn snapshot(&self) -> InboxMetrics {
        InboxMetrics {
            accepted: self.accepted.read(),
            handled: self.handled.read(),
            repeated: self.repeated.read(),
            in_progress: self.in_progress.read(),
            failed: self.failed.read(),
            parked: self.parked.read(),
            conflicts: self.conflicts.read(),
            leases_lost: self.leases_lost.read(),
            store_errors: self.store_errors.read(),
            lag: Duration::from_millis(self.lag_ms.load(Ordering::Relaxed)),
        }
    }
}
