//! Sends calls to the service and retries them, with the settings of [`ClientBuilder`](crate::ClientBuilder). Each call
//! converts to a [`ResponseFuture`].
//!
//! Create one [`Client`](crate::Client) when your program starts, and clone it for each task: clones share connections.
//! [`Client::contacts`](crate::Client::contacts) has a method for each call, and `.await` sends the call.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
//! # let server = audience::mock::MockServer::builder().seed_contact("ada@example.com").start().await;
//! # let (base_url, key) = (server.url(), server.full_key());
//! use audience::Client;
//!
//! let client = Client::new(base_url, key)?;
//! let ada = client.contacts().retrieve("ada@example.com").await?;
//!
//! assert_eq!(ada.email, "ada@example.com");
//! # Ok(()) }
//! ```
//!
//! # Attempts, timeout and deadline
//!
//! A call makes one attempt, or several if it is retried. [`RetryPolicy`] says which calls are
//! retried, and when.
//!
//! - The [`timeout`](crate::ClientBuilder::timeout) limits each attempt. Default: 30 s.
//! - The [`deadline`](crate::ClientBuilder::deadline) limits the whole call, with its retries and the waits between
//!   them. Default: 45 s.
//!
//! [`ClientBuilder`](crate::ClientBuilder) sets both for all calls. Each call can set its own:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
//! # let server = audience::mock::MockServer::builder().seed_contact("ada@example.com").start().await;
//! # let contacts = server.client().contacts();
//! use std::time::Duration;
//!
//! let page = contacts.list().deadline(Duration::from_secs(60)).await?;
//!
//! assert_eq!(page.data.len(), 1);
//! # Ok(()) }
//! ```
//!
//! # Several calls in parallel
//!
//! Each call is a builder, such as [`CreateContact`](crate::contacts::CreateContact), that converts to a future
//! ([`IntoFuture`]). To spawn a call, join it or select on it, convert it with `.into_future()`. The result is a
//! [`ResponseFuture`], and for `set_topics`, an import, a sync and an export, whose errors have types of their own, a boxed
//! future. Each is `Send`, `Unpin` and `'static`. Nothing is sent before its first poll. Dropping it cancels the call, but
//! a request that was already sent may still be applied.
//!
//! This example sends at most eight requests simultaneously, and then one more from a spawned task:
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
//! # Redirects
//!
//! The client follows a redirect only within the scheme, host and port of the base URL, so the key goes nowhere else.
//! It follows a 307 and a 308 with the same method and body, and a 301 and a 302 only if the request is a GET. The target
//! must have the query of the request: without its filter or cursor, a list would have other contacts. One attempt follows
//! at most 5 redirects. Any other redirect is an error of [`ErrorKind::Api`](crate::ErrorKind::Api) that says why it is
//! not followed. Its outcome is [`Refused`](crate::Outcome::Refused). After a 303 in response to a write, the outcome is
//! [`Unknown`](crate::Outcome::Unknown): a service that has applied a write may respond so.
//!
//! # Your own HTTP client
//!
//! The crate [`reqwest`] is re-exported here because [`http_client`](crate::ClientBuilder::http_client) takes its
//! `Client`.
//!
//! # Spans and events
//!
//! For metrics without `tracing`, see [`ClientBuilder::on_attempt`](crate::ClientBuilder::on_attempt).
//!
//! With the feature `tracing`, each call is a span, and each of its attempts is a child span. In a list, each page is a
//! call. A method that makes several requests, such as `find`, has no span of its own: each request is a call with its
//! own name, such as `retrieve`. The targets start with `audience::client`.
//!
//! | name or message | kind | level | when |
//! |---|---|---|---|
//! | `audience.call` | span | INFO | from the first poll of a call until it has its result or is dropped |
//! | `http.client.request` | span | INFO | during one attempt; name and fields follow OpenTelemetry's conventions for HTTP clients |
//! | `the attempt failed and will be retried` | event | WARN | before the wait for a retry |
//! | `the service accepted the change, but does not show whether it was made` | event | WARN | after an opt-out from a topic, if the contact in the response and the one that is retrieved have `null` as the answer; its only field is `operation` |
//! | `the service has asked to wait, so the request is not sent yet` | event | INFO | before a call waits because any clone of the client got a 429 |
//!
//! | field | on | value |
//! |---|---|---|
//! | `operation` | call, events | the method, such as `create_batch`; `request` for a raw request, and `subscribe` or `unsubscribe` for `set_topic` |
//! | `url.template` | call, attempt | the path, such as `/contacts/{address}`; `(request)` for a raw request |
//! | `attempts` | call, WARN | how many attempts the call made, or had made by then |
//! | `outcome` | call | `ok`, or [`Error::outcome`](crate::Error::outcome) as `not_sent`, `refused`, `unchanged`, `unknown` or `applied`; missing if the call was dropped |
//! | `error.type` | call, attempt, WARN | the status of the response or, without one, the [`ErrorKind`](crate::ErrorKind) in lowercase, such as `timeout`; missing without an error |
//! | `otel.name` | call, attempt | `audience.` and the operation; the method and the template |
//! | `otel.kind` | attempt | `client` |
//! | `otel.status_code` | call, attempt | `ERROR`; missing without an error |
//! | `http.request.method` | attempt | the method |
//! | `http.request.resend_count` | attempt | how many attempts the call made before; missing on the first |
//! | `http.response.status_code` | attempt, WARN | the status; missing without a response |
//! | `server.address`, `server.port` | attempt | host and port of the base URL |
//! | `error` | WARN | the text of the error |
//! | `wait_ms` | events | the wait, in milliseconds |
//!
//! No field contains an address, a key, a cursor or the text of a body.

pub(crate) mod builder;
mod call;
mod exchange;
mod raw;
pub(crate) mod retry;
mod send;

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use url::Url;

use crate::RetryPolicy;
use crate::error::ReadError;
use crate::sync::Hold;
use builder::OpenForms;
use call::OnAttempt;

#[cfg(feature = "cli")]
pub(crate) use builder::{key_from_env, post_to};
#[cfg(any(feature = "import", feature = "unsubscribe"))]
pub(crate) use call::{AttemptWatch, Waiting};
pub use call::{CallAttempt, Response, ResponseFuture};
pub(crate) use call::{
    CallDeadline, CallOptions, Endpoint, TakesOptions, call_settings, endpoint_builder,
    opaque_debug, wait_for_call, wait_for_items,
};
pub(crate) use exchange::{
    NOT_SECONDS, Object, Operation, Request, RetrySafety, Success, decode_item, is_path_segment,
    with_escapes,
};
pub use raw::{RawRequest, RawResponse};
#[doc(no_inline)]
pub use reqwest;
use send::Pace;
#[cfg(any(test, fuzzing))]
pub(crate) use send::result_of;
pub(crate) use send::{in_current_span, not_sent};

const DEFAULT_DEADLINE: Duration = Duration::from_secs(45);

/// The part of a client that all its clones share.
struct Shared {
    http: reqwest::Client,
    /// The base URL, with a slash at its end.
    base: Url,
    /// The headers of every request.
    headers: HeaderMap,
    /// The headers of every request with a JSON body.
    json_headers: HeaderMap,
    body_limit: usize,
    retry: RetryPolicy,
    timeout: Duration,
    deadline: Option<Duration>,
    read_errors: Option<Arc<ReadError>>,
    on_attempt: Option<Arc<OnAttempt>>,
    open_forms: OpenForms,
    hold: Hold,
    pace: Option<Pace>,
}
