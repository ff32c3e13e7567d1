//! Processes that call a store, each call as the test tells them.

use std::collections::HashMap;
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use audience::inbox::sqlx::{PgPool, SqlitePool};
use audience::inbox::{
    AcceptState, ClaimState, EventKey, Fingerprint, HeldClaim, NewClaim, NewDelivery,
    PostgresStore, RedisStore, Release, SqliteStore, SqlxPostgresStore, SqlxSqliteStore, Store,
    StoreError, Take, TakenEvent, Token,
};
use audience::webhooks::EventId;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::specification::{Answer, Call, Span};

/// A call of a store, for one event or several.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    For(u8, Call),
    Take {
        token: u64,
        lease: i64,
        limit: usize,
    },
    CompleteAndTake {
        completed: Vec<(u8, u64)>,
        retention: i64,
        token: u64,
        lease: i64,
        limit: usize,
    },
    Parked,
    Purge,
}

/// Each event with what was returned for it.
pub(crate) type Answers = Vec<(u8, Answer)>;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Response {
    One(Answer),
    Several(Answers),
    /// What was completed, and what was taken. `None` if it failed.
    Turnover(Option<Vec<bool>>, Option<Answers>),
    Purged,
    Failed(String),
}

/// Makes a call.
pub(crate) async fn perform(store: &impl Store, endpoint: &str, request: &Request) -> Response {
    let response = match request {
        Request::For(event, call) => call_for(store, endpoint, *event, call)
            .await
            .map(Response::One),
        Request::Take {
            token,
            lease,
            limit,
        } => {
            let take = Take::new(endpoint, to_token(*token), micros(*lease), *limit);
            store.take(take).await.map(|taken| {
                let taken = taken.iter().map(to_taken).collect();
                Response::Several(taken)
            })
        }
        Request::CompleteAndTake {
            completed,
            retention,
            token,
            lease,
            limit,
        } => {
            let ids: Vec<_> = completed.iter().map(|(event, _)| id(*event)).collect();
            let held: Vec<_> = ids
                .iter()
                .zip(completed)
                .map(|(id, (_, token))| {
                    HeldClaim::new(EventKey::new(endpoint, id), to_token(*token))
                })
                .collect();
            let take = Take::new(endpoint, to_token(*token), micros(*lease), *limit);
            let turnover = store
                .complete_and_take(&held, micros(*retention), take)
                .await;
            let taken = turnover.taken.ok();
            Ok(Response::Turnover(
                turnover.completed.ok(),
                taken.map(|taken| taken.iter().map(to_taken).collect()),
            ))
        }
        Request::Parked => store.parked(endpoint, None, 1_000).await.map(|parked| {
            let listed = parked.iter().map(|event| {
                let listed = Answer::Listed {
                    attempts: event.attempts,
                    body: event.body.as_ref().map(|body| body[0]),
                    reason: event.reason.parse().unwrap_or(u64::MAX),
                };
                (number(&event.id), listed)
            });
            Response::Several(listed.collect())
        }),
        Request::Purge => store.purge(10).await.map(|_| Response::Purged),
    };
    response.unwrap_or_else(|error| Response::Failed(format!("{error:?}")))
}

async fn call_for(
    store: &impl Store,
    endpoint: &str,
    event: u8,
    call: &Call,
) -> Result<Answer, StoreError> {
    let id = id(event);
    let key = EventKey::new(endpoint, &id);
    let held = |token| HeldClaim::new(key, to_token(token));
    let in_progress = |remaining: Duration| {
        let remaining = i64::try_from(remaining.as_micros()).unwrap_or(i64::MAX);
        let remaining = Span::new(remaining, remaining);
        Answer::InProgress { remaining }
    };
    let changed = match *call {
        Call::Claim {
            token,
            lease,
            retention,
            body,
        } => {
            let mut claim = NewClaim::new(key, to_token(token), micros(lease), micros(retention));
            claim.fingerprint = body.map(|body| Fingerprint::of(&[body]));
            return Ok(match store.claim(claim).await? {
                ClaimState::Fresh { attempt } => Answer::Fresh { attempt },
                ClaimState::InProgress { remaining } => in_progress(remaining),
                ClaimState::Done => Answer::Done,
                ClaimState::Parked => Answer::IsParked,
                ClaimState::Conflict => Answer::Conflict,
                state => panic!("unknown state {state:?}"),
            });
        }
        Call::Accept { body } => {
            let bytes = [body];
            let delivery = NewDelivery::new(key, &bytes, Fingerprint::of(&bytes));
            return Ok(match store.accept(delivery).await? {
                AcceptState::Accepted => Answer::Accepted,
                AcceptState::Duplicate => Answer::Duplicate,
                AcceptState::InProgress { remaining } => in_progress(remaining),
                AcceptState::Conflict => Answer::Conflict,
                state => panic!("unknown state {state:?}"),
            });
        }
        Call::Extend { token, lease } => store.extend(held(token), micros(lease)).await?,
        Call::Complete { token, retention } => {
            store.complete(held(token), micros(retention)).await?
        }
        Call::Release {
            token,
            delay,
            retention,
        } => {
            let release = Release::new(micros(delay), micros(retention), "no");
            store.release(held(token), release).await?
        }
        Call::Park { token, reason } => store.park(held(token), &reason.to_string()).await?,
        Call::Replay => store.replay(key).await?,
        Call::Discard { retention } => store.discard(key, micros(retention)).await?,
        Call::Take { .. } | Call::Parked => unreachable!("they are for several events"),
    };
    Ok(Answer::Changed(changed))
}

fn to_taken(event: &TakenEvent) -> (u8, Answer) {
    let overdue = i64::try_from(event.overdue.as_micros()).unwrap_or(i64::MAX);
    let taken = Answer::Taken {
        attempt: event.attempt,
        body: event.body[0],
        overdue: Span::new(overdue, overdue),
    };
    (number(&event.id), taken)
}

fn id(event: u8) -> EventId {
    EventId::try_from(event.to_string()).unwrap()
}

fn number(id: &EventId) -> u8 {
    id.as_str().parse().unwrap()
}

fn to_token(number: u64) -> Token {
    // As if it were random: a store may tell two tokens apart by a part of them.
    let mixed = fastrand::Rng::with_seed(number).u128(..);
    Token::from_bytes(mixed.to_be_bytes())
}

fn micros(duration: i64) -> Duration {
    Duration::from_micros(duration.unsigned_abs())
}

const STORE: &str = "AUDIENCE_LINEARIZABILITY_STORE";
const LOCATION: &str = "AUDIENCE_LINEARIZABILITY_LOCATION";

/// The stores that processes can share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    Sqlite,
    SqlxSqlite,
    Postgres,
    SqlxPostgres,
    Redis,
}

const KINDS: [(&str, Kind); 5] = [
    ("sqlite", Kind::Sqlite),
    ("sqlx-sqlite", Kind::SqlxSqlite),
    ("postgres", Kind::Postgres),
    ("sqlx-postgres", Kind::SqlxPostgres),
    ("redis", Kind::Redis),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the tests beside it run it in processes of its own"]
async fn process() {
    let name = env::var(STORE).unwrap();
    let (_, kind) = KINDS.iter().find(|(each, _)| *each == name).unwrap();
    let location = env::var(LOCATION).unwrap();
    let patience = Duration::from_secs(1);
    match kind {
        Kind::Sqlite => loop {
            // Another process may be closing the file, or be paused while it writes.
            let builder = SqliteStore::builder().busy_timeout(patience);
            if let Ok(store) = builder.open(&location) {
                break respond(store).await;
            }
        },
        Kind::SqlxSqlite => loop {
            let pool = SqlitePool::connect(&format!("sqlite:{location}")).await;
            if let Ok(store) = SqlxSqliteStore::open(pool.unwrap()).await {
                break respond(store).await;
            }
        },
        Kind::Postgres => {
            let builder = PostgresStore::builder().timeout(patience);
            respond(builder.connect_lazy(&location).unwrap()).await;
        }
        Kind::SqlxPostgres => {
            let pool = PgPool::connect_lazy(&location).unwrap();
            respond(SqlxPostgresStore::new(pool).timeout(patience)).await;
        }
        Kind::Redis => loop {
            // The server may be starting.
            if let Ok(store) = RedisStore::connect(location.as_str()).await {
                break respond(store).await;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        },
    }
}

/// Makes each call that is a line of the input. Writes what it returned.
async fn respond<S: Store + Clone>(store: S) {
    println!("\n{PREFIX}");
    let (sender, mut lines) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines() {
            sender.send(line.unwrap()).unwrap();
        }
        // The test has ended, or died.
        std::process::exit(0);
    });
    while let Some(line) = lines.recv().await {
        let store = store.clone();
        tokio::spawn(async move {
            let (number, endpoint, request): (u64, String, Request) =
                serde_json::from_str(&line).unwrap();
            let response = perform(&store, &endpoint, &request).await;
            let line = serde_json::to_string(&(number, response)).unwrap();
            println!("{PREFIX}{line}");
        });
    }
}

/// Tells responses from the lines of the test runner.
const PREFIX: &str = "= ";

/// A running process. It is killed when it is dropped.
pub(super) struct Worker {
    process: Child,
    stdin: Mutex<ChildStdin>,
    waiting: Arc<Mutex<Option<Waiting>>>,
    calls: AtomicU64,
}

/// The calls that have no response yet. `None` after the process ended.
type Waiting = HashMap<u64, oneshot::Sender<Response>>;

impl Worker {
    pub(super) fn start(kind: Kind, location: &str) -> Self {
        let (name, _) = KINDS.iter().find(|(_, each)| *each == kind).unwrap();
        let mut process = Command::new(env::current_exe().unwrap())
            .args(["--exact", "linearizability::workers::process"])
            .args(["--ignored", "--nocapture"])
            .env(STORE, name)
            .env(LOCATION, location)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let waiting = Arc::new(Mutex::new(Some(Waiting::new())));
        let output = BufReader::new(process.stdout.take().unwrap());
        let told = Arc::clone(&waiting);
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let Some(line) = line.strip_prefix(PREFIX).filter(|line| !line.is_empty()) else {
                    continue;
                };
                // A line may be cut off when the process is killed.
                if let Ok((number, response)) = serde_json::from_str::<(u64, Response)>(line)
                    && let Some(waiting) = told.lock().unwrap().as_mut()
                    && let Some(reply) = waiting.remove(&number)
                {
                    let _ = reply.send(response);
                }
            }
            *told.lock().unwrap() = None;
        });
        Self {
            stdin: Mutex::new(process.stdin.take().unwrap()),
            process,
            waiting,
            calls: AtomicU64::new(0),
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns `None` if the process ended before it responded.
    pub(super) async fn call(&self, endpoint: &str, request: &Request) -> Option<Response> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let (reply, response) = oneshot::channel();
        self.waiting.lock().unwrap().as_mut()?.insert(number, reply);
        let line = serde_json::to_string(&(number, endpoint, request)).unwrap();
        let written = writeln!(self.stdin.lock().unwrap(), "{line}");
        written.ok()?;
        response.await.ok()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
