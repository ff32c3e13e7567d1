//! A readiness probe: it says whether a new event can be stored, and leaves nothing in anybody's way.

use std::pin::pin;
use std::task::{Context, Waker};

use audience::inbox::rusqlite::Connection;
use audience::inbox::{
    Inbox, InboxError, MemoryStore, Receipt, RedisStore, SqliteStore, Store, StoreErrorKind,
};
use support::{DatabaseFile, in_time, postgres, redis, steady_time};

use super::deliveries::{delivery, id};

fn inbox(store: impl Store) -> Inbox {
    Inbox::builder(store).build().unwrap()
}

/// On a busy machine, a response may be late.
async fn until_ready(inbox: &Inbox) {
    in_time(async {
        while let Err(error) = inbox.ready().await {
            let InboxError::Store(error) = error else {
                panic!("{error}");
            };
            assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
        }
    })
    .await;
}

async fn failure(inbox: &Inbox) -> StoreErrorKind {
    loop {
        match inbox.ready().await {
            Err(InboxError::Store(error)) if error.kind() == StoreErrorKind::Unavailable => {}
            Err(InboxError::Store(error)) => return error.kind(),
            other => panic!("{other:?}"),
        }
    }
}

/// Probes from two processes, some of which die in the middle, and then handles an event.
async fn probe_100_times(one: impl Store, other: impl Store) {
    steady_time::begin();
    let (one, other) = (inbox(one), inbox(other));
    for _ in 0..25 {
        let _killed = pin!(one.ready()).poll(&mut Context::from_waker(Waker::noop()));
        until_ready(&other).await;
        tokio::join!(until_ready(&one), until_ready(&other));
    }

    let backlog = one.backlog().await.unwrap();
    assert_eq!((backlog.waiting, backlog.in_progress), (0, 0));
    assert!(one.parked().await.unwrap().is_empty());
    assert_eq!(one.accept(delivery("evt_1")).await, Receipt::Accepted);
    let worker = one.worker(|event, _| async move {
        assert_eq!(event.id, id("evt_1"));
        Ok::<_, String>(())
    });
    assert_eq!(worker.run_until_idle().await.unwrap().handled, 1);
}

#[tokio::test]
async fn a_hundred_probes_of_a_store_in_memory_leave_one_entry_that_is_forgotten() {
    let store = MemoryStore::new();

    probe_100_times(store.clone(), store.clone()).await;
    inbox(store.clone()).ready().await.unwrap();

    assert_eq!(store.purge(100).await.unwrap(), 1);
}

#[tokio::test]
async fn a_probe_of_a_full_store_in_memory_fails_until_there_is_room() {
    let store = MemoryStore::builder().capacity(2).build();
    let inbox = inbox(store.clone());
    inbox.ready().await.unwrap();
    assert_eq!(inbox.accept(delivery("evt_1")).await, Receipt::Accepted);
    inbox.ready().await.unwrap();
    assert_eq!(inbox.accept(delivery("evt_2")).await, Receipt::Accepted);

    assert_eq!(failure(&inbox).await, StoreErrorKind::Full);
    assert_eq!(inbox.accept(delivery("evt_3")).await, Receipt::Full);
    assert_eq!(inbox.metrics().store_errors, 2);

    let token = audience::inbox::Token::random();
    let minute = std::time::Duration::from_secs(60);
    let take = audience::inbox::Take::new("main", token, minute, 1);
    let taken = store.take(take).await.unwrap();
    let key = audience::inbox::EventKey::new("main", &taken[0].id);
    let held = audience::inbox::HeldClaim::new(key, token);
    store
        .complete(held, std::time::Duration::ZERO)
        .await
        .unwrap();
    inbox.ready().await.unwrap();
}

#[tokio::test]
async fn a_hundred_probes_of_a_sqlite_store_leave_one_row() {
    let file = DatabaseFile::new();
    let open = || SqliteStore::open(&file.0).unwrap();

    probe_100_times(open(), open()).await;

    let count = "SELECT count(*) FROM audience_inbox_pending";
    let connection = Connection::open(&file.0).unwrap();
    let rows: i64 = connection.query_row(count, (), |row| row.get(0)).unwrap();
    assert_eq!(rows, 1);
    assert_eq!(inbox(open()).purge().await.unwrap(), 1);
}

#[tokio::test]
async fn a_hundred_probes_of_a_postgres_store_leave_one_row() {
    let Some(database) = postgres::database().await else {
        return;
    };
    let store = postgres::connect(&database.url).await.unwrap();
    store.migrate().await.unwrap();
    let other = postgres::connect(&database.url).await.unwrap();

    probe_100_times(store, other).await;

    let client = postgres::client(&database.url).await;
    let count = "SELECT count(*) FROM audience_inbox WHERE state <> 'done'";
    let rows: i64 = client.query_one(count, &[]).await.unwrap().get(0);
    assert_eq!(rows, 1);
}

#[tokio::test]
async fn a_hundred_probes_of_a_redis_store_leave_nothing_that_stays() {
    let Some(server) = redis::server().await else {
        return;
    };
    steady_time::begin();
    let prefix = server.prefix();
    let connect = || {
        RedisStore::builder()
            .prefix(&prefix)
            .connect(server.url.as_str())
    };
    let (one, other) = tokio::join!(connect(), connect());

    probe_100_times(one.unwrap(), other.unwrap()).await;
}

#[tokio::test]
async fn a_probe_fails_for_a_postgres_role_that_may_not_insert() {
    let Some(server) = postgres::server().await else {
        return;
    };
    let database = server.database().await;
    let admin = postgres::client(&database.url).await;
    let store = postgres::connect(&database.url).await.unwrap();
    store.migrate().await.unwrap();
    let role =
        "CREATE ROLE receiver LOGIN; GRANT SELECT, UPDATE, DELETE ON audience_inbox TO receiver";
    admin.batch_execute(role).await.unwrap();
    let url = database.url.replace("audience@", "receiver@");
    let receiver = inbox(postgres::connect(&url).await.unwrap());

    assert_eq!(failure(&receiver).await, StoreErrorKind::Unusable);
    // With the entry of another probe there.
    until_ready(&inbox(store)).await;
    assert_eq!(failure(&receiver).await, StoreErrorKind::Unusable);

    let grant = "GRANT INSERT ON audience_inbox TO receiver";
    admin.batch_execute(grant).await.unwrap();
    until_ready(&receiver).await;
}
