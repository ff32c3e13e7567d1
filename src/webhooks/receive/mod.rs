//! Reads and verifies a delivery, for the extractors of axum and actix and for the layer of tower.

use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use http::StatusCode;

use super::diagnose::{Diagnosis, explain};
use super::error::VerifyError;
use super::signature::DeliveryHeaders;
use super::signature::Tag;
use super::trace::{self, Severity};
use super::verifier::{Arrival, ReadLimits, VerifiedEvent, Verifier};
use crate::sync::Share;

#[cfg(any(feature = "axum", feature = "tower"))]
/// Reads and verifies a delivery of a framework that uses the `http` and `http-body` crates.
pub(super) async fn receive_http<B>(
    verifier: &Verifier,
    head: &http::request::Parts,
    body: B,
) -> Result<VerifiedEvent, Rejection>
where
    B: http_body::Body,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    require_post(head.method.as_str())?;
    let headers = &head.headers;
    let body = pin!(body);
    let body = IncomingBody {
        content_length: headers
            .get(http::header::CONTENT_LENGTH)
            .map(http::HeaderValue::as_bytes),
        // An unread chunked body does not know where it ends. So one that is at its end was read before.
        is_consumed: body.is_end_stream() && headers.contains_key(http::header::TRANSFER_ENCODING),
        chunks: DataFrames(body),
    };

    receive(verifier, DeliveryHeaders::from_map(headers), body).await
}

/// Rejects every request but a POST (interface section 6). The signature does not cover the method.
pub(super) fn require_post(method: &str) -> Result<(), Rejection> {
    let allowed = if method == "POST" {
        Ok(())
    } else {
        Err(Rejection::MethodNotAllowed)
    };
    allowed.inspect_err(Rejection::trace)
}

/// The data of a body, chunk by chunk. Trailers become an empty chunk.
#[cfg(any(feature = "axum", feature = "tower"))]
pub(crate) struct DataFrames<'b, B>(pub(crate) Pin<&'b mut B>);

#[cfg(any(feature = "axum", feature = "tower"))]
impl<B: http_body::Body> Stream for DataFrames<'_, B> {
    type Item = Result<Bytes, B::Error>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> Poll<Option<Self::Item>> {
        let frame = std::task::ready!(self.0.as_mut().poll_frame(context)?);
        let bytes = frame.map(|frame| match frame.into_data() {
            Ok(mut data) => {
                let length = bytes::Buf::remaining(&data);
                bytes::Buf::copy_to_bytes(&mut data, length)
            }
            // Trailers are not signed, so they are ignored.
            Err(_) => Bytes::new(),
        });
        Poll::Ready(bytes.map(Ok))
    }
}

/// Reads and verifies a delivery, and rejects it as early as possible: malformed headers before the
/// body is read, a `Content-Length` over the limit before the first byte, a longer body at the limit.
pub(super) async fn receive<S, E>(
    verifier: &Verifier,
    headers: Result<DeliveryHeaders<'_>, VerifyError>,
    body: IncomingBody<'_, S>,
) -> Result<VerifiedEvent, Rejection>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    // Before the body is read: the service counts its ten seconds from here.
    let arrival = Arrival::now();
    // Before the body is read: a stranger without a well-formed signature gets no memory.
    let headers = headers.inspect_err(|error| verifier.note_rejected(error))?;
    let (tag, timestamp) = (headers.tag, headers.timestamp);
    let timestamp_text = headers.timestamp_text;
    let (body, memory) = body
        .read(verifier)
        .await
        .inspect_err(|rejection| match rejection {
            Rejection::Verify { error, .. } => verifier.note_rejected(error),
            // A body that breaks off is no malformed delivery: the service sends it again.
            _ => rejection.trace(),
        })?;

    let verified = verifier
        .check_and_trace(Ok(headers), &body, verifier.clock())
        .and_then(|delivery| Ok((delivery.event()?, delivery.secret_name().into())));
    match verified {
        // The memory is for unverified bodies only, so it is released here.
        Ok((event, secret_name)) => Ok(VerifiedEvent::new(event, body, secret_name, arrival)),
        Err(error) => Err(Rejection::Verify {
            error,
            delivery: RejectedDelivery(Some(Arc::new(Rejected {
                verifier: verifier.clone(),
                tag,
                timestamp,
                // A copy: the headers of the request do not live as long as the rejection.
                timestamp_text: timestamp_text.into(),
                body,
                _memory: memory,
            }))),
        }),
    }
}

/// The body of a request that is not read yet.
pub(super) struct IncomingBody<'r, S> {
    pub(super) content_length: Option<&'r [u8]>,
    /// Whether the framework knows that the request had a body and that it is gone.
    pub(super) is_consumed: bool,
    pub(super) chunks: S,
}

impl<S, E> IncomingBody<'_, S>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    /// Reads the body, up to the limits of `verifier`. Its memory stays reserved until the second value is
    /// dropped.
    ///
    /// `Content-Length` can only end the reading early: no memory is reserved for it, and the bytes
    /// are counted in any case.
    async fn read(mut self, verifier: &Verifier) -> Result<(Bytes, Reservation), Rejection> {
        let limit = verifier.body_limit();
        let stated_length: Option<u64> = self
            .content_length
            .and_then(|text| str::from_utf8(text).ok())
            .and_then(|text| text.parse().ok());
        let fits = |length| usize::try_from(length).is_ok_and(|length| length <= limit);
        // The length that a stranger states can only reject the body, never reserve memory for it.
        if !stated_length.is_none_or(fits) {
            return Err(VerifyError::BodyTooLarge { limit }.into());
        }
        if self.is_consumed {
            return Err(Rejection::BodyConsumed);
        }

        let limits = verifier.read_limits();
        let mut memory = limits.reserve(limit);
        let body = within(limits.timeout, self.collect(limit, &mut memory)).await?;
        // The server has checked that this many bytes arrived. So a body that is empty now was read before.
        if body.is_empty() && stated_length.is_some_and(|length| length > 0) {
            return Err(Rejection::BodyConsumed);
        }
        Ok((body.into(), memory))
    }

    async fn collect(
        &mut self,
        limit: usize,
        memory: &mut Reservation,
    ) -> Result<Vec<u8>, Rejection> {
        let mut body = Vec::new();
        while let Some(chunk) = self.next_chunk().await? {
            if chunk.is_empty() {
                // Empty chunks never reach the limit of the length, so let the timeout end such a body.
                tokio::task::yield_now().await;
            }
            if chunk.len() > limit - body.len() {
                return Err(VerifyError::BodyTooLarge { limit }.into());
            }
            let needed = body.len() + chunk.len();
            if needed > body.capacity() {
                // A small body gets no more memory than `SMALL_BODY`, even if the limit allows more.
                let most = if needed <= SMALL_BODY {
                    limit.min(SMALL_BODY)
                } else {
                    limit
                };
                // Twice the capacity each time, as a `Vec` grows, but never beyond what the limit allows.
                let capacity = needed.max(body.capacity().saturating_mul(2).min(most));
                if !memory.grow_to(capacity) {
                    let limit = memory.limit;
                    return Err(Rejection::BodyMemory { limit });
                }
                // Exactly what was reserved in the common limit. `reserve` could take more.
                body.reserve_exact(capacity - body.len());
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    async fn next_chunk(&mut self) -> Result<Option<Bytes>, Rejection> {
        let chunk = poll_fn(|cx| Pin::new(&mut self.chunks).poll_next(cx)).await;
        chunk
            .transpose()
            .map_err(|error| Rejection::Body(Arc::from(error.into())))
    }
}

/// Ends the reading of a body after `timeout`. The timer starts when `reading` first waits.
async fn within<T>(
    timeout: Duration,
    reading: impl Future<Output = Result<T, Rejection>>,
) -> Result<T, Rejection> {
    let mut reading = pin!(reading);
    // Most bodies are there already. A timer for each of them would be wasted.
    if let Poll::Ready(read) = poll_fn(|cx| Poll::Ready(reading.as_mut().poll(cx))).await {
        return read;
    }
    // Tokio's timers need its runtime, and a clock that this target does not have.
    let no_clock = cfg!(all(target_family = "wasm", target_os = "unknown"));
    if no_clock || tokio::runtime::Handle::try_current().is_err() {
        return reading.await;
    }
    tokio::time::timeout(timeout, reading)
        .await
        .unwrap_or(Err(Rejection::BodyTimeout { timeout }))
}

/// The memory for all unverified bodies, unless it was set.
const DEFAULT_MEMORY: usize = 64 * 1024 * 1024;
/// A body up to this length may use the second half of the memory.
const SMALL_BODY: usize = 64 * 1024;

impl ReadLimits {
    /// Returns the reservation of a body that has not arrived yet.
    fn reserve(&self, body_limit: usize) -> Reservation {
        let default = || body_limit.saturating_mul(4).max(DEFAULT_MEMORY);
        Reservation {
            share: Share::new(&self.held),
            limit: self.memory.unwrap_or_else(default),
        }
    }
}

/// The memory of one unverified body, released on drop.
struct Reservation {
    share: Share,
    limit: usize,
}

impl Reservation {
    /// Grows to `bytes`, or returns `false` if all bodies together would need too much memory.
    ///
    /// Long bodies share half of the memory, so that they cannot keep out the small bodies that
    /// deliveries usually have.
    fn grow_to(&mut self, bytes: usize) -> bool {
        let limit = if bytes <= SMALL_BODY {
            self.limit
        } else {
            self.limit / 2
        };
        self.share.grow_to(bytes, limit)
    }
}

/// Why a delivery did not reach the handler.
///
/// # The response
///
/// As a response, it is a status with an empty body, so that the sender of a forged delivery learns
/// nothing else. A response with status 405 also has the header `Allow: POST`. The text is for logs and contains no
/// part of the body.
///
/// # The rejected delivery
///
/// A rejection is cheap to clone. If the body was read before the delivery was rejected, the rejection keeps it for
/// [`diagnose`](Self::diagnose). The body counts towards the
/// [`body_memory`](super::VerifierBuilder::body_memory) until the rejection and its clones are dropped, so do not
/// store rejections.
///
/// # Example: log a wrong clock, and why genuine deliveries are rejected
///
/// ```
/// use audience::webhooks::{Rejection, VerifyError};
///
/// fn log(rejection: &Rejection) {
///     if let Rejection::Verify { error: VerifyError::TooEarly { skew }, .. } = rejection {
///         eprintln!("our clock or the sender's is {} seconds off", skew.as_secs());
///     } else if let Some(diagnosis) = rejection.diagnose([("main", "6Jm0nFq2pXvZk4Tt")]) {
///         eprintln!("{rejection}; {diagnosis}");
///     }
/// }
/// # log(&Rejection::from(VerifyError::ClockUnusable));
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// The verifier rejected the delivery.
    #[error("{error}")]
    #[non_exhaustive]
    Verify {
        /// Why it was rejected.
        error: VerifyError,
        /// The rejected delivery; see [`diagnose`](Self::diagnose).
        delivery: RejectedDelivery,
    },

    /// The request was not a POST. The service delivers with POST only, and the signature does not cover
    /// the method. The body was not read. The status is 405.
    #[error("the request was not a POST; the service delivers events with POST only")]
    MethodNotAllowed,

    /// The body could not be read completely: the connection was closed, or the data was not valid
    /// HTTP. The status is 400, if the sender is still there to receive it.
    #[error("could not read the whole body of the delivery")]
    Body(#[source] Arc<dyn Error + Send + Sync>),

    /// The body did not arrive in time
    /// ([`body_timeout`](super::VerifierBuilder::body_timeout)). The status is 408.
    #[error("the body of the delivery did not arrive within {} ms", timeout.as_millis())]
    BodyTimeout {
        /// The time limit.
        timeout: Duration,
    },

    /// The unverified bodies of all requests together need more memory than allowed
    /// ([`body_memory`](super::VerifierBuilder::body_memory)). The status is 503: the service
    /// retries.
    #[error("the unverified bodies of all requests together need more than {limit} bytes")]
    BodyMemory {
        /// The limit for all bodies, in bytes.
        limit: usize,
    },

    /// The request had a body, but a middleware or another extractor consumed it, so nothing can be verified. The
    /// status is 500.
    #[error(
        "the body of the request was consumed before it could be verified; \
         look for a middleware or an extractor that reads it"
    )]
    BodyConsumed,

    /// The application data contains no [`Verifier`], so nothing can be verified. This happens under
    /// actix-web only. The status is 500.
    #[error("the application data contains no webhook verifier; add one with `app_data`")]
    NoVerifier,
}

impl Rejection {
    /// Returns the status to respond with.
    ///
    /// # Example: respond to a rejected delivery yourself
    ///
    /// ```
    /// use audience::webhooks::{Rejection, VerifyError};
    /// use http::StatusCode;
    ///
    /// let rejection = Rejection::from(VerifyError::SignatureMismatch);
    ///
    /// assert_eq!(rejection.status(), StatusCode::UNAUTHORIZED);
    /// ```
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Verify { error, .. } => error.status(),
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::Body(_) => StatusCode::BAD_REQUEST,
            Self::BodyTimeout { .. } => StatusCode::REQUEST_TIMEOUT,
            Self::BodyMemory { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self::BodyConsumed | Self::NoVerifier => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Returns the verifier's error if the verifier rejected the delivery.
    ///
    /// # Example: tell a wrong clock from a forgery
    ///
    /// ```
    /// use std::time::Duration;
    /// use audience::webhooks::{Rejection, VerifyError};
    ///
    /// let rejection = Rejection::from(VerifyError::TooLate { skew: Duration::from_secs(900) });
    ///
    /// assert!(rejection.verify_error().is_some_and(|error| error.skew().is_some()));
    /// ```
    #[must_use]
    pub fn verify_error(&self) -> Option<&VerifyError> {
        match self {
            Self::Verify { error, .. } => Some(error),
            _ => None,
        }
    }

    /// Returns the only method that the request may have, if it had another one.
    pub(super) fn allow(&self) -> Option<&'static str> {
        matches!(self, Self::MethodNotAllowed).then_some("POST")
    }

    /// Returns a response with the status. The rejection itself is an extension of the response.
    #[cfg(any(feature = "axum", feature = "tower"))]
    pub(super) fn into_http_response<B>(self, empty: B) -> http::Response<B> {
        let mut response = http::Response::new(empty);
        *response.status_mut() = self.status();
        if let Some(method) = self.allow() {
            let method = http::HeaderValue::from_static(method);
            response.headers_mut().insert(http::header::ALLOW, method);
        }
        // For a layer that logs: the response itself must not tell a stranger what was wrong.
        response.extensions_mut().insert(self);
        response
    }

    pub(super) fn trace(&self) {
        let (severity, cause) = match self {
            Self::Verify { error, .. } => return trace::rejected(error),
            Self::MethodNotAllowed => (Severity::Debug, "method"),
            Self::Body(_) => (Severity::Debug, "body"),
            Self::BodyTimeout { .. } => (Severity::Debug, "body_timeout"),
            Self::BodyMemory { .. } => (Severity::Warn, "body_memory"),
            Self::BodyConsumed => (Severity::Error, "body_consumed"),
            Self::NoVerifier => (Severity::Error, "no_verifier"),
        };
        trace::unread(severity, cause, self.status(), self);
    }

    /// Returns the likely reason why the verifier rejected the delivery, for an operator's log. Returns
    /// `None` if the request did not reach the verifier.
    ///
    /// It calls [`Verifier::diagnose`] with the headers and the body of the rejected delivery. Strangers can
    /// cause rejections, so call it while you search for a fault, not for every rejection. For a body of many
    /// kilobytes, call it in code that may block.
    ///
    /// # Example: a delivery that was signed with the secret of another endpoint
    ///
    /// ```
    /// use audience::webhooks::{Rejection, VerifiedEvent};
    ///
    /// async fn hook(delivery: Result<VerifiedEvent, Rejection>) -> Result<(), Rejection> {
    ///     let secrets = [("orders", "Wb8cQe1sLr5uYh7o"), ("news", "6Jm0nFq2pXvZk4Tt")];
    ///     let delivery = delivery.inspect_err(|rejection| {
    ///         if let Some(diagnosis) = rejection.diagnose(secrets) {
    ///             eprintln!("{diagnosis}"); // "the delivery is signed with the secret \"orders\", …"
    ///         }
    ///     })?;
    ///     println!("received {}", delivery.id);
    ///     Ok(())
    /// }
    /// # use audience::webhooks::VerifyError;
    /// # let rejection = Rejection::from(VerifyError::ClockUnusable);
    /// # assert!(futures_util::FutureExt::now_or_never(hook(Err(rejection))).unwrap().is_err());
    /// ```
    #[must_use]
    pub fn diagnose<N, S>(&self, secrets: impl IntoIterator<Item = (N, S)>) -> Option<Diagnosis>
    where
        N: Into<String>,
        S: AsRef<[u8]>,
    {
        match self {
            Self::Verify { error, delivery } => Some(delivery.diagnose(error, secrets)),
            _ => None,
        }
    }
}

/// Creates a rejection without a delivery, for a test of your own handler.
impl From<VerifyError> for Rejection {
    fn from(error: VerifyError) -> Self {
        Self::Verify {
            error,
            delivery: RejectedDelivery(None),
        }
    }
}

/// The delivery that a [`Rejection`] is about. It is never printed.
#[derive(Clone)]
pub struct RejectedDelivery(Option<Arc<Rejected>>);

struct Rejected {
    verifier: Verifier,
    tag: Tag,
    timestamp: u64,
    timestamp_text: Box<[u8]>,
    body: Bytes,
    /// Released with the body, because a handler may hold the rejection for long.
    _memory: Reservation,
}

impl RejectedDelivery {
    fn diagnose<N, S>(
        &self,
        error: &VerifyError,
        secrets: impl IntoIterator<Item = (N, S)>,
    ) -> Diagnosis
    where
        N: Into<String>,
        S: AsRef<[u8]>,
    {
        let Some(rejected) = &self.0 else {
            return explain(error, None, secrets);
        };
        let headers = DeliveryHeaders {
            tag: rejected.tag,
            timestamp_text: &rejected.timestamp_text,
            timestamp: rejected.timestamp,
            // Diagnosis does not look at the unsigned header.
            all: None,
        };
        let delivery = (&rejected.verifier, &headers, &rejected.body[..]);
        explain(error, Some(delivery), secrets)
    }
}

impl fmt::Debug for RejectedDelivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body_length = self.0.as_ref().map(|rejected| rejected.body.len());
        f.debug_struct("RejectedDelivery")
            .field("body_length", &body_length)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
