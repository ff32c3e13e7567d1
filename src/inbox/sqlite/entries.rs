use std::time::{Duration, SystemTime};

use bytes::Bytes;
use rusqlite::OptionalExtension;

use super::row::{self, Body};
use super::session::Session;
use super::time::{from_ms, to_past_ms};
use crate::inbox::entry::Entry;
use crate::inbox::store::{
    AcceptState, Backlog, ClaimState, EventKey, HeldClaim, NewClaim, NewDelivery, ParkedEvent,
    Take, TakenEvent,
};
use crate::inbox::token::Token;
use crate::webhooks::EventId;

const INSERT_BODY: &str = "INSERT INTO audience_inbox_body (body) VALUES (?1)";
const FIND_BODY: &str = "SELECT body FROM audience_inbox_body WHERE number = ?1";
const DELETE_BODY: &str = "DELETE FROM audience_inbox_body WHERE number = ?1";
pub(super) const DUE: &str = "\
SELECT id, due FROM audience_inbox
WHERE endpoint = ?1 AND body IS NOT NULL AND state < 2 AND due <= ?2
ORDER BY due, body LIMIT ?3";
pub(super) const PARKED: &str = "\
SELECT id, audience_inbox_body.body, attempts, reason, due
FROM audience_inbox INDEXED BY audience_inbox_parked LEFT JOIN audience_inbox_body ON number = audience_inbox.body
WHERE endpoint = ?1 AND state = 3 AND id > ?2
ORDER BY id LIMIT ?3";
pub(super) const PURGE: &str = "\
DELETE FROM audience_inbox WHERE (endpoint, id) IN
(SELECT endpoint, id FROM audience_inbox WHERE forget_at IS NOT NULL AND forget_at <= ?1
 ORDER BY forget_at LIMIT ?2)";
pub(super) const BACKLOG: &str = "\
SELECT count(*), count(*) FILTER (WHERE state = 1 AND due > ?2), min(due)
FROM audience_inbox WHERE endpoint = ?1 AND body IS NOT NULL AND state < 2";
pub(super) const COUNT_PARKED: &str =
    "SELECT count(*) FROM audience_inbox WHERE endpoint = ?1 AND state = 3";

/// How many forgotten entries a claim in a transaction deletes on the way, at most.
const PURGED_PER_CLAIM: usize = 2;

/// The entries at one moment, within a transaction.
pub(super) struct Entries<'s, 'c> {
    session: &'s Session<'c>,
    now: SystemTime,
}

impl<'s, 'c> Entries<'s, 'c> {
    pub(super) fn new(session: &'s Session<'c>, now: SystemTime) -> Self {
        // As exact as the columns: a lease of zero is over at once.
        let now = from_ms(to_past_ms(now));
        Self { session, now }
    }

    pub(super) fn claim(&self, claim: &NewClaim<'_>) -> rusqlite::Result<ClaimState> {
        self.change_or_insert(
            claim.key,
            &[],
            |entry| entry.claim(claim, self.now),
            |state| matches!(state, ClaimState::Fresh { .. }),
        )
    }

    /// Claims an event and marks it as done, in one step.
    pub(super) fn claim_done(&self, claim: &NewClaim<'_>) -> rusqlite::Result<ClaimState> {
        // A receiver that only does this has no inbox that deletes them. The first statement of the
        // transaction is a write, so that a deferred transaction waits for other writers.
        self.purge(PURGED_PER_CLAIM)?;
        self.change_or_insert(
            claim.key,
            &[],
            |entry| {
                let state = entry.claim(claim, self.now);
                if matches!(state, ClaimState::Fresh { .. }) {
                    entry.complete(claim.token, claim.retention, self.now);
                }
                state
            },
            |state| matches!(state, ClaimState::Fresh { .. }),
        )
    }

    pub(super) fn accept(&self, delivery: &NewDelivery<'_>) -> rusqlite::Result<AcceptState> {
        self.change_or_insert(
            delivery.key,
            delivery.body,
            |entry| {
                entry
                    .accept(|| Some(Body::New), delivery.fingerprint, self.now)
                    .expect("the closure returns a body")
            },
            |state| *state == AcceptState::Accepted,
        )
    }

    pub(super) fn extend(&self, held: HeldClaim<'_>, lease: Duration) -> rusqlite::Result<bool> {
        self.change(held.key, |entry| entry.extend(held.token, lease, self.now))
    }

    pub(super) fn complete(
        &self,
        held: HeldClaim<'_>,
        retention: Duration,
    ) -> rusqlite::Result<bool> {
        self.change(held.key, |entry| {
            entry.complete(held.token, retention, self.now)
        })
    }

    pub(super) fn release(
        &self,
        held: HeldClaim<'_>,
        delay: Duration,
        retention: Duration,
    ) -> rusqlite::Result<bool> {
        self.change(held.key, |entry| {
            entry.release(held.token, delay, retention, self.now)
        })
    }

    pub(super) fn park(&self, held: HeldClaim<'_>, reason: &str) -> rusqlite::Result<bool> {
        self.change(held.key, |entry| entry.park(held.token, reason, self.now))
    }

    pub(super) fn replay(&self, key: EventKey<'_>) -> rusqlite::Result<bool> {
        self.change(key, |entry| entry.replay(self.now))
    }

    pub(super) fn discard(&self, key: EventKey<'_>, retention: Duration) -> rusqlite::Result<bool> {
        self.change(key, |entry| entry.discard(retention, self.now))
    }

    pub(super) fn take(&self, take: &Take<'_>) -> rusqlite::Result<Vec<TakenEvent>> {
        let due: Vec<(EventId, i64)> = self.session.statement(DUE, |statement| {
            let parameters = (take.endpoint, to_past_ms(self.now), rows(take.limit));
            statement
                .query_map(parameters, |row| Ok((row::event_id(row, 0)?, row.get(1)?)))?
                .collect()
        })?;
        due.into_iter()
            .map(|(id, due)| self.take_one(take.endpoint, id, due, take.token, take.lease))
            .collect()
    }

    fn take_one(
        &self,
        endpoint: &str,
        id: EventId,
        due: i64,
        token: Token,
        lease: Duration,
    ) -> rusqlite::Result<TakenEvent> {
        let key = EventKey { endpoint, id: &id };
        let mut entry = self
            .find(key)?
            .ok_or(rusqlite::Error::QueryReturnedNoRows)?;
        let number = stored(&entry);
        let body = self.session.statement(FIND_BODY, |statement| {
            statement.query_row([number], |row| bytes(row, 0))
        })?;
        entry.start(token, lease, Duration::ZERO, self.now);
        self.save(key, &entry, number)?;
        let overdue = self.now.duration_since(from_ms(due));
        Ok(TakenEvent {
            attempt: entry.attempts,
            body,
            overdue: overdue.unwrap_or_default(),
            id,
        })
    }

    pub(super) fn parked(
        &self,
        endpoint: &str,
        after: Option<&EventId>,
        limit: usize,
    ) -> rusqlite::Result<Vec<ParkedEvent>> {
        // No id is empty.
        let after = after.map_or("", EventId::as_str);
        self.session.statement(PARKED, |statement| {
            statement
                .query_map((endpoint, after, rows(limit)), |row| {
                    let has_body = row.get_ref(1)?.as_blob_or_null()?.is_some();
                    let body = has_body.then(|| bytes(row, 1)).transpose()?;
                    let parked_for = self.now.duration_since(from_ms(row.get(4)?));
                    Ok(ParkedEvent::new(
                        row::event_id(row, 0)?,
                        body,
                        row.get(2)?,
                        row.get::<_, Option<String>>(3)?.unwrap_or_default(),
                        parked_for.unwrap_or_default(),
                    ))
                })?
                .collect()
        })
    }

    pub(super) fn purge(&self, limit: usize) -> rusqlite::Result<usize> {
        self.session.statement(PURGE, |statement| {
            statement.execute((to_past_ms(self.now), rows(limit)))
        })
    }

    pub(super) fn backlog(&self, endpoint: &str) -> rusqlite::Result<Backlog> {
        let (open, in_progress, first): (i64, i64, Option<i64>) =
            self.session.statement(BACKLOG, |statement| {
                statement.query_row((endpoint, to_past_ms(self.now)), |row| {
                    Ok((row.get(0)?, row.get(1)?, row.get(2)?))
                })
            })?;
        let parked: i64 = self.session.statement(COUNT_PARKED, |statement| {
            statement.query_row([endpoint], |row| row.get(0))
        })?;
        let lag = first.and_then(|first| self.now.duration_since(from_ms(first)).ok());
        let waiting = open.saturating_sub(in_progress).unsigned_abs();
        Ok(Backlog::new(
            waiting,
            in_progress.unsigned_abs(),
            parked.unsigned_abs(),
            lag.unwrap_or_default(),
        ))
    }

    /// Changes an entry. Returns `false` if there is none, or the change was refused.
    fn change(
        &self,
        key: EventKey<'_>,
        change: impl FnOnce(&mut Entry<Body>) -> bool,
    ) -> rusqlite::Result<bool> {
        let Some(mut entry) = self.find(key)? else {
            return Ok(false);
        };
        let number = stored(&entry);
        let changed = change(&mut entry);
        if changed {
            self.save(key, &entry, number)?;
        }
        Ok(changed)
    }

    /// Changes an entry, which is created if there is none. It is saved if the result says so.
    fn change_or_insert<T>(
        &self,
        key: EventKey<'_>,
        body: &[u8],
        change: impl FnOnce(&mut Entry<Body>) -> T,
        is_change: impl FnOnce(&T) -> bool,
    ) -> rusqlite::Result<T> {
        let mut entry = self.find(key)?.unwrap_or_else(|| Entry::new(self.now));
        entry.forget_if_past(self.now);
        let number = stored(&entry);
        let result = change(&mut entry);
        if is_change(&result) {
            let number = match entry.body {
                Some(Body::New) => Some(self.insert_body(body)?),
                _ => number,
            };
            self.save(key, &entry, number)?;
        }
        Ok(result)
    }

    fn find(&self, key: EventKey<'_>) -> rusqlite::Result<Option<Entry<Body>>> {
        self.session.statement(row::FIND, |statement| {
            statement
                .query_row((key.endpoint, key.id.as_str()), row::read)
                .optional()
        })
    }

    /// Saves an entry whose body has this number. If the entry has no body any more, it is deleted.
    fn save(
        &self,
        key: EventKey<'_>,
        entry: &Entry<Body>,
        number: Option<i64>,
    ) -> rusqlite::Result<()> {
        let kept = number.filter(|_| entry.body.is_some());
        if number.is_some() && kept.is_none() {
            // First, so that its pages are free for the rest if the disk is full.
            self.session
                .statement(DELETE_BODY, |statement| statement.execute([number]))?;
        }
        self.session.statement(row::SAVE, |statement| {
            row::write(statement, key, entry, kept, self.now)
        })
    }

    fn insert_body(&self, body: &[u8]) -> rusqlite::Result<i64> {
        self.session.statement(INSERT_BODY, |statement| {
            let number = statement.insert([body]);
            // The statement is kept; its copy of the body is not.
            statement.clear_bindings();
            number
        })
    }
}

fn stored(entry: &Entry<Body>) -> Option<i64> {
    match entry.body {
        Some(Body::Stored(number)) => Some(number),
        Some(Body::New) | None => None,
    }
}

fn bytes(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<Bytes> {
    Ok(Bytes::copy_from_slice(row.get_ref(column)?.as_blob()?))
}

fn rows(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
