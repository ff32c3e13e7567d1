//! Sections 4.5 and 4.6, and the defaults: which requests a consent call refuses, and in which order.

use serde_json::{Value, json};

use super::{Api, Body};

const ADA: &str = "ada@example.com";
const NOBODY: &str = "nobody@example.com";

fn api() -> Api {
    let api = Api::with(|builder| builder.topic("news", true));
    api.create(ADA);
    api
}

/// Asserts that both consent calls refuse this body for this address.
#[track_caller]
fn both_refuse(api: &Api, address: &str, body: &Value, status: u16, slug: &str) {
    api.subscribe(address, body.clone()).refused(status, slug);
    api.unsubscribe(address, body.clone()).refused(status, slug);
}

#[test]
fn default_a_consent_call_for_an_unknown_address_is_404_and_creates_nothing() {
    let api = api();

    for body in [json!({}), json!({"topic": "news"})] {
        both_refuse(&api, NOBODY, &body, 404, "not_found");
    }
    api.unsubscribe(NOBODY, ()).refused(404, "not_found");
    api.subscribe(NOBODY, ()).refused(404, "not_found");

    assert_eq!(api.server.contact_count(), 1);
    api.get("/contacts/nobody%40example.com")
        .refused(404, "not_found");
}

#[test]
fn default_an_unknown_topic_is_404_in_both_calls_and_is_named() {
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
fn section_2_6_a_topic_is_identified_by_its_exact_name() {
    let api = api();

    for name in ["News", "news ", "new"] {
        both_refuse(&api, ADA, &json!({"topic": name}), 404, "not_found");
    }
}

#[test]
fn section_4_5_and_4_6_members_of_the_wrong_type_are_refused() {
    let api = api();
    let before = api.retrieve(ADA);

    for topic in [
        json!(5),
        json!(["news"]),
        json!({"name": "news"}),
        json!(true),
    ] {
        both_refuse(&api, ADA, &json!({"topic": topic}), 422, "validation_error");
    }
    for reason in [json!(5), json!(["manual"]), json!({}), json!(false)] {
        api.unsubscribe(ADA, json!({"reason": reason}))
            .refused(422, "validation_error");
    }

    assert_eq!(api.retrieve(ADA), before);
}

#[test]
fn section_4_5_a_reason_that_is_not_in_the_document_is_refused() {
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
fn section_4_5_and_4_6_a_body_that_is_not_a_json_object_is_refused() {
    let api = api();

    for body in ["[]", "5", "\"news\"", "{", "topic=news"] {
        api.subscribe(ADA, body).refused(422, "validation_error");
        api.unsubscribe(ADA, body).refused(422, "validation_error");
    }

    assert_eq!(api.retrieve(ADA)["unsubscribed"], false);
}

#[test]
fn default_a_topic_in_the_query_is_422_and_changes_no_consent() {
    let api = api();
    api.unsubscribe(ADA, ()).expect(200);
    let before = api.retrieve(ADA);

    for call in ["subscribe", "unsubscribe"] {
        let message = api
            .post(format!("/contacts/ada%40example.com/{call}?topic=news"), ())
            .refused(422, "validation_error");
        assert!(message.contains("`topic`"), "{message}");
    }

    assert_eq!(api.retrieve(ADA), before);
}

#[test]
fn default_an_unknown_query_parameter_is_422_in_each_request_that_the_document_describes() {
    let api = api();

    for (method, path, body) in [
        ("POST", "/contacts", Body::from(json!({"email": NOBODY}))),
        ("POST", "/contacts/batch", json!([{"email": NOBODY}]).into()),
        ("GET", "/contacts/ada%40example.com", ().into()),
        (
            "PATCH",
            "/contacts/ada%40example.com",
            json!({"properties": {"plan": "pro"}}).into(),
        ),
    ] {
        let message = api
            .request(method, format!("{path}?color=red"))
            .body(body)
            .send()
            .refused(422, "validation_error");
        assert!(message.contains("`color`"), "{message}");
    }
    api.post("/contacts/ada%40example.com/subscribe?", ())
        .expect(200);

    assert_eq!(api.server.contact_count(), 1);
    assert_eq!(api.retrieve(ADA)["properties"], json!({}));
}

#[test]
fn default_order_of_refusals_an_invalid_body_comes_before_an_unknown_address() {
    let api = api();

    both_refuse(&api, NOBODY, &json!({"topic": 5}), 422, "validation_error");
    both_refuse(
        &api,
        NOBODY,
        &json!({"color": "red"}),
        422,
        "validation_error",
    );
}

#[test]
fn default_order_of_refusals_a_declared_complaint_comes_before_an_unknown_address() {
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
fn default_order_of_refusals_an_invalid_body_comes_before_the_complaint_lock() {
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
fn default_order_of_refusals_a_missing_or_wrong_key_comes_first() {
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

#[test]
fn section_7_the_error_names_the_topic_as_it_is() {
    let api = Api::start();
    api.create(ADA);

    for (topic, named) in [
        ("Ada's news", "Ada's news"),
        (r#"the "best" \ offers"#, r#"the "best" \ offers"#),
        ("e\u{301}te\u{301} 🎉", "e\u{301}te\u{301} 🎉"),
        ("line\nfeed\u{0}\u{7f}", r"line\nfeed\0\u{7f}"),
        ("I ❤\u{fe0f} news", "I ❤\u{fe0f} news"),
    ] {
        for message in [
            api.subscribe(ADA, json!({ "topic": topic }))
                .refused(404, "not_found"),
            api.unsubscribe(ADA, json!({ "topic": topic }))
                .refused(404, "not_found"),
        ] {
            assert_eq!(message, format!("there is no topic `{named}`"));
        }
    }
}
