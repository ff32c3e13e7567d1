//! Events that are done. They are many, and nearly all are never asked for again.
//!
//! A done event is a hash in a *period*. Events are added to the newest period only, so the pages that are written stay
//! few however many events are remembered. A period is closed when it is large or old, and then gets a random number.
//! For each closed period, a process keeps a Bloom filter in memory, and asks the file only if the event may be there.
//! The filters stay right whatever other processes do: closing a period and adding to one both need the write lock, a
//! closed period only loses events, and a period that is closed again, because a rollback or a restored copy undid it,
//! has another random number.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use rusqlite::{OptionalExtension, Row};
use sha2::{Digest, Sha256};

use super::session::{Session, from_ms, to_ms, to_past_ms};
use crate::inbox::store::{Fingerprint, Token};
use crate::sync::lock;

/// How many events a period has at least, unless it is old. Their hashes are about 1,000 pages.
const PERIOD_ROWS: usize = 1 << 16;
/// With many events the periods are larger, because a lookup asks each of them.
const PERIODS: usize = 16;
/// Returns how long events that are remembered this long are added to one period: a twelfth of that time, so that the
/// periods stay few.
fn period_time(retention: Duration) -> Duration {
    SHORTEST_PERIOD.max(retention / 12)
}
const SHORTEST_PERIOD: Duration = Duration::from_secs(6 * 3_600);

/// The hash of the name of an event: the start of the SHA-256 of its endpoint, a zero byte, and its id.
///
/// No id has a zero byte, so two events have one hash only if somebody finds a collision.
#[derive(Clone, Copy)]
pub(super) struct Hash(pub(super) [u8; 16]);

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

/// Returns the first bytes of a longer slice.
fn first<const N: usize>(bytes: &[u8]) -> [u8; N] {
    std::array::from_fn(|n| bytes[n])
}

/// The data that is kept of a done event. Half of a token and of a fingerprint is enough to compare them.
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

/// The filters of closed periods, and how large the newest period is. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Filters(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    /// The filters by the random number of the period.
    closed: HashMap<i64, Arc<Filter>>,
    /// The number of the newest period, and about how many events it has.
    newest: Option<(i64, usize)>,
}

/// A Bloom filter, which knows of most hashes that are not in a period that they are not. The bits for one hash are in
/// one line of the processor's cache. It has two bytes for each hash, and is wrong for about one in 800.
#[derive(Debug)]
struct Filter {
    blocks: Box<[[u64; 8]]>,
    hashes: usize,
}

impl Filter {
    fn of(hashes: &[Hash]) -> Self {
        let blocks = vec![[0; 8]; hashes.len().div_ceil(32).max(1)];
        let mut filter = Self {
            blocks: blocks.into(),
            hashes: hashes.len(),
        };
        for hash in hashes {
            let block = filter.block(*hash);
            for (word, bit) in bits(*hash) {
                filter.blocks[block][word] |= bit;
            }
        }
        filter
    }

    fn may_have(&self, hash: Hash) -> bool {
        let block = &self.blocks[self.block(hash)];
        bits(hash).all(|(word, bit)| block[word] & bit != 0)
    }

    fn block(&self, hash: Hash) -> usize {
        u32::from_be_bytes(first(&hash.0)) as usize % self.blocks.len()
    }
}

/// Returns the six bits of a hash in its block. They are from its last bytes, which do not choose the block.
fn bits(hash: Hash) -> impl Iterator<Item = (usize, u64)> {
    let [.., a, b, c, d, e, f, g, h] = hash.0.map(usize::from);
    // Nine bits each: three choose a word.
    [(a, b), (c, d), (e, f), (g, h), (b, c), (d, e)]
        .into_iter()
        .map(|(word, bit)| (word % 8, 1 << (bit % 64)))
}

impl Filters {
    fn lock(&self) -> MutexGuard<'_, Known> {
        lock(&self.0)
    }
}

#[derive(Debug)]
struct Period {
    number: i64,
    began: SystemTime,
    first_forget: Option<SystemTime>,
    closed: Option<i64>,
    filter: Option<Arc<Filter>>,
}

/// The periods as they were at the end of a transaction, for the next one of the same connection.
#[derive(Debug, Default)]
pub(super) struct List {
    /// Changes when another connection commits something.
    data_version: i64,
    /// The periods, the newest first. Empty if they must be read.
    periods: Vec<Period>,
}

impl Period {
    /// Returns whether it has the filter that it should have.
    fn is_loaded(&self) -> bool {
        self.closed.is_none() || self.filter.is_some()
    }

    fn may_have(&self, hash: Hash) -> bool {
        match &self.filter {
            Some(filter) => filter.may_have(hash),
            None => true,
        }
    }
}

/// The periods as they are in a transaction.
pub(super) struct Periods<'s, 'c> {
    session: &'s Session<'c>,
    filters: &'s Filters,
    now: SystemTime,
    list: List,
}

impl<'s, 'c> Periods<'s, 'c> {
    /// Reads the periods, unless this list still has them.
    pub(super) fn read(
        session: &'s Session<'c>,
        filters: &'s Filters,
        now: SystemTime,
        list: List,
    ) -> rusqlite::Result<Self> {
        let data_version = session.statement(DATA_VERSION, |statement| {
            statement.query_row((), |row| row.get(0))
        })?;
        let is_same = list.data_version == data_version && !list.periods.is_empty();
        let periods = match is_same && list.periods.iter().all(Period::is_loaded) {
            true => list.periods,
            false => Self::read_all(session, filters)?,
        };
        Ok(Self {
            session,
            filters,
            now,
            list: List {
                data_version,
                periods,
            },
        })
    }

    fn read_all(session: &Session<'_>, filters: &Filters) -> rusqlite::Result<Vec<Period>> {
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
            // Each transaction loads one filter at most, because that takes some milliseconds.
            if period.filter.is_none() && !loaded {
                let filter = Arc::new(load(session, period.number)?);
                known.closed.insert(closed, Arc::clone(&filter));
                period.filter = Some(filter);
                loaded = true;
            }
        }
        Ok(periods)
    }

    /// Returns the list for the next transaction, if this one is committed.
    pub(super) fn into_list(self) -> List {
        self.list
    }

    /// Returns an event that is done and not forgotten.
    pub(super) fn find(&self, hash: Hash) -> rusqlite::Result<Option<Done>> {
        for period in &self.list.periods {
            if !period.may_have(hash) {
                continue;
            }
            let done = self.session.statement(FIND, |statement| {
                statement
                    .query_row((period.number, hash.0), read_done)
                    .optional()
            })?;
            // A forgotten event may have been done again since, or before if the clock jumped back.
            if let Some(done) = done.filter(|done| done.forget_at > self.now) {
                return Ok(Some(done));
            }
        }
        Ok(None)
    }

    pub(super) fn insert(&mut self, hash: Hash, done: &Done) -> rusqlite::Result<()> {
        let retention = done.forget_at.duration_since(self.now);
        let number = self.newest(period_time(retention.unwrap_or_default()))?;
        let forget_at = to_ms(done.forget_at);
        let newest = &mut self.list.periods[0];
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

    /// Returns the number of the period to which events are added, which is the first of the list. Begins one if the
    /// newest is full or this old.
    fn newest(&mut self, old: Duration) -> rusqlite::Result<i64> {
        let last = self.list.periods.first();
        let number = last.map_or(0, |period| period.number);
        if let Some(open) = last.filter(|period| period.closed.is_none()) {
            if !self.is_full(open, old)? {
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
        self.list.periods = Self::read_all(self.session, self.filters)?;
        Ok(next)
    }

    fn is_full(&self, newest: &Period, old: Duration) -> rusqlite::Result<bool> {
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
        let closed = known.closed.values().map(|filter| filter.hashes);
        Ok((rows > 0 && age >= old) || is_large(rows, closed))
    }

    /// Deletes up to this many events that may be forgotten. Returns how many.
    ///
    /// The events of a closed period are deleted a while later, when all of them may be forgotten if they are
    /// remembered equally long. Deleting each in time would change a page for each.
    ///
    /// Also closes the newest period if it is full: the trigger of the schema, which adds events to it, too, only
    /// closes one that is old.
    pub(super) fn purge(&mut self, limit: usize) -> rusqlite::Result<usize> {
        let mut purged = 0;
        for period in self.list.periods.iter().rev() {
            let is_due = |first: SystemTime| {
                let wait = period.closed.map_or(Duration::ZERO, |_| {
                    period_time(first.duration_since(period.began).unwrap_or_default())
                });
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
        if !self.list.periods.is_empty() {
            // The events are counted again: those of the trigger were not.
            self.filters.lock().newest = None;
            self.newest(Duration::MAX)?;
        }
        Ok(purged)
    }
}

/// Returns whether a period with this many events is large enough, beside closed ones with so many.
fn is_large(rows: usize, closed: impl Iterator<Item = usize>) -> bool {
    rows >= PERIOD_ROWS && rows >= closed.sum::<usize>() / PERIODS
}

fn load(session: &Session<'_>, period: i64) -> rusqlite::Result<Filter> {
    let hashes: Vec<_> = session.statement(HASHES, |statement| {
        statement
            .query_map([period], |row| Ok(Hash(row.get(0)?)))?
            .collect::<rusqlite::Result<_>>()
    })?;
    Ok(Filter::of(&hashes))
}

const DATA_VERSION: &str = "PRAGMA data_version";
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
const HASHES: &str = "SELECT hash FROM audience_inbox_done WHERE period = ?1";
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

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;
    use crate::inbox::sqlite::CLAIM_IN;
    use crate::inbox::sqlite::file::{SCHEMA, plan};

    fn hashes(endpoint: &str, count: usize) -> Vec<Hash> {
        (0..count)
            .map(|n| Hash::of(endpoint, &n.to_string()))
            .collect()
    }

    #[test]
    fn a_filter_has_all_hashes_and_few_others() {
        for count in [0, 1, 31, 33, 65_536] {
            let (there, others) = (hashes("main", count), hashes("other", 20_000));

            let filter = Filter::of(&there);

            assert!(there.iter().all(|hash| filter.may_have(*hash)), "{count}");
            let wrong = others.iter().filter(|hash| filter.may_have(**hash)).count();
            assert!(wrong < 200, "{wrong} of 20,000 with {count}");
        }
    }

    #[test]
    fn an_event_is_forgotten_at_the_moment_until_which_it_is_remembered() {
        let connection = in_memory();
        let (session, filters) = (Session::new(&connection), Filters::default());
        let periods = |now| Periods::read(&session, &filters, now, List::default()).unwrap();
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let forget_at = start + Duration::from_secs(60);
        let hash = Hash::of("main", "evt_1");

        let done = Done::new(None, None, forget_at);
        periods(start).insert(hash, &done).unwrap();

        let is_known = |now| periods(now).find(hash).unwrap().is_some();
        assert!(is_known(forget_at - Duration::from_millis(1)));
        assert!(!is_known(forget_at));
    }

    #[test]
    fn an_event_that_is_remembered_for_less_time_than_an_older_one_is_purged_in_time() {
        let connection = in_memory();
        let (session, filters) = (Session::new(&connection), Filters::default());
        let periods = |now| Periods::read(&session, &filters, now, List::default()).unwrap();
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let after = |minutes: u64| start + Duration::from_secs(60 * minutes);
        for (id, forget_at) in [("evt_1", after(120)), ("evt_2", after(60))] {
            let done = Done::new(None, None, forget_at);
            periods(start).insert(Hash::of("main", id), &done).unwrap();
        }

        let purged = [59, 60, 119, 120].map(|minutes| periods(after(minutes)).purge(10).unwrap());

        assert_eq!(purged, [0, 1, 0, 1]);
    }

    fn in_memory() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(SCHEMA).unwrap();
        connection
    }

    #[test]
    fn each_transaction_loads_one_filter_until_all_closed_periods_have_theirs() {
        let connection = in_memory();
        let closed =
            "INSERT INTO audience_inbox_period (number, began, closed) VALUES (2, 0, 7), (3, 0, 8)";
        connection.execute(closed, ()).unwrap();
        let filters = Filters::default();

        let loaded = [(); 3].map(|()| {
            Periods::read_all(&Session::new(&connection), &filters).unwrap();
            filters.lock().closed.len()
        });

        assert_eq!(loaded, [1, 2, 2]);
    }

    #[test]
    fn the_filter_of_a_period_that_is_gone_is_dropped() {
        let connection = in_memory();
        let closed = "INSERT INTO audience_inbox_period (number, began, closed) VALUES (2, 0, 7)";
        connection.execute(closed, ()).unwrap();
        let filters = Filters::default();
        let of_both = [6_i64, 7].map(|closed| (closed, Arc::new(Filter::of(&[]))));
        filters.lock().closed.extend(of_both);

        Periods::read_all(&Session::new(&connection), &filters).unwrap();

        let kept: Vec<i64> = filters.lock().closed.keys().copied().collect();
        assert_eq!(kept, [7]);
    }

    #[test]
    fn every_lookup_uses_the_primary_key() {
        let key = "USING PRIMARY KEY (period=? AND hash=?)";
        for (sql, expected) in [
            (FIND, key),
            (CLAIM_IN, key),
            (PURGE, key),
            (HASHES, "USING PRIMARY KEY (period=?)"),
            (COUNT, "USING PRIMARY KEY (period=?)"),
            (UPDATE_FIRST, "USING PRIMARY KEY (period=?)"),
            (PERIODS_SQL, ""),
        ] {
            let plan = plan(sql);
            assert!(plan.contains(expected), "{sql}\n{plan}");
            assert!(!plan.contains("TEMP B-TREE"), "{sql}\n{plan}");
        }
    }

    #[test]
    fn the_more_events_are_remembered_the_larger_is_a_period() {
        let least = |closed: &[usize]| {
            let is_enough = |rows: &usize| is_large(*rows, closed.iter().copied());
            (0..1 << 20).step_by(1 << 12).find(is_enough)
        };

        assert_eq!(least(&[]), Some(PERIOD_ROWS));
        assert_eq!(least(&[PERIOD_ROWS; PERIODS]), Some(PERIOD_ROWS));
        assert_eq!(least(&[PERIOD_ROWS; 3 * PERIODS]), Some(3 * PERIOD_ROWS));
    }
}
