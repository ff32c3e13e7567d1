//! The send loop: attempts, and the waits between them.

use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;
use url::Url;

use super::call::CallOptions;
use super::request::{Operation, Request, RetrySafety};
use super::response::{HttpResponse, Success};
use super::retry::RetryPolicy;
use super::retry::{self, RetryDecision, RetryState};
use super::retry::{Hold, HoldDecision, HoldState};
use super::trace::{self, AttemptSpan};
use super::transport::Transport;
use super::transport::{AttemptLimit, FailedAttempt, Failure};
use crate::{Error, Outcome};

/// The transport and the settings that all clones of a client share.
pub(super) struct Sender {
    pub(super) transport: Transport,
    pub(super) retry: RetryPolicy,
    pub(super) timeout: Duration,
    pub(super) deadline: Option<Duration>,
    pub(super) hold: Hold,
}

impl Sender {
    /// Sends a request until the service responds with a 2xx status, or until the retry policy, the
    /// operation or the deadline forbids another attempt.
    pub(super) async fn send(
        &self,
        operation: Operation,
        request: Request,
        options: CallOptions,
    ) -> Result<Success, Error> {
        let policy = options.retry.as_ref().unwrap_or(&self.retry);
        let timeout = options.timeout.unwrap_or(self.timeout);
        let deadline = Deadline::after(options.deadline.limit(self.deadline));
        let safety = if options.idempotent {
            RetrySafety::Safe
        } else {
            request.retry_safety
        };
        let url = self.transport.url(&request)?;
        let mut attempt = 1;
        let mut worst = Outcome::NotSent;
        let mut waited = Duration::ZERO;
        let mut last_error = None;
        loop {
            let waiting = self.wait_for_hold(policy, deadline, &mut waited, operation, &options);
            if let Err(not_sent) = waiting.await {
                return Err(last_error.unwrap_or(not_sent));
            }
            let limit = deadline.limit_attempt(timeout);
            let failed = match self
                .attempt(operation, &request, &url, limit, attempt)
                .await
            {
                Ok(response) => return Ok(Success::new(operation, response, attempt)),
                Err(failed) => failed,
            };
            worst = worst.max(failed.error.outcome());
            let state = RetryState {
                attempt,
                safety,
                failure: failed.failure,
                retry_after: failed.error.retry_after(),
            };
            self.hold_back_clones(&state);
            options.report_failure(state.failure, failed.error.is_timeout());
            let error = failed.error.after(attempt, worst);
            match retry::decide_retry(policy, &state, fastrand::f64()) {
                RetryDecision::Retry { wait } if deadline.allows(wait) => {
                    trace::retry(operation, attempt, wait, &error);
                    options.report_retry();
                    if !options.wait(wait).await {
                        return Err(error);
                    }
                }
                RetryDecision::Retry { .. } | RetryDecision::Stop => return Err(error),
            }
            last_error = Some(error);
            attempt += 1;
        }
    }

    /// Waits until no 429 holds back the client. `waited` is how long this call has waited for that.
    ///
    /// # Errors
    ///
    /// If the hold ends too late for this call, or the deadline is over.
    async fn wait_for_hold(
        &self,
        policy: &RetryPolicy,
        deadline: Deadline,
        waited: &mut Duration,
        operation: Operation,
        options: &CallOptions,
    ) -> Result<(), Error> {
        loop {
            let state = HoldState {
                left: self.hold.left(Instant::now()),
                waited: *waited,
                deadline: deadline.left(),
            };
            match retry::decide_hold(policy, &state, fastrand::f64()) {
                HoldDecision::Send if deadline.is_over() => return Err(Error::expired()),
                HoldDecision::Send => return Ok(()),
                HoldDecision::Wait(wait) => {
                    trace::hold(operation, wait);
                    if !options.wait(wait).await {
                        return Err(Error::held_back(state.left));
                    }
                    *waited = waited.saturating_add(state.left);
                }
                HoldDecision::Fail => return Err(Error::held_back(state.left)),
            }
        }
    }

    /// Holds back all clones of the client after a 429 that asks for a wait.
    fn hold_back_clones(&self, state: &RetryState) {
        if let (Failure::Status(StatusCode::TOO_MANY_REQUESTS), Some(asked)) =
            (state.failure, state.retry_after)
        {
            self.hold.extend(Instant::now(), asked);
        }
    }

    /// Makes one attempt, in a span.
    async fn attempt(
        &self,
        operation: Operation,
        request: &Request,
        url: &Url,
        limit: AttemptLimit,
        attempt: u32,
    ) -> Result<HttpResponse, FailedAttempt> {
        let base = self.transport.base();
        let work = async {
            let response = self.transport.send(request, url, limit).await?;
            if response.status.is_success() {
                Ok(response)
            } else {
                let location = self.transport.location(&response);
                Err(FailedAttempt::refused(response, location, request))
            }
        };
        let span = AttemptSpan::new(base, operation, request, attempt);
        let result = span.run(work).await;
        span.ended(&result);
        result
    }
}

/// The instant at which the whole call must end, if there is one.
#[derive(Clone, Copy)]
struct Deadline(Option<Instant>);

impl Deadline {
    /// Creates a deadline at this time from now. A limit too large to represent means no deadline.
    fn after(limit: Option<Duration>) -> Self {
        Self(limit.and_then(|limit| Instant::now().checked_add(limit)))
    }

    /// Returns the time until the deadline; `None` if there is no deadline.
    fn left(self) -> Option<Duration> {
        self.0
            .map(|end| end.saturating_duration_since(Instant::now()))
    }

    fn is_over(self) -> bool {
        self.left() == Some(Duration::ZERO)
    }

    /// Returns whether a wait from now would end before the deadline.
    fn allows(self, wait: Duration) -> bool {
        self.left().is_none_or(|left| wait < left)
    }

    /// Returns the limit of an attempt that starts now: the timeout, or the deadline if that is earlier.
    fn limit_attempt(self, timeout: Duration) -> AttemptLimit {
        match self.left() {
            Some(left) if left < timeout => AttemptLimit::Deadline(left),
            _ => AttemptLimit::Timeout(timeout),
        }
    }
}
