//! A service for the unit tests of this folder: requests in one line, responses as JSON.

use serde_json::{Value, json};

use super::audience::Audience;
use super::dialect::{Dialect, Settings};
use super::refusal::Reply;
use crate::Timestamp;
use crate::mock::recorded_request::RecordedRequest;

/// An audience, and the time at which its requests arrive.
pub(super) struct Service {
    pub(super) audience: Audience,
    pub(super) now: i64,
}

impl Service {
    pub(super) fn new() -> Self {
        Self::with_dialect(Dialect::default())
    }

    pub(super) fn with_dialect(dialect: Dialect) -> Self {
        Self {
            audience: Audience::new(Settings {
                full_key: Some("full".to_owned()),
                sending_key: Some("sending".to_owned()),
                dialect: Some(dialect),
                ..Settings::default()
            }),
            now: 1_700_000_000,
        }
    }

    pub(super) fn get(&mut self, target: &str) -> (u16, Value) {
        self.send("full", "GET", target, b"")
    }

    pub(super) fn post(&mut self, target: &str, body: &Value) -> (u16, Value) {
        self.send("full", "POST", target, body.to_string().as_bytes())
    }

    pub(super) fn post_without_body(&mut self, target: &str) -> (u16, Value) {
        self.send("full", "POST", target, b"")
    }

    pub(super) fn patch(&mut self, target: &str, body: &Value) -> (u16, Value) {
        self.send("full", "PATCH", target, body.to_string().as_bytes())
    }

    /// Sends a request with a key as its bearer token, and returns the status and the body of the response.
    pub(super) fn send(
        &mut self,
        key: &str,
        method: &str,
        target: &str,
        body: &[u8],
    ) -> (u16, Value) {
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        let request = RecordedRequest {
            method: method.to_owned(),
            path: path.to_owned(),
            query: query.map(str::to_owned),
            headers: vec![("authorization".to_owned(), format!("Bearer {key}"))],
            body: body.to_vec(),
            status: None,
            reason: None,
            at: Timestamp::from_unix(self.now),
        };
        let Reply { status, body, .. } = self.audience.handle(&request, self.now);
        (status, serde_json::from_slice(&body).unwrap())
    }

    /// Creates a contact, and asserts that it is new.
    pub(super) fn create(&mut self, address: &str) {
        let (status, _) = self.post("/contacts", &json!({ "email": address }));
        assert_eq!(status, 201, "{address}");
    }

    /// Lists contacts with a query, and returns their addresses in order.
    pub(super) fn listed_addresses(&mut self, query: &str) -> Vec<String> {
        let (status, page) = self.get(&format!("/contacts?{query}"));
        assert_eq!(status, 200, "{page}");
        let data = page["data"].as_array().unwrap();
        data.iter()
            .map(|item| item["email"].as_str().unwrap().to_owned())
            .collect()
    }
}

/// Returns the status and the slug of a refusal.
pub(super) fn status_and_slug((status, body): &(u16, Value)) -> (u16, &str) {
    let slug = body["error"]["code"].as_str().unwrap_or_default();
    (*status, slug)
}

/// Returns the message of a refusal.
pub(super) fn message((_, body): &(u16, Value)) -> &str {
    body["error"]["message"].as_str().unwrap_or_default()
}
