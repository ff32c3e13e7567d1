//! Unusual and invalid requests: the mock responds to each and keeps running.

use std::io::Write;

use serde_json::{Value, json};

use super::api_with_ada;

const ADA: &str = "ada@example.com";
const CONTACT: &str = "/contacts/ada%40example.com";

#[test]
fn a_head_request_is_a_get_without_a_body() {
    let api = api_with_ada();

    for (target, status) in [
        ("/contacts", 200),
        ("/contacts/ada%40example.com", 200),
        ("/contacts/bob%40example.com", 404),
        ("/emails", 404),
    ] {
        let response = api.request("HEAD", target).send();
        assert_eq!(response.status, status, "{target}");
        assert!(response.body.is_empty());
    }
}

#[test]
fn an_unsupported_method_is_404_names_the_supported_ones_and_changes_nothing() {
    let api = api_with_ada();
    let before = api.retrieve(ADA);

    for (target, supported) in [
        ("/contacts", &["GET", "POST"][..]),
        ("/contacts/batch", &["POST"]),
        (CONTACT, &["GET", "PATCH"]),
        ("/contacts/ada%40example.com/subscribe", &["POST"]),
        ("/contacts/ada%40example.com/unsubscribe", &["POST"]),
        ("/emails", &["POST"]),
    ] {
        let methods = [
            "GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PURGE",
        ];
        // `retrieve_and_merge` has the deletions: they are 501.
        let has_other_test = |method: &str| {
            method == "DELETE" && ["/contacts", "/contacts/batch", CONTACT].contains(&target)
        };
        for method in methods {
            if supported.contains(&method) || has_other_test(method) {
                continue;
            }
            let body = json!({"email": "bob@example.com"});
            let message = api
                .request(method, target)
                .body(body)
                .send()
                .refused(404, "not_found");
            assert!(
                supported.iter().all(|method| message.contains(method)),
                "{method} {target}: {message}"
            );
        }
    }

    assert_eq!(api.server.contact_count(), 1);
    assert_eq!(api.retrieve(ADA), before);
}

#[test]
fn unknown_paths_are_404_with_the_usual_error_body() {
    let api = api_with_ada();

    for target in [
        "/",
        "/contact",
        "/Contacts",
        "/contacts/",
        "/contacts/ada%40example.com/",
        "/contacts/batch/",
        "//contacts",
        "/v1/contacts",
        "/contacts/ada%40example.com/no-such-path",
        "/segment",
        "/Topics",
        "/v1/segments",
        "/contacts/segments/seg_1",
        "/emails/em_1",
    ] {
        api.get(target).refused(404, "not_found");
        api.post(target, json!({"email": "bob@example.com"}))
            .refused(404, "not_found");
    }

    assert_eq!(api.server.contact_count(), 1);
}

#[test]
fn the_body_of_a_get_is_ignored() {
    let api = api_with_ada();

    api.request("GET", "/contacts")
        .body("{ no json")
        .send()
        .expect(200);
    api.request("GET", "/contacts/ada%40example.com")
        .body(json!({"email": "bob@example.com"}))
        .send()
        .expect(200);
}

#[test]
fn the_accept_header_is_ignored() {
    let response = api_with_ada()
        .request("GET", "/contacts")
        .header("accept", "text/html")
        .send();

    response.expect(200);
}

#[test]
fn a_body_that_is_not_utf_8_is_422() {
    let api = api_with_ada();

    for body in [
        &b"{\"email\": \"\xff@example.com\"}"[..],
        b"\xff\xfe",
        b"{\"email\": \"\xed\xa0\x80@example.com\"}",
    ] {
        api.post("/contacts", body).refused(422, "validation_error");
        api.post("/contacts/batch", body)
            .refused(422, "validation_error");
        api.post("/contacts/ada%40example.com/unsubscribe", body)
            .refused(422, "validation_error");
    }

    assert_eq!(api.server.contact_count(), 1);
    assert_eq!(api.retrieve(ADA)["unsubscribed"], false);
}

#[test]
fn a_body_with_a_byte_order_mark_is_422() {
    let api = api_with_ada();

    api.post("/contacts", "\u{feff}{\"email\": \"bob@example.com\"}")
        .refused(422, "validation_error");
}

#[test]
fn deeply_nested_json_is_422_without_a_crash() {
    let api = api_with_ada();

    for depth in [200, 100_000] {
        let nested = "[".repeat(depth) + &"]".repeat(depth);
        api.post(
            "/contacts",
            &*format!("{{\"email\": \"a@example.com\", \"properties\": {{\"x\": {nested}}}}}"),
        )
        .refused(422, "validation_error");
        api.post("/contacts", &*nested)
            .refused(422, "validation_error");
        let rules = format!(
            "{{\"match_\": \"all\", \"conditions\": {}}}",
            "[".repeat(200)
        );
        api.list(&[("rules", &rules)])
            .refused(422, "validation_error");
    }

    api.get("/contacts").expect(200);
}

#[test]
fn huge_numbers_are_stored_as_json_parses_them_or_refused() {
    let api = api_with_ada();

    for number in [
        "18446744073709551615",
        "-9223372036854775808",
        "1e308",
        "0.1",
        "1e400",
        "123456789012345678901234567890",
    ] {
        let body = format!("{{\"email\": \"{ADA}\", \"properties\": {{\"x\": {number}}}}}");
        let response = api.post("/contacts", &*body);
        if response.status == 422 {
            continue;
        }
        let kept = response.expect(200)["properties"]["x"].clone();
        assert_eq!(
            kept,
            serde_json::from_str::<Value>(number).unwrap(),
            "{number}"
        );
    }
}

#[test]
fn a_duplicate_member_is_422() {
    let api = api_with_ada();

    for body in [
        r#"{"email": "a@example.com", "email": "b@example.com"}"#,
        r#"{"email": "a@example.com", "first_name": "A", "first_name": "B"}"#,
        r#"{"email": "a@example.com", "on_conflict": "skip", "on_conflict": "upsert"}"#,
        r#"{"email": "a@example.com", "properties": {"x": 1, "x": 2}}"#,
    ] {
        api.post("/contacts", body).refused(422, "validation_error");
    }
    api.post(
        "/contacts/ada%40example.com/unsubscribe",
        r#"{"reason": "complaint", "reason": "manual"}"#,
    )
    .refused(422, "validation_error");

    assert_eq!(api.server.contact_count(), 1);
    assert_eq!(api.retrieve(ADA)["unsubscribed"], false);
}

#[test]
fn a_chunked_body_is_read_like_any_other() {
    let api = api_with_ada();

    let response = api.send_raw(&format!(
        "POST /contacts HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer {}\r\ntransfer-encoding: chunked\r\n\r\n\
         c\r\n{{\"email\": \"b\r\n10\r\nob@example.com\"}}\r\n0\r\n\r\n",
        api.server.full_key()
    ));

    assert!(response.starts_with("HTTP/1.1 201"), "{response}");
    assert_eq!(api.retrieve("bob@example.com")["email"], "bob@example.com");
}

#[test]
fn several_requests_on_one_connection_get_responses_in_order() {
    let api = api_with_ada();
    let key = api.server.full_key();

    let responses = api.send_raw(&format!(
        "GET /contacts/ada%40example.com HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n\r\n\
         GET /contacts/bob%40example.com HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer {key}\r\n\r\n"
    ));

    let statuses: Vec<&str> = responses
        .match_indices("HTTP/1.1 ")
        .map(|(at, head)| &responses[at + head.len()..][..3])
        .collect();
    assert_eq!(statuses, ["200", "404"]);
}

#[test]
fn invalid_http_does_not_stop_the_server() {
    let api = api_with_ada();

    for garbage in [
        &b"\x16\x03\x01\x02\x00"[..],
        b"GET\r\n\r\n",
        b"\r\n\r\n\r\n",
        b"GET /contacts HTTP/9.9\r\n\r\n",
        b"POST /contacts HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
    ] {
        api.connect().write_all(garbage).unwrap();
    }

    api.get("/contacts").expect(200);
}
