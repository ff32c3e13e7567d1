//! An attempt that is being made.

use std::time::Duration;

use bytes::Bytes;

use super::delivery_fault::DeliveryFaultKind;
use super::post::Target;
use super::scheduled_attempt::ScheduledAttempt;
use super::signing::SigningClock;

/// An attempt that has started, with everything that is needed to make it.
#[derive(Debug)]
pub(in crate::mock) struct StartedAttempt {
    pub(super) scheduled: ScheduledAttempt,
    pub(super) target: Target,
    pub(super) endpoint: String,
    pub(super) event_type: String,
    pub(super) body: Bytes,
    /// When the attempt started, by the server's clock.
    pub(super) at: i64,
    /// The number of the attempt for this event and endpoint.
    pub(super) attempt: u32,
    pub(super) log_number: u64,
    pub(super) fault: Option<DeliveryFaultKind>,
    pub(super) signing_clock: SigningClock,
}

impl StartedAttempt {
    /// Posts the event. Returns the status of the response, or why there is none within `timeout`.
    pub(in crate::mock) async fn post(&self, timeout: Duration) -> Result<u16, String> {
        let at = self.signing_clock.time(self.at);
        let fault = match &self.fault {
            Some(DeliveryFaultKind::Signing(fault)) => Some(fault),
            _ => None,
        };
        self.target
            .post(&self.event_type, at, self.body.clone(), fault, timeout)
            .await
    }
}
