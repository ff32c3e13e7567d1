//! Vulnerabilities of other webhook libraries, one test for each.

use std::time::{Duration, UNIX_EPOCH};

use audience::webhooks::{
    EVENT_HEADER, EventData, SIGNATURE_HEADER, Signer, TIMESTAMP_HEADER, Verifier, VerifyError,
};
use http::HeaderValue;

use super::{BODY, NOW, SECRET, at, signed, verifier};

/// RUSTSEC-2024-0010: only the length of the shorter signature was compared.
#[test]
fn an_empty_or_shortened_signature_is_refused() {
    let whole = signed(BODY)[SIGNATURE_HEADER].to_str().unwrap().to_owned();

    for length in 0..whole.len() {
        let mut headers = signed(BODY);
        let cut = HeaderValue::from_str(&whole[..length]).unwrap();
        headers.insert(SIGNATURE_HEADER, cut);

        let error = verifier().verify(&headers, BODY.as_bytes()).unwrap_err();

        assert!(matches!(error, VerifyError::MalformedSignature { .. }));
    }
}

/// CVE-2025-53548: a list of signatures in one header was parsed wrongly.
#[test]
fn a_list_of_signatures_is_refused() {
    let genuine = signed(BODY)[SIGNATURE_HEADER].to_str().unwrap().to_owned();

    for list in [
        format!("{genuine},{genuine}"),
        format!("{genuine} {genuine}"),
        format!("{genuine},"),
        format!(",{genuine}"),
        format!("v1,{genuine}"),
        format!("v1={genuine}"),
        format!("{} {genuine}", "0".repeat(64)),
    ] {
        let mut headers = signed(BODY);
        headers.insert(SIGNATURE_HEADER, list.parse().unwrap());

        let error = verifier().verify(&headers, BODY.as_bytes()).unwrap_err();

        assert!(
            matches!(error, VerifyError::MalformedSignature { .. }),
            "{list}"
        );
    }
}

/// HMAC treats empty and all-NUL secrets as the same key, which everyone knows.
#[test]
fn an_empty_secret_and_one_that_ends_with_nul_are_refused() {
    for secret in ["", "\0", "\0\0\0\0\0\0\0\0", "secret\0"] {
        let refused = [
            Verifier::new(secret).unwrap_err().to_string(),
            Signer::new(secret).unwrap_err().to_string(),
        ];

        let problem = if secret.is_empty() {
            "is empty"
        } else {
            "a NUL"
        };
        assert!(
            refused.iter().all(|text| text.contains(problem)),
            "{refused:?}"
        );
    }
}

/// An unauthenticated timestamp was used in arithmetic and overflowed.
#[test]
fn an_unauthenticated_timestamp_does_not_overflow() {
    let zeros = "0".repeat(64);

    for (timestamp, expected) in [
        ("18446744073709551615", VerifyError::SignatureMismatch),
        ("9223372036854775808", VerifyError::SignatureMismatch),
        ("18446744073709551616", VerifyError::MalformedTimestamp),
        ("-9223372036854775808", VerifyError::MalformedTimestamp),
        (&"9".repeat(10_000), VerifyError::MalformedTimestamp),
    ] {
        let result = verifier().verify_parts(Some(zeros.as_str()), Some(timestamp), b"{}");

        assert_eq!(result, Err(expected));
    }
}

/// The same for genuine deliveries, which reach the arithmetic.
#[test]
fn the_largest_timestamp_does_not_overflow() {
    let headers = signed(BODY);
    // The clock of Windows ends earlier.
    let latest = UNIX_EPOCH.checked_add(Duration::from_secs(i64::MAX.unsigned_abs()));
    let latest = latest.unwrap_or_else(|| at(900_000_000_000));
    let far = Signer::new(SECRET)
        .unwrap()
        .sign(&"email.sent".into(), latest, BODY);

    let early = verifier().verify(&far, BODY.as_bytes());
    let late = verifier().verify_at(&headers, BODY.as_bytes(), latest);

    assert!(matches!(early, Err(VerifyError::TooEarly { .. })));
    assert!(matches!(late, Err(VerifyError::TooLate { .. })));
}

/// The type was taken from the unsigned header.
#[test]
fn the_type_comes_from_the_signed_body() {
    let mut headers = signed(BODY);
    headers.insert(EVENT_HEADER, HeaderValue::from_static("email.delivered"));

    let event = verifier().verify(&headers, BODY.as_bytes()).unwrap();

    assert!(matches!(event.data, EventData::Bounced(_)));
}

/// The body was parsed and serialized again before it was verified. White space, order of members
/// and escapes must be verified as sent.
#[test]
fn a_body_is_verified_byte_by_byte_as_sent() {
    let odd = " {\"data\" :{ \"x\":1.0,\"\\u0078\":2}, \"created_at\":1,\"type\":\"a\\/b\",\n\"id\":\"\\u0065\"}\r\n";

    let event = verifier().verify(&signed(odd), odd.as_bytes()).unwrap();
    let reserialized = serde_json::to_vec(&event).unwrap();

    assert_eq!(event.id.as_str(), "e");
    assert_eq!(
        verifier().verify(&signed(odd), &reserialized),
        Err(VerifyError::SignatureMismatch)
    );
}

/// The body was decoded lossily before it was verified, so different bytes became equal.
#[test]
fn invalid_utf8_is_not_replaced_before_it_is_verified() {
    let bytes = b"{\"id\":\"evt_\xff\"}";
    let lossy = String::from_utf8_lossy(bytes).into_owned();

    let of_lossy = verifier().verify(&signed(&lossy), bytes);
    let genuine = verifier().verify(&signed(bytes), bytes);

    assert_eq!(of_lossy, Err(VerifyError::SignatureMismatch));
    assert!(matches!(genuine, Err(VerifyError::InvalidEnvelope { .. })));
    assert!(verifier().authenticate(&signed(bytes), bytes).is_ok());
}

/// The timestamp was parsed and printed again before it was verified, so other texts were accepted.
#[test]
fn the_text_of_the_timestamp_is_verified() {
    let genuine = signed(BODY);
    let signature = genuine[SIGNATURE_HEADER].as_bytes();
    let text = genuine[TIMESTAMP_HEADER].to_str().unwrap();

    for other in [
        format!("0{text}"),
        format!("+{text}"),
        format!("{text} "),
        format!("{text}."),
    ] {
        let result =
            verifier().verify_parts(Some(signature), Some(other.as_bytes()), BODY.as_bytes());

        assert_eq!(result, Err(VerifyError::MalformedTimestamp), "{other:?}");
    }
}

/// Without a fixed boundary between timestamp and body, digits can move from one to the other.
#[test]
fn a_digit_cannot_move_from_the_body_to_the_timestamp() {
    let headers = Signer::new(SECRET)
        .unwrap()
        .sign(&"email.sent".into(), at(NOW / 10), "0.{}");
    let signature = headers[SIGNATURE_HEADER].as_bytes();
    let timestamp = NOW.to_string();

    let result = verifier().verify_parts(Some(signature), Some(timestamp.as_bytes()), b"{}");

    assert_eq!(result, Err(VerifyError::SignatureMismatch));
}
