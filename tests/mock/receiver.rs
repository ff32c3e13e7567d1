//! A webhook receiver for the tests of the mock: it records each delivery and responds as it is told.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use audience::Timestamp;
use audience::webhooks::Clock;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri, Version};
use serde_json::Value;

use crate::openapi::deliveries;

pub(crate) const SECRET: &str = "6Jm0nFq2pXvZk4Tt";

/// Stands in for a status when the receiver keeps the connection open and never responds.
pub(crate) const NO_RESPONSE: u16 = 0;

/// Serves on the runtime it was started on.
#[derive(Clone)]
pub(crate) struct Receiver {
    pub(crate) url: String,
    inner: Arc<Inner>,
}

struct Inner {
    statuses: Mutex<VecDeque<u16>>,
    location: String,
    clock: Option<Box<dyn Clock>>,
    received: Mutex<Vec<Received>>,
}

/// A delivery as the receiver read it.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) version: Version,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// When it arrived, by the receiver's clock if it has one.
    pub(crate) at: Option<Timestamp>,
}

impl Receiver {
    /// Responds with these statuses in turn, then with 200.
    pub(crate) async fn start(statuses: impl IntoIterator<Item = u16>) -> Self {
        Self::serve(statuses, "/elsewhere", None).await
    }

    /// Like [`start`](Self::start), and notes by this clock when each delivery arrives.
    pub(crate) async fn with_clock(
        statuses: impl IntoIterator<Item = u16>,
        clock: impl Clock + 'static,
    ) -> Self {
        Self::serve(statuses, "/elsewhere", Some(Box::new(clock))).await
    }

    /// Like [`start`](Self::start), and every response has this `location`.
    pub(crate) async fn redirecting_to(
        location: &str,
        statuses: impl IntoIterator<Item = u16>,
    ) -> Self {
        Self::serve(statuses, location, None).await
    }

    async fn serve(
        statuses: impl IntoIterator<Item = u16>,
        location: &str,
        clock: Option<Box<dyn Clock>>,
    ) -> Self {
        let inner = Arc::new(Inner {
            statuses: Mutex::new(statuses.into_iter().collect()),
            location: location.to_owned(),
            clock,
            received: Mutex::default(),
        });
        let router = axum::Router::new()
            .fallback(record)
            .with_state(Arc::clone(&inner));
        let url = format!("http://{}/hook", support::serve(router).await);
        Self { url, inner }
    }

    /// The deliveries so far. Asserts that the description of the service shows each of them.
    #[track_caller]
    pub(crate) fn received(&self) -> Vec<Received> {
        let received = self.received_unchecked();
        for delivery in &received {
            deliveries::assert_described(&delivery.headers, &delivery.body);
        }
        received
    }

    /// The deliveries so far, for tests that have the mock send some that the service never would.
    pub(crate) fn received_unchecked(&self) -> Vec<Received> {
        self.inner.received.lock().unwrap().clone()
    }

    /// The events received so far, in order of arrival.
    pub(crate) fn events(&self) -> Vec<Value> {
        self.received().iter().map(Received::json).collect()
    }

    /// The `id` of each event received so far, in order of arrival.
    pub(crate) fn ids(&self) -> Vec<String> {
        self.events()
            .iter()
            .map(|event| event["id"].as_str().unwrap().to_owned())
            .collect()
    }
}

impl Received {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The value of a header that must be present exactly once.
    #[track_caller]
    pub(crate) fn header(&self, name: &str) -> &str {
        let values: Vec<_> = self.headers.get_all(name).iter().collect();
        assert_eq!(values.len(), 1, "{name} in {:?}", self.headers);
        values[0].to_str().unwrap()
    }

    pub(crate) fn timestamp(&self) -> i64 {
        self.header("webhook-timestamp").parse().unwrap()
    }
}

async fn record(
    State(inner): State<Arc<Inner>>,
    method: Method,
    uri: Uri,
    version: Version,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, [(&'static str, String); 1]) {
    let at = inner
        .clock
        .as_ref()
        .map(|clock| Timestamp::from(clock.now()));
    inner.received.lock().unwrap().push(Received {
        method,
        uri,
        version,
        headers,
        body,
        at,
    });
    let status = inner.statuses.lock().unwrap().pop_front().unwrap_or(200);
    if status == NO_RESPONSE {
        std::future::pending::<()>().await;
    }
    (
        StatusCode::from_u16(status).unwrap(),
        [("location", inner.location.clone())],
    )
}
