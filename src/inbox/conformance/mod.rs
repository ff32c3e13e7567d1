//! Cases that every [`Store`] must pass, for tests of a store of your own.
//!
//! A [`Suite`] runs over a hundred cases: races, leases that end, holders that come late, retention, two bodies
//! with one id, workers, parked events, ids that databases confuse, bodies of any bytes. The name of a case is
//! a sentence, and a failed case says what was expected and what happened. The stores of this crate pass all
//! of them.
//!
//! A case waits for what must end, and what must not end lasts an hour. So a slow machine makes a run longer,
//! but does not change its result. With the default way of waiting, a run takes a few seconds beside the time
//! of the store.
//!
//! Run it in a runtime with several threads, and through several handles
//! ([`also_through`](Suite::also_through)), so that calls really race. Add what you can do to your store:
//!
//! - [`filling`](Suite::filling) if it can be full,
//! - [`outage`](Suite::outage) if a test can stop its server,
//! - [`clock_jump`](Suite::clock_jump) and [`waiting_with`](Suite::waiting_with) if a test can move its clock,
//! - [`expires_by_itself`](Suite::expires_by_itself) if the database deletes entries by itself.
//!
//! # Example: test a store of your own
//!
//! ```
//! use std::time::Duration;
//!
//! use audience::inbox::conformance::Suite;
//! use audience::inbox::*;
//! use audience::webhooks::EventId;
//!
//! /// Yours talks to a database instead.
//! #[derive(Clone)]
//! struct MyStore(MemoryStore);
//!
//! impl Store for MyStore {
//!     async fn claim(&self, claim: NewClaim<'_>) -> Result<ClaimState, StoreError> {
//!         self.0.claim(claim).await
//!     }
//!     // ... and so on, each method in one step
//! #     async fn extend(&self, held: HeldClaim<'_>, lease: Duration) -> Result<bool, StoreError> {
//! #         self.0.extend(held, lease).await
//! #     }
//! #     async fn complete(&self, held: HeldClaim<'_>, retention: Duration) -> Result<bool, StoreError> {
//! #         self.0.complete(held, retention).await
//! #     }
//! #     async fn release(&self, held: HeldClaim<'_>, release: Release<'_>) -> Result<bool, StoreError> {
//! #         self.0.release(held, release).await
//! #     }
//! #     async fn park(&self, held: HeldClaim<'_>, reason: &str) -> Result<bool, StoreError> {
//! #         self.0.park(held, reason).await
//! #     }
//! #     async fn accept(&self, delivery: NewDelivery<'_>) -> Result<AcceptState, StoreError> {
//! #         self.0.accept(delivery).await
//! #     }
//! #     async fn take(&self, take: Take<'_>) -> Result<Vec<TakenEvent>, StoreError> {
//! #         self.0.take(take).await
//! #     }
//! #     async fn parked(
//! #         &self, endpoint: &str, after: Option<&EventId>, limit: usize,
//! #     ) -> Result<Vec<ParkedEvent>, StoreError> {
//! #         self.0.parked(endpoint, after, limit).await
//! #     }
//! #     async fn replay(&self, key: EventKey<'_>) -> Result<bool, StoreError> {
//! #         self.0.replay(key).await
//! #     }
//! #     async fn discard(&self, key: EventKey<'_>, retention: Duration) -> Result<bool, StoreError> {
//! #         self.0.discard(key, retention).await
//! #     }
//! #     async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
//! #         self.0.purge(limit).await
//! #     }
//! #     async fn backlog(&self, endpoint: &str) -> Result<Backlog, StoreError> {
//! #         self.0.backlog(endpoint).await
//! #     }
//! }
//!
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! let store = MyStore(MemoryStore::new());
//! let small = MyStore(MemoryStore::builder().capacity(5).build());
//!
//! let suite = Suite::new(store.clone()).also_through(store).filling(small, 5);
//!
//! suite.run().await.assert_passed();
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Example: run one case
//!
//! ```
//! # use audience::inbox::MemoryStore;
//! # use audience::inbox::conformance::{CaseResult, Suite};
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! let suite = Suite::new(MemoryStore::new()).only("completing twice");
//!
//! let report = suite.run().await;
//!
//! let [case] = report.cases() else { panic!("one case has this name") };
//! assert_eq!(case.name, "completing twice with the same token is no error");
//! assert_eq!(case.result, CaseResult::Passed);
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```

mod accepted;
mod claims;
mod data;
mod failures;
mod subject;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use self::subject::{Capabilities, Case, Failed, Subject, Wait};

use crate::inbox::store::{DynStore, Store, Token};

/// How long a case may take.
const LIMIT: Duration = Duration::from_secs(120);

/// A run of all cases against a store.
///
/// Every case uses an endpoint of its own with a random name, so one store serves all cases, and several runs
/// can use one database one after the other. The cases delete forgotten entries of all endpoints, so do not
/// run the suite on a database that is in use.
pub struct Suite {
    handles: Vec<Arc<dyn DynStore>>,
    wait: Wait,
    capabilities: Capabilities,
    only: String,
}

impl Suite {
    /// Starts a run against a store.
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
    #[must_use]
    pub fn also_through(mut self, store: impl Store) -> Self {
        self.handles.push(Arc::new(store));
        self
    }

    /// Sets how to let time pass, for a store whose clock a test can move. Default: `tokio::time::sleep`.
    #[must_use]
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
    #[must_use]
    pub fn filling(mut self, small_store: impl Store, room: usize) -> Self {
        self.capabilities.filling = Some((Arc::new(small_store), room));
        self
    }

    /// Also runs the cases about an outage. `stop` ends the server of the store, or cuts the connection to
    /// it; `start` undoes that.
    #[must_use]
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
    #[must_use]
    pub fn clock_jump<F, Fut>(mut self, jump: F) -> Self
    where
        F: Fn(ClockJump) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.capabilities.clock_jump = Some(Arc::new(move |by| Box::pin(jump(by))));
        self
    }

    /// Skips the cases that count what a purge deletes, for a store whose entries vanish by themselves at the
    /// end of their retention.
    #[must_use]
    pub fn expires_by_itself(mut self) -> Self {
        self.capabilities.expires_by_itself = true;
        self
    }

    /// Runs only the cases whose name contains this text.
    #[must_use]
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
        let run = u128::from_be_bytes(*Token::random().as_bytes());
        let subject = Subject {
            handles: self.handles.clone(),
            endpoint: format!("{} {run:032x}", case.function).into(),
            wait: Arc::clone(&self.wait),
            capabilities: self.capabilities.clone(),
        };
        let mut task = tokio::spawn((case.run)(subject));
        match tokio::time::timeout(LIMIT, &mut task).await {
            Ok(Ok(Ok(()))) => CaseResult::Passed,
            Ok(Ok(Err(Failed(message)))) => CaseResult::Failed(message),
            Ok(Err(error)) => CaseResult::Failed(format!("the store panicked: {error}")),
            Err(_) => {
                task.abort();
                CaseResult::Failed(format!("it did not end within {} s", LIMIT.as_secs()))
            }
        }
    }
}

impl fmt::Debug for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Suite")
            .field("handles", &self.handles.len())
            .field("only", &self.only)
            .finish_non_exhaustive()
    }
}

fn all_cases() -> impl Iterator<Item = &'static Case> {
    [
        // First, while no other case has left entries that may be forgotten.
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
    /// The clock shows a later time at once.
    Forward(Duration),
    /// The clock shows an earlier time at once.
    Back(Duration),
}

/// What a run of the [`Suite`] found. `Display` lists the cases that failed or were not run.
#[derive(Clone, Debug)]
pub struct Report {
    cases: Vec<CaseReport>,
}

/// What one case found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CaseReport {
    /// What every store must do, as a sentence.
    pub name: String,
    /// What was found.
    pub result: CaseResult,
}

/// The result of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CaseResult {
    /// The store did what it must.
    Passed,
    /// The store did something else: what was expected, and what happened.
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
    pub fn failed(&self) -> impl Iterator<Item = &CaseReport> {
        self.cases
            .iter()
            .filter(|case| matches!(case.result, CaseResult::Failed(_)))
    }

    /// Returns whether some cases were run and none failed.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.count(|result| *result == CaseResult::Passed) > 0 && self.failed().next().is_none()
    }

    /// Panics with a list of the cases that failed, and of what was expected.
    ///
    /// # Panics
    ///
    /// Panics if a case failed, or if no case was run.
    #[track_caller]
    pub fn assert_passed(&self) {
        assert!(self.passed(), "{self}");
    }

    fn count(&self, is_counted: impl Fn(&CaseResult) -> bool) -> usize {
        let results = self.cases.iter().map(|case| &case.result);
        results.filter(|result| is_counted(result)).count()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let passed = self.count(|result| *result == CaseResult::Passed);
        let failed = self.failed().count();
        write!(
            f,
            "{passed} cases passed, {failed} failed, {} not run",
            self.cases.len() - passed - failed
        )?;
        for case in &self.cases {
            match &case.result {
                CaseResult::Passed => {}
                CaseResult::Failed(message) => write!(f, "\nfailed: {}\n  {message}", case.name)?,
                CaseResult::NotRun(reason) => write!(f, "\nnot run: {}\n  {reason}", case.name)?,
            }
        }
        Ok(())
    }
}
