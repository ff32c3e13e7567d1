use std::error::Error;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use futures_core::Stream;
use http::header::{CONTENT_LENGTH, HeaderMap, HeaderValue, TRANSFER_ENCODING};
use http_body::Body;

use super::body::IncomingBody;
use super::receive::receive;
use super::rejection::Rejection;
use crate::webhooks::delivery_headers::DeliveryHeaders;
use crate::webhooks::verified_event::VerifiedEvent;
use crate::webhooks::verifier::Verifier;

/// Reads and verifies a delivery of a framework that uses the `http` and `http-body` crates.
pub(in crate::webhooks) async fn receive_http<B>(
    verifier: &Verifier,
    headers: &HeaderMap,
    body: B,
) -> Result<VerifiedEvent, Rejection>
where
    B: Body,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let body = pin!(body);
    let body = IncomingBody {
        content_length: headers.get(CONTENT_LENGTH).map(HeaderValue::as_bytes),
        // The body of a chunked request does not know its end before it is read.
        is_consumed: body.is_end_stream() && headers.contains_key(TRANSFER_ENCODING),
        chunks: DataFrames(body),
    };

    receive(verifier, DeliveryHeaders::from_map(headers), body).await
}

/// The data of a body. Its trailers are an empty chunk.
struct DataFrames<'b, B>(Pin<&'b mut B>);

impl<B: Body> Stream for DataFrames<'_, B> {
    type Item = Result<Bytes, B::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let frame = ready!(self.0.as_mut().poll_frame(context)?);
        let bytes = frame.map(|frame| match frame.into_data() {
            Ok(mut data) => data.copy_to_bytes(data.remaining()),
            Err(_) => Bytes::new(),
        });
        Poll::Ready(bytes.map(Ok))
    }
}
