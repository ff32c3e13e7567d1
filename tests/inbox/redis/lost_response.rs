use std::time::Duration;

use audience::inbox::{AcceptState, ClaimState, RedisStore, Release, Store, Token};
use audience::webhooks::EventId;

use super::super::lossy_proxy::LossyProxy;
use super::{RETENTION, claim, delivery, held, id, key, release, take};
use support::redis::server;

/// Returns a proxy for a server, and its URL.
async fn proxy(server: &str) -> (LossyProxy, String) {
    let address = server.trim_start_matches("redis://");
    // A server that does not know a script yet has not run it.
    let proxy = LossyProxy::start(address, |response| !response.starts_with(b"-NOSCRIPT")).await;
    let url = format!("redis://{}", proxy.address());
    (proxy, url)
}

#[tokio::test]
async fn a_call_whose_response_was_lost_has_the_result_that_it_would_have_had() {
    let Some(server) = server().await else { return };
    let (proxy, url) = proxy(&server.url).await;
    let store = super::connect_with_prefix(&url, server.prefix()).await;
    let (event, token) = (id("event"), Token::random());
    let (other, other_token) = (id("other"), Token::random());
    let lose = || proxy.lose_next_response();

    lose();
    let state = store.claim(claim(&event, token)).await.unwrap();
    assert_eq!(state, ClaimState::Fresh { attempt: 1 });
    lose();
    assert!(store.extend(held(&event, token), RETENTION).await.unwrap());
    lose();
    assert!(store.release(held(&event, token), release()).await.unwrap());
    lose();
    assert!(
        !store
            .release(held(&event, other_token), release())
            .await
            .unwrap()
    );

    lose();
    let state = store.accept(delivery(&other, b"body")).await.unwrap();
    assert!(matches!(
        state,
        AcceptState::Accepted | AcceptState::Duplicate
    ));
    store.take(take(other_token)).await.unwrap();
    lose();
    assert!(
        store
            .park(held(&other, other_token), "it failed")
            .await
            .unwrap()
    );
    lose();
    assert_eq!(
        store.parked(super::ENDPOINT, None, 10).await.unwrap().len(),
        1
    );
    lose();
    assert!(store.replay(key(&other)).await.unwrap());
    store.take(take(token)).await.unwrap();
    lose();
    assert!(
        !store
            .park(held(&other, other_token), "it failed")
            .await
            .unwrap()
    );
    assert!(store.park(held(&other, token), "it failed").await.unwrap());
    lose();
    assert!(store.discard(key(&other), RETENTION).await.unwrap());
    proxy.assert_lost();

    // Without a lost response, the same calls again change nothing.
    assert!(!store.release(held(&event, token), release()).await.unwrap());
    assert!(!store.discard(key(&other), RETENTION).await.unwrap());
    assert!(!store.replay(key(&other)).await.unwrap());
}

/// Who else acts on the event before a call whose response was lost is made again.
struct Other {
    store: RedisStore,
    event: EventId,
    token: Token,
}

impl Other {
    async fn take(&self) {
        assert_eq!(self.store.take(take(self.token)).await.unwrap().len(), 1);
    }

    async fn complete(&self) {
        let held = held(&self.event, self.token);
        assert!(self.store.complete(held, RETENTION).await.unwrap());
    }

    async fn park(&self) {
        let held = held(&self.event, self.token);
        assert!(self.store.park(held, "it failed").await.unwrap());
    }

    async fn replay(&self) {
        assert!(self.store.replay(key(&self.event)).await.unwrap());
    }

    async fn discard(&self) {
        let discarded = self.store.discard(key(&self.event), RETENTION).await;
        assert!(discarded.unwrap());
    }
}

#[tokio::test]
async fn a_call_whose_response_was_lost_succeeded_whatever_others_did_to_the_event_since() {
    let Some(server) = server().await else { return };
    let (proxy, url) = proxy(&server.url).await;
    let prefix = server.prefix();
    let store = super::connect_with_prefix(&url, &prefix).await;
    let direct = super::connect_with_prefix(&server.url, &prefix).await;
    let others = |event: &EventId| {
        let (store, token) = (direct.clone(), Token::random());
        let event = event.clone();
        Other {
            store,
            event,
            token,
        }
    };
    let new_event = async |name: &str| {
        let event = id(name);
        direct.accept(delivery(&event, b"body")).await.unwrap();
        let token = Token::random();
        assert_eq!(store.take(take(token)).await.unwrap().len(), 1);
        (event, token)
    };
    let now = Release::new(Duration::ZERO, RETENTION, "it failed");
    // The server knows the scripts, so that each response below is the one of a script that ran.
    let (event, token) = new_event("first").await;
    assert!(store.release(held(&event, token), now).await.unwrap());
    assert_eq!(store.take(take(token)).await.unwrap().len(), 1);
    assert!(store.park(held(&event, token), "it failed").await.unwrap());
    assert!(store.replay(key(&event)).await.unwrap());
    assert_eq!(store.take(take(token)).await.unwrap().len(), 1);
    assert!(store.park(held(&event, token), "it failed").await.unwrap());
    assert!(store.discard(key(&event), RETENTION).await.unwrap());

    // Released, then taken and completed.
    let (event, token) = new_event("released").await;
    let other = others(&event);
    proxy.lose_next_response_and(async move {
        other.take().await;
        other.complete().await;
    });
    assert!(store.release(held(&event, token), now).await.unwrap());
    proxy.assert_lost();

    // Parked, then replayed, taken and parked by another worker.
    let (event, token) = new_event("parked").await;
    let other = others(&event);
    proxy.lose_next_response_and(async move {
        other.replay().await;
        other.take().await;
        other.park().await;
    });
    assert!(store.park(held(&event, token), "it failed").await.unwrap());
    proxy.assert_lost();

    // Replayed, then taken and parked again: it is not replayed a second time.
    let other = others(&event);
    proxy.lose_next_response_and(async move {
        other.take().await;
        other.park().await;
    });
    assert!(store.replay(key(&event)).await.unwrap());
    proxy.assert_lost();
    let parked = store.parked(super::ENDPOINT, None, 10).await.unwrap();
    assert_eq!(parked.len(), 1);

    // Discarded by another caller before this one: only that one did it.
    let other = others(&event);
    other.discard().await;
    proxy.lose_next_response();
    assert!(!store.discard(key(&event), RETENTION).await.unwrap());
    proxy.assert_lost();
}
