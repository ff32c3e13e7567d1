//! Send an email: `POST /emails`, and the events that follow from it (sections 4.7 and 6.3).

use std::collections::HashSet;

use serde_json::{Value, json};

use super::address::{AddressKey, is_address, normalized};
use super::audience_state::AudienceState;
use super::json::{self, Members};
use super::mail_events;
use super::message::Reply;
use super::refusal::Refusal;
use super::sent_mail::NewMail;

/// Accepts an email and publishes the events for each of its recipients.
///
/// The document says only that this endpoint returns an id (section 4.7). In the mock, a recipient gets `email.sent`
/// and what its address decides, usually `email.delivered`, or only `email.refused` if the address is on the
/// suppression list. Consent does not matter: it governs broadcasts only (section 1).
///
/// # Errors
///
/// 422 `validation_error` if the sender or a recipient is missing or invalid.
pub(super) fn send_email(
    state: &mut AudienceState,
    body: &[u8],
    now: i64,
) -> Result<Reply, Refusal> {
    let email = Email::parse(body).map_err(Refusal::invalid)?;
    let new = NewMail {
        from: email.from,
        to: &email.to,
        subject: email.subject,
        body,
    };
    let mail = state.mails_mut().add(new, now);
    for to in &email.to {
        mail_events::start(state, &mail, to, now);
    }
    Ok(Reply::json(200, &json!({ "id": mail.id })))
}

/// The members of an email that the mock reads. It ignores all others, since the document shows none.
struct Email {
    from: String,
    /// Normalized, without duplicates: events are per recipient (section 6.3).
    to: Vec<String>,
    subject: String,
}

impl Email {
    /// Parses the body of `POST /emails`.
    ///
    /// # Errors
    ///
    /// Fails if the sender or a recipient is missing or invalid. The error is the message for the refusal.
    fn parse(body: &[u8]) -> Result<Self, String> {
        let body = json::parse(body)?;
        let members = Members::new(&body, "the body", "")?;
        let from = without_display_name(members.required_text("from")?);
        if !is_address(from) {
            let found = members.required("from")?;
            return Err(members.must_be("from", "an email address", found));
        }
        Ok(Self {
            from: from.to_owned(),
            to: parse_recipients(&members)?,
            subject: members
                .optional_text("subject")?
                .unwrap_or_default()
                .to_owned(),
        })
    }
}

/// Returns the recipients in `to`, which is a string or an array of strings.
fn parse_recipients(members: &Members<'_>) -> Result<Vec<String>, String> {
    let found = members.required("to")?;
    let values = match found {
        Value::Array(several) => several.as_slice(),
        one => std::slice::from_ref(one),
    };
    let mut recipients = Vec::with_capacity(values.len());
    for value in values {
        let address = value
            .as_str()
            .map(|text| normalized(without_display_name(text)));
        match address {
            Some(address) if is_address(&address) => recipients.push(address),
            _ => return Err(members.must_be("to", "an email address or an array of them", value)),
        }
    }
    if recipients.is_empty() {
        return Err(members.must_be("to", "at least one email address", found));
    }
    let mut seen = HashSet::new();
    recipients.retain(|address| seen.insert(AddressKey::new(address)));
    Ok(recipients)
}

/// Returns the address in `Ada <ada@example.com>`. Any other text is only trimmed.
fn without_display_name(text: &str) -> &str {
    let text = text.trim();
    text.strip_suffix('>')
        .and_then(|text| text.rsplit_once('<'))
        .map_or(text, |(_, address)| address.trim())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Service, message, status_and_slug};
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
    fn each_recipient_gets_its_own_events_in_order() {
        let mut service = Service::new();
        let mail = json!({"from": "Me <me@x.io>", "to": ["Ada@x.io", "Bob <bob@x.io>", "ada@x.io"], "subject": "Hi", "html": "<p>"});

        let (status, response) = service.post("/emails", &mail);

        assert_eq!((status, response), (200, json!({"id": "eml_00000001"})));
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
        service.audience.take_events();

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
                "bounce_type": "", "detail": "the address is on the suppression list"})
        );
    }

    #[test]
    fn consent_does_not_affect_transactional_mail() {
        let mut service = Service::new();
        service.create("ada@x.io");
        service.post_without_body("/contacts/ada@x.io/unsubscribe");

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
        assert_eq!(
            service.listed_addresses(&format!("rules={rule}")),
            ["ada@x.io"]
        );
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
                "`subject` must be a string, not 1",
            ),
        ] {
            let response = service.post("/emails", &mail);

            assert_eq!(status_and_slug(&response), (422, "validation_error"));
            assert_eq!(message(&response), expected);
        }
        assert!(service.audience.take_events().is_empty());
    }
}
