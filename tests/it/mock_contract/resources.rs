//! Section 2: the forms of a contact, field by field.

use serde_json::{Value, json};

use super::{Api, NOW, members};

fn ada(api: &Api) -> Value {
    let body = json!({
        "email": " Ada@Example.COM ", "first_name": "Ada", "last_name": "Lovelace",
        "properties": {"plan": "pro", "seats": 3, "score": -1.5, "big": 9_007_199_254_740_993_u64},
    });
    api.post("/contacts", body).expect(201)
}

fn the_only_item(api: &Api) -> Value {
    let page = api.list(&[]).expect(200);
    assert_eq!(page["data"].as_array().unwrap().len(), 1);
    page["data"][0].clone()
}

#[test]
fn section_2_1_full_form_has_these_members_and_no_others() {
    let api = Api::start();
    ada(&api);

    let full = api.retrieve("ada@example.com");

    assert_eq!(
        members(&full),
        [
            "created_at",
            "email",
            "first_name",
            "id",
            "last_name",
            "properties",
            "topics",
            "unsubscribe_reason",
            "unsubscribed"
        ]
    );
}

#[test]
fn section_2_1_id_is_text_assigned_by_the_service_and_used_as_the_list_cursor() {
    let api = Api::start();
    let first = ada(&api)["id"].as_str().unwrap().to_owned();
    let second = api.create("bob@example.com")["id"]
        .as_str()
        .unwrap()
        .to_owned();

    assert_ne!(first, second);
    assert_eq!(api.retrieve("ada@example.com")["id"], first.as_str());
    assert_eq!(api.listed(&[("after", &second)]), ["ada@example.com"]);
}

#[test]
fn section_2_1_email_is_lowercased_and_trimmed_before_storage() {
    let api = Api::start();

    assert_eq!(ada(&api)["email"], "ada@example.com");
    assert_eq!(api.retrieve("ada@example.com")["email"], "ada@example.com");
    assert_eq!(the_only_item(&api)["email"], "ada@example.com");
}

#[test]
fn section_2_1_first_and_last_name_are_optional_and_kept_as_given() {
    let api = Api::start();
    let body =
        json!({"email": "ada@example.com", "first_name": " Ádá ", "last_name": "O'Łovelace 🎉"});

    api.post("/contacts", body).expect(201);

    let full = api.retrieve("ada@example.com");
    assert_eq!(full["first_name"], " Ádá ");
    assert_eq!(full["last_name"], "O'Łovelace 🎉");
}

#[test]
fn section_2_1_properties_hold_text_and_numbers_exactly() {
    let api = Api::start();

    let created = ada(&api);

    assert_eq!(
        created["properties"],
        json!({"plan": "pro", "seats": 3, "score": -1.5, "big": 9_007_199_254_740_993_u64})
    );
    assert_eq!(
        api.retrieve("ada@example.com")["properties"],
        created["properties"]
    );
    assert_eq!(the_only_item(&api)["properties"], created["properties"]);
}

#[test]
fn section_2_1_properties_are_an_object_also_when_none_were_sent() {
    let api = Api::start();

    assert_eq!(api.create("ada@example.com")["properties"], json!({}));
}

#[test]
fn section_2_1_unsubscribed_is_the_global_flag_in_all_three_forms() {
    let api = Api::start();
    assert_eq!(ada(&api)["unsubscribed"], false);
    assert_eq!(the_only_item(&api)["unsubscribed"], false);

    api.unsubscribe("ada@example.com", ()).expect(200);

    assert_eq!(api.retrieve("ada@example.com")["unsubscribed"], true);
    assert_eq!(the_only_item(&api)["unsubscribed"], true);
    let again = api
        .post("/contacts", json!({"email": "ada@example.com"}))
        .expect(200);
    assert_eq!(again["unsubscribed"], true);
}

#[test]
fn section_2_1_unsubscribe_reason_is_empty_text_when_there_is_none() {
    let api = Api::start();
    ada(&api);

    assert_eq!(api.retrieve("ada@example.com")["unsubscribe_reason"], "");
}

#[test]
fn section_2_1_created_at_is_whole_unix_seconds() {
    let api = Api::start();
    ada(&api);

    assert_eq!(api.retrieve("ada@example.com")["created_at"], json!(NOW));
    assert_eq!(the_only_item(&api)["created_at"], json!(NOW));
}

#[test]
fn section_2_1_topics_show_the_topics_own_default_where_the_contact_never_answered() {
    let api = Api::with(|builder| builder.topic("news", true).topic("offers", false));
    ada(&api);
    let topics = || api.retrieve("ada@example.com")["topics"].clone();
    assert_eq!(topics(), json!({"news": true, "offers": false}));

    api.unsubscribe("ada@example.com", json!({"topic": "news"}))
        .expect(200);

    assert_eq!(topics(), json!({"news": false, "offers": false}));
}

#[test]
fn section_2_6_a_default_applies_to_those_who_never_answered_and_to_no_one_else() {
    let api = Api::with(|builder| builder.topic("news", true));
    ada(&api);
    api.create("bob@example.com");
    api.subscribe("ada@example.com", json!({"topic": "news"}))
        .expect(200);

    api.server.topic("news", false);

    assert_eq!(
        api.retrieve("ada@example.com")["topics"],
        json!({"news": true})
    );
    assert_eq!(
        api.retrieve("bob@example.com")["topics"],
        json!({"news": false})
    );
}

#[test]
fn section_2_1_topics_are_an_object_also_when_there_are_none() {
    let api = Api::start();
    ada(&api);

    assert_eq!(api.retrieve("ada@example.com")["topics"], json!({}));
}

#[test]
fn section_2_2_create_form_has_these_members_and_no_others() {
    let api = Api::with(|builder| builder.topic("news", true));

    assert_eq!(
        members(&ada(&api)),
        [
            "created_at",
            "email",
            "first_name",
            "id",
            "last_name",
            "properties",
            "unsubscribed"
        ]
    );
}

#[test]
fn section_2_3_list_item_has_these_members_and_no_others() {
    let api = Api::with(|builder| builder.topic("news", true));
    ada(&api);

    assert_eq!(
        members(&the_only_item(&api)),
        [
            "created_at",
            "email",
            "first_name",
            "id",
            "properties",
            "unsubscribed"
        ]
    );
}

#[test]
fn section_2_3_list_item_agrees_with_the_full_form() {
    let api = Api::start();
    ada(&api);

    let (item, full) = (the_only_item(&api), api.retrieve("ada@example.com"));

    for member in members(&item) {
        assert_eq!(item[member], full[member], "{member}");
    }
}
