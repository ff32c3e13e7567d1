//! Spans and events, with the OpenTelemetry names for HTTP clients. Does nothing without the feature
//! `tracing`.

use std::time::Duration;

use url::Url;

use super::failed_attempt::FailedAttempt;
use super::request::{Operation, Request};
use super::response::HttpResponse;

/// Runs an attempt in a span. The span contains the path only as a template, because an address is
/// personal data.
#[cfg(feature = "tracing")]
pub(super) async fn attempt(
    base: &Url,
    operation: Operation,
    request: &Request,
    attempt: u32,
    work: impl Future<Output = Result<HttpResponse, FailedAttempt>>,
) -> Result<HttpResponse, FailedAttempt> {
    use tracing::Instrument as _;
    use tracing::field::{Empty, display};

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
    let result = work.instrument(span.clone()).await;
    match &result {
        Ok(response) => {
            span.record("http.response.status_code", response.status.as_u16());
        }
        Err(failed) => {
            span.record("otel.status_code", "ERROR");
            match failed.error.api() {
                Some(api) => {
                    let status = api.status().as_u16();
                    span.record("http.response.status_code", status)
                        .record("error.type", status);
                }
                None => {
                    span.record(
                        "error.type",
                        display(format_args!("{:?}", failed.error.kind())),
                    );
                }
            }
        }
    }
    result
}

#[cfg(not(feature = "tracing"))]
pub(super) async fn attempt(
    _base: &Url,
    _operation: Operation,
    _request: &Request,
    _attempt: u32,
    work: impl Future<Output = Result<HttpResponse, FailedAttempt>>,
) -> Result<HttpResponse, FailedAttempt> {
    work.await
}

/// Emits an event for a failed attempt that is retried.
pub(super) fn retry(operation: Operation, attempt: u32, wait: Duration) {
    #[cfg(feature = "tracing")]
    tracing::debug!(
        operation = operation.name,
        attempt,
        wait_ms = wait.as_millis(),
        "the attempt failed and will be retried"
    );
    #[cfg(not(feature = "tracing"))]
    let _ = (operation, attempt, wait);
}

/// Emits an event for a call that waits because a 429 holds back the client.
pub(super) fn hold(operation: Operation, wait: Duration) {
    #[cfg(feature = "tracing")]
    tracing::debug!(
        operation = operation.name,
        wait_ms = wait.as_millis(),
        "the service has asked to wait, so the request is not sent yet"
    );
    #[cfg(not(feature = "tracing"))]
    let _ = (operation, wait);
}
