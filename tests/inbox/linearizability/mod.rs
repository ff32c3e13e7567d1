//! Every method of a store is one atomic step. Processes call a store simultaneously, at random and for few events, while
//! they and the server are killed, paused, cut off and restarted. Then the calls for each event must be explained by
//! some order of steps that agrees with the times of the calls.
//!
//! - A call without a response, or with an error, took effect at any time after its start, or never.
//! - The store's clock reads a time between the start and the end of a call. Leases, delays and retentions are an hour,
//!   zero or 20 to 200 ms; near the end of one, both outcomes are allowed.
//! - What a call for several events returned is checked for each of them. That a call of `take` did not return an event
//!   is checked only after the other calls ended, because a store may skip an event that another call works on.
//!
//! With `AUDIENCE_LONG_TESTS=1` there are thousands of events for each store. `--nocapture` prints the numbers.
//!
//! Only then are the stores with a server checked, and a violation is not always a fault: such a store makes a call again
//! if it lost the connection, so an event that it accepted can be reported as a duplicate.

mod faults;
mod search;
pub(crate) mod specification;
pub(crate) mod workers;

use std::ops::AddAssign;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use audience::inbox::{MemoryStore, PostgresStore, SqliteStore, Store};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use support::postgres;
use support::redis::OwnRedis;

use self::faults::{Proxy, Server, signal};
use self::search::{Operation, find_order};
use self::specification::{Answer, Call, Span};
use self::workers::{Answers, Kind, Request, Response, Worker, perform};

/// How many events the calls of one round are for.
const EVENTS: u8 = 6;
const CALLS_PER_EVENT: usize = 30;
const WORKERS: usize = 3;

const HOUR: i64 = 3_600_000_000;
/// How far the store's clock may be from the one of the test.
const UNCERTAINTY: i64 = 5_000;

/// Returns how many rounds there are.
fn rounds(short: usize, long: usize) -> usize {
    match std::env::var_os("AUDIENCE_LONG_TESTS") {
        None => short,
        Some(_) => long,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_a_store_in_memory_are_atomic_steps() {
    let store = MemoryStore::new();
    let caller = call_in_this_process(store);
    let callers = vec![caller; 8];

    let tally = check_rounds(&callers, rounds(100, 4_000), None).await;

    println!("MemoryStore: {}", tally.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_processes_on_one_sqlite_file_are_atomic_steps() {
    check_processes(Kind::Sqlite, 4, Server::None, rounds(8, 400)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_sqlx_calls_of_processes_on_one_sqlite_file_are_atomic_steps() {
    check_processes(Kind::SqlxSqlite, 4, Server::None, rounds(4, 200)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_processes_on_postgres_are_atomic_steps() {
    check_on_postgres(Kind::Postgres, rounds(0, 500)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_sqlx_calls_of_processes_on_postgres_are_atomic_steps() {
    check_on_postgres(Kind::SqlxPostgres, rounds(0, 250)).await;
}

async fn check_on_postgres(kind: Kind, rounds: usize) {
    if rounds == 0 {
        return support::say_skipped("histories of Postgres: set AUDIENCE_LONG_TESTS=1");
    }
    let Some(server) = postgres::server().await else {
        return;
    };
    let database = server.database().await;
    let store = PostgresStore::connect(&database.url).await.unwrap();
    store.migrate().await.unwrap();
    // More than six simultaneous calls of a process share statements.
    check_processes(kind, 10, Server::Postgres(server, database), rounds).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_processes_on_redis_are_atomic_steps() {
    let rounds = rounds(0, 500);
    if rounds == 0 {
        return support::say_skipped("histories of Redis: set AUDIENCE_LONG_TESTS=1");
    }
    let settings = &["--appendonly", "yes", "--appendfsync", "always"];
    if let Some(redis) = OwnRedis::start(settings).await {
        check_processes(Kind::Redis, 4, Server::Redis(redis), rounds).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_breaks_a_rule_now_and_then_is_found_out() {
    for rule in [
        Rule::CompletionLost,
        Rule::CompletedWithoutToken,
        Rule::TwoHolders,
        Rule::AcceptedEventLost,
        Rule::TakenByTwo,
        Rule::AttemptNotCounted,
        Rule::LeaseEndsEarly,
    ] {
        let callers = vec![call_with_broken_rule(rule); 4];

        let found = check_rounds(&callers, 200, None).await;

        let violation = found.err();
        let violation = violation.unwrap_or_else(|| panic!("{rule:?} was not noticed"));
        assert!(violation.contains("No order explains"), "{violation}");
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    CompletionLost,
    CompletedWithoutToken,
    TwoHolders,
    AcceptedEventLost,
    TakenByTwo,
    AttemptNotCounted,
    LeaseEndsEarly,
}

/// Every tenth call that could break the rule does.
fn call_with_broken_rule(rule: Rule) -> Caller {
    let (store, calls) = (MemoryStore::new(), Arc::new(AtomicUsize::new(0)));
    Arc::new(move |endpoint, request| {
        let (store, calls) = (store.clone(), Arc::clone(&calls));
        async move {
            let is_turn = || calls.fetch_add(1, Ordering::Relaxed) % 10 == 9;
            let is_lost = match &request {
                Request::For(_, Call::Complete { .. }) => rule == Rule::CompletionLost,
                Request::For(_, Call::Accept { .. }) => rule == Rule::AcceptedEventLost,
                _ => false,
            };
            if is_lost && is_turn() {
                return Some(Response::One(match rule {
                    Rule::CompletionLost => Answer::Changed(true),
                    _ => Answer::Accepted,
                }));
            }
            let short = match &request {
                Request::For(
                    event,
                    Call::Claim {
                        token,
                        lease,
                        retention,
                        body,
                    },
                ) if rule == Rule::LeaseEndsEarly && *lease == HOUR => {
                    let (token, retention, body, lease) = (*token, *retention, *body, 0);
                    Some(Request::For(
                        *event,
                        Call::Claim {
                            token,
                            lease,
                            retention,
                            body,
                        },
                    ))
                }
                _ => None,
            };
            let request = short.filter(|_| is_turn()).unwrap_or(request);
            let mut response = perform(&store, &endpoint, &request).await;
            match (&request, &mut response) {
                (
                    Request::For(_, Call::Complete { .. }),
                    Response::One(answer @ Answer::Changed(false)),
                ) if rule == Rule::CompletedWithoutToken && is_turn() => {
                    *answer = Answer::Changed(true);
                }
                (_, Response::One(answer @ Answer::InProgress { .. }))
                    if rule == Rule::TwoHolders && is_turn() =>
                {
                    *answer = Answer::Fresh { attempt: 2 };
                }
                (_, Response::One(Answer::Fresh { attempt }))
                    if rule == Rule::AttemptNotCounted && *attempt > 1 && is_turn() =>
                {
                    *attempt -= 1;
                }
                (Request::Take { .. }, Response::Several(taken))
                    if rule == Rule::TakenByTwo && !taken.is_empty() && is_turn() =>
                {
                    // Released behind the back of its holder.
                    let Request::Take { token, .. } = &request else {
                        unreachable!()
                    };
                    let (token, delay, retention) = (*token, 0, HOUR);
                    let release = Call::Release {
                        token,
                        delay,
                        retention,
                    };
                    perform(&store, &endpoint, &Request::For(taken[0].0, release)).await;
                }
                _ => {}
            }
            Some(response)
        }
        .boxed()
    })
}

/// Makes a call for the events of an endpoint. Returns `None` if the caller died before it had the response.
type Caller = Arc<dyn Fn(String, Request) -> BoxFuture<'static, Option<Response>> + Send + Sync>;

fn call_in_this_process(store: impl Store + Clone) -> Caller {
    Arc::new(move |endpoint, request| {
        let store = store.clone();
        async move { Some(perform(&store, &endpoint, &request).await) }.boxed()
    })
}

/// Checks a store that processes share, each with so many simultaneous calls.
async fn check_processes(kind: Kind, calls: usize, mut server: Server, rounds: usize) {
    let file = DatabaseFile::new();
    if let Server::None = server {
        SqliteStore::open(&file.0).unwrap();
    }
    let mut slots = Vec::new();
    for _ in 0..WORKERS {
        slots.push(Arc::new(Slot::start(kind, &server, &file).await));
    }
    let mut callers: Vec<Caller> = Vec::new();
    for slot in &slots {
        for _ in 0..calls {
            let slot = Arc::clone(slot);
            callers.push(Arc::new(move |endpoint, request| {
                let slot = Arc::clone(&slot);
                async move { slot.call(&endpoint, &request).await }.boxed()
            }));
        }
    }
    let is_over = AtomicBool::new(false);
    let server = tokio::sync::Mutex::new(&mut server);
    let (tally, faults) = tokio::join!(
        async {
            let tally = check_rounds(&callers, rounds, Some(&server)).await;
            is_over.store(true, Ordering::Relaxed);
            tally
        },
        cause_faults(&slots, &server, &is_over),
    );

    match tally {
        Ok(tally) => {
            println!("{kind:?}: {tally}; {faults}");
            assert!(tally.unknown < tally.calls / 2, "most calls failed");
        }
        Err(violation) => panic!("{kind:?}: {violation}\n{faults}"),
    }
}

/// The place of a worker, who is replaced when it was killed.
struct Slot {
    kind: Kind,
    location: String,
    proxy: Option<Proxy>,
    worker: tokio::sync::RwLock<Arc<Worker>>,
}

impl Slot {
    async fn start(kind: Kind, server: &Server, file: &DatabaseFile) -> Self {
        let proxy = match server.port() {
            Some(port) => Some(Proxy::start(port).await),
            None => None,
        };
        let location = match &proxy {
            Some(proxy) => server.url(proxy.port),
            None => file.0.to_str().unwrap().to_owned(),
        };
        let worker = Arc::new(Worker::start(kind, &location));
        Self {
            kind,
            location,
            proxy,
            worker: tokio::sync::RwLock::new(worker),
        }
    }

    async fn call(&self, endpoint: &str, request: &Request) -> Option<Response> {
        let worker = Arc::clone(&*self.worker.read().await);
        worker.call(endpoint, request).await
    }

    /// Kills the worker and starts another one.
    async fn replace(&self) {
        let mut worker = self.worker.write().await;
        // Not when it is dropped: its callers have it, too, until they notice.
        signal("KILL", &[worker.id().to_string()]);
        *worker = Arc::new(Worker::start(self.kind, &self.location));
    }
}

/// Counts what went wrong on purpose.
#[derive(Default)]
struct Faults {
    kills: usize,
    pauses: usize,
    cuts: usize,
    silences: usize,
    server_pauses: usize,
    server_restarts: usize,
}

impl std::fmt::Display for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} kills and {} pauses of processes, {} cuts and {} silences of connections, {} pauses and {} restarts of \
             the server",
            self.kills,
            self.pauses,
            self.cuts,
            self.silences,
            self.server_pauses,
            self.server_restarts
        )
    }
}

/// Lets things go wrong, one after the other, until the calls have ended.
async fn cause_faults(
    slots: &[Arc<Slot>],
    server: &tokio::sync::Mutex<&mut Server>,
    is_over: &AtomicBool,
) -> Faults {
    let mut faults = Faults::default();
    let some_time = |to: u64| Duration::from_millis(fastrand::u64(10..to));
    while !is_over.load(Ordering::Relaxed) {
        tokio::time::sleep(some_time(100)).await;
        // Not while a round ends.
        let mut server = server.lock().await;
        let slot = &slots[fastrand::usize(..slots.len())];
        match (fastrand::u8(..100), &slot.proxy) {
            (0..20, _) => {
                slot.replace().await;
                faults.kills += 1;
            }
            (20..40, _) | (_, None) => {
                let id = [slot.worker.read().await.id().to_string()];
                signal("STOP", &id);
                tokio::time::sleep(some_time(200)).await;
                signal("CONT", &id);
                faults.pauses += 1;
            }
            (40..65, Some(proxy)) => {
                proxy.cut();
                faults.cuts += 1;
            }
            (65..90, Some(proxy)) => {
                let (requests, responses) = (fastrand::bool(), fastrand::bool());
                proxy.hold(requests, responses || !requests);
                // Half of the time longer than the worker is patient, or cut off in the end.
                let longest = if fastrand::u8(..10) == 0 { 2_500 } else { 200 };
                tokio::time::sleep(some_time(longest)).await;
                if fastrand::bool() {
                    proxy.cut();
                }
                proxy.hold(false, false);
                faults.silences += 1;
            }
            (90..98, _) => {
                server.pause(some_time(200)).await;
                faults.server_pauses += 1;
            }
            _ => {
                server.restart().await;
                faults.server_restarts += 1;
            }
        }
    }
    faults
}

/// How much was checked.
#[derive(Default)]
struct Tally {
    events: usize,
    calls: usize,
    /// Calls without a response, or with an error.
    unknown: usize,
    steps: usize,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.events += other.events;
        self.calls += other.calls;
        self.unknown += other.unknown;
        self.steps += other.steps;
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} events with {} calls ({} of unknown outcome) explained in {} steps",
            self.events, self.calls, self.unknown, self.steps
        )
    }
}

/// Runs rounds, each for other events. Returns the text of the first violation.
async fn check_rounds(
    callers: &[Caller],
    rounds: usize,
    server: Option<&tokio::sync::Mutex<&mut Server>>,
) -> Result<Tally, String> {
    let mut tally = Tally::default();
    let mut checks = Vec::new();
    for number in 0..rounds {
        // A store makes a call again if the connection to its server was lost.
        let has_server = match server {
            Some(server) => server.lock().await.port().is_some(),
            None => false,
        };
        let round = Round::new(format!("round-{number}"), has_server);
        let calling = callers.iter().map(|caller| round.call_at_random(caller));
        join_all(calling).await;
        let mut quiet = None;
        if let Some(server) = server {
            let server = quiet.insert(server.lock().await);
            server.wait_until_idle().await;
        }
        round.look_at_the_end(&callers[0]).await;
        drop(quiet);
        checks.push(tokio::task::spawn_blocking(move || round.check()));
        // While the next round runs.
        if checks.len() > 1 {
            tally += checks.remove(0).await.unwrap()?;
        }
    }
    for check in checks {
        tally += check.await.unwrap()?;
    }
    Ok(tally)
}

/// The calls for some events, and what they returned.
struct Round {
    endpoint: String,
    /// Then a claim whose lease is shorter than its call is renewed or made again, which leaves too many orders to try.
    has_server: bool,
    start: Instant,
    /// Counts the starts and ends of calls.
    order: AtomicU64,
    calls: AtomicUsize,
    tokens: AtomicU64,
    /// The tokens of the newest claims of each event.
    newest: Mutex<Vec<Vec<u64>>>,
    records: Mutex<Vec<Record>>,
}

struct Record {
    request: Request,
    response: Option<Response>,
    order: (u64, u64),
    /// In microseconds.
    time: (i64, i64),
    /// Whether no other call was made meanwhile.
    is_quiet: bool,
}

impl Round {
    fn new(endpoint: String, has_server: bool) -> Self {
        Self {
            endpoint,
            has_server,
            start: Instant::now(),
            order: AtomicU64::new(0),
            calls: AtomicUsize::new(0),
            tokens: AtomicU64::new(1),
            newest: Mutex::new(vec![Vec::new(); usize::from(EVENTS)]),
            records: Mutex::default(),
        }
    }

    async fn call_at_random(&self, caller: &Caller) {
        while self.calls.fetch_add(1, Ordering::Relaxed) < CALLS_PER_EVENT * usize::from(EVENTS) {
            let request = self.request_at_random();
            self.call(caller, request, false).await;
        }
    }

    /// Finds out in which state the events are.
    async fn look_at_the_end(&self, caller: &Caller) {
        let take = || Request::Take {
            token: self.new_token(),
            lease: HOUR,
            limit: 100,
        };
        for request in [Request::Parked, take(), take()] {
            self.call(caller, request, true).await;
        }
        for event in 0..EVENTS {
            let claim = Call::Claim {
                token: self.new_token(),
                lease: HOUR,
                retention: HOUR,
                body: None,
            };
            self.call(caller, Request::For(event, claim), true).await;
        }
    }

    async fn call(&self, caller: &Caller, request: Request, is_quiet: bool) {
        let now = || i64::try_from(self.start.elapsed().as_micros()).unwrap();
        let (start, started) = (self.order.fetch_add(1, Ordering::SeqCst), now());
        let response = caller(self.endpoint.clone(), request.clone()).await;
        let (ended, end) = (now(), self.order.fetch_add(1, Ordering::SeqCst));
        // Not before: nobody holds a claim before it returned, and a store may make it again until then.
        if let Request::For(event, Call::Claim { token, .. }) = &request {
            self.remember(*event, *token);
        }
        if let (Request::Take { token, .. }, Some(Response::Several(taken)))
        | (Request::CompleteAndTake { token, .. }, Some(Response::Turnover(_, Some(taken)))) =
            (&request, &response)
        {
            for (event, _) in taken {
                self.remember(*event, *token);
            }
        }
        self.records.lock().unwrap().push(Record {
            request,
            response,
            order: (start, end),
            time: (started, ended),
            is_quiet,
        });
    }

    fn new_token(&self) -> u64 {
        self.tokens.fetch_add(1, Ordering::Relaxed)
    }

    fn remember(&self, event: u8, token: u64) {
        let mut newest = self.newest.lock().unwrap();
        let newest = &mut newest[usize::from(event)];
        newest.insert(0, token);
        newest.truncate(4);
    }

    /// Returns the token of one of the newest claims, most often of the newest one.
    fn known_token(&self, event: u8) -> u64 {
        let newest = self.newest.lock().unwrap();
        let newest = &newest[usize::from(event)];
        let at = fastrand::usize(..4).saturating_sub(2);
        newest.get(at).copied().unwrap_or(u64::MAX)
    }

    fn lease_of_claim(&self) -> i64 {
        match duration() {
            short if self.has_server && short < HOUR => fastrand::i64(200_000..600_000),
            any => any,
        }
    }

    /// Returns this retention, or a longer one: a store that makes a call again must still find what the first run did.
    fn retention(&self, any: i64) -> i64 {
        match any {
            short if self.has_server && short < HOUR => fastrand::i64(1_000_000..2_000_000),
            any => any,
        }
    }

    fn request_at_random(&self) -> Request {
        let event = fastrand::u8(..EVENTS);
        let token = self.known_token(event);
        let call = match fastrand::u8(..100) {
            0..20 => {
                let is_repeated = fastrand::u8(..10) == 0;
                Call::Claim {
                    token: if is_repeated { token } else { self.new_token() },
                    lease: self.lease_of_claim(),
                    retention: self.retention(duration()),
                    body: fastrand::bool().then(body),
                }
            }
            20..25 => Call::Extend {
                token,
                lease: duration(),
            },
            25..33 => Call::Complete {
                token,
                retention: self.retention(duration_of_end()),
            },
            33..48 => Call::Release {
                token,
                delay: duration(),
                retention: self.retention(duration()),
            },
            48..55 => Call::Park {
                token,
                reason: u64::from(fastrand::u8(..)),
            },
            55..67 => Call::Accept { body: body() },
            67..74 => Call::Replay,
            74..77 => Call::Discard {
                retention: self.retention(duration_of_end()),
            },
            77..80 => return Request::Parked,
            80 => return Request::Purge,
            81..92 => {
                return Request::Take {
                    token: self.new_token(),
                    lease: duration(),
                    limit: fastrand::usize(1..3),
                };
            }
            _ => {
                let other = fastrand::u8(..EVENTS);
                return Request::CompleteAndTake {
                    completed: vec![(event, token), (other, self.known_token(other))],
                    retention: self.retention(duration_of_end()),
                    token: self.new_token(),
                    lease: duration(),
                    limit: fastrand::usize(..3),
                };
            }
        };
        Request::For(event, call)
    }

    fn check(self) -> Result<Tally, String> {
        let records = self.records.into_inner().unwrap();
        let mut tally = Tally {
            calls: records.len(),
            ..Tally::default()
        };
        let is_unknown =
            |record: &&Record| matches!(record.response, None | Some(Response::Failed(_)));
        tally.unknown = records.iter().filter(is_unknown).count();
        let end = records.iter().map(|record| record.time.1).max();
        for event in 0..EVENTS {
            let operations = records
                .iter()
                .flat_map(|record| record.operations(event, end.unwrap_or(0), self.has_server));
            let steps = find_order(operations.collect())
                .map_err(|violation| format!("{} event {event}\n{violation}", self.endpoint))?;
            tally.events += 1;
            tally.steps += steps;
        }
        Ok(tally)
    }
}

impl Record {
    /// Returns the parts of the call that are for one event.
    fn operations(&self, event: u8, end_of_round: i64, makes_again: bool) -> Vec<Operation> {
        let operation = |call, answer: Option<Answer>| {
            let is_known = answer.is_some();
            let last = if is_known { self.time.1 } else { end_of_round };
            Operation {
                call,
                answer,
                start: self.order.0,
                end: is_known.then_some(self.order.1),
                time: Span::new(self.time.0 - UNCERTAINTY, last + UNCERTAINTY),
            }
        };
        let of_event = |answers: &Answers| {
            let answer = answers.iter().find(|(each, _)| *each == event);
            answer.map(|(_, answer)| *answer)
        };
        let take = |token, lease, taken: Option<&Answers>| {
            let call = Call::Take { token, lease };
            let Some(taken) = taken else {
                return Some(operation(call, None));
            };
            let not_taken = self.is_quiet.then_some(Answer::NotTaken);
            let answer = of_event(taken).or(not_taken);
            answer.map(|answer| operation(call, Some(answer)))
        };
        match (&self.request, &self.response) {
            (Request::For(each, _), _) if *each != event => Vec::new(),
            (Request::For(_, call), Some(Response::One(answer))) => {
                let made = operation(*call, Some(*answer));
                // If its lease may end before the response, a claim is renewed, or made again.
                let meanwhile = match *call {
                    Call::Claim { token, lease, .. }
                        if makes_again && self.time.1 - self.time.0 >= lease / 2 =>
                    {
                        vec![*call, Call::Extend { token, lease }]
                    }
                    _ => Vec::new(),
                };
                let meanwhile = meanwhile.into_iter().map(|call| Operation {
                    call,
                    answer: None,
                    ..made.clone()
                });
                meanwhile.chain([made.clone()]).collect()
            }
            (Request::For(_, call), _) => {
                let released = match *call {
                    // A store ends the claim of a caller that does not wait for it any more.
                    Call::Claim {
                        token, retention, ..
                    } => Some(Call::Release {
                        token,
                        delay: 0,
                        retention,
                    }),
                    _ => None,
                };
                let calls = std::iter::once(*call).chain(released);
                calls.map(|call| operation(call, None)).collect()
            }
            (Request::Parked, Some(Response::Several(listed))) => {
                let answer = of_event(listed).unwrap_or(Answer::NotListed);
                vec![operation(Call::Parked, Some(answer))]
            }
            (Request::Take { token, lease, .. }, response) => {
                let taken = match response {
                    Some(Response::Several(taken)) => Some(taken),
                    _ => None,
                };
                take(*token, *lease, taken).into_iter().collect()
            }
            (
                Request::CompleteAndTake {
                    completed,
                    retention,
                    token,
                    lease,
                    limit,
                },
                response,
            ) => {
                let (held, taken) = match response {
                    Some(Response::Turnover(held, taken)) => (held.as_ref(), taken.as_ref()),
                    _ => (None, None),
                };
                let retention = *retention;
                let of_this = completed.iter().enumerate();
                let of_this = of_this.filter(|(_, (each, _))| *each == event);
                let mut operations: Vec<_> = of_this
                    .map(|(at, (_, token))| {
                        let token = *token;
                        let answer = held.map(|held| Answer::Changed(held[at]));
                        operation(Call::Complete { token, retention }, answer)
                    })
                    .collect();
                if *limit > 0 {
                    operations.extend(take(*token, *lease, taken));
                }
                operations
            }
            (Request::Parked | Request::Purge, _) => Vec::new(),
        }
    }
}

/// A lease, a delay, or a retention.
fn duration() -> i64 {
    match fastrand::u8(..10) {
        0..4 => HOUR,
        4..7 => 0,
        _ => fastrand::i64(20_000..200_000),
    }
}

/// How long an event is remembered that is done. Rarely for long: nothing happens to it any more.
fn duration_of_end() -> i64 {
    match fastrand::u8(..10) {
        0 => HOUR,
        1..5 => 0,
        _ => fastrand::i64(20_000..200_000),
    }
}

/// Rarely another one, which is a conflict.
fn body() -> u8 {
    u8::from(fastrand::u8(..20) == 0)
}

/// The path of a SQLite file, which is deleted in the end.
struct DatabaseFile(PathBuf);

impl DatabaseFile {
    fn new() -> Self {
        let name = format!("audience-linearizability-{:016x}.db", fastrand::u64(..));
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for DatabaseFile {
    fn drop(&mut self) {
        for suffix in ["", "-wal", "-shm", "-reserve"] {
            let _ = std::fs::remove_file(format!("{}{suffix}", self.0.display()));
        }
    }
}
