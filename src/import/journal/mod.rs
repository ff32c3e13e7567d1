//! The journal: what an import has finished, on disk.

mod claim;
mod file;
mod fingerprint;
mod record;
mod resumed;
mod writer;

pub use file::Journal;
pub(super) use fingerprint::fingerprint_of;
pub(super) use record::{Finished, Header, Record, RowNumbers};
pub(super) use resumed::{Resumed, ResumedRow};
pub(super) use writer::JournalWriter;
