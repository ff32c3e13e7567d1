use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use url::{Host, Url};

use super::transport::{Transport, TransportSettings};
use super::{Auth, Client, Inner, RetryPolicy};
use crate::Error;
use crate::secret::Secret;

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
const DEFAULT_BODY_LIMIT: usize = 32 * 1024 * 1024;
const OWN_USER_AGENT: &str = concat!("audience/", env!("CARGO_PKG_VERSION"));

/// Settings for a [`Client`], made by [`Client::builder`].
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
#[must_use = "settings are nothing until `build` makes a client of them"]
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
    pub(super) fn new(base_url: &str, key: String) -> Self {
        Self {
            base_url: base_url.to_owned(),
            key: Secret::new(key),
            auth: Auth::bearer(),
            timeout: DEFAULT_TIMEOUT,
            deadline: None,
            retry: RetryPolicy::exponential(),
            user_agent: None,
            body_limit: DEFAULT_BODY_LIMIT,
            allow_http: false,
            http_client: None,
        }
    }

    /// How the key is presented. Default [`Auth::bearer`].
    pub fn auth(mut self, auth: Auth) -> Self {
        self.auth = auth;
        self
    }

    /// Limits one attempt, from connecting to the last byte of the answer. Default 30 s.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = limit;
        self
    }

    /// Limits a whole call, its retries and waits included. Default none. A retry whose wait would
    /// not end in time is not waited for: the call fails at once, with the last attempt's error.
    pub fn deadline(mut self, limit: Duration) -> Self {
        self.deadline = Some(limit);
        self
    }

    /// When a failed call is tried again. Default [`RetryPolicy::exponential`].
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = policy;
        self
    }

    /// Names your program: put before the crate's own name in `User-Agent`.
    pub fn user_agent(mut self, name: impl Into<String>) -> Self {
        self.user_agent = Some(name.into());
        self
    }

    /// How much of an answer's body is read, after decompression, in bytes. Default 32 MiB. An
    /// answer beyond it is [`ErrorKind::Decode`](crate::ErrorKind::Decode).
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.body_limit = bytes;
        self
    }

    /// Lets the key travel in clear text: accepts a base URL with `http` and a host other than this
    /// machine, for a network where something else encrypts.
    pub fn allow_http(mut self) -> Self {
        self.allow_http = true;
        self
    }

    /// Uses an HTTP client of your own, for proxies, roots or mutual TLS. Timeouts set here still
    /// apply. Build it with `redirect(reqwest::redirect::Policy::none())`: a client that follows
    /// redirects turns a POST into a GET on the way, and may carry the key to another host.
    pub fn http_client(mut self, client: reqwest::Client) -> Self {
        self.http_client = Some(client);
        self
    }

    /// Builds the client. Nothing is sent.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) where
    /// - the base URL is no `http` or `https` URL, holds a user, a query or a fragment, or would send
    ///   the key in clear text to another machine (see [`allow_http`](Self::allow_http));
    /// - the key is empty, has white space around it, or cannot stand in a header;
    /// - the name of the key's header or of your program cannot stand in one;
    /// - it says `https` and neither feature `rustls` nor `native-tls` is on, or TLS cannot be set up.
    pub fn build(self) -> Result<Client, Error> {
        let base = base_url(&self.base_url, self.allow_http)?;
        let own_client = self.http_client.is_some();
        if base.scheme() == "https"
            && !own_client
            && cfg!(not(any(feature = "rustls", feature = "native-tls")))
        {
            return Err(Error::config(
                "an https base URL needs the feature `rustls` or `native-tls`",
            ));
        }
        let user_agent = match &self.user_agent {
            Some(name) => format!("{name} {OWN_USER_AGENT}"),
            None => OWN_USER_AGENT.to_owned(),
        };
        let transport = Transport::new(TransportSettings {
            base,
            auth: self.auth.header_of(&self.key)?,
            user_agent: user_agent.try_into().map_err(|_| {
                Error::config("the user agent holds characters that no HTTP header can carry")
            })?,
            body_limit: self.body_limit,
            http_client: self.http_client,
        })?;
        let (timeout, deadline, retry) = (self.timeout, self.deadline, self.retry);
        Ok(Client {
            inner: Arc::new(Inner {
                transport,
                retry,
                timeout,
                deadline,
            }),
        })
    }
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

/// The base URL without the slash at its end, refused where it cannot be meant. What it holds is not
/// quoted: it may be a password.
fn base_url(text: &str, allow_http: bool) -> Result<Url, Error> {
    let mut url = Url::parse(text).map_err(|error| {
        Error::config("the base URL is not one such as `https://api.example.com/v1`")
            .caused_by(error)
    })?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(Error::config("the base URL is neither `https` nor `http`"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Error::config(
            "the base URL holds a user or a password; the key is given apart from it",
        ));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(Error::config("the base URL holds a query or a fragment"));
    }
    if url.scheme() == "http" && !allow_http && !is_loopback(&url) {
        let message = "the base URL would send the key in clear text: use `https`, or `allow_http()` if that is meant";
        return Err(Error::config(message));
    }
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(&path);
    Ok(url)
}

pub(super) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => IpAddr::V6(ip).to_canonical().is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn a_base_url_that_cannot_be_meant_is_refused_without_being_quoted() {
        for url in [
            "",
            "api.example.com",
            "ftp://api.example.com",
            "mailto:hunter2@example.com",
            "https://user:hunter2@api.example.com",
            "https://hunter2@api.example.com",
            "https://api.example.com/?hunter2",
            "https://api.example.com/#hunter2",
            "http://api.example.com/hunter2",
            "http://10.0.0.1",
            "http://localhost.example.com",
        ] {
            let error = Client::new(url, "key").unwrap_err();

            assert_eq!(error.kind(), ErrorKind::Config, "{url}");
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{url}");
        }
    }

    #[test]
    fn clear_text_is_for_this_machine_or_for_who_asks_for_it() {
        for url in [
            "http://localhost:1",
            "http://127.0.0.9",
            "http://[::1]:80/",
            "http://[::ffff:127.0.0.1]",
            "http://a.localhost",
        ] {
            assert!(Client::new(url, "key").is_ok(), "{url}");
        }
        assert!(
            Client::builder("http://api.example.com", "key")
                .allow_http()
                .build()
                .is_ok()
        );
    }

    #[test]
    fn no_key_is_printed() {
        let builder = Client::builder("https://api.example.com", "hunter2");

        let printed = format!("{builder:?}") + &format!("{:?}", builder.build().unwrap());

        assert!(!printed.contains("hunter2"), "{printed}");
    }

    #[test]
    fn a_program_name_that_no_header_can_carry_is_refused() {
        let error = Client::builder("https://api.example.com", "key")
            .user_agent("my\napp")
            .build()
            .unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Config);
    }
}
