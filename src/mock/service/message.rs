//! The types that the state machine exchanges with the HTTP layers above it: a request, a reply, an event to deliver.

use serde::Serialize;
use serde_json::Value;

/// A request as it was received. Nothing in it is decoded or checked yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    /// The method, such as `POST`. Methods are case-sensitive.
    pub(crate) method: &'a str,
    /// The path, percent-encoded, without the query.
    pub(crate) path: &'a str,
    /// The query string, percent-encoded, without the question mark.
    pub(crate) query: Option<&'a str>,
    /// The headers: names in lower case, one entry for each occurrence.
    pub(crate) headers: &'a [(String, String)],
    /// The body. Empty if the request has none.
    pub(crate) body: &'a [u8],
}

/// The response to a request. The body is JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    /// The message of the refusal. `None` if the request was not refused.
    pub(crate) reason: Option<String>,
}

impl Reply {
    /// Creates a reply with `body` serialized as JSON.
    pub(super) fn json(status: u16, body: &impl Serialize) -> Self {
        Self {
            status,
            body: serde_json::to_vec(body)
                .expect("strings, numbers and maps with string keys always serialize to JSON"),
            reason: None,
        }
    }
}

/// An event for the webhook endpoints (section 6).
///
/// Its id is set by the code that delivers it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OutgoingEvent {
    /// The event type, such as `email.sent` (section 6.1).
    pub(crate) event_type: String,
    /// The `data` member of the envelope (section 6.3).
    pub(crate) data: Value,
    /// When it happened, in Unix seconds: the `created_at` member of the envelope.
    pub(crate) at: i64,
}
