//! The mock held against the interface document: raw HTTP, no client of ours, and a test for each row of every table
//! and each numbered rule, named after it.
//!
//! What the document leaves open is tested as the design's table of defaults has it (`defaults`), and under each other
//! answer (`dialects`). Requests are written byte by byte, so that nothing tidies a path or adds a header.

#![expect(
    clippy::needless_pass_by_value,
    reason = "a request reads best with its JSON written in place"
)]

mod addresses;
mod batch;
mod consent;
mod consent_refusals;
mod consent_transitions;
mod create;
mod defaults;
mod dialects;
mod errors_and_limits;
mod event_delivery;
mod events;
mod http;
mod keys;
mod list;
mod list_filters;
mod paging;
mod quota;
mod resources;
mod retrieve_and_merge;
mod rules;
mod rules_in_time;
mod webhook_authentication;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use audience::mock::{Dialect, MockServer, MockServerBuilder};
use serde_json::{Value, json};

/// Where the clock of every server here stands.
const NOW: i64 = 1_700_000_000;
/// Of the rules with days.
const DAY: u64 = 86_400;

/// A mock, and requests to it.
struct Api {
    server: MockServer,
}

impl Api {
    fn start() -> Self {
        Self::with(|builder| builder)
    }

    fn with(settings: impl FnOnce(MockServerBuilder) -> MockServerBuilder) -> Self {
        let builder = settings(MockServer::builder().clock(NOW));
        Self {
            server: builder.start_blocking(),
        }
    }

    fn speaking(dialect: Dialect) -> Self {
        Self::with(|builder| builder.dialect(dialect))
    }

    fn get(&self, target: impl AsRef<str>) -> Answer {
        self.request("GET", target).send()
    }

    fn post(&self, target: impl AsRef<str>, body: impl Into<Body>) -> Answer {
        self.request("POST", target).body(body).send()
    }

    fn patch(&self, target: impl AsRef<str>, body: impl Into<Body>) -> Answer {
        self.request("PATCH", target).body(body).send()
    }

    /// A request with the full-access key, and with whatever else it is given.
    fn request(&self, method: &str, target: impl AsRef<str>) -> Request<'_> {
        Request {
            server: &self.server,
            line: format!("{method} {} HTTP/1.1", target.as_ref()),
            key: format!("authorization: Bearer {}\r\n", self.server.full_key()),
            headers: String::new(),
            body: Vec::new(),
        }
    }

    /// Creates a contact that has nothing but an address.
    fn create(&self, address: &str) -> Value {
        self.post("/contacts", json!({ "email": address }))
            .expect(201)
    }

    /// Creates a contact with these properties.
    fn create_with(&self, address: &str, properties: Value) -> Value {
        self.post(
            "/contacts",
            json!({"email": address, "properties": properties}),
        )
        .expect(201)
    }

    fn retrieve(&self, address: &str) -> Value {
        self.get(contact(address)).expect(200)
    }

    fn subscribe(&self, address: &str, body: impl Into<Body>) -> Answer {
        self.post(format!("{}/subscribe", contact(address)), body)
    }

    fn unsubscribe(&self, address: &str, body: impl Into<Body>) -> Answer {
        self.post(format!("{}/unsubscribe", contact(address)), body)
    }

    fn list(&self, parameters: &[(&str, &str)]) -> Answer {
        let pairs: Vec<String> = parameters
            .iter()
            .map(|(name, value)| format!("{name}={}", encoded(value)))
            .collect();
        self.get(format!("/contacts?{}", pairs.join("&")))
    }

    /// The addresses on the first page of a list, newest first.
    fn listed(&self, parameters: &[(&str, &str)]) -> Vec<String> {
        strings(&self.list(parameters).expect(200)["data"], "email")
    }

    /// The addresses for which one condition holds, in the order of the alphabet.
    fn matching(&self, condition: Value) -> Vec<String> {
        self.matching_rule(json!({"match_": "all", "conditions": [condition]}))
    }

    fn matching_rule(&self, rule: Value) -> Vec<String> {
        let mut addresses = self.listed(&[("rules", &rule.to_string()), ("limit", "200")]);
        addresses.sort_unstable();
        addresses
    }
}

/// The path of a contact, its address encoded.
fn contact(address: &str) -> String {
    format!("/contacts/{}", encoded(address))
}

fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// This member of every object in an array.
fn strings(array: &Value, member: &str) -> Vec<String> {
    array
        .as_array()
        .expect("an array")
        .iter()
        .map(|item| item[member].as_str().expect("text").to_owned())
        .collect()
}

/// The names of an object's members, in the order of the alphabet.
fn members(object: &Value) -> Vec<&str> {
    let mut names: Vec<&str> = object
        .as_object()
        .expect("an object")
        .keys()
        .map(String::as_str)
        .collect();
    names.sort_unstable();
    names
}

/// The bytes of a request's body.
struct Body(Vec<u8>);

impl From<()> for Body {
    fn from((): ()) -> Self {
        Self(Vec::new())
    }
}

impl From<Value> for Body {
    fn from(json: Value) -> Self {
        Self(json.to_string().into_bytes())
    }
}

impl From<&str> for Body {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl From<&[u8]> for Body {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

struct Request<'a> {
    server: &'a MockServer,
    line: String,
    key: String,
    headers: String,
    body: Vec<u8>,
}

impl Request<'_> {
    fn without_key(mut self) -> Self {
        self.key.clear();
        self
    }

    fn sending_key(mut self) -> Self {
        self.key = format!("authorization: Bearer {}\r\n", self.server.sending_key());
        self
    }

    fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    fn body(mut self, body: impl Into<Body>) -> Self {
        self.body = body.into().0;
        self
    }

    fn send(self) -> Answer {
        let address = self.server.url().trim_start_matches("http://");
        let mut connection = TcpStream::connect(address).expect("the mock takes connections");
        connection
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("a timeout can be set");

        let head = format!(
            "{}\r\nhost: {address}\r\nconnection: close\r\n{}{}content-length: {}\r\n\r\n",
            self.line,
            self.key,
            self.headers,
            self.body.len()
        );
        // The mock may answer, and close, before it has read everything.
        let _ = connection.write_all(&[head.as_bytes(), &self.body].concat());
        let mut answer = Vec::new();
        let _ = connection.read_to_end(&mut answer);
        Answer::parse(&answer)
    }
}

struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn parse(bytes: &[u8]) -> Self {
        let end = bytes
            .windows(4)
            .position(|window| window == b"\r\n\r\n")
            .unwrap_or_else(|| panic!("no HTTP: {:?}", String::from_utf8_lossy(bytes)));
        let head = String::from_utf8(bytes[..end].to_vec()).expect("a head in ASCII");
        let status = head[9..12].parse().expect("a status");
        Self {
            status,
            head: head.to_lowercase(),
            body: bytes[end + 4..].to_vec(),
        }
    }

    /// The JSON of an answer that must have this status.
    #[track_caller]
    fn expect(self, status: u16) -> Value {
        assert_eq!(
            self.status,
            status,
            "{}",
            String::from_utf8_lossy(&self.body)
        );
        assert!(
            self.head.contains("\r\ncontent-type: application/json"),
            "{}",
            self.head
        );
        serde_json::from_slice(&self.body).expect("JSON")
    }

    /// The message of a refusal that must have this status and slug.
    #[track_caller]
    fn refused(self, status: u16, slug: &str) -> String {
        let body = self.expect(status);
        assert_eq!(members(&body), ["error"]);
        assert_eq!(members(&body["error"]), ["code", "message"]);
        assert_eq!(body["error"]["code"], slug, "{body}");
        let message = body["error"]["message"].as_str().expect("text").to_owned();
        assert!(!message.is_empty());
        message
    }
}
