//! Handles a request: reads its body, and passes it to the control plane or to the service.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::{CONNECTION, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderValue, Request, Response};
use hyper::body::Incoming;

use super::control::access::AllowedHosts;
use super::control::{self, ControlResponse};
use super::http_response::{ResponseBody, event_stream, http_response};
use super::recorded_request::RecordedRequest;
use super::recorded_request::RequestObserver;
use super::request_body::{BodyError, BodyReader};
use super::response::{Disconnect, MockResponse};
use super::service::refusal::Refusal;
use super::shared::Shared;
use super::state::Exchange;
use crate::Timestamp;

/// The longest request body that is read, in bytes.
pub(super) const BODY_LIMIT: usize = 16 * 1024 * 1024;

/// The bytes of request bodies that are read at once, over all connections.
pub(super) const TOTAL_BODY_LIMIT: usize = 64 * 1024 * 1024;

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
    pub(super) bodies: BodyReader,
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
            bodies: BodyReader::new(BODY_LIMIT, TOTAL_BODY_LIMIT, BODY_TIMEOUT),
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
        let (body, held_bytes) = match self.bodies.read(&head, body).await {
            Ok(read) => read,
            Err(BodyError::Refused(refusal)) => {
                return Ok(http_response(self.refuse_unread(&head, refusal)));
            }
            Err(BodyError::ConnectionLost) => return Err(Disconnect::default()),
        };
        let request = recorded_request(&head, body, shared.clock.now());
        if control::is_control_path(&request.path) {
            return Ok(match control::respond(shared, &request).await {
                ControlResponse::Whole(response) => http_response(response),
                ControlResponse::Changes(changes) => event_stream(changes),
            });
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
