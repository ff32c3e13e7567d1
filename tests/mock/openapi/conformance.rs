//! Compares what the mock says with `openapi/audience.json`.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use jsonschema::Validator;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

/// The description, parsed.
pub(crate) static DESCRIPTION: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../../openapi/audience.json"))
        .expect("the description is JSON")
});

/// A request and the response to it.
pub(crate) struct Exchange<'a> {
    pub(crate) method: &'a str,
    /// The path, percent-encoded.
    pub(crate) path: &'a str,
    /// The query, without the question mark.
    pub(crate) query: Option<&'a str>,
    pub(crate) request: &'a [u8],
    pub(crate) status: u16,
    pub(crate) response: &'a [u8],
    /// The dialect, as its `Display` writes it.
    pub(crate) dialect: &'a str,
}

/// A part of an exchange that a setting of the dialect changes, so that the description does not fit it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The requests that are accepted.
    Requests,
    /// The responses with a status below 400.
    Successes,
    /// The other responses.
    Refusals,
}

/// The settings under which a part of an exchange is not compared, and why. The description shows the default dialect;
/// each of its marks `x-our-reading` names the setting. Under every setting that is not listed, all is compared.
#[rustfmt::skip]
const NOT_DESCRIBED: &[(&str, Part, &str)] = &[
    ("error_shape", Part::Refusals, "errors have other members"),
    ("invalid_status", Part::Refusals, "422 is 400"),
    ("unauthorized_slug", Part::Refusals, "a 401 has another slug"),
    ("unknown_address", Part::Refusals, "consent calls create contacts, up to the ceiling"),
    ("rate_limit", Part::Refusals, "some requests are refused with 429"),
    ("merge_body", Part::Requests, "the body of a merge is the properties"),
    ("merge_response", Part::Successes, "a merge returns the form of create, or nothing"),
    ("batch_refusal", Part::Refusals, "a batch is refused with 400"),
    ("other_content_type", Part::Refusals, "a content type is refused with 415"),
    ("batch_message", Part::Successes, "the message of an entry has another name"),
    ("success_status", Part::Successes, "the status is 201 or 202"),
    ("consent_form", Part::Successes, "consent calls return the form of create, or nothing"),
    ("end_of_list", Part::Successes, "`next` is null or absent"),
    ("missing_name", Part::Successes, "names are null or absent"),
    ("property_values", Part::Successes, "properties have any value"),
    ("property_values", Part::Requests, "properties have any value"),
    ("unknown_members", Part::Requests, "unknown members are accepted"),
    ("joined_member", Part::Requests, "the day count has another name"),
    ("contact_deletion", Part::Successes, "`DELETE /contacts/{address}` deletes"),
];

/// The refusals that every operation has, because they are about HTTP and not about the service: a body that arrives in
/// broken chunks or too slowly, and a server that is busy.
pub(crate) const TRANSPORT_REFUSALS: &[(u16, &str)] = &[
    (400, "bad_request"),
    (408, "request_timeout"),
    (503, "service_unavailable"),
];

/// Panics if the description does not show this exchange.
#[track_caller]
pub(crate) fn assert_described(exchange: &Exchange<'_>) {
    if let Err(problem) = check(exchange) {
        let Exchange {
            method,
            path,
            query,
            status,
            response,
            dialect,
            ..
        } = exchange;
        let response = String::from_utf8_lossy(response);
        panic!(
            "openapi/audience.json does not show {method} {path} {query:?} -> {status} ({dialect}): {problem}\n{response}"
        );
    }
}

/// Compares an exchange with the description.
///
/// A request that was accepted must be valid, except the entries of a batch: an invalid one fails alone (section 4.2).
///
/// # Errors
///
/// Says what the description does not show.
pub(crate) fn check(exchange: &Exchange<'_>) -> Result<(), String> {
    let is_success = exchange.status < 400;
    let response_part = if is_success {
        Part::Successes
    } else {
        Part::Refusals
    };
    let skips = |part| {
        NOT_DESCRIBED.iter().any(|(setting, excluded, _)| {
            *excluded == part && exchange.dialect.contains(&format!("{setting}: "))
        })
    };
    let Some((template, operation)) = operation(exchange.method, exchange.path) else {
        let is_deletion = exchange.method == "DELETE" && skips(Part::Successes);
        return if is_success && !is_deletion {
            Err("the path or the method".to_owned())
        } else {
            Ok(())
        };
    };
    let is_head = exchange.method == "HEAD" && exchange.response.is_empty();
    // A body that is too long is described where an operation has a body.
    let is_long_get = exchange.method == "GET" && exchange.status == 413;
    if !is_head && !skips(response_part) && !is_long_get {
        let response = json(exchange.response)?;
        let status = exchange.status.to_string();
        let pointer = format!("{operation}/responses/{status}");
        let description = resolve(&pointer).ok_or_else(|| format!("the status {status}"))?;
        let name = format!("{pointer} (strict)");
        validate(
            &name,
            &description["content"]["application/json"]["schema"],
            true,
            &response,
        )
        .map_err(|error| format!("the response: {error}"))?;
        let slugs = slugs(description);
        if !is_success && !slugs.iter().any(|slug| response["error"]["code"] == *slug) {
            return Err(format!("the slug, which is not one of {slugs:?}"));
        }
    }
    if is_success && !skips(Part::Requests) {
        check_query(&operation, exchange.query.unwrap_or_default())?;
        if !exchange.request.is_empty() && template != "/contacts/batch" {
            check_request_body(&operation, exchange.request)?;
        }
    }
    Ok(())
}

/// Validates a value against a schema of the description.
///
/// `name` identifies the schema. With `strict`, objects have no members and enumerations no values other than those that
/// the schema shows.
///
/// # Errors
///
/// Says where the value differs.
pub(crate) fn validate(
    name: &str,
    schema: &Value,
    strict: bool,
    value: &Value,
) -> Result<(), String> {
    static VALIDATORS: LazyLock<Mutex<HashMap<String, Arc<Validator>>>> =
        LazyLock::new(Mutex::default);
    let validator = {
        let mut validators = VALIDATORS.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(
            validators
                .entry(name.to_owned())
                .or_insert_with(|| Arc::new(compile(schema, strict))),
        )
    };
    match validator.iter_errors(value).next() {
        None => Ok(()),
        Some(error) => Err(format!("at `{}`: {error}", error.instance_path())),
    }
}

fn compile(schema: &Value, strict: bool) -> Validator {
    let schemas = &DESCRIPTION["components"]["schemas"];
    let mut root = json!({"allOf": [schema], "components": {"schemas": schemas}});
    if strict {
        close(&mut root);
    }
    jsonschema::draft202012::new(&root).expect("the schema is valid")
}

/// Lets no object have a member that its schema does not show, and no open enumeration another value than the known ones.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            members.values_mut().for_each(close);
            if members.get("properties").is_some_and(Value::is_object)
                && members.contains_key("type")
            {
                members
                    .entry("additionalProperties")
                    .or_insert(Value::Bool(false));
            }
            if let Some(Value::Array(choices)) = members.get_mut("anyOf")
                && is_open_enumeration(choices)
            {
                choices.truncate(1);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        _ => {}
    }
}

/// Returns whether the choices are the known values, and any other string.
pub(crate) fn is_open_enumeration(choices: &[Value]) -> bool {
    let [known, other] = choices else {
        return false;
    };
    (known.get("enum").is_some() || known.get("const").is_some())
        && *other == json!({"type": "string"})
}

/// Returns the slugs of a refusal. Its examples have one for each.
pub(crate) fn slugs(response: &Value) -> Vec<&str> {
    let examples = response["content"]["application/json"]["examples"].as_object();
    let examples = examples.into_iter().flatten();
    let mut slugs: Vec<&str> = examples
        .filter_map(|(_, example)| example["value"]["error"]["code"].as_str())
        .collect();
    slugs.dedup();
    slugs
}

/// Returns the value at a JSON pointer. References on the way and at the end are followed.
pub(crate) fn resolve(pointer: &str) -> Option<&'static Value> {
    let mut value: &Value = &DESCRIPTION;
    for token in pointer.split('/').skip(1) {
        let token = token.replace("~1", "/").replace("~0", "~");
        value = match follow(value) {
            Value::Array(items) => items.get(token.parse::<usize>().ok()?)?,
            object => object.get(token)?,
        };
    }
    Some(follow(value))
}

fn follow(value: &'static Value) -> &'static Value {
    match value.get("$ref").and_then(Value::as_str) {
        Some(reference) if reference.starts_with("#/components/") => DESCRIPTION
            .pointer(&reference[1..])
            .expect("the reference leads somewhere"),
        _ => value,
    }
}

/// Finds the path of the description for a request, and the JSON pointer of the operation.
///
/// The path with the fewest parameters wins, so `/contacts/batch` is no address.
fn operation(method: &str, path: &str) -> Option<(&'static str, String)> {
    let paths = DESCRIPTION["paths"].as_object()?;
    let template = paths
        .keys()
        .filter(|template| matches(template, path))
        .min_by_key(|template| template.matches('{').count())?;
    // A HEAD is a GET whose response has no body (RFC 9110, section 9.3.2).
    let method = match method {
        "HEAD" => "get".to_owned(),
        other => other.to_ascii_lowercase(),
    };
    paths[template].get(&method)?;
    Some((
        template,
        format!("/paths/{}/{method}", template.replace('/', "~1")),
    ))
}

fn matches(template: &str, path: &str) -> bool {
    let (template, path): (Vec<_>, Vec<_>) =
        (template.split('/').collect(), path.split('/').collect());
    template.len() == path.len()
        && template
            .iter()
            .zip(&path)
            .all(|(expected, found)| expected.starts_with('{') || expected == found)
}

fn check_request_body(operation: &str, body: &[u8]) -> Result<(), String> {
    let pointer = format!("{operation}/requestBody/content/application~1json/schema");
    let Some(schema) = resolve(&pointer) else {
        // A body that the operation does not show is not read.
        return Ok(());
    };
    validate(&pointer, schema, false, &json(body)?).map_err(|error| format!("the request: {error}"))
}

/// Checks the names of the parameters, and the rule, which is the only one with a structure.
fn check_query(operation: &str, query: &str) -> Result<(), String> {
    // The document does not describe this request, so the mock ignores its query.
    if operation == "/paths/~1emails/post" {
        return Ok(());
    }
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let name = decoded(name);
        let parameters = resolve(&format!("{operation}/parameters")).and_then(Value::as_array);
        let parameter = parameters
            .into_iter()
            .flatten()
            .map(follow)
            .find(|parameter| parameter["name"] == *name)
            .ok_or_else(|| format!("the parameter `{name}`"))?;
        if let Some(schema) = parameter["schema"].get("contentSchema") {
            validate(
                &format!("{operation} {name}"),
                schema,
                false,
                &json(decoded(value).as_bytes())?,
            )
            .map_err(|error| format!("the parameter `{name}`: {error}"))?;
        }
    }
    Ok(())
}

fn decoded(text: &str) -> String {
    let spaced = text.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
}

fn json(bytes: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(bytes).map_err(|error| format!("not JSON: {error}"))
}
