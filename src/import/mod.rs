//! Import a whole audience.

mod address_set;
mod batch;
mod builder;
mod error;
mod grouping;
mod in_flight;
mod journal;
mod outcome;
mod outcomes;
mod progress;
mod rejects;
mod report;
mod row;
mod run;
mod source;
mod watch;

pub use builder::Import;
pub use error::ImportError;
pub use journal::Journal;
pub use outcome::RowOutcome;
pub use outcomes::Outcomes;
pub use progress::Progress;
pub use report::ImportReport;
pub use row::{ImportRow, OptOut};
