//! Email addresses: when one is valid, how it is stored, and when two are the same.

use super::printable::is_invisible;

/// Returns the form in which an address is stored and shown: lowercased and trimmed (section 2.1).
pub(crate) fn normalized(address: &str) -> String {
    address.trim().to_lowercase()
}

/// The identity of an address: two addresses with the same key are the same contact (section 1).
///
/// Case and surrounding white space do not matter. Lowercase letters with the same capital count as one letter, such as
/// `σ` and `ς`, whose capital is `Σ`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AddressKey(String);

impl AddressKey {
    /// Creates the key of an address, which need not be normalized or valid.
    pub(crate) fn new(address: &str) -> Self {
        Self(case_folded(address.trim()))
    }

    /// Returns the key as text: the address, case-folded.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether the address contains a [case-folded](case_folded) text.
    pub(crate) fn contains(&self, text: &str) -> bool {
        self.0.contains(text)
    }
}

/// Returns a text in the form used for comparisons that ignore case (`query`, section 4.4).
pub(crate) fn case_folded(text: &str) -> String {
    let mut folded = String::with_capacity(text.len());
    for character in text.chars() {
        folded.extend(capital(character).to_lowercase());
    }
    folded
}

/// Returns the capital of a letter if that is a single character, otherwise the letter.
///
/// The dotless `ı` counts as its own capital: it would become `I` and then `i`, which is another letter.
fn capital(letter: char) -> char {
    let mut capitals = letter.to_uppercase();
    match (capitals.next(), capitals.next()) {
        (Some(capital), None) if letter != 'ı' => capital,
        _ => letter,
    }
}

/// Returns whether a normalized address is valid.
///
/// The document says only "must be an email address" (section 2.4). The mock accepts `local@domain` without white
/// space, control characters and invisible characters:
///
/// - The local part has none of `<>()[],:\"`, or is a quoted string without quotation marks and backslashes inside.
/// - The domain consists of labels with a dot between them, and no label is empty. A label has no ASCII punctuation
///   other than `-` and `_`. An address literal such as `[192.0.2.1]` is also a domain.
/// - Letters beyond ASCII are valid in both.
///
/// The local part may have dots anywhere: some providers issued such addresses.
pub(crate) fn is_address(normalized: &str) -> bool {
    let forbidden = |c: char| c.is_whitespace() || c.is_control() || is_invisible(c);
    match normalized.split_once('@') {
        Some((local, domain)) => {
            is_local_part(local) && is_domain(domain) && !normalized.contains(forbidden)
        }
        None => false,
    }
}

fn is_local_part(local: &str) -> bool {
    let quoted = local
        .strip_prefix('"')
        .and_then(|local| local.strip_suffix('"'));
    match quoted {
        Some(quoted) => !quoted.is_empty() && !quoted.contains(['"', '\\']),
        None => {
            !local.is_empty()
                && !local.contains(['<', '>', '(', ')', '[', ']', ',', ':', '\\', '"'])
        }
    }
}

fn is_domain(domain: &str) -> bool {
    let literal = domain
        .strip_prefix('[')
        .and_then(|domain| domain.strip_suffix(']'));
    if let Some(literal) = literal {
        let in_literal = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == ':';
        return !literal.is_empty() && literal.chars().all(in_literal);
    }
    let in_label = |c: char| !c.is_ascii_punctuation() || c == '-' || c == '_';
    domain
        .split('.')
        .all(|label| !label.is_empty() && label.chars().all(in_label))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_valid_address_has_a_local_part_and_a_domain_of_allowed_characters() {
        for good in [
            "ada@example.com",
            "ada+news@example.com",
            "a/b@example.com",
            "a;b@example.com",
            ".a..b.@example.com",
            "!#$%&'*+-/=?^_`{|}~@example.com",
            "\"a,b\"@example.com",
            "ürsel@exämple.de",
            "हिन्दी@उदाहरण.भारत",
            "a@b",
            "a@x_y.io",
            "a@[192.0.2.1]",
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
            "a@.",
            "a@.b",
            "a@b.",
            "a@b..c",
            "<a@b>",
            "a@b>",
            "ada <a@b>",
            "a@b,",
            "a@b;",
            "a,b@c",
            "mailto:a@b",
            "a@b?c",
            "a@b/c",
            "a\\b@c",
            "\"a@c",
            "\"@c",
            "\"\"@c",
            "\"a\"b\"@c",
            "\"a b\"@c",
            "a@[]",
            "a@[192.0.2.1",
            "a\u{200b}@b",
            "a@b\u{ad}c",
            "\u{feff}a@b",
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

    #[test]
    fn addresses_that_differ_in_case_and_surrounding_space_have_one_key() {
        for (one, other) in [
            ("Ada@Example.COM", " ada@example.com\n"),
            ("οδος@x.gr", "ΟΔΟΣ@x.gr"),
            ("οδος@x.gr", "οδοσ@x.gr"),
            ("µ@x.gr", "Μ@x.gr"),
            ("straße@x.de", "STRAẞE@x.de"),
        ] {
            assert_eq!(AddressKey::new(one), AddressKey::new(other));
        }
        for (one, other) in [
            ("straße@x.de", "strasse@x.de"),
            ("ırmak@x.tr", "irmak@x.tr"),
            ("é@x.fr", "e@x.fr"),
        ] {
            assert_ne!(AddressKey::new(one), AddressKey::new(other));
        }
    }

    #[test]
    fn every_character_has_the_key_of_its_lowercase_form() {
        for character in '\0'..=char::MAX {
            let text = character.to_string();
            let folded = case_folded(&text);

            assert_eq!(case_folded(&folded), folded, "{text:?}");
            assert_eq!(case_folded(&text.to_lowercase()), folded, "{text:?}");
        }
    }
}
