//! Checks the mock against the interface document. Each row of its tables and each numbered rule has a test that is
//! named after it.
//!
//! If the document leaves a choice, `defaults` tests what the mock does by default, and `dialects` tests the
//! alternatives. These tests do not use the crate's client: they write raw HTTP, so no library normalizes a path or adds
//! a header.

#![expect(
    clippy::needless_pass_by_value,
    reason = "a request reads best with its JSON written in place"
)]

mod addresses;
mod arbitrary_requests;
mod batch;
mod consent;
mod consent_refusals;
mod consent_transitions;
mod content_type;
mod create;
mod defaults;
mod dialects;
mod errors_and_limits;
mod event_delivery;
mod events;
mod exact_numbers;
mod exchange;
mod http;
mod keys;
mod list;
mod list_filters;
mod odd_batch_entries;
mod paging;
mod quota;
mod resources;
mod retrieve_and_merge;
mod rules;
mod rules_in_time;
mod seeded_states;
mod spam_reports;
mod webhook_authentication;

use audience::mock::{Dialect, MockServer, MockServerBuilder};
use serde_json::{Value, json};

use exchange::{Body, Response};

/// The time that the clock of each mock starts at.
const NOW: i64 = 1_700_000_000;
/// A day in seconds.
const DAY: u64 = 86_400;

/// A mock, with methods that send requests to it.
///
/// Each response is compared with the description of the service, `openapi/audience.json`.
struct Api {
    server: MockServer,
    dialect: Dialect,
}

impl Api {
    fn start() -> Self {
        Self::with(|builder| builder)
    }

    /// Starts a mock with these settings.
    fn with(settings: impl FnOnce(MockServerBuilder) -> MockServerBuilder) -> Self {
        Self::with_dialect_and(Dialect::default(), settings)
    }

    fn with_dialect(dialect: Dialect) -> Self {
        Self::with_dialect_and(dialect, |builder| builder)
    }

    fn with_dialect_and(
        dialect: Dialect,
        settings: impl FnOnce(MockServerBuilder) -> MockServerBuilder,
    ) -> Self {
        let builder = settings(MockServer::builder().clock(NOW).dialect(dialect));
        Self {
            server: builder.start_blocking(),
            dialect,
        }
    }

    fn get(&self, target: impl AsRef<str>) -> Response {
        self.request("GET", target).send()
    }

    fn post(&self, target: impl AsRef<str>, body: impl Into<Body>) -> Response {
        self.request("POST", target).body(body).send()
    }

    fn patch(&self, target: impl AsRef<str>, body: impl Into<Body>) -> Response {
        self.request("PATCH", target).body(body).send()
    }

    /// Creates a contact with only an address.
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

    fn subscribe(&self, address: &str, body: impl Into<Body>) -> Response {
        self.post(format!("{}/subscribe", contact(address)), body)
    }

    fn unsubscribe(&self, address: &str, body: impl Into<Body>) -> Response {
        self.post(format!("{}/unsubscribe", contact(address)), body)
    }

    fn list(&self, parameters: &[(&str, &str)]) -> Response {
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

    /// The addresses that this condition matches, sorted.
    fn matching(&self, condition: Value) -> Vec<String> {
        self.matching_rule(json!({"match_": "all", "conditions": [condition]}))
    }

    /// The addresses that this rule matches, sorted.
    fn matching_rule(&self, rule: Value) -> Vec<String> {
        let mut addresses = self.listed(&[("rules", &rule.to_string()), ("limit", "200")]);
        addresses.sort_unstable();
        addresses
    }
}

/// Starts a mock with the contact `ada@example.com`.
fn api_with_ada() -> Api {
    let api = Api::start();
    api.create("ada@example.com");
    api
}

/// The path of a contact, with the address URL-encoded.
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

/// The value of this member, a string, in each object of an array.
fn strings(array: &Value, member: &str) -> Vec<String> {
    array
        .as_array()
        .expect("an array")
        .iter()
        .map(|item| item[member].as_str().expect("a string").to_owned())
        .collect()
}

/// The members of the full form of a contact (section 2.1).
const FULL: [&str; 9] = [
    "created_at",
    "email",
    "first_name",
    "id",
    "last_name",
    "properties",
    "topics",
    "unsubscribe_reason",
    "unsubscribed",
];

/// The names of an object's members, sorted.
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
