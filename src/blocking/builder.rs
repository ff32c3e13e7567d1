use std::time::Duration;

use super::Client;
use crate::{Auth, Error, RetryPolicy};

impl Client {
    /// Creates a builder for a client with other settings.
    ///
    /// # Example: a shorter timeout
    ///
    /// ```
    /// use std::time::Duration;
    /// use audience::blocking::Client;
    ///
    /// let client = Client::builder("https://api.example.com/v1", "key")
    ///     .timeout(Duration::from_secs(5))
    ///     .build()?;
    /// # Ok::<(), audience::Error>(())
    /// ```
    pub fn builder(base_url: impl AsRef<str>, key: impl Into<String>) -> ClientBuilder {
        ClientBuilder(crate::Client::builder(base_url, key))
    }

    /// Creates a client with default settings from the environment variables `AUDIENCE_URL` and
    /// `AUDIENCE_KEY`, as [`audience::Client::from_env`](crate::Client::from_env) does.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config), as for
    /// [`audience::Client::from_env`](crate::Client::from_env), and if the client's thread cannot be
    /// started.
    pub fn from_env() -> Result<Self, Error> {
        ClientBuilder::from_env()?.build()
    }
}

/// A builder for a blocking [`Client`], with the settings and the defaults of
/// [`audience::ClientBuilder`](crate::ClientBuilder): see [`Client::builder`].
///
/// An [`http_client`](Self::http_client) must not have been used in another runtime: its open connections
/// belong to that runtime.
#[derive(Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct ClientBuilder(crate::ClientBuilder);

impl ClientBuilder {
    /// Creates a builder with the base URL from the environment variable `AUDIENCE_URL` and the key from
    /// `AUDIENCE_KEY`, as [`audience::ClientBuilder::from_env`](crate::ClientBuilder::from_env) does.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if one of them is not set, empty or not valid
    /// Unicode.
    pub fn from_env() -> Result<Self, Error> {
        crate::ClientBuilder::from_env().map(Self)
    }

    /// Builds the client and starts its thread. Nothing is sent.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config), as for
    /// [`audience::ClientBuilder::build`](crate::ClientBuilder::build), and if the client's thread cannot
    /// be started.
    pub fn build(self) -> Result<Client, Error> {
        Client::from_builder(self.0)
    }
}

macro_rules! setters {
    ($($name:ident($($argument:ident: $type:ty)?);)*) => {
        impl ClientBuilder {$(
            #[doc = concat!("Does the same as [`audience::ClientBuilder::", stringify!($name), "`](crate::ClientBuilder::", stringify!($name), ").")]
            pub fn $name(self, $($argument: $type)?) -> Self {
                Self(self.0.$name($($argument)?))
            }
        )*}
    };
}

setters! {
    auth(auth: Auth);
    timeout(limit: Duration);
    deadline(limit: Duration);
    no_deadline();
    retry(policy: RetryPolicy);
    user_agent(name: impl Into<String>);
    body_limit(bytes: usize);
    allow_http();
    http_client(client: reqwest::Client);
}
