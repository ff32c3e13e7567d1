use std::time::{Duration, SystemTime};

use http::HeaderMap;
use http::header::RETRY_AFTER;

/// When and how often a failed call is tried again.
///
/// What may be repeated at all is not a matter of policy but of the operation, because a repeat must
/// not do harm:
///
/// | operation | repeated after |
/// |---|---|
/// | retrieve, list, unsubscribe, `merge_properties` | no connection, a broken one, a timeout, 408, 429, 500, 502, 503, 504 |
/// | create and `create_batch` with upsert or skip | the same |
/// | create and `create_batch` with any `on_conflict: error` | no connection, 429: a lost 201 would come back as 409 |
/// | subscribe | no connection, 429: a late repeat could undo an opt-out that the recipient made in between |
/// | [`Client::request`](crate::Client::request) | nothing, unless `.idempotent()` |
///
/// `.repeatable()` on a create, a batch or a subscribe lifts the restriction for that call.
///
/// Waits grow exponentially with full jitter: before retry `n` a random time from 0 up to
/// `base_delay × 2ⁿ⁻¹`, at most `max_delay`. A `Retry-After` of the service, in seconds or as a date,
/// takes its place, up to `max_retry_after`. A connection that the service closed without a word,
/// as happens to one that lay idle in the pool, is replaced at once the first time.
///
/// # Example: patient
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
    /// Up to 4 attempts, the waits up to 0.25 s, 0.5 s and 1 s: the default.
    #[must_use]
    pub fn exponential() -> Self {
        Self {
            max_attempts: 4,
            base_delay: Duration::from_millis(250),
            max_delay: Duration::from_secs(20),
            max_retry_after: Duration::from_secs(60),
        }
    }

    /// One attempt, whatever becomes of it.
    #[must_use]
    pub fn none() -> Self {
        Self::exponential().max_attempts(1)
    }

    /// How many requests a call makes at the most; 0 counts as 1. Default 4.
    #[must_use]
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = attempts.max(1);
        self
    }

    /// The longest wait before the first retry; it doubles from there. Default 250 ms.
    #[must_use]
    pub fn base_delay(mut self, delay: Duration) -> Self {
        self.base_delay = delay;
        self
    }

    /// What a wait of our own choosing never exceeds. Default 20 s.
    #[must_use]
    pub fn max_delay(mut self, delay: Duration) -> Self {
        self.max_delay = delay;
        self
    }

    /// What a wait that the service asked for never exceeds. Default 60 s.
    #[must_use]
    pub fn max_retry_after(mut self, delay: Duration) -> Self {
        self.max_retry_after = delay;
        self
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::exponential()
    }
}

/// Which failures a request survives being sent again after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// Doing it twice comes to the same as doing it once.
    Always,
    /// Only where it was certainly not applied.
    Unapplied,
    /// Not on its own.
    Never,
}

/// What became of an attempt, as far as a repeat is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// It never left this machine.
    NotSent,
    /// The connection was closed before a word of the answer, as an idle one is.
    Closed,
    /// It was sent, and no whole answer came.
    Unanswered,
    /// It was answered with this status.
    Status(u16),
    /// It was answered, and asking again would not help.
    Settled,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Situation {
    /// Counted from 1.
    pub(super) attempt: u32,
    pub(super) repeat: Repeat,
    pub(super) failure: Failure,
    pub(super) retry_after: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    After(Duration),
    Stop,
}

/// Whether to try again, and when. `jitter` is a random number from 0 up to 1.
pub(super) fn decide(policy: &RetryPolicy, situation: &Situation, jitter: f64) -> Decision {
    let &Situation {
        attempt,
        repeat,
        failure,
        retry_after,
    } = situation;
    if attempt >= policy.max_attempts || !may_repeat(repeat, failure) {
        return Decision::Stop;
    }
    if let Some(asked) = retry_after {
        return Decision::After(asked.min(policy.max_retry_after));
    }
    if failure == Failure::Closed && attempt == 1 {
        return Decision::After(Duration::ZERO);
    }
    let doubled = 2_u32.saturating_pow(attempt - 1);
    let longest = policy
        .base_delay
        .saturating_mul(doubled)
        .min(policy.max_delay);
    Decision::After(longest.mul_f64(jitter.clamp(0.0, 1.0)))
}

fn may_repeat(repeat: Repeat, failure: Failure) -> bool {
    match (repeat, failure) {
        (Repeat::Never, _) | (_, Failure::Settled) => false,
        (_, Failure::NotSent | Failure::Status(429)) => true,
        (Repeat::Unapplied, _) => false,
        (Repeat::Always, Failure::Closed | Failure::Unanswered) => true,
        (Repeat::Always, Failure::Status(status)) => matches!(status, 408 | 500 | 502 | 503 | 504),
    }
}

/// The wait that a `Retry-After` header asks for: whole seconds, or a date.
pub(super) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    const FAILURES: [Failure; 4] = [
        Failure::NotSent,
        Failure::Closed,
        Failure::Unanswered,
        Failure::Settled,
    ];

    fn situation(repeat: Repeat, failure: Failure) -> Situation {
        Situation {
            attempt: 1,
            repeat,
            failure,
            retry_after: None,
        }
    }

    fn repeats(repeat: Repeat, failure: Failure) -> bool {
        decide(
            &RetryPolicy::exponential(),
            &situation(repeat, failure),
            0.5,
        ) != Decision::Stop
    }

    #[test]
    fn every_failure_is_repeated_only_where_the_operation_survives_it() {
        let transient = [408, 429, 500, 502, 503, 504];
        for status in 100..=599 {
            let failure = Failure::Status(status);

            assert_eq!(
                repeats(Repeat::Always, failure),
                transient.contains(&status),
                "{status}"
            );
            assert_eq!(
                repeats(Repeat::Unapplied, failure),
                status == 429,
                "{status}"
            );
            assert!(!repeats(Repeat::Never, failure), "{status}");
        }
        assert_eq!(
            FAILURES.map(|failure| repeats(Repeat::Always, failure)),
            [true, true, true, false]
        );
        assert_eq!(
            FAILURES.map(|failure| repeats(Repeat::Unapplied, failure)),
            [true, false, false, false]
        );
        assert_eq!(
            FAILURES.map(|failure| repeats(Repeat::Never, failure)),
            [false; 4]
        );
    }

    #[test]
    fn waits_double_up_to_the_cap_and_are_spread_over_their_whole_length() {
        let policy = RetryPolicy::exponential()
            .max_attempts(u32::MAX)
            .max_delay(Duration::from_secs(3));
        let wait = |attempt, jitter| {
            let situation = Situation {
                attempt,
                ..situation(Repeat::Always, Failure::Unanswered)
            };
            decide(&policy, &situation, jitter)
        };

        let millis = |ms| Decision::After(Duration::from_millis(ms));
        assert_eq!(
            [1, 2, 3, 4, 5].map(|n| wait(n, 1.0)),
            [250, 500, 1_000, 2_000, 3_000].map(millis)
        );
        assert_eq!(wait(2, 0.0), millis(0));
        assert_eq!(wait(2, 0.5), millis(250));
        assert_eq!(wait(4_000_000_000, 1.0), millis(3_000));
    }

    #[test]
    fn attempts_end_where_the_policy_says() {
        let policy = RetryPolicy::exponential().max_attempts(3);
        let stops = |attempt| {
            let situation = Situation {
                attempt,
                ..situation(Repeat::Always, Failure::Status(503))
            };
            decide(&policy, &situation, 0.0) == Decision::Stop
        };

        assert_eq!([1, 2, 3, 4].map(stops), [false, false, true, true]);
        assert_eq!(
            decide(
                &RetryPolicy::none(),
                &situation(Repeat::Always, Failure::NotSent),
                0.0
            ),
            Decision::Stop
        );
    }

    #[test]
    fn a_closed_connection_is_replaced_at_once_but_only_the_first_time() {
        let policy = RetryPolicy::exponential();
        let closed = situation(Repeat::Always, Failure::Closed);

        assert_eq!(
            decide(&policy, &closed, 1.0),
            Decision::After(Duration::ZERO)
        );
        assert_ne!(
            decide(
                &policy,
                &Situation {
                    attempt: 2,
                    ..closed
                },
                1.0
            ),
            Decision::After(Duration::ZERO)
        );
    }

    #[test]
    fn retry_after_takes_the_place_of_the_wait_up_to_its_cap() {
        let policy = RetryPolicy::exponential();
        let asked = |seconds| {
            let retry_after = Some(Duration::from_secs(seconds));
            decide(
                &policy,
                &Situation {
                    retry_after,
                    ..situation(Repeat::Unapplied, Failure::Status(429))
                },
                0.1,
            )
        };

        assert_eq!(asked(7), Decision::After(Duration::from_secs(7)));
        assert_eq!(asked(u64::MAX), Decision::After(Duration::from_secs(60)));
    }

    #[test]
    fn retry_after_is_read_in_seconds_and_as_a_date() {
        let now = UNIX_EPOCH + Duration::from_secs(784_111_777);
        let read = |text: &'static str| {
            let headers =
                HeaderMap::from_iter([(RETRY_AFTER, http::HeaderValue::from_static(text))]);
            retry_after(&headers, now).map(|wait| wait.as_secs())
        };

        assert_eq!(read("120"), Some(120));
        assert_eq!(read("Sun, 06 Nov 1994 08:49:47 GMT"), Some(10));
        assert_eq!(read("Sun, 06 Nov 1994 08:49:00 GMT"), Some(0));
        assert_eq!(read("-1"), None);
        assert_eq!(read("soon"), None);
        assert_eq!(read("99999999999999999999999"), None);
    }
}
