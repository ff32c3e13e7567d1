//! Finds out which columns the contacts of a list need.

use std::collections::BTreeSet;

use futures_core::stream::FusedStream;

use super::column::ExportColumn;
use super::csv::Csv;
use super::parts::next;
use crate::Error;
use crate::contacts::{ContactSummary, ListContacts};

impl Csv {
    /// Finds the columns of a list: those that lists have, and one for each property.
    ///
    /// It reads the whole list once. A property that is new after that has no column.
    ///
    /// # Errors
    ///
    /// The error of the list, after three failures in a row.
    ///
    /// # Example: every property of a list
    ///
    /// ```
    /// # #[cfg(feature = "mock")]
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
    /// # #[cfg(not(feature = "mock"))] fn main() {}
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

    /// Finds the columns of a list in full: like [`find_columns`](Self::find_columns), and the family name, the
    /// reason of an opt-out and a column for each topic.
    ///
    /// The topics are those of the newest contact of the list, which has them all: a full contact has every topic,
    /// those that it never answered too (interface section 2.1).
    ///
    /// # Errors
    ///
    /// The error of the list, after three failures in a row, or of the retrieve call.
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
            if !self.properties.contains(name) {
                self.properties.insert(name.clone());
            }
        }
    }
}
