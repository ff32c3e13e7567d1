use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use super::api::ApiError;
use super::code::ErrorCode;
use super::kind::ErrorKind;
use super::outcome::{Outcome, is_transient};

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
/// In a unit test, [`ApiError::new`] creates a refusal, which converts to an `Error`. The mock's faults cause
/// the other kinds, such as a timeout.
///
/// # Example: a refusal and its text
///
/// ```
/// # #[cfg(feature = "mock")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// # let server = audience::mock::MockServer::start().await;
/// # let contacts = server.client().contacts();
/// let error = contacts.retrieve("nobody@example.com").await.unwrap_err();
///
/// assert!(error.is_not_found());
/// assert_eq!(error.to_string(), "retrieve: the service responded 404 not_found");
/// # }
/// # #[cfg(not(feature = "mock"))] fn main() {}
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
    /// # #[cfg(feature = "mock")]
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
    /// # #[cfg(not(feature = "mock"))] fn main() {}
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

/// Constructors, one for each cause.
impl Error {
    /// Creates the error for a response with a status other than 2xx.
    pub(crate) fn refused(api: ApiError, outcome: Outcome) -> Self {
        let mut error = Self::new(ErrorKind::Api, outcome, api.summary());
        error.0.is_retryable = is_transient(api.status());
        error.0.api = Some(api);
        error
    }

    /// Creates the error for a call that was not sent because the service has asked to wait this long.
    pub(crate) fn held_back(left: Duration) -> Self {
        let api = ApiError::from_response(
            StatusCode::TOO_MANY_REQUESTS,
            HeaderMap::new(),
            Bytes::new(),
        );
        let mut error = Self::refused(api.asking_to_wait(Some(left)), Outcome::NotSent);
        let seconds = left.as_millis().div_ceil(1_000);
        error.0.message = format!(
            "rate limited: the service asked to wait another {seconds} s, so nothing was sent"
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
        let message = "the deadline passed before anything was sent";
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

    /// Replaces the outcome by that of a call that sends several requests.
    pub(crate) fn ending_in(mut self, outcome: Outcome) -> Self {
        self.0.outcome = outcome;
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
