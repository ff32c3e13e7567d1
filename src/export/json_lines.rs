use super::contact::{ExportedContact, json};

/// Contacts as JSON lines: a JSON object on each line, in the form of the interface document.
///
/// serde reads a line of a full export into a [`Contact`](crate::contacts::Contact), and one of any other export into
/// a [`ContactSummary`](crate::contacts::ContactSummary). Nothing is lost. A `Contact` converts to an
/// [`ImportRow`](crate::import::ImportRow), so the file can be imported again, opt-outs included.
///
/// # Example: write and read a line
///
/// ```
/// use audience::contacts::Contact;
/// use audience::export::JsonLines;
///
/// let mut ada = Contact::new("c_1", "ada@example.com");
/// ada.properties.insert("seats", 3);
///
/// let line = JsonLines.line(&ada);
/// let read: Contact = serde_json::from_str(&line).unwrap();
/// assert_eq!(read, ada);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "a format writes nothing by itself"]
pub struct JsonLines;

impl JsonLines {
    /// Returns the line of a contact.
    #[must_use]
    pub fn line<'a>(self, contact: impl Into<ExportedContact<'a>>) -> String {
        let mut line = json(&contact.into());
        line.push('\n');
        line
    }
}
