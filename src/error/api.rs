use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde_json::{Map, Value};

use crate::string_enum::string_enum;

/// The headers that commonly hold the id of a request.
const REQUEST_IDS: [&str; 5] = [
    "x-request-id",
    "request-id",
    "x-correlation-id",
    "x-amzn-requestid",
    "x-trace-id",
];

/// How the names of headers about rate limits commonly start.
const RATE_LIMITS: [&str; 3] = ["ratelimit", "x-ratelimit", "x-rate-limit"];

/// The response with which the service refused a request.
///
/// The interface document does not show the shape of an error body (section 7). The client therefore
/// looks for the slug and the message in every place where services commonly put them, and always
/// keeps the body. A body over 1 MiB is kept, but not searched.
///
/// If an earlier 429 holds back the client, nothing is sent, so there is no response. The status is then
/// 429, `retry_after` is the time left, and the headers and the body are empty. See
/// [`RetryPolicy`](crate::RetryPolicy#retry-after).
///
/// `Debug` prints the status, the slug if it consists only of `a-z` and `_`, the `Retry-After` and the
/// length of the body, but never the message, the headers or the body.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiError {
    status: StatusCode,
    code: Option<ErrorCode>,
    message: Option<String>,
    retry_after: Option<Duration>,
    redirected_to: Option<String>,
    has_target: bool,
    is_object: bool,
    headers: HeaderMap,
    body: Bytes,
}

impl ApiError {
    /// Creates a refusal, for a unit test of how a program handles it. It has no headers and no body. An
    /// empty message means none.
    ///
    /// # Example: in a unit test
    ///
    /// ```
    /// use audience::{ApiError, Error, ErrorCode, StatusCode};
    ///
    /// fn explain(error: &Error) -> &'static str {
    ///     if error.is_not_found() { "no such contact" } else { "try again later" }
    /// }
    ///
    /// let refusal = ApiError::new(StatusCode::NOT_FOUND, ErrorCode::NotFound, "no contact ada@example.com");
    ///
    /// assert_eq!(explain(&Error::refused(refusal)), "no such contact");
    /// ```
    pub fn new(
        status: StatusCode,
        code: impl Into<Option<ErrorCode>>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            code: code.into(),
            message: Some(message.into()).filter(|message| !message.is_empty()),
            is_object: true,
            ..Self::from_response(status, HeaderMap::new(), Bytes::new())
        }
    }

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

    /// Returns the headers of the response.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Returns the id of the request, for a question to the service's support.
    ///
    /// The interface document shows no such header. The id is taken from the first of `x-request-id`,
    /// `request-id`, `x-correlation-id`, `x-amzn-requestid` and `x-trace-id` that the response has.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        REQUEST_IDS
            .iter()
            .filter_map(|name| self.headers.get(*name)?.to_str().ok())
            .find(|id| !id.is_empty())
    }

    /// Returns the headers about rate limits with their values: those whose names start with
    /// `ratelimit`, `x-ratelimit` or `x-rate-limit`. The names are in lower case.
    ///
    /// The interface document shows no rate limits (section 8), so the values are not interpreted.
    pub fn rate_limit_headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.headers.iter().filter_map(|(name, value)| {
            let name = name.as_str();
            let is_limit = RATE_LIMITS.iter().any(|start| name.starts_with(start));
            Some((name, value.to_str().ok().filter(|_| is_limit)?))
        })
    }

    /// Returns the body, unchanged. It is empty if the response has no body, or one that does not decompress
    /// or exceeds the [`body_limit`](crate::ClientBuilder::body_limit).
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    pub(crate) fn from_response(status: StatusCode, headers: HeaderMap, body: Bytes) -> Self {
        let read = ErrorBody::read(status, &body);
        Self {
            status,
            is_object: read.is_some(),
            code: read.as_ref().and_then(|read| read.code.clone()),
            message: read.and_then(|read| read.message),
            retry_after: None,
            redirected_to: None,
            has_target: true,
            headers,
            body,
        }
    }

    /// Adds the wait that the response asks for.
    pub(crate) fn asking_to_wait(mut self, retry_after: Option<Duration>) -> Self {
        self.retry_after = retry_after;
        self
    }

    /// Adds the name of a redirect's target. Redirects are not followed.
    pub(crate) fn redirected_to(mut self, target: Option<String>) -> Self {
        self.redirected_to = target;
        self
    }

    /// Adds whether the request names a contact, topic or segment that may not exist.
    pub(crate) fn about_target(mut self, has_target: bool) -> Self {
        self.has_target = has_target;
        self
    }

    /// Returns whether the response is this refusal: it has this slug, or it has no slug but this status
    /// and a JSON object as its body, as the service responds. A proxy's page is not the service's word.
    pub(super) fn is(&self, code: &ErrorCode, bare_status: Option<StatusCode>) -> bool {
        match &self.code {
            Some(given) => given == code,
            None => self.is_object && bare_status == Some(self.status),
        }
    }

    /// Returns whether a contact, topic or segment that the request names does not exist.
    pub(super) fn is_not_found(&self) -> bool {
        self.has_target && self.is(&ErrorCode::NotFound, Some(StatusCode::NOT_FOUND))
    }

    /// Returns whether a 404 most likely comes from somewhere other than the endpoint.
    fn is_foreign_404(&self) -> bool {
        let is_bare = self.code.is_none() && !self.is_object;
        self.status == StatusCode::NOT_FOUND && (!self.has_target || is_bare)
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
        if let Some(target) = &self.redirected_to {
            return format!(
                "the service responded {status}, a redirect to {target}, which is not followed; check the base URL"
            );
        }
        let mut text = format!("the service responded {status}");
        if let Some(code) = self.printable_code() {
            text = format!("{text} {code}");
        }
        if self.is_foreign_404() {
            text += "; check the base URL";
        } else if self.status == StatusCode::UNAUTHORIZED {
            text += ": the key is wrong or belongs to another environment, or the service expects it in another way (see `Auth`)";
        }
        text
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

string_enum! {
    /// The slug with which the service says why it refused (interface section 7).
    ///
    /// A refused request has it on its [`ApiError`](crate::ApiError); a failed batch entry has its own.
    /// A slug that this version of the crate does not know is kept verbatim as [`ErrorCode::Other`]. In
    /// a response, a known slug is recognized in any case, and with `-` for `_`.
    ///
    /// # Example: slugs and variants
    ///
    /// ```
    /// use audience::ErrorCode;
    ///
    /// assert_eq!(ErrorCode::from("quota_exceeded"), ErrorCode::QuotaExceeded);
    /// assert_eq!(ErrorCode::QuotaExceeded.as_str(), "quota_exceeded");
    /// assert_eq!(ErrorCode::from("on_holiday").as_str(), "on_holiday");
    /// ```
    pub enum ErrorCode {
        /// `validation_error`, 422: the address is not an email address, the properties are not a
        /// JSON object, or the sender declared a complaint. Fix the input; the message says which.
        ValidationError = "validation_error",
        /// `already_exists`, 409: the address already exists, and the create call set
        /// [`OnConflict::Error`](crate::contacts::OnConflict::Error).
        AlreadyExists = "already_exists",
        /// `quota_exceeded`, 402: the write would exceed the plan's ceiling of stored contacts.
        /// Waiting does not help.
        QuotaExceeded = "quota_exceeded",
        /// `key_not_permitted`, 403: a sending-access key was used on the audience. Use a full-access
        /// key.
        KeyNotPermitted = "key_not_permitted",
        /// `not_found`, 404: the address is not a contact of the caller, or the topic does not exist.
        NotFound = "not_found",
        /// `failed_precondition`, 422: a subscribe for a contact who reported spam. The service does
        /// not let a sender subscribe the contact again.
        FailedPrecondition = "failed_precondition",
    }
}

impl ErrorCode {
    /// Reads a slug as services write it: case does not matter, and `-` stands for `_`. A slug that is
    /// not known is kept verbatim.
    pub(crate) fn from_slug(text: &str) -> Self {
        let snake_case = text.to_ascii_lowercase().replace('-', "_");
        let known = Self::KNOWN.iter().find(|code| code.as_str() == snake_case);
        known.cloned().unwrap_or_else(|| Self::from(text))
    }
}

/// The parts of an error body that are understood.
#[derive(Debug, Default, PartialEq, Eq)]
struct ErrorBody {
    code: Option<ErrorCode>,
    message: Option<String>,
}

/// The members of an error object that may hold a slug, the most likely first.
const SLUGS: [&str; 7] = [
    "code",
    "slug",
    "error_code",
    "error",
    "type",
    "name",
    "status",
];

/// The members of an error object that may hold a message.
const MESSAGES: [&str; 3] = ["message", "detail", "reason"];

/// Members that are a message unless they look like a slug.
const SENTENCES: [&str; 3] = ["error", "description", "title"];

/// Words that say only that there is an error.
const GENERIC: [&str; 5] = ["error", "errors", "fail", "failed", "failure"];

/// The longest body that is searched, in bytes. Parsed JSON takes many times the memory of its text.
const LONGEST: usize = 1024 * 1024;

type Object = Map<String, Value>;

impl ErrorBody {
    /// Reads the slug and the message. Returns `None` if the body is not a JSON object or is longer than
    /// 1 MiB.
    ///
    /// A slug that the interface document names takes precedence over any other. A status is not a
    /// slug, whether written in digits or as its HTTP reason phrase.
    fn read(status: StatusCode, body: &[u8]) -> Option<Self> {
        if body.len() > LONGEST {
            return None;
        }
        let Ok(Value::Object(whole)) = serde_json::from_slice(body) else {
            return None;
        };
        let parts = parts(&whole);
        let slugs: Vec<ErrorCode> = texts(&whole, &SLUGS[..4])
            .chain(parts.iter().flat_map(|part| texts(part, &SLUGS)))
            .chain(texts(&whole, &SLUGS[4..]))
            .filter(|text| is_slug(text) && !is_status(text, status))
            .map(ErrorCode::from_slug)
            .collect();
        let documented = slugs.iter().find(|code| ErrorCode::KNOWN.contains(code));
        let message = texts(&whole, &MESSAGES)
            .chain(parts.iter().flat_map(|part| texts(part, &MESSAGES)))
            .chain(texts(&whole, &SENTENCES).filter(|text| !is_slug(text)))
            .next();
        Some(Self {
            code: documented.or(slugs.first()).cloned(),
            message: message.map(str::to_owned),
        })
    }
}

/// Returns the error objects inside the body: `error`, `detail`, and those in the array `errors`.
fn parts(whole: &Object) -> Vec<&Object> {
    let nested = ["error", "detail"]
        .iter()
        .filter_map(|name| whole.get(*name));
    let listed = whole.get("errors").and_then(Value::as_array);
    nested
        .chain(listed.into_iter().flatten())
        .filter_map(Value::as_object)
        .collect()
}

/// Returns the members with these names that hold non-empty text, in the order of the names.
fn texts<'a>(object: &'a Object, names: &[&str]) -> impl Iterator<Item = &'a str> + use<'a> {
    let found = names.iter().filter_map(|name| object.get(*name)?.as_str());
    let found: Vec<_> = found.filter(|text| !text.is_empty()).collect();
    found.into_iter()
}

/// Returns whether a text looks like a slug rather than a sentence or an address.
fn is_slug(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
        && !GENERIC.iter().any(|word| text.eq_ignore_ascii_case(word))
}

fn is_status(text: &str, status: StatusCode) -> bool {
    let phrase = status.canonical_reason().unwrap_or_default();
    text.eq_ignore_ascii_case(phrase) || text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slug_is_read_without_regard_to_case_and_with_hyphens() {
        for text in ["not_found", "not-found", "NOT_FOUND", "Not-Found"] {
            assert_eq!(ErrorCode::from_slug(text), ErrorCode::NotFound);
        }
        assert_eq!(ErrorCode::from_slug("On-Holiday").as_str(), "On-Holiday");
    }

    #[test]
    fn the_known_slugs_are_those_of_section_7() {
        let slugs = ErrorCode::KNOWN.iter().map(ErrorCode::as_str);

        assert!(slugs.eq([
            "validation_error",
            "already_exists",
            "quota_exceeded",
            "key_not_permitted",
            "not_found",
            "failed_precondition",
        ]));
    }

    fn unprocessable(body: &str) -> ErrorBody {
        ErrorBody::read(StatusCode::UNPROCESSABLE_ENTITY, body.as_bytes()).unwrap_or_default()
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
            r#"{"error_code": "not_found", "message": "m"}"#,
            r#"{"status": "not_found", "message": "m"}"#,
            r#"{"status": "error", "code": "NOT_FOUND", "message": "m"}"#,
            r#"{"errors": [{"code": "not_found", "message": "m"}]}"#,
            r#"{"errors": ["x", {"code": "other"}, {"status": "404", "code": "not-found", "detail": "m"}]}"#,
            r#"{"detail": {"code": "not_found", "message": "m"}}"#,
            r#"{"error": {"error": "not_found", "message": "m"}}"#,
            r#"{"error": {"code": 404, "status": "NOT_FOUND", "message": "m"}}"#,
        ] {
            let read = unprocessable(body);

            assert_eq!(read.code, Some(ErrorCode::NotFound), "{body}");
            assert_eq!(read.message.as_deref(), Some("m"), "{body}");
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
            r#"{"status": "error", "errors": []}"#,
            r#"{"code": "Failed", "errors": [[], {}]}"#,
        ] {
            assert_eq!(unprocessable(body).code, None, "{body}");
        }
    }

    #[test]
    fn a_body_over_1_mib_is_not_searched() {
        let object = r#"{"code": "not_found"}"#;
        let body = |length: usize| object.to_owned() + &" ".repeat(length - object.len());

        assert_eq!(
            unprocessable(&body(LONGEST)).code,
            Some(ErrorCode::NotFound)
        );
        assert_eq!(unprocessable(&body(LONGEST + 1)), ErrorBody::default());
    }

    #[test]
    fn a_sentence_or_a_url_is_not_a_slug() {
        let sentence = unprocessable(r#"{"error": "Not Found"}"#);
        let problem = unprocessable(
            r#"{"type": "https://example.com/not-found", "title": "No such contact"}"#,
        );

        assert_eq!(
            (sentence.code, sentence.message.as_deref()),
            (None, Some("Not Found"))
        );
        assert_eq!(
            (problem.code, problem.message.as_deref()),
            (None, Some("No such contact"))
        );
    }
}
