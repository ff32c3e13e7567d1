//! Faults: what each kind sends, and whether the request is applied.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use audience::mock::dialect::{ConsentForm, ContactDeletion, ErrorShape};
use audience::mock::{DeliveryFault, Dialect, Fault, MockServer};
use serde_json::json;
use support::PATIENCE;
use support::cancellation::until;

use super::{ada, address, get_unchecked as get, json_of, post_unchecked as post};

/// Creates a contact over a new connection. Returns all bytes of the response, and how the connection ended.
fn raw_create(server: &MockServer) -> (String, std::io::Result<()>) {
    let body = ada().to_string();
    let mut connection = TcpStream::connect(address(server)).unwrap();
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(
        connection,
        "POST /contacts HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\ncontent-length: {}\r\n\r\n{body}",
        server.full_key(),
        body.len(),
    )
    .unwrap();

    let mut response = Vec::new();
    let end = connection.read_to_end(&mut response).map(|_| ());
    (String::from_utf8_lossy(&response).into_owned(), end)
}

/// Returns the announced length of the body, and the part of the body that was sent.
fn announced_and_sent(response: &str) -> (usize, &str) {
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .unwrap();
    (length.parse().unwrap(), body)
}

#[tokio::test]
async fn a_status_fault_applies_as_often_as_asked_and_the_request_is_not_applied() {
    let server = MockServer::start().await;
    server.fault(
        Fault::status(503)
            .retry_after(1)
            .times(2)
            .method("POST")
            .path("/contacts"),
    );

    let first = post(&server, "/contacts", &ada()).await.unwrap();
    let other = get(&server, "/contacts").await.unwrap();
    let second = post(&server, "/contacts", &ada()).await.unwrap();
    let count_before = server.contact_count();
    let third = post(&server, "/contacts", &ada()).await.unwrap();

    assert_eq!(first.headers()["retry-after"], "1");
    let statuses = [&first, &other, &second, &third].map(|response| response.status().as_u16());
    assert_eq!(statuses, [503, 200, 503, 201]);
    assert_eq!(count_before, 0);
    let recorded: Vec<_> = server
        .requests()
        .iter()
        .map(|request| request.status)
        .collect();
    assert_eq!(recorded, [Some(503), Some(200), Some(503), Some(201)]);
    let error = &json_of(first).await["error"];
    assert_eq!(error["code"], "service_unavailable");
}

#[tokio::test]
async fn a_fault_begins_after_a_number_of_matching_requests() {
    let server = MockServer::start().await;
    server.fault(Fault::status(503).path("/contacts").after(2).times(1));

    let mut statuses = Vec::new();
    for path in [
        "/contacts",
        "/nowhere",
        "/contacts",
        "/nowhere",
        "/contacts",
        "/contacts",
    ] {
        statuses.push(get(&server, path).await.unwrap().status().as_u16());
    }

    assert_eq!(statuses, [200, 404, 200, 404, 503, 200]);
}

#[tokio::test]
async fn a_fault_that_has_not_begun_counts_the_requests_of_other_faults() {
    let server = MockServer::start().await;
    server.fault(Fault::status(503).times(2));
    server.fault(Fault::status(500).after(3));

    let mut statuses = Vec::new();
    for _ in 0..5 {
        let response = get(&server, "/contacts").await.unwrap();
        statuses.push(response.status().as_u16());
    }

    assert_eq!(statuses, [503, 503, 200, 500, 500]);
}

async fn statuses_of_lists(server: &MockServer, requests: usize) -> Vec<u16> {
    let mut statuses = Vec::new();
    for _ in 0..requests {
        let response = get(server, "/contacts").await.unwrap();
        statuses.push(response.status().as_u16());
    }
    statuses
}

#[tokio::test]
async fn only_each_nth_matching_request_fails_until_the_fault_is_used_up() {
    let server = MockServer::start().await;
    let fault = Fault::status(503).path("/contacts").after(1);
    server.fault(fault.every(3).times(2));

    let mut statuses = Vec::new();
    for _ in 0..10 {
        assert_eq!(get(&server, "/nowhere").await.unwrap().status(), 404);
        statuses.extend(statuses_of_lists(&server, 1).await);
    }

    assert_eq!(statuses, [200, 200, 200, 503, 200, 200, 503, 200, 200, 200]);
}

#[tokio::test]
async fn between_the_turns_of_a_fault_the_next_one_applies() {
    let server = MockServer::start().await;
    server.fault(Fault::status(503).every(2));
    server.fault(Fault::status(500));

    assert_eq!(
        statuses_of_lists(&server, 5).await,
        [500, 503, 500, 503, 500]
    );
}

#[tokio::test]
async fn a_fault_of_each_nth_request_counts_the_requests_of_other_faults() {
    let server = MockServer::start().await;
    server.fault(Fault::status(503).times(2));
    server.fault(Fault::status(500).every(2));

    // The second request is the turn of both.
    assert_eq!(
        statuses_of_lists(&server, 6).await,
        [503, 503, 200, 500, 200, 500]
    );
}

#[tokio::test]
async fn a_client_that_retries_finishes_while_each_twentieth_request_fails() {
    let server = MockServer::start().await;
    server.fault(Fault::status(503).every(20));
    let contacts = server.client().contacts();

    let mut retried = Vec::new();
    for row in 1..=40 {
        let created = contacts.create(format!("row-{row}@example.com")).await;
        match created.unwrap().attempts() {
            1 => {}
            attempts => retried.push((row, attempts)),
        }
    }

    // The retry of the 20th row is the 21st request, so the 40th is that of the 39th row.
    assert_eq!(retried, [(20, 2), (39, 2)]);
    assert_eq!(server.contact_count(), 40);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_fault_begins_with_the_same_request_however_many_run_at_once() {
    let server = Arc::new(MockServer::start().await);
    server.fault(Fault::status(503).after(10).times(5));

    let requests = (0..40).map(|_| {
        let server = Arc::clone(&server);
        tokio::spawn(async move { get(&server, "/contacts").await.unwrap() })
    });
    for request in requests.collect::<Vec<_>>() {
        request.await.unwrap();
    }

    let failed: Vec<bool> = server
        .requests()
        .iter()
        .map(|request| request.status == Some(503))
        .collect();
    let expected: Vec<bool> = (0..40).map(|index| (10..15).contains(&index)).collect();
    assert_eq!(failed, expected);
}

#[tokio::test]
async fn a_status_fault_sends_the_given_body_and_headers() {
    let server = MockServer::start().await;
    let fault = Fault::status(429)
        .header("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT")
        .header("content-type", "text/html")
        .header("x-odd", "1")
        .header("x-odd", "2")
        .body("<h1>slow down</h1>");
    server.fault(fault);

    let response = get(&server, "/contacts").await.unwrap();

    assert_eq!(response.status(), 429);
    let headers = response.headers();
    assert_eq!(headers["retry-after"], "Wed, 21 Oct 2026 07:28:00 GMT");
    assert_eq!(headers["content-type"], "text/html");
    assert_eq!(headers.get_all("x-odd").iter().count(), 2);
    assert_eq!(response.text().await.unwrap(), "<h1>slow down</h1>");
}

#[tokio::test]
async fn a_fault_without_a_count_applies_until_it_is_cleared() {
    let server = MockServer::start().await;
    server.fault(Fault::status(500).path("/contacts*"));

    for _ in 0..5 {
        assert_eq!(get(&server, "/contacts").await.unwrap().status(), 500);
    }
    server.clear_faults();

    assert_eq!(get(&server, "/contacts").await.unwrap().status(), 200);
}

/// Returns the text of a panic that `add` must cause.
fn panics(add: impl FnOnce()) -> String {
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(add)).unwrap_err();
    *panic.downcast::<String>().unwrap()
}

#[tokio::test]
async fn a_fault_that_can_never_match_panics_with_the_reason_and_is_not_added() {
    let server = MockServer::start().await;
    let fault = || Fault::status(503);
    for (fault, reason) in [
        (fault().path("contacts"), "must start with `/` or `*`"),
        (fault().path("/contacts?limit=1"), "leave out the query"),
        (fault().path("/_mock/reset"), "not the paths below /_mock/"),
        (fault().method("no method"), "is not an HTTP method"),
        (fault().times(0), "`times` must be at least 1"),
        (fault().every(0), "`every` must be at least 1"),
    ] {
        let message = panics(|| server.fault(fault));

        assert!(message.contains(reason), "{message}");
    }

    assert_eq!(get(&server, "/contacts").await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_delivery_fault_that_can_never_match_panics_with_the_reason() {
    let server = MockServer::start().await;
    let fault = DeliveryFault::stale;
    for (fault, reason) in [
        (
            fault().endpoint("crm"),
            "there is no endpoint \"crm\"; add it first",
        ),
        (
            fault().event_type("email.bouncd"),
            "`event_type` must be one of `email.bounced`, ",
        ),
        (fault().times(0), "`times` must be at least 1"),
    ] {
        let message = panics(|| server.delivery_fault(fault));

        assert!(message.contains(reason), "{message}");
    }
}

#[tokio::test]
async fn a_fault_path_can_contain_a_plain_address() {
    let server = MockServer::start().await;
    server.fault(Fault::status(500).path("/contacts/ada+1@example.com"));

    let other = get(&server, "/contacts/bob%40example.com").await.unwrap();
    let ada = get(&server, "/contacts/ada%2B1%40example.com")
        .await
        .unwrap();

    assert_eq!((other.status().as_u16(), ada.status().as_u16()), (404, 500));
}

#[tokio::test]
async fn a_delayed_request_is_applied_at_once_and_its_response_is_late() {
    let server = MockServer::start().await;
    server.fault(Fault::delay(Duration::from_millis(150)).times(1));

    let before = Instant::now();
    let response = post(&server, "/contacts", &ada()).await.unwrap();
    assert_eq!(response.status(), 201);
    assert!(before.elapsed() >= Duration::from_millis(150));

    server.reset();
    server.fault(Fault::delay(2 * PATIENCE));
    let body = ada();
    tokio::select! {
        response = post(&server, "/contacts", &body) => panic!("it is not late: {response:?}"),
        () = until(|| server.contact_count() == 1) => {}
    }
}

#[tokio::test]
async fn another_fault_can_be_delayed_too() {
    let server = MockServer::start().await;
    server.fault(Fault::status(503).delayed_by(Duration::from_millis(80)));

    let before = Instant::now();
    let response = get(&server, "/contacts").await.unwrap();

    assert_eq!(response.status(), 503);
    assert!(before.elapsed() >= Duration::from_millis(80));
}

#[test]
fn close_before_does_not_apply_the_request() {
    let server = MockServer::builder().start_blocking();
    server.fault(Fault::close_before().times(1));

    let (response, end) = raw_create(&server);

    assert_eq!((response.as_str(), end.is_ok()), ("", true));
    assert_eq!(server.contact_count(), 0);
    assert_eq!(server.requests()[0].status, None);
}

#[test]
fn close_after_applies_the_request() {
    let server = MockServer::builder().start_blocking();
    server.fault(Fault::close_after().times(1));

    let (response, end) = raw_create(&server);

    assert_eq!((response.as_str(), end.is_ok()), ("", true));
    assert_eq!(server.contact_count(), 1);
    assert_eq!(server.requests()[0].status, None);
}

#[test]
fn a_cut_body_ends_in_the_middle() {
    let server = MockServer::builder().start_blocking();
    server.fault(Fault::close_mid_body().header("x-cut", "1").times(1));

    let (response, end) = raw_create(&server);

    assert!(
        response.starts_with("HTTP/1.1 201 Created\r\n"),
        "{response}"
    );
    assert!(response.contains("x-cut: 1\r\n"), "{response}");
    let (announced, sent) = announced_and_sent(&response);
    assert!(!sent.is_empty() && sent.len() < announced, "{response}");
    assert!(end.is_ok());
    assert_eq!(server.contact_count(), 1);
    assert_eq!(server.requests()[0].status, Some(201));
}

#[test]
fn a_response_with_a_cut_body_has_one_content_type() {
    let server = MockServer::builder().start_blocking();
    server.fault(Fault::close_mid_body().times(1));
    server.fault(
        Fault::close_mid_body()
            .header("Content-Type", "text/html")
            .body("<html>"),
    );

    let (plain, _) = raw_create(&server);
    let (html, _) = raw_create(&server);
    server.clear_faults();
    server.fault(Fault::close_mid_body().body("<html>"));
    let (undeclared, _) = raw_create(&server);

    let types = |response: &str| -> Vec<_> {
        response
            .lines()
            .filter_map(|line| line.strip_prefix("content-type: "))
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(types(&plain), ["application/json"]);
    assert_eq!(types(&html), ["text/html"]);
    assert_eq!(types(&undeclared), ["text/html"]);
}

#[tokio::test]
async fn the_content_type_of_a_body_is_what_the_body_looks_like() {
    let problems = Dialect {
        error_shape: ErrorShape::Problem,
        ..Dialect::default()
    };
    for dialect in [Dialect::default(), problems] {
        let server = MockServer::builder().dialect(dialect).start().await;
        for (body, media_type) in [
            (json!("<html>Please log in</html>"), "text/html"),
            (json!("\n <!doctype html>"), "text/html"),
            (json!("upstream timed out"), "text/plain"),
            (json!(r#"{"id": "con_"#), "application/json"),
            (json!("[]"), "application/json"),
            (json!({"id": 7}), "application/json"),
            (json!(7), "application/json"),
        ] {
            let read: Fault = serde_json::from_value(json!({"status": 502, "body": body})).unwrap();
            let text = body
                .as_str()
                .map_or_else(|| body.to_string(), str::to_owned);
            for fault in [read, Fault::status(502).body(text.as_str())] {
                server.fault(fault.times(1));

                let response = get(&server, "/contacts").await.unwrap();

                assert_eq!(response.headers()["content-type"], media_type, "{body}");
                assert_eq!(response.text().await.unwrap(), text);
            }
        }
    }
}

#[test]
fn reset_body_resets_the_connection_in_the_middle_of_the_body() {
    let server = MockServer::builder().start_blocking();
    server.fault(Fault::close_reset().times(1));

    let (response, end) = raw_create(&server);

    let (announced, sent) = announced_and_sent(&response);
    assert!(!sent.is_empty() && sent.len() < announced, "{response}");
    assert_eq!(end.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    assert_eq!(server.contact_count(), 1);
}

#[tokio::test]
async fn a_response_without_a_body_is_cut_in_its_head() {
    let dialect = Dialect {
        consent_form: ConsentForm::NoContent,
        contact_deletion: ContactDeletion::NoContent,
        ..Dialect::default()
    };
    for fault in [Fault::close_mid_body(), Fault::close_reset()] {
        let server = MockServer::builder().dialect(dialect).start().await;
        server.seed_contact("ada@example.com");
        server.fault(fault.clone());
        let ada = format!("{}/contacts/ada%40example.com", server.url());
        let client = reqwest::Client::new();
        let send = async |request: reqwest::RequestBuilder| {
            request.bearer_auth(server.full_key()).send().await
        };

        let head = send(client.head(&ada)).await;
        let opt_out = send(client.post(format!("{ada}/unsubscribe"))).await;
        let is_opted_out = server.contacts()[0].unsubscribed;
        let deletion = send(client.delete(&ada)).await;

        assert!(head.is_err(), "{fault:?}: {head:?}");
        assert!(opt_out.is_err(), "{fault:?}: {opt_out:?}");
        assert!(is_opted_out, "{fault:?}");
        assert!(deletion.is_err(), "{fault:?}: {deletion:?}");
        assert_eq!(server.contact_count(), 0, "{fault:?}");
        let recorded = server.requests();
        let statuses = recorded.iter().map(|request| request.status);
        assert!(
            statuses.eq([Some(200), Some(204), Some(204)]),
            "{fault:?}: {recorded:?}"
        );
        for request in recorded {
            assert_eq!(request.response_body, b"", "{fault:?}");
        }
    }
}

#[test]
fn garbage_is_not_http_and_is_recorded_whole() {
    let server = MockServer::builder().start_blocking();
    server.fault(Fault::garbage().times(1));
    server.fault(Fault::garbage().body("SSH-2.0-OpenSSH_9.6\r\n").times(1));

    let (response, end) = raw_create(&server);
    let (ssh, _) = raw_create(&server);

    assert!(
        !response.is_empty() && !response.starts_with("HTTP/"),
        "{response}"
    );
    assert!(end.is_ok());
    assert_eq!(ssh, "SSH-2.0-OpenSSH_9.6\r\n");
    assert_eq!(server.contact_count(), 0);
    assert_eq!(server.requests()[0].status, None);
    let recorded = server.requests().into_iter();
    let recorded: Vec<_> = recorded.map(|request| request.response_body).collect();
    assert_eq!(recorded, [response.into_bytes(), ssh.into_bytes()]);
}

#[tokio::test]
async fn a_wrong_body_replaces_the_body_of_an_applied_request() {
    let server = MockServer::start().await;
    server.fault(Fault::wrong_body("<html>").times(1));

    let response = post(&server, "/contacts", &ada()).await.unwrap();

    assert_eq!(response.status(), 201);
    assert_eq!(response.text().await.unwrap(), "<html>");
    assert_eq!(server.contact_count(), 1);
}

#[tokio::test]
async fn a_client_can_continue_after_a_connection_fault() {
    let server = MockServer::start().await;
    let client = reqwest::Client::new();
    let ask = || {
        client
            .get(format!("{}/contacts", server.url()))
            .bearer_auth(server.full_key())
            .send()
    };

    for fault in [
        Fault::close_before(),
        Fault::close_after(),
        Fault::garbage(),
    ] {
        assert_eq!(ask().await.unwrap().status(), 200);
        server.fault(fault.clone().times(1));
        let result = ask().await;
        assert!(result.is_err(), "{fault:?}: {result:?}");
    }
    for fault in [Fault::close_mid_body(), Fault::close_reset()] {
        server.fault(fault.clone().times(1));
        let body = ask().await.unwrap().bytes().await;
        assert!(body.is_err(), "{fault:?}: {body:?}");
    }

    assert_eq!(ask().await.unwrap().status(), 200);
}

#[tokio::test]
async fn the_headers_of_a_fault_replace_those_of_the_service() {
    let dialect = Dialect {
        error_shape: ErrorShape::Problem,
        ..Dialect::default()
    };
    let server = MockServer::builder().dialect(dialect).start().await;
    let html = Fault::status(500).header("content-type", "text/html");
    server.fault(html.header("x-request-id", "a").header("x-request-id", "b"));

    let response = get(&server, "/contacts").await.unwrap();

    let values = |name: &str| {
        let values = response.headers().get_all(name).iter();
        values.cloned().collect::<Vec<_>>()
    };
    assert_eq!(values("content-type"), ["text/html"]);
    assert_eq!(values("x-request-id"), ["a", "b"]);
}
