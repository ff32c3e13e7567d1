//! What a program would have written without this crate: it notes each id, and the first to do so handles
//! the event. It forgets an event whose handler fails or dies, and nobody else can wait for one.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use audience::inbox::Synchronous;
use audience::inbox::rusqlite::Connection;
use redis::aio::ConnectionManager;

use crate::deliveries::id_text;
use crate::load::{Load, repeat};
use crate::postgres_server;

const RETENTION_SECONDS: u64 = 72 * 3_600;

pub(crate) enum ByHand {
    Memory(Arc<Mutex<HashSet<String>>>),
    Sqlite {
        file: PathBuf,
        synchronous: Synchronous,
    },
    Postgres {
        url: String,
    },
    Redis {
        url: String,
    },
}

impl ByHand {
    /// Creates its table, and notes ids that are remembered.
    pub(crate) async fn prepare(&self, remembered: u32) {
        match self {
            Self::Memory(seen) => seen
                .lock()
                .unwrap()
                .extend((0..remembered).map(|_| id_text())),
            Self::Sqlite { file, .. } => {
                let connection = Connection::open(file).unwrap();
                let table = "CREATE TABLE by_hand (id TEXT PRIMARY KEY) STRICT, WITHOUT ROWID";
                connection.execute_batch(table).unwrap();
                let fill = "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?1)
                    INSERT INTO by_hand SELECT 'evt_' || lower(hex(randomblob(12))) FROM n WHERE n <= ?1";
                connection.execute(fill, [remembered]).unwrap();
            }
            Self::Postgres { url } => {
                let client = postgres_server::connect(url).await.unwrap();
                let fill = format!(
                    "CREATE TABLE by_hand (id text COLLATE \"C\" PRIMARY KEY, seen_at timestamptz DEFAULT now());
                     INSERT INTO by_hand SELECT 'evt_' || left(md5(n::text), 24) FROM generate_series(1, {remembered}) n"
                );
                client.batch_execute(&fill).await.unwrap();
                client
                    .batch_execute("VACUUM ANALYZE by_hand")
                    .await
                    .unwrap();
            }
            // Its keys are as many as the store's own, which are there already.
            Self::Redis { .. } => {}
        }
    }

    /// Returns how many ids a second it notes.
    pub(crate) async fn rate(&self, load: Load) -> f64 {
        match self {
            Self::Memory(seen) => {
                load.rate(|each, end| {
                    let seen = Arc::clone(seen);
                    repeat_owned(each, end, move || {
                        assert!(seen.lock().unwrap().insert(id_text()));
                    })
                })
                .await
            }
            Self::Sqlite { file, synchronous } => {
                load.rate(|each, end| {
                    let (file, synchronous) = (file.clone(), *synchronous);
                    let insert = move || insert_into_sqlite(&file, synchronous, each, end);
                    async { tokio::task::spawn_blocking(insert).await.unwrap() }
                })
                .await
            }
            Self::Postgres { url } => {
                load.rate(|each, end| insert_into_postgres(url.clone(), each, end))
                    .await
            }
            Self::Redis { url } => {
                let client = redis::Client::open(url.as_str()).unwrap();
                let connection = ConnectionManager::new(client).await.unwrap();
                load.rate(|each, end| {
                    let connection = connection.clone();
                    async move { repeat(each, end, || set_in_redis(connection.clone())).await }
                })
                .await
            }
        }
    }
}

async fn repeat_owned(count: u32, end: Instant, work: impl Fn()) -> u32 {
    let work = || {
        work();
        std::future::ready(())
    };
    repeat(count, end, work).await
}

fn insert_into_sqlite(file: &Path, synchronous: Synchronous, count: u32, end: Instant) -> u32 {
    let connection = Connection::open(file).unwrap();
    connection.busy_timeout(Duration::from_secs(30)).unwrap();
    connection
        .pragma_update(None, "synchronous", format!("{synchronous:?}"))
        .unwrap();
    let insert = "INSERT INTO by_hand VALUES (?1) ON CONFLICT DO NOTHING";
    let mut insert = connection.prepare(insert).unwrap();
    for done in 0..count {
        if Instant::now() >= end {
            return done;
        }
        assert_eq!(insert.execute([id_text()]).unwrap(), 1);
    }
    count
}

async fn insert_into_postgres(url: String, count: u32, end: Instant) -> u32 {
    let client = postgres_server::connect(&url).await.unwrap();
    let insert = "INSERT INTO by_hand (id) VALUES ($1) ON CONFLICT DO NOTHING";
    let insert = &client.prepare(insert).await.unwrap();
    let client = &client;
    repeat(count, end, || async move {
        let rows = client.execute(insert, &[&id_text()]).await;
        assert_eq!(rows.unwrap(), 1);
    })
    .await
}

async fn set_in_redis(mut connection: ConnectionManager) {
    let set = redis::cmd("SET")
        .arg(format!("by_hand:{}", id_text()))
        .arg(1)
        .arg("NX")
        .arg("EX")
        .arg(RETENTION_SECONDS)
        .query_async::<bool>(&mut connection)
        .await;
    assert!(set.unwrap());
}
