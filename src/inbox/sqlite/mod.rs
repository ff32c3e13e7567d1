//! A store in a SQLite file.

mod disk;
mod done;
mod entries;
mod file;
mod session;
#[cfg(feature = "inbox-sqlx-sqlite")]
mod sqlx_store;
mod writer;

pub use rusqlite;
#[cfg(feature = "inbox-sqlx-sqlite")]
pub use sqlx_store::SqlxSqliteStore;

use std::error::Error;
use std::fmt;
use std::future::{Ready, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, Params, Transaction, TransactionBehavior, ffi};
use tokio::time::Instant;

use self::disk::{Disk, give_up_reserve};
use self::done::{Filters, Hash};
use self::entries::{Entries, Shared};
use self::file::{
    SCHEMA, begin, connect, connect_in_memory, create_tables, is_out_of_room, require_tables,
    store_error,
};
use self::session::{Session, to_past_ms};
use self::writer::{Purpose, Writer};
use crate::causes::causes;
use crate::inbox::error::{Failure, InboxError, StoreError};
use crate::inbox::handler_in::{EventHandler, apply_in_time, effects_of};
use crate::inbox::receipt::{Receipt, is_new, state_of_outcome};
use crate::inbox::store::{
    AcceptState, Backlog, ClaimState, EventKey, Fingerprint, HeldClaim, NewClaim, NewDelivery,
    ParkedEvent, Release, Store, Take, TakenEvent, Token,
};
use crate::inbox::{
    Attempt, ClaimTarget, DEFAULT_RETENTION, FailureLog, Inbox, PurgeTimer, Settings, purge_all,
    report_conflict, report_receipt, report_rollback,
};
use crate::webhooks::{Clock, Event, EventId, SystemClock, VerifiedEvent};

/// A store in a SQLite file, for the receivers of one machine. Clones share one connection.
///
/// SQLite is compiled in; nothing has to be installed. A thread of the store's own writes to the file. It
/// commits all operations that wait in one transaction, so that many receivers wait for one write to the
/// disk. It ends when the last clone is dropped.
///
/// A done event is remembered as a hash of about 50 bytes in the file and 2 bytes in memory, so a million events take
/// some 55 MB and 2 MB. It no longer counts when its time is over, but stays in the file for up to 6 hours more, or a
/// twelfth of that time if that is longer, until it is deleted with others.
///
/// # Crashes and full disks
///
/// | failure | with [`Full`](Synchronous::Full), the default | with [`Normal`](Synchronous::Normal) |
/// |---|---|---|
/// | the program crashes or is killed | every acknowledged event | every acknowledged event |
/// | power cut, crash of the operating system | every acknowledged event | the file, without the newest operations |
/// | the disk is full | everything; new events are refused as [`Full`](crate::inbox::StoreErrorKind::Full), and those that wait are handled | the same |
/// | the disk is lost | nothing: back the file up with its log, by SQLite's `.backup` or `VACUUM INTO` | the same |
///
/// An event that was accepted and then forgotten by a power cut is not delivered again, so leave the default
/// unless you only use [`handle`](crate::inbox::Inbox::handle).
///
/// A file of 8 MiB beside the database, with `-reserve` after its name, makes it possible to take and complete events
/// on a full disk. The store deletes it when there is no other room, and then refuses new events until there is room to
/// write it again. While another connection stays in a transaction, the log grows, and events are only handled until it
/// is as large as the reserve was. A quota that is reached counts as a full disk. SQLite has no name for it, so until the
/// reserve is deleted, new events are refused as [`Unavailable`](crate::inbox::StoreErrorKind::Unavailable).
///
/// The store notices within a tenth of a second if its file, the log (`-wal`) or the shared memory (`-shm`) is deleted
/// or replaced while it is open. Each operation is then [`Unusable`](crate::inbox::StoreErrorKind::Unusable). Windows
/// does not let other programs delete or replace them.
///
/// # Several processes
///
/// Any number of processes of one machine may open the same file. Only one writes at a time; the others wait
/// for up to the [busy timeout](SqliteStoreBuilder::busy_timeout). Leases follow the system's clock: if
/// it jumps forward, leases end early, and if it jumps back, they end late. **A network file system will
/// corrupt the file.** For several machines, use a Postgres or a Redis store.
///
/// # Personal data
///
/// An accepted body holds addresses and subjects. It is deleted and overwritten when its event is done, and
/// kept while the event waits or is parked. Copies of it stay in the write-ahead log next to the file, of about
/// 4 MiB, until the log is used again. Nothing is encrypted. On Unix, a new file has mode 0600, and an existing one
/// keeps its mode.
///
/// # Exactly once
///
/// If your own tables are in the same file, an event and its effect can commit together. See
/// [`handle_in`](Self::handle_in), [`handler_in`](Self::handler_in), [`transaction`](Self::transaction) and
/// [`claim_in`](Self::claim_in). For a pool of sqlx, there is `SqlxSqliteStore` (feature `inbox-sqlx-sqlite`), and for
/// every other driver, [`CLAIM_IN`](Self::CLAIM_IN). These methods name types of rusqlite, which is exported as
/// `audience::inbox::rusqlite`. Any release from 0.32 to 0.43 fits. A program can link only one of them, so Cargo picks
/// the one that the rest of the program needs: 0.32 beside sqlx 0.8, 0.39 beside sqlx 0.9, the newest if nothing else
/// links SQLite.
///
/// # Example: an inbox that outlives its process
///
/// ```
/// use audience::inbox::{Claim, Inbox, SqliteStore};
/// use audience::webhooks::EventId;
///
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// # let folder = std::env::temp_dir().join(format!("audience-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = folder.join("inbox.db");
/// let id = EventId::try_from("evt_1")?;
/// let inbox = Inbox::builder(SqliteStore::open(&path)?).build()?;
/// if let Claim::Fresh(lease) = inbox.claim(&id).await? {
///     lease.complete().await?;
/// }
/// drop(inbox);
///
/// let inbox = Inbox::builder(SqliteStore::open(&path)?).build()?;
/// assert!(matches!(inbox.claim(&id).await?, Claim::Done));
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SqliteStore {
    writer: Writer,
    shared: Arc<Shared>,
    /// How long a claim in a transaction is remembered. `handler_in` takes it from the inbox.
    retention: Duration,
}

impl SqliteStore {
    /// The statements that create the tables. They may run any number of times.
    ///
    /// [`open`](Self::open) runs them. If a migration tool such as sqlx or diesel creates all tables of your program,
    /// copy the file `migrations/sqlite/0001_audience_inbox.sql` of this package into the folder of your migrations,
    /// under a number of yours. It is this text:
    ///
    /// ```sql
    #[doc = include_str!("../../../migrations/sqlite/0001_audience_inbox.sql")]
    /// ```
    pub const SCHEMA: &'static str = SCHEMA;

    /// The SQL that [`claim_in`](Self::claim_in) runs, for a transaction of another driver.
    ///
    /// | parameter | type | value |
    /// |---|---|---|
    /// | `?1` | `TEXT` | the endpoint, such as `bounces`. No inbox may have this name |
    /// | `?2` | `TEXT` | the id of the event |
    /// | `?3` | `BLOB` | the 16 bytes of the [`Fingerprint`] of the body, or `NULL` |
    /// | `?4` | `INTEGER` | how long the event is remembered, in seconds: usually 259200, and at least 21600 |
    /// | `?5` | `BLOB` | the 16 bytes of [`event_hash`](Self::event_hash): SQLite has no function for them |
    /// | `?6` | `INTEGER` | the time in milliseconds since 1970, or `NULL` for the system's |
    ///
    /// It returns one row with the column `outcome` of type `TEXT`:
    ///
    /// | outcome | meaning |
    /// |---|---|
    /// | `claimed` | The event is yours: apply its effects, and commit. |
    /// | `done`, `parked` | It was handled or given up before. Respond with a success. |
    /// | `in_progress` | It is claimed, or waits for its next attempt. Roll back, and respond with 503. |
    /// | `conflict` | The event was handled or stored, or is being handled, with another body. |
    ///
    /// Only a commit after `claimed` makes the event done. Begin the transaction with `BEGIN IMMEDIATE`, or run the
    /// statement before you read anything else. It needs SQLite 3.37 or later.
    ///
    /// Forgotten ids are deleted only by a store. If your program has no other use for one, open one all the same, and
    /// call [`Inbox::purge`](crate::inbox::Inbox::purge) in a daily job.
    ///
    /// # Example: the connection of another driver
    ///
    /// ```
    /// use audience::inbox::SqliteStore;
    /// use audience::webhooks::EventId;
    /// // In place of diesel or another driver.
    /// use audience::inbox::rusqlite::{Connection, Result, params};
    ///
    /// /// Returns the status to respond with.
    /// fn mark_bounce(connection: &Connection, id: &EventId, address: &str) -> Result<u16> {
    ///     let hash = SqliteStore::event_hash("bounces", id);
    ///     connection.execute_batch("BEGIN IMMEDIATE")?;
    ///     let parameters = params!["bounces", id.as_str(), None::<&[u8]>, 259_200, hash, None::<i64>];
    ///     let outcome: String = connection.query_row(SqliteStore::CLAIM_IN, parameters, |row| row.get(0))?;
    ///     let status = match outcome.as_str() {
    ///         "claimed" => {
    ///             connection.execute("UPDATE people SET bounces = bounces + 1 WHERE email = ?1", [address])?;
    ///             200
    ///         }
    ///         "done" | "parked" => 200,
    ///         _ => 503,
    ///     };
    ///     connection.execute_batch("COMMIT")?; // and "ROLLBACK" after an error
    ///     Ok(status)
    /// }
    ///
    /// # let connection = Connection::open_in_memory()?;
    /// connection.execute_batch(SqliteStore::SCHEMA)?;
    /// connection.execute_batch("CREATE TABLE people AS SELECT 'ada@example.com' AS email, 0 AS bounces")?;
    /// let id = EventId::try_from("evt_1")?;
    ///
    /// assert_eq!(mark_bounce(&connection, &id, "ada@example.com")?, 200);
    /// assert_eq!(mark_bounce(&connection, &id, "ada@example.com")?, 200); // delivered again
    ///
    /// let bounces: i64 = connection.query_row("SELECT bounces FROM people", (), |row| row.get(0))?;
    /// assert_eq!(bounces, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const CLAIM_IN: &'static str = CLAIM_IN;

    /// Returns the hash that names an event in [`CLAIM_IN`](Self::CLAIM_IN) and in the table of events that are done.
    ///
    /// It is the first 16 bytes of the SHA-256 of the endpoint, a zero byte, and the id. In Python:
    /// `hashlib.sha256(f"{endpoint}\0{id}".encode()).digest()[:16]`.
    ///
    /// # Example: the bytes of an event
    ///
    /// ```
    /// use audience::inbox::SqliteStore;
    /// use audience::webhooks::EventId;
    ///
    /// let hash = SqliteStore::event_hash("main", &EventId::try_from("evt_1")?);
    ///
    /// assert_eq!(hash[..4], [0x9c, 0x0f, 0xd6, 0xc2]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn event_hash(endpoint: &str, id: &EventId) -> [u8; 16] {
        Hash::of(endpoint, id.as_str()).0
    }
}

const CLAIM_IN: &str = include_str!("claim_in.sql");

/// The name of an entry that another thread reads.
struct OwnedKey {
    endpoint: Box<str>,
    id: EventId,
}

impl OwnedKey {
    fn new(key: EventKey<'_>) -> Self {
        Self {
            endpoint: key.endpoint.into(),
            id: key.id.clone(),
        }
    }

    fn key(&self) -> EventKey<'_> {
        EventKey {
            endpoint: &self.endpoint,
            id: &self.id,
        }
    }

    fn held(&self, token: Token) -> HeldClaim<'_> {
        HeldClaim {
            key: self.key(),
            token,
        }
    }
}

impl Store for SqliteStore {
    async fn claim(&self, claim: NewClaim<'_>) -> Result<ClaimState, StoreError> {
        let owned = OwnedKey::new(claim.key);
        let NewClaim {
            key: _,
            token,
            lease,
            retention,
            fingerprint,
        } = claim;
        let claim = move |entries: &Entries<'_, '_>| {
            entries.claim(&NewClaim {
                key: owned.key(),
                token,
                lease,
                retention,
                fingerprint,
            })
        };
        // It is not run if the caller has gone: its claim would keep the event from others until the lease ends.
        self.writer.run(Purpose::Add, claim).await
    }

    async fn extend(&self, held: HeldClaim<'_>, lease: Duration) -> Result<bool, StoreError> {
        let (owned, token) = (OwnedKey::new(held.key), held.token);
        self.writer
            .run(Purpose::Always, move |entries| {
                entries.extend(owned.held(token), lease)
            })
            .await
    }

    async fn complete(&self, held: HeldClaim<'_>, retention: Duration) -> Result<bool, StoreError> {
        let (owned, token) = (OwnedKey::new(held.key), held.token);
        // It is run even if the caller has gone: the effect of the event has happened.
        self.writer
            .run(Purpose::Always, move |entries| {
                entries.complete(owned.held(token), retention)
            })
            .await
    }

    async fn release(&self, held: HeldClaim<'_>, release: Release<'_>) -> Result<bool, StoreError> {
        let (owned, token) = (OwnedKey::new(held.key), held.token);
        let Release {
            delay, retention, ..
        } = release;
        self.writer
            .run(Purpose::Always, move |entries| {
                entries.release(owned.held(token), delay, retention)
            })
            .await
    }

    async fn park(&self, held: HeldClaim<'_>, reason: &str) -> Result<bool, StoreError> {
        let (owned, token) = (OwnedKey::new(held.key), held.token);
        let reason = reason.to_owned();
        self.writer
            .run_long(Purpose::Always, reason.len(), move |entries| {
                entries.park(owned.held(token), &reason)
            })
            .await
    }

    async fn accept(&self, delivery: NewDelivery<'_>) -> Result<AcceptState, StoreError> {
        let owned = OwnedKey::new(delivery.key);
        let body: Box<[u8]> = delivery.body.into();
        let (length, fingerprint) = (body.len(), delivery.fingerprint);
        let accept = move |entries: &Entries<'_, '_>| {
            entries.accept(&NewDelivery {
                key: owned.key(),
                body: &body,
                fingerprint,
            })
        };
        // The event is not stored if the caller has gone: the service got no response, and delivers it again.
        self.writer.run_long(Purpose::Add, length, accept).await
    }

    async fn take(&self, take: Take<'_>) -> Result<Vec<TakenEvent>, StoreError> {
        let endpoint: Box<str> = take.endpoint.into();
        let Take {
            token,
            lease,
            limit,
            ..
        } = take;
        let take = move |entries: &Entries<'_, '_>| {
            entries.take(&Take {
                endpoint: &endpoint,
                token,
                lease,
                limit,
            })
        };
        // No events are taken if the worker has gone: they would wait for the end of their leases.
        self.writer.run(Purpose::Caller, take).await
    }

    async fn parked(
        &self,
        endpoint: &str,
        after: Option<&EventId>,
        limit: usize,
    ) -> Result<Vec<ParkedEvent>, StoreError> {
        let (endpoint, after): (Box<str>, _) = (endpoint.into(), after.cloned());
        self.writer
            .run(Purpose::Caller, move |entries| {
                entries.parked(&endpoint, after.as_ref(), limit)
            })
            .await
    }

    async fn replay(&self, key: EventKey<'_>) -> Result<bool, StoreError> {
        let owned = OwnedKey::new(key);
        self.writer
            .run(Purpose::Always, move |entries| entries.replay(owned.key()))
            .await
    }

    async fn discard(&self, key: EventKey<'_>, retention: Duration) -> Result<bool, StoreError> {
        let owned = OwnedKey::new(key);
        self.writer
            .run(Purpose::Always, move |entries| {
                entries.discard(owned.key(), retention)
            })
            .await
    }

    async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
        self.writer
            .run(Purpose::Caller, move |entries| entries.purge(limit))
            .await
    }

    async fn state(
        &self,
        key: EventKey<'_>,
        fingerprint: Option<Fingerprint>,
    ) -> Result<ClaimState, StoreError> {
        let owned = OwnedKey::new(key);
        self.writer
            .run(Purpose::Caller, move |entries| {
                entries.state(owned.key(), fingerprint)
            })
            .await
    }

    async fn backlog(&self, endpoint: &str) -> Result<Backlog, StoreError> {
        let endpoint: Box<str> = endpoint.into();
        self.writer
            .run(Purpose::Caller, move |entries| entries.backlog(&endpoint))
            .await
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").finish_non_exhaustive()
    }
}

/// Builds a [`SqliteStore`] in a file.
#[derive(Clone)]
#[must_use = "a builder does nothing until it is opened"]
pub struct SqliteStoreBuilder {
    synchronous: Synchronous,
    busy_timeout: Duration,
    must_exist: bool,
    clock: Arc<dyn Clock>,
}

impl SqliteStore {
    /// Opens a store in this file. Creates the file and the tables if they are absent, and converts tables of an older
    /// version of this crate.
    ///
    /// A new file can be read by its owner only (mode 0600 on Unix), because bodies hold personal data. The
    /// file may be the database of your application. It is then switched to a write-ahead log (WAL), and its
    /// other tables are left alone.
    ///
    /// This reads and writes the file, so it blocks for some milliseconds.
    ///
    /// # Errors
    ///
    /// - [`Unusable`](crate::inbox::StoreErrorKind::Unusable): the folder does not exist, the path is not
    ///   a regular file, the file is not a database or cannot be written, or a newer version of this crate created the
    ///   tables.
    /// - [`Unavailable`](crate::inbox::StoreErrorKind::Unavailable): another process locks the file for longer
    ///   than the [busy timeout](SqliteStoreBuilder::busy_timeout).
    /// - [`Full`](crate::inbox::StoreErrorKind::Full): the disk is full.
    ///
    /// # Example: two processes with one file
    ///
    /// ```
    /// use audience::inbox::{Claim, Inbox, SqliteStore};
    /// # use audience::webhooks::EventId;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = std::env::temp_dir().join(format!("audience-open-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder)?;
    /// # let path = folder.join("inbox.db");
    /// # let id = EventId::try_from("evt_1")?;
    /// let one = Inbox::builder(SqliteStore::open(&path)?).build()?;
    /// let other = Inbox::builder(SqliteStore::open(&path)?).build()?;
    ///
    /// let Claim::Fresh(lease) = one.claim(&id).await? else { panic!("it is new") };
    /// assert!(matches!(other.claim(&id).await?, Claim::InProgress { .. }));
    /// lease.complete().await?;
    /// # std::fs::remove_dir_all(&folder)?;
    /// # Ok(()) }
    /// ```
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::builder().open(path)
    }

    /// Starts building a store in a file.
    ///
    /// # Example: a file in a folder of its own
    ///
    /// ```
    /// use std::time::Duration;
    /// use audience::inbox::{Inbox, SqliteStore};
    ///
    /// # let folder = std::env::temp_dir().join(format!("audience-builder-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder)?;
    /// let store = SqliteStore::builder()
    ///     .busy_timeout(Duration::from_secs(2))
    ///     .open(folder.join("inbox.db"))?;
    /// let inbox = Inbox::builder(store).build()?;
    /// # drop(inbox);
    /// # std::fs::remove_dir_all(&folder)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder() -> SqliteStoreBuilder {
        SqliteStoreBuilder {
            synchronous: Synchronous::default(),
            busy_timeout: Duration::from_secs(5),
            must_exist: false,
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
    ///
    /// # Example: test the SQL of a handler
    ///
    /// ```
    /// use audience::inbox::SqliteStore;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = SqliteStore::in_memory()?;
    /// store.transaction(|transaction| transaction.execute_batch("CREATE TABLE counter AS SELECT 0 AS opens")).await?;
    ///
    /// let opens: i64 = store
    ///     .transaction(|transaction| {
    ///         transaction.execute("UPDATE counter SET opens = opens + 1", ())?;
    ///         transaction.query_row("SELECT opens FROM counter", (), |row| row.get(0))
    ///     })
    ///     .await?;
    ///
    /// assert_eq!(opens, 1);
    /// # Ok(()) }
    /// ```
    pub fn in_memory() -> Result<Self, StoreError> {
        Self::builder().in_memory()
    }
}

impl SqliteStoreBuilder {
    /// Sets when operations are synced to disk. Default: [`Synchronous::Full`].
    ///
    /// # Example: faster, for an inbox that only handles
    ///
    /// ```
    /// use audience::inbox::{Inbox, Receipt, SqliteStore, Synchronous};
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    /// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?.sign(&EventType::Sent, std::time::SystemTime::now(), body);
    /// # let delivery = Verifier::new("6Jm0nFq2pXvZk4Tt")?.verify_event(&headers, body.to_vec())?;
    /// # let folder = std::env::temp_dir().join(format!("audience-synchronous-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder)?;
    /// # let path = folder.join("inbox.db");
    /// let store = SqliteStore::builder().synchronous(Synchronous::Normal).open(&path)?;
    /// let inbox = Inbox::builder(store).build()?;
    ///
    /// // If a power cut loses the completion, the service has its 200 and does not deliver the event again.
    /// let receipt = inbox.handle(delivery, |_, _| async { Ok::<_, std::io::Error>(()) }).await;
    ///
    /// assert_eq!(receipt, Receipt::Handled);
    /// # std::fs::remove_dir_all(&folder)?;
    /// # Ok(()) }
    /// ```
    pub fn synchronous(mut self, synchronous: Synchronous) -> Self {
        self.synchronous = synchronous;
        self
    }

    /// Sets how long an operation waits for another process that writes to the file. Default: 5 s.
    ///
    /// An operation that would wait longer fails with
    /// [`Unavailable`](crate::inbox::StoreErrorKind::Unavailable). The service waits 10 s for a response
    /// ([interface section 6.5](crate::interface#6.5)).
    ///
    /// # Example: a transaction that stays open
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use audience::inbox::{Inbox, InboxError, SqliteStore, StoreErrorKind, rusqlite::Connection};
    /// # use audience::webhooks::EventId;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = std::env::temp_dir().join(format!("audience-busy-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder)?;
    /// # let path = folder.join("inbox.db");
    /// # let id = EventId::try_from("evt_1")?;
    /// let store = SqliteStore::builder().busy_timeout(Duration::from_millis(1)).open(&path)?;
    /// let inbox = Inbox::builder(store).build()?;
    /// let other = Connection::open(&path)?;
    /// other.execute_batch("BEGIN IMMEDIATE")?;
    ///
    /// let Err(InboxError::Store(error)) = inbox.claim(&id).await else { panic!("the file is locked") };
    ///
    /// assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    /// # drop(other);
    /// # std::fs::remove_dir_all(&folder)?;
    /// # Ok(()) }
    /// ```
    pub fn busy_timeout(mut self, timeout: Duration) -> Self {
        self.busy_timeout = timeout;
        self
    }

    /// Requires that another program has created the store: a wrong path is an error, and not a new and empty store.
    /// Default: what is absent is created.
    ///
    /// A job that sends an issue of an `UnsubscribeService` needs this: an empty store knows neither who got the issue
    /// before nor which opt-outs wait.
    ///
    /// # Example: a job beside a web server
    ///
    /// ```
    /// use audience::inbox::{SqliteStore, StoreErrorKind};
    ///
    /// # let folder = std::env::temp_dir().join(format!("audience-exist-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder)?;
    /// let path = folder.join("shop.db");
    /// let store = || SqliteStore::builder().must_exist().open(&path);
    ///
    /// assert_eq!(store().unwrap_err().kind(), StoreErrorKind::Unusable);
    /// let server = SqliteStore::open(&path)?;
    /// assert!(store().is_ok());
    /// # drop(server);
    /// # std::fs::remove_dir_all(&folder)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn must_exist(mut self) -> Self {
        self.must_exist = true;
        self
    }

    /// Sets the clock that leases and retention follow. Default: the system's clock.
    ///
    /// All processes that share a file need the same time, so it must not be a clock that counts from the
    /// start of the process. Any closure that returns a [`SystemTime`](std::time::SystemTime) is a clock.
    ///
    /// # Example: the mock's time
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use audience::inbox::{Claim, Inbox, SqliteStore};
    /// use audience::mock::MockServer;
    /// # use audience::webhooks::EventId;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let id = EventId::try_from("evt_1")?;
    /// let server = MockServer::start().await;
    /// let store = SqliteStore::builder().clock(server.clock()).in_memory()?;
    /// let inbox = Inbox::builder(store).build()?;
    /// if let Claim::Fresh(lease) = inbox.claim(&id).await? {
    ///     lease.complete().await?;
    /// }
    ///
    /// server.advance(Duration::from_secs(73 * 3_600)).await;
    ///
    /// assert!(matches!(inbox.claim(&id).await?, Claim::Fresh(_))); // it was forgotten
    /// # Ok(()) }
    /// ```
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Opens a store in this file. Creates the file and the tables if they are absent.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`SqliteStore::open`].
    ///
    /// # Example: a folder that does not exist
    ///
    /// ```
    /// use audience::inbox::{SqliteStore, StoreErrorKind};
    ///
    /// let error = SqliteStore::builder().open("/no/such/folder/inbox.db").unwrap_err();
    ///
    /// assert_eq!(error.kind(), StoreErrorKind::Unusable);
    /// ```
    pub fn open(self, path: impl AsRef<Path>) -> Result<SqliteStore, StoreError> {
        let path = path.as_ref();
        match self.open_file(path) {
            // Even reading takes some room.
            Err(error) if is_full(&error) && give_up_reserve(path) => self.open_file(path),
            opened => opened,
        }
    }

    /// Opens a store without a file, for tests: see [`SqliteStore::in_memory`]. Of the settings, only the
    /// [clock](Self::clock) counts.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`SqliteStore::in_memory`].
    pub fn in_memory(self) -> Result<SqliteStore, StoreError> {
        start(connect_in_memory()?, None, Duration::ZERO, self.clock)
    }

    fn open_file(&self, path: &Path) -> Result<SqliteStore, StoreError> {
        if self.must_exist {
            require_tables(path, self.busy_timeout)?;
        }
        let (connection, path) = connect(path, self.synchronous, self.busy_timeout)?;
        let clock = Arc::clone(&self.clock);
        start(connection, Some(&path), self.busy_timeout, clock)
    }
}

/// Starts a store on a connection to this file.
fn start(
    connection: Connection,
    file: Option<&Path>,
    busy_timeout: Duration,
    clock: Arc<dyn Clock>,
) -> Result<SqliteStore, StoreError> {
    create_tables(&connection, busy_timeout, &*clock)?;
    // Before this, some of the files do not exist.
    let disk = file
        .map(Disk::new)
        .transpose()
        .map_err(StoreError::unusable)?;
    let shared = Arc::new(Shared {
        clock,
        busy_timeout,
        purge_timer: PurgeTimer::due(),
        failures: FailureLog::default(),
        filters: Filters::default(),
        disk,
    });
    if shared.should_reserve() {
        shared.reserve(&Session::new(&connection));
    }
    Ok(SqliteStore {
        writer: Writer::start(connection, Arc::clone(&shared))?,
        shared,
        retention: DEFAULT_RETENTION,
    })
}

impl fmt::Debug for SqliteStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStoreBuilder")
            .field("synchronous", &self.synchronous)
            .field("busy_timeout", &self.busy_timeout)
            .field("must_exist", &self.must_exist)
            .finish_non_exhaustive()
    }
}

/// When operations are synced to disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Synchronous {
    /// Before the operation returns. An event that was accepted survives a power cut.
    #[default]
    Full,
    /// Some time later. A crash of the program loses nothing; a power cut or a crash of the operating
    /// system loses the operations since the last checkpoint. The file stays intact. Many times faster.
    Normal,
}

impl Synchronous {
    fn name(self) -> &'static str {
        match self {
            Self::Full => "FULL",
            Self::Normal => "NORMAL",
        }
    }
}

/// The error of [`SqliteStore::transaction`], which then had no effect.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransactionError {
    /// The closure returned this error or panicked, and its changes were undone.
    #[error("the transaction was rolled back")]
    RolledBack(#[source] Box<dyn Error + Send + Sync>),
    /// The transaction could not begin or could not be committed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl SqliteStore {
    /// Claims an event as part of your transaction, and marks it as done. Returns `true` if the event is new.
    ///
    /// Write the effect of a new event in the same transaction: both are committed, or neither. The id is
    /// remembered for 72 hours. `false` means that the event was handled before or is parked.
    ///
    /// Use a transaction of your own connection to the store's file. Begin it with
    /// [`TransactionBehavior::Immediate`], or claim before you read anything else: in SQLite, a transaction that has
    /// read fails to write if another one committed since. Your connection's `PRAGMA synchronous` decides whether
    /// the commit survives a power cut; SQLite's default, `FULL`, does.
    ///
    /// [`handle_in`](Self::handle_in) does this on the store's own connection, and [`handler_in`](Self::handler_in)
    /// does the same for a worker.
    ///
    /// The future completes immediately: `.await` it, or use `into_inner()` in code without a runtime.
    ///
    /// # Errors
    ///
    /// Roll the transaction back after an error.
    ///
    /// - [`InboxError::InProgress`]: the event is claimed, or waits for its next attempt. Respond with 503.
    /// - [`InboxError::Conflict`]: the event was handled or stored, or is being handled, with another body. This is
    ///   noticed if you claim with a [`VerifiedEvent`](crate::webhooks::VerifiedEvent).
    /// - [`InboxError::Store`]: SQLite failed, the connection has no transaction, or its database does not have
    ///   the [tables](Self::SCHEMA).
    ///
    /// # Example: count each event once, without a runtime
    ///
    /// ```
    /// use audience::inbox::SqliteStore;
    /// use audience::inbox::rusqlite::{Connection, TransactionBehavior};
    /// use audience::webhooks::EventId;
    ///
    /// # let folder = std::env::temp_dir().join(format!("audience-claim-in-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder)?;
    /// # let path = folder.join("shop.db");
    /// let store = SqliteStore::open(&path)?;
    /// let mut connection = Connection::open(&path)?;
    /// connection.execute_batch("CREATE TABLE counter AS SELECT 0 AS events")?;
    /// let id = EventId::try_from("evt_1")?;
    ///
    /// for delivery in 1..=3 {
    ///     let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    ///     if store.claim_in(&transaction, "counter", &id).into_inner()? {
    ///         transaction.execute("UPDATE counter SET events = events + 1", ())?;
    ///     }
    ///     transaction.commit()?;
    /// }
    ///
    /// let events: i64 = connection.query_row("SELECT events FROM counter", (), |row| row.get(0))?;
    /// assert_eq!(events, 1);
    /// # std::fs::remove_dir_all(&folder)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn claim_in<'a>(
        &self,
        transaction: &Connection,
        endpoint: &str,
        event: impl Into<ClaimTarget<'a>>,
    ) -> Ready<Result<bool, InboxError>> {
        let state = self.claim_done(transaction, endpoint, event.into(), Purpose::Add);
        ready(state.map_err(InboxError::from).and_then(is_new))
    }

    /// Runs a closure in a transaction of the store's own connection, in its thread.
    ///
    /// The transaction is committed if the closure returns `Ok`, and undone if it returns an error or panics.
    /// The other operations of the store wait meanwhile, so the closure should be short: SQL, and nothing that
    /// waits. It must not end the transaction itself. It is not run if the future is dropped before its turn.
    ///
    /// # Errors
    ///
    /// - [`TransactionError::RolledBack`]: the closure failed. The source is the closure's error.
    /// - [`TransactionError::Store`]: SQLite failed to begin or to commit, and nothing was written.
    ///
    /// # Example: a table of your own, next to the inbox
    ///
    /// ```
    /// use audience::inbox::SqliteStore;
    ///
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// let store = SqliteStore::in_memory()?;
    ///
    /// let written = store
    ///     .transaction(|transaction| {
    ///         transaction.execute_batch("CREATE TABLE suppressed (address TEXT PRIMARY KEY) STRICT")?;
    ///         transaction.execute("INSERT INTO suppressed VALUES (?1)", ["ada@example.com"])
    ///     })
    ///     .await?;
    ///
    /// assert_eq!(written, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn transaction<T, E>(
        &self,
        work: impl FnOnce(&mut Transaction<'_>) -> Result<T, E> + Send + 'static,
    ) -> Result<T, TransactionError>
    where
        T: Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let work = move |transaction: &mut Transaction<'_>| {
            work(transaction).map_err(|error| TransactionError::RolledBack(error.into()))
        };
        self.run_transaction(work, None).await
    }

    fn receipt_of(&self, endpoint: &str, id: &EventId, error: &TransactionError) -> Receipt {
        match error {
            TransactionError::RolledBack(error) => {
                report_rollback(endpoint, id, &Failure::of_error(error.as_ref()));
                Receipt::Failed
            }
            TransactionError::Store(error) => {
                self.shared
                    .failures
                    .report(Some(endpoint), "handle_in", error);
                Receipt::of_store_error(error)
            }
        }
    }

    /// Runs a transaction. If the disk is full, `again` is run with the room of the reserve.
    async fn run_transaction<T: Send + 'static, W>(
        &self,
        work: W,
        again: Option<W>,
    ) -> Result<T, TransactionError>
    where
        W: FnOnce(&mut Transaction<'_>) -> Result<T, TransactionError> + Send + 'static,
    {
        let shared = Arc::clone(&self.shared);
        let run = move |connection: &Connection| {
            shared.check_files().map_err(store_error)?;
            let attempt = |work| {
                // A panic drops the transaction, which rolls it back.
                catch_unwind(AssertUnwindSafe(|| {
                    transact(connection, shared.busy_timeout, work)
                }))
                .unwrap_or_else(|panic| Err(panicked(&*panic)))
            };
            match (attempt(work), again) {
                (Err(error), Some(again)) if is_full(&error) => {
                    // Nothing else runs on the connection meanwhile, so the room is not used for another reserve.
                    shared.give_up_reserve(&Session::new(connection));
                    attempt(again)
                }
                (result, _) => result,
            }
        };
        self.writer.run_exclusive(run).await?
    }

    /// Makes room on a full disk for an event that is stored already.
    #[cfg(feature = "inbox-sqlx-sqlite")]
    async fn give_up_reserve(&self) -> Result<(), StoreError> {
        let shared = Arc::clone(&self.shared);
        let give_up =
            move |connection: &Connection| shared.give_up_reserve(&Session::new(connection));
        self.writer.run_exclusive(give_up).await
    }

    /// Fails if the files of the database are no longer those that were opened.
    fn check_files(&self) -> Result<(), StoreError> {
        self.shared.check_files().map_err(store_error)
    }

    fn claim_done(
        &self,
        transaction: &Connection,
        endpoint: &str,
        event: ClaimTarget<'_>,
        purpose: Purpose,
    ) -> Result<ClaimState, StoreError> {
        if transaction.is_autocommit() {
            return Err(StoreError::unusable(
                "the connection has no transaction: begin one, and claim in it",
            ));
        }
        self.check_files()?;
        let call = ClaimIn::new(endpoint, event, self);
        let outcome: String = transaction
            .prepare_cached(CLAIM_IN)
            .and_then(|mut statement| statement.query_row(call.parameters(), |row| row.get(0)))
            .map_err(store_error)?;
        self.claimed(&outcome, purpose)
    }

    /// Reads what [`CLAIM_IN`] returned, and now and then deletes forgotten events: a receiver that only claims in
    /// transactions has no inbox that does.
    fn claimed(&self, outcome: &str, purpose: Purpose) -> Result<ClaimState, StoreError> {
        let state = state_of_outcome(outcome);
        if let (ClaimState::Fresh { .. }, Purpose::Add) = (state, purpose) {
            // The caller rolls back.
            self.shared.refuse_if_full().map_err(store_error)?;
        }
        self.purge_if_due();
        Ok(state)
    }

    fn purge_if_due(&self) {
        if !self.shared.purge_timer.is_due() {
            return;
        }
        let store = self.clone();
        // This is a thread and not a task, because the caller may have no runtime.
        let purge = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            let purged = match runtime {
                Ok(runtime) => runtime.block_on(purge_all(&store)).map(drop),
                Err(error) => Err(StoreError::unavailable(error)),
            };
            if let Err(error) = purged {
                store.shared.failures.report(None, "purge", &error);
            }
        };
        // If there is no thread, a later claim purges.
        std::thread::Builder::new().spawn(purge).ok();
    }
}

/// The values of a call of [`CLAIM_IN`].
struct ClaimIn<'a> {
    endpoint: &'a str,
    id: &'a str,
    fingerprint: Option<Fingerprint>,
    /// In seconds.
    retention: i64,
    hash: Hash,
    now: i64,
}

impl<'a> ClaimIn<'a> {
    fn new(endpoint: &'a str, event: ClaimTarget<'a>, store: &SqliteStore) -> Self {
        Self {
            endpoint,
            id: event.id.as_str(),
            fingerprint: event.fingerprint,
            retention: store
                .retention
                .min(LONGEST_RETENTION)
                .as_secs()
                .cast_signed(),
            hash: Hash::of(endpoint, event.id.as_str()),
            now: to_past_ms(store.shared.clock.now()),
        }
    }

    fn parameters(&self) -> impl Params {
        (
            self.endpoint,
            self.id,
            self.fingerprint.as_ref().map(Fingerprint::as_bytes),
            self.retention,
            self.hash.0,
            self.now,
        )
    }
}

/// A longer time is cut to this one, so that no time of [`CLAIM_IN`] overflows.
const LONGEST_RETENTION: Duration = Duration::from_secs(100 * 365 * 86_400);

fn transact<T>(
    connection: &Connection,
    busy_timeout: Duration,
    work: impl FnOnce(&mut Transaction<'_>) -> Result<T, TransactionError>,
) -> Result<T, TransactionError> {
    // The compiler does not check that no other transaction is open. None is, because the thread runs one closure at a
    // time.
    let transaction = begin(connection, busy_timeout, || {
        Transaction::new_unchecked(connection, TransactionBehavior::Immediate)
    });
    let mut transaction = transaction.map_err(store_error)?;
    let value = work(&mut transaction)?;
    transaction.commit().map_err(store_error)?;
    Ok(value)
}

/// Returns whether a transaction failed, or a file could not be opened, because there is no room.
fn is_full(error: &(dyn Error + 'static)) -> bool {
    causes(error).any(|cause| {
        let failure: Option<&ffi::Error> = cause.downcast_ref();
        failure.is_some_and(is_out_of_room)
    })
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> TransactionError {
    TransactionError::RolledBack(Failure::of_panic(panic).reason().into())
}

impl SqliteStore {
    /// Handles a delivery to an endpoint **without an inbox**: claims the event and runs the handler in one transaction,
    /// and returns the response. The handler's writes take effect **exactly once**, even after a crash.
    ///
    /// No inbox may have this endpoint name. The default name of an inbox is `main`. With an inbox, call
    /// [`Inbox::handle`](crate::inbox::Inbox::handle) with [`handler_in`](Self::handler_in): here, an event whose worker
    /// was killed after its commit would have its effect twice.
    ///
    /// The handler runs in the store's thread, so it should be short: SQL, and nothing that waits. If it
    /// returns an error or panics, its writes and the claim are undone, the receipt is
    /// [`Failed`](Receipt::Failed), and the service retries. The id is remembered for 72 hours.
    ///
    /// Return the error of each statement that fails. Some, such as that of a full disk, end the transaction, and what
    /// the handler writes after one of these takes effect although the event is delivered again.
    ///
    /// Create your own tables in [`transaction`](Self::transaction), or on a connection of your own to the same
    /// file. With axum and actix-web, the receipt is the response.
    ///
    /// # The handler
    ///
    /// The handler gets a [`rusqlite::Transaction`](Transaction). To name the type, import it from the driver that this
    /// crate exports: `use audience::inbox::rusqlite::Transaction;`.
    ///
    /// Its error is the driver's, one of your own that implements [`Error`](std::error::Error), a `String` or a `&str`:
    /// any type that can be converted into `Box<dyn Error + Send + Sync>`. The error's text is logged, so it must not
    /// contain an address.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    ///
    /// # Example: an endpoint that counts events by their type
    ///
    /// ```
    /// use audience::inbox::{Receipt, SqliteStore, rusqlite};
    /// use audience::webhooks::VerifiedEvent;
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    ///
    /// async fn receive(store: &SqliteStore, delivery: VerifiedEvent) -> Receipt {
    ///     store
    ///         .handle_in("counter", delivery, |transaction, event| {
    ///             let count = "UPDATE counter SET events = events + 1 WHERE type = ?1";
    ///             transaction.execute(count, [event.event_type().as_str()])?;
    ///             Ok::<_, rusqlite::Error>(())
    ///         })
    ///         .await
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    /// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?.sign(&EventType::Sent, std::time::SystemTime::now(), body);
    /// # let delivery = Verifier::new("6Jm0nFq2pXvZk4Tt")?.verify_event(&headers, body.to_vec())?;
    /// let store = SqliteStore::in_memory()?;
    /// store
    ///     .transaction(|transaction| {
    ///         transaction.execute_batch("CREATE TABLE counter AS SELECT 'email.sent' AS type, 0 AS events")
    ///     })
    ///     .await?;
    ///
    /// assert_eq!(receive(&store, delivery.clone()).await, Receipt::Handled);
    /// assert_eq!(receive(&store, delivery).await, Receipt::Duplicate);
    /// # let sum = store.transaction(|t| t.query_row("SELECT sum(events) FROM counter", (), |row| row.get::<_, i64>(0)));
    /// # assert_eq!(sum.await?, 1);
    /// # Ok(()) }
    /// ```
    ///
    /// # Example: a handler in a function of its own
    ///
    /// ```
    /// use audience::inbox::rusqlite::{self, Transaction};
    /// use audience::inbox::{Receipt, SqliteStore};
    /// use audience::webhooks::{Event, VerifiedEvent};
    ///
    /// fn count(transaction: &mut Transaction<'_>, event: Event) -> rusqlite::Result<()> {
    ///     let count = "UPDATE counter SET events = events + 1 WHERE type = ?1";
    ///     transaction.execute(count, [event.event_type().as_str()])?;
    ///     Ok(())
    /// }
    ///
    /// async fn receive(store: &SqliteStore, delivery: VerifiedEvent) -> Receipt {
    ///     store.handle_in("counter", delivery, count).await
    /// }
    /// # let _ = receive;
    /// ```
    pub async fn handle_in<E>(
        &self,
        endpoint: &str,
        delivery: VerifiedEvent,
        handler: impl FnOnce(&mut Transaction<'_>, Event) -> Result<(), E> + Send + 'static,
    ) -> Receipt
    where
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let arrived_at = delivery.arrived_at().unwrap_or_else(Instant::now);
        let respond_by = arrived_at + Settings::default().respond_within;
        let fingerprint = ClaimTarget::from(&delivery).fingerprint;
        let id = delivery.id.clone();
        let event = delivery.into_event();
        let handled = self.apply(endpoint, fingerprint, event, handler, None);
        let receipt = match tokio::time::timeout_at(respond_by, handled).await {
            Ok(Ok(receipt)) => receipt,
            Ok(Err(error)) => self.receipt_of(endpoint, &id, &error),
            // Nothing is undone: if the closure runs by now, it commits, and the next delivery is a duplicate.
            Err(_) => Receipt::StillRunning,
        };
        if receipt == Receipt::Conflict {
            report_conflict(endpoint, &id);
        }
        report_receipt(endpoint, &id, receipt);
        receipt
    }

    /// Returns a handler for an endpoint **with an inbox**, for its [worker](crate::inbox::Inbox::worker) or for
    /// [`Inbox::handle`](crate::inbox::Inbox::handle): it claims an event and runs a closure in one transaction. The
    /// closure's writes take effect **exactly once**, even after a crash.
    ///
    /// The closure, or a function, gets a [`rusqlite::Transaction`](Transaction). It is like the handler of
    /// [`handle_in`](Self::handle_in): it runs in the store's thread, and should be short. If it returns an error or
    /// panics, nothing is committed, and the worker retries the event. If the process dies after the commit and before
    /// the inbox has recorded it, the event is taken again, and the closure is not called again.
    ///
    /// The store remembers the commit for the [retention](crate::inbox::InboxBuilder::retention) of the inbox. If the
    /// process dies like that, and the event stays in the inbox for longer, or is
    /// [replayed](crate::inbox::Inbox::replay) later, the closure is called again.
    ///
    /// Pass the inbox whose events it handles. The inbox itself claims an event under its endpoint name, so the claim
    /// of the transaction is recorded under that name and `-effects`, such as `main-effects`. No inbox on this database
    /// may have that name.
    ///
    /// An attempt fails if its transaction has not ended after 15 s. A closure that runs by then continues. If it is
    /// committed, the next attempt does not call it again. If the disk is full, nothing is committed, and the closure is
    /// called again immediately, with the room of the reserve.
    ///
    /// # Panics
    ///
    /// The handler panics outside a tokio runtime.
    ///
    /// # Example: a worker that counts events by their type
    ///
    /// ```
    /// use audience::inbox::{Inbox, Receipt, SqliteStore, rusqlite};
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    /// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?.sign(&EventType::Sent, std::time::SystemTime::now(), body);
    /// # let delivery = Verifier::new("6Jm0nFq2pXvZk4Tt")?.verify_event(&headers, body.to_vec())?;
    /// let store = SqliteStore::in_memory()?;
    /// store
    ///     .transaction(|transaction| {
    ///         transaction.execute_batch("CREATE TABLE counter AS SELECT 'email.sent' AS type, 0 AS events")
    ///     })
    ///     .await?;
    /// let inbox = Inbox::builder(store.clone()).build()?;
    /// assert_eq!(inbox.accept(delivery).await, Receipt::Accepted); // in the web server
    ///
    /// let worker = inbox.worker(store.handler_in(&inbox, |transaction, event| {
    ///     let count = "UPDATE counter SET events = events + 1 WHERE type = ?1";
    ///     transaction.execute(count, [event.event_type().as_str()])?;
    ///     Ok::<_, rusqlite::Error>(())
    /// }));
    ///
    /// assert_eq!(worker.run_until_idle().await?.handled, 1);
    /// # let sum = store.transaction(|t| t.query_row("SELECT sum(events) FROM counter", (), |row| row.get::<_, i64>(0)));
    /// # assert_eq!(sum.await?, 1);
    /// # Ok(()) }
    /// ```
    pub fn handler_in<F, E>(
        &self,
        inbox: &Inbox,
        effect: F,
    ) -> impl EventHandler<
        Future = impl Future<Output = Result<(), Box<dyn Error + Send + Sync>>> + use<F, E>,
    > + Clone
    + use<F, E>
    where
        F: FnOnce(&mut Transaction<'_>, Event) -> Result<(), E> + Clone + Send + Sync + 'static,
        E: Into<Box<dyn Error + Send + Sync>> + 'static,
    {
        let (mut store, endpoint) = (self.clone(), effects_of(inbox.endpoint()));
        store.retention = inbox.0.settings.retention;
        move |event: Event, _: Attempt| {
            let (store, endpoint) = (store.clone(), Arc::clone(&endpoint));
            let effect = effect.clone();
            async move {
                let again = Some(effect.clone());
                let applied = store.apply(&endpoint, None, event, effect, again);
                let applied = async {
                    applied.await.map_err(|error| match error {
                        TransactionError::RolledBack(error) => error,
                        TransactionError::Store(error) => error.into(),
                    })
                };
                apply_in_time(applied).await
            }
        }
    }

    /// Runs the transaction of an event. `again` is the handler of an event that is stored already: it is run if there
    /// is no room for what the first one writes.
    async fn apply<E, H>(
        &self,
        endpoint: &str,
        fingerprint: Option<Fingerprint>,
        event: Event,
        handler: H,
        again: Option<H>,
    ) -> Result<Receipt, TransactionError>
    where
        H: FnOnce(&mut Transaction<'_>, Event) -> Result<(), E> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let purpose = match again {
            Some(_) => Purpose::Always,
            None => Purpose::Add,
        };
        let work = |handler: H| {
            let (store, endpoint) = (self.clone(), Box::<str>::from(endpoint));
            let event = event.clone();
            move |transaction: &mut Transaction<'_>| {
                let claim = ClaimTarget {
                    id: &event.id,
                    fingerprint,
                };
                let state = store.claim_done(transaction, &endpoint, claim, purpose)?;
                match Receipt::of_claim(state) {
                    Ok(_) => handler(transaction, event)
                        .map(|()| Receipt::Handled)
                        .map_err(|error| TransactionError::RolledBack(error.into())),
                    Err(receipt) => Ok(receipt),
                }
            }
        };
        self.run_transaction(work(handler), again.map(work)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_full_disk_gives_a_transaction_or_an_opening_the_room_of_the_reserve() {
        let failure = |code| rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);

        for (code, expected) in [
            (ffi::SQLITE_FULL, true),
            // A quota is reached.
            (ffi::SQLITE_IOERR_WRITE, true),
            (ffi::SQLITE_BUSY, false),
        ] {
            let of_handler = TransactionError::RolledBack(failure(code).into());
            let of_opening = store_error(failure(code));
            let of_store = TransactionError::Store(store_error(failure(code)));

            assert_eq!(is_full(&of_handler), expected, "{of_handler:?}");
            assert_eq!(is_full(&of_store), expected, "{of_store:?}");
            assert_eq!(is_full(&of_opening), expected, "{of_opening:?}");
        }
    }
}
