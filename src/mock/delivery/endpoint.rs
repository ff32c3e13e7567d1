//! The endpoints that events are delivered to, and how a delivery is signed and posted.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method};
use http_body_util::Full;
use serde::{Deserialize, Serialize};

use super::fault::{DeliveryFault, DeliveryFaultKind};
use crate::ConfigError;
use crate::Timestamp;
use crate::mock::http::{self as client, HttpUrl, error_chain};
use crate::webhooks::{EventType, Signer};

/// The webhook endpoints, in the order they were added.
#[derive(Clone, Debug, Default)]
pub(in crate::mock) struct Endpoints {
    list: Vec<Endpoint>,
    last_number: u64,
}

/// A named place that events are delivered to.
#[derive(Clone, Debug)]
pub(in crate::mock) struct Endpoint {
    /// Counted from 1. The number of a removed endpoint is not used again.
    pub(in crate::mock) number: u64,
    pub(in crate::mock) name: String,
    pub(in crate::mock) target: Target,
}

impl Endpoints {
    /// Adds an endpoint, or changes the URL and the secret of the endpoint with this name.
    pub(in crate::mock) fn put(&mut self, name: &str, target: Target) {
        if let Some(endpoint) = self.list.iter_mut().find(|endpoint| endpoint.name == name) {
            endpoint.target = target;
            return;
        }
        self.last_number += 1;
        self.list.push(Endpoint {
            number: self.last_number,
            name: name.to_owned(),
            target,
        });
    }

    /// Removes an endpoint and returns its number, or returns `None` if no endpoint has this name.
    pub(in crate::mock) fn remove(&mut self, name: &str) -> Option<u64> {
        let index = self
            .list
            .iter()
            .position(|endpoint| endpoint.name == name)?;
        Some(self.list.remove(index).number)
    }

    /// Finds an endpoint by its number.
    pub(in crate::mock) fn find(&self, number: u64) -> Option<&Endpoint> {
        self.list.iter().find(|endpoint| endpoint.number == number)
    }

    /// Returns the endpoints, in the order they were added.
    pub(in crate::mock) fn iter(&self) -> impl Iterator<Item = &Endpoint> {
        self.list.iter()
    }

    /// Returns the number of every endpoint, in the order they were added.
    pub(in crate::mock) fn numbers(&self) -> impl ExactSizeIterator<Item = u64> {
        self.list.iter().map(|endpoint| endpoint.number)
    }
}

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

    /// Signs `body` for the time `at`, applies the fault, and posts it.
    ///
    /// Returns the reason that a receiver refuses the delivery at `at`, if its signature is invalid or too old, and the
    /// status of the response. The error is a text for the attempt log: no complete response arrived within `timeout`.
    pub(super) async fn deliver(
        &self,
        event_type: &str,
        at: SystemTime,
        body: Bytes,
        fault: Option<&DeliveryFault>,
        timeout: Duration,
    ) -> (Option<String>, Result<u16, String>) {
        let delivery = self.0.signers.sign(event_type, at, body, fault);
        let problem = self.0.signers.problem(&delivery, at);
        (problem, self.post(delivery, timeout).await)
    }

    async fn post(&self, delivery: SignedDelivery, timeout: Duration) -> Result<u16, String> {
        match tokio::time::timeout(timeout, self.0.send(delivery)).await {
            Ok(Ok(status)) => Ok(status),
            Ok(Err(error)) => Err(error_chain(&*error)),
            Err(_) => Err(format!(
                "timed out after {timeout:?} waiting for the complete response"
            )),
        }
    }

    /// Returns the URL that events are posted to.
    pub(in crate::mock) fn url(&self) -> String {
        self.0.url.to_string()
    }
}

impl TargetInner {
    async fn send(&self, delivery: SignedDelivery) -> Result<u16, Box<dyn Error + Send + Sync>> {
        let SignedDelivery { mut headers, body } = delivery;
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let stream = self.url.connect().await?;
        let request = self.url.request(Method::POST, headers, Full::new(body))?;
        let status = client::exchange(stream, request).await?;
        Ok(status.as_u16())
    }
}

/// How long ago a stale delivery is signed: a second more than receivers accept (interface section 5).
const STALE: Duration = Duration::from_secs(301);

/// The clock that `webhook-timestamp` is taken from.
///
/// Everything else follows the mock's clock either way: when an attempt is made, and the `created_at` of the event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SigningClock {
    /// The mock's clock. A receiver needs it too: see [`MockServer::clock`](crate::mock::MockServer::clock).
    #[default]
    Mock,
    /// The system's clock. A receiver that cannot use the mock's clock, such as one in another process, accepts what
    /// is delivered while the mock's clock is moved through five hours.
    Wall,
}

impl SigningClock {
    /// Returns the time that an attempt at `at`, by the mock's clock, is signed with.
    pub(super) fn time(self, at: i64) -> SystemTime {
        let at = match self {
            Self::Mock => Timestamp::from_unix(at),
            Self::Wall => Timestamp::now(),
        };
        at.try_into().unwrap_or(UNIX_EPOCH)
    }
}

/// The age at which receivers refuse a delivery, and how early it can be (interface section 5).
const TOLERANCE: u64 = 300;

/// A delivery as it is sent.
#[derive(Debug)]
struct SignedDelivery {
    headers: HeaderMap,
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
            Some(DeliveryFaultKind::Stale) => time.checked_sub(STALE).unwrap_or(UNIX_EPOCH),
            _ => time,
        };
        let mut headers = signer.sign(&EventType::from(event_type), time, &body);
        if let Some(name) = fault.and_then(DeliveryFault::left_out_header) {
            headers.remove(name);
        }
        let body = match kind {
            Some(DeliveryFaultKind::Tampered) => tampered(&body),
            _ => body,
        };
        SignedDelivery { headers, body }
    }
}

impl Signers {
    /// Returns the reason that a receiver refuses a delivery at `time`, or `None` if its signature is valid and recent.
    fn problem(&self, delivery: &SignedDelivery, time: SystemTime) -> Option<String> {
        let SignedDelivery { headers, body } = delivery;
        let missing = ["webhook-signature", "webhook-timestamp"]
            .into_iter()
            .find(|name| !headers.contains_key(*name));
        if let Some(name) = missing {
            return Some(format!("the {name} header is missing"));
        }
        let timestamp = headers["webhook-timestamp"].to_str().ok();
        let Some(seconds) = timestamp.and_then(|text| text.parse().ok()) else {
            return Some("the webhook-timestamp header is not a number of seconds".to_owned());
        };
        let signed_at = UNIX_EPOCH + Duration::from_secs(seconds);
        let expected = self.own.sign(&EventType::Sent, signed_at, body);
        if headers["webhook-signature"] != expected["webhook-signature"] {
            return Some(
                "the signature does not match the endpoint's secret, the timestamp and the body"
                    .to_owned(),
            );
        }
        let now = time
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs();
        let skew = now.abs_diff(seconds);
        (skew > TOLERANCE).then(|| {
            format!("it was signed {skew} s ago, and receivers refuse more than {TOLERANCE} s")
        })
    }
}

/// Adds a member to the envelope, so that it is still valid JSON.
fn tampered(envelope: &[u8]) -> Bytes {
    let members = envelope.strip_suffix(b"}").unwrap_or(envelope);
    [members, br#","tampered":true}"#].concat().into()
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_delivery_that_receivers_refuse_has_a_problem() {
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
            (DeliveryFault::stale(), "it was signed 301 s ago"),
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
    fn a_stale_delivery_near_1970_is_signed_without_panicking() {
        let signers = Signers::new("6Jm0nFq2pXvZk4Tt").unwrap();
        let time = SigningClock::Mock.time(i64::MIN);

        let stale = Some(&DeliveryFault::stale());
        let signed = signers.sign("email.sent", time, BODY.into(), stale);

        assert_eq!(signed.headers["webhook-timestamp"], "0");
    }

    #[test]
    fn the_wall_clock_ignores_the_mocks_clock() {
        let wall = SigningClock::Wall.time(5);

        assert!(wall > UNIX_EPOCH + Duration::from_secs(1_000_000_000));
        assert_eq!(
            SigningClock::Mock.time(5),
            UNIX_EPOCH + Duration::from_secs(5)
        );
    }
}
