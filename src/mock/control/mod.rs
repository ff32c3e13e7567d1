//! The control plane, `/_mock/…`: the methods of [`MockServer`](super::MockServer) for programs in any language.

pub(super) mod access;
mod bodies;
mod call;
pub(super) mod change_stream;
mod contacts;
mod filters;
mod handlers;
mod overview;
mod page_query;
mod recent;
mod routes;

use std::sync::Arc;

use percent_encoding::percent_decode_str;

use self::call::Call;
use self::change_stream::ChangeStream;
use self::routes::Handler;
use super::recorded_request::RecordedRequest;
use super::response::MockResponse;
use super::service::refusal::Refusal;
use super::shared::Shared;

/// Returns whether a path belongs to the control plane instead of the service.
pub(super) fn is_control_path(path: &str) -> bool {
    path.strip_prefix("/_mock")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A response of the control plane.
#[derive(Debug)]
pub(super) enum ControlResponse {
    /// A response with a whole body.
    Whole(MockResponse),
    /// A 200 whose body goes on for as long as the server runs.
    Changes(ChangeStream),
}

/// Handles a request to the control plane.
pub(super) async fn respond(shared: &Arc<Shared>, request: &RecordedRequest) -> ControlResponse {
    dispatch(shared, request)
        .await
        .unwrap_or_else(|refusal| ControlResponse::Whole(refusal.into()))
}

async fn dispatch(
    shared: &Arc<Shared>,
    request: &RecordedRequest,
) -> Result<ControlResponse, Refusal> {
    let segments = request
        .path
        .split('/')
        .skip(2)
        .map(|segment| percent_decode_str(segment).decode_utf8())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| Refusal::invalid("the path is not valid UTF-8"))?;
    let (route, parameter) = routes::find(&segments).ok_or_else(|| {
        Refusal::not_found(format!(
            "the control plane has no path /_mock/{}",
            segments.join("/")
        ))
    })?;
    let Some(handler) = route.handler(&request.method) else {
        return Ok(ControlResponse::Whole(route.method_not_allowed()));
    };
    let call = Call {
        shared,
        parameter,
        query: request.query.as_deref(),
        body: &request.body,
    };
    match handler {
        Handler::Sync(handle) => handle(&call).map(ControlResponse::Whole),
        Handler::Async(handle) => handle(&call).await.map(ControlResponse::Whole),
        Handler::Stream(handle) => handle(&call).map(ControlResponse::Changes),
    }
}
