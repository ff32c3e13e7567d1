//! The state of an examination while it runs.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

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

use super::report::{Effect, Expectation};
use super::sample_events::SampleEvent;
use crate::Timestamp;
use crate::mock::http::{HttpUrl, error_chain};
use crate::webhooks::{EventType, Signer};

/// After this many responses that did not arrive, the rest is not examined.
const PATIENCE: u32 = 3;
/// How long an examination goes on starting checks.
const TIME_LIMIT: Duration = Duration::from_secs(180);
/// How often the examination waits because of a 429 or 503 with `Retry-After`: for one delivery, and in all.
const RETRIES: u32 = 3;
const ALL_RETRIES: u32 = 12;
/// The longest of these waits.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// An examination while it runs.
pub(super) struct Run {
    pub(super) url: HttpUrl,
    pub(super) secret: String,
    pub(super) signer: Signer,
    /// The signer of a stranger.
    pub(super) other_signer: Signer,
    pub(super) timeout: Duration,
    /// A type that the receiver accepts.
    pub(super) basis: EventType,
    /// Whether the receiver accepts what is signed with another secret.
    pub(super) accepts_forgeries: Cell<bool>,
    /// The longest time that a genuine delivery took, of those sent one by one.
    pub(super) slowest: Cell<Duration>,
    /// The difference of the clocks, in seconds, if a response had a `Date`.
    pub(super) clock_skew: Cell<Option<i64>>,
    timeouts: Cell<u32>,
    retries: Cell<u32>,
    started: Instant,
    /// Makes the ids of this examination different from those of every other.
    id_prefix: String,
    last_id: Cell<u32>,
}

impl Run {
    pub(super) fn new(
        url: HttpUrl,
        secret: &str,
        signer: Signer,
        other_signer: Signer,
        timeout: Duration,
    ) -> Self {
        static EXAMINATIONS: AtomicU64 = AtomicU64::new(1);
        let number = EXAMINATIONS.fetch_add(1, Ordering::Relaxed);
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let nanoseconds = since.map_or(0, |since| since.as_nanos());
        Self {
            url,
            secret: secret.to_owned(),
            signer,
            other_signer,
            timeout,
            basis: EventType::Delivered,
            accepts_forgeries: Cell::new(false),
            slowest: Cell::default(),
            clock_skew: Cell::default(),
            timeouts: Cell::default(),
            retries: Cell::default(),
            started: Instant::now(),
            id_prefix: format!(
                "evt_examine_{nanoseconds:x}_{:x}_{number}",
                std::process::id()
            ),
            last_id: Cell::default(),
        }
    }

    /// Returns why the rest cannot be examined, if so.
    pub(super) fn stop_reason(&self) -> Option<String> {
        if self.timeouts.get() >= PATIENCE {
            return Some(format!(
                "not examined, because {PATIENCE} responses did not arrive in time"
            ));
        }
        let is_over = self.started.elapsed() > TIME_LIMIT;
        is_over.then(|| {
            format!("not examined, because the examination took longer than {TIME_LIMIT:?}")
        })
    }

    /// Returns a new event id.
    pub(super) fn id(&self) -> String {
        let number = self.last_id.get() + 1;
        self.last_id.set(number);
        format!("{}_{number}", self.id_prefix)
    }

    /// Returns a new event of a type that the receiver accepts.
    pub(super) fn event(&self) -> SampleEvent {
        self.event_of(self.basis.clone())
    }

    pub(super) fn event_of(&self, event_type: EventType) -> SampleEvent {
        SampleEvent::new(self.id(), event_type, now())
    }

    /// Signs an event as the service does, now.
    pub(super) fn signed(&self, event: &SampleEvent) -> HeaderMap {
        self.signer
            .sign(&event.event_type, SystemTime::now(), &event.body)
    }

    /// Delivers an event as the service does.
    pub(super) async fn deliver(&self, event: &SampleEvent) -> Outcome {
        let request = || Outgoing::post(self.signed(event), event.body.clone());
        let outcome = self.post_patiently(request).await;
        if let Outcome::Response(response) = &outcome {
            self.slowest.set(self.slowest.get().max(response.elapsed));
        }
        outcome
    }

    /// Delivers an event whose body arrives in pieces.
    pub(super) async fn deliver_slowly(&self, event: &SampleEvent, pace: Pace) -> Outcome {
        self.post_patiently(|| Outgoing {
            pace,
            ..Outgoing::post(self.signed(event), event.body.clone())
        })
        .await
    }

    /// Posts a request that has to be accepted.
    ///
    /// A receiver that asks for patience, with a 429 or 503 and `Retry-After`, gets another.
    pub(super) async fn post_patiently(&self, request: impl Fn() -> Outgoing) -> Outcome {
        let mut retries = 0;
        loop {
            let outcome = self.post(request()).await;
            match outcome.asked_delay() {
                Some(wait) if retries < RETRIES && self.retries.get() < ALL_RETRIES => {
                    retries += 1;
                    self.retries.set(self.retries.get() + 1);
                    tokio::time::sleep(wait.min(LONGEST_WAIT)).await;
                }
                _ => return outcome,
            }
        }
    }

    /// Posts a request with any headers and body.
    pub(super) async fn post(&self, request: Outgoing) -> Outcome {
        let before = SystemTime::now();
        let outcome = send(&self.url, request, self.timeout).await;
        match &outcome {
            Outcome::Response(response) => self.note_date(response.date, before),
            Outcome::TimedOut => self.timeouts.set(self.timeouts.get() + 1),
            Outcome::NotConnected(..) | Outcome::Broken(_) => {}
        }
        outcome
    }

    /// Keeps the smallest difference of the clocks: a delay on the way can only add to it.
    fn note_date(&self, date: Option<u64>, before: SystemTime) {
        let Some(date) = date else {
            return;
        };
        let skew = clock_skew(date, before, SystemTime::now());
        let is_smaller = |known: i64| skew.unsigned_abs() < known.unsigned_abs();
        if self.clock_skew.get().is_none_or(is_smaller) {
            self.clock_skew.set(Some(skew));
        }
    }
}

impl SampleEvent {
    /// Returns what the probe has to show of this event.
    pub(super) fn expect(&self, effect: Effect) -> Expectation {
        Expectation {
            event_id: self.id.clone(),
            event_type: self.event_type.as_str().to_owned(),
            effect,
        }
    }
}

pub(super) fn now() -> i64 {
    Timestamp::now().as_unix()
}

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
    method: Method,
    headers: HeaderMap,
    body: Bytes,
    pace: Pace,
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
pub(super) async fn send(url: &HttpUrl, request: Outgoing, timeout: Duration) -> Outcome {
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

async fn exchange(url: &HttpUrl, stream: TcpStream, request: Outgoing) -> Result<Received, String> {
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
        date: header(DATE).and_then(parse_date),
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

fn http_request(url: &HttpUrl, outgoing: Outgoing) -> Result<Request<PacedBody>, http::Error> {
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

/// Reads `Sun, 06 Nov 1994 08:49:37 GMT` as Unix seconds. Returns `None` if the text is no HTTP date.
fn parse_date(text: &str) -> Option<u64> {
    let moment = httpdate::parse_http_date(text).ok()?;
    let since = moment.duration_since(UNIX_EPOCH).ok()?;
    Some(since.as_secs())
}

/// Returns how far the clock of a receiver is from this machine's, in seconds, given a `Date` that it sent between two
/// times. Zero if the difference can be rounding: a `Date` has whole seconds, and servers renew it once a second.
fn clock_skew(date: u64, before: SystemTime, after: SystemTime) -> i64 {
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
    use std::time::Duration;

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
