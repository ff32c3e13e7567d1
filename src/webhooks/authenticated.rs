use std::fmt;

use http::HeaderMap;

use super::error::VerifyError;
use super::event::Event;
use super::report;
use super::signed::event_header;

/// A delivery that the service signed, lately, with its JSON not yet read.
///
/// # Example: keep the bytes, then read them
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
pub struct Authenticated<'a> {
    pub(super) body: &'a [u8],
    pub(super) secret_name: &'a str,
    pub(super) timestamp: u64,
    pub(super) skew: i64,
    pub(super) headers: Option<&'a HeaderMap>,
}

impl<'a> Authenticated<'a> {
    /// The bytes that were signed.
    #[must_use]
    pub fn body(&self) -> &'a [u8] {
        self.body
    }

    /// The name of the secret that matched: when the old one of a rotation no longer turns up here,
    /// it can go.
    #[must_use]
    pub fn secret_name(&self) -> &'a str {
        self.secret_name
    }

    /// When this attempt was signed, in Unix seconds. It differs from attempt to attempt, so it is
    /// nothing to deduplicate on (interface section 6.5).
    #[must_use]
    pub fn timestamp(&self) -> u64 {
        self.timestamp
    }

    /// How many seconds the timestamp lies behind our clock; negative where it lies ahead.
    #[must_use]
    pub fn skew(&self) -> i64 {
        self.skew
    }

    /// Whether the unsigned `webhook-event` header came exactly once and says the same as the
    /// body's `type`; `false` too where the body is no event.
    ///
    /// Only for watching what is on the way: the body's `type` is signed, and decides.
    #[must_use]
    pub fn event_header_agrees(&self) -> bool {
        self.headers.and_then(event_header).is_some_and(|header| {
            Event::from_json(self.body)
                .is_ok_and(|event| event.event_type().as_str().as_bytes() == header)
        })
    }

    /// Reads the event.
    ///
    /// # Errors
    ///
    /// [`VerifyError::InvalidEnvelope`] where the body is not an event envelope (interface section 6.2).
    pub fn event(&self) -> Result<Event, VerifyError> {
        Event::from_json(self.body)
            .map_err(|problem| VerifyError::InvalidEnvelope { problem })
            .inspect_err(report::refused)
    }
}

impl fmt::Debug for Authenticated<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticated")
            .field("body_length", &self.body.len())
            .field("secret_name", &self.secret_name)
            .field("timestamp", &self.timestamp)
            .field("skew", &self.skew)
            .finish_non_exhaustive()
    }
}
