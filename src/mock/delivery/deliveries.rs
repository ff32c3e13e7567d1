//! The state of all webhook deliveries: endpoints, events, open attempts and the attempt log.

use std::time::Duration;

use bytes::Bytes;

use crate::Timestamp;

use super::attempt_log::{AttemptLog, DeliveryAttempt, is_success};
use super::attempt_queue::{AttemptKind, ScheduledAttempt};
use super::backoff::gap_after;
use super::endpoints::Endpoints;
use super::event::NewEvent;
use super::event_store::EventStore;
use super::post::Target;
use super::schedule::Schedule;

/// The endpoints, the events, the open attempts and the attempt log.
///
/// Does no I/O: the server makes the attempts that the [`Schedule`] starts, and reports how they ended.
#[derive(Debug, Default)]
pub(in crate::mock) struct Deliveries {
    pub(in crate::mock) schedule: Schedule,
    endpoints: Endpoints,
    events: EventStore,
    log: AttemptLog,
}

/// An attempt that has started, with everything that is needed to make it.
#[derive(Debug)]
pub(in crate::mock) struct StartedAttempt {
    scheduled: ScheduledAttempt,
    target: Target,
    endpoint: String,
    event_type: String,
    body: Bytes,
    /// When the attempt started, by the server's clock.
    at: i64,
    /// The number of the attempt for this event and endpoint.
    attempt: u32,
    log_number: u64,
}

impl StartedAttempt {
    /// Posts the event. Returns the status of the response, or why there is none within `timeout`.
    pub(in crate::mock) async fn post(&self, timeout: Duration) -> Result<u16, String> {
        self.target
            .post(&self.event_type, self.at, self.body.clone(), timeout)
            .await
    }
}

impl Deliveries {
    pub(in crate::mock) fn new(endpoints: Endpoints) -> Self {
        Self {
            endpoints,
            ..Self::default()
        }
    }

    /// Goes back to `endpoints` and no events. Only the numbers of events continue: no id is used twice.
    pub(in crate::mock) fn reset(&mut self, endpoints: Endpoints) {
        self.schedule = Schedule::default();
        self.endpoints = endpoints;
        self.events.clear();
        self.log = AttemptLog::default();
    }

    /// Adds an endpoint, or changes the URL and the secret of the endpoint with this name.
    pub(in crate::mock) fn put_endpoint(&mut self, name: &str, target: Target) {
        self.endpoints.put(name, target);
    }

    /// Removes an endpoint and its pending attempts. Returns `false` if no endpoint has this name.
    pub(in crate::mock) fn remove_endpoint(&mut self, name: &str) -> bool {
        let Some(endpoint) = self.endpoints.remove(name) else {
            return false;
        };
        for event in self.schedule.attempts.remove_endpoint(endpoint) {
            self.events.close_attempt(event);
        }
        true
    }

    /// Stores an event and makes its first attempt at every endpoint due at `now`. Returns its number and its id.
    pub(in crate::mock) fn publish(&mut self, event: NewEvent, now: i64) -> (u64, String) {
        let (number, id) = self.events.insert(event, now);
        self.schedule_attempts(number, now, AttemptKind::Automatic(1));
        (number, id)
    }

    /// Makes one more attempt at every endpoint due at `now`. Returns the event's number, or `None` if no event has
    /// this id.
    pub(in crate::mock) fn redeliver(&mut self, id: &str, now: i64) -> Option<u64> {
        let number = self.events.number_of(id)?;
        self.schedule_attempts(number, now, AttemptKind::Redelivery);
        Some(number)
    }

    /// Starts an attempt. Returns `None` if its endpoint has been removed.
    pub(in crate::mock) fn start(
        &mut self,
        scheduled: ScheduledAttempt,
        at: i64,
    ) -> Option<StartedAttempt> {
        let endpoint = self.endpoints.find(scheduled.endpoint);
        let event = self.events.find_mut(scheduled.event);
        let (Some(endpoint), Some(event)) = (endpoint, event) else {
            self.schedule.attempts.finish(&scheduled);
            return None;
        };

        Some(StartedAttempt {
            target: endpoint.target.clone(),
            endpoint: endpoint.name.clone(),
            event_type: event.event_type.clone(),
            body: event.body.clone(),
            at,
            attempt: event.count_attempt(scheduled.endpoint),
            log_number: self.log.next_number(),
            scheduled,
        })
    }

    /// Records how an attempt ended, and schedules the next one if there is to be one.
    pub(in crate::mock) fn finish(
        &mut self,
        started: StartedAttempt,
        outcome: Result<u16, String>,
    ) {
        let scheduled = &started.scheduled;
        if !self.schedule.attempts.finish(scheduled) {
            return;
        }
        // Looked up before the event is closed, which may drop it.
        let event_id = self
            .events
            .find(scheduled.event)
            .map(|event| event.id.clone())
            .unwrap_or_default();
        let next_at = self.schedule_retry(&started, &outcome);

        let (status, error) = match outcome {
            Ok(status) => (Some(status), None),
            Err(error) => (None, Some(error)),
        };
        let attempt = DeliveryAttempt {
            event_id,
            endpoint: started.endpoint,
            attempt: started.attempt,
            at: Timestamp::from_unix(started.at),
            status,
            error,
            next_at: next_at.map(Timestamp::from_unix),
        };
        self.log.record(started.log_number, attempt);
    }

    /// Returns the attempt log, in the order the attempts were started.
    pub(in crate::mock) fn attempts(&self) -> Vec<DeliveryAttempt> {
        self.log.to_vec()
    }

    fn schedule_attempts(&mut self, event: u64, now: i64, kind: AttemptKind) {
        for endpoint in self.endpoints.numbers() {
            self.schedule.attempts.add(now, event, endpoint, kind);
        }
        self.events
            .open_attempts(event, self.endpoints.numbers().len());
    }

    /// Schedules the attempt that follows a finished one and returns its due time, or closes the finished one.
    fn schedule_retry(
        &mut self,
        started: &StartedAttempt,
        outcome: &Result<u16, String>,
    ) -> Option<i64> {
        let ScheduledAttempt {
            event,
            endpoint,
            kind,
            ..
        } = started.scheduled;
        let has_succeeded = outcome.as_ref().is_ok_and(|status| is_success(*status));
        let retry = match kind {
            AttemptKind::Automatic(number)
                if !has_succeeded && self.endpoints.find(endpoint).is_some() =>
            {
                gap_after(number).map(|gap| (number + 1, started.at.saturating_add(gap)))
            }
            _ => None,
        };
        let Some((number, due)) = retry else {
            self.events.close_attempt(event);
            return None;
        };
        let kind = AttemptKind::Automatic(number);
        self.schedule.attempts.add(due, event, endpoint, kind);
        Some(due)
    }
}

#[cfg(test)]
mod tests {
    use super::super::event_store::MAX_FINISHED;
    use super::super::schedule::Step;
    use super::*;

    fn event() -> NewEvent {
        NewEvent::new("email.sent".into(), serde_json::Value::Null)
    }

    fn deliver_all(deliveries: &mut Deliveries, now: i64) {
        while let Step::Start(attempt) = deliveries.schedule.step(now, true) {
            let started = deliveries.start(attempt, now).unwrap();
            deliveries.finish(started, Ok(200));
        }
    }

    #[test]
    fn only_the_newest_thousand_delivered_events_are_kept() {
        let target = Target::new("http://localhost", "a-secret-of-the-test").unwrap();
        let mut deliveries = Deliveries::default();
        deliveries.put_endpoint("crm", target);

        for _ in 0..3 * MAX_FINISHED {
            deliveries.publish(event(), 5);
        }
        assert_eq!(deliveries.events.len(), 3 * MAX_FINISHED);
        deliver_all(&mut deliveries, 5);

        assert_eq!(deliveries.events.len(), MAX_FINISHED);
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
    fn an_event_is_kept_while_it_is_redelivered() {
        let target = Target::new("http://localhost", "a-secret-of-the-test").unwrap();
        let mut deliveries = Deliveries::default();
        for _ in 0..MAX_FINISHED {
            deliveries.publish(event(), 5);
        }
        deliveries.put_endpoint("crm", target);

        deliveries.redeliver("evt_1", 9);
        for _ in 0..3 {
            deliveries.publish(event(), 5);
        }
        deliver_all(&mut deliveries, 5);

        assert!(deliveries.events.find(1).is_some());
        assert!(deliveries.events.find(2).is_none());
    }
}
