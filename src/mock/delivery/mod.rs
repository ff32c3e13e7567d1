//! Webhook deliveries: an event is published, an attempt at each endpoint is queued, made and logged.

mod attempt;
mod endpoint;
mod event;
mod fault;
mod queue;

use std::collections::HashMap;

use serde_json::Value;

use self::attempt::AttemptLog;
pub use self::attempt::DeliveryAttempt;
pub(super) use self::attempt::StartedAttempt;
pub use self::endpoint::SigningClock;
pub(super) use self::endpoint::{Endpoints, Target};
use self::event::{Event, EventStore};
pub(super) use self::event::{EventFilter, EventState, NewEvent};
pub use self::fault::DeliveryFault;
use self::fault::DeliveryFaultKind;
pub(super) use self::queue::{AttemptKind, ScheduledAttempt, Step};
use self::queue::{Schedule, gap_after};
use crate::Timestamp;
use crate::mock::faults::Active;

/// The endpoints, the events, the open attempts and the attempt log.
///
/// Does no I/O: the server makes the attempts that the [`Schedule`] starts, and reports how they ended.
#[derive(Debug, Default)]
pub(in crate::mock) struct Deliveries {
    pub(in crate::mock) schedule: Schedule,
    pub(in crate::mock) endpoints: Endpoints,
    events: EventStore,
    log: AttemptLog,
    pub(in crate::mock) faults: Active<DeliveryFault>,
    pub(in crate::mock) signing_clock: SigningClock,
}

impl Deliveries {
    pub(in crate::mock) fn new(endpoints: Endpoints, signing_clock: SigningClock) -> Self {
        Self {
            endpoints,
            signing_clock,
            ..Self::default()
        }
    }

    /// Removes all events, attempts and faults. The numbers of events continue, so that no id is used twice.
    pub(in crate::mock) fn reset(&mut self, endpoints: Endpoints, signing_clock: SigningClock) {
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        *self = Self {
            events,
            ..Self::new(endpoints, signing_clock)
        };
    }

    /// Sets the clock that attempts are signed by from now on.
    pub(in crate::mock) fn set_signing_clock(&mut self, clock: SigningClock) {
        self.signing_clock = clock;
    }

    /// Adds a fault for the next attempts that match.
    pub(in crate::mock) fn add_fault(&mut self, fault: DeliveryFault) {
        self.faults.add(fault);
    }

    /// Removes all faults. An attempt that is held back stays so.
    pub(in crate::mock) fn clear_faults(&mut self) {
        self.faults.clear();
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

    /// Starts an attempt. Returns `None` if its endpoint has been removed, or if a fault holds it back.
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
        let fault = match scheduled.kind {
            AttemptKind::HeldBack => Some(DeliveryFault::reorder()),
            AttemptKind::Duplicate => Some(DeliveryFault::duplicate()),
            AttemptKind::Automatic(_) | AttemptKind::Redelivery => {
                let can_hold_back = scheduled.kind == AttemptKind::Automatic(1)
                    && !self.schedule.attempts.holds_back(scheduled.endpoint);
                self.faults.take(|fault| {
                    let applies = match fault.kind {
                        DeliveryFaultKind::Reorder => can_hold_back,
                        DeliveryFaultKind::Duplicate => false,
                        _ => true,
                    };
                    applies && fault.matches(&endpoint.name, &event.event_type)
                })
            }
        };
        let is_reordered = fault
            .as_ref()
            .is_some_and(|fault| fault.kind == DeliveryFaultKind::Reorder);
        if scheduled.kind != AttemptKind::HeldBack && is_reordered {
            let due = at.saturating_add(gap_after(1).unwrap_or(0));
            self.schedule.attempts.hold_back(&scheduled, due);
            return None;
        }

        Some(StartedAttempt {
            target: endpoint.target.clone(),
            event_type: event.event_type.clone(),
            body: event.body.clone(),
            log_number: self.log.next_number(),
            record: DeliveryAttempt {
                event_id: event.id.clone(),
                endpoint: endpoint.name.clone(),
                attempt: event.count_attempt(scheduled.endpoint),
                at: Timestamp::from_unix(at),
                status: None,
                error: None,
                fault: fault.as_ref().map(|fault| fault.kind.name()),
                signature_problem: None,
                next_at: None,
            },
            fault,
            signing_clock: self.signing_clock,
            scheduled,
        })
    }

    /// Adds a finished attempt to the log, and schedules the next one if there is to be one.
    pub(in crate::mock) fn finish(&mut self, mut started: StartedAttempt, now: i64) {
        let scheduled = &started.scheduled;
        if !self.schedule.attempts.finish(scheduled) {
            return;
        }
        self.schedule
            .attempts
            .release(scheduled.endpoint, scheduled.event, now);
        let is_success = started.record.is_success();
        if is_success {
            self.schedule_duplicate(&started, now);
        }
        if let Some(event) = self.events.find_mut(scheduled.event) {
            event.record_result(&started.record.endpoint, is_success);
        }
        started.record.next_at = self.schedule_retry(&started).map(Timestamp::from_unix);
        self.log.record(started.log_number, started.record);
    }

    /// Returns the attempt log, in the order the attempts were started.
    pub(in crate::mock) fn attempts(&self) -> Vec<DeliveryAttempt> {
        self.log.to_vec()
    }

    /// Returns at most `limit` of the events that match as JSON, oldest or newest first.
    pub(in crate::mock) fn events_json(
        &self,
        filter: &EventFilter<'_>,
        newest_first: bool,
        limit: usize,
    ) -> Vec<Value> {
        let attempts = self.attempts_by_event();
        let json =
            |event: &Event| event.to_json(attempts.get(&*event.id).map_or(&[][..], Vec::as_slice));
        let matching = self.events.iter().filter(|event| filter.matches(event));
        if newest_first {
            matching.rev().take(limit).map(json).collect()
        } else {
            matching.take(limit).map(json).collect()
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

    fn schedule_attempts(&mut self, event: u64, now: i64, kind: AttemptKind) {
        for endpoint in self.endpoints.numbers() {
            self.schedule.attempts.add(now, event, endpoint, kind);
        }
        self.events
            .open_attempts(event, self.endpoints.numbers().len());
    }

    /// Schedules one more attempt after a successful one, if a fault asks for it.
    fn schedule_duplicate(&mut self, started: &StartedAttempt, now: i64) {
        let ScheduledAttempt {
            event,
            endpoint,
            kind,
            ..
        } = started.scheduled;
        if kind == AttemptKind::Duplicate || self.endpoints.find(endpoint).is_none() {
            return;
        }
        let fault = self.faults.take(|fault| {
            fault.kind == DeliveryFaultKind::Duplicate
                && fault.matches(&started.record.endpoint, &started.event_type)
        });
        if fault.is_some() {
            let attempts = &mut self.schedule.attempts;
            attempts.add(now, event, endpoint, AttemptKind::Duplicate);
            self.events.open_attempts(event, 1);
        }
    }

    /// Schedules the attempt that follows a finished one and returns its due time, or closes the finished one.
    fn schedule_retry(&mut self, started: &StartedAttempt) -> Option<i64> {
        let ScheduledAttempt {
            event,
            endpoint,
            kind,
            ..
        } = started.scheduled;
        let number = match kind {
            AttemptKind::Automatic(number) => Some(number),
            AttemptKind::HeldBack => Some(1),
            AttemptKind::Redelivery | AttemptKind::Duplicate => None,
        };
        let retry = number
            .filter(|_| !started.record.is_success() && self.endpoints.find(endpoint).is_some())
            .and_then(|number| {
                let due = started
                    .record
                    .at
                    .as_unix()
                    .saturating_add(gap_after(number)?);
                Some((number + 1, due))
            });
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
    use super::event::MAX_FINISHED;
    use super::*;

    fn event() -> NewEvent {
        NewEvent::new("email.sent".into(), Value::Null)
    }

    fn deliver_all(deliveries: &mut Deliveries, now: i64) {
        while let Step::Start(attempt) = deliveries.schedule.step(now, true, None) {
            let mut started = deliveries.start(attempt, now).unwrap();
            started.record.status = Some(200);
            deliveries.finish(started, now);
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

        assert!(deliveries.events.find_mut(1).is_some());
        assert!(deliveries.events.find_mut(2).is_none());
    }

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
            let mut started = deliveries.start(attempt, 5).unwrap();
            started.record.status = Some(200);
            deliveries.finish(started, 5);
        }

        let oldest = &deliveries.events_json(&EventFilter::default(), false, 1)[0];
        assert_eq!(oldest["attempts"], serde_json::json!([]));
        assert_eq!(oldest["state"], "delivered");
    }
}
