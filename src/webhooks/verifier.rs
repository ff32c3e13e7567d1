use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::HeaderMap;

use super::clock::Clock;
use super::delivery_headers::DeliveryHeaders;
use super::error::VerifyError;
use super::event::Event;
use super::key_ring::DEFAULT_NAME;
#[cfg(any(feature = "actix", feature = "axum", feature = "tower"))]
use super::read_limits::ReadLimits;
use super::settings::Settings;
use super::signature::SigningKey;
use super::trace;
use super::verified_delivery::VerifiedDelivery;
use crate::ConfigError;

/// Verifies webhook deliveries.
///
/// A verifier is cheap to clone. One is enough for a whole program.
///
/// It checks a delivery in this order and stops at the first error:
///
/// 1. presence and syntax of the two signed headers,
/// 2. length of the body,
/// 3. signature, in constant time, over the timestamp's text and the body's bytes as received,
/// 4. age,
/// 5. the JSON of the event.
///
/// Until the signature is verified, nothing is allocated and no JSON is parsed.
///
/// # Example: handling a delivery
///
/// ```
/// use audience::webhooks::{EventData, Verifier};
/// # use audience::webhooks::{EventType, Signer};
/// # let body = br#"{"id": "evt_1", "type": "email.delivered", "created_at": 1700000000, "data":
/// #     {"email_id": "em_1", "from": "us@example.com", "to": "ada@example.com", "subject": "Hi",
/// #      "bounce_type": "", "detail": ""}}"#;
/// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?
/// #     .sign(&EventType::Delivered, std::time::SystemTime::now(), body);
///
/// let verifier = Verifier::new("6Jm0nFq2pXvZk4Tt")?;
///
/// let event = verifier.verify(&headers, body)?;
///
/// assert_eq!(event.id.as_str(), "evt_1");
/// match &event.data {
///     EventData::Delivered(mail) => assert_eq!(mail.to, "ada@example.com"),
///     other => panic!("{other:?}"),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Verifier(Arc<Settings>);

impl Verifier {
    /// Creates a verifier with one secret, named `default`.
    ///
    /// The tolerance is 300 s and the body limit 2 MiB; use [`builder`](Self::builder) to change
    /// them. The secret's bytes are used unchanged: text that looks like hex or base64 is not
    /// decoded.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] if the secret is empty or blank, contains control characters (such as a
    /// newline or a NUL at its end), or is a placeholder in angle brackets.
    ///
    /// # Example: a secret and a placeholder
    ///
    /// ```
    /// use audience::webhooks::Verifier;
    ///
    /// let verifier = Verifier::new("6Jm0nFq2pXvZk4Tt")?;
    ///
    /// assert!(Verifier::new("<SIGNING_SECRET>").is_err());
    /// # Ok::<(), audience::ConfigError>(())
    /// ```
    pub fn new(secret: impl AsRef<[u8]>) -> Result<Self, ConfigError> {
        let mut settings = Settings::default();
        settings
            .keys
            .add(DEFAULT_NAME.to_owned(), secret.as_ref())?;
        Ok(Self::from_settings(settings))
    }

    pub(super) fn from_settings(settings: Settings) -> Self {
        Self(Arc::new(settings))
    }

    /// Verifies a delivery and returns its event.
    ///
    /// `body` must be the request body as received, before it is decoded or parsed.
    ///
    /// # Errors
    ///
    /// Returns a [`VerifyError`] for the first check that fails. Respond with its
    /// [`status`](VerifyError::status).
    ///
    /// # Example: respond to a delivery
    ///
    /// ```
    /// # use audience::webhooks::Verifier;
    /// # use http::{HeaderMap, StatusCode};
    /// fn respond(verifier: &Verifier, headers: &HeaderMap, body: &[u8]) -> StatusCode {
    ///     match verifier.verify(headers, body) {
    ///         Ok(event) => StatusCode::NO_CONTENT, // hand `event` to a queue first
    ///         Err(error) => error.status(),
    ///     }
    /// }
    /// # let verifier = Verifier::new("6Jm0nFq2pXvZk4Tt")?;
    /// # assert_eq!(respond(&verifier, &HeaderMap::new(), b"{}"), 400);
    /// # Ok::<(), audience::ConfigError>(())
    /// ```
    pub fn verify(&self, headers: &HeaderMap, body: &[u8]) -> Result<Event, VerifyError> {
        self.authenticate(headers, body)?.event()
    }

    /// Verifies a delivery as if the current time were `now`.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`verify`](Self::verify).
    ///
    /// # Example: a delivery stored earlier
    ///
    /// ```
    /// # use std::time::{Duration, SystemTime};
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    /// # let received_at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    /// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?.sign(&EventType::Sent, received_at, body);
    /// # let verifier = Verifier::new("6Jm0nFq2pXvZk4Tt")?;
    /// let event = verifier.verify_at(&headers, body, received_at)?;
    ///
    /// assert_eq!(event.id.as_str(), "evt_1");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn verify_at(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        now: SystemTime,
    ) -> Result<Event, VerifyError> {
        self.authenticate_at(headers, body, now)?.event()
    }

    /// Verifies a delivery from the values of its two signed headers, without a [`HeaderMap`].
    ///
    /// `signature` is the value of `webhook-signature` and `timestamp` that of `webhook-timestamp`,
    /// as text or bytes. Pass `None` for a missing header.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`verify`](Self::verify), except
    /// [`VerifyError::DuplicateHeader`]: refuse a delivery with a repeated header yourself.
    ///
    /// # Example: a delivery from a queue
    ///
    /// ```
    /// use audience::webhooks::{Verifier, VerifyError};
    ///
    /// let verifier = Verifier::new("6Jm0nFq2pXvZk4Tt")?;
    /// let signature = "0".repeat(64);
    ///
    /// let result = verifier.verify_parts(Some(signature.as_str()), Some("1700000000"), b"{}");
    ///
    /// assert_eq!(result, Err(VerifyError::SignatureMismatch));
    /// # Ok::<(), audience::ConfigError>(())
    /// ```
    pub fn verify_parts<H>(
        &self,
        signature: Option<&H>,
        timestamp: Option<&H>,
        body: &[u8],
    ) -> Result<Event, VerifyError>
    where
        H: AsRef<[u8]> + ?Sized,
    {
        let headers =
            DeliveryHeaders::from_parts(signature.map(H::as_ref), timestamp.map(H::as_ref));
        self.check_and_trace(headers, body, self.clock())?.event()
    }

    /// Verifies headers, length, signature and age, without parsing the JSON.
    ///
    /// Use it to store raw deliveries, or to learn which secret matched.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`verify`](Self::verify), except
    /// [`VerifyError::InvalidEnvelope`].
    ///
    /// # Example: which secret signed this?
    ///
    /// ```
    /// # use std::time::SystemTime;
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    /// # let verifier = Verifier::new("6Jm0nFq2pXvZk4Tt")?;
    /// # let body = b"{}";
    /// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?.sign(&EventType::Sent, SystemTime::now(), body);
    /// let delivery = verifier.authenticate(&headers, body)?;
    ///
    /// println!("{} bytes signed with {}", delivery.body().len(), delivery.secret_name());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn authenticate<'a>(
        &'a self,
        headers: &'a HeaderMap,
        body: &'a [u8],
    ) -> Result<VerifiedDelivery<'a>, VerifyError> {
        self.check_and_trace(DeliveryHeaders::from_map(headers), body, self.clock())
    }

    /// Does the same as [`authenticate`](Self::authenticate), as if the current time were `now`.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`authenticate`](Self::authenticate).
    pub fn authenticate_at<'a>(
        &'a self,
        headers: &'a HeaderMap,
        body: &'a [u8],
        now: SystemTime,
    ) -> Result<VerifiedDelivery<'a>, VerifyError> {
        self.check_and_trace(DeliveryHeaders::from_map(headers), body, &|| now)
    }

    /// Verifies a delivery and returns its event together with the bytes, as an `Inbox` takes them.
    ///
    /// The extractors and the layer do the same. Use it with any other server, as soon as the body has arrived:
    /// the inbox counts the time to respond from here on.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`verify`](Self::verify).
    ///
    /// # Example: a server without an extractor
    ///
    /// ```
    /// # use std::time::SystemTime;
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    /// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?.sign(&EventType::Sent, SystemTime::now(), body);
    /// # let verifier = Verifier::new("6Jm0nFq2pXvZk4Tt")?;
    /// let delivery = verifier.verify_event(&headers, body.to_vec())?;
    ///
    /// assert_eq!(delivery.id.as_str(), "evt_1");
    /// assert_eq!(&delivery.body()[..], body);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn verify_event(
        &self,
        headers: &HeaderMap,
        body: impl Into<bytes::Bytes>,
    ) -> Result<super::VerifiedEvent, VerifyError> {
        let arrival = super::verified_event::Arrival::now();
        let body = body.into();
        let delivery = self.authenticate(headers, &body)?;
        let (event, secret_name) = (delivery.event()?.into(), delivery.secret_name().into());
        Ok(super::VerifiedEvent {
            event,
            body,
            secret_name,
            arrival,
        })
    }

    /// Returns the length of the longest body that is accepted, in bytes.
    ///
    /// Read no more than this from a connection.
    #[must_use]
    pub fn body_limit(&self) -> usize {
        self.0.body_limit
    }

    #[cfg(any(feature = "actix", feature = "axum", feature = "tower"))]
    pub(super) fn read_limits(&self) -> &ReadLimits {
        &self.0.read_limits
    }

    pub(super) fn clock(&self) -> &dyn Clock {
        &*self.0.clock
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &SigningKey> {
        self.0.keys.keys()
    }

    pub(super) fn check_and_trace<'a>(
        &'a self,
        headers: Result<DeliveryHeaders<'a>, VerifyError>,
        body: &'a [u8],
        clock: &dyn Clock,
    ) -> Result<VerifiedDelivery<'a>, VerifyError> {
        headers
            .and_then(|headers| self.check(&headers, body, clock))
            .inspect(|delivery| trace::authenticated(delivery.secret_name(), delivery.skew()))
            .inspect_err(trace::refused)
    }

    fn check<'a>(
        &'a self,
        headers: &DeliveryHeaders<'a>,
        body: &'a [u8],
        clock: &dyn Clock,
    ) -> Result<VerifiedDelivery<'a>, VerifyError> {
        let limit = self.0.body_limit;
        if body.len() > limit {
            return Err(VerifyError::BodyTooLarge { limit });
        }

        // Before the age: a late but genuine delivery is reported as late, not as forged.
        let keys = &self.0.keys;
        let secret_name = keys
            .matching_name(&headers.tag, headers.timestamp_text, body)
            .ok_or(VerifyError::SignatureMismatch)?;
        let skew = self.skew(headers.timestamp, clock.now())?;

        Ok(VerifiedDelivery {
            body,
            secret_name,
            timestamp: headers.timestamp,
            skew,
            headers: headers.all,
        })
    }

    /// Returns how many seconds `timestamp` is behind `now`, if that is within the tolerance.
    fn skew(&self, timestamp: u64, now: SystemTime) -> Result<i64, VerifyError> {
        let now = now
            .duration_since(UNIX_EPOCH)
            .map_err(|_| VerifyError::ClockUnusable)?
            .as_secs();
        let distance = now.abs_diff(timestamp);
        let skew = Duration::from_secs(distance);
        match (distance <= self.0.tolerance.as_secs(), timestamp <= now) {
            (false, true) => Err(VerifyError::TooLate { skew }),
            (false, false) => Err(VerifyError::TooEarly { skew }),
            (true, true) => Ok(i64::try_from(distance).unwrap_or(i64::MAX)),
            (true, false) => Ok(i64::try_from(distance).map_or(i64::MIN, |ahead| -ahead)),
        }
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.debug("Verifier", f)
    }
}
