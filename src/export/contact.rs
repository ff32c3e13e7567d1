use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;

use super::column::ExportColumn;
use crate::Timestamp;
use crate::contacts::{Contact, ContactSummary, Properties, PropertyValue, UnsubscribeReason};

/// A contact to export: in full, or as lists return it.
///
/// Methods that take one take a reference to either.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum ExportedContact<'a> {
    /// In full (interface section 2.1).
    Full(&'a Contact),
    /// As lists return it (section 2.3).
    Summary(&'a ContactSummary),
}

impl<'a> ExportedContact<'a> {
    /// Returns the text of a column. Empty if the contact lacks it. `columns` are all columns.
    pub(super) fn text(self, column: &ExportColumn, columns: &[ExportColumn]) -> Cow<'a, str> {
        match column {
            ExportColumn::Id => Cow::from(self.id()),
            ExportColumn::Email => self.email().into(),
            ExportColumn::FirstName => self.first_name().into(),
            ExportColumn::LastName => self.last_name().into(),
            ExportColumn::Unsubscribed => self.is_unsubscribed().to_string().into(),
            ExportColumn::UnsubscribeReason => self.reason().into(),
            ExportColumn::CreatedAt => self.created_at().to_string().into(),
            ExportColumn::Topic(name) => match self.topic(name) {
                Some(answer) => answer.to_string().into(),
                None => "".into(),
            },
            ExportColumn::OtherTopics => self.other_topics(columns).into(),
            ExportColumn::Property(name) => match self.properties().get(name) {
                Some(PropertyValue::String(text)) => text.as_str().into(),
                Some(value) => value.to_string().into(),
                None => "".into(),
            },
            ExportColumn::OtherProperties => self.other_properties(columns).into(),
        }
    }

    fn id(self) -> &'a str {
        match self {
            Self::Full(contact) => &contact.id,
            Self::Summary(contact) => &contact.id,
        }
    }

    fn email(self) -> &'a str {
        match self {
            Self::Full(contact) => &contact.email,
            Self::Summary(contact) => &contact.email,
        }
    }

    fn first_name(self) -> &'a str {
        let name = match self {
            Self::Full(contact) => &contact.first_name,
            Self::Summary(contact) => &contact.first_name,
        };
        name.as_deref().unwrap_or_default()
    }

    fn last_name(self) -> &'a str {
        match self {
            Self::Full(contact) => contact.last_name.as_deref().unwrap_or_default(),
            Self::Summary(_) => "",
        }
    }

    fn is_unsubscribed(self) -> bool {
        match self {
            Self::Full(contact) => contact.unsubscribed,
            Self::Summary(contact) => contact.unsubscribed,
        }
    }

    fn reason(self) -> &'a str {
        match self {
            // After a re-subscription, the reason may still be there (interface section 3.2).
            Self::Full(contact) if contact.unsubscribed => contact
                .unsubscribe_reason
                .as_ref()
                .map_or("", UnsubscribeReason::as_str),
            Self::Full(_) | Self::Summary(_) => "",
        }
    }

    fn created_at(self) -> Timestamp {
        match self {
            Self::Full(contact) => contact.created_at,
            Self::Summary(contact) => contact.created_at,
        }
    }

    fn topic(self, name: &str) -> Option<bool> {
        match self {
            Self::Full(contact) => contact.topics.get(name).copied(),
            Self::Summary(_) => None,
        }
    }

    fn properties(self) -> &'a Properties {
        match self {
            Self::Full(contact) => &contact.properties,
            Self::Summary(contact) => &contact.properties,
        }
    }

    /// Returns the topics without a column of their own, as a JSON object.
    fn other_topics(self, columns: &[ExportColumn]) -> String {
        let Self::Full(contact) = self else {
            return String::new();
        };
        let has_column = |topic: &str| {
            let is_it = |column: &ExportColumn| matches!(column, ExportColumn::Topic(name) if name == topic);
            columns.iter().any(is_it)
        };
        object(contact.topics.iter().filter(|(name, _)| !has_column(name)))
    }

    /// Returns the properties without a column of their own, as a JSON object.
    fn other_properties(self, columns: &[ExportColumn]) -> String {
        let has_column = |property: &str| {
            let is_it = |column: &ExportColumn| matches!(column, ExportColumn::Property(name) if name == property);
            columns.iter().any(is_it)
        };
        object(
            self.properties()
                .into_iter()
                .filter(|(name, _)| !has_column(name)),
        )
    }
}

/// Writes a JSON object. Empty if it has no members.
fn object<'a, V: Serialize + 'a>(members: impl Iterator<Item = (&'a String, &'a V)>) -> String {
    let members: BTreeMap<_, _> = members.collect();
    if members.is_empty() {
        return String::new();
    }
    json(&members)
}

/// Writes JSON on one line.
pub(super) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value)
        .expect("a contact has text keys and values that JSON can represent")
}

impl<'a> From<&'a Contact> for ExportedContact<'a> {
    fn from(contact: &'a Contact) -> Self {
        Self::Full(contact)
    }
}

impl<'a> From<&'a ContactSummary> for ExportedContact<'a> {
    fn from(contact: &'a ContactSummary) -> Self {
        Self::Summary(contact)
    }
}
