//! The store in the file of a pool of sqlx.

use std::path::Path;
use std::time::{Duration, Instant};

use audience::inbox::conformance::Suite;
use audience::inbox::rusqlite::{Connection, TransactionBehavior};
use audience::inbox::sqlx::migrate::Migrator;
use audience::inbox::sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqlitePool, SqlitePoolOptions,
};
use audience::inbox::sqlx::{self, Sqlite, Transaction};
use audience::inbox::{
    ClaimState, Fingerprint, InboxError, Receipt, SqliteStore, SqlxSqliteStore, Store, StoreError,
    StoreErrorKind, Synchronous, Take, Token,
};
use audience::webhooks::{Event, EventId};
use tokio::task::JoinSet;

use super::{Folder, HOUR};
use crate::deliveries::{delivery, delivery_about, id, new_claim};
use support::trace_log::Log;
use support::{PATIENCE, in_time, steady_time};

const FRESH: ClaimState = ClaimState::Fresh { attempt: 1 };
/// Somewhat less than the time that a delivery may take.
const RESPONSE_LIMIT: Duration = Duration::from_secs(5);
const INSERT: &str = "INSERT INTO effects VALUES (?)";

impl Folder {
    fn options(&self) -> SqliteConnectOptions {
        let options = SqliteConnectOptions::new().filename(self.file());
        options.create_if_missing(true).busy_timeout(PATIENCE)
    }

    async fn pool(&self, size: u32) -> SqlitePool {
        let pool = SqlitePoolOptions::new()
            .max_connections(size)
            .acquire_timeout(PATIENCE);
        pool.connect_with(self.options()).await.unwrap()
    }

    /// Opens a store, beside a table for effects.
    async fn set_up(&self) -> SqlxSqliteStore {
        let pool = self.pool(4).await;
        let effects = "CREATE TABLE effects (event_id TEXT UNIQUE)";
        sqlx::query(effects).execute(&pool).await.unwrap();
        open_patiently(pool).await
    }

    pub(super) fn effects(&self) -> i64 {
        let count = "SELECT count(*) FROM effects";
        self.connect()
            .query_row(count, (), |row| row.get(0))
            .unwrap()
    }

    /// Returns whether an event is claimed by the published statement, in a transaction of its own.
    fn published_claim(&self, event: &EventId) -> bool {
        let parameters = rusqlite::params![
            "main",
            event.as_str(),
            None::<Vec<u8>>,
            259_200,
            SqliteStore::event_hash("main", event),
            None::<i64>,
        ];
        let connection = self.connect();
        let outcome: String = connection
            .query_row(SqliteStore::CLAIM_IN, parameters, |row| row.get(0))
            .unwrap();
        outcome == "claimed"
    }
}

/// Opens a store that waits for a slow machine: another one on its file may still be closing it.
async fn open_patiently(pool: SqlitePool) -> SqlxSqliteStore {
    let builder = SqliteStore::builder().busy_timeout(PATIENCE);
    builder.open_pool(pool).await.unwrap()
}

async fn apply_effect(
    transaction: &mut Transaction<'_, Sqlite>,
    event: Event,
) -> Result<(), sqlx::Error> {
    let effect = sqlx::query(INSERT).bind(event.id.as_str());
    effect.execute(&mut **transaction).await.map(drop)
}

async fn handle(store: &SqlxSqliteStore, event: &str) -> Receipt {
    in_time(store.handle_in("main", delivery(event), apply_effect)).await
}

async fn claim(store: &SqlxSqliteStore, event: &str) -> Result<ClaimState, StoreError> {
    in_time(store.claim(new_claim(&id(event)))).await
}

async fn claim_in(store: &SqlxSqliteStore, event: &EventId) -> Result<bool, InboxError> {
    let mut transaction = store.pool().begin().await.unwrap();
    let claimed = store.claim_in(&mut transaction, "main", event).await?;
    transaction.commit().await.unwrap();
    Ok(claimed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_store_passes_the_conformance_suite_beside_one_without_a_pool() {
    let folder = Folder::new("sqlx-conformance");
    let builder = || {
        SqliteStore::builder()
            .synchronous(Synchronous::Normal)
            .busy_timeout(PATIENCE)
    };
    let store = builder().open_pool(folder.pool(2).await).await.unwrap();

    let report = Suite::new(store.clone())
        .also_through(store)
        .also_through(builder().open(folder.file()).unwrap())
        .run()
        .await;

    report.assert_passed();
}

#[tokio::test]
async fn claims_of_both_stores_and_of_the_published_statement_exclude_each_other() {
    steady_time::begin_slow();
    let folder = Folder::new("sqlx-exclude");
    let (pooled, plain) = (folder.set_up().await, folder.open());
    let mut connection = folder.connect();

    for first in 0..4 {
        let event = id(&format!("evt_{first}"));
        let mut claimed = Vec::new();
        for turn in 0..8 {
            let is_new = match (first + turn) % 4 {
                0 => claim_in(&pooled, &event).await.unwrap(),
                1 => handle(&pooled, event.as_str()).await == Receipt::Handled,
                2 => folder.published_claim(&event),
                _ => {
                    let transaction = connection.transaction().unwrap();
                    let claimed = plain.claim_in(&transaction, "main", &event).await;
                    transaction.commit().unwrap();
                    claimed.unwrap()
                }
            };
            claimed.push(is_new);
        }
        assert!(claimed[0], "{first}");
        assert_eq!(claimed.iter().filter(|is_new| **is_new).count(), 1);
        let state = plain.claim(new_claim(&event)).await.unwrap();
        assert_eq!(state, ClaimState::Done);
    }

    let leased = id("evt_leased");
    plain.claim(new_claim(&leased)).await.unwrap();
    assert!(!folder.published_claim(&leased));
    let refused = claim_in(&pooled, &leased).await;
    assert!(
        matches!(refused, Err(InboxError::InProgress)),
        "{refused:?}"
    );
}

#[tokio::test]
async fn the_migrations_of_sqlx_create_the_tables() {
    steady_time::begin_slow();
    let folder = Folder::new("sqlx-migrate");
    let pool = folder.pool(2).await;

    let files = Migrator::new(Path::new("../migrations/sqlite")).await;
    let files = files.unwrap();
    for _ in 0..2 {
        files.run(&pool).await.unwrap();
    }

    assert!(folder.published_claim(&id("evt_1")));
    let store = SqlxSqliteStore::open(pool).await.unwrap();
    assert_eq!(handle(&store, "evt_1").await, Receipt::Duplicate);
    assert_eq!(claim(&store, "evt_2").await.unwrap(), FRESH);
}

#[tokio::test]
async fn a_database_in_memory_is_refused_with_what_to_do() {
    for url in [
        "sqlite::memory:",
        "sqlite://?mode=memory",
        "sqlite:file:shared?mode=memory&cache=shared",
    ] {
        let pool = SqlitePool::connect(url).await.unwrap();

        let error = SqlxSqliteStore::open(pool).await.unwrap_err();

        assert_eq!(error.kind(), StoreErrorKind::Unusable);
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(
            source.contains("use a file in a temporary folder"),
            "{url}: {source}"
        );
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_pool_with_a_relative_path_or_a_link_is_of_the_file_that_it_means() {
    let folder = Folder::new("sqlx-paths");
    let name = folder.0.join("link.db");
    std::fs::write(folder.file(), "").unwrap();
    std::os::unix::fs::symlink(folder.file(), &name).unwrap();
    let here = std::env::current_dir().unwrap();
    let up: std::path::PathBuf = here.components().skip(1).map(|_| "..").collect();
    let relative = up.join(folder.file().strip_prefix("/").unwrap());

    for (number, path) in [name, relative].into_iter().enumerate() {
        let options = SqliteConnectOptions::new().filename(path);
        let pool = SqlitePool::connect_with(options).await.unwrap();
        let store = open_patiently(pool).await;

        let event = format!("evt_{number}");
        assert_eq!(claim(&store, &event).await.unwrap(), FRESH);
    }

    let count = "SELECT count(*) FROM audience_inbox_pending";
    let claimed: i64 = folder
        .connect()
        .query_row(count, (), |row| row.get(0))
        .unwrap();
    assert_eq!(claimed, 2);
}

#[tokio::test]
async fn the_receipt_says_what_became_of_a_delivery() {
    steady_time::begin_slow();
    let folder = Folder::new("sqlx-receipts");
    let store = folder.set_up().await;
    claim(&store, "evt_leased").await.unwrap();

    let first = handle(&store, "evt_1").await;
    let second = handle(&store, "evt_1").await;
    let forged = delivery_about("evt_1", "Another");
    let forged = store.handle_in("main", forged, apply_effect).await;
    let leased = handle(&store, "evt_leased").await;

    assert_eq!(
        [first, second, forged],
        [Receipt::Handled, Receipt::Duplicate, Receipt::Conflict]
    );
    assert!(matches!(leased, Receipt::InProgress { .. }), "{leased:?}");
    assert_eq!(folder.effects(), 1);
}

#[tokio::test]
async fn an_error_or_a_panic_of_the_handler_undoes_its_writes_and_the_claim() {
    steady_time::begin_slow();
    let folder = Folder::new("sqlx-failed");
    let store = folder.set_up().await;

    let failed = store.handle_in("main", delivery("evt_1"), async |transaction, event| {
        apply_effect(transaction, event).await.unwrap();
        Err("no such customer")
    });
    let failed = failed.await;
    let panicked = store.handle_in("main", delivery("evt_1"), async |transaction, event| {
        apply_effect(transaction, event).await.unwrap();
        if folder.0.exists() {
            panic!("a bug");
        }
        Ok::<_, String>(())
    });
    let panicked = panicked.await;

    assert_eq!([failed, panicked], [Receipt::Failed; 2]);
    assert_eq!(folder.effects(), 0);
    assert_eq!(handle(&store, "evt_1").await, Receipt::Handled);
}

/// As it is in SQLite: a statement that fails does not end its transaction.
#[tokio::test]
async fn a_handler_that_expects_an_error_keeps_its_other_writes() {
    steady_time::begin_slow();
    let folder = Folder::new("sqlx-expected");
    let store = folder.set_up().await;

    let receipt = store.handle_in("main", delivery("evt_1"), async |transaction, event| {
        apply_effect(transaction, event.clone()).await?;
        let twice = apply_effect(transaction, event).await.unwrap_err();
        assert!(twice.as_database_error().unwrap().is_unique_violation());
        Ok::<_, sqlx::Error>(())
    });

    assert_eq!(receipt.await, Receipt::Handled);
    assert_eq!(folder.effects(), 1);
}

#[tokio::test]
async fn what_fails_at_the_commit_fails_the_handler() {
    steady_time::begin_slow();
    let folder = Folder::new("sqlx-commit");
    let store = folder.set_up().await;
    let tables = "CREATE TABLE people (id INTEGER PRIMARY KEY);
        CREATE TABLE mails (person INTEGER REFERENCES people DEFERRABLE INITIALLY DEFERRED)";
    sqlx::raw_sql(tables).execute(store.pool()).await.unwrap();

    for ending in ["INSERT INTO mails VALUES (7)", "ROLLBACK"] {
        let receipt = store.handle_in("main", delivery("evt_1"), async |transaction, event| {
            apply_effect(transaction, event).await?;
            sqlx::query(ending).execute(&mut **transaction).await?;
            Ok::<_, sqlx::Error>(())
        });

        assert_eq!(receipt.await, Receipt::Failed, "{ending}");
        assert_eq!(folder.effects(), 0, "{ending}");
    }
    for event in ["evt_1", "evt_2", "evt_3", "evt_4", "evt_5"] {
        assert_eq!(handle(&store, event).await, Receipt::Handled);
    }
}

/// The stores would not wait for each other for a moment, if each of their operations did not have its turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn deliveries_and_the_operations_of_the_store_wait_for_their_turn() {
    let folder = Folder::new("sqlx-turns");
    // Kept open: when it closes, it locks the file for a moment, for which a store without a timeout does not wait.
    let _open = folder.set_up().await;
    let options = folder.options().busy_timeout(Duration::ZERO);
    let pool = SqlitePoolOptions::new()
        .max_connections(2)
        .acquire_timeout(PATIENCE);
    let pool = pool.connect_with(options).await.unwrap();
    let builder = SqliteStore::builder().busy_timeout(Duration::ZERO);
    let store = builder.open_pool(pool).await.unwrap();
    let mut tasks = JoinSet::new();

    for number in 0..200 {
        let store = store.clone();
        tasks.spawn(async move {
            let event = format!("evt_{}", number % 50);
            if number % 4 == 3 {
                let own = format!("own_{number}");
                assert_eq!(claim(&store, &own).await.unwrap(), FRESH);
                let again = claim(&store, &own).await.unwrap();
                assert!(matches!(again, ClaimState::InProgress { .. }));
            } else {
                loop {
                    let started = Instant::now();
                    let receipt = handle(&store, &event).await;
                    // On a busy machine, it may take longer than the service waits for the response.
                    if receipt == Receipt::Unavailable && started.elapsed() > RESPONSE_LIMIT {
                        continue;
                    }
                    assert!(
                        [Receipt::Handled, Receipt::Duplicate].contains(&receipt),
                        "{receipt:?}"
                    );
                    break;
                }
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }

    assert_eq!(folder.effects(), 50);
}

#[tokio::test]
async fn a_delivery_waits_for_another_writer_also_without_a_busy_timeout() {
    steady_time::begin_slow();
    let folder = Folder::new("sqlx-busy");
    let _open = folder.set_up().await;
    let options = folder.options().busy_timeout(Duration::ZERO);
    let pool = SqlitePool::connect_with(options).await.unwrap();
    let store = SqlxSqliteStore::open(pool).await.unwrap();
    let mut other = folder.connect();
    let writing = other
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .unwrap();

    let handled = handle(&store, "evt_1");
    let released = async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        writing.commit().unwrap();
    };
    let (receipt, ()) = tokio::join!(handled, released);

    assert_eq!(receipt, Receipt::Handled);
}

#[tokio::test]
async fn a_delivery_beside_a_program_that_never_pauses_gets_its_turn() {
    let folder = Folder::new("sqlx-neighbor");
    let store = folder.set_up().await;
    let (mut writes, writing) = folder.neighbor();

    let mut tries = 30;
    for event in 0..5 {
        let mut receipt = Receipt::Unavailable;
        // On a busy machine, 8 s may be too short. With the waits of SQLite itself, six times 8 s are too short for one.
        while tries > 0 {
            tries -= 1;
            // Each delivery waits for a transaction that has just begun.
            writes.borrow_and_update();
            writes.changed().await.unwrap();
            receipt = handle(&store, &format!("evt_{event}")).await;
            // A duplicate, if it was committed late.
            if [Receipt::Handled, Receipt::Duplicate].contains(&receipt) {
                break;
            }
        }
        let is_done = [Receipt::Handled, Receipt::Duplicate].contains(&receipt);
        assert!(is_done, "{receipt:?}");
    }

    drop(writes);
    writing.join().unwrap();
}

#[tokio::test]
async fn the_busy_timeout_of_the_pool_stays_as_it_is() {
    steady_time::begin_slow();
    async fn busy_timeout(connection: &mut SqliteConnection) -> i64 {
        let timeout = sqlx::query_scalar("PRAGMA busy_timeout").persistent(false);
        timeout.fetch_one(connection).await.unwrap()
    }
    let folder = Folder::new("sqlx-timeout");
    let _open = folder.set_up().await;
    let options = folder.options().busy_timeout(Duration::from_millis(1_234));
    let pool = SqlitePoolOptions::new().max_connections(1);
    let pool = pool.connect_with(options).await.unwrap();
    let store = SqlxSqliteStore::open(pool).await.unwrap();
    let mut found = Vec::new();

    // Of these, a delivery is dropped while it waits for another writer.
    for event in ["evt_1", "evt_2", "evt_3"] {
        let other = (event == "evt_2").then(|| begin(&folder));
        let handled = store.handle_in("main", delivery(event), async |transaction, _| {
            found.push(busy_timeout(transaction).await);
            Ok::<_, sqlx::Error>(())
        });
        let limit = if other.is_some() {
            Duration::from_millis(20)
        } else {
            PATIENCE
        };
        let ended = tokio::time::timeout(limit, handled).await;
        assert_eq!(ended.is_err(), other.is_some());
        drop(other);
        found.push(busy_timeout(&mut store.pool().acquire().await.unwrap()).await);
    }

    assert_eq!(found, [1_234; 5]);
}

#[tokio::test]
async fn a_delivery_that_waits_for_another_writer_or_for_a_connection_is_a_503_in_time() {
    let folder = Folder::new("sqlx-late");
    let _open = folder.set_up().await;
    let options = folder.options().busy_timeout(Duration::ZERO);
    let pool = SqlitePoolOptions::new().max_connections(2);
    let pool = pool.connect_with(options).await.unwrap();
    let store = SqlxSqliteStore::open(pool).await.unwrap();
    let other = folder.connect();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();

    tokio::time::pause();
    let locked = handle(&store, "evt_1").await;
    tokio::time::resume();
    other.execute_batch("ROLLBACK").unwrap();
    let in_use = [
        store.pool().acquire().await.unwrap(),
        store.pool().acquire().await.unwrap(),
    ];
    tokio::time::pause();
    let without_connection = handle(&store, "evt_2").await;
    tokio::time::resume();
    // It waits for itself.
    drop(in_use);
    steady_time::begin_slow();
    let inner = store.clone();
    let stuck = async |_: &mut Transaction<'_, Sqlite>, _: Event| {
        steady_time::advance_soon(Duration::from_secs(10));
        inner.claim(new_claim(&id("evt_4"))).await.map(drop)
    };
    let stuck = store.handle_in("main", delivery("evt_3"), stuck).await;

    assert_eq!(
        [locked, without_connection, stuck],
        [Receipt::Unavailable; 3]
    );
    for event in ["evt_1", "evt_2", "evt_3", "evt_4"] {
        assert_eq!(handle(&store, event).await, Receipt::Handled, "{event}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_whose_sender_disconnects_at_any_moment_is_undone_or_done() {
    let folder = Folder::new("sqlx-dropped");
    let store = folder.set_up().await;
    let mut done = 0;

    for number in 0..300 {
        let event = format!("evt_{number}");
        let handled = store.handle_in("main", delivery(&event), async |transaction, event| {
            apply_effect(transaction, event).await?;
            tokio::task::yield_now().await;
            Ok::<_, sqlx::Error>(())
        });
        let moment = Duration::from_micros(fastrand::u64(0..1_500));
        let started = Instant::now();
        let ended = tokio::time::timeout(moment, handled).await;

        let before = match ended {
            Ok(Receipt::Handled) => true,
            // On a busy machine, it may take longer than the service waits for the response.
            Ok(Receipt::Unavailable) if started.elapsed() > RESPONSE_LIMIT => false,
            Ok(receipt) => panic!("{receipt:?}"),
            Err(_) => false,
        };
        let after = loop {
            let started = Instant::now();
            let receipt = handle(&store, &event).await;
            let is_late = started.elapsed() > RESPONSE_LIMIT;
            if receipt != Receipt::Unavailable || !is_late {
                break receipt;
            }
        };
        match after {
            Receipt::Handled => assert!(!before),
            Receipt::Duplicate => done += 1,
            receipt => panic!("{receipt:?}"),
        }
    }

    assert_eq!(folder.effects(), 300);
    println!("{done} of 300 were done before");
    assert!(store.pool().size() <= 4);
    assert_eq!(claim(&store, "evt_own").await.unwrap(), FRESH);
}

#[tokio::test]
async fn a_delivery_whose_sender_disconnects_leaves_no_lock_behind() {
    steady_time::begin_slow();
    let folder = Folder::new("sqlx-gone");
    let store = folder.set_up().await;

    for _ in 0..20 {
        let handled = store.handle_in("main", delivery("evt_1"), async |transaction, event| {
            apply_effect(transaction, event).await?;
            std::future::pending::<Result<(), sqlx::Error>>().await
        });
        // By the slow clock, in which the effect is applied on most machines.
        let ended = tokio::time::timeout(Duration::from_millis(2), handled).await;
        assert!(ended.is_err());
    }

    let other = folder.connect();
    other.execute_batch("BEGIN IMMEDIATE; COMMIT").unwrap();
    assert_eq!(folder.effects(), 0);
    assert_eq!(handle(&store, "evt_1").await, Receipt::Handled);
}

#[tokio::test]
async fn an_accepted_event_that_is_claimed_in_a_transaction_is_taken_by_no_worker() {
    let folder = Folder::new("sqlx-accepted");
    let store = folder.set_up().await;
    let event = id("evt_1");
    let accepted = audience::inbox::NewDelivery::new(
        audience::inbox::EventKey::new("main", &event),
        b"body",
        Fingerprint::of(b"body"),
    );
    store.accept(accepted).await.unwrap();

    let mut transaction = store.pool().begin().await.unwrap();
    assert!(
        store
            .claim_in(&mut transaction, "main", &event)
            .await
            .unwrap()
    );
    transaction.rollback().await.unwrap();
    let undone = store.backlog("main").await.unwrap().waiting;
    assert!(claim_in(&store, &event).await.unwrap());

    assert_eq!(undone, 1);
    let take = Take::new("main", Token::random(), HOUR, 10);
    assert!(store.take(take).await.unwrap().is_empty());
}

#[tokio::test]
async fn absent_tables_and_a_file_that_was_replaced_are_errors_that_say_so() {
    steady_time::begin_slow();
    let folder = Folder::new("sqlx-absent");
    let store = folder.set_up().await;
    let drop_view = "DROP VIEW audience_inbox_claim";
    sqlx::query(drop_view).execute(store.pool()).await.unwrap();

    let error = claim_in(&store, &id("evt_1")).await.unwrap_err();

    let InboxError::Store(error) = error else {
        panic!("{error:?}");
    };
    assert_eq!(error.kind(), StoreErrorKind::Unusable);
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("SqliteStore::SCHEMA"), "{source}");
    assert_eq!(handle(&store, "evt_1").await, Receipt::Unavailable);
    let store = folder_store(&folder).await;
    assert_eq!(handle(&store, "evt_1").await, Receipt::Handled);
    std::fs::rename(folder.file(), folder.0.join("old.db")).unwrap();
    // It looks now and then.
    let end = Instant::now() + PATIENCE;
    for number in 2.. {
        match handle(&store, &format!("evt_{number}")).await {
            Receipt::Unavailable => break,
            receipt => assert_eq!(receipt, Receipt::Handled),
        }
        assert!(Instant::now() < end, "it does not notice");
    }
}

#[tokio::test]
async fn a_pool_that_may_not_write_is_an_error_that_says_so_once() {
    steady_time::begin_slow();
    let folder = Folder::new("sqlx-query-only");
    let options = folder.options().pragma("query_only", "ON");
    let pool = SqlitePool::connect_with(options).await.unwrap();
    let store = SqlxSqliteStore::open(pool).await.unwrap();

    let log = Log::start();
    let receipt = handle(&store, "evt_1").await;

    assert_eq!(receipt, Receipt::Unavailable);
    let lines = || log.text().matches("readonly database").count();
    let logged = lines();
    assert!(logged > 0, "{}", log.text());
    // An outage must not fill the log.
    assert_eq!(handle(&store, "evt_2").await, Receipt::Unavailable);
    assert_eq!(lines(), logged);
}

async fn folder_store(folder: &Folder) -> SqlxSqliteStore {
    open_patiently(folder.pool(1).await).await
}

#[tokio::test]
async fn forgotten_ids_are_deleted_without_an_inbox() {
    steady_time::begin_slow();
    let folder = Folder::new("sqlx-purge");
    let store = folder.set_up().await;
    let old = "INSERT INTO audience_inbox_period (number, began, first_forget) VALUES (1, 0, 1);
        WITH RECURSIVE old (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM old WHERE n < 2000)
        INSERT INTO audience_inbox_done (period, hash, forget_at) SELECT 1, randomblob(16), 1 FROM old";
    folder.connect().execute_batch(old).unwrap();

    assert_eq!(handle(&store, "evt_1").await, Receipt::Handled);

    let count = "SELECT count(*) FROM audience_inbox_done";
    let end = Instant::now() + PATIENCE;
    while sqlx::query_scalar::<_, i64>(count)
        .fetch_one(store.pool())
        .await
        .unwrap()
        != 1
    {
        assert!(Instant::now() < end, "forgotten ids are still there");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_delivery_on_a_full_disk_is_answered_with_a_status_that_asks_for_a_retry() {
    steady_time::begin_slow();
    let folder = Folder::new("sqlx-full");
    folder.set_up().await;
    let store = folder_store(&folder).await;
    // Not fewer than it has.
    let limit = sqlx::query("PRAGMA max_page_count = 1");
    limit.execute(store.pool()).await.unwrap();

    let mut last = Receipt::Handled;
    let mut handled = 0;
    while last == Receipt::Handled && handled < 10_000 {
        last = handle(&store, &format!("evt_{handled}")).await;
        handled += i64::from(last == Receipt::Handled);
    }

    assert_eq!(last, Receipt::Full);
    assert_eq!(folder.effects(), handled);
    let limit = sqlx::query("PRAGMA max_page_count = 1000000");
    limit.execute(store.pool()).await.unwrap();
    let again = handle(&store, &format!("evt_{handled}")).await;
    assert_eq!(again, Receipt::Handled);
}

#[test]
fn a_runtime_that_ends_under_a_handler_leaves_no_lock_behind() {
    let folder = Folder::new("sqlx-runtime");
    for threads in [0, 2] {
        let mut runtime = match threads {
            0 => tokio::runtime::Builder::new_current_thread(),
            _ => tokio::runtime::Builder::new_multi_thread(),
        };
        let runtime = runtime.enable_all().build().unwrap();
        let (entered, mut is_entered) = tokio::sync::mpsc::unbounded_channel();
        runtime.block_on(async {
            let pool = SqlitePoolOptions::new().min_connections(2);
            let pool = pool.connect_with(folder.options()).await.unwrap();
            let store = open_patiently(pool).await;
            let handled = || {
                let (store, entered) = (store.clone(), entered.clone());
                async move {
                    let handler = async |_: &mut Transaction<'_, Sqlite>, _: Event| {
                        entered.send(()).unwrap();
                        std::future::pending::<Result<(), sqlx::Error>>().await
                    };
                    store.handle_in("main", delivery("evt_1"), handler).await
                }
            };
            // On a busy machine, 8 s may be too short to enter the handler. Then the event is delivered again.
            let mut is_over = false;
            while !is_over {
                let handling = tokio::spawn(handled());
                tokio::select! {
                    biased;
                    // In here: a runtime of one thread runs no task afterwards.
                    entered = is_entered.recv() => is_over = entered.is_some(),
                    _ = handling => {}
                }
            }
        });
        drop(runtime);

        assert!(
            folder
                .open()
                .claim_in(&begin(&folder), "main", &id("evt_1"))
                .into_inner()
                .unwrap()
        );
    }
}

/// Begins a transaction that may write, with the default busy timeout.
fn begin(folder: &Folder) -> Connection {
    let connection = folder.connect();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    connection
}
