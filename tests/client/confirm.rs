//! `contacts.confirm_opt_in`: who gets which topics after the click of a double opt-in, and after a failure.

use audience::contacts::Contacts;
use audience::mock::dialect::{ConsentForm, PathAddress};
use audience::mock::{Dialect, Fault, MockServer, Reason, SeedContact};
use audience::{ErrorKind, Outcome, RetryPolicy};
use serde_json::json;

use support::{ADA, mock_builder};

/// Starts a mock with a topic whose default is `true`, and one whose default is `false`.
async fn start(seed: Option<SeedContact>) -> (MockServer, Contacts) {
    let server = MockServer::builder()
        .topic("news", false)
        .topic("offers", true);
    let server = match seed {
        Some(seed) => server.seed_contact(seed),
        None => server,
    };
    let server = server.start().await;
    let client = mock_builder(&server).retry(RetryPolicy::none()).build();
    let contacts = client.unwrap().contacts();
    (server, contacts)
}

/// The requests in the order in which they arrived: the last part of the path, and the topic.
fn sent(server: &MockServer) -> Vec<String> {
    let requests = server.requests().into_iter().map(|request| {
        let call = request
            .path
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .to_owned();
        let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let topic = body["topic"].as_str().map(|topic| format!(" {topic}"));
        format!("{} {call}{}", request.method, topic.unwrap_or_default())
    });
    requests.collect()
}

#[tokio::test]
async fn a_new_contact_is_opted_out_of_everything_until_the_last_request() {
    let (server, contacts) = start(None).await;

    let ada = contacts.confirm_opt_in(ADA, ["news"]).await.unwrap();

    assert!(!ada.unsubscribed && ada.topics["news"] && !ada.topics["offers"]);
    let sent = sent(&server);
    assert_eq!(sent[1..3], ["POST contacts", "POST unsubscribe"]);
    // The topics of the contact, which no other response has to show.
    assert!(sent[3].starts_with("GET "), "{sent:?}");
    let answers = [
        "POST subscribe news",
        "POST unsubscribe offers",
        "POST subscribe",
    ];
    assert_eq!(sent[4..], answers);
}

#[tokio::test]
async fn after_a_spam_report_nothing_is_changed_whatever_the_flag_of_the_contact_says() {
    let seed = SeedContact::new(ADA).unsubscribed(Reason::Complaint);
    let (server, contacts) = start(Some(seed)).await;
    let shown = json!({
        "id": "c_1", "email": ADA, "properties": {}, "unsubscribed": false, "created_at": 1_700_000_000,
        "topics": {"news": false, "offers": false}, "unsubscribe_reason": "complaint",
    });
    server.fault(Fault::wrong_body(shown.to_string()).method("GET"));

    let error = contacts.confirm_opt_in(ADA, ["news"]).await.unwrap_err();

    assert!(error.is_complaint_locked(), "{error}");
    assert_eq!(error.outcome(), Outcome::Refused);
    let sent = sent(&server);
    assert!(
        !sent.iter().any(|sent| sent.contains("unsubscribe")),
        "{sent:?}"
    );
}

#[tokio::test]
async fn after_any_failure_a_new_contact_gets_nothing_until_the_next_click() {
    // The request of the call after which everything fails, and whether the opt-out of everything was recorded.
    for succeed in 0..7 {
        let (server, contacts) = start(None).await;
        let fault = Fault::status(500).times(1);
        server.fault(fault.after(succeed));

        let error = contacts.confirm_opt_in(ADA, ["news"]).await.unwrap_err();

        assert!(error.to_string().starts_with("confirm_opt_in: "));
        let outcome = match succeed {
            0 => Outcome::Unchanged,
            _ => Outcome::Unknown,
        };
        assert_eq!(error.outcome(), outcome, "after {succeed}");
        if succeed > 2 {
            assert!(server.contact(ADA).unwrap().unsubscribed, "after {succeed}");
        }
        contacts.confirm_opt_in(ADA, ["news"]).await.unwrap();
        let ada = server.contact(ADA).unwrap();
        assert!(!ada.unsubscribed && ada.topics["news"], "after {succeed}");
        // Only if the opt-out of everything failed, nobody knows that the contact was new.
        assert_eq!(ada.topics["offers"], succeed == 2, "after {succeed}");
    }
}

#[tokio::test]
async fn an_applied_request_without_a_contact_in_its_response_does_not_end_the_call_as_applied() {
    let no_content = |path| Fault::status(204).applied().method("POST").path(path);
    for (fault, retrieved) in [
        (no_content("*/unsubscribe").times(1), 1),
        (no_content("*/unsubscribe").after(1), 2),
        (no_content("*/subscribe").times(1), 2),
        (no_content("*/subscribe").after(1), 2),
    ] {
        let (server, contacts) = start(None).await;
        server.fault(fault);
        let fault = Fault::status(503).method("GET").path("/contacts/*");
        server.fault(fault.after(retrieved));

        let error = contacts.confirm_opt_in(ADA, ["news"]).await.unwrap_err();

        let is_done = !server.contact(ADA).unwrap().unsubscribed;
        assert_eq!(error.outcome() == Outcome::Applied, is_done, "{error:?}");
        assert!(error.outcome() >= Outcome::Unknown);
        server.clear_faults();
        let ada = contacts.confirm_opt_in(ADA, ["news"]).await.unwrap();
        assert!(!ada.unsubscribed && ada.topics["news"] && !ada.topics["offers"]);
    }
}

#[tokio::test]
async fn after_a_create_whose_response_cannot_be_read_the_contact_gets_only_what_was_chosen() {
    let create = |fault: Fault| fault.method("POST").path("/contacts");
    for fault in [
        create(Fault::wrong_body("{}")),
        create(Fault::status(204).applied()),
    ] {
        let (server, contacts) = start(None).await;
        server.fault(fault);

        let ada = contacts.confirm_opt_in(ADA, ["news"]).await.unwrap();

        assert!(!ada.unsubscribed && ada.topics["news"] && !ada.topics["offers"]);
    }
}

#[tokio::test]
async fn an_address_that_the_service_stores_in_another_spelling_is_subscribed_twice_in_a_row() {
    let dialect = Dialect {
        path_address: PathAddress::Exact,
        ..Dialect::default()
    };
    let server = MockServer::builder().dialect(dialect);
    let server = server.topic("news", false).topic("offers", true);
    let server = server.start().await;
    let contacts = server.client().contacts();

    for _ in 0..2 {
        let call = contacts.confirm_opt_in("JÜRGEN@x.io", ["news"]);
        let contact = call.await.unwrap();

        assert_eq!(contact.email, "jürgen@x.io");
        let stored = server.contact("jürgen@x.io").unwrap();
        assert!(!stored.unsubscribed && stored.topics["news"] && !stored.topics["offers"]);
    }
}

#[tokio::test]
async fn a_lost_response_to_the_create_does_not_make_the_contact_an_older_one() {
    let (server, _) = start(None).await;
    let contacts = mock_builder(&server).build().unwrap().contacts();
    server.fault(Fault::close_after().times(1).path("/contacts"));

    contacts.confirm_opt_in(ADA, ["news"]).await.unwrap();

    assert!(!server.contact(ADA).unwrap().topics["offers"]);
}

#[tokio::test]
async fn a_404_after_the_contact_was_found_or_created_never_says_that_there_is_none() {
    let not_found = r#"{"code": "not_found", "message": "no such route"}"#;
    for body in ["{}", not_found] {
        for path in ["*/subscribe", "*/unsubscribe"] {
            let (server, contacts) = start(None).await;
            server.fault(Fault::status(404).body(body).path(path));

            let error = contacts.confirm_opt_in(ADA, ["news"]).await.unwrap_err();

            // It may be the topic of an opt-in that does not exist.
            let expected = if path == "*/subscribe" { 500 } else { 503 };
            assert_eq!(error.visitor_status(), expected, "{path} {body}: {error}");
        }
    }
}

#[tokio::test]
async fn a_404_of_the_contact_that_was_just_created_does_not_say_that_there_is_none() {
    let dialect = Dialect {
        consent_form: ConsentForm::Create,
        ..Dialect::default()
    };
    let server = MockServer::builder().dialect(dialect).topic("news", false);
    let server = server.start().await;
    let contacts = server.client().contacts();
    let not_found =
        Fault::status(404).body(r#"{"code": "not_found", "message": "no such contact"}"#);
    server.fault(not_found.method("GET").path("/contacts/*").after(1));

    let error = contacts.confirm_opt_in(ADA, ["news"]).await.unwrap_err();

    assert!(error.missing().is_none() && error.is_retryable(), "{error}");
    assert_eq!(error.visitor_status(), 503);
}

#[tokio::test]
async fn the_contact_that_is_returned_shows_its_topics_also_after_short_responses() {
    for seed in [None, Some(SeedContact::new(ADA))] {
        let dialect = Dialect {
            consent_form: ConsentForm::Create,
            ..Dialect::default()
        };
        let builder = MockServer::builder().dialect(dialect);
        let builder = builder.topic("news", false).topic("offers", true);
        let server = match seed {
            Some(seed) => builder.seed_contact(seed).start().await,
            None => builder.start().await,
        };
        let contacts = server.client().contacts();

        let ada = contacts.confirm_opt_in(ADA, ["news"]).await.unwrap();

        assert!(ada.topics["news"] && ada.shows_topics());
    }
}

#[tokio::test]
async fn an_older_contact_keeps_its_other_topics_and_one_that_opted_out_loses_them() {
    let (server, contacts) = start(Some(SeedContact::new(ADA))).await;
    contacts.confirm_opt_in(ADA, ["news"]).await.unwrap();
    let ada = server.contact(ADA).unwrap();
    assert!(ada.topics["news"] && ada.topics["offers"]);

    let seed = SeedContact::new(ADA).unsubscribed(Reason::Preferences);
    let (server, contacts) = start(Some(seed)).await;
    contacts.confirm_opt_in(ADA, ["news"]).await.unwrap();
    let ada = server.contact(ADA).unwrap();
    assert!(!ada.unsubscribed && ada.topics["news"] && !ada.topics["offers"]);
}

#[tokio::test]
async fn a_default_of_false_becomes_an_answer_of_an_older_contact() {
    let (server, contacts) = start(Some(SeedContact::new(ADA))).await;

    contacts.confirm_opt_in(ADA, ["offers"]).await.unwrap();

    server.topic("news", true);
    assert!(!server.contact(ADA).unwrap().topics["news"]);
}

#[tokio::test]
async fn an_unknown_topic_and_a_complaint_are_said_and_subscribe_to_nothing() {
    let (server, contacts) = start(None).await;
    let error = contacts.confirm_opt_in(ADA, ["nwes"]).await.unwrap_err();
    assert!(error.is_not_found(), "{error}");
    assert!(server.contact(ADA).unwrap().unsubscribed);

    let seed = SeedContact::new(ADA).unsubscribed(Reason::Complaint);
    let (server, contacts) = start(Some(seed)).await;
    let error = contacts.confirm_opt_in(ADA, ["news"]).await.unwrap_err();
    assert!(error.is_complaint_locked(), "{error}");
    assert!(server.contact(ADA).unwrap().unsubscribed);
    assert_eq!(error.outcome(), Outcome::Refused);
    assert_eq!(sent(&server)[1..], ["POST subscribe news"]);
}

#[tokio::test]
async fn an_opt_in_that_is_refused_after_a_no_was_recorded_does_not_say_that_nothing_was_done() {
    let seed = SeedContact::new(ADA).answer("news", false);
    let (server, contacts) = start(Some(seed.answer("offers", false))).await;
    server.fault(Fault::status(422).body("{}").path("*/subscribe"));

    let error = contacts.confirm_opt_in(ADA, ["offers"]).await.unwrap_err();

    assert_eq!(error.status().unwrap(), 422);
    assert_eq!(error.outcome(), Outcome::Unknown);
    let sent = sent(&server);
    assert!(
        sent.contains(&"POST unsubscribe news".to_owned()),
        "{sent:?}"
    );
}

#[tokio::test]
async fn after_an_opt_in_that_is_limited_the_person_is_told_that_another_attempt_may_succeed() {
    let (server, contacts) = start(None).await;
    server.fault(Fault::status(429).path("*/subscribe"));

    let error = contacts.confirm_opt_in(ADA, ["news"]).await.unwrap_err();

    assert_eq!(error.status().unwrap(), 429);
    let text = error.explanation();
    assert!(
        text.contains(
            "; the opt-in may have been recorded or not: look at the contact; ask the person again"
        ),
        "{text}"
    );
}

#[tokio::test]
async fn after_a_refused_opt_in_nobody_is_told_to_ask_the_person_again() {
    let (server, contacts) = start(None).await;
    // The contact is created before its topic is refused.
    let unknown = contacts.confirm_opt_in(ADA, ["nwes"]).await.unwrap_err();
    server.report_spam(ADA);
    let locked = contacts.confirm_opt_in(ADA, ["news"]).await.unwrap_err();

    assert_eq!(
        [unknown.explanation(), locked.explanation()],
        [
            "there is no topic with this name: check the name of the topic (404 not_found); \
             a part of the change may have been made: look at the contact",
            "the contact reported mail as spam, so the service sends it no mail and accepts no opt-in \
             (422 failed_precondition)",
        ]
    );
}

/// A contact as a response has it, with these topics.
fn with_topics(unsubscribed: bool, topics: &serde_json::Value) -> String {
    let contact = json!({"id": "con_1", "email": ADA, "unsubscribed": unsubscribed,
        "unsubscribe_reason": "manual", "created_at": 1_700_000_000, "topics": topics});
    contact.to_string()
}

#[tokio::test]
async fn a_new_contact_keeps_no_other_topic_if_the_response_to_the_opt_out_does_not_show_all() {
    for topics in [json!({}), json!([]), json!({"news": false})] {
        let (server, contacts) = start(None).await;
        let short = Fault::wrong_body(with_topics(true, &topics));
        server.fault(short.path("*/unsubscribe").times(1));

        let ada = contacts.confirm_opt_in(ADA, ["news"]).await.unwrap();

        assert!(!ada.unsubscribed && ada.topics["news"], "{topics}");
        assert!(!server.contact(ADA).unwrap().topics["offers"], "{topics}");
    }
}

#[tokio::test]
async fn a_new_contact_keeps_no_other_topic_if_an_older_state_is_retrieved_after_its_opt_out() {
    let (server, contacts) = start(None).await;
    let older = with_topics(false, &json!({"news": false, "offers": true}));
    let older = Fault::wrong_body(older).method("GET").path("/contacts/*");
    server.fault(older.after(1).times(1));

    contacts.confirm_opt_in(ADA, ["news"]).await.unwrap();

    let ada = server.contact(ADA).unwrap();
    assert!(!ada.unsubscribed && ada.topics["news"] && !ada.topics["offers"]);
}

#[tokio::test]
async fn an_opt_out_of_everything_does_not_end_if_the_service_does_not_show_the_topics() {
    let seed = SeedContact::new(ADA).unsubscribed(Reason::Manual);
    let (server, contacts) = start(Some(seed)).await;
    let without = Fault::wrong_body(with_topics(true, &json!(null)));
    server.fault(without.method("GET"));

    let error = contacts.confirm_opt_in(ADA, ["news"]).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Decode);
    assert_eq!(error.attempts(), 1, "the contact was retrieved");
    assert!(error.is_malformed_contact(), "{error}");
    assert_eq!(sent(&server).len(), 1);
    assert!(server.contact(ADA).unwrap().unsubscribed);
}

#[tokio::test]
async fn a_topic_that_was_not_chosen_is_opted_out_although_its_answer_is_null() {
    let paused = SeedContact::new(ADA).unsubscribed(Reason::Manual);
    // A new contact is looked for before it is created.
    for (seed, earlier) in [(None, 1), (Some(paused), 0)] {
        let (server, contacts) = start(seed).await;
        let null = with_topics(true, &json!({"news": false, "offers": null}));
        let null = Fault::wrong_body(null).method("GET").path("/contacts/*");
        server.fault(null.after(earlier).times(1));

        contacts.confirm_opt_in(ADA, ["news"]).await.unwrap();

        let ada = server.contact(ADA).unwrap();
        assert!(!ada.unsubscribed && ada.topics["news"] && !ada.topics["offers"]);
    }
}

#[tokio::test]
async fn a_contact_whose_create_lost_its_response_gets_nothing_until_the_next_click() {
    let (server, contacts) = start(None).await;
    let lost = Fault::close_after().path("/contacts").method("POST");
    server.fault(lost.times(1));

    let error = contacts.confirm_opt_in(ADA, ["news"]).await.unwrap_err();

    assert_eq!(error.outcome(), Outcome::Unknown);
    assert!(server.contact(ADA).unwrap().unsubscribed);
    contacts.confirm_opt_in(ADA, ["news"]).await.unwrap();
    let ada = server.contact(ADA).unwrap();
    assert!(!ada.unsubscribed && ada.topics["news"] && !ada.topics["offers"]);
}

#[tokio::test]
async fn an_empty_topic_is_refused_before_any_request() {
    let (server, contacts) = start(None).await;

    let error = contacts
        .confirm_opt_in(ADA, ["news", ""])
        .await
        .unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Input);
    assert!(server.requests().is_empty());
}
