//! Email addresses: when one is valid, and how it is stored. Texts as a message shows them.

/// Returns the form in which an address is stored and shown: lowercased and trimmed (section 2.1). It identifies a
/// contact (section 1).
pub(super) fn normalized(address: &str) -> String {
    address.trim().to_lowercase()
}

/// Returns whether a normalized address is valid.
///
/// The document says only "must be an email address" (section 2.4). The mock accepts `local@domain` without white
/// space and control characters:
///
/// - The local part has none of `<>()[],:\"`, or is a quoted string without quotation marks and backslashes inside.
/// - The domain consists of labels with a dot between them, and no label is empty. A label has no ASCII punctuation
///   other than `-` and `_`. An address literal such as `[192.0.2.1]` is also a domain.
/// - Letters beyond ASCII are valid in both.
///
/// The local part may have dots anywhere: some providers issued such addresses.
pub(super) fn is_address(normalized: &str) -> bool {
    let forbidden = |c: char| c.is_whitespace() || c.is_control();
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

/// Returns a text as a message shows it: unchanged, but with control characters escaped.
pub(super) fn printable(text: &str) -> String {
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

/// Returns names as a message lists them: each in backticks, separated by commas.
pub(super) fn quoted_list(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
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
}
