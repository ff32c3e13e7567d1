use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde::de::IgnoredAny;

use super::claim::Claim;
use super::record::Record;
use super::resumed::Resumed;
use super::writer::JournalWriter;
use crate::Error;

/// A file in which an import records each batch that it has finished, so that it can go on after a crash.
///
/// The file has one JSON object on each line, and is only appended to. A record is synced to disk before
/// its rows count as finished. It contains no contact: row numbers, a fingerprint of the rows, their
/// outcomes, and the service's messages about refused rows. A message may quote an address.
///
/// An import with a journal that has records goes on where they end. It needs the same rows in the same
/// order: see [`Import::journal`](crate::import::Import::journal).
///
/// # Example: an import that can be resumed
///
/// ```
/// # #[cfg(feature = "mock")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
/// # let server = audience::mock::MockServer::start().await;
/// # let contacts = server.client().contacts();
/// # let path = std::env::temp_dir().join(format!("journal-{}", std::process::id()));
/// use audience::import::Journal;
///
/// let rows = ["ada@example.com", "bob@example.com"];
/// contacts.import(rows).journal(Journal::open(&path)?).await?;
///
/// // The same program, started again: everything is finished, so nothing is sent.
/// let journal = Journal::open(&path)?;
/// assert!(!journal.is_empty());
/// let report = contacts.import(rows).journal(journal).await?;
/// assert_eq!(report.created(), 2);
/// # assert_eq!(server.requests().len(), 1);
/// # std::fs::remove_file(path).unwrap();
/// # Ok(()) }
/// # #[cfg(not(feature = "mock"))] fn main() {}
/// ```
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    contents: Contents,
}

/// What was read from the file.
#[derive(Debug)]
struct Contents {
    resumed: Resumed,
    /// The length of the records in bytes. What follows was only partly written.
    records: u64,
    /// The length of the file.
    length: u64,
}

impl Journal {
    /// Opens a journal, or creates it if the file does not exist.
    ///
    /// A crash can leave a partly written line at the end of the file. It is ignored here, and removed when an
    /// import starts with the journal.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if the file cannot be opened or read, or if it is not
    /// a journal. A file that is not a journal is left as it is.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let failed = |error| Error::config("could not open the journal").caused_by(error);
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(&path)
            .map_err(failed)?;
        // A device such as /dev/zero could be read forever.
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(Error::config("the journal must be a regular file"));
        }
        let contents = read(&mut file)?;
        Ok(Self {
            path: path.as_ref().canonicalize().map_err(failed)?,
            file,
            contents,
        })
    }

    /// Returns whether the journal has no records: an import with it begins at the beginning.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.contents.resumed.is_empty()
    }

    /// Returns the path of the file, in its canonical form.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Starts an import with the journal.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Config` if another import uses the journal, or if it cannot be read or written.
    pub(in crate::import) async fn start(mut self) -> Result<(Resumed, JournalWriter), Error> {
        let Some(claim) = Claim::take(&self.path).await else {
            return Err(Error::config(
                "another import is using the journal; choose another file for it",
            ));
        };
        let failed = |error| Error::config("could not write the journal").caused_by(error);
        let length = self.file.metadata().map_err(failed)?.len();
        if length != self.contents.length {
            self.contents = read(&mut self.file)?;
        }
        let Contents {
            resumed,
            records,
            length,
        } = self.contents;
        if records < length {
            self.file.set_len(records).map_err(failed)?;
        }
        if records == 0 {
            sync_directory(&self.path);
        }
        let writer = JournalWriter::start(self.file, records, claim).map_err(failed)?;
        Ok((resumed, writer))
    }
}

/// Syncs the directory entry of a new file, if the system can do that.
fn sync_directory(path: &Path) {
    let directory = path.parent().and_then(|parent| File::open(parent).ok());
    // Without it, a power failure may lose a new journal as a whole, never a part of it.
    let _ = directory.map(|directory| directory.sync_all());
}

/// Reads all records.
fn read(file: &mut File) -> Result<Contents, Error> {
    let failed = |error: io::Error| Error::config("could not read the journal").caused_by(error);
    let mut resumed = Resumed::default();
    let mut reader = BufReader::new(&mut *file);
    reader.seek(SeekFrom::Start(0)).map_err(failed)?;
    let (mut records, mut line) = (0, Vec::new());
    for number in 1_u64.. {
        line.clear();
        let length = reader.read_until(b'\n', &mut line).map_err(failed)? as u64;
        if line.last() != Some(&b'\n') {
            if !is_partly_written(&line, resumed.is_empty()) {
                return Err(invalid_line(number, "it is not a record"));
            }
            let length = records + length;
            return Ok(Contents {
                resumed,
                records,
                length,
            });
        }
        let added = serde_json::from_slice::<Record>(&line)
            .map_err(|_| "it is not a record")
            .and_then(|record| resumed.add(record));
        added.map_err(|problem| invalid_line(number, problem))?;
        records += length;
    }
    Err(invalid_line(u64::MAX, "there are too many lines"))
}

/// Returns whether the last line of a file may be a record that was only partly written. Any other file is
/// left alone.
fn is_partly_written(line: &[u8], is_first: bool) -> bool {
    // After a power failure, a file system may show zeros for what was not synced.
    let zeros = line.iter().rev().take_while(|byte| **byte == 0).count();
    let line = &line[..line.len() - zeros];
    let starts: &[&str] = match is_first {
        true if zeros > 0 => return false,
        true => &["{\"import\":{\"version\":"],
        false => &["{\"started\":", "{\"not_applied\":", "{\"finished\":"],
    };
    let is_start = starts.iter().any(|start| {
        let pairs = line.iter().zip(start.as_bytes());
        pairs.into_iter().all(|(found, expected)| found == expected)
    });
    is_start
        && match serde_json::from_slice::<IgnoredAny>(line) {
            Ok(_) => serde_json::from_slice::<Record>(line).is_ok(),
            Err(error) => error.is_eof(),
        }
}

fn invalid_line(number: u64, problem: &str) -> Error {
    Error::config(format!(
        "line {number} of the journal is invalid: {problem}; choose another file for the journal"
    ))
}
