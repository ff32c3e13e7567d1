use serde_json::json;

use super::super::dialect::{BatchRefusal, Dialect, PropertyValues};
use super::super::{Service, message, status_and_slug};
use super::*;

fn ada(on_conflict: &str, plan: &str) -> Value {
    json!({"email": "Ada@x.io", "first_name": "Ada", "properties": {plan: 1}, "on_conflict": on_conflict})
}

#[test]
fn a_contact_is_created_by_the_first_request_and_updated_by_the_next() {
    let mut service = Service::new();

    let first = service.post("/contacts", &ada("upsert", "free"));
    let second = service.post("/contacts", &ada("upsert", "pro"));

    assert_eq!(
        first,
        (
            201,
            json!({"id": "con_00000001", "email": "ada@x.io", "first_name": "Ada", "last_name": "",
            "properties": {"free": 1}, "unsubscribed": false, "created_at": 1_700_000_000})
        )
    );
    assert_eq!(second.0, 200);
    assert_eq!(second.1["properties"], json!({"pro": 1}));
    assert_eq!(service.audience.contacts.len(), 1);
}

#[test]
fn on_conflict_decides_what_happens_to_an_existing_contact() {
    let mut service = Service::new();
    service.post("/contacts", &ada("error", "free"));

    let skipped = service.post("/contacts", &ada("skip", "pro"));
    let refused = service.post("/contacts", &ada("error", "pro"));

    assert_eq!(
        (skipped.0, &skipped.1["properties"]),
        (200, &json!({"free": 1}))
    );
    assert_eq!(status_and_slug(&refused), (409, "already_exists"));
}

#[test]
fn an_upsert_keeps_what_it_leaves_out_and_clears_what_it_sends_empty() {
    let mut service = Service::new();
    service.post("/contacts", &ada("upsert", "free"));

    service.post("/contacts", &json!({"email": "ada@x.io", "last_name": "L"}));
    let kept = service.audience.contact("ada@x.io").unwrap();
    service.post(
        "/contacts",
        &json!({"email": "ada@x.io", "properties": {}, "first_name": ""}),
    );
    let cleared = service.audience.contact("ada@x.io").unwrap();

    assert_eq!(kept.first_name.as_deref(), Some("Ada"));
    assert_eq!(kept.last_name.as_deref(), Some("L"));
    assert_eq!(kept.properties.len(), 1);
    assert_eq!((cleared.first_name, cleared.properties.len()), (None, 0));
}

#[test]
fn an_upsert_does_not_change_consent() {
    let mut service = Service::new();
    service.create("ada@x.io");
    service.post_without_body("/contacts/ada@x.io/unsubscribe");

    let (_, contact) = service.post("/contacts", &ada("upsert", "pro"));

    assert_eq!(contact["unsubscribed"], json!(true));
}

#[test]
fn the_ceiling_refuses_only_new_contacts() {
    let mut service = Service::new();
    service.audience.contacts.ceiling = Some(1);
    service.create("ada@x.io");

    let another = service.post("/contacts", &json!({"email": "bob@x.io"}));
    let update = service.post("/contacts", &ada("upsert", "pro"));
    let conflict = service.post("/contacts", &ada("error", "pro"));
    let invalid = service.post("/contacts", &json!({"email": "bob"}));

    assert_eq!(status_and_slug(&another), (402, "quota_exceeded"));
    assert_eq!(update.0, 200);
    assert_eq!(status_and_slug(&conflict), (409, "already_exists"));
    assert_eq!(status_and_slug(&invalid), (422, "validation_error"));
}

#[test]
fn a_merge_adds_properties_and_returns_the_full_form() {
    let mut service = Service::new();
    service.post(
        "/contacts",
        &json!({"email": "ada@x.io", "properties": {"a": 1, "b": 1}}),
    );

    let merged = service.patch("/contacts/ADA%40x.io", &json!({"properties": {"b": 2}}));

    assert_eq!(merged.0, 200);
    assert_eq!(merged.1["properties"], json!({"a": 1, "b": 2}));
    assert_eq!(merged.1["unsubscribe_reason"], json!(""));
    let unknown = service.patch("/contacts/bob@x.io", &json!({"properties": {}}));
    assert_eq!(status_and_slug(&unknown), (404, "not_found"));
    let missing = service.patch("/contacts/bob@x.io", &json!({}));
    assert_eq!(status_and_slug(&missing), (422, "validation_error"));
}

#[test]
fn the_dialect_decides_left_out_members_and_property_values() {
    let mut service = Service::with_dialect(Dialect {
        omitted_members: OmittedMembers::Cleared,
        property_values: PropertyValues::Any,
        ..Dialect::default()
    });
    service.post(
        "/contacts",
        &json!({"email": "ada@x.io", "properties": {"a": [true]}}),
    );

    let kept = service.audience.contact("ada@x.io").unwrap();
    service.post("/contacts", &json!({"email": "ada@x.io"}));
    let cleared = service.audience.contact("ada@x.io").unwrap();

    assert_eq!(kept.properties.get("a"), Some(&json!([true])));
    assert!(cleared.properties.is_empty());
}

#[test]
fn a_batch_is_applied_in_order_with_a_result_for_each_entry() {
    let mut service = Service::new();
    let batch = json!([
        {"email": "Ada@x.io", "properties": {"plan": "free"}},
        {"email": "ada@x.io", "properties": {"plan": "pro"}},
        {"email": "ada@x.io", "on_conflict": "skip"},
        {"email": "ada@x.io", "on_conflict": "error"},
        {"email": " nobody "},
        {"email": "bob@x.io", "name": "Bob"},
        7,
        {"email": "carol@x.io"},
    ]);

    let (status, response) = service.post("/contacts/batch", &batch);

    assert_eq!(status, 200);
    let results = response["data"].as_array().unwrap();
    let outcomes: Vec<(&str, &str, bool)> = results
        .iter()
        .map(|result| {
            let text = |name: &str| result[name].as_str().unwrap();
            (
                text("email"),
                text("status"),
                result.get("message").is_some(),
            )
        })
        .collect();
    assert_eq!(
        outcomes,
        [
            ("ada@x.io", "created", false),
            ("ada@x.io", "updated", false),
            ("ada@x.io", "skipped", false),
            ("ada@x.io", "already_exists", true),
            (" nobody ", "validation_error", true),
            ("bob@x.io", "validation_error", true),
            ("", "validation_error", true),
            ("carol@x.io", "created", false),
        ]
    );
    let ada = service.audience.contact("ada@x.io").unwrap();
    assert_eq!(ada.properties.get("plan"), Some(&json!("pro")));
}

#[test]
fn after_one_entry_exceeds_the_quota_every_later_entry_does() {
    let mut service = Service::new();
    service.audience.contacts.ceiling = Some(1);
    let batch = json!([
        {"email": "ada@x.io"},
        {"email": "bob@x.io"},
        {"email": "ada@x.io", "first_name": "Ada"},
        {"email": "nobody"},
    ]);

    let (status, response) = service.post("/contacts/batch", &batch);

    let statuses: Vec<&Value> = response["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| &r["status"])
        .collect();
    assert_eq!(status, 200);
    assert_eq!(
        statuses,
        [
            "created",
            "quota_exceeded",
            "quota_exceeded",
            "quota_exceeded"
        ]
    );
    assert_eq!(response["data"][3]["email"], json!("nobody"));
    assert_eq!(
        service.audience.contact("ada@x.io").unwrap().first_name,
        None
    );
}

#[test]
fn a_batch_of_zero_or_101_entries_is_refused_and_not_applied() {
    let mut service = Service::new();
    let entries = |count: usize| -> Value {
        (0..count)
            .map(|n| json!({"email": format!("c{n}@x.io")}))
            .collect()
    };

    assert_eq!(
        status_and_slug(&service.post("/contacts/batch", &entries(0))),
        (422, "validation_error")
    );
    let refused = service.post("/contacts/batch", &entries(101));
    assert_eq!(
        message(&refused),
        "a batch must have 1 to 100 entries, not 101"
    );
    assert_eq!(
        status_and_slug(&service.post("/contacts/batch", &json!({}))),
        (422, "validation_error")
    );
    assert_eq!(service.audience.contacts.len(), 0);
    assert_eq!(service.post("/contacts/batch", &entries(100)).0, 200);
    assert_eq!(service.audience.contacts.len(), 100);
}

#[test]
fn a_member_given_twice_makes_only_its_own_entry_invalid() {
    let mut service = Service::new();
    let batch = br#"[{"email": "A@x.io", "last_name": "", "last_name": ""}, {"email": "c@x.io"}]"#;

    let (status, response) = service.send("full", "POST", "/contacts/batch", batch);

    assert_eq!(status, 200);
    assert_eq!(
        response["data"][0],
        json!({"email": "a@x.io", "status": "validation_error", "message": "`last_name` is given twice"})
    );
    assert_eq!(response["data"][1]["status"], "created");
}

#[test]
fn the_dialect_decides_the_batch_refusal_and_the_message_member() {
    let mut service = Service::with_dialect(Dialect {
        batch_message: BatchMessage::Detail,
        batch_refusal: BatchRefusal::BadRequest,
        ..Dialect::default()
    });

    let refused = service.post("/contacts/batch", &json!([]));
    let (_, response) = service.post("/contacts/batch", &json!([1]));

    assert_eq!(status_and_slug(&refused), (400, "bad_request"));
    assert_eq!(
        response["data"][0]["detail"],
        "a contact must be a JSON object, not 1"
    );
}

#[test]
fn the_error_for_an_invalid_contact_names_the_invalid_member() {
    let cases = [
        (json!(1), "a contact must be a JSON object, not 1"),
        (json!({}), "`email` is missing"),
        (json!({"email": null}), "`email` must be a string, not null"),
        (
            json!({"email": "ada"}),
            "`email` must be an email address, not \"ada\"",
        ),
        (
            json!({"email": "a@x", "first_name": 1}),
            "`first_name` must be a string, not 1",
        ),
        (
            json!({"email": "a@x", "last_name": null}),
            "`last_name` must be a string, not null",
        ),
        (
            json!({"email": "a@x", "properties": []}),
            "`properties` must be a JSON object, not []",
        ),
        (
            json!({"email": "a@x", "properties": {"plan": true}}),
            "`properties.plan` must be a string or a number, not true",
        ),
        (
            json!({"email": "a@x", "on_conflict": "replace"}),
            "`on_conflict` must be `upsert`, `skip` or `error`, not \"replace\"",
        ),
        (
            json!({"email": "a@x", "name": "Ada"}),
            "`name` is not a known member",
        ),
    ];
    for (body, message) in cases {
        assert_eq!(
            CreateBody::parse(body.to_string().as_bytes(), Dialect::default()).unwrap_err(),
            message
        );
    }
}

#[test]
fn unknown_members_are_ignored_in_a_lenient_dialect() {
    let dialect = Dialect {
        unknown_members: UnknownMembers::Ignored,
        ..Dialect::default()
    };
    let body = json!({"email": "a@x", "name": "Ada", "on_conflict": "replace"});

    let entry = CreateBody::parse(body.to_string().as_bytes(), dialect).unwrap();

    assert_eq!(entry.on_conflict, OnConflict::Upsert);
}

#[test]
fn the_result_of_an_invalid_entry_has_the_address_that_was_sent() {
    let cases = [
        (r#"{"email": " Ada@X "}"#, "ada@x"),
        (r#"{"email": " Ada "}"#, " Ada "),
        (r#"{"email": "Ada@X", "properties": {"n": 1e400}}"#, "ada@x"),
        (r#"{"email": 1}"#, ""),
        (r#""ada@x""#, ""),
    ];
    for (body, expected) in cases {
        assert_eq!(
            CreateBody::address_in(serde_json::from_str(body).unwrap()),
            expected
        );
    }
}

#[test]
fn a_batch_is_split_into_entries_that_need_not_be_parsable() {
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    let text = format!(r#" [ 1e400 , {{"a": "\ud800"}},{deep}, "]"] "#);

    let entries = split_batch(text.as_bytes()).unwrap();

    let entries: Vec<&str> = entries.into_iter().map(RawValue::get).collect();
    assert_eq!(entries, ["1e400", r#"{"a": "\ud800"}"#, &deep, r#""]""#]);
}

#[test]
fn a_batch_that_is_no_array_is_refused() {
    assert_eq!(
        split_batch(b"{}").unwrap_err(),
        "the body must be a JSON array"
    );
    for text in ["[{]", "[1,]", "[1] 2", "[01]", "[\"\n\"]", ""] {
        let error = split_batch(text.as_bytes()).unwrap_err();

        assert!(error.starts_with("invalid JSON"), "{text}: {error}");
    }
}

#[test]
fn an_address_is_found_beside_members_that_cannot_be_parsed() {
    for (object, expected) in [
        (r#"{"n": 1e400, "email": "a@x"}"#, "a@x"),
        (r#"{"\ud800": 1, "\u0065mail": "a@x"}"#, "a@x"),
        (r#"{"email": 1, "email": "a@x"}"#, "a@x"),
        (r#"{"email": "a@x", "email": 1}"#, ""),
        (r#"{"email": "\ud800"}"#, ""),
        (r#"{"x": {"email": "a@x"}}"#, ""),
        (r#""email""#, ""),
        (r#"["email", "a@x"]"#, ""),
    ] {
        let entry: &RawValue = serde_json::from_str(object).unwrap();

        assert_eq!(CreateBody::address_in(entry), expected, "{object}");
    }
}
