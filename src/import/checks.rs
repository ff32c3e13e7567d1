//! Decides what happens to a row that was read, before it can be sent. Pure.

use super::dry_run::DryRun;
use super::journal::{Resumed, ResumedRow, fingerprint_of};
use super::outcome::RowOutcome;
use super::row::ImportRow;
use crate::ErrorCode;

/// What decides about rows: the journal of an earlier run, or the checks of a dry run.
#[derive(Debug)]
pub(super) struct Checks {
    resumed: Option<Resumed>,
    resumed_rows: u64,
    dry_run: Option<DryRun>,
}

/// What happens to a row.
#[derive(Debug)]
pub(super) enum Verdict {
    /// It is sent.
    Send,
    /// It has this outcome.
    Settle(RowOutcome),
    /// It is valid, and so is an earlier row with its address.
    Duplicate,
    /// The journal belongs to other rows.
    Mismatch,
}

impl Checks {
    pub(super) fn new(resumed: Option<Resumed>, is_dry_run: bool) -> Self {
        Self {
            resumed,
            resumed_rows: 0,
            dry_run: is_dry_run.then(DryRun::default),
        }
    }

    /// Decides about the next row. A dry run that has stopped checks no more rows.
    pub(super) fn check(&mut self, number: u64, row: &ImportRow, has_stopped: bool) -> Verdict {
        if let Some(dry_run) = self.dry_run.as_mut().filter(|_| !has_stopped) {
            let found = dry_run.check(row);
            return match found.is_duplicate {
                true => Verdict::Duplicate,
                false => Verdict::Settle(found.outcome),
            };
        }
        if let Some(resumed) = &mut self.resumed {
            match resumed.row(number, || fingerprint_of([(number, row)])) {
                ResumedRow::ToSend => {}
                ResumedRow::Finished(outcome) => {
                    self.resumed_rows += 1;
                    return Verdict::Settle(outcome);
                }
                ResumedRow::Mismatch => return Verdict::Mismatch,
            }
        }
        match row.problem() {
            None => Verdict::Send,
            Some(message) => Verdict::Settle(RowOutcome::Refused {
                code: ErrorCode::from("invalid_row"),
                message: Some(message),
                retryable: false,
            }),
        }
    }

    /// Returns how many rows the journal knew.
    pub(super) fn resumed_rows(&self) -> u64 {
        self.resumed_rows
    }

    /// Returns whether the journal knows rows that were not read.
    pub(super) fn has_unread_rows(&self) -> bool {
        self.resumed.as_ref().is_some_and(Resumed::has_unread_rows)
    }
}
