use std::fmt;
use std::time::Duration;

use http::HeaderValue;
use url::Url;

use super::auth::Auth;
use super::base_url;
use super::handle::Client;
use super::hold::Hold;
use super::retry_policy::RetryPolicy;
use super::send::Sender;
use super::transport::{Transport, TransportSettings};
use crate::Error;
use crate::secret::Secret;

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
pub(super) const DEFAULT_DEADLINE: Duration = Duration::from_secs(45);
const DEFAULT_BODY_LIMIT: usize = 32 * 1024 * 1024;
const CRATE_USER_AGENT: &str = concat!("audience/", env!("CARGO_PKG_VERSION"));

impl Client {
    /// Creates a client with default settings; [`ClientBuilder`] lists them.
    ///
    /// `base_url` is the service's base address. A path in it is kept. `key` is a full-access key
    /// (interface section 5).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config), as for [`ClientBuilder::build`].
    ///
    /// # Example: a base URL with a path
    ///
    /// ```
    /// use audience::Client;
    ///
    /// let client = Client::new("https://api.example.com/v1", "key")?;
    /// # Ok::<(), audience::Error>(())
    /// ```
    pub fn new(base_url: impl AsRef<str>, key: impl Into<String>) -> Result<Self, Error> {
        Self::builder(base_url, key).build()
    }

    /// Creates a builder for a client with other settings.
    ///
    /// # Example: a shorter timeout
    ///
    /// ```
    /// use std::time::Duration;
    /// use audience::Client;
    ///
    /// let client = Client::builder("https://api.example.com/v1", "key")
    ///     .timeout(Duration::from_secs(5))
    ///     .build()?;
    /// # Ok::<(), audience::Error>(())
    /// ```
    pub fn builder(base_url: impl AsRef<str>, key: impl Into<String>) -> ClientBuilder {
        ClientBuilder::new(base_url.as_ref(), key.into())
    }
}

/// A builder for a [`Client`] with settings other than the defaults: see [`Client::builder`].
///
/// # Example: every setting
///
/// ```
/// use std::time::Duration;
/// use audience::{Auth, Client, RetryPolicy};
///
/// let client = Client::builder("https://api.example.com/v1", "key")
///     .auth(Auth::bearer())
///     .timeout(Duration::from_secs(10))
///     .deadline(Duration::from_secs(60))
///     .retry(RetryPolicy::exponential())
///     .user_agent("my-app/1.0")
///     .body_limit(1024 * 1024)
///     .build()?;
/// # Ok::<(), audience::Error>(())
/// ```
#[must_use = "a builder does nothing until `build` is called"]
pub struct ClientBuilder {
    base_url: String,
    key: Secret,
    auth: Auth,
    timeout: Duration,
    deadline: Option<Duration>,
    retry: RetryPolicy,
    user_agent: Option<String>,
    body_limit: usize,
    allow_http: bool,
    http_client: Option<reqwest::Client>,
}

impl ClientBuilder {
    fn new(base_url: &str, key: String) -> Self {
        Self {
            base_url: base_url.to_owned(),
            key: Secret::new(key),
            auth: Auth::bearer(),
            timeout: DEFAULT_TIMEOUT,
            deadline: Some(DEFAULT_DEADLINE),
            retry: RetryPolicy::exponential(),
            user_agent: None,
            body_limit: DEFAULT_BODY_LIMIT,
            allow_http: false,
            http_client: None,
        }
    }

    /// Sets how the key is presented. Default: [`Auth::bearer`].
    pub fn auth(mut self, auth: Auth) -> Self {
        self.auth = auth;
        self
    }

    /// Limits one attempt, from connecting to the last byte of the response. Default: 30 s.
    ///
    /// The [`deadline`](Self::deadline) of the whole call still applies. Connecting alone may take 10 s at
    /// most, unless an [`http_client`](Self::http_client) is set.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = limit;
        self
    }

    /// Limits a whole call, with its retries and waits. Default: 45 s.
    ///
    /// The default suits a web handler. Most gateways and load balancers give up on a handler after 60 s,
    /// so a call fails while the handler still has time to respond. For a job that may wait longer, set a
    /// longer deadline or [`no_deadline`](Self::no_deadline). In a list, it applies to each page.
    ///
    /// If the wait before a retry would not end before the deadline, the call fails at once with the
    /// error of the last attempt.
    ///
    /// # Example: at most ten seconds, with all retries
    ///
    /// ```
    /// use std::time::Duration;
    /// use audience::Client;
    ///
    /// let client = Client::builder("https://api.example.com/v1", "key")
    ///     .deadline(Duration::from_secs(10))
    ///     .build()?;
    /// # Ok::<(), audience::Error>(())
    /// ```
    pub fn deadline(mut self, limit: Duration) -> Self {
        self.deadline = Some(limit);
        self
    }

    /// Lifts the deadline: a call ends when it succeeds or when its retries are used up.
    ///
    /// With the default policy and timeout, a call may then take two minutes, and several more if the
    /// service asks for long waits. Each call can lift its deadline with a `no_deadline` of its own.
    ///
    /// # Example: a job in the background
    ///
    /// ```
    /// use audience::Client;
    ///
    /// let client = Client::builder("https://api.example.com/v1", "key").no_deadline().build()?;
    /// # Ok::<(), audience::Error>(())
    /// ```
    pub fn no_deadline(mut self) -> Self {
        self.deadline = None;
        self
    }

    /// Sets when and how often a failed call is retried. Default: [`RetryPolicy::exponential`].
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = policy;
        self
    }

    /// Sets the name of your program, which precedes the crate's own in `User-Agent`. Default: only
    /// the crate's own.
    pub fn user_agent(mut self, name: impl Into<String>) -> Self {
        self.user_agent = Some(name.into());
        self
    }

    /// Sets the longest response body that is read, in bytes after decompression. Default: 32 MiB.
    ///
    /// A longer body of a 2xx response is an error of [`ErrorKind::Decode`](crate::ErrorKind::Decode). With
    /// any other status, a longer body is dropped.
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.body_limit = bytes;
        self
    }

    /// Accepts an `http` base URL whose host is not this machine. Default: such a URL is refused.
    ///
    /// This machine is `localhost`, which the client connects to 127.0.0.1 or `::1` without asking DNS,
    /// or a loopback address. Another name under `.localhost` is not: DNS may resolve it to any machine.
    ///
    /// The key then travels in clear text. Use this only in a network where something else encrypts.
    pub fn allow_http(mut self) -> Self {
        self.allow_http = true;
        self
    }

    /// Sets the HTTP client to use, for proxies, custom root certificates or mutual TLS. The timeouts
    /// of this builder still apply. Default: a client of this crate.
    ///
    /// It resolves host names itself, `localhost` too.
    ///
    /// Build it with `redirect(reqwest::redirect::Policy::none())`. A client that follows redirects
    /// can turn a POST into a GET, and may send the key to another host.
    ///
    /// # Example: through a proxy
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let http_client = reqwest::Client::builder()
    ///     .proxy(reqwest::Proxy::all("http://proxy.example.com:3128")?)
    ///     .redirect(reqwest::redirect::Policy::none())
    ///     .build()?;
    /// let client = audience::Client::builder("https://api.example.com/v1", "key")
    ///     .http_client(http_client)
    ///     .build()?;
    /// # Ok(()) }
    /// ```
    pub fn http_client(mut self, client: reqwest::Client) -> Self {
        self.http_client = Some(client);
        self
    }

    /// Builds the client. Nothing is sent.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if
    /// - the base URL is not an `http` or `https` URL, contains a user name, a password, a query or a
    ///   fragment, or would send the key in clear text to another machine (see
    ///   [`allow_http`](Self::allow_http));
    /// - the key is empty, contains white space or control characters, starts with `Bearer`, is a placeholder
    ///   such as `<API_KEY>`, or is not valid in a header;
    /// - the name of the key's header is not a valid header name, or the name of your program is not
    ///   valid in a header;
    /// - the base URL is `https` and neither feature `rustls` nor `native-tls` is on (unless an
    ///   [`http_client`](Self::http_client) is set), or TLS cannot be set up.
    pub fn build(self) -> Result<Client, Error> {
        let base = base_url::parse(&self.base_url, self.allow_http)?;
        if self.http_client.is_none() {
            check_tls_feature(&base)?;
        }
        let transport = Transport::new(TransportSettings {
            base,
            auth: self.auth.to_header(&self.key)?,
            user_agent: user_agent_header(self.user_agent.as_deref())?,
            body_limit: self.body_limit,
            http_client: self.http_client,
        })?;
        Ok(Client::from_sender(Sender {
            transport,
            retry: self.retry,
            timeout: self.timeout,
            deadline: self.deadline,
            hold: Hold::default(),
        }))
    }
}

fn check_tls_feature(base: &Url) -> Result<(), Error> {
    if base.scheme() == "https" && cfg!(not(any(feature = "rustls", feature = "native-tls"))) {
        return Err(Error::config(
            "an `https` base URL requires the feature `rustls` or `native-tls`",
        ));
    }
    Ok(())
}

fn user_agent_header(program: Option<&str>) -> Result<HeaderValue, Error> {
    let Some(program) = program else {
        return Ok(HeaderValue::from_static(CRATE_USER_AGENT));
    };
    format!("{program} {CRATE_USER_AGENT}")
        .try_into()
        .map_err(|_| {
            Error::config("the user agent contains characters that are not valid in a header")
        })
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("key", &self.key)
            .field("auth", &self.auth)
            .field("timeout", &self.timeout)
            .field("deadline", &self.deadline)
            .field("retry", &self.retry)
            .field("user_agent", &self.user_agent)
            .field("body_limit", &self.body_limit)
            .field("allow_http", &self.allow_http)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn an_http_base_url_of_another_host_requires_allow_http() {
        let builder = || Client::builder("http://api.example.com", "key");

        assert_eq!(builder().build().unwrap_err().kind(), ErrorKind::Config);
        assert!(builder().allow_http().build().is_ok());
    }

    #[test]
    fn the_key_is_not_printed() {
        let builder = Client::builder("https://api.example.com", "hunter2");

        let printed = format!("{builder:?}") + &format!("{:?}", builder.build().unwrap());

        assert!(!printed.contains("hunter2"), "{printed}");
    }

    #[test]
    fn a_program_name_that_is_not_valid_in_a_header_is_refused() {
        let error = Client::builder("https://api.example.com", "key")
            .user_agent("my\napp")
            .build()
            .unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Config);
    }
}
