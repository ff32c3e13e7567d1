//! Section 2.8: rules on properties, how conditions combine, and invalid rules.

use serde_json::{Value, json};

use super::Api;

fn property(key: &str, op: &str, value: Value) -> Value {
    json!({"field": "property", "key": key, "op": op, "value": value})
}

/// A condition with the operator `is_set` or `is_not_set`, which have no value.
fn is_set(key: &str, op: &str) -> Value {
    json!({"field": "property", "key": key, "op": op})
}

/// A mock with contacts whose address names the type and value of their property `x`.
fn api() -> Api {
    let api = Api::start();
    for (name, properties) in [
        ("missing", json!({})),
        ("text-pro", json!({"x": "pro"})),
        ("text-empty", json!({"x": ""})),
        ("text-3", json!({"x": "3"})),
        ("number-3", json!({"x": 3})),
        ("number-3.5", json!({"x": 3.5})),
        ("number--1", json!({"x": -1})),
    ] {
        api.create_with(&format!("{name}@example.com"), properties);
    }
    api
}

/// Asserts that the condition matches exactly these contacts.
#[track_caller]
fn expect_matches(api: &Api, condition: Value, expected: &[&str]) {
    let mut expected: Vec<String> = expected
        .iter()
        .map(|name| format!("{name}@example.com"))
        .collect();
    expected.sort_unstable();
    assert_eq!(api.matching(condition.clone()), expected, "{condition}");
}

#[test]
fn section_2_8_op_is_compares_strings_with_strings_and_numbers_with_numbers() {
    let api = api();

    expect_matches(&api, property("x", "is", json!("pro")), &["text-pro"]);
    expect_matches(&api, property("x", "is", json!("")), &["text-empty"]);
    expect_matches(&api, property("x", "is", json!("3")), &["text-3"]);
    expect_matches(&api, property("x", "is", json!(3)), &["number-3"]);
    expect_matches(&api, property("x", "is", json!(3.0)), &["number-3"]);
    expect_matches(&api, property("x", "is", json!(3.5)), &["number-3.5"]);
    expect_matches(&api, property("x", "is", json!("PRO")), &[]);
    expect_matches(&api, property("X", "is", json!("pro")), &[]);
}

#[test]
fn section_2_8_op_is_not_is_the_complement_of_is() {
    let api = api();

    expect_matches(
        &api,
        property("x", "is_not", json!("pro")),
        &[
            "missing",
            "text-empty",
            "text-3",
            "number-3",
            "number-3.5",
            "number--1",
        ],
    );
    expect_matches(
        &api,
        property("x", "is_not", json!(3)),
        &[
            "missing",
            "text-pro",
            "text-empty",
            "text-3",
            "number-3.5",
            "number--1",
        ],
    );
}

#[test]
fn section_2_8_op_contains_is_a_case_sensitive_substring_search() {
    let api = api();

    expect_matches(&api, property("x", "contains", json!("ro")), &["text-pro"]);
    expect_matches(&api, property("x", "contains", json!("RO")), &[]);
    expect_matches(&api, property("x", "contains", json!("pro plus")), &[]);
}

#[test]
fn section_2_8_op_is_set_and_is_not_set_test_whether_the_property_exists() {
    let api = api();

    expect_matches(
        &api,
        is_set("x", "is_set"),
        &[
            "text-pro",
            "text-empty",
            "text-3",
            "number-3",
            "number-3.5",
            "number--1",
        ],
    );
    expect_matches(&api, is_set("x", "is_not_set"), &["missing"]);
    // The document lists `value` for each operator.
    for value in [json!(""), json!(2), Value::Null] {
        let mut condition = is_set("x", "is_not_set");
        condition["value"] = value;
        expect_matches(&api, condition, &["missing"]);
    }
    assert_eq!(api.matching(is_set("y", "is_not_set")).len(), 7);
}

#[test]
fn section_2_8_op_greater_than_and_less_than_compare_only_numbers() {
    let api = api();

    expect_matches(
        &api,
        property("x", "greater_than", json!(-1)),
        &["number-3", "number-3.5"],
    );
    expect_matches(
        &api,
        property("x", "greater_than", json!(3)),
        &["number-3.5"],
    );
    expect_matches(
        &api,
        property("x", "less_than", json!(3.5)),
        &["number-3", "number--1"],
    );
    expect_matches(&api, property("x", "less_than", json!(-1)), &[]);
}

#[test]
fn section_2_8_numbers_are_compared_exactly() {
    let api = Api::start();
    api.create_with("big@example.com", json!({"x": 9_007_199_254_740_993_u64}));

    expect_matches(
        &api,
        property("x", "is", json!(9_007_199_254_740_993_u64)),
        &["big"],
    );
    expect_matches(
        &api,
        property("x", "is", json!(9_007_199_254_740_992_u64)),
        &[],
    );
    expect_matches(
        &api,
        property("x", "greater_than", json!(9_007_199_254_740_992_u64)),
        &["big"],
    );
}

#[test]
fn section_2_8_match_all_needs_every_condition_and_any_needs_one() {
    let api = Api::start();
    for (name, properties) in [
        ("both", json!({"a": 1, "b": 1})),
        ("a", json!({"a": 1})),
        ("b", json!({"b": 1})),
        ("neither", json!({})),
    ] {
        api.create_with(&format!("{name}@example.com"), properties);
    }
    let conditions = json!([property("a", "is", json!(1)), property("b", "is", json!(1))]);

    let all = api.matching_rule(json!({"match_": "all", "conditions": conditions}));
    let any = api.matching_rule(json!({"match_": "any", "conditions": conditions}));

    assert_eq!(all, ["both@example.com"]);
    assert_eq!(any, ["a@example.com", "b@example.com", "both@example.com"]);
}

#[test]
fn section_2_8_every_property_operator_works_under_all_and_any() {
    let api = api();
    let everyone = is_set("y", "is_not_set");
    let nobody = is_set("y", "is_set");

    for condition in [
        property("x", "is", json!("pro")),
        property("x", "is_not", json!("pro")),
        property("x", "contains", json!("ro")),
        is_set("x", "is_set"),
        is_set("x", "is_not_set"),
        property("x", "greater_than", json!(0)),
        property("x", "less_than", json!(0)),
    ] {
        let by_itself = api.matching(condition.clone());
        let with = |match_: &str, other: &Value| {
            api.matching_rule(json!({"match_": match_, "conditions": [condition, other]}))
        };

        assert_eq!(with("all", &everyone), by_itself, "{condition}");
        assert_eq!(with("any", &nobody), by_itself, "{condition}");
        assert_eq!(with("all", &nobody), [""; 0], "{condition}");
        assert_eq!(with("any", &everyone).len(), 7, "{condition}");
    }
}

#[test]
fn default_without_conditions_all_matches_everyone_and_any_nobody() {
    let api = api();

    assert_eq!(
        api.matching_rule(json!({"match_": "all", "conditions": []}))
            .len(),
        7
    );
    assert_eq!(
        api.matching_rule(json!({"match_": "any", "conditions": []})),
        [""; 0]
    );
}

#[test]
fn default_bad_rules_are_422() {
    let api = api();
    let condition = || property("x", "is", json!("pro"));

    for rule in [
        json!(null),
        json!([]),
        json!("all"),
        json!({}),
        json!({"match_": "all"}),
        json!({"conditions": [condition()]}),
        json!({"match": "all", "conditions": [condition()]}),
        json!({"match_": "none", "conditions": [condition()]}),
        json!({"match_": "ALL", "conditions": [condition()]}),
        json!({"match_": 1, "conditions": [condition()]}),
        json!({"match_": "all", "conditions": condition()}),
        json!({"match_": "all", "conditions": [null]}),
        json!({"match_": "all", "conditions": [condition(), 5]}),
        json!({"match_": "all", "conditions": [{}]}),
        json!({"match_": "all", "conditions": [condition()], "limit": 3}),
    ] {
        let message = api
            .list(&[("rules", &rule.to_string())])
            .refused(422, "validation_error");
        assert!(message.contains("rule"), "{rule}: {message}");
    }
    for text in ["{", "all", "%"] {
        api.list(&[("rules", text)])
            .refused(422, "validation_error");
    }
}

#[test]
fn default_bad_conditions_are_422() {
    let api = api();

    for condition in [
        json!({"field": "color"}),
        json!({"field": "Property", "key": "x", "op": "is", "value": 1}),
        json!({"key": "x", "op": "is", "value": 1}),
        json!({"field": "property", "op": "is", "value": 1}),
        json!({"field": "property", "key": 5, "op": "is", "value": 1}),
        json!({"field": "property", "key": "x", "value": 1}),
        json!({"field": "property", "key": "x", "op": "equals", "value": 1}),
        json!({"field": "property", "key": "x", "op": "is"}),
        json!({"field": "property", "key": "x", "op": "greater_than"}),
        json!({"field": "property", "key": "x", "op": "contains"}),
        json!({"field": "property", "key": "x", "op": "is", "value": 1, "days": 3}),
        json!({"field": "engagement", "op": "ever"}),
        json!({"field": "engagement", "what": "opened"}),
        json!({"field": "engagement", "what": "read", "op": "ever"}),
        json!({"field": "engagement", "what": "opened", "op": "is"}),
        json!({"field": "engagement", "what": "opened", "op": "within_days"}),
        json!({"field": "engagement", "what": "opened", "op": "not_within_days"}),
        json!({"field": "joined_within_days"}),
        json!({"field": "joined_before_days"}),
        json!({"field": "joined_within_days", "value": 3}),
        json!({"field": "joined_within_days", "days": 3, "op": "is"}),
    ] {
        let rule = json!({"match_": "all", "conditions": [condition]});
        api.list(&[("rules", &rule.to_string())])
            .refused(422, "validation_error");
    }
}

#[test]
fn default_days_that_are_not_a_positive_whole_number_are_422() {
    let api = api();

    for days in [
        json!(0),
        json!(-1),
        json!(0.0),
        json!(-1.0),
        json!(1.5),
        json!("3"),
        json!(null),
        json!(true),
    ] {
        for condition in [
            json!({"field": "engagement", "what": "opened", "op": "within_days", "days": days}),
            json!({"field": "engagement", "what": "opened", "op": "not_within_days", "days": days}),
            json!({"field": "joined_within_days", "days": days}),
            json!({"field": "joined_before_days", "days": days}),
        ] {
            let rule = json!({"match_": "all", "conditions": [condition]});
            let message = api
                .list(&[("rules", &rule.to_string())])
                .refused(422, "validation_error");
            assert!(message.contains("days"), "{condition}: {message}");
        }
    }
}

#[test]
fn section_2_8_a_number_of_days_may_have_a_point_without_a_fraction() {
    let days = json!(30.0);
    assert_eq!(days.to_string(), "30.0");

    let recent = api().matching(json!({"field": "joined_within_days", "days": days}));

    assert_eq!(recent.len(), 7);
}

#[test]
fn section_2_8_a_huge_number_of_days_is_accepted() {
    let api = api();

    for days in [json!(1_000_000_000), json!(i64::MAX), json!(1e300)] {
        assert_eq!(
            api.matching(json!({"field": "joined_within_days", "days": days}))
                .len(),
            7
        );
        assert_eq!(
            api.matching(json!({"field": "joined_before_days", "days": days}))
                .len(),
            0
        );
    }
}
