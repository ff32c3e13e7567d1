//! The page of the control plane as it is served, and the stream that tells it of changes.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use audience::mock::{Fault, MockServer};
use serde_json::{Value, json};
use support::{PATIENCE, free_port};

use super::control::call;
use super::{address, get, start_on, stopped_server};

/// Opens the stream of a server, and returns its socket and the head of the response.
fn open_stream(server: &MockServer) -> (TcpStream, String) {
    let address = address(server);
    let mut socket = TcpStream::connect(&address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(
        socket,
        "GET /_mock/stream HTTP/1.1\r\nhost: {address}\r\n\r\n"
    )
    .unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    (socket, String::from_utf8(head).unwrap())
}

/// Returns how many events arrive within a time.
fn events_within(socket: &mut TcpStream, time: Duration) -> usize {
    let deadline = Instant::now() + time;
    let mut received = Vec::new();
    while let Some(rest) = deadline
        .checked_duration_since(Instant::now())
        .filter(|rest| !rest.is_zero())
    {
        socket.set_read_timeout(Some(rest)).unwrap();
        let mut buffer = [0; 4096];
        match socket.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => received.extend_from_slice(&buffer[..length]),
            Err(_) => {}
        }
    }
    String::from_utf8(received)
        .unwrap()
        .matches("event: changed")
        .count()
}

/// Waits until an event arrives.
fn wait_for_event(socket: &mut TcpStream) {
    let deadline = Instant::now() + PATIENCE;
    while events_within(socket, Duration::from_millis(50)) == 0 {
        assert!(Instant::now() < deadline, "no event");
    }
}

#[tokio::test]
async fn the_page_is_served_with_a_policy_that_allows_nothing_from_elsewhere() {
    let server = MockServer::start().await;

    for path in ["", "/", "/?from=a-link"] {
        let response = reqwest::get(format!("{}/_mock{path}", server.url()))
            .await
            .unwrap();
        assert_eq!(response.status(), 200, "{path}");
        let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
        assert_eq!(header("content-type"), "text/html; charset=utf-8");
        assert_eq!(header("cache-control"), "no-store");
        assert_eq!(header("x-frame-options"), "DENY");
        assert_eq!(header("x-content-type-options"), "nosniff");
        let policy = header("content-security-policy");
        for part in [
            "default-src 'none'",
            "script-src 'nonce-",
            "style-src 'nonce-",
            "connect-src 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
        ] {
            assert!(policy.contains(part), "{part} in {policy}");
        }
        assert!(
            !policy.contains("unsafe") && !policy.contains("http"),
            "{policy}"
        );
        assert!(
            response
                .text()
                .await
                .unwrap()
                .starts_with("<!doctype html>")
        );
    }
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_web_page_of_another_origin_can_neither_read_the_stream_nor_frame_the_page() {
    let server = MockServer::builder().allowed_host("mock").start().await;
    let ask = async |path: &str, headers: &[(&str, &str)]| {
        let mut request = reqwest::Client::new().get(format!("{}/_mock/{path}", server.url()));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().await.unwrap().status().as_u16()
    };

    for path in ["", "stream", "overview", "events"] {
        assert_eq!(
            ask(path, &[("origin", "https://evil.example")]).await,
            403,
            "{path}"
        );
        assert_eq!(ask(path, &[("host", "evil.example")]).await, 403, "{path}");
        let embedded = [
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "no-cors"),
        ];
        assert_eq!(ask(path, &embedded).await, 403, "{path}");
        let framed = [
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "iframe"),
        ];
        assert_eq!(ask(path, &framed).await, 403, "{path}");
    }
    let link = [
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-mode", "navigate"),
        ("sec-fetch-dest", "document"),
    ];
    assert_eq!(ask("", &link).await, 200);
    assert_eq!(ask("", &[("host", "mock:4010")]).await, 200);
}

#[tokio::test]
async fn every_kind_of_change_is_an_event_of_the_stream_and_reading_is_none() {
    let server = stopped_server().await;
    let (mut stream, head) = open_stream(&server);
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(head.contains("content-type: text/event-stream"), "{head}");
    wait_for_event(&mut stream);

    for (method, path, body) in [
        ("PUT", "topics/news", json!({"default": true})),
        ("PUT", "segments/seg_1", json!({"contacts": []})),
        (
            "PUT",
            "contacts/ada%40example.com",
            json!({"email": "ada@example.com"}),
        ),
        ("DELETE", "contacts/ada%40example.com", Value::Null),
        ("POST", "clock", json!({"advance": 60})),
        ("POST", "faults", json!({"status": 503})),
        ("DELETE", "faults", Value::Null),
        ("POST", "delivery-faults", json!({"kind": "stale"})),
        ("PUT", "ceiling", json!({"contacts": 5})),
        ("POST", "events", json!({"type": "email.sent"})),
        ("DELETE", "requests", Value::Null),
        ("POST", "reset", Value::Null),
    ] {
        let (status, _) = call(&server, method, path, body).await;
        assert!(status < 300, "{method} {path}: {status}");
        wait_for_event(&mut stream);
    }
    get(&server, "/contacts").await.unwrap();
    wait_for_event(&mut stream);
    server.fault(Fault::garbage());
    wait_for_event(&mut stream);
    events_within(&mut stream, Duration::from_millis(600));

    let paths = [
        "",
        "overview",
        "contacts",
        "topics",
        "segments",
        "events",
        "requests",
        "requests/1",
        "emails",
        "attempts",
        "faults",
        "delivery-faults",
        "endpoints",
        "clock",
        "health",
    ];
    // On a busy machine, the event of the last change may be late.
    for attempt in 1.. {
        for path in paths {
            let page = format!("{path}?order=newest");
            call(&server, "GET", path, Value::Null).await;
            call(&server, "GET", &page, Value::Null).await;
        }
        let _ = (server.contact("a"), server.contacts(), server.sent_mail());
        let _ = server.contact_count();
        let events = events_within(&mut stream, Duration::from_millis(600));
        if events == 0 {
            return;
        }
        assert!(attempt < 5, "{events} events");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_changes_are_few_events() {
    let server = stopped_server().await;
    let (mut stream, _) = open_stream(&server);
    wait_for_event(&mut stream);
    let (changes, is_done) = (AtomicUsize::new(0), AtomicBool::new(false));

    // Before the first change: this thread may wait for a while afterwards.
    let start = Instant::now();
    let events = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                let count = changes.fetch_add(1, Ordering::Relaxed);
                server.topic("news", count.is_multiple_of(2));
            }
        });
        let mut events = 0;
        // Either thread may stand still during the first two seconds.
        while events == 0 || changes.load(Ordering::Relaxed) <= 1_000 {
            events += events_within(&mut stream, Duration::from_secs(2));
            if start.elapsed() > PATIENCE {
                break;
            }
        }
        is_done.store(true, Ordering::Relaxed);
        events
    });
    let seconds = start.elapsed().as_secs();

    let changes = changes.into_inner();
    assert!(changes > 1_000, "{changes} changes");
    // Four a second. A busy machine may take longer than two seconds.
    let most = 4 + 4 * usize::try_from(seconds).unwrap();
    assert!(
        (1..=most).contains(&events),
        "{events} events in {seconds} s"
    );
}

#[tokio::test]
async fn a_stream_ends_when_the_server_stops_even_if_nobody_reads_it() {
    let (port, builder) = (free_port(), MockServer::builder());
    let server = start_on(port, &builder).await;
    let (mut reader, _) = open_stream(&server);
    let (idle, _) = open_stream(&server);

    drop(server);

    let mut rest = Vec::new();
    let _ = reader.read_to_end(&mut rest);
    assert!(String::from_utf8(rest).unwrap().matches("event").count() <= 3);
    // The port is free again, though the idle client has not closed its side.
    let next = start_on(port, &builder).await;
    assert_eq!(call(&next, "GET", "health", Value::Null).await.0, 200);
    drop(idle);
}

#[tokio::test]
async fn there_are_only_so_many_streams_at_once() {
    let server = stopped_server().await;
    let mut streams: Vec<_> = (0..64).map(|_| open_stream(&server)).collect();
    assert!(
        streams
            .iter()
            .all(|(_, head)| head.starts_with("HTTP/1.1 200"))
    );

    let (status, error) = call(&server, "GET", "stream", Value::Null).await;
    assert_eq!(status, 503);
    assert_eq!(
        error["error"]["message"],
        "too many streams are open; close one"
    );

    streams.pop();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (_, head) = open_stream(&server);
        if head.starts_with("HTTP/1.1 200") {
            break;
        }
        assert!(Instant::now() < deadline, "{head}");
        // The server sees that a client is gone when it writes to it.
        server.topic("news", true);
        std::thread::sleep(Duration::from_millis(50));
    }
}
