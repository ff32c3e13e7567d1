//! Section 5: what each kind of key may do.

use serde_json::{Value, json};

use super::{Api, api_with_ada};

/// Every call of section 4, each valid with a full-access key.
fn calls() -> Vec<(&'static str, &'static str, Value)> {
    vec![
        ("POST", "/contacts", json!({"email": "bob@example.com"})),
        (
            "POST",
            "/contacts/batch",
            json!([{"email": "eve@example.com"}]),
        ),
        ("GET", "/contacts/ada%40example.com", Value::Null),
        ("GET", "/contacts", Value::Null),
        ("POST", "/contacts/ada%40example.com/unsubscribe", json!({})),
        ("POST", "/contacts/ada%40example.com/subscribe", json!({})),
        (
            "PATCH",
            "/contacts/ada%40example.com",
            json!({"properties": {}}),
        ),
    ]
}

#[test]
fn section_5_a_full_access_key_may_do_everything() {
    let api = api_with_ada();

    for (method, target, body) in calls() {
        let response = api.request(method, target).body(body).send();
        assert!(
            matches!(response.status, 200 | 201),
            "{method} {target}: {}",
            response.status
        );
    }
}

#[test]
fn section_5_the_audience_endpoints_need_a_full_access_key() {
    let api = api_with_ada();
    let before = api.retrieve("ada@example.com");

    for (method, target, body) in calls() {
        api.request(method, target)
            .sending_key()
            .body(body)
            .send()
            .refused(403, "key_not_permitted");
    }

    assert_eq!(api.server.contact_count(), 1);
    assert_eq!(api.retrieve("ada@example.com"), before);
}

#[test]
fn section_5_a_sending_key_cannot_find_out_who_is_a_contact() {
    let api = api_with_ada();
    let refusal = |target: &str| {
        api.request("GET", target)
            .sending_key()
            .send()
            .refused(403, "key_not_permitted")
    };

    assert_eq!(
        refusal("/contacts/ada%40example.com"),
        refusal("/contacts/nobody%40example.com")
    );
}

#[test]
fn default_no_key_is_401_on_every_endpoint() {
    let api = api_with_ada();

    for (method, target, body) in calls() {
        api.request(method, target)
            .without_key()
            .body(body)
            .send()
            .refused(401, "unauthorized");
    }
    api.request("POST", "/emails")
        .without_key()
        .body(json!({}))
        .send()
        .refused(401, "unauthorized");

    assert_eq!(api.server.contact_count(), 1);
}

#[test]
fn default_an_unknown_or_misplaced_key_is_401() {
    let api = api_with_ada();
    let key = api.server.full_key().to_owned();

    for authorization in [
        "Bearer".to_owned(),
        "Bearer ".to_owned(),
        "Bearer nonsense".to_owned(),
        format!("Bearer {key}x"),
        format!("Bearer {}", &key[..key.len() - 1]),
        format!("Basic {key}"),
        key.clone(),
        String::new(),
    ] {
        let response = api
            .request("GET", "/contacts")
            .without_key()
            .header("authorization", &authorization)
            .send();
        response.refused(401, "unauthorized");
    }
    let wrong_header = api
        .request("GET", "/contacts")
        .without_key()
        .header("x-api-key", &key)
        .send();
    wrong_header.refused(401, "unauthorized");
    api.request("GET", format!("/contacts?key={key}"))
        .without_key()
        .send()
        .refused(401, "unauthorized");
}

#[test]
fn default_a_refusal_does_not_contain_the_key() {
    let api = api_with_ada();

    let response = api
        .request("GET", "/contacts")
        .without_key()
        .header("authorization", "Bearer tell-nobody")
        .send();

    assert!(
        !response
            .refused(401, "unauthorized")
            .contains("tell-nobody")
    );
}

#[test]
fn default_the_header_of_the_key_can_be_changed() {
    let api = Api::with(|builder| builder.auth_header("x-api-key"));
    let (full, sending) = (
        api.server.full_key().to_owned(),
        api.server.sending_key().to_owned(),
    );
    let get = |name: &str, value: &str| {
        api.request("GET", "/contacts")
            .without_key()
            .header(name, value)
            .send()
    };

    get("x-api-key", &full).expect(200);
    get("X-API-Key", &full).expect(200);
    get("x-api-key", &sending).refused(403, "key_not_permitted");
    get("x-api-key", &format!("Bearer {full}")).refused(401, "unauthorized");
    api.get("/contacts").refused(401, "unauthorized");
}

#[test]
fn default_emails_accepts_both_keys() {
    let api = api_with_ada();
    let mail = json!({"from": "me@example.com", "to": "ada@example.com", "subject": "Hello"});

    for request in [
        api.request("POST", "/emails"),
        api.request("POST", "/emails").sending_key(),
    ] {
        let response = request.body(mail.clone()).send();
        assert!(matches!(response.status, 200..=202), "{}", response.status);
    }
}
