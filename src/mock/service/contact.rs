//! A stored contact, and the three forms in which a response shows one (sections 2.1 to 2.3).

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::dialect::MissingName;

/// A contact as the [`ContactStore`](super::contact_store::ContactStore) holds it.
#[derive(Clone, Debug)]
pub(crate) struct Contact {
    pub(crate) id: String,
    /// Normalized.
    pub(crate) email: String,
    pub(crate) first_name: Option<String>,
    pub(crate) last_name: Option<String>,
    pub(crate) properties: Map<String, Value>,
    pub(crate) unsubscribed: bool,
    pub(crate) reason: Reason,
    /// Unix seconds. Only [`ContactStore::put`](super::contact_store::ContactStore::put) changes it: the order of the
    /// store depends on it.
    pub(crate) created_at: i64,
    /// The contact's own topic answers.
    pub(crate) answers: BTreeMap<String, bool>,
}

impl Contact {
    /// Returns the full form, which retrieve returns (section 2.1).
    pub(crate) fn to_full<'a>(
        &'a self,
        topics: &'a BTreeMap<String, bool>,
        missing: MissingName,
    ) -> impl Serialize + 'a {
        FullForm {
            id: &self.id,
            email: &self.email,
            first_name: Name::new(self.first_name.as_deref(), missing),
            last_name: Name::new(self.last_name.as_deref(), missing),
            properties: &self.properties,
            unsubscribed: self.unsubscribed,
            unsubscribe_reason: self.reason.as_str(),
            created_at: self.created_at,
            topics: self.topics(topics),
        }
    }

    /// Returns the form that create returns: the full form, without the reason and the topics (section 2.2).
    pub(crate) fn to_created(&self, missing: MissingName) -> impl Serialize + '_ {
        CreatedForm {
            id: &self.id,
            email: &self.email,
            first_name: Name::new(self.first_name.as_deref(), missing),
            last_name: Name::new(self.last_name.as_deref(), missing),
            properties: &self.properties,
            unsubscribed: self.unsubscribed,
            created_at: self.created_at,
        }
    }

    /// Returns the form of a list item: the form that create returns, without the last name (section 2.3).
    pub(crate) fn to_list_item(&self, missing: MissingName) -> impl Serialize + '_ {
        ListItemForm {
            id: &self.id,
            email: &self.email,
            first_name: Name::new(self.first_name.as_deref(), missing),
            properties: &self.properties,
            unsubscribed: self.unsubscribed,
            created_at: self.created_at,
        }
    }

    /// Returns an answer for every topic: the contact's own, or else the default of the topic (section 2.1).
    pub(super) fn topics<'a>(
        &self,
        defaults: &'a BTreeMap<String, bool>,
    ) -> BTreeMap<&'a str, bool> {
        defaults
            .iter()
            .map(|(name, default)| {
                let answer = self.answers.get(name).unwrap_or(default);
                (name.as_str(), *answer)
            })
            .collect()
    }
}

/// The JSON form of section 2.1.
#[derive(Serialize)]
struct FullForm<'a> {
    id: &'a str,
    email: &'a str,
    #[serde(skip_serializing_if = "Name::is_absent")]
    first_name: Name<'a>,
    #[serde(skip_serializing_if = "Name::is_absent")]
    last_name: Name<'a>,
    properties: &'a Map<String, Value>,
    unsubscribed: bool,
    unsubscribe_reason: &'a str,
    created_at: i64,
    topics: BTreeMap<&'a str, bool>,
}

/// The JSON form of section 2.2.
#[derive(Serialize)]
struct CreatedForm<'a> {
    id: &'a str,
    email: &'a str,
    #[serde(skip_serializing_if = "Name::is_absent")]
    first_name: Name<'a>,
    #[serde(skip_serializing_if = "Name::is_absent")]
    last_name: Name<'a>,
    properties: &'a Map<String, Value>,
    unsubscribed: bool,
    created_at: i64,
}

/// The JSON form of section 2.3.
#[derive(Serialize)]
struct ListItemForm<'a> {
    id: &'a str,
    email: &'a str,
    #[serde(skip_serializing_if = "Name::is_absent")]
    first_name: Name<'a>,
    properties: &'a Map<String, Value>,
    unsubscribed: bool,
    created_at: i64,
}

/// A first or last name. If the contact has none, the dialect decides how it is shown.
struct Name<'a> {
    name: Option<&'a str>,
    missing: MissingName,
}

impl<'a> Name<'a> {
    fn new(name: Option<&'a str>, missing: MissingName) -> Self {
        Self { name, missing }
    }

    fn is_absent(&self) -> bool {
        self.name.is_none() && self.missing == MissingName::Absent
    }
}

impl Serialize for Name<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (self.name, self.missing) {
            (Some(name), _) => serializer.serialize_str(name),
            (None, MissingName::Empty) => serializer.serialize_str(""),
            (None, MissingName::Null | MissingName::Absent) => serializer.serialize_none(),
        }
    }
}

/// The reason of a contact's global opt-out (interface section 3.1): the values of `unsubscribe_reason`.
///
/// # Example: a contact who reported spam
///
/// ```
/// use audience::mock::{Reason, SeedContact};
///
/// let contact = SeedContact::new("ada@example.com").unsubscribed(Reason::Complaint);
/// # let _ = contact;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// No reason: `unsubscribe_reason` is an empty string.
    ///
    /// Default.
    #[default]
    None,
    /// `manual`.
    Manual,
    /// `preferences`.
    Preferences,
    /// `complaint`: a mailbox provider reported spam. No request can undo it.
    Complaint,
}

impl Reason {
    /// The reasons, in the order of the variants.
    const ALL: [Self; 4] = [Self::None, Self::Manual, Self::Preferences, Self::Complaint];

    /// Returns the value of `unsubscribe_reason`. It is an empty string if there is no reason (section 2.1).
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Manual => "manual",
            Self::Preferences => "preferences",
            Self::Complaint => "complaint",
        }
    }

    /// Returns the reason with a value of `unsubscribe_reason`, or `None` if the value is unknown.
    pub(crate) fn from_value(value: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|reason| reason.as_str() == value)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{json, to_value};

    use super::*;

    fn ada() -> Contact {
        Contact {
            id: "con_00000001".to_owned(),
            email: "ada@example.com".to_owned(),
            first_name: Some("Ada".to_owned()),
            last_name: None,
            properties: Map::from_iter([("seats".to_owned(), json!(3))]),
            unsubscribed: true,
            reason: Reason::Manual,
            created_at: 1_700_000_000,
            answers: BTreeMap::from([("news".to_owned(), false)]),
        }
    }

    #[test]
    fn each_form_has_exactly_the_members_of_its_section() {
        let topics = BTreeMap::from([("news".to_owned(), true), ("offers".to_owned(), true)]);

        assert_eq!(
            to_value(ada().to_full(&topics, MissingName::Empty)).unwrap(),
            json!({"id": "con_00000001", "email": "ada@example.com", "first_name": "Ada", "last_name": "",
                "properties": {"seats": 3}, "unsubscribed": true, "unsubscribe_reason": "manual",
                "created_at": 1_700_000_000, "topics": {"news": false, "offers": true}})
        );
        assert_eq!(
            to_value(ada().to_created(MissingName::Null)).unwrap(),
            json!({"id": "con_00000001", "email": "ada@example.com", "first_name": "Ada", "last_name": null,
                "properties": {"seats": 3}, "unsubscribed": true, "created_at": 1_700_000_000})
        );
        assert_eq!(
            to_value(ada().to_list_item(MissingName::Empty)).unwrap(),
            json!({"id": "con_00000001", "email": "ada@example.com", "first_name": "Ada",
                "properties": {"seats": 3}, "unsubscribed": true, "created_at": 1_700_000_000})
        );
    }

    #[test]
    fn a_missing_name_is_absent_if_the_dialect_says_so() {
        let created = to_value(ada().to_created(MissingName::Absent)).unwrap();

        assert_eq!(created.get("first_name"), Some(&json!("Ada")));
        assert_eq!(created.get("last_name"), None);
    }
}
