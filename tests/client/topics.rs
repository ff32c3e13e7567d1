//! A whole form of topic answers: what is sent, in which order, and what is known after a failure.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use audience::contacts::{Contact, Contacts, NewContact, RecordedTopics, TopicsError};
use audience::mock::dialect::ConsentForm;
use audience::mock::{Dialect, Fault, MockServer};
use audience::{ErrorCode, ErrorKind, Missing, Outcome, RetryPolicy};
use proptest::prelude::*;
use serde_json::json;

use support::{
    ADA, closed_url, contact, contacts, in_time, mock_builder, ok, record, respond_in_turn,
    respond_with, status, with,
};

/// A form that changes each of four topics: two opt-outs among two opt-ins.
const FORM: [(&str, bool); 4] = [("d", true), ("a", false), ("c", true), ("b", false)];
/// The order in which the answers of `FORM` are sent.
const IN_ORDER: [&str; 4] = [
    "unsubscribe a",
    "unsubscribe b",
    "subscribe d",
    "subscribe c",
];

/// Starts a mock with a contact who is shown `true` for the topics a and b, and `false` for c and d.
async fn start(dialect: Dialect) -> (MockServer, Contacts) {
    let server = MockServer::builder().dialect(dialect).start().await;
    for (topic, default) in [("a", true), ("b", true), ("c", false), ("d", false)] {
        server.topic(topic, default);
    }
    let contacts = mock_builder(&server).build().unwrap().contacts();
    contacts.create(NewContact::new(ADA)).await.unwrap();
    server.clear_requests();
    (server, contacts)
}

/// The requests that the mock received: the last segment of the path, with the topic if there is one.
fn sent(server: &MockServer) -> Vec<String> {
    let requests = server.requests();
    let sent = requests.iter().map(|request| {
        let json = request.json();
        let topic = json.as_ref().and_then(|json| json["topic"].as_str());
        match (request.method.as_str(), topic) {
            ("GET", None) => "retrieve".to_owned(),
            (_, topic) => {
                let verb = request.path.rsplit('/').next().unwrap();
                format!("{verb} {}", topic.unwrap_or("everything"))
            }
        }
    });
    sent.collect()
}

fn map<const N: usize>(answers: [(&str, bool); N]) -> BTreeMap<String, bool> {
    answers
        .map(|(topic, answer)| (topic.to_owned(), answer))
        .into()
}

fn stored(server: &MockServer) -> BTreeMap<String, bool> {
    server.contact(ADA).unwrap().answers
}

/// Every answer of a form is in exactly one of the four places.
fn assert_complete<const N: usize>(error: &TopicsError, form: [(&str, bool); N]) {
    let failed = error
        .failed()
        .map(|(topic, answer)| (topic.to_owned(), answer));
    let parts = [error.recorded(), error.not_sent(), error.unchanged()];
    let all: Vec<_> = parts
        .into_iter()
        .flatten()
        .map(|(t, a)| (t.clone(), *a))
        .chain(failed)
        .collect();
    assert_eq!(all.len(), N, "{error:?}");
    assert_eq!(
        all.into_iter().collect::<BTreeMap<_, _>>(),
        map(form),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_form_is_recorded_opt_outs_first_in_every_dialect() {
    for dialect in std::iter::once(Dialect::default()).chain(Dialect::all()) {
        let (server, contacts) = start(dialect).await;

        let recorded = contacts
            .set_topics(" Ada@example.com", FORM)
            .only_changed()
            .await
            .unwrap();

        let has_contact = dialect.consent_form != ConsentForm::NoContent;
        let mut expected = vec!["retrieve"];
        for request in IN_ORDER {
            expected.push(request);
            if !has_contact {
                expected.push("retrieve");
            }
        }
        if has_contact && dialect.consent_form != ConsentForm::Full {
            expected.push("retrieve");
        }
        assert_eq!(sent(&server), expected, "{dialect}");
        assert_eq!(stored(&server), map(FORM), "{dialect}");
        assert_eq!(
            recorded.contact,
            contacts.retrieve(ADA).await.unwrap(),
            "{dialect}"
        );
        assert_eq!(
            (&recorded.changed, recorded.unchanged.len()),
            (&map(FORM), 0),
            "{dialect}"
        );
    }
}

#[tokio::test]
async fn a_form_sent_again_only_retrieves_the_contact() {
    let (server, contacts) = start(Dialect::default()).await;
    let first = contacts.set_topics(ADA, FORM).only_changed().await.unwrap();
    server.clear_requests();

    let again = contacts.set_topics(ADA, FORM).only_changed().await.unwrap();

    assert_eq!(sent(&server), ["retrieve"]);
    assert_eq!((again.changed.len(), &again.unchanged), (0, &map(FORM)));
    assert_eq!(again.contact, first.contact);
}

#[tokio::test]
async fn an_empty_form_only_retrieves_the_contact() {
    let (server, contacts) = start(Dialect::default()).await;

    let recorded = contacts
        .set_topics(ADA, BTreeMap::<String, bool>::new())
        .only_changed()
        .await
        .unwrap();

    assert_eq!(sent(&server), ["retrieve"]);
    assert_eq!(
        recorded,
        RecordedTopics::new(contacts.retrieve(ADA).await.unwrap())
    );
}

#[tokio::test]
async fn a_no_that_equals_the_default_is_recorded_unless_only_changes_are() {
    let form = [("c", false), ("a", true)];
    let (server, contacts) = start(Dialect::default()).await;

    contacts.set_topics(ADA, form).only_changed().await.unwrap();
    assert!(stored(&server).is_empty());
    server.clear_requests();
    let recorded = contacts.set_topics(ADA, form).await.unwrap();

    assert_eq!(sent(&server), ["retrieve", "unsubscribe c", "subscribe a"]);
    assert_eq!(stored(&server), map(form));
    assert_eq!((recorded.changed.len(), recorded.unchanged), (0, map(form)));
    server.topic("c", true);
    server.topic("a", false);
    let shown = server.contact(ADA).unwrap().topics;
    assert_eq!((shown["c"], shown["a"]), (false, true));
}

#[tokio::test]
async fn the_global_opt_out_is_not_touched() {
    let (server, contacts) = start(Dialect::default()).await;
    contacts.unsubscribe(ADA).await.unwrap();

    let recorded = contacts.set_topics(ADA, FORM).only_changed().await.unwrap();

    assert!(recorded.contact.unsubscribed);
    let ada = server.contact(ADA).unwrap();
    assert!(ada.unsubscribed && ada.unsubscribe_reason == "manual");
}

#[tokio::test]
async fn topics_that_are_not_in_the_form_stay_unchanged() {
    let (server, contacts) = start(Dialect::default()).await;
    contacts.set_topic(ADA, "d", true).await.unwrap();

    contacts
        .set_topics(ADA, [("a", false)])
        .only_changed()
        .await
        .unwrap();

    assert_eq!(stored(&server), map([("a", false), ("d", true)]));
}

#[tokio::test]
async fn after_a_spam_report_opt_outs_are_recorded_and_opt_ins_refused() {
    let (server, contacts) = start(Dialect::default()).await;
    server.report_spam(ADA);

    let error = contacts
        .set_topics(ADA, FORM)
        .only_changed()
        .await
        .unwrap_err();

    assert!(error.error().is_complaint_locked());
    assert_eq!(error.recorded(), &map([("a", false), ("b", false)]));
    assert_eq!(error.failed(), Some(("d", true)));
    assert_eq!(error.not_sent(), &map([("c", true)]));
    assert_complete(&error, FORM);
    assert_eq!(stored(&server), map([("a", false), ("b", false)]));
    assert_eq!(
        (error.form_outcome(), error.error().outcome()),
        (Outcome::Unknown, Outcome::Refused)
    );

    let only_opt_ins = contacts
        .set_topics(ADA, [("c", true)])
        .only_changed()
        .await
        .unwrap_err();
    assert_eq!(only_opt_ins.form_outcome(), Outcome::Refused);
    let only_opt_outs = contacts
        .set_topics(ADA, [("c", false), ("a", false)])
        .only_changed()
        .await;
    assert!(only_opt_outs.is_ok(), "nothing is left to change");
}

#[tokio::test]
async fn a_topic_that_does_not_exist_is_named_before_anything_is_sent() {
    let (server, contacts) = start(Dialect::default()).await;
    let form = [("a", false), ("typo", false), ("c", true)];

    let error = contacts
        .set_topics(ADA, form)
        .only_changed()
        .await
        .unwrap_err();

    assert_eq!(sent(&server), ["retrieve"]);
    assert_eq!(
        (error.error().outcome(), error.form_outcome()),
        (Outcome::NotSent, Outcome::NotSent)
    );
    let set_alone = contacts.unsubscribe(ADA).topic("typo").await.unwrap_err();
    for same in [error.error(), &set_alone] {
        assert!(same.is_not_found() && !same.is_retryable(), "{same}");
        assert_eq!(same.missing(), Some(Missing::Topic), "{same}");
        assert_eq!(
            (same.kind(), same.code()),
            (ErrorKind::Api, Some(&ErrorCode::NotFound))
        );
    }
    assert_eq!(error.failed(), Some(("typo", false)));
    assert_complete(&error, form);
    assert_eq!(
        error.to_string(),
        "could not record the answer for topic \"typo\" (0 recorded, 2 not sent): set_topics: the contact shows no topic of \
         this name, so no answer was sent; check the spelling"
    );
    assert!(error.source().is_none());
}

#[tokio::test]
async fn two_answers_for_a_topic_are_refused_before_anything_is_sent() {
    let (server, contacts) = start(Dialect::default()).await;

    let error = contacts
        .set_topics(ADA, [("a", false), ("b", false), ("a", true)])
        .only_changed()
        .await
        .unwrap_err();

    assert!(server.requests().is_empty());
    assert_eq!(
        (error.error().kind(), error.form_outcome()),
        (ErrorKind::Input, Outcome::NotSent)
    );
    assert_eq!(error.failed(), Some(("a", true)));
    assert_eq!(error.not_sent(), &map([("b", false)]));
    let twice_the_same = [("a", false), ("a", false)];
    contacts
        .set_topics(ADA, twice_the_same)
        .only_changed()
        .await
        .unwrap();
    assert_eq!(sent(&server), ["retrieve", "unsubscribe a"]);
}

#[tokio::test]
async fn a_topic_without_a_name_is_refused_before_anything_is_sent() {
    let (server, contacts) = start(Dialect::default()).await;

    let error = contacts.set_topics(ADA, [("a", false), ("", true)]);
    let error = error.await.unwrap_err();
    let alone = contacts.unsubscribe(ADA).topic("").await.unwrap_err();

    assert!(server.requests().is_empty());
    assert_eq!(error.error().kind(), ErrorKind::Input);
    assert_eq!(error.failed(), Some(("", true)));
    assert_eq!(error.not_sent(), &map([("a", false)]));
    assert_eq!(alone.kind(), ErrorKind::Input);
}

#[tokio::test]
async fn a_404_of_a_gateway_never_says_that_a_form_has_no_contact() {
    for body in [
        r#"{"message": "no route"}"#,
        r#"{"code": "not_found"}"#,
        "<html>",
    ] {
        let server = MockServer::builder().topic("news", true);
        let server = server.seed_contact(ADA).start().await;
        server.fault(Fault::status(404).body(body).path("/contacts/*").times(1));
        let contacts = server.client().contacts();

        let error = contacts
            .set_topics(ADA, [("news", false)])
            .await
            .unwrap_err();

        assert!(!error.error().is_not_found(), "{body}: {error}");
        assert_eq!(error.form_outcome(), Outcome::NotSent);
        contacts.set_topics(ADA, [("news", false)]).await.unwrap();
    }
}

#[tokio::test]
async fn an_unknown_contact_is_not_found_and_nothing_is_recorded() {
    let (server, contacts) = start(Dialect::default()).await;

    let unknown = contacts
        .set_topics("bob@example.com", FORM)
        .only_changed()
        .await
        .unwrap_err();
    let invalid = contacts
        .set_topics("..", FORM)
        .only_changed()
        .await
        .unwrap_err();

    assert!(unknown.error().is_not_found());
    assert_eq!(invalid.error().kind(), ErrorKind::Input);
    for error in [unknown, invalid] {
        assert_eq!(
            (error.failed(), error.form_outcome()),
            (None, Outcome::NotSent)
        );
        assert_eq!(error.not_sent(), &map(FORM));
        let text = "could not retrieve the contact (0 recorded, 4 not sent): ";
        assert!(error.to_string().starts_with(text), "{error}");
    }
    // The second one is the list.
    assert_eq!(sent(&server), ["retrieve", "retrieve"]);
}

#[tokio::test]
async fn the_error_says_what_was_recorded_before_a_fault_and_the_same_call_records_the_rest() {
    let two_of_four = "; recorded: a (no), b (no); not sent: c (yes)";
    for (fault, verb, failed, recorded, not_sent, end) in [
        (Fault::close_before(), "subscribe", "d", 2, 1, two_of_four),
        (Fault::close_after(), "subscribe", "d", 2, 1, two_of_four),
        (Fault::status(503), "subscribe", "d", 2, 1, two_of_four),
        (
            Fault::status(500).times(9),
            "unsubscribe",
            "a",
            0,
            3,
            "; ask the person again before you repeat an opt-in; not sent: b (no), c (yes), d (yes)",
        ),
    ] {
        let (server, contacts) = start(Dialect::default()).await;
        server.fault(fault.clone().path(format!("/contacts/*/{verb}")));

        let error = contacts
            .set_topics(ADA, FORM)
            .only_changed()
            .await
            .unwrap_err();

        assert_eq!(
            error.failed().map(|(topic, _)| topic),
            Some(failed),
            "{fault:?}"
        );
        let text = error.explanation();
        assert!(text.starts_with(&format!("{failed}: ")), "{text}");
        assert!(text.ends_with(end), "{text}");
        assert_eq!(error.recorded().len(), recorded, "{fault:?}");
        assert_eq!(error.not_sent().len(), not_sent, "{fault:?}");
        assert_eq!(
            (error.form_outcome(), error.error().is_retryable()),
            (Outcome::Unknown, true)
        );
        assert_complete(&error, FORM);
        for (topic, answer) in error.recorded() {
            assert_eq!(stored(&server).get(topic), Some(answer), "{fault:?}");
        }
        server.clear_faults();
        contacts.set_topics(ADA, FORM).only_changed().await.unwrap();
        assert_eq!(stored(&server), map(FORM), "{fault:?}");
    }
}

#[tokio::test]
async fn an_opt_out_is_retried_and_an_opt_in_only_if_the_caller_says_so() {
    let (server, contacts) = start(Dialect::default()).await;
    let fault = |verb| {
        Fault::close_after()
            .times(1)
            .path(format!("/contacts/*/{verb}"))
    };

    server.fault(fault("unsubscribe"));
    contacts
        .set_topics(ADA, [("a", false)])
        .only_changed()
        .await
        .unwrap();
    server.fault(fault("subscribe"));
    let refused = contacts
        .set_topics(ADA, [("c", true)])
        .only_changed()
        .await
        .unwrap_err();
    server.fault(fault("subscribe"));
    contacts
        .set_topics(ADA, [("d", true)])
        .only_changed()
        .idempotent()
        .await
        .unwrap();
    server.fault(Fault::status(503).path("/contacts/*"));
    let once = contacts
        .set_topics(ADA, [("b", false)])
        .only_changed()
        .retry(RetryPolicy::none())
        .await;

    assert_eq!(
        (refused.error().attempts(), refused.form_outcome()),
        (1, Outcome::Unknown)
    );
    assert_eq!(
        once.unwrap_err().form_outcome(),
        Outcome::NotSent,
        "only the retrieve was sent"
    );
    assert_eq!(
        stored(&server),
        map([("a", false), ("c", true), ("d", true)])
    );
}

#[tokio::test]
async fn the_deadline_covers_the_whole_form() {
    let (server, contacts) = start(Dialect::default()).await;
    server.fault(Fault::delay(Duration::from_secs(60)).path("/contacts/*/subscribe"));

    let limited = contacts
        .set_topics(ADA, FORM)
        .only_changed()
        .deadline(Duration::from_secs(1));
    let error = in_time(limited).await.unwrap_err();

    assert!(error.error().is_timeout());
    let expired = contacts
        .set_topics(ADA, FORM)
        .only_changed()
        .deadline(Duration::ZERO)
        .await
        .unwrap_err();
    assert_eq!(
        (expired.error().kind(), expired.error().attempts()),
        (ErrorKind::Timeout, 0)
    );
    contacts
        .set_topics(ADA, [("b", false)])
        .only_changed()
        .deadline(Duration::MAX)
        .await
        .unwrap();
}

#[tokio::test]
async fn the_time_that_one_request_takes_is_not_there_for_the_next() {
    let slow = || ok(contact()).set_delay(Duration::from_millis(300));
    let server = respond_with(slow()).await;
    let form = [("news", false), ("offers", true)];
    let call = contacts(server.uri())
        .set_topics(ADA, form)
        .deadline(Duration::from_millis(500));

    // Each of the three requests alone would end before the deadline.
    let error = call.await.unwrap_err();

    assert!(error.error().is_timeout(), "{error:?}");
}

#[tokio::test]
async fn an_opt_out_is_recorded_even_if_the_contact_is_deleted_before_it_can_be_retrieved() {
    let retrieved = AtomicUsize::new(0);
    let server = respond_with(move |request: &wiremock::Request| {
        match (request.method.as_str(), request.url.path()) {
            ("GET", "/contacts") => ok(json!({"data": [], "next": null})),
            ("GET", _) if retrieved.fetch_add(1, Ordering::Relaxed) == 0 => {
                ok(with(contact(), "topics", json!({"news": true})))
            }
            ("GET", _) => status(404).set_body_json(json!({"code": "not_found"})),
            _ => status(204),
        }
    })
    .await;

    let call = contacts(server.uri()).set_topics(ADA, [("news", false)]);
    let error = call.await.unwrap_err();

    assert_eq!(error.recorded(), &map([("news", false)]));
    assert_eq!(error.failed(), None);
}

#[tokio::test]
async fn the_contact_is_the_services_last_word_even_if_someone_else_changed_it() {
    let shown = with(contact(), "topics", json!({"news": true, "offers": false}));
    let changed_by_others = with(contact(), "topics", json!({"news": false, "offers": true}));
    let server = respond_in_turn([ok(shown), ok(&changed_by_others)]).await;

    let recorded = contacts(server.uri())
        .set_topics(ADA, [("news", false), ("offers", false)])
        .only_changed()
        .await
        .unwrap();

    assert_eq!(
        recorded.contact,
        serde_json::from_value::<Contact>(changed_by_others).unwrap()
    );
    assert_eq!(recorded.changed, map([("news", false)]));
    assert_eq!(recorded.unchanged, map([("offers", false)]));
}

#[tokio::test]
async fn a_spam_report_between_retrieve_and_send_refuses_the_opt_in() {
    let locked = json!({"code": "failed_precondition", "message": "the contact reported spam"});
    let shown = with(contact(), "topics", json!({"news": true, "offers": false}));
    let opted_out = with(contact(), "topics", json!({"news": false, "offers": false}));
    let responses = [
        ok(&shown),
        ok(&opted_out),
        status(422).set_body_json(locked),
    ];
    let server = respond_in_turn(responses).await;

    let form = [("offers", true), ("news", false)];
    let error = contacts(server.uri())
        .set_topics(ADA, form)
        .only_changed()
        .await
        .unwrap_err();

    assert!(error.error().is_complaint_locked());
    assert_eq!(error.recorded(), &map([("news", false)]));
}

#[tokio::test]
async fn everything_is_sent_if_the_service_does_not_show_topics() {
    let server = respond_in_turn([ok(record()), ok(record()), ok(record())]).await;

    let recorded = contacts(server.uri())
        .set_topics(ADA, [("x", true), ("y", false)])
        .only_changed()
        .await
        .unwrap();

    assert_eq!(recorded.changed, map([("x", true), ("y", false)]));
    assert!(!recorded.contact.shows_topics());
}

#[tokio::test]
async fn a_contact_that_cannot_be_retrieved_afterwards_is_an_error_with_everything_recorded() {
    let shown = with(contact(), "topics", json!({"news": true}));
    let server = respond_in_turn([ok(shown), ok(record()), status(404)]).await;

    let error = contacts(server.uri())
        .set_topics(ADA, [("news", false)])
        .only_changed()
        .await
        .unwrap_err();

    assert_eq!(
        (error.failed(), error.form_outcome()),
        (None, Outcome::Applied)
    );
    assert_eq!(error.recorded(), &map([("news", false)]));
    let text = "could not retrieve the contact afterwards (1 recorded, 0 not sent): ";
    assert!(error.to_string().starts_with(text), "{error}");
}

#[tokio::test]
async fn a_form_with_a_recorded_yes_is_to_be_repeated_only_after_the_person_is_asked() {
    for (answer, failure, exit_status, advice) in [
        (
            true,
            429,
            1,
            "; ask the person again before you repeat an opt-in;",
        ),
        (
            true,
            503,
            1,
            "; ask the person again before you repeat an opt-in;",
        ),
        (false, 503, 75, "; try again later;"),
    ] {
        let shown = with(contact(), "topics", json!({"news": !answer}));
        let server = respond_in_turn([ok(shown), ok(record()), status(failure)]).await;
        let call = contacts(server.uri()).set_topics(ADA, [("news", answer)]);

        let error = call.retry(RetryPolicy::none()).await.unwrap_err();

        assert_eq!(error.recorded(), &map([("news", answer)]));
        assert_eq!(audience::exit_status(&error), exit_status, "{error}");
        let text = error.explanation();
        assert!(text.contains(advice), "{text}");
        assert!(!text.contains("nothing was changed"), "{text}");
        assert_eq!(text.contains("try again"), !answer, "{text}");
    }
}

#[tokio::test]
async fn after_a_recorded_answer_the_explanation_does_not_say_that_nothing_was_changed() {
    let (server, contacts) = start(Dialect::default()).await;
    server.fault(Fault::status(429).path("*/unsubscribe").after(1));

    let call = contacts.set_topics(ADA, [("a", false), ("b", false)]);
    let error = call.retry(RetryPolicy::none()).await.unwrap_err();

    assert_eq!(error.recorded(), &map([("a", false)]));
    let text = error.explanation();
    assert!(!text.contains("nothing was changed"), "{text}");
}

#[tokio::test]
async fn a_form_is_recorded_even_if_no_consent_response_has_the_contact() {
    let form = [("news", false), ("offers", true), ("tips", false)];
    for response in [
        status(204),
        ok(json!({"ok": true})),
        ok(json!({"data": null})),
    ] {
        let answers = AtomicUsize::new(0);
        let server =
            respond_with(
                move |request: &wiremock::Request| match request.method.as_str() {
                    "GET" => {
                        let recorded = answers.load(Ordering::Relaxed);
                        let topics =
                            json!({"news": recorded < 1, "offers": true, "tips": recorded < 2});
                        ok(with(contact(), "topics", topics))
                    }
                    _ => {
                        answers.fetch_add(1, Ordering::Relaxed);
                        response.clone()
                    }
                },
            )
            .await;

        let saved = contacts(server.uri()).set_topics(ADA, form).await.unwrap();

        assert_eq!(saved.changed, map([("news", false), ("tips", false)]));
        let requests = support::received(&server).await;
        let sent: Vec<_> = requests
            .iter()
            .map(|request| request.method.as_str())
            .collect();
        assert_eq!(
            sent,
            ["GET", "POST", "GET", "POST", "GET", "POST", "GET"],
            "one retrieve after each opt-out, and one after all answers"
        );
    }
}

#[tokio::test]
async fn a_form_stops_at_an_opt_out_that_the_contact_does_not_show() {
    let (server, contacts) = start(Dialect::default()).await;
    let fault = Fault::status(200).body(r#"{"ok": true}"#);
    server.fault(fault.path("*/unsubscribe"));

    let error = contacts.set_topics(ADA, FORM).await.unwrap_err();

    assert_eq!(error.failed(), Some(("a", false)));
    assert_eq!(
        (error.form_outcome(), error.error().is_retryable()),
        (Outcome::Unknown, true)
    );
    assert_complete(&error, FORM);
    assert_eq!(
        sent(&server),
        ["retrieve", "unsubscribe a", "retrieve"],
        "{error}"
    );
}

#[tokio::test]
async fn the_contact_has_all_topics_even_if_a_consent_response_leaves_some_out() {
    let topics = |topics| with(contact(), "topics", topics);
    let shown = topics(json!({"news": true, "offers": false}));
    let all = topics(json!({"news": false, "offers": false}));
    for short in [json!({"news": false}), json!({})] {
        let server = respond_in_turn([ok(&shown), ok(topics(short)), ok(&all)]).await;

        let recorded = contacts(server.uri())
            .set_topics(ADA, [("news", false)])
            .only_changed()
            .await
            .unwrap();

        assert_eq!(
            recorded.contact.topics,
            map([("news", false), ("offers", false)])
        );
    }
}

#[tokio::test]
async fn no_output_contains_an_address_even_in_place_of_a_topic() {
    let (_server, contacts) = start(Dialect::default()).await;
    let forms = [
        vec![(ADA, true), ("a", false)],
        vec![("a", false), (ADA, true), (ADA, false)],
        vec![("a", false), ("typo", true), (ADA, true)],
    ];
    for form in forms {
        let call = contacts.set_topics(ADA, form).only_changed();
        let builder = format!(
            "{call:?} {call:#?} {:?}",
            contacts.set_topic(ADA, "a", true)
        );

        let error = call.await.unwrap_err();

        let explanation = error.explanation();
        let printed = format!("{builder} {error} {error:?} {error:#?} {explanation}");
        assert!(!printed.contains("ada@"), "{printed}");
        assert!(explanation.contains("<hidden>"), "{explanation}");
    }
}

#[tokio::test]
async fn a_clone_is_a_new_call_and_a_call_can_be_spawned() {
    let (server, contacts) = start(Dialect::default()).await;
    let call = contacts
        .set_topics(ADA, FORM.map(|(topic, answer)| (topic.to_owned(), answer)))
        .only_changed();

    let first = tokio::spawn(call.clone().into_future())
        .await
        .unwrap()
        .unwrap();
    let second = call.await.unwrap();

    assert_eq!(first.changed, second.unchanged);
    assert_eq!(sent(&server).len(), 6);
}

fn any_answers() -> impl Strategy<Value = BTreeMap<String, bool>> {
    proptest::collection::btree_map("[a-f]", any::<bool>(), 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_form_is_recorded_and_no_opt_in_precedes_an_opt_out(
        before in any_answers(), form in any_answers(), defaults: [bool; 6], records_unchanged: bool, fails_at in 0..9_usize,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (server, contacts) = start(Dialect::default()).await;
            for (topic, default) in ["a", "b", "c", "d", "e", "f"].iter().zip(defaults) {
                server.topic(topic, default);
            }
            for (topic, answer) in &before {
                contacts.set_topic(ADA, topic, *answer).await.unwrap();
            }
            server.clear_requests();
            let mut call = contacts.set_topics(ADA, form.clone()).retry(RetryPolicy::none());
            if !records_unchanged {
                call = call.only_changed();
            }

            // Fail one in three, and call again.
            if fails_at < 3 {
                let verb = if fails_at == 0 { "subscribe" } else { "unsubscribe" };
                server.fault(Fault::close_after().path(format!("/contacts/*/{verb}")));
                let _ = call.clone().await;
                server.clear_faults();
            }
            let sent_before = server.requests().len();
            let recorded = call.await.unwrap();

            let topics = server.contact(ADA).unwrap().topics;
            for (topic, answer) in &form {
                assert_eq!(topics.get(topic), Some(answer));
            }
            assert_eq!(recorded.contact.topics, topics);
            if records_unchanged {
                let answers = server.contact(ADA).unwrap().answers;
                assert!(form.iter().all(|(topic, answer)| answers.get(topic) == Some(answer)));
            }
            for sent in [&sent(&server)[..sent_before], &sent(&server)[sent_before..]] {
                let opt_ins = sent.iter().skip_while(|sent| !sent.starts_with("subscribe"));
                assert!(opt_ins.clone().all(|sent| sent.starts_with("subscribe")), "{sent:?}");
            }
        });
    }
}

#[tokio::test]
async fn an_answer_fails_if_the_response_has_the_status_200_but_reports_an_error() {
    let responses = [
        ok(contact()),
        ok(with(contact(), "topics", json!({"news": false}))),
        ok(json!({"error": {"code": "not_found"}})),
    ];
    let server = respond_in_turn(responses).await;
    let form = [("news", false), ("offers", false)];

    let call = contacts(server.uri()).set_topics(ADA, form);
    let error = call.await.unwrap_err();

    assert_eq!(error.recorded(), &map([("news", false)]));
    assert_eq!(error.failed(), Some(("offers", false)));
    assert_eq!(error.error().outcome(), Outcome::Unknown);
    assert_eq!(support::received(&server).await.len(), 3);
}

#[tokio::test]
async fn a_failed_form_has_its_cause_and_the_answers_that_needed_no_request() {
    let (server, reachable) = start(Dialect::default()).await;
    server.fault(Fault::status(403).method("POST"));
    let form = [("a", true), ("b", false)];

    let unreached = contacts(closed_url()).set_topics(ADA, FORM).await;
    let refused = reachable.set_topics(ADA, form).only_changed().await;

    let (unreached, refused) = (unreached.unwrap_err(), refused.unwrap_err());
    assert_eq!(unreached.error().kind(), ErrorKind::Connect);
    assert!(unreached.source().is_some(), "{unreached}");
    assert_eq!(refused.unchanged(), &map([("a", true)]));
}

#[tokio::test]
async fn a_topic_whose_answer_is_null_is_not_taken_for_a_misspelled_one() {
    let (server, contacts) = start(Dialect::default()).await;
    let shown = serde_json::to_value(contacts.retrieve(ADA).await.unwrap()).unwrap();
    let shown = with(shown, "topics", json!({"a": null, "b": true}));
    let shown = Fault::wrong_body(shown.to_string()).method("GET").times(1);
    server.fault(shown);

    let form = [("a", false), ("b", true)];
    let saved = contacts.set_topics(ADA, form).await.unwrap();

    assert_eq!(saved.changed, map([("a", false)]));
    assert_eq!(saved.unchanged, map([("b", true)]));
    assert_eq!(saved.contact.topics.get("a"), Some(&false));
}
