//! Connections that a well-behaved client does not make: malformed, pipelined, too long, or never finished.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use audience::mock::dialect::ErrorShape;
use audience::mock::{Dialect, Fault, MockServer};

use super::{address, get};
use support::{PATIENCE, in_time};

/// Opens a connection on which a missing response fails the test instead of hanging it.
fn connect(server: &MockServer) -> TcpStream {
    let connection = TcpStream::connect(address(server)).unwrap();
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    connection
}

/// Reads until the server closes the connection.
fn read_to_end(mut connection: TcpStream) -> String {
    let mut bytes = Vec::new();
    connection.read_to_end(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// How long the server reads what a client still sends after it has ended their connection.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends a request that the server does not read to its end, and reads until the server closes the connection.
///
/// Sends it again if that took so long that the server has stopped reading: then the connection was reset, and the
/// response may be lost.
fn exchange(server: &MockServer, send: impl Fn(&mut TcpStream) -> io::Result<()>) -> String {
    let mut attempt = 1;
    loop {
        let start = Instant::now();
        let mut connection = connect(server);
        let mut response = Vec::new();
        let sent = send(&mut connection);
        match sent.and_then(|()| connection.read_to_end(&mut response)) {
            Ok(_) => return String::from_utf8_lossy(&response).into_owned(),
            Err(error) => assert!(start.elapsed() >= DRAIN_TIMEOUT && attempt < 5, "{error}"),
        }
        attempt += 1;
    }
}

/// Reads one response that has a body. The connection can stay open.
fn read_response(connection: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        connection.read_exact(&mut byte).unwrap();
        bytes.push(byte[0]);
    }
    let head = String::from_utf8(bytes).unwrap();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    connection.read_exact(&mut body).unwrap();
    head + &String::from_utf8(body).unwrap()
}

fn statuses(responses: &str) -> Vec<&str> {
    responses
        .lines()
        .filter_map(|line| line.split_once("HTTP/1.1 "))
        .map(|(_, status)| &status[..3])
        .collect()
}

#[test]
fn a_request_that_cannot_be_parsed_gets_a_response_and_then_the_end() {
    let server = MockServer::builder().start_blocking();
    let long = "a".repeat(70_000);
    let many_headers = "x-header: 1\r\n".repeat(200);

    for (request, status) in [
        ("GET /contacts HTTP/1.1\r\nno colon\r\n\r\n".into(), "400"),
        ("GET /contacts HTTP/7.0\r\n\r\n".into(), "400"),
        (
            format!("GET /{long} HTTP/1.1\r\nhost: localhost\r\n\r\n"),
            "414",
        ),
        (format!("GET / HTTP/1.1\r\n{many_headers}\r\n"), "431"),
        (
            format!("GET / HTTP/1.1\r\nx-long: {}", long.repeat(8)),
            "431",
        ),
    ] {
        let response = exchange(&server, |connection| {
            connection.write_all(request.as_bytes())
        });

        assert_eq!(statuses(&response), [status], "{response}");
    }
}

#[test]
fn the_response_to_a_request_that_cannot_be_parsed_says_why() {
    let dialect = Dialect {
        error_shape: ErrorShape::Slug,
        ..Dialect::default()
    };
    let server = MockServer::builder().dialect(dialect).start_blocking();
    let long = "a".repeat(70_000);
    let many_headers = "x-header: 1\r\n".repeat(200);
    let too_large = "the request has too many headers, its request line and headers are longer than 131072 bytes, or \
                     its `Content-Length` is too large";

    for (request, slug, reason) in [
        (
            "GET /contacts HTTP/1.1\r\nno colon\r\n\r\n".to_owned(),
            "bad_request",
            "the request is not valid HTTP: invalid HTTP header parsed",
        ),
        (
            format!("GET /{long} HTTP/1.1\r\n\r\n"),
            "uri_too_long",
            "the URL of the request is too long",
        ),
        (
            format!("GET / HTTP/1.1\r\n{many_headers}\r\n"),
            "request_header_fields_too_large",
            too_large,
        ),
        (
            // More than the server reads at once, so it never sees the end of the request line.
            format!("GET /{} HTTP/1.1\r\n\r\n", long.repeat(8)),
            "request_header_fields_too_large",
            too_large,
        ),
        (
            format!("POST / HTTP/1.1\r\ncontent-length: {}\r\n\r\n", u64::MAX),
            "request_header_fields_too_large",
            too_large,
        ),
    ] {
        let response = exchange(&server, |connection| {
            // The response before it stays as it is.
            connection.write_all(b"GET /contacts HTTP/1.1\r\nhost: localhost\r\n\r\n")?;
            assert_eq!(statuses(&read_response(connection)), ["401"]);
            connection.write_all(request.as_bytes())
        });

        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("content-type: application/json"), "{head}");
        assert!(head.contains("connection: close"), "{head}");
        let length = format!("content-length: {}", body.len());
        assert!(head.contains(&length), "{head}");
        let error: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(error["slug"], slug);
        let message = error["message"].as_str().unwrap();
        assert!(message.starts_with(reason), "{message}");
    }
}

#[test]
fn an_empty_error_of_a_fault_stays_empty() {
    let server = MockServer::builder().start_blocking();
    server.fault(Fault::status(400).body(""));
    let mut connection = connect(&server);

    let request = b"GET /contacts HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    connection.write_all(request).unwrap();
    let response = read_to_end(connection);

    assert_eq!(statuses(&response), ["400"]);
    assert!(response.contains("content-length: 0"), "{response}");
    assert!(response.ends_with("\r\n\r\n"), "{response}");
}

#[test]
fn a_compressed_transfer_is_refused() {
    let server = MockServer::builder().start_blocking();
    for codings in [
        "transfer-encoding: gzip, chunked",
        "transfer-encoding: gzip\r\ntransfer-encoding: chunked",
    ] {
        let mut connection = connect(&server);
        write!(
            connection,
            "POST /contacts HTTP/1.1\r\nhost: localhost\r\n{codings}\r\n\r\n0\r\n\r\n"
        )
        .unwrap();

        let response = read_to_end(connection);

        assert_eq!(statuses(&response), ["501"], "{response}");
        assert!(response.contains("`chunked`"), "{response}");
    }
    let recorded = &server.requests()[0];
    assert_eq!(recorded.status, Some(501));
}

#[test]
fn a_favicon_is_not_recorded_and_uses_up_no_fault() {
    let server = MockServer::builder().start_blocking();
    server.fault(Fault::status(503).times(1));
    let ask = |path: &str| {
        let mut connection = connect(&server);
        write!(
            connection,
            "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
        )
        .unwrap();
        read_to_end(connection)
    };

    assert_eq!(statuses(&ask("/favicon.ico")), ["204"]);

    assert!(server.requests().is_empty());
    assert_eq!(statuses(&ask("/contacts")), ["503"]);
}

#[test]
fn a_finished_response_does_not_wait_for_the_rest_of_the_next_request() {
    let server = MockServer::builder().start_blocking();
    let mut connection = connect(&server);

    connection
        .write_all(b"GET /contacts HTTP/1.1\r\nhost: localhost\r\n\r\nGET /contacts HT")
        .unwrap();
    let first = read_response(&mut connection);
    connection
        .write_all(b"TP/1.1\r\nhost: localhost\r\n\r\n")
        .unwrap();
    let second = read_response(&mut connection);

    assert_eq!(statuses(&first), ["401"]);
    assert_eq!(statuses(&second), ["401"]);
}

#[test]
fn a_connection_fault_does_not_lose_the_responses_to_earlier_requests() {
    for fault in [
        Fault::close_before(),
        Fault::close_after(),
        Fault::garbage(),
        Fault::close_mid_body(),
    ] {
        let server = MockServer::builder().start_blocking();
        server.fault(fault.clone().path("/last"));
        let mut connection = connect(&server);

        let request = |path| format!("GET /{path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        let pipelined =
            request("first") + &request("second") + &request("last") + &request("never");
        connection.write_all(pipelined.as_bytes()).unwrap();
        let responses = read_to_end(connection);

        let complete = responses.matches("it must hold the API key\"}}").count();
        assert_eq!(complete, 2, "{fault:?}: {responses}");
        assert_eq!(server.requests().len(), 3, "{fault:?}");
    }
}

#[test]
fn a_client_that_sends_all_of_a_body_over_the_limit_still_reads_the_413() {
    let server = MockServer::builder().start_blocking();
    let chunk = vec![b'a'; 1024 * 1024];

    for framing in ["content-length: 50331648", "transfer-encoding: chunked"] {
        let response = exchange(&server, |connection| {
            write!(
                connection,
                "POST /contacts HTTP/1.1\r\nhost: localhost\r\n{framing}\r\n\r\n"
            )?;
            for _ in 0..48 {
                if framing.ends_with("chunked") {
                    connection.write_all(b"100000\r\n")?;
                }
                connection.write_all(&chunk)?;
                if framing.ends_with("chunked") {
                    connection.write_all(b"\r\n")?;
                }
            }
            Ok(())
        });

        assert_eq!(statuses(&response), ["413"], "{framing}");
        assert!(response.contains("connection: close"), "{response}");
        assert!(!response.contains("retry-after"), "{response}");
    }
}

#[tokio::test]
async fn a_body_that_is_not_valid_chunked_encoding_gets_a_400() {
    let server = MockServer::start().await;
    let mut connection = connect(&server);

    connection
        .write_all(
            b"POST /contacts HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        )
        .unwrap();
    let response = tokio::task::spawn_blocking(|| read_to_end(connection))
        .await
        .unwrap();

    assert_eq!(statuses(&response), ["400"], "{response}");
    assert_eq!(get(&server, "/contacts").await.unwrap().status(), 200);
}

#[tokio::test]
async fn bodies_that_strangers_do_not_finish_take_up_a_limited_amount_of_memory() {
    const PART: usize = 7 * 1024 * 1024;
    let server = MockServer::start().await;
    let address = address(&server);

    // Ten times 7 MiB are more than 64 MiB.
    let send_parts = move || {
        let part = vec![b'a'; PART];
        let mut connections = Vec::new();
        for _ in 0..10 {
            let mut connection = TcpStream::connect(&address).unwrap();
            write!(
                connection,
                "POST /contacts HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n",
                PART + 1
            )
            .unwrap();
            // The server does not read all of the body that it refuses.
            let _ = connection.write_all(&part);
            connections.push(connection);
        }
        connections
    };
    let connections = tokio::task::spawn_blocking(send_parts).await.unwrap();
    in_time(async {
        while server.requests().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;

    let refused = server.requests();
    assert_eq!(refused[0].status, Some(503));
    assert!(refused[0].body.is_empty());
    assert_eq!(get(&server, "/contacts").await.unwrap().status(), 200);
    // The bytes are free again when the connections end.
    drop(connections);
    in_time(async {
        let send = || {
            reqwest::Client::new()
                .post(format!("{}/contacts", server.url()))
                .header("content-type", "application/json")
                .bearer_auth(server.full_key())
                .body(vec![b' '; PART])
                .send()
        };
        // A response that is lost is one to a body that was refused.
        while send().await.ok().map(|response| response.status().as_u16()) != Some(422) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}
