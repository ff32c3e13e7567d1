//! Dry runs.

use std::io::Read;

use audience::contacts::NewContact;
use audience::import::{CsvRows, ImportRow, Journal, RowOutcome};
use audience::mock::MockServer;
use futures_util::StreamExt;

use super::csv_rejects::SharedFile;
use support::mock_builder;

#[tokio::test]
async fn a_dry_run_checks_every_row_and_sends_nothing() {
    let server = MockServer::start().await;
    let contacts = mock_builder(&server).build().unwrap().contacts();
    let text =
        "email,plan\na@x.io,pro\nA@X.io,free\nnobody,pro\nb@x.io\nc@x.io,pro\n c@x.io,\nd@x.io,\n";
    let rejects = SharedFile::default();

    let import = contacts.import(CsvRows::new(text.as_bytes()).unwrap());
    let report = import.dry_run().rejects(rejects.clone()).await.unwrap();

    assert_eq!(
        (report.valid(), report.duplicates(), report.refused()),
        (5, 2, 2)
    );
    let by_code: Vec<_> = report.refused_by_code().collect();
    assert_eq!(by_code, [("invalid_address", 1), ("invalid_row", 1)]);
    assert_eq!(
        report.to_string(),
        "0 created, 0 updated, 0 skipped, 2 refused, 5 not sent (5 of them valid), 0 unknown"
    );
    assert_eq!((report.total(), report.is_complete()), (7, false));
    let lines: Vec<_> = rejects.text().lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[1].starts_with("4,invalid_address,the address has no @,false,nobody"));
    assert!(lines[2].starts_with("5,invalid_row,"));
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_dry_run_touches_no_journal() {
    let server = MockServer::start().await;
    let contacts = mock_builder(&server).build().unwrap().contacts();
    let path = std::env::temp_dir().join(format!("audience-dry-run-{:016x}", fastrand::u64(..)));
    let rows = || [NewContact::new("a@x.io"), NewContact::new("b@x.io")];
    let import = contacts
        .import(rows())
        .journal(Journal::open(&path).unwrap());
    drop(import.await.unwrap());
    let before = std::fs::read(&path).unwrap();

    let journal = Journal::open(&path).unwrap();
    let report = contacts
        .import([NewContact::new("other")])
        .journal(journal)
        .dry_run()
        .await;

    assert_eq!(report.unwrap().refused(), 1);
    assert_eq!(std::fs::read(&path).unwrap(), before);
    std::fs::remove_file(&path).unwrap();
}

#[tokio::test]
async fn the_outcomes_of_a_dry_run_come_in_input_order_for_any_number_of_rows() {
    let server = MockServer::start().await;
    let contacts = server.client().contacts();
    let row = |number: u64| match number % 1_000 {
        0 => ImportRow::unreadable("no").line(number),
        _ => ImportRow::new(NewContact::new(format!("a{number}@x.io"))).line(number),
    };

    let outcomes: Vec<_> = contacts
        .import((0..50_000).map(row))
        .dry_run()
        .outcomes()
        .collect()
        .await;

    assert_eq!(outcomes.len(), 50_000);
    for (number, (row, outcome)) in (0..).zip(&outcomes) {
        assert_eq!(row.line_number(), Some(number));
        assert_eq!(*outcome == RowOutcome::Valid, number % 1_000 != 0);
    }
}

#[tokio::test]
async fn an_import_that_is_asked_to_stop_finishes_what_is_in_flight_and_goes_on_with_its_journal() {
    let server = MockServer::start().await;
    let contacts = mock_builder(&server).build().unwrap().contacts();
    let path = std::env::temp_dir().join(format!("audience-stop-{:016x}", fastrand::u64(..)));
    let rows = || (0..1_000).map(|number| NewContact::new(format!("a{number}@x.io")));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let mut stop = Some(stop);

    let import = contacts
        .import(rows())
        .concurrency(1)
        .journal(Journal::open(&path).unwrap());
    let report = import
        .stop_when(async { stopped.await.unwrap_or_default() })
        .on_progress(move |progress| {
            if progress.finished() >= 300 {
                stop.take().map(|stop| stop.send(()));
            }
        })
        .await
        .unwrap();

    assert_eq!(report.created() + report.not_sent(), 1_000);
    assert!(report.created() >= 300 && report.not_sent() > 0, "{report}");
    assert_eq!(server.contact_count() as u64, report.created());
    let report = contacts
        .import(rows())
        .journal(Journal::open(&path).unwrap())
        .await
        .unwrap();
    assert_eq!((report.created(), report.total()), (1_000, 1_000));
    std::fs::remove_file(&path).unwrap();
}

#[tokio::test]
async fn an_import_can_be_asked_to_stop_before_it_starts_also_if_it_is_a_dry_run() {
    let server = MockServer::start().await;
    let contacts = server.client().contacts();
    for dry_run in [false, true] {
        let file = std::io::Cursor::new("email\na@x.io\nb@x.io\n").chain(std::io::empty());

        let import = contacts
            .import(CsvRows::new(file).unwrap())
            .stop_when(async {});
        let import = if dry_run { import.dry_run() } else { import };
        let report = import.await.unwrap();

        assert_eq!((report.not_sent(), report.valid()), (2, 0));
    }
    assert!(server.requests().is_empty());
}
