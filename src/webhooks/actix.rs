//! Verified events as arguments of actix-web 4 handlers (feature `actix`).
//!
//! [`VerifiedEvent`] reads the request body itself, verifies it, and calls the handler only for genuine
//! deliveries. It reads up to the verifier's [limit](super::VerifierBuilder::body_limit);
//! `Content-Length` and `PayloadConfig` (default: 256 KiB) do not change that limit. All other
//! requests are rejected with a status (see [`Rejection`]) and an empty body. A request that is not a
//! POST is rejected with 405, also on a route for any method.
//!
//! Do not use another extractor that reads the body in the same handler: the first one consumes it.
//!
//! The [`Verifier`] is taken from the application data, as `web::Data<Verifier>` or as `Verifier`. If
//! it is missing, every delivery is rejected with 500. With several verifiers, use one of these forms for all of them:
//! a `web::Data<Verifier>` of the application is taken before a `Verifier` of the resource.
//!
//! The verifier limits [slow and hostile senders](super#slow-and-hostile-senders), but the server reads the headers:
//! see `HttpServer::client_request_timeout` (default: 5 s).
//!
//! A handler of `Inbox::handle` that takes longer than 8 s continues after its response. If the server stops meanwhile, the
//! handler continues only if the inbox was built in the runtime of `#[tokio::main]`, and not in that of
//! `#[actix_web::main]`. It then runs in that runtime from the beginning, so call `tokio::spawn` in it, and not
//! `actix_web::rt::spawn`. With `accept`, either will do.
//!
//! `examples/webhook_actix.rs` is a complete program that [handles each event once](super#handling-an-event-once).
//!
//! # Example: an endpoint
//!
//! ```
//! use actix_web::{App, HttpServer, web};
//! use audience::inbox::{Inbox, MemoryStore, Receipt};
//! use audience::webhooks::{EventData, VerifiedEvent, Verifier};
//!
//! async fn hook(inbox: web::Data<Inbox>, delivery: VerifiedEvent) -> Receipt {
//!     inbox
//!         .handle(delivery, |event, _attempt| async move {
//!             match &event.data {
//!                 EventData::Bounced(mail) => println!("{}: {} bounced", event.id, mail.email_id),
//!                 data if data.is_incomplete() => return Err(std::io::Error::other("an event without its address")),
//!                 _ => {}
//!             }
//!             Ok(())
//!         })
//!         .await
//! }
//!
//! let verifier = Verifier::new("6Jm0nFq2pXvZk4Tt")?;
//! let inbox = Inbox::builder(MemoryStore::new()).build()?;
//! let server = HttpServer::new(move || {
//!     App::new()
//!         .app_data(web::Data::new(verifier.clone()))
//!         .app_data(web::Data::new(inbox.clone()))
//!         .service(web::resource("/hook").route(web::post().to(hook)))
//! });
//! # Ok::<(), audience::ConfigError>(())
//! ```
//!
//! # Example: log why a delivery was rejected
//!
//! To handle rejections yourself, take a `Result` in the handler. Otherwise, the response contains the
//! [`Rejection`] as its error, which a middleware can read.
//!
//! ```
//! use actix_web::{HttpResponse, dev::ServiceResponse};
//! use audience::webhooks::{Rejection, VerifiedEvent};
//!
//! async fn hook(delivery: Result<VerifiedEvent, Rejection>) -> Result<HttpResponse, Rejection> {
//!     let event = delivery.inspect_err(|rejection| eprintln!("rejected: {rejection}"))?;
//!     println!("received {}", event.id);
//!     Ok(HttpResponse::Ok().finish())
//! }
//!
//! fn log(response: &ServiceResponse) {
//!     let error = response.response().error();
//!     if let Some(rejection) = error.and_then(|error| error.as_error::<Rejection>()) {
//!         eprintln!("rejected: {rejection}");
//!     }
//! }
//! ```

use std::pin::Pin;

use actix_web::body::BoxBody;
use actix_web::dev::Payload;
use actix_web::http::header::{ALLOW, CONTENT_LENGTH, HeaderValue, TRANSFER_ENCODING};
use actix_web::http::{StatusCode, Version};
use actix_web::{FromRequest, HttpRequest, HttpResponse, ResponseError, web};

use super::receive::{IncomingBody, receive, require_post};
use super::signature::DeliveryHeaders;
use super::verifier::Verifier;
pub use super::{Rejection, VerifiedEvent};

impl FromRequest for VerifiedEvent {
    type Error = Rejection;
    type Future = Pin<Box<dyn Future<Output = Result<Self, Rejection>>>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let request = request.clone();
        let payload = payload.take();
        Box::pin(async move {
            require_post(request.method().as_str())?;
            let verifier = verifier_of(&request)
                .ok_or(Rejection::NoVerifier)
                .inspect_err(Rejection::trace)?;
            let headers = request.headers();
            let content_length = headers.get(CONTENT_LENGTH).map(HeaderValue::as_bytes);
            let headers = DeliveryHeaders::from_values(|name| {
                headers.get_all(name.as_str()).map(HeaderValue::as_bytes)
            });
            // Every HTTP/2 request, and every chunked one, arrives with a payload.
            let is_consumed = matches!(payload, Payload::None)
                && (request.version() == Version::HTTP_2
                    || request.headers().contains_key(TRANSFER_ENCODING));
            let body = IncomingBody {
                content_length,
                is_consumed,
                chunks: payload,
            };

            receive(verifier, headers, body).await
        })
    }
}

/// Responds with the status and an empty body, and with `Allow` if the request was not a POST.
impl ResponseError for Rejection {
    fn status_code(&self) -> StatusCode {
        // actix-web uses another major version of the `http` crate.
        StatusCode::from_u16(self.status().as_u16()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    fn error_response(&self) -> HttpResponse<BoxBody> {
        let mut response = HttpResponse::build(self.status_code());
        if let Some(method) = self.allow() {
            response.insert_header((ALLOW, method));
        }
        response.finish()
    }
}

fn verifier_of(request: &HttpRequest) -> Option<&Verifier> {
    request
        .app_data::<web::Data<Verifier>>()
        .map(web::Data::get_ref)
        .or_else(|| request.app_data::<Verifier>())
}
