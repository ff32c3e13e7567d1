//! The mock server around the service: its Rust API, faults, the control plane, the clock and deliveries.

mod clock;
mod connections;
mod control;
mod control_events;
mod control_lists;
mod control_page;
mod delivery;
mod delivery_faults;
mod faults;
mod mail;
mod raw_receiver;
mod reasons;
pub(crate) mod seed_files;
mod seeded_ids;
mod seeded_mail;
mod seeds;
mod signing_clock;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use audience::Timestamp;
use audience::mock::{
    DeliveryAttempt, Dialect, EngagementKind, Fault, MockServer, MockServerBuilder, SegmentKind,
};
use serde_json::{Value, json};
use support::{PATIENCE, free_port, in_time};

use crate::openapi::conformance::{self, Exchange};

const START: i64 = 1_700_000_000;

const FIVE_HOURS: Duration = Duration::from_secs(5 * 3_600);

/// Starts a server whose clock is stopped at `START`.
async fn stopped_server() -> MockServer {
    patient().clock(START).start().await
}

/// Starts a server whose clock runs.
async fn running_server() -> MockServer {
    patient().start().await
}

/// Configures a server that waits for a receiver as long as a test may take: on a busy machine, the default of 10 s may be
/// too short.
fn patient() -> MockServerBuilder {
    MockServer::builder().delivery_timeout(2 * PATIENCE)
}

/// Starts a server on a port that may still be in use: on a busy machine, the thread of a server that was just dropped may
/// end later than the next one waits for its port.
///
/// The port is of [`free_port`]: the system could give any other one to another test in between.
pub(crate) async fn start_on(port: u16, builder: &MockServerBuilder) -> MockServer {
    in_time(async {
        loop {
            if let Ok(server) = builder.clone().port(port).try_start().await {
                break server;
            }
        }
    })
    .await
}

/// Posts JSON to the service with the full-access key. Asserts that the description shows the exchange.
async fn post(server: &MockServer, path: &str, body: &Value) -> reqwest::Result<reqwest::Response> {
    described(
        "POST",
        path,
        body.to_string(),
        post_unchecked(server, path, body).await?,
    )
    .await
}

/// Gets a path of the service with the full-access key. Asserts that the description shows the exchange.
async fn get(server: &MockServer, path: &str) -> reqwest::Result<reqwest::Response> {
    described(
        "GET",
        path,
        String::new(),
        get_unchecked(server, path).await?,
    )
    .await
}

/// Posts JSON to a mock that may respond with a fault or in another dialect, which `described` does not expect.
async fn post_unchecked(
    server: &MockServer,
    path: &str,
    body: &Value,
) -> reqwest::Result<reqwest::Response> {
    reqwest::Client::new()
        .post(format!("{}{path}", server.url()))
        .bearer_auth(server.full_key())
        .body(body.to_string())
        .send()
        .await
}

/// Gets a path of a mock that may respond with a fault or in another dialect, which `described` does not expect.
async fn get_unchecked(server: &MockServer, path: &str) -> reqwest::Result<reqwest::Response> {
    reqwest::Client::new()
        .get(format!("{}{path}", server.url()))
        .bearer_auth(server.full_key())
        .send()
        .await
}

/// Reads a response, asserts that the description shows it, and returns it as if it was unread.
async fn described(
    method: &str,
    target: &str,
    request: String,
    response: reqwest::Response,
) -> reqwest::Result<reqwest::Response> {
    let (status, headers) = (response.status(), response.headers().clone());
    let body = response.bytes().await?;
    let (path, query) = target
        .split_once('?')
        .map_or((target, None), |(path, query)| (path, Some(query)));
    conformance::assert_described(&Exchange {
        method,
        path,
        query,
        request: request.as_bytes(),
        status: status.as_u16(),
        response: &body,
        dialect: &Dialect::default().to_string(),
    });
    let mut unread = http::Response::new(body);
    *unread.status_mut() = status;
    *unread.headers_mut() = headers;
    Ok(unread.into())
}

async fn json_of(response: reqwest::Response) -> Value {
    serde_json::from_slice(&response.bytes().await.unwrap()).unwrap()
}

fn ada() -> Value {
    json!({"email": "ada@example.com"})
}

/// Returns when each attempt was made, in seconds after `START`.
fn offsets(attempts: &[DeliveryAttempt]) -> Vec<i64> {
    attempts
        .iter()
        .map(|attempt| attempt.at.as_unix() - START)
        .collect()
}

fn address(server: &MockServer) -> String {
    server.url().strip_prefix("http://").unwrap().to_owned()
}

fn port(server: &MockServer) -> u16 {
    let url = server.url();
    url.rsplit(':').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_server_responds_at_its_url_to_its_key() {
    let server = MockServer::start().await;

    let created = post(&server, "/contacts", &ada()).await.unwrap();

    assert_eq!(created.status(), 201);
    assert_eq!(created.headers()["content-type"], "application/json");
    assert_eq!(
        server.contact("ada@example.com").unwrap().email,
        "ada@example.com"
    );
    assert_eq!(server.contact_count(), 1);
}

#[tokio::test]
async fn the_builder_configures_the_server() {
    let server = MockServer::builder()
        .host([127, 0, 0, 1])
        .full_key("full")
        .sending_key("sending")
        .auth_header("X-Api-Key")
        .contact_ceiling(1)
        .clock(1_700_000_000)
        .topic("news", true)
        .segment(
            "seg_1",
            SegmentKind::Contacts(vec!["ada@example.com".into()]),
        )
        .start()
        .await;
    let client = reqwest::Client::new();
    let create = |address: &str| {
        client
            .post(format!("{}/contacts", server.url()))
            .header("x-api-key", server.full_key())
            .body(json!({"email": address}).to_string())
            .send()
    };

    let first = create("ada@example.com").await.unwrap();
    let second = create("bob@example.com").await.unwrap();

    assert_eq!(
        (server.full_key(), server.sending_key()),
        ("full", "sending")
    );
    assert_eq!(
        (first.status().as_u16(), second.status().as_u16()),
        (201, 402)
    );
    let ada = server.contact("ada@example.com").unwrap();
    assert_eq!(ada.created_at, Timestamp::from_unix(1_700_000_000));
    assert_eq!(ada.topics.get("news"), Some(&true));
}

#[tokio::test]
async fn the_client_presents_its_key_as_the_server_expects_it() {
    for server in [
        MockServer::builder().start().await,
        MockServer::builder().auth_header("x-api-key").start().await,
    ] {
        let page = server.client().contacts().list().await.unwrap();

        assert!(page.data.is_empty());
    }
}

#[tokio::test]
async fn two_servers_do_not_share_state() {
    let one = MockServer::start().await;
    let other = MockServer::start().await;

    post(&one, "/contacts", &ada()).await.unwrap();

    assert_ne!(one.url(), other.url());
    assert_eq!((one.contact_count(), other.contact_count()), (1, 0));
    assert!(other.requests().is_empty());
}

#[tokio::test]
async fn a_port_in_use_is_an_error() {
    let server = MockServer::start().await;
    let port = port(&server);

    let second = MockServer::builder().port(port).try_start().await;

    assert_eq!(second.unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
}

#[tokio::test]
async fn a_server_waits_a_while_for_a_port_in_use() {
    // On a busy machine, the port may be released too late.
    for attempt in 1.. {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();

        let starting = MockServer::builder().port(port).try_start();
        let (started, ()) = tokio::join!(starting, async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            drop(listener);
        });

        if started.is_ok() {
            return;
        }
        assert!(attempt < 10, "{started:?}");
    }
}

#[tokio::test]
async fn the_port_of_a_dropped_server_can_be_used_at_once() {
    let (port, builder) = (free_port(), MockServer::builder());
    let mut server = start_on(port, &builder).await;

    for _ in 0..3 {
        drop(server);
        server = start_on(port, &builder).await;
    }

    assert_eq!(address(&server), format!("127.0.0.1:{port}"));
}

#[tokio::test]
async fn dropping_a_server_stops_it_without_blocking() {
    // No other test listens on this port later.
    let server = start_on(free_port(), &MockServer::builder()).await;
    let address = address(&server);
    let held_open = tokio::net::TcpStream::connect(&address).await.unwrap();
    server.fault(Fault::delay(2 * PATIENCE));
    let hanging = tokio::spawn(reqwest::get(format!("{}/contacts", server.url())));
    while server.requests().is_empty() {
        tokio::task::yield_now().await;
    }

    let before = Instant::now();
    drop(server);
    let dropped_in = before.elapsed();

    // It does not wait for the delayed response.
    assert!(dropped_in < PATIENCE, "{dropped_in:?}");
    assert!(hanging.await.unwrap().is_err());
    while TcpStream::connect(&address).is_ok() {
        assert!(before.elapsed() < PATIENCE, "still listening");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(held_open);
}

#[test]
fn a_server_can_be_used_without_a_runtime() {
    let server = MockServer::builder().clock(1_700_000_000).start_blocking();
    let mut connection = BufReader::new(TcpStream::connect(address(&server)).unwrap());
    let mut ask = |request: &str| {
        write!(
            connection.get_mut(),
            "{request} HTTP/1.1\r\nhost: localhost\r\n\r\n"
        )
        .unwrap();
        let mut status = String::new();
        connection.read_line(&mut status).unwrap();
        let (mut line, mut length) = (String::new(), 0);
        while line != "\r\n" {
            line.clear();
            connection.read_line(&mut line).unwrap();
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.trim().parse().unwrap();
            }
        }
        connection.read_exact(&mut vec![0; length]).unwrap();
        status[..12].to_owned()
    };

    server.topic("news", false);
    server.segment(
        "seg_1",
        SegmentKind::Rule(json!({"match_": "all", "conditions": []})),
    );
    server.report_spam("ada@example.com");
    server.record_engagement("ada@example.com", EngagementKind::Opened, 1_600_000_000);
    server.set_ceiling(Some(3));
    server.webhook_endpoint("http://127.0.0.1:9/hook", "6Jm0nFq2pXvZk4Tt");
    server.fault(Fault::status(503).times(1));
    server.advance(Duration::from_secs(60));

    // Both use the same connection.
    assert_eq!(ask("GET /contacts"), "HTTP/1.1 503");
    assert_eq!(ask("GET /contacts"), "HTTP/1.1 401");
    assert_eq!(server.now().as_unix(), 1_700_000_060);
    assert_eq!(server.requests().len(), 2);
    assert!(server.contact("ada@example.com").is_none());
    assert!(server.attempts().is_empty());
    server.clear_requests();
    server.clear_faults();
    server.reset();
    assert!(server.requests().is_empty());
}

#[test]
fn a_server_outlives_the_runtime_it_was_started_in() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };

    let server = runtime().block_on(MockServer::start());

    let response = runtime().block_on(get(&server, "/contacts")).unwrap();
    assert_eq!(response.status(), 200);
}

#[tokio::test]
async fn a_request_is_recorded_as_it_was_sent() {
    let server = MockServer::start().await;

    let url = format!("{}/contacts/Ada%40example.com?a=%20b", server.url());
    let request = reqwest::Client::new().patch(url).header("X-Trace", "1");
    let response = request
        .bearer_auth(server.full_key())
        .body(r#"{"odd": [] }"#)
        .send()
        .await;

    let [recorded] = &server.requests()[..] else {
        panic!("one request was sent");
    };
    assert_eq!(recorded.method, "PATCH");
    assert_eq!(recorded.path, "/contacts/Ada%40example.com");
    assert_eq!(recorded.query.as_deref(), Some("a=%20b"));
    assert_eq!(recorded.header("x-trace"), Some("1"));
    assert_eq!(recorded.body, br#"{"odd": [] }"#);
    assert_eq!(recorded.json(), Some(json!({"odd": []})));
    assert_eq!(recorded.status, Some(response.unwrap().status().as_u16()));
    assert!(!format!("{recorded:?}").contains(server.full_key()));
}

#[tokio::test]
async fn the_newest_thousand_requests_are_kept() {
    let server = MockServer::start().await;
    let client = reqwest::Client::new();

    for number in 0..1_010 {
        let url = format!("{}/number/{number}", server.url());
        client.get(url).send().await.unwrap();
    }

    let requests = server.requests();
    assert_eq!(requests.len(), 1_000);
    assert_eq!(requests[0].path, "/number/10");
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_and_the_server_continues() {
    let server = MockServer::start().await;
    let mut connection = TcpStream::connect(address(&server)).unwrap();

    let length = 16 * 1024 * 1024 + 1;
    write!(
        connection,
        "POST /contacts HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n"
    )
    .unwrap();
    let mut response = [0; 12];
    connection.read_exact(&mut response).unwrap();

    assert_eq!(&response, b"HTTP/1.1 413");
    assert_eq!(server.requests()[0].status, Some(413));
    assert_eq!(get(&server, "/contacts").await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_reset_restores_the_initial_state() {
    let server = MockServer::builder()
        .clock(1_700_000_000)
        .contact_ceiling(2)
        .topic("news", true)
        .start()
        .await;
    post(&server, "/contacts", &ada()).await.unwrap();
    server.topic("offers", true);
    server.set_ceiling(Some(0));
    server.advance(Duration::from_secs(3_600));
    server.fault(Fault::status(500));
    server.webhook_endpoint("http://127.0.0.1:9/hook", "6Jm0nFq2pXvZk4Tt");
    server.send_event(json!({"type": "email.sent"})).await;

    server.reset();

    assert_eq!(
        (server.contact_count(), server.now().as_unix()),
        (0, 1_700_000_000)
    );
    assert!(server.requests().is_empty());
    assert!(server.attempts().is_empty());
    let created = json_of(post(&server, "/contacts", &ada()).await.unwrap()).await;
    assert_eq!(created["created_at"], 1_700_000_000);
    let topics = server.contact("ada@example.com").unwrap().topics;
    assert_eq!(
        topics.into_iter().collect::<Vec<_>>(),
        [("news".to_owned(), true)]
    );
    // The id is not used again, and the event is not delivered.
    assert_eq!(
        server.send_event(json!({"type": "email.sent"})).await,
        "evt_2"
    );
    assert!(server.attempts().is_empty());
    server.advance(Duration::from_secs(100_000)).await;
    assert!(server.attempts().is_empty());
}

#[test]
#[should_panic(expected = "the segment \"seg_1\" is invalid: `match_` must be")]
fn an_invalid_segment_rule_panics_with_the_reason() {
    let server = MockServer::builder().start_blocking();

    server.segment("seg_1", SegmentKind::Rule(json!({"match_": "some"})));
}

#[test]
#[should_panic(
    expected = "the segment \"seg_1\" is invalid: `contacts[1]` must be an email address"
)]
fn an_invalid_address_in_a_segment_panics_with_the_reason() {
    let addresses = vec!["ada@example.com".into(), "ada".into()];

    let builder = MockServer::builder().segment("seg_1", SegmentKind::Contacts(addresses));

    drop(builder.start_blocking());
}

#[test]
#[should_panic(expected = "the mock connects over http only")]
fn an_https_endpoint_panics_with_the_reason() {
    let server = MockServer::builder().start_blocking();

    server.webhook_endpoint("https://example.com/hook", "6Jm0nFq2pXvZk4Tt");
}

#[test]
#[should_panic(expected = "the port must be a number from 1 to 65535")]
fn an_endpoint_with_an_invalid_port_panics_with_the_reason() {
    let server = MockServer::builder().start_blocking();

    server.webhook_endpoint("http://127.0.0.1:8080x/hook", "6Jm0nFq2pXvZk4Tt");
}

#[test]
#[should_panic(expected = "\"X Api Key\" is not a valid header name")]
fn an_invalid_name_of_the_key_header_panics_with_the_reason() {
    let _ = MockServer::builder().auth_header("X Api Key");
}

#[tokio::test]
async fn debug_output_contains_no_key_or_secret() {
    let builder = MockServer::builder()
        .full_key("full-12345")
        .sending_key("sending-12345")
        .webhook_endpoint("http://127.0.0.1:9/hook", "signing-12345");

    let printed = format!("{builder:?}");
    let server = builder.start().await;
    let printed = format!(
        "{printed} {server:?} {:?} {:?}",
        server.clock(),
        server.advance(Duration::ZERO)
    );

    assert!(!printed.contains("12345"), "{printed}");
}
