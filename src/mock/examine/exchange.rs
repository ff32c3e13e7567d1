//! A request to a receiver, and its outcome.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, DATE, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::Barrier;
use tokio::time::{Instant, Sleep};

use crate::causes::with_causes;
use crate::mock::http::{self as client, HttpUrl};

/// How many bytes of a response are kept. The probe's response is short, and of any other only the status matters.
const KEPT: usize = 1024 * 1024;
/// How many bytes of a response are read. A longer response does not count as complete.
const RESPONSE_LIMIT: usize = 16 * KEPT;
/// How long requests that are sent together wait for each other. A server may accept few connections at a time.
const HEAD_START: Duration = Duration::from_millis(300);
const AGENT: HeaderValue = HeaderValue::from_static(concat!(
    "audience-mock/",
    env!("CARGO_PKG_VERSION"),
    " (examine)"
));

/// The outcome of a request.
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
    /// Whether it has a `Retry-After`, with seconds or with a date.
    pub(super) has_retry_after: bool,
    /// The seconds of its `Retry-After`.
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

    /// Returns how long to wait before the same request, if the receiver asks for a wait.
    pub(super) fn asked_delay(&self) -> Option<Duration> {
        match self {
            Self::Response(response) if matches!(response.status, 429 | 503) => {
                response.retry_after
            }
            _ => None,
        }
    }
}

/// Writes the reaction of the receiver, for the end of a sentence about the delivery.
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
    method: Method,
    headers: HeaderMap,
    /// The content type of a POST.
    pub(super) content_type: Option<&'static str>,
    body: Bytes,
    pub(super) pace: Pace,
    /// Waits for the others after connecting, so that all requests are sent simultaneously.
    pub(super) together: Option<Arc<Barrier>>,
}

impl Outgoing {
    pub(super) fn post(headers: HeaderMap, body: Bytes) -> Self {
        Self {
            method: Method::POST,
            headers,
            content_type: Some("application/json"),
            body,
            pace: Pace::AtOnce,
            together: None,
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
pub(super) async fn send(url: &HttpUrl, request: Outgoing, timeout: Duration) -> Outcome {
    let stream = match tokio::time::timeout(timeout, url.connect()).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Outcome::NotConnected(error.kind(), error.to_string()),
        Err(_) => return Outcome::NotConnected(io::ErrorKind::TimedOut, "timed out".into()),
    };
    if let Some(all) = &request.together {
        // If some of them cannot connect, the others start without them.
        let _ = tokio::time::timeout(HEAD_START, all.wait()).await;
    }
    let paused = match request.pace {
        Pace::AtOnce => Duration::ZERO,
        Pace::Pieces(pieces, pause) => {
            pause.saturating_mul(u32::try_from(pieces).unwrap_or(u32::MAX))
        }
    };
    let request = match http_request(url, request) {
        Ok(request) => request,
        Err(error) => return Outcome::Broken(error.to_string()),
    };
    let started = Instant::now();
    let exchange = client::exchange(stream, request, KEPT, RESPONSE_LIMIT);
    match tokio::time::timeout(timeout.saturating_add(paused), exchange).await {
        Ok(Ok(response)) => Outcome::Response(received(response, started.elapsed())),
        Ok(Err(error)) => Outcome::Broken(with_causes(&*error)),
        Err(_) => Outcome::TimedOut,
    }
}

pub(super) fn received(response: Response<Bytes>, elapsed: Duration) -> Received {
    let (head, body) = response.into_parts();
    let header = |name| {
        head.headers
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
    };
    Received {
        status: head.status.as_u16(),
        elapsed,
        has_retry_after: head.headers.contains_key(RETRY_AFTER),
        retry_after: header(RETRY_AFTER)
            .and_then(|text| text.parse().ok())
            .map(Duration::from_secs),
        date: header(DATE).and_then(parse_date),
        body,
    }
}

fn http_request(url: &HttpUrl, outgoing: Outgoing) -> Result<Request<PacedBody>, http::Error> {
    let mut headers = HeaderMap::new();
    headers.insert(USER_AGENT, AGENT);
    if outgoing.method == Method::POST {
        headers.insert(CONTENT_LENGTH, outgoing.body.len().into());
        if let Some(content_type) = outgoing.content_type {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
    }
    headers.extend(outgoing.headers);
    let body = PacedBody::new(outgoing.body, outgoing.pace);
    url.request(outgoing.method, headers, body)
}

/// A body that is sent at its pace.
struct PacedBody {
    rest: Bytes,
    piece: usize,
    pause: Duration,
    /// When the last piece was due.
    due: Option<Instant>,
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
            due: None,
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
            // From one due time to the next, so that delays of a busy machine do not add up.
            let due = self.due.unwrap_or_else(Instant::now) + self.pause;
            self.due = Some(due);
            self.sleep = Some(Box::pin(tokio::time::sleep_until(due)));
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

/// Reads `Sun, 06 Nov 1994 08:49:37 GMT` as Unix seconds. Returns `None` if the text is no HTTP date.
fn parse_date(text: &str) -> Option<u64> {
    let moment = httpdate::parse_http_date(text).ok()?;
    let since = moment.duration_since(UNIX_EPOCH).ok()?;
    Some(since.as_secs())
}

/// Returns how far the clock of a receiver is from this machine's, in seconds, given a `Date` that it sent between two
/// times. Zero if the difference can be rounding: a `Date` has whole seconds, and servers renew it once a second.
pub(super) fn clock_skew(date: u64, before: SystemTime, after: SystemTime) -> i64 {
    let seconds = |time: SystemTime| {
        let since = time.duration_since(UNIX_EPOCH);
        since.map_or(0, |since| {
            i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
        })
    };
    let date = i64::try_from(date).unwrap_or(i64::MAX);
    let (earliest, latest) = (seconds(before), seconds(after));
    if date > latest {
        date - latest
    } else if date.saturating_add(2) < earliest {
        date.saturating_add(2) - earliest
    } else {
        0
    }
}

/// Writes a difference as the end of "The receiver's clock is …".
pub(super) fn describe_skew(skew: i64) -> String {
    let side = if skew < 0 { "behind" } else { "ahead of" };
    format!("{} s {side} this machine's", skew.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retry_after_that_is_not_a_number_of_seconds_is_ignored() {
        let response = |value: &str| {
            let response = Response::builder().header(RETRY_AFTER, value);
            received(response.body(Bytes::new()).unwrap(), Duration::ZERO)
        };

        assert_eq!(response("2").retry_after, Some(Duration::from_secs(2)));
        assert_eq!(response("soon").retry_after, None);
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn a_clock_differs_only_by_more_than_rounding_explains() {
        for (date, skew) in [
            (100, 0),
            (99, 0),
            (98, 0),
            (97, -1),
            (101, 0),
            (102, 1),
            (400, 299),
        ] {
            assert_eq!(clock_skew(date, at(100), at(101)), skew, "{date}");
        }
        assert_eq!(describe_skew(-1), "1 s behind this machine's");
        assert_eq!(describe_skew(299), "299 s ahead of this machine's");
        assert!(clock_skew(u64::MAX, at(0), at(1)) > 0);
        assert!(clock_skew(0, at(1_700_000_000), at(1_700_000_000)) < 0);
    }

    #[test]
    fn the_date_of_http_is_read_and_other_texts_are_not() {
        assert_eq!(
            parse_date("Sun, 06 Nov 1994 08:49:37 GMT"),
            Some(784_111_777)
        );

        for text in [
            "",
            "1994-11-06T08:49:37Z",
            "Sun, 06 Nov 1994 08:49:37 CET",
            "Sun, 06 Foo 1994 08:49:37 GMT",
            "Sun, 99 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 GMT GMT",
            "Sun, 06 Nov 1900 08:49:37 GMT",
        ] {
            assert_eq!(parse_date(text), None, "{text}");
        }
    }
}
