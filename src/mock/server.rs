//! The accept loop: HTTP/1.1 on a socket, and whatever else a fault makes of it.

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
use super::exchange::{Answer, Exchange, Hangup};
use super::journal::RecordedRequest;
use super::state::Shared;

/// The longest body that is read. A batch of 100 entries with 150 kB each must pass.
const BODY_LIMIT: usize = 16 * 1024 * 1024;

/// How long the first half of a body has to arrive before the connection is reset under the second.
const BEFORE_RESET: Duration = Duration::from_millis(20);

/// Serves until `stop` is dropped.
pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>, stop: oneshot::Receiver<()>) {
    tokio::spawn(Arc::clone(&shared).keep_time());
    tokio::select! {
        _ = stop => {}
        () = accept(&listener, &shared) => {}
    }
}

async fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(converse(stream, Arc::clone(shared)));
            }
            // Out of file descriptors, most likely: others will be closed.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// One connection, from its first request to its last.
async fn converse(stream: TcpStream, shared: Arc<Shared>) {
    // A small answer must not wait for the acknowledgement of the one before.
    let _ = stream.set_nodelay(true);
    let service = service_fn(|request| answer(&shared, request));
    let mut connection = http1::Builder::new()
        .pipeline_flush(true)
        .serve_connection(TokioIo::new(stream), service);

    let Err(error) = Pin::new(&mut connection).await else {
        return;
    };
    let hangup =
        std::error::Error::source(&error).and_then(|source| source.downcast_ref::<Hangup>());
    if let Some(hangup) = hangup {
        hang_up(connection.into_parts().io.into_inner(), hangup).await;
    }
}

async fn hang_up(mut stream: TcpStream, hangup: &Hangup) {
    // The other side may be gone already: then there is nobody to spoil anything for.
    let _ = stream.write_all(&hangup.bytes).await;
    if hangup.reset {
        tokio::time::sleep(BEFORE_RESET).await;
        let _ = stream.set_zero_linger();
    } else {
        let _ = stream.shutdown().await;
    }
}

async fn answer(
    shared: &Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Hangup> {
    let (head, body) = request.into_parts();
    let body = match read(&head, body).await {
        Ok(body) => body,
        Err(NotRead::TooLong) => {
            let message = format!("the body is longer than {BODY_LIMIT} bytes");
            let answer = Answer::error(413, "payload_too_large", &message);
            let mut request = record(&head, Vec::new());
            if !control::is_control(&request.path) {
                request.status = Some(answer.status);
                shared.lock().journal.push(request);
            }
            return Ok(response(answer));
        }
        Err(NotRead::Gone) => return Err(Hangup::default()),
    };
    let request = record(&head, body);
    if control::is_control(&request.path) {
        return Ok(response(control::answer(shared, &request).await));
    }
    let Exchange { delay, answer } = shared.exchange(request);
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    answer.map(response)
}

enum NotRead {
    TooLong,
    Gone,
}

async fn read(head: &Parts, body: Incoming) -> Result<Vec<u8>, NotRead> {
    let announced = head
        .headers
        .get(CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok());
    if announced
        .and_then(|length| length.parse().ok())
        .is_some_and(|length: u64| length > BODY_LIMIT as u64)
    {
        return Err(NotRead::TooLong);
    }
    match Limited::new(body, BODY_LIMIT).collect().await {
        // Copied, so that no read buffer lives on in the journal.
        Ok(collected) => Ok(collected.to_bytes().to_vec()),
        Err(error) if error.is::<LengthLimitError>() => Err(NotRead::TooLong),
        Err(_) => Err(NotRead::Gone),
    }
}

fn record(head: &Parts, body: Vec<u8>) -> RecordedRequest {
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

fn response(answer: Answer) -> Response<Full<Bytes>> {
    let has_body = !answer.body.is_empty();
    let mut response = Response::new(Full::new(answer.body.into()));
    *response.status_mut() =
        StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in answer.headers {
        response.headers_mut().append(name, value);
    }
    if has_body {
        response
            .headers_mut()
            .entry(CONTENT_TYPE)
            .or_insert(HeaderValue::from_static("application/json"));
    }
    response
}
