//! The rows that have an outcome: counted, and kept until they can be handed out in input order.

use std::collections::BTreeMap;

use super::outcome::RowOutcome;
use super::report::ImportReport;
use super::row::ImportRow;

/// How many rows may be kept before no more are read.
const MAX_KEPT: usize = 10_000;

/// Which rows to hand out with their outcomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    Nothing,
    Rejects,
    All,
}

/// The rows that have an outcome.
#[derive(Debug)]
pub(super) struct Settled {
    keep: Keep,
    rows: BTreeMap<u64, (ImportRow, RowOutcome)>,
    pub(super) report: ImportReport,
}

impl Settled {
    pub(super) fn new(keep: Keep) -> Self {
        Self {
            keep,
            rows: BTreeMap::new(),
            report: ImportReport::default(),
        }
    }

    /// Adds the outcome of a row.
    pub(super) fn add(&mut self, number: u64, row: ImportRow, outcome: RowOutcome) {
        self.report.add(&outcome);
        let keeps = match self.keep {
            Keep::Nothing => false,
            Keep::Rejects => outcome.is_reject(),
            Keep::All => true,
        };
        if keeps {
            self.rows.insert(number, (row, outcome));
        }
    }

    /// Returns whether so many rows wait for an earlier one that no more should be read.
    pub(super) fn is_full(&self) -> bool {
        self.rows.len() >= MAX_KEPT
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Takes the first row, if its number is below this one.
    pub(super) fn take_first(&mut self, end: u64) -> Option<(ImportRow, RowOutcome)> {
        let entry = self.rows.first_entry()?;
        (*entry.key() < end).then(|| entry.remove())
    }
}
