use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use super::optional_text;
use super::reason::UnsubscribeReason;
use crate::Timestamp;
use crate::properties::Properties;

/// A contact in its full form, as retrieve and the consent calls return it (interface section 2.1).
///
/// A name that was never given is `None`, whether the service leaves it out, sends `null` or sends an
/// empty text. A member that a response leaves out is never guessed: if a consent call returns no
/// topics, [`topics`](Contact::topics) is empty.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Contact {
    /// The id that the service assigned. Lists take it as a cursor. The key of a contact is its
    /// address, not its id.
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
    /// The global opt-out. If true, no broadcast of any topic reaches the contact.
    pub unsubscribed: bool,
    /// Why the contact is opted out, if the service gives a reason.
    #[serde(default, with = "optional_text")]
    pub unsubscribe_reason: Option<UnsubscribeReason>,
    /// When the contact was created.
    pub created_at: Timestamp,
    /// The contact's answer for each topic. If the contact never answered, it is the topic's default.
    #[serde(default, deserialize_with = "null_as_default")]
    pub topics: BTreeMap<String, bool>,
}

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

/// Reads `null` as the default value.
fn null_as_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn members_that_are_missing_null_or_empty_are_none_or_empty() {
        let base = json!({"id": "c1", "email": "a@x.io", "unsubscribed": false, "created_at": 5});
        for absent in [
            json!({}),
            json!({"first_name": null, "last_name": null, "unsubscribe_reason": null, "properties": null, "topics": null}),
            json!({"first_name": "", "last_name": "", "unsubscribe_reason": "", "properties": {}, "topics": {}}),
        ] {
            let mut value = base.clone();
            value
                .as_object_mut()
                .unwrap()
                .extend(absent.as_object().unwrap().clone());

            let contact: Contact = serde_json::from_value(value).unwrap();

            assert_eq!(
                (
                    contact.first_name,
                    contact.last_name,
                    contact.unsubscribe_reason
                ),
                (None, None, None)
            );
            assert!(contact.properties.is_empty() && contact.topics.is_empty());
        }
    }

    #[test]
    fn a_contact_without_the_unsubscribed_flag_is_an_error() {
        let error = serde_json::from_value::<ContactSummary>(
            json!({"id": "c1", "email": "a@x.io", "created_at": 5}),
        )
        .unwrap_err();

        assert!(error.to_string().contains("unsubscribed"));
    }

    #[test]
    fn unknown_reasons_and_members_are_accepted() {
        let value = json!({"id": "c1", "email": "a@x.io", "unsubscribed": true, "unsubscribe_reason": "moved",
            "created_at": -1, "topics": {"news": false}, "brand_new": [1]});

        let contact: Contact = serde_json::from_value(value).unwrap();

        assert_eq!(
            contact.unsubscribe_reason,
            Some(UnsubscribeReason::Other("moved".into()))
        );
        assert_eq!(contact.topics.get("news"), Some(&false));
    }
}
