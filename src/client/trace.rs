//! Spans and events, with the OpenTelemetry names for HTTP clients. Does nothing without the feature
//! `tracing`. The docs of the module `client` have a table of what is traced.

use std::time::Duration;

use url::Url;

use super::request::{Operation, Request};
use super::response::HttpResponse;
use super::transport::FailedAttempt;
use crate::Error;

/// Makes a future that another task polls belong to the current span.
#[cfg(feature = "tracing")]
pub(crate) fn in_current_span<F: Future>(work: F) -> impl Future<Output = F::Output> {
    use tracing::instrument::{Instrument, WithSubscriber};

    work.in_current_span().with_current_subscriber()
}

/// Makes a future that another task polls belong to the current span.
#[cfg(not(feature = "tracing"))]
pub(crate) fn in_current_span<F: Future>(work: F) -> F {
    work
}

/// The span of a whole call. The spans of its attempts are below it.
pub(super) struct CallSpan {
    #[cfg(feature = "tracing")]
    span: tracing::Span,
}

#[cfg(feature = "tracing")]
impl CallSpan {
    /// Creates the span of a call that starts now.
    pub(super) fn new(operation: Operation) -> Self {
        use tracing::field::Empty;

        let span = tracing::info_span!(
            "audience.call",
            otel.name = format_args!("audience.{}", operation.name),
            otel.status_code = Empty,
            operation = operation.name,
            url.template = operation.template,
            attempts = Empty,
            outcome = Empty,
            error.type = Empty,
        );
        Self { span }
    }

    /// Runs the attempts of the call in the span.
    ///
    /// This is no `async fn`, whose future would have room for `attempts` twice.
    pub(super) fn run<T>(&self, attempts: impl Future<Output = T>) -> impl Future<Output = T> {
        tracing::Instrument::instrument(attempts, self.span.clone())
    }

    /// Records that the call succeeded.
    pub(super) fn succeeded(&self, attempts: u32) {
        self.span
            .record("attempts", attempts)
            .record("outcome", "ok");
    }

    /// Records that the call failed.
    pub(super) fn failed(&self, error: &Error) {
        use crate::Outcome;

        let outcome = match error.outcome() {
            Outcome::NotSent => "not_sent",
            Outcome::Refused => "refused",
            Outcome::Unknown => "unknown",
        };
        self.span
            .record("attempts", error.attempts())
            .record("outcome", outcome);
        record_error(&self.span, error);
    }
}

#[cfg(not(feature = "tracing"))]
impl CallSpan {
    pub(super) fn new(_operation: Operation) -> Self {
        Self {}
    }

    pub(super) fn run<F: Future>(&self, attempts: F) -> F {
        attempts
    }

    pub(super) fn succeeded(&self, _attempts: u32) {}

    pub(super) fn failed(&self, _error: &Error) {}
}

/// The span of one attempt. It contains the path only as a template, because an address is personal data.
pub(super) struct AttemptSpan {
    #[cfg(feature = "tracing")]
    span: tracing::Span,
}

#[cfg(feature = "tracing")]
impl AttemptSpan {
    /// Creates the span of an attempt that starts now.
    pub(super) fn new(base: &Url, operation: Operation, request: &Request, attempt: u32) -> Self {
        use tracing::field::Empty;

        let span = tracing::info_span!(
            "http.client.request",
            otel.name = format_args!("{} {}", request.method, operation.template),
            otel.kind = "client",
            otel.status_code = Empty,
            http.request.method = request.method.as_str(),
            http.request.resend_count = (attempt > 1).then(|| attempt - 1),
            http.response.status_code = Empty,
            url.template = operation.template,
            server.address = base.host_str(),
            server.port = base.port_or_known_default(),
            error.type = Empty,
        );
        Self { span }
    }

    /// Runs the attempt in the span.
    pub(super) fn run<T>(&self, work: impl Future<Output = T>) -> impl Future<Output = T> {
        tracing::Instrument::instrument(work, self.span.clone())
    }

    /// Records the status or the failure.
    pub(super) fn ended(&self, result: &Result<HttpResponse, FailedAttempt>) {
        let status = match result {
            Ok(response) => Some(response.status),
            Err(failed) => failed.error.status(),
        };
        if let Some(status) = status {
            self.span
                .record("http.response.status_code", status.as_u16());
        }
        if let Err(failed) = result {
            record_error(&self.span, &failed.error);
        }
    }
}

#[cfg(not(feature = "tracing"))]
impl AttemptSpan {
    pub(super) fn new(_: &Url, _: Operation, _: &Request, _attempt: u32) -> Self {
        Self {}
    }

    pub(super) fn run<F: Future>(&self, work: F) -> F {
        work
    }

    pub(super) fn ended(&self, _result: &Result<HttpResponse, FailedAttempt>) {}
}

/// Emits an event for a failed attempt that is retried.
pub(super) fn retry(operation: Operation, attempt: u32, wait: Duration, error: &Error) {
    #[cfg(feature = "tracing")]
    tracing::warn!(
        operation = operation.name,
        attempt,
        error.type = %ErrorType(error),
        http.response.status_code = error.status().map(|status| status.as_u16()),
        error = %error,
        wait_ms = milliseconds(wait),
        "the attempt failed and will be retried"
    );
    #[cfg(not(feature = "tracing"))]
    let _ = (operation, attempt, wait, error);
}

/// Emits an event for a call that waits because a 429 holds back the client.
pub(super) fn hold(operation: Operation, wait: Duration) {
    #[cfg(feature = "tracing")]
    tracing::info!(
        operation = operation.name,
        wait_ms = milliseconds(wait),
        "the service has asked to wait, so the request is not sent yet"
    );
    #[cfg(not(feature = "tracing"))]
    let _ = (operation, wait);
}

#[cfg(feature = "tracing")]
fn record_error(span: &tracing::Span, error: &Error) {
    span.record("otel.status_code", "ERROR")
        .record("error.type", tracing::field::display(ErrorType(error)));
}

/// Writes the status of the response or, without one, the kind of the error.
#[cfg(feature = "tracing")]
struct ErrorType<'a>(&'a Error);

#[cfg(feature = "tracing")]
impl std::fmt::Display for ErrorType<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.status() {
            Some(status) => f.write_str(status.as_str()),
            None => self.0.kind().fmt(f),
        }
    }
}

#[cfg(feature = "tracing")]
fn milliseconds(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)
}
