//! Sections 3.1 and 3.2: the consent states, and the table of transitions row by row.

use serde_json::{Value, json};

use super::Api;

const ADA: &str = "ada@example.com";

/// Brings [`ADA`] into a state.
type SetUp = fn(&Api);

/// Each state of section 3.1 that the global flag and the reason can have, and how to reach it.
const STATES: [(&str, SetUp); 4] = [
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

fn states_but_complaint() -> impl Iterator<Item = (&'static str, SetUp)> {
    STATES
        .into_iter()
        .filter(|(state, _)| *state != "complaint")
}

/// A mock in which [`ADA`] is in the state that `set_up` reaches.
fn api_in(set_up: SetUp) -> Api {
    let api = Api::with(|builder| builder.topic("news", true).topic("offers", false));
    api.create(ADA);
    set_up(&api);
    api
}

/// The consent members of a contact.
fn consent(contact: &Value) -> Value {
    json!([
        contact["unsubscribed"],
        contact["unsubscribe_reason"],
        contact["topics"]
    ])
}

#[test]
fn section_3_1_the_reason_is_empty_manual_preferences_or_complaint() {
    for ((_, set_up), reason) in STATES
        .into_iter()
        .zip(["", "manual", "preferences", "complaint"])
    {
        let api = api_in(set_up);

        let ada = api.retrieve(ADA);

        assert_eq!(ada["unsubscribe_reason"], reason);
        assert_eq!(ada["unsubscribed"], !reason.is_empty());
    }
}

#[test]
fn section_3_2_row_1_unsubscribe_with_no_body_or_manual_makes_the_reason_manual() {
    for (state, set_up) in states_but_complaint() {
        for body in ["", "{}", r#"{"reason": "manual"}"#] {
            let api = api_in(set_up);

            let response = api.unsubscribe(ADA, body).expect(200);

            assert_eq!(response["unsubscribed"], true, "{state}, {body}");
            assert_eq!(response["unsubscribe_reason"], "manual", "{state}, {body}");
            assert_eq!(
                api.retrieve(ADA),
                response,
                "the response is the stored contact"
            );
        }
    }
}

#[test]
fn section_3_2_row_2_unsubscribe_for_preferences_makes_the_reason_preferences() {
    for (state, set_up) in states_but_complaint() {
        let api = api_in(set_up);

        let response = api
            .unsubscribe(ADA, json!({"reason": "preferences"}))
            .expect(200);

        assert_eq!(response["unsubscribed"], true, "{state}");
        assert_eq!(response["unsubscribe_reason"], "preferences", "{state}");
        assert_eq!(
            api.retrieve(ADA),
            response,
            "the response is the stored contact"
        );
    }
}

#[test]
fn section_3_2_row_3_a_sender_cannot_declare_a_complaint() {
    for (state, set_up) in STATES {
        for body in [
            json!({"reason": "complaint"}),
            json!({"reason": "complaint", "topic": "news"}),
            json!({"reason": "complaint", "topic": "unknown"}),
        ] {
            let api = api_in(set_up);
            let before = api.retrieve(ADA);

            let message = api.unsubscribe(ADA, body).refused(422, "validation_error");

            assert!(message.contains("complaint"), "{message}");
            assert_eq!(api.retrieve(ADA), before, "{state}");
        }
    }
}

#[test]
fn section_3_2_row_4_unsubscribe_with_a_topic_changes_only_that_topics_answer() {
    for (state, set_up) in STATES {
        for body in [
            json!({"topic": "news"}),
            json!({"topic": "news", "reason": "manual"}),
            json!({"topic": "news", "reason": "preferences"}),
        ] {
            let api = api_in(set_up);
            let before = api.retrieve(ADA);

            let response = api.unsubscribe(ADA, body).expect(200);

            let mut expected = before;
            expected["topics"] = json!({"news": false, "offers": false});
            assert_eq!(response, expected, "{state}");
            assert_eq!(
                api.retrieve(ADA),
                response,
                "the response is the stored contact"
            );
        }
    }
}

#[test]
fn section_3_2_row_5_unsubscribe_with_an_unknown_topic_is_404_and_names_it() {
    for (state, set_up) in STATES {
        let api = api_in(set_up);
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
    for (state, set_up) in states_but_complaint() {
        for body in ["", "{}"] {
            let api = api_in(set_up);

            let response = api.subscribe(ADA, body).expect(200);

            assert_eq!(response["unsubscribed"], false, "{state}");
            assert_eq!(
                response["topics"],
                json!({"news": true, "offers": false}),
                "{state}"
            );
            assert_eq!(
                api.retrieve(ADA),
                response,
                "the response is the stored contact"
            );
        }
    }
}

#[test]
fn section_3_2_row_7_subscribe_with_a_topic_makes_that_topics_answer_true() {
    for (state, set_up) in states_but_complaint() {
        let api = api_in(set_up);
        let before = api.retrieve(ADA);

        let response = api.subscribe(ADA, json!({"topic": "offers"})).expect(200);

        let mut expected = before;
        expected["topics"] = json!({"news": true, "offers": true});
        assert_eq!(response, expected, "{state}: the global layer is unchanged");
        assert_eq!(
            api.retrieve(ADA),
            response,
            "the response is the stored contact"
        );
    }
}

#[test]
fn section_3_2_row_8_subscribe_after_a_complaint_is_422_with_or_without_a_topic() {
    for body in ["", "{}", r#"{"topic": "news"}"#, r#"{"topic": "offers"}"#] {
        let api = api_in(|api| api.server.report_spam(ADA));
        let before = api.retrieve(ADA);

        api.subscribe(ADA, body).refused(422, "failed_precondition");

        assert_eq!(api.retrieve(ADA), before);
    }
}

#[test]
fn section_3_2_row_9_a_spam_report_makes_the_reason_complaint_from_any_state() {
    for (state, set_up) in STATES {
        let api = api_in(set_up);
        let before = api.retrieve(ADA);

        api.server.report_spam(" Ada@Example.com ");

        assert_eq!(
            consent(&api.retrieve(ADA)),
            json!([true, "complaint", before["topics"]]),
            "{state}"
        );
    }
}

/// Makes every allowed call that might clear a complaint.
fn calls_that_might_clear_a_complaint(api: &Api) {
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
fn section_3_2_row_9_no_call_clears_a_complaint() {
    let api = api_in(|api| api.server.report_spam(ADA));

    calls_that_might_clear_a_complaint(&api);
    api.subscribe(ADA, ()).refused(422, "failed_precondition");
    api.subscribe(ADA, json!({"topic": "news"}))
        .refused(422, "failed_precondition");

    assert_eq!(
        consent(&api.retrieve(ADA)),
        json!([true, "complaint", {"news": false, "offers": false}])
    );
}

#[test]
fn section_3_2_row_9_a_create_or_a_merge_cannot_change_consent() {
    for (state, set_up) in STATES {
        let api = api_in(set_up);
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
fn section_3_1_the_two_layers_of_consent_are_independent() {
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
fn section_3_1_a_topic_answer_can_change_more_than_once() {
    let api = api_in(|_| {});

    for _ in 0..2 {
        let off = api.unsubscribe(ADA, json!({"topic": "news"})).expect(200);
        assert_eq!(off["topics"]["news"], false);
        let on = api.subscribe(ADA, json!({"topic": "news"})).expect(200);
        assert_eq!(on["topics"]["news"], true);
    }
}

#[test]
fn section_3_1_one_contacts_consent_does_not_affect_another_contact() {
    let api = api_in(|_| {});
    api.create("bob@example.com");
    let bob = api.retrieve("bob@example.com");

    api.unsubscribe(ADA, ()).expect(200);
    api.unsubscribe(ADA, json!({"topic": "news"})).expect(200);
    api.server.report_spam(ADA);

    assert_eq!(api.retrieve("bob@example.com"), bob);
}
