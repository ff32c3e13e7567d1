use std::fmt;

use crate::import::is_property_name;

/// A column of a CSV export.
///
/// It converts from its name in the header, such as `"email"` or `"topic:news"`. Any other name is that of a
/// property.
///
/// The header has a property as `property:NAME` if its name alone would be read as another column, here or by
/// [`CsvRows`](crate::import::CsvRows): for example `email`, `Surname` or `Status`.
///
/// # Example: names of columns
///
/// ```
/// use audience::export::ExportColumn;
///
/// assert_eq!(ExportColumn::from("first_name"), ExportColumn::FirstName);
/// assert_eq!(ExportColumn::from("topic:news"), ExportColumn::Topic("news".to_owned()));
/// assert_eq!(ExportColumn::from("plan"), ExportColumn::Property("plan".to_owned()));
/// assert_eq!(ExportColumn::Property("email".to_owned()).to_string(), "property:email");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExportColumn {
    /// `id`. An import ignores it.
    Id,
    /// `email`: the address.
    Email,
    /// `first_name`.
    FirstName,
    /// `last_name`. Only in a full export.
    LastName,
    /// `unsubscribed`: `true` if the contact opted out of all broadcasts, otherwise `false`.
    Unsubscribed,
    /// `unsubscribe_reason`: empty without an opt-out. Only in a full export.
    UnsubscribeReason,
    /// `created_at`: in the form of RFC 3339, in UTC. An import ignores it.
    CreatedAt,
    /// `topic:NAME`: `true` or `false`. If the contact never answered, it is the topic's default. Only in a full
    /// export.
    Topic(String),
    /// `topics`: all topics without a column of their own, as a JSON object. Only in a full export.
    OtherTopics,
    /// The property with this name: its text, or its JSON if it is not text. Empty if the contact lacks it.
    Property(String),
    /// `properties`: all properties without a column of their own, as a JSON object.
    OtherProperties,
}

/// The columns that have a fixed name.
const FIXED: [(&str, ExportColumn); 9] = [
    ("id", ExportColumn::Id),
    ("email", ExportColumn::Email),
    ("first_name", ExportColumn::FirstName),
    ("last_name", ExportColumn::LastName),
    ("unsubscribed", ExportColumn::Unsubscribed),
    ("unsubscribe_reason", ExportColumn::UnsubscribeReason),
    ("created_at", ExportColumn::CreatedAt),
    ("topics", ExportColumn::OtherTopics),
    ("properties", ExportColumn::OtherProperties),
];

const TOPIC: &str = "topic:";
const PROPERTY: &str = "property:";

impl ExportColumn {
    /// Returns whether only a full export has the column.
    pub(super) fn needs_full(&self) -> bool {
        matches!(
            self,
            Self::LastName | Self::UnsubscribeReason | Self::Topic(_) | Self::OtherTopics
        )
    }
}

impl From<&str> for ExportColumn {
    fn from(name: &str) -> Self {
        if let Some((_, column)) = FIXED.iter().find(|(fixed, _)| *fixed == name) {
            return column.clone();
        }
        if let Some(topic) = name.strip_prefix(TOPIC) {
            return Self::Topic(topic.to_owned());
        }
        Self::Property(name.strip_prefix(PROPERTY).unwrap_or(name).to_owned())
    }
}

impl From<String> for ExportColumn {
    fn from(name: String) -> Self {
        Self::from(name.as_str())
    }
}

impl From<&String> for ExportColumn {
    fn from(name: &String) -> Self {
        Self::from(name.as_str())
    }
}

/// Writes the name in the header.
impl fmt::Display for ExportColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((name, _)) = FIXED.iter().find(|(_, column)| column == self) {
            return f.write_str(name);
        }
        match self {
            Self::Topic(name) => write!(f, "{TOPIC}{name}"),
            Self::Property(name) if name.is_empty() => Ok(()),
            Self::Property(name)
                if Self::from(name.as_str()) == *self && is_property_name(name) =>
            {
                f.write_str(name)
            }
            Self::Property(name) => write!(f, "{PROPERTY}{name}"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_is_read_from_its_name() {
        let named = |name: &str| ExportColumn::Property(name.to_owned());
        let columns = FIXED.into_iter().map(|(_, column)| column).chain([
            ExportColumn::Topic("news".to_owned()),
            ExportColumn::Topic(String::new()),
            named("plan"),
            named("email"),
            named("topic:news"),
            named("property:plan"),
            named("topics"),
            named("Surname"),
            named("Status"),
            named(""),
        ]);

        for column in columns {
            assert_eq!(ExportColumn::from(column.to_string()), column);
        }
    }
}
