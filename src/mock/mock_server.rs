use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::clock::MockClock;
use super::clock_move::ClockMove;
use super::faults::Fault;
use super::recorded_request::RecordedRequest;
use super::service::audience::Audience;
use super::service::seed::Seed;
use super::service::seed_contact::SeedContact;
use super::service::segment::SegmentKind;
use super::service::sent_mail::SentMail;
use super::service::stored_contact::StoredContact;
use super::shared::Shared;
use super::shared_methods::audience_methods;
use crate::Timestamp;

/// A server that behaves like the service. It stops when it is dropped.
///
/// Every method can be called from any thread, inside or outside of a runtime.
pub struct MockServer {
    pub(super) url: String,
    pub(super) full_key: String,
    pub(super) sending_key: String,
    /// The header that holds the bare key. `None` means a bearer token.
    #[cfg_attr(
        not(feature = "client"),
        expect(dead_code, reason = "only `client_builder` reads it")
    )]
    pub(super) auth_header: Option<String>,
    pub(super) shared: Arc<Shared>,
    /// Dropping it tells the server's thread to stop.
    pub(super) _stop: oneshot::Sender<()>,
}

impl MockServer {
    /// Returns the base URL, such as `http://127.0.0.1:4010`, without a trailing slash.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    audience_methods! {
        #[doc = "# use audience::mock::MockServer;"]
        #[doc = "# #[tokio::main(flavor = \"current_thread\")]"]
        #[doc = "# async fn main() {"]
        #[doc = "let mock = MockServer::start().await;"]
        start,
        #[doc = "# }"]
        end
    }

    /// Returns the newest 1,000 requests, in the order they were handled, without those to `/_mock/…`.
    ///
    /// Fewer are kept if they take up more than 64 MiB of memory. Requests that cannot be parsed as HTTP are not
    /// recorded.
    ///
    /// # Example: the requests of a program under test
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// # use std::io::{Read, Write};
    /// # let server = MockServer::start().await;
    /// # let mut connection = std::net::TcpStream::connect(server.url().trim_start_matches("http://"))?;
    /// # write!(connection, "GET /contacts?limit=2 HTTP/1.1\r\nhost: mock\r\nconnection: close\r\n\r\n")?;
    /// # connection.read_to_end(&mut Vec::new())?;
    /// let requests = server.requests();
    ///
    /// assert_eq!(requests.len(), 1);
    /// assert_eq!(requests[0].path, "/contacts");
    /// assert_eq!(requests[0].query.as_deref(), Some("limit=2"));
    /// assert_eq!(requests[0].status, Some(401));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.shared.lock().journal.entries()
    }

    /// Forgets the recorded requests.
    pub fn clear_requests(&self) {
        self.shared.lock().journal.clear();
    }

    /// Adds a fault.
    ///
    /// # Example: a slow response, then an outage
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use audience::mock::{Fault, MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let server = MockServer::start().await;
    /// server.fault(Fault::delay(Duration::from_secs(2)).times(1));
    /// server.fault(Fault::status(503).retry_after(1).path("/contacts*"));
    /// # }
    /// ```
    pub fn fault(&self, fault: Fault) {
        self.shared.lock().faults.add(fault);
    }

    /// Removes all faults.
    pub fn clear_faults(&self) {
        self.shared.lock().faults.clear();
    }

    /// Returns the server's current time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// Returns a handle to the server's clock, for a receiver that checks the age of deliveries.
    #[must_use]
    pub fn clock(&self) -> MockClock {
        self.shared.clock.clone()
    }

    /// Moves the clock forward by whole seconds. A fraction of a second is dropped.
    ///
    /// Deliveries that become due on the way are attempted in order, each while the clock shows its due time. This
    /// begins at once, without being awaited. Await the result to wait until the move is complete. If nothing is due on
    /// the way, the move is complete when this method returns.
    ///
    /// # Example: two minutes pass at once
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let server = MockServer::builder().clock(1_700_000_000).start().await;
    ///
    /// server.advance(Duration::from_secs(120)).await;
    ///
    /// assert_eq!(server.now().as_unix(), 1_700_000_120);
    /// # }
    /// ```
    #[expect(
        clippy::must_use_candidate,
        reason = "the clock moves whether or not the result is awaited"
    )]
    pub fn advance(&self, by: Duration) -> ClockMove {
        ClockMove::new(&self.shared, self.shared.advance_clock(by))
    }

    /// Sets the clock.
    ///
    /// Moving it forward is like [`advance`](Self::advance). Moving it backward attempts nothing on the way and cancels
    /// earlier moves. Attempts that were due and have not been started are made when the clock gets there again; nothing
    /// waits for them until then.
    ///
    /// # Example: a date in the past
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let server = MockServer::start().await;
    /// server.set_clock(1_600_000_000).await;
    /// # }
    /// ```
    pub fn set_clock(&self, to: impl Into<Timestamp>) -> ClockMove {
        ClockMove::new(&self.shared, self.shared.set_clock(to.into().as_unix()))
    }

    /// Goes back to the state the server was started with.
    ///
    /// The builder's configuration is kept, and its seeds are restored. Everything else is removed: contacts, sent mail,
    /// faults, requests, attempts, and pending and running deliveries. The clock goes back to its start. Only the numbers of events continue: an id is
    /// never used twice, so that a receiver does not mistake a new event for one it has seen.
    ///
    /// # Example: one server for several cases
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let server = MockServer::start().await;
    /// for ceiling in [0, 10] {
    ///     server.reset();
    ///     server.set_ceiling(Some(ceiling));
    /// }
    /// # }
    /// ```
    pub fn reset(&self) {
        self.shared.reset();
    }

    /// Runs `change` with the lock held. The lock is free again before the caller can panic.
    fn with_audience<T>(&self, change: impl FnOnce(&mut Audience) -> T) -> T {
        self.shared.with_audience(change)
    }

    fn apply_seed(&self, seed: Seed) -> Result<(), String> {
        self.shared.seed(seed).map(drop)
    }
}

impl Drop for MockServer {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl fmt::Debug for MockServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MockServer")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}
