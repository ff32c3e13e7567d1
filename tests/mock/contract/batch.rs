//! Section 4.2: create several contacts.

use serde_json::{Value, json};

use super::{Api, members, strings};

fn entries(count: usize) -> Value {
    (0..count)
        .map(|n| json!({"email": format!("c{n}@example.com")}))
        .collect()
}

/// The status of each entry of a batch.
#[track_caller]
fn statuses(api: &Api, batch: Value) -> Vec<String> {
    strings(
        &api.post("/contacts/batch", batch).expect(200)["data"],
        "status",
    )
}

#[test]
fn section_4_2_the_response_is_200_with_an_object_that_has_only_data() {
    let api = Api::start();

    let report = api.post("/contacts/batch", entries(2)).expect(200);

    assert_eq!(
        report,
        json!({"data": [
            {"email": "c0@example.com", "status": "created"},
            {"email": "c1@example.com", "status": "created"},
        ]})
    );
}

#[test]
fn section_4_2_there_is_one_result_per_input_in_the_same_order() {
    let api = Api::start();
    api.create("c3@example.com");
    let batch = json!([
        {"email": "c9@example.com"}, {"email": "none"}, {"email": "c3@example.com"}, {"email": "C1@example.com "},
    ]);

    let report = api.post("/contacts/batch", batch).expect(200);

    assert_eq!(
        strings(&report["data"], "email"),
        ["c9@example.com", "none", "c3@example.com", "c1@example.com"]
    );
    assert_eq!(
        strings(&report["data"], "status"),
        ["created", "validation_error", "updated", "created"]
    );
}

#[test]
fn section_4_2_each_entry_is_exactly_a_create_request_body() {
    let api = Api::start();
    let batch = json!([{
        "email": "ada@example.com", "first_name": "Ada", "last_name": "Lovelace", "properties": {"seats": 3},
        "on_conflict": "error",
    }]);

    assert_eq!(statuses(&api, batch), ["created"]);

    let ada = api.retrieve("ada@example.com");
    assert_eq!(
        (&ada["first_name"], &ada["last_name"]),
        (&json!("Ada"), &json!("Lovelace"))
    );
    assert_eq!(ada["properties"], json!({"seats": 3}));
}

#[test]
fn section_2_5_a_status_is_created_updated_skipped_or_an_error_slug() {
    let api = Api::start();
    api.create("ada@example.com");
    let batch = json!([
        {"email": "bob@example.com"},
        {"email": "ada@example.com", "first_name": "Ada"},
        {"email": "ada@example.com", "first_name": "Eve", "on_conflict": "skip"},
        {"email": "ada@example.com", "first_name": "Eve", "on_conflict": "error"},
        {"email": "nobody"},
        {"email": "eve@example.com", "properties": []},
    ]);

    assert_eq!(
        statuses(&api, batch),
        [
            "created",
            "updated",
            "skipped",
            "already_exists",
            "validation_error",
            "validation_error"
        ]
    );
    assert_eq!(api.retrieve("ada@example.com")["first_name"], "Ada");
    assert_eq!(api.server.contact_count(), 2);
}

#[test]
fn section_2_5_only_an_error_slug_has_a_message() {
    let api = Api::start();

    let report = api
        .post(
            "/contacts/batch",
            json!([{"email": "nobody"}, {"email": "ada@example.com"}]),
        )
        .expect(200);

    assert_eq!(members(&report["data"][0]), ["email", "message", "status"]);
    assert!(
        report["data"][0]["message"]
            .as_str()
            .unwrap()
            .contains("email")
    );
    assert_eq!(members(&report["data"][1]), ["email", "status"]);
}

#[test]
fn section_4_2_rule_1_status_is_200_even_when_every_entry_failed() {
    let api = Api::start();

    assert_eq!(
        statuses(&api, json!([{"email": "a"}, {"email": "b"}])),
        ["validation_error"; 2]
    );
}

#[test]
fn section_4_2_rule_2_a_batch_of_1_or_100_entries_is_accepted() {
    for count in [1, 100] {
        let api = Api::start();

        assert_eq!(statuses(&api, entries(count)), vec!["created"; count]);
        assert_eq!(api.server.contact_count(), count);
    }
}

#[test]
fn section_4_2_rule_2_a_batch_of_0_or_101_entries_is_refused_as_a_whole() {
    for count in [0, 101, 1000] {
        let api = Api::start();

        api.post("/contacts/batch", entries(count))
            .refused(422, "validation_error");

        assert_eq!(api.server.contact_count(), 0);
    }
}

#[test]
fn section_4_2_rule_4_the_same_address_twice_applies_both_in_order() {
    let api = Api::start();
    let batch = json!([
        {"email": "ada@example.com", "first_name": "First", "properties": {"a": 1, "b": 1}},
        {"email": " ADA@example.com", "first_name": "Second", "properties": {"b": 2}},
    ]);

    let report = api.post("/contacts/batch", batch).expect(200);

    assert_eq!(strings(&report["data"], "status"), ["created", "updated"]);
    assert_eq!(
        strings(&report["data"], "email"),
        ["ada@example.com", "ada@example.com"]
    );
    let ada = api.retrieve("ada@example.com");
    assert_eq!(ada["first_name"], "Second");
    assert_eq!(ada["properties"], json!({"b": 2}));
    assert_eq!(api.server.contact_count(), 1);
}

#[test]
fn section_4_2_rule_4_on_conflict_sees_earlier_entries_of_the_batch() {
    let api = Api::start();
    let batch = json!([
        {"email": "ada@example.com", "on_conflict": "error"},
        {"email": "ada@example.com", "on_conflict": "error"},
        {"email": "ada@example.com", "on_conflict": "skip"},
    ]);

    assert_eq!(
        statuses(&api, batch),
        ["created", "already_exists", "skipped"]
    );
}

#[test]
fn section_4_2_later_entries_of_a_batch_are_listed_first() {
    let api = Api::start();

    api.post("/contacts/batch", entries(3)).expect(200);

    assert_eq!(
        api.listed(&[]),
        ["c2@example.com", "c1@example.com", "c0@example.com"]
    );
}

#[test]
fn default_malformed_batch_a_body_that_is_not_an_array_is_422() {
    let api = Api::start();

    for body in [
        "",
        "{}",
        "null",
        "5",
        "{\"email\": \"ada@example.com\"}",
        "{\"data\": []}",
        "[{\"email\": \"ada@example.com\"}",
        "[]]",
    ] {
        api.post("/contacts/batch", body)
            .refused(422, "validation_error");
    }

    assert_eq!(api.server.contact_count(), 0);
}

#[test]
fn default_malformed_batch_an_entry_that_is_not_an_object_fails_by_itself() {
    let api = Api::start();
    let batch = json!([null, 5, "ada@example.com", [], {}, {"email": null}, {"email": 7}, {"email": "ada@example.com"}]);

    let report = api.post("/contacts/batch", batch).expect(200);

    let mut expected = vec!["validation_error"; 7];
    expected.push("created");
    assert_eq!(strings(&report["data"], "status"), expected);
    for entry in &report["data"].as_array().unwrap()[..7] {
        assert_eq!(members(entry), ["email", "message", "status"]);
    }
}

#[test]
fn default_malformed_batch_an_entry_with_an_unknown_member_fails_by_itself() {
    let api = Api::start();
    let batch = json!([
        {"email": "Ada@Example.com", "name": "Ada"},
        {"email": "bob@example.com", "on_conflict": "replace"},
        {"email": "eve@example.com"},
    ]);

    let report = api.post("/contacts/batch", batch).expect(200);

    assert_eq!(
        strings(&report["data"], "status"),
        ["validation_error", "validation_error", "created"]
    );
    assert!(
        report["data"][0]["message"]
            .as_str()
            .unwrap()
            .contains("name")
    );
    assert!(
        report["data"][1]["message"]
            .as_str()
            .unwrap()
            .contains("on_conflict")
    );
    assert_eq!(api.listed(&[]), ["eve@example.com"]);
}

#[test]
fn default_malformed_batch_a_result_has_the_normalized_email_or_an_invalid_one_unchanged() {
    let api = Api::start();
    let batch = json!([{"email": " Not An Address "}, {"email": " Ada@Example.com ", "name": "Ada"}, {"email": " Bob@Example.com "}]);

    let report = api.post("/contacts/batch", batch).expect(200);

    assert_eq!(
        strings(&report["data"], "email"),
        [" Not An Address ", "ada@example.com", "bob@example.com"]
    );
}
