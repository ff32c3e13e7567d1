use std::time::Duration;

/// When and how often a failed call is retried.
///
/// The policy sets how often and after which wait. Whether a call may be retried at all depends on the
/// operation, because a retry must not do harm:
///
/// | operation | retried after |
/// |---|---|
/// | retrieve, list, unsubscribe, `answer` with `false`, `merge_properties` | a failed or broken connection, a timeout, 408, 429, 500, 502, 503, 504 |
/// | create and `create_batch` with upsert or skip | the same |
/// | create and `create_batch` with any `on_conflict: error` | a failed connection, 429: if a 201 was lost, a retry would return 409 |
/// | subscribe, `answer` with `true` | a failed connection, 429: a late retry could undo an opt-out that the recipient made in the meantime |
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
    pub(super) max_attempts: u32,
    pub(super) base_delay: Duration,
    pub(super) max_delay: Duration,
    pub(super) max_retry_after: Duration,
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
