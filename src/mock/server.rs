//! The HTTP/1.1 server: accepts connections, handles requests and applies connection faults.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use super::control;
use super::exchange::Exchange;
use super::journal::RecordedRequest;
use super::response::{Disconnect, MockResponse};
use super::service::refusal::Refusal;
use super::shared::Shared;

/// The longest request body that is read, in bytes.
const BODY_LIMIT: usize = 16 * 1024 * 1024;

/// The time between the last bytes of a response and the reset of its connection, so that the bytes arrive first.
const DELAY_BEFORE_RESET: Duration = Duration::from_millis(20);

/// Serves until the sender of `stop` is dropped.
pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>, stop: oneshot::Receiver<()>) {
    tokio::spawn(Arc::clone(&shared).run_schedule());
    tokio::select! {
        _ = stop => {}
        () = accept_connections(&listener, &shared) => {}
    }
}

async fn accept_connections(listener: &TcpListener, shared: &Arc<Shared>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(serve_connection(stream, Arc::clone(shared)));
            }
            // Most likely out of file descriptors. Some will be closed soon.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Serves all requests of one connection.
async fn serve_connection(stream: TcpStream, shared: Arc<Shared>) {
    // Without this, a small response may wait for the acknowledgement of the previous one.
    let _ = stream.set_nodelay(true);
    let service = service_fn(|request| handle_request(&shared, request));
    let mut connection = http1::Builder::new()
        .pipeline_flush(true)
        .serve_connection(TokioIo::new(stream), service);

    let Err(error) = Pin::new(&mut connection).await else {
        return;
    };
    let disconnect = error
        .source()
        .and_then(|source| source.downcast_ref::<Disconnect>());
    if let Some(disconnect) = disconnect {
        end_connection(connection.into_parts().io.into_inner(), disconnect).await;
    }
}

async fn end_connection(mut stream: TcpStream, disconnect: &Disconnect) {
    // Errors mean that the client has already closed the connection.
    let _ = stream.write_all(&disconnect.bytes).await;
    if disconnect.reset {
        tokio::time::sleep(DELAY_BEFORE_RESET).await;
        let _ = stream.set_zero_linger();
    } else {
        let _ = stream.shutdown().await;
    }
}

async fn handle_request(
    shared: &Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Disconnect> {
    let (head, body) = request.into_parts();
    let body = match read_body(&head, body).await {
        Ok(body) => body,
        Err(BodyError::TooLong) => return Ok(http_response(refuse_long_body(shared, &head))),
        Err(BodyError::ConnectionLost) => return Err(Disconnect::default()),
    };
    let request = recorded_request(&head, body);
    if control::is_control_path(&request.path) {
        return Ok(http_response(control::respond(shared, &request).await));
    }
    let Exchange { delay, response } = shared.handle(request);
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    response.map(http_response)
}

enum BodyError {
    TooLong,
    ConnectionLost,
}

async fn read_body(head: &Parts, body: Incoming) -> Result<Vec<u8>, BodyError> {
    let content_length = head
        .headers
        .get(CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok());
    if content_length
        .and_then(|length| length.parse().ok())
        .is_some_and(|length: u64| length > BODY_LIMIT as u64)
    {
        return Err(BodyError::TooLong);
    }
    match Limited::new(body, BODY_LIMIT).collect().await {
        // Copied, so that the journal does not keep a read buffer alive.
        Ok(collected) => Ok(collected.to_bytes().to_vec()),
        Err(error) if error.is::<LengthLimitError>() => Err(BodyError::TooLong),
        Err(_) => Err(BodyError::ConnectionLost),
    }
}

/// Returns a 413, and records the request without its body.
fn refuse_long_body(shared: &Shared, head: &Parts) -> MockResponse {
    let message = format!("the request body is longer than {BODY_LIMIT} bytes");
    let response: MockResponse = Refusal::new(413, "payload_too_large", message).into();
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
