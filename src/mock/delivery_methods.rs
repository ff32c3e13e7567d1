//! The methods of a server for its webhook deliveries.

use serde_json::Value;

use super::delivery::event::NewEvent;
use super::delivery::post::Target;
use super::delivery::{DeliveryAttempt, DeliveryFault, SigningClock};
use super::mock_server::MockServer;

impl MockServer {
    /// Adds a webhook endpoint: the URL that events are delivered to, and the secret they are signed with.
    ///
    /// If the URL already is an endpoint, its secret is replaced.
    ///
    /// # Panics
    ///
    /// Panics if `url` is not a valid `http://…` URL, or if [`Signer::new`](crate::webhooks::Signer::new) refuses the
    /// secret.
    ///
    /// # Example: deliver to a program under test
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let server = MockServer::start().await;
    /// server.webhook_endpoint("http://127.0.0.1:8080/hook", "a-secret-of-the-test");
    /// # }
    /// ```
    #[track_caller]
    pub fn webhook_endpoint(&self, url: impl AsRef<str>, secret: impl AsRef<str>) {
        let url = url.as_ref();
        match Target::new(url, secret.as_ref()) {
            Ok(target) => self.shared.lock().deliveries.put_endpoint(url, target),
            Err(problem) => panic!("{problem}"),
        }
    }

    /// Sends an event to every endpoint, waits for the first attempt at each, and returns the event's id.
    ///
    /// The event is an object with a `type`, which can be any text, and optionally `data`, `id` and `created_at`. If
    /// the interface document has the type, members missing from `data` are filled in. Other members are sent
    /// unchanged. An event about a contact's mail counts as engagement at its `created_at` (interface section 2.8).
    ///
    /// # Panics
    ///
    /// Panics if `event` is not an object of this form.
    ///
    /// # Example: a bounced mail
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let server = MockServer::start().await;
    /// let event = serde_json::json!({"type": "email.bounced", "data": {"to": "ada@example.com"}});
    ///
    /// let id = server.send_event(event).await;
    ///
    /// assert_eq!(id, "evt_1");
    /// # }
    /// ```
    pub async fn send_event(&self, event: Value) -> String {
        match NewEvent::parse(event) {
            Ok(event) => self.shared.send_event(event).await,
            Err(problem) => panic!("{problem}"),
        }
    }

    /// Sends an event to every endpoint again, even if it was delivered, and waits for the attempts.
    ///
    /// A redelivery that fails is not retried.
    ///
    /// # Panics
    ///
    /// Panics if no event has this id. The newest 1,000 events are kept, or fewer if they take up more
    /// than 64 MiB.
    ///
    /// # Example: a repeated delivery
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let server = MockServer::start().await;
    /// let id = server.send_event(serde_json::json!({"type": "email.opened"})).await;
    ///
    /// server.redeliver(&id).await;
    /// # }
    /// ```
    pub async fn redeliver(&self, event_id: impl AsRef<str>) {
        let id = event_id.as_ref();
        assert!(self.shared.redeliver(id).await, "there is no event {id:?}");
    }

    /// Returns the newest 10,000 finished delivery attempts, in the order they were started.
    ///
    /// # Example: a failed attempt
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let server = MockServer::start().await;
    /// # let failing_url = format!("{}/nothing-here", server.url());
    /// server.webhook_endpoint(&failing_url, "a-secret-of-the-test");
    /// server.send_event(serde_json::json!({"type": "email.opened"})).await;
    ///
    /// let attempts = server.attempts();
    ///
    /// assert!(!attempts[0].is_success());
    /// assert!(attempts[0].next_at.is_some());
    /// # }
    /// ```
    #[must_use]
    pub fn attempts(&self) -> Vec<DeliveryAttempt> {
        self.shared.lock().deliveries.attempts()
    }

    /// Adds a fault for the next webhook deliveries that match.
    ///
    /// # Example: the next event is delivered twice
    ///
    /// ```
    /// # use audience::mock::{DeliveryFault, MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let server = MockServer::start().await;
    /// server.delivery_fault(DeliveryFault::duplicate());
    /// # }
    /// ```
    pub fn delivery_fault(&self, fault: DeliveryFault) {
        self.shared.lock().deliveries.add_fault(fault);
    }

    /// Removes all delivery faults. An event that is held back is still delivered late.
    pub fn clear_delivery_faults(&self) {
        self.shared.lock().deliveries.clear_faults();
    }

    /// Sets the clock that deliveries are signed by from now on.
    ///
    /// # Example: five hours of retries for a receiver in another process
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use audience::mock::{MockServer, SigningClock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let server = MockServer::start().await;
    /// server.set_signing_clock(SigningClock::Wall);
    ///
    /// server.advance(Duration::from_secs(5 * 3_600)).await;
    /// # }
    /// ```
    pub fn set_signing_clock(&self, clock: SigningClock) {
        self.shared.lock().deliveries.set_signing_clock(clock);
    }
}
