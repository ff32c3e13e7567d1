//! The SQL that the store runs, and the creation of its tables.

use std::time::Duration;

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, IsolationLevel, Row};

use super::session::{Session, statement_error};
use crate::inbox::error::StoreError;

/// A statement, and whether a caller may run it again without knowing if it ran.
pub(super) struct Statement {
    pub(super) sql: &'static str,
    /// The value of its last parameter, which the statement compares with its own name. A connection pooler that
    /// knows nothing of prepared statements may run another one under the name of this one: that changes nothing
    /// then and returns no row.
    pub(super) name: &'static str,
    /// The types of its other parameters.
    pub(super) types: &'static [Type],
    /// The second run of two has the result that the first one had, as far as the caller is concerned.
    pub(super) is_repeatable: bool,
}

macro_rules! statements {
    ($($constant:ident, $name:literal, [$($type:ident),+], $is_repeatable:literal;)+) => {
        $(pub(super) const $constant: Statement = Statement {
            sql: include_str!(concat!("sql/", $name, ".sql")),
            name: $name,
            types: &[$(Type::$type),+],
            is_repeatable: $is_repeatable,
        };)+
    };
}

statements! {
    ACCEPT, "accept", [TEXT, TEXT, BYTEA, BYTEA], false;
    BACKLOG, "backlog", [TEXT], true;
    CLAIM, "claim", [TEXT, TEXT, BYTEA, FLOAT8, FLOAT8, BYTEA], true;
    COMPLETE, "complete", [TEXT, TEXT, BYTEA, FLOAT8], true;
    DISCARD, "discard", [TEXT, TEXT, FLOAT8], false;
    EXTEND, "extend", [TEXT, TEXT, BYTEA, FLOAT8], true;
    PARK, "park", [TEXT, TEXT, BYTEA, TEXT], false;
    PARKED, "parked", [TEXT, TEXT, INT8], true;
    PURGE, "purge", [INT8], true;
    RELEASE, "release", [TEXT, TEXT, BYTEA, FLOAT8, FLOAT8, TEXT], false;
    REPLAY, "replay", [TEXT, TEXT], false;
    TAKE, "take", [TEXT, BYTEA, FLOAT8, INT8], false;
}

impl Statement {
    /// Returns the values of all parameters, the statement's name included.
    pub(super) fn values<'a>(
        &'a self,
        values: &'a [&'a (dyn ToSql + Sync)],
    ) -> impl Iterator<Item = &'a (dyn ToSql + Sync)> {
        let name: &(dyn ToSql + Sync) = &self.name;
        values.iter().copied().chain([name])
    }
}

pub(super) const CLAIM_IN: &str = include_str!("sql/claim_in.sql");
pub(super) const SCHEMA: &str = include_str!("schema.sql");
/// The version that `SCHEMA` creates.
const SCHEMA_VERSION: i32 = 1;

/// A longer time is cut to this one, so that no time of Postgres overflows.
pub(super) const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Returns a duration as the statements take it.
pub(super) fn seconds(duration: Duration) -> f64 {
    duration.min(LONGEST).as_secs_f64()
}

/// Other processes may be migrating.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The oldest version of Postgres that the statements are written for.
const OLDEST_SERVER: i32 = 130_000;

/// The lock is held until the end of the transaction, so that one process migrates at a time. Its number is
/// arbitrary. The limits of the connection are meant for shorter statements.
const LOCK: &str = "SET LOCAL statement_timeout = '60s'; SET LOCAL lock_timeout = '60s';
    SELECT pg_advisory_xact_lock(6016405391421163)";

const SURVEY: &str = "SELECT
    current_setting('server_version_num')::integer AS server_version,
    current_setting('server_encoding') AS encoding,
    to_regclass('audience_inbox') IS NOT NULL AND to_regclass('audience_inbox_schema') IS NOT NULL AS has_tables";

/// Creates the tables if they are absent. Fails if they are newer than this code.
pub(super) async fn migrate(session: &Session) -> Result<(), StoreError> {
    let session = Session {
        timeout: session.timeout.max(TIMEOUT),
        ..session.clone()
    };
    let migration = async {
        let mut connection = session.connection().await?;
        let result = migrate_on(connection.client()).await;
        if result.is_ok() {
            connection.put_back();
        }
        result
    };
    session.in_time(migration).await
}

async fn migrate_on(client: &mut Client) -> Result<(), StoreError> {
    // With a default that fixes what the transaction sees when it begins, it would not see the tables that
    // another process created while it waited for the lock.
    let transaction = client
        .build_transaction()
        .isolation_level(IsolationLevel::ReadCommitted)
        .start()
        .await
        .map_err(statement_error)?;
    let run = async {
        transaction.batch_execute(LOCK).await?;
        let survey = transaction.query_typed_one(SURVEY, &[]).await?;
        if survey.try_get("has_tables")? {
            let version = "SELECT version FROM audience_inbox_schema";
            let version = transaction.query_typed_one(version, &[]).await?;
            let version: i32 = version.try_get(0)?;
            return Ok((survey, Some(version)));
        }
        Ok((survey, None))
    };
    let (survey, version) = run.await.map_err(statement_error)?;
    check_server(&survey)?;
    match version {
        Some(version) if version > SCHEMA_VERSION => {
            return Err(StoreError::unusable(format!(
                "the tables have version {version} and this crate knows version {SCHEMA_VERSION}: update the crate"
            )));
        }
        Some(SCHEMA_VERSION) => {}
        _ => {
            let created = transaction.batch_execute(SCHEMA).await;
            created.map_err(statement_error)?;
        }
    }
    transaction.commit().await.map_err(statement_error)
}

fn check_server(survey: &Row) -> Result<(), StoreError> {
    let version: i32 = survey.try_get("server_version").map_err(statement_error)?;
    let encoding: &str = survey.try_get("encoding").map_err(statement_error)?;
    if version < OLDEST_SERVER {
        return Err(StoreError::unusable(format!(
            "the server is PostgreSQL {}, and the inbox needs version 13 or later",
            version / 10_000
        )));
    }
    if encoding != "UTF8" {
        return Err(StoreError::unusable(format!(
            "the encoding of the database is {encoding}, and the inbox needs UTF8: event ids are any text"
        )));
    }
    Ok(())
}
