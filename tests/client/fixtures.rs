//! The fixture files: one for each JSON form in the interface document, named after its section. Each is
//! read into the crate's types and written again without loss.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use audience::contacts::{
    BatchEntry, BatchOutcome, Contact, ContactRecord, ContactSummary, NewContact, OnConflict,
    OptOutReason, Page, Properties, PropertyValue, UnsubscribeReason,
};
use audience::rule::{Condition, Engagement, Rule};
use audience::{ErrorCode, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use wiremock::Request;

use support::{ADA, contact, contacts, ok, received, respond_with, status};

/// Every fixture; a test checks that the list is complete.
const FIXTURES: [&str; 14] = [
    "2.1-contact-complaint.json",
    "2.1-contact.json",
    "2.2-created.json",
    "2.3-list-item.json",
    "2.4-new-contact.json",
    "2.5-batch-results.json",
    "2.8-rule.json",
    "4.2-batch.json",
    "4.4-last-page.json",
    "4.4-page.json",
    "4.5-unsubscribe.json",
    "4.6-subscribe.json",
    "4.7-merge.json",
    "7-error.json",
];

fn directory() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("fixtures")
}

fn fixture(name: &str) -> Value {
    assert!(FIXTURES.contains(&name), "{name} is missing from FIXTURES");
    let text = std::fs::read(directory().join(name)).expect("the fixture file can be read");
    serde_json::from_slice(&text).expect("the fixture is valid JSON")
}

/// Reads a fixture into a type of the crate and asserts that writing it gives the same JSON.
fn read<T: Serialize + DeserializeOwned>(name: &str) -> T {
    let value = fixture(name);
    let read: T =
        serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(
        serde_json::to_value(&read).unwrap(),
        value,
        "{name} is written differently"
    );
    read
}

#[test]
fn every_fixture_is_in_the_list() {
    let files: BTreeSet<String> = std::fs::read_dir(directory())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".json"))
        .collect();

    assert_eq!(files, FIXTURES.map(str::to_owned).into());
}

#[test]
fn section_2_1_the_full_contact_is_read_and_written() {
    let ada: Contact = read("2.1-contact.json");
    assert_eq!(
        (ada.first_name.as_deref(), ada.unsubscribe_reason),
        (Some("Ada"), None)
    );
    assert_eq!(ada.properties["discount"], PropertyValue::Float(0.15));
    assert_eq!(ada.created_at, Timestamp::from_unix(1_700_000_000));

    let charles: Contact = read("2.1-contact-complaint.json");
    assert_eq!((charles.first_name, charles.last_name), (None, None));
    assert_eq!(
        charles.unsubscribe_reason,
        Some(UnsubscribeReason::Complaint)
    );
}

#[test]
fn section_2_2_the_created_contact_is_read_and_written() {
    let created: ContactRecord = read("2.2-created.json");

    assert_eq!(created.last_name.as_deref(), Some("Lovelace"));
}

#[test]
fn section_2_3_the_list_item_is_read_and_written() {
    let item: ContactSummary = read("2.3-list-item.json");

    assert_eq!((item.id.as_str(), item.unsubscribed), ("con_7", false));
}

#[test]
fn section_2_4_the_new_contact_is_read_and_written() {
    let properties =
        Properties::from_iter([("plan", "pro".into()), ("seats", PropertyValue::from(3))]);
    let built = NewContact::new(ADA)
        .first_name("Ada")
        .last_name("Lovelace")
        .properties(properties)
        .on_conflict(OnConflict::Skip);

    assert_eq!(read::<NewContact>("2.4-new-contact.json"), built);
}

#[tokio::test]
async fn section_2_5_and_4_2_the_batch_is_sent_and_its_results_are_read() {
    let results = fixture("2.5-batch-results.json");
    for entry in results["data"].as_array().unwrap() {
        let read: BatchEntry = serde_json::from_value(entry.clone()).unwrap();
        assert_eq!(&serde_json::to_value(&read).unwrap(), entry);
    }
    let batch: Vec<NewContact> = read("4.2-batch.json");
    let others = &results["data"].as_array().unwrap()[batch.len()..];
    let others: Vec<_> = others
        .iter()
        .map(|entry| NewContact::new(entry["email"].as_str().unwrap()))
        .collect();
    let server = respond_with(ok(&results)).await;

    let report = contacts(server.uri())
        .create_batch(batch.iter().chain(&others))
        .await
        .unwrap();

    assert_eq!(report.entries[2].outcome, BatchOutcome::Skipped);
    assert_eq!(
        report
            .failures()
            .map(|(index, _)| index)
            .collect::<Vec<_>>(),
        [3, 4, 5]
    );
    let sent: Vec<Value> = received(&server).await[0].body_json().unwrap();
    assert_eq!(Value::from(&sent[..3]), fixture("4.2-batch.json"));
}

#[test]
fn section_2_8_the_rule_is_read_and_written() {
    let rule: Rule = read("2.8-rule.json");

    let [first, .., last] = rule.conditions() else {
        panic!("{rule:?}")
    };
    assert_eq!(first, &Condition::property("plan").is("pro"));
    assert_eq!(last, &Condition::joined_before_days(365));
    assert_eq!(
        rule.conditions()[11],
        Condition::engagement(Engagement::Opened).within_days(30)
    );
    let printed = format!("{rule:?}");
    assert!(
        !printed.contains("Raw("),
        "every condition of the document has a type: {printed}"
    );
}

#[test]
fn section_4_4_a_page_and_the_last_page_are_read_and_written() {
    let page: Page = read("4.4-page.json");
    assert_eq!((page.data.len(), page.next.as_deref()), (2, Some("con_7")));

    let last: Page = read("4.4-last-page.json");
    assert_eq!((last.data.len(), last.next), (0, None));
}

#[tokio::test]
async fn sections_4_5_to_4_7_consent_calls_and_merges_send_these_bodies() {
    let server = respond_with(|request: &Request| {
        let mut contact = contact();
        contact["topics"]["news"] = request.url.path().ends_with("/subscribe").into();
        ok(contact)
    })
    .await;
    let contacts = contacts(server.uri());
    let properties =
        Properties::from_iter([("plan", "pro".into()), ("seats", PropertyValue::from(3))]);

    contacts
        .unsubscribe(ADA)
        .reason(OptOutReason::Preferences)
        .topic("news")
        .await
        .unwrap();
    contacts.subscribe(ADA).topic("news").await.unwrap();
    contacts.merge_properties(ADA, properties).await.unwrap();

    let sent: Vec<Value> = received(&server)
        .await
        .iter()
        .map(|request| request.body_json().unwrap())
        .collect();
    assert_eq!(
        sent,
        [
            "4.5-unsubscribe.json",
            "4.6-subscribe.json",
            "4.7-merge.json"
        ]
        .map(fixture)
    );
}

#[tokio::test]
async fn section_7_an_error_is_read() {
    let server = respond_with(status(404).set_body_json(fixture("7-error.json"))).await;

    let error = contacts(server.uri())
        .unsubscribe(ADA)
        .topic("gossip")
        .await
        .unwrap_err();

    assert_eq!(error.code(), Some(&ErrorCode::NotFound));
    assert_eq!(
        error.api().unwrap().message(),
        Some("there is no topic of the name gossip")
    );
}
