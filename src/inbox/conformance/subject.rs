//! The store under test as a case sees it, and what a case does with it.

use std::error::Error;
use std::fmt::{Debug, Display};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::ClockJump;
use crate::inbox::error::StoreError;
use crate::inbox::store::{
    AcceptState, Backlog, ClaimState, DynStore, EventKey, Fingerprint, HeldClaim, NewClaim,
    NewDelivery, ParkedEvent, Release, Take, TakenEvent, Token,
};
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

/// What a case found: nothing, or what was expected and what happened.
pub(super) type Verdict = Result<(), Failed>;

/// What was expected and what happened.
#[derive(Debug)]
pub(super) struct Failed(pub(super) String);

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        let cause = error
            .source()
            .map_or_else(String::new, |source| format!(": {source}"));
        Self(format!("a call failed: {error}{cause}"))
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "cases compare values that they do not keep"
)]
pub(super) fn expect_eq<T: PartialEq + Debug>(
    what: impl Display,
    actual: T,
    expected: T,
) -> Verdict {
    expect(actual == expected, || {
        format!("{what}: expected {expected:?}, got {actual:?}")
    })
}

pub(super) fn expect(holds: bool, message: impl FnOnce() -> String) -> Verdict {
    if holds {
        Ok(())
    } else {
        Err(Failed(message()))
    }
}

/// Compares bodies without printing them.
pub(super) fn expect_body(what: impl Display, actual: &[u8], expected: &[u8]) -> Verdict {
    expect(actual == expected, || {
        format!(
            "{what}: expected the {} bytes that were stored, got {} bytes that differ",
            expected.len(),
            actual.len()
        )
    })
}

/// One thing that every store must do.
#[derive(Clone, Copy)]
pub(super) struct Case {
    /// The name of its function: a sentence.
    pub(super) function: &'static str,
    pub(super) needs: Needs,
    pub(super) run: fn(Subject) -> BoxFuture<Verdict>,
}

/// What a case needs beside the store.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Needs {
    Nothing,
    Filling,
    Outage,
    ClockJump,
    /// A store whose entries stay until they are purged.
    Purge,
}

impl Case {
    pub(super) fn name(&self) -> String {
        self.function.replace('_', " ")
    }
}

impl Needs {
    /// Returns why a case cannot run.
    pub(super) fn missing(self, capabilities: &Capabilities) -> Option<&'static str> {
        let (is_met, missing) = match self {
            Self::Nothing => (true, ""),
            Self::Filling => (
                capabilities.filling.is_some(),
                "needs a small store: `filling`",
            ),
            Self::Outage => (capabilities.outage.is_some(), "needs `outage`"),
            Self::ClockJump => (capabilities.clock_jump.is_some(), "needs `clock_jump`"),
            Self::Purge => (
                !capabilities.expires_by_itself,
                "the store forgets without a purge: `expires_by_itself`",
            ),
        };
        (!is_met).then_some(missing)
    }
}

/// Lists functions as cases.
macro_rules! cases {
    ($list:ident, $needs:ident: $($function:ident),+ $(,)?) => {
        pub(super) const $list: &[$crate::inbox::conformance::subject::Case] = &[$(
            $crate::inbox::conformance::subject::Case {
                function: stringify!($function),
                needs: $crate::inbox::conformance::subject::Needs::$needs,
                run: |subject| Box::pin($function(subject)),
            }
        ),+];
    };
}

// A time that must not end during a case is an hour, and a time that must end is waited for as long as it takes.
// So a slow machine makes a run longer, but does not change its result.

/// A time that does not end during a case.
pub(super) const LONG: Duration = Duration::from_secs(3_600);
/// A time that a case waits for.
pub(super) const SHORT: Duration = Duration::from_millis(20);
/// How often a case waits for something that should happen.
pub(super) const ROUNDS: usize = 400;

pub(super) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
/// Waits, or moves the store's clock.
pub(super) type Wait = Arc<dyn Fn(Duration) -> BoxFuture<()> + Send + Sync>;

pub(super) use cases;
