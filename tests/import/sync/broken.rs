//! A run breaks, and the table changes before the next one.

use std::future::ready;
use std::sync::Arc;

use audience::RetryPolicy;
use audience::contacts::NewContact;
use audience::import::{ImportRow, SyncContacts, SyncReport, SyncRow};
use audience::mock::Fault;

use super::{Nights, row};

/// Returns a row with this first name.
fn named(key: u64, address: &str, name: &str) -> SyncRow {
    SyncRow::new(key, NewContact::new(address).first_name(name))
}

fn name_of(nights: &Nights, address: &str) -> String {
    let contact = nights.server.contact(address).unwrap();
    contact.first_name.unwrap_or_default()
}

fn once(sync: SyncContacts) -> SyncContacts {
    sync.retry(RetryPolicy::none())
}

/// Runs a night in which the responses to all batches are lost.
async fn lose_batches(nights: &Nights, table: &[SyncRow]) -> Arc<SyncReport> {
    let lost = Fault::close_after().path("/contacts/batch");
    nights.server.fault(lost);
    let (report, _) = nights.run_with(table, once).await;
    nights.server.clear_faults();
    assert!(report.changes().unknown() > 0, "{report}");
    report
}

#[tokio::test]
async fn a_contact_gets_its_name_back_from_its_row_after_another_row_had_its_address_by_mistake() {
    let bob = || named(2, "b@x.io", "Bob");
    let later = [
        Some(named(1, "a@x.io", "Ada")),
        Some(named(1, "c@x.io", "Ada")),
        Some(row(1, "b@x.io").deleted(true)),
        Some(row(1, "a@x.io").deleted(true)),
        None,
    ];
    for later in later {
        let nights = Nights::new().await;
        nights.run(&[named(1, "a@x.io", "Ada"), bob()]).await;
        lose_batches(&nights, &[named(1, "b@x.io", "Ada"), bob()]).await;
        assert_eq!(name_of(&nights, "b@x.io"), "Ada");

        let table: Vec<_> = later.clone().into_iter().chain([bob()]).collect();
        nights.run_with(&table, SyncContacts::deletes_missing).await;

        assert_eq!(name_of(&nights, "b@x.io"), "Bob", "{later:?}");
        let (report, calls) = nights.run_with(&table, SyncContacts::deletes_missing).await;
        assert_eq!((report.unchanged(), calls.len()), (table.len() as u64, 0));
    }
}

#[tokio::test]
async fn two_rows_that_swap_their_addresses_and_swap_back_have_their_own_names() {
    let table = || [named(1, "a@x.io", "Ada"), named(2, "b@x.io", "Bob")];
    let nights = Nights::new().await;
    nights.run(&table()).await;
    let lost = Fault::close_after().path("/contacts/batch");
    nights.server.fault(lost);
    let swapped = [named(1, "b@x.io", "Ada"), named(2, "a@x.io", "Bob")];
    nights.run_with(&swapped, once).await;
    nights.server.clear_faults();
    assert_eq!(name_of(&nights, "a@x.io"), "Bob");

    nights.run(&table()).await;

    assert_eq!(name_of(&nights, "a@x.io"), "Ada");
    assert_eq!(name_of(&nights, "b@x.io"), "Bob");
}

#[tokio::test]
async fn a_row_that_is_not_passed_gets_its_name_back_when_it_is_passed_again() {
    let nights = Nights::new().await;
    let bob = || named(2, "a@x.io", "Bob");
    nights.run(&[bob(), named(1, "a@x.io", "Ada")]).await;
    assert_eq!(name_of(&nights, "a@x.io"), "Ada");

    nights.run(&[named(1, "c@x.io", "Ada")]).await;
    nights.run(&[named(1, "c@x.io", "Ada"), bob()]).await;

    assert_eq!(name_of(&nights, "a@x.io"), "Bob");
}

#[tokio::test]
async fn a_deletion_reaches_each_contact_that_two_lost_batches_have_created() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    for address in ["b@x.io", "c@x.io"] {
        lose_batches(&nights, &[row(1, address)]).await;
    }

    nights.run(&[row(1, "c@x.io").deleted(true)]).await;
    nights.run(&[row(1, "c@x.io").deleted(true)]).await;

    for address in ["a@x.io", "b@x.io", "c@x.io"] {
        assert!(nights.is_opted_out(address), "{address}");
    }
}

#[tokio::test]
async fn a_contact_of_a_lost_batch_is_left_although_the_service_refused_its_row_afterwards() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    lose_batches(&nights, &[row(1, "b@x.io")]).await;
    let refused = Fault::status(422).body(r#"{"error":{"code":"validation_error"}}"#);
    nights.server.fault(refused.path("/contacts/batch"));
    let (report, _) = nights.run(&[row(1, "b@x.io")]).await;
    assert_eq!(report.changes().refused(), 1, "{report}");
    nights.server.clear_faults();

    nights.run(&[row(1, "c@x.io")]).await;

    assert!(nights.is_opted_out("a@x.io") && nights.is_opted_out("b@x.io"));
    assert!(!nights.is_opted_out("c@x.io"));
}

#[tokio::test]
async fn a_name_of_a_lost_batch_is_replaced_although_an_old_address_was_left_in_the_same_run() {
    let nights = Nights::new().await;
    nights.run(&[named(1, "a@x.io", "Ada")]).await;
    let stays = Fault::status(501).path("/contacts/a@x.io/unsubscribe");
    nights.server.fault(stays);
    nights.run(&[named(1, "b@x.io", "Ada")]).await;
    nights.server.clear_faults();
    lose_batches(&nights, &[named(1, "b@x.io", "Eve")]).await;
    assert!(nights.is_opted_out("a@x.io"));

    nights.run(&[named(1, "b@x.io", "Ada")]).await;

    assert_eq!(name_of(&nights, "b@x.io"), "Ada");
}

#[tokio::test]
async fn a_contact_of_a_lost_batch_is_opted_out_if_its_row_was_not_passed_and_then_deleted_or_moved()
 {
    let later = [
        row(1, "b@x.io").deleted(true),
        row(1, "a@x.io").deleted(true),
        row(1, "c@x.io"),
        row(1, "a@x.io"),
    ];
    let not_passed = [
        vec![],
        vec![SyncRow::new(1, ImportRow::unreadable("an unknown word"))],
    ];
    for later in later {
        for table in &not_passed {
            let nights = Nights::new().await;
            nights.run(&[row(1, "a@x.io")]).await;
            let opt_out = nights.contacts.set_topic("a@x.io", "news", false);
            opt_out.await.unwrap();
            lose_batches(&nights, &[row(1, "b@x.io")]).await;
            let (_, calls) = nights.run(table).await;
            assert_eq!(calls, ["POST /b@x.io/unsubscribe news"]);
            assert!(nights.run(table).await.1.is_empty());

            nights.run(std::slice::from_ref(&later)).await;

            assert!(nights.is_opted_out("b@x.io"), "{later:?}");
            let stays = later == row(1, "a@x.io");
            assert_eq!(nights.is_opted_out("a@x.io"), !stays, "{later:?}");
            if later == row(1, "c@x.io") {
                let c = nights.contacts.retrieve("c@x.io").await.unwrap();
                assert!(!c.topics["news"] && !c.unsubscribed);
            }
        }
    }
}

#[tokio::test]
async fn the_opt_out_of_a_row_that_moves_reaches_its_new_contact_although_another_row_has_the_old_one()
 {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io"), row(2, "a@x.io")]).await;
    let table = [row(1, "b@x.io").subscribed(false), row(2, "a@x.io")];
    lose_batches(&nights, &table).await;

    nights.run(&table[1..]).await;

    assert!(nights.is_opted_out("b@x.io") && !nights.is_opted_out("a@x.io"));
}

#[tokio::test]
async fn the_opt_out_of_a_row_that_moves_reaches_its_new_contact_although_the_old_one_is_gone() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    nights.contacts.delete("a@x.io").await.unwrap();
    lose_batches(&nights, &[row(1, "b@x.io").subscribed(false)]).await;

    nights.run(&[]).await;

    assert!(nights.is_opted_out("b@x.io"));
}

#[tokio::test]
async fn the_opt_out_of_a_row_that_moves_is_in_the_state_before_the_first_request() {
    for is_stopped in [false, true] {
        let nights = Nights::new().await;
        nights.run(&[row(1, "a@x.io")]).await;
        nights
            .server
            .fault(Fault::status(501).path("/contacts/a@x.io"));
        let breaks = |sync: SyncContacts| match is_stopped {
            true => sync.stop_when(ready(())),
            false => sync,
        };
        let table = [row(1, "b@x.io").subscribed(false)];
        nights.run_with(&table, breaks).await;
        nights.server.clear_faults();

        nights.run(&[]).await;

        assert!(nights.is_opted_out("a@x.io"), "{is_stopped}");
    }
}

#[tokio::test]
async fn an_address_of_a_missing_row_is_opted_out_if_the_row_that_took_it_was_never_sent() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io"), row(9, "z@x.io")]).await;
    let table = [row(5, "a@x.io"), row(9, "z@x.io")];
    let stops = |sync: SyncContacts| sync.deletes_missing().stop_when(ready(()));
    nights.run_with(&table, stops).await;

    let (report, _) = nights
        .run_with(&table[1..], SyncContacts::deletes_missing)
        .await;

    assert_eq!(report.opted_out(), 1);
    assert!(nights.is_opted_out("a@x.io") && !nights.is_opted_out("z@x.io"));
    let (_, calls) = nights
        .run_with(&table[1..], SyncContacts::deletes_missing)
        .await;
    assert!(calls.is_empty(), "{calls:?}");
}

#[tokio::test]
async fn an_address_that_two_rows_leave_is_left_only_after_both_have_looked_at_it() {
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io"), row(2, "a@x.io")]).await;
    let table = [row(1, "b@x.io"), row(2, "c@x.io")];
    let second_look = Fault::status(500).path("/contacts/a@x.io");
    nights.server.fault(second_look.after(1).times(1));
    let (report, _) = nights.run_with(&table, once).await;
    assert!(!report.is_complete());
    nights.server.clear_faults();

    let (report, _) = nights.run(&table).await;

    assert!(report.is_complete(), "{report}");
    assert!(nights.is_opted_out("a@x.io"));
    assert!(!nights.is_opted_out("b@x.io") && !nights.is_opted_out("c@x.io"));
}

#[tokio::test]
async fn a_yes_before_a_late_opt_out_that_moves_with_the_row_is_told_and_no_opt_out_at_the_service()
{
    let nights = Nights::new().await;
    nights.run(&[row(1, "a@x.io")]).await;
    let fails = Fault::status(501).path("/contacts/a@x.io/unsubscribe");
    nights.server.fault(fails);
    nights.run(&[row(1, "b@x.io").subscribed(false)]).await;
    nights.server.clear_faults();

    let (report, _) = nights.run(&[row(1, "b@x.io")]).await;
    assert_eq!(report.opt_ins_not_sent(), 1);
    assert!(nights.is_opted_out("b@x.io"));

    let (report, _) = nights
        .run_with(&[row(1, "b@x.io")], SyncContacts::checks_list)
        .await;
    assert_eq!(report.opt_ins_not_sent(), 1);
    assert!(report.opted_out_at_service().is_empty());
}

#[tokio::test]
async fn a_name_that_a_lost_batch_wrote_to_a_new_address_is_cleared_and_no_other() {
    let nights = Nights::new().await;
    let nameless = |key, address: &str| SyncRow::new(key, address);
    nights
        .contacts
        .create(NewContact::new("d@x.io").first_name("Dan"))
        .await
        .unwrap();
    nights.run(&[named(1, "a@x.io", "Ada")]).await;
    lose_batches(&nights, &[named(1, "b@x.io", "Ada")]).await;
    assert_eq!(name_of(&nights, "b@x.io"), "Ada");
    nights.run(&[nameless(1, "b@x.io")]).await;
    assert_eq!(name_of(&nights, "b@x.io"), "");

    // The row has got its name together with its address.
    nights.run(&[nameless(2, "e@x.io")]).await;
    lose_batches(&nights, &[named(2, "f@x.io", "Eve")]).await;
    nights.run(&[nameless(2, "f@x.io")]).await;
    assert_eq!(name_of(&nights, "f@x.io"), "");

    // This name is of the service.
    nights.run(&[nameless(3, "c@x.io")]).await;
    lose_batches(&nights, &[nameless(3, "d@x.io")]).await;
    nights.run(&[nameless(3, "d@x.io")]).await;
    assert_eq!(name_of(&nights, "d@x.io"), "Dan");
}
