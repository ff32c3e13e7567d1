use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use audience::inbox::{
    AcceptState, ClaimState, RedisStore, Store, StoreError, StoreErrorKind, Token,
};
use tokio::net::{TcpListener, TcpStream};

use super::{RETENTION, claim, commands, delivery, held, id, take};
use support::redis::OwnRedis;
use support::{PATIENCE, in_time, steady_time};

/// The system still has what a killed server has written. To write it to a busy disk could take longer than a response
/// may.
const DURABLE: &[&str] = &["--appendonly", "yes", "--appendfsync", "no"];

/// Connects as a program does, to a server that runs. On a slow machine, that may take several attempts.
async fn connect(url: &str) -> RedisStore {
    let end = Instant::now() + PATIENCE;
    loop {
        match RedisStore::connect(url).await {
            Ok(store) => return store,
            Err(error) => {
                let is_slow = error.is_temporary() && Instant::now() < end;
                assert!(is_slow, "{error:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_call_fails_while_the_server_is_down_and_the_first_one_afterwards_succeeds() {
    steady_time::begin_slow();
    let Some(mut server) = OwnRedis::start(DURABLE).await else {
        return;
    };
    let store = connect(&server.url()).await;
    let (done, claimed, accepted, token) =
        (id("done"), id("claimed"), id("accepted"), Token::random());
    for id in [&done, &claimed] {
        store.claim(claim(id, token)).await.unwrap();
    }
    store.complete(held(&done, token), RETENTION).await.unwrap();
    store.accept(delivery(&accepted, b"body")).await.unwrap();

    server.kill();
    for _ in 0..3 {
        let error = in_time(store.claim(claim(&done, token))).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    }
    server.restart().await;

    let state = in_time(store.claim(claim(&done, Token::random())))
        .await
        .unwrap();
    assert_eq!(state, ClaimState::Done);
    assert!(
        store
            .complete(held(&claimed, token), RETENTION)
            .await
            .unwrap()
    );
    let taken = store.take(take(token)).await.unwrap();
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].body, "body");
}

#[tokio::test]
async fn a_connection_that_the_server_closed_fails_no_call() {
    steady_time::begin_slow();
    let Some(server) = OwnRedis::start(&[]).await else {
        return;
    };
    let store = connect(&server.url()).await;
    let mut commands = commands(&server.url()).await;

    for number in 0..5 {
        let kill = redis::cmd("CLIENT")
            .arg(&["KILL", "TYPE", "normal", "SKIPME", "yes"])
            .take();
        let killed: u32 = kill.query_async(&mut commands).await.unwrap();
        assert!(killed > 0);

        let event = id(&format!("event {number}"));
        let state = in_time(store.accept(delivery(&event, b"body")))
            .await
            .unwrap();
        assert_eq!(state, AcceptState::Accepted);
    }
}

#[tokio::test]
async fn a_server_that_stops_responding_fails_the_call_and_the_claim_can_be_asked_for_again() {
    let Some(server) = OwnRedis::start(&[]).await else {
        return;
    };
    let store = connect(&server.url()).await;
    let token = Token::random();
    let mut commands = commands(&server.url()).await;
    let end = Instant::now() + PATIENCE;
    let (mut number, mut failed) = (0, None);

    while failed.is_none() {
        // On a slow machine, the pause may have ended before the call. The next one is for another event.
        assert!(Instant::now() < end, "the call waits until the pause ends");
        let event = id(&format!("event {number}"));
        number += 1;
        let pause = redis::cmd("CLIENT").arg(&["PAUSE", "8000"]).take();
        let () = pause.query_async(&mut commands).await.unwrap();
        let claimed = in_time(store.claim(claim(&event, token))).await;
        failed = claimed.err().map(|error| (event, error));
    }
    let (event, error) = failed.unwrap();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);

    // The server made the claim after its caller had stopped waiting.
    let state = loop {
        match in_time(store.claim(claim(&event, token))).await {
            Ok(state) => break state,
            Err(error) => assert_eq!(error.kind(), StoreErrorKind::Unavailable),
        }
    };
    assert_eq!(state, ClaimState::Fresh { attempt: 1 });
}

#[tokio::test]
async fn a_server_that_never_responds_is_an_outage() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());

    let error = in_time(RedisStore::connect(url)).await.unwrap_err();

    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
}

#[tokio::test]
async fn after_a_failover_that_closes_no_connection_the_store_finds_the_new_primary() {
    let after = id("after");
    let accept = async |store: &RedisStore| {
        let accepted = store.accept(delivery(&after, b"body")).await?;
        assert_eq!(accepted, AcceptState::Accepted);
        Ok(())
    };
    // A process may have only a worker.
    let take = async |store: &RedisStore| store.take(take(Token::random())).await.map(drop);
    finds_the_new_primary(accept, 1).await;
    // It is not repeated, so it may find out that the connection has ended.
    finds_the_new_primary(take, 2).await;
}

/// Demotes a server while a store is connected to it, and then makes this call until it succeeds, after the first failure
/// with at most this many attempts.
async fn finds_the_new_primary(
    call: impl AsyncFn(&RedisStore) -> Result<(), StoreError>,
    at_most: u32,
) {
    steady_time::begin_slow();
    let (Some(old), Some(new)) = (OwnRedis::start(&[]).await, OwnRedis::start(&[]).await) else {
        return;
    };
    // The address of the primary.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let primary = Arc::new(AtomicU16::new(old.port()));
    let port = Arc::clone(&primary);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let port = port.load(Ordering::Relaxed);
            tokio::spawn(async move {
                let mut server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    let store = connect(&url).await;
    store
        .accept(delivery(&id("before"), b"body"))
        .await
        .unwrap();

    let demote = redis::cmd("REPLICAOF")
        .arg("127.0.0.1")
        .arg(new.port())
        .take();
    let () = demote
        .query_async(&mut commands(&old.url()).await)
        .await
        .unwrap();
    primary.store(new.port(), Ordering::Relaxed);

    let error = in_time(call(&store)).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    for _ in 1..at_most {
        if in_time(call(&store)).await.is_ok() {
            return;
        }
    }
    in_time(call(&store)).await.unwrap();
}

#[tokio::test]
async fn a_store_is_usable_again_after_the_server_refused_its_password_for_a_while() {
    steady_time::begin_slow();
    let Some(server) = OwnRedis::start(&[]).await else {
        return;
    };
    let mut commands = commands(&server.url()).await;
    let mut run = async |command: &str, args: &[&str]| {
        let command = redis::cmd(command).arg(args).take();
        let () = command.query_async(&mut commands).await.unwrap();
    };
    run("CONFIG", &["SET", "requirepass", "right"]).await;
    run("AUTH", &["right"]).await;
    let store = connect(&server.url().replace("redis://", "redis://:right@")).await;
    run("CONFIG", &["SET", "requirepass", "other"]).await;
    run("CLIENT", &["KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
    let event = id("event");
    let accept = || in_time(store.accept(delivery(&event, b"body")));
    let end = Instant::now() + PATIENCE;
    while accept().await.unwrap_err().kind() != StoreErrorKind::Unusable {
        assert!(Instant::now() < end, "the store connects again");
    }

    run("CONFIG", &["SET", "requirepass", "right"]).await;

    while accept().await.is_err() {
        assert!(Instant::now() < end, "the store gets another connection");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
