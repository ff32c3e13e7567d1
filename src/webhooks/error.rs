use std::fmt;
use std::time::Duration;

use http::StatusCode;

use super::event::EnvelopeProblem;

/// Why a delivery was rejected, one variant for each cause.
///
/// The text is for logs. It contains no secret, no computed MAC and no part of the body. Still,
/// respond with [`status`](Self::status) and an empty body, so that the sender of a forged delivery
/// does not learn what was wrong with it.
///
/// # Example: a rejected delivery
///
/// ```
/// use audience::webhooks::{Verifier, VerifyError};
///
/// let verifier = Verifier::new("6Jm0nFq2pXvZk4Tt")?;
///
/// let error = verifier.verify(&http::HeaderMap::new(), b"{}").unwrap_err();
///
/// assert!(matches!(error, VerifyError::MissingHeader { .. }));
/// assert_eq!(error.to_string(), "the webhook-signature header is missing");
/// # Ok::<(), audience::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// One of the two signed headers is missing: the request is not from the service, or a proxy
    /// removed the header.
    #[error("the {header} header is missing")]
    MissingHeader {
        /// The header's name.
        header: &'static str,
    },

    /// One of the two signed headers occurs more than once, so it is unclear which one is meant.
    #[error("the {header} header occurs more than once")]
    DuplicateHeader {
        /// The header's name.
        header: &'static str,
    },

    /// `webhook-signature` is not exactly 64 lowercase hex digits ([interface section 5](crate::interface#5)).
    #[error("the webhook-signature header is not 64 lowercase hex digits: {hint}")]
    MalformedSignature {
        /// The form that it seems to have instead.
        hint: SignatureHint,
    },

    /// `webhook-timestamp` is not a plain number of seconds: ASCII digits, no sign, no leading
    /// zero, at most [`u64::MAX`].
    #[error("the webhook-timestamp header is not a plain number of seconds")]
    MalformedTimestamp,

    /// The body is longer than the verifier's limit
    /// ([`body_limit`](super::VerifierBuilder::body_limit)). It was not authenticated.
    #[error("the body is longer than {limit} bytes")]
    BodyTooLarge {
        /// The limit, in bytes.
        limit: usize,
    },

    /// No secret of the verifier produces this signature for this timestamp and body.
    ///
    /// The delivery is forged, it was signed with another endpoint's secret, or its body was changed
    /// in transit (pass the raw body, before any JSON parsing).
    /// [`diagnose`](super::Verifier::diagnose) tells these apart.
    #[error("the signature does not match the timestamp and body")]
    SignatureMismatch,

    /// The delivery is genuine but was signed too long ago: it is a replay, it was delayed, or this
    /// machine's clock is fast.
    #[error("the delivery is genuine but {} seconds old", skew.as_secs())]
    TooLate {
        /// How far the timestamp is behind the verifier's clock.
        skew: Duration,
    },

    /// The delivery is genuine but its timestamp is in the future: one of the two clocks is wrong.
    #[error("the delivery is genuine but dated {} seconds in the future", skew.as_secs())]
    TooEarly {
        /// How far the timestamp is ahead of the verifier's clock.
        skew: Duration,
    },

    /// The verifier's clock shows a time before 1970, so no delivery can be accepted.
    #[error("the clock of this machine shows a time before 1970; set it")]
    ClockUnusable,

    /// The delivery is genuine and recent, but its body is not an event envelope
    /// ([interface section 6.2](crate::interface#6.2)).
    #[error("the authenticated body is not an event envelope: {problem}")]
    InvalidEnvelope {
        /// The problem with the body.
        problem: EnvelopeProblem,
    },
}

impl VerifyError {
    /// Returns the status to respond with.
    ///
    /// - 400 if a header or the envelope is malformed.
    /// - 401 if the signature does not match or the delivery is outside the time window.
    /// - 413 if the body is too large.
    /// - 500 if this machine's clock is unusable.
    ///
    /// The service counts each of them as a failed attempt and retries ([interface section 6.5](crate::interface#6.5)).
    ///
    /// # Example: respond to a rejected delivery
    ///
    /// ```
    /// # use audience::webhooks::Verifier;
    /// # let (headers, body) = (http::HeaderMap::new(), b"{}");
    /// # let verifier = Verifier::new("6Jm0nFq2pXvZk4Tt")?;
    /// let error = verifier.verify(&headers, body).unwrap_err();
    ///
    /// assert_eq!(error.status(), http::StatusCode::BAD_REQUEST);
    /// # Ok::<(), audience::ConfigError>(())
    /// ```
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

    /// Returns the side that may have caused the error.
    ///
    /// # Example: alert only if this side may be at fault
    ///
    /// ```
    /// use audience::webhooks::{FaultSide, VerifyError};
    ///
    /// let error = VerifyError::ClockUnusable;
    ///
    /// if error.fault_side() != FaultSide::Sender {
    ///     eprintln!("check the webhook endpoint: {error}");
    /// }
    /// # assert_eq!(error.fault_side(), FaultSide::Operator);
    /// ```
    #[must_use]
    pub fn fault_side(&self) -> FaultSide {
        match self {
            Self::MissingHeader { .. }
            | Self::DuplicateHeader { .. }
            | Self::MalformedSignature { .. }
            | Self::MalformedTimestamp => FaultSide::Sender,
            Self::SignatureMismatch
            | Self::TooLate { .. }
            | Self::TooEarly { .. }
            | Self::BodyTooLarge { .. }
            | Self::InvalidEnvelope { .. } => FaultSide::Either,
            Self::ClockUnusable => FaultSide::Operator,
        }
    }

    /// Returns the difference between the timestamp and the verifier's clock if the delivery was
    /// rejected for it.
    ///
    /// The direction is the variant: [`TooLate`](Self::TooLate) or [`TooEarly`](Self::TooEarly).
    ///
    /// # Example: how late?
    ///
    /// ```
    /// use std::time::Duration;
    /// use audience::webhooks::VerifyError;
    ///
    /// let error = VerifyError::TooLate { skew: Duration::from_secs(301) };
    ///
    /// assert_eq!(error.skew(), Some(Duration::from_secs(301)));
    /// assert_eq!(VerifyError::SignatureMismatch.skew(), None);
    /// ```
    #[must_use]
    pub fn skew(&self) -> Option<Duration> {
        match self {
            Self::TooLate { skew } | Self::TooEarly { skew } => Some(*skew),
            _ => None,
        }
    }
}

/// The side that may have caused a [`VerifyError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultSide {
    /// The sender: the service does not send such a request. Usually, there is nothing to fix
    /// here. If genuine deliveries are rejected, look for a proxy that changes headers.
    Sender,
    /// This machine is misconfigured. No delivery is accepted until that is fixed.
    Operator,
    /// Either side: a forgery or replay looks the same as a wrong secret, a body changed in transit
    /// or a wrong clock. If it keeps happening, call [`diagnose`](super::Verifier::diagnose).
    ///
    /// A body that is too long may be genuine, and then the
    /// [`body_limit`](super::VerifierBuilder::body_limit) is too low. A body that is not an event
    /// envelope is genuine: the service may have changed the envelope.
    Either,
}

/// The form that a malformed `webhook-signature` seems to have, instead of 64 lowercase hex digits.
///
/// Other webhook schemes use the same header names, so a delivery of another scheme, or code
/// written for one, is easily mistaken for this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SignatureHint {
    /// The header is empty.
    Empty,
    /// There is white space around or within the signature.
    Whitespace,
    /// `v1,…` or `v1a,…`: the Standard Webhooks scheme, which uses the same header names. Its
    /// libraries cannot verify this service's signatures.
    StandardWebhooks,
    /// `sha256=…`, or the name of another algorithm and an equals sign.
    AlgorithmPrefix,
    /// 64 hex digits, some of them uppercase.
    UpperCase,
    /// Base64 of 32 bytes.
    Base64,
    /// Hex digits, but not 64 of them.
    WrongLength,
    /// None of the other variants.
    Unrecognized,
}

impl fmt::Display for SignatureHint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "the value is empty",
            Self::Whitespace => "the value contains white space",
            Self::StandardWebhooks => "the value looks like the Standard Webhooks scheme",
            Self::AlgorithmPrefix => "the value starts with the name of an algorithm",
            Self::UpperCase => "the value has uppercase digits",
            Self::Base64 => "the value looks like base64",
            Self::WrongLength => "the value is hex of the wrong length",
            Self::Unrecognized => "the value is not hex",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use serde_json::Value;

    use super::*;

    /// Defines `name` and `NAMES`. A variant that is not listed does not compile.
    macro_rules! variants {
        ($($variant:ident),+ $(,)?) => {
            const NAMES: [&str; [$(stringify!($variant)),+].len()] = [$(stringify!($variant)),+];

            fn name(error: &VerifyError) -> &'static str {
                match error {
                    $(VerifyError::$variant { .. } => stringify!($variant),)+
                }
            }
        };
    }

    variants![
        MissingHeader,
        DuplicateHeader,
        MalformedSignature,
        MalformedTimestamp,
        BodyTooLarge,
        SignatureMismatch,
        TooLate,
        TooEarly,
        ClockUnusable,
        InvalidEnvelope,
    ];

    #[test]
    fn the_corpus_has_a_delivery_for_each_error_and_no_other() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/webhooks");
        let mut found = BTreeSet::new();
        for path in fs::read_dir(corpus)
            .unwrap()
            .map(|file| file.unwrap().path())
        {
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let file: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
            let cases = file["cases"].as_array().unwrap().iter();
            let errors = cases.filter_map(|case| case["expect"]["error"].as_str());
            found.extend(errors.map(str::to_owned));
        }

        assert_eq!(found, NAMES.map(str::to_owned).into());
        assert_eq!(name(&VerifyError::ClockUnusable), "ClockUnusable");
    }
}
