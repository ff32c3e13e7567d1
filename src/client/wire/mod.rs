//! A request and a response as plain data: what an endpoint decides, before anything is sent.

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Error;
use crate::client::Repeat;

mod decode;

/// Everything but the unreserved characters of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Which call this is: for messages and spans, which must not hold an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    pub(crate) name: &'static str,
    pub(crate) template: &'static str,
}

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) operation: Operation,
    pub(crate) method: Method,
    /// Encoded, relative to the base URL, with a slash in front.
    pub(crate) path: String,
    /// Encoded; empty where there is none.
    pub(crate) query: String,
    /// Beside those that every request has.
    pub(crate) headers: HeaderMap,
    /// JSON, or nothing at all.
    pub(crate) body: Option<Bytes>,
    pub(crate) repeat: Repeat,
}

impl Request {
    /// A request to the path made of these segments, each one of them data.
    ///
    /// The segments `""`, `"."` and `".."` are refused: the URL standard folds them away, encoded or
    /// not, so that they would reach another endpoint.
    pub(crate) fn new<S: AsRef<str>>(
        operation: Operation,
        method: Method,
        segments: impl IntoIterator<Item = S>,
        repeat: Repeat,
    ) -> Result<Self, Error> {
        let mut path = String::new();
        for segment in segments {
            let segment = segment.as_ref();
            if matches!(segment, "" | "." | "..") {
                let message = "an address or path segment that is empty, `.` or `..` would reach another endpoint";
                return Err(Error::input(message).at(operation.name));
            }
            path.push('/');
            path.extend(utf8_percent_encode(segment, RESERVED));
        }
        Ok(Self {
            operation,
            method,
            path,
            query: String::new(),
            headers: HeaderMap::new(),
            body: None,
            repeat,
        })
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
        let bytes = serde_json::to_vec(body).map_err(|error| {
            Error::input("the body cannot be written as JSON")
                .at(self.operation.name)
                .caused_by(error)
        })?;
        self.body = Some(bytes.into());
        Ok(self)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Response {
    /// The body as the shape that the interface document shows.
    pub(crate) fn json<T: DeserializeOwned>(&self, operation: Operation) -> Result<T, Error> {
        decode::json(&self.body, operation.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETRIEVE: Operation = Operation {
        name: "retrieve",
        template: "/contacts/{address}",
    };

    fn path_of(address: &str) -> Result<String, Error> {
        Request::new(RETRIEVE, Method::GET, ["contacts", address], Repeat::Always)
            .map(|request| request.path)
    }

    #[test]
    fn an_address_is_one_path_segment_whatever_it_holds() {
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
            assert_eq!(path_of(address).unwrap(), path);
        }
    }

    #[test]
    fn a_segment_that_would_reach_another_endpoint_is_refused() {
        for address in ["", ".", ".."] {
            let error = path_of(address).unwrap_err();

            assert_eq!(error.kind(), crate::ErrorKind::Input);
            assert_eq!(error.outcome(), crate::Outcome::NotSent);
        }
    }

    #[test]
    fn query_values_are_encoded_whole() {
        let request = Request::new(RETRIEVE, Method::GET, ["contacts"], Repeat::Always).unwrap();

        let request = request.query("query", "a b&c=d+é").query("limit", "5");

        assert_eq!(request.query, "query=a%20b%26c%3Dd%2B%C3%A9&limit=5");
    }
}
