//! The content type of a request with a body, and the dialects that differ in it.

use audience::mock::Dialect;
use audience::mock::dialect::OtherContentType;
use serde_json::json;

use super::{Api, api_with_ada};

const ADA: &str = "ada@example.com";

#[test]
fn default_a_content_type_other_than_json_is_422_and_is_named() {
    let api = api_with_ada();
    let before = api.retrieve(ADA);

    for content_type in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/jsonp",
    ] {
        for (method, target, body) in [
            ("POST", "/contacts", json!({"email": "bob@example.com"})),
            (
                "POST",
                "/contacts/batch",
                json!([{"email": "bob@example.com"}]),
            ),
            (
                "POST",
                "/contacts/ada%40example.com/unsubscribe",
                json!({"reason": "manual"}),
            ),
            ("POST", "/contacts/ada%40example.com/subscribe", json!({})),
            (
                "PATCH",
                "/contacts/ada%40example.com",
                json!({"properties": {"a": 1}}),
            ),
            (
                "POST",
                "/emails",
                json!({"from": "me@example.com", "to": ADA}),
            ),
        ] {
            let message = api
                .request(method, target)
                .header("content-type", content_type)
                .body(body)
                .send()
                .refused(422, "validation_error");
            assert!(message.contains(content_type), "{message}");
        }
    }

    assert_eq!(api.server.contact_count(), 1);
    assert_eq!(api.retrieve(ADA), before);
}

#[test]
fn default_a_body_with_a_json_content_type_or_without_one_is_read() {
    let api = api_with_ada();

    for (n, content_type) in [
        "application/json",
        "application/json; charset=utf-8",
        "Application/JSON",
        "application/vnd.api+json",
    ]
    .into_iter()
    .enumerate()
    {
        api.request("POST", "/contacts")
            .header("content-type", content_type)
            .body(json!({"email": format!("c{n}@example.com")}))
            .send()
            .expect(201);
    }
    api.create("without@example.com");
}

#[test]
fn default_the_content_type_of_a_request_without_a_body_is_ignored() {
    let api = api_with_ada();

    for target in [
        "/contacts/ada%40example.com/unsubscribe",
        "/contacts/ada%40example.com/subscribe",
    ] {
        api.request("POST", target)
            .header("content-type", "text/plain")
            .send()
            .expect(200);
    }
    api.request("GET", "/contacts")
        .header("content-type", "text/plain")
        .body("ignored")
        .send()
        .expect(200);
}

#[test]
fn default_the_content_type_is_checked_after_the_key_the_path_and_the_method() {
    let api = api_with_ada();
    let plain = |method: &str, target: &str| {
        api.request(method, target)
            .header("content-type", "text/plain")
            .body("{")
    };

    plain("POST", "/contacts")
        .without_key()
        .send()
        .refused(401, "unauthorized");
    plain("POST", "/contacts")
        .sending_key()
        .send()
        .refused(403, "key_not_permitted");
    plain("POST", "/nowhere").send().refused(404, "not_found");
    plain("PURGE", "/contacts").send().refused(404, "not_found");
    plain("POST", "/contacts/nobody%40example.com/subscribe")
        .send()
        .refused(422, "validation_error");
}

#[test]
fn dialect_other_content_type() {
    for (other_content_type, status, slug) in [
        (
            OtherContentType::UnsupportedMediaType,
            415,
            Some("unsupported_media_type"),
        ),
        (OtherContentType::Ignored, 201, None),
    ] {
        let api = Api::with_dialect(Dialect {
            other_content_type,
            ..Dialect::default()
        });

        let body = api
            .request("POST", "/contacts")
            .header("content-type", "application/x-www-form-urlencoded")
            .body(json!({ "email": ADA }))
            .send()
            .expect(status);

        assert_eq!(body["error"]["code"].as_str(), slug);
    }
}
