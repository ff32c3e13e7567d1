//! What the state machine returns: a reply, a refusal of section 7, an event to deliver.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::{Value, json};

use super::address::printable;
use super::dialect::{BatchRefusal, ErrorShape};

/// A refused request, or a refused entry of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The HTTP status. A batch entry shows only the slug.
    pub(crate) status: u16,
    /// The slug, such as `not_found`.
    pub(crate) code: Cow<'static, str>,
    /// The message for the person who debugs the request.
    pub(crate) message: String,
}

impl Refusal {
    /// Creates a refusal with any status and slug. The other constructors make those of section 7.
    pub(in crate::mock) fn new(
        status: u16,
        code: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            status,
            code: code.into(),
            message: message.into(),
        }
    }

    /// Creates a 422 `validation_error`: a body, query or path is invalid.
    pub(in crate::mock) fn invalid(message: impl Into<String>) -> Self {
        Self::new(422, "validation_error", message)
    }

    /// Creates a 401 `unauthorized`: no valid key. The document names neither status nor slug; this is the mock's choice.
    pub(super) fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(401, "unauthorized", message)
    }

    /// Creates a 403 `key_not_permitted`: a sending-access key on an audience endpoint (section 5).
    pub(super) fn key_not_permitted() -> Self {
        Self::new(
            403,
            "key_not_permitted",
            "the audience endpoints need a full-access key, not a sending-access key",
        )
    }

    /// Creates a 404 `not_found`: an unknown path, contact, topic or segment.
    pub(in crate::mock) fn not_found(message: impl Into<String>) -> Self {
        Self::new(404, "not_found", message)
    }

    /// Creates a 404 `not_found`: a known path, but a method that section 4 does not show for it.
    pub(super) fn unknown_method(method: &str, allowed: &str) -> Self {
        let method = printable(method);
        Self::not_found(format!(
            "this path does not support `{method}`; use {allowed}"
        ))
    }

    /// Creates a 409 `already_exists`: a create with `on_conflict` `error` for a stored address (section 4.1).
    pub(super) fn already_exists(address: &str) -> Self {
        let message =
            format!("the contact `{address}` already exists, and `on_conflict` is `error`");
        Self::new(409, "already_exists", message)
    }

    /// Creates a 402 `quota_exceeded`: a new contact when the ceiling is reached (section 8).
    pub(super) fn quota_exceeded(ceiling: u64) -> Self {
        let message = format!("the ceiling of {ceiling} contacts is reached");
        Self::new(402, "quota_exceeded", message)
    }

    /// Creates a 422 `failed_precondition`: a subscribe after a spam report (section 3.2).
    pub(super) fn complaint_locked(address: &str) -> Self {
        let message = format!(
            "`{address}` reported spam; the service no longer records consent for this address"
        );
        Self::new(422, "failed_precondition", message)
    }

    /// Creates the refusal of a batch of zero or more than 100 entries (section 4.2). The dialect decides its status and
    /// slug.
    pub(super) fn batch(message: impl Into<String>, choice: BatchRefusal) -> Self {
        match choice {
            BatchRefusal::Unprocessable => Self::invalid(message),
            BatchRefusal::BadRequest => Self::new(400, "bad_request", message),
        }
    }

    /// Returns the response that states this refusal, with its body in the given shape.
    pub(in crate::mock) fn reply(&self, shape: ErrorShape) -> Reply {
        Reply {
            reason: Some(self.message.clone()),
            ..Reply::json(self.status, &self.body(shape))
        }
    }

    fn body(&self, shape: ErrorShape) -> Value {
        let Self { code, message, .. } = self;
        match shape {
            ErrorShape::NestedCode => json!({"error": {"code": code, "message": message}}),
            ErrorShape::NestedSlug => json!({"error": {"slug": code, "message": message}}),
            ErrorShape::NestedType => json!({"error": {"type": code, "message": message}}),
            ErrorShape::Code => json!({"code": code, "message": message}),
            ErrorShape::Slug => json!({"slug": code, "message": message}),
            ErrorShape::Error => json!({"error": code, "message": message}),
            ErrorShape::Type => json!({"type": code, "message": message}),
            ErrorShape::Name => json!({"name": code, "message": message}),
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_shape_has_the_slug_and_the_message_in_their_documented_members() {
        let refusal = Refusal::not_found("there is no topic `news`");
        let shapes = [
            (ErrorShape::NestedCode, "/error/code", "/error/message"),
            (ErrorShape::NestedSlug, "/error/slug", "/error/message"),
            (ErrorShape::NestedType, "/error/type", "/error/message"),
            (ErrorShape::Code, "/code", "/message"),
            (ErrorShape::Slug, "/slug", "/message"),
            (ErrorShape::Error, "/error", "/message"),
            (ErrorShape::Type, "/type", "/message"),
            (ErrorShape::Name, "/name", "/message"),
        ];
        for (shape, code, message) in shapes {
            let reply = refusal.reply(shape);
            let body: Value = serde_json::from_slice(&reply.body).unwrap();

            assert_eq!(reply.status, 404);
            assert_eq!(body.pointer(code), Some(&json!("not_found")), "{shape:?}");
            assert_eq!(
                body.pointer(message),
                Some(&json!("there is no topic `news`"))
            );
        }
    }
}
