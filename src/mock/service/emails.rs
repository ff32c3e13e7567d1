//! `POST /emails`: transactional mail, and the events it gives rise to (sections 4.7 and 6.3).

use serde_json::{Value, json};

use super::address::{is_address, normalised};
use super::audience::{Audience, reply};
use super::json::{self, Members};
use super::message::{Outgoing, Reply};
use super::refusal::Refusal;

impl Audience {
    /// Consent governs broadcasts only (section 1): what keeps mail from going out is suppression.
    pub(super) fn send_email(&mut self, body: &[u8], now: i64) -> Result<Reply, Refusal> {
        let email = Email::read(body).map_err(Refusal::invalid)?;
        self.emails += 1;
        let id = format!("eml_{:08}", self.emails);
        for to in &email.to {
            if self.suppressed.contains(to) {
                self.announce("email.refused", email.event(&id, to, SUPPRESSED), now);
            } else {
                self.announce("email.sent", email.event(&id, to, ""), now);
                self.announce("email.delivered", email.event(&id, to, ""), now);
            }
        }
        Ok(reply(200, &json!({ "id": id })))
    }

    fn announce(&mut self, event_type: &str, data: Value, now: i64) {
        self.record_event(event_type, &data, now);
        self.outbox.push(Outgoing {
            event_type: event_type.to_owned(),
            data,
        });
    }
}

const SUPPRESSED: &str = "the address is on the suppression list after a spam report";

/// What is read of an email. Its other members are the service's own affair: the document shows none.
struct Email {
    from: String,
    /// Normalised, each once: an event stands for a recipient.
    to: Vec<String>,
    subject: String,
}

impl Email {
    fn read(body: &[u8]) -> Result<Self, String> {
        let body = json::value(body)?;
        let members = Members::of(&body, "the body", "")?;
        let from = bare(members.required_text("from")?);
        if !is_address(from) {
            let found = members.required("from")?;
            return Err(members.must_be("from", "an email address", found));
        }
        Ok(Self {
            from: from.to_owned(),
            to: recipients(&members)?,
            subject: members.text("subject")?.unwrap_or_default().to_owned(),
        })
    }

    /// The `data` of an event about one recipient: section 6.3, every member of it.
    fn event(&self, email_id: &str, to: &str, detail: &str) -> Value {
        json!({
            "email_id": email_id,
            "from": self.from,
            "to": to,
            "subject": self.subject,
            "bounce_type": "",
            "detail": detail,
        })
    }
}

fn recipients(members: &Members<'_>) -> Result<Vec<String>, String> {
    let found = members.required("to")?;
    let listed = match found {
        Value::Array(several) => several.as_slice(),
        one => std::slice::from_ref(one),
    };
    let mut recipients = Vec::with_capacity(listed.len());
    for one in listed {
        let address = one.as_str().map(|text| normalised(bare(text)));
        match address {
            Some(address) if is_address(&address) => recipients.push(address),
            _ => return Err(members.must_be("to", "an email address or an array of them", one)),
        }
    }
    if recipients.is_empty() {
        return Err(members.must_be("to", "at least one email address", found));
    }
    let mut seen = std::collections::HashSet::new();
    recipients.retain(|address| seen.insert(address.clone()));
    Ok(recipients)
}

/// The address in `Ada <ada@example.com>`; any other text as it is, trimmed.
fn bare(text: &str) -> &str {
    let text = text.trim();
    text.strip_suffix('>')
        .and_then(|text| text.rsplit_once('<'))
        .map_or(text, |(_, address)| address.trim())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Service, message, slug};
    use super::*;

    fn types_and_recipients(service: &mut Service) -> Vec<(String, String)> {
        let events = service.audience.take_events().into_iter();
        events
            .map(|event| {
                (
                    event.event_type,
                    event.data["to"].as_str().unwrap().to_owned(),
                )
            })
            .collect()
    }

    #[test]
    fn each_recipient_has_events_of_its_own_in_order() {
        let mut service = Service::new();
        let mail = json!({"from": "Me <me@x.io>", "to": ["Ada@x.io", "Bob <bob@x.io>", "ada@x.io"], "subject": "Hi", "html": "<p>"});

        let (status, answer) = service.post("/emails", &mail);

        assert_eq!((status, answer), (200, json!({"id": "eml_00000001"})));
        let expected = [
            ("email.sent", "ada@x.io"),
            ("email.delivered", "ada@x.io"),
            ("email.sent", "bob@x.io"),
            ("email.delivered", "bob@x.io"),
        ];
        let expected: Vec<(String, String)> = expected
            .map(|(event, to)| (event.to_owned(), to.to_owned()))
            .to_vec();
        assert_eq!(types_and_recipients(&mut service), expected);
        assert!(service.audience.take_events().is_empty());
    }

    #[test]
    fn an_event_has_every_member_of_section_6_3() {
        let mut service = Service::new();
        service.audience.report_spam("ada@x.io", service.now);

        service.post(
            "/emails",
            &json!({"from": "me@x.io", "to": "ada@x.io", "subject": "Hi"}),
        );

        let events = service.audience.take_events();
        assert_eq!(events.len(), 1);
        assert_eq!(events[0].event_type, "email.refused");
        assert_eq!(
            events[0].data,
            json!({"email_id": "eml_00000001", "from": "me@x.io", "to": "ada@x.io", "subject": "Hi",
                "bounce_type": "", "detail": "the address is on the suppression list after a spam report"})
        );
    }

    #[test]
    fn consent_does_not_touch_transactional_mail() {
        let mut service = Service::new();
        service.create("ada@x.io");
        service.call("/contacts/ada@x.io/unsubscribe");

        service.post("/emails", &json!({"from": "me@x.io", "to": "ada@x.io"}));

        let types: Vec<String> = types_and_recipients(&mut service)
            .into_iter()
            .map(|(event, _)| event)
            .collect();
        assert_eq!(types, ["email.sent", "email.delivered"]);
    }

    #[test]
    fn mail_delivered_to_a_contact_counts_as_engagement() {
        let mut service = Service::new();
        service.create("ada@x.io");
        service.create("bob@x.io");

        service.post("/emails", &json!({"from": "me@x.io", "to": "ada@x.io"}));

        let rule = r#"{"match_":"all","conditions":[{"field":"engagement","what":"delivered","op":"within_days","days":1}]}"#;
        assert_eq!(service.found(&format!("rules={rule}")), ["ada@x.io"]);
    }

    #[test]
    fn an_email_without_sender_or_recipient_is_refused() {
        let mut service = Service::new();
        for (mail, expected) in [
            (json!({"to": "ada@x.io"}), "`from` is missing"),
            (
                json!({"from": "me", "to": "ada@x.io"}),
                "`from` must be an email address, not \"me\"",
            ),
            (json!({"from": "me@x.io"}), "`to` is missing"),
            (
                json!({"from": "me@x.io", "to": []}),
                "`to` must be at least one email address, not []",
            ),
            (
                json!({"from": "me@x.io", "to": ["ada"]}),
                "`to` must be an email address or an array of them, not \"ada\"",
            ),
            (
                json!({"from": "me@x.io", "to": "ada@x.io", "subject": 1}),
                "`subject` must be text, not 1",
            ),
        ] {
            let answer = service.post("/emails", &mail);

            assert_eq!(slug(&answer), (422, "validation_error"));
            assert_eq!(message(&answer), expected);
        }
        assert!(service.audience.take_events().is_empty());
    }
}
