//! What a program would have written without this crate, with reqwest and serde. Nothing is retried, and
//! nothing is checked that a careful program would not check.

use std::collections::BTreeMap;

use futures_util::{StreamExt, TryStreamExt, stream};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::rows::Row;
use crate::server::KEY;

#[derive(Serialize)]
pub(crate) struct NewContact {
    email: String,
    first_name: String,
    properties: Properties,
}

#[derive(Serialize)]
struct Properties {
    plan: &'static str,
    seats: u32,
}

#[derive(Deserialize)]
struct BatchResults {
    data: Vec<BatchResult>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "a program would read all members")]
struct BatchResult {
    email: String,
    status: String,
    message: Option<String>,
}

/// The contact of section 2.1.
#[derive(Deserialize)]
#[expect(dead_code, reason = "a program would read some members")]
pub(crate) struct Contact {
    id: String,
    pub(crate) email: String,
    first_name: Option<String>,
    last_name: Option<String>,
    properties: BTreeMap<String, serde_json::Value>,
    unsubscribed: bool,
    unsubscribe_reason: Option<String>,
    created_at: i64,
    topics: Option<BTreeMap<String, bool>>,
}

#[derive(Deserialize)]
struct Page {
    data: Vec<ListItem>,
    next: Option<String>,
}

/// The contact of section 2.3.
#[derive(Deserialize)]
#[expect(dead_code, reason = "a program would read some members")]
pub(crate) struct ListItem {
    id: String,
    email: String,
    first_name: Option<String>,
    properties: BTreeMap<String, serde_json::Value>,
    pub(crate) unsubscribed: bool,
    created_at: i64,
}

/// A client as a program would set it up.
pub(crate) struct ByHand {
    http: reqwest::Client,
    url: String,
}

impl ByHand {
    pub(crate) fn new(url: &str) -> Self {
        let http = reqwest::Client::builder()
            .no_proxy()
            .timeout(std::time::Duration::from_secs(30))
            .build();
        Self {
            http: http.expect("the client is valid"),
            url: url.to_owned(),
        }
    }

    /// Imports all rows in batches of 100, `at_once` of them in flight. Returns how many were created.
    pub(crate) async fn import(
        &self,
        rows: impl Iterator<Item = Row>,
        at_once: usize,
    ) -> reqwest::Result<u64> {
        let mut rows = rows.map(NewContact::from);
        let batches = std::iter::from_fn(|| {
            let batch: Vec<_> = rows.by_ref().take(100).collect();
            (!batch.is_empty()).then_some(batch)
        });
        stream::iter(batches)
            .map(|batch| self.create_batch(batch))
            .buffer_unordered(at_once)
            .try_fold(0, async |sum, created| Ok(sum + created))
            .await
    }

    async fn create_batch(&self, batch: Vec<NewContact>) -> reqwest::Result<u64> {
        let results: BatchResults = self.post("/contacts/batch", &batch).await?;
        let created = results
            .data
            .iter()
            .filter(|entry| entry.status == "created");
        Ok(created.count() as u64)
    }

    pub(crate) async fn create(&self, contact: &NewContact) -> reqwest::Result<Contact> {
        self.post("/contacts", contact).await
    }

    pub(crate) async fn retrieve(&self, encoded_address: &str) -> reqwest::Result<Contact> {
        self.get(&format!("/contacts/{encoded_address}"), &[]).await
    }

    /// Lists all contacts and calls `handle` with each.
    pub(crate) async fn list_all(&self, mut handle: impl FnMut(ListItem)) -> reqwest::Result<()> {
        let mut after: Option<String> = None;
        loop {
            let mut query = vec![("limit", "200")];
            query.extend(after.as_deref().map(|id| ("after", id)));
            let page: Page = self.get("/contacts", &query).await?;
            if page.data.is_empty() {
                return Ok(());
            }
            page.data.into_iter().for_each(&mut handle);
            after = page.next;
        }
    }

    async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> reqwest::Result<T> {
        let url = reqwest::Url::parse_with_params(&format!("{}{path}", self.url), query)
            .expect("the URL is valid");
        let request = self.http.get(url).bearer_auth(KEY);
        request.send().await?.error_for_status()?.json().await
    }

    async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> reqwest::Result<T> {
        let request = self.http.post(format!("{}{path}", self.url));
        let request = request.bearer_auth(KEY).json(body);
        request.send().await?.error_for_status()?.json().await
    }
}

impl From<Row> for NewContact {
    fn from(row: Row) -> Self {
        let Row {
            email,
            first_name,
            plan,
            seats,
        } = row;
        Self {
            email,
            first_name,
            properties: Properties { plan, seats },
        }
    }
}
