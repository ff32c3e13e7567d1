//! Verified deliveries, and a store that fails on demand.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use audience::inbox::{
    AcceptState, Backlog, ClaimState, EventKey, HeldClaim, MemoryStore, NewClaim, NewDelivery,
    ParkedEvent, Release, Store, StoreError, Take, TakenEvent,
};
use audience::webhooks::{EventId, EventType, SignedEvent, Signer, Verifier};
use serde_json::json;

pub(crate) const SECRET: &str = "6Jm0nFq2pXvZk4Tt";
/// An address that occurs nowhere else, so that a test finds a leak by searching for it.
pub(crate) const ADDRESS: &str = "hunter2@example.net";

pub(crate) fn id(id: &str) -> EventId {
    EventId::try_from(id).unwrap()
}

/// A verified delivery of a permanent bounce.
pub(crate) fn delivery(id: &str) -> SignedEvent {
    delivery_about(id, "Hi")
}

/// The same with another subject, and so another body.
pub(crate) fn delivery_about(id: &str, subject: &str) -> SignedEvent {
    let body = body(id, subject);
    let headers = Signer::new(SECRET)
        .unwrap()
        .sign(&EventType::Bounced, SystemTime::now(), &body);
    let verifier = Verifier::new(SECRET).unwrap();
    verifier.signed_event(&headers, body).unwrap()
}

pub(crate) fn body(id: &str, subject: &str) -> String {
    json!({
        "id": id, "type": "email.bounced", "created_at": 1_700_000_000, "data": {
            "email_id": "em_1", "from": "us@example.com", "to": ADDRESS, "subject": subject,
            "bounce_type": "Permanent", "detail": "550 no such user",
        },
    })
    .to_string()
}

/// A memory store in tokio's time, which stands still in a paused test and moves with its sleeps.
pub(crate) fn store_in_test_time() -> MemoryStore {
    let start = tokio::time::Instant::now();
    MemoryStore::new().clock(move || {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000) + start.elapsed()
    })
}

/// A memory store whose operations fail while the test says so.
#[derive(Clone)]
pub(crate) struct FailingStore {
    inner: MemoryStore,
    failing: Arc<Mutex<Failing>>,
}

type Failing = Option<(&'static [&'static str], fn() -> StoreError)>;

impl FailingStore {
    pub(crate) fn new(inner: MemoryStore) -> Self {
        Self {
            inner,
            failing: Arc::default(),
        }
    }

    /// Lets the operations of these names fail. No name: all.
    pub(crate) fn fail(&self, operations: &'static [&'static str], error: fn() -> StoreError) {
        *self.failing.lock().unwrap() = Some((operations, error));
    }

    pub(crate) fn recover(&self) {
        *self.failing.lock().unwrap() = None;
    }

    fn check(&self, operation: &str) -> Result<(), StoreError> {
        match *self.failing.lock().unwrap() {
            Some((names, error)) if names.is_empty() || names.contains(&operation) => Err(error()),
            _ => Ok(()),
        }
    }
}

pub(crate) fn unavailable() -> StoreError {
    StoreError::unavailable("connection refused")
}

macro_rules! checked {
    ($($method:ident($($name:ident: $type:ty),*) -> $output:ty;)+) => {
        impl Store for FailingStore {
            $(async fn $method(&self, $($name: $type),*) -> Result<$output, StoreError> {
                self.check(stringify!($method))?;
                self.inner.$method($($name),*).await
            })+
        }
    };
}

checked! {
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
