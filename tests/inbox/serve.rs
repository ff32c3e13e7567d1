//! A server and its workers in one program.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use audience::inbox::{Inbox, MemoryStore, Receipt, StoreError};
use audience::mock::Fault;
use axum::routing::get;
use axum::{Extension, Router};
use support::cancellation::until;
use support::{ADA, PATIENCE, in_time};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::deliveries::{FailingStore, delivery, store_in_test_time};
use super::unsubscribe::FORM;
use super::unsubscribe_mail::{ask, mock, sent_links, service};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: test\r\n\r\n";

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

async fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).await.unwrap()
}

/// Reads until the server closes the connection.
async fn read_all(mut connection: TcpStream) -> String {
    let mut text = String::new();
    connection.read_to_string(&mut text).await.unwrap();
    text
}

/// A page that responds as soon as it is told to.
fn slow_page(started: Arc<Notify>, go_on: Arc<Notify>) -> Router {
    let page = async move || {
        started.notify_one();
        go_on.notified().await;
        "done"
    };
    Router::new().route("/", get(page))
}

#[tokio::test]
async fn a_shutdown_lets_running_requests_finish_and_closes_idle_connections_and_the_port() {
    let (listener, address) = listen().await;
    let (started, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (stop, stopped) = oneshot::channel::<()>();
    let router = slow_page(Arc::clone(&started), Arc::clone(&go_on));
    let shutdown = async { stopped.await.unwrap() };
    let server = audience::serve(listener, router).shutdown_timeout(PATIENCE);
    let server = tokio::spawn(server.run_until(shutdown));

    let idle = connect(address).await;
    let mut busy = connect(address).await;
    busy.write_all(REQUEST).await.unwrap();
    started.notified().await;
    stop.send(()).unwrap();
    assert_eq!(read_all(idle).await, "");
    assert!(!server.is_finished());
    go_on.notify_one();

    assert!(read_all(busy).await.ends_with("done"));
    server.await.unwrap().unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn each_request_has_its_peer() {
    let (listener, address) = listen().await;
    let show = async |Extension(peer): Extension<SocketAddr>| peer.to_string();
    let router = Router::new().route("/", get(show));
    let server = tokio::spawn(audience::serve(listener, router).run_until(pending()));

    let mut connection = connect(address).await;
    let peer = connection.local_addr().unwrap().to_string();
    let close = b"GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";
    connection.write_all(close).await.unwrap();

    assert!(read_all(connection).await.ends_with(&peer));
    server.abort();
}

#[tokio::test(start_paused = true)]
async fn a_request_that_never_ends_delays_the_shutdown_no_longer_than_its_limit() {
    let (listener, address) = listen().await;
    let started = Arc::new(Notify::new());
    let router = slow_page(Arc::clone(&started), Arc::new(Notify::new()));
    let mut connection = connect(address).await;
    connection.write_all(REQUEST).await.unwrap();

    let start = Instant::now();
    let server = audience::serve(listener, router).shutdown_timeout(Duration::from_secs(6));
    server.run_until(started.notified()).await.unwrap();

    assert_eq!(start.elapsed().as_secs(), 6);
    assert_eq!(read_all(connection).await, "");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_sends_no_headers_is_closed_after_5_s() {
    for sent in ["", "GET / HTTP/1.1\r\n"] {
        let (listener, address) = listen().await;
        let mut connection = connect(address).await;
        connection.write_all(sent.as_bytes()).await.unwrap();

        let start = Instant::now();
        let closed = async {
            read_all(connection).await;
        };
        let server = audience::serve(listener, Router::<()>::new());
        server.run_until(closed).await.unwrap();

        assert_eq!(start.elapsed().as_secs(), 5, "{sent}");
    }
}

/// Reads a response with the body `up`, whose connection stays open.
async fn read_up(connection: &mut TcpStream) -> String {
    let mut response = Vec::new();
    while !response.ends_with(b"up") {
        assert_ne!(connection.read_buf(&mut response).await.unwrap(), 0);
    }
    String::from_utf8(response).unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_kept_for_longer_than_load_balancers_keep_theirs() {
    let (listener, address) = listen().await;
    let router = Router::new().route("/", get(|| async { "up" }));
    let server = tokio::spawn(audience::serve(listener, router).run_until(pending()));
    let mut connection = connect(address).await;

    for wait in [0, 30, 610] {
        tokio::time::sleep(Duration::from_secs(wait)).await;
        connection.write_all(REQUEST).await.unwrap();
        let response = read_up(&mut connection).await;
        assert!(
            response.starts_with("HTTP/1.1 200 OK"),
            "{wait}: {response}"
        );
    }
    let start = Instant::now();
    read_all(connection).await;

    assert_eq!(start.elapsed().as_secs(), 620);
    server.abort();
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_does_not_continue_its_second_request_is_closed_after_5_s() {
    let (listener, address) = listen().await;
    // The last byte of a body comes in a read of its own.
    let router = Router::new().route("/", get(async |body: String| body));
    let server = tokio::spawn(audience::serve(listener, router).run_until(pending()));
    let mut connection = connect(address).await;
    let request = b"GET / HTTP/1.1\r\nhost: test\r\ncontent-length: 2\r\n\r\nu";
    connection.write_all(request).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    connection.write_all(b"p").await.unwrap();
    read_up(&mut connection).await;

    tokio::time::sleep(Duration::from_secs(30)).await;
    connection.write_all(b"G").await.unwrap();
    let start = Instant::now();
    read_all(connection).await;

    assert_eq!(start.elapsed().as_secs(), 5);
    server.abort();
}

#[tokio::test(start_paused = true)]
async fn a_connection_whose_peer_reads_no_response_is_closed() {
    // More than the system keeps for a connection.
    const LENGTH: usize = 32 * 1024 * 1024;
    let (listener, address) = listen().await;
    let router = Router::new().route("/", get(async || vec![b'x'; LENGTH]));
    let server = tokio::spawn(audience::serve(listener, router).run_until(pending()));
    let mut connection = connect(address).await;
    connection.write_all(REQUEST).await.unwrap();
    // Now the response has begun.
    connection.read_exact(&mut [0; 15]).await.unwrap();

    tokio::time::sleep(Duration::from_secs(600)).await;
    let mut rest = Vec::new();
    // Some systems report an error after the last byte.
    connection.read_to_end(&mut rest).await.ok();

    assert!(rest.len() < LENGTH, "{}", rest.len());
    server.abort();
}

#[tokio::test(start_paused = true)]
async fn workers_handle_events_beside_the_server_and_release_what_the_shutdown_cuts_off() {
    let inbox = Inbox::builder(store_in_test_time()).build().unwrap();
    let other = Inbox::builder(store_in_test_time()).build().unwrap();
    for inbox in [&inbox, &other] {
        assert_eq!(inbox.accept(delivery("evt_1")).await, Receipt::Accepted);
    }
    let handled = Arc::new(Notify::new());
    let notify = Arc::clone(&handled);
    let worker = other.worker(move |_, _| {
        notify.notify_one();
        async { Ok::<_, String>(()) }
    });

    let (listener, _) = listen().await;
    let start = Instant::now();
    audience::serve(listener, Router::<()>::new())
        .worker(inbox.worker(|_, _| pending::<Result<(), String>>()))
        .worker(worker)
        .shutdown_timeout(Duration::from_secs(6))
        .run_until(handled.notified())
        .await
        .unwrap();

    assert_eq!(start.elapsed().as_secs(), 6);
    assert_eq!(inbox.backlog().await.unwrap().waiting, 1);
    assert_eq!(other.accept(delivery("evt_1")).await, Receipt::Duplicate);
}

#[tokio::test]
async fn a_click_whose_form_arrives_after_the_worker_has_ended_is_finished_although_the_visitor_leaves()
 {
    let server = mock().await;
    let service = service(&server, MemoryStore::new());
    ask(&service, &["news"]).await.unwrap();
    let link = sent_links(&server).remove(0);
    let path = link.strip_prefix("https://shop.example.com").unwrap();
    let create = Fault::delay(Duration::from_millis(500)).path("/contacts");
    server.fault(create.method("POST").times(1));
    let (listener, address) = listen().await;
    let (stop, stopped) = oneshot::channel::<()>();
    let worker = service.worker();
    let serving = audience::serve(listener, service)
        .worker(worker)
        .run_until(async { stopped.await.unwrap() });
    let serving = tokio::spawn(serving);

    let mut visitor = connect(address).await;
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: shop.example.com\r\nexpect: 100-continue\r\n\
         content-type: {FORM}\r\ncontent-length: 11\r\n\r\n"
    );
    visitor.write_all(head.as_bytes()).await.unwrap();
    // Now the form is being read.
    let mut response = [0; 25];
    visitor.read_exact(&mut response).await.unwrap();
    assert_eq!(&response, b"HTTP/1.1 100 Continue\r\n\r\n");
    visitor.write_all(b"confirm").await.unwrap();
    stop.send(()).unwrap();
    // The worker ends meanwhile.
    tokio::time::sleep(Duration::from_millis(200)).await;
    visitor.write_all(b"=yes").await.unwrap();
    until(|| {
        let mut requests = server.requests().into_iter();
        requests.any(|sent| sent.method == "POST" && sent.path == "/contacts")
    })
    .await;
    drop(visitor);
    serving.await.unwrap().unwrap();

    let ada = server.contact(ADA).unwrap();
    assert!(!ada.unsubscribed && ada.topics["news"] && !ada.topics["offers"]);
}

fn broken() -> StoreError {
    panic!("a bug of the store")
}

#[tokio::test]
async fn a_worker_that_panics_ends_the_server() {
    let store = FailingStore::new(store_in_test_time());
    store.fail(&["take"], broken);
    let inbox = Inbox::builder(store).build().unwrap();
    let worker = inbox.worker(|_, _| async { Ok::<_, String>(()) });

    let (listener, address) = listen().await;
    let server = audience::serve(listener, Router::<()>::new()).worker(worker);
    let error = server.run_until(pending()).await.unwrap_err();

    assert!(error.to_string().contains("panicked"), "{error}");
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn dropping_the_future_closes_the_port_and_the_connections() {
    let (listener, address) = listen().await;
    let started = Arc::new(Notify::new());
    let router = slow_page(Arc::clone(&started), Arc::new(Notify::new()));
    let mut connection = connect(address).await;
    connection.write_all(REQUEST).await.unwrap();

    tokio::select! {
        ended = audience::serve(listener, router) => panic!("{ended:?}"),
        () = started.notified() => {}
    }

    assert_eq!(read_all(connection).await, "");
    assert!(TcpStream::connect(address).await.is_err());
}

/// Runs as a program of its own, because the process remembers the signal.
#[cfg(unix)]
#[test]
fn a_signal_that_came_during_the_start_is_remembered() {
    const IS_CHILD: &str = "AUDIENCE_TEST_SIGNALS";
    let name = "serve::a_signal_that_came_during_the_start_is_remembered";
    if std::env::var_os(IS_CHILD).is_none() {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let child = child.args(["--exact", name]).env(IS_CHILD, "1");
        let ended = child.output().unwrap();
        let text = String::from_utf8_lossy(&ended.stdout).into_owned();
        assert!(
            ended.status.success() && text.contains("1 passed"),
            "{text}"
        );
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let asked = tokio::time::timeout(Duration::from_millis(10), audience::shutdown_signal());
        assert!(asked.await.is_err(), "no signal has arrived");
        let pid = std::process::id().to_string();
        let kill = std::process::Command::new("kill")
            .args(["-TERM", &pid])
            .status();
        assert!(kill.unwrap().success());
        // The start continues, and nobody waits for a signal.
        tokio::time::sleep(Duration::from_millis(300)).await;

        for _ in 1..=2 {
            in_time(audience::shutdown_signal()).await;
        }
        let (listener, _) = listen().await;
        let served = audience::serve(listener, Router::<()>::new());
        in_time(served).await.unwrap();
    });
}
