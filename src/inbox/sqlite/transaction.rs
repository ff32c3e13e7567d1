//! Claims that commit with their effects.

use std::error::Error;
use std::future::{Ready, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::entries::Entries;
use super::error::store_error;
use super::session::Session;
use super::store::SqliteStore;
use crate::inbox::claim::ClaimTarget;
use crate::inbox::error::{Failure, InboxError, StoreError};
use crate::inbox::shared::Settings;
use crate::inbox::store::{ClaimState, EventKey, NewClaim};
use crate::inbox::token::Token;

/// Why [`SqliteStore::transaction`] had no effect.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransactionError {
    /// The closure returned this error or panicked, and its changes were undone.
    #[error("the transaction was rolled back")]
    RolledBack(#[source] Box<dyn Error + Send + Sync>),
    /// The transaction could not begin or could not be committed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl SqliteStore {
    /// Claims an event as part of your transaction, and marks it as done. Returns `true` if the event is new.
    ///
    /// Write the effect of a new event in the same transaction: both are committed, or neither. The id is
    /// remembered for 72 hours. `false` means that the event was handled before or is parked.
    ///
    /// The transaction is one of your own connection to the store's file. Begin it with
    /// [`TransactionBehavior::Immediate`], or claim before you read anything else: SQLite does not let a
    /// transaction write that has read what was changed since. What survives a power cut is a setting of your
    /// connection; SQLite's default is `PRAGMA synchronous = FULL`.
    ///
    /// The future is ready: `.await` it, or use `into_inner()` in code without a runtime.
    ///
    /// # Errors
    ///
    /// Roll the transaction back after each of them.
    ///
    /// - [`InboxError::InProgress`]: a lease of the event lasts, or it waits for its next attempt. Respond with
    ///   503.
    /// - [`InboxError::Conflict`]: the id was received before with another body, which is noticed if you claim
    ///   with a [`VerifiedEvent`](crate::webhooks::VerifiedEvent).
    /// - [`InboxError::Store`]: SQLite failed, the connection has no transaction, or its database does not have
    ///   the [tables](Self::SCHEMA).
    ///
    /// # Example: count each event once, without a runtime
    ///
    /// ```
    /// use audience::inbox::SqliteStore;
    /// use audience::inbox::rusqlite::{Connection, TransactionBehavior};
    /// use audience::webhooks::EventId;
    ///
    /// # let folder = std::env::temp_dir().join(format!("audience-claim-in-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder)?;
    /// # let path = folder.join("shop.db");
    /// let store = SqliteStore::open(&path)?;
    /// let mut connection = Connection::open(&path)?;
    /// connection.execute_batch("CREATE TABLE counter AS SELECT 0 AS events")?;
    /// let id = EventId::try_from("evt_1")?;
    ///
    /// for delivery in 1..=3 {
    ///     let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    ///     if store.claim_in(&transaction, "main", &id).into_inner()? {
    ///         transaction.execute("UPDATE counter SET events = events + 1", ())?;
    ///     }
    ///     transaction.commit()?;
    /// }
    ///
    /// let events: i64 = connection.query_row("SELECT events FROM counter", (), |row| row.get(0))?;
    /// assert_eq!(events, 1);
    /// # std::fs::remove_dir_all(&folder)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn claim_in<'a>(
        &self,
        transaction: &Connection,
        endpoint: &str,
        event: impl Into<ClaimTarget<'a>>,
    ) -> Ready<Result<bool, InboxError>> {
        let state = self.claim_done(transaction, endpoint, event.into());
        ready(match state {
            Ok(ClaimState::Fresh { .. }) => Ok(true),
            Ok(ClaimState::Done | ClaimState::Parked) => Ok(false),
            Ok(ClaimState::InProgress { .. }) => Err(InboxError::InProgress),
            Ok(ClaimState::Conflict) => Err(InboxError::Conflict),
            Err(error) => Err(error.into()),
        })
    }

    /// Runs a closure in a transaction of the store's own connection, in its thread.
    ///
    /// What the closure writes is committed if it returns `Ok`, and undone if it returns an error or panics.
    /// The other operations of the store wait meanwhile, so it should be short: SQL, and nothing that waits.
    /// It must not end the transaction itself. It is not run if the future is dropped before its turn.
    ///
    /// # Errors
    ///
    /// - [`TransactionError::RolledBack`]: the closure failed. It has the closure's error.
    /// - [`TransactionError::Store`]: SQLite failed to begin or to commit, and nothing was written.
    ///
    /// # Example: a table of your own, next to the inbox
    ///
    /// ```
    /// use audience::inbox::SqliteStore;
    ///
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// let store = SqliteStore::in_memory()?;
    ///
    /// let written = store
    ///     .transaction(|transaction| {
    ///         transaction.execute_batch("CREATE TABLE suppressed (address TEXT PRIMARY KEY) STRICT")?;
    ///         transaction.execute("INSERT INTO suppressed VALUES (?1)", ["ada@example.com"])
    ///     })
    ///     .await?;
    ///
    /// assert_eq!(written, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn transaction<T, E>(
        &self,
        work: impl FnOnce(&mut Transaction<'_>) -> Result<T, E> + Send + 'static,
    ) -> Result<T, TransactionError>
    where
        T: Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let work = move |transaction: &mut Transaction<'_>| {
            work(transaction).map_err(|error| TransactionError::RolledBack(error.into()))
        };
        self.run_transaction(work).await
    }

    pub(super) async fn run_transaction<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Transaction<'_>) -> Result<T, TransactionError> + Send + 'static,
    ) -> Result<T, TransactionError> {
        let run = |connection: &Connection| {
            // A panic drops the transaction, which rolls it back.
            catch_unwind(AssertUnwindSafe(|| transact(connection, work)))
                .unwrap_or_else(|panic| Err(panicked(&*panic)))
        };
        self.writer.run_exclusive(run).await?
    }

    pub(super) fn claim_done(
        &self,
        transaction: &Connection,
        endpoint: &str,
        event: ClaimTarget<'_>,
    ) -> Result<ClaimState, StoreError> {
        if transaction.is_autocommit() {
            return Err(StoreError::unusable(
                "the connection has no transaction: begin one, and claim in it",
            ));
        }
        let claim = NewClaim {
            key: EventKey {
                endpoint,
                id: event.id,
            },
            token: Token::random(),
            lease: Duration::ZERO,
            retention: Settings::default().retention,
            fingerprint: event.fingerprint,
        };
        let session = Session::new(transaction);
        Entries::new(&session, self.clock.now())
            .claim_done(&claim)
            .map_err(store_error)
    }
}

fn transact<T>(
    connection: &Connection,
    work: impl FnOnce(&mut Transaction<'_>) -> Result<T, TransactionError>,
) -> Result<T, TransactionError> {
    let mut transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)
        .map_err(store_error)?;
    let value = work(&mut transaction)?;
    transaction.commit().map_err(store_error)?;
    Ok(value)
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> TransactionError {
    TransactionError::RolledBack(Failure::of_panic(panic).reason().into())
}
