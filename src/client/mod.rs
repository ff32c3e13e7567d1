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

mod auth;
mod base_url;
mod builder;
mod decode;
mod endpoint;
mod environment;
mod failed_attempt;
mod full_response;
mod future;
mod handle;
mod hold;
mod options;
#[cfg(feature = "import")]
mod patience;
mod request;
mod response;
mod retry;
mod retry_policy;
mod send;
mod trace;
mod transport;

pub use auth::Auth;
pub use builder::ClientBuilder;
pub(crate) use decode::{Object, decode_item};
pub(crate) use endpoint::{Endpoint, EndpointCall, endpoint_builder};
pub use full_response::Response;
pub use future::ResponseFuture;
pub use handle::Client;
#[cfg(feature = "import")]
pub(crate) use options::AttemptWatch;
pub(crate) use options::{
    CallDeadline, CallOptions, TakesOptions, call_settings, opaque_debug, wait_for_call,
    wait_for_items,
};
pub(crate) use request::{Operation, Request, RetrySafety, is_set_by_http};
pub(crate) use response::Success;
pub use retry_policy::RetryPolicy;
pub(crate) use trace::in_current_span;
