//! Decides whether the calls for one event, some of them simultaneous, could have been made one after the other.
//!
//! It is the search of Wing and Gong (*Testing and verifying concurrent objects*, 1993): choose a call that began before
//! any other one ended as the first, apply it to the specification, and go on with the rest. As Lowe does
//! (*Testing for linearizability*, 2017), what was tried is remembered, and calls that end sooner are tried first. A call
//! without a response may be chosen at any time after its start, or never.

use std::collections::HashSet;
use std::fmt::{self, Write};

use super::specification::{Answer, Call, Span, State, outcomes};

/// A call for one event, as its caller saw it.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) call: Call,
    /// `None` if there was no response, or an error.
    pub(crate) answer: Option<Answer>,
    /// The place of its start among all starts and ends.
    pub(crate) start: u64,
    /// The place of its end. `None`: it may take effect at any time.
    pub(crate) end: Option<u64>,
    /// The time of the store's clock.
    pub(crate) time: Span,
}

/// Calls that no order explains.
pub(crate) struct Violation {
    operations: Vec<Operation>,
    /// The longest order that explains the first of them.
    explained: Vec<usize>,
}

/// So many steps of a search mean that the history is too entangled to decide.
const MAX_STEPS: usize = 5_000_000;

/// Returns how many steps were needed to find an order.
pub(crate) fn find_order(operations: Vec<Operation>) -> Result<usize, Violation> {
    let mut search = Search {
        operations: &operations,
        by_end: by_end(&operations),
        chosen: vec![false; operations.len()],
        order: Vec::new(),
        longest: Vec::new(),
        tried: HashSet::new(),
    };
    if search.is_explained(&None, 0) {
        return Ok(search.tried.len());
    }
    let explained = search.longest;
    Err(Violation {
        operations,
        explained,
    })
}

fn by_end(operations: &[Operation]) -> Vec<usize> {
    let mut by_end: Vec<usize> = (0..operations.len()).collect();
    by_end.sort_by_key(|at| operations[*at].end.unwrap_or(u64::MAX));
    by_end
}

struct Search<'a> {
    operations: &'a [Operation],
    by_end: Vec<usize>,
    chosen: Vec<bool>,
    order: Vec<usize>,
    longest: Vec<usize>,
    tried: HashSet<(Vec<bool>, State)>,
}

impl Search<'_> {
    /// Returns whether the calls that are not chosen yet can follow. `latest` is the latest start of those chosen.
    fn is_explained(&mut self, state: &State, latest: u64) -> bool {
        let operations = self.operations;
        let rest = self.by_end.iter().filter(|at| !self.chosen[**at]);
        let first_end = rest
            .clone()
            .filter(|at| operations[**at].answer.is_some())
            .find_map(|at| operations[*at].end);
        let Some(first_end) = first_end else {
            return true;
        };
        if !self.tried.insert((self.chosen.clone(), state.clone())) {
            return false;
        }
        assert!(self.tried.len() < MAX_STEPS, "the history is too entangled");
        let next: Vec<usize> = rest
            .copied()
            .filter(|at| operations[*at].start < first_end)
            .filter(|at| operations[*at].end.is_none_or(|end| end > latest))
            .collect();
        for at in next {
            let operation = &operations[at];
            for (answer, after) in outcomes(state, &operation.call, operation.time) {
                let is_seen = match &operation.answer {
                    Some(seen) => answer.allows(seen),
                    // Otherwise it need not have taken effect.
                    None => after != *state,
                };
                if !is_seen {
                    continue;
                }
                self.chosen[at] = true;
                self.order.push(at);
                if self.order.len() > self.longest.len() {
                    self.longest.clone_from(&self.order);
                }
                if self.is_explained(&after, latest.max(operation.start)) {
                    return true;
                }
                self.order.pop();
                self.chosen[at] = false;
            }
        }
        false
    }
}

/// How far a duration that a store returned may be off: stores round times, and the clock of the machine is adjusted.
const ROUNDING: i64 = 50_000;

impl Answer {
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

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |at: usize| {
            let mut line = String::new();
            let operation = &self.operations[at];
            let end = operation.end.map_or("?".to_owned(), |end| end.to_string());
            let answer = operation.answer.map(|answer| format!("{answer:?}"));
            write!(
                line,
                "{:>6}..{end:<6} {:>9}..{:<9} us {:?}: {}",
                operation.start,
                operation.time.from,
                operation.time.to,
                operation.call,
                answer.as_deref().unwrap_or("?")
            )?;
            Ok::<_, fmt::Error>(line)
        };
        writeln!(f, "This order explains the longest part:")?;
        for at in &self.explained {
            writeln!(f, "{}", line(*at)?)?;
        }
        writeln!(f, "No order explains these, too:")?;
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

/// A call with its place in the order of starts and ends, which is also its time in milliseconds.
fn operation(start: u64, end: u64, call: Call, answer: impl Into<Option<Answer>>) -> Operation {
    let answer = answer.into();
    let is_known = answer.is_some();
    let time = |at: u64| i64::try_from(at).unwrap() * 1_000;
    Operation {
        call,
        answer,
        start,
        end: is_known.then_some(end),
        time: Span::new(time(start), time(if is_known { end } else { 1_000 })),
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
