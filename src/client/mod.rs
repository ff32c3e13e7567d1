//! The client: its settings, its retry policy, and the future that a call returns.
//!
//! A call makes one or more attempts. The [`timeout`](ClientBuilder::timeout) limits each attempt.
//! Default: 30 s. The [`deadline`](ClientBuilder::deadline) limits the whole call, with its retries and
//! the waits between them. Default: 45 s. [`RetryPolicy`] says which calls are retried and when.
//!
//! # A builder is a future
//!
//! Each builder, such as [`CreateContact`](crate::contacts::CreateContact), is the future of its call:
//! `.await` it, spawn it, join it or select on it. Nothing is sent before the first poll. After it,
//! - settings no longer change the call;
//! - dropping the builder cancels the call, but a request that was already sent may still be applied;
//! - a clone is a new call with the same settings, not yet sent.
//!
//! Polling a builder again after it has returned its result panics, as it does for an `async fn`.
//!
//! ## Example: at most eight calls at a time
//!
//! ```
//! # #[cfg(feature = "mock")]
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = audience::mock::MockServer::start().await;
//! # let contacts = server.client().contacts();
//! # contacts.create_batch(["ada@example.com", "bob@example.com"].map(audience::contacts::NewContact::new)).await?;
//! use futures_util::{StreamExt, TryStreamExt, stream};
//!
//! let addresses = ["ada@example.com", "bob@example.com"];
//! let calls = addresses.map(|address| contacts.unsubscribe(address));
//!
//! let updated: Vec<_> = stream::iter(calls).buffer_unordered(8).try_collect().await?;
//! assert!(updated.iter().all(|contact| contact.unsubscribed));
//!
//! let spawned = tokio::spawn(contacts.retrieve("ada@example.com"));
//! assert!(spawned.await??.unsubscribed);
//! # Ok(()) }
//! # #[cfg(not(feature = "mock"))] fn main() {}
//! ```

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
mod location;
mod options;
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
pub(crate) use future::Started;
pub use handle::Client;
pub(crate) use options::{CallDeadline, CallOptions, call_settings, opaque_debug};
pub(crate) use request::{Operation, Request, RetrySafety, is_set_by_http};
pub(crate) use response::Success;
pub use retry_policy::RetryPolicy;
