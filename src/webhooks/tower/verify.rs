use std::error::Error;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::bytes_body::BytesBody;
use crate::webhooks::extractor::{Rejection, receive_http};
use crate::webhooks::verifier::Verifier;

/// A service that verifies each request and passes the genuine ones on to `S`.
///
/// `S` receives a request with the delivery's head, its verified bytes as a [`BytesBody`], and the
/// [`VerifiedEvent`](crate::webhooks::VerifiedEvent) among its extensions.
///
/// It is always ready. After a delivery is verified, it waits until `S` is ready, without a time limit.
/// So strangers who send bodies slowly do not count against a concurrency limit inside.
///
/// # Example: around a service of your own
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
    /// Creates a service that verifies requests with `verifier` and passes them on to `inner`.
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
            let delivery = match receive_http(&verifier, &head.headers, body).await {
                Ok(delivery) => delivery,
                Err(rejection) => return Ok(refuse(rejection)),
            };
            let body = BytesBody::from(delivery.body().clone());
            head.extensions.insert(delivery);

            poll_fn(|context| inner.poll_ready(context)).await?;
            inner.call(Request::from_parts(head, body)).await
        })
    }
}

/// Returns the status with an empty body. The rejection itself is an extension of the response.
pub(super) fn refuse<ResBody: Default>(rejection: Rejection) -> Response<ResBody> {
    let mut response = Response::new(ResBody::default());
    *response.status_mut() = rejection.status();
    response.extensions_mut().insert(rejection);
    response
}
