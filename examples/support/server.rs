//! An HTTP server with a time limit for the headers of a request.

use std::convert::Infallible;
use std::error::Error;
use std::pin::pin;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tower::Service;

/// How long a connection may take to send the headers of a request. `VerifiedEvent` limits the time of the body.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves until `end` is ready, lets running requests finish, and returns the output of `end`.
///
/// `axum::serve` does the same without a time limit for the headers.
pub(crate) async fn serve<S, B, T>(
    listener: TcpListener,
    service: S,
    end: impl Future<Output = T>,
) -> T
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT);
    let connections = GracefulShutdown::new();
    let mut end = pin!(end);
    let output = loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            output = &mut end => break output,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(Duration::from_millis(100)).await; // too many open files, for example
            continue;
        };
        let service = TowerToHyperService::new(service.clone());
        let connection = server.serve_connection(TokioIo::new(stream), service);
        tokio::spawn(connections.watch(connection));
    };
    drop((listener, service));
    connections.shutdown().await; // ends soon: headers and bodies have time limits
    output
}
