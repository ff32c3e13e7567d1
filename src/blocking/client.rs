use http::Method;

use super::runtime::Runtime;
use super::{Call, Contacts};
use crate::raw::RawRequest;
use crate::{ClientBuilder, Error};

/// A client that blocks: see the [module](super).
///
/// Cheap to clone: clones share connections and the thread that runs them.
#[derive(Clone, Debug)]
pub struct Client {
    client: crate::Client,
    runtime: Runtime,
}

impl Client {
    /// Creates a client with default settings, as
    /// [`audience::Client::new`](crate::Client::new) does.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config), as for
    /// [`ClientBuilder::build`](crate::ClientBuilder::build), and if the client's thread cannot be
    /// started.
    pub fn new(base_url: impl AsRef<str>, key: impl Into<String>) -> Result<Self, Error> {
        Self::from_builder(crate::Client::builder(base_url, key))
    }

    /// Creates a client with the settings of a builder of the async client. To start from a base URL and a
    /// key, see [`builder`](Self::builder).
    ///
    /// An [`http_client`](crate::ClientBuilder::http_client) among them must not have been used in
    /// another runtime: its open connections belong to that runtime.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config), as for
    /// [`ClientBuilder::build`](crate::ClientBuilder::build), and if the client's thread cannot be
    /// started.
    ///
    /// # Example: a shorter timeout
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let settings = audience::Client::builder("https://api.example.com/v1", "key")
    ///     .timeout(Duration::from_secs(5));
    /// let client = audience::blocking::Client::from_builder(settings)?;
    /// # Ok::<(), audience::Error>(())
    /// ```
    pub fn from_builder(settings: ClientBuilder) -> Result<Self, Error> {
        Ok(Self {
            client: settings.build()?,
            runtime: Runtime::start()?,
        })
    }

    /// Returns the handle to the contacts endpoints.
    #[must_use]
    pub fn contacts(&self) -> Contacts {
        Contacts::new(self.client.contacts(), self.runtime.clone())
    }

    /// Creates a request to an endpoint that this crate has no method for, as
    /// [`audience::Client::request`](crate::Client::request) does.
    pub fn request<S: AsRef<str>>(
        &self,
        method: Method,
        segments: impl IntoIterator<Item = S>,
    ) -> Call<RawRequest> {
        Call::new(self.client.request(method, segments), self.runtime.clone())
    }
}
