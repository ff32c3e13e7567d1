//! Verified events as an argument of an axum 0.8 handler (feature `axum`).
//!
//! [`SignedEvent`] reads the request's body itself, up to the verifier's
//! [limit](super::VerifierBuilder::body_limit) and whatever `Content-Length` or axum's
//! `DefaultBodyLimit` say, verifies it, and calls the handler only for what the service sent. All
//! else is answered for you: a status (400, 401 or 413), and no word about why.
//!
//! The [`Verifier`] is taken from the router's state: the state is one, or gives one by
//! [`FromRef`].
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
//! `examples/webhook_axum.rs` is a whole program of that kind.
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
//! # Example: among other state
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
//! # Example: the reason of a refusal, for the log
//!
//! A handler that takes a `Result` decides itself. Without that, the response that [`Rejection`]
//! makes carries it as an extension, which a layer can look at.
//!
//! ```
//! use audience::webhooks::axum::{Rejection, SignedEvent};
//!
//! async fn hook(delivery: Result<SignedEvent, Rejection>) -> Result<(), Rejection> {
//!     let event = delivery.inspect_err(|rejection| eprintln!("refused: {rejection}"))?;
//!     println!("{} came", event.id);
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

/// The status, with an empty body; the rejection itself is among the response's extensions.
impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.status();
        response.extensions_mut().insert(self);
        response
    }
}
