//! Sends a request: the attempts, the waits between them, and the spans and events about both. Only this file and the
//! builder name reqwest. The docs of the module `client` have a table of the spans and events.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, HeaderValue, LOCATION};
use http::{Method, StatusCode};
#[cfg(any(feature = "rustls", feature = "rustls-no-provider"))]
use rustls::InvalidMessage;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use url::Url;

use super::Shared;
use super::call::{CallAttempt, CallDeadline, CallOptions, ResponseFuture};
use super::exchange::{Operation, Request, RetrySafety, Success, outcome_of};
use super::retry::{Failure, RetryPolicy};
use crate::causes::causes;
use crate::error::{CHECK_THE_BASE_URL, is_transient};
use crate::sync::lock;
use crate::{Client, Error, ErrorKind, Outcome};

/// The length of the longest URL that the crate `http` accepts, in bytes.
const LONGEST_URL: usize = 65_534;

impl Client {
    /// Sends a request, with retries, and decodes its response.
    pub(crate) fn send<T: Send + 'static>(
        self,
        operation: Operation,
        request: Result<Request, Error>,
        options: CallOptions,
        decode: impl FnOnce(Success) -> Result<T, Error> + Send + 'static,
    ) -> ResponseFuture<T> {
        let request = match request {
            Ok(request) => request,
            Err(error) => {
                return ResponseFuture::new(async move { Err(not_sent(operation, error)) });
            }
        };
        ResponseFuture::new(async move {
            let received = self.receive(operation, &request, &options).await?;
            received.decode(decode)
        })
    }

    /// Sends a request, with retries, and returns its 2xx response. An error gets the name of the
    /// operation.
    ///
    /// This function and those that it calls borrow the request and the options, because each future that owns them
    /// grows by their size.
    pub(crate) async fn receive(
        &self,
        operation: Operation,
        request: &Request,
        options: &CallOptions,
    ) -> Result<Received, Error> {
        let span = CallSpan::new(operation);
        let attempts = self.shared.send_with_retries(operation, request, options);
        match span.run(attempts).await {
            Ok(success) => Ok(Received { success, span }),
            Err(error) => {
                span.failed(&error);
                let is_repeatable = options.idempotent || request.retry_safety == RetrySafety::Safe;
                Err(error.at(operation.name).repeatable(is_repeatable))
            }
        }
    }
}

/// Returns the result of a call whose only response is this one. Sends nothing.
#[cfg(any(test, fuzzing))]
pub(crate) fn result_of<E: super::Endpoint>(
    endpoint: &E,
    response: http::Response<Bytes>,
) -> Result<E::Output, Error> {
    let (operation, request) = (endpoint.operation(), endpoint.request()?);
    if !response.status().is_success() {
        let (method, target) = (&request.method, &request.target);
        let error = Error::from_response(response, method, target, None, None);
        return Err(error.after(1, Outcome::NotSent).at(operation.name));
    }
    let received = Received {
        success: Success::new(operation, &request, response, 1),
        span: CallSpan::new(operation),
    };
    received.decode(|success| endpoint.decode(success))
}

/// Ends a call whose request cannot be built, with its span.
pub(crate) fn not_sent(operation: Operation, error: Error) -> Error {
    CallSpan::new(operation).failed(&error);
    error.at(operation.name)
}

#[cfg(feature = "import")]
impl Client {
    /// Holds back all clones of the client for this long, as after a 429 that asks for it.
    pub(crate) fn hold_back(&self, wait: Duration) {
        if !wait.is_zero() {
            self.shared.hold.extend(Instant::now(), wait);
        }
    }
}

/// A 2xx response that has not been decoded.
pub(crate) struct Received {
    success: Success,
    span: CallSpan,
}

impl Received {
    /// Decodes the response, which ends the call. An error gets the name of the operation, the number of
    /// attempts and the body.
    pub(crate) fn decode<T>(
        self,
        decode: impl FnOnce(Success) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let Self { success, span } = self;
        let operation = success.operation;
        let (attempts, outcome) = (success.attempts, success.outcome);
        let is_repeatable = success.is_repeatable;
        let body = success.response.body().clone();
        let decoded = decode(success).map_err(|error| {
            let error = error.after(attempts, Outcome::NotSent);
            let outcome = outcome_of(outcome, &body);
            let error = error.with_outcome(outcome).reading(body);
            error.at(operation.name).repeatable(is_repeatable)
        });
        match &decoded {
            Ok(_) => span.succeeded(attempts),
            Err(error) => span.failed(error),
        }
        decoded
    }
}

impl Shared {
    /// Sends a request until the service responds with a 2xx status, or until the retry policy, the
    /// operation or the deadline forbids another attempt.
    async fn send_with_retries(
        &self,
        operation: Operation,
        request: &Request,
        options: &CallOptions,
    ) -> Result<Success, Error> {
        let policy = options.retry.as_ref().unwrap_or(&self.retry);
        // The clock is read once for each attempt.
        let mut now = Instant::now();
        let deadline = Deadline::start(options.deadline, self.deadline, now);
        let safety = if options.idempotent {
            RetrySafety::Safe
        } else {
            request.retry_safety
        };
        // Built once: all attempts send the same URL.
        let url = self.url(request)?;
        let mut attempt = 1;
        // The outcome covers all attempts: the first may have been applied without a response, even if the last was
        // refused.
        let mut worst = Outcome::NotSent;
        let mut waited = Duration::ZERO;
        let mut last_error = None;
        // Each part has its own box, because glibc allocates a future of more than 1 kB slowly.
        loop {
            // Another call may be held back while this one waits for its turn, and then this one gives it up: after the hold,
            // all others would follow it at once.
            loop {
                if !self.hold.left(now).is_zero() || deadline.is_over(now) {
                    let (now, waited) = (&mut now, &mut waited);
                    let waiting =
                        self.wait_for_hold(policy, deadline, now, waited, operation, options);
                    if let Err(not_sent) = Box::pin(waiting).await {
                        // The error of the last attempt says more than that the call was held back.
                        return Err(last_error.unwrap_or(not_sent));
                    }
                }
                let Some(pace) = &self.pace else {
                    break;
                };
                let turn = pace.wait(attempt > 1 || options.has_begun(), deadline);
                if let Err(not_sent) = Box::pin(turn).await {
                    return Err(last_error.unwrap_or(not_sent));
                }
                now = Instant::now();
                if self.hold.left(now).is_zero() {
                    options.begin();
                    break;
                }
            }
            // Not before the loop, because the future would be larger.
            let timeout = options.timeout.unwrap_or(self.timeout);
            let limit = deadline.limit_attempt(timeout, now);
            let work = Box::pin(self.attempt(operation, request, &url, limit, attempt));
            let failed = match work.await {
                Ok(response) => {
                    let mut success = Success::new(operation, request, response, attempt);
                    success.is_repeatable |= options.idempotent;
                    return Ok(success);
                }
                Err(failed) => failed,
            };
            worst = worst.max(failed.error.outcome());
            let (failure, retry_after) = (failed.failure, failed.error.retry_after());
            // First of all, so that other calls wait even if this one fails now.
            self.hold_back_clones(failure, retry_after);
            options.report_failure(failure, failed.error.is_timeout());
            let error = failed.error.after(attempt, worst);
            let (left, jitter) = (deadline.left(Instant::now()), fastrand::f64());
            let wait =
                policy.wait_before_retry(attempt, safety, failure, retry_after, left, jitter);
            let Some(wait) = wait else {
                return Err(error);
            };
            report_retry(operation, attempt, wait, &error);
            options.report_retry();
            if !Box::pin(options.wait(wait)).await {
                return Err(error);
            }
            last_error = Some(error);
            attempt += 1;
            now = Instant::now();
        }
    }

    /// Waits until no 429 holds back the client. `now` is set to the end of the wait. `waited` is how long this call
    /// has waited for that.
    ///
    /// # Errors
    ///
    /// If the hold ends too late for this call, or the deadline is over.
    async fn wait_for_hold(
        &self,
        policy: &RetryPolicy,
        deadline: Deadline,
        now: &mut Instant,
        waited: &mut Duration,
        operation: Operation,
        options: &CallOptions,
    ) -> Result<(), Error> {
        loop {
            let left = self.hold.left(*now);
            match policy.wait_for_hold(left, *waited, deadline.left(*now), fastrand::f64()) {
                None => return Err(Error::held_back(left)),
                // An attempt without any time left would count as sent, with an unknown outcome.
                Some(Duration::ZERO) if deadline.is_over(*now) => {
                    return Err(deadline.passed("before the request was sent"));
                }
                Some(Duration::ZERO) => return Ok(()),
                Some(wait) => {
                    report_hold(operation, wait);
                    if !options.wait(wait).await {
                        return Err(Error::held_back(left));
                    }
                    // Another call may have extended the hold in the meantime, so the loop looks again.
                    *waited = waited.saturating_add(left);
                    *now = Instant::now();
                }
            }
        }
    }

    /// Holds back all clones of the client after a 429 that asks for a wait.
    fn hold_back_clones(&self, failure: Failure, retry_after: Option<Duration>) {
        if let (Failure::Status(StatusCode::TOO_MANY_REQUESTS), Some(asked)) =
            (failure, retry_after)
        {
            self.hold.extend(Instant::now(), asked);
        }
    }

    /// Makes one attempt, in a span and within its limit.
    async fn attempt(
        &self,
        operation: Operation,
        request: &Request,
        url: &Url,
        limit: AttemptLimit,
        attempt: u32,
    ) -> Result<http::Response<Bytes>, FailedAttempt> {
        let mut refusal = None;
        let work = async {
            let (response, redirected_to) =
                self.send_and_follow(request, url, &mut refusal).await?;
            if response.status().is_success() {
                Ok(response)
            } else {
                Err(self.refused(response, redirected_to, request))
            }
        };
        let span = AttemptSpan::new(&self.base, operation, request, attempt);
        // One timer for the timeout and the deadline. reqwest's own timer would need three more allocations.
        let mut result = match timeout_at(limit.end, span.run(work)).await {
            Ok(result) => result,
            Err(_) => Err(match refusal {
                Some(response) => self.refused(*response, None, request),
                None => FailedAttempt::timed_out(limit.message()),
            }),
        };
        span.ended(&result);
        if let Some(on_attempt) = &self.on_attempt {
            let error = result.as_ref().err().map(|failed| &failed.error);
            on_attempt(&CallAttempt {
                operation: operation.name,
                method: &request.method,
                template: operation.template,
                number: attempt,
                duration: limit.start.elapsed(),
                status: status_of(&result),
                failure: error.map(Error::kind),
            });
        }
        if let (true, Err(failed)) = (request.method.is_safe(), &mut result) {
            failed.error.set_read();
        }
        result
    }

    /// Returns the failure for a response with a status other than 2xx.
    fn refused(
        &self,
        response: http::Response<Bytes>,
        redirected_to: Option<String>,
        request: &Request,
    ) -> FailedAttempt {
        let read_errors = self.read_errors.as_deref();
        FailedAttempt {
            failure: Failure::Status(response.status()),
            error: Error::from_response(
                response,
                &request.method,
                &request.target,
                redirected_to,
                read_errors,
            ),
        }
    }

    /// Sends a request once, and again for each redirect that is [followed](redirect). Reads the last response, with
    /// any status. If that is a redirect, also returns what an error says about it.
    ///
    /// `refusal` is for a response without its body, as in [`send_once`](Self::send_once).
    async fn send_and_follow(
        &self,
        request: &Request,
        url: &Url,
        refusal: &mut Option<Box<http::Response<Bytes>>>,
    ) -> Result<(http::Response<Bytes>, Option<String>), FailedAttempt> {
        let mut followed = 0;
        let mut target = None;
        loop {
            let url = target.as_deref().unwrap_or(url);
            let response = self.send_once(request, url, refusal).await?;
            match redirect(&request.method, &response, url, followed) {
                Some(Ok(next)) => target = Some(Box::new(next)),
                Some(Err(unfollowed)) => return Ok((response, Some(unfollowed))),
                None => return Ok((response, None)),
            }
            followed += 1;
        }
    }

    /// Sends a request once and reads the complete response, with any status.
    ///
    /// A transient status decides about a retry, and the head says how long to wait. After a 429, the clones wait, too, and
    /// nothing was applied. So such a response is in `refusal` without its body, while the body is read: it may never end.
    async fn send_once(
        &self,
        request: &Request,
        url: &Url,
        refusal: &mut Option<Box<http::Response<Bytes>>>,
    ) -> Result<http::Response<Bytes>, FailedAttempt> {
        let mut response = self
            .http
            .execute(self.http_request(request, url))
            .await
            .map_err(|error| FailedAttempt::while_sending(error, url))?;
        // An `http_client` may follow redirects, which can turn a POST into a GET.
        if response.url() != url {
            return Err(FailedAttempt::followed_redirect());
        }
        if is_transient(response.status()) {
            let mut head = http::Response::new(Bytes::new());
            *head.status_mut() = response.status();
            head.headers_mut().clone_from(response.headers());
            *refusal = Some(Box::new(head));
        }
        let body = match self.read_body(&mut response).await {
            // The body does not decompress or is too long. The status still counts.
            Err(failed)
                if !response.status().is_success() && failed.failure == Failure::Permanent =>
            {
                Bytes::new()
            }
            Err(_) if is_transient(response.status()) => Bytes::new(),
            body => body?,
        };
        let mut complete = http::Response::new(body);
        *complete.status_mut() = response.status();
        std::mem::swap(complete.headers_mut(), response.headers_mut());
        Ok(complete)
    }

    /// Returns the request as reqwest sends it. A builder would copy the headers one by one.
    fn http_request(&self, request: &Request, url: &Url) -> reqwest::Request {
        let mut http = reqwest::Request::new(request.method.clone(), url.clone());
        let mut headers = if let Some(body) = &request.body {
            *http.body_mut() = Some(body.clone().into());
            self.json_headers.clone()
        } else {
            self.headers.clone()
        };
        for (name, value) in &request.headers {
            // A raw request cannot replace the key or another header of the client.
            if !self.json_headers.contains_key(name) {
                headers.append(name, value.clone());
            }
        }
        let has_length = matches!(request.method, Method::POST | Method::PUT | Method::PATCH);
        if has_length && request.body.is_none() {
            // Some servers respond 411 if these methods have no length, even without a body.
            headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        *http.headers_mut() = headers;
        http
    }

    /// Returns the full URL of a request.
    ///
    /// # Errors
    ///
    /// If the URL is too long, `ErrorKind::Pagination` if the service's cursor made it so, and
    /// `ErrorKind::Input` otherwise.
    fn url(&self, request: &Request) -> Result<Url, Error> {
        let joined = self.base.join(&request.relative_url());
        let mut url =
            joined.map_err(|error| Error::input("the URL is invalid").caused_by(error))?;
        if request.path.is_empty() {
            // The base URL itself, which the caller wrote without the slash.
            let path = url.path().trim_end_matches('/').to_owned();
            url.set_path(&path);
        }
        let length = url.as_str().len();
        if length <= LONGEST_URL {
            return Ok(url);
        }
        let message =
            format!("the URL would have {length} bytes; at most {LONGEST_URL} can be sent");
        Err(if request.has_service_cursor {
            let message = format!("the service sent a cursor that is too long: {message}");
            Error::new(ErrorKind::Pagination, Outcome::NotSent, message)
        } else {
            Error::input(message)
        })
    }

    /// Reads a body up to the limit. Memory is not reserved for a `Content-Length`, which may be wrong.
    async fn read_body(&self, response: &mut reqwest::Response) -> Result<Bytes, FailedAttempt> {
        let read = FailedAttempt::while_reading;
        // Most bodies arrive as one chunk, which is not copied.
        let first = response.chunk().await.map_err(read)?.unwrap_or_default();
        self.check_limit(first.len())?;
        let mut chunk = response.chunk().await.map_err(read)?;
        if chunk.is_none() {
            return Ok(first);
        }
        let mut body = BytesMut::from(first);
        while let Some(more) = chunk {
            self.check_limit(body.len() + more.len())?;
            body.extend_from_slice(&more);
            chunk = response.chunk().await.map_err(read)?;
        }
        Ok(body.freeze())
    }

    fn check_limit(&self, length: usize) -> Result<(), FailedAttempt> {
        if length <= self.body_limit {
            Ok(())
        } else {
            Err(FailedAttempt::body_too_long(self.body_limit))
        }
    }
}

/// How many redirects one attempt follows.
const MAX_REDIRECTS: u32 = 5;

/// Decides about a redirect, after this many in the same attempt: returns where to send the request again, or how an
/// error names the target and says why it is not followed. `None` if the response is not a redirect to a host.
///
/// A 307 or a 308 asks for the same request at another URL. A 301 or a 302 does so only for a GET: clients send a GET
/// after any other request, so it is not clear what the service wants. The target must have the origin of the URL,
/// which is its scheme, host and port. So the key reaches nobody else, and is never sent in clear text instead of over
/// TLS. It must have the query of the URL: without it, a list would have every contact, or begin anew.
///
/// The service chooses the `Location`, so its host may repeat the key or an address, which must not be printed.
/// Only the host of the base URL is named.
fn redirect(
    method: &Method,
    response: &http::Response<Bytes>,
    url: &Url,
    followed: u32,
) -> Option<Result<Url, String>> {
    let code = response.status().as_u16();
    if !matches!(code, 300..=303 | 307 | 308) {
        return None;
    }
    let location = response.headers().get(LOCATION)?.to_str().ok()?;
    let mut target = url.join(location).ok()?;
    target.set_fragment(None);
    // A relative location has the host of the URL by now.
    let host = target.host_str()?;
    let (scheme, own_scheme) = (target.scheme(), url.scheme());
    let is_http = matches!(scheme, "http" | "https");
    let unfollowed = "which is not followed";
    let reason = if Some(host) != url.host_str() {
        match is_http {
            true => format!("another host over {scheme}, {unfollowed}"),
            false => format!("another host, {unfollowed}"),
        }
    } else if scheme != own_scheme && is_http {
        format!("{host} over {scheme}, not {own_scheme}, {unfollowed}")
    } else if scheme != own_scheme {
        format!("{host} over another scheme, {unfollowed}")
    } else if target.origin() != url.origin() {
        format!("{host} on another port, {unfollowed}")
    } else if !target.username().is_empty() || target.password().is_some() {
        format!("{host} with a user name, {unfollowed}")
    } else if matches!(code, 300 | 303) {
        format!("{host}, {unfollowed} (a {code} never is)")
    } else if followed == MAX_REDIRECTS {
        format!("{host} after {followed} others, {unfollowed}")
    } else if matches!(code, 301 | 302) && method != Method::GET {
        format!("{host}, {unfollowed} (a {code} is followed only for a GET)")
    } else if target.query().unwrap_or_default() != url.query().unwrap_or_default() {
        format!("{host} with another query than the request's, {unfollowed}")
    } else if target.as_str().len() > LONGEST_URL {
        format!("{host}, {unfollowed} (its URL is longer than {LONGEST_URL} bytes)")
    } else {
        return Some(Ok(target));
    };
    Some(Err(reason))
}

/// The instant at which the whole call must end, if there is one.
#[derive(Clone, Copy)]
struct Deadline {
    end: Option<Instant>,
    /// The time that the whole call may take, for messages.
    limit: Duration,
}

impl Deadline {
    /// Creates the deadline of a call that starts now.
    fn start(deadline: CallDeadline, client: Option<Duration>, now: Instant) -> Self {
        let (end, limit) = match deadline.start(client, now) {
            CallDeadline::At { end, limit } => (Some(end), limit),
            _ => (None, Duration::MAX),
        };
        Self { end, limit }
    }

    /// Returns the time from `now` until the deadline; `None` if there is no deadline.
    fn left(self, now: Instant) -> Option<Duration> {
        self.end.map(|end| end.saturating_duration_since(now))
    }

    fn is_over(self, now: Instant) -> bool {
        self.left(now) == Some(Duration::ZERO)
    }

    /// The error of a call whose deadline is over before its request.
    fn passed(self, when: &str) -> Error {
        let limit = self.limit;
        let message = format!("the deadline of {limit:?} passed {when}");
        Error::new(ErrorKind::Timeout, Outcome::NotSent, message)
    }

    /// Returns the limit of an attempt that starts now: the timeout, or the deadline if that is earlier.
    fn limit_attempt(self, timeout: Duration, now: Instant) -> AttemptLimit {
        // If the timeout is too large to represent, the attempt may take 30 years.
        let end = now
            .checked_add(timeout)
            .unwrap_or_else(|| now + LONGEST_TIMEOUT);
        match self.end {
            Some(deadline) if deadline < end => AttemptLimit {
                start: now,
                end: deadline,
                limit: self.limit,
                is_deadline: true,
            },
            _ => AttemptLimit {
                start: now,
                end,
                limit: timeout,
                is_deadline: false,
            },
        }
    }
}

/// The limit of requests per second that all clones of a client share.
///
/// No call holds a lock while it waits. A program may keep a call without polling it, for example in the buffer of a
/// stream, and such a call must not stop the others.
pub(super) struct Pace {
    interval: Duration,
    queue: Mutex<Queue>,
    /// Wakes those who wait if one of them has left the queue without a turn.
    left: Notify,
}

struct Queue {
    /// When the first call has its turn. The second one has its turn an interval later, also if the first one does not
    /// take its own, and so on.
    next: Instant,
    /// The calls that wait, in their order: first those that have begun, then the others (`true`), each with its ticket.
    /// A call that a later one has overtaken has a `true` behind it. Nobody waits for it any more.
    calls: Vec<((bool, u64), bool)>,
    tickets: u64,
}

impl Queue {
    fn find(&self, call: (bool, u64)) -> Option<usize> {
        let found = self.calls.binary_search_by_key(&call, |(call, _)| *call);
        found.ok()
    }
}

impl Pace {
    /// # Errors
    ///
    /// If the limit is 0.
    pub(super) fn new(per_second: u32) -> Result<Self, Error> {
        let interval = Duration::from_secs(1).checked_div(per_second);
        Ok(Self {
            interval: interval.ok_or_else(|| {
                Error::config("a client with a limit of 0 requests per second could send nothing")
            })?,
            queue: Mutex::new(Queue {
                next: Instant::now(),
                calls: Vec::new(),
                tickets: 0,
            }),
            left: Notify::new(),
        })
    }

    /// Waits until another request may be sent. If this is dropped before, the turn goes to the next call.
    ///
    /// # Errors
    ///
    /// If the deadline is over before that.
    async fn wait(&self, has_begun: bool, deadline: Deadline) -> Result<(), Error> {
        let end = deadline.end;
        let end = end.unwrap_or_else(|| Instant::now() + LONGEST_TIMEOUT);
        let turn = timeout_at(end, self.take_turn(has_begun)).await;
        if turn.is_ok() && !deadline.is_over(Instant::now()) {
            return Ok(());
        }
        let when = "while the request waited because of the limit of requests per second";
        Err(deadline.passed(when))
    }

    async fn take_turn(&self, has_begun: bool) {
        let place = Place::in_queue(self, has_begun);
        loop {
            // Before the look at the queue, so that no departure after it is missed.
            let left = self.left.notified();
            let Some(due) = place.wait_or_take() else {
                return;
            };
            _ = timeout_at(due, left).await;
        }
    }
}

/// How much too late a call may take its turn without a delay of the next one: timers count milliseconds.
const LATENESS: Duration = Duration::from_millis(10);

/// The place of a call in the queue, until it has had its turn or is dropped.
struct Place<'a> {
    pace: &'a Pace,
    call: (bool, u64),
    arrived: Instant,
}

impl<'a> Place<'a> {
    fn in_queue(pace: &'a Pace, has_begun: bool) -> Self {
        let mut queue = lock(&pace.queue);
        let call = (!has_begun, queue.tickets);
        queue.tickets += 1;
        let index = queue.calls.partition_point(|(other, _)| *other < call);
        queue.calls.insert(index, (call, false));
        let arrived = Instant::now();
        Self {
            pace,
            call,
            arrived,
        }
    }

    /// Takes the turn, or returns when it comes if nobody comes or goes before.
    fn wait_or_take(&self) -> Option<Instant> {
        let mut queue = lock(&self.pace.queue);
        let index = queue.find(self.call)?;
        let (now, interval) = (Instant::now(), self.pace.interval);
        let earlier = queue.calls[..index].iter();
        let ahead = earlier.filter(|(_, is_overtaken)| !is_overtaken).count();
        let ahead = u32::try_from(ahead).unwrap_or(u32::MAX);
        let due = queue.next + interval.saturating_mul(ahead);
        if now < due {
            return Some(due);
        }
        queue.calls.remove(index);
        for (_, is_overtaken) in &mut queue.calls[..index] {
            *is_overtaken = true;
        }
        // Not from now, because a timer is a little late each time. But after a pause, nothing is made up for.
        let turn = due.max(self.arrived);
        queue.next = turn.max(now.checked_sub(LATENESS).unwrap_or(now)) + interval;
        None
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut queue = lock(&self.pace.queue);
        if let Some(index) = queue.find(self.call) {
            queue.calls.remove(index);
            drop(queue);
            self.pace.left.notify_waiters();
        }
    }
}

/// 30 years.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(30 * 365 * 86_400);

#[derive(Debug)]
struct FailedAttempt {
    error: Error,
    failure: Failure,
}

/// When one attempt must end.
#[derive(Clone, Copy, Debug)]
struct AttemptLimit {
    start: Instant,
    end: Instant,
    /// The timeout of the attempt, or the time that the whole call may take.
    limit: Duration,
    /// Whether the deadline of the call ends before the timeout of the attempt.
    is_deadline: bool,
}

impl AttemptLimit {
    /// Returns the message for an attempt that reached this limit.
    fn message(self) -> String {
        let limit = self.limit;
        match self.is_deadline {
            true => format!("the deadline of {limit:?} passed before the full response arrived"),
            false => format!("timed out after {limit:?} waiting for the full response"),
        }
    }
}

impl FailedAttempt {
    /// Creates the failure for an error while sending the request or waiting for the response.
    fn while_sending(error: reqwest::Error, url: &Url) -> Self {
        // A client that follows redirects may fail to connect to the redirect's target. The request
        // itself was sent by then.
        if error.is_connect() && error.url().is_none_or(|reached| reached == url) {
            let host = url.host_str().unwrap_or_default();
            let port = url.port_or_known_default().unwrap_or_default();
            if let Some(fault) = tls_fault(&error) {
                let (message, advice) = match fault {
                    TlsFault::Certificate => (
                        format!("the certificate of {host}:{port} was refused"),
                        "check the base URL and the certificate",
                    ),
                    TlsFault::NoTls => (
                        format!("{host}:{port} responded without TLS"),
                        CHECK_THE_BASE_URL,
                    ),
                };
                let failed = Error::new(ErrorKind::Connect, Outcome::NotSent, message);
                return Self::permanent(failed.advising(advice).caused_by(error.without_url()));
            }
            let message = format!("could not connect to {host}:{port}");
            let failed = Error::new(ErrorKind::Connect, Outcome::NotSent, message);
            let failed = failed.advising("check the base URL and the network");
            return Self {
                error: failed.caused_by(error.without_url()),
                failure: Failure::NotSent,
            };
        }
        if error.is_builder() {
            return Self::permanent(
                Error::input("could not build the request").caused_by(error.without_url()),
            );
        }
        if error.is_redirect() {
            return Self::followed_redirect();
        }
        let failure = if closed_before_response(&error) {
            Failure::ClosedBeforeResponse
        } else {
            Failure::NoResponse
        };
        if is_not_http(&error) {
            let mut failed = Self::no_response(error, failure, "the response is not valid HTTP");
            failed.error = failed.error.advising(CHECK_THE_BASE_URL);
            return failed;
        }
        let message = "the connection broke before the response arrived";
        Self::no_response(error, failure, message)
    }

    /// Creates the failure for an error while reading the response body.
    ///
    /// reqwest reports every error inside a body as a decode error. Only a complete body that does not
    /// decompress is one; all others are faults of the connection.
    fn while_reading(error: reqwest::Error) -> Self {
        if !error.is_timeout() && is_decompression_error(&error) {
            let message = "could not decompress the response body";
            return Self::permanent(Error::decode(message).caused_by(error.without_url()));
        }
        let message = "the connection broke while reading the response";
        Self::no_response(error, Failure::NoResponse, message)
    }

    /// Creates the failure for a response body over the limit.
    fn body_too_long(limit: usize) -> Self {
        let message = format!("the response body exceeds the limit of {limit} bytes");
        Self::permanent(Error::decode(message))
    }

    /// Creates the failure for a redirect that was followed. Only a client passed to `http_client` does
    /// this. The response belongs to another request, so it is not used.
    fn followed_redirect() -> Self {
        Self::permanent(Error::transport(
            "the HTTP client followed a redirect; build it with `redirect::Policy::none()`",
        ))
    }

    /// Creates the failure for a request that was sent but has no complete response.
    fn no_response(error: reqwest::Error, failure: Failure, message: &'static str) -> Self {
        if error.is_timeout() && !is_ping_timeout(&error) {
            // Only a client passed to `http_client` has a timeout of its own.
            let mut failed = Self::timed_out("the timeout of the HTTP client passed");
            failed.error = failed.error.caused_by(error.without_url());
            return failed;
        }
        Self {
            error: Error::transport(message).caused_by(error.without_url()),
            failure,
        }
    }

    /// Creates the failure for an attempt that reached its limit.
    fn timed_out(message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            error: Error::new(ErrorKind::Timeout, Outcome::Unknown, message),
            failure: Failure::NoResponse,
        }
    }

    /// Creates a failure that a retry cannot fix.
    fn permanent(error: Error) -> Self {
        Self {
            error: error.not_retryable(),
            failure: Failure::Permanent,
        }
    }
}

/// Returns whether the connection was closed or reset before the head of a response was complete.
fn closed_before_response(error: &reqwest::Error) -> bool {
    causes(error).any(|cause| {
        // If the server closes the connection, hyper reports it. If the server resets it, the operating system does.
        let closed = cause
            .downcast_ref::<hyper::Error>()
            .is_some_and(hyper::Error::is_incomplete_message);
        let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        closed
            || matches!(
                kind,
                Some(io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
            )
    })
}

/// Returns whether an HTTP/2 connection was closed because the server did not respond to a ping.
fn is_ping_timeout(error: &reqwest::Error) -> bool {
    causes(error)
        .filter_map(|cause| cause.downcast_ref::<hyper::Error>())
        .any(hyper::Error::is_timeout)
}

/// Why no TLS connection was made, if a retry does not help, as it may after a connection that broke.
#[cfg_attr(
    not(any(feature = "rustls", feature = "rustls-no-provider")),
    expect(dead_code, reason = "without rustls, no fault is found")
)]
enum TlsFault {
    /// rustls rejected the server's certificate.
    Certificate,
    /// The server sent something else, such as an HTTP response.
    NoTls,
}

fn tls_fault(error: &reqwest::Error) -> Option<TlsFault> {
    #[cfg(any(feature = "rustls", feature = "rustls-no-provider"))]
    return causes(error)
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .find_map(|mut error| {
            // `source()` of an I/O error leaves out the error that it contains, so unpack that error.
            while let Some(inner) = error.get_ref() {
                match inner.downcast_ref() {
                    Some(inner) => error = inner,
                    None => {
                        return match inner.downcast_ref()? {
                            rustls::Error::InvalidCertificate(_) => Some(TlsFault::Certificate),
                            rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
                                Some(TlsFault::NoTls)
                            }
                            _ => None,
                        };
                    }
                }
            }
            None
        });
    #[cfg(not(any(feature = "rustls", feature = "rustls-no-provider")))]
    {
        let _ = error;
        None
    }
}

/// Returns whether bytes arrived that are not the head of an HTTP response.
fn is_not_http(error: &reqwest::Error) -> bool {
    causes(error)
        .filter_map(|cause| cause.downcast_ref::<hyper::Error>())
        .any(hyper::Error::is_parse)
}

/// Returns whether a complete body does not decompress. A malformed chunk is invalid data too, but then
/// an error of hyper is among the causes.
fn is_decompression_error(error: &reqwest::Error) -> bool {
    // hyper reports bad framing of the body; the decoder of gzip is not part of hyper.
    let framing = causes(error).any(<dyn StdError>::is::<hyper::Error>);
    !framing
        && causes(error).any(|cause| {
            let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
            matches!(
                kind,
                Some(io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput)
            )
        })
}

impl CallOptions {
    /// Returns whether the call, which sends several requests, has sent one.
    fn has_begun(&self) -> bool {
        let begun = self.begun.as_ref();
        begun.is_some_and(|begun| begun.load(Ordering::Relaxed))
    }

    fn begin(&self) {
        if let Some(begun) = &self.begun {
            begun.store(true, Ordering::Relaxed);
        }
    }

    fn report_failure(&self, failure: Failure, is_timeout: bool) {
        let is_congestion = is_timeout
            || matches!(
                failure,
                Failure::Status(StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
            );
        if let Some(watch) = &self.watch {
            watch.failed(is_congestion);
        }
    }

    fn report_retry(&self) {
        if let Some(watch) = &self.watch {
            watch.retries();
        }
    }

    /// Waits before the next attempt. Returns whether to make it.
    async fn wait(&self, time: Duration) -> bool {
        match &self.watch {
            Some(watch) => watch.wait(time).await,
            None => {
                tokio::time::sleep(time).await;
                true
            }
        }
    }
}

/// Makes a future that another task polls belong to the current span.
pub(crate) fn in_current_span<F: Future>(work: F) -> impl Future<Output = F::Output> {
    #[cfg(feature = "tracing")]
    let work = {
        use tracing::instrument::{Instrument, WithSubscriber};

        // The thread that runs the task may have another subscriber.
        work.in_current_span().with_current_subscriber()
    };
    work
}

/// The span of a whole call, with the spans of its attempts below it. Empty without the feature `tracing`.
struct CallSpan {
    #[cfg(feature = "tracing")]
    span: tracing::Span,
}

impl CallSpan {
    #[cfg(feature = "tracing")]
    fn new(operation: Operation) -> Self {
        use tracing::field::Empty;

        let span = tracing::info_span!(
            "audience.call",
            otel.name = format_args!("audience.{}", operation.name),
            otel.status_code = Empty,
            operation = operation.name,
            url.template = operation.template,
            attempts = Empty,
            outcome = Empty,
            error.type = Empty,
        );
        Self { span }
    }

    #[cfg(not(feature = "tracing"))]
    fn new(_: Operation) -> Self {
        Self {}
    }

    /// Runs the attempts of the call in the span.
    ///
    /// It is not an `async fn`, because such a future would hold `attempts` twice.
    fn run<T>(&self, attempts: impl Future<Output = T>) -> impl Future<Output = T> {
        #[cfg(feature = "tracing")]
        let attempts = tracing::Instrument::instrument(attempts, self.span.clone());
        attempts
    }

    fn succeeded(&self, attempts: u32) {
        #[cfg(feature = "tracing")]
        self.span
            .record("attempts", attempts)
            .record("outcome", "ok");
        #[cfg(not(feature = "tracing"))]
        let _ = attempts;
    }

    fn failed(&self, error: &Error) {
        #[cfg(feature = "tracing")]
        {
            self.span
                .record("attempts", error.attempts())
                .record("outcome", error.outcome().as_str());
            record_error(&self.span, error);
        }
        #[cfg(not(feature = "tracing"))]
        let _ = error;
    }
}

/// The span of one attempt. It contains the path only as a template, because an address is personal data.
struct AttemptSpan {
    #[cfg(feature = "tracing")]
    span: tracing::Span,
}

impl AttemptSpan {
    #[cfg(feature = "tracing")]
    fn new(base: &Url, operation: Operation, request: &Request, attempt: u32) -> Self {
        use tracing::field::Empty;

        let span = tracing::info_span!(
            "http.client.request",
            otel.name = format_args!("{} {}", request.method, operation.template),
            otel.kind = "client",
            otel.status_code = Empty,
            http.request.method = request.method.as_str(),
            http.request.resend_count = (attempt > 1).then(|| attempt - 1),
            http.response.status_code = Empty,
            url.template = operation.template,
            server.address = base.host_str(),
            server.port = base.port_or_known_default(),
            error.type = Empty,
        );
        Self { span }
    }

    #[cfg(not(feature = "tracing"))]
    fn new(_: &Url, _: Operation, _: &Request, _attempt: u32) -> Self {
        Self {}
    }

    fn run<T>(&self, work: impl Future<Output = T>) -> impl Future<Output = T> {
        #[cfg(feature = "tracing")]
        let work = tracing::Instrument::instrument(work, self.span.clone());
        work
    }

    /// Records the status or the failure.
    fn ended(&self, result: &Result<http::Response<Bytes>, FailedAttempt>) {
        #[cfg(feature = "tracing")]
        {
            if let Some(status) = status_of(result) {
                self.span
                    .record("http.response.status_code", status.as_u16());
            }
            if let Err(failed) = result {
                record_error(&self.span, &failed.error);
            }
        }
        #[cfg(not(feature = "tracing"))]
        let _ = result;
    }
}

/// Returns the status of an attempt, if it had a response.
fn status_of(result: &Result<http::Response<Bytes>, FailedAttempt>) -> Option<StatusCode> {
    match result {
        Ok(response) => Some(response.status()),
        Err(failed) => failed.error.status(),
    }
}

/// Emits an event for a failed attempt that is retried.
fn report_retry(operation: Operation, attempt: u32, wait: Duration, error: &Error) {
    #[cfg(feature = "tracing")]
    tracing::warn!(
        operation = operation.name,
        attempts = attempt,
        error.type = %ErrorType(error),
        http.response.status_code = error.status().map(|status| status.as_u16()),
        error = %error,
        wait_ms = milliseconds(wait),
        "the attempt failed and will be retried"
    );
    #[cfg(not(feature = "tracing"))]
    let _ = (operation, attempt, wait, error);
}

/// Emits an event for a call that waits because a 429 holds back the client.
fn report_hold(operation: Operation, wait: Duration) {
    #[cfg(feature = "tracing")]
    tracing::info!(
        operation = operation.name,
        wait_ms = milliseconds(wait),
        "the service has asked to wait, so the request is not sent yet"
    );
    #[cfg(not(feature = "tracing"))]
    let _ = (operation, wait);
}

#[cfg(feature = "tracing")]
fn record_error(span: &tracing::Span, error: &Error) {
    span.record("otel.status_code", "ERROR")
        .record("error.type", tracing::field::display(ErrorType(error)));
}

/// Writes the status of the response or, without one, the kind of the error.
#[cfg(feature = "tracing")]
struct ErrorType<'a>(&'a Error);

#[cfg(feature = "tracing")]
impl std::fmt::Display for ErrorType<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.status() {
            Some(status) => f.write_str(status.as_str()),
            None => self.0.kind().fmt(f),
        }
    }
}

#[cfg(feature = "tracing")]
fn milliseconds(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_joined_to_the_base_url() {
        for (base, segments, expected) in [
            ("http://localhost", &[][..], "http://localhost/"),
            ("http://localhost/v1/", &[], "http://localhost/v1"),
            (
                "http://localhost",
                &["contacts"],
                "http://localhost/contacts",
            ),
            (
                "http://localhost/a/b",
                &["c:d", "e//@f"],
                "http://localhost/a/b/c%3Ad/e%2F%2F%40f",
            ),
        ] {
            let client = Client::new(base, "key").unwrap();
            let request = Request::new(Method::GET, segments, RetrySafety::Safe).unwrap();

            let with_query = client.shared.url(&request.clone().query("q", "a b"));
            let url = client.shared.url(&request);

            assert_eq!(url.unwrap().as_str(), expected);
            assert_eq!(with_query.unwrap().as_str(), format!("{expected}?q=a%20b"));
        }
    }

    #[test]
    fn the_futures_of_a_call_stay_below_the_size_for_which_glibc_is_slow() {
        let client = Client::new("http://localhost", "key").unwrap();
        let request = Request::new(Method::GET, ["contacts"], RetrySafety::Safe);
        let (operation, options) = (
            Operation {
                name: "list",
                template: "/contacts",
            },
            CallOptions::default(),
        );
        let request = request.unwrap();
        let limit = Deadline::start(CallDeadline::Lifted, None, Instant::now());
        let limit = limit.limit_attempt(Duration::ZERO, Instant::now());
        let url = client.shared.url(&request).unwrap();

        let call = client.receive(operation, &request, &options);
        let attempt = client.shared.attempt(operation, &request, &url, limit, 1);

        // The box of a call also has the request, the options and the arguments.
        let whole = size_of_val(&call) + size_of_val(&request) + size_of_val(&options);
        assert!(whole + 100 < 1_024, "{whole}");
        assert!(size_of_val(&attempt) < 1_024, "{}", size_of_val(&attempt));
    }

    #[test]
    fn a_hold_is_only_ever_extended() {
        let (hold, now) = (crate::sync::Hold::default(), Instant::now());
        assert_eq!(hold.left(now), Duration::ZERO);

        hold.extend(now, Duration::from_secs(9));
        hold.extend(now, Duration::from_secs(2));

        assert_eq!(hold.left(now), Duration::from_secs(9));
        assert_eq!(
            hold.left(now + Duration::from_secs(8)),
            Duration::from_secs(1)
        );
        assert_eq!(hold.left(now + Duration::from_secs(10)), Duration::ZERO);
        hold.extend(now, Duration::MAX);
        assert_eq!(hold.left(now), Duration::from_secs(3_600));
    }
}
