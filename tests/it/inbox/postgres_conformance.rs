use audience::inbox::PostgresStore;
use audience::inbox::conformance::Suite;

use crate::support::postgres;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_postgres_store_passes_the_conformance_suite() {
    let Some(database) = postgres::database().await else {
        return;
    };
    let store = PostgresStore::connect(&database.url).await.unwrap();
    store.migrate().await.unwrap();
    let of_another_process = PostgresStore::connect(&database.url).await.unwrap();

    let report = Suite::new(store)
        .also_through(of_another_process)
        .run()
        .await;

    println!("{report}");
    report.assert_passed();
}
