//! A mock without a listener, for the fuzz targets: it takes requests as values and connections as bytes.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Either;
use hyper::body::{Body, Frame};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Runtime;

use super::control::access::AllowedHosts;
use super::delivery::{Endpoints, SigningClock};
use super::http::ResponseBody;
use super::journal::RequestObserver;
use super::server::{Server, serve_stream};
use super::service::{Audience, Settings};
use super::{InitialState, MockClock, Shared, control, is_control_path};
use crate::Timestamp;

/// A mock without a listener. Nothing in it runs by itself: no time passes, and no event is delivered.
#[derive(Debug)]
pub struct UnconnectedMock {
    shared: Arc<Shared>,
    server: Server,
    /// Holds the deliveries that the mock starts. It never runs them.
    runtime: Runtime,
}

impl UnconnectedMock {
    /// Creates an empty mock with the default settings, in the year 2023.
    ///
    /// # Panics
    ///
    /// Panics if the system has no timer.
    #[must_use]
    pub fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("the system has a timer");
        let initial = InitialState {
            audience: Audience::new(Settings::default()),
            endpoints: Endpoints::default(),
            signing_clock: SigningClock::default(),
        };
        let clock = MockClock::stopped(Timestamp::from_unix(1_700_000_000));
        let handle = runtime.handle().clone();
        let shared = Shared::new(initial, clock, Duration::from_secs(10), handle);
        let server = Server::new(
            Arc::clone(&shared),
            IpAddr::V4(Ipv4Addr::LOCALHOST),
            AllowedHosts::default(),
            RequestObserver::default(),
        );
        Self {
            shared,
            server,
            runtime,
        }
    }

    /// Returns the response to a request; `None` if the mock waits for a delivery, or breaks the connection because of
    /// a fault.
    #[must_use]
    pub fn respond(&self, request: Request<Bytes>) -> Option<Response<Bytes>> {
        let _context = self.runtime.enter();
        match is_control_path(request.uri().path()) {
            true => poll_until_waiting(async {
                let response = control::respond(&self.shared, &request).await;
                let (head, body) = response.into_parts();
                Response::from_parts(head, bytes_of(body).await)
            }),
            false => self.shared.handle(request).response.ok(),
        }
    }

    /// Returns what the mock sends after these bytes have arrived on a connection, until it waits for more.
    #[must_use]
    pub fn respond_to_bytes(&self, received: &[u8]) -> Vec<u8> {
        let _context = self.runtime.enter();
        let sent = Mutex::new(Vec::new());
        let stream = Connection {
            received,
            sent: &sent,
        };
        let _ = poll_until_waiting(serve_stream(stream, &self.server));
        sent.into_inner().unwrap_or_default()
    }
}

impl Default for UnconnectedMock {
    fn default() -> Self {
        Self::new()
    }
}

/// A connection on which nothing more arrives after some bytes. It stays open.
struct Connection<'a> {
    received: &'a [u8],
    sent: &'a Mutex<Vec<u8>>,
}

impl AsyncRead for Connection<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let length = self.received.len().min(buffer.remaining());
        let (read, left) = self.received.split_at(length);
        buffer.put_slice(read);
        self.received = left;
        match length {
            0 => Poll::Pending,
            _ => Poll::Ready(Ok(())),
        }
    }
}

impl AsyncWrite for Connection<'_> {
    fn poll_write(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        sent.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Returns a body; empty if it is endless.
async fn bytes_of(body: ResponseBody) -> Bytes {
    let Either::Left(mut body) = body else {
        return Bytes::new();
    };
    let frame = std::future::poll_fn(|context| pin!(&mut body).poll_frame(context)).await;
    let data = frame.and_then(Result::ok).map(Frame::into_data);
    data.and_then(Result::ok).unwrap_or_default()
}

/// Polls for as long as the future can proceed. Returns its value, or `None` if it waits for something.
fn poll_until_waiting<F: Future>(future: F) -> Option<F::Output> {
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    let woken = Arc::new(Woken(AtomicBool::new(true)));
    let waker = Waker::from(Arc::clone(&woken));
    let mut future = pin!(future);
    while woken.0.swap(false, Ordering::Relaxed) {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(value);
        }
    }
    None
}
