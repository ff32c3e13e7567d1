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
mod tally;

use std::time::Duration;

use self::chaos::{Sweep, sweep};
use self::receiver::Mode;
use crate::support;

/// How long a receiver holds a claim.
const LEASE: Duration = Duration::from_secs(1);
const SECRET: &str = "Zq4Lm8Vx1Rt6Yb3N";

fn events() -> usize {
    let events = std::env::var("AUDIENCE_SWEEP_EVENTS").ok();
    events.map_or(240, |events| events.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_receivers_on_one_postgres_lose_nothing_and_double_only_what_a_crash_explains() {
    let Some(postgres) = support::postgres::server_of_its_own().await else {
        return support::skip("Postgres is not installed");
    };
    for mode in [Mode::Handle, Mode::Accept, Mode::Transaction] {
        let url = postgres.database().await;
        let sweep_of_mode = Sweep { mode, store: url, receivers: 3, events: events() };

        let tally = sweep(sweep_of_mode, Some(&postgres)).await;

        println!("Postgres, {mode:?}: {tally}");
        tally.assert_nothing_lost_and_doubles_explained(mode);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_receiver_on_sqlite_loses_nothing_and_doubles_only_what_a_crash_explains() {
    for mode in [Mode::Handle, Mode::Accept, Mode::Transaction] {
        let folder = tempfile();
        let store = folder.path("inbox.db");
        let sweep_of_mode = Sweep { mode, store, receivers: 1, events: events() };

        let tally = sweep(sweep_of_mode, None).await;

        println!("SQLite, {mode:?}: {tally}");
        tally.assert_nothing_lost_and_doubles_explained(mode);
    }
}
