//! The SQL that the store runs.

use std::time::Duration;

/// A statement, and whether a caller may run it again without knowing if it ran.
pub(super) struct Statement {
    pub(super) sql: &'static str,
    /// The second run of two has the result that the first one had, as far as the caller is concerned.
    pub(super) is_repeatable: bool,
}

macro_rules! statements {
    ($($name:ident, $file:literal, $is_repeatable:literal;)+) => {
        $(pub(super) const $name: Statement = Statement {
            sql: include_str!(concat!("sql/", $file, ".sql")),
            is_repeatable: $is_repeatable,
        };)+
    };
}

statements! {
    ACCEPT, "accept", false;
    BACKLOG, "backlog", true;
    CLAIM, "claim", true;
    COMPLETE, "complete", true;
    DISCARD, "discard", false;
    EXTEND, "extend", true;
    PARK, "park", false;
    PARKED, "parked", true;
    PURGE, "purge", true;
    RELEASE, "release", false;
    REPLAY, "replay", false;
    TAKE, "take", false;
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
