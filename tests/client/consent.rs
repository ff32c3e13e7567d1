//! Subscribe and unsubscribe, against prepared responses.

use audience::contacts::{Contact, OptOutReason, UnsubscribeReason};
use audience::{ErrorCode, ErrorKind, Outcome};
use serde_json::{Value, json};

use support::{ADA, contact, contacts, ok, received, record, respond_with, status, with};

#[tokio::test]
async fn members_that_are_not_set_are_not_sent() {
    let server = respond_with(ok(contact())).await;
    let contacts = contacts(server.uri());

    contacts.subscribe(ADA).await.unwrap();
    contacts.subscribe(ADA).topic("news").await.unwrap();
    contacts.unsubscribe(ADA).await.unwrap();
    contacts.unsubscribe(ADA).topic("news").await.unwrap();
    contacts
        .unsubscribe(ADA)
        .reason(OptOutReason::Preferences)
        .await
        .unwrap();
    contacts
        .unsubscribe(ADA)
        .reason(OptOutReason::Manual)
        .topic("")
        .await
        .unwrap();

    let requests = received(&server).await;
    let sent: Vec<_> = requests
        .iter()
        .map(|request| {
            let verb = request.url.path().rsplit('/').next().unwrap();
            (verb, request.body_json::<Value>().ok())
        })
        .collect();
    assert_eq!(
        sent,
        [
            ("subscribe", None),
            ("subscribe", Some(json!({"topic": "news"}))),
            ("unsubscribe", None),
            ("unsubscribe", Some(json!({"topic": "news"}))),
            ("unsubscribe", Some(json!({"reason": "preferences"}))),
            (
                "unsubscribe",
                Some(json!({"reason": "manual", "topic": ""}))
            ),
        ]
    );
    for request in &requests {
        assert_eq!(request.method.as_str(), "POST");
        assert!(
            request
                .url
                .path()
                .starts_with("/contacts/ada%40example.com/")
        );
        assert_eq!(
            request.headers.contains_key("content-type"),
            !request.body.is_empty(),
            "a content type only with a body"
        );
    }
}

#[tokio::test]
async fn the_changed_contact_is_returned() {
    let server = respond_with(status(202).set_body_json(contact())).await;

    let contact = contacts(server.uri())
        .unsubscribe(ADA)
        .topic("offers")
        .await
        .unwrap();

    assert_eq!(contact.topics.get("offers"), Some(&false));
    assert_eq!(
        contact.unsubscribe_reason,
        Some(UnsubscribeReason::Preferences)
    );
}

#[tokio::test]
async fn a_short_response_has_no_topic_answers() {
    let server = respond_with(ok(record())).await;

    let contact = contacts(server.uri())
        .subscribe(ADA)
        .topic("news")
        .await
        .unwrap();

    assert!(contact.topics.is_empty());
    assert_eq!(contact.unsubscribe_reason, None);
}

#[tokio::test]
async fn topics_and_reason_that_were_not_sent_differ_from_none() {
    let silent = record();
    let null_topics = with(
        with(record(), "topics", Value::Null),
        "unsubscribe_reason",
        "",
    );
    let none = with(
        with(record(), "topics", json!({})),
        "unsubscribe_reason",
        Value::Null,
    );
    for (form, shows_topics, shows_reason) in [
        (silent, false, false),
        (null_topics, false, true),
        (none, true, true),
        (contact(), true, true),
    ] {
        let server = respond_with(ok(&form)).await;

        let contact = contacts(server.uri()).subscribe(ADA).await.unwrap();

        assert_eq!(
            (contact.shows_topics(), contact.shows_unsubscribe_reason()),
            (shows_topics, shows_reason),
            "{form}"
        );
        let stored = serde_json::to_value(&contact).unwrap();
        assert_eq!(stored.get("topics").is_some(), shows_topics);
        assert_eq!(stored.get("unsubscribe_reason").is_some(), shows_reason);
        assert_eq!(serde_json::from_value::<Contact>(stored).unwrap(), contact);
    }
}

#[tokio::test]
async fn a_complaint_contact_cannot_be_subscribed_and_the_error_says_so() {
    let refusal =
        json!({"error": {"code": "failed_precondition", "message": "the contact reported spam"}});
    let server = respond_with(status(422).set_body_json(refusal)).await;
    let contacts = contacts(server.uri());

    for error in [
        contacts.subscribe(ADA).await.unwrap_err(),
        contacts.subscribe(ADA).topic("news").await.unwrap_err(),
    ] {
        assert!(error.is_complaint_locked() && !error.is_validation_error());
        assert_eq!(
            (error.kind(), error.outcome(), error.attempts()),
            (ErrorKind::Api, Outcome::Refused, 1)
        );
        assert_eq!(
            error.api().unwrap().message(),
            Some("the contact reported spam")
        );
        assert_eq!(
            error.to_string(),
            "subscribe: the service responded 422 failed_precondition; see `ApiError::message`"
        );
    }
}

#[tokio::test]
async fn an_unknown_topic_is_in_the_services_message_and_not_in_the_error_text() {
    let refusal = json!({"code": "not_found", "message": "no such topic: gossip"});
    let server = respond_with(status(404).set_body_json(refusal)).await;

    let error = contacts(server.uri())
        .unsubscribe(ADA)
        .topic("gossip")
        .await
        .unwrap_err();

    assert!(error.is_not_found());
    assert_eq!(error.code(), Some(&ErrorCode::NotFound));
    assert_eq!(
        error.api().unwrap().message(),
        Some("no such topic: gossip")
    );
    assert_eq!(
        error.to_string(),
        "unsubscribe: the service responded 404 not_found"
    );
}

#[tokio::test]
async fn a_missing_or_invalid_consent_member_is_a_decode_error() {
    let mut invalid = with(contact(), "unsubscribed", Value::Null);
    let server = respond_with(ok(&invalid)).await;
    let error = contacts(server.uri()).unsubscribe(ADA).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Decode);
    assert!(error.to_string().contains("$.unsubscribed"), "{error}");

    invalid = with(contact(), "topics", json!({"news": "yes"}));
    let server = respond_with(ok(invalid)).await;
    let error = contacts(server.uri()).subscribe(ADA).await.unwrap_err();
    assert!(error.to_string().contains("$.topics.news"), "{error}");
    assert_eq!(
        error.outcome(),
        Outcome::Unknown,
        "after a 2xx the change was probably applied"
    );
}
