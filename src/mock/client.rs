//! The client of this crate for a mock server. Nothing else in the mock uses the client.

use super::mock_server::MockServer;
use crate::{Auth, Client, ClientBuilder};

impl MockServer {
    /// Creates a client for this server, with the full-access key.
    ///
    /// Each call creates a new client with its own connections. [`client_builder`](Self::client_builder) creates one with
    /// other settings.
    ///
    /// # Panics
    ///
    /// Panics if the client cannot be built, for example because the key is not a valid header value.
    ///
    /// # Example: create a contact
    ///
    /// ```
    /// # use audience::{contacts::NewContact, mock::MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let server = MockServer::start().await;
    /// let contacts = server.client().contacts();
    ///
    /// contacts.create(NewContact::new("ada@example.com")).await?;
    ///
    /// assert_eq!(server.contact_count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    #[cfg_attr(docsrs, doc(cfg(feature = "client")))]
    #[must_use]
    #[track_caller]
    pub fn client(&self) -> Client {
        match self.client_builder().build() {
            Ok(client) => client,
            Err(error) => panic!("could not build a client for the mock server: {error}"),
        }
    }

    /// Returns a builder for a client of this server: its URL, its full-access key and the header of the key are set.
    ///
    /// Change what a test needs, such as timeouts and retries.
    ///
    /// # Example: a client that gives up soon
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use audience::{RetryPolicy, mock::{Fault, MockServer}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let server = MockServer::start().await;
    /// let client = server
    ///     .client_builder()
    ///     .timeout(Duration::from_millis(200))
    ///     .retry(RetryPolicy::none())
    ///     .build()?;
    ///
    /// server.fault(Fault::delay(Duration::from_secs(2)));
    /// let error = client.contacts().retrieve("ada@example.com").await.unwrap_err();
    ///
    /// assert!(error.is_timeout());
    /// # Ok(())
    /// # }
    /// ```
    #[cfg_attr(docsrs, doc(cfg(feature = "client")))]
    pub fn client_builder(&self) -> ClientBuilder {
        // The test chose the host, which need not be a loopback address.
        let builder = Client::builder(&self.url, &self.full_key).allow_http();
        match &self.auth_header {
            Some(name) => builder.auth(Auth::header(name)),
            None => builder,
        }
    }
}
