use http::Response;
use http::header::{HeaderValue, RETRY_AFTER};

use crate::inbox::receipt::Receipt;
use crate::webhooks::tower::{BytesBody, IntoEmptyResponse};

/// The status with an empty body, and `Retry-After` if the receipt has one.
impl IntoEmptyResponse for Receipt {
    fn into_empty_response(self) -> Response<BytesBody> {
        let mut response = self.status().into_empty_response();
        if let Some(delay) = self.retry_after() {
            let headers = response.headers_mut();
            headers.insert(RETRY_AFTER, HeaderValue::from(delay.as_secs()));
        }
        response
    }
}
