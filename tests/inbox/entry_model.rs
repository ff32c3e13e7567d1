//! Checks every order in which holders, an operator, a purge and time can act on the entry of one event, within bounds.
//! The transitions are the crate's own file, which the stores in memory and in SQLite run. The model adds:
//!
//! - Holders, which are receivers and workers. Each claims or takes the event, extends its lease, and completes,
//!   releases or parks it. It can stop at any point: because its process dies, or because it gives up.
//! - Calls on their way to the store. Each is applied at any later time, even after its caller gave up, or never. The
//!   response can be lost after the call was applied; then the caller makes the same call again, or gives up. A restart
//!   of the store loses the calls on their way and nothing else, so it is covered by the loss of each call.
//! - Time in steps. A holder that does nothing while time passes is a holder that pauses, for any time. Transitions
//!   depend on differences of times only. So the model leaves the clock where it is, and moves all other times back.
//! - Deliveries that are accepted, an operator who replays and discards, and a purge.
//!
//! [`Promised`] is what the responses so far promise. It learns from responses only, never from the entry.
//!
//! The short models have 346,798 and 9,543 states, and take 10 to 20 s. `AUDIENCE_LONG_TESTS=1` checks larger ones with
//! 3,368,670, 2,744,318 and 3,037,900 states, which take 80 s in a release build. The test prints the sizes.

use std::collections::BTreeSet;
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use audience::inbox::{AcceptState, ClaimState, EventKey, Fingerprint, NewClaim, Token};
use audience::webhooks::EventId;
use stateright::{Checker, Expectation, HasDiscoveries, Model, Property};

// As it is imported from there.
mod store {
    pub(super) use audience::inbox::{AcceptState, ClaimState, Fingerprint, NewClaim, Token};
}
#[path = "../../src/inbox/entry.rs"]
mod entry;

use entry::{Entry, State};

#[test]
fn every_order_of_calls_keeps_the_promises_of_a_lease() {
    let models = match std::env::var_os("AUDIENCE_LONG_TESTS") {
        None => SHORT,
        Some(_) => LONG,
    };
    let mut found = BTreeSet::new();
    for model in models {
        let checker = model.clone().checker().threads(2);
        let checker = checker.finish_when(HasDiscoveries::AnyFailures);
        let checker = checker.spawn_bfs().join();
        println!(
            "{model:?}: {} states, {} transitions",
            checker.unique_state_count(),
            checker.state_count(),
        );
        for (property, path) in checker.discoveries() {
            let is_example = model.property(property).expectation == Expectation::Sometimes;
            let world = path.last_state().clone();
            assert!(
                is_example,
                "{property}: {:#?} lead to {world:#?}",
                path.into_actions()
            );
            found.insert(property);
        }
    }
    for property in SHORT[0].properties() {
        let is_needed = property.expectation == Expectation::Sometimes;
        assert!(
            !is_needed || found.contains(property.name),
            "not reached: {}",
            property.name
        );
    }
}

/// How large the model is.
#[derive(Clone, Debug)]
struct Protocol {
    holders: usize,
    /// How many calls are on their way to the store, at most.
    calls: usize,
    /// The bodies of the deliveries with this id. `None` is a claim of an event whose body is not known.
    bodies: &'static [Option<u8>],
    /// How often the event is claimed, at most, until it is replayed or forgotten.
    attempts: u32,
}

const SHORT: &[Protocol] = &[
    Protocol {
        holders: 2,
        calls: 2,
        bodies: &[Some(0)],
        attempts: 2,
    },
    // With another body, which is a conflict or the next attempt.
    Protocol {
        holders: 1,
        calls: 1,
        bodies: &[None, Some(0), Some(1)],
        attempts: 3,
    },
];
const LONG: &[Protocol] = &[
    Protocol {
        holders: 3,
        calls: 2,
        bodies: &[Some(0)],
        attempts: 2,
    },
    Protocol {
        holders: 2,
        calls: 3,
        bodies: &[Some(0)],
        attempts: 2,
    },
    Protocol {
        holders: 2,
        calls: 2,
        bodies: &[None, Some(0), Some(1)],
        attempts: 3,
    },
];

const LEASE: u8 = 2;
/// After a release.
const DELAY: u8 = 1;
const RETENTION: u8 = 2;

/// A state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    entry: Option<Entry<u8>>,
    holders: Vec<Holder>,
    calls: Vec<Call>,
    promised: Promised,
    /// The first promise that was not kept.
    broken: Option<&'static str>,
}

/// A receiver or a worker. Each claim has a token of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Holder {
    Idle,
    /// Waits for the response to a claim, since it was made for the first time.
    Claims {
        token: u8,
        since: u8,
        claim: Operation,
    },
    Runs {
        token: u8,
        /// How long it can be sure that its lease lasts: counted from its last call, not from the response.
        sure: u8,
        /// How long it has been waiting for the response to an extension.
        extends: Option<u8>,
    },
    /// Waits for the response to the call that ends its claim. It can make another call that ends it, too: after a
    /// release without a response, a program may complete.
    Ends {
        token: u8,
        end: Operation,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Call {
    operation: Operation,
    token: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Operation {
    Claim { body: Option<u8> },
    Take,
    Extend,
    Complete,
    Release,
    Park,
}

const ENDING: [Operation; 3] = [Operation::Complete, Operation::Release, Operation::Park];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Action {
    TimePasses,
    /// A holder makes a call, for the first time or again.
    Calls(usize, Operation),
    /// A holder dies, or gives up.
    Stops(usize),
    /// A holder no longer waits for the response to its extension.
    GivesUpExtension(usize),
    Applies(usize, Response),
    /// A call does not arrive.
    Loses(usize),
    Accepts(u8),
    Replays,
    Discards,
    Purges,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Response {
    Arrives,
    IsLost,
}

// The promises, as a user would say them. Each is a property of the model.

const ONE_HOLDER: &str = "no two holders can be sure of a lease at the same time";
const SURE: &str = "a holder that is sure of its lease has it";
const LEASE_LASTS: &str = "an event is not handed out while its lease or its delay lasts";
const LEASE_ENDS: &str = "an event is handed out when its lease and its delay are over";
const SAME_CLAIM: &str = "a claim that is made again with its token is the same claim";
const DONE_ONCE: &str = "an event that is done is not handed out, accepted or completed by another within its retention";
const ONLY_HOLDER: &str =
    "only the holder of the newest claim extends, completes, releases and parks";
const HOLDER_CAN: &str =
    "the holder of the newest claim extends, completes, releases and parks, even late";
const ACCEPTED_KEPT: &str = "an accepted event is waiting, in progress or parked until it is done";
const PARKED_KEPT: &str = "a parked event is parked until it is replayed or discarded";
const OPERATOR: &str = "a parked event, and no other, is replayed and discarded";
const COUNTED: &str = "attempts are the claims since the event was new or replayed";
const TIME_LEFT: &str = "an event in progress says how long its lease or its delay lasts";
const CONFLICTS: &str =
    "another body is a conflict unless the event is due and not stored, and the same body is none";
const REMEMBERED: &str = "an entry can be forgotten when its retention is over, and not before";
const UNCHANGED: &str = "a refused call changes nothing";
const BODY: &str = "a body is kept from its acceptance until its event is done, and no longer";
const TAKEN: &str = "only accepted events are taken";
const ENDS: &str = "an accepted event ends as done or as parked when the faults end";

/// What the responses so far promise.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Promised {
    phase: Phase,
    /// The holder of the newest claim, or who completed the event.
    holder: Option<u8>,
    /// How long the lease or the delay lasts.
    busy: u8,
    /// How long after that the entry is remembered. It is forgotten at zero, unless the event is kept.
    remembered: u8,
    is_accepted: bool,
    attempts: u32,
    body: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Open,
    Done,
    Parked,
}

impl Promised {
    const NOTHING: Self = Self {
        phase: Phase::Open,
        holder: None,
        busy: 0,
        remembered: 0,
        is_accepted: false,
        attempts: 0,
        body: None,
    };

    fn is_forgotten(&self) -> bool {
        let is_kept = self.is_accepted || self.phase == Phase::Parked;
        !is_kept && self.busy == 0 && self.remembered == 0
    }

    fn forget_if_past(&mut self) {
        if self.is_forgotten() {
            *self = Self::NOTHING;
        }
    }

    fn is_open_for(&self, token: u8) -> bool {
        self.phase == Phase::Open && self.holder == Some(token)
    }

    fn conflicts_with(&self, body: Option<u8>) -> bool {
        let takes_any = self.phase == Phase::Open && self.busy == 0 && !self.is_accepted;
        !takes_any && self.body.is_some() && body.is_some() && self.body != body
    }

    /// Returns the promise that handing the event out now breaks.
    fn hand_out(&mut self, token: u8, attempt: u32) -> Option<&'static str> {
        let broken = match self.phase {
            Phase::Done => Some(DONE_ONCE),
            Phase::Parked => Some(PARKED_KEPT),
            Phase::Open if self.busy > 0 => Some(LEASE_LASTS),
            Phase::Open => None,
        };
        self.holder = Some(token);
        self.wait(LEASE);
        self.attempts += 1;
        broken.or((attempt != self.attempts).then_some(COUNTED))
    }

    fn claimed(&mut self, token: u8, body: Option<u8>, state: ClaimState) -> Option<&'static str> {
        self.forget_if_past();
        let conflicts = self.conflicts_with(body);
        if conflicts != (state == ClaimState::Conflict) {
            return Some(CONFLICTS);
        }
        match state {
            ClaimState::Fresh { attempt } if self.is_open_for(token) && self.busy > 0 => {
                (attempt != self.attempts).then_some(SAME_CLAIM)
            }
            ClaimState::Fresh { attempt } => {
                self.body = body.or(self.body);
                self.hand_out(token, attempt)
            }
            ClaimState::InProgress { .. } if self.is_open_for(token) && self.busy > 0 => {
                Some(SAME_CLAIM)
            }
            ClaimState::InProgress { .. } if self.phase != Phase::Open || self.busy == 0 => {
                Some(LEASE_ENDS)
            }
            ClaimState::InProgress { remaining } => {
                (remaining != steps(self.busy)).then_some(TIME_LEFT)
            }
            ClaimState::Done => (self.phase != Phase::Done).then_some(LEASE_ENDS),
            ClaimState::Parked => (self.phase != Phase::Parked).then_some(LEASE_ENDS),
            _ => None,
        }
    }

    fn taken(&mut self, token: u8, attempt: Option<u32>) -> Option<&'static str> {
        let is_due = self.is_accepted && self.phase == Phase::Open && self.busy == 0;
        match attempt {
            Some(_) if !self.is_accepted => Some(TAKEN),
            Some(attempt) => self.hand_out(token, attempt),
            None => is_due.then_some(LEASE_ENDS),
        }
    }

    fn accepted(&mut self, body: u8, state: AcceptState) -> Option<&'static str> {
        self.forget_if_past();
        let conflicts = self.conflicts_with(Some(body));
        if conflicts != (state == AcceptState::Conflict) {
            return Some(CONFLICTS);
        }
        let is_duplicate = self.is_accepted || self.phase != Phase::Open;
        match state {
            AcceptState::Accepted if self.phase == Phase::Done => Some(DONE_ONCE),
            AcceptState::Accepted if self.phase == Phase::Parked => Some(PARKED_KEPT),
            AcceptState::Accepted if self.is_accepted => Some(ACCEPTED_KEPT),
            AcceptState::Accepted if self.busy > 0 => Some(LEASE_LASTS),
            AcceptState::Accepted => {
                self.is_accepted = true;
                self.body = Some(body);
                self.holder = None;
                self.remembered = 0;
                None
            }
            // The sender would not deliver it again.
            AcceptState::Duplicate => (!is_duplicate).then_some(ACCEPTED_KEPT),
            AcceptState::InProgress { .. } if is_duplicate || self.busy == 0 => Some(LEASE_ENDS),
            AcceptState::InProgress { remaining } => {
                (remaining != steps(self.busy)).then_some(TIME_LEFT)
            }
            _ => None,
        }
    }

    /// A holder called to extend or to end its claim.
    fn called(&mut self, operation: Operation, token: u8, is_held: bool) -> Option<&'static str> {
        let completes_again = self.phase == Phase::Done
            && operation == Operation::Complete
            && self.holder == Some(token);
        let holds = completes_again || self.is_open_for(token);
        if is_held && !holds {
            return Some(match self.phase {
                Phase::Done => DONE_ONCE,
                Phase::Parked => PARKED_KEPT,
                Phase::Open => ONLY_HOLDER,
            });
        }
        if !is_held {
            // A purge or a claim may have ended a claim that is past its retention.
            return (holds && !self.is_forgotten()).then_some(HOLDER_CAN);
        }
        if completes_again {
            return None;
        }
        match operation {
            Operation::Extend => self.wait(LEASE),
            Operation::Complete => self.end(),
            Operation::Release => {
                self.holder = None;
                self.wait(DELAY);
            }
            Operation::Park => {
                self.phase = Phase::Parked;
                self.holder = None;
                (self.busy, self.remembered) = (0, 0);
            }
            Operation::Claim { .. } | Operation::Take => unreachable!("they are no such calls"),
        }
        None
    }

    fn replayed(&mut self, was_parked: bool) -> Option<&'static str> {
        if was_parked != (self.phase == Phase::Parked) {
            return Some(OPERATOR);
        }
        if was_parked {
            self.phase = Phase::Open;
            self.attempts = 0;
        }
        None
    }

    fn discarded(&mut self, was_parked: bool) -> Option<&'static str> {
        if was_parked != (self.phase == Phase::Parked) {
            return Some(OPERATOR);
        }
        if was_parked {
            self.end();
        }
        None
    }

    fn wait(&mut self, busy: u8) {
        self.busy = busy;
        self.remembered = if self.is_accepted { 0 } else { RETENTION };
    }

    fn end(&mut self) {
        self.phase = Phase::Done;
        self.busy = 0;
        self.remembered = RETENTION;
        self.is_accepted = false;
    }

    fn pass_time(&mut self) {
        if self.busy > 0 {
            self.busy -= 1;
        } else {
            self.remembered = self.remembered.saturating_sub(1);
        }
    }
}

impl World {
    fn new(holders: usize) -> Self {
        Self {
            entry: None,
            holders: vec![Holder::Idle; holders],
            calls: Vec::new(),
            promised: Promised::NOTHING,
            broken: None,
        }
    }

    fn after(&self, action: Action) -> Self {
        let mut world = self.clone();
        let broken = match action {
            Action::TimePasses => world.pass_time(),
            Action::Calls(holder, operation) => world.call(holder, operation),
            Action::Stops(holder) => {
                world.holders[holder] = Holder::Idle;
                None
            }
            Action::GivesUpExtension(holder) => {
                if let Holder::Runs { extends, .. } = &mut world.holders[holder] {
                    *extends = None;
                }
                None
            }
            Action::Applies(call, response) => {
                let call = world.calls.remove(call);
                world.apply(call, response)
            }
            Action::Loses(call) => {
                world.calls.remove(call);
                None
            }
            Action::Accepts(body) => world.accept(body),
            Action::Replays => {
                let replayed = world.change(|entry| entry.replay(now()));
                world.promised.replayed(replayed)
            }
            Action::Discards => {
                let discarded = world.change(|entry| entry.discard(steps(RETENTION), now()));
                world.promised.discarded(discarded)
            }
            Action::Purges => {
                world.purge();
                None
            }
        };
        world.broken = broken;
        world.sort();
        world
    }

    fn pass_time(&mut self) -> Option<&'static str> {
        if let Some(entry) = &mut self.entry {
            pass_time(entry);
        }
        for holder in &mut self.holders {
            match holder {
                Holder::Claims { since, .. } => *since = LEASE.min(*since + 1),
                Holder::Runs { sure, extends, .. } => {
                    *sure = sure.saturating_sub(1);
                    *extends = extends.map(|since| LEASE.min(since + 1));
                }
                Holder::Idle | Holder::Ends { .. } => {}
            }
        }
        self.promised.pass_time();
        None
    }

    fn call(&mut self, holder: usize, operation: Operation) -> Option<&'static str> {
        let unused = self.tokens().max().map_or(0, |token| token + 1);
        let holder = &mut self.holders[holder];
        let token = match holder {
            Holder::Idle => {
                *holder = Holder::Claims {
                    token: unused,
                    since: 0,
                    claim: operation,
                };
                unused
            }
            Holder::Runs { token, extends, .. } if operation == Operation::Extend => {
                *extends = Some(0);
                *token
            }
            Holder::Runs { token, .. } | Holder::Ends { token, .. } => {
                let token = *token;
                *holder = Holder::Ends {
                    token,
                    end: operation,
                };
                token
            }
            Holder::Claims { token, .. } => *token,
        };
        self.calls.push(Call { operation, token });
        None
    }

    fn apply(&mut self, call: Call, response: Response) -> Option<&'static str> {
        let Call { operation, token } = call;
        let before = self.entry.clone();
        let (is_success, broken) = match operation {
            Operation::Claim { body } => {
                let mut claim = NewClaim::new(
                    EventKey::new("main", &EVENT),
                    name(token),
                    steps(LEASE),
                    steps(RETENTION),
                );
                claim.fingerprint = body.map(fingerprint);
                let state = self.entry_or_new().claim(&claim, now());
                let is_fresh = matches!(state, ClaimState::Fresh { .. });
                (is_fresh, self.promised.claimed(token, body, state))
            }
            Operation::Take => {
                let taken = self.take(token);
                (taken.is_some(), self.promised.taken(token, taken))
            }
            _ => {
                let is_held = self.change(|entry| match operation {
                    Operation::Extend => entry.extend(name(token), steps(LEASE), now()),
                    Operation::Complete => entry.complete(name(token), steps(RETENTION), now()),
                    Operation::Release => {
                        entry.release(name(token), steps(DELAY), steps(RETENTION), now())
                    }
                    _ => entry.park(name(token), "reason", now()),
                });
                (is_held, self.promised.called(operation, token, is_held))
            }
        };
        if response == Response::Arrives {
            self.respond(call, is_success);
        }
        let is_changed = !is_success && self.entry != before;
        broken.or(is_changed.then_some(UNCHANGED))
    }

    /// Tells the holder that made a call, if it still waits, whether it succeeded.
    fn respond(&mut self, call: Call, is_success: bool) {
        for holder in &mut self.holders {
            match *holder {
                Holder::Claims {
                    token,
                    since,
                    claim,
                } if (token, claim) == (call.token, call.operation) => {
                    *holder = match is_success {
                        true => Holder::Runs {
                            token,
                            sure: LEASE - since,
                            extends: None,
                        },
                        false => Holder::Idle,
                    };
                }
                Holder::Runs {
                    token,
                    sure,
                    extends: Some(since),
                } if (token, Operation::Extend) == (call.token, call.operation) => {
                    *holder = Holder::Runs {
                        token,
                        sure: if is_success {
                            sure.max(LEASE - since)
                        } else {
                            0
                        },
                        extends: None,
                    };
                }
                Holder::Ends { token, end } if (token, end) == (call.token, call.operation) => {
                    *holder = Holder::Idle;
                }
                _ => {}
            }
        }
    }

    fn take(&mut self, token: u8) -> Option<u32> {
        let entry = self.entry.as_mut()?;
        if !is_due(entry) {
            return None;
        }
        entry.start(name(token), steps(LEASE), Duration::ZERO, now());
        Some(entry.attempts)
    }

    fn accept(&mut self, body: u8) -> Option<&'static str> {
        let before = self.entry.clone();
        let accepted = self
            .entry_or_new()
            .accept(|| Some(body), fingerprint(body), now())
            .expect("there is room");
        let is_changed = accepted != AcceptState::Accepted && self.entry != before;
        let broken = self.promised.accepted(body, accepted);
        broken.or(is_changed.then_some(UNCHANGED))
    }

    fn purge(&mut self) {
        if self.entry.as_ref().is_some_and(may_be_forgotten) {
            self.entry = None;
            // If it was not to be forgotten, the promises and the missing entry do not agree.
            self.promised.forget_if_past();
        }
    }

    // As the stores do it.

    fn entry_or_new(&mut self) -> &mut Entry<u8> {
        let entry = self.entry.get_or_insert_with(|| Entry::new(now()));
        entry.forget_if_past(now());
        entry
    }

    fn change(&mut self, change: impl FnOnce(&mut Entry<u8>) -> bool) -> bool {
        self.entry.as_mut().is_some_and(change)
    }

    // The names of holders and tokens make no difference, so worlds that differ only in them are made equal.

    fn sort(&mut self) {
        let newest = self.entry.as_ref().and_then(|entry| entry.token);
        self.holders.sort_by_key(|holder| {
            let is_newest = newest.is_some() && holder.token().map(name) == newest;
            (is_newest, holder.with_token(0))
        });
        let mut names = Vec::new();
        for token in self.tokens() {
            if !names.contains(&token) {
                names.push(token);
            }
        }
        let rename = |token: u8| {
            let place = names.iter().position(|name| *name == token);
            u8::try_from(place.expect("all were collected")).expect("there are few")
        };
        if let Some(entry) = &mut self.entry {
            entry.token = entry.token.map(|token| name(rename(token.as_bytes()[0])));
        }
        self.promised.holder = self.promised.holder.map(rename);
        for holder in &mut self.holders {
            *holder = holder
                .token()
                .map_or(*holder, |token| holder.with_token(rename(token)));
        }
        for call in &mut self.calls {
            call.token = rename(call.token);
        }
        self.calls.sort_unstable();
    }

    fn tokens(&self) -> impl Iterator<Item = u8> {
        let of_entry = self.entry.as_ref().and_then(|entry| entry.token);
        let of_entry = of_entry.map(|token| token.as_bytes()[0]);
        let of_holders = self.holders.iter().filter_map(Holder::token);
        let of_calls = self.calls.iter().map(|call| call.token);
        of_entry
            .into_iter()
            .chain(self.promised.holder)
            .chain(of_holders)
            .chain(of_calls)
    }
}

impl Holder {
    fn token(&self) -> Option<u8> {
        match *self {
            Self::Idle => None,
            Self::Claims { token, .. } | Self::Runs { token, .. } | Self::Ends { token, .. } => {
                Some(token)
            }
        }
    }

    fn with_token(mut self, new: u8) -> Self {
        match &mut self {
            Self::Idle => {}
            Self::Claims { token, .. } | Self::Runs { token, .. } | Self::Ends { token, .. } => {
                *token = new;
            }
        }
        self
    }

    fn is_sure(&self) -> bool {
        matches!(self, Self::Runs { sure: 1.., .. })
    }
}

static EVENT: LazyLock<EventId> =
    LazyLock::new(|| EventId::try_from("evt_1").expect("it is valid"));

fn name(token: u8) -> Token {
    Token::from_bytes([token; 16])
}

fn fingerprint(body: u8) -> Fingerprint {
    Fingerprint::from_bytes([body; 16])
}

fn steps(steps: u8) -> Duration {
    Duration::from_secs(steps.into())
}

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_000)
}

/// Moves the times of an entry one step back, until all are past.
fn pass_time(entry: &mut Entry<u8>) {
    match &mut entry.state {
        State::Open { due, forget_at, .. } if (*due).max(*forget_at) > now() => {
            *due -= steps(1);
            *forget_at -= steps(1);
        }
        State::Done { forget_at } if *forget_at > now() => *forget_at -= steps(1),
        _ => {}
    }
}

fn may_be_forgotten(entry: &Entry<u8>) -> bool {
    entry
        .forget_at()
        .is_some_and(|forget_at| forget_at <= now())
}

fn is_due(entry: &Entry<u8>) -> bool {
    entry.due().is_some_and(|due| due <= now())
}

impl Model for Protocol {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self.holders)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.broken.is_some() {
            return;
        }
        for (index, call) in world.calls.iter().enumerate() {
            if index > 0 && world.calls[index - 1] == *call {
                continue;
            }
            actions.push(Action::Applies(index, Response::Arrives));
            if world
                .holders
                .iter()
                .any(|holder| holder.token() == Some(call.token))
            {
                actions.push(Action::Applies(index, Response::IsLost));
            }
            actions.push(Action::Loses(index));
        }
        for (index, holder) in world.holders.iter().enumerate() {
            if index > 0 && world.holders[index - 1] == *holder {
                continue;
            }
            if *holder != Holder::Idle {
                actions.push(Action::Stops(index));
            }
            if let Holder::Runs {
                extends: Some(_), ..
            } = holder
            {
                actions.push(Action::GivesUpExtension(index));
            }
            if world.calls.len() == self.calls {
                continue;
            }
            let mut calls = |operation| actions.push(Action::Calls(index, operation));
            match *holder {
                Holder::Idle => {
                    calls(Operation::Take);
                    for body in self.bodies {
                        calls(Operation::Claim { body: *body });
                    }
                }
                // With its token again, it would take another event.
                Holder::Claims {
                    claim: Operation::Take,
                    ..
                } => {}
                Holder::Claims { claim, .. } => calls(claim),
                Holder::Runs { extends, .. } => {
                    if extends.is_none() {
                        calls(Operation::Extend);
                    }
                    ENDING.into_iter().for_each(calls);
                }
                Holder::Ends { .. } => ENDING.into_iter().for_each(calls),
            }
        }
        actions.extend(self.bodies.iter().flatten().copied().map(Action::Accepts));
        actions.extend([
            Action::TimePasses,
            Action::Replays,
            Action::Discards,
            Action::Purges,
        ]);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        Some(world.after(action))
    }

    fn within_boundary(&self, world: &World) -> bool {
        world.promised.attempts <= self.attempts || world.broken.is_some()
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            // Of responses.
            Property::<Self>::always(LEASE_LASTS, |_, world| world.broken != Some(LEASE_LASTS)),
            Property::<Self>::always(LEASE_ENDS, |_, world| world.broken != Some(LEASE_ENDS)),
            Property::<Self>::always(SAME_CLAIM, |_, world| world.broken != Some(SAME_CLAIM)),
            Property::<Self>::always(DONE_ONCE, |_, world| world.broken != Some(DONE_ONCE)),
            Property::<Self>::always(ONLY_HOLDER, |_, world| world.broken != Some(ONLY_HOLDER)),
            Property::<Self>::always(HOLDER_CAN, |_, world| world.broken != Some(HOLDER_CAN)),
            Property::<Self>::always(OPERATOR, |_, world| world.broken != Some(OPERATOR)),
            Property::<Self>::always(COUNTED, |_, world| world.broken != Some(COUNTED)),
            Property::<Self>::always(TIME_LEFT, |_, world| world.broken != Some(TIME_LEFT)),
            Property::<Self>::always(CONFLICTS, |_, world| world.broken != Some(CONFLICTS)),
            Property::<Self>::always(TAKEN, |_, world| world.broken != Some(TAKEN)),
            Property::<Self>::always(UNCHANGED, |_, world| world.broken != Some(UNCHANGED)),
            // Of the entry and its holders.
            Property::<Self>::always(ONE_HOLDER, |_, world| {
                world
                    .holders
                    .iter()
                    .filter(|holder| holder.is_sure())
                    .count()
                    <= 1
            }),
            Property::<Self>::always(SURE, |_, world| {
                world
                    .holders
                    .iter()
                    .all(|holder| world.can_be_sure(*holder))
            }),
            Property::<Self>::always(ACCEPTED_KEPT, |_, world| {
                world.broken != Some(ACCEPTED_KEPT)
                    && (!world.promised.is_accepted || world.is_kept())
            }),
            Property::<Self>::always(PARKED_KEPT, |_, world| {
                let is_parked = world
                    .entry
                    .as_ref()
                    .is_some_and(|entry| matches!(entry.state, State::Parked { .. }));
                world.broken != Some(PARKED_KEPT)
                    && (world.promised.phase == Phase::Parked) == is_parked
            }),
            Property::<Self>::always(BODY, |_, world| {
                let has_body = world
                    .entry
                    .as_ref()
                    .is_some_and(|entry| entry.body.is_some());
                has_body == world.promised.is_accepted
            }),
            Property::<Self>::always(REMEMBERED, |_, world| {
                world.entry.as_ref().is_none_or(may_be_forgotten) == world.promised.is_forgotten()
            }),
            Property::<Self>::always(ENDS, |protocol, world| {
                world.ends(protocol, true) && world.ends(protocol, false)
            }),
            // The model reaches what it is about.
            Property::<Self>::sometimes("a late holder and the next one run", |_, world| {
                let running = |holder: &&Holder| matches!(holder, Holder::Runs { .. });
                world.holders.iter().filter(running).count() > 1
            }),
            Property::<Self>::sometimes("the response to a completion was lost", |_, world| {
                let completes = |holder: &Holder| matches!(holder, Holder::Ends { end: Operation::Complete, token } if Some(*token) == world.promised.holder);
                world.promised.phase == Phase::Done && world.holders.iter().any(completes)
            }),
            Property::<Self>::sometimes(
                "a call of a holder that died is on its way",
                |_, world| {
                    let is_alone = |call: &Call| {
                        world
                            .holders
                            .iter()
                            .all(|holder| holder.token() != Some(call.token))
                    };
                    world.calls.iter().any(is_alone)
                },
            ),
            Property::<Self>::sometimes("the same call is on its way twice", |_, world| {
                world.calls.windows(2).any(|calls| calls[0] == calls[1])
            }),
            Property::<Self>::sometimes(
                "the last attempt of an accepted event ended with its process",
                |protocol, world| {
                    let is_due = world.entry.as_ref().is_some_and(is_due);
                    is_due && world.promised.attempts == protocol.attempts
                },
            ),
            Property::<Self>::sometimes(
                "an event was discarded while its old holder runs",
                |_, world| {
                    let runs = |holder: &Holder| matches!(holder, Holder::Runs { .. });
                    let is_discarded =
                        world.promised.phase == Phase::Done && world.promised.holder.is_none();
                    is_discarded && world.holders.iter().any(runs)
                },
            ),
        ]
    }
}

impl World {
    /// Returns whether the lease that a holder is sure of is its own, and lasts as long as it thinks.
    fn can_be_sure(&self, holder: Holder) -> bool {
        let Holder::Runs {
            token,
            sure: sure @ 1..,
            ..
        } = holder
        else {
            return true;
        };
        self.entry.as_ref().is_some_and(|entry| {
            let lasts = matches!(entry.state, State::Open { due, is_claimed: true, .. } if due >= now() + steps(sure));
            lasts && entry.token == Some(name(token))
        })
    }

    fn is_kept(&self) -> bool {
        self.entry.as_ref().is_some_and(|entry| {
            entry.body.is_some()
                && entry.body == self.promised.body
                && entry.forget_at().is_none()
                && !matches!(entry.state, State::Done { .. })
        })
    }

    /// Returns whether an accepted event ends if from now on one worker runs without faults, and nobody else does
    /// anything: a worker whose handler succeeds, or one whose handler always fails.
    fn ends(&self, protocol: &Protocol, succeeds: bool) -> bool {
        let Some(mut entry) = self.entry.clone().filter(|_| self.promised.is_accepted) else {
            return true;
        };
        let is_parked = |entry: &Entry<u8>| matches!(entry.state, State::Parked { .. });
        if is_parked(&entry) && !(entry.replay(now()) && entry.attempts == 0) {
            return false;
        }
        let worker = name(u8::MAX);
        // Its process may have ended after the last attempt, so the next claim can be one more.
        for _ in 0..=protocol.attempts {
            for _ in 0..LEASE.max(DELAY) {
                pass_time(&mut entry);
            }
            if !is_due(&entry) {
                return false;
            }
            entry.start(worker, steps(LEASE), Duration::ZERO, now());
            if succeeds {
                let is_done = |entry: &Entry<u8>| matches!(entry.state, State::Done { .. });
                return entry.complete(worker, steps(RETENTION), now()) && is_done(&entry);
            }
            if entry.attempts >= protocol.attempts {
                return entry.park(worker, "reason", now()) && is_parked(&entry);
            }
            if !entry.release(worker, steps(DELAY), steps(RETENTION), now()) {
                return false;
            }
        }
        false
    }
}
