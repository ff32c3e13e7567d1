//! The store in Postgres over tokio-postgres.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Pool;
use tokio_postgres::{Client, IsolationLevel, Transaction};

use super::address::{Address, Tls};
use super::entries::{
    self, DEFAULT_TIMEOUT, Entries, Failed, MIGRATION_TIMEOUT, in_time, not_committed,
};
use super::session::{Session, failed, is_conflict, is_read_only};
use super::statements;
use crate::inbox::error::{InboxError, StoreError};
use crate::inbox::handle_in::{Retries, Undone, respond_in_time, run_handler};
use crate::inbox::handler_in::{EventHandler, apply_in_time, effects_of};
use crate::inbox::receipt::{Receipt, is_new};
use crate::inbox::store::delegate_store;
use crate::inbox::worker::DEFAULT_CONCURRENCY;
use crate::inbox::{Attempt, ClaimTarget, DEFAULT_RETENTION, Inbox, SHORTEST_RETENTION};
use crate::webhooks::{Event, VerifiedEvent};

/// Two for each handler of a worker with `handler_in`, and four for an endpoint beside it.
const DEFAULT_MAX_CONNECTIONS: usize = 2 * DEFAULT_CONCURRENCY + 4;

/// A store in Postgres, for any number of receivers and workers on any number of machines.
///
/// It needs PostgreSQL 13 or later and a database in UTF8. Leases and retention follow the clock of the database.
/// Each call is a transaction of its own, or shares one with other calls that wait simultaneously. Only
/// [`claim_in`](Self::claim_in) is part of yours. Clones share their connections.
///
/// # Example: connect and create the tables
///
/// ```no_run
/// use audience::inbox::{Inbox, PostgresStore};
///
/// # async fn start() -> Result<(), Box<dyn std::error::Error>> {
/// let store = PostgresStore::connect("postgres://inbox:secret@localhost/app").await?;
/// store.migrate().await?;
/// let inbox = Inbox::builder(store.clone()).build()?;
/// # let _ = inbox;
/// # Ok(())
/// # }
/// ```
///
/// # The tables
///
/// The store uses the tables `audience_inbox` and `audience_inbox_schema` that it finds in the schemas of the
/// `search_path`. If it finds none, [`migrate`](Self::migrate) creates them in the first of these schemas that exists.
/// For a schema of its own, name only that one in the address:
/// `postgres://localhost/app?options=-csearch_path%3Dinbox`. Stores in two schemas of a database do not see each
/// other's events. If a tool of yours runs the migrations, give it [`SCHEMA`](Self::SCHEMA), or print
/// [`schema_for`](Self::schema_for), which also has the rights that a role needs.
///
/// A done event takes about 280 bytes with its indexes, so a million events in 72 hours take about 280 MB, and twice that
/// with [`handler_in`](Self::handler_in), which has an entry of its own for each event. The
/// time that a call takes does not depend on their number. Done entries are deleted 500 at a time, and the deletion
/// never waits for a lock.
///
/// The tables ask for more frequent vacuuming than the default, because a queue leaves dead rows behind. Leave
/// autovacuum on, and keep no transaction open for hours: rows that died since it began cannot be removed.
///
/// # When the database is down
///
/// A call ends after the [`timeout`](PostgresStoreBuilder::timeout) with an error of the kind
/// [`Unavailable`](crate::inbox::StoreErrorKind::Unavailable). Connections that broke are replaced. A call that
/// lost its connection is retried once if a second run has the same effect. A call that lost against another
/// transaction is retried for half of that time.
///
/// If a call times out, its statement is cancelled. The pool replaces its connection only after the server has
/// closed it, or after a minute, so the server never has more connections than the pool may have, even behind a lock that
/// lasts. On connections that [`connect`](Self::connect) opens, `statement_timeout` and `lock_timeout` are set to a second more
/// than the timeout of a call. They also hold for transactions of your own on these connections.
///
/// On the role or the database, set `idle_in_transaction_session_timeout = '30s'`, too: a transaction that stays
/// open after [`claim_in`](Self::claim_in) blocks every other claim of its event. If you bring a pool of your own,
/// also set `statement_timeout = '10s'` and `lock_timeout = '5s'`.
///
/// After a failover, a connection may lead to a server that only reads. It is closed after the first call that fails by
/// this, and the next call gets another one. If the address names several servers, add
/// `target_session_attrs=read-write`, so that connections are opened only to the one that writes:
/// `postgres://inbox@db-1,db-2/app?target_session_attrs=read-write`.
///
/// After a failover to a replica that is behind, events can be handled again and accepted events can be
/// missing. Replicate synchronously if that matters. With `synchronous_commit = off`, the same is true of a
/// crash.
///
/// # One runtime
///
/// A connection belongs to the tokio runtime that opened it, and works only while that one runs. So use a store and its
/// clones in one runtime, and let a program with two, such as one whose tests have a runtime each, connect a store in each
/// of them.
///
/// # Connection poolers
///
/// Statements are prepared once for each connection. A pooler in transaction mode, such as `PgBouncer`, has to
/// support that: `PgBouncer` since version 1.21, with `max_prepared_statements`. For other poolers, turn on
/// [`unnamed_statements`](PostgresStoreBuilder::unnamed_statements). Without it, such a pooler may run a statement of
/// another program instead of the store's. This changes nothing in the tables of the inbox: the call fails or returns
/// that the lease is lost.
///
/// A pooler, such as `PgBouncer` or RDS Proxy, may refuse connections that set `statement_timeout`. The store then connects
/// without it, so set it on the role.
#[derive(Clone)]
pub struct PostgresStore {
    entries: Entries<Session>,
    retention: Duration,
}

/// Builds a [`PostgresStore`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is connected or built"]
pub struct PostgresStoreBuilder {
    timeout: Duration,
    retention: Duration,
    max_connections: usize,
    requires_verified_tls: bool,
    names_statements: bool,
}

impl PostgresStore {
    /// The SQL that creates the tables, for a migration tool such as sqlx, diesel or refinery.
    ///
    /// It is several statements. Running it again changes nothing. The file is `migrations/postgres` in this package.
    ///
    /// ```sql
    #[doc = include_str!("../../../migrations/postgres/0001_audience_inbox.sql")]
    /// ```
    pub const SCHEMA: &str = statements::SCHEMA;

    /// Returns the SQL with which an administrator creates the tables in this schema, and gives a role the rights that the
    /// store needs. The schema and the role must exist. It is one transaction, and running it again changes nothing.
    ///
    /// The store finds the tables if the schema is in the `search_path` of its connections.
    ///
    /// # Example: print it
    ///
    /// ```
    /// use audience::inbox::PostgresStore;
    ///
    /// let sql = PostgresStore::schema_for("public", "receiver");
    ///
    /// assert!(sql.contains(r#"GRANT USAGE ON SCHEMA "public" TO "receiver";"#));
    /// ```
    #[must_use]
    pub fn schema_for(schema: &str, role: &str) -> String {
        statements::schema_for(schema, role)
    }

    /// The SQL that [`claim_in`](Self::claim_in) runs, for a transaction of another driver.
    ///
    /// | parameter | type | value |
    /// |---|---|---|
    /// | `$1` | `text` | the endpoint, such as `bounces`. No inbox may have this name |
    /// | `$2` | `text` | the id of the event |
    /// | `$3` | `bytea` | the 16 bytes of the [`Fingerprint`](crate::inbox::Fingerprint) of the body, or `NULL` |
    /// | `$4` | `float8` | how long the event is remembered, in seconds: usually 259200, and at least 21600 |
    ///
    /// It returns one row with one column of type `text`:
    ///
    /// | outcome | meaning |
    /// |---|---|
    /// | `claimed` | The event is yours: apply its effects, and commit. |
    /// | `done`, `parked` | It was handled or given up before. Respond with a success. |
    /// | `in_progress` | It is claimed, or waits for its next attempt. Roll back, and respond with 503. |
    /// | `conflict` | The event was handled or stored, or is being handled, with another body. |
    /// | `again` | Another transaction was faster. Run the statement again, or respond with 503. |
    ///
    /// Only a commit after `claimed` makes the event done.
    ///
    /// # Example: sqlx
    ///
    /// ```text
    /// let mut transaction = pool.begin().await?;
    /// let outcome: String = sqlx::query_scalar(PostgresStore::CLAIM_IN)
    ///     .bind("bounces")
    ///     .bind(event.id.as_str())
    ///     .bind(None::<Vec<u8>>)
    ///     .bind(259_200.0_f64)
    ///     .fetch_one(&mut *transaction)
    ///     .await?;
    /// match outcome.as_str() {
    ///     "claimed" => {
    ///         sqlx::query("UPDATE contacts SET bounced = true WHERE email = $1")
    ///             .bind(&email)
    ///             .execute(&mut *transaction)
    ///             .await?;
    ///         transaction.commit().await?;
    ///         Ok(StatusCode::OK)
    ///     }
    ///     "done" | "parked" => Ok(StatusCode::OK),
    ///     _ => Ok(StatusCode::SERVICE_UNAVAILABLE),
    /// }
    /// ```
    pub const CLAIM_IN: &str = statements::CLAIM_IN;

    /// Creates a store on a pool of your own, for settings of your own. It does not connect.
    ///
    /// The pool is a [`deadpool_postgres::Pool`](crate::inbox::deadpool_postgres::Pool). If the pool is shared
    /// with the rest of the program, leave the inbox a connection for each handler that runs simultaneously.
    ///
    /// # Example: a pool with settings of your own
    ///
    /// ```
    /// use audience::inbox::PostgresStore;
    /// use audience::inbox::deadpool_postgres::tokio_postgres::{Client, Config, NoTls};
    /// use audience::inbox::deadpool_postgres::{Manager, Pool};
    ///
    /// let mut config = Config::new();
    /// config.host("localhost").user("inbox").dbname("app");
    /// let pool = Pool::builder(Manager::new(config, NoTls)).max_size(8).build()?;
    /// let store = PostgresStore::new(pool);
    /// # let _ = store;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn new(pool: Pool) -> Self {
        Self::builder().build(pool)
    }

    /// Connects to the database, with a pool of up to 20 connections.
    ///
    /// The address is a URL, or words such as `host=localhost user=inbox`. Special characters of a password in a URL
    /// are percent-encoded. The address may have the options of
    /// [tokio-postgres](https://docs.rs/tokio-postgres/0.7/tokio_postgres/config/struct.Config.html), and these options
    /// for TLS, with the feature `inbox-postgres-rustls`:
    ///
    /// | option | value | meaning |
    /// |---|---|---|
    /// | `sslmode` | `disable` | never TLS |
    /// | | `prefer`, the default | TLS if the server has it, with any certificate |
    /// | | `require` | TLS with any certificate |
    /// | | `verify-ca` | TLS with a certificate of an authority in `sslrootcert`, for any host |
    /// | | `verify-full` | TLS with a certificate of a trusted authority for this host |
    /// | `sslrootcert` | a file of certificates in PEM | the only trusted authorities. With it, `prefer` and `require` check the certificate like `verify-ca` |
    /// | | `system` | the authorities that the operating system trusts. The mode has to be `verify-full`, which is the default then |
    /// | `sslcert`, `sslkey` | files in PEM | a certificate for the server, and its key without a password |
    ///
    /// These are the options of libpq, with two differences. Without `sslrootcert`, `verify-full` trusts the
    /// authorities that the operating system trusts, and no file in the home directory is read. And a self-signed
    /// certificate of the server is refused if it is marked as an authority, as `openssl req -x509` does, even if
    /// `sslrootcert` names it.
    ///
    /// TLS uses rustls, with the provider that the program installed by
    /// [`CryptoProvider::install_default`](https://docs.rs/rustls/0.23/rustls/crypto/struct.CryptoProvider.html#method.install_default),
    /// or else with AWS-LC. For other TLS, bring a [pool of your own](Self::new). Without the feature, `prefer` means
    /// no TLS, and the other modes are refused.
    ///
    /// # Errors
    ///
    /// - `Unavailable` if the database cannot be reached.
    /// - `Unusable` if the address is invalid, has an unknown option, or requires TLS that is not turned on; if the
    ///   certificate of the server is not trusted, or a certificate file cannot be read; or if the user, the password
    ///   or the name of the database is wrong.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    ///
    /// # Example: tell an outage from a wrong address
    ///
    /// ```
    /// use audience::inbox::{PostgresStore, StoreErrorKind};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let outage = PostgresStore::connect("postgres://inbox@127.0.0.1:1/app").await.unwrap_err();
    /// assert_eq!(outage.kind(), StoreErrorKind::Unavailable); // a later call may succeed
    ///
    /// let wrong = PostgresStore::connect("postgres://inbox@127.0.0.1:1/app?sslmode=on").await.unwrap_err();
    /// assert_eq!(wrong.kind(), StoreErrorKind::Unusable); // there is no such mode
    /// # Ok(()) }
    /// ```
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::builder().connect(url).await
    }

    /// Checks the address, and connects with the first call, so that the program can start while the database is down.
    ///
    /// Until the database can be reached, calls return [`Unavailable`](crate::inbox::StoreErrorKind::Unavailable),
    /// deliveries get a 503, and workers keep trying. A wrong password or an untrusted certificate is also found only
    /// by the first call, as `Unusable`.
    ///
    /// [`migrate_when_available`](Self::migrate_when_available) creates the tables as soon as the database responds.
    /// Run it beside the server, and end the program if it fails: the reason is then not an outage, and no retry helps.
    ///
    /// ```no_run
    /// use audience::inbox::{Inbox, PostgresStore};
    ///
    /// # async fn handle(_: audience::webhooks::Event, _: audience::inbox::Attempt) -> std::io::Result<()> { Ok(()) }
    /// # fn router(_: Inbox) -> axum::Router { axum::Router::new() }
    /// # async fn run(listener: tokio::net::TcpListener) -> Result<(), Box<dyn std::error::Error>> {
    /// let store = PostgresStore::connect_lazy("postgres://shop:secret@localhost/shop")?;
    /// let inbox = Inbox::builder(store.clone()).build()?;
    /// let server = audience::serve(listener, router(inbox.clone())).worker(inbox.worker(handle));
    /// tokio::select! {
    ///     ended = server.into_future() => Ok(ended?), // until the tables exist, deliveries get a 503
    ///     Err(error) = store.migrate_when_available() => Err(error.into()),
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`Unusable`](crate::inbox::StoreErrorKind::Unusable) if the address is invalid, or if one of its
    /// certificates cannot be read.
    ///
    /// # Example: an invalid address is found immediately
    ///
    /// ```
    /// use audience::inbox::PostgresStore;
    ///
    /// assert!(PostgresStore::connect_lazy("postgres://inbox@db.internal/app").is_ok());
    /// assert!(PostgresStore::connect_lazy("postgres://inbox@db.internal:port/app").is_err());
    /// ```
    pub fn connect_lazy(url: &str) -> Result<Self, StoreError> {
        Self::builder().connect_lazy(url)
    }

    /// Starts building a store.
    ///
    /// # Example: fewer connections and a shorter timeout
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use audience::inbox::PostgresStore;
    ///
    /// # async fn start() -> Result<(), audience::inbox::StoreError> {
    /// let store = PostgresStore::builder()
    ///     .max_connections(4)
    ///     .timeout(Duration::from_secs(2))
    ///     .connect("postgres://inbox:secret@localhost/app")
    ///     .await?;
    /// # let _ = store;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder() -> PostgresStoreBuilder {
        PostgresStoreBuilder {
            timeout: DEFAULT_TIMEOUT,
            retention: DEFAULT_RETENTION,
            max_connections: DEFAULT_MAX_CONNECTIONS,
            requires_verified_tls: false,
            names_statements: true,
        }
    }

    /// Returns the connections of the store, for transactions of your own in the same database.
    ///
    /// The inbox waits while all of them are in use. So do not hold one while you call a method of the inbox or of an
    /// `UnsubscribeService`, or while you wait for another server: several such callers can use up the pool, and all of
    /// them fail after the [`timeout`](PostgresStoreBuilder::timeout).
    ///
    /// The [limits of a statement](Self#when-the-database-is-down) hold for yours, too. Nothing limits the wait for a
    /// free connection, or for a server that does not respond. So put `tokio::time::timeout` around all that you do
    /// with a connection, `get` included.
    /// [`handle_in`](Self::handle_in) and [`handler_in`](Self::handler_in) have limits of their own.
    ///
    /// # Example: how busy the connections are
    ///
    /// ```
    /// use audience::inbox::PostgresStore;
    /// # use audience::inbox::deadpool_postgres::tokio_postgres::{Client, Config, NoTls};
    /// # use audience::inbox::deadpool_postgres::{Manager, Pool};
    ///
    /// # let pool = Pool::builder(Manager::new(Config::new(), NoTls)).max_size(8).build()?;
    /// let store = PostgresStore::new(pool);
    ///
    /// let status = store.pool().status();
    ///
    /// assert_eq!((status.max_size, status.size, status.waiting), (8, 0, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn pool(&self) -> &Pool {
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
    /// - `Unusable` if the role may not create tables, the server is older than version 13, the database is
    ///   not in UTF8, or the tables were made by a newer version of this crate.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    ///
    /// # Example: create the tables when the program starts
    ///
    /// ```no_run
    /// use audience::inbox::{Inbox, PostgresStore};
    ///
    /// # async fn start() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = PostgresStore::connect("postgres://inbox:secret@localhost/app").await?;
    ///
    /// store.migrate().await?;
    ///
    /// let inbox = Inbox::builder(store).build()?;
    /// # let _ = inbox;
    /// # Ok(()) }
    /// ```
    pub async fn migrate(&self) -> Result<(), StoreError> {
        let migration = async {
            let mut connection = self.entries.driver.connection().await?;
            let client: &mut Client = connection.client();
            let transaction = client
                .build_transaction()
                .isolation_level(IsolationLevel::ReadCommitted)
                .start();
            let mut transaction = transaction.await.map_err(failed)?;
            entries::migrate(&mut transaction).await?;
            transaction.commit().await.map_err(failed)?;
            // If this is not reached, it is closed, since the transaction may still be open on it.
            connection.put_back();
            Ok(())
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
    /// See [`connect_lazy`](Self::connect_lazy).
    pub async fn migrate_when_available(&self) -> Result<(), StoreError> {
        entries::when_available(&self.entries.migration, || self.migrate()).await
    }

    /// Claims an event as part of your transaction, and marks it as done. Returns `true` if the event is new.
    ///
    /// Apply the effect of a new event in the same transaction, and commit: both happen, or neither, so the effect
    /// happens exactly once. `false` means that the event was handled or parked before. Concurrent transactions wait
    /// for each other, and exactly one that commits gets `true`.
    ///
    /// The transaction may be one of tokio-postgres or of deadpool-postgres, and may have savepoints.
    ///
    /// [`handle_in`](Self::handle_in) does this and all that belongs to it: the transaction, the time limit, and the
    /// response. [`handler_in`](Self::handler_in) does the same for a worker.
    ///
    /// Once a minute, a task of the store deletes the forgotten ids, on a connection of the store's own.
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
    /// use audience::inbox::PostgresStore;
    /// use audience::webhooks::{EventData, VerifiedEvent};
    ///
    /// /// Respond with 200 if this succeeds, otherwise with 503.
    /// async fn receive(
    ///     store: &PostgresStore,
    ///     delivery: &VerifiedEvent,
    /// ) -> Result<(), Box<dyn std::error::Error>> {
    ///     let EventData::Bounced(mail) = &delivery.data else {
    ///         return Ok(());
    ///     };
    ///     let mut client = store.pool().get().await?;
    ///     let mut transaction = client.transaction().await?;
    ///     if store.claim_in(&mut transaction, "bounces", delivery).await? {
    ///         let mark = "UPDATE people SET bounces = bounces + 1 WHERE email = $1";
    ///         transaction.execute(mark, &[&mail.address()]).await?;
    ///     }
    ///     transaction.commit().await?;
    ///     Ok(())
    /// }
    /// ```
    pub async fn claim_in<'a>(
        &self,
        transaction: &mut Transaction<'_>,
        endpoint: &str,
        event: impl Into<ClaimTarget<'a>>,
    ) -> Result<bool, InboxError> {
        self.entries.purge_if_due();
        let claimed = entries::claim_in(transaction, endpoint, event.into(), self.retention);
        is_new(claimed.await.map_err(StoreError::from)?)
    }

    /// Handles a delivery to an endpoint **without an inbox**: claims the event and runs the handler in one transaction,
    /// and returns the response. The handler's writes take effect **exactly once**, even after a crash.
    ///
    /// No inbox may have this endpoint name. The default name of an inbox is `main`. With an inbox, call
    /// [`Inbox::handle`](crate::inbox::Inbox::handle) with [`handler_in`](Self::handler_in): here, an event whose worker
    /// was killed after its commit would have its effect twice.
    ///
    /// The transaction is one of the store's own [connections](Self::pool). It is committed if the handler returns
    /// `Ok`. If the handler returns an error or panics, its writes and the claim are undone, the receipt is
    /// [`Failed`](Receipt::Failed), and the service retries. The handler must not end the transaction itself.
    ///
    /// A transaction that loses against another one (a deadlock, or a serialization failure) is run again a few times.
    /// Each run calls a clone of the handler, and only the writes of the last run remain. For that, the handler has to
    /// return the error of tokio-postgres, or an error whose `source()` leads to it.
    ///
    /// The receipt is [`Unavailable`](Receipt::Unavailable), a 503, if the database fails, and if the transaction has
    /// not ended 8 s after the delivery arrived. It is then cancelled and undone, and no statement of it keeps running.
    /// If the connection is lost during the commit, the receipt is the same, although the commit may have succeeded.
    /// Then the next delivery is a [`Duplicate`](Receipt::Duplicate). If this future is dropped, for example because
    /// the sender disconnects, the transaction is undone, too.
    ///
    /// The id is remembered for the [retention](PostgresStoreBuilder::retention). Once a minute, a task of the store
    /// deletes the forgotten ids.
    ///
    /// # The handler
    ///
    /// The handler gets a [`tokio_postgres::Transaction`](Transaction). To name the type, import it from the driver
    /// that this crate exports: `use audience::inbox::deadpool_postgres::tokio_postgres::Transaction;`.
    ///
    /// Its error is the driver's, one of your own that implements [`Error`](std::error::Error), a `String` or a `&str`:
    /// any type that can be converted into `Box<dyn Error + Send + Sync>`. The error's text is logged, so it must not
    /// contain an address. The rows that an error of Postgres quotes are left out.
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
    /// use audience::inbox::deadpool_postgres::tokio_postgres;
    /// use audience::inbox::{PostgresStore, Receipt};
    /// use audience::webhooks::{EventData, VerifiedEvent, Verifier};
    /// use axum::extract::{FromRef, State};
    /// use axum::{Router, routing::post};
    ///
    /// #[derive(Clone, FromRef)]
    /// struct App {
    ///     verifier: Verifier,
    ///     store: PostgresStore,
    /// }
    ///
    /// async fn hook(State(app): State<App>, delivery: VerifiedEvent) -> Receipt {
    ///     app.store
    ///         .handle_in("bounces", delivery, async |transaction, event| {
    ///             if let EventData::Bounced(mail) = &event.data {
    ///                 let count = "UPDATE people SET bounces = bounces + 1 WHERE email = $1";
    ///                 transaction.execute(count, &[&mail.address()]).await?;
    ///             }
    ///             Ok::<_, tokio_postgres::Error>(())
    ///         })
    ///         .await
    /// }
    ///
    /// # async fn start() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = PostgresStore::connect("postgres://shop:secret@localhost/shop").await?;
    /// store.migrate().await?;
    /// let app = App { verifier: Verifier::new("6Jm0nFq2pXvZk4Tt")?, store };
    /// let router: Router = Router::new().route("/hook", post(hook)).with_state(app);
    /// # Ok(()) }
    /// ```
    ///
    /// # Example: a handler in a function of its own
    ///
    /// ```no_run
    /// use audience::inbox::deadpool_postgres::tokio_postgres::{Error, Transaction};
    /// use audience::inbox::{PostgresStore, Receipt};
    /// use audience::webhooks::{Event, VerifiedEvent};
    ///
    /// async fn count(transaction: &mut Transaction<'_>, event: Event) -> Result<(), Error> {
    ///     let count = "INSERT INTO counter (type, events) VALUES ($1, 1)
    ///         ON CONFLICT (type) DO UPDATE SET events = counter.events + 1";
    ///     transaction.execute(count, &[&event.event_type().as_str()]).await?;
    ///     Ok(())
    /// }
    ///
    /// async fn receive(store: &PostgresStore, delivery: VerifiedEvent) -> Receipt {
    ///     store.handle_in("counter", delivery, count).await
    /// }
    /// # let _ = receive;
    /// ```
    pub async fn handle_in<E>(
        &self,
        endpoint: &str,
        delivery: VerifiedEvent,
        handler: impl AsyncFnOnce(&mut Transaction<'_>, Event) -> Result<(), E> + Clone,
    ) -> Receipt
    where
        E: Into<Box<dyn Error + Send + Sync>>,
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
    /// The closure, or a function, gets a [`tokio_postgres::Transaction`](Transaction). It is like the handler of
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
    /// An attempt fails if its transaction has not ended after 15 s. The transaction is then cancelled and undone. If
    /// your transactions take longer, use [`claim_in`](Self::claim_in) in a handler of your own.
    ///
    /// Give the pool two connections for each handler that runs simultaneously: one for its transaction, and one for
    /// the inbox. The [default](PostgresStoreBuilder::max_connections) is enough for one worker.
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
    /// use audience::inbox::deadpool_postgres::tokio_postgres;
    /// use audience::inbox::{Inbox, PostgresStore};
    /// use audience::webhooks::EventData;
    ///
    /// # async fn start() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = PostgresStore::connect("postgres://shop:secret@localhost/shop").await?;
    /// store.migrate().await?;
    /// let inbox = Inbox::builder(store.clone()).build()?;
    ///
    /// let worker = inbox.worker(store.handler_in(&inbox, async |transaction, event| {
    ///     if let EventData::Bounced(mail) = &event.data {
    ///         let count = "UPDATE people SET bounces = bounces + 1 WHERE email = $1";
    ///         transaction.execute(count, &[&mail.address()]).await?;
    ///     }
    ///     Ok::<_, tokio_postgres::Error>(())
    /// }));
    /// worker.run_until(audience::shutdown_signal()).await?;
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
        F: AsyncFnOnce(&mut Transaction<'_>, Event) -> Result<(), E>
            + Clone
            + Send
            + Sync
            + 'static,
        E: Into<Box<dyn Error + Send + Sync>> + 'static,
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
        handler: impl AsyncFnOnce(&mut Transaction<'_>, Event) -> Result<(), E> + Clone,
    ) -> Result<Receipt, Undone>
    where
        E: Into<Box<dyn Error + Send + Sync>>,
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

    /// Runs the transaction of an event once. A future that is dropped leaves no statement running.
    async fn transact_once<E>(
        &self,
        endpoint: &str,
        claim: ClaimTarget<'_>,
        event: &Event,
        handler: impl AsyncFnOnce(&mut Transaction<'_>, Event) -> Result<(), E>,
    ) -> Result<Receipt, Undone>
    where
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let mut connection = self.entries.driver.connection().await?;
        let client: &mut Client = connection.client();
        let mut transaction = client.transaction().await.map_err(failed)?;
        let handled = async {
            let claimed = entries::claim_in(&mut transaction, endpoint, claim, self.retention);
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
}

/// Ends a transaction with its commit. Fails if a statement failed in it: Postgres then responds to `COMMIT` with a
/// success, although it rolls back.
const COMMIT: &str = "SELECT; COMMIT";

async fn commit(transaction: Transaction<'_>) -> Result<(), Failed> {
    transaction.batch_execute(COMMIT).await.map_err(failed)?;
    // The transaction has ended. Dropping it would roll it back, which is a warning in the log of the server.
    std::mem::forget(transaction);
    Ok(())
}

impl PostgresStoreBuilder {
    /// Sets how long a call may take, the wait for a connection included. Default: 5 s.
    ///
    /// [`claim_in`](PostgresStore::claim_in) is not limited: it is part of your transaction.
    ///
    /// # Example: a server that never responds
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use audience::inbox::{PostgresStore, StoreErrorKind};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = tokio::net::TcpListener::bind("127.0.0.1:0").await?; // accepts, and says nothing
    /// let url = format!("postgres://inbox@{}/app", server.local_addr()?);
    ///
    /// let connected = PostgresStore::builder().timeout(Duration::from_millis(20)).connect(&url).await;
    ///
    /// assert_eq!(connected.unwrap_err().kind(), StoreErrorKind::Unavailable);
    /// # Ok(()) }
    /// ```
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets how long [`claim_in`](PostgresStore::claim_in) and [`handle_in`](PostgresStore::handle_in) remember an event.
    /// Default: 72 h.
    ///
    /// Less than 6 hours counts as 6 hours: the service retries for about five hours
    /// ([interface section 6.5](crate::interface#6.5)).
    /// For all other calls, use [`InboxBuilder::retention`](crate::inbox::InboxBuilder::retention).
    ///
    /// # Example: remember events for a week
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use audience::inbox::PostgresStore;
    ///
    /// # async fn start() -> Result<(), audience::inbox::StoreError> {
    /// let store = PostgresStore::builder()
    ///     .retention(Duration::from_secs(7 * 86_400))
    ///     .connect("postgres://inbox:secret@localhost/app")
    ///     .await?;
    /// # let _ = store;
    /// # Ok(()) }
    /// ```
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = retention.max(SHORTEST_RETENTION);
        self
    }

    /// Sets the largest number of connections that [`connect`](Self::connect) opens. Default: 20, which is enough for one
    /// worker with [`handler_in`](PostgresStore::handler_in) and its default [`concurrency`](crate::inbox::Worker::concurrency),
    /// and for an endpoint beside it.
    ///
    /// # Example: share a small server
    ///
    /// ```no_run
    /// use audience::inbox::PostgresStore;
    ///
    /// # async fn start() -> Result<(), audience::inbox::StoreError> {
    /// let store = PostgresStore::builder()
    ///     .max_connections(2)
    ///     .connect("postgres://inbox:secret@localhost/app")
    ///     .await?;
    ///
    /// assert_eq!(store.pool().status().max_size, 2);
    /// # Ok(()) }
    /// ```
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.max_connections = connections;
        self
    }

    /// Refuses an address without `sslmode=verify-full` or `verify-ca`, so that nobody turns off the check of the server's
    /// certificate by an address. Default: the address decides.
    ///
    /// It concerns [`connect`](Self::connect), [`connect_lazy`](Self::connect_lazy) and
    /// [`connect_lazy_from_env`](Self::connect_lazy_from_env), not a pool of your own.
    ///
    /// # Example: an address that would send events unencrypted
    ///
    /// ```
    /// use audience::inbox::PostgresStore;
    ///
    /// let builder = PostgresStore::builder().require_verified_tls();
    ///
    /// assert!(builder.connect_lazy("postgres://inbox@db.internal/app?sslmode=require").is_err());
    /// ```
    pub fn require_verified_tls(mut self) -> Self {
        self.requires_verified_tls = true;
        self
    }

    /// Sends each statement in full instead of preparing it under a name, for a pooler in transaction mode that
    /// does not support prepared statements, such as `PgBouncer` before version 1.21.
    ///
    /// The statement of a call that times out is then not cancelled, because a request to cancel can crash `PgBouncer`
    /// 1.18 to 1.20. It ends by itself, so set `statement_timeout = '6s'` on the role.
    ///
    /// # Example: behind an old pooler
    ///
    /// ```no_run
    /// use audience::inbox::PostgresStore;
    ///
    /// # async fn start() -> Result<(), audience::inbox::StoreError> {
    /// let store = PostgresStore::builder()
    ///     .unnamed_statements()
    ///     .connect("postgres://inbox:secret@pooler:6432/app")
    ///     .await?;
    /// # let _ = store;
    /// # Ok(()) }
    /// ```
    pub fn unnamed_statements(mut self) -> Self {
        self.names_statements = false;
        self
    }

    /// Connects to the database.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`PostgresStore::connect`].
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    ///
    /// # Example: an address that is no URL
    ///
    /// ```
    /// use std::error::Error;
    ///
    /// use audience::inbox::PostgresStore;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let error = PostgresStore::builder().connect("localhost:5432").await.unwrap_err();
    ///
    /// let cause = error.source().ok_or("every error of a store has a cause")?.to_string();
    /// assert!(cause.contains("postgres://user:password@host:port/database"));
    /// # Ok(()) }
    /// ```
    pub async fn connect(self, url: &str) -> Result<PostgresStore, StoreError> {
        let store = self.connect_lazy(url)?;
        let session = &store.entries.driver;
        // A wrong address or password fails here, not with the first delivery.
        in_time(store.entries.timeout, session.connection())
            .await?
            .put_back();
        Ok(store)
    }

    /// Checks the address, and connects with the first call. See [`PostgresStore::connect_lazy`].
    ///
    /// # Errors
    ///
    /// Returns [`Unusable`](crate::inbox::StoreErrorKind::Unusable) if the address is invalid, or if one of its
    /// certificates cannot be read.
    ///
    /// # Example: a program that starts while the database is down
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use audience::inbox::PostgresStore;
    ///
    /// let store = PostgresStore::builder()
    ///     .timeout(Duration::from_secs(2))
    ///     .connect_lazy("postgres://inbox@db.internal/app")?;
    ///
    /// assert_eq!(store.pool().status().size, 0);
    /// # Ok::<(), audience::inbox::StoreError>(())
    /// ```
    pub fn connect_lazy(self, url: &str) -> Result<PostgresStore, StoreError> {
        let address = Address::parse(url)?;
        if self.requires_verified_tls {
            address.require_verified_tls()?;
        }
        let (pool, tls) = address.pool(self.max_connections, self.timeout)?;
        Ok(self.build_with(pool, tls))
    }

    /// Builds a store on a pool of your own, like [`PostgresStore::new`].
    ///
    /// # Example: a shorter timeout for a pool with TLS
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use audience::inbox::PostgresStore;
    /// # use audience::inbox::deadpool_postgres::tokio_postgres::{Client, Config, NoTls};
    /// # use audience::inbox::deadpool_postgres::{Manager, Pool};
    ///
    /// # let pool = Pool::builder(Manager::new(Config::new(), NoTls)).max_size(8).build()?;
    /// let store = PostgresStore::builder().timeout(Duration::from_secs(2)).build(pool);
    ///
    /// assert!(format!("{store:?}").contains("timeout: 2s"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn build(self, pool: Pool) -> PostgresStore {
        self.build_with(pool, Tls::None)
    }

    fn build_with(self, pool: Pool, tls: Tls) -> PostgresStore {
        let session = Session {
            pool,
            names_statements: self.names_statements,
            tls,
        };
        PostgresStore {
            entries: Entries::new(session, self.timeout),
            retention: self.retention,
        }
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self.entries.driver.pool.status();
        f.debug_struct("PostgresStore")
            .field("connections", &status.size)
            .field("timeout", &self.entries.timeout)
            .finish_non_exhaustive()
    }
}

delegate_store!(PostgresStore, entries);
