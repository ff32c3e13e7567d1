//! Contacts: create, retrieve and list them, and record their consent.
//!
//! [`Client::contacts`](crate::Client::contacts) returns the handle. Its methods return builders. `.await`
//! sends the call, and `.response().await` returns the status, the headers and the
//! number of attempts with the value. The service shows a contact in three forms, so there are three types:
//! [`Contact`] from retrieve and the consent calls, [`ContactRecord`] from create, and
//! [`ContactSummary`] from lists.
//!
//! # Models in unit tests
//!
//! Each of these types, and [`Page`], [`Created`], [`BatchReport`] and [`BatchEntry`], has a function `new`
//! that takes what is required; the rest are public fields to assign to. A refusal is made from an
//! [`ApiError`](crate::ApiError::new). The mock makes everything else, such as a timeout or a response that
//! is cut short.
//!
//! `Debug` of a model prints what is in it, addresses too. `Debug` of a builder does not, nor does that of an
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

mod handle;

// The endpoints, in the order of their methods on the documentation page of `Contacts`. The empty lines
// keep rustfmt from sorting them.
mod create;

mod batch;

mod retrieve;

mod list;
mod list_all;

mod consent;

mod set_topics;

mod merge;

mod address;
mod batch_exchange;
mod batch_outcome;
mod batch_report;
mod full;
#[cfg(feature = "import")]
mod kept_batch;
mod model;
mod new_contact;
mod optional_text;
mod page;
mod page_items;
mod page_stream;
mod paging;
mod reason;
mod short_forms;
mod stream;

pub use crate::properties::{Properties, PropertyValue};
pub use address::normalized_address;
pub use batch::CreateBatch;
pub use batch_exchange::MAX_BATCH;
pub use batch_outcome::BatchOutcome;
pub use batch_report::{BatchEntry, BatchReport};
pub use consent::{SetTopic, Subscribe, Unsubscribe};
pub use create::{CreateContact, Created};
pub use full::FullContactStream;
pub use handle::Contacts;
pub use list::ListContacts;
pub use list_all::CountContacts;
pub use merge::MergeProperties;
pub use model::Contact;
pub use new_contact::{NewContact, OnConflict};
pub use page::Page;
pub use page_stream::PageStream;
pub use reason::{OptOutReason, UnsubscribeReason};
pub use retrieve::RetrieveContact;
pub use set_topics::{RecordedTopics, SetTopics, TopicsError};
pub use short_forms::{ContactRecord, ContactSummary};
pub use stream::ContactStream;
