//! The state of one event as a function of what happened to it. The time is an input.

use std::time::{Duration, SystemTime};

use super::store::{AcceptState, ClaimState, Fingerprint, NewClaim, Token};

/// The longest time that is added: a thousand years. A longer one counts as this one.
const LONGEST: Duration = Duration::from_secs(1_000 * 365 * 24 * 3_600);

/// An event that a store remembers. `B` is what the store keeps of a body: the bytes, or where they are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Entry<B> {
    pub(super) state: State,
    /// The token of the newest claim. It is kept when the event is done, so that completing twice is no error.
    pub(super) token: Option<Token>,
    pub(super) attempts: u32,
    pub(super) fingerprint: Option<Fingerprint>,
    pub(super) body: Option<B>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum State {
    /// Claimed, or waiting. It can be claimed from `due` on.
    Open {
        due: SystemTime,
        is_claimed: bool,
        /// When it may be forgotten, unless it has a body.
        forget_at: SystemTime,
    },
    Done {
        forget_at: SystemTime,
    },
    Parked {
        since: SystemTime,
        reason: String,
    },
}

impl<B> Entry<B> {
    pub(super) fn new(now: SystemTime) -> Self {
        Self {
            state: State::Open {
                due: now,
                is_claimed: false,
                forget_at: remembered(now, Duration::ZERO, now),
            },
            token: None,
            attempts: 0,
            fingerprint: None,
            body: None,
        }
    }

    /// Returns when the entry may be forgotten. `None`: not before it changes.
    pub(super) fn forget_at(&self) -> Option<SystemTime> {
        match self.state {
            State::Open { .. } if self.body.is_some() => None,
            State::Open { forget_at, .. } | State::Done { forget_at } => Some(forget_at),
            State::Parked { .. } => None,
        }
    }

    /// Returns whether the entry may be forgotten.
    pub(super) fn is_past(&self, now: SystemTime) -> bool {
        self.forget_at().is_some_and(|forget_at| forget_at <= now)
    }

    /// Makes the entry a new one if it may be forgotten.
    pub(super) fn forget_if_past(&mut self, now: SystemTime) {
        if self.is_past(now) {
            *self = Self::new(now);
        }
    }

    /// Returns when a worker may take the event. `None`: not before it changes.
    pub(super) fn due(&self) -> Option<SystemTime> {
        match self.state {
            State::Open { due, .. } if self.body.is_some() => Some(due),
            _ => None,
        }
    }

    pub(super) fn claim(&mut self, claim: &NewClaim<'_>, now: SystemTime) -> ClaimState {
        match self.claim_state(claim.fingerprint, now) {
            ClaimState::Fresh { .. } => {
                self.fingerprint = claim.fingerprint.or(self.fingerprint);
                self.start(claim.token, claim.lease, claim.retention, now)
            }
            // The caller lost the response to its claim, and asks again.
            ClaimState::InProgress { .. } if self.is_held(claim.token) => ClaimState::Fresh {
                attempt: self.attempts,
            },
            state => state,
        }
    }

    /// Returns what a claim with a new token would return.
    pub(super) fn claim_state(
        &self,
        fingerprint: Option<Fingerprint>,
        now: SystemTime,
    ) -> ClaimState {
        if self.conflicts_with(fingerprint, now) {
            return ClaimState::Conflict;
        }
        // The fingerprint was compared first: another body is a conflict even if the event is done.
        match &self.state {
            State::Done { .. } => ClaimState::Done,
            State::Parked { .. } => ClaimState::Parked,
            State::Open { due, .. } => match remaining(*due, now) {
                Some(remaining) => ClaimState::InProgress { remaining },
                None => ClaimState::Fresh {
                    attempt: self.attempts.saturating_add(1),
                },
            },
        }
    }

    pub(super) fn start(
        &mut self,
        token: Token,
        lease: Duration,
        retention: Duration,
        now: SystemTime,
    ) -> ClaimState {
        let due = later(now, lease);
        self.token = Some(token);
        self.attempts = self.attempts.saturating_add(1);
        self.state = State::Open {
            due,
            is_claimed: true,
            // The retention begins at the end of the lease: no entry is forgotten while its claim lasts.
            forget_at: remembered(due, retention, now),
        };
        ClaimState::Fresh {
            attempt: self.attempts,
        }
    }

    /// Stores the body that the closure returns. Returns `None` if the closure does, because there is no room.
    pub(super) fn accept(
        &mut self,
        body: impl FnOnce() -> Option<B>,
        fingerprint: Fingerprint,
        now: SystemTime,
    ) -> Option<AcceptState> {
        if self.conflicts_with(Some(fingerprint), now) {
            return Some(AcceptState::Conflict);
        }
        let due = match self.state {
            State::Open { due, .. } if self.body.is_none() => due,
            _ => return Some(AcceptState::Duplicate),
        };
        // Accepting an event ends its claim, because `wait` forgets the token. That must not happen while the claim
        // lasts.
        if let Some(remaining) = remaining(due, now) {
            return Some(AcceptState::InProgress { remaining });
        }
        self.body = Some(body()?);
        self.fingerprint = Some(fingerprint);
        self.wait(Duration::ZERO, Duration::ZERO, now);
        Some(AcceptState::Accepted)
    }

    pub(super) fn extend(&mut self, token: Token, lease: Duration, now: SystemTime) -> bool {
        let is_open = self.is_held(token);
        if let State::Open { due, forget_at, .. } = &mut self.state
            && is_open
        {
            // The retention moves with the lease, or a long handler would outlive its entry.
            let retention = forget_at.duration_since(*due).unwrap_or_default();
            *due = later(now, lease);
            *forget_at = remembered(*due, retention, now);
        }
        is_open
    }

    pub(super) fn complete(&mut self, token: Token, retention: Duration, now: SystemTime) -> bool {
        if matches!(self.state, State::Done { .. }) {
            // The holder lost the response to its call, and completes again.
            return self.token == Some(token);
        }
        let is_held = self.is_held(token);
        if is_held {
            self.finish(retention, now);
        }
        is_held
    }

    pub(super) fn release(
        &mut self,
        token: Token,
        delay: Duration,
        retention: Duration,
        now: SystemTime,
    ) -> bool {
        let is_held = self.is_held(token);
        if is_held {
            self.wait(delay, retention, now);
        }
        is_held
    }

    pub(super) fn park(&mut self, token: Token, reason: &str, now: SystemTime) -> bool {
        let is_held = self.is_held(token);
        if is_held {
            // Without a token, the old holder cannot complete the event after it was discarded.
            self.token = None;
            self.state = State::Parked {
                since: now,
                reason: reason.to_owned(),
            };
        }
        is_held
    }

    pub(super) fn replay(&mut self, now: SystemTime) -> bool {
        let is_parked = matches!(self.state, State::Parked { .. });
        if is_parked {
            self.attempts = 0;
            self.wait(Duration::ZERO, Duration::ZERO, now);
        }
        is_parked
    }

    pub(super) fn discard(&mut self, retention: Duration, now: SystemTime) -> bool {
        let is_parked = matches!(self.state, State::Parked { .. });
        if is_parked {
            self.finish(retention, now);
        }
        is_parked
    }

    fn is_held(&self, token: Token) -> bool {
        // The token decides, not the time: after its lease, a holder may still complete if there was no other claim
        // since.
        matches!(
            self.state,
            State::Open {
                is_claimed: true,
                ..
            }
        ) && self.token == Some(token)
    }

    fn conflicts_with(&self, fingerprint: Option<Fingerprint>, now: SystemTime) -> bool {
        // No attempt is known to have succeeded, and no body is stored. If another body were a conflict, the event would be
        // lost.
        let takes_any = match self.state {
            State::Open { due, .. } => self.body.is_none() && remaining(due, now).is_none(),
            State::Done { .. } | State::Parked { .. } => false,
        };
        let differs =
            self.fingerprint.is_some() && fingerprint.is_some() && self.fingerprint != fingerprint;
        differs && !takes_any
    }

    fn wait(&mut self, delay: Duration, retention: Duration, now: SystemTime) {
        let due = later(now, delay);
        self.token = None;
        self.state = State::Open {
            due,
            is_claimed: false,
            forget_at: remembered(due, retention, now),
        };
    }

    fn finish(&mut self, retention: Duration, now: SystemTime) {
        self.body = None;
        self.state = State::Done {
            forget_at: remembered(now, retention, now),
        };
    }
}

/// Returns until when an entry is remembered that is due, or done, at this time.
fn remembered(due: SystemTime, retention: Duration, now: SystemTime) -> SystemTime {
    match due <= now && retention.is_zero() {
        // An entry that is forgotten immediately stays so, also if the clock jumps back.
        true => SystemTime::UNIX_EPOCH,
        false => later(due, retention),
    }
}

fn later(time: SystemTime, by: Duration) -> SystemTime {
    time.checked_add(by.min(LONGEST)).unwrap_or(time)
}

/// Returns how long it is until `due`. `None` if that time has come.
fn remaining(due: SystemTime, now: SystemTime) -> Option<Duration> {
    due.duration_since(now).ok().filter(|left| !left.is_zero())
}
