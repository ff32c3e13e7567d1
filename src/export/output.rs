//! The file that an export writes.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fs, io};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::builder::ExportReport;
use crate::Error;
use crate::contacts::ListContacts;

/// The file, and the record of how far it is.
#[derive(Debug)]
pub(super) struct Output {
    file: File,
    cursor_file: CursorFile,
    record: Record,
}

impl Output {
    /// Begins a file, with this header and the cursor that the list starts after.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Config` if a file cannot be written.
    pub(super) fn begin(
        path: &Path,
        cursor_file: CursorFile,
        settings: Settings,
        header: &str,
        start: Option<String>,
    ) -> Result<Self, Error> {
        let record = Record {
            export: settings,
            cursor: start,
            length: header.len() as u64,
            finished: false,
            report: ExportReport::default(),
        };
        check_regular(path)?;
        // The old record is removed first: it must not describe the new file.
        let begun = cursor_file.remove().and_then(|()| {
            let mut file = File::create(path)?;
            file.write_all(header.as_bytes())?;
            file.sync_all()?;
            sync_folder(path)?;
            cursor_file.write(&record)?;
            Ok(file)
        });
        Ok(Self {
            file: begun.map_err(unwritable)?,
            cursor_file,
            record,
        })
    }

    /// Continues a file, without what a crash has left after its recorded end.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Config` if the file is missing, shorter than recorded, or cannot be written.
    pub(super) fn resume(
        path: &Path,
        cursor_file: CursorFile,
        mut record: Record,
    ) -> Result<Self, Error> {
        check_regular(path)?;
        record.report.resumed = record.report.contacts;
        let opened = OpenOptions::new().write(true).open(path);
        let mut file = opened.map_err(|error| {
            let message =
                "could not open the file of the export; to begin anew, export without `resume`";
            Error::config(message).caused_by(error)
        })?;
        let length = file.metadata().map_err(unwritable)?.len();
        if length < record.length {
            return Err(Error::config(
                "the file is shorter than its cursor file says; to begin anew, export without `resume`",
            ));
        }
        if !record.finished {
            file.set_len(record.length).map_err(unwritable)?;
        }
        file.seek(SeekFrom::Start(record.length))
            .map_err(unwritable)?;
        Ok(Self {
            file,
            cursor_file,
            record,
        })
    }

    /// Appends lines, and records the cursor after them. The lines are on disk before the record is.
    fn append(
        &mut self,
        lines: &str,
        cursor: Option<String>,
        report: ExportReport,
    ) -> io::Result<()> {
        self.file.write_all(lines.as_bytes())?;
        self.file.sync_data()?;
        self.record.length += lines.len() as u64;
        self.record.cursor = cursor;
        self.record.report = report;
        self.cursor_file.write(&self.record)
    }

    /// Records that the list has ended.
    fn finish(&mut self) -> io::Result<()> {
        self.record.finished = true;
        self.cursor_file.write(&self.record)
    }
}

/// Refuses a path that exists and is not a file. Opening a named pipe could wait forever.
fn check_regular(path: &Path) -> Result<(), Error> {
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => Err(Error::config(
            "the path of the export is not a regular file; choose another path",
        )),
        _ => Ok(()),
    }
}

fn unwritable(error: io::Error) -> Error {
    Error::config("could not write the export").caused_by(error)
}

/// An output that is written on the threads for blocking work.
///
/// Dropping it waits until a write in progress has ended. So nothing writes to the file any more when a canceled
/// export is resumed.
#[derive(Default)]
pub(super) struct OutputWriter(Arc<Mutex<Slot>>);

#[derive(Default)]
struct Slot {
    output: Option<Output>,
    is_closed: bool,
}

impl OutputWriter {
    /// Opens the output, and returns its record.
    pub(super) async fn open(
        &self,
        open: impl FnOnce() -> Result<Output, Error> + Send + 'static,
    ) -> Result<Record, Error> {
        let opened =
            self.run(|slot| open().map(|output| slot.output.insert(output).record.clone()));
        opened.await
    }

    /// Appends lines, and records the cursor after them.
    pub(super) async fn append(
        &self,
        lines: String,
        cursor: Option<String>,
        report: ExportReport,
    ) -> Result<(), Error> {
        self.write(move |output| output.append(&lines, cursor, report))
            .await
    }

    /// Records that the list has ended.
    pub(super) async fn finish(&self) -> Result<(), Error> {
        self.write(Output::finish).await
    }

    async fn write(
        &self,
        work: impl FnOnce(&mut Output) -> io::Result<()> + Send + 'static,
    ) -> Result<(), Error> {
        self.run(|slot| match &mut slot.output {
            Some(output) => work(output).map_err(unwritable),
            None => Ok(()),
        })
        .await
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Slot) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let slot = Arc::clone(&self.0);
        let task = tokio::task::spawn_blocking(move || {
            let mut slot = lock(&slot);
            match slot.is_closed {
                true => Err(unwritable(io::Error::other("the export was canceled"))),
                false => work(&mut slot),
            }
        });
        task.await
            .unwrap_or_else(|error| Err(unwritable(error.into())))
    }
}

impl Drop for OutputWriter {
    fn drop(&mut self) {
        lock(&self.0).is_closed = true;
    }
}

fn lock(slot: &Mutex<Slot>) -> MutexGuard<'_, Slot> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The settings that an export must share with the one that it continues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Settings {
    service: String,
    /// A hash of the filters, which may contain an address.
    list: u64,
    format: String,
    full: bool,
}

impl Settings {
    /// # Errors
    ///
    /// `ErrorKind::Input` if the filters of the list cannot be sent.
    pub(super) fn new(list: &ListContacts, format: String, full: bool) -> Result<Self, Error> {
        let filters = (list.filters()?, list.start());
        let digest = Sha256::digest(format!("{filters:?}"));
        let mut first = [0; 8];
        first.copy_from_slice(&digest[..8]);
        Ok(Self {
            service: list.base_url(),
            list: u64::from_le_bytes(first),
            format,
            full,
        })
    }

    /// Says what an export with these settings would change. `None` if it can continue the other.
    fn mismatch(&self, other: &Self) -> Option<&'static str> {
        match () {
            () if self.service != other.service => Some("another service"),
            () if self.list != other.list => Some("another list"),
            () if self.format != other.format => Some("another format or other columns"),
            () if self.full != other.full => Some("contacts in the other form, short or full"),
            () => None,
        }
    }
}

/// The contents of a cursor file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) export: Settings,
    /// The cursor after the last contact in the file.
    pub(super) cursor: Option<String>,
    /// The length of the file in bytes. What follows is left from a crash.
    length: u64,
    pub(super) finished: bool,
    #[serde(flatten)]
    pub(super) report: ExportReport,
}

/// The cursor file. It contains no contact: a cursor, a length and counts.
#[derive(Clone, Debug)]
pub(super) struct CursorFile {
    path: PathBuf,
}

impl CursorFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Returns the path of the cursor file for this output: `.cursor` is appended.
    pub(super) fn path_for(output: &Path) -> PathBuf {
        with_suffix(output, ".cursor")
    }

    /// Reads the record. `None` if there is no file.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Config` if the file cannot be read, is not a cursor file or belongs to another export.
    pub(super) fn read(&self, settings: &Settings) -> Result<Option<Record>, Error> {
        let json = match fs::read(&self.path) {
            Ok(json) => json,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(Error::config("could not read the cursor file").caused_by(error));
            }
        };
        let record: Record = serde_json::from_slice(&json).map_err(|error| {
            Error::config(
                "the cursor file is not one of an export; choose another path for it, or export without `resume`",
            )
            .caused_by(error)
        })?;
        match record.export.mismatch(settings) {
            None => Ok(Some(record)),
            Some(other) => Err(Error::config(format!(
                "the file cannot be continued: it was exported from {other}; export to another file, or without `resume`"
            ))),
        }
    }

    /// Replaces the record. After a crash at any moment, the file holds either the old record or the new one.
    pub(super) fn write(&self, record: &Record) -> io::Result<()> {
        let temporary = with_suffix(&self.path, ".new");
        let mut file = File::create(&temporary)?;
        file.write_all(&serde_json::to_vec(record)?)?;
        file.sync_data()?;
        fs::rename(temporary, &self.path)
    }

    /// Removes the file, if there is one. When this returns, a crash does not bring it back.
    fn remove(&self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            removed => removed?,
        }
        sync_folder(&self.path)
    }
}

/// Makes the creation or removal of a file durable.
fn sync_folder(file: &Path) -> io::Result<()> {
    // Only Unix lets a program open a folder.
    if cfg!(unix) {
        let parent = file.parent().filter(|path| !path.as_os_str().is_empty());
        return File::open(parent.unwrap_or(Path::new(".")))?.sync_all();
    }
    Ok(())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut text = OsString::from(path);
    text.push(suffix);
    text.into()
}
