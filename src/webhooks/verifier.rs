use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::HeaderMap;

use super::authenticated::Authenticated;
use super::builder::VerifierBuilder;
use super::clock::Clock;
use super::error::VerifyError;
use super::event::Event;
use super::report;
use super::secret_error::SecretError;
use super::signature::{SigningKey, Tag};
use super::signed::Signed;

/// Tells deliveries of the service from everything else that is posted to a webhook endpoint.
///
/// A verifier is cheap to clone, and one is enough for a whole program: the state of the MAC is
/// computed when it is made. It looks at a delivery in this order, and stops at the first thing
/// that is wrong: presence and syntax of the two signed headers, length of the body, signature
/// (in constant time, over the timestamp's text and the body's bytes as they came), age, and last
/// the JSON. Nothing is allocated, and no JSON read, before the signature was found good.
///
/// # Example: a delivery, as a handler gets it
///
/// ```
/// use std::time::SystemTime;
/// use audience::webhooks::{EventData, EventType, Signer, Verifier};
///
/// let secret = "6Jm0nFq2pXvZk4Tt";
/// # let body = br#"{"id": "evt_1", "type": "email.delivered", "created_at": 1700000000, "data":
/// #     {"email_id": "em_1", "from": "us@example.com", "to": "ada@example.com", "subject": "Hi",
/// #      "bounce_type": "", "detail": ""}}"#;
/// # let headers = Signer::new(secret)?.sign(&EventType::Delivered, SystemTime::now(), body);
/// let verifier = Verifier::new(secret)?;
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

pub(super) struct Settings {
    pub(super) keys: Vec<NamedKey>,
    pub(super) tolerance: Duration,
    pub(super) body_limit: usize,
    pub(super) clock: Arc<dyn Clock>,
}

pub(super) struct NamedKey {
    pub(super) name: String,
    pub(super) key: SigningKey,
}

impl Verifier {
    /// A verifier with one secret, named `default`, a tolerance of 300 seconds and a body limit of
    /// 2 MiB.
    ///
    /// The secret's bytes are taken as they are: text that looks like hex or base64 is not decoded.
    ///
    /// # Errors
    ///
    /// A [`SecretError`] where the secret cannot be meant: empty, blank, with white space around
    /// it, with a NUL at its end, or a placeholder.
    pub fn new(secret: impl AsRef<[u8]>) -> Result<Self, SecretError> {
        Self::builder().secret("default", secret).build()
    }

    /// A verifier with several secrets, or with a tolerance, body limit or clock of your own.
    ///
    /// # Example: while a secret is being rotated
    ///
    /// ```
    /// use std::time::Duration;
    /// use audience::webhooks::Verifier;
    ///
    /// let verifier = Verifier::builder()
    ///     .secret("2026", "6Jm0nFq2pXvZk4Tt")
    ///     .secret("2025", "Wb8cQe1sLr5uYh7o")
    ///     .tolerance(Duration::from_secs(120))
    ///     .build()?;
    /// # Ok::<(), audience::webhooks::SecretError>(())
    /// ```
    pub fn builder() -> VerifierBuilder {
        VerifierBuilder::new()
    }

    /// The event that a delivery carries, if the service sent it, and lately.
    ///
    /// `body` has to be the request's body as it came, before anything decoded or parsed it.
    ///
    /// # Errors
    ///
    /// A [`VerifyError`] for the first thing that is wrong; its [`status`](VerifyError::status) is
    /// what to answer.
    pub fn verify(&self, headers: &HeaderMap, body: &[u8]) -> Result<Event, VerifyError> {
        self.authenticate(headers, body)?.event()
    }

    /// Does what [`verify`](Self::verify) does, as if the current time were `now`.
    ///
    /// # Errors
    ///
    /// The same as [`verify`](Self::verify).
    pub fn verify_at(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        now: SystemTime,
    ) -> Result<Event, VerifyError> {
        self.authenticate_at(headers, body, now)?.event()
    }

    /// Does what [`verify`](Self::verify) does, for programs without a [`HeaderMap`]: takes the
    /// values of `webhook-signature` and `webhook-timestamp`, as text or bytes, `None` where there
    /// was no such header.
    ///
    /// # Errors
    ///
    /// The same as [`verify`](Self::verify), but it is on the caller to notice a header that came
    /// twice.
    ///
    /// # Example: one delivery from a queue
    ///
    /// ```
    /// use audience::webhooks::{Verifier, VerifyError};
    ///
    /// let verifier = Verifier::new("6Jm0nFq2pXvZk4Tt")?;
    /// let signature = "0".repeat(64);
    ///
    /// let error = verifier.verify_parts(Some(signature.as_str()), Some("1700000000"), b"{}");
    ///
    /// assert_eq!(error, Err(VerifyError::SignatureMismatch));
    /// # Ok::<(), audience::webhooks::SecretError>(())
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
        let signed = Signed::parts(signature.map(H::as_ref), timestamp.map(H::as_ref))?;
        self.check(&signed, body)?.event()
    }

    /// Checks headers, length, signature and age, and leaves the JSON alone: for those who keep raw
    /// deliveries, or want to know which secret matched.
    ///
    /// # Errors
    ///
    /// The same as [`verify`](Self::verify), save for [`VerifyError::InvalidEnvelope`].
    pub fn authenticate<'a>(
        &'a self,
        headers: &'a HeaderMap,
        body: &'a [u8],
    ) -> Result<Authenticated<'a>, VerifyError> {
        self.check(&Signed::of(headers)?, body)
    }

    /// Does what [`authenticate`](Self::authenticate) does, as if the current time were `now`.
    ///
    /// # Errors
    ///
    /// The same as [`authenticate`](Self::authenticate).
    pub fn authenticate_at<'a>(
        &'a self,
        headers: &'a HeaderMap,
        body: &'a [u8],
        now: SystemTime,
    ) -> Result<Authenticated<'a>, VerifyError> {
        self.check_at(&Signed::of(headers)?, body, || now)
    }

    /// The longest body that is looked at, in bytes: what to read from a connection at most.
    #[must_use]
    pub fn body_limit(&self) -> usize {
        self.0.body_limit
    }

    pub(super) fn from_settings(settings: Settings) -> Self {
        Self(Arc::new(settings))
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &SigningKey> {
        self.0.keys.iter().map(|named| &named.key)
    }

    /// Judges what there is before a body is read, so that a handler can refuse without reading it.
    #[cfg(any(feature = "actix", feature = "axum"))]
    pub(super) fn check_early(
        &self,
        signed: &Signed<'_>,
        stated_length: Option<u64>,
    ) -> Result<(), VerifyError> {
        signed.parse().inspect_err(report::refused)?;
        let fits = |length| usize::try_from(length).is_ok_and(|length| length <= self.0.body_limit);
        if stated_length.is_none_or(fits) {
            Ok(())
        } else {
            Err(self.too_large())
        }
    }

    /// What a handler makes of a body that does not end at the limit.
    #[cfg(any(feature = "actix", feature = "axum"))]
    pub(super) fn too_large(&self) -> VerifyError {
        let limit = self.0.body_limit;
        let error = VerifyError::BodyTooLarge { limit };
        report::refused(&error);
        error
    }

    pub(super) fn check<'a>(
        &'a self,
        signed: &Signed<'a>,
        body: &'a [u8],
    ) -> Result<Authenticated<'a>, VerifyError> {
        self.check_at(signed, body, || self.0.clock.now())
    }

    fn check_at<'a>(
        &'a self,
        signed: &Signed<'a>,
        body: &'a [u8],
        now: impl FnOnce() -> SystemTime,
    ) -> Result<Authenticated<'a>, VerifyError> {
        self.judge(signed, body, now)
            .inspect(report::authenticated)
            .inspect_err(report::refused)
    }

    fn judge<'a>(
        &'a self,
        signed: &Signed<'a>,
        body: &'a [u8],
        now: impl FnOnce() -> SystemTime,
    ) -> Result<Authenticated<'a>, VerifyError> {
        let (tag, timestamp) = signed.parse()?;
        let limit = self.0.body_limit;
        if body.len() > limit {
            return Err(VerifyError::BodyTooLarge { limit });
        }

        // Before the window is judged: what is late and genuine is to be called late, not forged.
        let matched = self
            .matching(&tag, signed.timestamp, body)
            .ok_or(VerifyError::SignatureMismatch)?;
        let skew = self.skew(timestamp, now())?;

        Ok(Authenticated {
            body,
            secret_name: &matched.name,
            timestamp,
            skew,
            headers: signed.headers,
        })
    }

    /// The first key that made `tag`. Every key is tried whatever the ones before it gave.
    fn matching(&self, tag: &Tag, timestamp: &[u8], body: &[u8]) -> Option<&NamedKey> {
        let mut matched = None;
        for candidate in &self.0.keys {
            if candidate.key.verify(tag, timestamp, body) {
                matched = matched.or(Some(candidate));
            }
        }
        matched
    }

    /// How many seconds `timestamp` lies behind `now`, if that is within the tolerance.
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
        let names: Vec<&str> = self.0.keys.iter().map(|key| key.name.as_str()).collect();
        f.debug_struct("Verifier")
            .field("secrets", &names)
            .field("tolerance", &self.0.tolerance)
            .field("body_limit", &self.0.body_limit)
            .finish_non_exhaustive()
    }
}
