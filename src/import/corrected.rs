//! Which rows of a file need not be at the service as they are, because rows of its corrected rejects stand for them.

use std::collections::{HashMap, HashSet};

use super::csv::CsvRows;
use super::journal::Journal;
use super::report::RowOutcome;
use super::row::{EVERYTHING, ImportRow, has};
use crate::ErrorCode;
use crate::contacts::{NewContact, normalized_address};

/// Returns the numbers of the original rows that a verification leaves out, because it looks at their corrected rows.
/// The journal is that of the original file, whose import is finished.
///
/// # Errors
///
/// The line of an original row that was applied, although there is a corrected row for it: the corrected rejects may be
/// those of another file.
pub(super) fn corrected_rows(
    original: CsvRows,
    corrected: CsvRows,
    journal: &Journal,
) -> Result<HashSet<u64>, u64> {
    let mut by_line: HashMap<u64, Vec<Correction>> = HashMap::new();
    for (line, row) in corrected.with_original_lines() {
        by_line.entry(line).or_default().push(Correction::new(&row));
    }
    let mut left_out = HashSet::new();
    for (number, row) in (0..).zip(original) {
        let Some(line) = row.line_number().filter(|line| by_line.contains_key(line)) else {
            continue;
        };
        let outcome = journal.outcome(number);
        if outcome.as_ref().is_some_and(RowOutcome::is_applied) {
            return Err(line);
        }
        let is_settled = outcome.is_some_and(|outcome| has_settled(&row, &outcome));
        let mut corrections = by_line[&line].iter();
        if !row.is_cut_off()
            && corrections.any(|correction| correction.stands_for(&row, is_settled))
        {
            left_out.insert(number);
        }
    }
    Ok(left_out)
}

/// Returns whether the import has recorded the opt-outs of a row that was refused, unless there was no contact. It has
/// not if the row was refused because the contact exists.
fn has_settled(row: &ImportRow, outcome: &RowOutcome) -> bool {
    let RowOutcome::Refused { code, .. } = outcome else {
        return false;
    };
    let fails_on_conflict = row.contact().is_some_and(NewContact::fails_on_conflict);
    *code != ErrorCode::AlreadyExists && !fails_on_conflict
}

/// What is compared of a corrected row.
struct Correction {
    address: String,
    opts_out: bool,
    topics: usize,
}

impl Correction {
    fn new(row: &ImportRow) -> Self {
        Self {
            address: normalized_address(row.address()),
            opts_out: has(row.opt_outs(), &EVERYTHING),
            topics: row
                .opt_outs()
                .iter()
                .filter(|opt_out| opt_out.is_topic())
                .count(),
        }
    }

    /// Returns whether nothing of the original row is lost if only this row is at the service.
    fn stands_for(&self, original: &ImportRow, is_settled: bool) -> bool {
        let before = Self::new(original);
        // The names of topics are not compared: a misspelled one may be what was corrected.
        let has_opt_outs = (self.opts_out || !before.opts_out) && self.topics >= before.topics;
        // Otherwise, there may be a contact with the old address that lacks an opt-out.
        let is_found = self.address == before.address;
        has_opt_outs && (original.opt_outs().is_empty() || is_found || is_settled)
    }
}
