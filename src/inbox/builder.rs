use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::dyn_store::DynStore;
use super::inbox::Inbox;
use super::metrics::Counters;
use super::purge::PurgeTimer;
use super::running::Running;
use super::settings::{InboxSettingsError, Settings};
use super::shared::Shared;
use super::store::Store;

/// Builds an [`Inbox`].
pub struct InboxBuilder {
    store: Arc<dyn DynStore>,
    settings: Settings,
}

impl Inbox {
    /// Starts building an inbox that remembers its events in this store.
    pub fn builder(store: impl Store) -> InboxBuilder {
        InboxBuilder {
            store: Arc::new(store),
            settings: Settings::default(),
        }
    }
}

impl InboxBuilder {
    /// Sets the name of the endpoint whose events these are. Default: `main`.
    ///
    /// Two endpoints that receive the same events handle each event once each. All receivers of one endpoint
    /// use the same name.
    #[must_use]
    pub fn endpoint(mut self, name: impl Into<String>) -> Self {
        self.settings.endpoint = name.into();
        self
    }

    /// Sets how long a claim lasts if it is not extended, 1 second to 1 hour. Default: 60 s.
    ///
    /// It is extended while its handler runs. If the process dies, the event may be claimed again after this
    /// time.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// Sets how long a done event is remembered, at least 6 hours. Default: 72 h.
    ///
    /// The service retries for about five hours (interface section 6.5). Deliveries that you replay
    /// from the dashboard after this time are handled again.
    #[must_use]
    pub fn retention(mut self, retention: Duration) -> Self {
        self.settings.retention = retention;
        self
    }

    /// Sets how long after the arrival of a delivery to respond at the latest, less than 10 s. Default: 8 s.
    #[must_use]
    pub fn respond_within(mut self, limit: Duration) -> Self {
        self.settings.respond_within = limit;
        self
    }

    /// Builds the inbox.
    ///
    /// # Errors
    ///
    /// Returns an [`InboxSettingsError`] if a setting is out of its range.
    pub fn build(self) -> Result<Inbox, InboxSettingsError> {
        self.settings.check()?;
        Ok(Inbox(Arc::new(Shared {
            store: self.store,
            settings: self.settings,
            counters: Counters::default(),
            running: Arc::new(Running::default()),
            purge_timer: PurgeTimer::start(),
            accepted: Notify::new(),
        })))
    }
}

impl fmt::Debug for InboxBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InboxBuilder")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
