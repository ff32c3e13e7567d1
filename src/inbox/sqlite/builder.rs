use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;

use super::connect::{connect, connect_in_memory};
use super::schema::create_tables;
use super::store::SqliteStore;
use super::synchronous::Synchronous;
use super::writer::Writer;
use crate::inbox::error::StoreError;
use crate::webhooks::{Clock, SystemClock};

/// Builds a [`SqliteStore`] in a file.
pub struct SqliteStoreBuilder {
    path: PathBuf,
    synchronous: Synchronous,
    busy_timeout: Duration,
    clock: Arc<dyn Clock>,
}

impl SqliteStore {
    /// Opens a store in this file. Creates the file and the tables if they are absent.
    ///
    /// A new file can be read by its owner only (mode 0600 on Unix), because bodies hold personal data. The
    /// file may be the database of your application. It is then switched to a write-ahead log (WAL), and its
    /// other tables are left alone.
    ///
    /// This reads and writes the file, so it blocks for some milliseconds.
    ///
    /// # Errors
    ///
    /// - [`Unusable`](crate::inbox::StoreErrorKind::Unusable): the folder does not exist, the file is not a
    ///   database or cannot be written, or a newer version of this crate created the tables.
    /// - [`Unavailable`](crate::inbox::StoreErrorKind::Unavailable): another process locks the file for longer
    ///   than the [busy timeout](SqliteStoreBuilder::busy_timeout).
    /// - [`Full`](crate::inbox::StoreErrorKind::Full): the disk is full.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::builder(path).open()
    }

    /// Starts building a store in this file.
    ///
    /// # Example: faster, and less safe
    ///
    /// ```
    /// use std::time::Duration;
    /// use audience::inbox::{SqliteStore, Synchronous};
    ///
    /// # fn open() -> Result<SqliteStore, audience::inbox::StoreError> {
    /// SqliteStore::builder("inbox.db")
    ///     .synchronous(Synchronous::Normal)
    ///     .busy_timeout(Duration::from_secs(2))
    ///     .open()
    /// # }
    /// ```
    pub fn builder(path: impl AsRef<Path>) -> SqliteStoreBuilder {
        SqliteStoreBuilder {
            path: path.as_ref().to_owned(),
            synchronous: Synchronous::default(),
            busy_timeout: Duration::from_secs(5),
            clock: Arc::new(SystemClock),
        }
    }

    /// Creates a store in memory, for tests of SQL in [`transaction`](Self::transaction).
    ///
    /// It is lost with its last clone. For everything else, [`MemoryStore`](crate::inbox::MemoryStore) is
    /// faster.
    ///
    /// # Errors
    ///
    /// Returns [`Unavailable`](crate::inbox::StoreErrorKind::Unavailable) if the system has no memory or no
    /// thread left.
    pub fn in_memory() -> Result<Self, StoreError> {
        start(connect_in_memory()?, Arc::new(SystemClock))
    }
}

impl SqliteStoreBuilder {
    /// Sets when the disk must have an operation. Default: [`Synchronous::Full`].
    #[must_use]
    pub fn synchronous(mut self, synchronous: Synchronous) -> Self {
        self.synchronous = synchronous;
        self
    }

    /// Sets how long an operation waits for another process that writes to the file. Default: 5 s.
    ///
    /// An operation that waited longer is
    /// [`Unavailable`](crate::inbox::StoreErrorKind::Unavailable). The service waits 10 s for a response
    /// (interface section 6.5).
    #[must_use]
    pub fn busy_timeout(mut self, timeout: Duration) -> Self {
        self.busy_timeout = timeout;
        self
    }

    /// Sets the clock that leases and retention follow. Default: the system's clock.
    ///
    /// All processes that share a file need the same time, so it must not be a clock that counts from the
    /// start of the process. Any closure that returns a [`SystemTime`](std::time::SystemTime) is a clock.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Opens the store.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`SqliteStore::open`].
    pub fn open(self) -> Result<SqliteStore, StoreError> {
        let connection = connect(&self.path, self.synchronous, self.busy_timeout)?;
        start(connection, self.clock)
    }
}

fn start(connection: Connection, clock: Arc<dyn Clock>) -> Result<SqliteStore, StoreError> {
    create_tables(&connection)?;
    Ok(SqliteStore {
        writer: Writer::start(connection, Arc::clone(&clock))?,
        clock,
    })
}

impl fmt::Debug for SqliteStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStoreBuilder")
            .field("path", &self.path)
            .field("synchronous", &self.synchronous)
            .field("busy_timeout", &self.busy_timeout)
            .finish_non_exhaustive()
    }
}
