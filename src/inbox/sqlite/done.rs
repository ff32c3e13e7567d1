//! Events that are done. They are many, and nearly all are never asked for again.
//!
//! A done event is a hash in a *period*. Events are added to the newest period only, so the pages that are written
//! stay few however many events are remembered. A period is closed when it is large or old, and then gets a random
//! number. For each closed period, a process keeps the starts of its hashes in memory, and asks the file only if the
//! start is among them. That is right whatever other processes do: to close a period and to add to one need the
//! write lock, what is in a closed period only becomes less, and a period that is closed again, because a rollback or
//! a restored copy undid it, has another random number.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use rusqlite::{OptionalExtension, Row};
use sha2::{Digest, Sha256};

use super::session::{Session, from_ms, to_ms, to_past_ms};
use crate::inbox::store::{Fingerprint, Token};

/// How many events a period has at least, unless it is old. Their hashes are about 1,000 pages.
const PERIOD_ROWS: usize = 1 << 16;
/// With many events the periods are larger, because a lookup asks each of them.
const PERIODS: usize = 16;
/// How long events are added to a period.
const PERIOD_TIME: Duration = Duration::from_secs(6 * 3_600);

/// What stands for the name of an event: the start of the SHA-256 of its endpoint, a zero byte, and its id.
///
/// No id has a zero byte, so two events have one hash only if somebody finds a collision.
#[derive(Clone, Copy)]
pub(super) struct Hash([u8; 16]);

impl Hash {
    pub(super) fn of(endpoint: &str, id: &str) -> Self {
        let mut digest = Sha256::new();
        digest.update(endpoint);
        digest.update([0]);
        digest.update(id);
        let digest: [u8; 32] = digest.finalize().into();
        Self(first(&digest))
    }
}

/// The first bytes of something long enough.
fn first<const N: usize>(bytes: &[u8]) -> [u8; N] {
    std::array::from_fn(|n| bytes[n])
}

/// What is kept of a done event. Half of a token and of a fingerprint tell them apart as well.
#[derive(Debug)]
pub(super) struct Done {
    token: Option<[u8; 8]>,
    fingerprint: Option<[u8; 8]>,
    forget_at: SystemTime,
}

impl Done {
    pub(super) fn new(
        token: Option<Token>,
        fingerprint: Option<Fingerprint>,
        forget_at: SystemTime,
    ) -> Self {
        Self {
            token: token.map(|token| first(token.as_bytes())),
            fingerprint: fingerprint.map(|fingerprint| first(fingerprint.as_bytes())),
            forget_at,
        }
    }

    /// Returns whether this is the token of the claim that was completed.
    pub(super) fn is_by(&self, token: Token) -> bool {
        self.token == Some(first(token.as_bytes()))
    }

    pub(super) fn conflicts_with(&self, fingerprint: Option<Fingerprint>) -> bool {
        let other = fingerprint.map(|fingerprint| first(fingerprint.as_bytes()));
        self.fingerprint.is_some() && other.is_some() && self.fingerprint != other
    }
}

/// The starts of the hashes in closed periods, and how large the newest period is. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Filters(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    /// By the random number of the period.
    closed: HashMap<i64, Filter>,
    /// The number of the newest period, and about how many events it has.
    newest: Option<(i64, usize)>,
}

/// The first four bytes of each hash, in their order.
type Filter = Arc<[u32]>;

fn start(hash: Hash) -> u32 {
    u32::from_be_bytes(first(&hash.0))
}

impl Filters {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Period {
    number: i64,
    began: SystemTime,
    first_forget: Option<SystemTime>,
    closed: Option<i64>,
    filter: Option<Filter>,
}

impl Period {
    fn may_have(&self, hash: Hash) -> bool {
        match &self.filter {
            Some(filter) => filter.binary_search(&start(hash)).is_ok(),
            None => true,
        }
    }
}

/// The periods as they are in a transaction.
pub(super) struct Periods<'s, 'c> {
    session: &'s Session<'c>,
    filters: &'s Filters,
    now: SystemTime,
    /// The newest first.
    periods: Vec<Period>,
}

impl<'s, 'c> Periods<'s, 'c> {
    pub(super) fn read(
        session: &'s Session<'c>,
        filters: &'s Filters,
        now: SystemTime,
    ) -> rusqlite::Result<Self> {
        let mut periods: Vec<Period> = session.statement(PERIODS_SQL, |statement| {
            statement.query_map((), read_period)?.collect()
        })?;
        let mut known = filters.lock();
        known
            .closed
            .retain(|closed, _| periods.iter().any(|period| period.closed == Some(*closed)));
        let mut loaded = false;
        for period in &mut periods {
            let Some(closed) = period.closed else {
                continue;
            };
            period.filter = known.closed.get(&closed).cloned();
            // One for each transaction: each takes some milliseconds.
            if period.filter.is_none() && !loaded {
                let filter = load(session, period.number)?;
                known.closed.insert(closed, Arc::clone(&filter));
                period.filter = Some(filter);
                loaded = true;
            }
        }
        drop(known);
        Ok(Self {
            session,
            filters,
            now,
            periods,
        })
    }

    /// Returns an event that is done and not forgotten.
    pub(super) fn find(&self, hash: Hash) -> rusqlite::Result<Option<Done>> {
        for period in &self.periods {
            if !period.may_have(hash) {
                continue;
            }
            let done = self.session.statement(FIND, |statement| {
                statement
                    .query_row((period.number, hash.0), read_done)
                    .optional()
            })?;
            // One that is forgotten may have been done once more since, or before if the clock jumped back.
            if let Some(done) = done.filter(|done| done.forget_at > self.now) {
                return Ok(Some(done));
            }
        }
        Ok(None)
    }

    pub(super) fn insert(&mut self, hash: Hash, done: &Done) -> rusqlite::Result<()> {
        let number = self.newest()?;
        let forget_at = to_ms(done.forget_at);
        let newest = &mut self.periods[0];
        if newest
            .first_forget
            .is_none_or(|first| first > done.forget_at)
        {
            self.session.statement(SET_FIRST, |statement| {
                statement.execute((number, forget_at))
            })?;
            newest.first_forget = Some(done.forget_at);
        }
        self.session.statement(INSERT, |statement| {
            statement.execute((number, hash.0, done.token, done.fingerprint, forget_at))
        })?;
        if let Some((_, rows)) = &mut self.filters.lock().newest {
            *rows += 1;
        }
        Ok(())
    }

    /// Returns the number of the period to which events are added, which is the first of the list.
    fn newest(&mut self) -> rusqlite::Result<i64> {
        let last = self.periods.first();
        let number = last.map_or(0, |period| period.number);
        if let Some(open) = last.filter(|period| period.closed.is_none()) {
            if !self.is_full(open)? {
                return Ok(number);
            }
            self.session
                .statement(CLOSE, |statement| statement.execute([number]))?;
        }
        let next = number + 1;
        self.session.statement(BEGIN, |statement| {
            statement.execute((next, to_past_ms(self.now)))
        })?;
        self.filters.lock().newest = Some((next, 0));
        // Read once more, with its random number.
        *self = Self::read(self.session, self.filters, self.now)?;
        Ok(next)
    }

    fn is_full(&self, newest: &Period) -> rusqlite::Result<bool> {
        let age = self.now.duration_since(newest.began).unwrap_or_default();
        let mut known = self.filters.lock();
        let rows = match known.newest {
            Some((number, rows)) if number == newest.number => rows,
            // Another process began it, or this one has just started.
            _ => {
                let count = self.session.statement(COUNT, |statement| {
                    statement.query_row([newest.number], |row| row.get::<_, i64>(0))
                })?;
                let rows = usize::try_from(count).unwrap_or_default();
                known.newest = Some((newest.number, rows));
                rows
            }
        };
        let remembered: usize = known.closed.values().map(|filter| filter.len()).sum();
        Ok(rows >= PERIOD_ROWS.max(remembered / PERIODS) || (rows > 0 && age >= PERIOD_TIME))
    }

    /// Deletes up to this many events that may be forgotten. Returns how many.
    ///
    /// The events of a closed period are deleted a while later, when all of them may be forgotten if they are
    /// remembered equally long. To delete each in time would change a page for each.
    pub(super) fn purge(&self, limit: usize) -> rusqlite::Result<usize> {
        let mut purged = 0;
        for period in self.periods.iter().rev() {
            let wait = period.closed.map_or(Duration::ZERO, |_| PERIOD_TIME);
            let is_due = |first: SystemTime| {
                self.now
                    .duration_since(first)
                    .is_ok_and(|since| since >= wait)
            };
            if !period.first_forget.is_some_and(is_due) {
                continue;
            }
            let most = i64::try_from(limit - purged).unwrap_or(i64::MAX);
            purged += self.session.statement(PURGE, |statement| {
                statement.execute((period.number, to_past_ms(self.now), most))
            })?;
            if purged == limit {
                break;
            }
            self.session
                .statement(UPDATE_FIRST, |statement| statement.execute([period.number]))?;
            self.session
                .statement(DELETE_EMPTY, |statement| statement.execute([period.number]))?;
        }
        Ok(purged)
    }
}

/// Reads the starts of all hashes of a period.
fn load(session: &Session<'_>, period: i64) -> rusqlite::Result<Filter> {
    session.statement(HASHES, |statement| {
        statement
            .query_map([period], |row| Ok(start(Hash(row.get(0)?))))?
            .collect()
    })
}

const PERIODS_SQL: &str = "\
SELECT number, began, first_forget, closed FROM audience_inbox_period ORDER BY number DESC";
const BEGIN: &str = "INSERT INTO audience_inbox_period (number, began) VALUES (?1, ?2)";
const CLOSE: &str = "UPDATE audience_inbox_period SET closed = random() WHERE number = ?1";
const SET_FIRST: &str = "UPDATE audience_inbox_period SET first_forget = ?2 WHERE number = ?1";
const UPDATE_FIRST: &str = "\
UPDATE audience_inbox_period
SET first_forget = (SELECT min(forget_at) FROM audience_inbox_done WHERE period = ?1)
WHERE number = ?1";
const DELETE_EMPTY: &str = "\
DELETE FROM audience_inbox_period WHERE number = ?1 AND first_forget IS NULL AND closed IS NOT NULL";

const FIND: &str = "\
SELECT token, fingerprint, forget_at FROM audience_inbox_done WHERE period = ?1 AND hash = ?2";
// A forgotten event may have the same hash.
const INSERT: &str = "\
INSERT OR REPLACE INTO audience_inbox_done (period, hash, token, fingerprint, forget_at)
VALUES (?1, ?2, ?3, ?4, ?5)";
const COUNT: &str = "SELECT count(*) FROM audience_inbox_done WHERE period = ?1";
const HASHES: &str = "SELECT hash FROM audience_inbox_done WHERE period = ?1 ORDER BY hash";
const PURGE: &str = "\
DELETE FROM audience_inbox_done WHERE (period, hash) IN
(SELECT period, hash FROM audience_inbox_done WHERE period = ?1 AND forget_at <= ?2 LIMIT ?3)";

fn read_period(row: &Row<'_>) -> rusqlite::Result<Period> {
    Ok(Period {
        number: row.get(0)?,
        began: from_ms(row.get(1)?),
        first_forget: row.get::<_, Option<i64>>(2)?.map(from_ms),
        closed: row.get(3)?,
        filter: None,
    })
}

fn read_done(row: &Row<'_>) -> rusqlite::Result<Done> {
    Ok(Done {
        token: row.get(0)?,
        fingerprint: row.get(1)?,
        forget_at: from_ms(row.get(2)?),
    })
}
