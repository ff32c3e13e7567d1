//! Escapes text for messages, and recognizes invisible characters.

/// Returns a name as a message shows it: unchanged, but with control characters escaped.
///
/// Apostrophes, quotation marks and backslashes stay as they are. So do invisible characters, which are part of many
/// emoji.
pub(crate) fn printable(name: &str) -> String {
    escaped(name, char::is_control)
}

/// Returns a text with the characters escaped that [`printable`] escapes, and also invisible characters and white space
/// other than spaces.
///
/// Use it for a text that is invalid: such a character may be the reason.
pub(crate) fn visible(text: &str) -> String {
    escaped(text, |c| {
        c.is_control() || is_invisible(c) || (c.is_whitespace() && c != ' ')
    })
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if !is_escaped(character) {
            shown.push(character);
        } else if character.is_control() {
            shown.extend(character.escape_debug());
        } else {
            shown.extend(character.escape_unicode());
        }
    }
    shown
}

/// Returns whether a character is invisible: zero-width and bidirectional marks, soft hyphens, byte order
/// marks, variation selectors, fillers and tags.
///
/// These are the characters with the Unicode property `Default_Ignorable_Code_Point`, the interlinear annotation
/// characters, and the blank Braille pattern.
pub(crate) fn is_invisible(character: char) -> bool {
    matches!(
        u32::from(character),
        0xad | 0x34f
            | 0x61c
            | 0x115f..=0x1160
            | 0x17b4..=0x17b5
            | 0x180b..=0x180f
            | 0x200b..=0x200f
            | 0x202a..=0x202e
            | 0x2060..=0x206f
            | 0x2800
            | 0x3164
            | 0xfe00..=0xfe0f
            | 0xfeff
            | 0xffa0
            | 0xfff0..=0xfffb
            | 0x1bca0..=0x1bca3
            | 0x1d173..=0x1d17a
            | 0xe0000..=0xe0fff
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_control_characters_of_a_name_are_escaped() {
        for unchanged in [
            "Ada's news",
            r#"the "best" \ offers"#,
            "e\u{301}té 用户 ❤\u{fe0f}",
        ] {
            assert_eq!(printable(unchanged), unchanged);
        }
        assert_eq!(printable("a\r\n\tb"), r"a\r\n\tb");
        assert_eq!(printable("\0\u{7f}\u{85}"), r"\0\u{7f}\u{85}");
    }

    #[test]
    fn invisible_characters_are_made_visible() {
        for (text, shown) in [
            ("a\nb", r"a\nb"),
            (
                "a\u{200b}b\u{ad}\u{202e}\u{feff}",
                r"a\u{200b}b\u{ad}\u{202e}\u{feff}",
            ),
            ("\u{fe0f}\u{e0041}", r"\u{fe0f}\u{e0041}"),
            ("a b\u{a0}c\u{2028}", r"a b\u{a0}c\u{2028}"),
            ("Zoë's 用户 🎉", "Zoë's 用户 🎉"),
        ] {
            assert_eq!(visible(text), shown);
        }
    }
}
