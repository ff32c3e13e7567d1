//! Subscribe and unsubscribe, against prepared responses.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use audience::contacts::{
    Contact, Contacts, OptOutReason, TopicsError, Unsubscribe, UnsubscribeReason,
};
use audience::mock::Fault;
use audience::rule::Rule;
use audience::{Error, ErrorCode, ErrorKind, Missing, Outcome, StatusCode};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use wiremock::{MockServer, Request, ResponseTemplate};

use support::trace_log::Log;
use support::{
    ADA, contact, contacts, in_time, ok, received, record, respond_with, status, text, with,
};

#[tokio::test]
async fn members_that_are_not_set_are_not_sent() {
    let server = respond_to_consent(ok).await;
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
        .topic(".")
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
                Some(json!({"reason": "manual", "topic": "."}))
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
        let server = respond_with(ok(with(form.clone(), "unsubscribed", false))).await;

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
            "subscribe: the service responded 422 failed_precondition; its message says why"
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
        "unsubscribe: the service responded 404 not_found: no such topic"
    );
}

/// Starts a mock with Ada and a topic, whose opt-outs are refused with a 404 that has this body.
async fn refuse_opt_outs(body: &str) -> (audience::mock::MockServer, Contacts) {
    let server = audience::mock::MockServer::builder().topic("news", true);
    let server = server.seed_contact(ADA).start().await;
    server.fault(Fault::status(404).body(body).path("*/unsubscribe"));
    let contacts = server.client().contacts();
    (server, contacts)
}

fn opt_outs(contacts: &Contacts, address: &str) -> [BoxFuture<'static, Result<Contact, Error>>; 3] {
    [
        contacts.unsubscribe(address).into_future().boxed(),
        contacts
            .unsubscribe(address)
            .topic("news")
            .into_future()
            .boxed(),
        contacts
            .set_topic(address, "news", false)
            .into_future()
            .boxed(),
    ]
}

fn opt_ins(contacts: &Contacts, address: &str) -> [BoxFuture<'static, Result<Contact, Error>>; 3] {
    let form = contacts.set_topics(address, [("news", true)]).into_future();
    let in_form = form.map(|saved| {
        saved
            .map(|saved| saved.contact)
            .map_err(TopicsError::into_error)
    });
    [
        contacts.subscribe(address).into_future().boxed(),
        contacts
            .subscribe(address)
            .topic("news")
            .into_future()
            .boxed(),
        in_form.boxed(),
    ]
}

#[tokio::test]
async fn a_404_of_a_gateway_never_says_that_a_listed_contact_is_missing() {
    for body in ["", "{}", "<html>", r#"{"code": "no_such_route"}"#] {
        let (server, contacts) = refuse_opt_outs(body).await;

        for call in opt_outs(&contacts, " Ada@Example.com") {
            let error = call.await.unwrap_err();

            assert!(
                !error.is_not_found() && error.missing().is_none(),
                "{body}: {error}"
            );
            assert_eq!(
                (error.outcome(), error.visitor_status()),
                (Outcome::Refused, StatusCode::SERVICE_UNAVAILABLE)
            );
            assert!(
                error.to_string().ends_with("; check the base URL"),
                "{error}"
            );
        }
        assert!(!server.contact(ADA).unwrap().unsubscribed);
    }
}

#[tokio::test]
async fn a_404_of_a_gateway_never_says_that_a_contact_to_change_or_look_at_is_missing() {
    let builder = audience::mock::MockServer::builder().topic("news", true);
    let server = builder.seed_contact(ADA).start().await;
    let contacts = server.client().contacts();
    let not_found = r#"{"code": "not_found", "message": "no such route"}"#;
    for body in ["", "<html>", r#"{"code": "no_such_route"}"#, not_found] {
        let calls: [(&str, BoxFuture<'_, Result<(), Error>>); 5] = [
            (
                "update",
                async { contacts.update(ADA).property("plan", "pro").await.map(drop) }.boxed(),
            ),
            (
                "update",
                async { contacts.update(ADA).first_name("Ada").await.map(drop) }.boxed(),
            ),
            (
                "change_address",
                async { contacts.change_address(ADA, "b@x.io").await.map(drop) }.boxed(),
            ),
            (
                "history",
                async { contacts.history(ADA).await.map(drop) }.boxed(),
            ),
            (
                "matches",
                async { contacts.matches(ADA, Rule::everyone()).await.map(drop) }.boxed(),
            ),
        ];
        for (name, call) in calls {
            server.fault(Fault::status(404).body(body).path("/contacts/*").times(1));

            let error = call.await.unwrap_err();

            assert!(
                !error.is_not_found() && error.missing().is_none(),
                "{name} {body}: {error}"
            );
            assert_eq!(error.visitor_status(), StatusCode::SERVICE_UNAVAILABLE);
        }
    }
    assert_eq!(server.contact_count(), 1);
}

/// A gateway can have the code, too.
#[tokio::test]
async fn an_opt_out_of_everything_believes_no_404_if_the_contact_is_listed() {
    for body in [
        r#"{"code": "not_found"}"#,
        r#"{"error": {"code": "not_found", "message": "no contact ada@example.com"}}"#,
    ] {
        let (server, contacts) = refuse_opt_outs(body).await;

        let error = contacts.unsubscribe(ADA).await.unwrap_err();

        assert!(!error.is_not_found(), "{body}: {error}");
        assert_eq!((error.missing(), error.attempts()), (None, 1));
        assert_eq!(server.requests().len(), 2);
        server.clear_faults();
        server.fault(Fault::status(410).body(body).path("*/unsubscribe"));
        let error = contacts.unsubscribe(ADA).await.unwrap_err();
        assert_eq!(error.missing(), None, "{body}: {error}");
    }
}

#[tokio::test]
async fn a_404_is_about_the_contact_if_no_list_has_it() {
    for body in [
        "",
        "{}",
        "<html>",
        r#"{"code": "no_such_route"}"#,
        r#"{"code": "not_found"}"#,
    ] {
        let (_server, contacts) = refuse_opt_outs(body).await;

        for call in opt_outs(&contacts, "nobody@example.com") {
            let error = call.await.unwrap_err();

            assert!(error.is_not_found(), "{body}: {error}");
            assert_eq!(error.missing(), Some(Missing::Contact), "{body}");
            assert_eq!(
                error.to_string(),
                "unsubscribe: the service responded 404 not_found: no such contact"
            );
        }
    }
}

#[tokio::test]
async fn a_404_of_the_service_is_about_the_topic_if_the_contact_is_listed() {
    for body in [
        r#"{"code": "not_found"}"#,
        r#"{"message": "no such topic: news"}"#,
    ] {
        let (_server, contacts) = refuse_opt_outs(body).await;

        let error = contacts.unsubscribe(ADA).topic("news").await.unwrap_err();

        assert_eq!(error.missing(), Some(Missing::Topic), "{body}");
        let words = "there is no topic with this name: check the name of the topic (404";
        assert!(error.explanation().starts_with(words), "{body}: {error}");
    }
}

#[tokio::test]
async fn an_opt_out_of_somebody_who_is_opted_out_already_changes_no_reason() {
    let server = audience::mock::MockServer::builder().topic("news", true);
    let server = server.seed_contact(ADA).start().await;
    let contacts = server.client().contacts();
    let unsubscribe = || contacts.unsubscribe(ADA).unless_opted_out();
    let reason = || server.contact(ADA).unwrap().unsubscribe_reason;

    let first = unsubscribe().reason(OptOutReason::Preferences).await;
    assert!(first.unwrap().unsubscribed);
    assert_eq!(reason(), "preferences");
    server.clear_requests();
    let response = unsubscribe().response().await.unwrap();

    assert!(response.value().unsubscribed);
    assert_eq!((response.status().as_u16(), response.attempts()), (200, 1));
    assert_eq!(
        (reason().as_str(), server.requests().len()),
        ("preferences", 1)
    );

    // `false` may be the default of a topic, which can change.
    server.topic("news", false);
    unsubscribe().topic("news").await.unwrap();
    server.topic("news", true);
    assert!(!server.contact(ADA).unwrap().topics["news"]);
}

#[tokio::test]
async fn an_opt_out_of_a_person_replaces_the_reason_of_the_sender_and_never_that_of_a_spam_report()
{
    let server = audience::mock::MockServer::builder().topic("news", true);
    let server = server.seed_contact(ADA).start().await;
    let contacts = server.client().contacts();
    let unsubscribe = || contacts.unsubscribe(ADA).unless_complaint_locked();
    let asked = || unsubscribe().reason(OptOutReason::Preferences);

    assert_eq!(
        unsubscribe().await.unwrap().unsubscribe_reason,
        Some(UnsubscribeReason::Manual)
    );
    assert_eq!(
        asked().await.unwrap().unsubscribe_reason,
        Some(UnsubscribeReason::Preferences)
    );
    server.report_spam(ADA);
    server.clear_requests();
    let left = asked().await.unwrap();

    assert_eq!(left.unsubscribe_reason, Some(UnsubscribeReason::Complaint));
    let methods = server.requests().into_iter().map(|request| request.method);
    assert_eq!(methods.collect::<Vec<_>>(), ["GET"]);
    // It has no reason.
    unsubscribe().topic("news").await.unwrap();
    assert!(!server.contact(ADA).unwrap().topics["news"]);
}

#[tokio::test]
async fn an_opt_out_that_looks_first_is_sent_to_a_contact_that_cannot_be_read() {
    for body in [
        with(contact(), "topics", json!({"news": "yes"})),
        // As from a wrong cache.
        with(contact(), "email", "bob@example.com"),
    ] {
        for opt_out in [
            Unsubscribe::unless_complaint_locked,
            Unsubscribe::unless_opted_out,
        ] {
            let server = audience::mock::MockServer::builder().seed_contact(ADA);
            let server = server.start().await;
            let look = Fault::wrong_body(body.to_string()).method("GET");
            server.fault(look.path("/contacts/*"));
            let contacts = server.client().contacts();

            opt_out(contacts.unsubscribe(ADA)).await.unwrap();

            assert!(server.contact(ADA).unwrap().unsubscribed);
        }
    }
}

#[tokio::test]
async fn an_opt_out_that_looks_first_does_not_replace_a_spam_report_of_a_contact_that_cannot_be_read()
 {
    let server = audience::mock::MockServer::builder().seed_contact(ADA);
    let server = server.start().await;
    let locked = with(contact(), "topics", json!({"news": "yes"}));
    let locked = with(
        with(locked, "unsubscribed", true),
        "unsubscribe_reason",
        "complaint",
    );
    let look = Fault::wrong_body(locked.to_string()).method("GET");
    server.fault(look.path("/contacts/*"));
    let contacts = server.client().contacts();

    let error = contacts
        .unsubscribe(ADA)
        .unless_complaint_locked()
        .await
        .unwrap_err();

    assert!(error.is_malformed_contact(), "{error}");
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn an_opt_in_of_somebody_else_after_the_contact_was_retrieved_does_not_win_over_a_person() {
    let server = audience::mock::MockServer::builder().seed_contact(ADA);
    let server = server.start().await;
    let opted_out = with(contact(), "unsubscribed", true);
    let opted_out = with(opted_out, "unsubscribe_reason", "preferences");
    // She was opted out when the call looked, and is subscribed by now.
    let retrieved = Fault::wrong_body(opted_out.to_string()).method("GET");
    server.fault(retrieved.path("/contacts/*").times(1));

    let unsubscribe = server.client().contacts().unsubscribe(ADA);
    let asked = unsubscribe.reason(OptOutReason::Preferences);
    asked.unless_complaint_locked().await.unwrap();

    assert!(server.contact(ADA).unwrap().unsubscribed);
}

#[tokio::test]
async fn an_opt_out_that_looks_first_is_not_sent_after_an_error_and_may_be_repeated_after_the_404_of_a_gateway()
 {
    let (server, contacts) = {
        let server = audience::mock::MockServer::builder()
            .seed_contact(ADA)
            .start()
            .await;
        let contacts = server.client().contacts();
        (server, contacts)
    };
    let look = |fault: Fault| fault.method("GET").path("/contacts/*").times(1);

    server.fault(look(Fault::status(404).body(r#"{"code": "not_found"}"#)));
    let opt_out = || contacts.unsubscribe(ADA).unless_opted_out();
    let error = opt_out().await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    assert!(!server.contact(ADA).unwrap().unsubscribed);
    opt_out().await.unwrap();
    assert!(server.contact(ADA).unwrap().unsubscribed);

    contacts.subscribe(ADA).await.unwrap();
    server.fault(look(Fault::status(501)));
    let error = opt_out().await.unwrap_err();
    assert!(error.to_string().starts_with("unsubscribe: "), "{error}");
    assert!(error.outcome() < Outcome::Unknown, "{error}");
    assert!(!server.contact(ADA).unwrap().unsubscribed);

    let error = contacts
        .unsubscribe("bob@example.com")
        .unless_opted_out()
        .await;
    assert_eq!(error.unwrap_err().missing(), Some(Missing::Contact));
}

#[tokio::test]
async fn a_404_for_every_request_is_no_proof() {
    let (server, contacts) = refuse_opt_outs("").await;
    server.fault(Fault::status(404).body("<html>"));

    let error = contacts
        .unsubscribe("nobody@example.com")
        .await
        .unwrap_err();

    assert!(!error.is_not_found(), "{error}");
    assert_eq!((error.outcome(), error.attempts()), (Outcome::Refused, 2));
    assert!(error.to_string().starts_with("unsubscribe: "), "{error}");
}

#[tokio::test]
async fn an_empty_list_that_reports_an_error_does_not_prove_that_a_contact_is_missing() {
    for body in [
        r#"{"data": [], "error": {"message": "search unavailable"}}"#,
        r#"{"data": [], "errors": ["busy"]}"#,
        r#"{"success": false, "data": []}"#,
    ] {
        let (server, contacts) = refuse_opt_outs("{}").await;
        server.fault(Fault::wrong_body(body).path("/contacts"));

        for call in opt_outs(&contacts, ADA) {
            let error = call.await.unwrap_err();

            assert!(!error.is_not_found(), "{body}: {error}");
            assert_eq!(error.missing(), None, "{body}: {error}");
        }
    }
}

/// Ada after an opt-out of everything and of a topic, or after the opt-ins.
fn contact_after(is_out: bool) -> Value {
    let contact = with(contact(), "unsubscribed", is_out);
    with(contact, "topics", json!({"news": !is_out}))
}

/// Responds to a retrieve request with the contact as the last call wanted it, and to that call with what this makes of the
/// contact.
async fn respond_to_consent(
    respond: impl Fn(Value) -> ResponseTemplate + Send + Sync + 'static,
) -> MockServer {
    let is_out = AtomicBool::new(true);
    respond_with(move |request: &Request| {
        let is_call = request.method == "POST";
        if is_call {
            let path = request.url.path();
            is_out.store(path.ends_with("/unsubscribe"), Ordering::Relaxed);
        }
        let is_out = is_out.load(Ordering::Relaxed);
        let contact = contact_after(is_out);
        match is_call {
            true => respond(contact),
            false => ok(contact),
        }
    })
    .await
}

async fn methods(server: &MockServer) -> Vec<String> {
    let requests = received(server).await;
    requests
        .iter()
        .map(|request| request.method.to_string())
        .collect()
}

/// The consent calls, each with a result that is only the contact.
fn consent_calls(contacts: &Contacts) -> [BoxFuture<'static, Result<Contact, Error>>; 4] {
    [
        contacts.subscribe(ADA).into_future().boxed(),
        contacts.unsubscribe(ADA).into_future().boxed(),
        contacts
            .unsubscribe(ADA)
            .topic("news")
            .into_future()
            .boxed(),
        contacts.set_topic(ADA, "news", true).into_future().boxed(),
    ]
}

#[tokio::test]
async fn a_contact_that_is_wrapped_is_read() {
    let wrappers: [fn(Value) -> Value; 3] = [
        |contact| json!({"contact": contact}),
        |contact| json!({"data": contact}),
        |contact| json!({"ok": true, "contact": "con_1", "data": contact}),
    ];
    for wrap in wrappers {
        let server = respond_to_consent(move |contact| ok(wrap(contact))).await;

        for call in consent_calls(&contacts(server.uri())) {
            assert_eq!(call.await.unwrap().email, ADA);
        }
        assert_eq!(methods(&server).await, ["POST"; 4]);
    }
}

#[tokio::test]
async fn the_contact_is_retrieved_if_a_2xx_response_does_not_have_it() {
    for response in [
        status(204),
        status(202),
        ok(json!({"ok": true})),
        ok(json!(null)),
        ok(json!([])),
        ok(json!({"data": null, "contact": "con_1"})),
        ok(with(contact(), "unsubscribed", Value::Null)),
        text(200, "OK"),
        text(200, "{\"id\": "),
    ] {
        let responded = response.clone();
        let server = respond_to_consent(move |_| responded.clone()).await;

        for call in consent_calls(&contacts(server.uri())) {
            let contact = call.await.unwrap();
            assert_eq!(
                (contact.email.as_str(), contact.shows_topics()),
                (ADA, true)
            );
        }
        let expected = ["POST", "GET"].repeat(4);
        assert_eq!(methods(&server).await, expected, "{response:?}");
    }
    let server = respond_to_consent(|_| status(204)).await;

    let response = contacts(server.uri())
        .unsubscribe(ADA)
        .response()
        .await
        .unwrap();

    assert_eq!((response.status().as_u16(), response.attempts()), (204, 1));
    assert_eq!(response.value().email, ADA);
    let requests = received(&server).await;
    assert_eq!(requests[1].url.path(), "/contacts/ada%40example.com");
}

/// Responds to all consent calls with `{"ok": true}`, to a retrieve request with this, and to a list with nothing.
async fn respond_to_retrieve(retrieved: ResponseTemplate) -> MockServer {
    respond_with(move |request: &Request| match request.method.as_str() {
        "GET" if request.url.path() == "/contacts" => ok(json!({"data": [], "next": null})),
        "GET" => retrieved.clone(),
        _ => ok(json!({"ok": true})),
    })
    .await
}

#[tokio::test]
async fn if_the_contact_cannot_be_retrieved_an_opt_in_was_made_and_an_opt_out_may_be_lost() {
    for (retrieved, is_missing, is_proof, is_from_elsewhere) in [
        (text(404, r#"{"code": "not_found"}"#), true, false, false),
        (status(503), false, false, false),
        (ok(json!({"ok": true})), false, false, true),
        (
            ok(with(contact(), "unsubscribed", Value::Null)),
            false,
            true,
            false,
        ),
    ] {
        let server = respond_to_retrieve(retrieved).await;
        let contacts = contacts(server.uri());

        let opt_in = contacts.subscribe(ADA).await.unwrap_err();
        let opt_out = contacts.unsubscribe(ADA).await.unwrap_err();

        if is_from_elsewhere {
            assert_eq!(opt_in.outcome(), Outcome::Unknown, "{opt_in}");
            let explanation = opt_in.explanation();
            assert!(
                explanation.contains("may have been recorded or not"),
                "{explanation}"
            );
        } else {
            assert_says_that_the_change_was_made(&opt_in, "subscribe");
        }
        if is_missing {
            // No list has the contact, so nobody sends broadcasts to the address.
            assert_eq!(opt_out.missing(), Some(Missing::Contact));
            assert_eq!(opt_out.outcome(), Outcome::Refused);
        } else if is_proof {
            // The service responds with the contact.
            assert_says_that_the_change_was_made(&opt_out, "unsubscribe");
        } else {
            // A gateway may have sent both responses.
            assert_eq!(opt_out.outcome(), Outcome::Unknown, "{opt_out}");
            assert!(
                opt_out.explanation().contains("safe to repeat"),
                "{opt_out}"
            );
        }
        let consents = methods(&server)
            .await
            .iter()
            .filter(|method| *method == "POST")
            .count();
        assert_eq!(consents, 2, "no consent call is repeated");
    }
}

fn assert_says_that_the_change_was_made(error: &Error, operation: &str) {
    let text = format!(
        "{operation}: the change was made, but the response has no contact, and the contact could not be retrieved \
         (after {} attempts)",
        error.attempts()
    );
    assert_eq!(error.to_string(), text);
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Decode, Outcome::Applied)
    );
    assert!(!error.is_not_found() && !error.is_retryable());
    assert_eq!(error.body(), Some(&br#"{"ok":true}"#[..]));
    let cause = std::error::Error::source(error).unwrap().to_string();
    assert!(cause.starts_with("retrieve: "), "{cause}");
}

#[tokio::test]
async fn an_opt_out_that_a_gateway_accepts_says_that_there_is_no_contact_if_no_list_has_it() {
    for response in [
        Fault::status(204),
        Fault::status(200).body(r#"{"ok": true}"#),
    ] {
        let server = audience::mock::MockServer::builder().topic("news", true);
        let server = server.start().await;
        server.fault(response.path("*/unsubscribe"));

        for call in opt_outs(&server.client().contacts(), ADA) {
            let error = call.await.unwrap_err();

            assert_eq!(error.missing(), Some(Missing::Contact), "{error}");
            assert_eq!(
                (error.outcome(), error.visitor_status()),
                (Outcome::Refused, StatusCode::NOT_FOUND)
            );
            assert_eq!(
                error.explanation(),
                "there is no contact with this address: check the address (404 not_found)"
            );
        }
        let requests = server.requests().into_iter();
        let methods: Vec<_> = requests.map(|request| request.method).collect();
        let expected = ["POST", "GET", "GET"].repeat(3);
        assert_eq!(
            methods, expected,
            "the contact is retrieved, and then listed"
        );
    }
}

#[tokio::test]
async fn an_opt_out_that_the_contact_does_not_show_has_failed() {
    let subscribed = with(contact(), "unsubscribed", false);
    for response in [
        status(204),
        ok(json!({})),
        ok(json!({"ok": true})),
        text(200, "OK"),
        ok(&subscribed),
    ] {
        let retrieved = ok(&subscribed);
        let server = respond_with(move |request: &Request| match request.method.as_str() {
            "GET" => retrieved.clone(),
            _ => response.clone(),
        })
        .await;

        for call in opt_outs(&contacts(server.uri()), ADA) {
            let error = call.await.unwrap_err();

            assert_eq!(
                error.to_string(),
                "unsubscribe: the response has no contact with the change, and neither has the contact that was \
                 retrieved, so the response most likely comes from a proxy or another server; check the base URL and \
                 repeat the call (after 2 attempts)"
            );
            assert_eq!(
                (error.kind(), error.outcome()),
                (ErrorKind::Decode, Outcome::Unknown)
            );
            assert!(error.is_retryable());
            let advice = "it is safe to repeat it; try again later";
            assert!(error.explanation().ends_with(advice), "{error}");
        }
        let methods = methods(&server).await;
        assert_eq!(methods, ["POST", "GET"].repeat(methods.len() / 2));
    }
}

#[tokio::test]
async fn a_response_to_an_opt_out_with_another_contact_or_the_one_before_is_no_proof() {
    let opted_out = contact_after(true);
    let other = with(opted_out.clone(), "email", "bob@example.com");
    let before = contact_after(false);
    for response in [ok(&other), ok(&before), ok(json!({"contact": before}))] {
        let retrieved = ok(&opted_out);
        let server = respond_with(move |request: &Request| match request.method.as_str() {
            "GET" => retrieved.clone(),
            _ => response.clone(),
        })
        .await;

        for call in opt_outs(&contacts(server.uri()), ADA) {
            let contact = call.await.unwrap();
            assert!(contact.email == ADA && contact.unsubscribed && !contact.topics["news"]);
        }

        let methods = methods(&server).await;
        assert_eq!(methods, ["POST", "GET"].repeat(3));
    }
}

#[tokio::test]
async fn a_change_after_which_another_contact_is_retrieved_has_failed() {
    for no in [true, false] {
        let other = with(contact_after(no), "email", "bob@example.com");
        let server = respond_with(ok(other)).await;
        let contacts = contacts(server.uri());
        let calls = match no {
            true => opt_outs(&contacts, ADA),
            false => opt_ins(&contacts, ADA),
        };

        for call in calls {
            let error = call.await.unwrap_err();

            assert_eq!(error.kind(), ErrorKind::Decode, "{error}");
            // A form has sent nothing yet.
            let outcomes = [Outcome::Unknown, Outcome::Unchanged];
            assert!(outcomes.contains(&error.outcome()), "{error}");
        }
    }
}

#[tokio::test]
async fn after_an_opt_in_whose_response_has_another_contact_the_own_one_is_retrieved() {
    let subscribed = contact_after(false);
    let server = respond_with(move |request: &Request| match request.method.as_str() {
        "GET" => ok(&subscribed),
        _ => ok(with(subscribed.clone(), "email", "bob@example.com")),
    })
    .await;

    for call in opt_ins(&contacts(server.uri()), ADA) {
        assert_eq!(call.await.unwrap().email, ADA);
    }

    let form = ["GET", "POST", "GET"];
    let expected = [["POST", "GET", "POST", "GET"].as_slice(), &form].concat();
    assert_eq!(methods(&server).await, expected);
}

#[tokio::test]
async fn an_opt_in_that_the_contact_does_not_show_has_failed_and_is_not_to_be_repeated() {
    let opted_out = contact_after(true);
    for response in [status(204), ok(json!({"ok": true}))] {
        let retrieved = ok(&opted_out);
        let server = respond_with(move |request: &Request| match request.method.as_str() {
            "GET" => retrieved.clone(),
            _ => response.clone(),
        })
        .await;

        for call in opt_ins(&contacts(server.uri()), ADA) {
            let error = call.await.unwrap_err();

            let text = error.to_string();
            assert!(
                text.contains("another server; check the base URL (after"),
                "{text}"
            );
            assert_eq!(
                (error.kind(), error.outcome()),
                (ErrorKind::Decode, Outcome::Unknown)
            );
            assert!(
                !error.explanation().contains("safe to repeat"),
                "{}",
                error.explanation()
            );
        }
    }
}

#[tokio::test]
async fn an_opt_out_with_another_contact_in_its_response_fails_if_the_own_one_cannot_be_retrieved()
{
    let other = with(
        with(contact(), "unsubscribed", true),
        "email",
        "bob@example.com",
    );
    let server = respond_with(move |request: &Request| match request.method.as_str() {
        "GET" => status(503),
        _ => ok(&other),
    })
    .await;

    for call in opt_outs(&contacts(server.uri()), ADA) {
        let error = call.await.unwrap_err();
        assert_eq!(error.outcome(), Outcome::Unknown, "{error}");
    }
}

#[tokio::test]
async fn a_contact_in_the_response_to_an_opt_out_takes_no_other_request() {
    let opted_out = with(with(contact(), "unsubscribed", true), "topics", json!({}));
    let opted_out = with(opted_out, "email", "Ada@Example.com");
    let server = respond_with(ok(&opted_out)).await;

    for call in opt_outs(&contacts(server.uri()), ADA) {
        assert!(call.await.unwrap().unsubscribed);
    }

    assert!(methods(&server).await.iter().all(|method| method == "POST"));
}

#[tokio::test]
async fn a_retrieved_contact_without_the_topic_of_an_opt_out_is_believed() {
    let other = with(contact(), "topics", json!({"offers": true}));
    let server = respond_with(move |request: &Request| match request.method.as_str() {
        "GET" => ok(&other),
        _ => status(204),
    })
    .await;

    let contact = contacts(server.uri()).unsubscribe(ADA).topic("news").await;

    assert_eq!(contact.unwrap().topics.len(), 1);
}

#[tokio::test]
async fn a_topic_whose_answer_is_null_is_not_shown() {
    let answers = json!({"news": null, "offers": true});
    let contact = with(with(record(), "unsubscribed", false), "topics", answers);
    let server = respond_with(ok(contact)).await;
    let contacts = contacts(server.uri());

    let retrieved = contacts.retrieve(ADA).await.unwrap();
    let subscribed = contacts.subscribe(ADA).await.unwrap();

    for contact in [retrieved, subscribed] {
        assert_eq!(json!(contact.topics), json!({"offers": true}));
        assert!(contact.shows_topics());
        assert!(!contact.reachability_for("news").is_reachable());
        assert!(contact.reachability_for("offers").is_reachable());
        let stored = serde_json::to_value(&contact).unwrap();
        assert_eq!(stored["topics"], json!({"news": null, "offers": true}));
        assert_eq!(serde_json::from_value::<Contact>(stored).unwrap(), contact);
    }
}

#[tokio::test]
async fn a_null_answer_does_not_prove_that_an_opt_out_or_an_opt_in_was_recorded() {
    let answers = json!({"news": null, "offers": true});
    let contact = with(with(record(), "unsubscribed", false), "topics", answers);
    let server = respond_with(move |request: &Request| match request.method.as_str() {
        "GET" => ok(&contact),
        _ => status(204),
    })
    .await;
    let contacts = contacts(server.uri());

    for answer in [false, true] {
        let error = contacts.set_topic(ADA, "news", answer).await.unwrap_err();

        assert_eq!(error.outcome(), Outcome::Unknown, "{answer}: {error}");
    }
}

#[tokio::test]
async fn an_opt_out_that_the_service_accepts_and_never_shows_counts_as_recorded_with_a_warning() {
    for (address, retrieved, is_recorded) in [
        (ADA, Value::Null, true),
        (ADA, true.into(), false),
        ("bob@example.com", Value::Null, false),
    ] {
        let shown = move |address, answer| {
            let contact = with(with(record(), "unsubscribed", false), "email", address);
            ok(with(contact, "topics", json!({"news": answer})))
        };
        let server = respond_with(move |request: &Request| match request.method.as_str() {
            "GET" => shown(ADA, retrieved.clone()),
            _ => shown(address, Value::Null),
        })
        .await;
        let contacts = contacts(server.uri());

        let log = Log::start();
        let opted_out = contacts.unsubscribe(ADA).topic("news").await;

        assert_eq!(opted_out.is_ok(), is_recorded, "{opted_out:?}");
        let warnings = log.events().into_iter();
        let warnings: Vec<_> = warnings
            .map(|line| line.fields["message"].clone())
            .collect();
        let warning = "the service accepted the change, but does not show whether it was made";
        let expected: &[&str] = if is_recorded { &[warning] } else { &[] };
        assert_eq!(warnings, expected);
    }
}

#[tokio::test]
async fn the_call_and_the_retrieve_after_it_share_one_deadline() {
    let server = respond_with(|request: &Request| match request.method.as_str() {
        "GET" => ok(contact()).set_delay(Duration::from_secs(60)),
        _ => status(204),
    })
    .await;
    let contacts = contacts(server.uri());
    let mut limit = Duration::from_secs(1);

    let (opt_in, opt_out) = loop {
        let opt_in = in_time(contacts.subscribe(ADA).deadline(limit)).await;
        let opt_out = in_time(contacts.unsubscribe(ADA).deadline(limit)).await;
        let (opt_in, opt_out) = (opt_in.unwrap_err(), opt_out.unwrap_err());
        // On a busy machine, even the response to the opt-in may be too late.
        if opt_in.outcome() == Outcome::Applied || limit > Duration::from_secs(10) {
            break (opt_in, opt_out);
        }
        limit *= 2;
    };

    assert_eq!(
        (opt_in.outcome(), opt_out.outcome()),
        (Outcome::Applied, Outcome::Unknown)
    );
    let cause = std::error::Error::source(&opt_in).unwrap();
    let cause = cause.downcast_ref::<Error>().unwrap();
    assert!(cause.is_timeout() && opt_out.is_timeout(), "{opt_out}");
}

#[tokio::test]
async fn a_page_with_a_2xx_status_is_no_response_of_the_service() {
    for page in [
        "<!doctype html><title>Sign in to the hotel network</title>",
        "\r\n  <html>",
        "<?xml version=\"1.0\"?><ok/>",
    ] {
        let server = respond_to_consent(move |_| text(200, page)).await;

        for call in consent_calls(&contacts(server.uri())) {
            let error = call.await.unwrap_err();

            assert_eq!(
                (error.kind(), error.outcome()),
                (ErrorKind::Decode, Outcome::Unknown)
            );
            assert!(
                error.to_string().ends_with(
                    ": the response is an HTML or XML page, not JSON; check the base URL"
                ),
                "{error}"
            );
        }
        assert_eq!(methods(&server).await, ["POST"; 4], "{page}");
    }
}

#[tokio::test]
async fn a_2xx_response_that_reports_an_error_is_not_taken_for_success() {
    for body in [
        json!({"error": {"code": "failed_precondition"}}),
        json!({"error": "not recorded"}),
        json!({"errors": [{"code": "not_found"}]}),
        json!({"error": 17}),
        json!({"success": false}),
        json!({"ok": false, "data": null}),
        json!({"success": false, "contact": contact()}),
    ] {
        let response = ok(&body);
        let server = respond_to_consent(move |_| response.clone()).await;

        for call in consent_calls(&contacts(server.uri())) {
            let error = call.await.unwrap_err();

            assert_eq!(
                (error.kind(), error.outcome()),
                (ErrorKind::Decode, Outcome::Unknown),
                "{body}"
            );
            let text = ": the response has the status 200, but reports an error";
            assert!(error.to_string().ends_with(text), "{error}");
            assert_eq!(error.body(), Some(body.to_string().as_bytes()));
            assert!(!error.is_retryable());
        }
        assert_eq!(methods(&server).await, ["POST"; 4], "{body}");
    }
}

#[tokio::test]
async fn a_member_that_says_that_there_is_no_error_is_no_error() {
    let empty = [
        json!(null),
        json!(""),
        json!([]),
        json!({}),
        json!(false),
        json!(0),
    ];
    let mut bodies: Vec<_> = empty
        .into_iter()
        .flat_map(|none| [json!({"error": none}), json!({"errors": none})])
        .collect();
    bodies.push(json!({"success": true, "ok": null}));
    bodies.push(json!([{"error": "x"}]));
    for body in bodies {
        let response = ok(&body);
        let server = respond_to_consent(move |_| response.clone()).await;

        let contact = contacts(server.uri()).unsubscribe(ADA).await;

        assert_eq!(contact.unwrap().email, ADA, "{body}");
        assert_eq!(methods(&server).await, ["POST", "GET"], "{body}");
    }
    for member in ["error", "errors", "success", "ok"] {
        let body = with(contact(), member, json!(["of the contact"]));
        let response = ok(&body);
        let server = respond_to_consent(move |_| response.clone()).await;

        assert!(contacts(server.uri()).unsubscribe(ADA).await.is_ok());
        assert_eq!(methods(&server).await, ["POST"], "{body}");
    }
}

#[tokio::test]
async fn the_error_says_which_member_of_the_contact_in_the_response_is_invalid() {
    let late = with(contact(), "created_at", 1_700_000_000_000_i64);
    let number = with(contact(), "topics", json!({"news": 1}));
    let milliseconds =
        "$.created_at: the time is in milliseconds or a smaller unit, not in seconds";
    let wrapped = milliseconds.replace("$.", "$.data.");
    for (body, place) in [
        (late.clone(), milliseconds),
        (number.clone(), "$.topics.news"),
        (json!({"data": late}), wrapped.as_str()),
        (json!({"contact": number}), "$.contact.topics.news"),
    ] {
        let server = respond_with(ok(&body)).await;

        let error = contacts(server.uri()).unsubscribe(ADA).await.unwrap_err();

        assert_eq!(
            error.to_string(),
            format!(
                "unsubscribe: the change was made, but the contact in the response cannot be read (invalid response \
                 at {place}), and the contact could not be retrieved (after 2 attempts)"
            )
        );
        assert_eq!(error.outcome(), Outcome::Applied);
    }
}
