//! The log of finished delivery attempts.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::Timestamp;

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
        self.status.is_some_and(is_success)
    }
}

/// Returns whether a status is 2xx.
pub(super) fn is_success(status: u16) -> bool {
    (200..300).contains(&status)
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
