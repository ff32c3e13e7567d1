use std::time::{Instant, SystemTime};

use crate::webhooks::Clock;

/// A clock that never jumps: the time at its creation, and what a monotonic clock measured since.
pub(super) struct MonotonicClock {
    start: SystemTime,
    since: Instant,
}

impl MonotonicClock {
    pub(super) fn start() -> Self {
        Self {
            start: SystemTime::now(),
            since: Instant::now(),
        }
    }
}

impl Clock for MonotonicClock {
    fn now(&self) -> SystemTime {
        let elapsed = self.since.elapsed();
        self.start.checked_add(elapsed).unwrap_or(self.start)
    }
}
