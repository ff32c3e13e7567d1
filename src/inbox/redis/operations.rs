use std::time::Duration;

use bytes::Bytes;
use redis::aio::ConnectionLike;
use redis::{ErrorKind, FromRedisValue, RedisError};

use super::call::Call;
use super::error::store_error;
use super::scripts;
use super::store::RedisStore;
use crate::inbox::error::StoreError;
use crate::inbox::store::{
    AcceptState, Backlog, ClaimState, EventKey, HeldClaim, NewClaim, NewDelivery, ParkedEvent,
    Release, Store, Take, TakenEvent,
};
use crate::inbox::token::Fingerprint;
use crate::webhooks::EventId;

/// The id, body, attempts, reason and age of a parked event.
type ParkedReply = (String, Option<Vec<u8>>, u64, String, u64);

impl<C> Store for RedisStore<C>
where
    C: ConnectionLike + Clone + Send + Sync + 'static,
{
    async fn claim(&self, claim: NewClaim<'_>) -> Result<ClaimState, StoreError> {
        let fingerprint = claim.fingerprint.as_ref().map(Fingerprint::as_bytes);
        let call = self
            .event_call(&scripts::CLAIM, claim.key)
            .bytes(claim.token.as_bytes())
            .bytes(fingerprint.map_or(&[], |bytes| bytes.as_slice()))
            .duration(claim.lease)
            .duration(claim.retention);
        let (state, number): (String, u64) = self.run(&call).await?;
        match state.as_str() {
            "fresh" => Ok(ClaimState::Fresh {
                attempt: attempts(number),
            }),
            "in progress" => Ok(ClaimState::InProgress {
                remaining: Duration::from_micros(number),
            }),
            "done" => Ok(ClaimState::Done),
            "parked" => Ok(ClaimState::Parked),
            "conflict" => Ok(ClaimState::Conflict),
            _ => Err(unexpected()),
        }
    }

    async fn extend(&self, held: HeldClaim<'_>, lease: Duration) -> Result<bool, StoreError> {
        let call = self.held_call(&scripts::EXTEND, &held).duration(lease);
        self.run(&call).await
    }

    async fn complete(&self, held: HeldClaim<'_>, retention: Duration) -> Result<bool, StoreError> {
        let call = self
            .held_call(&scripts::COMPLETE, &held)
            .duration(retention);
        self.run(&call).await
    }

    async fn release(&self, held: HeldClaim<'_>, release: Release<'_>) -> Result<bool, StoreError> {
        let call = self
            .held_call(&scripts::RELEASE, &held)
            .duration(release.delay)
            .duration(release.retention)
            .bytes(release.reason.as_bytes());
        self.run(&call).await
    }

    async fn park(&self, held: HeldClaim<'_>, reason: &str) -> Result<bool, StoreError> {
        let call = self
            .held_call(&scripts::PARK, &held)
            .bytes(reason.as_bytes());
        self.run(&call).await
    }

    async fn accept(&self, delivery: NewDelivery<'_>) -> Result<AcceptState, StoreError> {
        let call = self
            .event_call(&scripts::ACCEPT, delivery.key)
            .bytes(delivery.fingerprint.as_bytes())
            .bytes(delivery.body);
        let (state, number): (String, u64) = self.run(&call).await?;
        match state.as_str() {
            "accepted" => Ok(AcceptState::Accepted),
            "repeated" => Ok(AcceptState::Repeated),
            "in progress" => Ok(AcceptState::InProgress {
                remaining: Duration::from_micros(number),
            }),
            "conflict" => Ok(AcceptState::Conflict),
            _ => Err(unexpected()),
        }
    }

    async fn take(&self, take: Take<'_>) -> Result<Vec<TakenEvent>, StoreError> {
        let call = Call::new(&scripts::TAKE, self.keys(take.endpoint), None)
            .bytes(take.token.as_bytes())
            .duration(take.lease)
            .limit(take.limit);
        let taken: Vec<(String, Vec<u8>, u64, u64)> = self.run(&call).await?;
        taken
            .into_iter()
            .map(|(id, body, attempt, overdue)| {
                Ok(TakenEvent {
                    id: event_id(id)?,
                    body: Bytes::from(body),
                    attempt: attempts(attempt),
                    overdue: Duration::from_micros(overdue),
                })
            })
            .collect()
    }

    async fn parked(
        &self,
        endpoint: &str,
        after: Option<&EventId>,
        limit: usize,
    ) -> Result<Vec<ParkedEvent>, StoreError> {
        let call = Call::new(&scripts::PARKED, self.keys(endpoint), None)
            .bytes(after.map_or("", EventId::as_str).as_bytes())
            .limit(limit);
        let parked: Vec<ParkedReply> = self.run(&call).await?;
        parked
            .into_iter()
            .map(|(id, body, attempted, reason, age)| {
                Ok(ParkedEvent::new(
                    event_id(id)?,
                    body.map(Bytes::from),
                    attempts(attempted),
                    reason,
                    Duration::from_micros(age),
                ))
            })
            .collect()
    }

    async fn replay(&self, key: EventKey<'_>) -> Result<bool, StoreError> {
        self.run(&self.event_call(&scripts::REPLAY, key)).await
    }

    async fn discard(&self, key: EventKey<'_>, retention: Duration) -> Result<bool, StoreError> {
        let call = self.event_call(&scripts::DISCARD, key).duration(retention);
        self.run(&call).await
    }

    /// The server deletes by itself what may be forgotten. This checks instead that it deletes nothing else.
    async fn purge(&self, _limit: usize) -> Result<usize, StoreError> {
        self.check().await?;
        Ok(0)
    }

    async fn backlog(&self, endpoint: &str) -> Result<Backlog, StoreError> {
        let call = Call::new(&scripts::BACKLOG, self.keys(endpoint), None);
        let (waiting, in_progress, parked, lag) = self.run(&call).await?;
        Ok(Backlog::new(
            waiting,
            in_progress,
            parked,
            Duration::from_micros(lag),
        ))
    }
}

impl<C> RedisStore<C>
where
    C: ConnectionLike + Clone + Send + Sync + 'static,
{
    fn event_call<'a>(&self, script: &'a scripts::Script, key: EventKey<'a>) -> Call<'a> {
        Call::new(script, self.keys(key.endpoint), Some(key.id))
    }

    fn held_call<'a>(&self, script: &'a scripts::Script, held: &'a HeldClaim<'a>) -> Call<'a> {
        self.event_call(script, held.key)
            .bytes(held.token.as_bytes())
    }

    async fn run<T: FromRedisValue>(&self, call: &Call<'_>) -> Result<T, StoreError> {
        let mut connection = self.connection();
        call.run(&mut connection).await.map_err(store_error)
    }
}

fn attempts(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn event_id(text: String) -> Result<EventId, StoreError> {
    EventId::try_from(text).map_err(StoreError::unusable)
}

fn unexpected() -> StoreError {
    store_error(RedisError::from((
        ErrorKind::UnexpectedReturnType,
        "a script returned an unknown state",
    )))
}
