use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::outcome::RowOutcome;
use crate::Error;

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
