use std::fmt;

/// A column of a CSV export.
///
/// It converts from its name in the header, such as `"email"` or `"topic:news"`. Any other name is that of a
/// property. A property whose name is that of another column is written, and read, as `property:NAME`.
///
/// # Example: names of columns
///
/// ```
/// use audience::export::Column;
///
/// assert_eq!(Column::from("first_name"), Column::FirstName);
/// assert_eq!(Column::from("topic:news"), Column::Topic("news".to_owned()));
/// assert_eq!(Column::from("plan"), Column::Property("plan".to_owned()));
/// assert_eq!(Column::Property("email".to_owned()).to_string(), "property:email");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Column {
    /// `id`. An import takes it for a property.
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
    /// `created_at`: in the form of RFC 3339, in UTC.
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
const FIXED: [(&str, Column); 9] = [
    ("id", Column::Id),
    ("email", Column::Email),
    ("first_name", Column::FirstName),
    ("last_name", Column::LastName),
    ("unsubscribed", Column::Unsubscribed),
    ("unsubscribe_reason", Column::UnsubscribeReason),
    ("created_at", Column::CreatedAt),
    ("topics", Column::OtherTopics),
    ("properties", Column::OtherProperties),
];

const TOPIC: &str = "topic:";
const PROPERTY: &str = "property:";

impl Column {
    /// Returns whether only a full export has the column.
    pub(super) fn needs_full(&self) -> bool {
        matches!(
            self,
            Self::LastName | Self::UnsubscribeReason | Self::Topic(_) | Self::OtherTopics
        )
    }
}

impl From<&str> for Column {
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

impl From<String> for Column {
    fn from(name: String) -> Self {
        Self::from(name.as_str())
    }
}

impl From<&String> for Column {
    fn from(name: &String) -> Self {
        Self::from(name.as_str())
    }
}

/// Writes the name in the header.
impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((name, _)) = FIXED.iter().find(|(_, column)| column == self) {
            return f.write_str(name);
        }
        match self {
            Self::Topic(name) => write!(f, "{TOPIC}{name}"),
            Self::Property(name) if Self::from(name.as_str()) != *self => {
                write!(f, "{PROPERTY}{name}")
            }
            Self::Property(name) => f.write_str(name),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_is_read_from_its_name() {
        let named = |name: &str| Column::Property(name.to_owned());
        let columns = FIXED.into_iter().map(|(_, column)| column).chain([
            Column::Topic("news".to_owned()),
            Column::Topic(String::new()),
            named("plan"),
            named("email"),
            named("topic:news"),
            named("property:plan"),
            named("topics"),
            named(""),
        ]);

        for column in columns {
            assert_eq!(Column::from(column.to_string()), column);
        }
    }
}
