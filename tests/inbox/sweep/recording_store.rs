use std::time::Duration;

use audience::inbox::{
    AcceptState, Backlog, ClaimState, EventKey, HeldClaim, NewClaim, NewDelivery, ParkedEvent,
    Release, Store, StoreError, Take, TakenEvent, Turnover,
};
use audience::webhooks::EventId;

use super::effects::{COMPLETION, Database};
use crate::deliveries::with_store_methods;

/// A store that records each completion. An effect after a completion is a double that no crash explains.
#[derive(Clone)]
pub(super) struct RecordingStore<S> {
    pub(super) inner: S,
    pub(super) database: Database,
}

macro_rules! delegate {
    ($($method:ident($($name:ident: $type:ty),*) -> $output:ty;)+) => {
        $(async fn $method(&self, $($name: $type),*) -> Result<$output, StoreError> {
            self.inner.$method($($name),*).await
        })+
    };
}

impl<S: Store> Store for RecordingStore<S> {
    async fn complete(&self, held: HeldClaim<'_>, retention: Duration) -> Result<bool, StoreError> {
        let is_held = self.inner.complete(held, retention).await?;
        if is_held {
            // If the database is down now, one completion fewer is known.
            let _ = self.database.record(held.key.id.as_str(), COMPLETION).await;
        }
        Ok(is_held)
    }

    async fn complete_and_take(
        &self,
        completed: &[HeldClaim<'_>],
        retention: Duration,
        take: Take<'_>,
    ) -> Turnover {
        let turnover = self
            .inner
            .complete_and_take(completed, retention, take)
            .await;
        for (held, is_held) in completed.iter().zip(turnover.completed.iter().flatten()) {
            if *is_held {
                let _ = self.database.record(held.key.id.as_str(), COMPLETION).await;
            }
        }
        turnover
    }

    with_store_methods! { delegate }
}
