use std::fmt;
use std::str::FromStr;

use crate::Error;

/// What an import does with a column of a CSV file.
///
/// Its text form is what [`FromStr`] reads and `Display` writes, for flags of a program: `email`,
/// `first_name`, `last_name`, `property:NAME`, `properties`, `on_conflict`, `unsubscribed`, `subscribed`,
/// `unsubscribe_reason`, `topic:NAME`, `topics`, `key`, `ignore`.
///
/// A consent column is read for opt-outs only. A cell that says that somebody is subscribed is understood,
/// and nothing is sent for it: an import does not subscribe anybody.
///
/// # Example: a flag of a program
///
/// ```
/// use audience::import::Column;
///
/// assert_eq!("topic:news".parse::<Column>()?, Column::Topic("news".to_owned()));
/// assert_eq!(Column::Property("plan".to_owned()).to_string(), "property:plan");
/// # Ok::<(), audience::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Column {
    /// The address.
    Email,
    /// The given name.
    FirstName,
    /// The family name.
    LastName,
    /// The merge field with this name. A number is sent as a number only if it prints exactly as the cell:
    /// `3` and `0.5` are numbers, `01067`, `+49` and `1e5` stay text.
    Property(String),
    /// All merge fields, as a JSON object.
    Properties,
    /// What happens if the address already exists: `upsert`, `skip` or `error`.
    OnConflict,
    /// Whether the contact opted out of all broadcasts. An empty cell means no.
    Unsubscribed,
    /// Whether the contact gets broadcasts. "No" is an opt-out; an empty cell makes the row unreadable, because
    /// it does not say whether the contact opted out.
    Subscribed,
    /// Why the contact opted out: `manual`, `preferences`, or `complaint`, which is recorded as `manual`
    /// because a sender cannot declare a complaint (interface section 4.5). One of these is an opt-out by itself.
    /// Any other text is recorded as `manual` if another column says that the contact opted out; otherwise it
    /// makes the row unreadable.
    UnsubscribeReason,
    /// Whether the contact gets the topic with this name. "No" is an opt-out of it.
    Topic(String),
    /// The answers to all topics, as a JSON object of booleans. Each `false` is an opt-out.
    Topics,
    /// A key of your own: see [`ImportRow::key`](super::super::ImportRow::key).
    Key,
    /// Nothing.
    Ignored,
}

/// The columns whose text form is one word.
const WORDS: [(&str, Column); 11] = [
    ("email", Column::Email),
    ("first_name", Column::FirstName),
    ("last_name", Column::LastName),
    ("properties", Column::Properties),
    ("on_conflict", Column::OnConflict),
    ("unsubscribed", Column::Unsubscribed),
    ("subscribed", Column::Subscribed),
    ("unsubscribe_reason", Column::UnsubscribeReason),
    ("topics", Column::Topics),
    ("key", Column::Key),
    ("ignore", Column::Ignored),
];

impl Column {
    /// Returns whether the column is read for opt-outs.
    #[must_use]
    pub fn is_consent(&self) -> bool {
        match self {
            Self::Unsubscribed
            | Self::Subscribed
            | Self::UnsubscribeReason
            | Self::Topic(_)
            | Self::Topics => true,
            Self::Email
            | Self::FirstName
            | Self::LastName
            | Self::Property(_)
            | Self::Properties
            | Self::OnConflict
            | Self::Key
            | Self::Ignored => false,
        }
    }

    /// Returns the column for a prefix and a name, such as `topic:news`.
    pub(super) fn named(text: &str) -> Option<Self> {
        let (kind, name) = text.split_once(':')?;
        let name = name.trim();
        match kind.trim() {
            _ if name.is_empty() => None,
            "property" => Some(Self::Property(name.to_owned())),
            "topic" => Some(Self::Topic(name.to_owned())),
            _ => None,
        }
    }
}

/// Reads the text form.
impl FromStr for Column {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let word = WORDS.iter().find(|(word, _)| *word == text);
        let column = word.map(|(_, column)| column.clone());
        column.or_else(|| Self::named(text)).ok_or_else(|| {
            let words = WORDS.map(|(word, _)| word).join(", ");
            Error::input(format!(
                "not a member of a contact; use one of {words}, property:NAME or topic:NAME"
            ))
        })
    }
}

/// Writes the text form.
impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Property(name) => write!(f, "property:{name}"),
            Self::Topic(name) => write!(f, "topic:{name}"),
            column => {
                let found = WORDS.iter().find(|(_, named)| named == column);
                f.write_str(found.map_or("", |(word, _)| word))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_reads_its_own_text_form() {
        let named = ["property:plan", "topic:a:b"];
        for text in WORDS.map(|(word, _)| word).into_iter().chain(named) {
            let column: Column = text.parse().unwrap();

            assert_eq!(column.to_string(), text);
        }
    }

    #[test]
    fn an_unknown_member_is_refused_with_the_known_ones() {
        for text in ["fist_name", "", "topic:", "property: ", "Email"] {
            let error = text.parse::<Column>().unwrap_err();

            assert!(error.to_string().contains("property:NAME"), "{error}");
        }
    }
}
