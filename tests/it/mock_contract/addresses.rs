//! Section 4: addresses in paths are URL-encoded.

use serde_json::json;

use super::Api;

/// Whether each of these paths leads to the contact.
#[track_caller]
fn all_lead_to(api: &Api, address: &str, segments: &[&str]) {
    for segment in segments {
        let found = api.get(format!("/contacts/{segment}")).expect(200);
        assert_eq!(found["email"], address, "{segment}");
    }
}

#[track_caller]
fn none_leads_anywhere(api: &Api, segments: &[&str]) {
    for segment in segments {
        let answer = api.get(format!("/contacts/{segment}"));
        assert_eq!(answer.status, 404, "{segment}");
        answer.refused(404, "not_found");
    }
}

#[test]
fn section_4_an_address_in_a_path_may_be_encoded_more_or_less() {
    let api = Api::start();
    api.create("ada@example.com");

    all_lead_to(
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
fn default_address_in_a_path_is_lowercased_and_trimmed_like_any_other() {
    let api = Api::start();
    api.create("ada@example.com");

    all_lead_to(
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
fn section_4_a_plus_in_a_path_is_a_plus() {
    let api = Api::start();
    api.create("ada+news@example.com");

    all_lead_to(
        &api,
        "ada+news@example.com",
        &[
            "ada+news@example.com",
            "ada%2Bnews%40example.com",
            "ada%2bnews@example.com",
        ],
    );
    none_leads_anywhere(
        &api,
        &["ada%20news%40example.com", "ada%252Bnews%40example.com"],
    );
}

#[test]
fn section_4_an_encoded_slash_is_part_of_the_address() {
    let api = Api::start();
    api.create("a/b@example.com");
    api.create("a/subscribe@example.com");

    all_lead_to(
        &api,
        "a/b@example.com",
        &["a%2Fb%40example.com", "a%2fb@example.com"],
    );
    none_leads_anywhere(&api, &["a/b%40example.com"]);
    api.post("/contacts/a%2Fsubscribe%40example.com/unsubscribe", ())
        .expect(200);
}

#[test]
fn section_4_other_odd_addresses_are_reached_encoded() {
    let api = Api::start();
    let odd = [
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

    for address in odd {
        api.create(address);
    }

    for address in odd {
        assert_eq!(api.retrieve(address)["email"], address);
        assert_eq!(api.unsubscribe(address, ()).expect(200)["email"], address);
    }
    assert_eq!(api.server.contact_count(), odd.len());
}

#[test]
fn section_2_1_addresses_beyond_ascii_are_lowercased_too() {
    let api = Api::start();

    assert_eq!(api.create("ZOË@EXÄMPLE.COM")["email"], "zoë@exämple.com");

    all_lead_to(&api, "zoë@exämple.com", &["ZO%C3%8B%40ex%C3%A4mple.com"]);
}

#[test]
fn section_4_an_address_encoded_twice_is_another_address() {
    let api = Api::start();
    api.create("ada@example.com");

    none_leads_anywhere(&api, &["ada%2540example.com", "ada%252540example.com"]);
}

#[test]
fn section_4_a_path_that_is_badly_encoded_is_a_refusal_and_no_crash() {
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
            let answer = api
                .request(method, format!("/contacts/{segment}"))
                .body(json!({"properties": {}}))
                .send();
            assert!(
                matches!(answer.status, 400 | 404 | 422),
                "{segment}: {}",
                answer.status
            );
        }
        for call in ["subscribe", "unsubscribe"] {
            let answer = api.post(format!("/contacts/{segment}/{call}"), ());
            assert!(
                matches!(answer.status, 400 | 404 | 422),
                "{segment}: {}",
                answer.status
            );
        }
    }

    assert_eq!(api.server.contact_count(), 1);
}

#[test]
fn section_4_an_empty_address_is_nobody() {
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
fn section_4_dots_in_a_path_are_not_folded_away() {
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
