use std::error::Error;
use std::fmt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use super::error::{InboxError, StoreError};
use super::store::{HeldClaim, Release, Take, TakenEvent, Token, Turnover};
use super::{Attempt, Shared};
use crate::webhooks::{Event, EventId};

/// The shortest time between two polls. With zero, the store would be asked without a pause.
const SHORTEST_POLL: Duration = Duration::from_millis(1);
const LONGEST_POLL: Duration = Duration::from_secs(3_600);
/// How long to wait before the store is asked again after it failed.
const STORE_BACKOFF: Backoff = Backoff {
    first: Duration::from_secs(1),
    longest: Duration::from_secs(30),
};
/// How long after a request to the store the next one may come, if it is for a few handlers only and none has ended.
const SMALL_TURN_INTERVAL: Duration = Duration::from_millis(100);
/// Kubernetes ends a program 30 s after it was told to stop.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(25);
/// How long the store may take to release the claims of handlers that were cut off.
const RELEASE_LIMIT: Duration = Duration::from_secs(3);

/// Handles the events that [`Inbox::accept`](crate::inbox::Inbox::accept) stored.
///
/// Any number of workers, on any number of machines, share the events of one endpoint: one worker at a time has
/// an event. If a worker's process dies, its events are taken again after their
/// [lease](crate::inbox::InboxBuilder::lease).
///
/// If a handler fails, it is called again after 5 s, then after twice as long each time. After ten attempts the event is
/// parked with the text of the last error, so the longest wait is about 21 minutes. With more
/// [attempts](Self::max_attempts), a wait is up to an hour.
///
/// A handler runs again if its process dies before its success is recorded. If its effect is a write to a database, the
/// `handler_in` of the SQLite and Postgres stores returns a handler whose effect happens exactly once, while the store
/// remembers it.
///
/// # When the store fails
///
/// A worker that runs [until a shutdown](Self::run_until) keeps trying: after 1 s, then after twice as long each time,
/// up to 30 s. So it continues after an outage, and also after a migration or a missing permission has been fixed. It
/// [traces](crate::inbox#tracing) the first failure, then one line a minute at most, and the recovery.
///
/// # In a server program
///
/// A program that accepts events and has no worker stores events that nobody handles. `audience::serve` (feature
/// `serve`) runs a server and its workers, and stops all of them together:
///
/// ```no_run
/// use audience::inbox::Inbox;
///
/// # async fn handle(_: audience::webhooks::Event, _: audience::inbox::Attempt) -> std::io::Result<()> { Ok(()) }
/// # async fn run(listener: tokio::net::TcpListener, router: axum::Router, inbox: Inbox) -> std::io::Result<()> {
/// audience::serve(listener, router).worker(inbox.worker(handle)).await
/// # }
/// ```
///
/// With another server, pass its shutdown to [`run_until`](Self::run_until).
///
/// # Example: drain until SIGTERM or Ctrl-C
///
/// ```no_run
/// # async fn run(inbox: audience::inbox::Inbox) -> Result<(), audience::inbox::InboxError> {
/// let report = inbox
///     .worker(|event, attempt| async move {
///         println!("{} for the {}. time", event.id, attempt.number());
///         Ok::<_, std::io::Error>(())
///     })
///     .concurrency(8)
///     .run_until(audience::shutdown_signal())
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
    /// Another inbox whose events it handles, too.
    second: Option<(Arc<Shared>, BoxedHandler)>,
}

type BoxedHandler = Box<dyn Fn(Event, Attempt) -> Handling + Send + Sync>;

type Handling = Pin<Box<dyn Future<Output = Result<(), Box<dyn Error + Send + Sync>>> + Send>>;

impl<F> Worker<F> {
    pub(super) fn new(shared: Arc<Shared>, handler: F) -> Self {
        Self {
            shared,
            settings: WorkerSettings::default(),
            handler,
            second: None,
        }
    }

    /// Handles the events of another inbox, too, with the same settings. Its own events do not wait for these.
    #[cfg(feature = "unsubscribe")]
    pub(crate) fn and(mut self, inbox: &super::Inbox, handler: BoxedHandler) -> Self {
        self.second = Some((Arc::clone(&inbox.0), handler));
        self
    }

    /// Waits until its inbox runs nothing, also after the end of the worker.
    #[cfg(feature = "serve")]
    pub(crate) fn wait_idle(&self) -> impl Future<Output = ()> + Send + use<F> {
        let running = Arc::clone(&self.shared.running);
        async move { running.wait_idle().await }
    }

    /// Sets how many handlers may run simultaneously. Default: 8. 0 counts as 1.
    ///
    /// # Example: one event at a time
    ///
    /// ```
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    ///
    /// static RUNNING: AtomicUsize = AtomicUsize::new(0);
    ///
    /// # use audience::inbox::{Inbox, MemoryStore};
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    /// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?.sign(&EventType::Sent, std::time::SystemTime::now(), body);
    /// # let delivery = Verifier::new("6Jm0nFq2pXvZk4Tt")?.verify_event(&headers, body.to_vec())?;
    /// # let inbox = Inbox::builder(MemoryStore::new()).build()?;
    /// # inbox.accept(delivery).await;
    /// let worker = inbox.worker(|_, _| async {
    ///     let others = RUNNING.fetch_add(1, Ordering::SeqCst);
    ///     tokio::task::yield_now().await; // the work
    ///     RUNNING.fetch_sub(1, Ordering::SeqCst);
    ///     if others == 0 { Ok(()) } else { Err("two handlers ran simultaneously") }
    /// });
    ///
    /// let report = worker.concurrency(1).run_until_idle().await?;
    ///
    /// assert_eq!(report.failed, 0);
    /// # Ok(()) }
    /// ```
    pub fn concurrency(mut self, handlers: usize) -> Self {
        self.settings.concurrency = handlers.max(1);
        self
    }

    /// Sets how many attempts are made before an event is parked. Default: 10. 0 counts as 1.
    ///
    /// An attempt counts even if its process dies, so an event that kills the process is eventually parked. That takes
    /// one more claim, which [`ParkedEvent::attempts`](super::ParkedEvent::attempts) counts, too. Other events whose
    /// handlers ran beside it each time may be parked with it, at nearly the same time and with the same reason,
    /// although nothing is wrong with them. To find the one that is to blame, replay them one by one, or let a worker with
    /// [`concurrency(1)`](Self::concurrency) handle them: no other event runs beside one that kills its process.
    ///
    /// # Example: park an event after its second failure
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # use audience::inbox::{Inbox, MemoryStore};
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    /// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?.sign(&EventType::Sent, std::time::SystemTime::now(), body);
    /// # let delivery = Verifier::new("6Jm0nFq2pXvZk4Tt")?.verify_event(&headers, body.to_vec())?;
    /// # let inbox = Inbox::builder(MemoryStore::new()).build()?;
    /// # inbox.accept(delivery).await;
    /// let worker = inbox.worker(|_, _| async { Err("unknown customer") }).max_attempts(2);
    ///
    /// let report = worker.backoff(Duration::ZERO, Duration::ZERO).run_until_idle().await?;
    ///
    /// assert_eq!((report.failed, report.parked), (1, 1));
    /// assert_eq!(inbox.parked().await?[0].attempts, 2);
    /// # Ok(()) }
    /// ```
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.settings.max_attempts = attempts.max(1);
        self
    }

    /// Sets how long an event waits after its first failed attempt, and the longest wait. Default: 5 s and 1 h.
    ///
    /// The wait doubles with each attempt, and is shortened at random by up to a quarter.
    ///
    /// # Example: retry without waiting, in a test
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # use audience::inbox::{Inbox, MemoryStore};
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    /// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?.sign(&EventType::Sent, std::time::SystemTime::now(), body);
    /// # let delivery = Verifier::new("6Jm0nFq2pXvZk4Tt")?.verify_event(&headers, body.to_vec())?;
    /// # let inbox = Inbox::builder(MemoryStore::new()).build()?;
    /// # inbox.accept(delivery).await;
    /// let worker = inbox.worker(|_, attempt| async move {
    ///     if attempt.number() == 3 { Ok(()) } else { Err("not yet") }
    /// });
    ///
    /// let report = worker.backoff(Duration::ZERO, Duration::ZERO).run_until_idle().await?;
    ///
    /// assert_eq!((report.failed, report.handled), (2, 1));
    /// # Ok(()) }
    /// ```
    pub fn backoff(mut self, first: Duration, longest: Duration) -> Self {
        self.settings.backoff.first = first;
        self.settings.backoff.longest = longest;
        self
    }

    /// Sets how long to wait before the store is asked again if no event is due. Default: 1 s. Less than 1 ms
    /// counts as 1 ms, more than 1 hour as 1 hour.
    ///
    /// An event that the same process accepts, through a clone of the same inbox, is taken immediately.
    ///
    /// # Example: find the events of another process sooner
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// use tokio::sync::Notify;
    /// # use audience::inbox::{Inbox, MemoryStore};
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    /// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?.sign(&EventType::Sent, std::time::SystemTime::now(), body);
    /// # let delivery = Verifier::new("6Jm0nFq2pXvZk4Tt")?.verify_event(&headers, body.to_vec())?;
    /// let store = MemoryStore::new();
    /// let receiver = Inbox::builder(store.clone()).build()?;
    /// let inbox = Inbox::builder(store).build()?;
    /// let found = Arc::new(Notify::new());
    ///
    /// let finder = Arc::clone(&found);
    /// let worker = inbox.worker(move |_, _| {
    ///     finder.notify_one();
    ///     async { Ok::<_, std::io::Error>(()) }
    /// });
    /// let worker = worker.poll_interval(Duration::from_millis(5)).run_until(found.notified());
    /// let (report, _) = tokio::join!(worker, receiver.accept(delivery));
    ///
    /// assert_eq!(report?.handled, 1);
    /// # Ok(()) }
    /// ```
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.settings.poll_interval = interval.clamp(SHORTEST_POLL, LONGEST_POLL);
        self
    }

    /// Sets how long [`run_until`](Self::run_until) waits for the running handlers after the shutdown, also for those
    /// that [`Inbox::handle`](super::Inbox::handle) started. Default: 25 s. `Duration::MAX` means no limit.
    ///
    /// Handlers that run for longer are cut off at their next `await`, and their claims are released, so that another
    /// worker handles these events immediately instead of after their lease. A cut-off attempt counts as an attempt.
    /// The store has 3 s to release the claims, so the worker ends within this time and 3 s.
    ///
    /// Kubernetes ends a program 30 s after it was told to stop, `docker stop` after 10 s, and systemd after 90 s. Set
    /// a time that is at least 4 s shorter than that.
    ///
    /// # Example: for `docker stop`
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # use audience::inbox::{Inbox, MemoryStore};
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    /// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?.sign(&EventType::Sent, std::time::SystemTime::now(), body);
    /// # let delivery = Verifier::new("6Jm0nFq2pXvZk4Tt")?.verify_event(&headers, body.to_vec())?;
    /// # let inbox = Inbox::builder(MemoryStore::new()).build()?;
    /// # inbox.accept(delivery).await;
    /// # tokio::time::pause();
    /// let worker = inbox.worker(|_, _| std::future::pending::<Result<(), std::io::Error>>());
    /// let shutdown = tokio::time::sleep(Duration::from_secs(1));
    ///
    /// let report = worker.shutdown_timeout(Duration::from_secs(6)).run_until(shutdown).await?;
    ///
    /// assert_eq!(report.released, 1);
    /// assert_eq!(inbox.backlog().await?.waiting, 1);
    /// # Ok(()) }
    /// ```
    pub fn shutdown_timeout(mut self, limit: Duration) -> Self {
        self.settings.shutdown_timeout = limit;
        self
    }
}

impl<F, Fut, E> Worker<F>
where
    F: Fn(Event, Attempt) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), E>> + Send + 'static,
    E: Into<Box<dyn Error + Send + Sync>> + Send,
{
    /// Handles events until `shutdown` is ready, then takes no more events and waits for the running handlers, up to
    /// the [shutdown timeout](Self::shutdown_timeout).
    ///
    /// No failure of the store ends the worker: see [`Worker`](Self#when-the-store-fails). Dropping the future
    /// cuts the handlers off; their events are taken again after their lease.
    ///
    /// # Errors
    ///
    /// Returns no error at present.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    ///
    /// # Example: stop after the first event
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use tokio::sync::Notify;
    /// # use audience::inbox::{Inbox, MemoryStore};
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    /// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?.sign(&EventType::Sent, std::time::SystemTime::now(), body);
    /// # let delivery = Verifier::new("6Jm0nFq2pXvZk4Tt")?.verify_event(&headers, body.to_vec())?;
    /// # let inbox = Inbox::builder(MemoryStore::new()).build()?;
    /// # inbox.accept(delivery).await;
    /// let stop = Arc::new(Notify::new());
    ///
    /// let stopper = Arc::clone(&stop);
    /// let worker = inbox.worker(move |_, _| {
    ///     stopper.notify_one();
    ///     async { Ok::<_, std::io::Error>(()) }
    /// });
    /// let report = worker.run_until(stop.notified()).await?;
    ///
    /// assert_eq!(report.handled, 1);
    /// # Ok(()) }
    /// ```
    pub async fn run_until(
        self,
        shutdown: impl Future<Output = ()>,
    ) -> Result<WorkerReport, InboxError> {
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async move {
            shutdown.await;
            drop(stop);
        };
        let (first, second) = self.drains();
        let second = async move {
            match second {
                Some(drain) => drain.run_until(async { _ = stopped.await }).await,
                None => Ok(WorkerReport::default()),
            }
        };
        let (first, second) = tokio::join!(first.run_until(shutdown), second);
        Ok(first?.plus(second?))
    }

    /// Handles events until none is due and no handler runs: for a job that runs now and then, and for tests.
    ///
    /// Does not wait for failed events to become due again, but does wait for an unavailable store: use
    /// `tokio::time::timeout` if the job must end.
    ///
    /// # Errors
    ///
    /// Returns [`InboxError::Store`] if the store cannot be used as it is set up, for example because a table is
    /// missing.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    ///
    /// # Example: a test of your own handler
    ///
    /// ```
    /// # use audience::inbox::{Inbox, MemoryStore, Receipt};
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    /// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?.sign(&EventType::Sent, std::time::SystemTime::now(), body);
    /// # let delivery = Verifier::new("6Jm0nFq2pXvZk4Tt")?.verify_event(&headers, body.to_vec())?;
    /// let inbox = Inbox::builder(MemoryStore::new()).build()?;
    /// assert_eq!(inbox.accept(delivery).await, Receipt::Accepted);
    ///
    /// let report = inbox.worker(|_, _| async { Err("no") }).max_attempts(1).run_until_idle().await?;
    ///
    /// assert_eq!(report.parked, 1);
    /// assert_eq!(inbox.parked().await?[0].reason, "no");
    /// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn run_until_idle(self) -> Result<WorkerReport, InboxError> {
        let (first, second) = self.drains();
        let report = first.run_until_idle().await?;
        // The handlers of the first inbox may have stored events in the second one.
        match second {
            Some(drain) => Ok(report.plus(drain.run_until_idle().await?)),
            None => Ok(report),
        }
    }

    fn drains(self) -> (Drain<F>, Option<Drain<BoxedHandler>>) {
        let settings = self.settings.clone();
        let second = self.second;
        let second = second.map(|(shared, handler)| Drain::new(shared, settings, handler));
        let first = Drain::new(self.shared, self.settings, self.handler);
        (first, second)
    }
}

impl<F> fmt::Debug for Worker<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// The counts of a [`Worker`](super::Worker), from its start to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerReport {
    /// Events whose handler succeeded.
    pub handled: u64,
    /// Attempts that returned an error or panicked, and whose event will be retried.
    pub failed: u64,
    /// Events that were parked.
    pub parked: u64,
    /// Events whose handler was cut off by the [shutdown timeout](Worker::shutdown_timeout), and whose claim was
    /// released.
    pub released: u64,
    /// Events whose outcome could not be recorded, because the lease was lost or the store was down. Another
    /// attempt handles them.
    pub lost: u64,
}

/// How many handlers run simultaneously.
pub(super) const DEFAULT_CONCURRENCY: usize = 8;

#[derive(Clone, Debug)]
struct WorkerSettings {
    concurrency: usize,
    max_attempts: u32,
    poll_interval: Duration,
    shutdown_timeout: Duration,
    backoff: Backoff,
}

impl Default for WorkerSettings {
    fn default() -> Self {
        Self {
            concurrency: DEFAULT_CONCURRENCY,
            max_attempts: 10,
            poll_interval: Duration::from_secs(1),
            shutdown_timeout: SHUTDOWN_TIMEOUT,
            backoff: Backoff {
                first: Duration::from_secs(5),
                longest: Duration::from_secs(3_600),
            },
        }
    }
}

struct Drain<F> {
    shared: Arc<Shared>,
    settings: Arc<WorkerSettings>,
    handler: Arc<F>,
    tasks: JoinSet<Ended>,
    /// Tells the tasks to cut their handlers off, and to release their claims.
    cut_off: watch::Sender<bool>,
    /// Claims whose handler succeeded, and of which the store is not told yet.
    handled: Vec<Claimed>,
    /// The call that tells the store of handled events, and takes more.
    turn: Option<Pin<Box<dyn Future<Output = Turn> + Send>>>,
    turn_began: Instant,
    /// How many handled events the store is being told of.
    telling: usize,
    report: WorkerReport,
    outage: Option<Outage>,
}

#[derive(Debug)]
struct Claimed {
    id: EventId,
    token: Token,
}

/// How the task of an event ended.
enum Ended {
    /// Its handler succeeded. The store is not told yet.
    Handled(Claimed),
    /// The store was told.
    Recorded(EventOutcome),
}

/// A call that told the store of handled events and asked it for due ones, with the result.
struct Turn {
    completed: Vec<Claimed>,
    token: Token,
    limit: usize,
    result: Turnover,
}

/// The failures of the store since it last worked.
struct Outage {
    start: Instant,
    failures: u32,
}

enum Taken {
    /// The store was not asked for events.
    Nothing,
    /// As many events as there was room for: more may be due.
    All,
    /// Fewer events: no other is due.
    Rest,
    /// No event: the store failed.
    Failed(StoreError),
}

impl<F, Fut, E> Drain<F>
where
    F: Fn(Event, Attempt) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), E>> + Send + 'static,
    E: Into<Box<dyn Error + Send + Sync>> + Send,
{
    fn new(shared: Arc<Shared>, settings: WorkerSettings, handler: F) -> Self {
        Self {
            shared,
            settings: Arc::new(settings),
            handler: Arc::new(handler),
            tasks: JoinSet::new(),
            cut_off: watch::Sender::new(false),
            telling: 0,
            handled: Vec::new(),
            turn: None,
            turn_began: Instant::now(),
            report: WorkerReport::default(),
            outage: None,
        }
    }

    async fn run_until(
        mut self,
        shutdown: impl Future<Output = ()>,
    ) -> Result<WorkerReport, InboxError> {
        let mut shutdown = pin!(shutdown);
        let shared = Arc::clone(&self.shared);
        let mut look_at = Instant::now();
        // An accepted event shows that the store works again. But it may work for `accept` only, so the worker does
        // not ask more often than after the first failure.
        let mut not_before = look_at;
        loop {
            let room_at = self.room_at();
            tokio::select! {
                // The order matters: a shutdown ends the loop even if events keep coming, and ended handlers make room.
                biased;
                () = &mut shutdown => break,
                Some(ended) = self.tasks.join_next() => self.end(ended),
                turn = in_progress(&mut self.turn) => {
                    let now = Instant::now();
                    match self.finish_turn(turn) {
                        Taken::Nothing => {}
                        Taken::All => look_at = now,
                        Taken::Rest => look_at = now + self.settings.poll_interval,
                        Taken::Failed(_) => {
                            not_before = now + STORE_BACKOFF.first;
                            look_at = now + self.store_delay();
                        }
                    }
                }
                () = shared.accepted.notified(), if room_at.is_some() => look_at = Instant::now().max(not_before),
                () = tokio::time::sleep_until(room_at.map_or(look_at, |at| at.max(look_at))), if room_at.is_some() => {}
            }
            if self.turn.is_none() {
                self.gather().await;
            }
            let now = Instant::now();
            let is_due = look_at <= now;
            let has_room = self.room_at().is_some_and(|at| at <= now);
            if self.turn.is_none() && (!self.handled.is_empty() || (is_due && has_room)) {
                self.start_turn(if is_due { self.free() } else { 0 });
            }
        }
        self.finish_in_time().await;
        #[cfg(feature = "tracing")]
        tracing::info!(
            target: "audience::inbox",
            endpoint = %shared.settings.endpoint,
            report.handled = self.report.handled,
            report.failed = self.report.failed,
            report.parked = self.report.parked,
            report.released = self.report.released,
            report.lost = self.report.lost,
            "worker ended"
        );
        Ok(self.report)
    }

    async fn run_until_idle(mut self) -> Result<WorkerReport, InboxError> {
        let mut look_at = Instant::now();
        loop {
            let is_due = look_at <= Instant::now();
            self.start_turn(if is_due { self.free() } else { 0 });
            let turn = in_progress(&mut self.turn).await;
            match self.finish_turn(turn) {
                Taken::Failed(error) if !error.is_temporary() => {
                    // Returning now would drop the tasks, and cut handlers off in the middle of their effects.
                    self.finish().await;
                    return Err(error.into());
                }
                Taken::Failed(_) => look_at = Instant::now() + self.store_delay(),
                Taken::Rest if self.tasks.is_empty() => return Ok(self.report),
                _ => {}
            }
            self.wait_for_turn(look_at).await;
        }
    }

    /// Waits until handled events are to be recorded, or until the store can be asked for more events, but not before
    /// `look_at`.
    async fn wait_for_turn(&mut self, look_at: Instant) {
        let is_early = look_at > Instant::now();
        // Nobody extends the lease of a handled event, so it is recorded even if there is no room for others.
        while self.handled.is_empty() {
            tokio::select! {
                Some(ended) = self.tasks.join_next() => {
                    self.end(ended);
                    self.gather().await;
                    if !is_early && self.has_room() {
                        return;
                    }
                }
                () = tokio::time::sleep_until(look_at), if is_early => return,
                else => return,
            }
        }
    }

    /// Returns when to ask the store for events, if no request is running and a handler could start. For a few more
    /// handlers, it is asked less often.
    fn room_at(&self) -> Option<Instant> {
        let is_free = self.turn.is_none() && self.free() > 0;
        is_free.then(|| match self.has_room() {
            true => self.turn_began,
            false => self.turn_began + SMALL_TURN_INTERVAL,
        })
    }

    /// Returns whether enough handlers could start for a request to the store to be worth it.
    fn has_room(&self) -> bool {
        self.tasks.is_empty() || self.free() >= self.settings.concurrency.div_ceil(4)
    }

    /// Returns how many more handlers may run. A faulty store may have returned more events than it was asked for.
    fn free(&self) -> usize {
        self.settings.concurrency.saturating_sub(self.tasks.len())
    }

    /// Notes how a task ended.
    fn end(&mut self, ended: Result<Ended, JoinError>) {
        match ended {
            Ok(Ended::Handled(claimed)) => self.handled.push(claimed),
            Ok(Ended::Recorded(outcome)) => self.report.add(outcome),
            // A task that was cut off, by the end of its runtime or a panic of the store, recorded nothing.
            Err(_) => self.report.add(EventOutcome::Lost),
        }
    }

    /// Notes all tasks that end in this moment, for the store to be told of them together.
    async fn gather(&mut self) {
        loop {
            let running = self.tasks.len();
            while let Some(ended) = self.tasks.try_join_next() {
                self.end(ended);
            }
            // This task runs after the tasks that are ready now. Those with a quick handler have ended by then.
            drop(tokio::spawn(tokio::task::yield_now()).await);
            if self.tasks.is_empty() || self.tasks.len() == running {
                break;
            }
        }
    }

    /// Tells the store of everything that was handled, and takes events, in one step. The handlers run meanwhile.
    fn start_turn(&mut self, limit: usize) {
        if limit > 0 {
            self.shared.purge_if_due();
        }
        let shared = Arc::clone(&self.shared);
        let completed = std::mem::take(&mut self.handled);
        self.telling = completed.len();
        self.turn_began = Instant::now();
        // One token for all of them: a claim is named by its event and its token.
        let token = Token::random();
        self.turn = Some(Box::pin(async move {
            let held: Vec<_> = completed
                .iter()
                .map(|claimed| claimed.held(&shared))
                .collect();
            let take = Take {
                endpoint: &shared.settings.endpoint,
                token,
                lease: shared.settings.lease,
                limit,
            };
            let retention = shared.settings.retention;
            let result = shared.store.complete_and_take(&held, retention, take).await;
            Turn {
                completed,
                token,
                limit,
                result,
            }
        }));
    }

    fn finish_turn(&mut self, turn: Turn) -> Taken {
        self.telling = 0;
        self.note_completed(turn.completed, turn.result.completed);
        if turn.limit == 0 {
            return Taken::Nothing;
        }
        let taken = match turn.result.taken {
            Ok(taken) => taken,
            Err(error) => {
                self.store_failed(&error);
                return Taken::Failed(error);
            }
        };
        self.store_works();
        let more = taken.len() >= turn.limit;
        for event in taken {
            self.shared.count(|metrics| metrics.lag = event.overdue);
            let shared = Arc::clone(&self.shared);
            let settings = Arc::clone(&self.settings);
            let handler = Arc::clone(&self.handler);
            let token = turn.token;
            let cut_off = self.cut_off.subscribe();
            // Each event has a task, so that a handler that blocks its thread delays no other event, and only its own
            // lease.
            self.tasks.spawn(async move {
                handle_taken(&shared, &settings, event, token, &*handler, cut_off).await
            });
        }
        if more { Taken::All } else { Taken::Rest }
    }

    fn note_completed(&mut self, completed: Vec<Claimed>, held: Result<Vec<bool>, StoreError>) {
        let held = match held {
            Ok(held) => held,
            // The store failed to take events.
            Err(_) if completed.is_empty() => return,
            Err(error) => {
                self.shared.store_failed("complete", &error);
                // Each is completed alone, with retries, because one of them may be the reason.
                for claimed in completed {
                    let shared = Arc::clone(&self.shared);
                    self.tasks.spawn(async move {
                        let held = claimed.held(&shared);
                        Ended::Recorded(complete(&shared, held).await)
                    });
                }
                return;
            }
        };
        let mut held = held.into_iter();
        for claimed in completed {
            let is_held = held.next().unwrap_or(false);
            let handled = EventOutcome::Handled;
            let outcome = held_or_lost(&self.shared, &claimed.id, is_held, handled);
            self.note(outcome);
        }
    }

    fn note(&mut self, outcome: EventOutcome) {
        if matches!(outcome, EventOutcome::Handled) {
            self.shared.count(|metrics| metrics.handled += 1);
        }
        self.report.add(outcome);
    }

    fn store_failed(&mut self, error: &StoreError) {
        let outage = self.outage.get_or_insert_with(|| Outage {
            start: Instant::now(),
            failures: 0,
        });
        outage.failures = outage.failures.saturating_add(1);
        self.shared.store_failed("take", error);
    }

    fn store_works(&mut self) {
        if let Some(outage) = self.outage.take() {
            self.shared.store_recovered("take", outage.start.elapsed());
        }
    }

    /// Returns how long to wait after the last failure of the store.
    fn store_delay(&self) -> Duration {
        let failures = self.outage.as_ref().map_or(0, |outage| outage.failures);
        STORE_BACKOFF.after(failures, fastrand::f64())
    }

    /// Finishes within the time that a shutdown may take.
    async fn finish_in_time(&mut self) {
        let (limit, shared) = (self.settings.shutdown_timeout, Arc::clone(&self.shared));
        let finishing = async {
            self.finish().await;
            shared.running.wait_idle().await;
        };
        if tokio::time::timeout(limit, finishing).await.is_ok() {
            return;
        }
        self.cut_off.send_replace(true);
        // A handler that blocks its thread cannot be cut off, and a store may be down. Their claims end with their
        // lease.
        let _ = tokio::time::timeout(RELEASE_LIMIT, self.finish()).await;
        let unrecorded = self.tasks.len() + self.handled.len() + self.telling;
        self.report.lost += unrecorded as u64;
    }

    /// Waits until all handlers have ended and the store was told, and takes no more events.
    async fn finish(&mut self) {
        loop {
            if self.turn.is_none() {
                self.gather().await;
            }
            if self.turn.is_none() && !self.handled.is_empty() {
                self.start_turn(0);
            }
            let is_telling = self.turn.is_some();
            tokio::select! {
                turn = in_progress(&mut self.turn), if is_telling => {
                    // It may have taken events before the shutdown.
                    self.finish_turn(turn);
                }
                Some(ended) = self.tasks.join_next() => self.end(ended),
                else => break,
            }
        }
    }
}

/// Waits for the end of a turn, if there is one.
async fn in_progress(turn: &mut Option<Pin<Box<dyn Future<Output = Turn> + Send>>>) -> Turn {
    let Some(running) = turn else {
        return std::future::pending().await;
    };
    let ended = running.as_mut().await;
    *turn = None;
    ended
}

impl Claimed {
    fn held<'a>(&'a self, shared: &'a Shared) -> HeldClaim<'a> {
        HeldClaim {
            key: shared.key(&self.id),
            token: self.token,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum EventOutcome {
    Handled,
    Failed,
    Parked,
    Released,
    Lost,
}

impl WorkerReport {
    fn plus(self, other: Self) -> Self {
        Self {
            handled: self.handled + other.handled,
            failed: self.failed + other.failed,
            parked: self.parked + other.parked,
            released: self.released + other.released,
            lost: self.lost + other.lost,
        }
    }

    fn add(&mut self, outcome: EventOutcome) {
        match outcome {
            EventOutcome::Handled => self.handled += 1,
            EventOutcome::Failed => self.failed += 1,
            EventOutcome::Parked => self.parked += 1,
            EventOutcome::Released => self.released += 1,
            EventOutcome::Lost => self.lost += 1,
        }
    }
}

async fn handle_taken<F, Fut, E>(
    shared: &Shared,
    settings: &WorkerSettings,
    taken: TakenEvent,
    token: Token,
    handler: &F,
    mut cut_off: watch::Receiver<bool>,
) -> Ended
where
    F: Fn(Event, Attempt) -> Fut,
    Fut: Future<Output = Result<(), E>>,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    let claimed = Claimed {
        id: taken.id,
        token,
    };
    let held = claimed.held(shared);
    let attempt = Attempt::new(taken.attempt, settings.max_attempts);
    if attempt.number() > settings.max_attempts {
        // An attempt that ends parks the event if it is the last, so this one ended with its process, or the store
        // was down then, or another worker makes more attempts.
        let reason = format!(
            "{} attempts were made without success, and the last may have ended with its process",
            attempt.number() - 1
        );
        return Ended::Recorded(park(shared, held, &reason).await);
    }
    let event = match Event::from_unverified_json(&taken.body) {
        Ok(event) => event,
        Err(problem) => {
            let reason = format!("the stored body is not an event: {problem}");
            return Ended::Recorded(park(shared, held, &reason).await);
        }
    };
    // The body is not needed any more, and the handler may run for long.
    drop(taken.body);

    let handled = shared.run(held, async move { handler(event, attempt).await });
    let is_cut_off = async {
        if cut_off.wait_for(|is_cut_off| *is_cut_off).await.is_err() {
            // The worker was dropped, and this task is about to be.
            std::future::pending::<()>().await;
        }
    };
    let handled = tokio::select! {
        // The order matters: a handler that has ended is not cut off.
        biased;
        handled = handled => handled,
        () = is_cut_off => {
            shared.handler_cut_off(held.key.id, attempt);
            // There is no delay: nothing failed, and another worker may have time.
            let reason = "cut off by the shutdown of its worker";
            let released = release(shared, held, Duration::ZERO, reason, EventOutcome::Released);
            return Ended::Recorded(released.await);
        }
    };
    let failure = match handled {
        // A crash before the store is told leaves an event that is taken again after its lease.
        Ok(()) => return Ended::Handled(claimed),
        Err(failure) => failure,
    };
    shared.handler_failed(held.key.id, attempt, &failure);
    Ended::Recorded(if attempt.is_last() {
        park(shared, held, failure.reason()).await
    } else {
        let delay = settings.backoff.after(attempt.number(), fastrand::f64());
        release(shared, held, delay, failure.reason(), EventOutcome::Failed).await
    })
}

async fn complete(shared: &Shared, held: HeldClaim<'_>) -> EventOutcome {
    let outcome = match shared.complete(held).await {
        Ok(is_held) => held_or_lost(shared, held.key.id, is_held, EventOutcome::Handled),
        Err(_) => EventOutcome::Lost,
    };
    if matches!(outcome, EventOutcome::Handled) {
        shared.count(|metrics| metrics.handled += 1);
    }
    outcome
}

async fn release(
    shared: &Shared,
    held: HeldClaim<'_>,
    delay: Duration,
    reason: &str,
    outcome: EventOutcome,
) -> EventOutcome {
    let release = Release {
        delay,
        retention: shared.settings.retention,
        reason,
    };
    let released = shared.store.release(held, release).await;
    ended(shared, held.key.id, "release", released, outcome)
}

async fn park(shared: &Shared, held: HeldClaim<'_>, reason: &str) -> EventOutcome {
    let parked = shared.store.park(held, reason).await;
    let outcome = ended(shared, held.key.id, "park", parked, EventOutcome::Parked);
    // This comes after the call: an event whose lease was lost is another worker's, and may still succeed.
    if matches!(outcome, EventOutcome::Parked) {
        shared.parked(held.key.id);
    }
    outcome
}

/// Returns the outcome of an event. If the store failed, the claim ends with its lease.
fn ended(
    shared: &Shared,
    id: &EventId,
    operation: &'static str,
    is_held: Result<bool, StoreError>,
    outcome: EventOutcome,
) -> EventOutcome {
    match is_held {
        Ok(is_held) => held_or_lost(shared, id, is_held, outcome),
        Err(error) => {
            shared.store_failed(operation, &error);
            EventOutcome::Lost
        }
    }
}

fn held_or_lost(
    shared: &Shared,
    id: &EventId,
    is_held: bool,
    outcome: EventOutcome,
) -> EventOutcome {
    if is_held {
        return outcome;
    }
    shared.lease_lost(id);
    EventOutcome::Lost
}

/// How long to wait after an event or the store failed: a time that doubles with each attempt.
#[derive(Clone, Copy, Debug)]
struct Backoff {
    first: Duration,
    longest: Duration,
}

impl Backoff {
    /// Returns the delay after this attempt. `jitter`, from 0 to 1, shortens it by up to a quarter, so that
    /// events that failed together do not come back together.
    fn after(self, attempt: u32, jitter: f64) -> Duration {
        let doublings = attempt.saturating_sub(1).min(31);
        let delay = self.first.saturating_mul(1 << doublings).min(self.longest);
        delay - delay.mul_f64(jitter.clamp(0.0, 1.0) / 4.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff {
        first: Duration::from_secs(5),
        longest: Duration::from_secs(3_600),
    };

    #[test]
    fn the_delay_doubles_up_to_the_longest() {
        let delays = [1, 2, 3, 10, 11, 40, u32::MAX].map(|attempt| BACKOFF.after(attempt, 0.0));

        let seconds = delays.map(|delay| delay.as_secs());
        assert_eq!(seconds, [5, 10, 20, 2_560, 3_600, 3_600, 3_600]);
    }

    #[test]
    fn the_report_of_a_worker_with_two_inboxes_counts_the_events_of_both() {
        let report = |[handled, failed, parked, released, lost]: [u64; 5]| WorkerReport {
            handled,
            failed,
            parked,
            released,
            lost,
        };

        let both = report([1, 2, 3, 4, 5]).plus(report([10, 20, 30, 40, 50]));

        assert_eq!(both, report([11, 22, 33, 44, 55]));
    }

    #[test]
    fn jitter_takes_off_up_to_a_quarter() {
        assert_eq!(BACKOFF.after(3, 1.0), Duration::from_secs(15));
        assert_eq!(BACKOFF.after(3, 7.0), Duration::from_secs(15));
    }

    #[test]
    fn an_endless_delay_does_not_overflow() {
        let endless = Backoff {
            first: Duration::MAX,
            longest: Duration::MAX,
        };

        assert!(endless.after(u32::MAX, 1.0) > Duration::from_secs(1 << 60));
        assert_eq!(endless.after(u32::MAX, 0.0), Duration::MAX);
    }
}
