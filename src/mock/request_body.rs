//! Reads the bodies of requests.

use std::error::Error;
use std::io;

use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::service::refusal::Refusal;

/// Why there is no complete body.
#[derive(Debug)]
pub(super) enum BodyError {
    /// The rest of the body is not read. The client gets a response.
    Refused(Refusal),
    ConnectionLost,
}

/// Reads a body of at most `limit` bytes.
pub(super) async fn read(
    head: &Parts,
    mut body: Incoming,
    limit: usize,
) -> Result<Vec<u8>, BodyError> {
    let content_length = head
        .headers
        .get(CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok());
    if content_length
        .and_then(|length| length.parse().ok())
        .is_some_and(|length: u64| length > limit as u64)
    {
        return Err(too_long(limit));
    }
    // Copied, so that the journal does not keep a read buffer alive.
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| read_error(&error))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if data.len() > limit - bytes.len() {
            return Err(too_long(limit));
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes)
}

fn too_long(limit: usize) -> BodyError {
    let message = format!("the request body is longer than {limit} bytes");
    BodyError::Refused(Refusal::new(413, "payload_too_large", message))
}

fn read_error(error: &hyper::Error) -> BodyError {
    let cause = error
        .source()
        .and_then(|source| source.downcast_ref::<io::Error>());
    match cause.map(io::Error::kind) {
        Some(io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData) => {
            let message = "the request body is not valid chunked encoding";
            BodyError::Refused(Refusal::new(400, "bad_request", message))
        }
        _ => BodyError::ConnectionLost,
    }
}
