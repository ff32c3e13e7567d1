//! What the document leaves open: the defaults of the mock that no other file here tests.

use audience::mock::MockServer;
use serde_json::json;

use super::{Api, members};

const ADA: &str = "ada@example.com";

#[test]
fn default_an_error_body_has_a_code_and_a_message() {
    let body = Api::start()
        .get("/contacts/nobody%40example.com")
        .expect(404);

    assert_eq!(members(&body), ["error"]);
    assert_eq!(members(&body["error"]), ["code", "message"]);
    assert_eq!(body["error"]["code"], "not_found");
    assert!(body["error"]["message"].is_string());
}

#[test]
fn default_the_success_status_of_retrieve_list_consent_and_patch_is_200() {
    let api = Api::start();
    api.create(ADA);

    api.get("/contacts/ada%40example.com").expect(200);
    api.get("/contacts").expect(200);
    api.unsubscribe(ADA, ()).expect(200);
    api.subscribe(ADA, ()).expect(200);
    api.patch("/contacts/ada%40example.com", json!({"properties": {}}))
        .expect(200);
}

#[test]
fn default_the_unsubscribe_reason_after_a_global_subscribe_is_empty() {
    for reason in ["manual", "preferences"] {
        let api = Api::start();
        api.create(ADA);
        api.unsubscribe(ADA, json!({"reason": reason})).expect(200);

        assert_eq!(api.subscribe(ADA, ()).expect(200)["unsubscribe_reason"], "");
    }
}

#[test]
fn default_unsubscribing_a_complaint_contact_succeeds_and_keeps_the_reason() {
    for body in [
        "",
        "{}",
        r#"{"reason": "manual"}"#,
        r#"{"reason": "preferences"}"#,
    ] {
        let api = Api::start();
        api.create(ADA);
        api.server.report_spam(ADA);

        let response = api.unsubscribe(ADA, body).expect(200);

        assert_eq!(
            (&response["unsubscribed"], &response["unsubscribe_reason"]),
            (&json!(true), &json!("complaint"))
        );
        api.subscribe(ADA, ()).refused(422, "failed_precondition");
    }
}

#[test]
fn default_an_upsert_keeps_names_and_properties_it_omits() {
    let api = Api::start();
    let full = json!({"email": ADA, "first_name": "Ada", "last_name": "Lovelace", "properties": {"plan": "pro"}});
    let before = api.post("/contacts", full).expect(201);

    assert_eq!(
        api.post("/contacts", json!({"email": ADA})).expect(200),
        before
    );
    api.post("/contacts/batch", json!([{"email": ADA}]))
        .expect(200);
    assert_eq!(
        api.post("/contacts", json!({"email": ADA})).expect(200),
        before
    );
}

#[test]
fn default_empty_properties_in_an_upsert_clear_them() {
    let api = Api::start();
    api.create_with(ADA, json!({"plan": "pro"}));

    let after = api
        .post("/contacts", json!({"email": ADA, "properties": {}}))
        .expect(200);

    assert_eq!(after["properties"], json!({}));
}

#[test]
fn default_an_empty_name_in_an_upsert_clears_it() {
    let api = Api::start();
    api.post("/contacts", json!({"email": ADA, "first_name": "Ada"}))
        .expect(201);

    assert_eq!(
        api.post("/contacts", json!({"email": ADA, "first_name": ""}))
            .expect(200)["first_name"],
        ""
    );
}

#[test]
fn default_a_missing_name_is_an_empty_string_in_each_form() {
    let api = Api::start();

    let created = api.create(ADA);
    let full = api.retrieve(ADA);
    let item = &api.get("/contacts").expect(200)["data"][0];

    for name in [
        &created["first_name"],
        &created["last_name"],
        &full["first_name"],
        &full["last_name"],
        &item["first_name"],
    ] {
        assert_eq!(name, "");
    }
}

#[test]
fn default_property_values_other_than_strings_and_numbers_are_422() {
    let api = Api::start();

    for value in [
        json!(true),
        json!(false),
        json!(null),
        json!([]),
        json!(["a"]),
        json!({}),
        json!({"a": 1}),
    ] {
        let body = json!({"email": ADA, "properties": {"fine": 1, "color": value}});
        let message = api
            .post("/contacts", body.clone())
            .refused(422, "validation_error");
        assert!(message.contains("color"), "{message}");
        let report = api.post("/contacts/batch", json!([body])).expect(200);
        assert_eq!(report["data"][0]["status"], "validation_error");
    }

    assert_eq!(api.server.contact_count(), 0);
}

#[test]
fn default_subscribing_a_subscribed_contact_succeeds_and_changes_nothing() {
    let api = Api::with(|builder| builder.topic("news", true));
    api.create(ADA);
    let before = api.retrieve(ADA);

    assert_eq!(api.subscribe(ADA, ()).expect(200), before);
    assert_eq!(
        api.subscribe(ADA, json!({"topic": "news"})).expect(200),
        before
    );
}

#[test]
fn default_an_unknown_member_is_422_and_is_named() {
    let api = Api::start();
    api.create(ADA);
    let before = api.retrieve(ADA);

    for message in [
        api.post("/contacts", json!({"email": ADA, "color": "red"}))
            .refused(422, "validation_error"),
        api.subscribe(ADA, json!({"color": "red"}))
            .refused(422, "validation_error"),
        api.unsubscribe(ADA, json!({"color": "red"}))
            .refused(422, "validation_error"),
        api.patch(
            "/contacts/ada%40example.com",
            json!({"properties": {}, "color": "red"}),
        )
        .refused(422, "validation_error"),
    ] {
        assert!(message.contains("color"), "{message}");
    }

    assert_eq!(api.retrieve(ADA), before);
}

#[test]
fn default_an_unknown_on_conflict_is_422() {
    let api = Api::start();

    for on_conflict in [json!("replace"), json!("UPSERT"), json!(""), json!(5)] {
        let message = api
            .post(
                "/contacts",
                json!({"email": ADA, "on_conflict": on_conflict}),
            )
            .refused(422, "validation_error");
        assert!(message.contains("on_conflict"), "{message}");
    }

    assert_eq!(api.server.contact_count(), 0);
}

#[test]
fn default_every_server_assigns_the_same_ids() {
    let ids = || {
        let api = Api::start();
        [
            api.create("a@example.com")["id"].clone(),
            api.create("b@example.com")["id"].clone(),
        ]
    };

    assert_eq!(ids(), ids());
}

#[tokio::test]
async fn default_contact_operations_send_no_events() {
    let server = MockServer::start().await;
    server.webhook_endpoint("http://127.0.0.1:9/", "whsec_test");
    let api = Api {
        server,
        dialect: audience::mock::Dialect::default(),
    };

    api.create(ADA);
    api.post("/contacts/batch", json!([{"email": ADA}]))
        .expect(200);
    api.unsubscribe(ADA, ()).expect(200);
    api.subscribe(ADA, ()).expect(200);
    api.patch("/contacts/ada%40example.com", json!({"properties": {}}))
        .expect(200);
    api.server
        .advance(std::time::Duration::from_secs(3600))
        .await;

    assert!(api.server.attempts().is_empty());
}
