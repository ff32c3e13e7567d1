//! The journal: what an import has finished, on disk.

mod file;
mod fingerprint;
mod record;
mod resumed;
mod writer;

pub use file::Journal;
pub(super) use fingerprint::{Fingerprint, fingerprint};
pub(super) use record::{Finished, Header, Record, RowNumbers};
pub(super) use resumed::{Resumed, ResumedRow};
pub(super) use writer::JournalWriter;
