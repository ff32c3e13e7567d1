//! Verified events for every server that runs tower services: hyper, Lambda, poem, salvo, and axum (feature
//! `tower`).
//!
//! [`VerifyLayer`] reads the request body itself, verifies it, and calls the inner service only for
//! genuine deliveries. It reads up to the verifier's [limit](super::VerifierBuilder::body_limit),
//! whatever `Content-Length` says. All other requests are refused with a status (see [`Rejection`](super::Rejection)) and
//! an empty body; the rejection is an extension of the response.
//!
//! The inner service receives an [`http::Request`] with the verified bytes as its body, a [`BytesBody`],
//! and with the [`VerifiedEvent`](super::VerifiedEvent) among its extensions. If a function from event to status is all you
//! need, use [`VerifyLayer::handler`].
//!
//! Put no layer around it that changes the body, for example one that decompresses it.
//!
//! # Slow and hostile senders
//!
//! A body must arrive within [5 seconds](super::VerifierBuilder::body_timeout). The unverified bodies of
//! all requests together may take [64 MiB](super::VerifierBuilder::body_memory) of memory. Limit the
//! requests of each peer at the proxy in front.
//!
//! The server reads the headers: hyper limits their time only if you give it a timer (then 30 s, or its
//! `header_read_timeout`).
//!
//! A concurrency limit inside the layer counts verified deliveries only, so strangers cannot use it up.
//! A limit around the layer counts all requests.
//!
//! # What a handler should do
//!
//! The service waits 10 seconds for a response and delivers at least once: up to ten times over
//! about five hours, until it receives a success (interface section 6.5). Pass the delivery to an `Inbox`
//! (feature `inbox`): its `handle` runs your code once for each event, its `accept` stores the event for a
//! worker. Both return what to respond.
//!
//! Without an inbox:
//!
//! 1. In one step, insert the event's `id`, and nothing else, into a table where it is unique. Respond with
//!    200 if it was there and its work is done.
//! 2. Store the event with it, and do the work elsewhere.
//! 3. Respond immediately. A response other than 2xx asks for another attempt.
//!
//! # Servers
//!
//! `service` is `VerifyLayer::new(verifier).handler(hook)`, or the layer around a service of your own.
//! These servers were tested with genuine, forged and oversized deliveries:
//!
//! | server | how |
//! |---|---|
//! | hyper 1 | `TowerToHyperService::new(service)` of hyper-util, as in `examples/webhook_hyper.rs` |
//! | `lambda_http` 1.3 | `lambda_http::run(service)`, as in `examples/webhook_lambda.rs` |
//! | axum 0.8 | `Router::route_layer(VerifyLayer::new(verifier))`, or `Router::route_service("/hook", service)` |
//! | poem 3.1 | `Route::new().at("/hook", poem::post(service.compat()))` with poem's `TowerCompatExt` |
//! | salvo 1.1 | `Router::with_path("hook").post(TowerServiceCompat::<ReqBody, _, _, _>::compat(service))` |
//! | salvo 1.1, as a layer | `Router::hoop(layer.compat::<ReqBody>())` with `TowerLayerCompat`; its handlers expect another body, see [`BytesBody`] |
//!
//! # Example: a function for each event
//!
//! ```
//! use audience::webhooks::tower::VerifyLayer;
//! use audience::webhooks::{EventData, VerifiedEvent, Verifier};
//! use http::StatusCode;
//!
//! async fn hook(event: VerifiedEvent) -> StatusCode {
//!     if let EventData::Bounced(mail) = &event.data {
//!         println!("{}: {} bounced", event.id, mail.email_id);
//!     }
//!     StatusCode::OK
//! }
//!
//! let verifier = Verifier::new("6Jm0nFq2pXvZk4Tt")?;
//! let service = VerifyLayer::new(verifier).handler(hook);
//! # use tower::ServiceExt;
//! # let refused = futures_util::FutureExt::now_or_never(
//! #     service.oneshot(http::Request::new(audience::webhooks::tower::BytesBody::default())));
//! # assert_eq!(refused.unwrap()?.status(), 400);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Example: a layer of an axum router
//!
//! For one route, the extractor of the feature `axum` is simpler. The layer verifies several routes, and
//! their handlers can take the event and the body.
//!
//! ```
//! use audience::webhooks::tower::VerifyLayer;
//! use audience::webhooks::{VerifiedEvent, Verifier};
//! use axum::{Extension, Router, routing::post};
//!
//! async fn hook(Extension(event): Extension<VerifiedEvent>) {
//!     println!("received {}", event.id);
//! }
//!
//! let verifier = Verifier::new("6Jm0nFq2pXvZk4Tt")?;
//! let app: Router = Router::new()
//!     .route("/hook", post(hook))
//!     .route_layer(VerifyLayer::new(verifier));
//! # Ok::<(), audience::ConfigError>(())
//! ```
//!
//! # Example: a service of your own behind the layer
//!
//! ```
//! use audience::webhooks::VerifiedEvent;
//! use audience::webhooks::tower::BytesBody;
//! use http::{Request, Response, StatusCode};
//!
//! async fn hook(mut request: Request<BytesBody>) -> Result<Response<String>, StatusCode> {
//!     let delivery = request.extensions_mut().remove::<VerifiedEvent>();
//!     let event = delivery.ok_or(StatusCode::INTERNAL_SERVER_ERROR)?.into_event();
//!     Ok(Response::new(format!("received {}", event.id)))
//! }
//! ```
//!
//! # Example: log why a delivery was refused
//!
//! ```
//! use audience::webhooks::tower::VerifyLayer;
//! use audience::webhooks::{Rejection, VerifiedEvent, Verifier};
//! use http::{Response, StatusCode};
//! use tower::ServiceBuilder;
//!
//! fn log<B>(response: Response<B>) -> Response<B> {
//!     if let Some(rejection) = response.extensions().get::<Rejection>() {
//!         eprintln!("refused: {rejection}");
//!     }
//!     response
//! }
//!
//! let verifier = Verifier::new("6Jm0nFq2pXvZk4Tt")?;
//! let hook = VerifyLayer::new(verifier).handler(async |_: VerifiedEvent| StatusCode::OK);
//! let service = ServiceBuilder::new().map_response(log).service(hook);
//! # use tower::ServiceExt;
//! # let request = http::Request::new(audience::webhooks::tower::BytesBody::default());
//! # assert!(futures_util::FutureExt::now_or_never(service.oneshot(request)).is_some());
//! # Ok::<(), audience::ConfigError>(())
//! ```

mod bytes_body;
mod handler;
mod into_empty_response;
mod layer;
mod verify;

pub use self::bytes_body::BytesBody;
pub use self::handler::Handler;
pub use self::into_empty_response::IntoEmptyResponse;
pub use self::layer::VerifyLayer;
pub use self::verify::Verify;
