use audience::inbox::MemoryStore;
use audience::inbox::conformance::Suite;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_store_in_memory_passes_all_cases() {
    let store = MemoryStore::new();

    let report = Suite::new(store.clone()).also_through(store).run().await;

    report.assert_passed();
}
