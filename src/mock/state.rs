//! Everything one mock server holds, behind one lock that is never held across a wait.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::clock::Clock;
use super::delivery::event::NewEvent;
use super::delivery::schedule::{Round, Step};
use super::delivery::{Deliveries, Endpoints};
use super::exchange::{Exchange, exchange};
use super::faults::Faults;
use super::journal::{Journal, RecordedRequest};
use super::service::audience::Audience;

/// What the server's thread, its connections, its deliveries and the test's own threads share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) clock: Clock,
    state: Mutex<State>,
    initial: Initial,
    runtime: Handle,
    delivery_timeout: Duration,
    /// The schedule may have changed.
    wake: Notify,
    /// An attempt ended, or the clock moved.
    progress: Notify,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) audience: Audience,
    pub(super) faults: Faults,
    pub(super) journal: Journal,
    pub(super) deliveries: Deliveries,
    /// Attempts under way. Dropped, they end where they are.
    posts: JoinSet<()>,
    /// How often all of this was reset: an attempt from before a reset is no longer of interest.
    generation: u64,
    /// How often those who wait were let go, whatever they wait for.
    releases: u64,
    /// How often the clock was sent to an earlier time than it was going to.
    turned_back: u64,
    closed: bool,
}

/// What a server is started with, and goes back to when it is reset.
#[derive(Clone, Debug)]
pub(super) struct Initial {
    pub(super) audience: Audience,
    pub(super) endpoints: Endpoints,
}

/// Where the clock goes to, for those who wait until it is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passage {
    until: i64,
    /// A reset or a clock that is set back in the meantime lets them go.
    releases: u64,
    turned_back: u64,
}

impl Shared {
    pub(super) fn new(
        initial: Initial,
        clock: Clock,
        delivery_timeout: Duration,
        runtime: Handle,
    ) -> Arc<Self> {
        Arc::new(Self {
            clock,
            state: Mutex::new(State {
                audience: initial.audience.clone(),
                faults: Faults::default(),
                journal: Journal::default(),
                deliveries: Deliveries::new(initial.endpoints.clone()),
                posts: JoinSet::new(),
                generation: 0,
                releases: 0,
                turned_back: 0,
                closed: false,
            }),
            initial,
            runtime,
            delivery_timeout,
            wake: Notify::new(),
            progress: Notify::new(),
        })
    }

    /// The state. Hold it for a moment only.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers a request of the service itself, and sends off what events it gave rise to.
    pub(super) fn exchange(self: &Arc<Self>, request: RecordedRequest) -> Exchange {
        let mut state = self.lock();
        let now = self.clock.unix();
        let exchange = exchange(&mut state, request, now);
        let published = state.publish_outbox(now);
        drop(state);
        if published {
            self.changed();
        }
        exchange
    }

    /// Records a spam report, and sends off the event that it gives rise to.
    pub(super) fn report_spam(self: &Arc<Self>, address: &str) {
        let mut state = self.lock();
        let now = self.clock.unix();
        state.audience.report_spam(address, now);
        state.publish_outbox(now);
        drop(state);
        self.changed();
    }

    /// Sends an event. Done when it has been attempted once at every endpoint.
    pub(super) async fn send_event(self: &Arc<Self>, event: NewEvent) -> String {
        let (number, id, releases) = {
            let mut state = self.lock();
            let (number, id) = state.publish(event, self.clock.unix());
            (number, id, state.releases)
        };
        self.changed();
        self.until(releases, |state| {
            !state
                .deliveries
                .schedule
                .is_open(number, Round::Scheduled(1))
        })
        .await;
        id
    }

    /// Sends an event once more. `false` where there is none of that id.
    pub(super) async fn redeliver(self: &Arc<Self>, id: &str) -> bool {
        let (number, releases) = {
            let mut state = self.lock();
            (
                state.deliveries.redeliver(id, self.clock.unix()),
                state.releases,
            )
        };
        let Some(number) = number else {
            return false;
        };
        self.changed();
        self.until(releases, |state| {
            !state.deliveries.schedule.is_open(number, Round::Once)
        })
        .await;
        true
    }

    /// Lets time pass. Where nothing falls due on the way, the clock is there when this returns.
    pub(super) fn advance(self: &Arc<Self>, by: Duration) -> Passage {
        let seconds = i64::try_from(by.as_secs()).unwrap_or(i64::MAX);
        let passage = {
            let mut state = self.lock();
            let now = self.clock.unix();
            Passage {
                until: state.deliveries.schedule.advance(now, seconds),
                releases: state.releases,
                turned_back: state.turned_back,
            }
        };
        self.changed();
        passage
    }

    /// Sets the clock. Forward, time passes; backward, what was due stays due at its own time.
    pub(super) fn set_clock(self: &Arc<Self>, to: i64) -> Passage {
        let mut state = self.lock();
        let now = self.clock.unix();
        if to < state.deliveries.schedule.destination(now) {
            state.deliveries.schedule.halt();
            state.turned_back += 1;
            self.clock.move_to(to.min(now));
        }
        state.deliveries.schedule.head_for(to);
        let passage = Passage {
            until: to,
            releases: state.releases,
            turned_back: state.turned_back,
        };
        drop(state);
        self.changed();
        passage
    }

    /// Done when the clock is there and all that was due on the way has been attempted.
    pub(super) async fn arrived(&self, passage: Passage) {
        self.until(passage.releases, |state| {
            let schedule = &state.deliveries.schedule;
            state.turned_back != passage.turned_back
                || schedule.is_settled(passage.until, self.clock.unix())
        })
        .await;
    }

    /// Back to how the server was started.
    pub(super) fn reset(&self) {
        let mut state = self.lock();
        state.audience = self.initial.audience.clone();
        state.deliveries.reset(self.initial.endpoints.clone());
        state.posts = JoinSet::new();
        state.faults.clear();
        state.journal.clear();
        state.generation += 1;
        state.releases += 1;
        self.clock.reset();
        drop(state);
        self.progress.notify_waiters();
    }

    /// Nothing more is started, and nobody waits any longer.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.posts = JoinSet::new();
        state.releases += 1;
        drop(state);
        self.progress.notify_waiters();
    }

    /// Does what the schedule wants now, and again whenever the time has come. Never ends.
    pub(super) async fn keep_time(self: Arc<Self>) {
        loop {
            let next = self.drive().filter(|_| !self.clock.is_standing());
            let Some(due) = next else {
                self.wake.notified().await;
                continue;
            };
            tokio::select! {
                () = self.wake.notified() => {}
                () = tokio::time::sleep(self.clock.until(due)) => {}
            }
        }
    }

    /// To be called after anything that may have changed the schedule.
    fn changed(self: &Arc<Self>) {
        self.drive();
        self.wake.notify_one();
    }

    /// Starts what is due and moves the clock as far as it may. Returns when the next attempt falls due.
    fn drive(self: &Arc<Self>) -> Option<i64> {
        let mut state = self.lock();
        let next = loop {
            if state.closed {
                break None;
            }
            let now = self.clock.unix();
            match state
                .deliveries
                .schedule
                .step(now, self.clock.is_standing())
            {
                Step::Start(delivery) => {
                    let generation = state.generation;
                    if let Some(job) = state.deliveries.begin(delivery, now) {
                        let shared = Arc::clone(self);
                        let post = async move {
                            let body = job.body.clone();
                            let limit = shared.delivery_timeout;
                            let outcome =
                                job.target.post(&job.event_type, job.at, body, limit).await;
                            let mut state = shared.lock();
                            if state.generation == generation {
                                state.deliveries.complete(job, outcome);
                            }
                            drop(state);
                            shared.changed();
                        };
                        while state.posts.try_join_next().is_some() {}
                        state.posts.spawn_on(post, &self.runtime);
                    }
                }
                Step::Move(to) => self.clock.move_to(to),
                Step::Wait(next) => break next,
            }
        };
        drop(state);
        self.progress.notify_waiters();
        next
    }

    async fn until(&self, releases: u64, done: impl Fn(&State) -> bool) {
        loop {
            let mut progress = pin!(self.progress.notified());
            // From here on no progress is missed, also not between the look and the wait.
            progress.as_mut().enable();
            {
                let state = self.lock();
                if state.releases != releases || done(&state) {
                    return;
                }
            }
            progress.await;
        }
    }
}

impl State {
    /// Publishes the events of the service itself, and returns whether there were any.
    fn publish_outbox(&mut self, now: i64) -> bool {
        let events = self.audience.take_events();
        let published = !events.is_empty();
        for event in events {
            self.publish(NewEvent::new(event.event_type, event.data), now);
        }
        published
    }

    fn publish(&mut self, event: NewEvent, now: i64) -> (u64, String) {
        let at = event.created_at.unwrap_or(now);
        self.audience
            .record_event(&event.event_type, &event.data, at);
        self.deliveries.publish(event, now)
    }
}
