//! Interface section 6.2: which bodies are events.

use audience::Timestamp;
use audience::webhooks::{
    EnvelopeProblem, Event, EventData, EventId, EventType, VerifiedEvent, VerifyError,
};
use clap::Parser;
use serde::de::DeserializeOwned;
use serde_json::json;
use static_assertions::assert_not_impl_any;

use super::{BODY, signed, verifier};

fn read(body: &str) -> Result<Event, EnvelopeProblem> {
    match verifier().verify(&signed(body), body.as_bytes()) {
        Ok(event) => Ok(event),
        Err(VerifyError::InvalidEnvelope { problem }) => Err(problem),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn the_id_of_an_event_is_its_text() {
    let id = EventId::try_from("evt_1").unwrap();

    assert_eq!(id.as_ref(), "evt_1");
    assert_eq!(format!("{id:>6}"), " evt_1");
}

#[test]
fn an_event_id_is_parsed_as_a_command_line_gives_it() {
    #[derive(Debug, clap::Parser)]
    struct Options {
        id: EventId,
    }
    let parse = |id: &str| Options::try_parse_from(["replay", id]).map(|options| options.id);

    assert_eq!(parse("evt_1").unwrap().as_str(), "evt_1");
    for invalid in ["evt\n1", &"x".repeat(256)] {
        let reason = invalid.parse::<EventId>().unwrap_err();
        let refused = parse(invalid).unwrap_err().to_string();
        assert!(refused.contains(&reason.to_string()), "{refused}");
    }
}

#[test]
fn members_are_read_in_any_order_and_unknown_ones_are_ignored() {
    let data = r#"{"email_id":"e","from":"f","to":"t","subject":"s","bounce_type":"","detail":"","new":[{}]}"#;
    let expected = read(&format!(
        r#"{{"id":"evt_1","type":"email.opened","created_at":5,"data":{data}}}"#
    ))
    .unwrap();

    let members = [
        r#""id":"evt_1""#.to_owned(),
        r#""type":"email.opened""#.to_owned(),
        r#""created_at":5"#.to_owned(),
        format!(r#""data":{data}"#),
        r#""version":{"data":[1,2],"id":null}"#.to_owned(),
    ];
    for rotation in 0..members.len() {
        for reversed in [false, true] {
            let mut order = members.clone();
            order.rotate_left(rotation);
            if reversed {
                order.reverse();
            }

            assert_eq!(
                read(&format!("{{{}}}", order.join(","))).as_ref(),
                Ok(&expected)
            );
        }
    }
    assert!(matches!(expected.data, EventData::Opened(_)));
}

#[test]
fn an_event_of_unknown_type_keeps_its_json() {
    for body in [
        r#"{"id":"evt_1","type":"email.snoozed","created_at":5,"data":{"until":[7]}}"#,
        r#"{"data":{"until":[7]},"created_at":5,"type":"email.snoozed","id":"evt_1"}"#,
    ] {
        let event = read(body).unwrap();

        assert_eq!(event.id.as_str(), "evt_1");
        assert_eq!(
            event.event_type(),
            EventType::Other("email.snoozed".to_owned())
        );
        assert_eq!(event.created_at, Timestamp::from_unix(5));
        assert_eq!(event.mail(), None);
        match event.data {
            EventData::Unknown { event_type, data } => {
                assert_eq!(event_type.as_str(), "email.snoozed");
                assert_eq!(data, json!({"until": [7]}));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_event_of_known_type_with_data_of_another_shape_keeps_its_json() {
    for data in [
        "{}",
        "null",
        "7",
        r#""text""#,
        "[]",
        r#"["em_1","from","to","subject","Permanent","detail"]"#,
        r#"{"email_id":"e","from":"f","to":["t"],"subject":"s"}"#,
        r#"{"email_id":7,"from":"f","to":"t","subject":"s"}"#,
        r#"{"email_id":"e","from":"f","to":"t","to":"t","subject":"s"}"#,
    ] {
        for event_type in ["email.bounced", "email.received"] {
            for body in [
                format!(r#"{{"id":"evt_1","type":"{event_type}","created_at":5,"data":{data}}}"#),
                format!(r#"{{"data":{data},"id":"evt_1","type":"{event_type}","created_at":5}}"#),
            ] {
                let event = read(&body).unwrap();

                assert_eq!(event.id.as_str(), "evt_1");
                assert_eq!(event.event_type().as_str(), event_type);
                let EventData::Unknown { data: kept, .. } = event.data else {
                    panic!("{body}");
                };
                assert_eq!(
                    kept,
                    serde_json::from_str::<serde_json::Value>(data).unwrap()
                );
            }
        }
    }
}

#[test]
fn missing_data_is_null() {
    let event = read(r#"{"id":"evt_1","type":"email.sent","created_at":5}"#).unwrap();

    assert!(matches!(event.data, EventData::Unknown { data, .. } if data.is_null()));
}

#[test]
fn a_body_with_a_missing_repeated_or_invalid_member_is_refused() {
    let missing = |member| EnvelopeProblem::Missing { member };
    let duplicate = |member| EnvelopeProblem::Duplicate { member };
    let invalid = |member| EnvelopeProblem::Invalid { member };
    let long = "x".repeat(256);

    for (body, problem) in [
        (r#"{"type":"a","created_at":1,"data":{}}"#, missing("id")),
        (r#"{"id":"e","created_at":1,"data":{}}"#, missing("type")),
        (r#"{"id":"e","type":"a","data":{}}"#, missing("created_at")),
        ("{}", missing("id")),
        (
            r#"{"id":"e","id":"e","type":"a","created_at":1}"#,
            duplicate("id"),
        ),
        (
            r#"{"id":"e","type":"a","created_at":1,"data":{},"\u0069d":"f"}"#,
            duplicate("id"),
        ),
        (
            r#"{"id":"e","type":"a","type":"b","created_at":1}"#,
            duplicate("type"),
        ),
        (
            r#"{"id":"e","type":"a","created_at":1,"created_at":1}"#,
            duplicate("created_at"),
        ),
        (
            r#"{"id":"e","type":"a","created_at":1,"data":{},"data":{}}"#,
            duplicate("data"),
        ),
        (
            r#"{"data":{},"id":"e","data":{},"type":"a","created_at":1}"#,
            duplicate("data"),
        ),
        (r#"{"id":"","type":"a","created_at":1}"#, invalid("id")),
        (r#"{"id":null,"type":"a","created_at":1}"#, invalid("id")),
        (r#"{"id":7,"type":"a","created_at":1}"#, invalid("id")),
        (r#"{"id":["e"],"type":"a","created_at":1}"#, invalid("id")),
        (
            r#"{"id":"a\u0000","type":"a","created_at":1}"#,
            invalid("id"),
        ),
        (r#"{"id":"a\nb","type":"a","created_at":1}"#, invalid("id")),
        (
            r#"{"id":"a\u0085b","type":"a","created_at":1}"#,
            invalid("id"),
        ),
        (
            &format!(r#"{{"id":"{long}","type":"a","created_at":1}}"#),
            invalid("id"),
        ),
        (r#"{"id":"e","type":7,"created_at":1}"#, invalid("type")),
        (r#"{"id":"e","type":null,"created_at":1}"#, invalid("type")),
        (
            r#"{"id":"e","type":"a","created_at":"1"}"#,
            invalid("created_at"),
        ),
        (
            r#"{"id":"e","type":"a","created_at":1.5}"#,
            invalid("created_at"),
        ),
        (
            r#"{"id":"e","type":"a","created_at":1.0}"#,
            invalid("created_at"),
        ),
        (
            r#"{"id":"e","type":"a","created_at":null}"#,
            invalid("created_at"),
        ),
        (
            r#"{"id":"e","type":"a","created_at":9223372036854775808}"#,
            invalid("created_at"),
        ),
        ("[]", EnvelopeProblem::NotAnObject),
        (r#"["e","a",1,{}]"#, EnvelopeProblem::NotAnObject),
        ("null", EnvelopeProblem::NotAnObject),
        (r#""evt""#, EnvelopeProblem::NotAnObject),
    ] {
        assert_eq!(read(body), Err(problem), "{body}");
    }
}

#[test]
fn a_body_that_is_not_json_is_refused() {
    let whole = BODY;
    let not_json = |body: &str| matches!(read(body), Err(EnvelopeProblem::NotJson { .. }));

    for end in 0..whole.len() {
        assert!(not_json(&whole[..end]), "{end}");
    }
    assert!(not_json(&format!("{whole}{whole}")));
    assert!(not_json(&format!("{whole},")));
    assert!(not_json(&format!("\u{feff}{whole}")));
    assert!(not_json(&whole.replace("evt_1", "evt_\n1")));
    assert!(not_json(&whole.replace("evt_1", "\\ud800")));
    assert!(read(&format!("\r\n {whole}\n")).is_ok());
}

#[test]
fn a_body_with_invalid_utf8_anywhere_is_refused() {
    for body in [
        b"\xff".as_slice(),
        b"{\"id\":\"\xc3\",\"type\":\"a\",\"created_at\":1}",
        b"{\"id\":\"e\",\"type\":\"a\",\"created_at\":1,\"unknown\":\"\xed\xa0\x80\"}",
    ] {
        let problem = EnvelopeProblem::NotUtf8;

        assert_eq!(
            verifier().verify(&signed(body), body),
            Err(VerifyError::InvalidEnvelope { problem })
        );
    }
}

#[test]
fn an_id_of_255_bytes_and_any_integer_as_time_are_accepted() {
    let id = "x".repeat(255);
    for created_at in [i64::MIN, -1, 0, i64::MAX] {
        let event = read(&format!(
            r#"{{"id":"{id}","type":"a","created_at":{created_at}}}"#
        ));

        let event = event.unwrap();
        assert_eq!(event.id.as_str(), id);
        assert_eq!(event.created_at.as_unix(), created_at);
    }
}

#[test]
fn deep_nesting_does_not_overflow_the_stack_and_is_ignored_in_unknown_members() {
    let deep = format!("{}{}", "[".repeat(500_000), "]".repeat(500_000));
    let within = |member: &str| {
        let body = BODY.replacen('{', &format!("{{\"{member}\":{deep},"), 1);
        read(&body)
    };

    assert!(within("unknown").is_ok());
    assert!(within("id").is_err());
    assert!(matches!(read(&deep), Err(EnvelopeProblem::NotAnObject)));
}

#[test]
fn data_that_a_json_value_cannot_hold_is_kept_as_its_text() {
    let deep = format!("{}{}", "[".repeat(500_000), "]".repeat(500_000));
    for data in [
        deep.as_str(),
        r#"{"subject":"\ud800"}"#,
        r#"{"amount":1e999}"#,
    ] {
        for event_type in ["email.sent", "email.snoozed"] {
            let early =
                format!(r#"{{"data":{data},"id":"e","type":"{event_type}","created_at":1}}"#);
            let late =
                format!(r#"{{"id":"e","type":"{event_type}","created_at":1,"data":{data}}}"#);

            for body in [early, late] {
                let event = read(&body).unwrap();
                let kept = EventData::Unknown {
                    event_type: event_type.into(),
                    data: data.into(),
                };

                assert_eq!(event.id.as_str(), "e");
                assert!(event.data == kept, "{event_type}: {data:.40}");
            }
        }
    }
}

#[test]
fn an_event_serializes_to_the_body_of_its_delivery() {
    let event = read(BODY).unwrap();

    assert_eq!(serde_json::to_string(&event).unwrap(), BODY);
    let value = serde_json::to_value(&event).unwrap();
    let stored = value.to_string();
    assert_eq!(
        Event::from_unverified_json(stored.as_bytes()).unwrap(),
        event
    );
}

#[test]
fn an_event_cannot_be_deserialized_without_its_signature_by_accident() {
    assert_not_impl_any!(Event: DeserializeOwned);
    assert_not_impl_any!(EventData: DeserializeOwned);
    assert_not_impl_any!(VerifiedEvent: DeserializeOwned);
}

#[test]
fn the_error_of_an_id_that_is_no_text_says_what_was_expected() {
    let error = serde_json::from_str::<EventId>("5").unwrap_err();

    assert!(
        error.to_string().contains("expected an event id"),
        "{error}"
    );
}
