//! Reads the bodies of requests, within limits of length, time and memory.

use std::error::Error;
use std::io;
use std::time::Duration;

use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::service::refusal::Refusal;

/// The reason that a body could not be read.
#[derive(Debug)]
pub(super) enum BodyError {
    /// The rest of the body is not read. The client gets a response.
    Refused(Refusal),
    /// The client closed the connection. There is nobody to respond to.
    ConnectionLost,
}

/// Reads bodies, so that no number of clients makes the server use up the memory or wait forever.
#[derive(Debug)]
pub(super) struct BodyReader {
    /// The longest body, in bytes.
    limit: usize,
    /// The time for a whole body.
    timeout: Duration,
    /// One permit for each byte that can be held at once, over all connections.
    free_bytes: Semaphore,
}

impl BodyReader {
    pub(super) fn new(limit: usize, total_limit: usize, timeout: Duration) -> Self {
        Self {
            limit,
            timeout,
            free_bytes: Semaphore::new(total_limit.min(Semaphore::MAX_PERMITS)),
        }
    }

    /// Reads a body. Its bytes count as held until the permit is dropped.
    pub(super) async fn read(
        &self,
        head: &Parts,
        body: Incoming,
    ) -> Result<(Vec<u8>, SemaphorePermit<'_>), BodyError> {
        let content_length = head
            .headers
            .get(CONTENT_LENGTH)
            .and_then(|length| length.to_str().ok());
        if content_length
            .and_then(|length| length.parse().ok())
            .is_some_and(|length: u64| length > self.limit as u64)
        {
            return Err(too_long(self.limit));
        }
        tokio::time::timeout(self.timeout, self.collect(body))
            .await
            .unwrap_or_else(|_| Err(too_slow(self.timeout)))
    }

    async fn collect(
        &self,
        mut body: Incoming,
    ) -> Result<(Vec<u8>, SemaphorePermit<'_>), BodyError> {
        // Copied, so that the journal does not keep a read buffer alive.
        let mut bytes = Vec::new();
        let mut held = self.hold(0)?;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| read_error(&error))?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            if data.len() > self.limit - bytes.len() {
                return Err(too_long(self.limit));
            }
            held.merge(self.hold(data.len())?);
            bytes.extend_from_slice(&data);
        }
        Ok((bytes, held))
    }

    fn hold(&self, bytes: usize) -> Result<SemaphorePermit<'_>, BodyError> {
        u32::try_from(bytes)
            .ok()
            .and_then(|bytes| self.free_bytes.try_acquire_many(bytes).ok())
            .ok_or_else(too_busy)
    }
}

fn too_long(limit: usize) -> BodyError {
    let message = format!("the request body is longer than {limit} bytes");
    BodyError::Refused(Refusal::new(413, "payload_too_large", message))
}

fn too_slow(timeout: Duration) -> BodyError {
    let message = format!("the request body did not arrive within {timeout:?}");
    BodyError::Refused(Refusal::new(408, "request_timeout", message))
}

fn too_busy() -> BodyError {
    let message = "the server is reading too many large request bodies at once; retry later";
    BodyError::Refused(Refusal::new(503, "service_unavailable", message))
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
