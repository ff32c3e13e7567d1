use std::error::Error as StdError;
use std::fmt;

use super::ExportReport;
use crate::Error;

/// An export that stopped before its end, with what it has written.
///
/// The file and the cursor file are those of an export in progress: [`resume`](super::Export::resume) continues it.
/// It converts to an [`Error`], so `?` works in a function that returns one.
pub struct ExportError(Box<Inner>);

struct Inner {
    report: ExportReport,
    error: Error,
}

impl ExportError {
    pub(super) fn new(report: ExportReport, error: Error) -> Self {
        Self(Box::new(Inner { report, error }))
    }

    /// Returns what the export had written when it stopped.
    #[must_use]
    pub fn report(&self) -> &ExportReport {
        &self.0.report
    }

    /// Returns why it stopped.
    #[must_use]
    pub fn error(&self) -> &Error {
        &self.0.error
    }
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the export stopped after {} contacts",
            self.report().contacts()
        )
    }
}

impl fmt::Debug for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExportError")
            .field("report", self.report())
            .field("error", self.error())
            .finish()
    }
}

impl StdError for ExportError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(self.error())
    }
}

/// An export that could not begin.
impl From<Error> for ExportError {
    fn from(error: Error) -> Self {
        Self::new(ExportReport::default(), error)
    }
}

impl From<ExportError> for Error {
    fn from(error: ExportError) -> Self {
        error.0.error
    }
}
