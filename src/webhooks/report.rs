//! What a verifier tells `tracing`, where that feature is on: no secret, no MAC, nothing of a body.

use super::authenticated::Authenticated;
use super::error::VerifyError;

#[cfg(feature = "tracing")]
pub(super) fn authenticated(delivery: &Authenticated<'_>) {
    tracing::trace!(
        secret = delivery.secret_name,
        skew = delivery.skew,
        "webhook delivery authenticated"
    );
}

#[cfg(feature = "tracing")]
pub(super) fn refused(error: &VerifyError) {
    tracing::debug!(%error, "webhook delivery refused");
}

#[cfg(not(feature = "tracing"))]
pub(super) fn authenticated(_: &Authenticated<'_>) {}

#[cfg(not(feature = "tracing"))]
pub(super) fn refused(_: &VerifyError) {}
