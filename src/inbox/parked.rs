use super::error::InboxError;
use super::inbox::Inbox;
use super::store::{Backlog, ParkedEvent};
use crate::webhooks::EventId;

/// How many parked events one call returns.
const PAGE: usize = 100;

impl Inbox {
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
    /// An inbox does this by itself every minute while it receives events. Call it in a process that lives
    /// shorter.
    ///
    /// # Errors
    ///
    /// Returns [`InboxError::Store`] if the store failed. Some entries may have been deleted.
    pub async fn purge(&self) -> Result<u64, InboxError> {
        Ok(self.0.purge().await?)
    }

    async fn parked_page(&self, after: Option<&EventId>) -> Result<Vec<ParkedEvent>, InboxError> {
        let shared = &self.0;
        let parked = shared.store.parked(self.endpoint(), after, PAGE).await;
        Ok(parked.inspect_err(|error| shared.store_failed("parked", error))?)
    }
}
