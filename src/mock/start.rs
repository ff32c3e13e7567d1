//! Starts a server.

use std::io;
use std::sync::Arc;
use std::thread;

use tokio::sync::oneshot;

use super::builder::MockServerBuilder;
use super::clock::MockClock;
use super::mock_server::MockServer;
use super::request_handler::RequestHandler;
use super::server::{Server, bind, serve};
use super::service::audience::Audience;
use super::shared::Shared;
use super::state::InitialState;
use crate::Timestamp;

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
        let handler = RequestHandler::new(
            Arc::clone(&shared),
            address.ip(),
            self.allowed_hosts,
            self.observer,
        );
        let server = Arc::new(Server::new(handler));
        thread::Builder::new()
            .name("audience-mock".into())
            .spawn(move || runtime.block_on(serve(listener, server, stopped)))?;

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
