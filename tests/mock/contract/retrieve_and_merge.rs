//! Sections 4.3 and 4.7: retrieve a contact, merge its properties.

use serde_json::{Value, json};

use super::Api;

const ADA: &str = "/contacts/ada%40example.com";

fn api_with_ada() -> (Api, Value) {
    let api = Api::with(|builder| builder.topic("news", true));
    let body = json!({"email": "ada@example.com", "first_name": "Ada", "properties": {"plan": "pro", "seats": 3}});
    api.post("/contacts", body).expect(201);
    let ada = api.retrieve("ada@example.com");
    (api, ada)
}

#[test]
fn section_4_3_the_response_is_the_full_contact_including_topics() {
    let (_api, ada) = api_with_ada();

    assert_eq!(
        ada,
        json!({
            "id": ada["id"], "email": "ada@example.com", "first_name": "Ada", "last_name": "",
            "properties": {"plan": "pro", "seats": 3}, "unsubscribed": false, "unsubscribe_reason": "",
            "created_at": super::NOW, "topics": {"news": true},
        })
    );
}

#[test]
fn section_4_3_an_unknown_address_is_404() {
    let (api, _) = api_with_ada();

    for address in [
        "bob@example.com",
        "ada@example.co",
        "da@example.com",
        "ada",
        "batch",
    ] {
        api.get(super::contact(address)).refused(404, "not_found");
    }
}

#[test]
fn section_4_7_patch_merges_properties_where_post_replaces_them() {
    let (api, mut expected) = api_with_ada();

    let merged = api
        .patch(ADA, json!({"properties": {"seats": 4, "city": "London"}}))
        .expect(200);

    expected["properties"] = json!({"plan": "pro", "seats": 4, "city": "London"});
    assert_eq!(
        merged, expected,
        "the response is the full contact, with no other change"
    );
    assert_eq!(api.retrieve("ada@example.com"), expected);
}

#[test]
fn default_patch_of_an_empty_object_changes_nothing() {
    let (api, ada) = api_with_ada();

    assert_eq!(api.patch(ADA, json!({"properties": {}})).expect(200), ada);
}

#[test]
fn default_patch_without_properties_is_422() {
    let (api, ada) = api_with_ada();

    for body in [
        "",
        "{}",
        "null",
        "[]",
        "{",
        r#"{"properties": null}"#,
        r#"{"properties": []}"#,
        r#"{"properties": "plan"}"#,
    ] {
        api.patch(ADA, body).refused(422, "validation_error");
    }

    assert_eq!(api.retrieve("ada@example.com"), ada);
}

#[test]
fn default_patch_accepts_the_same_values_as_a_create() {
    let (api, ada) = api_with_ada();

    for value in [json!(true), json!([1]), json!({"a": 1})] {
        api.patch(
            ADA,
            json!({"properties": {"city": "London", "other": value}}),
        )
        .refused(422, "validation_error");
    }

    assert_eq!(
        api.retrieve("ada@example.com"),
        ada,
        "a refused merge changes nothing"
    );
}

#[test]
fn default_patch_of_an_unknown_address_is_404_and_creates_nothing() {
    let (api, _) = api_with_ada();

    api.patch(
        "/contacts/bob%40example.com",
        json!({"properties": {"plan": "pro"}}),
    )
    .refused(404, "not_found");
    api.patch("/contacts/bob%40example.com", json!({}))
        .refused(422, "validation_error");

    assert_eq!(api.server.contact_count(), 1);
}

#[test]
fn section_4_7_a_deletion_is_501_and_deletes_nothing() {
    let (api, ada) = api_with_ada();

    for path in [
        ADA,
        "/contacts/nobody%40example.com",
        "/contacts",
        "/contacts?email=ada%40example.com",
        "/contacts/batch",
    ] {
        let message = api
            .request("DELETE", path)
            .body(json!({"email": ADA}))
            .send()
            .refused(501, "not_described");
        assert!(message.contains("`contact_deletion`"), "{message}");
        api.request("DELETE", path)
            .sending_key()
            .send()
            .refused(403, "key_not_permitted");
        api.request("DELETE", path)
            .without_key()
            .send()
            .refused(401, "unauthorized");
    }

    assert_eq!(api.retrieve("ada@example.com"), ada);
}

#[test]
fn section_4_7_likely_paths_of_what_the_document_only_names_are_501() {
    let (api, _) = api_with_ada();

    for path in [
        "/segments",
        "/segments/seg_1",
        "/segments/seg_1/contacts",
        "/topics",
        "/topics/news",
        "/webhooks",
        "/webhooks/wh_1/secret",
        "/webhook-endpoints/we_1",
        "/webhook_endpoints",
        "/endpoints",
        "/contacts/ada%40example.com/topics",
        "/contacts/ada%40example.com/segments/seg_1",
    ] {
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
            let request = || api.request(method, path).body(json!({}));
            let message = request().send().refused(501, "not_described");
            assert!(message.contains("segments, topics"), "{message}");
            request()
                .sending_key()
                .send()
                .refused(403, "key_not_permitted");
        }
    }
}
