//! A store in a SQLite file, for transactions on a pool of sqlx.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use rusqlite::ffi;
use sqlx::error::DatabaseError;
use sqlx::pool::PoolConnection;
use sqlx::sqlite::{Sqlite, SqliteConnection, SqlitePool};
use sqlx::{Connection as _, Error, QueryBuilder, Transaction};
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use super::file::{LONGEST_PAUSE, is_out_of_room, store_error, store_error_of_code};
use super::writer::Purpose;
use super::{CLAIM_IN, ClaimIn, SqliteStore, SqliteStoreBuilder};
use crate::inbox::error::{Failure, InboxError, StoreError, StoreErrorKind};
use crate::inbox::handle_in::{Undone, respond_in_time, run_handler};
use crate::inbox::handler_in::{EventHandler, apply_in_time, effects_of};
use crate::inbox::receipt::{Receipt, is_new};
use crate::inbox::store::{ClaimState, Fingerprint, delegate_store};
use crate::inbox::{Attempt, ClaimTarget, Inbox};
use crate::webhooks::{Event, VerifiedEvent};

/// A store in the SQLite file of your pool of sqlx, for the receivers of one machine.
///
/// [`handle_in`](Self::handle_in) and [`claim_in`](Self::claim_in) make an event part of a transaction of the pool, so
/// that it commits together with its effect on your own tables.
///
/// Everything else is done by a [`SqliteStore`] that is opened on the same file, with a connection and a thread of its
/// own. So receivers share commits as they do there, and programs with either store can share a file. The docs of that
/// store about crashes, full disks, several processes and personal data hold for this one, too.
///
/// # Example: an inbox in the file of the program
///
/// ```
/// use audience::inbox::sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
/// use audience::inbox::{Inbox, SqlxSqliteStore};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = std::env::temp_dir().join(format!("audience-sqlx-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = folder.join("shop.db");
/// let options = SqliteConnectOptions::new().filename(&path).create_if_missing(true);
/// let pool = SqlitePool::connect_with(options).await?;
/// let store = SqlxSqliteStore::open(pool).await?;
/// let inbox = Inbox::builder(store.clone()).build()?;
/// # drop(inbox);
/// # store.pool().close().await;
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok(()) }
/// ```
///
/// # The pool
///
/// - The database is switched to a write-ahead log (WAL). Set no other journal mode in the options of the pool.
/// - A commit survives a power cut if the `synchronous` of the pool is `FULL`, which is SQLite's default.
/// - SQLite has one writer at a time. Begin each transaction of yours that writes with
///   `pool.begin_with("BEGIN IMMEDIATE")`, and keep it short: everything else waits.
/// - If the pool creates the file, other users of the machine may be able to read it. It will hold personal data if you
///   use [`accept`](crate::inbox::Inbox::accept). [`SqliteStore::open`] creates a file that only its owner can read.
///
/// # The tables
///
/// [`open`](Self::open) creates them. If `sqlx migrate` creates your tables, copy the file
/// `migrations/sqlite/0001_audience_inbox.sql` of this package into the folder of your migrations, under a number of
/// yours. [`SCHEMA`](Self::SCHEMA) has its text.
///
/// # Releases of sqlx
///
/// The store works with sqlx 0.8.6 and 0.9. It is exported as `audience::inbox::sqlx`. If the rest of your program uses
/// sqlx 0.8 and the compiler reports a mismatch between two versions of its types, Cargo has picked 0.9 for this crate.
/// Then run `cargo update sqlx@0.9.0 --precise 0.8.6`.
#[derive(Clone)]
pub struct SqlxSqliteStore {
    pool: SqlitePool,
    store: SqliteStore,
    /// Held by the delivery that is being handled, so that the deliveries that wait hold no connections of the pool.
    handling: Arc<Mutex<()>>,
}

impl SqlxSqliteStore {
    /// The SQL that creates the tables: the text of [`SqliteStore::SCHEMA`].
    pub const SCHEMA: &str = SqliteStore::SCHEMA;

    /// Opens a store in the file of this pool. Creates the tables if they are absent, and converts tables of an older
    /// version of this crate.
    ///
    /// [`SqliteStoreBuilder::open_pool`] does the same with other settings.
    ///
    /// # Errors
    ///
    /// - [`Unusable`](StoreErrorKind::Unusable): the database of the pool is in memory, or a newer version of this
    ///   crate created the tables. The other reasons are those of [`SqliteStore::open`].
    /// - [`Unavailable`](StoreErrorKind::Unavailable): the pool has no connection, or another connection locks the file
    ///   for longer than the [busy timeout](SqliteStoreBuilder::busy_timeout).
    /// - [`Full`](StoreErrorKind::Full): the disk is full.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    ///
    /// # Example: a database in memory is refused
    ///
    /// ```
    /// use audience::inbox::sqlx::sqlite::SqlitePool;
    /// use audience::inbox::{SqlxSqliteStore, StoreErrorKind};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = SqlitePool::connect("sqlite::memory:").await?;
    ///
    /// let error = SqlxSqliteStore::open(pool).await.unwrap_err();
    ///
    /// assert_eq!(error.kind(), StoreErrorKind::Unusable); // "use a file in a temporary folder"
    /// # Ok(()) }
    /// ```
    pub async fn open(pool: SqlitePool) -> Result<Self, StoreError> {
        SqliteStore::builder().open_pool(pool).await
    }

    /// Returns the pool. Hold no connection of it while you call a method of the inbox, which needs one, too.
    ///
    /// # Example: a transaction of your own
    ///
    /// ```no_run
    /// # async fn begin(store: &audience::inbox::SqlxSqliteStore) -> Result<(), audience::inbox::sqlx::Error> {
    /// let transaction = store.pool().begin_with("BEGIN IMMEDIATE").await?;
    /// # transaction.rollback().await
    /// # }
    /// ```
    #[must_use]
    pub fn pool(&self) -> &SqlitePool {
        &self.pool
    }

    /// Claims an event as part of your transaction, and marks it as done. Returns `true` if the event is new.
    ///
    /// Apply the effect of a new event in the same transaction, and commit: both happen, or neither, so the effect
    /// happens exactly once. `false` means that the event was handled before or is parked. The id is remembered for 72
    /// hours.
    ///
    /// Begin the transaction with `BEGIN IMMEDIATE`, or claim before you read anything else: in SQLite, a transaction
    /// that has read fails to write if another one committed since. It may be one of any pool on the same file.
    ///
    /// [`handle_in`](Self::handle_in) does this and all that belongs to it: the transaction, the time limit, and the
    /// response. [`handler_in`](Self::handler_in) does the same for a worker. With a transaction of your own, make sure
    /// that its future is not dropped, for example because the sender disconnects: run it in a task. If sqlx is
    /// interrupted while it begins or commits a transaction, it may put the connection back into the pool with the
    /// transaction still open, and the file stays locked.
    ///
    /// # Errors
    ///
    /// Roll the transaction back after an error.
    ///
    /// - [`InboxError::InProgress`]: the event is claimed, or waits for its next attempt. Respond with 503.
    /// - [`InboxError::Conflict`]: the event was handled or stored, or is being handled, with another body. This is
    ///   noticed if you claim with a [`VerifiedEvent`].
    /// - [`InboxError::Store`]: SQLite failed, or the database does not have the [tables](Self::SCHEMA).
    ///
    /// # Example: mark an address, exactly once
    ///
    /// ```no_run
    /// use audience::inbox::{SqlxSqliteStore, sqlx};
    /// use audience::webhooks::{EventData, VerifiedEvent};
    ///
    /// /// Respond with 200 if this succeeds, otherwise with 503.
    /// async fn receive(
    ///     store: &SqlxSqliteStore,
    ///     delivery: &VerifiedEvent,
    /// ) -> Result<(), Box<dyn std::error::Error>> {
    ///     let EventData::Bounced(mail) = &delivery.data else {
    ///         return Ok(());
    ///     };
    ///     let mut transaction = store.pool().begin_with("BEGIN IMMEDIATE").await?;
    ///     if store.claim_in(&mut transaction, "bounces", delivery).await? {
    ///         sqlx::query("UPDATE people SET bounces = bounces + 1 WHERE email = ?")
    ///             .bind(mail.address())
    ///             .execute(&mut *transaction)
    ///             .await?;
    ///     }
    ///     transaction.commit().await?;
    ///     Ok(())
    /// }
    /// ```
    pub async fn claim_in<'a>(
        &self,
        transaction: &mut Transaction<'_, Sqlite>,
        endpoint: &str,
        event: impl Into<ClaimTarget<'a>>,
    ) -> Result<bool, InboxError> {
        let claimed = self.claim_done(transaction, endpoint, event.into(), Purpose::Add);
        is_new(claimed.await?)
    }

    /// Handles a delivery to an endpoint **without an inbox**: claims the event and runs the handler in one transaction,
    /// and returns the response. The handler's writes take effect **exactly once**, even after a crash.
    ///
    /// No inbox may have this endpoint name. The default name of an inbox is `main`. With an inbox, call
    /// [`Inbox::handle`](crate::inbox::Inbox::handle) with [`handler_in`](Self::handler_in): here, an event whose worker
    /// was killed after its commit would have its effect twice.
    ///
    /// The transaction is one of the [pool](Self::pool). It is committed if the handler returns `Ok`.
    /// If the handler returns an error or panics, its writes and the claim are undone, the receipt is
    /// [`Failed`](Receipt::Failed), and the service retries. The handler must not end the transaction itself.
    ///
    /// Return the error of each statement that fails. Some, such as that of a full disk, end the transaction, and what
    /// the handler writes after one of these takes effect although the event is delivered again.
    ///
    /// The calls of all clones run one after the other, each in its turn between the other operations of the store, and
    /// use one connection of the pool. So the handler should be short. If it uses the inbox, or writes to the file on
    /// another connection, it waits for itself until the time is over.
    ///
    /// The receipt is [`Unavailable`](Receipt::Unavailable), a 503, if SQLite fails, and if the transaction has not
    /// ended 8 s after the delivery arrived. It is then undone as soon as its last statement has ended.
    /// If this future is dropped, for example because the sender disconnects, the transaction is undone, too, unless it
    /// was just being committed. Then the next delivery is a [`Duplicate`](Receipt::Duplicate).
    ///
    /// The id is remembered for 72 hours.
    ///
    /// # The handler
    ///
    /// The handler gets a [`sqlx::Transaction<'_, sqlx::Sqlite>`](Transaction). To name the type, import it from sqlx
    /// itself, or from the one that this crate exports: `use audience::inbox::sqlx::{Sqlite, Transaction};`. A
    /// statement takes `&mut **transaction`.
    ///
    /// Its error is the driver's, one of your own that implements [`Error`](std::error::Error), a `String` or a `&str`:
    /// any type that can be converted into `Box<dyn Error + Send + Sync>`. The error's text is logged, so it must not
    /// contain an address.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    ///
    /// # Example: an endpoint that counts bounces
    ///
    /// ```no_run
    /// use audience::inbox::{Receipt, SqlxSqliteStore, sqlx};
    /// use audience::webhooks::{EventData, VerifiedEvent, Verifier};
    /// use axum::extract::{FromRef, State};
    /// use axum::{Router, routing::post};
    ///
    /// #[derive(Clone, FromRef)]
    /// struct App {
    ///     verifier: Verifier,
    ///     store: SqlxSqliteStore,
    /// }
    ///
    /// async fn hook(State(app): State<App>, delivery: VerifiedEvent) -> Receipt {
    ///     app.store
    ///         .handle_in("bounces", delivery, async |transaction, event| {
    ///             if let EventData::Bounced(mail) = &event.data {
    ///                 sqlx::query("UPDATE people SET bounces = bounces + 1 WHERE email = ?")
    ///                     .bind(mail.address())
    ///                     .execute(&mut **transaction)
    ///                     .await?;
    ///             }
    ///             Ok::<_, sqlx::Error>(())
    ///         })
    ///         .await
    /// }
    ///
    /// # async fn start() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = sqlx::SqlitePool::connect("sqlite:shop.db").await?;
    /// let store = SqlxSqliteStore::open(pool).await?;
    /// let app = App { verifier: Verifier::new("6Jm0nFq2pXvZk4Tt")?, store };
    /// let router: Router = Router::new().route("/hook", post(hook)).with_state(app);
    /// # Ok(()) }
    /// ```
    ///
    /// # Example: a handler in a function of its own
    ///
    /// ```no_run
    /// use audience::inbox::sqlx::{self, Sqlite, Transaction};
    /// use audience::inbox::{Receipt, SqlxSqliteStore};
    /// use audience::webhooks::{Event, VerifiedEvent};
    ///
    /// async fn count(transaction: &mut Transaction<'_, Sqlite>, event: Event) -> Result<(), sqlx::Error> {
    ///     sqlx::query("UPDATE counter SET events = events + 1 WHERE type = ?")
    ///         .bind(event.event_type().as_str().to_owned())
    ///         .execute(&mut **transaction)
    ///         .await?;
    ///     Ok(())
    /// }
    ///
    /// async fn receive(store: &SqlxSqliteStore, delivery: VerifiedEvent) -> Receipt {
    ///     store.handle_in("counter", delivery, count).await
    /// }
    /// # let _ = receive;
    /// ```
    pub async fn handle_in<E>(
        &self,
        endpoint: &str,
        delivery: VerifiedEvent,
        handler: impl AsyncFnOnce(&mut Transaction<'_, Sqlite>, Event) -> Result<(), E>,
    ) -> Receipt
    where
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let claim = ClaimTarget::from(&delivery);
        let handled = self.transact(endpoint, claim, &delivery, handler, Purpose::Add);
        respond_in_time(&self.store.shared.failures, endpoint, &delivery, handled).await
    }

    /// Returns a handler for an endpoint **with an inbox**, for its [worker](crate::inbox::Inbox::worker) or for
    /// [`Inbox::handle`](crate::inbox::Inbox::handle): it claims an event and runs a closure in one transaction. The
    /// closure's writes take effect **exactly once**, even after a crash.
    ///
    /// The closure, or a function, gets a [`sqlx::Transaction`](Transaction). It is like the handler of
    /// [`handle_in`](Self::handle_in): it waits for its turn, uses one connection of the pool, and should be short. If
    /// it returns an error or panics, nothing is committed, and the worker retries the event. If the process dies after
    /// the commit and before the inbox has recorded it, the event is taken again, and the closure is not called again.
    ///
    /// The store remembers the commit for the [retention](crate::inbox::InboxBuilder::retention) of the inbox. If the
    /// process dies like that, and the event stays in the inbox for longer, or is
    /// [replayed](crate::inbox::Inbox::replay) later, the closure is called again.
    ///
    /// Pass the inbox whose events it handles. The inbox itself claims an event under its endpoint name, so the claim
    /// of the transaction is recorded under that name and `-effects`, such as `main-effects`. No inbox on this database
    /// may have that name.
    ///
    /// An attempt fails if its transaction has not ended after 15 s. The transaction is then undone as soon as its last
    /// statement has ended. If your transactions take longer, use [`claim_in`](Self::claim_in) in a handler of your
    /// own. If the disk is full, nothing is committed, and the closure is called again immediately, with the room of the
    /// reserve.
    ///
    /// If the compiler reports "type annotations needed" or "lifetime may not live long enough", write the closure as
    /// `async |transaction, event|`, as below.
    ///
    /// # Panics
    ///
    /// The handler panics outside a tokio runtime.
    ///
    /// # Example: a worker that counts bounces
    ///
    /// ```no_run
    /// use audience::inbox::{Inbox, SqlxSqliteStore, sqlx};
    /// use audience::webhooks::EventData;
    ///
    /// # async fn start() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = sqlx::SqlitePool::connect("sqlite:shop.db").await?;
    /// let store = SqlxSqliteStore::open(pool).await?;
    /// let inbox = Inbox::builder(store.clone()).build()?;
    ///
    /// let worker = inbox.worker(store.handler_in(&inbox, async |transaction, event| {
    ///     if let EventData::Bounced(mail) = &event.data {
    ///         sqlx::query("UPDATE people SET bounces = bounces + 1 WHERE email = ?")
    ///             .bind(mail.address())
    ///             .execute(&mut **transaction)
    ///             .await?;
    ///     }
    ///     Ok::<_, sqlx::Error>(())
    /// }));
    /// worker.run_until(audience::shutdown_signal()).await?;
    /// # Ok(()) }
    /// ```
    pub fn handler_in<F, E>(
        &self,
        inbox: &Inbox,
        effect: F,
    ) -> impl EventHandler<
        Future = impl Future<Output = Result<(), Box<dyn StdError + Send + Sync>>> + use<F, E>,
    > + Clone
    + use<F, E>
    where
        F: AsyncFnOnce(&mut Transaction<'_, Sqlite>, Event) -> Result<(), E>
            + Clone
            + Send
            + Sync
            + 'static,
        E: Into<Box<dyn StdError + Send + Sync>> + 'static,
    {
        let (mut store, endpoint) = (self.clone(), effects_of(inbox.endpoint()));
        store.store.retention = inbox.0.settings.retention;
        move |event: Event, _: Attempt| {
            let (store, endpoint) = (store.clone(), Arc::clone(&endpoint));
            let effect = effect.clone();
            async move {
                let claim = ClaimTarget::from(&event.id);
                let run =
                    |effect| store.transact(&endpoint, claim, &event, effect, Purpose::Always);
                let applied = async {
                    let applied = match run(effect.clone()).await {
                        Err(undone) if undone.is_caused_by(is_full) => {
                            store.store.give_up_reserve().await?;
                            run(effect).await
                        }
                        applied => applied,
                    };
                    applied.map_err(Undone::into_error)
                };
                apply_in_time(applied).await
            }
        }
    }

    async fn transact<E>(
        &self,
        endpoint: &str,
        claim: ClaimTarget<'_>,
        event: &Event,
        handler: impl AsyncFnOnce(&mut Transaction<'_, Sqlite>, Event) -> Result<(), E>,
        purpose: Purpose,
    ) -> Result<Receipt, Undone>
    where
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let _handling = self.handling.lock().await;
        let connection = self.pool.acquire().await.map_err(failed)?;
        let mut connection = Connection(Some(connection));
        // The turn comes after the connection: whoever has a connection may wait for the store.
        let _turn = self.store.writer.turn().await?;
        self.store.shared.check_files().map_err(store_error)?;
        // For the reason that `file::begin` has, SQLite itself does not wait. If this future is dropped or fails before the
        // pool's setting is back, the connection is closed.
        let busy_timeout = busy_timeout(connection.get()).await?;
        set_busy_timeout(connection.get(), 0).await?;
        // The time limit of the response ends the tries.
        let mut transaction = loop {
            match connection.get().begin_with("BEGIN IMMEDIATE").await {
                Ok(transaction) => break transaction,
                Err(error) if is_busy(&error) => {}
                Err(error) => return Err(failed(error).into()),
            }
            tokio::time::sleep(LONGEST_PAUSE.mul_f64(fastrand::f64())).await;
        };
        // The statements of a user may wait for others, too.
        set_busy_timeout(&mut transaction, busy_timeout).await?;
        let handled = async {
            let claimed = self.claim_done(&mut transaction, endpoint, claim, purpose);
            if let Err(receipt) = Receipt::of_claim(claimed.await?) {
                return Ok(receipt);
            }
            // The call is a part of the future, so that its panic is one of the handler.
            let handled = async { handler(&mut transaction, event.clone()).await };
            // Another retry would not help: no other connection can write now.
            let is_temporary = |error: &_| purpose == Purpose::Always && is_full(error);
            run_handler(handled, is_temporary).await?;
            Ok(Receipt::Handled)
        };
        let handled = handled.await;
        let ended = match handled {
            Ok(Receipt::Handled) => transaction.commit().await.map_err(not_committed),
            _ => transaction.rollback().await.map_err(|e| failed(e).into()),
        };
        if ended.is_ok() {
            connection.put_back();
        }
        // If SQLite has rolled back by itself, because the disk is full, there is nothing left to roll back.
        handled.and_then(|receipt| ended.map(|()| receipt))
    }

    async fn claim_done(
        &self,
        transaction: &mut SqliteConnection,
        endpoint: &str,
        event: ClaimTarget<'_>,
        purpose: Purpose,
    ) -> Result<ClaimState, StoreError> {
        self.store.check_files()?;
        let call = ClaimIn::new(endpoint, event, &self.store);
        let fingerprint = call.fingerprint.as_ref().map(Fingerprint::as_bytes);
        let outcome: String = sqlx::query_scalar(CLAIM_IN)
            .bind(call.endpoint)
            .bind(call.id)
            .bind(fingerprint.map(<[u8; 16]>::as_slice))
            .bind(call.retention)
            .bind(call.hash.0.as_slice())
            .bind(call.now)
            .fetch_one(transaction)
            .await
            .map_err(failed)?;
        self.store.claimed(&outcome, purpose)
    }
}

delegate_store!(SqlxSqliteStore, store);

impl SqliteStoreBuilder {
    /// Opens a store in the file of a pool of sqlx.
    ///
    /// The settings are for the connection of the store itself. The connection of
    /// [`handle_in`](SqlxSqliteStore::handle_in) has the settings of the pool.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`SqlxSqliteStore::open`].
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    ///
    /// # Example: a shorter busy timeout
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use audience::inbox::{SqliteStore, sqlx};
    ///
    /// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = sqlx::SqlitePool::connect("sqlite:shop.db").await?;
    /// let store = SqliteStore::builder().busy_timeout(Duration::from_secs(2)).open_pool(pool).await?;
    /// # let _ = store;
    /// # Ok(()) }
    /// ```
    pub async fn open_pool(self, pool: SqlitePool) -> Result<SqlxSqliteStore, StoreError> {
        // The options of the pool have a path or a URI, and only SQLite knows the file that it means.
        let file = "SELECT file FROM pragma_database_list WHERE name = 'main'";
        let file: Option<String> = sqlx::query_scalar(file)
            .fetch_one(&pool)
            .await
            .map_err(failed)?;
        let Some(file) = file.filter(|file| !file.is_empty()) else {
            return Err(StoreError::unusable(
                "the database of the pool is in memory, where no other connection finds it: use a file in a temporary folder",
            ));
        };
        let opened = spawn_blocking(move || self.open(file)).await;
        Ok(SqlxSqliteStore {
            pool,
            store: opened.map_err(StoreError::unavailable)??,
            handling: Arc::default(),
        })
    }
}

/// A connection that is closed if it is not put back: sqlx may not know whether a transaction is open on it.
struct Connection(Option<PoolConnection<Sqlite>>);

impl Connection {
    fn get(&mut self) -> &mut SqliteConnection {
        let connection = self.0.as_mut();
        connection.expect("a connection is put back only at the end")
    }

    fn put_back(mut self) {
        self.0 = None;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Its thread rolls back and closes it as soon as the last statement has ended.
        drop(self.0.take().map(PoolConnection::detach));
    }
}

/// Returns how long a connection waits for others, in milliseconds.
async fn busy_timeout(connection: &mut SqliteConnection) -> Result<i64, StoreError> {
    // Not cached: see below.
    let timeout = sqlx::query_scalar("PRAGMA busy_timeout").persistent(false);
    timeout.fetch_one(connection).await.map_err(failed)
}

/// Sets how long a connection waits for others, in milliseconds.
async fn set_busy_timeout(
    connection: &mut SqliteConnection,
    timeout: i64,
) -> Result<(), StoreError> {
    let mut pragma = QueryBuilder::<Sqlite>::new("PRAGMA busy_timeout = ");
    // SQLite reads or sets the timeout when it compiles the statement, so a cached statement would do nothing.
    let pragma = pragma.push(timeout).build().persistent(false);
    pragma.execute(connection).await.map(drop).map_err(failed)
}

/// Classes the failure of a commit.
fn not_committed(error: Error) -> Undone {
    let error = failed(error);
    match error.kind() {
        // The rows that the handler wrote violate a deferred constraint, or it ended the transaction itself.
        StoreErrorKind::Unusable => Undone::Handler(Failure::of_error(&error)),
        _ => Undone::Store(error),
    }
}

/// Returns SQLite's extended code.
fn code(error: &Error) -> Option<i32> {
    let code = error.as_database_error().and_then(DatabaseError::code);
    code.and_then(|code| code.parse().ok())
}

/// Returns whether another connection has the right to write.
fn is_busy(error: &Error) -> bool {
    // The rest of the number says why.
    code(error).is_some_and(|code| code & 0xff == ffi::SQLITE_BUSY)
}

/// Returns whether an error means that there is no room.
fn is_full(error: &(dyn StdError + 'static)) -> bool {
    // It is the source of the driver's error, also behind a transparent error, whose chain does not have that one.
    let error = error.downcast_ref::<Box<dyn DatabaseError>>();
    let code = error.and_then(|error| error.code()?.parse::<i32>().ok());
    code.is_some_and(|code| is_out_of_room(&ffi::Error::new(code)))
}

fn failed(error: Error) -> StoreError {
    match &error {
        Error::Database(_) => store_error_of_code(code(&error), error),
        Error::PoolTimedOut | Error::Io(_) | Error::Protocol(_) | Error::WorkerCrashed => {
            StoreError::unavailable(error)
        }
        _ => StoreError::unusable(error),
    }
}

impl fmt::Debug for SqlxSqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlxSqliteStore")
            .field("connections", &self.pool.size())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_without_a_free_connection_may_have_one_later() {
        let error = Error::PoolTimedOut;

        assert!(!is_busy(&error));
        assert_eq!(failed(error).kind(), StoreErrorKind::Unavailable);
    }
}
