use http::{Response, StatusCode};

use super::bytes_body::BytesBody;

/// What the function of [`VerifyLayer::handler`](super::VerifyLayer::handler) may return: a [`StatusCode`], or
/// the receipt of an inbox (feature `inbox`).
pub trait IntoEmptyResponse {
    /// Returns a response with an empty body.
    fn into_empty_response(self) -> Response<BytesBody>;
}

impl IntoEmptyResponse for StatusCode {
    fn into_empty_response(self) -> Response<BytesBody> {
        let mut response = Response::new(BytesBody::default());
        *response.status_mut() = self;
        response
    }
}
