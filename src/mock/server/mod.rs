//! The HTTP/1.1 server: accepts connections, reads their requests, passes each to the control plane or to the service,
//! and ends a connection as a fault asks for.

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{CONNECTION, RETRY_AFTER, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, SemaphorePermit, oneshot};
use tokio::time::Sleep;

use super::control::access::AllowedHosts;
use super::faults::head_bytes;
use super::http::{ResponseBody, http_response, with_content_type};
use super::journal::{RecordedRequest, RequestObserver};
use super::service::Refusal;
use super::{Disconnect, Exchange, Shared, control, is_control_path};

/// How many connections are served simultaneously. If one more arrives, the connection that has been idle for longest
/// is closed. If none is idle, the new one waits.
const MAX_CONNECTIONS: usize = 1_000;

/// The time a client has for the next request line and its headers, from the end of the previous response.
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

/// The longest request body that is read, in bytes.
const BODY_LIMIT: usize = 16 * 1024 * 1024;

/// The bytes of the request bodies that are being read, over all connections.
const TOTAL_BODY_LIMIT: usize = 64 * 1024 * 1024;

/// The time a client has for a request body.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// A server: its state, who may control it, and limits for its clients.
#[derive(Debug)]
pub(super) struct Server {
    shared: Arc<Shared>,
    /// The address that the server listens on, which can be the unspecified one.
    ip: IpAddr,
    allowed_hosts: AllowedHosts,
    observer: RequestObserver,
    header_timeout: Duration,
    /// The time for a whole body.
    body_timeout: Duration,
    write_timeout: Duration,
    connections: Arc<Semaphore>,
    idle: Arc<IdleConnections>,
    /// One permit for each byte of the bodies that are being read.
    free_bytes: Semaphore,
}

impl Server {
    pub(super) fn new(
        shared: Arc<Shared>,
        ip: IpAddr,
        allowed_hosts: AllowedHosts,
        observer: RequestObserver,
    ) -> Self {
        Self {
            shared,
            ip,
            allowed_hosts,
            observer,
            header_timeout: HEADER_TIMEOUT,
            body_timeout: BODY_TIMEOUT,
            write_timeout: WRITE_TIMEOUT,
            connections: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            idle: Arc::default(),
            free_bytes: Semaphore::new(TOTAL_BODY_LIMIT),
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
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                let message = format!(
                    "{address} is in use; stop the program that listens there, or choose another port (0 chooses a free \
                     one)"
                );
                return Err(io::Error::new(io::ErrorKind::AddrInUse, message));
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
                // Further connections wait in the system's queue.
                let permit = server.connection_permit().await;
                tokio::spawn(serve_connection(stream, Arc::clone(server), permit));
            }
            // Most likely out of file descriptors. One will be closed soon.
            Err(_) => {
                server.idle.close_oldest();
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

/// The connections without a request in progress. The one that is idle for longest has the lowest number.
#[derive(Debug, Default)]
struct IdleConnections {
    closers: Mutex<BTreeMap<u64, Arc<Notify>>>,
    /// Numbers are counted from 1.
    last_number: AtomicU64,
    /// Notified when a connection becomes idle.
    became_idle: Notify,
}

impl IdleConnections {
    /// Adds a connection. It is closed by `closer`. Returns its number.
    fn add(&self, closer: &Arc<Notify>) -> u64 {
        let number = self.last_number.fetch_add(1, Ordering::Relaxed) + 1;
        self.lock().insert(number, Arc::clone(closer));
        self.became_idle.notify_one();
        number
    }

    fn remove(&self, number: u64) {
        self.lock().remove(&number);
    }

    /// Closes the connection that is idle for longest, if one is idle.
    fn close_oldest(&self) {
        if let Some((_, closer)) = self.lock().pop_first() {
            closer.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Notify>>> {
        self.closers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a connection is idle. It is idle from its start until a request arrives, and again from the end of each
/// response.
#[derive(Debug)]
struct Idleness {
    connections: Arc<IdleConnections>,
    closer: Arc<Notify>,
    /// 0 while the connection is not idle.
    number: AtomicU64,
}

impl Idleness {
    fn new(connections: &Arc<IdleConnections>) -> Arc<Self> {
        let closer = Arc::default();
        Arc::new(Self {
            number: connections.add(&closer).into(),
            connections: Arc::clone(connections),
            closer,
        })
    }

    /// Waits until the connection has to be closed because it is idle.
    async fn must_close(&self) {
        loop {
            self.closer.notified().await;
            // A request may have arrived in the meantime.
            if self.number.load(Ordering::Relaxed) != 0 {
                return;
            }
        }
    }

    /// Ends the idleness until the returned value is dropped.
    fn interrupt(self: &Arc<Self>) -> InProgress {
        self.connections
            .remove(self.number.swap(0, Ordering::Relaxed));
        InProgress(Arc::clone(self))
    }
}

impl Drop for Idleness {
    fn drop(&mut self) {
        self.connections.remove(self.number.load(Ordering::Relaxed));
    }
}

/// A request in progress: it has arrived, and its response is not yet written.
#[derive(Debug)]
struct InProgress(Arc<Idleness>);

impl Drop for InProgress {
    fn drop(&mut self) {
        let number = self.0.connections.add(&self.0.closer);
        self.0.number.store(number, Ordering::Relaxed);
    }
}

/// The body of a response, whose request is in progress until the body is written.
struct SentBody {
    body: ResponseBody,
    _in_progress: InProgress,
}

impl Body for SentBody {
    type Data = Bytes;
    type Error = <ResponseBody as Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Serves all requests of one connection, and ends it.
async fn serve_connection(stream: TcpStream, server: Arc<Server>, _permit: OwnedSemaphorePermit) {
    // Without this, a small response may wait for the acknowledgement of the previous one.
    let _ = stream.set_nodelay(true);
    let connection_ip = stream
        .local_addr()
        .map_or(server.ip, |address| address.ip());
    if let Some((stream, error)) = serve_requests(stream, connection_ip, &server).await {
        end_connection(stream, &server, error.as_ref()).await;
    }
}

/// Serves the requests of a connection to the address `connection_ip`. Returns its stream and why it ended, or `None`
/// if it was closed because it was idle.
async fn serve_requests<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    connection_ip: IpAddr,
    server: &Server,
) -> Option<(WriteTimeout<S>, Option<hyper::Error>)> {
    let stream = WriteTimeout::new(stream, server.write_timeout);
    let idleness = Idleness::new(&server.idle);
    let service = service_fn(|request| {
        let in_progress = idleness.interrupt();
        let response = server.handle(connection_ip, request);
        async move {
            let response = response.await?;
            Ok::<_, Disconnect>(response.map(|body| SentBody {
                body,
                _in_progress: in_progress,
            }))
        }
    });
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(server.header_timeout)
        .max_buf_size(HEADER_LIMIT)
        .serve_connection(TokioIo::new(stream), service);

    let result = tokio::select! {
        // First, so that a request that has arrived is read before its connection counts as idle.
        biased;
        result = Pin::new(&mut connection) => result,
        () = idleness.must_close() => return None,
    };
    let stream = connection.into_parts().io.into_inner();
    Some((stream, result.err()))
}

/// Serves a connection that is not a socket.
#[cfg(any(test, fuzzing))]
pub(super) async fn serve_stream<S: AsyncRead + AsyncWrite + Unpin>(stream: S, server: &Server) {
    if let Some((mut stream, error)) = serve_requests(stream, server.ip, server).await {
        stream.is_serving = false;
        // It fails if the client has closed the connection.
        let _ = write_last_bytes(&mut stream, server, error.as_ref()).await;
    }
}

impl Server {
    /// Waits until one more connection can be served. Closes an idle connection if there are too many.
    async fn connection_permit(&self) -> OwnedSemaphorePermit {
        loop {
            let became_idle = self.idle.became_idle.notified();
            if let Ok(permit) = Arc::clone(&self.connections).try_acquire_owned() {
                return permit;
            }
            self.idle.close_oldest();
            tokio::select! {
                permit = Arc::clone(&self.connections).acquire_owned() => {
                    return permit.expect("the semaphore is never closed");
                }
                () = became_idle => {}
            }
        }
    }

    /// Handles a request that arrived at the address `connection_ip`. An error means that the connection is to be
    /// closed.
    async fn handle(
        &self,
        connection_ip: IpAddr,
        request: Request<Incoming>,
    ) -> Result<Response<ResponseBody>, Disconnect> {
        let shared = &self.shared;
        let (head, body) = request.into_parts();
        let is_control = is_control_path(head.uri.path());
        // A browser sends this request by itself. It is not the application's, so it is not recorded and meets no
        // fault.
        if head.uri.path() == "/favicon.ico" && matches!(head.method, Method::GET | Method::HEAD) {
            return Ok(http_response(control::no_icon()));
        }
        let received = Instant::now();
        // Before the body is read: a web page of another origin must not cost memory.
        if let Err(refusal) = self.check_head(&head, connection_ip) {
            return Ok(http_response(self.refuse_unread(head, &refusal, received)));
        }
        let (body, held_bytes) = match self.read_body(body).await {
            Ok(read) => read,
            Err(BodyError::Refused(refusal)) => {
                return Ok(http_response(self.refuse_unread(head, &refusal, received)));
            }
            Err(BodyError::ConnectionLost) => return Err(Disconnect::default()),
        };
        let request = Request::from_parts(head, Bytes::from(body));
        if is_control {
            return Ok(control::respond(shared, &request).await);
        }
        let observed = self.observer.start(&request, received);
        let Exchange {
            delay,
            response,
            status,
            reason,
        } = shared.handle(request);
        // From here on, only the journal holds the body.
        drop(held_bytes);
        let finished = self.observer.finish_on_drop(observed, status, reason);
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        drop(finished);
        response.map(http_response)
    }

    /// Refuses a request that a web page of another origin may have sent, or whose body cannot be read.
    fn check_head(&self, head: &Parts, connection_ip: IpAddr) -> Result<(), Refusal> {
        let server_ips = [self.ip, connection_ip];
        if is_control_path(head.uri.path()) {
            self.allowed_hosts.check_control(head, &server_ips)?;
        } else {
            self.allowed_hosts.check_host(head, &server_ips)?;
        }
        let mut codings = head.headers.get_all(TRANSFER_ENCODING).iter();
        let is_chunked = |value: &HeaderValue| {
            let mut codings = value.as_bytes().split(|byte| *byte == b',');
            codings.all(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"chunked"))
        };
        // RFC 9112, section 6.1. hyper would leave the body compressed.
        if !codings.all(is_chunked) {
            let message = "the only `Transfer-Encoding` that the server supports is `chunked`; do not compress the request";
            return Err(Refusal::new(501, "not_implemented", message));
        }
        Ok(())
    }

    /// Reads a body. Its bytes count as held until the permit is dropped.
    async fn read_body(&self, body: Incoming) -> Result<(Vec<u8>, SemaphorePermit<'_>), BodyError> {
        // `Content-Length` already says that the body is too long.
        if body.size_hint().lower() > BODY_LIMIT as u64 {
            return Err(too_long());
        }
        tokio::time::timeout(self.body_timeout, self.collect(body))
            .await
            .unwrap_or_else(|_| {
                let message = format!(
                    "the request body did not arrive within {:?}",
                    self.body_timeout
                );
                Err(Refusal::new(408, "request_timeout", message).into())
            })
    }

    async fn collect(&self, body: Incoming) -> Result<(Vec<u8>, SemaphorePermit<'_>), BodyError> {
        let mut body = Limited::new(body, BODY_LIMIT);
        // Copied, so that the journal does not keep a read buffer alive.
        let mut bytes = Vec::new();
        let mut held = self.hold(0)?;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| read_error(&*error))?;
            if let Some(data) = frame.data_ref() {
                held.merge(self.hold(data.len())?);
                bytes.extend_from_slice(data);
            }
        }
        Ok((bytes, held))
    }

    fn hold(&self, bytes: usize) -> Result<SemaphorePermit<'_>, BodyError> {
        // Fails instead of waiting, because requests that each hold a part of the memory would wait for each other.
        u32::try_from(bytes)
            .ok()
            .and_then(|bytes| self.free_bytes.try_acquire_many(bytes).ok())
            .ok_or_else(|| {
                let message = "the server is reading too many large request bodies; retry later";
                Refusal::new(503, "service_unavailable", message).into()
            })
    }

    /// Returns the response to a request whose body is not read to its end, and records the request without its body.
    ///
    /// The error has the dialect's shape, unless the request is for the control plane.
    fn refuse_unread(&self, head: Parts, refusal: &Refusal, received: Instant) -> Response<Bytes> {
        let mut response = if is_control_path(head.uri.path()) {
            control::error_response(refusal)
        } else {
            let request = Request::from_parts(head, Bytes::new());
            let (status, reason) = (Some(refusal.status), Some(refusal.message.clone()));
            let observed = self.observer.start(&request, received);
            self.observer.finish(observed, status, reason.clone());
            let now = self.shared.clock.now();
            let mut state = self.shared.lock();
            let response = with_content_type(state.audience.error_response(refusal));
            let recorded = RecordedRequest::new(request, now, status, reason);
            state.journal.push(recorded.with_response(Ok(&response)));
            response
        };
        // The unread rest of the body would look like the next request.
        let close = HeaderValue::from_static("close");
        response.headers_mut().append(CONNECTION, close);
        if response.status() == 503 {
            let soon = HeaderValue::from_static("1");
            response.headers_mut().append(RETRY_AFTER, soon);
        }
        response
    }
}

impl Server {
    /// Returns the response to a request that could not be parsed, with the error's text in its body.
    fn unparsed(&self, status: u16, error: &hyper::Error) -> Vec<u8> {
        let refusal = match status {
            414 => Refusal::uri_too_long(),
            431 => Refusal::new(
                431,
                "request_header_fields_too_large",
                format!(
                    "the request has too many headers, its request line and headers are longer than {HEADER_LIMIT} \
                     bytes, or its `Content-Length` is too large"
                ),
            ),
            _ => Refusal::new(
                status,
                "bad_request",
                format!("the request is not valid HTTP: {error}"),
            ),
        };
        let mut response = self.shared.lock().audience.error_response(&refusal);
        let close = HeaderValue::from_static("close");
        response.headers_mut().append(CONNECTION, close);
        let body = response.body();
        [&head_bytes(&response, body.len()), &body[..]].concat()
    }
}

impl From<Refusal> for BodyError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

fn too_long() -> BodyError {
    let message = format!("the request body is longer than {BODY_LIMIT} bytes");
    Refusal::new(413, "payload_too_large", message).into()
}

fn read_error(error: &(dyn Error + 'static)) -> BodyError {
    if error.is::<LengthLimitError>() {
        return too_long();
    }
    let cause = error
        .source()
        .and_then(|source| source.downcast_ref::<io::Error>());
    match cause.map(io::Error::kind) {
        Some(io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData) => {
            let message = "the request body is not valid chunked encoding";
            Refusal::new(400, "bad_request", message).into()
        }
        _ => BodyError::ConnectionLost,
    }
}

/// The reason that a body could not be read.
enum BodyError {
    /// The rest of the body is not read. The client gets a response.
    Refused(Refusal),
    /// The client closed the connection, so no response can be sent.
    ConnectionLost,
}

/// Ends a connection so that the client receives everything sent before. `error` is the reason, if there is one.
///
/// If the client does not read, the connection is reset.
async fn end_connection(
    mut stream: WriteTimeout<TcpStream>,
    server: &Server,
    error: Option<&hyper::Error>,
) {
    stream.is_serving = false;
    if error.is_some_and(is_write_timeout) {
        // The reset also frees the memory of what has been sent and not read.
        let _ = stream.into_inner().set_zero_linger();
        return;
    }
    // Errors below mean that the client has closed the connection or does not read.
    let _ = write_last_bytes(&mut stream, server, error).await;
    if error.and_then(disconnect_in).is_some_and(|end| end.reset) {
        tokio::time::sleep(DELAY_BEFORE_RESET).await;
        let _ = stream.into_inner().set_zero_linger();
        return;
    }
    let _ = stream.shutdown().await;
    let drain = async {
        let _ = tokio::io::copy(&mut stream.take(DRAIN_LIMIT), &mut tokio::io::sink()).await;
    };
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, drain).await;
}

/// Writes what the reason for the end of a connection asks for: the response to a request that could not be parsed, or
/// the part of a response that a fault sends.
async fn write_last_bytes<S: AsyncWrite + Unpin>(
    stream: &mut WriteTimeout<S>,
    server: &Server,
    error: Option<&hyper::Error>,
) -> io::Result<()> {
    if let (Some(status), Some(error)) = (stream.held_back.take(), error) {
        stream.write_all(&server.unparsed(status, error)).await?;
    }
    match error.and_then(disconnect_in) {
        Some(disconnect) => stream.write_all(&disconnect.bytes).await,
        None => Ok(()),
    }
}

/// Returns the status of a response that hyper wrote because it could not parse the request, and that has no body.
///
/// hyper has no setting for it. Every other response with such a status has a `content-type`.
fn automatic_status(bytes: &[u8]) -> Option<u16> {
    let head = std::str::from_utf8(bytes).ok()?.strip_suffix("\r\n\r\n")?;
    let (first, headers) = head.split_once("\r\n")?;
    let status = first.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok()?;
    let has_no_body = headers.contains("content-length: 0") && !headers.contains("content-type: ");
    (matches!(status, 400 | 414 | 431) && has_no_body).then_some(status)
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
    /// Whether hyper writes. It may then write a response of its own, which is held back.
    is_serving: bool,
    /// The status of that response.
    held_back: Option<u16>,
}

impl<S> WriteTimeout<S> {
    fn new(stream: S, timeout: Duration) -> Self {
        Self {
            stream,
            timeout,
            timer: Box::pin(tokio::time::sleep(timeout)),
            is_waiting: false,
            is_serving: true,
            held_back: None,
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
        if self.is_serving
            && let Some(status) = automatic_status(bytes)
        {
            self.held_back = Some(status);
            return Poll::Ready(Ok(bytes.len()));
        }
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.check(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // `end_connection` shuts it down, after the response that replaces the one held back.
        if self.is_serving {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
