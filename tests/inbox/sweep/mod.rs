//! Receivers that are killed again and again, with a database that is restarted, lose no event. What is handled
//! twice, a crash explains; a claim in the handler's own transaction is never handled twice.
//!
//! The test starts receivers as processes of their own (this test binary), delivers events to them with duplicates,
//! reordering and replays, kills them with SIGKILL at random moments, and then counts the effects in the database.
//! `AUDIENCE_SWEEP_EVENTS` sets the number of events (default 240).

mod chaos;
mod effects;
mod proxy;
mod receiver;
mod recording_store;
mod tally;

use std::time::Duration;

use support::DatabaseFile;

use self::chaos::{Sweep, sweep};
use self::effects::SQLX;
use self::receiver::Mode;

/// What an inbox offers.
const MODES: [Mode; 4] = [
    Mode::Handle,
    Mode::Accept,
    Mode::Transaction,
    Mode::WorkerTransaction,
];

/// How long a receiver holds a claim. On a slow machine, its process may not run for a second or two.
const LEASE: Duration = Duration::from_secs(4);
const SECRET: &str = "Zq4Lm8Vx1Rt6Yb3N";

fn events() -> usize {
    let events = std::env::var("AUDIENCE_SWEEP_EVENTS").ok();
    events.map_or(240, |events| events.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_receivers_on_one_postgres_lose_nothing_and_double_only_what_a_crash_explains() {
    sweep_postgres("").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_sqlx_three_receivers_on_one_postgres_lose_nothing_and_double_only_what_a_crash_explains()
 {
    sweep_postgres(SQLX).await;
}

async fn sweep_postgres(driver: &str) {
    let Some(postgres) = support::postgres::server().await else {
        return;
    };
    for mode in MODES {
        let database = postgres.database().await;
        let settings = Sweep::new(mode, format!("{driver}{}", database.url), 3, events());

        let tally = sweep(settings, Some(&postgres)).await;

        println!("three receivers on {driver}Postgres, {mode:?}: {tally}");
        tally.assert_nothing_lost_and_doubles_explained(mode);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_receiver_on_sqlite_loses_nothing_and_doubles_only_what_a_crash_explains() {
    for mode in MODES {
        sweep_sqlite("", mode, 1).await;
    }
}

/// The rest of its store is the one above.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_sqlx_two_receivers_on_one_sqlite_file_lose_and_double_nothing() {
    for mode in [Mode::Transaction, Mode::WorkerTransaction] {
        sweep_sqlite(SQLX, mode, 2).await;
    }
}

async fn sweep_sqlite(driver: &str, mode: Mode, receivers: usize) {
    let file = DatabaseFile::new();
    let database = format!("{driver}{}", file.0.display());
    let settings = Sweep::new(mode, database, receivers, events());

    let tally = sweep(settings, None).await;

    println!("{receivers} receivers on {driver}SQLite, {mode:?}: {tally}");
    tally.assert_nothing_lost_and_doubles_explained(mode);
}

/// This is why the others are needed: a set of ids in memory is lost when the process ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_with_a_set_of_ids_in_memory_doubles_events() {
    let file = DatabaseFile::new();
    let settings = Sweep::new(
        Mode::NaiveSet,
        file.0.to_str().unwrap().to_owned(),
        1,
        events(),
    );

    let tally = sweep(settings, None).await;

    println!("one receiver with a set in memory: {tally}");
    assert!(tally.doubled() > 0, "{tally}");
}
