//! The effects of the handlers: a row for each run, in the same database as the inbox.

use std::time::Duration;

use deadpool_postgres::{Manager, Pool, Runtime};
use rusqlite::Connection;
use tokio_postgres::NoTls;

/// Where a receiver keeps its inbox and its effects: the URL of a Postgres database, or the path of a SQLite file.
#[derive(Clone)]
pub(super) enum Database {
    Postgres { url: String, pool: Pool },
    Sqlite { path: String },
}

/// One run of a handler that had its effect, or the completion of an event.
#[derive(Clone, Debug)]
pub(super) struct Effect {
    pub(super) event: String,
    /// The process that ran it. [`COMPLETION`] for a completion.
    pub(super) generation: i64,
    /// Unix time in seconds.
    pub(super) at: f64,
}

/// A location that begins with this asks for the store on a pool of sqlx.
pub(super) const SQLX: &str = "sqlx+";

/// In place of a process: the row tells that the event was completed.
pub(super) const COMPLETION: i64 = 0;

const INSERT: &str = "INSERT INTO effects (event, generation, at) VALUES";

impl Database {
    pub(super) fn open(location: &str) -> Self {
        let location = location.strip_prefix(SQLX).unwrap_or(location);
        if !location.starts_with("postgres") {
            return Self::Sqlite {
                path: location.to_owned(),
            };
        }
        let mut config: tokio_postgres::Config = location.parse().unwrap();
        config.connect_timeout(Duration::from_secs(2));
        let pool = Pool::builder(Manager::new(config, NoTls))
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(Duration::from_secs(5)))
            .build()
            .unwrap();
        Self::Postgres {
            url: location.to_owned(),
            pool,
        }
    }

    pub(super) async fn create_table(&self) {
        match self {
            Self::Postgres { pool, .. } => {
                let table = "CREATE TABLE effects (
                    number bigserial PRIMARY KEY, event text NOT NULL, generation bigint NOT NULL,
                    at double precision NOT NULL)";
                let connection = pool.get().await.unwrap();
                connection.batch_execute(table).await.unwrap();
            }
            Self::Sqlite { path } => {
                let table = "CREATE TABLE effects (
                    number INTEGER PRIMARY KEY, event TEXT NOT NULL, generation INTEGER NOT NULL, at REAL NOT NULL)";
                let connection = open_sqlite(path);
                connection.execute_batch(table).unwrap();
            }
        }
    }

    /// Records an effect in a transaction of its own.
    pub(super) async fn record(
        &self,
        event: &str,
        generation: i64,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        match self {
            Self::Postgres { pool, .. } => {
                let connection = pool.get().await?;
                let insert = format!("{INSERT} ($1, $2, {POSTGRES_NOW})");
                connection.execute(&insert, &[&event, &generation]).await?;
            }
            Self::Sqlite { path } => {
                let (path, event) = (path.clone(), event.to_owned());
                tokio::task::spawn_blocking(move || {
                    record_in_sqlite(&open_sqlite(&path), &event, generation)
                })
                .await??;
            }
        }
        Ok(())
    }

    /// Reads all effects, in the order in which they were made.
    pub(super) async fn all(&self) -> Vec<Effect> {
        let select = "SELECT event, generation, at FROM effects ORDER BY number";
        match self {
            Self::Postgres { pool, .. } => {
                let rows = pool.get().await.unwrap().query(select, &[]).await.unwrap();
                rows.iter()
                    .map(|row| Effect {
                        event: row.get(0),
                        generation: row.get(1),
                        at: row.get(2),
                    })
                    .collect()
            }
            Self::Sqlite { path } => {
                let connection = open_sqlite(path);
                let mut statement = connection.prepare(select).unwrap();
                let rows = statement.query_map([], |row| {
                    Ok(Effect {
                        event: row.get(0)?,
                        generation: row.get(1)?,
                        at: row.get(2)?,
                    })
                });
                rows.unwrap().map(Result::unwrap).collect()
            }
        }
    }
}

pub(super) const POSTGRES_NOW: &str = "extract(epoch FROM clock_timestamp())::double precision";

pub(super) fn record_in_sqlite(
    connection: &Connection,
    event: &str,
    generation: i64,
) -> rusqlite::Result<()> {
    let insert = format!("{INSERT} (?1, ?2, unixepoch('subsec'))");
    connection.execute(&insert, (event, generation))?;
    Ok(())
}

fn open_sqlite(path: &str) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection.busy_timeout(Duration::from_secs(10)).unwrap();
    connection
}
