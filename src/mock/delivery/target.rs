//! The target of a delivery: how an event is signed, what a fault changes of it, and how it is posted.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response};
use http_body_util::Full;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Endpoints;
use crate::causes::with_causes;
use crate::mock::faults::{Counted, check_times};
use crate::mock::http::{self as client, HttpUrl};
use crate::mock::journal::header_texts;
use crate::mock::text::quoted_list;
use crate::webhooks::{EventType, Signer};
use crate::{ConfigError, Timestamp};

/// The URL that events are posted to, and the signer for them. Cheap to clone.
#[derive(Clone, Debug)]
pub(in crate::mock) struct Target(Arc<TargetInner>);

#[derive(Debug)]
struct TargetInner {
    url: HttpUrl,
    signers: Signers,
}

impl Target {
    /// Creates a target from a URL and a signing secret.
    ///
    /// # Errors
    ///
    /// A message for the test's author, if the URL is not a plain `http://…` URL or the secret is unusable.
    pub(in crate::mock) fn new(url: &str, secret: &str) -> Result<Self, String> {
        let parsed = HttpUrl::parse(url)?;
        let signers = Signers::new(secret)
            .map_err(|error| format!("the secret for {url:?} cannot be used: {error}"))?;

        Ok(Self(Arc::new(TargetInner {
            url: parsed,
            signers,
        })))
    }

    /// Signs `body` with the timestamp `signed_at`, applies the fault, and posts it at `at`, both by the signing clock.
    ///
    /// The error of the result is a text for the attempt log: no complete response arrived within `timeout`.
    pub(super) async fn deliver(
        &self,
        event_type: &str,
        at: i64,
        signed_at: i64,
        body: Bytes,
        fault: Option<&DeliveryFault>,
        timeout: Duration,
    ) -> Delivered {
        let signed_at = system_time(signed_at);
        let delivery = self.0.signers.sign(event_type, signed_at, body, fault);
        let signature_problem = self.0.signers.problem(&delivery, system_time(at));
        let request = self.0.request(&delivery);
        let headers = request.as_ref().map(Request::headers);
        let mut transcript = Transcript {
            target: self.clone(),
            headers: headers.map(header_texts).unwrap_or_default(),
            body: delivery.body,
            signed: delivery.signed,
            response: None,
        };
        let response = self.post(request, timeout).await.map(|response| {
            let status = response.status().as_u16();
            transcript.response = Some(ReceivedResponse {
                headers: header_texts(response.headers()),
                body: response.into_body(),
            });
            status
        });
        Delivered {
            signature_problem,
            response,
            transcript,
        }
    }

    async fn post(
        &self,
        request: Result<DeliveryRequest, http::Error>,
        timeout: Duration,
    ) -> Result<Response<Bytes>, String> {
        match tokio::time::timeout(timeout, self.0.send(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(with_causes(&*error)),
            Err(_) => Err(format!(
                "timed out after {timeout:?} waiting for the complete response"
            )),
        }
    }
}

/// How an attempt ended.
pub(super) struct Delivered {
    /// The reason for which a receiver has to reject the delivery, if its signature is invalid or too old.
    pub(super) signature_problem: Option<String>,
    /// The status of the response, or the reason that no complete response arrived.
    pub(super) response: Result<u16, String>,
    pub(super) transcript: Transcript,
}

/// Bytes kept of the body of a receiver's response.
const RESPONSE_KEPT: usize = 64 * 1024;

/// The request of an attempt and its response.
#[derive(Clone, Debug)]
pub(in crate::mock) struct Transcript {
    target: Target,
    pub(in crate::mock) headers: Vec<(String, String)>,
    pub(in crate::mock) body: Bytes,
    signed: SignedContent,
    /// `None` if no complete response arrived.
    pub(in crate::mock) response: Option<ReceivedResponse>,
}

/// The response of a receiver.
#[derive(Clone, Debug)]
pub(in crate::mock) struct ReceivedResponse {
    pub(in crate::mock) headers: Vec<(String, String)>,
    /// At most [`RESPONSE_KEPT`] bytes.
    pub(in crate::mock) body: Bytes,
}

impl Transcript {
    pub(in crate::mock) fn url(&self) -> String {
        self.target.0.url.to_string()
    }

    /// Returns the bytes that the signature was made from: the timestamp, a period and the body (interface section 5).
    pub(in crate::mock) fn signed_bytes(&self) -> Vec<u8> {
        let SignedContent { timestamp, body } = &self.signed;
        [timestamp.to_string().as_bytes(), b".", body].concat()
    }

    #[cfg(test)]
    pub(super) fn of_body(target: &Target, body: Bytes) -> Self {
        Self {
            target: target.clone(),
            headers: Vec::new(),
            body: body.clone(),
            signed: SignedContent { timestamp: 0, body },
            response: None,
        }
    }

    /// Returns about how many bytes of memory this takes up, as if it shared none with other attempts.
    pub(super) fn size(&self) -> usize {
        let texts = |headers: &[(String, String)]| -> usize {
            let sizes = headers
                .iter()
                .map(|(name, value)| size_of::<(String, String)>() + name.len() + value.len());
            sizes.sum()
        };
        let response = self.response.as_ref();
        size_of::<Self>()
            + texts(&self.headers)
            + self.body.len()
            + response.map_or(0, |response| texts(&response.headers) + response.body.len())
    }
}

/// Writes the URL. The secret is not shown.
impl Serialize for Target {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0.url)
    }
}

type DeliveryRequest = Request<Full<Bytes>>;

impl TargetInner {
    fn request(&self, delivery: &SignedDelivery) -> Result<DeliveryRequest, http::Error> {
        let SignedDelivery { headers, body, .. } = delivery;
        let mut headers = headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CONTENT_LENGTH, body.len().into());
        self.url
            .request(Method::POST, headers, Full::new(body.clone()))
    }

    async fn send(
        &self,
        request: Result<DeliveryRequest, http::Error>,
    ) -> Result<Response<Bytes>, Box<dyn Error + Send + Sync>> {
        let stream = self.url.connect().await?;
        client::exchange(stream, request?, RESPONSE_KEPT, usize::MAX).await
    }
}

/// Returns the time for which a stale delivery is signed at `time`: a second more from it than receivers accept
/// (interface section 5). Shortly after 1970 it is later, because the header has no times before.
fn outside_the_window(time: SystemTime) -> SystemTime {
    const STALE: Duration = Duration::from_secs(301);
    let earlier = time.checked_sub(STALE);
    let earlier = earlier.filter(|earlier| *earlier >= UNIX_EPOCH);
    earlier
        .or_else(|| time.checked_add(STALE))
        .unwrap_or(UNIX_EPOCH)
}

/// The clock that sets `webhook-timestamp`.
///
/// Everything else follows the mock's clock either way: when an attempt is made, and the `created_at` of the event.
///
/// Each attempt of an event has a timestamp of its own (interface section 5). So attempts in the same second, such as a
/// duplicate, are signed a few seconds ahead, and up to a minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum SigningClock {
    /// The mock's clock. A receiver needs it too: see [`MockServer::clock`](crate::mock::MockServer::clock).
    #[default]
    Mock,
    /// The system's clock. A receiver that cannot use the mock's clock, such as one in another process, accepts the
    /// deliveries that are made while the mock's clock is moved through five hours.
    Wall,
}

impl SigningClock {
    /// Returns the time by this clock when it is `at` by the mock's clock.
    pub(super) fn time(self, at: i64) -> i64 {
        match self {
            Self::Mock => at,
            Self::Wall => Timestamp::now().as_unix(),
        }
    }
}

fn system_time(seconds: i64) -> SystemTime {
    let time = Timestamp::from_unix(seconds);
    time.try_into().unwrap_or(UNIX_EPOCH)
}

/// The age at which receivers reject a delivery, and how early it can be (interface section 5).
const TOLERANCE: u64 = 300;

/// A delivery as it is sent.
#[derive(Debug)]
struct SignedDelivery {
    headers: HeaderMap,
    body: Bytes,
    signed: SignedContent,
}

/// The bytes that the signature of a delivery was made from. A fault can change the delivery afterwards.
#[derive(Clone, Debug)]
struct SignedContent {
    timestamp: u64,
    body: Bytes,
}

/// The signer of an endpoint, and one with another secret.
#[derive(Clone, Debug)]
struct Signers {
    own: Signer,
    other: Signer,
}

impl Signers {
    /// Creates the signers for an endpoint with this secret.
    fn new(secret: &str) -> Result<Self, ConfigError> {
        Ok(Self {
            own: Signer::new(secret)?,
            other: Signer::new(format!("{secret}-of-another-endpoint"))?,
        })
    }

    /// Signs `body` for `time`. Returns the headers and the body to send.
    fn sign(
        &self,
        event_type: &str,
        time: SystemTime,
        body: Bytes,
        fault: Option<&DeliveryFault>,
    ) -> SignedDelivery {
        let kind = fault.map(|fault| fault.kind);
        let signer = match kind {
            Some(DeliveryFaultKind::OtherSecret) => &self.other,
            _ => &self.own,
        };
        let time = match kind {
            Some(DeliveryFaultKind::Stale) => outside_the_window(time),
            _ => time,
        };
        let mut headers = signer.sign(&EventType::from(event_type), time, &body);
        if let Some(name) = fault.and_then(DeliveryFault::left_out_header) {
            headers.remove(name);
        }
        let signed = SignedContent {
            timestamp: seconds_of(time),
            body: body.clone(),
        };
        let body = match kind {
            Some(DeliveryFaultKind::Tampered) => tampered(&body),
            _ => body,
        };
        SignedDelivery {
            headers,
            body,
            signed,
        }
    }

    /// Returns the reason for which a receiver rejects a delivery at `time`, or `None` if its signature is valid and
    /// recent.
    fn problem(&self, delivery: &SignedDelivery, time: SystemTime) -> Option<String> {
        let SignedDelivery { headers, body, .. } = delivery;
        let missing = ["webhook-signature", "webhook-timestamp"]
            .into_iter()
            .find(|name| !headers.contains_key(*name));
        if let Some(name) = missing {
            return Some(format!("the {name} header is missing"));
        }
        let seconds = delivery.signed.timestamp;
        let signed_at = UNIX_EPOCH + Duration::from_secs(seconds);
        let expected = self.own.sign(&EventType::Sent, signed_at, body);
        if headers["webhook-signature"] != expected["webhook-signature"] {
            return Some(
                "the signature does not match the endpoint's secret, the timestamp and the body"
                    .to_owned(),
            );
        }
        let skew = seconds_of(time).abs_diff(seconds);
        (skew > TOLERANCE).then(|| {
            format!(
                "the delivery was signed {skew} s ago; receivers reject more than {TOLERANCE} s"
            )
        })
    }
}

fn seconds_of(time: SystemTime) -> u64 {
    let since_1970 = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    since_1970.as_secs()
}

/// Adds a member to the envelope, so that it is still valid JSON.
fn tampered(envelope: &[u8]) -> Bytes {
    let members = envelope.strip_suffix(b"}").unwrap_or(envelope);
    [members, br#","tampered":true}"#].concat().into()
}

/// The headers of a delivery that a fault can leave out (interface section 5).
const HEADERS: [&str; 3] = ["webhook-signature", "webhook-timestamp", "webhook-event"];

/// A fault for the next webhook deliveries that match.
///
/// Add it with [`MockServer::delivery_fault`](crate::mock::MockServer::delivery_fault). A fault applies once, unless
/// [`times`](Self::times) says otherwise. [`endpoint`](Self::endpoint) and [`event_type`](Self::event_type) limit the
/// deliveries it applies to. If several faults match an attempt, the one that was added first applies.
///
/// Afterwards the schedule continues. If a receiver rejects a stale or tampered delivery, that attempt has failed, and
/// the next one, 35 seconds after a first attempt, is genuine. If a receiver accepts it, it does not get the event
/// again. [`DeliveryAttempt::fault`](crate::mock::DeliveryAttempt::fault) names the fault of an attempt.
///
/// # Example: a receiver that does not verify deliveries
///
/// ```
/// # use audience::mock::{DeliveryFault, Fault, MockServer};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # let receiver = MockServer::start().await;
/// # receiver.fault(Fault::status(204));
/// # let server = MockServer::start().await;
/// # server.webhook_endpoint(format!("{}/hook", receiver.url()), "a-secret-of-the-test");
/// server.delivery_fault(DeliveryFault::tampered());
///
/// server.send_event(serde_json::json!({"type": "email.bounced"})).await;
///
/// let attempt = &server.attempts()[0];
/// assert!(attempt.fault == Some("tampered") && attempt.is_success(), "it accepted a forged delivery");
/// # }
/// ```
///
/// # Example: a fault in JSON
///
/// The control plane uses the same names. `serde` reads and writes them:
///
/// ```
/// # use audience::mock::DeliveryFault;
/// # fn main() -> Result<(), serde_json::Error> {
/// let fault: DeliveryFault = serde_json::from_str(r#"{"kind": "other_secret", "times": 2}"#)?;
///
/// assert_eq!(fault, DeliveryFault::other_secret().times(2));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "mock-server", derive(clap::Args))]
#[must_use = "a fault has no effect until it is given to `MockServer::delivery_fault`"]
pub struct DeliveryFault {
    /// Make the delivery go wrong in this way
    #[cfg_attr(feature = "mock-server", arg(value_name = "KIND"))]
    pub(super) kind: DeliveryFaultKind,
    /// With `missing_header`, leave out this header [default: webhook-signature]
    #[cfg_attr(
        feature = "mock-server",
        arg(long, value_name = "NAME", value_parser = delivery_header)
    )]
    #[serde(
        default,
        serialize_with = "write_header",
        deserialize_with = "read_header",
        skip_serializing_if = "Option::is_none"
    )]
    header: Option<HeaderName>,
    /// Affect this number of attempts
    #[cfg_attr(feature = "mock-server", arg(long, value_name = "N", default_value_t = once()))]
    #[serde(default = "once")]
    times: u64,
    /// Affect only deliveries to the endpoint with this name
    #[cfg_attr(feature = "mock-server", arg(long, value_name = "NAME"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    endpoint: Option<String>,
    /// Affect only events of this type
    #[cfg_attr(feature = "mock-server", arg(long, value_name = "TYPE"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    event_type: Option<EventType>,
}

/// The effect of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "mock-server", derive(clap::ValueEnum))]
#[cfg_attr(feature = "mock-server", value(rename_all = "snake_case"))]
pub(super) enum DeliveryFaultKind {
    /// Deliver the event once more after an attempt that succeeded
    Duplicate,
    /// Deliver the next two events in the opposite order
    Reorder,
    /// Sign for a time 301 seconds ago
    Stale,
    /// Change the body after it is signed
    Tampered,
    /// Sign with another secret
    #[cfg_attr(feature = "mock-server", value(alias = "other-secret"))]
    OtherSecret,
    /// Leave out a header
    #[cfg_attr(feature = "mock-server", value(alias = "missing-header"))]
    MissingHeader,
}

impl DeliveryFault {
    /// Creates a fault that delivers an event once more although the receiver acknowledged it.
    ///
    /// It applies to the next attempt that succeeds. The duplicate follows immediately, has the same `id`, is genuine
    /// and is not retried.
    ///
    /// # Example: an event that arrives twice
    ///
    /// ```
    /// # use audience::mock::{DeliveryFault, MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let receiver = MockServer::start().await;
    /// # let server = MockServer::start().await;
    /// # server.webhook_endpoint(format!("{}/hook", receiver.url()), "a-secret-of-the-test");
    /// # receiver.fault(audience::mock::Fault::status(204));
    /// server.delivery_fault(DeliveryFault::duplicate());
    ///
    /// let id = server.send_event(serde_json::json!({"type": "email.opened"})).await;
    ///
    /// let delivered: Vec<_> = server.attempts().into_iter().map(|attempt| attempt.event_id).collect();
    /// assert_eq!(delivered, [id.clone(), id]);
    /// # }
    /// ```
    pub fn duplicate() -> Self {
        Self::new(DeliveryFaultKind::Duplicate)
    }

    /// Creates a fault that delivers the next two events of an endpoint in the opposite order.
    ///
    /// The first attempt for an event is held back until a later event has been attempted at the endpoint. If there is
    /// none, it is made 35 seconds later by the mock's clock. [`send_event`](crate::mock::MockServer::send_event) does
    /// not wait for an event that is held back.
    ///
    /// # Example: a click that arrives before the open
    ///
    /// ```
    /// # use audience::mock::{DeliveryFault, MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let receiver = MockServer::start().await;
    /// # let server = MockServer::start().await;
    /// # server.webhook_endpoint(format!("{}/hook", receiver.url()), "a-secret-of-the-test");
    /// server.delivery_fault(DeliveryFault::reorder());
    ///
    /// server.send_event(serde_json::json!({"type": "email.opened"})).await;
    /// server.send_event(serde_json::json!({"type": "email.clicked"})).await;
    ///
    /// let delivered: Vec<_> = server.attempts().into_iter().map(|attempt| attempt.event_id).collect();
    /// assert_eq!(delivered, ["evt_2", "evt_1"]);
    /// # }
    /// ```
    pub fn reorder() -> Self {
        Self::new(DeliveryFaultKind::Reorder)
    }

    /// Creates a fault that signs an attempt for a time 301 seconds ago. A receiver has to reject it as too late
    /// ([interface section 5](crate::interface#5)).
    ///
    /// # Example: a delivery that is just too old
    ///
    /// ```
    /// # use audience::mock::{DeliveryFault, MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let receiver = MockServer::start().await;
    /// # let server = MockServer::start().await;
    /// # server.webhook_endpoint(format!("{}/hook", receiver.url()), "a-secret-of-the-test");
    /// server.delivery_fault(DeliveryFault::stale());
    ///
    /// server.send_event(serde_json::json!({"type": "email.opened"})).await;
    ///
    /// let problem = server.attempts()[0].signature_problem.clone().expect("it is too old");
    /// assert!(problem.contains("signed 301 s ago"), "{problem}");
    /// # }
    /// ```
    pub fn stale() -> Self {
        Self::new(DeliveryFaultKind::Stale)
    }

    /// Creates a fault that adds `"tampered": true` to the envelope after it is signed. The signature does not match.
    ///
    /// # Example: a body that was changed on the way
    ///
    /// ```
    /// # use audience::mock::{DeliveryFault, MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let receiver = MockServer::start().await;
    /// # let server = MockServer::start().await;
    /// # server.webhook_endpoint(format!("{}/hook", receiver.url()), "a-secret-of-the-test");
    /// server.delivery_fault(DeliveryFault::tampered());
    ///
    /// server.send_event(serde_json::json!({"type": "email.opened"})).await;
    ///
    /// let body = receiver.requests()[0].json().expect("the body is still JSON");
    /// assert_eq!(body["tampered"], true);
    /// assert!(server.attempts()[0].signature_problem.is_some());
    /// # }
    /// ```
    pub fn tampered() -> Self {
        Self::new(DeliveryFaultKind::Tampered)
    }

    /// Creates a fault that signs an attempt with another secret. The signature does not match.
    ///
    /// # Example: a forged delivery
    ///
    /// ```
    /// # use audience::mock::{DeliveryFault, MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let receiver = MockServer::start().await;
    /// # let server = MockServer::start().await;
    /// # server.webhook_endpoint(format!("{}/hook", receiver.url()), "a-secret-of-the-test");
    /// server.delivery_fault(DeliveryFault::other_secret());
    ///
    /// server.send_event(serde_json::json!({"type": "email.opened"})).await;
    ///
    /// let attempt = &server.attempts()[0];
    /// assert_eq!(attempt.fault, Some("other_secret"));
    /// assert!(!attempt.is_success(), "the receiver accepted a forged delivery");
    /// # }
    /// ```
    pub fn other_secret() -> Self {
        Self::new(DeliveryFaultKind::OtherSecret)
    }

    /// Creates a fault that leaves out one of the headers `webhook-signature`, `webhook-timestamp` and
    /// `webhook-event`.
    ///
    /// A receiver has to reject a delivery that lacks one of the first two. The third is not signed, so a receiver must
    /// accept a delivery without it.
    ///
    /// # Panics
    ///
    /// Panics if `name` is another header.
    ///
    /// # Example: a delivery without a timestamp
    ///
    /// ```
    /// # use audience::mock::{DeliveryFault, MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let receiver = MockServer::start().await;
    /// # let server = MockServer::start().await;
    /// # server.webhook_endpoint(format!("{}/hook", receiver.url()), "a-secret-of-the-test");
    /// server.delivery_fault(DeliveryFault::missing_header("webhook-timestamp"));
    ///
    /// server.send_event(serde_json::json!({"type": "email.opened"})).await;
    ///
    /// let delivery = &receiver.requests()[0];
    /// assert!(delivery.header("webhook-signature").is_some());
    /// assert!(delivery.header("webhook-timestamp").is_none());
    /// # }
    /// ```
    #[track_caller]
    pub fn missing_header(name: impl AsRef<str>) -> Self {
        let header = delivery_header(name.as_ref()).unwrap_or_else(|problem| panic!("{problem}"));
        Self {
            header: Some(header),
            ..Self::new(DeliveryFaultKind::MissingHeader)
        }
    }

    fn new(kind: DeliveryFaultKind) -> Self {
        Self {
            kind,
            header: None,
            times: once(),
            endpoint: None,
            event_type: None,
        }
    }

    /// Sets how often the fault applies, at least once. Default: 1.
    ///
    /// # Example: two forged deliveries, then a genuine one
    ///
    /// ```
    /// # use audience::mock::{DeliveryFault, MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let receiver = MockServer::start().await;
    /// # let server = MockServer::start().await;
    /// # server.webhook_endpoint(format!("{}/hook", receiver.url()), "a-secret-of-the-test");
    /// server.delivery_fault(DeliveryFault::other_secret().times(2));
    ///
    /// for _ in 0..3 {
    ///     server.send_event(serde_json::json!({"type": "email.opened"})).await;
    /// }
    ///
    /// let faults: Vec<_> = server.attempts().into_iter().map(|attempt| attempt.fault).collect();
    /// assert_eq!(faults, [Some("other_secret"), Some("other_secret"), None]);
    /// # }
    /// ```
    pub fn times(mut self, times: u64) -> Self {
        self.times = times;
        self
    }

    /// Limits the fault to the endpoint with this name. Default: any endpoint.
    ///
    /// The name is the URL if the endpoint was added in Rust, and otherwise what the seed or the control plane calls it.
    /// Add the endpoint before the fault.
    ///
    /// # Example: one of two receivers gets a forged delivery
    ///
    /// ```
    /// # use audience::mock::{DeliveryFault, MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let receiver = MockServer::start().await;
    /// # let server = MockServer::start().await;
    /// # server.webhook_endpoint(format!("{}/hook", receiver.url()), "a-secret-of-the-test");
    /// let (first, second) = (format!("{}/first", receiver.url()), format!("{}/second", receiver.url()));
    /// server.webhook_endpoint(&first, "a-secret-of-the-test");
    /// server.webhook_endpoint(&second, "a-secret-of-the-test");
    /// server.delivery_fault(DeliveryFault::tampered().endpoint(&second));
    ///
    /// server.send_event(serde_json::json!({"type": "email.opened"})).await;
    ///
    /// let mut attempts = server.attempts().into_iter();
    /// assert!(attempts.all(|attempt| attempt.fault.is_some() == (attempt.endpoint == second)));
    /// # }
    /// ```
    pub fn endpoint(mut self, name: impl Into<String>) -> Self {
        self.endpoint = Some(name.into());
        self
    }

    /// Limits the fault to events of this type, such as `email.bounced`. Default: any type.
    ///
    /// It must be one of [`EventType::KNOWN`].
    ///
    /// # Example: only bounces are delivered twice
    ///
    /// ```
    /// # use audience::mock::{DeliveryFault, MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let receiver = MockServer::start().await;
    /// # let server = MockServer::start().await;
    /// # server.webhook_endpoint(format!("{}/hook", receiver.url()), "a-secret-of-the-test");
    /// # receiver.fault(audience::mock::Fault::status(204));
    /// server.delivery_fault(DeliveryFault::duplicate().event_type("email.bounced"));
    ///
    /// server.send_event(serde_json::json!({"type": "email.opened"})).await;
    /// assert_eq!(server.attempts().len(), 1);
    ///
    /// server.send_event(serde_json::json!({"type": "email.bounced"})).await;
    /// assert_eq!(server.attempts().len(), 3);
    /// # }
    /// ```
    pub fn event_type(mut self, event_type: impl Into<EventType>) -> Self {
        self.event_type = Some(event_type.into());
        self
    }

    /// Fails if no delivery can match the fault, or if it has a header although its kind needs none.
    pub(super) fn check(&self, endpoints: &Endpoints) -> Result<(), String> {
        if self.header.is_some() && self.kind != DeliveryFaultKind::MissingHeader {
            return Err("`header` needs the kind `missing_header`".to_owned());
        }
        check_times(Some(self.times))?;
        if let Some(wanted) = &self.endpoint
            && !endpoints.names().any(|name| name == wanted)
        {
            let names: Vec<_> = endpoints.names().collect();
            let known = match &names[..] {
                [] => "add it first".to_owned(),
                names => format!("add it first, or use {}", quoted_list(names)),
            };
            return Err(format!("there is no endpoint {wanted:?}; {known}"));
        }
        if let Some(EventType::Other(unknown)) = &self.event_type {
            let known: Vec<_> = EventType::KNOWN.iter().map(EventType::as_str).collect();
            let known = quoted_list(&known);
            return Err(format!(
                "`event_type` must be one of {known}, not {unknown:?}"
            ));
        }
        Ok(())
    }

    /// Returns the header that is left out, if this fault leaves one out.
    fn left_out_header(&self) -> Option<HeaderName> {
        let [signature, ..] = HEADERS;
        let default = || HeaderName::from_static(signature);
        (self.kind == DeliveryFaultKind::MissingHeader)
            .then(|| self.header.clone().unwrap_or_else(default))
    }

    pub(super) fn matches(&self, endpoint: &str, event_type: &str) -> bool {
        self.endpoint
            .as_ref()
            .is_none_or(|wanted| wanted == endpoint)
            && self
                .event_type
                .as_ref()
                .is_none_or(|wanted| wanted.as_str() == event_type)
    }
}

impl DeliveryFaultKind {
    /// Returns the name of the fault in the attempt log, which is the one in JSON.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Duplicate => "duplicate",
            Self::Reorder => "reorder",
            Self::Stale => "stale",
            Self::Tampered => "tampered",
            Self::OtherSecret => "other_secret",
            Self::MissingHeader => "missing_header",
        }
    }
}

impl Counted for DeliveryFault {
    fn times(&mut self) -> Option<&mut u64> {
        Some(&mut self.times)
    }
}

fn once() -> u64 {
    1
}

/// Returns a header that a fault can leave out, or a message if a delivery has no such header.
fn delivery_header(name: &str) -> Result<HeaderName, String> {
    let [signature, timestamp, event] = HEADERS;
    match HEADERS
        .into_iter()
        .find(|known| known.eq_ignore_ascii_case(name))
    {
        Some(known) => Ok(HeaderName::from_static(known)),
        None => Err(format!(
            "a delivery has no header {name:?} to leave out; use {signature}, {timestamp} or {event}"
        )),
    }
}

fn write_header<S: Serializer>(
    header: &Option<HeaderName>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    header
        .as_ref()
        .map(HeaderName::as_str)
        .serialize(serializer)
}

fn read_header<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<HeaderName>, D::Error> {
    let name = Option::<String>::deserialize(deserializer)?;
    name.map(|name| delivery_header(&name).map_err(D::Error::custom))
        .transpose()
}

#[cfg(test)]
mod tests {
    use hmac::{Hmac, KeyInit as _, Mac as _};
    use serde_json::json;
    use sha2::Sha256;

    use super::*;
    use crate::mock::faults::Active;

    #[test]
    fn debug_output_does_not_contain_the_secret() {
        let target = Target::new("http://localhost", "a-secret-of-the-test").unwrap();

        assert!(!format!("{target:?}").contains("a-secret-of-the-test"));
    }

    const BODY: &[u8] = br#"{"id":"evt_1","data":{}}"#;

    fn sign(fault: Option<&DeliveryFault>) -> (HeaderMap, Bytes) {
        let signers = Signers::new("6Jm0nFq2pXvZk4Tt").unwrap();
        let time = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let signed = signers.sign("email.sent", time, BODY.into(), fault);
        (signed.headers, signed.body)
    }

    #[test]
    fn each_fault_changes_one_thing() {
        let (genuine, body) = sign(None);
        assert_eq!((body.as_ref(), genuine.len()), (BODY, 3));

        let (stale, body) = sign(Some(&DeliveryFault::stale()));
        assert_eq!(stale["webhook-timestamp"], "1699999699");
        assert_eq!(body, BODY);

        let (tampered, body) = sign(Some(&DeliveryFault::tampered()));
        assert_eq!(tampered, genuine);
        assert_eq!(body, r#"{"id":"evt_1","data":{},"tampered":true}"#);

        let (other, body) = sign(Some(&DeliveryFault::other_secret()));
        assert_ne!(other["webhook-signature"], genuine["webhook-signature"]);
        assert_eq!(other["webhook-timestamp"], genuine["webhook-timestamp"]);
        assert_eq!(body, BODY);

        let without = DeliveryFault::missing_header("webhook-timestamp");
        let (incomplete, body) = sign(Some(&without));
        assert_eq!((body.as_ref(), incomplete.len()), (BODY, 2));
        assert!(!incomplete.contains_key("webhook-timestamp"));
    }

    #[test]
    fn a_delivery_that_receivers_reject_has_a_problem() {
        let signers = Signers::new("6Jm0nFq2pXvZk4Tt").unwrap();
        let time = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let problem = |fault: Option<&DeliveryFault>| {
            let signed = signers.sign("email.sent", time, BODY.into(), fault);
            signers.problem(&signed, time)
        };
        let without = |name| DeliveryFault::missing_header(name);

        assert_eq!(problem(None), None);
        assert_eq!(problem(Some(&without("webhook-event"))), None);
        for (fault, reason) in [
            (DeliveryFault::stale(), "the delivery was signed 301 s ago"),
            (DeliveryFault::tampered(), "does not match"),
            (DeliveryFault::other_secret(), "does not match"),
            (
                without("webhook-signature"),
                "webhook-signature header is missing",
            ),
            (
                without("webhook-timestamp"),
                "webhook-timestamp header is missing",
            ),
        ] {
            let problem = problem(Some(&fault)).unwrap_or_default();
            assert!(problem.contains(reason), "{fault:?}: {problem}");
        }
        let genuine = signers.sign("email.sent", time, BODY.into(), None);
        for (skew, is_valid) in [(300, true), (301, false)] {
            let later = time + Duration::from_secs(skew);
            assert_eq!(
                signers.problem(&genuine, later).is_none(),
                is_valid,
                "{skew}"
            );
        }
    }

    #[test]
    fn the_signature_of_every_delivery_is_made_from_the_signed_bytes() {
        let signers = Signers::new("6Jm0nFq2pXvZk4Tt").unwrap();
        let time = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let target = Target::new("http://localhost", "6Jm0nFq2pXvZk4Tt").unwrap();
        for (fault, timestamp) in [
            (None, 1_700_000_000),
            (Some(DeliveryFault::stale()), 1_699_999_699),
            (Some(DeliveryFault::tampered()), 1_700_000_000),
            (
                Some(DeliveryFault::missing_header("webhook-timestamp")),
                1_700_000_000,
            ),
        ] {
            let delivery = signers.sign("email.sent", time, BODY.into(), fault.as_ref());
            let signature = delivery.headers["webhook-signature"].clone();
            let transcript = Transcript {
                signed: delivery.signed,
                ..Transcript::of_body(&target, delivery.body)
            };

            let signed = transcript.signed_bytes();

            let expected = format!("{timestamp}.{}", std::str::from_utf8(BODY).unwrap());
            assert_eq!(signed, expected.as_bytes(), "{fault:?}");
            let mut mac = Hmac::<Sha256>::new_from_slice(b"6Jm0nFq2pXvZk4Tt").unwrap();
            mac.update(&signed);
            let mac = hex::encode(mac.finalize().into_bytes());
            assert_eq!(signature, mac, "{fault:?}");
        }
    }

    #[test]
    fn a_stale_delivery_is_stale_near_1970_too() {
        let signers = Signers::new("6Jm0nFq2pXvZk4Tt").unwrap();
        for (now, timestamp) in [(0, "301"), (300, "601"), (301, "0"), (302, "1")] {
            let time = system_time(now);

            let stale = DeliveryFault::stale();
            let signed = signers.sign("email.sent", time, BODY.into(), Some(&stale));

            assert_eq!(signed.headers["webhook-timestamp"], timestamp);
            assert!(signers.problem(&signed, time).is_some(), "{now}");
        }
        let stale = DeliveryFault::stale();
        signers.sign(
            "email.sent",
            system_time(i64::MIN),
            BODY.into(),
            Some(&stale),
        );
    }

    #[test]
    fn the_wall_clock_ignores_the_mocks_clock() {
        let wall = SigningClock::Wall.time(5);

        assert!(wall > 1_000_000_000);
        assert_eq!(SigningClock::Mock.time(5), 5);
    }

    fn names(faults: &mut Active<DeliveryFault>, attempts: &[(&str, &str)]) -> Vec<&'static str> {
        attempts
            .iter()
            .map(|(endpoint, event_type)| {
                let taken = faults.take(|fault| fault.matches(endpoint, event_type));
                taken.map_or("none", |fault| fault.kind.name())
            })
            .collect()
    }

    #[test]
    fn a_used_up_fault_is_followed_by_the_next() {
        let mut faults = Active::default();
        faults.add(DeliveryFault::stale().times(2));
        faults.add(DeliveryFault::tampered());

        let taken = names(&mut faults, &[("crm", "email.sent"); 4]);

        assert_eq!(taken, ["stale", "stale", "tampered", "none"]);
    }

    #[test]
    fn a_fault_applies_only_to_its_endpoint_and_type() {
        let mut faults = Active::default();
        let fault = DeliveryFault::other_secret();
        faults.add(fault.endpoint("crm").event_type("email.sent"));

        let attempts = [
            ("crm", "email.opened"),
            ("log", "email.sent"),
            ("crm", "email.sent"),
        ];

        assert_eq!(
            names(&mut faults, &attempts),
            ["none", "none", "other_secret"]
        );
    }

    #[test]
    fn a_header_is_named_in_any_case_and_must_be_one_of_a_delivery() {
        assert!(delivery_header("Webhook-Signature").is_ok());

        let error = delivery_header("content-type").unwrap_err();

        assert!(error.contains("use webhook-signature"), "{error}");
    }

    #[test]
    fn a_fault_has_the_same_name_in_the_log_and_in_json() {
        for fault in [
            DeliveryFault::duplicate(),
            DeliveryFault::reorder(),
            DeliveryFault::stale(),
            DeliveryFault::tampered(),
            DeliveryFault::other_secret(),
            DeliveryFault::missing_header("webhook-event"),
        ] {
            let json = serde_json::to_value(&fault).unwrap();

            assert_eq!(json["kind"], fault.kind.name());
            let read: DeliveryFault = serde_json::from_value(json).unwrap();
            assert_eq!(read, fault);
        }
        let left_out = json!({"kind": "missing_header"});
        let fault: DeliveryFault = serde_json::from_value(left_out).unwrap();
        assert_eq!(fault.left_out_header().unwrap(), "webhook-signature");
    }
}
