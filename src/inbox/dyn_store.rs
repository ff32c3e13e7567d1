//! A [`Store`] behind a pointer, so that [`Inbox`](super::Inbox) has no type parameter.

use std::pin::Pin;
use std::time::Duration;

use super::error::StoreError;
use super::store::{
    AcceptState, Backlog, ClaimState, EventKey, HeldClaim, NewClaim, NewDelivery, ParkedEvent,
    Release, Store, Take, TakenEvent,
};
use crate::webhooks::EventId;

type Boxed<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

macro_rules! boxed_methods {
    ($($method:ident($($name:ident: $type:ty),*) -> $output:ty;)+) => {
        pub(super) trait DynStore: Send + Sync {
            $(fn $method<'a>(&'a self, $($name: $type),*) -> Boxed<'a, $output>;)+
        }

        impl<S: Store> DynStore for S {
            $(fn $method<'a>(&'a self, $($name: $type),*) -> Boxed<'a, $output> {
                Box::pin(Store::$method(self, $($name),*))
            })+
        }
    };
}

boxed_methods! {
    claim(claim: NewClaim<'a>) -> ClaimState;
    extend(held: HeldClaim<'a>, lease: Duration) -> bool;
    complete(held: HeldClaim<'a>, retention: Duration) -> bool;
    release(held: HeldClaim<'a>, release: Release<'a>) -> bool;
    park(held: HeldClaim<'a>, reason: &'a str) -> bool;
    accept(delivery: NewDelivery<'a>) -> AcceptState;
    take(take: Take<'a>) -> Vec<TakenEvent>;
    parked(endpoint: &'a str, after: Option<&'a EventId>, limit: usize) -> Vec<ParkedEvent>;
    replay(key: EventKey<'a>) -> bool;
    discard(key: EventKey<'a>, retention: Duration) -> bool;
    purge(limit: usize) -> usize;
    backlog(endpoint: &'a str) -> Backlog;
}
