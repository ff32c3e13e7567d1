use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use super::body::ErrorBody;
use super::code::ErrorCode;

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
    /// assert_eq!(explain(&Error::from(refusal)), "no such contact");
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
