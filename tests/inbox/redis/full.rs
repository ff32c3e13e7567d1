use audience::inbox::{AcceptState, ClaimState, Store, StoreErrorKind, Token};

use super::{RETENTION, claim, connect, delivery, held, id, release, take};
use support::redis::OwnRedis;

const BODY: &[u8] = &[b'x'; 50_000];

#[tokio::test]
async fn a_full_server_refuses_new_events_and_lets_the_others_be_finished() {
    let Some(server) = OwnRedis::start(&["--maxmemory", "4mb"]).await else {
        return;
    };
    let store = connect(&server.url()).await;
    let (done, claimed, token) = (id("done"), id("claimed"), Token::random());
    let ended = id("ended");
    for id in [&done, &claimed, &ended] {
        store.claim(claim(id, token)).await.unwrap();
    }
    store.complete(held(&done, token), RETENTION).await.unwrap();

    // It ends when an event and a claim are refused. A moment later, the server may have freed a buffer.
    let accepted = fill(&store).await;

    // What the server remembers is a repeat, not an error.
    let state = store.claim(claim(&done, Token::random())).await.unwrap();
    assert_eq!(state, ClaimState::Done);
    let state = store.accept(delivery(&id("event 0"), BODY)).await.unwrap();
    assert_eq!(state, AcceptState::Duplicate);

    // A claim can still be completed.
    assert!(
        store
            .complete(held(&ended, token), RETENTION)
            .await
            .unwrap()
    );
    let state = store.claim(claim(&ended, Token::random())).await.unwrap();
    assert_eq!(state, ClaimState::Done);

    // Stored events can still be extended, released, taken, parked and replayed.
    assert!(
        store
            .extend(held(&claimed, token), RETENTION)
            .await
            .unwrap()
    );
    assert!(
        store
            .release(held(&claimed, token), release())
            .await
            .unwrap()
    );
    let taken = store.take(take(token)).await.unwrap();
    assert_eq!(taken.len(), accepted);
    let first = &taken[0].id;
    assert!(store.park(held(first, token), "it failed").await.unwrap());
    assert!(store.replay(super::key(first)).await.unwrap());
    assert_eq!(store.take(take(token)).await.unwrap().len(), 1);
    for event in &taken {
        assert!(
            store
                .complete(held(&event.id, token), RETENTION)
                .await
                .unwrap()
        );
    }

    // That made room.
    let state = store.claim(claim(&id("new"), token)).await.unwrap();
    assert_eq!(state, ClaimState::Fresh { attempt: 1 });
    let state = store.accept(delivery(&id("newer"), BODY)).await.unwrap();
    assert_eq!(state, AcceptState::Accepted);
}

/// Accepts events until the server is full, also for what needs less memory. Returns how many.
async fn fill(store: &impl Store) -> usize {
    for number in 0..1_000 {
        let id = id(&format!("event {number}"));
        if let Err(error) = store.accept(delivery(&id, BODY)).await {
            assert_eq!(error.kind(), StoreErrorKind::Full);
            assert_eq!(
                store.backlog(super::ENDPOINT).await.unwrap().waiting,
                number
            );
            fill_with_claims(store).await;
            return usize::try_from(number).unwrap();
        }
    }
    panic!("4 MB hold 50 MB");
}

/// Some servers count the body of a request that they refuse, and have room for a smaller one.
async fn fill_with_claims(store: &impl Store) {
    for number in 0..20_000 {
        let id = id(&format!("claim {number}"));
        if let Err(error) = store.claim(claim(&id, Token::random())).await {
            assert_eq!(error.kind(), StoreErrorKind::Full);
            return;
        }
    }
    panic!("4 MB hold 20,000 claims");
}
