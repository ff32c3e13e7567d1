//! Lists that fetch the next page while the caller works on this one.

use std::thread;
use std::time::{Duration, Instant};

use audience::RetryPolicy;
use audience::contacts::Contacts;
use audience::mock::MockServer;
use futures_util::{StreamExt, TryStreamExt};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use wiremock::ResponseTemplate;

use super::paged_service::{PagedService, page, requested_cursors};
use support::{PATIENCE, contacts, in_time, ok, respond_in_turn, status, summary};

/// A mock with contacts 0 to 4, of which 4 is the newest.
fn five_contacts() -> (MockServer, Contacts) {
    let mut builder = MockServer::builder();
    for n in 0..5 {
        builder = builder.seed_contact(format!("{n}@x.io").as_str());
    }
    let server = builder.start_blocking();
    let contacts = server.client().contacts();
    (server, contacts)
}

/// Waits, without polling anything, until the server has received this many requests.
async fn requests_arrive(server: &MockServer, count: usize) {
    in_time(async {
        while server.requests().len() < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn the_next_request_arrives_while_the_caller_sleeps_and_does_not_poll() {
    let (server, contacts) = five_contacts();

    let mut stream = contacts.list().limit(2).stream().prefetch();
    stream.try_next().await.unwrap();
    requests_arrive(&server, 2).await;
    let mut pages = contacts.list().limit(2).pages().prefetch();
    pages.try_next().await.unwrap();
    requests_arrive(&server, 4).await;

    assert_eq!(pages.cursor(), Some(&*server.contacts()[1].id));
}

#[test]
fn a_blocking_list_fetches_ahead_too() {
    let (server, contacts) = five_contacts();

    let mut iter = contacts.list().limit(2).stream().prefetch().wait();
    let newest = iter.next().unwrap().unwrap();
    let start = Instant::now();
    while server.requests().len() < 2 && start.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(1));
    }

    assert_eq!(server.requests().len(), 2);
    assert_eq!(iter.stream().cursor(), Some(&*newest.id));
    assert_eq!(iter.count(), 4);
    assert_eq!(
        contacts.list().limit(2).pages().prefetch().wait().count(),
        3
    );
}

#[tokio::test]
async fn a_list_is_at_most_one_page_ahead() {
    let (server, contacts) = five_contacts();

    let mut stream = contacts.list().limit(1).stream().prefetch();
    stream.try_next().await.unwrap();
    requests_arrive(&server, 2).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(server.requests().len(), 2);

    stream.try_next().await.unwrap();
    requests_arrive(&server, 3).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn without_prefetch_nothing_is_fetched_ahead() {
    let (server, contacts) = five_contacts();

    let mut stream = contacts.list().limit(1).stream();
    stream.try_next().await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;

    assert_eq!(server.requests().len(), 1);
}

/// What a caller sees of each item, and the cursor after it.
async fn seen(contacts: &Contacts, prefetch: bool) -> Vec<(String, Option<String>)> {
    let mut stream = contacts.list().retry(RetryPolicy::none()).stream();
    if prefetch {
        stream = stream.prefetch();
    }
    let mut seen = Vec::new();
    while let Some(item) = stream.next().await {
        let item = item.map_or_else(|error| error.to_string(), |contact| contact.id);
        seen.push((item, stream.cursor().map(str::to_owned)));
    }
    seen
}

fn script() -> Vec<ResponseTemplate> {
    let malformed = json!({"data": [summary("c6"), {"id": "c5"}, {}], "next": "opaque"});
    vec![
        status(503),
        ok(page(&["c9", "c8"], "c8")),
        status(500),
        ResponseTemplate::new(200).set_body_string("{\"data\": [tru"),
        ok(page(&["c7"], "c7")),
        ok(malformed),
        status(403),
        ok(page(&["c4"], "")),
        status(500),
        status(500),
        status(500),
        ok(page(&["c3"], "")),
    ]
}

#[tokio::test]
async fn items_errors_cursors_and_requests_are_the_same_with_prefetch() {
    let (server, ahead) = (
        respond_in_turn(script()).await,
        respond_in_turn(script()).await,
    );

    let expected = seen(&contacts(server.uri()), false).await;
    let found = seen(&contacts(ahead.uri()), true).await;

    assert_eq!(found, expected);
    assert_eq!(expected.len(), 14);
    assert_eq!(
        requested_cursors(&ahead).await,
        requested_cursors(&server).await
    );
}

#[tokio::test]
async fn a_repeated_cursor_is_found_with_prefetch_too() {
    let service = PagedService::default();
    service.put(None, &["c9"], json!("c9"));
    service.put(Some("c9"), &["c8"], json!("c8"));
    service.put(Some("c8"), &["c7"], json!("c9"));
    let server = service.serve().await;
    let contacts = contacts(server.uri());

    assert_eq!(seen(&contacts, true).await, seen(&contacts, false).await);
}

#[tokio::test]
async fn a_page_that_failed_is_fetched_again_only_when_the_caller_asks() {
    let server = respond_in_turn([ok(page(&["c9"], "c9")), status(500)]).await;
    let mut stream = contacts(server.uri())
        .list()
        .retry(RetryPolicy::none())
        .stream()
        .prefetch();

    stream.next().await.unwrap().unwrap();
    stream.next().await.unwrap().unwrap_err();
    tokio::time::sleep(Duration::from_millis(100)).await;

    assert_eq!(requested_cursors(&server).await.len(), 2);
}

/// Reads one request.
async fn read_request(stream: &mut TcpStream) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(stream.read_u8().await.unwrap());
    }
}

#[tokio::test]
async fn dropping_the_stream_cancels_the_request_ahead() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (ahead, arrived) = tokio::sync::oneshot::channel();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_request(&mut stream).await;
        let body = page(&["c9"], "c9").to_string();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all((head + &body).as_bytes()).await.unwrap();
        read_request(&mut stream).await;
        ahead.send(()).unwrap();
        // The client closes the connection of a canceled request.
        stream.read(&mut [0]).await
    });
    let contacts = contacts(url);

    let mut pages = contacts.list().pages().prefetch();
    in_time(pages.try_next()).await.unwrap();
    in_time(arrived).await.unwrap();
    assert!(!server.is_finished());
    drop(pages);

    assert!(matches!(in_time(server).await.unwrap(), Ok(0) | Err(_)));
}

#[test]
fn a_stream_outlives_the_runtime_that_fetched_ahead() {
    let (_server, contacts) = five_contacts();
    let runtime = || tokio::runtime::Runtime::new().unwrap();
    let mut stream = contacts.list().limit(2).stream().prefetch();

    let first = runtime();
    first.block_on(stream.try_next()).unwrap().unwrap();
    drop(first);
    let rest: Vec<_> = runtime().block_on(stream.try_collect()).unwrap();

    assert_eq!(rest.len(), 4);
}
