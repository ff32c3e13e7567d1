//! Turns the responses of the mock into those of hyper.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::{Either, Full};

use super::control::change_stream::ChangeStream;
use super::response::MockResponse;

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
