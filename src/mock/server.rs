//! The HTTP/1.1 server: accepts connections and serves their requests.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use super::connection_end::end_connection;
use super::request_handler::RequestHandler;
use super::write_timeout::WriteTimeout;

/// The time a client has for the next request line and its headers, from the end of the response before.
const HEADER_TIMEOUT: Duration = Duration::from_secs(60);

/// The time that a response can wait for a client that does not read.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// The bytes of a request line and its headers. Also the read buffer of a connection, at most.
const HEADER_LIMIT: usize = 128 * 1024;

/// How long a port in use is retried. A server that was just dropped frees its port a moment later.
const BIND_TIMEOUT: Duration = Duration::from_millis(500);

/// A server: what handles its requests, and limits for its clients.
#[derive(Debug)]
pub(super) struct Server {
    handler: RequestHandler,
    header_timeout: Duration,
    write_timeout: Duration,
}

impl Server {
    pub(super) fn new(handler: RequestHandler) -> Self {
        Self {
            handler,
            header_timeout: HEADER_TIMEOUT,
            write_timeout: WRITE_TIMEOUT,
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
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(serve_connection(stream, Arc::clone(server)));
            }
            // Most likely out of file descriptors. Some will be closed soon.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Serves all requests of one connection.
async fn serve_connection(stream: TcpStream, server: Arc<Server>) {
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::super::clock::MockClock;
    use super::super::control::access::AllowedHosts;
    use super::super::delivery::SigningClock;
    use super::super::delivery::endpoints::Endpoints;
    use super::super::faults::Fault;
    use super::super::recorded_request::RequestObserver;
    use super::super::request_body::BodyReader;
    use super::super::request_handler::{BODY_LIMIT, TOTAL_BODY_LIMIT};
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
    fn shared() -> Arc<Shared> {
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
        let short = BodyReader::new(BODY_LIMIT, TOTAL_BODY_LIMIT, SHORT);
        let (mut connection, server) = connect(|server| server.handler.bodies = short).await;

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
}
