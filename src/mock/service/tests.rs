use super::mail::{MailOutcome, apply_outcome, report_spam};
use super::*;

#[test]
fn a_sending_key_is_refused_by_every_endpoint_except_emails() {
    let mut service = Service::new();
    for (method, target) in [
        ("POST", "/contacts"),
        ("GET", "/contacts"),
        ("POST", "/contacts/batch"),
        ("GET", "/contacts/ada@x.io"),
        ("PATCH", "/contacts/ada@x.io"),
        ("POST", "/contacts/ada@x.io/subscribe"),
        ("POST", "/contacts/ada@x.io/unsubscribe"),
    ] {
        let response = service.send("sending", method, target, b"not even JSON");

        assert_eq!(
            status_and_slug(&response),
            (403, "key_not_permitted"),
            "{method} {target}"
        );
    }
    let body = json!({"from": "me@x.io", "to": "ada@x.io"}).to_string();
    for key in ["sending", "full"] {
        assert_eq!(service.send(key, "POST", "/emails", body.as_bytes()).0, 200);
    }
}

#[test]
fn the_key_is_checked_first() {
    let mut service = Service::new();
    for target in ["/contacts", "/nowhere", "/contacts/%"] {
        let response = service.send("other", "GET", target, b"");

        assert_eq!(
            status_and_slug(&response),
            (401, "unauthorized"),
            "{target}"
        );
    }
    assert_eq!(
        status_and_slug(&service.get("/nowhere")),
        (404, "not_found")
    );
    assert_eq!(
        status_and_slug(&service.send("full", "PURGE", "/contacts/ada@x.io", b"")),
        (404, "not_found")
    );
}

#[test]
fn a_spam_report_opts_out_counts_as_engagement_and_suppresses_the_address() {
    let mut service = Service::new();
    service.create("ada@x.io");

    report_spam(&mut service.audience, " ADA@x.io", service.now);
    report_spam(&mut service.audience, "nobody@x.io", service.now);

    let ada = service.audience.contact("ada@x.io").unwrap();
    assert!(ada.unsubscribed);
    assert_eq!(ada.unsubscribe_reason, "complaint");
    assert_eq!(service.audience.contacts.len(), 1);
    let rule =
        r#"{"match_":"all","conditions":[{"field":"engagement","what":"complained","op":"ever"}]}"#;
    assert_eq!(
        service.listed_addresses(&format!("rules={rule}")),
        ["ada@x.io"]
    );
    let to = json!({"from": "me@x.io", "to": ["ada@x.io", "nobody@x.io"]});
    service.post("/emails", &to);
    let types: Vec<String> = service
        .audience
        .take_events()
        .into_iter()
        .map(|event| event.event_type)
        .collect();
    assert_eq!(
        types,
        [
            "email.complained",
            "email.complained",
            "email.refused",
            "email.refused"
        ]
    );
}

#[test]
fn an_event_about_a_contacts_mail_counts_as_engagement() {
    let mut service = Service::new();
    service.create("ada@x.io");
    service.create("bob@x.io");

    for (event_type, to) in [
        ("email.opened", json!("Ada@x.io")),
        ("email.opened", json!("carol@x.io")),
        ("email.opened", json!(["bob@x.io"])),
        ("email.sent", json!("bob@x.io")),
        ("opened", json!("bob@x.io")),
    ] {
        let data = json!({ "to": to });
        service
            .audience
            .record_event(event_type, &data, service.now);
    }
    service.create("carol@x.io");

    let rule =
        r#"{"match_":"all","conditions":[{"field":"engagement","what":"opened","op":"ever"}]}"#;
    assert_eq!(
        service.listed_addresses(&format!("rules={rule}")),
        ["carol@x.io", "ada@x.io"],
        "carol became a contact after her event"
    );
}

#[test]
fn a_complained_event_is_a_spam_report() {
    let mut service = Service::new();
    service.create("ada@x.io");

    let data = json!({"to": "ada@x.io"});
    service
        .audience
        .record_event("email.complained", &data, service.now);

    let response = service.post_without_body("/contacts/ada@x.io/subscribe");
    assert_eq!(status_and_slug(&response), (422, "failed_precondition"));
    assert!(
        service.audience.take_events().is_empty(),
        "it is not published again"
    );
}

#[test]
fn an_event_whose_recipient_has_a_display_name_is_about_the_address() {
    let mut service = Service::new();
    service.create("ada@x.io");

    let data = json!({"to": "Ada <Ada@x.io>"});
    service
        .audience
        .record_event("email.complained", &data, service.now);

    let ada = service.audience.contact("ada@x.io").unwrap();
    assert_eq!(ada.unsubscribe_reason, "complaint");
    assert!(ada.suppressed);
    assert!(ada.engagement.contains_key(&EngagementKind::Complained));
}

#[test]
fn a_spam_report_is_about_the_latest_mail_to_the_address() {
    let mut service = Service::new();
    for subject in ["First", "Last"] {
        let mail = json!({"from": "me@x.io", "to": "ada@x.io", "subject": subject});
        service.post("/emails", &mail);
    }
    service.audience.take_events();

    report_spam(&mut service.audience, "Ada@x.io ", service.now);
    report_spam(&mut service.audience, "bob@x.io", service.now);

    let events = service.audience.take_events();
    assert_eq!(events.len(), 2);
    assert_eq!(events[0].event_type, "email.complained");
    assert_eq!(
        events[0].data,
        json!({"email_id": "eml_00000002", "from": "me@x.io", "to": "ada@x.io", "subject": "Last",
            "bounce_type": "", "detail": ""})
    );
    assert_eq!(events[1].data["to"], "bob@x.io");
}

#[test]
fn a_mail_is_reported_as_spam_only_once() {
    let mut service = Service::new();
    service.post("/emails", &json!({"from": "me@x.io", "to": "ada@x.io"}));
    report_spam(&mut service.audience, "ada@x.io", service.now);

    let complained = MailOutcome::complained();
    let error = apply_outcome(
        &mut service.audience,
        "eml_00000001",
        &complained,
        service.now,
    )
    .unwrap_err();

    assert!(
        error.message.contains("reported as spam"),
        "{}",
        error.message
    );
}

fn operation(method: &str, path: &str) -> Result<Operation, u16> {
    Route::parse(path)
        .and_then(|route| route.operation(method))
        .map_err(|refusal| refusal.status)
}

#[test]
fn the_latest_engagement_counts_in_any_order_of_recording() {
    let (ada, bob) = ("ada@x".to_owned(), "bob@x".to_owned());
    let mut engagements = Engagements::default();
    engagements.record(ada.clone(), EngagementKind::Opened, 20);
    engagements.record(ada.clone(), EngagementKind::Opened, 10);

    assert_eq!(engagements.latest(&ada, EngagementKind::Opened), Some(20));
    assert_eq!(engagements.latest(&ada, EngagementKind::Clicked), None);
    assert_eq!(engagements.latest(&bob, EngagementKind::Opened), None);
}

#[test]
fn each_endpoint_of_section_4_has_its_operation() {
    let ada = || "ada@example.com".to_owned();
    let cases = [
        ("POST", "/contacts", Operation::Create),
        ("GET", "/contacts", Operation::List),
        ("POST", "/contacts/batch", Operation::CreateBatch),
        (
            "GET",
            "/contacts/ada%40example.com",
            Operation::Retrieve(ada()),
        ),
        (
            "GET",
            "/contacts/ada@example.com",
            Operation::Retrieve(ada()),
        ),
        (
            "PATCH",
            "/contacts/ada%40example.com",
            Operation::Merge(ada()),
        ),
        (
            "POST",
            "/contacts/ada%40example.com/unsubscribe",
            Operation::Unsubscribe(ada()),
        ),
        (
            "POST",
            "/contacts/ada%40example.com/subscribe",
            Operation::Subscribe(ada()),
        ),
        (
            "DELETE",
            "/contacts/ada%40example.com",
            Operation::Delete(ada()),
        ),
        ("DELETE", "/contacts", Operation::Delete(String::new())),
        ("POST", "/emails", Operation::SendEmail),
    ];
    for (method, path, expected) in cases {
        assert_eq!(operation(method, path), Ok(expected), "{method} {path}");
    }
}

#[test]
fn an_encoded_slash_or_question_mark_stays_in_its_segment() {
    let address = Operation::Subscribe("a/b?c+d@x".to_owned());

    assert_eq!(
        operation("POST", "/contacts/a%2Fb%3fc+d%40x/subscribe"),
        Ok(address)
    );
}

#[test]
fn a_query_is_refused_unless_it_has_no_parameter() {
    for query in ["", "&", "&&"] {
        assert_eq!(refuse_parameters(query), Ok(()), "{query}");
    }
    for (query, name) in [
        ("topic=news", "`topic`"),
        ("&to%0apic+1", r"`to\npic 1`"),
        ("=news", "``"),
        ("%zz=1", "two hex digits"),
    ] {
        let refusal = refuse_parameters(query).unwrap_err();

        assert_eq!(refusal.status, 422, "{query}");
        assert!(refusal.message.contains(name), "{}", refusal.message);
    }
}

#[test]
fn an_unknown_path_is_not_found() {
    for path in [
        "",
        "/",
        "contacts",
        "/contact",
        "/contacts/a@x/subscribe/",
        "/contacts/a@x/no-such-path",
        "/contacts/a@x/",
        "/emails/eml_1/no-such-path",
        "/CONTACTS",
        "//contacts",
    ] {
        assert_eq!(operation("GET", path), Err(404), "{path}");
    }
}

#[test]
fn the_description_lists_each_path_that_the_document_only_names() {
    let description: Value =
        serde_json::from_str(include_str!("../../../openapi/audience.json")).unwrap();
    let mark = &description["info"]["x-our-reading"][1];

    let reading = mark["reading"].as_str().unwrap();

    let listed: Vec<&str> = reading
        .split('`')
        .filter(|part| part.starts_with('/'))
        .collect();
    assert_eq!(listed, NAMED_ONLY);
}

#[test]
fn an_unknown_method_of_a_known_path_is_not_found() {
    for (method, path) in [
        ("PURGE", "/contacts"),
        ("GET", "/contacts/batch"),
        ("PURGE", "/contacts/a@x"),
        ("GET", "/contacts/a@x/subscribe"),
        ("get", "/contacts"),
        ("GET", "/emails"),
    ] {
        assert_eq!(operation(method, path), Err(404), "{method} {path}");
    }
}

#[test]
fn a_path_that_cannot_be_decoded_is_invalid() {
    for path in [
        "/contacts/%",
        "/contacts/%4",
        "/contacts/%zz",
        "/contacts/%ff",
    ] {
        assert_eq!(operation("GET", path), Err(422), "{path}");
    }
}

fn authenticate(header: Option<&str>, headers: &[(&str, &str)]) -> Result<KeyKind, u16> {
    let keys = Keys {
        full: "full".to_owned(),
        sending: "sending".to_owned(),
        header: header.map(str::to_owned),
    };
    let mut request = Request::builder();
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    keys.authenticate(request.headers_ref().unwrap())
        .map_err(|refusal| refusal.status)
}

#[test]
fn a_bearer_token_is_accepted_if_it_is_one_of_the_two_keys() {
    assert_eq!(
        authenticate(None, &[("authorization", "Bearer full")]),
        Ok(KeyKind::Full)
    );
    assert_eq!(
        authenticate(None, &[("authorization", "bearer sending")]),
        Ok(KeyKind::Sending)
    );
}

#[test]
fn a_named_header_holds_the_bare_key() {
    let header = Some("X-Api-Key");

    assert_eq!(
        authenticate(header, &[("x-api-key", "full")]),
        Ok(KeyKind::Full)
    );
    assert_eq!(
        authenticate(header, &[("x-api-key", "Bearer full")]),
        Err(401)
    );
    assert_eq!(
        authenticate(header, &[("authorization", "Bearer full")]),
        Err(401)
    );
}

#[test]
fn a_missing_unknown_or_repeated_key_is_unauthorized() {
    for headers in [
        &[][..],
        &[("authorization", "")],
        &[("authorization", "Bearer")],
        &[("authorization", "Bearer ")],
        &[("authorization", "full")],
        &[("authorization", "Basic full")],
        &[("authorization", "Bearer Full")],
        &[
            ("authorization", "Bearer full"),
            ("authorization", "Bearer full"),
        ],
    ] {
        assert_eq!(authenticate(None, headers), Err(401), "{headers:?}");
    }
}

#[test]
fn a_key_that_no_header_can_hold_or_in_quotation_marks_is_refused() {
    for (key, is_usable) in [
        ("a key", true),
        ("", false),
        (" key", false),
        ("key ", false),
        ("a\nkey", false),
        ("a\u{7f}key", false),
        ("\"key\"", false),
        ("'key'", false),
        ("a 'key'", true),
    ] {
        let full = Settings {
            full_key: Some(key.to_owned()),
            ..Settings::default()
        };
        let sending = Settings {
            sending_key: Some(key.to_owned()),
            ..Settings::default()
        };

        assert_eq!(full.check_keys().is_ok(), is_usable, "{key:?}");
        assert_eq!(sending.check_keys().is_ok(), is_usable, "{key:?}");
    }
}

#[test]
fn debug_output_does_not_contain_the_keys() {
    let keys = Keys {
        full: "k-full".to_owned(),
        sending: "k-sending".to_owned(),
        header: None,
    };

    assert!(!format!("{keys:?}").contains("k-"));
}

fn status(content_types: &[&str], body: &[u8], choice: OtherContentType) -> Option<u16> {
    let mut request = Request::builder();
    for content_type in content_types {
        request = request.header(CONTENT_TYPE, *content_type);
    }
    let request = request.body(Bytes::copy_from_slice(body)).unwrap();
    check_content_type(&request, choice)
        .err()
        .map(|refusal| refusal.status)
}

#[test]
fn only_json_is_accepted_as_the_content_type_of_a_body() {
    for json in [
        "application/json",
        "Application/JSON; charset=utf-8",
        "application/merge-patch+json",
    ] {
        assert_eq!(status(&[json], b"{}", OtherContentType::default()), None);
    }
    for other in [
        "",
        "json",
        "text/plain",
        "text/json",
        "application/jsonp",
        "application/x-www-form-urlencoded",
        "application/json, text/plain",
    ] {
        let found = status(&[other], b"{}", OtherContentType::default());
        assert_eq!(found, Some(422), "{other}");
    }
    let both = ["application/json", "text/plain"];
    assert_eq!(status(&both, b"{}", OtherContentType::default()), Some(422));
}

#[test]
fn a_request_without_a_body_or_without_a_content_type_is_accepted() {
    let choice = OtherContentType::default();

    assert_eq!(status(&["text/plain"], b"", choice), None);
    assert_eq!(status(&[], b"{}", choice), None);
}

#[test]
fn the_dialect_decides_the_refusal() {
    let plain = |choice| status(&["text/plain"], b"{}", choice);

    assert_eq!(plain(OtherContentType::UnsupportedMediaType), Some(415));
    assert_eq!(plain(OtherContentType::Ignored), None);
}

#[test]
fn a_plus_sign_is_a_space_in_a_parameter_only() {
    assert_eq!(decode("a+b%2Bc%20d").unwrap(), "a+b+c d");
    assert_eq!(decode_parameter("a+b%2Bc%20d").unwrap(), "a b+c d");
}

#[test]
fn a_malformed_escape_is_refused() {
    for encoded in ["%", "%4", "%zz", "a%2", "%ff", "%c3"] {
        assert_eq!(decode(encoded).unwrap_err().status, 422, "{encoded}");
    }
}

#[test]
fn each_error_shape_has_the_slug_and_the_message_in_their_documented_members() {
    let refusal = Refusal::not_found("there is no topic `news`");
    let shapes = [
        (ErrorShape::NestedCode, "/error/code", "/error/message"),
        (ErrorShape::NestedSlug, "/error/slug", "/error/message"),
        (ErrorShape::NestedType, "/error/type", "/error/message"),
        (ErrorShape::Code, "/code", "/message"),
        (ErrorShape::Slug, "/slug", "/message"),
        (ErrorShape::Error, "/error", "/message"),
        (ErrorShape::Type, "/type", "/message"),
        (ErrorShape::Name, "/name", "/message"),
    ];
    for (shape, code, message) in shapes {
        let response = refusal.response(shape);
        let body: Value = serde_json::from_slice(response.body()).unwrap();

        assert_eq!(response.status(), 404);
        assert_eq!(body.pointer(code), Some(&json!("not_found")), "{shape:?}");
        assert_eq!(
            body.pointer(message),
            Some(&json!("there is no topic `news`"))
        );
    }
}
