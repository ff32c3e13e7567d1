//! The state of a mock server, and what a request does to it. Does no I/O.

use std::time::Duration;

use http::StatusCode;
use http::header::CONTENT_TYPE;
use tokio::task::JoinSet;

use super::delivery::{Deliveries, Endpoints, NewEvent, SigningClock};
use super::faults::{Active, Fault, FaultKind};
use super::journal::Journal;
use super::recorded_request::RecordedRequest;
use super::response::{Disconnect, MockResponse};
use super::service::audience::Audience;
use super::service::refusal::Reply;

/// The state that a server starts with and that a reset restores.
#[derive(Clone, Debug)]
pub(super) struct InitialState {
    pub(super) audience: Audience,
    pub(super) endpoints: Endpoints,
    pub(super) signing_clock: SigningClock,
}

/// The state of a mock server. It is behind one lock, which is never held across an await.
#[derive(Debug)]
pub(super) struct State {
    pub(super) audience: Audience,
    pub(super) faults: Active<Fault>,
    pub(super) journal: Journal,
    pub(super) deliveries: Deliveries,
    /// The tasks that make delivery attempts. Dropping the set aborts them.
    pub(super) attempt_tasks: JoinSet<()>,
    /// How often the server has been reset. Attempts and waits from before a reset are abandoned.
    pub(super) resets: u64,
    /// How often a move of the clock was canceled because the clock was set to an earlier time.
    pub(super) canceled_clock_moves: u64,
    /// Whether the server is shutting down: nothing is started and nobody waits any longer.
    pub(super) is_closed: bool,
}

impl State {
    pub(super) fn new(initial: InitialState) -> Self {
        Self {
            audience: initial.audience,
            faults: Active::default(),
            journal: Journal::default(),
            deliveries: Deliveries::new(initial.endpoints, initial.signing_clock),
            attempt_tasks: JoinSet::new(),
            resets: 0,
            canceled_clock_moves: 0,
            is_closed: false,
        }
    }

    /// Restores the initial state and aborts running attempts. The numbers of events continue.
    pub(super) fn reset(&mut self, initial: InitialState) {
        self.audience = initial.audience;
        self.deliveries
            .reset(initial.endpoints, initial.signing_clock);
        self.attempt_tasks = JoinSet::new();
        self.faults.clear();
        self.journal.clear();
        self.resets += 1;
    }

    /// Handles a request to the service that arrives at `now`: takes the fault that matches it, applies the request to the
    /// audience if the fault allows it, records it in the journal, and publishes the events it causes. Returns whether
    /// there are any.
    pub(super) fn handle(&mut self, mut request: RecordedRequest, now: i64) -> (Exchange, bool) {
        let fault = self
            .faults
            .take(|fault| fault.matches(&request.method, &request.path));
        let kind = fault.as_ref().map(Fault::kind);
        let reply = match kind {
            Some(FaultKind::Status(status)) => fault_reply(status, &self.audience),
            Some(FaultKind::CloseBefore | FaultKind::Garbage) => Reply::default(),
            None
            | Some(
                FaultKind::AlteredResponse
                | FaultKind::CloseAfter
                | FaultKind::CloseMidBody
                | FaultKind::CloseReset,
            ) => self.audience.handle(&request, now),
        };
        request.status = kind
            .is_none_or(FaultKind::sends_status)
            .then_some(reply.status);
        request.reason = kind
            .and_then(reason_of_fault)
            .map(str::to_owned)
            .or_else(|| reply.reason.clone());
        let (status, reason) = (request.status, request.reason.clone());
        self.journal.push(request);
        let response = MockResponse::from(reply);
        let (delay, response) = match fault {
            None => (Duration::ZERO, Ok(response)),
            Some(fault) => apply_fault(fault, response),
        };
        let exchange = Exchange {
            delay,
            response,
            status,
            reason,
        };
        (exchange, self.publish_outbox(now).is_some())
    }

    /// Publishes the events of the delayed mail that is due by `now`.
    pub(super) fn publish_delayed(&mut self, now: i64) {
        self.audience.deliver_delayed(now);
        self.publish_outbox(now);
    }

    /// Publishes the events that the audience caused. Returns the number and the id of the last, or `None` if there
    /// were none.
    pub(super) fn publish_outbox(&mut self, now: i64) -> Option<(u64, String)> {
        let events = self.audience.take_events().into_iter();
        // The audience has already recorded them as engagement.
        events
            .map(|event| self.deliveries.publish(event.into(), now))
            .last()
    }

    /// Records an event that a test sends as engagement and schedules its delivery. Returns its number and its id.
    pub(super) fn publish(&mut self, event: NewEvent, now: i64) -> (u64, String) {
        let at = event.created_at.unwrap_or(now);
        self.audience
            .record_event(&event.event_type, &event.data, at);
        self.deliveries.publish(event, now)
    }
}

/// Bytes that no HTTP client can read as a response.
const GARBAGE: &[u8] = b"\x16\x03\x01 this is not HTTP\r\n\r\n";

/// The response to send, and the delay before it.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) delay: Duration,
    pub(super) response: Result<MockResponse, Disconnect>,
    /// The status and the reason that the journal has.
    pub(super) status: Option<u16>,
    pub(super) reason: Option<String>,
}

/// Returns the response for a [`Fault::status`].
///
/// An error has a body in the dialect's shape, with a slug made from the name of the status, such as
/// `service_unavailable`.
fn fault_reply(status: u16, audience: &Audience) -> Reply {
    let reason = "the test asked for this response";
    if status < 400 {
        return Reply {
            status,
            reason: Some(reason.to_owned()),
            ..Reply::default()
        };
    }
    audience.error_reply(status, &slug_of_status(status), reason)
}

/// Returns what a fault does to the connection, as the reason that the journal shows. `None` if the reply has it.
fn reason_of_fault(kind: FaultKind) -> Option<&'static str> {
    match kind {
        FaultKind::Status(_) | FaultKind::AlteredResponse => None,
        FaultKind::CloseBefore => {
            Some("a fault closed the connection before the request was applied")
        }
        FaultKind::CloseAfter => {
            Some("a fault closed the connection after the request was applied")
        }
        FaultKind::CloseMidBody => Some("a fault closed the connection in the response body"),
        FaultKind::CloseReset => Some("a fault reset the connection in the response body"),
        FaultKind::Garbage => Some("a fault sent bytes that are not HTTP"),
    }
}

/// Returns the name of a status as a slug: lowercase letters and underscores. `fault` if the status has no name.
fn slug_of_status(status: u16) -> String {
    let name = StatusCode::from_u16(status)
        .ok()
        .and_then(|status| status.canonical_reason())
        .unwrap_or("fault");
    name.chars()
        .filter_map(|character| match character {
            ' ' | '-' => Some('_'),
            letter if letter.is_ascii_alphabetic() => Some(letter.to_ascii_lowercase()),
            _ => None,
        })
        .collect()
}

/// Returns the delay of the response, and what is sent instead of it.
fn apply_fault(
    fault: Fault,
    mut response: MockResponse,
) -> (Duration, Result<MockResponse, Disconnect>) {
    let kind = fault.kind();
    let (delay, body, headers) = fault.into_parts();
    response.headers.extend(headers);
    let sent = match kind {
        FaultKind::Status(_) | FaultKind::AlteredResponse => {
            response.body = body.unwrap_or(response.body);
            Ok(response)
        }
        FaultKind::CloseBefore | FaultKind::CloseAfter => Err(Disconnect::default()),
        FaultKind::CloseMidBody | FaultKind::CloseReset => {
            response.body = body.unwrap_or(response.body);
            Err(Disconnect {
                bytes: truncated_response(&response),
                reset: kind == FaultKind::CloseReset,
            })
        }
        FaultKind::Garbage => Err(Disconnect {
            bytes: body.unwrap_or_else(|| GARBAGE.to_vec()),
            reset: false,
        }),
    };
    (delay, sent)
}

/// Returns the bytes of a response up to the middle of its body.
fn truncated_response(response: &MockResponse) -> Vec<u8> {
    let reason = StatusCode::from_u16(response.status)
        .ok()
        .and_then(|status| status.canonical_reason())
        .unwrap_or("");
    let mut bytes = format!("HTTP/1.1 {} {reason}\r\n", response.status).into_bytes();
    if !response
        .headers
        .iter()
        .any(|(name, _)| name == CONTENT_TYPE)
    {
        bytes.extend_from_slice(b"content-type: application/json\r\n");
    }
    for (name, value) in &response.headers {
        bytes.extend_from_slice(name.as_str().as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    // At least one byte is announced and not sent, even if the body is empty.
    let content_length = response.body.len().max(1);
    bytes.extend_from_slice(format!("content-length: {content_length}\r\n\r\n").as_bytes());
    bytes.extend_from_slice(&response.body[..response.body.len() / 2]);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slug_of_a_status_has_only_lowercase_letters_and_underscores() {
        assert_eq!(slug_of_status(503), "service_unavailable");
        assert_eq!(slug_of_status(418), "im_a_teapot");
        assert_eq!(slug_of_status(799), "fault");
        for status in 400..=999 {
            let slug = slug_of_status(status);

            let is_slug = slug.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
            assert!(is_slug && !slug.is_empty(), "{status}: {slug}");
        }
    }
}
