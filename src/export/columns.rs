use std::collections::BTreeSet;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;

use futures_core::Stream;
use futures_core::stream::FusedStream;

use super::csv::Csv;
use crate::Error;
use crate::contacts::{ContactSummary, ListContacts};
use crate::import::is_property_name;

/// A column of a CSV export.
///
/// It converts from its name in the header, such as `"email"` or `"topic:news"`. Any other name becomes a property.
///
/// If a property has a name that would be read as another column, here or by
/// [`CsvRows`](crate::import::CsvRows), such as `email`, `Surname` or `Status`, the header names it `property:NAME`.
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
    /// `unsubscribe_reason`: empty if the contact did not opt out. Only in a full export.
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
        // A property with a fixed name is written as `property:NAME`, so the bare name is the fixed column.
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

impl Csv {
    /// Finds the columns of a list: the fixed columns that lists include, and one for each property.
    ///
    /// It reads the whole list once. A property that is added later has no column.
    ///
    /// # Errors
    ///
    /// Returns the error of the list if it fails three times in a row.
    ///
    /// # Example: every property of a list
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # server.topic("news", true);
    /// # let contacts = server.client().contacts();
    /// # contacts.create(audience::contacts::NewContact::new("ada@example.com").property("plan", "pro")).await?;
    /// use audience::export::Csv;
    ///
    /// let csv = Csv::find_columns(contacts.list()).await?;
    /// assert_eq!(csv.header(), "email,first_name,unsubscribed,created_at,plan\n");
    ///
    /// let csv = Csv::find_full_columns(contacts.list()).await?;
    /// assert_eq!(
    ///     csv.header(),
    ///     "email,first_name,last_name,unsubscribed,unsubscribe_reason,created_at,topic:news,plan\n"
    /// );
    /// # Ok(()) }
    /// ```
    pub async fn find_columns(list: ListContacts) -> Result<Self, Error> {
        let found = Found::read(list).await?;
        Ok(Self::new(
            [
                ExportColumn::Email,
                ExportColumn::FirstName,
                ExportColumn::Unsubscribed,
                ExportColumn::CreatedAt,
            ]
            .into_iter()
            .chain(found.properties.into_iter().map(ExportColumn::Property)),
        ))
    }

    /// Finds the columns of a full export: the columns of [`find_columns`](Self::find_columns), the family name, the
    /// reason for an opt-out, and one for each topic.
    ///
    /// To find the topics, it retrieves the newest contact of the list. A full contact has every topic, even if it
    /// never answered ([interface section 2.1](crate::interface#2.1)).
    ///
    /// # Errors
    ///
    /// Returns the error of the list if it fails three times in a row, or the error of the retrieve call.
    ///
    /// # Example: everything that can be carried over
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # server.topic("news", true);
    /// # contacts.create(audience::contacts::NewContact::new("ada@example.com").property("plan", "pro")).await?;
    /// # let path = std::env::temp_dir().join(format!("audience-columns-{}", std::process::id()));
    /// use audience::export::Csv;
    ///
    /// let csv = Csv::find_full_columns(contacts.list()).await?;
    /// contacts.list().export(&path, csv).full().await?;
    ///
    /// let file = std::fs::read_to_string(&path)?;
    /// let header = file.lines().next().unwrap_or_default();
    /// assert!(header.ends_with("unsubscribe_reason,created_at,topic:news,plan"));
    /// # std::fs::remove_file(path)?;
    /// # Ok(()) }
    /// ```
    pub async fn find_full_columns(list: ListContacts) -> Result<Self, Error> {
        let contacts = list.contacts();
        let found = Found::read(list).await?;
        let mut topics = BTreeSet::new();
        for address in found.newest {
            match contacts.retrieve(address).await {
                Ok(contact) => {
                    topics = contact.topics.into_keys().collect();
                    break;
                }
                // The contact was deleted since it was listed. The next one has the same topics.
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self::new(
            [
                ExportColumn::Email,
                ExportColumn::FirstName,
                ExportColumn::LastName,
                ExportColumn::Unsubscribed,
                ExportColumn::UnsubscribeReason,
                ExportColumn::CreatedAt,
            ]
            .into_iter()
            .chain(topics.into_iter().map(ExportColumn::Topic))
            .chain(found.properties.into_iter().map(ExportColumn::Property)),
        ))
    }
}

/// How many of the newest contacts to try for the topics. One of them may vanish.
const NEWEST: usize = 10;

#[derive(Default)]
struct Found {
    properties: BTreeSet<String>,
    /// The addresses of the newest contacts.
    newest: Vec<String>,
}

impl Found {
    async fn read(list: ListContacts) -> Result<Self, Error> {
        let mut pages = list.large_pages().pages().prefetch();
        let mut found = Self::default();
        while let Some(page) = next(&mut pages).await {
            match page {
                Ok(page) => page.data.iter().for_each(|contact| found.add(contact)),
                Err(error) if pages.is_terminated() => return Err(error),
                Err(_) => {}
            }
        }
        Ok(found)
    }

    fn add(&mut self, contact: &ContactSummary) {
        if self.newest.len() < NEWEST {
            self.newest.push(contact.email.clone());
        }
        for (name, _) in &contact.properties {
            // A list has few names and many contacts, so the name is cloned only once.
            if !self.properties.contains(name) {
                self.properties.insert(name.clone());
            }
        }
    }
}

pub(super) async fn next<S: Stream + Unpin>(stream: &mut S) -> Option<S::Item> {
    poll_fn(|context| Pin::new(&mut *stream).poll_next(context)).await
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
