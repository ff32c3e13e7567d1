use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::control::access::AllowedHosts;
use super::delivery::SigningClock;
use super::delivery::endpoints::Endpoints;
use super::delivery::post::Target;
use super::handled_request::{HandledRequest, RequestObserver};
use super::seeds::Seeds;
use super::service::dialect::Dialect;
use super::service::seed_contact::SeedContact;
use super::service::segment::SegmentKind;
use super::service::settings::Settings;
use super::shared_methods::settings_methods;
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
    pub(super) address: SocketAddr,
    pub(super) allowed_hosts: AllowedHosts,
    pub(super) settings: Settings,
    pub(super) clock: Option<Timestamp>,
    pub(super) topics: Vec<(String, bool)>,
    pub(super) segments: Vec<(String, SegmentKind)>,
    pub(super) seeds: Seeds,
    pub(super) endpoints: Endpoints,
    pub(super) signing_clock: SigningClock,
    pub(super) delivery_timeout: Duration,
    pub(super) observer: RequestObserver,
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

    settings_methods!();

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
}
