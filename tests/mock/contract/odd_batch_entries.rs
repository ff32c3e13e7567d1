//! Section 4.2 rule 2: a batch is refused only for its length, not for an entry that cannot be parsed or is large.

use serde_json::{Value, json};

use super::{Api, strings};

/// Sends a batch with this entry between two valid ones, and returns its result. The valid ones must be created.
#[track_caller]
fn result_between_valid_entries(entry: &str) -> Value {
    let api = Api::start();
    let batch = format!(r#"[{{"email": "a@example.com"}}, {entry}, {{"email": "c@example.com"}}]"#);

    let report = api.post("/contacts/batch", &*batch).expect(200);

    let emails = strings(&report["data"], "email");
    let statuses = strings(&report["data"], "status");
    assert_eq!(
        (emails.len(), &*emails[0], &*emails[2]),
        (3, "a@example.com", "c@example.com")
    );
    assert_eq!((&*statuses[0], &*statuses[2]), ("created", "created"));
    report["data"][1].clone()
}

#[test]
fn section_4_2_rule_2_an_entry_that_cannot_be_parsed_fails_by_itself() {
    for (member, problem) in [
        (r#""properties": {"n": 1e400}"#.to_owned(), "out of range"),
        (r#""first_name": "\ud800""#.to_owned(), "hex escape"),
        (r#""\ud800": 1"#.to_owned(), "hex escape"),
        (
            format!(r#""properties": {}1{}"#, "[".repeat(200), "]".repeat(200)),
            "recursion",
        ),
        (
            format!(
                r#""properties": {}1{}"#,
                r#"{"x":"#.repeat(50_000),
                "}".repeat(50_000)
            ),
            "recursion",
        ),
    ] {
        let result =
            result_between_valid_entries(&format!(r#"{{{member}, "email": " B@example.com"}}"#));

        assert_eq!(result["email"], "b@example.com");
        assert_eq!(result["status"], "validation_error");
        let message = result["message"].as_str().unwrap();
        assert!(message.contains(problem), "{message}");
    }
}

#[test]
fn section_4_2_rule_2_an_entry_whose_address_cannot_be_parsed_fails_by_itself() {
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);

    for entry in [
        r#"{"email": "\udfff@example.com"}"#,
        "1e400",
        "-1e999",
        &deep,
    ] {
        let result = result_between_valid_entries(entry);

        assert_eq!(result["email"], "");
        assert_eq!(result["status"], "validation_error");
    }
}

#[test]
fn section_4_2_rule_2_a_batch_of_100_entries_of_90_kb_is_applied() {
    let api = Api::start();
    let text = "x".repeat(90_000);
    let batch: Value = (0..100)
        .map(|n| json!({"email": format!("c{n}@example.com"), "properties": {"text": text}}))
        .collect();

    let report = api.post("/contacts/batch", batch).expect(200);

    assert_eq!(strings(&report["data"], "status"), ["created"; 100]);
    assert_eq!(api.server.contact_count(), 100);
}

#[test]
fn section_4_2_rule_2_the_refusal_of_a_long_batch_names_its_length() {
    let api = Api::start();
    let batch = format!("[{}1e400]", "0,".repeat(999_999));

    let message = api
        .post("/contacts/batch", &*batch)
        .refused(422, "validation_error");

    assert!(message.contains("1000000"), "{message}");
}
