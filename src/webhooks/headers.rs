use http::{HeaderMap, HeaderName, HeaderValue};

use super::error::VerifyError;
use super::signature::Tag;

/// The header with the signature: `webhook-signature`.
pub const SIGNATURE_HEADER: &str = "webhook-signature";
/// The header with the time of signing: `webhook-timestamp`.
pub const TIMESTAMP_HEADER: &str = "webhook-timestamp";
/// The header that repeats the event's type, unsigned: `webhook-event`.
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
    /// The same in seconds.
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
}
