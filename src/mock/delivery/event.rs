//! Events as they go out: what somebody asked for, filled up to the shape that the document gives it.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// An event that is to be sent: a type, and as much of the rest as matters to the test.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::mock) struct NewEvent {
    #[serde(rename = "type")]
    pub(in crate::mock) event_type: String,
    #[serde(default = "empty")]
    pub(in crate::mock) data: Value,
    /// Left out: the server numbers its events.
    pub(in crate::mock) id: Option<String>,
    /// Left out: the clock's time.
    pub(in crate::mock) created_at: Option<i64>,
}

fn empty() -> Value {
    Value::Object(Map::new())
}

impl NewEvent {
    /// An event of the service's own making.
    pub(in crate::mock) fn new(event_type: String, data: Value) -> Self {
        Self {
            event_type,
            data,
            id: None,
            created_at: None,
        }
    }

    /// Reads what a test's author wrote.
    pub(in crate::mock) fn parse(json: Value) -> Result<Self, String> {
        let mut event: Self =
            serde_json::from_value(json).map_err(|error| format!("no event: {error}"))?;
        if event.event_type.is_empty() {
            return Err("no event: `type` is empty".into());
        }
        // The type goes out in a header too.
        super::super::faults::header("webhook-event", &event.event_type)
            .map_err(|_| "no event: `type` cannot stand in a header".to_owned())?;
        if let Value::Object(data) = &mut event.data {
            complete(&event.event_type, data);
        }
        Ok(event)
    }

    /// The bytes that every attempt carries (interface section 6.2).
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
            .expect("text, a number and JSON serialise")
            .into()
    }
}

/// Gives a known type's data the members it has in the document (interface sections 6.3 and 6.4) and this lacks.
fn complete(event_type: &str, data: &mut Map<String, Value>) {
    let defaults = match event_type {
        "email.received" => json!({
            "inbound_id": "inb_sample",
            "from": "sender@example.com",
            "to": ["inbox@example.com"],
            "subject": "A message",
            "text": "Hello",
            "authentication_results":
                "mx.example.com; spf=pass smtp.mailfrom=example.com; dkim=not-evaluated; dmarc=not-evaluated",
        }),
        "email.sent"
        | "email.delivered"
        | "email.bounced"
        | "email.complained"
        | "email.delivery_delayed"
        | "email.opened"
        | "email.clicked"
        | "email.failed"
        | "email.refused" => json!({
            "email_id": "em_sample",
            "from": "sender@example.com",
            "to": "recipient@example.com",
            "subject": "A message",
            "bounce_type": if event_type == "email.bounced" { "Permanent" } else { "" },
            "detail": match event_type {
                "email.bounced" => "550 5.1.1 no such user",
                "email.delivery_delayed" => "451 4.7.1 try again later",
                "email.refused" => "the address is suppressed",
                _ => "",
            },
        }),
        _ => return,
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
    fn a_known_type_is_filled_up_and_what_is_given_stays() {
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
    }

    #[test]
    fn an_unknown_type_and_data_that_is_no_object_pass_as_they_are() {
        let unknown =
            NewEvent::parse(json!({"type": "email.teleported", "data": {"a": 1}})).unwrap();
        let odd = NewEvent::parse(json!({"type": "email.sent", "data": [1]})).unwrap();

        assert_eq!(unknown.data, json!({"a": 1}));
        assert_eq!(odd.data, json!([1]));
    }

    #[test]
    fn the_envelope_has_the_members_of_the_document_in_its_order() {
        let event = NewEvent::parse(json!({"type": "x", "data": {"b": 1}})).unwrap();

        assert_eq!(
            event.envelope("evt_1", 1_700_000_000),
            r#"{"id":"evt_1","type":"x","created_at":1700000000,"data":{"b":1}}"#
        );
    }

    #[test]
    fn what_is_no_event_is_refused_with_the_reason() {
        for (json, reason) in [
            (json!({"data": {}}), "missing field `type`"),
            (json!({"type": "", "data": {}}), "`type` is empty"),
            (json!({"type": "a\nb"}), "cannot stand in a header"),
            (json!({"type": "x", "dada": {}}), "unknown field `dada`"),
            (json!([]), "no event"),
        ] {
            let error = NewEvent::parse(json).unwrap_err();

            assert!(error.contains(reason), "{error}");
        }
    }
}
