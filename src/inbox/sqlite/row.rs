//! An entry as a row.

use std::time::SystemTime;

use rusqlite::types::Type;
use rusqlite::{Error, Row};

use super::time::{from_ms, to_ms};
use crate::inbox::entry::{Entry, State};
use crate::inbox::store::EventKey;
use crate::inbox::token::{Fingerprint, Token};

/// Where the body of an entry is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Body {
    /// In the row with this number.
    Stored(i64),
    /// Not stored yet.
    New,
}

pub(super) const FIND: &str = "\
SELECT state, token, attempts, due, forget_at, fingerprint, body, reason
FROM audience_inbox WHERE endpoint = ?1 AND id = ?2";

pub(super) const SAVE: &str = "\
INSERT INTO audience_inbox (endpoint, id, state, token, attempts, due, forget_at, fingerprint, body, reason)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
ON CONFLICT (endpoint, id) DO UPDATE SET state = excluded.state, token = excluded.token,
    attempts = excluded.attempts, due = excluded.due, forget_at = excluded.forget_at,
    fingerprint = excluded.fingerprint, body = excluded.body, reason = excluded.reason";

/// Reads a row of [`FIND`].
pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Entry<Body>> {
    let due = from_ms(row.get(3)?);
    let forget_at = row.get::<_, Option<i64>>(4)?.map_or(due, from_ms);
    let state = match row.get(0)? {
        claimed @ (0 | 1) => State::Open {
            due,
            is_claimed: claimed == 1,
            forget_at,
        },
        2 => State::Done { forget_at },
        3 => State::Parked {
            since: due,
            reason: row.get::<_, Option<String>>(7)?.unwrap_or_default(),
        },
        state => return Err(Error::IntegralValueOutOfRange(0, state)),
    };
    Ok(Entry {
        state,
        token: row.get::<_, Option<_>>(1)?.map(Token::from_bytes),
        attempts: row.get(2)?,
        fingerprint: row.get::<_, Option<_>>(5)?.map(Fingerprint::from_bytes),
        body: row.get::<_, Option<_>>(6)?.map(Body::Stored),
    })
}

/// Writes an entry by [`SAVE`]. Its body is stored.
pub(super) fn write(
    statement: &mut rusqlite::Statement<'_>,
    key: EventKey<'_>,
    entry: &Entry<Body>,
    body: Option<i64>,
    now: SystemTime,
) -> rusqlite::Result<()> {
    let (state, due, reason) = match &entry.state {
        State::Open {
            due, is_claimed, ..
        } => (i64::from(*is_claimed), *due, None),
        State::Done { .. } => (2, now, None),
        State::Parked { since, reason } => (3, *since, Some(reason)),
    };
    statement.execute((
        key.endpoint,
        key.id.as_str(),
        state,
        entry.token.as_ref().map(Token::as_bytes),
        entry.attempts,
        to_ms(due),
        entry.forget_at().map(to_ms),
        entry.fingerprint.as_ref().map(Fingerprint::as_bytes),
        body,
        reason,
    ))?;
    Ok(())
}

/// Reads a column that must be an event id.
pub(super) fn event_id(row: &Row<'_>, column: usize) -> rusqlite::Result<crate::webhooks::EventId> {
    let text = row.get_ref(column)?.as_str()?;
    text.try_into()
        .map_err(|error| Error::FromSqlConversionFailure(column, Type::Text, Box::new(error)))
}
