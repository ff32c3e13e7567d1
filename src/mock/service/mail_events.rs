//! The events about a sent mail: what happens to it at each recipient, at once and later (section 6.3).

use std::sync::Arc;

use super::audience_state::AudienceState;
use super::mail::{Mail, typical_detail};
use super::mail_outcome::{MailOutcome, OutcomeKind};
use super::printable::printable;
use super::refusal::Refusal;
use super::simulated_address::{self, Course};

/// Publishes what happens to a mail at one recipient when it is sent.
pub(super) fn start(state: &mut AudienceState, mail: &Arc<Mail>, to: &str, now: i64) {
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
    } = simulated_address::course(to);
    for outcome in outcomes {
        // The course of an address contains only what is possible.
        let _ = publish_outcome(state, mail, to, &outcome, now);
    }
    if is_delivered_later {
        let due = now.saturating_add(simulated_address::DELAY);
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
        (Some(to), _) => super::address::normalized(to),
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::testing::Service;
    use super::*;

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
}
