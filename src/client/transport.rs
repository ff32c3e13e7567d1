//! Sends a request over HTTP and reads the response. Only this file and the builder name reqwest.

use std::error::Error as StdError;
use std::time::{Duration, SystemTime};
use std::{fmt, io};

use bytes::{Bytes, BytesMut};
use http::header::{
    ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION, USER_AGENT,
};
use http::{HeaderMap, Method, StatusCode};
use url::Url;

use super::builder::{LOCALHOST, LOOPBACK, is_loopback};
use super::request::Request;
use super::response::HttpResponse;
use crate::{ApiError, Error, Outcome};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Shorter than the idle timeout of most servers, so the client closes an idle connection first.
const IDLE_TIMEOUT: Duration = Duration::from_secs(50);
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The length of the longest URL that the crate `http` accepts, in bytes.
const LONGEST_URL: usize = 65_534;

/// An HTTP client with the base URL and the headers of every request.
pub(super) struct Transport {
    http: reqwest::Client,
    base: Url,
    headers: HeaderMap,
    body_limit: usize,
}

/// The settings of a [`Transport`].
pub(super) struct TransportSettings {
    pub(super) base: Url,
    pub(super) auth: (HeaderName, HeaderValue),
    pub(super) user_agent: HeaderValue,
    pub(super) body_limit: usize,
    pub(super) http_client: Option<reqwest::Client>,
}

impl Transport {
    /// Creates a transport.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Config` if the HTTP client cannot be set up.
    pub(super) fn new(settings: TransportSettings) -> Result<Self, Error> {
        let TransportSettings {
            base,
            auth: (name, value),
            user_agent,
            body_limit,
            http_client,
        } = settings;
        let http = http_client.map_or_else(|| http_client_for(&base), Ok)?;
        let headers =
            HeaderMap::from_iter([(ACCEPT, JSON), (USER_AGENT, user_agent), (name, value)]);
        Ok(Self {
            http,
            base,
            headers,
            body_limit,
        })
    }

    /// Returns the base URL.
    pub(super) fn base(&self) -> &Url {
        &self.base
    }

    /// Returns how an error names the target of a redirect; `None` if the response is not a redirect to a host.
    ///
    /// The service chooses the `Location`, so its host may repeat the key or an address, which must not be printed.
    /// Only the host of the base URL is named. A relative location is resolved against the base URL.
    pub(super) fn location(&self, response: &HttpResponse) -> Option<String> {
        if !response.status.is_redirection() {
            return None;
        }
        let location = response.headers.get(LOCATION)?.to_str().ok()?;
        let url = self.base.join(location).ok()?;
        let host = url.host_str()?;
        Some(if Some(host) == self.base.host_str() {
            host.to_owned()
        } else if matches!(url.scheme(), "http" | "https") {
            format!("another host over {}", url.scheme())
        } else {
            "another host".to_owned()
        })
    }

    /// Sends a request once and reads the complete response, with any status.
    pub(super) async fn send(
        &self,
        request: &Request,
        url: &Url,
        limit: AttemptLimit,
    ) -> Result<HttpResponse, FailedAttempt> {
        let mut response = self
            .http
            .execute(self.http_request(request, url, limit))
            .await
            .map_err(|error| FailedAttempt::while_sending(error, url, limit))?;
        if response.url() != url {
            return Err(FailedAttempt::followed_redirect());
        }
        let (status, headers) = (response.status(), std::mem::take(response.headers_mut()));
        let body = match self.read_body(response, limit).await {
            // The body does not decompress or is too long. The status still counts.
            Err(failed) if !status.is_success() && failed.failure == Failure::Permanent => {
                Bytes::new()
            }
            body => body?,
        };
        Ok(HttpResponse {
            status,
            headers,
            body,
        })
    }

    /// Returns the request as reqwest sends it. A builder would copy the headers one by one.
    fn http_request(&self, request: &Request, url: &Url, limit: AttemptLimit) -> reqwest::Request {
        let mut headers = self.headers.clone();
        for (name, value) in &request.headers {
            if !self.headers.contains_key(name) {
                headers.append(name, value.clone());
            }
        }
        let mut http = reqwest::Request::new(request.method.clone(), url.clone());
        if let Some(body) = &request.body {
            headers.insert(CONTENT_TYPE, JSON);
            *http.body_mut() = Some(body.clone().into());
        } else if matches!(request.method, Method::POST | Method::PUT | Method::PATCH) {
            // Some servers respond 411 if these methods have no length, even without a body.
            headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        *http.headers_mut() = headers;
        *http.timeout_mut() = Some(limit.time());
        http
    }

    /// Returns the full URL of a request.
    ///
    /// # Errors
    ///
    /// If the URL is too long, `ErrorKind::Pagination` if the service's cursor made it so, and
    /// `ErrorKind::Input` otherwise.
    pub(super) fn url(&self, request: &Request) -> Result<Url, Error> {
        let mut url = self.base.clone();
        url.set_path(&format!(
            "{}{}",
            self.base.path().trim_end_matches('/'),
            request.path
        ));
        url.set_query(Some(request.query.as_str()).filter(|query| !query.is_empty()));
        let length = url.as_str().len();
        if length <= LONGEST_URL {
            return Ok(url);
        }
        let message =
            format!("the URL would have {length} bytes; at most {LONGEST_URL} can be sent");
        Err(if request.has_service_cursor {
            Error::cursor_too_long(&message)
        } else {
            Error::input(message)
        })
    }

    /// Reads a body up to the limit. Memory is not reserved for a `Content-Length`, which may be wrong.
    async fn read_body(
        &self,
        mut response: reqwest::Response,
        limit: AttemptLimit,
    ) -> Result<Bytes, FailedAttempt> {
        let mut next = async || {
            response
                .chunk()
                .await
                .map_err(|error| FailedAttempt::while_reading(error, limit))
        };
        let first = next().await?.unwrap_or_default();
        self.check_limit(first.len())?;
        let Some(second) = next().await? else {
            return Ok(first);
        };
        let mut body = BytesMut::from(&first[..]);
        let mut chunk = Some(second);
        while let Some(more) = chunk {
            self.check_limit(body.len() + more.len())?;
            body.extend_from_slice(&more);
            chunk = next().await?;
        }
        Ok(body.freeze())
    }

    fn check_limit(&self, length: usize) -> Result<(), FailedAttempt> {
        if length <= self.body_limit {
            Ok(())
        } else {
            Err(FailedAttempt::body_too_long(self.body_limit))
        }
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport")
            .field("base", &self.base.as_str())
            .field("body_limit", &self.body_limit)
            .finish_non_exhaustive()
    }
}

/// Creates the HTTP client that is used unless the builder was given one.
fn http_client_for(base: &Url) -> Result<reqwest::Client, Error> {
    let mut builder = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_idle_timeout(IDLE_TIMEOUT)
        .resolve_to_addrs(LOCALHOST, &LOOPBACK)
        .referer(false);
    if is_loopback(base) {
        builder = builder.no_proxy();
    }
    #[cfg(feature = "rustls")]
    {
        builder = builder.tls_backend_rustls();
    }
    // Without https there is no certificate to verify, so the system's roots need not be read or exist.
    #[cfg(any(feature = "rustls", feature = "native-tls"))]
    if base.scheme() == "http" {
        builder = builder.tls_certs_only([]);
    }
    builder.build().map_err(|error| {
        Error::config("could not set up the HTTP client").caused_by(error.without_url())
    })
}

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
    fn while_sending(error: reqwest::Error, url: &Url, limit: AttemptLimit) -> Self {
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
    fn while_reading(error: reqwest::Error, limit: AttemptLimit) -> Self {
        if !error.is_timeout() && is_decompression_error(&error) {
            let message = "could not decompress the response body";
            return Self::permanent(Error::decode(message).caused_by(error.without_url()));
        }
        let message = "the connection broke while reading the response";
        Self::no_response(error, limit, Failure::NoResponse, message)
    }

    /// Creates the failure for a response body over the limit.
    fn body_too_long(limit: usize) -> Self {
        let message = format!("the response body exceeds the limit of {limit} bytes");
        Self::permanent(Error::decode(message))
    }

    /// Creates the failure for a redirect that was followed. Only a client passed to `http_client` does
    /// this. The response belongs to another request, so it is not used.
    fn followed_redirect() -> Self {
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
