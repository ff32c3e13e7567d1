//! Verified events as arguments of axum 0.8 handlers (feature `axum`).
//!
//! [`VerifiedEvent`] reads the request body itself, verifies it, and calls the handler only for genuine
//! deliveries. It reads up to the verifier's [limit](super::VerifierBuilder::body_limit);
//! `Content-Length` and axum's `DefaultBodyLimit` do not change that limit. All other requests are
//! rejected with a status (see [`Rejection`]) and an empty body. A request that is not a POST is rejected
//! with 405, also on a route for `any` method.
//!
//! `VerifiedEvent` reads the body, so it must be the **last argument** of the handler: after `State`,
//! headers and all others. Otherwise, the handler does not compile.
//!
//! The [`Verifier`] is taken from the router's state. The state is a `Verifier`, a type that provides one through
//! [`FromRef`], or an `Arc` of either.
//!
//! The verifier limits [slow and hostile senders](super#slow-and-hostile-senders), but the server reads the headers:
//! `axum::serve` waits for them without a time limit. `audience::serve` (feature `serve`) has one, or put a proxy in
//! front that has one.
//!
//! `examples/webhook_axum.rs` is a complete program that [handles each event once](super#handling-an-event-once).
//!
//! # Example: an endpoint
//!
//! ```
//! use audience::inbox::{Inbox, MemoryStore, Receipt};
//! use audience::webhooks::{EventData, VerifiedEvent, Verifier};
//! use axum::extract::{FromRef, State};
//! use axum::{Router, routing::post};
//!
//! #[derive(Clone, FromRef)]
//! struct App {
//!     verifier: Verifier,
//!     inbox: Inbox,
//! }
//!
//! async fn hook(State(inbox): State<Inbox>, delivery: VerifiedEvent) -> Receipt {
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
//! let app = App {
//!     verifier: Verifier::new("6Jm0nFq2pXvZk4Tt")?,
//!     inbox: Inbox::builder(MemoryStore::new()).build()?,
//! };
//! let router: Router = Router::new().route("/hook", post(hook)).with_state(app);
//! # Ok::<(), audience::ConfigError>(())
//! ```
//!
//! # Example: a verifier as part of the state
//!
//! Implement [`FromRef`] for your own type, or derive it. The state of the router is that type, or an
//! `Arc` of it.
//!
//! ```
//! use std::sync::Arc;
//! use audience::webhooks::{VerifiedEvent, Verifier};
//! use axum::extract::{FromRef, State};
//! use axum::{Router, routing::post};
//!
//! struct App {
//!     verifier: Verifier,
//!     greeting: String,
//! }
//!
//! impl FromRef<App> for Verifier {
//!     fn from_ref(app: &App) -> Self {
//!         app.verifier.clone()
//!     }
//! }
//!
//! async fn hook(State(app): State<Arc<App>>, event: VerifiedEvent) {
//!     println!("{}: {}", app.greeting, event.id);
//! }
//!
//! let verifier = Verifier::new("6Jm0nFq2pXvZk4Tt")?;
//! let app = Arc::new(App { verifier, greeting: "Hello".to_owned() });
//! let router: Router = Router::new().route("/hook", post(hook)).with_state(app);
//! # Ok::<(), audience::ConfigError>(())
//! ```
//!
//! # Example: log why a delivery was rejected
//!
//! With the feature `tracing`, the extractor [logs](super#tracing) each rejection itself. Otherwise, log it in the
//! handler or in a layer, but not in both, or each rejection is logged twice.
//!
//! A handler that takes a `Result` also runs for rejected deliveries:
//!
//! ```
//! use audience::webhooks::{Rejection, VerifiedEvent};
//!
//! async fn hook(delivery: Result<VerifiedEvent, Rejection>) -> Result<(), Rejection> {
//!     let event = delivery.inspect_err(|rejection| eprintln!("rejected: {rejection}"))?;
//!     println!("received {}", event.id);
//!     Ok(())
//! }
//! # use axum::{Router, routing::post};
//! # let verifier = audience::webhooks::Verifier::new("6Jm0nFq2pXvZk4Tt")?;
//! # let app: Router = Router::new().route("/hook", post(hook)).with_state(verifier);
//! # Ok::<(), audience::ConfigError>(())
//! ```
//!
//! A layer sees the rejections of all routes, because the response contains the [`Rejection`] as an extension:
//!
//! ```
//! use audience::webhooks::{Rejection, VerifiedEvent};
//!
//! async fn log(response: axum::response::Response) -> axum::response::Response {
//!     if let Some(rejection) = response.extensions().get::<Rejection>() {
//!         eprintln!("rejected: {rejection}");
//!     }
//!     response
//! }
//!
//! async fn hook(event: VerifiedEvent) {
//!     println!("received {}", event.id);
//! }
//! # use axum::{Router, middleware, routing::post};
//! # let verifier = audience::webhooks::Verifier::new("6Jm0nFq2pXvZk4Tt")?;
//! # let app: Router = Router::new()
//! #     .route("/hook", post(hook))
//! #     .layer(middleware::map_response(log))
//! #     .with_state(verifier);
//! # Ok::<(), audience::ConfigError>(())
//! ```

use std::sync::Arc;

use axum_core::body::Body;
use axum_core::extract::{FromRef, FromRequest, Request};
use axum_core::response::{IntoResponse, Response};

use super::receive::receive_http;
use super::verifier::Verifier;
pub use super::{Rejection, VerifiedEvent};

/// Allows an `Arc` as the state of the router.
impl<S> FromRef<Arc<S>> for Verifier
where
    Self: FromRef<S>,
{
    fn from_ref(state: &Arc<S>) -> Self {
        Self::from_ref(&**state)
    }
}

impl<S> FromRequest<S> for VerifiedEvent
where
    Verifier: FromRef<S>,
    S: Send + Sync,
{
    type Rejection = Rejection;

    async fn from_request(request: Request, state: &S) -> Result<Self, Rejection> {
        let verifier = Verifier::from_ref(state);
        let (head, body) = request.into_parts();
        receive_http(&verifier, &head, body).await
    }
}

/// Responds with the status and an empty body, and with `Allow` if the request was not a POST. The rejection itself is
/// an extension of the response.
impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        self.into_http_response(Body::empty())
    }
}
