//! Stores in Postgres. The entries and their statements know no driver.

mod entries;
mod session;
mod statements;
mod store;

pub use deadpool_postgres;
pub use store::{PostgresStore, PostgresStoreBuilder};
