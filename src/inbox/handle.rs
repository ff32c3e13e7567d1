use std::error::Error;

use tokio::time::Instant;

use super::attempt::Attempt;
use super::error::{Failure, StoreError, StoreErrorKind};
use super::held;
use super::inbox::Inbox;
use super::receipt::Receipt;
use super::shared::Shared;
use super::store::{ClaimState, HeldClaim, NewClaim, Release};
use super::token::{Fingerprint, Token};
use super::trace;
use crate::webhooks::{Event, VerifiedEvent};

/// How many attempts the service makes (interface section 6.5).
const ATTEMPTS_OF_THE_SERVICE: u32 = 10;

impl Inbox {
    /// Claims an event, runs the handler, and returns what to respond.
    ///
    /// The handler runs in a task of its own, so it is not cut off if the sender disconnects. Its lease is
    /// extended while it waits. A handler that blocks its thread for long must do so in
    /// `tokio::task::spawn_blocking`, or the event may be handled a second time.
    ///
    /// If it has not ended [`respond_within`](super::InboxBuilder::respond_within) after the delivery arrived, the
    /// receipt is [`StillRunning`](Receipt::StillRunning) and the handler goes on. Call this where the response
    /// is made: a delivery that waited in a queue of your own is late from the start.
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
        let arrived_at = delivery.arrived_at().unwrap_or_else(Instant::now);
        let respond_by = arrived_at + self.0.settings.respond_within;
        let inbox = self.clone();
        let running = self.0.running.start();
        let task = tokio::spawn(async move {
            let _running = running;
            inbox.0.purge_if_due();
            inbox.0.claim_and_run(delivery, handler).await
        });
        let receipt = match tokio::time::timeout_at(respond_by, task).await {
            Ok(Ok(receipt)) => receipt,
            Ok(Err(error)) if error.is_panic() => {
                let error = StoreError::unavailable("the store panicked");
                self.0.receipt_of_store_error("handle", &error)
            }
            // The runtime is shutting down.
            Ok(Err(_)) => Receipt::Unavailable,
            Err(_) => Receipt::StillRunning,
        };
        trace::receipt(&self.0.settings.endpoint, receipt);
        receipt
    }
}

impl Shared {
    async fn claim_and_run<F, Fut, E>(&self, delivery: VerifiedEvent, handler: F) -> Receipt
    where
        F: FnOnce(Event, Attempt) -> Fut,
        Fut: Future<Output = Result<(), E>>,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let id = delivery.id.clone();
        let held = HeldClaim {
            key: self.key(&id),
            token: Token::random(),
        };
        let fingerprint = Fingerprint::of(delivery.body());
        let attempt = match self.claim(held, Some(fingerprint)).await {
            Ok(Ok(attempt)) => Attempt::new(attempt, ATTEMPTS_OF_THE_SERVICE),
            Ok(Err(receipt)) => return receipt,
            Err(error) => return Receipt::of_store_error(&error),
        };

        let event = delivery.into_event();
        let handler = async move { handler(event, attempt).await };
        match held::run(self, held, handler).await {
            Ok(()) => self.finish_success(held).await,
            Err(failure) => self.finish_failure(held, attempt, &failure).await,
        }
    }

    async fn finish_success(&self, held: HeldClaim<'_>) -> Receipt {
        match held::complete(self, held).await {
            Ok(true) => {
                self.counters.handled.add_one();
                Receipt::Handled
            }
            Ok(false) => {
                self.lease_lost();
                Receipt::InProgress {
                    retry_after: self.settings.lease,
                }
            }
            Err(error) => Receipt::of_store_error(&error),
        }
    }

    async fn finish_failure(
        &self,
        held: HeldClaim<'_>,
        attempt: Attempt,
        failure: &Failure,
    ) -> Receipt {
        self.counters.failed.add_one();
        trace::failed(&self.settings.endpoint, attempt, failure);
        let release = Release {
            delay: std::time::Duration::ZERO,
            retention: self.settings.retention,
            reason: failure.reason(),
        };
        match self.store.release(held, release).await {
            Ok(true) => {}
            Ok(false) => self.lease_lost(),
            // The claim ends with its lease.
            Err(error) => self.store_failed("release", &error),
        }
        Receipt::Failed
    }

    pub(super) fn receipt_of_store_error(
        &self,
        operation: &'static str,
        error: &StoreError,
    ) -> Receipt {
        self.store_failed(operation, error);
        Receipt::of_store_error(error)
    }
}
