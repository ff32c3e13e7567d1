use tower_layer::Layer;

use super::handler::Handler;
use super::verify::Verify;
use crate::webhooks::verifier::Verifier;

/// Puts a [`Verify`] around a service.
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
    #[must_use]
    pub fn new(verifier: Verifier) -> Self {
        Self { verifier }
    }

    /// Returns a service that verifies each request and calls `handle` with the event of the genuine
    /// ones: an `async` function or closure from [`VerifiedEvent`](crate::webhooks::VerifiedEvent) to
    /// [`StatusCode`](http::StatusCode) or to the receipt of an inbox. The response has that status and an empty
    /// body.
    ///
    /// Like every tower service, it takes requests of any path and method. Put it behind a router.
    #[must_use]
    pub fn handler<F>(self, handle: F) -> Handler<F> {
        Handler::new(handle, self.verifier)
    }
}

impl<S> Layer<S> for VerifyLayer {
    type Service = Verify<S>;

    fn layer(&self, inner: S) -> Verify<S> {
        Verify::new(inner, self.verifier.clone())
    }
}
