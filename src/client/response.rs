//! A response as plain data.

use std::fmt::{self, Write as _};
use std::marker::PhantomData;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_path_to_error::{Path, Segment};

use super::request::Operation;
use crate::{Error, Outcome};

/// A complete response, with any status.
#[derive(Clone, Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl HttpResponse {
    /// Returns the wait that a `Retry-After` header asks for, in whole seconds or as a date. More seconds
    /// than a `u64` can hold are read as the largest `u64`.
    pub(super) fn retry_after(&self, now: SystemTime) -> Option<Duration> {
        let text = self.headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
        }
        let date = httpdate::parse_http_date(text).ok()?;
        Some(date.duration_since(now).unwrap_or_default())
    }
}

/// A 2xx response, with its operation and the number of attempts.
#[derive(Debug)]
pub(crate) struct Success {
    operation: Operation,
    response: HttpResponse,
    attempts: u32,
}

impl Success {
    pub(super) fn new(operation: Operation, response: HttpResponse, attempts: u32) -> Self {
        Self {
            operation,
            response,
            attempts,
        }
    }

    pub(super) fn operation(&self) -> Operation {
        self.operation
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.response.status
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.response.headers
    }

    pub(crate) fn body(&self) -> &Bytes {
        &self.response.body
    }

    pub(crate) fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Decodes the body, which must be a JSON object.
    pub(crate) fn object<T: DeserializeOwned>(&self) -> Result<T, Error> {
        self.json().map(|Object(value)| value)
    }

    /// Decodes the body like [`object`](Self::object), without saying why it is invalid.
    pub(crate) fn valid_object<'a, T: Deserialize<'a>>(&'a self) -> Option<T> {
        parse(self.body()).ok().map(|Object(value)| value)
    }

    /// Decodes the body, which may be any JSON.
    pub(crate) fn json<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Error> {
        decode(self.body()).map_err(|error| {
            error
                .at(self.operation.name)
                .after(self.attempts, Outcome::NotSent)
                .reading(self.body().clone())
        })
    }
}

/// Decodes a response body.
///
/// # Errors
///
/// `ErrorKind::Decode` if the body is not JSON, or not JSON of this shape.
pub(super) fn decode<'de, T: Deserialize<'de>>(body: &'de [u8]) -> Result<T, Error> {
    // Tracking the path is slow, so only a body that fails is read again with it.
    parse(body).map_err(|error| explain::<T>(body, &error))
}

/// Decodes a response body without saying where it is invalid.
pub(super) fn parse<'de, T: Deserialize<'de>>(body: &'de [u8]) -> serde_json::Result<T> {
    // To check all of the UTF-8 at once is faster than to check every string.
    match std::str::from_utf8(body) {
        Ok(text) => serde_json::from_str(text),
        Err(_) => serde_json::from_slice(body),
    }
}

/// Decodes an object that is a part of a response body, or says why that fails. `place` is its path in the
/// body.
pub(crate) fn decode_item<T: DeserializeOwned>(item: &RawValue, place: &str) -> Result<T, String> {
    let decoded = serde_json::from_str(item.get()).map(|Object(value)| value);
    decoded.map_err(|_| {
        let mut deserializer = serde_json::Deserializer::from_str(item.get());
        match serde_path_to_error::deserialize::<_, Object<T>>(&mut deserializer) {
            Ok(_) => format!("invalid response at {place}"),
            Err(error) => invalid_at(place, &error),
        }
    })
}

/// A value that JSON writes as an object.
///
/// The `Deserialize` that serde derives for a struct also takes an array with the members in order. That is
/// right for other formats, and wrong for a response.
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(members)).map(Object)
            }
        }

        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

/// Says what is wrong with a body that cannot be decoded.
fn explain<'de, T: Deserialize<'de>>(body: &'de [u8], error: &serde_json::Error) -> Error {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Error::decode("the response has no body; expected JSON");
    }
    let (line, column) = (error.line(), error.column());
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let message = match serde_path_to_error::deserialize::<_, T>(&mut deserializer) {
        Ok(_) => {
            format!("trailing data after the JSON response, at line {line}, column {column}")
        }
        Err(error) if error.inner().is_data() => invalid_at("$", &error),
        Err(_) => format!("the response is not valid JSON, at line {line}, column {column}"),
    };
    Error::decode(message)
}

/// Says what is wrong with a part of a body, and where. `root` is the path of what was read.
fn invalid_at(root: &str, error: &serde_path_to_error::Error<serde_json::Error>) -> String {
    // serde's message quotes the value that it found.
    format!("invalid response at {}", place(root, error.path()))
}

/// Writes the path. A member name may be personal data, so only names that look like identifiers are
/// shown.
fn place(root: &str, path: &Path) -> String {
    let mut text = String::from(root);
    for segment in path {
        let _infallible = match segment {
            Segment::Seq { index } => write!(text, "[{index}]"),
            Segment::Map { key } if is_identifier(key) => write!(text, ".{key}"),
            _ => write!(text, ".*"),
        };
    }
    text
}

fn is_identifier(key: &str) -> bool {
    (1..=40).contains(&key.len())
        && key
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

#[cfg(test)]
mod tests {
    mod response {
        use std::time::UNIX_EPOCH;

        use http::HeaderValue;

        use super::super::*;

        #[test]
        fn retry_after_is_parsed_in_seconds_and_as_a_date() {
            let now = UNIX_EPOCH + Duration::from_secs(784_111_777);
            let parse = |text: &'static str| {
                let response = HttpResponse {
                    status: StatusCode::TOO_MANY_REQUESTS,
                    headers: HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(text))]),
                    body: Bytes::new(),
                };
                response.retry_after(now).map(|wait| wait.as_secs())
            };

            assert_eq!(parse("120"), Some(120));
            assert_eq!(parse("Sun, 06 Nov 1994 08:49:47 GMT"), Some(10));
            assert_eq!(parse("Sun, 06 Nov 1994 08:49:00 GMT"), Some(0));
            assert_eq!(parse("-1"), None);
            assert_eq!(parse("soon"), None);
            assert_eq!(parse("+1"), None);
            assert_eq!(parse(""), None);
            assert_eq!(parse("99999999999999999999999"), Some(u64::MAX));
        }
    }

    mod decode {
        use std::collections::BTreeMap;

        use serde::Deserialize;

        use super::super::*;
        use crate::ErrorKind;

        #[derive(Deserialize, Debug)]
        struct Shape {
            #[expect(dead_code, reason = "the tests only need it to be absent")]
            id: String,
            #[expect(dead_code, reason = "the tests only need its type")]
            answers: BTreeMap<String, bool>,
        }

        fn failure(body: &str) -> String {
            let error = decode::<Vec<Shape>>(body.as_bytes()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Decode);
            assert!(
                std::error::Error::source(&error).is_none(),
                "a source would quote the body"
            );
            error.to_string()
        }

        #[test]
        fn an_error_names_the_place_and_quotes_nothing_of_the_body() {
            for (body, message) in [
                ("", "the response has no body; expected JSON"),
                (
                    "<html>",
                    "the response is not valid JSON, at line 1, column 1",
                ),
                (
                    r#"[{"id": "#,
                    "the response is not valid JSON, at line 1, column 8",
                ),
                (r#"[{"answers": {}}]"#, "invalid response at $[0]"),
                (
                    r#"[{"id": "x", "id": "y", "answers": {}}]"#,
                    "invalid response at $[0]",
                ),
                (r#"[{"id": 5}]"#, "invalid response at $[0].id"),
                (
                    r#"[{"id": "x", "answers": {"ada@x.io": "ada@x.io"}}]"#,
                    "invalid response at $[0].answers.*",
                ),
                ("[[\"x\", 5]]", "invalid response at $[0][1]"),
                ("[5]", "invalid response at $[0]"),
                (
                    r#"[] trailing"#,
                    "trailing data after the JSON response, at line 1, column 4",
                ),
            ] {
                assert_eq!(failure(body), message);
            }
        }

        #[test]
        fn bytes_that_are_not_utf_8_matter_only_in_members_that_are_read() {
            let body = |known: &[u8], unknown: &[u8]| {
                let (id, extra): (&[u8], &[u8]) =
                    (b"[{\"id\": \"", b"\", \"answers\": {}, \"extra\": \"");
                [id, known, extra, unknown, b"\"}]"].concat()
            };

            assert!(decode::<Vec<Shape>>(&body(b"x", b"\xff")).is_ok());
            let error = decode::<Vec<Shape>>(&body(b"\xff", b"x")).unwrap_err();
            assert!(
                error
                    .to_string()
                    .starts_with("the response is not valid JSON")
            );
        }
    }
}
