//! The file: how it is opened, its tables, and what its errors mean.

use std::error::Error as StdError;
use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rusqlite::{
    Connection, Error, ErrorCode, MAIN_DB, OpenFlags, OptionalExtension, Transaction,
    TransactionBehavior, ffi,
};

use super::Synchronous;
use super::done::{Done, Filters, Hash, List, Periods};
use super::session::{Session, from_ms};
use crate::inbox::error::StoreError;
use crate::inbox::store::{Fingerprint, Token};
use crate::secret::for_owner_only;
use crate::sync::lock;
use crate::webhooks::Clock;

/// How long the write-ahead log is before it is copied into the file: 800 pages of the usual size. The reserve for a
/// full disk has room for more than twice as much.
const LOG_FULL_BYTES: i64 = 800 * 4096;
/// The log is cut to this size once it is copied.
const LOG_BYTES: i64 = 4 * 1024 * 1024;
const CACHE_KIB: i64 = 16 * 1024;
/// How long to wait at most before the next try to get a lock that another connection has.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_millis(1);

pub(super) fn connect(
    path: &Path,
    synchronous: Synchronous,
    busy_timeout: Duration,
) -> Result<(Connection, PathBuf), StoreError> {
    if path.as_os_str().is_empty() || path == Path::new(":memory:") {
        return Err(StoreError::unusable(
            "this path is no file: use SqliteStore::in_memory",
        ));
    }
    // SQLite would read a path that starts with `file:` as a URI. An absolute one never does.
    let path = std::path::absolute(path).map_err(StoreError::unusable)?;
    create_file(&path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(&path, flags).map_err(store_error)?;
    // SQLite opens a file for reading if that is all that is allowed.
    if connection.is_readonly(MAIN_DB).map_err(store_error)? {
        return Err(StoreError::unusable("the database cannot be written to"));
    }
    configure(&connection, synchronous, busy_timeout).map_err(store_error)?;
    use_log(&connection, busy_timeout)?;
    Ok((connection, path))
}

/// Checks that this file has the tables, and changes nothing.
pub(super) fn require_tables(path: &Path, busy_timeout: Duration) -> Result<(), StoreError> {
    let problem =
        |problem: &dyn Display| StoreError::unusable(format!("{}: {problem}", path.display()));
    let file = std::path::absolute(path).map_err(|error| problem(&error))?;
    if !file.is_file() {
        return Err(problem(&"there is no such file"));
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags).map_err(store_error)?;
    set_busy_timeout(&connection, busy_timeout).map_err(store_error)?;
    match version(&connection).map_err(store_error)? {
        Some(_) => Ok(()),
        None => Err(problem(&"no inbox was created in this database")),
    }
}

pub(super) fn connect_in_memory() -> Result<Connection, StoreError> {
    let connection = Connection::open_in_memory().map_err(store_error)?;
    configure(&connection, Synchronous::Full, Duration::ZERO).map_err(store_error)?;
    Ok(connection)
}

/// Creates an absent file so that only its owner may read it. SQLite gives its other files the same mode.
fn create_file(path: &Path) -> Result<(), StoreError> {
    // Closing a file ends all locks of this process on it. So no other store may lock it meanwhile.
    static CREATING: Mutex<()> = Mutex::new(());
    let _creating = lock(&CREATING);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    match for_owner_only(&mut options).open(path) {
        Ok(_) => Ok(()),
        // A device or a folder, for example.
        Err(error)
            if error.kind() == ErrorKind::AlreadyExists
                && path.metadata().is_ok_and(|metadata| !metadata.is_file()) =>
        {
            Err(StoreError::unusable("this path is not a regular file"))
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => {
            let named = io::Error::new(error.kind(), format!("{}: {error}", path.display()));
            Err(not_created(named))
        }
    }
}

fn not_created(error: io::Error) -> StoreError {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => StoreError::full(error),
        _ => StoreError::unusable(error),
    }
}

fn configure(
    connection: &Connection,
    synchronous: Synchronous,
    busy_timeout: Duration,
) -> rusqlite::Result<()> {
    set_busy_timeout(connection, busy_timeout)?;
    connection.pragma_update(None, "synchronous", synchronous.name())?;
    // Only macOS has `fullfsync`. Without it, the disk may keep in its memory what was written.
    connection.pragma_update(None, "fullfsync", synchronous == Synchronous::Full)?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    // Bodies hold personal data: a deleted one is overwritten.
    connection.pragma_update_and_check(None, "secure_delete", true, |_| Ok(()))?;
    // A database that another program created may have larger pages.
    let page_size: i64 = connection.query_row("PRAGMA page_size", (), |row| row.get(0))?;
    let pages = LOG_FULL_BYTES / page_size;
    connection.pragma_update_and_check(None, "wal_autocheckpoint", pages, |_| Ok(()))?;
    connection.pragma_update_and_check(None, "journal_size_limit", LOG_BYTES, |_| Ok(()))
}

/// Sets how long a connection waits for others: up to a day, because rusqlite panics if a timeout is too long.
fn set_busy_timeout(connection: &Connection, timeout: Duration) -> rusqlite::Result<()> {
    connection.busy_timeout(timeout.min(Duration::from_secs(86_400)))
}

/// Begins a transaction that writes, and waits for other connections until the busy timeout is over.
pub(super) fn begin<T>(
    connection: &Connection,
    busy_timeout: Duration,
    run: impl Fn() -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    // SQLite itself soon tries only every 100 ms. It would hardly ever find the moment between two transactions of a
    // process that writes without a pause.
    connection.busy_timeout(Duration::ZERO)?;
    let begun = retry_while_busy(busy_timeout, run);
    // The statements of a user may wait for others, too.
    set_busy_timeout(connection, busy_timeout).ok();
    begun
}

fn retry_while_busy<T>(
    busy_timeout: Duration,
    run: impl Fn() -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let end = Instant::now().checked_add(busy_timeout);
    loop {
        match run() {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && end.is_none_or(|end| Instant::now() < end) =>
            {
                std::thread::sleep(LONGEST_PAUSE.mul_f64(fastrand::f64()));
            }
            result => return result,
        }
    }
}

fn use_log(connection: &Connection, busy_timeout: Duration) -> Result<(), StoreError> {
    // SQLite itself does not wait here.
    let mode = retry_while_busy(busy_timeout, || {
        connection
            .pragma_update_and_check(None, "journal_mode", "wal", |row| row.get::<_, String>(0))
    });
    let mode = mode.map_err(store_error)?;
    if mode == "wal" {
        return Ok(());
    }
    Err(StoreError::unusable(format!(
        "the file system of the database does not support a write-ahead log: its journal mode stayed {mode}"
    )))
}

pub(super) const SCHEMA: &str = include_str!("../../../migrations/sqlite/0001_audience_inbox.sql");

/// The version that [`SCHEMA`] creates.
const VERSION: i64 = 2;

/// Creates the tables if they are absent, and converts those of an older version. Refuses tables of a newer one.
pub(super) fn create_tables(
    connection: &Connection,
    busy_timeout: Duration,
    clock: &dyn Clock,
) -> Result<(), StoreError> {
    let encoding: String = connection
        .query_row("PRAGMA encoding", (), |row| row.get(0))
        .map_err(store_error)?;
    if encoding != "UTF-8" {
        // Another encoding would order ids by other bytes.
        return Err(StoreError::unusable(format!(
            "the database has the encoding {encoding}, and the inbox needs UTF-8"
        )));
    }
    if has_tables(connection)? {
        return Ok(());
    }
    let transaction = begin(connection, busy_timeout, || {
        Transaction::new_unchecked(connection, TransactionBehavior::Immediate)
    });
    let transaction = transaction.map_err(store_error)?;
    // Another process may have created them meanwhile.
    if !has_tables(&transaction)? {
        convert(&transaction, clock).map_err(store_error)?;
    }
    transaction.commit().map_err(store_error)
}

/// Creates the tables, and moves the events there that are in tables of version 1.
///
/// It had done events in one table with the others. The table gets another name, so that a program that still runs
/// and knows version 1 only says that its table is missing.
fn convert(transaction: &Transaction<'_>, clock: &dyn Clock) -> rusqlite::Result<()> {
    let is_old = version(transaction)? == Some(1);
    if is_old {
        transaction.execute_batch("ALTER TABLE audience_inbox RENAME TO audience_inbox_pending")?;
    }
    transaction.execute_batch(SCHEMA)?;
    if !is_old {
        return Ok(());
    }
    let (session, filters) = (Session::new(transaction), Filters::default());
    let mut periods = Periods::read(&session, &filters, clock.now(), List::default())?;
    let done = "SELECT endpoint, id, token, fingerprint, forget_at FROM audience_inbox_pending WHERE state = 2";
    let mut done = transaction.prepare(done)?;
    let mut rows = done.query(())?;
    while let Some(row) = rows.next()? {
        let hash = Hash::of(row.get_ref(0)?.as_str()?, row.get_ref(1)?.as_str()?);
        let token = row.get::<_, Option<_>>(2)?.map(Token::from_bytes);
        let fingerprint = row.get::<_, Option<_>>(3)?.map(Fingerprint::from_bytes);
        let done = Done::new(token, fingerprint, from_ms(row.get(4)?));
        periods.insert(hash, &done)?;
    }
    transaction.execute("DELETE FROM audience_inbox_pending WHERE state = 2", ())?;
    transaction.execute("UPDATE audience_inbox_version SET version = ?1", [VERSION])?;
    Ok(())
}

fn has_tables(connection: &Connection) -> Result<bool, StoreError> {
    match version(connection).map_err(store_error)? {
        None | Some(1) => Ok(false),
        // The first files of version 2 had all tables, but no trigger.
        Some(VERSION) => has(connection, "trigger", "audience_inbox_claimed").map_err(store_error),
        Some(version) => Err(StoreError::unusable(format!(
            "the tables of the inbox have version {version}, and this program knows no newer version than {VERSION}: \
             use the program that created them, or a newer one"
        ))),
    }
}

fn version(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    if !has(connection, "table", "audience_inbox_version")? {
        return Ok(None);
    }
    let version = "SELECT version FROM audience_inbox_version";
    connection
        .query_row(version, (), |row| row.get(0))
        .optional()
}

fn has(connection: &Connection, kind: &str, name: &str) -> rusqlite::Result<bool> {
    let found = "SELECT 1 FROM sqlite_schema WHERE type = ?1 AND name = ?2";
    let found = connection.query_row(found, [kind, name], |_| Ok(()));
    Ok(found.optional()?.is_some())
}

#[derive(Debug, thiserror::Error)]
#[error(
    "a table of the inbox is missing from the database: open it by `SqliteStore::open`, or run `SqliteStore::SCHEMA`"
)]
struct MissingTables {
    source: Box<dyn StdError + Send + Sync>,
}

pub(super) fn store_error(error: Error) -> StoreError {
    // Without a code, it is a value of another type than the schema allows, for example.
    let code = error.sqlite_error().map(|failure| failure.extended_code);
    store_error_of_code(code, error)
}

/// Classes an error of any driver by SQLite's extended code.
pub(super) fn store_error_of_code(
    code: Option<i32>,
    error: impl Into<Box<dyn StdError + Send + Sync>>,
) -> StoreError {
    let error = error.into();
    // SQLite has no code for it.
    if error.to_string().contains("no such table: audience_inbox") {
        return StoreError::unusable(MissingTables { source: error });
    }
    let Some(code) = code else {
        return StoreError::unusable(error);
    };
    // The file that processes share memory by could not be made longer.
    if code == ffi::SQLITE_IOERR_SHMSIZE {
        return StoreError::full(error);
    }
    match ffi::Error::new(code).code {
        ErrorCode::DiskFull => StoreError::full(error),
        ErrorCode::DatabaseBusy
        | ErrorCode::DatabaseLocked
        | ErrorCode::SystemIoFailure
        | ErrorCode::OutOfMemory
        | ErrorCode::OperationInterrupted
        | ErrorCode::OperationAborted
        | ErrorCode::FileLockingProtocolFailed => StoreError::unavailable(error),
        _ => StoreError::unusable(error),
    }
}

/// Returns whether an operation failed because there is no room. SQLite has no code for a quota: a write then fails as on
/// a broken disk, for which it does no harm to give up the reserve.
pub(super) fn is_out_of_room(error: &ffi::Error) -> bool {
    error.code == ErrorCode::DiskFull
        || matches!(
            error.extended_code,
            ffi::SQLITE_IOERR_WRITE | ffi::SQLITE_IOERR_SHMSIZE
        )
}

/// Copies the error of a commit, for each of the operations that it was for.
pub(super) fn copy(error: &Error) -> Error {
    match error {
        Error::SqliteFailure(code, text) => Error::SqliteFailure(*code, text.clone()),
        other => Error::SqliteFailure(
            ffi::Error::new(ffi::SQLITE_INTERNAL),
            Some(other.to_string()),
        ),
    }
}

/// Returns how SQLite would run a statement.
#[cfg(test)]
pub(super) fn plan(sql: &str) -> String {
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::inbox::error::StoreErrorKind;

    #[test]
    fn a_file_that_cannot_be_created_on_a_full_disk_may_be_created_later() {
        let kind = |kind| not_created(io::Error::from(kind)).kind();

        assert_eq!(kind(ErrorKind::StorageFull), StoreErrorKind::Full);
        assert_eq!(kind(ErrorKind::QuotaExceeded), StoreErrorKind::Full);
        assert_eq!(kind(ErrorKind::PermissionDenied), StoreErrorKind::Unusable);
    }

    #[test]
    fn only_a_database_that_is_busy_is_tried_again_and_not_after_the_busy_timeout() {
        let hour = Duration::from_secs(3_600);
        for (code, busy_timeout, expected) in [
            (ffi::SQLITE_BUSY, hour, 2),
            (ffi::SQLITE_BUSY, Duration::ZERO, 1),
            (ffi::SQLITE_CORRUPT, hour, 1),
        ] {
            let tries = Cell::new(0);
            let tried = retry_while_busy(busy_timeout, || {
                tries.set(tries.get() + 1);
                match tries.get() {
                    1 => Err(Error::SqliteFailure(ffi::Error::new(code), None)),
                    _ => Ok(()),
                }
            });

            assert_eq!(tries.get(), expected, "{code} {busy_timeout:?}");
            assert_eq!(tried.is_ok(), expected == 2, "{code} {busy_timeout:?}");
        }
    }

    #[test]
    fn a_log_that_another_program_prevents_is_asked_for_until_the_busy_timeout() {
        let name = format!("audience-log-{:016x}.db", fastrand::u64(..));
        let path = std::env::temp_dir().join(name);
        let (first, other) = (
            Connection::open(&path).unwrap(),
            Connection::open(&path).unwrap(),
        );
        first.busy_timeout(Duration::ZERO).unwrap();
        let lock = "CREATE TABLE other (number INTEGER); BEGIN EXCLUSIVE";
        other.execute_batch(lock).unwrap();
        let busy_timeout = Duration::from_millis(50);

        let start = Instant::now();
        let error = use_log(&first, busy_timeout).unwrap_err();
        let waited = start.elapsed();
        other.execute_batch("ROLLBACK").unwrap();
        use_log(&first, busy_timeout).unwrap();

        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
        assert!(waited >= busy_timeout, "{waited:?}");
        drop((first, other));
        std::fs::remove_file(&path).unwrap();
    }
}
