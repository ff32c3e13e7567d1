//! How many delivery attempts are open.

use std::collections::BTreeMap;

use super::scheduled_attempt::{AttemptKind, ScheduledAttempt};

/// The number of attempts of each event, kind and due time that are pending or running. No count is 0.
#[derive(Debug, Default)]
pub(super) struct OpenAttempts(BTreeMap<(u64, AttemptKind, i64), usize>);

impl OpenAttempts {
    /// Counts an attempt that is pending now.
    pub(super) fn add(&mut self, attempt: &ScheduledAttempt) {
        *self.0.entry(key(attempt)).or_default() += 1;
    }

    /// Stops counting an attempt.
    pub(super) fn remove(&mut self, attempt: &ScheduledAttempt) {
        let key = key(attempt);
        if let Some(count) = self.0.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&key);
            }
        }
    }

    /// Returns whether an attempt of this event and kind is open that is due by `time`.
    pub(super) fn has_due_by(&self, time: i64, event: u64, kind: AttemptKind) -> bool {
        let due = (event, kind, i64::MIN)..=(event, kind, time);
        self.0.range(due).next().is_some()
    }
}

fn key(attempt: &ScheduledAttempt) -> (u64, AttemptKind, i64) {
    (attempt.event, attempt.kind, attempt.due)
}
