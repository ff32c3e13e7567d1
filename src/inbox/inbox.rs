use std::fmt;
use std::sync::Arc;

use super::metrics::InboxMetrics;
use super::shared::Shared;

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
/// # Ok::<(), audience::inbox::InboxSettingsError>(())
/// ```
#[derive(Clone)]
pub struct Inbox(pub(super) Arc<Shared>);

impl Inbox {
    /// Returns the name of the endpoint.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.0.settings.endpoint
    }

    /// Returns what this inbox has counted since it was built, in this process.
    #[must_use]
    pub fn metrics(&self) -> InboxMetrics {
        self.0.counters.snapshot()
    }

    /// Waits until no handler runs that [`handle`](Self::handle) started.
    ///
    /// A handler that was started by [`handle`](Self::handle) goes on when its connection is closed. Before a
    /// program exits, stop accepting connections, then call this. A [`Worker`](super::Worker) waits for its
    /// handlers itself.
    pub async fn idle(&self) {
        self.0.running.idle().await;
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
