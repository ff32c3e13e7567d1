//! One request to the receiver, over a connection of its own, and what came of it.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, DATE, HOST, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, response};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep};

use super::receiver_clock;
use crate::mock::delivery::endpoint_url::EndpointUrl;
use crate::mock::delivery::post::error_chain;

/// How much of a response is kept. The probe's is short, and of others only the status matters.
const KEPT: usize = 1024 * 1024;
/// How much of a response is read. A longer one is not complete.
const RESPONSE_LIMIT: usize = 16 * KEPT;
const AGENT: HeaderValue = HeaderValue::from_static(concat!(
    "audience-mock/",
    env!("CARGO_PKG_VERSION"),
    " (examine)"
));

/// What came of a request.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    Response(Received),
    /// No connection could be made.
    NotConnected(io::ErrorKind, String),
    TimedOut,
    /// The connection ended without a complete response, or the response was not HTTP.
    Broken(String),
}

/// A complete response.
#[derive(Clone, Debug)]
pub(super) struct Received {
    pub(super) status: u16,
    pub(super) elapsed: Duration,
    pub(super) retry_after: Option<Duration>,
    /// The receiver's clock by its `Date`, in Unix seconds.
    pub(super) date: Option<u64>,
    pub(super) body: Bytes,
}

impl Outcome {
    pub(super) fn status(&self) -> Option<u16> {
        match self {
            Self::Response(response) => Some(response.status),
            _ => None,
        }
    }

    pub(super) fn is_success(&self) -> bool {
        self.status()
            .is_some_and(|status| (200..300).contains(&status))
    }

    /// Returns how long to wait before the same request, if the receiver asks for patience.
    pub(super) fn asked_delay(&self) -> Option<Duration> {
        match self {
            Self::Response(response) if matches!(response.status, 429 | 503) => {
                response.retry_after
            }
            _ => None,
        }
    }
}

/// Writes what the receiver did, as the second part of a sentence whose first is the delivery.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Response(response) => write!(f, "{}", response.status),
            Self::NotConnected(_, reason) => write!(f, "no connection ({reason})"),
            Self::TimedOut => f.write_str("no response in time"),
            Self::Broken(reason) => write!(f, "no complete response ({reason})"),
        }
    }
}

/// How a body is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    AtOnce,
    /// In this many pieces, with a pause after each but the last.
    Pieces(usize, Duration),
}

/// A request to send.
pub(super) struct Outgoing {
    pub(super) method: Method,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) pace: Pace,
    /// Waits until this time after connecting, so that several requests are sent at once.
    pub(super) not_before: Option<Instant>,
}

impl Outgoing {
    pub(super) fn post(headers: HeaderMap, body: Bytes) -> Self {
        Self {
            method: Method::POST,
            headers,
            body,
            pace: Pace::AtOnce,
            not_before: None,
        }
    }

    pub(super) fn get() -> Self {
        Self {
            method: Method::GET,
            ..Self::post(HeaderMap::new(), Bytes::new())
        }
    }
}

/// Sends a request. The connection and the response each have `timeout`.
pub(super) async fn send(url: &EndpointUrl, request: Outgoing, timeout: Duration) -> Outcome {
    let connect = TcpStream::connect((url.host.as_str(), url.port));
    let stream = match tokio::time::timeout(timeout, connect).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Outcome::NotConnected(error.kind(), error.to_string()),
        Err(_) => return Outcome::NotConnected(io::ErrorKind::TimedOut, "timed out".into()),
    };
    if let Some(start) = request.not_before {
        tokio::time::sleep_until(start).await;
    }
    let paused = match request.pace {
        Pace::AtOnce => Duration::ZERO,
        Pace::Pieces(pieces, pause) => {
            pause.saturating_mul(u32::try_from(pieces).unwrap_or(u32::MAX))
        }
    };
    match tokio::time::timeout(
        timeout.saturating_add(paused),
        exchange(url, stream, request),
    )
    .await
    {
        Ok(Ok(response)) => Outcome::Response(response),
        Ok(Err(reason)) => Outcome::Broken(reason),
        Err(_) => Outcome::TimedOut,
    }
}

async fn exchange(
    url: &EndpointUrl,
    stream: TcpStream,
    request: Outgoing,
) -> Result<Received, String> {
    let text = |error: hyper::Error| error_chain(&error);
    // Without it, the pieces of a slow body would be joined. It is not important enough to fail.
    let _ = stream.set_nodelay(true);
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(text)?;
    // A set aborts the connection's task when this future is dropped.
    let mut connection_task = JoinSet::new();
    connection_task.spawn(connection);

    let started = Instant::now();
    let request = http_request(url, request).map_err(|error| error.to_string())?;
    let response = sender.send_request(request).await.map_err(text)?;
    let (head, body) = response.into_parts();
    let body = read(body).await?;
    Ok(received(&head, body, started.elapsed()))
}

fn received(head: &response::Parts, body: Bytes, elapsed: Duration) -> Received {
    let header = |name| {
        head.headers
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
    };
    Received {
        status: head.status.as_u16(),
        elapsed,
        retry_after: header(RETRY_AFTER)
            .and_then(|text| text.parse().ok())
            .map(Duration::from_secs),
        date: header(DATE).and_then(receiver_clock::parse_date),
        body,
    }
}

async fn read(mut body: Incoming) -> Result<Bytes, String> {
    let mut bytes = Vec::new();
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| error_chain(&error))?;
        if let Some(data) = frame.data_ref() {
            length += data.len();
            if length > RESPONSE_LIMIT {
                return Err(format!(
                    "the response is longer than {RESPONSE_LIMIT} bytes"
                ));
            }
            let room = KEPT - bytes.len();
            bytes.extend_from_slice(&data[..data.len().min(room)]);
        }
    }
    Ok(bytes.into())
}

fn http_request(url: &EndpointUrl, outgoing: Outgoing) -> Result<Request<PacedBody>, http::Error> {
    let mut request = Request::builder()
        .method(outgoing.method.clone())
        .uri(&url.path_and_query)
        .header(HOST, &url.authority)
        .header(USER_AGENT, AGENT)
        .body(PacedBody::new(outgoing.body.clone(), outgoing.pace))?;
    if outgoing.method == Method::POST {
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CONTENT_LENGTH, outgoing.body.len().into());
    }
    request.headers_mut().extend(outgoing.headers);
    Ok(request)
}

/// A body that is sent at its pace.
struct PacedBody {
    rest: Bytes,
    piece: usize,
    pause: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl PacedBody {
    fn new(body: Bytes, pace: Pace) -> Self {
        let (pieces, pause) = match pace {
            Pace::AtOnce => (1, Duration::ZERO),
            Pace::Pieces(pieces, pause) => (pieces.max(1), pause),
        };
        Self {
            piece: body.len().div_ceil(pieces).max(1),
            rest: body,
            pause,
            sleep: None,
        }
    }
}

impl Body for PacedBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Some(sleep) = &mut self.sleep {
            ready!(sleep.as_mut().poll(context));
            self.sleep = None;
        }
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        let length = self.piece.min(self.rest.len());
        let piece = self.rest.split_to(length);
        if !self.rest.is_empty() {
            self.sleep = Some(Box::pin(tokio::time::sleep(self.pause)));
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retry_after_that_is_not_a_number_of_seconds_is_ignored() {
        let response = |value: &str| {
            let response = http::Response::builder().header(RETRY_AFTER, value);
            let (head, body) = response.body(Bytes::new()).unwrap().into_parts();
            received(&head, body, Duration::ZERO)
        };

        assert_eq!(response("2").retry_after, Some(Duration::from_secs(2)));
        assert_eq!(response("soon").retry_after, None);
    }
}
