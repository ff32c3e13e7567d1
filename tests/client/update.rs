//! `contacts.update`: what it changes, what it keeps, and what it sends.

use audience::contacts::{ContactRecord, Contacts, NewContact};
use audience::mock::dialect::{MergeBody, MergeResponse, PropertyValues};
use audience::mock::{Dialect, Fault, MockServer};
use audience::{ErrorKind, Outcome, RetryPolicy};
use serde_json::{Value, json};
use support::ADA;

use crate::dialects::{dialects, patient_settings};

const PATCH: &str = "PATCH /contacts/ada%40example.com";
const GET: &str = "GET /contacts/ada%40example.com";
const POST: &str = "POST /contacts";

/// Starts a mock with Ada, and a client that knows no more of the dialect than the document says.
async fn start(dialect: Dialect) -> (MockServer, Contacts) {
    let server = MockServer::builder().dialect(dialect).start().await;
    let settings = patient_settings(&server, dialect, server.full_key());
    let contacts = settings.build().unwrap().contacts();
    let ada = NewContact::new(ADA).first_name("Ada").last_name("Byron");
    let ada = ada.property("plan", "pro").property("seats", 3);
    contacts.create(ada).await.unwrap();
    server.clear_requests();
    (server, contacts)
}

fn sent(server: &MockServer) -> Vec<String> {
    let requests = server.requests().into_iter();
    requests
        .map(|request| format!("{} {}", request.method, request.path))
        .collect()
}

fn shown(contact: &ContactRecord) -> Value {
    json!([contact.first_name, contact.last_name, contact.properties])
}

#[tokio::test]
async fn what_is_left_out_of_an_update_stays_in_every_dialect() {
    for dialect in dialects() {
        let (server, contacts) = start(dialect).await;

        let more = contacts.update(ADA).property("orders", 1).await.unwrap();
        let renamed = contacts.update(ADA).last_name("Lovelace").await.unwrap();
        let less = contacts.update(ADA).remove_property("seats").await.unwrap();

        let three = json!({"plan": "pro", "seats": 3, "orders": 1});
        assert_eq!(shown(&more), json!(["Ada", "Byron", three]), "{dialect}");
        assert_eq!(
            shown(&renamed),
            json!(["Ada", "Lovelace", three]),
            "{dialect}"
        );
        let two = json!({"plan": "pro", "orders": 1});
        assert_eq!(shown(&less), json!(["Ada", "Lovelace", two]), "{dialect}");
        let stored = server.contact(ADA).unwrap();
        assert_eq!(
            json!([stored.first_name, stored.last_name, stored.properties]),
            shown(&less),
            "{dialect}"
        );
    }
}

#[tokio::test]
async fn an_update_that_only_sets_properties_is_one_request() {
    let (server, contacts) = start(Dialect::default()).await;

    let ada = contacts.update(" Ada@Example.com").property("seats", 4);
    let ada = ada.property("plan", "free").await.unwrap();

    assert_eq!(sent(&server), [PATCH]);
    assert_eq!(json!(ada.properties), json!({"plan": "free", "seats": 4}));
}

#[tokio::test]
async fn an_update_of_a_name_sends_both_names_and_all_properties() {
    let (server, contacts) = start(Dialect::default()).await;

    let update = contacts.update(ADA).first_name("Augusta");
    update.property("seats", 4).await.unwrap();

    assert_eq!(sent(&server), [GET, POST]);
    let body: Value = serde_json::from_slice(&server.requests()[1].body).unwrap();
    let whole = json!({"email": ADA, "first_name": "Augusta", "last_name": "Byron",
        "properties": {"plan": "pro", "seats": 4}});
    assert_eq!(body, whole);
}

#[tokio::test]
async fn an_update_stores_a_number_beyond_64_bits_rounded_and_any_other_integer_unchanged() {
    let (server, contacts) = start(Dialect::default()).await;
    let shown = r#"{"id": "con_1", "email": "ada@example.com", "unsubscribed": false, "created_at": 1,
        "properties": {"big": 123456789012345678901234567890, "exact": 18446744073709551615}}"#;
    server.fault(Fault::wrong_body(shown).method("GET"));

    contacts.update(ADA).last_name("King").await.unwrap();

    let requests = server.requests();
    let sent = String::from_utf8_lossy(&requests[1].body);
    assert!(sent.contains(r#""big":1.2345678901234568e"#), "{sent}");
    assert!(sent.contains(r#""exact":18446744073709551615"#), "{sent}");
}

#[tokio::test]
async fn an_update_that_would_change_nothing_only_retrieves() {
    let (server, contacts) = start(Dialect::default()).await;

    let same = contacts.update(ADA).last_name("Byron").property("seats", 3);
    same.remove_property("unknown").await.unwrap();
    contacts.update(ADA).await.unwrap();

    assert_eq!(sent(&server), [GET, GET]);
}

#[tokio::test]
async fn an_empty_name_removes_a_name_and_the_last_change_of_a_property_counts() {
    let (server, contacts) = start(Dialect::default()).await;

    let update = contacts.update(ADA).last_name("").remove_property("plan");
    let update = update.property("plan", "free").property("seats", 4);
    let ada = update.remove_property("seats").await.unwrap();

    assert_eq!(shown(&ada), json!(["Ada", null, {"plan": "free"}]));
    assert_eq!(server.contact(ADA).unwrap().last_name, None);
}

#[tokio::test]
async fn a_merge_whose_response_shows_no_contact_is_checked() {
    let dialect = Dialect {
        merge_response: MergeResponse::NoContent,
        ..Dialect::default()
    };
    let (server, contacts) = start(dialect).await;

    let ada = contacts.update(ADA).property("seats", 4).await.unwrap();

    assert_eq!(sent(&server), [PATCH, GET]);
    assert_eq!(ada.properties["seats"], 4);
}

#[tokio::test]
async fn a_whole_number_that_the_service_shows_without_its_fraction_was_stored() {
    let (server, contacts) = start(Dialect::default()).await;
    contacts.update(ADA).property("score", 4).await.unwrap();
    let stored = server.contact(ADA).unwrap().properties;
    // The mock would keep the fraction.
    let shown = json!({
        "id": "c_1", "email": ADA, "properties": stored, "unsubscribed": false,
        "created_at": 1_700_000_000, "topics": {}, "unsubscribe_reason": "",
    });
    for (merged, requests) in [(&shown, vec![PATCH]), (&json!({}), vec![PATCH, GET])] {
        server.clear_requests();
        server.fault(Fault::wrong_body(merged.to_string()).method("PATCH"));
        server.fault(Fault::wrong_body(shown.to_string()).method("GET"));

        let update = contacts.update(ADA).property("score", 4.0);
        update.await.unwrap();

        assert_eq!(sent(&server), requests);
        server.clear_faults();
    }
}

#[tokio::test]
async fn properties_are_stored_if_the_service_refuses_or_ignores_the_body_of_the_merge() {
    let refusing = Dialect {
        merge_body: MergeBody::Bare,
        ..Dialect::default()
    };
    let (server, contacts) = start(refusing).await;
    contacts.update(ADA).property("seats", 4).await.unwrap();
    assert_eq!(sent(&server), [PATCH, GET, POST]);
    assert_eq!(server.contact(ADA).unwrap().properties["seats"], 4);

    let (server, contacts) = start(Dialect::default()).await;
    // As if nothing had been understood.
    server.fault(Fault::wrong_body("{}").path("/contacts/*").times(1));
    contacts.update(ADA).property("seats", 4).await.unwrap();
    assert_eq!(sent(&server), [PATCH, GET]);
    assert_eq!(server.contact(ADA).unwrap().properties["seats"], 4);
}

#[tokio::test]
async fn a_service_that_takes_the_whole_body_for_properties_keeps_no_trace_of_it() {
    let taking = Dialect {
        merge_body: MergeBody::Bare,
        property_values: PropertyValues::Any,
        ..Dialect::default()
    };
    let (server, contacts) = start(taking).await;

    let ada = contacts.update(ADA).property("seats", 4).await.unwrap();

    assert_eq!(sent(&server), [PATCH, GET, POST]);
    let stored = server.contact(ADA).unwrap();
    assert_eq!(json!(stored.properties), json!({"plan": "pro", "seats": 4}));
    assert_eq!(json!(ada.properties), json!(stored.properties));
}

#[tokio::test]
async fn an_update_that_is_refused_for_another_reason_than_its_form_is_not_sent_in_another() {
    for status in [401, 403, 409] {
        let (server, contacts) = start(Dialect::default()).await;
        server.fault(Fault::status(status).times(1));

        let error = contacts.update(ADA).property("seats", 4).await.unwrap_err();

        assert_eq!(error.status().unwrap(), status);
        assert_eq!(sent(&server), [PATCH]);
        assert_eq!(server.contact(ADA).unwrap().properties["seats"], 3);
    }
}

#[tokio::test]
async fn an_opt_out_survives_every_update() {
    let (server, contacts) = start(Dialect::default()).await;
    contacts.unsubscribe(ADA).await.unwrap();

    let merged = contacts.update(ADA).property("seats", 4).await.unwrap();
    let written = contacts.update(ADA).first_name("Augusta").await.unwrap();

    assert!(merged.unsubscribed && written.unsubscribed);
    assert!(server.contact(ADA).unwrap().unsubscribed);
}

#[tokio::test]
async fn an_update_of_an_unknown_address_is_not_found_and_creates_nothing() {
    let (server, contacts) = start(Dialect::default()).await;

    let merged = contacts.update("bob@example.com").property("seats", 4);
    let written = contacts.update("bob@example.com").first_name("Bob");

    for error in [merged.await.unwrap_err(), written.await.unwrap_err()] {
        assert!(error.is_not_found());
        assert!(error.to_string().starts_with("update: "), "{error}");
    }
    assert!(server.contact("bob@example.com").is_none());
}

/// As from a wrong cache.
#[tokio::test]
async fn an_update_never_writes_to_another_contact_that_a_response_has() {
    let (server, contacts) = start(Dialect::default()).await;
    let eve = json!({"id": "con_9", "email": "eve@example.com", "first_name": "Eve", "properties": {"seats": 4},
        "topics": {}, "unsubscribed": false, "unsubscribe_reason": "", "created_at": 1});
    let other = || Fault::wrong_body(eve.to_string()).times(1);

    server.fault(other().method("GET"));
    let error = contacts
        .update(ADA)
        .first_name("Augusta")
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Decode, "{error}");
    assert!(server.contact("eve@example.com").is_none());

    server.fault(other().method("PATCH"));
    let ada = contacts.update(ADA).property("seats", 4).await.unwrap();
    assert_eq!(ada.email, ADA);
    assert_eq!(ada.properties["seats"], 4);
    assert!(server.contact("eve@example.com").is_none());
}

#[tokio::test]
async fn an_update_whose_response_has_no_contact_may_be_lost_and_is_to_be_repeated() {
    let (server, contacts) = start(Dialect::default()).await;
    let eve = r#"{"id": "con_9", "email": "eve@example.com", "first_name": "Augusta"}"#;
    for body in ["", "{}", "[]", r#"{"ok": true}"#, eve] {
        server.fault(Fault::wrong_body(body).path("/contacts").times(1));

        let update = || contacts.update(ADA).first_name("Augusta");
        let error = update().await.unwrap_err();

        assert_eq!(error.outcome(), Outcome::Unknown, "{body}: {error}");
        assert_ne!(error.attempts(), 0, "{body}: {error}");
        let text = error.explanation();
        assert!(text.contains("it is safe to repeat it"), "{body}: {text}");
        let ada = update().await.unwrap();
        assert_eq!(ada.first_name.as_deref(), Some("Augusta"));
        contacts.update(ADA).first_name("Ada").await.unwrap();
    }
}

#[tokio::test]
async fn an_update_whose_response_still_shows_what_was_to_be_removed_is_an_error() {
    let shown = |first: &str, last: &str, properties: Value| {
        json!({"id": "con_1", "email": ADA, "unsubscribed": false, "created_at": 1,
            "first_name": first, "last_name": last, "properties": properties})
    };
    let plan = json!({"plan": "pro"});
    for (body, is_removed) in [
        (shown("Ada", "", plan.clone()), false),
        (shown("", "Byron", plan.clone()), false),
        (shown("", "", json!({"plan": "pro", "seats": 3})), false),
        (shown("", "", plan), true),
        // A short form shows nothing of it.
        (
            json!({"id": "con_1", "email": ADA, "unsubscribed": false, "created_at": 1}),
            true,
        ),
    ] {
        let (server, contacts) = start(Dialect::default()).await;
        let fault = Fault::wrong_body(body.to_string()).method("POST");
        server.fault(fault.path("/contacts"));

        let update = contacts.update(ADA).first_name("").last_name("");
        let updated = update.remove_property("seats").await;

        assert_eq!(updated.is_ok(), is_removed, "{body}: {updated:?}");
        if let Err(error) = updated {
            let found = (error.kind(), error.outcome(), error.attempts());
            let expected = (ErrorKind::Decode, Outcome::Unknown, 1);
            assert_eq!(found, expected, "{error}");
            let text = error.explanation();
            assert!(text.contains("still has a name or a property"), "{text}");
            assert!(text.contains("it is safe to repeat it"), "{text}");
        }
    }
}

#[tokio::test]
async fn an_update_that_cannot_be_sent_is_refused_before_any_request() {
    let (server, contacts) = start(Dialect::default()).await;

    let infinite = contacts
        .update(ADA)
        .first_name("A")
        .property("rate", f64::NAN);
    let nowhere = contacts.update("..").first_name("A");

    for error in [infinite.await.unwrap_err(), nowhere.await.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Input);
    }
    assert!(sent(&server).is_empty());
}

#[tokio::test]
async fn an_update_whose_merge_could_not_be_checked_may_have_been_applied() {
    let dialect = Dialect {
        merge_response: MergeResponse::NoContent,
        ..Dialect::default()
    };
    let (server, contacts) = start(dialect).await;
    server.fault(Fault::status(503).method("GET").times(1));

    let update = contacts.update(ADA).property("seats", 4);
    let error = update.retry(RetryPolicy::none()).await.unwrap_err();

    assert_eq!(error.outcome(), Outcome::Unknown);
    assert_eq!(server.contact(ADA).unwrap().properties["seats"], 4);
}

#[tokio::test]
async fn an_update_whose_first_merge_lost_its_response_may_have_been_applied_even_if_the_next_is_refused()
 {
    let (server, contacts) = start(Dialect::default()).await;
    server.fault(Fault::close_after().method("PATCH").times(1));
    server.fault(Fault::status(422).method("PATCH").times(1));
    server.fault(Fault::status(403).method("GET"));

    let update = contacts.update(ADA).property("seats", 4);
    let error = update.await.unwrap_err();

    assert_eq!(sent(&server), [PATCH, PATCH, GET]);
    assert_eq!(error.outcome(), Outcome::Unknown);
    assert_eq!(server.contact(ADA).unwrap().properties["seats"], 4);
}

#[tokio::test]
async fn a_property_named_as_the_member_stays_if_the_response_shows_no_contact() {
    let (server, contacts) = start(Dialect::default()).await;
    let named = contacts.update(ADA).property("properties", "house");
    named.await.unwrap();
    server.fault(Fault::wrong_body("{}").path("/contacts/*").times(1));

    contacts.update(ADA).property("seats", 4).await.unwrap();

    let stored = server.contact(ADA).unwrap().properties;
    assert_eq!(
        (&stored["properties"], &stored["seats"]),
        (&json!("house"), &json!(4))
    );
}

#[tokio::test]
async fn an_update_removes_no_property_that_a_response_does_not_show() {
    let (server, contacts) = start(Dialect::default()).await;
    let mut short = serde_json::to_value(contacts.retrieve(ADA).await.unwrap()).unwrap();
    short.as_object_mut().unwrap().remove("properties");
    let retrieve = Fault::wrong_body(short.to_string()).method("GET");
    server.fault(retrieve);

    let renamed = contacts.update(ADA).first_name("Augusta");
    renamed.await.unwrap();
    let both = contacts.update(ADA).first_name("A.").property("seats", 4);
    let error = both.await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Decode);
    assert_eq!(error.outcome(), Outcome::Unchanged);
    let text = error.to_string();
    assert!(text.contains("has no member `properties`"), "{text}");
    let stored = server.contact(ADA).unwrap();
    assert_eq!(stored.first_name.as_deref(), Some("Augusta"));
    assert_eq!(json!(stored.properties), json!({"plan": "pro", "seats": 3}));
}
