//! Responses of the service, as the client decodes them.

use std::sync::LazyLock;

use audience::contacts::{
    BatchEntry, BatchOutcome, Contacts, NewContact, Page, normalized_address,
};
use audience::{Client, Error, ErrorCode, ErrorKind, StatusCode};
use bytes::Bytes;
use http::Response;
use serde_json::{Map, Value, json};

static CONTACTS: LazyLock<Contacts> = LazyLock::new(|| {
    let client = Client::new("http://localhost", "key").expect("the settings are valid");
    client.contacts()
});

fn response(status: StatusCode, body: impl Into<Bytes>) -> Response<Bytes> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response
}

/// Decodes any refusal, and looks for the code and the message in its JSON as the docs of `ApiError` say.
///
/// Input: a byte for the status, and the body.
pub fn error_body(input: &[u8]) {
    let Some((selector, body)) = input.split_first() else {
        return;
    };
    let statuses = [400, 401, 402, 403, 404, 409, 422, 429, 500, 503];
    let status = StatusCode::from_u16(statuses[usize::from(*selector) % statuses.len()])
        .expect("each is a status");
    let error = refusal(status, body.to_vec());
    let api = error.api().expect("the service responded");

    assert_eq!((api.status(), api.body()), (status, body));
    // Only the codes of the document, and words without addresses, are printed.
    assert!(!error.to_string().contains('@') && !format!("{error:?}").contains('@'));
    assert!(api.code().is_none_or(|code| !code.as_str().is_empty()));
    assert!(api.message().is_none_or(|message| !message.is_empty()));
    check_code(&error, body);
    if let Ok(message) = str::from_utf8(body) {
        check_shapes(*selector, message);
    }
}

fn refusal(status: StatusCode, body: impl Into<Bytes>) -> Error {
    let result = CONTACTS
        .retrieve("ada@example.com")
        .result_of(response(status, body));
    result.expect_err("the status is not 2xx")
}

/// Compares the code and the message with the members that may hold them.
fn check_code(error: &Error, body: &[u8]) {
    let api = error.api().expect("the service responded");
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let Ok(json) = serde_json::from_slice::<Value>(body) else {
        assert_eq!(api.message(), None);
        if let Some(code) = api.code() {
            let text = str::from_utf8(body).expect("the code is a part of it");
            assert_eq!(documented(text.trim()), Some(code.as_str()));
        }
        return;
    };
    let object = json.as_object().cloned().unwrap_or_default();
    let nested = ["error", "detail"]
        .into_iter()
        .filter_map(|name| object.get(name));
    let listed = object
        .get("errors")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let parts: Vec<&Map<String, Value>> =
        nested.chain(listed).filter_map(Value::as_object).collect();
    let text_at = |names: &[&str]| -> Vec<&str> {
        let objects = std::iter::once(&object).chain(parts.iter().copied());
        let texts =
            objects.flat_map(|part| names.iter().filter_map(|name| part.get(*name)?.as_str()));
        texts.filter(|text| !text.is_empty()).collect()
    };

    let candidates = text_at(&[
        "code",
        "slug",
        "error_code",
        "error",
        "type",
        "name",
        "status",
    ]);
    let found: Vec<&str> = candidates
        .iter()
        .filter_map(|text| documented(text))
        .collect();
    match api.code().map(ErrorCode::as_str) {
        None => assert!(found.is_empty()),
        Some(code) if !found.is_empty() => assert!(found.contains(&code)),
        Some(code) if documented(code).is_some() => {
            assert!(api.status().is_client_error());
            let mut texts = Vec::new();
            texts_in(&json, &mut texts);
            assert!(texts.iter().any(|text| documented(text) == Some(code)));
        }
        Some(code) => assert!(
            candidates
                .iter()
                .any(|text| text.ends_with(code) || text.trim_end_matches('/').ends_with(code))
        ),
    }

    let messages = text_at(&[
        "message",
        "detail",
        "reason",
        "error",
        "description",
        "title",
    ]);
    match api.message() {
        Some(message) => assert!(messages.contains(&message)),
        None => assert!(text_at(&["message", "detail", "reason"]).is_empty()),
    }
    if let Some(Value::String(message)) = object.get("message").filter(|text| *text != "") {
        assert_eq!(api.message(), Some(message.as_str()));
    }
}

/// Returns the slug of the document that a text is, or ends with as a name.
fn documented(text: &str) -> Option<&'static str> {
    if text.contains(|c: char| c.is_whitespace() || c == '@') {
        return None;
    }
    let name = text
        .trim_end_matches('/')
        .to_ascii_lowercase()
        .replace('-', "_");
    let last = name.rsplit(['.', '/', ':', '#']).next().unwrap_or_default();
    let slugs = [
        "validation_error",
        "already_exists",
        "quota_exceeded",
        "key_not_permitted",
        "not_found",
        "failed_precondition",
    ];
    slugs.into_iter().find(|slug| *slug == last)
}

fn texts_in<'a>(value: &'a Value, texts: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => texts.push(text),
        Value::Array(items) => items.iter().for_each(|item| texts_in(item, texts)),
        Value::Object(members) => members.values().for_each(|member| texts_in(member, texts)),
        _ => {}
    }
}

/// Writes a refusal in each shape that the mock has, and expects its code and message.
fn check_shapes(selector: u8, message: &str) {
    let code = &ErrorCode::KNOWN[usize::from(selector) % ErrorCode::KNOWN.len()];
    let slug = code.as_str();
    for body in [
        json!({"error": {"code": slug, "message": message}}),
        json!({"error": {"slug": slug, "message": message}}),
        json!({"error": {"type": slug, "message": message}}),
        json!({"code": slug, "message": message}),
        json!({"slug": slug, "message": message}),
        json!({"error": slug, "message": message}),
        json!({"type": slug, "message": message}),
        json!({"name": slug, "message": message}),
        json!({"errors": [{"code": slug, "message": message}]}),
        json!({"type": format!("https://errors.example.com/{slug}"), "status": 422, "detail": message}),
    ] {
        let error = refusal(StatusCode::UNPROCESSABLE_ENTITY, body.to_string());
        let api = error.api().expect("the service responded");
        assert_eq!(api.code(), Some(code), "{body}");
        assert_eq!(api.message().unwrap_or_default(), message, "{body}");
    }
}

/// Decodes any page, and once more with `serde_json`. Input: the body.
pub fn page(input: &[u8]) {
    let decode = |body: Vec<u8>| CONTACTS.list().result_of(response(StatusCode::OK, body));
    check_decoded(decode(input.to_vec()).as_ref().err());
    let Ok(value) = serde_json::from_slice::<Value>(input) else {
        return;
    };

    // Each member once, so that both read the same one.
    let result = decode(value.to_string().into_bytes());
    let items = match &value["data"] {
        Value::Array(items) => Some(items.as_slice()),
        Value::Null if value.get("data").is_some() => Some(&[][..]),
        _ => None,
    };
    let next = value["next"].as_str().filter(|next| !next.is_empty());
    let is_plain = value.is_object() && matches!(value["next"], Value::Null | Value::String(_));
    match (&result, items) {
        (Err(error), _) => {
            check_decoded(Some(error));
            let is_documented = items.is_some_and(|items| items.iter().all(is_documented_item));
            // Only a page without items is asked whether it reports an error.
            let may_report = ["error", "errors", "success", "ok"]
                .iter()
                .any(|name| value.get(name).is_some());
            let is_refused = may_report && items.is_some_and(<[Value]>::is_empty);
            assert!(
                is_refused || !(is_documented && is_plain && value["data"].is_array()),
                "{error}: {value}"
            );
        }
        (Ok(_), None) => panic!("a page without `data`: {value}"),
        (Ok(page), Some(items)) => {
            check_items(page, items);
            let last = items.last().map(|item| match &item["id"] {
                Value::String(id) => id.clone(),
                id => id.to_string(),
            });
            if is_plain {
                assert_eq!(page.next.as_deref(), next);
                let cursor = last.map(|last| next.map_or(last, str::to_owned));
                assert_eq!(page.cursor(), cursor.as_deref());
            }
            let written = serde_json::to_string(page).expect("a page can be serialized");
            let again: Page = serde_json::from_str(&written).expect("a page can be read again");
            assert_eq!((&again.data, &again.next), (&page.data, &page.next));
        }
    }
}

/// A body that cannot be decoded is quoted nowhere but in `body`.
fn check_decoded(error: Option<&Error>) {
    if let Some(error) = error {
        assert_eq!(error.kind(), ErrorKind::Decode);
        assert!(!error.to_string().contains('@') && !format!("{error:?}").contains('@'));
    }
}

fn check_items(page: &Page, items: &[Value]) {
    assert_eq!(page.data.len() + page.malformed().len(), items.len());
    let malformed: Vec<usize> = page.malformed().map(|(index, _)| index).collect();
    let mut contacts = page.data.iter();
    for (index, item) in items.iter().enumerate() {
        if malformed.contains(&index) {
            assert!(!is_documented_item(item), "{item}");
            continue;
        }
        let contact = contacts.next().expect("the counts are the same");
        let text = |name: &str| item[name].as_str().unwrap_or_default();
        assert_eq!(contact.email, text("email"));
        assert_eq!(
            contact.first_name.as_deref().unwrap_or_default(),
            text("first_name")
        );
        assert_eq!(item["unsubscribed"], contact.unsubscribed);
        if item["id"].is_string() {
            assert_eq!(contact.id, text("id"));
        }
        if let Some(seconds) = item["created_at"].as_i64() {
            assert_eq!(contact.created_at.as_unix(), seconds);
        }
        if let Some(properties) = item["properties"].as_object() {
            let found = serde_json::to_value(&contact.properties);
            assert_eq!(
                found.expect("properties are JSON"),
                Value::from(properties.clone())
            );
        }
    }
}

/// Returns whether an item has the form of section 2.3.
fn is_documented_item(item: &Value) -> bool {
    let is_text = |name: &str| item[name].is_string();
    let seconds = item["created_at"].as_i64();
    let properties = item["properties"].as_object();
    item["id"].as_str().is_some_and(|id| !id.is_empty())
        && is_text("email")
        && is_text("first_name")
        && item["unsubscribed"].is_boolean()
        && seconds.is_some_and(|seconds| (0..100_000_000_000).contains(&seconds))
        && properties.is_some_and(|all| {
            all.values()
                .all(|value| value.is_string() || value.is_number())
        })
}

/// Decodes any response to a batch, and finds the result of each entry by its address and its place.
///
/// Input: the addresses of the entries, with commas between them; a line ending; the body.
pub fn batch(input: &[u8]) {
    let Some(end) = input.iter().position(|byte| *byte == b'\n') else {
        return;
    };
    let Ok(addresses) = str::from_utf8(&input[..end]) else {
        return;
    };
    let addresses: Vec<&str> = addresses.split(',').take(100).collect();
    let entries = addresses.iter().map(|address| NewContact::new(*address));
    let call = CONTACTS.create_batch(entries);
    let decode = |body: Vec<u8>| call.result_of(response(StatusCode::OK, body));
    let body = &input[end + 1..];
    check_decoded(decode(body.to_vec()).as_ref().err());
    let Ok(value) = serde_json::from_slice::<Value>(body) else {
        return;
    };

    // Each member once, so that both read the same one.
    let report = decode(value.to_string().into_bytes());
    let results = value["data"].as_array().filter(|_| value.is_object());
    let Some(results) = results.filter(|results| results.len() == addresses.len()) else {
        assert!(report.is_err());
        return;
    };
    let report = report.expect("there is a result for each entry");
    assert_eq!(report.entries.len(), addresses.len());
    let expected = plain_outcomes(&addresses, results);
    for (entry, expected) in report.entries.iter().zip(expected) {
        assert_eq!(entry.outcome, expected, "{value}");
    }
    let written = serde_json::to_string(&report).expect("a report can be serialized");
    let again: audience::contacts::BatchReport =
        serde_json::from_str(&written).expect("a report can be read again");
    for (again, entry) in again.entries.iter().zip(&report.entries) {
        assert_eq!(
            (&again.email, again.is_retryable()),
            (&entry.email, entry.is_retryable())
        );
    }
}

/// Returns the outcome of each entry: the result that names its address. If several do, the one at its place counts.
fn plain_outcomes(addresses: &[&str], results: &[Value]) -> Vec<BatchOutcome> {
    let own: Vec<String> = addresses
        .iter()
        .map(|address| normalized_address(address))
        .collect();
    let named = results.iter().zip(&own).map(|(result, own)| {
        let name = result
            .as_object()
            .and_then(|result| result.get("email")?.as_str());
        let name = name.map(normalized_address).filter(|name| !name.is_empty());
        name.unwrap_or_else(|| own.clone())
    });
    let named: Vec<String> = named.collect();
    let outcomes: Vec<BatchOutcome> = results.iter().map(plain_outcome).collect();
    let places_of = |names: &[String], wanted: &str| -> Vec<usize> {
        let places = names.iter().enumerate().filter(|(_, name)| *name == wanted);
        places.map(|(place, _)| place).collect()
    };
    let outcome_at = |place: usize| {
        let entries = places_of(&own, &own[place]);
        let results = places_of(&named, &own[place]);
        let first = outcomes.get(*results.first()?)?;
        let are_one = results.iter().all(|result| outcomes[*result] == *first);
        match entries == results {
            true => Some(outcomes[place].clone()),
            false => Some(first.clone()).filter(|_| are_one && entries.len() == results.len()),
        }
    };
    let places = 0..addresses.len();
    places
        .map(|place| outcome_at(place).unwrap_or(BatchOutcome::Unknown))
        .collect()
}

fn plain_outcome(result: &Value) -> BatchOutcome {
    let status = result
        .as_object()
        .and_then(|result| result.get("status")?.as_str());
    match status.unwrap_or_default().to_ascii_lowercase().as_str() {
        "created" => BatchOutcome::Created,
        "updated" => BatchOutcome::Updated,
        "skipped" => BatchOutcome::Skipped,
        _ => {
            let entry = serde_json::from_value::<BatchEntry>(result.clone());
            let outcome = entry.map_or(BatchOutcome::Unknown, |entry| entry.outcome);
            assert!(outcome.is_failure());
            outcome
        }
    }
}
