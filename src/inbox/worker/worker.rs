use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::drain::Drain;
use super::report::WorkerReport;
use super::settings::WorkerSettings;
use crate::inbox::attempt::Attempt;
use crate::inbox::error::InboxError;
use crate::inbox::inbox::Inbox;
use crate::inbox::shared::Shared;
use crate::webhooks::Event;

/// Zero would ask the store without a pause, and the longest duration overflows a clock.
const SHORTEST_POLL: Duration = Duration::from_millis(1);
const LONGEST_POLL: Duration = Duration::from_secs(3_600);

/// Handles the events that [`Inbox::accept`] stored.
///
/// Any number of workers, on any number of machines, share the events of one endpoint: each event is with one
/// worker at a time. If a worker's process dies, its events are taken again after their
/// [lease](crate::inbox::InboxBuilder::lease).
///
/// A handler that fails is called again, after 5 s at first, twice as long each time, and up to an hour. After
/// ten attempts the event is parked with the text of the last error.
///
/// # Example: drain until Ctrl-C
///
/// ```no_run
/// # async fn run(inbox: audience::inbox::Inbox) -> Result<(), audience::inbox::InboxError> {
/// let report = inbox
///     .worker(|event, attempt| async move {
///         println!("{} for the {}. time", event.id, attempt.number());
///         Ok::<_, std::io::Error>(())
///     })
///     .concurrency(8)
///     .run_until(async { tokio::signal::ctrl_c().await.unwrap_or_default() })
///     .await?;
/// println!("{} handled, {} parked", report.handled, report.parked);
/// # Ok(())
/// # }
/// ```
#[must_use = "a worker does nothing until it is run"]
pub struct Worker<F> {
    shared: Arc<Shared>,
    settings: WorkerSettings,
    handler: F,
}

impl Inbox {
    /// Starts building a worker that calls this handler for each accepted event.
    ///
    /// The body of an event is deleted when its handler returned `Ok`.
    ///
    /// The lease of an event is extended while its handler waits. A handler that blocks its thread for long must
    /// do so in `tokio::task::spawn_blocking`, or the event may be handled a second time.
    pub fn worker<F, Fut, E>(&self, handler: F) -> Worker<F>
    where
        F: Fn(Event, Attempt) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>> + Send,
    {
        Worker {
            shared: Arc::clone(&self.0),
            settings: WorkerSettings::default(),
            handler,
        }
    }
}

impl<F> Worker<F> {
    /// Sets how many handlers may run at once. Default: 8. 0 counts as 1.
    pub fn concurrency(mut self, handlers: usize) -> Self {
        self.settings.concurrency = handlers.max(1);
        self
    }

    /// Sets how many attempts are made before an event is parked. Default: 10. 0 counts as 1.
    ///
    /// An attempt that ended with its process counts, too, so an event that kills the process is parked in
    /// the end.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.settings.attempts = attempts.max(1);
        self
    }

    /// Sets how long an event waits after its first failed attempt, and the longest wait. Default: 5 s and 1 h.
    ///
    /// The wait doubles with each attempt, and is shortened at random by up to a quarter.
    pub fn backoff(mut self, first: Duration, longest: Duration) -> Self {
        self.settings.backoff.first = first;
        self.settings.backoff.longest = longest;
        self
    }

    /// Sets how often the store is asked for events while none is due, 1 ms to 1 hour. Default: 1 s. Values
    /// outside count as the nearest of these.
    ///
    /// An event that was accepted by the same process, through a clone of the same inbox, is taken at once.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.settings.poll_interval = interval.clamp(SHORTEST_POLL, LONGEST_POLL);
        self
    }
}

impl<F, Fut, E> Worker<F>
where
    F: Fn(Event, Attempt) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), E>> + Send + 'static,
    E: Into<Box<dyn Error + Send + Sync>> + Send,
{
    /// Handles events until `shutdown` is ready, then takes no more and waits for the handlers that run.
    ///
    /// A store that is down for a while does not end the worker. Dropping the future cuts the handlers off;
    /// their events are taken again after their lease.
    ///
    /// # Errors
    ///
    /// Returns [`InboxError::Store`] if the store cannot be used until somebody fixes it, for example because
    /// a table is missing.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    pub async fn run_until(
        self,
        shutdown: impl Future<Output = ()>,
    ) -> Result<WorkerReport, InboxError> {
        let drain = Drain::new(self.shared, self.settings, self.handler);
        drain.run_until(shutdown).await
    }

    /// Handles events until none is due and no handler runs: for a job that runs now and then, and for tests.
    ///
    /// An event that failed waits for its next attempt; it is not waited for. A store that is down is: use
    /// `tokio::time::timeout` if the job must end.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`run_until`](Self::run_until).
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    ///
    /// # Example: a test of your own handler
    ///
    /// ```
    /// # use audience::inbox::{Inbox, MemoryStore};
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    /// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?.sign(&EventType::Sent, std::time::SystemTime::now(), body);
    /// # let delivery = Verifier::new("6Jm0nFq2pXvZk4Tt")?.verify_event(&headers, body.to_vec())?;
    /// let inbox = Inbox::builder(MemoryStore::new()).build()?;
    /// inbox.accept(delivery).await;
    ///
    /// let report = inbox.worker(|_, _| async { Err("no") }).attempts(1).run_until_idle().await?;
    ///
    /// assert_eq!(report.parked, 1);
    /// assert_eq!(inbox.parked().await?[0].reason, "no");
    /// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn run_until_idle(self) -> Result<WorkerReport, InboxError> {
        let drain = Drain::new(self.shared, self.settings, self.handler);
        drain.run_until_idle().await
    }
}

impl<F> fmt::Debug for Worker<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
