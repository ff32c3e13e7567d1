use std::fmt;
use std::iter;

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
    let without_mark = body.strip_prefix(BYTE_ORDER_MARK).map(<[u8]>::to_vec);
    let without_newline = [b"\r\n".as_slice(), b"\n"]
        .into_iter()
        .filter_map(|newline| body.strip_suffix(newline).map(<[u8]>::to_vec));
    let with_newline = [b"\r\n".as_slice(), b"\n"]
        .into_iter()
        .map(move |newline| [body, newline].concat());

    let from_bytes = iter::empty()
        .chain(without_mark.map(|other| (BodyChange::MarkAdded, other)))
        .chain(iter::once((
            BodyChange::MarkRemoved,
            [BYTE_ORDER_MARK, body].concat(),
        )))
        .chain(without_newline.map(|other| (BodyChange::NewlineAdded, other)))
        .chain(with_newline.map(|other| (BodyChange::NewlineRemoved, other)));
    let unix = text.replace("\r\n", "\n");
    let line_endings = [unix.replace('\n', "\r\n"), unix]
        .into_iter()
        .map(|other| (BodyChange::LineEndings, other.into_bytes()));
    let latin1 = text
        .chars()
        .map(|c| u8::try_from(c).ok())
        .collect::<Option<Vec<u8>>>()
        .map(|other| (BodyChange::DecodedAsLatin1, other));

    from_bytes
        .chain(line_endings)
        .chain(latin1)
        .chain(json_spellings(text).map(|other| (BodyChange::Reserialized, other.into_bytes())))
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
