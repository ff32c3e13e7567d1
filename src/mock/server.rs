//! The HTTP/1.1 server: accepts connections, serves their requests, and ends them as a fault asks for.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Sleep;

use super::request_handler::RequestHandler;
use super::response::Disconnect;

/// The connections that are served at once. Further ones wait until one ends.
const MAX_CONNECTIONS: usize = 1_000;

/// The time a client has for the next request line and its headers, from the end of the response before.
const HEADER_TIMEOUT: Duration = Duration::from_secs(60);

/// The time that a response can wait for a client that does not read.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// The bytes of a request line and its headers. Also the read buffer of a connection, at most.
const HEADER_LIMIT: usize = 128 * 1024;

/// The time between the last bytes of a response and the reset of its connection, so that the bytes arrive first.
const DELAY_BEFORE_RESET: Duration = Duration::from_millis(20);

/// How long, and for how many bytes, the server reads on after it has ended a connection.
///
/// A connection that is closed with unread bytes is reset, and a client that is still sending would not see the
/// response.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
const DRAIN_LIMIT: u64 = 64 * 1024 * 1024;

/// How long a port in use is retried. A server that was just dropped frees its port a moment later.
const BIND_TIMEOUT: Duration = Duration::from_millis(500);

/// A server: what handles its requests, and limits for its clients.
#[derive(Debug)]
pub(super) struct Server {
    handler: RequestHandler,
    header_timeout: Duration,
    write_timeout: Duration,
    connections: Arc<Semaphore>,
}

impl Server {
    pub(super) fn new(handler: RequestHandler) -> Self {
        Self {
            handler,
            header_timeout: HEADER_TIMEOUT,
            write_timeout: WRITE_TIMEOUT,
            connections: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
        }
    }
}

/// Binds an address. Retries for a while if its port is in use.
pub(super) async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let deadline = Instant::now() + BIND_TIMEOUT;
    loop {
        match std::net::TcpListener::bind(address) {
            Err(error)
                if error.kind() == io::ErrorKind::AddrInUse
                    && address.port() != 0
                    && Instant::now() < deadline =>
            {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            bound => {
                let listener = bound?;
                listener.set_nonblocking(true)?;
                return TcpListener::from_std(listener);
            }
        }
    }
}

/// Serves until the sender of `stop` is dropped.
pub(super) async fn serve(listener: TcpListener, server: Arc<Server>, stop: oneshot::Receiver<()>) {
    tokio::spawn(Arc::clone(&server.handler.shared).run_schedule());
    tokio::select! {
        _ = stop => {}
        () = accept_connections(&listener, &server) => {}
    }
}

async fn accept_connections(listener: &TcpListener, server: &Arc<Server>) {
    loop {
        let permit = Arc::clone(&server.connections)
            .acquire_owned()
            .await
            .expect("the semaphore is never closed");
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(serve_connection(stream, Arc::clone(server), permit));
            }
            // Most likely out of file descriptors. Some will be closed soon.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Serves all requests of one connection, and ends it.
async fn serve_connection(stream: TcpStream, server: Arc<Server>, _permit: OwnedSemaphorePermit) {
    // Without this, a small response may wait for the acknowledgement of the previous one.
    let _ = stream.set_nodelay(true);
    let connection_ip = stream
        .local_addr()
        .map_or(server.handler.ip, |address| address.ip());
    let stream = WriteTimeout::new(stream, server.write_timeout);
    let service = service_fn(|request| server.handler.handle(connection_ip, request));
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(server.header_timeout)
        .max_buf_size(HEADER_LIMIT)
        .serve_connection(TokioIo::new(stream), service);

    let result = Pin::new(&mut connection).await;
    let stream = connection.into_parts().io.into_inner();
    end_connection(stream, result.err().as_ref()).await;
}

/// Ends a connection so that the client receives everything sent before. `error` is the reason, if there is one.
///
/// If the client does not read, the connection is reset.
async fn end_connection(mut stream: WriteTimeout<TcpStream>, error: Option<&hyper::Error>) {
    if error.is_some_and(is_write_timeout) {
        // The reset also frees the memory of what has been sent and not read.
        let _ = stream.into_inner().set_zero_linger();
        return;
    }
    // Errors below mean that the client has closed the connection or does not read.
    if let Some(disconnect) = error.and_then(disconnect_in) {
        let _ = stream.write_all(&disconnect.bytes).await;
        if disconnect.reset {
            tokio::time::sleep(DELAY_BEFORE_RESET).await;
            let _ = stream.into_inner().set_zero_linger();
            return;
        }
    }
    let _ = stream.shutdown().await;
    let drain = async {
        let _ = tokio::io::copy(&mut stream.take(DRAIN_LIMIT), &mut tokio::io::sink()).await;
    };
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, drain).await;
}

/// Returns whether a connection ended because the client did not read a response.
fn is_write_timeout(error: &hyper::Error) -> bool {
    error
        .source()
        .and_then(|source| source.downcast_ref::<io::Error>())
        .is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
}

/// Returns the disconnect that ended a connection, if a fault asked for it.
fn disconnect_in(error: &hyper::Error) -> Option<&Disconnect> {
    error.source()?.downcast_ref()
}

/// A stream that fails with [`io::ErrorKind::TimedOut`] if a write makes no progress for a while.
///
/// Without it, a client that never reads its responses would keep them in memory.
#[derive(Debug)]
struct WriteTimeout<S> {
    stream: S,
    timeout: Duration,
    timer: Pin<Box<Sleep>>,
    /// Whether a write is waiting for the other side, and the timer is running.
    is_waiting: bool,
}

impl<S> WriteTimeout<S> {
    fn new(stream: S, timeout: Duration) -> Self {
        Self {
            stream,
            timeout,
            timer: Box::pin(tokio::time::sleep(timeout)),
            is_waiting: false,
        }
    }

    fn into_inner(self) -> S {
        self.stream
    }

    /// Returns the result of a write, or an error if it and those before it have been pending for too long.
    fn check<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.is_waiting = false;
            return written;
        }
        if !self.is_waiting {
            self.is_waiting = true;
            self.timer
                .as_mut()
                .reset(tokio::time::Instant::now() + self.timeout);
        }
        ready!(self.timer.as_mut().poll(cx));
        let message = format!(
            "the client did not read the response for {:?}",
            self.timeout
        );
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, message)))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.check(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::clock::MockClock;
    use super::super::control::access::AllowedHosts;
    use super::super::delivery::{Endpoints, SigningClock};
    use super::super::faults::Fault;
    use super::super::recorded_request::RequestObserver;
    use super::super::service::audience::Audience;
    use super::super::service::dialect::Settings;
    use super::super::service::dialect::{Dialect, ErrorShape};
    use super::super::shared::Shared;
    use super::super::state::InitialState;
    use super::*;
    use crate::Timestamp;

    /// Runs out soon, so that a test does not take long.
    const SHORT: Duration = Duration::from_millis(50);

    /// The state of a server whose errors have a shape other than the default.
    pub(in crate::mock) fn shared() -> Arc<Shared> {
        let settings = Settings {
            dialect: Some(Dialect {
                error_shape: ErrorShape::Slug,
                ..Dialect::default()
            }),
            ..Settings::default()
        };
        let initial = InitialState {
            audience: Audience::new(settings),
            endpoints: Endpoints::default(),
            signing_clock: SigningClock::default(),
        };
        let runtime = tokio::runtime::Handle::current();
        let clock = MockClock::stopped(Timestamp::from_unix(0));
        Shared::new(initial, clock, Duration::from_secs(1), runtime)
    }

    /// Starts a server whose timeouts `configure` changes, and connects to it.
    async fn connect(configure: impl FnOnce(&mut Server)) -> (TcpStream, Arc<Server>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let handler = RequestHandler::new(
            shared(),
            address.ip(),
            AllowedHosts::default(),
            RequestObserver::default(),
        );
        let mut server = Server::new(handler);
        configure(&mut server);
        let server = Arc::new(server);
        let serving = Arc::clone(&server);
        tokio::spawn(async move { accept_connections(&listener, &serving).await });
        (TcpStream::connect(address).await.unwrap(), server)
    }

    /// Returns everything that the server sends until it closes the connection.
    async fn read_to_end(mut connection: TcpStream) -> io::Result<Vec<u8>> {
        let mut response = Vec::new();
        in_time(connection.read_to_end(&mut response)).await?;
        Ok(response)
    }

    /// Awaits something that happens soon, so that a failing test ends.
    async fn in_time<T>(future: impl Future<Output = T>) -> T {
        tokio::time::timeout(Duration::from_secs(30), future)
            .await
            .expect("it happens in less than 30 s")
    }

    #[tokio::test]
    async fn a_connection_without_a_complete_request_is_closed_after_a_while() {
        for unfinished in ["", "GET /contacts HT", "GET / HTTP/1.1\r\nhost: mock\r\n"] {
            let (mut connection, server) = connect(|server| server.header_timeout = SHORT).await;

            connection.write_all(unfinished.as_bytes()).await.unwrap();

            assert_eq!(read_to_end(connection).await.unwrap(), b"", "{unfinished}");
            assert!(server.handler.shared.lock().journal.entries().is_empty());
        }
    }

    #[tokio::test]
    async fn a_body_that_does_not_arrive_in_time_gets_a_408() {
        let request = b"POST /contacts HTTP/1.1\r\nhost: mock\r\ncontent-length: 9\r\n\r\n{";
        let (mut connection, server) = connect(|server| server.handler.body_timeout = SHORT).await;

        connection.write_all(request).await.unwrap();

        let response = String::from_utf8(read_to_end(connection).await.unwrap()).unwrap();
        assert!(response.starts_with("HTTP/1.1 408"), "{response}");
        assert!(response.contains("within 50ms"), "{response}");
        assert!(
            response.contains(r#""slug":"request_timeout""#),
            "the error has the shape of the dialect: {response}"
        );
        assert_eq!(
            server.handler.shared.lock().journal.entries()[0].status,
            Some(408)
        );
    }

    #[tokio::test]
    async fn a_response_that_the_client_does_not_read_is_dropped_after_a_while() {
        const LENGTH: usize = 64 * 1024 * 1024;
        let (mut connection, server) = connect(|server| server.write_timeout = SHORT).await;
        let long = Fault::wrong_body(vec![b'a'; LENGTH]).times(1);
        server.handler.shared.lock().faults.add(long);

        connection
            .write_all(b"GET /contacts HTTP/1.1\r\nhost: mock\r\n\r\n")
            .await
            .unwrap();
        // Two remain when the connection has ended: this one, and that of the accept loop.
        in_time(async {
            while server.handler.shared.lock().journal.entries().is_empty()
                || Arc::strong_count(&server) > 2
            {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;

        let received = read_to_end(connection).await;
        assert!(received.is_err() || received.is_ok_and(|bytes| bytes.len() < LENGTH));
    }

    const TIMEOUT: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_write_fails_if_nobody_reads() {
        let (stream, _unread) = tokio::io::duplex(4);
        let mut stream = WriteTimeout::new(stream, TIMEOUT);
        let start = tokio::time::Instant::now();

        stream.write_all(b"1234").await.unwrap();
        let error = stream.write_all(b"5").await.unwrap_err();

        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(start.elapsed().as_secs(), 60);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_gets_everything_if_it_makes_progress() {
        let (stream, mut reader) = tokio::io::duplex(1);
        let mut stream = WriteTimeout::new(stream, TIMEOUT);
        let read = tokio::spawn(async move {
            let mut bytes = Vec::new();
            while let Ok(byte) = reader.read_u8().await {
                bytes.push(byte);
                tokio::time::sleep(TIMEOUT - Duration::from_secs(1)).await;
            }
            bytes
        });

        stream.write_all(b"1234").await.unwrap();
        drop(stream);

        assert_eq!(read.await.unwrap(), b"1234");
    }
}
