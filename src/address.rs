//! Addresses of contacts.

/// Returns an address as the service stores it: trimmed and in lower case
/// ([interface section 2.1](crate::interface#2.1)).
///
/// Store addresses in this form in your own database, so that you find the row of a contact or of an event. For an
/// event, [`MailEvent::address`](crate::webhooks::MailEvent::address) calls this function. The calls of this crate need
/// no normalized address. In a body, they send it as given, because the service normalizes it. In a path, they send it
/// trimmed, with its ASCII letters in lower case.
///
/// It trims and converts as Unicode defines, by `str::trim` and `str::to_lowercase`. The interface document does not
/// say how the service treats letters outside ASCII, so the result is certain for ASCII addresses only. Tags
/// (`ada+news@`) and dots stay, and an invalid address stays invalid.
///
/// # Example: the key of a contact
///
/// ```
/// use audience::contacts::normalized_address;
///
/// assert_eq!(normalized_address(" Ada@Example.com\n"), "ada@example.com");
/// assert_eq!(normalized_address("Ada.L+News@x.io"), "ada.l+news@x.io");
/// ```
#[must_use]
#[cfg_attr(
    not(feature = "client"),
    expect(unreachable_pub, reason = "`contacts` exports it")
)]
pub fn normalized_address(address: &str) -> String {
    address.trim().to_lowercase()
}

/// Returns an error if a text is certainly no address, so that a signup form can ask again before it sends a mail.
///
/// It refuses an empty text, a text without `@`, several addresses, an address with a name (`Ada <ada@example.com>`),
/// white space and control characters, parts of a domain that are empty or have other characters than letters, digits,
/// `-` and `_`, and more than 254 bytes. In quotation marks before the `@`, it allows white space and most other
/// characters, but no `"`, `\`, `,`, `;`, `<` and `>`: some programs would read several addresses. Everything else is
/// for the service to decide. White space around the address is ignored. A dry run of an import and of a sync uses the
/// same rules, except for one.
///
/// Only this function also refuses quotation marks that the address does not need: `"ada"@example.com` is the mailbox of
/// `ada@example.com`, and may become another contact, with opt-outs of its own. Imports, syncs and all calls take such an
/// address, because the service may have the contact. So do not check the address of an opt-out.
///
/// # Errors
///
/// [`ErrorKind::Input`](crate::ErrorKind::Input). The text says what is wrong, and does not contain the address.
///
/// # Example: a signup form
///
/// ```
/// use audience::contacts::check_address;
///
/// assert!(check_address(" ada@example.com ").is_ok());
/// let error = check_address("ada@example.com, bob@example.com").unwrap_err();
/// assert_eq!(error.to_string(), "the address has two @");
/// ```
#[cfg(feature = "client")]
pub fn check_address(address: &str) -> Result<(), crate::Error> {
    let problem = address_problem(address);
    match problem.or(has_needless_quotes(address).then_some(NEEDLESS_QUOTES)) {
        None => Ok(()),
        Some(problem) => Err(crate::Error::input(problem).malformed_contact()),
    }
}

/// Says why a text is certainly no address.
#[cfg(feature = "client")]
pub(crate) fn address_problem(address: &str) -> Option<&'static str> {
    check(address.trim()).err()
}

#[cfg(feature = "client")]
const NEEDLESS_QUOTES: &str =
    "the part before the @ has quotation marks that it does not need; leave them out";

/// Returns whether an address is another spelling of the one without its quotation marks: `"ada"@example.com`.
#[cfg(feature = "client")]
fn has_needless_quotes(address: &str) -> bool {
    let quoted = address.trim().strip_prefix('"');
    let parts = quoted.and_then(|address| address.rsplit_once("\"@"));
    parts.is_some_and(|(local, domain)| check(&format!("{local}@{domain}")).is_ok())
}

/// Returns whether two addresses certainly belong to different contacts.
///
/// How the service writes letters outside ASCII is unknown, so such an address may be another form of any other one.
#[cfg(feature = "client")]
pub(crate) fn are_different(address: &str, other: &str) -> bool {
    let (address, other) = (address.trim(), other.trim());
    address.is_ascii() && other.is_ascii() && !address.eq_ignore_ascii_case(other)
}

/// Returns whether two addresses are spellings of one, for a service that converts all letters to lower case, or only
/// those of ASCII.
#[cfg(feature = "client")]
pub(crate) fn are_spellings_of_one(address: &str, other: &str) -> bool {
    one_spelling(address) == one_spelling(other)
}

/// Returns the same text for all [spellings of one address](are_spellings_of_one).
#[cfg(feature = "client")]
pub(crate) fn one_spelling(address: &str) -> String {
    // A sigma at the end of a word has a form of its own in lower case, which not every service writes. Capital letters
    // would also make one address of `straße` and `strasse`, which are two.
    normalized_address(address).replace('ς', "σ")
}

/// The longest address that mail servers take (RFC 5321, section 4.5.3.1.3).
#[cfg(feature = "client")]
const MAX_ADDRESS: usize = 254;

#[cfg(feature = "client")]
fn check(address: &str) -> Result<(), &'static str> {
    if address.is_empty() {
        return Err("the address is empty");
    }
    if address.len() > MAX_ADDRESS {
        return Err("the address is longer than 254 bytes");
    }
    let (local, domain) = address.rsplit_once('@').ok_or("the address has no @")?;
    if local.is_empty() || domain.is_empty() {
        return Err("nothing is before or after the @ of the address");
    }
    if address.chars().any(char::is_control) {
        return Err("the address has a control character in it");
    }
    let is_quoted = local.len() > 1 && local.starts_with('"') && local.ends_with('"');
    if !is_quoted && local.contains('@') {
        return Err("the address has two @");
    }
    if !is_quoted && local.chars().any(char::is_whitespace) || domain.contains(char::is_whitespace)
    {
        return Err("the address has white space in it");
    }
    // Also where they are allowed: a program that knows no quotation marks would send to each part.
    if is_quoted && local[1..local.len() - 1].contains(['"', '\\', ',', ';', '<', '>']) {
        return Err(
            "the quoted part before the @ has a character that could begin another address",
        );
    }
    if !is_quoted && local.contains(['(', ')', '<', '>', '[', ']', ':', ';', ',', '\\', '"']) {
        return Err("the part before the @ has a character that no address has");
    }
    check_domain(domain)
}

#[cfg(feature = "client")]
fn check_domain(domain: &str) -> Result<(), &'static str> {
    if domain.starts_with('[') && domain.ends_with(']') {
        return Ok(());
    }
    if domain.split('.').any(str::is_empty) {
        return Err("a part of the domain is empty");
    }
    let is_valid = |letter: char| {
        !letter.is_ascii() || letter.is_ascii_alphanumeric() || "-._".contains(letter)
    };
    match domain.chars().all(is_valid) {
        true => Ok(()),
        false => Err("the part after the @ has a character that no domain has"),
    }
}

#[cfg(all(test, feature = "client"))]
mod tests {
    use super::*;

    #[cfg(feature = "client")]
    #[test]
    fn an_address_is_refused_with_what_is_wrong_and_not_with_itself() {
        let error = check_address("ada@example.com, bob@example.com").unwrap_err();

        assert_eq!(error.kind(), crate::ErrorKind::Input);
        assert_eq!(error.to_string(), "the address has two @");
        assert_eq!(
            error.visitor_status(),
            crate::StatusCode::UNPROCESSABLE_ENTITY
        );
        check_address(" ada@example.com ").unwrap();
    }

    #[cfg(feature = "client")]
    #[test]
    fn an_address_of_254_bytes_is_taken_and_a_longer_one_is_refused() {
        let address = |length: usize| format!("{}@example.com", "a".repeat(length - 12));

        check_address(&address(254)).unwrap();
        let error = check_address(&address(255)).unwrap_err();

        assert_eq!(error.to_string(), "the address is longer than 254 bytes");
    }

    #[test]
    fn quotation_marks_that_an_address_does_not_need_are_refused_only_before_a_signup() {
        for address in ["\"ada\"@x.io", " \"Ada.L+news\"@X.io "] {
            let error = check_address(address).unwrap_err();

            assert!(error.to_string().contains("leave them out"), "{error}");
            assert_eq!(address_problem(address), None, "the service may have it");
        }
        check_address("\"ada lovelace\"@x.io").unwrap();
    }

    #[test]
    fn an_address_in_any_case_is_a_spelling_of_it_and_no_other_letter_is() {
        for (address, other) in [
            (" Ada@X.io", "ada@x.io"),
            ("jÜrgen@x.io", "JÜRGEN@X.IO"),
            ("νίκος@x.gr", "νίκοσ@x.gr"),
        ] {
            assert!(are_spellings_of_one(address, other), "{address}");
        }
        for other in ["möller@x.io", "mller@x.io", "müller@y.io", ""] {
            assert!(!are_spellings_of_one("müller@x.io", other), "{other}");
        }
        assert!(!are_spellings_of_one("ada@straße.de", "ada@strasse.de"));
        assert!(!are_spellings_of_one("ırmak@x.tr", "irmak@x.tr"));
    }

    #[test]
    fn only_what_is_certainly_not_an_address_is_refused() {
        for address in [
            "ada@example.com",
            " Ada@Example.COM ",
            "a..b.@docomo.ne.jp",
            "o'neill+news/x=y@x.io",
            "\"ada lovelace@home\"@x.io",
            "ada@localhost",
            "ada@[192.0.2.1]",
            "äda@bücher.example",
            "ada@xn--bcher-kva.example",
        ] {
            assert_eq!(address_problem(address), None, "{address}");
        }
        let long = format!("{}@x.io", "a".repeat(250));
        for address in [
            "",
            "ada",
            "@x.io",
            "ada@",
            "ada@x..io",
            "ada@x.io.",
            "ada@x.io,",
            "ada @x.io",
            "ada@x.io;grace@x.io",
            "ada@x.io grace@x.io",
            "Ada <ada@x.io>",
            "<ada@x.io>",
            "mailto:ada@x.io",
            "ada@x.io/news",
            "ada\0@x.io",
            "\"@x.io",
            "ada lovelace\"@x.io",
            "\"a\"@x.io,victim@y.com,\"b\"@z.io",
            "\"a,victim@y.com,b\"@x.io",
            "\"a;b\"@x.io",
            "\"a<victim@y.com>\"@x.io",
            "\"a\\\"@x.io",
            "\"a\\\"b\"@x.io",
            "\"\"\"@x.io",
            "ada@[192.0.2.1",
            "ada@192.0.2.1]",
            &long,
        ] {
            assert!(address_problem(address).is_some(), "{address}");
        }
    }
}
