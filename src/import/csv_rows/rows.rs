use std::fmt;
use std::iter::FusedIterator;
use std::sync::Arc;

use super::super::row::ImportRow;
use super::convert;
use super::mapping::Mapping;
use super::records::{Record, Records};
use crate::contacts::OnConflict;

/// The rows of a CSV file, for [`Contacts::import`](crate::contacts::Contacts::import).
///
/// [`CsvInput`](crate::import::CsvInput) says which files can be read and what their columns mean, and lets you change it.
///
/// - A row has the line on which it begins, as an editor shows it, and its cells as they are in the file.
/// - White space around a cell is removed. Empty cells are not sent. Blank lines and rows with only empty cells are
///   skipped.
/// - A row that cannot be read becomes an [`ImportRow::unreadable`] with its line and cells, and the next row is
///   read: if it has too few or too many cells, invalid UTF-8, no address, a quote that is never closed, or a
///   consent cell that is not understood. Nobody is subscribed because of a typing error.
/// - If the file itself cannot be read to its end, or hundreds of quotes in it are never closed, the last row is
///   unreadable and says so. The import applies the rows before it, and then ends with an
///   [`ImportError`](crate::import::ImportError).
/// - The rejects of an earlier import are recognized: their first four columns are left out, and so is the
///   apostrophe in front of what looks like a formula. A row that still contains U+FFFD, which stands for
///   bytes that were not UTF-8, is unreadable.
///
/// The memory it needs does not depend on the size of the file.
///
/// # Example: import a file
///
/// ```no_run
/// # async fn run(contacts: audience::contacts::Contacts) -> Result<(), audience::Error> {
/// use audience::import::CsvRows;
///
/// let report = contacts.import(CsvRows::open("contacts.csv")?).await?;
/// println!("{report}");
/// # Ok(()) }
/// ```
#[must_use = "rows are read as they are iterated over"]
pub struct CsvRows {
    records: Records,
    mapping: Mapping,
    columns: Arc<[String]>,
    on_conflict: Option<OnConflict>,
    has_failed: bool,
}

impl CsvRows {
    pub(super) fn from_input(
        mut records: Records,
        mapping: Mapping,
        on_conflict: Option<OnConflict>,
    ) -> Self {
        records.begin();
        Self {
            records,
            columns: mapping.names.clone().into(),
            mapping,
            on_conflict,
            has_failed: false,
        }
    }

    /// Reads the next record that is not blank.
    fn next_record(&mut self) -> std::io::Result<Option<Record>> {
        loop {
            let record = self.records.next()?;
            let is_blank =
                |record: &Record| record.cells.iter().all(|cell| cell.trim_ascii().is_empty());
            match record {
                Some(record) if is_blank(&record) => {}
                record => return Ok(record),
            }
        }
    }

    fn convert(&self, record: &Record) -> ImportRow {
        let (cells, is_utf8) = convert::texts(&self.mapping, &record.cells);
        let is_damaged = self.mapping.is_rejects()
            && cells
                .iter()
                .any(|cell| cell.contains(char::REPLACEMENT_CHARACTER));
        let row = if let Some(problem) = record.problem {
            Err(problem.to_owned())
        } else if !is_utf8 {
            Err("the row is not UTF-8; save the file in UTF-8".to_owned())
        } else if is_damaged {
            Err("a cell contains U+FFFD in place of bytes that were not UTF-8".to_owned())
        } else {
            convert::row(&self.mapping, self.on_conflict, &cells)
        };
        row.unwrap_or_else(ImportRow::unreadable)
            .line(record.line)
            .input(cells)
            .input_columns(self.columns.clone())
    }
}

impl Iterator for CsvRows {
    type Item = ImportRow;

    fn next(&mut self) -> Option<ImportRow> {
        if self.has_failed {
            return None;
        }
        match self.next_record() {
            Ok(record) => record.map(|record| self.convert(&record)),
            Err(error) => {
                self.has_failed = true;
                let reason = format!("the file could not be read from here on: {error}");
                let row = ImportRow::cut_off(reason).line(self.records.line());
                let no_cells: [String; 0] = [];
                Some(row.input(no_cells).input_columns(self.columns.clone()))
            }
        }
    }

    /// Counts the rows without converting them.
    fn count(mut self) -> usize {
        let mut count = 0;
        loop {
            match self.next_record() {
                Ok(Some(_)) => count += 1,
                Ok(None) => return count,
                Err(_) => return count + 1,
            }
        }
    }
}

impl FusedIterator for CsvRows {}

impl fmt::Debug for CsvRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CsvRows")
            .field("columns", &self.mapping.columns().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
