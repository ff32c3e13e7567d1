//! Imports any number of contacts, in batches that run in parallel, and keeps them in step with a table.
//!
//! [`Contacts::import`] takes an iterator of rows and [`Contacts::import_stream`] a stream. Rows are read as
//! they are needed, so memory use does not grow with the input. A row is a
//! [`NewContact`](crate::contacts::NewContact), an address alone, or an [`ImportRow`], which can also
//! hold opt-outs and your own key. [`Contacts::import_files`] imports several CSV files of one list.
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
//! - **Order.** Rows with the same normalized address apply in input order. All others may run in parallel.
//! - **Pace.** It starts with 2 simultaneous batches, and adds one after each round without errors, up to
//!   [`concurrency`](Import::concurrency). A 429, a 503 or a timeout halves the number. The
//!   `Retry-After` of a 429 holds back all batches, and that of a 503 the batch that got it.
//! - **Consent.** It never subscribes a contact: an existing opt-out stays, with its reason. The
//!   [opt-outs](ImportRow::opt_out) of a row are recorded right after its contact was created or updated. Before an
//!   opt-out of everything, a contact that existed is retrieved: if it is opted out already, only opt-outs of topics are
//!   sent. If that fails, the row is reported as [`OptOutFailed`](RowOutcome::OptOutFailed). If the service refuses a row,
//!   a contact with its address may exist all the same, so its opt-outs are recorded if there is one: see
//!   [`Refused`](RowOutcome::Refused). If one fails because the service cannot be reached, does not respond in time or asks
//!   to wait, the other opt-outs of the batch are not sent, and their rows are reported in the same way.
//! - **Failures.** Each request is retried, by default for longer than other calls: see
//!   [`retry`](Import::retry). If a batch fails permanently, its rows are reported as refused, not sent or unknown,
//!   and the import continues; see [`stop_on_failure`](Import::stop_on_failure). Later rows with the
//!   address of such a row are not sent, because a retry of the earlier row would overwrite them.
//! - **A batch that fails because of a row.** After a 400, a 413, a 403 that is not of the service, or after
//!   `validation_error` or `already_exists` for a whole batch, the import sends its halves, one after the other, and the
//!   halves of those. So only a row that is refused alone counts as refused after one of these two codes, and otherwise as
//!   not sent. It sends the halves after a 500, too, when the retries have ended, unless the batch has a row with
//!   [`OnConflict::Error`]: the batch may have been applied. The outcome of a row that fails alone with a 500 is unknown.
//!   The import tries to record the opt-outs of a row that is not sent or unknown for such a reason, and those of later
//!   rows of its address in the batch, because the contact may exist.
//! - **A service that fails for everything.** After 100 requests in a row with a 400, a 500 or a 403 that is not of the
//!   service, no batch with one of these is sent in halves until a request succeeds, and after an opt-out that fails so, the
//!   other opt-outs of its batch are not sent. After a 413 or one of the two codes, a batch always is sent in halves: if a
//!   service refuses everything with these, this takes two requests for each row.
//! - **The plan's ceiling.** After a `quota_exceeded`, the import starts no further batch. It reads the remaining rows
//!   and reports them as not sent. It returns its report, not an error: see [`ImportReport::quota_exceeded`]. The opt-outs
//!   of the rows that the service has refused are recorded if their contacts exist. If that fails, such a row is reported
//!   as [`OptOutFailed`](RowOutcome::OptOutFailed). The opt-outs of the rows that were not sent are not recorded: until a
//!   resumed import sends them, these contacts may get broadcasts.
//! - **A refused key** stops the import immediately, with an [`ImportError`]. That is a 401, or a 403 whose body is a JSON
//!   object. Any other 403 most likely comes from a firewall, which may have refused only what is in one row. Then this row
//!   is left to the next run. After 100 requests in a row, as above, such a 403 stops the import, too.
//!
//! # After a crash
//!
//! With a [`Journal`], an import that was killed, dropped or stopped resumes. Give it the same rows in
//! the same order, and the same file. The report then covers all rows, including the rows of earlier runs.
//!
//! If the service has none of ten contacts that the journal records, the key may be that of another audience. Then the
//! import sends nothing, and ends with an error. Usually, the first of them exists, so this takes one request. If that
//! request fails and nothing is left to send, the import ends with its error.
//!
//! | the row was | a resumed import |
//! |---|---|
//! | created, updated, skipped or refused | does not send it, and reports the same |
//! | created, updated or skipped, but an opt-out failed | sends only its opt-outs |
//! | refused by the plan's ceiling or, with its whole batch, by a rate limit | sends it |
//! | not sent | sends it |
//! | sent, with an unknown outcome | sends it again. Even if it is refused then, its opt-outs are recorded |
//! | sent, with an unknown outcome and [`OnConflict::Error`] | sends only its opt-outs, and reports it as unknown |
//!
//! If a row is sent again, it may be reported as updated or skipped, although an earlier attempt created the contact.
//!
//! # Keeping a list in step
//!
//! [`Contacts::sync`] compares a table with what it sent before, by a [`SyncState`], and sends only the difference. Use
//! it every night, and an import once.
//!
//! [`Contacts::sync`]: crate::contacts::Contacts::sync
//! [`OnConflict::Error`]: crate::contacts::OnConflict::Error
//! [`Contacts::import`]: crate::contacts::Contacts::import
//! [`Contacts::import_files`]: crate::contacts::Contacts::import_files
//! [`Contacts::import_stream`]: crate::contacts::Contacts::import_stream

mod batch;
mod builder;
mod corrected;
mod csv;
mod engine;
mod files;
mod journal;
mod other_audience;
mod pace;
mod record_file;
mod report;
mod row;
mod sync;
mod sync_state;

pub use builder::{Import, Outcomes};
pub use csv::{Column, CsvInput, CsvRows};
pub(crate) use csv::{escape, is_property_name, line};
#[cfg(feature = "cli")]
pub(crate) use csv::{is_regular_file, number_or_text};
pub use engine::Progress;
pub use files::ImportFiles;
pub use journal::Journal;
#[cfg(any(test, fuzzing))]
pub use journal::JournalText;
pub(crate) use record_file::{real_path, sync_directory, try_lock, unlock, with_suffix};
pub use report::{ImportError, ImportReport, RowOutcome};
pub use row::{ImportRow, OptOut};
#[cfg(feature = "cli")]
pub(crate) use sync::Safeguard;
pub use sync::{SyncContacts, SyncError, SyncReport, SyncRow};
pub use sync_state::{EraseRows, SyncState};
