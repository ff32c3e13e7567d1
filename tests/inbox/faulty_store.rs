//! A store in memory with one fault.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use audience::inbox::{
    AcceptState, Backlog, ClaimState, EventKey, Fingerprint, HeldClaim, MemoryStore, NewClaim,
    NewDelivery, ParkedEvent, Release, Store, StoreError, StoreErrorKind, Take, TakenEvent, Token,
};
use audience::webhooks::EventId;

/// What a broken store does wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fault {
    None,
    ForgetsTokens,
    IgnoresFingerprints,
    NeverLearnsFingerprints,
    EvictsSilently,
    TakesTwice,
    FoldsCase,
    TrimsIds,
    MixesEndpoints,
    KeepsBodies,
    ClaimsInTwoSteps,
    RefusesLateHolders,
    CompletesOnlyOnce,
    NeverForgets,
    ForgetsParkedEvents,
    CountsAttemptsAtRelease,
    IgnoresDelays,
    IgnoresLimits,
    TakesNewestFirst,
    CutsReasons,
    CutsBodies,
    OverflowsLeases,
    ReplaysWithOldAttempts,
    CountsNoParkedEvents,
    ReportsNoLag,
    PurgesTooMuch,
    ForgetsAcceptedEventsAtAStop,
    IsFullAfterAStop,
    Panics,
}

/// Values by endpoint and id.
type ByEvent<T> = HashMap<(String, String), T>;

/// A store in memory with one fault.
#[derive(Clone)]
pub(super) struct FaultyStore {
    store: MemoryStore,
    fault: Fault,
    is_down: Arc<AtomicBool>,
    /// Whether it gives up every third call, and every other one that took events, accepts each event again, and finds no
    /// events in its first take after it was down.
    is_hasty: bool,
    /// Whether a call was given up while it was down, and no events were taken since.
    was_down: Arc<AtomicBool>,
    calls: Arc<AtomicUsize>,
    /// How many of the next calls say that it is full.
    full_calls: Arc<AtomicUsize>,
    /// How long each claim takes.
    claim_delay: Duration,
    /// The newest token that each event was claimed with, for the faults that need it.
    tokens: Arc<Mutex<ByEvent<Token>>>,
    /// Bodies that are never deleted, for the faults that need them.
    bodies: Arc<Mutex<ByEvent<Vec<u8>>>>,
}

fn name(key: EventKey<'_>) -> (String, String) {
    (key.endpoint.to_owned(), key.id.to_string())
}

impl FaultyStore {
    pub(super) fn new(store: MemoryStore, fault: Fault) -> Self {
        Self {
            store,
            fault,
            is_down: Arc::default(),
            is_hasty: false,
            was_down: Arc::default(),
            calls: Arc::default(),
            full_calls: Arc::default(),
            claim_delay: Duration::ZERO,
            tokens: Arc::default(),
            bodies: Arc::default(),
        }
    }

    /// A store that is right, and cannot be reached for a while.
    pub(super) fn down_while(store: MemoryStore, is_down: Arc<AtomicBool>) -> Self {
        Self {
            is_down,
            ..Self::new(store, Fault::None)
        }
    }

    /// The same, and it soon gives up a call or makes it again, as on a slow machine.
    pub(super) fn hasty(store: MemoryStore, is_down: Arc<AtomicBool>) -> Self {
        Self {
            is_hasty: true,
            ..Self::down_while(store, is_down)
        }
    }

    /// A store that is right, and takes this long for each claim.
    pub(super) fn slow_claims(delay: Duration) -> Self {
        Self {
            claim_delay: delay,
            ..Self::new(MemoryStore::new(), Fault::None)
        }
    }

    /// Fails all calls until [`start`](Self::start).
    pub(super) async fn stop(&self) {
        self.is_down.store(true, Ordering::SeqCst);
        if !self.is(Fault::ForgetsAcceptedEventsAtAStop) {
            return;
        }
        let accepted = std::mem::take(&mut *self.bodies.lock().unwrap());
        let endpoints: BTreeSet<_> = accepted.into_keys().map(|(endpoint, _)| endpoint).collect();
        for endpoint in &endpoints {
            let token = Token::random();
            let take = Take::new(endpoint, token, Duration::from_secs(60), usize::MAX);
            for event in self.store.take(take).await.unwrap() {
                let held = HeldClaim::new(EventKey::new(endpoint, &event.id), token);
                self.store.complete(held, Duration::ZERO).await.unwrap();
            }
        }
    }

    pub(super) fn start(&self) {
        if self.is(Fault::IsFullAfterAStop) {
            self.full_calls.store(3, Ordering::SeqCst);
        }
        self.is_down.store(false, Ordering::SeqCst);
    }

    fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    fn check(&self) -> Result<(), StoreError> {
        assert!(!self.is(Fault::Panics), "a bug in the store");
        if self.is_down.load(Ordering::SeqCst) {
            self.was_down.store(true, Ordering::SeqCst);
            return Err(StoreError::unavailable("connection refused"));
        }
        let full_calls = self.full_calls.load(Ordering::SeqCst);
        if full_calls > 0 {
            self.full_calls.store(full_calls - 1, Ordering::SeqCst);
            return Err(StoreError::full("out of memory"));
        }
        self.give_up_each(3)
    }

    /// Fails one of so many calls if the store is hasty.
    fn give_up_each(&self, calls: usize) -> Result<(), StoreError> {
        if self.is_hasty && self.calls.fetch_add(1, Ordering::Relaxed) % calls == 1 {
            return Err(StoreError::unavailable("it did not respond in time"));
        }
        Ok(())
    }

    fn id(&self, id: &EventId) -> EventId {
        let id = match self.fault {
            Fault::FoldsCase => id.as_str().to_lowercase(),
            Fault::TrimsIds => id.as_str().trim_end_matches(' ').to_owned(),
            _ => id.to_string(),
        };
        EventId::try_from(id).unwrap()
    }

    fn endpoint<'a>(&self, endpoint: &'a str) -> &'a str {
        if self.is(Fault::MixesEndpoints) {
            return "main";
        }
        endpoint
    }

    /// Calls with the key as the fault has it.
    fn key<'a>(&self, key: EventKey<'a>, id: &'a EventId) -> EventKey<'a> {
        EventKey::new(self.endpoint(key.endpoint), id)
    }

    fn remember(&self, key: EventKey<'_>, token: Token) {
        self.tokens.lock().unwrap().insert(name(key), token);
    }

    /// The claim as the fault has it: with `ForgetsTokens`, any token is right.
    fn held<'a>(&self, held: HeldClaim<'a>, id: &'a EventId) -> HeldClaim<'a> {
        let key = self.key(held.key, id);
        let token = match self.tokens.lock().unwrap().get(&name(key)) {
            Some(token) if self.is(Fault::ForgetsTokens) => *token,
            _ => held.token,
        };
        HeldClaim::new(key, token)
    }

    /// Looks whether the event was claimed, and then writes a claim without looking again.
    async fn claim_in_two_steps(&self, claim: NewClaim<'_>) -> Result<ClaimState, StoreError> {
        let was_seen = self.tokens.lock().unwrap().contains_key(&name(claim.key));
        tokio::task::yield_now().await;
        self.remember(claim.key, claim.token);
        match self.store.claim(claim).await? {
            ClaimState::InProgress { .. } if !was_seen => Ok(ClaimState::Fresh { attempt: 1 }),
            state => Ok(state),
        }
    }

    async fn is_late(&self, key: EventKey<'_>) -> Result<bool, StoreError> {
        // A claim that lasts zero shows whether the lease has ended, and keeps it that way.
        let probe = NewClaim::new(key, Token::random(), Duration::ZERO, Duration::ZERO);
        Ok(matches!(
            self.store.claim(probe).await?,
            ClaimState::Fresh { .. }
        ))
    }
}

impl Store for FaultyStore {
    async fn claim(&self, claim: NewClaim<'_>) -> Result<ClaimState, StoreError> {
        self.check()?;
        if !self.claim_delay.is_zero() {
            tokio::time::sleep(self.claim_delay).await;
        }
        let id = self.id(claim.key.id);
        let mut claim = claim;
        claim.key = self.key(claim.key, &id);
        match self.fault {
            Fault::IgnoresFingerprints => claim.fingerprint = None,
            Fault::OverflowsLeases if claim.lease > Duration::from_secs(1 << 33) => {
                claim.lease = Duration::ZERO;
            }
            Fault::ClaimsInTwoSteps => return self.claim_in_two_steps(claim).await,
            _ => {}
        }
        let state = match self.store.claim(claim).await {
            Err(error)
                if self.is(Fault::EvictsSilently) && error.kind() == StoreErrorKind::Full =>
            {
                ClaimState::Fresh { attempt: 1 }
            }
            state => state?,
        };
        if matches!(state, ClaimState::Fresh { .. }) {
            self.remember(claim.key, claim.token);
        }
        match state {
            ClaimState::Fresh { attempt } if self.is(Fault::CountsAttemptsAtRelease) => {
                Ok(ClaimState::Fresh {
                    attempt: attempt.min(2),
                })
            }
            state => Ok(state),
        }
    }

    async fn extend(&self, held: HeldClaim<'_>, lease: Duration) -> Result<bool, StoreError> {
        self.check()?;
        let id = self.id(held.key.id);
        self.store.extend(self.held(held, &id), lease).await
    }

    async fn complete(&self, held: HeldClaim<'_>, retention: Duration) -> Result<bool, StoreError> {
        self.check()?;
        let id = self.id(held.key.id);
        let held = self.held(held, &id);
        if self.is(Fault::RefusesLateHolders) && self.is_late(held.key).await? {
            return Ok(false);
        }
        if self.is(Fault::CompletesOnlyOnce)
            && !self.store.extend(held, Duration::from_secs(3_600)).await?
        {
            return Ok(false);
        }
        let retention = match self.fault {
            Fault::NeverForgets => Duration::MAX,
            _ => retention,
        };
        self.store.complete(held, retention).await
    }

    async fn release(&self, held: HeldClaim<'_>, release: Release<'_>) -> Result<bool, StoreError> {
        self.check()?;
        let id = self.id(held.key.id);
        let held = self.held(held, &id);
        let delay = match self.fault {
            Fault::IgnoresDelays => Duration::ZERO,
            _ => release.delay,
        };
        let release = Release::new(delay, release.retention, release.reason);
        let released = self.store.release(held, release).await?;
        let body = self.bodies.lock().unwrap().get(&name(held.key)).cloned();
        if let Some(body) = body.filter(|_| self.is(Fault::KeepsBodies)) {
            // The body that an earlier event of this id left comes to light.
            let fingerprint = Fingerprint::of(&body);
            let delivery = NewDelivery::new(held.key, &body, fingerprint);
            self.store.accept(delivery).await?;
        }
        Ok(released)
    }

    async fn park(&self, held: HeldClaim<'_>, reason: &str) -> Result<bool, StoreError> {
        self.check()?;
        let id = self.id(held.key.id);
        let held = self.held(held, &id);
        match self.fault {
            Fault::ForgetsParkedEvents => self.store.complete(held, Duration::ZERO).await,
            Fault::CutsReasons => self.store.park(held, cut(reason)).await,
            _ => self.store.park(held, reason).await,
        }
    }

    async fn accept(&self, delivery: NewDelivery<'_>) -> Result<AcceptState, StoreError> {
        self.check()?;
        let id = self.id(delivery.key.id);
        let key = self.key(delivery.key, &id);
        let mut delivery = NewDelivery::new(key, delivery.body, delivery.fingerprint);
        match self.fault {
            Fault::IgnoresFingerprints | Fault::NeverLearnsFingerprints => {
                delivery.fingerprint = Fingerprint::of(b"");
            }
            Fault::CutsBodies => {
                let body = delivery.body;
                let end = body.iter().position(|byte| *byte == 0);
                delivery.body = &body[..end.unwrap_or(body.len())];
            }
            Fault::KeepsBodies | Fault::ForgetsAcceptedEventsAtAStop => {
                let body = delivery.body.to_vec();
                self.bodies.lock().unwrap().insert(name(key), body);
            }
            _ => {}
        }
        if self.is_hasty {
            self.store.accept(delivery).await?;
        }
        match self.store.accept(delivery).await {
            Err(error)
                if self.is(Fault::EvictsSilently) && error.kind() == StoreErrorKind::Full =>
            {
                Ok(AcceptState::Accepted)
            }
            state => state,
        }
    }

    async fn take(&self, take: Take<'_>) -> Result<Vec<TakenEvent>, StoreError> {
        self.check()?;
        if self.is_hasty && self.was_down.swap(false, Ordering::SeqCst) {
            // The call that was given up still holds them.
            return Ok(Vec::new());
        }
        let mut take = Take::new(
            self.endpoint(take.endpoint),
            take.token,
            take.lease,
            take.limit,
        );
        match self.fault {
            Fault::IgnoresLimits => take.limit = usize::MAX,
            Fault::TakesTwice => take.lease = take.lease.min(Duration::ZERO),
            _ => {}
        }
        let mut taken = self.store.take(take).await?;
        if !taken.is_empty() {
            self.give_up_each(2)?;
        }
        for event in &taken {
            let key = EventKey::new(take.endpoint, &event.id);
            self.remember(key, take.token);
        }
        if self.is(Fault::TakesNewestFirst) {
            taken.reverse();
        }
        Ok(taken)
    }

    async fn parked(
        &self,
        endpoint: &str,
        after: Option<&EventId>,
        limit: usize,
    ) -> Result<Vec<ParkedEvent>, StoreError> {
        self.check()?;
        let limit = match self.fault {
            Fault::IgnoresLimits => usize::MAX,
            _ => limit,
        };
        self.store
            .parked(self.endpoint(endpoint), after, limit)
            .await
    }

    async fn replay(&self, key: EventKey<'_>) -> Result<bool, StoreError> {
        self.check()?;
        let id = self.id(key.id);
        let key = self.key(key, &id);
        let replayed = self.store.replay(key).await?;
        if replayed && self.is(Fault::ReplaysWithOldAttempts) {
            self.is_late(key).await?;
        }
        Ok(replayed)
    }

    async fn discard(&self, key: EventKey<'_>, retention: Duration) -> Result<bool, StoreError> {
        self.check()?;
        let id = self.id(key.id);
        self.store.discard(self.key(key, &id), retention).await
    }

    async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
        self.check()?;
        let limit = match self.fault {
            Fault::PurgesTooMuch => usize::MAX,
            _ => limit,
        };
        self.store.purge(limit).await
    }

    async fn backlog(&self, endpoint: &str) -> Result<Backlog, StoreError> {
        self.check()?;
        let mut backlog = self.store.backlog(self.endpoint(endpoint)).await?;
        match self.fault {
            Fault::CountsNoParkedEvents => backlog.parked = 0,
            Fault::ReportsNoLag => backlog.lag = Duration::ZERO,
            _ => {}
        }
        Ok(backlog)
    }
}

/// The text up to 255 bytes.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(255);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
