use std::error::Error as StdError;
use std::fmt;

use super::report::ImportReport;
use crate::Error;

/// An import that stopped before its end, with what it had done until then.
///
/// It converts to an [`Error`], so `?` works in a function that returns one.
#[derive(Debug)]
pub struct ImportError {
    inner: Box<Inner>,
}

#[derive(Debug)]
struct Inner {
    report: ImportReport,
    error: Error,
}

impl ImportError {
    pub(super) fn new(report: ImportReport, error: Error) -> Self {
        let inner = Box::new(Inner { report, error });
        Self { inner }
    }

    /// Returns what the import had done when it stopped.
    #[must_use]
    pub fn report(&self) -> &ImportReport {
        &self.inner.report
    }

    /// Returns why it stopped.
    #[must_use]
    pub fn error(&self) -> &Error {
        &self.inner.error
    }
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = &self.inner.report;
        write!(f, "the import stopped before its end: {report}")
    }
}

impl StdError for ImportError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.inner.error)
    }
}

/// An import that could not start.
impl From<Error> for ImportError {
    fn from(error: Error) -> Self {
        Self::new(ImportReport::default(), error)
    }
}

impl From<ImportError> for Error {
    fn from(error: ImportError) -> Self {
        error.inner.error
    }
}
