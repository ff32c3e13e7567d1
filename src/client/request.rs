//! A request as plain data: what an endpoint decides before anything is sent.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;

use crate::Error;

/// The operation of a call, for messages and spans. Neither may contain an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    pub(crate) name: &'static str,
    pub(crate) template: &'static str,
}

/// A request to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    /// Encoded, relative to the base URL, with a leading slash.
    pub(crate) path: String,
    /// Encoded; empty if there are no parameters.
    pub(crate) query: String,
    /// Headers in addition to those of every request.
    pub(crate) headers: HeaderMap,
    /// JSON, if there is a body.
    pub(crate) body: Option<Bytes>,
    pub(crate) retry_safety: RetrySafety,
    /// Whether the request names a contact, topic or segment, so that a 404 may mean that one.
    pub(crate) has_target: bool,
    /// Whether the query contains a cursor that the service sent.
    pub(crate) has_service_cursor: bool,
}

/// After which failures a request may be retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetrySafety {
    /// After any failure that may pass: sending it twice has the same effect as sending it once.
    Safe,
    /// Only if it was certainly not applied.
    OnlyIfNotApplied,
    /// Never, unless the caller allows it.
    Never,
}

/// Every character except the unreserved ones of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

impl Request {
    /// Creates a request to the path with these segments. Each segment is percent-encoded.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Input` if a segment is `""`, `"."` or `".."`. The URL standard folds them away,
    /// encoded or not, so the request would reach another endpoint.
    pub(crate) fn new<S: AsRef<str>>(
        method: Method,
        segments: impl IntoIterator<Item = S>,
        retry_safety: RetrySafety,
    ) -> Result<Self, Error> {
        let mut path = String::new();
        for segment in segments {
            let segment = segment.as_ref();
            if matches!(segment, "" | "." | "..") {
                return Err(Error::input(
                    "an address or path segment is empty, `.` or `..`, which would reach another endpoint",
                ));
            }
            path.push('/');
            path.extend(utf8_percent_encode(segment, RESERVED));
        }
        Ok(Self {
            method,
            path,
            query: String::new(),
            headers: HeaderMap::new(),
            body: None,
            retry_safety,
            has_target: true,
            has_service_cursor: false,
        })
    }

    /// Says that the request names no contact, topic or segment. A 404 then most likely comes from
    /// somewhere other than the endpoint.
    pub(crate) fn without_target(mut self) -> Self {
        self.has_target = false;
        self
    }

    /// Says that the query contains a cursor that the service sent.
    pub(crate) fn with_service_cursor(mut self) -> Self {
        self.has_service_cursor = true;
        self
    }

    /// Adds a query parameter.
    pub(crate) fn query(mut self, name: &str, value: &str) -> Self {
        if !self.query.is_empty() {
            self.query.push('&');
        }
        self.query.extend(utf8_percent_encode(name, RESERVED));
        self.query.push('=');
        self.query.extend(utf8_percent_encode(value, RESERVED));
        self
    }

    /// Sets the body.
    pub(crate) fn json(mut self, body: &(impl Serialize + ?Sized)) -> Result<Self, Error> {
        let bytes = serde_json::to_vec(body)
            .map_err(|error| Error::input("could not write the body as JSON").caused_by(error))?;
        self.body = Some(bytes.into());
        Ok(self)
    }
}

/// Headers that frame the request or concern only the connection. If the caller set them, the server
/// could cut the body short, or read part of it as another request.
const HEADERS_OF_HTTP: [&str; 10] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Returns whether a caller must not set this header.
pub(crate) fn is_set_by_http(name: &HeaderName) -> bool {
    HEADERS_OF_HTTP.contains(&name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path_for(address: &str) -> Result<String, Error> {
        Request::new(Method::GET, ["contacts", address], RetrySafety::Safe)
            .map(|request| request.path)
    }

    #[test]
    fn any_address_is_encoded_as_one_path_segment() {
        for (address, path) in [
            ("ada@example.com", "/contacts/ada%40example.com"),
            ("a+b@x.io", "/contacts/a%2Bb%40x.io"),
            ("a/b?c#d%20@x.io", "/contacts/a%2Fb%3Fc%23d%2520%40x.io"),
            (
                "jürgen@exämple.de",
                "/contacts/j%C3%BCrgen%40ex%C3%A4mple.de",
            ),
            ("A-Z_a.z~0", "/contacts/A-Z_a.z~0"),
            ("...", "/contacts/..."),
        ] {
            assert_eq!(path_for(address).unwrap(), path);
        }
    }

    #[test]
    fn a_segment_that_would_reach_another_endpoint_is_refused() {
        for address in ["", ".", ".."] {
            let error = path_for(address).unwrap_err();

            assert_eq!(error.kind(), crate::ErrorKind::Input);
            assert_eq!(error.outcome(), crate::Outcome::NotSent);
        }
    }

    #[test]
    fn every_reserved_character_of_a_query_value_is_encoded() {
        let request = Request::new(Method::GET, ["contacts"], RetrySafety::Safe).unwrap();

        let request = request.query("query", "a b&c=d+é").query("limit", "5");

        assert_eq!(request.query, "query=a%20b%26c%3Dd%2B%C3%A9&limit=5");
    }
}
