//! Shared by the extractors of all frameworks: when to refuse, how much to read, and the result.

mod body;
mod body_timer;
#[cfg(any(feature = "axum", feature = "tower"))]
mod http_request;
mod receive;
mod rejection;

#[cfg(feature = "actix")]
pub(super) use self::body::IncomingBody;
#[cfg(any(feature = "axum", feature = "tower"))]
pub(super) use self::http_request::receive_http;
#[cfg(feature = "actix")]
pub(super) use self::receive::receive;
pub use self::rejection::{RefusedDelivery, Rejection};
