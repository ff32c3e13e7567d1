//! A sync that checks the list: it opts out who is subscribed although the row is not, and opts nobody in.

use audience::RetryPolicy;
use audience::contacts::OptOutReason;
use audience::import::{Column, CsvInput, ImportRow, OptOut, SyncContacts, SyncRow};
use audience::mock::Fault;
use support::in_time;

use super::{Nights, contact, row};

/// A night after which somebody has subscribed contacts by hand.
async fn subscribed_by_hand(rows: &[SyncRow], addresses: &[&str]) -> Nights {
    let nights = Nights::new().await;
    nights.run(rows).await;
    for address in addresses {
        nights.contacts.subscribe(*address).await.unwrap();
    }
    nights
}

fn table() -> [SyncRow; 4] {
    [
        row(1, "a@x.io"),
        row(2, "b@x.io").subscribed(false),
        row(3, "c@x.io").subscribed(false),
        row(4, "d@x.io"),
    ]
}

#[tokio::test]
async fn who_is_subscribed_although_the_row_is_not_is_opted_out() {
    let nights = subscribed_by_hand(&table(), &["b@x.io"]).await;
    // Nobody is opted in, and who is in no row stays.
    nights.contacts.unsubscribe("d@x.io").await.unwrap();
    nights.contacts.create("other@x.io").await.unwrap();
    assert!(nights.run(&table()).await.1.is_empty());

    let (report, calls) = nights.run_with(&table(), SyncContacts::checks_list).await;

    assert_eq!((report.unchanged(), report.opted_out()), (4, 1));
    assert_eq!(report.opted_out_at_service(), ["4"]);
    assert!(report.is_complete(), "{report}");
    let opt_outs: Vec<_> = calls
        .iter()
        .filter(|call| call.starts_with("POST"))
        .collect();
    assert_eq!(opt_outs, ["POST /b@x.io/unsubscribe"]);
    let lists = nights.server.requests().into_iter();
    let lists = lists.filter(|request| request.method == "GET");
    assert!(lists.clone().all(|list| {
        list.query
            .as_deref()
            .is_some_and(|query| query.contains("limit=200"))
    }));
    assert_eq!(lists.count(), 2, "a page and the empty one after it");
    assert!(nights.is_opted_out("b@x.io") && nights.is_opted_out("d@x.io"));
    assert!(!nights.is_opted_out("a@x.io") && !nights.is_opted_out("other@x.io"));
    let (report, _) = nights.run_with(&table(), SyncContacts::checks_list).await;
    assert_eq!(report.opted_out(), 0);
}

#[tokio::test]
async fn who_has_opted_out_at_the_service_is_told_with_the_cells_of_the_row_and_stays_opted_out() {
    let text = "id,mail,newsletter\n1,Ada@x.io,1\n2,b@x.io,1\n3,c@x.io,1\n4,c@x.io,0\n5,e@x.io,0\n6,f@x.io,1\n";
    let table = |text: String| -> Vec<SyncRow> {
        let input = CsvInput::new(std::io::Cursor::new(text)).unwrap();
        let input = input.map("id", Column::Key).unwrap();
        let input = input.map("mail", Column::Email).unwrap();
        let input = input.map("newsletter", Column::Subscribed).unwrap();
        let rows = input.rows().unwrap();
        rows.map(|row| SyncRow::new(row.key_text().unwrap().to_owned(), row))
            .collect()
    };
    let first = table(text.to_owned());
    let nights = Nights::new().await;
    nights.run(&first).await;
    nights.contacts.unsubscribe("ada@x.io").await.unwrap();
    nights.server.report_spam("f@x.io");
    let rejects = nights.state.0.with_extension("told.csv");
    // This row is told as an opt-in that is not sent.
    let second = table(text.replace("5,e@x.io,0", "5,e@x.io,1"));

    for is_dry in [true, false, false] {
        let (report, calls) = nights
            .run_with(&second, |sync| {
                let sync = sync.checks_list().rejects_file(&rejects);
                if is_dry { sync.dry_run() } else { sync }
            })
            .await;

        let told = std::fs::read_to_string(&rejects).unwrap();
        assert!(
            told.contains("1,Ada@x.io,1") && told.contains("6,f@x.io,1"),
            "{told}"
        );
        let is_told = |line: &&str| line.contains("opted_out_at_service");
        let count = told.lines().filter(is_told).count();
        assert_eq!(report.opted_out_at_service().len(), count);
        assert!(
            calls.iter().all(|call| !call.starts_with("POST")),
            "{calls:?}"
        );
        assert!(nights.is_opted_out("ada@x.io") && report.is_complete());
        // It is told as an opt-in by each run.
        assert_eq!(report.opted_out_at_service(), ["1", "6"]);
        assert_eq!(count as u64 + report.opt_ins_not_sent(), 3, "{told}");
    }
    std::fs::remove_file(rejects).unwrap();
}

#[tokio::test]
async fn a_deleted_row_counts_unless_another_row_has_its_address() {
    let rows = [
        row(1, "a@x.io").deleted(true),
        row(2, "b@x.io").deleted(true),
        row(3, "b@x.io"),
    ];
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io"), row(2, "b@x.io")]).await;
    nights.run(&rows).await;
    for address in ["a@x.io", "b@x.io"] {
        nights.contacts.subscribe(address).await.unwrap();
    }
    // Its address was removed from the table.
    let mut rows = rows.to_vec();
    rows[0] = row(1, "deleted@x.io").deleted(true);

    let (report, _) = nights.run_with(&rows, SyncContacts::checks_list).await;

    assert_eq!(report.opted_out(), 1);
    assert!(nights.is_opted_out("a@x.io") && !nights.is_opted_out("b@x.io"));
}

#[tokio::test]
async fn a_topic_of_the_table_is_not_compared() {
    let no_news = ImportRow::new(contact("a@x.io")).opt_out(OptOut::Topic("news".to_owned()));
    let table = [SyncRow::new(1, no_news)];
    let nights = subscribed_by_hand(&table, &[]).await;
    let opt_in = nights.contacts.set_topic("a@x.io", "news", true);
    opt_in.await.unwrap();

    let (report, _) = nights.run_with(&table, SyncContacts::checks_list).await;

    assert_eq!(report.opted_out(), 0);
    assert!(!nights.is_opted_out("a@x.io"));
}

#[tokio::test]
async fn a_contact_whose_row_gets_a_topic_opt_out_the_same_night_is_opted_out_of_everything() {
    let nights = subscribed_by_hand(&table(), &["b@x.io"]).await;
    let mut table = table();
    let no_news = ImportRow::new(contact("b@x.io")).opt_out(OptOut::Topic("news".to_owned()));
    table[1] = SyncRow::new(2, no_news).subscribed(false);

    nights.run_with(&table, SyncContacts::checks_list).await;

    assert!(nights.is_opted_out("b@x.io"));
}

#[tokio::test]
async fn a_dry_run_counts_each_contact_once_and_changes_none() {
    let nights = subscribed_by_hand(&table(), &["b@x.io"]).await;
    let mut table = table();
    table[0] = row(1, "a@x.io").subscribed(false);

    let dry = |sync: SyncContacts| sync.checks_list().dry_run();
    let (report, calls) = nights.run_with(&table, dry).await;

    assert_eq!(
        report.opted_out(),
        2,
        "a row of tonight, and one of the list"
    );
    assert!(calls.iter().all(|call| call == "GET"), "{calls:?}");
    assert!(!nights.is_opted_out("a@x.io") && !nights.is_opted_out("b@x.io"));
}

#[tokio::test]
async fn a_list_that_cannot_be_read_fails_the_run_and_the_next_one_reads_it() {
    let nights = subscribed_by_hand(&table(), &["b@x.io"]).await;
    nights
        .server
        .fault(Fault::status(501).path("/contacts").method("GET"));

    let sync = nights.sync(&table()).retry(RetryPolicy::none());
    let stopped = in_time(sync.checks_list().into_future()).await.unwrap_err();

    assert_eq!(stopped.error().status().unwrap(), 501);
    assert!(!stopped.report().is_complete() && !nights.is_opted_out("b@x.io"));
    nights.server.clear_faults();
    nights.run_with(&table(), SyncContacts::checks_list).await;
    assert!(nights.is_opted_out("b@x.io"));
}

#[tokio::test]
async fn an_empty_list_is_not_believed_if_earlier_runs_have_sent_five_contacts() {
    for count in [4, 5] {
        let rows: Vec<_> = (0..count)
            .map(|key| row(key, &format!("{key}@x.io")))
            .chain([row(9, "off@x.io").subscribed(false)])
            .collect();
        let nights = subscribed_by_hand(&rows, &["off@x.io"]).await;
        let empty = Fault::status(200).body(r#"{"data": [], "next": null}"#);
        nights.server.fault(empty.path("/contacts").method("GET"));

        for is_dry_run in [false, true] {
            let sync = nights.sync(&rows).checks_list();
            let sync = if is_dry_run { sync.dry_run() } else { sync };
            let ended = in_time(sync.into_future()).await;

            assert_eq!(ended.is_ok(), count < 5, "{ended:?}");
            if let Err(stopped) = ended {
                assert!(
                    stopped
                        .error()
                        .to_string()
                        .contains("list of the service is empty")
                );
                assert!(stopped.report().clone().finished().is_err());
            }
        }
        nights.server.clear_faults();
        nights.run_with(&rows, SyncContacts::checks_list).await;
        assert!(nights.is_opted_out("off@x.io"));
    }
}

#[tokio::test]
async fn a_stopped_run_does_not_wait_for_the_list_and_is_not_complete() {
    let nights = subscribed_by_hand(&table(), &["b@x.io"]).await;
    let forever = Fault::delay(std::time::Duration::from_secs(3_600));
    nights.server.fault(forever.path("/contacts").method("GET"));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();

    let sync = nights.sync(&table()).checks_list();
    let run = tokio::spawn(
        sync.stop_when(async move { drop(stopped.await) })
            .into_future(),
    );
    while nights
        .server
        .requests()
        .iter()
        .all(|request| request.method != "GET")
    {
        tokio::task::yield_now().await;
    }
    stop.send(()).unwrap();
    let report = in_time(run).await.unwrap().unwrap();

    assert_eq!(report.changes().not_sent(), 1);
    assert!(!report.is_complete() && !nights.is_opted_out("b@x.io"));
}

#[tokio::test]
async fn an_opt_out_of_the_list_that_fails_is_a_reject_with_the_key() {
    let nights = subscribed_by_hand(&table(), &["b@x.io"]).await;
    let rejects = nights.state.0.with_extension("list.csv");
    nights
        .server
        .fault(Fault::status(501).path("/contacts/*/unsubscribe"));

    let checks = |sync: SyncContacts| sync.checks_list().rejects_file(&rejects);
    let (report, _) = nights.run_with(&table(), checks).await;

    assert_eq!(report.changes().opt_out_failed(), 1);
    let text = std::fs::read_to_string(&rejects).unwrap();
    std::fs::remove_file(rejects).unwrap();
    assert!(
        text.contains("b@x.io") && text.trim_end().ends_with(",2"),
        "{text}"
    );
}

#[tokio::test]
async fn a_yes_after_an_opt_out_is_told_as_such_until_the_contact_is_seen_subscribed() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io"), row(2, "b@x.io")]).await;
    let no = [
        row(1, "a@x.io").subscribed(false),
        row(2, "b@x.io").deleted(true),
    ];
    nights.run(&no).await;
    // The third row takes the address of the deleted one.
    let mut yes = [row(1, "a@x.io"), row(3, "b@x.io")];
    let night = async |table: &[SyncRow]| {
        let (report, calls) = nights.run_with(table, SyncContacts::checks_list).await;
        assert!(calls.iter().all(|call| !call.starts_with("POST")));
        let mut keys = report.opt_ins_not_sent_keys().to_vec();
        keys.sort();
        assert!(keys.is_empty() || keys == ["1", "3"], "{keys:?}");
        assert_eq!(keys.len() as u64, report.opt_ins_not_sent());
        (
            report.opt_ins_not_sent(),
            report.opted_out_at_service().to_vec(),
        )
    };

    for number in 0..5 {
        if number == 2 {
            yes[0] = SyncRow::new(1, contact("a@x.io").first_name("B"));
        }
        assert_eq!(night(&yes).await, (2, Vec::new()), "night {number}");
    }
    // Without the list, it is told once.
    assert_eq!(nights.run(&yes).await.0.opt_ins_not_sent(), 0);
    for address in ["a@x.io", "b@x.io"] {
        nights.contacts.subscribe(address).await.unwrap();
    }
    assert_eq!(night(&yes).await, (0, Vec::new()));
    for address in ["a@x.io", "b@x.io"] {
        nights.contacts.unsubscribe(address).await.unwrap();
    }
    for _ in 0..2 {
        assert_eq!(night(&yes).await, (0, vec!["1".to_owned(), "3".to_owned()]));
    }
}

#[tokio::test]
async fn a_yes_to_a_topic_does_not_hide_an_opt_out_of_everything() {
    for is_before in [true, false] {
        let nights = Nights::new().await;
        let no_news = ImportRow::new(contact("a@x.io")).opt_out(OptOut::Topic("news".to_owned()));
        nights.run(&[SyncRow::new(1, no_news)]).await;
        let table = [row(1, "a@x.io")];
        let opt_out = async || nights.contacts.unsubscribe("a@x.io").await.unwrap();
        if is_before {
            opt_out().await;
        }

        let (report, _) = nights.run_with(&table, SyncContacts::checks_list).await;
        assert_eq!(report.opt_ins_not_sent(), 1);
        if !is_before {
            opt_out().await;
        }
        let (report, _) = nights.run_with(&table, SyncContacts::checks_list).await;

        assert_eq!(report.opt_ins_not_sent(), 0);
        assert_eq!(report.opted_out_at_service(), ["1"]);
    }
}

#[tokio::test]
async fn who_was_subscribed_when_the_yes_came_and_opts_out_later_is_told_as_an_opt_out_at_the_service()
 {
    let nights = subscribed_by_hand(&[row(1, "a@x.io").subscribed(false)], &["a@x.io"]).await;
    let table = [row(1, "a@x.io")];
    let (report, _) = nights.run(&table).await;
    assert_eq!(report.opt_ins_not_sent(), 0);
    nights.contacts.unsubscribe("a@x.io").await.unwrap();

    let (report, _) = nights.run_with(&table, SyncContacts::checks_list).await;

    assert_eq!(report.opt_ins_not_sent(), 0);
    assert_eq!(report.opted_out_at_service(), ["1"]);
}

#[tokio::test]
async fn a_new_row_at_an_address_that_only_one_of_two_rows_left_is_told_as_an_opt_out_at_the_service()
 {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io"), row(2, "a@x.io")]).await;
    let table = [row(1, "b@x.io"), row(2, "a@x.io"), row(3, "a@x.io")];
    nights.run(&table[..2]).await;
    nights.contacts.unsubscribe("a@x.io").await.unwrap();

    let (report, _) = nights.run_with(&table, SyncContacts::checks_list).await;

    assert_eq!(report.opt_ins_not_sent(), 0);
    assert_eq!(report.opted_out_at_service(), ["2", "3"]);
}

#[tokio::test]
async fn an_opt_out_that_the_sync_sends_for_a_row_without_a_key_is_not_told_as_one_of_the_service()
{
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    let no = SyncRow::new("", contact("a@x.io")).subscribed(false);

    let table = [row(1, "a@x.io"), no];
    let (report, _) = nights.run_with(&table, SyncContacts::checks_list).await;

    assert!(nights.is_opted_out("a@x.io"));
    assert!(report.opted_out_at_service().is_empty(), "{report}");
}

#[tokio::test]
async fn a_row_without_a_key_and_with_a_no_to_a_topic_does_not_hide_an_opt_out_at_the_service() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    nights.contacts.unsubscribe("a@x.io").await.unwrap();
    let topic = OptOut::Topic("news".to_owned());
    let no_news = ImportRow::new(contact("a@x.io")).opt_out(topic);

    let table = [row(1, "a@x.io"), SyncRow::new("", no_news)];
    let (report, _) = nights.run_with(&table, SyncContacts::checks_list).await;

    assert_eq!(report.opted_out_at_service(), ["1"]);
}

#[tokio::test]
async fn each_key_is_told_once_in_the_order_of_the_table_and_written_back_it_costs_one_look() {
    let nights = Nights::new().await;
    let mut table = [row(9, "a@x.io"), row(2, "b@x.io"), row(5, "b@x.io")];
    nights.run(&table).await;
    for address in ["a@x.io", "b@x.io"] {
        nights.server.report_spam(address);
    }
    let twice = [table.to_vec(), vec![row(9, "b@x.io")]].concat();

    let (report, _) = nights.run_with(&twice, SyncContacts::checks_list).await;
    assert_eq!(report.opted_out_at_service(), ["9", "2", "5"]);

    table = table.map(|row| row.subscribed(false));
    let (report, calls) = nights.run_with(&table, SyncContacts::checks_list).await;
    assert!(
        calls.iter().all(|call| call.starts_with("GET")),
        "{calls:?}"
    );
    assert_eq!(report.opted_out(), 0);
    assert!(report.opted_out_at_service().is_empty());
    let contact = nights.server.contact("a@x.io").unwrap();
    assert_eq!(contact.unsubscribe_reason, "complaint");
}

#[tokio::test]
async fn a_row_that_is_not_subscribed_says_nothing_about_the_address_that_another_row_took_from_it()
{
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io"), row(2, "b@x.io")]).await;
    let table = [row(1, "c@x.io").subscribed(false), row(2, "a@x.io")];

    nights.run_with(&table, SyncContacts::checks_list).await;

    assert!(nights.is_opted_out("c@x.io") && !nights.is_opted_out("a@x.io"));
}

#[tokio::test]
async fn a_yes_of_before_its_row_was_missing_is_told_as_an_opt_out_at_the_service() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io").subscribed(false)]).await;
    let (report, _) = nights.run(&[row(1, "a@x.io")]).await;
    assert_eq!(report.opt_ins_not_sent(), 1);
    // Another row has its address.
    let other = row(2, "a@x.io");
    let missing = SyncContacts::deletes_missing;
    nights.run_with(std::slice::from_ref(&other), missing).await;

    let table = [row(1, "a@x.io"), other];
    let (report, _) = nights.run_with(&table, SyncContacts::checks_list).await;

    assert_eq!(report.opt_ins_not_sent(), 0);
    assert_eq!(report.opted_out_at_service(), ["1", "2"]);
}

#[tokio::test]
async fn an_opt_out_of_the_sync_itself_after_an_older_state_is_no_opt_out_at_the_service() {
    let nights = Nights::new().await;
    let table = |name: &str| -> Vec<SyncRow> {
        let rows = (0..40).map(|key| row(key, &format!("{name}{key}@x.io")));
        rows.collect()
    };
    nights.run(&table("old")).await;
    let copy = std::fs::read(&nights.state.0).unwrap();
    // This person clicks a link, and reports spam after the move.
    let link = nights.contacts.unsubscribe("old1@x.io");
    link.reason(OptOutReason::Preferences).await.unwrap();
    let moved = table("new");
    nights.run_with(&moved, |sync| sync.leave_at_most(40)).await;
    nights.server.report_spam("new2@x.io");
    std::fs::write(&nights.state.0, copy).unwrap();

    for _ in 0..2 {
        let (report, _) = nights
            .run_with(&moved, |sync| sync.checks_list().leave_at_most(40))
            .await;

        // The sync cannot know that its earlier run has opted out the old addresses.
        assert!(nights.is_opted_out("new7@x.io"), "{report}");
        assert_eq!(report.opted_out_at_service(), ["1", "2"]);
        assert_eq!(report.opt_ins_not_sent(), 38);
    }
    nights.contacts.subscribe("new7@x.io").await.unwrap();
    nights.run_with(&moved, SyncContacts::checks_list).await;
    nights.contacts.unsubscribe("new7@x.io").await.unwrap();
    let (report, _) = nights.run_with(&moved, SyncContacts::checks_list).await;
    assert_eq!(report.opted_out_at_service(), ["1", "2", "7"]);
}

#[tokio::test]
async fn whom_the_staff_opted_out_before_the_address_changes_counts_as_an_opt_in_that_is_not_sent()
{
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    let by_staff = nights.contacts.unsubscribe("a@x.io");
    by_staff.reason(OptOutReason::Manual).await.unwrap();
    let table = [row(1, "b@x.io")];

    for _ in 0..2 {
        let (report, _) = nights.run_with(&table, SyncContacts::checks_list).await;

        assert!(nights.is_opted_out("b@x.io"));
        assert!(report.opted_out_at_service().is_empty());
        assert_eq!(report.opt_ins_not_sent(), 1);
        assert_eq!(report.opt_ins_not_sent_keys(), ["1"]);
    }
}

#[tokio::test]
async fn who_has_clicked_a_link_before_the_address_changes_is_told_as_an_opt_out_at_the_service() {
    for is_spam in [false, true] {
        let nights = Nights::new().await;
        nights.run(&[row(1, "a@x.io")]).await;
        if is_spam {
            nights.server.report_spam("a@x.io");
        } else {
            let link = nights.contacts.unsubscribe("a@x.io");
            link.reason(OptOutReason::Preferences).await.unwrap();
        }
        let table = [row(1, "b@x.io")];

        for _ in 0..2 {
            let (report, _) = nights.run_with(&table, SyncContacts::checks_list).await;

            assert!(nights.is_opted_out("b@x.io"));
            assert_eq!(report.opted_out_at_service(), ["1"]);
        }
    }
}
