use std::fmt::Write;

use serde::de::IgnoredAny;

use crate::webhooks::event::Event;

/// Returns the same JSON as common serializers write it, with its members in their current order and
/// in the order of the interface document. Empty if the text is not JSON.
pub(super) fn json_spellings(text: &str) -> impl Iterator<Item = String> {
    let is_json = serde_json::from_str::<IgnoredAny>(text).is_ok();
    // A library that sorts members loses the order of the service, which the model restores.
    let ordered = Event::from_unverified_json(text.as_bytes())
        .ok()
        .and_then(|event| serde_json::to_string(&event).ok());

    [is_json.then(|| text.to_owned()), ordered]
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

/// The places in which a serializer puts white space.
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

/// Which characters of a string a serializer escapes beyond the required ones.
#[derive(Clone, Copy)]
enum Escapes {
    Unchanged,
    Nothing,
    NonAscii,
    NonAsciiAndSlashes,
    Html,
}

impl Escapes {
    const ALL: &'static [Self] = &[
        Self::Unchanged,
        Self::Nothing,
        Self::NonAscii,
        Self::NonAsciiAndSlashes,
        Self::Html,
    ];

    fn respell(self, literal: &str, out: &mut String) {
        if matches!(self, Self::Unchanged) {
            return out.push_str(literal);
        }
        let plain =
            serde_json::from_str::<String>(literal).and_then(|text| serde_json::to_string(&text));
        let Ok(plain) = plain else {
            return out.push_str(literal);
        };
        if matches!(self, Self::Nothing) {
            return out.push_str(&plain);
        }
        for c in plain.chars() {
            self.push(c, out);
        }
    }

    fn push(self, c: char, out: &mut String) {
        let slashes = matches!(self, Self::NonAsciiAndSlashes);
        let html = matches!(self, Self::Html);
        match c {
            '/' if slashes => out.push_str("\\/"),
            // Go escapes these by default, so that JSON is safe inside HTML.
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' if html => push_escaped(c, out),
            c if c.is_ascii() || html => out.push(c),
            c => push_escaped(c, out),
        }
    }
}

fn push_escaped(c: char, out: &mut String) {
    // JSON escapes a character beyond U+FFFF as two surrogates.
    for unit in c.encode_utf16(&mut [0; 2]) {
        write!(out, "\\u{unit:04x}").expect("writing to a string does not fail");
    }
}

/// Writes JSON in another layout. The order of members and the text of numbers stay the same.
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

    // Indentation of deeply nested JSON grows with the square of the depth. Events are not nested deeply.
    let max_length = json.len() * 8 + 1024;
    while let Some(c) = rest.chars().next().filter(|_| out.len() < max_length) {
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
                // Serializers write an empty object or array without a line break.
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

/// Returns the length in bytes of the string literal at the start of `text`, including its quotes.
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
