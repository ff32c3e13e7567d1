use std::collections::BTreeSet;
use std::collections::hash_map::{self, HashMap};
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use crate::inbox::entry::{Entry, State};
use crate::inbox::store::{Backlog, ParkedEvent, Take, TakenEvent};
use crate::webhooks::EventId;

/// The events of one endpoint.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    entries: HashMap<EventId, Entry<Bytes>>,
    /// The accepted events by the time at which a worker may take them.
    due: BTreeSet<(SystemTime, EventId)>,
    /// The events that may be forgotten, by the time from which on.
    forget: BTreeSet<(SystemTime, EventId)>,
}

impl Shelf {
    pub(super) fn contains(&self, id: &EventId) -> bool {
        self.entries.contains_key(id)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns how many entries there are, and how many ids are ordered by a time.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.entries.len(), self.due.len() + self.forget.len())
    }

    /// Changes an entry, if there is one.
    pub(super) fn change<T>(
        &mut self,
        id: &EventId,
        change: impl FnOnce(&mut Entry<Bytes>) -> T,
    ) -> Option<T> {
        let entry = self.entries.get_mut(id)?;
        let (due, forget_at) = (entry.due(), entry.forget_at());
        let result = change(entry);
        reorder(&mut self.due, id, due, entry.due());
        reorder(&mut self.forget, id, forget_at, entry.forget_at());
        Some(result)
    }

    /// Changes an entry, which is a new one if there is none.
    pub(super) fn change_or_insert<T>(
        &mut self,
        id: &EventId,
        now: SystemTime,
        change: impl FnOnce(&mut Entry<Bytes>) -> T,
    ) -> T {
        let (entry, (due, forget_at)) = match self.entries.entry(id.clone()) {
            hash_map::Entry::Occupied(entry) => {
                let entry = entry.into_mut();
                let times = (entry.due(), entry.forget_at());
                (entry, times)
            }
            hash_map::Entry::Vacant(place) => (place.insert(Entry::new(now)), (None, None)),
        };
        let result = change(entry);
        reorder(&mut self.due, id, due, entry.due());
        reorder(&mut self.forget, id, forget_at, entry.forget_at());
        result
    }

    pub(super) fn take(&mut self, take: &Take<'_>, now: SystemTime) -> Vec<TakenEvent> {
        // All are chosen first: a lease of zero makes an event due again at once.
        let due: Vec<_> = self
            .due
            .iter()
            .map_while(|(due, id)| Some((now.duration_since(*due).ok()?, id.clone())))
            .take(take.limit)
            .collect();
        due.into_iter()
            .filter_map(|(overdue, id)| {
                let (body, attempt) = self.change(&id, |entry| {
                    entry.start(take.token, take.lease, Duration::ZERO, now);
                    (entry.body.clone(), entry.attempts)
                })?;
                Some(TakenEvent {
                    id,
                    body: body?,
                    attempt,
                    overdue,
                })
            })
            .collect()
    }

    pub(super) fn parked(
        &self,
        after: Option<&EventId>,
        limit: usize,
        now: SystemTime,
    ) -> Vec<ParkedEvent> {
        let mut parked: Vec<_> = self
            .entries
            .iter()
            .filter(|(id, _)| after.is_none_or(|after| *id > after))
            .filter_map(|(id, entry)| match &entry.state {
                State::Parked { since, reason } => Some((id, entry, since, reason)),
                _ => None,
            })
            .collect();
        parked.sort_unstable_by_key(|(id, ..)| *id);
        parked.truncate(limit);
        parked
            .into_iter()
            .map(|(id, entry, since, reason)| {
                let parked_for = now.duration_since(*since).unwrap_or_default();
                ParkedEvent::new(
                    id.clone(),
                    entry.body.clone(),
                    entry.attempts,
                    reason,
                    parked_for,
                )
            })
            .collect()
    }

    /// Deletes up to `limit` entries that may be forgotten. Returns how many.
    pub(super) fn purge(&mut self, limit: usize, now: SystemTime) -> usize {
        let mut purged = 0;
        while purged < limit
            && let Some((forget_at, _)) = self.forget.first()
            && *forget_at <= now
            && let Some((_, id)) = self.forget.pop_first()
        {
            self.entries.remove(&id);
            purged += 1;
        }
        purged
    }

    pub(super) fn backlog(&self, now: SystemTime) -> Backlog {
        let mut backlog = Backlog::default();
        for entry in self.entries.values() {
            match &entry.state {
                State::Parked { .. } => backlog.parked += 1,
                State::Open {
                    due, is_claimed, ..
                } if entry.body.is_some() => {
                    if *is_claimed && *due > now {
                        backlog.in_progress += 1;
                    } else {
                        backlog.waiting += 1;
                    }
                    let overdue = now.duration_since(*due).unwrap_or_default();
                    backlog.lag = backlog.lag.max(overdue);
                }
                State::Open { .. } | State::Done { .. } => {}
            }
        }
        backlog
    }
}

/// Moves an id from one time to another.
fn reorder(
    order: &mut BTreeSet<(SystemTime, EventId)>,
    id: &EventId,
    before: Option<SystemTime>,
    after: Option<SystemTime>,
) {
    if before == after {
        return;
    }
    let mut key = (SystemTime::UNIX_EPOCH, id.clone());
    if let Some(before) = before {
        key.0 = before;
        order.remove(&key);
    }
    if let Some(after) = after {
        key.0 = after;
        order.insert(key);
    }
}
