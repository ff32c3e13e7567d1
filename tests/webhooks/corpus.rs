//! Verifies the signed deliveries of `fixtures/webhooks` and parses the events of `fixtures/events`.

use std::collections::HashSet;
use std::fs;

use audience::webhooks::{
    CheckResult, Event, EventData, EventType, SIGNATURE_HEADER, TIMESTAMP_HEADER, VerifyError,
};
use serde_json::Value;

use support::deliveries::{self, fixtures};

#[test]
fn every_delivery_of_the_corpus_has_the_expected_outcome() {
    let deliveries = deliveries::all();

    let wrong: Vec<String> = deliveries
        .iter()
        .filter_map(|delivery| {
            let moment = delivery.moment();
            delivery.check(&delivery.verifier(move || moment)).err()
        })
        .collect();

    assert!(deliveries.len() >= 400, "only {}", deliveries.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn all_verify_methods_agree() {
    for delivery in deliveries::all() {
        let moment = delivery.moment();
        let verifier = delivery.verifier(move || moment);
        let (headers, body) = (delivery.header_map(), delivery.body());

        let outcome = verifier.verify(&headers, &body);

        assert_eq!(
            verifier.verify_at(&headers, &body, moment),
            outcome,
            "{}",
            delivery.name
        );
        let value = |name| headers.get(name).map(http::HeaderValue::as_bytes);
        let (signature, timestamp) = (value(SIGNATURE_HEADER), value(TIMESTAMP_HEADER));
        if !matches!(outcome, Err(VerifyError::DuplicateHeader { .. })) {
            assert_eq!(
                verifier.verify_parts(signature, timestamp, &body),
                outcome,
                "{}",
                delivery.name
            );
        }
    }
}

#[test]
fn the_names_of_the_deliveries_are_unique() {
    let deliveries = deliveries::all();

    let names: HashSet<&str> = deliveries
        .iter()
        .filter_map(|delivery| delivery.name.split_once(": "))
        .map(|(_, name)| name)
        .collect();

    assert_eq!(names.len(), deliveries.len());
}

#[test]
fn every_event_fixture_is_parsed_and_serialized_without_loss() {
    let mut types = Vec::new();
    for path in fixtures("events") {
        let text = fs::read(&path).unwrap();

        let event = Event::from_unverified_json(&text).unwrap();
        let written = serde_json::to_value(&event).unwrap();

        let original: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(written, original, "{}", path.display());
        let name = path.file_stem().unwrap().to_str().unwrap();
        let (section, kind) = name.split_once('-').unwrap();
        assert_eq!(event.event_type().as_str(), kind.trim_end_matches("-reply"));
        assert_eq!(event.mail().is_some(), section == "6.3", "{name}");
        assert!(!matches!(event.data, EventData::Unknown { .. }), "{name}");
        types.push(event.event_type());
    }

    for known in EventType::KNOWN {
        assert!(types.contains(known), "no file for {known}");
    }
}

#[test]
fn a_reply_has_the_id_it_replies_to_and_its_authentication_results() {
    let path = fixtures("events")
        .into_iter()
        .find(|path| path.ends_with("6.4-email.received-reply.json"));
    let event = Event::from_unverified_json(&fs::read(path.unwrap()).unwrap()).unwrap();

    let EventData::Received(mail) = event.data else {
        panic!("{event:?}")
    };

    assert_eq!(mail.in_reply_to_email_id.as_deref(), Some("email_1"));
    assert_eq!(mail.to.len(), 2);
    let results = &mail.authentication_results;
    assert_eq!(results.authserv_id(), Some("mx.example.com"));
    assert_eq!(results.spf(), Some(CheckResult::SoftFail));
    assert_eq!(results.mail_from_domain(), Some("example.net"));
    assert_eq!(results.dkim(), Some(CheckResult::NotEvaluated));
    assert_eq!(results.dmarc(), Some(CheckResult::NotEvaluated));
}
