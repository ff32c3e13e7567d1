//! The retry decision, as a pure function.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;

use super::request::RetrySafety;
use super::transport::Failure;
#[cfg(feature = "import")]
use super::{
    Client,
    builder::DEFAULT_DEADLINE,
    call::{CallDeadline, CallOptions},
};
use crate::error::is_transient;

/// When and how often a failed call is retried.
///
/// The policy sets how often and after which wait. Whether a call may be retried at all depends on the
/// operation, because a retry must not do harm:
///
/// | operation | retried after |
/// |---|---|
/// | retrieve, list, unsubscribe, `set_topic` with `false`, `merge_properties` | a failed or broken connection, a timeout, 408, 429, 500, 502, 503, 504 |
/// | create and `create_batch` with upsert or skip | the same |
/// | create and `create_batch` with any `on_conflict: error` | a failed connection, 429: if a 201 was lost, a retry would return 409 |
/// | subscribe, `set_topic` with `true` | a failed connection, 429: a late retry could undo an opt-out that the recipient made in the meantime |
/// | [`Client::request`](crate::Client::request) | nothing, unless `.idempotent()` is set |
///
/// `set_topics` retrieves the contact, then sends one such request for each answer. `.idempotent()` on a create, a
/// batch, a subscribe, `set_topic` or `set_topics` removes the restriction for that call.
///
/// Waits grow exponentially with full jitter: the wait before retry `n` is a random time between 0 and
/// `base_delay × 2ⁿ⁻¹`, at most `max_delay`. There is one exception: if the connection of the first
/// attempt closes before any response, as happens to an idle connection in the pool, the first retry
/// follows at once.
///
/// # `Retry-After`
///
/// A response may ask for a longer wait with a `Retry-After` header, in seconds or as a date. The client
/// then waits for that time or the backoff, whichever is longer. It adds a random time of up to 10 %, so that
/// not all clients come back at once; a wait shorter than `base_delay` becomes up to `base_delay` long. If
/// the service asks for more than `max_retry_after`, or for a wait past the deadline, the call fails at once,
/// and [`Error::retry_after`](crate::Error::retry_after) says when to call again.
///
/// A 429 with a `Retry-After` concerns the key, not one call, so it holds back all clones of the client
/// until then, for an hour at most: retries and new calls wait too, also under [`none`](Self::none). A call
/// that would have to wait past its deadline, or longer than its `max_retry_after` in all, fails at once
/// and sends nothing. Its error is a 429 of [`ErrorKind::Api`](crate::ErrorKind::Api) with
/// [`Outcome::NotSent`](crate::Outcome::NotSent) and no attempts. If this happens before a retry, the error
/// is that of the last attempt.
///
/// # Example: more attempts and longer waits
///
/// ```
/// use std::time::Duration;
/// use audience::{Client, RetryPolicy};
///
/// let patient = RetryPolicy::exponential().max_attempts(8).max_delay(Duration::from_secs(60));
/// let client = Client::builder("https://api.example.com", "key").retry(patient).build()?;
/// # Ok::<(), audience::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    max_attempts: u32,
    base_delay: Duration,
    max_delay: Duration,
    max_retry_after: Duration,
}

impl RetryPolicy {
    /// Returns the default policy: up to 4 attempts, with waits of up to 0.25 s, 0.5 s and 1 s.
    #[must_use]
    pub fn exponential() -> Self {
        Self {
            max_attempts: 4,
            base_delay: Duration::from_millis(250),
            max_delay: Duration::from_secs(20),
            max_retry_after: Duration::from_secs(60),
        }
    }

    /// Returns a policy that never retries.
    ///
    /// A call still waits if a 429 holds back the client: see [`Retry-After`](Self#retry-after).
    ///
    /// # Example: one attempt only
    ///
    /// ```
    /// use audience::{Client, RetryPolicy};
    ///
    /// let client = Client::builder("https://api.example.com", "key").retry(RetryPolicy::none()).build()?;
    /// # Ok::<(), audience::Error>(())
    /// ```
    #[must_use]
    pub fn none() -> Self {
        Self::exponential().max_attempts(1)
    }

    /// Sets how many attempts a call makes at most; 0 counts as 1. Default: 4.
    #[must_use]
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = attempts.max(1);
        self
    }

    /// Sets the longest wait before the first retry; it doubles with each retry. Default: 250 ms.
    #[must_use]
    pub fn base_delay(mut self, delay: Duration) -> Self {
        self.base_delay = delay;
        self
    }

    /// Sets the longest wait between two attempts, unless the service sends `Retry-After`.
    /// Default: 20 s.
    #[must_use]
    pub fn max_delay(mut self, delay: Duration) -> Self {
        self.max_delay = delay;
        self
    }

    /// Sets the longest `Retry-After` the client waits for. Default: 60 s.
    ///
    /// If the service asks for more, the call fails at once: it would only be refused again.
    #[must_use]
    pub fn max_retry_after(mut self, delay: Duration) -> Self {
        self.max_retry_after = delay;
        self
    }
}

impl Default for RetryPolicy {
    /// Returns [`RetryPolicy::exponential`].
    fn default() -> Self {
        Self::exponential()
    }
}

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
pub(super) fn decide_retry(policy: &RetryPolicy, state: &RetryState, jitter: f64) -> RetryDecision {
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
fn add_jitter(wait: Duration, policy: &RetryPolicy, jitter: f64) -> Duration {
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
pub(super) fn decide_hold(policy: &RetryPolicy, state: &HoldState, jitter: f64) -> HoldDecision {
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

/// The time for one request of an import, with its retries and waits.
#[cfg(feature = "import")]
const PATIENT_DEADLINE: Duration = Duration::from_secs(300);

#[cfg(feature = "import")]
impl Client {
    /// Returns these options with more patience, for a call that can wait out an outage of a minute or two. A
    /// retry policy or a deadline that was set, for the call or the client, stays as it is.
    pub(crate) fn patient(&self, options: CallOptions) -> CallOptions {
        let is_default = self.sender.retry == RetryPolicy::default();
        let retry = options.retry.or_else(|| is_default.then(patient_policy));
        let deadline = match options.deadline {
            CallDeadline::Client if self.sender.deadline == Some(DEFAULT_DEADLINE) => {
                CallDeadline::After(PATIENT_DEADLINE)
            }
            set => set,
        };
        CallOptions {
            retry,
            deadline,
            ..options
        }
    }
}

#[cfg(feature = "import")]
fn patient_policy() -> RetryPolicy {
    RetryPolicy::exponential()
        .max_attempts(20)
        .max_retry_after(PATIENT_DEADLINE)
}

#[cfg(test)]
mod tests {
    mod retry {
        use super::super::*;

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
            decide_retry(&RetryPolicy::exponential(), &state(safety, failure), 0.5)
                != RetryDecision::Stop
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
                decide_retry(&policy, &state, jitter)
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
                decide_retry(&policy, &state, 0.0) == RetryDecision::Stop
            };

            assert_eq!([1, 2, 3, 4].map(stops), [false, false, true, true]);
            assert_eq!(
                decide_retry(
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

            assert_eq!(
                decide_retry(&policy, &closed, 1.0),
                retry_in(Duration::ZERO)
            );
            assert_ne!(
                decide_retry(
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
                        decide_retry(&RetryPolicy::exponential(), &backoff, jitter)
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
            let wait = |millis, jitter| {
                add_jitter(Duration::from_millis(millis), &policy, jitter).as_millis()
            };

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

            assert_eq!(
                decide_retry(&policy, &limited, 1.0),
                retry_in(Duration::MAX)
            );
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
            decide_retry(&RetryPolicy::exponential(), &limited, jitter)
        }
    }

    mod hold {
        use super::super::*;

        const fn seconds(seconds: u64) -> Duration {
            Duration::from_secs(seconds)
        }

        fn decide_with(left: u64, waited: u64, deadline: Option<u64>) -> HoldDecision {
            let state = HoldState {
                left: seconds(left),
                waited: seconds(waited),
                deadline: deadline.map(seconds),
            };
            decide_hold(&RetryPolicy::exponential(), &state, 0.0)
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
                decide_hold(&RetryPolicy::exponential(), &state, 1.0)
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

    mod patience {
        use super::super::*;
        use crate::client::builder::ClientBuilder;
        use crate::client::transport::Failure;

        fn patient(
            settings: impl FnOnce(ClientBuilder) -> ClientBuilder,
            options: CallOptions,
        ) -> (Option<RetryPolicy>, Option<Duration>) {
            let client = settings(Client::builder("https://x.io", "key"))
                .build()
                .unwrap();
            let options = client.patient(options);
            (
                options.retry,
                options.deadline.limit(client.sender.deadline),
            )
        }

        #[test]
        fn only_what_nobody_has_set_becomes_patient() {
            let of_call = CallOptions {
                retry: Some(RetryPolicy::none()),
                deadline: CallDeadline::After(Duration::from_secs(1)),
                ..CallOptions::default()
            };
            let second = Some(Duration::from_secs(1));

            assert_eq!(
                patient(|client| client, CallOptions::default()),
                (Some(patient_policy()), Some(PATIENT_DEADLINE))
            );
            assert_eq!(
                patient(|client| client, of_call),
                (Some(RetryPolicy::none()), second)
            );
            // Without a policy here, that of the client applies.
            assert_eq!(
                patient(
                    |client| client.retry(RetryPolicy::none()).no_deadline(),
                    CallOptions::default()
                ),
                (None, None)
            );
            assert_eq!(
                patient(
                    |client| client.deadline(Duration::from_secs(1)),
                    CallOptions::default()
                ),
                (Some(patient_policy()), second)
            );
        }

        #[test]
        fn an_outage_of_a_minute_is_waited_out() {
            let waits = (1..).map_while(|attempt| {
                let state = RetryState {
                    attempt,
                    safety: RetrySafety::OnlyIfNotApplied,
                    failure: Failure::NotSent,
                    retry_after: None,
                };
                // Rather short waits: in 19 of 20 cases, they add up to more.
                match decide_retry(&patient_policy(), &state, 0.36) {
                    RetryDecision::Retry { wait } => Some(wait),
                    RetryDecision::Stop => None,
                }
            });

            let total: Duration = waits.sum();

            assert!(total > Duration::from_secs(60), "{total:?}");
            assert!(total < PATIENT_DEADLINE, "{total:?}");
        }
    }
}
