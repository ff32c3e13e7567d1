//! What a store responds.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use crate::webhooks::EventId;

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimState {
    /// The claim is the caller's.
    Fresh {
        /// How many claims of this event were made, this one included.
        attempt: u32,
    },
    /// Another claim lasts, or the event waits for its next attempt.
    InProgress {
        /// How long the claim or the wait lasts at the most if it is not extended.
        remaining: Duration,
    },
    /// The event is done.
    Done,
    /// The event is parked.
    Parked,
    /// The event is stored with another fingerprint. Nothing changed.
    Conflict,
}

/// What became of a delivery to be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptState {
    /// It was stored.
    Accepted,
    /// It was stored before: it waits, is being handled, is done, or is parked.
    Repeated,
    /// The event has no stored body and is claimed. Nothing changed.
    InProgress {
        /// How long the claim lasts at the most if it is not extended.
        remaining: Duration,
    },
    /// The event is stored with another fingerprint. Nothing changed.
    Conflict,
}

/// An accepted event that a worker claimed.
#[derive(Clone)]
pub struct TakenEvent {
    /// The id of the event.
    pub id: EventId,
    /// The stored body.
    pub body: Bytes,
    /// How many claims of this event were made, this one included.
    pub attempt: u32,
    /// How long ago it was due.
    pub overdue: Duration,
}

impl fmt::Debug for TakenEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TakenEvent")
            .field("id", &self.id)
            .field("body_length", &self.body.len())
            .field("attempt", &self.attempt)
            .field("overdue", &self.overdue)
            .finish()
    }
}

/// An event that could not be handled, kept until it is replayed or discarded.
#[derive(Clone)]
#[non_exhaustive]
pub struct ParkedEvent {
    /// The id of the event.
    pub id: EventId,
    /// The stored body, personal data included. `None` if the event was claimed without being accepted.
    pub body: Option<Bytes>,
    /// How many attempts were made.
    pub attempts: u32,
    /// Why it was parked.
    pub reason: String,
    /// How long it has been parked.
    pub parked_for: Duration,
}

impl ParkedEvent {
    /// Creates a parked event, for a store to return.
    #[must_use]
    pub fn new(
        id: EventId,
        body: Option<Bytes>,
        attempts: u32,
        reason: impl Into<String>,
        parked_for: Duration,
    ) -> Self {
        Self {
            id,
            body,
            attempts,
            reason: reason.into(),
            parked_for,
        }
    }
}

impl fmt::Debug for ParkedEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParkedEvent")
            .field("id", &self.id)
            .field("body_length", &self.body.as_ref().map(Bytes::len))
            .field("attempts", &self.attempts)
            .field("reason", &self.reason)
            .field("parked_for", &self.parked_for)
            .finish()
    }
}

/// How many accepted events of an endpoint are not done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backlog {
    /// Events that wait for a worker, or for their next attempt.
    pub waiting: u64,
    /// Events that a worker has claimed.
    pub in_progress: u64,
    /// Events that are parked.
    pub parked: u64,
    /// How long the event that is due longest has been due. Zero if none is.
    pub lag: Duration,
}

impl Backlog {
    /// Creates a backlog, for a store to return.
    #[must_use]
    pub fn new(waiting: u64, in_progress: u64, parked: u64, lag: Duration) -> Self {
        Self {
            waiting,
            in_progress,
            parked,
            lag,
        }
    }
}
