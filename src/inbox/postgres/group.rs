//! Claims and completions of callers that wait simultaneously, made by one statement and one write to the disk.
//!
//! While few calls are in progress, each runs a statement of its own, which is fastest for them. Otherwise one or two
//! tasks run a statement for all calls that wait, then one for those that came meanwhile, until no call waits.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::yield_now;

use super::entries::{Columns, Driver, Entries, in_time, present};
use super::statements::{GROUP, Value};
use crate::inbox::error::StoreError;
use crate::inbox::store::{EventKey, Fingerprint, HeldClaim, Release, Store, Token};
use crate::sync::lock;
use crate::webhooks::EventId;

/// How many calls in progress run a statement of their own.
const ALONE: usize = 6;
/// From how many calls in progress on there are two statements at a time: while one is executed, the other one waits
/// for the disk, or its callers make their next calls. With fewer calls, one larger statement for all of them is
/// faster.
const TWO_STATEMENTS: usize = 32;
/// How many calls one statement serves.
const LARGEST: usize = 128;

/// How long a statement for several calls waits for a transaction that has one of their entries. The calls then run
/// alone, so that only the one whose entry it is waits any longer.
pub(super) const LOCK_TIMEOUT: &str = "20ms";

#[derive(Clone, Default)]
pub(super) struct Group(Arc<Shared>);

#[derive(Default)]
struct Shared {
    in_progress: AtomicUsize,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Call>,
    servers: usize,
}

struct Call {
    endpoint: Box<str>,
    id: EventId,
    token: Token,
    work: Work,
    reply: oneshot::Sender<Outcome>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Work {
    Claim {
        lease: Duration,
        retention: Duration,
        fingerprint: Option<Fingerprint>,
    },
    Complete {
        retention: Duration,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Outcome {
    /// It changed the entry.
    Done,
    /// The entry is in a state that does not allow it.
    Refused,
    /// The statement failed, maybe because of another call.
    Unknown,
}

/// Counts a call as in progress, until it is dropped.
pub(super) struct Place<'g> {
    group: &'g Group,
    /// Whether the call should run a statement of its own.
    pub(super) is_alone: bool,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.group.0.in_progress.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Group {
    pub(super) fn enter(&self) -> Place<'_> {
        let others = self.0.in_progress.fetch_add(1, Ordering::Relaxed);
        Place {
            group: self,
            is_alone: others < ALONE,
        }
    }

    fn in_progress(&self) -> usize {
        self.0.in_progress.load(Ordering::Relaxed)
    }

    /// Returns how many statements for several calls should run at a time.
    fn statements(&self) -> usize {
        1 + usize::from(self.in_progress() >= TWO_STATEMENTS)
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        lock(&self.0.queue)
    }
}

/// Makes a call together with others.
pub(super) async fn together<D: Driver>(
    entries: &Entries<D>,
    held: HeldClaim<'_>,
    work: Work,
) -> Outcome {
    let (reply, receiver) = oneshot::channel();
    let call = Call {
        endpoint: held.key.endpoint.into(),
        id: held.key.id.clone(),
        token: held.token,
        work,
        reply,
    };
    let group = &entries.group;
    let needs_server = {
        let mut queue = group.lock();
        queue.waiting.push_back(call);
        let needs_server = queue.servers < group.statements();
        queue.servers += usize::from(needs_server);
        needs_server
    };
    if needs_server {
        let server = Server {
            group: group.clone(),
            is_serving: true,
        };
        tokio::spawn(serve(entries.clone(), server));
    }
    // The task may have ended with its runtime.
    receiver.await.unwrap_or(Outcome::Unknown)
}

/// Serves the calls that wait.
struct Server {
    group: Group,
    is_serving: bool,
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.is_serving {
            // The task was cut off. The callers that wait notice, and run alone.
            let mut queue = self.group.lock();
            queue.servers -= 1;
            queue.waiting.clear();
        }
    }
}

async fn serve<D: Driver>(entries: Entries<D>, mut server: Server) {
    loop {
        // Lets the callers whose calls have ended make their next ones, which then share a statement.
        yield_now().await;
        let Some(calls) = server.next_calls() else {
            break;
        };
        run(&entries, calls).await;
    }
}

impl Server {
    /// Returns `None` if no call waits. The next one starts another task.
    fn next_calls(&mut self) -> Option<Vec<Call>> {
        let largest = self.group.in_progress() / self.group.statements();
        let mut queue = self.group.lock();
        let calls = queue.next_calls(largest.clamp(1, LARGEST));
        self.is_serving = !calls.is_empty();
        // Under the same lock, so that no call is left waiting.
        queue.servers -= usize::from(!self.is_serving);
        self.is_serving.then_some(calls)
    }
}

impl Queue {
    /// Removes calls that one statement can serve, sorted by their ids: so two statements lock entries in the same
    /// order.
    fn next_calls(&mut self, largest: usize) -> Vec<Call> {
        let mut chosen: Vec<Call> = Vec::with_capacity(self.waiting.len().min(largest));
        let (mut claim, mut completion) = (None, None);
        let mut others = VecDeque::new();
        while chosen.len() < largest
            && let Some(call) = self.waiting.pop_front()
        {
            // Only the caller can use a claim, so one whose caller is gone is not made.
            if matches!(call.work, Work::Claim { .. }) && call.reply.is_closed() {
                continue;
            }
            let settings = call.work.settings();
            let common = match call.work {
                Work::Claim { .. } => &mut claim,
                Work::Complete { .. } => &mut completion,
            };
            let is_near = chosen
                .first()
                .is_none_or(|first| first.endpoint == call.endpoint);
            if is_near && *common.get_or_insert(settings) == settings {
                chosen.push(call);
            } else {
                others.push_back(call);
            }
        }
        chosen.sort_by(|a, b| a.id.cmp(&b.id));
        // No entry can be changed twice by one statement.
        let mut unique: Vec<Call> = Vec::with_capacity(chosen.len());
        for call in chosen {
            if unique.last().is_some_and(|last| last.id == call.id) {
                others.push_back(call);
            } else {
                unique.push(call);
            }
        }
        while let Some(call) = others.pop_back() {
            self.waiting.push_front(call);
        }
        unique
    }
}

impl Work {
    /// Returns what all calls of a statement have in common.
    fn settings(self) -> (Duration, Duration, bool) {
        match self {
            Self::Claim {
                lease,
                retention,
                fingerprint,
            } => (lease, retention, fingerprint.is_some()),
            Self::Complete { retention } => (Duration::ZERO, retention, false),
        }
    }
}

/// Runs one statement for these calls, and replies to them.
async fn run<D: Driver>(entries: &Entries<D>, calls: Vec<Call>) {
    let outcomes = run_statement(entries, &calls).await;
    let outcomes = outcomes.unwrap_or_else(|_| vec![Outcome::Unknown; calls.len()]);
    let mut abandoned = Vec::new();
    for (call, outcome) in calls.into_iter().zip(outcomes) {
        let is_claim = matches!(call.work, Work::Claim { .. });
        let is_gone = call.reply.send(outcome).is_err();
        if is_gone && is_claim && outcome == Outcome::Done {
            abandoned.push((call.endpoint, call.id, call.token, call.work.settings().1));
        }
    }
    if !abandoned.is_empty() {
        tokio::spawn(release(entries.clone(), abandoned));
    }
}

/// Ends claims whose callers are gone, so that the next one need not wait for the end of the lease.
async fn release<D: Driver>(
    entries: Entries<D>,
    abandoned: Vec<(Box<str>, EventId, Token, Duration)>,
) {
    for (endpoint, id, token, retention) in abandoned {
        let held = HeldClaim::new(EventKey::new(&endpoint, &id), token);
        let release = Release::new(
            Duration::ZERO,
            retention,
            "the caller did not wait for its claim",
        );
        // Otherwise the claim ends with its lease.
        let _ = entries.release(held, release).await;
    }
}

async fn run_statement<D: Driver>(
    entries: &Entries<D>,
    calls: &[Call],
) -> Result<Vec<Outcome>, StoreError> {
    let (mut completed, mut claimed) = (Ids::default(), Ids::default());
    let mut fingerprints = Vec::new();
    let (mut completed_for, mut leased_for, mut claimed_for) = Default::default();
    for call in calls {
        match call.work {
            Work::Complete { retention } => {
                completed.push(&call.id, call.token);
                completed_for = retention;
            }
            Work::Claim {
                lease,
                retention,
                fingerprint,
            } => {
                claimed.push(&call.id, call.token);
                (leased_for, claimed_for) = (lease, retention);
                fingerprints.extend(fingerprint.iter().flat_map(Fingerprint::as_bytes));
            }
        }
    }
    let values = [
        calls.first().map_or("", |call| &*call.endpoint).into(),
        Value::Texts(&completed.ids),
        completed.tokens.as_slice().into(),
        completed_for.into(),
        Value::Texts(&claimed.ids),
        claimed.tokens.as_slice().into(),
        leased_for.into(),
        claimed_for.into(),
        (!fingerprints.is_empty())
            .then_some(fingerprints.as_slice())
            .into(),
        LOCK_TIMEOUT.into(),
    ];
    let query = async { Ok(entries.driver.query(&GROUP, &values).await?) };
    let mut outcomes = vec![Outcome::Refused; calls.len()];
    for row in &in_time(entries.timeout, query).await? {
        let id = present(row.text("event_id"))?;
        if let Ok(at) = calls.binary_search_by(|call| call.id.as_str().cmp(id)) {
            outcomes[at] = Outcome::Done;
        }
    }
    Ok(outcomes)
}

/// Ids and tokens, as the statements take them.
#[derive(Default)]
pub(super) struct Ids<'a> {
    pub(super) ids: Vec<&'a str>,
    pub(super) tokens: Vec<u8>,
}

impl<'a> Ids<'a> {
    pub(super) fn push(&mut self, id: &'a EventId, token: Token) {
        self.ids.push(id.as_str());
        self.tokens.extend(token.as_bytes());
    }
}

/// Every order in which calls begin or are given up and statements end, up to a few calls.
#[cfg(test)]
mod tests {
    use tokio::task::JoinHandle;

    use super::super::entries::{Aftermath, Failed};
    use super::super::statements::Statement;
    use super::*;

    const LEASE: Duration = Duration::from_secs(60);
    /// The event and the work of each call.
    const CALLS: [(&str, Work); 4] = [
        ("evt_1", CLAIM),
        ("evt_1", COMPLETION),
        ("evt_2", CLAIM),
        ("evt_3", CLAIM),
    ];
    const CLAIM: Work = Work::Claim {
        lease: LEASE,
        retention: LEASE,
        fingerprint: None,
    };
    const COMPLETION: Work = Work::Complete { retention: LEASE };

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum End {
        Committed,
        Failed,
        /// The task that runs the statement is cut off, as when its runtime ends.
        CutOff,
    }

    /// A database that ends a statement for several calls when the test says so. A call's token is its index.
    #[derive(Clone, Default)]
    struct Database(Arc<Mutex<Statements>>);

    #[derive(Default)]
    struct Statements {
        /// The calls of each statement that has not ended.
        running: Vec<(Vec<usize>, oneshot::Sender<End>)>,
        /// How the statement of each call ended.
        ends: [Option<End>; CALLS.len()],
        released: Vec<usize>,
    }

    struct Row(&'static str);

    impl Columns for Row {
        fn text(&self, name: &str) -> Result<Option<&str>, StoreError> {
            assert_eq!(name, "event_id");
            Ok(Some(self.0))
        }

        fn bytes(&self, _: &str) -> Result<Option<&[u8]>, StoreError> {
            unreachable!("the statement returns ids only")
        }

        fn boolean(&self, _: &str) -> Result<bool, StoreError> {
            unreachable!("the statement returns ids only")
        }

        fn integer(&self, _: &str) -> Result<i32, StoreError> {
            unreachable!("the statement returns ids only")
        }

        fn bigint(&self, _: &str) -> Result<i64, StoreError> {
            unreachable!("the statement returns ids only")
        }

        fn float(&self, _: &str) -> Result<f64, StoreError> {
            unreachable!("the statement returns ids only")
        }
    }

    fn calls_of(tokens: &[u8]) -> impl Iterator<Item = usize> {
        tokens.chunks(16).map(|token| token[0].into())
    }

    impl Driver for Database {
        type Row = Row;

        async fn query(
            &self,
            statement: &'static Statement,
            values: &[Value<'_>],
        ) -> Result<Vec<Row>, Failed> {
            let (calls, ended) = {
                let mut statements = self.0.lock().unwrap();
                let calls: Vec<usize> = match values {
                    [
                        _,
                        _,
                        Value::Bytes(Some(completed)),
                        _,
                        _,
                        Value::Bytes(Some(claimed)),
                        ..,
                    ] if statement.sql == GROUP.sql => {
                        calls_of(completed).chain(calls_of(claimed)).collect()
                    }
                    [_, Value::Text(_), Value::Bytes(Some(token)), ..] => {
                        statements.released.extend(calls_of(token));
                        return Ok(vec![Row("")]);
                    }
                    _ => panic!("{}", statement.sql),
                };
                let (end, ended) = oneshot::channel();
                statements.running.push((calls.clone(), end));
                (calls, ended)
            };
            match ended.await {
                Ok(End::Committed) => Ok(calls.iter().map(|call| Row(CALLS[*call].0)).collect()),
                Ok(End::Failed) => Err(Failed {
                    error: StoreError::unavailable("it failed"),
                    aftermath: Aftermath::ConnectionLost,
                }),
                // A panic that is not printed.
                Ok(End::CutOff) | Err(_) => std::panic::resume_unwind(Box::new("cut off")),
            }
        }
    }

    enum Call {
        NotBegun,
        Waits(JoinHandle<Outcome>),
        GivenUp,
        Ended(Outcome),
    }

    #[derive(Clone, Copy, Debug)]
    enum Event {
        Begin(usize),
        GiveUp(usize),
        End(usize, End),
    }

    /// The calls, and the store that they use.
    struct Run {
        entries: Entries<Database>,
        calls: Vec<Call>,
        most_statements: usize,
    }

    impl Run {
        fn new(calls: usize, most_statements: usize) -> Self {
            Self {
                entries: Entries::new(Database::default(), LEASE),
                calls: (0..calls).map(|_| Call::NotBegun).collect(),
                most_statements,
            }
        }

        fn statements(&self) -> MutexGuard<'_, Statements> {
            self.entries.driver.0.lock().unwrap()
        }

        /// Returns what can happen next.
        fn events(&self) -> Vec<Event> {
            // They begin in order: another order would be that of other calls.
            let mut calls = self.calls.iter();
            let begin = calls.position(|call| matches!(call, Call::NotBegun));
            let waits = |call: &usize| matches!(self.calls[*call], Call::Waits(_));
            let given_up = (0..self.calls.len()).filter(waits).map(Event::GiveUp);
            let ends = (0..self.statements().running.len()).flat_map(|statement| {
                let ends = [End::Committed, End::Failed, End::CutOff];
                ends.map(|end| Event::End(statement, end))
            });
            let begin = begin.map(Event::Begin).into_iter();
            begin.chain(given_up).chain(ends).collect()
        }

        async fn make_happen(&mut self, event: Event) {
            match event {
                Event::Begin(call) => {
                    let entries = self.entries.clone();
                    self.calls[call] = Call::Waits(tokio::spawn(async move {
                        let (id, work) = CALLS[call];
                        let id = EventId::try_from(id).unwrap();
                        let token = Token::from_bytes([u8::try_from(call).unwrap(); 16]);
                        let held = HeldClaim::new(EventKey::new("main", &id), token);
                        let _place = entries.group.enter();
                        together(&entries, held, work).await
                    }));
                }
                Event::GiveUp(call) => {
                    match std::mem::replace(&mut self.calls[call], Call::GivenUp) {
                        Call::Waits(task) => task.abort(),
                        _ => panic!("the call waits"),
                    }
                }
                Event::End(statement, end) => {
                    self.end(statement, end);
                }
            }
            // Until every task waits.
            for _ in 0..30 {
                yield_now().await;
            }
            for call in &mut self.calls {
                if let Call::Waits(task) = call
                    && task.is_finished()
                {
                    *call = Call::Ended(task.await.unwrap());
                }
            }
            self.check();
        }

        fn end(&self, statement: usize, end: End) {
            let mut statements = self.statements();
            let (calls, ended) = statements.running.remove(statement);
            for call in calls {
                let before = statements.ends[call].replace(end);
                assert_eq!(before, None, "call {call} is in one statement only");
            }
            ended.send(end).unwrap();
        }

        fn check(&self) {
            let queue = self.entries.group.lock();
            let statements = self.statements();
            assert_eq!(queue.servers, statements.running.len());
            assert!(queue.servers <= self.most_statements);
            assert!(
                queue.servers > 0 || queue.waiting.is_empty(),
                "a call is left waiting"
            );
            for (call, state) in self.calls.iter().enumerate() {
                let Call::Ended(outcome) = state else {
                    continue;
                };
                let expected = match statements.ends[call] {
                    Some(End::Committed) => Outcome::Done,
                    Some(_) => Outcome::Unknown,
                    // It waited while another statement was cut off.
                    None => {
                        assert!(statements.ends.contains(&Some(End::CutOff)));
                        Outcome::Unknown
                    }
                };
                assert_eq!(*outcome, expected, "call {call}");
            }
        }

        /// Checks what holds when nothing can happen any more.
        fn check_end(&self) {
            let statements = self.statements();
            for (call, state) in self.calls.iter().enumerate() {
                let is_given_up = matches!(state, Call::GivenUp);
                assert!(
                    is_given_up || matches!(state, Call::Ended(_)),
                    "call {call} hangs"
                );
                let is_lost = is_given_up
                    && statements.ends[call] == Some(End::Committed)
                    && matches!(CALLS[call].1, Work::Claim { .. });
                let released = statements
                    .released
                    .iter()
                    .filter(|released| **released == call);
                assert_eq!(released.count(), usize::from(is_lost), "call {call}");
            }
        }
    }

    /// Makes every sequence of events happen to this many calls, while others are in progress. Returns how many
    /// sequences there are.
    async fn explore(calls: usize, others: usize) -> usize {
        let mut sequences = 0;
        // At each event, the choice that is made, of so many.
        let mut choices: Vec<(usize, usize)> = Vec::new();
        loop {
            let mut run = Run::new(calls, if others < TWO_STATEMENTS { 1 } else { 2 });
            let group = run.entries.group.clone();
            let _others: Vec<_> = (0..others).map(|_| group.enter()).collect();
            let mut made = Vec::new();
            for step in 0.. {
                let events = run.events();
                if events.is_empty() {
                    break;
                }
                if step == choices.len() {
                    choices.push((0, events.len()));
                }
                made.push(events[choices[step].0]);
                run.make_happen(made[step]).await;
            }
            run.check_end();
            sequences += 1;
            // The next sequence differs in the last event that can be another one.
            while choices
                .pop_if(|(choice, count)| *choice + 1 == *count)
                .is_some()
            {}
            match choices.last_mut() {
                Some((choice, _)) => *choice += 1,
                None => return sequences,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_is_cut_off_leaves_no_call_waiting_and_the_next_call_starts_another() {
        let mut run = Run::new(3, 1);

        for event in [
            Event::Begin(0),
            Event::Begin(1),
            Event::End(0, End::CutOff),
            Event::Begin(2),
            Event::End(0, End::Committed),
        ] {
            run.make_happen(event).await;
        }

        run.check_end();
    }

    #[tokio::test(start_paused = true)]
    async fn no_call_is_lost_in_any_order_of_calls_and_statements() {
        let calls = match std::env::var_os("AUDIENCE_LONG_TESTS") {
            Some(_) => CALLS.len(),
            None => 3,
        };
        let one_statement = explore(calls, 0).await;
        let two_statements = explore(calls, TWO_STATEMENTS).await;

        println!("{one_statement} and {two_statements} sequences");
        assert!(one_statement > 1_000 && two_statements > 1_000);
    }
}
