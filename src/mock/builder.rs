use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::clock::Clock;
use super::delivery::Endpoints;
use super::delivery::post::Target;
use super::server::serve;
use super::service::audience::{Audience, Settings};
use super::service::dialect::Dialect;
use super::state::{Initial, Shared};
use super::{MockServer, SegmentKind};
use crate::Timestamp;
use crate::secret::Secret;

/// The service waits this long for a receiver (interface section 6.5).
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(10);

/// A port that is taken is asked for again this long: a server that is dropped gives it back a moment later.
const PORT_PATIENCE: Duration = Duration::from_millis(500);

/// How a [`MockServer`] is set up. What is given here stays when the server is reset.
///
/// # Example: a service that is nearly full, at a time of the test's choosing
///
/// ```
/// # use audience::mock::MockServer;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let server = MockServer::builder().contact_ceiling(2).clock(1_700_000_000).topic("news", true).start().await;
///
/// assert_eq!(server.now().as_unix(), 1_700_000_000);
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is listening until `start` is awaited"]
pub struct MockServerBuilder {
    address: SocketAddr,
    full_key: Secret,
    sending_key: Secret,
    auth_header: Option<String>,
    ceiling: Option<u64>,
    dialect: Dialect,
    clock: Option<Timestamp>,
    topics: Vec<(String, bool)>,
    segments: Vec<(String, SegmentKind)>,
    endpoints: Endpoints,
    delivery_timeout: Duration,
}

impl MockServerBuilder {
    pub(super) fn new() -> Self {
        Self {
            address: (Ipv4Addr::LOCALHOST, 0).into(),
            full_key: Secret::new("mock-full-access-key"),
            sending_key: Secret::new("mock-sending-access-key"),
            auth_header: None,
            ceiling: None,
            dialect: Dialect::default(),
            clock: None,
            topics: Vec::new(),
            segments: Vec::new(),
            endpoints: Endpoints::default(),
            delivery_timeout: DELIVERY_TIMEOUT,
        }
    }

    /// The address to listen on: 127.0.0.1 unless set.
    ///
    /// The mock checks keys but has no other protection; the control plane needs none. Think before it listens on
    /// anything but a loopback address.
    pub fn host(mut self, host: impl Into<IpAddr>) -> Self {
        self.address.set_ip(host.into());
        self
    }

    /// The port to listen on. Unless set, or 0: one that is free.
    ///
    /// One that is taken is waited for, half a second at most, so that a server can follow on another that was just
    /// dropped.
    pub fn port(mut self, port: u16) -> Self {
        self.address.set_port(port);
        self
    }

    /// The key that may do everything. `mock-full-access-key` unless set.
    pub fn full_key(mut self, key: impl Into<String>) -> Self {
        self.full_key = Secret::new(key);
        self
    }

    /// The key that may send mail only (interface section 5). `mock-sending-access-key` unless set.
    pub fn sending_key(mut self, key: impl Into<String>) -> Self {
        self.sending_key = Secret::new(key);
        self
    }

    /// The name of a header that the bare key is expected in, instead of `Authorization: Bearer …`.
    pub fn auth_header(mut self, name: impl Into<String>) -> Self {
        self.auth_header = Some(name.into().to_ascii_lowercase());
        self
    }

    /// The number of contacts that can be stored; a write that crosses it is refused (interface section 8). Unless set:
    /// no limit.
    pub fn contact_ceiling(mut self, contacts: u64) -> Self {
        self.ceiling = Some(contacts);
        self
    }

    /// How the mock reads what the document leaves open.
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }

    /// Stops the clock at this time: from then on only [`MockServer::advance`] and [`MockServer::set_clock`] move it.
    ///
    /// Unless set, the clock shows the system's time and whatever it was advanced by, and deliveries are retried when
    /// they really fall due.
    pub fn clock(mut self, at: impl Into<Timestamp>) -> Self {
        self.clock = Some(at.into());
        self
    }

    /// A topic, and the answer of a contact who never gave one.
    pub fn topic(mut self, name: impl Into<String>, default: bool) -> Self {
        self.topics.push((name.into(), default));
        self
    }

    /// A segment. A rule that is none panics when the server is started.
    pub fn segment(mut self, id: impl Into<String>, kind: SegmentKind) -> Self {
        self.segments.push((id.into(), kind));
        self
    }

    /// A webhook endpoint: where events are delivered to, and the secret they are signed with.
    ///
    /// # Panics
    ///
    /// Where `url` is not `http://…`, or the secret is one that cannot be meant (see
    /// [`Signer::new`](crate::webhooks::Signer::new)).
    pub fn webhook_endpoint(mut self, url: impl AsRef<str>, secret: impl AsRef<str>) -> Self {
        let url = url.as_ref();
        match Target::new(url, secret.as_ref()) {
            Ok(target) => self.endpoints.put(url, target),
            Err(problem) => panic!("{problem}"),
        }
        self
    }

    /// How long a receiver has to answer, in real time: 10 seconds unless set.
    pub fn delivery_timeout(mut self, timeout: Duration) -> Self {
        self.delivery_timeout = timeout;
        self
    }

    /// Starts the server on a thread of its own. It answers when this returns.
    ///
    /// Needs no particular runtime, and the server lives on when the one it was started in ends.
    ///
    /// # Panics
    ///
    /// Where the server cannot be started, for one because the port is taken; [`try_start`](Self::try_start) returns
    /// the error. Where a segment's rule is none.
    #[expect(
        clippy::unused_async,
        reason = "a server that does not exist until awaited is what a caller expects"
    )]
    pub async fn start(self) -> MockServer {
        self.start_blocking()
    }

    /// The same, with the error for the caller.
    ///
    /// # Errors
    ///
    /// Where the address cannot be bound, or the system grants no thread.
    ///
    /// # Panics
    ///
    /// Where a segment's rule is none.
    #[expect(
        clippy::unused_async,
        reason = "a server that does not exist until awaited is what a caller expects"
    )]
    pub async fn try_start(self) -> io::Result<MockServer> {
        self.launch()
    }

    /// The same, outside of any runtime: for tests of blocking code.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    #[must_use = "the server stops when it is dropped"]
    pub fn start_blocking(self) -> MockServer {
        let address = self.address;
        match self.launch() {
            Ok(server) => server,
            Err(error) => panic!("the mock server cannot be started on {address}: {error}"),
        }
    }

    fn launch(self) -> io::Result<MockServer> {
        let initial = Initial {
            audience: self.audience(),
            endpoints: self.endpoints,
        };
        let listener = bind(self.address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let clock = self.clock.map_or_else(Clock::running, Clock::standing);
        let shared = Shared::new(
            initial,
            clock,
            self.delivery_timeout,
            runtime.handle().clone(),
        );

        let (stop, stopped) = oneshot::channel();
        let served = Arc::clone(&shared);
        let listener = {
            let _context = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        thread::Builder::new()
            .name("audience-mock".into())
            .spawn(move || runtime.block_on(serve(listener, served, stopped)))?;

        Ok(MockServer {
            url: format!("http://{address}"),
            full_key: self.full_key.expose().to_owned(),
            sending_key: self.sending_key.expose().to_owned(),
            auth_header: self.auth_header,
            shared,
            _stop: stop,
        })
    }

    fn audience(&self) -> Audience {
        let mut audience = Audience::new(Settings {
            full_key: self.full_key.expose().to_owned(),
            sending_key: self.sending_key.expose().to_owned(),
            ceiling: self.ceiling,
            key_header: self.auth_header.clone(),
            dialect: self.dialect,
        });
        for (name, default) in &self.topics {
            audience.put_topic(name, *default);
        }
        for (id, kind) in &self.segments {
            if let Err(problem) = audience.put_segment(id, kind.clone()) {
                panic!("the segment {id:?} cannot be made: {problem}");
            }
        }
        audience
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let deadline = Instant::now() + PORT_PATIENCE;
    loop {
        match TcpListener::bind(address) {
            Err(error)
                if error.kind() == io::ErrorKind::AddrInUse
                    && address.port() != 0
                    && Instant::now() < deadline =>
            {
                thread::sleep(Duration::from_millis(5));
            }
            bound => return bound,
        }
    }
}
