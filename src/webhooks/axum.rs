//! Verified events as arguments of axum 0.8 handlers (feature `axum`).
//!
//! [`SignedEvent`] reads the request body itself, verifies it, and calls the handler only for genuine
//! deliveries. It reads up to the verifier's [limit](super::VerifierBuilder::body_limit);
//! `Content-Length` and axum's `DefaultBodyLimit` do not change that limit. All other requests are
//! refused with a status (400, 401 or 413) and an empty body.
//!
//! The [`Verifier`] is taken from the router's state, which is a `Verifier` or provides one through
//! [`FromRef`].
//!
//! # What a handler should do
//!
//! The service waits 10 seconds for a response and delivers at least once: up to ten times over
//! about five hours, until it receives a success (interface section 6.5). Therefore:
//!
//! 1. Look up the event's `id`, and nothing else, among the events you already have. Respond with
//!    200 if it is there.
//! 2. Store the event safely, in a queue or a table, and do the work elsewhere.
//! 3. Respond immediately. A response other than 2xx asks for another attempt.
//!
//! `examples/webhook_axum.rs` is a complete program that does this.
//!
//! # Example: an endpoint
//!
//! ```
//! use audience::webhooks::axum::SignedEvent;
//! use audience::webhooks::{EventData, Verifier};
//! use axum::{Router, routing::post};
//!
//! async fn hook(event: SignedEvent) {
//!     if let EventData::Bounced(mail) = &event.data {
//!         println!("{}: {} bounced", event.id, mail.email_id);
//!     }
//! }
//!
//! let verifier = Verifier::new("6Jm0nFq2pXvZk4Tt")?;
//! let app: Router = Router::new().route("/hook", post(hook)).with_state(verifier);
//! # Ok::<(), audience::webhooks::SecretError>(())
//! ```
//!
//! # Example: a verifier as part of the state
//!
//! ```
//! use audience::webhooks::Verifier;
//! use axum::extract::FromRef;
//!
//! #[derive(Clone)]
//! struct App {
//!     verifier: Verifier,
//!     greeting: &'static str,
//! }
//!
//! impl FromRef<App> for Verifier {
//!     fn from_ref(app: &App) -> Self {
//!         app.verifier.clone()
//!     }
//! }
//! ```
//!
//! # Example: log why a delivery was refused
//!
//! Take a `Result` in the handler to decide yourself. Otherwise, the response contains the
//! [`Rejection`] as an extension, which a layer can read.
//!
//! ```
//! use audience::webhooks::axum::{Rejection, SignedEvent};
//!
//! async fn hook(delivery: Result<SignedEvent, Rejection>) -> Result<(), Rejection> {
//!     let event = delivery.inspect_err(|rejection| eprintln!("refused: {rejection}"))?;
//!     println!("received {}", event.id);
//!     Ok(())
//! }
//!
//! async fn log(response: axum::response::Response) -> axum::response::Response {
//!     if let Some(rejection) = response.extensions().get::<Rejection>() {
//!         eprintln!("refused: {rejection}");
//!     }
//!     response
//! }
//! # use axum::{Router, middleware, routing::post};
//! # let verifier = audience::webhooks::Verifier::new("6Jm0nFq2pXvZk4Tt")?;
//! # let app: Router = Router::new()
//! #     .route("/hook", post(hook))
//! #     .layer(middleware::map_response(log))
//! #     .with_state(verifier);
//! # Ok::<(), audience::webhooks::SecretError>(())
//! ```

use axum_core::body::Body;
use axum_core::extract::{FromRef, FromRequest, Request};
use axum_core::response::{IntoResponse, Response};
use http::header::{CONTENT_LENGTH, HeaderValue};

use super::delivery_headers::DeliveryHeaders;
use super::extractor::receive;
pub use super::extractor::{Rejection, SignedEvent};
use super::verifier::Verifier;

impl<S> FromRequest<S> for SignedEvent
where
    Verifier: FromRef<S>,
    S: Send + Sync,
{
    type Rejection = Rejection;

    async fn from_request(request: Request, state: &S) -> Result<Self, Rejection> {
        let verifier = Verifier::from_ref(state);
        let (head, body) = request.into_parts();
        let content_length = head.headers.get(CONTENT_LENGTH).map(HeaderValue::as_bytes);
        let headers = DeliveryHeaders::from_map(&head.headers);

        receive(&verifier, headers, content_length, body.into_data_stream()).await
    }
}

/// The status with an empty body. The rejection itself is an extension of the response.
impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.status();
        response.extensions_mut().insert(self);
        response
    }
}
