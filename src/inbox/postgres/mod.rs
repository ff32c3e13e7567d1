//! Stores in Postgres. The entries and their statements know no driver.

#[cfg(feature = "inbox-postgres")]
mod address;
mod entries;
mod group;
mod queue_head;
#[cfg(feature = "inbox-postgres")]
mod session;
#[cfg(feature = "inbox-sqlx-postgres")]
mod sqlx_store;
mod statements;
#[cfg(feature = "inbox-postgres")]
mod store;
#[cfg(feature = "inbox-postgres-rustls")]
mod tls;

#[cfg(feature = "inbox-postgres")]
pub use deadpool_postgres;
pub(super) use entries::lacks_tables;
#[cfg(feature = "inbox-sqlx-postgres")]
pub use sqlx_store::SqlxPostgresStore;
#[cfg(feature = "inbox-postgres")]
pub use store::{PostgresStore, PostgresStoreBuilder};
