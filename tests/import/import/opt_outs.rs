//! Opt-outs of rows, and those that exist.

use std::time::Duration;

use audience::RetryPolicy;
use audience::contacts::{NewContact, OnConflict, OptOutReason};
use audience::import::{Import, ImportRow, OptOut, RowOutcome};
use audience::mock::dialect::ContactDeletion;
use audience::mock::{Dialect, Fault, MockServer};
use futures_util::StreamExt;
use serde_json::json;

use super::csv_rejects::SharedFile;
use super::{JournalPath, batches, contacts, counts, refused_batch};
use support::{TIMEOUT, in_time};

const EVERYTHING: OptOut = OptOut::Everything(OptOutReason::Preferences);

async fn server() -> MockServer {
    MockServer::builder()
        .topic("news", true)
        .topic("offers", true)
        .start()
        .await
}

#[tokio::test]
async fn an_opt_out_is_recorded_with_its_reason_after_the_contact_exists() {
    let server = server().await;
    let rows = [
        ImportRow::from("Ada@x.io").opt_out(EVERYTHING),
        ImportRow::from("bob@x.io").opt_out(OptOut::Topic("news".into())),
        ImportRow::from("eve@x.io")
            .opt_out(OptOut::Everything(OptOutReason::Manual))
            .opt_out(OptOut::Topic("offers".into())),
        ImportRow::from("dan@x.io"),
    ];

    let report = in_time(contacts(&server).import(rows)).await.unwrap();

    assert_eq!(counts(&report), [4, 0, 0, 0, 0, 0]);
    let reason = |address| server.contact(address).unwrap().unsubscribe_reason;
    assert_eq!(
        ["ada@x.io", "bob@x.io", "eve@x.io", "dan@x.io"].map(reason),
        ["preferences", "", "manual", ""]
    );
    let answers = |address| json!(server.contact(address).unwrap().answers);
    assert_eq!(answers("bob@x.io"), json!({"news": false}));
    assert_eq!(answers("eve@x.io"), json!({"offers": false}));
    let paths: Vec<_> = server
        .requests()
        .into_iter()
        .map(|request| request.path)
        .collect();
    assert_eq!(paths[0], "/contacts/batch");
    assert_eq!(paths.len(), 5);
}

#[tokio::test]
async fn an_opt_out_behind_a_gateway_that_responds_404_to_everything_is_not_worth_a_second_run() {
    let server = server().await;
    contacts(&server).create("ada@x.io").await.unwrap();
    server.fault(Fault::status(404).method("GET"));

    let rows = [ImportRow::from("ada@x.io").opt_out(EVERYTHING)];
    let report = in_time(contacts(&server).import(rows)).await.unwrap();

    assert_eq!((report.updated(), report.opt_out_failed()), (0, 1));
    assert!(!report.is_complete());
    assert!(!report.finished().unwrap_err().error().is_retryable());
}

#[tokio::test]
async fn an_opt_out_after_a_404_that_cannot_be_checked_for_a_while_is_worth_a_second_run() {
    let server = server().await;
    contacts(&server).create("ada@x.io").await.unwrap();
    server.fault(Fault::status(404).path("/contacts/ada%40x.io"));
    server.fault(Fault::status(503).path("/contacts").method("GET"));

    let rows = [ImportRow::from("ada@x.io").opt_out(EVERYTHING)];
    let report = in_time(contacts(&server).import(rows)).await.unwrap();

    assert_eq!((report.updated(), report.opt_out_failed()), (0, 1));
    assert!(report.finished().unwrap_err().error().is_retryable());
}

#[tokio::test]
async fn an_import_keeps_every_opt_out_and_never_subscribes() {
    let server = server().await;
    server.seed(json!({"contacts": [
        {"email": "ada@x.io", "unsubscribed": true, "unsubscribe_reason": "manual"},
        {"email": "bob@x.io", "topics": {"news": false}},
    ]}));
    server.report_spam("eve@x.io");
    let rows = ["ada@x.io", "bob@x.io", "eve@x.io"]
        .map(|address| NewContact::new(address).first_name("N"));

    let report = in_time(contacts(&server).import(rows)).await.unwrap();

    assert_eq!(report.refused(), 0);
    assert!(server.contact("ada@x.io").unwrap().unsubscribed);
    assert_eq!(
        json!(server.contact("bob@x.io").unwrap().answers),
        json!({"news": false})
    );
    assert!(
        server
            .requests()
            .iter()
            .all(|request| !request.path.contains("subscribe"))
    );
}

#[tokio::test]
async fn a_no_to_a_topic_becomes_an_answer_also_if_it_is_the_default_and_the_contact_is_opted_out()
{
    let server = MockServer::builder().topic("news", false).start().await;
    server.seed(json!({"contacts": [
        {"email": "ada@x.io", "unsubscribed": true, "unsubscribe_reason": "manual"},
    ]}));
    let row = ImportRow::from("ada@x.io").opt_out(EVERYTHING);
    let row = row.opt_out(OptOut::Topic("news".into()));

    let report = in_time(contacts(&server).import([row])).await.unwrap();

    assert_eq!(counts(&report), [0, 1, 0, 0, 0, 0]);
    let ada = server.contact("ada@x.io").unwrap();
    assert_eq!(json!(ada.answers), json!({"news": false}));
    // The opt-out of everything is not sent again.
    assert_eq!(ada.unsubscribe_reason, "manual");
}

#[tokio::test]
async fn a_row_whose_opt_out_failed_says_which_and_why() {
    let server = server().await;
    let rows = [
        ImportRow::from("ada@x.io")
            .opt_out(OptOut::Topic("typo".into()))
            .opt_out(EVERYTHING),
        ImportRow::from("bob@x.io").opt_out(EVERYTHING),
    ];

    let mut outcomes = contacts(&server).import(rows).outcomes();
    let (_, ada) = outcomes.next().await.unwrap();
    let (_, bob) = outcomes.next().await.unwrap();
    assert!(outcomes.next().await.is_none());
    let report = outcomes.finish().unwrap();

    let RowOutcome::OptOutFailed { code, message, .. } = ada else {
        panic!("{ada:?}");
    };
    assert_eq!(code.as_str(), "not_found");
    assert!(
        message
            .unwrap()
            .starts_with("the opt-out of the topic \"typo\" was not recorded: ")
    );
    assert_eq!(bob, RowOutcome::Created);
    assert_eq!(
        (report.created(), report.opt_out_failed(), report.refused()),
        (1, 1, 1)
    );
    // The other opt-out of the row was recorded nevertheless.
    assert!(server.contact("ada@x.io").unwrap().unsubscribed);
}

#[tokio::test]
async fn the_opt_outs_of_a_row_that_must_be_new_and_is_not_are_not_sent_and_those_of_a_skipped_row_are()
 {
    let server = server().await;
    server.seed(json!({"contacts": [{"email": "ada@x.io"}, {"email": "bob@x.io"}]}));
    let row = |address: &str, conflict| {
        let contact = NewContact::new(address).on_conflict(conflict);
        ImportRow::new(contact).opt_out(EVERYTHING)
    };
    let rows = || {
        [
            row("ada@x.io", OnConflict::Error),
            row("bob@x.io", OnConflict::Skip),
        ]
    };
    let (journal, contacts) = (JournalPath::new(), contacts(&server));

    // A resumed import does not send them either.
    for _ in 0..2 {
        let import = contacts.import(rows()).journal(journal.open());
        let report = in_time(import).await.unwrap();

        assert_eq!(counts(&report), [0, 0, 1, 1, 0, 0]);
        assert!(!server.contact("ada@x.io").unwrap().unsubscribed);
        assert!(server.contact("bob@x.io").unwrap().unsubscribed);
    }
}

#[tokio::test]
async fn at_the_ceiling_of_the_plan_the_opt_out_of_a_contact_that_exists_is_sent() {
    let server = server().await;
    server.seed_contact("ada@x.io");
    server.set_ceiling(Some(1));
    let (journal, contacts) = (JournalPath::new(), contacts(&server));
    let rows = || {
        let [ada, eve] =
            ["ada@x.io", "eve@x.io"].map(|row| ImportRow::from(row).opt_out(EVERYTHING));
        [ImportRow::from("new@x.io"), ada, eve]
    };
    let run = || contacts.import(rows()).journal(journal.open());

    let full = in_time(run()).await.unwrap();
    let ada = server.contact("ada@x.io").unwrap();
    server.set_ceiling(None);
    let resumed = in_time(run()).await.unwrap();

    let refused: Vec<_> = full.refused_by_code().collect();
    assert_eq!(refused, [("quota_exceeded", 3)]);
    assert!(ada.unsubscribed);
    assert_eq!(counts(&resumed), [2, 1, 0, 0, 0, 0]);
    assert!(server.contact("eve@x.io").unwrap().unsubscribed);
}

#[tokio::test]
async fn at_the_ceiling_of_the_plan_an_opt_out_that_fails_is_reported_and_a_resumed_import_sends_the_row()
 {
    let server = server().await;
    server.seed_contact("ada@x.io");
    let full = json!({"data": [{"email": "ada@x.io", "status": "quota_exceeded"}]});
    server.fault(
        Fault::status(200)
            .body(full.to_string())
            .path("/contacts/batch"),
    );
    server.fault(Fault::status(503).path("*/unsubscribe"));
    let (journal, contacts) = (JournalPath::new(), contacts(&server));
    let import = || contacts.import([ImportRow::from("ada@x.io").opt_out(EVERYTHING)]);

    let without_journal = in_time(import()).await.unwrap();
    let failed = in_time(import().journal(journal.open())).await.unwrap();
    server.clear_faults();
    let resumed = in_time(import().journal(journal.open())).await.unwrap();

    for report in [without_journal, failed] {
        assert_eq!(counts(&report), [0, 0, 0, 1, 0, 0]);
        assert_eq!(report.opt_out_failed(), 1);
        assert!(report.quota_exceeded() && !report.is_complete());
        report.finished().unwrap_err();
    }
    assert_eq!(counts(&resumed), [0, 1, 0, 0, 0, 0]);
    assert!(server.contact("ada@x.io").unwrap().unsubscribed);
    assert_eq!(batches(&server).len(), 3);
}

#[tokio::test]
async fn the_opt_out_of_a_row_that_is_refused_because_of_a_property_is_sent_if_its_contact_exists()
{
    let server = server().await;
    server.seed_contact("ada@x.io");
    let row = |address: &str| {
        let contact = NewContact::new(address).property("vip", json!(true));
        ImportRow::new(contact).opt_out(EVERYTHING)
    };
    let rows = ["ada@x.io", "zoe@x.io", "nobody"].map(row);

    let report = in_time(contacts(&server).import(rows)).await.unwrap();

    let refused: Vec<_> = report.refused_by_code().collect();
    assert_eq!(refused, [("validation_error", 3)]);
    assert!(server.contact("ada@x.io").unwrap().unsubscribed);
    assert_eq!(server.contact_count(), 1);
    let mut requests = server.requests().into_iter();
    assert!(!requests.any(|request| request.path.contains("nobody")));
    drop(report.finished().unwrap());
}

#[tokio::test]
async fn the_opt_out_of_a_row_that_is_too_large_is_sent_if_its_contact_exists() {
    let server = server().await;
    server.seed_contact("ada@x.io");
    server.seed_contact("bob@x.io");
    server.fault(Fault::status(413).path("/contacts/batch"));
    let (journal, contacts) = (JournalPath::new(), contacts(&server));
    let run = || {
        let [ada, eve] =
            ["ada@x.io", "eve@x.io"].map(|row| ImportRow::from(row).opt_out(EVERYTHING));
        let rows = [ada, eve, strict("bob@x.io")];
        contacts.import(rows).journal(journal.open())
    };

    let failed = in_time(run()).await.unwrap();
    let opted_out = |address| server.contact(address).unwrap().unsubscribed;
    let were_opted_out = ["ada@x.io", "bob@x.io"].map(opted_out);
    server.clear_faults();
    let resumed = in_time(run()).await.unwrap();

    assert_eq!(counts(&failed), [0, 0, 0, 0, 3, 0]);
    assert_eq!(were_opted_out, [true, false]);
    assert_eq!(counts(&resumed), [1, 1, 0, 1, 0, 0]);
    assert_eq!(["eve@x.io", "bob@x.io"].map(opted_out), [true, false]);
}

#[tokio::test]
async fn the_opt_out_of_a_row_that_the_service_cannot_process_is_sent_if_its_contact_exists() {
    let server = server().await;
    server.seed_contact("ada@x.io");
    server.fault(Fault::status(500).path("/contacts/batch"));
    let (journal, contacts) = (JournalPath::new(), contacts(&server));
    let run = || {
        // The second row is left because of the first one.
        let [ada, eve] =
            ["Ada@x.io", "eve@x.io"].map(|row| ImportRow::from(row).opt_out(EVERYTHING));
        let rows = ["ada@x.io".into(), ada, eve];
        contacts.import(rows).journal(journal.open())
    };

    let failed = in_time(run()).await.unwrap();
    let opted_out = |address| server.contact(address).map(|contact| contact.unsubscribed);
    let were_opted_out = ["ada@x.io", "eve@x.io"].map(opted_out);
    server.clear_faults();
    let resumed = in_time(run()).await.unwrap();

    assert_eq!(counts(&failed), [0, 0, 0, 0, 0, 3]);
    assert_eq!(were_opted_out, [Some(true), None]);
    assert_eq!(counts(&resumed), [1, 2, 0, 0, 0, 0]);
    assert_eq!(opted_out("eve@x.io"), Some(true));
}

#[tokio::test]
async fn the_opt_out_that_fails_of_a_row_that_is_not_accepted_leaves_the_row_to_the_next_import() {
    for (status, expected) in [(413, [0, 0, 0, 0, 1, 0]), (500, [0, 0, 0, 0, 0, 1])] {
        let server = server().await;
        server.seed_contact("ada@x.io");
        server.fault(Fault::status(status).path("/contacts/batch"));
        server.fault(Fault::status(503).path("*/unsubscribe"));
        let (journal, contacts) = (JournalPath::new(), contacts(&server));
        let run = || {
            let row = ImportRow::new(NewContact::new("ada@x.io").first_name("Ada"));
            let rows = [row.opt_out(EVERYTHING)];
            contacts.import(rows).journal(journal.open())
        };

        let failed = in_time(run()).await.unwrap();
        server.clear_faults();
        let resumed = in_time(run()).await.unwrap();

        assert_eq!((counts(&failed), failed.opt_out_failed()), (expected, 0));
        assert_eq!(counts(&resumed), [0, 1, 0, 0, 0, 0], "{status}");
        let ada = server.contact("ada@x.io").unwrap();
        assert_eq!(ada.first_name.as_deref(), Some("Ada"), "{status}");
        assert!(ada.unsubscribed, "{status}");
    }
}

#[tokio::test]
async fn no_request_is_made_for_the_opt_out_of_an_address_that_the_service_refuses() {
    for code in ["validation_error", "invalid_address", "invalid_email"] {
        let server = server().await;
        let results = json!({"data": [{"email": "ada@x.io", "status": code}]});
        let refused = Fault::status(200).body(results.to_string());
        server.fault(refused.path("/contacts/batch"));
        let row = ImportRow::from("ada@x.io").opt_out(EVERYTHING);

        let report = in_time(contacts(&server).import([row])).await.unwrap();

        let refused: Vec<_> = report.refused_by_code().collect();
        assert_eq!(refused, [(code, 1)]);
        assert_eq!(server.requests().len(), 1, "{code}");
    }
}

#[tokio::test]
async fn an_opt_out_is_sent_if_the_status_of_the_row_is_not_known() {
    for (entry, counted) in [
        (
            json!({"email": "ada@x.io", "status": "merged"}),
            [0, 0, 0, 1, 0, 0],
        ),
        (json!({"email": "ada@x.io"}), [0, 0, 0, 0, 0, 1]),
    ] {
        let server = server().await;
        let body = json!({"data": [entry]}).to_string();
        server.fault(Fault::wrong_body(body).path("/contacts/batch"));
        let row = || ImportRow::from("ada@x.io").opt_out(EVERYTHING);

        let report = in_time(contacts(&server).import([row()])).await.unwrap();

        assert!(server.contact("ada@x.io").unwrap().unsubscribed, "{entry}");
        assert_eq!(counts(&report), counted, "{entry}");

        contacts(&server).subscribe("ada@x.io").await.unwrap();
        server.fault(Fault::status(400).path("*/unsubscribe"));
        let failed = in_time(contacts(&server).import([row()])).await.unwrap();
        assert_eq!(failed.opt_out_failed(), 1, "{entry}");
    }
}

#[tokio::test]
async fn the_outcome_of_a_row_and_its_opt_out_follow_the_address_that_a_result_names() {
    let server = server().await;
    // The mock applies the batch in the order of the rows; only its results are in another order.
    let results = json!({"data": [
        {"email": "ada@x.io", "status": "created"},
        {"email": "bob", "status": "validation_error"},
        {"email": "eve@x.io", "status": "created"},
    ]});
    server.fault(Fault::wrong_body(results.to_string()).path("/contacts/batch"));
    let rows =
        ["bob", "eve@x.io", "Ada@x.io"].map(|address| ImportRow::from(address).opt_out(EVERYTHING));

    let outcomes = contacts(&server).import(rows).outcomes();
    let outcomes: Vec<_> = in_time(outcomes.collect()).await;

    let outcomes: Vec<_> = outcomes.iter().map(|(_, outcome)| outcome.code()).collect();
    assert_eq!(outcomes, ["validation_error", "created", "created"]);
    assert!(server.contacts().iter().all(|contact| contact.unsubscribed));
}

#[tokio::test]
async fn the_opt_outs_of_rows_with_contradictory_results_are_sent() {
    let server = server().await;
    // One result is missing, and another has an address that was not sent. Two results are for one row.
    let results = json!({"data": [
        {"email": "ada@x.io", "status": "validation_error"},
        {"email": "ada@x.io", "status": "created"},
        {"email": "zoe@x.io", "status": "validation_error"},
    ]});
    server.fault(Fault::wrong_body(results.to_string()).path("/contacts/batch"));
    let rows = ["ada@x.io", "bob@x.io", "eve@x.io"]
        .map(|address| ImportRow::from(address).opt_out(EVERYTHING));

    let report = in_time(contacts(&server).import(rows)).await.unwrap();

    assert_eq!(counts(&report), [0, 0, 0, 0, 0, 3]);
    assert_eq!(server.contact_count(), 3);
    assert!(server.contacts().iter().all(|contact| contact.unsubscribed));
}

#[tokio::test]
async fn a_row_that_was_refused_after_all_keeps_its_code_if_its_contact_does_not_exist() {
    let server = server().await;
    let body = r#"{"data": [{"email": "ada@x.io", "status": "internal_error"}]}"#;
    server.fault(Fault::status(200).body(body).path("/contacts/batch"));
    let row = ImportRow::from("ada@x.io").opt_out(EVERYTHING);

    let report = in_time(contacts(&server).import([row])).await.unwrap();

    assert_eq!((report.refused(), report.opt_out_failed()), (1, 0));
}

#[tokio::test]
async fn an_opt_out_without_a_contact_in_its_2xx_response_is_recorded_if_the_contact_shows_it() {
    for body in ["", "{}", r#"{"ok": true}"#, "OK"] {
        let server = server().await;
        server.fault(Fault::wrong_body(body).path("*/unsubscribe"));
        let row = ImportRow::from("ada@x.io").opt_out(OptOut::Topic("news".into()));

        let report = in_time(contacts(&server).import([row])).await.unwrap();

        assert_eq!(counts(&report), [1, 0, 0, 0, 0, 0], "{body}");
        let sent = server.requests();
        assert_eq!(sent.len(), 3, "a batch, the opt-out, and a look at it");
    }
}

#[tokio::test]
async fn an_opt_out_that_only_a_gateway_responded_to_has_failed_and_a_resumed_import_sends_it() {
    for body in ["", "{}", r#"{"ok": true}"#, "OK"] {
        for opt_out in [EVERYTHING, OptOut::Topic("news".into())] {
            let server = server().await;
            let fault = Fault::status(200).body(body).path("*/unsubscribe");
            server.fault(fault.times(1));
            let (journal, contacts) = (JournalPath::new(), contacts(&server));
            let rows = || [ImportRow::from("ada@x.io").opt_out(opt_out.clone())];
            let run = || contacts.import(rows()).journal(journal.open());

            let failed = in_time(run()).await.unwrap();
            let resumed = in_time(run()).await.unwrap();

            assert_eq!(failed.opt_out_failed(), 1, "{body}");
            assert_eq!(counts(&resumed), [1, 0, 0, 0, 0, 0], "{body}");
            let ada = server.contact("ada@x.io").unwrap();
            assert!(ada.unsubscribed || ada.answers.get("news") == Some(&false));
        }
    }
}

#[tokio::test]
async fn an_opt_out_whose_2xx_response_reports_an_error_has_failed() {
    for body in [
        r#"{"success": false}"#,
        r#"{"error": {"code": "not_found"}}"#,
    ] {
        let server = server().await;
        server.fault(Fault::wrong_body(body).path("*/unsubscribe"));
        let row = ImportRow::from("ada@x.io").opt_out(EVERYTHING);

        let report = in_time(contacts(&server).import([row])).await.unwrap();

        assert_eq!(report.opt_out_failed(), 1, "{body}");
    }
}

#[tokio::test]
async fn a_page_in_response_to_an_opt_out_is_not_taken_for_success() {
    let server = server().await;
    server.fault(Fault::wrong_body("<html>Sign in</html>").path("*/unsubscribe"));
    let row = ImportRow::from("ada@x.io").opt_out(EVERYTHING);

    let report = in_time(contacts(&server).import([row])).await.unwrap();

    assert_eq!(report.opt_out_failed(), 1);
}

#[tokio::test]
async fn a_key_that_is_refused_for_opt_outs_stops_the_import_and_a_resumed_one_records_them() {
    let server = server().await;
    server.fault(Fault::status(401).path("/contacts/*/unsubscribe").times(1));
    let journal = JournalPath::new();
    let rows = || {
        let address = |n: u32| ImportRow::from(format!("{n}@x.io")).opt_out(EVERYTHING);
        (0..300).map(address)
    };
    let contacts = contacts(&server);

    let import = contacts
        .import(rows())
        .journal(journal.open())
        .concurrency(1);
    let stopped = in_time(import).await.unwrap_err();

    assert!(stopped.error().is_unauthorized());
    assert_eq!(stopped.report().opt_out_failed(), 100);
    assert_eq!((batches(&server).len(), server.requests().len()), (1, 2));

    let report = in_time(contacts.import(rows()).journal(journal.open()))
        .await
        .unwrap();

    assert_eq!(counts(&report), [300, 0, 0, 0, 0, 0]);
    assert_eq!(
        batches(&server).len(),
        3,
        "only the opt-outs of the first batch are sent again"
    );
    assert!(server.contacts().iter().all(|contact| contact.unsubscribed));
}

#[tokio::test]
async fn a_firewall_that_refuses_one_address_fails_the_opt_out_of_this_address_only() {
    let server = server().await;
    let blocked = Fault::status(403).body("<html>Blocked</html>");
    server.fault(blocked.path("/contacts/ada%40x.io/unsubscribe"));
    let rows = ["ada@x.io", "bob@x.io"].map(|row| ImportRow::from(row).opt_out(EVERYTHING));

    let report = in_time(contacts(&server).import(rows)).await.unwrap();

    assert_eq!((report.created(), report.opt_out_failed()), (1, 1));
    assert!(server.contact("bob@x.io").unwrap().unsubscribed);
}

#[tokio::test]
async fn after_an_opt_out_without_a_response_the_others_of_its_batch_are_left_to_the_next_run() {
    let server = server().await;
    let hangs = Fault::status(503).delayed_by(Duration::from_secs(3_600));
    server.fault(hangs.path("*/unsubscribe"));
    let client = server.client_builder().retry(RetryPolicy::none());
    let contacts = client.build().unwrap().contacts();
    let (journal, rejects) = (JournalPath::new(), SharedFile::default());
    let run = || {
        let rows = (0..50).map(|n| ImportRow::from(format!("{n}@x.io")).opt_out(EVERYTHING));
        contacts.import(rows).journal(journal.open())
    };

    let failing = run().timeout(TIMEOUT).rejects(rejects.clone());
    let failed = in_time(failing).await.unwrap();
    let requests = server.requests().len();
    server.clear_faults();
    let resumed = in_time(run()).await.unwrap();

    assert_eq!((failed.created(), failed.opt_out_failed()), (0, 50));
    assert_eq!(requests, 2, "the batch and one opt-out");
    let rejects = rejects.text();
    assert_eq!(rejects.matches("so it was not sent").count(), 49);
    assert_eq!((resumed.created(), resumed.opt_out_failed()), (50, 0));
    assert!(server.contacts().iter().all(|contact| contact.unsubscribed));
}

#[tokio::test]
async fn after_an_opt_out_that_the_service_asks_to_send_later_the_others_of_its_batch_are_not_sent()
{
    let server = server().await;
    server.fault(Fault::status(503).retry_after(60).path("*/unsubscribe"));
    let client = server.client_builder().retry(RetryPolicy::none());
    let contacts = client.build().unwrap().contacts();
    let rejects = SharedFile::default();
    let rows = (0..50).map(|n| ImportRow::from(format!("{n}@x.io")).opt_out(EVERYTHING));

    let import = contacts.import(rows).rejects(rejects.clone());
    let report = in_time(import).await.unwrap();

    assert_eq!((report.created(), report.opt_out_failed()), (0, 50));
    assert_eq!(server.requests().len(), 2, "the batch and one opt-out");
    assert_eq!(rejects.text().matches("so it was not sent").count(), 49);
}

#[tokio::test]
async fn after_100_requests_that_fail_the_other_opt_outs_of_the_batch_are_left_to_the_next_run() {
    let server = server().await;
    server.fault(Fault::status(500).path("*/unsubscribe"));
    let client = server.client_builder().retry(RetryPolicy::none());
    let contacts = client.build().unwrap().contacts();
    let journal = JournalPath::new();
    let run = || {
        let row = |n: u32| ImportRow::from(format!("{n}@x.io")).opt_out(EVERYTHING);
        let rows = (0..100).map(move |n| row(n).opt_out(OptOut::Topic("news".into())));
        contacts.import(rows).journal(journal.open())
    };

    let failed = in_time(run()).await.unwrap();
    let requests = server.requests().len();
    server.clear_faults();
    let resumed = in_time(run()).await.unwrap();

    assert_eq!((failed.created(), failed.opt_out_failed()), (0, 100));
    assert_eq!(requests, 101, "the batch and half of the opt-outs");
    assert_eq!((resumed.created(), resumed.opt_out_failed()), (100, 0));
    for contact in server.contacts() {
        assert!(contact.unsubscribed && !contact.answers["news"]);
    }
}

/// A row that must not be sent twice, with an opt-out.
fn strict(address: &str) -> ImportRow {
    ImportRow::new(NewContact::new(address).on_conflict(OnConflict::Error)).opt_out(EVERYTHING)
}

#[tokio::test]
async fn a_resumed_import_sends_an_opt_out_that_failed_for_a_while_and_does_not_send_the_contact_again()
 {
    let server = server().await;
    let journal = JournalPath::new();
    let contacts = contacts(&server);
    let rows = || {
        let typo = ImportRow::from("dan@x.io").opt_out(OptOut::Topic("typo".into()));
        [
            ImportRow::from("ada@x.io").opt_out(EVERYTHING),
            strict("bob@x.io"),
            "eve@x.io".into(),
            typo,
        ]
    };
    let run = || contacts.import(rows()).journal(journal.open());
    let opted_out = || {
        let contacts = server
            .contacts()
            .into_iter()
            .filter(|contact| contact.unsubscribed);
        let mut addresses: Vec<_> = contacts.map(|contact| contact.email).collect();
        addresses.sort();
        addresses
    };
    server.fault(Fault::status(503).path("/contacts/ada%40x.io/unsubscribe"));
    server.fault(Fault::close_before().path("/contacts/bob%40x.io/unsubscribe"));

    for _ in 0..2 {
        let failed = in_time(run()).await.unwrap();
        assert_eq!((failed.created(), failed.opt_out_failed()), (1, 3));
        assert!(opted_out().is_empty());
    }
    // Not sent in this run, and reported as before.
    let stopped = in_time(run().stop_when(async {})).await.unwrap();
    assert_eq!(
        (
            stopped.created(),
            stopped.opt_out_failed(),
            stopped.not_sent()
        ),
        (1, 3, 0)
    );
    server.clear_faults();
    let resumed = in_time(run()).await.unwrap();

    // The topic still does not exist.
    assert_eq!((resumed.created(), resumed.opt_out_failed()), (3, 1));
    assert_eq!(opted_out(), ["ada@x.io", "bob@x.io"]);
    server.topic("typo", true);
    let last = in_time(run()).await.unwrap();
    assert_eq!((last.created(), last.opt_out_failed()), (4, 0));
    assert_eq!(batches(&server).len(), 1);
    let requests = server.requests().len();
    assert_eq!(in_time(run()).await.unwrap(), last);
    assert_eq!(server.requests().len(), requests, "everything is finished");
}

#[tokio::test]
async fn a_stop_does_not_wait_for_opt_outs_that_fail_because_the_next_run_sends_them() {
    for status in [503, 429] {
        let server = server().await;
        server.fault(Fault::status(status).retry_after(3).path("*/unsubscribe"));
        let (journal, contacts) = (JournalPath::new(), server.client().contacts());
        let rows = || (0..50).map(|n| ImportRow::from(format!("{n}@x.io")).opt_out(EVERYTHING));
        let run = || contacts.import(rows()).journal(journal.open());
        let opt_outs = |server: &MockServer| {
            let requests = server.requests().into_iter();
            requests
                .filter(|request| request.path.ends_with("/unsubscribe"))
                .count()
        };
        let (stop, asked) = tokio::sync::oneshot::channel();
        let mut stop = Some(stop);
        // Only an opt-out can wait: the contacts were created at once.
        let stopping = run()
            .on_progress(move |progress| drop(stop.take_if(|_| progress.waiting() > 0)))
            .stop_when(async { asked.await.unwrap_or(()) });

        let stopped = in_time(stopping).await.unwrap();

        assert!(stopped.is_stopped());
        assert_eq!((stopped.created(), stopped.opt_out_failed()), (0, 50));
        // One, or a few more if the signal is noticed late.
        assert!(opt_outs(&server) < 10, "the others would only take time");
        server.clear_faults();
        let resumed = in_time(run()).await.unwrap();
        assert_eq!((resumed.created(), resumed.opt_out_failed()), (50, 0));
        assert!(!resumed.is_stopped());
        assert!(server.contacts().iter().all(|contact| contact.unsubscribed));
    }
}

#[tokio::test]
async fn a_stop_leaves_opt_outs_that_were_not_begun_to_the_next_run() {
    let server = server().await;
    server.fault(Fault::delay(Duration::from_millis(300)).path("*/unsubscribe"));
    let (journal, contacts) = (JournalPath::new(), contacts(&server));
    let rows = || (0..50).map(|n| ImportRow::from(format!("{n}@x.io")).opt_out(EVERYTHING));
    let run = || contacts.import(rows()).journal(journal.open());
    let begun = async {
        while server
            .contacts()
            .iter()
            .all(|contact| !contact.unsubscribed)
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let (stop, asked) = tokio::sync::oneshot::channel();

    let stopping = run().stop_when(async { asked.await.unwrap_or(()) });
    let stopping = in_time(stopping.into_future());
    let (stopped, ()) = tokio::join!(stopping, async {
        begun.await;
        drop(stop);
    });
    let stopped = stopped.unwrap();

    let left = stopped.opt_out_failed();
    assert!(left > 0, "{stopped}");
    let said = format!(", {left} whose opt-out is not recorded yet");
    assert!(stopped.to_string().ends_with(&said), "{stopped}");
    let error = stopped.finished().unwrap_err();
    assert!(error.to_string().contains("asked to stop"));
    server.clear_faults();
    let resumed = in_time(run()).await.unwrap();
    assert_eq!((resumed.created(), resumed.opt_out_failed()), (50, 0));
    assert!(server.contacts().iter().all(|contact| contact.unsubscribed));
}

#[tokio::test]
async fn after_a_stop_a_contact_that_is_gone_is_no_reason_to_drop_the_next_opt_out() {
    let dialect = Dialect {
        contact_deletion: ContactDeletion::NoContent,
        ..Dialect::default()
    };
    let server = MockServer::builder().dialect(dialect).topic("news", true);
    let server = server.start().await;
    let (journal, contacts) = (JournalPath::new(), contacts(&server));
    let no_news = |row| ImportRow::from(row).opt_out(OptOut::Topic("news".to_owned()));
    let rows = || ["ada@x.io", "bob@x.io"].map(no_news);
    let run = || contacts.import(rows()).journal(journal.open());
    // Both contacts were created, and the run does not learn it.
    server.fault(Fault::close_after().path("/contacts/batch"));
    drop(in_time(run()).await.unwrap());
    server.clear_faults();
    contacts.delete("ada@x.io").await.unwrap();
    server.fault(refused_batch());
    server.fault(Fault::delay(Duration::from_secs(1)).path("/contacts/ada%40x.io/unsubscribe"));

    // While the opt-out of the contact that is gone is on its way.
    let stop = tokio::time::sleep(Duration::from_millis(150));
    drop(in_time(run().stop_when(stop)).await.unwrap());
    drop(in_time(run()).await.unwrap());

    assert!(!server.contact("bob@x.io").unwrap().topics["news"]);
}

#[tokio::test]
async fn without_a_journal_a_stop_waits_for_the_opt_outs_because_no_run_would_send_them() {
    let server = server().await;
    server.fault(Fault::status(503).path("*/unsubscribe").times(2));
    let (stop, asked) = tokio::sync::oneshot::channel();
    let mut stop = Some(stop);
    let rows = [ImportRow::from("ada@x.io").opt_out(EVERYTHING)];

    let stopping = server
        .client()
        .contacts()
        .import(rows)
        .on_progress(move |progress| drop(stop.take_if(|_| progress.waiting() > 0)))
        .stop_when(async { asked.await.unwrap_or(()) });
    let report = in_time(stopping).await.unwrap();

    assert!(report.is_stopped());
    assert_eq!((report.created(), report.opt_out_failed()), (1, 0));
    drop(report.finished().unwrap());
    assert!(server.contact("ada@x.io").unwrap().unsubscribed);
}

#[tokio::test]
async fn a_resumed_import_ends_if_a_contact_whose_opt_out_failed_was_deleted_meanwhile() {
    let server = server().await;
    let journal = JournalPath::new();
    let contacts = contacts(&server);
    let rows = || {
        [
            ImportRow::from("ada@x.io").opt_out(EVERYTHING),
            "bob@x.io".into(),
        ]
    };
    let run = || contacts.import(rows()).journal(journal.open());
    server.fault(Fault::status(503).path("/contacts/ada%40x.io/unsubscribe"));
    let failed = in_time(run()).await.unwrap();
    assert_eq!(failed.opt_out_failed(), 1);
    server.clear_faults();
    assert!(server.remove_contact("ada@x.io"));

    let resumed = in_time(run()).await.unwrap();

    assert_eq!((resumed.created(), resumed.opt_out_failed()), (2, 0));
    assert!(resumed.finished().is_ok());
    assert!(server.contact("ada@x.io").is_none());
}

#[tokio::test]
async fn a_resumed_import_sends_every_opt_out_that_failed_whatever_the_reason_was() {
    let sign_in = || Fault::wrong_body("<html>Sign in</html>");
    let refused = [302, 400, 404, 405, 409, 413, 422, 451, 501].map(Fault::status);
    let faults = [Fault::wrong_body(r#"{"ok": false}"#), sign_in()];
    for (number, fault) in faults.into_iter().chain(refused).enumerate() {
        let server = server().await;
        server.fault(fault.path("*/unsubscribe").times(1));
        let (journal, contacts) = (JournalPath::new(), contacts(&server));
        let rows = || [ImportRow::from("ada@x.io").opt_out(EVERYTHING)];
        let run = || contacts.import(rows()).journal(journal.open());

        let failed = in_time(run()).await.unwrap();
        let text = "0 created, 0 updated, 0 skipped, 0 refused, 0 not sent, 0 unknown, 1 whose opt-out failed";
        assert_eq!(failed.to_string(), text, "{number}");
        let resumed = in_time(run()).await.unwrap();

        assert_eq!(counts(&resumed), [1, 0, 0, 0, 0, 0], "{number}");
        assert!(server.contact("ada@x.io").unwrap().unsubscribed);
        assert_eq!(batches(&server).len(), 1);
    }
}

#[tokio::test]
async fn a_row_that_must_not_be_sent_twice_and_was_in_flight_at_a_crash_gets_its_opt_outs_when_resumed()
 {
    let server = server().await;
    let journal = JournalPath::new();
    let contacts = contacts(&server);
    // Whether the service has applied the batch is not known, because the import ends before the response.
    server.fault(
        Fault::status(503)
            .delayed_by(Duration::from_secs(60))
            .path("/contacts/batch")
            .times(1),
    );
    let rows = || [strict("ada@x.io")];
    let import = contacts.import(rows()).journal(journal.open());
    crash_in_flight(&server, import).await;
    contacts.create("ada@x.io").await.unwrap();

    let report = in_time(contacts.import(rows()).journal(journal.open()))
        .await
        .unwrap();

    assert_eq!(counts(&report), [0, 0, 0, 0, 0, 1]);
    assert!(server.contact("ada@x.io").unwrap().unsubscribed);
    assert_eq!(batches(&server).len(), 1, "the contact is not sent again");
}

#[tokio::test]
async fn a_row_that_must_not_be_sent_twice_and_got_no_response_gets_its_opt_outs_when_resumed() {
    let server = server().await;
    let (journal, contacts) = (JournalPath::new(), contacts(&server));
    server.fault(Fault::close_after().path("/contacts/batch"));
    let run = || {
        let import = contacts.import([strict("ada@x.io")]);
        import.journal(journal.open())
    };

    let first = in_time(run()).await.unwrap();
    let was_opted_out = server.contact("ada@x.io").unwrap().unsubscribed;
    let resumed = in_time(run()).await.unwrap();

    assert_eq!(counts(&first), [0, 0, 0, 0, 0, 1]);
    assert!(!was_opted_out);
    assert_eq!(counts(&resumed), [0, 0, 0, 0, 0, 1]);
    assert!(server.contact("ada@x.io").unwrap().unsubscribed);
    assert_eq!(batches(&server).len(), 1, "the contact is not sent again");
}

#[tokio::test]
async fn an_opt_out_of_a_row_whose_status_is_not_known_is_sent_by_one_resumed_import() {
    let server = server().await;
    let (journal, contacts) = (JournalPath::new(), contacts(&server));
    let body = r#"{"data": [{"email": "ada@x.io"}]}"#;
    server.fault(Fault::wrong_body(body).path("/contacts/batch"));
    server.fault(Fault::status(400).path("*/unsubscribe").times(1));
    let run = || {
        let row = ImportRow::from("ada@x.io").opt_out(EVERYTHING);
        contacts.import([row]).journal(journal.open())
    };

    let failed = in_time(run()).await.unwrap();
    let resumed = in_time(run()).await.unwrap();
    let requests = server.requests().len();
    let last = in_time(run()).await.unwrap();

    assert_eq!(failed.opt_out_failed(), 1);
    assert_eq!(counts(&resumed), [0, 0, 0, 0, 0, 1]);
    assert!(server.contact("ada@x.io").unwrap().unsubscribed);
    assert_eq!(last, resumed);
    assert_eq!(server.requests().len(), requests, "everything is finished");
}

#[tokio::test]
async fn the_opt_outs_of_a_batch_that_was_in_flight_at_a_crash_are_sent_even_if_it_is_refused_when_resumed()
 {
    let server = server().await;
    let journal = JournalPath::new();
    let contacts = contacts(&server);
    server.fault(
        Fault::status(503)
            .delayed_by(Duration::from_secs(60))
            .path("/contacts/batch")
            .times(1),
    );
    let rows = || {
        let zoe = ImportRow::from("zoe@x.io").opt_out(EVERYTHING);
        [
            ImportRow::from("ada@x.io").opt_out(EVERYTHING),
            "eve@x.io".into(),
            zoe,
        ]
    };
    let import = contacts.import(rows()).journal(journal.open());
    crash_in_flight(&server, import).await;
    // The first two were created before the crash, and the third was not.
    let created = contacts.create_batch(["ada@x.io", "eve@x.io"]).await;
    assert_eq!(created.unwrap().failures().count(), 0);
    server.fault(refused_batch());

    let report = in_time(contacts.import(rows()).journal(journal.open()))
        .await
        .unwrap();

    assert_eq!(counts(&report), [0, 0, 0, 3, 0, 0]);
    assert!(server.contact("ada@x.io").unwrap().unsubscribed);
    assert!(!server.contact("eve@x.io").unwrap().unsubscribed);
    assert!(server.contact("zoe@x.io").is_none());
}

#[tokio::test]
async fn the_opt_outs_of_a_batch_that_got_no_response_are_sent_even_if_it_is_refused_when_resumed()
{
    let server = server().await;
    let (journal, contacts) = (JournalPath::new(), contacts(&server));
    let run = || {
        let row = ImportRow::from("ada@x.io").opt_out(EVERYTHING);
        contacts.import([row]).journal(journal.open())
    };
    server.fault(Fault::close_after().path("/contacts/batch"));
    drop(in_time(run()).await.unwrap());
    assert!(!server.contact("ada@x.io").unwrap().unsubscribed);
    server.clear_faults();
    // The second run certainly changes nothing, but the first one may have created the contact.
    server.fault(Fault::status(401).path("/contacts/batch").times(1));
    in_time(run()).await.unwrap_err();
    server.fault(refused_batch());

    let resumed = in_time(run()).await.unwrap();

    assert_eq!(counts(&resumed), [0, 0, 0, 1, 0, 0]);
    assert!(server.contact("ada@x.io").unwrap().unsubscribed);
}

#[tokio::test]
async fn the_opt_outs_of_a_row_that_must_be_new_and_was_certainly_not_sent_are_not_sent_if_it_is_refused_when_resumed()
 {
    let server = server().await;
    server.seed(json!({"contacts": [{"email": "ada@x.io"}]}));
    let journal = JournalPath::new();
    let contacts = contacts(&server);
    let rows = || [strict("ada@x.io")];
    server.fault(Fault::status(401).path("/contacts/batch").times(1));
    in_time(contacts.import(rows()).journal(journal.open()))
        .await
        .unwrap_err();
    server.fault(refused_batch());

    let report = in_time(contacts.import(rows()).journal(journal.open()))
        .await
        .unwrap();

    assert_eq!(counts(&report), [0, 0, 0, 1, 0, 0]);
    assert!(!server.contact("ada@x.io").unwrap().unsubscribed);
}

/// Runs an import until its first request has arrived, and drops it.
async fn crash_in_flight(server: &MockServer, import: Import) {
    let running = tokio::spawn(import.into_future());
    while server.requests().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
}
