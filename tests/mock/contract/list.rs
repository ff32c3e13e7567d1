//! Section 4.4: the parameters of the list.

use serde_json::json;

use super::{Api, members};

fn api_with(contacts: usize) -> Api {
    let api = Api::start();
    let all: Vec<_> = (0..contacts)
        .map(|n| json!({"email": format!("c{n:03}@example.com")}))
        .collect();
    for batch in all.chunks(100) {
        api.post("/contacts/batch", json!(batch)).expect(200);
    }
    api
}

/// Asserts that a page has the expected size with each of these limits.
#[track_caller]
fn expect_page_size(api: &Api, limits: &[&str], expected: usize) {
    for limit in limits {
        let page = api.list(&[("limit", limit)]).expect(200);
        assert_eq!(
            page["data"].as_array().unwrap().len(),
            expected,
            "limit={limit}"
        );
    }
}

#[test]
fn section_4_4_the_response_has_data_and_next() {
    let api = api_with(1);

    let page = api.get("/contacts").expect(200);

    assert_eq!(members(&page), ["data", "next"]);
    assert_eq!(page["next"], page["data"][0]["id"]);
}

#[test]
fn section_4_4_the_limit_is_50_by_default() {
    let api = api_with(60);

    assert_eq!(
        api.get("/contacts").expect(200)["data"]
            .as_array()
            .unwrap()
            .len(),
        50
    );
}

#[test]
fn section_4_4_a_limit_within_the_range_is_used_unchanged() {
    let api = api_with(201);

    for limit in [1, 2, 50, 199, 200] {
        expect_page_size(&api, &[&limit.to_string()], limit);
    }
}

#[test]
fn section_4_4_a_limit_below_the_range_is_clamped_to_1() {
    expect_page_size(&api_with(3), &["0", "-1", "-5", "-99999999999999999999"], 1);
}

#[test]
fn section_4_4_a_limit_above_the_range_is_clamped_to_200() {
    expect_page_size(
        &api_with(201),
        &["201", "1000", "4294967297", "99999999999999999999999"],
        200,
    );
}

#[test]
fn default_bad_list_parameters_a_limit_that_is_not_a_number_is_422() {
    let api = api_with(1);

    for limit in ["abc", "ten", "5x", "0x10", ""] {
        let message = api
            .list(&[("limit", limit)])
            .refused(422, "validation_error");
        assert!(message.contains("limit"), "{message}");
    }
}

#[test]
fn default_bad_list_parameters_an_unknown_cursor_is_422() {
    let api = api_with(1);

    for after in ["nowhere", "c000@example.com", "0", " "] {
        let message = api
            .list(&[("after", after)])
            .refused(422, "validation_error");
        assert!(message.contains("after"), "{message}");
    }
}

#[test]
fn default_bad_list_parameters_an_empty_query_or_cursor_is_ignored() {
    let api = api_with(2);

    assert_eq!(api.listed(&[("query", "")]).len(), 2);
    assert_eq!(api.listed(&[("after", "")]).len(), 2);
    assert_eq!(api.listed(&[("query", ""), ("after", "")]).len(), 2);
}

#[test]
fn default_bad_list_parameters_an_unknown_segment_is_404() {
    let api = api_with(1);

    let message = api
        .list(&[("segment_id", "seg_none")])
        .refused(404, "not_found");

    assert!(message.contains("seg_none"), "{message}");
}

#[test]
fn default_an_unknown_parameter_is_422() {
    let api = api_with(1);

    for name in ["page", "Limit", "cursor", "segment", "rule"] {
        let message = api.list(&[(name, "1")]).refused(422, "validation_error");
        assert!(message.contains(name), "{message}");
    }
}

#[test]
fn default_a_repeated_parameter_is_422() {
    let api = api_with(2);

    api.get("/contacts?limit=1&limit=2")
        .refused(422, "validation_error");
    api.get("/contacts?query=a&query=b")
        .refused(422, "validation_error");
}

#[test]
fn section_4_4_an_empty_query_string_is_ignored() {
    let api = api_with(2);

    assert_eq!(
        api.get("/contacts?").expect(200)["data"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

#[test]
fn section_4_4_parameters_are_url_encoded() {
    let api = api_with(2);

    for target in [
        "/contacts?query=c001%40example",
        "/contacts?query=c001@example",
        "/contacts?qu%65ry=%63%30%30%31",
        "/contacts?limit=%31&query=c001",
    ] {
        let page = api.get(target).expect(200);
        assert_eq!(
            super::strings(&page["data"], "email"),
            ["c001@example.com"],
            "{target}"
        );
    }
}

#[test]
fn section_4_4_an_empty_audience_has_an_empty_page() {
    let api = Api::start();

    assert_eq!(
        api.get("/contacts").expect(200),
        json!({"data": [], "next": ""})
    );
}
