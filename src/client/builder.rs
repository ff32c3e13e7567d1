use std::env::VarError;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use http::HeaderValue;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName};
use url::{Host, Url};

use super::Client;
use super::request::is_set_by_http;
use super::retry::Hold;
use super::retry::RetryPolicy;
use super::send::Sender;
use super::transport::{Transport, TransportSettings};
use crate::Error;
use crate::secret::{ConfigError, Secret, check_secret, trim};

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
        let base = parse_base_url(&self.base_url, self.allow_http)?;
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

/// How the key is presented on each request. The interface document does not say how (section 5).
///
/// # Example: the key in another header
///
/// ```
/// use audience::{Auth, Client};
///
/// let client = Client::builder("https://api.example.com/v1", "key").auth(Auth::header("x-api-key")).build()?;
/// # Ok::<(), audience::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth(Scheme);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Scheme {
    Bearer,
    Header(String),
}

impl Auth {
    /// Sends the key as `Authorization: Bearer <key>`. This is the default.
    #[must_use]
    pub fn bearer() -> Self {
        Self(Scheme::Bearer)
    }

    /// Sends the bare key in the header with this name.
    ///
    /// If the name is not a valid header name, or one such as `content-length` or `host` that HTTP itself
    /// needs, building the client fails with [`ErrorKind::Config`](crate::ErrorKind::Config).
    pub fn header(name: impl Into<String>) -> Self {
        Self(Scheme::Header(name.into()))
    }

    /// Returns the header that presents this key.
    fn to_header(&self, key: &Secret) -> Result<(HeaderName, HeaderValue), Error> {
        let key = key.expose();
        check_key(key).map_err(|problem| Error::config(problem.to_string()))?;
        let (name, value) = match &self.0 {
            Scheme::Bearer => (AUTHORIZATION, Secret::new(format!("Bearer {key}"))),
            Scheme::Header(name) => {
                let name = HeaderName::try_from(name.as_str()).map_err(|error| {
                    Error::config("the name of the key's header is not a valid header name")
                        .caused_by(error)
                })?;
                if is_set_by_http(&name) || name == CONTENT_TYPE {
                    return Err(Error::config(format!(
                        "the key cannot be sent in the header `{name}`, which has another meaning; name the header that the service expects"
                    )));
                }
                (name, Secret::new(key))
            }
        };
        let mut value = HeaderValue::from_str(value.expose()).map_err(|_| {
            Error::config("the key contains characters that are not valid in a header")
        })?;
        value.set_sensitive(true);
        Ok((name, value))
    }
}

/// Refuses text that cannot be a real key, and says why. The service would respond 401.
fn check_key(key: &str) -> Result<(), ConfigError> {
    let starts_with_bearer = key
        .split_once(char::is_whitespace)
        .is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    if starts_with_bearer {
        return Err(ConfigError::new(
            "the key starts with `Bearer`; pass the key alone, because `Auth` adds the rest",
        ));
    }
    check_secret("the key", key.as_bytes())?;
    if key.contains(char::is_whitespace) || trim(key) != key {
        return Err(ConfigError::new("the key contains white space; remove it"));
    }
    Ok(())
}

impl Default for Auth {
    /// Returns [`Auth::bearer`].
    fn default() -> Self {
        Self::bearer()
    }
}

/// The one host name that always is this machine.
pub(super) const LOCALHOST: &str = "localhost";

/// The addresses of [`LOCALHOST`]. Port 0 stands for the port of the URL.
pub(super) const LOOPBACK: [SocketAddr; 2] = [
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
    SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), 0),
];

/// Parses a base URL and removes the slashes at its end.
///
/// # Errors
///
/// `ErrorKind::Config` if the URL cannot be used. The error does not quote it: it may contain a
/// password.
fn parse_base_url(text: &str, allow_http: bool) -> Result<Url, Error> {
    let mut url = Url::parse(text).map_err(|error| {
        Error::config("the base URL is invalid; use a URL like `https://api.example.com/v1`")
            .caused_by(error)
    })?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(Error::config(
            "the base URL must start with `https://` or `http://`",
        ));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Error::config(
            "the base URL contains a user name or a password; remove it and pass the key separately",
        ));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(Error::config(
            "the base URL contains a query or a fragment; remove it",
        ));
    }
    if url.scheme() == "http" && !allow_http && !is_loopback(&url) {
        return Err(Error::config(
            "the base URL would send the key in clear text; use `https`, or call `allow_http()` if this is intended",
        ));
    }
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(&path);
    Ok(url)
}

/// Returns whether the host of the URL is this machine.
///
/// Only `localhost` itself counts, because the HTTP client connects it to [`LOOPBACK`]. DNS may resolve
/// any other name, such as `a.localhost`, to another machine.
pub(super) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == LOCALHOST,
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => IpAddr::V6(ip).to_canonical().is_loopback(),
        None => false,
    }
}

const BASE_URL: &str = "AUDIENCE_URL";
const KEY: &str = "AUDIENCE_KEY";

impl Client {
    /// Creates a client with default settings from two environment variables: `AUDIENCE_URL`, the base
    /// URL, and `AUDIENCE_KEY`, the API key.
    ///
    /// For other settings, see [`ClientBuilder::from_env`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config), as for [`ClientBuilder::from_env`] and
    /// [`ClientBuilder::build`].
    ///
    /// # Example: say which variable is missing
    ///
    /// ```
    /// use audience::Client;
    ///
    /// match Client::from_env() {
    ///     Ok(client) => println!("{client:?}"),
    ///     Err(error) => println!("{error}"), // the environment variable `AUDIENCE_URL` is not set
    /// }
    /// ```
    pub fn from_env() -> Result<Self, Error> {
        ClientBuilder::from_env()?.build()
    }
}

impl ClientBuilder {
    /// Creates a builder with the base URL from the environment variable `AUDIENCE_URL` and the key from
    /// `AUDIENCE_KEY`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if one of them is not set, empty or not valid
    /// Unicode. The error names the variable and never contains its value.
    ///
    /// # Example: a shorter timeout
    ///
    /// ```
    /// use std::time::Duration;
    /// use audience::{Client, ClientBuilder, Error};
    ///
    /// fn client() -> Result<Client, Error> {
    ///     ClientBuilder::from_env()?.timeout(Duration::from_secs(5)).build()
    /// }
    /// # let _ = client();
    /// ```
    pub fn from_env() -> Result<Self, Error> {
        Self::from_variables(std::env::var)
    }

    fn from_variables(
        read: impl Fn(&'static str) -> Result<String, VarError>,
    ) -> Result<Self, Error> {
        let read = |name| {
            let problem = match read(name) {
                Ok(value) if value.trim().is_empty() => "empty",
                Ok(value) => return Ok(value),
                Err(VarError::NotPresent) => "not set",
                Err(VarError::NotUnicode(_)) => "not valid Unicode",
            };
            Err(Error::config(format!(
                "the environment variable `{name}` is {problem}"
            )))
        };
        Ok(Client::builder(read(BASE_URL)?, read(KEY)?))
    }
}

#[cfg(test)]
mod tests {
    mod builder {
        use super::super::*;
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

    mod auth {
        use super::super::*;

        #[test]
        fn the_key_is_in_the_header_of_its_scheme() {
            let key = Secret::new("k-1");

            let (name, value) = Auth::default().to_header(&key).unwrap();
            assert_eq!(
                (name.as_str(), value.to_str().unwrap()),
                ("authorization", "Bearer k-1")
            );

            let (name, value) = Auth::header("X-Api-Key").to_header(&key).unwrap();
            assert_eq!(
                (name.as_str(), value.to_str().unwrap()),
                ("x-api-key", "k-1")
            );
            assert!(!format!("{value:?}").contains("k-1"));
        }

        #[test]
        fn an_invalid_key_or_header_name_is_refused_and_not_printed() {
            for key in ["", "  ", "k-1\n", " k-1", "k\u{0}1", "k\n1"] {
                let error = Auth::bearer().to_header(&Secret::new(key)).unwrap_err();

                assert_eq!(error.kind(), crate::ErrorKind::Config);
                assert!(!format!("{error:?}").contains("k-1"));
            }
            assert!(
                Auth::header("no spaces")
                    .to_header(&Secret::new("k"))
                    .is_err()
            );
        }

        #[test]
        fn a_header_that_http_itself_needs_cannot_hold_the_key() {
            for name in [
                "Content-Length",
                "host",
                "content-type",
                "transfer-encoding",
            ] {
                let error = Auth::header(name)
                    .to_header(&Secret::new("k-1"))
                    .unwrap_err();

                assert_eq!(error.kind(), crate::ErrorKind::Config, "{name}");
            }
        }
    }

    mod base_url {
        use super::super::*;
        use crate::ErrorKind;

        #[test]
        fn an_unusable_base_url_is_refused_without_being_quoted() {
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
                "http://a.localhost",
                "http://localhost.",
            ] {
                let error = parse_base_url(url, false).unwrap_err();

                assert_eq!(error.kind(), ErrorKind::Config, "{url}");
                assert!(!format!("{error} {error:?}").contains("hunter2"), "{url}");
            }
        }

        #[test]
        fn http_is_accepted_for_loopback_hosts_or_if_allowed() {
            for url in [
                "http://localhost:1",
                "http://127.0.0.9",
                "http://[::1]:80/",
                "http://[::ffff:127.0.0.1]",
                "http://LOCALHOST",
            ] {
                assert!(parse_base_url(url, false).is_ok(), "{url}");
            }
            assert!(parse_base_url("http://api.example.com", true).is_ok());
        }
    }

    mod environment {
        use super::super::*;
        use crate::ErrorKind;

        /// The client of a process with these variables.
        fn client(
            url: &Result<&str, VarError>,
            key: &Result<&str, VarError>,
        ) -> Result<Client, Error> {
            let read = |name| match name {
                BASE_URL => url.clone().map(str::to_owned),
                KEY => key.clone().map(str::to_owned),
                other => panic!("{other} is read"),
            };
            ClientBuilder::from_variables(read)?.build()
        }

        #[test]
        fn both_variables_are_read() {
            assert!(client(&Ok("https://api.example.com/v1"), &Ok("key")).is_ok());
        }

        #[test]
        fn an_error_names_the_variable_and_says_what_is_wrong_with_it() {
            let url = Ok("https://api.example.com");
            let missing = || Err(VarError::NotPresent);
            let odd = || Err(VarError::NotUnicode("hunter2".into()));
            for (url, key, expected) in [
                (missing(), missing(), "`AUDIENCE_URL` is not set"),
                (Ok(""), Ok("hunter2"), "`AUDIENCE_URL` is empty"),
                (odd(), Ok("hunter2"), "`AUDIENCE_URL` is not valid Unicode"),
                (url.clone(), missing(), "`AUDIENCE_KEY` is not set"),
                (url.clone(), Ok(" \n"), "`AUDIENCE_KEY` is empty"),
                (url, odd(), "`AUDIENCE_KEY` is not valid Unicode"),
            ] {
                let error = client(&url, &key).unwrap_err();

                assert_eq!(error.kind(), ErrorKind::Config);
                assert_eq!(
                    error.to_string(),
                    format!("the environment variable {expected}")
                );
                assert!(!format!("{error:?}").contains("hunter2"));
            }
        }

        #[test]
        fn a_value_that_is_invalid_is_refused_as_for_any_other_client() {
            for (url, key) in [
                ("not a url", "hunter2"),
                ("https://api.example.com", "hunter2\n"),
            ] {
                let error = client(&Ok(url), &Ok(key)).unwrap_err();

                assert_eq!(error.kind(), ErrorKind::Config);
                assert!(!format!("{error:?}").contains("hunter2"));
            }
        }
    }
}
