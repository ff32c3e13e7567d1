use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// A body whose bytes are in memory: the body of a verified request.
///
/// Its default is the empty body. Most services need no more than the
/// [`VerifiedEvent`](crate::webhooks::VerifiedEvent), which has the same bytes.
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

impl From<BytesBody> for Bytes {
    fn from(body: BytesBody) -> Self {
        body.0
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
