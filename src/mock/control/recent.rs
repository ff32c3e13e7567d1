//! The lists of what happened: requests, mails and events. With `order=newest`, they are short enough for a page.

use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::bodies::request_json;
use super::call::{Call, CallResult, ok};
use super::filters::Filters;
use super::page_query::PageQuery;
use crate::mock::delivery::event_view::{EventFilter, EventView, STATES};
use crate::mock::recorded_request::RecordedRequest;
use crate::mock::service::refusal::Refusal;

/// Bytes shown of a body in a list that has the newest first.
const MAX_SHOWN_BODY: usize = 4 * 1024;

/// Bytes of a body in which a text is looked for.
const MAX_SEARCHED_BODY: usize = 64 * 1024;

pub(super) fn list_requests(call: &Call<'_>) -> CallResult {
    let names = &["order", "query", "status"];
    let (filters, page) = Filters::parse::<u64>(call.query, names)?;
    if filters.newest_first()? {
        return newest_requests(call, &filters, newest_limit(page.as_ref())?);
    }
    if filters.text("query").or(filters.text("status")).is_some() {
        return Err(Refusal::invalid(
            "`query` and `status` go only with `order=newest`",
        ));
    }
    let Some(page) = page else {
        let requests = call.shared.lock().journal.entries();
        let data: Vec<_> = requests.iter().map(request_json).collect();
        return Ok(ok(&json!({"data": data})));
    };
    let after = page.after.unwrap_or(0);
    let (requests, next) = call.shared.lock().journal.page(after, page.limit);
    let data: Vec<_> = requests.iter().map(request_json).collect();
    Ok(ok(&json!({"data": data, "next": next})))
}

pub(super) fn read_request(call: &Call<'_>) -> CallResult {
    let number = call.parameter.parse().ok();
    let state = call.shared.lock();
    match number.and_then(|number| state.journal.find(number)) {
        Some(request) => {
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

pub(super) fn list_emails(call: &Call<'_>) -> CallResult {
    let (filters, page) = Filters::parse::<u64>(call.query, &["order", "query"])?;
    let is_page = filters.newest_first()?;
    let limit = newest_limit(page.as_ref())?;
    let state = call.shared.lock();
    if is_page {
        let text = filters.text("query").unwrap_or_default();
        return Ok(ok(
            &json!({"data": state.audience.newest_mail(text, limit)}),
        ));
    }
    Ok(ok(&json!({"data": state.audience.sent_mail()})))
}

/// Returns the events that are kept, oldest first unless `order` says otherwise.
pub(super) fn list_events(call: &Call<'_>) -> CallResult {
    let names = &["order", "query", "type", "state"];
    let (filters, page) = Filters::parse::<u64>(call.query, names)?;
    let filter = EventFilter {
        text: filters.text("query"),
        event_type: filters.text("type"),
        state: filters.one_of("state", &STATES)?,
    };
    let (newest_first, limit) = (filters.newest_first()?, newest_limit(page.as_ref())?);
    let deliveries = &call.shared.lock().deliveries;
    let events = deliveries.event_views(&filter, newest_first, limit);
    let data: Vec<_> = events.iter().map(EventView::to_json).collect();
    Ok(ok(&json!({"data": data})))
}

/// Returns the limit of a list that does not continue after an item.
fn newest_limit(page: Option<&PageQuery<u64>>) -> Result<usize, Refusal> {
    match page {
        None => Ok(usize::MAX),
        Some(PageQuery { after: None, limit }) => Ok(*limit),
        Some(_) => Err(Refusal::invalid(
            "`after` does not go with this list; use `limit`",
        )),
    }
}

fn newest_requests(call: &Call<'_>, filters: &Filters, limit: usize) -> CallResult {
    let text = filters.text("query").map(str::to_lowercase);
    let status = filters.one_of("status", &["accepted", "refused"])?;
    let state = call.shared.lock();
    let data = state.journal.newest(limit, |number, request| {
        let is_refused = request.status.is_none_or(|status| status >= 400);
        let has_status = status.is_none_or(|wanted| (wanted == "refused") == is_refused);
        let has_text = text.as_ref().is_none_or(|text| contains(request, text));
        (has_status && has_text).then(|| short_json(number, request))
    });
    Ok(ok(&json!({"data": data})))
}

/// Returns a request as JSON, without the end of a long body. `body_bytes` is the length of the whole body.
fn short_json(number: u64, request: &RecordedRequest) -> Value {
    let length = request.body.len();
    let mut json = if length > MAX_SHOWN_BODY {
        request_json(&RecordedRequest {
            body: request.body[..MAX_SHOWN_BODY].to_vec(),
            ..request.without_body()
        })
    } else {
        request_json(request)
    };
    json["number"] = number.into();
    json["body_bytes"] = length.into();
    json
}

/// Returns whether a request contains a lowercase text.
fn contains(request: &RecordedRequest, text: &str) -> bool {
    let has = |part: &str| part.to_lowercase().contains(text);
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
