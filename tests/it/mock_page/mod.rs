//! The page of the mock server, in headless Chromium.

mod chromium;
mod page;
mod screenshot;

use audience::mock::MockServer;
use serde_json::json;
use tokio::runtime::Runtime;

use crate::support::receiver::{Receiver, SECRET};

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
