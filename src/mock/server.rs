//! The HTTP/1.1 server: accepts connections, handles requests and applies connection faults.

use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use super::control;
use super::control::access::AllowedHosts;
use super::exchange::Exchange;
use super::journal::RecordedRequest;
use super::request_body::{BodyError, BodyReader};
use super::response::{Disconnect, MockResponse};
use super::service::refusal::Refusal;
use super::shared::Shared;

/// The longest request body that is read, in bytes.
const BODY_LIMIT: usize = 16 * 1024 * 1024;

/// The bytes of request bodies that are read at once, over all connections.
const TOTAL_BODY_LIMIT: usize = 64 * 1024 * 1024;

/// The time a client has for a request body.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// The time a client has for the next request line and its headers, from the end of the response before.
const HEADER_TIMEOUT: Duration = Duration::from_secs(60);

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

/// A server: the state of the service, who may control it, and limits for its clients.
#[derive(Debug)]
pub(super) struct Server {
    shared: Arc<Shared>,
    /// The address it listens on, which can be the unspecified one.
    ip: IpAddr,
    allowed_hosts: AllowedHosts,
    bodies: BodyReader,
    header_timeout: Duration,
}

impl Server {
    pub(super) fn new(shared: Arc<Shared>, ip: IpAddr, allowed_hosts: AllowedHosts) -> Self {
        Self {
            shared,
            ip,
            allowed_hosts,
            bodies: BodyReader::new(BODY_LIMIT, TOTAL_BODY_LIMIT, BODY_TIMEOUT),
            header_timeout: HEADER_TIMEOUT,
        }
    }
}

/// Binds an address. Retries for a while if its port is in use.
pub(super) fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let deadline = Instant::now() + BIND_TIMEOUT;
    loop {
        match std::net::TcpListener::bind(address) {
            Err(error)
                if error.kind() == io::ErrorKind::AddrInUse
                    && address.port() != 0
                    && Instant::now() < deadline =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            bound => return bound,
        }
    }
}

/// Serves until the sender of `stop` is dropped.
pub(super) async fn serve(listener: TcpListener, server: Arc<Server>, stop: oneshot::Receiver<()>) {
    tokio::spawn(Arc::clone(&server.shared).run_schedule());
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
        .map_or(server.ip, |address| address.ip());
    let service = service_fn(|request| handle_request(&server, connection_ip, request));
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(server.header_timeout)
        .max_buf_size(HEADER_LIMIT)
        .serve_connection(TokioIo::new(stream), service);

    let result = Pin::new(&mut connection).await;
    let stream = connection.into_parts().io.into_inner();
    let disconnect = result.as_ref().err().and_then(disconnect_in);
    end_connection(stream, disconnect).await;
}

/// Returns the disconnect that ended a connection, if a fault asked for it.
fn disconnect_in(error: &hyper::Error) -> Option<&Disconnect> {
    error.source()?.downcast_ref()
}

/// Ends a connection so that the client receives everything sent before.
async fn end_connection(mut stream: TcpStream, disconnect: Option<&Disconnect>) {
    // Errors mean that the client has already closed the connection.
    if let Some(disconnect) = disconnect {
        let _ = stream.write_all(&disconnect.bytes).await;
        if disconnect.reset {
            tokio::time::sleep(DELAY_BEFORE_RESET).await;
            let _ = stream.set_zero_linger();
            return;
        }
    }
    let _ = stream.shutdown().await;
    let drain = async {
        let _ = tokio::io::copy(&mut stream.take(DRAIN_LIMIT), &mut tokio::io::sink()).await;
    };
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, drain).await;
}

async fn handle_request(
    server: &Server,
    connection_ip: IpAddr,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Disconnect> {
    let shared = &server.shared;
    let (head, body) = request.into_parts();
    if control::is_control_path(head.uri.path())
        && let Err(refusal) = server
            .allowed_hosts
            .check(&head, &[server.ip, connection_ip])
    {
        return Ok(http_response(refuse_unread(shared, &head, refusal)));
    }
    let (body, held_bytes) = match server.bodies.read(&head, body).await {
        Ok(read) => read,
        Err(BodyError::Refused(refusal)) => {
            return Ok(http_response(refuse_unread(shared, &head, refusal)));
        }
        Err(BodyError::ConnectionLost) => return Err(Disconnect::default()),
    };
    let request = recorded_request(&head, body);
    if control::is_control_path(&request.path) {
        return Ok(http_response(control::respond(shared, &request).await));
    }
    let Exchange { delay, response } = shared.handle(request);
    // From here on, only the journal holds the body.
    drop(held_bytes);
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    response.map(http_response)
}

/// Returns the response to a request whose body is not read to its end, and records the request without its body.
fn refuse_unread(shared: &Shared, head: &Parts, refusal: Refusal) -> MockResponse {
    let mut response: MockResponse = refusal.into();
    let close = HeaderValue::from_static("close");
    response.headers.push((CONNECTION, close));
    if response.status == 503 {
        let soon = HeaderValue::from_static("1");
        response.headers.push((RETRY_AFTER, soon));
    }
    let mut request = recorded_request(head, Vec::new());
    if !control::is_control_path(&request.path) {
        request.status = Some(response.status);
        shared.lock().journal.push(request);
    }
    response
}

fn recorded_request(head: &Parts, body: Vec<u8>) -> RecordedRequest {
    let headers = head
        .headers
        .iter()
        .map(|(name, value)| {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            (name.as_str().to_owned(), value)
        })
        .collect();

    RecordedRequest {
        method: head.method.as_str().to_owned(),
        path: head.uri.path().to_owned(),
        query: head.uri.query().map(str::to_owned),
        headers,
        body,
        status: None,
    }
}

fn http_response(response: MockResponse) -> Response<Full<Bytes>> {
    let has_body = !response.body.is_empty();
    let mut http_response = Response::new(Full::new(response.body.into()));
    *http_response.status_mut() =
        StatusCode::from_u16(response.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in response.headers {
        http_response.headers_mut().append(name, value);
    }
    if has_body {
        http_response
            .headers_mut()
            .entry(CONTENT_TYPE)
            .or_insert(HeaderValue::from_static("application/json"));
    }
    http_response
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::super::clock::MockClock;
    use super::super::delivery::endpoints::Endpoints;
    use super::super::service::audience::{Audience, Settings};
    use super::super::state::InitialState;
    use super::*;

    /// Runs out soon, so that a test does not take long.
    const SHORT: Duration = Duration::from_millis(50);

    /// Starts a server with these timeouts. Returns everything it sends after the bytes of `request`, until it closes
    /// the connection, and the server's state.
    async fn response_to(
        request: &[u8],
        header_timeout: Duration,
        body_timeout: Duration,
    ) -> (String, Arc<Shared>) {
        let initial = InitialState {
            audience: Audience::new(Settings::default()),
            endpoints: Endpoints::default(),
        };
        let runtime = tokio::runtime::Handle::current();
        let clock = MockClock::stopped(crate::Timestamp::from_unix(0));
        let shared = Shared::new(initial, clock, Duration::from_secs(1), runtime);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = Arc::new(Server {
            bodies: BodyReader::new(BODY_LIMIT, TOTAL_BODY_LIMIT, body_timeout),
            header_timeout,
            ..Server::new(Arc::clone(&shared), address.ip(), AllowedHosts::default())
        });
        tokio::spawn(async move { accept_connections(&listener, &server).await });

        let mut connection = TcpStream::connect(address).await.unwrap();
        connection.write_all(request).await.unwrap();
        let mut response = Vec::new();
        tokio::time::timeout(
            Duration::from_secs(30),
            connection.read_to_end(&mut response),
        )
        .await
        .expect("the server closes the connection in less than 30 s")
        .unwrap();
        (String::from_utf8(response).unwrap(), shared)
    }

    #[tokio::test]
    async fn a_connection_without_a_complete_request_is_closed_after_a_while() {
        for unfinished in ["", "GET /contacts HT", "GET / HTTP/1.1\r\nhost: mock\r\n"] {
            let (response, shared) = response_to(unfinished.as_bytes(), SHORT, BODY_TIMEOUT).await;

            assert_eq!(response, "", "{unfinished}");
            assert!(shared.lock().journal.entries().is_empty());
        }
    }

    #[tokio::test]
    async fn a_body_that_does_not_arrive_in_time_gets_a_408() {
        let request = b"POST /contacts HTTP/1.1\r\nhost: mock\r\ncontent-length: 9\r\n\r\n{";

        let (response, shared) = response_to(request, HEADER_TIMEOUT, SHORT).await;

        assert!(response.starts_with("HTTP/1.1 408"), "{response}");
        assert!(response.contains("within 50ms"), "{response}");
        assert_eq!(shared.lock().journal.entries()[0].status, Some(408));
    }
}
