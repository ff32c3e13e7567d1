//! Each dialect: one way a real service might differ from the defaults of the mock.
//!
//! The tests of `other_content_type` and `joined_member` are in `content_type` and `rules_in_time`.

use std::collections::BTreeSet;

use audience::mock::{
    BatchMessage, BatchRefusal, ConsentForm, ContactDeletion, Dialect, EndOfList, ErrorShape,
    Fault, MissingName, OmittedMembers, PropertyValues, ReasonAfterSubscribe, SegmentKind,
    SegmentWithRules, SuccessStatus, UnknownMembers,
};
use serde_json::{Value, json};

use super::exchange::Response;
use super::{Api, members, strings};

const ADA: &str = "ada@example.com";
const PATH: &str = "/contacts/ada%40example.com";

#[test]
fn every_dialect_has_a_test() {
    let tested = [
        "error_shape: NestedSlug",
        "error_shape: NestedType",
        "error_shape: Code",
        "error_shape: Slug",
        "error_shape: Error",
        "error_shape: Type",
        "error_shape: Name",
        "batch_message: Error",
        "batch_message: Detail",
        "batch_message: Reason",
        "batch_refusal: BadRequest",
        "success_status: Created",
        "success_status: Accepted",
        "consent_form: Create",
        "segment_with_rules: BothHold",
        "end_of_list: Null",
        "end_of_list: Absent",
        "end_of_list: EarlyEmpty",
        "end_of_list: EarlyNull",
        "end_of_list: EarlyAbsent",
        "reason_after_subscribe: Kept",
        "omitted_members: Cleared",
        "missing_name: Null",
        "missing_name: Absent",
        "property_values: Any",
        "unknown_members: Ignored",
        "other_content_type: UnsupportedMediaType",
        "other_content_type: Ignored",
        "joined_member: Value",
        "joined_member: Count",
        "contact_deletion: NoContent",
    ];

    let all: BTreeSet<String> = Dialect::all().map(|dialect| dialect.to_string()).collect();

    assert_eq!(all, tested.into_iter().map(str::to_owned).collect());
}

#[test]
fn dialect_error_shape() {
    for (error_shape, slug_at, message_at) in [
        (ErrorShape::NestedSlug, "/error/slug", "/error/message"),
        (ErrorShape::NestedType, "/error/type", "/error/message"),
        (ErrorShape::Code, "/code", "/message"),
        (ErrorShape::Slug, "/slug", "/message"),
        (ErrorShape::Error, "/error", "/message"),
        (ErrorShape::Type, "/type", "/message"),
        (ErrorShape::Name, "/name", "/message"),
    ] {
        let api = Api::with_dialect(Dialect {
            error_shape,
            ..Dialect::default()
        });

        for (response, status, slug) in [
            (api.get(PATH), 404, "not_found"),
            (api.post("/contacts", "{"), 422, "validation_error"),
            (
                api.request("GET", "/contacts").without_key().send(),
                401,
                "unauthorized",
            ),
            (
                api.request("GET", "/contacts").sending_key().send(),
                403,
                "key_not_permitted",
            ),
            (api.get("/nowhere"), 404, "not_found"),
            (status_fault(&api), 503, "service_unavailable"),
        ] {
            let body = response.expect(status);
            assert_eq!(body.pointer(slug_at), Some(&json!(slug)), "{body}");
            assert!(
                body.pointer(message_at).is_some_and(Value::is_string),
                "{body}"
            );
        }
    }
}

/// The response to a request that a status fault applies to.
fn status_fault(api: &Api) -> Response {
    api.server.fault(Fault::status(503).times(1));
    api.get("/contacts")
}

#[test]
fn dialect_batch_message() {
    for (batch_message, name) in [
        (BatchMessage::Error, "error"),
        (BatchMessage::Detail, "detail"),
        (BatchMessage::Reason, "reason"),
    ] {
        let api = Api::with_dialect(Dialect {
            batch_message,
            ..Dialect::default()
        });

        let report = api
            .post(
                "/contacts/batch",
                json!([{"email": "none"}, {"email": ADA}]),
            )
            .expect(200);

        let mut expected = ["email", "status", name];
        expected.sort_unstable();
        assert_eq!(members(&report["data"][0]), expected);
        assert!(report["data"][0][name].is_string());
        assert_eq!(members(&report["data"][1]), ["email", "status"]);
    }
}

#[test]
fn dialect_batch_refusal_bad_request() {
    let api = Api::with_dialect(Dialect {
        batch_refusal: BatchRefusal::BadRequest,
        ..Dialect::default()
    });

    api.post("/contacts/batch", json!([]))
        .refused(400, "bad_request");
    api.post("/contacts/batch", json!(vec![json!({"email": ADA}); 101]))
        .refused(400, "bad_request");

    assert_eq!(api.server.contact_count(), 0);
}

#[test]
fn dialect_success_status() {
    for (success_status, status) in [
        (SuccessStatus::Created, 201),
        (SuccessStatus::Accepted, 202),
    ] {
        let api = Api::with_dialect(Dialect {
            success_status,
            ..Dialect::default()
        });
        api.create(ADA);

        assert_eq!(api.get(PATH).expect(status)["email"], ADA);
        api.get("/contacts").expect(status);
        api.unsubscribe(ADA, ()).expect(status);
        api.subscribe(ADA, ()).expect(status);
        api.patch(PATH, json!({"properties": {}})).expect(status);
        api.post("/contacts", json!({"email": ADA})).expect(200);
        api.post("/contacts/batch", json!([{"email": ADA}]))
            .expect(200);
    }
}

#[test]
fn dialect_consent_form_create() {
    let api = Api::with_dialect(Dialect {
        consent_form: ConsentForm::Create,
        ..Dialect::default()
    });
    let created = api.create(ADA);

    let unsubscribed = api.unsubscribe(ADA, ()).expect(200);
    let subscribed = api.subscribe(ADA, ()).expect(200);

    assert_eq!(members(&unsubscribed), members(&created));
    assert_eq!(unsubscribed["unsubscribed"], true);
    assert_eq!(subscribed, created);
}

#[test]
fn dialect_segment_with_rules_both_hold() {
    let api = Api::with_dialect(Dialect {
        segment_with_rules: SegmentWithRules::BothHold,
        ..Dialect::default()
    });
    for (address, plan) in [
        ("a@example.com", "pro"),
        ("b@example.com", "pro"),
        ("c@example.com", "free"),
    ] {
        api.create_with(address, json!({"plan": plan}));
    }
    api.server.segment(
        "seg_1",
        SegmentKind::Contacts(vec!["a@example.com".into(), "c@example.com".into()]),
    );
    let rule = json!({"match_": "all", "conditions": [{"field": "property", "key": "plan", "op": "is", "value": "pro"}]});

    assert_eq!(
        api.listed(&[("segment_id", "seg_1"), ("rules", &rule.to_string())]),
        ["a@example.com"]
    );
}

#[test]
fn dialect_end_of_list() {
    for (end_of_list, next, early) in [
        (EndOfList::Null, Some(Value::Null), false),
        (EndOfList::Absent, None, false),
        (EndOfList::EarlyEmpty, Some(json!("")), true),
        (EndOfList::EarlyNull, Some(Value::Null), true),
        (EndOfList::EarlyAbsent, None, true),
    ] {
        let api = Api::with_dialect(Dialect {
            end_of_list,
            ..Dialect::default()
        });
        assert_eq!(
            api.get("/contacts").expect(200).get("next"),
            next.as_ref(),
            "{end_of_list:?}"
        );
        for n in 0..4 {
            api.create(&format!("c{n}@example.com"));
        }

        let first = api.get("/contacts?limit=2").expect(200);
        let last_id = |page: &Value| page["data"].as_array().unwrap().last().unwrap()["id"].clone();
        assert_eq!(
            first["next"],
            last_id(&first),
            "{end_of_list:?}: a page follows"
        );

        let cursor = first["next"].as_str().unwrap();
        let last = api
            .get(format!("/contacts?limit=2&after={cursor}"))
            .expect(200);
        assert_eq!(strings(&last["data"], "email").len(), 2);
        let expected = if early {
            next.clone()
        } else {
            Some(last_id(&last))
        };
        assert_eq!(
            last.get("next"),
            expected.as_ref(),
            "{end_of_list:?}: the last page with contacts"
        );

        let cursor = last_id(&last);
        let empty = api
            .get(format!(
                "/contacts?limit=2&after={}",
                cursor.as_str().unwrap()
            ))
            .expect(200);
        assert_eq!(empty["data"], json!([]));
        assert_eq!(
            empty.get("next"),
            next.as_ref(),
            "{end_of_list:?}: the empty page"
        );
    }
}

#[test]
fn dialect_reason_after_subscribe_kept() {
    let api = Api::with_dialect(Dialect {
        reason_after_subscribe: ReasonAfterSubscribe::Kept,
        ..Dialect::default()
    });
    api.create(ADA);
    api.unsubscribe(ADA, json!({"reason": "preferences"}))
        .expect(200);

    let response = api.subscribe(ADA, ()).expect(200);

    assert_eq!(
        (&response["unsubscribed"], &response["unsubscribe_reason"]),
        (&json!(false), &json!("preferences"))
    );
}

#[test]
fn dialect_omitted_members_cleared() {
    let api = Api::with_dialect(Dialect {
        omitted_members: OmittedMembers::Cleared,
        ..Dialect::default()
    });
    let full = json!({"email": ADA, "first_name": "Ada", "last_name": "King", "properties": {"plan": "pro"}});
    api.post("/contacts", full.clone()).expect(201);

    let skipped = api
        .post("/contacts", json!({"email": ADA, "on_conflict": "skip"}))
        .expect(200);
    assert_eq!(skipped["first_name"], "Ada");
    let cleared = api.post("/contacts", json!({"email": ADA})).expect(200);

    assert_eq!(
        json!([
            cleared["first_name"],
            cleared["last_name"],
            cleared["properties"]
        ]),
        json!(["", "", {}])
    );
}

#[test]
fn dialect_missing_name() {
    for (missing_name, shown) in [
        (MissingName::Null, Some(Value::Null)),
        (MissingName::Absent, None),
    ] {
        let api = Api::with_dialect(Dialect {
            missing_name,
            ..Dialect::default()
        });

        let created = api.create(ADA);
        let full = api.retrieve(ADA);
        let item = api.get("/contacts").expect(200)["data"][0].clone();

        for form in [&created, &full] {
            assert_eq!(form.get("last_name"), shown.as_ref());
        }
        for form in [&created, &full, &item] {
            assert_eq!(form.get("first_name"), shown.as_ref());
        }
    }
}

#[test]
fn dialect_property_values_any() {
    let api = Api::with_dialect(Dialect {
        property_values: PropertyValues::Any,
        ..Dialect::default()
    });
    let properties =
        json!({"yes": true, "none": null, "list": [1, "a"], "deep": {"a": {"b": [null]}}});

    api.create_with(ADA, properties.clone());

    assert_eq!(api.retrieve(ADA)["properties"], properties);
    api.post("/contacts", json!({"email": ADA, "properties": []}))
        .refused(422, "validation_error");
}

#[test]
fn dialect_unknown_members_ignored() {
    let api = Api::with_dialect(Dialect {
        unknown_members: UnknownMembers::Ignored,
        ..Dialect::default()
    });

    api.post(
        "/contacts",
        json!({"email": ADA, "color": "red", "on_conflict": "replace"}),
    )
    .expect(201);
    let again = json!({"email": ADA, "first_name": "Ada", "on_conflict": "replace"});
    assert_eq!(
        api.post("/contacts", again).expect(200)["first_name"],
        "Ada",
        "an unknown value means upsert"
    );
    let report = api
        .post("/contacts/batch", json!([{"email": ADA, "color": "red"}]))
        .expect(200);
    assert_eq!(report["data"][0]["status"], "updated");
    api.unsubscribe(ADA, json!({"color": "red"})).expect(200);
    api.subscribe(ADA, json!({"color": "red"})).expect(200);
    api.patch(PATH, json!({"properties": {}, "color": "red"}))
        .expect(200);
    assert_eq!(api.listed(&[("color", "red")]), [ADA]);
}

#[test]
fn dialect_contact_deletion_no_content() {
    let api = Api::with_dialect(Dialect {
        contact_deletion: ContactDeletion::NoContent,
        ..Dialect::default()
    });
    api.server.set_ceiling(Some(2));
    api.create("bob@example.com");
    let ada = api.create(ADA);
    api.server.report_spam(ADA);
    let delete = |target: &str| api.request("DELETE", target).send();
    for target in ["/contacts", "/contacts/batch"] {
        delete(target).refused(501, "not_described");
    }
    let with_sending_key = api.request("DELETE", PATH).sending_key().send();
    with_sending_key.refused(403, "key_not_permitted");
    assert_eq!(api.server.contact_count(), 2);

    let deleted = delete("/contacts/ADA%40example.com");

    assert_eq!((deleted.status, &deleted.body[..]), (204, &b""[..]));
    delete(PATH).refused(404, "not_found");
    api.get(PATH).refused(404, "not_found");
    assert_eq!(api.listed(&[]), ["bob@example.com"]);
    let older = format!("/contacts?after={}", ada["id"].as_str().unwrap());
    assert_eq!(
        strings(&api.get(older).expect(200)["data"], "email"),
        ["bob@example.com"],
        "the id of a deleted contact stays a cursor"
    );
    let again = api.create(ADA);
    assert_ne!(again["id"], ada["id"]);
    assert_eq!(again["unsubscribed"], false);
    api.post("/contacts", json!({"email": "eve@example.com"}))
        .refused(402, "quota_exceeded");
}

#[test]
fn every_dialect_keeps_complaints_and_pages_through_all_contacts() {
    for dialect in Dialect::all() {
        let api = Api::with_dialect(dialect);
        for n in 0..3 {
            api.create(&format!("c{n}@example.com"));
        }
        api.server.report_spam("c0@example.com");

        let unsubscribed = api.unsubscribe("c0@example.com", ()).status;
        assert!((200..300).contains(&unsubscribed), "{dialect}");
        assert_eq!(api.subscribe("c0@example.com", ()).status, 422, "{dialect}");
        assert_eq!(
            api.server
                .contact("c0@example.com")
                .unwrap()
                .unsubscribe_reason,
            "complaint",
            "{dialect}"
        );

        let mut seen = Vec::new();
        let mut target = "/contacts?limit=1".to_owned();
        loop {
            let page: Value = serde_json::from_slice(&api.get(&target).body).unwrap();
            let ids = strings(&page["data"], "id");
            let Some(last) = ids.last() else { break };
            target = format!("/contacts?limit=1&after={last}");
            seen.extend(ids);
        }
        assert_eq!(seen.len(), 3, "{dialect}");
    }
}
