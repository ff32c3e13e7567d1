//! A handler that is called for each event once, whatever happens to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use actix_web::{App, HttpServer, web};
use audience::inbox::{Attempt, Inbox, MemoryStore, Receipt, StoreError};
use audience::webhooks::Event;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;

use super::deliveries::{
    ADDRESS, FailingStore, Runs, delivery, delivery_about, delivery_of, store_in_test_time,
    unavailable,
};
use super::memory_conformance::TestClock;
use support::{PATIENCE, in_time};

fn inbox() -> Inbox {
    Inbox::builder(MemoryStore::new()).build().unwrap()
}

/// Delivers an event whose handler runs until something is sent, and waits until it runs.
async fn start_handling(inbox: &Inbox) -> (JoinHandle<Receipt>, oneshot::Sender<()>) {
    let (started, has_started) = oneshot::channel();
    let (finish, may_finish) = oneshot::channel::<()>();
    let inbox = inbox.clone();
    let delivered = tokio::spawn(async move {
        let handler = move |_, _| async move {
            started.send(()).unwrap();
            may_finish.await
        };
        inbox.handle(delivery("evt_1"), handler).await
    });
    has_started.await.unwrap();
    (delivered, finish)
}

#[tokio::test]
async fn an_event_is_handled_once_and_its_repeats_are_acknowledged() {
    let (inbox, runs) = (inbox(), Runs::default());

    let first = inbox.handle(delivery("evt_1"), runs.handler()).await;
    let second = inbox.handle(delivery("evt_1"), runs.handler()).await;
    let other = inbox.handle(delivery("evt_2"), runs.handler()).await;

    assert_eq!(
        [first, second, other],
        [Receipt::Handled, Receipt::Duplicate, Receipt::Handled]
    );
    assert_eq!(second.status(), 200);
    assert_eq!(runs.count(), 2);
}

#[tokio::test]
async fn a_handled_event_is_remembered_for_72_hours_or_as_long_as_the_inbox_is_told() {
    let hours = |hours: u64| Duration::from_secs(hours * 3_600);
    let four_centuries = hours(400 * 365 * 24);
    for (retention, remembered_for) in [(None, hours(72)), (Some(four_centuries), four_centuries)] {
        let (clock, runs) = (TestClock::new(), Runs::default());
        let mut inbox = Inbox::builder(clock.store());
        if let Some(retention) = retention {
            inbox = inbox.retention(retention);
        }
        let inbox = inbox.build().unwrap();

        let first = inbox.handle(delivery("evt_1"), runs.handler()).await;
        clock.advance(remembered_for - Duration::from_secs(1));
        let remembered = inbox.handle(delivery("evt_1"), runs.handler()).await;
        clock.advance(Duration::from_secs(1));
        let forgotten = inbox.handle(delivery("evt_1"), runs.handler()).await;

        assert_eq!(
            [first, remembered, forgotten],
            [Receipt::Handled, Receipt::Duplicate, Receipt::Handled]
        );
        assert_eq!(runs.count(), 2);
    }
}

#[tokio::test]
async fn the_handler_receives_the_event_and_which_attempt_it_is() {
    let inbox = inbox();
    let (sender, mut received) = mpsc::unbounded_channel();
    for outcome in [Err("busy"), Ok(())] {
        let sender = sender.clone();
        let handler = move |event: Event, attempt: Attempt| async move {
            sender.send((event, attempt)).unwrap();
            outcome
        };
        let receipt = inbox.handle(delivery("evt_1"), handler).await;
        assert_eq!(receipt.is_success(), outcome.is_ok());
    }

    let (event, first) = received.recv().await.unwrap();
    let (_, second) = received.recv().await.unwrap();

    assert_eq!(event.mail().unwrap().to, ADDRESS);
    assert_eq!((first.number(), first.remaining()), (1, 9));
    assert_eq!((second.number(), second.remaining()), (2, 8));
}

#[tokio::test(start_paused = true)]
async fn a_delivery_that_arrives_while_its_event_is_handled_is_told_to_come_back() {
    let (inbox, runs) = (inbox(), Runs::default());
    let (first, finish) = start_handling(&inbox).await;

    let second = inbox.handle(delivery("evt_1"), runs.handler()).await;
    finish.send(()).unwrap();

    assert_eq!(second.status(), 503);
    let seconds = second.retry_after().unwrap().as_secs();
    assert!((1..=60).contains(&seconds), "{second:?}");
    assert_eq!(runs.count(), 0);
    assert_eq!(first.await.unwrap(), Receipt::Handled);
}

#[tokio::test]
async fn an_error_is_a_500_and_the_next_delivery_is_another_attempt() {
    let (inbox, runs) = (inbox(), Runs::default());

    let failed = inbox.handle(delivery("evt_1"), |_, _| async { Err("busy") });
    let failed = failed.await;
    let next = inbox.handle(delivery("evt_1"), runs.handler()).await;

    assert_eq!(failed.status(), 500);
    assert_eq!((next, runs.count()), (Receipt::Handled, 1));
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_an_error_whether_it_comes_before_or_after_the_first_await() {
    let inbox = inbox();

    let before = inbox.handle(
        delivery("evt_1"),
        |_, _| -> std::future::Ready<Result<(), String>> { panic!("at once") },
    );
    let before = before.await;
    let after = inbox.handle(delivery("evt_1"), |_, _| async {
        tokio::task::yield_now().await;
        if true {
            panic!("later");
        }
        Ok::<_, String>(())
    });
    let after = after.await;
    let runs = Runs::default();
    let next = inbox.handle(delivery("evt_1"), runs.handler()).await;

    assert_eq!(
        [before, after, next],
        [Receipt::Failed, Receipt::Failed, Receipt::Handled]
    );
    assert_eq!(inbox.metrics().failed, 2);
}

#[tokio::test(start_paused = true)]
async fn a_handler_goes_on_when_the_sender_disconnects() {
    let (inbox, runs) = (inbox(), Runs::default());
    let (connection, finish) = start_handling(&inbox).await;

    connection.abort();
    connection.await.unwrap_err();
    finish.send(()).unwrap();
    inbox.wait_idle().await;

    let again = inbox.handle(delivery("evt_1"), runs.handler()).await;
    assert_eq!((again, runs.count()), (Receipt::Duplicate, 0));
    assert_eq!(inbox.metrics().handled, 1);
}

#[tokio::test(start_paused = true)]
async fn a_slow_handler_is_a_503_before_the_service_gives_up_and_the_next_delivery_is_a_repeat() {
    let inbox = Inbox::builder(store_in_test_time()).build().unwrap();
    let start = tokio::time::Instant::now();

    let slow = inbox.handle(delivery("evt_1"), |_, _| async {
        tokio::time::sleep(Duration::from_secs(90)).await;
        Ok::<_, String>(())
    });
    let slow = slow.await;
    let responded_after = start.elapsed();
    inbox.wait_idle().await;
    let handled_after = start.elapsed();
    let again = inbox
        .handle(delivery("evt_1"), Runs::default().handler())
        .await;

    assert_eq!((slow, slow.status().as_u16()), (Receipt::StillRunning, 503));
    assert_eq!(responded_after.as_secs(), 8);
    // Longer than the lease of 60 s, which was extended.
    assert_eq!(handled_after.as_secs(), 90);
    assert_eq!(again, Receipt::Duplicate);
}

#[tokio::test(start_paused = true)]
async fn the_time_in_which_the_body_arrived_counts_toward_the_service_s_ten_seconds() {
    let inbox = Inbox::builder(store_in_test_time()).build().unwrap();
    let delivery = delivery("evt_1");
    tokio::time::advance(Duration::from_secs(5)).await;
    let start = tokio::time::Instant::now();

    let receipt = inbox.handle(delivery, |_, _| async {
        tokio::time::sleep(Duration::from_secs(4)).await;
        Ok::<_, String>(())
    });

    assert_eq!(receipt.await, Receipt::StillRunning);
    assert_eq!(start.elapsed().as_secs(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_event_whose_lease_was_lost_is_not_reported_as_handled() {
    let store = FailingStore::new(store_in_test_time());
    let inbox = Inbox::builder(store.clone()).build().unwrap();
    store.fail(&["extend"], unavailable);
    let late = tokio::spawn({
        let inbox = inbox.clone();
        async move {
            let handler = |_, _| async {
                tokio::time::sleep(Duration::from_secs(100)).await;
                Ok::<_, String>(())
            };
            inbox.handle(delivery("evt_1"), handler).await
        }
    });

    tokio::time::sleep(Duration::from_secs(61)).await;
    let second = inbox
        .handle(delivery("evt_1"), Runs::default().handler())
        .await;
    inbox.wait_idle().await;

    assert_eq!(late.await.unwrap(), Receipt::StillRunning);
    assert_eq!(second, Receipt::Handled);
    assert_eq!(
        (inbox.metrics().handled, inbox.metrics().leases_lost),
        (1, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_kept_if_the_store_is_back_shortly_before_it_ends() {
    let store = FailingStore::new(store_in_test_time());
    let inbox = Inbox::builder(store.clone()).build().unwrap();
    store.fail(&["extend"], unavailable);
    let slow = inbox.handle(delivery("evt_1"), |_, _| async {
        tokio::time::sleep(Duration::from_secs(100)).await;
        Ok::<_, String>(())
    });
    let _ = slow.await;
    // The response came after 8 s. The lease ends after 60 s.
    tokio::time::sleep(Duration::from_secs(49)).await;
    store.recover();

    tokio::time::sleep(Duration::from_secs(2)).await;
    let meanwhile = inbox
        .handle(delivery("evt_1"), Runs::default().handler())
        .await;
    inbox.wait_idle().await;

    let Receipt::InProgress { retry_after, .. } = meanwhile else {
        panic!("{meanwhile:?}");
    };
    assert!(retry_after > Duration::from_secs(50), "{retry_after:?}");
    let metrics = inbox.metrics();
    assert_eq!((metrics.handled, metrics.leases_lost), (1, 0));
}

#[tokio::test]
async fn a_store_that_is_down_or_full_is_a_503_and_the_handler_does_not_run() {
    let store = FailingStore::new(MemoryStore::new());
    let inbox = Inbox::builder(store.clone()).build().unwrap();
    let runs = Runs::default();
    for (error, expected) in [
        (unavailable as fn() -> StoreError, Receipt::Unavailable),
        (|| StoreError::full("no room"), Receipt::Full),
        (|| StoreError::unusable("no table"), Receipt::Unavailable),
    ] {
        store.fail(&[], error);

        let handled = inbox.handle(delivery("evt_1"), runs.handler()).await;
        let accepted = inbox.accept(delivery("evt_1")).await;

        assert_eq!([handled, accepted], [expected; 2]);
        assert_eq!(handled.status(), 503);
    }
    assert_eq!(runs.count(), 0);

    store.recover();

    assert_eq!(
        inbox.handle(delivery("evt_1"), runs.handler()).await,
        Receipt::Handled
    );
    assert_eq!(inbox.metrics().store_errors, 6);
}

#[tokio::test(start_paused = true)]
async fn a_completion_that_the_store_missed_is_made_up_for_when_it_is_back() {
    let store = FailingStore::new(store_in_test_time());
    let inbox = Inbox::builder(store.clone()).build().unwrap();
    store.fail(&["complete"], unavailable);
    let runs = Runs::default();

    let first = inbox.handle(delivery("evt_1"), runs.handler()).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    store.recover();
    inbox.wait_idle().await;
    let again = inbox.handle(delivery("evt_1"), runs.handler()).await;

    assert_eq!([first, again], [Receipt::StillRunning, Receipt::Duplicate]);
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn an_id_that_comes_back_with_another_body_is_a_conflict_and_not_handled() {
    let (inbox, runs) = (inbox(), Runs::default());
    let first = inbox.handle(delivery("evt_1"), runs.handler()).await;
    assert_eq!(first, Receipt::Handled);

    let handled = inbox
        .handle(delivery_about("evt_1", "Other"), runs.handler())
        .await;
    let accepted = inbox.accept(delivery_about("evt_1", "Other")).await;

    assert_eq!([handled, accepted], [Receipt::Conflict; 2]);
    assert_eq!(handled.status(), 409);
    assert_eq!((runs.count(), inbox.metrics().conflicts), (1, 2));
}

#[tokio::test]
async fn an_event_whose_handler_failed_is_handled_once_if_its_next_delivery_has_another_body() {
    let (inbox, runs) = (inbox(), Runs::default());
    let fail = |_, _| async { Err::<(), _>("no") };
    let failed = inbox.handle(delivery("evt_1"), fail).await;

    let mut receipts = Vec::new();
    for subject in ["Other", "Other", "Third"] {
        let delivery = delivery_about("evt_1", subject);
        receipts.push(inbox.handle(delivery, runs.handler()).await);
    }

    assert_eq!(failed, Receipt::Failed);
    let expected = [Receipt::Handled, Receipt::Duplicate, Receipt::Conflict];
    assert_eq!(receipts, expected);
    assert_eq!((runs.count(), inbox.metrics().conflicts), (1, 1));
}

#[tokio::test]
async fn endpoints_that_share_a_store_handle_each_event_once_each() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    for endpoint in ["main", "audit"] {
        let inbox = Inbox::builder(store.clone())
            .endpoint(endpoint)
            .build()
            .unwrap();

        assert_eq!(
            inbox.handle(delivery("evt_1"), runs.handler()).await,
            Receipt::Handled
        );
    }
    assert_eq!(runs.count(), 2);
}

#[tokio::test]
async fn a_complaint_without_its_address_is_counted_once() {
    let body = r#"{"id": "evt_1", "type": "email.complained", "created_at": 1, "data": {"email_id": "em_1"}}"#;
    let runs = Runs::default();
    let handled = inbox();
    let first = handled
        .handle(delivery_of(body), |_, _| async { Err("no address") })
        .await;
    assert_eq!(first, Receipt::Failed);
    assert_eq!(handled.metrics().incomplete, 1, "before the second attempt");
    for delivery in [delivery_of(body), delivery("evt_2")] {
        let receipt = handled.handle(delivery, runs.handler()).await;
        assert_eq!(receipt, Receipt::Handled);
    }
    let accepted = inbox();
    assert!(accepted.accept(delivery_of(body)).await.is_success());
    assert!(accepted.accept(delivery_of(body)).await.is_success());
    assert!(accepted.accept(delivery("evt_2")).await.is_success());

    for inbox in [handled, accepted] {
        assert_eq!(inbox.metrics().incomplete, 1);
    }
}

#[tokio::test]
async fn an_event_of_a_type_that_does_not_exist_yet_is_counted_once_and_is_not_incomplete() {
    let body = r#"{"id": "evt_1", "type": "email.snoozed", "created_at": 1, "data": {}}"#;
    let runs = Runs::default();
    let (handled, accepted) = (inbox(), inbox());

    for _ in 0..2 {
        let receipt = handled.handle(delivery_of(body), runs.handler()).await;
        assert!(receipt.is_success());
        assert!(accepted.accept(delivery_of(body)).await.is_success());
    }
    assert!(accepted.accept(delivery("evt_2")).await.is_success());

    for metrics in [handled.metrics(), accepted.metrics()] {
        assert_eq!((metrics.unknown_type, metrics.incomplete), (1, 0));
    }
}

/// Serves a page of actix-web that handles `evt_1`, requests it once, and stops the server. Returns what the page
/// responded with.
async fn serve_once<F>(inbox: &Inbox, handler: impl Fn() -> F + Clone + Send + 'static) -> String
where
    F: Future<Output = Result<(), String>> + Send + 'static,
{
    let inbox = inbox.clone();
    let server = HttpServer::new(move || {
        let (inbox, handler) = (inbox.clone(), handler.clone());
        let page = move || {
            let (inbox, handler) = (inbox.clone(), handler.clone());
            async move { inbox.handle(delivery("evt_1"), move |_, _| handler()).await }
        };
        App::new().route("/", web::get().to(page))
    });
    // On a busy machine, the request may arrive late.
    let server = server.client_request_timeout(PATIENCE);
    let server = server.workers(1).disable_signals();
    let server = server.bind(("127.0.0.1", 0)).unwrap();
    let address = server.addrs()[0];
    let running = server.run();
    let handle = running.handle();
    let running = tokio::spawn(running);

    let mut connection = TcpStream::connect(address).await.unwrap();
    let request = b"GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";
    connection.write_all(request).await.unwrap();
    let mut response = String::new();
    connection.read_to_string(&mut response).await.unwrap();
    handle.stop(true).await;
    running.await.unwrap().unwrap();
    response
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_actix_web_a_handler_outlives_the_server() {
    let inbox = Inbox::builder(MemoryStore::new()).respond_within(Duration::from_millis(1));
    let inbox = inbox.build().unwrap();
    let (go_on, is_done) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));

    let (may_go_on, done) = (Arc::clone(&go_on), Arc::clone(&is_done));
    let handler = move || {
        let (may_go_on, done) = (Arc::clone(&may_go_on), Arc::clone(&done));
        async move {
            // It belongs to the runtime in which it is created.
            let pause = tokio::time::sleep(Duration::from_millis(1));
            may_go_on.notified().await;
            pause.await;
            done.store(true, Ordering::SeqCst);
            Ok(())
        }
    };
    let response = serve_once(&inbox, handler).await;
    go_on.notify_one();
    in_time(inbox.wait_idle()).await;

    assert!(response.starts_with("HTTP/1.1 503 "), "{response}");
    assert!(is_done.load(Ordering::SeqCst));
    assert_eq!(inbox.metrics().handled, 1);
}

#[test]
fn an_inbox_outlives_the_runtime_in_which_it_was_built() {
    let first = Runtime::new().unwrap();
    let inbox = first.block_on(async { inbox() });
    drop(first);
    let mut other = tokio::runtime::Builder::new_current_thread();
    let other = other.enable_all().start_paused(true).build().unwrap();

    let receipt = other.block_on(inbox.handle(delivery("evt_1"), |_, _| async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        Ok::<_, String>(())
    }));

    assert_eq!(receipt, Receipt::Handled);
}
