use actix_web::body::BoxBody;
use actix_web::http::StatusCode;
use actix_web::http::header::RETRY_AFTER;
use actix_web::{HttpRequest, HttpResponse, Responder};

use crate::inbox::receipt::Receipt;

/// The status with an empty body, and `Retry-After` if the receipt has one.
impl Responder for Receipt {
    type Body = BoxBody;

    fn respond_to(self, _: &HttpRequest) -> HttpResponse {
        // actix-web uses another major version of the `http` crate.
        let status = StatusCode::from_u16(self.status().as_u16())
            .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = HttpResponse::build(status);
        if let Some(delay) = self.retry_after() {
            response.insert_header((RETRY_AFTER, delay.as_secs()));
        }
        response.finish()
    }
}
