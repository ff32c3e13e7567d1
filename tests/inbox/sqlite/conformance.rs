use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use audience::inbox::conformance::{ClockJump, Suite};
use audience::inbox::{SqliteStore, Synchronous};

use super::Folder;
use support::PATIENCE;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_store_in_a_file_passes_all_cases_through_two_connections() {
    let folder = Folder::new("conformance");
    // Durability is tested elsewhere.
    let open = || {
        let builder = SqliteStore::builder()
            .synchronous(Synchronous::Normal)
            .busy_timeout(PATIENCE);
        builder.open(folder.file()).unwrap()
    };
    let store = open();

    let report = Suite::new(store.clone())
        .also_through(store)
        .also_through(open())
        .run()
        .await;

    report.assert_passed();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_store_in_a_file_with_a_clock_that_jumps_passes_all_cases() {
    let folder = Folder::new("conformance-clock");
    let offset = Arc::new(AtomicI64::new(0));
    let clock = Arc::clone(&offset);
    let store = SqliteStore::builder()
        .synchronous(Synchronous::Normal)
        .clock(move || {
            let ms = clock.load(Ordering::SeqCst);
            let by = Duration::from_millis(ms.unsigned_abs());
            let now = SystemTime::now();
            if ms < 0 { now - by } else { now + by }
        })
        .open(folder.file())
        .unwrap();
    let ms = |duration: Duration| i64::try_from(duration.as_millis()).unwrap();
    let waited = Arc::clone(&offset);

    let report = Suite::new(store)
        .waiting_with(move |duration| {
            waited.fetch_add(ms(duration), Ordering::SeqCst);
            std::future::ready(())
        })
        .clock_jump(move |jump| {
            match jump {
                ClockJump::Forward(by) => offset.fetch_add(ms(by), Ordering::SeqCst),
                ClockJump::Back(by) => offset.fetch_sub(ms(by), Ordering::SeqCst),
            };
            std::future::ready(())
        })
        .run()
        .await;

    report.assert_passed();
}
