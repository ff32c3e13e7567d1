//! Batches that fail, a plan that is full, and keys that are refused.

use std::error::Error;
use std::process::{ExitCode, Termination};
use std::time::Duration;

use audience::contacts::{NewContact, OnConflict};
use audience::export::JsonLines;
use audience::import::{ImportRow, OptOut, RowOutcome, SyncRow, SyncState};
use audience::mock::{Fault, MockServer};
use audience::{Client, ErrorKind, RetryPolicy};
use futures_util::StreamExt;
use serde_json::json;
use wiremock::{Request, ResponseTemplate};

use super::csv_rejects::SharedFile;
use super::{JournalPath, batches, contacts, counts, numbered, refused_batch};
use support::{closed_url, in_time, ok, received, respond_with};

const BATCH: &str = "/contacts/batch";

#[tokio::test]
async fn after_the_plan_is_full_no_further_batch_is_started_and_the_rest_is_not_sent() {
    let server = MockServer::builder().contact_ceiling(250).start().await;
    let journal = JournalPath::new();
    let contacts = contacts(&server);

    let import = contacts.import(numbered(2_000)).concurrency(2);
    let report = in_time(import.journal(journal.open())).await.unwrap();

    assert!(report.quota_exceeded() && !report.is_complete());
    assert_eq!((report.created(), report.total()), (250, 2_000));
    let sent = batches(&server).len() as u64;
    assert!((3..=4).contains(&sent), "{sent}");
    assert_eq!(report.refused(), sent * 100 - 250);
    assert_eq!(report.not_sent(), 2_000 - sent * 100);

    server.set_ceiling(None);
    let import = contacts.import(numbered(2_000));
    let report = in_time(import.journal(journal.open())).await.unwrap();

    assert_eq!(counts(&report), [2_000, 0, 0, 0, 0, 0]);
    assert_eq!(server.contact_count(), 2_000);
}

#[tokio::test]
async fn after_a_402_without_a_slug_for_a_whole_batch_a_resumed_import_sends_its_rows() {
    let server = MockServer::start().await;
    let body = json!({"message": "plan limit reached"}).to_string();
    server.fault(Fault::status(402).body(body).path(BATCH));
    let (journal, contacts) = (JournalPath::new(), contacts(&server));
    let run = || {
        let import = contacts.import(numbered(150)).concurrency(1);
        import.journal(journal.open())
    };

    let full = in_time(run()).await.unwrap();
    server.clear_faults();
    let resumed = in_time(run()).await.unwrap();

    assert!(full.quota_exceeded() && !full.is_complete(), "{full}");
    assert_eq!((full.refused(), full.not_sent()), (100, 50));
    assert!(full.finished().is_err());
    assert_eq!(counts(&resumed), [150, 0, 0, 0, 0, 0]);
}

#[tokio::test]
async fn the_alternate_text_of_an_import_a_sync_and_an_export_that_stopped_has_the_causes() {
    let contacts = MockServer::start().await.client().contacts();
    let folder = std::env::temp_dir();
    let state = folder.join(format!("audience-causes-{:016x}.sync", fastrand::u64(..)));
    let sync = contacts.sync(
        [SyncRow::new(1, "a@x.io")],
        SyncState::open(&state).unwrap(),
    );
    let path = folder.join("no such folder").join("list.csv");

    let import = contacts.import(numbered(1)).rejects_file(&path).await;
    let sync = sync.rejects_file(&path).await;
    let export = contacts.list().export(&path, JsonLines).await;

    let _ = std::fs::remove_file(&state);
    let stopped: [Box<dyn Error>; 3] = [
        import.unwrap_err().into(),
        sync.unwrap_err().into(),
        export.unwrap_err().into(),
    ];
    for error in stopped {
        let cause = error.source().expect("the file system has the reason");
        assert_eq!(format!("{error:#}"), format!("{error}: {cause}"));
    }
}

#[tokio::test]
async fn a_refused_key_stops_the_import_at_once() {
    let server = MockServer::start().await;
    let client = Client::new(server.url(), server.sending_key()).unwrap();

    let import = client.contacts().import(numbered(5_000));
    let stopped = in_time(import).await.unwrap_err();

    assert!(stopped.error().is_key_not_permitted());
    assert_eq!(
        batches(&server).len(),
        2,
        "those that were started together"
    );
    let report = stopped.report();
    assert_eq!((report.not_sent(), report.total()), (200, 200));
    let text = stopped.to_string();
    let expected = format!(
        "the import stopped before its end: {report}: {}",
        stopped.error()
    );
    assert_eq!(text, expected);
    // A chain that is printed has the error only once.
    assert!(Error::source(&stopped).is_none());
    assert_eq!(stopped.error().kind(), ErrorKind::Api);
}

#[tokio::test]
async fn a_key_that_is_refused_after_the_plan_is_full_is_the_error_of_the_import() {
    let server = MockServer::builder().contact_ceiling(50).start().await;
    let late = Fault::status(401).delayed_by(Duration::from_millis(500));
    server.fault(late.path(BATCH).after(1));

    let import = contacts(&server).import(numbered(400)).concurrency(2);
    let stopped = in_time(import).await.unwrap_err();

    assert!(stopped.error().is_unauthorized(), "{stopped}");
    assert!(stopped.report().quota_exceeded());
}

#[tokio::test]
async fn the_first_refusal_of_the_key_is_the_error_of_the_import() {
    let server = MockServer::start().await;
    let late = Fault::status(403).delayed_by(Duration::from_millis(500));
    server.fault(late.path(BATCH).after(1));
    server.fault(Fault::status(401).path(BATCH).times(1));

    let import = contacts(&server).import(numbered(400)).concurrency(2);
    let stopped = in_time(import).await.unwrap_err();

    assert!(stopped.error().is_unauthorized(), "{stopped}");
}

#[tokio::test]
async fn each_refusal_of_the_key_stops_the_import() {
    for (status, slug) in [
        (401, "unauthorized"),
        (403, "key_not_permitted"),
        (403, "forbidden"),
    ] {
        let server = MockServer::start().await;
        server.fault(Fault::status(status).body(json!({"error": slug}).to_string()));

        let stopped = in_time(contacts(&server).import(numbered(5_000))).await;

        let stopped = stopped.unwrap_err();
        assert_eq!(stopped.error().status().unwrap(), status, "{slug}");
        assert!(stopped.report().total() <= 200, "{stopped}");
    }
}

#[tokio::test]
async fn a_refusal_of_a_batch_that_may_come_from_a_gateway_leaves_its_rows_to_be_sent() {
    let not_found = Fault::status(404).body(json!({"error": "not_found"}).to_string());
    let page = Fault::status(404).body("<html>Not Found</html>");
    let other = [400, 405, 406, 409, 410, 413, 415, 422, 429, 431, 451, 501].map(Fault::status);
    for fault in [not_found, page].into_iter().chain(other) {
        let server = MockServer::start().await;
        server.fault(fault.path(BATCH));
        let (journal, contacts) = (JournalPath::new(), contacts(&server));
        let run = || contacts.import(numbered(250)).journal(journal.open());

        let failed = in_time(run()).await.unwrap();
        server.clear_faults();
        let resumed = in_time(run()).await.unwrap();

        assert_eq!((failed.refused(), failed.not_sent()), (0, 250), "{failed}");
        assert!(!failed.is_complete() && failed.first_failure().is_some());
        assert_eq!(counts(&resumed), [250, 0, 0, 0, 0, 0], "{failed}");
    }
}

#[tokio::test]
async fn a_status_that_is_a_sentence_is_in_the_rejects_and_counts_as_other_in_the_report() {
    let server = MockServer::start().await;
    let status = |n: usize| match n {
        0 => "on_hold".to_owned(),
        _ => format!("{n}@x.io is suppressed"),
    };
    let entry = |n| json!({"email": format!("{n}@x.io"), "status": status(n)});
    let entries: Vec<_> = (0..100).map(entry).collect();
    let response = json!({"data": entries}).to_string();
    server.fault(Fault::wrong_body(response).path(BATCH));
    let rejects = SharedFile::default();

    let import = contacts(&server).import(numbered(100));
    let report = in_time(import.rejects(rejects.clone())).await.unwrap();

    let codes: Vec<_> = report.refused_by_code().collect();
    assert_eq!(codes, [("on_hold", 1), ("other", 99)]);
    assert!(!format!("{report:?}{report}").contains('@'), "{report:?}");
    assert!(rejects.text().contains(",99@x.io is suppressed,"));
}

#[tokio::test]
async fn a_run_is_worth_repeating_if_a_part_of_what_is_left_may_succeed_without_a_change() {
    let opt_out = |topic: &str| ImportRow::from("b@x.io").opt_out(OptOut::Topic(topic.into()));
    let run = async |faults: Vec<Fault>, topic| {
        let server = MockServer::builder().topic("news", true).start().await;
        server.seed_contact("b@x.io");
        faults.into_iter().for_each(|fault| server.fault(fault));
        let rows = numbered(100).map(ImportRow::from).chain([opt_out(topic)]);
        let import = contacts(&server).import(rows).concurrency(1);
        in_time(import).await.unwrap()
    };
    let batch = |status| Fault::status(status).path(BATCH).after(1);
    let no_opt_out = |status| Fault::status(status).path("*/unsubscribe");
    let no_status = json!({"data": [{"email": "b@x.io"}]}).to_string();

    for (faults, topic, expected) in [
        (vec![], "news", None),
        (vec![batch(503)], "news", Some(true)),
        (vec![batch(429)], "news", Some(true)),
        (vec![batch(501)], "news", Some(false)),
        (vec![batch(404)], "news", Some(false)),
        (vec![no_opt_out(503)], "news", Some(true)),
        (vec![no_opt_out(501)], "news", Some(false)),
        (vec![], "misspelled", Some(false)),
        (
            vec![Fault::wrong_body(no_status).path(BATCH).after(1)],
            "news",
            Some(true),
        ),
        (
            vec![Fault::wrong_body("<html>").path(BATCH).after(1)],
            "news",
            Some(false),
        ),
        // Whatever sends JSON without the results, or without the contact, most likely sends it again.
        (
            vec![Fault::wrong_body("{}").path(BATCH).after(1)],
            "news",
            Some(false),
        ),
        (
            vec![Fault::wrong_body("{}").path("/contacts/b@x.io*")],
            "news",
            Some(false),
        ),
        // The first batch may succeed in the next run, and then the second one is left.
        (
            vec![Fault::status(503).path(BATCH).times(4), batch(501)],
            "news",
            Some(true),
        ),
    ] {
        let case = format!("{faults:?} {topic}");

        let report = run(faults, topic).await;

        let is_unsent = report.not_sent() + report.unknown() > 0;
        let error = report.finished().err();
        let found = error.as_ref().map(|error| error.error().is_retryable());
        assert_eq!(found, expected, "{case}: {error:?}");
        let says_to_mend = ["mend what failed", "mend what its message"];
        let reason = error.as_ref().map(ToString::to_string).unwrap_or_default();
        let is_to_mend = says_to_mend.iter().any(|text| reason.contains(text));
        assert_eq!(is_to_mend, expected == Some(false), "{case}: {reason}");
        let says_unsent = reason.contains("not sent, or their outcome is unknown");
        assert_eq!(says_unsent, is_unsent, "{case}: {reason}");
        let has_cause = reason.contains("; the first failure: ");
        assert!(
            has_cause || !reason.contains("opt-out failed"),
            "{case}: {reason}"
        );
        let status = error.as_ref().map(|error| audience::exit_status(error));
        let expected = expected.map(|is_retryable| if is_retryable { 75 } else { 1 });
        assert_eq!(status, expected, "{case}");
    }
}

#[tokio::test]
async fn a_stopped_run_is_worth_repeating_and_a_full_plan_is_not() {
    let server = MockServer::builder().contact_ceiling(1).start().await;
    let contacts = contacts(&server);

    let stopped = contacts.import(numbered(2)).stop_when(async {});
    let stopped = in_time(stopped).await.unwrap();
    let full = in_time(contacts.import(numbered(2))).await.unwrap();
    let mut total = full.clone();
    total.merge(stopped.clone());

    let statuses = [stopped, full, total].map(|report| {
        let error = report.finished().unwrap_err();
        audience::exit_status(&error)
    });
    assert_eq!(statuses, [143, 1, 75]);
}

/// The exit code of a program whose `run` has this result.
fn exit_code<T: Termination>(result: Result<T, impl Into<Box<dyn Error>>>) -> ExitCode {
    audience::exit_code(result.map_err(Into::into))
}

#[tokio::test]
async fn a_report_ends_a_program_with_what_is_left_to_do() {
    let server = MockServer::start().await;
    let contacts = contacts(&server);
    let rows = || ["a@x.io", "no address"];
    let folder = JournalPath::new();
    let path = |name: &str| folder.0.with_extension(name);
    let sync = |rows: &[&str]| {
        let rows = rows.iter().map(|row| SyncRow::new(*row, *row));
        contacts.sync(
            rows.collect::<Vec<_>>(),
            SyncState::open(path("sync")).unwrap(),
        )
    };

    let mut codes = vec![
        exit_code(contacts.import(rows()).await),
        exit_code(contacts.import(["a@x.io"]).await),
        exit_code(contacts.import(rows()).stop_when(async {}).await),
        exit_code(contacts.import(rows()).dry_run().await),
        exit_code(sync(&rows()).await),
        exit_code(sync(&["a@x.io"]).await),
        exit_code(contacts.list().export(path("jsonl"), JsonLines).await),
    ];
    server.fault(Fault::status(503).path(BATCH));
    codes.push(exit_code(contacts.import(rows()).await));
    server.clear_faults();
    let ada = &contacts.list().await.unwrap().data[0];
    let page = json!({"data": [{"id": "c_bad"}, ada], "next": ada.id});
    server.fault(
        Fault::wrong_body(page.to_string())
            .path("/contacts")
            .times(1),
    );
    codes.push(exit_code(
        contacts.list().export(path("jsonl"), JsonLines).await,
    ));
    codes.push(exit_code(Err::<(), _>("disk")));
    codes.push(exit_code(Ok::<_, std::io::Error>(())));

    let expected = [3, 0, 143, 3, 3, 0, 0, 75, 3, 1, 0];
    assert_eq!(codes, expected.map(ExitCode::from));
    for name in ["sync", "jsonl"] {
        std::fs::remove_file(path(name)).unwrap();
    }
}

#[tokio::test]
async fn a_batch_that_gets_a_404_says_to_check_the_base_url() {
    let server = MockServer::start().await;
    server.fault(
        Fault::status(404)
            .body("<html>Not Found</html>")
            .path(BATCH),
    );

    let report = in_time(contacts(&server).import(numbered(9)))
        .await
        .unwrap();

    let failure = report.first_failure().unwrap();
    assert!(failure.ends_with("check the base URL"), "{failure}");
}

#[tokio::test]
async fn an_infinite_iterator_ends_with_a_refused_key() {
    let server = MockServer::start().await;
    let client = Client::new(server.url(), "wrong").unwrap();
    let rows = (0_u64..).map(|n| format!("{n}@x.io"));

    let stopped = in_time(client.contacts().import(rows)).await.unwrap_err();

    assert!(stopped.error().is_unauthorized());
}

#[tokio::test]
async fn a_result_list_of_another_length_names_the_batch() {
    let server = respond_with(ok(json!({"data": [{"status": "created"}]}))).await;
    let contacts = Client::new(server.uri(), "key").unwrap().contacts();
    let rows = (0..150).map(|n| ImportRow::from(format!("{n}@x.io")).line(n + 2));

    let report = in_time(contacts.import(rows).concurrency(1)).await.unwrap();
    let stopping = contacts
        .import(numbered(150))
        .concurrency(1)
        .stop_on_failure();
    let stopped = in_time(stopping).await.unwrap_err();

    let length = "the response has 1 results for";
    assert_eq!(counts(&report), [0, 0, 0, 0, 0, 150]);
    assert_eq!(
        report.first_failure(),
        Some(format!("create_batch: batch of lines 2 to 101: {length} 100 entries").as_str())
    );
    assert_eq!(
        stopped.error().to_string(),
        format!("create_batch: batch of rows 1 to 100: {length} 100 entries")
    );
    assert_eq!(counts(stopped.report()), [0, 0, 0, 0, 50, 100]);
}

#[tokio::test]
async fn a_page_for_people_instead_of_results_leaves_the_rows_unknown() {
    let page = ResponseTemplate::new(200).set_body_string("<html>Back soon</html>");
    let server = respond_with(page).await;
    let contacts = Client::new(server.uri(), "key").unwrap().contacts();

    let report = in_time(contacts.import(numbered(350))).await.unwrap();

    assert_eq!(counts(&report), [0, 0, 0, 0, 0, 350]);
    assert!(report.first_failure().is_some());
}

#[tokio::test]
async fn a_batch_that_fails_for_good_gives_its_rows_an_outcome_and_the_rest_goes_on() {
    for (fault, outcome) in [
        (Fault::status(503), RowOutcome::Unknown),
        (Fault::close_after(), RowOutcome::Unknown),
        (refused_batch(), refused("validation_error", false)),
        (
            Fault::status(409).body(r#"{"error": {"code": "already_exists"}}"#),
            refused("already_exists", false),
        ),
        (Fault::status(429), RowOutcome::NotSent),
    ] {
        let server = MockServer::start().await;
        // Four attempts are made of what may be retried. A batch that is refused is sent in halves, down to its rows.
        let is_refused = matches!(outcome, RowOutcome::Refused { .. });
        let times = if is_refused { 199 } else { 4 };
        server.fault(fault.path(BATCH).after(1).times(times));
        let mut outcomes = contacts(&server)
            .import(numbered(250))
            .concurrency(1)
            .outcomes();
        let mut found = Vec::new();
        while let Some((_, outcome)) = in_time(outcomes.next()).await {
            found.push(outcome);
        }
        let report = outcomes.finish().unwrap();

        let failure = report.first_failure().unwrap_or_default();
        let is_named = failure.contains("batch of rows 101 to 200");
        assert_eq!(is_named, !is_refused, "{failure}");
        assert_eq!(report.created(), 150, "{outcome:?}");
        let is_same = |found: &RowOutcome| {
            found.code() == outcome.code() && found.is_retryable() == outcome.is_retryable()
        };
        assert!(
            found[100..200].iter().all(is_same),
            "{outcome:?} {:?}",
            found[100]
        );
    }
}

#[tokio::test]
async fn a_batch_that_is_too_long_for_the_service_is_sent_in_halves() {
    let server = MockServer::start().await;
    server.fault(Fault::status(413).path(BATCH).times(3));
    let rows = numbered(99).chain([NewContact::new("0@x.io").first_name("Last")]);

    let report = in_time(contacts(&server).import(rows)).await.unwrap();

    assert_eq!(counts(&report), [99, 1, 0, 0, 0, 0]);
    let lengths: Vec<_> = batches(&server).iter().map(Vec::len).collect();
    assert_eq!(lengths, [100, 50, 25, 12, 13, 25, 50]);
    // The later row of an address is applied last.
    let first_name = server.contact("0@x.io").unwrap().first_name;
    assert_eq!(first_name.as_deref(), Some("Last"));
    drop(report.finished().unwrap());
}

#[tokio::test]
async fn a_row_that_is_too_large_alone_is_not_sent_and_the_others_are() {
    let server = respond_with(|request: &Request| match request.body.len() {
        ..2_000 => created(request),
        _ => ResponseTemplate::new(413),
    })
    .await;
    let contacts = Client::new(server.uri(), "key").unwrap().contacts();
    let large = NewContact::new("large@x.io").property("text", "x".repeat(2_000));
    let rows = numbered(20)
        .chain([large])
        .chain([NewContact::new("last@x.io")]);

    let report = in_time(contacts.import(rows)).await.unwrap();

    assert_eq!(counts(&report), [21, 0, 0, 0, 1, 0]);
    let failure = report.first_failure().unwrap();
    assert!(failure.contains("413"), "{failure}");
    report.finished().unwrap_err();
}

#[tokio::test]
async fn a_later_row_with_the_address_of_a_row_that_is_left_is_not_sent() {
    let page = Fault::status(403).body("<html>Blocked</html>");
    for (fault, attempts, expected) in [
        (Fault::status(413), 1, [2, 0, 0, 0, 2, 0]),
        (Fault::status(400), 1, [2, 0, 0, 0, 2, 0]),
        (page, 1, [2, 0, 0, 0, 2, 0]),
        // The first batch may have been applied, with all its rows.
        (Fault::status(500), 4, [2, 0, 0, 0, 0, 2]),
    ] {
        let server = MockServer::start().await;
        let case = format!("{fault:?}");
        // The batch fails, and so do its first half and its first row.
        server.fault(fault.path(BATCH).times(3 * attempts));
        let (journal, contacts) = (JournalPath::new(), contacts(&server));
        let run = || {
            let rows = [
                ("a@x.io", "Old"),
                ("b@x.io", "B"),
                ("A@x.io", "New"),
                ("c@x.io", "C"),
            ];
            let rows = rows.map(|(address, name)| NewContact::new(address).first_name(name));
            contacts.import(rows).journal(journal.open())
        };

        let failed = in_time(run()).await.unwrap();
        let was_created = server.contact("a@x.io").is_some();
        let resumed = in_time(run()).await.unwrap();

        assert_eq!(counts(&failed), expected, "{case}");
        assert!(!was_created);
        let mut sent = batches(&server);
        let sent = sent.split_off(sent.len() - 3);
        assert_eq!(
            sent,
            [vec!["b@x.io"], vec!["c@x.io"], vec!["a@x.io", "A@x.io"]],
            "{case}"
        );
        assert_eq!(counts(&resumed), [3, 1, 0, 0, 0, 0], "{case}");
        let first_name = server.contact("a@x.io").unwrap().first_name;
        assert_eq!(first_name.as_deref(), Some("New"));
    }
}

#[tokio::test]
async fn a_row_that_the_service_or_a_firewall_cannot_take_is_left_and_the_others_are_sent() {
    for (code, expected) in [
        (400, [149, 0, 0, 0, 1, 0]),
        (403, [149, 0, 0, 0, 1, 0]),
        (500, [149, 0, 0, 0, 0, 1]),
    ] {
        let server = respond_with(move |request: &Request| {
            match addresses_of(request).contains(&"70@x.io".to_owned()) {
                true => ResponseTemplate::new(code).set_body_string("<html>Error</html>"),
                false => created(request),
            }
        })
        .await;
        let client = Client::builder(server.uri(), "key").retry(RetryPolicy::none());
        let contacts = client.build().unwrap().contacts();

        let import = contacts.import(numbered(150)).concurrency(1);
        let report = in_time(import).await.unwrap();

        assert_eq!(counts(&report), expected, "{code}");
        let failure = report.first_failure().unwrap();
        assert!(failure.contains("batch of rows 1 to 100"), "{failure}");
        assert!(failure.contains(&code.to_string()), "{failure}");
        let requests = received(&server).await.len();
        assert_eq!(requests, 16, "the way to one of 100 rows, and a batch");
    }
}

#[tokio::test]
async fn rows_that_must_be_new_are_not_sent_again_after_a_500() {
    let server = MockServer::start().await;
    server.fault(Fault::status(500).path(BATCH));
    let rows = numbered(100).map(|contact| contact.on_conflict(OnConflict::Error));

    let report = in_time(contacts(&server).import(rows)).await.unwrap();

    assert_eq!(counts(&report), [0, 0, 0, 0, 0, 100]);
    assert_eq!(batches(&server).len(), 1);
}

#[tokio::test]
async fn a_service_that_fails_for_everything_gets_no_more_halves_after_100_requests() {
    for (code, expected) in [(400, [0, 0, 0, 0, 2_000, 0]), (500, [0, 0, 0, 0, 0, 2_000])] {
        let server = MockServer::start().await;
        server.fault(Fault::status(code).path(BATCH));
        let client = server.client_builder().retry(RetryPolicy::none());
        let contacts = client.build().unwrap().contacts();

        let import = contacts.import(numbered(2_000)).concurrency(1);
        let report = in_time(import).await.unwrap();

        assert_eq!(counts(&report), expected, "{code}");
        // The other 19 batches are sent once.
        assert_eq!(batches(&server).len(), 119, "{code}");
    }
}

#[tokio::test]
async fn a_firewall_that_refuses_everything_stops_the_import_after_100_requests() {
    let server = MockServer::start().await;
    server.fault(Fault::status(403).body("<html>Blocked</html>"));
    let rows = (0_u64..).map(|n| format!("{n}@x.io"));

    let import = contacts(&server).import(rows).concurrency(1);
    let stopped = in_time(import).await.unwrap_err();

    assert!(stopped.error().is_forbidden(), "{stopped}");
    assert_eq!(counts(stopped.report()), [0, 0, 0, 0, 100, 0]);
    assert_eq!(server.requests().len(), 100);
}

#[tokio::test]
async fn the_ceiling_of_the_plan_stops_the_import_also_if_a_row_of_the_batch_is_too_large() {
    let server = MockServer::builder().contact_ceiling(0).start().await;
    // The batch is too large, and so are its first parts down to one row.
    server.fault(Fault::status(413).path(BATCH).times(7));

    let import = contacts(&server).import(numbered(101)).concurrency(1);
    let report = in_time(import).await.unwrap();

    assert!(report.quota_exceeded());
    assert_eq!(counts(&report), [0, 0, 0, 99, 2, 0]);
    let failure = report.first_failure().unwrap();
    assert!(failure.contains("413"), "{failure}");
}

#[tokio::test]
async fn a_validation_error_for_a_whole_batch_refuses_only_the_row_that_is_refused_alone() {
    let server = respond_with(|request: &Request| {
        if addresses_of(request)
            .iter()
            .all(|address| address.contains('@'))
        {
            return created(request);
        }
        let refusal = json!({"code": "validation_error", "message": "not an address"});
        ResponseTemplate::new(422).set_body_json(json!({"error": refusal}))
    })
    .await;
    let contacts = Client::new(server.uri(), "key").unwrap().contacts();
    let rows = (0..100).map(|n| match n {
        70 => "nobody".to_owned(),
        n => format!("{n}@x.io"),
    });

    let mut outcomes = contacts.import(rows).stop_on_failure().outcomes();
    let mut found = Vec::new();
    while let Some((_, outcome)) = in_time(outcomes.next()).await {
        found.push(outcome.to_string());
    }
    let report = outcomes.finish().unwrap();

    assert_eq!(counts(&report), [99, 0, 0, 1, 0, 0]);
    assert_eq!(found[70], "validation_error: not an address");
    assert_eq!((report.first_failure(), report.is_complete()), (None, true));
}

#[tokio::test]
async fn the_rows_of_a_batch_after_a_part_that_failed_are_not_sent_and_a_resumed_import_sends_them()
{
    let server = MockServer::start().await;
    server.fault(Fault::status(413).path(BATCH).times(1));
    server.fault(Fault::close_after().path(BATCH).after(1).times(1));
    let (journal, contacts) = (JournalPath::new(), contacts(&server));
    let run = || {
        let rows = numbered(100).map(|contact| contact.on_conflict(OnConflict::Error));
        contacts.import(rows).journal(journal.open())
    };

    let failed = in_time(run()).await.unwrap();
    let resumed = in_time(run()).await.unwrap();

    assert_eq!(counts(&failed), [0, 0, 0, 0, 50, 50]);
    assert_eq!(counts(&resumed), [50, 0, 0, 0, 0, 50]);
    assert_eq!(server.contact_count(), 100);
}

#[tokio::test]
async fn a_key_that_is_refused_after_a_row_that_is_too_large_stops_the_import() {
    let server = MockServer::start().await;
    server.fault(Fault::status(413).path(BATCH).times(2));
    server.fault(Fault::status(401).path(BATCH).after(2));

    let stopped = in_time(contacts(&server).import(numbered(2))).await;

    let stopped = stopped.unwrap_err();
    assert!(stopped.error().is_unauthorized(), "{stopped}");
    assert_eq!(counts(stopped.report()), [0, 0, 0, 0, 2, 0]);
}

/// The addresses of the entries of a batch.
fn addresses_of(request: &Request) -> Vec<String> {
    let entries: Vec<NewContact> = serde_json::from_slice(&request.body).unwrap();
    entries.into_iter().map(|entry| entry.email).collect()
}

/// The response to a batch whose contacts are all new.
fn created(request: &Request) -> ResponseTemplate {
    let addresses = addresses_of(request).into_iter();
    let results = addresses.map(|address| json!({"email": address, "status": "created"}));
    ok(json!({"data": results.collect::<Vec<_>>()}))
}

fn refused(code: &str, retryable: bool) -> RowOutcome {
    let json = json!({"refused": {"code": code, "message": null, "retryable": retryable}});
    serde_json::from_value(json).unwrap()
}

#[tokio::test]
async fn rows_are_not_sent_if_nothing_listens() {
    let client = Client::builder(closed_url(), "key").retry(RetryPolicy::none());
    let contacts = client.build().unwrap().contacts();

    let report = in_time(contacts.import(numbered(250))).await.unwrap();
    let stopped = in_time(contacts.import(numbered(250)).stop_on_failure()).await;

    assert_eq!(counts(&report), [0, 0, 0, 0, 250, 0]);
    let stopped = stopped.unwrap_err();
    assert_eq!(stopped.error().kind(), ErrorKind::Connect);
    assert!(stopped.source().is_some(), "{stopped}");
}

#[tokio::test]
async fn batches_that_fail_do_not_count_as_rounds_without_trouble() {
    let client = Client::builder(closed_url(), "key").retry(RetryPolicy::none());
    let (shown, limits) = std::sync::mpsc::channel();

    let import = client.build().unwrap().contacts().import(numbered(5_000));
    let import = import.on_progress(move |progress| shown.send(progress.limit()).unwrap());
    let report = in_time(import).await.unwrap();

    assert_eq!(report.not_sent(), 5_000);
    assert!(limits.iter().all(|limit| limit == 2));
}

#[tokio::test]
async fn an_import_waits_out_an_outage_that_is_too_long_for_other_calls() {
    let server = MockServer::start().await;
    server.fault(Fault::status(503).path(BATCH).times(4));
    let client = Client::new(server.url(), server.full_key()).unwrap();

    let report = in_time(client.contacts().import(numbered(10)))
        .await
        .unwrap();

    assert_eq!(counts(&report), [10, 0, 0, 0, 0, 0]);
    assert_eq!(server.requests().len(), 5);
}

#[tokio::test]
async fn a_policy_of_the_client_is_that_of_its_imports() {
    let server = MockServer::start().await;
    server.fault(Fault::status(503).path(BATCH).times(4));

    let report = in_time(contacts(&server).import(numbered(10)))
        .await
        .unwrap();

    assert_eq!(counts(&report), [0, 0, 0, 0, 0, 10]);
    assert_eq!(server.requests().len(), 4);
}

#[tokio::test]
async fn retries_are_those_of_any_call_with_the_settings_of_the_import() {
    let server = MockServer::start().await;
    server.fault(Fault::status(503).times(9));
    let delay = Duration::from_millis(1);
    let policy = RetryPolicy::exponential()
        .base_delay(delay)
        .max_attempts(10);

    let import = contacts(&server).import(numbered(10)).retry(policy);
    let report = in_time(import).await.unwrap();

    assert_eq!(counts(&report), [10, 0, 0, 0, 0, 0]);
    assert_eq!(server.requests().len(), 10);
}

#[tokio::test]
async fn a_row_that_cannot_be_sent_is_refused_and_the_others_are_sent() {
    let server = MockServer::start().await;
    let number = NewContact::new("nan@x.io").property("n", f64::NAN);
    let rows = [
        ImportRow::from("ada@x.io"),
        ImportRow::unreadable("the row has 2 cells"),
        ImportRow::new(number),
        ImportRow::from("no address"),
    ];

    let report = in_time(contacts(&server).import(rows)).await.unwrap();

    let by_code: Vec<_> = report.refused_by_code().collect();
    assert_eq!(by_code, [("invalid_row", 2), ("validation_error", 1)]);
    assert_eq!((report.created(), report.total()), (1, 4));
    assert!(report.is_complete());
}

#[tokio::test]
async fn an_empty_import_sends_nothing() {
    let server = MockServer::start().await;

    let report = in_time(contacts(&server).import(Vec::<String>::new()))
        .await
        .unwrap();

    assert_eq!(report.total(), 0);
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_report_is_the_same_after_its_json() {
    let server = MockServer::builder().contact_ceiling(120).start().await;
    let rows = numbered(500)
        .map(ImportRow::from)
        .chain([ImportRow::unreadable("x")]);

    let report = in_time(contacts(&server).import(rows).concurrency(1))
        .await
        .unwrap();

    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["created"], 120);
    assert_eq!(
        json["refused"],
        json!({"invalid_row": 1, "quota_exceeded": 80})
    );
    assert_eq!(json["not_sent"], 300);
    assert_eq!(
        serde_json::from_value::<audience::import::ImportReport>(json).unwrap(),
        report
    );
}

#[tokio::test]
async fn an_unknown_refusal_is_retryable_unless_the_row_must_be_new() {
    let server = MockServer::start().await;
    let entry = |email: &str| json!({"email": email, "status": "on_holiday"});
    let results = json!({"data": [entry("a@x.io"), entry("b@x.io")]});
    server.fault(Fault::wrong_body(results.to_string()).path(BATCH));
    let strict = NewContact::new("b@x.io").on_conflict(OnConflict::Error);
    let rows = [ImportRow::from("a@x.io"), ImportRow::from(strict)];

    let outcomes = contacts(&server).import(rows).outcomes();
    let outcomes: Vec<_> = in_time(outcomes.collect()).await;

    let outcomes: Vec<_> = outcomes.into_iter().map(|(_, outcome)| outcome).collect();
    let expected = [refused("on_holiday", true), refused("on_holiday", false)];
    assert_eq!(outcomes, expected);
}
