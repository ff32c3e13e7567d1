//! Reports outcomes to `tracing` (feature `tracing`), as the table in the docs of `webhooks` says. No
//! address, body, secret or MAC is reported.

use std::fmt::Display;
use std::time::Duration;

use http::StatusCode;

use super::error::VerifyError;
use super::event::Event;

/// Who should hear of a rejection.
#[derive(Clone, Copy)]
pub(super) enum Severity {
    /// Nobody, usually: any stranger can cause it.
    Debug,
    /// The operator: genuine deliveries may be affected.
    Warn,
    /// The operator: no delivery is accepted until this is fixed.
    Error,
}

pub(super) fn authenticated(secret_name: &str, skew: Duration, is_early: bool) {
    #[cfg(feature = "tracing")]
    tracing::debug!(
        target: "audience::webhooks",
        secret = secret_name,
        skew = seconds_behind(skew, is_early),
        "webhook delivery authenticated"
    );
    #[cfg(not(feature = "tracing"))]
    let _ = (secret_name, skew, is_early);
}

/// Reports an event of a known type whose data does not tell what it is about. A handler that looks for that type does
/// not see it.
pub(super) fn incomplete(event: &Event) {
    if !event.data.is_incomplete() {
        return;
    }
    #[cfg(feature = "tracing")]
    tracing::warn!(
        target: "audience::webhooks",
        // The name is a string, because releases of tracing before 0.1.42 would name a field `r#type` with the `r#`.
        { "type" = event.event_type().as_str(), id = event.id.as_str() },
        "webhook event without the members that identify it"
    );
}

pub(super) fn rejected(error: &VerifyError) {
    let (severity, cause) = match error {
        VerifyError::MissingHeader { .. } => (Severity::Debug, "missing_header"),
        VerifyError::DuplicateHeader { .. } => (Severity::Debug, "duplicate_header"),
        VerifyError::MalformedSignature { .. } => (Severity::Debug, "malformed_signature"),
        VerifyError::MalformedTimestamp => (Severity::Debug, "malformed_timestamp"),
        // A genuine event that is too long is lost after the last attempt.
        VerifyError::BodyTooLarge { .. } => (Severity::Warn, "body_too_large"),
        VerifyError::SignatureMismatch => (Severity::Warn, "signature_mismatch"),
        VerifyError::TooLate { .. } => (Severity::Warn, "too_late"),
        VerifyError::TooEarly { .. } => (Severity::Warn, "too_early"),
        VerifyError::InvalidEnvelope { .. } => (Severity::Warn, "invalid_envelope"),
        VerifyError::ClockUnusable => (Severity::Error, "clock_unusable"),
    };
    let skew = error
        .skew()
        .and_then(|skew| seconds_behind(skew, matches!(error, VerifyError::TooEarly { .. })));
    report(severity, cause, error.status(), skew, error);
}

/// Reports a request that was rejected before it reached the verifier.
#[cfg(any(feature = "actix", feature = "axum", feature = "tower"))]
pub(super) fn unread(
    severity: Severity,
    cause: &'static str,
    status: StatusCode,
    error: &dyn Display,
) {
    report(severity, cause, status, None, error);
}

/// Returns how many seconds a delivery is behind the clock, negative if it is ahead.
fn seconds_behind(skew: Duration, is_early: bool) -> Option<i64> {
    let seconds = i64::try_from(skew.as_secs()).ok()?;
    Some(if is_early { -seconds } else { seconds })
}

#[cfg(feature = "tracing")]
fn report(
    severity: Severity,
    cause: &'static str,
    status: StatusCode,
    skew: Option<i64>,
    error: &dyn Display,
) {
    macro_rules! event {
        ($level:ident) => {
            tracing::$level!(
                target: "audience::webhooks",
                cause,
                status = status.as_u16(),
                skew,
                %error,
                "webhook delivery rejected"
            )
        };
    }
    match severity {
        Severity::Debug => event!(debug),
        Severity::Warn => event!(warn),
        Severity::Error => event!(error),
    }
}

#[cfg(not(feature = "tracing"))]
fn report(_: Severity, _: &'static str, _: StatusCode, _: Option<i64>, _: &dyn Display) {}
