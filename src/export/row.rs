use crate::contacts::{Contact, NewContact, OptOutReason, UnsubscribeReason};
use crate::import::{ImportRow, OptOut};

/// Converts a contact of a full export to a row that creates it elsewhere.
///
/// Names and properties are those of the contact. An opt-out becomes an [`OptOut::Everything`]: `preferences` stays, and
/// any other reason becomes `manual`, because a sender cannot declare a complaint (interface section 4.5). Each topic
/// that is `false` becomes an [`OptOut::Topic`], whether the contact answered or it is the topic's default. Nobody is
/// subscribed.
///
/// # Example: the lines of an export
///
/// ```
/// use audience::contacts::Contact;
/// use audience::import::{ImportRow, OptOut};
///
/// let line = r#"{"id": "c_1", "email": "ada@example.com", "unsubscribed": false, "created_at": 0,
///     "topics": {"news": true, "offers": false}}"#;
/// let contact: Contact = serde_json::from_str(line).unwrap();
///
/// let row = ImportRow::from(contact);
/// assert_eq!(row.opt_outs(), [OptOut::Topic("offers".to_owned())]);
/// ```
impl From<Contact> for ImportRow {
    fn from(contact: Contact) -> Self {
        let mut new = NewContact::new(contact.email)
            .first_name(contact.first_name)
            .last_name(contact.last_name);
        if !contact.properties.is_empty() {
            new = new.properties(contact.properties);
        }
        let mut row = Self::new(new);
        if contact.unsubscribed {
            let reason = match contact.unsubscribe_reason {
                Some(UnsubscribeReason::Preferences) => OptOutReason::Preferences,
                _ => OptOutReason::Manual,
            };
            row = row.opt_out(OptOut::Everything(reason));
        }
        for (topic, answer) in contact.topics {
            if !answer {
                row = row.opt_out(OptOut::Topic(topic));
            }
        }
        row
    }
}
