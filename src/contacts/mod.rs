//! Creates, retrieves and lists contacts, and records their consent.
//!
//! [`Client::contacts`](crate::Client::contacts) returns the handle [`Contacts`]. Each of its methods returns a
//! builder. `.await` sends the call. `.response().await` also returns the status, the headers and the number of
//! attempts.
//!
//! The service shows a contact in three forms, so there are three types: [`Contact`] from retrieve and the consent
//! calls, [`ContactRecord`] from create, and [`ContactSummary`] from lists.
//!
//! # A 404 is no proof
//!
//! A 404 alone does not prove that there is no such contact: a gateway may have sent it, or the base URL may be wrong.
//! So most calls list the contacts with this address after a 404. If the list has the contact, the call fails with the
//! 404, and [`Error::is_not_found`](crate::Error::is_not_found) is false, unless a topic is missing. If the list does
//! not have it, [`Error::missing`](crate::Error::missing) returns [`Missing::Contact`](crate::Missing::Contact). If the
//! list fails, too, its error is the error of the call.
//!
//! [Full lists](ListContacts::full) believe the code `not_found`, and [`find`](Contacts::find) does for an ASCII address.
//! [`retrieve`](Contacts::retrieve), [`subscribe`](Contacts::subscribe), [`set_topic`](Contacts::set_topic) with `true`
//! and [`merge_properties`](Contacts::merge_properties) return the 404 as it is.
//!
//! # Unit tests
//!
//! Code that calls [`Contacts`] needs no trait and no fake: give it the client of a `MockServer` (feature `mock`).
//! [Testing your application] has a line for each failure.
//!
//! You can build each of these types without a server, and also [`Page`], [`Created`], [`BatchReport`] and
//! [`BatchEntry`]. The function `new` takes the required values; assign to the public fields to set the others.
//! [`Error::refused`](crate::Error::refused) builds the error of a refusal.
//!
//! `Debug` prints the content of a model, including its address. It never prints the content of a builder or an
//! [`Error`](crate::Error).
//!
//! # Example: from a new contact to an opt-out
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
//! # let server = audience::mock::MockServer::start().await;
//! # server.topic("news", true);
//! # let contacts = server.client().contacts();
//! use audience::contacts::{NewContact, OptOutReason, UnsubscribeReason};
//!
//! let ada = NewContact::new("ada@example.com").first_name("Ada").property("seats", 3);
//! contacts.create(ada).await?;
//!
//! let contact = contacts.unsubscribe("ada@example.com").topic("news").await?;
//! assert_eq!(contact.topics.get("news"), Some(&false));
//!
//! let contact = contacts.unsubscribe("ada@example.com").reason(OptOutReason::Preferences).await?;
//! assert!(contact.unsubscribed);
//! assert_eq!(contact.unsubscribe_reason, Some(UnsubscribeReason::Preferences));
//! # Ok(()) }
//! ```
//!
//! [Testing your application]: https://docs.rs/audience/latest/audience/guides/testing/index.html

// The endpoints, in the order of their methods on the documentation page of `Contacts`. The empty lines
// keep rustfmt from sorting them.
mod create;

mod batch;

mod retrieve;

mod find;

mod list;

mod matches;

mod history;

mod consent;

mod set_topics;

mod confirm;

mod merge;

mod update;

mod change_address;

mod delete;
mod erase;

mod full;
mod model;
mod new_contact;
mod pages;

use crate::Client;

pub use crate::address::{check_address, normalized_address};
pub use crate::properties::{Properties, PropertyValue};
pub use batch::{BatchEntry, BatchOutcome, BatchReport, CreateBatch, MAX_BATCH};
pub use change_address::ChangeAddress;
#[cfg(feature = "cli")]
pub(crate) use change_address::may_be_own;
pub use confirm::ConfirmOptIn;
#[cfg(feature = "import")]
pub(crate) use consent::may_be_missing;
#[cfg(any(feature = "import", feature = "unsubscribe"))]
pub(crate) use consent::shows_spam_report;
pub use consent::{SetTopic, Subscribe, Unsubscribe};
pub use create::{CreateContact, Created};
pub use delete::DeleteContact;
pub use erase::{EraseContact, Erasure};
pub use find::FindContact;
pub use full::FullContactStream;
pub use history::{History, LastTime, RetrieveHistory};
pub use list::{CountContacts, ListContacts};
pub use matches::{MatchRule, MatchRules};
pub use merge::MergeProperties;
#[cfg(feature = "unsubscribe")]
pub(crate) use model::address_in_path;
#[cfg(feature = "import")]
pub(crate) use model::not_shown;
pub(crate) use model::optional_id;
pub use model::{
    Contact, ContactRecord, ContactSummary, OptOutReason, Reachability, UnsubscribeReason,
};
pub use new_contact::{NewContact, OnConflict};
pub use pages::{ContactStream, Page, PageStream};
pub use retrieve::RetrieveContact;
#[cfg(feature = "unsubscribe")]
pub(crate) use set_topics::two_answers;
pub use set_topics::{RecordedTopics, SetTopics, TopicsError};
pub use update::UpdateContact;

/// Calls the contacts endpoints. [`Client::contacts`] returns it.
///
/// It is owned and cheap to clone, like the client. In a [unit test](self#unit-tests), use the client of a
/// `MockServer`.
///
/// An address may be given in any spelling, such as ` Ada@Example.com`. A call that names a contact by its address
/// sends it trimmed, with its ASCII letters in lower case. So it finds the contact even if the service does not
/// normalize the addresses of requests.
///
/// # Example: create and retrieve
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
/// # let server = audience::mock::MockServer::start().await;
/// # let client = server.client();
/// use audience::contacts::NewContact;
///
/// let contacts = client.contacts();
/// contacts.create(NewContact::new("ada@example.com")).await?;
///
/// let ada = contacts.retrieve("ada@example.com").await?;
/// assert!(!ada.unsubscribed);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Contacts {
    pub(crate) client: Client,
}

impl Client {
    /// Returns the handle to the contacts endpoints ([interface section 4](crate::interface#4)).
    ///
    /// # Example: one handle for a program
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let client = server.client();
    /// let contacts = client.contacts();
    /// contacts.create("ada@example.com").await?;
    ///
    /// assert_eq!(contacts.list().count().await?, 1);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn contacts(&self) -> Contacts {
        Contacts {
            client: self.clone(),
        }
    }
}
