use std::fmt;

use http::HeaderMap;

use super::delivery_headers::event_header;
use super::error::VerifyError;
use super::event::Event;
use super::trace;

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
    pub(super) skew: i64,
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

    /// Returns when this attempt was signed, in Unix seconds.
    ///
    /// Each attempt has its own timestamp, so do not deduplicate on it (interface section 6.5).
    #[must_use]
    pub fn timestamp(&self) -> u64 {
        self.timestamp
    }

    /// Returns how many seconds the timestamp is behind the verifier's clock. Negative if it is
    /// ahead.
    #[must_use]
    pub fn skew(&self) -> i64 {
        self.skew
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
            .field("skew", &self.skew)
            .finish_non_exhaustive()
    }
}
