//! Imports by `.wait()`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use audience::contacts::{Contacts, NewContact};
use audience::import::RowOutcome;
use audience::mock::MockServer;
use audience::{Client, RetryPolicy};

use super::{JournalPath, counts, numbered};

fn server() -> (MockServer, Contacts) {
    let server = MockServer::builder().start_blocking();
    let contacts = server.client().contacts();
    (server, contacts)
}

#[test]
fn a_blocking_import_has_every_setting() {
    let (server, contacts) = server();
    let journal = JournalPath::new();
    let (shown, progress) = std::sync::mpsc::channel();

    let import = contacts
        .import(numbered(250))
        .concurrency(4)
        .stop_on_failure()
        .total(250);
    let import = import
        .timeout(Duration::from_secs(20))
        .deadline(Duration::from_secs(60));
    let import = import.no_deadline().retry(RetryPolicy::none());
    let import = import.rejects(std::io::sink()).journal(journal.open());
    let import = import.on_progress(move |progress| shown.send(progress.finished()).unwrap());
    let report = import.wait().unwrap();

    assert_eq!(counts(&report), [250, 0, 0, 0, 0, 0]);
    assert_eq!(progress.iter().last(), Some(250));
    assert_eq!(server.contact_count(), 250);
}

#[test]
fn the_rows_and_the_progress_of_a_blocking_import_may_wait_for_other_calls() {
    let ((_old_server, old), (new_server, new)) = (server(), server());
    drop(old.import(numbered(250)).wait().unwrap());

    let contacts = old.list().limit(100).stream().wait();
    let rows = contacts.map(|contact| NewContact::new(contact.unwrap().email));
    let (shown, counts_shown) = std::sync::mpsc::channel();
    let import = new.import(rows).on_progress(move |_| {
        let count = old.list().count().wait();
        shown.send(count.unwrap()).unwrap();
    });
    let report = import.wait().unwrap();

    assert_eq!(counts(&report), [250, 0, 0, 0, 0, 0]);
    assert_eq!(new_server.contact_count(), 250);
    assert!(counts_shown.iter().all(|count| count == 250));
}

#[test]
fn blocking_outcomes_are_in_input_order() {
    let (_server, contacts) = server();

    let mut outcomes = contacts.import(numbered(2_500)).outcomes().wait();
    for (n, (row, outcome)) in outcomes.by_ref().enumerate() {
        assert_eq!(row.contact().unwrap().email, format!("{n}@x.io"));
        assert_eq!(outcome, RowOutcome::Created);
    }

    assert!(outcomes.next().is_none());
    assert_eq!(outcomes.into_stream().finish().unwrap().created(), 2_500);
}

#[test]
fn a_blocking_import_that_stops_returns_its_report() {
    let server = MockServer::builder().start_blocking();
    let client = Client::new(server.url(), server.sending_key()).unwrap();

    let stopped = client.contacts().import(numbered(10)).wait().unwrap_err();
    let mut outcomes = client.contacts().import(numbered(10)).outcomes().wait();
    let row = outcomes.next().map(|(_, outcome)| outcome);

    assert!(stopped.error().is_key_not_permitted());
    assert_eq!(stopped.report().not_sent(), 10);
    assert_eq!(row, Some(RowOutcome::NotSent));
    assert!(outcomes.into_stream().finish().is_err());
}

#[test]
fn a_panic_of_the_iterator_reaches_the_caller_and_the_client_still_works() {
    let (server, contacts) = server();
    let rows = || numbered(1_000).inspect(|row| assert_ne!(row.email, "700@x.io"));

    let stopped = catch_unwind(AssertUnwindSafe(|| contacts.import(rows()).wait()));
    let mut outcomes = contacts.import(rows()).outcomes().wait();
    let handed_out = catch_unwind(AssertUnwindSafe(|| outcomes.by_ref().count()));
    let report = contacts.import(numbered(1_000)).wait().unwrap();

    assert!(stopped.is_err() && handed_out.is_err());
    assert_eq!(report.created() + report.updated(), 1_000);
    assert_eq!(server.contact_count(), 1_000);
}

#[tokio::test]
async fn waiting_for_an_import_in_async_code_panics_and_sends_nothing() {
    let (server, contacts) = tokio::task::spawn_blocking(server).await.unwrap();

    let import = contacts.import(numbered(10));
    let mut outcomes = contacts.import(numbered(10)).outcomes().wait();

    assert!(catch_unwind(AssertUnwindSafe(|| import.wait())).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| outcomes.next())).is_err());
    assert!(server.requests().is_empty());
}
