//! The record of the requests that the server received, and who observes them.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};

use super::Disconnect;
use super::http::has_body;
use crate::Timestamp;

/// A request that the server received, and the status of its response.
///
/// [`MockServer::requests`](super::MockServer::requests) returns them. Calls of the control plane (`/_mock/…`) are not
/// recorded. `Debug` hides the values of headers that may hold a key.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordedRequest {
    /// The method as sent, such as `POST`.
    pub method: String,
    /// The path as sent: percent-encoded, without the query.
    pub path: String,
    /// The query as sent: percent-encoded, without the question mark. `None` if there was no question mark.
    pub query: Option<String>,
    /// The headers in the order they were sent, with lowercase names. A repeated header has one entry for each value.
    pub headers: Vec<(String, String)>,
    /// The body as sent. Empty if the server refused to read it to its end: see the
    /// [limits](crate::mock#limits).
    pub body: Vec<u8>,
    /// The status of the response. `None` if a [`Fault`](super::Fault) closed the connection without a response or sent
    /// something other than HTTP.
    pub status: Option<u16>,
    /// The reason for which the request was refused: the message of the error response, or the effect of a
    /// [`Fault`](super::Fault). `None` if the request was handled as sent.
    pub reason: Option<String>,
    /// The headers of the response, with lowercase names, except those that HTTP itself needs, such as
    /// `content-length`. Empty if a [`Fault`](super::Fault) ended the connection.
    pub response_headers: Vec<(String, String)>,
    /// The first 64 KiB of the response body. Empty if the response has none, such as a 204 or the response to a HEAD
    /// request. If a [`Fault`](super::Fault) ended the connection in the middle of the body, only the part that was sent.
    pub response_body: Vec<u8>,
    /// When the request arrived, by the server's clock.
    pub at: Timestamp,
}

impl RecordedRequest {
    /// Returns the first value of a header. `name` can be in upper or lower case.
    ///
    /// # Example: the key of a request
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let server = MockServer::start().await;
    /// server.client().contacts().list().await?;
    ///
    /// let request = &server.requests()[0];
    /// assert!(request.header("Authorization").is_some_and(|value| value.starts_with("Bearer ")));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(other, _)| other.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// Returns the body as JSON, or `None` if it is not JSON.
    ///
    /// # Example: the members of a create request
    ///
    /// ```
    /// # use audience::{contacts::NewContact, mock::MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let server = MockServer::start().await;
    /// server.client().contacts().create(NewContact::new("ada@example.com").first_name("Ada")).await?;
    ///
    /// let body = server.requests()[0].json().expect("the client sends JSON");
    /// assert_eq!(body["first_name"], "Ada");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn json(&self) -> Option<serde_json::Value> {
        serde_json::from_slice(&self.body).ok()
    }
}

impl RecordedRequest {
    /// Records a request that arrived at `at`, and how it was handled.
    pub(super) fn new(
        request: Request<Bytes>,
        at: Timestamp,
        status: Option<u16>,
        reason: Option<String>,
    ) -> Self {
        let (head, body) = request.into_parts();
        Self {
            method: head.method.as_str().to_owned(),
            path: head.uri.path().to_owned(),
            query: head.uri.query().map(str::to_owned),
            headers: header_texts(&head.headers),
            body: body.into(),
            status,
            reason,
            response_headers: Vec::new(),
            response_body: Vec::new(),
            at,
        }
    }

    /// Records the response to the request, or the end of its connection.
    pub(super) fn with_response(mut self, response: Result<&Response<Bytes>, &Disconnect>) -> Self {
        let body: &[u8] = match response {
            Ok(response) => {
                self.response_headers = header_texts(response.headers());
                // The server leaves out a body that the response must not have.
                if has_body(&self.method, response.status()) {
                    &response.body()[..]
                } else {
                    &[]
                }
            }
            Err(disconnect) => disconnect.body(),
        };
        self.response_body = body[..body.len().min(MAX_RESPONSE_BODY)].to_vec();
        self
    }
}

/// Returns headers as text, in their order. A repeated header has one entry for each value.
pub(super) fn header_texts(headers: &HeaderMap) -> Vec<(String, String)> {
    let texts = headers.iter().map(|(name, value)| {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        (name.as_str().to_owned(), value)
    });
    texts.collect()
}

impl fmt::Debug for RecordedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<_> = self
            .headers
            .iter()
            .map(|(name, value)| {
                (
                    name,
                    if never_holds_a_key(name) {
                        value
                    } else {
                        "<hidden>"
                    },
                )
            })
            .collect();

        f.debug_struct("RecordedRequest")
            .field("method", &self.method)
            .field("path", &self.path)
            .field("query", &self.query)
            .field("headers", &headers)
            .field("body", &String::from_utf8_lossy(&self.body))
            .field("status", &self.status)
            .field("reason", &self.reason)
            .field("response_headers", &self.response_headers)
            .field(
                "response_body",
                &String::from_utf8_lossy(&self.response_body),
            )
            .field("at", &self.at)
            .finish()
    }
}

/// Returns whether a header can be printed. Any header not listed here could be the one that holds the key.
fn never_holds_a_key(header: &str) -> bool {
    matches!(
        header,
        "accept"
            | "accept-encoding"
            | "connection"
            | "content-length"
            | "content-type"
            | "host"
            | "traceparent"
            | "transfer-encoding"
            | "user-agent"
    )
}

/// A request that the server has handled, for [`MockServerBuilder::on_request`](super::MockServerBuilder::on_request).
///
/// It has no headers and no body, so that it can be printed: headers hold keys.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandledRequest {
    /// The method as sent, such as `POST`.
    pub method: String,
    /// The path as sent: percent-encoded, without the query.
    pub path: String,
    /// The query as sent: percent-encoded, without the question mark. `None` if there was no question mark.
    pub query: Option<String>,
    /// The status of the response. `None` if a [`Fault`](super::Fault) closed the connection without a response or sent
    /// something other than HTTP.
    pub status: Option<u16>,
    /// The reason for which the request was refused; see [`RecordedRequest::reason`].
    pub reason: Option<String>,
    /// The time from the headers of the request to its response, in real time. It includes the delay of a fault, but
    /// ends when the client closes the connection during that delay.
    pub duration: Duration,
}

/// The function that is called for each handled request, if there is one.
#[derive(Clone, Default)]
pub(super) struct RequestObserver(Option<Arc<Observe>>);

type Observe = dyn Fn(&HandledRequest) + Send + Sync;

/// A request that is being handled. `None` if no function observes it.
type Observed = Option<(HandledRequest, Instant)>;

impl RequestObserver {
    pub(super) fn new(observe: impl Fn(&HandledRequest) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(observe)))
    }

    /// Notes a request whose headers were received at `received`.
    pub(super) fn start(&self, request: &Request<Bytes>, received: Instant) -> Observed {
        self.0.as_ref()?;
        let handled = HandledRequest {
            method: request.method().as_str().to_owned(),
            path: request.uri().path().to_owned(),
            query: request.uri().query().map(str::to_owned),
            status: None,
            reason: None,
            duration: Duration::ZERO,
        };
        Some((handled, received))
    }

    /// Calls the function with a request that was noted, and with how it was handled.
    pub(super) fn finish(&self, observed: Observed, status: Option<u16>, reason: Option<String>) {
        if let (Some(observe), Some((handled, received))) = (&self.0, observed) {
            observe(&HandledRequest {
                status,
                reason,
                duration: received.elapsed(),
                ..handled
            });
        }
    }

    /// Returns a guard that [finishes](Self::finish) a request when it is dropped. A request whose client leaves during
    /// the delay of a fault is dropped, too.
    pub(super) fn finish_on_drop(
        &self,
        observed: Observed,
        status: Option<u16>,
        reason: Option<String>,
    ) -> FinishOnDrop<'_> {
        FinishOnDrop {
            observer: self,
            observed,
            status,
            reason,
        }
    }
}

/// A request that is handled, and whose response is still delayed.
pub(super) struct FinishOnDrop<'a> {
    observer: &'a RequestObserver,
    observed: Observed,
    status: Option<u16>,
    reason: Option<String>,
}

impl Drop for FinishOnDrop<'_> {
    fn drop(&mut self) {
        self.observer
            .finish(self.observed.take(), self.status, self.reason.take());
    }
}

impl fmt::Debug for RequestObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.0.is_some() { "set" } else { "none" };
        write!(f, "RequestObserver({state})")
    }
}

/// Requests kept. The oldest is dropped first.
const MAX_REQUESTS: usize = 1_000;

/// Bytes kept of the body of a response. A list of large contacts can be many times longer.
const MAX_RESPONSE_BODY: usize = 64 * 1024;

/// Bytes of the requests kept, so that large ones do not use up the memory.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// The newest requests, in the order they were handled.
#[derive(Debug, Default)]
pub(super) struct Journal {
    entries: VecDeque<RecordedRequest>,
    /// The sum of [`size`] over the entries.
    bytes: usize,
    /// The number of the newest request. Requests are counted from 1, and no number is used twice.
    last_number: u64,
}

impl Journal {
    /// Adds a request. Drops the oldest if there are too many requests or bytes.
    pub(super) fn push(&mut self, mut request: RecordedRequest) {
        // The entry would keep the spare capacity.
        request.body.shrink_to_fit();
        self.bytes += size(&request);
        self.entries.push_back(request);
        self.last_number += 1;

        while self.entries.len() > MAX_REQUESTS
            || (self.entries.len() > 1 && self.bytes > MAX_BYTES)
        {
            let Some(oldest) = self.entries.pop_front() else {
                break;
            };
            self.bytes -= size(&oldest);
        }
    }

    /// Returns the requests that are kept and their numbers, oldest first.
    pub(super) fn entries(
        &self,
    ) -> impl DoubleEndedIterator<Item = (u64, &RecordedRequest)> + ExactSizeIterator {
        let first = self.last_number - self.entries.len() as u64;
        let entries = self.entries.iter().enumerate();
        entries.map(move |(index, request)| (first + 1 + index as u64, request))
    }

    /// Returns up to `limit` requests that follow the request with the number `after`, and the number of the last of
    /// them. If no request follows, the number is `after`, or the newest number if `after` is greater.
    pub(super) fn page(&self, after: u64, limit: usize) -> (Vec<RecordedRequest>, u64) {
        let dropped = self.last_number - self.entries.len() as u64;
        let skip = usize::try_from(after.saturating_sub(dropped)).unwrap_or(usize::MAX);
        let page: Vec<_> = self
            .entries
            .iter()
            .skip(skip)
            .take(limit)
            .cloned()
            .collect();
        let next = if page.is_empty() {
            after.min(self.last_number)
        } else {
            after.max(dropped) + page.len() as u64
        };
        (page, next)
    }

    /// Forgets all requests. The numbers continue.
    pub(super) fn clear(&mut self) {
        *self = Self {
            last_number: self.last_number,
            ..Self::default()
        };
    }
}

/// Returns about how many bytes of memory a request takes up.
fn size(request: &RecordedRequest) -> usize {
    let headers: usize = request
        .headers
        .iter()
        .chain(&request.response_headers)
        .map(|(name, value)| size_of::<(String, String)>() + name.len() + value.len())
        .sum();
    size_of::<RecordedRequest>()
        + request.method.len()
        + request.path.len()
        + request.query.as_ref().map_or(0, String::len)
        + headers
        + request.body.len()
        + request.reason.as_ref().map_or(0, String::len)
        + request.response_body.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request_with_keys() -> RecordedRequest {
        RecordedRequest {
            headers: vec![
                ("authorization".into(), "Bearer k-12345".into()),
                ("x-api-key".into(), "k-12345".into()),
                ("accept".into(), "*/*".into()),
            ],
            ..request("/contacts", Vec::new())
        }
    }

    #[test]
    fn debug_output_does_not_contain_the_key() {
        let printed = format!("{:?}", request_with_keys());

        assert!(!printed.contains("k-12345"), "{printed}");
        assert!(printed.contains("*/*"), "{printed}");
    }

    #[test]
    fn a_header_is_found_in_any_case() {
        assert_eq!(request_with_keys().header("X-Api-Key"), Some("k-12345"));
    }

    fn request(path: &str, body: Vec<u8>) -> RecordedRequest {
        RecordedRequest {
            method: "GET".into(),
            path: path.into(),
            query: None,
            headers: vec![("accept".into(), "*/*".into())],
            body,
            status: Some(200),
            reason: None,
            response_headers: Vec::new(),
            response_body: Vec::new(),
            at: Timestamp::from_unix(0),
        }
    }

    #[test]
    fn the_oldest_request_is_dropped_first() {
        let mut journal = Journal::default();

        for number in 0..MAX_REQUESTS + 5 {
            journal.push(request(&format!("/{number}"), Vec::new()));
        }

        assert_eq!(journal.entries.len(), MAX_REQUESTS);
        assert_eq!(journal.entries[0].path, "/5");
    }

    #[test]
    fn the_bytes_are_limited_and_the_newest_request_is_always_kept() {
        let mut journal = Journal::default();

        journal.push(request("/1", vec![0; MAX_BYTES]));
        journal.push(request("/2", vec![0; MAX_BYTES + 1]));

        assert_eq!(journal.entries.len(), 1);
        assert_eq!(journal.entries[0].path, "/2");
        journal.push(request("/3", Vec::new()));
        assert_eq!(journal.bytes, size(&journal.entries[0]));
    }

    #[test]
    fn paths_queries_and_headers_count_as_bytes() {
        let text = "a".repeat(MAX_BYTES / 8);
        let with_path = request(&text, Vec::new());
        let with_query = RecordedRequest {
            query: Some(text.clone()),
            ..request("/", Vec::new())
        };
        let with_header = RecordedRequest {
            headers: vec![("x-long".into(), text.clone())],
            ..request("/", Vec::new())
        };
        let with_response = RecordedRequest {
            response_headers: vec![("x-long".into(), text)],
            ..request("/", Vec::new())
        };
        for long in [with_path, with_query, with_header, with_response] {
            let mut journal = Journal::default();

            for _ in 0..20 {
                journal.push(long.clone());
            }

            assert_eq!(journal.entries.len(), 7);
        }
    }

    #[test]
    fn only_the_beginning_of_a_long_response_is_kept() {
        let response = Response::new(Bytes::from(vec![b'a'; MAX_RESPONSE_BODY + 1]));
        let mut journal = Journal::default();

        for _ in 0..MAX_REQUESTS {
            journal.push(request("/contacts", Vec::new()).with_response(Ok(&response)));
        }

        assert_eq!(journal.entries[0].response_body.len(), MAX_RESPONSE_BODY);
        assert!(journal.bytes <= MAX_BYTES, "{}", journal.bytes);
    }

    #[test]
    fn pages_continue_after_the_last_request_of_the_page_before() {
        let mut journal = Journal::default();
        let paths = |page: Vec<RecordedRequest>| -> Vec<String> {
            page.into_iter().map(|request| request.path).collect()
        };
        for number in 1..=MAX_REQUESTS + 5 {
            journal.push(request(&format!("/{number}"), Vec::new()));
        }

        let (first, next) = journal.page(0, 2);
        assert_eq!((paths(first), next), (vec!["/6".into(), "/7".into()], 7));
        let (second, next) = journal.page(7, 1);
        assert_eq!((paths(second), next), (vec!["/8".into()], 8));
        let (last, next) = journal.page(1_004, 100);
        assert_eq!((paths(last), next), (vec!["/1005".into()], 1_005));
        assert_eq!(journal.page(1_005, 100), (Vec::new(), 1_005));
        assert_eq!(journal.page(u64::MAX, usize::MAX), (Vec::new(), 1_005));

        journal.clear();
        assert_eq!(journal.page(0, 100), (Vec::new(), 0));
        journal.push(request("/new", Vec::new()));
        let (new, next) = journal.page(1_005, 100);
        assert_eq!((paths(new), next), (vec!["/new".into()], 1_006));
    }
}
