//! What the requests of all batches tell the import while they run.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::Waker;

use super::in_flight::{InFlightLimit, Round};
use crate::client::AttemptWatch;

/// The state that all batches share.
#[derive(Debug)]
pub(super) struct Shared {
    limit: Mutex<InFlightLimit>,
    retries: AtomicU64,
    waiting: AtomicUsize,
    waker: Mutex<Option<Waker>>,
}

impl Shared {
    pub(super) fn new(limit: InFlightLimit) -> Self {
        Self {
            limit: Mutex::new(limit),
            retries: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
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

    /// Sets who is woken when a request starts or ends a wait.
    pub(super) fn wake(&self, waker: &Waker) {
        let mut current = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *current {
            Some(current) => current.clone_from(waker),
            None => *current = Some(waker.clone()),
        }
    }

    fn changed(&self) {
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
    shared: std::sync::Arc<Shared>,
    round: Round,
    is_congested: std::sync::atomic::AtomicBool,
}

impl Watch {
    pub(super) fn new(shared: std::sync::Arc<Shared>) -> Self {
        let round = shared.limit(|limit| limit.round());
        Self {
            shared,
            round,
            is_congested: false.into(),
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

    fn waits(&self) {
        self.shared.retries.fetch_add(1, Ordering::Relaxed);
        self.shared.waiting.fetch_add(1, Ordering::Relaxed);
        self.shared.changed();
    }

    fn resumes(&self) {
        self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
        self.shared.changed();
    }
}
