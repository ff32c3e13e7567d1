use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;

use crate::webhooks::delivery_headers::DeliveryHeaders;
use crate::webhooks::diagnose::{Diagnosis, explain};
use crate::webhooks::error::VerifyError;
use crate::webhooks::signature::Tag;
use crate::webhooks::trace::{self, Severity};
use crate::webhooks::verifier::Verifier;

/// Why a delivery did not reach the handler.
///
/// # The response
///
/// As a response it is a status with an empty body, so that the sender of a forged delivery learns
/// nothing else. The text is for logs; it contains nothing of the body.
///
/// # The refused delivery
///
/// A rejection is cheap to clone. While it exists, it keeps the body of a delivery that was refused after it
/// was read, for [`diagnose`](Self::diagnose).
///
/// # Example: log a wrong clock, and why genuine deliveries are refused
///
/// ```
/// use audience::webhooks::{Rejection, VerifyError};
///
/// fn log(rejection: &Rejection) {
///     if let Rejection::Verify { error: VerifyError::TooEarly { skew }, .. } = rejection {
///         eprintln!("our clock or the sender's is {} seconds off", skew.as_secs());
///     } else if let Some(diagnosis) = rejection.diagnose([("main", "6Jm0nFq2pXvZk4Tt")]) {
///         eprintln!("{rejection}; {diagnosis}");
///     }
/// }
/// # log(&Rejection::from(VerifyError::ClockUnusable));
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// The verifier refused the delivery.
    #[error("{error}")]
    #[non_exhaustive]
    Verify {
        /// Why it was refused.
        error: VerifyError,
        /// The refused delivery; see [`diagnose`](Self::diagnose).
        delivery: RefusedDelivery,
    },

    /// The body could not be read completely: the connection was closed, or the data was not valid
    /// HTTP. The status is 400, if the sender is still there to receive it.
    #[error("could not read the whole body of the delivery")]
    Body(#[source] Arc<dyn Error + Send + Sync>),

    /// The body did not arrive in time
    /// ([`body_timeout`](crate::webhooks::VerifierBuilder::body_timeout)). The status is 408.
    #[error("the body of the delivery did not arrive within {} ms", timeout.as_millis())]
    BodyTimeout {
        /// The time limit.
        timeout: Duration,
    },

    /// The unverified bodies of all requests together need more memory than allowed
    /// ([`body_memory`](crate::webhooks::VerifierBuilder::body_memory)). The status is 503: the service
    /// retries.
    #[error("the unverified bodies of all requests together need more than {limit} bytes")]
    BodyMemory {
        /// The limit for all bodies, in bytes.
        limit: usize,
    },

    /// The request had a body, but a middleware or another extractor consumed it before. Nothing can
    /// be verified without it. The status is 500.
    #[error(
        "the body of the request was consumed before it could be verified; \
         look for a middleware or an extractor that reads it"
    )]
    BodyConsumed,

    /// The application data contains no [`Verifier`], so nothing can be verified. This happens under
    /// actix-web only. The status is 500.
    #[error("the application data contains no webhook verifier; add one with `app_data`")]
    NoVerifier,
}

impl Rejection {
    /// Returns the status to respond with.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Verify { error, .. } => error.status(),
            Self::Body(_) => StatusCode::BAD_REQUEST,
            Self::BodyTimeout { .. } => StatusCode::REQUEST_TIMEOUT,
            Self::BodyMemory { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self::BodyConsumed | Self::NoVerifier => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Returns the verifier's error if the verifier refused the delivery.
    #[must_use]
    pub fn verify_error(&self) -> Option<&VerifyError> {
        match self {
            Self::Verify { error, .. } => Some(error),
            _ => None,
        }
    }

    /// Reports the rejection to `tracing`.
    pub(in crate::webhooks) fn trace(&self) {
        let (severity, cause) = match self {
            Self::Verify { error, .. } => return trace::refused(error),
            Self::Body(_) => (Severity::Debug, "body"),
            Self::BodyTimeout { .. } => (Severity::Debug, "body_timeout"),
            Self::BodyMemory { .. } => (Severity::Warn, "body_memory"),
            Self::BodyConsumed => (Severity::Error, "body_consumed"),
            Self::NoVerifier => (Severity::Error, "no_verifier"),
        };
        trace::unread(severity, cause, self.status(), self);
    }

    /// Returns the likely reason why the verifier refused the delivery, for an operator's log. Returns
    /// `None` if the request did not get as far as the verifier.
    ///
    /// It does the same as [`Verifier::diagnose`] with the headers and the body of the refused
    /// delivery. It prints nothing. Strangers can cause refusals, so call it while you search for a
    /// fault, and not for every refusal. For a body of many kilobytes, call it where blocking is
    /// allowed.
    #[must_use]
    pub fn diagnose<N, S>(&self, secrets: impl IntoIterator<Item = (N, S)>) -> Option<Diagnosis>
    where
        N: Into<String>,
        S: AsRef<[u8]>,
    {
        match self {
            Self::Verify { error, delivery } => Some(delivery.diagnose(error, secrets)),
            _ => None,
        }
    }
}

/// A rejection without a delivery, for a test of your own handler.
impl From<VerifyError> for Rejection {
    fn from(error: VerifyError) -> Self {
        Self::Verify {
            error,
            delivery: RefusedDelivery(None),
        }
    }
}

/// The delivery that a [`Rejection`] is about. It is never printed.
#[derive(Clone)]
pub struct RefusedDelivery(Option<Arc<Refused>>);

struct Refused {
    verifier: Verifier,
    tag: Tag,
    timestamp: u64,
    timestamp_text: Box<[u8]>,
    body: Bytes,
}

impl RefusedDelivery {
    pub(super) fn new(
        verifier: &Verifier,
        tag: Tag,
        timestamp: u64,
        timestamp_text: &[u8],
        body: Bytes,
    ) -> Self {
        Self(Some(Arc::new(Refused {
            verifier: verifier.clone(),
            tag,
            timestamp,
            timestamp_text: timestamp_text.into(),
            body,
        })))
    }

    fn diagnose<N, S>(
        &self,
        error: &VerifyError,
        secrets: impl IntoIterator<Item = (N, S)>,
    ) -> Diagnosis
    where
        N: Into<String>,
        S: AsRef<[u8]>,
    {
        let Some(refused) = &self.0 else {
            return explain(error, None, secrets);
        };
        let headers = DeliveryHeaders {
            tag: refused.tag,
            timestamp_text: &refused.timestamp_text,
            timestamp: refused.timestamp,
            all: None,
        };
        let delivery = (&refused.verifier, &headers, &refused.body[..]);
        explain(error, Some(delivery), secrets)
    }
}

impl fmt::Debug for RefusedDelivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body_length = self.0.as_ref().map(|refused| refused.body.len());
        f.debug_struct("RefusedDelivery")
            .field("body_length", &body_length)
            .finish_non_exhaustive()
    }
}
