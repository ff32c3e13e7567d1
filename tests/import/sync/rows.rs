//! Which rows cost which requests.

use std::sync::Arc;

use audience::RetryPolicy;
use audience::contacts::NewContact;
use audience::import::{ImportRow, OptOut, SyncContacts, SyncReport, SyncRow};
use audience::mock::Fault;
use support::in_time;

use super::{Nights, contact, row};

#[tokio::test]
async fn unchanged_rows_cost_no_request() {
    let nights = Nights::new().await;
    let table: Vec<_> = (0..250).map(|n| row(n, &format!("{n}@x.io"))).collect();

    let (first, calls) = nights.run(&table).await;
    let (second, no_calls) = nights.run(&table).await;

    assert_eq!(calls.len(), 3);
    assert_eq!((first.changes().created(), first.unchanged()), (250, 0));
    assert_eq!((second.changes().total(), second.unchanged()), (0, 250));
    assert!(no_calls.is_empty(), "{no_calls:?}");
    assert!(first.is_complete() && second.is_complete());
}

#[tokio::test]
async fn new_and_changed_rows_are_sent_in_batches() {
    let nights = Nights::new().await;
    let mut table: Vec<_> = (0..300).map(|n| row(n, &format!("{n}@x.io"))).collect();
    nights.run(&table).await;
    table.clear();
    for n in 0..300 {
        let changed = contact(&format!("{n}@x.io"));
        let plan = if n < 150 { "free" } else { "pro" };
        table.push(SyncRow::new(n, changed.property("plan", plan)));
    }
    table.extend((300..350).map(|n| row(n, &format!("{n}@x.io"))));

    let (report, calls) = nights.run(&table).await;

    // One contact of the last run is there, so the key is that of the same audience.
    assert!(calls[0].starts_with("GET /"), "{calls:?}");
    assert_eq!(calls[1..], ["batch 100", "batch 100"]);
    let changes = report.changes();
    assert_eq!((changes.updated(), changes.created()), (150, 50));
    assert_eq!(report.unchanged(), 150);
    let stored = nights.server.contact("7@x.io").unwrap();
    assert_eq!(stored.properties["plan"], "free");
}

#[tokio::test]
async fn opt_outs_come_before_everything_else_and_cost_two_requests_each() {
    let nights = Nights::new().await;
    let table: Vec<_> = (0..20).map(|n| row(n, &format!("{n}@x.io"))).collect();
    nights.run(&table).await;
    let mut second: Vec<_> = (20..120).map(|n| row(n, &format!("{n}@x.io"))).collect();
    second.extend(table.into_iter().map(|row| row.subscribed(false)));

    let (report, calls) = nights.run(&second).await;

    assert_eq!((report.opted_out(), report.changes().created()), (20, 100));
    assert_eq!(
        calls.len(),
        42,
        "one of them looks for a contact of the last run"
    );
    assert_eq!(calls[41], "batch 100");
    let opt_outs = calls.iter().filter(|call| call.ends_with("/unsubscribe"));
    assert_eq!(opt_outs.count(), 20);
    assert!((0..20).all(|n| nights.is_opted_out(&format!("{n}@x.io"))));

    let (report, calls) = nights.run(&second).await;
    assert_eq!((report.unchanged(), calls.len()), (120, 0));
}

#[tokio::test]
async fn an_opt_out_with_a_new_revision_costs_an_entry_of_a_batch_too() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io").revision(1)]).await;

    let changed = row(1, "a@x.io").revision(2).subscribed(false);
    let (report, calls) = nights.run(&[changed]).await;

    let expected = ["GET /a@x.io", "POST /a@x.io/unsubscribe", "batch 1"];
    assert_eq!(calls, expected);
    assert_eq!((report.opted_out(), report.changes().updated()), (1, 1));
}

#[tokio::test]
async fn the_same_revision_is_not_sent_again_unless_the_address_or_an_opt_out_changed() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io").revision("x")]).await;

    let other_name = SyncRow::new(1, NewContact::new("a@x.io").first_name("B")).revision("x");
    assert!(nights.run(&[other_name]).await.1.is_empty());
    let out = row(1, "a@x.io").revision("x").subscribed(false);
    let (_, calls) = nights.run(&[out]).await;
    assert_eq!(calls, ["GET /a@x.io", "POST /a@x.io/unsubscribe"]);
}

#[tokio::test]
async fn another_spelling_of_an_address_is_the_same_address() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "ada@x.io")]).await;

    let (report, calls) = nights.run(&[row(1, " Ada@X.io ")]).await;

    assert_eq!((report.unchanged(), calls.len()), (1, 0));
}

#[tokio::test]
async fn a_name_or_all_properties_that_a_row_has_lost_are_cleared_and_nothing_else_is() {
    let nights = Nights::new().await;
    let full = contact("a@x.io").last_name("Lovelace");
    nights
        .run(&[SyncRow::new(1, full), SyncRow::new(2, "b@x.io")])
        .await;
    nights
        .contacts
        .update("b@x.io")
        .first_name("Bob")
        .property("seen", 1)
        .await
        .unwrap();

    let shorter = SyncRow::new(1, NewContact::new("a@x.io").first_name("Ada"));
    let other = SyncRow::new(2, NewContact::new("b@x.io").last_name("B"));
    nights.run(&[shorter, other]).await;

    let ada = nights.server.contact("a@x.io").unwrap();
    assert_eq!(ada.first_name.as_deref(), Some("Ada"));
    assert_eq!(ada.last_name.as_deref().unwrap_or_default(), "");
    assert!(ada.properties.is_empty());
    let bob = nights.server.contact("b@x.io").unwrap();
    assert_eq!(
        (bob.first_name.as_deref(), bob.last_name.as_deref()),
        (Some("Bob"), Some("B"))
    );
    assert_eq!(bob.properties["seen"], 1);
}

#[tokio::test]
async fn a_name_that_a_row_has_lost_is_cleared_by_the_next_run_if_the_first_one_fails() {
    let body = r#"{"data":[{"email":"a@x.io","status":"validation_error"}]}"#;
    for fault in [Fault::close_before(), Fault::status(200).body(body)] {
        let nights = Nights::new().await;
        let before = NewContact::new("a@x.io").first_name("Ada");
        nights.run(&[SyncRow::new(1, before)]).await;
        let after = [SyncRow::new(
            1,
            NewContact::new("a@x.io").last_name("Lovelace"),
        )];
        nights.server.fault(fault.path("/contacts/batch"));
        let once = |sync: SyncContacts| sync.retry(RetryPolicy::none());
        let (report, _) = nights.run_with(&after, once).await;
        assert!(!report.is_complete());
        nights.server.clear_faults();

        nights.run(&after).await;

        let stored = nights.server.contact("a@x.io").unwrap();
        assert_eq!(stored.first_name.as_deref().unwrap_or_default(), "");
        assert_eq!(stored.last_name.as_deref(), Some("Lovelace"));
    }
}

#[tokio::test]
async fn only_some_of_the_rows_may_be_passed() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io"), row(2, "b@x.io")]).await;

    let (report, calls) = nights.run(&[row(3, "c@x.io")]).await;

    assert_eq!((report.changes().created(), calls.len()), (1, 1));
    assert!(!nights.is_opted_out("a@x.io"));
}

#[tokio::test]
async fn a_refused_row_is_rejected_with_its_key_and_sent_again_until_it_is_fixed() {
    let nights = Nights::new().await;
    let rejects = nights.state.0.with_extension("csv");
    let table = [row(7, "no address"), row(8, "b@x.io")];
    for _ in 0..2 {
        let file = std::fs::File::create(&rejects).unwrap();
        let (report, calls) = nights.run_with(&table, |sync| sync.rejects(file)).await;

        assert_eq!((report.changes().refused(), calls.len()), (1, 1));
        assert!(!report.is_complete());
        let text = std::fs::read_to_string(&rejects).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(
            text.contains("validation_error") && text.ends_with(",7\n"),
            "{text}"
        );
    }
    std::fs::remove_file(rejects).unwrap();

    let (report, _) = nights.run(&[row(7, "a@x.io"), row(8, "b@x.io")]).await;
    assert_eq!(report.changes().created(), 1);
    assert!(report.is_complete());
}

#[tokio::test]
async fn a_row_whose_key_cannot_be_read_is_refused_and_no_row_counts_as_missing() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io"), row(2, "b@x.io")]).await;

    let table = [SyncRow::new("", ImportRow::unreadable("half a line"))];
    let (report, calls) = nights.run_with(&table, SyncContacts::deletes_missing).await;

    assert_eq!((report.changes().refused(), report.opted_out()), (1, 0));
    assert!(report.missing_ignored() && report.to_string().contains("missing rows ignored"));
    let error = Arc::unwrap_or_clone(report).finished().unwrap_err();
    assert!(error.to_string().contains("correct the table"));
    assert_eq!(audience::exit_status(&error), 1);
    assert!(calls.is_empty());
    let (report, _) = nights.run(&table).await;
    assert!(!report.missing_ignored(), "nobody asked for missing rows");
}

#[tokio::test]
async fn rows_without_a_key_are_refused_and_no_row_counts_as_missing() {
    let nights = Nights::new().await;
    nights.run(&[row(7, "a@x.io"), row(8, "b@x.io")]).await;
    let bare = |address: &str| SyncRow::new("", contact(address));
    let tables = [
        vec![row(7, "a@x.io"), bare("c@x.io")],
        // Neither has the other one's key.
        vec![row(7, "a@x.io"), bare("c@x.io"), bare("d@x.io")],
    ];

    for table in tables {
        let (report, calls) = nights.run_with(&table, SyncContacts::deletes_missing).await;

        assert!(report.missing_ignored() && calls.is_empty(), "{calls:?}");
        assert_eq!(report.changes().refused(), table.len() as u64 - 1);
        assert!(!nights.is_opted_out("b@x.io"));
        assert_eq!(nights.server.contact_count(), 2);
    }
}

#[tokio::test]
async fn the_opt_out_of_a_row_without_a_key_or_with_a_property_that_cannot_be_sent_is_sent() {
    let nest = |inner, _| serde_json::Value::Array(vec![inner]);
    let deep = (0..101).fold(serde_json::Value::Null, nest);
    let rows = [
        SyncRow::new("", contact("a@x.io")),
        SyncRow::new(1, contact("a@x.io").property("plan", deep)),
        SyncRow::new(1, contact("a@x.io").property("plan", f64::NAN)),
    ];
    for row in rows {
        let nights = Nights::new().await;
        nights.contacts.create("a@x.io").await.unwrap();

        let (report, _) = nights.run(&[row.subscribed(false)]).await;

        assert_eq!((report.opted_out(), report.changes().refused()), (1, 1));
        assert!(nights.is_opted_out("a@x.io"));
    }
}

#[tokio::test]
async fn a_contact_that_a_row_creates_gets_the_opt_outs_of_a_refused_row_with_its_address() {
    let refused = |key: &str| SyncRow::new(key, contact("a@x.io")).subscribed(false);
    for table in [
        vec![row(1, "a@x.io"), refused("")],
        vec![row(1, "a@x.io"), row(2, "b@x.io"), refused("2")],
        vec![
            row(1, "a@x.io"),
            row(2, "b@x.io"),
            refused("2").deleted(true),
        ],
    ] {
        let nights = Nights::new().await;

        nights.run(&table).await;

        assert!(nights.is_opted_out("a@x.io"));
    }
}

#[tokio::test]
async fn a_row_with_a_property_that_is_nested_too_deeply_is_a_reject_with_its_key_and_line() {
    let nights = Nights::new().await;
    nights.run(&[row(7, "a@x.io")]).await;
    let rejects = nights.state.0.with_extension("deep.csv");
    for (depth, is_list) in [(101, true), (126, true), (127, true), (101, false)] {
        let nest = |inner: serde_json::Value, _| match is_list {
            true => serde_json::json!([inner]),
            false => serde_json::json!({"a": inner}),
        };
        let deep = (0..depth).fold(serde_json::Value::Null, nest);
        let row = |key: u64, address: &str| {
            let contact = contact(address).property("plan", deep.clone());
            SyncRow::new(key, ImportRow::new(contact).line(key + 1))
        };
        let table = [row(7, "a@x.io").subscribed(false), row(8, "b@x.io")];

        let write = |sync: SyncContacts| sync.rejects_file(&rejects);
        let (report, _) = nights.run_with(&table, write).await;

        assert_eq!(report.changes().refused(), 2);
        assert!(nights.is_opted_out("a@x.io"));
        let text = std::fs::read_to_string(&rejects).unwrap();
        for (line, key) in [(8, 7), (9, 8)] {
            let is_told = |reject: &str| {
                reject.starts_with(&format!("{line},")) && reject.ends_with(&format!(",{key}"))
            };
            assert!(text.lines().any(is_told), "{text}");
        }
        assert_eq!(text.matches("nested more than 100 levels").count(), 2);
    }
    std::fs::remove_file(rejects).unwrap();
}

#[tokio::test]
async fn a_property_that_is_a_list_or_an_object_is_sent() {
    let nights = Nights::new().await;
    for value in [serde_json::json!(["pro"]), serde_json::json!({"a": 1})] {
        let contact = contact("a@x.io").property("plan", value);
        let (_, calls) = nights.run(&[SyncRow::new(1, contact)]).await;

        assert_eq!(calls, ["batch 1"]);
    }
}

#[tokio::test]
async fn a_run_that_has_left_other_work_is_to_be_repeated_although_missing_rows_were_ignored() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io"), row(2, "b@x.io")]).await;
    let table = [
        row(1, "a@x.io").subscribed(false),
        SyncRow::new("", ImportRow::unreadable("half a line")),
    ];
    let fault = Fault::status(503).path("/contacts/*/unsubscribe");
    nights.server.fault(fault.times(1));
    let once = |sync: SyncContacts| sync.deletes_missing().retry(RetryPolicy::none());

    let (first, _) = nights.run_with(&table, once).await;
    let (second, _) = nights.run_with(&table, once).await;

    let statuses = [first, second].map(|report| {
        assert!(report.missing_ignored());
        audience::exit_status(&Arc::unwrap_or_clone(report).finished().unwrap_err())
    });
    assert_eq!(statuses, [75, 1]);
    assert!(nights.is_opted_out("a@x.io") && !nights.is_opted_out("b@x.io"));
}

#[tokio::test]
async fn the_text_of_a_report_calls_no_row_refused_whose_opt_out_got_no_response() {
    for fault in [Fault::status(503), Fault::close_before()] {
        let nights = Nights::new().await;
        nights.run(&[row(1, "a@x.io"), row(2, "b@x.io")]).await;
        let fault = fault.path("/contacts/*/unsubscribe");
        nights.server.fault(fault);
        let table = [row(1, "a@x.io").subscribed(false), row(2, "b@x.io")];
        let once = |sync: SyncContacts| sync.retry(RetryPolicy::none());

        let (report, _) = nights.run_with(&table, once).await;

        let text = "1 unchanged, 0 opted out, 0 opt-ins not sent; 0 created, 0 updated, 0 skipped, 0 refused, 0 not sent, 0 \
                    unknown, 1 whose opt-out failed";
        assert_eq!(report.to_string(), text);
    }
}

#[tokio::test]
async fn a_row_that_cannot_be_sent_is_present_if_its_key_is_known_and_others_still_go_missing() {
    let refused = [
        SyncRow::new(1, ImportRow::unreadable("an unknown word")),
        SyncRow::new(1, ""),
        SyncRow::new(1, contact("a@x.io").property("plan", f64::NAN)),
    ];
    for refused in refused {
        let nights = Nights::new().await;
        let table = [row(1, "a@x.io"), row(2, "b@x.io"), row(3, "c@x.io")];
        nights.run(&table).await;

        // The third row leaves the address of the first one, which still has it.
        let table = [refused, row(3, "a@x.io"), row(4, "")];
        nights.run_with(&table, SyncContacts::deletes_missing).await;
        let table = [table[0].clone(), row(3, "d@x.io")];
        let (report, _) = nights.run_with(&table, SyncContacts::deletes_missing).await;

        assert!(nights.is_opted_out("b@x.io") && !nights.is_opted_out("a@x.io"));
        assert_eq!(report.changes().refused(), 1);
        assert!(!report.missing_ignored());
        let (report, _) = nights.run(&[row(1, "a@x.io")]).await;
        assert_eq!(report.unchanged(), 1);
    }
}

#[tokio::test]
async fn a_row_without_an_address_is_an_invalid_row_and_its_opt_out_goes_to_the_address_it_had() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    let empty = |key: u64| SyncRow::new(key, NewContact::new(" "));
    let table = [
        empty(1).subscribed(false),
        empty(2),
        empty(3).subscribed(false),
        empty(4).deleted(true),
    ];

    for night in 0..2 {
        let (report, calls) = nights.run(&table).await;

        let codes: Vec<_> = report.changes().refused_by_code().collect();
        assert_eq!(codes, [("invalid_row", 4)]);
        assert_eq!(report.changes().opt_out_failed(), 0);
        match night {
            0 => assert_eq!(calls, ["GET /a@x.io", "POST /a@x.io/unsubscribe"]),
            _ => assert!(calls.is_empty(), "{calls:?}"),
        }
    }
    let (report, calls) = nights.run(&[row(1, "a@x.io").subscribed(false)]).await;
    assert_eq!((report.unchanged(), calls.len()), (1, 0));
}

#[tokio::test]
async fn a_row_whose_address_is_a_dot_is_an_invalid_row_until_it_has_another_one() {
    for dots in [".", " .. "] {
        let nights = Nights::new().await;

        let (report, calls) = nights
            .run(&[row(1, dots), row(2, dots).subscribed(false)])
            .await;

        let changes = report.changes();
        let codes: Vec<_> = changes.refused_by_code().collect();
        assert_eq!((codes, calls.len()), (vec![("invalid_row", 2)], 0));
        assert_eq!(changes.opt_out_failed(), 0);
        let (report, _) = nights.run(&[row(1, "a@x.io"), row(2, "b@x.io")]).await;
        assert_eq!(report.changes().created(), 2);
        // A row that had an address keeps it.
        let (report, _) = nights.run(&[row(1, dots).subscribed(false)]).await;
        assert_eq!((report.changes().refused(), report.opted_out()), (1, 1));
        assert!(nights.is_opted_out("a@x.io"));
    }
}

#[tokio::test]
async fn an_opt_out_that_is_left_is_sent_although_the_row_cannot_be_sent() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    let outage = Fault::status(501).path("/unsubscribe");
    nights.server.fault(outage);
    nights.run(&[row(1, "a@x.io").subscribed(false)]).await;
    nights.server.clear_faults();

    let refused = SyncRow::new(1, ImportRow::unreadable("an unknown word"));
    nights.run(&[refused]).await;

    assert!(nights.is_opted_out("a@x.io"));
}

#[tokio::test]
async fn a_dry_run_counts_what_it_would_send_and_sends_nothing() {
    let nights = Nights::new().await;
    let table: Vec<_> = (0..4).map(|n| row(n, &format!("{n}@x.io"))).collect();
    nights.run(&table).await;
    let before = std::fs::read(&nights.state).unwrap();
    let table = [
        row(0, "0@x.io"),
        row(1, "1@x.io").subscribed(false),
        row(2, "other@x.io"),
        row(9, "no address"),
    ];

    let (report, calls) = nights
        .run_with(&table, |sync| sync.deletes_missing().dry_run())
        .await;

    assert!(calls.is_empty(), "{calls:?}");
    // Rows 1 to 3, the last of which is missing.
    assert_eq!((report.unchanged(), report.opted_out()), (1, 3));
    assert_eq!(
        (report.changes().valid(), report.changes().refused()),
        (1, 1)
    );
    assert_eq!(std::fs::read(&nights.state).unwrap(), before);
}

#[tokio::test]
async fn a_row_that_moves_to_a_contact_which_exists_clears_no_name_there() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    let bob = NewContact::new("b@x.io").first_name("Bob");
    nights.contacts.create(bob).await.unwrap();

    let unnamed = SyncRow::new(1, NewContact::new("b@x.io").property("plan", "pro"));
    nights.run(&[unnamed]).await;

    let bob = nights.server.contact("b@x.io").unwrap();
    assert_eq!(bob.first_name.as_deref(), Some("Bob"));
}

#[tokio::test]
async fn the_ceiling_of_the_plan_stops_new_contacts_but_no_opt_out() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    nights.server.set_ceiling(Some(1));

    let table = [row(2, "b@x.io"), row(1, "a@x.io").subscribed(false)];
    let (report, _) = nights.run(&table).await;

    assert!(report.changes().quota_exceeded());
    assert!(nights.is_opted_out("a@x.io"));

    nights.server.set_ceiling(None);
    let (report, calls) = nights.run(&table).await;
    assert_eq!((report.changes().created(), calls.len()), (1, 1));
}

#[tokio::test]
async fn at_the_ceiling_of_the_plan_old_addresses_are_left_and_opt_outs_of_new_rows_are_sent() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    nights.contacts.create("imported@x.io").await.unwrap();
    nights.server.set_ceiling(Some(3));
    let mut table = vec![row(1, "b@x.io")];
    table.extend((100..350).map(|n| row(n, &format!("{n}@x.io"))));
    table.push(row(2, "imported@x.io").subscribed(false));

    // With several batches at once, a new row of a later one may get the place of the new address.
    let one_by_one = |sync: SyncContacts| sync.concurrency(1);
    let (report, calls) = nights.run_with(&table, one_by_one).await;

    assert!(report.changes().quota_exceeded());
    assert!(nights.is_opted_out("a@x.io") && nights.is_opted_out("imported@x.io"));
    assert!(!nights.is_opted_out("b@x.io"));
    let changes = report.changes();
    assert_eq!((changes.created(), changes.updated()), (1, 1), "{report}");
    assert_eq!(changes.refused() + changes.not_sent(), 250, "{report}");
    assert!(calls.iter().any(|call| call == "batch 1"), "{calls:?}");
    let error = Arc::unwrap_or_clone(report).finished().unwrap_err();
    assert!(error.to_string().contains("contact ceiling"), "{error}");

    nights.server.set_ceiling(None);
    let (report, calls) = nights.run(&table).await;
    assert_eq!(
        (report.changes().created(), calls.len()),
        (250, 3),
        "{calls:?}"
    );
    assert!(report.is_complete());
}

#[tokio::test]
async fn at_the_ceiling_of_the_plan_the_list_and_opt_ins_are_checked() {
    let nights = Nights::new().await;
    let no = |address: &str, key| row(key, address).subscribed(false);
    nights.run(&[no("a@x.io", 1), no("b@x.io", 2)]).await;
    nights.contacts.subscribe("a@x.io").await.unwrap();
    nights.contacts.subscribe("b@x.io").await.unwrap();
    nights.server.set_ceiling(Some(2));
    let table = [no("a@x.io", 1), row(2, "b@x.io"), row(3, "c@x.io")];

    let (report, _) = nights.run_with(&table, SyncContacts::checks_list).await;

    assert!(report.changes().quota_exceeded());
    assert_eq!((report.opted_out(), report.opt_ins_not_sent()), (1, 0));
    assert!(nights.is_opted_out("a@x.io") && !nights.is_opted_out("b@x.io"));
    assert_eq!(report.changes().not_sent(), 0, "{report}");
}

#[tokio::test]
async fn a_sync_that_is_asked_to_stop_says_what_was_not_sent_and_the_next_one_sends_it() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    let table = [row(2, "b@x.io"), row(1, "a@x.io").subscribed(false)];

    let (report, calls) = nights
        .run_with(&table, |sync| sync.stop_when(std::future::ready(())))
        .await;
    assert_eq!((report.changes().not_sent(), calls.len()), (2, 0));
    assert!(report.is_stopped());
    let error = Arc::unwrap_or_clone(report).finished().unwrap_err();
    assert!(error.to_string().contains("asked to stop"));
    assert_eq!(audience::exit_status(&error), 143);

    let (report, calls) = nights.run(&table).await;
    assert_eq!(
        (report.opted_out(), report.changes().created(), calls.len()),
        (1, 1, 3)
    );
    assert!(!report.is_stopped());
}

#[tokio::test]
async fn a_sync_that_is_asked_to_stop_does_not_wait_for_opt_outs_that_fail() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io"), row(2, "b@x.io")]).await;
    nights
        .server
        .fault(Fault::status(503).path("*/unsubscribe"));
    let table = [row(1, "a@x.io"), row(2, "b@x.io")].map(|row| row.subscribed(false));
    let (stop, asked) = tokio::sync::oneshot::channel();
    let mut stop = Some(stop);

    let stops = |sync: SyncContacts| {
        sync.retry(RetryPolicy::exponential().max_attempts(10))
            .on_progress(move |progress| drop(stop.take_if(|_| progress.waiting() > 0)))
            .stop_when(async { asked.await.unwrap_or(()) })
    };
    let (report, calls) = nights.run_with(&table, stops).await;
    assert!(report.is_stopped());
    assert_eq!(report.opted_out(), 0);
    let opt_outs = calls.iter().filter(|call| call.contains("/unsubscribe"));
    assert!(opt_outs.count() < 10, "{calls:?}");

    nights.server.clear_faults();
    let (report, _) = nights.run(&table).await;
    assert_eq!(report.opted_out(), 2);
}

#[tokio::test]
async fn the_progress_covers_all_that_is_sent() {
    let nights = Nights::new().await;
    let no_news = ImportRow::new(contact("d@x.io")).opt_out(OptOut::Topic("news".to_owned()));
    let table = [
        row(1, "a@x.io"),
        row(2, "b@x.io"),
        SyncRow::new(4, no_news),
        row(5, "d@x.io"),
        row(6, "e@x.io"),
    ];
    nights.run(&table).await;
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    // Two opt-outs, a new row, an opt-in that is checked, and a changed address with its look, its entry and its
    // opt-out.
    let table = [
        row(1, "a@x.io").subscribed(false),
        row(2, "b@x.io").subscribed(false),
        row(3, "c@x.io"),
        row(4, "d@x.io"),
        row(5, "d@x.io"),
        row(6, "f@x.io"),
    ];

    let shown = seen.clone();
    let sync = nights.sync(&table).on_progress(move |progress| {
        shown
            .lock()
            .unwrap()
            .push((progress.finished(), progress.total()));
    });
    drop(in_time(sync.into_future()).await.unwrap());

    let seen = seen.lock().unwrap();
    assert_eq!(seen.last(), Some(&(7, Some(7))), "{seen:?}");
    let is_known = |(_, total): &(u64, Option<u64>)| *total == Some(7);
    assert!(seen.iter().all(is_known), "{seen:?}");
}

/// The first name, and whether there are properties.
fn data(nights: &Nights, address: &str) -> (String, bool) {
    let contact = nights.server.contact(address).unwrap();
    let name = contact.first_name.unwrap_or_default();
    (name, !contact.properties.is_empty())
}

#[tokio::test]
async fn whoever_takes_the_address_of_another_row_gets_none_of_its_data() {
    let bare = |key: u64, address: &str| SyncRow::new(key, NewContact::new(address));
    let nothing = || (String::new(), false);
    let ada = || ("Ada".to_owned(), true);
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io"), bare(2, "b@x.io")]).await;

    // They swap their addresses.
    nights.run(&[row(1, "b@x.io"), bare(2, "a@x.io")]).await;
    assert_eq!(data(&nights, "a@x.io"), nothing());
    assert_eq!(data(&nights, "b@x.io"), ada());
    // A new row takes the address of one that has another now, and later of one that was deleted.
    nights.run(&[row(1, "c@x.io"), bare(3, "b@x.io")]).await;
    assert_eq!(data(&nights, "b@x.io"), nothing());
    nights.run(&[row(1, "c@x.io").deleted(true)]).await;
    nights.run(&[bare(4, "c@x.io")]).await;
    assert_eq!(data(&nights, "c@x.io"), nothing());
    // An address that nobody had for a night.
    nights.run(&[row(5, "d@x.io")]).await;
    nights.run(&[row(5, "e@x.io")]).await;
    nights.run(&[bare(6, "d@x.io")]).await;
    assert_eq!(data(&nights, "d@x.io"), nothing());
    // An address that could not be opted out yet.
    nights.run(&[row(7, "f@x.io")]).await;
    let fails = Fault::status(501).path("/contacts/f@x.io/unsubscribe");
    nights.server.fault(fails.times(1));
    nights.run(&[row(7, "g@x.io")]).await;
    nights.run(&[bare(8, "f@x.io")]).await;
    assert_eq!(data(&nights, "f@x.io"), nothing());
    // An address at which the contact of another row was created without a response.
    let lost = Fault::close_after().path("/contacts/batch");
    nights.server.fault(lost);
    let once = |sync: SyncContacts| sync.retry(RetryPolicy::none());
    nights.run_with(&[row(7, "h@x.io")], once).await;
    nights.server.clear_faults();
    assert_eq!(data(&nights, "h@x.io"), ada());
    nights.run(&[row(7, "g@x.io"), bare(9, "h@x.io")]).await;
    assert_eq!(data(&nights, "h@x.io"), nothing());
    // The row itself had other data there.
    nights.run(&[row(10, "i@x.io")]).await;
    nights.run(&[bare(10, "j@x.io")]).await;
    nights.run(&[bare(10, "i@x.io")]).await;
    assert_eq!(data(&nights, "i@x.io"), nothing());
}

#[tokio::test]
async fn whoever_takes_an_address_that_is_not_left_gets_none_of_its_data_from_a_state_written_anew()
{
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    let fails = Fault::status(501).path("/contacts/a@x.io/unsubscribe");
    nights.server.fault(fails);
    nights.run(&[row(1, "b@x.io")]).await;
    let others: Vec<_> = (10..2_510).map(|n| row(n, &format!("{n}@x.io"))).collect();
    nights.run(&others).await;
    let state = std::fs::read_to_string(&nights.state).unwrap();
    assert!(state.contains("\"rewritten\":1"));

    nights.run(&[SyncRow::new(2, "a@x.io")]).await;

    assert_eq!(data(&nights, "a@x.io"), (String::new(), false));
}

#[tokio::test]
async fn a_row_that_comes_back_gets_its_data_back_from_one_that_had_its_address_since() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    nights.run(&[row(1, "a@x.io").deleted(true)]).await;
    for address in ["a@x.io", "b@x.io"] {
        nights.run(&[SyncRow::new(2, address)]).await;
    }
    assert_eq!(data(&nights, "a@x.io"), (String::new(), false));

    nights.run(&[row(1, "a@x.io")]).await;

    assert_eq!(data(&nights, "a@x.io"), ("Ada".to_owned(), true));
}

#[tokio::test]
async fn a_deleted_row_that_no_sync_has_seen_changes_nothing_at_the_address_of_other_rows() {
    let nights = Nights::new().await;
    let mut table = vec![row(1, "a@x.io"), row(2, "a@x.io")];
    nights.run(&table).await;
    table.push(row(3, "a@x.io").deleted(true));

    let (report, calls) = nights.run(&table).await;

    assert!(calls.is_empty(), "{calls:?}");
    assert_eq!(report.unchanged(), 3);
}

#[tokio::test]
async fn an_address_that_no_row_had_keeps_what_the_service_has() {
    let nights = Nights::new().await;
    nights.contacts.create(contact("a@x.io")).await.unwrap();

    nights.run(&[SyncRow::new(1, "a@x.io")]).await;

    assert_eq!(data(&nights, "a@x.io"), ("Ada".to_owned(), true));
}

#[tokio::test]
async fn of_two_rows_with_one_address_the_contact_has_all_of_the_one_that_was_sent_last() {
    let grace = || SyncRow::new(2, NewContact::new("A@x.io").last_name("Hopper"));
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io"), grace()]).await;
    let stored = nights.server.contact("a@x.io").unwrap();
    assert_eq!(data(&nights, "a@x.io"), (String::new(), false));
    assert_eq!(stored.last_name.as_deref(), Some("Hopper"));

    let changed = SyncRow::new(1, NewContact::new("a@x.io").first_name("Eve"));
    nights.run(&[changed.clone(), grace()]).await;
    let stored = nights.server.contact("a@x.io").unwrap();
    assert_eq!(data(&nights, "a@x.io"), ("Eve".to_owned(), false));
    assert_eq!(stored.last_name.as_deref().unwrap_or_default(), "");
    assert!(nights.run(&[changed, grace()]).await.1.is_empty());
}

#[tokio::test]
async fn a_row_gets_its_data_back_if_the_other_one_with_its_address_leaves() {
    type Table = fn() -> Vec<SyncRow>;
    let moved: Table = || vec![row(1, "a@x.io"), SyncRow::new(2, "b@x.io")];
    let missing: Table = || vec![row(1, "a@x.io")];
    let deleted: Table = || vec![row(1, "a@x.io"), SyncRow::new(2, "a@x.io").deleted(true)];
    for table in [moved, missing, deleted] {
        let nights = Nights::new().await;
        let both = [row(1, "a@x.io"), SyncRow::new(2, "a@x.io")];
        nights.run(&both).await;
        assert_eq!(data(&nights, "a@x.io"), (String::new(), false));

        nights
            .run_with(&table(), SyncContacts::deletes_missing)
            .await;

        assert_eq!(data(&nights, "a@x.io"), ("Ada".to_owned(), true));
        let again = nights
            .run_with(&table(), SyncContacts::deletes_missing)
            .await;
        assert!(again.1.is_empty(), "{:?}", again.1);
    }
}

#[tokio::test]
async fn a_row_gets_its_data_back_from_the_next_run_if_the_first_one_fails() {
    // The row is subscribed after an opt-out, in the same night or in the one before.
    let no_news = ImportRow::new(contact("a@x.io")).opt_out(OptOut::Topic("news".to_owned()));
    let both = |first: SyncRow| [first, SyncRow::new(2, "a@x.io")];
    let left = [row(1, "a@x.io")];
    for is_same_night in [true, false] {
        let nights = Nights::new().await;
        match is_same_night {
            true => drop(nights.run(&both(SyncRow::new(1, no_news.clone()))).await),
            false => {
                nights.run(&both(row(1, "a@x.io").subscribed(false))).await;
                nights.run(&both(row(1, "a@x.io"))).await;
                nights.contacts.subscribe("a@x.io").await.unwrap();
            }
        }
        let fails = Fault::status(501).path("/contacts/batch");
        nights.server.fault(fails.times(1));

        let missing = |sync: SyncContacts| sync.deletes_missing().checks_list();
        nights.run_with(&left, missing).await;
        assert_eq!(data(&nights, "a@x.io"), (String::new(), false));
        nights.run(&left).await;

        assert_eq!(data(&nights, "a@x.io"), ("Ada".to_owned(), true));
    }
}

#[tokio::test]
async fn the_line_of_a_dry_run_says_what_would_be_sent() {
    let nights = Nights::new().await;
    nights.run(&[row(0, "0@x.io"), row(1, "1@x.io")]).await;
    let table = [
        row(0, "0@x.io").subscribed(false),
        row(1, "no address"),
        row(2, "2@x.io"),
    ];

    let (report, _) = nights.run_with(&table, SyncContacts::dry_run).await;
    let report = Arc::unwrap_or_clone(report).finished().unwrap();

    // The old contact of a row whose new address would be refused stays.
    assert_eq!(
        report.to_string(),
        "dry run: 0 unchanged, 1 to opt out, 0 opt-ins not sent; 1 to create or update, 1 refused"
    );
}

#[tokio::test]
async fn the_json_of_the_changes_counts_the_opt_outs_if_there_are_any() {
    let nights = Nights::new().await;
    let (first, _) = nights.run(&[row(1, "a@x.io")]).await;

    let (second, _) = nights.run(&[row(1, "a@x.io").subscribed(false)]).await;

    let json = |report: &SyncReport| serde_json::to_value(report.changes()).unwrap();
    assert_eq!(json(&first).get("opted_out"), None);
    assert_eq!(json(&second)["opted_out"], 1);
}
