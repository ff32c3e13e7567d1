//! A contact that was deleted at the service, and that a row creates again.

use std::time::Duration;

use audience::import::{ImportRow, OptOut, SyncRow};
use audience::mock::Fault;
use support::cancellation::until;
use support::fast_retries;

use super::{Nights, contact, row};

/// A row that is opted out of everything and of a topic.
fn opted_out(key: u64) -> SyncRow {
    let no_news = ImportRow::new(contact("a@x.io")).opt_out(OptOut::Topic("news".to_owned()));
    SyncRow::new(key, no_news).subscribed(false)
}

fn changed(key: u64) -> SyncRow {
    SyncRow::new(key, contact("a@x.io").property("plan", "free"))
}

/// Ends a night after which the contact of `a@x.io` was deleted at the service.
async fn deleted(table: &[SyncRow]) -> Nights {
    let nights = Nights::new().await;
    nights.run(table).await;
    nights.contacts.delete("a@x.io").await.unwrap();
    nights
}

/// The row of [`opted_out`] with another property.
fn opted_out_and_changed(key: u64) -> SyncRow {
    let no_news = ImportRow::new(contact("a@x.io").property("plan", "free"));
    let no_news = no_news.opt_out(OptOut::Topic("news".to_owned()));
    SyncRow::new(key, no_news).subscribed(false)
}

/// Returns the tables of a second night in which a row creates the contact again, with the table of the first.
fn nights() -> [[Vec<SyncRow>; 2]; 6] {
    [
        // The row is opted out itself.
        [vec![opted_out(1)], vec![opted_out_and_changed(1)]],
        // The row has changed.
        [
            vec![opted_out(1), row(2, "a@x.io")],
            vec![opted_out(1), changed(2)],
        ],
        // The other row is deleted.
        [
            vec![opted_out(1), row(2, "a@x.io")],
            vec![opted_out(1).deleted(true), changed(2)],
        ],
        // Only the row that has changed is passed.
        [vec![opted_out(1), row(2, "a@x.io")], vec![changed(2)]],
        // The row is new.
        [vec![opted_out(1)], vec![opted_out(1), row(2, "a@x.io")]],
        // The row had another address.
        [
            vec![opted_out(1), row(2, "b@x.io")],
            vec![opted_out(1), row(2, "a@x.io")],
        ],
    ]
}

#[tokio::test]
async fn it_gets_the_opt_outs_of_all_rows_that_have_the_address() {
    for [before, after] in nights() {
        let nights = deleted(&before).await;

        let (report, calls) = nights.run(&after).await;

        assert!(nights.is_opted_out("a@x.io"), "{calls:?}");
        let stored = nights.server.contact("a@x.io").unwrap();
        assert!(!stored.answers["news"] && !stored.answers.contains_key("offers"));
        assert_eq!(report.changes().created(), 1);
        let (report, calls) = nights.run(&after).await;
        assert!(calls.is_empty() && report.unchanged() > 0, "{calls:?}");
    }
}

#[tokio::test]
async fn it_gets_them_although_the_response_that_says_that_it_is_new_was_lost() {
    for [before, after] in nights() {
        let nights = deleted(&before).await;
        let lost = Fault::close_after().path("/contacts/batch").times(1);
        nights.server.fault(lost);

        let (_, calls) = nights.run(&after).await;

        assert!(nights.is_opted_out("a@x.io"), "{calls:?}");
    }
}

#[tokio::test]
async fn no_opt_out_is_sent_if_the_contact_was_still_there() {
    for [before, after] in nights() {
        let nights = Nights::new().await;
        nights.run(&before).await;
        nights.contacts.subscribe("a@x.io").await.unwrap();

        nights.run(&after).await;

        assert!(!nights.is_opted_out("a@x.io"));
    }
}

#[tokio::test]
async fn it_gets_them_from_the_next_run_if_the_first_one_fails_to_send_them() {
    for [before, after] in nights() {
        let nights = deleted(&before).await;
        nights
            .server
            .fault(Fault::status(501).path("/contacts/a%40x.io/unsubscribe"));
        let (report, _) = nights.run(&after).await;
        assert_eq!(report.changes().opt_out_failed(), 1);
        nights.server.clear_faults();

        nights.run(&after).await;

        assert!(nights.is_opted_out("a@x.io"));
        assert!(!nights.server.contact("a@x.io").unwrap().answers["news"]);
    }
}

#[tokio::test]
async fn it_gets_them_from_the_next_run_if_the_first_one_is_killed_before_it_sends_them() {
    for [before, after] in nights() {
        let nights = deleted(&before).await;
        // They may be on their way before the run is killed, and change nothing.
        let forever = Fault::close_before().delayed_by(Duration::from_secs(3_600));
        nights
            .server
            .fault(forever.path("/contacts/a%40x.io/unsubscribe"));
        let sync = nights.sync(&after).retry(fast_retries());
        let run = tokio::spawn(sync.into_future());
        until(|| nights.server.contact("a@x.io").is_some()).await;
        run.abort();
        let _ = run.await;
        nights.server.clear_faults();
        nights.wait_for_dropped_run().await;
        assert!(!nights.is_opted_out("a@x.io"));

        nights.run(&after).await;

        assert!(nights.is_opted_out("a@x.io"));
        assert!(!nights.server.contact("a@x.io").unwrap().answers["news"]);
    }
}
