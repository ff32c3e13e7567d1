//! The store under test, as a case sees it.

use std::sync::Arc;
use std::time::Duration;

use super::clock_jump::ClockJump;
use super::item::Item;
use super::pace::{BoxFuture, LONG, ROUNDS, SHORT, Wait};
use crate::inbox::dyn_store::DynStore;
use crate::inbox::error::StoreError;
use crate::inbox::store::{Backlog, ParkedEvent, Take, TakenEvent};
use crate::inbox::token::Token;
use crate::webhooks::EventId;

pub(super) type Switch = Arc<dyn Fn() -> BoxFuture<()> + Send + Sync>;
pub(super) type Jump = Arc<dyn Fn(ClockJump) -> BoxFuture<()> + Send + Sync>;

/// What the owner of a store can do to it beside calling its methods.
#[derive(Clone, Default)]
pub(super) struct Capabilities {
    /// A store with room for so many events.
    pub(super) filling: Option<(Arc<dyn DynStore>, usize)>,
    /// Stops and starts the server of the store.
    pub(super) outage: Option<(Switch, Switch)>,
    pub(super) clock_jump: Option<Jump>,
    /// Whether entries vanish at the end of their retention without being purged.
    pub(super) expires_by_itself: bool,
}

/// The store under test with an endpoint of the case's own.
#[derive(Clone)]
pub(super) struct Subject {
    /// One store through its handles. At least one.
    pub(super) handles: Vec<Arc<dyn DynStore>>,
    pub(super) endpoint: Arc<str>,
    pub(super) wait: Wait,
    pub(super) capabilities: Capabilities,
}

impl Subject {
    pub(super) fn store(&self) -> &dyn DynStore {
        self.handles[0].as_ref()
    }

    /// Returns an event with a plain id.
    pub(super) fn item(&self, id: &str) -> Item {
        let id = EventId::try_from(id).expect("the ids of the cases are valid");
        self.item_through(0, &id)
    }

    /// Returns an event through one of the handles. Any number is a handle.
    pub(super) fn item_through(&self, handle: usize, id: &EventId) -> Item {
        Item {
            store: Arc::clone(&self.handles[handle % self.handles.len()]),
            wait: Arc::clone(&self.wait),
            endpoint: Arc::clone(&self.endpoint),
            id: id.clone(),
        }
    }

    /// Returns the same store with another endpoint.
    pub(super) fn endpoint(&self, name: &str) -> Self {
        Self {
            endpoint: name.into(),
            ..self.clone()
        }
    }

    pub(super) async fn wait(&self, duration: Duration) {
        (self.wait)(duration).await;
    }

    /// Waits until a time of this length is over for sure.
    pub(super) async fn pass(&self, duration: Duration) {
        self.wait(duration * 2 + SHORT).await;
    }

    /// Takes up to 1,000 events that are due, for a long time.
    pub(super) async fn take(&self, token: Token) -> Result<Vec<TakenEvent>, StoreError> {
        self.take_for(token, LONG, 1_000).await
    }

    pub(super) async fn take_for(
        &self,
        token: Token,
        lease: Duration,
        limit: usize,
    ) -> Result<Vec<TakenEvent>, StoreError> {
        let take = Take {
            endpoint: &self.endpoint,
            token,
            lease,
            limit,
        };
        self.store().take(take).await
    }

    /// Waits until there is something to take.
    pub(super) async fn take_when_due(&self, token: Token) -> Result<Vec<TakenEvent>, StoreError> {
        for _ in 0..ROUNDS {
            let taken = self.take(token).await?;
            if !taken.is_empty() {
                return Ok(taken);
            }
            self.wait(SHORT).await;
        }
        Ok(Vec::new())
    }

    pub(super) async fn parked(&self) -> Result<Vec<ParkedEvent>, StoreError> {
        self.store().parked(&self.endpoint, None, 1_000).await
    }

    pub(super) async fn backlog(&self) -> Result<Backlog, StoreError> {
        self.store().backlog(&self.endpoint).await
    }
}

/// Returns the ids of taken events.
pub(super) fn ids(taken: &[TakenEvent]) -> Vec<&str> {
    taken.iter().map(|event| event.id.as_str()).collect()
}
