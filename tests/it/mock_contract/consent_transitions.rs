//! Section 3.2: the table of transitions, row by row.

use serde_json::{Value, json};

use super::Api;

const ADA: &str = "ada@example.com";

/// What brings a contact into a state.
type Step = fn(&Api);

/// Each state of section 3.1 that a contact's global flag and reason can be in, and how it is brought about.
const STATES: [(&str, Step); 4] = [
    ("reachable", |_| {}),
    ("manual", |api| {
        api.unsubscribe(ADA, ()).expect(200);
    }),
    ("preferences", |api| {
        api.unsubscribe(ADA, json!({"reason": "preferences"}))
            .expect(200);
    }),
    ("complaint", |api| api.server.report_spam(ADA)),
];

fn api_in(bring_about: Step) -> Api {
    let api = Api::with(|builder| builder.topic("news", true).topic("offers", false));
    api.create(ADA);
    bring_about(&api);
    api
}

fn consent(contact: &Value) -> Value {
    json!([
        contact["unsubscribed"],
        contact["unsubscribe_reason"],
        contact["topics"]
    ])
}

#[test]
fn section_3_1_reason_is_empty_manual_preferences_or_complaint() {
    for ((_, bring_about), reason) in
        STATES
            .into_iter()
            .zip(["", "manual", "preferences", "complaint"])
    {
        let api = api_in(bring_about);

        let ada = api.retrieve(ADA);

        assert_eq!(ada["unsubscribe_reason"], reason);
        assert_eq!(ada["unsubscribed"], !reason.is_empty());
    }
}

#[test]
fn section_3_2_row_1_unsubscribe_with_no_body_or_manual_makes_the_reason_manual() {
    for (state, bring_about) in STATES
        .into_iter()
        .filter(|(state, _)| *state != "complaint")
    {
        for body in ["", "{}", r#"{"reason": "manual"}"#] {
            let api = api_in(bring_about);

            let answer = api.unsubscribe(ADA, body).expect(200);

            assert_eq!(answer["unsubscribed"], true, "{state}, {body}");
            assert_eq!(answer["unsubscribe_reason"], "manual", "{state}, {body}");
            assert_eq!(api.retrieve(ADA), answer, "it returns the contact");
        }
    }
}

#[test]
fn section_3_2_row_2_unsubscribe_for_preferences_makes_the_reason_preferences() {
    for (state, bring_about) in STATES
        .into_iter()
        .filter(|(state, _)| *state != "complaint")
    {
        let api = api_in(bring_about);

        let answer = api
            .unsubscribe(ADA, json!({"reason": "preferences"}))
            .expect(200);

        assert_eq!(answer["unsubscribed"], true, "{state}");
        assert_eq!(answer["unsubscribe_reason"], "preferences", "{state}");
        assert_eq!(api.retrieve(ADA), answer, "it returns the contact");
    }
}

#[test]
fn section_3_2_row_3_a_sender_cannot_declare_a_complaint() {
    for (state, bring_about) in STATES {
        for body in [
            json!({"reason": "complaint"}),
            json!({"reason": "complaint", "topic": "news"}),
            json!({"reason": "complaint", "topic": "unknown"}),
        ] {
            let api = api_in(bring_about);
            let before = api.retrieve(ADA);

            let message = api.unsubscribe(ADA, body).refused(422, "validation_error");

            assert!(message.contains("complaint"), "{message}");
            assert_eq!(api.retrieve(ADA), before, "{state}");
        }
    }
}

#[test]
fn section_3_2_row_4_unsubscribe_with_a_topic_changes_that_topics_answer_alone() {
    for (state, bring_about) in STATES {
        for body in [
            json!({"topic": "news"}),
            json!({"topic": "news", "reason": "manual"}),
            json!({"topic": "news", "reason": "preferences"}),
        ] {
            let api = api_in(bring_about);
            let before = api.retrieve(ADA);

            let answer = api.unsubscribe(ADA, body).expect(200);

            let mut expected = before;
            expected["topics"] = json!({"news": false, "offers": false});
            assert_eq!(answer, expected, "{state}");
            assert_eq!(api.retrieve(ADA), answer, "it returns the contact");
        }
    }
}

#[test]
fn section_3_2_row_5_unsubscribe_with_an_unknown_topic_is_404_and_names_it() {
    for (state, bring_about) in STATES {
        let api = api_in(bring_about);
        let before = api.retrieve(ADA);

        let message = api
            .unsubscribe(ADA, json!({"topic": "weather"}))
            .refused(404, "not_found");

        assert!(message.contains("weather"), "{message}");
        assert_eq!(api.retrieve(ADA), before, "{state}");
    }
}

#[test]
fn section_3_2_row_6_subscribe_with_no_body_clears_the_global_opt_out() {
    for (state, bring_about) in STATES
        .into_iter()
        .filter(|(state, _)| *state != "complaint")
    {
        for body in ["", "{}"] {
            let api = api_in(bring_about);

            let answer = api.subscribe(ADA, body).expect(200);

            assert_eq!(answer["unsubscribed"], false, "{state}");
            assert_eq!(
                answer["topics"],
                json!({"news": true, "offers": false}),
                "{state}"
            );
            assert_eq!(api.retrieve(ADA), answer, "it returns the contact");
        }
    }
}

#[test]
fn section_3_2_row_7_subscribe_with_a_topic_makes_that_topics_answer_true() {
    for (state, bring_about) in STATES
        .into_iter()
        .filter(|(state, _)| *state != "complaint")
    {
        let api = api_in(bring_about);
        let before = api.retrieve(ADA);

        let answer = api.subscribe(ADA, json!({"topic": "offers"})).expect(200);

        let mut expected = before;
        expected["topics"] = json!({"news": true, "offers": true});
        assert_eq!(
            answer, expected,
            "{state}: the global layer stays as it was"
        );
        assert_eq!(api.retrieve(ADA), answer, "it returns the contact");
    }
}

#[test]
fn section_3_2_row_8_subscribe_after_a_complaint_is_422_with_or_without_topic() {
    for body in ["", "{}", r#"{"topic": "news"}"#, r#"{"topic": "offers"}"#] {
        let api = api_in(|api| api.server.report_spam(ADA));
        let before = api.retrieve(ADA);

        api.subscribe(ADA, body).refused(422, "failed_precondition");

        assert_eq!(api.retrieve(ADA), before);
    }
}

#[test]
fn section_3_2_row_9_a_spam_report_makes_the_reason_complaint_from_any_state() {
    for (state, bring_about) in STATES {
        let api = api_in(bring_about);
        let before = api.retrieve(ADA);

        api.server.report_spam(" Ada@Example.com ");

        assert_eq!(
            consent(&api.retrieve(ADA)),
            json!([true, "complaint", before["topics"]]),
            "{state}"
        );
    }
}

/// Calls that might talk the service out of a complaint, each by itself allowed.
fn laundering_calls(api: &Api) {
    api.unsubscribe(ADA, ()).expect(200);
    api.unsubscribe(ADA, json!({"reason": "manual"}))
        .expect(200);
    api.unsubscribe(ADA, json!({"reason": "preferences"}))
        .expect(200);
    api.unsubscribe(ADA, json!({"topic": "news"})).expect(200);
    for on_conflict in ["upsert", "skip"] {
        api.post(
            "/contacts",
            json!({"email": ADA, "on_conflict": on_conflict}),
        )
        .expect(200);
        api.post(
            "/contacts/batch",
            json!([{"email": "ADA@example.com", "on_conflict": on_conflict}]),
        )
        .expect(200);
    }
    api.post("/contacts", json!({"email": ADA, "on_conflict": "error"}))
        .refused(409, "already_exists");
    api.patch(
        "/contacts/ada%40example.com",
        json!({"properties": {"unsubscribed": "false"}}),
    )
    .expect(200);
}

#[test]
fn section_3_2_row_9_the_state_is_terminal_through_the_interface() {
    let api = api_in(|api| api.server.report_spam(ADA));

    laundering_calls(&api);
    api.subscribe(ADA, ()).refused(422, "failed_precondition");
    api.subscribe(ADA, json!({"topic": "news"}))
        .refused(422, "failed_precondition");

    assert_eq!(
        consent(&api.retrieve(ADA)),
        json!([true, "complaint", {"news": false, "offers": false}])
    );
}

#[test]
fn section_3_2_row_9_consent_cannot_be_written_by_a_create_or_a_merge() {
    for (state, bring_about) in STATES {
        let api = api_in(bring_about);
        let before = consent(&api.retrieve(ADA));

        for member in [
            json!({"unsubscribed": false}),
            json!({"unsubscribe_reason": ""}),
            json!({"topics": {"news": true}}),
        ] {
            let mut body = json!({"email": ADA});
            body.as_object_mut()
                .unwrap()
                .extend(member.as_object().unwrap().clone());
            api.post("/contacts", body).refused(422, "validation_error");
            let mut body = json!({"properties": {}});
            body.as_object_mut()
                .unwrap()
                .extend(member.as_object().unwrap().clone());
            api.patch("/contacts/ada%40example.com", body)
                .refused(422, "validation_error");
        }

        assert_eq!(consent(&api.retrieve(ADA)), before, "{state}");
    }
}

#[test]
fn section_3_1_the_two_layers_do_not_touch_each_other() {
    let api = api_in(|_| {});

    api.subscribe(ADA, json!({"topic": "offers"})).expect(200);
    api.unsubscribe(ADA, json!({"topic": "news"})).expect(200);
    api.unsubscribe(ADA, ()).expect(200);
    assert_eq!(
        consent(&api.retrieve(ADA)),
        json!([true, "manual", {"news": false, "offers": true}])
    );

    api.subscribe(ADA, ()).expect(200);
    assert_eq!(
        consent(&api.retrieve(ADA)),
        json!([false, "", {"news": false, "offers": true}])
    );
}

#[test]
fn section_3_1_a_topic_can_be_answered_again() {
    let api = api_in(|_| {});

    for _ in 0..2 {
        let off = api.unsubscribe(ADA, json!({"topic": "news"})).expect(200);
        assert_eq!(off["topics"]["news"], false);
        let on = api.subscribe(ADA, json!({"topic": "news"})).expect(200);
        assert_eq!(on["topics"]["news"], true);
    }
}

#[test]
fn section_3_1_answers_of_one_contact_are_no_answers_of_another() {
    let api = api_in(|_| {});
    api.create("bob@example.com");
    let bob = api.retrieve("bob@example.com");

    api.unsubscribe(ADA, ()).expect(200);
    api.unsubscribe(ADA, json!({"topic": "news"})).expect(200);
    api.server.report_spam(ADA);

    assert_eq!(api.retrieve("bob@example.com"), bob);
}
