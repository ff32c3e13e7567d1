use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::record::Record;
use super::resumed::Resumed;
use super::writer::JournalWriter;
use crate::Error;

/// A file in which an import records each batch that it has finished, so that it can go on after a crash.
///
/// The file has one JSON object on each line, and is only appended to. A record is synced to disk before
/// its rows count as finished. It contains no contact: row numbers, a fingerprint of the rows, their
/// outcomes, and the service's messages about refused rows.
///
/// Use a journal for one import at a time.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    resumed: Resumed,
}

impl Journal {
    /// Opens a journal, or creates it if the file does not exist. An import with a journal that has
    /// records goes on where they end.
    ///
    /// A line that was only partly written, as a crash can leave it at the end of the file, is removed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if the file cannot be opened, read or written, or if
    /// it is not a journal.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(path)
            .map_err(|error| Error::config("could not open the journal").caused_by(error))?;
        let resumed = read(&mut file)?;
        Ok(Self {
            path: path.to_owned(),
            file,
            resumed,
        })
    }

    /// Returns whether the journal has no records: an import with it begins at the beginning.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.resumed.is_empty()
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(in crate::import) fn into_parts(self) -> io::Result<(Resumed, JournalWriter)> {
        Ok((self.resumed, JournalWriter::start(self.file)?))
    }
}

/// Reads all records, and removes a last line that was only partly written.
fn read(file: &mut File) -> Result<Resumed, Error> {
    let failed = |error: io::Error| Error::config("could not read the journal").caused_by(error);
    let mut resumed = Resumed::default();
    let mut reader = BufReader::new(&mut *file);
    reader.seek(SeekFrom::Start(0)).map_err(failed)?;
    let mut valid = 0;
    let mut line = Vec::new();
    for number in 1_u64.. {
        line.clear();
        let length = reader.read_until(b'\n', &mut line).map_err(failed)?;
        if line.last() != Some(&b'\n') {
            if !is_start_of_record(&line) {
                return Err(invalid_line(number, "it is not a record"));
            }
            break;
        }
        let added = serde_json::from_slice::<Record>(&line)
            .map_err(|_| "it is not a record")
            .and_then(|record| resumed.add(record));
        added.map_err(|problem| invalid_line(number, problem))?;
        valid += length as u64;
    }
    file.set_len(valid).map_err(failed)?;
    Ok(resumed)
}

/// Returns whether a line may be a record that was only partly written. Any other file is left alone.
fn is_start_of_record(line: &[u8]) -> bool {
    ["{\"import\":", "{\"started\":", "{\"finished\":"]
        .iter()
        .any(|start| {
            line.iter()
                .zip(start.as_bytes())
                .all(|(found, expected)| found == expected)
        })
}

fn invalid_line(number: u64, problem: &str) -> Error {
    Error::config(format!(
        "line {number} of the journal is invalid: {problem}; choose another file for the journal"
    ))
}
