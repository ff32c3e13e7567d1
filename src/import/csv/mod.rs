//! Rows from a CSV file.

mod columns;
mod consent;
mod rows;
mod text;

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::Error;
use crate::contacts::OnConflict;
use columns::Mapping;
use text::Records;

pub use columns::Column;
pub(crate) use columns::is_property_name;
pub use rows::CsvRows;
pub(super) use text::LEADING_COLUMNS;
pub(crate) use text::{escape, line};

/// The delimiters that are recognized, the most likely first.
const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];

/// A CSV file of which only the header was read: look at its columns, change what they mean, then
/// [read its rows](Self::rows).
///
/// The file is text in UTF-8, with or without a byte order mark. Lines end with LF, CR LF or CR, and a quoted cell
/// may contain line endings. The delimiter is guessed from the header: comma, semicolon, tab or `|`. A first line
/// `sep=;`, as spreadsheets write it, sets it.
///
/// # Columns
///
/// The first line names the columns. What a column means is guessed from its name, whatever its case, spaces and
/// hyphens: `E-Mail` and `Email address` are the address, `First name` and `given_name` the given name,
/// `Surname` the family name, `opted out` and `subscribed` the global opt-out, `topic:news` an answer to that topic.
/// The names of all [`Column`]s in their text form are recognized, too. Every other column is a property with the
/// name of the column.
///
/// A CSV [`export`](crate::export) is read as it is. Its `id` and `created_at` are ignored, because only the service
/// sets them. To keep the `id` of another service, map it to [`Column::Property`] or [`Column::Key`].
///
/// A column that may say who opted out, but whose name is not one of these (such as `Status` or `UNSUB_TIME`),
/// is not taken for a property: [`rows`](Self::rows) fails until it is mapped.
///
/// # Example: show the columns, and change one
///
/// ```
/// use audience::import::{Column, CsvInput};
///
/// let text = "E-Mail;Vorname;Plan\nada@example.com;Ada;pro\n";
/// let input = CsvInput::new(text.as_bytes())?.map("Vorname", Column::FirstName)?;
///
/// for (name, column) in input.columns() {
///     println!("{name} is {column}"); // "E-Mail is email", …
/// }
/// let row = input.rows()?.next().expect("the file has a row");
/// assert_eq!(row.contact().map(|contact| &*contact.email), Some("ada@example.com"));
/// assert_eq!(row.line_number(), Some(2));
/// # Ok::<(), audience::Error>(())
/// ```
#[must_use = "rows are read from it with `rows`"]
pub struct CsvInput {
    records: Records,
    delimiter: u8,
    mapping: Mapping,
    on_conflict: Option<OnConflict>,
}

impl CsvInput {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if the file cannot be opened or read,
    /// [`ErrorKind::Input`](crate::ErrorKind::Input) if it is empty or is not text in UTF-8.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let file = File::open(path)
            .map_err(|error| Error::config("could not open the CSV file").caused_by(error))?;
        Self::new(file)
    }

    /// Reads the header. The reader needs no buffer of its own.
    ///
    /// # Errors
    ///
    /// Those of [`open`](Self::open).
    pub fn new(reader: impl Read + Send + 'static) -> Result<Self, Error> {
        let mut records = Records::new(Box::new(reader)).map_err(unreadable)?;
        check_encoding(records.head())?;
        if records.head().starts_with(b"\xef\xbb\xbf") {
            records.skip(3, 0);
        }
        let delimiter = match separator_line(records.head()) {
            Some((delimiter, length)) => {
                records.skip(length, 1);
                delimiter
            }
            None => guess_delimiter(&mut records)?,
        };
        let mapping = read_header(&mut records, delimiter)?;
        Ok(Self {
            records,
            delimiter,
            mapping,
            on_conflict: None,
        })
    }

    /// Sets the delimiter, and guesses anew what the columns mean. Default: guessed from the header.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Input`](crate::ErrorKind::Input) if it is not an ASCII character, or is a quote or a line
    /// ending.
    pub fn delimiter(mut self, delimiter: char) -> Result<Self, Error> {
        self.delimiter = u8::try_from(delimiter)
            .ok()
            .filter(|byte| byte.is_ascii() && !matches!(byte, b'"' | b'\r' | b'\n'))
            .ok_or_else(|| {
                Error::input(
                    "the delimiter must be one ASCII character, not a quote or a line ending",
                )
            })?;
        self.mapping = read_header(&mut self.records, self.delimiter)?;
        Ok(self)
    }

    /// Sets what the column with this name means.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Input`](crate::ErrorKind::Input) if the file has no column with this name, or two.
    pub fn map(mut self, name: &str, column: Column) -> Result<Self, Error> {
        self.mapping.set(name, column)?;
        Ok(self)
    }

    /// Sets what happens if an address already exists, for all rows that do not say so themselves. Default:
    /// [`OnConflict::Upsert`].
    pub fn on_conflict(mut self, choice: OnConflict) -> Self {
        self.on_conflict = Some(choice);
        self
    }

    /// Returns the names of the columns and what they mean, in the order of the file.
    pub fn columns(&self) -> impl Iterator<Item = (&str, &Column)> {
        self.mapping.columns()
    }

    /// Returns the delimiter.
    #[must_use]
    pub fn delimiter_char(&self) -> char {
        char::from(self.delimiter)
    }

    /// Returns the rows.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Input`](crate::ErrorKind::Input) if no column is the address, if two columns are the same
    /// member, or if a column may say who opted out and was not [mapped](Self::map).
    pub fn rows(self) -> Result<CsvRows, Error> {
        self.mapping.check()?;
        Ok(CsvRows::from_input(
            self.records,
            self.mapping,
            self.on_conflict,
        ))
    }
}

impl fmt::Debug for CsvInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CsvInput")
            .field("columns", &self.columns().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

fn read_header(records: &mut Records, delimiter: u8) -> Result<Mapping, Error> {
    let header = records.header(delimiter).map_err(unreadable)?;
    let header = header.ok_or_else(|| Error::input("the CSV file is empty"))?;
    match header.problem {
        Some(problem) => Err(Error::input(format!(
            "the header is invalid: {}",
            problem.text()
        ))),
        None => Mapping::guess(&header.cells),
    }
}

/// Returns the delimiter that gives a column for the address, and of several the one that gives the most columns.
fn guess_delimiter(records: &mut Records) -> Result<u8, Error> {
    let mut best = ((false, 0), b',');
    for delimiter in DELIMITERS {
        let header = records.header(delimiter).map_err(unreadable)?;
        let cells = header.map_or_else(Vec::new, |header| header.cells);
        let has_address = Mapping::guess(&cells).is_ok_and(|mapping| mapping.has_address());
        // A header with a problem counts as one cell, so that the problem is reported.
        let found = (has_address, cells.len().max(1));
        if found > best.0 {
            best = (found, delimiter);
        }
    }
    Ok(best.1)
}

/// Returns the delimiter of a line `sep=;` at the beginning, and the length of that line.
fn separator_line(head: &[u8]) -> Option<(u8, usize)> {
    let (word, rest) = head.split_at_checked(4)?;
    let (&delimiter, rest) = rest.split_first()?;
    let ending = match rest {
        [b'\r', b'\n', ..] => 2,
        [b'\r' | b'\n', ..] => 1,
        _ => return None,
    };
    let is_line = word.eq_ignore_ascii_case(b"sep=") && !matches!(delimiter, b'"' | b'\r' | b'\n');
    is_line.then_some((delimiter, 5 + ending))
}

fn check_encoding(head: &[u8]) -> Result<(), Error> {
    let is_utf16 = head.starts_with(b"\xff\xfe") || head.starts_with(b"\xfe\xff");
    if is_utf16 {
        return Err(Error::input(
            "the CSV file is in UTF-16; save it in UTF-8 (in Excel: \"CSV UTF-8\")",
        ));
    }
    match head.iter().take(1024).any(|byte| *byte == 0) {
        true => Err(Error::input(
            "the file is not CSV in UTF-8; save it as CSV in UTF-8 (in Excel: \"CSV UTF-8\")",
        )),
        false => Ok(()),
    }
}

fn unreadable(error: io::Error) -> Error {
    Error::config("could not read the CSV file").caused_by(error)
}
