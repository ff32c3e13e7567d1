//! An attempt that is being made.

use std::time::Duration;

use bytes::Bytes;

use super::fault::DeliveryFault;
use super::post::Target;
use super::scheduled_attempt::ScheduledAttempt;
use super::signing::SigningClock;

/// How an attempt ended.
#[derive(Debug)]
pub(in crate::mock) struct AttemptOutcome {
    /// The status of the response, or the reason that there is none.
    pub(super) response: Result<u16, String>,
    /// The reason that a receiver refuses what was sent, if its signature is invalid or too old.
    pub(super) signature_problem: Option<String>,
}

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
    pub(super) fault: Option<DeliveryFault>,
    pub(super) signing_clock: SigningClock,
}

impl StartedAttempt {
    /// Signs and posts the event. The receiver has `timeout` for a complete response.
    pub(in crate::mock) async fn post(&self, timeout: Duration) -> AttemptOutcome {
        let at = self.signing_clock.time(self.at);
        let delivery =
            self.target
                .sign(&self.event_type, at, self.body.clone(), self.fault.as_ref());
        AttemptOutcome {
            signature_problem: self.target.signature_problem(&delivery, at),
            response: self.target.post(delivery, timeout).await,
        }
    }
}
