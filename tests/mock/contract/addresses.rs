//! Section 4: addresses in paths are URL-encoded.

use audience::mock::{EngagementKind, SegmentKind};
use serde_json::json;

use super::Api;

/// Asserts that each of these path segments finds the contact.
#[track_caller]
fn all_find(api: &Api, address: &str, segments: &[&str]) {
    for segment in segments {
        let found = api.get(format!("/contacts/{segment}")).expect(200);
        assert_eq!(found["email"], address, "{segment}");
    }
}

/// Asserts that each of these path segments is 404.
#[track_caller]
fn none_finds_a_contact(api: &Api, segments: &[&str]) {
    for segment in segments {
        let response = api.get(format!("/contacts/{segment}"));
        assert_eq!(response.status, 404, "{segment}");
        response.refused(404, "not_found");
    }
}

#[test]
fn section_4_an_address_in_a_path_may_have_any_characters_encoded() {
    let api = Api::start();
    api.create("ada@example.com");

    all_find(
        &api,
        "ada@example.com",
        &[
            "ada%40example.com",
            "ada@example.com",
            "%61da%40example%2Ecom",
            "%61%64%61%40%65%78%61%6d%70%6C%65.com",
        ],
    );
}

#[test]
fn default_an_address_in_a_path_is_lowercased_and_trimmed() {
    let api = Api::start();
    api.create("ada@example.com");

    all_find(
        &api,
        "ada@example.com",
        &[
            "ADA%40EXAMPLE.COM",
            "Ada@Example.com",
            "%20ada%40example.com%20",
            "%09ada%40example.com%0A",
        ],
    );
    api.post("/contacts/ADA%40EXAMPLE.COM/unsubscribe", ())
        .expect(200);
    api.post("/contacts/%20ada%40example.com/subscribe", ())
        .expect(200);
    api.patch("/contacts/ADA%40example.com", json!({"properties": {}}))
        .expect(200);
}

#[test]
fn section_4_a_plus_in_a_path_is_not_a_space() {
    let api = Api::start();
    api.create("ada+news@example.com");

    all_find(
        &api,
        "ada+news@example.com",
        &[
            "ada+news@example.com",
            "ada%2Bnews%40example.com",
            "ada%2bnews@example.com",
        ],
    );
    none_finds_a_contact(
        &api,
        &["ada%20news%40example.com", "ada%252Bnews%40example.com"],
    );
}

#[test]
fn section_4_an_encoded_slash_is_part_of_the_address() {
    let api = Api::start();
    api.create("a/b@example.com");
    api.create("a/subscribe@example.com");

    all_find(
        &api,
        "a/b@example.com",
        &["a%2Fb%40example.com", "a%2fb@example.com"],
    );
    none_finds_a_contact(&api, &["a/b%40example.com"]);
    api.post("/contacts/a%2Fsubscribe%40example.com/unsubscribe", ())
        .expect(200);
}

#[test]
fn section_4_unusual_addresses_are_found_when_encoded() {
    let api = Api::start();
    let addresses = [
        "o'hara@example.com",
        "a%40b@example.com",
        "50%off@example.com",
        "#1@example.com",
        "who?@example.com",
        "a&b=c@example.com",
        "zoë@exämple.com",
        "a;b@example.com",
        "用户@例え.jp",
    ];

    for address in addresses {
        api.create(address);
    }

    for address in addresses {
        assert_eq!(api.retrieve(address)["email"], address);
        assert_eq!(api.unsubscribe(address, ()).expect(200)["email"], address);
    }
    assert_eq!(api.server.contact_count(), addresses.len());
}

#[test]
fn section_2_1_non_ascii_addresses_are_lowercased_too() {
    let api = Api::start();

    assert_eq!(api.create("ZOË@EXÄMPLE.COM")["email"], "zoë@exämple.com");

    all_find(&api, "zoë@exämple.com", &["ZO%C3%8B%40ex%C3%A4mple.com"]);
}

#[test]
fn section_4_an_address_encoded_twice_is_a_different_address() {
    let api = Api::start();
    api.create("ada@example.com");

    none_finds_a_contact(&api, &["ada%2540example.com", "ada%252540example.com"]);
}

#[test]
fn section_4_an_invalid_path_encoding_is_refused_without_a_crash() {
    let api = Api::start();
    api.create("ada@example.com");

    for segment in [
        "ada%4",
        "ada%",
        "ada%zz",
        "%",
        "%%40",
        "ada%40example.com%ff",
        "%ff%40example.com",
        "%c3%28%40example.com",
        "%00",
        "ada%00%40example.com",
    ] {
        for method in ["GET", "PATCH"] {
            let response = api
                .request(method, format!("/contacts/{segment}"))
                .body(json!({"properties": {}}))
                .send();
            assert!(
                matches!(response.status, 400 | 404 | 422),
                "{segment}: {}",
                response.status
            );
        }
        for call in ["subscribe", "unsubscribe"] {
            let response = api.post(format!("/contacts/{segment}/{call}"), ());
            assert!(
                matches!(response.status, 400 | 404 | 422),
                "{segment}: {}",
                response.status
            );
        }
    }

    assert_eq!(api.server.contact_count(), 1);
}

#[test]
fn section_4_an_empty_address_is_not_found() {
    let api = Api::start();
    api.create("ada@example.com");

    for path in [
        "/contacts//subscribe",
        "/contacts//unsubscribe",
        "/contacts/%20/subscribe",
    ] {
        api.post(path, ()).refused(404, "not_found");
    }
    api.get("/contacts/%20").refused(404, "not_found");

    assert_eq!(api.retrieve("ada@example.com")["unsubscribed"], false);
}

#[test]
fn section_4_dot_segments_in_a_path_are_not_resolved() {
    let api = Api::start();
    api.create("ada@example.com");

    for path in [
        "/contacts/.",
        "/contacts/..",
        "/contacts/%2e%2e",
        "/emails/../contacts",
        "/contacts/x/../ada%40example.com",
    ] {
        api.get(path).refused(404, "not_found");
    }
}

#[test]
fn section_2_1_a_lowercase_address_is_stored_as_it_was_sent() {
    let api = Api::start();

    for address in [
        "οδος@example.gr",
        "ırmak@example.com.tr",
        "straße@example.de",
    ] {
        assert_eq!(api.create(address)["email"], address);
    }
    assert_eq!(
        api.get("/contacts/irmak%40example.com.tr").status,
        404,
        "a dotless i is a letter of its own"
    );
}

#[test]
fn section_2_1_engagement_suppression_and_segments_find_an_address_in_any_case() {
    let api = Api::start();
    api.server
        .record_engagement("ZOË@example.com", EngagementKind::Opened, 0);
    api.server.segment(
        "seg_1",
        SegmentKind::Contacts(vec!["Zoë@example.com".to_owned()]),
    );
    api.create("zoë@example.com");

    let opened = json!({"field": "engagement", "what": "opened", "op": "ever"});
    assert_eq!(api.matching(opened), ["zoë@example.com"]);
    assert_eq!(api.listed(&[("segment_id", "seg_1")]), ["zoë@example.com"]);
    api.server.report_spam("Zoë@example.com");
    api.subscribe("ZOË@example.com", ())
        .refused(422, "failed_precondition");
}

#[test]
fn section_2_4_addresses_that_people_have_are_accepted() {
    let api = Api::start();

    for address in [
        "a+b.c_d-e@x-y.example.com",
        "!#$%&'*+-/=?^_`{|}~@example.com",
        "a..b.@docomo.example",
        "\"ada,lovelace\"@example.com",
        "用户@例え.テスト",
        "हिन्दी@उदाहरण.भारत",
        "ada@localhost",
        "ada@xn--exmple-cua.com",
        "ada@[192.0.2.1]",
        "ada@[IPv6:2001:db8::1]",
    ] {
        assert_eq!(api.create(address)["email"], address.to_lowercase());
    }
}
