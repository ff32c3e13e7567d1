//! What an email address is to the mock, and the one form it is stored and found in.

/// An address as it is stored and looked up: lowercased and trimmed (section 2.1).
pub(crate) fn normalised(address: &str) -> String {
    lowercase(address.trim())
}

/// Whether a normalised address is one.
///
/// One `@` with something on both sides of it, and neither white space nor control characters
/// anywhere. Letters beyond ASCII are taken; nothing else about either side is judged.
pub(crate) fn is_address(normalised: &str) -> bool {
    let Some((local, domain)) = normalised.split_once('@') else {
        return false;
    };
    let blank = |c: char| c.is_whitespace() || c.is_control();
    !local.is_empty() && !domain.is_empty() && !domain.contains('@') && !normalised.contains(blank)
}

/// Character by character, so that a part of a text is lowercased as it is within the whole: what
/// [`str::to_lowercase`] does to a final sigma would keep it from being found.
pub(crate) fn lowercase(text: &str) -> String {
    text.chars().flat_map(char::to_lowercase).collect()
}

/// A text as it is compared where case does not count: lowercased, and with one small sigma for the
/// two there are, which are the same letter in capitals.
pub(crate) fn folded(text: &str) -> String {
    lowercase(text).replace('ς', "σ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_one_at_sign_two_sides_and_no_blanks() {
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
        assert_eq!(normalised(" \tAda@Example.COM\n"), "ada@example.com");
        assert_eq!(
            normalised(&normalised("ΟΔΟΣ@İ.gr")),
            normalised("ΟΔΟΣ@İ.gr")
        );
    }
}
