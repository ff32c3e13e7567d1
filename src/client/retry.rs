//! The retry decision, as a pure function.

use std::time::Duration;

use http::StatusCode;

use super::failed_attempt::Failure;
use super::request::RetrySafety;
use super::retry_policy::RetryPolicy;
use crate::error::is_transient;

/// The inputs of the decision, beside the policy.
#[derive(Clone, Copy, Debug)]
pub(super) struct RetryState {
    /// The number of the failed attempt, counted from 1.
    pub(super) attempt: u32,
    pub(super) safety: RetrySafety,
    pub(super) failure: Failure,
    pub(super) retry_after: Option<Duration>,
}

/// The next step after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RetryDecision {
    /// Make another attempt after this wait.
    Retry { wait: Duration },
    /// Return the error.
    Stop,
}

/// Decides whether to retry, and when. `jitter` is a random number from 0 to 1.
pub(super) fn decide(policy: &RetryPolicy, state: &RetryState, jitter: f64) -> RetryDecision {
    let &RetryState {
        attempt,
        safety,
        failure,
        retry_after,
    } = state;
    if attempt >= policy.max_attempts || !may_retry(safety, failure) {
        return RetryDecision::Stop;
    }
    if failure == Failure::ClosedBeforeResponse && attempt == 1 {
        let wait = Duration::ZERO;
        return RetryDecision::Retry { wait };
    }
    let backoff = backoff(policy, attempt, jitter);
    match retry_after {
        None => RetryDecision::Retry { wait: backoff },
        Some(asked) if asked > policy.max_retry_after => RetryDecision::Stop,
        Some(asked) => RetryDecision::Retry {
            wait: add_jitter(asked.max(backoff), policy, jitter),
        },
    }
}

/// Returns the wait before the retry of this attempt: exponential, with full jitter.
fn backoff(policy: &RetryPolicy, attempt: u32, jitter: f64) -> Duration {
    let factor = 2_u32.saturating_pow(attempt - 1);
    let longest = policy.base_delay.saturating_mul(factor);
    fraction(longest.min(policy.max_delay), jitter)
}

/// Adds up to 10 % to a wait that the service asked for, so that not all clients come back at the same
/// moment. If that would end before `base_delay`, it adds up to the rest of `base_delay` instead.
pub(super) fn add_jitter(wait: Duration, policy: &RetryPolicy, jitter: f64) -> Duration {
    let most = (wait / 10).max(policy.base_delay.saturating_sub(wait));
    wait.saturating_add(fraction(most, jitter))
}

/// Returns this part of a duration, at most 136 years.
fn fraction(whole: Duration, part: f64) -> Duration {
    let representable = Duration::from_secs(u32::MAX.into());
    whole.min(representable).mul_f64(part.clamp(0.0, 1.0))
}

fn may_retry(safety: RetrySafety, failure: Failure) -> bool {
    match (safety, failure) {
        (RetrySafety::Never, _) | (_, Failure::Permanent) => false,
        (_, Failure::NotSent | Failure::Status(StatusCode::TOO_MANY_REQUESTS)) => true,
        (RetrySafety::OnlyIfNotApplied, _) => false,
        (RetrySafety::Safe, Failure::ClosedBeforeResponse | Failure::NoResponse) => true,
        (RetrySafety::Safe, Failure::Status(status)) => is_transient(status),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILURES: [Failure; 4] = [
        Failure::NotSent,
        Failure::ClosedBeforeResponse,
        Failure::NoResponse,
        Failure::Permanent,
    ];

    fn state(safety: RetrySafety, failure: Failure) -> RetryState {
        RetryState {
            attempt: 1,
            safety,
            failure,
            retry_after: None,
        }
    }

    fn retry_in(wait: Duration) -> RetryDecision {
        RetryDecision::Retry { wait }
    }

    fn retries(safety: RetrySafety, failure: Failure) -> bool {
        decide(&RetryPolicy::exponential(), &state(safety, failure), 0.5) != RetryDecision::Stop
    }

    #[test]
    fn a_failure_is_retried_only_if_that_is_safe_for_the_operation() {
        let transient = [408, 429, 500, 502, 503, 504];
        for status in 100..=599 {
            let failure = Failure::Status(StatusCode::from_u16(status).unwrap());

            assert_eq!(
                retries(RetrySafety::Safe, failure),
                transient.contains(&status),
                "{status}"
            );
            assert_eq!(
                retries(RetrySafety::OnlyIfNotApplied, failure),
                status == 429,
                "{status}"
            );
            assert!(!retries(RetrySafety::Never, failure), "{status}");
        }
        assert_eq!(
            FAILURES.map(|failure| retries(RetrySafety::Safe, failure)),
            [true, true, true, false]
        );
        assert_eq!(
            FAILURES.map(|failure| retries(RetrySafety::OnlyIfNotApplied, failure)),
            [true, false, false, false]
        );
        assert_eq!(
            FAILURES.map(|failure| retries(RetrySafety::Never, failure)),
            [false; 4]
        );
    }

    #[test]
    fn waits_double_up_to_the_maximum_with_full_jitter() {
        let policy = RetryPolicy::exponential()
            .max_attempts(u32::MAX)
            .max_delay(Duration::from_secs(3));
        let wait = |attempt, jitter| {
            let state = RetryState {
                attempt,
                ..state(RetrySafety::Safe, Failure::NoResponse)
            };
            decide(&policy, &state, jitter)
        };

        let millis = |ms| retry_in(Duration::from_millis(ms));
        assert_eq!(
            [1, 2, 3, 4, 5].map(|n| wait(n, 1.0)),
            [250, 500, 1_000, 2_000, 3_000].map(millis)
        );
        assert_eq!(wait(2, 0.0), millis(0));
        assert_eq!(wait(2, 0.5), millis(250));
        assert_eq!(wait(4_000_000_000, 1.0), millis(3_000));
    }

    #[test]
    fn no_more_attempts_are_made_than_the_policy_allows() {
        let policy = RetryPolicy::exponential().max_attempts(3);
        let stops = |attempt| {
            let state = RetryState {
                attempt,
                ..state(
                    RetrySafety::Safe,
                    Failure::Status(StatusCode::SERVICE_UNAVAILABLE),
                )
            };
            decide(&policy, &state, 0.0) == RetryDecision::Stop
        };

        assert_eq!([1, 2, 3, 4].map(stops), [false, false, true, true]);
        assert_eq!(
            decide(
                &RetryPolicy::none(),
                &state(RetrySafety::Safe, Failure::NotSent),
                0.0
            ),
            RetryDecision::Stop
        );
    }

    #[test]
    fn a_closed_connection_is_retried_at_once_only_the_first_time() {
        let policy = RetryPolicy::exponential();
        let closed = state(RetrySafety::Safe, Failure::ClosedBeforeResponse);

        assert_eq!(decide(&policy, &closed, 1.0), retry_in(Duration::ZERO));
        assert_ne!(
            decide(
                &policy,
                &RetryState {
                    attempt: 2,
                    ..closed
                },
                1.0
            ),
            retry_in(Duration::ZERO)
        );
    }

    #[test]
    fn retry_after_is_waited_for_in_full_or_ends_the_call() {
        assert_eq!(asked_for(7, 1, 0.0), retry_in(Duration::from_secs(7)));
        assert_eq!(asked_for(60, 1, 0.0), retry_in(Duration::from_secs(60)));
        assert_eq!(asked_for(61, 1, 0.0), RetryDecision::Stop);
        assert_eq!(asked_for(u64::MAX, 1, 1.0), RetryDecision::Stop);
    }

    #[test]
    fn a_short_retry_after_does_not_shorten_the_backoff() {
        for attempt in 1..=3 {
            for jitter in [0.0, 0.4, 1.0] {
                let backoff = state(
                    RetrySafety::Safe,
                    Failure::Status(StatusCode::SERVICE_UNAVAILABLE),
                );
                let backoff = RetryState { attempt, ..backoff };
                let RetryDecision::Retry { wait: backoff } =
                    decide(&RetryPolicy::exponential(), &backoff, jitter)
                else {
                    panic!("a 503 is retried")
                };

                let RetryDecision::Retry { wait } = asked_for(0, attempt, jitter) else {
                    panic!("a 429 is retried")
                };
                assert!(wait >= backoff, "{wait:?} after attempt {attempt}");
            }
        }
    }

    #[test]
    fn jitter_is_added_to_retry_after() {
        let millis = |ms| retry_in(Duration::from_millis(ms));

        assert_eq!(asked_for(40, 1, 0.5), millis(42_000));
        assert_eq!(asked_for(40, 1, 1.0), millis(44_000));
        assert_eq!(asked_for(1, 1, 1.0), millis(1_100));
    }

    #[test]
    fn a_short_wait_becomes_up_to_base_delay_long() {
        let policy = RetryPolicy::exponential();
        let wait =
            |millis, jitter| add_jitter(Duration::from_millis(millis), &policy, jitter).as_millis();

        assert_eq!([0, 100, 225].map(|millis| wait(millis, 1.0)), [250; 3]);
        assert_eq!(wait(100, 0.5), 175);
        assert_eq!(wait(100, 0.0), 100);
        assert_eq!(wait(240, 1.0), 264, "10 % is more");
    }

    #[test]
    fn the_largest_possible_policy_does_not_overflow() {
        let policy = RetryPolicy::exponential()
            .base_delay(Duration::MAX)
            .max_delay(Duration::MAX)
            .max_retry_after(Duration::MAX);
        let limited = state(
            RetrySafety::Safe,
            Failure::Status(StatusCode::TOO_MANY_REQUESTS),
        );
        let limited = RetryState {
            retry_after: Some(Duration::MAX),
            ..limited
        };

        assert_eq!(decide(&policy, &limited, 1.0), retry_in(Duration::MAX));
    }

    /// The decision of the default policy after a 429 with this `Retry-After`.
    fn asked_for(seconds: u64, attempt: u32, jitter: f64) -> RetryDecision {
        let limited = state(
            RetrySafety::OnlyIfNotApplied,
            Failure::Status(StatusCode::TOO_MANY_REQUESTS),
        );
        let limited = RetryState {
            attempt,
            retry_after: Some(Duration::from_secs(seconds)),
            ..limited
        };
        decide(&RetryPolicy::exponential(), &limited, jitter)
    }
}
