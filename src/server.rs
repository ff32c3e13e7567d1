//! A web server and its workers in one program, from start to shutdown.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::future::IntoFuture;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::rt::{Sleep, Timer};
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, join};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tower_service::Service;

use crate::inbox::{Attempt, InboxError, Worker, WorkerReport};
use crate::signals::shutdown;
use crate::webhooks::Event;

/// How long a connection may take to send the headers of a request, from their first byte, and to send the first byte.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a connection may wait for its next request. If a server closes first, it may close a connection on which a
/// proxy has just sent a request. So this is longer than 600 s, after which the load balancers of Google close.
const IDLE_TIMEOUT: Duration = Duration::from_secs(620);

/// How long a response may wait until the peer accepts another part of it.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// How long running requests and handlers may continue after a shutdown, unless the program says otherwise.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(25);

/// How long to wait if no connection can be accepted, for example because too many files are open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves a tower service, such as an axum router, and runs workers beside it until the program is told to stop.
///
/// Await the returned [`Serve`]. It serves HTTP/1.1 and ends at **SIGTERM**, which Kubernetes, Docker and systemd send,
/// or at Ctrl-C. It then accepts no more connections and takes no more events, and waits for the running requests and
/// handlers, up to the [shutdown timeout](Serve::shutdown_timeout). If a worker panics, everything ends in the same
/// way, so that a supervisor restarts the program: a program without its worker would accept events that nobody
/// handles.
///
/// A connection may take 5 s to send the headers of a request, so slow senders cannot hold connections forever. It is
/// closed if its peer accepts no part of a response for 30 s. Between two requests, it stays open for 620 s. That is
/// longer than proxies usually wait (nginx and AWS 60 s, Google Cloud 600 s): a proxy that waits longer than the server
/// may send a request on a connection that is just being closed, and respond with a 502. A
/// [`VerifiedEvent`](crate::webhooks::VerifiedEvent) and the pages of an `UnsubscribeService` limit the time of a body,
/// too. For a form of your own, do it with a layer, such as `TimeoutLayer` of the crate `tower-http`: the body arrives
/// while the handler reads it, so the layer limits the time of both, and drops a handler that takes longer.
/// `RequestBodyTimeoutLayer` is not enough: it limits only the pauses between the parts of a body. Limit the number of
/// connections at the proxy in front, which also adds TLS.
///
/// The extensions of each request have its peer, as a [`SocketAddr`].
///
/// A handler of [`Inbox::handle`](crate::inbox::Inbox::handle) that continues after its response is waited for only if a
/// worker of the same inbox is added. Without one, wait for [`Inbox::wait_idle`](crate::inbox::Inbox::wait_idle)
/// afterwards, within a limit, because a handler may hang:
/// `tokio::time::timeout(Duration::from_secs(20), inbox.wait_idle())`.
/// [`Inbox::accept`](crate::inbox::Inbox::accept) needs nothing.
///
/// For another server, use [`Worker::run_until`] and the server's own shutdown.
///
/// # Example: webhooks, with a worker and probes
///
/// ```no_run
/// use audience::inbox::{Attempt, Inbox, Receipt, SqliteStore};
/// use audience::webhooks::{Event, VerifiedEvent, Verifier};
/// use axum::extract::{FromRef, State};
/// use axum::http::StatusCode;
/// use axum::routing::{get, post};
/// use axum::{Router, response::IntoResponse};
///
/// #[derive(Clone, FromRef)]
/// struct App {
///     verifier: Verifier,
///     inbox: Inbox,
/// }
///
/// async fn hook(State(inbox): State<Inbox>, delivery: VerifiedEvent) -> Receipt {
///     inbox.accept(delivery).await
/// }
///
/// async fn ready(State(inbox): State<Inbox>) -> Result<(), Receipt> {
///     Ok(inbox.ready().await?)
/// }
///
/// async fn handle(event: Event, _attempt: Attempt) -> std::io::Result<()> {
///     println!("{} {}", event.event_type(), event.id);
///     Ok(())
/// }
///
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let verifier = Verifier::from_env()?;
///     let inbox = Inbox::builder(SqliteStore::open("inbox.db")?).build()?;
///     let worker = inbox.worker(handle);
///     let router = Router::new()
///         .route("/hook", post(hook))
///         .route("/health", get(StatusCode::OK))
///         .route("/ready", get(ready))
///         .with_state(App { verifier, inbox });
///     let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
///     audience::serve(listener, router).worker(worker).await?;
///     Ok(())
/// }
/// ```
pub fn serve<S>(listener: TcpListener, service: S) -> Serve<S> {
    Serve {
        listener,
        service,
        workers: Vec::new(),
        idle: Vec::new(),
        shutdown_timeout: SHUTDOWN_TIMEOUT,
    }
}

/// A server with its workers, returned by [`serve`]. Await it to run it.
#[must_use = "a server does nothing until it is awaited"]
pub struct Serve<S> {
    listener: TcpListener,
    service: S,
    workers: Vec<StartWorker>,
    /// For each worker, the wait until its inbox runs nothing.
    idle: Vec<Pin<Box<dyn Future<Output = ()> + Send>>>,
    shutdown_timeout: Duration,
}

type Running = Pin<Box<dyn Future<Output = Result<WorkerReport, InboxError>> + Send>>;
type StartWorker = Box<dyn FnOnce(Stopped, Duration) -> Running + Send>;

/// A channel that is closed when everything must stop.
type Stopped = watch::Receiver<()>;

impl<S> Serve<S> {
    /// Adds a worker, which runs until the server is told to stop.
    ///
    /// The server's [shutdown timeout](Self::shutdown_timeout) replaces the worker's.
    ///
    /// # Example: webhook events, and the opt-outs of a preference page
    ///
    /// ```no_run
    /// # use audience::inbox::Inbox;
    /// # use audience::unsubscribe::UnsubscribeService;
    /// # async fn handle(_: audience::webhooks::Event, _: audience::inbox::Attempt) -> std::io::Result<()> { Ok(()) }
    /// # async fn run(listener: tokio::net::TcpListener, router: axum::Router, inbox: Inbox, preferences: UnsubscribeService) -> std::io::Result<()> {
    /// audience::serve(listener, router)
    ///     .worker(inbox.worker(handle).concurrency(4))
    ///     .worker(preferences.worker())
    ///     .await
    /// # }
    /// ```
    pub fn worker<F, Fut, E>(mut self, worker: Worker<F>) -> Self
    where
        F: Fn(Event, Attempt) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>> + Send + 'static,
    {
        self.idle.push(Box::pin(worker.wait_idle()));
        self.workers.push(Box::new(move |stopped, limit| {
            let worker = worker.shutdown_timeout(limit);
            Box::pin(worker.run_until(until_closed(stopped)))
        }));
        self
    }

    /// Sets how long running requests and handlers may continue after the program was told to stop. Default: 25 s.
    ///
    /// Then connections are closed, and handlers are cut off at their next `await`. Their claims are released within 3
    /// s, so that another worker handles these events immediately. Kubernetes kills a program 30 s after SIGTERM, and
    /// `docker stop` after 10 s: set a time that is at least 4 s shorter.
    pub fn shutdown_timeout(mut self, limit: Duration) -> Self {
        self.shutdown_timeout = limit;
        self
    }
}

impl<S, B> Serve<S>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    /// Serves until `shutdown` is ready, in place of SIGTERM and Ctrl-C: for tests, or for a program with signals of
    /// its own.
    ///
    /// Dropping the future closes all connections and cuts the handlers off; their events are taken again after their
    /// lease.
    ///
    /// # Errors
    ///
    /// Returns an error if a worker panicked.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    ///
    /// # Example: serve during a test
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use axum::{Router, routing::get};
    /// use tokio::io::{AsyncReadExt, AsyncWriteExt};
    /// use tokio::net::{TcpListener, TcpStream};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// let address = listener.local_addr()?;
    /// let router = Router::new().route("/health", get(|| async { "up" }));
    ///
    /// let test = async {
    ///     let mut connection = TcpStream::connect(address).await.unwrap();
    ///     connection.write_all(b"GET /health HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n").await.unwrap();
    ///     let mut response = String::new();
    ///     connection.read_to_string(&mut response).await.unwrap();
    ///     assert!(response.ends_with("up"));
    /// };
    /// audience::serve(listener, router).run_until(test).await?;
    /// # Ok(()) }
    /// ```
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        let (stop, stopped) = watch::channel(());
        let mut workers = JoinSet::new();
        for start in self.workers {
            workers.spawn(start(stopped.clone(), self.shutdown_timeout));
        }
        drop(stopped);
        let mut connections = Connections::default();
        let mut shutdown = pin!(shutdown);
        let ended = loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => connections.spawn(stream, self.service.clone()),
                    Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
                },
                Some(_) = connections.running.join_next() => {} // makes room
                Some(ended) = workers.join_next() => break result(ended),
                () = &mut shutdown => break Ok(()),
            }
        };
        #[cfg(feature = "tracing")]
        tracing::info!("shutting down");
        drop((self.listener, self.service, stop));
        let began = tokio::time::Instant::now();
        let workers = async {
            let mut outcome = ended;
            while let Some(ended) = workers.join_next().await {
                outcome = outcome.and(result(ended));
            }
            outcome
        };
        let ((), outcome) = tokio::join!(connections.shut_down(self.shutdown_timeout), workers);
        // A request whose body arrived after the end of a worker may have started a task that outlives its connection.
        let idle = async {
            for idle in self.idle {
                idle.await;
            }
        };
        let left = self.shutdown_timeout.saturating_sub(began.elapsed());
        let _ = tokio::time::timeout(left, idle).await;
        outcome
    }
}

impl<S, B> IntoFuture for Serve<S>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    type Output = io::Result<()>;
    type IntoFuture = Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;

    /// Serves until SIGTERM or Ctrl-C. It fails if these signals cannot be waited for, or if a worker panicked.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async { self.run_until(shutdown()?).await })
    }
}

impl<S> fmt::Debug for Serve<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serve")
            .field("listener", &self.listener)
            .field("workers", &self.workers.len())
            .field("shutdown_timeout", &self.shutdown_timeout)
            .finish_non_exhaustive()
    }
}

async fn until_closed(mut stopped: Stopped) {
    while stopped.changed().await.is_ok() {}
}

/// Fails if the worker failed or panicked.
fn result(ended: Result<Result<WorkerReport, InboxError>, JoinError>) -> io::Result<()> {
    ended.map_err(io::Error::other)?.map_err(io::Error::other)?;
    Ok(())
}

/// The open connections, each in a task of its own.
#[derive(Default)]
struct Connections {
    graceful: GracefulShutdown,
    running: JoinSet<()>,
}

impl Connections {
    fn spawn<S, B>(&mut self, stream: TcpStream, service: S)
    where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
        S: Clone + Send + 'static,
        S::Future: Send,
        B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
    {
        // If this fails, small responses arrive later.
        let _ = stream.set_nodelay(true);
        let peer: Option<SocketAddr> = stream.peer_addr().ok();
        let service = TowerToHyperService::new(service);
        let service = service_fn(move |mut request: Request<Incoming>| {
            if let Some(peer) = peer {
                request.extensions_mut().insert(peer);
            }
            service.call(request)
        });
        let reads = Reads::default();
        let (reader, writer) = stream.into_split();
        let reader = CountingReader {
            reader,
            reads: reads.clone(),
        };
        let writer = TimedWriter {
            writer,
            timeout: None,
        };
        let connection = http1::Builder::new()
            .timer(HeaderTimer(reads))
            .header_read_timeout(HEADER_TIMEOUT)
            .serve_connection(TokioIo::new(join(reader, writer)), service);
        let connection = self.graceful.watch(connection);
        self.running.spawn(async {
            // The peer closed the connection, or it sent no valid request, or it read no response.
            let _ = connection.await;
        });
    }

    /// Waits for the running requests, and closes the connections that are still open after `limit`.
    async fn shut_down(mut self, limit: Duration) {
        let _ = tokio::time::timeout(limit, self.graceful.shutdown()).await;
        self.running.shutdown().await;
    }
}

/// How many times a connection had something to read.
type Reads = Arc<AtomicUsize>;

struct CountingReader {
    reader: OwnedReadHalf,
    reads: Reads,
}

impl AsyncRead for CountingReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = ready!(Pin::new(&mut self.reader).poll_read(context, buffer));
        self.reads.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(read)
    }
}

/// Fails if the peer accepts nothing for `WRITE_TIMEOUT`.
struct TimedWriter {
    writer: OwnedWriteHalf,
    /// Runs while a write waits for the peer.
    timeout: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl TimedWriter {
    fn in_time(
        &mut self,
        written: Poll<io::Result<usize>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.timeout = None;
            return written;
        }
        let start = || Box::pin(tokio::time::sleep(WRITE_TIMEOUT));
        let timeout = self.timeout.get_or_insert_with(start);
        ready!(timeout.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncWrite for TimedWriter {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.writer).poll_write(context, bytes);
        self.in_time(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.writer).poll_write_vectored(context, slices);
        self.in_time(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.writer.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.writer).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.writer).poll_shutdown(context)
    }
}

/// The timer of one connection, which hyper uses for nothing but the wait for the headers of a request. It begins that
/// wait when the last response has ended, and has one time limit for it. So this timer has its own.
struct HeaderTimer(Reads);

impl Timer for HeaderTimer {
    fn sleep(&self, _: Duration) -> Pin<Box<dyn Sleep>> {
        let reads = self.0.load(Ordering::Relaxed);
        // The first request is awaited like the rest of one.
        let (idle_at, limit) = match reads {
            0 => (None, HEADER_TIMEOUT),
            _ => (Some(reads), IDLE_TIMEOUT),
        };
        Box::pin(HeaderSleep {
            sleep: Box::pin(tokio::time::sleep(limit)),
            reads: Arc::clone(&self.0),
            idle_at,
        })
    }

    fn sleep_until(&self, _: Instant) -> Pin<Box<dyn Sleep>> {
        self.sleep(HEADER_TIMEOUT)
    }
}

/// hyper polls it after each read that did not bring the last byte of the headers.
struct HeaderSleep {
    sleep: Pin<Box<tokio::time::Sleep>>,
    reads: Reads,
    /// How many reads there were before the next request, until its first byte is read. A request that began to arrive
    /// with the last one counts as not begun, and may take as long as an idle connection.
    idle_at: Option<usize>,
}

impl Future for HeaderSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let reads = self.reads.load(Ordering::Relaxed);
        if self.idle_at.take_if(|idle_at| *idle_at != reads).is_some() {
            let end = tokio::time::Instant::now() + HEADER_TIMEOUT;
            self.sleep.as_mut().reset(end);
        }
        self.sleep.as_mut().poll(context)
    }
}

impl Sleep for HeaderSleep {}
