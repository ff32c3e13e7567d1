//! Rows from a CSV file.

mod columns;
mod consent;
mod rows;

use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use csv_core::{ReadRecordResult, ReaderBuilder};

#[cfg(feature = "cli")]
use super::row::{EVERYTHING, ImportRow, has};
use crate::Error;
use crate::contacts::OnConflict;
use columns::{Mapping, listed};

pub use columns::Column;
pub(crate) use columns::is_property_name;
pub use rows::CsvRows;
#[cfg(feature = "cli")]
pub(crate) use rows::number_or_text;

/// The delimiters that are recognized, the most likely first.
const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];

/// A CSV file whose header was read: look at its columns, change their meaning, then [read its rows](Self::rows).
///
/// The file is text in UTF-8, with or without a byte order mark. Lines end with LF, CR LF or CR, and a quoted cell
/// may contain line endings. The delimiter is guessed from the header: comma, semicolon, tab or `|`. A first line
/// such as `sep=;`, which some spreadsheets write, sets the delimiter.
///
/// # Columns
///
/// The first line names the columns. The meaning of a column is guessed from its name, regardless of case, spaces and
/// hyphens: `E-Mail` and `Email address` are the address, `First name` and `given_name` the given name,
/// `Surname` the family name, `opted out` and `subscribed` the global opt-out, `topic:news` an answer to that topic.
/// The names of all [`Column`]s in their text form are recognized, too. Every other column is a property with the
/// name of the column.
///
/// The exports of Mailchimp (by its columns `LEID` and `EUID`), Brevo and SendGrid are recognized by columns that only
/// they have, and what only these services need is ignored. Mailchimp's files of unsubscribed and of cleaned contacts
/// [opt out all](Self::opt_out_all) of them, because they have columns such as `UNSUB_TIME` and `CLEAN_TIME`. The files of
/// the other two services do not say who is in them, so call it yourself. If the name of an [opened](Self::open) file
/// says that its people must not get mail, such as `nonsubscribed_….csv`, but none of its columns says who opted out of
/// everything, [`rows`](Self::rows) fails until you call it. A column for a topic is not enough.
///
/// A CSV [`export`](crate::export) can be imported unchanged. Its `id` and `created_at` are ignored, because only the
/// service sets them. To keep the `id` of another service, map it to [`Column::Property`] or [`Column::Key`].
///
/// Some other names, such as `Email Status`, `isActive` or `Accepts Marketing`, suggest that the column says who opted
/// out. So do the cells in the first rows, if one of them is an opt-out such as `unsubscribed`, or if most of them are
/// states such as `active`, and no other column is the global opt-out. Such a column is not taken for a property:
/// [`rows`](Self::rows) fails until you [map](Self::map) it, or opt out all. If its name begins with `UNSUB_` or
/// `CLEAN_`, it can be ignored only if you opt out all, or if another column is the global opt-out.
///
/// Cells after the last column with a name make a row unreadable: such a row may have too many cells.
///
/// # Example: show the columns, and map one
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
    ///
    /// # Example: import a file, but keep contacts that exist
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # contacts.create("ada@example.com").await?;
    /// # let path = std::env::temp_dir().join(format!("audience-input-{}.csv", std::process::id()));
    /// # std::fs::write(&path, "email,plan\nada@example.com,pro\nbob@example.com,free\n")?;
    /// use audience::contacts::OnConflict;
    /// use audience::import::CsvInput;
    ///
    /// let input = CsvInput::open(&path)?.on_conflict(OnConflict::Skip);
    /// let report = contacts.import(input.rows()?).await?;
    ///
    /// assert_eq!((report.created(), report.skipped()), (1, 1));
    /// # std::fs::remove_file(path)?;
    /// # Ok(()) }
    /// ```
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let file = File::open(path)
            .map_err(|error| Error::config("could not open the CSV file").caused_by(error))?;
        let mut input = Self::new(file)?;
        input.mapping.set_path(path);
        Ok(input)
    }

    /// Opens several files of one list, such as the three of a Mailchimp export, and puts those first whose columns say
    /// that everybody in them opted out. [`import_files`](crate::contacts::Contacts::import_files) imports them.
    ///
    /// Each entry of `columns` [maps](Self::map) the column with this name, in every file that has it.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`open`](Self::open) and [`map`](Self::map), with the path of the file in the text, and
    /// [`ErrorKind::Input`](crate::ErrorKind::Input) if no file has a column with a name of `columns`.
    ///
    /// # Example: the folder of a Mailchimp export
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # let folder = std::env::temp_dir().join(format!("audience-open-all-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder)?;
    /// # std::fs::write(folder.join("a.csv"), "Email Address,Member rating,LEID,EUID\nada@example.com,2,1,a\n")?;
    /// # std::fs::write(folder.join("b.csv"), "Email Address,UNSUB_TIME,LEID,EUID\nbob@example.com,2026-01-01,2,b\n")?;
    /// # std::fs::write(folder.join("a.csv.journal"), "")?;
    /// use audience::import::{Column, CsvInput};
    ///
    /// let files = std::fs::read_dir(&folder)?.map(|file| file.map(|file| file.path()));
    /// let mut files = files.collect::<Result<Vec<_>, _>>()?;
    /// files.retain(|file| file.extension().is_some_and(|extension| extension == "csv")); // no journal
    ///
    /// let files = CsvInput::open_all(files, &[("Member rating", Column::Ignored)])?;
    /// let files = files.into_iter().map(|(path, input)| (path, input.refuse_unmapped()));
    /// println!("{}", contacts.import_files(files).await?.finished()?);
    ///
    /// assert!(contacts.retrieve("bob@example.com").await?.unsubscribed);
    /// # std::fs::remove_dir_all(folder)?;
    /// # Ok(()) }
    /// ```
    pub fn open_all<P: AsRef<Path>>(
        paths: impl IntoIterator<Item = P>,
        columns: &[(&str, Column)],
    ) -> Result<Vec<(P, Self)>, Error> {
        let mut is_used = vec![false; columns.len()];
        let mut files = Vec::new();
        for path in paths {
            let at_path = |error: Error| error.about(&path.as_ref().display().to_string());
            let mut input = Self::open(&path).map_err(at_path)?;
            for ((name, column), is_used) in columns.iter().zip(&mut is_used) {
                if input.columns().any(|(own, _)| own == *name) {
                    input = input.map(name, column.clone()).map_err(at_path)?;
                    *is_used = true;
                }
            }
            files.push((path, input));
        }
        if let Some(((name, _), _)) = columns.iter().zip(is_used).find(|(_, is_used)| !is_used) {
            let mappings: Vec<_> = files.iter().map(|(_, input)| &input.mapping).collect();
            let has = match mappings.is_empty() {
                true => "there is no file".to_owned(),
                false => format!("the files have {}", listed(&mappings)),
            };
            return Err(Error::input(format!(
                "no file has a column {name:?}; {has}"
            )));
        }
        // The sort is stable.
        files.sort_by_key(|(_, input)| !input.mapping.opts_out_all);
        Ok(files)
    }

    /// Returns whether everybody in the file is opted out of everything: by its columns, or by
    /// [`opt_out_all`](Self::opt_out_all).
    #[must_use]
    pub fn opts_out_all(&self) -> bool {
        self.mapping.opts_out_all
    }

    /// Returns whether these are the rejects of an earlier import.
    pub(crate) fn is_rejects(&self) -> bool {
        self.mapping.is_rejects()
    }

    /// Reads the header from any reader. The reader need not be buffered.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`open`](Self::open).
    ///
    /// # Example: an upload that is already in memory
    ///
    /// ```
    /// use audience::import::CsvInput;
    ///
    /// let upload: &[u8] = b"email;plan\nada@example.com;pro\n";
    /// let input = CsvInput::new(upload)?;
    ///
    /// assert_eq!(input.delimiter_char(), ';');
    /// assert_eq!(input.rows()?.count(), 1);
    /// # Ok::<(), audience::Error>(())
    /// ```
    pub fn new(reader: impl Read + Send + 'static) -> Result<Self, Error> {
        let mut records = Records::new(Box::new(reader)).map_err(unreadable)?;
        check_encoding(records.head())?;
        if records.head().starts_with(b"\xef\xbb\xbf") {
            // Otherwise the mark would be part of the first column's name.
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

    /// Sets the delimiter, and reads the header again. Default: guessed from the header.
    ///
    /// What was said about the columns before, for example by [`map`](Self::map), applies to the new columns, too.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Input`](crate::ErrorKind::Input) if it is not an ASCII character, or is a quote or a line
    /// ending, or if a column that was [mapped](Self::map) does not exist with this delimiter.
    ///
    /// # Example: a delimiter that is not guessed
    ///
    /// ```
    /// use audience::import::CsvInput;
    ///
    /// let input = CsvInput::new("email:plan\nada@example.com:pro\n".as_bytes())?;
    /// assert_eq!(input.columns().count(), 1);
    ///
    /// let input = input.delimiter(':')?;
    /// assert_eq!(input.columns().count(), 2);
    /// # Ok::<(), audience::Error>(())
    /// ```
    pub fn delimiter(mut self, delimiter: char) -> Result<Self, Error> {
        self.delimiter = u8::try_from(delimiter)
            .ok()
            .filter(|byte| byte.is_ascii() && !matches!(byte, b'"' | b'\r' | b'\n'))
            .ok_or_else(|| {
                Error::input(
                    "the delimiter must be one ASCII character, not a quote or a line ending",
                )
            })?;
        let mapping = read_header(&mut self.records, self.delimiter)?;
        let mapping = mapping.replacing(self.mapping);
        self.mapping = mapping.map_err(|error| error.about("with this delimiter"))?;
        Ok(self)
    }

    /// Sets the meaning of the column with this name. Default: guessed from the name.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Input`](crate::ErrorKind::Input) if the file has no column with this name, or two.
    ///
    /// # Example: a column of another service that says who is subscribed
    ///
    /// ```
    /// use audience::contacts::OptOutReason;
    /// use audience::import::{Column, CsvInput, OptOut};
    ///
    /// let file = "email,Status\nada@example.com,unsubscribed\n";
    /// let input = CsvInput::new(file.as_bytes())?.map("Status", Column::Subscribed)?;
    ///
    /// let row = input.rows()?.next().expect("the file has a row");
    /// assert_eq!(row.opt_outs(), [OptOut::Everything(OptOutReason::Manual)]);
    /// # Ok::<(), audience::Error>(())
    /// ```
    pub fn map(mut self, name: &str, column: Column) -> Result<Self, Error> {
        self.mapping.set(name, column)?;
        Ok(self)
    }

    /// Opts every contact of the file out of everything, for a list of people who must not get mail: those who
    /// unsubscribed, reported spam or bounced. Default: only rows that say so.
    ///
    /// It adds a first column `unsubscribed` with a "yes" in each row, which [`columns`](Self::columns) and the rejects
    /// show. A column that may say who opted out need not be mapped then: it is a property. It changes nothing for a
    /// Mailchimp file of unsubscribed or cleaned contacts that was recognized.
    ///
    /// # Example: the unsubscribed contacts of another service
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::import::CsvInput;
    ///
    /// let unsubscribed = "email,created\nada@example.com,1700000000\n";
    /// let rows = CsvInput::new(unsubscribed.as_bytes())?.opt_out_all().rows()?;
    /// let report = contacts.import(rows).await?;
    ///
    /// assert_eq!(report.created(), 1);
    /// assert!(contacts.retrieve("ada@example.com").await?.unsubscribed);
    /// # Ok(()) }
    /// ```
    pub fn opt_out_all(mut self) -> Self {
        self.mapping.opt_out_all();
        self
    }

    /// Ignores every column whose meaning is neither [mapped](Self::map) nor known from its name. Default: such a
    /// column is a property.
    ///
    /// A column that may say who opted out must be mapped all the same, unless you opt out [all](Self::opt_out_all).
    ///
    /// # Example: the addresses and one property of a file with many columns
    ///
    /// ```
    /// use audience::contacts::NewContact;
    /// use audience::import::{Column, CsvInput};
    ///
    /// let file = "email,plan,salary,notes\nada@example.com,pro,9000,call back\n";
    /// let input = CsvInput::new(file.as_bytes())?;
    /// let rows = input.map("plan", Column::Property("plan".to_owned()))?.ignore_unmapped().rows()?;
    ///
    /// let contacts: Vec<_> = rows.filter_map(|row| row.contact().cloned()).collect();
    /// assert_eq!(contacts, [NewContact::new("ada@example.com").property("plan", "pro")]);
    /// # Ok::<(), audience::Error>(())
    /// ```
    pub fn ignore_unmapped(mut self) -> Self {
        self.mapping.ignore_unmapped();
        self
    }

    /// Lets [`rows`](Self::rows) fail if the meaning of a column is neither [mapped](Self::map) nor known from its name.
    /// Default: such a column is a property.
    ///
    /// Call it for a file that may have topics under names of their own, such as the groups of a Mailchimp export: the
    /// "no" of a property is no opt-out.
    ///
    /// # Example: a group that nobody has mapped
    ///
    /// ```
    /// use audience::import::{Column, CsvInput};
    ///
    /// let input = || CsvInput::new("email,Weekly Hints\nada@example.com,no\n".as_bytes());
    ///
    /// let error = input()?.refuse_unmapped().rows().unwrap_err();
    /// assert!(error.to_string().contains("Weekly Hints"));
    ///
    /// let input = input()?.map("Weekly Hints", Column::Topic("hints".to_owned()))?;
    /// assert_eq!(input.refuse_unmapped().rows()?.count(), 1);
    /// # Ok::<(), audience::Error>(())
    /// ```
    pub fn refuse_unmapped(mut self) -> Self {
        self.mapping.refuses_unmapped = true;
        self
    }

    /// Sets what happens if an address already exists. Default: [`OnConflict::Upsert`].
    ///
    /// A cell of the column [`Column::OnConflict`] sets it for its row.
    ///
    /// # Example: leave contacts as they are, except in one row
    ///
    /// ```
    /// use audience::contacts::OnConflict;
    /// use audience::import::CsvInput;
    ///
    /// let file = "email,on_conflict\nada@example.com,\nbob@example.com,upsert\n";
    /// let rows = CsvInput::new(file.as_bytes())?.on_conflict(OnConflict::Skip).rows()?;
    ///
    /// let choices: Vec<_> = rows.filter_map(|row| row.contact()?.on_conflict).collect();
    /// assert_eq!(choices, [OnConflict::Skip, OnConflict::Upsert]);
    /// # Ok::<(), audience::Error>(())
    /// ```
    pub fn on_conflict(mut self, choice: OnConflict) -> Self {
        self.on_conflict = Some(choice);
        self
    }

    /// Returns the name and the meaning of each column, in the order of the file.
    ///
    /// # Example: show what the columns mean before the import
    ///
    /// ```
    /// use audience::import::CsvInput;
    ///
    /// let input = CsvInput::new("E-Mail,Surname,seats\n".as_bytes())?;
    /// let meanings: Vec<_> = input.columns().map(|(name, column)| format!("{name}: {column}")).collect();
    ///
    /// assert_eq!(meanings, ["E-Mail: email", "Surname: last_name", "seats: property:seats"]);
    /// # Ok::<(), audience::Error>(())
    /// ```
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
    /// [`ErrorKind::Input`](crate::ErrorKind::Input) if no column is the address, if two columns have the
    /// same meaning and only one may have it, if a column may say who opted out and was not [mapped](Self::map), if the
    /// name of the file or an ignored column says that its people must not get mail and no column says who opted out of
    /// everything, or if the header has text after a closing quote.
    ///
    /// Several columns may be [`Unsubscribed`](Column::Unsubscribed), [`Subscribed`](Column::Subscribed), the same
    /// [`Topic`](Column::Topic), [`Groups`](Column::Groups) or [`Ignored`](Column::Ignored): an opt-out in any of them
    /// counts. Only one column may have any other meaning, such as the address or the same property.
    ///
    /// # Example: a column that may say who opted out
    ///
    /// ```
    /// use audience::import::{Column, CsvInput};
    ///
    /// let input = || CsvInput::new("email,newsletter\nada@example.com,no\n".as_bytes());
    /// assert!(input()?.rows().is_err());
    ///
    /// let rows = input()?.map("newsletter", Column::Topic("news".to_owned()))?.rows()?;
    /// assert_eq!(rows.count(), 1);
    /// # Ok::<(), audience::Error>(())
    /// ```
    pub fn rows(mut self) -> Result<CsvRows, Error> {
        self.check()?;
        Ok(CsvRows::from_input(
            self.records,
            self.mapping,
            self.on_conflict,
        ))
    }

    /// Finds the errors of [`rows`](Self::rows).
    pub(super) fn check(&mut self) -> Result<(), Error> {
        let header = self.records.header(self.delimiter).map_err(unreadable)?;
        if let Some(problem) = header.and_then(|header| header.problem) {
            return Err(invalid_header(problem));
        }
        let first = self.records.first(self.delimiter).map_err(unreadable)?;
        self.mapping.doubt_by_cells(&first);
        self.mapping.check()
    }

    /// Opens the corrected rejects of this file. What was said about its columns applies to them, too.
    pub(super) fn open_corrected(&self, path: &Path) -> Result<Self, Error> {
        self.apply_to(Self::open(path)?)
    }

    /// Opens this file, which has this path, a second time.
    pub(super) fn open_again(&self, path: &Path) -> Result<Self, Error> {
        self.apply_to(Self::open(path)?.delimiter(self.delimiter_char())?)
    }

    /// Applies what was said about this file to another one.
    fn apply_to(&self, mut other: Self) -> Result<Self, Error> {
        other.mapping = other.mapping.replacing(self.mapping.clone())?;
        other.on_conflict = self.on_conflict;
        Ok(other)
    }

    /// Counts the rows of a file with this delimiter. Returns `None` if the file cannot be read a second time.
    pub(crate) fn count_rows(path: &Path, delimiter: char) -> Option<u64> {
        if !is_regular_file(path) {
            return None;
        }
        let input = Self::open(path).ok()?.delimiter(delimiter).ok()?;
        // The columns do not matter, so they are not checked.
        let rows = CsvRows::from_input(input.records, input.mapping, None);
        Some(rows.count() as u64)
    }

    /// Counts the rows of the file that opt their contacts out of everything. Returns `None` if the file cannot be read a
    /// second time.
    #[cfg(feature = "cli")]
    pub(super) fn count_opt_outs(&self, path: &Path) -> Option<u64> {
        if !is_regular_file(path) {
            return None;
        }
        let rows = self.open_again(path).ok()?.rows().ok()?;
        let opts_out = |row: &ImportRow| has(row.opt_outs(), &EVERYTHING);
        Some(rows.filter(opts_out).count() as u64)
    }
}

impl fmt::Debug for CsvInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CsvInput")
            .field("columns", &self.columns().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// Returns whether a file can be read twice, and files can be put beside it. A pipe cannot be read twice. Beside
/// `/dev/stdin` there is no place, even if a shell has opened a regular file as standard input.
pub(crate) fn is_regular_file(path: &Path) -> bool {
    let folder = path.parent().and_then(Path::to_str);
    path.is_file() && !matches!(folder, Some("/dev" | "/dev/fd"))
}

fn read_header(records: &mut Records, delimiter: u8) -> Result<Mapping, Error> {
    let header = records.header(delimiter).map_err(unreadable)?;
    let header = header.ok_or_else(|| Error::input("the CSV file is empty"))?;
    match header.problem {
        // With another delimiter, the same header may be valid, so only `rows` refuses it.
        None | Some(Problem::TextAfterQuote { .. }) => Mapping::guess(&header.cells),
        Some(problem) => Err(invalid_header(problem)),
    }
}

fn invalid_header(problem: Problem) -> Error {
    Error::input(format!("the header is invalid: {}", problem.text()))
}

/// Returns the delimiter that gives a column for the address. If several do, a valid header wins, and then the one with
/// the most columns.
fn guess_delimiter(records: &mut Records) -> Result<u8, Error> {
    let mut best = ((false, false, 0), b',');
    for delimiter in DELIMITERS {
        let header = records.header(delimiter).map_err(unreadable)?;
        let is_valid = header
            .as_ref()
            .is_some_and(|header| header.problem.is_none());
        let cells = header.map_or_else(Vec::new, |header| header.cells);
        let has_address = Mapping::guess(&cells).is_ok_and(|mapping| mapping.has_address());
        // A header with a problem counts as one cell, so that the problem is reported.
        let found = (has_address, has_address && is_valid, cells.len().max(1));
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
    // Text in UTF-8 has no zero bytes. UTF-16 without a mark has them, and so have spreadsheet files.
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

/// How many bytes are read in one go.
const CHUNK: usize = 64 * 1024;
/// The longest record in bytes. The rest of a longer one is read and forgotten.
const MAX_RECORD: usize = 1024 * 1024;

/// The columns that rejects have before the columns of the input.
pub(super) const LEADING_COLUMNS: [&str; 4] = ["line", "code", "message", "retryable"];

/// A record, and the line on which it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    line: u64,
    /// Empty if there is a problem, except for text after a closing quote in the header.
    cells: Vec<Vec<u8>>,
    problem: Option<Problem>,
}

/// The start of the reason of the row at which the file itself could not be read. Rejects are recognized by it: if you
/// change it, keep the old text, too.
const READ_FAILED: &str = "the file could not be read from here on";

/// Returns whether this is the reason of a row after which an input could not be read.
fn is_of_cut_off_row(reason: &str) -> bool {
    reason == Problem::UnclosedQuote.text() || reason.starts_with(READ_FAILED)
}

/// Why the cells of a record are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Problem {
    TooLong,
    /// The rest of the file is within the quotes, so this is the last record.
    UnclosedQuote,
    /// An earlier quote may not be closed. The records up to this quote are then a part of this one.
    TextAfterQuote {
        spans_lines: bool,
    },
}

impl Problem {
    fn text(self) -> &'static str {
        match self {
            Self::TooLong => "the row is longer than 1 MiB, or a quote in it is not closed",
            // Rejects are recognized by it: if you change it, keep the old text, too.
            Self::UnclosedQuote => {
                "a quote in this row is not closed, so the file could not be read from here on; close it, or write it twice"
            }
            Self::TextAfterQuote { spans_lines: false } => {
                "text after a closing quote; an earlier quote may not be closed"
            }
            Self::TextAfterQuote { spans_lines: true } => {
                "text after a closing quote; an earlier quote may not be closed, and then other rows are inside this one"
            }
        }
    }
}

/// Where a record is, as far as its quotes tell. The parser takes text after a closing quote for a part of the cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quoting {
    /// At the start of a cell, where a quote opens it.
    Start,
    Unquoted,
    Quoted,
    /// After a quote that closes the cell, unless another one follows.
    Closed,
    /// After text that follows a closing quote.
    Broken,
}

impl Quoting {
    fn after(self, bytes: &[u8], delimiter: u8) -> Self {
        // Most records have no quote, and are not read byte by byte.
        if matches!(self, Self::Start | Self::Unquoted) && !bytes.contains(&b'"') {
            return match bytes.last() {
                None => self,
                Some(last) if *last == delimiter => Self::Start,
                Some(_) => Self::Unquoted,
            };
        }
        bytes.iter().fold(self, |state, byte| match (state, *byte) {
            (Self::Broken, _) => Self::Broken,
            (Self::Start | Self::Closed, b'"') => Self::Quoted,
            (Self::Quoted, b'"') => Self::Closed,
            (Self::Quoted, _) => Self::Quoted,
            (_, byte) if byte == delimiter => Self::Start,
            (Self::Closed, byte) if !is_line_ending(byte) => Self::Broken,
            _ => Self::Unquoted,
        })
    }
}

struct Records {
    reader: Box<dyn Read + Send>,
    parser: csv_core::Reader,
    delimiter: u8,
    buffer: Vec<u8>,
    /// The position of the next record in the buffer, and its line.
    start: usize,
    line: u64,
    /// Whether the byte before the next record is a CR, so that an LF belongs to it.
    is_after_cr: bool,
    is_at_end: bool,
    /// The position and the line of the header, while it may be read again.
    header: Option<(usize, u64)>,
    /// Room for the cells of one record, and where each of them ends.
    text: Vec<u8>,
    ends: Vec<usize>,
}

impl Records {
    /// Reads the first bytes.
    fn new(reader: Box<dyn Read + Send>) -> io::Result<Self> {
        let mut records = Self {
            reader,
            parser: csv_core::Reader::new(),
            delimiter: b',',
            buffer: Vec::new(),
            start: 0,
            line: 1,
            is_after_cr: false,
            is_at_end: false,
            header: Some((0, 1)),
            text: vec![0; 1024],
            ends: vec![0; 32],
        };
        records.fill()?;
        Ok(records)
    }

    /// Returns the first bytes, for as long as no record was read.
    fn head(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    /// Skips bytes before the header, in which this many lines end.
    fn skip(&mut self, length: usize, lines: u64) {
        self.start += length;
        self.line += lines;
        self.header = Some((self.start, self.line));
    }

    /// Reads the header with this delimiter. It can be called again until [`begin`](Self::begin).
    fn header(&mut self, delimiter: u8) -> io::Result<Option<Record>> {
        if let Some((start, line)) = self.header {
            (self.start, self.line, self.is_after_cr) = (start, line, false);
        }
        self.set_delimiter(delimiter);
        self.next()
    }

    fn set_delimiter(&mut self, delimiter: u8) {
        self.parser = ReaderBuilder::new().delimiter(delimiter).build();
        self.delimiter = delimiter;
    }

    /// Returns the records after the header that are already in memory. They are read again later.
    fn first(&self, delimiter: u8) -> io::Result<Vec<Record>> {
        let mut records = Self::new(Box::new(io::Cursor::new(self.head().to_vec())))?;
        records.set_delimiter(delimiter);
        records.begin();
        let mut first = Vec::new();
        while let Some(record) = records.next()? {
            first.push(record);
        }
        if !self.is_at_end {
            // The end of the last one may not be in memory.
            first.pop();
        }
        Ok(first)
    }

    fn line(&self) -> u64 {
        self.line
    }

    fn begin(&mut self) {
        self.header = None;
    }

    /// Reads the next record. Blank lines are skipped. After an error there are no more records.
    fn next(&mut self) -> io::Result<Option<Record>> {
        if !self.skip_blank_lines()? {
            return Ok(None);
        }
        let line = self.line;
        let (mut taken, mut length, mut count) = (0, 0, 0);
        let mut quoting = Quoting::Start;
        loop {
            if self.start == self.buffer.len() && !self.is_at_end {
                self.fill()?;
            }
            // The end of the file ends a record as a line ending does, unless that is within quotes.
            let is_last = self.start == self.buffer.len();
            let input = match is_last {
                true => b"\n",
                false => &self.buffer[self.start..],
            };
            let (text, ends) = (&mut self.text[length..], &mut self.ends[count..]);
            let (result, read, written, ended) = self.parser.read_record(input, text, ends);
            if !is_last {
                let mut bytes = &self.buffer[self.start..self.start + read];
                if taken == 0 && self.header.is_some() {
                    // The parser leaves it out.
                    bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
                }
                quoting = quoting.after(bytes, self.delimiter);
                self.take(read);
            }
            taken += read;
            let is_too_long = taken > MAX_RECORD;
            // The cells of a record that is too long are overwritten, so that it needs no more memory.
            (length, count) = match is_too_long {
                true => (0, 0),
                false => (length + written, count + ended),
            };
            let problem = match result {
                ReadRecordResult::InputEmpty if is_last => Some(Problem::UnclosedQuote),
                // All of the header is kept, so that another delimiter can be tried.
                _ if is_too_long && self.header.is_some() => Some(Problem::TooLong),
                ReadRecordResult::OutputFull if !is_too_long => {
                    self.text.resize(2 * self.text.len(), 0);
                    continue;
                }
                ReadRecordResult::OutputEndsFull if !is_too_long => {
                    self.ends.resize(2 * self.ends.len(), 0);
                    continue;
                }
                ReadRecordResult::InputEmpty
                | ReadRecordResult::OutputFull
                | ReadRecordResult::OutputEndsFull => continue,
                ReadRecordResult::Record | ReadRecordResult::End => match quoting {
                    _ if is_too_long => Some(Problem::TooLong),
                    Quoting::Broken => {
                        let lines = self.line - line;
                        let spans_lines = lines > u64::from(!is_last);
                        Some(Problem::TextAfterQuote { spans_lines })
                    }
                    _ => None,
                },
            };
            let cells = match problem {
                None => self.cells(count),
                Some(Problem::TextAfterQuote { .. }) if self.header.is_some() => self.cells(count),
                Some(_) => Vec::new(),
            };
            return Ok(Some(Record {
                line,
                cells,
                problem,
            }));
        }
    }

    /// Returns the cells that were read last.
    fn cells(&self, count: usize) -> Vec<Vec<u8>> {
        let ends = &self.ends[..count];
        let starts = std::iter::once(&0).chain(ends);
        starts
            .zip(ends)
            .map(|(start, end)| self.text[*start..*end].to_vec())
            .collect()
    }

    /// Returns whether a record follows.
    fn skip_blank_lines(&mut self) -> io::Result<bool> {
        loop {
            let bytes = &self.buffer[self.start..];
            let endings = bytes.iter().take_while(|byte| is_line_ending(**byte));
            let (endings, available) = (endings.count(), bytes.len());
            self.take(endings);
            // Blank lines before the header are not read again with another delimiter.
            self.header = self.header.map(|_| (self.start, self.line));
            if endings < available {
                return Ok(true);
            }
            if self.is_at_end {
                return Ok(false);
            }
            self.fill()?;
        }
    }

    /// Goes past these bytes, and counts the lines that end in them as an editor does.
    fn take(&mut self, length: usize) {
        for byte in &self.buffer[self.start..self.start + length] {
            // An LF after a CR belongs to the same line ending, even if the CR was in the chunk before.
            let ends_line = *byte == b'\r' || *byte == b'\n' && !self.is_after_cr;
            self.line += u64::from(ends_line);
            self.is_after_cr = *byte == b'\r';
        }
        self.start += length;
    }

    /// Reads more bytes, or to the end.
    fn fill(&mut self) -> io::Result<()> {
        // While the header may be read again, its bytes stay in the buffer.
        let kept = self.header.map_or(self.start, |(start, _)| start);
        self.buffer.drain(..kept);
        self.start -= kept;
        self.header = self.header.map(|(_, line)| (0, line));
        let limited = (&mut self.reader).take(CHUNK as u64);
        let read = { limited }.read_to_end(&mut self.buffer);
        match read {
            Ok(length) => {
                // `read_to_end` returns less than the limit only at the end of the input.
                self.is_at_end = length < CHUNK;
                Ok(())
            }
            Err(error) => {
                self.is_at_end = true;
                self.start = self.buffer.len();
                Err(error)
            }
        }
    }
}

fn is_line_ending(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}

/// Writes a line. A cell is in quotes if another program could read it as something else without them.
pub(crate) fn line(cells: impl ExactSizeIterator<Item: AsRef<str>>) -> String {
    let is_single = cells.len() == 1;
    let mut line = String::new();
    for (index, cell) in cells.enumerate() {
        if index > 0 {
            line.push(',');
        }
        let cell = cell.as_ref();
        // A line with one empty cell would be an empty line, which readers skip.
        if needs_quotes(cell) || (is_single && cell.is_empty()) {
            line.push('"');
            line.push_str(&cell.replace('"', "\"\""));
            line.push('"');
        } else {
            line.push_str(cell);
        }
    }
    line.push('\n');
    line
}

fn needs_quotes(cell: &str) -> bool {
    // More than a comma: the file may be read by a program that guesses another delimiter.
    cell.contains([',', '"', '\n', '\r', ';', '\t', '|'])
        || cell.starts_with([' ', '\u{feff}'])
        || cell.ends_with(' ')
}

/// Puts an apostrophe before a cell that a spreadsheet would take for a formula. [`unescape`] is the reverse.
pub(crate) fn escape(cell: &str) -> Cow<'_, str> {
    match needs_apostrophe(cell) {
        true => format!("'{cell}").into(),
        false => cell.into(),
    }
}

/// Removes the apostrophe that [`escape`] added.
fn unescape(cell: &str) -> &str {
    match cell.strip_prefix('\'') {
        Some(rest) if needs_apostrophe(rest) => rest,
        _ => cell,
    }
}

/// A number is no formula, although it may begin as one. A cell that has an apostrophe already gets another one, so
/// that none is lost when it is read again.
fn needs_apostrophe(cell: &str) -> bool {
    let begins_as_formula = cell
        .trim_start_matches('\'')
        .starts_with(['=', '+', '-', '@', '\t', '\r', '\n']);
    begins_as_formula && serde_json::from_str::<serde_json::Number>(cell).is_err()
}

#[cfg(test)]
mod tests;
