use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use super::error::{InboxError, StoreError};
use super::receipt::Receipt;
use super::shared::Shared;
use super::store::{Fingerprint, HeldClaim, Release, Token};
use crate::webhooks::{EventId, VerifiedEvent};

/// The result of [`Inbox::claim`](super::Inbox::claim).
#[derive(Debug)]
pub enum Claim {
    /// The event is the caller's to handle, until the lease ends.
    Fresh(Lease),
    /// Another attempt is handling the event. Respond with 503, so that the service delivers it again.
    InProgress {
        /// When the claim ends if it is not extended, by this machine's clock.
        until: SystemTime,
    },
    /// The event was handled before, or is parked. Respond with a success.
    Done,
}

/// The right to handle an event, for a time.
///
/// Dropping it does not end the claim: it expires, as it would if the process died.
///
/// # Example: renew the lease between two steps
///
/// ```
/// use audience::inbox::{Claim, Inbox, MemoryStore};
/// use audience::webhooks::EventId;
///
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// let inbox = Inbox::builder(MemoryStore::new()).build()?;
/// let id = EventId::try_from("evt_1")?;
///
/// if let Claim::Fresh(lease) = inbox.claim(&id).await? {
///     println!("first step of {}, attempt {}", lease.id(), lease.attempt());
///     lease.extend().await?;
///     println!("second step");
///     lease.complete().await?;
/// }
///
/// assert!(matches!(inbox.claim(&id).await?, Claim::Done));
/// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Lease {
    shared: Arc<Shared>,
    id: EventId,
    token: Token,
    attempt: u32,
    /// Whether its end, by completion or by loss, is in the metrics.
    is_counted: AtomicBool,
}

/// The event to claim. An [`EventId`] claims by the id alone; a [`VerifiedEvent`] also detects a duplicate of the id
/// with another body.
#[derive(Clone, Copy, Debug)]
pub struct ClaimTarget<'a> {
    pub(super) id: &'a EventId,
    pub(super) fingerprint: Option<Fingerprint>,
}

impl<'a> From<&'a EventId> for ClaimTarget<'a> {
    fn from(id: &'a EventId) -> Self {
        Self {
            id,
            fingerprint: None,
        }
    }
}

impl<'a> From<&'a VerifiedEvent> for ClaimTarget<'a> {
    fn from(delivery: &'a VerifiedEvent) -> Self {
        Self {
            id: &delivery.id,
            fingerprint: Some(Fingerprint::of(delivery.body())),
        }
    }
}

pub(super) async fn claim(
    shared: &Arc<Shared>,
    target: ClaimTarget<'_>,
) -> Result<Claim, InboxError> {
    let ClaimTarget { id, fingerprint } = target;
    shared.purge_if_due();
    let held = HeldClaim {
        key: shared.key(id),
        token: Token::random(),
    };
    match shared.claim(held, fingerprint).await? {
        Ok(attempt) => Ok(Claim::Fresh(Lease {
            shared: Arc::clone(shared),
            id: id.clone(),
            token: held.token,
            attempt,
            is_counted: AtomicBool::new(false),
        })),
        Err(Receipt::InProgress { retry_after }) => {
            let now = SystemTime::now();
            let until = now.checked_add(retry_after).unwrap_or(now);
            Ok(Claim::InProgress { until })
        }
        Err(Receipt::Conflict) => Err(InboxError::Conflict),
        Err(_) => Ok(Claim::Done),
    }
}

impl Lease {
    /// Returns the id of the event.
    #[must_use]
    pub fn id(&self) -> &EventId {
        &self.id
    }

    /// Returns which claim of the event this is. The first is 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Marks the event as done. Later deliveries are duplicates.
    ///
    /// Calling it again has no effect.
    ///
    /// # Errors
    ///
    /// - [`InboxError::LeaseLost`] if the claim was released, or the lease ended and the event was claimed or
    ///   accepted since.
    /// - [`InboxError::Store`] if the store failed. Call it again; the lease may still be held.
    pub async fn complete(&self) -> Result<(), InboxError> {
        let shared = &self.shared;
        let is_held = shared
            .store
            .complete(self.held(), shared.settings.retention)
            .await;
        self.held_or_lost("complete", is_held)?;
        if self.counts_now() {
            shared.count(|metrics| metrics.handled += 1);
        }
        Ok(())
    }

    /// Ends the claim without success: the event may be claimed again immediately.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`complete`](Self::complete).
    pub async fn release(&self) -> Result<(), InboxError> {
        let release = Release {
            delay: Duration::ZERO,
            retention: self.shared.settings.retention,
            reason: "released",
        };
        let is_held = self.shared.store.release(self.held(), release).await;
        self.held_or_lost("release", is_held)
    }

    /// Renews the lease: it ends one [lease](super::InboxBuilder::lease) from now.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`complete`](Self::complete).
    pub async fn extend(&self) -> Result<(), InboxError> {
        let lease = self.shared.settings.lease;
        let is_held = self.shared.store.extend(self.held(), lease).await;
        self.held_or_lost("extend", is_held)
    }

    fn held(&self) -> HeldClaim<'_> {
        HeldClaim {
            key: self.shared.key(&self.id),
            token: self.token,
        }
    }

    fn held_or_lost(
        &self,
        operation: &'static str,
        is_held: Result<bool, StoreError>,
    ) -> Result<(), InboxError> {
        let is_held = is_held.inspect_err(|error| self.shared.store_failed(operation, error))?;
        if is_held {
            return Ok(());
        }
        if self.counts_now() {
            self.shared.lease_lost();
        }
        Err(InboxError::LeaseLost)
    }

    /// Returns `true` the first time.
    fn counts_now(&self) -> bool {
        !self.is_counted.swap(true, Ordering::Relaxed)
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("id", &self.id)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}
