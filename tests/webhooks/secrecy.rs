//! RUSTSEC-2022-0087: secrets were written to logs. No public type prints a secret or a computed MAC,
//! in any encoding.

use std::fmt::Debug;

use audience::webhooks::{SIGNATURE_HEADER, Signer, Verifier, VerifyError};

use support::trace_log::Log;

use super::{BODY, NOW, SECRET, at, signed, signed_at, verifier};

/// Returns the encodings in which the secret or the MAC of the delivery could be printed.
fn forbidden_texts() -> Vec<String> {
    let signature = signed(BODY)[SIGNATURE_HEADER].to_str().unwrap().to_owned();
    let hex: String = SECRET.bytes().map(|byte| format!("{byte:02x}")).collect();
    let decimal = format!("{:?}", SECRET.as_bytes());
    let mac = (0..signature.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&signature[at..at + 2], 16).unwrap())
        .collect::<Vec<u8>>();
    vec![
        SECRET.to_owned(),
        hex,
        decimal.trim_matches(['[', ']']).to_owned(),
        signature,
        format!("{mac:?}").trim_matches(['[', ']']).to_owned(),
    ]
}

fn assert_shows_no_secret(printed: &str) {
    for forbidden in forbidden_texts() {
        assert!(!printed.contains(&forbidden), "{printed}");
    }
}

fn assert_debug_shows_no_secret(value: &impl Debug) {
    assert_shows_no_secret(&format!("{value:?}"));
    assert_shows_no_secret(&format!("{value:#?}"));
}

#[test]
fn no_public_type_prints_a_secret_or_a_mac() {
    let verifier = verifier();
    let headers = signed(BODY);

    assert_debug_shows_no_secret(&Verifier::builder().secret("main", SECRET));
    assert_debug_shows_no_secret(&verifier);
    assert_debug_shows_no_secret(&Signer::new(SECRET).unwrap());
    assert_debug_shows_no_secret(&verifier.authenticate(&headers, BODY.as_bytes()).unwrap());
    assert_debug_shows_no_secret(&verifier.verify(&headers, BODY.as_bytes()).unwrap());
    assert_debug_shows_no_secret(&verifier.diagnose(&headers, b"{}", [("main", SECRET)]));
    let diagnosis = verifier.diagnose(&headers, b"{}", [("main", SECRET)]);
    assert_shows_no_secret(&diagnosis.to_string());
}

#[test]
fn the_debug_text_of_a_verifier_has_the_names_of_its_secrets() {
    let printed = format!("{:?}", verifier());

    assert!(printed.contains(r#"secrets: ["main"]"#), "{printed}");
}

#[test]
fn no_error_prints_a_secret_a_mac_or_the_body() {
    let body = BODY.replace("evt_1", "personal\\ndata");
    let mut malformed = signed(BODY);
    malformed.insert(SIGNATURE_HEADER, SECRET.parse().unwrap());
    let errors: Vec<VerifyError> = [
        (signed(BODY), body.as_str()),
        (signed(&body), &body),
        (signed_at(NOW - 1000, BODY), BODY),
        (malformed, BODY),
        (signed("personal data"), "personal data"),
    ]
    .into_iter()
    .map(|(headers, body)| verifier().verify(&headers, body.as_bytes()).unwrap_err())
    .collect();

    for error in errors {
        assert_debug_shows_no_secret(&error);
        assert_shows_no_secret(&error.to_string());
        assert!(!format!("{error} {error:?}").contains("personal"));
        let text = error.to_string();
        assert!(
            text.starts_with(char::is_lowercase) && !text.ends_with('.'),
            "{text}"
        );
    }
}

#[test]
fn a_refused_secret_is_not_printed() {
    for secret in [
        format!("{SECRET}\n"),
        format!("{SECRET}\0"),
        format!("<{SECRET}>"),
    ] {
        let error = Verifier::new(&secret).unwrap_err();

        assert_debug_shows_no_secret(&error);
        assert_shows_no_secret(&error.to_string());
        assert_debug_shows_no_secret(&Signer::new(&secret).unwrap_err());
    }
}

#[test]
fn trace_events_contain_no_secret_and_no_mac() {
    let log = Log::start();

    let forged = Signer::new("another secret").unwrap();
    let forged = forged.sign(&"email.sent".into(), at(NOW), BODY);
    let _ = verifier().verify(&signed(BODY), BODY.as_bytes());
    let _ = verifier().verify(&forged, BODY.as_bytes());
    let _ = verifier().verify(&http::HeaderMap::new(), BODY.as_bytes());

    let printed = log.text();
    assert_shows_no_secret(&printed);
    assert!(
        printed.contains("webhook delivery authenticated"),
        "{printed}"
    );
    assert!(printed.contains("webhook delivery rejected"), "{printed}");
    assert!(printed.contains("header is missing"), "{printed}");
}
