//! Statements on a connection, and times in columns.

use std::cell::RefCell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, Statement};

/// A connection with the statements that were prepared on it.
pub(super) struct Session<'c> {
    connection: &'c Connection,
    /// The statements by their text. A statement is `None` while it runs.
    statements: RefCell<Vec<(&'static str, Option<Statement<'c>>)>>,
}

impl<'c> Session<'c> {
    pub(super) fn new(connection: &'c Connection) -> Self {
        Self {
            connection,
            statements: RefCell::default(),
        }
    }

    pub(super) fn connection(&self) -> &'c Connection {
        self.connection
    }

    /// Runs a statement, which is prepared the first time only.
    pub(super) fn statement<T>(
        &self,
        sql: &'static str,
        run: impl FnOnce(&mut Statement<'c>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        let (index, prepared) = self.prepared(sql);
        let mut statement = match prepared {
            Some(statement) => statement,
            None => self.connection.prepare(sql)?,
        };
        let result = run(&mut statement);
        self.statements.borrow_mut()[index].1 = Some(statement);
        result
    }

    /// Takes a statement out of its place.
    fn prepared(&self, sql: &'static str) -> (usize, Option<Statement<'c>>) {
        let mut statements = self.statements.borrow_mut();
        // The texts are compared by their addresses: they are few, and hashing each text took a tenth of the time. Two
        // copies of a constant are two statements.
        let known = statements
            .iter()
            .position(|(known, _)| std::ptr::eq(*known, sql));
        let index = known.unwrap_or_else(|| {
            statements.push((sql, None));
            statements.len() - 1
        });
        (index, statements[index].1.take())
    }

    /// Copies the log into the file as far as that is possible without waiting for others.
    pub(super) fn checkpoint(&self, mode: &str) {
        let checkpoint = format!("PRAGMA wal_checkpoint({mode})");
        self.without_waiting(|| {
            // Its row says how far it came. If that is not far, the next commit says why.
            let copied = self.connection.query_row(&checkpoint, (), |_| Ok(()));
            copied.ok();
        });
    }

    /// Runs a closure without waiting for other connections.
    pub(super) fn without_waiting(&self, run: impl FnOnce()) {
        let wait = self
            .connection
            .query_row("PRAGMA busy_timeout", (), |row| row.get::<_, u32>(0));
        self.connection.busy_timeout(Duration::ZERO).ok();
        run();
        let wait = Duration::from_millis(wait.unwrap_or(0).into());
        self.connection.busy_timeout(wait).ok();
    }

    pub(super) fn execute(&self, sql: &'static str) -> rusqlite::Result<()> {
        self.statement(sql, |statement| statement.execute(()).map(drop))
    }
}

/// Returns milliseconds, rounded up, so that no lease ends early.
pub(super) fn to_ms(time: SystemTime) -> i64 {
    let partial = Duration::from_nanos(999_999);
    time.checked_add(partial).map_or(i64::MAX, to_past_ms)
}

/// Returns milliseconds, rounded down, to compare with the time at which an event is due.
pub(super) fn to_past_ms(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => saturating_ms(since.as_millis()),
        Err(before) => -saturating_ms(before.duration().as_nanos().div_ceil(1_000_000)),
    }
}

/// A time that this platform cannot represent counts as past.
pub(super) fn from_ms(ms: i64) -> SystemTime {
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
    use super::*;

    #[test]
    fn a_time_is_rounded_to_the_millisecond_and_read_back() {
        // The clock of Windows counts in steps of 100 ns.
        let nanos = |nanos| UNIX_EPOCH + Duration::from_nanos(nanos);
        let before = |nanos| UNIX_EPOCH - Duration::from_nanos(nanos);
        for (time, up, down) in [
            (nanos(0), 0, 0),
            (nanos(100), 1, 0),
            (nanos(1_000_000), 1, 1),
            (nanos(1_999_900), 2, 1),
            (before(100), 0, -1),
            (before(1_000_000), -1, -1),
        ] {
            assert_eq!((to_ms(time), to_past_ms(time)), (up, down), "{time:?}");
        }
        for ms in [0, 1, -1, 1_700_000_000_000] {
            assert_eq!(to_past_ms(from_ms(ms)), ms);
        }
        let _ = (from_ms(i64::MAX), from_ms(i64::MIN));
    }
}
