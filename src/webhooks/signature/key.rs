use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use sha2::digest::Output;
use subtle::{Choice, ConstantTimeEq};

use super::hint::SignatureHint;

const TAG_LENGTH: usize = 32;

/// A signing secret as the prepared state of the MAC. It is never printed.
#[derive(Clone)]
pub(in crate::webhooks) struct SigningKey(Hmac<Sha256>);

impl SigningKey {
    pub(in crate::webhooks) fn new(secret: &[u8]) -> Self {
        Self(Hmac::new_from_slice(secret).expect("HMAC takes keys of any length"))
    }

    /// Returns the `webhook-signature` value for `timestamp` and `body`.
    pub(in crate::webhooks) fn sign(&self, timestamp: &[u8], body: &[u8]) -> String {
        hex::encode(self.mac(&[timestamp, b".", body]))
    }

    /// Compares `tag` with the MAC over these bytes, in constant time.
    pub(in crate::webhooks) fn verify(&self, tag: &Tag, timestamp: &[u8], body: &[u8]) -> Choice {
        self.mac(&[timestamp, b".", body]).ct_eq(&tag.0)
    }

    // In place and inlined: the state is a quarter of a kilobyte, and each move of it costs time.
    #[inline]
    pub(super) fn mac(&self, message: &[&[u8]]) -> Output<Sha256> {
        let mut mac = self.0.clone();
        for part in message {
            mac.update(part);
        }
        mac.finalize().into_bytes()
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<signing key>")
    }
}

/// A MAC of full length, as received.
#[derive(Clone, Copy)]
pub(in crate::webhooks) struct Tag(pub(super) [u8; TAG_LENGTH]);

impl Tag {
    /// Parses exactly 64 lowercase hex digits.
    pub(in crate::webhooks) fn parse(text: &[u8]) -> Result<Self, SignatureHint> {
        match <&[u8; 2 * TAG_LENGTH]>::try_from(text) {
            Ok(digits) if are_lowercase_hex(digits) => Ok(Self(decode(digits))),
            _ => Err(SignatureHint::for_malformed(text)),
        }
    }
}

// No early exit: the compiler vectorizes this.
fn are_lowercase_hex(digits: &[u8]) -> bool {
    digits.iter().fold(true, |lowercase, digit| {
        lowercase & matches!(digit, b'0'..=b'9' | b'a'..=b'f')
    })
}

/// Decodes digits that were found to be lowercase hex.
// `hex` branches on each digit, which the processor cannot predict: for a short delivery, that takes
// almost as long as the MAC.
fn decode(digits: &[u8; 2 * TAG_LENGTH]) -> [u8; TAG_LENGTH] {
    // `0` is 0x30, and `a` is 0x61.
    let value = |digit: u8| (digit & 0x0f) + 9 * (digit >> 6);
    let mut tag = [0; TAG_LENGTH];
    for (byte, &[high, low]) in tag.iter_mut().zip(digits.as_chunks().0) {
        *byte = value(high) << 4 | value(low);
    }
    tag
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_read_only_as_64_lowercase_hex_digits() {
        let hex = "0123456789abcdef".repeat(4);
        let hint = |text: &str| Tag::parse(text.as_bytes()).err();

        assert_eq!(hint(&hex), None);
        assert_eq!(hint(""), Some(SignatureHint::Empty));
        assert_eq!(hint(&hex.to_uppercase()), Some(SignatureHint::UpperCase));
        assert_eq!(hint(&hex[..63]), Some(SignatureHint::WrongLength));
        assert_eq!(hint(&hex[..32]), Some(SignatureHint::WrongLength));
        assert_eq!(hint(&format!("{hex}00")), Some(SignatureHint::WrongLength));
        assert_eq!(hint(&format!(" {hex}")), Some(SignatureHint::Whitespace));
        assert_eq!(hint(&format!("{hex}\n")), Some(SignatureHint::Whitespace));
        assert_eq!(hint(&"g".repeat(64)), Some(SignatureHint::Unrecognized));
        assert_eq!(
            hint(&format!("sha256={hex}")),
            Some(SignatureHint::AlgorithmPrefix)
        );
        let base64 = "K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=";
        assert_eq!(hint(base64), Some(SignatureHint::Base64));
        assert_eq!(hint(&base64[..43]), Some(SignatureHint::Base64));
        for scheme in ["v1", "v1a", "V1"] {
            assert_eq!(
                hint(&format!("{scheme},{base64}")),
                Some(SignatureHint::StandardWebhooks)
            );
        }
    }

    #[test]
    fn every_pair_of_digits_is_decoded_as_the_hex_crate_decodes_it() {
        for byte in 0..=u8::MAX {
            let tag = [byte, !byte].repeat(TAG_LENGTH / 2);

            let parsed = Tag::parse(hex::encode(&tag).as_bytes()).unwrap();

            assert_eq!(parsed.0[..], tag);
        }
    }

    #[test]
    fn every_other_byte_is_refused_in_place_of_a_digit() {
        for byte in 0..=u8::MAX {
            for at in [0, 63] {
                let mut text = [b'0'; 64];
                text[at] = byte;

                let is_digit = matches!(byte, b'0'..=b'9' | b'a'..=b'f');
                assert_eq!(Tag::parse(&text).is_ok(), is_digit, "{byte:#x}");
            }
        }
    }

    #[test]
    fn only_the_whole_tag_of_the_same_secret_matches() {
        let key = SigningKey::new(b"6Jm0nFq2pXvZk4Tt");
        let other = SigningKey::new(b"Wb8cQe1sLr5uYh7o");
        let tag = Tag::parse(key.sign(b"1700000000", b"{}").as_bytes()).unwrap();

        assert!(bool::from(key.verify(&tag, b"1700000000", b"{}")));
        assert!(!bool::from(other.verify(&tag, b"1700000000", b"{}")));
        for bit in 0..TAG_LENGTH * 8 {
            let mut changed = Tag(tag.0);
            changed.0[bit / 8] ^= 1 << (bit % 8);

            assert!(!bool::from(key.verify(&changed, b"1700000000", b"{}")));
        }
    }
}
