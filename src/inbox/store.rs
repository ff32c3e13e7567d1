//! The trait of stores, with the arguments and the results of its methods.

use std::fmt;
use std::future::{poll_fn, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::error::StoreError;
use crate::webhooks::EventId;

/// Storage for an inbox.
///
/// A store keeps one entry for each pair of endpoint and event id. An entry is open (claimed, or waiting to
/// be claimed), done, or parked. **Every method is one atomic step**: of any number of concurrent callers,
/// on any number of machines, one wins. All times are the store's own; no method is given a time, only
/// durations. No method panics. If its database does not respond, a method ends with an error.
///
/// Implement it to use another database, and test it with the suite of `inbox::conformance`
/// (feature `inbox-conformance`), whose page has a small, complete store as an example. An `async fn` implements
/// a method if its future is `Send`.
///
/// # An entry
///
/// An entry holds its state, the [`Token`] of the newest claim, the number of claims so far, the time at which its
/// lease ends or it is due, and the time from which it may be forgotten. It also holds the [`Fingerprint`] of the
/// body if that is known, the body if the event was accepted, and the reason if the event is parked.
///
/// An entry that is remembered for no time is absent from then on, also if the clock jumps back.
///
/// # The states
///
/// | entry | `claim` | `accept` | `take` |
/// |---|---|---|---|
/// | absent, or done and past its retention | fresh, attempt 1 | accepted | |
/// | open, lease or delay not over | in progress | in progress; `Duplicate` if it has a body | not taken |
/// | open, lease or delay over | fresh, attempt + 1 | accepted; `Duplicate` if it has a body | taken, attempt + 1, if it has a body |
/// | done, within its retention | done | duplicate | |
/// | parked | parked | duplicate | |
/// | another fingerprint than the one given | conflict | conflict | |
///
/// For an entry that exists, the fingerprint is compared first, unless it is open, has no body, and its lease or delay
/// is over. Then no attempt is known to have succeeded, and nothing is stored. So the entry takes the next body and its
/// fingerprint. `state` returns what `claim` would.
pub trait Store: Send + Sync + 'static {
    /// Claims an event.
    ///
    /// Retrying with the same token is idempotent: while the lease of the newest claim lasts, a claim with its
    /// token is fresh with the same attempt. It does not renew the lease, which is counted from the first call.
    fn claim(
        &self,
        claim: NewClaim<'_>,
    ) -> impl Future<Output = Result<ClaimState, StoreError>> + Send;

    /// Renews a lease, which then ends this long from now. Returns whether the claim was held.
    fn extend(
        &self,
        held: HeldClaim<'_>,
        lease: Duration,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Marks a claimed event as done, deletes its body, and remembers its id for this long. Returns whether
    /// the claim was held. Calling it again with the same token returns `true` and changes nothing.
    ///
    /// A claim is held until it is completed, released or parked, even after its lease ended, if the event was
    /// neither claimed nor accepted since.
    fn complete(
        &self,
        held: HeldClaim<'_>,
        retention: Duration,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Ends a claim without success: the event may be claimed again after this delay. Keeps the body and the
    /// number of claims. Returns whether the claim was held.
    fn release(
        &self,
        held: HeldClaim<'_>,
        release: Release<'_>,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Parks a claimed event: it is kept with its body and this reason until it is replayed or discarded.
    /// Returns whether the claim was held.
    fn park(
        &self,
        held: HeldClaim<'_>,
        reason: &str,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Stores the body of an event, to be taken by a worker. It is due immediately.
    fn accept(
        &self,
        delivery: NewDelivery<'_>,
    ) -> impl Future<Output = Result<AcceptState, StoreError>> + Send;

    /// Claims up to `limit` accepted events of an endpoint that are due, the oldest due time first.
    fn take(
        &self,
        take: Take<'_>,
    ) -> impl Future<Output = Result<Vec<TakenEvent>, StoreError>> + Send;

    /// Completes claims and takes events, as a worker does it. Takes none if the limit is zero.
    ///
    /// It has the effect of the single calls in any order, and need not be one atomic step. If the completions
    /// failed, any number of them may have been made.
    ///
    /// The default implementation makes all calls simultaneously. Implement it if one request to the database can
    /// do it all.
    fn complete_and_take(
        &self,
        completed: &[HeldClaim<'_>],
        retention: Duration,
        take: Take<'_>,
    ) -> impl Future<Output = Turnover> + Send {
        turn_over(self, completed, retention, take)
    }

    /// Returns up to `limit` parked events of an endpoint, ordered by the bytes of their ids, that come after
    /// this id. The default implementation returns an error. An `UnsubscribeService` calls it for each link, unless it
    /// has the function `current_address`: it keeps the changes of addresses as parked events without a body.
    fn parked(
        &self,
        endpoint: &str,
        after: Option<&EventId>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<ParkedEvent>, StoreError>> + Send {
        let _ = (endpoint, after, limit);
        ready(Err(unsupported("parked")))
    }

    /// Makes a parked event due now, and sets its attempts to zero. Returns whether it was parked. An event that
    /// was parked without a body becomes claimable. The default implementation returns an error.
    fn replay(&self, key: EventKey<'_>) -> impl Future<Output = Result<bool, StoreError>> + Send {
        let _ = key;
        ready(Err(unsupported("replay")))
    }

    /// Makes a parked event done, deletes its body, and remembers its id for this long. Returns whether it was
    /// parked. The default implementation returns an error.
    fn discard(
        &self,
        key: EventKey<'_>,
        retention: Duration,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send {
        let _ = (key, retention);
        ready(Err(unsupported("discard")))
    }

    /// Deletes up to `limit` entries of all endpoints that may be forgotten: done ones, and open ones without a
    /// body. Returns how many were deleted; if it is less than `limit`, no such entry is left.
    /// The default implementation deletes nothing, for a store whose entries expire by themselves.
    fn purge(&self, limit: usize) -> impl Future<Output = Result<usize, StoreError>> + Send {
        let _ = limit;
        ready(Ok(0))
    }

    /// Returns what [`claim`](Self::claim) would return for a new token, and changes nothing.
    /// [`Fresh`](ClaimState::Fresh) has the number of the attempt that such a claim would be.
    ///
    /// The default implementation makes a claim that ends and is forgotten immediately. That is a write, and it counts as
    /// an attempt. So implement it if the database can read an entry.
    ///
    /// # Example: ask without a claim
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # use audience::inbox::{ClaimState, EventKey, MemoryStore, NewClaim, Store, Token};
    /// # use audience::webhooks::EventId;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// # let id = EventId::try_from("evt_1")?;
    /// # let (minute, day) = (Duration::from_secs(60), Duration::from_secs(86_400));
    /// let key = EventKey::new("main", &id);
    ///
    /// assert_eq!(store.state(key, None).await?, ClaimState::Fresh { attempt: 1 });
    /// store.claim(NewClaim::new(key, Token::random(), minute, day)).await?;
    /// assert!(matches!(store.state(key, None).await?, ClaimState::InProgress { .. }));
    /// # Ok(()) }
    /// ```
    fn state(
        &self,
        key: EventKey<'_>,
        fingerprint: Option<Fingerprint>,
    ) -> impl Future<Output = Result<ClaimState, StoreError>> + Send {
        state_by_claim(self, key, fingerprint)
    }

    /// Counts the accepted events of an endpoint that are not done. The default implementation returns an error.
    fn backlog(&self, endpoint: &str) -> impl Future<Output = Result<Backlog, StoreError>> + Send {
        let _ = endpoint;
        ready(Err(unsupported("backlog")))
    }
}

async fn state_by_claim<S: Store + ?Sized>(
    store: &S,
    key: EventKey<'_>,
    fingerprint: Option<Fingerprint>,
) -> Result<ClaimState, StoreError> {
    let claim = NewClaim {
        key,
        token: Token::random(),
        lease: Duration::ZERO,
        retention: Duration::ZERO,
        fingerprint,
    };
    store.claim(claim).await
}

/// Makes the calls of [`Store::complete_and_take`] one by one, but simultaneously.
pub(super) async fn turn_over<S: Store + ?Sized>(
    store: &S,
    completed: &[HeldClaim<'_>],
    retention: Duration,
    take: Take<'_>,
) -> Turnover {
    let completing = completed.iter();
    let completing = completing.map(|held| store.complete(*held, retention));
    let completing: Vec<_> = completing.collect();
    let taking = async {
        match take.limit {
            0 => Ok(Vec::new()),
            _ => store.take(take).await,
        }
    };
    let (completed, taken) = tokio::join!(all(completing), taking);
    Turnover {
        completed: completed.into_iter().collect(),
        taken,
    }
}

/// Runs these futures simultaneously, and returns their results in the same order.
pub(super) async fn all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let futures = futures.into_iter();
    let mut futures: Vec<_> = futures.map(|future| Some(Box::pin(future))).collect();
    let mut results = Vec::with_capacity(futures.len());
    results.resize_with(futures.len(), || None);
    poll_fn(|context| {
        for (future, result) in futures.iter_mut().zip(&mut results) {
            if let Some(running) = future
                && let Poll::Ready(ended) = running.as_mut().poll(context)
            {
                (*future, *result) = (None, Some(ended));
            }
        }
        match futures.iter().all(Option::is_none) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    results.into_iter().flatten().collect()
}

fn unsupported(method: &str) -> StoreError {
    StoreError::unusable(format!("this store does not implement `{method}`"))
}

/// The name of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventKey<'a> {
    /// The endpoint that received the event: 1 to 255 bytes without control characters.
    pub endpoint: &'a str,
    /// The id of the event. Two ids are equal if their bytes are: case and Unicode forms count.
    pub id: &'a EventId,
}

impl<'a> EventKey<'a> {
    /// Names the entry of an event that this endpoint received.
    ///
    /// # Example: two events of one endpoint
    ///
    /// ```
    /// use audience::inbox::EventKey;
    /// # use audience::webhooks::EventId;
    ///
    /// # let (upper, lower) = (EventId::try_from("evt_A")?, EventId::try_from("evt_a")?);
    /// assert_ne!(EventKey::new("main", &upper), EventKey::new("main", &lower));
    /// # Ok::<(), audience::webhooks::InvalidEventId>(())
    /// ```
    #[must_use]
    pub fn new(endpoint: &'a str, id: &'a EventId) -> Self {
        Self { endpoint, id }
    }
}

/// A claim to be made.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct NewClaim<'a> {
    /// The event to claim.
    pub key: EventKey<'a>,
    /// The token of the new claim.
    pub token: Token,
    /// How long the claim lasts.
    pub lease: Duration,
    /// How long after the end of the lease the entry is remembered if it is neither completed nor claimed again.
    pub retention: Duration,
    /// The fingerprint of the body, if the caller has the body.
    pub fingerprint: Option<Fingerprint>,
}

impl<'a> NewClaim<'a> {
    /// Creates a claim of an event whose body is not known.
    ///
    /// # Example: a lost response does not lose the claim
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # use audience::inbox::{ClaimState, EventKey, MemoryStore, NewClaim, Store, Token};
    /// # use audience::webhooks::EventId;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// # let id = EventId::try_from("evt_1")?;
    /// # let (minute, day) = (Duration::from_secs(60), Duration::from_secs(86_400));
    /// let claim = NewClaim::new(EventKey::new("main", &id), Token::random(), minute, day);
    ///
    /// assert_eq!(store.claim(claim).await?, ClaimState::Fresh { attempt: 1 });
    /// assert_eq!(store.claim(claim).await?, ClaimState::Fresh { attempt: 1 }); // with the same token
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn new(key: EventKey<'a>, token: Token, lease: Duration, retention: Duration) -> Self {
        Self {
            key,
            token,
            lease,
            retention,
            fingerprint: None,
        }
    }

    /// Sets the fingerprint of the body.
    ///
    /// # Example: one id, two bodies
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # use audience::inbox::{ClaimState, EventKey, Fingerprint, MemoryStore, NewClaim, Store, Token};
    /// # use audience::webhooks::EventId;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// # let id = EventId::try_from("evt_1")?;
    /// # let (minute, day) = (Duration::from_secs(60), Duration::from_secs(86_400));
    /// let claim = |body| {
    ///     NewClaim::new(EventKey::new("main", &id), Token::random(), minute, day)
    ///         .fingerprint(Fingerprint::of(body))
    /// };
    /// store.claim(claim(b"one")).await?;
    ///
    /// assert_eq!(store.claim(claim(b"another")).await?, ClaimState::Conflict);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn fingerprint(mut self, fingerprint: Fingerprint) -> Self {
        self.fingerprint = Some(fingerprint);
        self
    }
}

/// A claim that was made.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct HeldClaim<'a> {
    /// The claimed event.
    pub key: EventKey<'a>,
    /// The token of the claim.
    pub token: Token,
}

impl<'a> HeldClaim<'a> {
    /// Names the claim of an event by its token.
    ///
    /// # Example: only the holder completes
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # use audience::inbox::{EventKey, HeldClaim, MemoryStore, NewClaim, Store, Token};
    /// # use audience::webhooks::EventId;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// # let id = EventId::try_from("evt_1")?;
    /// # let (minute, day) = (Duration::from_secs(60), Duration::from_secs(86_400));
    /// let (key, token) = (EventKey::new("main", &id), Token::random());
    /// store.claim(NewClaim::new(key, token, minute, day)).await?;
    ///
    /// assert!(!store.complete(HeldClaim::new(key, Token::random()), day).await?);
    /// assert!(store.complete(HeldClaim::new(key, token), day).await?);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn new(key: EventKey<'a>, token: Token) -> Self {
        Self { key, token }
    }
}

/// The end of a claim without success.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Release<'a> {
    /// How long the event cannot be claimed. Zero means that it can be claimed immediately.
    pub delay: Duration,
    /// How long an entry without a body is remembered.
    pub retention: Duration,
    /// Why the attempt failed. A store may keep it with the body.
    pub reason: &'a str,
}

impl<'a> Release<'a> {
    /// Creates the end of a claim.
    ///
    /// # Example: a claim that ends with a delay
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # use audience::inbox::{ClaimState, EventKey, HeldClaim, MemoryStore, NewClaim, Release, Store, Token};
    /// # use audience::webhooks::EventId;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// # let id = EventId::try_from("evt_1")?;
    /// # let (minute, day) = (Duration::from_secs(60), Duration::from_secs(86_400));
    /// let (key, token) = (EventKey::new("main", &id), Token::random());
    /// let claim = NewClaim::new(key, token, minute, day);
    /// store.claim(claim).await?;
    ///
    /// store.release(HeldClaim::new(key, token), Release::new(minute, day, "no connection")).await?;
    ///
    /// assert!(matches!(store.claim(claim).await?, ClaimState::InProgress { .. }));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn new(delay: Duration, retention: Duration, reason: &'a str) -> Self {
        Self {
            delay,
            retention,
            reason,
        }
    }
}

/// An event to be stored for a worker.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct NewDelivery<'a> {
    /// The event.
    pub key: EventKey<'a>,
    /// The body, as it was signed.
    pub body: &'a [u8],
    /// The fingerprint of the body.
    pub fingerprint: Fingerprint,
}

impl<'a> NewDelivery<'a> {
    /// Creates a delivery with the fingerprint of its body.
    ///
    /// # Example: a store that is given an event twice
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # use audience::inbox::{AcceptState, EventKey, Fingerprint, MemoryStore, NewDelivery, Store};
    /// # use audience::webhooks::EventId;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// # let id = EventId::try_from("evt_1")?;
    /// # let (minute, day) = (Duration::from_secs(60), Duration::from_secs(86_400));
    /// # let _ = (minute, day);
    /// let body = b"{}";
    /// let delivery = NewDelivery::new(EventKey::new("main", &id), body, Fingerprint::of(body));
    ///
    /// assert_eq!(store.accept(delivery).await?, AcceptState::Accepted);
    /// assert_eq!(store.accept(delivery).await?, AcceptState::Duplicate);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn new(key: EventKey<'a>, body: &'a [u8], fingerprint: Fingerprint) -> Self {
        Self {
            key,
            body,
            fingerprint,
        }
    }
}

impl fmt::Debug for NewDelivery<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the body, here and below: it has addresses, and `Debug` output ends up in logs.
        f.debug_struct("NewDelivery")
            .field("key", &self.key)
            .field("body_length", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// A request for accepted events.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Take<'a> {
    /// The endpoint whose events are taken.
    pub endpoint: &'a str,
    /// The token of all claims that are made.
    pub token: Token,
    /// How long each claim lasts.
    pub lease: Duration,
    /// The largest number of events to take.
    pub limit: usize,
}

impl<'a> Take<'a> {
    /// Creates a request for the events of this endpoint.
    ///
    /// # Example: take up to ten events
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # use audience::inbox::{EventKey, Fingerprint, MemoryStore, NewDelivery, Store, Take, Token};
    /// # use audience::webhooks::EventId;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// # let id = EventId::try_from("evt_1")?;
    /// # let (minute, day) = (Duration::from_secs(60), Duration::from_secs(86_400));
    /// # let _ = day;
    /// let body = b"{}";
    /// store.accept(NewDelivery::new(EventKey::new("main", &id), body, Fingerprint::of(body))).await?;
    ///
    /// let taken = store.take(Take::new("main", Token::random(), minute, 10)).await?;
    ///
    /// assert_eq!((&taken[0].id, &taken[0].body[..]), (&id, &body[..]));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn new(endpoint: &'a str, token: Token, lease: Duration, limit: usize) -> Self {
        Self {
            endpoint,
            token,
            lease,
            limit,
        }
    }
}

/// The result of [`Store::complete_and_take`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Turnover {
    /// Whether each claim was held, in the order of the claims.
    pub completed: Result<Vec<bool>, StoreError>,
    /// The events that were taken.
    pub taken: Result<Vec<TakenEvent>, StoreError>,
}

impl Turnover {
    /// Creates a result, for a store to return.
    #[must_use]
    pub fn new(
        completed: Result<Vec<bool>, StoreError>,
        taken: Result<Vec<TakenEvent>, StoreError>,
    ) -> Self {
        Self { completed, taken }
    }
}

/// The result of [`Store::claim`] and of [`Store::state`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClaimState {
    /// The claim is the caller's. For [`Store::state`]: the event can be claimed.
    Fresh {
        /// How many claims of this event were made, this one included.
        attempt: u32,
    },
    /// Another claim lasts, or the event waits for its next attempt.
    InProgress {
        /// The longest time until the claim or the wait ends, if it is not extended.
        remaining: Duration,
    },
    /// The event is done.
    Done,
    /// The event is parked.
    Parked,
    /// The event is done, parked, stored, claimed or delayed, with another fingerprint. Nothing changed.
    Conflict,
}

/// The result of [`Store::accept`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcceptState {
    /// The event was stored.
    Accepted,
    /// The event was stored before: it waits, is being handled, is done, or is parked.
    Duplicate,
    /// The event has no stored body and is claimed. Nothing changed.
    InProgress {
        /// The longest time until the claim ends, if it is not extended.
        remaining: Duration,
    },
    /// The event is done, parked, stored, claimed or delayed, with another fingerprint. Nothing changed.
    Conflict,
}

/// An accepted event that a worker claimed.
#[derive(Clone)]
#[non_exhaustive]
pub struct TakenEvent {
    /// The id of the event.
    pub id: EventId,
    /// The stored body.
    pub body: Bytes,
    /// How many claims of this event were made, this one included.
    pub attempt: u32,
    /// How long the event had been due when it was taken.
    pub overdue: Duration,
}

impl TakenEvent {
    /// Creates a taken event, for a store to return.
    #[must_use]
    pub fn new(id: EventId, body: Bytes, attempt: u32, overdue: Duration) -> Self {
        Self {
            id,
            body,
            attempt,
            overdue,
        }
    }
}

impl fmt::Debug for TakenEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TakenEvent")
            .field("id", &self.id)
            .field("body_length", &self.body.len())
            .field("attempt", &self.attempt)
            .field("overdue", &self.overdue)
            .finish()
    }
}

/// An event that could not be handled, kept until it is replayed or discarded.
#[derive(Clone)]
#[non_exhaustive]
pub struct ParkedEvent {
    /// The id of the event.
    pub id: EventId,
    /// The stored body, personal data included, for
    /// [`Event::from_unverified_json`](crate::webhooks::Event::from_unverified_json). `None` if the event was claimed
    /// without being accepted.
    pub body: Option<Bytes>,
    /// How many claims were made, one for each attempt. If the process of the last attempt died, this is one more than
    /// the [largest number of attempts](super::Worker::max_attempts): the claim that parked the event counts, too. The
    /// reason then has the number of attempts.
    pub attempts: u32,
    /// Why it was parked.
    pub reason: String,
    /// How long it has been parked.
    pub parked_for: Duration,
}

impl ParkedEvent {
    /// Creates a parked event, for a store to return.
    ///
    /// # Example: the debug output has no personal data
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use audience::inbox::ParkedEvent;
    /// # use audience::webhooks::EventId;
    ///
    /// # let id = EventId::try_from("evt_1")?;
    /// let body = br#"{"to": "ada@example.com"}"#.to_vec();
    /// let event = ParkedEvent::new(id, Some(body.into()), 10, "no such customer", Duration::ZERO);
    ///
    /// let text = format!("{event:?}");
    ///
    /// assert!(text.contains("no such customer") && !text.contains("ada@example.com"));
    /// # Ok::<(), audience::webhooks::InvalidEventId>(())
    /// ```
    #[must_use]
    pub fn new(
        id: EventId,
        body: Option<Bytes>,
        attempts: u32,
        reason: impl Into<String>,
        parked_for: Duration,
    ) -> Self {
        Self {
            id,
            body,
            attempts,
            reason: reason.into(),
            parked_for,
        }
    }
}

impl fmt::Debug for ParkedEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParkedEvent")
            .field("id", &self.id)
            .field("body_length", &self.body.as_ref().map(Bytes::len))
            .field("attempts", &self.attempts)
            .field("reason", &self.reason)
            .field("parked_for", &self.parked_for)
            .finish()
    }
}

/// How many accepted events of an endpoint are not done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backlog {
    /// Events that wait for a worker, or for their next attempt.
    pub waiting: u64,
    /// Events that a worker has claimed.
    pub in_progress: u64,
    /// Events that are parked.
    pub parked: u64,
    /// How long the oldest due event has been due. Zero if no event is due.
    pub lag: Duration,
}

impl Backlog {
    /// Creates a backlog, for a store to return.
    #[must_use]
    pub fn new(waiting: u64, in_progress: u64, parked: u64, lag: Duration) -> Self {
        Self {
            waiting,
            in_progress,
            parked,
            lag,
        }
    }
}

/// The proof that a caller holds a claim: 16 random bytes, new for each claim.
///
/// A store keeps the token of the newest claim of an event. A caller with another token does not hold the
/// claim. A token is not a secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token([u8; 16]);

impl Token {
    /// Returns a new random token.
    #[must_use]
    pub fn random() -> Self {
        // It need not be hard to guess, only different from all others: a caller never chooses a token.
        Self(fastrand::u128(..).to_be_bytes())
    }

    /// Returns the token that has these bytes.
    ///
    /// # Example: a token in a column of a table
    ///
    /// ```
    /// use audience::inbox::Token;
    ///
    /// let token = Token::random();
    /// let column: Vec<u8> = token.as_bytes().to_vec();
    ///
    /// let bytes: [u8; 16] = column.try_into().map_err(|_| "the column has no token")?;
    /// assert_eq!(Token::from_bytes(bytes), token);
    /// # Ok::<(), &'static str>(())
    /// ```
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes of the token, to store them.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({:032x})", u128::from_be_bytes(self.0))
    }
}

/// The fingerprint of a body: the first 16 bytes of its SHA-256.
///
/// A store keeps it to notice an event id that arrives again with another body. It contains no part of the body.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 16]);

impl Fingerprint {
    /// Returns the fingerprint of a body.
    ///
    /// # Example: a space makes another body
    ///
    /// ```
    /// use audience::inbox::Fingerprint;
    ///
    /// assert_eq!(Fingerprint::of(b"{}"), Fingerprint::of(b"{}"));
    /// assert_ne!(Fingerprint::of(b"{}"), Fingerprint::of(b"{ }"));
    /// ```
    #[must_use]
    pub fn of(body: &[u8]) -> Self {
        let digest: [u8; 32] = Sha256::digest(body).into();
        // Half of the hash keeps entries small. Only a sender that has the secret could search for a collision.
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        Self(bytes)
    }

    /// Returns the fingerprint that has these bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes of the fingerprint, to store them.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({:032x})", u128::from_be_bytes(self.0))
    }
}

/// Passes all methods of a store to a macro, with the lifetime of their borrowed arguments and, if given, a type.
macro_rules! for_each_method {
    ($macro:ident, $a:lifetime $(, $store:ty, $field:ident)?) => {
        $macro! { $a $(, $store, $field)?:
            claim(claim: NewClaim<$a>) -> Result<ClaimState, StoreError>;
            extend(held: HeldClaim<$a>, lease: Duration) -> Result<bool, StoreError>;
            complete(held: HeldClaim<$a>, retention: Duration) -> Result<bool, StoreError>;
            release(held: HeldClaim<$a>, release: Release<$a>) -> Result<bool, StoreError>;
            park(held: HeldClaim<$a>, reason: &$a str) -> Result<bool, StoreError>;
            accept(delivery: NewDelivery<$a>) -> Result<AcceptState, StoreError>;
            take(take: Take<$a>) -> Result<Vec<TakenEvent>, StoreError>;
            complete_and_take(completed: &$a [HeldClaim<$a>], retention: Duration, take: Take<$a>) -> Turnover;
            parked(endpoint: &$a str, after: Option<&$a EventId>, limit: usize) -> Result<Vec<ParkedEvent>, StoreError>;
            replay(key: EventKey<$a>) -> Result<bool, StoreError>;
            discard(key: EventKey<$a>, retention: Duration) -> Result<bool, StoreError>;
            purge(limit: usize) -> Result<usize, StoreError>;
            state(key: EventKey<$a>, fingerprint: Option<Fingerprint>) -> Result<ClaimState, StoreError>;
            backlog(endpoint: &$a str) -> Result<Backlog, StoreError>;
        }
    };
}
#[cfg(any(
    feature = "inbox-postgres",
    feature = "inbox-redis",
    feature = "inbox-sqlite",
    feature = "inbox-sqlx-postgres",
    feature = "inbox-sqlx-sqlite"
))]
pub(super) use for_each_method;

/// Implements [`Store`] for a type by a field of it that is a store.
#[cfg(any(
    feature = "inbox-postgres",
    feature = "inbox-redis",
    feature = "inbox-sqlite",
    feature = "inbox-sqlx-postgres",
    feature = "inbox-sqlx-sqlite"
))]
macro_rules! delegate_store {
    ($store:ty, $field:ident) => {
        const _: () = {
            use std::time::Duration;

            use crate::inbox::error::StoreError;
            use crate::inbox::store::{
                AcceptState, Backlog, ClaimState, EventKey, Fingerprint, HeldClaim, NewClaim,
                NewDelivery, ParkedEvent, Release, Store, Take, TakenEvent, Turnover,
                delegate_methods, for_each_method,
            };
            use crate::webhooks::EventId;

            for_each_method! { delegate_methods, '_, $store, $field }
        };
    };
}

#[cfg(any(
    feature = "inbox-postgres",
    feature = "inbox-redis",
    feature = "inbox-sqlite",
    feature = "inbox-sqlx-postgres",
    feature = "inbox-sqlx-sqlite"
))]
macro_rules! delegate_methods {
    ($a:lifetime, $store:ty, $field:ident: $($method:ident($($name:ident: $type:ty),*) -> $output:ty;)+) => {
        impl Store for $store {
            $(async fn $method(&self, $($name: $type),*) -> $output {
                self.$field.$method($($name),*).await
            })+
        }
    };
}
#[cfg(any(
    feature = "inbox-postgres",
    feature = "inbox-redis",
    feature = "inbox-sqlite",
    feature = "inbox-sqlx-postgres",
    feature = "inbox-sqlx-sqlite"
))]
pub(super) use {delegate_methods, delegate_store};

macro_rules! share_methods {
    ($a:lifetime: $($method:ident($($name:ident: $type:ty),*) -> $output:ty;)+) => {
        /// A store that is shared.
        impl<S: Store> Store for Arc<S> {
            $(fn $method(&self, $($name: $type),*) -> impl Future<Output = $output> + Send {
                // The call goes through both pointers: on `self`, it would call itself.
                (**self).$method($($name),*)
            })+
        }
    };
}

for_each_method! { share_methods, '_ }

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

macro_rules! box_methods {
    ($a:lifetime: $($method:ident($($name:ident: $type:ty),*) -> $output:ty;)+) => {
        /// A [`Store`] behind a pointer, so that [`Inbox`](super::Inbox) has no type parameter.
        #[cfg_attr(
            not(any(
                feature = "inbox-conformance",
                feature = "inbox-postgres",
                feature = "inbox-redis",
                feature = "inbox-sqlite"
            )),
            expect(dead_code, reason = "a worker takes by `complete_and_take`, and only others by `take`")
        )]
        pub(super) trait DynStore: Send + Sync {
            $(fn $method<$a>(&$a self, $($name: $type),*) -> Boxed<$a, $output>;)+
        }

        impl<S: Store> DynStore for S {
            $(fn $method<$a>(&$a self, $($name: $type),*) -> Boxed<$a, $output> {
                Box::pin(Store::$method(self, $($name),*))
            })+
        }
    };
}

for_each_method! { box_methods, 'a }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_tokens_differ_and_come_back_from_their_bytes() {
        let tokens: std::collections::HashSet<_> = (0..10_000).map(|_| Token::random()).collect();

        assert_eq!(tokens.len(), 10_000);
        assert!(
            tokens
                .iter()
                .all(|token| Token::from_bytes(*token.as_bytes()) == *token)
        );
    }

    #[test]
    fn a_token_is_printed_as_32_hexadecimal_digits() {
        let mut bytes = [0; 16];
        bytes[0] = 0x0a;

        let text = format!("{:?}", Token::from_bytes(bytes));

        assert_eq!(text, "Token(0a000000000000000000000000000000)");
    }

    #[test]
    fn a_fingerprint_is_the_start_of_the_sha_256_of_the_body() {
        // FIPS 180-2, appendix B.1.
        let text = format!("{:?}", Fingerprint::of(b"abc"));

        assert_eq!(text, "Fingerprint(ba7816bf8f01cfea414140de5dae2223)");
    }

    #[test]
    fn bodies_that_differ_in_a_byte_have_different_fingerprints() {
        assert_eq!(Fingerprint::of(b"a"), Fingerprint::of(b"a"));
        assert_ne!(Fingerprint::of(b"a"), Fingerprint::of(b"a\0"));
        assert_ne!(Fingerprint::of(b""), Fingerprint::of(b"\0"));
    }

    #[test]
    fn a_fingerprint_comes_back_from_its_bytes() {
        let fingerprint = Fingerprint::of(b"body");

        assert_eq!(
            Fingerprint::from_bytes(*fingerprint.as_bytes()),
            fingerprint
        );
    }
}
