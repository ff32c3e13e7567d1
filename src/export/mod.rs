//! Exports contacts to a file, as CSV or as JSON lines, with a cursor file for resuming.
//!
//! [`ListContacts::export`] writes a list to a file, page by page, and saves its position after each page. So
//! a resumed export neither loses nor repeats a contact: see [`Export`]. The formats, [`Csv`] and [`JsonLines`],
//! can also be used alone: each turns one contact into one line of text.
//!
//! # Which format
//!
//! JSON lines are exact: numbers, text and empty values keep their type, and serde reads each line into the
//! [`Contact`](crate::contacts::Contact) that was exported. CSV is for spreadsheets, and for other services.
//! [`contacts.import`](crate::contacts::Contacts::import) takes both: see [`ImportRow`](crate::import::ImportRow) and
//! [`Csv`].
//!
//! # Summary or full
//!
//! Lists do not include the family name, the reason for an opt-out, or the topics
//! ([interface section 2.3](crate::interface#2.3)). [`Export::full`] retrieves each contact to get them, which takes
//! one request for each contact. Only a full export can carry the opt-outs of topics over to another account.
//!
//! # Example: the paying contacts, every night, as CSV
//!
//! Each night starts a new export. [`resume`](Export::resume) would finish the file of an interrupted night, with the
//! opt-outs of that night:
//!
//! ```
//! use std::path::Path;
//!
//! use audience::contacts::Contacts;
//! use audience::export::{Csv, ExportError};
//! use audience::rule::{Condition, Rule};
//!
//! async fn nightly(contacts: &Contacts, file: &Path) -> Result<(), ExportError> {
//!     let on_pro = Rule::all([Condition::property("plan").is("pro")]);
//!     let columns = Csv::new(["email", "first_name", "plan"]);
//!     let report = contacts.list().rule(on_pro).export(file, columns).await?;
//!     println!("{report}"); // the file is complete: pass it on
//!     Ok(())
//! }
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use audience::contacts::NewContact;
//! # let server = audience::mock::MockServer::start().await;
//! # let contacts = server.client().contacts();
//! # let path = std::env::temp_dir().join(format!("audience-export-{}.csv", std::process::id()));
//! # contacts.create(NewContact::new("ada@example.com").property("plan", "pro")).await?;
//! # nightly(&contacts, &path).await?;
//! # assert_eq!(std::fs::read_to_string(&path).unwrap(), "email,first_name,plan\nada@example.com,,pro\n");
//! # contacts.create(NewContact::new("bob@example.com").property("plan", "pro")).await?;
//! # nightly(&contacts, &path).await?;
//! # assert!(std::fs::read_to_string(&path).unwrap().contains("bob@example.com"));
//! # std::fs::remove_file(&path).unwrap();
//! # Ok(()) }
//! ```
//!
//! [`ListContacts::export`]: crate::contacts::ListContacts::export

mod builder;
mod csv;

pub use builder::{Export, ExportError, ExportReport};
pub use csv::{Csv, ExportColumn, ExportedContact, Format, JsonLines};
