//! What the handlers of every framework share: when to refuse, how far to read, and the outcome.

use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use http::StatusCode;

use super::error::VerifyError;
use super::event::Event;
use super::signed::Signed;
use super::verifier::Verifier;

/// A delivery that was found genuine before the handler was called.
///
/// It is an argument of a handler, under [axum](super::axum) or [actix-web](super::actix). It gives
/// access to the [`Event`] as if it were one; [`into_event`](Self::into_event) takes it out.
///
/// # Example: keep the raw delivery, pass the event on
///
/// ```
/// use audience::webhooks::Event;
/// use audience::webhooks::axum::SignedEvent;
/// # fn keep(_: &str, _: &[u8]) {}
/// # fn pass_on(_: Event) {}
///
/// async fn hook(delivery: SignedEvent) {
///     keep(delivery.id.as_str(), delivery.body());
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
    /// The event alone, to match on or to send elsewhere.
    #[must_use]
    pub fn into_event(self) -> Event {
        self.event
    }

    /// The bytes that were signed, for those who keep raw deliveries. Cheap to clone.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The name of the secret that matched: when the old one of a rotation no longer turns up here,
    /// it can go.
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
/// As a response it is a status and nothing else: whoever sent a forged delivery learns no more
/// than that. The text is for logs.
///
/// # Example: a clock that is wrong is worth waking somebody up
///
/// ```
/// use audience::webhooks::VerifyError;
/// use audience::webhooks::axum::{Rejection, SignedEvent};
///
/// async fn hook(delivery: Result<SignedEvent, Rejection>) -> Result<(), Rejection> {
///     if let Err(Rejection::Verify(VerifyError::TooEarly { skew })) = &delivery {
///         eprintln!("our clock, or theirs, is {} seconds off", skew.as_secs());
///     }
///     let event = delivery?;
///     println!("{} came", event.id);
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// The verifier refused the delivery.
    #[error(transparent)]
    Verify(#[from] VerifyError),

    /// The body could not be read to its end: the connection broke, or what came over it was no
    /// HTTP. Answered with 400, where anybody is left to answer.
    #[error("the body of the delivery could not be read to its end")]
    Body(#[source] Arc<dyn Error + Send + Sync>),

    /// The application holds no [`Verifier`], so that nothing can be verified; this can happen
    /// under actix-web only. Answered with 500.
    #[error("the application data holds no webhook verifier")]
    NoVerifier,
}

impl Rejection {
    /// The status to answer with.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Verify(error) => error.status(),
            Self::Body(_) => StatusCode::BAD_REQUEST,
            Self::NoVerifier => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The verifier's reason, where it was the verifier that refused.
    #[must_use]
    pub fn verify_error(&self) -> Option<&VerifyError> {
        match self {
            Self::Verify(error) => Some(error),
            Self::Body(_) | Self::NoVerifier => None,
        }
    }
}

/// Reads and verifies a delivery, and gives up as early as it can: on the headers before the body
/// is read, on a stated length before the first byte, on the actual length at the limit.
///
/// `content_length` is what the header says. It can only shorten the matter: nothing is reserved
/// by it, and the body is counted whatever it says.
pub(super) async fn receive<S, E>(
    verifier: &Verifier,
    signed: &Signed<'_>,
    content_length: Option<&[u8]>,
    body: S,
) -> Result<SignedEvent, Rejection>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    let stated_length = content_length
        .and_then(|text| str::from_utf8(text).ok())
        .and_then(|text| text.parse().ok());
    verifier.check_early(signed, stated_length)?;

    let body = read(body, verifier).await?;
    let delivery = verifier.check(signed, &body)?;
    let event = delivery.event()?;
    let secret_name = delivery.secret_name().into();

    Ok(SignedEvent {
        event,
        body,
        secret_name,
    })
}

async fn read<S, E>(mut chunks: S, verifier: &Verifier) -> Result<Bytes, Rejection>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    let mut body = BytesMut::new();
    while let Some(chunk) = poll_fn(|context| Pin::new(&mut chunks).poll_next(context)).await {
        let chunk = chunk.map_err(|error| Rejection::Body(Arc::from(error.into())))?;
        if chunk.len() > verifier.body_limit() - body.len() {
            return Err(verifier.too_large().into());
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

    fn verifier(body_limit: usize) -> Verifier {
        let builder = Verifier::builder().secret("2026", "6Jm0nFq2pXvZk4Tt");
        builder.body_limit(body_limit).build().unwrap()
    }

    fn chunks(sizes: impl IntoIterator<Item = usize>) -> Vec<io::Result<Bytes>> {
        let filled = |size| Ok(Bytes::from(vec![b'x'; size]));
        sizes.into_iter().map(filled).collect()
    }

    #[test]
    fn nothing_is_asked_for_after_the_chunk_that_is_too_much() {
        let mut asked = 0;
        let body = stream::iter(chunks([4, 4, 4, 4])).inspect(|_| asked += 1);

        let outcome = read(body, &verifier(10)).now_or_never().unwrap();

        let rejection = outcome.unwrap_err();
        assert_eq!(rejection.status(), 413);
        let limit = 10;
        let error = VerifyError::BodyTooLarge { limit };
        assert_eq!(rejection.verify_error(), Some(&error));
        assert_eq!(asked, 3);
    }

    #[test]
    fn a_body_of_just_the_limit_is_read() {
        for sizes in [vec![10], vec![4, 6], vec![0, 9, 0, 1, 0]] {
            let body = stream::iter(chunks(sizes));

            let outcome = read(body, &verifier(10)).now_or_never().unwrap();

            assert_eq!(outcome.unwrap(), vec![b'x'; 10]);
        }
    }

    #[test]
    fn a_broken_stream_is_a_rejection_with_its_cause() {
        let mut broken = chunks([4]);
        broken.push(Err(io::ErrorKind::ConnectionReset.into()));

        let outcome = read(stream::iter(broken), &verifier(10)).now_or_never();

        let rejection = outcome.unwrap().unwrap_err();
        assert_eq!(rejection.status(), 400);
        assert_eq!(rejection.verify_error(), None);
        let cause = rejection.source().unwrap().to_string();
        assert_eq!(cause, "connection reset");
    }

    #[test]
    fn an_absurd_or_unreadable_length_reserves_nothing_and_panics_nowhere() {
        let signed = || {
            Signed::among(|name| {
                let value: &[u8] = match name.as_str() {
                    "webhook-signature" => &[b'0'; 64],
                    _ => b"1700000000",
                };
                [value].into_iter()
            })
            .unwrap()
        };
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

            let outcome = receive(&verifier(10), &signed(), Some(stated), body).now_or_never();

            assert_eq!(outcome.unwrap().unwrap_err().status(), status, "{stated:?}");
        }
    }

    #[test]
    fn a_signed_event_prints_neither_its_bytes_nor_a_secret() {
        let event = br#"{"id":"evt_1","type":"x","created_at":1,"data":{}}"#;
        let delivery = SignedEvent {
            event: Event::from_json(event).unwrap(),
            body: Bytes::from_static(event),
            secret_name: "2026".into(),
        };

        let text = format!("{delivery:?}");

        assert!(text.contains("evt_1") && text.contains("2026"), "{text}");
        assert!(!text.contains("created_at\":"), "{text}");
    }
}
