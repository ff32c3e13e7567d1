//! An attempt to deliver an event: how it is made, and the log of those that were made.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use super::endpoint::{SigningClock, Target};
use super::fault::DeliveryFault;
use super::queue::ScheduledAttempt;
use crate::Timestamp;

/// An attempt that has started, with everything that is needed to make it.
#[derive(Debug)]
pub(in crate::mock) struct StartedAttempt {
    pub(super) scheduled: ScheduledAttempt,
    pub(super) target: Target,
    pub(super) event_type: String,
    pub(super) body: Bytes,
    pub(super) log_number: u64,
    pub(super) fault: Option<DeliveryFault>,
    pub(super) signing_clock: SigningClock,
    /// What the log will hold of the attempt. Its result is missing while it is being made.
    pub(super) record: DeliveryAttempt,
}

impl StartedAttempt {
    /// Signs and posts the event, and records the response. The receiver has `timeout` for a complete response.
    pub(in crate::mock) async fn post(&mut self, timeout: Duration) {
        let at = self.signing_clock.time(self.record.at.as_unix());
        let body = self.body.clone();
        let (signature_problem, response) = self
            .target
            .deliver(&self.event_type, at, body, self.fault.as_ref(), timeout)
            .await;
        self.record.signature_problem = signature_problem;
        match response {
            Ok(status) => self.record.status = Some(status),
            Err(error) => self.record.error = Some(error),
        }
    }
}

/// Attempts kept. The oldest is dropped first.
const MAX_ATTEMPTS_KEPT: usize = 10_000;

/// A finished attempt to deliver one event to one endpoint.
///
/// [`MockServer::attempts`](super::super::MockServer::attempts) returns them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DeliveryAttempt {
    /// The `id` of the event.
    pub event_id: String,
    /// The name of the endpoint: its URL, or the name given to the control plane.
    pub endpoint: String,
    /// The number of the attempt for this event and endpoint, counted from 1. Redeliveries count too.
    pub attempt: u32,
    /// When the attempt started, by the server's clock.
    pub at: Timestamp,
    /// The status of the response. `None` if no complete response arrived in time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The reason that no complete response arrived, as text. `None` if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The name of the [`DeliveryFault`](super::super::DeliveryFault) that affected the attempt, such as `stale`.
    /// `None` if the attempt was genuine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<&'static str>,
    /// The reason that a receiver refuses the delivery, if its signature is invalid or too old. `None` if the signature
    /// is valid for the endpoint's secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signature_problem: Option<String>,
    /// When the next attempt is due. `None` if there is no next attempt.
    pub next_at: Option<Timestamp>,
}

impl DeliveryAttempt {
    /// Returns whether the receiver accepted the event: it sent a complete 2xx response in time.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.status
            .is_some_and(|status| (200..300).contains(&status))
    }
}

/// The finished attempts, ordered by when they were started.
#[derive(Debug, Default)]
pub(super) struct AttemptLog {
    attempts: BTreeMap<u64, DeliveryAttempt>,
    last_number: u64,
}

impl AttemptLog {
    /// Returns the number under which a starting attempt is [recorded](Self::record) when it ends.
    pub(super) fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Adds a finished attempt. Drops the oldest if there are too many.
    pub(super) fn record(&mut self, number: u64, attempt: DeliveryAttempt) {
        self.attempts.insert(number, attempt);
        if self.attempts.len() > MAX_ATTEMPTS_KEPT {
            self.attempts.pop_first();
        }
    }

    /// Returns the attempts, in the order they were started, without copying them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &DeliveryAttempt> {
        self.attempts.values()
    }

    /// Returns how many attempts are kept.
    pub(super) fn len(&self) -> usize {
        self.attempts.len()
    }

    /// Returns the attempts, in the order they were started.
    pub(super) fn to_vec(&self) -> Vec<DeliveryAttempt> {
        self.attempts.values().cloned().collect()
    }
}
