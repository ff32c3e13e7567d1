use std::time::Duration;

/// How far an import is: enough to draw a progress bar.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Progress {
    pub(super) finished: u64,
    pub(super) resumed: u64,
    pub(super) total: Option<u64>,
    pub(super) elapsed: Duration,
    pub(super) in_flight: usize,
    pub(super) limit: usize,
    pub(super) retries: u64,
    pub(super) waiting: usize,
}

impl Progress {
    /// Returns how many rows have an outcome, those of a resumed journal included.
    #[must_use]
    pub fn finished(&self) -> u64 {
        self.finished
    }

    /// Returns how many of the finished rows come from the journal of an earlier run.
    #[must_use]
    pub fn resumed(&self) -> u64 {
        self.resumed
    }

    /// Returns how many rows there are, if the iterator or [`total`](super::Import::total) says so.
    #[must_use]
    pub fn total(&self) -> Option<u64> {
        self.total
    }

    /// Returns how many rows per second this run has finished; 0 before the first one.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a rate is not exact")]
    pub fn rate(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 {
            (self.finished - self.resumed) as f64 / seconds
        } else {
            0.0
        }
    }

    /// Returns how long the rest takes at this rate. `None` if the total is not known, or before this run has
    /// finished a row.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "an estimate is not exact")]
    pub fn remaining(&self) -> Option<Duration> {
        let left = self.total?.saturating_sub(self.finished);
        Duration::try_from_secs_f64(left as f64 / self.rate()).ok()
    }

    /// Returns how long this run has taken so far.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// Returns how many batches are in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Returns how many batches may be in flight now. It follows what the service can take.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Returns how many requests were retried.
    #[must_use]
    pub fn retries(&self) -> u64 {
        self.retries
    }

    /// Returns how many requests are waiting before their next attempt, because the service asked for it or failed.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting
    }
}
