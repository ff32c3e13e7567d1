//! How a delivery is signed, and what a fault does to the signed delivery.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderMap, HeaderName};

use crate::Timestamp;
use crate::webhooks::{EventType, SecretError, Signer};

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
        at.to_system_time().unwrap_or(UNIX_EPOCH)
    }
}

/// What is wrong with a delivery, so that a receiver has to refuse it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::mock) enum SigningFault {
    /// It was signed 301 s ago.
    Stale,
    /// The body was changed after it was signed.
    Tampered,
    /// It was signed with another secret.
    OtherSecret,
    /// It lacks this header.
    MissingHeader(HeaderName),
}

/// The signer of an endpoint, and one with another secret.
#[derive(Clone, Debug)]
pub(super) struct Signers {
    own: Signer,
    other: Signer,
}

impl Signers {
    /// Creates the signers for an endpoint with this secret.
    pub(super) fn new(secret: &str) -> Result<Self, SecretError> {
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
        fault: Option<&SigningFault>,
    ) -> (HeaderMap, Bytes) {
        let signer = match fault {
            Some(SigningFault::OtherSecret) => &self.other,
            _ => &self.own,
        };
        let time = match fault {
            Some(SigningFault::Stale) => time.checked_sub(STALE).unwrap_or(UNIX_EPOCH),
            _ => time,
        };
        let mut headers = signer.sign(&EventType::from(event_type), time, &body);
        if let Some(SigningFault::MissingHeader(name)) = fault {
            headers.remove(name);
        }
        let body = match fault {
            Some(SigningFault::Tampered) => tampered(&body),
            _ => body,
        };
        (headers, body)
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

    fn sign(fault: Option<&SigningFault>) -> (HeaderMap, Bytes) {
        let signers = Signers::new("6Jm0nFq2pXvZk4Tt").unwrap();
        let time = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        signers.sign("email.sent", time, BODY.into(), fault)
    }

    #[test]
    fn each_fault_changes_one_thing() {
        let (genuine, body) = sign(None);
        assert_eq!((body.as_ref(), genuine.len()), (BODY, 3));

        let (stale, body) = sign(Some(&SigningFault::Stale));
        assert_eq!(stale["webhook-timestamp"], "1699999699");
        assert_eq!(body, BODY);

        let (tampered, body) = sign(Some(&SigningFault::Tampered));
        assert_eq!(tampered, genuine);
        assert_eq!(body, r#"{"id":"evt_1","data":{},"tampered":true}"#);

        let (other, body) = sign(Some(&SigningFault::OtherSecret));
        assert_ne!(other["webhook-signature"], genuine["webhook-signature"]);
        assert_eq!(other["webhook-timestamp"], genuine["webhook-timestamp"]);
        assert_eq!(body, BODY);

        let name = HeaderName::from_static("webhook-timestamp");
        let (incomplete, body) = sign(Some(&SigningFault::MissingHeader(name)));
        assert_eq!((body.as_ref(), incomplete.len()), (BODY, 2));
        assert!(!incomplete.contains_key("webhook-timestamp"));
    }

    #[test]
    fn a_stale_delivery_near_1970_is_signed_without_panicking() {
        let signers = Signers::new("6Jm0nFq2pXvZk4Tt").unwrap();
        let time = SigningClock::Mock.time(i64::MIN);

        let stale = Some(&SigningFault::Stale);
        let (headers, _) = signers.sign("email.sent", time, BODY.into(), stale);

        assert_eq!(headers["webhook-timestamp"], "0");
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
