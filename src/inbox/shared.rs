use std::sync::Arc;

use tokio::sync::Notify;

use super::dyn_store::DynStore;
use super::metrics::Counters;
use super::purge::PurgeTimer;
use super::running::Running;
use super::settings::Settings;
use super::store::EventKey;
use crate::webhooks::EventId;

/// What the clones of an inbox share.
pub(super) struct Shared {
    pub(super) store: Arc<dyn DynStore>,
    pub(super) settings: Settings,
    pub(super) counters: Counters,
    pub(super) running: Arc<Running>,
    pub(super) purge: PurgeTimer,
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
    pub(super) fn purge_if_due(&self) {
        if self.purge.is_due() {
            tokio::spawn(super::purge::purge(Arc::clone(&self.store)));
        }
    }
}
