//! What each method of a store does with the tables.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use rusqlite::types::Type;
use rusqlite::{OptionalExtension, Row, ffi};

use super::disk::Disk;
use super::done::{Done, Filters, Hash, List, Periods};
use super::session::{Session, from_ms, to_ms, to_past_ms};
use crate::inbox::entry::{Entry, State};
use crate::inbox::store::{
    AcceptState, Backlog, ClaimState, EventKey, Fingerprint, HeldClaim, NewClaim, NewDelivery,
    ParkedEvent, Take, TakenEvent, Token,
};
use crate::inbox::{FailureLog, PurgeTimer};
use crate::webhooks::{Clock, EventId};

/// The state that the clones of a store share, whatever connection they use.
pub(super) struct Shared {
    pub(super) clock: Arc<dyn Clock>,
    /// How long a transaction waits for other connections before it begins.
    pub(super) busy_timeout: Duration,
    pub(super) purge_timer: PurgeTimer,
    pub(super) failures: FailureLog,
    pub(super) filters: Filters,
    /// The files; `None` for a store in memory.
    pub(super) disk: Option<Disk>,
}

impl Shared {
    /// Fails if the files of the database are no longer those that were opened.
    pub(super) fn check_files(&self) -> rusqlite::Result<()> {
        self.disk.as_ref().map_or(Ok(()), Disk::check)
    }

    /// Makes room on a full disk for events that are stored already.
    pub(super) fn give_up_reserve(&self, session: &Session<'_>) {
        if let Some(disk) = &self.disk {
            disk.give_up();
            // The log then begins anew, instead of growing. Before, the file had no room for its content.
            session.checkpoint("PASSIVE");
        }
    }

    /// Returns whether the reserve is absent, and it is time to write it.
    pub(super) fn should_reserve(&self) -> bool {
        self.disk.as_ref().is_some_and(Disk::should_reserve)
    }

    /// Writes the reserve if there is room.
    pub(super) fn reserve(&self, session: &Session<'_>) {
        let Some(disk) = &self.disk else {
            return;
        };
        session.checkpoint("TRUNCATE");
        // No other process may write now: the reserve may take all room for a moment, and is then deleted.
        if session.execute("BEGIN IMMEDIATE").is_ok() {
            disk.write_reserve();
            session.execute("ROLLBACK").ok();
        } else {
            disk.try_again();
        }
    }

    /// Fails if the disk has no room for new events.
    pub(super) fn refuse_if_full(&self) -> rusqlite::Result<()> {
        if !self.disk.as_ref().is_some_and(Disk::is_full) {
            return Ok(());
        }
        Err(rusqlite::Error::SqliteFailure(
            ffi::Error::new(ffi::SQLITE_FULL),
            Some("the disk has no room for new events and for the reserve, by which those that wait are handled".to_owned()),
        ))
    }
}

/// The entries at one moment, within a transaction.
pub(super) struct Entries<'s, 'c> {
    session: &'s Session<'c>,
    shared: &'s Shared,
    now: SystemTime,
    /// Read when they are first needed.
    periods: RefCell<Option<Periods<'s, 'c>>>,
    /// The periods of the transaction before.
    list: Cell<List>,
    /// Whether the disk was found to have room for new events.
    has_room: Cell<bool>,
}

impl<'s, 'c> Entries<'s, 'c> {
    /// Creates the entries of a transaction. `list` is the list of the last transaction of this connection, or empty.
    pub(super) fn new(session: &'s Session<'c>, shared: &'s Shared, list: List) -> Self {
        Self {
            session,
            shared,
            // As exact as the columns: a lease of zero is over immediately.
            now: from_ms(to_past_ms(shared.clock.now())),
            periods: RefCell::default(),
            list: Cell::new(list),
            has_room: Cell::new(false),
        }
    }

    /// Returns the list of periods for the next transaction, if this one is committed.
    pub(super) fn into_list(self) -> List {
        let read = self.periods.into_inner().map(Periods::into_list);
        read.unwrap_or_else(|| self.list.into_inner())
    }

    pub(super) fn claim(&self, claim: &NewClaim<'_>) -> rusqlite::Result<ClaimState> {
        let mut entry = match self.find_or_new(claim.key)? {
            Found::Entry(entry) => entry,
            Found::Done(done) if done.conflicts_with(claim.fingerprint) => {
                return Ok(ClaimState::Conflict);
            }
            Found::Done(_) => return Ok(ClaimState::Done),
        };
        let number = stored(&entry);
        let state = entry.claim(claim, self.now);
        if let ClaimState::Fresh { .. } = state {
            self.refuse_if_full()?;
            self.save(claim.key, &entry, number)?;
        }
        Ok(state)
    }

    /// Returns what a claim would return, and changes nothing.
    pub(super) fn state(
        &self,
        key: EventKey<'_>,
        fingerprint: Option<Fingerprint>,
    ) -> rusqlite::Result<ClaimState> {
        Ok(match self.find_or_new(key)? {
            Found::Entry(entry) => entry.claim_state(fingerprint, self.now),
            Found::Done(done) if done.conflicts_with(fingerprint) => ClaimState::Conflict,
            Found::Done(_) => ClaimState::Done,
        })
    }

    pub(super) fn accept(&self, delivery: &NewDelivery<'_>) -> rusqlite::Result<AcceptState> {
        let mut entry = match self.find_or_new(delivery.key)? {
            Found::Entry(entry) => entry,
            Found::Done(done) if done.conflicts_with(Some(delivery.fingerprint)) => {
                return Ok(AcceptState::Conflict);
            }
            Found::Done(_) => return Ok(AcceptState::Duplicate),
        };
        let state = entry
            .accept(|| Some(Body::New), delivery.fingerprint, self.now)
            .expect("the closure returns a body");
        if state == AcceptState::Accepted {
            self.refuse_if_full()?;
            let number = self.insert_body(delivery.body)?;
            self.save(delivery.key, &entry, Some(number))?;
        }
        Ok(state)
    }

    pub(super) fn extend(&self, held: HeldClaim<'_>, lease: Duration) -> rusqlite::Result<bool> {
        self.change(held.key, |entry| entry.extend(held.token, lease, self.now))
    }

    pub(super) fn complete(
        &self,
        held: HeldClaim<'_>,
        retention: Duration,
    ) -> rusqlite::Result<bool> {
        let Some(mut entry) = self.find(held.key)? else {
            // The holder lost the response to its call, and completes again.
            let done = self.find_done(held.key)?;
            return Ok(done.is_some_and(|done| done.is_by(held.token)));
        };
        let number = stored(&entry);
        let completed = entry.complete(held.token, retention, self.now);
        if completed {
            self.save(held.key, &entry, number)?;
        }
        Ok(completed)
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
        let mut entry = self
            .find(key)?
            .ok_or(rusqlite::Error::QueryReturnedNoRows)?;
        let number = stored(&entry);
        let body = self.session.statement(FIND_BODY, |statement| {
            statement.query_row([number], |row| bytes(row, 0))
        })?;
        // There is no retention: an entry with a body is not forgotten, whenever its lease ends.
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
        let purged = self.session.statement(PURGE, |statement| {
            statement.execute((to_past_ms(self.now), rows(limit)))
        })?;
        if purged == limit {
            return Ok(purged);
        }
        let done = self.with_periods(|periods| periods.purge(limit - purged))?;
        // It has changed them.
        self.periods.take();
        Ok(purged + done)
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

    fn refuse_if_full(&self) -> rusqlite::Result<()> {
        if !self.has_room.get() {
            self.shared.refuse_if_full()?;
            self.has_room.set(true);
        }
        Ok(())
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

    fn find_or_new(&self, key: EventKey<'_>) -> rusqlite::Result<Found> {
        if let Some(mut entry) = self.find(key)? {
            // This changes only the memory: the row stays until it is saved over or purged.
            entry.forget_if_past(self.now);
            return Ok(Found::Entry(entry));
        }
        let done = self.find_done(key)?;
        Ok(done.map_or_else(|| Found::Entry(Entry::new(self.now)), Found::Done))
    }

    fn find(&self, key: EventKey<'_>) -> rusqlite::Result<Option<Entry<Body>>> {
        self.session.statement(FIND, |statement| {
            statement
                .query_row((key.endpoint, key.id.as_str()), read)
                .optional()
        })
    }

    fn find_done(&self, key: EventKey<'_>) -> rusqlite::Result<Option<Done>> {
        self.with_periods(|periods| periods.find(hash(key)))
    }

    fn with_periods<T>(
        &self,
        run: impl FnOnce(&mut Periods<'s, 'c>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        let mut periods = self.periods.borrow_mut();
        let read = match periods.take() {
            Some(read) => read,
            None => {
                let list = self.list.take();
                Periods::read(self.session, &self.shared.filters, self.now, list)?
            }
        };
        run(periods.insert(read))
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
            // The body is deleted first, so that its pages are free for the rest if the disk is full.
            self.session
                .statement(DELETE_BODY, |statement| statement.execute([number]))?;
        }
        let (state, due, reason) = match &entry.state {
            State::Open {
                due, is_claimed, ..
            } => (i64::from(*is_claimed), *due, None),
            State::Parked { since, reason } => (3, *since, Some(reason)),
            State::Done { forget_at } => {
                let done = Done::new(entry.token, entry.fingerprint, *forget_at);
                self.session.statement(DELETE, |statement| {
                    statement.execute((key.endpoint, key.id.as_str()))
                })?;
                // An opt-out that was sent, for example, leaves nothing.
                if *forget_at <= self.now {
                    return Ok(());
                }
                return self.with_periods(|periods| periods.insert(hash(key), &done));
            }
        };
        self.session.statement(SAVE, |statement| {
            statement.execute((
                key.endpoint,
                key.id.as_str(),
                state,
                entry.token.as_ref().map(Token::as_bytes),
                entry.attempts,
                to_ms(due),
                entry.forget_at().map(to_ms),
                entry.fingerprint.as_ref().map(Fingerprint::as_bytes),
                kept,
                reason,
            ))?;
            Ok(())
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

fn hash(key: EventKey<'_>) -> Hash {
    Hash::of(key.endpoint, key.id.as_str())
}

fn bytes(row: &Row<'_>, column: usize) -> rusqlite::Result<Bytes> {
    Ok(Bytes::copy_from_slice(row.get_ref(column)?.as_blob()?))
}

fn rows(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// The state of an event in the tables.
enum Found {
    /// Not done. It may be a new one.
    Entry(Entry<Body>),
    Done(Done),
}

/// Where the body of an entry is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Body {
    /// In the row with this number.
    Stored(i64),
    /// Not stored yet.
    New,
}

const INSERT_BODY: &str = "INSERT INTO audience_inbox_body (body) VALUES (?1)";
const FIND_BODY: &str = "SELECT body FROM audience_inbox_body WHERE number = ?1";
const DELETE_BODY: &str = "DELETE FROM audience_inbox_body WHERE number = ?1";
// By `body`, too: its number grows, so events that are due in the same millisecond keep their order.
const DUE: &str = "\
SELECT id, due FROM audience_inbox_pending
WHERE endpoint = ?1 AND body IS NOT NULL AND state < 2 AND due <= ?2
ORDER BY due, body LIMIT ?3";
// Without the name of the index, SQLite may read every event of the endpoint in the order of its primary key.
const PARKED: &str = "\
SELECT id, audience_inbox_body.body, attempts, reason, due
FROM audience_inbox_pending INDEXED BY audience_inbox_parked LEFT JOIN audience_inbox_body ON number = audience_inbox_pending.body
WHERE endpoint = ?1 AND state = 3 AND id > ?2
ORDER BY id LIMIT ?3";
const PURGE: &str = "\
DELETE FROM audience_inbox_pending WHERE (endpoint, id) IN
(SELECT endpoint, id FROM audience_inbox_pending WHERE forget_at IS NOT NULL AND forget_at <= ?1
 ORDER BY forget_at LIMIT ?2)";
const BACKLOG: &str = "\
SELECT count(*), count(*) FILTER (WHERE state = 1 AND due > ?2), min(due)
FROM audience_inbox_pending WHERE endpoint = ?1 AND body IS NOT NULL AND state < 2";
const COUNT_PARKED: &str =
    "SELECT count(*) FROM audience_inbox_pending WHERE endpoint = ?1 AND state = 3";

const FIND: &str = "\
SELECT state, token, attempts, due, forget_at, fingerprint, body, reason
FROM audience_inbox_pending WHERE endpoint = ?1 AND id = ?2";

const SAVE: &str = "\
INSERT INTO audience_inbox_pending (endpoint, id, state, token, attempts, due, forget_at, fingerprint, body, reason)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
ON CONFLICT (endpoint, id) DO UPDATE SET state = excluded.state, token = excluded.token,
    attempts = excluded.attempts, due = excluded.due, forget_at = excluded.forget_at,
    fingerprint = excluded.fingerprint, body = excluded.body, reason = excluded.reason";

const DELETE: &str = "DELETE FROM audience_inbox_pending WHERE endpoint = ?1 AND id = ?2";

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
        3 => State::Parked {
            since: due,
            reason: row.get::<_, Option<String>>(7)?.unwrap_or_default(),
        },
        state => return Err(rusqlite::Error::IntegralValueOutOfRange(0, state)),
    };
    Ok(Entry {
        state,
        token: row.get::<_, Option<_>>(1)?.map(Token::from_bytes),
        attempts: row.get(2)?,
        fingerprint: row.get::<_, Option<_>>(5)?.map(Fingerprint::from_bytes),
        body: row.get::<_, Option<_>>(6)?.map(Body::Stored),
    })
}

/// Reads a column that must be an event id.
fn event_id(row: &Row<'_>, column: usize) -> rusqlite::Result<EventId> {
    let text = row.get_ref(column)?.as_str()?;
    text.try_into().map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(error))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inbox::sqlite::file::plan;

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
            (DELETE, "USING PRIMARY KEY (endpoint=? AND id=?)"),
        ] {
            let plan = plan(sql);

            assert!(plan.contains(expected), "{sql}\n{plan}");
            let is_slow = plan.contains("SCAN") || plan.contains("TEMP B-TREE");
            assert!(!is_slow, "{sql}\n{plan}");
        }
    }
}
