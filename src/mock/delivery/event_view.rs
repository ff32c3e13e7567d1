//! An event as the control plane shows it: its envelope, its attempts, and how far its delivery is.

use std::collections::HashMap;

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Map, Value};

use super::attempt_log::DeliveryAttempt;
use super::deliveries::Deliveries;
use super::event_store::StoredEvent;

/// The values of `state` in the JSON of an event.
pub(in crate::mock) const STATES: [&str; 4] = [PENDING, DELIVERED, FAILED, UNSENT];

/// An attempt is running, or another one will be made.
const PENDING: &str = "pending";
/// The last attempt at every endpoint was a success.
const DELIVERED: &str = "delivered";
/// The last attempt at an endpoint failed, and there will be no other.
const FAILED: &str = "failed";
/// There was no endpoint to deliver it to.
const UNSENT: &str = "unsent";

/// An event, with the attempts to deliver it.
#[derive(Debug)]
pub(in crate::mock) struct EventView {
    body: Bytes,
    state: &'static str,
    attempts: Vec<DeliveryAttempt>,
}

/// The JSON of an event. The envelope has the members `id`, `type`, `created_at` and `data`.
#[derive(Serialize)]
struct EventJson<'a> {
    #[serde(flatten)]
    envelope: Map<String, Value>,
    state: &'a str,
    attempts: &'a [DeliveryAttempt],
}

impl EventView {
    /// Returns the event as JSON.
    pub(in crate::mock) fn to_json(&self) -> Value {
        let event = EventJson {
            envelope: serde_json::from_slice(&self.body).unwrap_or_default(),
            state: self.state,
            attempts: &self.attempts,
        };
        serde_json::to_value(event).unwrap_or_default()
    }
}

/// Which events to show.
#[derive(Debug, Default)]
pub(in crate::mock) struct EventFilter<'a> {
    /// A text in the envelope, in any case of ASCII letters.
    pub(in crate::mock) text: Option<&'a str>,
    pub(in crate::mock) event_type: Option<&'a str>,
    pub(in crate::mock) state: Option<&'a str>,
}

impl EventFilter<'_> {
    fn matches(&self, event: &StoredEvent) -> bool {
        let has_type = |wanted: &str| event.event_type == wanted;
        self.event_type.is_none_or(has_type)
            && self.text.is_none_or(|text| contains(&event.body, text))
    }
}

impl Deliveries {
    /// Returns at most `limit` of the events that match, oldest or newest first.
    pub(in crate::mock) fn event_views(
        &self,
        filter: &EventFilter<'_>,
        newest_first: bool,
        limit: usize,
    ) -> Vec<EventView> {
        let attempts = self.attempts_by_event();
        let view = |event: &StoredEvent| {
            let attempts = attempts.get(&*event.id).map_or(&[][..], Vec::as_slice);
            let state = state(event);
            let is_wanted = filter.state.is_none_or(|wanted| wanted == state);
            is_wanted.then(|| EventView {
                body: event.body.clone(),
                state,
                attempts: attempts.iter().map(|attempt| (*attempt).clone()).collect(),
            })
        };
        let matching = |event: &&StoredEvent| filter.matches(event);
        if newest_first {
            let events = self.events.iter().rev().filter(matching);
            events.filter_map(view).take(limit).collect()
        } else {
            let events = self.events.iter().filter(matching);
            events.filter_map(view).take(limit).collect()
        }
    }

    /// Returns how many events and attempts are kept.
    pub(in crate::mock) fn counts(&self) -> (usize, usize) {
        (self.events.len(), self.log.len())
    }

    fn attempts_by_event(&self) -> HashMap<&str, Vec<&DeliveryAttempt>> {
        let mut by_event: HashMap<&str, Vec<_>> = HashMap::new();
        for attempt in self.log.iter() {
            by_event.entry(&attempt.event_id).or_default().push(attempt);
        }
        by_event
    }
}

fn state(event: &StoredEvent) -> &'static str {
    if event.open > 0 {
        return PENDING;
    }
    match event.is_delivered() {
        None => UNSENT,
        Some(true) => DELIVERED,
        Some(false) => FAILED,
    }
}

/// Returns whether a body contains a text, in any case of ASCII letters.
fn contains(body: &[u8], text: &str) -> bool {
    let body = String::from_utf8_lossy(body).to_ascii_lowercase();
    body.contains(&text.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::super::event::NewEvent;
    use super::super::event_store::MAX_FINISHED;
    use super::super::post::Target;
    use super::super::schedule::Step;
    use super::super::started_attempt::AttemptOutcome;
    use super::*;

    #[test]
    fn an_event_keeps_its_state_when_the_log_has_forgotten_its_attempts() {
        let target = || Target::new("http://localhost", "a-secret-of-the-test").unwrap();
        let mut deliveries = Deliveries::default();
        for number in 0..11 {
            deliveries.put_endpoint(&format!("crm {number}"), target());
        }

        for _ in 0..MAX_FINISHED {
            let event = NewEvent::new("email.sent".into(), Value::Null);
            deliveries.publish(event, 5);
        }
        while let Step::Start(attempt) = deliveries.schedule.step(5, true, None) {
            let started = deliveries.start(attempt, 5).unwrap();
            let outcome = AttemptOutcome {
                response: Ok(200),
                signature_problem: None,
            };
            deliveries.finish(started, outcome, 5);
        }

        let oldest = &deliveries.event_views(&EventFilter::default(), false, 1)[0];
        let oldest = oldest.to_json();
        assert_eq!(oldest["attempts"], serde_json::json!([]));
        assert_eq!(oldest["state"], "delivered");
    }
}
