use audience::inbox::conformance::Suite;

use super::store;
use crate::support::redis::server;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_store_in_redis_passes_all_cases() {
    let Some(server) = server().await else { return };
    let store = store(&server).await;

    let report = Suite::new(store.clone())
        .also_through(store)
        .expires_by_itself()
        .run()
        .await;

    println!("{report}");
    report.assert_passed();
}
