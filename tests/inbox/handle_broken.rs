//! Handlers, stores and runtimes that fail in odd ways.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use audience::inbox::{Inbox, MemoryStore, Receipt, StoreError};
use futures_util::FutureExt;
use tokio::sync::oneshot;

use super::deliveries::{FailingStore, Runs, delivery, store_in_test_time, unavailable};

fn inbox() -> Inbox {
    Inbox::builder(MemoryStore::new()).build().unwrap()
}

#[tokio::test]
async fn a_parked_event_that_is_delivered_again_is_acknowledged_and_not_handled() {
    let (inbox, runs) = (inbox(), Runs::default());
    assert!(inbox.accept(delivery("evt_1")).await.is_success());
    let fail = |_, _| async { Err::<(), _>("no") };
    let worker = inbox.worker(fail).max_attempts(1);
    worker.run_until_idle().await.unwrap();

    let receipt = inbox.handle(delivery("evt_1"), runs.handler()).await;

    assert_eq!((receipt, runs.count()), (Receipt::Duplicate, 0));
    assert_eq!(inbox.parked().await.unwrap().len(), 1);
}

#[tokio::test]
async fn an_error_whose_text_panics_is_a_failed_attempt() {
    #[derive(Debug)]
    struct Unprintable;
    impl std::fmt::Display for Unprintable {
        fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            panic!("no text")
        }
    }
    impl std::error::Error for Unprintable {}
    let (inbox, runs) = (inbox(), Runs::default());

    let failed = inbox.handle(delivery("evt_1"), |_, _| async { Err(Unprintable) });
    let failed = failed.await;
    let next = inbox.handle(delivery("evt_1"), runs.handler()).await;

    assert_eq!([failed, next], [Receipt::Failed, Receipt::Handled]);
    assert_eq!(inbox.metrics().failed, 1);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_panics_is_a_503_and_counted() {
    // The second one panics when the handler has let others run, and so in a task.
    for operation in [&["claim"], &["complete"]] {
        let store = FailingStore::new(MemoryStore::new());
        let inbox = Inbox::builder(store.clone()).build().unwrap();
        store.fail(operation, || panic!("a bug of the store"));

        let receipt = inbox.handle(delivery("evt_1"), |_, _| async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            Ok::<_, String>(())
        });
        let receipt = receipt.await;
        inbox.wait_idle().await;

        assert_eq!(receipt, Receipt::Unavailable, "{operation:?}");
        assert_eq!(inbox.metrics().store_errors, 1, "{operation:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_respond_is_a_503_in_time_and_counted() {
    let store = FailingStore::new(MemoryStore::new());
    let inbox = Inbox::builder(store.clone()).build().unwrap();
    store.hang(&["accept"]);
    let start = tokio::time::Instant::now();

    let receipt = inbox.accept(delivery("evt_1")).await;

    assert_eq!(receipt, Receipt::Unavailable);
    assert_eq!(start.elapsed().as_secs(), 8);
    assert_eq!(inbox.metrics().store_errors, 1);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_fails_after_its_lease_was_lost_leaves_the_event_to_its_new_holder() {
    let store = FailingStore::new(store_in_test_time());
    let inbox = Inbox::builder(store.clone()).build().unwrap();
    store.fail(&["extend"], unavailable);
    let late = inbox.handle(delivery("evt_1"), |_, _| async {
        tokio::time::sleep(Duration::from_secs(100)).await;
        Err::<(), _>("too late")
    });
    let _ = late.await;
    tokio::time::sleep(Duration::from_secs(61)).await;

    let second = inbox
        .handle(delivery("evt_1"), Runs::default().handler())
        .await;
    inbox.wait_idle().await;
    let third = inbox
        .handle(delivery("evt_1"), Runs::default().handler())
        .await;

    assert_eq!([second, third], [Receipt::Handled, Receipt::Duplicate]);
    let metrics = inbox.metrics();
    assert_eq!((metrics.failed, metrics.leases_lost), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn forgotten_events_are_purged_once_a_minute_while_deliveries_arrive() {
    let store = FailingStore::new(store_in_test_time());
    let inbox = Inbox::builder(store.clone()).build().unwrap();
    // Each purge is counted, because it fails.
    store.fail(&["purge"], unavailable);
    let mut purges = Vec::new();
    for number in 0..5 {
        for repeat in 0..10 {
            let delivery = delivery(&format!("evt_{number}_{repeat}"));
            let receipt = inbox.handle(delivery, Runs::default().handler()).await;
            assert!(receipt.is_success());
        }
        tokio::task::yield_now().await;
        purges.push(inbox.metrics().store_errors);
        tokio::time::sleep(Duration::from_secs(30)).await;
    }

    assert_eq!(purges, [0, 0, 1, 1, 2]);
    assert!(inbox.purge().await.is_err());
    store.recover();
    tokio::time::sleep(Duration::from_secs(73 * 3_600)).await;
    assert_eq!(inbox.purge().await.unwrap(), 50);
}

#[test]
fn the_end_of_a_runtime_cuts_a_handler_off_and_its_event_is_handled_after_the_lease() {
    let seconds = Arc::new(AtomicU32::new(0));
    let clock = Arc::clone(&seconds);
    let start = std::time::SystemTime::now();
    let store = MemoryStore::builder()
        .clock(move || start + Duration::from_secs(clock.load(Ordering::SeqCst).into()))
        .build();
    let inbox = Inbox::builder(store).build().unwrap();
    let new_runtime = || tokio::runtime::Runtime::new().unwrap();
    let first = new_runtime();
    let second = new_runtime();
    let (started, has_started) = oneshot::channel();
    let cut_off = first.spawn({
        let inbox = inbox.clone();
        async move {
            let handler = |_, _| {
                started.send(()).unwrap();
                std::future::pending::<Result<(), String>>()
            };
            inbox.handle(delivery("evt_1"), handler).await
        }
    });
    second.block_on(has_started).unwrap();

    first.shutdown_timeout(Duration::from_secs(60));

    let runs = Runs::default();
    let handle = || inbox.handle(delivery("evt_1"), runs.handler());
    second.block_on(async {
        // Which of its two tasks the runtime drops first is up to the runtime.
        match cut_off.await {
            Ok(receipt) => assert_eq!(receipt.status(), 503),
            Err(error) => assert!(error.is_cancelled()),
        }
        inbox.wait_idle().await;
        assert_eq!(handle().await.status(), 503);
        seconds.store(61, Ordering::SeqCst);
        assert_eq!(handle().await, Receipt::Handled);
    });
    assert_eq!(runs.count(), 1);
}

#[test]
fn a_handler_that_the_end_of_its_runtime_cuts_off_is_a_503_and_no_failure_of_the_store() {
    let inbox = inbox();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let handler = |_, _| std::future::pending::<Result<(), String>>();
    // This future outlives the runtime, which has the handler in a task.
    let mut handled = Box::pin(inbox.handle(delivery("evt_1"), handler));

    let early = runtime.block_on(async { handled.as_mut().now_or_never() });
    drop(runtime);
    let receipt = handled.now_or_never();

    assert_eq!((early, receipt), (None, Some(Receipt::Unavailable)));
    assert_eq!(inbox.metrics().store_errors, 0);
}

#[tokio::test(start_paused = true)]
async fn a_completion_that_fails_is_retried_for_as_long_as_a_lease_if_that_can_help() {
    fn without_a_table() -> StoreError {
        StoreError::unusable("no such table")
    }
    // Six waits of 50 ms to 1.6 s, and 28 of 2 s.
    for (error, attempts) in [
        (unavailable as fn() -> StoreError, 35),
        (without_a_table, 1),
    ] {
        let store = FailingStore::new(store_in_test_time());
        let lease = Duration::from_secs(60);
        let inbox = Inbox::builder(store.clone()).lease(lease).build().unwrap();
        store.fail(&["complete"], error);

        let handled = inbox.handle(delivery("evt_1"), Runs::default().handler());
        let _ = handled.await;
        inbox.wait_idle().await;

        assert_eq!(inbox.metrics().store_errors, attempts);
    }
}
