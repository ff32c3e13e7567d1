//! Imports that are dropped, and tasks that do not end as they should.

use std::time::Duration;

use audience::mock::{Fault, MockServer};
use futures_util::StreamExt;

use super::{JournalPath, batches, contacts, counts, numbered};
use support::cancellation::{for_each_number_of_polls, poll_times};
use support::{PATIENCE, in_time};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_that_is_dropped_at_any_moment_is_finished_by_the_next() {
    let server = MockServer::start().await;
    let journal = JournalPath::new();
    let contacts = contacts(&server);
    let mut dropped = 0;

    for step in 0..25 {
        let import = contacts.import(numbered(3_000)).journal(journal.open());
        let limit = Duration::from_millis(step);
        let ended = tokio::time::timeout(limit, import.into_future()).await;
        dropped += u32::from(ended.is_err());
    }
    let report = in_time(contacts.import(numbered(3_000)).journal(journal.open()))
        .await
        .unwrap();

    assert!(dropped > 0);
    assert_eq!(report.created() + report.updated(), 3_000);
    assert!(report.is_complete());
    assert_eq!(server.contact_count(), 3_000);
}

#[tokio::test]
async fn an_import_that_is_dropped_after_any_number_of_polls_is_finished_by_the_next() {
    let polls = for_each_number_of_polls(async |polls| {
        let server = MockServer::start().await;
        let journal = JournalPath::new();
        let contacts = contacts(&server);
        let import = || contacts.import(numbered(150)).journal(journal.open());

        let ended = poll_times(polls, import().into_future()).await;
        let report = in_time(import()).await.unwrap();

        assert_eq!(report.created() + report.updated(), 150, "{polls}");
        assert!(report.is_complete(), "{polls}");
        assert_eq!(server.contact_count(), 150, "{polls}");
        ended.is_some()
    })
    .await;

    // On a slow machine, all responses arrive between two polls.
    assert!(polls > 1, "{polls}");
}

#[tokio::test]
async fn an_outcome_that_is_awaited_again_after_any_number_of_polls_is_not_lost() {
    let polls = for_each_number_of_polls(async |polls| {
        let server = MockServer::start().await;
        let mut outcomes = contacts(&server).import(numbered(150)).outcomes();
        let (mut rows, mut is_whole) = (0, true);
        loop {
            let next = match poll_times(polls, outcomes.next()).await {
                Some(next) => next,
                None => {
                    is_whole = false;
                    in_time(outcomes.next()).await
                }
            };
            if next.is_none() {
                break;
            }
            rows += 1;
        }

        assert_eq!(rows, 150, "{polls}");
        assert_eq!(outcomes.finish().unwrap().created(), 150, "{polls}");
        is_whole
    })
    .await;

    assert!(polls > 1, "{polls}");
}

#[tokio::test]
async fn outcomes_that_are_dropped_cancel_the_import() {
    let server = MockServer::start().await;
    let import = contacts(&server).import(numbered(5_000)).concurrency(1);
    let mut outcomes = import.outcomes();
    outcomes.next().await.unwrap();

    let report = outcomes.finish().unwrap();

    assert!((100..5_000).contains(&report.total()));
    let sent = batches(&server).len();
    tokio::time::sleep(Duration::from_millis(100)).await;
    // On a slow machine, the last one arrives later.
    assert!(batches(&server).len() <= sent + 1);
}

#[tokio::test]
async fn an_import_that_is_never_awaited_sends_nothing_and_leaves_its_journal_empty() {
    let server = MockServer::start().await;
    let journal = JournalPath::new();

    drop(
        contacts(&server)
            .import(numbered(5))
            .journal(journal.open()),
    );
    drop(
        contacts(&server)
            .import(numbered(5))
            .journal(journal.open())
            .outcomes(),
    );

    assert!(server.requests().is_empty());
    assert_eq!(journal.read(), "");
}

#[tokio::test]
async fn an_import_of_rows_that_need_no_request_lets_other_tasks_run_and_can_be_cancelled() {
    let server = MockServer::start().await;
    let rows = std::iter::repeat_with(|| audience::import::ImportRow::unreadable("x"));
    let limit = Duration::from_millis(100);

    // On this runtime of one thread, the timeout fires only if the import yields.
    let ended = tokio::time::timeout(limit, contacts(&server).import(rows).into_future()).await;

    assert!(ended.is_err());
}

#[tokio::test]
async fn an_infinite_import_that_stopped_at_the_plans_ceiling_can_be_cancelled() {
    let server = MockServer::builder().contact_ceiling(10).start().await;
    let rows = (0_u64..).map(|n| format!("{n}@x.io"));
    let limit = Duration::from_millis(200);

    let ended = tokio::time::timeout(limit, contacts(&server).import(rows).into_future()).await;

    assert!(ended.is_err());
}

#[test]
fn a_runtime_that_stops_in_the_middle_leaves_a_journal_that_can_be_resumed() {
    let server = MockServer::builder().start_blocking();
    server.fault(Fault::delay(Duration::from_secs(20)).after(3).times(2));
    let journal = JournalPath::new();
    let contacts = contacts(&server);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.spawn(
        contacts
            .import(numbered(2_000))
            .journal(journal.open())
            .into_future(),
    );
    while server.requests().len() < 5 {
        std::thread::sleep(Duration::from_millis(1));
    }
    // All tasks have ended, so the file of the journal is closed.
    runtime.shutdown_timeout(PATIENCE);

    let runtime = tokio::runtime::Runtime::new().unwrap();
    let import = contacts.import(numbered(2_000)).journal(journal.open());
    let report = runtime.block_on(in_time(import)).unwrap();

    assert_eq!(report.created() + report.updated(), 2_000);
    assert!(counts(&report)[2..].iter().all(|count| *count == 0));
}

#[tokio::test]
async fn a_panic_in_the_iterator_reaches_the_caller_and_the_next_import_goes_on() {
    let server = MockServer::start().await;
    let journal = JournalPath::new();
    let contacts = contacts(&server);
    let rows = numbered(1_000).inspect(|row| assert_ne!(row.email, "700@x.io"));

    let import = contacts.import(rows).journal(journal.open()).into_future();
    let panicked = tokio::spawn(import).await.unwrap_err();
    let report = in_time(contacts.import(numbered(1_000)).journal(journal.open()))
        .await
        .unwrap();

    assert!(panicked.is_panic());
    assert_eq!(report.created() + report.updated(), 1_000);
}
