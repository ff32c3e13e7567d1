//! A service with prepared pages, for the tests of listing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use audience::contacts::Contacts;
use futures_util::TryStreamExt;
use serde_json::{Value, json};
use wiremock::{MockServer, Request, ResponseTemplate};

use support::{ok, received, respond_with, status, summary, without};

/// A service whose pages are stored by the cursor that requests them. Any other cursor is a 422.
#[derive(Clone, Default)]
pub(super) struct PagedService(Arc<Mutex<HashMap<Option<String>, Value>>>);

impl PagedService {
    /// Stores the page that this cursor requests. The member `next` is absent if it is `"missing"`.
    pub(super) fn put(&self, after: Option<&str>, ids: &[&str], next: Value) {
        let mut page = page(ids, next);
        if page["next"] == "missing" {
            page = without(page, &["next"]);
        }
        let mut pages = self.0.lock().unwrap();
        pages.insert(after.map(str::to_owned), page);
    }

    /// Stores the page of these items that this cursor requests.
    pub(super) fn put_items(&self, after: Option<&str>, items: &Value, next: &str) {
        let page = json!({"data": items, "next": next});
        let mut pages = self.0.lock().unwrap();
        pages.insert(after.map(str::to_owned), page);
    }

    pub(super) async fn serve(&self) -> MockServer {
        let service = self.clone();
        respond_with(move |request: &Request| service.respond(request)).await
    }

    fn respond(&self, request: &Request) -> ResponseTemplate {
        let after = after(request);
        match self.0.lock().unwrap().get(&after) {
            Some(page) => ok(page),
            None => {
                status(422).set_body_json(json!({"code": "validation_error", "message": after}))
            }
        }
    }
}

/// The JSON of a page with contacts of these ids.
pub(super) fn page(ids: &[&str], next: impl Into<Value>) -> Value {
    let data: Vec<_> = ids.iter().map(|id| summary(id)).collect();
    json!({"data": data, "next": next.into()})
}

/// The cursor of a list request.
fn after(request: &Request) -> Option<String> {
    let mut pairs = request.url.query_pairs();
    pairs
        .find(|(name, _)| name == "after")
        .map(|(_, value)| value.into_owned())
}

/// The cursors of the list requests that the server received, in order.
pub(super) async fn requested_cursors(server: &MockServer) -> Vec<Option<String>> {
    received(server).await.iter().map(after).collect()
}

/// The ids of all contacts, listed as a stream.
pub(super) async fn ids(contacts: &Contacts) -> Vec<String> {
    contacts
        .list()
        .stream()
        .map_ok(|contact| contact.id)
        .try_collect()
        .await
        .unwrap()
}
