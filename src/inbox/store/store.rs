use std::sync::Arc;
use std::time::Duration;

use super::calls::{EventKey, HeldClaim, NewClaim, NewDelivery, Release, Take};
use super::states::{AcceptState, Backlog, ClaimState, ParkedEvent, TakenEvent};
use crate::inbox::error::StoreError;
use crate::webhooks::EventId;

/// What an inbox remembers its events in.
///
/// A store keeps one entry for each pair of endpoint and event id. An entry is open (claimed, or waiting to
/// be claimed), done, or parked. **Every method is one atomic step**: of any number of callers at once, on
/// any number of machines, one wins. All times are the store's own; no method is given a time, only
/// durations. A method does not panic, and ends by itself: with an error if its database does not respond.
///
/// Implement it to use another database, and prove the implementation with
/// [`conformance`](crate::inbox::conformance). An `async fn` implements a method if its future is `Send`.
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
    /// this id.
    fn parked(
        &self,
        endpoint: &str,
        after: Option<&EventId>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<ParkedEvent>, StoreError>> + Send;

    /// Makes a parked event due now, with no attempts made. Returns whether it was parked. An event that was
    /// parked without a body becomes claimable.
    fn replay(&self, key: EventKey<'_>) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Makes a parked event done, deletes its body, and remembers its id for this long. Returns whether it was
    /// parked.
    fn discard(
        &self,
        key: EventKey<'_>,
        retention: Duration,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Deletes up to `limit` entries that may be forgotten, of all endpoints: done ones, and open ones without
    /// a body. Returns how many were deleted; fewer than `limit` means that none is left.
    fn purge(&self, limit: usize) -> impl Future<Output = Result<usize, StoreError>> + Send;

    /// Counts the accepted events of an endpoint that are not done.
    fn backlog(&self, endpoint: &str) -> impl Future<Output = Result<Backlog, StoreError>> + Send;
}

macro_rules! delegate {
    ($($method:ident($($name:ident: $type:ty),*) -> $output:ty;)+) => {
        $(fn $method(&self, $($name: $type),*) -> impl Future<Output = Result<$output, StoreError>> + Send {
            (**self).$method($($name),*)
        })+
    };
}

/// A store that is shared.
impl<S: Store> Store for Arc<S> {
    delegate! {
        claim(claim: NewClaim<'_>) -> ClaimState;
        extend(held: HeldClaim<'_>, lease: Duration) -> bool;
        complete(held: HeldClaim<'_>, retention: Duration) -> bool;
        release(held: HeldClaim<'_>, release: Release<'_>) -> bool;
        park(held: HeldClaim<'_>, reason: &str) -> bool;
        accept(delivery: NewDelivery<'_>) -> AcceptState;
        take(take: Take<'_>) -> Vec<TakenEvent>;
        parked(endpoint: &str, after: Option<&EventId>, limit: usize) -> Vec<ParkedEvent>;
        replay(key: EventKey<'_>) -> bool;
        discard(key: EventKey<'_>, retention: Duration) -> bool;
        purge(limit: usize) -> usize;
        backlog(endpoint: &str) -> Backlog;
    }
}
