//! Drains accepted events.

mod backoff;
mod drain;
mod event;
mod report;
mod settings;
#[expect(clippy::module_inception, reason = "the file is named after its type")]
mod worker;

pub use self::report::WorkerReport;
pub use self::worker::Worker;
