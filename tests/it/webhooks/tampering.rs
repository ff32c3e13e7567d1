//! Any change of any bit is refused.

use audience::webhooks::{SIGNATURE_HEADER, TIMESTAMP_HEADER, VerifyError};
use proptest::prelude::*;

use super::{BODY, NOW, signed, signed_at, verifier};

#[test]
fn each_single_bit_of_signature_timestamp_and_body_counts() {
    let headers = signed(BODY);
    let parts = [
        headers[SIGNATURE_HEADER].as_bytes().to_vec(),
        headers[TIMESTAMP_HEADER].as_bytes().to_vec(),
        BODY.as_bytes().to_vec(),
    ];

    for part in 0..parts.len() {
        for bit in 0..parts[part].len() * 8 {
            let mut changed = parts.clone();
            changed[part][bit / 8] ^= 1 << (bit % 8);
            let [signature, timestamp, body] = &changed;

            let result = verifier().verify_parts(Some(signature), Some(timestamp), body);

            assert!(
                matches!(
                    result,
                    Err(VerifyError::SignatureMismatch
                        | VerifyError::MalformedSignature { .. }
                        | VerifyError::MalformedTimestamp)
                ),
                "part {part}, bit {bit}: {result:?}"
            );
        }
    }
}

proptest! {
    #[test]
    fn any_body_is_authenticated_and_any_other_is_not(
        body in prop::collection::vec(any::<u8>(), 0..500),
        other in prop::collection::vec(any::<u8>(), 0..500),
        seconds in NOW - 300..=NOW + 300,
    ) {
        let headers = signed_at(seconds, &body);
        let verifier = verifier();

        prop_assert!(verifier.authenticate(&headers, &body).is_ok());
        if body != other {
            prop_assert_eq!(
                verifier.authenticate(&headers, &other).err(),
                Some(VerifyError::SignatureMismatch)
            );
        }
    }

    #[test]
    fn any_change_of_any_bit_is_refused(
        body in prop::collection::vec(any::<u8>(), 1..500),
        part in 0..3_usize,
        place in any::<prop::sample::Index>(),
        bit in 0..8_u32,
    ) {
        let headers = signed(&body);
        let mut parts = [
            headers[SIGNATURE_HEADER].as_bytes().to_vec(),
            headers[TIMESTAMP_HEADER].as_bytes().to_vec(),
            body,
        ];
        let place = place.index(parts[part].len());
        parts[part][place] ^= 1 << bit;
        let [signature, timestamp, body] = &parts;

        let error = verifier().verify_parts(Some(signature), Some(timestamp), body).unwrap_err();

        prop_assert!(!matches!(error, VerifyError::InvalidEnvelope { .. }), "{error}");
    }

    #[test]
    fn whatever_is_posted_nothing_panics(
        signature in "(?s).{0,80}|[0-9a-f]{64}",
        timestamp in "(?s).{0,30}|[0-9]{1,30}",
        body in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let result = verifier().verify_parts(Some(&signature), Some(&timestamp), &body);

        prop_assert!(result.is_err());
    }
}
