//! The page of the mock server, and the preference page of unsubscribe links, in headless Chromium.

mod accessibility;
mod chromium;
mod curl;
mod exchanges;
mod hostile;
mod layout;
mod preferences;
mod reading;
mod screenshot;
mod tab;
mod views;

use audience::mock::MockServer;
use serde_json::{Value, json};
use support::PATIENCE;
use tokio::runtime::Runtime;

use crate::receiver::{Receiver, SECRET};

/// Where the clocks of these servers are stopped: 2023-11-14 22:13:20.
const START: i64 = 1_700_000_000;

/// Starts a server with a stopped clock and a seed. It waits for a receiver as long as a test may take.
fn server_with(seed: Value) -> MockServer {
    MockServer::builder()
        .clock(START)
        .seed(seed)
        .delivery_timeout(2 * PATIENCE)
        .start_blocking()
}

/// Gets a path of the service with the full-access key. Returns the status.
async fn get(server: &MockServer, path: &str) -> u16 {
    let request = reqwest::Client::new()
        .get(format!("{}{path}", server.url()))
        .bearer_auth(server.full_key());
    request.send().await.unwrap().status().as_u16()
}

/// Webhook receivers that run beside a test which is not asynchronous: it waits for a browser.
struct Receivers(Runtime);

impl Receivers {
    fn new() -> Self {
        Self(Runtime::new().unwrap())
    }

    fn start<const N: usize>(&self, statuses: [u16; N]) -> Receiver {
        self.0.block_on(Receiver::start(statuses))
    }

    /// Adds a receiver under a name, as `PUT /_mock/endpoints/{name}` does.
    fn add(&self, server: &MockServer, name: &str, receiver: &Receiver) {
        let body = json!({"url": receiver.url, "secret": SECRET});
        let request = reqwest::Client::new()
            .put(format!("{}/_mock/endpoints/{name}", server.url()))
            .body(body.to_string());
        assert_eq!(self.0.block_on(request.send()).unwrap().status(), 204);
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.0.block_on(future)
    }
}

async fn send_mail(server: &MockServer, to: &str, subject: &str) {
    let body = json!({"from": "hello@example.org", "to": to, "subject": subject, "text": "Hello"});
    let response = reqwest::Client::new()
        .post(format!("{}/emails", server.url()))
        .bearer_auth(server.full_key())
        .body(body.to_string())
        .send()
        .await;
    assert!(response.unwrap().status().is_success());
}
