//! No opt-in is invented, and no opt-out is lost or undone.

use std::sync::Arc;

use audience::RetryPolicy;
use audience::contacts::{NewContact, OptOutReason, UnsubscribeReason};
use audience::import::{ImportRow, OptOut, SyncContacts, SyncRow};
use audience::mock::Fault;
use serde_json::json;
use support::in_time;

use super::{Nights, contact, row};

fn topic(name: &str) -> OptOut {
    OptOut::Topic(name.to_owned())
}

#[tokio::test]
async fn a_new_row_that_is_not_subscribed_is_created_and_opted_out() {
    let nights = Nights::new().await;

    let (report, calls) = nights.run(&[row(1, "a@x.io").subscribed(false)]).await;

    assert_eq!(calls, ["batch 1", "POST /a@x.io/unsubscribe"]);
    assert_eq!(report.changes().created(), 1);
    assert!(nights.is_opted_out("a@x.io"));
}

#[tokio::test]
async fn an_opt_in_is_never_sent_and_is_reported_once_with_its_key() {
    let nights = Nights::new().await;
    let rejects = nights.state.0.with_extension("csv");
    nights.run(&[row(7, "a@x.io").subscribed(false)]).await;

    let file = std::fs::File::create(&rejects).unwrap();
    let table = [row(7, "a@x.io").subscribed(true)];
    let (report, calls) = nights.run_with(&table, |sync| sync.rejects(file)).await;

    assert_eq!(calls, ["GET /a@x.io"]);
    assert_eq!(report.opt_ins_not_sent(), 1);
    assert_eq!(report.opt_ins_not_sent_keys(), ["7"]);
    let text = std::fs::read_to_string(&rejects).unwrap();
    std::fs::remove_file(rejects).unwrap();
    assert!(
        text.contains("opt_in_not_sent") && text.ends_with(",7\n"),
        "{text}"
    );
    assert!(nights.is_opted_out("a@x.io"));

    let (report, calls) = nights.run(&table).await;
    assert_eq!(
        (report.opt_ins_not_sent(), report.unchanged(), calls.len()),
        (0, 1, 0)
    );
    // The person has opted in again at the service, and opts out in the table.
    nights.contacts.subscribe("a@x.io").await.unwrap();
    nights.run(&[row(7, "a@x.io").subscribed(false)]).await;
    assert!(nights.is_opted_out("a@x.io"));
}

#[tokio::test]
async fn a_change_of_a_row_does_not_repeat_an_opt_out_that_the_person_took_back() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io").subscribed(false)]).await;
    nights.contacts.subscribe("a@x.io").await.unwrap();

    let changed = SyncRow::new(1, contact("a@x.io").first_name("B")).subscribed(false);
    let (_, calls) = nights.run(&[changed]).await;

    assert_eq!(calls, ["batch 1"]);
    assert!(!nights.is_opted_out("a@x.io"));
}

#[tokio::test]
async fn a_topic_opt_out_of_a_row_is_sent_once() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    let table = [SyncRow::new(
        1,
        ImportRow::new(contact("a@x.io")).opt_out(topic("news")),
    )];

    let (report, calls) = nights.run(&table).await;
    assert_eq!(
        (report.opted_out(), calls),
        (1, vec!["POST /a@x.io/unsubscribe news".to_owned()])
    );
    assert!(nights.run(&table).await.1.is_empty());
    let (report, calls) = nights.run(&[row(1, "a@x.io")]).await;
    assert_eq!((report.opt_ins_not_sent(), calls.len()), (1, 1));
}

#[tokio::test]
async fn an_opt_in_that_the_service_has_already_is_not_told() {
    let nights = Nights::new().await;
    let no_news = |key, address: &str| {
        SyncRow::new(key, ImportRow::new(contact(address)).opt_out(topic("news")))
    };
    let table = [
        row(1, "a@x.io").subscribed(false),
        row(2, "b@x.io").subscribed(false),
        no_news(3, "c@x.io"),
        no_news(4, "d@x.io"),
        row(5, "e@x.io").deleted(true),
    ];
    nights.run(&table).await;
    nights.contacts.subscribe("a@x.io").await.unwrap();
    // The sync knows nothing of this one.
    let opt_out = nights.contacts.set_topic("a@x.io", "offers", false);
    opt_out.await.unwrap();
    let opt_in = nights.contacts.set_topic("c@x.io", "news", true);
    opt_in.await.unwrap();
    let table = ["a", "b", "c", "d", "e"].map(|name| format!("{name}@x.io"));
    let table: Vec<_> = (1..)
        .zip(&table)
        .map(|(key, address)| row(key, address))
        .collect();
    let rejects = nights.state.0.with_extension("csv");

    let stops = |sync: SyncContacts| sync.stop_when(std::future::ready(()));
    let (report, calls) = nights.run_with(&table, stops).await;
    assert_eq!((report.opt_ins_not_sent(), calls.len()), (5, 0), "unknown");
    let file = std::fs::File::create(&rejects).unwrap();
    let (report, calls) = nights.run_with(&table, |sync| sync.rejects(file)).await;

    let checks = calls.iter().filter(|call| call.starts_with("GET"));
    assert_eq!(
        (report.opt_ins_not_sent(), checks.count()),
        (2, 5),
        "{calls:?}"
    );
    assert_eq!(
        (report.changes().skipped(), report.is_complete()),
        (0, true)
    );
    let text = std::fs::read_to_string(&rejects).unwrap();
    std::fs::remove_file(rejects).unwrap();
    let told: Vec<_> = text
        .lines()
        .filter(|line| line.contains("opt_in_not_sent"))
        .collect();
    assert_eq!(told.len(), 2, "{text}");
    assert!(told[0].ends_with(",2") && told[1].ends_with(",4"), "{text}");
    assert_eq!(nights.run(&table).await.0.unchanged(), 5);
}

#[tokio::test]
async fn a_topic_opt_out_of_the_row_itself_is_no_opt_in_that_is_not_sent() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    nights.run(&[row(1, "b@x.io")]).await;
    assert!(nights.is_opted_out("a@x.io"));
    nights.contacts.subscribe("a@x.io").await.unwrap();

    let no_news = ImportRow::new(contact("a@x.io")).opt_out(topic("news"));
    let (report, _) = nights
        .run(&[row(1, "b@x.io"), SyncRow::new(2, no_news)])
        .await;

    assert_eq!(report.opt_ins_not_sent(), 0);
}

#[tokio::test]
async fn a_yes_to_a_topic_does_not_hide_that_the_next_address_is_opted_out() {
    let nights = Nights::new().await;
    let no_news = ImportRow::new(contact("a@x.io")).opt_out(topic("news"));
    let no_news = SyncRow::new(1, no_news);
    nights.run(&[no_news.clone(), row(2, "b@x.io")]).await;
    nights.run(&[no_news, row(2, "c@x.io")]).await;
    let opt_in = nights.contacts.set_topic("a@x.io", "news", true);
    opt_in.await.unwrap();

    let (report, _) = nights.run(&[row(1, "b@x.io"), row(2, "c@x.io")]).await;

    assert_eq!(report.opt_ins_not_sent(), 1);
    assert!(nights.is_opted_out("b@x.io"));
}

#[tokio::test]
async fn a_key_that_is_refused_when_opt_ins_are_checked_ends_the_run() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io").subscribed(false)]).await;
    let refused = Fault::status(401);
    nights.server.fault(refused.method("GET"));

    let sync = nights.sync(&[row(1, "a@x.io")]);
    let stopped = in_time(sync.into_future()).await.unwrap_err();

    assert!(stopped.error().is_unauthorized());
    assert_eq!(stopped.report().opt_ins_not_sent(), 1);
}

#[tokio::test]
async fn of_two_rows_that_leave_one_address_neither_gets_the_new_opt_out_of_the_other() {
    for no in [OptOut::Everything(OptOutReason::Manual), topic("news")] {
        let nights = Nights::new().await;
        nights.run(&[row(1, "a@x.io"), row(2, "a@x.io")]).await;

        let one = ImportRow::new(contact("b@x.io")).opt_out(no.clone());
        let table = [SyncRow::new(1, one), row(2, "c@x.io")];
        nights.run_with(&table, |sync| sync.concurrency(1)).await;

        let b = nights.contacts.retrieve("b@x.io").await.unwrap();
        assert!(b.unsubscribed || !b.topics["news"], "{no:?}");
        let c = nights.contacts.retrieve("c@x.io").await.unwrap();
        assert!(!c.unsubscribed && c.topics["news"], "{no:?}");
    }
}

#[tokio::test]
async fn the_late_topic_opt_out_of_a_deleted_row_stays_at_the_address_that_another_row_leaves() {
    let nights = Nights::new().await;
    let no_news = ImportRow::new(contact("a@x.io")).opt_out(topic("news"));
    let no_news = SyncRow::new(2, no_news);
    nights.run(&[row(1, "a@x.io"), row(2, "a@x.io")]).await;
    let fails = Fault::status(501).path("/contacts/*/unsubscribe");
    nights.server.fault(fails);
    nights.run(&[row(1, "a@x.io"), no_news.clone()]).await;
    nights.server.clear_faults();

    let table = [row(1, "c@x.io"), no_news.deleted(true)];
    nights.run(&table).await;

    let a = nights.contacts.retrieve("a@x.io").await.unwrap();
    assert!(a.unsubscribed && !a.topics["news"]);
    let c = nights.contacts.retrieve("c@x.io").await.unwrap();
    assert!(!c.unsubscribed && c.topics["news"]);
}

#[tokio::test]
async fn opt_ins_are_told_by_the_run_after_one_that_was_killed_while_it_checked_them() {
    let nights = Nights::new().await;
    let table = |is_subscribed| {
        let rows = [row(1, "a@x.io"), row(2, "b@x.io")];
        rows.map(|row| row.subscribed(is_subscribed))
    };
    nights.run(&table(false)).await;
    nights.contacts.subscribe("a@x.io").await.unwrap();
    let forever = Fault::delay(std::time::Duration::from_secs(3_600));
    nights
        .server
        .fault(forever.path("/contacts/b@x.io").method("GET").times(1));
    nights.server.clear_requests();
    let run = tokio::spawn(nights.sync(&table(true)).into_future());
    while nights.server.requests().len() < 2 {
        tokio::task::yield_now().await;
    }
    run.abort();
    assert!(run.await.unwrap_err().is_cancelled());
    nights.wait_for_dropped_run().await;
    let rejects = nights.state.0.with_extension("killed.csv");

    let (report, _) = nights
        .run_with(&table(true), |sync| sync.rejects_file(&rejects))
        .await;

    let text = std::fs::read_to_string(&rejects).unwrap();
    std::fs::remove_file(rejects).unwrap();
    assert_eq!((report.opt_ins_not_sent(), text.lines().count()), (1, 2));
    assert!(text.trim_end().ends_with(",2"), "{text}");
    assert_eq!(nights.run(&table(true)).await.0.unchanged(), 2);
}

#[tokio::test]
async fn an_opt_in_whose_contact_cannot_be_retrieved_is_told() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io").subscribed(false)]).await;
    nights.contacts.subscribe("a@x.io").await.unwrap();
    nights
        .server
        .fault(Fault::status(501).method("GET").times(1));

    let (report, _) = nights.run(&[row(1, "a@x.io")]).await;

    assert_eq!((report.opt_ins_not_sent(), report.is_complete()), (1, true));
}

#[tokio::test]
async fn a_changed_address_costs_four_requests_and_the_old_one_is_opted_out() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;

    let (report, calls) = nights.run(&[row(1, "b@x.io")]).await;

    assert_eq!(
        calls,
        [
            "GET /a@x.io",
            "batch 1",
            "GET /a@x.io",
            "POST /a@x.io/unsubscribe"
        ]
    );
    assert_eq!((report.opted_out(), report.changes().created()), (1, 1));
    assert!(nights.is_opted_out("a@x.io"));
    assert!(!nights.is_opted_out("b@x.io"));
    assert!(nights.run(&[row(1, "b@x.io")]).await.1.is_empty());
}

#[tokio::test]
async fn an_opt_out_with_a_changed_address_goes_to_both_and_the_old_one_is_counted_once() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io"), row(2, "c@x.io")]).await;

    let (report, calls) = nights.run(&[row(1, "b@x.io").subscribed(false)]).await;

    assert!(nights.is_opted_out("a@x.io") && nights.is_opted_out("b@x.io"));
    assert_eq!((report.opted_out(), report.changes().created()), (1, 1));
    assert_eq!(report.changes().skipped(), 0);
    assert_eq!(calls.len(), 5, "{calls:?}");
    let no_news = ImportRow::new(contact("d@x.io")).opt_out(topic("news"));
    let (report, calls) = nights.run(&[SyncRow::new(2, no_news)]).await;
    let old = nights.server.contact("c@x.io").unwrap();
    assert!(old.unsubscribed && !old.answers["news"]);
    assert_eq!((report.opted_out(), report.changes().skipped()), (1, 0));
    assert_eq!(calls.len(), 6, "{calls:?}");
}

#[tokio::test]
async fn a_changed_address_takes_its_opt_outs_with_it() {
    let nights = Nights::new().await;
    nights
        .run(&[row(1, "a@x.io"), row(2, "b@x.io"), row(3, "c@x.io")])
        .await;
    nights
        .contacts
        .set_topic("a@x.io", "news", false)
        .await
        .unwrap();
    let by_choice = nights
        .contacts
        .unsubscribe("b@x.io")
        .reason(OptOutReason::Preferences);
    by_choice.await.unwrap();
    nights.server.report_spam("c@x.io");

    let table = [row(1, "a2@x.io"), row(2, "b2@x.io"), row(3, "c2@x.io")];
    let (report, _) = nights.run(&table).await;

    assert_eq!(report.opted_out(), 1);
    let a2 = nights.contacts.retrieve("a2@x.io").await.unwrap();
    assert!(!a2.unsubscribed);
    assert_eq!((a2.topics["news"], a2.topics["offers"]), (false, true));
    let b2 = nights.contacts.retrieve("b2@x.io").await.unwrap();
    assert_eq!(b2.unsubscribe_reason, Some(UnsubscribeReason::Preferences));
    assert!(nights.is_opted_out("c2@x.io"));
    // It keeps the reason of the person.
    let b = nights.contacts.retrieve("b@x.io").await.unwrap();
    assert_eq!(b.unsubscribe_reason, Some(UnsubscribeReason::Preferences));
    assert!(nights.run(&table).await.1.is_empty());
}

#[tokio::test]
async fn the_opt_out_of_the_table_moves_with_the_row_even_if_the_contact_is_gone() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io").subscribed(false)]).await;
    let fault = Fault::status(404).body(r#"{"error":{"code":"not_found"}}"#);
    nights.server.fault(fault.path("/contacts/a@x.io").times(1));
    let empty_list = Fault::status(200).body(r#"{"data":[],"has_more":false}"#);
    nights
        .server
        .fault(empty_list.path("/contacts").method("GET"));

    let (report, _) = nights.run(&[row(1, "b@x.io").subscribed(true)]).await;

    assert_eq!(report.opt_ins_not_sent(), 1);
    assert!(nights.is_opted_out("b@x.io"));
}

#[tokio::test]
async fn if_the_old_contact_cannot_be_retrieved_the_new_one_is_not_created() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    nights
        .server
        .fault(Fault::status(501).method("GET").times(1));

    let (report, calls) = nights.run(&[row(1, "b@x.io")]).await;
    assert_eq!((calls.len(), report.is_complete()), (1, false));
    assert!(nights.server.contact("b@x.io").is_none());

    let (report, _) = nights.run(&[row(1, "b@x.io")]).await;
    assert!(report.is_complete());
    assert!(nights.is_opted_out("a@x.io") && !nights.is_opted_out("b@x.io"));
}

#[tokio::test]
async fn an_old_address_that_cannot_be_opted_out_is_tried_again_by_the_next_run() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    nights
        .server
        .fault(Fault::status(501).path("/contacts/*/unsubscribe").times(1));

    let (report, _) = nights.run(&[row(1, "b@x.io")]).await;
    assert_eq!(report.changes().opt_out_failed(), 1);
    assert!(!nights.is_opted_out("b@x.io"));

    // Even if its row is not passed.
    let (report, calls) = nights.run(&[]).await;
    assert_eq!(calls, ["GET /a@x.io", "POST /a@x.io/unsubscribe"]);
    assert_eq!(report.opted_out(), 1);
    assert!(nights.is_opted_out("a@x.io") && !nights.is_opted_out("b@x.io"));
    assert!(nights.run(&[row(1, "b@x.io")]).await.1.is_empty());
}

#[tokio::test]
async fn an_address_that_moves_to_another_row_is_not_opted_out() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io"), row(2, "b@x.io")]).await;

    // The rows swap their addresses; then one gives its address to a new row.
    let (report, _) = nights.run(&[row(1, "b@x.io"), row(2, "a@x.io")]).await;
    assert_eq!((report.opted_out(), report.changes().skipped()), (0, 2));
    nights.run(&[row(1, "c@x.io"), row(3, "b@x.io")]).await;

    for address in ["a@x.io", "b@x.io", "c@x.io"] {
        assert!(!nights.is_opted_out(address), "{address}");
    }
}

#[tokio::test]
async fn an_address_that_a_row_leaves_is_not_opted_out_if_a_row_that_is_not_passed_has_it() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io"), row(2, "a@x.io")]).await;

    nights.run(&[row(1, "b@x.io")]).await;

    assert!(!nights.is_opted_out("a@x.io"));
}

#[tokio::test]
async fn in_a_chain_of_moves_each_row_takes_only_its_own_opt_outs() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io"), row(2, "b@x.io")]).await;
    nights
        .contacts
        .unsubscribe("a@x.io")
        .topic("news")
        .await
        .unwrap();

    nights.run(&[row(1, "b@x.io"), row(2, "c@x.io")]).await;

    let contact = async |address| nights.contacts.retrieve(address).await.unwrap();
    assert!(!contact("b@x.io").await.topics["news"]);
    assert!(contact("c@x.io").await.topics["news"]);
    assert!(contact("a@x.io").await.unsubscribed);
}

#[tokio::test]
async fn of_two_rows_with_one_address_an_opt_out_of_either_counts() {
    for order in [[1, 2], [2, 1]] {
        let nights = Nights::new().await;
        let rows = order.map(|key| match key {
            1 => row(1, "a@x.io").subscribed(false),
            _ => row(2, " A@x.io").subscribed(true),
        });

        nights.run(&rows).await;
        assert!(nights.is_opted_out("a@x.io"));
        assert!(nights.run(&rows).await.1.is_empty());
    }
}

#[tokio::test]
async fn a_key_that_occurs_twice_is_refused_but_its_opt_out_counts() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;

    let table = [row(1, "a@x.io"), row(1, "a@x.io").subscribed(false)];
    let (report, calls) = nights.run(&table).await;

    assert_eq!(calls, ["GET /a@x.io", "POST /a@x.io/unsubscribe"]);
    assert_eq!((report.changes().refused(), report.opted_out()), (1, 1));
    assert!(nights.is_opted_out("a@x.io"));
    // Its reason stays in the next nights.
    assert_eq!(nights.run(&table).await.1, ["GET /a@x.io"]);
    let new = [row(2, "b@x.io"), row(2, "c@x.io")];
    assert_eq!(nights.run(&new).await.0.changes().refused(), 1);
    assert!(nights.server.contact("c@x.io").is_none());
}

#[tokio::test]
async fn a_deleted_row_is_opted_out_once_at_the_address_it_had() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io"), row(2, "b@x.io")]).await;
    let table = [
        row(1, "a@x.io").deleted(true),
        row(2, "deleted-2@invalid").deleted(true),
    ];

    let (report, calls) = nights.run(&table).await;
    assert_eq!((report.opted_out(), calls.len()), (2, 4));
    assert!(nights.is_opted_out("a@x.io") && nights.is_opted_out("b@x.io"));
    assert!(nights.server.contact("deleted-2@invalid").is_none());

    let (report, calls) = nights.run(&table).await;
    assert_eq!((report.unchanged(), calls.len()), (2, 0));
    // The row comes back, but its opt-out stays.
    let (report, calls) = nights.run(&[row(1, "a@x.io")]).await;
    assert_eq!((report.opt_ins_not_sent(), calls.len()), (1, 1));
    let (report, calls) = nights.run(&[row(1, "a@x.io")]).await;
    assert_eq!((report.unchanged(), calls.len()), (1, 0));
}

#[tokio::test]
async fn a_deleted_row_that_no_sync_has_seen_is_opted_out_and_never_created() {
    let nights = Nights::new().await;
    nights.contacts.create("a@x.io").await.unwrap();
    let table = [
        row(1, "a@x.io").deleted(true),
        row(2, "b@x.io").deleted(true),
    ];

    let (report, calls) = nights.run(&table).await;

    // The list proves that there is no contact with the second address.
    assert_eq!((calls.len(), report.is_complete()), (4, true));
    assert_eq!((report.opted_out(), report.changes().skipped()), (1, 1));
    assert!(nights.is_opted_out("a@x.io"));
    assert!(nights.server.contact("b@x.io").is_none());
    assert!(nights.run(&table).await.1.is_empty());
}

#[tokio::test]
async fn missing_rows_are_opted_out_if_asked_unless_another_row_has_the_address() {
    let nights = Nights::new().await;
    nights
        .run(&[row(1, "a@x.io"), row(2, "b@x.io"), row(3, "c@x.io")])
        .await;
    let table = [row(3, "c@x.io"), row(4, "b@x.io")];

    let (report, _) = nights.run_with(&table, SyncContacts::deletes_missing).await;

    assert_eq!(report.opted_out(), 1);
    assert!(nights.is_opted_out("a@x.io") && !nights.is_opted_out("b@x.io"));
    let (_, calls) = nights.run_with(&table, SyncContacts::deletes_missing).await;
    assert!(calls.is_empty(), "{calls:?}");
    // Whoever was missing while another row had the address does not count when that one is missing, too.
    let missing = |sync: SyncContacts| sync.deletes_missing().leave_at_most(2);
    let (report, calls) = nights.run_with(&[], missing).await;
    assert_eq!((report.opted_out(), calls.len()), (2, 4), "{calls:?}");
}

#[tokio::test]
async fn an_address_of_a_missing_row_that_no_row_has_taken_counts_towards_the_limit() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io"), row(2, "b@x.io")]).await;
    // The second row cannot take the address of the first one, and then keeps its own.
    let fails = Fault::status(400).path("/contacts/b@x.io");
    nights.server.fault(fails);
    let taken = [row(2, "a@x.io")];
    nights.run_with(&taken, SyncContacts::deletes_missing).await;
    nights.server.clear_faults();
    let table = [row(2, "b@x.io")];

    let sync = nights.sync(&table).deletes_missing().leave_at_most(0);
    let stopped = in_time(sync.into_future()).await.unwrap_err();

    let error = stopped.error().to_string();
    assert!(error.contains("limit is 0; nothing was sent"), "{error}");
    let (report, _) = nights.run_with(&table, SyncContacts::deletes_missing).await;
    assert_eq!(report.opted_out(), 1, "{report}");
    assert!(nights.is_opted_out("a@x.io") && !nights.is_opted_out("b@x.io"));
}

#[tokio::test]
async fn a_table_that_lost_most_rows_and_the_state_of_another_table_opt_nobody_out() {
    let nights = Nights::new().await;
    let table: Vec<_> = (0..1_200).map(|n| row(n, &format!("{n}@x.io"))).collect();
    nights.run(&table).await;
    nights.server.clear_requests();
    let other: Vec<_> = (0..1_200).map(|n| row(n, &format!("{n}@y.io"))).collect();

    let short = in_time(nights.sync(&table[..100]).deletes_missing().into_future()).await;
    let other = in_time(nights.sync(&other).into_future()).await;

    for stopped in [short.unwrap_err(), other.unwrap_err()] {
        let error = stopped.error().to_string();
        assert!(error.contains("limit is 120; nothing was sent"), "{error}");
    }
    assert!(nights.calls().is_empty());
    // The next run finds everything as it was.
    assert_eq!(nights.run(&table).await.0.unchanged(), 1_200);
}

#[tokio::test]
async fn a_small_table_that_was_emptied_or_lost_most_rows_opts_nobody_out() {
    for (known, most) in [(3, 2), (18, 10), (90, 45)] {
        let nights = Nights::new().await;
        let table: Vec<_> = (0..known).map(|n| row(n, &format!("{n}@x.io"))).collect();
        nights.run(&table).await;
        let left = usize::try_from(most).unwrap();
        let sync = |rows: &[SyncRow]| nights.sync(rows).deletes_missing();

        let emptied = in_time(sync(&[]).into_future()).await.unwrap_err();
        let error = emptied.error().to_string();
        assert!(
            error.contains("without rows is 0; nothing was sent"),
            "{error}"
        );
        if known > 10 {
            let short = in_time(sync(&table[left + 1..]).into_future()).await;
            let error = short.unwrap_err().error().to_string();
            assert!(error.contains(&format!("limit is {most};")), "{error}");
        }
        let report = in_time(sync(&table[left..]).into_future()).await.unwrap();
        assert_eq!(report.opted_out(), most);
        let all = sync(&[]).leave_at_most(known);
        let report = in_time(all.into_future()).await.unwrap();
        assert_eq!(report.opted_out(), known - most);
    }
}

#[tokio::test]
async fn an_opt_out_that_failed_is_sent_by_the_next_run_even_without_its_row() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    let table = [
        row(1, "a@x.io").subscribed(false),
        row(2, "b@x.io").subscribed(false),
    ];
    nights
        .server
        .fault(Fault::status(501).path("/contacts/*/unsubscribe").times(2));

    let (report, _) = nights.run(&table).await;
    assert_eq!(report.changes().opt_out_failed(), 2);

    let (report, calls) = nights.run(&[]).await;
    assert_eq!((report.opted_out(), calls.len()), (2, 4));
    assert!(nights.is_opted_out("a@x.io") && nights.is_opted_out("b@x.io"));
    assert!(nights.run(&table).await.1.is_empty());
}

#[tokio::test]
async fn an_unknown_topic_is_a_reject_and_the_rest_is_applied() {
    let nights = Nights::new().await;
    let unknown = ImportRow::new(contact("a@x.io")).opt_out(topic("nwes"));
    let table = [SyncRow::new(1, unknown.opt_out(topic("news")))];

    let (report, _) = nights.run(&table).await;

    assert_eq!(report.changes().opt_out_failed(), 1);
    let ada = nights.contacts.retrieve("a@x.io").await.unwrap();
    assert!(!ada.topics["news"]);
    assert_eq!(nights.run(&table).await.0.changes().opt_out_failed(), 1);
}

#[tokio::test]
async fn once_a_misspelled_topic_is_corrected_no_later_run_undoes_an_opt_in() {
    let nights = Nights::new().await;
    // A contact that is created, and one that is known.
    nights.run(&[row(2, "b@x.io")]).await;
    let misspelled = |key, address| {
        let nwes = ImportRow::new(contact(address)).opt_out(topic("nwes"));
        SyncRow::new(key, nwes).subscribed(false)
    };
    let table = [misspelled(1, "a@x.io"), misspelled(2, "b@x.io")];
    let (report, _) = nights.run(&table).await;
    assert_eq!(report.changes().opt_out_failed(), 2);
    assert!(nights.is_opted_out("a@x.io") && nights.is_opted_out("b@x.io"));
    for address in ["a@x.io", "b@x.io"] {
        nights.contacts.subscribe(address).await.unwrap();
    }

    let corrected = [row(1, "a@x.io"), row(2, "b@x.io")];
    let (report, calls) = nights.run(&corrected).await;

    assert!(report.is_complete(), "{report}: {calls:?}");
    assert!(!nights.is_opted_out("a@x.io") && !nights.is_opted_out("b@x.io"));
    assert!(nights.run(&corrected).await.1.is_empty());
}

#[tokio::test]
async fn a_failure_of_another_opt_out_does_not_undo_an_opt_in_at_the_service() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io").subscribed(false)]).await;
    nights.contacts.subscribe("a@x.io").await.unwrap();
    let no_news = ImportRow::new(contact("a@x.io").first_name("A")).opt_out(topic("news"));
    let changed = SyncRow::new(1, no_news).subscribed(false);
    let fails = Fault::status(501).path("/contacts/a%40x.io/unsubscribe");
    nights.server.fault(fails);
    let (report, _) = nights.run(std::slice::from_ref(&changed)).await;
    assert_eq!(report.changes().opt_out_failed(), 1);
    nights.server.clear_faults();

    nights.run(&[changed]).await;

    let a = nights.contacts.retrieve("a@x.io").await.unwrap();
    assert!(!a.unsubscribed && !a.topics["news"]);
}

#[tokio::test]
async fn an_opt_out_of_before_is_not_sent_again_after_a_night_that_sent_nothing() {
    let nights = Nights::new().await;
    let out = |name: &str| {
        let contact = contact("a@x.io").first_name(name);
        SyncRow::new(1, ImportRow::new(contact)).subscribed(false)
    };
    nights.run(&[out("A")]).await;
    nights.contacts.subscribe("a@x.io").await.unwrap();
    let fault = Fault::status(401).path("/contacts/batch");
    nights.server.fault(fault);
    let stopped = in_time(nights.sync(&[out("B")]).into_future()).await;
    let report = stopped.unwrap_err();
    assert_eq!(report.report().changes().not_sent(), 1);
    nights.server.clear_faults();

    // The next table has only other rows.
    nights.run(&[]).await;

    assert!(!nights.is_opted_out("a@x.io"));
}

#[tokio::test]
async fn an_opt_out_of_a_topic_for_a_contact_that_is_gone_counts_as_skipped() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    nights.contacts.delete("a@x.io").await.unwrap();
    let no_news = ImportRow::new(contact("a@x.io")).opt_out(topic("news"));

    let (report, _) = nights.run(&[SyncRow::new(1, no_news)]).await;

    assert_eq!((report.opted_out(), report.changes().skipped()), (0, 1));
}

#[tokio::test]
async fn the_opt_out_of_a_row_that_is_refused_is_recorded() {
    let nights = Nights::new().await;
    nights.contacts.create("a@x.io").await.unwrap();
    let body = r#"{"data":[{"email":"a@x.io","status":"validation_error"}]}"#;
    nights.server.fault(
        Fault::status(200)
            .body(body)
            .path("/contacts/batch")
            .times(1),
    );

    let (report, _) = nights.run(&[row(1, "a@x.io").subscribed(false)]).await;

    assert_eq!(report.changes().refused(), 1);
    assert!(nights.is_opted_out("a@x.io"));

    // The opt-out is done, so the next run does not send it for the row that is not passed.
    nights.contacts.subscribe("a@x.io").await.unwrap();
    nights.run(&[]).await;
    assert!(!nights.is_opted_out("a@x.io"));
}

#[tokio::test]
async fn a_row_that_is_too_large_does_not_send_the_opt_out_of_an_earlier_run_again() {
    let nights = Nights::new().await;
    let no_news = |name: &str| {
        let row = ImportRow::new(contact("a@x.io").first_name(name));
        SyncRow::new(1, row.opt_out(topic("news")))
    };
    nights.run(&[no_news("Ada")]).await;
    let opt_in = nights.contacts.set_topic("a@x.io", "news", true);
    opt_in.await.unwrap();
    let too_large = Fault::status(413).path("/contacts/batch");
    nights.server.fault(too_large);

    let (report, _) = nights.run(&[no_news("Eve")]).await;

    assert_eq!(report.changes().not_sent(), 1);
    let ada = nights.contacts.retrieve("a@x.io").await.unwrap();
    assert!(ada.topics["news"]);
}

#[tokio::test]
async fn the_opt_out_of_a_row_that_is_refused_is_sent_by_the_next_run_if_it_fails() {
    let nights = Nights::new().await;
    nights.contacts.create("a@x.io").await.unwrap();
    let body = r#"{"data":[{"email":"a@x.io","status":"validation_error"}]}"#;
    let refused = Fault::status(200).body(body);
    nights.server.fault(refused.path("/contacts/batch"));
    let fails = Fault::status(501).path("/contacts/*/unsubscribe");
    nights.server.fault(fails);
    let (report, _) = nights.run(&[row(1, "a@x.io").subscribed(false)]).await;
    assert_eq!(report.changes().opt_out_failed(), 1);
    nights.server.clear_faults();

    nights.run(&[]).await;

    assert!(nights.is_opted_out("a@x.io"));
}

#[tokio::test]
async fn an_opt_out_is_sent_to_a_contact_that_was_updated_even_if_it_cannot_be_found() {
    let nights = Nights::new().await;
    nights.contacts.create("a@x.io").await.unwrap();
    let not_found = Fault::status(404).body(r#"{"error":{"code":"not_found"}}"#);
    nights.server.fault(not_found.path("/contacts/a@x.io"));
    let empty_list = Fault::status(200).body(r#"{"data":[],"has_more":false}"#);
    nights
        .server
        .fault(empty_list.path("/contacts").method("GET"));

    let (report, _) = nights.run(&[row(1, "a@x.io").subscribed(false)]).await;

    assert_eq!(report.changes().updated(), 1);
    assert!(nights.is_opted_out("a@x.io"));
}

#[tokio::test]
async fn an_opt_out_of_before_the_contact_existed_is_sent_although_the_row_is_subscribed_since() {
    let nights = Nights::new().await;
    nights
        .server
        .fault(Fault::close_before().path("/contacts/batch"));
    let once = |sync: SyncContacts| sync.retry(RetryPolicy::none());
    let table = [row(1, "a@x.io").subscribed(false)];
    nights.run_with(&table, once).await;
    nights.server.clear_faults();

    let (report, _) = nights.run(&[row(1, "a@x.io")]).await;

    assert_eq!(report.changes().created(), 1);
    assert!(nights.is_opted_out("a@x.io"));
}

#[tokio::test]
async fn a_yes_of_before_a_late_opt_out_is_told_once() {
    let nights = Nights::new().await;
    let fails = Fault::status(501).path("/contacts/*/unsubscribe");
    nights.server.fault(fails.times(1));
    nights.run(&[row(1, "a@x.io").subscribed(false)]).await;

    let mut told = 0;
    for _ in 0..4 {
        let (report, _) = nights.run(&[row(1, "a@x.io")]).await;
        told += report.opt_ins_not_sent();
    }

    assert_eq!(told, 1);
    assert!(nights.is_opted_out("a@x.io"));
}

#[tokio::test]
async fn a_yes_to_a_topic_is_told_also_if_an_earlier_change_of_the_row_failed() {
    let nights = Nights::new().await;
    let no_news = |name: &str| {
        let contact = contact("a@x.io").first_name(name);
        SyncRow::new(1, ImportRow::new(contact).opt_out(topic("news")))
    };
    nights.run(&[no_news("A")]).await;
    let fails = Fault::status(501).path("/contacts/batch");
    nights.server.fault(fails.times(1));
    nights.run(&[no_news("B")]).await;

    let (report, _) = nights.run(&[row(1, "a@x.io")]).await;

    assert_eq!(report.opt_ins_not_sent(), 1);
    let a = nights.contacts.retrieve("a@x.io").await.unwrap();
    assert!(!a.topics["news"]);
}

#[tokio::test]
async fn a_contact_that_was_removed_from_the_service_comes_back_with_its_opt_outs() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io").subscribed(false)]).await;
    let body = r#"{"data":[{"email":"a@x.io","status":"created"}]}"#;
    nights.server.fault(
        Fault::status(200)
            .body(body)
            .path("/contacts/batch")
            .times(1),
    );

    let changed = SyncRow::new(1, contact("a@x.io").first_name("B")).subscribed(false);
    let (_, calls) = nights.run(&[changed]).await;

    assert_eq!(calls, ["batch 1", "POST /a@x.io/unsubscribe"]);
}

#[tokio::test]
async fn a_row_that_was_missing_and_comes_back_as_deleted_is_opted_out_once_no_row_has_its_address()
{
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io"), row(2, "a@x.io")]).await;
    let held = [row(2, "a@x.io")];
    nights.run_with(&held, SyncContacts::deletes_missing).await;
    assert!(!nights.is_opted_out("a@x.io"));
    let deleted = row(1, "a@x.io").deleted(true);

    nights.run(&[deleted.clone(), row(2, "a@x.io")]).await;
    assert!(!nights.is_opted_out("a@x.io"));
    nights.run(&[deleted, row(2, "b@x.io")]).await;

    assert!(nights.is_opted_out("a@x.io") && !nights.is_opted_out("b@x.io"));
}

#[tokio::test]
async fn a_deleted_row_does_not_opt_out_the_contact_of_another_row_with_its_address() {
    for is_reversed in [true, false] {
        for is_new in [true, false] {
            let nights = Nights::new().await;
            let both = [row(1, "a@x.io"), row(2, "a@x.io")];
            nights.run(&both[usize::from(is_new)..]).await;
            let mut table = [row(1, "a@x.io"), row(2, "a@x.io").deleted(true)];
            if is_reversed {
                table.reverse();
            }
            let checks = |sync: SyncContacts| sync.checks_list().deletes_missing();

            for night in 0..2 {
                let (report, _) = nights.run_with(&table, checks).await;

                assert!(!nights.is_opted_out("a@x.io"), "night {night}");
                assert!(report.opted_out_at_service().is_empty());
                assert_eq!((report.opted_out(), report.opt_ins_not_sent()), (0, 0));
            }
            let (report, calls) = nights.run(&table).await;
            assert_eq!((report.unchanged(), calls.len()), (2, 0));
            // Nobody has the address any more.
            let table = table.map(|row| row.deleted(true));
            nights.run(&table).await;
            assert!(nights.is_opted_out("a@x.io"));
            assert_eq!(nights.run(&table).await.0.unchanged(), 2);
        }
    }
}

#[tokio::test]
async fn a_deleted_row_that_is_opted_out_itself_opts_out_the_contact_of_another_row() {
    let one = row(1, "a@x.io");
    let deleted = row(2, "a@x.io").deleted(true);
    let no = deleted.clone().subscribed(false);
    let both = vec![one.clone(), row(2, "a@x.io")];
    let befores = [
        vec![vec![one.clone()]],
        vec![both.clone()],
        // The opt-out comes after the deletion.
        vec![both, vec![one.clone(), deleted]],
    ];
    for before in befores {
        let nights = Nights::new().await;
        for table in before {
            nights.run(&table).await;
        }
        let table = [one.clone(), no.clone()];

        for night in 0..2 {
            let (report, _) = nights.run_with(&table, SyncContacts::checks_list).await;

            assert!(nights.is_opted_out("a@x.io"), "night {night}");
            // At first, the table has the opt-out. Afterwards, it has only an old one, and row 1 says yes.
            let told = report.opted_out_at_service().len();
            let told = told + usize::try_from(report.opt_ins_not_sent()).unwrap();
            assert_eq!(told, night, "{report}");
        }
    }
}

#[tokio::test]
async fn a_contact_that_a_row_creates_gets_the_opt_outs_of_a_deleted_row_with_its_address() {
    let no_news = ImportRow::new(contact("a@x.io")).opt_out(topic("news"));
    let no_news = SyncRow::new(1, no_news).deleted(true);
    let no = row(1, "a@x.io").subscribed(false).deleted(true);
    for (deleted, is_out) in [(no, true), (no_news, false)] {
        for is_known in [true, false] {
            let nights = Nights::new().await;
            if is_known {
                nights.run(std::slice::from_ref(&deleted)).await;
            }

            nights.run(&[deleted.clone(), row(2, "a@x.io")]).await;

            let stored = nights.server.contact("a@x.io").unwrap();
            assert_eq!(stored.unsubscribed, is_out, "{is_known}");
            let news = stored.answers.get("news").copied();
            assert_eq!(news, (!is_out).then_some(false), "{is_known}");
        }
    }
}

#[tokio::test]
async fn a_new_topic_opt_out_of_a_deleted_row_is_sent_although_the_row_was_opted_out_before() {
    let nights = Nights::new().await;
    let no = row(2, "a@x.io").subscribed(false);
    nights.run(&[row(1, "a@x.io"), no]).await;
    nights.contacts.subscribe("a@x.io").await.unwrap();
    let no_news = ImportRow::new(contact("a@x.io")).opt_out(topic("news"));
    let deleted = SyncRow::new(2, no_news).subscribed(false).deleted(true);

    nights.run(&[row(1, "a@x.io"), deleted]).await;

    let stored = nights.server.contact("a@x.io").unwrap();
    assert_eq!(stored.answers.get("news"), Some(&false));
    assert!(!stored.unsubscribed);
}

#[tokio::test]
async fn a_deleted_row_that_is_in_the_table_twice_does_not_opt_out_the_contact_of_another_row() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io"), row(2, "a@x.io")]).await;
    let deleted = row(2, "a@x.io").deleted(true);
    let mut table = [row(1, "a@x.io"), deleted.clone(), deleted];

    for _ in 0..2 {
        let (report, _) = nights.run(&table).await;

        assert_eq!((report.opted_out(), report.changes().refused()), (0, 1));
        assert!(!nights.is_opted_out("a@x.io"));
    }
    table[2] = table[2].clone().subscribed(false);
    nights.run(&table).await;
    assert!(nights.is_opted_out("a@x.io"));
}

#[tokio::test]
async fn opt_outs_move_with_the_row_also_if_the_new_contact_is_created_only_by_a_later_run() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    let opt_out = nights.contacts.set_topic("a@x.io", "news", false);
    opt_out.await.unwrap();

    nights
        .server
        .fault(Fault::close_before().path("/contacts/batch"));
    for _ in 0..3 {
        let once = |sync: SyncContacts| sync.retry(RetryPolicy::none());
        let (report, _) = nights.run_with(&[row(1, "b@x.io")], once).await;
        assert!(!report.is_complete());
    }
    nights.server.clear_faults();
    let (report, _) = nights.run(&[row(1, "b@x.io")]).await;

    assert!(report.is_complete(), "{report}");
    let b = nights.contacts.retrieve("b@x.io").await.unwrap();
    assert!(!b.topics["news"]);
}

#[tokio::test]
async fn an_old_address_is_left_although_an_opt_out_that_moves_with_the_row_fails_for_a_night() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    let opt_out = nights.contacts.set_topic("a@x.io", "news", false);
    opt_out.await.unwrap();
    let fails = Fault::status(501).path("/contacts/b@x.io/unsubscribe");
    nights.server.fault(fails);

    let (report, _) = nights.run(&[row(1, "b@x.io")]).await;

    assert!(!report.is_complete(), "{report}");
    assert!(nights.is_opted_out("a@x.io"));
    nights.server.clear_faults();
    nights.run(&[]).await;
    let b = nights.contacts.retrieve("b@x.io").await.unwrap();
    assert!(!b.topics["news"] && !b.unsubscribed);
}

#[tokio::test]
async fn topic_opt_outs_that_move_outlive_a_deletion_before_the_new_contact_exists() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    let opt_out = nights.contacts.set_topic("a@x.io", "news", false);
    opt_out.await.unwrap();
    let fault = Fault::close_before().path("/contacts/batch");
    nights.server.fault(fault);
    for row in [row(1, "b@x.io"), row(1, "b@x.io").deleted(true)] {
        let once = |sync: SyncContacts| sync.retry(RetryPolicy::none());
        nights.run_with(&[row], once).await;
    }
    nights.server.clear_faults();

    let (report, _) = nights.run(&[row(1, "b@x.io")]).await;

    assert!(report.is_complete(), "{report}");
    let b = nights.contacts.retrieve("b@x.io").await.unwrap();
    assert!(!b.topics["news"]);
}

#[tokio::test]
async fn if_the_new_address_is_refused_the_old_contact_stays_until_there_is_a_usable_one() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "t@x.io")]).await;

    for _ in 0..2 {
        let (report, calls) = nights.run(&[row(1, "t at x.io")]).await;
        assert_eq!(calls, ["GET /t@x.io", "batch 1"]);
        assert_eq!((report.changes().refused(), report.opted_out()), (1, 0));
        assert!(!nights.is_opted_out("t@x.io"));
    }
    let (report, calls) = nights.run(&[row(1, "t@x.io")]).await;
    assert!(report.is_complete() && calls.is_empty(), "{calls:?}");
    assert!(!nights.is_opted_out("t@x.io"));

    nights.run(&[row(1, "t at x.io")]).await;
    let opt_out = nights.contacts.set_topic("t@x.io", "news", false);
    opt_out.await.unwrap();
    let (report, _) = nights.run(&[row(1, "u@x.io")]).await;

    assert!(report.is_complete(), "{report}");
    assert!(nights.is_opted_out("t@x.io") && !nights.is_opted_out("u@x.io"));
    let new = nights.contacts.retrieve("u@x.io").await.unwrap();
    assert!(!new.topics["news"]);
    assert_eq!(nights.run(&[row(1, "u@x.io")]).await.0.unchanged(), 1);
}

#[tokio::test]
async fn an_address_that_one_row_leaves_stays_while_the_new_one_of_another_row_is_refused() {
    for order in [[1, 2], [2, 1]] {
        let nights = Nights::new().await;
        let table =
            |first, second| order.map(|key| row(key, if key == 1 { first } else { second }));
        nights.run(&table("a@x.io", "a@x.io")).await;

        nights.run(&table("a at x.io", "b@x.io")).await;
        assert!(!nights.is_opted_out("a@x.io"));

        nights.run(&table("c@x.io", "b@x.io")).await;
        assert!(nights.is_opted_out("a@x.io"));
    }
}

#[tokio::test]
async fn an_address_is_not_changed_while_the_service_does_not_show_the_topics_of_the_old_contact() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    nights
        .contacts
        .set_topic("a@x.io", "news", false)
        .await
        .unwrap();
    let mut shown =
        serde_json::to_value(nights.contacts.retrieve("a@x.io").await.unwrap()).unwrap();
    shown.as_object_mut().unwrap().remove("topics");
    let hidden = Fault::wrong_body(shown.to_string())
        .method("GET")
        .path("/contacts/a*");
    nights.server.fault(hidden);

    let stopped = in_time(nights.sync(&[row(1, "b@x.io")]).into_future()).await;
    assert!(stopped.is_ok_and(|report| !report.is_complete()));
    assert!(nights.server.contact("b@x.io").is_none());
    nights.server.clear_faults();
    nights.run(&[row(1, "b@x.io")]).await;

    let new = nights.contacts.retrieve("b@x.io").await.unwrap();
    assert!(!new.topics["news"] && new.topics["offers"]);
}

#[tokio::test]
async fn what_the_person_takes_back_while_the_new_address_is_refused_does_not_move() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "t@x.io")]).await;
    let news = async |answer| {
        let answer = nights.contacts.set_topic("t@x.io", "news", answer);
        answer.await.unwrap();
    };
    news(false).await;
    nights.run(&[row(1, "t at x.io")]).await;
    news(true).await;

    nights.run(&[row(1, "u@x.io")]).await;

    let new = nights.contacts.retrieve("u@x.io").await.unwrap();
    assert!(new.topics["news"] && !new.unsubscribed);
}

#[tokio::test]
async fn an_address_that_was_refused_is_looked_up_once_before_it_is_left_if_a_run_got_no_response()
{
    let nights = Nights::new().await;
    nights.run(&[row(1, "t@x.io")]).await;
    let lost = Fault::close_before().path("/contacts/batch");
    nights.server.fault(lost);
    let once = |sync: SyncContacts| sync.retry(RetryPolicy::none());
    nights.run_with(&[row(1, "t at x.io")], once).await;
    nights.server.clear_faults();
    nights.run(&[row(1, "t at x.io")]).await;

    let (_, calls) = nights.run(&[row(1, "u@x.io")]).await;

    // The batch without a response may have created it.
    let expected = [
        "GET /t@x.io",
        "GET /t%20at%20x.io",
        "GET",
        "batch 1",
        "GET /t%20at%20x.io",
        "GET /t@x.io",
        "GET",
        "POST /t@x.io/unsubscribe",
    ];
    assert_eq!(calls, expected);
    let (_, calls) = nights.run(&[row(1, "u@x.io")]).await;
    assert_eq!(calls, [""; 0]);
}

#[tokio::test]
async fn a_topic_whose_default_is_no_is_opted_out_of_at_an_old_address_too() {
    let nights = Nights::new().await;
    nights.server.topic("beta", false);
    nights.run(&[row(1, "t@x.io")]).await;
    let no_beta = ImportRow::new(contact("t at x.io")).opt_out(topic("beta"));

    let (_, calls) = nights.run(&[SyncRow::new(1, no_beta)]).await;

    let expected = "POST /t@x.io/unsubscribe beta".to_owned();
    assert!(calls.contains(&expected), "{calls:?}");
    nights.server.topic("beta", true);
    let old = nights.contacts.retrieve("t@x.io").await.unwrap();
    assert!(!old.topics["beta"]);
}

#[tokio::test]
async fn the_opt_out_of_a_row_whose_new_address_is_refused_goes_to_the_old_one() {
    let bad = "t at x.io";
    let no_news = || SyncRow::new(1, ImportRow::new(contact(bad)).opt_out(topic("news")));
    let tables = [
        row(1, bad).subscribed(false),
        row(1, bad).deleted(true),
        no_news(),
    ];
    for (number, changed) in tables.into_iter().enumerate() {
        // In the night of the typing mistake, and in the night after it.
        for first in [changed.clone(), row(1, bad)] {
            let nights = Nights::new().await;
            nights.run(&[row(1, "t@x.io")]).await;
            nights.run(&[first]).await;
            nights.run(std::slice::from_ref(&changed)).await;

            let old = nights.contacts.retrieve("t@x.io").await.unwrap();
            assert_eq!(old.unsubscribed, number < 2);
            assert!(old.unsubscribed || !old.topics["news"]);
        }
    }
    // It goes to the usable address, too.
    let nights = Nights::new().await;
    nights.run(&[row(1, "t@x.io")]).await;
    nights.run(&[row(1, bad).subscribed(false)]).await;
    nights.run(&[row(1, "u@x.io")]).await;
    assert!(nights.is_opted_out("u@x.io"));
    let nights = Nights::new().await;
    nights.run(&[row(1, "t@x.io")]).await;
    nights.run(&[row(1, bad)]).await;
    let missing = |sync: SyncContacts| sync.deletes_missing().leave_at_most(1);
    nights.run_with(&[], missing).await;
    assert!(nights.is_opted_out("t@x.io"));
}

#[tokio::test]
async fn an_address_that_a_sync_has_opted_out_and_a_row_takes_is_an_opt_in_that_is_not_sent() {
    let nights = Nights::new().await;
    let table = |address: &str| [row(1, address), row(2, "b@x.io").subscribed(false)];
    nights.run(&table("a@x.io")).await;
    nights.run(&table("c@x.io")).await;

    let (report, _) = nights.run(&table("a@x.io")).await;
    assert_eq!(report.opt_ins_not_sent(), 1, "its own");
    let taken = [row(3, "c@x.io"), row(4, "b@x.io"), row(5, "new@x.io")];
    let (report, _) = nights.run(&taken).await;
    assert_eq!(
        report.opt_ins_not_sent(),
        2,
        "an address that was left, and one that is opted out"
    );
    for address in ["a@x.io", "b@x.io", "c@x.io"] {
        assert!(nights.is_opted_out(address), "{address}");
    }
    assert_eq!(nights.run(&taken).await.0.opt_ins_not_sent(), 0);
}

#[tokio::test]
async fn a_row_that_takes_the_address_of_one_that_is_deleted_with_an_opt_out_is_told() {
    for is_out in [true, false] {
        for order in [[1, 2, 3], [3, 2, 1]] {
            let nights = Nights::new().await;
            nights.run(&[row(1, "a@x.io"), row(3, "c@x.io")]).await;
            let table = order.map(|key| match key {
                1 => row(1, "a@x.io").subscribed(!is_out).deleted(true),
                _ => row(key, "a@x.io"),
            });

            // One row is new, and one had another address.
            let (report, _) = nights.run(&table).await;

            assert_eq!(report.opt_ins_not_sent(), if is_out { 2 } else { 0 });
            assert_eq!(nights.is_opted_out("a@x.io"), is_out);
            assert_eq!(nights.run(&table).await.0.opt_ins_not_sent(), 0);
        }
    }
    // Without the row, the contact is the one of the row that takes the address.
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    let table = [row(2, "a@x.io")];
    let (report, _) = nights.run_with(&table, SyncContacts::deletes_missing).await;
    assert_eq!(report.opt_ins_not_sent(), 0);
    assert!(!nights.is_opted_out("a@x.io"));
    // A row that is not subscribed has no opt-in.
    let table = [
        row(2, "a@x.io").deleted(true),
        row(3, "a@x.io").subscribed(false),
    ];
    let (report, _) = nights.run_with(&table, SyncContacts::dry_run).await;
    assert_eq!(report.opt_ins_not_sent(), 0);
}

#[tokio::test]
async fn an_opt_in_that_is_not_sent_is_told_until_a_run_has_ended() {
    let nights = Nights::new().await;
    let table = |name: &str, is_subscribed| {
        let contact = NewContact::new("b@x.io").first_name(name);
        [
            row(1, "a@x.io").subscribed(is_subscribed),
            SyncRow::new(2, contact).subscribed(is_subscribed),
        ]
    };
    nights.run(&table("Bob", false)).await;
    let mut table = table("Robert", true).to_vec();
    table.extend((3..300).map(|key| row(key, &format!("{key}@x.io"))));

    let stops = |sync: SyncContacts| sync.stop_when(std::future::ready(()));
    let (report, calls) = nights.run_with(&table, stops).await;
    assert_eq!((report.opt_ins_not_sent(), calls.len()), (2, 0));
    // It stops after the first batch, which has the change of the second row.
    let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
    let mut sender = Some(sender);
    let stops = |sync: SyncContacts| {
        let sync = sync.concurrency(1).stop_when(async move {
            let _ = receiver.await;
        });
        sync.on_progress(move |progress| {
            if progress.finished() >= 100 {
                sender.take();
            }
        })
    };
    let (report, calls) = nights.run_with(&table, stops).await;
    assert_eq!(
        (report.opt_ins_not_sent(), calls),
        (2, vec!["batch 100".to_owned()])
    );

    let (report, _) = nights.run(&table).await;
    assert_eq!(report.opt_ins_not_sent(), 2);
    let (report, calls) = nights.run(&table).await;
    assert_eq!((report.opt_ins_not_sent(), calls.len()), (0, 0));
}

/// Ends a run that records the opt-in of a row, and then ends with an error.
async fn opt_in_that_is_not_told() -> (Nights, SyncRow) {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io").subscribed(false)]).await;
    let yes = SyncRow::new(1, contact("a@x.io").first_name("B"));
    let refused = Fault::status(401).method("GET");
    nights.server.fault(refused.times(1));
    let sync = nights.sync(std::slice::from_ref(&yes));
    in_time(sync.into_future()).await.unwrap_err();
    (nights, yes)
}

#[tokio::test]
async fn an_opt_in_that_no_finished_run_has_told_is_told_although_its_row_was_missing_in_another() {
    for is_stopped in [true, false] {
        let (nights, yes) = opt_in_that_is_not_told().await;
        // Another row has its address.
        let other = row(2, "a@x.io");
        let missing = |sync: SyncContacts| match is_stopped {
            true => sync.deletes_missing().stop_when(std::future::ready(())),
            false => sync.deletes_missing(),
        };
        nights.run_with(std::slice::from_ref(&other), missing).await;

        let (report, _) = nights.run(&[yes.clone(), other.clone()]).await;

        assert_eq!(report.opt_ins_not_sent(), 1, "{is_stopped}");
        let (report, _) = nights.run(&[yes, other]).await;
        assert_eq!(report.opt_ins_not_sent(), 0, "{is_stopped}");
    }
}

#[tokio::test]
async fn a_row_that_was_deleted_before_its_opt_in_was_told_is_deleted_once() {
    let (nights, yes) = opt_in_that_is_not_told().await;
    let table = [yes.deleted(true)];

    nights.run(&table).await;
    let (report, calls) = nights.run(&table).await;

    assert_eq!((report.unchanged(), calls.len()), (1, 0));
}

#[tokio::test]
async fn an_opt_in_at_the_address_of_another_row_is_told_after_a_run_that_failed() {
    // The batch fails, or its first entry is refused, and then the run ends with an error.
    let refused_key = |path: &str| vec![Fault::status(401).path(path)];
    let body = r#"{"data":[{"email":"b@x.io","status":"validation_error"},{"email":"b@x.io","status":"updated"}]}"#;
    let refused = Fault::status(200).body(body).path("/contacts/batch");
    let refused = [refused_key("/contacts/b@x.io"), vec![refused]].concat();
    for faults in [refused_key("/contacts/batch"), refused] {
        let nights = Nights::new().await;
        nights
            .run(&[row(1, "a@x.io"), row(2, "b@x.io").subscribed(false)])
            .await;
        // Both are subscribed, and one takes the address of the other.
        let changed = SyncRow::new(2, contact("b@x.io").first_name("B"));
        let table = [row(1, "b@x.io"), changed];
        for fault in faults {
            nights.server.fault(fault);
        }
        let sync = nights.sync(&table);
        in_time(sync.into_future()).await.unwrap_err();
        nights.server.clear_faults();

        let (report, _) = nights.run(&table).await;

        assert_eq!(report.opt_ins_not_sent(), 2);
    }
}

fn reason_of(nights: &Nights, address: &str) -> String {
    nights.server.contact(address).unwrap().unsubscribe_reason
}

#[tokio::test]
async fn a_click_that_is_written_into_the_table_keeps_its_reason_and_is_not_sent() {
    let nights = Nights::new().await;
    let names = ["a@x.io", "b@x.io", "c@x.io", "d@x.io"];
    let table: Vec<_> = (1..).zip(names).map(|(key, name)| row(key, name)).collect();
    nights.run(&table).await;
    for name in ["a@x.io", "c@x.io"] {
        let click = nights.contacts.unsubscribe(name);
        click.reason(OptOutReason::Preferences).await.unwrap();
    }
    nights.server.report_spam("b@x.io");
    let [a, b, c, _] = <[SyncRow; 4]>::try_from(table).unwrap();

    // The last row is missing, and its contact is not opted out yet.
    let written = [a.subscribed(false), b.subscribed(false), c.deleted(true)];
    let (report, calls) = nights
        .run_with(&written, SyncContacts::deletes_missing)
        .await;

    let sent: Vec<_> = calls
        .iter()
        .filter(|call| call.starts_with("POST"))
        .collect();
    assert_eq!(sent, ["POST /d@x.io/unsubscribe"]);
    assert_eq!(calls.len(), 5, "{calls:?}");
    assert_eq!((report.opted_out(), report.changes().skipped()), (1, 3));
    assert!(report.is_complete(), "{report}");
    let reasons = names.map(|name| reason_of(&nights, name));
    assert_eq!(
        reasons,
        ["preferences", "complaint", "preferences", "manual"]
    );
    assert!(nights.run(&written).await.1.is_empty());
}

#[tokio::test]
async fn one_look_serves_all_opt_outs_of_a_row() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io"), row(2, "b@x.io")]).await;
    let click = nights.contacts.unsubscribe("a@x.io");
    click.reason(OptOutReason::Preferences).await.unwrap();
    let news = nights.contacts.set_topic("b@x.io", "news", false);
    news.await.unwrap();
    let table = [(1, "a@x.io"), (2, "b@x.io")].map(|(key, address)| {
        let row = ImportRow::new(contact(address)).opt_out(topic("news"));
        SyncRow::new(key, row).subscribed(false)
    });

    let (report, mut calls) = nights.run(&table).await;

    calls.sort();
    let expected = [
        "GET /a@x.io",
        "GET /b@x.io",
        "POST /a@x.io/unsubscribe news",
        "POST /b@x.io/unsubscribe",
        // The "no" that the contact shows may be the topic's default.
        "POST /b@x.io/unsubscribe news",
    ];
    assert_eq!(calls, expected);
    assert_eq!(report.opted_out(), 2);
    assert_eq!(reason_of(&nights, "a@x.io"), "preferences");
    assert!(nights.run(&table).await.1.is_empty());
}

#[tokio::test]
async fn an_opt_out_before_which_the_contact_cannot_be_retrieved_is_sent_by_the_next_run() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    let table = [row(1, "a@x.io").subscribed(false)];
    let fault = Fault::status(501).path("/contacts/a%40x.io").times(1);
    nights.server.fault(fault);

    let (report, calls) = nights.run(&table).await;
    assert_eq!(calls, ["GET /a@x.io"]);
    assert_eq!(report.changes().opt_out_failed(), 1);

    let (report, _) = nights.run(&[]).await;
    assert_eq!(report.opted_out(), 1);
    assert!(nights.is_opted_out("a@x.io"));
}

#[tokio::test]
async fn the_opt_out_of_a_contact_that_cannot_be_read_is_sent() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    let malformed = Fault::status(200).body(r#"{"email":"a@x.io","unsubscribed":"maybe"}"#);
    nights.server.fault(malformed.path("/contacts/a%40x.io"));

    let (report, calls) = nights.run(&[row(1, "a@x.io").subscribed(false)]).await;

    assert_eq!(calls, ["GET /a@x.io", "POST /a@x.io/unsubscribe"]);
    assert_eq!(report.opted_out(), 1);
    assert!(nights.is_opted_out("a@x.io"));
}

#[tokio::test]
async fn a_spam_report_keeps_its_reason_although_its_contact_cannot_be_read() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    nights.server.report_spam("a@x.io");
    let body = r#"{"email":"a@x.io","unsubscribe_reason":"complaint","topics":{"news":"yes"}}"#;
    let malformed = Fault::status(200).body(body);
    nights.server.fault(malformed.path("/contacts/a%40x.io"));

    let (report, calls) = nights.run(&[row(1, "a@x.io").subscribed(false)]).await;

    assert_eq!(calls, ["GET /a@x.io"]);
    assert!(report.is_complete(), "{report}");
    assert_eq!(reason_of(&nights, "a@x.io"), "complaint");
}

#[tokio::test]
async fn the_first_night_of_a_table_keeps_the_reasons_that_the_service_has() {
    let nights = Nights::new().await;
    for name in ["a@x.io", "b@x.io"] {
        nights.contacts.create(name).await.unwrap();
    }
    nights.server.report_spam("a@x.io");
    let table = ["a@x.io", "b@x.io", "c@x.io"];
    let table = table.map(|name| SyncRow::new(name, contact(name)).subscribed(false));

    let (report, calls) = nights.run(&table).await;

    let expected = [
        "batch 3",
        "GET /a@x.io",
        "GET /b@x.io",
        "POST /b@x.io/unsubscribe",
        "POST /c@x.io/unsubscribe",
    ];
    assert_eq!(calls, expected);
    let changes = report.changes();
    assert_eq!((changes.updated(), changes.created()), (2, 1));
    assert_eq!(reason_of(&nights, "a@x.io"), "complaint");
}

/// The address is suppressed all the same (interface section 3.1).
#[tokio::test]
async fn a_spam_report_is_an_opt_out_even_if_the_flag_is_false() {
    let nights = Nights::new().await;
    let table = [row(1, "a@x.io"), row(2, "b@x.io").subscribed(false)];
    nights.run(&table).await;
    for address in ["a@x.io", "b@x.io"] {
        let reported = json!({"id": "con_1", "email": address, "unsubscribed": false, "created_at": 1,
            "unsubscribe_reason": "complaint", "topics": {"news": true, "offers": true}});
        let reported = Fault::wrong_body(reported.to_string()).method("GET");
        nights
            .server
            .fault(reported.path(format!("/contacts/{address}")));
    }

    let table = [row(1, "c@x.io"), row(2, "b@x.io").subscribed(true)];
    let (report, calls) = nights.run(&table).await;

    // It goes along to the new address, and no opt-out of ours replaces its reason.
    assert!(nights.is_opted_out("c@x.io"));
    let replaces = "POST /a@x.io/unsubscribe".to_owned();
    assert!(!calls.contains(&replaces), "{calls:?}");
    assert_eq!(report.opt_ins_not_sent(), 1);
    nights.server.clear_faults();
    let (report, _) = nights.run_with(&table, SyncContacts::checks_list).await;
    assert_eq!(report.opted_out_at_service(), ["1"]);
}

#[tokio::test]
async fn of_two_users_who_swap_addresses_an_opt_out_at_the_service_counts_for_both() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io"), row(2, "b@x.io")]).await;
    nights.contacts.unsubscribe("a@x.io").await.unwrap();

    nights.run(&[row(1, "b@x.io"), row(2, "a@x.io")]).await;

    assert!(nights.is_opted_out("a@x.io") && nights.is_opted_out("b@x.io"));
}

#[tokio::test]
async fn whoever_takes_an_address_that_was_opted_out_at_the_service_is_told() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    nights.contacts.unsubscribe("a@x.io").await.unwrap();
    let table = [row(1, "c@x.io"), row(2, "a@x.io")];

    let (report, _) = nights.run_with(&table, SyncContacts::checks_list).await;

    // The first row took its opt-out along.
    assert!(nights.is_opted_out("a@x.io") && nights.is_opted_out("c@x.io"));
    assert_eq!(report.opted_out_at_service(), ["1", "2"]);
    assert!(Arc::unwrap_or_clone(report).finished().is_ok());
}

#[tokio::test]
async fn an_opt_out_that_the_sync_sends_late_is_not_told_as_one_of_the_service() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    nights.server.fault(Fault::status(500).path("/contacts/*"));
    nights.run(&[row(1, "a@x.io").subscribed(false)]).await;
    nights.server.clear_faults();
    assert!(!nights.is_opted_out("a@x.io"));
    let table = [row(1, "a@x.io")];

    for opted_out in [1, 0] {
        let (report, _) = nights.run_with(&table, SyncContacts::checks_list).await;

        assert_eq!(report.opted_out(), opted_out);
        assert_eq!(report.opt_ins_not_sent(), 1);
        // Whoever writes these back into the table would undo the "yes".
        assert!(report.opted_out_at_service().is_empty());
        assert!(nights.is_opted_out("a@x.io"));
    }
    nights.contacts.subscribe("a@x.io").await.unwrap();
    let (report, _) = nights.run_with(&table, SyncContacts::checks_list).await;
    assert_eq!((report.opted_out(), report.opt_ins_not_sent()), (0, 0));
    assert!(!nights.is_opted_out("a@x.io"));
}

#[tokio::test]
async fn a_new_row_with_the_address_of_an_opted_out_one_that_is_deleted_is_told() {
    for (exists, is_reversed) in [(true, false), (true, true), (false, false), (false, true)] {
        let nights = Nights::new().await;
        if exists {
            nights.contacts.create("a@x.io").await.unwrap();
        }
        let deleted = row(1, "a@x.io").subscribed(false).deleted(true);
        let mut table = [deleted, row(2, "a@x.io")];
        if is_reversed {
            table.reverse();
        }

        let (report, _) = nights.run(&table).await;
        let (again, _) = nights.run(&table).await;

        assert!(nights.is_opted_out("a@x.io"));
        assert_eq!(report.opt_ins_not_sent(), 1);
        assert_eq!(again.opt_ins_not_sent(), 0);
    }
}

#[tokio::test]
async fn a_topic_that_is_off_by_default_is_no_opt_out_of_the_address_that_a_row_takes() {
    let nights = Nights::new().await;
    nights.server.topic("weekly", false);
    // No run before has recorded anything.
    let deleted = row(7, "a@x.io").deleted(true);
    let (report, _) = nights.run(&[row(1, "a@x.io"), deleted]).await;
    assert_eq!(report.changes().created(), 1);
    assert_eq!(report.opt_ins_not_sent(), 0);
    // The person has opted in again since the row before was opted out.
    nights.run(&[row(2, "b@x.io").subscribed(false)]).await;
    nights.contacts.subscribe("b@x.io").await.unwrap();

    let (report, _) = nights.run(&[row(3, "b@x.io")]).await;

    assert_eq!(report.opt_ins_not_sent(), 0);
}

#[tokio::test]
async fn an_opt_out_that_the_sync_sends_late_for_another_row_is_not_told_as_one_of_the_service() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io"), row(2, "a@x.io")]).await;
    nights.server.fault(Fault::status(500).path("/contacts/*"));
    let no = row(2, "a@x.io").subscribed(false);
    nights.run(&[row(1, "a@x.io"), no]).await;
    nights.server.clear_faults();
    assert!(!nights.is_opted_out("a@x.io"));

    let table = [row(1, "a@x.io")];
    let (report, _) = nights.run_with(&table, SyncContacts::checks_list).await;

    assert!(nights.is_opted_out("a@x.io"));
    assert!(report.opted_out_at_service().is_empty());
    assert_eq!(report.opt_ins_not_sent_keys(), ["1"]);
    // A later run knows only that the table without the other row has no opt-out.
    let (report, _) = nights.run_with(&table, SyncContacts::checks_list).await;
    assert_eq!(report.opted_out_at_service(), ["1"]);
    assert_eq!(report.opt_ins_not_sent(), 0);
}

#[tokio::test]
async fn an_unreadable_row_that_is_not_subscribed_opts_out_and_one_that_is_deleted_does_nothing() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io"), row(2, "b@x.io")]).await;
    let unreadable = |key: u64| SyncRow::new(key, ImportRow::unreadable("half a row"));
    let table = [unreadable(1).subscribed(false), unreadable(2).deleted(true)];

    let (report, _) = nights.run(&table).await;

    assert_eq!((report.opted_out(), report.changes().refused()), (1, 2));
    assert!(nights.is_opted_out("a@x.io") && !nights.is_opted_out("b@x.io"));
}

#[tokio::test]
async fn a_yes_is_told_although_the_opt_out_before_it_was_sent_for_an_unreadable_row() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    let fails = Fault::status(501).path("/contacts/*/unsubscribe");
    nights.server.fault(fails);
    nights.run(&[row(1, "a@x.io").subscribed(false)]).await;
    nights.server.clear_faults();
    let unreadable = SyncRow::new(1, ImportRow::unreadable("half a row"));
    nights.run(&[unreadable]).await;
    assert!(nights.is_opted_out("a@x.io"));

    let (report, _) = nights.run(&[row(1, "a@x.io")]).await;

    assert_eq!(report.opt_ins_not_sent_keys(), ["1"]);
}

/// Night 2: row 1 has another address, after a click on a link at its old one, and the opt-out of the new one fails.
async fn click_that_has_not_moved(second_night: SyncRow) -> Nights {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    let link = nights.contacts.unsubscribe("a@x.io");
    link.reason(OptOutReason::Preferences).await.unwrap();
    let fails = Fault::status(501).path("/contacts/b@x.io/unsubscribe");
    nights.server.fault(fails);
    nights.run(&[second_night]).await;
    nights.server.clear_faults();
    assert!(!nights.is_opted_out("b@x.io"));
    nights
}

#[tokio::test]
async fn a_row_that_was_deleted_after_a_click_and_is_back_is_told_as_an_opt_in_that_is_not_sent() {
    for others in [vec![], vec![row(2, "b@x.io")]] {
        let nights = click_that_has_not_moved(row(1, "b@x.io")).await;
        let with_others = |first: SyncRow| [vec![first], others.clone()].concat();
        let deleted = row(1, "b@x.io").deleted(true);
        nights.run(&with_others(deleted)).await;
        assert!(nights.is_opted_out("b@x.io"));

        let (report, _) = nights.run(&with_others(row(1, "b@x.io"))).await;

        let told = report.opt_ins_not_sent_keys();
        assert!(told.contains(&"1".to_owned()), "{report}");
    }
}

#[tokio::test]
async fn a_click_and_a_no_of_the_table_that_the_sync_sends_late_are_not_told_as_one_of_the_service()
{
    let no = row(1, "b@x.io").subscribed(false);
    let nights = click_that_has_not_moved(no).await;

    let table = [row(1, "b@x.io")];
    let (report, _) = nights.run_with(&table, SyncContacts::checks_list).await;

    assert!(nights.is_opted_out("b@x.io"));
    assert_eq!(report.opt_ins_not_sent(), 1);
    assert!(report.opted_out_at_service().is_empty(), "{report}");
}

#[tokio::test]
async fn an_opt_out_of_a_topic_at_the_service_that_moves_with_one_of_the_table_is_no_opt_in() {
    let nights = Nights::new().await;
    let no_news = |address: &str| {
        let contact = ImportRow::new(contact(address));
        SyncRow::new(1, contact.opt_out(topic("news")))
    };
    nights.run(&[no_news("a@x.io")]).await;
    let no_offers = nights.contacts.set_topic("a@x.io", "offers", false);
    no_offers.await.unwrap();

    let (report, _) = nights.run(&[no_news("b@x.io")]).await;

    assert_eq!(report.opt_ins_not_sent(), 0, "{report}");
    let b = nights.contacts.retrieve("b@x.io").await.unwrap();
    assert!(!b.topics["news"] && !b.topics["offers"]);
}

#[tokio::test]
async fn the_topic_of_a_row_without_a_key_stays_at_the_old_address_that_is_left_a_night_later() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    // The opt-out of the topic is sent, and the one that leaves the address fails.
    let fails = Fault::status(501).path("/contacts/a@x.io/unsubscribe");
    nights.server.fault(fails.after(1));
    let no_news = ImportRow::new(contact("a@x.io")).opt_out(topic("news"));
    let moved = row(1, "b@x.io");
    nights
        .run(&[moved.clone(), SyncRow::new("", no_news)])
        .await;
    nights.server.clear_faults();
    let a = nights.contacts.retrieve("a@x.io").await.unwrap();
    assert!(!a.topics["news"] && !a.unsubscribed);

    nights.run(&[moved]).await;

    assert!(nights.is_opted_out("a@x.io"));
    let b = nights.contacts.retrieve("b@x.io").await.unwrap();
    assert!(b.topics["news"] && !b.unsubscribed);
}

#[tokio::test]
async fn a_new_row_at_an_address_that_one_row_lost_and_another_opted_out_is_told_once() {
    let nights = Nights::new().await;
    let opted_out = row(1, "a@x.io").subscribed(false);
    nights.run(&[opted_out.clone(), row(2, "a@x.io")]).await;
    let deleted = row(2, "a@x.io").deleted(true);

    let (report, _) = nights.run(&[opted_out, deleted, row(3, "a@x.io")]).await;

    assert_eq!(report.opt_ins_not_sent(), 1);
    assert!(nights.is_opted_out("a@x.io"));
}

#[tokio::test]
async fn a_table_that_marks_most_rows_as_deleted_sends_nothing_unless_the_limit_is_raised() {
    let nights = Nights::new().await;
    let table = |deleted: bool| -> Vec<SyncRow> {
        let rows = (0..30).map(|key| row(key, &format!("{key}@x.io")).deleted(deleted && key > 5));
        rows.collect()
    };
    nights.run(&table(false)).await;
    nights.server.clear_requests();

    let error = nights.sync(&table(true)).await.unwrap_err();

    assert!(
        error.to_string().contains("24 contacts would be opted out"),
        "{error}"
    );
    assert!(nights.server.requests().is_empty());
    let (report, _) = nights
        .run_with(&table(true), |sync| sync.leave_at_most(24))
        .await;
    assert_eq!(report.opted_out(), 24);
    // They are no longer counted.
    nights.run(&table(true)).await;
}

#[tokio::test]
async fn rows_that_are_opted_out_already_can_be_deleted_without_a_limit() {
    let nights = Nights::new().await;
    let table = |subscribed: bool, deleted: bool| -> Vec<SyncRow> {
        let rows = (0..30).map(|key| row(key, &format!("{key}@x.io")));
        let rows = rows.map(|row| row.subscribed(subscribed).deleted(deleted));
        rows.chain([row(30, "stays@x.io")]).collect()
    };
    nights.run(&table(true, false)).await;
    nights.run(&table(false, false)).await;

    let limited = |sync: SyncContacts| sync.leave_at_most(0);
    let (report, calls) = nights.run_with(&table(false, true), limited).await;

    assert!(report.is_complete(), "{report}");
    assert!(calls.is_empty(), "{calls:?}");
}

#[tokio::test]
async fn a_row_that_was_deleted_and_is_back_with_a_refused_address_opts_out_nobody_again() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    nights.run(&[row(1, "a@x.io").deleted(true)]).await;
    assert!(nights.is_opted_out("a@x.io"));
    // The person has come back.
    nights.contacts.subscribe("a@x.io").await.unwrap();

    let (report, _) = nights.run(&[row(1, "no address")]).await;

    assert_eq!(report.changes().refused(), 1);
    assert!(!nights.is_opted_out("a@x.io"));
}

#[tokio::test]
async fn a_row_that_counts_as_deleted_until_its_user_consents_creates_nobody_before() {
    let nights = Nights::new().await;
    nights.contacts.create("b@x.io").await.unwrap();
    let ada = |has_consented: bool| row(1, "a@x.io").deleted(!has_consented);
    let bob = row(2, "b@x.io").deleted(true);

    nights.run(&[ada(false), bob.clone()]).await;
    assert!(nights.server.contact("a@x.io").is_none());
    assert!(nights.is_opted_out("b@x.io"));
    let (_, calls) = nights.run(&[ada(false), bob.clone()]).await;
    assert_eq!(calls, [""; 0]);
    let (report, _) = nights.run(&[ada(true), bob]).await;

    assert_eq!(
        (report.changes().created(), report.opt_ins_not_sent()),
        (1, 0)
    );
    assert!(!nights.is_opted_out("a@x.io"));
    assert!(nights.is_opted_out("b@x.io"));
}
