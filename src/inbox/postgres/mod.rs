//! A store in Postgres.

pub use deadpool_postgres;

use std::error::Error;
use std::fmt;
use std::io;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use deadpool_postgres::{Manager, Object, Pool, PoolError};
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_postgres::config::{SslMode, SslNegotiation};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{FromSql, ToSql, Type};
use tokio_postgres::{Client, Config, IsolationLevel, NoTls, Row, Transaction};

use crate::inbox::ClaimTarget;
use crate::inbox::error::{InboxError, StoreError, StoreErrorKind};
use crate::inbox::store::{
    AcceptState, Backlog, ClaimState, EventKey, HeldClaim, NewClaim, NewDelivery, ParkedEvent,
    Release, Store, Take, TakenEvent,
};
use crate::webhooks::EventId;

const DEFAULT_MAX_CONNECTIONS: usize = 16;
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
const DEFAULT_RETENTION: Duration = Duration::from_secs(72 * 3_600);
/// The service retries for about five hours (interface section 6.5).
const SHORTEST_RETENTION: Duration = Duration::from_secs(6 * 3_600);

/// A store in Postgres, for any number of receivers and workers on any number of machines.
///
/// It needs PostgreSQL 13 or later and a database in UTF8. Leases and retention follow the clock of the database.
/// Each call is one statement and a transaction of its own, except that [`claim_in`](Self::claim_in) is part of
/// yours. Clones share their connections.
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
/// `postgres://localhost/app?options=-csearch_path%3Dinbox`. Stores in two schemas of a database do not see each other's
/// events. If a tool of yours runs the migrations, give it [`SCHEMA`](Self::SCHEMA), which also has the rights that a
/// role needs.
///
/// A done event takes about 200 bytes with its indexes, so a million events in 72 hours take about 200 MB. The
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
/// transaction is retried a few times.
///
/// If a call times out, its statement is cancelled. The pool replaces its connection only after the server has
/// closed it, so the server never has more connections than the pool may have, even behind a lock that lasts. On
/// connections that [`connect`](Self::connect) opens, `statement_timeout` and `lock_timeout` are set to a second more
/// than the timeout of a call. They also hold for transactions of your own on these connections.
///
/// On the role or the database, set `idle_in_transaction_session_timeout = '30s'`, too: a transaction that stays
/// open after [`claim_in`](Self::claim_in) blocks every other claim of its event. If you bring a pool of your own,
/// also set `statement_timeout = '10s'` and `lock_timeout = '5s'`.
///
/// After a failover to a replica that is behind, events can be handled again and accepted events can be
/// missing. Replicate synchronously if that matters. With `synchronous_commit = off`, the same is true of a
/// crash.
///
/// # Connection poolers
///
/// Statements are prepared once for each connection. A pooler in transaction mode, such as `PgBouncer`, has to
/// support that: `PgBouncer` since version 1.21, with `max_prepared_statements`. For other poolers, turn on
/// [`unnamed_statements`](PostgresStoreBuilder::unnamed_statements). Without it, such a pooler may run a statement of
/// another program instead of the store's. This changes nothing in the tables of the inbox: the call fails or returns
/// that the lease is lost.
///
/// A pooler may refuse connections that set `statement_timeout`. The store then connects without it, so set it on
/// the role.
#[derive(Clone)]
pub struct PostgresStore {
    session: Session,
    retention: Duration,
}

/// Builds a [`PostgresStore`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is connected or built"]
pub struct PostgresStoreBuilder {
    timeout: Duration,
    retention: Duration,
    max_connections: usize,
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
    pub const SCHEMA: &str = include_str!("../../../migrations/postgres/0001_audience_inbox.sql");

    /// The SQL that [`claim_in`](Self::claim_in) runs, for a transaction of another driver.
    ///
    /// | parameter | type | value |
    /// |---|---|---|
    /// | `$1` | `text` | the endpoint, such as `main` |
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
    /// | `conflict` | The id was received with another body. |
    /// | `again` | Another transaction was faster. Run the statement again, or respond with 503. |
    ///
    /// Only a commit after `claimed` makes the event done.
    ///
    /// # Example: sqlx
    ///
    /// ```text
    /// let mut transaction = pool.begin().await?;
    /// let outcome: String = sqlx::query_scalar(PostgresStore::CLAIM_IN)
    ///     .bind("main")
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
    pub const CLAIM_IN: &str = include_str!("sql/claim_in.sql");

    /// Creates a store on a pool of your own, for TLS and for settings of your own. It does not connect.
    ///
    /// The pool is a [`deadpool_postgres::Pool`](crate::inbox::deadpool_postgres::Pool). If the pool is shared
    /// with the rest of the program, leave the inbox a connection for each handler that runs simultaneously.
    ///
    /// # Example: a pool with settings of your own
    ///
    /// ```
    /// use audience::inbox::PostgresStore;
    /// use audience::inbox::deadpool_postgres::tokio_postgres::{Config, NoTls};
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

    /// Connects without TLS, with a pool of up to 16 connections.
    ///
    /// # Errors
    ///
    /// - `Unavailable` if the database cannot be reached.
    /// - `Unusable` if the address is invalid or requires TLS, or if the user, the password or the name of the
    ///   database is wrong.
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
    /// let no_tls = PostgresStore::connect("postgres://inbox@127.0.0.1:1/app?sslmode=require").await.unwrap_err();
    /// assert_eq!(no_tls.kind(), StoreErrorKind::Unusable); // use `PostgresStore::new` with a pool that has TLS
    /// # Ok(()) }
    /// ```
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::builder().connect(url).await
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
            names_statements: true,
        }
    }

    /// Returns the connections of the store, for transactions of your own in the same database.
    ///
    /// The inbox waits while all of them are in use.
    ///
    /// # Example: how busy the connections are
    ///
    /// ```
    /// use audience::inbox::PostgresStore;
    /// # use audience::inbox::deadpool_postgres::tokio_postgres::{Config, NoTls};
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
        &self.session.pool
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
        migrate(&self.session).await
    }

    /// Claims an event as part of your transaction, and marks it as done. Returns `true` if the event is new.
    ///
    /// Apply the effect of a new event in the same transaction, and commit: both happen, or neither, so the effect
    /// happens exactly once. `false` means that the event was handled or parked before. Concurrent transactions wait
    /// for each other, and exactly one that commits gets `true`.
    ///
    /// The transaction may be one of tokio-postgres or of deadpool-postgres, and may have savepoints.
    ///
    /// This call deletes no forgotten ids. Build an [`Inbox`](crate::inbox::Inbox) on the store and call its
    /// [`purge`](crate::inbox::Inbox::purge) in a daily job.
    ///
    /// Inside a handler or a worker of an [`Inbox`](crate::inbox::Inbox), use another endpoint name than the
    /// inbox has. The inbox holds a claim of its own under its name.
    ///
    /// # Errors
    ///
    /// - [`InboxError::InProgress`] if the event is claimed, or waits for its next attempt.
    ///   Roll back, and respond with 503.
    /// - [`InboxError::Conflict`] if the id was received before with another body, which is noticed if you claim
    ///   with a [`VerifiedEvent`](crate::webhooks::VerifiedEvent).
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
    ///     if store.claim_in(&mut transaction, "main", delivery).await? {
    ///         let mark = "UPDATE people SET bounces = bounces + 1 WHERE email = $1";
    ///         transaction.execute(mark, &[&mail.to]).await?;
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
        let ClaimTarget { id, fingerprint } = event.into();
        let fingerprint = fingerprint.as_ref().map(|f| f.as_bytes().as_slice());
        let retention = seconds(self.retention);
        let id = id.as_str();
        loop {
            // Not prepared: that would take another round trip.
            let row = transaction
                .query_typed_one(
                    Self::CLAIM_IN,
                    &[
                        (&endpoint, Type::TEXT),
                        (&id, Type::TEXT),
                        (&fingerprint, Type::BYTEA),
                        (&retention, Type::FLOAT8),
                    ],
                )
                .await
                .map_err(statement_error)?;
            match row.try_get("outcome").map_err(statement_error)? {
                "claimed" => return Ok(true),
                "done" | "parked" => return Ok(false),
                "conflict" => return Err(InboxError::Conflict),
                // Another transaction wrote the entry meanwhile. The next run sees the new entry.
                "again" => {}
                _ => return Err(InboxError::InProgress),
            }
        }
    }
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

    /// Sets how long [`claim_in`](PostgresStore::claim_in) remembers an event. Default: 72 h.
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

    /// Sets the largest number of connections that [`connect`](Self::connect) opens. Default: 16.
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

    /// Sends each statement in full instead of preparing it under a name, for a pooler in transaction mode that
    /// does not support prepared statements, such as `PgBouncer` before version 1.21.
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

    /// Connects without TLS.
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
        let config = config(url)?;
        let limited = limit_statements(config.clone(), self.timeout);
        match self.connect_with(limited).await {
            // Some poolers refuse a connection that sets them. The store's own timeout still holds.
            Err(error) if is_refused_option(&error) => self.connect_with(config).await,
            result => result,
        }
    }

    async fn connect_with(&self, config: Config) -> Result<PostgresStore, StoreError> {
        let pool = pool(config, self.max_connections)?;
        let store = self.clone().build(pool);
        let session = &store.session;
        // A wrong address or password fails here, not with the first delivery.
        session.in_time(session.connection()).await?.put_back();
        Ok(store)
    }

    /// Builds a store on a pool of your own, like [`PostgresStore::new`].
    ///
    /// # Example: a shorter timeout for a pool with TLS
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use audience::inbox::PostgresStore;
    /// # use audience::inbox::deadpool_postgres::tokio_postgres::{Config, NoTls};
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
        PostgresStore {
            session: Session {
                pool,
                timeout: self.timeout,
                names_statements: self.names_statements,
            },
            retention: self.retention,
        }
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self.session.pool.status();
        f.debug_struct("PostgresStore")
            .field("connections", &status.size)
            .field("timeout", &self.session.timeout)
            .finish_non_exhaustive()
    }
}

/// Runs a statement and returns whether it changed an entry.
macro_rules! changes_entry {
    ($store:ident, $statement:ident, $($value:expr),+) => {
        Ok(!$store.session.query(&$statement, &[$(&$value),+]).await?.is_empty())
    };
}

impl Store for PostgresStore {
    async fn claim(&self, claim: NewClaim<'_>) -> Result<ClaimState, StoreError> {
        self.session
            .in_time(claim_entry(&self.session, &claim))
            .await
    }

    async fn extend(&self, held: HeldClaim<'_>, lease: Duration) -> Result<bool, StoreError> {
        extend(&self.session, held, lease).await
    }

    async fn complete(&self, held: HeldClaim<'_>, retention: Duration) -> Result<bool, StoreError> {
        let HeldClaim { key, token } = held;
        changes_entry!(
            self,
            COMPLETE,
            key.endpoint,
            key.id.as_str(),
            token.as_bytes().as_slice(),
            seconds(retention)
        )
    }

    async fn release(&self, held: HeldClaim<'_>, release: Release<'_>) -> Result<bool, StoreError> {
        let HeldClaim { key, token } = held;
        changes_entry!(
            self,
            RELEASE,
            key.endpoint,
            key.id.as_str(),
            token.as_bytes().as_slice(),
            seconds(release.delay),
            seconds(release.retention),
            without_nul(release.reason)
        )
    }

    async fn park(&self, held: HeldClaim<'_>, reason: &str) -> Result<bool, StoreError> {
        let HeldClaim { key, token } = held;
        changes_entry!(
            self,
            PARK,
            key.endpoint,
            key.id.as_str(),
            token.as_bytes().as_slice(),
            without_nul(reason)
        )
    }

    async fn accept(&self, delivery: NewDelivery<'_>) -> Result<AcceptState, StoreError> {
        let NewDelivery {
            key,
            body,
            fingerprint,
        } = delivery;
        let fingerprint = fingerprint.as_bytes().as_slice();
        let values: &Values<'_> = &[&key.endpoint, &key.id.as_str(), &body, &fingerprint];
        let row = self.session.query_one(&ACCEPT, values).await?;
        match column(&row, "outcome")? {
            "accepted" => Ok(AcceptState::Accepted),
            "duplicate" => Ok(AcceptState::Duplicate),
            "in_progress" => Ok(AcceptState::InProgress {
                remaining: time(&row, "remaining")?,
            }),
            "conflict" => Ok(AcceptState::Conflict),
            outcome => Err(unexpected(outcome)),
        }
    }

    async fn take(&self, take: Take<'_>) -> Result<Vec<TakenEvent>, StoreError> {
        let token = take.token.as_bytes().as_slice();
        let (lease, limit) = (seconds(take.lease), count(take.limit));
        let values: &Values<'_> = &[&take.endpoint, &token, &lease, &limit];
        let taken = self.session.query(&TAKE, values).await?;
        taken.iter().map(taken_event).collect()
    }

    async fn parked(
        &self,
        endpoint: &str,
        after: Option<&EventId>,
        limit: usize,
    ) -> Result<Vec<ParkedEvent>, StoreError> {
        // No id is empty.
        let after = after.map_or("", EventId::as_str);
        let values: &Values<'_> = &[&endpoint, &after, &count(limit)];
        let parked = self.session.query(&PARKED, values).await?;
        parked.iter().map(parked_event).collect()
    }

    async fn replay(&self, key: EventKey<'_>) -> Result<bool, StoreError> {
        changes_entry!(self, REPLAY, key.endpoint, key.id.as_str())
    }

    async fn discard(&self, key: EventKey<'_>, retention: Duration) -> Result<bool, StoreError> {
        changes_entry!(
            self,
            DISCARD,
            key.endpoint,
            key.id.as_str(),
            seconds(retention)
        )
    }

    async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
        let deleted = self.session.query(&PURGE, &[&count(limit)]).await?;
        Ok(deleted.len())
    }

    async fn backlog(&self, endpoint: &str) -> Result<Backlog, StoreError> {
        let row = self.session.query_one(&BACKLOG, &[&endpoint]).await?;
        let number = |name| column::<i64>(&row, name).map(i64::unsigned_abs);
        Ok(Backlog::new(
            number("waiting")?,
            number("in_progress")?,
            number("parked")?,
            time(&row, "lag")?,
        ))
    }
}

async fn claim_entry(session: &Session, claim: &NewClaim<'_>) -> Result<ClaimState, StoreError> {
    let HeldClaim { key, token } = HeldClaim {
        key: claim.key,
        token: claim.token,
    };
    let fingerprint = claim.fingerprint.as_ref().map(|f| f.as_bytes().as_slice());
    loop {
        let row = session
            .query_one(
                &CLAIM,
                &[
                    &key.endpoint,
                    &key.id.as_str(),
                    &token.as_bytes().as_slice(),
                    &seconds(claim.lease),
                    &seconds(claim.retention),
                    &fingerprint,
                ],
            )
            .await?;
        let attempt = column::<i32>(&row, "attempts")?.unsigned_abs();
        let remaining = time(&row, "remaining")?;
        let state = match column(&row, "outcome")? {
            "claimed" | "held" => ClaimState::Fresh { attempt },
            "in_progress" => ClaimState::InProgress { remaining },
            "done" => ClaimState::Done,
            "parked" => ClaimState::Parked,
            "conflict" => ClaimState::Conflict,
            outcome => return Err(unexpected(outcome)),
        };
        // A new lease begins before the wait for another transaction that had the entry, if that rolls back.
        let is_short = column::<&str>(&row, "outcome")? == "claimed" && remaining < claim.lease / 2;
        if !is_short || extend(session, HeldClaim { key, token }, claim.lease).await? {
            return Ok(state);
        }
    }
}

async fn extend(
    session: &Session,
    held: HeldClaim<'_>,
    lease: Duration,
) -> Result<bool, StoreError> {
    let HeldClaim { key, token } = held;
    let token = token.as_bytes().as_slice();
    let values: &Values<'_> = &[&key.endpoint, &key.id.as_str(), &token, &seconds(lease)];
    let extended = session.query(&EXTEND, values).await?;
    Ok(!extended.is_empty())
}

fn taken_event(row: &Row) -> Result<TakenEvent, StoreError> {
    Ok(TakenEvent {
        id: event_id(row)?,
        body: Bytes::copy_from_slice(column(row, "body")?),
        attempt: column::<i32>(row, "attempts")?.unsigned_abs(),
        overdue: time(row, "overdue")?,
    })
}

fn parked_event(row: &Row) -> Result<ParkedEvent, StoreError> {
    Ok(ParkedEvent::new(
        event_id(row)?,
        column::<Option<&[u8]>>(row, "body")?.map(Bytes::copy_from_slice),
        column::<i32>(row, "attempts")?.unsigned_abs(),
        column::<Option<&str>>(row, "reason")?.unwrap_or_default(),
        time(row, "parked_for")?,
    ))
}

fn event_id(row: &Row) -> Result<EventId, StoreError> {
    EventId::try_from(column::<&str>(row, "event_id")?).map_err(StoreError::unusable)
}

fn time(row: &Row, name: &str) -> Result<Duration, StoreError> {
    let seconds: f64 = column(row, name)?;
    Ok(Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(LONGEST))
}

fn column<'a, T: FromSql<'a>>(row: &'a Row, name: &str) -> Result<T, StoreError> {
    row.try_get(name).map_err(statement_error)
}

fn count(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// Postgres stores no NUL.
fn without_nul(text: &str) -> String {
    text.replace('\0', "")
}

fn unexpected(outcome: &str) -> StoreError {
    StoreError::unusable(format!(
        "a statement returned the unknown outcome {outcome:?}"
    ))
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const KEEPALIVE: Duration = Duration::from_secs(60);

/// How much later than the store the database gives up a statement. It only has to if the request to cancel the
/// statement is lost.
const GRACE: Duration = Duration::from_secs(1);

/// Reads an address, and sets what it leaves open.
fn config(url: &str) -> Result<Config, StoreError> {
    // The driver's error may quote a part of the address, and so of the password.
    let mut config: Config = url.parse().map_err(|_| StoreError::unusable(INVALID_URL))?;
    let is_tls_required = config.get_ssl_mode() == SslMode::Require
        || config.get_ssl_negotiation() == SslNegotiation::Direct;
    if is_tls_required {
        return Err(StoreError::unusable(TLS_REQUIRED));
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT_TIMEOUT);
    }
    if config.get_application_name().is_none() {
        config.application_name("audience inbox");
    }
    config.keepalives_idle(config.get_keepalives_idle().min(KEEPALIVE));
    Ok(config)
}

/// Sets when the database gives up a statement by itself, unless the address does.
fn limit_statements(mut config: Config, timeout: Duration) -> Config {
    let milliseconds = timeout.saturating_add(GRACE).as_millis();
    let milliseconds = i32::try_from(milliseconds).unwrap_or(i32::MAX);
    let mut options = config.get_options().unwrap_or_default().to_owned();
    for name in ["statement_timeout", "lock_timeout"] {
        if !options.contains(name) {
            options += &format!(" -c {name}={milliseconds}");
        }
    }
    config.options(options.trim_start());
    config
}

fn pool(config: Config, max_connections: usize) -> Result<Pool, StoreError> {
    Pool::builder(Manager::new(config, NoTls))
        .max_size(max_connections)
        .build()
        .map_err(StoreError::unusable)
}

const INVALID_URL: &str = "the address of the database is invalid: it must be \
    postgres://user:password@host:port/database with special characters of the password percent-encoded, and \
    without options that tokio-postgres does not know";

const TLS_REQUIRED: &str = "the address of the database requires TLS: build a deadpool_postgres::Pool with a TLS \
    connector, and use PostgresStore::new";

/// Other processes may be migrating.
const MIGRATION_TIMEOUT: Duration = Duration::from_secs(60);

/// The oldest version of Postgres that the statements are written for.
const OLDEST_SERVER: i32 = 130_000;

/// The lock is held until the end of the transaction, so that one process migrates at a time. Its number is
/// arbitrary. The limits of the connection are meant for shorter statements.
const LOCK: &str = "SET LOCAL statement_timeout = '60s'; SET LOCAL lock_timeout = '60s';
    SELECT pg_advisory_xact_lock(6016405391421163)";

const SURVEY: &str = "SELECT
    current_setting('server_version_num')::integer AS server_version,
    current_setting('server_encoding') AS encoding,
    to_regclass('audience_inbox') IS NOT NULL AND to_regclass('audience_inbox_schema') IS NOT NULL AS has_tables";

/// Creates the tables if they are absent. Fails if they are newer than this code.
async fn migrate(session: &Session) -> Result<(), StoreError> {
    let session = Session {
        timeout: session.timeout.max(MIGRATION_TIMEOUT),
        ..session.clone()
    };
    let migration = async {
        let mut connection = session.connection().await?;
        let result = migrate_on(connection.client()).await;
        // Otherwise it is closed, since the transaction may still be open on it.
        if result.is_ok() {
            connection.put_back();
        }
        result
    };
    session.in_time(migration).await
}

async fn migrate_on(client: &mut Client) -> Result<(), StoreError> {
    // With a default that fixes what the transaction sees when it begins, it would not see the tables that
    // another process created while it waited for the lock.
    let transaction = client
        .build_transaction()
        .isolation_level(IsolationLevel::ReadCommitted)
        .start()
        .await
        .map_err(statement_error)?;
    let run = async {
        transaction.batch_execute(LOCK).await?;
        let survey = transaction.query_typed_one(SURVEY, &[]).await?;
        if survey.try_get("has_tables")? {
            let version = "SELECT version FROM audience_inbox_schema";
            let version = transaction.query_typed_one(version, &[]).await?;
            let version: i32 = version.try_get(0)?;
            return Ok((survey, Some(version)));
        }
        Ok((survey, None))
    };
    let (survey, version) = run.await.map_err(statement_error)?;
    check_server(&survey)?;
    match version {
        Some(version) if version > SCHEMA_VERSION => {
            return Err(StoreError::unusable(format!(
                "the tables have version {version} and this crate knows version {SCHEMA_VERSION}: update the crate"
            )));
        }
        Some(SCHEMA_VERSION) => {}
        _ => {
            let created = transaction.batch_execute(PostgresStore::SCHEMA).await;
            created.map_err(statement_error)?;
        }
    }
    transaction.commit().await.map_err(statement_error)
}

fn check_server(survey: &Row) -> Result<(), StoreError> {
    let version: i32 = survey.try_get("server_version").map_err(statement_error)?;
    let encoding: &str = survey.try_get("encoding").map_err(statement_error)?;
    if version < OLDEST_SERVER {
        return Err(StoreError::unusable(format!(
            "the server is PostgreSQL {}, and the inbox needs version 13 or later",
            version / 10_000
        )));
    }
    if encoding != "UTF8" {
        return Err(StoreError::unusable(format!(
            "the encoding of the database is {encoding}, and the inbox needs UTF8: event ids are any text"
        )));
    }
    Ok(())
}

/// A statement, and whether a caller may run it again without knowing if it ran.
struct Statement {
    sql: &'static str,
    /// The value of its last parameter, which the statement compares with its own name. A connection pooler that
    /// knows nothing of prepared statements may run another one under the name of this one: that changes nothing
    /// then and returns no row.
    name: &'static str,
    /// The types of its other parameters.
    types: &'static [Type],
    /// The second run of two has the result that the first one had, as far as the caller is concerned.
    is_repeatable: bool,
}

macro_rules! statements {
    ($($constant:ident, $name:literal, [$($type:ident),+], $is_repeatable:literal;)+) => {
        $(const $constant: Statement = Statement {
            sql: include_str!(concat!("sql/", $name, ".sql")),
            name: $name,
            types: &[$(Type::$type),+],
            is_repeatable: $is_repeatable,
        };)+
    };
}

// A second run of a statement that is not repeatable misleads the caller: an event that the first run accepted would
// be `Duplicate`, a claim that it ended would be lost, and the events that it took would wait for the end of their lease.
statements! {
    ACCEPT, "accept", [TEXT, TEXT, BYTEA, BYTEA], false;
    BACKLOG, "backlog", [TEXT], true;
    CLAIM, "claim", [TEXT, TEXT, BYTEA, FLOAT8, FLOAT8, BYTEA], true;
    COMPLETE, "complete", [TEXT, TEXT, BYTEA, FLOAT8], true;
    DISCARD, "discard", [TEXT, TEXT, FLOAT8], false;
    EXTEND, "extend", [TEXT, TEXT, BYTEA, FLOAT8], true;
    PARK, "park", [TEXT, TEXT, BYTEA, TEXT], false;
    PARKED, "parked", [TEXT, TEXT, INT8], true;
    PURGE, "purge", [INT8], true;
    RELEASE, "release", [TEXT, TEXT, BYTEA, FLOAT8, FLOAT8, TEXT], false;
    REPLAY, "replay", [TEXT, TEXT], false;
    TAKE, "take", [TEXT, BYTEA, FLOAT8, INT8], false;
}

impl Statement {
    /// Returns the values of all parameters, the statement's name included.
    fn values<'a>(
        &'a self,
        values: &'a [&'a (dyn ToSql + Sync)],
    ) -> impl Iterator<Item = &'a (dyn ToSql + Sync)> {
        let name: &(dyn ToSql + Sync) = &self.name;
        values.iter().copied().chain([name])
    }
}

/// The version that [`PostgresStore::SCHEMA`] creates.
const SCHEMA_VERSION: i32 = 1;

/// A longer time is cut to this one, so that no time of Postgres overflows.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Returns a duration as the statements take it.
fn seconds(duration: Duration) -> f64 {
    duration.min(LONGEST).as_secs_f64()
}

/// How often a statement that lost against another transaction is run again.
const MAX_CONFLICTS: u32 = 8;
/// How often a statement that found another entry than it locked is run.
const MAX_LOST_RACES: u32 = 100;

/// How long a request to cancel a statement may take.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to wait for the end of a statement before asking for it again: the first request may have come
/// before the statement.
const CANCEL_INTERVAL: Duration = Duration::from_secs(1);
/// How long to wait for the end of a statement that cannot be cancelled.
const UNCANCELLED_TIMEOUT: Duration = Duration::from_secs(60);

type Values<'a> = [&'a (dyn ToSql + Sync)];

/// Runs statements, each on any connection of a pool and as a transaction of its own.
#[derive(Clone)]
struct Session {
    pool: Pool,
    /// How long a call may take, the wait for a connection included.
    timeout: Duration,
    /// Whether statements are prepared under a name, once for each connection.
    names_statements: bool,
}

/// A connection that is put back only if its call ended well. If the call was dropped, because it timed out or
/// for another reason, its statement is cancelled and the connection closed.
struct Connection(Option<Object>);

impl Session {
    /// Runs a statement. Repeats it if that is safe and may help.
    async fn query(
        &self,
        statement: &Statement,
        values: &Values<'_>,
    ) -> Result<Vec<Row>, StoreError> {
        self.in_time(self.query_with_retries(statement, values))
            .await
    }

    /// Runs a statement that returns one row, or none if another transaction was faster. Then it runs again.
    async fn query_one(
        &self,
        statement: &Statement,
        values: &Values<'_>,
    ) -> Result<Row, StoreError> {
        let call = async {
            for _ in 0..MAX_LOST_RACES {
                let rows = self.query_with_retries(statement, values).await?;
                if let Some(row) = rows.into_iter().next() {
                    return Ok(row);
                }
            }
            Err(StoreError::unavailable(
                "other transactions kept changing the entry, or a connection pooler mixes up prepared statements",
            ))
        };
        self.in_time(call).await
    }

    async fn connection(&self) -> Result<Connection, StoreError> {
        let connection = self.pool.get().await.map_err(pool_error)?;
        // Guarded from here on: wherever the call is dropped, its statement is cancelled.
        Ok(Connection(Some(connection)))
    }

    /// Awaits a call, but not for longer than the timeout.
    async fn in_time<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        // Around the whole call, the wait for a connection included: a used-up pool must not outlast the response. A call
        // that is dropped here cancels its statement, see `Connection`.
        let result = timeout(self.timeout, call).await;
        result.unwrap_or_else(|_| {
            Err(StoreError::unavailable(TimedOut {
                milliseconds: self.timeout.as_millis(),
            }))
        })
    }

    async fn query_with_retries(
        &self,
        statement: &Statement,
        values: &Values<'_>,
    ) -> Result<Vec<Row>, StoreError> {
        let mut conflicts = 0;
        let mut lost_connection = false;
        loop {
            let connection = self.connection().await?;
            let result = if self.names_statements {
                connection.query_prepared(statement, values).await
            } else {
                connection.query_unnamed(statement, values).await
            };
            let error = match result {
                Ok(rows) => return Ok(rows),
                Err(error) => error,
            };
            match Aftermath::of(&error) {
                Aftermath::NothingHappened if conflicts < MAX_CONFLICTS => {
                    conflicts += 1;
                    // At random, so that the transactions that met do not meet again.
                    let delay = Duration::from_millis(fastrand::u64(0..1 << conflicts));
                    tokio::time::sleep(delay).await;
                }
                // It may have run, so only a statement whose second run has the same result is repeated.
                Aftermath::ConnectionLost if statement.is_repeatable && !lost_connection => {
                    lost_connection = true;
                }
                _ => return Err(statement_error(error)),
            }
        }
    }
}

impl Connection {
    /// Runs a statement, which is prepared once for each connection, and puts the connection back.
    async fn query_prepared(
        mut self,
        statement: &Statement,
        values: &Values<'_>,
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let client = self.client();
        let values: Vec<_> = statement.values(values).collect();
        let result = match client.prepare_cached(statement.sql).await {
            Ok(prepared) => client.query(&prepared, &values).await,
            Err(error) => Err(error),
        };
        self.put_back_after(result)
    }

    /// Runs a statement that is parsed each time, in the same round trip, and puts the connection back.
    async fn query_unnamed(
        mut self,
        statement: &Statement,
        values: &Values<'_>,
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let types = statement.types.iter().cloned().chain([Type::TEXT]);
        let values: Vec<_> = statement.values(values).zip(types).collect();
        let result = self.client().query_typed(statement.sql, &values).await;
        self.put_back_after(result)
    }

    fn put_back_after<T>(
        self,
        result: Result<T, tokio_postgres::Error>,
    ) -> Result<T, tokio_postgres::Error> {
        // A statement that the server refused leaves the connection as good as before. A lost or stale one is closed.
        if result.as_ref().err().is_none_or(keeps_connection) {
            self.put_back();
        } else {
            self.discard();
        }
        result
    }

    fn client(&mut self) -> &mut Object {
        let client = self.0.as_mut();
        client.expect("a connection is put back only at the end")
    }

    fn put_back(mut self) {
        // Dropped as an `Object`, it goes back to the pool.
        self.0 = None;
    }

    /// Closes a connection that no statement runs on.
    fn discard(mut self) {
        self.0.take().map(Object::take);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let Some(connection) = self.0.take() else {
            return;
        };
        match Handle::try_current() {
            // In a task, because `drop` cannot wait for the server.
            Ok(runtime) => drop(runtime.spawn(close(connection))),
            Err(_) => drop(Object::take(connection)),
        }
    }
}

/// Cancels the statement that still runs on a connection, and closes the connection.
///
/// The connection keeps its place in the pool until the server has closed it. Otherwise the pool would open
/// another one while the server still works for this one, and a lock that lasts would use up all connections of
/// the server.
async fn close(connection: Object) {
    end_statement(&connection).await;
    drop(Object::take(connection));
}

/// Returns when the server has closed the connection, or cannot be reached.
async fn end_statement(connection: &Object) {
    let token = connection.cancel_token();
    let closing = async {
        let end_backend = "SELECT pg_terminate_backend(pg_backend_pid())";
        let _ = connection.simple_query(end_backend).await;
        // Fails as soon as the connection is closed.
        let _ = connection.simple_query("").await;
    };
    let mut closing = pin!(closing);
    loop {
        // Postgres accepts this request without TLS even where it requires TLS for everything else, but the
        // driver does not send it if the settings of the pool require TLS.
        let is_cancelled = match timeout(CANCEL_TIMEOUT, token.cancel_query(NoTls)).await {
            Ok(Ok(())) => true,
            Ok(Err(error)) if kind_of(&error) == StoreErrorKind::Unusable => false,
            // The server cannot be reached, so no other connection can be opened either.
            Ok(Err(_)) | Err(_) => break,
        };
        let patience = if is_cancelled {
            CANCEL_INTERVAL
        } else {
            UNCANCELLED_TIMEOUT
        };
        if timeout(patience, &mut closing).await.is_ok() || !is_cancelled {
            break;
        }
    }
}

/// No response came in time.
#[derive(Debug, thiserror::Error)]
#[error("no response from the database within {milliseconds} ms")]
struct TimedOut {
    milliseconds: u128,
}

/// The connections of several programs share the names of their prepared statements.
#[derive(Debug, thiserror::Error)]
#[error(
    "a connection pooler does not support prepared statements: use `PostgresStoreBuilder::unnamed_statements`"
)]
struct SharedNames {
    source: tokio_postgres::Error,
}

#[derive(Debug, thiserror::Error)]
#[error("the table `audience_inbox` is missing: call `PostgresStore::migrate`")]
struct MissingTables {
    source: tokio_postgres::Error,
}

/// The state after a failed statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aftermath {
    /// The statement had no effect and may be run again.
    NothingHappened,
    /// The connection is lost. Whether the statement had an effect is not known.
    ConnectionLost,
    /// The same statement would fail again.
    Refused,
}

impl Aftermath {
    fn of(error: &tokio_postgres::Error) -> Self {
        match error.code() {
            // A conflict with another transaction; or a statement that was prepared and is no longer valid.
            Some(code) if matches!(code.code(), "40001" | "40P01" | "0A000" | "26000") => {
                Self::NothingHappened
            }
            Some(code) if code.code().starts_with("57P") || code.code().starts_with("08") => {
                Self::ConnectionLost
            }
            Some(_) => Self::Refused,
            None if kind_without_code(error) == StoreErrorKind::Unavailable => Self::ConnectionLost,
            None => Self::Refused,
        }
    }
}

/// Returns whether a connection is as good as before, although a statement failed on it.
fn keeps_connection(error: &tokio_postgres::Error) -> bool {
    // The connection remembers a prepared statement that the server no longer has, so it would fail each time.
    let is_stale = |code: &SqlState| matches!(code.code(), "0A000" | "26000");
    let is_lost = Aftermath::of(error) == Aftermath::ConnectionLost;
    error.code().is_some_and(|code| !is_lost && !is_stale(code))
}

fn statement_error(error: tokio_postgres::Error) -> StoreError {
    let kind = kind_of(&error);
    match error.code() {
        Some(&SqlState::DUPLICATE_PSTATEMENT) => store_error(kind, SharedNames { source: error }),
        Some(&SqlState::UNDEFINED_TABLE) => store_error(kind, MissingTables { source: error }),
        _ => store_error(kind, error),
    }
}

fn kind_of(error: &tokio_postgres::Error) -> StoreErrorKind {
    match error.code() {
        Some(code) => kind_of_code(code.code()),
        None => kind_without_code(error),
    }
}

/// Returns whether the server refused a connection because of its options, as poolers do.
fn is_refused_option(error: &StoreError) -> bool {
    let source = error.source().and_then(|error| error.downcast_ref());
    let code = source.and_then(tokio_postgres::Error::code);
    code == Some(&SqlState::PROTOCOL_VIOLATION)
}

fn pool_error(error: PoolError) -> StoreError {
    match error {
        PoolError::Backend(error) => statement_error(error),
        PoolError::Timeout(_) => StoreError::unavailable(error),
        error => StoreError::unusable(error),
    }
}

fn store_error(kind: StoreErrorKind, source: impl Error + Send + Sync + 'static) -> StoreError {
    match kind {
        StoreErrorKind::Unavailable => StoreError::unavailable(source),
        StoreErrorKind::Full => StoreError::full(source),
        StoreErrorKind::Unusable => StoreError::unusable(source),
    }
}

fn kind_of_code(code: &str) -> StoreErrorKind {
    match code {
        // The disk or the memory is full.
        "53100" | "53200" => StoreErrorKind::Full,
        // A failover can leave a connection to a server that only reads; a lock was not granted in time; a
        // prepared statement is no longer valid; a new server accepts no connection yet.
        "25006" | "55P03" | "0A000" | "26000" | "55000" => StoreErrorKind::Unavailable,
        _ => match code.get(..2) {
            // Connection, rollback, resources, shutdown or a timeout, I/O, internal.
            Some("08" | "40" | "53" | "57" | "58" | "XX") => StoreErrorKind::Unavailable,
            _ => StoreErrorKind::Unusable,
        },
    }
}

/// Returns what an error of the driver means. A lost connection has no source, or one of I/O; the others are
/// about TLS, the password, the settings, or a value of another type.
fn kind_without_code(error: &tokio_postgres::Error) -> StoreErrorKind {
    let mut source = error.source();
    if source.is_none() {
        return StoreErrorKind::Unavailable;
    }
    while let Some(error) = source {
        if error.is::<io::Error>() {
            return StoreErrorKind::Unavailable;
        }
        source = error.source();
    }
    StoreErrorKind::Unusable
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(url: &str) -> String {
        let error = config(url).map(drop).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unusable);
        error.source().unwrap().to_string()
    }

    #[test]
    fn the_database_gives_up_a_statement_soon_after_the_store_unless_the_address_says_otherwise() {
        let options = |url: &str| {
            let limited = limit_statements(config(url).unwrap(), Duration::from_secs(2));
            limited.get_options().unwrap().to_owned()
        };

        assert_eq!(
            options("postgres://localhost/db"),
            "-c statement_timeout=3000 -c lock_timeout=3000"
        );
        assert_eq!(
            options("postgres://localhost/db?options=-cstatement_timeout%3D7s"),
            "-cstatement_timeout=7s -c lock_timeout=3000"
        );
    }

    #[test]
    fn an_address_that_requires_tls_is_refused_with_what_to_do() {
        for option in ["sslmode=require", "sslmode=require&sslnegotiation=direct"] {
            let text = refusal(&format!("postgres://inbox@localhost/db?{option}"));

            assert!(text.contains("PostgresStore::new"), "{text}");
        }
    }

    #[test]
    fn the_error_of_an_invalid_address_holds_nothing_of_its_password() {
        for url in [
            "postgres://inbox:hunter2@localhost:hunter2/db",
            "postgres://localhost/db?hunter2=1",
            "host=localhost port=hunter2",
            "hunter2",
        ] {
            let text = refusal(url);

            assert!(!text.contains("hunter2"), "{text}");
            assert!(text.contains("percent-encoded"), "{text}");
        }
    }

    #[test]
    fn the_code_of_an_error_tells_whether_a_later_call_may_succeed() {
        use StoreErrorKind::{Full, Unavailable, Unusable};
        let rows = [
            ("08006", Unavailable),
            ("25006", Unavailable),
            ("40001", Unavailable),
            ("40P01", Unavailable),
            ("53300", Unavailable),
            ("55P03", Unavailable),
            ("57014", Unavailable),
            ("57P01", Unavailable),
            ("57P02", Unavailable),
            ("57P03", Unavailable),
            ("58030", Unavailable),
            ("53100", Full),
            ("53200", Full),
            ("28P01", Unusable),
            ("3D000", Unusable),
            ("3F000", Unusable),
            ("42501", Unusable),
            ("42703", Unusable),
            ("42P01", Unusable),
            ("23514", Unusable),
            ("", Unusable),
        ];

        for (code, expected) in rows {
            assert_eq!(kind_of_code(code), expected, "{code}");
        }
    }
}
