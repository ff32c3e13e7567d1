//! Subscribe and unsubscribe: the transitions of section 3.2.

use super::audience::{Audience, reply};
use super::contact::Reason;
use super::dialect::{ConsentForm, ReasonAfterSubscribe};
use super::message::Reply;
use super::reading::{self, OptOut};
use super::refusal::Refusal;

impl Audience {
    /// Refuses in the order: body, unknown address, unknown topic.
    pub(super) fn unsubscribe(&mut self, address: &str, body: &[u8]) -> Result<Reply, Refusal> {
        let opt_out = OptOut::read(body, self.dialect).map_err(Refusal::invalid)?;
        self.found(address)?;
        match opt_out.topic {
            Some(topic) => self.note_answer(address, topic, false)?,
            None => {
                let contact = self.found_mut(address)?;
                contact.unsubscribed = true;
                // A manual opt-out on top of a complaint would make way for a subscribe: two calls
                // must not launder a spam report.
                if contact.reason != Reason::Complaint {
                    contact.reason = opt_out.reason;
                }
            }
        }
        self.consent(address)
    }

    /// Refuses in the order: body, unknown address, complaint, unknown topic.
    pub(super) fn subscribe(&mut self, address: &str, body: &[u8]) -> Result<Reply, Refusal> {
        let topic = reading::opt_in(body, self.dialect).map_err(Refusal::invalid)?;
        let clears = self.dialect.reason_after_subscribe == ReasonAfterSubscribe::Cleared;
        let contact = self.found_mut(address)?;
        if contact.reason == Reason::Complaint {
            return Err(Refusal::complaint_locked(&contact.email));
        }
        match topic {
            Some(topic) => self.note_answer(address, topic, true)?,
            None => {
                contact.unsubscribed = false;
                if clears {
                    contact.reason = Reason::None;
                }
            }
        }
        self.consent(address)
    }

    fn note_answer(&mut self, address: &str, topic: String, answer: bool) -> Result<(), Refusal> {
        if !self.topics.contains_key(&topic) {
            let topic = topic.escape_debug();
            return Err(Refusal::not_found(format!("there is no topic `{topic}`")));
        }
        self.found_mut(address)?.answers.insert(topic, answer);
        Ok(())
    }

    fn consent(&self, address: &str) -> Result<Reply, Refusal> {
        match self.dialect.consent_form {
            ConsentForm::Full => self.retrieve(address),
            ConsentForm::Create => {
                let form = self.found(address)?.created(self.dialect.missing_name);
                Ok(reply(self.dialect.success_status.code(), &form))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::dialect::{Dialect, SuccessStatus};
    use super::super::testing::{Service, message, slug};
    use super::*;

    const UNSUBSCRIBE: &str = "/contacts/ada%40x.io/unsubscribe";
    const SUBSCRIBE: &str = "/contacts/ada%40x.io/subscribe";

    fn with_ada(dialect: Dialect) -> Service {
        let mut service = Service::speaking(dialect);
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
    fn each_transition_ends_in_the_state_of_section_3_2() {
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
    fn nothing_a_sender_sends_undoes_a_complaint() {
        let mut service = with_ada(Dialect::default());
        service.audience.report_spam("ada@x.io", service.now);

        for body in [
            json!({}),
            json!({"reason": "preferences"}),
            json!({"topic": "news"}),
        ] {
            assert_eq!(service.post(UNSUBSCRIBE, &body).0, 200);
            let answer = service.post(SUBSCRIBE, &json!({}));
            assert_eq!(slug(&answer), (422, "failed_precondition"), "{body}");
        }
        let topic = service.post(SUBSCRIBE, &json!({"topic": "offers"}));
        assert_eq!(slug(&topic), (422, "failed_precondition"));
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
    fn refusals_come_in_their_order_and_change_nothing() {
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
        for (answer, status, code) in &cases {
            assert_eq!(slug(answer), (*status, *code), "{answer:?}");
        }
        assert!(message(&cases[2].0).contains("bob@x.io"));
        for target in [SUBSCRIBE, UNSUBSCRIBE] {
            let answer = service.post(target, &unknown);
            assert_eq!(slug(&answer), (404, "not_found"));
            assert_eq!(message(&answer), "there is no topic `nonsense`");
        }
        service.audience.report_spam("ada@x.io", service.now);
        let locked = service.post(SUBSCRIBE, &unknown);
        assert_eq!(slug(&locked), (422, "failed_precondition"));
    }

    #[test]
    fn another_default_shows_where_the_contact_never_answered() {
        let mut service = with_ada(Dialect::default());
        service.post(UNSUBSCRIBE, &json!({"topic": "news"}));

        service.audience.put_topic("news", true);
        service.audience.put_topic("offers", true);

        let (_, ada) = service.get("/contacts/ada@x.io");
        assert_eq!(ada["topics"], json!({"news": false, "offers": true}));
    }

    #[test]
    fn a_dialect_decides_form_status_and_what_is_left_of_the_reason() {
        let mut service = with_ada(Dialect {
            consent_form: ConsentForm::Create,
            success_status: SuccessStatus::Accepted,
            reason_after_subscribe: ReasonAfterSubscribe::Kept,
            ..Dialect::default()
        });
        service.call(UNSUBSCRIBE);

        let (status, contact) = service.call(SUBSCRIBE);

        assert_eq!(status, 202);
        assert_eq!(contact.get("topics"), None);
        let (_, ada) = service.get("/contacts/ada@x.io");
        assert_eq!(
            (&ada["unsubscribed"], &ada["unsubscribe_reason"]),
            (&json!(false), &json!("manual"))
        );
    }
}
