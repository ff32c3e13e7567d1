//! Cases that every [`Store`] must pass, for tests of a store of your own.
//!
//! A [`Suite`] runs more than a hundred cases: races, expired leases, late holders, retention, two bodies with one id,
//! workers, parked events, confusable ids, binary bodies. The name of a case is a sentence, and a failed case says
//! what was expected and what happened. The stores of this crate pass all of them.
//!
//! A case waits for each timeout that must end; all other timeouts last an hour. So a slow machine makes a run
//! longer, but does not change its result. With the default way of waiting, a run takes a few seconds plus the
//! time of the store.
//!
//! Run it in a runtime with several threads, and through several handles
//! ([`also_through`](Suite::also_through)), so that calls really race. Turn on the optional cases:
//!
//! - [`filling`](Suite::filling) if it can be full,
//! - [`outage`](Suite::outage) if a test can stop its server,
//! - [`clock_jump`](Suite::clock_jump) and [`waiting_with`](Suite::waiting_with) if a test can move its clock,
//! - [`expires_by_itself`](Suite::expires_by_itself) if the database deletes entries by itself.
//!
//! # Example: a small store and its test
//!
//! This store is complete, though it keeps its entries in memory and looks at all of them to find a few.
//!
//! ```
//! use std::collections::BTreeMap;
//! use std::sync::{Arc, Mutex};
//! use std::time::Duration;
//!
//! use audience::inbox::conformance::Suite;
//! use audience::inbox::*;
//! use audience::webhooks::EventId;
//! use bytes::Bytes;
//! use tokio::time::Instant;
//!
//! /// One lock makes each method one step. Yours has transactions of a database instead.
//! #[derive(Clone, Default)]
//! struct SmallStore(Arc<Mutex<BTreeMap<(String, EventId), Entry>>>);
//!
//! struct Entry {
//!     state: State,
//!     token: Option<Token>,
//!     attempts: u32,
//!     /// When the lease or the wait ends, or since when the event is parked.
//!     due: Instant,
//!     forget_at: Instant,
//!     fingerprint: Option<Fingerprint>,
//!     body: Option<Bytes>,
//!     reason: String,
//! }
//!
//! #[derive(PartialEq)]
//! enum State {
//!     Waiting,
//!     Claimed,
//!     Done,
//!     Parked,
//! }
//!
//! impl SmallStore {
//!     /// Changes an entry, which is a new one if there is none or it may be forgotten.
//!     fn change<T>(&self, key: EventKey<'_>, change: impl FnOnce(&mut Entry, Instant) -> T) -> T {
//!         let now = Instant::now();
//!         let mut entries = self.0.lock().expect("no method panics");
//!         let key = (key.endpoint.to_owned(), key.id.clone());
//!         let entry = entries.entry(key).or_insert_with(|| Entry::new(now));
//!         if entry.is_forgotten(now) {
//!             *entry = Entry::new(now);
//!         }
//!         change(entry, now)
//!     }
//!
//!     /// Changes an entry if this is its newest claim, and it was not ended.
//!     fn change_held(&self, held: HeldClaim<'_>, change: impl FnOnce(&mut Entry, Instant)) -> bool {
//!         self.change(held.key, |entry, now| {
//!             // Also after its lease, if no other claim was made since.
//!             let is_held = entry.state == State::Claimed && entry.token == Some(held.token);
//!             if is_held {
//!                 change(entry, now);
//!             }
//!             is_held
//!         })
//!     }
//! }
//!
//! impl Entry {
//!     fn new(now: Instant) -> Self {
//!         Self {
//!             state: State::Waiting,
//!             token: None,
//!             attempts: 0,
//!             due: now,
//!             forget_at: now,
//!             fingerprint: None,
//!             body: None,
//!             reason: String::new(),
//!         }
//!     }
//!
//!     fn is_forgotten(&self, now: Instant) -> bool {
//!         let stays = self.state == State::Parked || self.body.is_some();
//!         !stays && self.forget_at <= now
//!     }
//!
//!     fn is_open(&self) -> bool {
//!         matches!(self.state, State::Waiting | State::Claimed)
//!     }
//!
//!     fn conflicts_with(&self, other: Option<Fingerprint>, now: Instant) -> bool {
//!         // Its attempts failed and it has no body, so it takes any.
//!         let takes_any = self.is_open() && self.body.is_none() && self.due <= now;
//!         !takes_any && self.fingerprint.zip(other).is_some_and(|(known, other)| known != other)
//!     }
//!
//!     fn start(&mut self, token: Token, lease: Duration, retention: Duration, now: Instant) {
//!         self.state = State::Claimed;
//!         self.token = Some(token);
//!         self.attempts += 1;
//!         self.due = after(now, lease);
//!         self.forget_at = after(self.due, retention);
//!     }
//!
//!     fn wait(&mut self, delay: Duration, retention: Duration, now: Instant) {
//!         self.state = State::Waiting;
//!         self.token = None;
//!         self.due = after(now, delay);
//!         self.forget_at = after(self.due, retention);
//!     }
//!
//!     fn finish(&mut self, retention: Duration, now: Instant) {
//!         self.state = State::Done;
//!         self.body = None;
//!         self.forget_at = after(now, retention);
//!     }
//! }
//!
//! /// A huge duration counts as a hundred years.
//! fn after(time: Instant, duration: Duration) -> Instant {
//!     time + duration.min(Duration::from_secs(100 * 365 * 86_400))
//! }
//!
//! impl Store for SmallStore {
//!     async fn claim(&self, claim: NewClaim<'_>) -> Result<ClaimState, StoreError> {
//!         Ok(self.change(claim.key, |entry, now| {
//!             if entry.conflicts_with(claim.fingerprint, now) {
//!                 return ClaimState::Conflict;
//!             }
//!             match entry.state {
//!                 State::Done => return ClaimState::Done,
//!                 State::Parked => return ClaimState::Parked,
//!                 State::Waiting | State::Claimed if entry.due <= now => {
//!                     entry.fingerprint = claim.fingerprint.or(entry.fingerprint);
//!                     entry.start(claim.token, claim.lease, claim.retention, now);
//!                 }
//!                 // The caller lost the response to its claim, and asks again.
//!                 State::Claimed if entry.token == Some(claim.token) => {}
//!                 _ => return ClaimState::InProgress { remaining: entry.due - now },
//!             }
//!             ClaimState::Fresh { attempt: entry.attempts }
//!         }))
//!     }
//!
//!     async fn extend(&self, held: HeldClaim<'_>, lease: Duration) -> Result<bool, StoreError> {
//!         Ok(self.change_held(held, |entry, now| {
//!             let retention = entry.forget_at - entry.due;
//!             entry.due = after(now, lease);
//!             entry.forget_at = after(entry.due, retention);
//!         }))
//!     }
//!
//!     async fn complete(&self, held: HeldClaim<'_>, retention: Duration) -> Result<bool, StoreError> {
//!         let completed = self.change_held(held, |entry, now| entry.finish(retention, now));
//!         // A second time, it is no error.
//!         let is_done = |entry: &mut Entry, _| entry.state == State::Done && entry.token == Some(held.token);
//!         Ok(completed || self.change(held.key, is_done))
//!     }
//!
//!     async fn release(&self, held: HeldClaim<'_>, release: Release<'_>) -> Result<bool, StoreError> {
//!         Ok(self.change_held(held, |entry, now| entry.wait(release.delay, release.retention, now)))
//!     }
//!
//!     async fn park(&self, held: HeldClaim<'_>, reason: &str) -> Result<bool, StoreError> {
//!         Ok(self.change_held(held, |entry, now| {
//!             entry.state = State::Parked;
//!             entry.token = None;
//!             entry.due = now;
//!             entry.reason = reason.to_owned();
//!         }))
//!     }
//!
//!     async fn accept(&self, delivery: NewDelivery<'_>) -> Result<AcceptState, StoreError> {
//!         Ok(self.change(delivery.key, |entry, now| {
//!             if entry.conflicts_with(Some(delivery.fingerprint), now) {
//!                 return AcceptState::Conflict;
//!             }
//!             if !entry.is_open() || entry.body.is_some() {
//!                 return AcceptState::Duplicate;
//!             }
//!             if entry.due > now {
//!                 return AcceptState::InProgress { remaining: entry.due - now };
//!             }
//!             entry.fingerprint = Some(delivery.fingerprint);
//!             entry.body = Some(Bytes::copy_from_slice(delivery.body));
//!             entry.wait(Duration::ZERO, Duration::ZERO, now);
//!             AcceptState::Accepted
//!         }))
//!     }
//!
//!     async fn take(&self, take: Take<'_>) -> Result<Vec<TakenEvent>, StoreError> {
//!         let now = Instant::now();
//!         let mut entries = self.0.lock().expect("no method panics");
//!         let mut due: Vec<_> = entries
//!             .iter_mut()
//!             .filter(|((endpoint, _), entry)| endpoint == take.endpoint && entry.due <= now)
//!             .filter(|(_, entry)| entry.is_open())
//!             .filter_map(|((_, id), entry)| Some((id.clone(), entry.body.clone()?, entry)))
//!             .collect();
//!         due.sort_by_key(|(.., entry)| entry.due);
//!         due.truncate(take.limit);
//!         let taken = due.into_iter().map(|(id, body, entry)| {
//!             let overdue = now - entry.due;
//!             entry.start(take.token, take.lease, Duration::ZERO, now);
//!             TakenEvent::new(id, body, entry.attempts, overdue)
//!         });
//!         Ok(taken.collect())
//!     }
//!
//!     async fn parked(
//!         &self,
//!         endpoint: &str,
//!         after: Option<&EventId>,
//!         limit: usize,
//!     ) -> Result<Vec<ParkedEvent>, StoreError> {
//!         let now = Instant::now();
//!         let entries = self.0.lock().expect("no method panics");
//!         let parked = entries
//!             .iter()
//!             .filter(|((name, id), _)| name == endpoint && after.is_none_or(|after| id > after))
//!             .filter(|(_, entry)| entry.state == State::Parked)
//!             .map(|((_, id), entry)| {
//!                 let body = entry.body.clone();
//!                 ParkedEvent::new(id.clone(), body, entry.attempts, &entry.reason, now - entry.due)
//!             });
//!         Ok(parked.take(limit).collect())
//!     }
//!
//!     async fn replay(&self, key: EventKey<'_>) -> Result<bool, StoreError> {
//!         Ok(self.change(key, |entry, now| {
//!             let is_parked = entry.state == State::Parked;
//!             if is_parked {
//!                 entry.attempts = 0;
//!                 entry.wait(Duration::ZERO, Duration::ZERO, now);
//!             }
//!             is_parked
//!         }))
//!     }
//!
//!     async fn discard(&self, key: EventKey<'_>, retention: Duration) -> Result<bool, StoreError> {
//!         Ok(self.change(key, |entry, now| {
//!             let is_parked = entry.state == State::Parked;
//!             if is_parked {
//!                 entry.finish(retention, now);
//!             }
//!             is_parked
//!         }))
//!     }
//!
//!     async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
//!         let now = Instant::now();
//!         let mut left = limit;
//!         self.0.lock().expect("no method panics").retain(|_, entry| {
//!             let is_deleted = left > 0 && entry.is_forgotten(now);
//!             left -= usize::from(is_deleted);
//!             !is_deleted
//!         });
//!         Ok(limit - left)
//!     }
//!
//!     async fn backlog(&self, endpoint: &str) -> Result<Backlog, StoreError> {
//!         let now = Instant::now();
//!         let entries = self.0.lock().expect("no method panics");
//!         let mut backlog = Backlog::default();
//!         for (_, entry) in entries.iter().filter(|((name, _), _)| name == endpoint) {
//!             match entry.state {
//!                 State::Parked => backlog.parked += 1,
//!                 State::Claimed if entry.body.is_some() && entry.due > now => backlog.in_progress += 1,
//!                 State::Waiting | State::Claimed if entry.body.is_some() => {
//!                     backlog.waiting += 1;
//!                     backlog.lag = backlog.lag.max(now.saturating_duration_since(entry.due));
//!                 }
//!                 _ => {}
//!             }
//!         }
//!         Ok(backlog)
//!     }
//! }
//!
//! // The paused clock of tokio moves when all tasks wait, so the suite takes no time.
//! #[tokio::main(flavor = "current_thread", start_paused = true)]
//! async fn main() {
//!     let store = SmallStore::default();
//!
//!     let report = Suite::new(store.clone()).also_through(store).run().await;
//!
//!     report.assert_passed();
//! }
//! ```
//!
//! # Example: run one case
//!
//! ```
//! # use audience::inbox::MemoryStore;
//! # use audience::inbox::conformance::{CaseResult, Suite};
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let suite = Suite::new(MemoryStore::new()).only("completing twice");
//!
//! let report = suite.run().await;
//!
//! let [case] = report.cases() else { panic!("one case has this name") };
//! assert_eq!(case.name, "completing twice with the same token is no error");
//! assert_eq!(case.result, CaseResult::Passed);
//! # }
//! ```

/// Lists functions as cases.
macro_rules! cases {
    ($list:ident, $needs:ident: $($function:ident),+ $(,)?) => {
        pub(super) const $list: &[$crate::inbox::conformance::Case] = &[$(
            $crate::inbox::conformance::Case {
                function: stringify!($function),
                needs: $crate::inbox::conformance::Needs::$needs,
                run: |subject| Box::pin($function(subject)),
            }
        ),+];
    };
}

mod accepted;
mod claims;
mod data;
mod failures;

use std::fmt::{self, Debug, Display};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::causes::with_causes;
use crate::inbox::error::StoreError;
use crate::inbox::store::{
    AcceptState, Backlog, ClaimState, DynStore, EventKey, Fingerprint, HeldClaim, NewClaim,
    NewDelivery, ParkedEvent, Release, Store, Take, TakenEvent, Token,
};
use crate::webhooks::EventId;

/// How long a case may take.
const LIMIT: Duration = Duration::from_secs(120);

/// A run of all cases against a store.
///
/// Every case uses an endpoint of its own with a random name, so one store serves all cases, and several runs
/// can use one database one after the other. The cases delete forgotten entries of all endpoints, so do not
/// run the suite on a database that is in use.
#[must_use = "a suite tests nothing until it is run"]
pub struct Suite {
    handles: Vec<Arc<dyn DynStore>>,
    wait: Wait,
    capabilities: Capabilities,
    only: String,
}

impl Suite {
    /// Starts a run against a store.
    ///
    /// # Example: the cases that need nothing else
    ///
    /// ```
    /// # use audience::inbox::MemoryStore;
    /// # use audience::inbox::conformance::Suite;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let report = Suite::new(MemoryStore::new()).only("a completed event").run().await;
    ///
    /// assert!(report.passed());
    /// # }
    /// ```
    pub fn new(store: impl Store) -> Self {
        Self {
            handles: vec![Arc::new(store)],
            wait: Arc::new(|duration| Box::pin(tokio::time::sleep(duration))),
            capabilities: Capabilities::default(),
            only: String::new(),
        }
    }

    /// Adds another handle to the same entries: a clone, or a connection of its own, as another process has.
    ///
    /// Races then run through all handles.
    ///
    /// # Example: two connections to one file
    ///
    /// ```
    /// use audience::inbox::SqliteStore;
    /// use audience::inbox::conformance::Suite;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = std::env::temp_dir().join(format!("audience-through-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder)?;
    /// # let path = folder.join("inbox.db");
    /// let suite = Suite::new(SqliteStore::open(&path)?).also_through(SqliteStore::open(&path)?);
    ///
    /// suite.only("claimers").run().await.assert_passed();
    /// # std::fs::remove_dir_all(&folder)?;
    /// # Ok(()) }
    /// ```
    pub fn also_through(mut self, store: impl Store) -> Self {
        self.handles.push(Arc::new(store));
        self
    }

    /// Sets how the suite waits, for a store whose clock a test can move. Default: `tokio::time::sleep`.
    ///
    /// # Example: move a clock instead of waiting
    ///
    /// ```
    /// use std::future::ready;
    /// use std::sync::{Arc, Mutex};
    /// use std::time::SystemTime;
    ///
    /// use audience::inbox::MemoryStore;
    /// use audience::inbox::conformance::Suite;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let now = Arc::new(Mutex::new(SystemTime::now()));
    /// let clock = Arc::clone(&now);
    /// let store = MemoryStore::builder().clock(move || *clock.lock().unwrap()).build();
    ///
    /// let suite = Suite::new(store).waiting_with(move |duration| {
    ///     *now.lock().unwrap() += duration;
    ///     ready(())
    /// });
    ///
    /// suite.only("lease").run().await.assert_passed();
    /// # }
    /// ```
    pub fn waiting_with<F, Fut>(mut self, wait: F) -> Self
    where
        F: Fn(Duration) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.wait = Arc::new(move |duration| Box::pin(wait(duration)));
        self
    }

    /// Also runs the cases about a full store, with an empty store that has room for this many events, at
    /// least 3.
    ///
    /// # Example: a store with room for five events
    ///
    /// ```
    /// use audience::inbox::MemoryStore;
    /// use audience::inbox::conformance::Suite;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let small = MemoryStore::builder().capacity(5).build();
    ///
    /// let suite = Suite::new(MemoryStore::new()).filling(small, 5);
    ///
    /// suite.only("a full store").run().await.assert_passed();
    /// # }
    /// ```
    pub fn filling(mut self, small_store: impl Store, room: usize) -> Self {
        self.capabilities.filling = Some((Arc::new(small_store), room));
        self
    }

    /// Also runs the cases about an outage. `stop` ends the store's server, or cuts the connection to it; `start`
    /// undoes that.
    pub fn outage<Stop, Stopped, Start, Started>(mut self, stop: Stop, start: Start) -> Self
    where
        Stop: Fn() -> Stopped + Send + Sync + 'static,
        Stopped: Future<Output = ()> + Send + 'static,
        Start: Fn() -> Started + Send + Sync + 'static,
        Started: Future<Output = ()> + Send + 'static,
    {
        self.capabilities.outage = Some((
            Arc::new(move || Box::pin(stop())),
            Arc::new(move || Box::pin(start())),
        ));
        self
    }

    /// Also runs the cases about a clock that jumps.
    ///
    /// # Example: a clock that a test sets
    ///
    /// ```
    /// use std::future::ready;
    /// use std::sync::{Arc, Mutex};
    /// use std::time::SystemTime;
    ///
    /// use audience::inbox::MemoryStore;
    /// use audience::inbox::conformance::{ClockJump, Suite};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let now = Arc::new(Mutex::new(SystemTime::now()));
    /// let clock = Arc::clone(&now);
    /// let store = MemoryStore::builder().clock(move || *clock.lock().unwrap()).build();
    ///
    /// let suite = Suite::new(store).clock_jump(move |jump| {
    ///     let mut now = now.lock().unwrap();
    ///     match jump {
    ///         ClockJump::Forward(by) => *now += by,
    ///         ClockJump::Back(by) => *now -= by,
    ///     }
    ///     ready(())
    /// });
    ///
    /// suite.only("a clock that jumps").run().await.assert_passed();
    /// # }
    /// ```
    pub fn clock_jump<F, Fut>(mut self, jump: F) -> Self
    where
        F: Fn(ClockJump) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.capabilities.clock_jump = Some(Arc::new(move |by| Box::pin(jump(by))));
        self
    }

    /// Skips the cases that count the entries that a purge deletes, for a store whose entries vanish by themselves
    /// at the end of their retention.
    ///
    /// # Example: why a case was not run
    ///
    /// ```
    /// use audience::inbox::MemoryStore;
    /// use audience::inbox::conformance::{CaseResult, Suite};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let suite = Suite::new(MemoryStore::new()).expires_by_itself();
    ///
    /// let report = suite.only("a purge keeps").run().await;
    ///
    /// let reason = "the store forgets without a purge: `expires_by_itself`";
    /// assert_eq!(report.cases()[0].result, CaseResult::NotRun(reason.to_owned()));
    /// # }
    /// ```
    pub fn expires_by_itself(mut self) -> Self {
        self.capabilities.expires_by_itself = true;
        self
    }

    /// Runs only the cases whose name contains this text.
    ///
    /// # Example: all cases about parked events
    ///
    /// ```
    /// use audience::inbox::MemoryStore;
    /// use audience::inbox::conformance::Suite;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let report = Suite::new(MemoryStore::new()).only("parked").run().await;
    ///
    /// assert!(report.cases().iter().all(|case| case.name.contains("parked")));
    /// # assert!(report.passed());
    /// # }
    /// ```
    pub fn only(mut self, text: impl Into<String>) -> Self {
        self.only = text.into();
        self
    }

    /// Runs the cases, one after the other.
    ///
    /// A case that panics or takes longer than two minutes has failed.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime. A runtime with several threads makes the races harder.
    ///
    /// # Example: print the result
    ///
    /// ```
    /// use audience::inbox::MemoryStore;
    /// use audience::inbox::conformance::Suite;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let report = Suite::new(MemoryStore::new()).only("a purge").run().await;
    ///
    /// assert_eq!(report.to_string(), "4 cases passed, 0 failed, 0 not run");
    /// # }
    /// ```
    pub async fn run(self) -> Report {
        let mut report = Report::new();
        for case in all_cases() {
            let name = case.name();
            if !name.contains(&self.only) {
                continue;
            }
            let result = match case.needs.missing(&self.capabilities) {
                Some(missing) => CaseResult::NotRun(missing.to_owned()),
                None => self.run_case(case).await,
            };
            report.push(name, result);
        }
        report
    }

    async fn run_case(&self, case: &Case) -> CaseResult {
        // Random, because a database may have the entries of an earlier run.
        let run = u128::from_be_bytes(*Token::random().as_bytes());
        let subject = Subject {
            handles: self.handles.clone(),
            endpoint: format!("{} {run:032x}", case.function).into(),
            wait: Arc::clone(&self.wait),
            capabilities: self.capabilities.clone(),
        };
        // Each case is a task, so that a panic of the store ends one case and not the run.
        let mut task = tokio::spawn((case.run)(subject));
        match tokio::time::timeout(LIMIT, &mut task).await {
            Ok(Ok(Ok(()))) => CaseResult::Passed,
            Ok(Ok(Err(Failed(message)))) => CaseResult::Failed(message),
            Ok(Err(error)) => CaseResult::Failed(format!("the store panicked: {error}")),
            Err(_) => {
                // A call that hangs would still hold its lock or its connection in the next case.
                task.abort();
                CaseResult::Failed(format!("it did not end within {} s", LIMIT.as_secs()))
            }
        }
    }
}

impl Debug for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Suite")
            .field("handles", &self.handles.len())
            .field("only", &self.only)
            .finish_non_exhaustive()
    }
}

fn all_cases() -> impl Iterator<Item = &'static Case> {
    [
        // These come first, while no other case has left entries that may be forgotten.
        accepted::PURGING,
        claims::CLAIMS,
        claims::LEASES,
        claims::RACES,
        claims::RETENTION,
        claims::CONFLICTS,
        accepted::ACCEPTING,
        accepted::TAKING,
        accepted::PARKING,
        accepted::BACKLOG,
        data::NAMES,
        data::BODIES,
        data::LIMITS,
        failures::FULL,
        failures::CLOCK_JUMPS,
        failures::OUTAGE,
    ]
    .into_iter()
    .flatten()
}

/// A jump of a store's clock, for [`Suite::clock_jump`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockJump {
    /// The clock jumps to a later time.
    Forward(Duration),
    /// The clock jumps to an earlier time.
    Back(Duration),
}

/// The results of a run of the [`Suite`]. `Display` lists the cases that failed or were not run.
#[derive(Clone, Debug)]
#[must_use = "cases may have failed: call `assert_passed`"]
pub struct Report {
    cases: Vec<CaseReport>,
}

/// The result of one case.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CaseReport {
    /// The rule that every store must follow, as a sentence.
    pub name: String,
    /// The result.
    pub result: CaseResult,
}

/// The result of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CaseResult {
    /// The store follows the rule.
    Passed,
    /// The store breaks the rule: the text says what was expected and what happened.
    Failed(String),
    /// The case was not run, for this reason.
    NotRun(String),
}

impl Report {
    fn new() -> Self {
        Self { cases: Vec::new() }
    }

    fn push(&mut self, name: String, result: CaseResult) {
        self.cases.push(CaseReport { name, result });
    }

    /// Returns all cases in the order in which they ran.
    #[must_use]
    pub fn cases(&self) -> &[CaseReport] {
        &self.cases
    }

    /// Returns the cases that failed.
    ///
    /// # Example: list the failures
    ///
    /// ```
    /// use audience::inbox::MemoryStore;
    /// use audience::inbox::conformance::{CaseResult, Suite};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// // It says that it has room for 5 events, and has room for 4.
    /// let small = MemoryStore::builder().capacity(4).build();
    /// let report = Suite::new(MemoryStore::new()).filling(small, 5).only("a full store").run().await;
    ///
    /// for case in report.failed() {
    ///     println!("{}: {:?}", case.name, case.result);
    /// }
    /// assert_eq!(report.failed().count(), 1);
    /// # assert!(matches!(report.cases()[0].result, CaseResult::Failed(_)));
    /// # }
    /// ```
    pub fn failed(&self) -> impl Iterator<Item = &CaseReport> {
        self.cases
            .iter()
            .filter(|case| matches!(case.result, CaseResult::Failed(_)))
    }

    /// Returns whether some cases were run and none failed.
    ///
    /// # Example: no case is no success
    ///
    /// ```
    /// use audience::inbox::MemoryStore;
    /// use audience::inbox::conformance::Suite;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let report = Suite::new(MemoryStore::new()).only("a name with a typo").run().await;
    ///
    /// assert_eq!(report.cases().len(), 0);
    /// assert!(!report.passed());
    /// # }
    /// ```
    #[must_use]
    pub fn passed(&self) -> bool {
        self.count(|result| *result == CaseResult::Passed) > 0 && self.failed().next().is_none()
    }

    /// Panics unless [`passed`](Self::passed) returns `true`. The message lists the failed cases.
    ///
    /// # Panics
    ///
    /// Panics if a case failed, or if no case was run.
    ///
    /// # Example: the last line of a test
    ///
    /// ```
    /// use audience::inbox::MemoryStore;
    /// use audience::inbox::conformance::Suite;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let report = Suite::new(MemoryStore::new()).only("backlog").run().await;
    ///
    /// report.assert_passed();
    /// # }
    /// ```
    #[track_caller]
    pub fn assert_passed(&self) {
        assert!(self.passed(), "{self}");
    }

    fn count(&self, is_counted: impl Fn(&CaseResult) -> bool) -> usize {
        let results = self.cases.iter().map(|case| &case.result);
        results.filter(|result| is_counted(result)).count()
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let passed = self.count(|result| *result == CaseResult::Passed);
        let failed = self.failed().count();
        write!(
            f,
            "{passed} cases passed, {failed} failed, {} not run",
            self.cases.len() - passed - failed
        )?;
        for case in &self.cases {
            if let CaseResult::NotRun(reason) = &case.result {
                write!(f, "\nnot run: {}\n  {reason}", case.name)?;
            }
        }
        // At the end, where they are seen.
        for case in &self.cases {
            if let CaseResult::Failed(message) = &case.result {
                write!(f, "\nfailed: {}\n  {message}", case.name)?;
            }
        }
        Ok(())
    }
}

type Switch = Arc<dyn Fn() -> BoxFuture<()> + Send + Sync>;
type Jump = Arc<dyn Fn(ClockJump) -> BoxFuture<()> + Send + Sync>;

/// What a test can do with the store beyond calling it.
#[derive(Clone, Default)]
struct Capabilities {
    /// An empty store, and how many events it has room for.
    filling: Option<(Arc<dyn DynStore>, usize)>,
    /// Stops and starts the server of the store.
    outage: Option<(Switch, Switch)>,
    clock_jump: Option<Jump>,
    /// Whether entries vanish at the end of their retention without being purged.
    expires_by_itself: bool,
}

/// The store under test with an endpoint of the case's own.
#[derive(Clone)]
struct Subject {
    /// The handles of one store. There is at least one.
    handles: Vec<Arc<dyn DynStore>>,
    endpoint: Arc<str>,
    wait: Wait,
    capabilities: Capabilities,
}

impl Subject {
    fn store(&self) -> &dyn DynStore {
        self.handles[0].as_ref()
    }

    /// Returns an event with a plain id.
    fn item(&self, id: &str) -> Item {
        let id = EventId::try_from(id).expect("the ids of the cases are valid");
        self.item_through(0, &id)
    }

    /// Returns an event through one of the handles. Any number is a handle.
    fn item_through(&self, handle: usize, id: &EventId) -> Item {
        Item {
            store: Arc::clone(&self.handles[handle % self.handles.len()]),
            wait: Arc::clone(&self.wait),
            endpoint: Arc::clone(&self.endpoint),
            id: id.clone(),
        }
    }

    /// Returns the same store with another endpoint.
    fn endpoint(&self, name: &str) -> Self {
        Self {
            endpoint: name.into(),
            ..self.clone()
        }
    }

    async fn wait(&self, duration: Duration) {
        (self.wait)(duration).await;
    }

    /// Waits until a time of this length is surely over.
    async fn pass(&self, duration: Duration) {
        self.wait(duration * 2 + SHORT).await;
    }

    /// Takes up to 1,000 events that are due, for a long time.
    async fn take(&self, token: Token) -> Result<Vec<TakenEvent>, StoreError> {
        self.take_for(token, LONG, 1_000).await
    }

    async fn take_for(
        &self,
        token: Token,
        lease: Duration,
        limit: usize,
    ) -> Result<Vec<TakenEvent>, StoreError> {
        let take = Take {
            endpoint: &self.endpoint,
            token,
            lease,
            limit,
        };
        self.store().take(take).await
    }

    /// Waits until there is something to take.
    async fn take_when_due(&self, token: Token) -> Result<Vec<TakenEvent>, StoreError> {
        for _ in 0..ROUNDS {
            let taken = self.take(token).await?;
            if !taken.is_empty() {
                return Ok(taken);
            }
            self.wait(SHORT).await;
        }
        Ok(Vec::new())
    }

    async fn parked(&self) -> Result<Vec<ParkedEvent>, StoreError> {
        self.store().parked(&self.endpoint, None, 1_000).await
    }

    async fn backlog(&self) -> Result<Backlog, StoreError> {
        self.store().backlog(&self.endpoint).await
    }
}

fn ids(taken: &[TakenEvent]) -> Vec<&str> {
    taken.iter().map(|event| event.id.as_str()).collect()
}

#[derive(Clone)]
struct Item {
    store: Arc<dyn DynStore>,
    wait: Wait,
    endpoint: Arc<str>,
    id: EventId,
}

impl Item {
    fn key(&self) -> EventKey<'_> {
        EventKey {
            endpoint: &self.endpoint,
            id: &self.id,
        }
    }

    fn held(&self, token: Token) -> HeldClaim<'_> {
        HeldClaim {
            key: self.key(),
            token,
        }
    }

    /// Claims for a long time, without a fingerprint.
    async fn claim(&self, token: Token) -> Result<ClaimState, StoreError> {
        self.claim_for(token, LONG).await
    }

    async fn claim_for(&self, token: Token, lease: Duration) -> Result<ClaimState, StoreError> {
        self.claim_with(token, lease, LONG, None).await
    }

    /// Claims for a long time with the fingerprint of a body.
    async fn claim_body(&self, token: Token, body: &[u8]) -> Result<ClaimState, StoreError> {
        self.claim_with(token, LONG, LONG, Some(Fingerprint::of(body)))
            .await
    }

    async fn claim_with(
        &self,
        token: Token,
        lease: Duration,
        retention: Duration,
        fingerprint: Option<Fingerprint>,
    ) -> Result<ClaimState, StoreError> {
        let claim = NewClaim {
            key: self.key(),
            token,
            lease,
            retention,
            fingerprint,
        };
        self.store.claim(claim).await
    }

    /// Claims for a long time, and waits while a claim or a delay lasts that was meant to be short.
    async fn claim_when_free(&self, token: Token) -> Result<ClaimState, StoreError> {
        let mut state = self.claim(token).await?;
        for _ in 0..ROUNDS {
            match state {
                ClaimState::InProgress { remaining } if remaining < LONG / 2 => {
                    (self.wait)(remaining.min(SHORT) + Duration::from_millis(1)).await;
                    state = self.claim(token).await?;
                }
                _ => break,
            }
        }
        Ok(state)
    }

    /// Claims until the event is no longer done.
    async fn claim_when_forgotten(
        &self,
        token: Token,
        fingerprint: Option<Fingerprint>,
    ) -> Result<ClaimState, StoreError> {
        let mut state = self.claim_with(token, LONG, LONG, fingerprint).await?;
        for _ in 0..ROUNDS {
            if !matches!(state, ClaimState::Done | ClaimState::Conflict) {
                break;
            }
            (self.wait)(SHORT).await;
            state = self.claim_with(token, LONG, LONG, fingerprint).await?;
        }
        Ok(state)
    }

    async fn state(&self, body: Option<&[u8]>) -> Result<ClaimState, StoreError> {
        let fingerprint = body.map(Fingerprint::of);
        self.store.state(self.key(), fingerprint).await
    }

    async fn extend(&self, token: Token, lease: Duration) -> Result<bool, StoreError> {
        self.store.extend(self.held(token), lease).await
    }

    /// Completes, to be remembered for a long time.
    async fn complete(&self, token: Token) -> Result<bool, StoreError> {
        self.complete_for(token, LONG).await
    }

    async fn complete_for(&self, token: Token, retention: Duration) -> Result<bool, StoreError> {
        self.store.complete(self.held(token), retention).await
    }

    async fn release(&self, token: Token, delay: Duration) -> Result<bool, StoreError> {
        let release = Release {
            delay,
            retention: LONG,
            reason: "the handler failed",
        };
        self.store.release(self.held(token), release).await
    }

    async fn park(&self, token: Token, reason: &str) -> Result<bool, StoreError> {
        self.store.park(self.held(token), reason).await
    }

    async fn accept(&self, body: &[u8]) -> Result<AcceptState, StoreError> {
        let delivery = NewDelivery {
            key: self.key(),
            body,
            fingerprint: Fingerprint::of(body),
        };
        self.store.accept(delivery).await
    }

    async fn replay(&self) -> Result<bool, StoreError> {
        self.store.replay(self.key()).await
    }

    async fn discard(&self) -> Result<bool, StoreError> {
        self.store.discard(self.key(), LONG).await
    }
}

/// Success, or what was expected and what happened.
type Verdict = Result<(), Failed>;

#[derive(Debug)]
struct Failed(String);

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self(format!("a call failed: {}", with_causes(&error)))
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "cases compare values that they do not keep"
)]
fn expect_eq<T: PartialEq + Debug>(what: impl Display, actual: T, expected: T) -> Verdict {
    expect(actual == expected, || {
        format!("{what}: expected {expected:?}, got {actual:?}")
    })
}

fn expect(holds: bool, message: impl FnOnce() -> String) -> Verdict {
    if holds {
        Ok(())
    } else {
        Err(Failed(message()))
    }
}

/// Compares bodies without printing them.
fn expect_body(what: impl Display, actual: &[u8], expected: &[u8]) -> Verdict {
    expect(actual == expected, || {
        format!(
            "{what}: expected the {} bytes that were stored, got {} bytes that differ",
            expected.len(),
            actual.len()
        )
    })
}

/// One thing that every store must do.
#[derive(Clone, Copy)]
struct Case {
    /// The name of the function of the case: a sentence.
    function: &'static str,
    needs: Needs,
    run: fn(Subject) -> BoxFuture<Verdict>,
}

/// A condition of a case.
#[derive(Clone, Copy, PartialEq)]
enum Needs {
    Nothing,
    Filling,
    Outage,
    ClockJump,
    /// A store whose entries stay until they are purged.
    Purge,
}

impl Case {
    fn name(&self) -> String {
        self.function.replace('_', " ")
    }
}

impl Needs {
    /// Returns why a case cannot run.
    fn missing(self, capabilities: &Capabilities) -> Option<&'static str> {
        let (is_met, missing) = match self {
            Self::Nothing => (true, ""),
            Self::Filling => (
                capabilities.filling.is_some(),
                "needs a small store: `filling`",
            ),
            Self::Outage => (capabilities.outage.is_some(), "needs `outage`"),
            Self::ClockJump => (capabilities.clock_jump.is_some(), "needs `clock_jump`"),
            Self::Purge => (
                !capabilities.expires_by_itself,
                "the store forgets without a purge: `expires_by_itself`",
            ),
        };
        (!is_met).then_some(missing)
    }
}

// A time that must not end during a case is an hour, and a time that must end is waited for as long as it takes.
// So a slow machine makes a run longer, but does not change its result.

/// A time that does not end during a case.
const LONG: Duration = Duration::from_secs(3_600);
/// A time that a case waits for.
const SHORT: Duration = Duration::from_millis(20);
/// How often a case waits for something that should happen.
const ROUNDS: usize = 400;

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
/// Waits, or moves the store's clock.
type Wait = Arc<dyn Fn(Duration) -> BoxFuture<()> + Send + Sync>;
