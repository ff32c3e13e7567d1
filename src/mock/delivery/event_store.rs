//! The events that are being delivered, and the newest delivered ones.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::event::NewEvent;

/// Events kept for redelivery, besides those that still have open attempts. The oldest is dropped first.
pub(super) const MAX_FINISHED: usize = 1_000;

/// Bytes of the bodies of these events.
const MAX_FINISHED_BYTES: usize = 64 * 1024 * 1024;

/// An event, and how far its delivery is.
#[derive(Debug)]
pub(super) struct StoredEvent {
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

impl StoredEvent {
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

    /// Returns whether the latest attempt at every endpoint was a success, or `None` if there was no attempt.
    pub(super) fn is_delivered(&self) -> Option<bool> {
        let mut results = self.results.values();
        (!self.results.is_empty()).then(|| results.all(|is_success| *is_success))
    }
}

/// Events by number, counted from 1 in the order they were published.
#[derive(Debug, Default)]
pub(super) struct EventStore {
    events: BTreeMap<u64, StoredEvent>,
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
        let stored = StoredEvent {
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

    pub(super) fn find_mut(&mut self, number: u64) -> Option<&mut StoredEvent> {
        self.events.get_mut(&number)
    }

    /// Returns the events, oldest first.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &StoredEvent> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
