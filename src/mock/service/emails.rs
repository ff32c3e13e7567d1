//! Send an email: `POST /emails`, and the events that follow from it (sections 4.7 and 6.3).

use std::collections::HashSet;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use super::address::{is_address, normalized, printable};
use super::bodies::{must_be, parse};
use super::mail_outcome::{MailOutcome, OutcomeKind};
use super::refusal::{Refusal, Reply};
use super::sent_mail::{Mail, NewMail, typical_detail};
use super::state::AudienceState;

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
        start(state, &mail, to, now);
    }
    Ok(Reply::json(200, &json!({ "id": mail.id })))
}

/// The members of an email that the mock reads. It ignores all others, since the document shows none.
#[derive(Deserialize)]
struct EmailMembers {
    from: String,
    /// An address or an array of addresses.
    to: Value,
    #[serde(default)]
    subject: String,
}

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
        let members: EmailMembers = parse(body, "the body")?;
        let from = without_display_name(&members.from);
        if !is_address(from) {
            return Err(must_be("from", "an email address", &members.from.into()));
        }
        Ok(Self {
            from: from.to_owned(),
            to: parse_recipients(&members.to)?,
            subject: members.subject,
        })
    }
}

/// Returns the recipients in `to`, which is a string or an array of strings.
fn parse_recipients(to: &Value) -> Result<Vec<String>, String> {
    let values = match to {
        Value::Array(several) => several.as_slice(),
        one => std::slice::from_ref(one),
    };
    let mut recipients: Vec<String> = Vec::with_capacity(values.len());
    let mut seen = HashSet::new();
    for value in values {
        let address = value
            .as_str()
            .map(|text| normalized(without_display_name(text)));
        match address.filter(|address| is_address(address)) {
            Some(address) if seen.insert(address.clone()) => recipients.push(address),
            Some(_) => {}
            None => return Err(must_be("to", "an email address or an array of them", value)),
        }
    }
    if recipients.is_empty() {
        return Err(must_be("to", "at least one email address", to));
    }
    Ok(recipients)
}

/// Returns the address in `Ada <ada@example.com>`. Any other text is only trimmed.
fn without_display_name(text: &str) -> &str {
    let text = text.trim();
    text.strip_suffix('>')
        .and_then(|text| text.rsplit_once('<'))
        .map_or(text, |(_, address)| address.trim())
}

/// Publishes what happens to a mail at one recipient when it is sent.
fn start(state: &mut AudienceState, mail: &Arc<Mail>, to: &str, now: i64) {
    let is_sent = !state.is_suppressed(to);
    state.mails_mut().record_start(mail, to, is_sent);
    if !is_sent {
        let data = mail.event_data(to, "", typical_detail("email.refused", ""));
        state.publish("email.refused", data, now);
        return;
    }
    state.publish("email.sent", mail.event_data(to, "", ""), now);
    let Course {
        outcomes,
        is_delivered_later,
    } = course(to);
    for outcome in outcomes {
        // The course of an address contains only what is possible.
        let _ = publish_outcome(state, mail, to, &outcome, now);
    }
    if is_delivered_later {
        let due = now.saturating_add(DELAY);
        state.mails_mut().delayed.add(due, Arc::clone(mail), to);
    }
}

/// Delivers the delayed mail that is due by `now`, unless something else happened to it in the meantime.
pub(super) fn deliver_delayed(state: &mut AudienceState, now: i64) {
    while let Some((due, mail, to)) = state.mails_mut().delayed.take_due(now) {
        let _ = publish_outcome(state, &mail, &to, &MailOutcome::delivered(), due);
    }
}

/// Applies an outcome that a test gives to a sent mail, and publishes the event about it.
///
/// # Errors
///
/// 404 `not_found` if no mail has this id. 422 `validation_error` if the recipient is missing or not one of the mail's,
/// or if the outcome is not possible.
pub(super) fn apply_outcome(
    state: &mut AudienceState,
    id: &str,
    outcome: &MailOutcome,
    now: i64,
) -> Result<(), Refusal> {
    let Some((mail, recipients)) = state.mails().find(id) else {
        return Err(unknown_mail(id));
    };
    let to = match (&outcome.to, recipients) {
        (Some(to), _) => normalized(to),
        (None, [only]) => only.clone(),
        (None, several) => {
            let count = several.len();
            return Err(Refusal::invalid(format!(
                "the mail has {count} recipients; set which of them with `to`"
            )));
        }
    };
    if outcome.bounce_type.is_some() && outcome.kind != OutcomeKind::Bounced {
        return Err(Refusal::invalid("only a bounce has a `bounce_type`"));
    }
    let mail = Arc::clone(mail);
    publish_outcome(state, &mail, &to, outcome, now).map_err(Refusal::invalid)
}

/// Returns the error for an id that no mail has.
pub(super) fn unknown_mail(id: &str) -> Refusal {
    let id = printable(id);
    Refusal::not_found(format!(
        "there is no mail `{id}`; an id is what `POST /emails` returned, and the newest 10,000 mails are kept"
    ))
}

fn publish_outcome(
    state: &mut AudienceState,
    mail: &Mail,
    to: &str,
    outcome: &MailOutcome,
    now: i64,
) -> Result<(), String> {
    let event_type = outcome.kind.event_type();
    state
        .mails_mut()
        .record_outcome(&mail.id, to, outcome.kind)?;
    let at = state.mails_mut().event_time(&mail.id, now);

    let bounce_type = match (outcome.kind, &outcome.bounce_type) {
        (OutcomeKind::Bounced, Some(bounce_type)) => bounce_type,
        (OutcomeKind::Bounced, None) => "Permanent",
        _ => "",
    };
    let detail = match &outcome.detail {
        Some(detail) => detail,
        None => typical_detail(event_type, bounce_type),
    };
    state.publish(event_type, mail.event_data(to, bounce_type, detail), at);
    Ok(())
}

/// Seconds after which mail to `delay@…` is delivered.
const DELAY: i64 = 300;

/// What happens to mail to an address once it is sent.
#[derive(Debug, PartialEq, Eq)]
struct Course {
    /// What happens at once, in order.
    outcomes: Vec<MailOutcome>,
    /// Whether the mail is delivered after [`DELAY`].
    is_delivered_later: bool,
}

/// Returns what happens to mail to a normalized address.
///
/// Its local part decides, up to a `+`, in any domain. The docs of [`mock`](crate::mock#mail) have the same list.
fn course(address: &str) -> Course {
    let local = address.split_once('@').map_or(address, |(local, _)| local);
    let name = local.split_once('+').map_or(local, |(name, _)| name);
    let delivered = MailOutcome::delivered;
    let outcomes = match name {
        "bounce" => vec![MailOutcome::bounced()],
        "soft-bounce" => vec![MailOutcome::bounced().bounce_type("Transient")],
        "delay" => vec![MailOutcome::delayed()],
        "fail" => vec![MailOutcome::failed()],
        "complain" => vec![delivered(), MailOutcome::complained()],
        "open" => vec![delivered(), MailOutcome::opened()],
        "click" => vec![delivered(), MailOutcome::opened(), MailOutcome::clicked()],
        "pending" => Vec::new(),
        _ => vec![delivered()],
    };
    Course {
        outcomes,
        is_delivered_later: name == "delay",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

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

    fn send(service: &mut Service, to: &Value) -> String {
        let mail = json!({"from": "me@x.io", "to": to, "subject": "Hi"});
        let (_, response) = service.post("/emails", &mail);
        response["id"].as_str().unwrap().to_owned()
    }

    /// Takes the events, as the type without `email.`, and the seconds since the service's time.
    fn events(service: &mut Service) -> Vec<(String, i64)> {
        let events = service.audience.take_events().into_iter();
        events
            .map(|event| {
                let name = event.event_type.trim_start_matches("email.").to_owned();
                (name, event.at - service.now)
            })
            .collect()
    }

    fn at_once(names: &[&str]) -> Vec<(String, i64)> {
        names.iter().map(|name| ((*name).to_owned(), 0)).collect()
    }

    #[test]
    fn the_address_decides_what_happens() {
        let mut service = Service::new();
        for (to, expected) in [
            ("ada@x.io", &["sent", "delivered"][..]),
            ("Bounce+1@x.io", &["sent", "bounced"]),
            ("soft-bounce@x.io", &["sent", "bounced"]),
            ("delay@x.io", &["sent", "delivery_delayed"]),
            ("fail@x.io", &["sent", "failed"]),
            ("complain@x.io", &["sent", "delivered", "complained"]),
            ("open@x.io", &["sent", "delivered", "opened"]),
            ("click@x.io", &["sent", "delivered", "opened", "clicked"]),
            ("pending@x.io", &["sent"]),
            ("complain@x.io", &["refused"]),
        ] {
            send(&mut service, &json!(to));

            assert_eq!(events(&mut service), at_once(expected), "{to}");
        }
    }

    #[test]
    fn a_delayed_mail_is_delivered_five_minutes_later() {
        let mut service = Service::new();
        send(&mut service, &json!("delay@x.io"));
        events(&mut service);

        service.audience.deliver_delayed(service.now + 299);
        assert_eq!(events(&mut service), []);

        assert_eq!(service.audience.next_due(), Some(service.now + 300));
        service.audience.deliver_delayed(service.now + 1_000);
        assert_eq!(events(&mut service), [("delivered".into(), 300)]);
        assert_eq!(service.audience.next_due(), None);
    }

    #[test]
    fn a_delayed_mail_that_bounced_is_not_delivered_later() {
        let mut service = Service::new();
        let id = send(&mut service, &json!("delay@x.io"));
        let now = service.now;

        let bounced = MailOutcome::bounced().detail("550 gave up");
        service
            .audience
            .mail_outcome(&id, &bounced, now + 10)
            .unwrap();
        service.audience.deliver_delayed(now + 300);

        let taken = service.audience.take_events();
        assert_eq!(taken.len(), 3);
        assert_eq!(
            (taken[2].at, &taken[2].data),
            (
                now + 10,
                &json!({"email_id": id, "from": "me@x.io", "to": "delay@x.io", "subject": "Hi",
                    "bounce_type": "Permanent", "detail": "550 gave up"})
            )
        );
    }

    #[test]
    fn an_outcome_concerns_one_recipient() {
        let mut service = Service::new();
        let id = send(&mut service, &json!(["ada@x.io", "bob@x.io"]));
        let now = service.now;
        let mut outcome = |outcome: MailOutcome| service.audience.mail_outcome(&id, &outcome, now);

        let unnamed = outcome(MailOutcome::opened()).unwrap_err();
        let other = outcome(MailOutcome::opened().to("carol@x.io")).unwrap_err();
        let named = outcome(MailOutcome::opened().to(" Bob@x.io"));

        assert_eq!((unnamed.status, other.status), (422, 422));
        assert!(
            unnamed.message.contains("2 recipients"),
            "{}",
            unnamed.message
        );
        assert!(
            other.message.contains("not a recipient"),
            "{}",
            other.message
        );
        assert_eq!(named, Ok(()));
        let last = service.audience.take_events().pop().unwrap();
        assert_eq!(
            (last.event_type.as_str(), &last.data["to"]),
            ("email.opened", &json!("bob@x.io"))
        );
    }

    #[test]
    fn an_impossible_outcome_is_refused_and_changes_nothing() {
        let mut service = Service::new();
        let id = send(&mut service, &json!("ada@x.io"));
        let now = service.now;
        events(&mut service);

        for (id, outcome, status) in [
            ("eml_00000009", MailOutcome::opened(), 404),
            (&id, MailOutcome::delayed(), 422),
            (&id, MailOutcome::failed(), 422),
            (&id, MailOutcome::opened().bounce_type("Permanent"), 422),
        ] {
            let error = service
                .audience
                .mail_outcome(id, &outcome, now)
                .unwrap_err();
            assert_eq!(error.status, status, "{outcome:?}");
        }

        assert_eq!(events(&mut service), []);
    }

    #[test]
    fn the_times_of_a_mails_events_do_not_decrease_when_the_clock_is_set_back() {
        let mut service = Service::new();
        let id = send(&mut service, &json!("ada@x.io"));
        let earlier = service.now - 100;

        service
            .audience
            .mail_outcome(&id, &MailOutcome::opened(), earlier)
            .unwrap();
        service.audience.report_spam("ada@x.io", earlier);

        let times: Vec<i64> = events(&mut service).into_iter().map(|(_, at)| at).collect();
        assert_eq!(times, [0, 0, 0, 0]);
    }

    #[test]
    fn a_complaint_about_a_mail_suppresses_the_address() {
        let mut service = Service::new();
        service.create("ada@x.io");
        let id = send(&mut service, &json!("ada@x.io"));

        let now = service.now;
        service
            .audience
            .mail_outcome(&id, &MailOutcome::complained(), now)
            .unwrap();

        let ada = service.audience.contact("ada@x.io").unwrap();
        assert_eq!(ada.unsubscribe_reason, "complaint");
        events(&mut service);
        send(&mut service, &json!("ada@x.io"));
        assert_eq!(events(&mut service), at_once(&["refused"]));
    }

    #[test]
    fn the_local_part_up_to_a_plus_decides_in_any_domain() {
        let bounced = [MailOutcome::bounced()];

        assert_eq!(course("bounce@x.io").outcomes, bounced);
        assert_eq!(course("bounce+ada+1@example.com").outcomes, bounced);
        for ordinary in [
            "bounces@x.io",
            "bouncer+bounce@x.io",
            "a@bounce.io",
            "+bounce@x.io",
        ] {
            assert_eq!(
                course(ordinary).outcomes,
                [MailOutcome::delivered()],
                "{ordinary}"
            );
        }
    }
}
