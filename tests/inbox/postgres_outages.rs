//! What a caller sees when the database fails.

use std::error::Error;
use std::pin::pin;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use audience::inbox::deadpool_postgres::tokio_postgres::{
    self, Client, Config, NoTls, Transaction,
};
use audience::inbox::deadpool_postgres::{Manager, Pool};
use audience::inbox::sqlx::{self, PgPool};
use audience::inbox::{
    AcceptState, ClaimState, EventKey, Fingerprint, HeldClaim, Inbox, NewClaim, NewDelivery,
    PostgresStore, Receipt, SqlxPostgresStore, Store, StoreError, StoreErrorKind, Take, Token,
};
use tokio::net::TcpListener;
use tracing::Level;

use super::deliveries::{delivery, id, new_claim};
use super::lossy_proxy::LossyProxy;
use support::postgres::{self, Database};
use support::trace_log::{Entry, Log};
use support::{PATIENCE, closed_url, in_time, steady_time};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const SHORT: Duration = Duration::from_millis(500);

async fn set_up() -> Option<(Database, PostgresStore)> {
    let database = postgres::database().await?;
    let store = postgres::connect(&database.url).await.unwrap();
    store.migrate().await.unwrap();
    Some((database, store))
}

async fn claim(store: &PostgresStore, event: &str) -> Result<ClaimState, StoreError> {
    in_time(store.claim(new_claim(&id(event)))).await
}

/// Everything a log could show of an error.
fn printed(error: &StoreError) -> String {
    let mut text = format!("{error} {error:?}");
    let mut source = error.source();
    while let Some(error) = source {
        text += &format!(" {error} {error:?}");
        source = error.source();
    }
    text
}

const FRESH: ClaimState = ClaimState::Fresh { attempt: 1 };

/// Returns a transaction that has claimed `evt_1`. Until it ends, other claims wait.
async fn claimed_in<'t>(client: &'t mut Client, store: &PostgresStore) -> Transaction<'t> {
    let mut transaction = client.transaction().await.unwrap();
    let event = id("evt_1");
    let claimed = store.claim_in(&mut transaction, "main", &event).await;
    assert!(claimed.unwrap());
    transaction
}

fn pool(url: &str, size: usize) -> Pool {
    let mut config: Config = url.parse().unwrap();
    config.application_name("audience inbox");
    let pool = Pool::builder(Manager::new(config, NoTls)).max_size(size);
    pool.build().unwrap()
}

#[tokio::test]
async fn a_call_whose_connections_were_all_closed_succeeds_on_a_new_one() {
    let Some((database, store)) = set_up().await else {
        return;
    };
    let admin = postgres::client(&database.url).await;
    let close = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE application_name = 'audience inbox' AND datname = current_database()";
    let count = "SELECT count(*) FROM pg_stat_activity
        WHERE application_name = 'audience inbox' AND datname = current_database()";

    for event in ["evt_1", "evt_2", "evt_3"] {
        let closed = admin.query(close, &[]).await.unwrap();
        assert_eq!(closed.len(), 1, "{event}");
        // A connection is still listed for a moment.
        wait_until_closed(&admin, count).await;

        assert_eq!(claim(&store, event).await.unwrap(), FRESH);
    }
}

#[tokio::test]
async fn a_call_whose_connection_dies_while_it_runs_is_repeated() {
    let Some((database, store)) = set_up().await else {
        return;
    };
    let mut other = postgres::client(&database.url).await;
    let transaction = claimed_in(&mut other, &store).await;
    let claiming = tokio::spawn({
        let store = store.clone();
        async move { claim(&store, "evt_1").await }
    });
    let admin = postgres::client(&database.url).await;
    let close = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE application_name = 'audience inbox' AND wait_event_type = 'Lock' AND datname = current_database()";
    let end = Instant::now() + PATIENCE;
    while admin.query(close, &[]).await.unwrap().is_empty() {
        assert!(Instant::now() < end, "the claim does not wait");
    }

    transaction.rollback().await.unwrap();

    assert_eq!(claiming.await.unwrap().unwrap(), FRESH);
}

#[tokio::test]
async fn a_claim_that_waited_for_another_transaction_has_its_whole_lease() {
    let Some((database, store)) = set_up().await else {
        return;
    };
    let mut other = postgres::client(&database.url).await;
    let transaction = claimed_in(&mut other, &store).await;
    let claiming = tokio::spawn({
        let store = store.clone();
        async move {
            let event = id("evt_1");
            let mut claim = new_claim(&event);
            claim.lease = Duration::from_secs(2);
            store.claim(claim).await
        }
    });
    let admin = postgres::client(&database.url).await;
    let waiting = "SELECT FROM pg_stat_activity
        WHERE application_name = 'audience inbox' AND wait_event_type = 'Lock' AND datname = current_database()";
    let end = Instant::now() + PATIENCE;
    while admin.query(waiting, &[]).await.unwrap().is_empty() {
        assert!(Instant::now() < end, "the claim does not wait");
    }
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    let now = admin.query_one("SELECT clock_timestamp()::text", &[]).await;
    let released: String = now.unwrap().get(0);
    transaction.rollback().await.unwrap();

    let claimed = claiming.await.unwrap();
    // On a slow machine, the lease may have ended by now.
    let has_whole_lease =
        format!("SELECT due >= '{released}'::timestamptz + interval '2 s' FROM audience_inbox");
    let has_whole_lease = admin.query_one(&has_whole_lease, &[]).await.unwrap();

    assert_eq!(claimed.unwrap(), FRESH);
    assert!(has_whole_lease.get::<_, bool>(0));
}

#[tokio::test]
async fn a_call_that_is_blocked_ends_in_time_and_does_not_block_the_next_ones() {
    let Some((database, _)) = set_up().await else {
        return;
    };
    let store = PostgresStore::builder().timeout(SHORT);
    let store = postgres::connect_with_short_timeout(&store, &database.url).await;
    let mut other = postgres::client(&database.url).await;
    let _lock = claimed_in(&mut other, &store).await;

    let blocked = claim(&store, "evt_1").await.unwrap_err();
    let dropped = tokio::time::timeout(SHORT / 4, claim(&store, "evt_1")).await;
    let next = claim_patiently(&store, "evt_2").await;

    assert_eq!(blocked.kind(), StoreErrorKind::Unavailable);
    assert!(printed(&blocked).contains("within 500 ms"), "{blocked:?}");
    // On a slow machine, the call has timed out, too.
    assert!(!matches!(dropped, Ok(Ok(_))), "{dropped:?}");
    assert_eq!(next, FRESH);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_lock_that_lasts_there_are_no_more_connections_than_the_pool_may_have() {
    const POOL: usize = 3;

    let Some((database, _)) = set_up().await else {
        return;
    };
    let store = PostgresStore::builder()
        .timeout(SHORT / 2)
        .max_connections(POOL);
    let own_pool = store.clone().build(pool(&database.url, POOL));
    let connected = postgres::connect_with_short_timeout(&store, &database.url).await;
    let mut other = postgres::client(&database.url).await;
    let admin = postgres::client(&database.url).await;
    let count = "SELECT count(*) FROM pg_stat_activity
        WHERE application_name = 'audience inbox' AND datname = current_database()";
    // Not the others: a connection whose call ended while it was opened is still listed for a moment.
    let waiting = format!("{count} AND wait_event_type = 'Lock'");

    for store in [connected, own_pool] {
        let lock = other.transaction().await.unwrap();
        lock.batch_execute("LOCK TABLE audience_inbox IN ACCESS EXCLUSIVE MODE")
            .await
            .unwrap();
        let mut calls = tokio::task::JoinSet::new();
        let (mut most, mut number) = (0, 0);
        let end = Instant::now() + PATIENCE;
        // On a slow machine, it takes more calls until all connections are open.
        while number < 40 || (most < i64::try_from(POOL).unwrap() && Instant::now() < end) {
            let store = store.clone();
            calls.spawn(async move { claim(&store, &format!("evt_{number}")).await });
            number += 1;
            tokio::time::sleep(SHORT / 10).await;
            most = most.max(admin.query_one(&waiting, &[]).await.unwrap().get(0));
        }
        let results = calls.join_all().await;
        lock.rollback().await.unwrap();

        assert!(results.iter().all(Result::is_err));
        assert_eq!(most, i64::try_from(POOL).unwrap());
        claim_patiently(&store, "evt_after").await;
        store.pool().close();
        drop(store);
        wait_until_closed(&admin, count).await;
        admin
            .batch_execute("TRUNCATE audience_inbox")
            .await
            .unwrap();
    }
}

/// Claims an event on the connections of this store, also on a slow machine. The server itself may give up a statement
/// on them soon.
async fn claim_patiently(store: &PostgresStore, event: &str) -> ClaimState {
    let patient = PostgresStore::builder().timeout(PATIENCE);
    let patient = patient.build(store.pool().clone());
    let end = Instant::now() + PATIENCE;
    loop {
        match claim(&patient, event).await {
            Ok(state) => return state,
            Err(error) => assert!(Instant::now() < end, "{error:?}"),
        }
    }
}

async fn wait_until_closed(admin: &Client, count: &str) {
    let end = Instant::now() + PATIENCE;
    while admin.query_one(count, &[]).await.unwrap().get::<_, i64>(0) > 0 {
        assert!(Instant::now() < end, "connections stay open");
        tokio::time::sleep(SHORT / 10).await;
    }
}

#[tokio::test]
async fn connections_that_the_store_opens_give_up_by_themselves() {
    let Some((database, _)) = set_up().await else {
        return;
    };
    // So long that the statements of this test end before.
    let store = PostgresStore::builder().timeout(Duration::from_millis(60_500));
    let store = store.connect(&database.url).await.unwrap();
    let limits =
        "SELECT current_setting('statement_timeout') || ' ' || current_setting('lock_timeout')";

    let client = store.pool().get().await.unwrap();
    let limits: String = client.query_one(limits, &[]).await.unwrap().get(0);

    assert_eq!(limits, "61500ms 61500ms");
    store.migrate().await.unwrap();
}

#[tokio::test]
async fn a_restart_of_the_server_needs_no_restart_of_the_receiver() {
    let Some(server) = postgres::server().await else {
        return;
    };
    let database = server.database().await;
    let store = PostgresStore::builder().timeout(PATIENCE);
    let store = store.connect(&database.url).await.unwrap();
    store.migrate().await.unwrap();
    let event = id("evt_1");
    let first = new_claim(&event);
    let held = HeldClaim::new(first.key, first.token);
    store.claim(first).await.unwrap();

    server.stop().await;
    let down = claim(&store, "evt_2").await.unwrap_err();
    server.start().await;

    assert_eq!(down.kind(), StoreErrorKind::Unavailable);
    assert!(store.complete(held, MINUTE).await.unwrap());
    assert_eq!(claim(&store, "evt_2").await.unwrap(), FRESH);
}

const READ_ONLY: &str = "ALTER ROLE CURRENT_USER SET default_transaction_read_only = on";
const READ_WRITE: &str = "ALTER ROLE CURRENT_USER RESET default_transaction_read_only";

async fn accept(store: &impl Store, event: &str) -> Result<AcceptState, StoreError> {
    let (id, body) = (id(event), b"{}");
    let key = EventKey::new("main", &id);
    in_time(store.accept(NewDelivery::new(key, body, Fingerprint::of(body)))).await
}

#[tokio::test]
async fn a_connection_that_a_failover_left_to_a_server_that_only_reads_is_replaced() {
    steady_time::begin_slow();
    let Some(server) = postgres::server().await else {
        return;
    };
    let database = server.database().await;
    let url = &database.url;
    let owner = postgres::connect(url).await.unwrap();
    owner.migrate().await.unwrap();
    let admin = postgres::client(url).await;
    admin.batch_execute(READ_ONLY).await.unwrap();
    let accepting = postgres::connect(url).await.unwrap();
    let handling = postgres::connect(url).await.unwrap();
    let pool = PgPool::connect(url).await.unwrap();
    let sqlx_accepting = SqlxPostgresStore::new(pool).timeout(PATIENCE);
    let pool = PgPool::connect(url).await.unwrap();
    let sqlx_handling = SqlxPostgresStore::new(pool).timeout(PATIENCE);
    let handle = async |event| {
        let nothing = async |_: &mut Transaction<'_>, _| Ok::<_, String>(());
        in_time(handling.handle_in("main", delivery(event), nothing)).await
    };
    let handle_with_sqlx = async |event| {
        let nothing = async |_: &mut sqlx::Transaction<'_, sqlx::Postgres>, _| Ok::<_, String>(());
        in_time(sqlx_handling.handle_in("main", delivery(event), nothing)).await
    };

    let refused = [
        accept(&accepting, "evt_1").await,
        accept(&sqlx_accepting, "evt_2").await,
    ];
    let unavailable = [handle("evt_3").await, handle_with_sqlx("evt_4").await];
    admin.batch_execute(READ_WRITE).await.unwrap();
    let accepted = [
        accept(&accepting, "evt_1").await,
        accept(&sqlx_accepting, "evt_2").await,
    ];
    let handled = [handle("evt_3").await, handle_with_sqlx("evt_4").await];

    for refused in refused {
        assert_eq!(refused.unwrap_err().kind(), StoreErrorKind::Unavailable);
    }
    assert_eq!(unavailable, [Receipt::Unavailable; 2]);
    for accepted in accepted {
        assert_eq!(accepted.unwrap(), AcceptState::Accepted);
    }
    assert_eq!(handled, [Receipt::Handled; 2]);
}

#[tokio::test]
async fn a_transaction_whose_handler_finds_a_server_that_only_reads_is_run_on_another_connection() {
    steady_time::begin_slow();
    let Some((database, store)) = set_up().await else {
        return;
    };
    let with_sqlx = SqlxPostgresStore::new(PgPool::connect(&database.url).await.unwrap());
    let refuse =
        "DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = 'read_only_sql_transaction'; END $$";
    let backend = "SELECT pg_backend_pid()";
    let backends = Mutex::new(Vec::<i32>::new());
    let is_first = |pid| {
        let mut backends = backends.lock().unwrap();
        backends.push(pid);
        backends.len() % 2 == 1
    };

    let handler = async |transaction: &mut Transaction<'_>, _| {
        if is_first(transaction.query_one(backend, &[]).await?.get(0)) {
            transaction.batch_execute(refuse).await?;
        }
        Ok::<_, tokio_postgres::Error>(())
    };
    let receipt = in_time(store.handle_in("main", delivery("evt_1"), handler)).await;
    let handler = async |transaction: &mut sqlx::Transaction<'_, sqlx::Postgres>, _| {
        let pid = sqlx::query_scalar(backend).fetch_one(&mut **transaction);
        if is_first(pid.await?) {
            sqlx::query(refuse).execute(&mut **transaction).await?;
        }
        Ok::<_, sqlx::Error>(())
    };
    let sqlx_receipt = in_time(with_sqlx.handle_in("main", delivery("evt_2"), handler)).await;

    assert_eq!([receipt, sqlx_receipt], [Receipt::Handled; 2]);
    let mut backends = backends.into_inner().unwrap();
    backends.dedup();
    assert_eq!(backends.len(), 4, "{backends:?}");
}

#[tokio::test]
async fn a_store_that_connects_lazily_works_as_soon_as_the_server_does() {
    let Some(server) = postgres::server().await else {
        return;
    };
    let database = server.database().await;
    server.stop().await;

    let store = PostgresStore::builder().timeout(PATIENCE);
    let store = store.connect_lazy(&database.url).unwrap();
    let down = claim(&store, "evt_1").await.unwrap_err();
    let not_migrated = in_time(store.migrate()).await.unwrap_err();
    server.start().await;
    let without_tables = claim(&store, "evt_1").await.unwrap_err();
    in_time(store.migrate()).await.unwrap();

    assert_eq!(down.kind(), StoreErrorKind::Unavailable);
    assert_eq!(not_migrated.kind(), StoreErrorKind::Unavailable);
    assert_eq!(without_tables.kind(), StoreErrorKind::Unusable);
    assert_eq!(claim(&store, "evt_1").await.unwrap(), FRESH);
}

#[tokio::test]
async fn tables_are_created_as_soon_as_the_database_responds_and_a_role_that_may_not_ends_the_attempts()
 {
    let Some(server) = postgres::server().await else {
        return;
    };
    let database = server.database().await;
    server.stop().await;
    let native = PostgresStore::builder().timeout(PATIENCE);
    let native = native.connect_lazy(&database.url).unwrap();
    let sqlx = SqlxPostgresStore::new(PgPool::connect_lazy(&database.url).unwrap());
    let stranger = database.url.replace("audience@", "stranger@");
    let stranger = PostgresStore::connect_lazy(&stranger).unwrap();

    let log = Log::start();
    let mut tables = pin!(async {
        tokio::join!(
            native.migrate_when_available(),
            sqlx.migrate_when_available(),
            stranger.migrate_when_available(),
        )
    });
    let early = tokio::time::timeout(Duration::from_secs(3), &mut tables).await;
    server.start().await;
    let (native_done, sqlx_done, stranger_done) = in_time(tables).await;

    assert!(early.is_err());
    let is_migration = |line: &Entry| line.fields["operation"] == "migrate";
    let lines = log.events().into_iter().filter(is_migration);
    let messages: Vec<_> = lines.map(|line| line.fields["message"].clone()).collect();
    for expected in ["inbox store failed", "inbox store works again"] {
        assert!(messages.iter().any(|message| message == expected));
    }
    // That of the stranger does not.
    let works = messages.iter().filter(|message| message.contains("works"));
    assert!(works.count() <= 2, "{messages:?}");
    native_done.unwrap();
    sqlx_done.unwrap();
    assert_eq!(stranger_done.unwrap_err().kind(), StoreErrorKind::Unusable);
    assert_eq!(claim(&native, "evt_1").await.unwrap(), FRESH);
}

#[tokio::test]
async fn tables_that_do_not_exist_yet_are_logged_as_a_warning_and_as_an_error_a_minute_later() {
    steady_time::begin_slow();
    let Some(database) = postgres::database().await else {
        return;
    };
    let native = PostgresStore::builder().timeout(PATIENCE);
    let native = native.connect_lazy(&database.url).unwrap();
    let sqlx = SqlxPostgresStore::new(PgPool::connect_lazy(&database.url).unwrap());
    let sqlx = sqlx.timeout(PATIENCE);
    let inboxes = [
        Inbox::builder(native.clone()).build().unwrap(),
        Inbox::builder(sqlx).build().unwrap(),
    ];

    for inbox in &inboxes {
        let log = Log::start();
        in_time(inbox.backlog()).await.unwrap_err();
        tokio::time::advance(MINUTE).await;
        in_time(inbox.backlog()).await.unwrap_err();

        let lines = log.events().into_iter();
        let failures = lines.filter(|line| line.fields["message"] == "inbox store failed");
        let levels: Vec<_> = failures.map(|line| line.level).collect();
        assert_eq!(levels, [Level::WARN, Level::ERROR]);
    }

    in_time(native.migrate()).await.unwrap();
    for inbox in &inboxes {
        assert_eq!(in_time(inbox.backlog()).await.unwrap().waiting, 0);
    }
}

#[tokio::test]
async fn a_worker_that_finds_no_tables_waits_for_those_that_its_store_is_creating() {
    let Some(database) = postgres::database().await else {
        return;
    };
    let admin = postgres::client(&database.url).await;
    let native = PostgresStore::builder().timeout(PATIENCE);
    let native = native.connect_lazy(&database.url).unwrap();
    let pool = sqlx::postgres::PgPoolOptions::new().acquire_timeout(PATIENCE);
    let sqlx = SqlxPostgresStore::new(pool.connect_lazy(&database.url).unwrap());
    let sqlx = sqlx.timeout(PATIENCE);
    let inboxes = [
        Inbox::builder(native.clone()).build().unwrap(),
        Inbox::builder(sqlx.clone()).build().unwrap(),
    ];
    let worker = |inbox: &Inbox| inbox.worker(|_, _| async { Ok::<_, String>(()) });
    // Another process creates the tables just now.
    let lock = "SELECT pg_advisory_lock(6016405391421163)";
    admin.batch_execute(lock).await.unwrap();

    let log = Log::start();
    let mut started = pin!(async {
        tokio::join!(
            native.migrate_when_available(),
            sqlx.migrate_when_available(),
            worker(&inboxes[0]).run_until_idle(),
            worker(&inboxes[1]).run_until_idle(),
        )
    });
    let early = tokio::time::timeout(Duration::from_secs(1), &mut started).await;
    let unlock = "SELECT pg_advisory_unlock(6016405391421163)";
    admin.batch_execute(unlock).await.unwrap();
    let (native_done, sqlx_done, first, second) = in_time(started).await;

    assert!(early.is_err());
    native_done.unwrap();
    sqlx_done.unwrap();
    first.unwrap();
    second.unwrap();
    for inbox in &inboxes {
        assert_eq!(inbox.metrics().store_errors, 0);
    }
    let operations = operations(&log);
    assert!(!operations.contains(&"take".to_owned()), "{operations:?}");
}

/// The address of a database that is down.
fn down() -> String {
    closed_url().replace("http://", "postgres://audience@") + "/shop"
}

#[tokio::test(start_paused = true)]
async fn while_the_database_is_down_a_migration_is_repeated_and_logged_each_minute() {
    let native = PostgresStore::connect_lazy(&down()).unwrap();
    let sqlx = SqlxPostgresStore::new(PgPool::connect_lazy(&down()).unwrap());

    let log = Log::start();
    let (native, sqlx) = tokio::join!(
        tokio::time::timeout(10 * MINUTE, native.migrate_when_available()),
        tokio::time::timeout(10 * MINUTE, sqlx.migrate_when_available()),
    );

    assert!(native.is_err() && sqlx.is_err());
    let lines = operations(&log);
    // Of two stores: the first failure, and then at most one a minute.
    assert!((10..=22).contains(&lines.len()), "{lines:?}");
    assert!(lines.iter().all(|operation| operation == "migrate"));
}

/// The operations in the lines about failures of a store.
fn operations(log: &Log) -> Vec<String> {
    let lines = log.events().into_iter();
    let failures = lines.filter(|line| line.fields["message"] == "inbox store failed");
    failures
        .map(|line| line.fields["operation"].clone())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_worker_without_a_database_does_not_say_that_it_could_not_complete_events() {
    let store = PostgresStore::connect_lazy(&down()).unwrap();
    let inbox = Inbox::builder(store).build().unwrap();

    let log = Log::start();
    let worker = inbox.worker(|_, _| async { Ok::<_, String>(()) });
    let shutdown = tokio::time::sleep(MINUTE);
    worker.run_until(shutdown).await.unwrap();

    let operations = operations(&log);
    let has = |name: &str| operations.iter().any(|operation| operation == name);
    assert!(has("take") && !has("complete"), "{operations:?}");
}

#[tokio::test]
async fn a_probe_fails_if_the_database_is_down_or_allows_no_writes() {
    steady_time::begin_slow();
    let Some((database, store)) = set_up().await else {
        return;
    };
    let inbox = Inbox::builder(store).build().unwrap();
    let read_only = format!(
        "{}?options=-c%20default_transaction_read_only%3Don",
        database.url
    );
    let read_only = postgres::connect(&read_only).await.unwrap();
    let read_only = Inbox::builder(read_only).build().unwrap();
    let down = closed_url().replace("http://", "postgres://inbox@");
    let down = PostgresStore::connect_lazy(&down).unwrap();
    let down = Inbox::builder(down).build().unwrap();

    // On a busy machine, a response may be late.
    in_time(async { while inbox.ready().await.is_err() {} }).await;
    assert!(read_only.ready().await.is_err());
    assert!(read_only.backlog().await.is_ok());
    assert!(down.ready().await.is_err());
}

#[tokio::test]
async fn a_store_has_as_many_connections_as_its_caller_asked_for() {
    let Some((database, _)) = set_up().await else {
        return;
    };

    let two = PostgresStore::builder()
        .timeout(PATIENCE)
        .max_connections(2);
    let two = two.connect(&database.url).await;
    let four = PostgresStore::builder().max_connections(4);
    let four = four.connect_lazy(&database.url);

    assert_eq!(two.unwrap().pool().status().max_size, 2);
    assert_eq!(four.unwrap().pool().status().max_size, 4);
}

/// Set in the child process: a test cannot set variables of its own.
const CHILD: &str = "AUDIENCE_TEST_CHILD";

#[test]
fn in_a_process_with_an_address() {
    if std::env::var_os(CHILD).is_some() {
        let more = PostgresStore::builder().max_connections(36);
        for store in [PostgresStore::from_env(), more.connect_lazy_from_env()] {
            let status = store.map(|store| store.pool().status());
            let text = status.map_or_else(
                |error| printed(&error),
                |status| format!("{} of {}", status.size, status.max_size),
            );
            println!("result: {text}");
        }
    }
}

#[test]
fn a_store_takes_its_address_from_the_environment_and_connects_later_also_with_other_settings() {
    let result = |variable, address| {
        let test = "postgres_outages::in_a_process_with_an_address";
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env_remove("AUDIENCE_INBOX_URL")
            .env(CHILD, "1")
            .env(variable, address)
            .output()
            .unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };

    let store = result(
        "AUDIENCE_INBOX_URL",
        "postgres://inbox:hunter2@127.0.0.1:1/db",
    );
    let other = result("AUDIENCE_INBOX_URL", "redis://inbox:hunter2@localhost");
    let none = result("AUDIENCE_INBOX_URL", "");

    assert!(
        store.contains("result: 0 of 20\nresult: 0 of 36\n"),
        "{store}"
    );
    assert!(!store.contains("hunter2"), "{store}");
    assert!(other.contains("postgres://user:password@"), "{other}");
    assert!(none.contains("`AUDIENCE_INBOX_URL`"), "{none}");
    assert!(!other.contains("hunter2"), "{other}");
}

#[tokio::test]
async fn an_address_that_nothing_listens_on_is_unavailable() {
    let address = closed_url().replace("http://", "postgres://inbox:hunter2@");

    let error = in_time(PostgresStore::connect(&address)).await.unwrap_err();

    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert!(!printed(&error).contains("hunter2"), "{error:?}");
}

#[tokio::test]
async fn a_server_that_does_not_respond_is_unavailable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let url = format!("postgres://inbox:hunter2@{address}/db?connect_timeout=1");

    let error = in_time(PostgresStore::connect(&url)).await.unwrap_err();

    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert!(!printed(&error).contains("hunter2"), "{error:?}");
}

#[tokio::test]
async fn a_database_or_a_user_that_does_not_exist_makes_the_store_unusable() {
    let Some(server) = postgres::server().await else {
        return;
    };
    let url = server.database().await.url.clone();
    let (base, _) = url.rsplit_once('/').unwrap();

    for address in [
        format!("{base}/no_such_database"),
        url.replace("audience@", "no_such_user:hunter2@"),
    ] {
        let error = postgres::connect(&address).await.unwrap_err();

        assert_eq!(error.kind(), StoreErrorKind::Unusable);
        assert!(!printed(&error).contains("hunter2"), "{error:?}");
    }
}

#[tokio::test]
async fn a_pool_without_a_free_connection_is_unavailable() {
    let Some((database, _)) = set_up().await else {
        return;
    };
    let pool = pool(&database.url, 1);
    let store = PostgresStore::builder().timeout(SHORT).build(pool.clone());

    let in_use = pool.get().await.unwrap();
    let error = claim(&store, "evt_1").await.unwrap_err();
    drop(in_use);

    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert_eq!(claim_patiently(&store, "evt_1").await, FRESH);
}

#[tokio::test]
async fn a_table_that_changed_under_a_prepared_statement_is_no_error() {
    let Some((database, store)) = set_up().await else {
        return;
    };
    let admin = postgres::client(&database.url).await;
    assert!(store.parked("main", None, 10).await.unwrap().is_empty());
    assert_eq!(claim(&store, "evt_1").await.unwrap(), FRESH);

    admin
        .batch_execute("ALTER TABLE audience_inbox ALTER COLUMN reason TYPE varchar")
        .await
        .unwrap();
    admin
        .batch_execute(
            "ALTER TABLE audience_inbox ALTER COLUMN attempts TYPE integer USING attempts",
        )
        .await
        .unwrap();

    assert!(store.parked("main", None, 10).await.unwrap().is_empty());
    assert_eq!(claim(&store, "evt_2").await.unwrap(), FRESH);
}

/// Calls whose response is lost after the statement was committed.
async fn lose_each_response(store: &impl Store, proxy: &LossyProxy) {
    let (event, other, third) = (id("evt_1"), id("evt_2"), id("evt_3"));
    let (fourth, fifth) = (id("evt_4"), id("evt_5"));
    let token = Token::random();
    let held = |event| HeldClaim::new(EventKey::new("main", event), token);
    let claim = NewClaim::new(held(&event).key, token, HOUR, HOUR);
    let body = b"body".as_slice();
    let accept = |event| {
        let key = EventKey::new("main", event);
        store.accept(NewDelivery::new(key, body, Fingerprint::of(body)))
    };
    let take = Take::new("main", token, HOUR, 1);
    macro_rules! lose_response {
        ($call:expr) => {{
            proxy.lose_next_response();
            let result = in_time($call).await;
            proxy.assert_lost();
            result
        }};
    }

    // These are made again, and have the same result.
    let state = lose_response!(store.claim(claim));
    assert_eq!(state.unwrap(), FRESH);
    assert!(lose_response!(store.extend(held(&event), HOUR)).unwrap());
    assert!(lose_response!(store.complete(held(&event), HOUR)).unwrap());

    // These are not: a second run would have another result, or take other events.
    let accepted = lose_response!(accept(&other));
    assert_eq!(accepted.unwrap_err().kind(), StoreErrorKind::Unavailable);
    let again = in_time(accept(&other)).await.unwrap();
    assert_eq!(again, AcceptState::Duplicate);
    in_time(accept(&third)).await.unwrap();
    let taken = lose_response!(store.take(take));
    assert_eq!(taken.unwrap_err().kind(), StoreErrorKind::Unavailable);
    let backlog = in_time(store.backlog("main")).await.unwrap();
    assert_eq!((backlog.waiting, backlog.in_progress), (1, 1));

    // It completes the event that was taken, and takes another one.
    in_time(accept(&fourth)).await.unwrap();
    in_time(accept(&fifth)).await.unwrap();
    let completed = [held(&other)];
    let turnover = lose_response!(store.complete_and_take(&completed, HOUR, take));
    let error = turnover.taken.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert!(turnover.completed.is_err());
    let backlog = in_time(store.backlog("main")).await.unwrap();
    assert_eq!((backlog.waiting, backlog.in_progress), (2, 1));
    let completed = in_time(store.complete(held(&other), HOUR)).await;
    assert!(completed.unwrap());
}

#[tokio::test]
async fn a_call_whose_response_was_lost_takes_events_once_and_succeeds_if_it_can_be_made_again() {
    let (Some((database, _)), Some((other, _))) = (set_up().await, set_up().await) else {
        return;
    };
    let lossy = async |database: &Database| {
        let (before, rest) = database.url.rsplit_once(':').unwrap();
        let (port, name) = rest.split_once('/').unwrap();
        // The response to a statement that was prepared, and not to a ping.
        let is_of_statement = |response: &[u8]| response.starts_with(b"2");
        let proxy = LossyProxy::start(&format!("127.0.0.1:{port}"), is_of_statement).await;
        let url = format!("{before}:{}/{name}", proxy.address().port());
        (proxy, url)
    };

    let (proxy, url) = lossy(&database).await;
    let store = postgres::connect(&url).await.unwrap();
    lose_each_response(&store, &proxy).await;

    let (proxy, url) = lossy(&other).await;
    let store = SqlxPostgresStore::new(PgPool::connect(&url).await.unwrap());
    lose_each_response(&store.timeout(PATIENCE), &proxy).await;
}
