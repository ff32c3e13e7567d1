//! Connections of a pool, what runs on them, and what their errors mean for an inbox.

use std::error::Error;
use std::io;
use std::pin::pin;
use std::time::Duration;

use deadpool_postgres::{Object, Pool, PoolError};
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{NoTls, Row};

use super::statements::Statement;
use crate::inbox::error::{StoreError, StoreErrorKind};

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

pub(super) type Values<'a> = [&'a (dyn ToSql + Sync)];

/// Runs statements, each on any connection of a pool and as a transaction of its own.
#[derive(Clone)]
pub(super) struct Session {
    pub(super) pool: Pool,
    /// How long a call may take, the wait for a connection included.
    pub(super) timeout: Duration,
    /// Whether statements are prepared under a name, once for each connection.
    pub(super) names_statements: bool,
}

/// A connection that is put back only if its call ended well. If the call was dropped, because it timed out or
/// for another reason, its statement is cancelled and the connection closed.
pub(super) struct Connection(Option<Object>);

impl Session {
    /// Runs a statement. Repeats it if that is safe and may help.
    pub(super) async fn query(
        &self,
        statement: &Statement,
        values: &Values<'_>,
    ) -> Result<Vec<Row>, StoreError> {
        self.in_time(self.query_with_retries(statement, values))
            .await
    }

    /// Runs a statement that returns one row, or none if another transaction was faster. Then it runs again.
    pub(super) async fn query_one(
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

    /// Gets a connection.
    pub(super) async fn connection(&self) -> Result<Connection, StoreError> {
        let connection = self.pool.get().await.map_err(pool_error)?;
        Ok(Connection(Some(connection)))
    }

    /// Awaits a call, but not for longer than the timeout.
    pub(super) async fn in_time<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
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
                    let delay = Duration::from_millis(fastrand::u64(0..1 << conflicts));
                    tokio::time::sleep(delay).await;
                }
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
        if result.as_ref().err().is_none_or(keeps_connection) {
            self.put_back();
        } else {
            self.discard();
        }
        result
    }

    pub(super) fn client(&mut self) -> &mut Object {
        let client = self.0.as_mut();
        client.expect("a connection is put back only at the end")
    }

    pub(super) fn put_back(mut self) {
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
            // The server cannot be reached, so nobody can open another connection either.
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
    pub(super) milliseconds: u128,
}

/// The connections of several programs share the names of their prepared statements.
#[derive(Debug, thiserror::Error)]
#[error(
    "a connection pooler does not support prepared statements: use `PostgresStoreBuilder::unnamed_statements`"
)]
struct SharedNames {
    source: tokio_postgres::Error,
}

/// What a failed statement left behind.
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
    pub(super) fn of(error: &tokio_postgres::Error) -> Self {
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
    let is_stale = |code: &SqlState| matches!(code.code(), "0A000" | "26000");
    let is_lost = Aftermath::of(error) == Aftermath::ConnectionLost;
    error.code().is_some_and(|code| !is_lost && !is_stale(code))
}

pub(super) fn statement_error(error: tokio_postgres::Error) -> StoreError {
    let kind = kind_of(&error);
    if error.code() == Some(&SqlState::DUPLICATE_PSTATEMENT) {
        return new(kind, SharedNames { source: error });
    }
    new(kind, error)
}

fn kind_of(error: &tokio_postgres::Error) -> StoreErrorKind {
    match error.code() {
        Some(code) => kind_of_code(code.code()),
        None => kind_without_code(error),
    }
}

/// Returns whether the server refused a connection because of its options, as poolers do.
pub(super) fn is_refused_option(error: &StoreError) -> bool {
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

fn new(kind: StoreErrorKind, source: impl Error + Send + Sync + 'static) -> StoreError {
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
        // prepared statement is no longer valid; a new server lets nobody in yet.
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
