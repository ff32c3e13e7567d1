//! What a verifier returns: a delivery with its bytes, and its event.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;

use super::error::VerifyError;
use super::event::Event;
use super::headers::event_header;
use super::trace;
use crate::Timestamp;

/// A delivery whose signature and age were verified, with its JSON not yet parsed.
///
/// # Example: store the bytes, then read the event
///
/// ```
/// use std::time::SystemTime;
/// use audience::webhooks::{EventType, Signer, Verifier};
///
/// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
/// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?.sign(&EventType::Sent, SystemTime::now(), body);
/// let verifier = Verifier::builder().secret("2026", "6Jm0nFq2pXvZk4Tt").build()?;
/// let delivery = verifier.authenticate(&headers, body)?;
///
/// assert_eq!(delivery.body(), body);
/// assert_eq!(delivery.secret_name(), "2026");
/// assert!(delivery.event_header_agrees());
/// let event = delivery.event()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct VerifiedDelivery<'a> {
    pub(super) body: &'a [u8],
    pub(super) secret_name: &'a str,
    pub(super) timestamp: u64,
    /// The time of the verifier's clock, in Unix seconds.
    pub(super) now: u64,
    pub(super) headers: Option<&'a HeaderMap>,
}

impl<'a> VerifiedDelivery<'a> {
    /// Returns the bytes that were signed.
    #[must_use]
    pub fn body(&self) -> &'a [u8] {
        self.body
    }

    /// Returns the name of the secret that matched.
    ///
    /// After a rotation, remove the old secret once its name no longer appears here.
    #[must_use]
    pub fn secret_name(&self) -> &'a str {
        self.secret_name
    }

    /// Returns when this attempt was signed.
    ///
    /// Each attempt has its own timestamp, so do not deduplicate on it (interface section 6.5).
    #[must_use]
    pub fn timestamp(&self) -> Timestamp {
        Timestamp::from_unix(i64::try_from(self.timestamp).unwrap_or(i64::MAX))
    }

    /// Returns the difference between the timestamp and the verifier's clock, in whole seconds.
    ///
    /// [`is_early`](Self::is_early) returns its direction.
    #[must_use]
    pub fn skew(&self) -> Duration {
        Duration::from_secs(self.now.abs_diff(self.timestamp))
    }

    /// Returns whether the timestamp is ahead of the verifier's clock.
    #[must_use]
    pub fn is_early(&self) -> bool {
        self.timestamp > self.now
    }

    /// Returns whether the unsigned `webhook-event` header agrees with the body's `type`.
    ///
    /// It is `false` if the header is missing or repeated, or if the body is not an event. Use it
    /// only to notice changes in transit: the `type` in the signed body is the one that counts.
    #[must_use]
    pub fn event_header_agrees(&self) -> bool {
        self.headers.and_then(event_header).is_some_and(|header| {
            Event::from_unverified_json(self.body)
                .is_ok_and(|event| event.event_type().as_str().as_bytes() == header)
        })
    }

    /// Parses the event.
    ///
    /// # Errors
    ///
    /// Returns [`VerifyError::InvalidEnvelope`] if the body is not an event envelope (interface
    /// section 6.2).
    pub fn event(&self) -> Result<Event, VerifyError> {
        Event::from_unverified_json(self.body)
            .map_err(|problem| VerifyError::InvalidEnvelope { problem })
            .inspect_err(trace::refused)
    }
}

impl fmt::Debug for VerifiedDelivery<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerifiedDelivery")
            .field("body_length", &self.body.len())
            .field("secret_name", &self.secret_name)
            .field("timestamp", &self.timestamp)
            .field("skew", &self.skew())
            .field("is_early", &self.is_early())
            .finish_non_exhaustive()
    }
}

/// A verified delivery: its event, and the bytes that were signed.
///
/// Only [`Verifier::verify_event`](super::Verifier::verify_event), the extractors of axum and actix and the
/// layer of tower create it, so it is always genuine.
///
/// # The event
///
/// It dereferences to its [`Event`]; [`into_event`](Self::into_event) returns the event by value. It is
/// cheap to clone.
///
/// # Example: store the raw delivery, pass the event on
///
/// ```
/// use audience::webhooks::{Event, VerifiedEvent};
/// # fn store(_: &str, _: &[u8]) {}
/// # fn pass_on(_: Event) {}
///
/// // With the feature `axum` or `actix`, a handler takes this argument.
/// async fn hook(delivery: VerifiedEvent) {
///     store(delivery.id.as_str(), delivery.body());
///     pass_on(delivery.into_event());
/// }
/// ```
#[derive(Clone)]
pub struct VerifiedEvent {
    event: Arc<Event>,
    body: Bytes,
    secret_name: Arc<str>,
    #[cfg_attr(
        not(feature = "inbox"),
        expect(dead_code, reason = "only the inbox reads it")
    )]
    arrival: Arrival,
}

impl VerifiedEvent {
    pub(super) fn new(event: Event, body: Bytes, secret_name: Arc<str>, arrival: Arrival) -> Self {
        Self {
            event: Arc::new(event),
            body,
            secret_name,
            arrival,
        }
    }

    /// Returns the event only, to match on it or to send it elsewhere. Clones the event if a clone of
    /// this delivery still exists.
    #[must_use]
    pub fn into_event(self) -> Event {
        Arc::unwrap_or_clone(self.event)
    }

    /// Returns the bytes that were signed, to store the raw delivery. Cheap to clone.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// Returns the name of the secret that matched.
    ///
    /// After a rotation, remove the old secret once its name no longer appears here.
    #[must_use]
    pub fn secret_name(&self) -> &str {
        &self.secret_name
    }

    /// Returns when the delivery began to arrive; the service waits ten seconds from then on.
    #[cfg(feature = "inbox")]
    pub(crate) fn arrived_at(&self) -> Option<tokio::time::Instant> {
        self.arrival.0
    }
}

/// When a delivery began to arrive.
#[derive(Clone, Copy)]
pub(super) struct Arrival(#[cfg(feature = "inbox")] Option<tokio::time::Instant>);

impl Arrival {
    pub(super) fn now() -> Self {
        Self(
            // This target has no clock in the standard library.
            #[cfg(feature = "inbox")]
            (!cfg!(all(target_family = "wasm", target_os = "unknown")))
                .then(tokio::time::Instant::now),
        )
    }
}

impl Deref for VerifiedEvent {
    type Target = Event;

    fn deref(&self) -> &Event {
        &self.event
    }
}

impl From<VerifiedEvent> for Event {
    fn from(delivery: VerifiedEvent) -> Self {
        delivery.into_event()
    }
}

impl fmt::Debug for VerifiedEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerifiedEvent")
            .field("event", &self.event)
            .field("body_length", &self.body.len())
            .field("secret_name", &self.secret_name)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_debug_text_of_a_verified_event_contains_neither_its_body_nor_a_secret() {
        let event = br#"{"id":"evt_1","type":"x","created_at":1,"data":{}}"#;
        let delivery = VerifiedEvent::new(
            Event::from_unverified_json(event).unwrap(),
            Bytes::from_static(event),
            "2026".into(),
            Arrival::now(),
        );

        let text = format!("{delivery:?}");

        assert!(text.contains("evt_1") && text.contains("2026"), "{text}");
        assert!(!text.contains("created_at\":"), "{text}");
    }
}
