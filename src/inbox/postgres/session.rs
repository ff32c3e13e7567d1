//! The connections of a store: tokio-postgres and a pool of deadpool.

use std::error::Error;
use std::io;
use std::pin::pin;
use std::time::Duration;

use deadpool_postgres::{ClientWrapper, Manager, Object, Pool, PoolError};
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_postgres::config::{SslMode, SslNegotiation};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{FromSql, ToSql, Type};
use tokio_postgres::{Config, NoTls, Row, Transaction};

use super::entries::{Columns, Driver, Failed, OpenTransaction, keeps_connection};
use super::statements::{Statement, Value};
use crate::inbox::error::StoreError;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const KEEPALIVE: Duration = Duration::from_secs(60);

/// How much later than the store the database gives up a statement. It only has to if the request to cancel the
/// statement is lost.
const GRACE: Duration = Duration::from_secs(1);

/// Reads an address, and sets what it leaves open.
pub(super) fn config(url: &str) -> Result<Config, StoreError> {
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
pub(super) fn limit_statements(mut config: Config, timeout: Duration) -> Config {
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

pub(super) fn pool(config: Config, max_connections: usize) -> Result<Pool, StoreError> {
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

/// How long a request to cancel a statement may take.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to wait for the end of a statement before asking for it again: the first request may have come
/// before the statement.
const CANCEL_INTERVAL: Duration = Duration::from_secs(1);
/// How long to wait for the end of a statement that cannot be cancelled.
const UNCANCELLED_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs statements, each on any connection of a pool and as a transaction of its own.
#[derive(Clone)]
pub(super) struct Session {
    pub(super) pool: Pool,
    /// Whether statements are prepared under a name, once for each connection.
    pub(super) names_statements: bool,
}

/// A connection that is put back only if its call ended well. If the call was dropped, because it timed out or
/// for another reason, its statement is cancelled and the connection closed.
pub(super) struct Connection {
    object: Option<Object>,
    may_cancel: bool,
}

impl Session {
    pub(super) async fn connection(&self) -> Result<Connection, StoreError> {
        let connection = self.pool.get().await.map_err(pool_error)?;
        // Guarded from here on: wherever the call is dropped, its statement is cancelled.
        Ok(Connection {
            object: Some(connection),
            // Names are off for old poolers. PgBouncer 1.18 to 1.20 may crash when it gets a request to cancel whose
            // sender does not wait, and the driver does not wait.
            may_cancel: self.names_statements,
        })
    }
}

impl Driver for Session {
    type Row = Row;

    async fn query(
        &self,
        statement: &'static Statement,
        values: &[Value<'_>],
    ) -> Result<Vec<Row>, Failed> {
        let connection = self.connection().await?;
        let result = if self.names_statements {
            connection.query_prepared(statement, values).await
        } else {
            connection.query_unnamed(statement, values).await
        };
        result.map_err(failed)
    }
}

impl Connection {
    /// Runs a statement, which is prepared once for each connection, and puts the connection back.
    async fn query_prepared(
        mut self,
        statement: &Statement,
        values: &[Value<'_>],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let client = self.client();
        let values: Vec<_> = statement.values(values).map(parameter).collect();
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
        values: &[Value<'_>],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let values: Vec<_> = statement.values(values).map(typed_parameter).collect();
        let result = self.client().query_typed(statement.sql, &values).await;
        self.put_back_after(result)
    }

    fn put_back_after<T>(
        self,
        result: Result<T, tokio_postgres::Error>,
    ) -> Result<T, tokio_postgres::Error> {
        // A statement that the server refused leaves the connection as good as before. A lost or stale one is closed.
        let is_good = |error: &tokio_postgres::Error| {
            let code = error.code();
            code.is_some_and(|code| keeps_connection(code.code()))
        };
        if result.as_ref().err().is_none_or(is_good) {
            self.put_back();
        } else {
            self.discard();
        }
        result
    }

    pub(super) fn client(&mut self) -> &mut ClientWrapper {
        let client = self.object.as_mut();
        client.expect("a connection is put back only at the end")
    }

    pub(super) fn put_back(mut self) {
        // Dropped as an `Object`, it goes back to the pool.
        self.object = None;
    }

    /// Closes a connection that no statement runs on.
    pub(super) fn discard(mut self) {
        self.object.take().map(Object::take);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let Some(connection) = self.object.take() else {
            return;
        };
        match Handle::try_current() {
            // In a task, because `drop` cannot wait for the server.
            Ok(runtime) => drop(runtime.spawn(close(connection, self.may_cancel))),
            Err(_) => drop(Object::take(connection)),
        }
    }
}

/// Cancels the statement that still runs on a connection, and closes the connection.
///
/// The connection keeps its place in the pool until the server has closed it. Otherwise the pool would open
/// another one while the server still works for this one, and a lock that lasts would use up all connections of
/// the server.
async fn close(connection: Object, may_cancel: bool) {
    end_statement(&connection, may_cancel).await;
    drop(Object::take(connection));
}

/// Returns when the server has closed the connection, or cannot be reached.
async fn end_statement(connection: &Object, may_cancel: bool) {
    let token = connection.cancel_token();
    let closing = async {
        let end_backend = "SELECT pg_terminate_backend(pg_backend_pid())";
        let _ = connection.simple_query(end_backend).await;
        // Fails as soon as the connection is closed.
        let _ = connection.simple_query("").await;
    };
    let mut closing = pin!(closing);
    if !may_cancel {
        let _ = timeout(UNCANCELLED_TIMEOUT, closing).await;
        return;
    }
    loop {
        // Postgres accepts this request without TLS even where it requires TLS for everything else, but the
        // driver does not send it if the settings of the pool require TLS.
        let is_cancelled = match timeout(CANCEL_TIMEOUT, token.cancel_query(NoTls)).await {
            Ok(Ok(())) => true,
            Ok(Err(error)) if !is_connection_lost(&error) => false,
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

impl OpenTransaction for Transaction<'_> {
    type Row = Row;

    async fn execute(&mut self, sql: &'static str) -> Result<(), Failed> {
        self.batch_execute(sql).await.map_err(failed)
    }

    async fn query_one(&mut self, sql: &'static str, values: &[Value<'_>]) -> Result<Row, Failed> {
        // Not prepared: that would take another round trip.
        let values: Vec<_> = values.iter().map(typed_parameter).collect();
        self.query_typed_one(sql, &values).await.map_err(failed)
    }
}

fn typed_parameter<'a>(value: &'a Value<'a>) -> (&'a (dyn ToSql + Sync), Type) {
    let postgres_type = match value {
        Value::Text(_) => Type::TEXT,
        Value::Bytes(_) => Type::BYTEA,
        Value::Seconds(_) => Type::FLOAT8,
        Value::Count(_) => Type::INT8,
    };
    (parameter(value), postgres_type)
}

fn parameter<'a>(value: &'a Value<'a>) -> &'a (dyn ToSql + Sync) {
    match value {
        Value::Text(text) => text,
        Value::Bytes(bytes) => bytes,
        Value::Seconds(seconds) => seconds,
        Value::Count(count) => count,
    }
}

impl Columns for Row {
    fn text(&self, name: &str) -> Result<Option<&str>, StoreError> {
        column(self, name)
    }

    fn bytes(&self, name: &str) -> Result<Option<&[u8]>, StoreError> {
        column(self, name)
    }

    fn boolean(&self, name: &str) -> Result<bool, StoreError> {
        column(self, name)
    }

    fn integer(&self, name: &str) -> Result<i32, StoreError> {
        column(self, name)
    }

    fn bigint(&self, name: &str) -> Result<i64, StoreError> {
        column(self, name)
    }

    fn float(&self, name: &str) -> Result<f64, StoreError> {
        column(self, name)
    }
}

fn column<'a, T: FromSql<'a>>(row: &'a Row, name: &str) -> Result<T, StoreError> {
    row.try_get(name).map_err(|error| failed(error).error)
}

/// Returns whether the server refused a connection because of its options, as poolers do.
pub(super) fn is_refused_option(error: &StoreError) -> bool {
    let source = error.source().and_then(|error| error.downcast_ref());
    let code = source.and_then(tokio_postgres::Error::code);
    code == Some(&SqlState::PROTOCOL_VIOLATION)
}

fn pool_error(error: PoolError) -> StoreError {
    match error {
        PoolError::Backend(error) => failed(error).error,
        PoolError::Timeout(_) => StoreError::unavailable(error),
        error => StoreError::unusable(error),
    }
}

pub(super) fn failed(error: tokio_postgres::Error) -> Failed {
    match error.code().cloned() {
        Some(code) => Failed::of_code(code.code(), error),
        None => Failed::of_driver(is_connection_lost(&error), error),
    }
}

/// Returns whether an error is that of a transaction that lost against another one.
pub(super) fn is_conflict(error: &(dyn Error + 'static)) -> bool {
    let error = error.downcast_ref::<tokio_postgres::Error>();
    let code = error.and_then(tokio_postgres::Error::code);
    code.is_some_and(|code| matches!(code.code(), "40001" | "40P01"))
}

/// Returns whether an error of the driver is that of a lost connection: it has no source, or one of I/O.
fn is_connection_lost(error: &tokio_postgres::Error) -> bool {
    let mut source = error.source();
    if source.is_none() {
        return true;
    }
    while let Some(error) = source {
        if error.is::<io::Error>() {
            return true;
        }
        source = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
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
