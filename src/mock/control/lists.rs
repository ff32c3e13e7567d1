//! The lists of the control plane. With `order=newest`, the items are short enough for the web page.

use std::num::{IntErrorKind, NonZeroUsize};

use percent_encoding::percent_decode_str;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};

use super::{Call, CallResult, ok};
use crate::mock::delivery::{EventFilter, EventState};
use crate::mock::journal::RecordedRequest;
use crate::mock::service::seed::StoredContact;
use crate::mock::service::{CONSENTS, ContactFilter, Refusal};
use crate::mock::text::case_folded;

/// Bytes shown of a body in a list that has the newest first.
const MAX_SHOWN_BODY: usize = 4 * 1024;

/// Bytes of a body in which a text is looked for.
const MAX_SEARCHED_BODY: usize = 64 * 1024;

/// The query of a list of requests.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RequestsQuery {
    order: Order,
    query: String,
    #[serde(deserialize_with = "some")]
    status: Option<RequestStatus>,
    #[serde(deserialize_with = "limit")]
    limit: Option<NonZeroUsize>,
    #[serde(deserialize_with = "after")]
    after: Option<u64>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Order {
    #[default]
    #[serde(skip)]
    Oldest,
    Newest,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RequestStatus {
    Accepted,
    Refused,
}

pub(super) fn requests(call: &Call<'_>) -> CallResult {
    let query: RequestsQuery = call.query()?;
    if query.order == Order::Newest {
        return newest_requests(call, &query);
    }
    if !query.query.is_empty() || query.status.is_some() {
        return Err(Refusal::invalid("`query` and `status` need `order=newest`"));
    }
    if query.limit.is_none() && query.after.is_none() {
        let state = call.shared.lock();
        let requests = state.journal.entries().map(|(_, request)| request.clone());
        let requests: Vec<_> = requests.collect();
        // The JSON is made without the lock, so that nobody waits for it.
        drop(state);
        let data: Vec<_> = requests.iter().map(request_json).collect();
        return Ok(ok(&json!({"data": data})));
    }
    let after = query.after.unwrap_or(0);
    let (requests, next) = call.shared.lock().journal.page(after, or_max(query.limit));
    let data: Vec<_> = requests.iter().map(request_json).collect();
    Ok(ok(&json!({"data": data, "next": next})))
}

fn newest_requests(call: &Call<'_>, query: &RequestsQuery) -> CallResult {
    if query.after.is_some() {
        return Err(Refusal::invalid(
            "this list does not support `after`; use `limit`",
        ));
    }
    let text = case_folded(&query.query);
    let state = call.shared.lock();
    let newest = state
        .journal
        .entries()
        .rev()
        .filter_map(|(number, request)| {
            let is_refused = request.status.is_none_or(|status| status >= 400);
            let has_status = query
                .status
                .is_none_or(|wanted| (wanted == RequestStatus::Refused) == is_refused);
            let has_text = text.is_empty() || contains(request, &text);
            (has_status && has_text).then(|| short_json(number, request))
        });
    let data: Vec<_> = newest.take(or_max(query.limit)).collect();
    Ok(ok(&json!({"data": data})))
}

pub(super) fn request(call: &Call<'_>) -> CallResult {
    let wanted = call.parameter.parse().ok();
    let state = call.shared.lock();
    let mut entries = state.journal.entries();
    match entries.find(|(number, _)| Some(*number) == wanted) {
        Some((number, request)) => {
            let mut json = request_json(request);
            json["number"] = number.into();
            Ok(ok(&json))
        }
        None => {
            let number = call.parameter;
            Err(Refusal::not_found(format!(
                "there is no request {number:?} any longer"
            )))
        }
    }
}

/// Returns a recorded request and its response as JSON.
fn request_json(request: &RecordedRequest) -> Value {
    let mut json = json_with_body(request, &request.body);
    json["response_headers"] = headers_json(&request.response_headers);
    json["response_body"] = String::from_utf8_lossy(&request.response_body).into();
    json
}

/// Returns a request as JSON, without the end of a long body. `body_bytes` is the length of the whole body.
fn short_json(number: u64, request: &RecordedRequest) -> Value {
    let length = request.body.len();
    let mut json = json_with_body(request, &request.body[..length.min(MAX_SHOWN_BODY)]);
    json["number"] = number.into();
    json["body_bytes"] = length.into();
    json
}

/// Returns headers as a JSON object. The values of a repeated header are joined by `, `, as HTTP allows.
fn headers_json(headers: &[(String, String)]) -> Value {
    let mut object = Map::new();
    for (name, value) in headers {
        match object.get_mut(name) {
            Some(Value::String(joined)) => {
                joined.push_str(", ");
                joined.push_str(value);
            }
            _ => {
                object.insert(name.clone(), value.as_str().into());
            }
        }
    }
    object.into()
}

fn json_with_body(request: &RecordedRequest, body: &[u8]) -> Value {
    json!({
        "method": request.method,
        "path": request.path,
        "query": request.query,
        "headers": headers_json(&request.headers),
        "body": String::from_utf8_lossy(body),
        "status": request.status,
        "reason": request.reason,
        "at": request.at,
    })
}

/// Returns whether a request contains a case-folded text.
fn contains(request: &RecordedRequest, text: &str) -> bool {
    let has = |part: &str| case_folded(part).contains(text);
    let decoded = |part: &str| has(&percent_decode_str(part).decode_utf8_lossy());
    let body = &request.body[..request.body.len().min(MAX_SEARCHED_BODY)];
    has(&request.method)
        || decoded(&request.path)
        || request.query.as_deref().is_some_and(decoded)
        || request.reason.as_deref().is_some_and(has)
        || request
            .status
            .is_some_and(|status| status.to_string() == text)
        || has(&String::from_utf8_lossy(body))
}

/// The query of the list of mails.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct EmailsQuery {
    order: Order,
    query: String,
    #[serde(deserialize_with = "limit")]
    limit: Option<NonZeroUsize>,
}

pub(super) fn emails(call: &Call<'_>) -> CallResult {
    let EmailsQuery {
        order,
        query,
        limit,
    } = call.query()?;
    let audience = &call.shared.lock().audience;
    Ok(match order {
        Order::Newest => ok(&json!({"data": audience.mails.newest(&query, or_max(limit))})),
        Order::Oldest => ok(&json!({"data": audience.mails.sent_mail()})),
    })
}

/// The query of the list of events.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct EventsQuery {
    order: Order,
    query: String,
    #[serde(rename = "type")]
    event_type: String,
    #[serde(deserialize_with = "some")]
    state: Option<EventState>,
    #[serde(deserialize_with = "limit")]
    limit: Option<NonZeroUsize>,
}

/// Returns the events that are kept, oldest first unless `order` says otherwise.
pub(super) fn events(call: &Call<'_>) -> CallResult {
    let query: EventsQuery = call.query()?;
    let filter = EventFilter {
        text: &query.query,
        event_type: &query.event_type,
        state: query.state,
    };
    let deliveries = &call.shared.lock().deliveries;
    let is_newest_first = query.order == Order::Newest;
    let data = deliveries.events_json(&filter, is_newest_first, or_max(query.limit));
    Ok(ok(&json!({"data": data})))
}

pub(super) fn attempts(call: &Call<'_>) -> CallResult {
    let attempts = call.shared.lock().deliveries.attempts_json();
    Ok(ok(&json!({"data": attempts})))
}

/// Returns an attempt, with what it sent and received if that is still kept.
pub(super) fn attempt(call: &Call<'_>) -> CallResult {
    let number = call.parameter;
    let found = number
        .parse()
        .ok()
        .and_then(|number| call.shared.lock().deliveries.attempt(number));
    let Some((mut json, transcript)) = found else {
        return Err(Refusal::not_found(format!(
            "there is no attempt {number:?} any longer"
        )));
    };
    if let Some(transcript) = transcript {
        json["request"] = json!({
            "url": transcript.url(),
            "headers": headers_json(&transcript.headers),
            "body": String::from_utf8_lossy(&transcript.body),
            "signed": String::from_utf8_lossy(&transcript.signed_bytes()),
        });
        json["response"] = json!(transcript.response.map(|response| json!({
            "headers": headers_json(&response.headers),
            "body": String::from_utf8_lossy(&response.body),
        })));
    }
    Ok(ok(&json))
}

/// The query of the list of contacts.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ContactsQuery {
    query: String,
    consent: String,
    segment_id: String,
    #[serde(deserialize_with = "limit")]
    limit: Option<NonZeroUsize>,
    #[serde(deserialize_with = "some")]
    after: Option<String>,
}

/// A list of contacts, or a page of it.
#[derive(Serialize)]
struct Contacts {
    data: Vec<StoredContact>,
    /// The `after` of the following page. Only pages have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

pub(super) fn contacts(call: &Call<'_>) -> CallResult {
    let query: ContactsQuery = call.query()?;
    if !query.consent.is_empty() && !CONSENTS.contains(&&*query.consent) {
        return Err(Refusal::invalid(format!(
            "`consent` must be one of {}, not {:?}",
            CONSENTS.join(", "),
            query.consent
        )));
    }
    let filter = ContactFilter {
        text: given(&query.query),
        consent: given(&query.consent),
        segment_id: given(&query.segment_id),
    };
    let is_page = query.limit.is_some() || query.after.is_some();
    // A page of an empty list has an empty `next`.
    let after = query.after.as_deref().and_then(given);
    let limit = or_max(query.limit);
    let now = call.shared.clock.unix();
    let data = call
        .shared
        .lock()
        .audience
        .matching_contacts(&filter, after, limit, now)?;
    let last = data.last().map(|contact| contact.id.clone());
    let next = is_page.then(|| last.or(query.after).unwrap_or_default());
    Ok(ok(&Contacts { data, next }))
}

pub(super) fn topics(call: &Call<'_>) -> CallResult {
    let state = call.shared.lock();
    let topics = state.audience.topics();
    let data: Vec<_> = topics
        .map(|(name, default)| json!({"name": name, "default": default}))
        .collect();
    Ok(ok(&json!({"data": data})))
}

pub(super) fn segments(call: &Call<'_>) -> CallResult {
    let segments = call.shared.lock().audience.segments();
    Ok(ok(&json!({"data": segments})))
}

pub(super) fn endpoints(call: &Call<'_>) -> CallResult {
    Ok(ok(
        &json!({"data": call.shared.lock().deliveries.endpoints}),
    ))
}

pub(super) fn faults(call: &Call<'_>) -> CallResult {
    Ok(ok(&json!({"data": call.shared.lock().faults})))
}

pub(super) fn delivery_faults(call: &Call<'_>) -> CallResult {
    Ok(ok(&json!({"data": call.shared.lock().deliveries.faults})))
}

fn given(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

fn or_max(limit: Option<NonZeroUsize>) -> usize {
    limit.map_or(usize::MAX, NonZeroUsize::get)
}

/// Reads a parameter that the query has. Serde cannot read an `Option` from a query, which has no `null`.
fn some<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

fn limit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<NonZeroUsize>, D::Error> {
    let text = String::deserialize(deserializer)?;
    match text.parse::<NonZeroUsize>() {
        Ok(limit) => Ok(Some(limit)),
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => Ok(Some(NonZeroUsize::MAX)),
        Err(_) => Err(D::Error::custom(format_args!(
            "`limit` must be a whole number and at least 1, not {text:?}"
        ))),
    }
}

fn after<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map(Some).map_err(|_| {
        D::Error::custom(format_args!(
            "`after` must be a whole number of at most {}, not {text:?}",
            u64::MAX
        ))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::mock::Shared;

    fn parse(shared: &Arc<Shared>, query: &str) -> Result<RequestsQuery, Refusal> {
        let call = Call {
            shared,
            parameter: "",
            query: Some(query),
            body: b"",
        };
        call.query()
    }

    #[tokio::test]
    async fn a_page_is_asked_for_by_limit_or_after() {
        let shared = crate::mock::test_shared();
        for (query, after, limit) in [
            ("", None, usize::MAX),
            ("limit=5", None, 5),
            ("limit=99999999999999999999", None, usize::MAX),
            ("after=7", Some(7), usize::MAX),
            ("after=7&limit=5", Some(7), 5),
            ("query=&status=", None, usize::MAX),
        ] {
            let page = parse(&shared, query).unwrap_or_else(|refusal| panic!("{refusal:?}"));

            assert_eq!((page.after, or_max(page.limit)), (after, limit), "{query}");
        }
    }

    #[tokio::test]
    async fn an_invalid_query_is_refused_with_the_reason() {
        let shared = crate::mock::test_shared();
        for (query, reason) in [
            ("limit=0", "at least 1"),
            ("limit=", "must be a whole number"),
            ("limit", "must be a whole number"),
            ("limit=-1", "must be a whole number"),
            ("after=x", "must be a whole number"),
            (
                "after=99999999999999999999",
                "of at most 18446744073709551615",
            ),
            ("after=1&after=2", "duplicate field `after`"),
            ("page=2", "unknown field `page`"),
        ] {
            let refusal = parse(&shared, query).err().expect("the query is invalid");

            assert_eq!(refusal.status, 422, "{query}");
            assert!(refusal.message.contains(reason), "{query}: {refusal:?}");
        }
    }
}
