//! Opens the file.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, MAIN_DB, OpenFlags};

use super::error::store_error;
use super::synchronous::Synchronous;
use crate::inbox::error::StoreError;

/// How many pages the write-ahead log has before it is copied into the file. Ids are random, so with a million of
/// them, nearly each claim changes another page. To copy few pages at a time, as SQLite does by default, would
/// then take almost as long as the claims.
const LOG_PAGES: i64 = 4_000;
/// The log is cut to this size once it is copied.
const LOG_BYTES: i64 = 16 * 1024 * 1024;
const CACHE_KIB: i64 = 16 * 1024;

pub(super) fn connect(
    path: &Path,
    synchronous: Synchronous,
    busy_timeout: Duration,
) -> Result<Connection, StoreError> {
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
    Ok(connection)
}

pub(super) fn connect_in_memory() -> Result<Connection, StoreError> {
    let connection = Connection::open_in_memory().map_err(store_error)?;
    configure(&connection, Synchronous::Full, Duration::ZERO).map_err(store_error)?;
    Ok(connection)
}

/// Creates an absent file so that only its owner may read it. SQLite gives its other files the same mode.
fn create_file(path: &Path) -> Result<(), StoreError> {
    // To close a file ends all locks of this process on it. So no other store may lock it meanwhile.
    static CREATING: Mutex<()> = Mutex::new(());
    let _creating = CREATING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) if error.kind() == ErrorKind::StorageFull => Err(StoreError::full(error)),
        Err(error) => Err(StoreError::unusable(error)),
    }
}

fn configure(
    connection: &Connection,
    synchronous: Synchronous,
    busy_timeout: Duration,
) -> rusqlite::Result<()> {
    // A longer one is not possible.
    connection.busy_timeout(busy_timeout.min(Duration::from_secs(86_400)))?;
    connection.pragma_update(None, "synchronous", synchronous.name())?;
    // Only macOS has it: without it, the disk may keep what was written in its memory.
    connection.pragma_update(None, "fullfsync", synchronous == Synchronous::Full)?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    // Bodies hold personal data: a deleted one is overwritten.
    connection.pragma_update_and_check(None, "secure_delete", true, |_| Ok(()))?;
    connection.pragma_update_and_check(None, "wal_autocheckpoint", LOG_PAGES, |_| Ok(()))?;
    connection.pragma_update_and_check(None, "journal_size_limit", LOG_BYTES, |_| Ok(()))
}

fn use_log(connection: &Connection, busy_timeout: Duration) -> Result<(), StoreError> {
    let end = Instant::now().checked_add(busy_timeout);
    let mode = loop {
        let mode = connection
            .pragma_update_and_check(None, "journal_mode", "wal", |row| row.get::<_, String>(0));
        match mode {
            // SQLite itself does not wait here.
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && end.is_none_or(|end| Instant::now() < end) =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            mode => break mode.map_err(store_error)?,
        }
    };
    if mode == "wal" {
        return Ok(());
    }
    Err(StoreError::unusable(format!(
        "the file system of the database does not support a write-ahead log: its journal mode stayed {mode}"
    )))
}
