use std::time::Duration;

use bytes::Bytes;
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use super::error;
use super::session::{Session, Values};
use super::statements::{self as sql, LONGEST, seconds};
use super::store::PostgresStore;
use crate::inbox::error::StoreError;
use crate::inbox::store::{
    AcceptState, Backlog, ClaimState, EventKey, HeldClaim, NewClaim, NewDelivery, ParkedEvent,
    Release, Store, Take, TakenEvent,
};
use crate::webhooks::EventId;

/// Runs a statement and returns whether it changed an entry.
macro_rules! changes_entry {
    ($store:ident, $statement:ident, $($value:expr),+) => {
        Ok(!$store.session.query(&sql::$statement, &[$(&$value),+]).await?.is_empty())
    };
}

impl Store for PostgresStore {
    async fn claim(&self, claim: NewClaim<'_>) -> Result<ClaimState, StoreError> {
        self.session
            .in_time(claim_entry(&self.session, &claim))
            .await
    }

    async fn extend(&self, held: HeldClaim<'_>, lease: Duration) -> Result<bool, StoreError> {
        extend(&self.session, held, lease).await
    }

    async fn complete(&self, held: HeldClaim<'_>, retention: Duration) -> Result<bool, StoreError> {
        let HeldClaim { key, token } = held;
        changes_entry!(
            self,
            COMPLETE,
            key.endpoint,
            key.id.as_str(),
            token.as_bytes().as_slice(),
            seconds(retention)
        )
    }

    async fn release(&self, held: HeldClaim<'_>, release: Release<'_>) -> Result<bool, StoreError> {
        let HeldClaim { key, token } = held;
        changes_entry!(
            self,
            RELEASE,
            key.endpoint,
            key.id.as_str(),
            token.as_bytes().as_slice(),
            seconds(release.delay),
            seconds(release.retention),
            without_nul(release.reason)
        )
    }

    async fn park(&self, held: HeldClaim<'_>, reason: &str) -> Result<bool, StoreError> {
        let HeldClaim { key, token } = held;
        changes_entry!(
            self,
            PARK,
            key.endpoint,
            key.id.as_str(),
            token.as_bytes().as_slice(),
            without_nul(reason)
        )
    }

    async fn accept(&self, delivery: NewDelivery<'_>) -> Result<AcceptState, StoreError> {
        let NewDelivery {
            key,
            body,
            fingerprint,
        } = delivery;
        let fingerprint = fingerprint.as_bytes().as_slice();
        let values: &Values<'_> = &[&key.endpoint, &key.id.as_str(), &body, &fingerprint];
        let row = self.session.query_one(&sql::ACCEPT, values).await?;
        match column(&row, "outcome")? {
            "accepted" => Ok(AcceptState::Accepted),
            "repeated" => Ok(AcceptState::Repeated),
            "in_progress" => Ok(AcceptState::InProgress {
                remaining: time(&row, "remaining")?,
            }),
            "conflict" => Ok(AcceptState::Conflict),
            outcome => Err(unexpected(outcome)),
        }
    }

    async fn take(&self, take: Take<'_>) -> Result<Vec<TakenEvent>, StoreError> {
        let token = take.token.as_bytes().as_slice();
        let (lease, limit) = (seconds(take.lease), count(take.limit));
        let values: &Values<'_> = &[&take.endpoint, &token, &lease, &limit];
        let taken = self.session.query(&sql::TAKE, values).await?;
        taken.iter().map(taken_event).collect()
    }

    async fn parked(
        &self,
        endpoint: &str,
        after: Option<&EventId>,
        limit: usize,
    ) -> Result<Vec<ParkedEvent>, StoreError> {
        // No id is empty.
        let after = after.map_or("", EventId::as_str);
        let values: &Values<'_> = &[&endpoint, &after, &count(limit)];
        let parked = self.session.query(&sql::PARKED, values).await?;
        parked.iter().map(parked_event).collect()
    }

    async fn replay(&self, key: EventKey<'_>) -> Result<bool, StoreError> {
        changes_entry!(self, REPLAY, key.endpoint, key.id.as_str())
    }

    async fn discard(&self, key: EventKey<'_>, retention: Duration) -> Result<bool, StoreError> {
        changes_entry!(
            self,
            DISCARD,
            key.endpoint,
            key.id.as_str(),
            seconds(retention)
        )
    }

    async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
        let deleted = self.session.query(&sql::PURGE, &[&count(limit)]).await?;
        Ok(deleted.len())
    }

    async fn backlog(&self, endpoint: &str) -> Result<Backlog, StoreError> {
        let row = self.session.query_one(&sql::BACKLOG, &[&endpoint]).await?;
        let number = |name| column::<i64>(&row, name).map(i64::unsigned_abs);
        Ok(Backlog::new(
            number("waiting")?,
            number("in_progress")?,
            number("parked")?,
            time(&row, "lag")?,
        ))
    }
}

async fn claim_entry(session: &Session, claim: &NewClaim<'_>) -> Result<ClaimState, StoreError> {
    let HeldClaim { key, token } = HeldClaim {
        key: claim.key,
        token: claim.token,
    };
    let fingerprint = claim.fingerprint.as_ref().map(|f| f.as_bytes().as_slice());
    loop {
        let row = session
            .query_one(
                &sql::CLAIM,
                &[
                    &key.endpoint,
                    &key.id.as_str(),
                    &token.as_bytes().as_slice(),
                    &seconds(claim.lease),
                    &seconds(claim.retention),
                    &fingerprint,
                ],
            )
            .await?;
        let attempt = column::<i32>(&row, "attempts")?.unsigned_abs();
        let remaining = time(&row, "remaining")?;
        let state = match column(&row, "outcome")? {
            "claimed" | "held" => ClaimState::Fresh { attempt },
            "in_progress" => ClaimState::InProgress { remaining },
            "done" => ClaimState::Done,
            "parked" => ClaimState::Parked,
            "conflict" => ClaimState::Conflict,
            outcome => return Err(unexpected(outcome)),
        };
        // A new lease begins before the wait for another transaction that had the entry, if that rolls back.
        let is_short = column::<&str>(&row, "outcome")? == "claimed" && remaining < claim.lease / 2;
        if !is_short || extend(session, HeldClaim { key, token }, claim.lease).await? {
            return Ok(state);
        }
    }
}

async fn extend(
    session: &Session,
    held: HeldClaim<'_>,
    lease: Duration,
) -> Result<bool, StoreError> {
    let HeldClaim { key, token } = held;
    let token = token.as_bytes().as_slice();
    let values: &Values<'_> = &[&key.endpoint, &key.id.as_str(), &token, &seconds(lease)];
    let extended = session.query(&sql::EXTEND, values).await?;
    Ok(!extended.is_empty())
}

fn taken_event(row: &Row) -> Result<TakenEvent, StoreError> {
    Ok(TakenEvent {
        id: event_id(row)?,
        body: Bytes::copy_from_slice(column(row, "body")?),
        attempt: column::<i32>(row, "attempts")?.unsigned_abs(),
        overdue: time(row, "overdue")?,
    })
}

fn parked_event(row: &Row) -> Result<ParkedEvent, StoreError> {
    Ok(ParkedEvent::new(
        event_id(row)?,
        column::<Option<&[u8]>>(row, "body")?.map(Bytes::copy_from_slice),
        column::<i32>(row, "attempts")?.unsigned_abs(),
        column::<Option<&str>>(row, "reason")?.unwrap_or_default(),
        time(row, "parked_for")?,
    ))
}

fn event_id(row: &Row) -> Result<EventId, StoreError> {
    EventId::try_from(column::<&str>(row, "event_id")?).map_err(StoreError::unusable)
}

fn time(row: &Row, name: &str) -> Result<Duration, StoreError> {
    let seconds: f64 = column(row, name)?;
    Ok(Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(LONGEST))
}

fn column<'a, T: FromSql<'a>>(row: &'a Row, name: &str) -> Result<T, StoreError> {
    row.try_get(name).map_err(error::of_statement)
}

fn count(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// Postgres stores no NUL.
fn without_nul(text: &str) -> String {
    text.replace('\0', "")
}

fn unexpected(outcome: &str) -> StoreError {
    StoreError::unusable(format!(
        "a statement returned the unknown outcome {outcome:?}"
    ))
}
