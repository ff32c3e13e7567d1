use std::time::Duration;

use deadpool_postgres::{Object, Pool};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::error::{self, Aftermath, TimedOut};
use super::statements::Statement;
use crate::inbox::error::StoreError;

/// How often a statement that lost against another transaction is run again.
const MAX_CONFLICTS: u32 = 8;
/// How often a statement that found another entry than it locked is run.
const MAX_LOST_RACES: u32 = 100;

pub(super) type Values<'a> = [&'a (dyn ToSql + Sync)];

/// Runs statements, each on any connection of a pool and as a transaction of its own.
#[derive(Clone)]
pub(super) struct Session {
    pub(super) pool: Pool,
    /// How long a call may take, the wait for a connection included.
    pub(super) timeout: Duration,
}

/// A connection that is closed, not put back, if its call does not end well: a call that was dropped may
/// still be running on it.
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
                "other transactions kept changing the entry",
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
        let result = tokio::time::timeout(self.timeout, call).await;
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
            let error = match connection.query(statement.sql, values).await {
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
    async fn query(
        mut self,
        sql: &str,
        values: &Values<'_>,
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let client = self.client();
        let result = match client.prepare_cached(sql).await {
            Ok(statement) => client.query(&statement, values).await,
            Err(error) => Err(error),
        };
        if result.as_ref().err().is_none_or(error::keeps_connection) {
            self.put_back();
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
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            drop(Object::take(connection));
        }
    }
}
