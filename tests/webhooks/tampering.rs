//! A delivery with any bit changed is refused.

use audience::webhooks::{SIGNATURE_HEADER, TIMESTAMP_HEADER, VerifyError};
use proptest::prelude::*;

use super::{BODY, NOW, signed, signed_at, verifier};

#[test]
fn changing_one_bit_of_signature_timestamp_or_body_is_refused() {
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
    fn a_signed_body_is_authenticated_and_any_other_is_refused(
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
    fn changing_one_bit_of_any_delivery_is_refused(
        body in prop::collection::vec(any::<u8>(), 1..500),
        part in 0..3_usize,
        position in any::<prop::sample::Index>(),
        bit in 0..8_u32,
    ) {
        let headers = signed(&body);
        let mut parts = [
            headers[SIGNATURE_HEADER].as_bytes().to_vec(),
            headers[TIMESTAMP_HEADER].as_bytes().to_vec(),
            body,
        ];
        let position = position.index(parts[part].len());
        parts[part][position] ^= 1 << bit;
        let [signature, timestamp, body] = &parts;

        let error = verifier().verify_parts(Some(signature), Some(timestamp), body).unwrap_err();

        prop_assert!(!matches!(error, VerifyError::InvalidEnvelope { .. }), "{error}");
    }

    #[test]
    fn arbitrary_input_is_refused_without_panicking(
        signature in "(?s).{0,80}|[0-9a-f]{64}",
        timestamp in "(?s).{0,30}|[0-9]{1,30}",
        body in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let result = verifier().verify_parts(Some(&signature), Some(&timestamp), &body);

        prop_assert!(result.is_err());
    }
}
