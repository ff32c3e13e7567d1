//! What the files say.

use std::collections::BTreeSet;
use std::fs;

use audience::RetryPolicy;
use audience::contacts::{Contact, ContactSummary};
use audience::export::{Csv, ExportColumn, JsonLines};
use audience::mock::{Fault, MockServer, Reason, SeedContact};
use futures_util::TryStreamExt;

use super::Folder;

async fn server() -> MockServer {
    MockServer::builder()
        .topic("news", true)
        .topic("offers", false)
        .seed_contact(
            SeedContact::new("ada@x.io")
                .first_name("Ada")
                .last_name("King, Countess")
                .property("seats", 3)
                .property("note", "says \"hi\"\nand -")
                .created_at(1_600_000_000)
                .unsubscribed(Reason::Preferences)
                .answer("offers", true),
        )
        .seed_contact(
            SeedContact::new("bob@x.io")
                .created_at(1_600_000_001)
                .unsubscribed(Reason::Complaint)
                .answer("news", false),
        )
        .seed_contact(
            SeedContact::new("eve@x.io")
                .property("rate", 1.5)
                .created_at(1_600_000_002),
        )
        .start()
        .await
}

#[test]
fn the_columns_of_a_csv_are_those_that_were_chosen() {
    let csv = Csv::new(["email", "topic:news"]);

    let topic = ExportColumn::Topic("news".to_owned());
    assert_eq!(csv.columns(), [ExportColumn::Email, topic]);
}

#[tokio::test]
async fn the_topics_of_a_full_csv_are_those_of_a_contact_that_still_exists() {
    let server = server().await;
    let folder = Folder::new("topics");
    let (contacts, path) = (server.client().contacts(), folder.file("all.csv"));
    let export = || contacts.list().export(&path, Csv::all_columns()).full();
    server.fault(Fault::status(404).path("/contacts/eve@x.io"));

    assert!(export().await.unwrap().is_complete());

    let text = fs::read_to_string(&path).unwrap();
    assert!(
        text.lines().next().unwrap().contains("topic:offers"),
        "{text}"
    );
    server.clear_faults();
    server.fault(Fault::status(403).path("/contacts/*"));
    let failed = export().await.unwrap_err();
    assert_eq!(failed.error().status().unwrap(), 403);
    // The other contacts are not asked for: the service would refuse them, too.
    let refused = server.requests().into_iter();
    let refused = refused.filter(|request| request.status == Some(403));
    let asked: BTreeSet<_> = refused.map(|request| request.path).collect();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}

#[tokio::test]
async fn the_topics_of_a_full_csv_are_found_with_the_settings_of_the_list() {
    let server = server().await;
    let folder = Folder::new("settings");
    let list = server.client().contacts().list().retry(RetryPolicy::none());
    server.fault(Fault::status(503).path("/contacts/*").times(1));

    let export = list.export(folder.file("all.csv"), Csv::all_columns());
    let failed = export.full().await.unwrap_err();

    assert_eq!(failed.error().status().unwrap(), 503);
}

#[tokio::test]
async fn a_full_csv_has_every_column_that_was_found() {
    let server = server().await;
    let folder = Folder::new("full-csv");
    let (contacts, path) = (server.client().contacts(), folder.file("all.csv"));

    let export = contacts.list().export(&path, Csv::all_columns());
    let report = export.full().await.unwrap();

    assert_eq!((report.contacts(), report.is_complete()), (3, true));
    assert_eq!(
        fs::read_to_string(path).unwrap(),
        concat!(
            "email,first_name,last_name,unsubscribed,unsubscribe_reason,created_at,",
            "topic:news,topic:offers,note,rate,seats\n",
            "eve@x.io,,,false,,2020-09-13T12:26:42Z,true,false,,1.5,\n",
            "bob@x.io,,,true,complaint,2020-09-13T12:26:41Z,false,false,,,\n",
            "ada@x.io,Ada,\"King, Countess\",true,preferences,2020-09-13T12:26:40Z,true,true,",
            "\"says \"\"hi\"\"\nand -\",,3\n",
        )
    );
}

#[tokio::test]
async fn json_lines_are_read_back_into_the_contacts_of_the_list() {
    let server = server().await;
    let folder = Folder::new("json-lines");
    let (contacts, path) = (server.client().contacts(), folder.file("all.jsonl"));
    let short: Vec<ContactSummary> = contacts.list().stream().try_collect().await.unwrap();
    let full: Vec<Contact> = contacts.list().full().try_collect().await.unwrap();

    assert!(
        contacts
            .list()
            .export(&path, JsonLines)
            .await
            .unwrap()
            .is_complete()
    );
    let read = fs::read_to_string(&path).unwrap();
    let read = read
        .lines()
        .map(|line| serde_json::from_str::<ContactSummary>(line).unwrap());
    assert_eq!(read.collect::<Vec<_>>(), short);

    let export = contacts.list().export(&path, JsonLines).full();
    assert!(export.await.unwrap().is_complete());
    let read = fs::read_to_string(&path).unwrap();
    let read = read
        .lines()
        .map(|line| serde_json::from_str::<Contact>(line).unwrap());
    assert_eq!(read.collect::<Vec<_>>(), full);
}

#[test]
fn a_blocking_export_writes_the_same_file() {
    let server = MockServer::builder()
        .seed_contact("0@x.io")
        .seed_contact("1@x.io")
        .start_blocking();
    let folder = Folder::new("blocking");
    let client = server.client();
    let path = folder.file("all.csv");

    let export = client.contacts().list().export(&path, Csv::new(["email"]));
    let report = export.full().concurrency(2).resume().wait().unwrap();

    assert_eq!(report.contacts(), 2);
    assert_eq!(fs::read_to_string(path).unwrap(), super::all_addresses(2));
}
