//! Shared by the extractors of all frameworks: when to refuse, how much to read, and the result.

use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use http::StatusCode;

use super::delivery_headers::DeliveryHeaders;
use super::error::VerifyError;
use super::event::Event;
use super::trace;
use super::verifier::Verifier;

/// A delivery that was verified before the handler is called.
///
/// Use it as an argument of an [axum](super::axum) or [actix-web](super::actix) handler. It
/// dereferences to its [`Event`]; [`into_event`](Self::into_event) returns the event by value.
///
/// # Example: store the raw delivery, pass the event on
///
/// ```
/// use audience::webhooks::Event;
/// use audience::webhooks::axum::SignedEvent;
/// # fn store(_: &str, _: &[u8]) {}
/// # fn pass_on(_: Event) {}
///
/// async fn hook(delivery: SignedEvent) {
///     store(delivery.id.as_str(), delivery.body());
///     pass_on(delivery.into_event());
/// }
/// ```
#[derive(Clone)]
pub struct SignedEvent {
    event: Event,
    body: Bytes,
    secret_name: Box<str>,
}

impl SignedEvent {
    /// Returns the event only, to match on it or to send it elsewhere.
    #[must_use]
    pub fn into_event(self) -> Event {
        self.event
    }

    /// Returns the bytes that were signed, to store the raw delivery. Cheap to clone.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// Returns the name of the secret that matched.
    ///
    /// After a rotation, remove the old secret once its name no longer appears here.
    #[must_use]
    pub fn secret_name(&self) -> &str {
        &self.secret_name
    }
}

impl Deref for SignedEvent {
    type Target = Event;

    fn deref(&self) -> &Event {
        &self.event
    }
}

impl From<SignedEvent> for Event {
    fn from(delivery: SignedEvent) -> Self {
        delivery.event
    }
}

impl fmt::Debug for SignedEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignedEvent")
            .field("event", &self.event)
            .field("body_length", &self.body.len())
            .field("secret_name", &self.secret_name)
            .finish()
    }
}

/// Why a handler was not called.
///
/// As a response it is a status with an empty body, so that the sender of a forged delivery learns
/// nothing else. The text is for logs.
///
/// # Example: report a wrong clock
///
/// ```
/// use audience::webhooks::VerifyError;
/// use audience::webhooks::axum::{Rejection, SignedEvent};
///
/// async fn hook(delivery: Result<SignedEvent, Rejection>) -> Result<(), Rejection> {
///     if let Err(Rejection::Verify(VerifyError::TooEarly { skew })) = &delivery {
///         eprintln!("our clock or the sender's is {} seconds off", skew.as_secs());
///     }
///     let event = delivery?;
///     println!("received {}", event.id);
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// The verifier refused the delivery.
    #[error(transparent)]
    Verify(#[from] VerifyError),

    /// The body could not be read completely: the connection was closed, or the data was not valid
    /// HTTP. The status is 400, if the sender is still there to receive it.
    #[error("could not read the whole body of the delivery")]
    Body(#[source] Arc<dyn Error + Send + Sync>),

    /// The application data contains no [`Verifier`], so nothing can be verified. This happens under
    /// actix-web only. The status is 500.
    #[error("the application data contains no webhook verifier; add one with `app_data`")]
    NoVerifier,
}

impl Rejection {
    /// Returns the status to respond with.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Verify(error) => error.status(),
            Self::Body(_) => StatusCode::BAD_REQUEST,
            Self::NoVerifier => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Returns the verifier's error if the verifier refused the delivery.
    #[must_use]
    pub fn verify_error(&self) -> Option<&VerifyError> {
        match self {
            Self::Verify(error) => Some(error),
            Self::Body(_) | Self::NoVerifier => None,
        }
    }
}

/// Reads and verifies a delivery, and refuses it as early as possible: malformed headers before the
/// body is read, a `content_length` over the limit before the first byte, a longer body at the limit.
pub(super) async fn receive<S, E>(
    verifier: &Verifier,
    headers: Result<DeliveryHeaders<'_>, VerifyError>,
    content_length: Option<&[u8]>,
    body: S,
) -> Result<SignedEvent, Rejection>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    let headers = headers.inspect_err(trace::refused)?;
    let body = read(body, content_length, verifier.body_limit()).await?;

    let delivery = verifier.check_and_trace(Ok(headers), &body, verifier.clock())?;
    let event = delivery.event()?;
    let secret_name = delivery.secret_name().into();

    Ok(SignedEvent {
        event,
        body,
        secret_name,
    })
}

/// Reads a body up to `limit` bytes.
///
/// `content_length` can only end the reading early: no memory is reserved for it, and the bytes are
/// counted in any case.
async fn read<S, E>(
    mut chunks: S,
    content_length: Option<&[u8]>,
    limit: usize,
) -> Result<Bytes, Rejection>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    let too_large = || {
        let error = VerifyError::BodyTooLarge { limit };
        trace::refused(&error);
        Rejection::Verify(error)
    };
    let stated_length: Option<u64> = content_length
        .and_then(|text| str::from_utf8(text).ok())
        .and_then(|text| text.parse().ok());
    let fits = |length| usize::try_from(length).is_ok_and(|length| length <= limit);
    if !stated_length.is_none_or(fits) {
        return Err(too_large());
    }

    let mut body = BytesMut::new();
    while let Some(chunk) = poll_fn(|context| Pin::new(&mut chunks).poll_next(context)).await {
        let chunk = chunk.map_err(|error| Rejection::Body(Arc::from(error.into())))?;
        if chunk.len() > limit - body.len() {
            return Err(too_large());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}

#[cfg(test)]
mod tests {
    use std::io;

    use futures_util::{FutureExt, StreamExt, stream};

    use super::*;

    fn chunks(sizes: impl IntoIterator<Item = usize>) -> Vec<io::Result<Bytes>> {
        let filled = |size| Ok(Bytes::from(vec![b'x'; size]));
        sizes.into_iter().map(filled).collect()
    }

    #[test]
    fn nothing_is_read_after_the_chunk_that_exceeds_the_limit() {
        let mut polled = 0;
        let body = stream::iter(chunks([4, 4, 4, 4])).inspect(|_| polled += 1);

        let outcome = read(body, None, 10).now_or_never().unwrap();

        let rejection = outcome.unwrap_err();
        assert_eq!(rejection.status(), 413);
        let limit = 10;
        let error = VerifyError::BodyTooLarge { limit };
        assert_eq!(rejection.verify_error(), Some(&error));
        assert_eq!(polled, 3);
    }

    #[test]
    fn a_body_as_long_as_the_limit_is_read() {
        for sizes in [vec![10], vec![4, 6], vec![0, 9, 0, 1, 0]] {
            let body = stream::iter(chunks(sizes));

            let outcome = read(body, None, 10).now_or_never().unwrap();

            assert_eq!(outcome.unwrap(), vec![b'x'; 10]);
        }
    }

    #[test]
    fn a_broken_stream_is_rejected_with_its_cause() {
        let mut broken = chunks([4]);
        broken.push(Err(io::ErrorKind::ConnectionReset.into()));

        let outcome = read(stream::iter(broken), None, 10).now_or_never();

        let rejection = outcome.unwrap().unwrap_err();
        assert_eq!(rejection.status(), 400);
        assert_eq!(rejection.verify_error(), None);
        let cause = rejection.source().unwrap().to_string();
        assert_eq!(cause, "connection reset");
    }

    #[test]
    fn an_absurd_or_unreadable_length_reserves_no_memory_and_does_not_panic() {
        let builder = Verifier::builder().secret("2026", "6Jm0nFq2pXvZk4Tt");
        let verifier = builder.body_limit(10).build().unwrap();
        let headers = || DeliveryHeaders::from_parts(Some(&[b'0'; 64]), Some(b"1700000000"));
        for (stated, status) in [
            (&b"18446744073709551615"[..], 413),
            (b"11", 413),
            (b"10", 401),
            (b"18446744073709551616", 401),
            (b"-1", 401),
            (b"ten", 401),
            (b"\xff", 401),
        ] {
            let body = stream::iter(chunks([10]));

            let outcome = receive(&verifier, headers(), Some(stated), body).now_or_never();

            assert_eq!(outcome.unwrap().unwrap_err().status(), status, "{stated:?}");
        }
    }

    #[test]
    fn the_debug_text_of_a_signed_event_contains_neither_its_body_nor_a_secret() {
        let event = br#"{"id":"evt_1","type":"x","created_at":1,"data":{}}"#;
        let delivery = SignedEvent {
            event: Event::from_unverified_json(event).unwrap(),
            body: Bytes::from_static(event),
            secret_name: "2026".into(),
        };

        let text = format!("{delivery:?}");

        assert!(text.contains("evt_1") && text.contains("2026"), "{text}");
        assert!(!text.contains("created_at\":"), "{text}");
    }
}
