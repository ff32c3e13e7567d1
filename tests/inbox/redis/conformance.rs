use std::sync::Arc;

use audience::inbox::conformance::Suite;
use tokio::sync::Mutex;

use super::{connect, store};
use crate::postgres_conformance::OUTAGE_CASES;
use support::redis::{OwnRedis, server};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_store_in_redis_passes_all_cases() {
    let Some(server) = server().await else { return };
    let store = store(&server).await;

    let report = Suite::new(store.clone())
        .also_through(store)
        .expires_by_itself()
        .run()
        .await;

    report.assert_passed();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_server_that_writes_everything_to_its_disk_loses_nothing_in_an_outage() {
    let settings = &["--appendonly", "yes", "--appendfsync", "always"];
    let Some(server) = OwnRedis::start(settings).await else {
        return;
    };
    let (store, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let server = Arc::new(Mutex::new(server));
    let (stopped, started) = (Arc::clone(&server), server);

    let report = Suite::new(store)
        .also_through(other)
        .expires_by_itself()
        .only(OUTAGE_CASES)
        .outage(
            move || {
                let server = Arc::clone(&stopped);
                async move { server.lock().await.kill() }
            },
            move || {
                let server = Arc::clone(&started);
                async move { server.lock().await.restart().await }
            },
        )
        .run()
        .await;

    report.assert_passed();
}
