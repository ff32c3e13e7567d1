use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::clock::MonotonicClock;
use super::contents::Contents;
use crate::inbox::entry::Entry;
use crate::inbox::error::StoreError;
use crate::inbox::store::{
    AcceptState, Backlog, ClaimState, EventKey, HeldClaim, NewClaim, NewDelivery, ParkedEvent,
    Release, Store, Take, TakenEvent,
};
use crate::webhooks::{Clock, EventId};

const DEFAULT_CAPACITY: usize = 100_000;
const DEFAULT_BODY_MEMORY: usize = 256 * 1024 * 1024;
/// How many forgotten entries each call deletes on the way, at most.
const PURGED_PER_CALL: usize = 2;

/// A store in memory, for tests and for receivers that may forget.
///
/// It is lost when the process ends: an event that is delivered again afterwards is handled again. Clones
/// share their entries.
///
/// # Example: a small store in a mock's time
///
/// ```
/// use audience::inbox::{Inbox, MemoryStore};
///
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// let server = audience::mock::MockServer::start().await;
/// let store = MemoryStore::new().capacity(10_000).clock(server.clock());
/// let inbox = Inbox::builder(store).build()?;
/// # let _ = inbox;
/// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct MemoryStore {
    capacity: usize,
    body_memory: usize,
    clock: Arc<dyn Clock>,
    contents: Arc<Mutex<Contents>>,
}

/// When an entry is changed, and how many bytes its body may have.
struct Moment {
    now: SystemTime,
    room: usize,
}

/// How much a store holds, for tests.
#[cfg(test)]
#[derive(Debug)]
pub(super) struct Sizes {
    pub(super) entries: usize,
    pub(super) ordered: usize,
    pub(super) body_bytes: usize,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    /// Creates an empty store.
    #[must_use]
    pub fn new() -> Self {
        Self {
            capacity: DEFAULT_CAPACITY,
            body_memory: DEFAULT_BODY_MEMORY,
            clock: Arc::new(MonotonicClock::start()),
            contents: Arc::default(),
        }
    }

    /// Sets how many events are remembered at the most. Default: 100,000.
    ///
    /// An event beyond that is refused with [`StoreErrorKind::Full`](crate::inbox::StoreErrorKind::Full): nothing
    /// is forgotten before its time. An entry takes about 300 bytes, and its body as long as it waits.
    #[must_use]
    pub fn capacity(mut self, events: usize) -> Self {
        self.capacity = events;
        self
    }

    /// Sets how many bytes all accepted bodies may take together. Default: 256 MiB.
    #[must_use]
    pub fn body_memory(mut self, bytes: usize) -> Self {
        self.body_memory = bytes;
        self
    }

    /// Sets the clock that leases and retention follow. Default: a monotonic clock.
    ///
    /// Any closure that returns a [`SystemTime`] is a clock, and so is `MockServer::clock()`.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Changes one entry. Returns `false` if there is none.
    fn change(
        &self,
        key: EventKey<'_>,
        change: impl FnOnce(&mut Entry<Bytes>, SystemTime) -> bool,
    ) -> bool {
        let now = self.clock.now();
        self.contents()
            .change(key, |entry| change(entry, now))
            .unwrap_or(false)
    }

    /// Changes an entry, which is created if there is none and there is room.
    fn change_or_insert<T>(
        &self,
        key: EventKey<'_>,
        change: impl FnOnce(&mut Entry<Bytes>, Moment) -> T,
    ) -> Result<T, StoreError> {
        let now = self.clock.now();
        let mut contents = self.contents();
        contents.purge(PURGED_PER_CALL, key.endpoint, now);
        if contents.entries >= self.capacity && !contents.has(key) {
            contents.purge_all(now);
            if contents.entries >= self.capacity {
                return Err(StoreError::full(format!(
                    "it holds {} events",
                    self.capacity
                )));
            }
        }
        let room = self.body_memory.saturating_sub(contents.body_bytes);
        Ok(contents.change_or_insert(key, now, |entry| {
            entry.forget_if_past(now);
            change(entry, Moment { now, room })
        }))
    }

    #[cfg(test)]
    pub(super) fn sizes(&self) -> Sizes {
        let contents = self.contents();
        let shelves = contents.shelves.values().map(super::shelf::Shelf::sizes);
        let (entries, ordered) =
            shelves.fold((0, 0), |sum, shelf| (sum.0 + shelf.0, sum.1 + shelf.1));
        assert_eq!(entries, contents.entries);
        Sizes {
            entries,
            ordered,
            body_bytes: contents.body_bytes,
        }
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for MemoryStore {
    async fn claim(&self, claim: NewClaim<'_>) -> Result<ClaimState, StoreError> {
        self.change_or_insert(claim.key, |entry, moment| entry.claim(&claim, moment.now))
    }

    async fn extend(&self, held: HeldClaim<'_>, lease: Duration) -> Result<bool, StoreError> {
        Ok(self.change(held.key, |entry, now| entry.extend(held.token, lease, now)))
    }

    async fn complete(&self, held: HeldClaim<'_>, retention: Duration) -> Result<bool, StoreError> {
        Ok(self.change(held.key, |entry, now| {
            entry.complete(held.token, retention, now)
        }))
    }

    async fn release(&self, held: HeldClaim<'_>, release: Release<'_>) -> Result<bool, StoreError> {
        Ok(self.change(held.key, |entry, now| {
            entry.release(held.token, release.delay, release.retention, now)
        }))
    }

    async fn park(&self, held: HeldClaim<'_>, reason: &str) -> Result<bool, StoreError> {
        Ok(self.change(held.key, |entry, now| entry.park(held.token, reason, now)))
    }

    async fn accept(&self, delivery: NewDelivery<'_>) -> Result<AcceptState, StoreError> {
        let NewDelivery {
            key,
            body,
            fingerprint,
        } = delivery;
        let accepted = self.change_or_insert(key, |entry, Moment { now, room }| {
            let stored = || (body.len() <= room).then(|| Bytes::copy_from_slice(body));
            entry.accept(stored, fingerprint, now)
        })?;
        accepted.ok_or_else(|| {
            let limit = self.body_memory;
            StoreError::full(format!(
                "the accepted bodies would take more than {limit} bytes"
            ))
        })
    }

    async fn take(&self, take: Take<'_>) -> Result<Vec<TakenEvent>, StoreError> {
        let now = self.clock.now();
        let mut contents = self.contents();
        let shelf = contents.shelves.get_mut(take.endpoint);
        Ok(shelf
            .map(|shelf| shelf.take(&take, now))
            .unwrap_or_default())
    }

    async fn parked(
        &self,
        endpoint: &str,
        after: Option<&EventId>,
        limit: usize,
    ) -> Result<Vec<ParkedEvent>, StoreError> {
        let now = self.clock.now();
        let contents = self.contents();
        let shelf = contents.shelves.get(endpoint);
        Ok(shelf
            .map(|shelf| shelf.parked(after, limit, now))
            .unwrap_or_default())
    }

    async fn replay(&self, key: EventKey<'_>) -> Result<bool, StoreError> {
        Ok(self.change(key, Entry::replay))
    }

    async fn discard(&self, key: EventKey<'_>, retention: Duration) -> Result<bool, StoreError> {
        Ok(self.change(key, |entry, now| entry.discard(retention, now)))
    }

    async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
        let now = self.clock.now();
        let mut contents = self.contents();
        let mut purged = 0;
        for shelf in contents.shelves.values_mut() {
            purged += shelf.purge(limit - purged, now);
        }
        contents.entries -= purged;
        Ok(purged)
    }

    async fn backlog(&self, endpoint: &str) -> Result<Backlog, StoreError> {
        let now = self.clock.now();
        let contents = self.contents();
        let shelf = contents.shelves.get(endpoint);
        Ok(shelf.map(|shelf| shelf.backlog(now)).unwrap_or_default())
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let contents = self.contents();
        f.debug_struct("MemoryStore")
            .field("capacity", &self.capacity)
            .field("events", &contents.entries)
            .field("body_bytes", &contents.body_bytes)
            .finish_non_exhaustive()
    }
}
