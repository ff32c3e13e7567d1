use std::time::Duration;

use http::StatusCode;

use super::error::{StoreError, StoreErrorKind};
use super::store::{AcceptState, ClaimState};

/// The outcome of a delivery, and the status to respond with.
///
/// It is a response of axum, actix-web and tower (features `axum`, `actix`, `tower`), with an empty body and, if
/// it has one, a `Retry-After` header.
///
/// # Example: a response of any other server
///
/// ```
/// use audience::inbox::Receipt;
/// use http::{Response, header::RETRY_AFTER};
///
/// fn response(receipt: Receipt) -> http::Result<Response<()>> {
///     let mut response = Response::builder().status(receipt.status());
///     if let Some(delay) = receipt.retry_after() {
///         response = response.header(RETRY_AFTER, delay.as_secs());
///     }
///     response.body(())
/// }
///
/// let response = response(Receipt::StillRunning)?;
///
/// assert_eq!(response.status(), 503);
/// assert_eq!(response.headers()[RETRY_AFTER], "10");
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Receipt {
    /// The handler ran and succeeded: 200.
    Handled,
    /// The event was stored for a worker: 200.
    Accepted,
    /// The delivery is a duplicate: its event is done, stored or parked. 200.
    Repeated,
    /// Another attempt is handling the event: 503. A success would lose the event if that attempt died.
    #[non_exhaustive]
    InProgress {
        /// How long the other attempt's claim lasts at the most if it is not extended.
        retry_after: Duration,
    },
    /// The handler, or its claim, is still running at the deadline: 503. It continues, and the next
    /// delivery of the event is [`Repeated`](Self::Repeated) if it succeeds.
    StillRunning,
    /// The handler returned an error or panicked: 500. The event may be claimed again.
    Failed,
    /// A duplicate of the event id has another body: 409. The event was not handled.
    Conflict,
    /// The store could not be reached or is set up wrongly, or the process is shutting down: 503.
    Unavailable,
    /// The store has no room: 503.
    Full,
}

impl Receipt {
    /// Returns the status to respond with. It is never a redirect and never 410.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Handled | Self::Accepted | Self::Repeated => StatusCode::OK,
            Self::Failed => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Conflict => StatusCode::CONFLICT,
            Self::InProgress { .. } | Self::StillRunning | Self::Unavailable | Self::Full => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }

    /// Returns whether the service should regard the event as delivered.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.status().is_success()
    }

    /// Returns the name of the variant in `snake_case`, for logs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Handled => "handled",
            Self::Accepted => "accepted",
            Self::Repeated => "repeated",
            Self::InProgress { .. } => "in_progress",
            Self::StillRunning => "still_running",
            Self::Failed => "failed",
            Self::Conflict => "conflict",
            Self::Unavailable => "unavailable",
            Self::Full => "full",
        }
    }

    /// Returns when the service should deliver the event again, in whole seconds and at least 1 s: the value of a
    /// `Retry-After` header. `None` for a receipt whose response has no such header.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::InProgress { retry_after } => {
                let partial = u64::from(retry_after.subsec_nanos() > 0);
                let seconds = retry_after.as_secs().saturating_add(partial);
                Some(Duration::from_secs(seconds.max(1)))
            }
            Self::StillRunning | Self::Unavailable | Self::Full => Some(SOON),
            _ => None,
        }
    }

    /// Returns the number of the attempt if the claim is the caller's, else the receipt of the delivery.
    pub(super) fn of_claim(state: ClaimState) -> Result<u32, Self> {
        Err(match state {
            ClaimState::Fresh { attempt } => return Ok(attempt),
            ClaimState::InProgress { remaining } => Self::in_progress_for(remaining),
            ClaimState::Done | ClaimState::Parked => Self::Repeated,
            ClaimState::Conflict => Self::Conflict,
        })
    }

    pub(super) fn of_accept(state: AcceptState) -> Self {
        match state {
            AcceptState::Accepted => Self::Accepted,
            AcceptState::Repeated => Self::Repeated,
            AcceptState::InProgress { remaining } => Self::in_progress_for(remaining),
            AcceptState::Conflict => Self::Conflict,
        }
    }

    pub(super) fn of_store_error(error: &StoreError) -> Self {
        match error.kind() {
            StoreErrorKind::Full => Self::Full,
            StoreErrorKind::Unavailable | StoreErrorKind::Unusable => Self::Unavailable,
        }
    }

    fn in_progress_for(remaining: Duration) -> Self {
        Self::InProgress {
            retry_after: remaining,
        }
    }
}

/// The delay of a 503 whose cause has no known end.
const SOON: Duration = Duration::from_secs(10);

#[cfg(feature = "axum")]
mod axum_response {
    use axum_core::body::Body;
    use axum_core::response::{IntoResponse, Response};
    use http::header::{HeaderValue, RETRY_AFTER};

    use super::Receipt;

    /// The status with an empty body, and `Retry-After` if the receipt has one. The receipt itself is an extension
    /// of the response.
    impl IntoResponse for Receipt {
        fn into_response(self) -> Response {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = self.status();
            if let Some(delay) = self.retry_after() {
                let headers = response.headers_mut();
                headers.insert(RETRY_AFTER, HeaderValue::from(delay.as_secs()));
            }
            response.extensions_mut().insert(self);
            response
        }
    }
}

#[cfg(feature = "actix")]
mod actix_response {
    use actix_web::body::BoxBody;
    use actix_web::http::StatusCode;
    use actix_web::http::header::RETRY_AFTER;
    use actix_web::{HttpRequest, HttpResponse, Responder};

    use super::Receipt;

    /// The status with an empty body, and `Retry-After` if the receipt has one.
    impl Responder for Receipt {
        type Body = BoxBody;

        fn respond_to(self, _: &HttpRequest) -> HttpResponse {
            // actix-web uses another major version of the `http` crate.
            let status = StatusCode::from_u16(self.status().as_u16())
                .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            let mut response = HttpResponse::build(status);
            if let Some(delay) = self.retry_after() {
                response.insert_header((RETRY_AFTER, delay.as_secs()));
            }
            response.finish()
        }
    }
}

#[cfg(feature = "tower")]
mod tower_response {
    use crate::webhooks::tower::{BytesBody, IntoEmptyResponse};
    use http::Response;
    use http::header::{HeaderValue, RETRY_AFTER};

    use super::Receipt;

    /// The status with an empty body, and `Retry-After` if the receipt has one.
    impl IntoEmptyResponse for Receipt {
        fn into_empty_response(self) -> Response<BytesBody> {
            let mut response = self.status().into_empty_response();
            if let Some(delay) = self.retry_after() {
                let headers = response.headers_mut();
                headers.insert(RETRY_AFTER, HeaderValue::from(delay.as_secs()));
            }
            response
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_progress(milliseconds: u64) -> Receipt {
        let retry_after = Duration::from_millis(milliseconds);
        Receipt::InProgress { retry_after }
    }

    fn all() -> [Receipt; 9] {
        [
            Receipt::Handled,
            Receipt::Accepted,
            Receipt::Repeated,
            in_progress(500),
            Receipt::StillRunning,
            Receipt::Failed,
            Receipt::Conflict,
            Receipt::Unavailable,
            Receipt::Full,
        ]
    }

    #[test]
    fn each_receipt_has_its_status() {
        let statuses = all().map(|receipt| receipt.status().as_u16());

        assert_eq!(statuses, [200, 200, 200, 503, 503, 500, 409, 503, 503]);
    }

    #[test]
    fn no_status_is_a_redirect_or_disables_the_endpoint() {
        for receipt in all() {
            let status = receipt.status();
            assert!(
                !status.is_redirection() && status != StatusCode::GONE,
                "{receipt:?}"
            );
        }
    }

    #[test]
    fn only_a_receipt_that_will_not_be_lost_is_a_success() {
        let successes = all().into_iter().filter(Receipt::is_success);

        let expected = [Receipt::Handled, Receipt::Accepted, Receipt::Repeated];
        assert!(successes.eq(expected));
    }

    #[test]
    fn each_503_says_when_to_come_back_and_nothing_else_does() {
        for receipt in all() {
            let is_503 = receipt.status() == StatusCode::SERVICE_UNAVAILABLE;
            assert_eq!(receipt.retry_after().is_some(), is_503, "{receipt:?}");
        }
    }

    #[test]
    fn the_seconds_to_come_back_in_are_rounded_up() {
        let seconds = [0, 1, 1_000, 1_001, 59_999].map(|ms| in_progress(ms).retry_after());
        assert_eq!(
            seconds,
            [1, 1, 1, 2, 60].map(|seconds| Some(Duration::from_secs(seconds)))
        );

        let retry_after = Duration::MAX;
        let receipt = Receipt::InProgress { retry_after };
        assert_eq!(receipt.retry_after(), Some(Duration::from_secs(u64::MAX)));
    }

    #[test]
    fn the_names_differ() {
        let names: std::collections::HashSet<_> = all().map(|receipt| receipt.name()).into();

        assert_eq!(names.len(), all().len());
    }
}
