//! Each dialect: one way a real service might differ from the defaults of the mock.
//!
//! The tests of `other_content_type` and `joined_member` are in `content_type` and `rules_in_time`.

use std::collections::BTreeSet;

use audience::mock::dialect::{
    BatchMessage, BatchRefusal, ConsentForm, ContactDeletion, EndOfList, ErrorShape, InvalidStatus,
    MergeBody, MergeResponse, MissingName, OmittedMembers, PathAddress, PropertyValues, RateLimit,
    ReasonAfterSubscribe, RefusalOrder, SegmentWithRules, SuccessStatus, UnauthorizedSlug,
    UnknownAddress, UnknownMembers,
};
use audience::mock::{Dialect, Fault, SegmentKind};
use serde_json::{Value, json};

use super::exchange::Response;
use super::{Api, NOW, members, strings};

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
        "error_shape: Errors",
        "error_shape: Problem",
        "error_shape: Empty",
        "error_shape: EmptyNotFound",
        "invalid_status: BadRequest",
        "unauthorized_slug: Unauthenticated",
        "unauthorized_slug: InvalidApiKey",
        "rate_limit: RetryAfter",
        "rate_limit: NoRetryAfter",
        "refusal_order: ContactFirst",
        "refusal_order: TopicFirst",
        "path_address: Exact",
        "unknown_address: Unprocessable",
        "unknown_address: Created",
        "merge_body: Bare",
        "merge_response: Create",
        "merge_response: NoContent",
        "batch_message: Error",
        "batch_message: Detail",
        "batch_message: Reason",
        "batch_refusal: BadRequest",
        "success_status: Created",
        "success_status: Accepted",
        "consent_form: Create",
        "consent_form: NoContent",
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
        (ErrorShape::Errors, "/errors/0/code", "/errors/0/message"),
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

#[test]
fn dialect_error_shape_problem() {
    let api = Api::with_dialect(Dialect {
        error_shape: ErrorShape::Problem,
        ..Dialect::default()
    });

    let response = api.get(PATH);

    let head = &response.head;
    assert!(
        head.contains("content-type: application/problem+json"),
        "{head}"
    );
    let body: Value = serde_json::from_slice(&response.body).unwrap();
    assert_eq!(body["type"], "https://errors.example.com/not_found");
    assert_eq!((response.status, &body["status"]), (404, &json!(404)));
    assert!(body["detail"].as_str().unwrap().contains(ADA));
}

#[test]
fn dialect_error_shape_empty() {
    for (error_shape, status_of_an_empty_one) in [
        (ErrorShape::Empty, [404, 422]),
        (ErrorShape::EmptyNotFound, [404, 404]),
    ] {
        let api = Api::with_dialect(Dialect {
            error_shape,
            ..Dialect::default()
        });

        for response in [api.get(PATH), api.post("/contacts", "{")] {
            let is_empty = status_of_an_empty_one.contains(&response.status);
            assert_eq!(response.body.is_empty(), is_empty, "{error_shape:?}");
        }
    }
}

#[test]
fn dialect_invalid_status_bad_request() {
    let api = Api::with_dialect(Dialect {
        invalid_status: InvalidStatus::BadRequest,
        ..Dialect::default()
    });
    api.create(ADA);
    api.server.report_spam(ADA);

    api.post("/contacts", json!({"email": "none"}))
        .refused(400, "validation_error");
    api.list(&[("limit", "x")]).refused(400, "validation_error");
    api.subscribe(ADA, ()).refused(400, "failed_precondition");
    api.get("/contacts/nobody%40example.com")
        .refused(404, "not_found");
    // A fault has the status that the test chose.
    api.server.fault(Fault::status(422).times(1));
    assert_eq!(api.get("/contacts").status, 422);
}

#[test]
fn dialect_unauthorized_slug() {
    for (unauthorized_slug, slug) in [
        (UnauthorizedSlug::Unauthenticated, "unauthenticated"),
        (UnauthorizedSlug::InvalidApiKey, "invalid_api_key"),
    ] {
        let api = Api::with_dialect(Dialect {
            unauthorized_slug,
            ..Dialect::default()
        });

        let without_key = api.request("GET", "/contacts").without_key().send();

        without_key.refused(401, slug);
    }
}

#[test]
fn dialect_rate_limit() {
    for (rate_limit, retry_after) in [
        (RateLimit::RetryAfter, true),
        (RateLimit::NoRetryAfter, false),
    ] {
        let api = Api::with_dialect(Dialect {
            rate_limit,
            ..Dialect::default()
        });
        // The clock stands still, so all requests are in one second.
        for n in 0..10 {
            api.create(&format!("c{n}@example.com"));
        }

        let response = api.post("/contacts", json!({"email": ADA}));

        assert_eq!(response.head.contains("retry-after: 1\r\n"), retry_after);
        response.refused(429, "rate_limited");
        assert_eq!(api.server.contact_count(), 10);
        api.server.set_clock(NOW + 1);
        api.create(ADA);
    }
}

#[test]
fn dialect_refusal_order() {
    let nobody = "nobody@example.com";
    let unknown_topic = || json!({"topic": "gossip"});
    for (refusal_order, invalid, locked) in [
        (
            RefusalOrder::BodyFirst,
            (422, "validation_error"),
            (422, "failed_precondition"),
        ),
        (
            RefusalOrder::ContactFirst,
            (404, "not_found"),
            (422, "failed_precondition"),
        ),
        (
            RefusalOrder::TopicFirst,
            (422, "validation_error"),
            (404, "not_found"),
        ),
    ] {
        let api = Api::with_dialect(Dialect {
            refusal_order,
            ..Dialect::default()
        });
        api.create(ADA);
        api.server.report_spam(ADA);

        for response in [
            api.unsubscribe(nobody, json!({"reason": "complaint"})),
            api.subscribe(nobody, "{"),
            api.patch("/contacts/nobody%40example.com", json!({})),
        ] {
            response.refused(invalid.0, invalid.1);
        }
        api.subscribe(ADA, unknown_topic())
            .refused(locked.0, locked.1);
        let message = api
            .unsubscribe(nobody, unknown_topic())
            .refused(404, "not_found");
        let names_topic = message.contains("gossip");
        assert_eq!(
            names_topic,
            refusal_order == RefusalOrder::TopicFirst,
            "{message}"
        );
    }
}

#[test]
fn dialect_path_address_exact() {
    let api = Api::with_dialect(Dialect {
        path_address: PathAddress::Exact,
        ..Dialect::default()
    });
    api.create("Ada@Example.com");

    assert_eq!(api.retrieve(ADA)["email"], ADA);
    for spelling in ["Ada@example.com", " ada@example.com"] {
        api.get(super::contact(spelling)).refused(404, "not_found");
        api.unsubscribe(spelling, ()).refused(404, "not_found");
        api.subscribe(spelling, ()).refused(404, "not_found");
        let merge = json!({"properties": {}});
        api.patch(super::contact(spelling), merge)
            .refused(404, "not_found");
    }
    assert!(!api.server.contact(ADA).unwrap().unsubscribed);
    api.post("/contacts", json!({"email": "ADA@example.com"}))
        .expect(200);
}

#[test]
fn dialect_unknown_address_unprocessable() {
    let api = Api::with_dialect(Dialect {
        unknown_address: UnknownAddress::Unprocessable,
        ..Dialect::default()
    });

    api.unsubscribe(ADA, ()).refused(422, "validation_error");
    api.subscribe(ADA, ()).refused(422, "validation_error");
    api.get(PATH).refused(404, "not_found");
}

#[test]
fn dialect_unknown_address_created() {
    let api = Api::with_dialect_and(
        Dialect {
            unknown_address: UnknownAddress::Created,
            ..Dialect::default()
        },
        |builder| builder.topic("news", true).contact_ceiling(2),
    );

    let out = api.unsubscribe("Ada@example.com", ()).expect(200);
    let into = api
        .subscribe("bob@example.com", json!({"topic": "news"}))
        .expect(200);

    assert_eq!(
        json!([out["email"], out["unsubscribed"], into["topics"]["news"]]),
        json!([ADA, true, true])
    );
    api.unsubscribe("cy@example.com", json!({"topic": "gossip"}))
        .refused(404, "not_found");
    api.unsubscribe("no address", ())
        .refused(422, "validation_error");
    api.unsubscribe("cy@example.com", ())
        .refused(402, "quota_exceeded");
    assert_eq!(api.server.contact_count(), 2);
    api.get("/contacts/cy%40example.com")
        .refused(404, "not_found");
}

#[test]
fn dialect_merge_body_bare() {
    let api = Api::with_dialect(Dialect {
        merge_body: MergeBody::Bare,
        ..Dialect::default()
    });
    api.create_with(ADA, json!({"plan": "pro"}));

    let merged = api.patch(PATH, json!({"seats": 3})).expect(200);

    assert_eq!(merged["properties"], json!({"plan": "pro", "seats": 3}));
    api.patch(PATH, json!({"properties": {"seats": 3}}))
        .refused(422, "validation_error");
}

#[test]
fn dialect_merge_response() {
    for merge_response in [MergeResponse::Create, MergeResponse::NoContent] {
        let api = Api::with_dialect(Dialect {
            merge_response,
            ..Dialect::default()
        });
        let created = api.create(ADA);

        let merged = api.patch(PATH, json!({"properties": {"seats": 3}}));

        match merge_response {
            MergeResponse::NoContent => {
                assert_eq!((merged.status, &merged.body[..]), (204, &b""[..]));
            }
            _ => assert_eq!(members(&merged.expect(200)), members(&created)),
        }
        assert_eq!(api.server.contact(ADA).unwrap().properties["seats"], 3);
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
fn dialect_consent_form_no_content() {
    let api = Api::with_dialect(Dialect {
        consent_form: ConsentForm::NoContent,
        ..Dialect::default()
    });
    api.create(ADA);

    for response in [
        api.unsubscribe(ADA, ()),
        api.subscribe(ADA, ()),
        api.unsubscribe(ADA, ()),
    ] {
        assert_eq!((response.status, &response.body[..]), (204, &b""[..]));
        assert!(!response.head.contains("content-type"));
    }
    assert_eq!(api.retrieve(ADA)["unsubscribed"], true);
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
    api.get(format!("{PATH}?color=red")).expect(200);
    api.get("/contacts?limit=1&limit=1")
        .refused(422, "validation_error");
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
        let locked = match dialect.invalid_status {
            InvalidStatus::BadRequest => 400,
            _ => 422,
        };
        let subscribed = api.subscribe("c0@example.com", ()).status;
        assert_eq!(subscribed, locked, "{dialect}");
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
