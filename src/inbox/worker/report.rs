/// What a [`Worker`](super::Worker) did from its start to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerReport {
    /// Events whose handler succeeded.
    pub handled: u64,
    /// Attempts that returned an error or panicked, and are made again.
    pub failed: u64,
    /// Events that were parked.
    pub parked: u64,
    /// Events whose handler ended after its lease was lost, or could not be recorded because the store was
    /// down. Another attempt handles them.
    pub lost: u64,
}

/// What became of one event.
#[derive(Clone, Copy, Debug)]
pub(super) enum EventOutcome {
    Handled,
    Failed,
    Parked,
    Lost,
}

impl WorkerReport {
    pub(super) fn add(&mut self, outcome: EventOutcome) {
        match outcome {
            EventOutcome::Handled => self.handled += 1,
            EventOutcome::Failed => self.failed += 1,
            EventOutcome::Parked => self.parked += 1,
            EventOutcome::Lost => self.lost += 1,
        }
    }
}
