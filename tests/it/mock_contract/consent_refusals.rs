//! Sections 4.5 and 4.6, and the defaults: what a consent call refuses, and in which order.

use serde_json::{Value, json};

use super::Api;

const ADA: &str = "ada@example.com";
const NOBODY: &str = "nobody@example.com";

fn api() -> Api {
    let api = Api::with(|builder| builder.topic("news", true));
    api.create(ADA);
    api
}

/// The status and slug of both consent calls to an address.
#[track_caller]
fn both_refused(api: &Api, address: &str, body: &Value, status: u16, slug: &str) {
    api.subscribe(address, body.clone()).refused(status, slug);
    api.unsubscribe(address, body.clone()).refused(status, slug);
}

#[test]
fn default_unknown_address_in_a_consent_call_is_404_and_nothing_is_made() {
    let api = api();

    for body in [json!({}), json!({"topic": "news"})] {
        both_refused(&api, NOBODY, &body, 404, "not_found");
    }
    api.unsubscribe(NOBODY, ()).refused(404, "not_found");
    api.subscribe(NOBODY, ()).refused(404, "not_found");

    assert_eq!(api.server.contact_count(), 1);
    api.get("/contacts/nobody%40example.com")
        .refused(404, "not_found");
}

#[test]
fn default_unknown_topic_is_404_in_both_calls_and_named() {
    let api = api();

    let subscribe = api
        .subscribe(ADA, json!({"topic": "weather"}))
        .refused(404, "not_found");
    let unsubscribe = api
        .unsubscribe(ADA, json!({"topic": "weather"}))
        .refused(404, "not_found");

    assert!(subscribe.contains("weather"), "{subscribe}");
    assert!(unsubscribe.contains("weather"), "{unsubscribe}");
}

#[test]
fn section_2_6_a_topic_is_identified_by_its_very_name() {
    let api = api();

    for name in ["News", "news ", "new"] {
        both_refused(&api, ADA, &json!({"topic": name}), 404, "not_found");
    }
}

#[test]
fn section_4_5_and_4_6_members_of_another_type_are_refused() {
    let api = api();
    let before = api.retrieve(ADA);

    for topic in [
        json!(5),
        json!(["news"]),
        json!({"name": "news"}),
        json!(true),
    ] {
        both_refused(&api, ADA, &json!({"topic": topic}), 422, "validation_error");
    }
    for reason in [json!(5), json!(["manual"]), json!({}), json!(false)] {
        api.unsubscribe(ADA, json!({"reason": reason}))
            .refused(422, "validation_error");
    }

    assert_eq!(api.retrieve(ADA), before);
}

#[test]
fn section_4_5_a_reason_that_is_not_named_is_refused() {
    let api = api();

    for reason in [
        "spam",
        "MANUAL",
        "Complaint",
        "COMPLAINT",
        " complaint",
        "complaint ",
    ] {
        api.unsubscribe(ADA, json!({"reason": reason}))
            .refused(422, "validation_error");
    }

    assert_eq!(api.retrieve(ADA)["unsubscribed"], false);
}

#[test]
fn section_4_5_and_4_6_a_body_that_is_no_json_object_is_refused() {
    let api = api();

    for body in ["[]", "5", "\"news\"", "{", "topic=news"] {
        api.subscribe(ADA, body).refused(422, "validation_error");
        api.unsubscribe(ADA, body).refused(422, "validation_error");
    }

    assert_eq!(api.retrieve(ADA)["unsubscribed"], false);
}

#[test]
fn default_order_of_refusals_a_body_comes_before_an_unknown_address() {
    let api = api();

    both_refused(&api, NOBODY, &json!({"topic": 5}), 422, "validation_error");
    both_refused(
        &api,
        NOBODY,
        &json!({"colour": "red"}),
        422,
        "validation_error",
    );
}

#[test]
fn default_order_of_refusals_a_declared_complaint_is_one_of_the_body_whoever_the_address() {
    let api = api();

    api.unsubscribe(NOBODY, json!({"reason": "complaint"}))
        .refused(422, "validation_error");
    api.unsubscribe(NOBODY, json!({"reason": "complaint", "topic": "weather"}))
        .refused(422, "validation_error");
}

#[test]
fn default_order_of_refusals_an_unknown_address_comes_before_an_unknown_topic() {
    let api = api();

    let message = api
        .subscribe(NOBODY, json!({"topic": "weather"}))
        .refused(404, "not_found");
    assert!(!message.contains("weather"), "{message}");
    let message = api
        .unsubscribe(NOBODY, json!({"topic": "weather"}))
        .refused(404, "not_found");
    assert!(!message.contains("weather"), "{message}");
}

#[test]
fn default_order_of_refusals_the_body_comes_before_the_complaint_lock() {
    let api = api();
    api.server.report_spam(ADA);

    api.subscribe(ADA, json!({"topic": 5}))
        .refused(422, "validation_error");
    api.subscribe(ADA, "{").refused(422, "validation_error");
}

#[test]
fn default_order_of_refusals_the_complaint_lock_comes_before_an_unknown_topic() {
    let api = api();
    api.server.report_spam(ADA);

    api.subscribe(ADA, json!({"topic": "weather"}))
        .refused(422, "failed_precondition");
}

#[test]
fn default_order_of_refusals_no_key_then_the_wrong_key_then_the_rest() {
    let api = api();

    for target in [
        "/contacts/nobody%40example.com/subscribe",
        "/contacts/nobody%40example.com/unsubscribe",
        "/contacts/batch",
        "/contacts",
    ] {
        api.request("POST", target)
            .without_key()
            .body("{")
            .send()
            .refused(401, "unauthorized");
        api.request("POST", target)
            .sending_key()
            .body("{")
            .send()
            .refused(403, "key_not_permitted");
    }
}
