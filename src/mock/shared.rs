//! The state of a mock server, shared by its connections, its deliveries and the test.

use std::fmt;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::changes::{Changes, StateGuard};
use super::clock::MockClock;
use super::delivery::{AttemptKind, NewEvent, ScheduledAttempt, StartedAttempt, Step};
use super::recorded_request::RecordedRequest;
use super::service::audience::Audience;
use super::state::{Exchange, InitialState, State};

/// The state of a server, and the tasks that deliver events and move the clock.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) clock: MockClock,
    state: Mutex<State>,
    /// Wakes those who show the state.
    pub(super) changes: Changes,
    initial: InitialState,
    runtime: Handle,
    delivery_timeout: Duration,
    /// Wakes [`run_schedule`](Self::run_schedule) when the schedule may have changed.
    schedule_changed: Notify,
    /// Wakes those who wait for the state to change.
    state_changed: Notify,
}

/// A time that the clock moves to.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockTarget {
    time: i64,
    /// [`State::resets`] when the move began.
    resets: u64,
    /// [`State::canceled_clock_moves`] when the move began.
    canceled_clock_moves: u64,
}

impl ClockTarget {
    fn new(time: i64, state: &State) -> Self {
        Self {
            time,
            resets: state.resets,
            canceled_clock_moves: state.canceled_clock_moves,
        }
    }
}

impl Shared {
    pub(super) fn new(
        initial: InitialState,
        clock: MockClock,
        delivery_timeout: Duration,
        runtime: Handle,
    ) -> Arc<Self> {
        Arc::new(Self {
            clock,
            state: Mutex::new(State::new(initial.clone())),
            changes: Changes::default(),
            initial,
            runtime,
            delivery_timeout,
            schedule_changed: Notify::new(),
            state_changed: Notify::new(),
        })
    }

    /// Locks the state. Hold the guard only briefly, and never across an await.
    pub(super) fn lock(&self) -> StateGuard<'_> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        StateGuard::new(state, &self.changes)
    }

    /// Handles a request to the service and starts the deliveries it causes.
    pub(super) fn handle(self: &Arc<Self>, request: RecordedRequest) -> Exchange {
        let (exchange, has_events) = self.lock().handle(request, self.clock.unix());
        if has_events {
            self.update_schedule();
        }
        exchange
    }

    /// Runs `change` on the audience and starts the deliveries it causes.
    pub(super) fn with_audience<T>(self: &Arc<Self>, change: impl FnOnce(&mut Audience) -> T) -> T {
        let (result, has_events) = {
            let mut state = self.lock();
            let result = change(&mut state.audience);
            let last_event = state.publish_outbox(self.clock.unix());
            (result, last_event.is_some())
        };
        if has_events {
            self.update_schedule();
        }
        result
    }

    /// Sends an event and waits until it has been attempted once at every endpoint. Returns its id.
    pub(super) async fn send_event(self: &Arc<Self>, event: NewEvent) -> String {
        let (number, id, resets) = {
            let mut state = self.lock();
            let (number, id) = state.publish(event, self.clock.unix());
            (number, id, state.resets)
        };
        self.update_schedule();
        self.wait_for_attempts(number, AttemptKind::Automatic(1), resets)
            .await;
        id
    }

    /// Runs `change` on the audience and waits until the last event it causes has been attempted once at every
    /// endpoint. Returns the id of that event, or an empty text if there is none.
    pub(super) async fn publish<E>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Audience, i64) -> Result<(), E>,
    ) -> Result<String, E> {
        let (published, resets) = {
            let mut state = self.lock();
            let now = self.clock.unix();
            // What is due comes first, and may rule the change out.
            state.publish_delayed(now);
            let changed = change(&mut state.audience, now);
            let last_event = state.publish_outbox(now);
            (changed.map(|()| last_event), state.resets)
        };
        self.update_schedule();
        let Some((number, id)) = published? else {
            return Ok(String::new());
        };
        self.wait_for_attempts(number, AttemptKind::Automatic(1), resets)
            .await;
        Ok(id)
    }

    /// Sends an event again and waits for the attempts. Returns `false` if no event has this id.
    pub(super) async fn redeliver(self: &Arc<Self>, id: &str) -> bool {
        let (number, resets) = {
            let mut state = self.lock();
            let number = state.deliveries.redeliver(id, self.clock.unix());
            (number, state.resets)
        };
        let Some(number) = number else {
            return false;
        };
        self.update_schedule();
        self.wait_for_attempts(number, AttemptKind::Redelivery, resets)
            .await;
        true
    }

    /// Starts to move the clock forward. If nothing is due on the way, the move is complete on return.
    pub(super) fn advance_clock(self: &Arc<Self>, by: Duration) -> ClockTarget {
        let seconds = i64::try_from(by.as_secs()).unwrap_or(i64::MAX);
        let target = {
            let mut state = self.lock();
            let now = self.clock.unix();
            let time = state.deliveries.schedule.advance_clock(now, seconds);
            ClockTarget::new(time, &state)
        };
        self.update_schedule();
        target
    }

    /// Starts to move the clock to a time, forward or backward.
    ///
    /// Backward, earlier moves are canceled, and pending attempts keep their due times.
    pub(super) fn set_clock(self: &Arc<Self>, to: i64) -> ClockTarget {
        let target = self.set_clock_of(&mut self.lock(), to);
        self.update_schedule();
        target
    }

    /// Does the part of [`set_clock`](Self::set_clock) that needs the lock. Update the schedule afterwards.
    pub(super) fn set_clock_of(&self, state: &mut State, to: i64) -> ClockTarget {
        let now = self.clock.unix();
        if to < state.deliveries.schedule.clock_destination(now) {
            state.deliveries.schedule.cancel_clock_move();
            state.canceled_clock_moves += 1;
            self.clock.move_to(to.min(now));
        }
        state.deliveries.schedule.move_clock_to(to);
        ClockTarget::new(to, state)
    }

    /// Waits until the clock has reached its target and all that was due on the way has been attempted.
    pub(super) async fn wait_for_clock(&self, target: ClockTarget) {
        self.wait_until(target.resets, |state| {
            state.canceled_clock_moves != target.canceled_clock_moves
                || state
                    .deliveries
                    .schedule
                    .has_reached(target.time, self.clock.unix())
        })
        .await;
    }

    /// Restores the state and the clock that the server was started with.
    pub(super) fn reset(&self) {
        let mut state = self.lock();
        state.reset(self.initial.clone());
        self.clock.reset();
        drop(state);
        self.state_changed.notify_waiters();
    }

    /// Aborts running attempts and ends all waits. Nothing is started afterwards.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        state.attempt_tasks = JoinSet::new();
        drop(state);
        self.state_changed.notify_waiters();
    }

    /// Makes attempts when they are due. Never returns.
    pub(super) async fn run_schedule(self: Arc<Self>) {
        loop {
            let next_due = self.step_schedule().filter(|_| !self.clock.is_stopped());
            let Some(due) = next_due else {
                self.schedule_changed.notified().await;
                continue;
            };
            tokio::select! {
                () = self.schedule_changed.notified() => {}
                () = tokio::time::sleep(self.clock.time_until(due)) => {}
            }
        }
    }

    /// Acts on a change of the schedule. Call it without the lock.
    pub(super) fn update_schedule(self: &Arc<Self>) {
        self.step_schedule();
        self.schedule_changed.notify_one();
    }

    /// Starts the attempts that are due and moves the clock as far as possible. Returns when the next attempt is due.
    fn step_schedule(self: &Arc<Self>) -> Option<i64> {
        let next_due = self.run_steps(&mut self.lock());
        self.state_changed.notify_waiters();
        next_due
    }

    fn run_steps(self: &Arc<Self>, state: &mut State) -> Option<i64> {
        while !state.is_closed {
            let now = self.clock.unix();
            state.publish_delayed(now);
            let next_event = state.audience.next_due();
            // With a stopped clock, one attempt at a time makes the order the same on every run.
            let one_at_a_time = self.clock.is_stopped();
            match state
                .deliveries
                .schedule
                .step(now, one_at_a_time, next_event)
            {
                Step::Start(attempt) => self.start_attempt(state, attempt, now),
                Step::MoveClock(to) => self.clock.move_to(to),
                Step::Wait(next_due) => return next_due,
            }
        }
        None
    }

    fn start_attempt(self: &Arc<Self>, state: &mut State, attempt: ScheduledAttempt, now: i64) {
        let Some(started) = state.deliveries.start(attempt, now) else {
            return;
        };
        // Removes finished tasks, which the set would keep otherwise.
        while state.attempt_tasks.try_join_next().is_some() {}
        let task = Arc::clone(self).make_attempt(started, state.resets);
        state.attempt_tasks.spawn_on(task, &self.runtime);
    }

    async fn make_attempt(self: Arc<Self>, mut started: StartedAttempt, resets: u64) {
        started.post(self.delivery_timeout).await;
        {
            let mut state = self.lock();
            if state.resets == resets {
                let now = self.clock.unix();
                state.deliveries.finish(started, now);
            }
        }
        self.update_schedule();
    }

    async fn wait_for_attempts(&self, event: u64, kind: AttemptKind, resets: u64) {
        self.wait_until(resets, |state| {
            let (attempts, now) = (&state.deliveries.schedule.attempts, self.clock.unix());
            !attempts.is_open(event, kind, now)
                && !attempts.is_open(event, AttemptKind::Duplicate, now)
                && !attempts.has_released(now)
        })
        .await;
    }

    /// Waits until `is_done` returns `true`, the server is reset, or the server shuts down.
    async fn wait_until(&self, resets: u64, is_done: impl Fn(&State) -> bool) {
        loop {
            let mut state_changed = pin!(self.state_changed.notified());
            // Enabled before the check, so that no change between the check and the wait is missed.
            state_changed.as_mut().enable();
            {
                let state = self.lock();
                if state.is_closed || state.resets != resets || is_done(&state) {
                    return;
                }
            }
            state_changed.await;
        }
    }
}

/// A move of the clock; see [`MockServer::advance`](super::MockServer::advance).
///
/// The clock moves even if this is not awaited. Await it to wait until the clock has reached its target and all
/// deliveries due on the way have been attempted. The wait also ends when the clock is set to an earlier time, and when
/// the server is reset or dropped.
pub struct ClockMove {
    shared: Arc<Shared>,
    target: ClockTarget,
}

impl ClockMove {
    pub(super) fn new(shared: &Arc<Shared>, target: ClockTarget) -> Self {
        Self {
            shared: Arc::clone(shared),
            target,
        }
    }
}

impl IntoFuture for ClockMove {
    type Output = ();
    type IntoFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.shared.wait_for_clock(self.target).await })
    }
}

impl fmt::Debug for ClockMove {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClockMove").field(&self.target).finish()
    }
}
