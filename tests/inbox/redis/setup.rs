use std::error::Error;

use audience::inbox::{ClaimState, RedisStore, Store, StoreError, StoreErrorKind, Token};

use super::{RETENTION, claim, commands, connect, delivery, held, id, key, release, take};
use support::redis::OwnRedis;
use support::{closed_url, in_time, steady_time};

const PASSWORD: &str = "hunter2";

async fn refused(url: &str) -> StoreError {
    in_time(RedisStore::connect(url)).await.unwrap_err()
}

/// Everything a log would show of an error.
fn printed(error: &StoreError) -> String {
    let cause = error.source().expect("the driver's error");
    format!("{error} {error:?} {cause} {cause:?}")
}

#[tokio::test]
async fn a_server_that_evicts_keys_is_refused_with_what_to_set() {
    steady_time::begin_slow();
    for policy in ["allkeys-lru", "volatile-ttl"] {
        let Some(server) = OwnRedis::start(&[]).await else {
            return;
        };
        let mut config = commands(&server.url()).await;
        let set = redis::cmd("CONFIG")
            .arg(&["SET", "maxmemory-policy", policy])
            .take();
        let () = set.query_async(&mut config).await.unwrap();

        let error = refused(&server.url()).await;

        assert_eq!(error.kind(), StoreErrorKind::Unusable);
        let printed = printed(&error);
        assert!(
            printed.contains(policy) && printed.contains("noeviction"),
            "{printed}"
        );
    }
}

#[tokio::test]
async fn a_wrong_or_missing_password_is_told_and_not_printed() {
    steady_time::begin_slow();
    let Some(server) = OwnRedis::start(&[]).await else {
        return;
    };
    let mut config = commands(&server.url()).await;
    let set = redis::cmd("CONFIG")
        .arg(&["SET", "requirepass", "right"])
        .take();
    let () = set.query_async(&mut config).await.unwrap();

    let wrong = server
        .url()
        .replace("redis://", &format!("redis://:{PASSWORD}@"));
    for url in [wrong, server.url()] {
        let error = refused(&url).await;

        assert_eq!(error.kind(), StoreErrorKind::Unusable, "{error:?}");
        assert!(!printed(&error).contains(PASSWORD), "{}", printed(&error));
    }
    let right = server.url().replace("redis://", "redis://:right@");
    let store = connect(&right).await;
    assert!(!format!("{store:?}").contains("right"));
}

/// Adds the user `inbox` with these rules. Skips the test and returns `false` if the server has no users.
async fn add_user(server: &OwnRedis, rules: &[&str]) -> bool {
    let mut commands = commands(&server.url()).await;
    let mut user = redis::cmd("ACL");
    user.arg(&["SETUSER", "inbox", "on"]).arg(rules);
    match user.query_async::<()>(&mut commands).await {
        Err(error) if error.to_string().contains("unknown command") => {
            support::say_skipped("users of Redis: the server is older than Redis 6");
            false
        }
        added => {
            added.unwrap();
            true
        }
    }
}

#[tokio::test]
async fn a_user_with_the_documented_permissions_can_do_everything() {
    let Some(server) = OwnRedis::start(&[]).await else {
        return;
    };
    let password = format!(">{PASSWORD}");
    let limits = ["+@read", "+@write", "+@scripting", "+time", "+info"];
    let user = [&[&password, "~{audience:inbox:*"][..], &limits].concat();
    if !add_user(&server, &user).await {
        return;
    }
    let url = server
        .url()
        .replace("redis://", &format!("redis://inbox:{PASSWORD}@"));

    everything_works(&connect(&url).await).await;
}

#[tokio::test]
async fn a_server_that_does_not_tell_its_settings_is_not_refused() {
    let Some(server) = OwnRedis::start(&[]).await else {
        return;
    };
    if !add_user(&server, &["nopass", "~*", "+@all", "-info", "-config"]).await {
        return;
    }
    let url = server.url().replace("redis://", "redis://inbox:x@");

    everything_works(&connect(&url).await).await;
}

#[tokio::test]
async fn a_missing_permission_is_no_outage() {
    let Some(server) = OwnRedis::start(&[]).await else {
        return;
    };
    if !add_user(&server, &["nopass", "~*", "+@all", "-set", "-evalsha"]).await {
        return;
    }
    let url = server.url().replace("redis://", "redis://inbox:x@");
    let store = connect(&url).await;

    let error = store
        .claim(claim(&id("event"), Token::random()))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unusable);
}

#[tokio::test]
async fn an_address_that_nothing_listens_on_is_an_outage() {
    let url = closed_url().replace("http://", "redis://");

    assert_eq!(refused(&url).await.kind(), StoreErrorKind::Unavailable);
}

#[tokio::test]
async fn an_invalid_address_is_no_outage_and_not_printed() {
    for url in [
        "",
        "localhost",
        "http://localhost",
        "rediss://:hunter2@localhost#other",
        "redis://:hunter2@localhost:x",
    ] {
        let error = refused(url).await;

        assert_eq!(error.kind(), StoreErrorKind::Unusable, "{url}: {error:?}");
        assert!(!printed(&error).contains(PASSWORD), "{}", printed(&error));
    }
}

async fn everything_works(store: &RedisStore) {
    let (event, token) = (id("event"), Token::random());
    store.accept(delivery(&event, b"body")).await.unwrap();
    store.take(take(token)).await.unwrap();
    assert!(store.extend(held(&event, token), RETENTION).await.unwrap());
    assert!(store.park(held(&event, token), "it failed").await.unwrap());
    assert_eq!(
        store.parked(super::ENDPOINT, None, 10).await.unwrap().len(),
        1
    );
    assert!(store.replay(key(&event)).await.unwrap());
    store.take(take(token)).await.unwrap();
    assert!(store.park(held(&event, token), "it failed").await.unwrap());
    assert!(store.discard(key(&event), RETENTION).await.unwrap());
    assert_eq!(
        store.claim(claim(&event, token)).await.unwrap(),
        ClaimState::Done
    );
    let other = id("other");
    store.claim(claim(&other, token)).await.unwrap();
    assert!(store.release(held(&other, token), release()).await.unwrap());
    assert_eq!(store.backlog(super::ENDPOINT).await.unwrap().waiting, 0);
    store.purge(10).await.unwrap();
}
