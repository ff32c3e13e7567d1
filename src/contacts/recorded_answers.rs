use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Contact;

/// The result of [`Contacts::answers`](super::Contacts::answers): each answer of the form, by whether it
/// changed what the contact shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RecordedAnswers {
    /// The contact after the last answer was recorded. If nothing was sent, the contact as it was retrieved.
    pub contact: Contact,
    /// The answers that differed from those shown, and were recorded.
    #[serde(default)]
    pub changed: BTreeMap<String, bool>,
    /// The answers that the contact showed already. They were sent only with
    /// [`record_unchanged`](super::RecordAnswers::record_unchanged).
    #[serde(default)]
    pub unchanged: BTreeMap<String, bool>,
}

impl RecordedAnswers {
    /// Creates a result without answers, for unit tests of your own. Assign to the other fields.
    #[must_use]
    pub fn new(contact: Contact) -> Self {
        Self {
            contact,
            changed: BTreeMap::new(),
            unchanged: BTreeMap::new(),
        }
    }
}
