use serde::{Deserialize, Deserializer, Serialize};

use super::optional_text;
use crate::Timestamp;
use crate::properties::Properties;

/// A contact as create returns it (interface section 2.2): without the topics and the reason of an
/// opt-out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ContactRecord {
    /// The id that the service assigned. Lists take it as a cursor.
    pub id: String,
    /// The address, trimmed and in lower case.
    pub email: String,
    /// The given name, if known.
    #[serde(default, with = "optional_text")]
    pub first_name: Option<String>,
    /// The family name, if known.
    #[serde(default, with = "optional_text")]
    pub last_name: Option<String>,
    /// The merge fields.
    #[serde(default, deserialize_with = "null_as_default")]
    pub properties: Properties,
    /// The global opt-out. If true, no broadcast reaches the contact.
    pub unsubscribed: bool,
    /// When the contact was created.
    pub created_at: Timestamp,
}

impl ContactRecord {
    /// Creates a contact, for example for a unit test. All other fields are empty, `created_at` is the Unix
    /// epoch, and the contact is not opted out. Assign to the fields to change them.
    ///
    /// # Example: in a unit test
    ///
    /// ```
    /// use audience::contacts::{ContactRecord, Created};
    ///
    /// let mut ada = ContactRecord::new("c_1", "ada@example.com");
    /// ada.first_name = Some("Ada".to_owned());
    ///
    /// let created = Created::new(ada, true);
    /// assert!(created.is_new());
    /// ```
    pub fn new(id: impl Into<String>, email: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            email: email.into(),
            first_name: None,
            last_name: None,
            properties: Properties::new(),
            unsubscribed: false,
            created_at: Timestamp::from_unix(0),
        }
    }
}

/// A contact as lists return it (interface section 2.3): without the family name, the topics and the
/// reason of an opt-out.
///
/// [`retrieve`](super::Contacts::retrieve) returns them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ContactSummary {
    /// The id that the service assigned. As a cursor, it continues the list after this contact.
    pub id: String,
    /// The address, trimmed and in lower case.
    pub email: String,
    /// The given name, if known.
    #[serde(default, with = "optional_text")]
    pub first_name: Option<String>,
    /// The merge fields.
    #[serde(default, deserialize_with = "null_as_default")]
    pub properties: Properties,
    /// The global opt-out. If true, no broadcast reaches the contact.
    pub unsubscribed: bool,
    /// When the contact was created.
    pub created_at: Timestamp,
}

impl ContactSummary {
    /// Creates a contact, for example for a unit test. All other fields are empty, `created_at` is the Unix
    /// epoch, and the contact is not opted out. Assign to the fields to change them.
    ///
    /// # Example: in a unit test
    ///
    /// ```
    /// use audience::contacts::{ContactSummary, Page};
    ///
    /// let mut ada = ContactSummary::new("c_1", "ada@example.com");
    /// ada.properties.insert("plan", "pro");
    ///
    /// let page = Page::new([ada]);
    /// assert_eq!(page.cursor(), Some("c_1"));
    /// ```
    pub fn new(id: impl Into<String>, email: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            email: email.into(),
            first_name: None,
            properties: Properties::new(),
            unsubscribed: false,
            created_at: Timestamp::from_unix(0),
        }
    }
}

/// Reads `null` as the default value.
pub(super) fn null_as_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_contact_without_the_unsubscribed_flag_is_an_error() {
        let error = serde_json::from_value::<ContactSummary>(
            json!({"id": "c1", "email": "a@x.io", "created_at": 5}),
        )
        .unwrap_err();

        assert!(error.to_string().contains("unsubscribed"));
    }
}
