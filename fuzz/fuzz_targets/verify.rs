//! Verifies arbitrary headers and bodies. Input: header lines `name: value`, an empty line, the body.
//!
//! Nothing in the input is signed, so `verify` must refuse it without panicking, and `diagnose` must
//! return. Then the same body is signed and must be authenticated.
#![no_main]

use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use audience::webhooks::{EventType, Signer, Verifier, VerifyError};
use http::{HeaderMap, HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;

const NOW: Duration = Duration::from_secs(1_700_000_000);

static VERIFIER: LazyLock<Verifier> = LazyLock::new(|| {
    Verifier::builder()
        .secret("new", "6Jm0nFq2pXvZk4Tt")
        .secret("old", "Wb8cQe1sLr5uYh7o")
        .body_limit(64 * 1024)
        .clock(now)
        .build()
        .expect("both secrets are valid")
});

static SIGNER: LazyLock<Signer> =
    LazyLock::new(|| Signer::new("Wb8cQe1sLr5uYh7o").expect("the secret is valid"));

fn now() -> SystemTime {
    UNIX_EPOCH + NOW
}

fuzz_target!(|input: &[u8]| {
    let (headers, body) = delivery(input);

    assert!(VERIFIER.verify(&headers, body).is_err());
    let _ = VERIFIER.diagnose(
        &headers,
        body,
        [("old", "Wb8cQe1sLr5uYh7o"), ("odd", "YWJj")],
    );

    let signed = SIGNER.sign(&EventType::Sent, now(), body);
    match VERIFIER.authenticate(&signed, body) {
        Ok(delivery) => {
            assert_eq!(delivery.secret_name(), "old");
            let _ = delivery.event_header_agrees();
        }
        Err(error) => assert!(matches!(error, VerifyError::BodyTooLarge { .. })),
    }
});

fn delivery(input: &[u8]) -> (HeaderMap, &[u8]) {
    let mut headers = HeaderMap::new();
    let mut rest = input;
    while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
        let line = &rest[..end];
        rest = &rest[end + 1..];
        if line.is_empty() {
            break;
        }
        let Some(colon) = line.iter().position(|&byte| byte == b':') else {
            continue;
        };
        let value = line[colon + 1..]
            .strip_prefix(b" ")
            .unwrap_or(&line[colon + 1..]);
        if let (Ok(name), Ok(value)) = (
            HeaderName::from_bytes(&line[..colon]),
            HeaderValue::from_bytes(value),
        ) {
            headers.append(name, value);
        }
    }
    (headers, rest)
}
