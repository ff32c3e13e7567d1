use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Map, Value};

use super::ErrorCode;

/// What the service answered when it refused.
///
/// The interface document does not show the shape of an error body (section 7), so slug and message
/// are looked for wherever services put them; the body itself is kept in any case.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiError {
    status: StatusCode,
    code: Option<ErrorCode>,
    message: Option<String>,
    retry_after: Option<Duration>,
    redirected_to: Option<String>,
    body: Bytes,
}

impl ApiError {
    /// The HTTP status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The slug, if the body holds one. Never guessed from the status.
    #[must_use]
    pub fn code(&self) -> Option<&ErrorCode> {
        self.code.as_ref()
    }

    /// The service's own words, if the body holds any. They may name an address or a topic.
    #[must_use]
    pub fn message(&self) -> Option<&str> {
        self.message.as_deref()
    }

    /// How long the service asked to wait, by a `Retry-After` header.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The body as it came; empty where there was none.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    pub(crate) fn new(status: StatusCode, retry_after: Option<Duration>, body: Bytes) -> Self {
        let (code, message) = read(status, &body);
        Self {
            status,
            code,
            message,
            retry_after,
            redirected_to: None,
            body,
        }
    }

    /// For a 3xx: the host that its `Location` names, which is not followed.
    pub(crate) fn redirected_to(mut self, host: Option<String>) -> Self {
        self.redirected_to = host;
        self
    }

    /// The slug, if it is plainly a word of the service's: what a server echoes must not be printed.
    fn printable_code(&self) -> Option<&str> {
        let word = |slug: &&str| {
            slug.bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        };
        self.code.as_ref().map(ErrorCode::as_str).filter(word)
    }

    /// What `Error` prints: status and slug, never the words of the body.
    pub(crate) fn summary(&self) -> String {
        let status = self.status.as_u16();
        if let Some(host) = &self.redirected_to {
            return format!(
                "the service answered {status}, a redirect to {host}, which is not followed"
            );
        }
        match self.printable_code() {
            Some(code) => format!("the service answered {status} {code}"),
            None => format!("the service answered {status}"),
        }
    }
}

impl fmt::Debug for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiError")
            .field("status", &self.status.as_u16())
            .field("code", &self.printable_code())
            .field("retry_after", &self.retry_after)
            .field("body", &format_args!("<{} bytes>", self.body.len()))
            .finish_non_exhaustive()
    }
}

/// Whether a text looks like a slug, and not like a sentence or an address.
fn is_slug(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
}

/// Slug and message, from any of the shapes that error bodies come in. A slug that the document names
/// goes before any other word, and a status is no slug, be it in digits or in HTTP's own words.
fn read(status: StatusCode, body: &[u8]) -> (Option<ErrorCode>, Option<String>) {
    let Ok(Value::Object(members)) = serde_json::from_slice(body) else {
        return (None, None);
    };
    let none = Map::new();
    let nested = members
        .get("error")
        .and_then(Value::as_object)
        .unwrap_or(&none);
    let repeats_status = |text: &str| {
        let phrase = status.canonical_reason().unwrap_or_default();
        text.eq_ignore_ascii_case(phrase) || text.bytes().all(|byte| byte.is_ascii_digit())
    };
    let slugs: Vec<ErrorCode> = texts(&members, &["code", "slug", "error"])
        .chain(texts(nested, &["code", "slug", "type", "name"]))
        .chain(texts(&members, &["type", "name"]))
        .filter(|text| is_slug(text) && !repeats_status(text))
        .map(ErrorCode::from)
        .collect();
    let documented = slugs.iter().find(|code| ErrorCode::KNOWN.contains(code));
    let code = documented.or(slugs.first()).cloned();
    let message = texts(&members, &["message", "detail", "reason"])
        .chain(texts(nested, &["message", "detail", "reason"]))
        .chain(texts(&members, &["error", "description", "title"]).filter(|text| !is_slug(text)))
        .next()
        .map(str::to_owned);
    (code, message)
}

/// Those of the named members that hold text, in the order of the names.
fn texts<'a>(members: &'a Map<String, Value>, names: &[&str]) -> impl Iterator<Item = &'a str> {
    let found = names.iter().filter_map(|name| members.get(*name)?.as_str());
    found
        .filter(|text| !text.is_empty())
        .collect::<Vec<_>>()
        .into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api(body: &'static str) -> ApiError {
        ApiError::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            None,
            Bytes::from_static(body.as_bytes()),
        )
    }

    #[test]
    fn slug_and_message_are_found_in_every_shape() {
        for body in [
            r#"{"code": "not_found", "message": "m"}"#,
            r#"{"slug": "not_found", "message": "m"}"#,
            r#"{"error": "not_found", "message": "m"}"#,
            r#"{"error": {"code": "not_found", "message": "m"}}"#,
            r#"{"error": {"slug": "not_found", "message": "m"}}"#,
            r#"{"error": {"type": "not_found", "message": "m"}}"#,
            r#"{"error": {"name": "not_found", "detail": "m"}}"#,
            r#"{"type": "not_found", "detail": "m"}"#,
            r#"{"name": "not_found", "message": "m", "statusCode": 422}"#,
            r#"{"code": 422, "error": {"code": "not_found"}, "message": "m"}"#,
        ] {
            let api = api(body);

            assert_eq!(api.code(), Some(&ErrorCode::NotFound), "{body}");
            assert_eq!(api.message(), Some("m"), "{body}");
            assert_eq!(api.body(), body.as_bytes());
        }
    }

    #[test]
    fn a_body_without_a_slug_has_no_code() {
        for body in [
            r#"{"code": "422"}"#,
            r#"{"error": "Unprocessable Content", "message": "m"}"#,
            "",
            "null",
            "[]",
            "<html>422</html>",
            "{}",
            r#"{"code": 422}"#,
            r#"{"code": ""}"#,
            "{\"code",
        ] {
            assert_eq!(api(body).code(), None, "{body}");
        }
    }

    #[test]
    fn a_sentence_or_an_address_where_a_slug_might_stand_is_no_slug() {
        let sentence = api(r#"{"error": "Not Found"}"#);
        let problem =
            api(r#"{"type": "https://example.com/not-found", "title": "No such contact"}"#);

        assert_eq!(
            (sentence.code(), sentence.message()),
            (None, Some("Not Found"))
        );
        assert_eq!(
            (problem.code(), problem.message()),
            (None, Some("No such contact"))
        );
    }
}
