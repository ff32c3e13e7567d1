//! How a delivery is signed, and what a fault does to the signed delivery.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::HeaderMap;

use super::fault::{DeliveryFault, DeliveryFaultKind};
use crate::ConfigError;
use crate::Timestamp;
use crate::webhooks::{EventType, Signer};

/// How long ago a stale delivery is signed: a second more than receivers accept (interface section 5).
const STALE: Duration = Duration::from_secs(301);

/// The clock that `webhook-timestamp` is taken from.
///
/// Everything else follows the mock's clock either way: when an attempt is made, and the `created_at` of the event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
pub(super) struct SignedDelivery {
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// The signer of an endpoint, and one with another secret.
#[derive(Clone, Debug)]
pub(super) struct Signers {
    own: Signer,
    other: Signer,
}

impl Signers {
    /// Creates the signers for an endpoint with this secret.
    pub(super) fn new(secret: &str) -> Result<Self, ConfigError> {
        Ok(Self {
            own: Signer::new(secret)?,
            other: Signer::new(format!("{secret}-of-another-endpoint"))?,
        })
    }

    /// Signs `body` for `time`. Returns the headers and the body to send.
    pub(super) fn sign(
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
    pub(super) fn problem(&self, delivery: &SignedDelivery, time: SystemTime) -> Option<String> {
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
