//! Random calls to a store in memory, compared with a reference model: what a store must do, written down row by row
//! as the documentation of `Store` has it, with a list that is searched from its start and times in whole seconds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use audience::inbox::{
    AcceptState, ClaimState, EventKey, Fingerprint, HeldClaim, MemoryStore, NewClaim, NewDelivery,
    Release, Store, Take, Token,
};
use audience::webhooks::EventId;
use proptest::prelude::*;

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
            store: MemoryStore::builder().clock(now).build(),
            seconds,
            model: Model::default(),
        }
    }

    async fn call(&mut self, endpoint: u8, id: u8, call: &Call) {
        let event_id = EventId::try_from(id.to_string()).unwrap();
        let key = EventKey::new(ENDPOINTS[usize::from(endpoint)], &event_id);
        let names = (endpoint, id);
        let store = self.store.clone();
        let held = |token| HeldClaim::new(key, Token::from_bytes([token; 16]));
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
                let mut claim =
                    NewClaim::new(key, held(token).token, seconds(lease), seconds(retention));
                claim.fingerprint = fingerprint.map(|body| Fingerprint::of(&[body]));
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
                let release = Release::new(seconds(delay), seconds(retention), "no");
                let released = store.release(held(token), release).await.unwrap();
                assert_eq!(released, self.model.release(names, token, delay, retention));
            }
            Call::Park { token, reason } => {
                let parked = store.park(held(token), &reason.to_string()).await.unwrap();
                assert_eq!(parked, self.model.park(names, token, reason));
            }
            Call::Accept { body } => {
                let bytes = [body];
                let delivery = NewDelivery::new(key, &bytes, Fingerprint::of(&bytes));
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
        let take = Take::new(
            ENDPOINTS[usize::from(endpoint)],
            Token::from_bytes([token; 16]),
            seconds(lease),
            limit,
        );
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
        let is_parked = |row: &&Row| row.phase == Phase::Parked;
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
        state => panic!("unknown state {state:?}"),
    }
}

fn answer_of_accept(state: AcceptState) -> Answer {
    match state {
        AcceptState::Accepted => Answer::Accepted,
        AcceptState::Duplicate => Answer::Duplicate,
        AcceptState::InProgress { remaining } => Answer::InProgress(remaining.as_secs()),
        AcceptState::Conflict => Answer::Conflict,
        state => panic!("unknown state {state:?}"),
    }
}

/// One event.
#[derive(Clone, Debug)]
struct Row {
    endpoint: u8,
    id: u8,
    phase: Phase,
    /// Who may complete it: the holder of the claim, or who completed it.
    owner: Option<u8>,
    attempts: u32,
    /// The end of the lease or of the delay.
    due: u64,
    /// The end of the retention.
    forget: u64,
    fingerprint: Option<u8>,
    body: Option<u8>,
    reason: u8,
    parked_at: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Claimed,
    Waiting,
    Done,
    Parked,
}

#[derive(Debug, PartialEq)]
enum Answer {
    Fresh(u32),
    Accepted,
    Duplicate,
    InProgress(u64),
    Done,
    Parked,
    Conflict,
}

/// All events, and the time.
#[derive(Default)]
struct Model {
    rows: Vec<Row>,
    now: u64,
}

impl Model {
    fn is_forgotten(&self, row: &Row) -> bool {
        let may_be_forgotten = match row.phase {
            Phase::Done => true,
            Phase::Claimed | Phase::Waiting => row.body.is_none(),
            Phase::Parked => false,
        };
        may_be_forgotten && row.forget <= self.now
    }

    /// Deletes what may be forgotten. Returns how many rows.
    fn purge(&mut self) -> usize {
        let before = self.rows.len();
        let rows = std::mem::take(&mut self.rows);
        self.rows = rows
            .into_iter()
            .filter(|row| !self.is_forgotten(row))
            .collect();
        before - self.rows.len()
    }

    fn row(&mut self, endpoint: u8, id: u8) -> Option<&mut Row> {
        self.rows
            .iter_mut()
            .find(|row| row.endpoint == endpoint && row.id == id)
    }

    /// Returns the row of an event, which is created if it is absent or forgotten.
    fn row_or_new(&mut self, endpoint: u8, id: u8) -> &mut Row {
        let rows = std::mem::take(&mut self.rows);
        let is_asked = |row: &Row| row.endpoint == endpoint && row.id == id;
        self.rows = rows
            .into_iter()
            .filter(|row| !(is_asked(row) && self.is_forgotten(row)))
            .collect();
        if self.row(endpoint, id).is_none() {
            self.rows.push(Row {
                endpoint,
                id,
                phase: Phase::Waiting,
                owner: None,
                attempts: 0,
                due: self.now,
                forget: self.now,
                fingerprint: None,
                body: None,
                reason: 0,
                parked_at: 0,
            });
        }
        self.row(endpoint, id).unwrap()
    }

    fn claim(
        &mut self,
        (endpoint, id): (u8, u8),
        token: u8,
        (lease, retention): (u64, u64),
        fingerprint: Option<u8>,
    ) -> Answer {
        let now = self.now;
        let row = self.row_or_new(endpoint, id);
        if let (Some(known), Some(given)) = (row.fingerprint, fingerprint)
            && known != given
        {
            return Answer::Conflict;
        }
        match row.phase {
            Phase::Done => return Answer::Done,
            Phase::Parked => return Answer::Parked,
            Phase::Claimed if row.due > now && row.owner == Some(token) => {
                return Answer::Fresh(row.attempts);
            }
            Phase::Claimed | Phase::Waiting if row.due > now => {
                return Answer::InProgress(row.due - now);
            }
            Phase::Claimed | Phase::Waiting => {}
        }
        row.phase = Phase::Claimed;
        row.owner = Some(token);
        row.attempts += 1;
        row.due = now + lease;
        row.forget = now + lease + retention;
        row.fingerprint = row.fingerprint.or(fingerprint);
        Answer::Fresh(row.attempts)
    }

    fn accept(&mut self, (endpoint, id): (u8, u8), body: u8) -> Answer {
        let now = self.now;
        let row = self.row_or_new(endpoint, id);
        if row.fingerprint.is_some_and(|known| known != body) {
            return Answer::Conflict;
        }
        if row.body.is_some() || matches!(row.phase, Phase::Done | Phase::Parked) {
            return Answer::Duplicate;
        }
        if row.due > now {
            return Answer::InProgress(row.due - now);
        }
        row.phase = Phase::Waiting;
        row.owner = None;
        row.due = now;
        row.fingerprint = Some(body);
        row.body = Some(body);
        Answer::Accepted
    }

    /// Returns the row of a claim that is held.
    fn held(&mut self, (endpoint, id): (u8, u8), token: u8) -> Option<&mut Row> {
        self.row(endpoint, id)
            .filter(|row| row.phase == Phase::Claimed && row.owner == Some(token))
    }

    fn extend(&mut self, key: (u8, u8), token: u8, lease: u64) -> bool {
        let now = self.now;
        self.held(key, token).is_some_and(|row| {
            // An event with a body has no retention.
            let retention = row.forget.saturating_sub(row.due);
            row.due = now + lease;
            row.forget = row.due + retention;
            true
        })
    }

    fn complete(&mut self, key: (u8, u8), token: u8, retention: u64) -> bool {
        let now = self.now;
        let is_done = |row: &mut Row| row.phase == Phase::Done && row.owner == Some(token);
        if self.row(key.0, key.1).is_some_and(is_done) {
            return true;
        }
        self.held(key, token).is_some_and(|row| {
            row.phase = Phase::Done;
            row.body = None;
            row.forget = now + retention;
            true
        })
    }

    fn release(&mut self, key: (u8, u8), token: u8, delay: u64, retention: u64) -> bool {
        let now = self.now;
        self.held(key, token).is_some_and(|row| {
            row.phase = Phase::Waiting;
            row.owner = None;
            row.due = now + delay;
            row.forget = row.due + retention;
            true
        })
    }

    fn park(&mut self, key: (u8, u8), token: u8, reason: u8) -> bool {
        let now = self.now;
        self.held(key, token).is_some_and(|row| {
            row.phase = Phase::Parked;
            row.owner = None;
            row.reason = reason;
            row.parked_at = now;
            true
        })
    }

    fn parked_row(&mut self, (endpoint, id): (u8, u8)) -> Option<&mut Row> {
        self.row(endpoint, id)
            .filter(|row| row.phase == Phase::Parked)
    }

    fn replay(&mut self, key: (u8, u8)) -> bool {
        let now = self.now;
        self.parked_row(key).is_some_and(|row| {
            row.phase = Phase::Waiting;
            row.attempts = 0;
            row.due = now;
            row.forget = now;
            true
        })
    }

    fn discard(&mut self, key: (u8, u8), retention: u64) -> bool {
        let now = self.now;
        self.parked_row(key).is_some_and(|row| {
            row.phase = Phase::Done;
            row.body = None;
            row.forget = now + retention;
            true
        })
    }

    /// Returns the id, the body, the attempt, and the seconds overdue of each taken event.
    fn take(
        &mut self,
        endpoint: u8,
        token: u8,
        lease: u64,
        limit: usize,
    ) -> Vec<(u8, u8, u32, u64)> {
        let now = self.now;
        let is_open = |row: &Row| matches!(row.phase, Phase::Claimed | Phase::Waiting);
        let mut due: Vec<&mut Row> = self
            .rows
            .iter_mut()
            .filter(|row| row.endpoint == endpoint && is_open(row))
            .filter(|row| row.body.is_some() && row.due <= now)
            .collect();
        due.sort_by_key(|row| (row.due, row.id));
        due.into_iter()
            .take(limit)
            .map(|row| {
                let overdue = now - row.due;
                row.phase = Phase::Claimed;
                row.owner = Some(token);
                row.attempts += 1;
                row.due = now + lease;
                (row.id, row.body.unwrap(), row.attempts, overdue)
            })
            .collect()
    }

    /// Returns how many events wait, are in progress and are parked, and the lag.
    fn backlog(&self, endpoint: u8) -> (u64, u64, u64, u64) {
        let mut backlog = (0, 0, 0, 0);
        for row in self.rows.iter().filter(|row| row.endpoint == endpoint) {
            match row.phase {
                Phase::Parked => backlog.2 += 1,
                Phase::Claimed if row.body.is_some() && row.due > self.now => backlog.1 += 1,
                Phase::Claimed | Phase::Waiting if row.body.is_some() => {
                    backlog.0 += 1;
                    backlog.3 = backlog.3.max(self.now.saturating_sub(row.due));
                }
                Phase::Claimed | Phase::Waiting | Phase::Done => {}
            }
        }
        backlog
    }
}
