//! Section 4.1: create a contact.

use serde_json::json;

use super::{Api, NOW, members};

#[test]
fn section_4_1_the_status_is_201_when_created_and_200_when_the_address_already_existed() {
    let api = Api::start();
    let ada = json!({"email": "ada@example.com"});

    api.post("/contacts", ada.clone()).expect(201);
    api.post("/contacts", ada).expect(200);
}

#[test]
fn section_4_1_the_response_is_the_create_form_both_times() {
    let api = Api::start();
    let ada = json!({"email": "ada@example.com", "first_name": "Ada", "last_name": "Lovelace", "properties": {"plan": "pro"}});

    let created = api.post("/contacts", ada.clone()).expect(201);
    let updated = api.post("/contacts", ada).expect(200);

    assert_eq!(
        created,
        json!({
            "id": created["id"], "email": "ada@example.com", "first_name": "Ada", "last_name": "Lovelace",
            "properties": {"plan": "pro"}, "unsubscribed": false, "created_at": NOW,
        })
    );
    assert_eq!(updated, created);
}

#[test]
fn section_4_1_rule_1_repeating_the_call_keeps_one_contact() {
    let api = Api::start();

    let first = api.create("ada@example.com");
    for spelling in ["ada@example.com", "ADA@example.com", " Ada@Example.Com\t"] {
        let again = api
            .post("/contacts", json!({"email": spelling}))
            .expect(200);
        assert_eq!(again["id"], first["id"]);
    }

    assert_eq!(api.listed(&[]), ["ada@example.com"]);
}

#[test]
fn section_4_1_rule_2_upsert_updates_the_stored_contact() {
    let api = Api::start();
    let before = api.create("ada@example.com");
    api.server.advance(std::time::Duration::from_secs(60));

    let body = json!({"email": "ada@example.com", "first_name": "Ada", "last_name": "King", "on_conflict": "upsert"});
    let after = api.post("/contacts", body).expect(200);

    assert_eq!(
        (&after["first_name"], &after["last_name"]),
        (&json!("Ada"), &json!("King"))
    );
    assert_eq!(
        (&after["id"], &after["created_at"]),
        (&before["id"], &before["created_at"])
    );
    assert_eq!(api.retrieve("ada@example.com")["last_name"], "King");
}

#[test]
fn section_4_1_rule_2_upsert_is_the_default() {
    let api = Api::start();
    api.create("ada@example.com");

    api.post(
        "/contacts",
        json!({"email": "ada@example.com", "first_name": "Ada"}),
    )
    .expect(200);

    assert_eq!(api.retrieve("ada@example.com")["first_name"], "Ada");
}

#[test]
fn section_4_1_rule_2_upsert_replaces_properties_as_a_whole() {
    let api = Api::start();
    api.create_with("ada@example.com", json!({"plan": "pro", "seats": 3}));

    let body = json!({"email": "ada@example.com", "properties": {"seats": 4, "city": "London"}});
    let after = api.post("/contacts", body).expect(200);

    assert_eq!(after["properties"], json!({"seats": 4, "city": "London"}));
    assert_eq!(
        api.retrieve("ada@example.com")["properties"],
        after["properties"]
    );
}

#[test]
fn section_4_1_rule_3_skip_returns_the_stored_contact_untouched() {
    let api = Api::start();
    let before = api.create_with("ada@example.com", json!({"plan": "pro"}));
    let stored = api.retrieve("ada@example.com");

    let body = json!({
        "email": "ada@example.com", "first_name": "Eve", "last_name": "Eve", "properties": {}, "on_conflict": "skip",
    });
    let after = api.post("/contacts", body).expect(200);

    assert_eq!(after, before);
    assert_eq!(api.retrieve("ada@example.com"), stored);
}

#[test]
fn section_4_1_rule_4_error_is_409_already_exists_if_the_address_exists() {
    let api = Api::start();
    api.create_with("ada@example.com", json!({"plan": "pro"}));
    let stored = api.retrieve("ada@example.com");

    let body = json!({"email": "Ada@Example.com", "first_name": "Eve", "properties": {}, "on_conflict": "error"});
    api.post("/contacts", body).refused(409, "already_exists");

    assert_eq!(api.retrieve("ada@example.com"), stored);
}

#[test]
fn section_2_4_on_conflict_applies_only_when_the_address_already_exists() {
    let api = Api::start();

    for on_conflict in ["upsert", "skip", "error"] {
        let body =
            json!({"email": format!("{on_conflict}@example.com"), "on_conflict": on_conflict});
        api.post("/contacts", body).expect(201);
    }
}

#[test]
fn section_4_1_refusal_422_email_is_not_an_address() {
    let api = Api::start();

    for invalid in [
        "",
        "   ",
        "ada",
        "@example.com",
        "ada@",
        "ada@@example.com",
        "ada lovelace@example.com",
        "a@b@c.io",
        "ada@exa mple.com",
        "ada@example.com\n x",
        "a@.",
        "a@.io",
        "a@x.",
        "a@x..io",
        "<a@x.io>",
        "Ada <a@x.io>",
        "a@x.io>",
        "a@x.io,",
        "a@x.io;",
        "a,b@x.io",
        "mailto:a@x.io",
        "a@x.io?subject=hi",
        "(home)a@x.io",
        "a\"b@x.io",
        "\"@x.io",
        "\"\"@x.io",
        "a\\@x.io",
    ] {
        let message = api
            .post("/contacts", json!({"email": invalid}))
            .refused(422, "validation_error");
        assert!(message.contains("email"), "{message}");
    }
    for invalid in [json!(null), json!(5), json!(["ada@example.com"]), json!({})] {
        api.post("/contacts", json!({"email": invalid}))
            .refused(422, "validation_error");
    }
    api.post("/contacts", json!({"first_name": "Ada"}))
        .refused(422, "validation_error");

    assert_eq!(api.server.contact_count(), 0);
}

#[test]
fn section_4_1_refusal_422_properties_is_not_a_json_object() {
    let api = Api::start();

    for invalid in [
        json!([]),
        json!("plan"),
        json!(3),
        json!(true),
        json!([["plan", "pro"]]),
    ] {
        let body = json!({"email": "ada@example.com", "properties": invalid});
        let message = api.post("/contacts", body).refused(422, "validation_error");
        assert!(message.contains("properties"), "{message}");
    }

    assert_eq!(api.server.contact_count(), 0);
}

#[test]
fn section_4_1_refusal_402_quota_exceeded() {
    let api = Api::with(|builder| builder.contact_ceiling(1));
    api.create("ada@example.com");

    api.post("/contacts", json!({"email": "bob@example.com"}))
        .refused(402, "quota_exceeded");

    assert_eq!(api.listed(&[]), ["ada@example.com"]);
}

#[test]
fn section_4_1_refusal_403_key_not_permitted() {
    let api = Api::start();

    api.request("POST", "/contacts")
        .sending_key()
        .body(json!({"email": "ada@example.com"}))
        .send()
        .refused(403, "key_not_permitted");

    assert_eq!(api.server.contact_count(), 0);
}

#[test]
fn section_2_4_names_of_the_wrong_type_are_refused() {
    let api = Api::start();

    for name in ["first_name", "last_name"] {
        for value in [json!(5), json!(["Ada"]), json!({}), json!(true)] {
            let message = api
                .post(
                    "/contacts",
                    json!({"email": "ada@example.com", name: value}),
                )
                .refused(422, "validation_error");
            assert!(message.contains(name), "{message}");
        }
    }
}

#[test]
fn section_4_1_a_body_that_is_not_a_json_object_is_refused() {
    let api = Api::start();

    for body in [
        "",
        "null",
        "[]",
        "\"ada@example.com\"",
        "5",
        "{",
        "{\"email\": \"ada@example.com\"} x",
        "{'email': 'ada@example.com'}",
    ] {
        api.post("/contacts", body).refused(422, "validation_error");
    }
}

#[test]
fn section_4_1_an_upsert_does_not_change_consent() {
    let api = Api::with(|builder| builder.topic("news", true));
    api.create("ada@example.com");
    api.unsubscribe("ada@example.com", json!({"reason": "preferences"}))
        .expect(200);
    let before = api
        .unsubscribe("ada@example.com", json!({"topic": "news"}))
        .expect(200);

    let response = api
        .post("/contacts", json!({"email": "ada@example.com"}))
        .expect(200);

    assert_eq!(response["unsubscribed"], true);
    assert_eq!(api.retrieve("ada@example.com"), before);
    assert!(!members(&response).contains(&"topics"));
}
