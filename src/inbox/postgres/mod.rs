//! A store in Postgres.

mod connect;
mod error;
mod migrate;
mod operations;
mod session;
mod statements;
mod store;

pub use self::store::{PostgresStore, PostgresStoreBuilder};
pub use deadpool_postgres;
