//! The pace of an import: how many batches run simultaneously, and what their requests report.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;

use crate::Error;
use crate::client::{AttemptWatch, Waiting};
use crate::sync::lock;

/// The state that all batches of an import share.
#[derive(Debug)]
pub(super) struct Pace(Mutex<State>);

#[derive(Debug)]
struct State {
    limit: InFlightLimit,
    retries: u64,
    /// How many requests wait for their next attempt.
    waiting: usize,
    /// Whether the request that ended last, of any batch, failed permanently because the service could not be reached
    /// or could not respond.
    is_down: bool,
    /// How many requests in a row, of all batches, failed as if a row was at fault. None has succeeded in between.
    blamed: usize,
    /// Whether the caller has asked the import to stop.
    is_stopping: bool,
    /// Whether a request has started or ended a wait since the last `take_changed`.
    has_changed: bool,
    waker: Option<Waker>,
}

impl Pace {
    /// Allows at most this many simultaneous batches, which counts as 1 if it is 0.
    pub(super) fn new(ceiling: usize) -> Self {
        Self(Mutex::new(State {
            limit: InFlightLimit::new(ceiling),
            retries: 0,
            waiting: 0,
            is_down: false,
            blamed: 0,
            is_stopping: false,
            has_changed: false,
            waker: None,
        }))
    }

    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut lock(&self.0))
    }

    pub(super) fn limit(&self) -> usize {
        self.with(|state| state.limit.current())
    }

    pub(super) fn retries(&self) -> u64 {
        self.with(|state| state.retries)
    }

    pub(super) fn waiting(&self) -> usize {
        self.with(|state| state.waiting)
    }

    /// Returns whether a request has started or ended a wait since the last call.
    pub(super) fn take_changed(&self) -> bool {
        self.with(|state| std::mem::take(&mut state.has_changed))
    }

    /// Sets the waker to call when a request starts or ends a wait.
    pub(super) fn set_waker(&self, waker: &Waker) {
        self.with(|state| match &mut state.waker {
            // `clone_from` does nothing if both wake the same task, which is the usual case.
            Some(current) => current.clone_from(waker),
            None => state.waker = Some(waker.clone()),
        });
    }

    /// Makes the batches that wait for a retry fail.
    pub(super) fn stop_waiting(&self) {
        self.with(|state| state.is_stopping = true);
    }

    fn change_waiting(&self, change: impl FnOnce(usize) -> usize) {
        let waker = self.with(|state| {
            state.waiting = change(state.waiting);
            state.has_changed = true;
            state.waker.take()
        });
        // After the lock is released: a waker runs code of the executor.
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Watches the requests of one batch for the [`Pace`] of the import.
#[derive(Debug)]
pub(super) struct Watch {
    pace: Arc<Pace>,
    round: Round,
    is_congested: AtomicBool,
    has_retried: AtomicBool,
    /// Whether a request may be given up if the import is asked to stop: a later run sends it again.
    may_give_up: AtomicBool,
    finished: AtomicUsize,
}

impl Watch {
    pub(super) fn new(pace: Arc<Pace>) -> Self {
        Self {
            round: pace.with(|state| state.limit.round()),
            pace,
            is_congested: AtomicBool::new(false),
            has_retried: AtomicBool::new(false),
            may_give_up: AtomicBool::new(true),
            finished: AtomicUsize::new(0),
        }
    }

    /// Sets how many rows of the batch are finished, while the opt-outs of the others are sent.
    pub(super) fn set_finished(&self, rows: usize) {
        self.finished.store(rows, Ordering::Relaxed);
    }

    pub(super) fn finished(&self) -> usize {
        self.finished.load(Ordering::Relaxed)
    }

    /// Gives up no request from now on, even if the import is asked to stop.
    pub(super) fn keep_trying(&self) {
        self.may_give_up.store(false, Ordering::Relaxed);
    }

    /// Returns whether a request of the batch was retried.
    pub(super) fn has_retried(&self) -> bool {
        self.has_retried.load(Ordering::Relaxed)
    }

    pub(super) fn is_down(&self) -> bool {
        self.pace.with(|state| state.is_down)
    }

    /// Returns whether a request is to fail rather than to wait any longer.
    pub(super) fn gives_up(&self) -> bool {
        self.may_give_up.load(Ordering::Relaxed) && self.pace.with(|state| state.is_stopping)
    }

    /// Records how a request ended, after its retries.
    pub(super) fn request_ended(&self, error: Option<&Error>) {
        let is_down = error.is_some_and(Error::is_retryable);
        self.pace.with(|state| {
            state.is_down = is_down;
            match error {
                None => state.blamed = 0,
                Some(error) => state.blamed += usize::from(may_be_about_a_row(error)),
            }
        });
    }

    /// Returns whether so many requests in a row failed as if a row was at fault that most likely none is.
    pub(super) fn blames_all(&self) -> bool {
        self.pace.with(|state| state.blamed >= MAX_BLAMED)
    }

    /// Records that the batch has ended. A batch that has failed or met congestion does not show that the service can
    /// take more.
    pub(super) fn finish(&self, has_failed: bool) {
        // A retry may hide a 429 from the result, so the attempts are watched as well.
        if !has_failed && !self.is_congested.load(Ordering::Relaxed) {
            self.pace.with(|state| state.limit.record_clean(self.round));
        }
    }
}

/// How many requests in a row may fail as if a row was at fault. After that, they most likely fail whatever they contain.
const MAX_BLAMED: usize = 100;

/// Returns whether a request may have failed because of one row: the service cannot process it, or a firewall does not
/// like it. During an outage, a request may fail in the same way.
pub(super) fn may_be_about_a_row(error: &Error) -> bool {
    let is_unable = error.status().is_some_and(|status| {
        status == StatusCode::BAD_REQUEST || status == StatusCode::INTERNAL_SERVER_ERROR
    });
    is_unable || error.is_foreign_403()
}

/// The longest time for which a request waits after the import was asked to stop.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

impl AttemptWatch for Watch {
    fn failed(&self, is_congestion: bool) {
        if is_congestion {
            self.is_congested.store(true, Ordering::Relaxed);
            self.pace
                .with(|state| state.limit.record_congestion(self.round));
        }
    }

    fn retries(&self) {
        self.has_retried.store(true, Ordering::Relaxed);
        self.pace.with(|state| state.retries += 1);
    }

    fn wait(&self, time: Duration) -> Waiting<'_> {
        // The time may be too long to have an end.
        let start = Instant::now();
        let left = move || time.saturating_sub(start.elapsed());
        Box::pin(async move {
            self.pace.change_waiting(|waiting| waiting + 1);
            // In short steps, because nothing wakes a call that sleeps.
            while !left().is_zero() && !self.gives_up() {
                tokio::time::sleep(left().min(LONGEST_SLEEP)).await;
            }
            self.pace.change_waiting(|waiting| waiting - 1);
            !self.gives_up()
        })
    }
}

/// The number of batches to start with.
const START: usize = 2;

/// The number of batches that may run simultaneously: one more after each clean round, half after congestion.
///
/// A round is as many batches as may run simultaneously. Several requests that fail together are one congestion:
/// only a batch that was started after the last halving can cause the next one.
#[derive(Clone, Debug)]
struct InFlightLimit {
    limit: usize,
    ceiling: usize,
    /// The number of the round, which changes with the limit.
    round: u64,
    /// The round that began with the last halving.
    halved: u64,
    /// The batches of this round that ended without congestion.
    clean: usize,
}

/// The round in which a batch was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Round(u64);

impl InFlightLimit {
    /// Creates a limit that starts at 2 and never exceeds `ceiling`, which counts as 1 if it is 0.
    fn new(ceiling: usize) -> Self {
        let ceiling = ceiling.max(1);
        Self {
            limit: START.min(ceiling),
            ceiling,
            round: 0,
            halved: 0,
            clean: 0,
        }
    }

    fn current(&self) -> usize {
        self.limit
    }

    /// Returns the current round. Each batch keeps the one in which it started.
    fn round(&self) -> Round {
        Round(self.round)
    }

    /// Records that a batch ended, and that none of its requests met congestion.
    fn record_clean(&mut self, started: Round) {
        // It ran under another limit, so it says nothing about this one.
        if started.0 < self.round {
            return;
        }
        self.clean += 1;
        if self.clean >= self.limit && self.limit < self.ceiling {
            self.change(self.limit + 1);
        }
    }

    /// Records that a request of a batch met congestion: a 429, a 503 or a timeout.
    fn record_congestion(&mut self, started: Round) {
        if started.0 >= self.halved {
            self.change((self.limit / 2).max(1));
            self.halved = self.round;
        }
    }

    fn change(&mut self, limit: usize) {
        self.limit = limit;
        self.round += 1;
        self.clean = 0;
    }
}

#[cfg(test)]
mod tests {
    use crate::{ApiError, ErrorCode};

    use super::*;

    #[test]
    fn the_service_is_down_until_a_request_of_any_batch_gets_a_response() {
        let pace = Arc::new(Pace::new(16));
        let (first, second) = (Watch::new(pace.clone()), Watch::new(pace));
        let down = Error::transport("the connection broke");
        let refused = ApiError::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            ErrorCode::ValidationError,
            "",
        );
        let refused = Error::refused(refused);

        assert!(!second.is_down());
        first.request_ended(Some(&down));
        assert!(second.is_down());
        second.request_ended(Some(&refused));
        assert!(!first.is_down());
        first.request_ended(Some(&down));
        second.request_ended(None);
        assert!(!first.is_down());
    }

    #[tokio::test]
    async fn a_wait_without_an_end_is_possible_until_the_import_is_asked_to_stop() {
        let pace = Arc::new(Pace::new(16));
        let watch = Watch::new(pace.clone());
        let mut waiting = watch.wait(Duration::MAX);

        let early = tokio::time::timeout(Duration::from_millis(1), &mut waiting).await;
        pace.stop_waiting();

        assert!(early.is_err());
        assert!(!waiting.await);
    }

    /// Ends as many batches cleanly as may run simultaneously.
    fn clean_round(limit: &mut InFlightLimit) {
        let round = limit.round();
        for _ in 0..limit.current() {
            limit.record_clean(round);
        }
    }

    #[test]
    fn the_limit_starts_at_2_and_grows_by_one_after_each_clean_round_up_to_the_ceiling() {
        let mut limit = InFlightLimit::new(5);
        let mut seen = Vec::new();

        for _ in 0..6 {
            seen.push(limit.current());
            clean_round(&mut limit);
        }

        assert_eq!(seen, [2, 3, 4, 5, 5, 5]);
    }

    #[test]
    fn congestion_halves_the_limit_but_never_below_1() {
        let mut limit = InFlightLimit::new(16);
        for _ in 0..6 {
            clean_round(&mut limit);
        }
        let mut seen = vec![limit.current()];

        for _ in 0..4 {
            limit.record_congestion(limit.round());
            seen.push(limit.current());
        }

        assert_eq!(seen, [8, 4, 2, 1, 1]);
    }

    #[test]
    fn requests_that_fail_together_halve_the_limit_once() {
        let mut limit = InFlightLimit::new(16);
        for _ in 0..6 {
            clean_round(&mut limit);
        }
        let round = limit.round();

        for _ in 0..8 {
            limit.record_congestion(round);
        }

        assert_eq!(limit.current(), 4);
    }

    #[test]
    fn a_batch_from_before_the_limit_grew_still_halves_it() {
        let mut limit = InFlightLimit::new(16);
        let early = limit.round();
        for _ in 0..2 {
            clean_round(&mut limit);
        }
        assert_eq!(limit.current(), 4);

        limit.record_congestion(early);
        limit.record_congestion(early);

        assert_eq!(limit.current(), 2);
    }

    #[test]
    fn a_batch_from_before_a_halving_does_not_count_as_clean() {
        let mut limit = InFlightLimit::new(16);
        let before = limit.round();
        limit.record_congestion(before);

        limit.record_clean(before);
        assert_eq!(limit.current(), 1);

        limit.record_clean(limit.round());
        assert_eq!(limit.current(), 2);
    }

    #[test]
    fn a_ceiling_below_2_allows_one_batch() {
        for ceiling in [0, 1] {
            let mut limit = InFlightLimit::new(ceiling);
            clean_round(&mut limit);

            assert_eq!(limit.current(), 1);
        }
    }
}
