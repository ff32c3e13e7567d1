use std::borrow::Cow;
use std::env::VarError;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HeaderName, USER_AGENT};
use http::{HeaderMap, HeaderValue};
use url::{Host, Url};

use super::call::{CallAttempt, OnAttempt};
use super::exchange::is_set_by_http;
use super::retry::RetryPolicy;
use super::{DEFAULT_DEADLINE, Pace, Shared};
use crate::error::ReadError;
use crate::secret::{
    ConfigError, Secret, VariableError, check_secret, secret_from_variables, variable,
};
use crate::{ApiError, Error, ErrorCode};

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
const DEFAULT_BODY_LIMIT: usize = 32 * 1024 * 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Shorter than the idle timeout of most servers, so the client closes an idle connection first.
const IDLE_TIMEOUT: Duration = Duration::from_secs(50);
/// How long an HTTP/2 connection with an open request may be silent before it gets a ping, and how long the response to
/// the ping may take.
const PING: Duration = Duration::from_secs(5);
const CRATE_USER_AGENT: &str = concat!("audience/", env!("CARGO_PKG_VERSION"));

/// Sends calls to the service.
///
/// Create one client and clone it. Clones share connections, key and settings, so one client serves thousands of
/// tasks.
///
/// Await calls in a tokio runtime whose time and I/O drivers are enabled. Outside such a runtime, they panic.
///
/// Give each runtime a client of its own. An open connection belongs to the runtime that opened it, and breaks when
/// that runtime ends, also in the middle of a call from another runtime. Each `#[tokio::test]` is a runtime. So build a
/// client in each test, and do not share one in a `static`.
///
/// # Example: one call
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
/// # let server = audience::mock::MockServer::start().await;
/// # let (base_url, key) = (server.url(), server.full_key());
/// use audience::Client;
/// use audience::contacts::NewContact;
///
/// let client = Client::new(base_url, key)?;
/// let created = client.contacts().create(NewContact::new("ada@example.com")).await?;
///
/// assert!(created.is_new());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Client {
    pub(super) shared: Arc<Shared>,
}

impl Client {
    /// Creates a client with the default settings, which [`ClientBuilder`] lists.
    ///
    /// `base_url` is the address that all paths of the service start with. It may include a path. `key` is a
    /// full-access key ([interface section 5](crate::interface#5)).
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

    /// Creates a client with the default settings from two environment variables. `AUDIENCE_URL` has the base URL, and
    /// `AUDIENCE_KEY` has the API key, or `AUDIENCE_KEY_FILE` the path of a file that contains the key.
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

    pub(crate) fn open_forms(&self) -> &OpenForms {
        &self.shared.open_forms
    }

    #[cfg(feature = "import")]
    pub(crate) fn base_url(&self) -> String {
        self.shared.base_url().to_owned()
    }
}

impl Shared {
    /// Returns the base URL without a slash at its end, unless it has no path.
    fn base_url(&self) -> &str {
        match self.base.as_str() {
            url if self.base.path() == "/" => url,
            url => url.trim_end_matches('/'),
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("base_url", &self.shared.base_url())
            .field("body_limit", &self.shared.body_limit)
            .field("retry", &self.shared.retry)
            .field("timeout", &self.shared.timeout)
            .field("deadline", &self.shared.deadline)
            .finish_non_exhaustive()
    }
}

/// Builds a [`Client`] with settings other than the defaults.
///
/// [`Client::builder`] creates it.
///
/// # Example: several settings
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
///
/// # Example: two clients that differ in one setting
///
/// ```
/// use std::time::Duration;
/// use audience::Client;
///
/// let settings = Client::builder("https://api.example.com/v1", "key").user_agent("my-app/1.0");
///
/// let for_pages = settings.clone().deadline(Duration::from_secs(5)).build()?;
/// let for_jobs = settings.no_deadline().build()?;
/// # Ok::<(), audience::Error>(())
/// ```
#[derive(Clone)]
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
    read_errors: Option<Arc<ReadError>>,
    on_attempt: Option<Arc<OnAttempt>>,
    requests_per_second: Option<u32>,
    open_forms: OpenForms,
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
            read_errors: None,
            on_attempt: None,
            requests_per_second: None,
            open_forms: OpenForms::default(),
            http_client: None,
        }
    }

    /// Creates a builder with the base URL from the environment variable `AUDIENCE_URL` and the key from
    /// `AUDIENCE_KEY`.
    ///
    /// If `AUDIENCE_KEY_FILE` is set instead of `AUDIENCE_KEY`, it is the path of a file that contains the key, such as
    /// a secret that Docker or Kubernetes mounts. A byte order mark at the start of the file and one newline at its end
    /// do not belong to the key. The file is read only once.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if a variable is not set, is empty or is not valid Unicode, if
    /// both `AUDIENCE_KEY` and `AUDIENCE_KEY_FILE` are set, or if the file cannot be read. An empty variable counts as
    /// not set if the other one of the two is set. The error names the variable and never contains its value.
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
        let url = variable(&read, BASE_URL).map_err(invalid_variable)?;
        Ok(Client::builder(url, key_from_variables(read)?))
    }

    /// Sets how the key is sent. Default: [`Auth::bearer`].
    ///
    /// # Example: the key in the header `x-api-key`
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::builder().auth_header("x-api-key").start().await;
    /// # let (base_url, key) = (server.url(), server.full_key());
    /// use audience::{Auth, Client};
    ///
    /// let client = Client::builder(base_url, key).auth(Auth::header("x-api-key")).build()?;
    ///
    /// assert!(client.contacts().list().await.is_ok());
    /// # Ok(()) }
    /// ```
    pub fn auth(mut self, auth: Auth) -> Self {
        self.auth = auth;
        self
    }

    /// Limits one attempt, from connecting to the last byte of the response. Default: 30 s.
    ///
    /// The [`deadline`](Self::deadline) of the whole call still applies. Connecting alone may take 10 s at
    /// most, unless an [`http_client`](Self::http_client) is set.
    ///
    /// # Example: three short attempts instead of a long one
    ///
    /// ```
    /// use std::time::Duration;
    /// use audience::{Client, RetryPolicy};
    ///
    /// let client = Client::builder("https://api.example.com/v1", "key")
    ///     .timeout(Duration::from_secs(3))
    ///     .retry(RetryPolicy::exponential().max_attempts(3))
    ///     .build()?;
    /// # Ok::<(), audience::Error>(())
    /// ```
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = limit;
        self
    }

    /// Limits a whole call, with its retries and waits. Default: 45 s.
    ///
    /// The default suits a web handler. Most gateways and load balancers give up on a handler after 60 s,
    /// so a call fails while the handler still has time to respond. For a job that may wait longer, set a
    /// longer deadline or [`no_deadline`](Self::no_deadline). In a list, the deadline applies to each page;
    /// in a [`count`](crate::contacts::ListContacts::count), to all pages together.
    ///
    /// If the wait before a retry would last beyond the deadline, the call does not wait. It fails immediately with
    /// the error of the last attempt.
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

    /// Removes the deadline: a call ends when it succeeds or when its retries are used up.
    ///
    /// With the default policy and timeout, a call may then take two minutes, and several more if the
    /// service asks for long waits. Each call also has a method `no_deadline`, which removes its own deadline only.
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
    ///
    /// # Example: two attempts at most
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # server.fault(audience::mock::Fault::close_before());
    /// # let (base_url, key) = (server.url(), server.full_key());
    /// use audience::{Client, RetryPolicy};
    ///
    /// let policy = RetryPolicy::exponential().max_attempts(2);
    /// let client = Client::builder(base_url, key).retry(policy).build()?;
    ///
    /// // The server closes every connection without a response.
    /// let error = client.contacts().retrieve("ada@example.com").await.unwrap_err();
    /// assert_eq!(error.attempts(), 2);
    /// # Ok(()) }
    /// ```
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = policy;
        self
    }

    /// Sets the name of your program in the `User-Agent` header, in front of the name of this crate. Default: only the
    /// name of this crate.
    ///
    /// # Example: a program that the service can recognize
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// let client = server.client_builder().user_agent("shop/2.1").build()?;
    /// client.contacts().list().await?;
    ///
    /// let requests = server.requests();
    /// let user_agent = requests[0].header("user-agent").unwrap_or_default();
    /// assert!(user_agent.starts_with("shop/2.1 audience/"));
    /// # Ok(()) }
    /// ```
    pub fn user_agent(mut self, name: impl Into<String>) -> Self {
        self.user_agent = Some(name.into());
        self
    }

    /// Sets the longest response body that is read, in bytes after decompression. Default: 32 MiB.
    ///
    /// If the body of a 2xx response is longer, the call fails with
    /// [`ErrorKind::Decode`](crate::ErrorKind::Decode). If the response has another status, its body is dropped, and
    /// the error keeps the status.
    ///
    /// # Example: a response that is too long
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::builder().seed_contact("ada@example.com").start().await;
    /// use audience::ErrorKind;
    ///
    /// let client = server.client_builder().body_limit(64).build()?;
    ///
    /// let error = client.contacts().retrieve("ada@example.com").await.unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Decode);
    /// # Ok(()) }
    /// ```
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.body_limit = bytes;
        self
    }

    /// Accepts an `http` base URL even if its host is another machine. Default: the client cannot be built with such a
    /// URL.
    ///
    /// The key then travels in clear text. Use this only in a network where something else encrypts.
    ///
    /// `localhost` and loopback addresses are this machine and need no permission. The client connects `localhost` to
    /// 127.0.0.1 or `::1` without asking DNS. Any other name, such as `a.localhost`, counts as another machine, because
    /// DNS may resolve it to one.
    ///
    /// # Example: behind a proxy that encrypts
    ///
    /// ```
    /// use audience::Client;
    ///
    /// let sidecar = "http://mail-proxy.internal:8080";
    ///
    /// assert!(Client::new(sidecar, "key").is_err());
    /// assert!(Client::builder(sidecar, "key").allow_http().build().is_ok());
    /// ```
    pub fn allow_http(mut self) -> Self {
        self.allow_http = true;
        self
    }

    /// Reads the code and the message of error responses whose form this crate does not know. Default: only
    /// [the usual places](crate::ApiError#how-the-code-is-found) are read.
    ///
    /// The interface document does not show an error body ([section 7](crate::interface#7)). If the service puts its
    /// code elsewhere, then [`Error::code`] is `None`, and `is_complaint_locked` and the other predicates do not
    /// recognize the refusal.
    ///
    /// The function gets each response with a status other than 2xx: status, headers and body, and the code and message
    /// that were found in the usual places. It returns the code and the message (each empty if there is none) to use
    /// instead, or `None` to keep what was found. A known slug is recognized in upper and lower case, and with `-`
    /// instead of `_`. The status alone decides about retries.
    ///
    /// The function is called in the task that awaits the call, or in a task that fetches a page ahead. If it panics,
    /// so does the call.
    ///
    /// # Example: a code in a header
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # server.fault(audience::mock::Fault::status(422).header("x-problem", "E17; failed_precondition").body("{}"));
    /// # let (base_url, key) = (server.url(), server.full_key());
    /// use audience::{Client, ErrorCode};
    ///
    /// let client = Client::builder(base_url, key)
    ///     .read_errors(|refusal| {
    ///         let problem = refusal.headers().get("x-problem")?.to_str().ok()?;
    ///         let (_number, code) = problem.split_once("; ")?;
    ///         Some((ErrorCode::from(code), String::new()))
    ///     })
    ///     .build()?;
    ///
    /// let error = client.contacts().subscribe("ada@example.com").await.unwrap_err();
    /// assert!(error.is_complaint_locked());
    /// # Ok(()) }
    /// ```
    pub fn read_errors(
        mut self,
        read: impl Fn(&ApiError) -> Option<(ErrorCode, String)> + Send + Sync + 'static,
    ) -> Self {
        self.read_errors = Some(Arc::new(read));
        self
    }

    /// Calls a function after each attempt of each call, for metrics. Default: no function.
    ///
    /// An attempt is one request and its response, or what has prevented a response. The function is not called for a
    /// call that sends nothing, nor for an attempt whose future is dropped. With the feature `tracing`, each attempt is
    /// also a [span](crate::client#spans-and-events).
    ///
    /// The function is called in the task that sends the request. It holds up the call, so it must not block. It must not
    /// panic: the outcome of the call is then unknown. If it is set again, the last one counts.
    ///
    /// # Example: a counter for each operation and status
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::builder().seed_contact("ada@example.com").start().await;
    /// # server.fault(audience::mock::Fault::status(503).times(1));
    /// # let (base_url, key) = (server.url(), server.full_key());
    /// use std::collections::BTreeMap;
    /// use std::sync::{Arc, Mutex};
    /// use audience::Client;
    ///
    /// let counters = Arc::new(Mutex::new(BTreeMap::new()));
    /// let of_client = counters.clone();
    /// let client = Client::builder(base_url, key)
    ///     .on_attempt(move |attempt| {
    ///         let status = attempt.status.map_or(0, |status| status.as_u16());
    ///         if let Ok(mut counters) = of_client.lock() {
    ///             *counters.entry((attempt.operation, status)).or_insert(0) += 1;
    ///         }
    ///     })
    ///     .build()?;
    ///
    /// client.contacts().retrieve("ada@example.com").await?;
    ///
    /// let expected = BTreeMap::from([(("retrieve", 200), 1), (("retrieve", 503), 1)]);
    /// assert_eq!(*counters.lock().unwrap(), expected);
    /// # Ok(()) }
    /// ```
    pub fn on_attempt(
        mut self,
        on_attempt: impl Fn(&CallAttempt<'_>) + Send + Sync + 'static,
    ) -> Self {
        self.on_attempt = Some(Arc::new(on_attempt));
        self
    }

    /// Limits the requests of this client and all its clones, at regular intervals. Default: no limit. The interface
    /// document has none, so ask the service. Other processes with the same key need a share of it, and so does another
    /// client of the same builder: if only some calls need a longer deadline, set it on these calls.
    ///
    /// Each attempt of each call waits for its turn, also in imports and streams. Retries, and the further requests of a call
    /// that changes something, go before all calls that have not begun; otherwise, the first to wait is the first to go.
    /// The wait counts towards the [`deadline`](Self::deadline), but not towards the [`timeout`](Self::timeout). If the
    /// deadline is over before the turn, the request is not sent, and the call fails with
    /// [`ErrorKind::Timeout`](crate::ErrorKind::Timeout) or, before a retry, with the error of the last attempt. A
    /// redirect that is followed takes no turn.
    ///
    /// The wait for the first request leaves less time for the others. So give
    /// [`confirm_opt_in`](crate::contacts::Contacts::confirm_opt_in) a long deadline: if it is over just after the
    /// creation, the contact keeps each topic whose default is `true`.
    ///
    /// # Example: ten requests per second
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let (base_url, key) = (server.url(), server.full_key());
    /// # use std::time::{Duration, Instant};
    /// use audience::Client;
    ///
    /// let client = Client::builder(base_url, key).requests_per_second(10).build()?;
    /// # let start = Instant::now();
    /// client.contacts().create("ada@example.com").await?;
    /// client.contacts().create("bob@example.com").await?; // 100 ms later
    /// # assert!(start.elapsed() >= Duration::from_millis(100));
    /// # Ok(()) }
    /// ```
    pub fn requests_per_second(mut self, limit: u32) -> Self {
        self.requests_per_second = Some(limit);
        self
    }

    /// Sends the properties of [`merge_properties`](crate::contacts::Contacts::merge_properties) as the whole body:
    /// `{"seats": 3}`. Default: `{"properties": {"seats": 3}}`.
    ///
    /// The interface document does not show this body ([section 4.7](crate::interface#4.7)). A service that expects the
    /// other form may respond 200 and merge nothing, so check once which one it expects:
    /// [`examples/check_forms.rs`](https://docs.rs/crate/audience/latest/source/examples/check_forms.rs) does that.
    ///
    /// # Example: the body is the properties
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// use audience::mock::dialect::MergeBody;
    /// use audience::mock::{Dialect, MockServer};
    ///
    /// let bare = Dialect { merge_body: MergeBody::Bare, ..Dialect::default() };
    /// let server = MockServer::builder().dialect(bare).seed_contact("ada@example.com").start().await;
    ///
    /// let client = server.client_builder().bare_merge().build()?;
    /// client.contacts().merge_properties("ada@example.com", [("seats", 3)]).await?;
    ///
    /// assert_eq!(server.requests()[0].body, br#"{"seats":3}"#[..]);
    /// # Ok(()) }
    /// ```
    pub fn bare_merge(mut self) -> Self {
        self.open_forms.bare_merge = true;
        self
    }

    /// Sets the name under which the conditions
    /// [`joined_within_days`](crate::rule::Condition::joined_within_days) and
    /// [`joined_before_days`](crate::rule::Condition::joined_before_days) send their day count. Default: `days`.
    ///
    /// The interface document does not show this name ([section 2.8](crate::interface#2.8)). A service that expects
    /// another one may ignore the count and select every contact, so check once which one it expects:
    /// [`examples/check_forms.rs`](https://docs.rs/crate/audience/latest/source/examples/check_forms.rs) does that.
    ///
    /// Building the client fails with [`ErrorKind::Config`](crate::ErrorKind::Config) if the name is empty or `field`.
    ///
    /// # Example: the day count is named `value`
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// use audience::mock::dialect::JoinedMember;
    /// use audience::mock::{Dialect, MockServer};
    /// use audience::rule::{Condition, Rule};
    ///
    /// let value = Dialect { joined_member: JoinedMember::Value, ..Dialect::default() };
    /// let server = MockServer::builder().dialect(value).seed_contact("ada@example.com").start().await;
    ///
    /// let client = server.client_builder().joined_member("value").build()?;
    /// let this_week = Rule::all([Condition::joined_within_days(7)]);
    ///
    /// assert_eq!(client.contacts().list().rule(this_week).count().await?, 1);
    /// # Ok(()) }
    /// ```
    pub fn joined_member(mut self, name: impl Into<String>) -> Self {
        self.open_forms.joined_member = Some(name.into());
        self
    }

    /// Sets the HTTP client to use, for proxies, custom root certificates or mutual TLS. Default: this crate builds
    /// one, which uses the proxy in `HTTPS_PROXY`, `HTTP_PROXY` for an `http` base URL, or `ALL_PROXY`, as `NO_PROXY` says.
    /// If the base URL is of this machine, it uses none. Clients with different keys, such as those of many tenants, can
    /// share one.
    ///
    /// If an HTTP/2 server says that it has not begun to process a request, reqwest sends it again up to twice. This counts
    /// as one attempt, even with [`RetryPolicy::none`]. For an HTTP client of your own, `reqwest::retry::never()` turns it
    /// off.
    ///
    /// The timeout and the deadline of this builder still apply, and so do timeouts of the HTTP client. It resolves all
    /// host names itself, even `localhost`. Set its `http2_keep_alive_interval` and `http2_keep_alive_timeout`, to 5 s
    /// like this crate's own, or retries may stay on an HTTP/2 connection that is dead.
    ///
    /// Build it with `redirect(reqwest::redirect::Policy::none())`. An HTTP client that follows redirects can turn a
    /// POST into a GET, and may send the key to another host. This crate follows redirects itself, but only those that
    /// it can follow safely: see [Redirects](crate::client#redirects).
    ///
    /// # Example: through a proxy
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use audience::client::reqwest;
    ///
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
    /// - the key is empty, contains white space or control characters, starts with `Bearer`, is in quotation
    ///   marks, is a placeholder such as `<API_KEY>`, or is not valid in a header;
    /// - the name of the key's header or its scheme is invalid (see [`Auth`]), or the name of your program is not
    ///   valid in a header;
    /// - the [`joined_member`](Self::joined_member) is empty or `field`;
    /// - [`requests_per_second`](Self::requests_per_second) is 0;
    /// - the base URL is `https` and none of the features `rustls`, `rustls-no-provider` and `native-tls` is on;
    /// - the feature `rustls-no-provider` is on without `rustls`, and the program has not installed cryptography for
    ///   rustls (this and the condition above do not hold if an [`http_client`](Self::http_client) is set);
    /// - TLS cannot be set up.
    ///
    /// # Example: a key that was never filled in
    ///
    /// ```
    /// use audience::{Client, ErrorKind};
    ///
    /// let error = Client::builder("https://api.example.com/v1", "<API_KEY>").build().unwrap_err();
    ///
    /// assert_eq!(error.kind(), ErrorKind::Config);
    /// assert_eq!(error.to_string(), "the key is a placeholder; replace it with the real one");
    /// ```
    pub fn build(self) -> Result<Client, Error> {
        let base = parse_base_url(&self.base_url, self.allow_http)?;
        if self.http_client.is_none() {
            check_tls(&base)?;
        }
        let (name, key) = self.auth.to_header(&self.key)?;
        let user_agent = user_agent_header(self.user_agent.as_deref())?;
        self.open_forms.check()?;
        let pace = self.requests_per_second.map(Pace::new).transpose()?;
        let json = HeaderValue::from_static("application/json");
        let accept = (ACCEPT, json.clone());
        // With room for the headers that the HTTP client adds to each clone.
        let mut headers = HeaderMap::with_capacity(8);
        headers.extend([accept, (USER_AGENT, user_agent), (name, key)]);
        let mut json_headers = headers.clone();
        json_headers.insert(CONTENT_TYPE, json);
        let http = self
            .http_client
            .map_or_else(|| http_client_for(&base), Ok)?;
        let shared = Shared {
            http,
            base,
            headers,
            json_headers,
            body_limit: self.body_limit,
            retry: self.retry,
            timeout: self.timeout,
            deadline: self.deadline,
            read_errors: self.read_errors,
            on_attempt: self.on_attempt,
            open_forms: self.open_forms,
            hold: crate::sync::Hold::default(),
            pace,
        };
        Ok(Client {
            shared: Arc::new(shared),
        })
    }
}

/// Fails if the client could not connect over TLS. reqwest would panic without cryptography, even if the URL is `http`.
fn check_tls(base: &Url) -> Result<(), Error> {
    #[cfg(all(feature = "rustls-no-provider", not(feature = "rustls")))]
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        return Err(Error::config(
            "rustls has no cryptography; call `rustls::crypto::ring::default_provider().install_default()` when the program starts, or turn on the feature `rustls`",
        ));
    }
    if base.scheme() == "https"
        && cfg!(not(any(
            feature = "rustls",
            feature = "rustls-no-provider",
            feature = "native-tls"
        )))
    {
        return Err(Error::config(
            "an `https` base URL requires the feature `rustls`, `rustls-no-provider` or `native-tls`",
        ));
    }
    Ok(())
}

/// Creates the HTTP client that is used unless the builder was given one.
fn http_client_for(base: &Url) -> Result<reqwest::Client, Error> {
    let mut builder = reqwest::Client::builder()
        // A redirect can turn a POST into a GET, and may send the key to another host. `send_and_follow` follows some.
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_idle_timeout(IDLE_TIMEOUT)
        // A timeout ends only its own request, so all calls and retries would use a connection that is dead.
        .http2_keep_alive_interval(PING)
        .http2_keep_alive_timeout(PING)
        // DNS might resolve `localhost` to another machine, which would then get the key.
        .resolve_to_addrs(LOCALHOST, &LOOPBACK)
        .referer(false);
    if is_loopback(base) {
        // A proxy from the environment would get the key in clear text, and it cannot reach this machine by a loopback
        // address.
        builder = builder.no_proxy();
    }
    #[cfg(any(feature = "rustls", feature = "rustls-no-provider"))]
    {
        builder = builder.tls_backend_rustls();
    }
    // Without https there is no certificate to verify, so the system's roots need not be read or exist.
    #[cfg(any(
        feature = "rustls",
        feature = "rustls-no-provider",
        feature = "native-tls"
    ))]
    if base.scheme() == "http" {
        builder = builder.tls_certs_only([]);
    }
    builder.build().map_err(|error| {
        Error::config("could not set up the HTTP client").caused_by(error.without_url())
    })
}

/// Begins a POST to a URL that is not the service's, with the connections of a client and without a key.
#[cfg(feature = "cli")]
pub(crate) fn post_to(url: &str) -> Result<reqwest::RequestBuilder, Error> {
    let form = "the URL is invalid; use a URL like `https://app.example.com/hook`";
    let url = Url::parse(url).map_err(|error| Error::config(form).caused_by(error))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(Error::config(form));
    }
    check_tls(&url)?;
    Ok(http_client_for(&url)?.post(url))
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

/// The settings for parts of requests that the interface document does not show.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenForms {
    /// Whether the properties are the whole body of a merge.
    pub(crate) bare_merge: bool,
    /// The name of the day count in a joined condition, if it is not `days`.
    pub(crate) joined_member: Option<String>,
}

impl OpenForms {
    fn check(&self) -> Result<(), Error> {
        match self.joined_member.as_deref() {
            // A day count named `field` would replace the name of the condition.
            Some("" | "field") => Err(Error::config(
                "the name of the day count of a joined condition is empty or `field`",
            )),
            _ => Ok(()),
        }
    }
}

/// Says how a request presents the key: in which header, and with what before it.
///
/// The interface document does not say how ([section 5](crate::interface#5)). If the service responds 401 to a key that
/// you know is right, use another one:
///
/// | the service expects | setting |
/// |---|---|
/// | `Authorization: Bearer <key>` | [`bearer`](Self::bearer), the default |
/// | `Authorization: Token <key>` | [`scheme("Token")`](Self::scheme) |
/// | the key as the password of a user name | [`basic("user")`](Self::basic) |
/// | a header of its own, such as `X-Api-Key: <key>` | [`header("x-api-key")`](Self::header) |
///
/// # Example: choose the header for every request
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
    /// In `Authorization`, after this word.
    Authorization(Cow<'static, str>),
    /// In `Authorization`, as the password of this user.
    Basic(String),
    /// Alone in this header.
    Header(String),
}

impl Auth {
    /// Sends the key as `Authorization: Bearer <key>`. This is the default.
    ///
    /// # Example: the default of every client
    ///
    /// ```
    /// use audience::Auth;
    ///
    /// assert_eq!(Auth::default(), Auth::bearer());
    /// ```
    #[must_use]
    pub fn bearer() -> Self {
        Self(Scheme::Authorization(Cow::Borrowed("Bearer")))
    }

    /// Sends the key as `Authorization: <scheme> <key>`, for a service that expects another word than `Bearer`.
    ///
    /// Building the client fails with [`ErrorKind::Config`](crate::ErrorKind::Config) if HTTP does not allow this name
    /// of a scheme.
    ///
    /// # Example: a service that expects `Token`
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let base_url = server.url();
    /// use audience::{Auth, Client};
    ///
    /// let client = Client::builder(base_url, "k-1").auth(Auth::scheme("Token")).build()?;
    /// # let _ = client.contacts().list().await;
    ///
    /// // Each request has the header `Authorization: Token k-1`.
    /// # Ok(()) }
    /// ```
    pub fn scheme(name: impl Into<String>) -> Self {
        Self(Scheme::Authorization(Cow::Owned(name.into())))
    }

    /// Sends the key as the password of this user, with HTTP's `Basic` scheme.
    ///
    /// Building the client fails with [`ErrorKind::Config`](crate::ErrorKind::Config) if the name contains a colon or a
    /// control character.
    ///
    /// # Example: a service with the user name `api`
    ///
    /// ```
    /// use audience::{Auth, Client};
    ///
    /// let client = Client::builder("https://api.example.com/v1", "k-1").auth(Auth::basic("api")).build()?;
    /// # Ok::<(), audience::Error>(())
    /// ```
    pub fn basic(user: impl Into<String>) -> Self {
        Self(Scheme::Basic(user.into()))
    }

    /// Sends the key, and nothing else, in the header with this name.
    ///
    /// Building the client fails with [`ErrorKind::Config`](crate::ErrorKind::Config) if this is not a valid header
    /// name, or if HTTP or this client needs the header, as they need `host` and `accept`.
    ///
    /// # Example: a header that cannot hold a key
    ///
    /// ```
    /// use audience::{Auth, Client};
    ///
    /// let with_header = |name| {
    ///     Client::builder("https://api.example.com/v1", "key").auth(Auth::header(name)).build()
    /// };
    ///
    /// assert!(with_header("x-api-key").is_ok());
    /// assert!(with_header("host").is_err());
    /// ```
    pub fn header(name: impl Into<String>) -> Self {
        Self(Scheme::Header(name.into()))
    }

    /// Returns the header that presents this key.
    fn to_header(&self, key: &Secret) -> Result<(HeaderName, HeaderValue), Error> {
        let key = key.expose();
        check_key(key).map_err(|problem| Error::config(problem.to_string()))?;
        let (name, value) = match &self.0 {
            Scheme::Authorization(scheme) => {
                check_scheme(scheme)?;
                (AUTHORIZATION, Secret::new(format!("{scheme} {key}")))
            }
            Scheme::Basic(user) => {
                if user.contains(|c: char| c == ':' || c.is_control()) {
                    return Err(Error::config(
                        "the user name of `Auth::basic` contains a colon or a control character",
                    ));
                }
                let encoded = Secret::new(STANDARD.encode(format!("{user}:{key}")));
                let value = format!("Basic {}", encoded.expose());
                (AUTHORIZATION, Secret::new(value))
            }
            Scheme::Header(name) => {
                let name = HeaderName::try_from(name.as_str()).map_err(|error| {
                    Error::config("the name of the key's header is not a valid header name")
                        .caused_by(error)
                })?;
                // The key would replace what the client sends in these.
                let is_taken = [ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, USER_AGENT].contains(&name);
                if is_set_by_http(&name) || is_taken {
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
        // Keeps the key out of `Debug` texts and out of the header table of HTTP/2.
        value.set_sensitive(true);
        Ok((name, value))
    }
}

/// Fails if HTTP does not allow this name of a scheme.
fn check_scheme(name: &str) -> Result<(), Error> {
    // HTTP allows the same characters in the name of a header.
    match HeaderName::try_from(name) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::config(
            "the scheme of the key is not a valid name; use one word, such as `Token`",
        )),
    }
}

/// Fails if the text cannot be a real key, and says why. Without this check, the service would respond 401.
fn check_key(key: &str) -> Result<(), ConfigError> {
    // A key that was copied with its scheme would be sent as `Bearer Bearer …`.
    let starts_with_bearer = key
        .split_once(char::is_whitespace)
        .is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    if starts_with_bearer {
        return Err(ConfigError::new(
            "the key starts with `Bearer`; pass the key alone, because `Auth` adds the rest",
        ));
    }
    check_secret("the key", key.as_bytes())?;
    if key.contains(char::is_whitespace) {
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
const LOCALHOST: &str = "localhost";

/// The addresses of [`LOCALHOST`]. Port 0 means the port of the URL.
const LOOPBACK: [SocketAddr; 2] = [
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
    SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), 0),
];

/// Parses a base URL and leaves one slash at its end, so that paths can be joined to it.
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
            "the base URL would send the key in clear text; use `https`, or allow `http` if this is intended",
        ));
    }
    let path = format!("{}/", url.path().trim_end_matches('/'));
    url.set_path(&path);
    Ok(url)
}

/// Returns whether the host of the URL is this machine.
///
/// Only `localhost` itself counts, because the HTTP client connects it to [`LOOPBACK`]. DNS may resolve
/// any other name, such as `a.localhost`, to another machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == LOCALHOST,
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => IpAddr::V6(ip).to_canonical().is_loopback(),
        None => false,
    }
}

const BASE_URL: &str = "AUDIENCE_URL";
const KEY: &str = "AUDIENCE_KEY";
const KEY_FILE: &str = "AUDIENCE_KEY_FILE";

/// Returns the key from the environment, or from the file that it names.
#[cfg(feature = "cli")]
pub(crate) fn key_from_env() -> Result<String, Error> {
    key_from_variables(std::env::var)
}

fn key_from_variables(
    read: impl Fn(&'static str) -> Result<String, VarError>,
) -> Result<String, Error> {
    secret_from_variables(read, KEY, KEY_FILE).map_err(invalid_variable)
}

fn invalid_variable(VariableError { text, cause }: VariableError) -> Error {
    match cause {
        Some(cause) => Error::config(text).caused_by(cause),
        None => Error::config(text),
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
        let builder = Client::builder("http://127.0.0.1:1", "hunter2");

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

            assert_eq!(error.kind(), ErrorKind::Config);
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

            assert_eq!(error.kind(), ErrorKind::Config, "{name}");
        }
    }

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

    /// The client of a process with these variables.
    fn client(url: &Result<&str, VarError>, key: &Result<&str, VarError>) -> Result<Client, Error> {
        let read = |name| match name {
            BASE_URL => url.clone().map(str::to_owned),
            KEY => key.clone().map(str::to_owned),
            KEY_FILE => Err(VarError::NotPresent),
            other => panic!("{other} is read"),
        };
        ClientBuilder::from_variables(read)?.build()
    }

    #[test]
    fn both_variables_are_read() {
        assert!(client(&Ok("http://127.0.0.1:1/v1"), &Ok("key")).is_ok());
    }

    #[test]
    fn an_error_names_the_variable_and_says_what_is_wrong_with_it() {
        let url = Ok("https://api.example.com");
        let missing = || Err(VarError::NotPresent);
        let odd = || Err(VarError::NotUnicode("hunter2".into()));
        for (url, key, expected) in [
            (missing(), missing(), " `AUDIENCE_URL` is not set"),
            (Ok(""), Ok("hunter2"), " `AUDIENCE_URL` is empty"),
            (odd(), Ok("hunter2"), " `AUDIENCE_URL` is not valid Unicode"),
            (
                url.clone(),
                missing(),
                "s `AUDIENCE_KEY` and `AUDIENCE_KEY_FILE` is set",
            ),
            (url.clone(), Ok(" \n"), " `AUDIENCE_KEY` is empty"),
            (url, odd(), " `AUDIENCE_KEY` is not valid Unicode"),
        ] {
            let error = client(&url, &key).unwrap_err();

            assert_eq!(error.kind(), ErrorKind::Config);
            let text = error.to_string();
            assert!(
                text.ends_with(&format!("the environment variable{expected}")),
                "{text}"
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
