//! Tells a test or a log about each request as soon as it is handled.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::recorded_request::RecordedRequest;

/// A request that the server has handled, for [`MockServerBuilder::on_request`](super::MockServerBuilder::on_request).
///
/// It has no headers and no body, so that it can be printed: headers hold keys.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandledRequest {
    /// The method as sent, such as `POST`.
    pub method: String,
    /// The path as sent: percent-encoded, without the query.
    pub path: String,
    /// The query as sent: percent-encoded, without the question mark. `None` if there was no question mark.
    pub query: Option<String>,
    /// The status of the response. `None` if a [`Fault`](super::Fault) closed the connection without a response or sent
    /// something other than HTTP.
    pub status: Option<u16>,
    /// The reason that the request was refused; see [`RecordedRequest::reason`].
    pub reason: Option<String>,
    /// The time from the headers of the request to its response, in real time. The delay of a fault is part of it.
    pub duration: Duration,
}

/// The function that is called for each handled request, if there is one.
#[derive(Clone, Default)]
pub(super) struct RequestObserver(Option<Arc<Observe>>);

type Observe = dyn Fn(&HandledRequest) + Send + Sync;

/// A request that is being handled. `None` if nobody observes it.
pub(super) type Observed = Option<(HandledRequest, Instant)>;

impl RequestObserver {
    pub(super) fn new(observe: impl Fn(&HandledRequest) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(observe)))
    }

    /// Notes a request whose headers were received at `received`.
    pub(super) fn start(&self, request: &RecordedRequest, received: Instant) -> Observed {
        self.0.as_ref()?;
        let handled = HandledRequest {
            method: request.method.clone(),
            path: request.path.clone(),
            query: request.query.clone(),
            status: None,
            reason: None,
            duration: Duration::ZERO,
        };
        Some((handled, received))
    }

    /// Tells about a request that was noted, and how it was handled.
    pub(super) fn finish(&self, observed: Observed, status: Option<u16>, reason: Option<String>) {
        if let (Some(observe), Some((handled, received))) = (&self.0, observed) {
            observe(&HandledRequest {
                status,
                reason,
                duration: received.elapsed(),
                ..handled
            });
        }
    }
}

impl fmt::Debug for RequestObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.0.is_some() { "set" } else { "none" };
        write!(f, "RequestObserver({state})")
    }
}
