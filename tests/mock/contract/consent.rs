//! Sections 4.5 and 4.6: requests to subscribe and unsubscribe.

use serde_json::json;

use super::{Api, FULL, members};

const ADA: &str = "ada@example.com";
const CALLS: [&str; 2] = ["subscribe", "unsubscribe"];

fn api() -> Api {
    let api = Api::with(|builder| {
        builder
            .topic("news", true)
            .topic("a topic / ünïcode", false)
    });
    api.create(ADA);
    api
}

#[test]
fn section_4_5_and_4_6_the_body_is_optional() {
    let api = api();

    for call in CALLS {
        for body in ["", "{}"] {
            api.post(format!("/contacts/ada%40example.com/{call}"), body)
                .expect(200);
        }
    }
}

#[test]
fn section_4_5_and_4_6_a_request_without_content_length_has_an_empty_body() {
    let api = api();

    let response = api.send_raw(&format!(
        "POST /contacts/ada%40example.com/unsubscribe HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer {}\r\n\r\n",
        api.server.full_key()
    ));

    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    assert_eq!(api.retrieve(ADA)["unsubscribed"], true);
}

#[test]
fn section_4_5_and_4_6_the_response_is_the_full_contact() {
    let api = api();

    assert_eq!(members(&api.unsubscribe(ADA, ()).expect(200)), FULL);
    assert_eq!(
        members(&api.unsubscribe(ADA, json!({"topic": "news"})).expect(200)),
        FULL
    );
    assert_eq!(members(&api.subscribe(ADA, ()).expect(200)), FULL);
    assert_eq!(
        members(&api.subscribe(ADA, json!({"topic": "news"})).expect(200)),
        FULL
    );
}

#[test]
fn section_4_5_the_reason_is_manual_by_default() {
    let api = api();

    assert_eq!(
        api.unsubscribe(ADA, ()).expect(200)["unsubscribe_reason"],
        "manual"
    );
}

#[test]
fn section_4_5_and_4_6_a_topic_name_is_any_string() {
    let api = api();

    let on = api
        .subscribe(ADA, json!({"topic": "a topic / ünïcode"}))
        .expect(200);
    let off = api
        .unsubscribe(ADA, json!({"topic": "a topic / ünïcode"}))
        .expect(200);

    assert_eq!(on["topics"]["a topic / ünïcode"], true);
    assert_eq!(off["topics"]["a topic / ünïcode"], false);
}

#[test]
fn section_4_6_subscribe_refuses_a_reason() {
    let api = api();

    api.subscribe(ADA, json!({"reason": "manual"}))
        .refused(422, "validation_error");
}

#[test]
fn section_4_5_and_4_6_a_repeated_call_has_the_same_response() {
    let api = api();

    for body in [json!({}), json!({"topic": "news"})] {
        assert_eq!(
            api.unsubscribe(ADA, body.clone()).expect(200),
            api.unsubscribe(ADA, body.clone()).expect(200)
        );
        assert_eq!(
            api.subscribe(ADA, body.clone()).expect(200),
            api.subscribe(ADA, body).expect(200)
        );
    }
}
