//! Decides whether the calls for one event, some of them simultaneous, could have been made one after the other.
//!
//! It is the search of Wing and Gong (*Testing and verifying concurrent objects*, 1993): choose a call that began before
//! any other one ended as the first, apply it to the specification, and go on with the rest. A call without a response may
//! be chosen at any time after its start, or never. To be quick:
//!
//! - As Lowe does (*Testing for linearizability*, 2017), what was tried is remembered, and calls that end sooner are tried
//!   first. What was tried also rules out what allows less: the same state with narrower times, or with more of the calls
//!   without a response used up.
//! - A call that was refused is chosen as soon as the state explains it, without trying another one in its place: whatever
//!   could precede it can follow it.
//! - A call without a response is chosen only if it has an effect, and of several equal ones the first. A token that no other
//!   call names makes no difference.
//! - Orders with few of them are tried first.

use std::collections::HashMap;
use std::fmt::{self, Write};

use super::specification::{Answer, Call, Entry, Span, State, outcomes};

/// A run of a call for one event, as its caller saw it.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) call: Call,
    pub(crate) run: Run,
    /// The place of its start among all starts and ends.
    pub(crate) start: u64,
    /// The time of the store's clock.
    pub(crate) time: Span,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Run {
    /// The call returned what this run returned.
    Last {
        answer: Answer,
        /// The place of its end among all starts and ends.
        end: u64,
    },
    /// The store may have made the call before, within the same call.
    Earlier,
    /// The response was lost, or was an error. It may take effect at any time, or never.
    Lost,
}

impl Run {
    fn end(self) -> u64 {
        match self {
            Self::Last { end, .. } => end,
            Self::Earlier | Self::Lost => u64::MAX,
        }
    }

    fn is_last(self) -> bool {
        matches!(self, Self::Last { .. })
    }
}

/// Calls for which no order was found.
pub(crate) struct Unexplained {
    operations: Vec<Operation>,
    /// The longest order that explains the first of them.
    explained: Vec<usize>,
    /// Whether all orders were tried.
    pub(crate) is_violation: bool,
}

/// After so many steps, it is not decided whether there is an order.
const MAX_STEPS: usize = 1_000_000;

/// Returns how many steps were needed to find an order.
pub(crate) fn find_order(operations: Vec<Operation>) -> Result<usize, Unexplained> {
    find_order_within(MAX_STEPS, operations)
}

fn find_order_within(
    max_steps: usize,
    mut operations: Vec<Operation>,
) -> Result<usize, Unexplained> {
    forget_tokens(&mut operations);
    operations.sort_by_key(|operation| (operation.run.end(), operation.start));
    let mut search = Search {
        operations: &operations,
        equal_before: equal_before(&operations),
        chosen: Set::new(operations.len()),
        order: Vec::new(),
        longest: Vec::new(),
        tried: HashMap::new(),
        may_choose: 0,
        lacked_choices: false,
        steps: 0,
        max_steps,
    };
    for may_choose in [0, 1, 2, 3, 4, 6, 8, 12, 16, usize::MAX] {
        search.may_choose = may_choose;
        search.lacked_choices = false;
        search.tried.clear();
        if search.is_explained(&None) {
            return Ok(search.steps);
        }
        if !search.lacked_choices || search.steps == max_steps {
            break;
        }
    }
    let is_violation = search.steps < max_steps;
    let explained = search.longest;
    Err(Unexplained {
        operations,
        explained,
        is_violation,
    })
}

/// Gives the same token to all lost calls whose token no other call names.
fn forget_tokens(operations: &mut [Operation]) {
    let tokens: Vec<_> = operations.iter().map(|each| each.call.token()).collect();
    for operation in operations {
        let is_lost = operation.run == Run::Lost;
        if let (Call::Claim { token, .. } | Call::Take { token, .. }, true) =
            (&mut operation.call, is_lost)
        {
            let named = tokens.iter().filter(|each| **each == Some(*token));
            if named.count() == 1 {
                *token = FORGOTTEN;
            }
        }
    }
}

/// No call has this token.
const FORGOTTEN: u64 = 0;

/// Returns for each lost call the last equal one before it.
fn equal_before(operations: &[Operation]) -> Vec<Option<usize>> {
    let lost = |at: &usize| operations[*at].run == Run::Lost;
    let is_equal = |at: usize, other: usize| {
        let (at, other) = (&operations[at], &operations[other]);
        (at.call, at.time.to) == (other.call, other.time.to)
    };
    let before = |at: usize| {
        (0..at)
            .rev()
            .filter(lost)
            .find(|other| is_equal(at, *other))
    };
    let all = 0..operations.len();
    all.map(|at| before(at).filter(|_| lost(&at))).collect()
}

struct Search<'a> {
    /// Those that end sooner come first.
    operations: &'a [Operation],
    equal_before: Vec<Option<usize>>,
    chosen: Set,
    order: Vec<usize>,
    longest: Vec<usize>,
    /// What cannot be explained: after which last runs, in which state without its times, and with which times and other
    /// runs.
    tried: HashMap<(Set, State), Vec<(Times, Set)>>,
    /// How many calls without a response may still be chosen.
    may_choose: usize,
    /// Whether more of them could have been chosen.
    lacked_choices: bool,
    steps: usize,
    max_steps: usize,
}

/// When the entry is due, and when it may be forgotten.
type Times = Option<(Span, Span)>;

impl Search<'_> {
    /// Returns whether the calls that are not chosen yet can follow.
    fn is_explained(&mut self, state: &State) -> bool {
        let operations = self.operations;
        let rest: Vec<usize> = (0..operations.len())
            .filter(|at| !self.chosen.has(*at))
            .collect();
        let first = rest.first().map(|at| operations[*at].run);
        let Some(Run::Last { end: first_end, .. }) = first else {
            return true;
        };
        if self.steps == self.max_steps || self.was_tried(state) {
            return false;
        }
        self.steps += 1;
        let next: Vec<usize> = rest
            .into_iter()
            .filter(|at| operations[*at].start < first_end)
            .filter(|at| operations[*at].run != Run::Earlier || self.is_before_last_run(*at))
            .filter(|at| self.equal_before[*at].is_none_or(|before| self.chosen.has(before)))
            .collect();
        let mut choices = Vec::new();
        for at in next {
            let operation = &operations[at];
            for (answer, after) in outcomes(state, &operation.call, operation.time) {
                let is_last = match &operation.run {
                    Run::Last { answer: seen, .. } if !answer.allows(seen) => continue,
                    Run::Last { answer: seen, .. } => {
                        if after == *state && seen.is_refusal() && !self.has_earlier_run(at) {
                            return self.can_follow(at, &after);
                        }
                        true
                    }
                    Run::Earlier | Run::Lost => false,
                };
                if !is_last && !has_effect(state, &after) {
                    continue;
                }
                match is_last || self.may_choose > 0 {
                    true => choices.push((at, after)),
                    false => self.lacked_choices = true,
                }
            }
        }
        choices
            .into_iter()
            .any(|(at, after)| self.can_follow(at, &after))
    }

    fn can_follow(&mut self, at: usize, after: &State) -> bool {
        let is_last = self.operations[at].run.is_last();
        self.may_choose -= usize::from(!is_last);
        self.chosen.insert(at);
        self.order.push(at);
        if self.order.len() > self.longest.len() {
            self.longest.clone_from(&self.order);
        }
        let is_explained = self.is_explained(after);
        self.order.pop();
        self.chosen.remove(at);
        self.may_choose += usize::from(!is_last);
        is_explained
    }

    /// Returns whether the last run of the same call is not chosen yet.
    fn is_before_last_run(&self, earlier: usize) -> bool {
        self.runs_of_call(earlier)
            .any(|at| self.operations[at].run.is_last())
    }

    fn has_earlier_run(&self, last: usize) -> bool {
        self.runs_of_call(last)
            .any(|at| self.operations[at].run == Run::Earlier)
    }

    /// Returns the runs of a call that are not chosen yet.
    fn runs_of_call(&self, at: usize) -> impl Iterator<Item = usize> {
        let start = self.operations[at].start;
        let runs = (0..self.operations.len()).filter(move |at| self.operations[*at].start == start);
        runs.filter(|at| !self.chosen.has(*at))
    }

    /// Returns whether this, or something that allows more, was tried. Remembers it otherwise.
    fn was_tried(&mut self, state: &State) -> bool {
        let (mut last, mut others) = (self.chosen.clone(), self.chosen.clone());
        for (at, operation) in self.operations.iter().enumerate() {
            match operation.run.is_last() {
                true => others.remove(at),
                false => last.remove(at),
            }
        }
        let (state, times) = state.clone().map(Entry::apart_from_times).unzip();
        let tried = self.tried.entry((last, state)).or_default();
        let covers = |(tried_times, tried_others): &(Times, Set), times: &Times, others: &Set| {
            let covers_times = match (tried_times, times) {
                (Some((due, forget)), Some(times)) => {
                    due.contains(times.0) && forget.contains(times.1)
                }
                _ => true,
            };
            covers_times && tried_others.is_subset(others)
        };
        if tried.iter().any(|tried| covers(tried, &times, &others)) {
            return true;
        }
        let new = (times, others);
        tried.retain(|old| !covers(&new, &old.0, &old.1));
        tried.push(new);
        false
    }
}

/// Returns whether a call did more than to show that a time has come, or has not come yet.
fn has_effect(before: &State, after: &State) -> bool {
    let (Some(before), Some(after)) = (before, after) else {
        // Whoever finds an entry that may be forgotten can also find none.
        return after.is_some();
    };
    let (before, (due, forget)) = before.clone().apart_from_times();
    let (after, times) = after.clone().apart_from_times();
    before != after || !due.contains(times.0) || !forget.contains(times.1)
}

/// A set of small numbers.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Set(Box<[u64]>);

impl Set {
    fn new(numbers: usize) -> Self {
        Self(vec![0; numbers.div_ceil(64)].into())
    }

    fn has(&self, number: usize) -> bool {
        self.0[number / 64] & (1 << (number % 64)) != 0
    }

    fn insert(&mut self, number: usize) {
        self.0[number / 64] |= 1 << (number % 64);
    }

    fn remove(&mut self, number: usize) {
        self.0[number / 64] &= !(1 << (number % 64));
    }

    fn is_subset(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(a, b)| a & !b == 0)
    }
}

/// How far a duration that a store returned may be off: stores round times, and the clock of the machine is adjusted.
const ROUNDING: i64 = 50_000;

impl Answer {
    /// Returns whether no call that returns this has an effect.
    fn is_refusal(&self) -> bool {
        !matches!(
            self,
            Self::Fresh { .. } | Self::Accepted | Self::Changed(true) | Self::Taken { .. }
        )
    }

    /// Returns whether a call that returns this may have returned what was seen.
    fn allows(&self, seen: &Self) -> bool {
        let is_near = |allowed: &Span, seen: &Span| {
            allowed.from - ROUNDING <= seen.to && seen.from <= allowed.to + ROUNDING
        };
        match (self, seen) {
            (
                Self::InProgress { remaining },
                Self::InProgress {
                    remaining: seen_remaining,
                },
            ) => is_near(remaining, seen_remaining),
            (
                Self::Taken {
                    attempt,
                    body,
                    overdue,
                },
                Self::Taken {
                    attempt: seen_attempt,
                    body: seen_body,
                    overdue: seen_overdue,
                },
            ) => (attempt, body) == (seen_attempt, seen_body) && is_near(overdue, seen_overdue),
            _ => self == seen,
        }
    }
}

impl fmt::Display for Unexplained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |at: usize| {
            let mut line = String::new();
            let operation = &self.operations[at];
            let (end, answer) = match operation.run {
                Run::Last { answer, end } => (end.to_string(), format!("{answer:?}")),
                run => ("?".to_owned(), format!("{run:?}")),
            };
            write!(
                line,
                "{:>6}..{end:<6} {:>9}..{:<9} us {:?}: {answer}",
                operation.start, operation.time.from, operation.time.to, operation.call,
            )?;
            Ok::<_, fmt::Error>(line)
        };
        writeln!(f, "This order explains the longest part:")?;
        for at in &self.explained {
            writeln!(f, "{}", line(*at)?)?;
        }
        match self.is_violation {
            true => writeln!(f, "No order explains these, too:")?,
            false => writeln!(f, "Not decided: too many orders may explain these, too:")?,
        }
        let mut rest: Vec<usize> = (0..self.operations.len()).collect();
        rest.retain(|at| !self.explained.contains(at));
        rest.sort_by_key(|at| self.operations[*at].start);
        for at in rest {
            writeln!(f, "{}", line(at)?)?;
        }
        Ok(())
    }
}

const HOUR: i64 = 3_600_000_000;

/// A call with its place in the order of starts and ends, which is also its time in milliseconds. Without an answer, its
/// response was lost.
fn operation(start: u64, end: u64, call: Call, answer: impl Into<Option<Answer>>) -> Operation {
    let time = |at: u64| i64::try_from(at).unwrap() * 1_000;
    let (run, last) = match answer.into() {
        Some(answer) => (Run::Last { answer, end }, end),
        None => (Run::Lost, 1_000),
    };
    Operation {
        call,
        run,
        start,
        time: Span::new(time(start), time(last)),
    }
}

fn claim(token: u64) -> Call {
    Call::Claim {
        token,
        lease: HOUR,
        retention: HOUR,
        body: None,
    }
}

fn complete(token: u64) -> Call {
    let retention = HOUR;
    Call::Complete { token, retention }
}

fn release(token: u64) -> Call {
    Call::Release {
        token,
        delay: 0,
        retention: HOUR,
    }
}

const FIRST: Answer = Answer::Fresh { attempt: 1 };
const SECOND: Answer = Answer::Fresh { attempt: 2 };

#[test]
fn calls_that_some_order_explains_are_no_violation() {
    let histories = [
        vec![],
        // One after the other.
        vec![
            operation(0, 1, claim(1), FIRST),
            operation(2, 3, complete(1), Answer::Changed(true)),
            operation(4, 5, claim(2), Answer::Done),
        ],
        // Simultaneous calls in the other order.
        vec![
            operation(0, 9, complete(1), Answer::Changed(true)),
            operation(1, 2, claim(1), FIRST),
            operation(3, 8, claim(2), Answer::Done),
        ],
        // A claim that is made again with its token, after the event was completed and forgotten.
        vec![
            operation(0, 1, claim(1), FIRST),
            operation(
                2,
                5,
                Call::Complete {
                    token: 1,
                    retention: 0,
                },
                Answer::Changed(true),
            ),
            operation(3, 6, claim(1), FIRST),
            operation(7, 8, complete(1), Answer::Changed(true)),
            operation(9, 10, claim(2), Answer::Done),
        ],
        // Without a response, and yet it took effect, late.
        vec![
            operation(0, 0, release(1), None),
            operation(1, 2, claim(1), FIRST),
            operation(
                3,
                4,
                Call::Extend {
                    token: 1,
                    lease: HOUR,
                },
                Answer::Changed(true),
            ),
            operation(5, 6, claim(2), SECOND),
        ],
        // Without a response, and it never took effect.
        vec![
            operation(0, 0, complete(1), None),
            operation(1, 2, claim(1), FIRST),
            operation(3, 4, release(1), Answer::Changed(true)),
            operation(5, 6, claim(2), SECOND),
        ],
    ];
    for history in histories {
        if let Err(violation) = find_order(history) {
            panic!("{violation}");
        }
    }
}

#[test]
fn calls_that_no_order_explains_are_a_violation() {
    let accept = Call::Accept { body: 0 };
    let take = |token| Call::Take { token, lease: HOUR };
    let zero = Span::new(0, 0);
    let taken = |attempt| Answer::Taken {
        attempt,
        body: 0,
        overdue: zero,
    };
    let histories = [
        // Two holders.
        vec![
            operation(0, 1, claim(1), FIRST),
            operation(2, 3, claim(2), SECOND),
        ],
        // Simultaneous calls, and both are the first.
        vec![
            operation(0, 3, claim(1), FIRST),
            operation(1, 2, claim(2), FIRST),
        ],
        // Completed by somebody who never held it.
        vec![
            operation(0, 1, claim(1), FIRST),
            operation(2, 3, complete(2), Answer::Changed(true)),
        ],
        // A confirmed completion is lost.
        vec![
            operation(0, 1, claim(1), FIRST),
            operation(2, 3, complete(1), Answer::Changed(true)),
            operation(4, 5, release(1), Answer::Changed(true)),
        ],
        // It took effect before it began.
        vec![
            operation(0, 1, claim(1), FIRST),
            operation(2, 3, claim(2), Answer::Done),
            operation(4, 5, complete(1), Answer::Changed(true)),
        ],
        // The same without a response.
        vec![
            operation(0, 1, claim(1), FIRST),
            operation(2, 3, claim(2), Answer::Done),
            operation(4, 4, complete(1), None),
        ],
        // Without a response, and it took effect twice.
        vec![
            operation(0, 1, claim(1), FIRST),
            operation(2, 2, release(1), None),
            operation(3, 4, claim(2), SECOND),
            operation(5, 6, claim(3), Answer::Fresh { attempt: 3 }),
        ],
        // An accepted event that two workers took, one that nobody took, and one that is gone.
        vec![
            operation(0, 1, accept, Answer::Accepted),
            operation(2, 5, take(1), taken(1)),
            operation(3, 4, take(2), taken(1)),
        ],
        vec![
            operation(0, 1, accept, Answer::Accepted),
            operation(2, 3, take(1), Answer::NotTaken),
        ],
        vec![
            operation(0, 1, accept, Answer::Accepted),
            operation(2, 3, claim(1), Answer::Done),
        ],
        // The remaining time is not that of the lease.
        vec![
            operation(0, 1, claim(1), FIRST),
            operation(
                2,
                3,
                claim(2),
                Answer::InProgress {
                    remaining: Span::new(HOUR / 2, HOUR / 2),
                },
            ),
        ],
        // Parked, and then neither listed nor taken.
        vec![
            operation(0, 1, claim(1), FIRST),
            operation(
                2,
                3,
                Call::Park {
                    token: 1,
                    reason: 7,
                },
                Answer::Changed(true),
            ),
            operation(4, 5, Call::Parked, Answer::NotListed),
        ],
    ];
    for history in histories {
        let text = format!("{history:?}");
        assert!(find_order(history).is_err(), "{text}");
    }
}

/// An event that a store accepted twice, because it lost the first response.
#[test]
fn a_call_may_have_run_once_more_for_each_lost_run_and_not_without_one() {
    let accept = Call::Accept { body: 0 };
    let last = operation(0, 5, accept, Answer::Duplicate);
    let lost = operation(0, 5, accept, None);
    let taken = Answer::Taken {
        attempt: 1,
        body: 0,
        overdue: Span::new(0, 0),
    };
    let take = operation(6, 7, Call::Take { token: 1, lease: 0 }, taken);

    assert!(find_order(vec![last.clone()]).is_err());
    assert!(find_order(vec![lost.clone(), last.clone()]).is_ok());
    assert!(find_order(vec![lost, last, take]).is_ok());
}

#[test]
fn an_earlier_run_of_a_call_precedes_the_last_one_and_can_be_without_effect() {
    let claim_of = |token| Call::Claim {
        token,
        lease: 0,
        retention: HOUR,
        body: None,
    };
    let claim = claim_of(1);
    let earlier = Operation {
        run: Run::Earlier,
        ..operation(0, 0, claim, FIRST)
    };
    let third = Answer::Fresh { attempt: 3 };

    let is_explained = |operations: Vec<Operation>| find_order(operations).is_ok();

    // Claimed, by another one, and again.
    let between = operation(1, 2, claim_of(2), SECOND);
    assert!(is_explained(vec![
        earlier.clone(),
        between.clone(),
        operation(0, 3, claim, third)
    ]));
    assert!(!is_explained(vec![between, operation(0, 3, claim, third)]));
    assert!(is_explained(vec![
        earlier.clone(),
        operation(0, 3, claim, FIRST)
    ]));
    // Not after the last run.
    assert!(!is_explained(vec![
        earlier,
        operation(0, 3, claim, FIRST),
        operation(4, 5, claim_of(2), third)
    ]));
}

#[test]
fn a_history_with_too_many_orders_is_not_decided_and_no_violation() {
    let claim = |token| Call::Claim {
        token,
        lease: 0,
        retention: HOUR,
        body: None,
    };
    // Each may have taken effect, and none explains the last completion.
    let claims = (1..8).map(|at| operation(at, 0, claim(at), None));
    let completions = (1..8).map(|at| operation(at, 0, complete(at), None));
    let mut history: Vec<_> = claims.chain(completions).collect();
    history.push(operation(100, 101, complete(9), Answer::Changed(true)));

    let unexplained = find_order_within(50, history.clone()).err().unwrap();

    assert!(!unexplained.is_violation);
    assert!(unexplained.to_string().contains("Not decided"));
    assert!(find_order(history).err().unwrap().is_violation);
}

#[test]
fn near_the_end_of_a_lease_both_outcomes_are_allowed_and_far_from_it_one() {
    let short = Call::Claim {
        token: 1,
        lease: 10_000,
        retention: HOUR,
        body: None,
    };
    let is_explained = |start, end, answer| {
        let calls = [
            operation(0, 2, short, FIRST),
            operation(start, end, claim(2), answer),
        ];
        find_order(calls.into()).is_ok()
    };
    let zero = Span::new(0, 0);
    let in_progress = Answer::InProgress { remaining: zero };

    let outcomes = [(3, 5), (11, 12), (13, 15)].map(|(start, end)| {
        (
            is_explained(start, end, SECOND),
            is_explained(start, end, in_progress),
        )
    });

    assert_eq!(outcomes, [(false, true), (true, true), (true, false)]);
}
