use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use super::shared::{ClockTarget, Shared};

/// A move of the clock; see [`MockServer::advance`](super::MockServer::advance).
///
/// The clock moves even if this is not awaited. Await it to wait until the clock has reached its target and all
/// deliveries due on the way have been attempted. The wait also ends when the clock is set to an earlier time, and when
/// the server is reset or dropped.
pub struct ClockMove {
    shared: Arc<Shared>,
    target: ClockTarget,
}

impl ClockMove {
    pub(super) fn new(shared: &Arc<Shared>, target: ClockTarget) -> Self {
        Self {
            shared: Arc::clone(shared),
            target,
        }
    }
}

impl IntoFuture for ClockMove {
    type Output = ();
    type IntoFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.shared.wait_for_clock(self.target).await })
    }
}

impl fmt::Debug for ClockMove {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClockMove").field(&self.target).finish()
    }
}
