//! One event in the store under test.

use std::sync::Arc;
use std::time::Duration;

use super::pace::{LONG, ROUNDS, SHORT, Wait};
use crate::inbox::dyn_store::DynStore;
use crate::inbox::error::StoreError;
use crate::inbox::store::{
    AcceptState, ClaimState, EventKey, HeldClaim, NewClaim, NewDelivery, Release,
};
use crate::inbox::token::{Fingerprint, Token};
use crate::webhooks::EventId;

/// One event in the store under test.
#[derive(Clone)]
pub(super) struct Item {
    pub(super) store: Arc<dyn DynStore>,
    pub(super) wait: Wait,
    pub(super) endpoint: Arc<str>,
    pub(super) id: EventId,
}

impl Item {
    pub(super) fn key(&self) -> EventKey<'_> {
        EventKey {
            endpoint: &self.endpoint,
            id: &self.id,
        }
    }

    pub(super) fn held(&self, token: Token) -> HeldClaim<'_> {
        HeldClaim {
            key: self.key(),
            token,
        }
    }

    /// Claims for a long time, without a fingerprint.
    pub(super) async fn claim(&self, token: Token) -> Result<ClaimState, StoreError> {
        self.claim_for(token, LONG).await
    }

    pub(super) async fn claim_for(
        &self,
        token: Token,
        lease: Duration,
    ) -> Result<ClaimState, StoreError> {
        self.claim_with(token, lease, LONG, None).await
    }

    /// Claims for a long time with the fingerprint of a body.
    pub(super) async fn claim_body(
        &self,
        token: Token,
        body: &[u8],
    ) -> Result<ClaimState, StoreError> {
        self.claim_with(token, LONG, LONG, Some(Fingerprint::of(body)))
            .await
    }

    pub(super) async fn claim_with(
        &self,
        token: Token,
        lease: Duration,
        retention: Duration,
        fingerprint: Option<Fingerprint>,
    ) -> Result<ClaimState, StoreError> {
        let claim = NewClaim {
            key: self.key(),
            token,
            lease,
            retention,
            fingerprint,
        };
        self.store.claim(claim).await
    }

    /// Claims for a long time, and waits while a claim or a delay lasts that was meant to be short.
    pub(super) async fn claim_when_free(&self, token: Token) -> Result<ClaimState, StoreError> {
        let mut state = self.claim(token).await?;
        for _ in 0..ROUNDS {
            match state {
                ClaimState::InProgress { remaining } if remaining < LONG / 2 => {
                    (self.wait)(remaining.min(SHORT) + Duration::from_millis(1)).await;
                    state = self.claim(token).await?;
                }
                _ => break,
            }
        }
        Ok(state)
    }

    /// Claims until the event is no longer done.
    pub(super) async fn claim_when_forgotten(
        &self,
        token: Token,
        fingerprint: Option<Fingerprint>,
    ) -> Result<ClaimState, StoreError> {
        let mut state = self.claim_with(token, LONG, LONG, fingerprint).await?;
        for _ in 0..ROUNDS {
            if !matches!(state, ClaimState::Done | ClaimState::Conflict) {
                break;
            }
            (self.wait)(SHORT).await;
            state = self.claim_with(token, LONG, LONG, fingerprint).await?;
        }
        Ok(state)
    }

    pub(super) async fn extend(&self, token: Token, lease: Duration) -> Result<bool, StoreError> {
        self.store.extend(self.held(token), lease).await
    }

    /// Completes, to be remembered for a long time.
    pub(super) async fn complete(&self, token: Token) -> Result<bool, StoreError> {
        self.complete_for(token, LONG).await
    }

    pub(super) async fn complete_for(
        &self,
        token: Token,
        retention: Duration,
    ) -> Result<bool, StoreError> {
        self.store.complete(self.held(token), retention).await
    }

    pub(super) async fn release(&self, token: Token, delay: Duration) -> Result<bool, StoreError> {
        let release = Release {
            delay,
            retention: LONG,
            reason: "the handler failed",
        };
        self.store.release(self.held(token), release).await
    }

    pub(super) async fn park(&self, token: Token, reason: &str) -> Result<bool, StoreError> {
        self.store.park(self.held(token), reason).await
    }

    pub(super) async fn accept(&self, body: &[u8]) -> Result<AcceptState, StoreError> {
        let delivery = NewDelivery {
            key: self.key(),
            body,
            fingerprint: Fingerprint::of(body),
        };
        self.store.accept(delivery).await
    }

    pub(super) async fn replay(&self) -> Result<bool, StoreError> {
        self.store.replay(self.key()).await
    }

    pub(super) async fn discard(&self) -> Result<bool, StoreError> {
        self.store.discard(self.key(), LONG).await
    }
}
