//! A request before it is sent, and a 2xx response, as plain data that needs no server in a unit test.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, HeaderName, Method};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use serde_path_to_error::{Path, Segment};

use crate::error::{CHECK_THE_BASE_URL, Target, without_mark};
use crate::{Error, Outcome};

/// The operation of a call, for messages and spans. Neither may contain an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    pub(crate) name: &'static str,
    pub(crate) template: &'static str,
}

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    /// Encoded, with a leading slash, which stands for the path of the base URL.
    pub(crate) path: String,
    /// Encoded; empty if there are no parameters.
    pub(crate) query: String,
    /// Headers in addition to the headers of every request.
    pub(crate) headers: HeaderMap,
    /// JSON, if there is a body.
    pub(crate) body: Option<Bytes>,
    pub(crate) retry_safety: RetrySafety,
    pub(crate) target: Target,
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
        // Room for most paths, which would otherwise grow several times.
        let mut path = String::with_capacity(64);
        for segment in segments {
            let segment = segment.as_ref();
            if !is_path_segment(segment) {
                return Err(Error::input(
                    "an address or path segment is empty, `.` or `..`, which would reach another endpoint",
                ));
            }
            path.push('/');
            // One segment for each argument: a slash in an address must not reach another endpoint.
            path.extend(utf8_percent_encode(segment, RESERVED));
        }
        Ok(Self {
            method,
            path,
            query: String::new(),
            headers: HeaderMap::new(),
            body: None,
            retry_safety,
            target: Target::Unknown,
            has_service_cursor: false,
        })
    }

    /// Says what the request is about. Default: [`Target::Unknown`].
    pub(crate) fn about(mut self, target: Target) -> Self {
        self.target = target;
        self
    }

    pub(crate) fn query(mut self, name: &str, value: &str) -> Self {
        if !self.query.is_empty() {
            self.query.push('&');
        }
        self.query.extend(utf8_percent_encode(name, RESERVED));
        self.query.push('=');
        self.query.extend(utf8_percent_encode(value, RESERVED));
        self
    }

    /// Returns path and query relative to the base URL.
    pub(super) fn relative_url(&self) -> Cow<'_, str> {
        let path = self.path.trim_start_matches('/');
        match self.query.as_str() {
            "" => Cow::Borrowed(path),
            query => Cow::Owned([path, "?", query].concat()),
        }
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
pub(super) fn is_set_by_http(name: &HeaderName) -> bool {
    HEADERS_OF_HTTP.contains(&name.as_str())
}

/// A 2xx response, with its operation and the number of attempts.
#[derive(Clone, Debug)]
pub(crate) struct Success {
    pub(super) operation: Operation,
    pub(crate) response: http::Response<Bytes>,
    pub(crate) attempts: u32,
    /// The outcome if the body cannot be decoded, unless the body [says otherwise](outcome_of).
    pub(super) outcome: Outcome,
    /// Whether the request may be sent again without harm.
    pub(super) is_repeatable: bool,
    /// The body [with escapes](with_escapes), if it was needed. It is small, because it is a part of each call's future.
    escaped: OnceLock<Option<Arc<Vec<u8>>>>,
}

impl Success {
    pub(super) fn new(
        operation: Operation,
        request: &Request,
        response: http::Response<Bytes>,
        attempts: u32,
    ) -> Self {
        let outcome = if request.method.is_safe() {
            Outcome::Unchanged
        } else if request.target == Target::Batch || encoding(&response).is_some() {
            Outcome::Unknown
        } else {
            Outcome::Applied
        };
        Self {
            operation,
            response,
            attempts,
            outcome,
            is_repeatable: request.retry_safety == RetrySafety::Safe,
            escaped: OnceLock::new(),
        }
    }

    /// Fails if the body is an HTML or XML page, which most likely does not come from the service.
    pub(crate) fn refuse_page(&self) -> Result<(), Error> {
        match is_page(self.response.body()) {
            true => Err(page()),
            false => Ok(()),
        }
    }

    /// Fails if the body [reports an error](reports_error) in spite of the status.
    pub(crate) fn refuse_error(&self) -> Result<(), Error> {
        match reports_error(self.response.body()) {
            true => Err(self.reported_error()),
            false => Ok(()),
        }
    }

    fn reported_error(&self) -> Error {
        let status = self.response.status().as_u16();
        Error::decode(format!(
            "the response has the status {status}, but reports an error"
        ))
    }

    /// Returns whether a request that only reads got a response without a body. A write may well have no more to say.
    fn is_blank_read(&self) -> bool {
        self.outcome == Outcome::Unchanged && is_blank(self.response.body())
    }

    fn without_body(&self) -> Error {
        let status = self.response.status().as_u16();
        let message = format!(
            "the response has the status {status} and no body, so it most likely comes from a proxy or another server"
        );
        Error::decode(message).advising(CHECK_THE_BASE_URL)
    }

    /// Decodes the body, which must be a JSON object.
    pub(crate) fn object<T: DeserializeOwned>(&self) -> Result<T, Error> {
        self.json().map(|Object(value)| value)
    }

    /// Decodes the body like [`object`](Self::object), without saying why it is invalid.
    pub(crate) fn valid_object<'a, T: Deserialize<'a>>(&'a self) -> Option<T> {
        let Object(value) = parse(self.text()).ok()?;
        Some(value)
    }

    /// Decodes the body, which may be any JSON.
    pub(crate) fn json<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Error> {
        let decoded = decode(self.text()).or_else(|error| {
            let escaped = self
                .escaped
                .get_or_init(|| with_escapes(self.text()).map(Arc::new));
            let decoded = escaped.as_ref().and_then(|text| parse(text).ok());
            decoded.ok_or(error)
        });
        decoded.map_err(|error| {
            let error = match encoding(&self.response) {
                Some(encoding) => unreadable(&encoding),
                None if reports_error(self.response.body()) => self.reported_error(),
                None if self.is_blank_read() => self.without_body(),
                None => error,
            };
            error
                .at(self.operation.name)
                .after(self.attempts, Outcome::NotSent)
                .with_outcome(outcome_of(self.outcome, self.response.body()))
                .reading(self.response.body().clone())
        })
    }

    /// Returns the body without a byte order mark.
    fn text(&self) -> &[u8] {
        without_mark(self.response.body())
    }
}

/// Returns the outcome of a response that cannot be decoded: the body of a write may say that it was not applied.
pub(super) fn outcome_of(outcome: Outcome, body: &[u8]) -> Outcome {
    match outcome {
        Outcome::Applied if is_page(body) || reports_error(body) => Outcome::Unknown,
        certain => certain,
    }
}

/// Returns JSON with an escape that is no character in place of all bytes that are not UTF-8. Then only the texts with such
/// bytes cannot be read, and not the list around them. `None` if there are none.
pub(crate) fn with_escapes(body: &[u8]) -> Option<Vec<u8>> {
    let is_json = matches!(body.trim_ascii_start().first(), Some(b'{' | b'['));
    if !is_json || str::from_utf8(body).is_ok() {
        return None;
    }
    let mut escaped = Vec::with_capacity(body.len());
    for chunk in body.utf8_chunks() {
        escaped.extend_from_slice(chunk.valid().as_bytes());
        if !chunk.invalid().is_empty() {
            escaped.extend_from_slice(br"\ud800");
        }
    }
    Some(escaped)
}

/// Returns the content encoding that the body still has. The HTTP client removes the header when it decompresses a
/// body. An empty body needs no decoding.
fn encoding(response: &http::Response<Bytes>) -> Option<String> {
    if response.body().is_empty() {
        return None;
    }
    let values = response.headers().get_all(CONTENT_ENCODING).into_iter();
    let names: Vec<_> = values
        .map(|value| String::from_utf8_lossy(value.as_bytes()))
        .collect();
    let names = names.join(",");
    let is_identity = |name: &str| {
        let name = name.trim();
        name.is_empty() || name.eq_ignore_ascii_case("identity")
    };
    (!names.split(',').all(is_identity)).then_some(names)
}

/// Creates the error for a body with a content encoding that the client cannot decode. It asks for `gzip`, and knows no
/// other name for it.
fn unreadable(encoding: &str) -> Error {
    // The service chooses the text, so it could contain anything.
    Error::decode(match is_identifier(&encoding.to_ascii_lowercase()) {
        true => format!(
            "the response has the content encoding `{encoding}`, which the client cannot decode"
        ),
        false => "the response has a content encoding that the client cannot decode".to_owned(),
    })
}

/// Returns whether a body says that the request failed: it is an object with something in `error` or `errors`, with
/// `false` in `success` or `ok`, or with the number of an error status in `code` or `status`.
fn reports_error(body: &[u8]) -> bool {
    // Members are read one by one. Text that is not UTF-8, or a value that Rust cannot represent, must not hide an error.
    let text = String::from_utf8_lossy(without_mark(body));
    let Ok(Object(members)) = serde_json::from_str::<Object<HashMap<String, &RawValue>>>(&text)
    else {
        return false;
    };
    let read = |name: &str| {
        let value = members.get(name)?;
        Some(serde_json::from_str::<Value>(value.get()))
    };
    let is_something = |value: &Value| match value {
        Value::Null => false,
        Value::Bool(is_error) => *is_error,
        Value::Number(code) => code.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(errors) => !errors.is_empty(),
        Value::Object(error) => !error.is_empty(),
    };
    let has_error = |name| match read(name) {
        None => false,
        Some(Ok(value)) => is_something(&value),
        Some(Err(_)) => true,
    };
    let is_denied = |name| matches!(read(name), Some(Ok(Value::Bool(false))));
    let is_error_status = |name| match read(name) {
        Some(Ok(Value::Number(status))) => (400..600).contains(&status.as_u64().unwrap_or(0)),
        _ => false,
    };
    ["error", "errors"].into_iter().any(has_error)
        || ["success", "ok"].into_iter().any(is_denied)
        || ["code", "status"].into_iter().any(is_error_status)
}

/// Decodes a response body.
///
/// # Errors
///
/// `ErrorKind::Decode` if the body is not JSON, or not JSON of this shape.
fn decode<'de, T: Deserialize<'de>>(body: &'de [u8]) -> Result<T, Error> {
    // Tracking the path is slow, so only a body that fails is read again with it.
    parse(body).map_err(|error| explain::<T>(body, &error))
}

/// Decodes a response body without saying where it is invalid.
fn parse<'de, T: Deserialize<'de>>(body: &'de [u8]) -> serde_json::Result<T> {
    // One UTF-8 check of the whole body is faster than one for each string in it.
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
            Ok(_) => invalid_response(place),
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

/// The error for a body that [is a page](is_page).
fn page() -> Error {
    Error::decode("the response is an HTML or XML page, not JSON").advising(CHECK_THE_BASE_URL)
}

fn is_blank(body: &[u8]) -> bool {
    body.iter().all(u8::is_ascii_whitespace)
}

/// Returns whether a body is HTML or XML. The `Content-Type` does not matter: some frameworks send `text/html` with
/// JSON.
fn is_page(body: &[u8]) -> bool {
    without_mark(body).trim_ascii_start().starts_with(b"<")
}

/// Says what is wrong with a body that cannot be decoded.
fn explain<'de, T: Deserialize<'de>>(body: &'de [u8], error: &serde_json::Error) -> Error {
    if is_blank(body) {
        return Error::decode("the response has no body; expected JSON");
    }
    if is_page(body) {
        return page();
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

/// The message of a time that is not in seconds.
pub(crate) const NOT_SECONDS: &str =
    "the time is in milliseconds or a smaller unit, not in seconds";

/// Says what is wrong with a part of a body, and where. `root` is the path of what was read.
fn invalid_at(root: &str, error: &serde_path_to_error::Error<serde_json::Error>) -> String {
    let invalid = invalid_response(&place(root, error.path()));
    // Any other message is serde's, which quotes the value that it found.
    match error.inner().to_string().starts_with(NOT_SECONDS) {
        true => format!("{invalid}: {NOT_SECONDS}"),
        false => invalid,
    }
}

fn invalid_response(place: &str) -> String {
    match place {
        // The path of the whole response.
        "$" => "invalid response".to_owned(),
        place => format!("invalid response at {place}"),
    }
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

/// Returns whether a text can be a segment of a path. A URL with one that cannot names another endpoint.
pub(crate) fn is_path_segment(text: &str) -> bool {
    !matches!(text, "" | "." | "..")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;
    use crate::ErrorKind;

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

            assert_eq!(error.kind(), ErrorKind::Input);
            assert_eq!(error.outcome(), Outcome::NotSent);
        }
    }

    #[test]
    fn every_reserved_character_of_a_query_value_is_encoded() {
        let request = Request::new(Method::GET, ["contacts"], RetrySafety::Safe).unwrap();

        let request = request.query("query", "a b&c=d+é").query("limit", "5");

        assert_eq!(request.query, "query=a%20b%26c%3Dd%2B%C3%A9&limit=5");
    }

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
                "the response is an HTML or XML page, not JSON; check the base URL",
            ),
            (
                "hello",
                "the response is not valid JSON, at line 1, column 1",
            ),
            (
                r#"[{"id": "#,
                "the response is not valid JSON, at line 1, column 8",
            ),
            ("{}", "invalid response"),
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
