//! Exports that are imported into an empty audience.

use std::fs;
use std::path::Path;

use audience::contacts::Contact;
use audience::export::{Csv, Format, JsonLines};
use audience::import::{CsvRows, ImportReport, ImportRow};
use audience::mock::{Fault, MockServer, MockServerBuilder, Reason, SeedContact};
use serde_json::json;

use super::Folder;

fn empty() -> MockServerBuilder {
    MockServer::builder()
        .topic("news", true)
        .topic("offers", false)
        .topic("a, \"b\"; c:d", true)
}

/// An audience with every state of a contact.
async fn server() -> MockServer {
    let odd_names = [
        "email",
        "id",
        "created_at",
        "Surname",
        "Status",
        "opt-out",
        "import_key",
        "topic:news",
        "property:plan",
        "a;b;c;d;e;f;g;h;i;j;k",
        "=1+1",
        "Straße",
    ];
    let odd = odd_names.map(|name| (name, format!("value of {name}")));
    empty()
        .seed_contact(SeedContact::new("plain@x.io"))
        .seed_contact(
            SeedContact::new("names@x.io")
                .first_name("Ada")
                .last_name("King, \"Countess\"\r\nof Lovelace")
                .property("seats", 3)
                .property("rate", -1.5)
                .property("postcode", "01067")
                .property("note", "=1+1;\nx|y"),
        )
        .seed_contact(SeedContact::new("odd@x.io").properties(odd))
        .seed_contact(
            SeedContact::new("manual@x.io")
                .unsubscribed(Reason::Manual)
                .answer("news", true)
                .answer("offers", true),
        )
        .seed_contact(SeedContact::new("preferences@x.io").unsubscribed(Reason::Preferences))
        .seed_contact(SeedContact::new("complaint@x.io").unsubscribed(Reason::Complaint))
        .seed_contact(SeedContact::new("back@x.io").resubscribed(Reason::Manual))
        .seed_contact(
            SeedContact::new("topics@x.io")
                .answer("news", false)
                .answer("offers", true)
                .answer("a, \"b\"; c:d", false),
        )
        .start()
        .await
}

/// Exports all contacts in full, imports the file into an empty audience, and compares the two.
async fn carry_over(server: &MockServer, path: &Path, format: impl Into<Format>) -> MockServer {
    let list = server.client().contacts().list();
    assert!(
        list.export(path, format)
            .full()
            .await
            .unwrap()
            .is_complete()
    );
    let other = empty().start().await;

    let report = import(&other, path).await;

    let count = server.contact_count() as u64;
    assert_eq!(
        (report.created(), report.total()),
        (count, count),
        "{report}"
    );
    for expected in server.contacts() {
        let expected = retrieve(server, &expected.email).await;
        let found = retrieve(&other, &expected.email).await;
        assert_eq!(found.first_name, expected.first_name);
        assert_eq!(found.last_name, expected.last_name);
        assert_eq!(found.properties, expected.properties);
        assert_eq!(found.unsubscribed, expected.unsubscribed, "{}", found.email);
        let reason = |contact: &Contact| match &contact.unsubscribe_reason {
            Some(reason) if contact.unsubscribed => reason.as_str().replace("complaint", "manual"),
            _ => String::new(),
        };
        assert_eq!(reason(&found), reason(&expected), "{}", found.email);
        // A yes is not carried over: such a topic has its default.
        for (topic, answer) in &expected.topics {
            assert_eq!(
                found.topics[topic],
                *answer && topic != "offers",
                "{}",
                found.email
            );
        }
    }
    let mut requests = other.requests().into_iter();
    assert!(requests.all(|request| !request.path.ends_with("/subscribe")));
    other
}

async fn import(server: &MockServer, path: &Path) -> ImportReport {
    let contacts = server.client().contacts();
    if path.extension().is_some_and(|extension| extension == "csv") {
        return contacts.import(CsvRows::open(path).unwrap()).await.unwrap();
    }
    let text = fs::read_to_string(path).unwrap();
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let rows = lines
        .into_iter()
        .map(|line| ImportRow::from(serde_json::from_str::<Contact>(&line).unwrap()));
    contacts.import(rows).await.unwrap()
}

/// Exports the contacts in each format, and imports each file into an empty audience.
async fn copies(server: &MockServer, folder: &Folder) -> [(&'static str, MockServer); 2] {
    let copy = async |name: &'static str, format: Format| {
        let path = folder.file(name);
        let list = server.client().contacts().list();
        let exported = list.export(&path, format).full().await.unwrap();
        assert!(exported.is_complete(), "{name}");
        let other = empty().start().await;
        drop(import(&other, &path).await);
        (name, other)
    };
    [
        copy("all.csv", Csv::all_columns().into()).await,
        copy("all.jsonl", JsonLines.into()).await,
    ]
}

async fn retrieve(server: &MockServer, address: &str) -> Contact {
    server.client().contacts().retrieve(address).await.unwrap()
}

/// The address is suppressed all the same (interface section 3.1).
#[tokio::test]
async fn a_contact_that_reported_spam_is_not_subscribed_elsewhere_even_if_its_flag_is_false() {
    let folder = Folder::new("round-trip-complaint");
    let server = empty().seed_contact("a@x.io").start().await;
    let reported = json!({"id": "con_1", "email": "a@x.io", "unsubscribed": false, "unsubscribe_reason": "complaint",
        "created_at": 1, "topics": {"news": true}});
    let reported = Fault::wrong_body(reported.to_string());
    server.fault(reported.method("GET").path("/contacts/a@x.io"));

    for (name, other) in copies(&server, &folder).await {
        assert!(other.contact("a@x.io").unwrap().unsubscribed, "{name}");
    }
    let text = fs::read_to_string(folder.file("all.csv")).unwrap();
    assert!(text.contains(",true,complaint,"), "{text}");
}

#[tokio::test]
async fn a_contact_is_not_subscribed_elsewhere_to_a_topic_whose_answer_is_null() {
    let folder = Folder::new("round-trip-null");
    let server = empty().seed_contact("a@x.io").start().await;
    let shown = json!({"id": "con_1", "email": "a@x.io", "unsubscribed": false, "created_at": 1,
        "topics": {"news": null, "offers": false}});
    let shown = Fault::wrong_body(shown.to_string());
    server.fault(shown.method("GET").path("/contacts/a@x.io"));

    for (name, other) in copies(&server, &folder).await {
        assert!(!other.contact("a@x.io").unwrap().topics["news"], "{name}");
    }
}

#[tokio::test]
async fn an_audience_exported_as_json_lines_and_imported_is_the_same() {
    let folder = Folder::new("round-trip-json");
    let server = server().await;
    server.seed_contact(
        SeedContact::new("exact@x.io")
            .property("digits", "3")
            .property("space", " x "),
    );

    let _ = carry_over(&server, &folder.file("all.jsonl"), JsonLines).await;
}

#[tokio::test]
async fn an_audience_exported_as_csv_and_imported_is_the_same_without_a_mapping() {
    let folder = Folder::new("round-trip-csv");
    let server = server().await;
    let _ = carry_over(&server, &folder.file("all.csv"), Csv::all_columns()).await;
}

#[tokio::test]
async fn properties_named_like_the_columns_of_another_service_are_exported_and_imported() {
    let folder = Folder::new("round-trip-other-service");
    let names = [
        "LEID",
        "EUID",
        "REGION",
        "TIMEZONE",
        "UNSUB_TIME",
        "ADDED_TIME",
        "MODIFIED_TIME",
        "CONTACT_ID",
        "ALTERNATE_EMAILS",
        "CREATED_AT",
        "plan",
    ];
    let properties = names.map(|name| (name, format!("value of {name}")));
    let server = empty().seed_contact(SeedContact::new("ada@x.io").properties(properties));
    let server = server.start().await;
    let _ = carry_over(&server, &folder.file("all.csv"), Csv::all_columns()).await;
}

#[tokio::test]
async fn a_csv_with_properties_and_topics_as_json_is_imported_exactly() {
    let folder = Folder::new("round-trip-json-columns");
    let server = server().await;
    let exact = SeedContact::new("exact@x.io")
        .property("digits", "3")
        .property("space", " x ");
    server.seed_contact(exact.property("empty", "").property("huge", json!(1e300)));

    let columns = [
        "properties",
        "created_at",
        "email",
        "first_name",
        "last_name",
        "unsubscribed",
        "unsubscribe_reason",
        "topics",
        "id",
    ];
    let _ = carry_over(&server, &folder.file("all.csv"), Csv::new(columns)).await;
}

#[tokio::test]
async fn the_search_for_columns_goes_on_after_two_failures_and_not_after_three() {
    let server = server().await;
    for (failures, is_found) in [(2, true), (3, false)] {
        let folder = Folder::new(&format!("search-{failures}"));
        server.fault(Fault::status(401).times(failures));

        let list = server.client().contacts().list();
        let exported = list
            .export(folder.file("all.csv"), Csv::all_columns())
            .await;

        assert_eq!(exported.is_ok(), is_found, "{failures}");
    }
}
