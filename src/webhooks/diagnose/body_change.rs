use std::fmt;
use std::iter;

use super::base64;
use super::json_spellings::json_spellings;

/// How a body was changed between the service and the verifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BodyChange {
    /// It was parsed as JSON and serialized again. Verify the raw bytes, before any parsing.
    Reserialized,
    /// A byte-order mark was added at the start.
    MarkAdded,
    /// The byte-order mark at the start was removed.
    MarkRemoved,
    /// A newline was added at the end.
    NewlineAdded,
    /// The newline at the end was removed.
    NewlineRemoved,
    /// LF was converted to CRLF, or CRLF to LF.
    LineEndings,
    /// Its UTF-8 was decoded as Latin-1 and encoded again.
    DecodedAsLatin1,
    /// It is encoded as base64, as some gateways pass it on. Decode it first.
    Base64Encoded,
    /// It is quoted as a JSON string. Parse the string first.
    QuotedAsString,
    /// Bytes that are not UTF-8 were replaced by U+FFFD. This cannot be undone, so it is a guess
    /// from the characters in the body.
    DecodedLossily,
    /// The body is empty: something read it before the verifier. This is a guess, too.
    Emptied,
}

impl fmt::Display for BodyChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reserialized => "it was parsed as JSON and serialized again",
            Self::MarkAdded => "a byte-order mark was added at its start",
            Self::MarkRemoved => "the byte-order mark at its start was removed",
            Self::NewlineAdded => "a newline was added at its end",
            Self::NewlineRemoved => "the newline at its end was removed",
            Self::LineEndings => "its line endings were converted",
            Self::DecodedAsLatin1 => "its UTF-8 was decoded as Latin-1",
            Self::Base64Encoded => "it is encoded as base64, so decode it first",
            Self::QuotedAsString => "it is quoted as a JSON string, so parse the string first",
            Self::DecodedLossily => {
                "it was probably decoded as text, and invalid bytes were replaced"
            }
            Self::Emptied => "it is empty, so it was probably read before it was verified",
        })
    }
}

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Returns the possible original bodies, each with the change that turns it into `body`. Computed lazily.
pub(super) fn possible_originals(body: &[u8]) -> impl Iterator<Item = (BodyChange, Vec<u8>)> {
    let text = str::from_utf8(body).unwrap_or_default();
    let spellings = iter::once(text).flat_map(json_spellings);

    iter::empty()
        .chain(iter::once(body).flat_map(without_mark_or_newline))
        .chain(iter::once(body).flat_map(with_mark_or_newline))
        .chain(iter::once(body).flat_map(decoded))
        .chain(iter::once(text).flat_map(other_line_endings))
        .chain(spellings.map(|other| (BodyChange::Reserialized, other.into_bytes())))
}

fn without_mark_or_newline(body: &[u8]) -> impl Iterator<Item = (BodyChange, Vec<u8>)> {
    let without_mark = body.strip_prefix(BYTE_ORDER_MARK);
    let without_newline = [b"\r\n".as_slice(), b"\n"].map(|newline| body.strip_suffix(newline));

    iter::once((BodyChange::MarkAdded, without_mark))
        .chain(without_newline.map(|other| (BodyChange::NewlineAdded, other)))
        .filter_map(|(change, other)| Some((change, other?.to_vec())))
}

fn with_mark_or_newline(body: &[u8]) -> impl Iterator<Item = (BodyChange, Vec<u8>)> {
    [
        (BodyChange::MarkRemoved, [BYTE_ORDER_MARK, body]),
        (BodyChange::NewlineRemoved, [body, b"\r\n"]),
        (BodyChange::NewlineRemoved, [body, b"\n"]),
    ]
    .into_iter()
    .map(|(change, parts)| (change, parts.concat()))
}

fn decoded(body: &[u8]) -> impl Iterator<Item = (BodyChange, Vec<u8>)> {
    let text = str::from_utf8(body).unwrap_or_default();
    let latin1 = text.chars().map(|c| u8::try_from(c).ok()).collect();
    let digits = body.iter().filter(|byte| !byte.is_ascii_whitespace());
    let string = serde_json::from_str::<String>(text).ok();

    [
        (BodyChange::DecodedAsLatin1, latin1),
        (BodyChange::Base64Encoded, base64::decode(digits)),
        (BodyChange::QuotedAsString, string.map(String::into_bytes)),
    ]
    .into_iter()
    .filter_map(|(change, other)| Some((change, other?)))
}

fn other_line_endings(text: &str) -> impl Iterator<Item = (BodyChange, Vec<u8>)> {
    let unix = text.replace("\r\n", "\n");
    [unix.replace('\n', "\r\n"), unix]
        .into_iter()
        .map(|other| (BodyChange::LineEndings, other.into_bytes()))
}

/// Returns a change that is visible in the body but cannot be undone.
pub(super) fn irreversible_change(body: &[u8]) -> Option<BodyChange> {
    if body.is_empty() {
        Some(BodyChange::Emptied)
    } else if str::from_utf8(body).is_ok_and(|text| text.contains('\u{fffd}')) {
        Some(BodyChange::DecodedLossily)
    } else {
        None
    }
}
