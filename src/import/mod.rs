//! Import a whole audience.

mod batch;
mod builder;
mod csv_rows;
mod dry_run;
mod error;
mod grouping;
mod in_flight;
mod journal;
mod outcome;
mod outcomes;
mod progress;
mod reject_form;
mod rejects;
mod report;
mod row;
mod run;
mod source;
mod watch;

pub use builder::Import;
pub use csv_rows::{Column, CsvInput, CsvRows};
pub use error::ImportError;
pub use journal::Journal;
pub use outcome::RowOutcome;
pub use outcomes::Outcomes;
pub use progress::Progress;
pub use report::ImportReport;
pub use row::{ImportRow, OptOut};
