//! Email addresses: when one is valid, and the form in which it is stored and looked up.

/// Returns the form in which an address is stored and looked up: lowercased and trimmed (section 2.1).
pub(crate) fn normalized(address: &str) -> String {
    lowercase(address.trim())
}

/// Returns whether a normalized address is valid.
///
/// The document says only "must be an email address" (section 2.4). The mock accepts exactly one `@` with text on
/// both sides of it, and refuses white space and control characters. Letters beyond ASCII are valid.
pub(crate) fn is_address(normalized: &str) -> bool {
    let Some((local, domain)) = normalized.split_once('@') else {
        return false;
    };
    let blank = |c: char| c.is_whitespace() || c.is_control();
    !local.is_empty() && !domain.is_empty() && !domain.contains('@') && !normalized.contains(blank)
}

/// Lowercases each character by itself.
///
/// [`str::to_lowercase`] writes a sigma at the end of a word in another way than one inside it. A part of a text
/// would then no longer be found in the whole.
fn lowercase(text: &str) -> String {
    text.chars().flat_map(char::to_lowercase).collect()
}

/// Returns a text in the form used for comparisons that ignore case (`query`, section 4.4).
///
/// This is the lowercase form, with the final sigma `ς` replaced by `σ`: both have the same capital letter.
pub(crate) fn case_folded(text: &str) -> String {
    lowercase(text).replace('ς', "σ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_valid_address_has_one_at_sign_with_text_on_both_sides_and_no_white_space() {
        for good in [
            "ada@example.com",
            "ada+news@example.com",
            "a/b@example.com",
            "ürsel@exämple.de",
            "a@b",
        ] {
            assert!(is_address(good), "{good}");
        }
        for bad in [
            "",
            "@",
            "ada",
            "ada@",
            "@b",
            "a@b@c",
            "a b@c",
            "a@b\tc",
            "a\u{0}@b",
            "a@b\u{a0}",
        ] {
            assert!(!is_address(bad), "{bad:?}");
        }
    }

    #[test]
    fn an_address_is_stored_lowercased_and_trimmed() {
        assert_eq!(normalized(" \tAda@Example.COM\n"), "ada@example.com");
        assert_eq!(
            normalized(&normalized("ΟΔΟΣ@İ.gr")),
            normalized("ΟΔΟΣ@İ.gr")
        );
    }
}
