//! Rows of one address apply in input order.

use std::collections::HashSet;
use std::time::Duration;

use audience::contacts::NewContact;
use audience::mock::{Fault, MockServer};
use serde_json::{Value, json};

use super::{batches, contacts, counts, numbered};
use support::in_time;

#[tokio::test]
async fn the_last_row_of_an_address_wins_whatever_runs_in_parallel_and_in_any_spelling() {
    let server = MockServer::start().await;
    // Batches that fail late and are sent again: later ones would overtake them.
    for after in [0, 4, 9] {
        let fault = Fault::status(503).delayed_by(Duration::from_millis(30));
        server.fault(fault.after(after).times(1));
    }
    let spellings = [" Ada@X.io ", "ada@x.io", "ADA@X.IO"];
    let rows = numbered(2_000)
        .enumerate()
        .map(move |(n, row)| match n % 90 {
            0 => NewContact::new(spellings[n % 3]).property("n", n),
            _ => row,
        });

    let report = in_time(contacts(&server).import(rows)).await.unwrap();

    assert_eq!(report.total(), 2_000);
    assert_eq!((report.updated(), report.refused()), (22, 0));
    let ada = server.contact("ada@x.io").unwrap();
    assert_eq!(ada.properties["n"], json!(22 * 90));
    let applied = server
        .requests()
        .into_iter()
        .filter(|request| request.status == Some(200));
    let entries =
        applied.flat_map(|request| serde_json::from_slice::<Vec<Value>>(&request.body).unwrap());
    let ada = entries.filter(|entry| spellings.contains(&entry["email"].as_str().unwrap()));
    let order: Vec<_> = ada
        .map(|entry| entry["properties"]["n"].as_u64().unwrap())
        .collect();
    assert_eq!(order, (0..23).map(|n| n * 90).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_file_with_one_address_only_is_sent_in_order() {
    let server = MockServer::start().await;
    let rows = (0..1_050).map(|n| NewContact::new("ada@x.io").property("n", n));

    let report = in_time(contacts(&server).import(rows)).await.unwrap();

    assert_eq!(counts(&report), [1, 1_049, 0, 0, 0, 0]);
    let ada = server.contact("ada@x.io").unwrap();
    assert_eq!(ada.properties["n"], json!(1_049));
    assert_eq!(batches(&server).len(), 11);
}

#[tokio::test]
async fn every_row_is_sent_once_in_full_batches() {
    let server = MockServer::start().await;

    let report = in_time(contacts(&server).import(numbered(950)))
        .await
        .unwrap();

    assert_eq!(counts(&report), [950, 0, 0, 0, 0, 0]);
    let batches = batches(&server);
    assert_eq!(batches.len(), 10);
    let addresses: HashSet<_> = batches.iter().flatten().collect();
    assert_eq!(addresses.len(), 950);
}

#[tokio::test]
async fn after_a_row_that_may_be_sent_again_later_rows_of_its_address_are_not_sent() {
    let server = MockServer::start().await;
    // The first batch is applied, but nobody knows.
    server.fault(Fault::close_after().path("/contacts/batch").times(4));
    let ada = |n: usize| NewContact::new("ada@x.io").property("n", n);
    let rows = std::iter::once(ada(0)).chain(numbered(150)).chain([ada(1)]);

    let report = in_time(contacts(&server).import(rows).concurrency(1))
        .await
        .unwrap();

    // 51 rows are in the second batch. The last of the file is not.
    assert_eq!(counts(&report), [51, 0, 0, 0, 1, 100]);
    assert_eq!(
        server.contact("ada@x.io").unwrap().properties["n"],
        json!(0)
    );
}
