//! What the requests of all batches tell the import while they run.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use super::in_flight::{InFlightLimit, Round};
use crate::client::AttemptWatch;

/// The state that all batches share.
#[derive(Debug)]
pub(super) struct Shared {
    limit: Mutex<InFlightLimit>,
    retries: AtomicU64,
    waiting: AtomicUsize,
    has_changed: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Shared {
    pub(super) fn new(limit: InFlightLimit) -> Self {
        Self {
            limit: Mutex::new(limit),
            retries: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            has_changed: AtomicBool::new(false),
            waker: Mutex::new(None),
        }
    }

    pub(super) fn limit<T>(&self, use_limit: impl FnOnce(&mut InFlightLimit) -> T) -> T {
        use_limit(&mut self.limit.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Returns whether a request has started or ended a wait since the last call.
    pub(super) fn take_changed(&self) -> bool {
        self.has_changed.swap(false, Ordering::Relaxed)
    }

    /// Sets who is woken when a request starts or ends a wait.
    pub(super) fn set_waker(&self, waker: &Waker) {
        let mut current = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *current {
            Some(current) => current.clone_from(waker),
            None => *current = Some(waker.clone()),
        }
    }

    /// Wakes the import. What happens before it sets its waker, it sees by [`take_changed`].
    ///
    /// [`take_changed`]: Self::take_changed
    fn changed(&self) {
        self.has_changed.store(true, Ordering::Relaxed);
        let waker = self
            .waker
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Watches the requests of one batch.
#[derive(Debug)]
pub(super) struct Watch {
    shared: Arc<Shared>,
    round: Round,
    is_congested: AtomicBool,
}

impl Watch {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let round = shared.limit(|limit| limit.round());
        Self {
            shared,
            round,
            is_congested: AtomicBool::new(false),
        }
    }

    /// Records that the batch has ended.
    pub(super) fn finish(&self) {
        if !self.is_congested.load(Ordering::Relaxed) {
            self.shared.limit(|limit| limit.record_clean(self.round));
        }
    }
}

impl AttemptWatch for Watch {
    fn failed(&self, is_congestion: bool) {
        if is_congestion {
            self.is_congested.store(true, Ordering::Relaxed);
            self.shared
                .limit(|limit| limit.record_congestion(self.round));
        }
    }

    fn retries(&self) {
        self.shared.retries.fetch_add(1, Ordering::Relaxed);
    }

    fn waits(&self) {
        self.shared.waiting.fetch_add(1, Ordering::Relaxed);
        self.shared.changed();
    }

    fn resumes(&self) {
        self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
        self.shared.changed();
    }
}
