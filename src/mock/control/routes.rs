//! The paths and methods of the control plane.

use std::pin::Pin;

use http::HeaderValue;
use http::header::ALLOW;

use self::Handler::{Async, Stream, Sync};
use super::call::{Call, CallResult};
use super::change_stream::ChangeStream;
use super::{contacts, handlers, overview, recent};
use crate::mock::description;
use crate::mock::response::MockResponse;
use crate::mock::service::refusal::Refusal;

/// The calls of the control plane. The docs of [`mock`](crate::mock) have the same table.
#[rustfmt::skip]
const ROUTES: &[Route] = &[
    Route { path: "", methods: &[("GET", Sync(overview::page))] },
    Route { path: "stream", methods: &[("GET", Stream(overview::stream))] },
    Route { path: "overview", methods: &[("GET", Sync(overview::overview))] },
    Route { path: "health", methods: &[("GET", Sync(handlers::health))] },
    Route { path: "reset", methods: &[("POST", Sync(handlers::reset))] },
    Route { path: "topics", methods: &[("GET", Sync(overview::list_topics))] },
    Route { path: "topics/{name}", methods: &[("PUT", Sync(handlers::put_topic))] },
    Route { path: "segments", methods: &[("GET", Sync(overview::list_segments))] },
    Route { path: "segments/{id}", methods: &[("PUT", Sync(handlers::put_segment))] },
    Route { path: "seed", methods: &[("POST", Async(|call| Box::pin(contacts::seed(call))))] },
    Route { path: "contacts", methods: &[("GET", Sync(contacts::list_contacts))] },
    Route { path: "contacts/{address}", methods: &[
        ("GET", Sync(contacts::read_contact)),
        ("PUT", Sync(contacts::put_contact)),
    ] },
    Route { path: "contacts/{address}/complaint", methods: &[("POST", Sync(handlers::report_spam))] },
    Route { path: "contacts/{address}/engagement", methods: &[("POST", Sync(handlers::record_engagement))] },
    Route { path: "clock", methods: &[
        ("GET", Sync(handlers::read_clock)),
        ("POST", Async(|call| Box::pin(handlers::move_clock(call)))),
    ] },
    Route { path: "ceiling", methods: &[("PUT", Sync(handlers::put_ceiling))] },
    Route { path: "faults", methods: &[
        ("GET", Sync(overview::list_faults)),
        ("POST", Sync(handlers::add_fault)),
        ("DELETE", Sync(handlers::clear_faults)),
    ] },
    Route { path: "requests", methods: &[
        ("GET", Sync(recent::list_requests)),
        ("DELETE", Sync(handlers::clear_requests)),
    ] },
    Route { path: "requests/{number}", methods: &[("GET", Sync(recent::read_request))] },
    Route { path: "endpoints", methods: &[("GET", Sync(overview::list_endpoints))] },
    Route { path: "endpoints/{name}", methods: &[
        ("PUT", Sync(handlers::put_endpoint)),
        ("DELETE", Sync(handlers::delete_endpoint)),
    ] },
    Route { path: "events", methods: &[
        ("GET", Sync(recent::list_events)),
        ("POST", Async(|call| Box::pin(handlers::send_event(call)))),
    ] },
    Route { path: "events/{id}/redeliver", methods: &[
        ("POST", Async(|call| Box::pin(handlers::redeliver(call)))),
    ] },
    Route { path: "delivery-faults", methods: &[
        ("GET", Sync(overview::list_delivery_faults)),
        ("POST", Sync(handlers::add_delivery_fault)),
        ("DELETE", Sync(handlers::clear_delivery_faults)),
    ] },
    Route { path: "signing-clock", methods: &[("PUT", Sync(handlers::put_signing_clock))] },
    Route { path: "emails", methods: &[("GET", Sync(recent::list_emails))] },
    Route { path: "emails/{id}/outcome", methods: &[
        ("POST", Async(|call| Box::pin(handlers::mail_outcome(call)))),
    ] },
    Route { path: "attempts", methods: &[("GET", Sync(handlers::list_attempts))] },
    Route { path: "openapi.json", methods: &[("GET", Sync(|_| Ok(description::document())))] },
    Route { path: "docs", methods: &[("GET", Sync(|_| Ok(description::page())))] },
];

/// A path of the control plane, with a handler for each of its methods.
pub(super) struct Route {
    /// The path below `/_mock/`. At most one segment is a parameter, written `{…}`.
    path: &'static str,
    methods: &'static [(&'static str, Handler)],
}

/// A function that handles a call.
pub(super) enum Handler {
    Sync(fn(&Call<'_>) -> CallResult),
    Stream(fn(&Call<'_>) -> Result<ChangeStream, Refusal>),
    Async(for<'a> fn(&'a Call<'a>) -> Pin<Box<dyn Future<Output = CallResult> + Send + 'a>>),
}

/// Finds the route for the decoded segments of a path below `/_mock/`, and the value of its parameter.
pub(super) fn find(path: &[impl AsRef<str>]) -> Option<(&'static Route, &str)> {
    ROUTES.iter().find_map(|route| {
        let parameter = if path.is_empty() {
            // `/_mock` is the same as `/_mock/`.
            route.path.is_empty().then_some("")
        } else {
            route.parameter_in(path)
        };
        Some((route, parameter?))
    })
}

impl Route {
    /// Returns the handler for a method.
    pub(super) fn handler(&self, method: &str) -> Option<&Handler> {
        self.methods
            .iter()
            .find(|(name, _)| *name == method)
            .map(|(_, handler)| handler)
    }

    /// Returns the 405 for a method that this route does not have.
    pub(super) fn method_not_allowed(&self) -> MockResponse {
        let names: Vec<_> = self.methods.iter().map(|(name, _)| *name).collect();
        let allowed = names.join(", ");
        let message = format!("this path supports only {allowed}");
        let mut response: MockResponse = Refusal::new(405, "method_not_allowed", message).into();
        let allowed = HeaderValue::from_str(&allowed).expect("method names are ASCII letters");
        response.headers.push((ALLOW, allowed));
        response
    }

    /// Returns the value of the parameter in `path`, `""` if this route has none, or `None` if the path is another.
    fn parameter_in<'p>(&self, path: &'p [impl AsRef<str>]) -> Option<&'p str> {
        if self.path.split('/').count() != path.len() {
            return None;
        }
        let mut parameter = "";
        for (expected, segment) in self.path.split('/').zip(path) {
            let segment = segment.as_ref();
            if expected.starts_with('{') {
                parameter = segment;
            } else if expected != segment {
                return None;
            }
        }
        Some(parameter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path<'a>(segments: &'a [&'a str]) -> Option<(&'static str, &'a str)> {
        find(segments).map(|(route, parameter)| (route.path, parameter))
    }

    #[test]
    fn no_path_is_listed_twice_or_has_two_parameters() {
        for (index, route) in ROUTES.iter().enumerate() {
            assert!(route.path.matches('{').count() <= 1, "{}", route.path);
            assert!(
                ROUTES[..index].iter().all(|other| other.path != route.path),
                "{}",
                route.path
            );
        }
    }

    #[test]
    fn the_guide_lists_every_call() {
        let docs = include_str!("../../../docs/other-languages.md");

        for route in ROUTES {
            for (method, _) in route.methods {
                let call = format!("| `{method} /_mock/{}` |", route.path);
                assert!(docs.contains(&call), "{call}");
            }
        }
    }

    #[test]
    fn a_path_is_matched_segment_by_segment() {
        assert_eq!(path(&[]), Some(("", "")));
        assert_eq!(path(&[""]), Some(("", "")));
        assert_eq!(path(&["clock"]), Some(("clock", "")));
        assert_eq!(path(&["topics", "a/b"]), Some(("topics/{name}", "a/b")));
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
        let (route, _) = find(&["endpoints", "crm"]).unwrap();

        let response = route.method_not_allowed();

        assert!(route.handler("GET").is_none());
        assert_eq!(response.status, 405);
        assert_eq!(
            response.headers,
            [(ALLOW, HeaderValue::from_static("PUT, DELETE"))]
        );
    }
}
