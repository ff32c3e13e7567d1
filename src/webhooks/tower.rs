//! Verified events for every server that runs tower services: hyper, Lambda, poem, salvo, and axum (feature
//! `tower`).
//!
//! [`VerifyLayer`] reads the request body itself, verifies it, and calls the inner service only for
//! genuine deliveries. It reads up to the verifier's [limit](super::VerifierBuilder::body_limit);
//! `Content-Length` does not change that limit. All other requests are rejected with a status (see
//! [`Rejection`](super::Rejection)) and an empty body; the rejection is an extension of the response. A
//! request that is not a POST is rejected with 405.
//!
//! The inner service receives an [`http::Request`] whose body is the verified bytes, as a [`BytesBody`],
//! and whose extensions contain the [`VerifiedEvent`]. If you only need a function from event to status,
//! use [`VerifyLayer::handler`].
//!
//! Do not wrap it in a layer that changes the body, for example one that decompresses it.
//!
//! The verifier limits [slow and hostile senders](super#slow-and-hostile-senders), but the server reads the headers:
//! `audience::serve` (feature `serve`) limits their time. hyper does so only if you give it a timer (then 30 s, or its
//! `header_read_timeout`).
//!
//! A concurrency limit inside the layer counts verified deliveries only, so strangers cannot use it up.
//! A limit around the layer counts all requests.
//!
//! With an inbox, you [handle each event once](super#handling-an-event-once).
//!
//! # Servers
//!
//! `service` is `VerifyLayer::new(verifier).handler(hook)`, or the layer around your own service.
//! These servers were tested with genuine, forged and oversized deliveries:
//!
//! | server | how |
//! |---|---|
//! | `audience::serve` | `audience::serve(listener, service)`, as in `examples/webhook_hyper.rs` |
//! | hyper 1 | `TowerToHyperService::new(service)` of hyper-util |
//! | `lambda_http` 1.3 | `lambda_http::run(service)`, as in `examples/webhook_lambda.rs` |
//! | axum 0.8 | `Router::route_layer(VerifyLayer::new(verifier))`, or `Router::route_service("/hook", service)` |
//! | poem 3.1 | `Route::new().at("/hook", poem::post(service.compat()))` with poem's `TowerCompatExt` |
//! | salvo 1.1 | `Router::with_path("hook").post(TowerServiceCompat::<ReqBody, _, _, _>::compat(service))` |
//! | salvo 1.1, as a layer | `Router::hoop(layer.compat::<ReqBody>())` with `TowerLayerCompat`; its handlers expect another body, see [`BytesBody`] |
//!
//! # Example: a function for each event
//!
//! ```
//! use audience::inbox::{Inbox, MemoryStore};
//! use audience::webhooks::tower::VerifyLayer;
//! use audience::webhooks::{EventData, VerifiedEvent, Verifier};
//!
//! let verifier = Verifier::new("6Jm0nFq2pXvZk4Tt")?;
//! let inbox = Inbox::builder(MemoryStore::new()).build()?;
//!
//! let service = VerifyLayer::new(verifier).handler(move |delivery: VerifiedEvent| {
//!     let inbox = inbox.clone();
//!     async move {
//!         let handle = |event: audience::webhooks::Event, _attempt| async move {
//!             match &event.data {
//!                 EventData::Bounced(mail) => println!("{}: {} bounced", event.id, mail.email_id),
//!                 data if data.is_incomplete() => return Err(std::io::Error::other("an event without its address")),
//!                 _ => {}
//!             }
//!             Ok(())
//!         };
//!         inbox.handle(delivery, handle).await
//!     }
//! });
//! # use tower::ServiceExt;
//! # let request = http::Request::post("/hook").body(audience::webhooks::tower::BytesBody::default())?;
//! # let rejected = futures_util::FutureExt::now_or_never(service.oneshot(request));
//! # assert_eq!(rejected.unwrap()?.status(), 400);
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
//! # Example: your own service behind the layer
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
//! # Example: log why a delivery was rejected
//!
//! ```
//! use audience::webhooks::tower::VerifyLayer;
//! use audience::webhooks::{Rejection, VerifiedEvent, Verifier};
//! use http::{Response, StatusCode};
//! use tower::ServiceBuilder;
//!
//! fn log<B>(response: Response<B>) -> Response<B> {
//!     if let Some(rejection) = response.extensions().get::<Rejection>() {
//!         eprintln!("rejected: {rejection}");
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

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use tower_layer::Layer;
use tower_service::Service;

use super::receive::receive_http;
use super::verifier::VerifiedEvent;
use super::verifier::Verifier;

/// A layer that verifies each request before it calls the service inside.
///
/// # Example: a function for each event
///
/// ```
/// use audience::webhooks::tower::VerifyLayer;
/// use audience::webhooks::{VerifiedEvent, Verifier};
/// use http::StatusCode;
///
/// let layer = VerifyLayer::new(Verifier::new("6Jm0nFq2pXvZk4Tt")?);
///
/// let service = layer.handler(async |event: VerifiedEvent| {
///     println!("received {}", event.id);
///     StatusCode::OK
/// });
/// # let _ = service;
/// # Ok::<(), audience::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct VerifyLayer {
    verifier: Verifier,
}

impl VerifyLayer {
    /// Creates a layer that verifies requests with `verifier`.
    ///
    /// # Example: around a service
    ///
    /// ```
    /// use audience::webhooks::Verifier;
    /// use audience::webhooks::tower::{BytesBody, VerifyLayer};
    /// use http::{Request, Response};
    /// use tower::{Layer, ServiceExt, service_fn};
    ///
    /// # async fn forged() -> Result<(), Box<dyn std::error::Error>> {
    /// let inner = service_fn(async |_: Request<BytesBody>| Ok::<_, std::io::Error>(Response::new(String::new())));
    /// let service = VerifyLayer::new(Verifier::new("6Jm0nFq2pXvZk4Tt")?).layer(inner);
    ///
    /// let request = Request::post("/hook").body(BytesBody::default())?;
    /// let response = service.oneshot(request).await?;
    /// assert_eq!(response.status(), 400); // it is not signed
    /// # Ok(()) }
    /// # futures_util::FutureExt::now_or_never(forged()).expect("the body is there")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn new(verifier: Verifier) -> Self {
        Self { verifier }
    }

    /// Returns a service that verifies each request and calls `handle` for genuine deliveries.
    ///
    /// `handle` is an `async` function or closure from [`VerifiedEvent`] to [`StatusCode`] or to the receipt of an
    /// inbox. The response has that status and an empty body.
    ///
    /// Like every tower service, it takes requests of any path. Put it behind a router. A request that is
    /// not a POST is rejected with 405.
    ///
    /// # Example: a test of your function
    ///
    /// ```
    /// use audience::webhooks::tower::{BytesBody, VerifyLayer};
    /// use audience::webhooks::{EventType, Signer, VerifiedEvent, Verifier};
    /// use http::{Request, StatusCode};
    /// use tower::ServiceExt;
    ///
    /// # async fn genuine() -> Result<(), Box<dyn std::error::Error>> {
    /// # let body = br#"{"id": "evt_1", "type": "email.sent", "created_at": 1700000000, "data": {}}"#;
    /// let layer = VerifyLayer::new(Verifier::new("6Jm0nFq2pXvZk4Tt")?);
    /// let service = layer.handler(async |_: VerifiedEvent| StatusCode::NO_CONTENT);
    ///
    /// let signer = Signer::new("6Jm0nFq2pXvZk4Tt")?;
    /// let mut request = Request::post("/hook").body(BytesBody::from(bytes::Bytes::from_static(body)))?;
    /// *request.headers_mut() = signer.sign(&EventType::Sent, std::time::SystemTime::now(), body);
    /// assert_eq!(service.oneshot(request).await?.status(), 204);
    /// # Ok(()) }
    /// # futures_util::FutureExt::now_or_never(genuine()).expect("the body is there")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn handler<F>(self, handle: F) -> Handler<F> {
        Handler {
            handle,
            verifier: self.verifier,
        }
    }
}

impl<S> Layer<S> for VerifyLayer {
    type Service = Verify<S>;

    fn layer(&self, inner: S) -> Verify<S> {
        Verify::new(inner, self.verifier.clone())
    }
}

/// A service that verifies each request and passes genuine deliveries on to `S`.
///
/// `S` receives a request with the delivery's head, its verified bytes as a [`BytesBody`], and the
/// [`VerifiedEvent`] among its extensions.
///
/// It is always ready. After it has verified a delivery, it waits until `S` is ready, without a time limit.
/// So strangers who send bodies slowly do not use up a concurrency limit of `S`.
///
/// # Example: around your own service
///
/// ```
/// use std::convert::Infallible;
/// use audience::webhooks::Verifier;
/// use audience::webhooks::VerifiedEvent;
/// use audience::webhooks::tower::{BytesBody, Verify};
/// use http::{Request, Response};
/// use tower::service_fn;
///
/// async fn hook(request: Request<BytesBody>) -> Result<Response<String>, Infallible> {
///     let event = request.extensions().get::<VerifiedEvent>();
///     Ok(Response::new(event.map(|event| event.id.to_string()).unwrap_or_default()))
/// }
///
/// let service = Verify::new(service_fn(hook), Verifier::new("6Jm0nFq2pXvZk4Tt")?);
/// # let _ = service;
/// # Ok::<(), audience::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Verify<S> {
    inner: S,
    verifier: Verifier,
}

impl<S> Verify<S> {
    /// Creates a service that verifies requests with `verifier` and passes genuine deliveries on to `inner`.
    #[must_use]
    pub fn new(inner: S, verifier: Verifier) -> Self {
        Self { inner, verifier }
    }
}

impl<S, B, ResBody> Service<Request<B>> for Verify<S>
where
    S: Service<Request<BytesBody>, Response = Response<ResBody>> + Clone + Send + 'static,
    S::Future: Send,
    B: Body + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
    ResBody: Default,
{
    type Response = Response<ResBody>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let Self {
            mut inner,
            verifier,
        } = self.clone();
        Box::pin(async move {
            let (mut head, body) = request.into_parts();
            let delivery = match receive_http(&verifier, &head, body).await {
                Ok(delivery) => delivery,
                Err(rejection) => return Ok(rejection.into_http_response(Default::default())),
            };
            // A reference to the same bytes, not a copy.
            let body = BytesBody::from(delivery.body().clone());
            head.extensions.insert(delivery);

            // Only now: a permit of a concurrency limit must not wait for the body of a stranger.
            poll_fn(|context| inner.poll_ready(context)).await?;
            inner.call(Request::from_parts(head, body)).await
        })
    }
}

/// A service that verifies each request and calls a function for genuine deliveries; see
/// [`VerifyLayer::handler`](VerifyLayer::handler).
#[derive(Clone)]
pub struct Handler<F> {
    handle: F,
    verifier: Verifier,
}

impl<F, Fut, B> Service<Request<B>> for Handler<F>
where
    F: FnOnce(VerifiedEvent) -> Fut + Clone + Send + 'static,
    Fut: Future<Output: IntoEmptyResponse> + Send,
    B: Body + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Response = Response<BytesBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let Self { handle, verifier } = self.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let delivery = match receive_http(&verifier, &head, body).await {
                Ok(delivery) => delivery,
                Err(rejection) => return Ok(rejection.into_http_response(Default::default())),
            };

            Ok(handle(delivery).await.into_empty_response())
        })
    }
}

impl<F> fmt::Debug for Handler<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handler")
            .field("verifier", &self.verifier)
            .finish_non_exhaustive()
    }
}

/// The result of a function for [`VerifyLayer::handler`](VerifyLayer::handler): a [`StatusCode`], or
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

/// A body whose bytes are in memory: the body of a verified request.
///
/// Its default is the empty body. Most services do not need it, because the [`VerifiedEvent`] has the same
/// bytes.
///
/// # Example: a service that expects another type of body
///
/// `map_request` of tower's `ServiceBuilder` converts the body. For the handlers of salvo, it is
/// `ReqBody::from(body.into_bytes())`.
///
/// ```
/// use audience::webhooks::Verifier;
/// use audience::webhooks::tower::{BytesBody, VerifyLayer};
/// use http::Request;
/// use tower::ServiceBuilder;
///
/// # let inner = tower::service_fn(async |_: Request<Vec<u8>>| Ok::<_, std::convert::Infallible>(http::Response::new(String::new())));
/// let service = ServiceBuilder::new()
///     .layer(VerifyLayer::new(Verifier::new("6Jm0nFq2pXvZk4Tt")?))
///     .map_request(|request: Request<BytesBody>| request.map(|body| body.into_bytes().to_vec()))
///     .service(inner);
/// # let _ = service;
/// # Ok::<(), audience::ConfigError>(())
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct BytesBody(Bytes);

impl BytesBody {
    /// Returns the bytes.
    ///
    /// # Example: the bytes of a body
    ///
    /// ```
    /// use audience::webhooks::tower::BytesBody;
    ///
    /// let body = BytesBody::from(bytes::Bytes::from_static(b"{}"));
    ///
    /// assert_eq!(&body.into_bytes()[..], b"{}");
    /// ```
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.0
    }
}

impl Body for BytesBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = std::mem::take(&mut self.0);
        let frame = (!bytes.is_empty()).then(|| Ok(Frame::data(bytes)));
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.len() as u64)
    }
}

impl AsRef<[u8]> for BytesBody {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl From<Bytes> for BytesBody {
    fn from(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

/// Prints the length only: a body contains addresses.
impl fmt::Debug for BytesBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BytesBody")
            .field("length", &self.0.len())
            .finish()
    }
}
