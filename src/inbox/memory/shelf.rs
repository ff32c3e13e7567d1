use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::SystemTime;

use bytes::Bytes;

use crate::inbox::entry::{Entry, State};
use crate::inbox::store::{Backlog, ParkedEvent, Take, TakenEvent};
use crate::webhooks::EventId;

/// The events of one endpoint.
///
/// The two heaps are hints: an entry in them is used only if its event still has that time. Each change of a
/// time adds one, and the old one is dropped when it is reached.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    entries: HashMap<EventId, Entry<Bytes>>,
    due: BinaryHeap<Reverse<(SystemTime, EventId)>>,
    forget: BinaryHeap<Reverse<(SystemTime, EventId)>>,
}

impl Shelf {
    pub(super) fn contains(&self, id: &EventId) -> bool {
        self.entries.contains_key(id)
    }

    pub(super) fn insert(&mut self, id: &EventId, now: SystemTime) {
        self.entries.insert(id.clone(), Entry::new(now));
    }

    /// Changes an entry, if there is one.
    pub(super) fn change<T>(
        &mut self,
        id: &EventId,
        change: impl FnOnce(&mut Entry<Bytes>) -> T,
    ) -> Option<T> {
        let entry = self.entries.get_mut(id)?;
        let before = (entry.due(), entry.forget_at());
        let result = change(entry);
        if let Some(due) = entry.due()
            && before.0 != Some(due)
        {
            self.due.push(Reverse((due, id.clone())));
        }
        if let Some(forget_at) = entry.forget_at()
            && before.1 != Some(forget_at)
        {
            self.forget.push(Reverse((forget_at, id.clone())));
        }
        Some(result)
    }

    pub(super) fn take(&mut self, take: &Take<'_>, now: SystemTime) -> Vec<TakenEvent> {
        let mut taken = Vec::new();
        while taken.len() < take.limit
            && let Some(Reverse((due, _))) = self.due.peek()
            && let Ok(overdue) = now.duration_since(*due)
            && let Some(Reverse((due, id))) = self.due.pop()
        {
            let is_due = |entry: &&mut Entry<Bytes>| entry.due() == Some(due);
            let Some(entry) = self.entries.get_mut(&id).filter(is_due) else {
                continue;
            };
            let Some(body) = entry.body.clone() else {
                continue;
            };
            let attempt = entry.attempts.saturating_add(1);
            self.change(&id, |entry| {
                entry.start(take.token, take.lease, std::time::Duration::ZERO, now)
            });
            taken.push(TakenEvent {
                id,
                body,
                attempt,
                overdue,
            });
        }
        taken
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
            && let Some(Reverse((forget_at, _))) = self.forget.peek()
            && *forget_at <= now
            && let Some(Reverse((forget_at, id))) = self.forget.pop()
        {
            let is_past = |entry: &Entry<Bytes>| entry.forget_at() == Some(forget_at);
            if self.entries.get(&id).is_some_and(is_past) {
                self.entries.remove(&id);
                purged += 1;
            }
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
