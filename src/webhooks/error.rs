use std::time::Duration;

use http::StatusCode;

use super::envelope::EnvelopeProblem;
use super::signature::SignatureHint;

/// Why a delivery was not accepted, one variant for each cause.
///
/// The text of it is for logs. It names no secret, no computed MAC and nothing of the body; answer
/// over HTTP with [`status`](Self::status) and an empty body all the same, because whoever sent a
/// forged delivery should not learn what was wrong with it.
///
/// # Example: a refused delivery
///
/// ```
/// use audience::webhooks::{Fault, Verifier, VerifyError};
///
/// let verifier = Verifier::new("6Jm0nFq2pXvZk4Tt")?;
/// let error = verifier.verify(&http::HeaderMap::new(), b"{}").unwrap_err();
///
/// assert!(matches!(error, VerifyError::MissingHeader { .. }));
/// assert_eq!(error.status(), 400);
/// assert_eq!(error.fault(), Fault::Sender);
/// assert_eq!(error.to_string(), "the webhook-signature header is missing");
/// # Ok::<(), audience::webhooks::SecretError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// One of the two signed headers is not there: whoever sent this is not the service, or
    /// something on the way takes headers off.
    #[error("the {header} header is missing")]
    MissingHeader {
        /// The header's name.
        header: &'static str,
    },

    /// One of the two signed headers came more than once, so that it is unclear which is meant.
    #[error("the {header} header came more than once")]
    DuplicateHeader {
        /// The header's name.
        header: &'static str,
    },

    /// `webhook-signature` is not exactly 64 lowercase hex digits (interface section 5).
    #[error("the webhook-signature header is not 64 lowercase hex digits: {hint}")]
    MalformedSignature {
        /// What it looks like instead.
        hint: SignatureHint,
    },

    /// `webhook-timestamp` is not a plain count of seconds: ASCII digits, no sign, no leading zero,
    /// at most [`u64::MAX`].
    #[error("the webhook-timestamp header is not a plain number of seconds")]
    MalformedTimestamp,

    /// The body is longer than the verifier's limit
    /// ([`body_limit`](super::VerifierBuilder::body_limit)). It was not authenticated.
    #[error("the body is longer than {limit} bytes")]
    BodyTooLarge {
        /// The limit, in bytes.
        limit: usize,
    },

    /// The signature was made with none of the verifier's secrets over this timestamp and these
    /// bytes: a forgery, another endpoint's secret, or a body that was changed on the way (read it
    /// raw, before any JSON parsing). [`diagnose`](super::Verifier::diagnose) tells these apart.
    #[error("the signature does not match the timestamp and body")]
    SignatureMismatch,

    /// Genuine, but signed too long ago: a replay, a delivery that was held up, or a clock of ours
    /// that runs ahead.
    #[error("the delivery is genuine but {} seconds old", skew.as_secs())]
    TooLate {
        /// How far the timestamp lies behind our clock.
        skew: Duration,
    },

    /// Genuine, but signed in our future: one of the two clocks is wrong.
    #[error("the delivery is genuine but dated {} seconds in the future", skew.as_secs())]
    TooEarly {
        /// How far the timestamp lies ahead of our clock.
        skew: Duration,
    },

    /// The verifier's clock shows a time before 1970, so that no delivery can be judged.
    #[error("the clock of this machine shows a time before 1970")]
    ClockUnusable,

    /// Genuine and in time, but not an event envelope (interface section 6.2).
    #[error("the authenticated body is not an event envelope: {problem}")]
    InvalidEnvelope {
        /// What is wrong with it.
        problem: EnvelopeProblem,
    },
}

impl VerifyError {
    /// The status to answer with: 400 for what is malformed, 401 for what is forged or out of the
    /// window, 413 for what is too large, 500 where our own clock is the trouble.
    ///
    /// The service counts each of them as a failed attempt and delivers again (interface section 6.5).
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::MissingHeader { .. }
            | Self::DuplicateHeader { .. }
            | Self::MalformedSignature { .. }
            | Self::MalformedTimestamp
            | Self::InvalidEnvelope { .. } => StatusCode::BAD_REQUEST,
            Self::SignatureMismatch | Self::TooLate { .. } | Self::TooEarly { .. } => {
                StatusCode::UNAUTHORIZED
            }
            Self::BodyTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::ClockUnusable => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// On whose side to look for the cause.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::MissingHeader { .. }
            | Self::DuplicateHeader { .. }
            | Self::MalformedSignature { .. }
            | Self::MalformedTimestamp
            | Self::BodyTooLarge { .. }
            | Self::InvalidEnvelope { .. } => Fault::Sender,
            Self::SignatureMismatch | Self::TooLate { .. } | Self::TooEarly { .. } => Fault::Either,
            Self::ClockUnusable => Fault::Operator,
        }
    }

    /// How far the delivery lies outside our present, where that is why it was refused.
    ///
    /// The direction is the variant: [`TooLate`](Self::TooLate) or [`TooEarly`](Self::TooEarly).
    #[must_use]
    pub fn skew(&self) -> Option<Duration> {
        match self {
            Self::TooLate { skew } | Self::TooEarly { skew } => Some(*skew),
            _ => None,
        }
    }
}

/// On whose side the cause of a [`VerifyError`] lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// Whoever sent it sent what the service does not send. Nothing to mend here.
    Sender,
    /// This machine is set up wrongly, and no delivery will be accepted before that is mended.
    Operator,
    /// A forgery or replay looks the same as a wrong secret, a body changed on the way or a wrong
    /// clock. If it goes on, ask [`diagnose`](super::Verifier::diagnose).
    Either,
}
