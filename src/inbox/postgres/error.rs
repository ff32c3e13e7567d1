//! What the errors of Postgres mean for an inbox.

use std::error::Error;
use std::io;

use deadpool_postgres::PoolError;
use tokio_postgres::error::SqlState;

use crate::inbox::error::{StoreError, StoreErrorKind};

/// No response came in time.
#[derive(Debug, thiserror::Error)]
#[error("no response from the database within {milliseconds} ms")]
pub(super) struct TimedOut {
    pub(super) milliseconds: u128,
}

/// The connections of several programs share the names of their prepared statements.
#[derive(Debug, thiserror::Error)]
#[error(
    "a connection pooler does not support prepared statements: use `PostgresStoreBuilder::unnamed_statements`"
)]
struct SharedNames {
    source: tokio_postgres::Error,
}

/// What a failed statement left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aftermath {
    /// The statement had no effect and may be run again.
    NothingHappened,
    /// The connection is lost. Whether the statement had an effect is not known.
    ConnectionLost,
    /// The same statement would fail again.
    Refused,
}

impl Aftermath {
    pub(super) fn of(error: &tokio_postgres::Error) -> Self {
        match error.code() {
            // A conflict with another transaction; or a statement that was prepared and is no longer valid.
            Some(code) if matches!(code.code(), "40001" | "40P01" | "0A000" | "26000") => {
                Self::NothingHappened
            }
            Some(code) if code.code().starts_with("57P") || code.code().starts_with("08") => {
                Self::ConnectionLost
            }
            Some(_) => Self::Refused,
            None if kind_without_code(error) == StoreErrorKind::Unavailable => Self::ConnectionLost,
            None => Self::Refused,
        }
    }
}

/// Returns whether a connection is as good as before, although a statement failed on it.
pub(super) fn keeps_connection(error: &tokio_postgres::Error) -> bool {
    let is_stale = |code: &SqlState| matches!(code.code(), "0A000" | "26000");
    let is_lost = Aftermath::of(error) == Aftermath::ConnectionLost;
    error.code().is_some_and(|code| !is_lost && !is_stale(code))
}

pub(super) fn of_statement(error: tokio_postgres::Error) -> StoreError {
    let kind = kind(&error);
    if error.code() == Some(&SqlState::DUPLICATE_PSTATEMENT) {
        return new(kind, SharedNames { source: error });
    }
    new(kind, error)
}

pub(super) fn kind(error: &tokio_postgres::Error) -> StoreErrorKind {
    match error.code() {
        Some(code) => kind_of_code(code.code()),
        None => kind_without_code(error),
    }
}

/// Returns whether the server refused a connection because of its options, as poolers do.
pub(super) fn is_refused_option(error: &StoreError) -> bool {
    let source = error.source().and_then(|error| error.downcast_ref());
    let code = source.and_then(tokio_postgres::Error::code);
    code == Some(&SqlState::PROTOCOL_VIOLATION)
}

pub(super) fn of_pool(error: PoolError) -> StoreError {
    match error {
        PoolError::Backend(error) => of_statement(error),
        PoolError::Timeout(_) => StoreError::unavailable(error),
        error => StoreError::unusable(error),
    }
}

fn new(kind: StoreErrorKind, source: impl Error + Send + Sync + 'static) -> StoreError {
    match kind {
        StoreErrorKind::Unavailable => StoreError::unavailable(source),
        StoreErrorKind::Full => StoreError::full(source),
        StoreErrorKind::Unusable => StoreError::unusable(source),
    }
}

fn kind_of_code(code: &str) -> StoreErrorKind {
    match code {
        // The disk or the memory is full.
        "53100" | "53200" => StoreErrorKind::Full,
        // A failover can leave a connection to a server that only reads; a lock was not granted in time; a
        // prepared statement is no longer valid; a new server lets nobody in yet.
        "25006" | "55P03" | "0A000" | "26000" | "55000" => StoreErrorKind::Unavailable,
        _ => match code.get(..2) {
            // Connection, rollback, resources, shutdown or a timeout, I/O, internal.
            Some("08" | "40" | "53" | "57" | "58" | "XX") => StoreErrorKind::Unavailable,
            _ => StoreErrorKind::Unusable,
        },
    }
}

/// Returns what an error of the driver means. A lost connection has no source, or one of I/O; the others are
/// about TLS, the password, the settings, or a value of another type.
fn kind_without_code(error: &tokio_postgres::Error) -> StoreErrorKind {
    let mut source = error.source();
    if source.is_none() {
        return StoreErrorKind::Unavailable;
    }
    while let Some(error) = source {
        if error.is::<io::Error>() {
            return StoreErrorKind::Unavailable;
        }
        source = error.source();
    }
    StoreErrorKind::Unusable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_of_an_error_tells_whether_a_later_call_may_succeed() {
        use StoreErrorKind::{Full, Unavailable, Unusable};
        let rows = [
            ("08006", Unavailable),
            ("25006", Unavailable),
            ("40001", Unavailable),
            ("40P01", Unavailable),
            ("53300", Unavailable),
            ("55P03", Unavailable),
            ("57014", Unavailable),
            ("57P01", Unavailable),
            ("57P02", Unavailable),
            ("57P03", Unavailable),
            ("58030", Unavailable),
            ("53100", Full),
            ("53200", Full),
            ("28P01", Unusable),
            ("3D000", Unusable),
            ("3F000", Unusable),
            ("42501", Unusable),
            ("42703", Unusable),
            ("42P01", Unusable),
            ("23514", Unusable),
            ("", Unusable),
        ];

        for (code, expected) in rows {
            assert_eq!(kind_of_code(code), expected, "{code}");
        }
    }
}
