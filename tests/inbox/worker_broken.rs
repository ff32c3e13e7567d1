//! Workers with odd settings, stores and handlers.

use std::time::Duration;

use audience::inbox::{Inbox, MemoryStore, Receipt, WorkerReport};
use tokio::sync::oneshot;

use super::deliveries::{delivery, store_in_test_time};
use super::faulty_store::{Fault, FaultyStore};

fn inbox() -> Inbox {
    Inbox::builder(store_in_test_time()).build().unwrap()
}

async fn accept(inbox: &Inbox, events: u32) {
    for number in 1..=events {
        let receipt = inbox.accept(delivery(&format!("evt_{number}"))).await;
        assert_eq!(receipt, Receipt::Accepted);
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_is_ready_at_once_takes_nothing() {
    let inbox = inbox();
    accept(&inbox, 1).await;

    let worker = inbox.worker(|_, _| async { Ok::<_, String>(()) });
    let report = worker.run_until(async {}).await.unwrap();

    assert_eq!(report, WorkerReport::default());
    assert_eq!(inbox.backlog().await.unwrap().waiting, 1);
}

#[tokio::test(start_paused = true)]
async fn no_poll_interval_and_no_concurrency_stops_a_worker() {
    for interval in [Duration::ZERO, Duration::MAX] {
        for concurrency in [0, 1, usize::MAX] {
            let inbox = inbox();
            accept(&inbox, 20).await;
            let worker = inbox.worker(|_, _| async {
                tokio::time::sleep(Duration::from_millis(1)).await;
                Ok::<_, String>(())
            });
            let worker = worker.poll_interval(interval).concurrency(concurrency);

            let end = tokio::time::sleep(Duration::from_secs(1));
            let report = worker.run_until(end).await.unwrap();

            assert_eq!(report.handled, 20, "{interval:?}, {concurrency}");
        }
    }
}

#[tokio::test]
async fn a_store_that_returns_more_events_than_it_was_asked_for_does_not_stop_a_worker() {
    let store = FaultyStore::new(MemoryStore::new(), Fault::IgnoresLimits);
    let inbox = Inbox::builder(store).build().unwrap();
    accept(&inbox, 20).await;

    let worker = inbox.worker(|_, _| async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        Ok::<_, String>(())
    });
    let (stop, stopped) = oneshot::channel::<()>();
    let worker = tokio::spawn(worker.concurrency(1).run_until(async {
        let _ = stopped.await;
    }));
    while inbox.metrics().handled < 20 && !worker.is_finished() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let _ = stop.send(());

    assert_eq!(worker.await.unwrap().unwrap().handled, 20);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_fails_its_attempt_only() {
    let inbox = inbox();
    accept(&inbox, 2).await;

    let worker = inbox.worker(|event, _| async move {
        assert_ne!(event.id.as_str(), "evt_1", "this one panics");
        Ok::<_, String>(())
    });
    let report = worker.max_attempts(1).run_until_idle().await.unwrap();

    assert_eq!((report.handled, report.parked), (1, 1));
    let reason = &inbox.parked().await.unwrap()[0].reason;
    assert!(reason.starts_with("the handler panicked: "), "{reason}");
}
