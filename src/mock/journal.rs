//! What was asked of the server, the newest of it.

use std::collections::VecDeque;
use std::fmt;

/// Requests kept; the oldest goes first.
const REQUESTS: usize = 1_000;

/// Bytes of bodies kept, so that a test of large bodies cannot fill the machine.
const BODY_BYTES: usize = 64 * 1024 * 1024;

/// A request that the mock server received, and the status it was answered with.
///
/// Calls of the control plane (`/_mock/…`) are not among them. `Debug` leaves out the values of headers that may
/// carry a key.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordedRequest {
    /// As sent, such as `POST`.
    pub method: String,
    /// As sent: percent-encoded, without the query.
    pub path: String,
    /// As sent: percent-encoded, without the question mark. `None` where there was no question mark.
    pub query: Option<String>,
    /// Names in lower case, in the order they came, one entry for each occurrence.
    pub headers: Vec<(String, String)>,
    /// As sent; empty where it was longer than the server takes (16 MiB).
    pub body: Vec<u8>,
    /// The status that was answered, or `None` where a [`Fault`](super::Fault) closed the connection or sent something
    /// other than HTTP.
    pub status: Option<u16>,
}

impl RecordedRequest {
    /// The first value of a header; case does not count in `name`.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(have, _)| have.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// The body as JSON, or `None` where it is something else.
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
            .map(|(name, value)| (name, if is_plain(name) { value } else { "<hidden>" }))
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

/// Whether a header is none that could hold a key, which may stand in one of any name.
fn is_plain(header: &str) -> bool {
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

/// The newest requests, in the order they were answered.
#[derive(Debug, Default)]
pub(super) struct Journal {
    entries: VecDeque<RecordedRequest>,
    body_bytes: usize,
}

impl Journal {
    pub(super) fn push(&mut self, mut request: RecordedRequest) {
        // Spare capacity would be held for as long as the entry is.
        request.body.shrink_to_fit();
        self.body_bytes += request.body.len();
        self.entries.push_back(request);

        while self.entries.len() > REQUESTS
            || (self.entries.len() > 1 && self.body_bytes > BODY_BYTES)
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
    fn the_oldest_request_makes_room_for_the_newest() {
        let mut journal = Journal::default();

        for number in 0..REQUESTS + 5 {
            journal.push(request(&format!("/{number}"), Vec::new()));
        }

        let entries = journal.entries();
        assert_eq!(entries.len(), REQUESTS);
        assert_eq!(entries[0].path, "/5");
    }

    #[test]
    fn bodies_are_kept_up_to_a_limit_and_the_newest_always() {
        let mut journal = Journal::default();

        journal.push(request("/1", vec![0; BODY_BYTES]));
        journal.push(request("/2", vec![0; BODY_BYTES + 1]));

        let entries = journal.entries();
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0].path, "/2");
    }

    #[test]
    fn a_recorded_request_does_not_print_its_key() {
        let printed = format!("{:?}", request("/contacts", Vec::new()));

        assert!(!printed.contains("k-12345"), "{printed}");
        assert!(printed.contains("*/*"), "{printed}");
    }

    #[test]
    fn a_header_is_found_whatever_its_case() {
        assert_eq!(
            request("/", Vec::new()).header("X-Api-Key"),
            Some("k-12345")
        );
    }
}
