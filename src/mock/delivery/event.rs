//! The events that the mock sends, completed to the shape of the interface document.

use bytes::Bytes;
use http::HeaderValue;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::mock::service::inbound_mail::authentication_results;
use crate::mock::service::refusal::OutgoingEvent;
use crate::mock::service::sent_mail::{Mail, typical_detail};
use crate::webhooks::EventType;

/// An event to send. Only the type is required.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::mock) struct NewEvent {
    #[serde(rename = "type")]
    pub(in crate::mock) event_type: String,
    #[serde(default = "empty")]
    pub(in crate::mock) data: Value,
    /// Default: the next number of the server.
    pub(in crate::mock) id: Option<String>,
    /// Default: the time of the mock's clock.
    pub(in crate::mock) created_at: Option<i64>,
}

fn empty() -> Value {
    Value::Object(Map::new())
}

impl NewEvent {
    /// Creates an event that happens when it is published.
    pub(super) fn new(event_type: String, data: Value) -> Self {
        Self {
            event_type,
            data,
            id: None,
            created_at: None,
        }
    }

    /// Parses an event that a test sends, and completes its data.
    ///
    /// # Errors
    ///
    /// Returns a message if the JSON has another shape or the type cannot be sent in a header.
    pub(in crate::mock) fn parse(json: Value) -> Result<Self, String> {
        if !json.is_object() {
            return Err("invalid event: it must be a JSON object".into());
        }
        let mut event: Self =
            serde_json::from_value(json).map_err(|error| format!("invalid event: {error}"))?;
        if event.event_type.is_empty() {
            return Err("invalid event: `type` is empty".into());
        }
        // The type is also sent in a header.
        HeaderValue::from_str(&event.event_type).map_err(|_| {
            "invalid event: `type` contains characters that a header cannot hold".to_owned()
        })?;
        if let Value::Object(data) = &mut event.data {
            complete(&event.event_type, data);
        }
        Ok(event)
    }

    /// Returns the body of every delivery attempt (interface section 6.2).
    pub(in crate::mock) fn envelope(&self, id: &str, created_at: i64) -> Bytes {
        #[derive(Serialize)]
        struct Envelope<'a> {
            id: &'a str,
            #[serde(rename = "type")]
            event_type: &'a str,
            created_at: i64,
            data: &'a Value,
        }

        let envelope = Envelope {
            id,
            event_type: &self.event_type,
            created_at,
            data: &self.data,
        };
        serde_json::to_vec(&envelope)
            .expect("text, a number and JSON always serialize")
            .into()
    }
}

/// An event that the service itself emits.
impl From<OutgoingEvent> for NewEvent {
    fn from(event: OutgoingEvent) -> Self {
        Self {
            created_at: Some(event.at),
            ..Self::new(event.event_type, event.data)
        }
    }
}

/// Adds missing members to the data of a known type (interface sections 6.3 and 6.4).
fn complete(event_type: &str, data: &mut Map<String, Value>) {
    let defaults = match EventType::from(event_type) {
        EventType::Other(_) => return,
        EventType::Received => {
            let from = data.get("from").and_then(Value::as_str);
            json!({
                "inbound_id": "inb_sample",
                "from": "sender@example.com",
                "to": ["inbox@example.com"],
                "subject": "A message",
                "text": "Hello",
                "authentication_results":
                    authentication_results(from.unwrap_or("sender@example.com"), "pass"),
            })
        }
        known => {
            let default_type = if known == EventType::Bounced {
                "Permanent"
            } else {
                ""
            };
            let given_type = data.get("bounce_type").and_then(Value::as_str);
            let detail = typical_detail(event_type, given_type.unwrap_or(default_type));
            Mail::sample().event_data("recipient@example.com", default_type, detail)
        }
    };
    let Value::Object(defaults) = defaults else {
        return;
    };
    for (member, value) in defaults {
        data.entry(member).or_insert(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_of_a_known_type_is_completed_and_given_members_are_kept() {
        let event = NewEvent::parse(json!({
            "type": "email.bounced",
            "data": {"to": "ada@example.com", "bounce_type": "Transient", "extra": 1},
        }))
        .unwrap();

        assert_eq!(event.data["to"], "ada@example.com");
        assert_eq!(event.data["bounce_type"], "Transient");
        assert_eq!(event.data["extra"], 1);
        for member in ["email_id", "from", "subject", "detail"] {
            assert!(event.data[member].is_string(), "{member}");
        }
        let received = json!({"type": "email.received", "data": {"from": "ada@x.io"}});
        let received = NewEvent::parse(received).unwrap();
        assert_eq!(
            received.data["authentication_results"],
            "mx.example.com; spf=pass smtp.mailfrom=x.io; dkim=not-evaluated; dmarc=not-evaluated"
        );
    }

    #[test]
    fn data_of_an_unknown_type_and_data_that_is_not_an_object_is_kept_unchanged() {
        let unknown =
            NewEvent::parse(json!({"type": "email.teleported", "data": {"a": 1}})).unwrap();
        let odd = NewEvent::parse(json!({"type": "email.sent", "data": [1]})).unwrap();

        assert_eq!(unknown.data, json!({"a": 1}));
        assert_eq!(odd.data, json!([1]));
    }

    #[test]
    fn the_envelope_has_its_members_in_the_order_of_the_document() {
        let event = NewEvent::parse(json!({"type": "x", "data": {"b": 1}})).unwrap();

        assert_eq!(
            event.envelope("evt_1", 1_700_000_000),
            r#"{"id":"evt_1","type":"x","created_at":1700000000,"data":{"b":1}}"#
        );
    }

    #[test]
    fn an_invalid_event_is_refused_with_the_reason() {
        for (json, reason) in [
            (json!({"data": {}}), "missing field `type`"),
            (json!({"type": "", "data": {}}), "`type` is empty"),
            (
                json!({"type": "a\nb"}),
                "characters that a header cannot hold",
            ),
            (json!({"type": "x", "dada": {}}), "unknown field `dada`"),
            (json!(["email.sent", {}]), "must be a JSON object"),
            (json!("email.sent"), "must be a JSON object"),
        ] {
            let error = NewEvent::parse(json).unwrap_err();

            assert!(error.contains(reason), "{error}");
        }
    }
}
