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
use super::mock_server::MockServer;
use super::recorded_request::{HandledRequest, RequestObserver};
use super::request_handler::RequestHandler;
use super::seeds::Seeds;
use super::server::{Server, bind, serve};
use super::service::audience::Audience;
use super::service::dialect::{Dialect, Settings};
use super::service::seed_contact::SeedContact;
use super::service::segment::SegmentKind;
use super::shared::Shared;
use super::state::InitialState;
use crate::Timestamp;

/// The time a receiver has to respond (interface section 6.5).
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(10);

/// Configures and starts a [`MockServer`]. [`MockServer::reset`] goes back to this configuration.
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
    /// that other machines can reach. To call the control plane by a name, see [`allowed_host`](Self::allowed_host).
    pub fn host(mut self, host: impl Into<IpAddr>) -> Self {
        self.address.set_ip(host.into());
        self
    }

    /// Sets the port to listen on. Default: 0, which means any free port.
    ///
    /// A port in use is retried for up to half a second, so that a server can take over the port of one that was just
    /// dropped.
    pub fn port(mut self, port: u16) -> Self {
        self.address.set_port(port);
        self
    }

    /// Allows calls of the control plane by another host name or IP address, such as the name of a container.
    ///
    /// A call whose `Host` header has any other host is refused with a 403, so that no web page can control the server
    /// under a name of its own. A port after the host is ignored. Can be repeated. Default: `localhost`, loopback
    /// addresses, and the address that the server listens on. These stay allowed.
    ///
    /// # Panics
    ///
    /// Panics if `host` is not a valid host name or IP address.
    #[track_caller]
    pub fn allowed_host(mut self, host: impl AsRef<str>) -> Self {
        if let Err(problem) = self.allowed_hosts.add(host.as_ref()) {
            panic!("{problem}");
        }
        self
    }

    /// Sets the full-access key, which may call every endpoint. Default: `mock-full-access-key`.
    pub fn full_key(mut self, key: impl Into<String>) -> Self {
        self.settings.full_key = Some(key.into());
        self
    }

    /// Sets the sending-access key, which may only send mail (interface section 5). Default:
    /// `mock-sending-access-key`.
    pub fn sending_key(mut self, key: impl Into<String>) -> Self {
        self.settings.sending_key = Some(key.into());
        self
    }

    /// Sets the header that holds the bare key. Default: `Authorization`, with `Bearer` before the key.
    ///
    /// # Panics
    ///
    /// Panics if `name` is not a valid header name.
    #[track_caller]
    pub fn auth_header(mut self, name: impl Into<String>) -> Self {
        let name = name.into();
        match http::HeaderName::from_bytes(name.as_bytes()) {
            Ok(name) => self.settings.key_header = Some(name.as_str().to_owned()),
            Err(_) => panic!("{name:?} is not a valid header name"),
        }
        self
    }

    /// Sets how many contacts can be stored (interface section 8). Default: no limit.
    ///
    /// A request or batch entry that would exceed the ceiling is refused with 402 `quota_exceeded`.
    pub fn contact_ceiling(mut self, contacts: u64) -> Self {
        self.settings.ceiling = Some(contacts);
        self
    }

    /// Sets the mock's choices for what the interface document leaves open. Default: [`Dialect::default`].
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.settings.dialect = Some(dialect);
        self
    }

    /// Adds a contact in any state, or replaces the one with its address.
    ///
    /// Seeds are applied in the order they are added, after the builder's topics and segments. If one is invalid,
    /// starting or building the mock panics with the reason.
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
    /// Panics if `seed` has an unknown member or one of a wrong type. If it is invalid in another way, starting or
    /// building the mock panics. The message has the reason.
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
    /// Seeds are applied in the order they are added. If the file cannot be read or is invalid, starting or building
    /// the mock panics with the reason.
    pub fn seed_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.seeds.add_file(path.into());
        self
    }

    /// Stops the clock at this time. Only [`MockServer::advance`](super::MockServer::advance) and
    /// [`MockServer::set_clock`](super::MockServer::set_clock) move it from there.
    ///
    /// Default: a running clock. It shows the system's time plus the time it was advanced by, and failed deliveries are
    /// retried in real time.
    pub fn clock(mut self, at: impl Into<Timestamp>) -> Self {
        self.clock = Some(at.into());
        self
    }

    /// Adds a topic. `default` is the answer of contacts who have not given one.
    pub fn topic(mut self, name: impl Into<String>, default: bool) -> Self {
        self.topics.push((name.into(), default));
        self
    }

    /// Adds a segment.
    ///
    /// If its rule is invalid, [`start`](Self::start) panics.
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
    pub fn delivery_timeout(mut self, timeout: Duration) -> Self {
        self.delivery_timeout = timeout;
        self
    }

    /// Sets the clock that deliveries are signed by. Default: [`SigningClock::Mock`].
    pub fn signing_clock(mut self, clock: SigningClock) -> Self {
        self.signing_clock = clock;
        self
    }

    /// Sets a function that is called for each request as soon as it is handled, for example to print it. Default: none.
    ///
    /// It is called before the response is sent, on the server's thread, so it must not block. Calls of the control plane
    /// are left out. If it panics, the request gets no response.
    ///
    /// # Example: one line for each refused request
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// let builder = MockServer::builder().on_request(|request| {
    ///     if let Some(reason) = &request.reason {
    ///         eprintln!("{} {}: {reason}", request.method, request.path);
    ///     }
    /// });
    /// # let _ = builder;
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
    /// Panics if the server cannot be started, for example because the port is in use or a seed is invalid.
    /// [`try_start`](Self::try_start) returns this error instead. Also panics if the rule of a segment is invalid.
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
    /// The [`io::Error`] if the address cannot be bound, the system cannot create a thread, or a seed cannot be read. If
    /// a seed is invalid, its kind is [`InvalidData`](io::ErrorKind::InvalidData).
    ///
    /// # Panics
    ///
    /// Panics if the rule of a segment is invalid.
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
    #[must_use = "the server stops when it is dropped"]
    #[track_caller]
    pub fn start_blocking(self) -> MockServer {
        let address = self.address;
        match self.try_start_blocking() {
            Ok(server) => server,
            Err(error) => panic!("could not start the mock server on {address}: {error}"),
        }
    }

    /// Starts the server like [`try_start`](Self::try_start), but waits without a runtime.
    ///
    /// # Errors
    ///
    /// The same as [`try_start`](Self::try_start).
    ///
    /// # Panics
    ///
    /// Panics if the rule of a segment is invalid.
    ///
    /// # Example: a server for a test without a runtime
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// # fn main() -> std::io::Result<()> {
    /// let server = MockServer::builder().try_start_blocking()?;
    ///
    /// assert_eq!(server.contact_count(), 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_start_blocking(self) -> io::Result<MockServer> {
        let (report, started) = mpsc::channel();
        self.launch(move |server| drop(report.send(server)))?;
        started.recv().unwrap_or_else(|_| Err(thread_ended()))
    }

    /// Starts the server on a thread of its own, which reports the server as soon as it accepts connections.
    fn launch(
        mut self,
        report: impl FnOnce(io::Result<MockServer>) + Send + 'static,
    ) -> io::Result<()> {
        let (initial, clock) = self.initial_state()?;
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
                let handler = RequestHandler::new(
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
                serve(listener, Arc::new(Server::new(handler)), stopped).await;
            });
        };
        thread::Builder::new()
            .name("audience-mock".into())
            .spawn(serve)?;
        Ok(())
    }

    /// Reads the seeds, and returns the state and the clock to start with. Completes the settings by the seeds.
    pub(super) fn initial_state(&mut self) -> io::Result<(InitialState, MockClock)> {
        let seeds = std::mem::take(&mut self.seeds).read()?;
        seeds.complete(&mut self.settings);
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
                panic!("the rule of segment {id:?} is invalid: {problem}");
            }
        }
        audience
    }
}

fn thread_ended() -> io::Error {
    io::Error::other("the thread of the server ended before the server was started")
}
