//! The events that are being delivered, and the newest delivered ones.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::event::NewEvent;

/// Events kept for redelivery, beside those that still have open attempts. The oldest is dropped first.
pub(super) const MAX_FINISHED: usize = 1_000;

/// An event, and how far its delivery is.
#[derive(Debug)]
pub(super) struct StoredEvent {
    pub(super) id: String,
    pub(super) event_type: String,
    /// The bytes that every attempt sends.
    pub(super) body: Bytes,
    /// Attempts started, by endpoint.
    attempts: BTreeMap<u64, u32>,
    /// Attempts pending and running.
    open: usize,
}

impl StoredEvent {
    /// Counts an attempt at `endpoint` and returns its number, counted from 1.
    pub(super) fn count_attempt(&mut self, endpoint: u64) -> u32 {
        let attempts = self.attempts.entry(endpoint).or_default();
        *attempts += 1;
        *attempts
    }
}

/// Events by number, counted from 1 in the order they were published.
#[derive(Debug, Default)]
pub(super) struct EventStore {
    events: BTreeMap<u64, StoredEvent>,
    /// The events without open attempts.
    finished: BTreeSet<u64>,
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
            open: 0,
        };
        self.events.insert(number, stored);
        (number, id)
    }

    pub(super) fn find(&self, number: u64) -> Option<&StoredEvent> {
        self.events.get(&number)
    }

    pub(super) fn find_mut(&mut self, number: u64) -> Option<&mut StoredEvent> {
        self.events.get_mut(&number)
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
        } else {
            self.finished.remove(&number);
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

    /// Keeps a finished event, and drops the oldest finished one if there are too many.
    fn retain_finished(&mut self, number: u64) {
        self.finished.insert(number);
        if self.finished.len() > MAX_FINISHED
            && let Some(oldest) = self.finished.pop_first()
        {
            self.events.remove(&oldest);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.events.len()
    }
}
