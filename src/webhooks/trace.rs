//! Reports outcomes to `tracing` (feature `tracing`). No secret, MAC or body is reported.

use std::fmt::Display;

#[cfg(feature = "tracing")]
pub(super) fn authenticated(secret_name: &str, skew: i64) {
    tracing::trace!(secret = secret_name, skew, "webhook delivery authenticated");
}

#[cfg(feature = "tracing")]
pub(super) fn refused(error: &impl Display) {
    tracing::debug!(%error, "webhook delivery refused");
}

#[cfg(not(feature = "tracing"))]
pub(super) fn authenticated(_: &str, _: i64) {}

#[cfg(not(feature = "tracing"))]
pub(super) fn refused(_: &impl Display) {}
