//! A store in a SQLite file.

mod batch;
mod builder;
mod connect;
mod entries;
mod error;
mod handle;
mod job;
#[cfg(test)]
mod plans;
mod row;
mod schema;
mod session;
mod store;
mod synchronous;
mod time;
mod transaction;
mod writer;

pub use rusqlite;

pub use self::builder::SqliteStoreBuilder;
pub use self::store::SqliteStore;
pub use self::synchronous::Synchronous;
pub use self::transaction::TransactionError;
