use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Sleep;

use super::rejection::Rejection;

/// Ends the reading of a body. It starts when its reader first waits, or receives an
/// empty chunk.
pub(super) struct BodyTimer {
    timeout: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl BodyTimer {
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            sleep: None,
        }
    }

    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Rejection> {
        // Tokio's timers need its runtime, and a clock that this target does not have.
        let no_clock = cfg!(all(target_family = "wasm", target_os = "unknown"));
        if no_clock || tokio::runtime::Handle::try_current().is_err() {
            return Poll::Pending;
        }
        let timeout = self.timeout;
        let sleep = self
            .sleep
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        ready!(sleep.as_mut().poll(context));
        Poll::Ready(Rejection::BodyTimeout { timeout })
    }
}
