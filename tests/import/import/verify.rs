//! `verify`: whether the service has the contacts of the rows, and their opt-outs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use audience::contacts::OptOutReason;
use audience::import::{CsvRows, ImportReport, ImportRow, Journal, OptOut, RowOutcome};
use audience::mock::{Fault, MockServer};
use audience::{ErrorKind, RetryPolicy};
use futures_util::StreamExt;
use serde_json::json;
use wiremock::Request;

use super::csv_program::{Folder, last_line, run};
use super::{JournalPath, contacts, numbered};
use support::cancellation::until;
use support::{contact, in_time, ok, respond_with, summary, with};

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

/// Rows without an opt-out, as many as are retrieved before the contacts are listed. The service gets their contacts.
fn first_rows(server: &MockServer) -> Vec<ImportRow> {
    let addresses: Vec<_> = (0..200).map(|n| format!("{n}@x.io")).collect();
    let contacts = addresses.iter().map(|address| json!({"email": address}));
    server.seed(json!({"contacts": contacts.collect::<Vec<_>>()}));
    addresses.into_iter().map(ImportRow::from).collect()
}

/// How often a page of all contacts was requested. A list that makes sure of a 404 has a `query`.
fn pages(server: &MockServer) -> usize {
    let is_page = |query: &str| query.contains("limit=200") && !query.contains("query=");
    let requests = server.requests().into_iter();
    let pages = requests.filter(|request| request.query.as_deref().is_some_and(is_page));
    pages.count()
}

/// The paths of the contacts that were retrieved.
fn retrieved(server: &MockServer) -> Vec<String> {
    let paths = server.requests().into_iter().map(|request| request.path);
    paths.filter(|path| path != "/contacts").collect()
}

#[tokio::test]
async fn verify_finds_each_opt_out_that_the_service_lacks_and_changes_nothing() {
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
    assert_eq!((retrieved(&server).len(), requests.len()), (8, 8));
    assert!(
        requests.iter().all(|request| request.method == "GET"),
        "{requests:?}"
    );
}

#[tokio::test]
async fn contacts_of_rows_without_opt_outs_are_found_in_any_spelling_and_from_the_201st_on_in_the_list()
 {
    let server = MockServer::start().await;
    drop(
        in_time(contacts(&server).import(numbered(450)))
            .await
            .unwrap(),
    );
    server.clear_requests();
    let rows = (0..450).map(|n| format!("{n}@X.io "));

    let report = in_time(contacts(&server).import(rows).verify())
        .await
        .unwrap();

    let found = "opt-outs recorded for 0 rows, missing for 0; 450 rows without opt-outs have a contact, 0 invalid or \
                 without a contact, 0 not verified";
    assert_eq!(report.to_string(), found);
    assert_eq!(report.finished().unwrap().valid(), 450);
    // Three pages, and the empty one after them.
    assert_eq!((pages(&server), server.requests().len()), (4, 4 + 200));
}

#[tokio::test]
async fn up_to_200_rows_without_opt_outs_are_retrieved_and_nothing_is_listed() {
    let server = server().await;
    let mut rows = first_rows(&server);
    rows.push(ImportRow::from("out@x.io").opt_out(EVERYTHING));

    let report = in_time(contacts(&server).import(rows).verify())
        .await
        .unwrap();

    assert_eq!(report.finished().unwrap().valid(), 201);
    assert_eq!((pages(&server), retrieved(&server).len()), (0, 201));
}

#[tokio::test]
async fn a_row_without_an_opt_out_and_without_a_contact_is_refused_and_in_the_rejects() {
    let folder = Folder::new("verify-nobody");
    let server = server().await;
    let rejects = folder.path("missing.csv");
    let mut rows = first_rows(&server);
    rows.extend(["in@x.io", "nobody@x.io", "", "out@x.io"].map(ImportRow::from));

    let verifying = contacts(&server).import(rows).verify().concurrency(1);
    let report = in_time(verifying.rejects_file(&rejects)).await.unwrap();

    assert_eq!(
        (report.valid(), report.refused(), report.total()),
        (202, 2, 204)
    );
    let refused: Vec<_> = report.refused_by_code().collect();
    assert_eq!(refused, [("not_found", 2)]);
    assert_eq!(report.finished().unwrap().opt_out_missing(), 0);
    assert_eq!(retrieved(&server)[200..], ["/contacts/nobody%40x.io"]);
    // Two pages, and the empty one after them.
    assert_eq!(pages(&server), 3);
    let text = std::fs::read_to_string(&rejects).unwrap();
    assert_eq!(text.matches("not_found").count(), 2, "{text}");
    assert!(
        text.contains("nobody@x.io") && !text.contains("in@x.io"),
        "{text}"
    );
}

#[tokio::test]
async fn rows_with_nothing_but_opt_outs_need_no_list() {
    let server = server().await;
    let rows = ["out@x.io", "spam@x.io"].map(|email| ImportRow::from(email).opt_out(EVERYTHING));

    let report = in_time(contacts(&server).import(rows).verify())
        .await
        .unwrap();

    assert_eq!((report.valid(), server.requests().len()), (2, 2));
    assert_eq!(pages(&server), 0);
}

#[tokio::test]
async fn a_contact_that_is_malformed_in_the_list_is_retrieved() {
    let server = MockServer::start().await;
    let mut rows = first_rows(&server);
    rows.push(ImportRow::from("in@x.io"));
    server.seed_contact("in@x.io"); // the newest one, so it is in the first page
    let last = contacts(&server).list().await.unwrap().data.pop().unwrap();
    server.clear_requests();
    let page = json!({"data": [{"email": "in@x.io"}], "next": last.id});
    let malformed = Fault::wrong_body(page.to_string());
    server.fault(malformed.path("/contacts").times(1));

    let verifying = contacts(&server).import(rows).verify().concurrency(1);
    let report = in_time(verifying).await.unwrap();

    assert_eq!(report.finished().unwrap().valid(), 201);
    assert_eq!(retrieved(&server)[200..], ["/contacts/in%40x.io"]);
    // The malformed page, one with the contacts after it, and the empty one.
    assert_eq!(pages(&server), 3);
}

#[tokio::test]
async fn if_the_contacts_cannot_be_listed_nobody_is_called_missing_and_the_report_is_an_error() {
    for (status, is_retryable) in [(501, false), (503, true)] {
        let server = server().await;
        server.fault(Fault::status(status).path("/contacts"));
        let rows = || {
            let mut rows = first_rows(&server);
            rows.extend(["in@x.io", "nobody@x.io"].map(ImportRow::from));
            rows.push(ImportRow::from("out@x.io").opt_out(EVERYTHING));
            rows
        };
        let verify = || {
            let verifying = contacts(&server).import(rows()).verify().concurrency(1);
            in_time(verifying.retry(RetryPolicy::none()))
        };

        let report = verify().await.unwrap();

        assert_eq!((report.valid(), report.refused()), (201, 0));
        assert_eq!((report.unknown(), report.total()), (2, 203));
        assert_eq!(pages(&server), 1, "the list is not requested for each row");
        let error = report.finished().unwrap_err();
        assert_eq!(error.error().kind(), ErrorKind::Unfinished);
        assert_eq!(error.error().is_retryable(), is_retryable, "{error}");
        let text = error.to_string();
        assert!(
            text.contains("2 not verified: some rows could not be verified"),
            "{text}"
        );
        assert!(
            text.contains(&format!("the service responded {status}")),
            "{text}"
        );
        server.clear_faults();
        let report = verify().await.unwrap();
        assert_eq!((report.valid(), report.refused()), (202, 1));
    }
}

#[tokio::test]
async fn a_refused_key_stops_the_verification_at_the_list() {
    let server = server().await;
    server.fault(Fault::status(401).path("/contacts"));
    let mut rows = first_rows(&server);
    rows.extend(["in@x.io", "nobody@x.io"].map(ImportRow::from));

    let verifying = contacts(&server).import(rows).verify().concurrency(1);
    let stopped = in_time(verifying).await.unwrap_err();

    assert!(stopped.error().is_unauthorized(), "{stopped}");
    assert_eq!(
        (stopped.report().valid(), stopped.report().refused()),
        (200, 0)
    );
}

#[tokio::test]
async fn a_stop_does_not_wait_for_the_end_of_the_list() {
    let listed = Arc::new(AtomicU64::new(0));
    let count = listed.clone();
    // The list has no end.
    let server = respond_with(move |request: &Request| {
        if let Some(address) = request.url.path().strip_prefix("/contacts/") {
            return ok(with(contact(), "email", address.replace("%40", "@")));
        }
        let id = format!("c_{}", count.fetch_add(1, Ordering::Relaxed));
        ok(json!({"data": [summary(&id)], "next": id}))
    })
    .await;
    let signal = async move { until(|| listed.load(Ordering::Relaxed) >= 3).await };

    let rows = (0..201).map(|n| format!("{n}@x.io"));

    let verifying = support::contacts(server.uri()).import(rows).verify();
    let verifying = verifying.concurrency(1).stop_when(signal);
    let stopped = in_time(verifying).await.unwrap();

    assert!(stopped.is_stopped());
    assert_eq!((stopped.valid(), stopped.refused()), (200, 0));
    assert_eq!(stopped.total(), 201);
    let error = stopped.finished().unwrap_err();
    assert_eq!(error.error().kind(), ErrorKind::Stopped);
}

#[tokio::test]
async fn a_stop_does_not_wait_for_the_retries_of_the_list() {
    let server = server().await;
    server.fault(Fault::status(503).retry_after(100).path("/contacts"));
    let (stop, asked) = tokio::sync::oneshot::channel::<()>();
    let mut stop = Some(stop);
    let mut rows = first_rows(&server);
    rows.extend(["in@x.io", "nobody@x.io"].map(ImportRow::from));

    let verifying = server.client().contacts().import(rows);
    let verifying = verifying
        .verify()
        .concurrency(1)
        .on_progress(move |progress| drop(stop.take_if(|_| progress.waiting() > 0)))
        .stop_when(async { asked.await.unwrap_or(()) });
    let stopped = in_time(verifying).await.unwrap();

    assert!(stopped.is_stopped());
    assert_eq!((stopped.refused(), stopped.total()), (0, 202));
    assert_eq!(pages(&server), 1);
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
    let found = "opt-outs recorded for 0 rows, missing for 1; 0 rows without opt-outs have a contact, 2 invalid or \
                 without a contact, 0 not verified";
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

    let found = "opt-outs recorded for 2 rows, missing for 0; 1 rows without opt-outs have a contact, 0 invalid or \
                 without a contact, 0 not verified";
    assert_eq!(report.to_string(), found);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["valid"], 3);
    let read: ImportReport = serde_json::from_value(json).unwrap();
    assert_eq!(read.to_string(), found);
    assert!(stopped.to_string().ends_with("3 not verified"), "{stopped}");
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
    let summary = "opt-outs recorded for 0 rows, missing for 1; 1 rows without opt-outs have a contact, 0 invalid or \
                   without a contact, 0 not verified";
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

#[test]
fn rejects_are_not_verified_with_a_mapping_for_a_column_that_none_of_them_has() {
    let folder = Folder::new("verify-mapping");
    let server = MockServer::builder().start_blocking();
    let files = ["a", "b"].map(|name| {
        let header = "line,code,message,retryable,email,TAGS (groups:News:news)";
        let text = format!("{header}\n2,invalid_row,,false,{name}@x.io,News\n");
        folder.file(&format!("{name}.csv"), &text)
    });

    for files in [&files[..1], &files[..]] {
        let mut arguments: Vec<&str> = files.iter().map(String::as_str).collect();
        let map = "TAGS (groups:News:news)=groups:News:news";
        arguments.extend(["--verify", "--map", map]);
        let output = run(Some(&server), &arguments);

        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        let named = "column \"TAGS (groups:News:news)\"";
        assert!(stderr.contains(named), "{stderr}");
    }
    assert!(server.requests().is_empty());
}

#[test]
fn the_program_writes_the_rows_without_a_contact_and_ends_with_3() {
    let folder = Folder::new("verify-missing");
    let server = MockServer::builder().start_blocking();
    let list = folder.file("list.csv", "email,plan\nada@x.io,old\nbob@x.io,old\n");
    let rejects = folder.path("rejects.csv");
    let verify = || run(Some(&server), &[&list, "--verify", "--rejects", &rejects]);
    server.seed_contact("ada@x.io");

    let output = verify();

    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let summary = "opt-outs recorded for 0 rows, missing for 0; 1 rows without opt-outs have a contact, 1 invalid or \
                   without a contact, 0 not verified";
    assert_eq!(last_line(&output), summary);
    let text = std::fs::read_to_string(&rejects).unwrap();
    assert!(
        text.contains("not_found") && text.contains("bob@x.io") && !text.contains("ada@x.io"),
        "{text}"
    );
    let output = run(Some(&server), &[&rejects, "--on-conflict", "skip"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        server.contact("bob@x.io").unwrap().properties["plan"],
        json!("old")
    );
    assert_eq!(verify().status.code(), Some(0));
}
