//! The state of all webhook deliveries: endpoints, events, open attempts and the attempt log.

use crate::Timestamp;
use crate::mock::faults::Active;

use super::attempt_log::{AttemptLog, DeliveryAttempt, is_success};
use super::backoff::gap_after;
use super::endpoints::Endpoints;
use super::event::NewEvent;
use super::event_store::EventStore;
use super::fault::{DeliveryFault, DeliveryFaultKind};
use super::post::Target;
use super::schedule::Schedule;
use super::scheduled_attempt::{AttemptKind, ScheduledAttempt};
use super::signing::SigningClock;
use super::started_attempt::{AttemptOutcome, StartedAttempt};

/// The endpoints, the events, the open attempts and the attempt log.
///
/// Does no I/O: the server makes the attempts that the [`Schedule`] starts, and reports how they ended.
#[derive(Debug, Default)]
pub(in crate::mock) struct Deliveries {
    pub(in crate::mock) schedule: Schedule,
    pub(in crate::mock) endpoints: Endpoints,
    pub(super) events: EventStore,
    pub(super) log: AttemptLog,
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
            endpoint: endpoint.name.clone(),
            event_type: event.event_type.clone(),
            body: event.body.clone(),
            at,
            attempt: event.count_attempt(scheduled.endpoint),
            log_number: self.log.next_number(),
            fault,
            signing_clock: self.signing_clock,
            scheduled,
        })
    }

    /// Records how an attempt ended, and schedules the next one if there is to be one.
    pub(in crate::mock) fn finish(
        &mut self,
        started: StartedAttempt,
        outcome: AttemptOutcome,
        now: i64,
    ) {
        let AttemptOutcome {
            response: outcome,
            signature_problem,
        } = outcome;
        let scheduled = &started.scheduled;
        if !self.schedule.attempts.finish(scheduled) {
            return;
        }
        self.schedule
            .attempts
            .release(scheduled.endpoint, scheduled.event, now);
        let is_success = outcome.as_ref().is_ok_and(|status| is_success(*status));
        if is_success {
            self.schedule_duplicate(&started, now);
        }
        // Looked up before the event is closed, which may drop it.
        let event_id = self
            .events
            .find_mut(scheduled.event)
            .map(|event| {
                event.record_result(&started.endpoint, is_success);
                event.id.clone()
            })
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
            fault: started.fault.map(|fault| fault.kind.name()),
            signature_problem,
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
                && fault.matches(&started.endpoint, &started.event_type)
        });
        if fault.is_some() {
            let attempts = &mut self.schedule.attempts;
            attempts.add(now, event, endpoint, AttemptKind::Duplicate);
            self.events.open_attempts(event, 1);
        }
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
        let number = match kind {
            AttemptKind::Automatic(number) => Some(number),
            AttemptKind::HeldBack => Some(1),
            AttemptKind::Redelivery | AttemptKind::Duplicate => None,
        };
        let retry = number
            .filter(|_| !has_succeeded && self.endpoints.find(endpoint).is_some())
            .and_then(|number| Some((number + 1, started.at.saturating_add(gap_after(number)?))));
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
        while let Step::Start(attempt) = deliveries.schedule.step(now, true, None) {
            let started = deliveries.start(attempt, now).unwrap();
            let outcome = AttemptOutcome {
                response: Ok(200),
                signature_problem: None,
            };
            deliveries.finish(started, outcome, now);
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
}
