//! Webhook receivers with a given behavior.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use audience::Timestamp;
use audience::mock::MockClock;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

pub(super) const SECRET: &str = "6Jm0nFq2pXvZk4Tt";

/// A receiver that records deliveries. It runs on the runtime it was started on.
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
    /// The time the shared clock showed.
    pub(super) at: Option<Timestamp>,
}

impl Receiver {
    /// Responds with these statuses, one after the other, and then with 200.
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
            .route("/hook", axum::routing::post(receive))
            .with_state(Arc::clone(&inner));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, inner }
    }

    pub(super) fn received(&self) -> Vec<Received> {
        self.inner.received.lock().unwrap().clone()
    }

    /// Returns the `id` of every received event, in order.
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

async fn receive(
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

/// Starts a receiver that runs `behavior` on each connection, once a request has begun to arrive. Returns its URL.
pub(super) async fn raw_receiver<F>(behavior: impl Fn(TcpStream) -> F + Send + 'static) -> String
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4_096]).await.unwrap();
            tokio::spawn(behavior(stream));
        }
    });
    url
}

/// Starts a receiver that responds only when permitted. Returns its URL, the number of requests received, and the
/// permits to respond.
pub(super) async fn blocked_receiver() -> (String, Arc<Semaphore>, Arc<Semaphore>) {
    let (received, permits) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (count, wait) = (Arc::clone(&received), Arc::clone(&permits));
    let url = raw_receiver(move |mut stream| {
        let (count, wait) = (Arc::clone(&count), Arc::clone(&wait));
        async move {
            count.add_permits(1);
            wait.acquire().await.unwrap().forget();
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                .await;
        }
    })
    .await;
    (url, received, permits)
}
