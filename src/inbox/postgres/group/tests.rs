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
            Event::GiveUp(call) => match std::mem::replace(&mut self.calls[call], Call::GivenUp) {
                Call::Waits(task) => task.abort(),
                _ => panic!("the call waits"),
            },
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
