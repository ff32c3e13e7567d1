use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::dyn_store::DynStore;
use super::error::StoreError;

/// How often each process deletes forgotten entries.
const INTERVAL: Duration = Duration::from_secs(60);
/// How many entries are deleted in one step.
const PORTION: usize = 500;

/// Tells when to delete forgotten entries.
pub(super) struct PurgeTimer {
    start: Instant,
    /// Seconds after `start`.
    next: AtomicU64,
}

impl PurgeTimer {
    pub(super) fn start() -> Self {
        Self {
            start: Instant::now(),
            next: AtomicU64::new(INTERVAL.as_secs()),
        }
    }

    /// Returns `true` once per interval.
    pub(super) fn is_due(&self) -> bool {
        let now = self.start.elapsed().as_secs();
        let next = self.next.load(Ordering::Relaxed);
        let following = now.saturating_add(INTERVAL.as_secs());
        next <= now
            && self
                .next
                .compare_exchange(next, following, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}

/// Deletes all forgotten entries, in portions. Returns how many.
pub(super) async fn purge(store: &dyn DynStore) -> Result<u64, StoreError> {
    let mut purged = 0;
    loop {
        let portion = store.purge(PORTION).await?;
        purged += portion as u64;
        if portion < PORTION {
            return Ok(purged);
        }
    }
}
