//! Random calls to a store in memory, compared with the reference model.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use proptest::prelude::*;

use super::reference_model::{Answer, Model, Phase};
use super::store::MemoryStore;
use crate::inbox::store::{
    AcceptState, ClaimState, EventKey, HeldClaim, NewClaim, NewDelivery, Release, Store, Take,
};
use crate::inbox::token::{Fingerprint, Token};
use crate::webhooks::EventId;

#[derive(Clone, Debug)]
enum Call {
    Claim {
        token: u8,
        lease: u64,
        retention: u64,
        fingerprint: Option<u8>,
    },
    Extend {
        token: u8,
        lease: u64,
    },
    Complete {
        token: u8,
        retention: u64,
    },
    Release {
        token: u8,
        delay: u64,
        retention: u64,
    },
    Park {
        token: u8,
        reason: u8,
    },
    Accept {
        body: u8,
    },
    Take {
        token: u8,
        lease: u64,
        limit: usize,
    },
    Replay,
    Discard {
        retention: u64,
    },
    Purge,
    Wait(u64),
}

fn call() -> impl Strategy<Value = Call> {
    let time = || 0..6_u64;
    let token = || 0..3_u8;
    prop_oneof![
        4 => (token(), time(), time(), proptest::option::of(0..2_u8)).prop_map(
            |(token, lease, retention, fingerprint)| Call::Claim { token, lease, retention, fingerprint }
        ),
        2 => (token(), time()).prop_map(|(token, lease)| Call::Extend { token, lease }),
        2 => (token(), time()).prop_map(|(token, retention)| Call::Complete { token, retention }),
        2 => (token(), time(), time())
            .prop_map(|(token, delay, retention)| Call::Release { token, delay, retention }),
        2 => (token(), any::<u8>()).prop_map(|(token, reason)| Call::Park { token, reason }),
        3 => (0..2_u8).prop_map(|body| Call::Accept { body }),
        3 => (token(), time(), 0..4_usize)
            .prop_map(|(token, lease, limit)| Call::Take { token, lease, limit }),
        1 => Just(Call::Replay),
        1 => time().prop_map(|retention| Call::Discard { retention }),
        1 => Just(Call::Purge),
        3 => time().prop_map(Call::Wait),
    ]
}

/// The store and the model side by side.
struct Pair {
    store: MemoryStore,
    seconds: Arc<AtomicU64>,
    model: Model,
}

const ENDPOINTS: [&str; 2] = ["0", "1"];

impl Pair {
    fn new() -> Self {
        let seconds = Arc::new(AtomicU64::new(0));
        let clock = Arc::clone(&seconds);
        let start = SystemTime::UNIX_EPOCH;
        let now = move || start + Duration::from_secs(clock.load(Ordering::Relaxed));
        Self {
            store: MemoryStore::new().clock(now),
            seconds,
            model: Model::default(),
        }
    }

    async fn call(&mut self, endpoint: u8, id: u8, call: &Call) {
        let event_id = EventId::try_from(id.to_string()).unwrap();
        let key = EventKey {
            endpoint: ENDPOINTS[usize::from(endpoint)],
            id: &event_id,
        };
        let names = (endpoint, id);
        let store = self.store.clone();
        let held = |token| HeldClaim {
            key,
            token: Token::from_bytes([token; 16]),
        };
        // Whether a claim past its retention is still held depends on whether it was purged.
        let row = self.model.row(endpoint, id).cloned();
        if row.is_some_and(|row| self.model.is_forgotten(&row)) {
            self.purge().await;
        }
        match *call {
            Call::Claim {
                token,
                lease,
                retention,
                fingerprint,
            } => {
                let claim = NewClaim {
                    key,
                    token: held(token).token,
                    lease: seconds(lease),
                    retention: seconds(retention),
                    fingerprint: fingerprint.map(|body| Fingerprint::of(&[body])),
                };
                let claimed = answer_of_claim(store.claim(claim).await.unwrap());
                let expected = self
                    .model
                    .claim(names, token, (lease, retention), fingerprint);
                assert_eq!(claimed, expected);
            }
            Call::Extend { token, lease } => {
                let extended = store.extend(held(token), seconds(lease)).await.unwrap();
                assert_eq!(extended, self.model.extend(names, token, lease));
            }
            Call::Complete { token, retention } => {
                let completed = store
                    .complete(held(token), seconds(retention))
                    .await
                    .unwrap();
                assert_eq!(completed, self.model.complete(names, token, retention));
            }
            Call::Release {
                token,
                delay,
                retention,
            } => {
                let release = Release {
                    delay: seconds(delay),
                    retention: seconds(retention),
                    reason: "no",
                };
                let released = store.release(held(token), release).await.unwrap();
                assert_eq!(released, self.model.release(names, token, delay, retention));
            }
            Call::Park { token, reason } => {
                let parked = store.park(held(token), &reason.to_string()).await.unwrap();
                assert_eq!(parked, self.model.park(names, token, reason));
            }
            Call::Accept { body } => {
                let delivery = NewDelivery {
                    key,
                    body: &[body],
                    fingerprint: Fingerprint::of(&[body]),
                };
                let accepted = answer_of_accept(store.accept(delivery).await.unwrap());
                assert_eq!(accepted, self.model.accept(names, body));
            }
            Call::Take {
                token,
                lease,
                limit,
            } => self.take(endpoint, token, lease, limit).await,
            Call::Replay => {
                let replayed = store.replay(key).await.unwrap();
                assert_eq!(replayed, self.model.replay(names));
            }
            Call::Discard { retention } => {
                let discarded = store.discard(key, seconds(retention)).await.unwrap();
                assert_eq!(discarded, self.model.discard(names, retention));
            }
            Call::Purge => self.purge().await,
            Call::Wait(by) => {
                self.model.now += by;
                self.seconds.fetch_add(by, Ordering::Relaxed);
            }
        }
        self.compare(endpoint).await;
    }

    async fn take(&mut self, endpoint: u8, token: u8, lease: u64, limit: usize) {
        let take = Take {
            endpoint: ENDPOINTS[usize::from(endpoint)],
            token: Token::from_bytes([token; 16]),
            lease: seconds(lease),
            limit,
        };
        let taken = self.store.take(take).await.unwrap();
        let taken: Vec<_> = taken
            .iter()
            .map(|event| {
                let id = event.id.as_str().parse().unwrap();
                (id, event.body[0], event.attempt, event.overdue.as_secs())
            })
            .collect();
        assert_eq!(taken, self.model.take(endpoint, token, lease, limit));
    }

    async fn purge(&mut self) {
        let purged = self.store.purge(usize::MAX).await.unwrap();
        // The store also purges a few with each claim.
        assert!(purged <= self.model.purge());
    }

    async fn compare(&self, endpoint: u8) {
        let name = ENDPOINTS[usize::from(endpoint)];
        let backlog = self.store.backlog(name).await.unwrap();
        let lag = backlog.lag.as_secs();
        let counts = (backlog.waiting, backlog.in_progress, backlog.parked, lag);
        assert_eq!(counts, self.model.backlog(endpoint));

        let parked = self.store.parked(name, None, usize::MAX).await.unwrap();
        let parked: Vec<_> = parked
            .into_iter()
            .map(|event| {
                let id: u8 = event.id.as_str().parse().unwrap();
                let body = event.body.map(|body| body[0]);
                let parked_for = event.parked_for.as_secs();
                (id, body, event.attempts, event.reason, parked_for)
            })
            .collect();
        let is_parked = |row: &&super::reference_model::Row| row.phase == Phase::Parked;
        let mut expected: Vec<_> = self
            .model
            .rows
            .iter()
            .filter(|row| row.endpoint == endpoint)
            .filter(is_parked)
            .map(|row| {
                let parked_for = self.model.now - row.parked_at;
                (
                    row.id,
                    row.body,
                    row.attempts,
                    row.reason.to_string(),
                    parked_for,
                )
            })
            .collect();
        expected.sort_by_key(|row| row.0);
        assert_eq!(parked, expected);
    }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn answer_of_claim(state: ClaimState) -> Answer {
    match state {
        ClaimState::Fresh { attempt } => Answer::Fresh(attempt),
        ClaimState::InProgress { remaining } => Answer::InProgress(remaining.as_secs()),
        ClaimState::Done => Answer::Done,
        ClaimState::Parked => Answer::Parked,
        ClaimState::Conflict => Answer::Conflict,
    }
}

fn answer_of_accept(state: AcceptState) -> Answer {
    match state {
        AcceptState::Accepted => Answer::Accepted,
        AcceptState::Repeated => Answer::Repeated,
        AcceptState::InProgress { remaining } => Answer::InProgress(remaining.as_secs()),
        AcceptState::Conflict => Answer::Conflict,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_000) })]

    #[test]
    fn any_calls_do_what_the_reference_model_does(
        calls in proptest::collection::vec((0..2_u8, 0..3_u8, call()), 1..60),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut pair = Pair::new();
            for (endpoint, id, call) in &calls {
                pair.call(*endpoint, *id, call).await;
            }
        });
    }
}
