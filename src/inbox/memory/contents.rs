use std::collections::HashMap;
use std::time::SystemTime;

use bytes::Bytes;

use super::shelf::Shelf;
use crate::inbox::entry::Entry;
use crate::inbox::store::EventKey;

/// The events of all endpoints.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) shelves: HashMap<Box<str>, Shelf>,
    /// How many entries all shelves have.
    pub(super) entries: usize,
    /// How many bytes all bodies have.
    pub(super) body_bytes: usize,
}

impl Contents {
    pub(super) fn has(&self, key: EventKey<'_>) -> bool {
        let shelf = self.shelves.get(key.endpoint);
        shelf.is_some_and(|shelf| shelf.contains(key.id))
    }

    pub(super) fn change<T>(
        &mut self,
        key: EventKey<'_>,
        change: impl FnOnce(&mut Entry<Bytes>) -> T,
    ) -> Option<T> {
        let shelf = self.shelves.get_mut(key.endpoint)?;
        let (result, body) = shelf.change(key.id, weighed(change))?;
        self.body_bytes = self.body_bytes + body.after - body.before;
        Some(result)
    }

    pub(super) fn change_or_insert<T>(
        &mut self,
        key: EventKey<'_>,
        now: SystemTime,
        change: impl FnOnce(&mut Entry<Bytes>) -> T,
    ) -> T {
        if !self.shelves.contains_key(key.endpoint) {
            self.shelves.insert(key.endpoint.into(), Shelf::default());
        }
        let shelf = self.shelves.get_mut(key.endpoint);
        let shelf = shelf.expect("the shelf was inserted if it was absent");
        let entries = shelf.len();
        let (result, body) = shelf.change_or_insert(key.id, now, weighed(change));
        self.entries = self.entries + shelf.len() - entries;
        self.body_bytes = self.body_bytes + body.after - body.before;
        result
    }

    pub(super) fn purge(&mut self, limit: usize, endpoint: &str, now: SystemTime) {
        if let Some(shelf) = self.shelves.get_mut(endpoint) {
            self.entries -= shelf.purge(limit, now);
        }
    }

    pub(super) fn purge_all(&mut self, now: SystemTime) -> usize {
        let purged = self
            .shelves
            .values_mut()
            .map(|shelf| shelf.purge(usize::MAX, now))
            .sum();
        self.entries -= purged;
        purged
    }
}

/// How many bytes the body of an entry had, and has.
struct BodyChange {
    before: usize,
    after: usize,
}

/// Changes an entry and returns what became of its body, too.
fn weighed<T>(
    change: impl FnOnce(&mut Entry<Bytes>) -> T,
) -> impl FnOnce(&mut Entry<Bytes>) -> (T, BodyChange) {
    let length = |entry: &Entry<Bytes>| entry.body.as_ref().map_or(0, Bytes::len);
    move |entry| {
        let before = length(entry);
        let result = change(entry);
        let after = length(entry);
        (result, BodyChange { before, after })
    }
}
