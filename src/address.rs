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
