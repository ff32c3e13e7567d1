//! Verifies deliveries: the verifier, its settings and its secrets.

use std::collections::BTreeMap;
use std::env::VarError;
use std::fmt::{self, Write};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use subtle::{Choice, ConditionallySelectable};

use super::error::VerifyError;
use super::event::Event;
use super::signature::{DeliveryHeaders, SigningKey, Tag, event_header};
use super::trace;
use crate::Timestamp;
use crate::secret::{ConfigError, check_secret, secrets_from_variables};
use crate::timestamp::system_time;

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

const SECRET: &str = "AUDIENCE_WEBHOOK_SECRET";
const SECRET_FILE: &str = "AUDIENCE_WEBHOOK_SECRET_FILE";
const OLD_SECRET: &str = "AUDIENCE_WEBHOOK_SECRET_OLD";
const OLD_SECRET_FILE: &str = "AUDIENCE_WEBHOOK_SECRET_OLD_FILE";

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
    /// newline or a NUL at its end), has white space at its start or its end, is in quotation marks, or is a
    /// placeholder in angle brackets.
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
        Ok(Self(Arc::new(settings)))
    }

    /// Creates a verifier with the signing secret of the environment: from `AUDIENCE_WEBHOOK_SECRET`, or from the file
    /// that `AUDIENCE_WEBHOOK_SECRET_FILE` names, such as a secret that Docker or Kubernetes mounts.
    ///
    /// While you change the secret, as the guide *Webhooks in production* describes, set `AUDIENCE_WEBHOOK_SECRET_OLD`
    /// or `AUDIENCE_WEBHOOK_SECRET_OLD_FILE` to the old one. It is accepted, too. The secrets are named `default` and
    /// `old`. A byte order mark at the start of a file and one newline at its end do not belong to the secret. The
    /// file is read only once.
    ///
    /// For other settings, see [`VerifierBuilder::from_env`].
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] if the secret is not set, if both of its variables are set, if a file cannot be read,
    /// or if a secret cannot be used: see [`new`](Self::new). It names the variable, and never contains its value.
    ///
    /// # Example: say which variable is missing
    ///
    /// ```
    /// use audience::webhooks::Verifier;
    ///
    /// if let Err(error) = Verifier::from_env() {
    ///     println!("{error}"); // neither of the environment variables `AUDIENCE_WEBHOOK_SECRET` and … is set
    /// }
    /// ```
    pub fn from_env() -> Result<Self, ConfigError> {
        VerifierBuilder::from_env()?.build()
    }

    /// Returns a builder, for several secrets or for another tolerance, body limit or clock.
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
    /// # Ok::<(), audience::ConfigError>(())
    /// ```
    pub fn builder() -> VerifierBuilder {
        VerifierBuilder {
            settings: Settings::default(),
            rejected: None,
        }
    }

    /// Verifies a delivery and returns its event.
    ///
    /// `body` must be the request body as received, before it is decoded or parsed. The request must be a POST, which
    /// your router checks: the signature does not cover the method.
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
    ///         Ok(event) => StatusCode::NO_CONTENT, // store `event` first
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
        self.check_and_trace(DeliveryHeaders::from_map(headers), body, &|| now)?
            .event()
    }

    /// Verifies a delivery from the values of its two signed headers, without a [`HeaderMap`].
    ///
    /// `signature` is the value of the header `webhook-signature`, and `timestamp` is the value of
    /// `webhook-timestamp`, as text or bytes. Pass `None` for a missing header.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`verify`](Self::verify), except
    /// [`VerifyError::DuplicateHeader`]: if a header occurs twice, reject the delivery yourself.
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

    /// Verifies a delivery and returns its event together with the bytes, as an `Inbox` takes them.
    ///
    /// The extractors and the layer do the same. With any other server, call it as soon as the body has arrived,
    /// because the inbox measures the time to respond from this call.
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
        body: impl Into<Bytes>,
    ) -> Result<VerifiedEvent, VerifyError> {
        // First: the ten seconds of the service run while the signature is verified.
        let (arrival, body) = (Arrival::now(), body.into());
        let delivery = self.authenticate(headers, &body)?;
        let (event, secret_name) = (delivery.event()?, delivery.secret_name().into());
        Ok(VerifiedEvent::new(event, body, secret_name, arrival))
    }

    /// Returns the length of the longest body that is accepted, in bytes.
    ///
    /// Read no more than this from a connection.
    ///
    /// # Example: reject a long body before reading it
    ///
    /// ```
    /// use audience::webhooks::Verifier;
    ///
    /// let verifier = Verifier::new("6Jm0nFq2pXvZk4Tt")?;
    /// let content_length = 3_000_000;
    ///
    /// assert!(content_length > verifier.body_limit());
    /// # Ok::<(), audience::ConfigError>(())
    /// ```
    #[must_use]
    pub fn body_limit(&self) -> usize {
        self.0.body_limit
    }

    /// Returns the counters of this verifier and its clones, since it was built.
    ///
    /// # Example: is the old secret still in use?
    ///
    /// ```
    /// use std::time::SystemTime;
    /// use audience::webhooks::{EventType, Signer, Verifier};
    ///
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    /// let verifier = Verifier::builder().secret("new", "6Jm0nFq2pXvZk4Tt").secret("old", "Wb8cQe1sLr5uYh7o").build()?;
    /// let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?.sign(&EventType::Sent, SystemTime::now(), body);
    /// verifier.verify(&headers, body)?;
    ///
    /// let metrics = verifier.metrics();
    ///
    /// assert_eq!((metrics.accepted["new"], metrics.accepted["old"]), (1, 0));
    /// assert_eq!(metrics.unauthorized, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn metrics(&self) -> VerifierMetrics {
        VerifierMetrics {
            accepted: self.0.keys.counts(),
            malformed: self.0.malformed.load(Ordering::Relaxed),
            unauthorized: self.0.unauthorized.load(Ordering::Relaxed),
            too_large: self.0.too_large.load(Ordering::Relaxed),
        }
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
            .map(|(delivery, accepted)| {
                accepted.fetch_add(1, Ordering::Relaxed);
                trace::authenticated(delivery.secret_name(), delivery.skew(), delivery.is_early());
                delivery
            })
            .inspect_err(|error| self.note_rejected(error))
    }

    /// Counts a rejected delivery by the status of the response, and traces it.
    pub(super) fn note_rejected(&self, error: &VerifyError) {
        let counter = match error.status() {
            StatusCode::BAD_REQUEST => Some(&self.0.malformed),
            StatusCode::UNAUTHORIZED => Some(&self.0.unauthorized),
            StatusCode::PAYLOAD_TOO_LARGE => Some(&self.0.too_large),
            _ => None,
        };
        if let Some(counter) = counter {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        trace::rejected(error);
    }

    /// Checks a delivery, and counts and traces nothing. Also returns the counter of its secret.
    pub(super) fn check<'a>(
        &'a self,
        headers: &DeliveryHeaders<'a>,
        body: &'a [u8],
        clock: &dyn Clock,
    ) -> Result<(VerifiedDelivery<'a>, &'a AtomicU64), VerifyError> {
        let limit = self.0.body_limit;
        // First, because the work for the MAC grows with the body, and anybody can send one.
        if body.len() > limit {
            return Err(VerifyError::BodyTooLarge { limit });
        }

        // Before the age: a late but genuine delivery is reported as late, not as forged. Before the JSON, which is
        // not parsed here: a parser is the last thing that a forged body should reach.
        let keys = &self.0.keys;
        let secret = keys
            .matching(&headers.tag, headers.timestamp_text, body)
            .ok_or(VerifyError::SignatureMismatch)?;
        let now = clock
            .now()
            .duration_since(UNIX_EPOCH)
            .map_err(|_| VerifyError::ClockUnusable)?
            .as_secs();
        let delivery = VerifiedDelivery {
            body,
            secret_name: &secret.name,
            timestamp: headers.timestamp,
            now,
            headers: headers.all,
        };
        let skew = delivery.skew();
        // In whole seconds, because the timestamp has no fractions. A difference of exactly 300 s is accepted.
        if skew.as_secs() <= self.0.tolerance.as_secs() {
            Ok((delivery, &secret.accepted))
        } else if delivery.is_early() {
            Err(VerifyError::TooEarly { skew })
        } else {
            Err(VerifyError::TooLate { skew })
        }
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.debug("Verifier", f)
    }
}

/// The counters of a [`Verifier`] and its clones since it was built, in this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifierMetrics {
    /// Deliveries whose signature and age were right, by the name of the secret that they were signed with. Each secret
    /// of the verifier has a number.
    pub accepted: BTreeMap<String, u64>,
    /// Deliveries that were rejected with 400 because a header of the signature is missing or malformed. Whoever sends
    /// them is most likely not the service. A genuine delivery whose body is no event counts as accepted.
    pub malformed: u64,
    /// Deliveries that were rejected with 401: they were signed with no secret of the verifier, or are too old or too
    /// early.
    pub unauthorized: u64,
    /// Deliveries that were rejected with 413: the body is longer than the
    /// [`body_limit`](VerifierBuilder::body_limit). They were not authenticated, so anybody may have sent them. But if the
    /// service has, the event is lost after ten attempts.
    pub too_large: u64,
}

impl VerifierMetrics {
    /// Returns the counters as text for
    /// [Prometheus](https://prometheus.io/docs/instrumenting/exposition_formats/).
    ///
    /// | metric | type | value |
    /// |---|---|---|
    /// | `audience_webhooks_accepted_total` | counter | [`accepted`](Self::accepted), with the label `secret` |
    /// | `audience_webhooks_malformed_total` | counter | [`malformed`](Self::malformed) |
    /// | `audience_webhooks_unauthorized_total` | counter | [`unauthorized`](Self::unauthorized) |
    /// | `audience_webhooks_too_large_total` | counter | [`too_large`](Self::too_large) |
    ///
    /// # Example: after the metrics of an inbox
    ///
    /// ```
    /// use audience::inbox::{Inbox, prometheus};
    /// use audience::webhooks::Verifier;
    ///
    /// async fn metrics(verifier: &Verifier, inbox: &Inbox) -> String {
    ///     prometheus([inbox]).await + &verifier.metrics().to_prometheus()
    /// }
    ///
    /// let verifier = Verifier::new("6Jm0nFq2pXvZk4Tt")?;
    /// let text = verifier.metrics().to_prometheus();
    /// assert!(text.contains("audience_webhooks_accepted_total{secret=\"default\"} 0\n"));
    /// # Ok::<(), audience::ConfigError>(())
    /// ```
    #[must_use]
    pub fn to_prometheus(&self) -> String {
        let mut text = "# HELP audience_webhooks_accepted_total Deliveries by the secret that they were signed with.\n\
                        # TYPE audience_webhooks_accepted_total counter\n"
            .to_owned();
        // Writing to a `String` cannot fail.
        for (secret, count) in &self.accepted {
            let secret = secret.replace('\\', "\\\\").replace('"', "\\\"");
            let secret = secret.replace('\n', "\\n");
            let _ = writeln!(
                text,
                "audience_webhooks_accepted_total{{secret=\"{secret}\"}} {count}"
            );
        }
        for (name, help, count) in [
            (
                "malformed",
                "Deliveries that were rejected with 400 because of their headers.",
                self.malformed,
            ),
            (
                "unauthorized",
                "Deliveries that were rejected with 401.",
                self.unauthorized,
            ),
            (
                "too_large",
                "Deliveries that were rejected with 413.",
                self.too_large,
            ),
        ] {
            let name = format!("audience_webhooks_{name}_total");
            let _ = writeln!(
                text,
                "# HELP {name} {help}\n# TYPE {name} counter\n{name} {count}"
            );
        }
        text
    }
}

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
    ///
    /// # Example: store the bytes that were verified
    ///
    /// ```
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    /// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?
    /// #     .sign(&EventType::Sent, std::time::SystemTime::now(), body);
    /// # let verifier = Verifier::new("6Jm0nFq2pXvZk4Tt")?;
    ///
    /// let delivery = verifier.authenticate(&headers, body)?;
    ///
    /// let stored = delivery.body().to_vec();
    /// assert_eq!(stored, body);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn body(&self) -> &'a [u8] {
        self.body
    }

    /// Returns the name of the secret that matched.
    ///
    /// After a rotation, remove the old secret once its name no longer appears here.
    ///
    /// # Example: count the deliveries that still use the old secret
    ///
    /// ```
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    /// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?
    /// #     .sign(&EventType::Sent, std::time::SystemTime::now(), body);
    ///
    /// let verifier = Verifier::builder()
    ///     .secret("2026", "Wb8cQe1sLr5uYh7o")
    ///     .secret("2025", "6Jm0nFq2pXvZk4Tt")
    ///     .build()?;
    /// # let mut old = 0;
    /// if verifier.authenticate(&headers, body)?.secret_name() == "2025" {
    ///     old += 1;
    /// }
    /// # assert_eq!(old, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn secret_name(&self) -> &'a str {
        self.secret_name
    }

    /// Returns when this attempt was signed.
    ///
    /// Each attempt has its own timestamp, so do not deduplicate on it ([interface section 6.5](crate::interface#6.5)).
    ///
    /// # Example: the time between the event and this attempt
    ///
    /// ```
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    /// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?
    /// #     .sign(&EventType::Sent, std::time::SystemTime::now(), body);
    /// # let verifier = Verifier::new("6Jm0nFq2pXvZk4Tt")?;
    ///
    /// let delivery = verifier.authenticate(&headers, body)?;
    /// let event = delivery.event()?;
    ///
    /// assert!(delivery.timestamp() > event.created_at);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn timestamp(&self) -> Timestamp {
        // A value this large is far outside the window, so only a verifier with a huge tolerance returns it.
        Timestamp::from_unix(i64::try_from(self.timestamp).unwrap_or(i64::MAX))
    }

    /// Returns the difference between the timestamp and the verifier's clock, in whole seconds.
    ///
    /// [`is_early`](Self::is_early) returns its direction.
    ///
    /// # Example: notice a clock that is wrong, before deliveries are rejected
    ///
    /// ```
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    /// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?
    /// #     .sign(&EventType::Sent, std::time::SystemTime::now(), body);
    /// # let verifier = Verifier::new("6Jm0nFq2pXvZk4Tt")?;
    ///
    /// use std::time::Duration;
    ///
    /// let delivery = verifier.authenticate(&headers, body)?;
    /// if delivery.skew() > Duration::from_secs(60) {
    ///     eprintln!("check the clock, it differs by {} s", delivery.skew().as_secs());
    /// }
    /// # assert!(delivery.skew() < Duration::from_secs(60));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn skew(&self) -> Duration {
        Duration::from_secs(self.now.abs_diff(self.timestamp))
    }

    /// Returns whether the timestamp is ahead of the verifier's clock.
    ///
    /// # Example: a sign for the difference
    ///
    /// ```
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    /// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?
    /// #     .sign(&EventType::Sent, std::time::SystemTime::now(), body);
    /// # let verifier = Verifier::new("6Jm0nFq2pXvZk4Tt")?;
    ///
    /// let delivery = verifier.authenticate(&headers, body)?;
    ///
    /// let sign = if delivery.is_early() { "-" } else { "" };
    /// println!("{sign}{} s behind the clock", delivery.skew().as_secs());
    /// # assert!(!delivery.is_early());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is_early(&self) -> bool {
        self.timestamp > self.now
    }

    /// Returns whether the unsigned `webhook-event` header agrees with the body's `type`.
    ///
    /// It is `false` if the header is missing or occurs twice, or if the body is not an event. Use it
    /// only to notice changes in transit: the `type` in the signed body decides.
    ///
    /// # Example: a header that was changed in transit
    ///
    /// ```
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    /// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?
    /// #     .sign(&EventType::Sent, std::time::SystemTime::now(), body);
    /// # let verifier = Verifier::new("6Jm0nFq2pXvZk4Tt")?;
    ///
    /// # let mut headers = headers;
    /// headers.insert("webhook-event", "email.bounced".parse()?);
    /// let delivery = verifier.authenticate(&headers, body)?;
    ///
    /// assert!(!delivery.event_header_agrees());
    /// // The signed body counts.
    /// assert_eq!(delivery.event()?.event_type(), EventType::Sent);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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
    /// Returns [`VerifyError::InvalidEnvelope`] if the body is not an event envelope
    /// ([interface section 6.2](crate::interface#6.2)).
    ///
    /// # Example: a body that is signed but is not an event
    ///
    /// ```
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    /// # let body = b"{}";
    /// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?
    /// #     .sign(&EventType::Sent, std::time::SystemTime::now(), body);
    /// # let verifier = Verifier::new("6Jm0nFq2pXvZk4Tt")?;
    ///
    /// use audience::webhooks::VerifyError;
    ///
    /// let delivery = verifier.authenticate(&headers, body)?;
    /// let error = delivery.event().unwrap_err();
    ///
    /// assert!(matches!(error, VerifyError::InvalidEnvelope { .. }));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn event(&self) -> Result<Event, VerifyError> {
        self.parse()
            .inspect(trace::incomplete)
            .inspect_err(trace::rejected)
    }

    /// Parses the body, and traces nothing.
    pub(super) fn parse(&self) -> Result<Event, VerifyError> {
        Event::from_unverified_json(self.body)
            .map_err(|problem| VerifyError::InvalidEnvelope { problem })
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
/// Only [`Verifier::verify_event`](super::Verifier::verify_event), the extractors of axum and actix, and the
/// layer of tower create it. So a handler that takes it never runs for a forged delivery.
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

    /// Returns the event by value, to match on it or to send it elsewhere. Clones the event if a clone of
    /// this delivery still exists.
    ///
    /// # Example: pass the event to another task
    ///
    /// ```
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    /// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?
    /// #     .sign(&EventType::Sent, std::time::SystemTime::now(), body);
    /// # let verifier = Verifier::new("6Jm0nFq2pXvZk4Tt")?;
    ///
    /// # let (events, received) = std::sync::mpsc::channel();
    /// let delivery = verifier.verify_event(&headers, body.to_vec())?;
    ///
    /// events.send(delivery.into_event())?;
    /// # assert_eq!(received.recv()?.id.as_str(), "evt_1");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn into_event(self) -> Event {
        // Usually the only reference, so the event moves without a copy.
        Arc::unwrap_or_clone(self.event)
    }

    /// Returns the bytes that were signed, to store the raw delivery. Cheap to clone.
    ///
    /// # Example: store the delivery as it was signed
    ///
    /// ```
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    /// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?
    /// #     .sign(&EventType::Sent, std::time::SystemTime::now(), body);
    /// # let verifier = Verifier::new("6Jm0nFq2pXvZk4Tt")?;
    ///
    /// # let mut table = std::collections::HashMap::new();
    /// let delivery = verifier.verify_event(&headers, body.to_vec())?;
    ///
    /// table.insert(delivery.id.clone(), delivery.body().clone());
    /// # assert_eq!(table[&delivery.id][..], body[..]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// Returns the name of the secret that matched.
    ///
    /// After a rotation, remove the old secret once its name no longer appears here.
    ///
    /// # Example: a verifier with one secret that was given no name
    ///
    /// ```
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    /// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?
    /// #     .sign(&EventType::Sent, std::time::SystemTime::now(), body);
    /// # let verifier = Verifier::new("6Jm0nFq2pXvZk4Tt")?;
    ///
    /// let delivery = verifier.verify_event(&headers, body.to_vec())?;
    ///
    /// assert_eq!(delivery.secret_name(), "default");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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

impl fmt::Debug for VerifiedEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerifiedEvent")
            .field("event", &self.event)
            .field("body_length", &self.body.len())
            .field("secret_name", &self.secret_name)
            .finish()
    }
}

/// Builds a [`Verifier`]; see [`Verifier::builder`].
#[must_use = "a builder does nothing until `build` is called"]
pub struct VerifierBuilder {
    settings: Settings,
    /// The first secret that was rejected, reported by `build`.
    rejected: Option<ConfigError>,
}

impl VerifierBuilder {
    /// Creates a builder with the signing secret of the environment, and the old one if it is set. It reads the variables
    /// of [`Verifier::from_env`].
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] if the secret is not set, if both of its variables are set, or if a file cannot be read.
    /// [`build`](Self::build) returns the error for a secret that cannot be used.
    ///
    /// # Example: a receiver of long mail
    ///
    /// ```
    /// use audience::ConfigError;
    /// use audience::webhooks::{Verifier, VerifierBuilder};
    ///
    /// fn verifier() -> Result<Verifier, ConfigError> {
    ///     VerifierBuilder::from_env()?.body_limit(8 * 1024 * 1024).build()
    /// }
    /// # let _ = verifier();
    /// ```
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::from_variables(std::env::var)
    }

    fn from_variables(
        read: impl Fn(&'static str) -> Result<String, VarError>,
    ) -> Result<Self, ConfigError> {
        let (secret, old) = secrets(read)?;
        let builder = Verifier::builder().secret(DEFAULT_NAME, secret);
        Ok(match old {
            Some(old) => builder.secret("old", old),
            None => builder,
        })
    }

    /// Adds a signing secret with a name of your choice. Logs and
    /// [`secret_name`](VerifiedDelivery::secret_name) show the name, never the secret.
    ///
    /// The secret's bytes are used unchanged: text that looks like hex or base64 is not decoded. To rotate
    /// secrets, add both; a delivery that is signed with either is accepted.
    ///
    /// # Example: the old and the new secret
    ///
    /// ```
    /// # use std::time::SystemTime;
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    /// # let headers = Signer::new("Wb8cQe1sLr5uYh7o")?.sign(&EventType::Sent, SystemTime::now(), body);
    /// let verifier = Verifier::builder()
    ///     .secret("new", "6Jm0nFq2pXvZk4Tt")
    ///     .secret("old", "Wb8cQe1sLr5uYh7o")
    ///     .build()?;
    ///
    /// assert_eq!(verifier.authenticate(&headers, body)?.secret_name(), "old");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn secret(mut self, name: impl Into<String>, secret: impl AsRef<[u8]>) -> Self {
        if let Err(error) = self.settings.keys.add(name.into(), secret.as_ref()) {
            // A setter returns the builder, so `build` reports the error.
            self.rejected.get_or_insert(error);
        }
        self
    }

    /// Sets how far a delivery's timestamp may differ from the current time, in either direction.
    /// Default: 300 s ([interface section 5](crate::interface#5)).
    ///
    /// A difference equal to the tolerance is accepted. Fractions of a second are ignored.
    ///
    /// # Example: a stricter window
    ///
    /// ```
    /// # use std::time::{Duration, SystemTime};
    /// # use audience::webhooks::{EventType, Signer, Verifier, VerifyError};
    /// # let (now, body) = (SystemTime::now(), b"{}");
    /// # let late = Signer::new("6Jm0nFq2pXvZk4Tt")?.sign(&EventType::Sent, now - Duration::from_secs(61), body);
    /// let verifier = Verifier::builder()
    ///     .secret("main", "6Jm0nFq2pXvZk4Tt")
    ///     .tolerance(Duration::from_secs(60))
    ///     .build()?;
    ///
    /// let error = verifier.verify_at(&late, body, now).unwrap_err();
    /// assert_eq!(error, VerifyError::TooLate { skew: Duration::from_secs(61) });
    /// # Ok::<(), audience::ConfigError>(())
    /// ```
    pub fn tolerance(mut self, tolerance: Duration) -> Self {
        self.settings.tolerance = tolerance;
        self
    }

    /// Sets the longest body that is accepted, in bytes. Default: 2 MiB.
    ///
    /// A longer body is rejected with 413. A sender that is still writing may see a broken connection instead; both are a
    /// failed attempt. The service sends it ten times, and then its event is lost. The event of an inbound mail contains
    /// the text of the mail, so with inbound mail, set the limit as high as the mail that you accept.
    /// [`VerifierMetrics::too_large`] counts the rejected bodies.
    ///
    /// # Example: a smaller limit
    ///
    /// ```
    /// # use audience::webhooks::Verifier;
    /// let verifier = Verifier::builder()
    ///     .secret("main", "6Jm0nFq2pXvZk4Tt")
    ///     .body_limit(64 * 1024)
    ///     .build()?;
    ///
    /// assert_eq!(verifier.body_limit(), 65_536);
    /// # Ok::<(), audience::ConfigError>(())
    /// ```
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.settings.body_limit = bytes;
        self
    }

    /// Sets how long the extractors of [`axum`](super::axum) and [`actix`](super::actix) and the layer
    /// of [`tower`](super::tower) wait for a body to arrive completely. Default: 5 s.
    ///
    /// A body that takes longer is rejected with 408. Keep the time below the ten seconds that the
    /// service waits for a response. The time limit of the headers is a setting of the server.
    ///
    /// The timer is Tokio's. If you build the runtime yourself, enable its timers (`enable_time`):
    /// otherwise, a request panics if it has to wait for its body. Outside a Tokio runtime and on
    /// `wasm32-unknown-unknown`, there is no time limit.
    ///
    /// # Example: a shorter time
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use audience::webhooks::Verifier;
    /// let verifier = Verifier::builder()
    ///     .secret("main", "6Jm0nFq2pXvZk4Tt")
    ///     .body_timeout(Duration::from_secs(2))
    ///     .build()?;
    /// # Ok::<(), audience::ConfigError>(())
    /// ```
    #[cfg(any(feature = "actix", feature = "axum", feature = "tower"))]
    #[cfg_attr(
        docsrs,
        doc(cfg(any(feature = "actix", feature = "axum", feature = "tower")))
    )]
    pub fn body_timeout(mut self, timeout: Duration) -> Self {
        self.settings.read_limits.timeout = timeout;
        self
    }

    /// Sets how many bytes of unverified bodies the extractors of [`axum`](super::axum) and
    /// [`actix`](super::actix) and the layer of [`tower`](super::tower) may hold simultaneously, in all
    /// requests of this verifier and its clones. Default: 64 MiB, or four times the
    /// [`body_limit`](Self::body_limit) if that is more.
    ///
    /// A [`Rejection`](super::Rejection) keeps its body until it is dropped.
    ///
    /// If a body needs more, it is rejected with 503, and the service retries. Bodies longer than
    /// 64 KiB share half of the memory, so that they cannot keep out small deliveries. Set at least four
    /// times the body limit. With less than twice the body limit, the longest deliveries are always
    /// rejected.
    ///
    /// # Example: a small machine
    ///
    /// ```
    /// # use audience::webhooks::Verifier;
    /// let verifier = Verifier::builder()
    ///     .secret("main", "6Jm0nFq2pXvZk4Tt")
    ///     .body_limit(256 * 1024)
    ///     .body_memory(8 * 1024 * 1024)
    ///     .build()?;
    /// # Ok::<(), audience::ConfigError>(())
    /// ```
    #[cfg(any(feature = "actix", feature = "axum", feature = "tower"))]
    #[cfg_attr(
        docsrs,
        doc(cfg(any(feature = "actix", feature = "axum", feature = "tower")))
    )]
    pub fn body_memory(mut self, bytes: usize) -> Self {
        self.settings.read_limits.memory = Some(bytes);
        self
    }

    /// Sets the clock that timestamps are compared with. Default: the system clock, which is `Date.now()` of
    /// JavaScript on `wasm32-unknown-unknown`.
    ///
    /// # Example: a fixed time in a test
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    ///
    /// let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    /// let verifier = Verifier::builder()
    ///     .secret("main", "6Jm0nFq2pXvZk4Tt")
    ///     .clock(move || then)
    ///     .build()?;
    /// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?.sign(&EventType::Sent, then, body);
    ///
    /// assert!(verifier.verify(&headers, body).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.settings.clock = Arc::new(clock);
        self
    }

    /// Builds the verifier.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] if no secret was added, if two secrets have the same name, or if a secret is
    /// unusable (see [`Verifier::new`]). The first error is returned.
    ///
    /// # Example: a secret that was never filled in
    ///
    /// ```
    /// use audience::webhooks::Verifier;
    ///
    /// let error = Verifier::builder().secret("main", "").build().unwrap_err();
    ///
    /// assert_eq!(error.to_string(), "the signing secret \"main\" is empty");
    /// ```
    pub fn build(self) -> Result<Verifier, ConfigError> {
        match self.rejected {
            Some(error) => Err(error),
            None if self.settings.keys.is_empty() => {
                Err(ConfigError::new("no signing secret was added"))
            }
            None => Ok(Verifier(Arc::new(self.settings))),
        }
    }
}

impl fmt::Debug for VerifierBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.debug("VerifierBuilder", f)
    }
}

/// Returns the signing secret of the environment, and the old one if it is set.
#[cfg(feature = "cli")]
pub(crate) fn secrets_from_env() -> Result<(String, Option<String>), ConfigError> {
    secrets(std::env::var)
}

fn secrets(
    read: impl Fn(&'static str) -> Result<String, VarError>,
) -> Result<(String, Option<String>), ConfigError> {
    let old = [OLD_SECRET, OLD_SECRET_FILE];
    secrets_from_variables(read, [SECRET, SECRET_FILE], old)
}

const DEFAULT_TOLERANCE: Duration = Duration::from_secs(300);
const DEFAULT_BODY_LIMIT: usize = 2 * 1024 * 1024;

struct Settings {
    keys: KeyRing,
    tolerance: Duration,
    body_limit: usize,
    clock: Arc<dyn Clock>,
    /// How many deliveries were rejected with 400 because of their headers.
    malformed: AtomicU64,
    /// How many deliveries were rejected with 401.
    unauthorized: AtomicU64,
    /// How many deliveries were rejected with 413.
    too_large: AtomicU64,
    #[cfg(any(feature = "actix", feature = "axum", feature = "tower"))]
    read_limits: ReadLimits,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            keys: KeyRing::default(),
            tolerance: DEFAULT_TOLERANCE,
            body_limit: DEFAULT_BODY_LIMIT,
            clock: Arc::new(SystemClock),
            malformed: AtomicU64::new(0),
            unauthorized: AtomicU64::new(0),
            too_large: AtomicU64::new(0),
            #[cfg(any(feature = "actix", feature = "axum", feature = "tower"))]
            read_limits: ReadLimits::default(),
        }
    }
}

impl Settings {
    /// Prints everything except the secrets, under the name of the type that holds the settings.
    fn debug(&self, holder: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(holder)
            .field("secrets", &self.keys.names())
            .field("tolerance", &self.tolerance)
            .field("body_limit", &self.body_limit)
            .finish_non_exhaustive()
    }
}

/// The name of a secret that is added without a name.
pub(super) const DEFAULT_NAME: &str = "default";

/// The secrets of one verifier, each under a unique name.
#[derive(Default)]
struct KeyRing(Vec<NamedKey>);

struct NamedKey {
    name: String,
    key: SigningKey,
    /// How many deliveries were accepted.
    accepted: AtomicU64,
}

/// Returns the key of a secret, unless it is unusable.
pub(super) fn signing_key(name: &str, secret: &[u8]) -> Result<SigningKey, ConfigError> {
    check_secret(&format!("the signing secret {name:?}"), secret)?;
    Ok(SigningKey::new(secret))
}

impl KeyRing {
    fn add(&mut self, name: String, secret: &[u8]) -> Result<(), ConfigError> {
        // If two secrets shared a name, nobody could tell which of them is still in use.
        if self.0.iter().any(|named| named.name == name) {
            return Err(ConfigError::new(format!(
                "two signing secrets have the name {name:?}; rename one of them"
            )));
        }
        let key = signing_key(&name, secret)?;
        self.0.push(NamedKey {
            name,
            key,
            accepted: AtomicU64::new(0),
        });
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn names(&self) -> Vec<&str> {
        self.0.iter().map(|named| named.name.as_str()).collect()
    }

    fn counts(&self) -> BTreeMap<String, u64> {
        let counts = self.0.iter();
        let counts =
            counts.map(|named| (named.name.clone(), named.accepted.load(Ordering::Relaxed)));
        counts.collect()
    }

    fn keys(&self) -> impl Iterator<Item = &SigningKey> {
        self.0.iter().map(|named| &named.key)
    }

    /// Returns the first secret that `tag` was made with.
    ///
    /// Every secret is tried and the match is selected without a branch, so the time taken does not
    /// depend on which secret matched.
    fn matching(&self, tag: &Tag, timestamp: &[u8], body: &[u8]) -> Option<&NamedKey> {
        let mut found = Choice::from(0);
        let mut index = 0_u64;
        for (candidate, named) in (0_u64..).zip(&self.0) {
            let matches = named.key.verify(tag, timestamp, body);
            // The first match wins, as in a search that stops there.
            index.conditional_assign(&candidate, matches & !found);
            found |= matches;
        }

        let index = usize::try_from(index).ok()?;
        bool::from(found).then(|| &self.0[index])
    }
}

/// The source of a [`Verifier`]'s current time.
///
/// Any closure that returns a [`SystemTime`] is a clock, so a test can stop time or share the clock
/// of a mock server.
///
/// # Example: a fixed time
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use audience::webhooks::Verifier;
///
/// let noon = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
/// let verifier = Verifier::builder()
///     .secret("2026", "6Jm0nFq2pXvZk4Tt")
///     .clock(move || noon)
///     .build()?;
/// # Ok::<(), audience::ConfigError>(())
/// ```
pub trait Clock: Send + Sync {
    /// Returns the current time.
    ///
    /// A verifier calls it once per delivery, after the signature is verified.
    fn now(&self) -> SystemTime;
}

impl<F> Clock for F
where
    F: Fn() -> SystemTime + Send + Sync,
{
    fn now(&self) -> SystemTime {
        self()
    }
}

/// The clock of the operating system. On `wasm32-unknown-unknown`, it is `Date.now()` of JavaScript.
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> SystemTime {
        system_time()
    }
}

/// How the extractors and the layer read a body.
#[cfg(any(feature = "actix", feature = "axum", feature = "tower"))]
pub(super) struct ReadLimits {
    pub(super) timeout: Duration,
    /// The memory for all unverified bodies, if it was set.
    pub(super) memory: Option<usize>,
    /// The bytes that are held now.
    pub(super) held: Arc<std::sync::atomic::AtomicUsize>,
}

#[cfg(any(feature = "actix", feature = "axum", feature = "tower"))]
impl Default for ReadLimits {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(5),
            memory: None,
            held: Arc::default(),
        }
    }
}

#[cfg(test)]
mod tests;
