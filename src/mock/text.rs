//! Text in messages and in files.

/// Some editors and shells begin a file with it.
pub(in crate::mock) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// Returns a text as a message shows it: unchanged, but with control characters escaped.
pub(in crate::mock) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            shown.extend(character.escape_debug());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// The longest name in a message, in characters.
const MAX_NAME: usize = 200;

/// Returns a name as a message shows it: [`printable`], and only its beginning if it is long.
pub(in crate::mock) fn printable_name(name: &str) -> String {
    match name.char_indices().nth(MAX_NAME) {
        Some((end, _)) => printable(&name[..end]) + "…",
        None => printable(name),
    }
}

/// Returns names as a message lists them: each in backticks, separated by commas.
pub(in crate::mock) fn quoted_list(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}

/// Returns a text in the form in which two texts are compared without regard to case.
///
/// `str::to_lowercase` makes another sigma at the end of a word, so a part of a word would not be found in it.
pub(in crate::mock) fn case_folded(text: &str) -> String {
    let lowercase = text.chars().flat_map(char::to_lowercase);
    let folded = lowercase.map(|character| if character == 'ς' { 'σ' } else { character });
    folded.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_control_characters_are_escaped_in_a_message() {
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
    fn only_the_beginning_of_a_long_name_is_in_a_message() {
        assert_eq!(printable_name(&"❤".repeat(200)), "❤".repeat(200));
        assert_eq!(printable_name(&"❤".repeat(201)), "❤".repeat(200) + "…");
        assert_eq!(printable_name("a\n"), r"a\n");
    }

    #[test]
    fn a_part_of_a_word_is_found_in_it_in_any_case() {
        for (text, part) in [
            ("ΟΔΥΣΣΕΑΣ", "οδυσ"),
            ("Οδυσσέας", "ΈΑΣ"),
            ("οδυσσεας", "ΟΔΥΣ"),
            ("Ada", "DA"),
            ("İstanbul", "İ"),
        ] {
            assert!(case_folded(text).contains(&case_folded(part)), "{text}");
        }
    }
}
