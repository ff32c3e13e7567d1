//! Decides when a failed call is retried. The decisions of the policy are pure functions.

use std::time::Duration;

use http::StatusCode;

use super::exchange::RetrySafety;
use crate::error::is_transient;

/// Sets how often a failed call is retried, and after which waits.
///
/// Whether a call is retried at all depends on the operation, because a retry must not do harm:
///
/// | operation | retried after |
/// |---|---|
/// | retrieve, list, update, delete, unsubscribe, `set_topic` with `false`, `merge_properties` | a failed or broken connection, a timeout, 408, 425, 429, and 5xx other than 501 and 505 |
/// | create and `create_batch` with upsert or skip | the same failures |
/// | create and `create_batch` with any `on_conflict: error` | a failed connection, 429: if a 201 was lost, a retry would return 409 |
/// | subscribe, `set_topic` with `true` | a failed connection, 429: a late retry could undo an opt-out that the recipient made in the meantime |
/// | [`emails().send`](crate::emails::Emails::send) | a failed connection, 429: if a response was lost, a retry would send the mail twice |
/// | [`Client::request`](crate::Client::request) | nothing, unless `.idempotent()` is set |
///
/// If a method makes several requests, such as `set_topics`, the table holds for each of them. Do not repeat
/// `confirm_opt_in`, `set_topics` with a `true`, or `subscribe` and such a form of the `UnsubscribeService` without
/// another click. `update`, `change_address`, `delete`, `erase` and `set_topics` without a `true` are safe to repeat
/// after an error. `.idempotent()` on a create, a batch, a subscribe, `set_topic`, `set_topics` or a mail removes the
/// restriction for that call.
///
/// Waits grow exponentially with full jitter: the wait before retry `n` is a random time between 0 and
/// `base_delay × 2ⁿ⁻¹`, at most `max_delay`. There is one exception. An idle connection in the pool may close just when
/// a request is sent. So if the connection of the first attempt closes before any response, the first retry follows
/// immediately.
///
/// # `Retry-After`
///
/// A response may ask for a longer wait with a `Retry-After` header, in seconds or as a date. The time until a date is
/// counted from the response's own `Date`, so the clock of this machine may be wrong. The client then waits for that time
/// or the backoff, whichever is longer. It adds a random time of up to 10 %, or up to the rest of `base_delay` if that is
/// more, so that not all clients come back simultaneously. If the service asks for more than `max_retry_after`, or for a
/// wait past the deadline, the call fails immediately, and [`Error::retry_after`](crate::Error::retry_after) says when to
/// retry it.
///
/// A 429 with a `Retry-After` concerns the key, not one call. So it holds back all clones of the client for that time,
/// at most an hour. Retries and new calls wait too, even with the policy [`none`](Self::none). If a call would have to
/// wait past its deadline, or longer than its `max_retry_after` in all, it fails immediately and sends nothing. Its
/// error is a 429 of [`ErrorKind::Api`](crate::ErrorKind::Api) with
/// [`Outcome::NotSent`](crate::Outcome::NotSent) and no attempts. If this happens before a retry, the call fails with
/// the error of its last attempt.
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
#[must_use = "a policy has no effect until it is given to a client or a call"]
pub struct RetryPolicy {
    max_attempts: u32,
    base_delay: Duration,
    max_delay: Duration,
    max_retry_after: Duration,
}

impl RetryPolicy {
    /// Returns the default policy: up to 4 attempts, with waits of up to 0.25 s, 0.5 s and 1 s.
    ///
    /// # Example: change one setting of the default
    ///
    /// ```
    /// use audience::RetryPolicy;
    ///
    /// let two_retries = RetryPolicy::exponential().max_attempts(3);
    ///
    /// assert_ne!(two_retries, RetryPolicy::default());
    /// ```
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
    pub fn none() -> Self {
        Self::exponential().max_attempts(1)
    }

    /// Sets how many attempts a call makes at most; 0 counts as 1. Default: 4.
    ///
    /// # Example: six attempts for one important call
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::builder().seed_contact("ada@example.com").start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::RetryPolicy;
    ///
    /// let policy = RetryPolicy::exponential().max_attempts(6);
    /// let ada = contacts.unsubscribe("ada@example.com").retry(policy).await?;
    ///
    /// assert!(ada.unsubscribed);
    /// # Ok(()) }
    /// ```
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = attempts.max(1);
        self
    }

    /// Sets the longest wait before the first retry; it doubles with each retry. Default: 250 ms.
    ///
    /// # Example: a test without waits
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// use std::time::Duration;
    /// use audience::RetryPolicy;
    /// use audience::mock::Fault;
    ///
    /// let without_waits = RetryPolicy::exponential().base_delay(Duration::ZERO);
    /// let client = server.client_builder().retry(without_waits).build()?;
    ///
    /// server.fault(Fault::status(503).times(3));
    /// let response = client.contacts().list().response().await?;
    /// assert_eq!(response.attempts(), 4);
    /// # Ok(()) }
    /// ```
    pub fn base_delay(mut self, delay: Duration) -> Self {
        self.base_delay = delay;
        self
    }

    /// Sets the longest wait between two attempts, unless the service sends `Retry-After`.
    /// Default: 20 s.
    ///
    /// # Example: waits of 1, 2, 4 and then always 5 seconds at most
    ///
    /// ```
    /// use std::time::Duration;
    /// use audience::RetryPolicy;
    ///
    /// let policy = RetryPolicy::exponential()
    ///     .max_attempts(10)
    ///     .base_delay(Duration::from_secs(1))
    ///     .max_delay(Duration::from_secs(5));
    /// ```
    pub fn max_delay(mut self, delay: Duration) -> Self {
        self.max_delay = delay;
        self
    }

    /// Sets the longest `Retry-After` that the client waits for. Default: 60 s.
    ///
    /// If the service asks for more, the call fails immediately, because the service would refuse an earlier retry.
    ///
    /// # Example: fail rather than wait for more than two seconds
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let server = audience::mock::MockServer::start().await;
    /// # server.fault(audience::mock::Fault::status(429).retry_after(30));
    /// # let contacts = server.client().contacts();
    /// use std::time::Duration;
    /// use audience::RetryPolicy;
    ///
    /// let impatient = RetryPolicy::exponential().max_retry_after(Duration::from_secs(2));
    /// let error = contacts.list().retry(impatient).await.unwrap_err();
    ///
    /// assert_eq!(error.attempts(), 1);
    /// assert_eq!(error.retry_after(), Some(Duration::from_secs(30)));
    /// # }
    /// ```
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

/// How an attempt failed: the part that decides about a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// Nothing was sent.
    NotSent,
    /// The connection was closed before the head of a response was complete, as happens to an idle one.
    ClosedBeforeResponse,
    /// The request was sent, and no complete response arrived.
    NoResponse,
    /// The response has this status.
    Status(StatusCode),
    /// A retry would fail in the same way.
    Permanent,
}

impl RetryPolicy {
    /// Returns the wait before the next attempt, or `None` if there is to be none. A wait beyond the deadline would only
    /// delay the same error. `attempt` is the number of the failed attempt, counted from 1. `deadline` is the time to the
    /// call's deadline, if it has one. `jitter` is a random number from 0 to 1.
    pub(super) fn wait_before_retry(
        &self,
        attempt: u32,
        safety: RetrySafety,
        failure: Failure,
        retry_after: Option<Duration>,
        deadline: Option<Duration>,
        jitter: f64,
    ) -> Option<Duration> {
        if attempt >= self.max_attempts || !may_retry(safety, failure) {
            return None;
        }
        let backoff = backoff(self, attempt, jitter);
        let wait = match retry_after {
            // Most likely, the server closed an idle connection. A new connection works immediately.
            _ if failure == Failure::ClosedBeforeResponse && attempt == 1 => Duration::ZERO,
            None => backoff,
            // The service would refuse an earlier retry, so there is none.
            Some(asked) if asked > self.max_retry_after => return None,
            Some(Duration::ZERO) => add_jitter(backoff, self, jitter),
            Some(asked) => {
                let wait = add_jitter(asked.max(backoff), self, jitter);
                within_deadline(wait, asked, deadline)
            }
        };
        deadline
            .is_none_or(|deadline| wait < deadline)
            .then_some(wait)
    }

    /// Returns the wait before an attempt, which is zero without a hold, or `None` if the call must fail: the hold ends
    /// after the deadline, or the wait would be longer than the policy allows. After a wait, another 429 may have
    /// extended the hold.
    ///
    /// `left` is the time to the end of the hold, and `waited` how long this call has already waited for holds.
    /// `deadline` is the time to the call's deadline, if it has one. `jitter` is a random number from 0 to 1.
    pub(super) fn wait_for_hold(
        &self,
        left: Duration,
        waited: Duration,
        deadline: Option<Duration>,
        jitter: f64,
    ) -> Option<Duration> {
        if left.is_zero() {
            return Some(Duration::ZERO);
        }
        if waited.saturating_add(left) > self.max_retry_after
            || deadline.is_some_and(|deadline| left >= deadline)
        {
            return None;
        }
        let wait = add_jitter(left, self, jitter);
        Some(within_deadline(wait, left, deadline))
    }
}

/// Shortens a wait, but not below what the service asked for, so that the jitter alone does not exceed the deadline.
/// `deadline` is the time to it.
fn within_deadline(wait: Duration, asked: Duration, deadline: Option<Duration>) -> Duration {
    match deadline {
        Some(deadline) if asked < deadline => wait.min(asked + (deadline - asked) / 2),
        _ => wait,
    }
}

/// Returns the wait before the retry of this attempt: exponential, with full jitter.
fn backoff(policy: &RetryPolicy, attempt: u32, jitter: f64) -> Duration {
    // Saturating, because `max_attempts` and `base_delay` may be as large as their types allow.
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
    // `mul_f64` panics if the result cannot be represented.
    whole.min(representable).mul_f64(part.clamp(0.0, 1.0))
}

fn may_retry(safety: RetrySafety, failure: Failure) -> bool {
    match (safety, failure) {
        (RetrySafety::Never, _) | (_, Failure::Permanent) => false,
        // A 429 says that the service did not apply the request.
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
    const LIMITED: Failure = Failure::Status(StatusCode::TOO_MANY_REQUESTS);
    const OVERLOADED: Failure = Failure::Status(StatusCode::SERVICE_UNAVAILABLE);

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// The decision after an attempt that may safely be made again.
    fn after(
        policy: &RetryPolicy,
        attempt: u32,
        failure: Failure,
        jitter: f64,
    ) -> Option<Duration> {
        policy.wait_before_retry(attempt, RetrySafety::Safe, failure, None, None, jitter)
    }

    /// The decision of the default policy after a 429 with this `Retry-After`.
    fn asked_for(wait: u64, attempt: u32, jitter: f64) -> Option<Duration> {
        let policy = RetryPolicy::exponential();
        let (safety, asked) = (RetrySafety::OnlyIfNotApplied, Some(seconds(wait)));
        policy.wait_before_retry(attempt, safety, LIMITED, asked, None, jitter)
    }

    #[test]
    fn a_failure_is_retried_only_if_that_is_safe_for_the_operation() {
        let retries = |safety, failure| {
            let policy = RetryPolicy::exponential();
            policy
                .wait_before_retry(1, safety, failure, None, None, 0.5)
                .is_some()
        };
        let transient = |status| match status {
            408 | 425 | 429 => true,
            501 | 505 => false,
            other => other >= 500,
        };
        for status in 100..=599 {
            let failure = Failure::Status(StatusCode::from_u16(status).unwrap());

            assert_eq!(
                retries(RetrySafety::Safe, failure),
                transient(status),
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
            .max_delay(seconds(3));
        let wait = |attempt, jitter| after(&policy, attempt, Failure::NoResponse, jitter);

        let millis = |ms| Some(Duration::from_millis(ms));
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
        let stops = |attempt| after(&policy, attempt, OVERLOADED, 0.0).is_none();

        assert_eq!([1, 2, 3, 4].map(stops), [false, false, true, true]);
        assert_eq!(after(&RetryPolicy::none(), 1, Failure::NotSent, 0.0), None);
    }

    #[test]
    fn a_closed_connection_is_retried_without_a_wait_only_the_first_time() {
        let policy = RetryPolicy::exponential();
        let closed = Failure::ClosedBeforeResponse;

        assert_eq!(after(&policy, 1, closed, 1.0), Some(Duration::ZERO));
        assert_ne!(after(&policy, 2, closed, 1.0), Some(Duration::ZERO));
    }

    #[test]
    fn retry_after_is_waited_for_in_full_or_ends_the_call() {
        assert_eq!(asked_for(7, 1, 0.0), Some(seconds(7)));
        assert_eq!(asked_for(60, 1, 0.0), Some(seconds(60)));
        assert_eq!(asked_for(61, 1, 0.0), None);
        assert_eq!(asked_for(u64::MAX, 1, 1.0), None);
    }

    #[test]
    fn a_short_retry_after_does_not_shorten_the_backoff() {
        for attempt in 1..=3 {
            for jitter in [0.0, 0.4, 1.0] {
                let backoff = after(&RetryPolicy::exponential(), attempt, OVERLOADED, jitter);
                let backoff = backoff.expect("a 503 is retried");

                let wait = asked_for(0, attempt, jitter).expect("a 429 is retried");
                assert!(wait >= backoff, "{wait:?} after attempt {attempt}");
            }
        }
    }

    #[test]
    fn jitter_is_added_to_retry_after() {
        let millis = |ms| Some(Duration::from_millis(ms));

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
    fn jitter_alone_does_not_exceed_the_deadline() {
        let within = |wait, asked, deadline: Option<u64>| {
            let deadline = deadline.map(Duration::from_millis);
            let wait = within_deadline(Duration::from_millis(wait), seconds(asked), deadline);
            wait.as_millis()
        };

        assert_eq!(within(47_300, 43, Some(44_900)), 43_950);
        assert_eq!(within(43_100, 43, Some(44_900)), 43_100);
        assert_eq!(within(47_300, 43, None), 47_300);
        assert_eq!(within(47_300, 43, Some(43_000)), 47_300);
    }

    #[test]
    fn the_largest_possible_policy_does_not_overflow() {
        let policy = RetryPolicy::exponential()
            .base_delay(Duration::MAX)
            .max_delay(Duration::MAX)
            .max_retry_after(Duration::MAX);

        let asked = Some(Duration::MAX);
        let wait = policy.wait_before_retry(1, RetrySafety::Safe, LIMITED, asked, None, 1.0);

        assert_eq!(wait, Some(Duration::MAX));
    }

    fn decide_with(left: u64, waited: u64, deadline: Option<u64>) -> Option<Duration> {
        let (left, waited) = (seconds(left), seconds(waited));
        RetryPolicy::exponential().wait_for_hold(left, waited, deadline.map(seconds), 0.0)
    }

    #[test]
    fn a_call_waits_for_the_end_of_the_hold() {
        assert_eq!(decide_with(0, 0, Some(9)), Some(Duration::ZERO));
        assert_eq!(decide_with(0, 999, None), Some(Duration::ZERO));
        assert_eq!(decide_with(7, 0, None), Some(seconds(7)));
        assert_eq!(decide_with(60, 0, None), Some(seconds(60)));
        assert_eq!(decide_with(7, 0, Some(8)), Some(seconds(7)));
    }

    #[test]
    fn a_call_fails_if_the_hold_ends_after_its_deadline_or_beyond_its_limit() {
        assert_eq!(decide_with(61, 0, None), None);
        assert_eq!(decide_with(7, 0, Some(7)), None);
        assert_eq!(decide_with(7, 0, Some(0)), None);
    }

    #[test]
    fn a_call_waits_for_several_holds_no_longer_than_its_limit_in_all() {
        assert_eq!(decide_with(20, 40, None), Some(seconds(20)));
        assert_eq!(decide_with(20, 41, None), None);
    }

    #[test]
    fn jitter_spreads_the_calls_after_the_hold_but_not_past_the_deadline() {
        let wait = |deadline| {
            RetryPolicy::exponential().wait_for_hold(seconds(20), Duration::ZERO, deadline, 1.0)
        };

        assert_eq!(wait(None), Some(seconds(22)));
        assert_eq!(wait(Some(seconds(22))), Some(seconds(21)));
    }
}
