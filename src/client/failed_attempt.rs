//! One attempt that failed: the error for the caller, and the kind of failure for the retry decision.

use std::error::Error as StdError;
use std::io;
use std::time::{Duration, SystemTime};

use http::StatusCode;
use url::Url;

use super::request::Request;
use super::response::HttpResponse;
use crate::{ApiError, Error, Outcome};

/// An attempt that failed.
#[derive(Debug)]
pub(super) struct FailedAttempt {
    pub(super) error: Error,
    pub(super) failure: Failure,
}

/// How an attempt failed, as far as a retry is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// Nothing was sent.
    NotSent,
    /// The connection was closed before the head of a response was complete, as happens to an idle one.
    ClosedBeforeResponse,
    /// The request was sent, and no complete response arrived.
    NoResponse,
    /// The response has this status.
    Status(StatusCode),
    /// A retry would fail in the same way.
    Permanent,
}

/// How long one attempt may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttemptLimit {
    /// Its timeout.
    Timeout(Duration),
    /// The rest of the call, which is less than the timeout.
    Deadline(Duration),
}

impl AttemptLimit {
    pub(super) fn time(self) -> Duration {
        let (Self::Timeout(time) | Self::Deadline(time)) = self;
        time
    }

    /// Returns the message for an attempt that reached this limit.
    fn message(self) -> String {
        match self {
            Self::Timeout(time) => {
                format!("timed out after {time:?} waiting for the full response")
            }
            Self::Deadline(left) => {
                let left =
                    Duration::from_millis(u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
                format!("the deadline passed after waiting {left:?} for the full response")
            }
        }
    }
}

impl FailedAttempt {
    /// Creates the failure for a response with a status other than 2xx. `location` names the target of
    /// a redirect.
    pub(super) fn refused(
        response: HttpResponse,
        location: Option<String>,
        request: &Request,
    ) -> Self {
        let retry_after = response.retry_after(SystemTime::now());
        let outcome = Outcome::from_status(response.status, &request.method);
        let failure = Failure::Status(response.status);
        let api = ApiError::from_response(response.status, response.headers, response.body)
            .asking_to_wait(retry_after)
            .redirected_to(location)
            .about_target(request.has_target);
        Self {
            error: Error::from_response(api, outcome),
            failure,
        }
    }

    /// Creates the failure for an error while sending the request or waiting for the response.
    pub(super) fn while_sending(error: reqwest::Error, url: &Url, limit: AttemptLimit) -> Self {
        // A client that follows redirects may fail to connect to the redirect's target. The request
        // itself was sent by then.
        if error.is_connect() && error.url().is_none_or(|reached| reached == url) {
            return Self {
                error: Error::connect(error.without_url()),
                failure: Failure::NotSent,
            };
        }
        if error.is_builder() {
            return Self::permanent(
                Error::input("could not build the request").caused_by(error.without_url()),
            );
        }
        if error.is_redirect() {
            return Self::followed_redirect();
        }
        let failure = if closed_before_response(&error) {
            Failure::ClosedBeforeResponse
        } else {
            Failure::NoResponse
        };
        let message = if is_not_http(&error) {
            "the response is not valid HTTP; check the base URL"
        } else {
            "the connection broke before the response arrived"
        };
        Self::no_response(error, limit, failure, message)
    }

    /// Creates the failure for an error while reading the response body.
    ///
    /// reqwest reports every error inside a body as a decode error. Only a complete body that does not
    /// decompress is one; all others are faults of the connection.
    pub(super) fn while_reading(error: reqwest::Error, limit: AttemptLimit) -> Self {
        if !error.is_timeout() && is_decompression_error(&error) {
            let message = "could not decompress the response body";
            return Self::permanent(Error::decode(message).caused_by(error.without_url()));
        }
        let message = "the connection broke while reading the response";
        Self::no_response(error, limit, Failure::NoResponse, message)
    }

    /// Creates the failure for a response body over the limit.
    pub(super) fn body_too_long(limit: usize) -> Self {
        let message = format!("the response body exceeds the limit of {limit} bytes");
        Self::permanent(Error::decode(message))
    }

    /// Creates the failure for a redirect that was followed. Only a client passed to `http_client` does
    /// this. The response belongs to another request, so it is not used.
    pub(super) fn followed_redirect() -> Self {
        Self::permanent(Error::transport(
            "the HTTP client followed a redirect; build it with `redirect::Policy::none()`",
        ))
    }

    /// Creates the failure for a request that was sent but has no complete response.
    fn no_response(
        error: reqwest::Error,
        limit: AttemptLimit,
        failure: Failure,
        message: &'static str,
    ) -> Self {
        if error.is_timeout() {
            return Self {
                error: Error::timeout(limit.message()).caused_by(error.without_url()),
                failure: Failure::NoResponse,
            };
        }
        Self {
            error: Error::transport(message).caused_by(error.without_url()),
            failure,
        }
    }

    /// Creates a failure that a retry cannot fix.
    fn permanent(error: Error) -> Self {
        Self {
            error: error.not_retryable(),
            failure: Failure::Permanent,
        }
    }
}

/// Returns whether the connection was closed or reset before the head of a response was complete.
fn closed_before_response(error: &reqwest::Error) -> bool {
    causes(error).any(|cause| {
        let closed = cause
            .downcast_ref::<hyper::Error>()
            .is_some_and(hyper::Error::is_incomplete_message);
        let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        closed
            || matches!(
                kind,
                Some(io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
            )
    })
}

/// Returns whether bytes arrived that are not the head of an HTTP response.
fn is_not_http(error: &reqwest::Error) -> bool {
    causes(error)
        .filter_map(|cause| cause.downcast_ref::<hyper::Error>())
        .any(hyper::Error::is_parse)
}

/// Returns whether a complete body does not decompress. A malformed chunk is invalid data too, but then
/// an error of hyper is among the causes.
fn is_decompression_error(error: &reqwest::Error) -> bool {
    let framing = causes(error).any(<dyn StdError>::is::<hyper::Error>);
    !framing
        && causes(error).any(|cause| {
            let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
            matches!(
                kind,
                Some(io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput)
            )
        })
}

type Cause<'a> = &'a (dyn StdError + 'static);

/// Returns the error and all its sources.
fn causes<'a>(error: &'a reqwest::Error) -> impl Iterator<Item = Cause<'a>> {
    std::iter::successors(
        Some(error as Cause<'a>),
        |error: &Cause<'a>| -> Option<Cause<'a>> { (*error).source() },
    )
}
