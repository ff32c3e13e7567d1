//! The events that the mock sends: completed to the shape of the interface document, stored, and shown as JSON.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use http::HeaderValue;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::attempt::DeliveryAttempt;
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

/// Events kept for redelivery, besides those that still have open attempts. The oldest is dropped first.
pub(super) const MAX_FINISHED: usize = 1_000;

/// Bytes of the bodies of these events.
const MAX_FINISHED_BYTES: usize = 64 * 1024 * 1024;

/// An event, and how far its delivery is.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) id: String,
    pub(super) event_type: String,
    /// The bytes that every attempt sends.
    pub(super) body: Bytes,
    /// Attempts started, by endpoint.
    attempts: BTreeMap<u64, u32>,
    /// Whether the latest finished attempt at each endpoint was a success, by the endpoint's name. The attempt log
    /// forgets old attempts.
    results: BTreeMap<String, bool>,
    /// Attempts pending and running.
    pub(super) open: usize,
}

impl Event {
    /// Counts an attempt at `endpoint` and returns its number, counted from 1.
    pub(super) fn count_attempt(&mut self, endpoint: u64) -> u32 {
        let attempts = self.attempts.entry(endpoint).or_default();
        *attempts += 1;
        *attempts
    }

    /// Records how an attempt at an endpoint ended.
    pub(super) fn record_result(&mut self, endpoint: &str, is_success: bool) {
        self.results.insert(endpoint.to_owned(), is_success);
    }

    pub(super) fn state(&self) -> EventState {
        if self.open > 0 {
            return EventState::Pending;
        }
        match self.is_delivered() {
            None => EventState::Unsent,
            Some(true) => EventState::Delivered,
            Some(false) => EventState::Failed,
        }
    }

    /// Returns the envelope with the members `state` and `attempts`.
    pub(super) fn to_json(&self, attempts: &[&DeliveryAttempt]) -> Value {
        let mut json: Map<String, Value> = serde_json::from_slice(&self.body).unwrap_or_default();
        json.insert("state".to_owned(), json!(self.state()));
        json.insert("attempts".to_owned(), json!(attempts));
        json.into()
    }

    /// Returns whether the latest attempt at every endpoint was a success, or `None` if there was no attempt.
    fn is_delivered(&self) -> Option<bool> {
        let mut results = self.results.values();
        (!self.results.is_empty()).then(|| results.all(|is_success| *is_success))
    }
}

/// Events by number, counted from 1 in the order they were published.
#[derive(Debug, Default)]
pub(super) struct EventStore {
    events: BTreeMap<u64, Event>,
    /// The events without open attempts.
    finished: BTreeSet<u64>,
    /// The sum of the bodies of the finished events.
    finished_bytes: usize,
    last_number: u64,
}

impl EventStore {
    /// Stores an event. Returns its number and its id.
    ///
    /// An event without an id gets `evt_` and its number, and one without `created_at` gets `now`.
    pub(super) fn insert(&mut self, event: NewEvent, now: i64) -> (u64, String) {
        self.last_number += 1;
        let number = self.last_number;
        let generated_id = format!("evt_{number}");
        let body = event.envelope(
            event.id.as_deref().unwrap_or(&generated_id),
            event.created_at.unwrap_or(now),
        );
        let id = event.id.unwrap_or(generated_id);
        let stored = Event {
            id: id.clone(),
            event_type: event.event_type,
            body,
            attempts: BTreeMap::new(),
            results: BTreeMap::new(),
            open: 0,
        };
        self.events.insert(number, stored);
        (number, id)
    }

    pub(super) fn find_mut(&mut self, number: u64) -> Option<&mut Event> {
        self.events.get_mut(&number)
    }

    /// Returns the events, oldest first.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Event> {
        self.events.values()
    }

    /// Returns the number of the newest event with this id.
    pub(super) fn number_of(&self, id: &str) -> Option<u64> {
        self.events
            .iter()
            .rev()
            .find(|(_, event)| event.id == id)
            .map(|(number, _)| *number)
    }

    /// Adds open attempts to an event. An event without any is finished.
    pub(super) fn open_attempts(&mut self, number: u64, count: usize) {
        let Some(event) = self.events.get_mut(&number) else {
            return;
        };
        event.open += count;
        if event.open == 0 {
            self.retain_finished(number);
        } else if self.finished.remove(&number) {
            self.finished_bytes -= event.body.len();
        }
    }

    /// Closes one open attempt of an event. An event without any left is finished.
    pub(super) fn close_attempt(&mut self, number: u64) {
        let Some(event) = self.events.get_mut(&number) else {
            return;
        };
        event.open -= 1;
        if event.open == 0 {
            self.retain_finished(number);
        }
    }

    /// Removes all events. Numbers continue, so that no id is used twice.
    pub(super) fn clear(&mut self) {
        *self = Self {
            last_number: self.last_number,
            ..Self::default()
        };
    }

    /// Keeps a finished event, and drops the oldest finished ones if there are too many events or bytes.
    fn retain_finished(&mut self, number: u64) {
        if self.finished.insert(number) {
            self.finished_bytes += self.body_len(number);
        }
        while self.finished.len() > MAX_FINISHED
            || (self.finished.len() > 1 && self.finished_bytes > MAX_FINISHED_BYTES)
        {
            let Some(oldest) = self.finished.pop_first() else {
                break;
            };
            self.finished_bytes -= self.body_len(oldest);
            self.events.remove(&oldest);
        }
    }

    fn body_len(&self, number: u64) -> usize {
        self.events.get(&number).map_or(0, |event| event.body.len())
    }

    /// Returns how many events are kept.
    pub(super) fn len(&self) -> usize {
        self.events.len()
    }
}

/// How far the delivery of an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::mock) enum EventState {
    /// An attempt is running, or another one will be made.
    Pending,
    /// The last attempt at every endpoint was a success.
    Delivered,
    /// The last attempt at an endpoint failed, and there will be no other.
    Failed,
    /// There was no endpoint to deliver it to.
    Unsent,
}

/// Which events to show.
#[derive(Debug, Default)]
pub(in crate::mock) struct EventFilter<'a> {
    /// A text in the envelope, in any case of ASCII letters.
    pub(in crate::mock) text: &'a str,
    /// A type, or an empty text for all.
    pub(in crate::mock) event_type: &'a str,
    pub(in crate::mock) state: Option<EventState>,
}

impl EventFilter<'_> {
    pub(super) fn matches(&self, event: &Event) -> bool {
        let has_type = self.event_type.is_empty() || event.event_type == self.event_type;
        has_type
            && self.state.is_none_or(|wanted| event.state() == wanted)
            && (self.text.is_empty() || contains(&event.body, self.text))
    }
}

/// Returns whether a body contains a text, in any case of ASCII letters.
fn contains(body: &[u8], text: &str) -> bool {
    let body = String::from_utf8_lossy(body).to_ascii_lowercase();
    body.contains(&text.to_ascii_lowercase())
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

    #[test]
    fn the_bytes_of_delivered_events_are_limited_and_the_newest_is_kept() {
        let mut store = EventStore::default();
        let text = "a".repeat(MAX_FINISHED_BYTES / 8);

        for _ in 0..20 {
            let event = NewEvent::new("email.sent".into(), text.as_str().into());
            let (number, _) = store.insert(event, 0);
            store.open_attempts(number, 0);
        }

        assert_eq!(store.len(), 7);
        store.open_attempts(20, 1);
        store.close_attempt(20);
        assert_eq!(store.len(), 7);
        let bodies: usize = store.events.values().map(|event| event.body.len()).sum();
        assert_eq!(store.finished_bytes, bodies);
        let larger = "a".repeat(MAX_FINISHED_BYTES);
        let event = NewEvent::new("email.sent".into(), larger.as_str().into());
        let (number, _) = store.insert(event, 0);
        store.open_attempts(number, 0);
        assert_eq!(store.events.keys().collect::<Vec<_>>(), [&number]);
    }
}
