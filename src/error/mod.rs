//! Why a call failed: [`Error`], and the parts that a program asks it for.

mod api;

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};

pub use api::{ApiError, ErrorCode};

/// Why a call failed.
///
/// The type is opaque and one word wide. It has a method for each question that a program may ask:
///
/// - [`kind`](Error::kind): where the call failed, and so who can fix it;
/// - [`api`](Error::api) and [`status`](Error::status): the service's response, if it refused;
/// - predicates such as [`is_not_found`](Error::is_not_found): the documented refusals;
/// - [`is_retryable`](Error::is_retryable) and [`retry_after`](Error::retry_after): whether and when
///   calling again may help;
/// - [`outcome`](Error::outcome): whether a write may have been applied anyway;
/// - [`attempts`](Error::attempts): how many attempts were made.
///
/// After retries, the error is that of the last attempt, except that the outcome covers all of them.
///
/// Neither `Display` nor `Debug` prints an address, a key or the text of a body, so an error can be
/// logged without redaction. The service's message is at [`ApiError::message`].
///
/// In a unit test, [`refused`](Error::refused) creates the error of a refusal. The mock's faults cause the other
/// kinds, such as a timeout.
///
/// # Example: a refusal and its text
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// # let server = audience::mock::MockServer::start().await;
/// # let contacts = server.client().contacts();
/// let error = contacts.retrieve("nobody@example.com").await.unwrap_err();
///
/// assert!(error.is_not_found());
/// assert_eq!(error.to_string(), "retrieve: the service responded 404 not_found");
/// # }
/// ```
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    operation: Option<&'static str>,
    message: Cow<'static, str>,
    api: Option<ApiError>,
    outcome: Outcome,
    attempts: u32,
    is_retryable: bool,
    body: Option<Bytes>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// Returns where the call failed.
    ///
    /// # Example: an argument that cannot be sent
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// use audience::{Client, ErrorKind};
    ///
    /// let contacts = Client::new("https://api.example.com/v1", "key")?.contacts();
    ///
    /// let error = contacts.retrieve("").await.unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Input);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the service's response if it refused the request.
    ///
    /// `None` unless the kind is [`ErrorKind::Api`].
    ///
    /// # Example: status, slug and message
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::contacts::NewContact;
    ///
    /// let error = contacts.create(NewContact::new("not an address")).await.unwrap_err();
    ///
    /// if let Some(refusal) = error.api() {
    ///     println!("{} {:?} {:?}", refusal.status(), refusal.code(), refusal.message());
    /// }
    /// # assert_eq!(error.api().unwrap().status(), 422);
    /// # }
    /// ```
    #[must_use]
    pub fn api(&self) -> Option<&ApiError> {
        self.0.api.as_ref()
    }

    /// Returns the slug of the refusal, if the response has one.
    ///
    /// Short for [`ApiError::code`] of [`api`](Error::api).
    #[must_use]
    pub fn code(&self) -> Option<&ErrorCode> {
        self.api().and_then(ApiError::code)
    }

    /// Returns whether the write may have been applied anyway.
    ///
    /// # Example: a failed connection applied nothing
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// use audience::contacts::NewContact;
    /// use audience::{Client, Outcome, RetryPolicy};
    ///
    /// let nobody_listens_here = "http://127.0.0.1:1";
    /// let client = Client::builder(nobody_listens_here, "key")
    ///     .retry(RetryPolicy::none())
    ///     .build()?;
    ///
    /// let error = client.contacts().create(NewContact::new("ada@example.com")).await.unwrap_err();
    /// assert_eq!(error.outcome(), Outcome::NotSent);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.0.outcome
    }

    /// Returns whether the same call may succeed later, without a change to its arguments or to the
    /// client's settings.
    ///
    /// True if the service could not be reached, did not respond in time, broke the connection, or
    /// responded 408, 429, 500, 502, 503 or 504. Wait before you call again, as long as
    /// [`retry_after`](Error::retry_after) says.
    ///
    /// This does not say that calling again is safe: the write may have been applied anyway. See
    /// [`outcome`](Error::outcome) and [`RetryPolicy`](crate::RetryPolicy).
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.0.is_retryable
    }

    /// Returns the body of the response: of a refusal, or of a 2xx response that could not be decoded.
    ///
    /// If only one item of a list is malformed, it is the JSON of that item. `None` if there is no
    /// response, or if its body could not be read to its end. Neither `Display` nor `Debug` prints it.
    ///
    /// # Example: keep what could not be decoded
    ///
    /// ```
    /// # fn keep(_: &[u8]) {}
    /// # async fn example(contacts: audience::contacts::Contacts) {
    /// use audience::ErrorKind;
    ///
    /// if let Err(error) = contacts.retrieve("ada@example.com").await
    ///     && error.kind() == ErrorKind::Decode
    ///     && let Some(body) = error.body()
    /// {
    ///     keep(body);
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn body(&self) -> Option<&[u8]> {
        self.0.body.as_deref().or(self.api().map(ApiError::body))
    }

    /// Returns how many attempts were made: 0 if the call failed before the first, more than 1 after
    /// retries. A failed connection counts as an attempt.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.0.attempts
    }
}

impl Error {
    /// Creates the error of a write that was refused at its first attempt, for example for a unit test: see
    /// [`ApiError::new`].
    ///
    /// The status decides [`outcome`](Error::outcome) and [`is_retryable`](Error::is_retryable), as it does for
    /// a real response.
    ///
    /// # Example: a service that is overloaded
    ///
    /// ```
    /// use audience::{ApiError, Error, Outcome, StatusCode};
    ///
    /// let error = Error::refused(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, None, ""));
    ///
    /// assert!(error.is_retryable());
    /// assert_eq!(error.outcome(), Outcome::Unknown);
    /// ```
    #[must_use]
    pub fn refused(api: ApiError) -> Self {
        let outcome = Outcome::from_status(api.status(), &Method::POST);
        Self::from_response(api, outcome).after(1, Outcome::NotSent)
    }
}

impl Error {
    /// Returns whether the contact, topic or segment that the call names does not exist.
    ///
    /// True for the slug `not_found`, and for a 404 without a slug whose body is a JSON object. Any other
    /// 404 most likely comes from a proxy or a wrong base URL, and the error's text says so.
    ///
    /// A create, a batch and a list without a segment name nothing that may be missing. For them this is
    /// always `false`, even with the slug, which [`code`](Error::code) still returns.
    ///
    /// # Example: a contact that may not exist
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// let contact = match contacts.retrieve("nobody@example.com").await {
    ///     Ok(contact) => Some(contact),
    ///     Err(error) if error.is_not_found() => None,
    ///     Err(error) => return Err(error),
    /// };
    /// # assert_eq!(contact, None);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.api().is_some_and(ApiError::is_not_found)
    }

    /// Returns whether a create call with
    /// [`OnConflict::Error`](crate::contacts::OnConflict::Error) was refused because the address
    /// already exists.
    ///
    /// True for the slug `already_exists`, and for a 409 without a slug whose body is a JSON object.
    ///
    /// # Example: a contact that must be new
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::contacts::{NewContact, OnConflict};
    ///
    /// let ada = NewContact::new("ada@example.com").on_conflict(OnConflict::Error);
    /// contacts.create(ada.clone()).await?;
    ///
    /// let error = contacts.create(ada).await.unwrap_err();
    /// assert!(error.is_already_exists());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_already_exists(&self) -> bool {
        self.is_refused_with(&ErrorCode::AlreadyExists, Some(StatusCode::CONFLICT))
    }

    /// Returns whether the write would exceed the plan's ceiling of stored contacts.
    ///
    /// True for the slug `quota_exceeded`, and for a 402 without a slug whose body is a JSON object.
    /// Waiting does not help; a larger plan or fewer contacts do.
    #[must_use]
    pub fn is_quota_exceeded(&self) -> bool {
        self.is_refused_with(
            &ErrorCode::QuotaExceeded,
            Some(StatusCode::PAYMENT_REQUIRED),
        )
    }

    /// Returns whether a subscribe was refused because the contact reported spam (interface
    /// section 3.2).
    ///
    /// True for the slug `failed_precondition`. A 422 without a slug does not count, because it may
    /// also mean `validation_error`.
    #[must_use]
    pub fn is_complaint_locked(&self) -> bool {
        self.is_refused_with(&ErrorCode::FailedPrecondition, None)
    }

    /// Returns whether a sending-access key was used on an endpoint that needs a full-access key.
    ///
    /// True for the slug `key_not_permitted`.
    #[must_use]
    pub fn is_key_not_permitted(&self) -> bool {
        self.is_refused_with(&ErrorCode::KeyNotPermitted, None)
    }

    /// Returns whether the service found the input invalid.
    ///
    /// True for the slug `validation_error`.
    #[must_use]
    pub fn is_validation_error(&self) -> bool {
        self.is_refused_with(&ErrorCode::ValidationError, None)
    }

    /// Returns the status of the service's response, if it refused the request.
    ///
    /// `None` unless the kind is [`ErrorKind::Api`](crate::ErrorKind::Api).
    #[must_use]
    pub fn status(&self) -> Option<StatusCode> {
        self.api().map(ApiError::status)
    }

    /// Returns whether an attempt took longer than its timeout, or the call longer than its deadline.
    ///
    /// A 408 or 504 of the service does not count: see [`status`](Error::status).
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        self.kind() == ErrorKind::Timeout
    }

    /// Returns whether the service responded 429, or an earlier 429 held back this call so that nothing
    /// was sent.
    ///
    /// # Example: call again when the service allows it
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # server.fault(audience::mock::Fault::status(429).retry_after(3_600));
    /// # let contacts = server.client().contacts();
    /// let error = contacts.retrieve("ada@example.com").await.unwrap_err();
    ///
    /// if let (true, Some(wait)) = (error.is_rate_limited(), error.retry_after()) {
    ///     println!("call again in {} s", wait.as_secs());
    /// }
    /// # assert!(error.is_rate_limited() && error.retry_after().is_some());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_rate_limited(&self) -> bool {
        self.status() == Some(StatusCode::TOO_MANY_REQUESTS)
    }

    /// Returns whether the service responded 401: it does not accept the key.
    ///
    /// The key is wrong or belongs to another environment, or the service expects it in another way:
    /// see [`Auth`](crate::Auth).
    #[must_use]
    pub fn is_unauthorized(&self) -> bool {
        self.status() == Some(StatusCode::UNAUTHORIZED)
    }

    /// Returns whether the service responded 403: the key may not be used for this call.
    ///
    /// [`is_key_not_permitted`](Error::is_key_not_permitted) tells the one documented reason.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        self.status() == Some(StatusCode::FORBIDDEN)
    }

    /// Returns how long the service asked to wait, if its response has a `Retry-After` header.
    ///
    /// A call that would have to wait longer than the policy's
    /// [`max_retry_after`](crate::RetryPolicy::max_retry_after), or past its deadline, fails at once. Call
    /// again after this time.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.api().and_then(ApiError::retry_after)
    }

    fn is_refused_with(&self, code: &ErrorCode, bare_status: Option<StatusCode>) -> bool {
        self.api().is_some_and(|api| api.is(code, bare_status))
    }
}

/// Constructors, one for each cause.
impl Error {
    /// Creates the error for a response with a status other than 2xx.
    pub(crate) fn from_response(api: ApiError, outcome: Outcome) -> Self {
        let mut error = Self::new(ErrorKind::Api, outcome, api.summary());
        error.0.is_retryable = is_transient(api.status());
        error.0.api = Some(api);
        error
    }

    /// Creates the error for a request that was not sent because the service has asked to wait this long.
    pub(crate) fn held_back(left: Duration) -> Self {
        let api = ApiError::from_response(
            StatusCode::TOO_MANY_REQUESTS,
            HeaderMap::new(),
            Bytes::new(),
        );
        let mut error = Self::from_response(api.asking_to_wait(Some(left)), Outcome::NotSent);
        let seconds = left.as_millis().div_ceil(1_000);
        error.0.message = format!(
            "rate limited: the service asked to wait another {seconds} s, so the request was not sent"
        )
        .into();
        error
    }

    pub(crate) fn config(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Config, Outcome::NotSent, message)
    }

    pub(crate) fn connect(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::new(ErrorKind::Connect, Outcome::NotSent, "could not connect").caused_by(source)
    }

    pub(crate) fn decode(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Decode, Outcome::Unknown, message)
    }

    pub(crate) fn input(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Input, Outcome::NotSent, message)
    }

    pub(crate) fn pagination() -> Self {
        let message = "the service repeated a cursor; listing stopped to avoid an endless loop";
        Self::new(ErrorKind::Pagination, Outcome::Unknown, message)
    }

    pub(crate) fn cursor_too_long(why: &str) -> Self {
        let message = format!("the service sent a cursor that is too long: {why}");
        Self::new(ErrorKind::Pagination, Outcome::NotSent, message)
    }

    pub(crate) fn timeout(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Timeout, Outcome::Unknown, message)
    }

    /// Creates the error for a deadline that passed before the first attempt.
    pub(crate) fn expired() -> Self {
        let message = "the deadline passed before the request was sent";
        Self::new(ErrorKind::Timeout, Outcome::NotSent, message)
    }

    pub(crate) fn transport(message: &'static str) -> Self {
        Self::new(ErrorKind::Transport, Outcome::Unknown, message)
    }

    fn new(kind: ErrorKind, outcome: Outcome, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Inner {
            kind,
            operation: None,
            message: message.into(),
            api: None,
            outcome,
            attempts: 0,
            is_retryable: matches!(
                kind,
                ErrorKind::Connect | ErrorKind::Timeout | ErrorKind::Transport
            ),
            body: None,
            source: None,
        }))
    }

    /// Says that the same call would fail again.
    pub(crate) fn not_retryable(mut self) -> Self {
        self.0.is_retryable = false;
        self
    }

    /// Adds the name of the operation that failed.
    pub(crate) fn at(mut self, operation: &'static str) -> Self {
        self.0.operation = Some(operation);
        self
    }

    /// Puts the name of the thing that failed before the message.
    #[cfg(feature = "import")]
    pub(crate) fn about(mut self, name: &str) -> Self {
        self.0.message = format!("{name}: {}", self.0.message).into();
        self
    }

    /// Adds the error that caused this one.
    pub(crate) fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Adds the body that could not be decoded, unless the error has a part of it already.
    pub(crate) fn reading(mut self, body: Bytes) -> Self {
        self.0.body.get_or_insert(body);
        self
    }

    /// Adds the number of attempts, and the least certain outcome of the earlier ones.
    pub(crate) fn after(mut self, attempts: u32, earlier: Outcome) -> Self {
        self.0.attempts = attempts;
        self.0.outcome = self.0.outcome.max(earlier);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(operation) = self.0.operation {
            write!(f, "{operation}: ")?;
        }
        f.write_str(&self.0.message)?;
        if self.0.attempts > 1 {
            write!(f, " (after {} attempts)", self.0.attempts)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Error");
        debug
            .field("kind", &self.0.kind)
            .field("message", &self.0.message);
        debug
            .field("outcome", &self.0.outcome)
            .field("attempts", &self.0.attempts);
        if let Some(operation) = self.0.operation {
            debug.field("operation", &operation);
        }
        if let Some(api) = &self.0.api {
            debug.field("api", api);
        }
        if let Some(source) = &self.0.source {
            debug.field("source", source);
        }
        debug.finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

/// Where a call failed, and so who can fix it.
///
/// # Example: what to log and what to report
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// # let server = audience::mock::MockServer::start().await;
/// # let contacts = server.client().contacts();
/// use audience::ErrorKind;
///
/// let error = contacts.create_batch(Vec::<String>::new()).await.unwrap_err();
///
/// match error.kind() {
///     ErrorKind::Input | ErrorKind::Config => println!("fix the program: {error}"),
///     ErrorKind::Api => println!("the service refused: {:?}", error.code()),
///     _ if error.is_retryable() => println!("try again later: {error}"),
///     _ => println!("report a fault: {error}"),
/// }
/// # assert_eq!(error.kind(), ErrorKind::Input);
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The service responded with a status other than 2xx, or an earlier 429 still holds back the client
    /// (see [`RetryPolicy`](crate::RetryPolicy#retry-after)).
    ///
    /// [`Error::api`](Error::api) has the response. What to do depends on its
    /// [code](ApiError::code).
    Api,
    /// The client cannot be built: the base URL, the key or the HTTP client is invalid.
    ///
    /// Fix the configuration. Nothing was sent.
    Config,
    /// The client could not connect: the host name was not found, the connection was refused, or the
    /// TLS handshake failed.
    ///
    /// This attempt sent nothing; [`Error::outcome`](Error::outcome) covers earlier ones too. Check
    /// the base URL, the network, the proxy, and the error's [`source`](std::error::Error::source).
    Connect,
    /// The service responded with 2xx, but the body cannot be used: it is not the expected JSON, does not
    /// decompress, or exceeds the [`body_limit`](crate::ClientBuilder::body_limit).
    ///
    /// The message says which, with the JSON path if there is one, and [`Error::body`](Error::body) has
    /// the body if it was read. A write was most likely applied.
    Decode,
    /// The request cannot be sent because an argument is invalid: for example an address that would
    /// reach another endpoint, an empty batch, a number that JSON cannot represent, or a rule that makes
    /// the URL longer than 65,534 bytes.
    ///
    /// Fix the argument. Nothing was sent.
    Input,
    /// The service repeated a cursor, so listing stopped to avoid an endless loop; or it sent a cursor
    /// that is too long for a URL.
    ///
    /// All items returned before the error are valid, but contacts on repeated pages may have been
    /// returned twice.
    Pagination,
    /// An attempt took longer than its timeout, or the whole call took longer than its deadline.
    ///
    /// Unless [`Error::outcome`](Error::outcome) says otherwise, a write may have been applied.
    Timeout,
    /// The connection broke, the response was not valid HTTP, or a client passed to
    /// [`http_client`](crate::ClientBuilder::http_client) followed a redirect.
    ///
    /// A write may have been applied.
    Transport,
}

/// Writes the kind as one lowercase word, such as `timeout`, for logs and metrics.
impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Api => "api",
            Self::Config => "config",
            Self::Connect => "connect",
            Self::Decode => "decode",
            Self::Input => "input",
            Self::Pagination => "pagination",
            Self::Timeout => "timeout",
            Self::Transport => "transport",
        })
    }
}

/// Whether a write that failed may have been applied anyway.
///
/// If a call made several attempts, the least certain one counts. For example, if the first attempt
/// got no response and the second was refused, the outcome is [`Unknown`](Outcome::Unknown).
///
/// # Example: when to check before calling again
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
/// # let server = audience::mock::MockServer::start().await;
/// # let contacts = server.client().contacts();
/// use audience::Outcome;
/// use audience::contacts::NewContact;
///
/// if let Err(error) = contacts.create(NewContact::new("not an address")).await {
///     match error.outcome() {
///         Outcome::NotSent => println!("nothing was sent: call again"),
///         Outcome::Refused => println!("not applied: fix the contact first"),
///         Outcome::Unknown => println!("retrieve the contact to find out"),
///     }
/// #   assert_eq!(error.outcome(), Outcome::Refused);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// No request reached the service. Calling again is safe.
    NotSent,
    /// The service responded, and did not apply the write.
    Refused,
    /// The write may or may not have been applied: there was no response, the response could not be
    /// read, or its status was 408 or 5xx, or 303 in response to a write.
    ///
    /// [`retrieve`](crate::contacts::Contacts::retrieve) shows which.
    Unknown,
}

impl Outcome {
    /// Returns what a status other than 2xx says about a write.
    ///
    /// A 408 or a 5xx may come from a proxy that forwarded the request and then stopped waiting. A 303 to
    /// a write says that it was processed, and where to read the result.
    pub(crate) fn from_status(status: StatusCode, method: &Method) -> Self {
        let is_processed = status == StatusCode::SEE_OTHER && !method.is_safe();
        if status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT || is_processed {
            Self::Unknown
        } else {
            Self::Refused
        }
    }
}

/// Returns whether a status says that the service cannot respond now, but may do so later.
pub(crate) fn is_transient(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 429 | 500 | 502 | 503 | 504)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status: u16, body: &'static str) -> Error {
        let status = StatusCode::from_u16(status).unwrap();
        let body = Bytes::from_static(body.as_bytes());
        let outcome = Outcome::from_status(status, &Method::POST);
        Error::from_response(
            ApiError::from_response(status, HeaderMap::new(), body),
            outcome,
        )
    }

    #[test]
    fn a_slug_takes_precedence_over_the_status() {
        assert!(!refusal(404, r#"{"code": "no_such_route"}"#).is_not_found());
        assert!(refusal(400, r#"{"code": "not_found"}"#).is_not_found());
    }

    #[test]
    fn a_404_409_or_402_with_an_object_without_a_slug_counts_as_the_documented_refusal() {
        assert!(refusal(404, "{}").is_not_found());
        assert!(refusal(409, r#"{"code": 409}"#).is_already_exists());
        assert!(refusal(402, " {} ").is_quota_exceeded());
    }

    #[test]
    fn a_404_409_or_402_with_another_body_does_not_count() {
        for body in ["", "<html>", "[]", "{", "null"] {
            assert!(!refusal(404, body).is_not_found());
            assert!(!refusal(409, body).is_already_exists());
            assert!(!refusal(402, body).is_quota_exceeded());
        }
    }

    #[test]
    fn a_422_or_403_without_a_slug_is_never_guessed() {
        assert!(!refusal(422, "").is_complaint_locked());
        assert!(!refusal(422, "").is_validation_error());
        assert!(!refusal(403, "").is_key_not_permitted());
    }

    #[test]
    fn the_least_certain_attempt_decides_the_outcome() {
        assert_eq!(refusal(422, "").outcome(), Outcome::Refused);
        assert_eq!(refusal(503, "").outcome(), Outcome::Unknown);
        assert_eq!(
            refusal(422, "").after(2, Outcome::Unknown).outcome(),
            Outcome::Unknown
        );
        assert_eq!(
            Error::input("x").after(1, Outcome::NotSent).outcome(),
            Outcome::NotSent
        );
    }

    #[test]
    fn no_text_of_a_body_is_printed() {
        let error = refusal(
            422,
            r#"{"code": "ada@example.com", "message": "ada@example.com is taken"}"#,
        );

        let printed = format!("{error} {error:?} {:?}", error.api());

        assert!(!printed.contains("ada"), "{printed}");
        assert_eq!(
            error.api().unwrap().message(),
            Some("ada@example.com is taken")
        );
    }

    #[test]
    fn a_refusal_that_was_created_is_like_one_that_was_received() {
        let refusal = ApiError::new(
            StatusCode::CONFLICT,
            ErrorCode::AlreadyExists,
            "a@x.io is there",
        );
        assert_eq!(refusal.message(), Some("a@x.io is there"));

        let error = Error::refused(refusal);

        assert_eq!((error.kind(), error.attempts()), (ErrorKind::Api, 1));
        assert!(error.is_already_exists() && !error.is_retryable());
        assert_eq!(error.outcome(), Outcome::Refused);
        assert_eq!(
            error.to_string(),
            "the service responded 409 already_exists"
        );
    }

    #[test]
    fn a_refusal_without_a_slug_and_a_message_has_neither() {
        let refusal = ApiError::new(StatusCode::NOT_FOUND, None, "");

        assert_eq!((refusal.code(), refusal.message()), (None, None));
        assert!(Error::refused(refusal).is_not_found());
    }

    #[test]
    fn a_kind_is_written_as_one_lowercase_word() {
        assert_eq!(ErrorKind::Timeout.to_string(), "timeout");
        assert_eq!(format!("{:>7}|", ErrorKind::Api), "    api|");
    }

    #[test]
    fn only_a_408_a_5xx_or_a_303_to_a_write_leaves_the_outcome_unknown() {
        for (status, outcome) in [
            (302, Outcome::Refused),
            (303, Outcome::Unknown),
            (408, Outcome::Unknown),
            (422, Outcome::Refused),
            (429, Outcome::Refused),
            (500, Outcome::Unknown),
            (503, Outcome::Unknown),
        ] {
            let status = StatusCode::from_u16(status).unwrap();

            assert_eq!(
                Outcome::from_status(status, &Method::PATCH),
                outcome,
                "{status}"
            );
        }
        let read = Outcome::from_status(StatusCode::SEE_OTHER, &Method::GET);
        assert_eq!(read, Outcome::Refused);
    }
}
