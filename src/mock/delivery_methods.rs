//! The methods of a server that aim its webhook deliveries.

use super::delivery::{DeliveryFault, SigningClock};
use super::mock_server::MockServer;

impl MockServer {
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
