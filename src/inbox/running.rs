use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// How many handlers run.
#[derive(Debug, Default)]
pub(super) struct Running {
    count: AtomicUsize,
    ended: Notify,
}

/// A handler that runs, until it is dropped.
pub(super) struct RunningGuard(Arc<Running>);

impl Running {
    pub(super) fn start(self: &Arc<Self>) -> RunningGuard {
        self.count.fetch_add(1, Ordering::SeqCst);
        RunningGuard(Arc::clone(self))
    }

    /// Waits until no handler runs.
    pub(super) async fn idle(&self) {
        loop {
            let ended = self.ended.notified();
            if self.count.load(Ordering::SeqCst) == 0 {
                return;
            }
            ended.await;
        }
    }
}

impl Drop for RunningGuard {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.ended.notify_waiters();
        }
    }
}
