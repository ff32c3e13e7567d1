//! Verified deliveries, a store that fails on demand, and an error that hides another one.

use std::error::Error;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use audience::inbox::{
    AcceptState, Attempt, Backlog, ClaimState, EventKey, Fingerprint, HeldClaim, MemoryStore,
    NewClaim, NewDelivery, ParkedEvent, Release, Store, StoreError, Take, TakenEvent, Token,
};
use audience::webhooks::{Event, EventId, EventType, Signer, VerifiedEvent, Verifier};
use serde_json::json;
use tokio::sync::watch;

pub(crate) const SECRET: &str = "6Jm0nFq2pXvZk4Tt";
/// An address that occurs nowhere else, so that a test finds a leak by searching for it.
pub(crate) const ADDRESS: &str = "hunter2@example.net";

pub(crate) fn id(id: &str) -> EventId {
    EventId::try_from(id).unwrap()
}

/// A claim of an event of the endpoint `main`, for a minute.
pub(crate) fn new_claim(id: &EventId) -> NewClaim<'_> {
    let minute = Duration::from_secs(60);
    NewClaim::new(EventKey::new("main", id), Token::random(), minute, minute)
}

/// A verified delivery of a permanent bounce.
pub(crate) fn delivery(id: &str) -> VerifiedEvent {
    delivery_about(id, "Hi")
}

/// The same with another subject, and so another body.
pub(crate) fn delivery_about(id: &str, subject: &str) -> VerifiedEvent {
    delivery_of(&body(id, subject))
}

/// A verified delivery of this body.
pub(crate) fn delivery_of(body: &str) -> VerifiedEvent {
    let headers = Signer::new(SECRET)
        .unwrap()
        .sign(&EventType::Bounced, SystemTime::now(), body);
    let verifier = Verifier::new(SECRET).unwrap();
    verifier.verify_event(&headers, body.to_owned()).unwrap()
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

/// Counts how often a handler ran.
#[derive(Clone, Default)]
pub(crate) struct Runs(Arc<AtomicU32>);

impl Runs {
    pub(crate) fn count(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }

    /// A handler that succeeds at once.
    pub(crate) fn handler(
        &self,
    ) -> impl FnOnce(Event, Attempt) -> std::future::Ready<Result<(), String>> + use<> {
        let runs = self.clone();
        move |_, _| {
            runs.0.fetch_add(1, Ordering::SeqCst);
            std::future::ready(Ok(()))
        }
    }
}

/// A memory store in tokio's time, which stands still in a paused test and moves with its sleeps.
pub(crate) fn store_in_test_time() -> MemoryStore {
    let start = tokio::time::Instant::now();
    let start_of_time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    MemoryStore::builder()
        .clock(move || start_of_time + start.elapsed())
        .build()
}

/// A memory store whose operations fail while the test says so.
#[derive(Clone)]
pub(crate) struct FailingStore {
    inner: MemoryStore,
    failing: Arc<Mutex<Failing>>,
    hanging: Arc<watch::Sender<&'static [&'static str]>>,
    calls: Arc<Mutex<Vec<&'static str>>>,
}

type Failing = Option<(&'static [&'static str], fn() -> StoreError)>;

impl FailingStore {
    pub(crate) fn new(inner: MemoryStore) -> Self {
        Self {
            inner,
            failing: Arc::default(),
            hanging: Arc::default(),
            calls: Arc::default(),
        }
    }

    /// The names of the operations that were called, also of those that failed.
    pub(crate) fn calls(&self) -> Vec<&'static str> {
        self.calls.lock().unwrap().clone()
    }

    /// Lets the operations of these names fail. No name: all.
    pub(crate) fn fail(&self, operations: &'static [&'static str], error: fn() -> StoreError) {
        *self.failing.lock().unwrap() = Some((operations, error));
    }

    pub(crate) fn recover(&self) {
        *self.failing.lock().unwrap() = None;
    }

    /// Lets the operations of these names end only when it is called with others.
    pub(crate) fn hang(&self, operations: &'static [&'static str]) {
        self.hanging.send_replace(operations);
    }

    async fn check(&self, operation: &'static str) -> Result<(), StoreError> {
        self.calls.lock().unwrap().push(operation);
        if self.hanging.borrow().contains(&operation) {
            let mut hanging = self.hanging.subscribe();
            let ended = hanging.wait_for(|hanging| !hanging.contains(&operation));
            ended.await.unwrap();
        }
        let failing = *self.failing.lock().unwrap();
        match failing {
            Some((names, error)) if names.is_empty() || names.contains(&operation) => Err(error()),
            _ => Ok(()),
        }
    }
}

pub(crate) fn unavailable() -> StoreError {
    StoreError::unavailable("connection refused")
}

/// Calls a macro with the methods of a store, all but `complete`.
macro_rules! with_store_methods {
    ($macro:ident) => {
        $macro! {
            claim(claim: NewClaim<'_>) -> ClaimState;
            extend(held: HeldClaim<'_>, lease: Duration) -> bool;
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
    };
}
pub(crate) use with_store_methods;

macro_rules! checked {
    ($($method:ident($($name:ident: $type:ty),*) -> $output:ty;)+) => {
        $(async fn $method(&self, $($name: $type),*) -> Result<$output, StoreError> {
            self.check(stringify!($method)).await?;
            self.inner.$method($($name),*).await
        })+
    };
}

impl Store for FailingStore {
    checked! {
        complete(held: HeldClaim<'_>, retention: Duration) -> bool;
        state(key: EventKey<'_>, fingerprint: Option<Fingerprint>) -> ClaimState;
    }
    with_store_methods! { checked }
}

/// An error of the driver behind an error as thiserror makes it with `transparent`.
#[derive(Debug)]
pub(crate) struct Transparent<E>(pub(crate) E);

impl<E: fmt::Display> fmt::Display for Transparent<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<E: Error> Error for Transparent<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}
