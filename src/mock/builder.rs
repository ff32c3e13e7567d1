use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

use super::clock::MockClock;
use super::control::access::AllowedHosts;
use super::delivery::SigningClock;
use super::delivery::endpoints::Endpoints;
use super::delivery::post::Target;
use super::handled_request::{HandledRequest, RequestObserver};
use super::mock_server::MockServer;
use super::seeds::Seeds;
use super::server::{Server, bind, serve};
use super::service::audience::Audience;
use super::service::dialect::Dialect;
use super::service::seed_contact::SeedContact;
use super::service::segment::SegmentKind;
use super::service::settings::Settings;
use super::shared::Shared;
use super::shared_methods::settings_methods;
use super::state::InitialState;
use crate::Timestamp;

/// The time a receiver has to respond (interface section 6.5).
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(10);

/// Configures and starts a [`MockServer`]. [`MockServer::reset`] goes back to this configuration.
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
    settings: Settings,
    clock: Option<Timestamp>,
    topics: Vec<(String, bool)>,
    segments: Vec<(String, SegmentKind)>,
    seeds: Seeds,
    endpoints: Endpoints,
    signing_clock: SigningClock,
    delivery_timeout: Duration,
    observer: RequestObserver,
}

impl MockServer {
    /// Starts a server with the default configuration: a free port on 127.0.0.1 and a running clock.
    ///
    /// # Panics
    ///
    /// Panics if the system has no free port or cannot create a thread.
    ///
    /// # Example: a server for one test
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let server = MockServer::start().await;
    ///
    /// assert!(server.url().starts_with("http://127.0.0.1:"));
    /// # }
    /// ```
    #[must_use = "the server stops when it is dropped"]
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    /// Returns a builder for a server with another configuration.
    ///
    /// # Example: a stopped clock
    ///
    /// ```
    /// # use audience::mock::MockServer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let server = MockServer::builder().clock(1_700_000_000).start().await;
    ///
    /// assert_eq!(server.now().as_unix(), 1_700_000_000);
    /// # }
    /// ```
    pub fn builder() -> MockServerBuilder {
        MockServerBuilder::new()
    }
}

impl MockServerBuilder {
    fn new() -> Self {
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

    settings_methods!();

    /// Stops the clock at this time. Only [`MockServer::advance`] and [`MockServer::set_clock`] move it from there.
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
    #[expect(
        clippy::unused_async,
        reason = "callers expect to await the start of a server"
    )]
    pub async fn start(self) -> MockServer {
        self.start_blocking()
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
    #[expect(
        clippy::unused_async,
        reason = "callers expect to await the start of a server"
    )]
    pub async fn try_start(self) -> io::Result<MockServer> {
        self.launch()
    }

    /// Starts the server like [`start`](Self::start), but outside of any runtime, for tests of blocking code.
    ///
    /// # Panics
    ///
    /// Panics like [`start`](Self::start).
    #[must_use = "the server stops when it is dropped"]
    #[track_caller]
    pub fn start_blocking(self) -> MockServer {
        let address = self.address;
        match self.launch() {
            Ok(server) => server,
            Err(error) => panic!("could not start the mock server on {address}: {error}"),
        }
    }

    fn launch(mut self) -> io::Result<MockServer> {
        let seeds = std::mem::take(&mut self.seeds).read()?;
        seeds.complete(&mut self.settings);
        let clock = self.clock.or_else(|| seeds.clock().map(Timestamp::from));
        let clock = clock.map_or_else(MockClock::running, MockClock::stopped);
        let mut initial = InitialState {
            audience: self.audience(),
            endpoints: self.endpoints,
            signing_clock: self.signing_clock,
        };
        seeds.apply(
            &mut initial.audience,
            Some(&mut initial.endpoints),
            clock.unix(),
        )?;
        let listener = bind(self.address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let listener = {
            let _context = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        let shared = Shared::new(
            initial,
            clock,
            self.delivery_timeout,
            runtime.handle().clone(),
        );

        let (stop, stopped) = oneshot::channel();
        let server = Server::new(
            Arc::clone(&shared),
            address.ip(),
            self.allowed_hosts,
            self.observer,
        );
        thread::Builder::new()
            .name("audience-mock".into())
            .spawn(move || runtime.block_on(serve(listener, Arc::new(server), stopped)))?;

        Ok(MockServer {
            url: format!("http://{address}"),
            full_key: self.settings.full_key().to_owned(),
            sending_key: self.settings.sending_key().to_owned(),
            auth_header: self.settings.key_header,
            shared,
            _stop: stop,
        })
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
