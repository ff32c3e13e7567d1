//! The connections of a store: tokio-postgres and a pool of deadpool.

use std::error::Error;
use std::io;
use std::pin::pin;
use std::time::Duration;

use deadpool_postgres::{ClientWrapper, Object, Pool, PoolError};
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_postgres::error::DbError;
use tokio_postgres::types::{FromSql, ToSql, Type};
use tokio_postgres::{Row, Transaction};

use super::address::Tls;
use super::entries::{Columns, Driver, Failed, OpenTransaction, READ_ONLY, keeps_connection};
use super::statements::{Statement, Value};
use crate::causes::causes;
use crate::inbox::error::StoreError;

/// How long a request to cancel a statement may take.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to wait for the end of a statement before asking for it again: the first request may have come
/// before the statement.
const CANCEL_INTERVAL: Duration = Duration::from_secs(1);
/// How long to wait for the end of a statement that is not cancelled. The connection may also belong to a runtime that
/// nobody runs now. Then it never learns that the statement has ended.
const UNCANCELLED_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs statements, each on any connection of a pool and as a transaction of its own.
#[derive(Clone)]
pub(super) struct Session {
    pub(super) pool: Pool,
    /// Whether statements are prepared under a name, once for each connection.
    pub(super) names_statements: bool,
    /// The TLS of requests to cancel a statement.
    pub(super) tls: Tls,
}

/// A connection that is put back only if its call ended well. If the call was dropped, because it timed out or
/// for another reason, its statement is cancelled and the connection closed.
pub(super) struct Connection {
    object: Option<Object>,
    /// The TLS of requests to cancel a statement. If it is `None`, no such request is sent.
    cancels_with: Option<Tls>,
}

impl Session {
    pub(super) async fn connection(&self) -> Result<Connection, StoreError> {
        let connection = self.pool.get().await.map_err(pool_error)?;
        // From here on, wherever the call is dropped, its statement is cancelled.
        Ok(Connection {
            object: Some(connection),
            // Names are off for old poolers. PgBouncer 1.18 to 1.20 may crash when it gets a request to cancel whose
            // sender does not wait, and the driver does not wait.
            cancels_with: self.names_statements.then(|| self.tls.clone()),
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
        // A statement that the server refused leaves the connection as good as before. One that is lost, stale or only
        // reads is closed.
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
            Ok(runtime) => drop(runtime.spawn(close(connection, self.cancels_with.take()))),
            Err(_) => drop(Object::take(connection)),
        }
    }
}

/// Cancels the statement that still runs on a connection, and closes the connection.
///
/// The connection keeps its place in the pool until the server has closed it. Otherwise the pool would open
/// another one while the server still works for this one, and a lock that lasts would use up all connections of
/// the server.
async fn close(connection: Object, tls: Option<Tls>) {
    let ending = end_statement(&connection, tls.as_ref());
    let _ = timeout(UNCANCELLED_TIMEOUT, ending).await;
    drop(Object::take(connection));
}

/// Returns when the server has closed the connection, or cannot be reached.
async fn end_statement(connection: &Object, tls: Option<&Tls>) {
    let token = connection.cancel_token();
    let closing = async {
        let end_backend = "SELECT pg_terminate_backend(pg_backend_pid())";
        let _ = connection.simple_query(end_backend).await;
        // Fails as soon as the connection is closed.
        let _ = connection.simple_query("").await;
    };
    let mut closing = pin!(closing);
    let Some(tls) = tls else {
        return closing.await;
    };
    loop {
        match timeout(CANCEL_TIMEOUT, tls.cancel(&token)).await {
            Ok(Ok(())) => {}
            // The program brought a pool that requires TLS: the store does not have its connector.
            Ok(Err(error)) if !is_connection_lost(&error) => return closing.await,
            // The server cannot be reached, so no other connection can be opened either.
            Ok(Err(_)) | Err(_) => return,
        }
        if timeout(CANCEL_INTERVAL, &mut closing).await.is_ok() {
            return;
        }
    }
}

impl OpenTransaction for Transaction<'_> {
    type Row = Row;

    async fn execute(&mut self, sql: &'static str) -> Result<(), Failed> {
        self.batch_execute(sql).await.map_err(failed)
    }

    async fn query_one(&mut self, sql: &'static str, values: &[Value<'_>]) -> Result<Row, Failed> {
        // The statement is not prepared, because that would take another round trip.
        let values: Vec<_> = values.iter().map(typed_parameter).collect();
        self.query_typed_one(sql, &values).await.map_err(failed)
    }
}

fn typed_parameter<'a>(value: &'a Value<'a>) -> (&'a (dyn ToSql + Sync), Type) {
    let postgres_type = match value {
        Value::Text(_) => Type::TEXT,
        Value::Texts(_) => Type::TEXT_ARRAY,
        Value::Bytes(_) => Type::BYTEA,
        Value::Seconds(_) => Type::FLOAT8,
        Value::Count(_) => Type::INT8,
    };
    (parameter(value), postgres_type)
}

fn parameter<'a>(value: &'a Value<'a>) -> &'a (dyn ToSql + Sync) {
    match value {
        Value::Text(text) => text,
        Value::Texts(texts) => texts,
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

/// Returns whether an error means that the transaction lost against another one.
pub(super) fn is_conflict(error: &(dyn Error + 'static)) -> bool {
    matches!(code(error), Some("40001" | "40P01"))
}

/// Returns whether an error means that the server of the connection only reads.
pub(super) fn is_read_only(error: &(dyn Error + 'static)) -> bool {
    code(error) == Some(READ_ONLY)
}

/// Returns the SQLSTATE of an error that the server returned.
fn code<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a str> {
    // It is the source of the driver's error, also behind a transparent error, whose chain does not have that one.
    error
        .downcast_ref()
        .map(|error: &DbError| error.code().code())
}

/// Returns whether an error of the driver means that the connection was lost: it has no source, or an I/O error.
fn is_connection_lost(error: &tokio_postgres::Error) -> bool {
    let io_error = causes(error).find_map(|cause| cause.downcast_ref::<io::Error>());
    match io_error {
        Some(io_error) => !is_refused_by_tls(io_error),
        None => error.source().is_none(),
    }
}

/// Returns whether one side did not accept the certificate or the version of the other one.
#[cfg(feature = "inbox-postgres-rustls")]
fn is_refused_by_tls(error: &io::Error) -> bool {
    let inner = error.get_ref();
    inner
        .and_then(|inner| inner.downcast_ref::<rustls::Error>())
        .is_some()
}

#[cfg(not(feature = "inbox-postgres-rustls"))]
fn is_refused_by_tls(_: &io::Error) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::runtime::{Builder, Runtime};
    use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
    use tokio::task::JoinHandle;
    use tokio::time::{advance, pause, resume, sleep};
    use tokio_postgres::Config;

    use super::super::address::Address;
    use super::*;
    use crate::inbox::error::StoreErrorKind;

    const PATIENCE: Duration = Duration::from_secs(300);
    /// The code in the request to cancel a statement.
    const CANCEL: [u8; 4] = [0x04, 0xd2, 0x16, 0x2e];

    #[derive(Debug, PartialEq)]
    enum Seen {
        CancelRequest,
        ClosedConnection,
    }

    /// A server that lets everybody in, and ends no statement.
    async fn serve(mut client: TcpStream, seen: UnboundedSender<Seen>) {
        let length = client.read_u32().await.unwrap();
        let mut packet = vec![0; usize::try_from(length).unwrap() - 4];
        client.read_exact(&mut packet).await.unwrap();
        if packet.starts_with(&CANCEL) {
            seen.send(Seen::CancelRequest).ok();
            return;
        }
        // The login succeeded, the session has this number and this key, and it is idle.
        let login = b"R\0\0\0\x08\0\0\0\0K\0\0\0\x0c\0\0\0\x01\0\0\0\x02Z\0\0\0\x05I";
        client.write_all(login).await.unwrap();
        client.read_to_end(&mut packet).await.ok();
        seen.send(Seen::ClosedConnection).ok();
    }

    /// Starts a server. The task accepts its connections.
    async fn start() -> (Session, UnboundedReceiver<Seen>, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, seen) = unbounded_channel();
        let accepting = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(client, sender.clone()));
            }
        });
        let address = format!("host=127.0.0.1 port={port} user=inbox sslmode=disable");
        let address = Address::parse(&address).unwrap();
        let (pool, tls) = address.pool(1, PATIENCE).unwrap();
        let session = Session {
            pool,
            names_statements: true,
            tls,
        };
        (session, seen, accepting)
    }

    async fn next(seen: &mut UnboundedReceiver<Seen>) -> Seen {
        let next = timeout(PATIENCE, seen.recv()).await;
        next.expect("something happens").unwrap()
    }

    #[tokio::test]
    async fn a_connection_whose_statement_outlasts_a_request_to_cancel_it_is_kept_for_another_one()
    {
        let (session, mut seen, _accepting) = start().await;

        drop(session.connection().await.unwrap());

        assert_eq!(next(&mut seen).await, Seen::CancelRequest);
        assert_eq!(next(&mut seen).await, Seen::CancelRequest);
    }

    #[tokio::test]
    async fn a_connection_is_closed_if_no_request_to_cancel_its_statement_reaches_the_server() {
        let (session, mut seen, accepting) = start().await;
        let connection = session.connection().await.unwrap();
        accepting.abort();
        accepting.await.unwrap_err();

        drop(connection);

        assert_eq!(next(&mut seen).await, Seen::ClosedConnection);
    }

    #[test]
    fn a_connection_of_a_runtime_that_nobody_runs_gives_its_place_back_after_a_minute() {
        let server = Runtime::new().unwrap();
        let (session, mut seen, _accepting) = server.block_on(start());
        let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
        let (idle, other) = (runtime(), runtime());
        let connection = idle.block_on(session.connection()).unwrap();

        other.block_on(async {
            drop(connection);
            assert_eq!(next(&mut seen).await, Seen::CancelRequest);
            // The end of the statement is awaited now.
            sleep(CANCEL_INTERVAL / 2).await;
            pause();
            advance(UNCANCELLED_TIMEOUT).await;
            resume();

            let freed = async {
                while session.pool.status().size > 0 {
                    sleep(Duration::from_millis(5)).await;
                }
            };
            timeout(PATIENCE, freed).await.expect("the place is free");
            session.connection().await.unwrap().put_back();
        });
        drop(idle);
    }

    #[test]
    fn invalid_settings_are_no_outage() {
        let invalid = "port=none".parse::<Config>().unwrap_err();

        assert_eq!(failed(invalid).error.kind(), StoreErrorKind::Unusable);
    }
}
