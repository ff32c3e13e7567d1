//! Checks rows without sending them. Pure.

use super::grouping::{AddressHash, AddressSet};
use super::report::RowOutcome;
use super::row::ImportRow;
use crate::ErrorCode;
use crate::contacts::{NewContact, PropertyValue, normalized_address};

/// The longest address that mail servers take (RFC 5321, section 4.5.3.1.3).
const MAX_ADDRESS: usize = 254;

/// The state of a dry run.
#[derive(Debug, Default)]
pub(super) struct DryRun {
    /// The addresses of the valid rows so far.
    addresses: AddressSet,
}

impl DryRun {
    /// Returns the outcome of a row, and whether it is valid and an earlier valid row has its address.
    pub(super) fn check(&mut self, row: &ImportRow) -> (RowOutcome, bool) {
        let refusal = match row.contact() {
            None => Some(("invalid_row", row.unreadable_reason().unwrap_or_default())),
            Some(contact) => check_contact(contact),
        };
        if let Some((code, message)) = refusal {
            let outcome = RowOutcome::Refused {
                code: ErrorCode::from(code),
                message: Some(message.to_owned()),
                retryable: false,
            };
            return (outcome, false);
        }
        let address = row.contact().map_or("", |contact| contact.email.as_str());
        let address = AddressHash::new(&normalized_address(address));
        (RowOutcome::Valid, !self.addresses.insert(address))
    }
}

fn check_contact(contact: &NewContact) -> Option<(&'static str, &'static str)> {
    if let Err(problem) = check_address(contact.email.trim()) {
        return Some(("invalid_address", problem));
    }
    let properties = contact.members().properties;
    let problem = properties
        .into_iter()
        .flatten()
        .find_map(|(name, value)| check_property(name, value).err());
    problem.map(|problem| ("invalid_property", problem))
}

/// Refuses only what is certainly not an address. The service decides about the rest.
fn check_address(address: &str) -> Result<(), &'static str> {
    if address.is_empty() {
        return Err("the row has no address");
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
    if !is_quoted && local.contains(['(', ')', '<', '>', '[', ']', ':', ';', ',', '\\', '"']) {
        return Err("the part before the @ has a character that no address has");
    }
    check_domain(domain)
}

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

fn check_property(name: &str, value: &PropertyValue) -> Result<(), &'static str> {
    if name.is_empty() {
        return Err("a property has no name");
    }
    if name.trim() != name || name.chars().any(char::is_control) {
        return Err(
            "the name of a property has white space around it or a control character in it",
        );
    }
    if !value.is_valid_json() {
        return Err("a property is an infinite number or NaN, which JSON cannot represent");
    }
    match value {
        PropertyValue::Other(_) => Err("a property is neither text nor a number"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
            assert_eq!(check_address(address.trim()), Ok(()), "{address}");
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
            &long,
        ] {
            assert!(check_address(address).is_err(), "{address}");
        }
    }

    #[test]
    fn a_property_is_text_or_a_number_and_has_a_name() {
        let row = |name: &str, value: PropertyValue| {
            DryRun::default().check(&NewContact::new("a@x.io").property(name, value).into())
        };

        for value in [json!("pro"), json!(3), json!(0.5)] {
            assert_eq!(row("plan", value.into()).0, RowOutcome::Valid);
        }
        for value in [json!(true), json!(null), json!([1]), json!({"a": 1})] {
            assert_eq!(row("plan", value.into()).0.code(), "invalid_property");
        }
        assert_eq!(row("plan", f64::NAN.into()).0.code(), "invalid_property");
        for name in ["", " plan", "pl\nan"] {
            assert_eq!(row(name, "pro".into()).0.code(), "invalid_property");
        }
    }
}
