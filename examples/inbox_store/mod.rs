//! The store that an example keeps its inbox in.

use std::error::Error;
use std::path::PathBuf;

use audience::inbox::{Inbox, InboxBuilder, MemoryStore, PostgresStore, RedisStore, SqliteStore};
use clap::Args;

/// At most one of them.
#[derive(Args)]
#[group(multiple = false)]
pub(crate) struct StoreArguments {
    /// SQLite file of the inbox. Default: inbox.db
    #[arg(long, value_name = "FILE")]
    sqlite: Option<PathBuf>,
    /// Postgres database of the inbox, `postgres://USER@HOST/NAME`, for several receivers
    #[arg(long, value_name = "URL")]
    postgres: Option<String>,
    /// Redis server of the inbox, `redis://HOST`, for several receivers
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
}

impl StoreArguments {
    /// Opens the store. A demo that was given none uses memory.
    pub(crate) async fn open(self, is_demo: bool) -> Result<InboxBuilder, Box<dyn Error>> {
        if let Some(url) = self.postgres {
            let store = PostgresStore::connect(&url).await?;
            store.migrate().await?;
            return Ok(Inbox::builder(store));
        }
        if let Some(url) = self.redis {
            return Ok(Inbox::builder(RedisStore::connect(url).await?));
        }
        if self.sqlite.is_none() && is_demo {
            // It forgets everything when the process ends, and refuses more than 100,000 events in 72 hours.
            return Ok(Inbox::builder(MemoryStore::new()));
        }
        let file = self.sqlite.unwrap_or_else(|| "inbox.db".into());
        Ok(Inbox::builder(SqliteStore::open(file)?))
    }
}
