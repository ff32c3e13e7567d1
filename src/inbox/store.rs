//! The trait of stores, with what they are asked and what they respond.

use std::fmt;
use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::error::StoreError;
use crate::webhooks::EventId;

/// What an inbox remembers its events in.
///
/// A store keeps one entry for each pair of endpoint and event id. An entry is open (claimed, or waiting to
/// be claimed), done, or parked. **Every method is one atomic step**: of any number of callers at once, on
/// any number of machines, one wins. All times are the store's own; no method is given a time, only
/// durations. A method does not panic, and ends by itself: with an error if its database does not respond.
///
/// Implement it to use another database, and prove the implementation with the suite of `inbox::conformance`
/// (feature `inbox-conformance`). An `async fn` implements a method if its future is `Send`.
///
/// # What an entry holds
///
/// The state, the [`Token`](crate::inbox::Token) of the newest claim, the number of claims so far, when the lease ends or the
/// entry is due, when the entry may be forgotten, the [`Fingerprint`](crate::inbox::Fingerprint) of the body if it is known, the body if
/// it was accepted, and the reason if it is parked or was released with one.
///
/// # The states
///
/// | entry | `claim` | `accept` | `take` |
/// |---|---|---|---|
/// | absent, or done and past its retention | fresh, attempt 1 | accepted | |
/// | open, lease or delay not over | in progress | in progress; `Repeated` if it has a body | not taken |
/// | open, lease or delay over | fresh, attempt + 1 | accepted; `Repeated` if it has a body | taken, attempt + 1, if it has a body |
/// | done, within its retention | done | repeated | |
/// | parked | parked | repeated | |
/// | another fingerprint than the one given | conflict | conflict | |
///
/// The row about the fingerprint is first, for an entry that exists.
pub trait Store: Send + Sync + 'static {
    /// Claims an event.
    ///
    /// A claim that shows the token of the newest claim again, while its lease lasts, is fresh with the same
    /// attempt: a caller that lost the response may ask once more.
    fn claim(
        &self,
        claim: NewClaim<'_>,
    ) -> impl Future<Output = Result<ClaimState, StoreError>> + Send;

    /// Lets a lease end this long from now. Returns whether the claim was held.
    fn extend(
        &self,
        held: HeldClaim<'_>,
        lease: Duration,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Marks a claimed event as done, deletes its body, and remembers its id for this long. Returns whether
    /// the claim was held. Calling it again with the same token returns `true`.
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

    /// Stores the body of an event, to be taken by a worker. It is due at once.
    fn accept(
        &self,
        delivery: NewDelivery<'_>,
    ) -> impl Future<Output = Result<AcceptState, StoreError>> + Send;

    /// Claims up to `limit` accepted events of an endpoint that are due, those that are due longest first.
    fn take(
        &self,
        take: Take<'_>,
    ) -> impl Future<Output = Result<Vec<TakenEvent>, StoreError>> + Send;

    /// Returns up to `limit` parked events of an endpoint, ordered by the bytes of their ids, that come after
    /// this id. Unless it is implemented, it is an error.
    fn parked(
        &self,
        endpoint: &str,
        after: Option<&EventId>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<ParkedEvent>, StoreError>> + Send {
        let _ = (endpoint, after, limit);
        ready(Err(unsupported("parked")))
    }

    /// Makes a parked event due now, with no attempts made. Returns whether it was parked. An event that was
    /// parked without a body becomes claimable. Unless it is implemented, it is an error.
    fn replay(&self, key: EventKey<'_>) -> impl Future<Output = Result<bool, StoreError>> + Send {
        let _ = key;
        ready(Err(unsupported("replay")))
    }

    /// Makes a parked event done, deletes its body, and remembers its id for this long. Returns whether it was
    /// parked. Unless it is implemented, it is an error.
    fn discard(
        &self,
        key: EventKey<'_>,
        retention: Duration,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send {
        let _ = (key, retention);
        ready(Err(unsupported("discard")))
    }

    /// Deletes up to `limit` entries that may be forgotten, of all endpoints: done ones, and open ones without
    /// a body. Returns how many were deleted; fewer than `limit` means that none is left.
    /// Unless it is implemented, it deletes nothing, for a store whose entries expire by themselves.
    fn purge(&self, limit: usize) -> impl Future<Output = Result<usize, StoreError>> + Send {
        let _ = limit;
        ready(Ok(0))
    }

    /// Counts the accepted events of an endpoint that are not done. Unless it is implemented, it is an error.
    fn backlog(&self, endpoint: &str) -> impl Future<Output = Result<Backlog, StoreError>> + Send {
        let _ = endpoint;
        ready(Err(unsupported("backlog")))
    }
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
    /// How long an entry is remembered that is neither claimed again nor completed, from the end of the lease on.
    pub retention: Duration,
    /// The fingerprint of the body, if the caller has the body.
    pub fingerprint: Option<Fingerprint>,
}

impl<'a> NewClaim<'a> {
    /// Creates a claim of an event whose body is not known.
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
    #[must_use]
    pub fn new(key: EventKey<'a>, token: Token) -> Self {
        Self { key, token }
    }
}

/// The end of a claim without success.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Release<'a> {
    /// How long the event may not be claimed. Zero: it may be claimed at once.
    pub delay: Duration,
    /// How long an entry without a body is remembered.
    pub retention: Duration,
    /// Why the attempt failed, for a body that is kept.
    pub reason: &'a str,
}

impl<'a> Release<'a> {
    /// Creates the end of a claim.
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
    /// The most events to take.
    pub limit: usize,
}

impl<'a> Take<'a> {
    /// Creates a request for the events of this endpoint.
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

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClaimState {
    /// The claim is the caller's.
    Fresh {
        /// How many claims of this event were made, this one included.
        attempt: u32,
    },
    /// Another claim lasts, or the event waits for its next attempt.
    InProgress {
        /// How long the claim or the wait lasts at the most if it is not extended.
        remaining: Duration,
    },
    /// The event is done.
    Done,
    /// The event is parked.
    Parked,
    /// The event is stored with another fingerprint. Nothing changed.
    Conflict,
}

/// What became of a delivery to be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcceptState {
    /// It was stored.
    Accepted,
    /// It was stored before: it waits, is being handled, is done, or is parked.
    Repeated,
    /// The event has no stored body and is claimed. Nothing changed.
    InProgress {
        /// How long the claim lasts at the most if it is not extended.
        remaining: Duration,
    },
    /// The event is stored with another fingerprint. Nothing changed.
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
    /// How long ago it was due.
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
    /// The stored body, personal data included. `None` if the event was claimed without being accepted.
    pub body: Option<Bytes>,
    /// How many attempts were made.
    pub attempts: u32,
    /// Why it was parked.
    pub reason: String,
    /// How long it has been parked.
    pub parked_for: Duration,
}

impl ParkedEvent {
    /// Creates a parked event, for a store to return.
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
    /// How long the event that is due longest has been due. Zero if none is.
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
/// A store keeps the token of the newest claim of an event. A caller with another token no longer holds the
/// claim. It is not a secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token([u8; 16]);

impl Token {
    /// Returns a new random token.
    #[must_use]
    pub fn random() -> Self {
        Self(fastrand::u128(..).to_be_bytes())
    }

    /// Returns the token that has these bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
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
/// A store keeps it to notice an event id that comes back with another body. It holds nothing of the body.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 16]);

impl Fingerprint {
    /// Returns the fingerprint of a body.
    #[must_use]
    pub fn of(body: &[u8]) -> Self {
        let digest: [u8; 32] = Sha256::digest(body).into();
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

/// Hands all methods of a store to a macro, with this lifetime of what they borrow.
macro_rules! for_each_method {
    ($macro:ident, $a:lifetime) => {
        $macro! { $a:
            claim(claim: NewClaim<$a>) -> ClaimState;
            extend(held: HeldClaim<$a>, lease: Duration) -> bool;
            complete(held: HeldClaim<$a>, retention: Duration) -> bool;
            release(held: HeldClaim<$a>, release: Release<$a>) -> bool;
            park(held: HeldClaim<$a>, reason: &$a str) -> bool;
            accept(delivery: NewDelivery<$a>) -> AcceptState;
            take(take: Take<$a>) -> Vec<TakenEvent>;
            parked(endpoint: &$a str, after: Option<&$a EventId>, limit: usize) -> Vec<ParkedEvent>;
            replay(key: EventKey<$a>) -> bool;
            discard(key: EventKey<$a>, retention: Duration) -> bool;
            purge(limit: usize) -> usize;
            backlog(endpoint: &$a str) -> Backlog;
        }
    };
}

macro_rules! share_methods {
    ($a:lifetime: $($method:ident($($name:ident: $type:ty),*) -> $output:ty;)+) => {
        /// A store that is shared.
        impl<S: Store> Store for Arc<S> {
            $(fn $method(&self, $($name: $type),*) -> impl Future<Output = Result<$output, StoreError>> + Send {
                (**self).$method($($name),*)
            })+
        }
    };
}

for_each_method! { share_methods, '_ }

type Boxed<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

macro_rules! box_methods {
    ($a:lifetime: $($method:ident($($name:ident: $type:ty),*) -> $output:ty;)+) => {
        /// A [`Store`] behind a pointer, so that [`Inbox`](super::Inbox) has no type parameter.
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
