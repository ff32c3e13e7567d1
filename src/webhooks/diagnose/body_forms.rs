use std::fmt::{self, Write};
use std::iter;

use serde::de::IgnoredAny;

use super::super::event::Event;

/// What happened to a body between the service and the verifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BodyChange {
    /// It was parsed as JSON and written again. Verify the raw bytes, before any parsing.
    Reserialised,
    /// A byte-order mark was put in front.
    MarkAdded,
    /// A byte-order mark was taken off.
    MarkRemoved,
    /// A newline was put at the end.
    NewlineAdded,
    /// A newline was taken off the end.
    NewlineRemoved,
    /// LF became CRLF, or the other way round.
    LineEndings,
    /// Its UTF-8 was taken for Latin-1 and encoded once more.
    DecodedAsLatin1,
    /// Bytes that are not UTF-8 were replaced by U+FFFD. That cannot be undone, so it is a guess
    /// from what is seen.
    DecodedLossily,
    /// Nothing is left of it: something read it before the verifier did. A guess, too.
    Emptied,
}

impl fmt::Display for BodyChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reserialised => "it was parsed as JSON and written again",
            Self::MarkAdded => "a byte-order mark was put in front",
            Self::MarkRemoved => "its byte-order mark was taken off",
            Self::NewlineAdded => "a newline was put at its end",
            Self::NewlineRemoved => "the newline at its end was taken off",
            Self::LineEndings => "its line endings were converted",
            Self::DecodedAsLatin1 => "its UTF-8 was taken for Latin-1",
            Self::DecodedLossily => "it seems to have been decoded lossily",
            Self::Emptied => "it is empty, so something seems to have read it before",
        })
    }
}

const MARK: &[u8] = "\u{feff}".as_bytes();

/// What the body may have been, each with the change that made it what it is. Made one by one.
pub(super) fn of(body: &[u8]) -> impl Iterator<Item = (BodyChange, Vec<u8>)> {
    let text = str::from_utf8(body).unwrap_or_default();
    let unmarked = body.strip_prefix(MARK).map(<[u8]>::to_vec);
    let unended = [b"\r\n".as_slice(), b"\n"]
        .into_iter()
        .filter_map(|newline| body.strip_suffix(newline).map(<[u8]>::to_vec));
    let ended = [b"\r\n".as_slice(), b"\n"]
        .into_iter()
        .map(move |newline| [body, newline].concat());

    let of_bytes = iter::empty()
        .chain(unmarked.map(|other| (BodyChange::MarkAdded, other)))
        .chain(iter::once((BodyChange::MarkRemoved, [MARK, body].concat())))
        .chain(unended.map(|other| (BodyChange::NewlineAdded, other)))
        .chain(ended.map(|other| (BodyChange::NewlineRemoved, other)));
    let unix = text.replace("\r\n", "\n");
    let line_endings = [unix.replace('\n', "\r\n"), unix]
        .into_iter()
        .map(|other| (BodyChange::LineEndings, other.into_bytes()));
    let latin1 = text
        .chars()
        .map(|c| u8::try_from(c).ok())
        .collect::<Option<Vec<u8>>>()
        .map(|other| (BodyChange::DecodedAsLatin1, other));

    of_bytes
        .chain(line_endings)
        .chain(latin1)
        .chain(spellings(text).map(|other| (BodyChange::Reserialised, other.into_bytes())))
}

/// A change that shows, but cannot be undone.
pub(super) fn beyond_undoing(body: &[u8]) -> Option<BodyChange> {
    if body.is_empty() {
        Some(BodyChange::Emptied)
    } else if str::from_utf8(body).is_ok_and(|text| text.contains('\u{fffd}')) {
        Some(BodyChange::DecodedLossily)
    } else {
        None
    }
}

/// The same JSON as common writers write it, with the members as they stand and in the order of the
/// interface document.
fn spellings(text: &str) -> impl Iterator<Item = String> {
    let is_json = serde_json::from_str::<IgnoredAny>(text).is_ok();
    let ordered = Event::from_json(text.as_bytes()).and_then(|event| {
        serde_json::to_string(&event).or(Err(super::super::EnvelopeProblem::NotUtf8))
    });

    [is_json.then(|| text.to_owned()), ordered.ok()]
        .into_iter()
        .flatten()
        .flat_map(|source| {
            Layout::ALL.iter().flat_map(move |layout| {
                let source = source.clone();
                Escapes::ALL
                    .iter()
                    .map(move |escapes| respell(&source, layout, *escapes))
            })
        })
}

/// Where a writer puts white space.
struct Layout {
    after_comma: &'static str,
    after_colon: &'static str,
    indent: Option<&'static str>,
}

impl Layout {
    const ALL: &'static [Self] = &[
        Self::new("", "", None),
        Self::new(" ", " ", None),
        Self::new("", " ", Some("  ")),
        Self::new("", " ", Some("    ")),
    ];

    const fn new(
        after_comma: &'static str,
        after_colon: &'static str,
        indent: Option<&'static str>,
    ) -> Self {
        Self {
            after_comma,
            after_colon,
            indent,
        }
    }
}

/// What a writer escapes in text, beyond what it must.
#[derive(Clone, Copy)]
enum Escapes {
    AsTheyStand,
    Nothing,
    NonAscii,
    NonAsciiAndSlashes,
    Html,
}

impl Escapes {
    const ALL: &'static [Self] = &[
        Self::AsTheyStand,
        Self::Nothing,
        Self::NonAscii,
        Self::NonAsciiAndSlashes,
        Self::Html,
    ];

    fn respell(self, literal: &str, out: &mut String) {
        let plain =
            serde_json::from_str::<String>(literal).and_then(|text| serde_json::to_string(&text));
        let Ok(plain) = plain else {
            return out.push_str(literal);
        };
        match self {
            Self::AsTheyStand => out.push_str(literal),
            Self::Nothing => out.push_str(&plain),
            _ => {
                for c in plain.chars() {
                    self.push(c, out);
                }
            }
        }
    }

    fn push(self, c: char, out: &mut String) {
        let slashes = matches!(self, Self::NonAsciiAndSlashes);
        let html = matches!(self, Self::Html);
        match c {
            '/' if slashes => out.push_str("\\/"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' if html => push_escaped(c, out),
            c if c.is_ascii() || html => out.push(c),
            c => push_escaped(c, out),
        }
    }
}

fn push_escaped(c: char, out: &mut String) {
    for unit in c.encode_utf16(&mut [0; 2]) {
        write!(out, "\\u{unit:04x}").expect("a string can be written to");
    }
}

/// Writes JSON anew, its members and numbers as they stand.
fn respell(json: &str, layout: &Layout, escapes: Escapes) -> String {
    let mut out = String::with_capacity(json.len() * 2);
    let mut depth = 0_usize;
    let mut rest = json.trim_start();
    let break_line = |out: &mut String, depth: usize| {
        if let Some(indent) = layout.indent {
            out.push('\n');
            (0..depth).for_each(|_| out.push_str(indent));
        }
    };

    // Deep nesting, indented, grows with the square of its depth. No event is like that.
    let longest = json.len() * 8 + 1024;
    while let Some(c) = rest.chars().next().filter(|_| out.len() < longest) {
        let (token, after) = rest.split_at(if c == '"' {
            literal_length(rest)
        } else {
            c.len_utf8()
        });
        rest = after.trim_start();
        match c {
            '"' => escapes.respell(token, &mut out),
            '{' | '[' => {
                out.push(c);
                if !rest.starts_with(['}', ']']) {
                    depth += 1;
                    break_line(&mut out, depth);
                }
            }
            '}' | ']' => {
                if !out.ends_with(['{', '[']) {
                    depth = depth.saturating_sub(1);
                    break_line(&mut out, depth);
                }
                out.push(c);
            }
            ',' => {
                out.push(',');
                out.push_str(layout.after_comma);
                break_line(&mut out, depth);
            }
            ':' => {
                out.push(':');
                out.push_str(layout.after_colon);
            }
            _ => out.push_str(token),
        }
    }
    out
}

/// The bytes of the string literal that `text` starts with, quotes included.
fn literal_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}
