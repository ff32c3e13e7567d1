//! How other webhook libraries failed, one test for each, and that this one does not.

use audience::webhooks::{
    EVENT_HEADER, EventData, SIGNATURE_HEADER, SecretError, Signer, TIMESTAMP_HEADER, Verifier,
    VerifyError,
};
use http::HeaderValue;

use super::{BODY, NOW, SECRET, at, signed, verifier};

/// RUSTSEC-2024-0010: only as many bytes were compared as the shorter side had.
#[test]
fn an_empty_or_shortened_signature_does_not_pass() {
    let whole = signed(BODY)[SIGNATURE_HEADER].to_str().unwrap().to_owned();

    for length in 0..whole.len() {
        let mut headers = signed(BODY);
        let cut = HeaderValue::from_str(&whole[..length]).unwrap();
        headers.insert(SIGNATURE_HEADER, cut);

        let error = verifier().verify(&headers, BODY.as_bytes()).unwrap_err();

        assert!(matches!(error, VerifyError::MalformedSignature { .. }));
    }
}

/// CVE-2025-53548: a list of signatures in one header was misread.
#[test]
fn a_list_of_signatures_is_not_read_as_one() {
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

/// Empty and all-NUL secrets are one and the same key to HMAC, and everybody has it.
#[test]
fn an_empty_or_nul_secret_is_not_taken() {
    for secret in ["", "\0", "\0\0\0\0\0\0\0\0", "secret\0"] {
        assert!(matches!(
            (
                Verifier::new(secret).unwrap_err(),
                Signer::new(secret).unwrap_err()
            ),
            (SecretError::Empty { .. }, SecretError::Empty { .. })
                | (
                    SecretError::TrailingNul { .. },
                    SecretError::TrailingNul { .. }
                )
        ));
    }
}

/// A timestamp was put into arithmetic before anything was authenticated, and overflowed.
#[test]
fn no_timestamp_overflows() {
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

/// The same, with a key that the sender has: the arithmetic itself.
#[test]
fn the_furthest_timestamp_is_judged_without_overflow() {
    let headers = signed(BODY);
    let furthest = at(i64::MAX.unsigned_abs());
    let far = Signer::new(SECRET)
        .unwrap()
        .sign(&"email.sent".into(), furthest, BODY);

    let early = verifier().verify(&far, BODY.as_bytes());
    let late = verifier().verify_at(&headers, BODY.as_bytes(), furthest);

    assert!(matches!(early, Err(VerifyError::TooEarly { .. })));
    assert!(matches!(late, Err(VerifyError::TooLate { .. })));
}

/// The type was taken from the header, which nobody signs.
#[test]
fn the_type_comes_from_the_signed_body() {
    let mut headers = signed(BODY);
    headers.insert(EVENT_HEADER, HeaderValue::from_static("email.delivered"));

    let event = verifier().verify(&headers, BODY.as_bytes()).unwrap();

    assert!(matches!(event.data, EventData::Bounced(_)));
}

/// The body was parsed and written again before it was verified: that can only fail, so what is
/// verified has to be what was sent, white space, order, escapes and all.
#[test]
fn a_body_is_verified_byte_by_byte_as_sent() {
    let odd = " {\"data\" :{ \"x\":1.0,\"\\u0078\":2}, \"created_at\":1,\"type\":\"a\\/b\",\n\"id\":\"\\u0065\"}\r\n";

    let event = verifier().verify(&signed(odd), odd.as_bytes()).unwrap();
    let reserialised = serde_json::to_vec(&event).unwrap();

    assert_eq!(event.id.as_str(), "e");
    assert_eq!(
        verifier().verify(&signed(odd), &reserialised),
        Err(VerifyError::SignatureMismatch)
    );
}

/// The body was decoded lossily before it was verified, so different bytes were the same.
#[test]
fn bytes_that_are_not_text_are_not_replaced() {
    let bytes = b"{\"id\":\"evt_\xff\"}";
    let lossy = String::from_utf8_lossy(bytes).into_owned();

    let of_lossy = verifier().verify(&signed(&lossy), bytes);
    let genuine = verifier().verify(&signed(bytes), bytes);

    assert_eq!(of_lossy, Err(VerifyError::SignatureMismatch));
    assert!(matches!(genuine, Err(VerifyError::InvalidEnvelope { .. })));
    assert!(verifier().authenticate(&signed(bytes), bytes).is_ok());
}

/// The timestamp was parsed and printed again before it was signed, so that other texts passed.
#[test]
fn the_timestamp_is_verified_as_its_text() {
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

/// Where timestamp and body are joined without a limit between them, digits can move over.
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
