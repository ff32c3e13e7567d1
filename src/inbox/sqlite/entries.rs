//! Entries in the tables, and how they are read, found and written.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use rusqlite::types::Type;
use rusqlite::{Error, OptionalExtension, Row};

use super::writer::Session;
use crate::inbox::entry::{Entry, State};
use crate::inbox::store::{
    AcceptState, Backlog, ClaimState, EventKey, Fingerprint, HeldClaim, NewClaim, NewDelivery,
    ParkedEvent, Take, TakenEvent, Token,
};
use crate::webhooks::EventId;

const INSERT_BODY: &str = "INSERT INTO audience_inbox_body (body) VALUES (?1)";
const FIND_BODY: &str = "SELECT body FROM audience_inbox_body WHERE number = ?1";
const DELETE_BODY: &str = "DELETE FROM audience_inbox_body WHERE number = ?1";
const DUE: &str = "\
SELECT id, due FROM audience_inbox
WHERE endpoint = ?1 AND body IS NOT NULL AND state < 2 AND due <= ?2
ORDER BY due, body LIMIT ?3";
const PARKED: &str = "\
SELECT id, audience_inbox_body.body, attempts, reason, due
FROM audience_inbox INDEXED BY audience_inbox_parked LEFT JOIN audience_inbox_body ON number = audience_inbox.body
WHERE endpoint = ?1 AND state = 3 AND id > ?2
ORDER BY id LIMIT ?3";
const PURGE: &str = "\
DELETE FROM audience_inbox WHERE (endpoint, id) IN
(SELECT endpoint, id FROM audience_inbox WHERE forget_at IS NOT NULL AND forget_at <= ?1
 ORDER BY forget_at LIMIT ?2)";
const BACKLOG: &str = "\
SELECT count(*), count(*) FILTER (WHERE state = 1 AND due > ?2), min(due)
FROM audience_inbox WHERE endpoint = ?1 AND body IS NOT NULL AND state < 2";
const COUNT_PARKED: &str = "SELECT count(*) FROM audience_inbox WHERE endpoint = ?1 AND state = 3";

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
                .query_map(parameters, |row| Ok((event_id(row, 0)?, row.get(1)?)))?
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
        let mut entry = self.find(key)?.ok_or(Error::QueryReturnedNoRows)?;
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
                        event_id(row, 0)?,
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
        self.session.statement(FIND, |statement| {
            statement
                .query_row((key.endpoint, key.id.as_str()), read)
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
        self.session.statement(SAVE, |statement| {
            write(statement, key, entry, kept, self.now)
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

fn bytes(row: &Row<'_>, column: usize) -> rusqlite::Result<Bytes> {
    Ok(Bytes::copy_from_slice(row.get_ref(column)?.as_blob()?))
}

fn rows(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// Where the body of an entry is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Body {
    /// In the row with this number.
    Stored(i64),
    /// Not stored yet.
    New,
}

const FIND: &str = "\
SELECT state, token, attempts, due, forget_at, fingerprint, body, reason
FROM audience_inbox WHERE endpoint = ?1 AND id = ?2";

const SAVE: &str = "\
INSERT INTO audience_inbox (endpoint, id, state, token, attempts, due, forget_at, fingerprint, body, reason)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
ON CONFLICT (endpoint, id) DO UPDATE SET state = excluded.state, token = excluded.token,
    attempts = excluded.attempts, due = excluded.due, forget_at = excluded.forget_at,
    fingerprint = excluded.fingerprint, body = excluded.body, reason = excluded.reason";

/// Reads a row of [`FIND`].
fn read(row: &Row<'_>) -> rusqlite::Result<Entry<Body>> {
    let due = from_ms(row.get(3)?);
    let forget_at = row.get::<_, Option<i64>>(4)?.map_or(due, from_ms);
    let state = match row.get(0)? {
        claimed @ (0 | 1) => State::Open {
            due,
            is_claimed: claimed == 1,
            forget_at,
        },
        2 => State::Done { forget_at },
        3 => State::Parked {
            since: due,
            reason: row.get::<_, Option<String>>(7)?.unwrap_or_default(),
        },
        state => return Err(Error::IntegralValueOutOfRange(0, state)),
    };
    Ok(Entry {
        state,
        token: row.get::<_, Option<_>>(1)?.map(Token::from_bytes),
        attempts: row.get(2)?,
        fingerprint: row.get::<_, Option<_>>(5)?.map(Fingerprint::from_bytes),
        body: row.get::<_, Option<_>>(6)?.map(Body::Stored),
    })
}

/// Writes an entry by [`SAVE`]. Its body is stored.
fn write(
    statement: &mut rusqlite::Statement<'_>,
    key: EventKey<'_>,
    entry: &Entry<Body>,
    body: Option<i64>,
    now: SystemTime,
) -> rusqlite::Result<()> {
    let (state, due, reason) = match &entry.state {
        State::Open {
            due, is_claimed, ..
        } => (i64::from(*is_claimed), *due, None),
        State::Done { .. } => (2, now, None),
        State::Parked { since, reason } => (3, *since, Some(reason)),
    };
    statement.execute((
        key.endpoint,
        key.id.as_str(),
        state,
        entry.token.as_ref().map(Token::as_bytes),
        entry.attempts,
        to_ms(due),
        entry.forget_at().map(to_ms),
        entry.fingerprint.as_ref().map(Fingerprint::as_bytes),
        body,
        reason,
    ))?;
    Ok(())
}

/// Reads a column that must be an event id.
fn event_id(row: &Row<'_>, column: usize) -> rusqlite::Result<EventId> {
    let text = row.get_ref(column)?.as_str()?;
    text.try_into()
        .map_err(|error| Error::FromSqlConversionFailure(column, Type::Text, Box::new(error)))
}

/// Rounds up, so that no lease ends early.
fn to_ms(time: SystemTime) -> i64 {
    let partial = Duration::from_nanos(999_999);
    time.checked_add(partial).map_or(i64::MAX, to_past_ms)
}

/// Rounds down: what is due by then is due.
fn to_past_ms(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => saturating_ms(since.as_millis()),
        Err(before) => -saturating_ms(before.duration().as_nanos().div_ceil(1_000_000)),
    }
}

/// A time that this platform cannot represent counts as past.
fn from_ms(ms: i64) -> SystemTime {
    let distance = Duration::from_millis(ms.unsigned_abs());
    let time = if ms < 0 {
        UNIX_EPOCH.checked_sub(distance)
    } else {
        UNIX_EPOCH.checked_add(distance)
    };
    time.unwrap_or(UNIX_EPOCH)
}

fn saturating_ms(ms: u128) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::super::file::SCHEMA;
    use super::*;

    #[test]
    fn a_time_is_rounded_to_the_millisecond_and_read_back() {
        let nanos = |nanos| UNIX_EPOCH + Duration::from_nanos(nanos);
        let before = |nanos| UNIX_EPOCH - Duration::from_nanos(nanos);
        for (time, up, down) in [
            (nanos(0), 0, 0),
            (nanos(1), 1, 0),
            (nanos(1_000_000), 1, 1),
            (nanos(1_999_999), 2, 1),
            (before(1), 0, -1),
            (before(1_000_000), -1, -1),
        ] {
            assert_eq!((to_ms(time), to_past_ms(time)), (up, down), "{time:?}");
        }
        for ms in [0, 1, -1, 1_700_000_000_000] {
            assert_eq!(to_past_ms(from_ms(ms)), ms);
        }
        let _ = (from_ms(i64::MAX), from_ms(i64::MIN));
    }

    fn plan(sql: &str) -> String {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(SCHEMA).unwrap();
        let mut statement = connection
            .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
            .unwrap();
        let mut steps = statement.raw_query();
        let mut plan = String::new();
        while let Some(step) = steps.next().unwrap() {
            plan += &step.get::<_, String>(3).unwrap();
            plan += "\n";
        }
        plan
    }

    #[test]
    fn every_lookup_uses_an_index_and_none_sorts() {
        for (sql, expected) in [
            (FIND, "USING PRIMARY KEY (endpoint=? AND id=?)"),
            (
                DUE,
                "USING COVERING INDEX audience_inbox_due (endpoint=? AND due<?)",
            ),
            (
                PARKED,
                "USING INDEX audience_inbox_parked (endpoint=? AND id>?)",
            ),
            (
                PURGE,
                "USING COVERING INDEX audience_inbox_forget (forget_at>? AND forget_at<?)",
            ),
            (
                BACKLOG,
                "USING COVERING INDEX audience_inbox_due (endpoint=?)",
            ),
            (
                COUNT_PARKED,
                "USING COVERING INDEX audience_inbox_parked (endpoint=?)",
            ),
            (SAVE, ""),
        ] {
            let plan = plan(sql);

            assert!(plan.contains(expected), "{sql}\n{plan}");
            let is_slow = plan.contains("SCAN") || plan.contains("TEMP B-TREE");
            assert!(!is_slow, "{sql}\n{plan}");
        }
    }
}
