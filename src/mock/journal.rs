//! The record of the requests that the server received.

use std::collections::VecDeque;
use std::fmt;

/// Requests kept. The oldest is dropped first.
const MAX_REQUESTS: usize = 1_000;

/// Bytes of bodies kept, so that large bodies do not use up the memory.
const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;

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
    /// The body as sent. Empty if it was longer than the limit of 16 MiB.
    pub body: Vec<u8>,
    /// The status of the response. `None` if a [`Fault`](super::Fault) closed the connection or sent something other
    /// than HTTP.
    pub status: Option<u16>,
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

/// The newest requests, in the order they were handled.
#[derive(Debug, Default)]
pub(super) struct Journal {
    entries: VecDeque<RecordedRequest>,
    body_bytes: usize,
}

impl Journal {
    /// Adds a request. Drops the oldest if there are too many requests or bytes.
    pub(super) fn push(&mut self, mut request: RecordedRequest) {
        // The entry would keep the spare capacity.
        request.body.shrink_to_fit();
        self.body_bytes += request.body.len();
        self.entries.push_back(request);

        while self.entries.len() > MAX_REQUESTS
            || (self.entries.len() > 1 && self.body_bytes > MAX_BODY_BYTES)
        {
            let Some(oldest) = self.entries.pop_front() else {
                break;
            };
            self.body_bytes -= oldest.body.len();
        }
    }

    pub(super) fn entries(&self) -> Vec<RecordedRequest> {
        self.entries.iter().cloned().collect()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(path: &str, body: Vec<u8>) -> RecordedRequest {
        RecordedRequest {
            method: "GET".into(),
            path: path.into(),
            query: None,
            headers: vec![
                ("authorization".into(), "Bearer k-12345".into()),
                ("x-api-key".into(), "k-12345".into()),
                ("accept".into(), "*/*".into()),
            ],
            body,
            status: Some(200),
        }
    }

    #[test]
    fn the_oldest_request_is_dropped_first() {
        let mut journal = Journal::default();

        for number in 0..MAX_REQUESTS + 5 {
            journal.push(request(&format!("/{number}"), Vec::new()));
        }

        let entries = journal.entries();
        assert_eq!(entries.len(), MAX_REQUESTS);
        assert_eq!(entries[0].path, "/5");
    }

    #[test]
    fn bodies_are_limited_and_the_newest_request_is_always_kept() {
        let mut journal = Journal::default();

        journal.push(request("/1", vec![0; MAX_BODY_BYTES]));
        journal.push(request("/2", vec![0; MAX_BODY_BYTES + 1]));

        let entries = journal.entries();
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0].path, "/2");
    }

    #[test]
    fn debug_output_does_not_contain_the_key() {
        let printed = format!("{:?}", request("/contacts", Vec::new()));

        assert!(!printed.contains("k-12345"), "{printed}");
        assert!(printed.contains("*/*"), "{printed}");
    }

    #[test]
    fn a_header_is_found_in_any_case() {
        assert_eq!(
            request("/", Vec::new()).header("X-Api-Key"),
            Some("k-12345")
        );
    }
}
