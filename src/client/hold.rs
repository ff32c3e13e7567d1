//! The hold after a 429: until it ends, no clone of the client sends anything.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::retry::add_jitter;
use super::retry_policy::RetryPolicy;

/// The longest hold, so that one absurd `Retry-After` does not silence a client for good.
const LONGEST_HOLD: Duration = Duration::from_secs(3_600);

/// When the service allows the next request. All clones of a client share it.
#[derive(Debug, Default)]
pub(super) struct Hold(Mutex<Option<Instant>>);

impl Hold {
    /// Holds back requests for this long from `now`, at most an hour, unless a hold that ends later is
    /// already set.
    pub(super) fn extend(&self, now: Instant, wait: Duration) {
        let end = now + wait.min(LONGEST_HOLD);
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *current = (*current).max(Some(end));
    }

    /// Returns the time from `now` to the end of the hold; zero if there is none.
    pub(super) fn left(&self, now: Instant) -> Duration {
        let end = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        end.map_or(Duration::ZERO, |end| end.saturating_duration_since(now))
    }
}

/// The inputs of the decision, beside the policy.
#[derive(Clone, Copy, Debug)]
pub(super) struct HoldState {
    /// The time to the end of the hold.
    pub(super) left: Duration,
    /// How long this call has already waited for holds.
    pub(super) waited: Duration,
    /// The time to the call's deadline, if it has one.
    pub(super) deadline: Option<Duration>,
}

/// The next step before an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HoldDecision {
    /// There is no hold: send the request.
    Send,
    /// Wait this long, then decide again: another 429 may have extended the hold.
    Wait(Duration),
    /// Fail: the hold ends after the deadline, or the wait would be longer than the policy allows.
    Fail,
}

/// Decides whether an attempt may be made now. `jitter` is a random number from 0 to 1.
pub(super) fn decide(policy: &RetryPolicy, state: &HoldState, jitter: f64) -> HoldDecision {
    let &HoldState {
        left,
        waited,
        deadline,
    } = state;
    if left.is_zero() {
        return HoldDecision::Send;
    }
    if waited.saturating_add(left) > policy.max_retry_after
        || deadline.is_some_and(|deadline| left >= deadline)
    {
        return HoldDecision::Fail;
    }
    let wait = add_jitter(left, policy, jitter);
    // The jitter alone must not exceed the deadline.
    let latest = deadline.map_or(wait, |deadline| left + (deadline - left) / 2);
    HoldDecision::Wait(wait.min(latest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn decide_with(left: u64, waited: u64, deadline: Option<u64>) -> HoldDecision {
        let state = HoldState {
            left: seconds(left),
            waited: seconds(waited),
            deadline: deadline.map(seconds),
        };
        decide(&RetryPolicy::exponential(), &state, 0.0)
    }

    #[test]
    fn a_call_waits_for_the_end_of_the_hold() {
        assert_eq!(decide_with(0, 0, Some(9)), HoldDecision::Send);
        assert_eq!(decide_with(0, 999, None), HoldDecision::Send);
        assert_eq!(decide_with(7, 0, None), HoldDecision::Wait(seconds(7)));
        assert_eq!(decide_with(60, 0, None), HoldDecision::Wait(seconds(60)));
        assert_eq!(decide_with(7, 0, Some(8)), HoldDecision::Wait(seconds(7)));
    }

    #[test]
    fn a_call_fails_if_the_hold_ends_after_its_deadline_or_beyond_its_limit() {
        assert_eq!(decide_with(61, 0, None), HoldDecision::Fail);
        assert_eq!(decide_with(7, 0, Some(7)), HoldDecision::Fail);
        assert_eq!(decide_with(7, 0, Some(0)), HoldDecision::Fail);
    }

    #[test]
    fn a_call_waits_for_several_holds_no_longer_than_its_limit_in_all() {
        assert_eq!(decide_with(20, 40, None), HoldDecision::Wait(seconds(20)));
        assert_eq!(decide_with(20, 41, None), HoldDecision::Fail);
    }

    #[test]
    fn jitter_spreads_the_calls_after_the_hold_but_not_past_the_deadline() {
        let wait = |deadline| {
            let state = HoldState {
                left: seconds(20),
                waited: Duration::ZERO,
                deadline,
            };
            decide(&RetryPolicy::exponential(), &state, 1.0)
        };

        assert_eq!(wait(None), HoldDecision::Wait(seconds(22)));
        assert_eq!(wait(Some(seconds(22))), HoldDecision::Wait(seconds(21)));
    }

    #[test]
    fn a_hold_is_only_ever_extended() {
        let (hold, now) = (Hold::default(), Instant::now());
        assert_eq!(hold.left(now), Duration::ZERO);

        hold.extend(now, seconds(9));
        hold.extend(now, seconds(2));

        assert_eq!(hold.left(now), seconds(9));
        assert_eq!(hold.left(now + seconds(8)), seconds(1));
        assert_eq!(hold.left(now + seconds(10)), Duration::ZERO);
        hold.extend(now, Duration::MAX);
        assert_eq!(hold.left(now), LONGEST_HOLD);
    }
}
