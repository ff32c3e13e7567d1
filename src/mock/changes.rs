//! Tells those who watch a server that its state has changed.

use std::ops::{Deref, DerefMut};
use std::sync::MutexGuard;

use tokio::sync::watch;

use super::state::State;

/// Watchers at once. Each is an open connection.
const MAX_WATCHERS: usize = 64;

/// Counts the changes of a state while somebody watches it.
#[derive(Debug, Default)]
pub(super) struct Changes(watch::Sender<u64>);

impl Changes {
    /// Returns a receiver that is woken by the changes from now on, or `None` if there are too many already.
    ///
    /// Changes between two reads are one change, so a slow reader costs no memory.
    pub(super) fn watch(&self) -> Option<watch::Receiver<u64>> {
        (self.0.receiver_count() < MAX_WATCHERS).then(|| self.0.subscribe())
    }

    /// Wakes the watchers.
    pub(super) fn record(&self) {
        if self.0.receiver_count() > 0 {
            self.0.send_modify(|count| *count = count.wrapping_add(1));
        }
    }
}

/// The locked state. If it was borrowed mutably, dropping this counts as a change.
#[derive(Debug)]
pub(super) struct StateGuard<'a> {
    state: MutexGuard<'a, State>,
    changes: &'a Changes,
    is_changed: bool,
}

impl<'a> StateGuard<'a> {
    pub(super) fn new(state: MutexGuard<'a, State>, changes: &'a Changes) -> Self {
        Self {
            state,
            changes,
            is_changed: false,
        }
    }
}

impl Deref for StateGuard<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for StateGuard<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.is_changed = true;
        &mut self.state
    }
}

impl Drop for StateGuard<'_> {
    fn drop(&mut self) {
        if self.is_changed {
            self.changes.record();
        }
    }
}
