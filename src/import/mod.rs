//! Imports a whole audience: any number of contacts, in batches, several simultaneously.
//!
//! [`Contacts::import`] takes an iterator of rows and [`Contacts::import_stream`] a stream. Rows are read as
//! they are needed, so memory is bounded whatever the size of the input. A row is a
//! [`NewContact`](crate::contacts::NewContact), an address alone, or an [`ImportRow`] with what the import
//! should know beside the contact.
//!
//! # Example: import, resume and report
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = audience::mock::MockServer::start().await;
//! # let contacts = server.client().contacts();
//! # let path = std::env::temp_dir().join(format!("import-{}.journal", std::process::id()));
//! use audience::contacts::{NewContact, OptOutReason};
//! use audience::import::{ImportRow, Journal, OptOut};
//!
//! let rows = (0..250).map(|n| NewContact::new(format!("{n}@example.com")).property("n", n));
//! let opted_out = ImportRow::from("ada@example.com").opt_out(OptOut::Everything(OptOutReason::Manual));
//! let rows = rows.map(ImportRow::from).chain([opted_out]);
//!
//! let report = contacts
//!     .import(rows)
//!     .journal(Journal::open(&path)?)
//!     .on_progress(|progress| println!("{} rows done", progress.finished()))
//!     .await?;
//!
//! assert_eq!(report.to_string(), "251 created, 0 updated, 0 skipped, 0 refused, 0 not sent, 0 unknown");
//! # assert!(server.contact("ada@example.com").unwrap().unsubscribed);
//! # std::fs::remove_file(path).unwrap();
//! # Ok(()) }
//! ```
//!
//! # What an import does
//!
//! - **Order.** Rows of one address apply in input order, in whatever spelling. All others may run in parallel.
//! - **Pace.** It starts with 2 simultaneous batches, and adds one after each round without trouble, up to
//!   [`concurrency`](Import::concurrency). A 429, a 503 or a timeout halves the number. A `Retry-After`
//!   holds back all batches.
//! - **Consent.** It never subscribes anybody: an existing opt-out stays. The [opt-outs](ImportRow::opt_out) of
//!   a row are recorded right after its contact was created or updated. If that fails, the row is reported as
//!   [`OptOutFailed`](RowOutcome::OptOutFailed).
//! - **Failures.** Each request is retried, by default for longer than other calls: see
//!   [`retry`](Import::retry). If a batch fails for good, its rows are reported as refused, not sent or unknown,
//!   and the import continues; see [`stop_on_failure`](Import::stop_on_failure). Later rows of these addresses are not sent, because a
//!   second try of the earlier row would undo them.
//! - **The plan's ceiling.** After a `quota_exceeded` no further batch is started. The rest of the rows is read
//!   to its end and reported as not sent. Such an import returns its report, not an error: see [`ImportReport::quota_exceeded`].
//! - **A refused key** stops the import immediately, with an [`ImportError`].
//!
//! # After a crash
//!
//! With a [`Journal`], an import that was killed, dropped or stopped continues where it was. Give it the same
//! rows in the same order, and the same file. The report then covers all rows, also those of earlier runs.
//!
//! | the row was | a resumed import |
//! |---|---|
//! | created, updated, skipped or refused, with or without its opt-outs | does not send it, and reports the same |
//! | refused by the plan's ceiling or, with its whole batch, by a rate limit | sends it |
//! | not sent | sends it |
//! | sent, with an unknown outcome | sends it again |
//! | the same, with [`OnConflict::Error`](crate::contacts::OnConflict::Error) | does not send it, and reports it as unknown |
//!
//! A row that is sent again may be reported as updated or skipped although the import created it.
//!
//! [`Contacts::import`]: crate::contacts::Contacts::import
//! [`Contacts::import_stream`]: crate::contacts::Contacts::import_stream

mod batch;
mod builder;
mod csv;
mod dry_run;
mod engine;
mod grouping;
mod journal;
mod pace;
mod rejects;
mod report;
mod row;

pub use builder::{Import, Outcomes};
pub use csv::{Column, CsvInput, CsvRows};
pub(crate) use csv::{escape, is_property_name, line};
pub use engine::Progress;
pub use journal::Journal;
pub use report::{ImportError, ImportReport, RowOutcome};
pub use row::{ImportRow, OptOut};
