//! Sections 4.1, 4.2 rule 3, 7 and 8: the contact ceiling.

use serde_json::json;

use super::{Api, members, strings};

fn with_ceiling(contacts: u64) -> Api {
    Api::with(|builder| builder.contact_ceiling(contacts))
}

#[test]
fn section_8_the_first_contact_over_the_ceiling_is_refused() {
    let api = with_ceiling(2);

    api.create("a@example.com");
    api.create("b@example.com");
    api.post("/contacts", json!({"email": "c@example.com"}))
        .refused(402, "quota_exceeded");

    assert_eq!(api.server.contact_count(), 2);
}

#[test]
fn section_8_a_ceiling_of_0_refuses_every_contact() {
    let api = with_ceiling(0);

    api.post("/contacts", json!({"email": "a@example.com"}))
        .refused(402, "quota_exceeded");
}

#[test]
fn section_7_an_update_at_the_ceiling_is_allowed() {
    let api = with_ceiling(1);
    api.create("a@example.com");

    let updated = api
        .post(
            "/contacts",
            json!({"email": "a@example.com", "first_name": "Ada"}),
        )
        .expect(200);
    api.post(
        "/contacts",
        json!({"email": "a@example.com", "on_conflict": "skip"}),
    )
    .expect(200);
    api.patch(
        "/contacts/a%40example.com",
        json!({"properties": {"plan": "pro"}}),
    )
    .expect(200);
    api.unsubscribe("a@example.com", ()).expect(200);

    assert_eq!(updated["first_name"], "Ada");
}

#[test]
fn section_4_2_rule_3_once_one_entry_reports_quota_exceeded_every_remaining_entry_does() {
    let api = with_ceiling(2);
    api.create("a@example.com");
    let batch = json!([
        {"email": "b@example.com"},
        {"email": "a@example.com", "first_name": "Before"},
        {"email": "c@example.com"},
        {"email": "a@example.com", "first_name": "After"},
        {"email": "a@example.com", "on_conflict": "skip"},
        {"email": "a@example.com", "on_conflict": "error"},
        {"email": "no address"},
        7,
        {"email": "d@example.com"},
    ]);

    let report = api.post("/contacts/batch", batch).expect(200);

    let mut expected = vec!["created", "updated"];
    expected.extend(["quota_exceeded"; 7]);
    assert_eq!(strings(&report["data"], "status"), expected);
    assert_eq!(api.retrieve("a@example.com")["first_name"], "Before");
    assert_eq!(api.server.contact_count(), 2);
}

#[test]
fn section_4_2_rule_3_the_remaining_entries_are_still_listed_in_place() {
    let api = with_ceiling(1);
    let batch =
        json!([{"email": "a@example.com"}, {"email": "B@example.com"}, {"email": "c@example.com"}]);

    let report = api.post("/contacts/batch", batch).expect(200);

    assert_eq!(
        strings(&report["data"], "email"),
        ["a@example.com", "b@example.com", "c@example.com"]
    );
    for entry in &report["data"].as_array().unwrap()[1..] {
        assert_eq!(members(entry), ["email", "message", "status"]);
    }
}

#[test]
fn section_4_2_rule_3_an_earlier_failure_of_another_kind_does_not_stop_the_batch() {
    let api = with_ceiling(1);
    let batch = json!([{"email": "none"}, {"email": "a@example.com"}, {"email": "a@example.com"}]);

    let report = api.post("/contacts/batch", batch).expect(200);

    assert_eq!(
        strings(&report["data"], "status"),
        ["validation_error", "created", "updated"]
    );
}

#[test]
fn section_4_2_rule_3_an_exceeded_quota_does_not_affect_the_next_batch() {
    let api = with_ceiling(1);
    api.create("a@example.com");
    let crossing = json!([{"email": "b@example.com"}]);
    assert_eq!(
        strings(
            &api.post("/contacts/batch", crossing).expect(200)["data"],
            "status"
        ),
        ["quota_exceeded"]
    );

    let update = json!([{"email": "a@example.com"}]);

    assert_eq!(
        strings(
            &api.post("/contacts/batch", update).expect(200)["data"],
            "status"
        ),
        ["updated"]
    );
}

#[test]
fn section_8_raising_the_ceiling_allows_more_contacts() {
    let api = with_ceiling(0);
    api.post("/contacts", json!({"email": "a@example.com"}))
        .refused(402, "quota_exceeded");

    api.server.set_ceiling(Some(1));
    api.create("a@example.com");
    api.server.set_ceiling(None);
    api.create("b@example.com");
}

#[test]
fn default_order_of_refusals_of_create_is_422_then_409_then_402() {
    let api = with_ceiling(1);
    api.create("a@example.com");

    let invalid = json!({"email": "a@example.com", "properties": [], "on_conflict": "error"});
    api.post("/contacts", invalid)
        .refused(422, "validation_error");
    let new_and_invalid = json!({"email": "b@example.com", "properties": []});
    api.post("/contacts", new_and_invalid)
        .refused(422, "validation_error");
    let existing = json!({"email": "a@example.com", "on_conflict": "error"});
    api.post("/contacts", existing)
        .refused(409, "already_exists");
    let new = json!({"email": "b@example.com", "on_conflict": "error"});
    api.post("/contacts", new).refused(402, "quota_exceeded");
}

#[test]
fn default_order_of_refusals_within_a_batch_is_the_same() {
    let api = with_ceiling(1);
    api.create("a@example.com");
    let batch = json!([
        {"email": "b@example.com", "properties": []},
        {"email": "a@example.com", "on_conflict": "error"},
        {"email": "b@example.com", "on_conflict": "error"},
    ]);

    let report = api.post("/contacts/batch", batch).expect(200);

    assert_eq!(
        strings(&report["data"], "status"),
        ["validation_error", "already_exists", "quota_exceeded"]
    );
}

#[test]
fn default_there_is_no_ceiling() {
    let api = Api::start();

    for n in 0..3 {
        let batch = (0..100)
            .map(|m| json!({"email": format!("c{n}-{m}@example.com")}))
            .collect::<serde_json::Value>();
        api.post("/contacts/batch", batch).expect(200);
    }

    assert_eq!(api.server.contact_count(), 300);
}
