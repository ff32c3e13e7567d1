use http::Method;

use super::api::ApiError;
use super::error::Error;
use super::outcome::Outcome;

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
/// let error = Error::from(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, None, ""));
///
/// assert!(error.is_retryable());
/// assert_eq!(error.outcome(), Outcome::Unknown);
/// ```
impl From<ApiError> for Error {
    fn from(refusal: ApiError) -> Self {
        let outcome = Outcome::from_status(refusal.status(), &Method::POST);
        Self::refused(refusal, outcome).after(1, Outcome::NotSent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorCode, ErrorKind, StatusCode};

    #[test]
    fn a_refusal_that_was_created_is_like_one_that_was_received() {
        let refusal = ApiError::new(
            StatusCode::CONFLICT,
            ErrorCode::AlreadyExists,
            "a@x.io is there",
        );
        assert_eq!(refusal.message(), Some("a@x.io is there"));

        let error = Error::from(refusal);

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
        assert!(Error::from(refusal).is_not_found());
    }
}
