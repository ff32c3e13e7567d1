use std::error::Error;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use futures_core::Stream;

use super::body_timer::BodyTimer;
use super::rejection::Rejection;
use crate::webhooks::error::VerifyError;
use crate::webhooks::read_limits::{Reservation, SMALL_BODY};
use crate::webhooks::verifier::Verifier;

/// The body of a request that is not read yet.
pub(in crate::webhooks) struct IncomingBody<'r, S> {
    /// The value of `Content-Length`.
    pub(in crate::webhooks) content_length: Option<&'r [u8]>,
    /// Whether the framework knows that the request had a body and that it is gone.
    pub(in crate::webhooks) is_consumed: bool,
    pub(in crate::webhooks) chunks: S,
}

impl<S, E> IncomingBody<'_, S>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    /// Reads the body, up to the limits of `verifier` for its length, its time and the memory of all
    /// bodies. The memory stays reserved until the second value is dropped.
    ///
    /// `Content-Length` can only end the reading early: no memory is reserved for it, and the bytes
    /// are counted in any case.
    pub(super) async fn read(
        mut self,
        verifier: &Verifier,
    ) -> Result<(Bytes, Reservation), Rejection> {
        let limit = verifier.body_limit();
        let too_large = || Rejection::from(VerifyError::BodyTooLarge { limit });
        let stated_length: Option<u64> = self
            .content_length
            .and_then(|text| str::from_utf8(text).ok())
            .and_then(|text| text.parse().ok());
        let fits = |length| usize::try_from(length).is_ok_and(|length| length <= limit);
        if !stated_length.is_none_or(fits) {
            return Err(too_large());
        }
        if self.is_consumed {
            return Err(Rejection::BodyConsumed);
        }

        let limits = verifier.read_limits();
        let mut memory = limits.reserve(limit);
        let mut timer = BodyTimer::new(limits.timeout);
        let mut body = Vec::new();
        while let Some(chunk) = self.next_chunk(&mut timer).await? {
            if chunk.len() > limit - body.len() {
                return Err(too_large());
            }
            let needed = body.len() + chunk.len();
            if needed > body.capacity() {
                // A small body stays small, even if there is room for more.
                let most = if needed <= SMALL_BODY {
                    limit.min(SMALL_BODY)
                } else {
                    limit
                };
                let capacity = needed.max(body.capacity().saturating_mul(2).min(most));
                if !memory.grow_to(capacity) {
                    let limit = memory.limit();
                    return Err(Rejection::BodyMemory { limit });
                }
                body.reserve_exact(capacity - body.len());
            }
            body.extend_from_slice(&chunk);
        }
        // The server has compared the length that it received with the stated one.
        if body.is_empty() && stated_length.is_some_and(|length| length > 0) {
            return Err(Rejection::BodyConsumed);
        }
        Ok((body.into(), memory))
    }

    /// Returns the next chunk that is not empty.
    async fn next_chunk(&mut self, timer: &mut BodyTimer) -> Result<Option<Bytes>, Rejection> {
        poll_fn(
            |context| match Pin::new(&mut self.chunks).poll_next(context) {
                // No limit of length ends a body of empty chunks, so the timer must.
                Poll::Ready(Some(Ok(chunk))) if chunk.is_empty() => {
                    context.waker().wake_by_ref();
                    timer.poll(context).map(Err)
                }
                Poll::Ready(chunk) => Poll::Ready(
                    chunk
                        .transpose()
                        .map_err(|error| Rejection::Body(Arc::from(error.into()))),
                ),
                Poll::Pending => timer.poll(context).map(Err),
            },
        )
        .await
    }
}
