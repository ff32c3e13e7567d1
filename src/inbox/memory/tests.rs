use std::sync::atomic::{AtomicI64, Ordering};

use super::*;
use crate::inbox::error::StoreErrorKind;
use crate::inbox::store::{Fingerprint, Token};

/// How much a store holds.
#[derive(Debug)]
struct Sizes {
    entries: usize,
    ordered: usize,
    body_bytes: usize,
}

fn sizes(store: &MemoryStore) -> Sizes {
    let contents = store.contents();
    let shelves = contents.shelves.values();
    let sizes = shelves.map(|shelf| (shelf.len(), shelf.due.len() + shelf.forget.len()));
    let (entries, ordered) = sizes.fold((0, 0), |sum, shelf| (sum.0 + shelf.0, sum.1 + shelf.1));
    assert_eq!(entries, contents.entries);
    Sizes {
        entries,
        ordered,
        body_bytes: contents.body_bytes,
    }
}

const HOUR: Duration = Duration::from_secs(3_600);
const MINUTE: Duration = Duration::from_secs(60);

/// A clock that a test moves, in seconds.
#[derive(Clone, Default)]
struct Seconds(Arc<AtomicI64>);

impl Seconds {
    fn shift(&self, by: i64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    fn builder(&self) -> MemoryStoreBuilder {
        let seconds = Arc::clone(&self.0);
        let start = SystemTime::UNIX_EPOCH + HOUR * 1_000_000;
        MemoryStore::builder().clock(move || {
            let shift = seconds.load(Ordering::Relaxed);
            let distance = Duration::from_secs(shift.unsigned_abs());
            if shift < 0 {
                start - distance
            } else {
                start + distance
            }
        })
    }
}

fn id(number: usize) -> EventId {
    EventId::try_from(format!("evt_{number}")).unwrap()
}

fn key(id: &EventId) -> EventKey<'_> {
    EventKey::new("main", id)
}

async fn claim(store: &MemoryStore, id: &EventId, token: Token) -> Result<ClaimState, StoreError> {
    let claim = NewClaim::new(key(id), token, MINUTE, HOUR);
    store.claim(claim).await
}

async fn accept(store: &MemoryStore, id: &EventId, body: &[u8]) -> Result<AcceptState, StoreError> {
    let delivery = NewDelivery::new(key(id), body, Fingerprint::of(body));
    store.accept(delivery).await
}

fn held(id: &EventId, token: Token) -> HeldClaim<'_> {
    HeldClaim::new(key(id), token)
}

#[tokio::test]
async fn claims_without_end_take_no_more_room_than_their_retention_needs() {
    let clock = Seconds::default();
    let store = clock.builder().capacity(10_000).build();

    // 2 claims a second, remembered for an hour.
    for number in 0..300_000 {
        let (id, token) = (id(number), Token::random());
        let state = claim(&store, &id, token).await.unwrap();
        assert_eq!(state, ClaimState::Fresh { attempt: 1 });
        assert!(store.complete(held(&id, token), HOUR).await.unwrap());
        clock.shift((number % 2).try_into().unwrap());
    }

    let sizes = sizes(&store);
    assert!(sizes.entries <= 7_300, "{sizes:?}");
    assert_eq!(sizes.ordered, sizes.entries, "{sizes:?}");
}

#[tokio::test]
async fn extending_and_releasing_without_end_takes_no_room() {
    let clock = Seconds::default();
    let store = clock.builder().build();
    let (id, token) = (id(1), Token::random());
    accept(&store, &id, b"body").await.unwrap();

    for _ in 0..10_000 {
        clock.shift(1);
        let state = claim(&store, &id, token).await.unwrap();
        assert!(matches!(state, ClaimState::Fresh { .. }));
        assert!(store.extend(held(&id, token), MINUTE).await.unwrap());
        let release = Release::new(Duration::ZERO, HOUR, "no");
        assert!(store.release(held(&id, token), release).await.unwrap());
    }

    let sizes = sizes(&store);
    assert_eq!((sizes.entries, sizes.ordered), (1, 1));
}

#[tokio::test]
async fn a_full_store_refuses_an_event_until_one_is_forgotten() {
    let clock = Seconds::default();
    let store = clock.builder().capacity(2).build();
    for number in 0..2 {
        let (id, token) = (id(number), Token::random());
        claim(&store, &id, token).await.unwrap();
        store.complete(held(&id, token), HOUR).await.unwrap();
    }

    let error = claim(&store, &id(2), Token::random()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Full);
    assert_eq!(
        claim(&store, &id(0), Token::random()).await.unwrap(),
        ClaimState::Done
    );
    clock.shift(3_600);

    let state = claim(&store, &id(2), Token::random()).await.unwrap();
    assert_eq!(state, ClaimState::Fresh { attempt: 1 });
}

#[tokio::test]
async fn a_full_store_forgets_the_events_of_all_endpoints_before_it_refuses_one() {
    let clock = Seconds::default();
    let store = clock.builder().capacity(10).build();
    for number in 0..10 {
        let (id, token) = (id(number), Token::random());
        let key = EventKey::new("another", &id);
        let claim = NewClaim::new(key, token, MINUTE, HOUR);
        store.claim(claim).await.unwrap();
        let held = HeldClaim::new(key, token);
        assert!(store.complete(held, HOUR).await.unwrap());
    }
    clock.shift(3_600);

    let state = claim(&store, &id(0), Token::random()).await.unwrap();

    assert_eq!(state, ClaimState::Fresh { attempt: 1 });
    assert_eq!(sizes(&store).entries, 1);
}

#[tokio::test]
async fn bodies_beyond_the_memory_for_them_are_refused_and_repeats_are_not() {
    let clock = Seconds::default();
    let store = clock.builder().body_memory(10).build();
    let (one, two) = (id(1), id(2));
    accept(&store, &one, b"12345678").await.unwrap();

    let error = accept(&store, &two, b"123").await.unwrap_err();

    assert_eq!(error.kind(), StoreErrorKind::Full);
    let duplicate = accept(&store, &one, b"12345678").await.unwrap();
    assert_eq!(duplicate, AcceptState::Duplicate);
    let conflict = accept(&store, &one, b"12345679").await.unwrap();
    assert_eq!(conflict, AcceptState::Conflict);
    assert_eq!(
        accept(&store, &id(3), b"12").await.unwrap(),
        AcceptState::Accepted
    );
    let token = Token::random();
    claim(&store, &one, token).await.unwrap();
    store.complete(held(&one, token), HOUR).await.unwrap();
    assert_eq!(
        accept(&store, &two, b"12345678").await.unwrap(),
        AcceptState::Accepted
    );
    assert_eq!(sizes(&store).body_bytes, 10);
}

#[tokio::test]
async fn a_refused_body_leaves_no_entry() {
    let store = Seconds::default().builder().body_memory(1).capacity(1);
    let store = store.build();
    accept(&store, &id(1), b"body").await.unwrap_err();

    accept(&store, &id(2), b"b").await.unwrap();

    assert_eq!(sizes(&store).entries, 1);
}

#[tokio::test]
async fn a_clock_that_jumps_back_keeps_claims_and_events() {
    let clock = Seconds::default();
    let store = clock.builder().build();
    let (claimed, accepted, token) = (id(1), id(2), Token::random());
    claim(&store, &claimed, token).await.unwrap();
    accept(&store, &accepted, b"body").await.unwrap();
    let take = Take::new("main", token, MINUTE, 10);

    clock.shift(-100_000);
    let state = claim(&store, &claimed, Token::random()).await.unwrap();
    assert!(matches!(state, ClaimState::InProgress { .. }));
    assert_eq!(store.take(take).await.unwrap().len(), 0);
    assert_eq!(store.backlog("main").await.unwrap().lag, Duration::ZERO);
    assert!(store.complete(held(&claimed, token), HOUR).await.unwrap());

    clock.shift(100_000);
    assert_eq!(store.take(take).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_clock_at_the_end_of_time_does_not_panic() {
    // The clock of Windows ends earlier.
    let ends = [u64::MAX >> 1, 900_000_000_000].map(Duration::from_secs);
    let mut ends = ends.into_iter();
    let end = ends
        .find_map(|end| SystemTime::UNIX_EPOCH.checked_add(end))
        .unwrap();
    let store = MemoryStore::builder().clock(move || end).build();
    let (id, token) = (id(1), Token::random());

    claim(&store, &id, token).await.unwrap();

    assert!(store.extend(held(&id, token), Duration::MAX).await.unwrap());
    assert!(
        store
            .complete(held(&id, token), Duration::MAX)
            .await
            .unwrap()
    );
}

#[tokio::test]
async fn debug_output_has_no_body_and_no_id() {
    let store = MemoryStore::new();
    accept(&store, &id(1), b"kim@example.com").await.unwrap();

    let text = format!("{store:?}");

    assert!(text.contains("events: 1"), "{text}");
    assert!(text.contains("body_bytes: 15"), "{text}");
    assert!(!text.contains("kim") && !text.contains("evt_1"), "{text}");
}
