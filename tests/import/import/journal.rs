//! Imports that go on where a journal ends.

use std::io::Cursor;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use audience::contacts::{NewContact, OnConflict};
use audience::import::{CsvRows, ImportRow, OptOut, Progress};
use audience::mock::{Fault, MockServer};
use audience::{Client, ErrorKind, RetryPolicy};
use serde_json::json;

use super::csv_rejects::SharedFile;
use super::{JournalPath, batches, contacts, counts, numbered, refused_batch, with_journal};
use support::{closed_url, in_time};

#[tokio::test]
async fn resuming_a_finished_import_sends_only_an_opt_out_that_failed_and_reports_the_same() {
    let server = MockServer::builder().topic("news", true).start().await;
    // Each row of the third batch is refused alone, after the batches that it was in.
    server.fault(refused_batch().after(2).times(199));
    let journal = JournalPath::new();
    let rows = || {
        let bad = [
            ImportRow::from("no address"),
            ImportRow::unreadable("no cells"),
        ];
        let failed = ImportRow::from("eve@x.io").opt_out(OptOut::Topic("typo".into()));
        let rows = numbered(350)
            .map(ImportRow::from)
            .chain(bad)
            .chain([failed]);
        rows.enumerate().map(|(n, row)| row.line(n as u64 + 2))
    };
    let contacts = contacts(&server);

    let first = with_journal(contacts.import(rows()).concurrency(1), &journal).await;
    let written = journal.read();
    server.clear_requests();
    let second = with_journal(contacts.import(rows()), &journal).await;

    assert_eq!((first.refused(), first.opt_out_failed()), (103, 1));
    assert_eq!(counts(&second), counts(&first));
    assert_eq!(
        second.refused_by_code().collect::<Vec<_>>(),
        first.refused_by_code().collect::<Vec<_>>()
    );
    let paths = server.requests().into_iter().map(|request| request.path);
    // The first one finds out whether the audience is still the same.
    assert_eq!(
        paths.collect::<Vec<_>>(),
        ["/contacts/0%40x.io", "/contacts/eve%40x.io/unsubscribe"]
    );
    assert!(journal.read().starts_with(&written));
}

#[tokio::test]
async fn a_long_message_about_each_row_is_cut() {
    let server = MockServer::start().await;
    let message = "no such thing ".repeat(8_000);
    let body = json!({"error": {"code": "validation_error", "message": message}});
    let refused = Fault::status(422).body(body.to_string());
    server.fault(refused.path("/contacts/batch"));
    let (journal, rejects) = (JournalPath::new(), SharedFile::default());

    let import = contacts(&server).import(numbered(100));
    let report = with_journal(import.rejects(rejects.clone()), &journal).await;

    assert_eq!(report.refused(), 100);
    let lengths = [journal.read().len(), rejects.text().len()];
    assert!(
        lengths.iter().all(|length| *length < 1_000_000),
        "{lengths:?}"
    );
    let cut: String = message.chars().take(500).collect();
    assert!(rejects.text().contains(&format!(",{cut}…,")));
}

#[tokio::test]
async fn rows_that_were_not_sent_or_are_unknown_are_sent_by_the_next_import() {
    let server = MockServer::start().await;
    let journal = JournalPath::new();
    // The second batch is lost for good, and the third is refused by a rate limit.
    let lost = Fault::close_before()
        .path("/contacts/batch")
        .after(1)
        .times(4);
    server.fault(lost);
    server.fault(Fault::status(429).path("/contacts/batch").after(5).times(4));
    let contacts = contacts(&server);

    let first = with_journal(contacts.import(numbered(450)).concurrency(1), &journal).await;
    let second = with_journal(contacts.import(numbered(450)), &journal).await;

    assert_eq!(counts(&first), [250, 0, 0, 0, 100, 100]);
    assert_eq!(counts(&second), [450, 0, 0, 0, 0, 0]);
}

#[tokio::test]
async fn a_resumed_import_knows_the_rows_that_were_skipped() {
    let server = MockServer::builder().seed_contact("1@x.io").start().await;
    let journal = JournalPath::new();
    let rows = || numbered(3).map(|contact| contact.on_conflict(OnConflict::Skip));

    let first = with_journal(contacts(&server).import(rows()), &journal).await;
    let resumed = with_journal(contacts(&server).import(rows()), &journal).await;

    assert_eq!((first.created(), first.skipped()), (2, 1));
    assert_eq!((resumed.created(), resumed.skipped()), (2, 1));
}

#[tokio::test]
async fn a_journal_that_was_opened_before_another_import_used_it_is_read_again() {
    let server = MockServer::start().await;
    let journal = JournalPath::new();
    let opened_early = journal.open();
    drop(with_journal(contacts(&server).import(numbered(5)), &journal).await);
    server.clear_requests();

    let resumed = contacts(&server).import(numbered(5)).journal(opened_early);
    let resumed = in_time(resumed).await.unwrap();

    assert_eq!(counts(&resumed), [5, 0, 0, 0, 0, 0]);
    assert!(batches(&server).is_empty());
}

#[tokio::test]
async fn a_resumed_import_sends_nothing_before_the_service_allows_it() {
    let server = MockServer::start().await;
    let journal = JournalPath::new();
    let too_many = Fault::status(429).retry_after(900).path("/contacts/batch");
    server.fault(too_many.after(1).times(1));

    let first = contacts(&server).import(numbered(300)).concurrency(1);
    let first = with_journal(first, &journal).await;
    server.clear_requests();
    // Another client, as in another process.
    let contacts = contacts(&server);
    let second = with_journal(contacts.import(numbered(300)), &journal).await;

    assert_eq!(counts(&first), [100, 0, 0, 0, 200, 0]);
    assert_eq!(counts(&second), [100, 0, 0, 0, 200, 0]);
    assert!(server.requests().is_empty());
    let failure = second.first_failure().unwrap();
    assert!(
        failure.contains("the service asked to wait another "),
        "{failure}"
    );
}

#[tokio::test]
async fn a_resumed_import_starts_immediately_if_the_wait_is_over() {
    let server = MockServer::start().await;
    let journal = JournalPath::new();
    let too_many = Fault::status(429).retry_after(900).path("/contacts/batch");
    server.fault(too_many.times(1));
    drop(with_journal(contacts(&server).import(numbered(5)), &journal).await);

    let (before, held) = journal
        .read()
        .split_once("{\"held_until\":")
        .map(|(before, held)| {
            (
                before.to_owned(),
                held.split_once('\n').unwrap().1.to_owned(),
            )
        })
        .unwrap();
    journal.write(format!("{before}{{\"held_until\":1700000000}}\n{held}"));
    let resumed = with_journal(contacts(&server).import(numbered(5)), &journal).await;

    assert_eq!(counts(&resumed), [5, 0, 0, 0, 0, 0]);
}

#[tokio::test]
async fn a_wait_of_years_holds_a_resumed_import_back_for_an_hour_at_most() {
    let server = MockServer::start().await;
    let journal = JournalPath::new();
    let too_many = Fault::status(429).retry_after(2_000_000_000);
    server.fault(too_many.path("/contacts/batch").times(1));
    drop(with_journal(contacts(&server).import(numbered(5)), &journal).await);

    let written = journal.read();
    let (before, held) = written.split_once("{\"held_until\":").unwrap();
    let (until, after) = held.split_once("}\n").unwrap();
    // A clock that was ahead may have recorded any time.
    let far = format!("{before}{{\"held_until\":20000000000}}\n{after}");
    journal.write(far);
    let resumed = with_journal(contacts(&server).import(numbered(5)), &journal).await;

    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let until: u64 = until.parse().unwrap();
    // The clock may have been set back by a minute.
    assert!(until <= now.as_secs() + 3_660, "{written}");
    assert_eq!(counts(&resumed), [5, 0, 0, 0, 0, 0]);
}

fn strict(count: usize) -> impl Iterator<Item = NewContact> + Send + 'static {
    numbered(count).map(|contact| contact.on_conflict(OnConflict::Error))
}

#[tokio::test]
async fn a_strict_row_with_an_unknown_outcome_is_reported_and_never_sent_again() {
    let server = MockServer::start().await;
    server.fault(Fault::close_after().path("/contacts/batch").times(1));
    let journal = JournalPath::new();
    let contacts = contacts(&server);

    let first = with_journal(contacts.import(strict(150)).concurrency(1), &journal).await;
    let second = with_journal(contacts.import(strict(150)), &journal).await;

    assert_eq!(counts(&first), [50, 0, 0, 0, 0, 100]);
    assert_eq!(counts(&second), counts(&first));
    assert_eq!(batches(&server).len(), 2);
}

#[tokio::test]
async fn strict_rows_in_flight_when_an_import_is_dropped_are_reported_and_not_sent() {
    let server = MockServer::start().await;
    let slow = Fault::delay(std::time::Duration::from_secs(600));
    server.fault(slow.path("/contacts/batch").after(1).times(1));
    let journal = JournalPath::new();
    let contacts = contacts(&server);

    let import = contacts
        .import(strict(300))
        .concurrency(1)
        .journal(journal.open());
    let import = tokio::spawn(import.into_future());
    in_time(async {
        while server.requests().len() < 2 {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    })
    .await;
    import.abort();
    let skipped = Arc::new(AtomicU64::new(0));
    let shown = skipped.clone();
    let show = move |progress: &Progress| shown.store(progress.resumed(), Ordering::Relaxed);
    let import = contacts.import(strict(300)).on_progress(show);
    let resumed = with_journal(import, &journal).await;

    assert_eq!(counts(&resumed), [200, 0, 0, 0, 0, 100]);
    assert_eq!(skipped.load(Ordering::Relaxed), 200);
    assert_eq!(batches(&server).len(), 3);
}

#[tokio::test]
async fn strict_rows_that_were_certainly_not_applied_are_sent_by_the_next_import() {
    let server = MockServer::builder().contact_ceiling(120).start().await;
    let journal = JournalPath::new();
    let nowhere = Client::builder(server.url(), server.full_key()).retry(RetryPolicy::none());
    let contacts = nowhere.build().unwrap().contacts();
    server.fault(Fault::status(429).path("/contacts/batch").times(1));

    // A rate limit refuses the first batch, and the plan is full in the third.
    let import = contacts.import(strict(400)).concurrency(1);
    let first = with_journal(import, &journal).await;
    server.set_ceiling(None);
    let second = with_journal(contacts.import(strict(400)), &journal).await;

    assert_eq!(counts(&first), [120, 0, 0, 80, 200, 0]);
    assert_eq!(counts(&second), [400, 0, 0, 0, 0, 0]);
}

#[tokio::test]
async fn a_row_whose_refusal_is_retryable_is_reported_again_and_not_sent_again() {
    let server = MockServer::start().await;
    let entry = json!({"email": "0@x.io", "status": "on_holiday"});
    let results = Fault::wrong_body(json!({"data": [entry]}).to_string());
    server.fault(results.path("/contacts/batch"));
    let (journal, contacts) = (JournalPath::new(), contacts(&server));

    let first = with_journal(contacts.import(numbered(1)), &journal).await;
    let second = with_journal(contacts.import(numbered(1)), &journal).await;

    for report in [first, second] {
        assert_eq!(counts(&report), [0, 0, 0, 1, 0, 0]);
    }
    assert_eq!(batches(&server).len(), 1);
}

#[tokio::test]
async fn a_journal_of_other_rows_is_refused_before_anything_is_sent() {
    let server = MockServer::start().await;
    let journal = JournalPath::new();
    let contacts = contacts(&server);
    drop(with_journal(contacts.import(numbered(250)), &journal).await);
    let written = journal.read();
    server.clear_requests();

    let others = numbered(250).map(|contact| contact.first_name("N"));
    let other_rows = in_time(contacts.import(others).journal(journal.open()))
        .await
        .unwrap_err();
    let other_setting = numbered(250).map(|contact| contact.on_conflict(OnConflict::Skip));
    let other_setting = contacts.import(other_setting).journal(journal.open());
    let other_setting = in_time(other_setting).await.unwrap_err();
    let elsewhere = Client::new(closed_url(), "key").unwrap().contacts();
    let elsewhere = elsewhere.import(numbered(250)).journal(journal.open());
    let elsewhere = in_time(elsewhere).await.unwrap_err();

    for (stopped, reason) in [
        (other_rows, "other rows"),
        (other_setting, "other rows"),
        (elsewhere, "another service"),
    ] {
        assert_eq!(stopped.error().kind(), ErrorKind::Input);
        assert!(
            stopped.error().to_string().contains(reason),
            "{}",
            stopped.error()
        );
    }
    assert!(server.requests().is_empty());
    assert_eq!(journal.read(), written);
}

#[tokio::test]
async fn rows_that_differ_later_are_found_when_they_are_read_and_no_batch_follows() {
    let server = MockServer::start().await;
    let journal = JournalPath::new();
    let contacts = contacts(&server);
    drop(with_journal(contacts.import(numbered(250)), &journal).await);
    server.clear_requests();

    let changed = numbered(1_000).enumerate().map(|(n, row)| match n {
        180 => row.first_name("N"),
        _ => row,
    });
    let changed = in_time(contacts.import(changed).journal(journal.open())).await;
    let shorter = in_time(contacts.import(numbered(150)).journal(journal.open())).await;

    for stopped in [changed.unwrap_err(), shorter.unwrap_err()] {
        assert!(
            stopped.error().to_string().contains("other rows"),
            "{}",
            stopped.error()
        );
    }
    assert!(batches(&server).is_empty());
}

#[tokio::test]
async fn a_journal_is_not_resumed_with_the_key_of_another_audience() {
    let (server, journal) = (MockServer::start().await, JournalPath::new());
    let contacts = contacts(&server);
    drop(with_journal(contacts.import(numbered(250)), &journal).await);
    let written = journal.read();
    // With another key, the service has none of the contacts either.
    server.reset();

    // Everything is finished, and not everything is.
    for count in [250, 300] {
        let import = contacts.import(numbered(count)).journal(journal.open());
        let stopped = in_time(import).await.unwrap_err();

        let text = stopped.error().to_string();
        let said = "the service has none of 10 contacts that the journal records";
        assert!(text.starts_with(said), "{text}");
        assert!(text.contains("that of another audience"), "{text}");
        assert_eq!(stopped.error().kind(), ErrorKind::Input);
        assert_eq!(stopped.report().total(), 0);
        assert!(batches(&server).is_empty());
        assert_eq!(journal.read(), written);
    }
    // The others may have been deleted.
    server.seed_contact("90@x.io");
    let resumed = with_journal(contacts.import(numbered(300)), &journal).await;
    assert_eq!(counts(&resumed), [300, 0, 0, 0, 0, 0]);
    assert_eq!(server.contact_count(), 51);
}

#[tokio::test]
async fn a_finished_import_is_not_resumed_with_a_key_that_is_refused_or_during_an_outage() {
    let (server, journal) = (MockServer::start().await, JournalPath::new());
    let contacts = contacts(&server);
    let import = |count| contacts.import(numbered(count)).journal(journal.open());
    drop(in_time(import(250)).await.unwrap());
    server.clear_requests();

    for (status, rows) in [(401, 250), (403, 250), (503, 250), (401, 300)] {
        server.fault(Fault::status(status).method("GET"));
        let stopped = in_time(import(rows)).await.unwrap_err();
        server.clear_faults();

        assert_eq!(stopped.error().status().unwrap(), status);
        assert_eq!(stopped.error().is_retryable(), status == 503);
        assert!(batches(&server).is_empty(), "{status} {rows}");
    }
    // The requests for the other rows would fail as well during an outage.
    server.fault(Fault::status(503).method("GET"));
    let resumed = in_time(import(300)).await.unwrap();
    assert_eq!(counts(&resumed), [300, 0, 0, 0, 0, 0]);
}

#[tokio::test]
async fn a_finished_import_is_resumed_if_a_contact_of_it_cannot_be_read() {
    let (server, journal) = (MockServer::start().await, JournalPath::new());
    let contacts = contacts(&server);
    let import = || contacts.import(numbered(5)).journal(journal.open());
    drop(in_time(import()).await.unwrap());
    let malformed = r#"{"id": "con_1", "email": "0@x.io", "unsubscribed": "maybe"}"#;
    server.fault(Fault::wrong_body(malformed).path("/contacts/0@x.io"));

    let resumed = in_time(import()).await.unwrap();

    assert_eq!(counts(&resumed), [5, 0, 0, 0, 0, 0]);
}

#[tokio::test]
async fn a_journal_of_a_few_contacts_is_resumed_even_if_all_of_them_were_deleted() {
    let (server, journal) = (MockServer::start().await, JournalPath::new());
    let contacts = contacts(&server);
    drop(with_journal(contacts.import(numbered(4)), &journal).await);
    server.reset();

    let resumed = with_journal(contacts.import(numbered(5)), &journal).await;

    assert_eq!(counts(&resumed), [5, 0, 0, 0, 0, 0]);
    assert_eq!(batches(&server), [["4@x.io"]]);
}

#[tokio::test]
async fn a_file_whose_open_quote_was_closed_is_continued() {
    let server = MockServer::start().await;
    let (journal, contacts) = (JournalPath::new(), contacts(&server));
    let import = |last: &str| {
        let text = format!("email,note\na@x.io,1\nb@x.io,2\n{last}\nd@x.io,4\n");
        let rows = CsvRows::new(Cursor::new(text)).unwrap();
        contacts.import(rows).journal(journal.open())
    };

    let stopped = in_time(import("c@x.io,\"3")).await.unwrap_err();
    let report = in_time(import("c@x.io,\"3\"")).await.unwrap();

    assert_eq!(counts(stopped.report()), [2, 0, 0, 1, 0, 0]);
    assert_eq!(counts(&report), [4, 0, 0, 0, 0, 0]);
    assert_eq!(
        batches(&server),
        [["a@x.io", "b@x.io"], ["c@x.io", "d@x.io"]]
    );
}

#[tokio::test]
async fn a_file_that_has_grown_is_continued() {
    let server = MockServer::start().await;
    let journal = JournalPath::new();
    let contacts = contacts(&server);

    drop(with_journal(contacts.import(numbered(50)), &journal).await);
    let report = with_journal(contacts.import(numbered(60)), &journal).await;

    assert_eq!(counts(&report), [60, 0, 0, 0, 0, 0]);
    assert_eq!(batches(&server)[1].len(), 10);
}

#[tokio::test]
async fn a_stream_that_waits_after_its_first_rows_is_imported_with_a_journal_and_resumed() {
    let server = MockServer::start().await;
    let journal = JournalPath::new();
    let contacts = contacts(&server);
    let (sender, rows) = futures_util::stream::iter(numbered(5)).map_waiting();

    let import = contacts.import_stream(rows).journal(journal.open());
    let import = tokio::spawn(import.into_future());
    in_time(async {
        while server.contact_count() < 5 {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    })
    .await;
    drop(sender);
    let first = in_time(import).await.unwrap().unwrap();
    let second = with_journal(contacts.import(numbered(150)), &journal).await;

    assert_eq!(counts(&first), [5, 0, 0, 0, 0, 0]);
    assert_eq!(counts(&second), [150, 0, 0, 0, 0, 0]);
}

trait Waiting: futures_util::Stream + Sized {
    /// After the last item, waits until the sender is dropped.
    fn map_waiting(
        self,
    ) -> (
        tokio::sync::oneshot::Sender<()>,
        impl futures_util::Stream<Item = Self::Item>,
    ) {
        use futures_util::StreamExt;
        let (sender, end) = tokio::sync::oneshot::channel();
        let wait = futures_util::stream::once(end).filter_map(async |_| None);
        (sender, self.chain(wait))
    }
}

impl<S: futures_util::Stream> Waiting for S {}

#[tokio::test]
async fn a_stream_that_waits_between_its_first_rows_is_resumed_after_the_rows_that_are_done() {
    let server = MockServer::start().await;
    let (journal, contacts) = (JournalPath::new(), contacts(&server));
    drop(with_journal(contacts.import(numbered(5)), &journal).await);
    server.clear_requests();
    let rows = futures_util::stream::iter(numbered(150));
    let rows = futures_util::StreamExt::then(rows, async |row| {
        tokio::task::yield_now().await;
        row
    });

    let import = contacts.import_stream(rows).journal(journal.open());
    let resumed = in_time(import).await.unwrap();

    assert_eq!(counts(&resumed), [150, 0, 0, 0, 0, 0]);
    let sent: usize = batches(&server).iter().map(Vec::len).sum();
    assert_eq!(sent, 145);
}

#[tokio::test]
async fn a_journal_that_ends_after_any_of_its_lines_lets_no_older_row_replace_a_newer_one() {
    let named = |name: &str| ImportRow::new(NewContact::new("ann@x.io").first_name(name));
    // Its contact is recorded, and its opt-out fails.
    let failing = |name| named(name).opt_out(OptOut::Topic("unknown".into()));

    for rows in [
        [named("Old"), failing("New")],
        [failing("Old"), named("New")],
    ] {
        let (server, journal) = (MockServer::start().await, JournalPath::new());
        let contacts = contacts(&server);
        drop(with_journal(contacts.import(rows.clone()), &journal).await);
        let written = journal.read();

        for (end, _) in written.match_indices('\n') {
            journal.write(&written[..=end]);
            drop(with_journal(contacts.import(rows.clone()), &journal).await);

            let ann = server.contact("ann@x.io").unwrap();
            let known = &written[..=end];
            assert_eq!(ann.first_name.as_deref(), Some("New"), "{known}");
        }
    }
}

#[tokio::test]
async fn a_row_is_sent_again_after_an_older_one_of_its_address_whose_outcome_is_unknown() {
    let (server, journal) = (MockServer::start().await, JournalPath::new());
    let rows = || {
        let addresses = [
            ("ann@x.io", "Old"),
            ("bob@x.io", "Bob"),
            (" Ann@X.io", "New"),
        ];
        addresses.map(|(address, name)| NewContact::new(address).first_name(name))
    };
    let status = |email: &str, status: &str| json!({"email": email, "status": status});
    let entries = [
        json!({"email": "ann@x.io"}),
        status("bob@x.io", "created"),
        status("ann@x.io", "updated"),
    ];
    let body = json!({"data": entries}).to_string();
    server.fault(Fault::wrong_body(body).path("/contacts/batch").times(1));

    let first = with_journal(contacts(&server).import(rows()), &journal).await;
    drop(with_journal(contacts(&server).import(rows()), &journal).await);

    assert_eq!(
        (first.created(), first.updated(), first.unknown()),
        (1, 1, 1)
    );
    assert_eq!(batches(&server).last().unwrap(), &["ann@x.io", " Ann@X.io"]);
    let ann = server.contact("ann@x.io").unwrap();
    assert_eq!(ann.first_name.as_deref(), Some("New"));
}

#[tokio::test]
async fn a_strict_row_that_was_refused_stays_so_after_an_older_one_of_its_address_that_is_sent_again()
 {
    let (server, journal) = (MockServer::start().await, JournalPath::new());
    let rows = || {
        let strict = NewContact::new(" Ann@X.io").on_conflict(OnConflict::Error);
        [NewContact::new("ann@x.io"), strict]
    };
    let entries = [
        json!({"email": "ann@x.io"}),
        json!({"email": "ann@x.io", "status": "already_exists"}),
    ];
    let body = json!({"data": entries}).to_string();
    server.fault(Fault::wrong_body(body).path("/contacts/batch").times(1));

    let first = with_journal(contacts(&server).import(rows()), &journal).await;
    let second = with_journal(contacts(&server).import(rows()), &journal).await;

    assert_eq!(counts(&first), [0, 0, 0, 1, 0, 1]);
    assert_eq!((second.refused(), second.unknown()), (1, 0));
    assert_eq!(batches(&server).last().unwrap(), &["ann@x.io"]);
}
