//! The cursor file of an export: how far it is, replaced as a whole.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::ExportReport;
use crate::Error;
use crate::contacts::ListContacts;

/// What an export must have in common with the one that it continues.
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

/// What a cursor file holds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) export: Settings,
    /// The cursor after the last contact in the file.
    pub(super) cursor: Option<String>,
    /// The length of the file in bytes. What follows is left from a crash.
    pub(super) length: u64,
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
    pub(super) fn remove(&self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            removed => removed?,
        }
        sync_folder(&self.path)
    }
}

/// Makes the creation or removal of a file durable.
pub(super) fn sync_folder(file: &Path) -> io::Result<()> {
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
