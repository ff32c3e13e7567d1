use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Properties, UnsubscribeReason};
use crate::Timestamp;

/// A contact in full, as retrieve and the consent calls return it (interface section 2.1).
///
/// Names that were never given are `None`, whether the service leaves them out, sends `null` or an
/// empty text. What an answer leaves out is absent here, never an answer: after a consent call that
/// shows no topics, [`topics`](Contact::topics) is empty.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Contact {
    /// The service's own id; lists take it as a cursor. The address is the key of a contact.
    pub id: String,
    /// In lower case, without white space around it.
    pub email: String,
    /// The given name.
    #[serde(default, with = "empty_is_none")]
    pub first_name: Option<String>,
    /// The family name.
    #[serde(default, with = "empty_is_none")]
    pub last_name: Option<String>,
    /// Merge fields.
    #[serde(default, deserialize_with = "null_is_default")]
    pub properties: Properties,
    /// The global opt-out: no broadcast reaches the contact, whatever its topic.
    pub unsubscribed: bool,
    /// Why the contact is opted out; `None` where the service gives no reason.
    #[serde(default, with = "empty_is_none")]
    pub unsubscribe_reason: Option<UnsubscribeReason>,
    /// When the contact was created.
    pub created_at: Timestamp,
    /// For each topic the contact's answer, or the topic's own default where there is none.
    #[serde(default, deserialize_with = "null_is_default")]
    pub topics: BTreeMap<String, bool>,
}

/// A contact as create returns it (interface section 2.2): without topics and reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ContactRecord {
    /// The service's own id; lists take it as a cursor.
    pub id: String,
    /// In lower case, without white space around it.
    pub email: String,
    /// The given name.
    #[serde(default, with = "empty_is_none")]
    pub first_name: Option<String>,
    /// The family name.
    #[serde(default, with = "empty_is_none")]
    pub last_name: Option<String>,
    /// Merge fields.
    #[serde(default, deserialize_with = "null_is_default")]
    pub properties: Properties,
    /// The global opt-out.
    pub unsubscribed: bool,
    /// When the contact was created.
    pub created_at: Timestamp,
}

/// A contact as lists show it (interface section 2.3): without family name, reason and topics, which
/// [`retrieve`](super::Contacts::retrieve) has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ContactSummary {
    /// The service's own id: as a cursor, it stands for the list after this contact.
    pub id: String,
    /// In lower case, without white space around it.
    pub email: String,
    /// The given name.
    #[serde(default, with = "empty_is_none")]
    pub first_name: Option<String>,
    /// Merge fields.
    #[serde(default, deserialize_with = "null_is_default")]
    pub properties: Properties,
    /// The global opt-out.
    pub unsubscribed: bool,
    /// When the contact was created.
    pub created_at: Timestamp,
}

fn null_is_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// `""` stands for what is not there, in both directions.
pub(super) mod empty_is_none {
    use super::{Deserialize, Deserializer, Serialize, Serializer};

    pub(in crate::contacts) fn serialize<S: Serializer, T: Serialize>(
        value: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => value.serialize(serializer),
            None => serializer.serialize_str(""),
        }
    }

    pub(in crate::contacts) fn deserialize<'de, D: Deserializer<'de>, T: FromText>(
        deserializer: D,
    ) -> Result<Option<T>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        Ok(text.filter(|text| !text.is_empty()).map(T::from_text))
    }

    pub(in crate::contacts) trait FromText {
        fn from_text(text: String) -> Self;
    }

    impl FromText for String {
        fn from_text(text: String) -> Self {
            text
        }
    }

    impl FromText for super::UnsubscribeReason {
        fn from_text(text: String) -> Self {
            Self::from(text.as_str())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_never_given_is_none_however_it_is_left_out() {
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
    fn the_global_flag_is_never_guessed() {
        let error = serde_json::from_value::<ContactSummary>(
            json!({"id": "c1", "email": "a@x.io", "created_at": 5}),
        )
        .unwrap_err();

        assert!(error.to_string().contains("unsubscribed"));
    }

    #[test]
    fn unknown_reasons_and_members_are_no_error() {
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
