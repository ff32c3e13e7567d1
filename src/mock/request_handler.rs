//! Handles a request: reads its body, and passes it to the control plane or to the service.

use std::error::Error;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::{CONNECTION, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::control;
use super::control::access::AllowedHosts;
use super::recorded_request::{RecordedRequest, RequestObserver};
use super::response::{Disconnect, MockResponse, ResponseBody, http_response};
use super::service::refusal::Refusal;
use super::shared::Shared;
use super::state::Exchange;
use crate::Timestamp;

/// The longest request body that is read, in bytes.
const BODY_LIMIT: usize = 16 * 1024 * 1024;

/// The bytes of request bodies that are read at once, over all connections.
const TOTAL_BODY_LIMIT: usize = 64 * 1024 * 1024;

/// The time a client has for a request body.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// Handles the requests of all connections: the state of the service, and who may control it.
#[derive(Debug)]
pub(super) struct RequestHandler {
    pub(super) shared: Arc<Shared>,
    /// The address that the server listens on, which can be the unspecified one.
    pub(super) ip: IpAddr,
    allowed_hosts: AllowedHosts,
    observer: RequestObserver,
    /// The time for a whole body.
    pub(super) body_timeout: Duration,
    /// One permit for each byte of the bodies that are being read.
    free_bytes: Semaphore,
}

/// The reason that a body could not be read.
enum BodyError {
    /// The rest of the body is not read. The client gets a response.
    Refused(Refusal),
    /// The client closed the connection. There is nobody to respond to.
    ConnectionLost,
}

impl RequestHandler {
    pub(super) fn new(
        shared: Arc<Shared>,
        ip: IpAddr,
        allowed_hosts: AllowedHosts,
        observer: RequestObserver,
    ) -> Self {
        Self {
            shared,
            ip,
            allowed_hosts,
            observer,
            body_timeout: BODY_TIMEOUT,
            free_bytes: Semaphore::new(TOTAL_BODY_LIMIT),
        }
    }

    /// Handles a request that arrived at the address `connection_ip`. An error means that the connection is to be closed.
    pub(super) async fn handle(
        &self,
        connection_ip: IpAddr,
        request: Request<Incoming>,
    ) -> Result<Response<ResponseBody>, Disconnect> {
        let shared = &self.shared;
        let (head, body) = request.into_parts();
        if control::is_control_path(head.uri.path())
            && let Err(refusal) = self.allowed_hosts.check(&head, &[self.ip, connection_ip])
        {
            return Ok(http_response(self.refuse_unread(&head, refusal)));
        }
        let received = Instant::now();
        let (body, held_bytes) = match self.read_body(body).await {
            Ok(read) => read,
            Err(BodyError::Refused(refusal)) => {
                return Ok(http_response(self.refuse_unread(&head, refusal)));
            }
            Err(BodyError::ConnectionLost) => return Err(Disconnect::default()),
        };
        let request = recorded_request(&head, body, shared.clock.now());
        if control::is_control_path(&request.path) {
            return Ok(control::respond(shared, &request).await);
        }
        let observed = self.observer.start(&request, received);
        let Exchange {
            delay,
            response,
            status,
            reason,
        } = shared.handle(request);
        // From here on, only the journal holds the body.
        drop(held_bytes);
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        self.observer.finish(observed, status, reason);
        response.map(http_response)
    }

    /// Reads a body. Its bytes count as held until the permit is dropped.
    async fn read_body(&self, body: Incoming) -> Result<(Vec<u8>, SemaphorePermit<'_>), BodyError> {
        if body.size_hint().lower() > BODY_LIMIT as u64 {
            return Err(too_long());
        }
        tokio::time::timeout(self.body_timeout, self.collect(body))
            .await
            .unwrap_or_else(|_| {
                let message = format!(
                    "the request body did not arrive within {:?}",
                    self.body_timeout
                );
                Err(Refusal::new(408, "request_timeout", message).into())
            })
    }

    async fn collect(&self, body: Incoming) -> Result<(Vec<u8>, SemaphorePermit<'_>), BodyError> {
        let mut body = Limited::new(body, BODY_LIMIT);
        // Copied, so that the journal does not keep a read buffer alive.
        let mut bytes = Vec::new();
        let mut held = self.hold(0)?;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| read_error(&*error))?;
            if let Some(data) = frame.data_ref() {
                held.merge(self.hold(data.len())?);
                bytes.extend_from_slice(data);
            }
        }
        Ok((bytes, held))
    }

    fn hold(&self, bytes: usize) -> Result<SemaphorePermit<'_>, BodyError> {
        u32::try_from(bytes)
            .ok()
            .and_then(|bytes| self.free_bytes.try_acquire_many(bytes).ok())
            .ok_or_else(|| {
                let message =
                    "the server is reading too many large request bodies at once; retry later";
                Refusal::new(503, "service_unavailable", message).into()
            })
    }

    /// Returns the response to a request whose body is not read to its end, and records the request without its body.
    ///
    /// The error has the dialect's shape, unless the request is for the control plane.
    fn refuse_unread(&self, head: &Parts, refusal: Refusal) -> MockResponse {
        let mut response: MockResponse = if control::is_control_path(head.uri.path()) {
            refusal.into()
        } else {
            let mut request = recorded_request(head, Vec::new(), self.shared.clock.now());
            request.status = Some(refusal.status);
            request.reason = Some(refusal.message.clone());
            let observed = self.observer.start(&request, Instant::now());
            let (status, reason) = (request.status, request.reason.clone());
            self.observer.finish(observed, status, reason);
            let mut state = self.shared.lock();
            state.journal.push(request);
            state
                .audience
                .error_reply(refusal.status, &refusal.code, &refusal.message)
                .into()
        };
        let close = HeaderValue::from_static("close");
        response.headers.push((CONNECTION, close));
        if response.status == 503 {
            let soon = HeaderValue::from_static("1");
            response.headers.push((RETRY_AFTER, soon));
        }
        response
    }
}

fn recorded_request(head: &Parts, body: Vec<u8>, at: Timestamp) -> RecordedRequest {
    let headers = head
        .headers
        .iter()
        .map(|(name, value)| {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            (name.as_str().to_owned(), value)
        })
        .collect();

    RecordedRequest {
        method: head.method.as_str().to_owned(),
        path: head.uri.path().to_owned(),
        query: head.uri.query().map(str::to_owned),
        headers,
        body,
        status: None,
        reason: None,
        at,
    }
}

impl From<Refusal> for BodyError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

fn too_long() -> BodyError {
    let message = format!("the request body is longer than {BODY_LIMIT} bytes");
    Refusal::new(413, "payload_too_large", message).into()
}

fn read_error(error: &(dyn Error + 'static)) -> BodyError {
    if error.is::<LengthLimitError>() {
        return too_long();
    }
    let cause = error
        .source()
        .and_then(|source| source.downcast_ref::<io::Error>());
    match cause.map(io::Error::kind) {
        Some(io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData) => {
            let message = "the request body is not valid chunked encoding";
            Refusal::new(400, "bad_request", message).into()
        }
        _ => BodyError::ConnectionLost,
    }
}
