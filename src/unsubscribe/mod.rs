//! Unsubscribe links, one click, and a preference page (feature `unsubscribe`).
//!
//! [`UnsubscribeLinks`] makes the link and the headers of a mail. [`UnsubscribeService`] responds to the links: it is a
//! tower service for axum, hyper, Lambda and others. It stores each opt-out in a store of the [inbox](crate::inbox)
//! before it acknowledges it, and its [worker](UnsubscribeService::worker) sends it to the service until the service
//! has it. It also asks new subscribers to confirm their address:
//! [`send_confirmation`](UnsubscribeService::send_confirmation) sends the mail of a double opt-in. And it sends an issue to
//! each contact who wants it, once: [`send_issue`](UnsubscribeService::send_issue).
//!
//! The guide [Unsubscribe links](crate::guides::unsubscribe) walks through it.
//!
//! # Example: with axum
//!
//! ```
//! use audience::inbox::MemoryStore; // a SqliteStore or a PostgresStore outside of tests
//! use audience::unsubscribe::{OfferedTopic, UnsubscribeLinks, UnsubscribeService};
//! use axum::Router;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = audience::mock::MockServer::builder().topic("news", true).seed_contact("ada@example.com").start().await;
//! # let (client, secret) = (server.client(), "S3cr3t-0f-32-bytes-0r-m0re-1815!");
//! let links = UnsubscribeLinks::new([secret], "https://shop.example.com/unsubscribe")?;
//! let service = UnsubscribeService::builder(links.clone(), client.contacts(), MemoryStore::new())
//!     .topic(OfferedTopic::new("news", "Newsletter").default_answer(true))
//!     .build();
//!
//! let worker = service.worker(); // for `audience::serve(listener, router).worker(worker)`
//! let router: Router = Router::new().nest_service("/unsubscribe", service);
//! # let _ = (router, worker);
//! # Ok(()) }
//! ```

mod change_address;
mod issue;
mod links;
mod mail;
mod page;
mod service;

pub use change_address::AddressChange;
pub use issue::{IssueError, IssueFailure, IssueMail, IssueReport, SendIssue};
pub use links::UnsubscribeLinks;
pub use mail::{Consent, ConsentPage};
pub use page::{OfferedTopic, PageNotice, PageTexts, PreferencePage, ShownTopic};
pub use service::{ConsentError, OptOutRecord, UnsubscribeService, UnsubscribeServiceBuilder};
