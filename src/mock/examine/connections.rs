//! Deliveries over connections that are slow or end too early.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::delivery::Pace;
use super::event_bodies::SampleEvent;
use super::genuine::with_expectation;
use super::grade::{Effect, Finding, Grade};
use super::response_grade::accepted;
use super::run::Run;

/// The pace of [`slow_body`]: 3 s in all.
const SLOW: Pace = Pace::Pieces(7, Duration::from_millis(500));
/// How long a receiver has to respond to half of a body, and to close the connection after that.
const PATIENCE: Duration = Duration::from_secs(5);
const CLOSING: Duration = Duration::from_millis(500);
/// The length of a status line up to its code.
const STATUS_LINE: usize = "HTTP/1.1 200".len();

pub(super) async fn slow_body(run: &Run) -> Grade {
    let event = run.event();
    let outcome = run.deliver_slowly(&event, SLOW).await;
    let remedy = "Read until the whole body of Content-Length bytes has arrived: one read may return a part of it. Give a body at \
        least 5 s.";
    let delivery = "A genuine delivery whose body arrived in pieces over 3 s";
    let grade = accepted(&outcome, delivery, remedy, run.timeout);
    with_expectation(grade, &event, Effect::Once)
}

/// Sends half of a body and ends the connection. Then the receiver has to accept the next delivery.
pub(super) async fn cut_connection(run: &Run) -> Grade {
    let cut = run.event();
    let status = send_half(run, &cut).await;
    let event = run.event();
    let afterwards = run.deliver(&event).await;

    let grade = match status {
        Some(status @ 200..300) => Grade::failed(
            status.to_string(),
            Finding::new(
                "The receiver accepted half of a body, after which the connection had ended.",
                "The signature cannot match what has not arrived, so the receiver does not compare it with the body that \
                 arrived.",
                "Refuse a body that is shorter than its Content-Length, and compare the signature with the bytes that arrived.",
            ),
        ),
        Some(status) => Grade::passed(status.to_string()).expect(cut.expect(Effect::Never)),
        None => Grade::passed("closed").expect(cut.expect(Effect::Never)),
    };
    let remedy = "Look at the receiver's log: the interrupted request has left it stuck or crashed. Handle the error of reading \
        the body.";
    let delivery = "A genuine delivery after a connection that ended in mid-body";
    let accepted = accepted(&afterwards, delivery, remedy, run.timeout);
    grade.and(with_expectation(accepted, &event, Effect::Once))
}

/// Sends the headers and half of the body, ends the sending side, and returns the status of the response, if there is
/// one. The connection is closed after that.
async fn send_half(run: &Run, event: &SampleEvent) -> Option<u16> {
    let mut head = format!(
        "POST {} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n",
        run.url.path_and_query,
        run.url.authority,
        event.body.len(),
    )
    .into_bytes();
    for (name, value) in &run.signed(event) {
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    head.extend_from_slice(&event.body[..event.body.len() / 2]);

    let exchange = async {
        let address = (run.url.host.as_str(), run.url.port);
        let mut stream = TcpStream::connect(address).await.ok()?;
        stream.write_all(&head).await.ok()?;
        stream.shutdown().await.ok()?;
        let mut response = [0; STATUS_LINE];
        let mut length = 0;
        while length < STATUS_LINE {
            match stream.read(&mut response[length..]).await {
                Ok(0) | Err(_) => break,
                Ok(read) => length += read,
            }
        }
        // A connection that is closed before the receiver has written everything is an error in its log.
        let mut nowhere = tokio::io::sink();
        let rest = tokio::io::copy(&mut stream, &mut nowhere);
        let _ = tokio::time::timeout(CLOSING, rest).await;
        status_of(&response[..length])
    };
    tokio::time::timeout(PATIENCE, exchange)
        .await
        .ok()
        .flatten()
}

/// Returns the status of a response that starts with these bytes.
fn status_of(response: &[u8]) -> Option<u16> {
    let rest = response.strip_prefix(b"HTTP/1.")?;
    let code = rest.get(2..5)?;
    str::from_utf8(code).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_read_from_a_status_line_and_from_nothing_else() {
        assert_eq!(status_of(b"HTTP/1.1 200 OK\r\n"), Some(200));
        assert_eq!(status_of(b"HTTP/1.0 401"), Some(401));
        for garbage in [
            &b""[..],
            b"HTTP/1.1",
            b"HTTP/1.1 2",
            b"HTTP/1.1 abc",
            b"SSH-2.0",
            b"\xff\xff",
        ] {
            assert_eq!(status_of(garbage), None);
        }
    }
}
