//! The wire itself. Beside the builder, the only file that names reqwest.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION, USER_AGENT};
use url::Url;

use super::Failed;
use super::builder::is_loopback;
use super::retry::Failure;
use crate::Error;
use crate::client::wire::{Request, Response};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Shorter than what servers commonly keep an idle connection for, so that it is us who close it.
const IDLE_TIMEOUT: Duration = Duration::from_secs(50);
const JSON: HeaderValue = HeaderValue::from_static("application/json");

pub(super) struct Transport {
    http: reqwest::Client,
    base: Url,
    headers: HeaderMap,
    body_limit: usize,
}

pub(super) struct TransportSettings {
    pub(super) base: Url,
    pub(super) auth: (HeaderName, HeaderValue),
    pub(super) user_agent: HeaderValue,
    pub(super) body_limit: usize,
    pub(super) http_client: Option<reqwest::Client>,
}

impl Transport {
    pub(super) fn new(settings: TransportSettings) -> Result<Self, Error> {
        let TransportSettings {
            base,
            auth: (name, key),
            user_agent,
            body_limit,
            http_client,
        } = settings;
        let http = http_client.map_or_else(|| http_client_for(&base), Ok)?;
        let headers = HeaderMap::from_iter([(ACCEPT, JSON), (USER_AGENT, user_agent), (name, key)]);
        Ok(Self {
            http,
            base,
            headers,
            body_limit,
        })
    }

    pub(super) fn base(&self) -> &Url {
        &self.base
    }

    /// Sends one request and reads its whole answer, whatever the status.
    pub(super) async fn send(
        &self,
        request: &Request,
        limit: Duration,
    ) -> Result<Response, Failed> {
        let url = self.url(request);
        let mut sending = self
            .http
            .request(request.method.clone(), url.clone())
            .headers(request.headers.clone())
            .headers(self.headers.clone());
        if let Some(body) = &request.body {
            let json = HeaderMap::from_iter([(CONTENT_TYPE, JSON)]);
            sending = sending.headers(json).body(body.clone());
        }
        let mut answer = sending
            .timeout(limit)
            .send()
            .await
            .map_err(|error| failed_send(error, &url, limit))?;
        if answer.url() != &url {
            return Err(followed_redirect());
        }
        let (status, headers) = (answer.status(), std::mem::take(answer.headers_mut()));
        let body = match self.body(answer, limit).await {
            // It came whole, but it cannot be read: the status is the answer, its words are lost.
            Err(failed) if !status.is_success() && failed.failure == Failure::Settled => {
                Bytes::new()
            }
            body => body?,
        };
        Ok(Response {
            status,
            headers,
            body,
        })
    }

    fn url(&self, request: &Request) -> Url {
        let mut url = self.base.clone();
        url.set_path(&format!(
            "{}{}",
            self.base.path().trim_end_matches('/'),
            request.path
        ));
        url.set_query(Some(request.query.as_str()).filter(|query| !query.is_empty()));
        url
    }

    /// Reads up to the limit, and never sets memory aside for what a header merely announces.
    async fn body(&self, mut answer: reqwest::Response, limit: Duration) -> Result<Bytes, Failed> {
        let mut next = async || {
            answer
                .chunk()
                .await
                .map_err(|error| failed_read(error, limit))
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

    fn check_limit(&self, length: usize) -> Result<(), Failed> {
        if length <= self.body_limit {
            return Ok(());
        }
        let message = format!(
            "the answer's body is longer than the limit of {} bytes",
            self.body_limit
        );
        Err(Failed {
            error: Error::decode(message),
            failure: Failure::Settled,
        })
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

/// The host that a `Location` names, and nothing more of it. A relative one, `//host/path` too, is
/// read against the base URL.
pub(super) fn location_host(headers: &HeaderMap, base: &Url) -> Option<String> {
    let location = headers.get(LOCATION)?.to_str().ok()?;
    base.join(location).ok()?.host_str().map(str::to_owned)
}

fn http_client_for(base: &Url) -> Result<reqwest::Client, Error> {
    let mut builder = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_idle_timeout(IDLE_TIMEOUT)
        .referer(false);
    if is_loopback(base) {
        builder = builder.no_proxy();
    }
    #[cfg(feature = "rustls")]
    {
        builder = builder.tls_backend_rustls();
    }
    // Without https there is nothing to verify: the system's roots need not be read, nor be there.
    #[cfg(any(feature = "rustls", feature = "native-tls"))]
    if base.scheme() == "http" {
        builder = builder.tls_certs_only([]);
    }
    builder.build().map_err(|error| {
        Error::config("the HTTP client cannot be set up").caused_by(error.without_url())
    })
}

/// Only a client of the user's own does this. What it asked for there was not what was called for.
fn followed_redirect() -> Failed {
    let message = "the HTTP client that was set followed a redirect: build it with `redirect::Policy::none()`";
    Failed {
        error: Error::transport(message),
        failure: Failure::Settled,
    }
}

fn failed_send(error: reqwest::Error, url: &Url, limit: Duration) -> Failed {
    if error.is_connect() && error.url().is_none_or(|reached| reached == url) {
        return Failed {
            error: Error::connect(error.without_url()),
            failure: Failure::NotSent,
        };
    }
    if error.is_builder() {
        let error = Error::input("the request cannot be built").caused_by(error.without_url());
        return Failed {
            error,
            failure: Failure::Settled,
        };
    }
    let failure = if closed_without_a_word(&error) {
        Failure::Closed
    } else {
        Failure::Unanswered
    };
    unanswered(
        error,
        limit,
        failure,
        "the connection broke before an answer came",
    )
}

/// reqwest calls whatever happens inside a body a decode error. Only a body that came whole and does
/// not decompress is one; everything else is the connection's fault.
fn failed_read(error: reqwest::Error, limit: Duration) -> Failed {
    if !error.is_timeout() && does_not_decompress(&error) {
        let error =
            Error::decode("the answer's body does not decompress").caused_by(error.without_url());
        return Failed {
            error,
            failure: Failure::Settled,
        };
    }
    unanswered(
        error,
        limit,
        Failure::Unanswered,
        "the connection broke in the middle of the answer",
    )
}

fn unanswered(
    error: reqwest::Error,
    limit: Duration,
    failure: Failure,
    message: &'static str,
) -> Failed {
    if error.is_timeout() {
        let error = Error::timeout(format!("no whole answer within {limit:?}"))
            .caused_by(error.without_url());
        return Failed {
            error,
            failure: Failure::Unanswered,
        };
    }
    Failed {
        error: Error::transport(message).caused_by(error.without_url()),
        failure,
    }
}

fn closed_without_a_word(error: &reqwest::Error) -> bool {
    causes(error).any(|cause| {
        let reset = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        let closed = cause
            .downcast_ref::<hyper::Error>()
            .is_some_and(hyper::Error::is_incomplete_message);
        closed
            || matches!(
                reset,
                Some(io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
            )
    })
}

/// A malformed chunk is invalid data too, but then it is hyper that says so: below the decoder.
fn does_not_decompress(error: &reqwest::Error) -> bool {
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

fn causes<'a>(error: &'a reqwest::Error) -> impl Iterator<Item = Cause<'a>> {
    std::iter::successors(
        Some(error as Cause<'a>),
        |error: &Cause<'a>| -> Option<Cause<'a>> { (*error).source() },
    )
}
