//! `verify`: whether the service has the opt-outs of the rows.

use audience::contacts::OptOutReason;
use audience::import::{CsvRows, ImportReport, ImportRow, Journal, OptOut, RowOutcome};
use audience::mock::{Fault, MockServer};
use audience::{ErrorKind, RetryPolicy};
use futures_util::StreamExt;
use serde_json::json;

use super::csv_program::{Folder, last_line, run};
use super::{JournalPath, contacts};
use support::in_time;

const EVERYTHING: OptOut = OptOut::Everything(OptOutReason::Manual);

async fn server() -> MockServer {
    let server = MockServer::builder().topic("news", true);
    let server = server.topic("offers", true).start().await;
    server.seed(json!({"contacts": [
        {"email": "out@x.io", "unsubscribed": true, "unsubscribe_reason": "manual"},
        {"email": "in@x.io"},
        {"email": "spam@x.io", "unsubscribed": true, "unsubscribe_reason": "complaint"},
        {"email": "topic@x.io", "topics": {"news": false}},
    ]}));
    server
}

fn topic(name: &str) -> OptOut {
    OptOut::Topic(name.to_owned())
}

#[tokio::test]
async fn verify_finds_each_opt_out_that_the_service_lacks_and_only_retrieves_contacts() {
    let server = server().await;
    let missing = |message: &str| RowOutcome::OptOutMissing {
        message: format!("the service does not have {message}"),
    };
    let everything = "the opt-out of everything";
    let offers = r#"the opt-out of the topic "offers""#;
    let rows = [
        (
            ImportRow::from("Out@x.io").opt_out(EVERYTHING),
            RowOutcome::Valid,
        ),
        (ImportRow::from("in@x.io"), RowOutcome::Valid),
        (
            ImportRow::from("IN@x.io").opt_out(EVERYTHING),
            missing(everything),
        ),
        (
            ImportRow::from("spam@x.io").opt_out(EVERYTHING),
            RowOutcome::Valid,
        ),
        (
            ImportRow::from("topic@x.io").opt_out(topic("news")),
            RowOutcome::Valid,
        ),
        (
            ImportRow::from("topic@x.io")
                .opt_out(topic("news"))
                .opt_out(topic("offers")),
            missing(offers),
        ),
        (
            ImportRow::from("in@x.io")
                .opt_out(EVERYTHING)
                .opt_out(topic("offers")),
            missing(&format!("{everything} and {offers}")),
        ),
        (
            ImportRow::from("topic@x.io").opt_out(topic("nwes")),
            missing(r#"the opt-out of the topic "nwes""#),
        ),
    ];
    let given = rows.clone().map(|(row, _)| row);

    let verifying = contacts(&server).import(given).verify().outcomes();
    let found: Vec<_> = in_time(verifying.map(|(_, outcome)| outcome).collect()).await;

    assert_eq!(
        found[2].message(),
        Some("the service does not have the opt-out of everything")
    );
    assert_eq!(found, rows.map(|(_, outcome)| outcome));
    let requests = server.requests();
    assert_eq!(requests.len(), 7);
    assert!(
        requests.iter().all(|request| request.method == "GET"),
        "{requests:?}"
    );
}

#[tokio::test]
async fn a_missing_opt_out_is_an_error_of_the_report_that_no_second_run_mends() {
    let server = server().await;
    let rows = [
        ImportRow::from("in@x.io").opt_out(EVERYTHING),
        ImportRow::from("nobody@x.io").opt_out(EVERYTHING),
        ImportRow::unreadable("no address"),
    ];

    let report = in_time(contacts(&server).import(rows).verify())
        .await
        .unwrap();

    assert_eq!(
        (report.opt_out_missing(), report.refused(), report.total()),
        (1, 2, 3)
    );
    let found = "opt-outs recorded for 0 rows, missing for 1; 0 rows without opt-outs, 2 invalid or without a contact, 0 \
                 not verified";
    assert_eq!(report.to_string(), found);
    let refused: Vec<_> = report.refused_by_code().collect();
    assert_eq!(refused, [("invalid_row", 1), ("not_found", 1)]);
    let unfinished = report.finished().unwrap_err();
    assert!(!unfinished.error().is_retryable(), "{unfinished}");
    assert_eq!(audience::exit_status(&unfinished), 1);
    assert_eq!(server.contact_count(), 4);
}

#[tokio::test]
async fn the_text_of_a_verification_says_what_was_found_and_not_that_rows_were_not_sent() {
    let server = server().await;
    let rows = [
        ImportRow::from("out@x.io").opt_out(EVERYTHING),
        ImportRow::from("topic@x.io").opt_out(topic("news")),
        ImportRow::from("in@x.io"),
    ];
    let verify = || contacts(&server).import(rows.clone()).verify();

    let report = in_time(verify()).await.unwrap().finished().unwrap();
    let stopped = in_time(verify().stop_when(async {})).await.unwrap();

    let found = "opt-outs recorded for 2 rows, missing for 0; 1 rows without opt-outs, 0 invalid or without a contact, 0 \
                 not verified";
    assert_eq!(report.to_string(), found);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["valid"], 3);
    let read: ImportReport = serde_json::from_value(json).unwrap();
    assert_eq!(read.to_string(), found);
    assert!(stopped.to_string().ends_with("2 not verified"), "{stopped}");
    let error = stopped.finished().unwrap_err();
    assert_eq!(error.error().kind(), ErrorKind::Stopped);
    let said = error.to_string().contains("repeat it to verify all rows");
    assert!(said, "{error}");
}

#[tokio::test]
async fn rows_that_could_not_be_looked_at_are_left_to_a_second_run() {
    let server = server().await;
    server.fault(Fault::status(503).path("/contacts/out@x.io").times(1));
    let rows = ["out@x.io", "spam@x.io"].map(|email| ImportRow::from(email).opt_out(EVERYTHING));
    let verify = |rows| {
        contacts(&server)
            .import(rows)
            .verify()
            .retry(RetryPolicy::none())
    };

    let report = in_time(verify(rows.clone())).await.unwrap();

    assert_eq!((report.valid(), report.total()), (1, 2));
    let error = report.finished().unwrap_err();
    assert!(error.error().is_retryable());
    let reason = "1 not verified: some rows could not be verified; repeat the run; ";
    assert!(error.to_string().contains(reason), "{error}");
    let report = in_time(verify(rows)).await.unwrap();
    assert_eq!(report.finished().unwrap().valid(), 2);
}

#[tokio::test]
async fn verify_neither_reads_nor_writes_the_journal() {
    let server = server().await;
    let journal = JournalPath::new();
    let rows = || [ImportRow::from("in@x.io").opt_out(EVERYTHING)];
    let import = || {
        contacts(&server)
            .import(rows())
            .journal(Journal::open(&journal.0).unwrap())
    };

    let report = in_time(import().verify()).await.unwrap();
    assert_eq!(report.opt_out_missing(), 1);

    drop(in_time(import()).await.unwrap());
    assert!(server.contact("in@x.io").unwrap().unsubscribed);
    drop(
        in_time(import().verify())
            .await
            .unwrap()
            .finished()
            .unwrap(),
    );
}

#[tokio::test]
async fn the_topics_of_a_contact_without_any_are_not_verified() {
    let server = server().await;
    let mut contact = json!({
        "id": "c_1", "email": "out@x.io", "first_name": "", "last_name": "", "properties": {},
        "unsubscribed": true, "unsubscribe_reason": "manual", "created_at": 1, "topics": {},
    });
    contact.as_object_mut().unwrap().remove("topics");
    server.fault(
        Fault::status(200)
            .body(contact.to_string())
            .path("/contacts/out@x.io"),
    );
    let verify = |row| contacts(&server).import([row]).verify();

    let everything = in_time(verify(ImportRow::from("out@x.io").opt_out(EVERYTHING)));
    assert_eq!(everything.await.unwrap().valid(), 1);
    let news = in_time(verify(ImportRow::from("out@x.io").opt_out(topic("news"))));
    let report = news.await.unwrap();

    assert_eq!((report.valid(), report.opt_out_missing()), (0, 0));
    assert!(report.finished().is_err());
}

#[test]
fn the_program_writes_the_rows_without_their_opt_out_and_imports_them() {
    let folder = Folder::new("verify");
    let server = MockServer::builder().start_blocking();
    let list = "email,unsubscribed,plan\nada@x.io,yes,old\nbob@x.io,no,old\n";
    let list = folder.file("list.csv", list);
    let rejects = folder.path("rejects.csv");
    let verify = || run(Some(&server), &[&list, "--verify", "--rejects", &rejects]);
    assert!(run(Some(&server), &[&list]).status.success());
    let output = verify();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    server.seed(json!({"contacts": [
        {"email": "ada@x.io", "unsubscribed": false, "properties": {"plan": "new"}},
    ]}));

    let output = verify();

    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let summary = "opt-outs recorded for 0 rows, missing for 1; 1 rows without opt-outs, 0 invalid or without a contact, 0 \
                   not verified";
    assert_eq!(last_line(&output), summary);
    let text = std::fs::read_to_string(&rejects).unwrap();
    assert!(
        text.contains("opt_out_missing") && text.contains("ada@x.io"),
        "{text}"
    );
    assert_eq!(CsvRows::open(&rejects).unwrap().count(), 1);
    let output = run(Some(&server), &[&rejects, "--on-conflict", "skip"]);
    assert!(output.status.success(), "{output:?}");
    let ada = server.contact("ada@x.io").unwrap();
    assert!(ada.unsubscribed);
    assert_eq!(ada.properties["plan"], json!("new"));
    assert_eq!(verify().status.code(), Some(0));
}
