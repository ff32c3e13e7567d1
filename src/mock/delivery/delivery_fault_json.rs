//! The JSON form of a delivery fault, for the control plane.

use serde::Deserialize;
use serde_json::{Value, json};

use super::delivery_fault::{DeliveryFault, DeliveryFaultKind};
use super::signing::SigningFault;

/// A [`DeliveryFault`] as JSON. Each member has the meaning and the default of the method of the same name.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::mock) struct DeliveryFaultJson {
    kind: Kind,
    /// The header that `missing_header` leaves out. Default: `webhook-signature`.
    header: Option<String>,
    times: Option<u64>,
    endpoint: Option<String>,
    event_type: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Duplicate,
    Reorder,
    Stale,
    Tampered,
    OtherSecret,
    MissingHeader,
}

impl DeliveryFaultJson {
    /// Converts the JSON to a fault.
    ///
    /// # Errors
    ///
    /// A message for the test's author, if `header` is unknown or does not go with the kind.
    pub(in crate::mock) fn into_fault(self) -> Result<DeliveryFault, String> {
        if self.header.is_some() && self.kind != Kind::MissingHeader {
            return Err("`header` goes only with the kind `missing_header`".into());
        }
        let mut fault = match self.kind {
            Kind::Duplicate => DeliveryFault::duplicate(),
            Kind::Reorder => DeliveryFault::reorder(),
            Kind::Stale => DeliveryFault::stale(),
            Kind::Tampered => DeliveryFault::tampered(),
            Kind::OtherSecret => DeliveryFault::other_secret(),
            Kind::MissingHeader => {
                let header = self.header.as_deref().unwrap_or("webhook-signature");
                DeliveryFault::without_header(header)?
            }
        };
        if let Some(times) = self.times {
            fault = fault.times(times);
        }
        if let Some(endpoint) = self.endpoint {
            fault = fault.endpoint(endpoint);
        }
        if let Some(event_type) = self.event_type {
            fault = fault.event_type(event_type);
        }
        Ok(fault)
    }
}

/// Returns a fault in the form that [`DeliveryFaultJson`] reads, with the count that is left.
pub(in crate::mock) fn delivery_fault_json(fault: &DeliveryFault) -> Value {
    let mut json = json!({"kind": fault.kind.name(), "times": fault.times});
    if let DeliveryFaultKind::Signing(SigningFault::MissingHeader(name)) = &fault.kind {
        json["header"] = name.as_str().into();
    }
    if let Some(endpoint) = &fault.endpoint {
        json["endpoint"] = endpoint.as_str().into();
    }
    if let Some(event_type) = &fault.event_type {
        json["event_type"] = event_type.as_str().into();
    }
    json
}
