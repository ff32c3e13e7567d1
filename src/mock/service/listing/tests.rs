use serde_json::{Value, json};

use super::super::dialect::{Dialect, SegmentWithRules};
use super::super::rule::SegmentKind;
use super::super::{Service, status_and_slug};
use super::*;

fn service_with(addresses: &[&str], dialect: Dialect) -> Service {
    let mut service = Service::with_dialect(dialect);
    for address in addresses {
        service.create(address);
    }
    service
}

#[test]
fn pages_miss_and_repeat_no_contact_while_contacts_are_added() {
    let mut service = service_with(&["a@x.io", "b@x.io", "c@x.io"], Dialect::default());

    let (_, first) = service.get("/contacts?limit=2");
    service.create("d@x.io");
    let cursor = first["next"].as_str().unwrap();
    let second = service.get(&format!("/contacts?limit=2&after={cursor}")).1;
    let cursor = second["next"].as_str().unwrap();
    let third = service.get(&format!("/contacts?limit=2&after={cursor}")).1;

    assert_eq!(first["data"][0]["email"], "c@x.io");
    assert_eq!(first["data"][1]["email"], "b@x.io");
    assert_eq!(second["data"].as_array().unwrap().len(), 1);
    assert_eq!(second["data"][0]["email"], "a@x.io");
    assert_eq!(third, json!({"data": [], "next": ""}));
}

#[test]
fn query_finds_a_text_in_the_address_and_both_names_in_any_case() {
    let mut service = Service::new();
    service.post(
        "/contacts",
        &json!({"email": "one@x.io", "first_name": "Ada", "last_name": "ΟΔΟΣΑ"}),
    );
    service.create("two@x.io");

    assert_eq!(service.listed_addresses("query=ONE%40"), ["one@x.io"]);
    assert_eq!(service.listed_addresses("query=aDA"), ["one@x.io"]);
    assert_eq!(
        service.listed_addresses("query=%CE%BF%CE%B4%CE%9F"),
        ["one@x.io"]
    );
    assert_eq!(
        service.listed_addresses("query=x.io"),
        ["two@x.io", "one@x.io"]
    );
    assert_eq!(service.listed_addresses("query=three"), [""; 0]);
}

#[test]
fn segment_rule_and_query_filter_a_list_together() {
    let mut service = service_with(&["ada@x.io", "bob@x.io", "ann@x.io"], Dialect::default());
    let listed = SegmentKind::Contacts(vec!["Ada@x.io".to_owned(), "bob@x.io".to_owned()]);
    service.audience.put_segment("seg_list", listed).unwrap();
    let everyone = SegmentKind::Rule(json!({"match_": "all", "conditions": []}));
    service.audience.put_segment("seg_rule", everyone).unwrap();

    assert_eq!(
        service.listed_addresses("segment_id=seg_list"),
        ["bob@x.io", "ada@x.io"]
    );
    assert_eq!(
        service.listed_addresses("segment_id=seg_list&query=a%64a"),
        ["ada@x.io"]
    );
    assert_eq!(service.listed_addresses("segment_id=seg_rule").len(), 3);
    let nobody = "rules=%7B%22match_%22%3A%22any%22%2C%22conditions%22%3A%5B%5D%7D";
    assert_eq!(
        service.listed_addresses(&format!("query=a&{nobody}")),
        [""; 0]
    );
    assert_eq!(
        status_and_slug(&service.get("/contacts?segment_id=seg_2")),
        (404, "not_found")
    );
    assert_eq!(
        status_and_slug(&service.get("/contacts?after=con_9")),
        (422, "validation_error")
    );
    let both = format!("/contacts?segment_id=seg_list&{nobody}");
    assert_eq!(
        status_and_slug(&service.get(&both)),
        (422, "validation_error")
    );
}

#[test]
fn a_dialect_can_combine_a_segment_with_a_rule() {
    let dialect = Dialect {
        segment_with_rules: SegmentWithRules::BothHold,
        ..Dialect::default()
    };
    let mut service = service_with(&["ada@x.io", "bob@x.io", "ann@x.io"], dialect);
    let members = SegmentKind::Contacts(vec!["ada@x.io".to_owned(), "bob@x.io".to_owned()]);
    service.audience.put_segment("seg_list", members).unwrap();
    let mut list =
        |rule: &str| service.listed_addresses(&format!("segment_id=seg_list&rules={rule}"));

    assert_eq!(list(r#"{"match_":"any","conditions":[]}"#), [""; 0]);
    assert_eq!(
        list(r#"{"match_":"all","conditions":[]}"#),
        ["bob@x.io", "ada@x.io"]
    );
}

#[test]
fn the_dialect_decides_next_at_the_end_of_a_list() {
    let id = "con_00000001";
    let cases = [
        (EndOfList::Empty, Some(json!(id)), Some(json!(""))),
        (EndOfList::Null, Some(json!(id)), Some(Value::Null)),
        (EndOfList::Absent, Some(json!(id)), None),
        (EndOfList::EarlyEmpty, Some(json!("")), Some(json!(""))),
        (EndOfList::EarlyNull, Some(Value::Null), Some(Value::Null)),
        (EndOfList::EarlyAbsent, None, None),
    ];
    for (end_of_list, with_data, without) in cases {
        let dialect = Dialect {
            end_of_list,
            ..Dialect::default()
        };
        let mut service = service_with(&["a@x.io", "b@x.io"], dialect);

        let first = service.get("/contacts?limit=1").1;
        let last = service.get("/contacts?limit=1&after=con_00000002").1;
        let empty = service.get("/contacts?limit=1&after=con_00000001").1;

        assert_eq!(first["next"], "con_00000002", "{end_of_list:?}");
        assert_eq!(last.get("next"), with_data.as_ref(), "{end_of_list:?}");
        assert_eq!(empty.get("next"), without.as_ref(), "{end_of_list:?}");
    }
}

fn parse(query: &str) -> Result<ListParameters, Refusal> {
    ListParameters::parse(query, Dialect::default())
}

#[test]
fn the_limit_is_clamped_to_1_to_200() {
    for (query, limit) in [
        ("", 50),
        ("limit=7", 7),
        ("limit=0", 1),
        ("limit=-5", 1),
        ("limit=200", 200),
        ("limit=201", 200),
        ("limit=99999999999999999999999999", 200),
    ] {
        assert_eq!(parse(query).unwrap().limit, limit, "{query}");
    }
}

#[test]
fn an_empty_text_or_cursor_counts_as_left_out() {
    let parameters = parse("query=&after=&").unwrap();

    assert!(parameters.text.is_none() && parameters.after.is_none());
}

#[test]
fn a_plus_sign_is_a_space_and_an_encoded_one_is_a_plus_sign() {
    assert_eq!(parse("query=A+b%2BC").unwrap().text.unwrap(), "a b+c");
}

#[test]
fn invalid_parameters_are_refused_by_name() {
    for (query, message) in [
        ("limit=", "`limit` must be a whole number, not \"\""),
        ("limit=ten", "`limit` must be a whole number, not \"ten\""),
        ("limit=1.5", "`limit` must be a whole number, not \"1.5\""),
        ("limit=1&limit=1", "`limit` is given twice"),
        (
            "segment=a",
            "`segment` is not a known parameter; known parameters: `limit`, `after`, `query`, `segment_id`, `rules`",
        ),
        (
            "segment_id=a&rules={}",
            "`segment_id` and `rules` cannot be sent together",
        ),
        ("rules={}", "`rules`: `match_` is missing"),
        ("query=%f", "`%` must be followed by two hex digits"),
        ("query=%ff", "the percent-encoded bytes are not valid UTF-8"),
    ] {
        assert_eq!(parse(query).err().unwrap().message, message);
    }
    let message = parse("rules=nonsense").err().unwrap().message;
    assert!(message.starts_with("`rules`: invalid JSON"), "{message}");
}
