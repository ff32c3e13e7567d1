use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;

use http::StatusCode;

mod api;
mod code;

pub use api::ApiError;
pub use code::ErrorCode;

/// Why a call failed.
///
/// The type is opaque and one word wide. Ask it what a program wants to know:
///
/// - [`kind`](Error::kind): where it went wrong, and so who can mend it;
/// - [`api`](Error::api): what the service answered, where it answered;
/// - the predicates, such as [`is_not_found`](Error::is_not_found), for refusals one would match on;
/// - [`outcome`](Error::outcome): whether a write may have been applied all the same;
/// - [`attempts`](Error::attempts): how many requests were made.
///
/// Neither `Display` nor `Debug` prints an address, a key or what stood in a body, so that an error
/// can go to a log as it is. The service's own words are at [`ApiError::message`].
///
/// # Example: a refusal one would match on
///
/// ```
/// # #[cfg(feature = "mock")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let server = audience::mock::MockServer::start().await;
/// let contacts = server.client().contacts();
///
/// let error = contacts.retrieve("nobody@example.com").await.unwrap_err();
///
/// assert!(error.is_not_found());
/// assert_eq!(error.to_string(), "retrieve: the service answered 404 not_found");
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
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// Where a call went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The service answered with a status other than 2xx. [`Error::api`] has the answer; what to do
    /// depends on its [code](ApiError::code).
    Api,
    /// The client cannot be built like this: a base URL, a key or an HTTP client that will not do.
    /// Mend the configuration; nothing was sent.
    Config,
    /// No connection came about: name not found, refused, TLS handshake. Nothing was sent. Look at
    /// the base URL, the network, the proxy, and at [`source`](StdError::source).
    Connect,
    /// The service answered 2xx, but not with what the interface document shows. The message names
    /// the operation and the JSON path. A write has most likely been applied.
    Decode,
    /// What was asked for cannot be sent: an address that would reach another endpoint, an empty
    /// batch, a number that JSON cannot hold. Mend the argument; nothing was sent.
    Input,
    /// The service's cursors go in circles: the walk was stopped before it could become endless.
    /// What was handed out before is sound, though the circle's pages may have come twice.
    Pagination,
    /// An attempt took longer than its timeout, or the whole call longer than its deadline.
    Timeout,
    /// The connection broke, or what came back was no HTTP. A write may have been applied.
    Transport,
}

/// Whether a write that failed may have been applied all the same.
///
/// Over several attempts the worst one counts: a call that was refused at last, but whose first
/// attempt went unanswered, is [`Unknown`](Outcome::Unknown).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// Nothing was sent. Calling again is safe.
    NotSent,
    /// The service answered, and did not apply it.
    Refused,
    /// It may have been applied, or not: no answer came, none that could be read, or a 5xx.
    /// [`retrieve`](crate::contacts::Contacts::retrieve) tells.
    Unknown,
}

impl Error {
    /// Where it went wrong.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What the service answered; `None` unless the kind is [`ErrorKind::Api`].
    #[must_use]
    pub fn api(&self) -> Option<&ApiError> {
        self.0.api.as_ref()
    }

    /// The slug of the refusal, where the service gave one: [`ApiError::code`] in one step.
    #[must_use]
    pub fn code(&self) -> Option<&ErrorCode> {
        self.api().and_then(ApiError::code)
    }

    /// Whether the write may have been applied.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.0.outcome
    }

    /// How many requests were made: 0 where nothing was sent, more than 1 after retries.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.0.attempts
    }

    /// The address is no contact of the caller, or the topic does not exist: `not_found`, or a 404
    /// without a slug.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.refused_with(&ErrorCode::NotFound, Some(StatusCode::NOT_FOUND))
    }

    /// The address exists, and [`OnConflict::Error`](crate::contacts::OnConflict::Error) was asked
    /// for: `already_exists`, or a 409 without a slug.
    #[must_use]
    pub fn is_already_exists(&self) -> bool {
        self.refused_with(&ErrorCode::AlreadyExists, Some(StatusCode::CONFLICT))
    }

    /// The plan's ceiling of stored contacts would be crossed: `quota_exceeded`, or a 402 without a
    /// slug. Waiting does not help; a larger plan or fewer contacts do.
    #[must_use]
    pub fn is_quota_exceeded(&self) -> bool {
        self.refused_with(
            &ErrorCode::QuotaExceeded,
            Some(StatusCode::PAYMENT_REQUIRED),
        )
    }

    /// The contact reported spam, and so cannot be subscribed through the service:
    /// `failed_precondition` (interface section 3.2). A bare 422 is not taken for it, because it may
    /// as well mean `validation_error`.
    #[must_use]
    pub fn is_complaint_locked(&self) -> bool {
        self.refused_with(&ErrorCode::FailedPrecondition, None)
    }

    /// A sending-access key was used where a full-access key is needed: `key_not_permitted`.
    #[must_use]
    pub fn is_key_not_permitted(&self) -> bool {
        self.refused_with(&ErrorCode::KeyNotPermitted, None)
    }

    /// The service found the input invalid: `validation_error`.
    #[must_use]
    pub fn is_validation_error(&self) -> bool {
        self.refused_with(&ErrorCode::ValidationError, None)
    }

    fn refused_with(&self, code: &ErrorCode, bare: Option<StatusCode>) -> bool {
        self.api().is_some_and(|api| match api.code() {
            Some(given) => given == code,
            None => bare == Some(api.status()),
        })
    }
}

/// One constructor for each cause.
impl Error {
    pub(crate) fn refused(api: ApiError) -> Self {
        let mut error = Self::new(
            ErrorKind::Api,
            outcome_of_status(api.status()),
            api.summary(),
        );
        error.0.api = Some(api);
        error
    }

    pub(crate) fn config(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Config, Outcome::NotSent, message)
    }

    pub(crate) fn connect(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::new(
            ErrorKind::Connect,
            Outcome::NotSent,
            "no connection came about",
        )
        .caused_by(source)
    }

    pub(crate) fn decode(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Decode, Outcome::Unknown, message)
    }

    pub(crate) fn input(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Input, Outcome::NotSent, message)
    }

    pub(crate) fn pagination() -> Self {
        let message = "the service's cursors go in circles, so the walk was stopped";
        Self::new(ErrorKind::Pagination, Outcome::Unknown, message)
    }

    pub(crate) fn timeout(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Timeout, Outcome::Unknown, message)
    }

    /// A deadline that was over before anything was sent.
    pub(crate) fn expired() -> Self {
        let message = "the deadline passed before anything was sent";
        Self::new(ErrorKind::Timeout, Outcome::NotSent, message)
    }

    pub(crate) fn transport(message: &'static str) -> Self {
        Self::new(ErrorKind::Transport, Outcome::Unknown, message)
    }

    fn new(kind: ErrorKind, outcome: Outcome, message: impl Into<Cow<'static, str>>) -> Self {
        let (operation, api, attempts, source) = (None, None, 0, None);
        Self(Box::new(Inner {
            kind,
            operation,
            message: message.into(),
            api,
            outcome,
            attempts,
            source,
        }))
    }

    pub(crate) fn at(mut self, operation: &'static str) -> Self {
        self.0.operation = Some(operation);
        self
    }

    pub(crate) fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Notes how many attempts were made, and the worst that may have become of the earlier ones.
    pub(crate) fn after(mut self, attempts: u32, earlier: Outcome) -> Self {
        self.0.attempts = attempts;
        self.0.outcome = self.0.outcome.max(earlier);
        self
    }
}

/// What a status other than 2xx says about a write. A 408 or a 5xx may come from something in front
/// of the service that passed the request on and gave up waiting.
fn outcome_of_status(status: StatusCode) -> Outcome {
    if status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT {
        Outcome::Unknown
    } else {
        Outcome::Refused
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

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn answered(status: u16, body: &'static str) -> Error {
        let status = StatusCode::from_u16(status).unwrap();
        Error::refused(ApiError::new(
            status,
            None,
            Bytes::from_static(body.as_bytes()),
        ))
    }

    #[test]
    fn a_slug_decides_over_the_status_and_a_bare_422_is_never_guessed() {
        assert!(answered(404, "").is_not_found());
        assert!(answered(409, "<html>").is_already_exists());
        assert!(answered(402, "{}").is_quota_exceeded());
        assert!(!answered(422, "").is_complaint_locked());
        assert!(!answered(422, "").is_validation_error());
        assert!(!answered(403, "").is_key_not_permitted());
        assert!(!answered(404, r#"{"code": "no_such_route"}"#).is_not_found());
        assert!(answered(400, r#"{"code": "not_found"}"#).is_not_found());
    }

    #[test]
    fn the_worst_attempt_decides_what_may_have_become_of_a_write() {
        assert_eq!(answered(422, "").outcome(), Outcome::Refused);
        assert_eq!(answered(503, "").outcome(), Outcome::Unknown);
        assert_eq!(
            answered(422, "").after(2, Outcome::Unknown).outcome(),
            Outcome::Unknown
        );
        assert_eq!(
            Error::input("x").after(1, Outcome::NotSent).outcome(),
            Outcome::NotSent
        );
    }

    #[test]
    fn no_text_of_a_body_is_printed() {
        let error = answered(
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
}
