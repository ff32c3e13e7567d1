use axum_core::body::Body;
use axum_core::response::{IntoResponse, Response};
use http::header::{HeaderValue, RETRY_AFTER};

use crate::inbox::receipt::Receipt;

/// The status with an empty body, and `Retry-After` if the receipt has one. The receipt itself is an extension
/// of the response.
impl IntoResponse for Receipt {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.status();
        if let Some(delay) = self.retry_after() {
            let headers = response.headers_mut();
            headers.insert(RETRY_AFTER, HeaderValue::from(delay.as_secs()));
        }
        response.extensions_mut().insert(self);
        response
    }
}
