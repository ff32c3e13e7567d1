//! Each refusal that the description lists is one that the mock gives, and the other way round.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use audience::mock::{MockServer, SegmentKind};
use serde_json::{Value, json};

use super::conformance::{self, DESCRIPTION, Exchange, TRANSPORT_REFUSALS, resolve, slugs};

/// An operation, a status and a slug.
pub(super) type Refusal = (String, u16, String);

/// The refusals in the responses of the description.
pub(super) fn described() -> BTreeSet<Refusal> {
    let mut refusals = BTreeSet::new();
    for (path, item) in DESCRIPTION["paths"].as_object().unwrap() {
        for (method, operation) in item
            .as_object()
            .unwrap()
            .iter()
            .filter(|(name, _)| *name != "parameters")
        {
            let id = operation["operationId"].as_str().unwrap();
            for status in operation["responses"]
                .as_object()
                .unwrap()
                .keys()
                .filter(|status| !status.starts_with('2'))
            {
                let path = path.replace('/', "~1");
                let response =
                    resolve(&format!("/paths/{path}/{method}/responses/{status}")).unwrap();
                for slug in slugs(response) {
                    refusals.insert((id.to_owned(), status.parse().unwrap(), slug.to_owned()));
                }
            }
        }
    }
    refusals
}

/// The refusals of the description except those of HTTP, which every operation has.
pub(super) fn described_of_the_service() -> BTreeSet<Refusal> {
    let mut refusals = described();
    refusals.retain(|(_, status, slug)| !TRANSPORT_REFUSALS.contains(&(*status, slug.as_str())));
    refusals
}

/// A body that is longer than the mock reads. Only its length is sent.
const TOO_LONG: &str = "too long";
const ADA: &str = "/contacts/ada%40example.com";
const NOBODY: &str = "/contacts/nobody%40example.com";

/// The request with which the description's refusals are provoked, besides those of keys and of bodies that are too
/// long. `charles@example.com` reported spam, and the contact ceiling is reached.
#[rustfmt::skip]
fn requests() -> Vec<(&'static str, &'static str, String, Value)> {
    let ada = json!({"email": "ada@example.com", "on_conflict": "error"});
    let long = Value::Array(vec![json!({"email": "ada@example.com"}); 101]);
    vec![
        ("createContact", "POST", "/contacts".into(), json!({"email": "ada"})),
        ("createContact", "POST", "/contacts".into(), json!({"email": "new@example.com"})),
        ("createContact", "POST", "/contacts".into(), ada),
        ("createContactBatch", "POST", "/contacts/batch".into(), json!([])),
        ("createContactBatch", "POST", "/contacts/batch".into(), long),
        ("listContacts", "GET", "/contacts?limit=ten".into(), Value::Null),
        ("listContacts", "GET", "/contacts?after=con_none".into(), Value::Null),
        ("listContacts", "GET", "/contacts?segment_id=seg_none".into(), Value::Null),
        ("retrieveContact", "GET", NOBODY.into(), Value::Null),
        ("retrieveContact", "GET", "/contacts/%ff".into(), Value::Null),
        ("mergeContactProperties", "PATCH", NOBODY.into(), json!({"properties": {}})),
        ("mergeContactProperties", "PATCH", ADA.into(), json!({"properties": []})),
        ("unsubscribeContact", "POST", format!("{NOBODY}/unsubscribe"), Value::Null),
        ("unsubscribeContact", "POST", format!("{ADA}/unsubscribe"), json!({"topic": "gossip"})),
        ("unsubscribeContact", "POST", format!("{ADA}/unsubscribe"), json!({"reason": "complaint"})),
        ("subscribeContact", "POST", format!("{NOBODY}/subscribe"), Value::Null),
        ("subscribeContact", "POST", format!("{ADA}/subscribe"), json!({"topic": "gossip"})),
        ("subscribeContact", "POST", format!("{ADA}/subscribe"), json!({"topic": 1})),
        ("subscribeContact", "POST", "/contacts/charles%40example.com/subscribe".into(), Value::Null),
        ("sendEmail", "POST", "/emails".into(), json!({"from": "shop@example.com"})),
    ]
}

/// Sends a request and returns the refusal. Asserts that the description shows it.
async fn refusal(
    server: &MockServer,
    id: &str,
    method: &str,
    target: &str,
    key: &str,
    body: &Value,
) -> Refusal {
    let text = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let (status, response) = if body == TOO_LONG {
        unread(server, method, target)
    } else {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let url = format!("{}{target}", server.url());
        let request = reqwest::Client::new()
            .request(method, url)
            .bearer_auth(key)
            .body(text.clone());
        let response = request.send().await.unwrap();
        (
            response.status().as_u16(),
            response.bytes().await.unwrap().to_vec(),
        )
    };

    let (path, query) = target
        .split_once('?')
        .map_or((target, None), |(path, query)| (path, Some(query)));
    let dialect = "the default dialect";
    let exchange = Exchange {
        method,
        path,
        query,
        request: text.as_bytes(),
        status,
        response: &response,
        dialect,
    };
    conformance::assert_described(&exchange);
    let body: Value = serde_json::from_slice(&response).unwrap();
    (
        id.to_owned(),
        status,
        body["error"]["code"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
    )
}

/// Announces a body that is too long, and sends none of it.
fn unread(server: &MockServer, method: &str, target: &str) -> (u16, Vec<u8>) {
    use std::io::{Read, Write};

    let host = server.url().trim_start_matches("http://");
    let mut connection = std::net::TcpStream::connect(host).unwrap();
    write!(
        connection,
        "{method} {target} HTTP/1.1\r\nhost: {host}\r\ncontent-length: 99999999\r\n\r\n"
    )
    .unwrap();
    let mut response = String::new();
    connection.read_to_string(&mut response).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), body.as_bytes().to_vec())
}

#[tokio::test]
async fn each_refusal_of_the_description_is_given_by_the_mock_and_no_other() {
    let server = MockServer::builder()
        .contact_ceiling(2)
        .topic("news", true)
        .segment("seg_1", SegmentKind::Contacts(Vec::new()))
        .start()
        .await;
    let contacts = server.client().contacts();
    for address in ["ada@example.com", "charles@example.com"] {
        contacts
            .create(audience::contacts::NewContact::new(address))
            .await
            .unwrap();
    }
    server.report_spam("charles@example.com");

    let mut given = BTreeSet::new();
    for (id, method, target, body) in requests() {
        given.insert(refusal(&server, id, method, &target, server.full_key(), &body).await);
        given.insert(refusal(&server, id, method, &target, "another key", &body).await);
        let with_sending_key =
            refusal(&server, id, method, &target, server.sending_key(), &body).await;
        if with_sending_key.1 == 403 {
            given.insert(with_sending_key);
        }
        if method != "GET" {
            given.insert(refusal(&server, id, method, &target, "", &json!(TOO_LONG)).await);
        }
    }

    assert_eq!(given, described_of_the_service());
}

#[test]
fn each_operation_has_the_refusals_of_http() {
    let described = described();
    let operations: BTreeSet<&String> = described.iter().map(|(id, _, _)| id).collect();

    assert_eq!(operations.len(), 8);
    for id in operations {
        for (status, slug) in TRANSPORT_REFUSALS {
            let refusal = (id.clone(), *status, (*slug).to_owned());
            assert!(described.contains(&refusal), "{refusal:?}");
        }
    }
}

/// Refusals of the mock's code that the description does not list.
const NOT_DESCRIBED: &[(u16, &str, &str)] = &[
    (
        414,
        "uri_too_long",
        "for a limit that the mock has and the document does not name",
    ),
    (
        415,
        "unsupported_media_type",
        "a setting of the dialect for content types",
    ),
    (
        429,
        "rate_limited",
        "a setting of the dialect for rate limits",
    ),
    (
        431,
        "request_header_fields_too_large",
        "for a limit that the mock has and the document does not name",
    ),
    (
        501,
        "not_described",
        "for what the service only mentions, and the description does not show",
    ),
    (
        501,
        "not_implemented",
        "for an encoding of HTTP that the mock does not have",
    ),
];

#[test]
fn each_refusal_in_the_code_of_the_mock_is_described() {
    let described: BTreeSet<(u16, String)> = described()
        .into_iter()
        .map(|(_, status, slug)| (status, slug))
        .collect();
    let excluded: BTreeSet<(u16, String)> = NOT_DESCRIBED
        .iter()
        .map(|(status, slug, _)| (*status, (*slug).to_owned()))
        .collect();

    let written =
        refusals_in(&Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("src/mock"));

    assert!(written.len() >= 8, "the code is read wrongly: {written:?}");
    let unknown: Vec<_> = written
        .iter()
        .filter(|refusal| !described.contains(*refusal) && !excluded.contains(*refusal))
        .collect();
    assert!(
        unknown.is_empty(),
        "openapi/audience.json does not list {unknown:?}"
    );
    let missing: Vec<_> = described.difference(&written).collect();
    assert!(
        missing.is_empty(),
        "the mock never refuses with {missing:?}"
    );
}

/// The status and slug of each `Refusal` that is created below a folder, except in the control plane.
fn refusals_in(folder: &Path) -> BTreeSet<(u16, String)> {
    let mut refusals = BTreeSet::new();
    for file in rust_files(folder) {
        let source = fs::read_to_string(file).unwrap();
        let without_tests = source
            .split("#[cfg(test)]\nmod tests")
            .next()
            .unwrap_or_default();
        for call in ["Refusal::new(", "Self::new("]
            .iter()
            .flat_map(|start| without_tests.split(start).skip(1))
        {
            let mut arguments = call.splitn(3, ',');
            let status = arguments
                .next()
                .and_then(|status| status.trim().parse().ok());
            let slug = arguments
                .next()
                .and_then(|slug| slug.trim().strip_prefix('"')?.strip_suffix('"'));
            if let (Some(status), Some(slug)) = (status, slug) {
                refusals.insert((status, slug.to_owned()));
            }
        }
    }
    refusals
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("control") {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}
