//! Interface sections 6.1, 6.3 and 6.4: the data of each event type.

use std::collections::BTreeSet;

use audience::webhooks::{
    AuthenticationResults, BounceType, CheckResult, Event, EventData, EventType, InboundMail,
    MailEvent,
};
use serde_json::{Value, json};

use super::{signed, verifier};

fn event(event_type: &str, data: &Value) -> Event {
    let body = json!({"id": "evt_1", "type": event_type, "created_at": 5, "data": data});
    let body = serde_json::to_vec(&body).unwrap();
    verifier().verify(&signed(&body), &body).unwrap()
}

fn mail(bounce_type: &str, detail: &str) -> Value {
    json!({"email_id": "em_1", "from": "us@example.com", "to": "ada@example.com",
        "subject": "Grüße", "bounce_type": bounce_type, "detail": detail})
}

fn inbound() -> Value {
    json!({"inbound_id": "in_1", "from": "Ada <ada@example.com>",
        "to": ["us@example.com", "them@example.com"], "subject": "Re: Hi", "text": "Yes.\n",
        "in_reply_to_email_id": "em_1", "authentication_results":
        "mx.example.net; spf=pass smtp.mailfrom=example.com; dkim=not-evaluated; dmarc=not-evaluated"})
}

type Variant = fn(MailEvent) -> EventData;

/// The types of events about sent mail.
const MAIL_TYPES: &[(&str, Variant)] = &[
    ("email.sent", EventData::Sent),
    ("email.delivered", EventData::Delivered),
    ("email.bounced", EventData::Bounced),
    ("email.complained", EventData::Complained),
    ("email.delivery_delayed", EventData::DeliveryDelayed),
    ("email.opened", EventData::Opened),
    ("email.clicked", EventData::Clicked),
    ("email.failed", EventData::Failed),
    ("email.refused", EventData::Refused),
];

#[test]
fn each_type_about_sent_mail_has_its_variant_and_the_same_data() {
    let expected = MailEvent::new("em_1", "us@example.com", "ada@example.com", "Grüße");

    for (event_type, variant) in MAIL_TYPES {
        let event = event(event_type, &mail("", ""));

        assert_eq!(event.data, variant(expected.clone()));
        assert_eq!(event.mail(), Some(&expected));
        assert_eq!(event.event_type(), EventType::from(*event_type));
        assert_eq!(event.event_type().to_string(), *event_type);
        assert_eq!(serde_json::to_value(&event).unwrap()["data"], mail("", ""));
    }
}

#[test]
fn every_type_of_the_document_is_known() {
    let mail = MAIL_TYPES.iter().map(|(event_type, _)| *event_type);
    let documented: BTreeSet<&str> = mail.chain(["email.received"]).collect();

    let known: BTreeSet<&str> = EventType::KNOWN.iter().map(EventType::as_str).collect();

    assert_eq!(known, documented);
    for known in EventType::KNOWN {
        assert!(!matches!(
            EventType::from(known.as_str()),
            EventType::Other(_)
        ));
        let json = serde_json::to_string(known).unwrap();
        assert_eq!(&serde_json::from_str::<EventType>(&json).unwrap(), known);
    }
}

#[test]
fn bounce_types_are_kept_unchanged() {
    for (text, expected) in [
        ("", None),
        ("Permanent", Some(BounceType::Permanent)),
        ("Transient", Some(BounceType::Transient)),
        ("Undetermined", Some(BounceType::Undetermined)),
        ("permanent", Some(BounceType::Other("permanent".to_owned()))),
    ] {
        let event = event("email.bounced", &mail(text, "550 gone"));

        let mail_event = event.mail().unwrap();
        assert_eq!(mail_event.bounce_type, expected);
        assert_eq!(mail_event.is_permanent_bounce(), text == "Permanent");
        assert_eq!(mail_event.detail.as_deref(), Some("550 gone"));
        assert_eq!(
            serde_json::to_value(&event).unwrap()["data"],
            mail(text, "550 gone")
        );
    }
}

/// Returns `data` with each value that is no text in the place of `member`, and without the member.
fn without_text(data: &Value, member: &str) -> Vec<Value> {
    let mut missing = data.clone();
    missing.as_object_mut().unwrap().remove(member);
    let no_text = [
        json!(null),
        json!(true),
        json!(-7),
        json!(7),
        json!(7.5),
        json!([["a"], {}]),
        json!({"text": {"a": "b"}}),
    ];
    let changed = no_text.map(|value| {
        let mut changed = data.clone();
        changed[member] = value;
        changed
    });
    changed.into_iter().chain([missing]).collect()
}

#[test]
fn mail_needs_only_its_id_and_its_recipient_and_everything_else_may_be_no_text() {
    let whole = mail("Permanent", "550 gone");
    for (event_type, variant) in MAIL_TYPES {
        for member in ["from", "subject", "bounce_type", "detail"] {
            for data in without_text(&whole, member) {
                let mut expected =
                    MailEvent::new("em_1", "us@example.com", "ada@example.com", "Grüße");
                expected.bounce_type = Some(BounceType::Permanent);
                expected.detail = Some("550 gone".to_owned());
                match member {
                    "from" => expected.from.clear(),
                    "subject" => expected.subject.clear(),
                    "bounce_type" => expected.bounce_type = None,
                    _ => expected.detail = None,
                }

                let event = event(event_type, &data);

                assert_eq!(event.data, variant(expected), "{data}");
            }
        }
    }

    let event = event(
        "email.bounced",
        &json!({"email_id": "em_1", "to": "ada@example.com"}),
    );

    let expected = MailEvent::new("em_1", "", "ada@example.com", "");
    assert_eq!(event.data, EventData::Bounced(expected));
}

#[test]
fn inbound_mail_needs_only_its_id_its_sender_and_its_recipients() {
    let whole = inbound();
    for member in [
        "subject",
        "in_reply_to_email_id",
        "text",
        "authentication_results",
    ] {
        for data in without_text(&whole, member) {
            let mut expected: InboundMail = serde_json::from_value(whole.clone()).unwrap();
            match member {
                "subject" => expected.subject.clear(),
                "in_reply_to_email_id" => expected.in_reply_to_email_id = None,
                "text" => expected.text.clear(),
                _ => expected.authentication_results = "".into(),
            }

            let event = event("email.received", &data);

            assert_eq!(event.data, EventData::Received(expected), "{data}");
        }
    }

    let least = json!({"inbound_id": "in_1", "from": "ada@example.com", "to": []});
    let event = event("email.received", &least);

    let expected = InboundMail::new("in_1", "ada@example.com", [""; 0], "");
    assert_eq!(event.data, EventData::Received(expected));
}

#[test]
fn data_without_a_member_that_identifies_it_is_unknown() {
    for (event_type, whole, members) in [
        ("email.complained", mail("", ""), &["email_id", "to"][..]),
        ("email.received", inbound(), &["inbound_id", "from", "to"]),
    ] {
        for member in members {
            for data in without_text(&whole, member) {
                let event = event(event_type, &data);

                let kept = EventData::Unknown {
                    event_type: event_type.into(),
                    data: data.clone(),
                };
                assert_eq!(event.data, kept, "{data}");
            }
        }
    }
}

#[test]
fn mail_whose_recipient_is_empty_or_white_space_is_incomplete() {
    for (event_type, _) in MAIL_TYPES {
        for to in ["", " ", "\t\r\n\u{a0}"] {
            let mut data = mail("", "");
            data["to"] = to.into();

            let event = event(event_type, &data);

            assert!(event.data.is_incomplete(), "{data}");
            let kept = EventData::Unknown {
                event_type: (*event_type).into(),
                data: data.clone(),
            };
            assert_eq!(event.data, kept, "{data}");
        }
    }
}

/// Values that are JSON, but no `serde_json::Value`, with the text that is read.
const UNREPRESENTABLE: [(&str, &str); 6] = [
    (r#""Sale \ud83d""#, "Sale \u{fffd}"),
    (
        r#""\ude00\ud83d\ud83d\ude00\n""#,
        "\u{fffd}\u{fffd}\u{1f600}\n",
    ),
    ("1e999", ""),
    (r#"{"a": 1e999}"#, ""),
    (r#"["\ud83d"]"#, ""),
    ("", ""), // deep nesting
];

/// Returns data with JSON in the place of `member`, and the event with it.
fn with_json(event_type: &str, whole: &Value, member: &str, json: &str) -> (String, Event) {
    let deep = format!("{}{}", "[".repeat(1_000), "]".repeat(1_000));
    let json = if json.is_empty() { &deep } else { json };
    let mut data = whole.clone();
    data[member] = "<here>".into();
    let data = data.to_string().replace(r#""<here>""#, json);
    let body = format!(r#"{{"id":"evt_1","type":"{event_type}","created_at":5,"data":{data}}}"#);
    let body = body.into_bytes();
    let event = verifier().verify(&signed(&body), &body).unwrap();
    (data, event)
}

#[test]
fn half_a_surrogate_pair_or_a_number_out_of_range_hides_no_complaint_and_no_reply() {
    let unless_empty = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    for (json, text) in UNREPRESENTABLE {
        for member in ["from", "subject", "bounce_type", "detail", "unknown"] {
            let mut expected = MailEvent::new("em_1", "us@example.com", "ada@example.com", "Grüße");
            match member {
                "from" => expected.from = text.to_owned(),
                "subject" => expected.subject = text.to_owned(),
                "bounce_type" => expected.bounce_type = unless_empty(text).map(BounceType::Other),
                "detail" => expected.detail = unless_empty(text),
                _ => {}
            }

            let (_, event) = with_json("email.complained", &mail("", ""), member, json);

            assert_eq!(
                event.data,
                EventData::Complained(expected),
                "{member}: {json}"
            );
        }
        let mut expected: InboundMail = serde_json::from_value(inbound()).unwrap();
        expected.text = text.to_owned();

        let (_, event) = with_json("email.received", &inbound(), "text", json);

        assert_eq!(event.data, EventData::Received(expected), "{json}");
    }
}

#[test]
fn what_identifies_an_event_is_not_changed_to_be_readable() {
    for (json, _) in UNREPRESENTABLE {
        for (event_type, whole, members) in [
            ("email.complained", mail("", ""), &["email_id", "to"][..]),
            ("email.received", inbound(), &["inbound_id", "from", "to"]),
        ] {
            for member in members {
                let (data, event) = with_json(event_type, &whole, member, json);

                let kept = EventData::Unknown {
                    event_type: event_type.into(),
                    data: data.into(),
                };
                assert_eq!(event.data, kept);
            }
        }
    }
}

#[test]
fn inbound_mail_is_parsed_with_its_authentication_results() {
    let event = event("email.received", &inbound());

    assert_eq!(event.mail(), None);
    assert_eq!(serde_json::to_value(&event).unwrap()["data"], inbound());
    let EventData::Received(mail) = event.data else {
        panic!("{event:?}");
    };
    assert_eq!(mail.inbound_id, "in_1");
    assert_eq!(mail.to, ["us@example.com", "them@example.com"]);
    assert_eq!(mail.in_reply_to_email_id.as_deref(), Some("em_1"));
    assert_eq!(mail.text, "Yes.\n");
    let results = &mail.authentication_results;
    assert_eq!(results.spf(), Some(CheckResult::Pass));
    assert_eq!(results.dmarc(), Some(CheckResult::NotEvaluated));
    assert_eq!(results.as_str(), inbound()["authentication_results"]);
}

#[test]
fn inbound_mail_that_is_not_a_reply_has_no_id_to_reply_to() {
    let mut absent = inbound();
    absent
        .as_object_mut()
        .unwrap()
        .remove("in_reply_to_email_id");
    let mut empty = inbound();
    empty["in_reply_to_email_id"] = json!("");

    for data in [&absent, &empty] {
        let event = event("email.received", data);

        assert_eq!(serde_json::to_value(&event).unwrap()["data"], absent);
        let EventData::Received(mail) = event.data else {
            panic!("{event:?}");
        };
        assert_eq!(mail.in_reply_to_email_id, None);
    }
}

#[test]
fn inbound_mail_can_be_built_serialized_and_parsed() {
    let mut mail = InboundMail::new("in_1", "a@example.com", ["b@example.com"], "Hi");
    mail.authentication_results = "mx; spf=none".into();

    let json = serde_json::to_string(&mail).unwrap();

    assert_eq!(serde_json::from_str::<InboundMail>(&json).unwrap(), mail);
}

#[test]
fn the_address_of_a_mail_is_the_recipient_as_contacts_are_stored() {
    let mail = MailEvent::new("em_1", "us@example.com", " Ada@Example.com ", "Hi");

    assert_eq!(mail.address(), "ada@example.com");
}

#[test]
fn quotes_hide_a_parenthesis_and_a_backslash_outside_of_them_hides_nothing() {
    for before in [r#"smtp.mailfrom="(""#, r"reason=a\"] {
        let results = AuthenticationResults::from(format!("mx; spf=pass {before}; dkim=fail"));

        assert_eq!(results.spf(), Some(CheckResult::Pass), "{before}");
        assert_eq!(results.dkim(), Some(CheckResult::Fail), "{before}");
    }
}
