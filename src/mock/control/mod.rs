//! The control plane, `/_mock/…`: the methods of [`MockServer`](super::MockServer) for programs in any language.

pub(super) mod access;
mod calls;
mod lists;

use std::pin::Pin;
use std::sync::Arc;

use http::header::ALLOW;
use http::{HeaderValue, Response};
use percent_encoding::percent_decode_str;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde::de::value::{Error as QueryError, MapDeserializer};

use self::Handler::{Async, Sync};
use super::recorded_request::RecordedRequest;
use super::response::{MockResponse, ResponseBody, http_response};
use super::service::refusal::Refusal;
use super::service::router::decode_parameter;
use super::shared::Shared;
use super::{description, page};

/// The calls of the control plane: the method, the path below `/_mock/`, and what handles it. At most one segment of a
/// path is a parameter, written `{…}`. The guide `docs/other-languages.md` has the same table.
#[rustfmt::skip]
const ROUTES: &[(&str, &str, Handler)] = &[
    ("GET", "", Sync(|_| Ok(http_response(page::response())))),
    ("GET", "stream", Sync(calls::stream)),
    ("GET", "overview", Sync(calls::overview)),
    ("GET", "health", Sync(calls::health)),
    ("POST", "reset", Sync(calls::reset)),
    ("GET", "topics", Sync(lists::topics)),
    ("PUT", "topics/{name}", Sync(calls::put_topic)),
    ("GET", "segments", Sync(lists::segments)),
    ("PUT", "segments/{id}", Sync(calls::put_segment)),
    ("POST", "seed", Async(|call| Box::pin(calls::seed(call)))),
    ("GET", "contacts", Sync(lists::contacts)),
    ("GET", "contacts/{address}", Sync(calls::read_contact)),
    ("PUT", "contacts/{address}", Sync(calls::put_contact)),
    ("POST", "contacts/{address}/complaint", Sync(calls::report_spam)),
    ("POST", "contacts/{address}/engagement", Sync(calls::record_engagement)),
    ("GET", "clock", Sync(calls::read_clock)),
    ("POST", "clock", Async(|call| Box::pin(calls::move_clock(call)))),
    ("PUT", "ceiling", Sync(calls::put_ceiling)),
    ("GET", "faults", Sync(lists::faults)),
    ("POST", "faults", Sync(calls::add_fault)),
    ("DELETE", "faults", Sync(calls::clear_faults)),
    ("GET", "requests", Sync(lists::requests)),
    ("DELETE", "requests", Sync(calls::clear_requests)),
    ("GET", "requests/{number}", Sync(lists::request)),
    ("GET", "endpoints", Sync(lists::endpoints)),
    ("PUT", "endpoints/{name}", Sync(calls::put_endpoint)),
    ("DELETE", "endpoints/{name}", Sync(calls::delete_endpoint)),
    ("GET", "events", Sync(lists::events)),
    ("POST", "events", Async(|call| Box::pin(calls::send_event(call)))),
    ("POST", "events/{id}/redeliver", Async(|call| Box::pin(calls::redeliver(call)))),
    ("GET", "delivery-faults", Sync(lists::delivery_faults)),
    ("POST", "delivery-faults", Sync(calls::add_delivery_fault)),
    ("DELETE", "delivery-faults", Sync(calls::clear_delivery_faults)),
    ("PUT", "signing-clock", Sync(calls::put_signing_clock)),
    ("GET", "emails", Sync(lists::emails)),
    ("POST", "emails/{id}/outcome", Async(|call| Box::pin(calls::mail_outcome(call)))),
    ("GET", "attempts", Sync(lists::attempts)),
    ("GET", "openapi.json", Sync(|_| Ok(http_response(description::document())))),
    ("GET", "docs", Sync(|_| Ok(http_response(description::page())))),
];

/// A function that handles a call.
enum Handler {
    Sync(fn(&Call<'_>) -> CallResult),
    Async(for<'a> fn(&'a Call<'a>) -> Pin<Box<dyn Future<Output = CallResult> + Send + 'a>>),
}

/// A call of the control plane whose path and method are known.
struct Call<'a> {
    shared: &'a Arc<Shared>,
    /// The decoded path segment at the route's `{…}`. Empty if the route has none.
    parameter: &'a str,
    /// The query as sent, without the question mark.
    query: Option<&'a str>,
    body: &'a [u8],
}

type CallResult = Result<Response<ResponseBody>, Refusal>;

/// Returns whether a path belongs to the control plane instead of the service.
pub(super) fn is_control_path(path: &str) -> bool {
    path.strip_prefix("/_mock")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Handles a request to the control plane.
pub(super) async fn respond(
    shared: &Arc<Shared>,
    request: &RecordedRequest,
) -> Response<ResponseBody> {
    dispatch(shared, request)
        .await
        .unwrap_or_else(|refusal| http_response(refusal.into()))
}

async fn dispatch(shared: &Arc<Shared>, request: &RecordedRequest) -> CallResult {
    let segments = request
        .path
        .split('/')
        .skip(2)
        .map(|segment| percent_decode_str(segment).decode_utf8())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| Refusal::invalid("the path is not valid UTF-8"))?;
    let routes = routes_of(&segments);
    let Some((_, _, parameter)) = routes.first() else {
        return Err(Refusal::not_found(format!(
            "the control plane has no path /_mock/{}",
            segments.join("/")
        )));
    };
    let Some((_, handler, _)) = routes.iter().find(|(method, ..)| *method == request.method) else {
        let methods: Vec<_> = routes.iter().map(|(method, ..)| *method).collect();
        return Ok(method_not_allowed(&methods.join(", ")));
    };
    let call = Call {
        shared,
        parameter,
        query: request.query.as_deref(),
        body: &request.body,
    };
    match handler {
        Sync(handle) => handle(&call),
        Async(handle) => handle(&call).await,
    }
}

/// Returns the methods and handlers of the path with these decoded segments, and the value of its parameter.
fn routes_of(path: &[impl AsRef<str>]) -> Vec<(&'static str, &'static Handler, &str)> {
    let matching = ROUTES.iter().filter_map(|(method, route, handler)| {
        Some((*method, handler, parameter_in(route, path)?))
    });
    matching.collect()
}

/// Returns the value of the parameter in `path`, `""` if `route` has none, or `None` if the path is another.
fn parameter_in<'p>(route: &str, path: &'p [impl AsRef<str>]) -> Option<&'p str> {
    if path.is_empty() {
        // `/_mock` is the same as `/_mock/`.
        return route.is_empty().then_some("");
    }
    if route.split('/').count() != path.len() {
        return None;
    }
    let mut parameter = "";
    for (expected, segment) in route.split('/').zip(path) {
        let segment = segment.as_ref();
        if expected.starts_with('{') {
            parameter = segment;
        } else if expected != segment {
            return None;
        }
    }
    Some(parameter)
}

fn method_not_allowed(allowed: &str) -> Response<ResponseBody> {
    let message = format!("this path supports only {allowed}");
    let mut response: MockResponse = Refusal::new(405, "method_not_allowed", message).into();
    let allowed = HeaderValue::from_str(allowed).expect("method names are ASCII letters");
    response.headers.push((ALLOW, allowed));
    http_response(response)
}

impl Call<'_> {
    /// Parses the query. A parameter without a value counts as left out, unless it needs one.
    ///
    /// # Errors
    ///
    /// A 422 if a parameter is unknown or repeated, or its value is invalid.
    fn query<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        let mut parameters = Vec::new();
        for parameter in self.query.unwrap_or_default().split('&') {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            if !value.is_empty() || matches!(name, "limit" | "after") {
                parameters.push((name, decode_parameter(value)?));
            }
        }
        T::deserialize(MapDeserializer::new(parameters.into_iter()))
            .map_err(|error: QueryError| Refusal::invalid(format!("the query is invalid: {error}")))
    }

    /// Parses the body as JSON.
    ///
    /// # Errors
    ///
    /// A 422 if the body is empty, is not an object, or does not have the form of `T`.
    fn json<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        serde_json::from_slice(self.body_text()?)
            .map_err(|error| Refusal::invalid(format!("the body is invalid: {error}")))
    }

    /// Returns the body, which is the text of a JSON object if it is JSON.
    ///
    /// # Errors
    ///
    /// A 422 if the body is empty or is not an object.
    fn body_text(&self) -> Result<&[u8], Refusal> {
        if self.body.is_empty() {
            return Err(Refusal::invalid("this call needs a JSON body"));
        }
        // `serde` would accept an array in place of an object, and name a Rust type in the error for a number.
        if !self.body.trim_ascii_start().starts_with(b"{") {
            return Err(Refusal::invalid("the body must be a JSON object"));
        }
        Ok(self.body)
    }
}

/// Returns a 200 with a JSON body.
fn ok(body: &impl Serialize) -> Response<ResponseBody> {
    http_response(MockResponse {
        status: 200,
        headers: Vec::new(),
        body: serde_json::to_vec(body)
            .expect("strings, numbers and maps with string keys always serialize to JSON"),
    })
}

/// Returns a 204 without a body.
fn no_content() -> Response<ResponseBody> {
    http_response(MockResponse {
        status: 204,
        ..MockResponse::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path<'a>(segments: &'a [&'a str]) -> Option<(Vec<&'static str>, &'a str)> {
        let routes = routes_of(segments);
        let (.., parameter) = *routes.first()?;
        Some((
            routes.iter().map(|(method, ..)| *method).collect(),
            parameter,
        ))
    }

    #[test]
    fn no_call_is_listed_twice_or_has_two_parameters() {
        for (index, (method, path, _)) in ROUTES.iter().enumerate() {
            assert!(path.matches('{').count() <= 1, "{path}");
            let mut before = ROUTES[..index].iter();
            assert!(
                before.all(|(other, of, _)| (other, of) != (method, path)),
                "{method} {path}"
            );
        }
    }

    #[test]
    fn the_guide_lists_every_call() {
        let docs = include_str!("../../../docs/other-languages.md");

        for (method, path, _) in ROUTES {
            let call = format!("| `{method} /_mock/{path}` |");
            assert!(docs.contains(&call), "{call}");
        }
    }

    #[test]
    fn a_path_is_matched_segment_by_segment() {
        assert_eq!(path(&[]), Some((vec!["GET"], "")));
        assert_eq!(path(&[""]), Some((vec!["GET"], "")));
        assert_eq!(path(&["clock"]), Some((vec!["GET", "POST"], "")));
        assert_eq!(path(&["topics", "a/b"]), Some((vec!["PUT"], "a/b")));
        for unknown in [
            &["", ""][..],
            &["nothing"],
            &["health", ""],
            &["events", "evt_1"],
        ] {
            assert_eq!(path(unknown), None, "{unknown:?}");
        }
    }

    #[test]
    fn the_response_to_a_wrong_method_lists_the_allowed_ones() {
        let (methods, _) = path(&["endpoints", "crm"]).unwrap();

        let response = method_not_allowed(&methods.join(", "));

        assert_eq!(response.status(), 405);
        assert_eq!(response.headers()[ALLOW], "PUT, DELETE");
    }
}
