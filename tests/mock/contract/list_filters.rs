//! Sections 2.7 and 4.4: `query`, `segment_id`, and their combination with rules.

use audience::mock::SegmentKind;
use serde_json::{Value, json};

use super::Api;

fn api() -> Api {
    let api = Api::start();
    for (address, first, last) in [
        ("ada@example.com", "Ada", "Lovelace"),
        ("bob@elsewhere.org", "Mary Ann", "Evans"),
        ("zoe@example.com", "Zoë", "ÅNGSTRÖM"),
        ("x+100%_off@example.com", "", ""),
    ] {
        api.post(
            "/contacts",
            json!({"email": address, "first_name": first, "last_name": last}),
        )
        .expect(201);
    }
    api
}

fn found(api: &Api, query: &str) -> Vec<String> {
    api.listed(&[("query", query)])
}

fn plan_is_pro() -> Value {
    json!({"match_": "all", "conditions": [{"field": "property", "key": "plan", "op": "is", "value": "pro"}]})
}

#[test]
fn section_4_4_query_matches_a_part_of_the_address() {
    let api = api();

    assert_eq!(found(&api, "elsewhere"), ["bob@elsewhere.org"]);
    assert_eq!(found(&api, "@example.com").len(), 3);
    assert_eq!(found(&api, "da@ex"), ["ada@example.com"]);
}

#[test]
fn section_4_4_query_matches_a_part_of_either_name() {
    let api = api();

    assert_eq!(found(&api, "ry an"), ["bob@elsewhere.org"]);
    assert_eq!(found(&api, "lovel"), ["ada@example.com"]);
    assert_eq!(found(&api, "EVANS"), ["bob@elsewhere.org"]);
}

#[test]
fn section_4_4_query_does_not_match_across_both_names() {
    assert_eq!(found(&api(), "Ada Lovelace"), [""; 0]);
}

#[test]
fn section_4_4_query_is_case_insensitive_for_non_ascii_text_too() {
    let api = api();

    for query in ["ångström", "ÅNGSTRÖM", "ZOË", "zoë"] {
        assert_eq!(found(&api, query), ["zoe@example.com"], "{query}");
    }
    assert_eq!(found(&api, "ADA@EXAMPLE.COM"), ["ada@example.com"]);

    let body = json!({"email": "nikos@example.gr", "first_name": "ΝΊΚΟΣ", "last_name": "Παππάς"});
    api.post("/contacts", body).expect(201);
    for query in ["νίκος", "ΝΊΚΟΣ", "ΠΑΠΠΆΣ", "παππάς"] {
        assert_eq!(found(&api, query), ["nikos@example.gr"], "{query}");
    }

    // A sigma at the end of the query is not at the end of the word.
    let body = json!({"email": "ΟΔΥΣΣΕΑΣ@example.gr", "first_name": "ΟΔΥΣΣΕΑΣ"});
    api.post("/contacts", body).expect(201);
    for query in ["ΟΔΥΣ", "οδυσ", "οδυς", "ΔΥΣΣΕΑΣ@"] {
        assert_eq!(found(&api, query).len(), 1, "{query}");
    }
}

#[test]
fn section_4_4_query_is_a_substring_and_not_a_pattern() {
    let api = api();

    assert_eq!(found(&api, "%_"), ["x+100%_off@example.com"]);
    assert_eq!(found(&api, "+100"), ["x+100%_off@example.com"]);
    for pattern in ["a%e", "a.a", ".*", "ad?", "*"] {
        assert_eq!(found(&api, pattern), [""; 0], "{pattern}");
    }
}

#[test]
fn section_4_4_query_does_not_search_properties() {
    let api = Api::start();
    api.create_with("ada@example.com", json!({"city": "London"}));

    assert_eq!(found(&api, "london"), [""; 0]);
    assert_eq!(found(&api, "city"), [""; 0]);
}

#[test]
fn section_4_4_a_query_without_matches_returns_an_empty_page() {
    assert_eq!(
        api().list(&[("query", "nobody")]).expect(200),
        json!({"data": [], "next": ""})
    );
}

#[test]
fn section_2_7_a_segment_can_be_a_hand_picked_list() {
    let api = api();
    let members = vec![
        " BOB@elsewhere.org".to_owned(),
        "zoe@example.com".to_owned(),
        "stranger@example.com".to_owned(),
    ];

    api.server.segment("seg_1", SegmentKind::Contacts(members));

    assert_eq!(
        api.listed(&[("segment_id", "seg_1")]),
        ["zoe@example.com", "bob@elsewhere.org"]
    );
}

#[test]
fn section_2_7_a_segment_can_be_a_rule() {
    let api = api();
    api.server
        .segment("seg_1", SegmentKind::Rule(plan_is_pro()));
    assert_eq!(api.listed(&[("segment_id", "seg_1")]), [""; 0]);

    api.patch(
        "/contacts/ada%40example.com",
        json!({"properties": {"plan": "pro"}}),
    )
    .expect(200);

    assert_eq!(
        api.listed(&[("segment_id", "seg_1")]),
        ["ada@example.com"],
        "a rule is evaluated when the segment is listed"
    );
}

#[test]
fn section_4_4_the_same_rule_as_segment_or_as_rules_selects_the_same_contacts() {
    let api = Api::start();
    for n in 0..9 {
        let plan = ["pro", "free", "team"][n % 3];
        api.create_with(&format!("c{n}@example.com"), json!({"plan": plan}));
    }
    api.server
        .segment("seg_1", SegmentKind::Rule(plan_is_pro()));

    assert_eq!(
        api.listed(&[("segment_id", "seg_1")]),
        api.listed(&[("rules", &plan_is_pro().to_string())])
    );
    assert_eq!(api.listed(&[("segment_id", "seg_1")]).len(), 3);
}

#[test]
fn default_segment_id_with_rules_is_422() {
    let api = api();
    api.server
        .segment("seg_1", SegmentKind::Rule(plan_is_pro()));

    api.list(&[
        ("segment_id", "seg_1"),
        ("rules", &plan_is_pro().to_string()),
    ])
    .refused(422, "validation_error");
}

#[test]
fn default_query_with_a_segment_or_with_rules_both_must_hold() {
    let api = Api::start();
    for (address, plan) in [
        ("ada@example.com", "pro"),
        ("bob@example.com", "pro"),
        ("adam@example.com", "free"),
    ] {
        api.create_with(address, json!({"plan": plan}));
    }
    api.server
        .segment("seg_1", SegmentKind::Rule(plan_is_pro()));

    assert_eq!(
        api.listed(&[("query", "ada"), ("segment_id", "seg_1")]),
        ["ada@example.com"]
    );
    assert_eq!(
        api.listed(&[("query", "ada"), ("rules", &plan_is_pro().to_string())]),
        ["ada@example.com"]
    );
}
