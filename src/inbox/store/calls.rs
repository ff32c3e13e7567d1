//! What a store is asked.

use std::fmt;
use std::time::Duration;

use crate::inbox::token::{Fingerprint, Token};
use crate::webhooks::EventId;

/// The name of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventKey<'a> {
    /// The endpoint that received the event: 1 to 255 bytes without control characters.
    pub endpoint: &'a str,
    /// The id of the event. Two ids are equal if their bytes are: case and Unicode forms count.
    pub id: &'a EventId,
}

/// A claim to be made.
#[derive(Clone, Copy, Debug)]
pub struct NewClaim<'a> {
    /// The event to claim.
    pub key: EventKey<'a>,
    /// The token of the new claim.
    pub token: Token,
    /// How long the claim lasts.
    pub lease: Duration,
    /// How long an entry is remembered that is neither claimed again nor completed, from the end of the lease on.
    pub retention: Duration,
    /// The fingerprint of the body, if the caller has the body.
    pub fingerprint: Option<Fingerprint>,
}

/// A claim that was made.
#[derive(Clone, Copy, Debug)]
pub struct HeldClaim<'a> {
    /// The claimed event.
    pub key: EventKey<'a>,
    /// The token of the claim.
    pub token: Token,
}

/// The end of a claim without success.
#[derive(Clone, Copy, Debug)]
pub struct Release<'a> {
    /// How long the event may not be claimed. Zero: it may be claimed at once.
    pub delay: Duration,
    /// How long an entry without a body is remembered.
    pub retention: Duration,
    /// Why the attempt failed, for a body that is kept.
    pub reason: &'a str,
}

/// An event to be stored for a worker.
#[derive(Clone, Copy)]
pub struct NewDelivery<'a> {
    /// The event.
    pub key: EventKey<'a>,
    /// The body, as it was signed.
    pub body: &'a [u8],
    /// The fingerprint of the body.
    pub fingerprint: Fingerprint,
}

impl fmt::Debug for NewDelivery<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewDelivery")
            .field("key", &self.key)
            .field("body_length", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// A request for accepted events.
#[derive(Clone, Copy, Debug)]
pub struct Take<'a> {
    /// The endpoint whose events are taken.
    pub endpoint: &'a str,
    /// The token of all claims that are made.
    pub token: Token,
    /// How long each claim lasts.
    pub lease: Duration,
    /// The most events to take.
    pub limit: usize,
}
