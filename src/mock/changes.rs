//! Tells those who watch a server that its state has changed.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};

use tokio::sync::watch;

use super::state::State;

/// Watchers at once. Each is an open connection.
const MAX_WATCHERS: usize = 64;

/// Announces the changes of a state to those who watch it.
#[derive(Debug, Default)]
pub(super) struct Changes {
    announcements: watch::Sender<()>,
    /// Whether no watcher has seen the latest announcement. Another one would tell them nothing new.
    is_unseen: Arc<AtomicBool>,
}

/// Waits for changes of a state.
#[derive(Debug)]
pub(super) struct ChangeWatcher {
    announcements: watch::Receiver<()>,
    is_unseen: Arc<AtomicBool>,
}

impl Changes {
    /// Returns a watcher of the changes from now on, or `None` if there are too many already.
    ///
    /// Changes between two waits are one change, so a slow watcher costs no memory.
    pub(super) fn watch(&self) -> Option<ChangeWatcher> {
        if self.announcements.receiver_count() >= MAX_WATCHERS {
            return None;
        }
        let watcher = ChangeWatcher {
            announcements: self.announcements.subscribe(),
            is_unseen: Arc::clone(&self.is_unseen),
        };
        // An announcement before was for others.
        self.is_unseen.store(false, Ordering::Relaxed);
        Some(watcher)
    }

    /// Announces a change. Costs next to nothing if nobody watches, or if the watchers are slower than the changes.
    pub(super) fn record(&self) {
        if self.announcements.receiver_count() > 0 && !self.is_unseen.swap(true, Ordering::Relaxed)
        {
            self.announcements.send_replace(());
        }
    }
}

impl ChangeWatcher {
    /// Waits for the next change. Returns `false` if there will be none, because the server has stopped.
    pub(super) async fn changed(&mut self) -> bool {
        let is_changed = self.announcements.changed().await.is_ok();
        self.is_unseen.store(false, Ordering::Relaxed);
        is_changed
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
