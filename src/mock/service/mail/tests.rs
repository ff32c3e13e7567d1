use super::super::{Service, message, status_and_slug};
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
    report_spam(&mut service.audience, "ada@x.io", service.now);
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
fn an_event_says_what_a_receiving_server_typically_says() {
    for (to, detail) in [
        ("bounce@x.io", "550 5.1.1 no such user"),
        ("soft-bounce@x.io", "452 4.2.2 mailbox full"),
        ("delay@x.io", "451 4.7.1 try again later"),
        (
            "fail@x.io",
            "the mail could not be delivered within the time allowed",
        ),
        ("ada@x.io", ""),
    ] {
        let mut service = Service::new();

        service.post("/emails", &json!({"from": "me@x.io", "to": to}));

        let events = service.audience.take_events();
        assert_eq!(events[1].data["detail"], detail, "{to}");
    }
}

#[test]
fn only_a_body_that_is_too_long_is_left_out_of_a_list() {
    let mut service = Service::new();
    for length in [MAX_SHOWN_BODY, MAX_SHOWN_BODY + 1] {
        let mail = |text: String| json!({"from": "me@x.io", "to": "ada@x.io", "text": text});
        let rest = length - mail(String::new()).to_string().len();
        service.post("/emails", &mail("a".repeat(rest)));
    }

    let newest = service.audience.mails.newest("", 2);

    assert_eq!(newest[0].body, Value::Null);
    assert_eq!(newest[1].body["to"], "ada@x.io");
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
            (name, event.created_at.unwrap() - service.now)
        })
        .collect()
}

fn immediate(names: &[&str]) -> Vec<(String, i64)> {
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

        assert_eq!(events(&mut service), immediate(expected), "{to}");
    }
}

#[test]
fn a_delayed_mail_is_delivered_five_minutes_later() {
    let mut service = Service::new();
    send(&mut service, &json!("delay@x.io"));
    events(&mut service);

    deliver_delayed(&mut service.audience, service.now + 299);
    assert_eq!(events(&mut service), []);

    assert_eq!(service.audience.mails.next_due(), Some(service.now + 300));
    deliver_delayed(&mut service.audience, service.now + 1_000);
    assert_eq!(events(&mut service), [("delivered".into(), 300)]);
    assert_eq!(service.audience.mails.next_due(), None);
}

#[test]
fn a_delayed_mail_that_bounced_is_not_delivered_later() {
    let mut service = Service::new();
    let id = send(&mut service, &json!("delay@x.io"));
    let now = service.now;

    let bounced = MailOutcome::bounced().detail("550 gave up");
    apply_outcome(&mut service.audience, &id, &bounced, now + 10).unwrap();
    deliver_delayed(&mut service.audience, now + 300);

    let taken = service.audience.take_events();
    assert_eq!(taken.len(), 3);
    assert_eq!(
        (taken[2].created_at.unwrap(), &taken[2].data),
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
    let mut outcome =
        |outcome: MailOutcome| apply_outcome(&mut service.audience, &id, &outcome, now);

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
        let error = apply_outcome(&mut service.audience, id, &outcome, now).unwrap_err();
        assert_eq!(error.status, status, "{outcome:?}");
    }

    assert_eq!(events(&mut service), []);
}

#[test]
fn the_times_of_a_mails_events_do_not_decrease_when_the_clock_is_set_back() {
    let mut service = Service::new();
    let id = send(&mut service, &json!("ada@x.io"));
    let earlier = service.now - 100;

    apply_outcome(&mut service.audience, &id, &MailOutcome::opened(), earlier).unwrap();
    report_spam(&mut service.audience, "ada@x.io", earlier);

    let times: Vec<i64> = events(&mut service).into_iter().map(|(_, at)| at).collect();
    assert_eq!(times, [0, 0, 0, 0]);
}

#[test]
fn a_complaint_about_a_mail_suppresses_the_address() {
    let mut service = Service::new();
    service.create("ada@x.io");
    let id = send(&mut service, &json!("ada@x.io"));

    let now = service.now;
    apply_outcome(&mut service.audience, &id, &MailOutcome::complained(), now).unwrap();

    let ada = service.audience.contact("ada@x.io").unwrap();
    assert_eq!(ada.unsubscribe_reason, "complaint");
    events(&mut service);
    send(&mut service, &json!("ada@x.io"));
    assert_eq!(events(&mut service), immediate(&["refused"]));
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

#[test]
fn each_kind_has_its_own_event_type() {
    for (index, (kind, event_type)) in OutcomeKind::EVENT_TYPES.into_iter().enumerate() {
        assert_eq!(kind as usize, index);
        assert_eq!(OutcomeKind::from_event_type(event_type), Ok(kind));
    }
    let error = OutcomeKind::from_event_type("email.sent").unwrap_err();
    assert!(error.contains("`email.bounced`"), "{error}");
}

#[test]
fn a_mail_is_delivered_before_it_is_opened_and_nothing_follows_its_end() {
    use MailState::{Bounced, Complained, Delayed, Delivered, Failed, Refused, Sent};
    let possible = |state: MailState| -> Vec<&str> {
        OutcomeKind::EVENT_TYPES
            .into_iter()
            .filter(|(kind, _)| state.after(*kind).is_ok())
            .map(|(_, event_type)| event_type.trim_start_matches("email."))
            .collect()
    };

    for state in [Sent, Delayed] {
        let first = ["delivered", "bounced", "delivery_delayed", "failed"];
        assert_eq!(possible(state), first);
    }
    let later = ["bounced", "complained", "opened", "clicked"];
    assert_eq!(possible(Delivered), later);
    assert_eq!(possible(Complained), ["opened", "clicked"]);
    for end in [Refused, Bounced, Failed] {
        assert!(possible(end).is_empty(), "{end:?}");
    }
}

#[test]
fn the_error_lists_what_is_possible() {
    let early = MailState::Delivered.after(OutcomeKind::Delayed);
    let late = MailState::Refused.after(OutcomeKind::Opened);

    assert_eq!(
        early.unwrap_err(),
        "`email.delivery_delayed` is not possible because the mail has been delivered; possible now: \
         `email.bounced`, `email.complained`, `email.opened`, `email.clicked`. Mail to `pending@…` waits for its \
         outcome"
    );
    let late = late.unwrap_err();
    assert!(
        late.contains("was refused and never sent; nothing more"),
        "{late}"
    );
}

fn received(service: &mut Service, seed: InboundMailSeed) -> Value {
    receive(&mut service.audience, seed, service.now).unwrap();
    let event = service.audience.take_events().pop().unwrap();
    assert_eq!(
        (event.event_type.as_str(), event.created_at.unwrap()),
        ("email.received", service.now)
    );
    event.data
}

#[test]
fn a_received_mail_has_the_members_of_section_6_4() {
    let mut service = Service::new();

    let data = received(
        &mut service,
        InboundMailSeed::new("Ada <ada@x.io>").spf("fail"),
    );

    assert_eq!(
        data,
        json!({"inbound_id": "inb_00000001", "from": "Ada <ada@x.io>", "to": ["inbox@example.com"],
            "subject": "A message", "text": "Hello",
            "authentication_results":
                "mx.example.com; spf=fail smtp.mailfrom=x.io; dkim=not-evaluated; dmarc=not-evaluated"})
    );
}

#[test]
fn a_reply_goes_to_the_sender_of_the_mail() {
    let mut service = Service::new();
    service.post(
        "/emails",
        &json!({"from": "me@x.io", "to": "ada@x.io", "subject": "Hi"}),
    );

    let reply = InboundMailSeed::new("ada@x.io").in_reply_to("eml_00000001");
    let data = received(&mut service, reply);

    assert_eq!(data["in_reply_to_email_id"], "eml_00000001");
    assert_eq!(data["to"], json!(["me@x.io"]));
    assert_eq!(data["subject"], "Re: Hi");
}

#[test]
fn a_reply_to_an_unknown_mail_is_refused() {
    let mut service = Service::new();
    let reply = InboundMailSeed::new("ada@x.io").in_reply_to("eml_00000001");

    let error = receive(&mut service.audience, reply, 0).unwrap_err();

    assert_eq!(error.status, 404);
    assert!(service.audience.take_events().is_empty());
}

fn add(store: &mut MailStore, body: &[u8]) -> Arc<Mail> {
    let new = NewMail {
        from: "me@x.io".into(),
        to: &["ada@x.io".into()],
        subject: String::new(),
        body,
    };
    store.add(new, 5)
}

#[test]
fn the_oldest_mail_is_dropped_first() {
    let mut store = MailStore::default();

    for _ in 0..MAX_MAILS + 5 {
        add(&mut store, b"{}");
    }

    assert_eq!(store.sent_mail().len(), MAX_MAILS);
    assert!(store.find("eml_00000005").is_none());
    assert!(store.find("eml_00000006").is_some());
}

#[test]
fn the_latest_mail_to_an_address_is_forgotten_when_it_is_dropped() {
    let mut store = MailStore::default();
    let first = add(&mut store, b"{}");
    store.record_start(&first, "ada@x.io", true);
    for _ in 1..MAX_MAILS {
        add(&mut store, b"{}");
    }
    assert_eq!(store.latest("ada@x.io").unwrap().id, first.id);

    let next = add(&mut store, b"{}");
    assert!(store.latest("ada@x.io").is_none());
    store.record_start(&next, "ada@x.io", true);
    for _ in 0..MAX_MAILS {
        let next = add(&mut store, b"{}");
        store.record_start(&next, "ada@x.io", true);
    }
    assert!(
        store.latest("ada@x.io").is_some(),
        "the newest mail is kept"
    );
}

#[test]
fn a_mail_whose_events_would_fill_the_memory_is_refused() {
    let mut service = Service::new();
    let mut send = |from: usize, recipients: usize, local: &str, subject: usize| {
        let to: Vec<_> = (0..recipients)
            .map(|number| format!("{local}+{number}@x.io"))
            .collect();
        let from = format!("{}@x.io", "a".repeat(from));
        let mail = json!({"from": from, "to": to, "subject": "a".repeat(subject)});
        service.post("/emails", &mail)
    };

    for (from, recipients, local, subject) in [
        (1, 1, "pending", 1_000_000),
        (1_000_000, 1, "pending", 1),
        (1, 10_000, "pending", 5),
        (1, 300, "pending", 70_000),
    ] {
        assert_eq!(send(from, recipients, local, subject).0, 200);
    }
    let long_address = format!("click+{}", "a".repeat(70_000));
    for (from, recipients, local, subject) in [
        (1, 1_000, "pending", 70_000),
        (70_000, 1_000, "pending", 1),
        (1, 250, &*long_address, 1),
        (1, 300, "click", 70_000),
        (1, 400, "delay", 70_000),
    ] {
        let refused = send(from, recipients, local, subject);

        assert_eq!(status_and_slug(&refused), (422, "validation_error"));
        assert!(
            message(&refused).contains("more than 64 MiB"),
            "{refused:?}"
        );
    }
}

#[test]
fn the_bytes_are_limited_and_the_newest_mail_is_always_kept() {
    let mut store = MailStore::default();

    add(&mut store, b"{}");
    add(&mut store, &vec![b' '; MAX_BYTES + 1]);

    assert_eq!(store.mails.keys().collect::<Vec<_>>(), [&2]);
    add(&mut store, b"{}");
    assert_eq!(store.bytes, store.mails[&3].size());
}

#[test]
fn a_mail_is_found_only_by_its_exact_id() {
    let mut store = MailStore::default();
    let mail = add(&mut store, b"{}");

    assert_eq!(mail.id, "eml_00000001");
    assert!(store.find("eml_00000001").is_some());
    for other in ["eml_1", "eml_+0000001", "1", "eml_00000002", ""] {
        assert!(store.find(other).is_none(), "{other}");
    }
}

#[test]
fn the_time_of_the_events_of_a_mail_never_decreases() {
    let mut store = MailStore::default();
    let mail = add(&mut store, b"{}");

    assert_eq!(store.event_time(&mail.id, 9), 9);
    assert_eq!(store.event_time(&mail.id, 7), 9);
}

fn add_to(store: &mut MailStore, to: &[&str], at: i64) {
    let new = NewMail {
        from: "me@x.io".into(),
        to: &to.iter().copied().map(String::from).collect::<Vec<_>>(),
        subject: String::new(),
        body: b"{}",
    };
    store.add(new, at);
}

#[test]
fn mail_is_due_by_time_and_then_in_the_order_it_was_sent() {
    let mut store = MailStore::default();
    add_to(&mut store, &["delay+b@x", "ada@x", "delay+a@x"], 20);
    for (at, to) in [(10, "delay+c@x"), (20, "delay+d@x"), (30, "delay+e@x")] {
        add_to(&mut store, &[to], at);
    }
    add_to(&mut store, &["ada@x"], 0);

    let taken: Vec<_> = std::iter::from_fn(|| store.take_due(20 + DELAY))
        .map(|(due, _, recipients)| (due - DELAY, recipients.join(" ")))
        .collect();

    assert_eq!(
        taken,
        [
            (10, "delay+c@x".into()),
            (20, "delay+b@x delay+a@x".into()),
            (20, "delay+d@x".into())
        ]
    );
    assert_eq!(store.next_due(), Some(30 + DELAY));
}

#[test]
fn a_delayed_mail_that_is_dropped_is_not_due_any_more() {
    let mut store = MailStore::default();
    add_to(&mut store, &["ada@x", "delay@x"], 5);
    assert_eq!(store.next_due(), Some(5 + DELAY));

    add(&mut store, &vec![b' '; MAX_BYTES]);

    assert_eq!(store.next_due(), None);
}
