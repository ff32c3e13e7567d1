//! A sync that compares topics: it sends the opt-outs of the table again, and tells those of the service.

use std::sync::Arc;

use audience::ErrorKind;
use audience::import::{ImportRow, OptOut, SyncContacts, SyncRow};
use audience::mock::Fault;
use support::in_time;

use super::{Nights, contact, row};

/// A row that is opted out of a topic.
fn row_without(topic: &str, key: u64, address: &str) -> SyncRow {
    let contact = ImportRow::new(contact(address));
    SyncRow::new(key, contact.opt_out(OptOut::Topic(topic.to_owned())))
}

fn no_news(key: u64, address: &str) -> SyncRow {
    row_without("news", key, address)
}

fn checks_news(sync: SyncContacts) -> SyncContacts {
    sync.checks_topics(["news"])
}

async fn answer(nights: &Nights, topic: &str, answer: bool, addresses: &[&str]) {
    for address in addresses {
        let call = nights.contacts.set_topic(*address, topic, answer);
        call.await.unwrap();
    }
}

/// Returns the requests that change something, sorted.
fn posts(calls: &[String]) -> Vec<&str> {
    let calls = calls.iter().map(String::as_str);
    let mut posts: Vec<_> = calls.filter(|call| !call.starts_with("GET")).collect();
    posts.sort_unstable();
    posts
}

#[tokio::test]
async fn an_opt_out_of_the_table_is_sent_again_if_the_contact_shows_a_yes_to_the_topic() {
    let table = [
        no_news(1, "a@x.io"),
        no_news(2, "b@x.io").subscribed(false),
        row_without("offers", 3, "c@x.io"),
        row(4, "d@x.io"),
        row(5, "e@x.io"),
        row(6, "e@x.io").subscribed(false),
        no_news(7, "f@x.io").subscribed(false),
    ];
    let nights = Nights::new().await;
    nights.run(&table).await;
    answer(&nights, "news", true, &["a@x.io", "b@x.io", "f@x.io"]).await;
    answer(&nights, "offers", true, &["c@x.io"]).await;
    answer(&nights, "news", false, &["e@x.io"]).await;
    for address in ["b@x.io", "e@x.io"] {
        nights.contacts.subscribe(address).await.unwrap();
    }

    let (report, calls) = nights.run_with(&table, checks_news).await;

    assert_eq!((report.unchanged(), report.opted_out()), (7, 4));
    assert!(report.is_complete(), "{report}");
    assert!(report.opted_out_of("news").is_empty(), "{report}");
    assert!(!report.to_string().contains("opted out of"), "{report}");
    let sent = [
        "POST /a@x.io/unsubscribe news",
        "POST /b@x.io/unsubscribe",
        "POST /b@x.io/unsubscribe news",
        "POST /e@x.io/unsubscribe",
        // Also if it is opted out of everything.
        "POST /f@x.io/unsubscribe news",
    ];
    assert_eq!(posts(&calls), sent);
    let retrieved = calls.iter().filter(|call| call.starts_with("GET /"));
    assert_eq!(retrieved.count(), 6, "each contact once: {calls:?}");
    let (report, calls) = nights.run_with(&table, checks_news).await;
    assert_eq!((report.opted_out(), posts(&calls).len()), (0, 0));
    assert!(nights.run(&table).await.1.is_empty());
}

#[tokio::test]
async fn an_opt_out_is_sent_again_if_the_contact_shows_null_for_the_topic_and_not_if_it_lacks_the_topic()
 {
    let table = [no_news(1, "a@x.io"), row(2, "b@x.io"), no_news(3, "c@x.io")];
    let nights = Nights::new().await;
    nights.run(&table).await;
    for (address, topic) in [("a@x.io", "news"), ("b@x.io", "news"), ("c@x.io", "offers")] {
        let shown = format!(
            r#"{{"id": "con_1", "email": "{address}", "unsubscribed": false, "created_at": 1, "topics": {{"{topic}": null}}}}"#
        );
        let shown = Fault::wrong_body(shown).method("GET");
        nights
            .server
            .fault(shown.path(format!("/contacts/{address}")));
    }

    let (report, calls) = nights.run_with(&table, checks_news).await;

    assert_eq!(posts(&calls), ["POST /a@x.io/unsubscribe news"]);
    assert!(report.opted_out_of("news").is_empty(), "{report}");
}

#[tokio::test]
async fn who_has_opted_out_of_a_topic_at_the_service_is_told_under_the_topic_and_nothing_is_sent() {
    let table = [
        row(9, "a@x.io"),
        row(2, "b@x.io"),
        no_news(3, "c@x.io"),
        // An opt-out of either row counts.
        row(4, "d@x.io"),
        no_news(5, "d@x.io"),
        row(6, "e@x.io").subscribed(false),
        row(7, "f@x.io").deleted(true),
        row(8, "g@x.io"),
        row(10, "h@x.io"),
    ];
    let nights = Nights::new().await;
    nights.contacts.create("f@x.io").await.unwrap();
    nights.run(&table).await;
    let all_but_h = [
        "a@x.io", "b@x.io", "c@x.io", "d@x.io", "e@x.io", "f@x.io", "g@x.io",
    ];
    answer(&nights, "news", false, &all_but_h).await;
    answer(&nights, "offers", false, &["b@x.io"]).await;
    nights.contacts.unsubscribe("g@x.io").await.unwrap();
    let rejects = nights.state.0.with_extension("topics.csv");

    for is_dry in [true, false, false] {
        let (report, calls) = nights
            .run_with(&table, |sync| {
                let sync = checks_news(sync).checks_topics(["offers"]);
                let sync = sync.rejects_file(&rejects);
                if is_dry { sync.dry_run() } else { sync }
            })
            .await;

        assert_eq!(report.opted_out_of("news"), ["9", "2"]);
        assert_eq!(report.opted_out_of("offers"), ["2"]);
        assert_eq!(report.opted_out_at_service(), ["8"]);
        assert_eq!((report.opted_out(), report.unchanged()), (0, 9));
        assert!(posts(&calls).is_empty(), "{calls:?}");
        let part = "; 2 opted out of \"news\" at the service, but not in the table";
        assert!(report.to_string().contains(part), "{report}");
        let told = std::fs::read_to_string(&rejects).unwrap();
        let of_topics = told.lines().filter_map(|line| {
            let rest = line.strip_prefix(",opted_out_of_topic,")?;
            let topic = ["news", "offers"]
                .into_iter()
                .find(|topic| rest.contains(&format!("topic \"\"{topic}\"\"")))?;
            Some((topic, rest.rsplit(',').next()?))
        });
        let of_topics: Vec<_> = of_topics.collect();
        let expected = [("news", "9"), ("news", "2"), ("offers", "2")];
        assert_eq!(of_topics, expected, "{told}");
        assert!(Arc::unwrap_or_clone(report).finished().is_ok());
    }
    std::fs::remove_file(rejects).unwrap();
}

#[tokio::test]
async fn a_key_that_occurs_twice_is_told_once() {
    let nights = Nights::new().await;
    nights.run(&[row(9, "a@x.io")]).await;
    answer(&nights, "news", false, &["a@x.io"]).await;
    let twice = [row(9, "a@x.io"), row(9, "a@x.io")];

    let (report, _) = nights.run_with(&twice, checks_news).await;

    assert_eq!(report.opted_out_of("news"), ["9"]);
}

#[tokio::test]
async fn everybody_who_never_answered_is_told_for_a_topic_whose_default_is_false() {
    let nights = Nights::new().await;
    nights.server.topic("beta", false);
    let table = [row(1, "a@x.io"), row(2, "b@x.io")];
    nights.run(&table).await;
    answer(&nights, "beta", true, &["b@x.io"]).await;

    let checks_beta = |sync: SyncContacts| sync.checks_topics(["beta"]);
    let (report, _) = nights.run_with(&table, checks_beta).await;

    assert_eq!(report.opted_out_of("beta"), ["1"]);
    assert!(report.opted_out_of("news").is_empty(), "it was not checked");
}

#[tokio::test]
async fn a_contact_that_vanishes_or_is_malformed_does_not_hold_back_the_others() {
    let table = [
        row(1, "a@x.io"),
        row(2, "b@x.io"),
        row(3, "c@x.io"),
        row(4, "d@x.io"),
    ];
    let nights = Nights::new().await;
    nights.run(&table).await;
    let all = ["a@x.io", "b@x.io", "c@x.io", "d@x.io"];
    answer(&nights, "news", false, &all).await;
    let gone = r#"{"code": "not_found", "message": "no such contact"}"#;
    let gone = Fault::status(404).body(gone).path("/contacts/b@x.io");
    nights.server.fault(gone);

    let (report, _) = nights.run_with(&table, checks_news).await;
    assert_eq!(report.opted_out_of("news"), ["1", "3", "4"]);

    let no_topics =
        r#"{"id": "con_9", "email": "c@x.io", "unsubscribed": false, "created_at": 1700000000}"#;
    for body in [no_topics, &no_topics.replace("false", "\"?\"")] {
        nights.server.clear_faults();
        let malformed = Fault::wrong_body(body).path("/contacts/c@x.io");
        nights.server.fault(malformed);

        let sync = checks_news(nights.sync(&table));
        let ended = in_time(sync.into_future()).await.unwrap_err();

        assert!(ended.error().is_malformed_contact(), "{ended}");
        assert_eq!(ended.report().opted_out_of("news"), ["1", "2", "4"]);
        assert!(ended.report().is_complete(), "{ended}");
    }
}

#[tokio::test]
async fn a_topic_that_no_contact_shows_is_an_error_after_everything_else_was_compared() {
    let nights = Nights::new().await;
    let misspelled = |sync: SyncContacts| sync.checks_topics(["nwes", "news"]);
    // Without a contact, nobody knows which topics there are.
    nights.run_with(&[], misspelled).await;
    let table = [row(1, "a@x.io"), row(2, "b@x.io").subscribed(false)];
    nights.run(&table).await;
    answer(&nights, "news", false, &["a@x.io"]).await;
    nights.contacts.subscribe("b@x.io").await.unwrap();

    let sync = misspelled(nights.sync(&table));
    let ended = in_time(sync.into_future()).await.unwrap_err();

    assert_eq!(ended.error().kind(), ErrorKind::Input);
    assert!(ended.error().to_string().contains("\"nwes\""), "{ended}");
    assert_eq!(ended.report().opted_out_of("news"), ["1"]);
    assert!(ended.report().opted_out_of("nwes").is_empty());
    assert!(nights.is_opted_out("b@x.io"));
}

#[tokio::test]
async fn a_yes_to_a_topic_after_an_opt_out_in_the_table_is_told_as_such_in_the_first_run() {
    let nights = Nights::new().await;
    nights.run(&[no_news(1, "a@x.io")]).await;
    answer(&nights, "offers", false, &["a@x.io"]).await;
    let table = [row(1, "a@x.io")];

    for (opt_ins, of_news) in [(1, vec![]), (0, vec!["1"])] {
        let checks_both = |sync| checks_news(sync).checks_topics(["offers"]);
        let (report, _) = nights.run_with(&table, checks_both).await;

        assert_eq!(report.opt_ins_not_sent(), opt_ins);
        assert_eq!(report.opted_out_of("news"), of_news);
        // Its "yes" to one topic does not hide an opt-out from the other.
        assert_eq!(report.opted_out_of("offers"), ["1"]);
    }
}

#[tokio::test]
async fn a_topic_opt_out_that_the_sync_sends_late_is_not_told_as_one_of_the_service() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    let fails = Fault::status(501).path("/contacts/*/unsubscribe");
    nights.server.fault(fails);
    nights.run(&[no_news(1, "a@x.io")]).await;
    nights.server.clear_faults();
    let table = [row(1, "a@x.io")];

    for sent in [&["POST /a@x.io/unsubscribe news"][..], &[]] {
        let (report, calls) = nights.run_with(&table, checks_news).await;

        assert_eq!(posts(&calls), sent);
        // Whoever writes it back into the table would undo the "yes".
        assert!(report.opted_out_of("news").is_empty(), "{report}");
    }
}

#[tokio::test]
async fn a_topic_opt_out_of_a_deleted_row_is_not_told_as_one_of_the_service() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    let table = [row(1, "a@x.io"), no_news(2, "a@x.io").deleted(true)];

    for sent in [&["POST /a@x.io/unsubscribe news"][..], &[]] {
        let (report, calls) = nights.run_with(&table, checks_news).await;

        assert_eq!(posts(&calls), sent);
        assert!(report.opted_out_of("news").is_empty(), "{report}");
    }
}

#[tokio::test]
async fn an_opt_out_of_tonight_and_one_that_is_missing_count_once_each_and_are_sent_once() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io"), no_news(2, "b@x.io")]).await;
    answer(&nights, "news", true, &["b@x.io"]).await;
    let table = [no_news(1, "a@x.io"), no_news(2, "b@x.io")];

    let dry = |sync| checks_news(sync).dry_run();
    let (report, calls) = nights.run_with(&table, dry).await;
    assert_eq!(report.opted_out(), 2);
    assert!(posts(&calls).is_empty(), "{calls:?}");

    let fails = Fault::status(501).path("/contacts/*/unsubscribe");
    nights.server.fault(fails);
    let rejects = nights.state.0.with_extension("once.csv");
    let checks = |sync| checks_news(sync).rejects_file(&rejects);
    let (report, calls) = nights.run_with(&table, checks).await;

    let told = std::fs::read_to_string(&rejects).unwrap();
    std::fs::remove_file(rejects).unwrap();
    let sent = [
        "POST /a@x.io/unsubscribe news",
        "POST /b@x.io/unsubscribe news",
    ];
    assert_eq!(posts(&calls), sent);
    assert_eq!(report.changes().opt_out_failed(), 2);
    assert!(told.trim_end().ends_with(",2"), "the key: {told}");
    assert!(Arc::unwrap_or_clone(report).finished().is_err());
}
