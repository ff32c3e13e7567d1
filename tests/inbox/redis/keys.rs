use std::time::Duration;

use audience::inbox::{AcceptState, ClaimState, Store, Token};
use redis::AsyncCommands;

use super::{
    ENDPOINT, LEASE, RETENTION, claim, commands, delivery, held, id, key, release, store, take,
};
use support::redis::{OwnRedis, server};

const BODY: &[u8] = b"{\"to\": \"ada@example.com\"}";

/// What a server of a test's own holds, as one text.
async fn everything(url: &str) -> String {
    let mut server = commands(url).await;
    let keys: Vec<String> = server.keys("*").await.unwrap();
    let mut text = String::new();
    for key in keys {
        let dump: Vec<u8> = redis::cmd("DUMP")
            .arg(&key)
            .query_async(&mut server)
            .await
            .unwrap();
        let ttl: i64 = server.pttl(&key).await.unwrap();
        text += &format!("{key} {ttl} {}\n", String::from_utf8_lossy(&dump));
    }
    text
}

#[tokio::test]
async fn nothing_is_left_of_a_body_or_a_reason_when_an_event_is_done() {
    let Some(server) = OwnRedis::start(&["--rdbcompression", "no"]).await else {
        return;
    };
    let store = super::connect(&server.url()).await;
    let (completed, discarded, token) = (id("completed"), id("discarded"), Token::random());
    for id in [&completed, &discarded] {
        store.accept(delivery(id, BODY)).await.unwrap();
    }
    store.take(take(token)).await.unwrap();
    store
        .park(held(&discarded, token), "no such mailbox")
        .await
        .unwrap();
    let before = everything(&server.url()).await;
    assert!(before.contains("ada@example.com"), "{before}");

    store
        .complete(held(&completed, token), RETENTION)
        .await
        .unwrap();
    store.discard(key(&discarded), RETENTION).await.unwrap();

    let after = everything(&server.url()).await;
    assert!(!after.contains("ada@example.com"), "{after}");
    assert!(!after.contains("mailbox"), "{after}");
    let is_entry = |line: &&str| line.starts_with("{audience:inbox:main}:id:");
    assert_eq!(after.lines().filter(is_entry).count(), 2, "{after}");
    let is_other = |line: &&str| line.starts_with('{') && !line.contains(":call:");
    assert_eq!(after.lines().filter(is_other).count(), 2, "{after}");
}

#[tokio::test]
async fn done_events_and_claims_expire_by_themselves_and_waiting_ones_do_not() {
    let Some(server) = server().await else { return };
    let prefix = server.prefix();
    let store = super::connect_with_prefix(&server.url, &prefix).await;
    let token = Token::random();
    let (done, claimed, released) = (id("done"), id("claimed"), id("released"));
    for id in [&done, &claimed, &released] {
        store.claim(claim(id, token)).await.unwrap();
    }
    store.complete(held(&done, token), RETENTION).await.unwrap();
    store
        .release(held(&released, token), release())
        .await
        .unwrap();
    for name in ["waiting", "parked"] {
        store.accept(delivery(&id(name), BODY)).await.unwrap();
    }
    store.take(take(token)).await.unwrap();
    store
        .park(held(&id("parked"), token), "it failed")
        .await
        .unwrap();
    store
        .release(held(&id("waiting"), token), release())
        .await
        .unwrap();

    let mut server = commands(&server.url).await;
    let mut expires_in = async |name: &str| -> i64 {
        let key = format!("{{{prefix}:{ENDPOINT}}}:{name}");
        server.pttl(key).await.unwrap()
    };

    let mut is_about = async |name: &str, time: Duration| {
        let left = Duration::from_millis(u64::try_from(expires_in(name).await).unwrap());
        left <= time && left > time - Duration::from_secs(60)
    };

    assert!(is_about("id:done", RETENTION).await);
    assert!(is_about("id:claimed", LEASE + RETENTION).await);
    assert!(is_about("id:released", LEASE + RETENTION).await);
    for name in ["events", "bodies", "waiting", "parked"] {
        assert_eq!(expires_in(name).await, -1, "{name}");
    }
    assert_eq!(expires_in("id:waiting").await, -1);
}

#[tokio::test]
async fn stores_with_different_prefixes_share_a_server_and_no_event() {
    let Some(server) = server().await else { return };
    let (one, other) = (store(&server).await, store(&server).await);
    let event = id("event");

    for store in [&one, &other] {
        let state = store.accept(delivery(&event, BODY)).await.unwrap();
        assert_eq!(state, AcceptState::Accepted);
    }

    assert_eq!(one.take(take(Token::random())).await.unwrap().len(), 1);
    assert_eq!(other.backlog(ENDPOINT).await.unwrap().waiting, 1);
}

#[tokio::test]
async fn an_id_that_looks_like_the_end_of_a_key_names_its_own_event() {
    let Some(server) = server().await else { return };
    let store = store(&server).await;
    let names = ["}:id:x", "x", "a}:id:x", "}:id:}:id:x", "x}"];
    for name in names {
        let accepted = store.accept(delivery(&id(name), name.as_bytes())).await;
        assert_eq!(accepted.unwrap(), AcceptState::Accepted);
    }

    let token = Token::random();
    let taken = store.take(take(token)).await.unwrap();

    assert_eq!(taken.len(), names.len());
    for event in taken {
        assert_eq!(event.body, event.id.as_str());
        let (held, other) = (held(&event.id, token), Token::random());
        assert!(store.release(held, release()).await.unwrap());
        let state = store.claim(claim(&event.id, other)).await.unwrap();
        assert!(matches!(state, ClaimState::InProgress { .. }), "{state:?}");
    }
    assert_eq!(store.backlog(ENDPOINT).await.unwrap().waiting, 5);
}

#[tokio::test]
async fn an_endless_lease_and_retention_count_as_long_ones() {
    let Some(server) = server().await else { return };
    let store = store(&server).await;
    let (event, token) = (id("event"), Token::random());
    let mut endless = claim(&event, token);
    (endless.lease, endless.retention) = (Duration::MAX, Duration::MAX);

    assert_eq!(
        store.claim(endless).await.unwrap(),
        ClaimState::Fresh { attempt: 1 }
    );
    assert!(
        store
            .extend(held(&event, token), Duration::MAX)
            .await
            .unwrap()
    );
    let state = store.claim(claim(&event, Token::random())).await.unwrap();
    let ClaimState::InProgress { remaining } = state else {
        panic!("{state:?}")
    };
    assert!(remaining > Duration::from_secs(99 * 365 * 24 * 3_600));
    assert!(
        store
            .complete(held(&event, token), Duration::MAX)
            .await
            .unwrap()
    );
    assert_eq!(store.claim(endless).await.unwrap(), ClaimState::Done);
}

#[tokio::test]
async fn a_server_that_forgot_the_scripts_is_given_them_again() {
    let Some(server) = OwnRedis::start(&[]).await else {
        return;
    };
    let store = super::connect(&server.url()).await;
    let event = id("event");
    store.accept(delivery(&event, BODY)).await.unwrap();

    let mut commands = commands(&server.url()).await;
    let () = redis::cmd("SCRIPT")
        .arg("FLUSH")
        .query_async(&mut commands)
        .await
        .unwrap();

    assert_eq!(
        store.accept(delivery(&event, BODY)).await.unwrap(),
        AcceptState::Duplicate
    );
}

#[tokio::test]
async fn an_event_whose_body_was_deleted_by_hand_does_not_stop_the_others() {
    let Some(server) = server().await else { return };
    let prefix = server.prefix();
    let store = super::connect_with_prefix(&server.url, &prefix).await;
    for name in ["damaged", "whole"] {
        store.accept(delivery(&id(name), BODY)).await.unwrap();
    }

    let mut commands = commands(&server.url).await;
    let bodies = format!("{{{prefix}:{ENDPOINT}}}:bodies");
    let () = commands.hdel(bodies, "damaged").await.unwrap();

    let taken = store.take(take(Token::random())).await.unwrap();
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].id, id("whole"));
}

#[tokio::test]
async fn events_with_large_bodies_are_taken_a_few_at_a_time() {
    let Some(server) = server().await else { return };
    let store = super::connect_with_prefix(&server.url, &server.prefix()).await;
    let large = vec![b'x'; 2 << 20];
    for number in 0..5 {
        let event = id(&format!("{number}"));
        store.accept(delivery(&event, &large)).await.unwrap();
    }

    let mut taken = Vec::new();
    for _ in 0..4 {
        taken.push(store.take(take(Token::random())).await.unwrap().len());
    }

    assert_eq!(taken, [2, 2, 1, 0]);
}
