//! The questions a program asks about an error: its status, and predicates for the refusals that the interface
//! document names (section 7) and for the common classes of failures.

use std::time::Duration;

use http::StatusCode;

use super::api::ApiError;
use super::code::ErrorCode;
use super::error::Error;
use super::kind::ErrorKind;

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
    /// # #[cfg(feature = "mock")]
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
    /// # #[cfg(not(feature = "mock"))] fn main() {}
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
    /// # #[cfg(feature = "mock")]
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
    /// # #[cfg(not(feature = "mock"))] fn main() {}
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
    /// # #[cfg(feature = "mock")]
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
    /// # #[cfg(not(feature = "mock"))] fn main() {}
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

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderMap, Method};

    use super::*;
    use crate::Outcome;

    fn refusal(status: u16, body: &'static str) -> Error {
        let status = StatusCode::from_u16(status).unwrap();
        let body = Bytes::from_static(body.as_bytes());
        let outcome = Outcome::from_status(status, &Method::POST);
        Error::refused(
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
}
