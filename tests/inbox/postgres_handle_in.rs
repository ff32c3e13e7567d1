//! An event and its effect in one transaction of the store's.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use audience::inbox::deadpool_postgres::tokio_postgres::types::{IsNull, ToSql, Type};
use audience::inbox::deadpool_postgres::tokio_postgres::{self, Client, Transaction};
use audience::inbox::{ClaimState, Inbox, PostgresStore, Receipt, Store};
use audience::webhooks::{Event, VerifiedEvent, Verifier};
use axum::Router;
use axum::body::Body;
use axum::extract::{FromRef, State};
use axum::routing::post;
use bytes::BytesMut;
use http::Request;
use tower::ServiceExt;

use super::deliveries::{SECRET, Transparent, body, delivery, delivery_about, id, new_claim};
use support::postgres::{self, Database};
use support::trace_log::Log;
use support::{PATIENCE, in_time, steady_time};

const TABLES: &str = "CREATE TABLE effects (event_id text);
    CREATE TABLE counters (name text PRIMARY KEY, value int NOT NULL);
    INSERT INTO counters VALUES ('a', 0), ('b', 0)";

/// Somewhat less than the time that a delivery may take.
const RESPONSE_LIMIT: Duration = Duration::from_secs(5);

/// How many backends of the store have a transaction open.
const IN_TRANSACTION: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE application_name = 'audience inbox' AND datname = current_database() AND state <> 'idle'";

async fn set_up() -> Option<(Database, PostgresStore)> {
    let database = postgres::database().await?;
    let store = store(&database).await;
    Some((database, store))
}

async fn store(database: &Database) -> PostgresStore {
    let store = postgres::connect(&database.url).await.unwrap();
    store.migrate().await.unwrap();
    let client = postgres::client(&database.url).await;
    client.batch_execute(TABLES).await.unwrap();
    store
}

async fn apply_effect(
    transaction: &mut Transaction<'_>,
    event: Event,
) -> Result<(), tokio_postgres::Error> {
    let effect = "INSERT INTO effects VALUES ($1)";
    transaction.execute(effect, &[&event.id.as_str()]).await?;
    Ok(())
}

async fn handle(store: &PostgresStore, event: &str) -> Receipt {
    in_time(store.handle_in("main", delivery(event), apply_effect)).await
}

async fn number(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.unwrap().get(0)
}

async fn effects(database: &Database) -> i64 {
    let client = postgres::client(&database.url).await;
    number(&client, "SELECT count(*) FROM effects").await
}

/// Waits until a query returns this number.
async fn wait_for(client: &Client, expected: i64, sql: &str) {
    let end = Instant::now() + PATIENCE;
    while number(client, sql).await != expected {
        assert!(Instant::now() < end, "never {expected}: {sql}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn is_new(store: &PostgresStore, event: &str) -> bool {
    let state = store.claim(new_claim(&id(event))).await.unwrap();
    state == ClaimState::Fresh { attempt: 1 }
}

#[derive(Clone, FromRef)]
struct App {
    verifier: Verifier,
    store: PostgresStore,
}

async fn hook(State(app): State<App>, delivery: VerifiedEvent) -> Receipt {
    let table = "effects".to_owned();
    let handler = async |transaction: &mut Transaction<'_>, event: Event| {
        let effect = format!("INSERT INTO {table} VALUES ($1)");
        transaction.execute(&effect, &[&event.id.as_str()]).await?;
        Ok::<_, tokio_postgres::Error>(())
    };
    app.store.handle_in("main", delivery, handler).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_of_axum_applies_each_event_once() {
    let Some((database, store)) = set_up().await else {
        return;
    };
    let verifier = Verifier::new(SECRET).unwrap();
    let router = Router::new()
        .route("/hook", post(hook))
        .with_state(App { verifier, store });
    let mut responses = tokio::task::JoinSet::new();

    for number in 0..60 {
        let router = router.clone();
        responses.spawn(async move {
            let text = body(&format!("evt_{}", number % 20), "Hi");
            let began = Instant::now();
            loop {
                let headers = audience::webhooks::Signer::new(SECRET).unwrap().sign(
                    &audience::webhooks::EventType::Bounced,
                    std::time::SystemTime::now(),
                    &text,
                );
                let request = Request::post("/hook").body(Body::from(text.clone()));
                let mut request = request.unwrap();
                *request.headers_mut() = headers;
                let sent = Instant::now();
                let status = router.clone().oneshot(request).await.unwrap().status();
                // On a busy machine, 8 s may be too short. Then the service delivers the event again.
                let is_late = status == 503 && sent.elapsed() > RESPONSE_LIMIT;
                if !is_late || began.elapsed() > PATIENCE {
                    return status;
                }
            }
        });
    }
    let statuses = responses.join_all().await;

    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    assert_eq!(effects(&database).await, 20);
}

#[tokio::test]
async fn the_receipt_says_what_became_of_a_delivery() {
    steady_time::begin_slow();
    let Some((database, store)) = set_up().await else {
        return;
    };
    store.claim(new_claim(&id("evt_leased"))).await.unwrap();

    let first = handle(&store, "evt_1").await;
    let second = handle(&store, "evt_1").await;
    let elsewhere = store
        .handle_in("other", delivery("evt_1"), apply_effect)
        .await;
    let forged = delivery_about("evt_1", "Another");
    let forged = store.handle_in("main", forged, apply_effect).await;
    let leased = handle(&store, "evt_leased").await;

    assert_eq!(
        [first, second, elsewhere, forged],
        [
            Receipt::Handled,
            Receipt::Duplicate,
            Receipt::Handled,
            Receipt::Conflict
        ]
    );
    assert!(matches!(leased, Receipt::InProgress { .. }), "{leased:?}");
    assert_eq!(effects(&database).await, 2);
}

#[tokio::test]
async fn an_error_or_a_panic_of_the_handler_undoes_its_writes_and_the_claim() {
    steady_time::begin_slow();
    let Some((database, store)) = set_up().await else {
        return;
    };

    let failed = store
        .handle_in("main", delivery("evt_1"), async |transaction, event| {
            apply_effect(transaction, event).await.unwrap();
            Err("no such customer")
        })
        .await;
    let panicked = store
        .handle_in("main", delivery("evt_1"), async |transaction, event| {
            apply_effect(transaction, event).await.unwrap();
            assert!(transaction.execute("SELECT 1", &[]).await.is_err(), "oops");
            Ok::<_, Infallible>(())
        })
        .await;

    assert_eq!([failed, panicked], [Receipt::Failed; 2]);
    assert_eq!(effects(&database).await, 0);
    assert_eq!(handle(&store, "evt_1").await, Receipt::Handled);
    assert_eq!(effects(&database).await, 1);
}

#[tokio::test]
async fn a_handler_that_ignores_an_error_of_the_database_has_failed() {
    steady_time::begin_slow();
    let Some((database, store)) = set_up().await else {
        return;
    };

    let receipt = store
        .handle_in("main", delivery("evt_1"), async |transaction, event| {
            apply_effect(transaction, event).await.unwrap();
            // Postgres undoes the transaction, and responds to `COMMIT` with a success.
            let _ = transaction.execute("SELECT 1 / 0", &[]).await;
            Ok::<_, Infallible>(())
        })
        .await;

    assert_eq!(receipt, Receipt::Failed);
    assert_eq!(handle(&store, "evt_1").await, Receipt::Handled);
    assert_eq!(effects(&database).await, 1);
}

#[tokio::test]
async fn a_constraint_that_is_checked_at_the_commit_fails_the_handler() {
    steady_time::begin_slow();
    let Some((database, store)) = set_up().await else {
        return;
    };
    let client = postgres::client(&database.url).await;
    let deferred = "ALTER TABLE effects ADD UNIQUE (event_id) DEFERRABLE INITIALLY DEFERRED";
    client.batch_execute(deferred).await.unwrap();

    let receipt = store
        .handle_in("main", delivery("evt_1"), async |transaction, event| {
            apply_effect(transaction, event.clone()).await?;
            apply_effect(transaction, event).await
        })
        .await;

    assert_eq!(receipt, Receipt::Failed);
    assert_eq!(effects(&database).await, 0);
    assert!(is_new(&store, "evt_1").await);
}

/// An error with that of the driver as its source.
#[derive(Debug)]
struct NotCounted(tokio_postgres::Error);

impl fmt::Display for NotCounted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the event was not counted")
    }
}

impl Error for NotCounted {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

async fn count(transaction: &Transaction<'_>, name: &str) -> Result<(), NotCounted> {
    let value = "SELECT value FROM counters WHERE name = $1";
    let row = transaction.query_one(value, &[&name]).await;
    let value: i32 = row.map_err(NotCounted)?.get(0);
    tokio::time::sleep(Duration::from_millis(5)).await;
    let update = "UPDATE counters SET value = $2 WHERE name = $1";
    let updated = transaction.execute(update, &[&name, &(value + 1)]).await;
    updated.map(drop).map_err(NotCounted)
}

#[tokio::test]
async fn a_transaction_that_loses_against_another_one_is_run_again() {
    steady_time::begin_slow();
    let Some((database, store)) = set_up().await else {
        return;
    };
    let client = postgres::client(&database.url).await;
    let name: String = client
        .query_one("SELECT current_database()::text", &[])
        .await
        .unwrap()
        .get(0);
    let serializable =
        format!("ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'");
    client.batch_execute(&serializable).await.unwrap();
    let connected = postgres::connect(&database.url).await.unwrap();
    drop(store);

    // A read and a write of one row by all of them: serialization failures.
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..4 {
        let store = connected.clone();
        tasks.spawn(async move {
            let delivery = delivery(&format!("evt_{number}"));
            let count = async |transaction: &mut Transaction<'_>, _| count(transaction, "a").await;
            store.handle_in("main", delivery, count).await
        });
    }
    let receipts = tasks.join_all().await;

    let handled = receipts.iter().filter(|receipt| receipt.is_success());
    let handled = i64::try_from(handled.count()).unwrap();
    assert!(!receipts.contains(&Receipt::Failed), "{receipts:?}");
    assert!(handled >= 3, "{receipts:?}");
    let value = "SELECT value::bigint FROM counters WHERE name = 'a'";
    assert_eq!(number(&client, value).await, handled);
}

#[tokio::test]
async fn a_deadlock_is_resolved_by_running_one_transaction_again() {
    steady_time::begin_slow();
    let Some((database, store)) = set_up().await else {
        return;
    };
    let client = postgres::client(&database.url).await;
    let update = "UPDATE counters SET value = value + 1 WHERE name = $1";
    let barrier = Arc::new(tokio::sync::Barrier::new(2));
    let mut tasks = tokio::task::JoinSet::new();

    for names in [["a", "b"], ["b", "a"]] {
        let (store, barrier) = (store.clone(), barrier.clone());
        tasks.spawn(async move {
            let is_first = AtomicBool::new(true);
            let delivery = delivery(&format!("evt_{}", names[0]));
            let handler = async |transaction: &mut Transaction<'_>, _| {
                transaction.execute(update, &[&names[0]]).await?;
                // Both have one row before either wants the other one.
                if is_first.swap(false, Ordering::Relaxed) {
                    barrier.wait().await;
                }
                transaction.execute(update, &[&names[1]]).await?;
                Ok::<_, tokio_postgres::Error>(())
            };
            store.handle_in("main", delivery, handler).await
        });
    }
    let receipts = tasks.join_all().await;

    assert_eq!(receipts, [Receipt::Handled; 2]);
    let values = "SELECT count(*) FROM counters WHERE value = 2";
    assert_eq!(number(&client, values).await, 2);
}

#[tokio::test]
async fn a_transaction_that_always_loses_is_a_503_in_the_end() {
    steady_time::begin_slow();
    let Some((database, store)) = set_up().await else {
        return;
    };
    let lose = "DO $$ BEGIN RAISE 'lost' USING ERRCODE = '40001'; END $$";
    let runs = AtomicU32::new(0);

    let receipt = store
        .handle_in("main", delivery("evt_1"), async |transaction, event| {
            runs.fetch_add(1, Ordering::Relaxed);
            apply_effect(transaction, event).await?;
            transaction.batch_execute(lose).await
        })
        .await;

    assert_eq!(receipt, Receipt::Unavailable);
    assert_eq!(runs.into_inner(), 7);
    assert_eq!(effects(&database).await, 0);
    assert!(is_new(&store, "evt_1").await);
}

#[tokio::test]
async fn a_transaction_leaves_its_connection_to_the_next_one() {
    steady_time::begin_slow();
    let Some((_database, store)) = set_up().await else {
        return;
    };
    let backends = Mutex::new(BTreeSet::<i32>::new());

    for event in ["evt_1", "evt_2", "evt_3", "evt_4", "evt_5"] {
        let handler = async |transaction: &mut Transaction<'_>, _| {
            let backend = "SELECT pg_backend_pid()";
            let row = transaction.query_one(backend, &[]).await?;
            backends.lock().unwrap().insert(row.get(0));
            Ok::<_, tokio_postgres::Error>(())
        };
        let receipt = in_time(store.handle_in("main", delivery(event), handler)).await;
        assert_eq!(receipt, Receipt::Handled);
    }

    // The store itself may use one meanwhile.
    let backends = backends.into_inner().unwrap();
    assert!(backends.len() < 5, "{backends:?}");
}

#[tokio::test]
async fn a_connection_that_broke_while_nobody_used_it_is_replaced() {
    steady_time::begin_slow();
    let Some((database, store)) = set_up().await else {
        return;
    };
    let client = postgres::client(&database.url).await;
    assert_eq!(handle(&store, "evt_1").await, Receipt::Handled);

    let close = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE application_name = 'audience inbox' AND datname = current_database()";
    client.query(close, &[]).await.unwrap();

    assert_eq!(handle(&store, "evt_2").await, Receipt::Handled);
}

#[tokio::test]
async fn a_transaction_that_takes_too_long_is_a_503_and_leaves_nothing_behind() {
    steady_time::begin_slow();
    let Some((database, store)) = set_up().await else {
        return;
    };
    let client = postgres::client(&database.url).await;

    let receipt = store
        .handle_in("main", delivery("evt_1"), async |transaction, event| {
            apply_effect(transaction, event).await?;
            steady_time::advance_soon(Duration::from_secs(10));
            transaction.batch_execute("SELECT pg_sleep(60)").await
        })
        .await;

    assert_eq!(receipt, Receipt::Unavailable);
    wait_for(&client, 0, IN_TRANSACTION).await;
    assert_eq!(handle(&store, "evt_1").await, Receipt::Handled);
    assert_eq!(effects(&database).await, 1);
}

#[tokio::test]
async fn a_delivery_that_waits_for_another_transaction_or_for_a_connection_is_a_503_in_time() {
    let Some((database, store)) = set_up().await else {
        return;
    };
    let mut client = postgres::client(&database.url).await;
    let mut transaction = client.transaction().await.unwrap();
    let event = id("evt_1");
    let claimed = store.claim_in(&mut transaction, "main", &event).await;
    assert!(claimed.unwrap());

    tokio::time::pause();
    let locked = handle(&store, "evt_1").await;
    tokio::time::resume();
    let mut in_use = Vec::new();
    for _ in 0..16 {
        in_use.push(store.pool().get().await.unwrap());
    }
    tokio::time::pause();
    let without_connection = handle(&store, "evt_2").await;
    tokio::time::resume();
    drop(in_use);
    transaction.rollback().await.unwrap();
    steady_time::begin_slow();

    assert_eq!([locked, without_connection], [Receipt::Unavailable; 2]);
    assert_eq!(handle(&store, "evt_1").await, Receipt::Handled);
    assert_eq!(handle(&store, "evt_2").await, Receipt::Handled);
}

#[tokio::test]
async fn a_delivery_whose_sender_disconnects_is_undone_and_leaves_nothing_behind() {
    steady_time::begin_slow();
    let Some((database, store)) = set_up().await else {
        return;
    };
    let client = postgres::client(&database.url).await;
    let task = tokio::spawn({
        let store = store.clone();
        async move {
            let handler = async |transaction: &mut Transaction<'_>, event: Event| {
                apply_effect(transaction, event).await?;
                transaction.batch_execute("SELECT pg_sleep(60)").await
            };
            store.handle_in("main", delivery("evt_1"), handler).await
        }
    });
    let sleeping = "SELECT count(*) FROM pg_stat_activity
        WHERE wait_event = 'PgSleep' AND datname = current_database()";
    wait_for(&client, 1, sleeping).await;

    task.abort();

    wait_for(&client, 0, IN_TRANSACTION).await;
    assert_eq!(handle(&store, "evt_1").await, Receipt::Handled);
    assert_eq!(effects(&database).await, 1);
}

#[tokio::test]
async fn a_server_that_dies_under_a_transaction_is_a_503_and_the_event_is_handled_later() {
    steady_time::begin_slow();
    let Some(server) = postgres::server().await else {
        return;
    };
    let database = server.database().await;
    let store = store(&database).await;

    let at_the_commit = store
        .handle_in("main", delivery("evt_1"), async |transaction, event| {
            apply_effect(transaction, event).await?;
            server.kill().await;
            Ok::<_, tokio_postgres::Error>(())
        })
        .await;
    let while_down = handle(&store, "evt_1").await;
    server.start().await;
    let in_the_handler = store
        .handle_in("main", delivery("evt_1"), async |transaction, event| {
            server.kill().await;
            apply_effect(transaction, event).await
        })
        .await;
    server.start().await;

    assert_eq!(
        [at_the_commit, while_down, in_the_handler],
        [Receipt::Unavailable; 3]
    );
    assert_eq!(handle(&store, "evt_1").await, Receipt::Handled);
    assert_eq!(effects(&database).await, 1);
}

#[tokio::test]
async fn a_transaction_of_a_worker_that_loses_against_another_one_is_run_again() {
    steady_time::begin_slow();
    let Some((database, store)) = set_up().await else {
        return;
    };
    let inbox = Inbox::builder(store.clone()).build().unwrap();
    assert!(inbox.accept(delivery("evt_1")).await.is_success());
    let runs = Arc::new(AtomicU32::new(0));

    let counted = Arc::clone(&runs);
    let handler = store.handler_in(&inbox, async move |transaction, event| {
        apply_effect(transaction, event).await?;
        if counted.fetch_add(1, Ordering::Relaxed) < 2 {
            let lose = "DO $$ BEGIN RAISE 'lost' USING ERRCODE = '40001'; END $$";
            transaction.batch_execute(lose).await?;
        }
        Ok::<_, tokio_postgres::Error>(())
    });
    let report = inbox.worker(handler).run_until_idle().await.unwrap();

    assert_eq!((report.handled, report.failed), (1, 0));
    assert_eq!(runs.load(Ordering::Relaxed), 3);
    assert_eq!(effects(&database).await, 1);
}

type BoxError = Box<dyn Error + Send + Sync>;

#[tokio::test]
async fn a_transaction_whose_conflict_is_behind_a_transparent_error_is_run_again() {
    steady_time::begin_slow();
    let Some((database, store)) = set_up().await else {
        return;
    };
    let lose = "DO $$ BEGIN RAISE 'lost' USING ERRCODE = '40P01'; END $$";
    let runs = AtomicU32::new(0);

    let receipt = store
        .handle_in("main", delivery("evt_1"), async |transaction, event| {
            apply_effect(transaction, event)
                .await
                .map_err(Transparent)?;
            if runs.fetch_add(1, Ordering::Relaxed) < 2 {
                transaction.batch_execute(lose).await.map_err(Transparent)?;
            }
            Ok::<_, Transparent<tokio_postgres::Error>>(())
        })
        .await;

    assert_eq!(receipt, Receipt::Handled);
    assert_eq!(runs.into_inner(), 3);
    assert_eq!(effects(&database).await, 1);
}

const PEOPLE: &str = "CREATE TABLE people (address text PRIMARY KEY, age int NOT NULL);
    INSERT INTO people VALUES ('ada@example.com', 36)";

#[tokio::test]
async fn neither_the_log_nor_a_reason_quotes_a_row_that_violates_a_constraint() {
    steady_time::begin_slow();
    let Some((database, store)) = set_up().await else {
        return;
    };
    let client = postgres::client(&database.url).await;
    client.batch_execute(PEOPLE).await.unwrap();
    let inbox = Inbox::builder(store.clone()).build().unwrap();
    let violations = [
        (
            "INSERT INTO people VALUES ('ada@example.com', 1)",
            "(SQLSTATE 23505, table people, constraint people_pkey)",
        ),
        (
            "INSERT INTO people VALUES ('ada@example.com', NULL)",
            "(SQLSTATE 23502, table people)",
        ),
    ];
    let forms: [fn(tokio_postgres::Error) -> BoxError; 5] = [
        |error| error.into(),
        |error| Transparent(error).into(),
        |error| error.into_source().unwrap(),
        |error| format!("could not store: {}", error.as_db_error().unwrap()).into(),
        |error| panic!("{error:?}"),
    ];
    let log = Log::start();

    for (form, error_of) in forms.into_iter().enumerate() {
        for (statement, names) in violations {
            let violate = async move |transaction: &mut Transaction<'_>, _: Event| {
                let violated = transaction.batch_execute(statement).await;
                violated.map_err(error_of)
            };
            let event = format!("evt_{form}_{}", statement.len());
            let receipt = store.handle_in("main", delivery(&event), violate).await;
            assert_eq!(receipt, Receipt::Failed);

            assert!(inbox.accept(delivery(&event)).await.is_success());
            let worker = inbox.worker(store.handler_in(&inbox, violate));
            let report = worker.max_attempts(1).run_until_idle().await.unwrap();
            assert_eq!(report.parked, 1);
            let reason = inbox.parked().await.unwrap().remove(0).reason;
            assert!(inbox.discard(&id(&event)).await.unwrap());

            assert!(!reason.contains("ada@"), "{reason}");
            assert!(reason.contains("people"), "{reason}");
            assert!(form > 2 || reason.ends_with(names), "{reason}");
        }
    }

    let failures = log.events();
    let failures = failures.iter().filter(|e| e.fields.contains_key("error"));
    assert!(failures.count() >= 20);
    assert!(!log.text().contains("ada@"), "{}", log.text());
}

/// A value that cannot be encoded.
#[derive(Debug)]
struct Panics;

impl ToSql for Panics {
    fn to_sql(&self, _: &Type, _: &mut BytesMut) -> Result<IsNull, BoxError> {
        panic!("a bug in an encoder")
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    tokio_postgres::types::to_sql_checked!();
}

#[tokio::test]
async fn a_panic_while_a_value_is_encoded_is_the_reason_for_the_failed_attempt() {
    steady_time::begin_slow();
    let Some((database, store)) = set_up().await else {
        return;
    };
    let inbox = Inbox::builder(store.clone()).build().unwrap();
    let encode = async |transaction: &mut Transaction<'_>, event: Event| {
        apply_effect(transaction, event).await?;
        let insert = "INSERT INTO effects VALUES ($1)";
        transaction.execute(insert, &[&Panics]).await.map(drop)
    };

    let receipt = in_time(store.handle_in("main", delivery("evt_1"), encode)).await;
    assert!(inbox.accept(delivery("evt_2")).await.is_success());
    let worker = inbox.worker(store.handler_in(&inbox, encode));
    let report = worker.max_attempts(1).run_until_idle().await.unwrap();
    let parked = inbox.parked().await.unwrap();

    assert_eq!((receipt, report.parked), (Receipt::Failed, 1));
    assert_eq!(
        parked[0].reason,
        "the handler panicked: a bug in an encoder"
    );
    assert_eq!(effects(&database).await, 0);
    assert_eq!(handle(&store, "evt_1").await, Receipt::Handled);
}

#[tokio::test]
async fn a_transaction_of_a_worker_that_takes_too_long_is_cancelled() {
    steady_time::begin_slow();
    let Some((database, store)) = set_up().await else {
        return;
    };
    let client = postgres::client(&database.url).await;
    let inbox = Inbox::builder(store.clone()).build().unwrap();
    assert!(inbox.accept(delivery("evt_1")).await.is_success());
    let handler = store.handler_in(&inbox, async |transaction, event| {
        apply_effect(transaction, event).await?;
        // The limit is 15 s. The lease is extended after 20 s.
        steady_time::advance_soon(Duration::from_secs(16));
        transaction.batch_execute("SELECT pg_sleep(60)").await
    });

    let report = inbox.worker(handler).run_until_idle().await.unwrap();

    assert_eq!((report.handled, report.failed), (0, 1));
    wait_for(&client, 0, IN_TRANSACTION).await;
    assert_eq!(effects(&database).await, 0);
}

#[tokio::test]
async fn ids_that_are_forgotten_are_deleted_without_an_inbox() {
    steady_time::begin_slow();
    let Some((database, store)) = set_up().await else {
        return;
    };
    let client = postgres::client(&database.url).await;
    let done = "INSERT INTO audience_inbox (endpoint, event_id, state, attempts, due, forget_at, purge_from)
        SELECT 'any', 'evt_' || number, 'done', 1, now(), now() - interval '1 s', now() - interval '1 s'
        FROM generate_series(1, 1200) AS number";
    client.batch_execute(done).await.unwrap();

    assert_eq!(handle(&store, "evt_new").await, Receipt::Handled);

    wait_for(&client, 1, "SELECT count(*) FROM audience_inbox").await;
    assert_eq!(handle(&store, "evt_new").await, Receipt::Duplicate);
}
