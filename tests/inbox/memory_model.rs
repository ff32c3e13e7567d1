//! Random calls to a store in memory, compared with the specification: what a store must do, written down row by row as
//! the documentation of `Store` has it. Here, its times are exact, and it has a list of all events.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use audience::inbox::{MemoryStore, Store};
use proptest::prelude::*;

use super::linearizability::specification::{Answer, Call, Entry, Phase, Span, State, outcomes};
use super::linearizability::workers::{Request, Response, perform};

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_000) })]

    #[test]
    fn any_calls_do_what_the_specification_does(
        steps in proptest::collection::vec((0..2_u8, step()), 1..60),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut pair = Pair::new();
            for (endpoint, step) in steps {
                pair.step(endpoint, step).await;
            }
        });
    }
}

#[derive(Clone, Debug)]
enum Step {
    Call(Request),
    Wait(i64),
}

fn step() -> impl Strategy<Value = Step> {
    let time = || (0..6_i64).prop_map(|seconds| seconds * SECOND);
    let token = || 0..3_u64;
    let call = prop_oneof![
        4 => (token(), time(), time(), proptest::option::of(0..2_u8)).prop_map(
            |(token, lease, retention, body)| Call::Claim { token, lease, retention, body }
        ),
        2 => (token(), time()).prop_map(|(token, lease)| Call::Extend { token, lease }),
        2 => (token(), time()).prop_map(|(token, retention)| Call::Complete { token, retention }),
        2 => (token(), time(), time())
            .prop_map(|(token, delay, retention)| Call::Release { token, delay, retention }),
        2 => (token(), 0..256_u64).prop_map(|(token, reason)| Call::Park { token, reason }),
        3 => (0..2_u8).prop_map(|body| Call::Accept { body }),
        1 => Just(Call::Replay),
        1 => time().prop_map(|retention| Call::Discard { retention }),
    ];
    prop_oneof![
        17 => (0..3_u8, call).prop_map(|(event, call)| Step::Call(Request::For(event, call))),
        3 => (token(), time(), 0..4_usize)
            .prop_map(|(token, lease, limit)| Step::Call(Request::Take { token, lease, limit })),
        1 => Just(Step::Call(Request::Purge)),
        3 => time().prop_map(Step::Wait),
    ]
}

/// In microseconds.
const SECOND: i64 = 1_000_000;

/// The store and the model side by side.
struct Pair {
    store: MemoryStore,
    micros: Arc<AtomicU64>,
    model: Model,
}

impl Pair {
    fn new() -> Self {
        let micros = Arc::new(AtomicU64::new(0));
        let clock = Arc::clone(&micros);
        let start = SystemTime::UNIX_EPOCH;
        let now = move || start + Duration::from_micros(clock.load(Ordering::Relaxed));
        Self {
            store: MemoryStore::builder().clock(now).build(),
            micros,
            model: Model::default(),
        }
    }

    async fn step(&mut self, endpoint: u8, step: Step) {
        let request = match step {
            Step::Call(request) => request,
            Step::Wait(by) => {
                self.model.now += by;
                self.micros.fetch_add(by.unsigned_abs(), Ordering::Relaxed);
                return;
            }
        };
        // Whether a claim past its retention is still held depends on whether it was purged. A new claim or delivery does
        // not: to them, the event is new.
        if let Request::For(event, call) = &request
            && !matches!(call, Call::Claim { .. } | Call::Accept { .. })
            && self.model.is_forgotten((endpoint, *event))
        {
            self.purge().await;
        }
        let name = endpoint.to_string();
        let response = perform(&self.store, &name, &request).await;
        match (&request, response) {
            (Request::For(event, call), Response::One(answer)) => {
                let expected = self.model.call((endpoint, *event), call);
                assert_eq!(answer, expected, "{request:?}");
            }
            (
                Request::Take {
                    token,
                    lease,
                    limit,
                },
                Response::Several(taken),
            ) => {
                let expected = self.model.take(endpoint, (*token, *lease), *limit);
                assert_eq!(taken, expected);
            }
            (Request::Purge, Response::Purged) => self.purge().await,
            (_, response) => panic!("{request:?}: {response:?}"),
        }
        self.compare(endpoint).await;
    }

    async fn purge(&mut self) {
        let purged = self.store.purge(usize::MAX).await.unwrap();
        // The store also purges a few with each claim.
        assert!(purged <= self.model.purge());
    }

    async fn compare(&self, endpoint: u8) {
        let (name, now) = (endpoint.to_string(), self.model.now);
        let backlog = self.store.backlog(&name).await.unwrap();
        let counts = (backlog.waiting, backlog.in_progress, backlog.parked);
        let expected = self.model.backlog(endpoint);
        assert_eq!((counts, micros(backlog.lag)), expected);

        let parked = self.store.parked(&name, None, usize::MAX).await.unwrap();
        let parked: Vec<_> = parked
            .into_iter()
            .map(|event| {
                let id: u8 = event.id.as_str().parse().unwrap();
                let body = event.body.map(|body| body[0]);
                let parked_for = micros(event.parked_for);
                (id, body, event.attempts, event.reason, parked_for)
            })
            .collect();
        let mut expected: Vec<_> = self
            .model
            .entries(endpoint)
            .filter(|(_, entry)| entry.phase == Phase::Parked)
            .map(|(id, entry)| {
                let parked_for = now - entry.due.from;
                let reason = entry.reason.to_string();
                (id, entry.body, entry.attempts, reason, parked_for)
            })
            .collect();
        expected.sort_by_key(|row| row.0);
        assert_eq!(parked, expected);
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap()
}

/// All events by endpoint and id, and the time in microseconds.
#[derive(Default)]
struct Model {
    events: Vec<((u8, u8), State)>,
    now: i64,
}

impl Model {
    fn now(&self) -> Span {
        Span::new(self.now, self.now)
    }

    fn call(&mut self, name: (u8, u8), call: &Call) -> Answer {
        let now = self.now();
        let known = self.events.iter().position(|(each, _)| *each == name);
        let at = known.unwrap_or_else(|| {
            self.events.push((name, None));
            self.events.len() - 1
        });
        let state = &mut self.events[at].1;
        let mut outcomes = outcomes(state, call, now);
        let (answer, after) = outcomes.pop().unwrap();
        assert!(outcomes.is_empty(), "the times are exact");
        *state = after;
        answer
    }

    fn is_forgotten(&self, name: (u8, u8)) -> bool {
        let known = self.events.iter().find(|(each, _)| *each == name);
        known.is_some_and(|(_, state)| state.as_ref().is_some_and(|entry| self.may_delete(entry)))
    }

    fn may_delete(&self, entry: &Entry) -> bool {
        entry.may_be_forgotten() && entry.forget.from <= self.now
    }

    /// Deletes what may be forgotten. Returns how many entries.
    fn purge(&mut self) -> usize {
        let events = std::mem::take(&mut self.events);
        let (forgotten, kept): (Vec<_>, _) = events
            .into_iter()
            .filter(|(_, state)| state.is_some())
            .partition(|(_, state)| state.as_ref().is_some_and(|entry| self.may_delete(entry)));
        self.events = kept;
        forgotten.len()
    }

    fn entries(&self, endpoint: u8) -> impl Iterator<Item = (u8, &Entry)> {
        let of_endpoint = self
            .events
            .iter()
            .filter(move |((each, _), _)| *each == endpoint);
        of_endpoint.filter_map(|((_, id), state)| Some((*id, state.as_ref()?)))
    }

    /// Takes the oldest due events.
    fn take(
        &mut self,
        endpoint: u8,
        (token, lease): (u64, i64),
        limit: usize,
    ) -> Vec<(u8, Answer)> {
        let now = self.now;
        let is_due =
            |entry: &Entry| entry.is_open() && entry.body.is_some() && entry.due.from <= now;
        let mut due: Vec<_> = self
            .entries(endpoint)
            .filter(|(_, entry)| is_due(entry))
            .map(|(id, entry)| (entry.due.from, id))
            .collect();
        due.sort_unstable();
        due.into_iter()
            .take(limit)
            .map(|(_, id)| (id, self.call((endpoint, id), &Call::Take { token, lease })))
            .collect()
    }

    /// Returns how many events wait, are in progress and are parked, and the lag.
    fn backlog(&self, endpoint: u8) -> ((u64, u64, u64), i64) {
        let (mut counts, mut lag) = ((0, 0, 0), 0);
        for (_, entry) in self.entries(endpoint) {
            match entry.phase {
                Phase::Parked => counts.2 += 1,
                Phase::Claimed if entry.body.is_some() && entry.due.from > self.now => {
                    counts.1 += 1;
                }
                Phase::Claimed | Phase::Waiting if entry.body.is_some() => {
                    counts.0 += 1;
                    lag = lag.max(self.now - entry.due.from);
                }
                Phase::Claimed | Phase::Waiting | Phase::Done => {}
            }
        }
        (counts, lag)
    }
}
