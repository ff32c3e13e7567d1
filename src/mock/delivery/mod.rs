//! What is delivered where, and what came of it. The schedule says when, `post` does it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use serde::Serialize;

use crate::Timestamp;

pub(super) mod event;
pub(super) mod post;
pub(super) mod schedule;

use event::NewEvent;
use post::Target;
use schedule::{Delivery, Round, Schedule, gap};

/// Events kept for redelivery, beside those that are still being delivered. The oldest goes first.
const EVENTS: usize = 1_000;

/// Attempts kept in the log. The oldest goes first.
const ATTEMPTS_KEPT: usize = 10_000;

/// One attempt to deliver one event to one endpoint, as it stands in the attempt log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Attempt {
    /// The `id` of the event.
    pub event_id: String,
    /// The endpoint's name, which is its URL unless it was given another.
    pub endpoint: String,
    /// Counted from 1 for each event and endpoint; a redelivery counts too.
    pub attempt: u32,
    /// When it was started, by the server's clock.
    pub at: Timestamp,
    /// The status that was answered in time, or `None` where there was no such answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Why there was no answer, in words; `None` where there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// When the next attempt falls due, or `None` where there is no next one.
    pub next_at: Option<Timestamp>,
}

impl Attempt {
    /// Whether the receiver took the event: it answered 2xx in time.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.status.is_some_and(is_success)
    }
}

fn is_success(status: u16) -> bool {
    (200..300).contains(&status)
}

/// Endpoints, events, the attempts to come and those made.
#[derive(Debug, Default)]
pub(super) struct Deliveries {
    pub(super) schedule: Schedule,
    endpoints: Endpoints,
    events: BTreeMap<u64, StoredEvent>,
    /// Those of the events that nothing is open for.
    closed: BTreeSet<u64>,
    /// By the order in which they were started.
    attempts: BTreeMap<u64, Attempt>,
    events_made: u64,
    attempts_made: u64,
}

/// Where events go, in the order the endpoints were added.
#[derive(Clone, Debug, Default)]
pub(super) struct Endpoints {
    list: Vec<Endpoint>,
    made: u64,
}

#[derive(Clone, Debug)]
struct Endpoint {
    number: u64,
    name: String,
    target: Target,
}

#[derive(Debug)]
struct StoredEvent {
    id: String,
    event_type: String,
    body: Bytes,
    /// Attempts made at each endpoint.
    attempts: BTreeMap<u64, u32>,
    /// Attempts to come and under way.
    open: usize,
}

/// An attempt that has been started: everything that making it takes.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) target: Target,
    pub(super) event_type: String,
    pub(super) body: Bytes,
    pub(super) at: i64,
    delivery: Delivery,
    number: u64,
    attempt: u32,
    endpoint: String,
}

impl Endpoints {
    /// Adds an endpoint, or changes where the one of that name is and what it is signed with.
    pub(super) fn put(&mut self, name: &str, target: Target) {
        if let Some(endpoint) = self.list.iter_mut().find(|endpoint| endpoint.name == name) {
            endpoint.target = target;
            return;
        }
        self.made += 1;
        self.list.push(Endpoint {
            number: self.made,
            name: name.to_owned(),
            target,
        });
    }
}

impl Deliveries {
    pub(super) fn new(endpoints: Endpoints) -> Self {
        Self {
            endpoints,
            ..Self::default()
        }
    }

    /// Forgets everything but how many events there were: no id is used twice by one server.
    pub(super) fn reset(&mut self, endpoints: Endpoints) {
        *self = Self {
            events_made: self.events_made,
            ..Self::new(endpoints)
        };
    }

    pub(super) fn put_endpoint(&mut self, name: &str, target: Target) {
        self.endpoints.put(name, target);
    }

    /// Removes an endpoint and what was still to go there. Returns whether there was one.
    pub(super) fn remove_endpoint(&mut self, name: &str) -> bool {
        let Some(index) = self
            .endpoints
            .list
            .iter()
            .position(|endpoint| endpoint.name == name)
        else {
            return false;
        };
        let endpoint = self.endpoints.list.remove(index);
        for event in self.schedule.forget(endpoint.number) {
            self.close(event);
        }
        true
    }

    /// Takes in an event: first attempts at every endpoint fall due at `now`. Returns its number and its id.
    pub(super) fn publish(&mut self, event: NewEvent, now: i64) -> (u64, String) {
        self.events_made += 1;
        let number = self.events_made;
        let body = event.envelope(
            event.id.as_deref().unwrap_or(&format!("evt_{number}")),
            event.created_at.unwrap_or(now),
        );
        let id = event.id.unwrap_or_else(|| format!("evt_{number}"));
        let stored = StoredEvent {
            id: id.clone(),
            event_type: event.event_type,
            body,
            attempts: BTreeMap::new(),
            open: 0,
        };
        self.events.insert(number, stored);
        self.send(number, now, Round::Scheduled(1));
        (number, id)
    }

    /// Lets an event go to every endpoint once more. Returns its number, or `None` where there is no such event.
    pub(super) fn redeliver(&mut self, id: &str, now: i64) -> Option<u64> {
        let number = self
            .events
            .iter()
            .rev()
            .find(|(_, event)| event.id == id)
            .map(|(number, _)| *number)?;
        self.send(number, now, Round::Once);
        Some(number)
    }

    /// The attempt that the schedule wants started, or `None` where its endpoint is gone.
    pub(super) fn begin(&mut self, delivery: Delivery, at: i64) -> Option<Job> {
        let endpoint = self
            .endpoints
            .list
            .iter()
            .find(|endpoint| endpoint.number == delivery.endpoint);
        let event = self.events.get_mut(&delivery.event);
        let (Some(endpoint), Some(event)) = (endpoint, event) else {
            self.schedule.finish(&delivery);
            return None;
        };
        let attempt = event.attempts.entry(endpoint.number).or_default();
        *attempt += 1;
        self.attempts_made += 1;

        Some(Job {
            target: endpoint.target.clone(),
            event_type: event.event_type.clone(),
            body: event.body.clone(),
            at,
            delivery,
            number: self.attempts_made,
            attempt: *attempt,
            endpoint: endpoint.name.clone(),
        })
    }

    /// Writes down what came of an attempt, and puts the next one on the schedule where there is to be one.
    pub(super) fn complete(&mut self, job: Job, outcome: Result<u16, String>) {
        let delivery = &job.delivery;
        if !self.schedule.finish(delivery) {
            return;
        }
        let next = match (&outcome, delivery.round) {
            (Ok(status), _) if is_success(*status) => None,
            (_, Round::Once) => None,
            (_, Round::Scheduled(round)) => self
                .has_endpoint(delivery.endpoint)
                .then(|| gap(round))
                .flatten()
                .map(|gap| (round + 1, job.at.saturating_add(gap))),
        };
        // Looked up before the event is closed, and with that perhaps forgotten.
        let event_id = self
            .events
            .get(&delivery.event)
            .map(|event| event.id.clone());
        if let Some((round, due)) = next {
            self.schedule.add(
                due,
                delivery.event,
                delivery.endpoint,
                Round::Scheduled(round),
            );
        } else {
            self.close(delivery.event);
        }

        let (status, error) = match outcome {
            Ok(status) => (Some(status), None),
            Err(error) => (None, Some(error)),
        };
        let attempt = Attempt {
            event_id: event_id.unwrap_or_default(),
            endpoint: job.endpoint,
            attempt: job.attempt,
            at: Timestamp::from_unix(job.at),
            status,
            error,
            next_at: next.map(|(_, due)| Timestamp::from_unix(due)),
        };
        self.attempts.insert(job.number, attempt);
        if self.attempts.len() > ATTEMPTS_KEPT {
            self.attempts.pop_first();
        }
    }

    /// The log, in the order the attempts were started.
    pub(super) fn attempts(&self) -> Vec<Attempt> {
        self.attempts.values().cloned().collect()
    }

    fn send(&mut self, event: u64, now: i64, round: Round) {
        for endpoint in &self.endpoints.list {
            self.schedule.add(now, event, endpoint.number, round);
        }
        if let Some(stored) = self.events.get_mut(&event) {
            stored.open += self.endpoints.list.len();
            if stored.open == 0 {
                self.keep(event);
            } else {
                self.closed.remove(&event);
            }
        }
    }

    fn close(&mut self, event: u64) {
        if let Some(stored) = self.events.get_mut(&event) {
            stored.open -= 1;
            if stored.open == 0 {
                self.keep(event);
            }
        }
    }

    /// Keeps an event that nothing is open for, and lets the oldest of those go where they are too many.
    fn keep(&mut self, event: u64) {
        self.closed.insert(event);
        if self.closed.len() > EVENTS
            && let Some(oldest) = self.closed.pop_first()
        {
            self.events.remove(&oldest);
        }
    }

    fn has_endpoint(&self, number: u64) -> bool {
        self.endpoints
            .list
            .iter()
            .any(|endpoint| endpoint.number == number)
    }
}

#[cfg(test)]
mod tests {
    use super::schedule::Step;
    use super::*;

    fn event() -> NewEvent {
        NewEvent::new("email.sent".into(), serde_json::Value::Null)
    }

    fn deliver_all(deliveries: &mut Deliveries, now: i64) {
        while let Step::Start(delivery) = deliveries.schedule.step(now, true) {
            let job = deliveries.begin(delivery, now).unwrap();
            deliveries.complete(job, Ok(200));
        }
    }

    #[test]
    fn events_beyond_the_newest_thousand_are_forgotten_once_they_are_delivered() {
        let target = Target::new("http://localhost", "a-secret-of-the-test").unwrap();
        let mut deliveries = Deliveries::default();
        deliveries.put_endpoint("crm", target);

        for _ in 0..3 * EVENTS {
            deliveries.publish(event(), 5);
        }
        assert_eq!(deliveries.events.len(), 3 * EVENTS);
        deliver_all(&mut deliveries, 5);

        assert_eq!(deliveries.events.len(), EVENTS);
        assert_eq!(deliveries.redeliver("evt_2000", 5), None);
        assert_eq!(deliveries.redeliver("evt_2001", 5), Some(2_001));
        assert!(
            deliveries
                .attempts()
                .iter()
                .all(|attempt| attempt.event_id.starts_with("evt_"))
        );
    }

    #[test]
    fn an_event_that_is_redelivered_is_not_forgotten_meanwhile() {
        let target = Target::new("http://localhost", "a-secret-of-the-test").unwrap();
        let mut deliveries = Deliveries::default();
        for _ in 0..EVENTS {
            deliveries.publish(event(), 5);
        }
        deliveries.put_endpoint("crm", target);

        deliveries.redeliver("evt_1", 9);
        for _ in 0..3 {
            deliveries.publish(event(), 5);
        }
        deliver_all(&mut deliveries, 5);

        assert!(deliveries.events.contains_key(&1));
        assert!(!deliveries.events.contains_key(&2));
    }
}
