//! The control plane, `/_mock/…`: the methods of [`MockServer`](super::MockServer) for programs in any language.

pub(super) mod access;
mod lists;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Either;
use serde::de::DeserializeOwned;
use serde::de::value::{Error as QueryError, MapDeserializer};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use self::Handler::{Async, Sync};
use super::delivery::{DeliveryFault, SigningClock, Target};
use super::faults::Fault;
use super::http::{ResponseBody, http_response};
use super::service::contact::EngagementKind;
use super::service::dialect::ErrorShape;
use super::service::mail::{self, MailOutcome, OutcomeKind, apply_outcome};
use super::service::rule::SegmentKind;
use super::service::seed::{self as seeds, Seed, SeedContact};
use super::service::{NewEvent, Refusal, check_address, decode, decode_parameter};
use super::text::BYTE_ORDER_MARK;
use super::{Shared, page};

/// The calls of the control plane: the method, the path below `/_mock/`, and what handles it. At most one segment of a
/// path is a parameter, written `{…}`. The guide `docs/mock-over-http.md` has the same table.
#[rustfmt::skip]
const ROUTES: &[(&str, &str, Handler)] = &[
    ("GET", "", Sync(|_| Ok(http_response(page::response())))),
    ("GET", "stream", Sync(stream)),
    ("GET", "overview", Sync(overview)),
    ("GET", "health", Sync(health)),
    ("POST", "reset", Sync(reset)),
    ("GET", "topics", Sync(lists::topics)),
    ("PUT", "topics/{name}", Sync(put_topic)),
    ("GET", "segments", Sync(lists::segments)),
    ("PUT", "segments/{id}", Sync(put_segment)),
    ("POST", "seed", Async(|call| Box::pin(seed(call)))),
    ("GET", "contacts", Sync(lists::contacts)),
    ("GET", "contacts/{address}", Sync(read_contact)),
    ("PUT", "contacts/{address}", Sync(put_contact)),
    ("DELETE", "contacts/{address}", Sync(remove_contact)),
    ("POST", "contacts/{address}/complaint", Async(|call| Box::pin(report_spam(call)))),
    ("POST", "contacts/{address}/engagement", Sync(record_engagement)),
    ("GET", "clock", Sync(read_clock)),
    ("POST", "clock", Async(|call| Box::pin(move_clock(call)))),
    ("PUT", "ceiling", Sync(put_ceiling)),
    ("GET", "faults", Sync(lists::faults)),
    ("POST", "faults", Sync(add_fault)),
    ("DELETE", "faults", Sync(clear_faults)),
    ("DELETE", "faults/{number}", Sync(remove_fault)),
    ("GET", "requests", Sync(lists::requests)),
    ("DELETE", "requests", Sync(clear_requests)),
    ("GET", "requests/{number}", Sync(lists::request)),
    ("GET", "endpoints", Sync(lists::endpoints)),
    ("PUT", "endpoints/{name}", Sync(put_endpoint)),
    ("DELETE", "endpoints/{name}", Sync(delete_endpoint)),
    ("GET", "events", Sync(lists::events)),
    ("POST", "events", Async(|call| Box::pin(send_event(call)))),
    ("POST", "events/{id}/redeliver", Async(|call| Box::pin(redeliver(call)))),
    ("GET", "delivery-faults", Sync(lists::delivery_faults)),
    ("POST", "delivery-faults", Sync(add_delivery_fault)),
    ("DELETE", "delivery-faults", Sync(clear_delivery_faults)),
    ("DELETE", "delivery-faults/{number}", Sync(remove_delivery_fault)),
    ("PUT", "signing-clock", Sync(put_signing_clock)),
    ("GET", "emails", Sync(lists::emails)),
    ("POST", "emails/{id}/outcome", Async(|call| Box::pin(mail_outcome(call)))),
    ("GET", "attempts", Sync(lists::attempts)),
    ("GET", "attempts/{number}", Sync(lists::attempt)),
    ("GET", "openapi.json", Sync(|_| Ok(http_response(page::description())))),
    ("GET", "docs", Sync(|_| Ok(http_response(page::description_page())))),
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

/// Returns the response that states an error of the control plane. It has the shape of the default dialect.
pub(super) fn error_response(refusal: &Refusal) -> Response<Bytes> {
    refusal.response(ErrorShape::default())
}

/// Returns the response to a browser that asks for an icon.
pub(super) fn no_icon() -> Response<Bytes> {
    let mut response = Response::default();
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

/// Handles a request to the control plane.
pub(super) async fn respond(
    shared: &Arc<Shared>,
    request: &Request<Bytes>,
) -> Response<ResponseBody> {
    dispatch(shared, request)
        .await
        .unwrap_or_else(|refusal| http_response(error_response(&refusal)))
}

async fn dispatch(shared: &Arc<Shared>, request: &Request<Bytes>) -> CallResult {
    let uri = request.uri();
    let segments = uri
        .path()
        .split('/')
        .skip(2)
        .map(decode)
        .collect::<Result<Vec<_>, _>>()?;
    let routes = routes_of(&segments);
    let Some((_, _, parameter)) = routes.first() else {
        return Err(Refusal::not_found(format!(
            "the control plane has no path /_mock/{}",
            segments.join("/")
        )));
    };
    let Some((_, handler, _)) = routes
        .iter()
        .find(|(method, ..)| request.method() == method || is_head_of(request.method(), method))
    else {
        let methods: Vec<_> = routes
            .iter()
            .map(|(method, ..)| shown_method(method))
            .collect();
        return Ok(method_not_allowed(&methods.join(", ")));
    };
    let call = Call {
        shared,
        parameter,
        query: uri.query(),
        body: request.body(),
    };
    match handler {
        Sync(handle) => handle(&call),
        Async(handle) => handle(&call).await,
    }
}

/// Returns whether a request asks for the head of the response to a GET. The server leaves out the body.
fn is_head_of(requested: &Method, method: &str) -> bool {
    requested == Method::HEAD && method == "GET"
}

/// Returns a method of the table as `Allow` lists it: a path with GET also has HEAD.
fn shown_method(method: &'static str) -> &'static str {
    match method {
        "GET" => "GET, HEAD",
        other => other,
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
    let mut response = error_response(&Refusal::new(405, "method_not_allowed", message));
    let allowed = HeaderValue::from_str(allowed).expect("method names are ASCII letters");
    response.headers_mut().append(ALLOW, allowed);
    http_response(response)
}

impl Call<'_> {
    /// Returns the parameter of the path, which is the name of what the call adds.
    ///
    /// # Errors
    ///
    /// A 422 if the name is empty.
    fn name(&self) -> Result<&str, Refusal> {
        match self.parameter {
            "" => Err(Refusal::invalid("the name at the end of the path is empty")),
            name => Ok(name),
        }
    }

    /// Returns the parameter of the path, which is an email address.
    ///
    /// # Errors
    ///
    /// A 422 if it is not.
    fn address(&self) -> Result<&str, Refusal> {
        check_address(self.parameter)?;
        Ok(self.parameter)
    }

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

    /// Returns the body without a byte order mark. It is the text of a JSON object if it is JSON.
    ///
    /// # Errors
    ///
    /// A 422 if the body is empty or is not an object.
    fn body_text(&self) -> Result<&[u8], Refusal> {
        let body = self.body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(self.body);
        if body.is_empty() {
            return Err(Refusal::invalid("this call needs a JSON body"));
        }
        // `serde` would accept an array in place of an object, and name a Rust type in the error for a number.
        if !body.trim_ascii_start().starts_with(b"{") {
            return Err(Refusal::invalid("the body must be a JSON object"));
        }
        Ok(body)
    }
}

/// Returns a 200 with a JSON body.
fn ok(body: &impl Serialize) -> Response<ResponseBody> {
    let body = serde_json::to_vec(body)
        .expect("strings, numbers and maps with string keys always serialize to JSON");
    http_response(Response::new(body.into()))
}

/// Returns a 204 without a body.
fn no_content() -> Response<ResponseBody> {
    let mut response = Response::default();
    *response.status_mut() = StatusCode::NO_CONTENT;
    http_response(response)
}

fn stream(call: &Call<'_>) -> CallResult {
    match call.shared.changes.stream() {
        Some(changes) => {
            let mut response = Response::new(Either::Right(changes));
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
            Ok(response)
        }
        None => {
            let message = "too many streams are open; close one";
            Err(Refusal::new(503, "service_unavailable", message))
        }
    }
}

/// Returns the clock, the settings, the faults, and how many items each list has.
fn overview(call: &Call<'_>) -> CallResult {
    let clock = &call.shared.clock;
    let state = call.shared.lock();
    let (events, attempts) = state.deliveries.counts();
    Ok(ok(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "now": clock.now(),
        "clock": if clock.is_stopped() { "stopped" } else { "running" },
        "signing_clock": state.deliveries.signing_clock,
        "key_header": state.audience.key_header(),
        "ceiling": state.audience.contacts.ceiling,
        "counts": {
            "contacts": state.audience.contacts.len(),
            "topics": state.audience.topics().count(),
            "emails": state.audience.mails.len(),
            "events": events,
            "attempts": attempts,
            "requests": state.journal.entries().len(),
        },
        "endpoints": state.deliveries.endpoints,
        "faults": state.faults,
        "delivery_faults": state.deliveries.faults,
    })))
}

fn read_contact(call: &Call<'_>) -> CallResult {
    let address = call.address()?;
    let contact = call.shared.lock().audience.contact(address);
    match contact {
        Some(contact) => Ok(ok(&contact)),
        None => Err(no_contact(call)),
    }
}

fn remove_contact(call: &Call<'_>) -> CallResult {
    let address = call.address()?;
    match call.shared.lock().audience.contacts.remove(address) {
        true => Ok(no_content()),
        false => Err(no_contact(call)),
    }
}

fn no_contact(call: &Call<'_>) -> Refusal {
    Refusal::not_found(format!("there is no contact {:?}", call.parameter))
}

fn put_contact(call: &Call<'_>) -> CallResult {
    let contact =
        SeedContact::parse(call.body_text()?, call.parameter).map_err(Refusal::invalid)?;
    let now = call.shared.clock.unix();
    let stored = seeds::put_contact(&mut call.shared.lock().audience, contact, now);
    Ok(ok(&stored.map_err(Refusal::invalid)?))
}

async fn seed(call: &Call<'_>) -> CallResult {
    let seed = Seed::parse(call.body_text()?).map_err(Refusal::invalid)?;
    if let Some(target) = call.shared.seed(seed).map_err(Refusal::invalid)? {
        call.shared.wait_for_clock(target).await;
    }
    Ok(no_content())
}

fn health(_call: &Call<'_>) -> CallResult {
    Ok(ok(&json!({"status": "ok"})))
}

fn reset(call: &Call<'_>) -> CallResult {
    call.shared.reset();
    Ok(no_content())
}

fn put_topic(call: &Call<'_>) -> CallResult {
    let TopicBody { default } = call.json()?;
    let name = call.name()?;
    call.shared.lock().audience.put_topic(name, default);
    Ok(no_content())
}

fn put_segment(call: &Call<'_>) -> CallResult {
    let kind = call.json::<SegmentBody>()?.into_kind()?;
    let id = call.name()?;
    call.shared
        .lock()
        .audience
        .put_segment(id, kind)
        .map_err(Refusal::invalid)?;
    Ok(no_content())
}

async fn report_spam(call: &Call<'_>) -> CallResult {
    let address = call.address()?;
    call.shared
        .publish(|audience, now| {
            mail::report_spam(audience, address, now);
            Ok::<_, Refusal>(())
        })
        .await?;
    Ok(no_content())
}

fn record_engagement(call: &Call<'_>) -> CallResult {
    let EngagementBody { what, at } = call.json()?;
    let what = EngagementKind::parse(&what).map_err(Refusal::invalid)?;
    let at = at.unwrap_or_else(|| call.shared.clock.unix());
    let address = call.address()?;
    call.shared
        .lock()
        .audience
        .record_engagement(address, what, at);
    Ok(no_content())
}

fn read_clock(call: &Call<'_>) -> CallResult {
    Ok(ok(&json!({"now": call.shared.clock.now()})))
}

async fn move_clock(call: &Call<'_>) -> CallResult {
    let ClockBody { advance, set } = call.json()?;
    let target = match (advance, set) {
        (Some(seconds), None) => call.shared.advance_clock(Duration::from_secs(seconds)),
        (None, Some(to)) => call.shared.set_clock(to),
        _ => {
            return Err(Refusal::invalid(
                "the clock needs either `advance`, in seconds, or `set`, a time in Unix seconds",
            ));
        }
    };
    call.shared.wait_for_clock(target).await;
    read_clock(call)
}

fn put_ceiling(call: &Call<'_>) -> CallResult {
    let CeilingBody { contacts } = call.json()?;
    call.shared.lock().audience.contacts.ceiling = contacts;
    Ok(no_content())
}

fn add_fault(call: &Call<'_>) -> CallResult {
    let fault: Fault = call.json()?;
    fault.check().map_err(Refusal::invalid)?;
    call.shared.lock().faults.add(fault);
    Ok(no_content())
}

fn clear_faults(call: &Call<'_>) -> CallResult {
    call.shared.lock().faults.clear();
    Ok(no_content())
}

fn remove_fault(call: &Call<'_>) -> CallResult {
    removed(call, |number| call.shared.lock().faults.remove(number))
}

fn remove_delivery_fault(call: &Call<'_>) -> CallResult {
    let remove = |number| call.shared.lock().deliveries.faults.remove(number);
    removed(call, remove)
}

fn removed(call: &Call<'_>, remove: impl FnOnce(u64) -> bool) -> CallResult {
    if call.parameter.parse().is_ok_and(remove) {
        return Ok(no_content());
    }
    let number = call.parameter;
    Err(Refusal::not_found(format!(
        "there is no fault {number:?}, or it is used up"
    )))
}

fn clear_requests(call: &Call<'_>) -> CallResult {
    call.shared.lock().journal.clear();
    Ok(no_content())
}

fn put_endpoint(call: &Call<'_>) -> CallResult {
    let EndpointBody { url, secret } = call.json()?;
    let target = Target::new(&url, &secret).map_err(Refusal::invalid)?;
    let name = call.name()?;
    call.shared.lock().deliveries.endpoints.put(name, target);
    Ok(no_content())
}

fn delete_endpoint(call: &Call<'_>) -> CallResult {
    let name = call.name()?;
    let was_removed = call.shared.lock().deliveries.remove_endpoint(name);
    if !was_removed {
        return Err(Refusal::not_found(format!("there is no endpoint {name:?}")));
    }
    // Nothing waits for its pending attempts any longer.
    call.shared.update_schedule();
    Ok(no_content())
}

async fn send_event(call: &Call<'_>) -> CallResult {
    let event = NewEvent::parse(call.json()?).map_err(Refusal::invalid)?;
    let id = call.shared.send_event(event).await;
    Ok(ok(&json!({"id": id})))
}

async fn redeliver(call: &Call<'_>) -> CallResult {
    let id = call.parameter;
    if call.shared.redeliver(id).await {
        Ok(no_content())
    } else {
        Err(Refusal::not_found(format!("there is no event {id:?}")))
    }
}

fn add_delivery_fault(call: &Call<'_>) -> CallResult {
    let fault: DeliveryFault = call.json()?;
    let added = call.shared.lock().deliveries.add_fault(fault);
    added.map_err(Refusal::invalid)?;
    Ok(no_content())
}

fn clear_delivery_faults(call: &Call<'_>) -> CallResult {
    call.shared.lock().deliveries.faults.clear();
    Ok(no_content())
}

fn put_signing_clock(call: &Call<'_>) -> CallResult {
    let SigningClockBody { clock } = call.json()?;
    call.shared.lock().deliveries.signing_clock = clock;
    Ok(no_content())
}

async fn mail_outcome(call: &Call<'_>) -> CallResult {
    let outcome = call.json::<OutcomeBody>()?.into_outcome()?;
    let id = call
        .shared
        .publish(|audience, now| apply_outcome(audience, call.parameter, &outcome, now))
        .await?;
    Ok(ok(&json!({"id": id})))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TopicBody {
    default: bool,
}

/// Either a list of addresses or a rule.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SegmentBody {
    contacts: Option<Vec<String>>,
    rule: Option<Value>,
}

impl SegmentBody {
    fn into_kind(self) -> Result<SegmentKind, Refusal> {
        match (self.contacts, self.rule) {
            (Some(contacts), None) => Ok(SegmentKind::Contacts(contacts)),
            (None, Some(rule)) => Ok(SegmentKind::Rule(rule)),
            _ => Err(Refusal::invalid(
                "a segment needs either `contacts` or a `rule`",
            )),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EngagementBody {
    what: String,
    /// In Unix seconds. Default: now.
    at: Option<i64>,
}

/// Either a number of seconds to move the clock forward by, or the Unix time to set it to.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClockBody {
    advance: Option<u64>,
    set: Option<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CeilingBody {
    // A plain `Option` could be left out. `null` must be written.
    #[serde(deserialize_with = "Option::deserialize")]
    contacts: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EndpointBody {
    url: String,
    secret: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SigningClockBody {
    clock: SigningClock,
}

/// An outcome of a sent mail.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OutcomeBody {
    #[serde(rename = "type")]
    event_type: String,
    /// Default: the only recipient of the mail.
    to: Option<String>,
    /// The form of [`OutcomeData`]. A map first: `serde` would accept an array in place of the struct.
    #[serde(default)]
    data: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OutcomeData {
    bounce_type: Option<String>,
    detail: Option<String>,
}

impl OutcomeBody {
    fn into_outcome(self) -> Result<MailOutcome, Refusal> {
        let kind = OutcomeKind::from_event_type(&self.event_type).map_err(Refusal::invalid)?;
        let data: OutcomeData = serde_json::from_value(self.data.into())
            .map_err(|error| Refusal::invalid(format!("`data` is invalid: {error}")))?;
        let mut outcome = MailOutcome::new(kind);
        if let Some(to) = self.to {
            outcome = outcome.to(to);
        }
        if let Some(bounce_type) = data.bounce_type {
            outcome = outcome.bounce_type(bounce_type);
        }
        if let Some(detail) = data.detail {
            outcome = outcome.detail(detail);
        }
        Ok(outcome)
    }
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
        let docs = include_str!("../../../docs/mock-over-http.md");

        for (method, path, _) in ROUTES {
            let call = format!("| `{method} /_mock/{path}` |");
            assert!(docs.contains(&call), "{call}");
        }
    }

    #[test]
    fn the_guide_lists_the_addresses_with_events_of_their_own_as_the_documentation_does() {
        let guide = include_str!("../../../docs/mock-over-http.md");
        let documentation = include_str!("../mod.rs");
        let rows = |text: &str| {
            let (_, table) = text.split_once("| address | events |")?;
            let lines = table.lines().skip(1);
            let rows = lines.map(|line| line.trim_start_matches("//! ").to_owned());
            Some(rows.take_while(|row| row.starts_with('|')).collect())
        };

        let documented: Option<Vec<String>> = rows(documentation);

        assert!(documented.as_ref().is_some_and(|rows| rows.len() > 5));
        assert_eq!(rows(guide), documented);
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
