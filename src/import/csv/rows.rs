use std::fmt;
use std::io::Read;
use std::iter::FusedIterator;
use std::path::Path;
use std::sync::Arc;

use super::CsvInput;
use super::columns::{Column, Mapping};
use super::consent::Consent;
use super::{Problem, READ_FAILED, Record, Records, is_of_cut_off_row, unescape};
use crate::Error;
use crate::contacts::{NewContact, OnConflict, Properties, PropertyValue};
use crate::import::row::{EVERYTHING, ImportRow, OptOut, REST_NOT_READ, has};

/// The rows of a CSV file, for [`Contacts::import`](crate::contacts::Contacts::import).
///
/// [`CsvInput`](crate::import::CsvInput) describes which files can be read, and changes the meaning of their columns.
///
/// - A row keeps the line on which it begins, as an editor shows it, and its cells as they are in the file. If it has
///   too few or too many cells, a `?` stands in each empty cell of a consent column. Replace it in the rejects.
/// - White space around a cell is removed. Empty cells are not sent. Blank lines and rows with only empty cells are
///   skipped.
/// - A row with too few or too many cells, with invalid UTF-8, without an address, or with an unknown word in a consent
///   column becomes an [`ImportRow::unreadable`] with its line and cells. So a typing error never subscribes a contact.
///   It keeps its key if it has as many cells as the header. A row of more than 1 MiB is also unreadable, and has no
///   cells. Neither has a row with text after a closing quote, such as `"Bob"by`: an earlier quote may not be closed, and
///   then other rows are inside it.
/// - If a quote is never closed, or the file itself cannot be read to its end, the last row is unreadable, with the
///   reason. The import applies the rows before it, and then ends with an
///   [`ImportError`](crate::import::ImportError).
/// - The rejects of an earlier import are recognized. Their first four columns are ignored, and the apostrophe before a
///   formula is removed. A row that still contains U+FFFD, in place of bytes that were not UTF-8, is unreadable. If they
///   have the row at which the original file could not be read further, the import of the rejects does not apply this row
///   and ends with an error, too, because the rest of the original file is missing.
///
/// Memory use does not grow with the file.
///
/// # Example: import a file
///
/// ```no_run
/// # async fn run(contacts: audience::contacts::Contacts) -> Result<(), Box<dyn std::error::Error>> {
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
    /// Opens a file and guesses the meaning of its columns. Use [`CsvInput`] to set it.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`CsvInput::open`] and [`CsvInput::rows`].
    ///
    /// # Example: a file with an opt-out
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # let path = std::env::temp_dir().join(format!("audience-rows-{}.csv", std::process::id()));
    /// # std::fs::write(&path, "email,unsubscribed\nada@example.com,no\nbob@example.com,yes\n")?;
    /// use audience::import::CsvRows;
    ///
    /// let report = contacts.import(CsvRows::open(&path)?).await?;
    ///
    /// assert_eq!(report.created(), 2);
    /// assert!(contacts.retrieve("bob@example.com").await?.unsubscribed);
    /// # std::fs::remove_file(path)?;
    /// # Ok(()) }
    /// ```
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        CsvInput::open(path)?.rows()
    }

    /// Reads the header and guesses the meaning of the columns. Use [`CsvInput`] to set it.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`CsvInput::new`] and [`CsvInput::rows`].
    ///
    /// # Example: a file in memory
    ///
    /// ```
    /// use audience::contacts::NewContact;
    /// use audience::import::{CsvRows, ImportRow};
    ///
    /// let rows = CsvRows::new("email,seats\nada@example.com,3\n".as_bytes())?;
    ///
    /// let contacts: Vec<_> = rows.filter_map(|row| row.contact().cloned()).collect();
    /// assert_eq!(contacts, [NewContact::new("ada@example.com").property("seats", 3)]);
    /// # Ok::<(), audience::Error>(())
    /// ```
    pub fn new(reader: impl Read + Send + 'static) -> Result<Self, Error> {
        CsvInput::new(reader)?.rows()
    }

    pub(super) fn from_input(
        mut records: Records,
        mapping: Mapping,
        on_conflict: Option<OnConflict>,
    ) -> Self {
        records.begin();
        Self {
            records,
            columns: mapping.reject_names().into(),
            mapping,
            on_conflict,
            has_failed: false,
        }
    }

    /// Returns the rows of rejects, each with its line in the file that they are from. Rows without such a line are
    /// left out.
    pub(crate) fn with_original_lines(mut self) -> impl Iterator<Item = (u64, ImportRow)> {
        let next = move || {
            let record = self.next_record().ok().flatten()?;
            Some((self.original_line(&record), self.convert(&record)))
        };
        std::iter::from_fn(next).filter_map(|(line, row)| Some((line?, row)))
    }

    fn original_line(&self, record: &Record) -> Option<u64> {
        // The line is the first of the leading columns.
        let line = record.cells.first().filter(|_| self.mapping.is_rejects())?;
        std::str::from_utf8(line).ok()?.trim().parse().ok()
    }

    /// Reads the next record that is not blank.
    fn next_record(&mut self) -> std::io::Result<Option<Record>> {
        loop {
            let record = self.records.next()?;
            let is_blank = |record: &Record| {
                let mut cells = record.cells.iter();
                record.problem.is_none() && cells.all(|cell| cell.trim_ascii().is_empty())
            };
            match record {
                Some(record) if is_blank(&record) => {}
                record => return Ok(record),
            }
        }
    }

    fn convert(&self, record: &Record) -> ImportRow {
        let (mut cells, is_utf8) = texts(&self.mapping, &record.cells);
        // Rejects are UTF-8 even if the input was not: the damage is then in the text. In any other file, U+FFFD is
        // what the sender wrote.
        let is_damaged = self.mapping.is_rejects()
            && cells
                .iter()
                .any(|cell| cell.contains(char::REPLACEMENT_CHARACTER));
        let row = if let Some(problem) = record.problem {
            match problem {
                Problem::TooLong | Problem::TextAfterQuote { .. } => Err(problem.text().to_owned()),
                Problem::UnclosedQuote => Ok(ImportRow::cut_off(problem.text())),
            }
        } else if self.is_cut_off_reject(record) {
            // Whatever the cells are: other rows were after this one.
            Ok(ImportRow::cut_off(REST_NOT_READ))
        } else if !is_utf8 {
            Err("the row is not UTF-8; save the file in UTF-8".to_owned())
        } else if is_damaged {
            Err("a cell contains U+FFFD in place of bytes that were not UTF-8".to_owned())
        } else {
            to_row(&self.mapping, self.on_conflict, &cells)
        };
        let key = readable_key(&self.mapping, &cells);
        let has_marks = record.problem.is_none()
            && cells.len() != self.mapping.names.len()
            && mark_consent(&self.mapping, &mut cells);
        let row = row.map_err(|reason| match has_marks {
            true => format!("{reason}; replace each ? by what is true"),
            false => reason,
        });
        let unreadable = |reason| {
            let row = ImportRow::unreadable(reason);
            key.into_iter().fold(row, ImportRow::key)
        };
        row.unwrap_or_else(unreadable)
            .line(record.line)
            .input(cells)
            .input_columns(self.columns.clone())
    }

    /// Returns whether this row of rejects stands for the rest of a file that could not be read. Rejects of an earlier
    /// version have its texts, so keep those, too.
    fn is_cut_off_reject(&self, record: &Record) -> bool {
        // The reason is the third of the leading columns.
        let reason = record.cells.get(2).filter(|_| self.mapping.is_rejects());
        reason.is_some_and(|reason| {
            let reason = String::from_utf8_lossy(reason);
            reason == REST_NOT_READ || is_of_cut_off_row(&reason)
        })
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
                let reason = format!("{READ_FAILED}: {error}");
                let row = ImportRow::cut_off(reason).line(self.records.line());
                let (cells, _) = texts(&self.mapping, &[]);
                Some(row.input(cells).input_columns(self.columns.clone()))
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

/// Returns the cells as text, without the leading ones of rejects and with an added one, and whether all of them were
/// UTF-8.
fn texts(mapping: &Mapping, cells: &[Vec<u8>]) -> (Vec<String>, bool) {
    let cells = cells.get(mapping.leading..).unwrap_or_default();
    let is_utf8 = cells.iter().all(|cell| std::str::from_utf8(cell).is_ok());
    let texts = cells.iter().map(|cell| {
        let text = String::from_utf8_lossy(cell);
        match mapping.is_rejects() {
            true => unescape(&text).to_owned(),
            false => text.into_owned(),
        }
    });
    let mut texts: Vec<_> = texts.collect();
    if mapping.opts_out_all {
        let replaced = (1 - mapping.added).min(texts.len());
        texts.splice(..replaced, ["yes".to_owned()]);
    }
    (texts, is_utf8)
}

/// Puts a `?` into each empty consent cell of a row with too few or too many cells. Its cells may be under the wrong
/// columns, and a spreadsheet would hide that by adding cells, so an opt-out would be lost. Returns whether there is a
/// `?`.
fn mark_consent(mapping: &Mapping, cells: &mut Vec<String>) -> bool {
    if mapping.opts_out_all {
        return false;
    }
    let mut has_marks = false;
    for (index, (_, column)) in mapping.columns().enumerate() {
        let is_empty = cells.get(index).is_none_or(|cell| cell.trim().is_empty());
        if column.is_consent() && is_empty {
            let length = cells.len().max(index + 1);
            cells.resize(length, String::new());
            cells[index] = "?".to_owned();
            has_marks = true;
        }
    }
    has_marks
}

/// Converts a row.
///
/// # Errors
///
/// The reason why the row cannot be read. The text contains no cell, except for the name of a group.
fn to_row(
    mapping: &Mapping,
    on_conflict: Option<OnConflict>,
    cells: &[String],
) -> Result<ImportRow, String> {
    let (found, expected) = (cells.len(), mapping.names.len());
    if found != expected {
        let (found, expected) = (found - mapping.added, expected - mapping.added);
        return Err(format!(
            "the row has {found} cells, but the file has {expected} columns"
        ));
    }
    if !mapping.opts_out_all && mapping.is_too_long(cells) {
        return Err(
            "the row has a cell after the last column with a name; name the column, or remove the cell"
                .to_owned(),
        );
    }
    let mut columns = mapping.columns().zip(cells);
    let email = columns.find(|((_, column), _)| **column == Column::Email);
    let email = email.map(|(_, cell)| cell.trim()).unwrap_or_default();
    if email.is_empty() {
        return Err("the row has no address".to_owned());
    }
    let mut contact = NewContact::new(email);
    // First, so that a cell of the row can overwrite it.
    contact.on_conflict = on_conflict;
    let mut consent = Consent::default();
    let mut empty_state = None;
    let mut key = None;
    let failed = |name: &str, problem: &str| format!("column {name:?}: {problem}");
    for ((name, column), cell) in mapping.columns().zip(cells) {
        let cell = cell.trim();
        if column.is_consent() {
            match consent.add(column, cell) {
                Err(problem) if cell.is_empty() => {
                    empty_state.get_or_insert((name, problem));
                }
                added => added.map_err(|problem| failed(name, &problem))?,
            }
            continue;
        }
        if cell.is_empty() {
            continue;
        }
        match column {
            Column::Key => key = Some(cell),
            column => {
                let set = set(contact, column, cell);
                contact = set.map_err(|problem| failed(name, problem))?;
            }
        }
    }
    let opt_outs = consent.opt_outs().map_err(str::to_owned)?;
    // Nothing is unclear if another column opts the contact out of everything.
    if let Some((name, problem)) = empty_state.filter(|_| !has(&opt_outs, &EVERYTHING)) {
        return Err(failed(name, &problem));
    }
    let row = ImportRow::new(contact);
    let row = key.into_iter().fold(row, ImportRow::key);
    Ok(opt_outs
        .into_iter()
        .fold(row, |row, opt_out: OptOut| row.opt_out(opt_out)))
}

/// Returns the key of a row that cannot be read otherwise; `None` if its cells may be under the wrong columns, or if
/// the key itself is damaged.
fn readable_key(mapping: &Mapping, cells: &[String]) -> Option<String> {
    if cells.len() != mapping.names.len() || mapping.is_too_long(cells) {
        return None;
    }
    let mut columns = mapping.columns().zip(cells);
    let key = columns.find(|((_, column), _)| **column == Column::Key);
    let key = key.map(|(_, cell)| cell.trim()).unwrap_or_default();
    let is_whole = !key.is_empty() && !key.contains(char::REPLACEMENT_CHARACTER);
    is_whole.then(|| key.to_owned())
}

fn set(contact: NewContact, column: &Column, cell: &str) -> Result<NewContact, &'static str> {
    Ok(match column {
        Column::FirstName => contact.first_name(cell),
        Column::LastName => contact.last_name(cell),
        Column::Property(name) => contact.property(name, number_or_text(cell)),
        Column::Properties => {
            let properties: Properties =
                serde_json::from_str(cell).map_err(|_| "the cell is not a JSON object")?;
            // An empty map clears the properties of an existing contact, so it is sent, too.
            let contact = match contact.members().properties {
                None => contact.properties(Properties::new()),
                Some(_) => contact,
            };
            let all = properties.into_iter();
            all.fold(contact, |contact, (name, value)| {
                contact.property(name, value)
            })
        }
        Column::OnConflict => {
            let choice = cell.to_lowercase().parse::<OnConflict>();
            let choice = choice.map_err(|_| "the cell is neither upsert nor skip nor error")?;
            contact.on_conflict(choice)
        }
        _ => contact,
    })
}

/// Returns a number only if it prints exactly as the cell. Postcodes with a zero in front, and very long ids, stay
/// text.
pub(crate) fn number_or_text(cell: &str) -> PropertyValue {
    let number = serde_json::from_str::<serde_json::Number>(cell).ok();
    // With the feature `arbitrary_precision` of `serde_json`, a `Number` prints the text that it was read from, and not
    // the number that is sent.
    let number = number.map(PropertyValue::from);
    let number = number.filter(|number| {
        let sent = number.to_string();
        sent == cell
    });
    number.unwrap_or_else(|| cell.into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_cells_that_a_number_prints_as_are_numbers() {
        for (cell, number) in [
            ("3", json!(3)),
            ("-7", json!(-7)),
            ("0.5", json!(0.5)),
            (
                "18446744073709551615",
                json!(18_446_744_073_709_551_615_u64),
            ),
        ] {
            assert_eq!(serde_json::to_value(number_or_text(cell)).unwrap(), number);
        }
        for text in [
            "01067",
            "+49",
            "1e5",
            "1.50",
            "1,5",
            "12345678901234567890123",
            "NaN",
            "-",
            "٣",
        ] {
            assert_eq!(number_or_text(text), PropertyValue::from(text));
        }
    }
}
