//! Faults: the failures that a test causes between the service and its callers.

mod active;
mod fault;
mod header;
pub(super) mod json;
mod pattern;

pub(super) use active::ActiveFaults;
pub use fault::Fault;
pub(super) use fault::FaultKind;
pub(super) use header::header;
