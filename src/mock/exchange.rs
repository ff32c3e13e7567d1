//! One request and what comes back, faults included. Nothing here waits.

use std::fmt;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, StatusCode};
use serde_json::json;

use super::faults::{Fault, Kind};
use super::journal::RecordedRequest;
use super::service::audience::Audience;
use super::service::message::{Reply, Request};
use super::state::State;

/// What a connection is to do.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) delay: Duration,
    pub(super) answer: Result<Answer, Hangup>,
}

/// An ordinary answer. The body is JSON, unless the headers say otherwise.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) body: Vec<u8>,
}

impl Answer {
    /// An error of the mock's own making, in the shape that the service's errors have by default.
    pub(super) fn error(status: u16, code: &str, message: &str) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: json!({"error": {"code": code, "message": message}})
                .to_string()
                .into_bytes(),
        }
    }
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        Self {
            status: reply.status,
            headers: Vec::new(),
            body: reply.body,
        }
    }
}

/// Ends the connection instead of answering: these bytes go out as they are, then it is closed or reset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Hangup {
    pub(super) bytes: Vec<u8>,
    pub(super) reset: bool,
}

impl fmt::Display for Hangup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the connection ends here by a fault that was asked for")
    }
}

impl std::error::Error for Hangup {}

/// Applies `request`, unless a fault says otherwise, and writes it down with what is answered.
pub(super) fn exchange(state: &mut State, mut request: RecordedRequest, now: i64) -> Exchange {
    let fault = state.faults.take(&request.method, &request.path);
    let applied = match fault.as_ref().map(|fault| fault.kind) {
        None | Some(Kind::Answered | Kind::CloseAfter | Kind::CutBody | Kind::ResetBody) => {
            state.audience.handle(&as_sent(&request), now).into()
        }
        Some(Kind::Status(status)) => made_up(&state.audience, status),
        Some(Kind::CloseBefore | Kind::Garbage) => Answer::default(),
    };
    let exchange = match fault {
        None => Exchange {
            delay: Duration::ZERO,
            answer: Ok(applied),
        },
        Some(fault) => spoil(fault, applied, &mut request),
    };
    if let Ok(answer) = &exchange.answer {
        request.status = Some(answer.status);
    }
    state.journal.push(request);
    exchange
}

fn as_sent(request: &RecordedRequest) -> Request<'_> {
    Request {
        method: &request.method,
        path: &request.path,
        query: request.query.as_deref(),
        headers: &request.headers,
        body: &request.body,
    }
}

/// What a status that the test asked for looks like: a slug made from its name, as `service_unavailable`.
fn made_up(audience: &Audience, status: u16) -> Answer {
    if status < 400 {
        return Answer {
            status,
            ..Answer::default()
        };
    }
    let name = StatusCode::from_u16(status)
        .ok()
        .and_then(|status| status.canonical_reason())
        .unwrap_or("fault");
    let slug = name.to_ascii_lowercase().replace([' ', '-'], "_");
    let message = "the test asked for this answer";
    audience.error_reply(status, &slug, message).into()
}

fn spoil(fault: Fault, mut answer: Answer, request: &mut RecordedRequest) -> Exchange {
    let kind = fault.kind;
    answer.headers.extend(fault.headers);
    let answer = match kind {
        Kind::Status(_) | Kind::Answered => {
            if let Some(body) = fault.body {
                answer.body = body;
            }
            Ok(answer)
        }
        Kind::CloseBefore | Kind::CloseAfter => Err(Hangup::default()),
        Kind::CutBody | Kind::ResetBody => {
            if let Some(body) = fault.body {
                answer.body = body;
            }
            request.status = Some(answer.status);
            Err(Hangup {
                bytes: half(&answer),
                reset: kind == Kind::ResetBody,
            })
        }
        Kind::Garbage => Err(Hangup {
            bytes: fault
                .body
                .unwrap_or_else(|| b"\x16\x03\x01 this is not HTTP\r\n\r\n".to_vec()),
            reset: false,
        }),
    };
    Exchange {
        delay: fault.delay,
        answer,
    }
}

/// The answer as it stands on the wire, but for the second half of its body.
fn half(answer: &Answer) -> Vec<u8> {
    let reason = StatusCode::from_u16(answer.status)
        .ok()
        .and_then(|status| status.canonical_reason())
        .unwrap_or("");
    let mut bytes = format!("HTTP/1.1 {} {reason}\r\n", answer.status).into_bytes();
    if !answer.headers.iter().any(|(name, _)| name == CONTENT_TYPE) {
        bytes.extend_from_slice(b"content-type: application/json\r\n");
    }
    for (name, value) in &answer.headers {
        bytes.extend_from_slice(name.as_str().as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    // Announces one byte at least that does not come, also where there is no body.
    let announced = answer.body.len().max(1);
    bytes.extend_from_slice(format!("content-length: {announced}\r\n\r\n").as_bytes());
    bytes.extend_from_slice(&answer.body[..answer.body.len() / 2]);
    bytes
}
