//! Every method of a store is one atomic step. Processes call a store simultaneously, at random and for few events, while
//! they and the server are killed, paused, cut off and restarted. Then the calls for each event must be explained by
//! some order of steps that agrees with the times of the calls.
//!
//! - A call without a response, or with an error, took effect at any time after its start, or never.
//! - A store with a server makes some calls again if the connection was lost. Each connection that was lost during such a
//!   call, and no other, may have been that of one more run of it, which took effect at any time, or never.
//! - The store's clock reads a time between the start and the end of a call. Leases, delays and retentions are an hour,
//!   zero or 20 to 160 ms; near the end of one, both outcomes are allowed.
//! - What a call for several events returned is checked for each of them. That a call of `take` did not return an event
//!   is checked only after the other calls ended, because a store may skip an event that another call works on.
//!
//! With `AUDIENCE_LONG_TESTS=1` there are thousands of events for each store. `--nocapture` prints the numbers.

mod faults;
mod search;
pub(crate) mod specification;
pub(crate) mod workers;

use std::ops::AddAssign;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use audience::inbox::{MemoryStore, SqliteStore, Store};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use support::redis::OwnRedis;
use support::{DatabaseFile, postgres};

use self::faults::{Proxy, Server, signal};
use self::search::{Operation, Run, find_order};
use self::specification::{Answer, Call, Span};
use self::workers::{Answers, Kind, Request, Response, Worker, perform};

/// How many events the calls of one round are for.
const EVENTS: u8 = 6;
const CALLS_PER_EVENT: usize = 30;
const WORKERS: usize = 3;

const HOUR: i64 = 3_600_000_000;
/// How far the store's clock may be from the one of the test.
const UNCERTAINTY: i64 = 5_000;
/// How long a call for events takes at least if a store with Postgres gives up its second statement: it has half of the
/// time that is left.
const SECOND_STATEMENT: i64 = 450_000;
/// If the clock of the machine is set by more than this, the times of a round say nothing.
const CLOCK_CHANGE: Duration = Duration::from_millis(20);

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
    check_on_postgres(Kind::Postgres, rounds(6, 500)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_sqlx_calls_of_processes_on_postgres_are_atomic_steps() {
    check_on_postgres(Kind::SqlxPostgres, rounds(4, 250)).await;
}

async fn check_on_postgres(kind: Kind, rounds: usize) {
    let Some(server) = postgres::server().await else {
        return;
    };
    let database = server.database().await;
    let store = postgres::connect(&database.url).await.unwrap();
    store.migrate().await.unwrap();
    // More than six simultaneous calls of a process share statements.
    check_processes(kind, 10, Server::Postgres(server, database), rounds).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_processes_on_redis_are_atomic_steps() {
    let rounds = rounds(6, 500);
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
                let answer = match rule {
                    Rule::CompletionLost => Answer::Changed(true),
                    _ => Answer::Accepted,
                };
                return Reply {
                    response: Some(Response::One(answer)),
                    lost_connections: 0,
                };
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
            Reply {
                response: Some(response),
                lost_connections: 0,
            }
        }
        .boxed()
    })
}

/// Makes a call for the events of an endpoint.
type Caller = Arc<dyn Fn(String, Request) -> BoxFuture<'static, Reply> + Send + Sync>;

struct Reply {
    /// `None` if the caller died before.
    response: Option<Response>,
    /// How often the connections to the server were lost meanwhile.
    lost_connections: usize,
}

fn call_in_this_process(store: impl Store + Clone) -> Caller {
    Arc::new(move |endpoint, request| {
        let store = store.clone();
        async move {
            Reply {
                response: Some(perform(&store, &endpoint, &request).await),
                lost_connections: 0,
            }
        }
        .boxed()
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
    let shared = Shared {
        kind,
        server: &server,
    };
    let (tally, faults) = tokio::join!(
        async {
            let tally = check_rounds(&callers, rounds, Some(shared)).await;
            is_over.store(true, Ordering::Relaxed);
            tally
        },
        cause_faults(&slots, &server, &is_over),
    );

    match tally {
        Ok(tally) => {
            println!("{kind:?}: {tally}; {faults}");
            assert!(tally.unknown < tally.calls, "all calls failed");
            assert!(tally.events > 0, "nothing was decided");
        }
        Err(violation) => panic!("{kind:?}: {violation}\n{faults}"),
    }
}

/// The place of a worker, who is replaced when it was killed.
struct Slot {
    kind: Kind,
    location: String,
    proxy: Option<Proxy>,
    losses: Losses,
    worker: tokio::sync::RwLock<Arc<Worker>>,
}

/// Counts how often all connections of a worker were lost.
#[derive(Default)]
struct Losses {
    begun: AtomicUsize,
    ended: AtomicUsize,
}

impl Losses {
    fn begin(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
    }

    fn end(&self) {
        self.ended.fetch_add(1, Ordering::SeqCst);
    }
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
            losses: Losses::default(),
            worker: tokio::sync::RwLock::new(worker),
        }
    }

    async fn call(&self, endpoint: &str, request: &Request) -> Reply {
        let worker = Arc::clone(&*self.worker.read().await);
        let before = self.losses.ended.load(Ordering::SeqCst);
        let response = worker.call(endpoint, request).await;
        Reply {
            response,
            lost_connections: self.losses.begun.load(Ordering::SeqCst) - before,
        }
    }

    /// Cuts all connections of the worker.
    async fn cut(&self) {
        if let Some(proxy) = &self.proxy {
            self.losses.begin();
            proxy.cut().await;
            self.losses.end();
        }
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
            (40..65, Some(_)) => {
                slot.cut().await;
                faults.cuts += 1;
            }
            (65..90, Some(proxy)) => {
                let (requests, responses) = (fastrand::bool(), fastrand::bool());
                proxy.hold(requests, responses || !requests);
                // Half of the time longer than the worker is patient, or cut off in the end.
                let longest = if fastrand::u8(..10) == 0 { 2_500 } else { 200 };
                tokio::time::sleep(some_time(longest)).await;
                if fastrand::bool() {
                    slot.cut().await;
                }
                proxy.hold(false, false);
                faults.silences += 1;
            }
            (90..98, _) => {
                server.pause(some_time(200)).await;
                faults.server_pauses += 1;
            }
            _ => {
                for slot in slots {
                    slot.losses.begin();
                }
                server.restart().await;
                for slot in slots {
                    slot.losses.end();
                }
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
    /// Events with too many possible orders, or with a clock that was set meanwhile.
    undecided: usize,
    calls: usize,
    /// Calls without a response, or with an error.
    unknown: usize,
    /// Calls during which connections were lost.
    cut: usize,
    steps: usize,
    /// For one event.
    most_steps: usize,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.events += other.events;
        self.undecided += other.undecided;
        self.calls += other.calls;
        self.unknown += other.unknown;
        self.cut += other.cut;
        self.steps += other.steps;
        self.most_steps = self.most_steps.max(other.most_steps);
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} events with {} calls ({} of unknown outcome, {} while connections were lost) explained in {} steps, \
             at most {} for one event, and {} events undecided",
            self.events,
            self.calls,
            self.unknown,
            self.cut,
            self.steps,
            self.most_steps,
            self.undecided
        )
    }
}

/// A store that processes share.
#[derive(Clone, Copy)]
struct Shared<'a, 's> {
    kind: Kind,
    server: &'a tokio::sync::Mutex<&'s mut Server>,
}

/// Runs rounds, each for other events. Returns the text of the first violation.
async fn check_rounds(
    callers: &[Caller],
    rounds: usize,
    shared: Option<Shared<'_, '_>>,
) -> Result<Tally, String> {
    let mut tally = Tally::default();
    let mut checks = Vec::new();
    for number in 0..rounds {
        let kind = shared.map(|shared| shared.kind);
        let round = Round::new(format!("round-{number}"), kind);
        let calling = callers.iter().map(|caller| round.call_at_random(caller));
        join_all(calling).await;
        let mut quiet = None;
        if let Some(shared) = shared {
            let server = quiet.insert(shared.server.lock().await);
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
    /// `None`: the store is in memory.
    kind: Option<Kind>,
    start: Instant,
    /// The same by the clock of the machine.
    start_of_clock: SystemTime,
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
    lost_connections: usize,
    order: (u64, u64),
    /// In microseconds.
    time: (i64, i64),
    /// Whether no other call was made meanwhile.
    is_quiet: bool,
}

impl Round {
    fn new(endpoint: String, kind: Option<Kind>) -> Self {
        Self {
            endpoint,
            kind,
            start: Instant::now(),
            start_of_clock: SystemTime::now(),
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
        let reply = caller(self.endpoint.clone(), request.clone()).await;
        let response = reply.response;
        let (ended, end) = (now(), self.order.fetch_add(1, Ordering::SeqCst));
        // Not before, and not after an error: nobody holds a claim that did not return.
        if let (Request::For(event, Call::Claim { token, .. }), Some(Response::One(_))) =
            (&request, &response)
        {
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
            lost_connections: reply.lost_connections,
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

    fn request_at_random(&self) -> Request {
        let event = fastrand::u8(..EVENTS);
        let token = self.known_token(event);
        let call = match fastrand::u8(..100) {
            0..20 => {
                let is_repeated = fastrand::u8(..10) == 0;
                Call::Claim {
                    token: if is_repeated { token } else { self.new_token() },
                    lease: duration(),
                    retention: duration(),
                    body: fastrand::bool().then(body),
                }
            }
            20..25 => Call::Extend {
                token,
                lease: duration(),
            },
            25..33 => Call::Complete {
                token,
                retention: duration_of_end(),
            },
            33..48 => Call::Release {
                token,
                delay: duration(),
                retention: duration(),
            },
            48..55 => Call::Park {
                token,
                reason: u64::from(fastrand::u8(..)),
            },
            55..67 => Call::Accept { body: body() },
            67..74 => Call::Replay,
            74..77 => Call::Discard {
                retention: duration_of_end(),
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
                    retention: duration_of_end(),
                    token: self.new_token(),
                    lease: duration(),
                    limit: fastrand::usize(..3),
                };
            }
        };
        Request::For(event, call)
    }

    /// Returns whether the clock of the machine was set since the round began.
    fn clock_was_set(&self) -> bool {
        let passed = self.start.elapsed();
        let by_clock = self.start_of_clock.elapsed();
        by_clock.is_err() || by_clock.is_ok_and(|by_clock| by_clock.abs_diff(passed) > CLOCK_CHANGE)
    }

    fn check(self) -> Result<Tally, String> {
        let clock_was_set = self.clock_was_set();
        let records = self.records.into_inner().unwrap();
        let mut tally = Tally {
            calls: records.len(),
            ..Tally::default()
        };
        let is_unknown =
            |record: &&Record| matches!(record.response, None | Some(Response::Failed(_)));
        tally.unknown = records.iter().filter(is_unknown).count();
        let is_cut = |record: &&Record| record.lost_connections > 0;
        tally.cut = records.iter().filter(is_cut).count();
        if clock_was_set {
            tally.undecided = usize::from(EVENTS);
            return Ok(tally);
        }
        let end = records.iter().map(|record| record.time.1).max();
        for event in 0..EVENTS {
            let operations: Vec<_> = records
                .iter()
                .flat_map(|record| record.operations(event, end.unwrap_or(0), self.kind))
                .collect();
            match find_order(operations) {
                Ok(steps) => {
                    tally.most_steps = tally.most_steps.max(steps);
                    tally.events += 1;
                    tally.steps += steps;
                }
                Err(unexplained) if unexplained.is_violation => {
                    return Err(format!("{} event {event}\n{unexplained}", self.endpoint));
                }
                // On a slow machine, many calls have no response.
                Err(_) => tally.undecided += 1,
            }
        }
        Ok(tally)
    }
}

impl Record {
    /// Returns the runs of the call that are for one event.
    fn operations(&self, event: u8, end_of_round: i64, kind: Option<Kind>) -> Vec<Operation> {
        let operation = |call, run: Run| {
            let last = match run {
                Run::Last { .. } | Run::Earlier => self.time.1,
                Run::Lost => end_of_round,
            };
            Operation {
                call,
                run,
                start: self.order.0,
                time: Span::new(self.time.0 - UNCERTAINTY, last + UNCERTAINTY),
            }
        };
        let run = |answer: Option<Answer>| match answer {
            Some(answer) => Run::Last {
                answer,
                end: self.order.1,
            },
            None => Run::Lost,
        };
        // The runs of a call that a store may make again, of which the last one returned this.
        let runs = |call: Call, answer: Option<Answer>| {
            let lost = self
                .lost_connections
                .min(kind.map_or(0, |kind| runs_lost_by(kind, &call)));
            let lost = std::iter::repeat_n(operation(call, Run::Lost), lost);
            lost.chain([operation(call, run(answer))])
        };
        let is_postgres = matches!(kind, Some(Kind::Postgres | Kind::SqlxPostgres));
        let time = self.time.1 - self.time.0;
        let of_event = |answers: &Answers| {
            let answer = answers.iter().find(|(each, _)| *each == event);
            answer.map(|(_, answer)| *answer)
        };
        let take = |token, lease, limit: usize, taken: Option<&Answers>| {
            let call = Call::Take { token, lease };
            let lost = operation(call, Run::Lost);
            let is_twice = match taken.map(of_event) {
                None => limit > 1 && lease < HOUR,
                Some(Some(_)) => limit > 1 && lease <= time,
                Some(None) => self.lost_connections > 0 || time >= SECOND_STATEMENT,
            };
            // A second statement of the call looks for more events, and may find one again whose lease is over. What it
            // took is not known if it was lost, or took too long.
            let second = (is_postgres && is_twice).then(|| lost.clone());
            let first = match taken {
                None => Some(lost),
                Some(taken) => {
                    let not_taken = self.is_quiet.then_some(Answer::NotTaken);
                    let answer = of_event(taken).or(not_taken);
                    answer.map(|answer| operation(call, run(Some(answer))))
                }
            };
            second.into_iter().chain(first)
        };
        match (&self.request, &self.response) {
            (Request::For(each, _), _) if *each != event => Vec::new(),
            (Request::For(_, call), response) => {
                let answer = match response {
                    Some(Response::One(answer)) => Some(*answer),
                    _ => None,
                };
                let mut operations: Vec<_> = runs(*call, answer).collect();
                if let Call::Claim {
                    token,
                    lease,
                    retention,
                    ..
                } = *call
                    && is_postgres
                {
                    // A claim that took long is renewed, or if somebody else had the event since, made again.
                    if time >= lease / 2 {
                        let earlier = answer.map_or(Run::Lost, |_| Run::Earlier);
                        operations.push(operation(*call, earlier));
                        // The renewal is a statement of its own: another claim with this token may come in between.
                        let mut renewal = operation(Call::Extend { token, lease }, Run::Lost);
                        if answer.is_some() {
                            renewal.time.to = self.time.1 + UNCERTAINTY;
                        }
                        operations.push(renewal);
                    }
                    // The claim of a caller that does not wait for it any more is ended.
                    if answer.is_none() {
                        let release = Call::Release {
                            token,
                            delay: 0,
                            retention,
                        };
                        operations.push(operation(release, Run::Lost));
                    }
                }
                operations
            }
            (Request::Parked, Some(Response::Several(listed))) => {
                let answer = of_event(listed).unwrap_or(Answer::NotListed);
                vec![operation(Call::Parked, run(Some(answer)))]
            }
            (
                Request::Take {
                    token,
                    lease,
                    limit,
                },
                response,
            ) => {
                let taken = match response {
                    Some(Response::Several(taken)) => Some(taken),
                    _ => None,
                };
                take(*token, *lease, *limit, taken).collect()
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
                // Otherwise one statement completes them and takes events. It is run once.
                let one_by_one = !is_postgres || completed[0].0 == completed[1].0;
                let of_this = completed.iter().enumerate();
                let of_this = of_this.filter(|(_, (each, _))| *each == event);
                let mut operations: Vec<_> = of_this
                    .flat_map(|(at, (_, token))| {
                        let token = *token;
                        let answer = held.map(|held| Answer::Changed(held[at]));
                        let call = Call::Complete { token, retention };
                        match one_by_one {
                            true => runs(call, answer).collect(),
                            false => vec![operation(call, run(answer))],
                        }
                    })
                    .collect();
                if *limit > 0 {
                    operations.extend(take(*token, *lease, *limit, taken));
                }
                operations
            }
            (Request::Parked | Request::Purge, _) => Vec::new(),
        }
    }
}

/// Returns how many runs of a call can lose their connection before the last one, whose result the call has.
fn runs_lost_by(kind: Kind, call: &Call) -> usize {
    match (kind, call) {
        (Kind::Sqlite | Kind::SqlxSqlite, _) => 0,
        // Together with other calls, and then two statements alone, each twice.
        (Kind::Postgres | Kind::SqlxPostgres, Call::Claim { .. }) => 3,
        (Kind::Postgres | Kind::SqlxPostgres, Call::Complete { .. }) => 2,
        (Kind::Postgres | Kind::SqlxPostgres, Call::Extend { .. }) => 1,
        // A claim of an event that is kept has two steps, each twice.
        (Kind::Redis, Call::Claim { .. }) => 2,
        (Kind::Redis, Call::Complete { .. } | Call::Extend { .. } | Call::Accept { .. }) => 1,
        // Others are made once, or their second run has no effect and the result of the first one.
        _ => 0,
    }
}

/// A lease, a delay, or a retention.
fn duration() -> i64 {
    match fastrand::u8(..10) {
        0..4 => HOUR,
        4..7 => 0,
        // A few, so that calls are equal.
        _ => 20_000 << fastrand::u8(..4),
    }
}

/// How long an event is remembered that is done. Rarely for long: nothing happens to it any more.
fn duration_of_end() -> i64 {
    match fastrand::u8(..10) {
        0 => HOUR,
        1..5 => 0,
        _ => 20_000 << fastrand::u8(..4),
    }
}

/// Rarely another one, which is a conflict.
fn body() -> u8 {
    u8::from(fastrand::u8(..20) == 0)
}
