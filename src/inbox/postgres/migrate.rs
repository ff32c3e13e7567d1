use std::time::Duration;

use tokio_postgres::{Client, IsolationLevel, Row};

use super::error;
use super::session::Session;
use super::statements::{SCHEMA, SCHEMA_VERSION};
use crate::inbox::error::StoreError;

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
        .map_err(error::of_statement)?;
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
    let (survey, version) = run.await.map_err(error::of_statement)?;
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
            created.map_err(error::of_statement)?;
        }
    }
    transaction.commit().await.map_err(error::of_statement)
}

fn check_server(survey: &Row) -> Result<(), StoreError> {
    let version: i32 = survey
        .try_get("server_version")
        .map_err(error::of_statement)?;
    let encoding: &str = survey.try_get("encoding").map_err(error::of_statement)?;
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
