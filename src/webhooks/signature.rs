//! The signed headers of a delivery, and the signature scheme of interface section 5: HMAC-SHA256 over timestamp,
//! period and body, in lowercase hex.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, HeaderName, HeaderValue};
use sha2::Sha256;
use sha2::digest::Output;
use subtle::{Choice, ConstantTimeEq};

use super::error::{SignatureHint, VerifyError};

/// The header with the signature: `webhook-signature`.
pub const SIGNATURE_HEADER: &str = "webhook-signature";
/// The header with the time of signing: `webhook-timestamp`.
pub const TIMESTAMP_HEADER: &str = "webhook-timestamp";
/// The header that also states the event's type, but is not signed: `webhook-event`.
pub const EVENT_HEADER: &str = "webhook-event";

// Parsed once: a lookup by text costs three times as much.
static SIGNATURE: HeaderName = HeaderName::from_static(SIGNATURE_HEADER);
static TIMESTAMP: HeaderName = HeaderName::from_static(TIMESTAMP_HEADER);
static EVENT: HeaderName = HeaderName::from_static(EVENT_HEADER);

/// The two signed headers of a delivery, parsed.
pub(super) struct DeliveryHeaders<'h> {
    pub(super) tag: Tag,
    /// The timestamp as received: the MAC covers this text.
    pub(super) timestamp_text: &'h [u8],
    /// The timestamp in Unix seconds.
    pub(super) timestamp: u64,
    /// All headers, if known. `webhook-event` is only looked up on request.
    pub(super) all: Option<&'h HeaderMap>,
}

impl<'h> DeliveryHeaders<'h> {
    pub(super) fn from_map(headers: &'h HeaderMap) -> Result<Self, VerifyError> {
        let found =
            Self::from_values(|name| headers.get_all(name).iter().map(HeaderValue::as_bytes))?;
        Ok(Self {
            all: Some(headers),
            ..found
        })
    }

    /// Parses the headers from any header collection: `values` returns the values of a header.
    pub(super) fn from_values<V>(
        values: impl Fn(&'static HeaderName) -> V,
    ) -> Result<Self, VerifyError>
    where
        V: Iterator<Item = &'h [u8]>,
    {
        let one = |name: &'static HeaderName| single(values(name), name.as_str());
        Self::from_parts(one(&SIGNATURE)?, one(&TIMESTAMP)?)
    }

    /// Parses the two values, `None` for a missing header.
    pub(super) fn from_parts(
        signature: Option<&'h [u8]>,
        timestamp: Option<&'h [u8]>,
    ) -> Result<Self, VerifyError> {
        let missing = |header| VerifyError::MissingHeader { header };
        let signature = signature.ok_or_else(|| missing(SIGNATURE_HEADER))?;
        let timestamp_text = timestamp.ok_or_else(|| missing(TIMESTAMP_HEADER))?;

        let malformed = |hint| VerifyError::MalformedSignature { hint };
        Ok(Self {
            tag: Tag::parse(signature).map_err(malformed)?,
            timestamp_text,
            timestamp: parse_timestamp(timestamp_text).ok_or(VerifyError::MalformedTimestamp)?,
            all: None,
        })
    }
}

/// Returns the value of the unsigned `webhook-event` header if it occurs exactly once.
pub(super) fn event_header(headers: &HeaderMap) -> Option<&[u8]> {
    let values = headers.get_all(&EVENT).iter().map(HeaderValue::as_bytes);
    single(values, EVENT_HEADER).ok().flatten()
}

fn single<'h>(
    mut values: impl Iterator<Item = &'h [u8]>,
    header: &'static str,
) -> Result<Option<&'h [u8]>, VerifyError> {
    // Proxies and frameworks pick different ones of two values, so neither can be trusted.
    let first = values.next();
    if values.next().is_some() {
        return Err(VerifyError::DuplicateHeader { header });
    }
    Ok(first)
}

/// Parses the seconds of a `webhook-timestamp`: ASCII digits, no sign, no leading zero, within `u64`.
fn parse_timestamp(text: &[u8]) -> Option<u64> {
    match text {
        [] | [b'0', _, ..] => None,
        digits => digits.iter().try_fold(0_u64, |seconds, digit| {
            let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
            seconds.checked_mul(10)?.checked_add(digit)
        }),
    }
}

const TAG_LENGTH: usize = 32;

/// A signing secret as the prepared state of the MAC. It is never printed.
#[derive(Clone)]
pub(super) struct SigningKey(Hmac<Sha256>);

impl SigningKey {
    pub(super) fn new(secret: &[u8]) -> Self {
        // The padded key is hashed once here, and not again for each delivery.
        Self(Hmac::new_from_slice(secret).expect("HMAC takes keys of any length"))
    }

    /// Returns the `webhook-signature` value for `timestamp` and `body`.
    pub(super) fn sign(&self, timestamp: &[u8], body: &[u8]) -> String {
        hex::encode(self.mac(&[timestamp, b".", body]))
    }

    /// Compares `tag` with the MAC over these bytes, in constant time.
    pub(super) fn verify(&self, tag: &Tag, timestamp: &[u8], body: &[u8]) -> Choice {
        self.mac(&[timestamp, b".", body]).ct_eq(&tag.0)
    }

    // In place and inlined: the state is a quarter of a kilobyte, and each move of it costs time.
    #[inline]
    fn mac(&self, message: &[&[u8]]) -> Output<Sha256> {
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
pub(super) struct Tag([u8; TAG_LENGTH]);

impl Tag {
    /// Parses exactly 64 lowercase hex digits.
    pub(super) fn parse(text: &[u8]) -> Result<Self, SignatureHint> {
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

impl SignatureHint {
    /// Classifies a signature that was found to be malformed.
    fn for_malformed(text: &[u8]) -> Self {
        let algorithms = ["sha256", "sha1", "sha512", "hmac-sha256", "v0", "v1"];
        let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/-_".contains(byte);

        if text.is_empty() {
            Self::Empty
        } else if starts_with_name(text, &["v1", "v1a"], b',') {
            Self::StandardWebhooks
        } else if starts_with_name(text, &algorithms, b'=') {
            Self::AlgorithmPrefix
        } else if text.iter().any(u8::is_ascii_whitespace) {
            Self::Whitespace
        } else if text.iter().all(u8::is_ascii_hexdigit) {
            if text.len() == 64 {
                Self::UpperCase
            } else {
                Self::WrongLength
            }
        } else if matches!(text, [digits @ .., b'='] | digits if digits.len() == 43 && digits.iter().all(is_base64))
        {
            Self::Base64
        } else {
            Self::Unrecognized
        }
    }
}

/// Whether `text` starts with one of `names`, in any case, followed by `separator`.
fn starts_with_name(text: &[u8], names: &[&str], separator: u8) -> bool {
    names.iter().any(|name| {
        text.get(..name.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(name.as_bytes()))
            && text.get(name.len()) == Some(&separator)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_is_read_only_as_plain_digits() {
        for (text, expected) in [
            ("0", Some(0)),
            ("1700000000", Some(1_700_000_000)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("99999999999999999999999999999999999999999", None),
            ("", None),
            ("00", None),
            ("01700000000", None),
            ("+1700000000", None),
            ("-1700000000", None),
            (" 1700000000", None),
            ("1700000000 ", None),
            ("1700000000.0", None),
            ("1.7e9", None),
            ("0x6553f100", None),
            ("١٧٠٠٠٠٠٠٠٠", None),
            ("1700000000\n", None),
        ] {
            assert_eq!(parse_timestamp(text.as_bytes()), expected, "{text:?}");
        }
    }

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
        // The name of a scheme without its separator, and the separators without a name.
        for neither in ["v1", "sha256", "g1,", "gggg="] {
            assert_eq!(hint(neither), Some(SignatureHint::Unrecognized));
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
    fn every_other_byte_is_rejected_in_place_of_a_digit() {
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

    fn accepts(key: &[u8], message: &[u8], signature: &str) -> bool {
        Tag::parse(signature.as_bytes())
            .is_ok_and(|tag| SigningKey::new(key).mac(&[message]).ct_eq(&tag.0).into())
    }

    #[test]
    fn the_test_vectors_of_rfc_4231_are_accepted() {
        for (key, message, signature) in [
            (
                vec![0x0b; 20],
                b"Hi There".to_vec(),
                "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
            ),
            (
                b"Jefe".to_vec(),
                b"what do ya want for nothing?".to_vec(),
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (
                vec![0xaa; 20],
                vec![0xdd; 50],
                "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe",
            ),
            (
                (1..=25).collect(),
                vec![0xcd; 50],
                "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b",
            ),
            (
                vec![0xaa; 131],
                b"Test Using Larger Than Block-Size Key - Hash Key First".to_vec(),
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            ),
            (
                vec![0xaa; 131],
                b"This is a test using a larger than block-size key and a larger than \
                  block-size data. The key needs to be hashed before being used by the HMAC \
                  algorithm."
                    .to_vec(),
                "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2",
            ),
        ] {
            assert!(accepts(&key, &message, signature), "{signature}");
        }
    }

    #[test]
    fn the_truncated_test_vector_of_rfc_4231_is_rejected() {
        assert!(!accepts(
            &[0x0c; 20],
            b"Test With Truncation",
            "a3b6167473100ee06e0c796c2955552b"
        ));
    }

    #[test]
    fn the_wycheproof_vectors_are_judged_correctly_and_every_truncated_tag_is_rejected() {
        let vectors = include_str!("../../fixtures/webhooks/hmac_sha256.csv");
        let (mut whole, mut truncated) = (0, 0);

        for vector in vectors.lines().filter(|line| !line.starts_with('#')) {
            let [key, message, tag, result] = vector.split(',').collect::<Vec<_>>()[..] else {
                panic!("{vector}");
            };
            let bytes = |text| hex::decode(text).unwrap();

            let accepted = accepts(&bytes(key), &bytes(message), tag);

            if tag.len() == 64 {
                whole += 1;
                assert_eq!(accepted, result == "valid", "{vector}");
            } else {
                truncated += 1;
                assert!(!accepted, "{vector}");
            }
        }

        assert_eq!((whole, truncated), (87, 87));
    }
}
