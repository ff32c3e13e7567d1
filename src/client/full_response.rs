use std::fmt;

use http::{HeaderMap, StatusCode};

use super::response::Success;
use crate::Error;

/// The result of a call, with the status and the headers of the response and the number of attempts.
///
/// Every builder has a method `response()` that returns it. [`value`](Self::value) is what awaiting
/// the builder itself would have returned.
///
/// # Example: the request id of a response
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
/// # let server = audience::mock::MockServer::start().await;
/// # let contacts = server.client().contacts();
/// # contacts.create(audience::contacts::NewContact::new("ada@example.com")).await?;
/// let response = contacts.retrieve("ada@example.com").response().await?;
///
/// println!("{} after {} attempts", response.status(), response.attempts());
/// println!("request id: {:?}", response.headers().get("x-request-id"));
/// assert_eq!(response.value().email, "ada@example.com");
/// let contact = response.into_inner();
/// # assert!(!contact.unsubscribed);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Response<T> {
    value: T,
    status: StatusCode,
    headers: HeaderMap,
    attempts: u32,
}

impl<T> Response<T> {
    /// Decodes a response and keeps its status and headers.
    pub(super) fn read(
        success: Success,
        decode: impl FnOnce(Success) -> Result<T, Error>,
    ) -> Result<Self, Error> {
        let (status, headers) = (success.status(), success.headers().clone());
        let attempts = success.attempts();
        Ok(Self {
            value: decode(success)?,
            status,
            headers,
            attempts,
        })
    }

    /// Returns the HTTP status, which is 2xx.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the headers.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Returns how many attempts the call made.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Returns the value.
    #[must_use]
    pub fn value(&self) -> &T {
        &self.value
    }

    /// Returns the value alone: what awaiting the builder itself would have returned.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.value
    }
}

/// Does not print the headers, which may hold a secret.
impl<T: fmt::Debug> fmt::Debug for Response<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response")
            .field("value", &self.value)
            .field("status", &self.status.as_u16())
            .field("attempts", &self.attempts)
            .finish_non_exhaustive()
    }
}
