//! Calls of a store and of an inbox that are polled some times and then dropped, for every number of polls: the store is
//! usable afterwards, no claim lasts longer than its lease, and every connection is back in its pool.

use std::path::Path;
use std::time::Duration;

use audience::inbox::deadpool_postgres::tokio_postgres::Transaction;
use audience::inbox::sqlx::{self, PgPool, SqlitePool};
use audience::inbox::{
    AcceptState, Backlog, ClaimState, EventKey, Fingerprint, HeldClaim, Inbox, MemoryStore,
    NewClaim, NewDelivery, ParkedEvent, PostgresStore, Receipt, RedisStore, Release, SqliteStore,
    SqlxPostgresStore, SqlxSqliteStore, Store, StoreError, Take, TakenEvent, Token,
};
use audience::webhooks::{Event, EventId};
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use support::cancellation::{for_each_number_of_polls, poll_times, until};
use support::redis::OwnRedis;
use support::{PATIENCE, in_time, postgres, steady_time};

use super::deliveries::{Runs, delivery, id, store_in_test_time, with_store_methods};

const HOUR: Duration = Duration::from_secs(3_600);

/// Drops each call after every number of polls, and then makes it to its end, for an event of its own each time.
/// `ended` waits until no dropped call is still being made: it would lock its event, and `take` passes over such events.
async fn drop_each_call(store: &impl Store, ended: impl AsyncFn()) {
    for_each_number_of_polls(async |polls| {
        let endpoint = format!("polls-{polls}");
        let event = id("evt_1");
        let key = EventKey::new(&endpoint, &event);
        let mut is_whole = true;
        let body = b"body".as_slice();
        let accepted = NewDelivery::new(key, body, Fingerprint::of(body));
        /// Drops a call, and makes it.
        macro_rules! drop_and_make {
            ($call:expr) => {{
                is_whole &= poll_times(polls, $call).await.is_some();
                ended().await;
                in_time($call).await.unwrap()
            }};
        }
        let new_claim = |token, lease| NewClaim::new(key, token, lease, HOUR);
        let held = |token| HeldClaim::new(key, token);
        let token = Token::random();

        // Whether the first one was made or not, the event can be claimed with its token.
        let state = drop_and_make!(store.claim(new_claim(token, HOUR)));
        assert_eq!(state, ClaimState::Fresh { attempt: 1 }, "{polls}");
        assert!(drop_and_make!(store.extend(held(token), HOUR)), "{polls}");
        drop_and_make!(store.release(held(token), Release::new(Duration::ZERO, HOUR, "no")));
        // Claims without a lease keep nobody out.
        drop_and_make!(store.claim(new_claim(Token::random(), Duration::ZERO)));
        drop_and_make!(store.claim(new_claim(Token::random(), Duration::ZERO)));
        let state = drop_and_make!(store.accept(accepted));
        assert!(
            matches!(state, AcceptState::Accepted | AcceptState::Duplicate),
            "{state:?}"
        );
        // So do events that were taken without a lease.
        let take = Take::new(&endpoint, token, Duration::ZERO, 10);
        assert_eq!(drop_and_make!(store.take(take)).len(), 1, "{polls}");
        drop_and_make!(store.park(held(token), "no"));
        let parked = drop_and_make!(store.parked(&endpoint, None, 10));
        assert_eq!(parked.len(), 1, "{polls}");
        drop_and_make!(store.replay(key));
        assert_eq!(in_time(store.take(take)).await.unwrap().len(), 1, "{polls}");
        assert!(in_time(store.park(held(token), "no")).await.unwrap());
        drop_and_make!(store.discard(key, HOUR));
        let state = in_time(store.claim(new_claim(token, HOUR))).await.unwrap();
        assert_eq!(state, ClaimState::Done, "{polls}");

        // Two more events, for what completes.
        let (second, third) = (id("evt_2"), id("evt_3"));
        let key_of = |event| EventKey::new(&endpoint, event);
        let claimed = HeldClaim::new(key_of(&second), token);
        let claim = NewClaim::new(claimed.key, token, HOUR, HOUR);
        in_time(store.claim(claim)).await.unwrap();
        assert!(drop_and_make!(store.complete(claimed, HOUR)), "{polls}");
        let accepted = NewDelivery::new(key_of(&third), body, Fingerprint::of(body));
        in_time(store.accept(accepted)).await.unwrap();
        assert_eq!(in_time(store.take(take)).await.unwrap().len(), 1);
        let taken = [HeldClaim::new(key_of(&third), token)];
        let turn_over = || store.complete_and_take(&taken, HOUR, take);
        is_whole &= poll_times(polls, turn_over()).await.is_some();
        ended().await;
        let turnover = in_time(turn_over()).await;
        assert_eq!(turnover.completed.unwrap(), [true], "{polls}");
        assert_eq!(turnover.taken.unwrap().len(), 0, "{polls}");

        drop_and_make!(store.purge(10));
        let backlog = drop_and_make!(store.backlog(&endpoint));
        assert_eq!((backlog.waiting, backlog.parked), (0, 0), "{polls}");
        is_whole
    })
    .await;
}

/// Windows deletes no file that is open, and the stores close theirs a little later than they are dropped.
async fn remove(folder: &Path, pool: SqlitePool) {
    pool.close().await;
    until(|| std::fs::remove_dir_all(folder).is_ok()).await;
}

#[tokio::test]
async fn a_call_of_a_store_that_is_dropped_after_any_number_of_polls_can_be_made_again() {
    drop_each_call(&MemoryStore::new(), async || {}).await;

    let folder = std::env::temp_dir().join(format!("audience-polls-{:016x}", fastrand::u64(..)));
    std::fs::create_dir(&folder).unwrap();
    let store = SqliteStore::open(folder.join("one.db")).unwrap();
    drop_each_call(&store, async || {}).await;

    let options = sqlx::sqlite::SqliteConnectOptions::new()
        .filename(folder.join("two.db"))
        .create_if_missing(true);
    let pool = SqlitePool::connect_with(options).await.unwrap();
    let store = SqlxSqliteStore::open(pool.clone()).await.unwrap();
    let ended = || until(|| pool.num_idle() == pool.size() as usize);
    drop_each_call(&store, async || ended().await).await;
    remove(&folder, pool).await;
}

#[tokio::test]
async fn a_call_on_postgres_that_is_dropped_after_any_number_of_polls_gives_its_connection_back() {
    let (Some(database), Some(other)) = (postgres::database().await, postgres::database().await)
    else {
        return;
    };
    let store = PostgresStore::builder()
        .max_connections(3)
        .timeout(PATIENCE);
    let store = store.connect(&database.url).await.unwrap();
    store.migrate().await.unwrap();
    // Connections of dropped calls are closed once their statement has ended, and their places are free.
    let status = || store.pool().status();
    let ended = || until(|| status().available == status().size && status().size <= 3);
    drop_each_call(&store, async || ended().await).await;

    let pool = sqlx::postgres::PgPoolOptions::new().max_connections(3);
    let pool: PgPool = pool.connect(&other.url).await.unwrap();
    let store = SqlxPostgresStore::new(pool.clone()).timeout(PATIENCE);
    store.migrate().await.unwrap();
    let ended = || until(|| pool.num_idle() == pool.size() as usize);
    drop_each_call(&store, async || ended().await).await;

    let client = postgres::client(&database.url).await;
    let others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND pid <> pg_backend_pid()";
    in_time(async {
        while client
            .query_one(others, &[])
            .await
            .unwrap()
            .get::<_, i64>(0)
            > 6
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_call_on_redis_that_is_dropped_after_any_number_of_polls_keeps_its_connection() {
    let Some(server) = OwnRedis::start(&[]).await else {
        return;
    };
    steady_time::begin();
    let store = RedisStore::connect(server.url()).await.unwrap();

    drop_each_call(&store, async || {}).await;

    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let clients: String = redis::cmd("CLIENT")
        .arg("LIST")
        .query_async(&mut connection)
        .await
        .unwrap();
    assert_eq!(clients.lines().count(), 2, "{clients}");
}

/// A store whose calls are not ready immediately.
struct SlowStore(MemoryStore);

macro_rules! slowly {
    ($($method:ident($($name:ident: $type:ty),*) -> $output:ty;)+) => {
        $(async fn $method(&self, $($name: $type),*) -> Result<$output, StoreError> {
            tokio::task::yield_now().await;
            let result = self.0.$method($($name),*).await;
            tokio::task::yield_now().await;
            result
        })+
    };
}

impl Store for SlowStore {
    slowly! { complete(held: HeldClaim<'_>, retention: Duration) -> bool; }
    with_store_methods! { slowly }
}

#[tokio::test(start_paused = true)]
async fn an_event_whose_handling_is_dropped_after_any_number_of_polls_is_handled_once() {
    let inbox = Inbox::builder(SlowStore(MemoryStore::new()))
        .build()
        .unwrap();
    let polls = for_each_number_of_polls(async |polls| {
        let (event, runs) = (format!("evt_{polls}"), Runs::default());
        let handle = || {
            let handler = runs.handler();
            inbox.handle(delivery(&event), move |event, attempt| async move {
                tokio::task::yield_now().await;
                handler(event, attempt).await
            })
        };

        let ended = poll_times(polls, handle()).await;
        in_time(inbox.wait_idle()).await;
        let receipt = in_time(handle()).await;

        // A handler that began continues without its caller.
        let is_handled = matches!(receipt, Receipt::Handled | Receipt::Duplicate);
        assert!(is_handled, "{receipt:?}");
        assert_eq!(runs.count(), 1, "{polls}");
        ended.is_some()
    })
    .await;
    assert!(polls > 1, "{polls}");
    for_each_number_of_polls(async |polls| {
        let event = format!("accepted_{polls}");
        let ended = poll_times(polls, inbox.accept(delivery(&event))).await;
        let receipt = in_time(inbox.accept(delivery(&event))).await;
        assert!(matches!(receipt, Receipt::Accepted | Receipt::Duplicate));
        assert_eq!(
            in_time(inbox.backlog()).await.unwrap().waiting,
            polls as u64 + 1
        );
        ended.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_a_worker_that_is_dropped_after_any_number_of_polls_left_is_handled_by_the_next() {
    let polls = for_each_number_of_polls(async |polls| {
        let inbox = Inbox::builder(store_in_test_time()).build().unwrap();
        for number in 0..3 {
            assert!(
                inbox
                    .accept(delivery(&format!("evt_{number}")))
                    .await
                    .is_success()
            );
        }
        let worker = || {
            let worker = inbox.worker(|_, _| async {
                tokio::time::sleep(Duration::from_millis(5)).await;
                Ok::<_, String>(())
            });
            worker.concurrency(2).run_until_idle()
        };

        let ended = poll_times(polls, worker()).await;
        // No claim is held for longer than its lease.
        tokio::time::sleep(HOUR).await;
        worker().await.unwrap();

        let backlog = inbox.backlog().await.unwrap();
        assert_eq!(
            (backlog.waiting, backlog.in_progress, backlog.parked),
            (0, 0, 0)
        );
        for number in 0..3 {
            let receipt = inbox.accept(delivery(&format!("evt_{number}"))).await;
            assert_eq!(receipt, Receipt::Duplicate, "{polls}");
        }
        ended.is_some()
    })
    .await;
    assert!(polls > 1, "{polls}");
}

/// Drops the handling of an event after every number of polls, and then makes it to its end.
async fn drop_each_transaction<'s>(
    handle: impl Fn(String) -> LocalBoxFuture<'s, Receipt>,
    count_effects: impl Fn(String) -> LocalBoxFuture<'s, i64>,
) {
    let polls = for_each_number_of_polls(async |polls| {
        let event = format!("evt_{polls}");
        let ended = poll_times(polls, handle(event.clone())).await;
        let receipt = in_time(async {
            loop {
                // A statement of the first transaction may still wait for its end.
                match handle(event.clone()).await {
                    Receipt::Unavailable => {}
                    receipt => break receipt,
                }
            }
        });
        let receipt = receipt.await;
        assert!(
            matches!(receipt, Receipt::Handled | Receipt::Duplicate),
            "{receipt:?}"
        );
        assert_eq!(in_time(count_effects(event)).await, 1, "{polls}");
        ended.is_some()
    })
    .await;
    assert!(polls > 0, "{polls}");
}

const EFFECTS: &str = "CREATE TABLE effects (event TEXT)";
const COUNT: &str = "SELECT count(*) FROM effects WHERE event = $1";
const INSERT: &str = "INSERT INTO effects VALUES ($1)";

#[tokio::test]
async fn a_transaction_in_sqlite_that_is_dropped_after_any_number_of_polls_has_its_effect_once() {
    let store = SqliteStore::in_memory().unwrap();
    let create = store.transaction(|transaction| transaction.execute_batch(EFFECTS));
    create.await.unwrap();
    drop_each_transaction(
        |event| {
            let handled = store.handle_in("main", delivery(&event), |transaction, event| {
                transaction.execute(INSERT, [event.id.as_str()]).map(drop)
            });
            handled.boxed_local()
        },
        |event| {
            let count = store.transaction(move |transaction| {
                transaction.query_row(COUNT, [event], |row| row.get(0))
            });
            count.map(Result::unwrap).boxed_local()
        },
    )
    .await;

    let folder = std::env::temp_dir().join(format!("audience-polls-{:016x}", fastrand::u64(..)));
    std::fs::create_dir(&folder).unwrap();
    let options = sqlx::sqlite::SqliteConnectOptions::new()
        .filename(folder.join("effects.db"))
        .create_if_missing(true);
    let pool = sqlx::sqlite::SqlitePoolOptions::new().max_connections(2);
    let pool = pool.connect_with(options).await.unwrap();
    let store = SqlxSqliteStore::open(pool.clone()).await.unwrap();
    sqlx::query(EFFECTS).execute(&pool).await.unwrap();
    drop_each_transaction(
        |event| {
            let handler = async |transaction: &mut sqlx::Transaction<'_, sqlx::Sqlite>,
                                 event: Event| {
                let insert = sqlx::query(INSERT).bind(event.id.to_string());
                insert.execute(&mut **transaction).await.map(drop)
            };
            let store = store.clone();
            async move { store.handle_in("main", delivery(&event), handler).await }.boxed_local()
        },
        |event| {
            let count = sqlx::query_scalar(COUNT).bind(event);
            count.fetch_one(&pool).map(Result::unwrap).boxed_local()
        },
    )
    .await;
    until(|| pool.num_idle() == pool.size() as usize).await;
    remove(&folder, pool).await;
}

#[tokio::test]
async fn a_transaction_in_postgres_that_is_dropped_after_any_number_of_polls_has_its_effect_once() {
    let Some(database) = postgres::database().await else {
        return;
    };
    let store = PostgresStore::builder()
        .max_connections(2)
        .timeout(PATIENCE);
    let store = store.connect(&database.url).await.unwrap();
    store.migrate().await.unwrap();
    let client = postgres::client(&database.url).await;
    client.batch_execute(EFFECTS).await.unwrap();
    let count_effects = |event: String| {
        let client = &client;
        async move {
            let row = client.query_one(COUNT, &[&event]).await.unwrap();
            row.get(0)
        }
        .boxed_local()
    };
    drop_each_transaction(
        |event| {
            let store = store.clone();
            async move {
                let handler = async |transaction: &mut Transaction<'_>, event: Event| {
                    let id = event.id.as_str();
                    transaction.execute(INSERT, &[&id]).await.map(drop)
                };
                store.handle_in("main", delivery(&event), handler).await
            }
            .boxed_local()
        },
        count_effects,
    )
    .await;
    let status = || store.pool().status();
    until(|| status().available == status().size && status().size <= 2).await;

    client
        .batch_execute("TRUNCATE effects, audience_inbox")
        .await
        .unwrap();
    let pool = sqlx::postgres::PgPoolOptions::new().max_connections(2);
    let pool: PgPool = pool.connect(&database.url).await.unwrap();
    let store = SqlxPostgresStore::new(pool.clone());
    drop_each_transaction(
        |event| {
            let store = store.clone();
            async move {
                let handler = async |transaction: &mut sqlx::Transaction<'_, sqlx::Postgres>,
                                     event: Event| {
                    let insert = sqlx::query(INSERT).bind(event.id.to_string());
                    insert.execute(&mut **transaction).await.map(drop)
                };
                store.handle_in("main", delivery(&event), handler).await
            }
            .boxed_local()
        },
        count_effects,
    )
    .await;
    until(|| pool.num_idle() == pool.size() as usize && pool.size() <= 2).await;
}

#[tokio::test]
async fn a_connection_of_sqlx_is_in_no_transaction_after_a_call_that_is_dropped_after_any_number_of_polls()
 {
    let Some(database) = postgres::database().await else {
        return;
    };
    let client = postgres::client(&database.url).await;
    client.batch_execute(EFFECTS).await.unwrap();
    let pool = sqlx::postgres::PgPoolOptions::new().max_connections(1);
    let pool: PgPool = pool.connect(&database.url).await.unwrap();
    // The next caller of the program, whose success is seen from another connection.
    let write = async |effect: String| {
        let insert = sqlx::query(INSERT).bind(&effect);
        in_time(insert.execute(&pool)).await.unwrap();
        let written = client.query_one(COUNT, &[&effect]).await.unwrap();
        assert_eq!(written.get::<_, i64>(0), 1, "{effect}");
    };
    let named = SqlxPostgresStore::new(pool.clone());
    for (kind, store) in [
        ("named", named.clone()),
        ("unnamed", named.unnamed_statements()),
    ] {
        for_each_number_of_polls(async |polls| {
            let mut is_whole = poll_times(polls, store.migrate()).await.is_some();
            write(format!("{kind}: migrate, {polls}")).await;
            is_whole &= poll_times(polls, store.backlog("main")).await.is_some();
            write(format!("{kind}: backlog, {polls}")).await;
            let handler =
                async |_: &mut sqlx::Transaction<'_, sqlx::Postgres>, _: Event| Ok::<_, String>(());
            let handled = store.handle_in("main", delivery(kind), handler);
            is_whole &= poll_times(polls, handled).await.is_some();
            write(format!("{kind}: handle_in, {polls}")).await;
            is_whole
        })
        .await;
    }
}
