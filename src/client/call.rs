use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use tokio::time::Instant;

use super::Client;
use super::request::{Operation, Request};
use super::response::Success;
use super::retry::RetryPolicy;
use super::transport::Failure;
use crate::Error;

/// One endpoint with the arguments of one call: how its request is built and its response decoded.
pub(crate) trait Endpoint: Send + 'static {
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
}

/// A call of an endpoint, ready to be sent: the core of every builder.
#[derive(Clone)]
pub(crate) struct EndpointCall<E> {
    pub(crate) client: Client,
    pub(crate) endpoint: E,
    pub(crate) options: CallOptions,
}

impl<E: Endpoint> EndpointCall<E> {
    /// Creates a call with the settings of the client.
    pub(crate) fn new(client: &Client, endpoint: E) -> Self {
        Self {
            client: client.clone(),
            endpoint,
            options: CallOptions::default(),
        }
    }

    /// Returns the future of the value.
    pub(crate) fn send(self) -> ResponseFuture<E::Output> {
        let Self {
            client,
            endpoint,
            options,
        } = self;
        let request = endpoint.request();
        client.send(endpoint.operation(), request, options, move |success| {
            endpoint.decode(success)
        })
    }

    /// Returns the future of the value with the status and the headers of its response.
    pub(crate) fn response(self) -> ResponseFuture<Response<E::Output>> {
        let Self {
            client,
            endpoint,
            options,
        } = self;
        let request = endpoint.request();
        client.send(endpoint.operation(), request, options, move |success| {
            Response::read(success, |success| endpoint.decode(success))
        })
    }
}

/// Defines the public builder of an [`Endpoint`]: a struct around its [`EndpointCall`] in the field
/// `call`, with the settings that every call has. It is sent by `.await`. With `idempotent`, it has
/// that setter too.
macro_rules! endpoint_builder {
    ($(#[$docs:meta])* pub struct $builder:ident($endpoint:ty) -> $output:ty, idempotent;) => {
        crate::client::endpoint_builder! { $(#[$docs])* pub struct $builder($endpoint) -> $output; }

        impl $builder {
            /// Allows retries of this call even if an earlier attempt may have been applied.
            /// Default: only retries that are safe for this call; see
            /// [`RetryPolicy`](crate::RetryPolicy).
            pub fn idempotent(mut self) -> Self {
                self.call.options.idempotent = true;
                self
            }
        }
    };
    ($(#[$docs:meta])* pub struct $builder:ident($endpoint:ty) -> $output:ty;) => {
        $(#[$docs])*
        #[derive(Clone)]
        #[must_use = "a call is sent only when it is awaited"]
        pub struct $builder {
            call: crate::client::EndpointCall<$endpoint>,
        }

        impl $builder {
            fn new(client: &crate::Client, endpoint: $endpoint) -> Self {
                let call = crate::client::EndpointCall::new(client, endpoint);
                Self { call }
            }

            /// Returns a future that sends the call and returns the value in a
            /// [`Response`](crate::client::Response), with the status and the headers of the response
            /// and the number of attempts. Set everything else first.
            pub fn response(
                self,
            ) -> crate::client::ResponseFuture<crate::client::Response<$output>> {
                self.call.response()
            }
        }

        crate::client::call_settings!($builder, call.options);

        impl crate::client::TakesOptions for $builder {
            fn options(mut self, options: crate::client::CallOptions) -> Self {
                self.call.options = options;
                self
            }
        }

        crate::client::wait_for_call!($builder => Result<$output, crate::Error>);

        crate::client::opaque_debug!($builder);

        impl IntoFuture for $builder {
            type Output = Result<$output, crate::Error>;
            type IntoFuture = crate::client::ResponseFuture<$output>;

            /// Returns the future that sends the call. `.await` calls this itself.
            fn into_future(self) -> Self::IntoFuture {
                self.call.send()
            }
        }
    };
}

pub(crate) use endpoint_builder;

/// The settings of one call that differ from its client's.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallOptions {
    pub(crate) timeout: Option<Duration>,
    pub(crate) deadline: CallDeadline,
    pub(crate) retry: Option<RetryPolicy>,
    pub(crate) idempotent: bool,
    pub(crate) watch: Option<Arc<dyn AttemptWatch>>,
}

/// Is told about the failed attempts of a call while it runs.
pub(crate) trait AttemptWatch: fmt::Debug + Send + Sync {
    /// An attempt failed. `is_congestion` says that the service cannot keep up: a 429, a 503 or a timeout.
    fn failed(&self, is_congestion: bool);

    /// The call is retried.
    fn retries(&self);

    /// The call waits before its next attempt, which may be the first.
    fn waits(&self);

    /// The wait is over.
    fn resumes(&self);

    /// Returns whether the call is to fail rather than to wait any longer.
    fn gives_up(&self) -> bool;
}

/// How long a wait may go on after its watch has given up.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

impl CallOptions {
    /// Tells the watch about a failed attempt.
    pub(super) fn report_failure(&self, failure: Failure, is_timeout: bool) {
        let is_congestion = is_timeout
            || matches!(
                failure,
                Failure::Status(StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
            );
        if let Some(watch) = &self.watch {
            watch.failed(is_congestion);
        }
    }

    /// Tells the watch about a retry.
    pub(super) fn report_retry(&self) {
        if let Some(watch) = &self.watch {
            watch.retries();
        }
    }

    /// Waits before the next attempt, and tells the watch so. Returns whether to make the attempt: `false` if the
    /// watch has given up.
    pub(super) async fn wait(&self, time: Duration) -> bool {
        let Some(watch) = &self.watch else {
            tokio::time::sleep(time).await;
            return true;
        };
        watch.waits();
        let end = Instant::now() + time;
        let left = || end.saturating_duration_since(Instant::now());
        while !left().is_zero() && !watch.gives_up() {
            tokio::time::sleep(left().min(LONGEST_SLEEP)).await;
        }
        watch.resumes();
        !watch.gives_up()
    }
}

/// A builder whose settings can be replaced at once, by a call that sends others.
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
    /// This instant, which several calls share.
    At(Instant),
    /// None, even if the client has one.
    Lifted,
}

impl CallDeadline {
    /// Returns the time that the call may take, given the client's deadline.
    pub(super) fn limit(self, client: Option<Duration>) -> Option<Duration> {
        match self {
            Self::Client => client,
            Self::After(limit) => Some(limit),
            Self::At(end) => Some(end.saturating_duration_since(Instant::now())),
            Self::Lifted => None,
        }
    }

    /// Starts the deadline, so that all calls with the result end by the same instant. A limit too large to
    /// represent means no deadline.
    pub(super) fn start(self, client: Option<Duration>) -> Self {
        let end = self
            .limit(client)
            .and_then(|limit| Instant::now().checked_add(limit));
        end.map_or(Self::Lifted, Self::At)
    }
}

/// Adds the setters that every call has to a builder. `$options` is the path to its [`CallOptions`].
macro_rules! call_settings {
    ($builder:ty, $($options:ident).+) => {
        impl $builder {
            /// Limits one attempt of this call, from connecting to the last byte of the response.
            /// Default: the client's [`timeout`](crate::ClientBuilder::timeout).
            pub fn timeout(mut self, limit: std::time::Duration) -> Self {
                self.$($options).+.timeout = Some(limit);
                self
            }

            /// Limits this whole call, with its retries and waits. Default: the client's
            /// [`deadline`](crate::ClientBuilder::deadline).
            pub fn deadline(mut self, limit: std::time::Duration) -> Self {
                self.$($options).+.deadline = crate::client::CallDeadline::After(limit);
                self
            }

            /// Lifts the deadline of this call, even if the client has one. The timeout of each attempt
            /// still applies.
            pub fn no_deadline(mut self) -> Self {
                self.$($options).+.deadline = crate::client::CallDeadline::Lifted;
                self
            }

            /// Sets the retry policy of this call. Default: the client's
            /// [`retry`](crate::ClientBuilder::retry).
            pub fn retry(mut self, policy: crate::RetryPolicy) -> Self {
                self.$($options).+.retry = Some(policy);
                self
            }
        }
    };
}

pub(crate) use call_settings;

/// Adds `wait` to a call, with the feature `blocking`.
macro_rules! wait_for_call {
    ($call:ty => $output:ty) => {
        #[cfg(feature = "blocking")]
        #[cfg_attr(docsrs, doc(cfg(feature = "blocking")))]
        impl $call {
            /// Sends the call and blocks this thread until it ends, for programs without an async runtime: see
            /// [`blocking`](crate::blocking).
            ///
            /// # Errors
            ///
            /// The errors of the call.
            ///
            /// # Panics
            ///
            /// In async code: use `.await` there.
            #[track_caller]
            pub fn wait(self) -> $output {
                crate::blocking::wait(self)
            }
        }
    };
}

pub(crate) use wait_for_call;

/// Adds `wait` to a stream, with the feature `blocking`.
macro_rules! wait_for_items {
    ($stream:ty) => {
        #[cfg(feature = "blocking")]
        #[cfg_attr(docsrs, doc(cfg(feature = "blocking")))]
        impl $stream {
            /// Returns an iterator over the items, for programs without an async runtime: see
            /// [`blocking`](crate::blocking). In async code, its `next` panics.
            pub fn wait(self) -> crate::blocking::Iter<Self> {
                crate::blocking::Iter::new(self)
            }
        }
    };
}

pub(crate) use wait_for_items;

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

pub(crate) use opaque_debug;

/// A call in progress: the future of every builder.
///
/// Nothing is sent before the first poll. Dropping the future cancels the call, but a request that was
/// already sent may still be applied. Polling it after it has returned its result panics.
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
    /// The errors of the call.
    ///
    /// # Panics
    ///
    /// In async code: use `.await` there.
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
/// Every builder has a method `response()` that returns it. [`value`](Self::value) is what awaiting
/// the builder itself would have returned.
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
    pub(super) fn read(
        success: Success,
        decode: impl FnOnce(Success) -> Result<T, Error>,
    ) -> Result<Self, Error> {
        let (status, headers) = (success.status(), success.headers().clone());
        let attempts = success.attempts();
        Ok(Self {
            value: decode(success)?,
            status,
            headers,
            attempts,
        })
    }

    /// Returns the HTTP status, which is 2xx.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the headers.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Returns how many attempts the call made.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Returns the value.
    #[must_use]
    pub fn value(&self) -> &T {
        &self.value
    }

    /// Returns the value alone: what awaiting the builder itself would have returned.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.value
    }
}

/// Does not print the headers, which may hold a secret.
impl<T: fmt::Debug> fmt::Debug for Response<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response")
            .field("value", &self.value)
            .field("status", &self.status.as_u16())
            .field("attempts", &self.attempts)
            .finish_non_exhaustive()
    }
}
