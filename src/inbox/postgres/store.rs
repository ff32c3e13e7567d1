use std::fmt;
use std::time::Duration;

use deadpool_postgres::Pool;
use tokio_postgres::Transaction;
use tokio_postgres::types::Type;

use super::session::Session;
use super::{connect, error, migrate, statements};
use crate::inbox::claim::ClaimedEvent;
use crate::inbox::error::{InboxError, StoreError};

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
const DEFAULT_RETENTION: Duration = Duration::from_secs(72 * 3_600);
/// The service retries for about five hours (interface section 6.5).
const SHORTEST_RETENTION: Duration = Duration::from_secs(6 * 3_600);

/// A store in Postgres, for any number of receivers and workers on any number of machines.
#[derive(Clone)]
pub struct PostgresStore {
    pub(super) session: Session,
    retention: Duration,
}

impl PostgresStore {
    /// The SQL that creates the tables.
    pub const SCHEMA: &str = statements::SCHEMA;

    /// The statement that [`claim_in`](Self::claim_in) runs.
    pub const CLAIM_IN: &str = statements::CLAIM_IN;

    /// Creates a store on a pool of your own. Connects to nothing.
    #[must_use]
    pub fn new(pool: Pool) -> Self {
        Self {
            session: Session {
                pool,
                timeout: DEFAULT_TIMEOUT,
            },
            retention: DEFAULT_RETENTION,
        }
    }

    /// Connects without TLS, with a pool of up to 16 connections.
    ///
    /// # Errors
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        let store = Self::new(connect::pool(url)?);
        let session = &store.session;
        session.in_time(session.connection()).await?.put_back();
        Ok(store)
    }

    /// Sets how long a call may take.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.session.timeout = timeout;
        self
    }

    /// Sets retention.
    #[must_use]
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = retention.max(SHORTEST_RETENTION);
        self
    }

    /// Creates the tables if they are absent.
    ///
    /// # Errors
    pub async fn migrate(&self) -> Result<(), StoreError> {
        migrate::migrate(&self.session).await
    }

    /// Claims in a transaction.
    ///
    /// # Errors
    pub async fn claim_in<'a>(
        &self,
        transaction: &Transaction<'_>,
        endpoint: &str,
        event: impl Into<ClaimedEvent<'a>>,
    ) -> Result<bool, InboxError> {
        let ClaimedEvent { id, fingerprint } = event.into();
        let fingerprint = fingerprint.as_ref().map(|f| f.as_bytes().as_slice());
        let retention = self.retention.as_secs_f64();
        let id = id.as_str();
        loop {
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
                .map_err(error::of_statement)?;
            match row.try_get("outcome").map_err(error::of_statement)? {
                "claimed" => return Ok(true),
                "done" | "parked" => return Ok(false),
                "conflict" => return Err(InboxError::Conflict),
                "again" => {}
                _ => return Err(InboxError::InProgress),
            }
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
