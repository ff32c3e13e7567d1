use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::case::Case;
use super::cases;
use super::clock_jump::ClockJump;
use super::pace::Wait;
use super::report::{CaseResult, Report};
use super::subject::{Capabilities, Subject};
use super::verdict::Failed;
use crate::inbox::dyn_store::DynStore;
use crate::inbox::store::Store;
use crate::inbox::token::Token;

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
        for case in cases::all() {
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
