//! The SQL that the store runs.

use std::time::Duration;

use tokio_postgres::types::{ToSql, Type};

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
pub(super) const SCHEMA_VERSION: i32 = 1;

/// A longer time is cut to this one, so that no time of Postgres overflows.
pub(super) const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Returns a duration as the statements take it.
pub(super) fn seconds(duration: Duration) -> f64 {
    duration.min(LONGEST).as_secs_f64()
}
