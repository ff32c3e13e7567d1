//! Section 2: the forms of a contact, member by member.

use serde_json::{Value, json};

use super::{Api, FULL, NOW, members};

fn ada(api: &Api) -> Value {
    let body = json!({
        "email": " Ada@Example.COM ", "first_name": "Ada", "last_name": "Lovelace",
        "properties": {"plan": "pro", "seats": 3, "score": -1.5, "big": 9_007_199_254_740_993_u64},
    });
    api.post("/contacts", body).expect(201)
}

fn only_list_item(api: &Api) -> Value {
    let page = api.list(&[]).expect(200);
    assert_eq!(page["data"].as_array().unwrap().len(), 1);
    page["data"][0].clone()
}

#[test]
fn section_2_1_the_full_form_has_these_members_and_no_others() {
    let api = Api::start();
    ada(&api);

    let full = api.retrieve("ada@example.com");

    assert_eq!(members(&full), FULL);
}

#[test]
fn section_2_1_the_id_is_assigned_by_the_service_and_is_the_list_cursor() {
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
fn section_2_1_the_email_is_lowercased_and_trimmed_before_storage() {
    let api = Api::start();

    assert_eq!(ada(&api)["email"], "ada@example.com");
    assert_eq!(api.retrieve("ada@example.com")["email"], "ada@example.com");
    assert_eq!(only_list_item(&api)["email"], "ada@example.com");
}

#[test]
fn section_2_1_first_and_last_name_are_optional_and_stored_unchanged() {
    let api = Api::start();
    let body =
        json!({"email": "ada@example.com", "first_name": " Ádá ", "last_name": "O'Łovelace 🎉"});

    api.post("/contacts", body).expect(201);

    let full = api.retrieve("ada@example.com");
    assert_eq!(full["first_name"], " Ádá ");
    assert_eq!(full["last_name"], "O'Łovelace 🎉");
}

#[test]
fn section_2_1_properties_hold_strings_and_exact_numbers() {
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
    assert_eq!(only_list_item(&api)["properties"], created["properties"]);
}

#[test]
fn section_2_1_properties_are_an_empty_object_when_none_were_sent() {
    let api = Api::start();

    assert_eq!(api.create("ada@example.com")["properties"], json!({}));
}

#[test]
fn section_2_1_unsubscribed_is_the_global_flag_in_all_three_forms() {
    let api = Api::start();
    assert_eq!(ada(&api)["unsubscribed"], false);
    assert_eq!(only_list_item(&api)["unsubscribed"], false);

    api.unsubscribe("ada@example.com", ()).expect(200);

    assert_eq!(api.retrieve("ada@example.com")["unsubscribed"], true);
    assert_eq!(only_list_item(&api)["unsubscribed"], true);
    let again = api
        .post("/contacts", json!({"email": "ada@example.com"}))
        .expect(200);
    assert_eq!(again["unsubscribed"], true);
}

#[test]
fn section_2_1_the_unsubscribe_reason_is_an_empty_string_by_default() {
    let api = Api::start();
    ada(&api);

    assert_eq!(api.retrieve("ada@example.com")["unsubscribe_reason"], "");
}

#[test]
fn section_2_1_created_at_is_whole_unix_seconds() {
    let api = Api::start();
    ada(&api);

    assert_eq!(api.retrieve("ada@example.com")["created_at"], json!(NOW));
    assert_eq!(only_list_item(&api)["created_at"], json!(NOW));
}

#[test]
fn section_2_1_a_topic_the_contact_never_answered_shows_its_default() {
    let api = Api::with(|builder| builder.topic("news", true).topic("offers", false));
    ada(&api);
    let topics = || api.retrieve("ada@example.com")["topics"].clone();
    assert_eq!(topics(), json!({"news": true, "offers": false}));

    api.unsubscribe("ada@example.com", json!({"topic": "news"}))
        .expect(200);

    assert_eq!(topics(), json!({"news": false, "offers": false}));
}

#[test]
fn section_2_6_a_topics_default_applies_only_to_contacts_who_never_answered() {
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
fn section_2_1_topics_are_an_empty_object_when_none_exist() {
    let api = Api::start();
    ada(&api);

    assert_eq!(api.retrieve("ada@example.com")["topics"], json!({}));
}

#[test]
fn section_2_2_the_create_form_has_these_members_and_no_others() {
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
fn section_2_3_a_list_item_has_these_members_and_no_others() {
    let api = Api::with(|builder| builder.topic("news", true));
    ada(&api);

    assert_eq!(
        members(&only_list_item(&api)),
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
fn section_2_3_a_list_item_agrees_with_the_full_form() {
    let api = Api::start();
    ada(&api);

    let (item, full) = (only_list_item(&api), api.retrieve("ada@example.com"));

    for member in members(&item) {
        assert_eq!(item[member], full[member], "{member}");
    }
}
