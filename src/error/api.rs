use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Map, Value};

use super::code::ErrorCode;

/// The response with which the service refused a request.
///
/// The interface document does not show the shape of an error body (section 7). The client therefore
/// looks for the slug and the message in every place where services commonly put them, and always
/// keeps the body.
///
/// `Debug` prints the status, the slug if it consists only of `a-z` and `_`, the `Retry-After` and the
/// length of the body, but never the message or the body.
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
    /// Returns the HTTP status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the slug, if the body has one. It is never guessed from the status.
    ///
    /// # Example: act on a slug
    ///
    /// ```
    /// # #[cfg(feature = "mock")]
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # let error = contacts.retrieve("nobody@example.com").await.unwrap_err();
    /// # let refusal = error.api().unwrap();
    /// use audience::ErrorCode;
    ///
    /// match refusal.code() {
    ///     Some(ErrorCode::NotFound) => println!("no contact with this address"),
    ///     Some(code) => println!("refused: {code}"),
    ///     None => println!("refused with status {}", refusal.status()),
    /// }
    /// # assert_eq!(refusal.code(), Some(&ErrorCode::NotFound));
    /// # }
    /// # #[cfg(not(feature = "mock"))] fn main() {}
    /// ```
    #[must_use]
    pub fn code(&self) -> Option<&ErrorCode> {
        self.code.as_ref()
    }

    /// Returns the service's message, if the body has one. It may name an address or a topic.
    ///
    /// # Example: why the input was refused
    ///
    /// ```
    /// # #[cfg(feature = "mock")]
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # let new_contact = audience::contacts::NewContact::new("not an address");
    /// let error = contacts.create(new_contact).await.unwrap_err();
    ///
    /// let message = error.api().and_then(|refusal| refusal.message());
    /// println!("the service says: {}", message.unwrap_or("nothing"));
    /// # assert!(message.is_some());
    /// # }
    /// # #[cfg(not(feature = "mock"))] fn main() {}
    /// ```
    #[must_use]
    pub fn message(&self) -> Option<&str> {
        self.message.as_deref()
    }

    /// Returns how long the service asked to wait, if the response has a `Retry-After` header.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Returns the body, unchanged. It is empty if the response has no body.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    pub(crate) fn new(status: StatusCode, retry_after: Option<Duration>, body: Bytes) -> Self {
        let (code, message) = slug_and_message(status, &body);
        Self {
            status,
            code,
            message,
            retry_after,
            redirected_to: None,
            body,
        }
    }

    /// Adds the host that the `Location` of a 3xx names. Redirects are not followed.
    pub(crate) fn redirected_to(mut self, host: Option<String>) -> Self {
        self.redirected_to = host;
        self
    }

    /// Returns the slug if it consists only of `a-z` and `_`. A slug with other characters may be an
    /// address that the server echoes, which must not be printed.
    fn printable_code(&self) -> Option<&str> {
        let is_word = |slug: &&str| {
            slug.bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        };
        self.code.as_ref().map(ErrorCode::as_str).filter(is_word)
    }

    /// Returns the text that `Error` prints: status and slug, never the message or the body.
    pub(crate) fn summary(&self) -> String {
        let status = self.status.as_u16();
        if let Some(host) = &self.redirected_to {
            return format!(
                "the service responded {status}, a redirect to {host}, which is not followed"
            );
        }
        match self.printable_code() {
            Some(code) => format!("the service responded {status} {code}"),
            None => format!("the service responded {status}"),
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

/// Whether a text looks like a slug rather than a sentence or an address.
fn is_slug(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
}

/// Reads the slug and the message from any of the common shapes of an error body.
///
/// A slug that the interface document names takes precedence over any other. A status is not a slug,
/// whether written in digits or as its HTTP reason phrase.
fn slug_and_message(status: StatusCode, body: &[u8]) -> (Option<ErrorCode>, Option<String>) {
    let Ok(Value::Object(members)) = serde_json::from_slice(body) else {
        return (None, None);
    };
    let none = Map::new();
    let nested = members
        .get("error")
        .and_then(Value::as_object)
        .unwrap_or(&none);
    let is_status = |text: &str| {
        let phrase = status.canonical_reason().unwrap_or_default();
        text.eq_ignore_ascii_case(phrase) || text.bytes().all(|byte| byte.is_ascii_digit())
    };
    let slugs: Vec<ErrorCode> = texts(&members, &["code", "slug", "error"])
        .chain(texts(nested, &["code", "slug", "type", "name"]))
        .chain(texts(&members, &["type", "name"]))
        .filter(|text| is_slug(text) && !is_status(text))
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

/// Returns the members with these names that hold non-empty text, in the order of the names.
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

    fn unprocessable(body: &'static str) -> ApiError {
        ApiError::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            None,
            Bytes::from_static(body.as_bytes()),
        )
    }

    #[test]
    fn slug_and_message_are_found_in_every_common_shape() {
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
            let api = unprocessable(body);

            assert_eq!(api.code(), Some(&ErrorCode::NotFound), "{body}");
            assert_eq!(api.message(), Some("m"), "{body}");
            assert_eq!(api.body(), body.as_bytes());
        }
    }

    #[test]
    fn no_code_is_read_from_a_body_without_a_slug() {
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
            assert_eq!(unprocessable(body).code(), None, "{body}");
        }
    }

    #[test]
    fn a_sentence_or_a_url_is_not_a_slug() {
        let sentence = unprocessable(r#"{"error": "Not Found"}"#);
        let problem = unprocessable(
            r#"{"type": "https://example.com/not-found", "title": "No such contact"}"#,
        );

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
