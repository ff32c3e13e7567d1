use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderMap, Method, StatusCode};
use tokio::time::Instant;

#[cfg(feature = "import")]
use super::DEFAULT_DEADLINE;
use super::exchange::{Operation, Request, Success};
use super::retry::RetryPolicy;
use crate::{Client, Error, ErrorKind};

pub(crate) type OnAttempt = dyn Fn(&CallAttempt<'_>) + Send + Sync;

/// An attempt that has ended. [`ClientBuilder::on_attempt`](crate::ClientBuilder::on_attempt) gets it.
///
/// It contains no address, and nothing else of a person.
#[derive(Debug)]
#[non_exhaustive]
pub struct CallAttempt<'a> {
    /// The method of this crate, such as `create_batch`; `request` for a raw request, and `subscribe` or `unsubscribe`
    /// for `set_topic`. A method that makes several requests, such as `erase`, has a name for each of them: see [Spans
    /// and events](crate::client#spans-and-events).
    pub operation: &'static str,
    /// The HTTP method.
    pub method: &'a Method,
    /// The path, such as `/contacts/{address}`; `(request)` for a raw request.
    pub template: &'static str,
    /// The number of the attempt in its call: 1 for the first one.
    pub number: u32,
    /// The time from the start of the attempt to the end of the response or to the failure. The waits before and
    /// between attempts do not count.
    pub duration: Duration,
    /// The status; `None` unless the response arrived completely. But a refusal has its status also if its body cannot
    /// be decompressed or is too long, or if its body broke off and the status may be retried, such as 503 or 429.
    pub status: Option<StatusCode>,
    /// How the attempt failed; `None` after a complete response with a status 2xx.
    pub failure: Option<ErrorKind>,
}

/// One endpoint with the arguments of one call: how its request is built and its response decoded.
pub(crate) trait Endpoint: Send + Sync + 'static {
    /// The result of a call.
    type Output: Send + 'static;

    /// Returns the operation, for error messages and spans.
    fn operation(&self) -> Operation;

    /// Builds the request.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Input` if the arguments cannot be sent.
    fn request(&self) -> Result<Request, Error>;

    /// Decodes a 2xx response.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Decode` if the response is invalid. The client adds the operation and the number of
    /// attempts.
    fn decode(&self, success: Success) -> Result<Self::Output, Error>;

    /// Returns the future of a call that may send more than its request. `None`: it sends nothing else.
    fn steps(&self, _: &Client, _: &CallOptions) -> Option<ResponseFuture<Response<Self::Output>>> {
        None
    }
}

impl Client {
    /// Returns the future of the value of an endpoint.
    pub(crate) fn call<E: Endpoint>(
        self,
        endpoint: E,
        options: CallOptions,
    ) -> ResponseFuture<E::Output> {
        if let Some(steps) = endpoint.steps(&self, &options) {
            return ResponseFuture::new(async { Ok(steps.await?.value) });
        }
        // An invalid argument is an error of the awaited call, like every other failure.
        let request = endpoint.request();
        self.send(endpoint.operation(), request, options, move |success| {
            endpoint.decode(success)
        })
    }

    /// Returns the future of the value with the status and the headers of its response.
    pub(crate) fn call_for_response<E: Endpoint>(
        self,
        endpoint: E,
        options: CallOptions,
    ) -> ResponseFuture<Response<E::Output>> {
        if let Some(steps) = endpoint.steps(&self, &options) {
            return steps;
        }
        let request = endpoint.request();
        self.send(endpoint.operation(), request, options, move |success| {
            Response::read(success, |success| endpoint.decode(success))
        })
    }

    /// Starts the deadline of a call that sends several requests: with these options, all end by the same
    /// instant. After the first one, the others go before calls that have not begun. For a call that only reads, see
    /// [`start_reads`](Self::start_reads).
    pub(crate) fn start_deadline(&self, options: CallOptions) -> CallOptions {
        let deadline = options.deadline.start(self.shared.deadline, Instant::now());
        let begun = self.shared.pace.as_ref();
        let begun = options.begun.or_else(|| begun.map(|_| Arc::default()));
        CallOptions {
            deadline,
            begun,
            ..options
        }
    }

    /// Starts the deadline of a call that may send many requests and changes nothing. They go before no other call, unless
    /// this is a part of a call that does: a count of a large list would hold up each opt-out.
    pub(crate) fn start_reads(&self, options: CallOptions) -> CallOptions {
        let begun = options.begun.clone();
        CallOptions {
            begun,
            ..self.start_deadline(options)
        }
    }
}

/// Defines the public builder of an [`Endpoint`]: a client, the endpoint and the settings that every call has. With
/// `idempotent`, the builder has that setter too.
macro_rules! endpoint_builder {
    ($(#[$docs:meta])* pub struct $builder:ident($endpoint:ty) -> $output:ty, idempotent;) => {
        crate::client::endpoint_builder! { $(#[$docs])* pub struct $builder($endpoint) -> $output; }

        impl $builder {
            /// Allows retries of this call even if an earlier attempt may have been applied. Default: only retries that
            /// are safe, as [`RetryPolicy`](crate::RetryPolicy) lists them.
            ///
            /// # Example: a contact that must be new
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
            /// # let server = audience::mock::MockServer::start().await;
            /// # server.fault(audience::mock::Fault::close_before().times(1));
            /// # let contacts = server.client().contacts();
            /// use audience::contacts::{NewContact, OnConflict};
            ///
            /// // Without `idempotent`, the connection that breaks here would end the call.
            /// let ada = NewContact::new("ada@example.com").on_conflict(OnConflict::Error);
            /// let created = contacts.create(ada).idempotent().await?;
            ///
            /// assert_eq!(created.attempts(), 2);
            /// # Ok(()) }
            /// ```
            pub fn idempotent(mut self) -> Self {
                self.options.idempotent = true;
                self
            }
        }
    };
    ($(#[$docs:meta])* pub struct $builder:ident($endpoint:ty) -> $output:ty;) => {
        $(#[$docs])*
        #[derive(Clone)]
        #[must_use = "a call is sent only when it is awaited"]
        pub struct $builder {
            client: crate::Client,
            endpoint: $endpoint,
            options: crate::client::CallOptions,
        }

        impl $builder {
            fn new(client: &crate::Client, endpoint: $endpoint) -> Self {
                Self {
                    client: client.clone(),
                    endpoint,
                    options: crate::client::CallOptions::default(),
                }
            }

            /// Returns a future that sends the call and also returns the status and the headers of the response and the
            /// number of attempts.
            ///
            /// Call the setters first: the future has none. See [`Response`](crate::client::Response).
            ///
            /// # Example: status and value
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
            /// # let server = audience::mock::MockServer::builder().seed_contact("ada@example.com").start().await;
            /// # let contacts = server.client().contacts();
            /// let response = contacts.retrieve("ada@example.com").response().await?;
            ///
            /// assert_eq!(response.status(), 200);
            /// assert_eq!(response.into_inner().email, "ada@example.com");
            /// # Ok(()) }
            /// ```
            pub fn response(
                self,
            ) -> crate::client::ResponseFuture<crate::client::Response<$output>> {
                self.client.call_for_response(self.endpoint, self.options)
            }

            /// Returns the result that the call would have with this response. Only the fuzz targets have this method.
            ///
            /// # Errors
            ///
            /// Returns the same errors as the call.
            #[cfg(any(test, fuzzing))]
            #[doc(hidden)]
            pub fn result_of(
                &self,
                response: http::Response<bytes::Bytes>,
            ) -> Result<$output, crate::Error> {
                crate::client::result_of(&self.endpoint, response)
            }
        }

        crate::client::call_settings!($builder);

        crate::client::wait_for_call!($builder => Result<$output, crate::Error>);

        crate::client::opaque_debug!($builder);

        impl IntoFuture for $builder {
            type Output = Result<$output, crate::Error>;
            type IntoFuture = crate::client::ResponseFuture<$output>;

            /// Returns the future that sends the call. `.await` calls this itself.
            fn into_future(self) -> Self::IntoFuture {
                self.client.call(self.endpoint, self.options)
            }
        }
    };
}

/// The settings of one call that differ from its client's.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallOptions {
    pub(crate) timeout: Option<Duration>,
    pub(crate) deadline: CallDeadline,
    pub(crate) retry: Option<RetryPolicy>,
    pub(crate) idempotent: bool,
    pub(crate) watch: Option<Arc<dyn AttemptWatch>>,
    /// Whether the call has sent a request, if it sends several and the client limits their rate.
    pub(crate) begun: Option<Arc<AtomicBool>>,
}

/// Is told about the failed attempts of a call while it runs, and waits for it.
pub(crate) trait AttemptWatch: fmt::Debug + Send + Sync {
    /// An attempt failed. `is_congestion` says that the service cannot keep up: a 429, a 503 or a timeout.
    fn failed(&self, is_congestion: bool);

    /// The call is retried.
    fn retries(&self);

    /// Waits this long before the next attempt, which may be the first. Returns whether to make that attempt: if not, the
    /// call fails.
    fn wait(&self, time: Duration) -> Waiting<'_>;
}

pub(crate) type Waiting<'a> = Pin<Box<dyn Future<Output = bool> + Send + 'a>>;

/// A builder that takes all settings of another call, which sends it.
pub(crate) trait TakesOptions {
    /// Replaces all settings that every call has.
    fn options(self, options: CallOptions) -> Self;
}

/// The deadline of one call.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum CallDeadline {
    /// The client's.
    #[default]
    Client,
    /// This long after the call starts.
    After(Duration),
    /// This instant, which several calls share. `limit` is the time that all of them may take.
    At { end: Instant, limit: Duration },
    /// None, even if the client has one.
    Lifted,
}

impl CallDeadline {
    /// Returns the time that the whole call may take, given the client's deadline.
    pub(super) fn limit(self, client: Option<Duration>) -> Option<Duration> {
        match self {
            Self::Client => client,
            Self::After(limit) | Self::At { limit, .. } => Some(limit),
            Self::Lifted => None,
        }
    }

    /// Starts the deadline, given the client's, so that all calls with the returned deadline end by the same instant. A
    /// limit too large to represent means no deadline.
    pub(super) fn start(self, client: Option<Duration>, now: Instant) -> Self {
        if let Self::At { .. } = self {
            return self;
        }
        // The end is an instant, because a duration would start again with each request.
        let limit = self.limit(client);
        let end = limit.and_then(|limit| Some((now.checked_add(limit)?, limit)));
        end.map_or(Self::Lifted, |(end, limit)| Self::At { end, limit })
    }
}

/// Adds the setters that every call has to a builder. Its [`CallOptions`] are in the field `options`.
macro_rules! call_settings {
    ($builder:ty) => {
        impl crate::client::TakesOptions for $builder {
            fn options(mut self, options: crate::client::CallOptions) -> Self {
                self.options = options;
                self
            }
        }

        impl $builder {
            /// Limits one attempt of this call, from connecting to the last byte of the response.
            /// Default: the client's [`timeout`](crate::ClientBuilder::timeout).
            ///
            /// # Example: a short timeout for one call
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
            /// # let server = audience::mock::MockServer::builder().seed_contact("ada@example.com").start().await;
            /// # let contacts = server.client().contacts();
            /// use std::time::Duration;
            ///
            /// let ada = contacts.retrieve("ada@example.com").timeout(Duration::from_secs(5)).await?;
            /// # assert_eq!(ada.email, "ada@example.com");
            /// # Ok(()) }
            /// ```
            pub fn timeout(mut self, limit: std::time::Duration) -> Self {
                self.options.timeout = Some(limit);
                self
            }

            /// Limits this whole call, with its retries and waits. Default: the client's
            /// [`deadline`](crate::ClientBuilder::deadline).
            ///
            /// # Example: no wait beyond five seconds
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")] async fn main() {
            /// # let server = audience::mock::MockServer::start().await;
            /// # server.fault(audience::mock::Fault::status(503).retry_after(30));
            /// # let contacts = server.client().contacts();
            /// use std::time::Duration;
            ///
            /// let call = contacts.retrieve("ada@example.com").deadline(Duration::from_secs(5));
            /// let error = call.await.unwrap_err();
            ///
            /// // The service asked to wait for 30 seconds, so the call failed without a second attempt.
            /// assert_eq!(error.attempts(), 1);
            /// # }
            /// ```
            pub fn deadline(mut self, limit: std::time::Duration) -> Self {
                self.options.deadline = crate::client::CallDeadline::After(limit);
                self
            }

            /// Removes the deadline of this call, even if the client has one. The timeout of each attempt
            /// still applies.
            ///
            /// # Example: a job that can wait
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
            /// # let server = audience::mock::MockServer::builder().seed_contact("ada@example.com").start().await;
            /// # let contacts = server.client().contacts();
            /// use audience::RetryPolicy;
            ///
            /// let patient = RetryPolicy::exponential().max_attempts(20);
            /// let ada = contacts.retrieve("ada@example.com").retry(patient).no_deadline().await?;
            /// # assert_eq!(ada.email, "ada@example.com");
            /// # Ok(()) }
            /// ```
            pub fn no_deadline(mut self) -> Self {
                self.options.deadline = crate::client::CallDeadline::Lifted;
                self
            }

            /// Sets the retry policy of this call. Default: the client's
            /// [`retry`](crate::ClientBuilder::retry).
            ///
            /// # Example: one attempt only
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")] async fn main() {
            /// # let server = audience::mock::MockServer::start().await;
            /// # server.fault(audience::mock::Fault::status(503));
            /// # let contacts = server.client().contacts();
            /// use audience::RetryPolicy;
            ///
            /// // The service responds 503, which would be retried by default.
            /// let call = contacts.retrieve("ada@example.com").retry(RetryPolicy::none());
            /// let error = call.await.unwrap_err();
            ///
            /// assert_eq!(error.attempts(), 1);
            /// # }
            /// ```
            pub fn retry(mut self, policy: crate::RetryPolicy) -> Self {
                self.options.retry = Some(policy);
                self
            }
        }
    };
}

/// Adds `wait` to a call, with the feature `blocking`.
macro_rules! wait_for_call {
    (impl[$($generics:tt)*] $call:ty => $output:ty) => {
        #[cfg(feature = "blocking")]
        #[cfg_attr(docsrs, doc(cfg(feature = "blocking")))]
        impl<$($generics)*> $call {
            /// Sends the call and blocks this thread until it ends, for programs without an async runtime: see
            /// [`blocking`](crate::blocking).
            ///
            /// # Errors
            ///
            /// Fails with the errors of the call.
            ///
            /// # Panics
            ///
            /// Panics in async code: use `.await` there.
            ///
            /// # Example: a call in a plain `main`
            ///
            /// ```
            /// # fn main() -> Result<(), audience::Error> {
            /// # let server = audience::mock::MockServer::builder().start_blocking();
            /// # let contacts = server.client().contacts();
            /// let created = contacts.create("ada@example.com").wait()?;
            ///
            /// assert!(created.is_new());
            /// # Ok(()) }
            /// ```
            #[track_caller]
            #[allow(
                clippy::type_complexity,
                reason = "`erase_rows` returns what its page says, without a name for it"
            )]
            pub fn wait(self) -> $output {
                crate::blocking::wait(self)
            }
        }
    };
    ($call:ty => $output:ty) => {
        crate::client::wait_for_call!(impl[] $call => $output);
    };
}

/// Adds `wait` to a stream, with the feature `blocking`.
macro_rules! wait_for_items {
    ($stream:ty) => {
        #[cfg(feature = "blocking")]
        #[cfg_attr(docsrs, doc(cfg(feature = "blocking")))]
        impl $stream {
            /// Returns an iterator over the items, for programs without an async runtime: see
            /// [`blocking`](crate::blocking). In async code, its `next` panics.
            ///
            /// # Example: a `for` loop over a list
            ///
            /// ```
            /// # fn main() -> Result<(), audience::Error> {
            /// # let server = audience::mock::MockServer::builder().seed_contact("ada@example.com").start_blocking();
            /// # let contacts = server.client().contacts();
            /// for contact in contacts.list().stream().wait() {
            ///     assert_eq!(contact?.email, "ada@example.com");
            /// }
            /// # Ok(()) }
            /// ```
            pub fn wait(self) -> crate::blocking::Iter<Self> {
                crate::blocking::Iter::new(self)
            }
        }
    };
}

/// Implements `Debug` for a builder or stream without its fields: they may hold an address.
macro_rules! opaque_debug {
    ($builder:ty) => {
        impl std::fmt::Debug for $builder {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($builder)).finish_non_exhaustive()
            }
        }
    };
}

pub(crate) use {call_settings, endpoint_builder, opaque_debug, wait_for_call, wait_for_items};

/// Sends a call when it is polled: the future that every builder converts to.
///
/// Nothing is sent before the first poll. Dropping the future cancels the call, but a request that was
/// already sent may still be applied. Polling it after it has returned its result panics.
///
/// # Example: two calls in parallel
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = audience::mock::MockServer::start().await;
/// # let contacts = server.client().contacts();
/// let ada = tokio::spawn(contacts.create("ada@example.com").into_future());
/// let bob = tokio::spawn(contacts.create("bob@example.com").into_future());
///
/// assert!(ada.await??.is_new() && bob.await??.is_new());
/// # Ok(()) }
/// ```
#[must_use = "a call is sent only when it is awaited"]
pub struct ResponseFuture<T>(Work<T>);

type Work<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

impl<T> ResponseFuture<T> {
    pub(crate) fn new(work: impl Future<Output = Result<T, Error>> + Send + 'static) -> Self {
        Self(Box::pin(work))
    }
}

#[cfg(feature = "blocking")]
#[cfg_attr(docsrs, doc(cfg(feature = "blocking")))]
impl<T> ResponseFuture<T> {
    /// Sends the call and blocks this thread until it ends, for programs without an async runtime: see
    /// [`blocking`](crate::blocking).
    ///
    /// # Errors
    ///
    /// Fails with the errors of the call.
    ///
    /// # Panics
    ///
    /// Panics in async code: use `.await` there.
    ///
    /// # Example: the status of a response in a plain `main`
    ///
    /// ```
    /// # fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::builder().start_blocking();
    /// # let contacts = server.client().contacts();
    /// let response = contacts.create("ada@example.com").response().wait()?;
    ///
    /// assert_eq!(response.status(), 201);
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn wait(self) -> Result<T, Error> {
        crate::blocking::wait(self)
    }
}

impl<T> Future for ResponseFuture<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context)
    }
}

impl<T> fmt::Debug for ResponseFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}

/// The result of a call, with the status and the headers of the response and the number of attempts.
///
/// The builders of single requests, such as retrieve and create, have a method `response()` that returns it.
/// [`value`](Self::value) is the result alone, as `.await` without `response()` returns it.
///
/// # Example: the request id of a response
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
/// # let server = audience::mock::MockServer::start().await;
/// # let contacts = server.client().contacts();
/// # contacts.create(audience::contacts::NewContact::new("ada@example.com")).await?;
/// let response = contacts.retrieve("ada@example.com").response().await?;
///
/// println!("{} after {} attempts", response.status(), response.attempts());
/// println!("request id: {:?}", response.headers().get("x-request-id"));
/// assert_eq!(response.value().email, "ada@example.com");
/// let contact = response.into_inner();
/// # assert!(!contact.unsubscribed);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Response<T> {
    value: T,
    status: StatusCode,
    headers: HeaderMap,
    attempts: u32,
}

impl<T> Response<T> {
    /// Decodes a response and keeps its status and headers.
    pub(crate) fn read(
        success: Success,
        decode: impl FnOnce(Success) -> Result<T, Error>,
    ) -> Result<Self, Error> {
        let status = success.response.status();
        let (headers, attempts) = (success.response.headers().clone(), success.attempts);
        Ok(Self {
            value: decode(success)?,
            status,
            headers,
            attempts,
        })
    }

    /// Returns the value apart from the rest.
    pub(crate) fn split(self) -> (T, Response<()>) {
        let rest = Response {
            value: (),
            status: self.status,
            headers: self.headers,
            attempts: self.attempts,
        };
        (self.value, rest)
    }

    /// Returns the HTTP status, which is 2xx.
    ///
    /// # Example: an existing contact
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::builder().seed_contact("ada@example.com").start().await;
    /// # let contacts = server.client().contacts();
    /// let response = contacts.create("ada@example.com").response().await?;
    ///
    /// assert_eq!(response.status(), 200); // 201 if the contact were new
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the headers of the response.
    ///
    /// # Example: the type of the body
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// let response = contacts.list().response().await?;
    ///
    /// assert_eq!(response.headers()["content-type"], "application/json");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Returns how many attempts the call made.
    ///
    /// # Example: a call that was retried
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # server.fault(audience::mock::Fault::close_before().times(1));
    /// // The server closes the first connection without a response.
    /// let response = contacts.list().response().await?;
    ///
    /// assert_eq!(response.attempts(), 2);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Returns the result of the call: a contact, a page or a report.
    ///
    /// # Example: look at the result and keep the response
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::builder().seed_contact("ada@example.com").start().await;
    /// # let contacts = server.client().contacts();
    /// let response = contacts.list().response().await?;
    ///
    /// assert_eq!(response.value().data.len(), 1);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn value(&self) -> &T {
        &self.value
    }

    /// Returns the result of the call alone, without the status and the headers.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.value
    }
}

impl Response<()> {
    /// Puts a value into the rest of a response.
    pub(crate) fn with<T>(self, value: T) -> Response<T> {
        Response {
            value,
            status: self.status,
            headers: self.headers,
            attempts: self.attempts,
        }
    }
}

/// Prints no headers, because they may hold a secret.
impl<T: fmt::Debug> fmt::Debug for Response<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response")
            .field("value", &self.value)
            .field("status", &self.status.as_u16())
            .field("attempts", &self.attempts)
            .finish_non_exhaustive()
    }
}

/// The time for one request of an import, with its retries and waits.
#[cfg(feature = "import")]
const PATIENT_DEADLINE: Duration = Duration::from_secs(300);

#[cfg(feature = "import")]
impl Client {
    /// Returns these options with more patience, for a call that can wait out an outage of a minute or two. A
    /// retry policy or a deadline that was set, for the call or the client, stays as it is.
    pub(crate) fn patient(&self, options: CallOptions) -> CallOptions {
        // A policy that equals the default counts as not set, even if the program did set it.
        let is_default = self.shared.retry == RetryPolicy::default();
        let retry = options.retry.or_else(|| is_default.then(patient_policy));
        let deadline = match options.deadline {
            CallDeadline::Client if self.shared.deadline == Some(DEFAULT_DEADLINE) => {
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

#[cfg(feature = "import")]
#[cfg(test)]
mod tests {
    use super::super::exchange::RetrySafety;
    use super::super::retry::Failure;
    use super::*;

    fn patient(
        settings: impl FnOnce(crate::ClientBuilder) -> crate::ClientBuilder,
        options: CallOptions,
    ) -> (Option<RetryPolicy>, Option<Duration>) {
        let client = settings(Client::builder("http://127.0.0.1:1", "key"))
            .build()
            .unwrap();
        let options = client.patient(options);
        (
            options.retry,
            options.deadline.limit(client.shared.deadline),
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
        // Without a policy here, the client's policy applies.
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
            // Rather short waits: in 19 of 20 cases, they add up to more.
            let safety = RetrySafety::OnlyIfNotApplied;
            patient_policy().wait_before_retry(attempt, safety, Failure::NotSent, None, None, 0.36)
        });

        let total: Duration = waits.sum();

        assert!(total > Duration::from_secs(60), "{total:?}");
        assert!(total < PATIENT_DEADLINE, "{total:?}");
    }
}
