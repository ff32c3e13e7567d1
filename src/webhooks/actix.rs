//! Verified events as an argument of an actix-web 4 handler (feature `actix`).
//!
//! [`SignedEvent`] reads the request's body itself, up to the verifier's
//! [limit](super::VerifierBuilder::body_limit) and whatever `Content-Length` or a `PayloadConfig`
//! (256 KiB unless set) say, verifies it, and calls the handler only for what the service sent. All
//! else is answered for you: a status (400, 401 or 413), and no word about why.
//!
//! The [`Verifier`] is taken from the application's data, as `web::Data<Verifier>` or as it is.
//! Where there is none, every delivery is answered with 500.
//!
//! # What a handler should do
//!
//! The service waits 10 seconds for an answer, and delivers at least once: up to ten times over
//! about five hours, until one attempt is answered with success (interface section 6.5). So:
//!
//! 1. look the event's `id`, and nothing else, up among those already taken, and answer 200 to
//!    one that is;
//! 2. put the event where it is safe, in a queue or a table, and leave the work to somebody else;
//! 3. answer at once. An answer that is not 2xx asks for another attempt.
//!
//! `examples/webhook_actix.rs` is a whole program of that kind.
//!
//! # Example: an endpoint
//!
//! ```
//! use actix_web::{App, HttpResponse, HttpServer, web};
//! use audience::webhooks::actix::SignedEvent;
//! use audience::webhooks::{EventData, Verifier};
//!
//! async fn hook(event: SignedEvent) -> HttpResponse {
//!     if let EventData::Bounced(mail) = &event.data {
//!         println!("{}: {} bounced", event.id, mail.email_id);
//!     }
//!     HttpResponse::Ok().finish()
//! }
//!
//! let verifier = Verifier::new("6Jm0nFq2pXvZk4Tt")?;
//! let server = HttpServer::new(move || {
//!     App::new()
//!         .app_data(web::Data::new(verifier.clone()))
//!         .service(web::resource("/hook").route(web::post().to(hook)))
//! });
//! # Ok::<(), audience::webhooks::SecretError>(())
//! ```
//!
//! # Example: the reason of a refusal, for the log
//!
//! A handler that takes a `Result` decides itself. Without that, the response knows its
//! [`Rejection`], which a middleware can ask for.
//!
//! ```
//! use actix_web::{HttpResponse, dev::ServiceResponse};
//! use audience::webhooks::actix::{Rejection, SignedEvent};
//!
//! async fn hook(delivery: Result<SignedEvent, Rejection>) -> Result<HttpResponse, Rejection> {
//!     let event = delivery.inspect_err(|rejection| eprintln!("refused: {rejection}"))?;
//!     println!("{} came", event.id);
//!     Ok(HttpResponse::Ok().finish())
//! }
//!
//! fn log(response: &ServiceResponse) {
//!     let error = response.response().error();
//!     if let Some(rejection) = error.and_then(|error| error.as_error::<Rejection>()) {
//!         eprintln!("refused: {rejection}");
//!     }
//! }
//! ```

use std::pin::Pin;

use actix_web::body::BoxBody;
use actix_web::dev::Payload;
use actix_web::http::StatusCode;
use actix_web::http::header::{CONTENT_LENGTH, HeaderValue};
use actix_web::{FromRequest, HttpRequest, HttpResponse, ResponseError, web};

use super::delivery_headers::DeliveryHeaders;
use super::extractor::receive;
pub use super::extractor::{Rejection, SignedEvent};
use super::verifier::Verifier;

impl FromRequest for SignedEvent {
    type Error = Rejection;
    type Future = Pin<Box<dyn Future<Output = Result<Self, Rejection>>>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let request = request.clone();
        let payload = payload.take();
        Box::pin(async move {
            let verifier = verifier_of(&request).ok_or(Rejection::NoVerifier)?;
            let headers = request.headers();
            let content_length = headers.get(CONTENT_LENGTH).map(HeaderValue::as_bytes);
            let headers = DeliveryHeaders::from_values(|name| {
                headers.get_all(name.as_str()).map(HeaderValue::as_bytes)
            });

            receive(verifier, headers, content_length, payload).await
        })
    }
}

/// The status, with an empty body.
impl ResponseError for Rejection {
    fn status_code(&self) -> StatusCode {
        // Of another major version of the `http` crate than ours.
        StatusCode::from_u16(self.status().as_u16()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    fn error_response(&self) -> HttpResponse<BoxBody> {
        HttpResponse::new(self.status_code())
    }
}

fn verifier_of(request: &HttpRequest) -> Option<&Verifier> {
    request
        .app_data::<web::Data<Verifier>>()
        .map(web::Data::get_ref)
        .or_else(|| request.app_data::<Verifier>())
}
