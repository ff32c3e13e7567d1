//! A contact as the mock holds it, and the three forms it is answered in (sections 2.1 to 2.3).

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::dialect::MissingName;
use crate::Timestamp;

/// A contact as the mock holds it, for a test's assertions.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StoredContact {
    /// The id that the mock gave, and a cursor of its list.
    pub id: String,
    /// The address, lowercased and trimmed.
    pub email: String,
    /// The first name, or `None` where none was given.
    pub first_name: Option<String>,
    /// The last name, or `None` where none was given.
    pub last_name: Option<String>,
    /// The merge fields.
    pub properties: Map<String, Value>,
    /// The global opt-out.
    pub unsubscribed: bool,
    /// `manual`, `preferences` or `complaint`; empty where there is none.
    pub unsubscribe_reason: String,
    /// When the contact was created, by the mock's clock.
    pub created_at: Timestamp,
    /// An answer for every topic there is: the contact's own, else the topic's default.
    pub topics: BTreeMap<String, bool>,
    /// The answers that the contact itself gave: `topics` without the defaults.
    pub answers: BTreeMap<String, bool>,
}

/// Why a contact opted out (section 3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reason {
    #[default]
    None,
    Manual,
    Preferences,
    Complaint,
}

impl Reason {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Manual => "manual",
            Self::Preferences => "preferences",
            Self::Complaint => "complaint",
        }
    }
}

/// What the roster holds of a contact.
#[derive(Clone, Debug)]
pub(crate) struct Contact {
    pub(crate) id: String,
    pub(crate) email: String,
    pub(crate) first_name: Option<String>,
    pub(crate) last_name: Option<String>,
    pub(crate) properties: Map<String, Value>,
    pub(crate) unsubscribed: bool,
    pub(crate) reason: Reason,
    pub(crate) created_at: i64,
    pub(crate) answers: BTreeMap<String, bool>,
}

impl Contact {
    /// Section 2.1: what retrieve answers.
    pub(crate) fn full<'a>(
        &'a self,
        topics: &'a BTreeMap<String, bool>,
        missing: MissingName,
    ) -> impl Serialize + 'a {
        Full {
            id: &self.id,
            email: &self.email,
            first_name: Name::of(self.first_name.as_deref(), missing),
            last_name: Name::of(self.last_name.as_deref(), missing),
            properties: &self.properties,
            unsubscribed: self.unsubscribed,
            unsubscribe_reason: self.reason.as_str(),
            created_at: self.created_at,
            topics: self.topics(topics),
        }
    }

    /// Section 2.2: what create answers.
    pub(crate) fn created(&self, missing: MissingName) -> impl Serialize + '_ {
        Created {
            id: &self.id,
            email: &self.email,
            first_name: Name::of(self.first_name.as_deref(), missing),
            last_name: Name::of(self.last_name.as_deref(), missing),
            properties: &self.properties,
            unsubscribed: self.unsubscribed,
            created_at: self.created_at,
        }
    }

    /// Section 2.3: an item of a list.
    pub(crate) fn listed(&self, missing: MissingName) -> impl Serialize + '_ {
        Listed {
            id: &self.id,
            email: &self.email,
            first_name: Name::of(self.first_name.as_deref(), missing),
            properties: &self.properties,
            unsubscribed: self.unsubscribed,
            created_at: self.created_at,
        }
    }

    pub(crate) fn stored(&self, topics: &BTreeMap<String, bool>) -> StoredContact {
        StoredContact {
            id: self.id.clone(),
            email: self.email.clone(),
            first_name: self.first_name.clone(),
            last_name: self.last_name.clone(),
            properties: self.properties.clone(),
            unsubscribed: self.unsubscribed,
            unsubscribe_reason: self.reason.as_str().to_owned(),
            created_at: Timestamp::from_unix(self.created_at),
            topics: self
                .topics(topics)
                .into_iter()
                .map(|(name, answer)| (name.to_owned(), answer))
                .collect(),
            answers: self.answers.clone(),
        }
    }

    /// For a topic the contact never answered, the topic's own default is shown (section 2.1).
    fn topics<'a>(&self, defaults: &'a BTreeMap<String, bool>) -> BTreeMap<&'a str, bool> {
        defaults
            .iter()
            .map(|(name, default)| {
                let answer = self.answers.get(name).unwrap_or(default);
                (name.as_str(), *answer)
            })
            .collect()
    }
}

#[derive(Serialize)]
struct Full<'a> {
    id: &'a str,
    email: &'a str,
    #[serde(skip_serializing_if = "Name::is_left_out")]
    first_name: Name<'a>,
    #[serde(skip_serializing_if = "Name::is_left_out")]
    last_name: Name<'a>,
    properties: &'a Map<String, Value>,
    unsubscribed: bool,
    unsubscribe_reason: &'a str,
    created_at: i64,
    topics: BTreeMap<&'a str, bool>,
}

#[derive(Serialize)]
struct Created<'a> {
    id: &'a str,
    email: &'a str,
    #[serde(skip_serializing_if = "Name::is_left_out")]
    first_name: Name<'a>,
    #[serde(skip_serializing_if = "Name::is_left_out")]
    last_name: Name<'a>,
    properties: &'a Map<String, Value>,
    unsubscribed: bool,
    created_at: i64,
}

#[derive(Serialize)]
struct Listed<'a> {
    id: &'a str,
    email: &'a str,
    #[serde(skip_serializing_if = "Name::is_left_out")]
    first_name: Name<'a>,
    properties: &'a Map<String, Value>,
    unsubscribed: bool,
    created_at: i64,
}

/// A name, or what stands for one that was never given.
struct Name<'a> {
    name: Option<&'a str>,
    missing: MissingName,
}

impl<'a> Name<'a> {
    fn of(name: Option<&'a str>, missing: MissingName) -> Self {
        Self { name, missing }
    }

    fn is_left_out(&self) -> bool {
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
    fn each_form_has_the_members_of_its_section_and_no_others() {
        let topics = BTreeMap::from([("news".to_owned(), true), ("offers".to_owned(), true)]);

        assert_eq!(
            to_value(ada().full(&topics, MissingName::Empty)).unwrap(),
            json!({"id": "con_00000001", "email": "ada@example.com", "first_name": "Ada", "last_name": "",
                "properties": {"seats": 3}, "unsubscribed": true, "unsubscribe_reason": "manual",
                "created_at": 1_700_000_000, "topics": {"news": false, "offers": true}})
        );
        assert_eq!(
            to_value(ada().created(MissingName::Null)).unwrap(),
            json!({"id": "con_00000001", "email": "ada@example.com", "first_name": "Ada", "last_name": null,
                "properties": {"seats": 3}, "unsubscribed": true, "created_at": 1_700_000_000})
        );
        assert_eq!(
            to_value(ada().listed(MissingName::Empty)).unwrap(),
            json!({"id": "con_00000001", "email": "ada@example.com", "first_name": "Ada",
                "properties": {"seats": 3}, "unsubscribed": true, "created_at": 1_700_000_000})
        );
    }

    #[test]
    fn a_missing_name_can_be_absent() {
        let created = to_value(ada().created(MissingName::Absent)).unwrap();

        assert_eq!(created.get("first_name"), Some(&json!("Ada")));
        assert_eq!(created.get("last_name"), None);
    }
}
