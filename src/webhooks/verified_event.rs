use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;

use super::event::Event;

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
    pub(super) event: Arc<Event>,
    pub(super) body: Bytes,
    pub(super) secret_name: Arc<str>,
    #[cfg_attr(
        not(feature = "inbox"),
        expect(dead_code, reason = "only the inbox reads it")
    )]
    pub(super) arrival: Arrival,
}

impl VerifiedEvent {
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
        let delivery = VerifiedEvent {
            event: Arc::new(Event::from_unverified_json(event).unwrap()),
            body: Bytes::from_static(event),
            secret_name: "2026".into(),
            arrival: Arrival::now(),
        };

        let text = format!("{delivery:?}");

        assert!(text.contains("evt_1") && text.contains("2026"), "{text}");
        assert!(!text.contains("created_at\":"), "{text}");
    }
}
