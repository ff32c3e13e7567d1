//! A store in Postgres.

mod session;
mod statements;

pub use deadpool_postgres;

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use deadpool_postgres::{Manager, Pool};
use tokio_postgres::config::{SslMode, SslNegotiation};
use tokio_postgres::types::{FromSql, Type};
use tokio_postgres::{Config, NoTls, Row, Transaction};

use self::session::{Session, Values, is_refused_option, statement_error};
use self::statements::{
    ACCEPT, BACKLOG, CLAIM, CLAIM_IN, COMPLETE, DISCARD, EXTEND, LONGEST, PARK, PARKED, PURGE,
    RELEASE, REPLAY, SCHEMA, TAKE, migrate, seconds,
};
use crate::inbox::claim::ClaimTarget;
use crate::inbox::error::{InboxError, StoreError};
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
/// Needs PostgreSQL 13 or later and a database in UTF8. Leases and retention follow the clock of the database.
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
/// [`migrate`](Self::migrate) creates `audience_inbox` and `audience_inbox_schema` in the first schema of the
/// `search_path`. For another schema, set that in the address:
/// `postgres://localhost/app?options=-csearch_path%3Dinbox`. If a tool of yours runs the migrations, give it
/// [`SCHEMA`](Self::SCHEMA).
///
/// A done event takes about 200 bytes with its indexes, so a million events in 72 hours take about 200 MB. The
/// time that a call takes does not depend on their number. Done entries are deleted 500 at a time, and never
/// wait for a lock.
///
/// The tables ask for more frequent vacuuming than the default, because a queue leaves dead rows behind. Leave
/// autovacuum on, and let no transaction stay open for hours: nothing that is younger can be cleaned up.
///
/// # When the database is down
///
/// A call ends after the [`timeout`](PostgresStoreBuilder::timeout) with an error of the kind
/// [`Unavailable`](crate::inbox::StoreErrorKind::Unavailable). Connections that broke are replaced. A call that
/// lost its connection is repeated once if a repetition has the same effect. A call that lost against another
/// transaction is repeated a few times.
///
/// If a call times out, its statement is cancelled. The pool opens no other connection in its place before the
/// server has closed the old one, so behind a lock that lasts there are never more connections than the pool may
/// have. On connections that [`connect`](Self::connect) opens, `statement_timeout` and `lock_timeout` are set to a
/// second more than the timeout of a call. They also hold for transactions of your own on these connections.
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
/// [`unnamed_statements`](PostgresStoreBuilder::unnamed_statements). If that is forgotten, a statement of another
/// program may run in the place of one of the store: that changes nothing, and the call fails or returns that the
/// lease is lost.
///
/// A pooler may refuse connections that set `statement_timeout`. Then they are opened without, so set it on the role.
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
    /// It is several statements. Running it again changes nothing.
    pub const SCHEMA: &str = SCHEMA;

    /// The SQL that [`claim_in`](Self::claim_in) runs, for a transaction of another driver.
    ///
    /// | parameter | type | value |
    /// |---|---|---|
    /// | `$1` | `text` | the endpoint, such as `main` |
    /// | `$2` | `text` | the id of the event |
    /// | `$3` | `bytea` | the 16 bytes of the [`Fingerprint`](crate::inbox::Fingerprint) of the body, or `NULL` |
    /// | `$4` | `float8` | how long the event is remembered, in seconds: 259200, and not under 21600 |
    ///
    /// It returns one row with one column of type `text`:
    ///
    /// | outcome | meaning |
    /// |---|---|
    /// | `claimed` | The event is yours: apply its effects, and commit. |
    /// | `done`, `parked` | It was handled or given up before. Respond with a success. |
    /// | `in_progress` | Somebody has a lease of it. Roll back, and respond with 503. |
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
    pub const CLAIM_IN: &str = CLAIM_IN;

    /// Creates a store on a pool of your own, for TLS and for settings of your own. Connects to nothing.
    ///
    /// The pool is a [`deadpool_postgres::Pool`](crate::inbox::deadpool_postgres::Pool). If the pool is shared
    /// with the rest of the program, leave the inbox as many connections as it has workers and handlers at once.
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
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.session.pool
    }

    /// Creates the tables if they are absent.
    ///
    /// Any number of processes may do this at once, and whenever they start. If the tables exist, no right to
    /// create is needed.
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
    pub async fn migrate(&self) -> Result<(), StoreError> {
        migrate(&self.session).await
    }

    /// Makes an event done as a part of your transaction. Returns whether it was not done before.
    ///
    /// If this returns `true`, apply the effects of the event in the same transaction and commit it. Both happen,
    /// or neither: this is exactly once. If it returns `false`, the event was handled or parked before. Of any
    /// number of transactions at once, one gets `true`; the others wait until that one ends, and one of them
    /// gets `true` if it was rolled back.
    ///
    /// The transaction may be one of tokio-postgres or of deadpool-postgres, and may have savepoints.
    ///
    /// Inside a handler or a worker of an [`Inbox`](crate::inbox::Inbox), use another endpoint name than the
    /// inbox has. The inbox holds a claim of its own under its name.
    ///
    /// # Errors
    ///
    /// - [`InboxError::InProgress`] if somebody holds a lease of the event, or it waits for its next attempt.
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
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets how long [`claim_in`](PostgresStore::claim_in) remembers an event. Default: 72 h.
    ///
    /// Less than 6 hours counts as 6 hours: the service retries for about five hours (interface section 6.5).
    /// The other calls are told by their [`Inbox`](crate::inbox::InboxBuilder::retention).
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = retention.max(SHORTEST_RETENTION);
        self
    }

    /// Sets how many connections [`connect`](Self::connect) opens at the most. Default: 16.
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.max_connections = connections;
        self
    }

    /// Sends each statement in full instead of preparing it under a name, for a pooler in transaction mode that
    /// does not support prepared statements, such as `PgBouncer` before version 1.21.
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
    pub async fn connect(self, url: &str) -> Result<PostgresStore, StoreError> {
        let config = config(url)?;
        let limited = limit_statements(config.clone(), self.timeout);
        match self.connect_with(limited).await {
            Err(error) if is_refused_option(&error) => self.connect_with(config).await,
            result => result,
        }
    }

    async fn connect_with(&self, config: Config) -> Result<PostgresStore, StoreError> {
        let pool = pool(config, self.max_connections)?;
        let store = self.clone().build(pool);
        let session = &store.session;
        session.in_time(session.connection()).await?.put_back();
        Ok(store)
    }

    /// Builds a store on a pool of your own, like [`PostgresStore::new`].
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
            "repeated" => Ok(AcceptState::Repeated),
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

/// Lets the database give up its statements by itself, unless the address says when.
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

/// Creates a pool without TLS. Connects to nothing.
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

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;
    use crate::inbox::error::StoreErrorKind;

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
}
