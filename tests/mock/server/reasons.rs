//! Why a request was refused, in the journal and for an observer.

use std::io::Write;
use std::net::TcpStream;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use audience::mock::dialect::ErrorShape;
use audience::mock::{Dialect, Fault, HandledRequest, MockServer};
use serde_json::{Value, json};
use support::PATIENCE;
use support::cancellation::until;

use super::control::call;
use super::{ada, address, get, post_unchecked};

#[tokio::test]
async fn a_refused_request_has_the_message_of_its_error_in_every_shape() {
    for error_shape in [ErrorShape::NestedCode, ErrorShape::Slug] {
        let dialect = Dialect {
            error_shape,
            ..Dialect::default()
        };
        let server = MockServer::builder().dialect(dialect).start().await;

        post_unchecked(&server, "/contacts", &ada()).await.unwrap();
        post_unchecked(&server, "/contacts", &json!({}))
            .await
            .unwrap();

        let reasons: Vec<_> = server
            .requests()
            .into_iter()
            .map(|request| request.reason)
            .collect();
        assert_eq!(reasons, [None, Some("`email` is missing".to_owned())]);
        let (_, journal) = call(&server, "GET", "requests", Value::Null).await;
        assert_eq!(journal["data"][0]["reason"], Value::Null);
        assert_eq!(journal["data"][1]["reason"], "`email` is missing");
    }
}

#[tokio::test]
async fn the_reason_of_a_fault_says_what_it_did() {
    let server = MockServer::start().await;
    for (fault, reason) in [
        (Fault::status(503), Some("the test asked for this response")),
        (
            Fault::status(503).applied(),
            Some("a fault replaced the response after the request was applied"),
        ),
        (
            Fault::close_before(),
            Some("a fault closed the connection before the request was applied"),
        ),
        (
            Fault::close_after(),
            Some("a fault closed the connection after the request was applied"),
        ),
        (
            Fault::close_mid_body(),
            Some("a fault closed the connection in the middle of the response"),
        ),
        (
            Fault::close_reset(),
            Some("a fault reset the connection in the middle of the response"),
        ),
        (
            Fault::garbage(),
            Some("a fault sent bytes that are not HTTP"),
        ),
        (Fault::delay(Duration::from_millis(1)), None),
    ] {
        server.clear_requests();
        server.fault(fault.times(1));
        // Some of them break the response.
        let _ = get(&server, "/contacts").await;

        assert_eq!(server.requests()[0].reason.as_deref(), reason);
    }
}

#[tokio::test]
async fn the_reason_of_a_fault_does_not_say_applied_if_the_service_refused_the_request() {
    let server = MockServer::start().await;
    for (fault, reason) in [
        (
            Fault::status(504).applied(),
            "a fault replaced the response after the request was refused: `email` is missing",
        ),
        (
            Fault::close_after(),
            "a fault closed the connection after the request was refused: `email` is missing",
        ),
        (Fault::status(504), "the test asked for this response"),
        (Fault::wrong_body("<html>"), "`email` is missing"),
    ] {
        server.clear_requests();
        server.fault(fault.times(1));
        // One of them closes the connection.
        let _ = post_unchecked(&server, "/contacts", &json!({})).await;

        assert_eq!(server.requests()[0].reason.as_deref(), Some(reason));
    }
}

#[tokio::test]
async fn an_observer_is_told_about_each_request_and_no_control_call() {
    let seen = Arc::new(Mutex::new(Vec::<HandledRequest>::new()));
    let seen_too = Arc::clone(&seen);
    let server = MockServer::builder()
        .on_request(move |request| seen_too.lock().unwrap().push(request.clone()))
        .start()
        .await;
    server.fault(Fault::delay(Duration::from_millis(30)).times(1));

    get(&server, "/contacts?limit=1").await.unwrap();
    get(&server, "/contacts/x@x.io").await.unwrap();
    call(&server, "GET", "health", Value::Null).await;
    server.fault(Fault::close_before());
    assert!(get(&server, "/contacts").await.is_err());

    let seen = seen.lock().unwrap();
    let shown: Vec<_> = seen
        .iter()
        .map(|request| {
            (
                &*request.method,
                &*request.path,
                request.query.as_deref(),
                request.status,
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            ("GET", "/contacts", Some("limit=1"), Some(200)),
            ("GET", "/contacts/x@x.io", None, Some(404)),
            ("GET", "/contacts", None, None),
        ]
    );
    assert!(seen[0].duration >= Duration::from_millis(30));
    assert!(seen[0].reason.is_none());
    assert!(
        seen[1]
            .reason
            .as_deref()
            .is_some_and(|reason| reason.contains("x@x.io"))
    );
}

#[tokio::test]
async fn an_observer_is_told_about_a_request_whose_client_did_not_wait() {
    let (seen, told) = mpsc::channel();
    let server = MockServer::builder()
        .on_request(move |request| seen.send(request.clone()).unwrap())
        .start()
        .await;
    let delay = Duration::from_secs(3_600);
    server.fault(Fault::delay(delay));
    let mut connection = TcpStream::connect(address(&server)).unwrap();
    write!(
        connection,
        "GET /contacts HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\r\n",
        server.full_key()
    )
    .unwrap();
    until(|| !server.requests().is_empty()).await;

    drop(connection);

    let request = told.recv_timeout(PATIENCE).unwrap();
    assert_eq!((&*request.path, request.status), ("/contacts", Some(200)));
    assert!(request.duration < delay, "{request:?}");
    assert_eq!(server.requests().len(), 1);
}
