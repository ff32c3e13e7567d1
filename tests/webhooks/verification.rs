//! Interface section 5: headers, signature, time window.

use std::collections::BTreeSet;
use std::time::{Duration, UNIX_EPOCH};

use audience::webhooks::{
    EVENT_HEADER, Event, EventType, FaultSide, SIGNATURE_HEADER, SignatureHint, Signer,
    TIMESTAMP_HEADER, Verifier, VerifyError,
};
use aws_lc_rs::hmac;
use http::{HeaderValue, StatusCode};
use proptest::prelude::*;

use super::{BODY, NOW, SECRET, at, signed, signed_at, verifier};

#[test]
fn a_genuine_delivery_is_accepted_by_every_verify_method() {
    let verifier = verifier();
    let headers = signed(BODY);
    let body = BODY.as_bytes();
    let signature = headers[SIGNATURE_HEADER].to_str().unwrap();
    let timestamp = headers[TIMESTAMP_HEADER].to_str().unwrap();

    let event = verifier.verify(&headers, body).unwrap();

    assert_eq!(event.id.as_str(), "evt_1");
    assert_eq!(
        verifier.verify_at(&headers, body, at(NOW)).as_ref(),
        Ok(&event)
    );
    assert_eq!(
        verifier
            .verify_parts(Some(signature), Some(timestamp), body)
            .as_ref(),
        Ok(&event)
    );
    assert_eq!(
        verifier
            .verify_parts(Some(signature.as_bytes()), Some(timestamp.as_bytes()), body)
            .as_ref(),
        Ok(&event)
    );
    assert_eq!(Event::from_unverified_json(body), Ok(event));
}

#[test]
fn a_delivery_is_accepted_up_to_the_edge_of_the_window() {
    for seconds in [NOW - 300, NOW - 1, NOW, NOW + 1, NOW + 300] {
        let result = verifier().verify(&signed_at(seconds, BODY), BODY.as_bytes());

        assert!(result.is_ok(), "{seconds}");
    }
}

#[test]
fn a_late_but_genuine_delivery_is_reported_as_late() {
    let error = verifier()
        .verify(&signed_at(NOW - 301, BODY), BODY.as_bytes())
        .unwrap_err();

    let skew = Duration::from_secs(301);
    assert_eq!(error, VerifyError::TooLate { skew });
    assert_eq!(error.skew(), Some(skew));
    assert_eq!(error.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(
        error.to_string(),
        "the delivery is genuine but 301 seconds old"
    );
}

#[test]
fn an_early_but_genuine_delivery_is_reported_as_early() {
    let error = verifier()
        .verify(&signed_at(NOW + 301, BODY), BODY.as_bytes())
        .unwrap_err();

    let skew = Duration::from_secs(301);
    assert_eq!(error, VerifyError::TooEarly { skew });
    assert_eq!(error.fault_side(), FaultSide::Either);
}

#[test]
fn a_delivery_that_is_too_long_or_no_event_may_be_the_fault_of_either_side() {
    let body = "{}";
    let small = Verifier::builder().secret("main", SECRET).body_limit(1);
    let small = small.build().unwrap();

    let too_long = small.verify_at(&signed(body), body.as_bytes(), at(NOW));
    let no_event = verifier().verify(&signed(body), body.as_bytes());

    for (result, status) in [(too_long, 413_u16), (no_event, 400)] {
        let error = result.unwrap_err();
        assert_eq!(error.status(), status);
        assert_eq!(error.fault_side(), FaultSide::Either);
    }
}

#[test]
fn a_late_forgery_is_reported_as_forged() {
    let mut headers = signed_at(NOW - 1000, BODY);
    headers.insert(SIGNATURE_HEADER, HeaderValue::from_static(ZEROS));

    let error = verifier().verify(&headers, BODY.as_bytes()).unwrap_err();

    assert_eq!(error, VerifyError::SignatureMismatch);
    assert_eq!(error.status(), 401);
    assert_eq!(error.skew(), None);
}

const ZEROS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

#[test]
fn fractions_of_a_second_are_ignored() {
    let now = at(NOW) + Duration::from_millis(999);

    let result = verifier().verify_at(&signed_at(NOW - 300, BODY), BODY.as_bytes(), now);

    assert!(result.is_ok());
}

#[test]
fn a_timestamp_of_zero_is_late_but_not_malformed() {
    let error = verifier()
        .verify(&signed_at(0, BODY), BODY.as_bytes())
        .unwrap_err();

    assert!(matches!(error, VerifyError::TooLate { .. }));
}

#[test]
fn a_missing_header_is_named() {
    for header in [SIGNATURE_HEADER, TIMESTAMP_HEADER] {
        let mut headers = signed(BODY);
        headers.remove(header);

        let error = verifier().verify(&headers, BODY.as_bytes()).unwrap_err();

        assert_eq!(error, VerifyError::MissingHeader { header });
        assert_eq!(error.status(), 400);
    }
    let nothing: Option<&str> = None;
    let header = SIGNATURE_HEADER;
    assert_eq!(
        verifier().verify_parts(nothing, nothing, b""),
        Err(VerifyError::MissingHeader { header })
    );
}

#[test]
fn a_repeated_header_is_refused_even_if_both_values_are_equal() {
    for header in [SIGNATURE_HEADER, TIMESTAMP_HEADER] {
        let mut headers = signed(BODY);
        headers.append(header, headers[header].clone());

        let error = verifier().verify(&headers, BODY.as_bytes()).unwrap_err();

        assert_eq!(error, VerifyError::DuplicateHeader { header });
        assert_eq!(error.status(), 400);
    }
}

#[test]
fn the_error_for_a_malformed_signature_has_a_hint() {
    for (value, hint) in [
        ("", SignatureHint::Empty),
        (
            "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=",
            SignatureHint::StandardWebhooks,
        ),
        ("sha256=00", SignatureHint::AlgorithmPrefix),
        (
            "K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=",
            SignatureHint::Base64,
        ),
        ("00", SignatureHint::WrongLength),
    ] {
        let mut headers = signed(BODY);
        headers.insert(SIGNATURE_HEADER, HeaderValue::from_static(value));

        let error = verifier().verify(&headers, BODY.as_bytes()).unwrap_err();

        assert_eq!(error, VerifyError::MalformedSignature { hint });
        assert_eq!(error.status(), 400);
    }
}

#[test]
fn each_hint_about_a_signature_has_words_of_its_own() {
    let hints = [
        SignatureHint::Empty,
        SignatureHint::Whitespace,
        SignatureHint::StandardWebhooks,
        SignatureHint::AlgorithmPrefix,
        SignatureHint::UpperCase,
        SignatureHint::Base64,
        SignatureHint::WrongLength,
        SignatureHint::Unrecognized,
    ];

    let words: BTreeSet<_> = hints.iter().map(ToString::to_string).collect();

    assert_eq!(words.len(), hints.len());
    assert!(words.iter().all(|words| words.starts_with("the value ")));
}

#[test]
fn a_body_at_the_limit_is_accepted_and_one_byte_more_is_refused() {
    let verifier = |limit| {
        Verifier::builder()
            .secret("main", SECRET)
            .body_limit(limit)
            .build()
            .unwrap()
    };
    let headers = signed(BODY);
    let limit = BODY.len();

    let longest = verifier(limit).verify_at(&headers, BODY.as_bytes(), at(NOW));
    let longer = verifier(limit - 1).verify_at(&headers, BODY.as_bytes(), at(NOW));

    assert!(longest.is_ok());
    assert_eq!(longer, Err(VerifyError::BodyTooLarge { limit: limit - 1 }));
    assert_eq!(longer.unwrap_err().status(), 413);
    assert_eq!(Verifier::new(SECRET).unwrap().body_limit(), 2 * 1024 * 1024);
}

#[test]
fn during_a_rotation_either_secret_is_accepted_and_named() {
    let verifier = Verifier::builder()
        .secret("2026", "the new secret")
        .secret("2025", SECRET)
        .clock(|| at(NOW))
        .build()
        .unwrap();
    let new = Signer::new("the new secret").unwrap();

    for (headers, name) in [
        (signed(BODY), "2025"),
        (new.sign(&"email.bounced".into(), at(NOW), BODY), "2026"),
    ] {
        let delivery = verifier.authenticate(&headers, BODY.as_bytes()).unwrap();

        assert_eq!(delivery.secret_name(), name);
    }
}

#[test]
fn a_verified_delivery_has_its_body_timestamp_and_skew() {
    for (seconds, skew, is_early) in [(NOW - 7, 7, false), (NOW + 7, 7, true), (NOW, 0, false)] {
        let headers = signed_at(seconds, "not JSON");
        let verifier = verifier();

        let delivery = verifier.authenticate(&headers, b"not JSON").unwrap();

        assert_eq!(delivery.body(), b"not JSON");
        assert_eq!(delivery.timestamp().as_unix().unsigned_abs(), seconds);
        assert_eq!(delivery.skew(), Duration::from_secs(skew));
        assert_eq!(delivery.is_early(), is_early);
        assert_eq!(delivery.secret_name(), "main");
        assert!(!delivery.event_header_agrees());
        assert_eq!(delivery.event().unwrap_err().status(), 400);
    }
}

#[test]
fn the_event_header_is_compared_but_never_decides() {
    let verifier = verifier();
    let delivered = HeaderValue::from_static("email.delivered");
    let odd = HeaderValue::from_bytes(b"\xff").unwrap();
    let mut missing = signed(BODY);
    missing.remove(EVENT_HEADER);
    let mut different = signed(BODY);
    different.insert(EVENT_HEADER, delivered.clone());
    let mut twice = signed(BODY);
    twice.append(EVENT_HEADER, delivered);
    let mut not_text = signed(BODY);
    not_text.insert(EVENT_HEADER, odd);

    for (headers, agrees) in [
        (signed(BODY), true),
        (missing, false),
        (different, false),
        (twice, false),
        (not_text, false),
    ] {
        let delivery = verifier.authenticate(&headers, BODY.as_bytes()).unwrap();

        assert_eq!(delivery.event_header_agrees(), agrees, "{headers:?}");
        assert_eq!(
            delivery.event().unwrap().event_type().as_str(),
            "email.bounced"
        );
    }
}

#[test]
fn a_clock_before_1970_is_an_error_of_the_operator_and_does_not_panic() {
    let before = UNIX_EPOCH - Duration::from_secs(1);

    let error = verifier()
        .verify_at(&signed(BODY), BODY.as_bytes(), before)
        .unwrap_err();

    assert_eq!(error, VerifyError::ClockUnusable);
    assert_eq!(error.status(), 500);
    assert_eq!(error.fault_side(), FaultSide::Operator);
}

#[test]
fn the_smallest_and_the_largest_tolerance_work() {
    let build = |tolerance| {
        Verifier::builder()
            .secret("main", SECRET)
            .tolerance(tolerance)
            .build()
            .unwrap()
    };
    let (exact, lax) = (build(Duration::ZERO), build(Duration::MAX));

    let verify = |verifier: &Verifier, seconds| {
        verifier.verify_at(&signed_at(seconds, BODY), BODY.as_bytes(), at(NOW))
    };

    assert!(verify(&exact, NOW).is_ok());
    assert!(verify(&exact, NOW - 1).is_err());
    assert!(verify(&lax, 0).is_ok());
    assert!(verify(&lax, NOW * 1000).is_ok());
}

#[test]
fn a_verifier_needs_a_secret_and_unique_names() {
    let build = |names: &[&str]| {
        names
            .iter()
            .fold(Verifier::builder(), |builder, name| {
                builder.secret(*name, SECRET)
            })
            .build()
    };

    let (missing, repeated) = (
        build(&[]).unwrap_err(),
        build(&["a", "b", "a"]).unwrap_err(),
    );
    assert_eq!(missing.to_string(), "no signing secret was added");
    let expected = r#"two signing secrets have the name "a"; rename one of them"#;
    assert_eq!(repeated.to_string(), expected);
    assert!(build(&["a", "b"]).is_ok());
}

#[test]
fn an_unusable_secret_is_refused_by_name_even_if_another_is_usable() {
    let result = Verifier::builder()
        .secret("new", "")
        .secret("old", SECRET)
        .build();

    let error = result.unwrap_err().to_string();
    assert_eq!(error, r#"the signing secret "new" is empty"#);
}

#[test]
fn secrets_may_be_text_or_bytes() {
    let body = BODY.as_bytes();
    let headers = Signer::new(b"\xff\x00\xfe")
        .unwrap()
        .sign(&"email.sent".into(), at(NOW), body);

    for verifier in [
        Verifier::new(b"\xff\x00\xfe"),
        Verifier::new(vec![0xff, 0, 0xfe]),
        Verifier::new([0xff, 0, 0xfe].as_slice()),
    ] {
        assert!(verifier.unwrap().verify_at(&headers, body, at(NOW)).is_ok());
    }
    assert!(Verifier::new(String::from(SECRET)).is_ok());
    assert!(Verifier::new([0xf7_u8; 32]).is_ok());
}

proptest! {
    #[test]
    fn another_implementation_makes_the_same_signatures(
        secret in prop::collection::vec(any::<u8>(), 1..200),
        seconds in 0..=i64::MAX.unsigned_abs(),
        body in prop::collection::vec(any::<u8>(), 0..1000),
    ) {
        let signer = Signer::new(&secret);
        // The rest is refused as the remains of a badly read file.
        prop_assume!(signer.is_ok());

        let headers = signer.unwrap().sign(&EventType::Sent, at(seconds), &body);

        let message = [seconds.to_string().as_bytes(), b".", &body].concat();
        let key = hmac::Key::new(hmac::HMAC_SHA256, &secret);
        let theirs = hex::encode(hmac::sign(&key, &message));
        prop_assert_eq!(headers[SIGNATURE_HEADER].as_bytes(), theirs.as_bytes());
    }
}
