//! Faults of deliveries: what a test lets a receiver get instead of a genuine delivery.

use http::HeaderName;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::mock::faults::Counted;
use crate::webhooks::EventType;

/// The headers of a delivery that a fault can leave out (interface section 5).
const HEADERS: [&str; 3] = ["webhook-signature", "webhook-timestamp", "webhook-event"];

/// A fault for the next webhook deliveries that match.
///
/// Add it with [`MockServer::delivery_fault`](crate::mock::MockServer::delivery_fault). A fault applies once, unless
/// [`times`](Self::times) says otherwise. [`endpoint`](Self::endpoint) and [`event_type`](Self::event_type) limit the
/// deliveries it applies to. If several faults match an attempt, the one that was added first applies.
///
/// Afterwards the schedule goes on. A receiver that refuses a stale or tampered delivery has failed that attempt: the
/// next attempt, 35 seconds after a first one, is genuine. A receiver that accepts it does not get the event again.
/// [`DeliveryAttempt::fault`](crate::mock::DeliveryAttempt::fault) names the fault of an attempt, so that a test can
/// tell the two apart.
///
/// # Example: a receiver that accepts what it should refuse
///
/// ```
/// # use audience::mock::{DeliveryFault, MockServer};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let server = MockServer::start().await;
///
/// server.delivery_fault(DeliveryFault::tampered().times(2).event_type("email.bounced"));
/// // … then deliver something to the receiver under test:
/// let is_careless = server.attempts().iter().any(|attempt| attempt.fault == Some("tampered") && attempt.is_success());
/// # assert!(!is_careless);
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
/// # let _ = fault;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[must_use = "a fault has no effect until it is given to `MockServer::delivery_fault`"]
pub struct DeliveryFault {
    pub(super) kind: DeliveryFaultKind,
    /// The header that `missing_header` leaves out.
    #[serde(default, with = "header", skip_serializing_if = "Option::is_none")]
    header: Option<HeaderName>,
    #[serde(default = "once")]
    times: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    endpoint: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    event_type: Option<EventType>,
}

/// The effect of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum DeliveryFaultKind {
    Duplicate,
    Reorder,
    /// It was signed 301 s ago.
    Stale,
    /// The body was changed after it was signed.
    Tampered,
    /// It was signed with another secret.
    OtherSecret,
    /// It lacks a header.
    MissingHeader,
}

impl DeliveryFault {
    /// Creates a fault that delivers an event once more although the receiver acknowledged it.
    ///
    /// It applies to the next attempt that succeeds. The repeat follows at once, has the same `id`, is genuine and is
    /// not retried.
    pub fn duplicate() -> Self {
        Self::new(DeliveryFaultKind::Duplicate)
    }

    /// Creates a fault that delivers the next two events of an endpoint in the opposite order.
    ///
    /// The first attempt for an event is held back until a later event has been attempted at the endpoint. If there is
    /// none, it is made 35 seconds later by the mock's clock. [`send_event`](crate::mock::MockServer::send_event) does
    /// not wait for an event that is held back.
    pub fn reorder() -> Self {
        Self::new(DeliveryFaultKind::Reorder)
    }

    /// Creates a fault that signs an attempt for a time 301 seconds ago. A receiver has to refuse it as too late
    /// (interface section 5).
    pub fn stale() -> Self {
        Self::new(DeliveryFaultKind::Stale)
    }

    /// Creates a fault that adds `"tampered": true` to the envelope after it is signed. The signature does not match.
    pub fn tampered() -> Self {
        Self::new(DeliveryFaultKind::Tampered)
    }

    /// Creates a fault that signs an attempt with another secret. The signature does not match.
    pub fn other_secret() -> Self {
        Self::new(DeliveryFaultKind::OtherSecret)
    }

    /// Creates a fault that leaves out one of the headers `webhook-signature`, `webhook-timestamp` and
    /// `webhook-event`.
    ///
    /// A receiver has to refuse a delivery without one of the first two. The third is not signed, and its absence is
    /// no reason to refuse.
    ///
    /// # Panics
    ///
    /// Panics if `name` is another header.
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

    /// Sets how often the fault applies. 0 has no effect. Default: 1.
    pub fn times(mut self, times: u64) -> Self {
        self.times = times;
        self
    }

    /// Limits the fault to one endpoint: its URL, or the name given to the control plane. Default: any endpoint.
    pub fn endpoint(mut self, name: impl Into<String>) -> Self {
        self.endpoint = Some(name.into());
        self
    }

    /// Limits the fault to events of this type, such as `email.bounced`. Default: any type.
    pub fn event_type(mut self, event_type: impl Into<EventType>) -> Self {
        self.event_type = Some(event_type.into());
        self
    }

    /// Refuses a fault whose header does not go with its kind. JSON can have such a fault.
    pub(in crate::mock) fn check(&self) -> Result<(), String> {
        if self.header.is_some() && self.kind != DeliveryFaultKind::MissingHeader {
            return Err("`header` goes only with the kind `missing_header`".to_owned());
        }
        Ok(())
    }

    /// Returns the header that is left out, if this fault leaves one out.
    pub(super) fn left_out_header(&self) -> Option<HeaderName> {
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

mod header {
    use super::*;

    pub(super) fn serialize<S: Serializer>(
        header: &Option<HeaderName>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        header
            .as_ref()
            .map(HeaderName::as_str)
            .serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<HeaderName>, D::Error> {
        let name = Option::<String>::deserialize(deserializer)?;
        name.map(|name| delivery_header(&name).map_err(D::Error::custom))
            .transpose()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::mock::faults::Active;

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
        faults.add(DeliveryFault::reorder().times(0));
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
