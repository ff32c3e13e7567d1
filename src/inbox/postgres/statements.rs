//! The statements of the stores in Postgres, for every driver.

use std::time::Duration;

/// The SQL that creates the tables.
pub(super) const SCHEMA: &str =
    include_str!("../../../migrations/postgres/0001_audience_inbox.sql");

/// Returns the SQL that creates the tables in this schema, and gives a role the rights that a store needs.
pub(super) fn schema_for(schema: &str, role: &str) -> String {
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let (schema, role) = (quoted(schema), quoted(role));
    // Without the rights in comments, which have other names.
    let tables = SCHEMA.split(RIGHTS).next().unwrap_or_default();
    format!(
        "BEGIN;\n\
         SET LOCAL search_path TO {schema};\n\n\
         {tables}\
         GRANT USAGE ON SCHEMA {schema} TO {role};\n\
         GRANT SELECT, INSERT, UPDATE, DELETE ON audience_inbox TO {role};\n\
         GRANT SELECT ON audience_inbox_schema TO {role};\n\
         COMMIT;\n"
    )
}

/// Where the rights begin in [`SCHEMA`].
const RIGHTS: &str = "-- A role of its own";

/// The version that [`SCHEMA`] creates.
pub(super) const SCHEMA_VERSION: i32 = 1;

/// The SQL that claims an event in a transaction of the user's.
pub(super) const CLAIM_IN: &str = include_str!("sql/claim_in.sql");

/// The oldest version of Postgres that the statements are written for.
pub(super) const OLDEST_SERVER: i32 = 130_000;

/// Keeps other processes from migrating until the end of the transaction. The number of the lock is arbitrary. The
/// limits of the connection are meant for shorter statements.
pub(super) const LOCK: &str = "SET LOCAL statement_timeout = '60s'; SET LOCAL lock_timeout = '60s';
    SELECT pg_advisory_xact_lock(6016405391421163)";

pub(super) const SURVEY: &str = "SELECT
    current_setting('server_version_num')::integer AS server_version,
    current_setting('server_encoding') AS encoding,
    to_regclass('audience_inbox') IS NOT NULL AND to_regclass('audience_inbox_schema') IS NOT NULL AS has_tables";

pub(super) const VERSION: &str = "SELECT version FROM audience_inbox_schema";

/// A statement, and whether a caller may run it again without knowing if it ran.
pub(super) struct Statement {
    pub(super) sql: &'static str,
    /// The value of its last parameter, which the statement compares with its own name. A connection pooler that knows
    /// nothing of prepared statements may run another one under the name of this one: that changes nothing then and
    /// returns no row.
    name: Value<'static>,
    /// The second run of two has the result that the first one had, as far as the caller is concerned.
    pub(super) is_repeatable: bool,
}

macro_rules! statements {
    ($($constant:ident, $name:literal, $is_repeatable:literal;)+) => {
        $(pub(super) static $constant: Statement = Statement {
            sql: include_str!(concat!("sql/", $name, ".sql")),
            name: Value::Text($name),
            is_repeatable: $is_repeatable,
        };)+
    };
}

// A second run of a statement that is not repeatable misleads the caller: an event that the first run accepted would be
// `Duplicate`, a claim that it ended would be lost, and the events that it took would wait for the end of their lease.
statements! {
    ACCEPT, "accept", false;
    BACKLOG, "backlog", true;
    CLAIM, "claim", true;
    CLAIM_KNOWN, "claim_known", true;
    COMPLETE, "complete", true;
    DISCARD, "discard", false;
    EXTEND, "extend", true;
    GROUP, "group", true;
    PARK, "park", false;
    PARKED, "parked", true;
    PURGE, "purge", true;
    RELEASE, "release", false;
    REPLAY, "replay", false;
    STATE, "state", true;
    TAKE, "take", false;
}

impl Statement {
    /// Returns the values of all parameters, the statement's name included.
    pub(super) fn values<'a>(
        &'a self,
        values: &'a [Value<'a>],
    ) -> impl ExactSizeIterator<Item = &'a Value<'a>> {
        let name: &Value<'_> = &self.name;
        let count = values.len() + 1;
        (0..count).map(move |at| values.get(at).unwrap_or(name))
    }
}

/// The value of a parameter. Its type is that of the cast in the statement.
#[derive(Clone, Copy)]
pub(super) enum Value<'a> {
    Text(&'a str),
    Texts(&'a [&'a str]),
    Bytes(Option<&'a [u8]>),
    Seconds(f64),
    Count(i64),
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(Some(bytes))
    }
}

impl<'a> From<Option<&'a [u8]>> for Value<'a> {
    fn from(bytes: Option<&'a [u8]>) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<Duration> for Value<'_> {
    fn from(duration: Duration) -> Self {
        Self::Seconds(duration.min(LONGEST).as_secs_f64())
    }
}

impl From<usize> for Value<'_> {
    fn from(count: usize) -> Self {
        Self::Count(i64::try_from(count).unwrap_or(i64::MAX))
    }
}

/// A longer time is cut to this one, so that no time of Postgres overflows.
pub(super) const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);
