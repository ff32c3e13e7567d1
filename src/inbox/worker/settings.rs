use std::time::Duration;

use super::backoff::Backoff;

/// How a worker drains.
#[derive(Clone, Debug)]
pub(super) struct WorkerSettings {
    pub(super) concurrency: usize,
    pub(super) attempts: u32,
    pub(super) poll_interval: Duration,
    pub(super) backoff: Backoff,
}

impl Default for WorkerSettings {
    fn default() -> Self {
        Self {
            concurrency: 8,
            attempts: 10,
            poll_interval: Duration::from_secs(1),
            backoff: Backoff {
                first: Duration::from_secs(5),
                longest: Duration::from_secs(3_600),
            },
        }
    }
}
