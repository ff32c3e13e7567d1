use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Error, ErrorCode};

/// The counts of an import. Each row is in one of them.
///
/// Its `Display` is the summary line: `3 created, 1 updated, 0 skipped, 1 refused, 0 not sent, 0 unknown`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ImportReport {
    created: u64,
    updated: u64,
    skipped: u64,
    refused: BTreeMap<String, u64>,
    opt_out_failed: u64,
    not_sent: u64,
    unknown: u64,
    #[serde(default)]
    valid: u64,
    #[serde(default)]
    duplicates: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    first_failure: Option<String>,
}

impl ImportReport {
    /// Returns how many contacts were created.
    #[must_use]
    pub fn created(&self) -> u64 {
        self.created
    }

    /// Returns how many contacts were updated. See [`RowOutcome::Updated`].
    #[must_use]
    pub fn updated(&self) -> u64 {
        self.updated
    }

    /// Returns how many contacts existed and were left unchanged.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Returns how many rows were refused, rows that could not be read included, and rows whose opt-out was
    /// not recorded.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.values().sum::<u64>() + self.opt_out_failed
    }

    /// Returns how many rows were refused for each slug.
    pub fn refused_by_code(&self) -> impl Iterator<Item = (&str, u64)> {
        self.refused
            .iter()
            .map(|(code, count)| (code.as_str(), *count))
    }

    /// Returns how many rows were applied without one of their opt-outs.
    #[must_use]
    pub fn opt_out_failed(&self) -> u64 {
        self.opt_out_failed
    }

    /// Returns how many rows were not sent: because the import stopped before them, or because it was a dry
    /// run.
    #[must_use]
    pub fn not_sent(&self) -> u64 {
        self.not_sent + self.valid
    }

    /// Returns how many rows a [dry run](super::Import::dry_run) found nothing wrong with. They are among those
    /// not sent.
    #[must_use]
    pub fn valid(&self) -> u64 {
        self.valid
    }

    /// Returns how many of the valid rows of a [dry run](super::Import::dry_run) have the address of an earlier
    /// row. An import applies such rows in their order.
    #[must_use]
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// Returns how many rows may have been applied or not.
    #[must_use]
    pub fn unknown(&self) -> u64 {
        self.unknown
    }

    /// Returns how many rows there were.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.created + self.updated + self.skipped + self.refused() + self.not_sent() + self.unknown
    }

    /// Returns whether every row was sent and its result is known. Rows may have been refused.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.not_sent() == 0 && self.unknown == 0
    }

    /// Returns whether the plan's contact ceiling stopped the import.
    #[must_use]
    pub fn quota_exceeded(&self) -> bool {
        self.refused.contains_key("quota_exceeded")
    }

    /// Returns the error of the first batch that failed as a whole, as text.
    #[must_use]
    pub fn first_failure(&self) -> Option<&str> {
        self.first_failure.as_deref()
    }

    pub(super) fn note_failure(&mut self, error: &Error) {
        self.first_failure.get_or_insert_with(|| error.to_string());
    }

    pub(super) fn note_duplicate(&mut self) {
        self.duplicates += 1;
    }

    pub(super) fn add(&mut self, outcome: &RowOutcome) {
        match outcome {
            RowOutcome::Created => self.created += 1,
            RowOutcome::Updated => self.updated += 1,
            RowOutcome::Skipped => self.skipped += 1,
            RowOutcome::Refused { code, .. } => {
                *self.refused.entry(code.as_str().to_owned()).or_default() += 1;
            }
            RowOutcome::OptOutFailed { .. } => self.opt_out_failed += 1,
            RowOutcome::Valid => self.valid += 1,
            RowOutcome::NotSent => self.not_sent += 1,
            RowOutcome::Unknown => self.unknown += 1,
        }
    }
}

impl fmt::Display for ImportReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} created, {} updated, {} skipped, {} refused, {} not sent, {} unknown",
            self.created,
            self.updated,
            self.skipped,
            self.refused(),
            self.not_sent(),
            self.unknown
        )
    }
}

/// The outcome of one row of an import.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RowOutcome {
    /// The contact was created.
    Created,
    /// The address existed and was updated.
    ///
    /// After a retry or a resumed import, this may be a contact that an earlier attempt created.
    Updated,
    /// The address existed and was left unchanged.
    Skipped,
    /// The row was not applied, and neither were its opt-outs.
    Refused {
        /// The slug of the refusal. `invalid_row` if the row could not be sent.
        code: ErrorCode,
        /// What was wrong, if that is known.
        message: Option<String>,
        /// Whether importing the same row again can help.
        retryable: bool,
    },
    /// The contact was created, updated or skipped, but an opt-out of the row was not recorded. Until it
    /// is, the contact may get broadcasts that it opted out of.
    ///
    /// A resumed import does not record it either, unless the key was refused. Import the row again with upsert or
    /// skip: with [`OnConflict::Error`](crate::contacts::OnConflict::Error) it would be refused, because the
    /// contact exists.
    OptOutFailed {
        /// The slug of the refusal, or what kind of failure it was.
        code: ErrorCode,
        /// Which opt-out failed, and why.
        message: Option<String>,
    },
    /// The row was checked in a dry run, and nothing is wrong with it.
    Valid,
    /// The row was not sent: the import stopped before it, the service could not be reached, or an earlier row
    /// of the same address was not sent or has an unknown outcome.
    NotSent,
    /// The row was sent, and no usable response arrived: it may have been applied or not. Its opt-outs were not
    /// recorded.
    Unknown,
}

impl RowOutcome {
    /// Returns whether the row was applied in full.
    #[must_use]
    pub fn is_applied(&self) -> bool {
        matches!(self, Self::Created | Self::Updated | Self::Skipped)
    }

    /// Returns whether the row belongs to the rejects: it was neither applied nor, in a dry run, found to be
    /// valid.
    #[must_use]
    pub fn is_reject(&self) -> bool {
        !matches!(self, Self::Valid) && !self.is_applied()
    }

    /// Returns whether importing the same row again can help.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Created | Self::Updated | Self::Skipped | Self::Valid => false,
            Self::Refused { retryable, .. } => *retryable,
            Self::OptOutFailed { .. } | Self::NotSent | Self::Unknown => true,
        }
    }

    /// Returns the slug for the rejects, or the name of the outcome.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Skipped => "skipped",
            Self::Refused { code, .. } => code.as_str(),
            Self::OptOutFailed { .. } => "opt_out_failed",
            Self::Valid => "valid",
            Self::NotSent => "not_sent",
            Self::Unknown => "unknown",
        }
    }

    /// Returns the message, if there is one.
    #[must_use]
    pub fn message(&self) -> Option<&str> {
        match self {
            Self::Refused { message, .. } | Self::OptOutFailed { message, .. } => {
                message.as_deref()
            }
            _ => None,
        }
    }
}

/// Writes the code and, if there is one, the message.
impl fmt::Display for RowOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())?;
        match self.message() {
            Some(message) => write!(f, ": {message}"),
            None => Ok(()),
        }
    }
}

/// An import that stopped before its end, with what it had done until then.
///
/// It does not convert to an [`Error`], which has no place for the report: return it as it is, or as a
/// `Box<dyn std::error::Error>`.
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

    /// An import that could not start.
    pub(crate) fn not_started(error: Error) -> Self {
        Self::new(ImportReport::default(), error)
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
