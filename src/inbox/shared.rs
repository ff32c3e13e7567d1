use std::sync::Arc;

use tokio::sync::Notify;

use super::dyn_store::DynStore;
use super::error::StoreError;
use super::metrics::Counters;
use super::purge::{PurgeTimer, purge};
use super::running::Running;
use super::settings::Settings;
use super::store::EventKey;
use super::trace;
use crate::webhooks::EventId;

/// What the clones of an inbox share.
pub(super) struct Shared {
    pub(super) store: Arc<dyn DynStore>,
    pub(super) settings: Settings,
    pub(super) counters: Counters,
    pub(super) running: Arc<Running>,
    pub(super) purge_timer: PurgeTimer,
    /// Wakes the workers of this process when an event was accepted.
    pub(super) accepted: Notify,
}

impl Shared {
    pub(super) fn key<'a>(&'a self, id: &'a EventId) -> EventKey<'a> {
        EventKey {
            endpoint: &self.settings.endpoint,
            id,
        }
    }

    /// Deletes forgotten entries now and then, in a task of its own.
    pub(super) fn purge_if_due(self: &Arc<Self>) {
        if self.purge_timer.is_due() {
            let shared = Arc::clone(self);
            tokio::spawn(async move { shared.purge().await });
        }
    }

    /// Deletes all forgotten entries, in portions. Returns how many.
    pub(super) async fn purge(&self) -> Result<u64, StoreError> {
        let purged = purge(&*self.store).await;
        purged.inspect_err(|error| self.store_failed("purge", error))
    }

    /// Claims an event. Returns the number of the attempt if the claim is the caller's, else the counted receipt.
    pub(super) async fn claim(
        &self,
        held: HeldClaim<'_>,
        fingerprint: Option<Fingerprint>,
    ) -> Result<Result<u32, Receipt>, StoreError> {
        let claimed = self.store.claim(NewClaim {
            key: held.key,
            token: held.token,
            lease: self.settings.lease,
            retention: self.settings.retention,
            fingerprint,
        });
        let claimed = claimed.await;
        let state = claimed.inspect_err(|error| self.store_failed("claim", error))?;
        Ok(Receipt::of_claim(state).map_err(|receipt| self.counted(receipt)))
    }

    /// Counts the receipt of a delivery for which no handler was run.
    pub(super) fn counted(&self, receipt: Receipt) -> Receipt {
        match receipt {
            Receipt::Accepted => self.counters.accepted.add_one(),
            Receipt::Repeated => self.counters.repeated.add_one(),
            Receipt::InProgress { .. } => self.counters.in_progress.add_one(),
            Receipt::Conflict => {
                self.counters.conflicts.add_one();
                trace::conflict(&self.settings.endpoint);
            }
            _ => {}
        }
        receipt
    }

    /// Counts and reports a handler whose lease was lost.
    pub(super) fn lease_lost(&self) {
        self.counters.leases_lost.add_one();
        trace::lease_lost(&self.settings.endpoint);
    }

    /// Counts and reports a failure of the store.
    pub(super) fn store_failed(&self, operation: &'static str, error: &StoreError) {
        self.counters.store_errors.add_one();
        trace::store_failed(operation, error);
    }
}
