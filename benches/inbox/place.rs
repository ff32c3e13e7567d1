//! Where events are remembered: an empty place of each kind.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use audience::inbox::{MemoryStore, PostgresStore, RedisStore, SqliteStore, Synchronous};
use clap::ValueEnum;

use crate::by_hand::ByHand;
use crate::postgres_server::Postgres;
use crate::redis_server::Redis;
use crate::server::new_folder;

const CAPACITY: usize = 10_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    Memory,
    Sqlite,
    SqliteNormal,
    Postgres,
    Redis,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Sqlite => "SQLite",
            Self::SqliteNormal => "SQLite, synchronous = normal",
            Self::Postgres => "Postgres",
            Self::Redis => "Redis",
        }
    }
}

/// An empty place of a kind, and the same by hand.
pub(crate) struct Place {
    pub(crate) store: AnyStore,
    pub(crate) by_hand: ByHand,
}

pub(crate) enum AnyStore {
    Memory(MemoryStore),
    Sqlite(SqliteStore),
    Postgres(PostgresStore),
    Redis(RedisStore),
}

/// Calls a macro or a function with the store, whatever its type is.
macro_rules! with_store {
    ($any:expr, $store:ident => $call:expr) => {
        match $any {
            $crate::place::AnyStore::Memory($store) => $call,
            $crate::place::AnyStore::Sqlite($store) => $call,
            $crate::place::AnyStore::Postgres($store) => $call,
            $crate::place::AnyStore::Redis($store) => $call,
        }
    };
}
pub(crate) use with_store;

/// The servers, started when they are first needed.
pub(crate) struct Places {
    folder: PathBuf,
    only: Vec<Kind>,
    postgres: Option<Postgres>,
    redis: Option<Redis>,
}

impl Places {
    pub(crate) fn new(folder: &Path, only: &[Kind]) -> Self {
        Self {
            folder: new_folder(folder, "run"),
            only: only.to_vec(),
            postgres: None,
            redis: None,
        }
    }

    pub(crate) fn kinds(&self) -> Vec<Kind> {
        let is_wanted = |kind: &Kind| self.only.is_empty() || self.only.contains(kind);
        let kinds = Kind::value_variants().iter().copied();
        kinds.filter(is_wanted).collect()
    }

    /// Creates an empty place. Returns why not, if it cannot.
    pub(crate) async fn empty(&mut self, kind: Kind) -> Result<Place, String> {
        match kind {
            Kind::Memory => Ok(Place {
                store: AnyStore::Memory(MemoryStore::builder().capacity(CAPACITY).build()),
                by_hand: ByHand::Memory(Arc::new(Mutex::default())),
            }),
            Kind::Sqlite => Ok(self.sqlite(Synchronous::Full)),
            Kind::SqliteNormal => Ok(self.sqlite(Synchronous::Normal)),
            Kind::Postgres => self.empty_postgres().await,
            Kind::Redis => self.empty_redis().await,
        }
    }

    fn sqlite(&self, synchronous: Synchronous) -> Place {
        let file = new_folder(&self.folder, "sqlite").join("inbox.db");
        let store = SqliteStore::builder().synchronous(synchronous);
        Place {
            store: AnyStore::Sqlite(store.open(&file).unwrap()),
            by_hand: ByHand::Sqlite { file, synchronous },
        }
    }

    async fn empty_postgres(&mut self) -> Result<Place, String> {
        let server = match self.postgres.take() {
            Some(server) => server,
            None => Postgres::start(&self.folder).await?,
        };
        let url = self.postgres.insert(server).database().await;
        let store = PostgresStore::connect(&url).await.unwrap();
        store.migrate().await.unwrap();
        Ok(Place {
            store: AnyStore::Postgres(store),
            by_hand: ByHand::Postgres { url },
        })
    }

    pub(crate) async fn redis(&mut self) -> Result<&Redis, String> {
        let server = match self.redis.take() {
            Some(server) => server,
            None => Redis::start(&self.folder).await?,
        };
        Ok(self.redis.insert(server))
    }

    async fn empty_redis(&mut self) -> Result<Place, String> {
        let server = self.redis().await?;
        server.flush().await.unwrap();
        Ok(Place {
            store: AnyStore::Redis(RedisStore::connect(server.url.as_str()).await.unwrap()),
            by_hand: ByHand::Redis {
                url: server.url.clone(),
            },
        })
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        // The servers write there until they have ended.
        (self.postgres, self.redis) = (None, None);
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
