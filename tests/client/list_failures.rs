//! How a list continues after a failure, and that it ends if the failures do not.

use std::time::Duration;

use audience::{ErrorKind, RetryPolicy};
use futures_util::StreamExt;
use futures_util::stream::FusedStream;
use wiremock::ResponseTemplate;

use super::paged_service::{page, requested_cursors};
use support::scripted_server::{ScriptedServer, bytes, close_connection};
use support::{
    PATIENCE, TIMEOUT, builder, closed_url, contacts, ok, respond_in_turn, respond_with, status,
    text,
};

/// The kinds of the errors of a stream at this URL that never returns a contact, and whether it ended.
async fn failures(url: &str) -> (Vec<ErrorKind>, bool) {
    failures_within(url, PATIENCE).await
}

/// The same for a client with this timeout.
async fn failures_within(url: &str, timeout: Duration) -> (Vec<ErrorKind>, bool) {
    let client = builder(url)
        .retry(RetryPolicy::none())
        .timeout(timeout)
        .no_deadline()
        .build()
        .unwrap();
    let mut stream = client.contacts().list().stream();
    let items: Vec<_> = stream.by_ref().take(50).collect().await;
    let kinds = items.iter().map(|item| item.as_ref().unwrap_err().kind());
    (kinds.collect(), stream.is_terminated())
}

#[tokio::test]
async fn a_list_ends_after_three_failures_in_a_row_of_any_kind() {
    let three = |kind| (vec![kind; 3], true);
    let silent = || ScriptedServer::start([(); 9].map(|()| bytes("").then_hang()));
    let broken = || ScriptedServer::start([(); 9].map(|()| close_connection()));

    assert_eq!(failures(&closed_url()).await, three(ErrorKind::Connect));
    assert_eq!(
        failures_within(silent().await.url(), TIMEOUT).await,
        three(ErrorKind::Timeout)
    );
    assert_eq!(
        failures(broken().await.url()).await,
        three(ErrorKind::Transport)
    );
    for (response, kind) in [
        (status(401), ErrorKind::Api),
        (status(429), ErrorKind::Api),
        (status(503), ErrorKind::Api),
        (text(200, "{"), ErrorKind::Decode),
    ] {
        let server = respond_with(response).await;
        assert_eq!(failures(&server.uri()).await, three(kind));
    }
}

#[tokio::test]
async fn a_list_ends_after_three_failures_in_a_row_of_different_kinds() {
    let responses = [
        status(503),
        text(200, "{"),
        status(403),
        ok(page(&["c1"], "")),
    ];
    let server = respond_in_turn(responses).await;

    let (kinds, ended) = failures(&server.uri()).await;

    assert_eq!(kinds, [ErrorKind::Api, ErrorKind::Decode, ErrorKind::Api]);
    assert!(ended);
}

#[test]
fn a_blocking_iterator_ends_after_three_failures_in_a_row() {
    let settings = builder(closed_url()).retry(RetryPolicy::none());
    let contacts = settings.build().unwrap().contacts();

    let items = contacts.list().stream().wait().take(50).count();
    let pages = contacts.list().pages().wait().take(50).count();

    assert_eq!((items, pages), (3, 3));
}

#[tokio::test]
async fn after_an_error_a_list_continues_and_neither_misses_nor_repeats_contacts() {
    let server = respond_in_turn([
        status(503),
        ok(page(&["c9", "c8"], "c8")),
        status(500),
        ResponseTemplate::new(200).set_body_string("{\"data\": [tru"),
        ok(page(&["c7"], "c7")),
        status(403),
        ok(page(&[], "")),
    ])
    .await;
    let mut stream = contacts(server.uri())
        .list()
        .retry(RetryPolicy::none())
        .stream();

    let mut seen = Vec::new();
    let mut errors = Vec::new();
    while let Some(item) = stream.next().await {
        match item {
            Ok(contact) => seen.push(contact.id),
            Err(error) => {
                assert!(!stream.is_terminated());
                errors.push(error.kind());
            }
        }
    }

    assert_eq!(seen, ["c9", "c8", "c7"]);
    assert_eq!(
        errors,
        [
            ErrorKind::Api,
            ErrorKind::Api,
            ErrorKind::Decode,
            ErrorKind::Api
        ]
    );
    let (c8, c7) = (|| Some("c8".to_owned()), || Some("c7".to_owned()));
    let asked = requested_cursors(&server).await;
    assert_eq!(asked, [None, None, c8(), c8(), c8(), c7(), c7()]);
}
