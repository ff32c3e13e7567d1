//! A receiver of webhooks that does as it is told.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use audience::Timestamp;
use audience::mock::MockClock;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use tokio::net::TcpListener;

pub(super) const SECRET: &str = "6Jm0nFq2pXvZk4Tt";

/// Listens on the runtime it was started on, and remembers what came.
#[derive(Clone)]
pub(super) struct Receiver {
    pub(super) url: String,
    inner: Arc<Inner>,
}

struct Inner {
    clock: Option<MockClock>,
    statuses: Mutex<VecDeque<u16>>,
    received: Mutex<Vec<Received>>,
}

#[derive(Clone, Debug)]
pub(super) struct Received {
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// What the shared clock showed.
    pub(super) at: Option<Timestamp>,
}

impl Receiver {
    /// Answers with these statuses, one after the other, and then with 200.
    pub(super) async fn start(statuses: impl IntoIterator<Item = u16>) -> Self {
        Self::with_clock(statuses, None).await
    }

    pub(super) async fn with_clock(
        statuses: impl IntoIterator<Item = u16>,
        clock: Option<MockClock>,
    ) -> Self {
        let inner = Arc::new(Inner {
            clock,
            statuses: Mutex::new(statuses.into_iter().collect()),
            received: Mutex::default(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let router = axum::Router::new()
            .route("/hook", axum::routing::post(take))
            .with_state(Arc::clone(&inner));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, inner }
    }

    pub(super) fn received(&self) -> Vec<Received> {
        self.inner.received.lock().unwrap().clone()
    }

    /// The `id` of every event that came, in the order they came.
    pub(super) fn ids(&self) -> Vec<String> {
        self.received()
            .iter()
            .map(|received| received.json()["id"].as_str().unwrap().to_owned())
            .collect()
    }
}

impl Received {
    pub(super) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(super) fn header(&self, name: &str) -> &str {
        self.headers[name].to_str().unwrap()
    }
}

async fn take(
    State(inner): State<Arc<Inner>>,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, [(&'static str, &'static str); 1]) {
    let at = inner.clock.as_ref().map(MockClock::now);
    inner
        .received
        .lock()
        .unwrap()
        .push(Received { headers, body, at });
    let status = inner.statuses.lock().unwrap().pop_front().unwrap_or(200);
    (
        StatusCode::from_u16(status).unwrap(),
        [("location", "/elsewhere")],
    )
}
