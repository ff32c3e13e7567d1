//! Every way the service says no (section 7), and the body that says so.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::dialect::{BatchRefusal, ErrorShape};
use super::message::Reply;

/// A refused request, or a refused entry of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) code: Cow<'static, str>,
    pub(crate) message: String,
}

impl Refusal {
    /// Creates a refusal with any status and slug. The other constructors have those of section 7.
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

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(422, "validation_error", message)
    }

    pub(crate) fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(401, "unauthorized", message)
    }

    pub(crate) fn key_not_permitted() -> Self {
        Self::new(
            403,
            "key_not_permitted",
            "the audience needs a full-access key, not a sending-access key",
        )
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(404, "not_found", message)
    }

    /// An endpoint that the document does not show, though the path has others.
    pub(crate) fn no_such_method(method: &str, allowed: &str) -> Self {
        let method = method.escape_debug();
        Self::not_found(format!(
            "there is nothing for `{method}` at this path, only for {allowed}"
        ))
    }

    pub(crate) fn already_exists(address: &str) -> Self {
        let message = format!("`{address}` is a contact already, and `on_conflict` is `error`");
        Self::new(409, "already_exists", message)
    }

    pub(crate) fn quota_exceeded(ceiling: u64) -> Self {
        let message = format!("the plan's ceiling of {ceiling} contacts is reached");
        Self::new(402, "quota_exceeded", message)
    }

    pub(crate) fn complaint_locked(address: &str) -> Self {
        let message =
            format!("`{address}` reported spam; consent cannot be recorded for it any more");
        Self::new(422, "failed_precondition", message)
    }

    pub(crate) fn batch(message: impl Into<String>, answer: BatchRefusal) -> Self {
        match answer {
            BatchRefusal::Unprocessable => Self::invalid(message),
            BatchRefusal::BadRequest => Self::new(400, "bad_request", message),
        }
    }

    /// Returns the response that states this refusal, with its body in the given shape.
    pub(in crate::mock) fn reply(&self, shape: ErrorShape) -> Reply {
        Reply {
            status: self.status,
            body: self.body(shape).to_string().into_bytes(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_holds_slug_and_message_where_its_name_says() {
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
