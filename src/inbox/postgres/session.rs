use std::pin::pin;
use std::time::Duration;

use deadpool_postgres::{Object, Pool};
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{NoTls, Row};

use super::error::{self, Aftermath, TimedOut};
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
        let connection = self.pool.get().await.map_err(error::of_pool)?;
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
                _ => return Err(error::of_statement(error)),
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
        if result.as_ref().err().is_none_or(error::keeps_connection) {
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
            Ok(Err(error)) if error::kind(&error) == StoreErrorKind::Unusable => false,
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
