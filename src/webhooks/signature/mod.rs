//! The signature scheme of interface section 5: HMAC-SHA256 over timestamp, period, body, in lowercase hex.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The header that holds the signature: `webhook-signature`.
pub const SIGNATURE_HEADER: &str = "webhook-signature";
/// The header that holds the time of signing: `webhook-timestamp`.
pub const TIMESTAMP_HEADER: &str = "webhook-timestamp";
/// The header that repeats the event's type, unsigned: `webhook-event`.
pub const EVENT_HEADER: &str = "webhook-event";

const TAG_LENGTH: usize = 32;
const HEX_LENGTH: usize = 2 * TAG_LENGTH;

/// A signing secret, taken up into the state of the MAC once and never printed.
#[derive(Clone)]
pub(super) struct SigningKey(Hmac<Sha256>);

impl SigningKey {
    pub(super) fn new(secret: &[u8]) -> Self {
        Self(Hmac::new_from_slice(secret).expect("HMAC takes keys of any length"))
    }

    /// The signature over `timestamp`, a period and `body`, as it stands in the header.
    pub(super) fn sign(&self, timestamp: &[u8], body: &[u8]) -> String {
        let tag = self.mac(&[timestamp, b".", body]).finalize().into_bytes();

        let mut text = String::with_capacity(HEX_LENGTH);
        for byte in tag {
            text.push(hex_digit(byte >> 4));
            text.push(hex_digit(byte & 0xf));
        }
        text
    }

    /// Whether `tag` is the MAC over exactly these bytes, found out in constant time.
    pub(super) fn verify(&self, tag: &Tag, timestamp: &[u8], body: &[u8]) -> bool {
        self.mac(&[timestamp, b".", body])
            .verify_slice(&tag.0)
            .is_ok()
    }

    // In place and inlined: the state is a quarter of a kilobyte, and each move of it shows.
    #[inline]
    fn mac(&self, message: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        for part in message {
            mac.update(part);
        }
        mac
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<signing key>")
    }
}

/// A whole MAC as received; nothing shorter can be one.
pub(super) struct Tag([u8; TAG_LENGTH]);

impl Tag {
    /// Reads exactly 64 lowercase hex digits.
    pub(super) fn parse(text: &[u8]) -> Result<Self, SignatureHint> {
        let mut tag = [0; TAG_LENGTH];
        if text.len() != HEX_LENGTH {
            return Err(SignatureHint::of(text));
        }
        let mut worst = 0;
        for (byte, pair) in tag.iter_mut().zip(text.chunks_exact(2)) {
            let (high, low) = (nibble(pair[0]), nibble(pair[1]));
            worst |= high | low;
            *byte = high << 4 | low & 0xf;
        }
        if worst == NO_NIBBLE {
            return Err(SignatureHint::of(text));
        }
        Ok(Self(tag))
    }
}

/// What stands for a digit that is none; no digit has any of its upper bits.
const NO_NIBBLE: u8 = 0xff;

fn nibble(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => NO_NIBBLE,
    }
}

fn hex_digit(nibble: u8) -> char {
    char::from(b"0123456789abcdef"[usize::from(nibble)])
}

/// Reads the seconds of a `webhook-timestamp`: ASCII digits, no sign, no leading zero, within `u64`.
pub(super) fn parse_timestamp(text: &[u8]) -> Option<u64> {
    match text {
        [] | [b'0', _, ..] => None,
        digits => digits.iter().try_fold(0_u64, |seconds, digit| {
            let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
            seconds.checked_mul(10)?.checked_add(digit)
        }),
    }
}

/// What a `webhook-signature` that is not 64 lowercase hex digits looks like instead.
///
/// The header names are shared with other webhook schemes, so a delivery of one of those, or a
/// helper written for one, is easily taken for ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SignatureHint {
    /// Nothing in it.
    Empty,
    /// White space around or within it.
    Whitespace,
    /// `v1,…` or `v1a,…`: the Standard Webhooks scheme, whose header names are the same. Its
    /// libraries do not verify the service's signatures.
    StandardWebhooks,
    /// `sha256=…`, or another algorithm's name and an equals sign.
    AlgorithmPrefix,
    /// 64 hex digits, but some of them in upper case.
    UpperCase,
    /// Base64 of 32 bytes, not hex.
    Base64,
    /// Hex digits, but not 64 of them.
    WrongLength,
    /// None of these.
    Unrecognised,
}

impl SignatureHint {
    fn of(text: &[u8]) -> Self {
        let starts_with_name = |names: &[&str], end: u8| {
            names.iter().any(|name| {
                text.get(..name.len())
                    .is_some_and(|start| start.eq_ignore_ascii_case(name.as_bytes()))
                    && text.get(name.len()) == Some(&end)
            })
        };
        let is_base64 = |digits: &[u8]| {
            digits
                .iter()
                .all(|byte| byte.is_ascii_alphanumeric() || b"+/-_".contains(byte))
        };

        if text.is_empty() {
            Self::Empty
        } else if starts_with_name(&["v1", "v1a"], b',') {
            Self::StandardWebhooks
        } else if starts_with_name(
            &["sha256", "sha1", "sha512", "hmac-sha256", "v0", "v1"],
            b'=',
        ) {
            Self::AlgorithmPrefix
        } else if text.iter().any(u8::is_ascii_whitespace) {
            Self::Whitespace
        } else if text.iter().all(u8::is_ascii_hexdigit) {
            if text.len() == HEX_LENGTH {
                Self::UpperCase
            } else {
                Self::WrongLength
            }
        } else if matches!(text, [digits @ .., b'='] | digits if digits.len() == 43 && is_base64(digits))
        {
            Self::Base64
        } else {
            Self::Unrecognised
        }
    }
}

impl fmt::Display for SignatureHint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "it is empty",
            Self::Whitespace => "it has white space in it",
            Self::StandardWebhooks => "it looks like the Standard Webhooks scheme",
            Self::AlgorithmPrefix => "it has an algorithm's name in front",
            Self::UpperCase => "it is in upper case",
            Self::Base64 => "it looks like base64",
            Self::WrongLength => "it is hex of another length",
            Self::Unrecognised => "it is no hex at all",
        })
    }
}

#[cfg(test)]
mod vectors;

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
        assert_eq!(hint(&"g".repeat(64)), Some(SignatureHint::Unrecognised));
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
}
