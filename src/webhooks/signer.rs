use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderValue};

use super::event::EventType;
use super::signature::SigningKey;
use super::signature::{EVENT_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER};
use super::verifier::{DEFAULT_NAME, signing_key};
use crate::ConfigError;

/// Signs deliveries as the service does, for tests of a receiver and for tools that post events.
///
/// # Example: a test of your own handler
///
/// ```
/// use std::time::SystemTime;
/// use audience::webhooks::{EventType, Signer, Verifier};
///
/// let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
///
/// let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?.sign(&EventType::Sent, SystemTime::now(), body);
///
/// assert!(Verifier::new("6Jm0nFq2pXvZk4Tt")?.verify(&headers, body).is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Signer(SigningKey);

impl Signer {
    /// Creates a signer. The secret's bytes are used unchanged.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] if [`Verifier::new`](super::Verifier::new) would reject the secret.
    ///
    /// # Example: a secret and a placeholder
    ///
    /// ```
    /// use audience::webhooks::Signer;
    ///
    /// let signer = Signer::new("6Jm0nFq2pXvZk4Tt")?;
    ///
    /// assert!(Signer::new("<SIGNING_SECRET>").is_err());
    /// # Ok::<(), audience::ConfigError>(())
    /// ```
    pub fn new(secret: impl AsRef<[u8]>) -> Result<Self, ConfigError> {
        signing_key(DEFAULT_NAME, secret.as_ref()).map(Self)
    }

    /// Returns the three headers of a delivery ([interface section 5](crate::interface#5)).
    ///
    /// A time before 1970 is signed as second 0, which receivers reject as too late. If the event
    /// type contains control characters, it is not valid in a header, and the unsigned
    /// `webhook-event` header is omitted.
    ///
    /// # Example: a delivery that is too old
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// # use audience::webhooks::{EventType, Signer};
    /// # let signer = Signer::new("6Jm0nFq2pXvZk4Tt")?;
    ///
    /// let an_hour_ago = SystemTime::now() - Duration::from_secs(3600);
    /// let headers = signer.sign(&EventType::Sent, an_hour_ago, b"{}");
    ///
    /// assert_eq!(headers["webhook-event"], "email.sent");
    /// # Ok::<(), audience::ConfigError>(())
    /// ```
    #[expect(
        clippy::missing_panics_doc,
        reason = "hex digits are valid in a header"
    )]
    pub fn sign(
        &self,
        event_type: &EventType,
        time: SystemTime,
        body: impl AsRef<[u8]>,
    ) -> HeaderMap {
        let seconds = time
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        let timestamp = HeaderValue::from(seconds);
        let signature = self.0.sign(timestamp.as_bytes(), body.as_ref());

        let mut headers = HeaderMap::with_capacity(3);
        let mut signature =
            HeaderValue::try_from(signature).expect("hex digits are valid in a header");
        // `Debug` of the headers must not print it: with the body, it allows a replay within the window.
        signature.set_sensitive(true);
        headers.insert(SIGNATURE_HEADER, signature);
        headers.insert(TIMESTAMP_HEADER, timestamp);
        // The header is not signed and receivers ignore it, so a delivery without it is still genuine.
        if let Ok(event_type) = HeaderValue::from_bytes(event_type.as_str().as_bytes()) {
            headers.insert(EVENT_HEADER, event_type);
        }
        headers
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signer(<secret>)")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn invalid_types_and_times_before_1970_are_signed_without_panicking() {
        let signer = Signer::new("6Jm0nFq2pXvZk4Tt").unwrap();
        let before = UNIX_EPOCH - Duration::from_secs(1);

        let headers = signer.sign(&EventType::from("line\nbreak"), before, "{}");

        assert_eq!(headers[TIMESTAMP_HEADER], "0");
        assert!(!headers.contains_key(EVENT_HEADER));
        let headers = signer.sign(&EventType::from("é"), before, "{}");
        assert_eq!(headers[EVENT_HEADER].as_bytes(), "é".as_bytes());
    }
}
