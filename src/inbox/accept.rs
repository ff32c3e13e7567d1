use tokio::time::Instant;

use super::error::StoreError;
use super::inbox::Inbox;
use super::receipt::Receipt;
use super::store::NewDelivery;
use super::token::Fingerprint;
use super::trace;
use crate::webhooks::VerifiedEvent;

impl Inbox {
    /// Stores a delivery for a [worker](Self::worker), and returns what to respond.
    ///
    /// The body is stored as it was signed. Once it is stored, the service need not deliver the event again,
    /// whatever becomes of this process. The body is deleted when the event was handled.
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
        let shared = &self.0;
        let arrived_at = delivery.arrived_at().unwrap_or_else(Instant::now);
        let accepted = shared.store.accept(NewDelivery {
            key: shared.key(&delivery.id),
            body: delivery.body(),
            fingerprint: Fingerprint::of(delivery.body()),
        });
        shared.purge_if_due();
        let respond_by = arrived_at + shared.settings.respond_within;
        let receipt = match tokio::time::timeout_at(respond_by, accepted).await {
            Ok(Ok(state)) => shared.counted(Receipt::of_accept(state)),
            Ok(Err(error)) => shared.receipt_of_store_error("accept", &error),
            Err(_) => {
                let error = StoreError::unavailable("it did not respond in time");
                shared.receipt_of_store_error("accept", &error)
            }
        };
        if receipt == Receipt::Accepted {
            shared.accepted.notify_one();
        }
        trace::receipt(&shared.settings.endpoint, receipt);
        receipt
    }
}
