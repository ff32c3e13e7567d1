//! The tables, and their version.

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};

use super::error::store_error;
use crate::inbox::error::StoreError;

pub(super) const SCHEMA: &str = include_str!("schema.sql");

/// The version that [`SCHEMA`] creates.
const VERSION: i64 = 1;

/// Creates the tables if they are absent. Refuses those of a newer version.
pub(super) fn create_tables(connection: &Connection) -> Result<(), StoreError> {
    let encoding: String = connection
        .query_row("PRAGMA encoding", (), |row| row.get(0))
        .map_err(store_error)?;
    if encoding != "UTF-8" {
        // It would order ids by other bytes.
        return Err(StoreError::unusable(format!(
            "the database has the encoding {encoding}, and the inbox needs UTF-8"
        )));
    }
    if has_tables(connection)? {
        return Ok(());
    }
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)
        .map_err(store_error)?;
    // Another process may have created them meanwhile.
    if !has_tables(&transaction)? {
        transaction.execute_batch(SCHEMA).map_err(store_error)?;
    }
    transaction.commit().map_err(store_error)
}

fn has_tables(connection: &Connection) -> Result<bool, StoreError> {
    match version(connection).map_err(store_error)? {
        None => Ok(false),
        Some(VERSION) => Ok(true),
        Some(version) => Err(StoreError::unusable(format!(
            "the tables of the inbox have version {version}, and this program knows version {VERSION} only: \
             use the program that created them, or a newer one"
        ))),
    }
}

fn version(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    let table =
        "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'audience_inbox_version'";
    if connection
        .query_row(table, (), |_| Ok(()))
        .optional()?
        .is_none()
    {
        return Ok(None);
    }
    let version = "SELECT version FROM audience_inbox_version";
    connection
        .query_row(version, (), |row| row.get(0))
        .optional()
}
