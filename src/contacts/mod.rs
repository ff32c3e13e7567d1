//! The audience: create, retrieve and list contacts, and record their consent.
//!
//! [`Client::contacts`] gives the handle; its methods give builders, and a builder is sent by
//! `.await`. The three forms in which the service shows a contact are three types: [`Contact`] from
//! retrieve and the consent calls, [`ContactRecord`] from create, [`ContactSummary`] from lists.
//!
//! # Example: from a new contact to an opt-out
//!
//! ```
//! # #[cfg(feature = "mock")]
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
//! # #[cfg(not(feature = "mock"))] fn main() {}
//! ```

use crate::Client;

mod batch;
mod consent;
mod create;
mod list;
mod merge;
mod model;
mod new_contact;
mod optional_text;
mod page;
mod paging;
mod reason;
mod retrieve;
mod stream;

pub use crate::properties::{Properties, PropertyValue};
pub use batch::{BatchEntry, BatchOutcome, BatchReport, CreateBatch, MAX_BATCH};
pub use consent::{Subscribe, Unsubscribe};
pub use create::{CreateContact, Created};
pub use list::{CountContacts, ListContacts};
pub use merge::MergeProperties;
pub use model::{Contact, ContactRecord, ContactSummary};
pub use new_contact::{NewContact, OnConflict};
pub use page::Page;
pub use reason::{OptOutReason, UnsubscribeReason};
pub use retrieve::RetrieveContact;
pub use stream::{ContactStream, PageStream};

/// The contacts of a sender: what [`Client::contacts`] returns.
///
/// Owned and cheap to clone, as the client is.
#[derive(Clone, Debug)]
pub struct Contacts {
    client: Client,
}

impl Client {
    /// The contacts endpoints (interface section 4).
    #[must_use]
    pub fn contacts(&self) -> Contacts {
        Contacts {
            client: self.clone(),
        }
    }
}
