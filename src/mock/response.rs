//! The result of a request: a response, or the end of the connection.

use std::fmt;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::{Either, Full};

use super::changes::ChangeStream;
use super::service::dialect::ErrorShape;
use super::service::refusal::Refusal;
use super::service::refusal::Reply;

/// An HTTP response. A body is JSON unless the headers name another type.
#[derive(Debug, Default)]
pub(super) struct MockResponse {
    pub(super) status: u16,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) body: Vec<u8>,
}

impl From<Reply> for MockResponse {
    fn from(reply: Reply) -> Self {
        Self {
            status: reply.status,
            headers: Vec::new(),
            body: reply.body,
        }
    }
}

/// An error of the control plane. Its body has the shape of the default dialect.
impl From<Refusal> for MockResponse {
    fn from(refusal: Refusal) -> Self {
        refusal.reply(ErrorShape::default()).into()
    }
}

/// Ends the connection without an ordinary response: sends `bytes` as they are, then closes or resets it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Disconnect {
    pub(super) bytes: Vec<u8>,
    /// Whether to send a TCP `RST` instead of closing.
    pub(super) reset: bool,
}

impl fmt::Display for Disconnect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server ended the connection without a response")
    }
}

impl std::error::Error for Disconnect {}

/// A body: whole, or one that goes on for as long as the server runs.
pub(super) type ResponseBody = Either<Full<Bytes>, ChangeStream>;

/// Returns a response with a whole body, which is JSON unless its headers name another type.
pub(super) fn http_response(response: MockResponse) -> Response<ResponseBody> {
    let has_body = !response.body.is_empty();
    let mut http_response = Response::new(Either::Left(Full::new(response.body.into())));
    *http_response.status_mut() =
        StatusCode::from_u16(response.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in response.headers {
        http_response.headers_mut().append(name, value);
    }
    if has_body {
        http_response
            .headers_mut()
            .entry(CONTENT_TYPE)
            .or_insert(HeaderValue::from_static("application/json"));
    }
    http_response
}

/// Returns a response that sends an event for each change.
pub(super) fn event_stream(changes: ChangeStream) -> Response<ResponseBody> {
    let mut response = Response::new(Either::Right(changes));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
