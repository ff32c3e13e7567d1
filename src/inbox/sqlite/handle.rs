use std::error::Error;

use rusqlite::Transaction;
use tokio::time::Instant;

use super::store::SqliteStore;
use super::transaction::TransactionError;
use crate::inbox::error::Failure;
use crate::inbox::receipt::Receipt;
use crate::inbox::shared::Settings;
use crate::inbox::trace;
use crate::webhooks::{Event, VerifiedEvent};

impl SqliteStore {
    /// Claims an event and runs the handler in one transaction, and returns what to respond. What the handler
    /// writes is written **exactly once**, whatever crashes when.
    ///
    /// The handler runs in the store's thread, so it should be short: SQL, and nothing that waits. If it
    /// returns an error or panics, what it wrote and the claim are undone, the receipt is
    /// [`Failed`](Receipt::Failed), and the service retries. The id is remembered for 72 hours.
    ///
    /// Create your own tables in [`transaction`](Self::transaction), or on a connection of your own to the same
    /// file. With axum and actix-web, the receipt is the response.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    ///
    /// # Example: an endpoint that stops mail to addresses that bounced
    ///
    /// ```
    /// use audience::inbox::{Receipt, SqliteStore, rusqlite};
    /// use audience::webhooks::{EventData, MailEvent, VerifiedEvent};
    ///
    /// async fn receive(store: &SqliteStore, delivery: VerifiedEvent) -> Receipt {
    ///     store
    ///         .handle_in("main", delivery, |transaction, event| {
    ///             if event.mail().is_some_and(MailEvent::is_permanent_bounce)
    ///                 && let Some(mail) = event.mail()
    ///             {
    ///                 transaction.execute("INSERT OR IGNORE INTO suppressed VALUES (?1)", [&mail.to])?;
    ///             }
    ///             Ok::<_, rusqlite::Error>(())
    ///         })
    ///         .await
    /// }
    /// ```
    pub async fn handle_in<E>(
        &self,
        endpoint: &str,
        delivery: VerifiedEvent,
        handler: impl FnOnce(&mut Transaction<'_>, Event) -> Result<(), E> + Send + 'static,
    ) -> Receipt
    where
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let arrived_at = delivery.arrived_at().unwrap_or_else(Instant::now);
        let respond_by = arrived_at + Settings::default().respond_within;
        let name: Box<str> = endpoint.into();
        let store = self.clone();
        let handled = self.run_transaction(move |transaction| {
            let state = store.claim_done(transaction, &name, (&delivery).into())?;
            match Receipt::of_claim(state) {
                Ok(_) => handler(transaction, delivery.into_event())
                    .map(|()| Receipt::Handled)
                    .map_err(|error| TransactionError::RolledBack(error.into())),
                Err(receipt) => Ok(receipt),
            }
        });
        let receipt = match tokio::time::timeout_at(respond_by, handled).await {
            Ok(Ok(receipt)) => receipt,
            Ok(Err(error)) => receipt_of(endpoint, &error),
            Err(_) => Receipt::StillRunning,
        };
        if receipt == Receipt::Conflict {
            trace::conflict(endpoint);
        }
        trace::receipt(endpoint, receipt);
        receipt
    }
}

fn receipt_of(endpoint: &str, error: &TransactionError) -> Receipt {
    match error {
        TransactionError::RolledBack(error) => {
            trace::rolled_back(endpoint, &Failure::of_error(error.as_ref()));
            Receipt::Failed
        }
        TransactionError::Store(error) => {
            trace::store_failed("handle_in", error);
            Receipt::of_store_error(error)
        }
    }
}
