//! No output contains the API key, and none contains an address that the caller did not ask for.

use std::fmt::Debug;

use audience::contacts::Properties;
use audience::mock::{Fault, MockServer};
use audience::rule::{Condition, Rule};
use audience::{Auth, Client, ErrorKind, Method};
use futures_util::StreamExt;
use serde_json::json;

use support::operation::Operation;
use support::{ADA, KEY, builder, contact, ok, printed, respond_with, status, summary};

fn debug_text(value: &impl Debug) -> String {
    format!("{value:?} {value:#?}")
}

#[tokio::test]
async fn debug_output_contains_neither_the_key_nor_an_address() {
    let page = json!({"data": [summary("ada"), summary("bob")], "next": "ada"});
    let server = respond_with(ok(page)).await;
    let client = builder(server.uri())
        .auth(Auth::header("x-key"))
        .build()
        .unwrap();
    let contacts = client.contacts();
    let rule = Rule::all([Condition::property("mail").is(ADA)]);
    let list = contacts.list().query(ADA).rule(rule.clone());
    let mut stream = list.clone().stream();
    stream.next().await.unwrap().unwrap();
    let mut pages = list.clone().pages();
    pages.next().await.unwrap().unwrap();

    let all = [
        debug_text(&builder(server.uri())),
        debug_text(
            &builder(server.uri())
                .auth(Auth::header("x-key"))
                .user_agent("app"),
        ),
        debug_text(&client),
        debug_text(&contacts),
        debug_text(&list),
        debug_text(&list.clone().count()),
        debug_text(&contacts.merge_properties(ADA, Properties::from([("mail", ADA)]))),
        debug_text(&contacts.update(ADA).property("mail", ADA)),
        debug_text(&contacts.change_address(ADA, ADA)),
        debug_text(&contacts.delete(ADA)),
        debug_text(&contacts.find(ADA)),
        debug_text(&contacts.matches(ADA, rule.clone())),
        debug_text(&contacts.matches_each(ADA, [rule])),
        debug_text(
            &client
                .request(Method::POST, ["contacts", ADA])
                .json(ADA)
                .unwrap(),
        ),
        debug_text(&contacts.merge_properties(ADA, [("a", 1)]).await.unwrap()),
        debug_text(&stream),
        debug_text(&pages),
    ];

    let operations = Operation::ALL.map(|operation| operation.call(&client, ADA).debug_text);
    for text in operations.into_iter().chain(all) {
        assert!(!text.contains("hunter2"), "{text}");
        assert!(!text.contains("ada"), "{text}");
        assert!(!text.is_empty());
    }
}

#[test]
fn debug_output_of_an_iterator_contains_neither_the_key_nor_an_address() {
    let page = [summary("ada"), summary("bob")];
    let server = MockServer::builder().full_key(KEY).start_blocking();
    server.fault(Fault::wrong_body(
        json!({"data": page, "next": "ada"}).to_string(),
    ));
    let contacts = server.client().contacts();
    let mut iter = contacts.list().stream().wait();
    let read = iter.next();
    assert!(read.is_some_and(|contact| contact.is_ok()));

    let all = [
        debug_text(&iter),
        debug_text(&contacts.list().after(ADA).pages().wait()),
    ];

    for text in all {
        assert!(!text.contains("hunter2") && !text.contains("ada"), "{text}");
    }
}

#[tokio::test]
async fn a_key_echoed_by_the_service_is_not_in_the_error_text() {
    let echo =
        json!({"error": {"code": format!("bad key {KEY}"), "message": format!("bad key {KEY}")}});
    for response in [
        status(401).set_body_json(&echo).insert_header("x-key", KEY),
        status(302).insert_header("location", format!("https://example.org/?key={KEY}")),
        status(200).set_body_string(KEY),
        ok(echo),
    ] {
        let server = respond_with(response).await;

        let error = builder(server.uri())
            .build()
            .unwrap()
            .contacts()
            .retrieve(ADA)
            .await
            .unwrap_err();

        let text = printed(&error);
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[test]
fn an_error_of_the_builder_does_not_contain_the_key() {
    for (url, key) in [
        ("http://example.com", KEY),
        ("https://user:hunter2@example.com", KEY),
        ("https://example.com/?hunter2", KEY),
        ("hunter2", KEY),
        ("https://example.com", "hunter2\n"),
        ("https://example.com", "hunter2\u{0}"),
        ("https://example.com", " hunter2"),
    ] {
        let error = Client::new(url, key).unwrap_err();

        assert_eq!((error.kind(), error.attempts()), (ErrorKind::Config, 0));
        assert!(!printed(&error).contains("hunter2"), "{error:?}");
    }
}

#[tokio::test]
async fn a_returned_contact_prints_its_address_and_no_key() {
    let server = respond_with(ok(contact())).await;

    let contact = builder(server.uri())
        .build()
        .unwrap()
        .contacts()
        .retrieve(ADA)
        .await
        .unwrap();

    let text = debug_text(&contact);
    assert!(text.contains(ADA) && !text.contains("hunter2"));
}
