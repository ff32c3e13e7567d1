use std::time::Duration;

use http::StatusCode;

use super::error::{InboxError, StoreError, StoreErrorKind};
use super::store::{AcceptState, ClaimState};

/// The outcome of a delivery, and the status to respond with.
///
/// With axum, actix-web and tower (features `axum`, `actix`, `tower`), a receipt is a response. Its body is empty,
/// and it has a `Retry-After` header if [`retry_after`](Self::retry_after) returns a value.
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
///
/// # Example: the compiler warns of a handler that drops its receipt
///
/// Such a handler responds with 200 even if the store has failed, and the event is lost.
///
/// ```compile_fail
/// # #![deny(unused_must_use)]
/// use audience::inbox::Inbox;
/// use audience::webhooks::VerifiedEvent;
///
/// async fn hook(inbox: Inbox, delivery: VerifiedEvent) {
///     inbox.accept(delivery).await;
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "respond with it: the service delivers the event again only if it learns of the failure"]
#[non_exhaustive]
pub enum Receipt {
    /// The handler ran and succeeded: 200.
    Handled,
    /// The event was stored for a worker: 200.
    Accepted,
    /// The delivery is a duplicate, since its event is done, stored or parked: 200.
    Duplicate,
    /// Another attempt is handling the event: 503. A success would lose the event if that attempt died.
    #[non_exhaustive]
    InProgress {
        /// The longest time until the other attempt's claim ends, if it is not extended.
        retry_after: Duration,
    },
    /// The handler, or its claim, is still running at the deadline: 503. It continues, and the next
    /// delivery of the event is [`Duplicate`](Self::Duplicate) if it succeeds.
    StillRunning,
    /// The handler returned an error or panicked: 500. The event may be claimed again.
    Failed,
    /// The event was handled, given up or stored, is being handled, or waits for its next attempt, with another body: 409.
    /// This delivery was not handled.
    Conflict,
    /// The store could not be reached or is set up wrongly, or the process is shutting down: 503.
    Unavailable,
    /// The store has no room: 503.
    Full,
}

impl Receipt {
    /// Returns the status to respond with. It is never a redirect and never 410.
    ///
    /// # Example: which responses end the retries
    ///
    /// ```
    /// use audience::inbox::Receipt;
    /// use http::StatusCode;
    ///
    /// assert_eq!(Receipt::Duplicate.status(), StatusCode::OK);
    /// assert_eq!(Receipt::Failed.status(), StatusCode::INTERNAL_SERVER_ERROR);
    /// assert_eq!(Receipt::Full.status(), StatusCode::SERVICE_UNAVAILABLE);
    /// ```
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Handled | Self::Accepted | Self::Duplicate => StatusCode::OK,
            Self::Failed => StatusCode::INTERNAL_SERVER_ERROR,
            // Not a success: one of the two events would be lost, and the dashboard would not show it.
            Self::Conflict => StatusCode::CONFLICT,
            Self::InProgress { .. } | Self::StillRunning | Self::Unavailable | Self::Full => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }

    /// Returns whether the service should regard the event as delivered.
    ///
    /// # Example: log only the deliveries that come again
    ///
    /// ```
    /// use audience::inbox::Receipt;
    ///
    /// for receipt in [Receipt::Handled, Receipt::Conflict] {
    ///     if !receipt.is_success() {
    ///         eprintln!("{} {}", receipt.status(), receipt.name());
    ///     }
    /// #   assert_eq!(receipt.is_success(), receipt == Receipt::Handled);
    /// }
    /// ```
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.status().is_success()
    }

    /// Returns the name of the variant in `snake_case`, for logs.
    ///
    /// # Example: a label of a metric
    ///
    /// ```
    /// use std::collections::HashMap;
    ///
    /// use audience::inbox::Receipt;
    ///
    /// let mut counts = HashMap::new();
    /// for receipt in [Receipt::Handled, Receipt::StillRunning, Receipt::Handled] {
    ///     *counts.entry(receipt.name()).or_insert(0) += 1;
    /// }
    ///
    /// assert_eq!(counts["handled"], 2);
    /// assert_eq!(counts["still_running"], 1);
    /// ```
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Handled => "handled",
            Self::Accepted => "accepted",
            Self::Duplicate => "duplicate",
            Self::InProgress { .. } => "in_progress",
            Self::StillRunning => "still_running",
            Self::Failed => "failed",
            Self::Conflict => "conflict",
            Self::Unavailable => "unavailable",
            Self::Full => "full",
        }
    }

    /// Returns how long the service should wait before it delivers the event again: the value of the `Retry-After`
    /// header, in whole seconds, from 1 s to 1 h. `None` if the response has no such header.
    ///
    /// # Example: no header after a success
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use audience::inbox::Receipt;
    ///
    /// assert_eq!(Receipt::Handled.retry_after(), None);
    /// assert_eq!(Receipt::Unavailable.retry_after(), Some(Duration::from_secs(10)));
    /// ```
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::InProgress { retry_after } => {
                let partial = u64::from(retry_after.subsec_nanos() > 0);
                let seconds = retry_after.as_secs().saturating_add(partial);
                Some(Duration::from_secs(seconds).clamp(Duration::from_secs(1), LONGEST))
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
            ClaimState::Done | ClaimState::Parked => Self::Duplicate,
            ClaimState::Conflict => Self::Conflict,
        })
    }

    pub(super) fn of_accept(state: AcceptState) -> Self {
        match state {
            AcceptState::Accepted => Self::Accepted,
            AcceptState::Duplicate => Self::Duplicate,
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

/// The response to a delivery whose claim failed, for [`Inbox::claim`](crate::inbox::Inbox::claim) and `claim_in`.
///
/// | error | receipt |
/// |---|---|
/// | [`InProgress`](InboxError::InProgress), [`LeaseLost`](InboxError::LeaseLost) | [`InProgress`](Receipt::InProgress): 503, retry after 10 s |
/// | [`Conflict`](InboxError::Conflict) | [`Conflict`](Receipt::Conflict): 409 |
/// | [`Store`](InboxError::Store) of the kind [`Full`](StoreErrorKind::Full) | [`Full`](Receipt::Full): 503, retry after 10 s |
/// | any other [`Store`](InboxError::Store) | [`Unavailable`](Receipt::Unavailable): 503, retry after 10 s |
///
/// # Example: a claim of your own
///
/// ```
/// use audience::inbox::{Claim, Inbox, InboxError, Receipt};
/// use audience::webhooks::VerifiedEvent;
///
/// async fn receive(inbox: &Inbox, delivery: &VerifiedEvent) -> Receipt {
///     handle_once(inbox, delivery).await.unwrap_or_else(Receipt::from)
/// }
///
/// async fn handle_once(inbox: &Inbox, delivery: &VerifiedEvent) -> Result<Receipt, InboxError> {
///     match inbox.claim(delivery).await? {
///         Claim::Fresh(lease) => lease.complete().await.map(|()| Receipt::Handled),
///         Claim::Done => Ok(Receipt::Duplicate),
///         Claim::InProgress { .. } => Err(InboxError::InProgress),
///     }
/// }
/// # let _ = receive;
///
/// assert_eq!(Receipt::from(InboxError::Conflict).status(), 409);
/// assert_eq!(Receipt::from(InboxError::InProgress).status(), 503);
/// ```
impl From<InboxError> for Receipt {
    fn from(error: InboxError) -> Self {
        match error {
            InboxError::InProgress | InboxError::LeaseLost => Self::in_progress_for(SOON),
            InboxError::Conflict => Self::Conflict,
            InboxError::Store(error) => Self::of_store_error(&error),
        }
    }
}

/// The delay of a 503 whose cause has no known end.
const SOON: Duration = Duration::from_secs(10);
/// The longest delay of a 503. A clock that was ahead for a moment leaves claims that end in years.
const LONGEST: Duration = Duration::from_secs(3_600);

/// Reads what the statement `CLAIM_IN` of a store returned.
#[cfg(any(
    feature = "inbox-sqlite",
    feature = "inbox-postgres",
    feature = "inbox-sqlx-postgres"
))]
pub(super) fn state_of_outcome(outcome: &str) -> ClaimState {
    match outcome {
        "claimed" => ClaimState::Fresh { attempt: 1 },
        "done" => ClaimState::Done,
        "parked" => ClaimState::Parked,
        "conflict" => ClaimState::Conflict,
        _ => ClaimState::InProgress { remaining: SOON },
    }
}

/// Returns whether an event that was claimed in a transaction is new.
#[cfg(any(
    feature = "inbox-sqlite",
    feature = "inbox-postgres",
    feature = "inbox-sqlx-postgres"
))]
pub(super) fn is_new(state: ClaimState) -> Result<bool, InboxError> {
    match state {
        ClaimState::Fresh { .. } => Ok(true),
        ClaimState::Done | ClaimState::Parked => Ok(false),
        ClaimState::InProgress { .. } => Err(InboxError::InProgress),
        ClaimState::Conflict => Err(InboxError::Conflict),
    }
}

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
            Receipt::Duplicate,
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

        let expected = [Receipt::Handled, Receipt::Accepted, Receipt::Duplicate];
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
    }

    #[test]
    fn the_service_is_never_told_to_come_back_in_more_than_an_hour() {
        for seconds in [3_600, 3_601, 315_359_960, u64::MAX] {
            let retry_after = Duration::new(seconds, 999_999_999);
            let receipt = Receipt::InProgress { retry_after };

            assert_eq!(receipt.retry_after(), Some(Duration::from_secs(3_600)));
        }
    }

    #[test]
    fn the_names_differ() {
        let names: std::collections::HashSet<_> = all().map(|receipt| receipt.name()).into();

        assert_eq!(names.len(), all().len());
    }
}
