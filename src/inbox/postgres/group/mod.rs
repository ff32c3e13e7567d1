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
mod tests;
