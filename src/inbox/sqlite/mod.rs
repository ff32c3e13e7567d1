//! A store in a SQLite file.

mod entries;
mod file;
mod writer;

pub use rusqlite;

use std::error::Error;
use std::fmt;
use std::future::{Ready, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, Transaction, TransactionBehavior};
use tokio::time::Instant;

use self::entries::Entries;
use self::file::{SCHEMA, connect, connect_in_memory, create_tables, store_error};
use self::writer::{Session, Writer};
use crate::inbox::claim::ClaimTarget;
use crate::inbox::error::{Failure, InboxError, StoreError};
use crate::inbox::receipt::Receipt;
use crate::inbox::shared::{
    Settings, report_conflict, report_receipt, report_rollback, report_store_failure,
};
use crate::inbox::store::{
    AcceptState, Backlog, ClaimState, EventKey, HeldClaim, NewClaim, NewDelivery, ParkedEvent,
    Release, Store, Take, TakenEvent, Token,
};
use crate::webhooks::{Clock, Event, EventId, SystemClock, VerifiedEvent};

/// A store in a SQLite file, for the receivers of one machine. Clones share one connection.
///
/// SQLite is compiled in; nothing has to be installed. A thread of the store's own writes to the file. It
/// commits all operations that wait in one transaction, so that many receivers wait for one write to the
/// disk. It ends when the last clone is dropped.
///
/// # What survives
///
/// | failure | with [`Full`](Synchronous::Full), the default | with [`Normal`](Synchronous::Normal) |
/// |---|---|---|
/// | the program crashes or is killed | everything that was responded to | everything that was responded to |
/// | power cut, crash of the operating system | everything that was responded to | the file, without the newest operations |
/// | the disk is full | everything; new events are refused as [`Full`](crate::inbox::StoreErrorKind::Full) | the same |
/// | the disk is lost | nothing: back the file up with its log, by SQLite's `.backup` or `VACUUM INTO` | the same |
///
/// An event that was accepted and then forgotten by a power cut is not delivered again, so leave the default
/// unless you only use [`handle`](crate::inbox::Inbox::handle).
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
/// 16 MiB, until the log is used again. Nothing is encrypted. A new file has mode 0600 on Unix; an existing one keeps its mode.
///
/// # Exactly once
///
/// If your own tables are in the same file, an event and its effect can commit together. See
/// [`handle_in`](Self::handle_in), [`transaction`](Self::transaction) and [`claim_in`](Self::claim_in). These
/// methods name types of rusqlite 0.40, which is exported as `audience::inbox::rusqlite`. A program can link
/// only one version of it.
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
    clock: Arc<dyn Clock>,
}

impl SqliteStore {
    /// The statements that create the tables. They may run any number of times.
    ///
    /// [`open`](Self::open) runs them. They are for those who create all tables by migrations of their own.
    pub const SCHEMA: &'static str = SCHEMA;
}

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
        self.writer.run_for_caller(claim).await
    }

    async fn extend(&self, held: HeldClaim<'_>, lease: Duration) -> Result<bool, StoreError> {
        let (owned, token) = (OwnedKey::new(held.key), held.token);
        self.writer
            .run(move |entries| entries.extend(owned.held(token), lease))
            .await
    }

    async fn complete(&self, held: HeldClaim<'_>, retention: Duration) -> Result<bool, StoreError> {
        let (owned, token) = (OwnedKey::new(held.key), held.token);
        self.writer
            .run(move |entries| entries.complete(owned.held(token), retention))
            .await
    }

    async fn release(&self, held: HeldClaim<'_>, release: Release<'_>) -> Result<bool, StoreError> {
        let (owned, token) = (OwnedKey::new(held.key), held.token);
        let Release {
            delay, retention, ..
        } = release;
        self.writer
            .run(move |entries| entries.release(owned.held(token), delay, retention))
            .await
    }

    async fn park(&self, held: HeldClaim<'_>, reason: &str) -> Result<bool, StoreError> {
        let (owned, token) = (OwnedKey::new(held.key), held.token);
        let reason = reason.to_owned();
        self.writer
            .run(move |entries| entries.park(owned.held(token), &reason))
            .await
    }

    async fn accept(&self, delivery: NewDelivery<'_>) -> Result<AcceptState, StoreError> {
        let owned = OwnedKey::new(delivery.key);
        let body: Box<[u8]> = delivery.body.into();
        let fingerprint = delivery.fingerprint;
        let accept = move |entries: &Entries<'_, '_>| {
            entries.accept(&NewDelivery {
                key: owned.key(),
                body: &body,
                fingerprint,
            })
        };
        self.writer.run_for_caller(accept).await
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
        self.writer.run_for_caller(take).await
    }

    async fn parked(
        &self,
        endpoint: &str,
        after: Option<&EventId>,
        limit: usize,
    ) -> Result<Vec<ParkedEvent>, StoreError> {
        let (endpoint, after): (Box<str>, _) = (endpoint.into(), after.cloned());
        self.writer
            .run_for_caller(move |entries| entries.parked(&endpoint, after.as_ref(), limit))
            .await
    }

    async fn replay(&self, key: EventKey<'_>) -> Result<bool, StoreError> {
        let owned = OwnedKey::new(key);
        self.writer
            .run(move |entries| entries.replay(owned.key()))
            .await
    }

    async fn discard(&self, key: EventKey<'_>, retention: Duration) -> Result<bool, StoreError> {
        let owned = OwnedKey::new(key);
        self.writer
            .run(move |entries| entries.discard(owned.key(), retention))
            .await
    }

    async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
        self.writer
            .run_for_caller(move |entries| entries.purge(limit))
            .await
    }

    async fn backlog(&self, endpoint: &str) -> Result<Backlog, StoreError> {
        let endpoint: Box<str> = endpoint.into();
        self.writer
            .run_for_caller(move |entries| entries.backlog(&endpoint))
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
        Self::builder().open(path)
    }

    /// Starts building a store in a file.
    ///
    /// # Example: faster, and less safe
    ///
    /// ```
    /// use std::time::Duration;
    /// use audience::inbox::{SqliteStore, Synchronous};
    ///
    /// # fn open() -> Result<SqliteStore, audience::inbox::StoreError> {
    /// SqliteStore::builder()
    ///     .synchronous(Synchronous::Normal)
    ///     .busy_timeout(Duration::from_secs(2))
    ///     .open("inbox.db")
    /// # }
    /// ```
    pub fn builder() -> SqliteStoreBuilder {
        SqliteStoreBuilder {
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
    pub fn synchronous(mut self, synchronous: Synchronous) -> Self {
        self.synchronous = synchronous;
        self
    }

    /// Sets how long an operation waits for another process that writes to the file. Default: 5 s.
    ///
    /// An operation that waited longer is
    /// [`Unavailable`](crate::inbox::StoreErrorKind::Unavailable). The service waits 10 s for a response
    /// (interface section 6.5).
    pub fn busy_timeout(mut self, timeout: Duration) -> Self {
        self.busy_timeout = timeout;
        self
    }

    /// Sets the clock that leases and retention follow. Default: the system's clock.
    ///
    /// All processes that share a file need the same time, so it must not be a clock that counts from the
    /// start of the process. Any closure that returns a [`SystemTime`](std::time::SystemTime) is a clock.
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Opens a store in this file. Creates the file and the tables if they are absent.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`SqliteStore::open`].
    pub fn open(self, path: impl AsRef<Path>) -> Result<SqliteStore, StoreError> {
        let connection = connect(path.as_ref(), self.synchronous, self.busy_timeout)?;
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
            .field("synchronous", &self.synchronous)
            .field("busy_timeout", &self.busy_timeout)
            .finish_non_exhaustive()
    }
}

/// When the disk must have an operation before it counts.
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

/// Why [`SqliteStore::transaction`] had no effect.
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
    /// The transaction is one of your own connection to the store's file. Begin it with
    /// [`TransactionBehavior::Immediate`], or claim before you read anything else: SQLite does not let a
    /// transaction write that has read what was changed since. What survives a power cut is a setting of your
    /// connection; SQLite's default is `PRAGMA synchronous = FULL`.
    ///
    /// The future is ready: `.await` it, or use `into_inner()` in code without a runtime.
    ///
    /// # Errors
    ///
    /// Roll the transaction back after each of them.
    ///
    /// - [`InboxError::InProgress`]: a lease of the event lasts, or it waits for its next attempt. Respond with
    ///   503.
    /// - [`InboxError::Conflict`]: the id was received before with another body, which is noticed if you claim
    ///   with a [`VerifiedEvent`](crate::webhooks::VerifiedEvent).
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
    ///     if store.claim_in(&transaction, "main", &id).into_inner()? {
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
        let state = self.claim_done(transaction, endpoint, event.into());
        ready(match state {
            Ok(ClaimState::Fresh { .. }) => Ok(true),
            Ok(ClaimState::Done | ClaimState::Parked) => Ok(false),
            Ok(ClaimState::InProgress { .. }) => Err(InboxError::InProgress),
            Ok(ClaimState::Conflict) => Err(InboxError::Conflict),
            Err(error) => Err(error.into()),
        })
    }

    /// Runs a closure in a transaction of the store's own connection, in its thread.
    ///
    /// What the closure writes is committed if it returns `Ok`, and undone if it returns an error or panics.
    /// The other operations of the store wait meanwhile, so it should be short: SQL, and nothing that waits.
    /// It must not end the transaction itself. It is not run if the future is dropped before its turn.
    ///
    /// # Errors
    ///
    /// - [`TransactionError::RolledBack`]: the closure failed. It has the closure's error.
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
        self.run_transaction(work).await
    }

    async fn run_transaction<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Transaction<'_>) -> Result<T, TransactionError> + Send + 'static,
    ) -> Result<T, TransactionError> {
        let run = |connection: &Connection| {
            // A panic drops the transaction, which rolls it back.
            catch_unwind(AssertUnwindSafe(|| transact(connection, work)))
                .unwrap_or_else(|panic| Err(panicked(&*panic)))
        };
        self.writer.run_exclusive(run).await?
    }

    fn claim_done(
        &self,
        transaction: &Connection,
        endpoint: &str,
        event: ClaimTarget<'_>,
    ) -> Result<ClaimState, StoreError> {
        if transaction.is_autocommit() {
            return Err(StoreError::unusable(
                "the connection has no transaction: begin one, and claim in it",
            ));
        }
        let claim = NewClaim {
            key: EventKey {
                endpoint,
                id: event.id,
            },
            token: Token::random(),
            lease: Duration::ZERO,
            retention: Settings::default().retention,
            fingerprint: event.fingerprint,
        };
        let session = Session::new(transaction);
        Entries::new(&session, self.clock.now())
            .claim_done(&claim)
            .map_err(store_error)
    }
}

fn transact<T>(
    connection: &Connection,
    work: impl FnOnce(&mut Transaction<'_>) -> Result<T, TransactionError>,
) -> Result<T, TransactionError> {
    let mut transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)
        .map_err(store_error)?;
    let value = work(&mut transaction)?;
    transaction.commit().map_err(store_error)?;
    Ok(value)
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> TransactionError {
    TransactionError::RolledBack(Failure::of_panic(panic).reason().into())
}

impl SqliteStore {
    /// Claims an event and runs the handler in one transaction, and returns what to respond. What the handler
    /// writes is written **exactly once**, whatever crashes when.
    ///
    /// The handler runs in the store's thread, so it should be short: SQL, and nothing that waits. If it
    /// returns an error or panics, what it wrote and the claim are undone, the receipt is
    /// [`Failed`](Receipt::Failed), and the service retries. The id is remembered for 72 hours.
    ///
    /// Create your own tables in [`transaction`](Self::transaction), or on a connection of your own to the same
    /// file. With axum and actix-web, the receipt is the response.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    ///
    /// # Example: an endpoint that stops mail to addresses that bounced
    ///
    /// ```
    /// use audience::inbox::{Receipt, SqliteStore, rusqlite};
    /// use audience::webhooks::{EventData, MailEvent, VerifiedEvent};
    ///
    /// async fn receive(store: &SqliteStore, delivery: VerifiedEvent) -> Receipt {
    ///     store
    ///         .handle_in("main", delivery, |transaction, event| {
    ///             if event.mail().is_some_and(MailEvent::is_permanent_bounce)
    ///                 && let Some(mail) = event.mail()
    ///             {
    ///                 transaction.execute("INSERT OR IGNORE INTO suppressed VALUES (?1)", [&mail.to])?;
    ///             }
    ///             Ok::<_, rusqlite::Error>(())
    ///         })
    ///         .await
    /// }
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
        let name: Box<str> = endpoint.into();
        let store = self.clone();
        let handled = self.run_transaction(move |transaction| {
            let state = store.claim_done(transaction, &name, (&delivery).into())?;
            match Receipt::of_claim(state) {
                Ok(_) => handler(transaction, delivery.into_event())
                    .map(|()| Receipt::Handled)
                    .map_err(|error| TransactionError::RolledBack(error.into())),
                Err(receipt) => Ok(receipt),
            }
        });
        let receipt = match tokio::time::timeout_at(respond_by, handled).await {
            Ok(Ok(receipt)) => receipt,
            Ok(Err(error)) => receipt_of(endpoint, &error),
            Err(_) => Receipt::StillRunning,
        };
        if receipt == Receipt::Conflict {
            report_conflict(endpoint);
        }
        report_receipt(endpoint, receipt);
        receipt
    }
}

fn receipt_of(endpoint: &str, error: &TransactionError) -> Receipt {
    match error {
        TransactionError::RolledBack(error) => {
            report_rollback(endpoint, &Failure::of_error(error.as_ref()));
            Receipt::Failed
        }
        TransactionError::Store(error) => {
            report_store_failure("handle_in", error);
            Receipt::of_store_error(error)
        }
    }
}
