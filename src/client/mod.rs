//! The client: its settings, its retry policy, and the future that a call returns.
//!
//! A call makes one or more attempts. The [`timeout`](ClientBuilder::timeout) limits each attempt.
//! Default: 30 s. The [`deadline`](ClientBuilder::deadline) limits the whole call, with its retries and
//! the waits between them. Default: 45 s. [`RetryPolicy`] says which calls are retried and when.

mod auth;
mod base_url;
mod builder;
mod decode;
mod endpoint;
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
pub use handle::Client;
pub(crate) use options::{CallDeadline, CallOptions, call_settings, opaque_debug};
pub(crate) use request::{Operation, Request, RetrySafety, is_set_by_http};
pub(crate) use response::Success;
pub use retry_policy::RetryPolicy;
