//! Which journals this process writes to.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

static CLAIMED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// How long to wait for a journal. An import that was dropped needs a moment to let go of it.
const PATIENCE: Duration = Duration::from_secs(5);

const INTERVAL: Duration = Duration::from_millis(2);

/// The right of one import to write to a journal. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Claim(PathBuf);

impl Claim {
    /// Waits until no other import of this process writes to the file. `None` if that takes too long.
    pub(super) async fn take(path: &Path) -> Option<Self> {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(claim) = Self::try_take(path) {
                return Some(claim);
            }
            if Instant::now() >= end {
                return None;
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    fn try_take(path: &Path) -> Option<Self> {
        let mut claimed = CLAIMED.lock().unwrap_or_else(PoisonError::into_inner);
        claimed
            .insert(path.to_owned())
            .then(|| Self(path.to_owned()))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut claimed = CLAIMED.lock().unwrap_or_else(PoisonError::into_inner);
        claimed.remove(&self.0);
    }
}
