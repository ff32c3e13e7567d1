//! Spans and events, under the OpenTelemetry names for HTTP clients. Nothing without `tracing`.

use std::time::Duration;

use url::Url;

use super::Failed;
use crate::client::wire::{Operation, Request, Response};

/// Runs an attempt inside a span of its own. The path stands in it as a template only: addresses are
/// personal data.
#[cfg(feature = "tracing")]
pub(super) async fn attempt(
    base: &Url,
    request: &Request,
    attempt: u32,
    work: impl Future<Output = Result<Response, Failed>>,
) -> Result<Response, Failed> {
    use tracing::Instrument as _;
    use tracing::field::{Empty, display};

    let span = tracing::info_span!(
        "http.client.request",
        otel.name = format_args!("{} {}", request.method, request.operation.template),
        otel.kind = "client",
        otel.status_code = Empty,
        http.request.method = request.method.as_str(),
        http.request.resend_count = (attempt > 1).then(|| attempt - 1),
        http.response.status_code = Empty,
        url.template = request.operation.template,
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
    _request: &Request,
    _attempt: u32,
    work: impl Future<Output = Result<Response, Failed>>,
) -> Result<Response, Failed> {
    work.await
}

/// Notes that an attempt failed and another follows.
pub(super) fn waiting(operation: Operation, attempt: u32, wait: Duration) {
    #[cfg(feature = "tracing")]
    tracing::debug!(
        operation = operation.name,
        attempt,
        wait_ms = wait.as_millis(),
        "the attempt failed, another follows"
    );
    #[cfg(not(feature = "tracing"))]
    let _ = (operation, attempt, wait);
}
