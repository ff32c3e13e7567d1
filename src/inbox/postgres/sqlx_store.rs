//! A store in Postgres on a pool of sqlx.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use sqlx::error::DatabaseError;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnection, PgPool, PgRow};
use sqlx::{Connection as _, Error, Executor as _, Postgres, Row as _, Transaction};
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::entries::{
    self, Columns, DEFAULT_TIMEOUT, Driver, Entries, Failed, MIGRATION_TIMEOUT, OpenTransaction,
    READ_ONLY, in_time, keeps_connection, not_committed,
};
use super::statements::{SCHEMA, Statement, Value, schema_for};
use crate::inbox::error::{InboxError, StoreError};
use crate::inbox::handle_in::{Retries, Undone, respond_in_time, run_handler};
use crate::inbox::handler_in::{EventHandler, apply_in_time, effects_of};
use crate::inbox::receipt::{Receipt, is_new};
use crate::inbox::store::{ClaimState, delegate_store};
use crate::inbox::{Attempt, ClaimTarget, DEFAULT_RETENTION, Inbox, SHORTEST_RETENTION};
use crate::webhooks::{Event, VerifiedEvent};

/// A store in Postgres on your pool of sqlx, for any number of receivers and workers on any number of machines.
///
/// It uses the same tables and the same statements as [`PostgresStore`](crate::inbox::PostgresStore), so programs with
/// either driver can share the tables. The docs of that store about the tables, outages, runtimes and connection poolers
/// hold for this one, too. This page names the differences.
///
/// # Example: an inbox on the pool of the program
///
/// ```no_run
/// use audience::inbox::sqlx::PgPool;
/// use audience::inbox::{Inbox, SqlxPostgresStore};
///
/// # async fn start() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = PgPool::connect("postgres://shop:secret@localhost/shop").await?;
/// let store = SqlxPostgresStore::new(pool);
/// store.migrate().await?;
/// let inbox = Inbox::builder(store.clone()).build()?;
/// # let _ = inbox;
/// # Ok(())
/// # }
/// ```
///
/// # The tables
///
/// [`migrate`](Self::migrate) creates them. If `sqlx migrate` creates your tables, copy the file
/// `migrations/postgres/0001_audience_inbox.sql` of this package into the folder of your migrations, under a number of
/// yours. [`SCHEMA`](Self::SCHEMA) has its text.
///
/// # When a call times out
///
/// sqlx cannot cancel a statement. If a call times out, its statement continues on the server until it ends by itself,
/// and its connection stays in use until then, for up to a minute. So the server never has more connections than the
/// pool may have, but behind a lock that lasts, the pool has no free connection. A claim that is made after its call
/// timed out keeps its event from others until its lease ends. So let the server end statements that take too long:
///
/// ```
/// use audience::inbox::sqlx::postgres::{PgConnectOptions, PgPoolOptions};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::inbox::sqlx::Error> {
/// let options: PgConnectOptions = "postgres://shop:secret@localhost/shop".parse()?;
/// let options = options.options([
///     ("statement_timeout", "6s"),
///     ("lock_timeout", "5s"),
///     ("idle_in_transaction_session_timeout", "30s"),
/// ]);
/// let pool = PgPoolOptions::new().max_connections(20).connect_lazy_with(options);
/// # let _ = pool;
/// # Ok(())
/// # }
/// ```
///
/// If a pooler refuses these options, set them on the role: `ALTER ROLE receiver SET statement_timeout = '6s'`.
///
/// # While the database is down
///
/// The pool tries to connect again until its `acquire_timeout`, 30 s, so a call fails only after its own time limit,
/// and its error says that it timed out, not why. With `.acquire_timeout(Duration::from_secs(2))` on the options of the
/// pool, deliveries get their 503 sooner.
///
/// # TLS
///
/// sqlx needs one of its TLS features, such as `tls-rustls-ring` in your `Cargo.toml`. Without one, it refuses
/// `sslmode=require` or more, and otherwise connects without TLS. This crate's feature `inbox-postgres-rustls` does not
/// apply to your pool.
///
/// Use `sslmode=verify-full`: sqlx adds `sslrootcert` to the authorities that it trusts, so `verify-ca` accepts
/// any public certificate for any host, and `require` checks nothing. `tls-rustls-ring` trusts Mozilla's list, and
/// `tls-rustls-ring-native-roots` what the operating system trusts. An address has one server, and
/// `target_session_attrs` is ignored.
///
/// # Releases of sqlx
///
/// The store works with sqlx 0.8.6 and 0.9. It is exported as `audience::inbox::sqlx`. If the rest of your program uses
/// sqlx 0.8 and the compiler reports a mismatch between two versions of its types, Cargo has picked 0.9 for this crate.
/// Then run `cargo update sqlx@0.9.0 --precise 0.8.6`.
#[derive(Clone)]
pub struct SqlxPostgresStore {
    entries: Entries<Session>,
    retention: Duration,
}

impl SqlxPostgresStore {
    /// The SQL that creates the tables: the text of [`PostgresStore::SCHEMA`](crate::inbox::PostgresStore::SCHEMA).
    pub const SCHEMA: &str = SCHEMA;

    /// Returns the SQL with which an administrator creates the tables in this schema, and gives a role the rights: that of
    /// [`PostgresStore::schema_for`](crate::inbox::PostgresStore::schema_for).
    ///
    /// # Example: print it
    ///
    /// ```
    /// use audience::inbox::SqlxPostgresStore;
    ///
    /// let sql = SqlxPostgresStore::schema_for("public", "receiver");
    ///
    /// assert!(sql.contains(r#"GRANT USAGE ON SCHEMA "public" TO "receiver";"#));
    /// ```
    #[must_use]
    pub fn schema_for(schema: &str, role: &str) -> String {
        schema_for(schema, role)
    }

    /// Creates a store on a pool. It does not connect.
    ///
    /// The pool may be shared with the rest of the program. Leave the inbox a connection for each handler that runs
    /// simultaneously, beside the one that the handler itself may hold.
    ///
    /// # Example: two endpoints on one pool
    ///
    /// ```
    /// use audience::inbox::sqlx::PgPool;
    /// use audience::inbox::{Inbox, SqlxPostgresStore};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = PgPool::connect_lazy("postgres://shop:secret@localhost/shop")?;
    /// let store = SqlxPostgresStore::new(pool);
    ///
    /// let orders = Inbox::builder(store.clone()).endpoint("orders").build()?;
    /// let news = Inbox::builder(store).endpoint("news").build()?;
    /// # let _ = (orders, news);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn new(pool: PgPool) -> Self {
        Self {
            entries: Entries::new(
                Session {
                    pool,
                    names_statements: true,
                },
                DEFAULT_TIMEOUT,
            ),
            retention: DEFAULT_RETENTION,
        }
    }

    /// Sets how long a call may take, the wait for a connection included. Default: 5 s.
    ///
    /// [`claim_in`](Self::claim_in) is not limited: it is part of your transaction.
    ///
    /// # Example: a server that never responds
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use audience::inbox::sqlx::PgPool;
    /// use audience::inbox::{SqlxPostgresStore, Store, StoreErrorKind};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = tokio::net::TcpListener::bind("127.0.0.1:0").await?; // accepts, and says nothing
    /// let pool = PgPool::connect_lazy(&format!("postgres://inbox@{}/app", server.local_addr()?))?;
    ///
    /// let store = SqlxPostgresStore::new(pool).timeout(Duration::from_millis(20));
    ///
    /// let error = store.backlog("main").await.unwrap_err();
    /// assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.entries.timeout = timeout;
        self
    }

    /// Sets how long [`claim_in`](Self::claim_in) and [`handle_in`](Self::handle_in) remember an event. Default: 72 h.
    ///
    /// Less than 6 hours counts as 6 hours: the service retries for about five hours
    /// ([interface section 6.5](crate::interface#6.5)).
    /// For all other calls, use [`InboxBuilder::retention`](crate::inbox::InboxBuilder::retention).
    ///
    /// # Example: remember events for a week
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use audience::inbox::SqlxPostgresStore;
    /// # use audience::inbox::sqlx::PgPool;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::inbox::sqlx::Error> {
    /// # let pool = PgPool::connect_lazy("postgres://localhost")?;
    /// let store = SqlxPostgresStore::new(pool).retention(Duration::from_secs(7 * 86_400));
    /// # let _ = store;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = retention.max(SHORTEST_RETENTION);
        self
    }

    /// Sends each statement in full instead of preparing it under a name, for a pooler in transaction mode that
    /// does not support prepared statements, such as `PgBouncer` before version 1.21.
    ///
    /// Each call is then a transaction of several requests and takes about twice as long, because sqlx sends a
    /// statement and its values apart.
    ///
    /// # Example: behind an old pooler
    ///
    /// ```
    /// use audience::inbox::SqlxPostgresStore;
    /// # use audience::inbox::sqlx::PgPool;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::inbox::sqlx::Error> {
    /// let pool = PgPool::connect_lazy("postgres://inbox:secret@pooler:6432/app?statement-cache-capacity=0")?;
    /// let store = SqlxPostgresStore::new(pool).unnamed_statements();
    /// # let _ = store;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn unnamed_statements(mut self) -> Self {
        self.entries.driver.names_statements = false;
        self
    }

    /// Returns the pool. Hold no connection of it while you call a method of the inbox, which needs one, too.
    ///
    /// # Example: a transaction of your own
    ///
    /// ```no_run
    /// # async fn begin(store: &audience::inbox::SqlxPostgresStore) -> Result<(), audience::inbox::sqlx::Error> {
    /// let transaction = store.pool().begin().await?;
    /// # transaction.rollback().await
    /// # }
    /// ```
    #[must_use]
    pub fn pool(&self) -> &PgPool {
        &self.entries.driver.pool
    }

    /// Creates the tables if they are absent.
    ///
    /// Any number of processes may call this concurrently, for example whenever they start. If the tables exist, the
    /// role needs no right to create tables.
    ///
    /// # Errors
    ///
    /// - `Unavailable` if the database cannot be reached, or did not respond within a minute.
    /// - `Unusable` if the user, the password or the name of the database is wrong, the role may not create tables, the
    ///   server is older than version 13, the database is not in UTF8, or the tables were made by a newer version of
    ///   this crate.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    ///
    /// # Example: tell an outage from a wrong address
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use audience::inbox::sqlx::postgres::PgPoolOptions;
    /// use audience::inbox::{SqlxPostgresStore, StoreErrorKind};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let options = PgPoolOptions::new().acquire_timeout(Duration::from_millis(100));
    /// let store = SqlxPostgresStore::new(options.connect_lazy("postgres://inbox@127.0.0.1:1/app")?);
    ///
    /// let error = store.migrate().await.unwrap_err();
    ///
    /// assert_eq!(error.kind(), StoreErrorKind::Unavailable); // a later call may succeed
    /// # Ok(()) }
    /// ```
    pub async fn migrate(&self) -> Result<(), StoreError> {
        let migration = async {
            let mut connection = self.entries.driver.connection().await?;
            let begin = "BEGIN ISOLATION LEVEL READ COMMITTED";
            let transaction = connection.get().begin_with(begin).await;
            let mut transaction = transaction.map_err(failed)?;
            let migrated = entries::migrate(&mut InTransaction {
                connection: &mut transaction,
                names_statements: false,
            })
            .await;
            let migrated = match migrated {
                Ok(()) => transaction.commit().await.map_err(failed),
                failed => {
                    drop(transaction);
                    failed
                }
            };
            match migrated {
                Ok(()) => connection.put_back(),
                // The next attempt may need a connection to another server.
                Err(_) => connection.discard(),
            }
            Ok(migrated?)
        };
        in_time(self.entries.timeout.max(MIGRATION_TIMEOUT), migration).await
    }

    /// Creates the tables if they are absent, as soon as the database responds: [`migrate`](Self::migrate), repeated
    /// every second while the database is down.
    ///
    /// A worker of this store that finds no tables meanwhile waits for them, for up to half the time that a call may take.
    ///
    /// With the feature `tracing`, it logs the first failure, then one line a minute, and the success after a failure. To
    /// end it, drop the future.
    ///
    /// # Errors
    ///
    /// Returns the `Unusable` errors of [`migrate`](Self::migrate). Nothing but a change of the settings or the rights
    /// mends them, so end the program.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    ///
    /// # Example: beside the server
    ///
    /// ```no_run
    /// use audience::inbox::SqlxPostgresStore;
    ///
    /// # async fn listen(store: SqlxPostgresStore) -> Result<(), Box<dyn std::error::Error>> { Ok(()) }
    /// # async fn serve(store: SqlxPostgresStore) -> Result<(), Box<dyn std::error::Error>> {
    /// let tables = async { Ok(store.migrate_when_available().await?) };
    /// let server = listen(store.clone()); // until the tables exist, deliveries get a 503
    /// tokio::try_join!(tables, server)?;
    /// # Ok(()) }
    /// ```
    pub async fn migrate_when_available(&self) -> Result<(), StoreError> {
        entries::when_available(&self.entries.migration, || self.migrate()).await
    }

    /// Claims an event as part of your transaction, and marks it as done. Returns `true` if the event is new.
    ///
    /// Apply the effect of a new event in the same transaction, and commit: both happen, or neither, so the effect
    /// happens exactly once. `false` means that the event was handled or parked before. Concurrent transactions wait
    /// for each other, and exactly one that commits gets `true`.
    ///
    /// The transaction may have savepoints, and may be one of any pool on the same database.
    ///
    /// [`handle_in`](Self::handle_in) does this and all that belongs to it: the transaction, the time limit, and the
    /// response. [`handler_in`](Self::handler_in) does the same for a worker. With a transaction of your own, make sure
    /// that its future is not dropped, for example because the sender disconnects: run it in a task. If sqlx is
    /// interrupted while it begins a transaction, it may put the connection back into the pool with the transaction
    /// still open, and whoever gets the connection next writes into that transaction, which nobody commits.
    ///
    /// Once a minute, a task of the store deletes the forgotten ids, on a connection of its own.
    ///
    /// In a handler of your own for an [`Inbox`](crate::inbox::Inbox) or its worker, use another endpoint name than the
    /// inbox has. The inbox holds a claim of its own under its name.
    ///
    /// # Errors
    ///
    /// - [`InboxError::InProgress`] if the event is claimed, or waits for its next attempt.
    ///   Roll back, and respond with 503.
    /// - [`InboxError::Conflict`] if the event was handled or stored, or is being handled, with another body. This is
    ///   noticed if you claim with a [`VerifiedEvent`](crate::webhooks::VerifiedEvent).
    /// - [`InboxError::Store`] if the database failed. Postgres accepts no other statement in the transaction
    ///   then: roll back, and respond with 503. In a transaction that is `REPEATABLE READ` or `SERIALIZABLE`,
    ///   a race is such an error, with the SQLSTATE 40001 and of the kind `Unavailable`: run the whole
    ///   transaction again.
    ///
    /// # Example: mark an address, exactly once
    ///
    /// ```no_run
    /// use audience::inbox::{SqlxPostgresStore, sqlx};
    /// use audience::webhooks::{EventData, VerifiedEvent};
    ///
    /// /// Respond with 200 if this succeeds, otherwise with 503.
    /// async fn receive(
    ///     store: &SqlxPostgresStore,
    ///     delivery: &VerifiedEvent,
    /// ) -> Result<(), Box<dyn std::error::Error>> {
    ///     let EventData::Bounced(mail) = &delivery.data else {
    ///         return Ok(());
    ///     };
    ///     let mut transaction = store.pool().begin().await?;
    ///     if store.claim_in(&mut transaction, "bounces", delivery).await? {
    ///         sqlx::query("UPDATE people SET bounces = bounces + 1 WHERE email = $1")
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
        transaction: &mut Transaction<'_, Postgres>,
        endpoint: &str,
        event: impl Into<ClaimTarget<'a>>,
    ) -> Result<bool, InboxError> {
        self.entries.purge_if_due();
        let claimed = self.claim_done(transaction, endpoint, event.into());
        is_new(claimed.await.map_err(StoreError::from)?)
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
    /// A transaction that loses against another one (a deadlock, or a serialization failure) is run again a few times.
    /// Each run calls a clone of the handler, and only the writes of the last run remain. For that, the handler has to
    /// return the error of sqlx, or an error whose `source()` leads to it.
    ///
    /// The receipt is [`Unavailable`](Receipt::Unavailable), a 503, if the database fails, and if the transaction has
    /// not ended 8 s after the delivery arrived. It is then undone as soon as its last statement has ended. If the
    /// connection is lost during the commit, the receipt is the same, although the commit may have succeeded. Then the
    /// next delivery is a [`Duplicate`](Receipt::Duplicate). If this future is dropped, for example because the sender
    /// disconnects, the transaction is undone, too.
    ///
    /// The id is remembered for the [retention](Self::retention). Once a minute, a task of the store deletes the
    /// forgotten ids.
    ///
    /// # The handler
    ///
    /// The handler gets a [`sqlx::Transaction<'_, sqlx::Postgres>`](Transaction). To name the type, import it from sqlx
    /// itself, or from the one that this crate exports: `use audience::inbox::sqlx::{Postgres, Transaction};`. A
    /// statement takes `&mut **transaction`.
    ///
    /// Its error is the driver's, one of your own that implements [`Error`](std::error::Error), a `String` or a `&str`:
    /// any type that can be converted into `Box<dyn Error + Send + Sync>`. The error's text is logged, so it must not
    /// contain an address.
    ///
    /// A text of an event can contain U+0000, which Postgres stores neither as `text` nor as `jsonb`: the statement
    /// fails in every attempt. Remove the character from a text that you store, for example with
    /// `mail.subject.replace('\0', "")`. The store itself accepts such an event.
    ///
    /// To keep a bounce or a complaint without its address, return an error if
    /// [`EventData::is_incomplete`](crate::webhooks::EventData::is_incomplete) is true.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    ///
    /// # Example: an endpoint that counts bounces
    ///
    /// ```no_run
    /// use audience::inbox::{Receipt, SqlxPostgresStore, sqlx};
    /// use audience::webhooks::{EventData, VerifiedEvent, Verifier};
    /// use axum::extract::{FromRef, State};
    /// use axum::{Router, routing::post};
    ///
    /// #[derive(Clone, FromRef)]
    /// struct App {
    ///     verifier: Verifier,
    ///     store: SqlxPostgresStore,
    /// }
    ///
    /// async fn hook(State(app): State<App>, delivery: VerifiedEvent) -> Receipt {
    ///     app.store
    ///         .handle_in("bounces", delivery, async |transaction, event| {
    ///             if let EventData::Bounced(mail) = &event.data {
    ///                 sqlx::query("UPDATE people SET bounces = bounces + 1 WHERE email = $1")
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
    /// let pool = sqlx::PgPool::connect("postgres://shop:secret@localhost/shop").await?;
    /// let store = SqlxPostgresStore::new(pool);
    /// store.migrate().await?;
    /// let app = App { verifier: Verifier::new("6Jm0nFq2pXvZk4Tt")?, store };
    /// let router: Router = Router::new().route("/hook", post(hook)).with_state(app);
    /// # Ok(()) }
    /// ```
    ///
    /// # Example: a handler in a function of its own
    ///
    /// ```no_run
    /// use audience::inbox::sqlx::{self, Postgres, Transaction};
    /// use audience::inbox::{Receipt, SqlxPostgresStore};
    /// use audience::webhooks::{Event, VerifiedEvent};
    ///
    /// async fn count(transaction: &mut Transaction<'_, Postgres>, event: Event) -> Result<(), sqlx::Error> {
    ///     let count = "INSERT INTO counter (type, events) VALUES ($1, 1)
    ///         ON CONFLICT (type) DO UPDATE SET events = counter.events + 1";
    ///     sqlx::query(count)
    ///         .bind(event.event_type().as_str())
    ///         .execute(&mut **transaction)
    ///         .await?;
    ///     Ok(())
    /// }
    ///
    /// async fn receive(store: &SqlxPostgresStore, delivery: VerifiedEvent) -> Receipt {
    ///     store.handle_in("counter", delivery, count).await
    /// }
    /// # let _ = receive;
    /// ```
    pub async fn handle_in<E>(
        &self,
        endpoint: &str,
        delivery: VerifiedEvent,
        handler: impl AsyncFnOnce(&mut Transaction<'_, Postgres>, Event) -> Result<(), E> + Clone,
    ) -> Receipt
    where
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let claim = ClaimTarget::from(&delivery);
        let handled = self.transact(endpoint, claim, &delivery, handler);
        let receipt = respond_in_time(&self.entries.failures, endpoint, &delivery, handled).await;
        self.entries.purge_if_due();
        receipt
    }

    /// Returns a handler for an endpoint **with an inbox**, for its [worker](crate::inbox::Inbox::worker) or for
    /// [`Inbox::handle`](crate::inbox::Inbox::handle): it claims an event and runs a closure in one transaction. The
    /// closure's writes take effect **exactly once**, even after a crash.
    ///
    /// The closure, or a function, gets a [`sqlx::Transaction`](Transaction). It is like the handler of
    /// [`handle_in`](Self::handle_in), and is run again if its transaction loses against another one. If it returns an
    /// error or panics, nothing is committed, and the worker retries the event. If the process dies after the commit
    /// and before the inbox has recorded it, the event is taken again, and the closure is not called again.
    ///
    /// The store remembers the commit for the [retention](crate::inbox::InboxBuilder::retention) of the inbox, or its own if
    /// that is longer. If the process dies like that, and the event stays in the inbox for longer, or is
    /// [replayed](crate::inbox::Inbox::replay) later, the closure is called again. Set a longer retention if your workers
    /// may be stopped for longer, or if nobody looks at parked events for longer.
    ///
    /// Pass the inbox whose events it handles. The inbox itself claims an event under its endpoint name, so the claim
    /// of the transaction is recorded under that name and `-effects`, such as `main-effects`. No inbox on this database
    /// may have that name.
    ///
    /// An attempt fails if its transaction has not ended after 15 s. The transaction is then undone as soon as its last
    /// statement has ended. If your transactions take longer, use [`claim_in`](Self::claim_in) in a handler of your
    /// own.
    ///
    /// Give the pool two connections for each handler that runs simultaneously: one for its transaction, and one for
    /// the inbox. A worker runs 8, and a pool of sqlx has 10 connections by default.
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
    /// use audience::inbox::{Inbox, SqlxPostgresStore, sqlx};
    /// use audience::webhooks::EventData;
    ///
    /// # async fn start() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = sqlx::PgPool::connect("postgres://shop:secret@localhost/shop").await?;
    /// let store = SqlxPostgresStore::new(pool);
    /// store.migrate().await?;
    /// let inbox = Inbox::builder(store.clone()).build()?;
    ///
    /// let worker = inbox.worker(store.handler_in(&inbox, async |transaction, event| {
    ///     if let EventData::Bounced(mail) = &event.data {
    ///         sqlx::query("UPDATE people SET bounces = bounces + 1 WHERE email = $1")
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
        F: AsyncFnOnce(&mut Transaction<'_, Postgres>, Event) -> Result<(), E>
            + Clone
            + Send
            + Sync
            + 'static,
        E: Into<Box<dyn StdError + Send + Sync>> + 'static,
    {
        let (mut store, endpoint) = (self.clone(), effects_of(inbox.endpoint()));
        store.retention = store.retention.max(inbox.0.settings.retention);
        move |event: Event, _: Attempt| {
            let (store, endpoint) = (store.clone(), Arc::clone(&endpoint));
            let effect = effect.clone();
            async move {
                let claim = ClaimTarget::from(&event.id);
                let applied = store.transact(&endpoint, claim, &event, effect);
                let applied = async { applied.await.map_err(Undone::into_error) };
                let applied = apply_in_time(applied).await;
                store.entries.purge_if_due();
                applied
            }
        }
    }

    /// Runs the transaction of an event, and again if it loses against another one.
    async fn transact<E>(
        &self,
        endpoint: &str,
        claim: ClaimTarget<'_>,
        event: &Event,
        handler: impl AsyncFnOnce(&mut Transaction<'_, Postgres>, Event) -> Result<(), E> + Clone,
    ) -> Result<Receipt, Undone>
    where
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let mut retries = Retries::default();
        loop {
            // A clone for each run: unlike with `AsyncFnMut`, the compiler finds that this future is `Send`, also if
            // the handler borrows.
            let run = self.transact_once(endpoint, claim, event, handler.clone());
            match run.await {
                Ok(receipt) => return Ok(receipt),
                Err(undone) => retries.wait_after(undone).await?,
            }
        }
    }

    /// Runs the transaction of an event once.
    async fn transact_once<E>(
        &self,
        endpoint: &str,
        claim: ClaimTarget<'_>,
        event: &Event,
        handler: impl AsyncFnOnce(&mut Transaction<'_, Postgres>, Event) -> Result<(), E>,
    ) -> Result<Receipt, Undone>
    where
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let mut connection = self.entries.driver.connection().await?;
        let mut transaction = connection.get().begin().await.map_err(failed)?;
        let handled = async {
            let claimed = self.claim_done(&mut transaction, endpoint, claim);
            if let Err(receipt) = Receipt::of_claim(claimed.await?) {
                return Ok(receipt);
            }
            // The call is a part of the future, so that its panic is one of the handler.
            let handled = async { handler(&mut transaction, event.clone()).await };
            run_handler(handled, |error| is_conflict(error) || is_read_only(error)).await?;
            Ok(Receipt::Handled)
        };
        let handled: Result<_, Undone> = handled.await;
        let ended = match handled {
            Ok(Receipt::Handled) => commit(transaction).await,
            _ => transaction.rollback().await.map_err(failed),
        };
        let is_of_no_use = matches!(&handled, Err(undone) if undone.is_caused_by(is_read_only));
        match ended {
            Ok(()) if !is_of_no_use => connection.put_back(),
            _ => connection.discard(),
        }
        match (handled, ended) {
            (handled, Ok(())) => handled,
            (Ok(Receipt::Handled), Err(failed)) => Err(not_committed(failed)),
            // A panic inside the driver can break the connection.
            (Err(panic @ Undone::Panic(_)), Err(_)) => Err(panic),
            // It was not the handler that failed, but the connection.
            (_, Err(failed)) => Err(Undone::Store(failed.error)),
        }
    }

    async fn claim_done(
        &self,
        transaction: &mut Transaction<'_, Postgres>,
        endpoint: &str,
        event: ClaimTarget<'_>,
    ) -> Result<ClaimState, Failed> {
        let mut transaction = InTransaction {
            connection: transaction,
            names_statements: self.entries.driver.names_statements,
        };
        entries::claim_in(&mut transaction, endpoint, event, self.retention).await
    }
}

async fn commit(mut transaction: Transaction<'_, Postgres>) -> Result<(), Failed> {
    // Fails if a statement failed before. Postgres would respond to `COMMIT` with a success, although it rolls back.
    let checked = transaction.execute(sqlx::raw_sql("SELECT")).await;
    checked.map_err(failed)?;
    transaction.commit().await.map_err(failed)
}

/// Returns whether an error means that the transaction lost against another one.
fn is_conflict(error: &(dyn StdError + 'static)) -> bool {
    code_of_cause(error).is_some_and(|code| matches!(&*code, "40001" | "40P01"))
}

/// Returns whether an error means that the server of the connection only reads.
fn is_read_only(error: &(dyn StdError + 'static)) -> bool {
    code_of_cause(error).is_some_and(|code| code == READ_ONLY)
}

/// Returns the SQLSTATE of an error that the server returned.
fn code_of_cause<'a>(error: &'a (dyn StdError + 'static)) -> Option<Cow<'a, str>> {
    // It is the source of the driver's error, also behind a transparent error, whose chain does not have that one.
    let error = error.downcast_ref::<Box<dyn DatabaseError>>();
    error.and_then(|error| error.code())
}

impl fmt::Debug for SqlxPostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlxPostgresStore")
            .field("connections", &self.pool().size())
            .field("timeout", &self.entries.timeout)
            .finish_non_exhaustive()
    }
}

delegate_store!(SqlxPostgresStore, entries);

/// How long to wait for the end of a statement whose call was dropped.
const UNCANCELLED_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Clone)]
struct Session {
    pool: PgPool,
    /// Whether statements are prepared under a name, once for each connection.
    names_statements: bool,
}

/// A connection that is put back only if its call ended well.
struct Connection(Option<PoolConnection<Postgres>>);

impl Session {
    async fn connection(&self) -> Result<Connection, Failed> {
        let connection = self.pool.acquire().await.map_err(failed)?;
        Ok(Connection(Some(connection)))
    }
}

impl Driver for Session {
    type Row = PgRow;

    async fn query(
        &self,
        statement: &'static Statement,
        values: &[Value<'_>],
    ) -> Result<Vec<PgRow>, Failed> {
        let mut connection = self.connection().await?;
        let values = statement.values(values);
        let result = if self.names_statements {
            fetch(connection.get(), statement.sql, values, true).await
        } else {
            fetch_in_transaction(connection.get(), statement.sql, values).await
        };
        match result {
            Ok(rows) => {
                connection.put_back();
                Ok(rows)
            }
            Err(error) => {
                // A statement that the server refused leaves the connection as good as before.
                if code(&error).is_some_and(|code| keeps_connection(&code)) {
                    connection.put_back();
                } else {
                    connection.discard();
                }
                Err(failed(error))
            }
        }
    }
}

async fn fetch<'v>(
    connection: &mut PgConnection,
    sql: &'static str,
    values: impl Iterator<Item = &'v Value<'v>>,
    is_named: bool,
) -> Result<Vec<PgRow>, Error> {
    let mut query = sqlx::query(sql).persistent(is_named);
    for value in values {
        query = match *value {
            Value::Text(text) => query.bind(text),
            Value::Texts(texts) => query.bind(texts),
            Value::Bytes(bytes) => query.bind(bytes),
            Value::Seconds(seconds) => query.bind(seconds),
            Value::Count(count) => query.bind(count),
        };
    }
    query.fetch_all(connection).await
}

/// Runs a statement without a name. sqlx sends the statement and its values apart, so that a pooler could send them to
/// two servers if it were not for the transaction.
async fn fetch_in_transaction<'v>(
    connection: &mut PgConnection,
    sql: &'static str,
    values: impl Iterator<Item = &'v Value<'v>>,
) -> Result<Vec<PgRow>, Error> {
    let mut transaction = connection.begin().await?;
    let rows = fetch(&mut transaction, sql, values, false).await?;
    transaction.commit().await?;
    Ok(rows)
}

impl Connection {
    fn get(&mut self) -> &mut PgConnection {
        let connection = self.0.as_mut();
        connection.expect("a connection is put back only at the end")
    }

    fn put_back(mut self) {
        self.0 = None;
    }

    /// Closes a connection that no statement runs on.
    fn discard(mut self) {
        if let Some(mut connection) = self.0.take() {
            connection.close_on_drop();
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let Some(connection) = self.0.take() else {
            return;
        };
        match Handle::try_current() {
            // In a task, because `drop` cannot wait for the server.
            Ok(runtime) => drop(runtime.spawn(put_back_later(connection))),
            Err(_) => drop(connection.detach()),
        }
    }
}

/// Waits for the end of the statement that still runs on a connection, ends its transaction, and puts it back.
///
/// It keeps its place in the pool until then. Otherwise the pool would open another one while the server still works
/// for this one, and a lock that lasts would use up all connections of the server. sqlx itself would wait without end
/// if the server no longer responds, so the connection is closed after a minute.
async fn put_back_later(mut connection: PoolConnection<Postgres>) {
    // If the call was dropped before the response to its `BEGIN`, sqlx does not know of the transaction, and the next
    // user of the connection would write into it. It is ended with a transaction of its own, because a `ROLLBACK` alone
    // is a warning in the log of the server if no transaction is open, as after most calls.
    let ended = async { connection.begin().await?.rollback().await };
    if let Ok(Ok(())) = timeout(UNCANCELLED_TIMEOUT, ended).await {
        return;
    }
    drop(connection.detach());
}

/// A connection with a transaction that is open.
struct InTransaction<'c> {
    connection: &'c mut PgConnection,
    names_statements: bool,
}

impl OpenTransaction for InTransaction<'_> {
    type Row = PgRow;

    async fn execute(&mut self, sql: &'static str) -> Result<(), Failed> {
        let executed = self.connection.execute(sqlx::raw_sql(sql)).await;
        executed.map(drop).map_err(failed)
    }

    async fn query_one(
        &mut self,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> Result<PgRow, Failed> {
        let rows = fetch(self.connection, sql, values.iter(), self.names_statements);
        let rows = rows.await.map_err(failed)?;
        rows.into_iter()
            .next()
            .ok_or_else(|| failed(Error::RowNotFound))
    }
}

impl Columns for PgRow {
    fn text(&self, name: &str) -> Result<Option<&str>, StoreError> {
        self.try_get(name).map_err(column_error)
    }

    fn bytes(&self, name: &str) -> Result<Option<&[u8]>, StoreError> {
        self.try_get(name).map_err(column_error)
    }

    fn boolean(&self, name: &str) -> Result<bool, StoreError> {
        self.try_get(name).map_err(column_error)
    }

    fn integer(&self, name: &str) -> Result<i32, StoreError> {
        self.try_get(name).map_err(column_error)
    }

    fn bigint(&self, name: &str) -> Result<i64, StoreError> {
        self.try_get(name).map_err(column_error)
    }

    fn float(&self, name: &str) -> Result<f64, StoreError> {
        self.try_get(name).map_err(column_error)
    }
}

fn column_error(error: Error) -> StoreError {
    failed(error).error
}

/// Returns the SQLSTATE of an error that the server returned.
fn code(error: &Error) -> Option<Cow<'_, str>> {
    error.as_database_error().and_then(DatabaseError::code)
}

fn failed(error: Error) -> Failed {
    if let Some(code) = code(&error).map(Cow::into_owned) {
        return Failed::of_code(&code, error);
    }
    match &error {
        // The wait for a connection ended. Nothing was sent.
        Error::PoolTimedOut => StoreError::unavailable(error).into(),
        // A certificate that is not trusted, or a server that speaks something else: a later call does not change that.
        Error::Io(failure) if failure.kind() == io::ErrorKind::InvalidData => {
            Failed::of_driver(false, error)
        }
        // A response that makes no sense belongs to another request.
        Error::Io(_) | Error::Protocol(_) | Error::WorkerCrashed => Failed::of_driver(true, error),
        _ => Failed::of_driver(false, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inbox::StoreErrorKind;

    #[test]
    fn a_certificate_that_is_not_trusted_is_no_outage() {
        let kind = |kind| failed(Error::Io(io::Error::from(kind))).error.kind();

        assert_eq!(kind(io::ErrorKind::InvalidData), StoreErrorKind::Unusable);
        assert_eq!(
            kind(io::ErrorKind::ConnectionReset),
            StoreErrorKind::Unavailable
        );
    }

    #[test]
    fn a_pool_without_a_free_connection_may_have_one_later() {
        let failed = failed(Error::PoolTimedOut);

        assert_eq!(failed.error.kind(), StoreErrorKind::Unavailable);
    }
}
