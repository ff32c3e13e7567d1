//! Claims and completions of callers that wait simultaneously, made by one statement and one write to the disk.
//!
//! Up to a few callers run a statement each, which is fastest for them. If more wait, a task collects their calls and
//! runs one statement for all of them, then collects those that came meanwhile.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::task::yield_now;
use tokio::time::timeout;

use super::entries::{Columns, Driver, Entries, in_time, present, time};
use super::statements::{GROUP, Value};
use crate::inbox::error::StoreError;
use crate::inbox::store::{EventKey, Fingerprint, HeldClaim, Release, Store, Token};
use crate::webhooks::EventId;

/// How many calls run a statement of their own.
const ALONE: usize = 7;
/// How many calls one statement serves.
const LARGEST: usize = 128;
/// How many calls wait for each task before another one is started, and how many tasks there are.
const WAITING_PER_TASK: usize = 32;
const TASKS: usize = 2;
/// After so many groups that were small, each call has a statement of its own again.
const SMALL: usize = 3;
const SMALL_GROUPS: u32 = 4;
/// How long a task waits for the next call.
const PATIENCE: Duration = Duration::from_millis(2);

/// How long a statement for several calls waits for a transaction that has one of their entries. The calls then run
/// alone, so that only the one whose entry it is waits any longer.
pub(super) const LOCK_TIMEOUT: &str = "20ms";

/// The calls that wait.
#[derive(Clone, Default)]
pub(super) struct Group(Arc<Shared>);

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    arrived: Notify,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Call>,
    alone: usize,
    tasks: usize,
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

/// How a call continues.
pub(super) enum Turn<'g> {
    /// With a statement of its own.
    Alone(Alone<'g>),
    /// It was made together with others.
    Together(Outcome),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Outcome {
    /// It changed the entry.
    Done { attempt: u32, remaining: Duration },
    /// The entry is in a state that does not allow it.
    Refused,
    /// The statement failed, maybe because of another call.
    Unknown,
}

/// Counts a call that runs a statement of its own, until it is dropped.
pub(super) struct Alone<'g>(&'g Group);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.lock().alone -= 1;
    }
}

impl Group {
    /// Waits for a call to be made together with others, or returns immediately if only few are waiting.
    pub(super) async fn turn<'e, D: Driver>(
        entries: &'e Entries<D>,
        held: HeldClaim<'_>,
        work: Work,
    ) -> Turn<'e> {
        let receiver = {
            let group = &entries.group;
            let mut queue = group.lock();
            if queue.tasks == 0 && queue.alone < ALONE {
                queue.alone += 1;
                return Turn::Alone(Alone(group));
            }
            let (reply, receiver) = oneshot::channel();
            queue.waiting.push_back(Call {
                endpoint: held.key.endpoint.into(),
                id: held.key.id.clone(),
                token: held.token,
                work,
                reply,
            });
            let needed = queue.waiting.len().div_ceil(WAITING_PER_TASK).min(TASKS);
            if queue.tasks < needed {
                queue.tasks += 1;
                tokio::spawn(serve(entries.clone(), Task(group.clone())));
            }
            receiver
        };
        entries.group.0.arrived.notify_one();
        // The task may have ended with its runtime.
        Turn::Together(receiver.await.unwrap_or(Outcome::Unknown))
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        let queue = self.0.queue.lock();
        queue.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a task as running, until it is dropped.
struct Task(Group);

impl Drop for Task {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.tasks -= 1;
        if queue.tasks == 0 {
            // Nobody would serve them. Their callers notice, and run alone.
            queue.waiting.clear();
        }
    }
}

/// Serves the calls that wait, until too few come to be worth it.
async fn serve<D: Driver>(entries: Entries<D>, task: Task) {
    let group = &task.0;
    let mut small_groups = 0;
    loop {
        let calls = group.lock().next_calls();
        if calls.is_empty() {
            if small_groups >= SMALL_GROUPS || !group.has_call_soon().await {
                break;
            }
            continue;
        }
        small_groups = if calls.len() <= SMALL {
            small_groups + 1
        } else {
            0
        };
        run(&entries, calls).await;
        // Lets the callers whose calls have ended make their next ones, which then share a statement.
        yield_now().await;
    }
    // `task` decides under the lock whether anybody waits.
}

impl Group {
    async fn has_call_soon(&self) -> bool {
        timeout(PATIENCE, self.0.arrived.notified()).await.is_ok()
    }
}

impl Queue {
    /// Removes calls that one statement can serve, sorted by their ids: so two statements lock entries in the same order.
    fn next_calls(&mut self) -> Vec<Call> {
        let Some(first) = self.waiting.front() else {
            return Vec::new();
        };
        let endpoint = first.endpoint.clone();
        let mut chosen: Vec<Call> = Vec::with_capacity(self.waiting.len().min(LARGEST));
        let mut claim = None;
        let mut completion = None;
        let mut others = VecDeque::new();
        while chosen.len() < LARGEST
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
            if call.endpoint == endpoint && *common.get_or_insert(settings) == settings {
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
        if is_gone && is_claim && matches!(outcome, Outcome::Done { .. }) {
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
    let mut completed = Ids::default();
    let mut claimed = Ids::default();
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
    // A completion is always durable.
    let commit = if completed.ids.is_empty() {
        entries.claim_commit
    } else {
        ""
    };
    let fingerprints = (!fingerprints.is_empty()).then_some(fingerprints.as_slice());
    let endpoint = calls.first().map_or("", |call| &*call.endpoint);
    let values: [Value<'_>; 11] = [
        endpoint.into(),
        Value::Texts(&completed.ids),
        completed.tokens.as_slice().into(),
        completed_for.into(),
        Value::Texts(&claimed.ids),
        claimed.tokens.as_slice().into(),
        leased_for.into(),
        claimed_for.into(),
        fingerprints.into(),
        LOCK_TIMEOUT.into(),
        commit.into(),
    ];
    let query = async { Ok(entries.driver.query(&GROUP, &values).await?) };
    let rows = in_time(entries.timeout, query).await?;
    let mut outcomes = vec![Outcome::Refused; calls.len()];
    for row in &rows {
        let id = present(row.text("event_id"))?;
        if let Ok(at) = calls.binary_search_by(|call| call.id.as_str().cmp(id)) {
            outcomes[at] = Outcome::Done {
                attempt: row.integer("attempts")?.unsigned_abs(),
                remaining: time(row, "remaining")?,
            };
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
