use serde_json::{Value, json};

use super::super::dialect::{Dialect, PathAddress, SuccessStatus};
use super::super::mail::report_spam;
use super::super::{Service, message, status_and_slug};
use super::*;

const UNSUBSCRIBE: &str = "/contacts/ada%40x.io/unsubscribe";
const SUBSCRIBE: &str = "/contacts/ada%40x.io/subscribe";

fn with_ada(dialect: Dialect) -> Service {
    let mut service = Service::with_dialect(dialect);
    service.audience.put_topic("news", true);
    service.audience.put_topic("offers", false);
    service.create("ada@x.io");
    service
}

fn state(contact: &Value) -> (bool, &str, &Value) {
    let unsubscribed = contact["unsubscribed"].as_bool().unwrap();
    let reason = contact["unsubscribe_reason"].as_str().unwrap();
    (unsubscribed, reason, &contact["topics"])
}

#[test]
fn each_transition_leads_to_the_state_of_section_3_2() {
    let defaults = json!({"news": true, "offers": false});
    let steps = [
        (UNSUBSCRIBE, "", (true, "manual", defaults.clone())),
        (
            UNSUBSCRIBE,
            r#"{"reason": "preferences"}"#,
            (true, "preferences", defaults.clone()),
        ),
        (
            UNSUBSCRIBE,
            r#"{"reason": "manual"}"#,
            (true, "manual", defaults.clone()),
        ),
        (SUBSCRIBE, "", (false, "", defaults.clone())),
        (SUBSCRIBE, "{}", (false, "", defaults)),
        (
            UNSUBSCRIBE,
            r#"{"topic": "news"}"#,
            (false, "", json!({"news": false, "offers": false})),
        ),
        (
            SUBSCRIBE,
            r#"{"topic": "offers"}"#,
            (false, "", json!({"news": false, "offers": true})),
        ),
        (
            UNSUBSCRIBE,
            r#"{"topic": "offers", "reason": "preferences"}"#,
            (false, "", json!({"news": false, "offers": false})),
        ),
    ];
    let mut service = with_ada(Dialect::default());
    for (target, body, (unsubscribed, reason, topics)) in steps {
        let (status, contact) = service.send("full", "POST", target, body.as_bytes());

        assert_eq!(status, 200, "{target} {body}");
        assert_eq!(
            state(&contact),
            (unsubscribed, reason, &topics),
            "{target} {body}"
        );
        assert_eq!(service.get("/contacts/ada%40x.io").1, contact);
    }
}

#[test]
fn no_request_undoes_a_complaint() {
    let mut service = with_ada(Dialect::default());
    report_spam(&mut service.audience, "ada@x.io", service.now);

    for body in [
        json!({}),
        json!({"reason": "preferences"}),
        json!({"topic": "news"}),
    ] {
        assert_eq!(service.post(UNSUBSCRIBE, &body).0, 200);
        let response = service.post(SUBSCRIBE, &json!({}));
        assert_eq!(
            status_and_slug(&response),
            (422, "failed_precondition"),
            "{body}"
        );
    }
    let topic = service.post(SUBSCRIBE, &json!({"topic": "offers"}));
    assert_eq!(status_and_slug(&topic), (422, "failed_precondition"));
    service.post(
        "/contacts",
        &json!({"email": "ada@x.io", "first_name": "Ada"}),
    );

    let (_, ada) = service.get("/contacts/ada@x.io");
    assert_eq!(
        state(&ada),
        (true, "complaint", &json!({"news": false, "offers": false}))
    );
}

#[test]
fn the_first_applicable_refusal_is_returned_and_nothing_changes() {
    let mut service = with_ada(Dialect::default());
    let declared = json!({"reason": "complaint"});
    let unknown = json!({"topic": "nonsense"});
    let nobody = "/contacts/bob@x.io";

    let cases = [
        (
            service.post(UNSUBSCRIBE, &declared),
            422,
            "validation_error",
        ),
        (
            service.post(&format!("{nobody}/unsubscribe"), &declared),
            422,
            "validation_error",
        ),
        (
            service.post(&format!("{nobody}/unsubscribe"), &unknown),
            404,
            "not_found",
        ),
        (
            service.post(&format!("{nobody}/subscribe"), &unknown),
            404,
            "not_found",
        ),
        (
            service.post(SUBSCRIBE, &json!({"reason": "manual"})),
            422,
            "validation_error",
        ),
        (
            service.post(SUBSCRIBE, &json!("news")),
            422,
            "validation_error",
        ),
    ];
    for (response, status, code) in &cases {
        assert_eq!(status_and_slug(response), (*status, *code), "{response:?}");
    }
    assert!(message(&cases[2].0).contains("bob@x.io"));
    for target in [SUBSCRIBE, UNSUBSCRIBE] {
        let response = service.post(target, &unknown);
        assert_eq!(status_and_slug(&response), (404, "not_found"));
        assert_eq!(message(&response), "there is no topic `nonsense`");
    }
    report_spam(&mut service.audience, "ada@x.io", service.now);
    let locked = service.post(SUBSCRIBE, &unknown);
    assert_eq!(status_and_slug(&locked), (422, "failed_precondition"));
}

#[test]
fn the_message_about_an_unknown_topic_has_only_the_beginning_of_a_long_name() {
    let mut service = with_ada(Dialect::default());

    let response = service.post(SUBSCRIBE, &json!({"topic": "t".repeat(1_000_000)}));

    let expected = format!("there is no topic `{}…`", "t".repeat(200));
    assert_eq!(message(&response), expected);
}

#[test]
fn a_new_default_applies_to_topics_the_contact_never_answered() {
    let mut service = with_ada(Dialect::default());
    service.post(UNSUBSCRIBE, &json!({"topic": "news"}));

    service.audience.put_topic("news", true);
    service.audience.put_topic("offers", true);

    let (_, ada) = service.get("/contacts/ada@x.io");
    assert_eq!(ada["topics"], json!({"news": false, "offers": true}));
}

#[test]
fn the_dialect_decides_the_form_the_status_and_the_reason_after_subscribe() {
    let mut service = with_ada(Dialect {
        consent_form: ConsentForm::Create,
        success_status: SuccessStatus::Accepted,
        reason_after_subscribe: ReasonAfterSubscribe::Kept,
        ..Dialect::default()
    });
    service.post_without_body(UNSUBSCRIBE);

    let (status, contact) = service.post_without_body(SUBSCRIBE);

    assert_eq!(status, 202);
    assert_eq!(contact.get("topics"), None);
    let (_, ada) = service.get("/contacts/ada@x.io");
    assert_eq!(
        (&ada["unsubscribed"], &ada["unsubscribe_reason"]),
        (&json!(false), &json!("manual"))
    );
}

#[test]
fn another_spelling_changes_no_contact_if_the_dialect_tells_them_apart() {
    let mut service = with_ada(Dialect {
        path_address: PathAddress::Exact,
        unknown_address: UnknownAddress::Created,
        ..Dialect::default()
    });
    report_spam(&mut service.audience, "ada@x.io", service.now);
    let (_, before) = service.get("/contacts/ada%40x.io");

    for target in [
        "/contacts/Ada%40x.io/subscribe",
        "/contacts/Ada%40x.io/unsubscribe",
    ] {
        assert_eq!(service.post_without_body(target).0, 404, "{target}");
    }
    let created = service.post_without_body("/contacts/Bob%40x.io/unsubscribe");

    assert_eq!(service.get("/contacts/ada%40x.io").1, before);
    assert_eq!((created.0, &created.1["email"]), (200, &json!("bob@x.io")));
}

#[test]
fn an_unsubscribe_without_a_body_is_a_manual_global_opt_out() {
    let opt_out = UnsubscribeBody {
        reason: Reason::Manual,
        topic: None,
    };

    assert_eq!(
        UnsubscribeBody::parse(b"", Dialect::default()),
        Ok(opt_out.clone())
    );
    assert_eq!(
        UnsubscribeBody::parse(b"{}", Dialect::default()),
        Ok(opt_out)
    );
}

#[test]
fn the_error_for_an_invalid_unsubscribe_names_the_invalid_member() {
    let cases = [
        ("null", "the body must be a JSON object, not null"),
        (
            r#"{"reason": "complaint", "topic": "news"}"#,
            "`reason` must be `manual` or `preferences`: a sender cannot declare a complaint",
        ),
        (
            r#"{"reason": ""}"#,
            "`reason` must be `manual` or `preferences`, not \"\"",
        ),
        (r#"{"topic": null}"#, "`topic` must be a string, not null"),
        (r#"{"topics": "news"}"#, "`topics` is not a known member"),
        (r#"{"topic": "a", "topic": "b"}"#, "`topic` is given twice"),
    ];
    for (body, message) in cases {
        assert_eq!(
            UnsubscribeBody::parse(body.as_bytes(), Dialect::default()).unwrap_err(),
            message
        );
    }
}
