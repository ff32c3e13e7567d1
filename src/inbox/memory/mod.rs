//! A store in memory.

use std::collections::hash_map::{self, HashMap};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;

use super::REPORT_INTERVAL;
use super::entry::{Entry, State};
use super::error::StoreError;
use super::store::{
    AcceptState, Backlog, ClaimState, EventKey, Fingerprint, HeldClaim, NewClaim, NewDelivery,
    ParkedEvent, Release, Store, Take, TakenEvent,
};
use crate::sync::lock;
use crate::webhooks::{Clock, EventId};

const DEFAULT_CAPACITY: usize = 100_000;
const DEFAULT_BODY_MEMORY: usize = 256 * 1024 * 1024;
/// How many forgotten entries each call deletes, at most.
const PURGED_PER_CALL: usize = 2;

/// A store in memory, for tests and for receivers that tolerate the loss of data.
///
/// Its entries are lost when the process ends. An event that is delivered again afterwards is handled again.
/// Clones share their entries.
///
/// # When it is full
///
/// It remembers 100,000 events, and an inbox remembers a handled event for 72 hours. When it is full, **it refuses
/// every new event**, and the service is told to deliver them later. It then [traces](crate::inbox#tracing) a warning,
/// at most once a minute, and a message when it has room again. Set [`capacity`](MemoryStoreBuilder::capacity), or use
/// `SqliteStore`, if a program with more events runs for days.
///
/// # Example: a small store in a mock's time
///
/// ```
/// use audience::inbox::{Inbox, MemoryStore};
///
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// let server = audience::mock::MockServer::start().await;
/// let store = MemoryStore::builder()
///     .capacity(10_000)
///     .clock(server.clock())
///     .build();
/// let inbox = Inbox::builder(store).build()?;
/// # let _ = inbox;
/// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct MemoryStore {
    settings: MemoryStoreBuilder,
    contents: Arc<Mutex<Contents>>,
}

/// Builds a [`MemoryStore`].
#[derive(Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct MemoryStoreBuilder {
    capacity: usize,
    body_memory: usize,
    clock: Arc<dyn Clock>,
}

/// When an entry is changed, and how many bytes its body may have.
struct Moment {
    now: SystemTime,
    room: usize,
}

/// What is logged about a limit. A store may be full and have room again many times a minute.
#[derive(Debug, Default)]
struct Limit {
    /// Since when events are refused.
    full_since: Option<SystemTime>,
    /// How much room the event needs that was refused last.
    needed: usize,
    warned_at: Option<SystemTime>,
    /// Whether the last message says that it is full.
    is_warned: bool,
    /// How many events were refused since the last warning.
    refused: u64,
}

impl Limit {
    /// Notes a refused event. Returns how many were refused since the last warning, if another warning is due.
    fn refuse(&mut self, needed: usize, now: SystemTime) -> Option<u64> {
        self.full_since = self.full_since.or(Some(now));
        self.needed = needed;
        self.refused += 1;
        let quiet = |last| now.duration_since(last).unwrap_or_default();
        let is_due = self
            .warned_at
            .is_none_or(|last| quiet(last) >= REPORT_INTERVAL);
        is_due.then(|| {
            self.warned_at = Some(now);
            self.is_warned = true;
            std::mem::take(&mut self.refused)
        })
    }

    /// Notes how much room there is. Returns since when events were refused, if none would be now and the last message
    /// says otherwise.
    fn note_room(&mut self, room: usize) -> Option<SystemTime> {
        if room < self.needed {
            return None;
        }
        let full_since = self.full_since.take()?;
        std::mem::take(&mut self.is_warned).then_some(full_since)
    }
}

// This is logged without the lock: a subscriber is the caller's code.

fn report_full(limit: &str, largest: usize, refused: Option<u64>) {
    if let Some(refused) = refused {
        report!(warn, limit, largest, refused, "memory store is full");
    }
}

fn report_room(limit: &str, full_since: Option<SystemTime>, now: SystemTime) {
    if let Some(since) = full_since {
        let seconds = now.duration_since(since).unwrap_or_default().as_secs();
        report!(info, limit, seconds, "memory store has room again");
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    /// Creates an empty store.
    ///
    /// # Example: clones share their entries
    ///
    /// ```
    /// use audience::inbox::{Claim, Inbox, MemoryStore};
    /// # use audience::webhooks::EventId;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let id = EventId::try_from("evt_1")?;
    /// let store = MemoryStore::new();
    /// let one = Inbox::builder(store.clone()).build()?;
    /// let other = Inbox::builder(store).build()?;
    ///
    /// let Claim::Fresh(_lease) = one.claim(&id).await? else { panic!("it is new") };
    ///
    /// assert!(matches!(other.claim(&id).await?, Claim::InProgress { .. }));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Starts building an empty store.
    ///
    /// # Example: a store for a quiet endpoint
    ///
    /// ```
    /// use audience::inbox::{Inbox, MemoryStore};
    ///
    /// let store = MemoryStore::builder().capacity(1_000).body_memory(1024 * 1024).build();
    /// let inbox = Inbox::builder(store).build()?;
    ///
    /// assert_eq!(inbox.metrics().accepted, 0);
    /// # Ok::<(), audience::ConfigError>(())
    /// ```
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder {
            capacity: DEFAULT_CAPACITY,
            body_memory: DEFAULT_BODY_MEMORY,
            clock: Arc::new(MonotonicClock::start()),
        }
    }

    /// Changes one entry. Returns `false` if there is none.
    fn change(
        &self,
        key: EventKey<'_>,
        change: impl FnOnce(&mut Entry<Bytes>, SystemTime) -> bool,
    ) -> bool {
        // This comes before the lock: the clock is the caller's code, and it may use the store.
        let now = self.settings.clock.now();
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
        let now = self.settings.clock.now();
        let mut contents = self.contents();
        // A call adds one entry at most, so two for each call keep up without an inbox that purges.
        contents.purge(PURGED_PER_CALL, key.endpoint, now);
        if contents.entries >= self.settings.capacity && !contents.has(key) {
            // Before an event is refused, forgotten entries of all endpoints are deleted. That takes longer, so not
            // each call does it.
            contents.purge_all(usize::MAX, now);
            let capacity = self.settings.capacity;
            if contents.entries >= capacity {
                let refused = contents.too_many.refuse(1, now);
                drop(contents);
                report_full("capacity", capacity, refused);
                return Err(StoreError::full(format!("it holds {capacity} events")));
            }
        }
        let room = contents.body_room(&self.settings);
        let result = contents.change_or_insert(key, now, |entry| {
            entry.forget_if_past(now);
            change(entry, Moment { now, room })
        });
        let free = self.settings.capacity.saturating_sub(contents.entries);
        let too_many_since = contents.too_many.note_room(free);
        let room = contents.body_room(&self.settings);
        let too_large_since = contents.too_large.note_room(room);
        drop(contents);
        report_room("capacity", too_many_since, now);
        report_room("body_memory", too_large_since, now);
        Ok(result)
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        // No code of a caller runs under the lock, so a panic cannot have left it half changed.
        lock(&self.contents)
    }
}

impl MemoryStoreBuilder {
    /// Sets the largest number of remembered events. Default: 100,000.
    ///
    /// A full store refuses new events with [`StoreErrorKind::Full`](crate::inbox::StoreErrorKind::Full): it
    /// forgets no event before its time. An entry takes about 300 bytes, plus its body while the event waits.
    ///
    /// # Example: a full store
    ///
    /// ```
    /// use audience::inbox::{Inbox, InboxError, MemoryStore, StoreErrorKind};
    /// # use audience::webhooks::EventId;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (one, other) = (EventId::try_from("evt_1")?, EventId::try_from("evt_2")?);
    /// let store = MemoryStore::builder().capacity(1).build();
    /// let inbox = Inbox::builder(store).build()?;
    /// let _lease = inbox.claim(&one).await?;
    ///
    /// let Err(InboxError::Store(error)) = inbox.claim(&other).await else { panic!("it is full") };
    /// assert_eq!(error.kind(), StoreErrorKind::Full);
    /// # Ok(()) }
    /// ```
    pub fn capacity(mut self, events: usize) -> Self {
        self.capacity = events;
        self
    }

    /// Sets how many bytes all accepted bodies may take together. Default: 256 MiB.
    ///
    /// # Example: a body that does not fit
    ///
    /// ```
    /// # use audience::inbox::{Inbox, MemoryStore, Receipt};
    /// # use audience::webhooks::{EventType, Signer, Verifier};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    /// # let headers = Signer::new("6Jm0nFq2pXvZk4Tt")?.sign(&EventType::Sent, std::time::SystemTime::now(), body);
    /// # let delivery = Verifier::new("6Jm0nFq2pXvZk4Tt")?.verify_event(&headers, body.to_vec())?;
    /// let store = MemoryStore::builder().body_memory(64).build();
    /// let inbox = Inbox::builder(store).build()?;
    ///
    /// assert!(delivery.body().len() > 64);
    /// assert_eq!(inbox.accept(delivery).await, Receipt::Full);
    /// # Ok(()) }
    /// ```
    pub fn body_memory(mut self, bytes: usize) -> Self {
        self.body_memory = bytes;
        self
    }

    /// Sets the clock that leases and retention follow. Default: a monotonic clock.
    ///
    /// Any closure that returns a [`SystemTime`] is a clock, and so is `MockServer::clock()`.
    ///
    /// # Example: a lease that ends without waiting
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use audience::inbox::{Claim, Inbox, MemoryStore};
    /// use audience::mock::MockServer;
    /// # use audience::webhooks::EventId;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let id = EventId::try_from("evt_1")?;
    /// let server = MockServer::start().await;
    /// let store = MemoryStore::builder().clock(server.clock()).build();
    /// let inbox = Inbox::builder(store).build()?;
    /// let _abandoned = inbox.claim(&id).await?;
    ///
    /// server.advance(Duration::from_secs(61)).await;
    ///
    /// let Claim::Fresh(lease) = inbox.claim(&id).await? else { panic!("the lease is over") };
    /// assert_eq!(lease.attempt(), 2);
    /// # Ok(()) }
    /// ```
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Builds the store.
    #[must_use]
    pub fn build(self) -> MemoryStore {
        MemoryStore {
            settings: self,
            contents: Arc::default(),
        }
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
        let (accepted, now) = self.change_or_insert(key, |entry, Moment { now, room }| {
            // The body is copied only if the event is new: a duplicate needs no room.
            let stored = || (body.len() <= room).then(|| Bytes::copy_from_slice(body));
            (entry.accept(stored, fingerprint, now), now)
        })?;
        accepted.ok_or_else(|| {
            let limit = self.settings.body_memory;
            let refused = self.contents().too_large.refuse(body.len().min(limit), now);
            report_full("body_memory", limit, refused);
            StoreError::full(format!(
                "the accepted bodies would take more than {limit} bytes"
            ))
        })
    }

    async fn take(&self, take: Take<'_>) -> Result<Vec<TakenEvent>, StoreError> {
        let now = self.settings.clock.now();
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
        let now = self.settings.clock.now();
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
        let now = self.settings.clock.now();
        Ok(self.contents().purge_all(limit, now))
    }

    async fn state(
        &self,
        key: EventKey<'_>,
        fingerprint: Option<Fingerprint>,
    ) -> Result<ClaimState, StoreError> {
        let now = self.settings.clock.now();
        let contents = self.contents();
        let shelf = contents.shelves.get(key.endpoint);
        let entry = shelf.and_then(|shelf| shelf.entries.get(key.id));
        Ok(match entry.filter(|entry| !entry.is_past(now)) {
            Some(entry) => entry.claim_state(fingerprint, now),
            None => ClaimState::Fresh { attempt: 1 },
        })
    }

    async fn backlog(&self, endpoint: &str) -> Result<Backlog, StoreError> {
        let now = self.settings.clock.now();
        let contents = self.contents();
        let shelf = contents.shelves.get(endpoint);
        Ok(shelf.map(|shelf| shelf.backlog(now)).unwrap_or_default())
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let contents = self.contents();
        f.debug_struct("MemoryStore")
            .field("capacity", &self.settings.capacity)
            .field("events", &contents.entries)
            .field("body_bytes", &contents.body_bytes)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for MemoryStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStoreBuilder")
            .field("capacity", &self.capacity)
            .field("body_memory", &self.body_memory)
            .finish_non_exhaustive()
    }
}

/// The events of all endpoints.
#[derive(Debug, Default)]
struct Contents {
    /// The events by endpoint. Endpoints are few, so comparing their names is faster than hashing them.
    shelves: BTreeMap<Box<str>, Shelf>,
    /// How many entries all shelves have.
    entries: usize,
    /// How many bytes all bodies have.
    body_bytes: usize,
    too_many: Limit,
    too_large: Limit,
}

impl Contents {
    /// Returns how many bytes another body may have.
    fn body_room(&self, settings: &MemoryStoreBuilder) -> usize {
        settings.body_memory.saturating_sub(self.body_bytes)
    }

    fn has(&self, key: EventKey<'_>) -> bool {
        let shelf = self.shelves.get(key.endpoint);
        shelf.is_some_and(|shelf| shelf.contains(key.id))
    }

    fn change<T>(
        &mut self,
        key: EventKey<'_>,
        change: impl FnOnce(&mut Entry<Bytes>) -> T,
    ) -> Option<T> {
        let shelf = self.shelves.get_mut(key.endpoint)?;
        let (result, body) = shelf.change(key.id, weighed(change))?;
        self.body_bytes = self.body_bytes + body.after - body.before;
        Some(result)
    }

    fn change_or_insert<T>(
        &mut self,
        key: EventKey<'_>,
        now: SystemTime,
        change: impl FnOnce(&mut Entry<Bytes>) -> T,
    ) -> T {
        // `entry` would copy the name for each call.
        if !self.shelves.contains_key(key.endpoint) {
            self.shelves.insert(key.endpoint.into(), Shelf::default());
        }
        let shelf = self.shelves.get_mut(key.endpoint);
        let shelf = shelf.expect("the shelf was inserted if it was absent");
        let entries = shelf.len();
        let (result, body) = shelf.change_or_insert(key.id, now, weighed(change));
        self.entries = self.entries + shelf.len() - entries;
        self.body_bytes = self.body_bytes + body.after - body.before;
        result
    }

    fn purge(&mut self, limit: usize, endpoint: &str, now: SystemTime) {
        if let Some(shelf) = self.shelves.get_mut(endpoint) {
            self.entries -= shelf.purge(limit, now);
        }
    }

    fn purge_all(&mut self, limit: usize, now: SystemTime) -> usize {
        let mut purged = 0;
        for shelf in self.shelves.values_mut() {
            purged += shelf.purge(limit - purged, now);
        }
        self.entries -= purged;
        purged
    }
}

/// How many bytes the body of an entry had, and has.
struct BodyChange {
    before: usize,
    after: usize,
}

/// Changes an entry, and also returns how the length of its body changed.
fn weighed<T>(
    change: impl FnOnce(&mut Entry<Bytes>) -> T,
) -> impl FnOnce(&mut Entry<Bytes>) -> (T, BodyChange) {
    let length = |entry: &Entry<Bytes>| entry.body.as_ref().map_or(0, Bytes::len);
    move |entry| {
        let before = length(entry);
        let result = change(entry);
        let after = length(entry);
        (result, BodyChange { before, after })
    }
}

/// The events of one endpoint.
#[derive(Debug, Default)]
struct Shelf {
    entries: HashMap<EventId, Entry<Bytes>>,
    /// The accepted events by the time at which a worker may take them.
    due: BTreeSet<(SystemTime, EventId)>,
    /// The events that may be forgotten, by the time from which they may be.
    forget: BTreeSet<(SystemTime, EventId)>,
    parked: BTreeSet<EventId>,
}

/// Where an entry is in the indexes of its shelf.
#[derive(Default)]
struct Place {
    due: Option<SystemTime>,
    forget_at: Option<SystemTime>,
    is_parked: bool,
}

impl Place {
    fn of(entry: &Entry<Bytes>) -> Self {
        Self {
            due: entry.due(),
            forget_at: entry.forget_at(),
            is_parked: matches!(entry.state, State::Parked { .. }),
        }
    }
}

impl Shelf {
    fn contains(&self, id: &EventId) -> bool {
        self.entries.contains_key(id)
    }

    fn len(&self) -> usize {
        self.entries.len()
    }

    /// Changes an entry, if there is one.
    fn change<T>(
        &mut self,
        id: &EventId,
        change: impl FnOnce(&mut Entry<Bytes>) -> T,
    ) -> Option<T> {
        let entry = self.entries.get_mut(id)?;
        // Read before the change: two indexes find an id by its old time only.
        let before = Place::of(entry);
        let result = change(entry);
        let after = Place::of(entry);
        self.reorder(id, &before, &after);
        Some(result)
    }

    /// Changes an entry, which is a new one if there is none.
    fn change_or_insert<T>(
        &mut self,
        id: &EventId,
        now: SystemTime,
        change: impl FnOnce(&mut Entry<Bytes>) -> T,
    ) -> T {
        let (entry, before) = match self.entries.entry(id.clone()) {
            hash_map::Entry::Occupied(entry) => {
                let entry = entry.into_mut();
                let before = Place::of(entry);
                (entry, before)
            }
            hash_map::Entry::Vacant(vacant) => (vacant.insert(Entry::new(now)), Place::default()),
        };
        let result = change(entry);
        let after = Place::of(entry);
        self.reorder(id, &before, &after);
        result
    }

    fn reorder(&mut self, id: &EventId, before: &Place, after: &Place) {
        reorder(&mut self.due, id, before.due, after.due);
        reorder(&mut self.forget, id, before.forget_at, after.forget_at);
        match (before.is_parked, after.is_parked) {
            (false, true) => _ = self.parked.insert(id.clone()),
            (true, false) => _ = self.parked.remove(id),
            _ => {}
        }
    }

    fn take(&mut self, take: &Take<'_>, now: SystemTime) -> Vec<TakenEvent> {
        // All are chosen first: a lease of zero makes an event due again immediately.
        let due: Vec<_> = self
            .due
            .iter()
            .map_while(|(due, id)| Some((now.duration_since(*due).ok()?, id.clone())))
            .take(take.limit)
            .collect();
        due.into_iter()
            .filter_map(|(overdue, id)| {
                let (body, attempt) = self.change(&id, |entry| {
                    entry.start(take.token, take.lease, Duration::ZERO, now);
                    (entry.body.clone(), entry.attempts)
                })?;
                Some(TakenEvent {
                    id,
                    body: body?,
                    attempt,
                    overdue,
                })
            })
            .collect()
    }

    fn parked(&self, after: Option<&EventId>, limit: usize, now: SystemTime) -> Vec<ParkedEvent> {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let ids = self.parked.range((after, Bound::Unbounded));
        ids.take(limit)
            .filter_map(|id| {
                let entry = self.entries.get(id)?;
                let State::Parked { since, reason } = &entry.state else {
                    return None;
                };
                let parked_for = now.duration_since(*since).unwrap_or_default();
                Some(ParkedEvent::new(
                    id.clone(),
                    entry.body.clone(),
                    entry.attempts,
                    reason,
                    parked_for,
                ))
            })
            .collect()
    }

    /// Deletes up to `limit` entries that may be forgotten. Returns how many.
    fn purge(&mut self, limit: usize, now: SystemTime) -> usize {
        let mut purged = 0;
        while purged < limit
            && let Some((forget_at, _)) = self.forget.first()
            && *forget_at <= now
            && let Some((_, id)) = self.forget.pop_first()
        {
            self.entries.remove(&id);
            purged += 1;
        }
        purged
    }

    fn backlog(&self, now: SystemTime) -> Backlog {
        // This looks at the events that wait, and not at those that are done: each page of an unsubscribe link asks for it.
        let is_claimed = |id| {
            let entry: Option<&Entry<Bytes>> = self.entries.get(id);
            entry.is_some_and(
                |entry| matches!(entry.state, State::Open { is_claimed, .. } if is_claimed),
            )
        };
        let due = self.due.iter();
        let in_progress = due.filter(|(due, id)| *due > now && is_claimed(id));
        let in_progress = in_progress.count();
        let lag = self.due.first();
        let lag = lag.and_then(|(due, _)| now.duration_since(*due).ok());
        Backlog::new(
            (self.due.len() - in_progress) as u64,
            in_progress as u64,
            self.parked.len() as u64,
            lag.unwrap_or_default(),
        )
    }
}

/// Moves an id from one time to another.
fn reorder(
    order: &mut BTreeSet<(SystemTime, EventId)>,
    id: &EventId,
    before: Option<SystemTime>,
    after: Option<SystemTime>,
) {
    if before == after {
        return;
    }
    let mut key = (SystemTime::UNIX_EPOCH, id.clone());
    if let Some(before) = before {
        key.0 = before;
        order.remove(&key);
    }
    if let Some(after) = after {
        key.0 = after;
        order.insert(key);
    }
}

/// A clock that never jumps: the time at its creation, and what a monotonic clock measured since.
struct MonotonicClock {
    start: SystemTime,
    since: Instant,
}

impl MonotonicClock {
    fn start() -> Self {
        Self {
            start: SystemTime::now(),
            since: Instant::now(),
        }
    }
}

impl Clock for MonotonicClock {
    fn now(&self) -> SystemTime {
        let elapsed = self.since.elapsed();
        self.start.checked_add(elapsed).unwrap_or(self.start)
    }
}

#[cfg(test)]
mod tests;
