//! The client: its settings, its retry policy, and the future that a call returns.
//!
//! A call makes one or more attempts. The [`timeout`](ClientBuilder::timeout) limits each attempt.
//! Default: 30 s. The [`deadline`](ClientBuilder::deadline) limits the whole call, with its retries and
//! the waits between them. Default: 45 s. [`RetryPolicy`] says which calls are retried and when.
//!
//! # A builder is sent by `.await`
//!
//! Each builder, such as [`CreateContact`](crate::contacts::CreateContact), converts to the future of its call
//! ([`IntoFuture`]), so `.await` sends it. To spawn a call, join it or select on it, convert it with `.into_future()`:
//! the result is a [`ResponseFuture`], which is `Send` and `'static`. Nothing is sent before its first poll. Dropping it
//! cancels the call, but a request that was already sent may still be applied.
//!
//! ## Example: at most eight calls at a time
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = audience::mock::MockServer::start().await;
//! # let contacts = server.client().contacts();
//! # contacts.create_batch(["ada@example.com", "bob@example.com"].map(audience::contacts::NewContact::new)).await?;
//! use futures_util::{StreamExt, TryStreamExt, stream};
//!
//! let addresses = ["ada@example.com", "bob@example.com"];
//! let calls = addresses.map(|address| contacts.unsubscribe(address).into_future());
//!
//! let updated: Vec<_> = stream::iter(calls).buffer_unordered(8).try_collect().await?;
//! assert!(updated.iter().all(|contact| contact.unsubscribed));
//!
//! let spawned = tokio::spawn(contacts.retrieve("ada@example.com").into_future());
//! assert!(spawned.await??.unsubscribed);
//! # Ok(()) }
//! ```
//!
//! # Spans and events
//!
//! With the feature `tracing`, each call is a span, with a span for each of its attempts below it. In a
//! list, each page is a call; in `set_topics`, each request is. The targets start with `audience::client`.
//!
//! | name or message | kind | level | when |
//! |---|---|---|---|
//! | `audience.call` | span | INFO | from the first poll of a call until it has its result or is dropped |
//! | `http.client.request` | span | INFO | during one attempt; named and filled as OpenTelemetry asks of an HTTP client |
//! | `the attempt failed and will be retried` | event | WARN | before the wait for a retry |
//! | `the service has asked to wait, so the request is not sent yet` | event | INFO | before the wait for the end of a hold, after a 429 to any clone of the client |
//!
//! | field | on | value |
//! |---|---|---|
//! | `operation` | call, events | the method, such as `create_batch`; `request` for a raw request |
//! | `url.template` | call, attempt | the path, such as `/contacts/{address}`; `(request)` for a raw request |
//! | `attempts` | call | how many attempts were made |
//! | `outcome` | call | `ok`, or [`Error::outcome`](crate::Error::outcome) as `not_sent`, `refused` or `unknown`; missing if the call was dropped |
//! | `error.type` | call, attempt, WARN | the status of the response or, without one, the [`ErrorKind`](crate::ErrorKind) in lowercase, such as `timeout`; missing without an error |
//! | `otel.name` | call, attempt | `audience.` and the operation; the method and the template |
//! | `otel.kind` | attempt | `client` |
//! | `otel.status_code` | call, attempt | `ERROR`; missing without an error |
//! | `http.request.method` | attempt | the method |
//! | `http.request.resend_count` | attempt | how many attempts came before; missing on the first |
//! | `http.response.status_code` | attempt, WARN | the status; missing without a response |
//! | `server.address`, `server.port` | attempt | host and port of the base URL |
//! | `attempt` | WARN | the number of the attempt that failed, counted from 1 |
//! | `error` | WARN | the text of the error |
//! | `wait_ms` | events | the wait, in milliseconds |
//!
//! No field contains an address, a key, a cursor or the text of a body.

mod builder;
mod call;
mod request;
mod response;
mod retry;
mod send;
mod trace;
mod transport;

use std::fmt;
use std::sync::Arc;

use send::Sender;
use trace::CallSpan;

use crate::{Error, Outcome};

pub use builder::{Auth, ClientBuilder};
#[cfg(feature = "import")]
pub(crate) use call::AttemptWatch;
pub(crate) use call::{
    CallDeadline, CallOptions, Endpoint, EndpointCall, TakesOptions, call_settings,
    endpoint_builder, opaque_debug, wait_for_call, wait_for_items,
};
pub use call::{Response, ResponseFuture};
pub(crate) use request::{Operation, Request, RetrySafety, is_set_by_http};
pub(crate) use response::{Object, Success, decode_item};
pub use retry::RetryPolicy;
pub(crate) use trace::in_current_span;

/// A client of the service.
///
/// Cheap to clone: clones share connections, key and settings, so one client serves thousands of
/// tasks.
///
/// Await calls in a tokio runtime whose time and I/O drivers are enabled. Elsewhere, they panic.
///
/// # Example: one call
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
/// # let server = audience::mock::MockServer::start().await;
/// # let (base_url, key) = (server.url(), server.full_key());
/// use audience::Client;
/// use audience::contacts::NewContact;
///
/// let client = Client::new(base_url, key)?;
/// let created = client.contacts().create(NewContact::new("ada@example.com")).await?;
///
/// assert!(created.is_new());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Client {
    sender: Arc<Sender>,
}

impl Client {
    fn from_sender(sender: Sender) -> Self {
        Self {
            sender: Arc::new(sender),
        }
    }

    /// Returns the base URL.
    #[cfg(feature = "import")]
    pub(crate) fn base_url(&self) -> String {
        self.sender.transport.base().to_string()
    }

    /// Starts the deadline of a call that sends several requests: with these options, all end by the same
    /// instant.
    pub(crate) fn start_deadline(&self, options: CallOptions) -> CallOptions {
        let deadline = options.deadline.start(self.sender.deadline);
        CallOptions {
            deadline,
            ..options
        }
    }

    /// Sends a request, with retries, and decodes its response.
    pub(crate) fn send<T: Send + 'static>(
        self,
        operation: Operation,
        request: Result<Request, Error>,
        options: CallOptions,
        decode: impl FnOnce(Success) -> Result<T, Error> + Send + 'static,
    ) -> ResponseFuture<T> {
        ResponseFuture::new(async move {
            let received = self.receive(operation, request, options).await?;
            received.decode(decode)
        })
    }

    /// Sends a request, with retries, and returns its 2xx response. An error gets the name of the
    /// operation.
    async fn receive(
        self,
        operation: Operation,
        request: Result<Request, Error>,
        options: CallOptions,
    ) -> Result<Received, Error> {
        let span = CallSpan::new(operation);
        let result = match request {
            Ok(request) => {
                span.run(self.sender.send(operation, request, options))
                    .await
            }
            Err(error) => Err(error),
        };
        match result {
            Ok(success) => Ok(Received { success, span }),
            Err(error) => {
                span.failed(&error);
                Err(error.at(operation.name))
            }
        }
    }
}

/// A 2xx response that has not been decoded.
struct Received {
    success: Success,
    span: CallSpan,
}

impl Received {
    /// Decodes the response, which ends the call. An error gets the name of the operation, the number of
    /// attempts and the body.
    fn decode<T>(self, decode: impl FnOnce(Success) -> Result<T, Error>) -> Result<T, Error> {
        let Self { success, span } = self;
        let operation = success.operation();
        let (attempts, body) = (success.attempts(), success.body().clone());
        let decoded = decode(success).map_err(|error| {
            let error = error.after(attempts, Outcome::NotSent).reading(body);
            error.at(operation.name)
        });
        match &decoded {
            Ok(_) => span.succeeded(attempts),
            Err(error) => span.failed(error),
        }
        decoded
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("transport", &self.sender.transport)
            .field("retry", &self.sender.retry)
            .field("timeout", &self.sender.timeout)
            .field("deadline", &self.sender.deadline)
            .finish()
    }
}
