//! Sections 7 and 8: the tables of errors and limits, row by row.

use serde_json::json;

use super::Api;

const ADA: &str = "ada@example.com";

fn api() -> Api {
    let api = Api::with(|builder| builder.topic("news", true).contact_ceiling(1));
    api.create(ADA);
    api
}

#[test]
fn section_7_row_1_validation_error_is_422() {
    let api = api();

    api.post("/contacts", json!({"email": "no address"}))
        .refused(422, "validation_error");
    api.post("/contacts", json!({"email": ADA, "properties": []}))
        .refused(422, "validation_error");
    api.unsubscribe(ADA, json!({"reason": "complaint"}))
        .refused(422, "validation_error");
}

#[test]
fn section_7_row_2_already_exists_is_409() {
    api()
        .post("/contacts", json!({"email": ADA, "on_conflict": "error"}))
        .refused(409, "already_exists");
}

#[test]
fn section_7_row_3_quota_exceeded_is_402_and_in_a_batch_an_entry_status() {
    let api = api();

    api.post("/contacts", json!({"email": "bob@example.com"}))
        .refused(402, "quota_exceeded");
    let report = api
        .post("/contacts/batch", json!([{"email": "bob@example.com"}]))
        .expect(200);

    assert_eq!(report["data"][0]["status"], "quota_exceeded");
}

#[test]
fn section_7_row_4_key_not_permitted_is_403() {
    let api = api();

    api.request("GET", "/contacts")
        .sending_key()
        .send()
        .refused(403, "key_not_permitted");
}

#[test]
fn section_7_row_5_not_found_is_404() {
    let api = api();

    api.get("/contacts/nobody%40example.com")
        .refused(404, "not_found");
    let message = api
        .subscribe(ADA, json!({"topic": "weather"}))
        .refused(404, "not_found");
    assert!(message.contains("weather"));
}

#[test]
fn section_7_row_6_failed_precondition_is_422() {
    let api = api();
    api.server.report_spam(ADA);

    api.subscribe(ADA, ()).refused(422, "failed_precondition");
}

#[test]
fn section_7_a_failed_batch_entry_has_the_slug_as_status_and_a_message() {
    let api = api();
    let batch = json!([{"email": "none"}, {"email": ADA, "on_conflict": "error"}, {"email": "bob@example.com"}]);

    let report = api.post("/contacts/batch", batch).expect(200);

    for (entry, slug) in report["data"].as_array().unwrap().iter().zip([
        "validation_error",
        "already_exists",
        "quota_exceeded",
    ]) {
        assert_eq!(entry["status"], slug);
        assert!(!entry["message"].as_str().unwrap().is_empty());
    }
}

#[test]
fn section_8_row_1_batch_size_is_1_to_100() {
    let api = Api::start();
    let batch = |size: usize| json!(vec![json!({"email": ADA}); size]);

    for (size, status) in [(0, 422), (1, 200), (100, 200), (101, 422)] {
        assert_eq!(
            api.post("/contacts/batch", batch(size)).status,
            status,
            "{size}"
        );
    }
}

#[test]
fn section_8_row_6_the_ceiling_applies_only_to_contact_creation() {
    let api = api();

    assert_eq!(
        api.post("/contacts", json!({"email": "bob@example.com"}))
            .status,
        402
    );
    for response in [
        api.post("/contacts", json!({"email": ADA})),
        api.unsubscribe(ADA, ()),
        api.subscribe(ADA, json!({"topic": "news"})),
        api.get("/contacts"),
    ] {
        assert_eq!(response.status, 200);
    }
}

#[test]
fn default_there_are_no_rate_limits() {
    let api = api();

    for _ in 0..300 {
        assert_eq!(api.get("/contacts/ada%40example.com").status, 200);
    }
}
