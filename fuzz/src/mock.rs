//! Requests to the mock: a seed, calls of the control plane, and HTTP as it arrives.

use std::collections::BTreeMap;

use audience::mock::UnconnectedMock;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use serde_json::{Map, Value, json};

fn request(method: Method, uri: &str, body: impl Into<Bytes>) -> Option<Request<Bytes>> {
    let mut request = Request::new(body.into());
    *request.method_mut() = method;
    *request.uri_mut() = uri.parse().ok()?;
    Some(request)
}

/// Returns what the mock shows at a path of the control plane.
fn shown(mock: &UnconnectedMock, path: &str) -> Value {
    let request = request(Method::GET, &format!("/_mock/{path}"), "").expect("the path is valid");
    let response = mock.respond(request).expect("a GET waits for nothing");
    assert_eq!(response.status(), 200, "{path}");
    serde_json::from_slice(response.body()).expect("it is JSON")
}

/// The mock leaves it out at the start of a body.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A status of the mock's own choice, and the reason if it is a refusal.
fn check_response(response: &Response<Bytes>) {
    let status = response.status().as_u16();
    let expected = [
        200, 201, 204, 400, 401, 402, 403, 404, 405, 409, 413, 414, 415, 422, 429, 431, 501, 503,
    ];
    assert!(expected.contains(&status), "{status}");
    if status >= 400 && !response.body().is_empty() {
        let body: Value = serde_json::from_slice(response.body()).expect("a refusal is JSON");
        let error = &body["error"];
        assert!(
            error["code"].is_string() && error["message"].is_string(),
            "{body}"
        );
    }
}

/// Applies any seed, and looks for its contacts in the mock. Then applies what the mock shows to another mock.
///
/// Input: the seed.
pub fn seed(text: &[u8]) {
    let mock = UnconnectedMock::new();
    let apply = |mock: &UnconnectedMock, seed: Vec<u8>| {
        let request = request(Method::POST, "/_mock/seed", seed).expect("the path is valid");
        mock.respond(request).expect("there is nothing to wait for")
    };
    let response = apply(&mock, text.to_vec());
    check_response(&response);
    let (contacts, topics) = (shown(&mock, "contacts"), shown(&mock, "topics"));
    let contacts = contacts["data"].as_array().expect("it is a list");
    if response.status() != 204 {
        assert_eq!(response.status(), 422);
        assert!(contacts.is_empty() && topics["data"] == json!([]));
        return;
    }

    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let plain: Value = serde_json::from_slice(text).expect("the mock could read it");
    let seeded = plain["contacts"].as_array().map_or(&[][..], Vec::as_slice);
    assert_eq!(contacts.len(), seeded.len());
    let topic = |(name, default): (&String, &Value)| json!({"name": name, "default": default});
    let sorted: BTreeMap<_, _> = plain["topics"].as_object().into_iter().flatten().collect();
    assert_eq!(
        topics["data"],
        sorted.into_iter().map(topic).collect::<Value>()
    );
    for seeded in seeded {
        let email = seeded["email"].as_str().expect("a contact has an address");
        let email = email.trim().to_lowercase();
        let stored = contacts.iter().find(|contact| contact["email"] == email);
        check_contact(stored.expect("each contact is stored"), seeded);
    }

    let topics = topics["data"].as_array().into_iter().flatten();
    let topics = topics.map(|topic| {
        (
            topic["name"].as_str().unwrap_or_default().to_owned(),
            topic["default"].clone(),
        )
    });
    let again = json!({"topics": topics.collect::<Map<_, _>>(), "contacts": contacts});
    let other = UnconnectedMock::new();
    assert_eq!(
        apply(&other, again.to_string().into_bytes()).status(),
        204,
        "{again}"
    );
    assert_eq!(shown(&other, "contacts")["data"].as_array(), Some(contacts));
}

fn check_contact(stored: &Value, seeded: &Value) {
    for (name, default) in [
        ("first_name", json!("")),
        ("last_name", json!("")),
        ("properties", json!({})),
        ("unsubscribe_reason", json!("")),
        ("created_at", stored["created_at"].clone()),
        ("id", stored["id"].clone()),
    ] {
        let expected = Some(&seeded[name])
            .filter(|value| !value.is_null())
            .unwrap_or(&default);
        assert_eq!(stored[name], *expected, "{name} of {seeded}");
    }
    let has_reason = stored["unsubscribe_reason"] != "";
    let unsubscribed = seeded["unsubscribed"].as_bool().unwrap_or(has_reason);
    assert_eq!(stored["unsubscribed"], unsubscribed, "{seeded}");
    for kind in ["answers", "topics"] {
        for (topic, answer) in seeded[kind].as_object().into_iter().flatten() {
            assert_eq!(stored["topics"][topic], *answer, "{topic} of {seeded}");
        }
    }
}

/// Sends any calls to the control plane, and keeps the topics and the ceiling in a plain model.
///
/// Input: a line for each call: the method, a space, the path below `/_mock/`, a space, the body.
pub fn control(input: &[u8]) {
    let mock = UnconnectedMock::new();
    let mut model = Model::default();
    for line in input.split(|byte| *byte == b'\n').take(12) {
        let mut parts = line.splitn(3, |byte| *byte == b' ');
        let (method, path) = (
            parts.next().unwrap_or_default(),
            parts.next().unwrap_or_default(),
        );
        let body = parts.next().unwrap_or_default();
        let body = body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body);
        // Each member once, so that the mock and the model read the same one.
        let json: Option<Value> = serde_json::from_slice(body).ok();
        let sent = json
            .as_ref()
            .map_or_else(|| body.to_vec(), |json| json.to_string().into_bytes());
        let (Ok(method), Ok(path)) = (Method::from_bytes(method), str::from_utf8(path)) else {
            continue;
        };
        let Some(request) = request(method.clone(), &format!("/_mock/{path}"), sent) else {
            continue;
        };
        let before = shown(&mock, "overview");
        let Some(response) = mock.respond(request) else {
            // The call waits for deliveries, which are never made.
            model.read_topics(&mock);
            continue;
        };
        if response.status().is_client_error() || matches!(method, Method::GET | Method::HEAD) {
            assert_eq!(shown(&mock, "overview"), before, "{method} {path}");
        }
        if !path.starts_with("docs") {
            check_response(&response);
        }
        model.apply(&mock, &method, path, json.as_ref(), response.status());
    }
}

#[derive(Default)]
struct Model {
    topics: BTreeMap<String, bool>,
    ceiling: Option<u64>,
}

impl Model {
    /// Applies a call, and expects the mock's response and state.
    fn apply(
        &mut self,
        mock: &UnconnectedMock,
        method: &Method,
        path: &str,
        body: Option<&Value>,
        status: StatusCode,
    ) {
        let members = body
            .and_then(Value::as_object)
            .filter(|members| members.len() == 1);
        let member = |name: &str| members.and_then(|members| members.get(name));
        // With `%` and a query, there are several ways to write a path.
        let path = path.split(['?', '#']).next().unwrap_or_default();
        match (
            method.as_str(),
            path.split('/').collect::<Vec<_>>().as_slice(),
        ) {
            ("PUT", ["topics", name]) if !path.contains('%') => {
                match member("default").and_then(Value::as_bool) {
                    Some(default) if !name.is_empty() => {
                        assert_eq!(status, 204);
                        self.topics.insert((*name).to_owned(), default);
                    }
                    _ => assert_eq!(status, 422),
                }
            }
            ("PUT", ["ceiling"]) => {
                let contacts = member("contacts");
                match contacts.filter(|contacts| contacts.is_null() || contacts.is_u64()) {
                    Some(contacts) => {
                        assert_eq!(status, 204);
                        self.ceiling = contacts.as_u64();
                    }
                    None => assert_eq!(status, 422),
                }
            }
            ("POST", ["reset"]) => {
                assert_eq!(status, 204);
                *self = Self::default();
            }
            // Any other call with such a path may mean one of these.
            _ if path.contains('%') || path.starts_with("seed") => self.read_topics(mock),
            _ => {}
        }
        let topic = |(name, default)| json!({"name": name, "default": default});
        let topics = self.topics.iter().map(topic).collect::<Value>();
        assert_eq!(
            shown(mock, "topics")["data"],
            topics,
            "after {method} {path}"
        );
        assert_eq!(shown(mock, "overview")["ceiling"], json!(self.ceiling));
    }

    fn read_topics(&mut self, mock: &UnconnectedMock) {
        let topics = shown(mock, "topics");
        let topics = topics["data"].as_array().into_iter().flatten();
        let read = |topic: &Value| {
            Some((
                topic["name"].as_str()?.to_owned(),
                topic["default"].as_bool()?,
            ))
        };
        self.topics = topics.filter_map(read).collect();
        self.ceiling = shown(mock, "overview")["ceiling"].as_u64();
    }
}

/// Sends any bytes on a connection. If they are plain requests, another mock gets the requests as values.
///
/// Input: the bytes.
pub fn http(input: &[u8]) {
    let connected = UnconnectedMock::new();
    let sent = connected.respond_to_bytes(input);
    if !sent.is_empty() {
        let status = sent
            .strip_prefix(b"HTTP/1.")
            .and_then(|rest| rest.get(2..5));
        let status = status.and_then(|status| str::from_utf8(status).ok()?.parse::<u16>().ok());
        assert!(matches!(status, Some(100..=499 | 501 | 503)), "{status:?}");
    }
    let Some(requests) = plain_requests(input) else {
        return;
    };

    let direct = UnconnectedMock::new();
    let mut rest = &sent[..];
    for request in requests {
        let is_head = request.method() == Method::HEAD;
        let path = request.uri().path().trim_end_matches('/');
        let is_endless = path == "/_mock/stream";
        // Each response has a new nonce.
        let is_random = path == "/_mock";
        let Some(expected) = direct.respond(request).filter(|_| !is_endless) else {
            return;
        };
        let (status, body, after) = plain_response(rest, is_head);
        check_response(&expected);
        assert_eq!(status, expected.status().as_u16());
        assert!(
            is_head || is_random || body == expected.body(),
            "{}",
            String::from_utf8_lossy(body)
        );
        rest = after;
    }
    assert_eq!(rest, b"");
    for path in [
        "contacts", "topics", "segments", "emails", "events", "overview",
    ] {
        assert_eq!(shown(&connected, path), shown(&direct, path));
    }
}

/// Reads requests that can be read in one way only. Returns `None` if there are other bytes.
fn plain_requests(input: &[u8]) -> Option<Vec<Request<Bytes>>> {
    let mut requests = Vec::new();
    let mut rest = input;
    while !rest.is_empty() {
        let end = rest.windows(4).position(|four| four == b"\r\n\r\n")?;
        let head = str::from_utf8(&rest[..end]).ok()?;
        rest = &rest[end + 4..];
        let mut lines = head.split("\r\n");
        let first: Vec<&str> = lines.next()?.split(' ').collect();
        let [method, target, "HTTP/1.1"] = first[..] else {
            return None;
        };
        let is_visible = |text: &str| text.bytes().all(|byte| (b'!'..=b'~').contains(&byte));
        let is_plain_target =
            target.starts_with('/') && is_visible(target) && !target.contains('#');
        if !is_plain_target || target.starts_with("/favicon.ico") || method == "CONNECT" {
            return None;
        }
        let mut request = Request::new(Bytes::new());
        *request.method_mut() = Method::from_bytes(method.as_bytes()).ok()?;
        *request.uri_mut() = target.parse::<Uri>().ok()?;
        let length = plain_headers(lines, request.headers_mut())?;
        *request.body_mut() = Bytes::copy_from_slice(rest.get(..length)?);
        rest = &rest[length..];
        requests.push(request);
    }
    Some(requests)
}

/// Reads the headers, and returns the length of the body.
fn plain_headers<'a>(
    lines: impl Iterator<Item = &'a str>,
    headers: &mut HeaderMap,
) -> Option<usize> {
    let mut length = 0;
    for line in lines {
        let (name, value) = line.split_once(": ")?;
        let is_printable = value.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        let name = name.to_ascii_lowercase();
        if !is_printable
            || value.trim() != value
            || headers.contains_key(&name)
            || headers.len() > 20
        {
            return None;
        }
        match name.as_str() {
            // They change how the rest is read, or who may send it.
            "connection" | "expect" | "origin" | "transfer-encoding" | "upgrade" => return None,
            name if name.starts_with("sec-fetch-") => return None,
            "host" if value != "localhost" => return None,
            "content-length" => {
                length = value
                    .parse()
                    .ok()
                    .filter(|length: &usize| length.to_string() == value)?;
            }
            _ => {}
        }
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        headers.append(name, HeaderValue::from_str(value).ok()?);
    }
    headers.contains_key("host").then_some(length)
}

/// Splits off the first response. Returns its status, its body, and the bytes after it.
fn plain_response(bytes: &[u8], is_head: bool) -> (u16, &[u8], &[u8]) {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let end = end.expect("there is a response to each request");
    let head = str::from_utf8(&bytes[..end]).expect("the mock's headers are ASCII");
    let status = head.get(9..12).and_then(|status| status.parse().ok());
    let mut lines = head.split("\r\n").filter_map(|line| line.split_once(": "));
    let length = lines.find(|(name, _)| *name == "content-length");
    let length = length
        .and_then(|(_, length)| length.parse().ok())
        .unwrap_or(0);
    let length = if is_head { 0 } else { length };
    let (body, after) = bytes[end + 4..].split_at(length);
    (status.expect("a status has three digits"), body, after)
}
