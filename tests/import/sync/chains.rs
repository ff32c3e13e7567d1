//! A row is to take the address of a row that gets another one in the same night.

use audience::RetryPolicy;
use audience::import::{SyncContacts, SyncRow};
use audience::mock::Fault;

use super::{Nights, row};

/// The row 6 leaves `p5@x.io`, and the row 7 takes it.
fn chain() -> [SyncRow; 2] {
    [row(6, "x2@x.io"), row(7, "p5@x.io")]
}

async fn before_the_chain() -> Nights {
    let nights = Nights::new().await;
    nights.run(&[row(6, "p5@x.io"), row(7, "p6@x.io")]).await;
    nights
}

/// Ends a night in which the row 6 leaves `p5@x.io`, and the row 7 cannot take it.
async fn half_a_chain() -> Nights {
    let nights = before_the_chain().await;
    let fails = Fault::status(400).path("/contacts/p6@x.io");
    nights.server.fault(fails);
    let (report, _) = nights.run(&chain()).await;
    nights.server.clear_faults();
    assert!(!report.is_complete(), "{report}");
    assert!(nights.server.contact("x2@x.io").is_some() && !nights.is_opted_out("p5@x.io"));
    nights
}

/// Ends a night in which the rows 1 and 2 leave `a@x.io`, the second for this address, and the row 3 cannot take it. Then
/// the contact of `a@x.io` opts out of `news`.
async fn two_that_leave(second: &str) -> Nights {
    let nights = Nights::new().await;
    nights
        .run(&[row(1, "a@x.io"), row(2, "a@x.io"), row(3, "p@x.io")])
        .await;
    nights
        .server
        .fault(Fault::status(400).path("/contacts/p@x.io"));
    nights
        .run(&[row(1, "b@x.io"), row(2, second), row(3, "a@x.io")])
        .await;
    nights.server.clear_faults();
    let opt_out = nights.contacts.set_topic("a@x.io", "news", false);
    opt_out.await.unwrap();
    nights
}

/// Asserts that there is nothing left to do.
async fn assert_all_unchanged(nights: &Nights, table: &[SyncRow]) {
    let (report, calls) = nights.run_with(table, SyncContacts::deletes_missing).await;
    assert!(calls.is_empty(), "{calls:?}");
    assert_eq!(report.unchanged(), table.len() as u64);
}

#[tokio::test]
async fn an_address_is_left_if_the_row_that_was_to_take_it_gets_another_one_or_is_gone() {
    let later = [
        Some(row(7, "c@x.io")),
        Some(row(7, "p6@x.io")),
        Some(row(7, "p5@x.io").deleted(true)),
        None,
    ];
    for later in later {
        let nights = half_a_chain().await;
        let rows = [row(6, "x2@x.io")].into_iter().chain(later.clone());
        let table: Vec<_> = rows.collect();

        let (report, _) = nights.run_with(&table, SyncContacts::deletes_missing).await;

        assert!(report.is_complete(), "{report}");
        assert!(nights.is_opted_out("p5@x.io"), "{later:?}");
        assert!(!nights.is_opted_out("x2@x.io"), "{later:?}");
        let stays = later == Some(row(7, "p6@x.io"));
        assert_eq!(nights.is_opted_out("p6@x.io"), !stays, "{later:?}");
        assert_all_unchanged(&nights, &table).await;
    }
}

#[tokio::test]
async fn an_address_belongs_to_the_row_that_takes_it_in_a_later_night() {
    let nights = half_a_chain().await;

    let (report, calls) = nights.run(&chain()).await;

    assert!(report.is_complete(), "{report}");
    let expected = [
        "GET /p6@x.io",
        "batch 1",
        "GET /p6@x.io",
        "POST /p6@x.io/unsubscribe",
    ];
    assert_eq!(calls, expected);
    assert!(!nights.is_opted_out("p5@x.io"));
    assert_all_unchanged(&nights, &chain()).await;
    // Its opt-outs and its end do not concern the row that had it before.
    let opt_out = nights.contacts.set_topic("p5@x.io", "news", false);
    opt_out.await.unwrap();
    nights.run(&[row(6, "x2@x.io"), row(7, "c@x.io")]).await;
    let contact = async |address| nights.contacts.retrieve(address).await.unwrap();
    assert!(contact("p5@x.io").await.unsubscribed);
    assert!(contact("x2@x.io").await.topics["news"]);
    assert!(!contact("c@x.io").await.topics["news"]);
}

#[tokio::test]
async fn an_address_that_another_row_takes_in_the_same_night_costs_no_call() {
    let nights = before_the_chain().await;

    let (_, mut calls) = nights.run(&chain()).await;

    calls.sort();
    let expected = [
        "GET /p5@x.io",
        "GET /p6@x.io",
        "GET /p6@x.io",
        "POST /p6@x.io/unsubscribe",
        "batch 2",
    ];
    assert_eq!(calls, expected);
    assert_all_unchanged(&nights, &chain()).await;
}

#[tokio::test]
async fn an_address_that_a_new_row_takes_in_the_same_night_is_left_by_that_row() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    let table = [row(1, "b@x.io"), row(2, "a@x.io")];
    nights.run(&table).await;
    assert_all_unchanged(&nights, &table).await;

    let (report, _) = nights
        .run_with(&table[..1], SyncContacts::deletes_missing)
        .await;

    assert_eq!(report.opted_out(), 1);
    assert!(nights.is_opted_out("a@x.io") && !nights.is_opted_out("b@x.io"));
}

#[tokio::test]
async fn after_a_crash_at_its_end_a_night_finds_the_row_that_has_taken_an_address() {
    for next in ["p5@x.io", "c@x.io"] {
        let nights = before_the_chain().await;
        nights.run(&chain()).await;
        let state = std::fs::read_to_string(&nights.state).unwrap();
        let last = state.trim_end().rfind('\n').unwrap() + 1;
        assert!(state[last..].contains(r#""key":"6""#), "{state}");
        std::fs::write(&nights.state, &state[..last]).unwrap();
        let table = [row(6, "x2@x.io"), row(7, next)];

        let (_, calls) = nights.run(&table).await;

        let stays = next == "p5@x.io";
        assert_eq!(calls.is_empty(), stays, "{calls:?}");
        assert_eq!(nights.is_opted_out("p5@x.io"), !stays);
        assert!(!nights.is_opted_out("x2@x.io"));
        assert_all_unchanged(&nights, &table).await;
    }
}

#[tokio::test]
async fn a_row_that_comes_back_keeps_the_address_that_another_one_was_to_take() {
    let nights = half_a_chain().await;
    let table = [row(6, "p5@x.io"), row(7, "p6@x.io")];

    let (report, calls) = nights.run(&table).await;

    assert!(report.is_complete(), "{report}");
    let expected = [
        "GET /x2@x.io",
        "batch 1",
        "GET /x2@x.io",
        "POST /x2@x.io/unsubscribe",
    ];
    assert_eq!(calls, expected);
    assert!(!nights.is_opted_out("p5@x.io") && !nights.is_opted_out("p6@x.io"));
    assert_all_unchanged(&nights, &table).await;
}

#[tokio::test]
async fn an_address_is_left_although_its_row_has_tried_to_come_back_to_it() {
    let refused = r#"{"error":{"code":"validation_error"}}"#;
    for fault in [Fault::status(501), Fault::status(422).body(refused)] {
        let nights = half_a_chain().await;
        nights.server.fault(fault.path("/contacts/batch"));
        let once = |sync: SyncContacts| sync.retry(RetryPolicy::none());
        let back = [row(6, "p5@x.io"), row(7, "p6@x.io")];
        nights.run_with(&back, once).await;
        nights.server.clear_faults();
        let table = [row(6, "c@x.io"), row(7, "p6@x.io")];

        let (report, _) = nights.run(&table).await;

        assert_eq!(report.opted_out(), 2, "{report}");
        assert!(nights.is_opted_out("p5@x.io") && nights.is_opted_out("x2@x.io"));
        assert!(!nights.is_opted_out("c@x.io"));
        assert_all_unchanged(&nights, &table).await;
    }
}

#[tokio::test]
async fn all_rows_that_leave_an_address_take_the_opt_outs_until_it_is_clear_that_nobody_takes_it() {
    let nights = two_that_leave("c@x.io").await;
    let table = [row(1, "b@x.io"), row(2, "c@x.io"), row(3, "p@x.io")];

    let (_, calls) = nights.run(&table).await;

    let expected = [
        "GET /a@x.io",
        "POST /b@x.io/unsubscribe news",
        "POST /c@x.io/unsubscribe news",
        "POST /a@x.io/unsubscribe",
    ];
    assert_eq!(calls, expected);
    assert_all_unchanged(&nights, &table).await;
}

#[tokio::test]
async fn a_row_that_leaves_an_address_takes_the_opt_outs_while_the_next_address_of_another_row_is_refused()
 {
    let nights = two_that_leave("c at x.io").await;
    let table = [row(1, "b@x.io"), row(2, "c@x.io"), row(3, "p@x.io")];

    let (report, _) = nights.run(&table).await;

    assert!(report.is_complete(), "{report}");
    assert!(nights.is_opted_out("a@x.io"));
    for address in ["b@x.io", "c@x.io"] {
        let contact = nights.contacts.retrieve(address).await.unwrap();
        assert!(
            !contact.unsubscribed && !contact.topics["news"],
            "{address}"
        );
    }
    assert_all_unchanged(&nights, &table).await;
}

#[tokio::test]
async fn a_dry_run_counts_an_address_that_an_earlier_night_could_not_leave() {
    let nights = half_a_chain().await;
    let table = [row(6, "x2@x.io"), row(7, "c@x.io")];

    let (dry, calls) = nights.run_with(&table, SyncContacts::dry_run).await;
    let (report, _) = nights.run(&table).await;

    assert!(calls.is_empty(), "{calls:?}");
    assert_eq!((dry.opted_out(), report.opted_out()), (2, 2));
}
