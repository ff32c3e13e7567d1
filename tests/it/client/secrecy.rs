//! No key is ever printed, and no address where one did not ask for it.

use std::fmt::Debug;

use audience::contacts::{NewContact, Properties};
use audience::rule::{Condition, Rule};
use audience::{Auth, Client, ErrorKind, Method};
use futures_util::StreamExt;
use serde_json::json;

use crate::support::{ADA, KEY, builder, contact, ok, printed, respond_with, status, summary};

fn debugged(value: &impl Debug) -> String {
    format!("{value:?} {value:#?}")
}

#[tokio::test]
async fn neither_key_nor_address_stands_in_the_debug_form_of_anything_that_makes_a_call() {
    let page = json!({"data": [summary("c1")], "next": "c1"});
    let server = respond_with(ok(page)).await;
    let client = builder(server.uri())
        .auth(Auth::header("x-key"))
        .build()
        .unwrap();
    let contacts = client.contacts();
    let rule = Rule::all([Condition::property("mail").is(ADA)]);
    let list = contacts.list().query(ADA).rule(rule);
    let mut stream = list.clone().stream();
    stream.next().await.unwrap().unwrap();
    let mut pages = list.clone().pages();
    pages.next().await.unwrap().unwrap();

    let all = [
        debugged(&builder(server.uri())),
        debugged(
            &builder(server.uri())
                .auth(Auth::header("x-key"))
                .user_agent("app"),
        ),
        debugged(&client),
        debugged(&contacts),
        debugged(&contacts.create(NewContact::new(ADA))),
        debugged(&contacts.create(NewContact::new(ADA)).into_future()),
        debugged(&contacts.create_batch([NewContact::new(ADA)])),
        debugged(&contacts.retrieve(ADA)),
        debugged(&contacts.retrieve(ADA).into_future()),
        debugged(&list),
        debugged(&list.clone().count()),
        debugged(&contacts.subscribe(ADA)),
        debugged(&contacts.unsubscribe(ADA)),
        debugged(&contacts.merge_properties(ADA, Properties::from([("mail", ADA)]))),
        debugged(
            &client
                .request(Method::POST, ["contacts", ADA])
                .json(ADA)
                .unwrap(),
        ),
        debugged(&contacts.merge_properties(ADA, [("a", 1)]).await.unwrap()),
        debugged(&pages),
    ];

    for text in all {
        assert!(!text.contains("hunter2"), "{text}");
        assert!(!text.contains("ada"), "{text}");
        assert!(!text.is_empty());
    }
    let text = debugged(&stream);
    assert!(!text.contains("hunter2"), "{text}");
}

#[tokio::test]
async fn a_service_that_echoes_the_key_does_not_get_it_into_an_error_text() {
    let echo =
        json!({"error": {"code": format!("bad key {KEY}"), "message": format!("bad key {KEY}")}});
    for answer in [
        status(401).set_body_json(&echo).insert_header("x-key", KEY),
        status(302).insert_header("location", format!("https://example.org/?key={KEY}")),
        status(200).set_body_string(KEY),
        ok(echo),
    ] {
        let server = respond_with(answer).await;

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
fn a_client_that_cannot_be_built_does_not_print_its_key() {
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
async fn what_was_asked_for_may_be_printed_and_holds_no_key() {
    let server = respond_with(ok(contact())).await;

    let contact = builder(server.uri())
        .build()
        .unwrap()
        .contacts()
        .retrieve(ADA)
        .await
        .unwrap();

    let text = debugged(&contact);
    assert!(text.contains(ADA) && !text.contains("hunter2"));
}
