//! An address changes while its person opts out at the service.

use std::sync::Arc;
use std::time::{Duration, Instant};

use audience::RetryPolicy;
use audience::contacts::{NewContact, OptOutReason};
use audience::import::{ImportRow, OptOut, SyncContacts, SyncReport, SyncRow};
use audience::mock::Fault;

use super::{Nights, contact, row};

fn once(sync: SyncContacts) -> SyncContacts {
    sync.retry(RetryPolicy::none())
}

/// The responses with 404 that a gateway, or another service, may send for any path.
fn foreign_404s() -> [Fault; 2] {
    [
        r#"{"message":"no Route matched with those values"}"#,
        r#"{"error":{"code":"not_found","message":"no such endpoint"}}"#,
    ]
    .map(|body| Fault::status(404).body(body))
}

/// Asserts that an opt-out with this response is not done, and that the next night sends it.
async fn assert_no_opt_out_is_done(fault: Fault) {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io"), row(2, "b@x.io")]).await;
    let table = [row(1, "a@x.io").subscribed(false)];
    nights.server.fault(fault);

    let missing = |sync: SyncContacts| sync.deletes_missing().leave_at_most(9);
    let (report, _) = nights.run_with(&table, missing).await;
    assert_eq!(
        (report.opted_out(), report.changes().opt_out_failed()),
        (0, 2)
    );

    nights.server.clear_faults();
    let (report, calls) = nights.run(&table).await;
    assert_eq!((report.opted_out(), calls.len()), (2, 4));
    assert!(nights.is_opted_out("a@x.io") && nights.is_opted_out("b@x.io"));
}

#[tokio::test]
async fn an_opt_out_that_a_gateway_responds_to_with_404_is_not_done() {
    for fault in foreign_404s() {
        assert_no_opt_out_is_done(fault).await;
    }
}

#[tokio::test]
async fn an_opt_out_that_a_gateway_responds_to_with_2xx_is_not_done() {
    for fault in [
        Fault::status(200).body("{}"),
        Fault::status(200).body(r#"{"ok": true}"#),
        Fault::status(204),
    ] {
        assert_no_opt_out_is_done(fault.path("*/unsubscribe")).await;
    }
}

#[tokio::test]
async fn a_404_for_a_contact_that_the_list_has_is_no_proof() {
    for fault in foreign_404s() {
        let nights = Nights::new().await;
        nights.run(&[row(1, "a@x.io"), row(2, "b@x.io")]).await;
        nights.contacts.unsubscribe("a@x.io").await.unwrap();
        nights.server.fault(fault.path("/contacts/*@x.io*"));
        let table = [row(1, "a2@x.io"), row(2, "b@x.io").subscribed(false)];

        let (report, calls) = nights.run(&table).await;
        assert_eq!(
            (
                report.changes().unknown(),
                report.changes().opt_out_failed()
            ),
            (1, 1)
        );
        assert_eq!(calls.len(), 4, "{calls:?}");
        assert!(nights.server.contact("a2@x.io").is_none());
        let error = Arc::unwrap_or_clone(report).finished().unwrap_err();
        assert!(error.error().is_retryable(), "{error}");

        nights.server.clear_faults();
        let (report, _) = nights.run(&table).await;
        assert!(report.is_complete(), "{report}");
        assert!(nights.is_opted_out("a2@x.io") && nights.is_opted_out("b@x.io"));
    }
}

#[tokio::test]
async fn an_opt_out_before_the_new_contact_exists_goes_to_it() {
    let not_created = [
        Fault::status(501),
        Fault::status(402),
        Fault::status(503),
        Fault::status(200).body(r#"{"ok":false}"#),
    ];
    for reason in [OptOutReason::Manual, OptOutReason::Preferences] {
        for fault in not_created.clone() {
            let nights = Nights::new().await;
            nights.run(&[row(1, "a@x.io")]).await;
            nights.server.fault(fault.path("/contacts/batch"));
            nights.run_with(&[row(1, "b@x.io")], once).await;
            nights.server.clear_faults();
            let opt_out = nights.contacts.unsubscribe("a@x.io").reason(reason);
            opt_out.await.unwrap();

            let (report, _) = nights.run(&[row(1, "b@x.io")]).await;

            assert!(report.is_complete(), "{report}");
            assert!(nights.is_opted_out("b@x.io"), "{reason:?}");
        }
    }
}

#[tokio::test]
async fn an_opt_out_while_the_new_contact_is_created_goes_to_it() {
    const DELAY: Duration = Duration::from_secs(5);
    let table = [row(1, "b@x.io"), row(2, "d@x.io")];

    // On a busy machine, the two opt-outs may take longer than the response to the batch.
    let mut attempt = 1;
    let (nights, report) = loop {
        let nights = Nights::new().await;
        nights.run(&[row(1, "a@x.io"), row(2, "c@x.io")]).await;
        let slow = Fault::delay(DELAY).path("/contacts/batch");
        nights.server.fault(slow);
        let start = Instant::now();
        let opt_out = async {
            while !nights.calls().iter().any(|call| call == "batch 2") {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            nights.contacts.unsubscribe("a@x.io").await.unwrap();
            let topic = nights.contacts.set_topic("c@x.io", "news", false);
            topic.await.unwrap();
            start.elapsed() < DELAY
        };
        let ((report, _), is_in_time) = tokio::join!(nights.run(&table), opt_out);
        if is_in_time {
            break (nights, report);
        }
        attempt += 1;
        assert!(attempt <= 5, "the opt-outs take longer than {DELAY:?}");
    };

    assert!(report.is_complete(), "{report}");
    assert!(nights.is_opted_out("b@x.io") && nights.is_opted_out("c@x.io"));
    let d = nights.contacts.retrieve("d@x.io").await.unwrap();
    assert!(!d.topics["news"] && !d.unsubscribed);
    assert!(nights.run(&table).await.1.is_empty());
}

#[tokio::test]
async fn no_contact_is_opted_out_before_all_old_addresses_were_looked_at() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io"), row(2, "c@x.io")]).await;
    // A row could take this run's opt-out of another row for the person's.
    let slow = Fault::delay(Duration::from_secs(1)).path("/contacts/a@x.io");
    nights.server.fault(slow.times(1));
    let was_opted_out = async {
        while !nights.calls().iter().any(|call| call == "GET /a@x.io") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        nights.is_opted_out("c@x.io")
    };

    let table = [row(1, "b@x.io"), row(2, "c@x.io").deleted(true)];
    let ((report, _), was_opted_out) = tokio::join!(nights.run(&table), was_opted_out);

    assert!(report.is_complete(), "{report}");
    assert!(!was_opted_out && nights.is_opted_out("c@x.io"));
}

#[tokio::test]
async fn an_opt_out_before_the_old_address_is_left_goes_to_the_new_contact() {
    let faults = [
        // The retrieve just before the opt-out of the old address.
        Fault::status(503).path("/contacts/a@x.io").after(1),
        Fault::status(501).path("/contacts/a@x.io/unsubscribe"),
        Fault::status(503).path("/contacts/a@x.io/unsubscribe"),
    ];
    for fault in faults {
        let nights = Nights::new().await;
        nights.run(&[row(1, "a@x.io")]).await;
        nights.server.fault(fault);
        let (report, _) = nights.run_with(&[row(1, "b@x.io")], once).await;
        assert_eq!(report.changes().opt_out_failed(), 1);
        nights.server.clear_faults();
        nights.contacts.unsubscribe("a@x.io").await.unwrap();

        // Even if its row is not passed.
        let (_, calls) = nights.run(&[]).await;

        let expected = ["GET /a@x.io", "GET /b@x.io", "POST /b@x.io/unsubscribe"];
        assert_eq!(calls, expected);
        assert!(nights.is_opted_out("b@x.io"));
        assert!(nights.run(&[row(1, "b@x.io")]).await.1.is_empty());
    }
}

#[tokio::test]
async fn the_opt_out_of_an_old_address_by_the_sync_does_not_go_to_the_new_contact() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    let lost = Fault::close_after().path("/contacts/a@x.io/unsubscribe");
    nights.server.fault(lost);
    let (report, _) = nights.run_with(&[row(1, "b@x.io")], once).await;
    assert_eq!(report.changes().opt_out_failed(), 1);
    nights.server.clear_faults();
    let opt_out = nights.contacts.set_topic("a@x.io", "news", false);
    opt_out.await.unwrap();

    nights.run(&[row(1, "c@x.io")]).await;

    assert!(nights.is_opted_out("a@x.io") && nights.is_opted_out("b@x.io"));
    let c = nights.contacts.retrieve("c@x.io").await.unwrap();
    assert!(!c.unsubscribed && !c.topics["news"]);
}

#[tokio::test]
async fn the_opt_out_of_a_deleted_row_does_not_go_where_another_row_with_its_address_moves() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io"), row(2, "a@x.io")]).await;
    let table = [row(1, "b@x.io"), row(2, "a@x.io").deleted(true)];
    let fault = Fault::status(503).path("/contacts/batch");
    nights.server.fault(fault.times(1));

    nights.run_with(&table, once).await;
    let (report, _) = nights.run(&table).await;

    assert!(report.is_complete(), "{report}");
    assert!(nights.is_opted_out("a@x.io") && !nights.is_opted_out("b@x.io"));
}

#[tokio::test]
async fn all_rows_that_leave_an_address_take_its_last_opt_outs_with_one_retrieve() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io"), row(2, "a@x.io")]).await;
    let table = [row(1, "b@x.io"), row(2, "c@x.io")];
    let (report, _) = nights.run_with(&table, SyncContacts::dry_run).await;
    assert_eq!(report.opted_out(), 1);
    let fault = Fault::status(501).path("/contacts/a@x.io").after(2);
    nights.server.fault(fault);
    nights.run(&table).await;
    nights.server.clear_faults();
    let opt_out = nights.contacts.set_topic("a@x.io", "news", false);
    opt_out.await.unwrap();

    let (report, calls) = nights.run(&table).await;

    assert_eq!((report.opted_out(), calls.len()), (1, 4), "{calls:?}");
    assert!(nights.is_opted_out("a@x.io"));
    for address in ["b@x.io", "c@x.io"] {
        let new = nights.contacts.retrieve(address).await.unwrap();
        assert!(!new.topics["news"] && !new.unsubscribed, "{address}");
    }
}

#[tokio::test]
async fn what_the_person_takes_back_at_the_new_address_is_not_taken_from_the_old_one_again() {
    // The row keeps its new address, or gets another one.
    for address in ["b@x.io", "c@x.io"] {
        let nights = Nights::new().await;
        let no_offers = OptOut::Topic("offers".to_owned());
        let no_offers = ImportRow::new(contact("a@x.io")).opt_out(no_offers);
        nights.run(&[SyncRow::new(1, no_offers)]).await;
        nights
            .contacts
            .unsubscribe("a@x.io")
            .topic("news")
            .await
            .unwrap();
        run_without_leaving(&nights, &[row(1, "b@x.io")]).await;
        nights
            .contacts
            .set_topic("b@x.io", "news", true)
            .await
            .unwrap();

        nights.run(&[row(1, address)]).await;

        let new = nights.contacts.retrieve(address).await.unwrap();
        assert_eq!((new.topics["news"], new.topics["offers"]), (true, false));
        assert!(!new.unsubscribed && nights.is_opted_out("a@x.io"));
    }
}

/// As the guide says for an opt-in at a new address.
#[tokio::test]
async fn a_sync_of_one_row_moves_its_address_so_that_the_night_keeps_a_click_there() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "old@x.io"), row(2, "bob@x.io")]).await;
    let contacts = &nights.contacts;
    contacts.unsubscribe("old@x.io").await.unwrap();

    nights.run(&[row(1, "new@x.io")]).await;
    assert!(contacts.retrieve("new@x.io").await.unwrap().unsubscribed);
    contacts.subscribe("new@x.io").await.unwrap();
    let table = [row(1, "new@x.io"), row(2, "bob@x.io")];
    let deletes_missing = |sync: SyncContacts| sync.deletes_missing();
    let (report, calls) = nights.run_with(&table, deletes_missing).await;

    assert_eq!((report.unchanged(), calls), (2, vec![]));
    assert!(!contacts.retrieve("new@x.io").await.unwrap().unsubscribed);
    assert!(contacts.retrieve("old@x.io").await.unwrap().unsubscribed);
}

#[tokio::test]
async fn an_opt_out_that_moves_goes_to_a_new_contact_without_a_response_even_if_its_row_is_not_passed()
 {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    let opt_out = nights.contacts.set_topic("a@x.io", "news", false);
    opt_out.await.unwrap();
    nights
        .server
        .fault(Fault::close_after().path("/contacts/batch"));
    let (report, _) = nights.run_with(&[row(1, "b@x.io")], once).await;
    assert_eq!(report.changes().unknown(), 1);
    nights.server.clear_faults();

    let (_, calls) = nights.run(&[]).await;

    assert_eq!(calls, ["POST /b@x.io/unsubscribe news"]);
    let b = nights.contacts.retrieve("b@x.io").await.unwrap();
    assert!(!b.topics["news"] && !b.unsubscribed);
    assert!(!nights.is_opted_out("a@x.io"), "its row may come back");
}

/// Ends a night in which a row moves from `a@x.io` to `b@x.io`, and the old address is not left.
async fn moved_without_leaving() -> Nights {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    let report = run_without_leaving(&nights, &[row(1, "b@x.io")]).await;
    assert_eq!(report.changes().opt_out_failed(), 1);
    nights
}

/// Runs a night in which `a@x.io` is retrieved, and every other request to it fails.
async fn run_without_leaving(nights: &Nights, table: &[SyncRow]) -> Arc<SyncReport> {
    let fault = Fault::status(501).path("/contacts/a@x.io").after(1);
    nights.server.fault(fault);
    let (report, _) = nights.run(table).await;
    nights.server.clear_faults();
    report
}

#[tokio::test]
async fn the_old_address_of_a_row_that_is_deleted_is_left_by_a_later_run_if_the_first_ones_fail() {
    let nights = moved_without_leaving().await;
    let table = [row(1, "b@x.io").deleted(true)];
    nights
        .server
        .fault(Fault::status(501).path("/contacts/a@x.io").times(1));
    let (report, _) = nights.run(&table).await;
    assert_eq!((report.opted_out(), report.is_complete()), (1, false));

    let (_, calls) = nights.run(&table).await;

    assert_eq!(calls, ["GET /a@x.io", "POST /a@x.io/unsubscribe"]);
    assert!(nights.is_opted_out("a@x.io") && nights.is_opted_out("b@x.io"));
    assert_eq!(nights.run(&table).await.0.unchanged(), 1);
}

#[tokio::test]
async fn an_old_address_that_another_row_takes_before_it_is_left_is_left_by_that_row() {
    let nights = moved_without_leaving().await;
    let table = [row(1, "b@x.io"), row(2, "a@x.io")];
    nights.run(&table).await;
    assert_eq!(nights.run(&table).await.0.unchanged(), 2);
    // This is the opt-out of the person who has the address now.
    let opt_out = nights.contacts.set_topic("a@x.io", "news", false);
    opt_out.await.unwrap();

    nights.run(&[row(1, "b@x.io"), row(2, "c@x.io")]).await;

    let contact = async |address| nights.contacts.retrieve(address).await.unwrap();
    assert!(contact("a@x.io").await.unsubscribed);
    assert!(contact("b@x.io").await.topics["news"]);
    assert!(!contact("c@x.io").await.topics["news"]);
}

#[tokio::test]
async fn the_topic_opt_out_of_a_duplicate_key_hides_no_later_opt_out_of_everything() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    let no_news = OptOut::Topic("news".to_owned());
    let no_news = ImportRow::new(contact("a@x.io")).opt_out(no_news);
    let table = [row(1, "b@x.io"), SyncRow::new(1, no_news)];
    run_without_leaving(&nights, &table).await;
    nights.contacts.unsubscribe("a@x.io").await.unwrap();

    nights.run(&[]).await;

    assert!(nights.is_opted_out("b@x.io"));
}

#[tokio::test]
async fn an_opt_out_at_an_old_address_moves_on_when_the_next_one_is_refused() {
    let nights = moved_without_leaving().await;
    nights.contacts.unsubscribe("a@x.io").await.unwrap();
    let report = run_without_leaving(&nights, &[row(1, "t at x.io")]).await;
    let changes = report.changes();
    assert_eq!((changes.refused(), changes.opt_out_failed()), (2, 1));

    nights.run(&[row(1, "c@x.io")]).await;

    assert!(nights.is_opted_out("c@x.io"));
}

#[tokio::test]
async fn an_opt_out_of_somebody_who_was_subscribed_again_after_a_deletion_goes_to_the_new_contact()
{
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io"), row(2, "a@x.io")]).await;
    let table = [row(1, "b@x.io"), row(2, "a@x.io").deleted(true)];
    let fails = Fault::status(503).path("/contacts/batch");
    nights.server.fault(fails);
    nights.run_with(&table, once).await;
    nights.server.clear_faults();
    assert!(nights.is_opted_out("a@x.io"));
    nights.contacts.subscribe("a@x.io").await.unwrap();
    run_without_leaving(&nights, &table).await;
    nights.contacts.unsubscribe("a@x.io").await.unwrap();

    nights.run(&[]).await;

    assert!(nights.is_opted_out("b@x.io"));
}

#[tokio::test]
async fn a_row_takes_the_opt_outs_since_it_came_back_to_the_address_that_it_shares() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io"), row(2, "a@x.io")]).await;
    nights.run(&[row(1, "t at x.io"), row(2, "a@x.io")]).await;
    nights.run(&[row(1, "a@x.io"), row(2, "a@x.io")]).await;
    let opt_out = nights.contacts.set_topic("a@x.io", "news", false);
    opt_out.await.unwrap();

    nights.run(&[row(1, "c@x.io"), row(2, "a@x.io")]).await;

    let c = nights.contacts.retrieve("c@x.io").await.unwrap();
    assert!(!c.topics["news"]);
}

#[tokio::test]
async fn a_click_at_an_address_that_is_not_left_yet_is_told_as_an_opt_out_at_the_service() {
    let nights = moved_without_leaving().await;
    let link = nights.contacts.unsubscribe("a@x.io");
    link.reason(OptOutReason::Preferences).await.unwrap();

    let table = [row(1, "c@x.io")];
    let (report, _) = nights.run_with(&table, SyncContacts::checks_list).await;

    assert!(nights.is_opted_out("c@x.io"));
    assert_eq!(report.opted_out_at_service(), ["1"]);
}

/// Returns a table whose row has moved to `b@x.io` after an opt-out at the service that the new contact has not got.
async fn moved_without_the_opt_out(nights: &Nights, opt_out: Option<OptOutReason>) -> [SyncRow; 1] {
    nights.run(&[row(1, "a@x.io")]).await;
    match opt_out {
        Some(reason) => {
            let opt_out = nights.contacts.unsubscribe("a@x.io").reason(reason);
            opt_out.await.unwrap();
        }
        None => {
            nights.server.report_spam("a@x.io");
        }
    }
    let table = [row(1, "b@x.io")];
    let fails = Fault::status(503).path("/contacts/b@x.io/unsubscribe");
    nights.server.fault(fails);
    let checks = |sync: SyncContacts| once(sync).checks_list();
    let (report, _) = nights.run_with(&table, checks).await;
    nights.server.clear_faults();
    assert_eq!(report.changes().opt_out_failed(), 1);
    assert!(!nights.is_opted_out("b@x.io"));
    table
}

#[tokio::test]
async fn a_click_that_reaches_the_new_contact_a_night_later_is_told_as_an_opt_out_at_the_service() {
    for opt_out in [Some(OptOutReason::Preferences), None] {
        let nights = Nights::new().await;
        let table = moved_without_the_opt_out(&nights, opt_out).await;

        for night in 0..3 {
            let (report, _) = nights.run_with(&table, SyncContacts::checks_list).await;

            assert!(nights.is_opted_out("b@x.io"));
            assert_eq!(report.opted_out_at_service(), ["1"], "night {night}");
            assert_eq!(report.opt_ins_not_sent(), 0);
        }
    }
}

#[tokio::test]
async fn an_opt_out_by_the_staff_that_reaches_the_new_contact_a_night_later_is_not_told_as_a_click()
{
    let nights = Nights::new().await;
    let table = moved_without_the_opt_out(&nights, Some(OptOutReason::Manual)).await;

    for _ in 0..2 {
        let (report, _) = nights.run_with(&table, SyncContacts::checks_list).await;

        assert!(nights.is_opted_out("b@x.io"));
        assert!(report.opted_out_at_service().is_empty(), "{report}");
        assert_eq!(report.opt_ins_not_sent_keys(), ["1"]);
    }
}

#[tokio::test]
async fn a_yes_after_a_late_click_was_written_into_the_table_is_an_opt_in_that_is_not_sent() {
    let nights = Nights::new().await;
    let table = moved_without_the_opt_out(&nights, Some(OptOutReason::Preferences)).await;
    nights.run_with(&table, SyncContacts::checks_list).await;
    let no = [row(1, "b@x.io").subscribed(false)];
    nights.run_with(&no, SyncContacts::checks_list).await;

    let (report, _) = nights.run_with(&table, SyncContacts::checks_list).await;

    assert!(nights.is_opted_out("b@x.io"));
    assert!(report.opted_out_at_service().is_empty(), "{report}");
    assert_eq!(report.opt_ins_not_sent_keys(), ["1"]);
}

#[tokio::test]
async fn an_address_that_a_deleted_row_shared_is_left_for_good_by_the_row_that_moves() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io"), row(2, "b@x.io")]).await;
    run_without_leaving(&nights, &[row(1, "b@x.io"), row(2, "b@x.io")]).await;
    let table = [row(1, "b@x.io").deleted(true), row(2, "c@x.io")];

    let (report, _) = nights.run(&table).await;

    assert!(report.is_complete(), "{report}");
    assert!(nights.is_opted_out("a@x.io") && nights.is_opted_out("b@x.io"));
    assert!(!nights.is_opted_out("c@x.io"));
    assert!(nights.run(&table).await.1.is_empty());
}

#[tokio::test]
async fn a_name_that_a_row_lost_while_it_tried_another_address_is_removed_when_it_comes_back() {
    let without_name =
        |address: &str| SyncRow::new(1, NewContact::new(address).property("plan", "pro"));
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    nights
        .server
        .fault(Fault::close_after().path("/contacts/batch"));
    let (report, _) = nights.run_with(&[without_name("b@x.io")], once).await;
    assert!(!report.is_complete());
    nights.server.clear_faults();

    nights.run(&[without_name("a@x.io")]).await;

    let a = nights.contacts.retrieve("a@x.io").await.unwrap();
    assert_eq!(a.first_name, None);
}

#[tokio::test]
async fn an_old_address_without_a_contact_is_looked_at_once() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    nights.contacts.delete("a@x.io").await.unwrap();

    let (report, calls) = nights.run(&[row(1, "b@x.io")]).await;

    // The list proves that there is no contact.
    assert_eq!(calls, ["GET /a@x.io", "GET", "batch 1"]);
    assert!(report.is_complete(), "{report}");
}

#[tokio::test]
async fn an_old_contact_that_is_deleted_before_its_opt_out_is_left() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    let gone = Fault::status(404).body(r#"{"error":{"code":"not_found"}}"#);
    let empty_list = Fault::status(200).body(r#"{"data":[],"has_more":false}"#);
    nights
        .server
        .fault(gone.path("/contacts/a@x.io/unsubscribe"));
    nights
        .server
        .fault(empty_list.path("/contacts").method("GET"));

    let (report, _) = nights.run(&[row(1, "b@x.io")]).await;

    assert!(report.is_complete(), "{report}");
    assert!(nights.run(&[row(1, "b@x.io")]).await.1.is_empty());
}
