/// Returns an address as the service stores it: trimmed, then in lower case (interface section 2.1).
///
/// Use it to find the row of a contact or of an event in your own database, where the address may be
/// written in another way. The calls of this crate send addresses as given, because the service normalizes
/// them itself.
///
/// White space and lower case are those of Unicode: `str::trim` and `str::to_lowercase`. The interface
/// document does not say how the service treats letters outside ASCII; for an address in ASCII there is only
/// one reading. Nothing else is changed: neither tags (`ada+news@`) nor dots, and invalid addresses stay
/// invalid.
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
pub fn normalized_address(address: &str) -> String {
    address.trim().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_trimmed_and_in_lower_case_also_outside_ascii() {
        for (given, stored) in [
            ("ada@x.io", "ada@x.io"),
            ("\t ADA@X.IO\r\n", "ada@x.io"),
            ("\u{a0}ÄDA@BÜCHER.example\u{3000}", "äda@bücher.example"),
            ("a b@x.io", "a b@x.io"),
            ("", ""),
        ] {
            assert_eq!(normalized_address(given), stored);
        }
    }

    #[test]
    fn a_normalized_address_stays_as_it_is() {
        for letter in '\0'..=char::MAX {
            let once = normalized_address(&format!("{letter}@x.io{letter}"));

            assert_eq!(normalized_address(&once), once, "{letter:?}");
        }
    }
}
