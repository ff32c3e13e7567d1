use std::time::Duration;

use http::StatusCode;

/// What became of a delivery, and the status to respond with.
///
/// It is a response of axum and of actix-web (features `axum`, `actix`), with an empty body and, if it says
/// when to come back, a `Retry-After` header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Receipt {
    /// The handler ran and succeeded: 200.
    Handled,
    /// The event was stored for a worker: 200.
    Accepted,
    /// The event was received before, and is done, stored or parked: 200.
    Repeated,
    /// Another attempt is handling the event: 503. A success would lose the event if that attempt died.
    #[non_exhaustive]
    InProgress {
        /// How long the other attempt's claim lasts at the most if it is not extended.
        retry_after: Duration,
    },
    /// The handler still runs, and the service would not wait longer: 503. The handler goes on, and the next
    /// delivery of the event is [`Repeated`](Self::Repeated) if it succeeds.
    StillRunning,
    /// The handler returned an error or panicked: 500. The event may be claimed again.
    Failed,
    /// The event id was received before with another body: 409. The event was not handled.
    Conflict,
    /// The store could not be reached or is set up wrongly: 503.
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

    /// Returns the seconds for a `Retry-After` header, at least 1.
    #[must_use]
    pub fn retry_after(&self) -> Option<u64> {
        match self {
            Self::InProgress { retry_after } => {
                let partial = u64::from(retry_after.subsec_nanos() > 0);
                Some(retry_after.as_secs().saturating_add(partial).max(1))
            }
            Self::StillRunning | Self::Unavailable | Self::Full => Some(SOON),
            _ => None,
        }
    }
}

/// When to come back if nobody knows when: in ten seconds.
const SOON: u64 = 10;
