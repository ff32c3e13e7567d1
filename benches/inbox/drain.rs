//! Drains accepted events with a worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use audience::inbox::{AcceptState, EventKey, Fingerprint, Inbox, NewDelivery, Store};
use tokio::sync::Notify;

use crate::claims::ENDPOINT;
use crate::deliveries;
use crate::load::{Load, repeat};

/// How many are accepted simultaneously. That is not measured.
const ACCEPTED_AT_ONCE: u32 = 16;

/// Returns how many accepted events a second a worker handles that does nothing with them.
pub(crate) async fn rate<S: Store + Clone>(store: &S, load: Load) -> f64 {
    let accepting = Load {
        workers: ACCEPTED_AT_ONCE,
        ..load
    };
    accepting
        .rate(|each, end| {
            let store = store.clone();
            async move { repeat(each, end, || accept(&store)).await }
        })
        .await;
    let waiting = store.backlog(ENDPOINT).await.unwrap().waiting;

    let inbox = Inbox::builder(store.clone())
        .endpoint(ENDPOINT)
        .build()
        .unwrap();
    let (handled, all) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
    let is_over = {
        let all = Arc::clone(&all);
        async move {
            let end = tokio::time::sleep_until(Load::ends_at().into());
            tokio::select! {
                () = all.notified() => {}
                () = end => {}
            }
        }
    };
    let worker = inbox.worker(move |_, _| {
        if handled.fetch_add(1, Ordering::Relaxed) + 1 == waiting {
            all.notify_one();
        }
        async { Ok::<_, std::io::Error>(()) }
    });
    let worker = worker.concurrency(load.workers as usize);
    let start = Instant::now();
    let report = worker.run_until(is_over).await.unwrap();
    let handled = u32::try_from(report.handled).unwrap();
    f64::from(handled) / start.elapsed().as_secs_f64()
}

async fn accept(store: &impl Store) {
    let id = deliveries::id();
    let body = deliveries::body(id.as_str());
    let delivery = NewDelivery::new(
        EventKey::new(ENDPOINT, &id),
        body.as_bytes(),
        Fingerprint::of(body.as_bytes()),
    );
    assert_eq!(store.accept(delivery).await.unwrap(), AcceptState::Accepted);
}
