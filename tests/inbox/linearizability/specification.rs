//! What a store must do with one event, written down row by row as the documentation of `Store` has it.
//!
//! A time is a span: a call reads the clock of the store at some time between its start and its end. If a lease may or
//! may not be over by then, both outcomes are allowed, and what is known of its end afterwards is narrower.

use serde::{Deserialize, Serialize};

/// A time between these two, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Span {
    pub(crate) from: i64,
    pub(crate) to: i64,
}

impl Span {
    pub(crate) fn new(from: i64, to: i64) -> Self {
        Self { from, to }
    }

    pub(crate) fn contains(self, other: Self) -> bool {
        self.from <= other.from && other.to <= self.to
    }

    /// Returns the time that is this long after it.
    fn after(self, duration: i64) -> Self {
        Self::new(self.from + duration, self.to + duration)
    }

    /// Returns how long it is since an earlier time.
    fn since(self, earlier: Self) -> Self {
        Self::new(self.from - earlier.to, self.to - earlier.from)
    }

    /// Returns this time if it has come. `None`: it cannot have come.
    fn if_come(self, now: Self) -> Option<Self> {
        (self.from <= now.to).then(|| Self::new(self.from, self.to.min(now.to)))
    }

    /// Returns this time if it is still to come. `None`: it must have come.
    fn if_to_come(self, now: Self) -> Option<Self> {
        (self.to > now.from).then(|| Self::new(self.from.max(now.from), self.to))
    }
}

/// A call for one event. Tokens, bodies and reasons are numbers, and durations are microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Call {
    Claim {
        token: u64,
        lease: i64,
        retention: i64,
        body: Option<u8>,
    },
    Extend {
        token: u64,
        lease: i64,
    },
    Complete {
        token: u64,
        retention: i64,
    },
    Release {
        token: u64,
        delay: i64,
        retention: i64,
    },
    Park {
        token: u64,
        reason: u64,
    },
    Accept {
        body: u8,
    },
    Take {
        token: u64,
        lease: i64,
    },
    /// A list of parked events.
    Parked,
    Replay,
    Discard {
        retention: i64,
    },
}

impl Call {
    /// Returns the token that the call names.
    pub(crate) fn token(&self) -> Option<u64> {
        match *self {
            Self::Claim { token, .. }
            | Self::Extend { token, .. }
            | Self::Complete { token, .. }
            | Self::Release { token, .. }
            | Self::Park { token, .. }
            | Self::Take { token, .. } => Some(token),
            Self::Accept { .. } | Self::Parked | Self::Replay | Self::Discard { .. } => None,
        }
    }
}

/// What a call returned. Spans are durations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    Fresh {
        attempt: u32,
    },
    InProgress {
        remaining: Span,
    },
    Done,
    IsParked,
    Conflict,
    Accepted,
    Duplicate,
    /// Whether an entry changed.
    Changed(bool),
    Taken {
        attempt: u32,
        body: u8,
        overdue: Span,
    },
    NotTaken,
    Listed {
        attempts: u32,
        body: Option<u8>,
        reason: u64,
    },
    NotListed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Claimed,
    Waiting,
    Done,
    Parked,
}

/// What a store remembers of an event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    pub(crate) phase: Phase,
    /// Who may complete it: the holder of the claim, or who completed it.
    pub(crate) owner: Option<u64>,
    pub(crate) attempts: u32,
    /// The end of the lease or of the delay. Since when it is parked.
    pub(crate) due: Span,
    /// The end of the retention.
    pub(crate) forget: Span,
    retention: i64,
    fingerprint: Option<u8>,
    pub(crate) body: Option<u8>,
    pub(crate) reason: u64,
}

impl Entry {
    /// Returns the entry with the same times as all others, and its own ones: when it is due, and the end of the retention.
    pub(crate) fn apart_from_times(self) -> (Self, (Span, Span)) {
        let times = (self.due, self.forget);
        let (due, forget) = (Span::new(0, 0), Span::new(0, 0));
        let entry = Self {
            due,
            forget,
            ..self
        };
        (entry, times)
    }

    pub(crate) fn may_be_forgotten(&self) -> bool {
        match self.phase {
            Phase::Done => true,
            Phase::Claimed | Phase::Waiting => self.body.is_none(),
            Phase::Parked => false,
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Claimed | Phase::Waiting)
    }

    fn is_held_by(&self, token: u64) -> bool {
        self.phase == Phase::Claimed && self.owner == Some(token)
    }

    fn conflicts_with(&self, body: Option<u8>) -> bool {
        self.fingerprint.is_some() && body.is_some() && self.fingerprint != body
    }

    fn claimed(mut self, token: u64, lease: i64, retention: i64, now: Span) -> Self {
        self.phase = Phase::Claimed;
        self.owner = Some(token);
        self.attempts += 1;
        self.due = now.after(lease);
        self.retention = retention;
        self.forget = self.due.after(retention);
        self
    }

    fn waiting(mut self, delay: i64, retention: i64, now: Span) -> Self {
        self.phase = Phase::Waiting;
        self.owner = None;
        self.due = now.after(delay);
        self.forget = self.due.after(retention);
        self
    }

    fn done(mut self, retention: i64, now: Span) -> Self {
        self.phase = Phase::Done;
        self.body = None;
        self.forget = now.after(retention);
        self
    }
}

/// `None` if there is no entry.
pub(crate) type State = Option<Entry>;

/// Returns all that a call may return, each with the state that it leaves.
pub(crate) fn outcomes(state: &State, call: &Call, now: Span) -> Vec<(Answer, State)> {
    let mut outcomes = Vec::new();
    let is_new_for = matches!(call, Call::Claim { .. } | Call::Accept { .. });
    for state in when_forgotten(state, is_new_for, now) {
        outcomes.extend(outcomes_of(state, call, now));
    }
    outcomes
}

/// Returns the states that an entry may be in, depending on whether its retention is over, and whether it was deleted
/// since. A claim and a delivery must treat it as absent; other calls may find it.
fn when_forgotten(state: &State, must_be_absent: bool, now: Span) -> Vec<State> {
    let Some(entry) = state.as_ref().filter(|entry| entry.may_be_forgotten()) else {
        return vec![state.clone()];
    };
    let with = |forget| {
        let entry = entry.clone();
        Some(Entry { forget, ..entry })
    };
    let mut states = Vec::new();
    if let Some(forget) = entry.forget.if_to_come(now) {
        states.push(with(forget));
    }
    if let Some(forget) = entry.forget.if_come(now) {
        states.push(None);
        if !must_be_absent {
            states.push(with(forget));
        }
    }
    states
}

/// Returns the entry as it is if its lease or delay is over, and as it is if not.
fn by_lease(entry: &Entry, now: Span) -> (Option<Entry>, Option<Entry>) {
    let with = |due| {
        let entry = entry.clone();
        Entry { due, ..entry }
    };
    let (over, lasting) = (entry.due.if_come(now), entry.due.if_to_come(now));
    (over.map(with), lasting.map(with))
}

fn outcomes_of(state: State, call: &Call, now: Span) -> Vec<(Answer, State)> {
    match *call {
        Call::Claim {
            token,
            lease,
            retention,
            body,
        } => claim(state, (token, lease, retention), body, now),
        Call::Accept { body } => accept(state, body, now),
        Call::Take { token, lease } => take(state, token, lease, now),
        Call::Extend { token, lease } => change(state, |entry| {
            entry.is_held_by(token).then(|| {
                let due = now.after(lease);
                let forget = due.after(entry.retention);
                Entry {
                    due,
                    forget,
                    ..entry
                }
            })
        }),
        Call::Complete { token, retention } => change(state, |entry| {
            if entry.phase == Phase::Done && entry.owner == Some(token) {
                return Some(entry);
            }
            entry.is_held_by(token).then(|| entry.done(retention, now))
        }),
        Call::Release {
            token,
            delay,
            retention,
        } => change(state, |entry| {
            entry
                .is_held_by(token)
                .then(|| entry.waiting(delay, retention, now))
        }),
        Call::Park { token, reason } => change(state, |entry| {
            entry.is_held_by(token).then_some(Entry {
                phase: Phase::Parked,
                owner: None,
                reason,
                due: now,
                ..entry
            })
        }),
        Call::Replay => change(state, |entry| {
            (entry.phase == Phase::Parked).then(|| {
                let entry = entry.waiting(0, 0, now);
                Entry {
                    attempts: 0,
                    ..entry
                }
            })
        }),
        Call::Discard { retention } => change(state, |entry| {
            (entry.phase == Phase::Parked).then(|| entry.done(retention, now))
        }),
        Call::Parked => vec![(listed(state.as_ref()), state)],
    }
}

fn claim(
    state: State,
    (token, lease, retention): (u64, i64, i64),
    body: Option<u8>,
    now: Span,
) -> Vec<(Answer, State)> {
    let fresh = |entry: Entry| {
        let fingerprint = body.or(entry.fingerprint);
        let entry = Entry {
            fingerprint,
            ..entry
        };
        let entry = entry.claimed(token, lease, retention, now);
        let attempt = entry.attempts;
        (Answer::Fresh { attempt }, Some(entry))
    };
    let Some(entry) = state else {
        return vec![fresh(absent(now))];
    };
    let conflicts = entry.conflicts_with(body);
    // Without a body, an open entry takes another one when it is due.
    if conflicts && (!entry.is_open() || entry.body.is_some()) {
        return vec![(Answer::Conflict, Some(entry))];
    }
    match entry.phase {
        Phase::Done => return vec![(Answer::Done, Some(entry))],
        Phase::Parked => return vec![(Answer::IsParked, Some(entry))],
        Phase::Claimed | Phase::Waiting => {}
    }
    let (over, lasting) = by_lease(&entry, now);
    let lasting = lasting.map(|entry| {
        let answer = if conflicts {
            Answer::Conflict
        } else if entry.is_held_by(token) {
            let attempt = entry.attempts;
            Answer::Fresh { attempt }
        } else {
            let remaining = entry.due.since(now);
            Answer::InProgress { remaining }
        };
        (answer, Some(entry))
    });
    over.map(fresh).into_iter().chain(lasting).collect()
}

fn accept(state: State, body: u8, now: Span) -> Vec<(Answer, State)> {
    let accepted = |entry: Entry| {
        let entry = Entry {
            body: Some(body),
            fingerprint: Some(body),
            ..entry.waiting(0, 0, now)
        };
        (Answer::Accepted, Some(entry))
    };
    let Some(entry) = state else {
        return vec![accepted(absent(now))];
    };
    let conflicts = entry.conflicts_with(Some(body));
    if !entry.is_open() || entry.body.is_some() {
        let answer = if conflicts {
            Answer::Conflict
        } else {
            Answer::Duplicate
        };
        return vec![(answer, Some(entry))];
    }
    let (over, lasting) = by_lease(&entry, now);
    let lasting = lasting.map(|entry| {
        let answer = if conflicts {
            Answer::Conflict
        } else {
            let remaining = entry.due.since(now);
            Answer::InProgress { remaining }
        };
        (answer, Some(entry))
    });
    over.map(accepted).into_iter().chain(lasting).collect()
}

fn take(state: State, token: u64, lease: i64, now: Span) -> Vec<(Answer, State)> {
    let Some(entry) = state else {
        return vec![(Answer::NotTaken, None)];
    };
    let Some(body) = entry.body.filter(|_| entry.is_open()) else {
        return vec![(Answer::NotTaken, Some(entry))];
    };
    let (over, lasting) = by_lease(&entry, now);
    let taken = over.map(|entry| {
        let overdue = now.since(entry.due);
        let entry = entry.claimed(token, lease, 0, now);
        let attempt = entry.attempts;
        let answer = Answer::Taken {
            attempt,
            body,
            overdue,
        };
        (answer, Some(entry))
    });
    let waiting = lasting.map(|entry| (Answer::NotTaken, Some(entry)));
    taken.into_iter().chain(waiting).collect()
}

fn change(state: State, change: impl FnOnce(Entry) -> Option<Entry>) -> Vec<(Answer, State)> {
    let changed = state.clone().and_then(change);
    let is_changed = changed.is_some();
    vec![(Answer::Changed(is_changed), changed.or(state))]
}

fn listed(state: Option<&Entry>) -> Answer {
    match state {
        Some(entry) if entry.phase == Phase::Parked => Answer::Listed {
            attempts: entry.attempts,
            body: entry.body,
            reason: entry.reason,
        },
        _ => Answer::NotListed,
    }
}

fn absent(now: Span) -> Entry {
    Entry {
        phase: Phase::Waiting,
        owner: None,
        attempts: 0,
        due: now,
        forget: now,
        retention: 0,
        fingerprint: None,
        body: None,
        reason: 0,
    }
}
