//! Configures and starts a server.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use std::{io, thread};

use serde_json::Value;
use tokio::sync::oneshot;

use super::clock::MockClock;
use super::control::access::AllowedHosts;
use super::delivery::{Endpoints, SigningClock, Target};
use super::journal::{HandledRequest, RequestObserver};
use super::server::{Server, bind, serve};
use super::service::dialect::Dialect;
use super::service::rule::SegmentKind;
use super::service::seed::{self, Seed, SeedContact, SeedSettings, put_contact};
use super::service::{Audience, Settings};
use super::text::BYTE_ORDER_MARK;
use super::{InitialState, MockServer, Shared, targets};
use crate::Timestamp;

/// The time a receiver has to respond (interface section 6.5).
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(10);

/// Configures and starts a [`MockServer`]. [`MockServer::reset`] restores this configuration.
///
/// [`MockServer`]: super::MockServer
/// [`MockServer::reset`]: super::MockServer::reset
///
/// # Example: a service with a low ceiling and a stopped clock
///
/// ```
/// # use audience::mock::{MockServer, SegmentKind};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let server = MockServer::builder()
///     .full_key("a-key-for-tests")
///     .contact_ceiling(2)
///     .clock(1_700_000_000)
///     .topic("news", true)
///     .segment("seg_1", SegmentKind::Contacts(vec!["ada@example.com".into()]))
///     .webhook_endpoint("http://127.0.0.1:8080/hook", "a-secret-of-the-test")
///     .start()
///     .await;
///
/// assert_eq!(server.full_key(), "a-key-for-tests");
/// assert_eq!(server.sending_key(), "mock-sending-access-key");
/// assert_eq!(server.now().as_unix(), 1_700_000_000);
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "the server does not run until `start` is awaited"]
pub struct MockServerBuilder {
    address: SocketAddr,
    allowed_hosts: AllowedHosts,
    pub(super) settings: Settings,
    clock: Option<Timestamp>,
    topics: Vec<(String, bool)>,
    segments: Vec<(String, SegmentKind)>,
    seeds: Seeds,
    endpoints: Endpoints,
    signing_clock: SigningClock,
    delivery_timeout: Duration,
    observer: RequestObserver,
}

impl MockServerBuilder {
    pub(super) fn new() -> Self {
        Self {
            address: (Ipv4Addr::LOCALHOST, 0).into(),
            allowed_hosts: AllowedHosts::default(),
            settings: Settings::default(),
            clock: None,
            topics: Vec::new(),
            segments: Vec::new(),
            seeds: Seeds::default(),
            endpoints: Endpoints::default(),
            signing_clock: SigningClock::default(),
            delivery_timeout: DELIVERY_TIMEOUT,
            observer: RequestObserver::default(),
        }
    }

    /// Sets the IP address to listen on. Default: 127.0.0.1.
    ///
    /// The mock checks keys but has no other protection, and the control plane needs no key. Be careful with an address
    /// that other machines can reach. To call the server by a name, see [`allowed_host`](Self::allowed_host).
    ///
    /// # Example: an address from a setting
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), std::net::AddrParseError> {
    /// # let setting = "127.0.0.1";
    /// let host: std::net::IpAddr = setting.parse()?;
    /// let server = MockServer::builder().host(host).start().await;
    ///
    /// assert!(server.url().starts_with("http://127.0.0.1:"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn host(mut self, host: impl Into<IpAddr>) -> Self {
        self.address.set_ip(host.into());
        self
    }

    /// Sets the port to listen on. Default: 0, which means any free port.
    ///
    /// A port in use is retried for up to half a second, so that a server can take over the port of one that was just
    /// dropped.
    ///
    /// # Example: a service that restarts at the same address
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let server = MockServer::start().await;
    /// let url = server.url().to_owned();
    /// let port = url.rsplit(':').next().and_then(|port| port.parse().ok()).expect("the URL ends with the port");
    ///
    /// drop(server);
    /// let restarted = MockServer::builder().port(port).start().await;
    ///
    /// assert_eq!(restarted.url(), url);
    /// # }
    /// ```
    pub fn port(mut self, port: u16) -> Self {
        self.address.set_port(port);
        self
    }

    /// Allows requests to another host name or IP address, such as the name of a container.
    ///
    /// A request whose `Host` header has any other host is refused with a 403, so that no web page can use the server
    /// under its own domain name. A port after the host is ignored. Can be repeated. Default: `localhost`, loopback
    /// addresses, and the address that the server listens on. These stay allowed.
    ///
    /// # Panics
    ///
    /// Panics if `host` is not a valid host name or IP address.
    ///
    /// # Example: the name of a container
    ///
    /// ```
    /// # use std::{io::{Read, Write}, net::TcpStream};
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// let server = MockServer::builder().allowed_host("audience-mock").start().await;
    /// let mut connection = TcpStream::connect(server.url().trim_start_matches("http://"))?;
    ///
    /// write!(connection, "GET /_mock/health HTTP/1.1\r\nhost: audience-mock\r\nconnection: close\r\n\r\n")?;
    ///
    /// let mut response = String::new();
    /// connection.read_to_string(&mut response)?;
    /// assert!(response.starts_with("HTTP/1.1 200 OK"), "{response}");
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn allowed_host(mut self, host: impl AsRef<str>) -> Self {
        if let Err(problem) = self.allowed_hosts.add(host.as_ref()) {
            panic!("{problem}");
        }
        self
    }

    /// Sets the full-access key, which may call every endpoint. Default: `mock-full-access-key`.
    ///
    /// # Example: code that uses another key
    ///
    /// ```
    /// # use audience::{Client, mock::MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// let server = MockServer::builder().full_key("the-new-key").start().await;
    /// let client = Client::new(server.url(), "the-old-key")?;
    ///
    /// assert!(client.contacts().list().await.unwrap_err().is_unauthorized());
    /// # Ok(())
    /// # }
    /// ```
    pub fn full_key(mut self, key: impl Into<String>) -> Self {
        self.settings.full_key = Some(key.into());
        self
    }

    /// Sets the sending-access key, which may only send mail ([interface section 5](crate::interface#5)). Default:
    /// `mock-sending-access-key`.
    ///
    /// # Example: a program that only sends mail
    ///
    /// ```
    /// # use audience::{Client, mock::MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// let server = MockServer::builder().sending_key("may-only-send").start().await;
    /// let client = Client::new(server.url(), "may-only-send")?;
    ///
    /// let mail = serde_json::json!({"from": "me@example.com", "to": "ada@example.com", "subject": "Hi"});
    /// client.request(http::Method::POST, ["emails"]).json(&mail)?.await?;
    ///
    /// assert_eq!(server.sent_mail().len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn sending_key(mut self, key: impl Into<String>) -> Self {
        self.settings.sending_key = Some(key.into());
        self
    }

    /// Sets the header that holds the bare key. Default: `Authorization`, with `Bearer` before the key.
    ///
    /// # Panics
    ///
    /// Panics if `name` is not a valid header name.
    ///
    /// # Example: a key without `Bearer`
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// let server = MockServer::builder().auth_header("x-api-key").start().await;
    ///
    /// server.client().contacts().list().await?;
    ///
    /// assert_eq!(server.requests()[0].header("x-api-key"), Some(server.full_key()));
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn auth_header(mut self, name: impl Into<String>) -> Self {
        let name = name.into();
        match http::HeaderName::from_bytes(name.as_bytes()) {
            Ok(name) => self.settings.key_header = Some(name.as_str().to_owned()),
            Err(_) => panic!("{name:?} is not a valid header name"),
        }
        self
    }

    /// Sets how many contacts can be stored ([interface section 8](crate::interface#8)). Default: no limit.
    ///
    /// A request or batch entry that would exceed the ceiling is refused with 402 `quota_exceeded`.
    ///
    /// # Example: a plan with one contact
    ///
    /// ```
    /// # use audience::{contacts::NewContact, mock::MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// let server = MockServer::builder().contact_ceiling(1).start().await;
    /// let contacts = server.client().contacts();
    ///
    /// contacts.create(NewContact::new("ada@example.com")).await?;
    /// let error = contacts.create(NewContact::new("bob@example.com")).await.unwrap_err();
    ///
    /// assert!(error.is_quota_exceeded());
    /// # Ok(())
    /// # }
    /// ```
    pub fn contact_ceiling(mut self, contacts: u64) -> Self {
        self.settings.ceiling = Some(contacts);
        self
    }

    /// Sets the mock's choice for each question that the interface document leaves open. Default:
    /// [`Dialect::default`].
    ///
    /// # Example: a service that responds 202
    ///
    /// ```
    /// use audience::mock::dialect::SuccessStatus;
    /// use audience::mock::{Dialect, MockServer};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// let dialect = Dialect { success_status: SuccessStatus::Accepted, ..Dialect::default() };
    /// let server = MockServer::builder().dialect(dialect).start().await;
    ///
    /// server.client().contacts().list().await?;
    ///
    /// assert_eq!(server.requests()[0].status, Some(202));
    /// # Ok(())
    /// # }
    /// ```
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.settings.dialect = Some(dialect);
        self
    }

    /// Adds a contact in any state, or replaces the one with its address.
    ///
    /// Seeds are applied in the order they are added, after the builder's topics and segments. If one is invalid,
    /// [`start`](Self::start) panics with the reason.
    ///
    /// # Example: a contact that a reset restores
    ///
    /// ```
    /// use audience::mock::{MockServer, SeedContact};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let ada = SeedContact::new("ada@example.com").property("plan", "pro");
    /// let server = MockServer::builder().seed_contact(ada).start().await;
    ///
    /// server.reset();
    ///
    /// assert_eq!(server.contacts()[0].properties["plan"], "pro");
    /// # }
    /// ```
    pub fn seed_contact(mut self, contact: impl Into<SeedContact>) -> Self {
        self.seeds.add_contact(contact.into());
        self
    }

    /// Adds a [seed](crate::mock#seeds): topics, segments, contacts and more, as JSON.
    ///
    /// Seeds are applied in the order they are added.
    ///
    /// # Panics
    ///
    /// Panics if `seed` has an unknown member or a member of a wrong type. If it is invalid in another way,
    /// [`start`](Self::start) panics. The message has the reason.
    ///
    /// # Example: a ceiling that is reached
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let server = MockServer::builder()
    ///     .seed(serde_json::json!({"ceiling": 1, "contacts": [{"email": "ada@example.com"}]}))
    ///     .start()
    ///     .await;
    ///
    /// assert_eq!(server.contacts()[0].email, "ada@example.com");
    /// # }
    /// ```
    #[expect(
        clippy::needless_pass_by_value,
        reason = "callers write the JSON in place"
    )]
    #[track_caller]
    pub fn seed(mut self, seed: Value) -> Self {
        if let Err(problem) = self.seeds.add_json(&seed) {
            panic!("the seed is invalid: {problem}");
        }
        self
    }

    /// Adds a [seed](crate::mock#seeds) from a JSON file.
    ///
    /// Seeds are applied in the order they are added. If the file cannot be read or is invalid, [`start`](Self::start)
    /// panics with the reason.
    ///
    /// # Example: a file that several tests share
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// # let file = std::env::temp_dir().join(format!("audience-seed-{}.json", std::process::id()));
    /// std::fs::write(&file, r#"{"topics": {"news": true}, "contacts": [{"email": "ada@example.com"}]}"#)?;
    ///
    /// let server = MockServer::builder().seed_file(&file).start().await;
    ///
    /// assert_eq!(server.contact_count(), 1);
    /// # std::fs::remove_file(file)
    /// # }
    /// ```
    pub fn seed_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.seeds.add_file(path.into());
        self
    }

    /// Stops the clock at this time. Only [`MockServer::advance`](super::MockServer::advance) and
    /// [`MockServer::set_clock`](super::MockServer::set_clock) move it from there.
    ///
    /// Default: a running clock. It shows the system's time plus the time it was advanced by, and failed deliveries are
    /// retried in real time.
    ///
    /// # Example: a response that is the same on every run
    ///
    /// ```
    /// # use audience::{contacts::NewContact, mock::MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// let server = MockServer::builder().clock(1_700_000_000).start().await;
    ///
    /// let created = server.client().contacts().create(NewContact::new("ada@example.com")).await?;
    ///
    /// assert_eq!(created.contact.created_at.as_unix(), 1_700_000_000);
    /// # Ok(())
    /// # }
    /// ```
    pub fn clock(mut self, at: impl Into<Timestamp>) -> Self {
        self.clock = Some(at.into());
        self
    }

    /// Adds a topic. `default` applies to every contact who has not answered the topic.
    ///
    /// # Example: a topic that a contact must opt into
    ///
    /// ```
    /// # use audience::{contacts::NewContact, mock::MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// let server = MockServer::builder().topic("offers", false).start().await;
    ///
    /// server.client().contacts().create(NewContact::new("ada@example.com")).await?;
    ///
    /// assert!(!server.contacts()[0].topics["offers"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn topic(mut self, name: impl Into<String>, default: bool) -> Self {
        self.topics.push((name.into(), default));
        self
    }

    /// Adds a segment.
    ///
    /// If one of its addresses or its rule is invalid, [`start`](Self::start) panics.
    ///
    /// # Example: list the contacts of a segment
    ///
    /// ```
    /// use audience::mock::{MockServer, SegmentKind};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// let team = SegmentKind::Contacts(vec!["ada@example.com".into()]);
    /// let server = MockServer::builder()
    ///     .segment("seg_team", team)
    ///     .seed_contact("ada@example.com")
    ///     .seed_contact("bob@example.com")
    ///     .start()
    ///     .await;
    ///
    /// let page = server.client().contacts().list().segment("seg_team").await?;
    ///
    /// assert_eq!(page.data.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn segment(mut self, id: impl Into<String>, kind: SegmentKind) -> Self {
        self.segments.push((id.into(), kind));
        self
    }

    /// Adds a webhook endpoint: the URL that events are delivered to, and the secret they are signed with.
    ///
    /// If the URL already is an endpoint, its secret is replaced.
    ///
    /// # Panics
    ///
    /// Panics if `url` is not a valid `http://…` URL, or if [`Signer::new`](crate::webhooks::Signer::new) refuses the
    /// secret.
    ///
    /// # Example: every event of a sent mail
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), audience::Error> {
    /// # let receiver = MockServer::start().await;
    /// # let hook = format!("{}/hook", receiver.url());
    /// let server = MockServer::builder().webhook_endpoint(hook, "a-secret-of-the-test").start().await;
    ///
    /// let mail = serde_json::json!({"from": "me@example.com", "to": "ada@example.com", "subject": "Hi"});
    /// server.client().request(http::Method::POST, ["emails"]).json(&mail)?.await?;
    /// server.advance(Duration::ZERO).await;
    ///
    /// let types: Vec<_> = receiver.requests().iter().map(|request| request.json().unwrap()["type"].clone()).collect();
    /// assert!(types.contains(&"email.sent".into()) && types.contains(&"email.delivered".into()));
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn webhook_endpoint(mut self, url: impl AsRef<str>, secret: impl AsRef<str>) -> Self {
        let url = url.as_ref();
        match Target::new(url, secret.as_ref()) {
            Ok(target) => self.endpoints.put(url, target),
            Err(problem) => panic!("{problem}"),
        }
        self
    }

    /// Sets how long a receiver has to send a complete response, in real time. Default: 10 s.
    ///
    /// # Example: a receiver that responds too late
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use audience::mock::{Fault, MockServer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let receiver = MockServer::start().await;
    /// # receiver.fault(Fault::status(200).delayed_by(Duration::from_secs(600)));
    /// # let hook = format!("{}/hook", receiver.url());
    /// let server = MockServer::builder()
    ///     .webhook_endpoint(hook, "a-secret-of-the-test")
    ///     .delivery_timeout(Duration::from_millis(50))
    ///     .start()
    ///     .await;
    ///
    /// server.send_event(serde_json::json!({"type": "email.opened"})).await;
    ///
    /// assert_eq!(server.attempts()[0].status, None);
    /// # }
    /// ```
    pub fn delivery_timeout(mut self, timeout: Duration) -> Self {
        self.delivery_timeout = timeout;
        self
    }

    /// Sets the clock that signs deliveries. Default: [`SigningClock::Mock`].
    ///
    /// # Example: a stopped mock and a receiver that uses the system's clock
    ///
    /// ```
    /// # use audience::mock::{MockServer, SigningClock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let receiver = MockServer::start().await;
    /// # let hook = format!("{}/hook", receiver.url());
    /// let server = MockServer::builder()
    ///     .clock(1_700_000_000)
    ///     .signing_clock(SigningClock::Wall)
    ///     .webhook_endpoint(hook, "a-secret-of-the-test")
    ///     .start()
    ///     .await;
    ///
    /// server.send_event(serde_json::json!({"type": "email.opened"})).await;
    ///
    /// assert_ne!(receiver.requests()[0].header("webhook-timestamp"), Some("1700000000"));
    /// # }
    /// ```
    pub fn signing_clock(mut self, clock: SigningClock) -> Self {
        self.signing_clock = clock;
        self
    }

    /// Sets a function that is called for each request as soon as it is handled, for example to print it. Default:
    /// none.
    ///
    /// The function is called before the response is sent, on the server's thread, so it must not block. If the client
    /// closes the connection while a fault delays the response, it is called then. It is not called for requests to the
    /// control plane. If it panics, the request gets no response.
    ///
    /// # Example: one line for each refused request
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let (lines, printed) = std::sync::mpsc::channel();
    /// let server = MockServer::builder()
    ///     .on_request(move |request| {
    ///         if let Some(reason) = &request.reason {
    ///             let _ = lines.send(format!("{} {}: {reason}", request.method, request.path));
    ///         }
    ///     })
    ///     .start()
    ///     .await;
    ///
    /// let _ = server.client().contacts().retrieve("ada@example.com").await;
    ///
    /// assert!(printed.recv().is_ok_and(|line| line.starts_with("GET /contacts/")));
    /// # }
    /// ```
    pub fn on_request(mut self, observe: impl Fn(&HandledRequest) + Send + Sync + 'static) -> Self {
        self.observer = RequestObserver::new(observe);
        self
    }

    /// Starts the server on its own thread. It accepts requests when this returns.
    ///
    /// The server does not depend on the caller's runtime and outlives it.
    ///
    /// # Panics
    ///
    /// Panics if the server cannot be started, for example because the port is in use, or a seed or a key is invalid.
    /// [`try_start`](Self::try_start) returns this error instead. Also panics if a segment is invalid.
    ///
    /// # Example: two servers beside each other
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let live = MockServer::builder().full_key("live-key").start().await;
    /// let test = MockServer::builder().full_key("test-key").start().await;
    ///
    /// assert_ne!(live.url(), test.url());
    /// # }
    /// ```
    pub async fn start(self) -> MockServer {
        let address = self.address;
        match self.try_start().await {
            Ok(server) => server,
            Err(error) => panic!("could not start the mock server on {address}: {error}"),
        }
    }

    /// Starts the server like [`start`](Self::start), and returns the error if it cannot be started.
    ///
    /// # Errors
    ///
    /// The [`io::Error`] if the address cannot be bound, the system cannot create a thread, or a seed cannot be read.
    /// If a seed is invalid, its kind is [`InvalidData`](io::ErrorKind::InvalidData). If a key is empty or cannot be
    /// sent in a header, or if both keys are the same, its kind is [`InvalidInput`](io::ErrorKind::InvalidInput).
    ///
    /// # Panics
    ///
    /// Panics if a segment is invalid.
    ///
    /// # Example: a port in use
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    ///
    /// let error = MockServer::builder().port(taken.local_addr()?.port()).try_start().await.unwrap_err();
    ///
    /// assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_start(self) -> io::Result<MockServer> {
        let (report, started) = oneshot::channel();
        self.launch(|server| drop(report.send(server)))?;
        started.await.unwrap_or_else(|_| Err(thread_ended()))
    }

    /// Starts the server like [`start`](Self::start), but waits without a runtime, for tests of blocking code.
    ///
    /// # Panics
    ///
    /// Panics like [`start`](Self::start).
    ///
    /// # Example: a test of blocking code
    ///
    /// ```
    /// # use audience::{contacts::NewContact, mock::MockServer};
    /// # fn main() -> Result<(), audience::Error> {
    /// let server = MockServer::builder().start_blocking();
    ///
    /// server.client().contacts().create(NewContact::new("ada@example.com")).wait()?;
    ///
    /// assert_eq!(server.contact_count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn start_blocking(self) -> MockServer {
        let address = self.address;
        let (report, started) = mpsc::channel();
        let launched = self.launch(move |server| drop(report.send(server)));
        let started =
            launched.and_then(|()| started.recv().unwrap_or_else(|_| Err(thread_ended())));
        match started {
            Ok(server) => server,
            Err(error) => panic!("could not start the mock server on {address}: {error}"),
        }
    }

    /// Starts the server on a thread of its own, which reports the server as soon as it accepts connections.
    fn launch(
        mut self,
        report: impl FnOnce(io::Result<MockServer>) + Send + 'static,
    ) -> io::Result<()> {
        let (initial, clock) = self.initial_state()?;
        // Not the caller's runtime: the server outlives it, and serves a test that blocks its only thread.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let serve = move || {
            let handle = runtime.handle().clone();
            runtime.block_on(async move {
                let bound = bind(self.address).await;
                let (listener, address) = match bound.and_then(|listener| {
                    let address = listener.local_addr()?;
                    Ok((listener, address))
                }) {
                    Ok(bound) => bound,
                    Err(error) => return report(Err(error)),
                };
                let shared = Shared::new(initial, clock, self.delivery_timeout, handle);
                let server = Server::new(
                    Arc::clone(&shared),
                    address.ip(),
                    self.allowed_hosts,
                    self.observer,
                );
                let (stop, stopped) = oneshot::channel();
                report(Ok(MockServer {
                    url: format!("http://{address}"),
                    full_key: self.settings.full_key().to_owned(),
                    sending_key: self.settings.sending_key().to_owned(),
                    auth_header: self.settings.key_header,
                    shared,
                    _stop: stop,
                }));
                serve(listener, Arc::new(server), stopped).await;
            });
        };
        thread::Builder::new()
            .name("audience-mock".into())
            .spawn(serve)?;
        Ok(())
    }

    /// Reads the seeds, and returns the state and the clock to start with. Completes the settings from the seeds.
    pub(super) fn initial_state(&mut self) -> io::Result<(InitialState, MockClock)> {
        let seeds = std::mem::take(&mut self.seeds).read()?;
        seeds.complete(&mut self.settings);
        let checked = self.settings.check_keys();
        checked.map_err(|problem| io::Error::new(io::ErrorKind::InvalidInput, problem))?;
        // The builder overrides its seeds.
        let clock = self.clock.or_else(|| seeds.clock().map(Timestamp::from));
        let clock = clock.map_or_else(MockClock::running, MockClock::stopped);
        let mut initial = InitialState {
            audience: self.audience(),
            endpoints: std::mem::take(&mut self.endpoints),
            signing_clock: self.signing_clock,
        };
        seeds.apply(&mut initial.audience, &mut initial.endpoints, clock.unix())?;
        Ok((initial, clock))
    }

    fn audience(&self) -> Audience {
        let mut audience = Audience::new(self.settings.clone());
        for (name, default) in &self.topics {
            audience.put_topic(name, *default);
        }
        for (id, kind) in &self.segments {
            if let Err(problem) = audience.put_segment(id, kind.clone()) {
                panic!("the segment {id:?} is invalid: {problem}");
            }
        }
        audience
    }
}

fn thread_ended() -> io::Error {
    io::Error::other("the thread of the server ended before the server was started")
}

/// The seeds of a builder, in the order they were added.
#[derive(Clone, Debug, Default)]
struct Seeds(Vec<Source>);

#[derive(Clone, Debug)]
enum Source {
    File(PathBuf),
    Seed(Seed),
    Contact(SeedContact),
}

impl Seeds {
    /// Adds a file. It is read by [`read`](Self::read).
    fn add_file(&mut self, path: PathBuf) {
        self.0.push(Source::File(path));
    }

    /// Adds a seed. Returns a message for the test's author if it is not one.
    fn add_json(&mut self, seed: &Value) -> Result<(), String> {
        self.0.push(Source::Seed(Seed::from_value(seed)?));
        Ok(())
    }

    fn add_contact(&mut self, contact: SeedContact) {
        self.0.push(Source::Contact(contact));
    }

    /// Reads the files.
    ///
    /// # Errors
    ///
    /// Fails if a file cannot be read or is not a seed. The message names the file.
    fn read(self) -> io::Result<LoadedSeeds> {
        let sources = self.0.into_iter();
        let loaded = sources.map(|source| match source {
            Source::File(path) => {
                let text = std::fs::read(&path).map_err(|error| {
                    let message = format!("could not read the seed file {path:?}: {error}");
                    io::Error::new(error.kind(), message)
                })?;
                let name = format!("the seed file {path:?}");
                let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&text);
                let seed = Seed::parse(text).map_err(|problem| invalid(&name, &problem))?;
                Ok((name, Content::Seed(seed)))
            }
            Source::Seed(seed) => Ok(("the seed".to_owned(), Content::Seed(seed))),
            Source::Contact(contact) => {
                Ok(("the seeded contact".to_owned(), Content::Contact(contact)))
            }
        });
        Ok(LoadedSeeds(loaded.collect::<io::Result<_>>()?))
    }
}

/// Seeds that were read, each with what a message calls it.
#[derive(Debug)]
struct LoadedSeeds(Vec<(String, Content)>);

#[derive(Debug)]
enum Content {
    Seed(Seed),
    Contact(SeedContact),
}

impl LoadedSeeds {
    /// Returns the time of the last seed that has one.
    fn clock(&self) -> Option<i64> {
        self.0.iter().rev().find_map(|(_, content)| match content {
            Content::Seed(seed) => seed.clock,
            Content::Contact(_) => None,
        })
    }

    /// Completes settings with the keys and the dialects of the seeds. The last seed counts. A setting of the builder
    /// stays.
    fn complete(&self, settings: &mut Settings) {
        let seeds = self.0.iter().filter_map(|(_, content)| match content {
            Content::Seed(seed) => Some(&seed.settings),
            Content::Contact(_) => None,
        });
        seeds
            .fold(SeedSettings::default(), |before, seed| seed.or(before))
            .complete(settings);
    }

    /// Applies the seeds in order, at `now`.
    ///
    /// The builder's ceiling stays.
    ///
    /// # Errors
    ///
    /// Fails if a seed is invalid. The message says which.
    fn apply(self, audience: &mut Audience, endpoints: &mut Endpoints, now: i64) -> io::Result<()> {
        let ceiling = audience.contacts.ceiling;
        for (name, content) in self.0 {
            let applied = match content {
                Content::Contact(contact) => put_contact(audience, contact, now).map(drop),
                Content::Seed(seed) => apply_seed(seed, audience, endpoints, now),
            };
            applied.map_err(|problem| invalid(&name, &problem))?;
        }
        if ceiling.is_some() {
            audience.contacts.ceiling = ceiling;
        }
        Ok(())
    }
}

fn apply_seed(
    mut seed: Seed,
    audience: &mut Audience,
    endpoints: &mut Endpoints,
    now: i64,
) -> Result<(), String> {
    let targets = targets(std::mem::take(&mut seed.endpoints))?;
    seed::apply(audience, seed, now)?;
    for (name, target) in targets {
        endpoints.put(&name, target);
    }
    Ok(())
}

fn invalid(name: &str, problem: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("{name} is invalid: {problem}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_has_ten_seconds_by_default() {
        let builder = MockServer::builder();

        assert_eq!(builder.delivery_timeout, Duration::from_secs(10));
    }
}
