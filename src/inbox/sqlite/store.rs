use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::entries::Entries;
use super::schema::SCHEMA;
use super::writer::Writer;
use crate::inbox::error::StoreError;
use crate::inbox::store::{
    AcceptState, Backlog, ClaimState, EventKey, HeldClaim, NewClaim, NewDelivery, ParkedEvent,
    Release, Store, Take, TakenEvent,
};
use crate::inbox::token::Token;
use crate::webhooks::{Clock, EventId};

/// A store in a SQLite file, for the receivers of one machine. Clones share one connection.
///
/// SQLite is compiled in; nothing has to be installed. A thread of the store's own writes to the file. It
/// commits all operations that wait in one transaction, so that many receivers wait for one write to the
/// disk. It ends when the last clone is dropped.
///
/// # What survives
///
/// | failure | with [`Full`](super::Synchronous::Full), the default | with [`Normal`](super::Synchronous::Normal) |
/// |---|---|---|
/// | the program crashes or is killed | everything that was responded to | everything that was responded to |
/// | power cut, crash of the operating system | everything that was responded to | the file, without the newest operations |
/// | the disk is full | everything; new events are refused as [`Full`](crate::inbox::StoreErrorKind::Full) | the same |
/// | the disk is lost | nothing: back the file up with its log, by SQLite's `.backup` or `VACUUM INTO` | the same |
///
/// An event that was accepted and then forgotten by a power cut is not delivered again, so leave the default
/// unless you only use [`handle`](crate::inbox::Inbox::handle).
///
/// # Several processes
///
/// Any number of processes of one machine may open the same file. Only one writes at a time; the others wait
/// for up to the [busy timeout](super::SqliteStoreBuilder::busy_timeout). Leases follow the system's clock: if
/// it jumps forward, leases end early, and if it jumps back, they end late. **A network file system will
/// corrupt the file.** For several machines, use a Postgres or a Redis store.
///
/// # Personal data
///
/// An accepted body holds addresses and subjects. It is deleted and overwritten when its event is done, and
/// kept while the event waits or is parked. Copies of it stay in the write-ahead log next to the file, of about
/// 16 MiB, until the log is used again. Nothing is encrypted. A new file has mode 0600 on Unix; an existing one keeps its mode.
///
/// # Exactly once
///
/// If your own tables are in the same file, an event and its effect can commit together. See
/// [`handle_in`](Self::handle_in), [`transaction`](Self::transaction) and [`claim_in`](Self::claim_in). These
/// methods name types of rusqlite 0.40, which is exported as `audience::inbox::rusqlite`. A program can link
/// only one version of it.
///
/// # Example: an inbox that outlives its process
///
/// ```
/// use audience::inbox::{Claim, Inbox, SqliteStore};
/// use audience::webhooks::EventId;
///
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// # let folder = std::env::temp_dir().join(format!("audience-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = folder.join("inbox.db");
/// let id = EventId::try_from("evt_1")?;
/// let inbox = Inbox::builder(SqliteStore::open(&path)?).build()?;
/// if let Claim::Fresh(lease) = inbox.claim(&id).await? {
///     lease.complete().await?;
/// }
/// drop(inbox);
///
/// let inbox = Inbox::builder(SqliteStore::open(&path)?).build()?;
/// assert!(matches!(inbox.claim(&id).await?, Claim::Done));
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SqliteStore {
    pub(super) writer: Writer,
    pub(super) clock: Arc<dyn Clock>,
}

impl SqliteStore {
    /// The statements that create the tables. They may run any number of times.
    ///
    /// [`open`](Self::open) runs them. They are for those who create all tables by migrations of their own.
    pub const SCHEMA: &'static str = SCHEMA;
}

/// The name of an entry that another thread reads.
struct OwnedKey {
    endpoint: Box<str>,
    id: EventId,
}

impl OwnedKey {
    fn new(key: EventKey<'_>) -> Self {
        Self {
            endpoint: key.endpoint.into(),
            id: key.id.clone(),
        }
    }

    fn key(&self) -> EventKey<'_> {
        EventKey {
            endpoint: &self.endpoint,
            id: &self.id,
        }
    }

    fn held(&self, token: Token) -> HeldClaim<'_> {
        HeldClaim {
            key: self.key(),
            token,
        }
    }
}

impl Store for SqliteStore {
    async fn claim(&self, claim: NewClaim<'_>) -> Result<ClaimState, StoreError> {
        let owned = OwnedKey::new(claim.key);
        let NewClaim {
            key: _,
            token,
            lease,
            retention,
            fingerprint,
        } = claim;
        let claim = move |entries: &Entries<'_, '_>| {
            entries.claim(&NewClaim {
                key: owned.key(),
                token,
                lease,
                retention,
                fingerprint,
            })
        };
        self.writer.run_for_caller(claim).await
    }

    async fn extend(&self, held: HeldClaim<'_>, lease: Duration) -> Result<bool, StoreError> {
        let (owned, token) = (OwnedKey::new(held.key), held.token);
        self.writer
            .run(move |entries| entries.extend(owned.held(token), lease))
            .await
    }

    async fn complete(&self, held: HeldClaim<'_>, retention: Duration) -> Result<bool, StoreError> {
        let (owned, token) = (OwnedKey::new(held.key), held.token);
        self.writer
            .run(move |entries| entries.complete(owned.held(token), retention))
            .await
    }

    async fn release(&self, held: HeldClaim<'_>, release: Release<'_>) -> Result<bool, StoreError> {
        let (owned, token) = (OwnedKey::new(held.key), held.token);
        let Release {
            delay, retention, ..
        } = release;
        self.writer
            .run(move |entries| entries.release(owned.held(token), delay, retention))
            .await
    }

    async fn park(&self, held: HeldClaim<'_>, reason: &str) -> Result<bool, StoreError> {
        let (owned, token) = (OwnedKey::new(held.key), held.token);
        let reason = reason.to_owned();
        self.writer
            .run(move |entries| entries.park(owned.held(token), &reason))
            .await
    }

    async fn accept(&self, delivery: NewDelivery<'_>) -> Result<AcceptState, StoreError> {
        let owned = OwnedKey::new(delivery.key);
        let body: Box<[u8]> = delivery.body.into();
        let fingerprint = delivery.fingerprint;
        let accept = move |entries: &Entries<'_, '_>| {
            entries.accept(&NewDelivery {
                key: owned.key(),
                body: &body,
                fingerprint,
            })
        };
        self.writer.run_for_caller(accept).await
    }

    async fn take(&self, take: Take<'_>) -> Result<Vec<TakenEvent>, StoreError> {
        let endpoint: Box<str> = take.endpoint.into();
        let Take {
            token,
            lease,
            limit,
            ..
        } = take;
        let take = move |entries: &Entries<'_, '_>| {
            entries.take(&Take {
                endpoint: &endpoint,
                token,
                lease,
                limit,
            })
        };
        self.writer.run_for_caller(take).await
    }

    async fn parked(
        &self,
        endpoint: &str,
        after: Option<&EventId>,
        limit: usize,
    ) -> Result<Vec<ParkedEvent>, StoreError> {
        let (endpoint, after): (Box<str>, _) = (endpoint.into(), after.cloned());
        self.writer
            .run_for_caller(move |entries| entries.parked(&endpoint, after.as_ref(), limit))
            .await
    }

    async fn replay(&self, key: EventKey<'_>) -> Result<bool, StoreError> {
        let owned = OwnedKey::new(key);
        self.writer
            .run(move |entries| entries.replay(owned.key()))
            .await
    }

    async fn discard(&self, key: EventKey<'_>, retention: Duration) -> Result<bool, StoreError> {
        let owned = OwnedKey::new(key);
        self.writer
            .run(move |entries| entries.discard(owned.key(), retention))
            .await
    }

    async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
        self.writer
            .run_for_caller(move |entries| entries.purge(limit))
            .await
    }

    async fn backlog(&self, endpoint: &str) -> Result<Backlog, StoreError> {
        let endpoint: Box<str> = endpoint.into();
        self.writer
            .run_for_caller(move |entries| entries.backlog(&endpoint))
            .await
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").finish_non_exhaustive()
    }
}
