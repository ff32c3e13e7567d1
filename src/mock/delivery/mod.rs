//! Webhook deliveries: an event is published, an attempt at each endpoint is queued, made and logged.

mod target;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use self::target::DeliveryFaultKind;
pub use self::target::{DeliveryFault, SigningClock};
pub(super) use self::target::{Target, Transcript};
use super::faults::Active;
use super::service::NewEvent;
use super::service::mail::{authentication_results, sample_event_data, typical_detail};
use crate::Timestamp;
use crate::webhooks::EventType;

/// The endpoints, the events, the open attempts and the attempt log.
///
/// Does no I/O: the server makes the attempts that [`step`](Self::step) starts, and reports how they ended.
#[derive(Debug, Default)]
pub(super) struct Deliveries {
    pub(super) schedule: Schedule,
    pub(super) endpoints: Endpoints,
    events: EventStore,
    /// The finished attempts, by the order in which they were started.
    log: BTreeMap<u64, LoggedAttempt>,
    transcripts: Transcripts,
    last_attempt: u64,
    /// Add to them with [`add_fault`](Self::add_fault).
    pub(super) faults: Active<DeliveryFault>,
    pub(super) signing_clock: SigningClock,
}

impl Deliveries {
    pub(super) fn new(endpoints: Endpoints, signing_clock: SigningClock) -> Self {
        Self {
            endpoints,
            signing_clock,
            ..Self::default()
        }
    }

    /// Removes all events, attempts and faults. Their numbers continue, so that none is used twice.
    pub(super) fn reset(&mut self, endpoints: Endpoints, signing_clock: SigningClock) {
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        let mut faults = std::mem::take(&mut self.faults);
        faults.clear();
        *self = Self {
            events,
            faults,
            last_attempt: self.last_attempt,
            ..Self::new(endpoints, signing_clock)
        };
    }

    /// Removes an endpoint and its pending attempts. Returns `false` if no endpoint has this name.
    pub(super) fn remove_endpoint(&mut self, name: &str) -> bool {
        let Some(endpoint) = self.endpoints.remove(name) else {
            return false;
        };
        for attempt in self.schedule.attempts.remove_endpoint(endpoint) {
            self.cancelled(&attempt);
        }
        true
    }

    /// Notes that an attempt that was pending will not be made.
    fn cancelled(&mut self, attempt: &ScheduledAttempt) {
        self.events.close_attempt(attempt.event);
        if let AttemptKind::Automatic(2..) = attempt.kind {
            let due = Some(Timestamp::from_unix(attempt.due));
            let mut logged = self.log.values_mut().rev();
            let before = logged.find(|logged| {
                (logged.event, logged.endpoint) == (attempt.event, attempt.endpoint)
                    && logged.attempt.next_at == due
            });
            if let Some(before) = before {
                before.attempt.next_at = None;
            }
        }
    }

    /// Stores an event and makes its first attempt at every endpoint due at `now`. Returns its number and its id.
    pub(super) fn publish(&mut self, event: NewEvent, now: i64) -> (u64, String) {
        let (number, id) = self.events.insert(event, now);
        self.schedule_attempts(number, now, AttemptKind::Automatic(1));
        (number, id)
    }

    /// Makes one more attempt at every endpoint due at `now`. Returns the event's number, or `None` if no event has
    /// this id.
    pub(super) fn redeliver(&mut self, id: &str, now: i64) -> Option<u64> {
        let number = self.events.number_of(id)?;
        self.schedule_attempts(number, now, AttemptKind::Redelivery);
        Some(number)
    }

    /// Returns what to do at `now`, and starts the attempt that is due. With `one_at_a_time`, each endpoint has at most
    /// one running attempt.
    ///
    /// `next_event` is when the next event will be published. The clock does not move past it.
    pub(super) fn step(&mut self, now: i64, one_at_a_time: bool, next_event: Option<i64>) -> Step {
        loop {
            match self.schedule.step(now, one_at_a_time, next_event) {
                Step::Start(attempt) => {
                    if let Some(started) = self.start(attempt, now) {
                        return Step::Start(started);
                    }
                }
                Step::MoveClock(to) => return Step::MoveClock(to),
                Step::Wait(due) => return Step::Wait(due),
            }
        }
    }

    /// Starts an attempt. Returns `None` if its endpoint has been removed, or if a fault holds it back.
    fn start(&mut self, scheduled: ScheduledAttempt, at: i64) -> Option<StartedAttempt> {
        let endpoint = self.endpoints.find(scheduled.endpoint);
        let event = self.events.find_mut(scheduled.event);
        let (Some(endpoint), Some(event)) = (endpoint, event) else {
            // It counts as running since the schedule returned it.
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
                        // It waits for a success: `schedule_duplicate` takes it.
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
            // If no later event releases it, it is made when a second attempt would be.
            let due = at.saturating_add(gap_after(1).unwrap_or(0));
            self.schedule.attempts.hold_back(&scheduled, due);
            return None;
        }

        self.last_attempt += 1;
        let attempt = event.count_attempt(scheduled.endpoint);
        let now = self.signing_clock.time(at);
        let is_stale = fault
            .as_ref()
            .is_some_and(|fault| fault.kind == DeliveryFaultKind::Stale);
        let signed_at = match is_stale {
            true => now,
            false => event.next_timestamp(scheduled.endpoint, now),
        };
        Some(StartedAttempt {
            target: endpoint.target.clone(),
            event_type: event.event_type.clone(),
            body: event.body.clone(),
            log_number: self.last_attempt,
            record: DeliveryAttempt {
                event_id: event.id.clone(),
                endpoint: endpoint.name.clone(),
                attempt,
                at: Timestamp::from_unix(at),
                status: None,
                error: None,
                fault: fault.as_ref().map(|fault| fault.kind.name()),
                signature_problem: None,
                next_at: None,
            },
            transcript: None,
            fault,
            now,
            signed_at,
            scheduled,
        })
    }

    /// Adds a finished attempt to the log, and schedules the next one if there is to be one.
    pub(super) fn finish(&mut self, mut started: StartedAttempt, now: i64) {
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
        // Sorted by the start of the attempts. They end in any order.
        let logged = LoggedAttempt {
            event: started.scheduled.event,
            endpoint: started.scheduled.endpoint,
            attempt: started.record,
        };
        self.log.insert(started.log_number, logged);
        if self.log.len() > MAX_ATTEMPTS_KEPT {
            self.log.pop_first();
        }
        if let Some(transcript) = started.transcript {
            self.transcripts.insert(started.log_number, transcript);
        }
    }

    /// Adds a fault.
    ///
    /// # Errors
    ///
    /// Fails if no delivery can match the fault. The message has the reason.
    pub(super) fn add_fault(&mut self, fault: DeliveryFault) -> Result<(), String> {
        fault.check(&self.endpoints)?;
        self.faults.add(fault);
        Ok(())
    }

    /// Returns the attempt log, in the order the attempts were started.
    pub(super) fn attempts(&self) -> Vec<DeliveryAttempt> {
        let entries = self.log.values();
        entries.map(|logged| logged.attempt.clone()).collect()
    }

    /// Returns the attempt log as JSON, with the number of each attempt.
    pub(super) fn attempts_json(&self) -> Vec<Value> {
        let entries = self.log.iter();
        entries
            .map(|(number, logged)| logged.attempt.to_json(*number))
            .collect()
    }

    /// Returns the attempt with this number as JSON, and what it sent and received if that is still kept.
    pub(super) fn attempt(&self, number: u64) -> Option<(Value, Option<Transcript>)> {
        let attempt = self.log.get(&number)?.attempt.to_json(number);
        Some((attempt, self.transcripts.by_number.get(&number).cloned()))
    }

    /// Returns at most `limit` of the events that match as JSON, oldest or newest first.
    pub(super) fn events_json(
        &self,
        filter: &EventFilter<'_>,
        newest_first: bool,
        limit: usize,
    ) -> Vec<Value> {
        let attempts = self.attempts_by_event();
        let json = |(number, event): (u64, &Event)| {
            let attempts = attempts.get(&number).map_or(&[][..], Vec::as_slice);
            event.to_json(number, attempts)
        };
        let events = self.events.iter();
        let matching = events.filter(|(_, event)| filter.matches(event));
        if newest_first {
            matching.rev().take(limit).map(json).collect()
        } else {
            matching.take(limit).map(json).collect()
        }
    }

    /// Returns how many events and attempts are kept.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.events.len(), self.log.len())
    }

    /// Returns the attempts of each event, by its number: a test can send several events with one id.
    fn attempts_by_event(&self) -> HashMap<u64, Vec<(u64, &DeliveryAttempt)>> {
        let mut by_event: HashMap<u64, Vec<_>> = HashMap::new();
        for (number, logged) in &self.log {
            let attempts = by_event.entry(logged.event).or_default();
            attempts.push((*number, &logged.attempt));
        }
        by_event
    }

    fn schedule_attempts(&mut self, event: u64, now: i64, kind: AttemptKind) {
        for endpoint in self.endpoints.numbers() {
            self.schedule.attempts.add(now, event, endpoint, kind);
        }
        self.events
            .open_attempts(event, self.endpoints.numbers().len());
        while let Some(oldest) = self.events.give_up_oldest() {
            // An attempt that is running ends, but is not retried.
            for attempt in self.schedule.attempts.remove_event(oldest) {
                self.cancelled(&attempt);
            }
        }
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
            .filter(|_| !self.events.is_given_up(event))
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
impl NewEvent {
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

    /// Gives the mail that an event of a known type is about the id `em_…` or `inb_…`, unless the data has one.
    pub(in crate::mock) fn identify(&mut self, id: impl fmt::Display) {
        let Value::Object(data) = &mut self.data else {
            return;
        };
        let (member, id) = match EventType::from(&*self.event_type) {
            EventType::Other(_) => return,
            EventType::Received => ("inbound_id", format!("inb_{id}")),
            _ => ("email_id", format!("em_{id}")),
        };
        data.entry(member).or_insert(id.into());
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

/// Adds missing members to the data of a known type (interface sections 6.3 and 6.4), except the id of the mail: see
/// [`NewEvent::identify`].
fn complete(event_type: &str, data: &mut Map<String, Value>) {
    let defaults = match EventType::from(event_type) {
        EventType::Other(_) => return,
        EventType::Received => {
            let from = data.get("from").and_then(Value::as_str);
            json!({
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
            sample_event_data("recipient@example.com", default_type, detail)
        }
    };
    let Value::Object(defaults) = defaults else {
        return;
    };
    for (member, value) in defaults {
        data.entry(member).or_insert(value);
    }
}

/// How many events without open attempts are kept for redelivery. The oldest is dropped first.
const MAX_FINISHED: usize = 1_000;

/// Bytes of the bodies of these events.
const MAX_FINISHED_BYTES: usize = 64 * 1024 * 1024;

/// How many events may have open attempts. The oldest is given up first, so that an endpoint that fails for hours does
/// not fill the memory.
const MAX_OPEN: usize = 10_000;

/// Bytes of the bodies of these events.
const MAX_OPEN_BYTES: usize = 64 * 1024 * 1024;

/// How many numbers of ids that a test has given are kept. The largest is dropped first.
const MAX_GIVEN_NUMBERS: usize = 10_000;

/// How many seconds ahead an attempt is signed at most. Receivers accept 300.
const MOST_AHEAD: i64 = 60;

/// An event, and the progress of its delivery.
#[derive(Debug)]
struct Event {
    id: String,
    event_type: String,
    /// The bytes that every attempt sends.
    body: Bytes,
    /// Attempts started, by endpoint.
    attempts: BTreeMap<u64, u32>,
    /// The timestamps of all attempts, by endpoint. The clock can be set back to any of them.
    timestamps: BTreeMap<u64, BTreeSet<i64>>,
    /// Whether the latest finished attempt at each endpoint was a success, by the endpoint's name. The attempt log
    /// forgets old attempts.
    results: BTreeMap<String, bool>,
    /// Attempts pending and running.
    open: usize,
    is_given_up: bool,
}

impl Event {
    /// Counts an attempt at `endpoint` and returns its number, counted from 1.
    fn count_attempt(&mut self, endpoint: u64) -> u32 {
        let attempts = self.attempts.entry(endpoint).or_default();
        *attempts += 1;
        *attempts
    }

    /// Returns the timestamp of the next attempt at `endpoint`: the first second from now on that no attempt has.
    ///
    /// If attempts have all seconds up to [`MOST_AHEAD`], it begins anew with now.
    fn next_timestamp(&mut self, endpoint: u64, now: i64) -> i64 {
        let used = self.timestamps.entry(endpoint).or_default();
        let mut seconds = now..=now.saturating_add(MOST_AHEAD);
        let next = seconds
            .find(|second| !used.contains(second))
            .unwrap_or_else(|| {
                used.clear();
                now
            });
        used.insert(next);
        next
    }

    /// Records how an attempt at an endpoint ended. What was delivered once stays delivered, also if a duplicate fails.
    fn record_result(&mut self, endpoint: &str, is_success: bool) {
        let is_delivered = self.results.entry(endpoint.to_owned()).or_default();
        *is_delivered |= is_success;
    }

    fn state(&self) -> EventState {
        if self.open > 0 {
            return EventState::Pending;
        }
        if self.is_given_up {
            return EventState::GivenUp;
        }
        match self.is_delivered() {
            None => EventState::Unsent,
            Some(true) => EventState::Delivered,
            Some(false) => EventState::Failed,
        }
    }

    /// Returns the envelope with the members `number`, `state` and `attempts`.
    fn to_json(&self, number: u64, attempts: &[(u64, &DeliveryAttempt)]) -> Value {
        let attempts = attempts
            .iter()
            .map(|(number, attempt)| attempt.to_json(*number));
        let mut json: Map<String, Value> = serde_json::from_slice(&self.body).unwrap_or_default();
        json.insert("number".to_owned(), number.into());
        json.insert("state".to_owned(), json!(self.state()));
        json.insert("attempts".to_owned(), attempts.collect());
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
struct EventStore {
    events: BTreeMap<u64, Event>,
    /// The events with open attempts that have not been given up.
    open: Kept,
    /// The events without open attempts.
    finished: Kept,
    last_number: u64,
    /// The numbers above the last one whose ids a test has given to events, at most [`MAX_GIVEN_NUMBERS`]. No event
    /// gets these numbers.
    given_numbers: BTreeSet<u64>,
}

impl EventStore {
    /// Stores an event. Returns its number and its id.
    ///
    /// An event without an id gets `evt_` and its number, and one without `created_at` gets `now`. The mail gets the
    /// same number, so that no two events of a test seem to be about one mail.
    fn insert(&mut self, mut event: NewEvent, now: i64) -> (u64, String) {
        self.last_number += 1;
        while self.given_numbers.remove(&self.last_number) {
            self.last_number += 1;
        }
        let given = event.id.as_deref().and_then(|id| id.strip_prefix("evt_"));
        if let Some(given) = given.and_then(|number| number.parse::<u64>().ok())
            && given > self.last_number
        {
            self.given_numbers.insert(given);
            // An event is least likely to reach the largest number.
            if self.given_numbers.len() > MAX_GIVEN_NUMBERS {
                self.given_numbers.pop_last();
            }
        }
        let number = self.last_number;
        event.identify(number);
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
            timestamps: BTreeMap::new(),
            results: BTreeMap::new(),
            open: 0,
            is_given_up: false,
        };
        self.events.insert(number, stored);
        (number, id)
    }

    fn find_mut(&mut self, number: u64) -> Option<&mut Event> {
        self.events.get_mut(&number)
    }

    /// Returns the events and their numbers, oldest first.
    fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, &Event)> {
        self.events.iter().map(|(number, event)| (*number, event))
    }

    fn is_given_up(&self, number: u64) -> bool {
        let event = self.events.get(&number);
        event.is_some_and(|event| event.is_given_up)
    }

    /// Returns the number of the newest event with this id.
    fn number_of(&self, id: &str) -> Option<u64> {
        self.events
            .iter()
            .rev()
            .find(|(_, event)| event.id == id)
            .map(|(number, _)| *number)
    }

    /// Adds open attempts to an event. An event without any is finished.
    fn open_attempts(&mut self, number: u64, count: usize) {
        let Some(event) = self.events.get_mut(&number) else {
            return;
        };
        event.open += count;
        if event.open == 0 {
            self.retain_finished(number);
            return;
        }
        event.is_given_up = false;
        let length = event.body.len();
        self.finished.remove(number, length);
        self.open.insert(number, length);
    }

    /// Closes one open attempt of an event. An event without any left is finished.
    fn close_attempt(&mut self, number: u64) {
        let Some(event) = self.events.get_mut(&number) else {
            return;
        };
        event.open -= 1;
        if event.open == 0 {
            self.retain_finished(number);
        }
    }

    /// Gives up the oldest event with open attempts if there are too many such events or bytes. Returns its number.
    fn give_up_oldest(&mut self) -> Option<u64> {
        let oldest = self.open.first_beyond(MAX_OPEN, MAX_OPEN_BYTES)?;
        let event = self.events.get_mut(&oldest)?;
        event.is_given_up = true;
        self.open.remove(oldest, event.body.len());
        Some(oldest)
    }

    /// Removes all events. Numbers continue, so that no id is used twice.
    fn clear(&mut self) {
        *self = Self {
            last_number: self.last_number,
            given_numbers: std::mem::take(&mut self.given_numbers),
            ..Self::default()
        };
    }

    /// Keeps a finished event, and drops the oldest finished ones if there are too many events or bytes.
    fn retain_finished(&mut self, number: u64) {
        let length = self.body_len(number);
        self.open.remove(number, length);
        self.finished.insert(number, length);
        while let Some(oldest) = self.finished.first_beyond(MAX_FINISHED, MAX_FINISHED_BYTES) {
            self.finished.remove(oldest, self.body_len(oldest));
            self.events.remove(&oldest);
        }
    }

    fn body_len(&self, number: u64) -> usize {
        self.events.get(&number).map_or(0, |event| event.body.len())
    }

    fn len(&self) -> usize {
        self.events.len()
    }
}

/// A part of the events, by number, and the sum of their bodies.
#[derive(Debug, Default)]
struct Kept {
    numbers: BTreeSet<u64>,
    bytes: usize,
}

impl Kept {
    fn insert(&mut self, number: u64, length: usize) {
        if self.numbers.insert(number) {
            self.bytes += length;
        }
    }

    fn remove(&mut self, number: u64, length: usize) {
        if self.numbers.remove(&number) {
            self.bytes -= length;
        }
    }

    /// Returns the oldest event if there are too many events or bytes. One event is never too many.
    fn first_beyond(&self, count: usize, bytes: usize) -> Option<u64> {
        let is_beyond = self.numbers.len() > count || self.bytes > bytes;
        (is_beyond && self.numbers.len() > 1)
            .then(|| self.numbers.first().copied())
            .flatten()
    }
}

/// The state of an event's delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum EventState {
    /// An attempt is running, or another one will be made.
    Pending,
    /// The last attempt at every endpoint was a success.
    Delivered,
    /// The last attempt at an endpoint failed, and there will be no other.
    Failed,
    /// Too many events had open attempts, and this was the oldest of them.
    GivenUp,
    /// There was no endpoint to deliver it to.
    Unsent,
}

/// Which events to show.
#[derive(Debug, Default)]
pub(super) struct EventFilter<'a> {
    /// A text in the envelope, in any case of ASCII letters.
    pub(super) text: &'a str,
    /// A type, or an empty text for all.
    pub(super) event_type: &'a str,
    pub(super) state: Option<EventState>,
}

impl EventFilter<'_> {
    fn matches(&self, event: &Event) -> bool {
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
/// An attempt that has started, with everything that is needed to make it.
#[derive(Debug)]
pub(super) struct StartedAttempt {
    scheduled: ScheduledAttempt,
    target: Target,
    event_type: String,
    body: Bytes,
    log_number: u64,
    fault: Option<DeliveryFault>,
    /// The time by the signing clock, and the timestamp.
    now: i64,
    signed_at: i64,
    /// The entry for the log. Its result is missing while the attempt is being made.
    record: DeliveryAttempt,
    /// `None` while the attempt is being made.
    transcript: Option<Transcript>,
}

impl StartedAttempt {
    /// Signs and posts the event, and records the response. The receiver has `timeout` for a complete response.
    pub(super) async fn post(&mut self, timeout: Duration) {
        let body = self.body.clone();
        let delivered = self
            .target
            .deliver(
                &self.event_type,
                self.now,
                self.signed_at,
                body,
                self.fault.as_ref(),
                timeout,
            )
            .await;
        self.record.signature_problem = delivered.signature_problem;
        match delivered.response {
            Ok(status) => self.record.status = Some(status),
            Err(error) => self.record.error = Some(error),
        }
        self.transcript = Some(delivered.transcript);
    }
}

/// Attempts kept. The oldest is dropped first.
const MAX_ATTEMPTS_KEPT: usize = 10_000;

/// Bytes of the transcripts kept. The oldest is dropped first.
const MAX_TRANSCRIPT_BYTES: usize = 64 * 1024 * 1024;

/// The requests and responses of the newest attempts, by the number of the attempt in the log.
#[derive(Debug, Default)]
struct Transcripts {
    by_number: BTreeMap<u64, Transcript>,
    /// The sum of their sizes. Attempts of one event share its body, but each counts it: an attempt can outlive the
    /// event.
    bytes: usize,
}

impl Transcripts {
    /// Keeps a transcript, and drops the oldest if there are too many of them or of their bytes.
    fn insert(&mut self, number: u64, transcript: Transcript) {
        self.bytes += transcript.size();
        self.by_number.insert(number, transcript);
        while self.by_number.len() > MAX_ATTEMPTS_KEPT
            || (self.by_number.len() > 1 && self.bytes > MAX_TRANSCRIPT_BYTES)
        {
            let Some((_, oldest)) = self.by_number.pop_first() else {
                break;
            };
            self.bytes -= oldest.size();
        }
    }
}

/// An attempt in the log.
#[derive(Debug)]
struct LoggedAttempt {
    /// The number of the event.
    event: u64,
    /// The number of the endpoint.
    endpoint: u64,
    attempt: DeliveryAttempt,
}

/// A finished attempt to deliver one event to one endpoint.
///
/// [`MockServer::attempts`](crate::mock::MockServer::attempts) returns them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DeliveryAttempt {
    /// The `id` of the event.
    pub event_id: String,
    /// The name of the endpoint: its URL, or the name given to the control plane.
    pub endpoint: String,
    /// The number of the attempt for this event and endpoint, counted from 1. Redeliveries count too.
    pub attempt: u32,
    /// When the attempt started, by the server's clock.
    pub at: Timestamp,
    /// The status of the response. `None` if no complete response arrived in time.
    pub status: Option<u16>,
    /// The reason that no complete response arrived, as text. `None` if there is one.
    pub error: Option<String>,
    /// The name of the [`DeliveryFault`](crate::mock::DeliveryFault) that affected the attempt, such as `stale`.
    /// `None` if the attempt was genuine.
    pub fault: Option<&'static str>,
    /// The reason for which a receiver has to reject the delivery, if its signature is invalid or too old. `None` if
    /// the signature is valid for the endpoint's secret.
    pub signature_problem: Option<String>,
    /// When the next attempt is due. `None` if there is no next attempt.
    pub next_at: Option<Timestamp>,
}

impl DeliveryAttempt {
    fn to_json(&self, number: u64) -> Value {
        let mut json = json!(self);
        json["number"] = number.into();
        json
    }

    /// Returns whether the receiver accepted the event: it sent a complete 2xx response in time.
    ///
    /// # Example: a receiver that fails once
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use audience::mock::{Fault, MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let receiver = MockServer::start().await;
    /// # receiver.fault(Fault::status(500).times(1));
    /// # receiver.fault(Fault::status(204));
    /// # let hook = format!("{}/hook", receiver.url());
    /// let server = MockServer::builder()
    ///     .clock(1_700_000_000)
    ///     .webhook_endpoint(hook, "a-secret-of-the-test")
    ///     .start()
    ///     .await;
    /// server.send_event(serde_json::json!({"type": "email.opened"})).await;
    ///
    /// server.advance(Duration::from_secs(35)).await;
    ///
    /// let results: Vec<bool> = server.attempts().iter().map(|attempt| attempt.is_success()).collect();
    /// assert_eq!(results, [false, true]);
    /// # }
    /// ```
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.status
            .is_some_and(|status| (200..300).contains(&status))
    }
}

/// The webhook endpoints, in the order they were added. Their JSON does not have their secrets.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(transparent)]
pub(super) struct Endpoints {
    list: Vec<Endpoint>,
    #[serde(skip)]
    last_number: u64,
}

/// A named place that events are delivered to.
#[derive(Clone, Debug, Serialize)]
struct Endpoint {
    /// Counted from 1. The number of a removed endpoint is not used again.
    #[serde(skip)]
    number: u64,
    name: String,
    #[serde(rename = "url")]
    target: Target,
}

impl Endpoints {
    /// Adds an endpoint, or changes the URL and the secret of the endpoint with this name.
    pub(super) fn put(&mut self, name: &str, target: Target) {
        if let Some(endpoint) = self.list.iter_mut().find(|endpoint| endpoint.name == name) {
            endpoint.target = target;
            return;
        }
        self.last_number += 1;
        self.list.push(Endpoint {
            number: self.last_number,
            name: name.to_owned(),
            target,
        });
    }

    /// Removes an endpoint and returns its number, or returns `None` if no endpoint has this name.
    fn remove(&mut self, name: &str) -> Option<u64> {
        let index = self
            .list
            .iter()
            .position(|endpoint| endpoint.name == name)?;
        Some(self.list.remove(index).number)
    }

    /// Finds an endpoint by its number.
    fn find(&self, number: u64) -> Option<&Endpoint> {
        self.list.iter().find(|endpoint| endpoint.number == number)
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.list.iter().map(|endpoint| &*endpoint.name)
    }

    /// Returns the number of every endpoint, in the order they were added.
    fn numbers(&self) -> impl ExactSizeIterator<Item = u64> {
        self.list.iter().map(|endpoint| endpoint.number)
    }
}

/// The next action of the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step<A = StartedAttempt> {
    /// Make this attempt, and call [`Deliveries::finish`] when it has ended.
    Start(A),
    /// Set the clock to this time, and ask again.
    MoveClock(i64),
    /// Wait until something changes, or until the clock shows this time.
    Wait(Option<i64>),
}

/// The open attempts, and the time the clock is moving to.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    attempts: AttemptQueue,
    /// The time the clock is moving to. While it is set, only [`step`](Self::step) moves the clock.
    clock_target: Option<i64>,
}

impl Schedule {
    /// Moves the clock forward by `seconds`, counted from its destination. Returns the new destination.
    pub(super) fn advance_clock(&mut self, now: i64, seconds: i64) -> i64 {
        let target = self.clock_destination(now).saturating_add(seconds);
        self.clock_target = Some(target);
        target
    }

    /// Moves the clock to `target` instead of any earlier destination.
    ///
    /// Returns `true` if that cancels an earlier move, because its destination is later. The caller has to set the
    /// clock back then.
    pub(super) fn set_clock(&mut self, now: i64, target: i64) -> bool {
        let cancels = target < self.clock_destination(now);
        self.clock_target = Some(target);
        cancels
    }

    /// Returns the time the clock is moving to, or `now` if it is not moving.
    fn clock_destination(&self, now: i64) -> i64 {
        // A running clock can pass its target while an attempt is running.
        self.clock_target.map_or(now, |target| target.max(now))
    }

    fn step(
        &mut self,
        now: i64,
        one_at_a_time: bool,
        next_event: Option<i64>,
    ) -> Step<ScheduledAttempt> {
        if let Some(attempt) = self.attempts.start_due(now, one_at_a_time) {
            return Step::Start(attempt);
        }

        let next_attempt = self.attempts.next_due(one_at_a_time);
        let next_due = next_attempt.into_iter().chain(next_event).min();
        let Some(target) = self.clock_target else {
            return Step::Wait(next_due);
        };
        // A running attempt may fail, and its retry may be due before the target.
        if self.attempts.has_running() {
            return Step::Wait(next_due);
        }
        match next_due.filter(|due| *due <= target) {
            Some(due) => Step::MoveClock(due),
            None => {
                self.clock_target = None;
                if target > now {
                    Step::MoveClock(target)
                } else {
                    Step::Wait(next_due)
                }
            }
        }
    }

    /// Returns whether the clock has reached `time` and no attempt that was due by then is open.
    ///
    /// A clock that is not moving counts as having reached any time.
    pub(super) fn has_reached(&self, time: i64, now: i64) -> bool {
        let arrived = now >= time || self.clock_target.is_none();
        arrived && !self.attempts.has_open_due_by(time)
    }

    /// Returns whether an attempt of this event and kind is open at `now`, or one that a fault added to it.
    pub(super) fn is_attempting(&self, event: u64, kind: AttemptKind, now: i64) -> bool {
        self.attempts.is_open(event, kind, now)
            || self.attempts.is_open(event, AttemptKind::Duplicate, now)
            || self.attempts.has_released(now)
    }
}

/// The most attempts that run simultaneously. Each opens a socket, and many processes may have only 1,024 open files.
const MAX_RUNNING: usize = 64;

/// The most attempts that run simultaneously for one endpoint. A slow endpoint does not block the others.
const MAX_RUNNING_PER_ENDPOINT: usize = 16;

/// The attempts that are pending or running.
///
/// Attempts start in the order of due time, then event, then endpoint. The order is the same on every run.
#[derive(Debug, Default)]
struct AttemptQueue {
    /// One queue for each endpoint, so that a busy endpoint's queue is skipped as a whole. No queue is empty.
    pending: BTreeMap<u64, EndpointQueue>,
    running: Vec<ScheduledAttempt>,
    open: OpenAttempts,
    /// The attempt that is held back at an endpoint, until it has been made.
    held_back: BTreeMap<u64, HeldBack>,
    next_serial: u64,
}

/// The pending attempts for one endpoint, by due time, event and serial number.
type EndpointQueue = BTreeMap<(i64, u64, u64), ScheduledAttempt>;

/// The place of a pending attempt in the order of all: due time, event, endpoint and serial number.
type OrderKey = (i64, u64, u64, u64);

impl AttemptQueue {
    /// Adds an attempt. Returns its serial number.
    fn add(&mut self, due: i64, event: u64, endpoint: u64, kind: AttemptKind) -> u64 {
        let serial = self.next_serial;
        self.next_serial += 1;
        self.insert(ScheduledAttempt {
            due,
            event,
            endpoint,
            kind,
            serial,
        });
        serial
    }

    /// Puts back an attempt that has just started. It is due when it is [released](Self::release), or at `due`.
    fn hold_back(&mut self, attempt: &ScheduledAttempt, due: i64) {
        self.finish(attempt);
        let ScheduledAttempt {
            event, endpoint, ..
        } = *attempt;
        let serial = self.add(due, event, endpoint, AttemptKind::HeldBack);
        let held_back = HeldBack {
            due,
            event,
            serial,
            is_released: false,
        };
        self.held_back.insert(endpoint, held_back);
    }

    /// Returns whether an attempt for an endpoint is held back, or was and is still open.
    fn holds_back(&self, endpoint: u64) -> bool {
        self.held_back.contains_key(&endpoint)
    }

    /// Makes the attempt that is held back at an endpoint due at `now`, if its event is earlier than `event`.
    fn release(&mut self, endpoint: u64, event: u64, now: i64) {
        let held = self.held_back.get(&endpoint).copied();
        let Some(held) = held.filter(|held| held.event < event) else {
            return;
        };
        // It is not pending if it is running already.
        let Some(mut attempt) = self.take_pending((held.due, held.event, endpoint, held.serial))
        else {
            return;
        };
        self.open.remove(&attempt);
        attempt.due = attempt.due.min(now);
        let released = HeldBack {
            due: attempt.due,
            is_released: true,
            ..held
        };
        self.held_back.insert(endpoint, released);
        self.insert(attempt);
    }

    /// Returns whether an attempt is open and due at `now` that was held back and then released.
    fn has_released(&self, now: i64) -> bool {
        let mut held_back = self.held_back.values();
        held_back.any(|held| held.is_released && held.due <= now)
    }

    /// Moves the first attempt that is due at `now` from pending to running, and returns it.
    ///
    /// Skips endpoints that are busy. With `one_at_a_time`, one running attempt makes an endpoint busy.
    fn start_due(&mut self, now: i64, one_at_a_time: bool) -> Option<ScheduledAttempt> {
        let key = self
            .first_pending(one_at_a_time)
            .filter(|(due, ..)| *due <= now)?;
        let attempt = self.take_pending(key)?;
        self.running.push(attempt.clone());
        Some(attempt)
    }

    /// Returns the earliest due time among the endpoints that are not busy.
    fn next_due(&self, one_at_a_time: bool) -> Option<i64> {
        self.first_pending(one_at_a_time).map(|(due, ..)| due)
    }

    /// Removes a running attempt. Returns `false` if it was no longer running.
    fn finish(&mut self, attempt: &ScheduledAttempt) -> bool {
        let before = self.running.len();
        self.running.retain(|other| other.serial != attempt.serial);
        let was_running = self.running.len() < before;
        if was_running {
            if attempt.kind == AttemptKind::HeldBack {
                self.held_back.remove(&attempt.endpoint);
            }
            self.open.remove(attempt);
        }
        was_running
    }

    /// Removes all pending attempts for an endpoint, and returns them.
    fn remove_endpoint(&mut self, endpoint: u64) -> Vec<ScheduledAttempt> {
        let removed = self.pending.remove(&endpoint).unwrap_or_default();
        self.held_back.remove(&endpoint);
        removed
            .into_values()
            .inspect(|attempt| self.open.remove(attempt))
            .collect()
    }

    /// Removes all pending attempts for an event, and returns them.
    fn remove_event(&mut self, event: u64) -> Vec<ScheduledAttempt> {
        // A mail to many recipients gives up one event after the other, so this looks at no attempt of another event.
        let mut removed = Vec::new();
        for due in self.open.due_times(event) {
            for queue in self.pending.values() {
                let of_event = queue.range((due, event, u64::MIN)..=(due, event, u64::MAX));
                removed.extend(of_event.map(|(_, attempt)| attempt.clone()));
            }
        }
        for attempt in &removed {
            self.take_pending((attempt.due, event, attempt.endpoint, attempt.serial));
            self.open.remove(attempt);
            if attempt.kind == AttemptKind::HeldBack {
                self.held_back.remove(&attempt.endpoint);
            }
        }
        removed
    }

    fn has_running(&self) -> bool {
        !self.running.is_empty()
    }

    /// Returns whether an attempt of this event and kind is running, or pending and due at `now`.
    ///
    /// A pending attempt is not due if the clock was set back. It may never be made then.
    fn is_open(&self, event: u64, kind: AttemptKind, now: i64) -> bool {
        let mut running = self.running.iter();
        self.open.has_due_by(now, event, kind)
            || running.any(|attempt| attempt.event == event && attempt.kind == kind)
    }

    /// Returns whether an attempt that is due by `time` is pending or running.
    fn has_open_due_by(&self, time: i64) -> bool {
        let mut first_due = self
            .pending
            .values()
            .filter_map(|queue| queue.keys().next());

        first_due.any(|(due, ..)| *due <= time)
            || self.running.iter().any(|attempt| attempt.due <= time)
    }

    fn first_pending(&self, one_at_a_time: bool) -> Option<OrderKey> {
        if self.running.len() >= MAX_RUNNING {
            return None;
        }
        let busy = self.busy_endpoints(one_at_a_time);
        self.pending
            .iter()
            .filter(|(endpoint, _)| !busy.contains(*endpoint))
            .filter_map(|(endpoint, queue)| {
                let (due, event, serial) = queue.keys().next()?;
                Some((*due, *event, *endpoint, *serial))
            })
            .min()
    }

    fn take_pending(
        &mut self,
        (due, event, endpoint, serial): OrderKey,
    ) -> Option<ScheduledAttempt> {
        let queue = self.pending.get_mut(&endpoint)?;
        let attempt = queue.remove(&(due, event, serial));
        if queue.is_empty() {
            self.pending.remove(&endpoint);
        }
        attempt
    }

    fn insert(&mut self, attempt: ScheduledAttempt) {
        self.open.add(&attempt);
        let queue = self.pending.entry(attempt.endpoint).or_default();
        queue.insert((attempt.due, attempt.event, attempt.serial), attempt);
    }

    /// Returns the endpoints that have to wait until a running attempt ends.
    fn busy_endpoints(&self, one_at_a_time: bool) -> BTreeSet<u64> {
        let limit = if one_at_a_time {
            1
        } else {
            MAX_RUNNING_PER_ENDPOINT
        };
        let mut running: BTreeMap<u64, usize> = BTreeMap::new();
        for attempt in &self.running {
            *running.entry(attempt.endpoint).or_default() += 1;
        }
        let busy = running.into_iter().filter(|(_, count)| *count >= limit);
        busy.map(|(endpoint, _)| endpoint).collect()
    }
}

/// The number of attempts of each event, kind and due time that are pending or running. No count is 0.
#[derive(Debug, Default)]
struct OpenAttempts(BTreeMap<(u64, AttemptKind, i64), usize>);

impl OpenAttempts {
    /// Counts an attempt that is pending now.
    fn add(&mut self, attempt: &ScheduledAttempt) {
        *self.0.entry(key(attempt)).or_default() += 1;
    }

    /// Stops counting an attempt.
    fn remove(&mut self, attempt: &ScheduledAttempt) {
        let key = key(attempt);
        if let Some(count) = self.0.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&key);
            }
        }
    }

    /// Returns whether an attempt of this event and kind is open that is due by `time`.
    fn has_due_by(&self, time: i64, event: u64, kind: AttemptKind) -> bool {
        let due = (event, kind, i64::MIN)..=(event, kind, time);
        self.0.range(due).next().is_some()
    }

    /// Returns when the open attempts of an event are due.
    fn due_times(&self, event: u64) -> BTreeSet<i64> {
        let least = (event, AttemptKind::Automatic(0), i64::MIN);
        self.0
            .range(least..)
            .take_while(|((other, ..), _)| *other == event)
            .map(|((.., due), _)| *due)
            .collect()
    }
}

fn key(attempt: &ScheduledAttempt) -> (u64, AttemptKind, i64) {
    (attempt.event, attempt.kind, attempt.due)
}

/// An attempt to deliver one event to one endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ScheduledAttempt {
    /// When the attempt is due, in Unix seconds.
    due: i64,
    /// The number of the event. Events are numbered in the order they are published.
    event: u64,
    /// The number of the endpoint. Endpoints are numbered in the order they are added.
    endpoint: u64,
    kind: AttemptKind,
    /// Unique for each attempt.
    serial: u64,
}

/// The reason for an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AttemptKind {
    /// One of the ten automatic attempts, counted from 1.
    Automatic(u32),
    /// A redelivery on request. It is not retried.
    Redelivery,
    /// The first automatic attempt, made late because of a fault.
    HeldBack,
    /// A duplicate after success, because of a fault. It is not retried.
    Duplicate,
}

/// An attempt that is held back, pending or running.
#[derive(Clone, Copy, Debug)]
struct HeldBack {
    due: i64,
    event: u64,
    serial: u64,
    /// Whether it is due because a later event was attempted.
    is_released: bool,
}

/// Attempts for each event and endpoint: "ten attempts over about five hours".
const MAX_ATTEMPTS: u32 = 10;

/// Seconds from the first attempt to the second. Each later gap is twice as long: 17,885 s in all, or 4 h 58 min.
const FIRST_GAP: i64 = 35;

/// Returns the seconds from a failed attempt to the next one, or `None` after the last.
///
/// Attempts are counted from 1.
fn gap_after(attempt: u32) -> Option<i64> {
    (1..MAX_ATTEMPTS)
        .contains(&attempt)
        .then(|| FIRST_GAP << (attempt - 1))
}

#[cfg(test)]
mod tests;
