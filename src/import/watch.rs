//! The state that the requests of all batches share with the import while they run.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use super::in_flight::{InFlightLimit, Round};
use crate::Error;
use crate::client::AttemptWatch;

/// The state that all batches share.
#[derive(Debug)]
pub(super) struct Shared {
    limit: Mutex<InFlightLimit>,
    retries: AtomicU64,
    waiting: AtomicUsize,
    is_down: AtomicBool,
    /// Whether somebody has asked the import to stop.
    is_stopping: AtomicBool,
    has_changed: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Shared {
    pub(super) fn new(limit: InFlightLimit) -> Self {
        Self {
            limit: Mutex::new(limit),
            retries: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            is_down: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
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

    /// Lets batches that wait for a retry fail instead.
    pub(super) fn stop_waiting(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
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
    /// Whether the request that is being sent may be given up: a resumed import sends it again.
    is_repeated_later: AtomicBool,
}

impl Watch {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let round = shared.limit(|limit| limit.round());
        Self {
            shared,
            round,
            is_congested: AtomicBool::new(false),
            is_repeated_later: AtomicBool::new(false),
        }
    }

    /// Sets whether the next requests may be given up when the import is asked to stop.
    pub(super) fn set_repeated_later(&self, is_repeated_later: bool) {
        self.is_repeated_later
            .store(is_repeated_later, Ordering::Relaxed);
    }

    /// Returns whether the last request that ended, of any batch, failed for good because the service could not
    /// be reached or could not respond.
    pub(super) fn is_down(&self) -> bool {
        self.shared.is_down.load(Ordering::Relaxed)
    }

    /// Records how a request ended, after its retries.
    pub(super) fn request_ended(&self, error: Option<&Error>) {
        let is_down = error.is_some_and(Error::is_retryable);
        self.shared.is_down.store(is_down, Ordering::Relaxed);
    }

    /// Records that the batch has ended. One that has failed does not show that more can be in flight.
    pub(super) fn finish(&self, has_failed: bool) {
        if !has_failed && !self.is_congested.load(Ordering::Relaxed) {
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

    fn gives_up(&self) -> bool {
        self.is_repeated_later.load(Ordering::Relaxed)
            && self.shared.is_stopping.load(Ordering::Relaxed)
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

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;
    use crate::{ApiError, ErrorCode};

    #[test]
    fn the_service_is_down_until_a_request_of_any_batch_gets_a_response() {
        let shared = Arc::new(Shared::new(InFlightLimit::new(16)));
        let (first, second) = (Watch::new(shared.clone()), Watch::new(shared));
        let down = Error::transport("the connection broke");
        let refused = ApiError::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            ErrorCode::ValidationError,
            "",
        );
        let refused = Error::from(refused);

        assert!(!second.is_down());
        first.request_ended(Some(&down));
        assert!(second.is_down());
        second.request_ended(Some(&refused));
        assert!(!first.is_down());
        first.request_ended(Some(&down));
        second.request_ended(None);
        assert!(!first.is_down());
    }
}
