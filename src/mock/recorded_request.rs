//! A request that the server received, for the journal and for an observer.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

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
    /// The reason that the request was refused: the message of the error response, or what a [`Fault`](super::Fault)
    /// did. `None` if the request was handled as sent.
    pub reason: Option<String>,
    /// When the request arrived, by the server's clock.
    pub at: Timestamp,
}

impl RecordedRequest {
    /// Returns the first value of a header. `name` can be in upper or lower case.
    ///
    /// # Example: how a key was presented
    ///
    /// ```
    /// # use audience::mock::{MockServer, RecordedRequest};
    /// fn has_bearer_token(request: &RecordedRequest) -> bool {
    ///     request.header("Authorization").is_some_and(|value| value.starts_with("Bearer "))
    /// }
    /// # async fn check(server: MockServer) { server.requests().iter().all(has_bearer_token); }
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
    /// # Example: the address that was created
    ///
    /// ```
    /// # use audience::mock::{MockServer, RecordedRequest};
    /// fn created_address(request: &RecordedRequest) -> Option<String> {
    ///     Some(request.json()?["email"].as_str()?.to_owned())
    /// }
    /// # async fn check(server: MockServer) { let _ = server.requests().iter().map(created_address); }
    /// ```
    #[must_use]
    pub fn json(&self) -> Option<serde_json::Value> {
        serde_json::from_slice(&self.body).ok()
    }
}

impl RecordedRequest {
    /// Returns a copy with an empty body.
    pub(super) fn without_body(&self) -> Self {
        Self {
            method: self.method.clone(),
            path: self.path.clone(),
            query: self.query.clone(),
            headers: self.headers.clone(),
            body: Vec::new(),
            status: self.status,
            reason: self.reason.clone(),
            at: self.at,
        }
    }
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
    /// The reason that the request was refused; see [`RecordedRequest::reason`].
    pub reason: Option<String>,
    /// The time from the headers of the request to its response, in real time. The delay of a fault is part of it.
    pub duration: Duration,
}

/// The function that is called for each handled request, if there is one.
#[derive(Clone, Default)]
pub(super) struct RequestObserver(Option<Arc<Observe>>);

type Observe = dyn Fn(&HandledRequest) + Send + Sync;

/// A request that is being handled. `None` if nobody observes it.
type Observed = Option<(HandledRequest, Instant)>;

impl RequestObserver {
    pub(super) fn new(observe: impl Fn(&HandledRequest) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(observe)))
    }

    /// Notes a request whose headers were received at `received`.
    pub(super) fn start(&self, request: &RecordedRequest, received: Instant) -> Observed {
        self.0.as_ref()?;
        let handled = HandledRequest {
            method: request.method.clone(),
            path: request.path.clone(),
            query: request.query.clone(),
            status: None,
            reason: None,
            duration: Duration::ZERO,
        };
        Some((handled, received))
    }

    /// Tells about a request that was noted, and how it was handled.
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
}

impl fmt::Debug for RequestObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.0.is_some() { "set" } else { "none" };
        write!(f, "RequestObserver({state})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> RecordedRequest {
        RecordedRequest {
            method: "GET".into(),
            path: "/contacts".into(),
            query: None,
            headers: vec![
                ("authorization".into(), "Bearer k-12345".into()),
                ("x-api-key".into(), "k-12345".into()),
                ("accept".into(), "*/*".into()),
            ],
            body: Vec::new(),
            status: Some(200),
            reason: None,
            at: Timestamp::from_unix(0),
        }
    }

    #[test]
    fn debug_output_does_not_contain_the_key() {
        let printed = format!("{:?}", request());

        assert!(!printed.contains("k-12345"), "{printed}");
        assert!(printed.contains("*/*"), "{printed}");
    }

    #[test]
    fn a_header_is_found_in_any_case() {
        assert_eq!(request().header("X-Api-Key"), Some("k-12345"));
    }
}
