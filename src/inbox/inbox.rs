use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::claim::{self, Claim, ClaimTarget};
use super::error::InboxError;
use super::handle::{self, Attempt};
use super::receipt::Receipt;
use super::shared::{InboxMetrics, Settings, Shared};
use super::store::{Backlog, DynStore, ParkedEvent, Store};
use super::worker::Worker;
use crate::ConfigError;
use crate::webhooks::{Event, EventId, VerifiedEvent};

/// How many parked events one call returns.
const PAGE: usize = 100;

/// Handles every event of an endpoint once. Cheap to clone; clones share their store and their metrics.
///
/// # Example: a handler
///
/// ```
/// use audience::inbox::{Inbox, MemoryStore, Receipt};
/// use audience::webhooks::{EventData, VerifiedEvent};
///
/// async fn receive(inbox: &Inbox, delivery: VerifiedEvent) -> Receipt {
///     inbox
///         .handle(delivery, |event, _attempt| async move {
///             if let EventData::Bounced(mail) = &event.data {
///                 println!("stop sending to {}", mail.to);
///             }
///             Ok::<_, std::io::Error>(())
///         })
///         .await
/// }
///
/// let inbox = Inbox::builder(MemoryStore::new()).endpoint("main").build()?;
/// # let _ = (inbox, receive);
/// # Ok::<(), audience::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct Inbox(Arc<Shared>);

impl Inbox {
    /// Starts building an inbox that remembers its events in this store.
    pub fn builder(store: impl Store) -> InboxBuilder {
        InboxBuilder {
            store: Arc::new(store),
            settings: Settings::default(),
        }
    }

    /// Claims an event, runs the handler, and returns what to respond.
    ///
    /// The handler runs in a task of its own, so it is not cut off if the sender disconnects. Its lease is
    /// extended while it waits. A handler that blocks its thread for long must do so in
    /// `tokio::task::spawn_blocking`, or the event may be handled a second time.
    ///
    /// If it has not ended [`respond_within`](InboxBuilder::respond_within) after the delivery arrived, the
    /// receipt is [`StillRunning`](Receipt::StillRunning) and the handler continues. Call this in the request
    /// handler: time in a queue of your own counts.
    ///
    /// Each event is handled at least once, and repeats are dropped. It is handled a second time only if the
    /// process or the store failed between the effect of the handler and its completion. For exactly once,
    /// make the claim part of your transaction: `claim_in` of the SQLite and Postgres stores.
    ///
    /// An error or a panic of the handler is a failed attempt: the receipt is [`Failed`](Receipt::Failed), and
    /// the service retries. After the tenth attempt it gives up, and the event is lost; [`accept`](Self::accept)
    /// keeps it.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    ///
    /// # Example: only an event that was handled is acknowledged
    ///
    /// ```
    /// # use audience::inbox::{Inbox, MemoryStore, Receipt};
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    /// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?.sign(&EventType::Sent, std::time::SystemTime::now(), body);
    /// # let delivery = Verifier::new("6Jm0nFq2pXvZk4Tt")?.verify_event(&headers, body.to_vec())?;
    /// let inbox = Inbox::builder(MemoryStore::new()).build()?;
    ///
    /// let first = inbox.handle(delivery.clone(), |_, _| async { Err("the database is down") }).await;
    /// let second = inbox.handle(delivery.clone(), |_, _| async { Ok::<_, String>(()) }).await;
    /// let third = inbox.handle(delivery, |_, _| async { Ok::<_, String>(()) }).await;
    ///
    /// assert_eq!([first, second, third], [Receipt::Failed, Receipt::Handled, Receipt::Repeated]);
    /// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn handle<F, Fut, E>(&self, delivery: VerifiedEvent, handler: F) -> Receipt
    where
        F: FnOnce(Event, Attempt) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>> + Send,
    {
        handle::handle(&self.0, delivery, handler).await
    }

    /// Stores a delivery for a [worker](Self::worker), and returns what to respond.
    ///
    /// The body is stored as it was signed. Once it is stored, the service need not deliver the event again,
    /// even if this process crashes. The body is deleted when the event was handled.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    ///
    /// # Example: accept now, handle later
    ///
    /// ```
    /// # use audience::inbox::{Inbox, MemoryStore, Receipt};
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    /// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?.sign(&EventType::Sent, std::time::SystemTime::now(), body);
    /// # let delivery = Verifier::new("6Jm0nFq2pXvZk4Tt")?.verify_event(&headers, body.to_vec())?;
    /// let inbox = Inbox::builder(MemoryStore::new()).build()?;
    ///
    /// assert_eq!(inbox.accept(delivery.clone()).await, Receipt::Accepted);
    /// assert_eq!(inbox.accept(delivery).await, Receipt::Repeated);
    /// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn accept(&self, delivery: VerifiedEvent) -> Receipt {
        handle::accept(&self.0, delivery).await
    }

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
        Worker::new(Arc::clone(&self.0), handler)
    }

    /// Claims an event for code of your own.
    ///
    /// Claim only after the delivery was verified. [`handle`](Self::handle) does all of this, and extends the
    /// lease while the handler runs.
    ///
    /// # Errors
    ///
    /// - [`InboxError::Store`] if the store failed. Respond with 503.
    /// - [`InboxError::Conflict`] if the id was received before with another body, which is noticed if you
    ///   claim with a [`VerifiedEvent`].
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    ///
    /// # Example: claim, handle, complete
    ///
    /// ```
    /// use audience::inbox::{Claim, Inbox, InboxError};
    /// use audience::webhooks::Event;
    /// use http::StatusCode;
    ///
    /// async fn receive(inbox: &Inbox, event: Event) -> Result<StatusCode, InboxError> {
    ///     match inbox.claim(&event.id).await? {
    ///         Claim::Fresh(lease) => {
    ///             println!("handling {}", event.id);
    ///             lease.complete().await?;
    ///             Ok(StatusCode::OK)
    ///         }
    ///         Claim::InProgress { .. } => Ok(StatusCode::SERVICE_UNAVAILABLE),
    ///         Claim::Done => Ok(StatusCode::OK),
    ///     }
    /// }
    /// ```
    pub async fn claim<'a>(&self, event: impl Into<ClaimTarget<'a>>) -> Result<Claim, InboxError> {
        claim::claim(&self.0, event.into()).await
    }

    /// Returns the parked events, at most 100, ordered by the bytes of their ids.
    ///
    /// [`parked_after`](Self::parked_after) returns the next ones.
    ///
    /// # Errors
    ///
    /// Returns [`InboxError::Store`] if the store failed.
    ///
    /// # Example: try everything again
    ///
    /// ```
    /// # async fn replay_all(inbox: &audience::inbox::Inbox) -> Result<(), audience::inbox::InboxError> {
    /// for event in inbox.parked().await? {
    ///     println!("{} failed {} times: {}", event.id, event.attempts, event.reason);
    ///     inbox.replay(&event.id).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn parked(&self) -> Result<Vec<ParkedEvent>, InboxError> {
        self.parked_page(None).await
    }

    /// Returns the parked events that come after this id, at most 100.
    ///
    /// # Errors
    ///
    /// Returns [`InboxError::Store`] if the store failed.
    pub async fn parked_after(&self, id: &EventId) -> Result<Vec<ParkedEvent>, InboxError> {
        self.parked_page(Some(id)).await
    }

    /// Hands a parked event to the workers again, with no attempts made. Returns whether it was parked.
    ///
    /// # Errors
    ///
    /// Returns [`InboxError::Store`] if the store failed.
    pub async fn replay(&self, id: &EventId) -> Result<bool, InboxError> {
        let shared = &self.0;
        let replayed = shared.store.replay(shared.key(id)).await;
        let replayed = replayed.inspect_err(|error| shared.store_failed("replay", error))?;
        if replayed {
            shared.accepted.notify_one();
        }
        Ok(replayed)
    }

    /// Gives up a parked event: it is done, and its body is deleted. Returns whether it was parked.
    ///
    /// # Errors
    ///
    /// Returns [`InboxError::Store`] if the store failed.
    pub async fn discard(&self, id: &EventId) -> Result<bool, InboxError> {
        let shared = &self.0;
        let discarded = shared
            .store
            .discard(shared.key(id), shared.settings.retention)
            .await;
        Ok(discarded.inspect_err(|error| shared.store_failed("discard", error))?)
    }

    /// Counts the accepted events that are not done, of all workers on all machines.
    ///
    /// # Errors
    ///
    /// Returns [`InboxError::Store`] if the store failed.
    pub async fn backlog(&self) -> Result<Backlog, InboxError> {
        let shared = &self.0;
        let backlog = shared.store.backlog(self.endpoint()).await;
        Ok(backlog.inspect_err(|error| shared.store_failed("backlog", error))?)
    }

    /// Deletes all entries that may be forgotten, of all endpoints of the store, in small portions. Returns how
    /// many.
    ///
    /// An inbox does this by itself every minute while it receives events. Call it in a process that is short-lived.
    ///
    /// # Errors
    ///
    /// Returns [`InboxError::Store`] if the store failed. Some entries may have been deleted.
    pub async fn purge(&self) -> Result<u64, InboxError> {
        Ok(self.0.purge().await?)
    }

    /// Returns what this inbox has counted since it was built, in this process.
    #[must_use]
    pub fn metrics(&self) -> InboxMetrics {
        self.0.metrics()
    }

    /// Returns the name of the endpoint.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.0.settings.endpoint
    }

    /// Waits until all handlers that [`handle`](Self::handle) started have finished.
    ///
    /// Such a handler continues when its connection is closed. Before a program exits, stop accepting connections,
    /// then call this. A [`Worker`] waits for its
    /// handlers itself.
    pub async fn wait_idle(&self) {
        self.0.wait_idle().await;
    }

    async fn parked_page(&self, after: Option<&EventId>) -> Result<Vec<ParkedEvent>, InboxError> {
        let shared = &self.0;
        let parked = shared.store.parked(self.endpoint(), after, PAGE).await;
        Ok(parked.inspect_err(|error| shared.store_failed("parked", error))?)
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox")
            .field("settings", &self.0.settings)
            .field("metrics", &self.metrics())
            .finish_non_exhaustive()
    }
}

/// Builds an [`Inbox`].
///
/// # Example: a longer lease for an endpoint with slow handlers
///
/// ```
/// use std::time::Duration;
///
/// use audience::inbox::{Inbox, MemoryStore};
///
/// let inbox = Inbox::builder(MemoryStore::new())
///     .endpoint("billing")
///     .lease(Duration::from_secs(300))
///     .build()?;
///
/// assert_eq!(inbox.endpoint(), "billing");
/// # Ok::<(), audience::ConfigError>(())
/// ```
#[must_use = "a builder does nothing until its inbox is built"]
pub struct InboxBuilder {
    store: Arc<dyn DynStore>,
    settings: Settings,
}

impl InboxBuilder {
    /// Sets the name of the endpoint whose events these are. Default: `main`.
    ///
    /// Two endpoints that receive the same events handle each event once each. All receivers of one endpoint
    /// use the same name.
    pub fn endpoint(mut self, name: impl Into<String>) -> Self {
        self.settings.endpoint = name.into();
        self
    }

    /// Sets how long a claim lasts if it is not extended, 1 second to 1 hour. Default: 60 s.
    ///
    /// It is extended while its handler runs. If the process dies, the event may be claimed again after this
    /// time.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// Sets how long a done event is remembered, at least 6 hours. Default: 72 h.
    ///
    /// The service retries for about five hours (interface section 6.5). Deliveries that you replay
    /// from the dashboard after this time are handled again.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.settings.retention = retention;
        self
    }

    /// Sets the response deadline, counted from the arrival of a delivery: less than 10 s. Default: 8 s.
    pub fn respond_within(mut self, limit: Duration) -> Self {
        self.settings.respond_within = limit;
        self
    }

    /// Builds the inbox.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] if a setting is out of its range.
    pub fn build(self) -> Result<Inbox, ConfigError> {
        self.settings.check()?;
        Ok(Inbox(Arc::new(Shared::new(self.store, self.settings))))
    }
}

impl fmt::Debug for InboxBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InboxBuilder")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
