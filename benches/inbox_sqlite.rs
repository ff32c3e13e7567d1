//! Claims a second of a store in a SQLite file: alone and 64 at once, in an empty file and with a million
//! remembered ids.
//!
//! ```console
//! $ cargo bench --bench inbox_sqlite
//! $ AUDIENCE_BENCH_FOLDER=/mnt/disk AUDIENCE_BENCH_IDS=1000000 cargo bench --bench inbox_sqlite
//! ```
//!
//! "by hand" is an `INSERT … ON CONFLICT DO NOTHING` on a connection with the same settings, one commit each.
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]
#![expect(clippy::unwrap_used, reason = "a bench may panic")]

use std::path::Path;
use std::time::{Duration, Instant};

use audience::inbox::rusqlite::Connection;
use audience::inbox::{
    ClaimState, EventKey, HeldClaim, NewClaim, SqliteStore, Store, Synchronous, Token,
};
use audience::webhooks::EventId;

const HOUR: Duration = Duration::from_secs(3_600);
const ROUNDS: u32 = 3;

fn main() {
    let folder = std::env::var_os("AUDIENCE_BENCH_FOLDER").map_or_else(
        || env!("CARGO_TARGET_TMPDIR").into(),
        std::path::PathBuf::from,
    );
    let folder = folder.join("bench-inbox-sqlite");
    let ids = std::env::var("AUDIENCE_BENCH_IDS").map_or(1_000_000, |ids| ids.parse().unwrap());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for synchronous in [Synchronous::Full, Synchronous::Normal] {
        // A path of its own: the store before may be closing its file, and it deletes its log by name then.
        let folder = folder.join(format!("{synchronous:?}"));
        std::fs::remove_dir_all(&folder).ok();
        std::fs::create_dir_all(&folder).unwrap();
        let subjects = [0, ids].map(|remembered| {
            let file = folder.join(format!("{remembered}.db"));
            let builder = SqliteStore::builder(&file).synchronous(synchronous);
            let store = builder.open().unwrap();
            remember(&file, remembered);
            (remembered, file, store)
        });
        // In turn, so that other work of the machine slows both.
        for (at_once, each) in [(1, 2_000), (64, 200)] {
            for round in 1..=ROUNDS {
                for (remembered, _, store) in &subjects {
                    let (claimed, handled) = runtime.block_on(measure(store, at_once, each));
                    println!(
                        "{synchronous:?}, {at_once:>2} at once, round {round}, {remembered:>7} ids remembered: \
                         {claimed:>6.0} claims/s, {handled:>6.0} claims with completion/s"
                    );
                }
            }
        }
        for (remembered, file, _) in &subjects {
            let inserted = by_hand(file, synchronous);
            println!(
                "{synchronous:?}, by hand, {remembered:>7} ids remembered: {inserted:>6.0} inserts/s"
            );
        }
    }
    std::fs::remove_dir_all(&folder).ok();
}

/// Fills the file with done events, whose ids are as random as those of real events.
fn remember(file: &Path, ids: u32) {
    let connection = Connection::open(file).unwrap();
    let fill = "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?1)
        INSERT INTO audience_inbox (endpoint, id, state, token, attempts, due, forget_at, fingerprint)
        SELECT 'main', 'evt_' || lower(hex(randomblob(12))), 2, randomblob(16), 1, 0,
            (unixepoch() + 200000) * 1000 + n, randomblob(16) FROM n WHERE n <= ?1";
    connection.execute(fill, [ids]).unwrap();
    // The disk must not be busy with it later.
    let copy = "PRAGMA wal_checkpoint(TRUNCATE)";
    connection.query_row(copy, (), |_| Ok(())).unwrap();
}

async fn measure(store: &SqliteStore, at_once: u32, each: u32) -> (f64, f64) {
    let claimed = run(store, at_once, each, false).await;
    let handled = run(store, at_once, each, true).await;
    (claimed, handled)
}

async fn run(store: &SqliteStore, at_once: u32, each: u32, completes: bool) -> f64 {
    let start = Instant::now();
    let tasks: Vec<_> = (0..at_once)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move {
                for _ in 0..each {
                    claim(&store, completes).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    f64::from(at_once * each) / start.elapsed().as_secs_f64()
}

async fn claim(store: &SqliteStore, completes: bool) {
    let id = EventId::try_from(format!("evt_{:024x}", fastrand::u128(..) >> 32)).unwrap();
    let key = EventKey {
        endpoint: "main",
        id: &id,
    };
    let token = Token::random();
    let claim = NewClaim {
        key,
        token,
        lease: HOUR,
        retention: 72 * HOUR,
        fingerprint: None,
    };
    let state = store.claim(claim).await.unwrap();
    assert_eq!(state, ClaimState::Fresh { attempt: 1 });
    if completes {
        let held = HeldClaim { key, token };
        assert!(store.complete(held, 72 * HOUR).await.unwrap());
    }
}

fn by_hand(file: &Path, synchronous: Synchronous) -> f64 {
    const INSERTS: u32 = 2_000;
    let connection = Connection::open(file).unwrap();
    let table = "CREATE TABLE by_hand (id TEXT PRIMARY KEY) STRICT, WITHOUT ROWID";
    connection.execute_batch(table).unwrap();
    connection
        .pragma_update(None, "synchronous", format!("{synchronous:?}"))
        .unwrap();
    let insert = "INSERT INTO by_hand VALUES (?1) ON CONFLICT DO NOTHING";
    let mut insert = connection.prepare(insert).unwrap();
    let start = Instant::now();
    for _ in 0..INSERTS {
        let id = format!("evt_{:024x}", fastrand::u128(..) >> 32);
        assert_eq!(insert.execute([id]).unwrap(), 1);
    }
    f64::from(INSERTS) / start.elapsed().as_secs_f64()
}
