use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::bytes_body::BytesBody;
use super::into_empty_response::IntoEmptyResponse;
use super::verify::refuse;
use crate::webhooks::extractor::receive_http;
use crate::webhooks::verified_event::VerifiedEvent;
use crate::webhooks::verifier::Verifier;

/// A service that verifies each request and calls a function with the event of the genuine ones; see
/// [`VerifyLayer::handler`](super::VerifyLayer::handler).
#[derive(Clone)]
pub struct Handler<F> {
    handle: F,
    verifier: Verifier,
}

impl<F> Handler<F> {
    pub(super) fn new(handle: F, verifier: Verifier) -> Self {
        Self { handle, verifier }
    }
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
            let delivery = match receive_http(&verifier, &head.headers, body).await {
                Ok(delivery) => delivery,
                Err(rejection) => return Ok(refuse(rejection)),
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
