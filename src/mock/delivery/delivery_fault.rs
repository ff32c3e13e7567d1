use http::HeaderName;

use super::signing::SigningFault;

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
#[derive(Clone, Debug)]
#[must_use = "a fault has no effect until it is given to `MockServer::delivery_fault`"]
pub struct DeliveryFault {
    pub(super) kind: DeliveryFaultKind,
    pub(super) times: u64,
    pub(super) endpoint: Option<String>,
    pub(super) event_type: Option<String>,
}

/// The effect of a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DeliveryFaultKind {
    Duplicate,
    Reorder,
    Signing(SigningFault),
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
        Self::new(DeliveryFaultKind::Signing(SigningFault::Stale))
    }

    /// Creates a fault that adds `"tampered": true` to the envelope after it is signed. The signature does not match.
    pub fn tampered() -> Self {
        Self::new(DeliveryFaultKind::Signing(SigningFault::Tampered))
    }

    /// Creates a fault that signs an attempt with another secret. The signature does not match.
    pub fn other_secret() -> Self {
        Self::new(DeliveryFaultKind::Signing(SigningFault::OtherSecret))
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
        match Self::without_header(name.as_ref()) {
            Ok(fault) => fault,
            Err(problem) => panic!("{problem}"),
        }
    }

    /// Creates a fault that leaves out a header, or returns a message if a delivery has no such header.
    pub(super) fn without_header(name: &str) -> Result<Self, String> {
        let lower = name.to_ascii_lowercase();
        match HEADERS.into_iter().find(|known| *known == lower) {
            Some(known) => {
                let fault = SigningFault::MissingHeader(HeaderName::from_static(known));
                Ok(Self::new(DeliveryFaultKind::Signing(fault)))
            }
            None => {
                let [signature, timestamp, event] = HEADERS;
                Err(format!(
                    "a delivery has no header {name:?} to leave out; use {signature}, {timestamp} or {event}"
                ))
            }
        }
    }

    fn new(kind: DeliveryFaultKind) -> Self {
        Self {
            kind,
            times: 1,
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
    #[expect(
        clippy::needless_pass_by_value,
        reason = "callers pass a literal or an `EventType`"
    )]
    pub fn event_type(mut self, event_type: impl ToString) -> Self {
        self.event_type = Some(event_type.to_string());
        self
    }

    fn matches(&self, endpoint: &str, event_type: &str) -> bool {
        let is_any_or = |expected: &Option<String>, found: &str| {
            expected.as_ref().is_none_or(|expected| expected == found)
        };
        is_any_or(&self.endpoint, endpoint) && is_any_or(&self.event_type, event_type)
    }
}

impl DeliveryFaultKind {
    /// Returns the name of the fault in the attempt log and in JSON.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Duplicate => "duplicate",
            Self::Reorder => "reorder",
            Self::Signing(SigningFault::Stale) => "stale",
            Self::Signing(SigningFault::Tampered) => "tampered",
            Self::Signing(SigningFault::OtherSecret) => "other_secret",
            Self::Signing(SigningFault::MissingHeader(_)) => "missing_header",
        }
    }
}

/// The faults that were added and are not used up, oldest first.
#[derive(Debug, Default)]
pub(in crate::mock) struct ActiveDeliveryFaults(Vec<DeliveryFault>);

impl ActiveDeliveryFaults {
    /// Returns the faults in the order they apply.
    pub(in crate::mock) fn iter(&self) -> impl Iterator<Item = &DeliveryFault> {
        self.0.iter()
    }

    pub(super) fn add(&mut self, fault: DeliveryFault) {
        if fault.times > 0 {
            self.0.push(fault);
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the kind of the first fault that matches and that `applies`, and counts the fault as used once.
    pub(super) fn take(
        &mut self,
        endpoint: &str,
        event_type: &str,
        applies: impl Fn(&DeliveryFaultKind) -> bool,
    ) -> Option<DeliveryFaultKind> {
        let index = self
            .0
            .iter()
            .position(|fault| applies(&fault.kind) && fault.matches(endpoint, event_type))?;
        let fault = &mut self.0[index];
        fault.times -= 1;
        let kind = fault.kind.clone();
        if fault.times == 0 {
            drop(self.0.remove(index));
        }
        Some(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(faults: &mut ActiveDeliveryFaults, attempts: &[(&str, &str)]) -> Vec<&'static str> {
        attempts
            .iter()
            .map(|(endpoint, event_type)| {
                let taken = faults.take(endpoint, event_type, |_| true);
                taken.map_or("none", |kind| kind.name())
            })
            .collect()
    }

    #[test]
    fn a_used_up_fault_is_followed_by_the_next() {
        let mut faults = ActiveDeliveryFaults::default();
        faults.add(DeliveryFault::stale().times(2));
        faults.add(DeliveryFault::reorder().times(0));
        faults.add(DeliveryFault::tampered());

        let taken = names(&mut faults, &[("crm", "email.sent"); 4]);

        assert_eq!(taken, ["stale", "stale", "tampered", "none"]);
    }

    #[test]
    fn a_fault_applies_only_to_its_endpoint_and_type() {
        let mut faults = ActiveDeliveryFaults::default();
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
        assert!(DeliveryFault::without_header("Webhook-Signature").is_ok());

        let error = DeliveryFault::without_header("content-type").unwrap_err();

        assert!(error.contains("use webhook-signature"), "{error}");
    }
}
