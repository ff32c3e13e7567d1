//! The store in Postgres on a pool of sqlx.

use std::collections::BTreeSet;
use std::error::Error;
use std::future::Ready;
use std::path::Path;
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use audience::inbox::conformance::Suite;
use audience::inbox::sqlx::migrate::Migrator;
use audience::inbox::sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use audience::inbox::sqlx::{self, Postgres, Transaction};
use audience::inbox::{
    ClaimState, Fingerprint, HeldClaim, InboxError, NewDelivery, Receipt, SqlxPostgresStore, Store,
    StoreError, StoreErrorKind, Take, Token,
};
use audience::webhooks::{Event, EventId, VerifiedEvent};

use super::deliveries::{Transparent, delivery, delivery_about, id, new_claim};
use super::postgres_conformance::{OUTAGE, OUTAGE_CASES, THREE_ENTRIES};
use support::postgres::{self, Database};
use support::{PATIENCE, in_time, steady_time};

const MINUTE: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(500);
const FRESH: ClaimState = ClaimState::Fresh { attempt: 1 };

async fn pool(url: &str, size: u32) -> PgPool {
    let options = PgConnectOptions::from_str(url).unwrap();
    let options = options.application_name("sqlx");
    let pool = PgPoolOptions::new()
        .max_connections(size)
        .acquire_timeout(PATIENCE);
    pool.connect_with(options).await.unwrap()
}

async fn store(url: &str) -> SqlxPostgresStore {
    let store = SqlxPostgresStore::new(pool(url, 16).await).timeout(PATIENCE);
    store.migrate().await.unwrap();
    store
}

async fn set_up() -> Option<(Database, SqlxPostgresStore)> {
    let database = postgres::database().await?;
    let store = store(&database.url).await;
    let effects = "CREATE TABLE effects (event_id text)";
    sqlx::query(effects).execute(store.pool()).await.unwrap();
    Some((database, store))
}

async fn claim(store: &SqlxPostgresStore, event: &str) -> Result<ClaimState, StoreError> {
    in_time(store.claim(new_claim(&id(event)))).await
}

async fn apply_effect(transaction: &mut Transaction<'_, Postgres>, id: &EventId) {
    let effect = sqlx::query("INSERT INTO effects VALUES ($1)").bind(id.as_str());
    effect.execute(&mut **transaction).await.unwrap();
}

async fn effects(pool: &PgPool) -> i64 {
    let count = sqlx::query_scalar("SELECT count(*) FROM effects");
    count.fetch_one(pool).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_store_passes_the_conformance_suite() {
    let (Some(database), Some(full)) = (postgres::database().await, postgres::database().await)
    else {
        return;
    };
    let small_store = store(&full.url).await;
    let admin = postgres::client(&full.url).await;
    admin.batch_execute(THREE_ENTRIES).await.unwrap();

    let report = Suite::new(store(&database.url).await)
        .also_through(store(&database.url).await)
        .filling(small_store, 3)
        .run()
        .await;

    report.assert_passed();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn receivers_with_either_driver_share_their_events() {
    let Some(database) = postgres::database().await else {
        return;
    };
    let other = postgres::connect(&database.url).await.unwrap();
    other.migrate().await.unwrap();

    let report = Suite::new(store(&database.url).await)
        .also_through(other)
        .run()
        .await;

    report.assert_passed();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_store_passes_the_suite_without_named_statements_through_a_pooler() {
    let Some(server) = postgres::server().await else {
        return;
    };
    let database = server.database().await;
    let Some(pooler) = server.pooler(&database).await else {
        return;
    };
    let connect = || async {
        // A pooler refuses the setting that sqlx would send.
        let options = PgConnectOptions::from_str(&pooler.url).unwrap();
        let pool = PgPoolOptions::new().connect_with(options.extra_float_digits(None));
        SqlxPostgresStore::new(pool.await.unwrap())
            .unnamed_statements()
            .timeout(PATIENCE)
    };
    let store = connect().await;
    store.migrate().await.unwrap();

    let report = Suite::new(store).also_through(connect().await).run().await;

    report.assert_passed();
}

#[tokio::test]
async fn without_named_statements_an_event_is_claimed_once() {
    let Some((_database, store)) = set_up().await else {
        return;
    };
    let store = store.unnamed_statements();

    let first = claim(&store, "evt_1").await.unwrap();
    let second = claim(&store, "evt_1").await.unwrap();

    assert_eq!(first, FRESH);
    assert!(
        matches!(second, ClaimState::InProgress { .. }),
        "{second:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_outage_of_the_server_loses_nothing() {
    let Some(server) = postgres::server().await else {
        return;
    };
    let database = server.database().await;
    let store = store(&database.url).await.timeout(OUTAGE);
    let to_stop = Arc::new(server);
    let to_start = Arc::clone(&to_stop);

    let report = Suite::new(store)
        .only(OUTAGE_CASES)
        .outage(
            move || {
                let server = Arc::clone(&to_stop);
                async move { server.kill().await }
            },
            move || {
                let server = Arc::clone(&to_start);
                async move { server.start().await }
            },
        )
        .run()
        .await;

    report.assert_passed();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_number_of_processes_can_migrate_simultaneously_and_again() {
    let Some(database) = postgres::database().await else {
        return;
    };
    let separator = if database.url.contains('?') {
        "%20"
    } else {
        "?options="
    };
    let serializable = "-cdefault_transaction_isolation%3Dserializable";
    let url = format!("{}{separator}{serializable}", database.url);
    let mut tasks = tokio::task::JoinSet::new();

    for _ in 0..16 {
        let store = SqlxPostgresStore::new(pool(&url, 1).await).timeout(PATIENCE);
        tasks.spawn(async move { store.migrate().await });
    }

    for result in tasks.join_all().await {
        result.unwrap();
    }
    store(&database.url).await;
}

#[tokio::test]
async fn the_migrations_of_sqlx_create_the_tables() {
    let Some(database) = postgres::database().await else {
        return;
    };
    let pool = pool(&database.url, 4).await;

    let files = Migrator::new(Path::new("../migrations/postgres")).await;
    files.unwrap().run(&pool).await.unwrap();

    let store = SqlxPostgresStore::new(pool).timeout(PATIENCE);
    assert_eq!(claim(&store, "evt_1").await.unwrap(), FRESH);
    store.migrate().await.unwrap();
}

#[tokio::test]
async fn tables_of_a_newer_version_are_left_alone() {
    let Some((_database, store)) = set_up().await else {
        return;
    };
    let newer = "UPDATE audience_inbox_schema SET version = 7";
    sqlx::query(newer).execute(store.pool()).await.unwrap();

    let refused = store.migrate().await.unwrap_err();

    let text = refused.source().unwrap().to_string();
    assert!(text.contains("version 7"), "{text}");
}

#[tokio::test]
async fn an_event_is_claimed_in_one_transaction_only() {
    let Some((_database, store)) = set_up().await else {
        return;
    };
    let event = id("evt_1");

    for expected in [true, false] {
        let mut transaction = store.pool().begin().await.unwrap();
        let claimed = store.claim_in(&mut transaction, "main", &event).await;
        let again = store.claim_in(&mut transaction, "main", &event).await;
        let elsewhere = store.claim_in(&mut transaction, "other", &event).await;
        transaction.commit().await.unwrap();

        assert_eq!(claimed.unwrap(), expected);
        assert!(!again.unwrap());
        assert_eq!(elsewhere.unwrap(), expected);
    }
    assert_eq!(claim(&store, "evt_1").await.unwrap(), ClaimState::Done);
}

#[tokio::test]
async fn a_claim_that_is_rolled_back_was_never_made() {
    let Some((_database, store)) = set_up().await else {
        return;
    };
    let event = id("evt_1");

    let mut transaction = store.pool().begin().await.unwrap();
    let mut savepoint = sqlx::Acquire::begin(&mut *transaction).await.unwrap();
    let claimed = store.claim_in(&mut savepoint, "main", &event).await;
    assert!(claimed.unwrap());
    savepoint.rollback().await.unwrap();
    let claimed = store.claim_in(&mut transaction, "main", &event).await;
    assert!(claimed.unwrap());
    drop(transaction);

    assert_eq!(claim(&store, "evt_1").await.unwrap(), FRESH);
}

#[tokio::test]
async fn a_delivery_with_another_body_or_a_claim_that_lasts_is_refused_in_a_transaction() {
    let Some((_database, store)) = set_up().await else {
        return;
    };
    claim(&store, "evt_claimed").await.unwrap();
    let mut transaction = store.pool().begin().await.unwrap();

    let first = delivery("evt_1");
    let claimed = store.claim_in(&mut transaction, "main", &first).await;
    let other = delivery_about("evt_1", "another subject");
    let conflict = store.claim_in(&mut transaction, "main", &other).await;
    let event = id("evt_claimed");
    let in_progress = store.claim_in(&mut transaction, "main", &event).await;

    assert!(claimed.unwrap());
    assert!(
        matches!(conflict, Err(InboxError::Conflict)),
        "{conflict:?}"
    );
    assert!(
        matches!(in_progress, Err(InboxError::InProgress)),
        "{in_progress:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_64_simultaneous_transactions_one_has_an_effect() {
    let Some((_database, store)) = set_up().await else {
        return;
    };
    let mut tasks = tokio::task::JoinSet::new();

    for number in 0..64 {
        let store = store.clone();
        tasks.spawn(async move {
            let mut transaction = store.pool().begin().await.unwrap();
            let event = id("evt_1");
            let claimed = store.claim_in(&mut transaction, "main", &event).await;
            if !claimed.unwrap() {
                return 0;
            }
            apply_effect(&mut transaction, &event).await;
            // Half of those who win give up.
            if number % 2 == 0 {
                return 0;
            }
            transaction.commit().await.unwrap();
            1
        });
    }
    let committed: i64 = tasks.join_all().await.into_iter().sum();

    assert_eq!(committed, 1);
    assert_eq!(effects(store.pool()).await, 1);
}

#[tokio::test]
async fn an_accepted_event_that_is_claimed_in_a_transaction_is_taken_by_no_worker() {
    let Some((_database, store)) = set_up().await else {
        return;
    };
    let event = id("evt_1");
    let key = new_claim(&event).key;
    let accepted = NewDelivery::new(key, b"body", Fingerprint::of(b"body"));
    store.accept(accepted).await.unwrap();

    let mut transaction = store.pool().begin().await.unwrap();
    let claimed = store.claim_in(&mut transaction, "main", &event).await;
    assert!(claimed.unwrap());
    transaction.commit().await.unwrap();

    let taken = store.take(Take::new("main", Token::random(), MINUTE, 10));
    assert_eq!(taken.await.unwrap().len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_race_of_serializable_transactions_is_a_temporary_error() {
    let Some((_database, store)) = set_up().await else {
        return;
    };
    let event = id("evt_1");
    let begin = "BEGIN ISOLATION LEVEL SERIALIZABLE";
    let mut first = store.pool().begin_with(begin).await.unwrap();
    let mut second = store.pool().begin_with(begin).await.unwrap();
    let look = sqlx::query("SELECT FROM effects");
    look.fetch_all(&mut *second).await.unwrap();

    assert!(store.claim_in(&mut first, "main", &event).await.unwrap());
    first.commit().await.unwrap();
    let late = store.claim_in(&mut second, "main", &event).await;

    let Err(InboxError::Store(error)) = late else {
        panic!("{late:?}");
    };
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
}

#[tokio::test]
async fn a_transaction_that_the_server_ended_because_nobody_used_it_is_a_temporary_error() {
    let Some((database, store)) = set_up().await else {
        return;
    };
    let mut idle = store.pool().begin().await.unwrap();
    let session = sqlx::query_scalar("SELECT pg_backend_pid()");
    let session: i32 = session.fetch_one(&mut *idle).await.unwrap();
    let limit = sqlx::query("SET LOCAL idle_in_transaction_session_timeout = 1");
    limit.execute(&mut *idle).await.unwrap();
    let admin = postgres::client(&database.url).await;
    let look = "SELECT FROM pg_stat_activity WHERE pid = $1";
    let end = Instant::now() + PATIENCE;
    while !admin.query(look, &[&session]).await.unwrap().is_empty() {
        assert!(Instant::now() < end, "the transaction is still open");
    }

    let late = store.claim_in(&mut idle, "main", &id("evt_1")).await;

    let Err(InboxError::Store(error)) = late else {
        panic!("{late:?}");
    };
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
}

async fn handle_in(
    store: &SqlxPostgresStore,
    delivery: VerifiedEvent,
    statement: &'static str,
) -> Receipt {
    let handled = store.handle_in("main", delivery, async |transaction, event| {
        apply_effect(transaction, &event.id).await;
        sqlx::query(statement).execute(&mut **transaction).await?;
        Ok::<_, sqlx::Error>(())
    });
    in_time(handled).await
}

#[tokio::test]
async fn handle_in_commits_the_effect_with_the_claim_or_neither() {
    steady_time::begin_slow();
    let Some((_database, store)) = set_up().await else {
        return;
    };

    let failed = handle_in(&store, delivery("evt_1"), "SELECT 1 / 0").await;
    let after_failure = effects(store.pool()).await;
    let first = handle_in(&store, delivery("evt_1"), "SELECT 1").await;
    let second = handle_in(&store, delivery("evt_1"), "SELECT 1").await;
    let other_body = delivery_about("evt_1", "another subject");
    let conflict = handle_in(&store, other_body, "SELECT 1").await;

    assert_eq!((failed, after_failure), (Receipt::Failed, 0));
    assert_eq!((first, second), (Receipt::Handled, Receipt::Duplicate));
    assert_eq!(conflict, Receipt::Conflict);
    assert_eq!(effects(store.pool()).await, 1);
}

/// A handler that panics before it has returned its future.
fn panics_early(_: &mut Transaction<'_, Postgres>, _: Event) -> Ready<Result<(), sqlx::Error>> {
    panic!("on purpose")
}

#[tokio::test]
async fn a_handler_that_panics_or_hides_the_failure_of_a_statement_has_no_effect() {
    steady_time::begin_slow();
    let Some((_database, store)) = set_up().await else {
        return;
    };

    let panicked = store.handle_in("main", delivery("evt_1"), async |transaction, event| {
        apply_effect(transaction, &event.id).await;
        if event.id.as_str() == "evt_1" {
            panic!("on purpose");
        }
        Ok::<_, sqlx::Error>(())
    });
    let panicked = in_time(panicked).await;
    let early = in_time(store.handle_in("main", delivery("evt_1"), panics_early)).await;
    let hidden = store.handle_in("main", delivery("evt_1"), async |transaction, event| {
        apply_effect(transaction, &event.id).await;
        let _ = sqlx::query("SELECT 1 / 0")
            .execute(&mut **transaction)
            .await;
        Ok::<_, sqlx::Error>(())
    });
    let hidden = in_time(hidden).await;

    assert_eq!([panicked, early, hidden], [Receipt::Failed; 3]);
    assert_eq!(effects(store.pool()).await, 0);
    let state = claim(&store, "evt_1").await.unwrap();
    assert_eq!(state, FRESH);
}

#[tokio::test]
async fn a_transaction_whose_conflict_is_behind_a_transparent_error_is_run_again() {
    steady_time::begin_slow();
    let Some((_database, store)) = set_up().await else {
        return;
    };
    let runs = AtomicU32::new(0);

    let receipt = store.handle_in("main", delivery("evt_1"), async |transaction, _| {
        if runs.fetch_add(1, Ordering::Relaxed) < 2 {
            let lose = "DO $$ BEGIN RAISE EXCEPTION 'lost' USING ERRCODE = '40P01'; END $$";
            let lost = sqlx::query(lose).execute(&mut **transaction).await;
            lost.map_err(Transparent)?;
        }
        Ok::<_, Transparent<sqlx::Error>>(())
    });
    let receipt = in_time(receipt).await;

    assert_eq!(receipt, Receipt::Handled);
    assert_eq!(runs.into_inner(), 3);
}

#[tokio::test]
async fn a_transaction_that_loses_against_another_one_is_run_again() {
    steady_time::begin_slow();
    let Some((_database, store)) = set_up().await else {
        return;
    };
    let runs = Arc::new(AtomicU32::new(0));

    let counted = Arc::clone(&runs);
    let receipt = store.handle_in(
        "main",
        delivery("evt_1"),
        async move |transaction, event| {
            apply_effect(transaction, &event.id).await;
            if counted.fetch_add(1, Ordering::Relaxed) < 2 {
                let lose = "DO $$ BEGIN RAISE EXCEPTION 'lost' USING ERRCODE = '40001'; END $$";
                sqlx::query(lose).execute(&mut **transaction).await?;
            }
            Ok::<_, sqlx::Error>(())
        },
    );
    let receipt = in_time(receipt).await;

    assert_eq!(receipt, Receipt::Handled);
    assert_eq!(runs.load(Ordering::Relaxed), 3);
    assert_eq!(effects(store.pool()).await, 1);
}

#[tokio::test]
async fn a_transaction_leaves_its_connection_to_the_next_one() {
    steady_time::begin_slow();
    let Some((_database, store)) = set_up().await else {
        return;
    };
    let backends = Mutex::new(BTreeSet::<i32>::new());

    for event in ["evt_1", "evt_2", "evt_3", "evt_4", "evt_5"] {
        let receipt = store.handle_in("main", delivery(event), async |transaction, _| {
            let backend = sqlx::query_scalar("SELECT pg_backend_pid()");
            let backend = backend.fetch_one(&mut **transaction).await?;
            backends.lock().unwrap().insert(backend);
            Ok::<_, sqlx::Error>(())
        });
        let receipt = in_time(receipt).await;
        assert_eq!(receipt, Receipt::Handled);
    }

    // The store itself may use one meanwhile.
    let backends = backends.into_inner().unwrap();
    assert!(backends.len() < 5, "{backends:?}");
}

#[tokio::test]
async fn a_receiver_that_goes_away_leaves_no_effect_and_no_connection_in_use() {
    steady_time::begin_slow();
    let Some((_database, store)) = set_up().await else {
        return;
    };

    for _ in 0..40 {
        let handled = store.handle_in("main", delivery("evt_1"), async |transaction, event| {
            apply_effect(transaction, &event.id).await;
            std::future::pending::<()>().await;
            Ok::<_, sqlx::Error>(())
        });
        // By the slow clock, in which the effect is applied on most machines.
        let handled = tokio::time::timeout(Duration::from_millis(2), handled);
        let ended: Result<Receipt, _> = handled.await;
        assert!(ended.is_err());
    }

    assert_eq!(effects(store.pool()).await, 0);
    let receipt = handle_in(&store, delivery("evt_1"), "SELECT 1").await;
    assert_eq!(receipt, Receipt::Handled);
}

#[tokio::test]
async fn a_call_that_is_blocked_ends_in_time_and_does_not_block_the_next_ones() {
    let Some((_database, store)) = set_up().await else {
        return;
    };
    let store = store.timeout(SHORT);
    let event = id("evt_1");
    let mut lock = store.pool().begin().await.unwrap();
    assert!(store.claim_in(&mut lock, "main", &event).await.unwrap());

    let blocked = claim(&store, "evt_1").await.unwrap_err();
    let dropped = tokio::time::timeout(SHORT / 4, claim(&store, "evt_1")).await;
    let next = claim(&store.timeout(PATIENCE), "evt_2").await;

    assert_eq!(blocked.kind(), StoreErrorKind::Unavailable);
    let text = format!("{blocked:?}");
    assert!(text.contains("500"), "{text}");
    // On a slow machine, the call has timed out, too.
    assert!(!matches!(dropped, Ok(Ok(_))), "{dropped:?}");
    assert_eq!(next.unwrap(), FRESH);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_lock_there_are_no_more_connections_than_the_pool_may_have_and_then_it_recovers() {
    const POOL: u32 = 3;

    let Some((database, _)) = set_up().await else {
        return;
    };
    let options = PgConnectOptions::from_str(&database.url).unwrap();
    let options = options
        .application_name("small pool")
        .options([("statement_timeout", "1500")]);
    let pool = PgPoolOptions::new().max_connections(POOL);
    let pool = pool.connect_with(options).await.unwrap();
    let store = SqlxPostgresStore::new(pool).timeout(SHORT / 2);
    let mut other = postgres::client(&database.url).await;
    let admin = postgres::client(&database.url).await;
    let count = "SELECT count(*) FROM pg_stat_activity
        WHERE application_name = 'small pool' AND datname = current_database()
            AND wait_event_type = 'Lock'";

    let lock = other.transaction().await.unwrap();
    lock.batch_execute("LOCK TABLE audience_inbox IN ACCESS EXCLUSIVE MODE")
        .await
        .unwrap();
    let mut calls = tokio::task::JoinSet::new();
    let (mut most, mut number) = (0_i64, 0);
    let end = Instant::now() + PATIENCE;
    // On a slow machine, it takes more calls until all connections are open.
    while number < 40 || (most < i64::from(POOL) && Instant::now() < end) {
        let store = store.clone();
        calls.spawn(async move { claim(&store, &format!("evt_{number}")).await });
        number += 1;
        tokio::time::sleep(SHORT / 10).await;
        most = most.max(admin.query_one(count, &[]).await.unwrap().get(0));
    }
    let results = calls.join_all().await;
    // The server gives up the last statements.
    tokio::time::sleep(SHORT * 4).await;
    let end = Instant::now() + PATIENCE;
    while admin.query_one(count, &[]).await.unwrap().get::<_, i64>(0) > 0 {
        assert!(Instant::now() < end, "statements still wait");
        tokio::time::sleep(SHORT / 10).await;
    }
    lock.rollback().await.unwrap();

    assert!(results.iter().all(Result::is_err));
    assert_eq!(most, i64::from(POOL));
    let store = store.timeout(PATIENCE);
    for number in 0..40 {
        // On a slow machine, the server may read a statement of a call that has ended only now.
        let next = claim(&store, &format!("evt_after_{number}")).await;
        assert_eq!(next.unwrap(), FRESH);
    }
}

#[tokio::test]
async fn a_call_whose_connections_were_all_closed_succeeds_on_a_new_one() {
    let Some((database, store)) = set_up().await else {
        return;
    };
    let admin = postgres::client(&database.url).await;
    let close = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE application_name = 'sqlx' AND datname = current_database()";
    let open = "SELECT FROM pg_stat_activity
        WHERE application_name = 'sqlx' AND datname = current_database()";

    for event in ["evt_1", "evt_2", "evt_3"] {
        let closed = admin.query(close, &[]).await.unwrap();
        assert!(!closed.is_empty(), "{event}");
        // A connection ends a moment later.
        let end = Instant::now() + PATIENCE;
        while !admin.query(open, &[]).await.unwrap().is_empty() {
            assert!(Instant::now() < end, "connections stay open");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }

        assert_eq!(claim(&store, event).await.unwrap(), FRESH);
    }
}

#[tokio::test]
async fn a_call_whose_connection_dies_while_it_runs_is_repeated() {
    let Some((database, store)) = set_up().await else {
        return;
    };
    let event = id("evt_1");
    let mut lock = store.pool().begin().await.unwrap();
    assert!(store.claim_in(&mut lock, "main", &event).await.unwrap());
    let claiming = tokio::spawn({
        let store = store.clone();
        async move { claim(&store, "evt_1").await }
    });
    let admin = postgres::client(&database.url).await;
    let close = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE application_name = 'sqlx' AND wait_event_type = 'Lock' AND datname = current_database()";
    let end = Instant::now() + PATIENCE;
    while admin.query(close, &[]).await.unwrap().is_empty() {
        assert!(Instant::now() < end, "the claim does not wait");
    }

    lock.rollback().await.unwrap();

    assert_eq!(claiming.await.unwrap().unwrap(), FRESH);
}

#[tokio::test]
async fn a_restart_of_the_server_needs_no_restart_of_the_receiver() {
    let Some(server) = postgres::server().await else {
        return;
    };
    let database = server.database().await;
    let store = store(&database.url).await;
    let event = id("evt_1");
    let first = new_claim(&event);
    let held = HeldClaim::new(first.key, first.token);
    store.claim(first).await.unwrap();

    server.stop().await;
    let hasty = store.clone().timeout(Duration::from_secs(10));
    let down = claim(&hasty, "evt_2").await.unwrap_err();
    server.start().await;

    assert_eq!(down.kind(), StoreErrorKind::Unavailable);
    assert!(store.complete(held, MINUTE).await.unwrap());
    assert_eq!(claim(&store, "evt_2").await.unwrap(), FRESH);
}

#[tokio::test]
async fn a_table_that_changed_under_a_prepared_statement_is_no_error() {
    let Some((database, _)) = set_up().await else {
        return;
    };
    // The retry has no other connection whose statements are good.
    let store = SqlxPostgresStore::new(pool(&database.url, 1).await).timeout(PATIENCE);
    let admin = postgres::client(&database.url).await;
    assert!(store.parked("main", None, 10).await.unwrap().is_empty());
    assert_eq!(claim(&store, "evt_1").await.unwrap(), FRESH);

    let change = "ALTER TABLE audience_inbox ALTER COLUMN reason TYPE varchar";
    admin.batch_execute(change).await.unwrap();

    assert!(store.parked("main", None, 10).await.unwrap().is_empty());
    assert_eq!(claim(&store, "evt_2").await.unwrap(), FRESH);
}

#[tokio::test]
async fn a_user_that_does_not_exist_makes_the_store_unusable() {
    let Some(server) = postgres::server().await else {
        return;
    };
    let url = server.database().await.url.clone();
    let stranger = url.replace("audience@", "stranger@");
    let stranger = PgPoolOptions::new().connect_lazy(&stranger).unwrap();

    let unknown = SqlxPostgresStore::new(stranger).migrate().await;

    assert_eq!(unknown.unwrap_err().kind(), StoreErrorKind::Unusable);
}

#[tokio::test]
async fn without_its_tables_a_store_is_unusable() {
    let Some(database) = postgres::database().await else {
        return;
    };
    let store = SqlxPostgresStore::new(pool(&database.url, 1).await).timeout(PATIENCE);

    let missing = claim(&store, "evt_1").await.unwrap_err();

    assert_eq!(missing.kind(), StoreErrorKind::Unusable);
    let text = format!("{:?} {}", missing, Error::source(&missing).unwrap());
    assert!(text.contains("call `migrate`"), "{text}");
}
