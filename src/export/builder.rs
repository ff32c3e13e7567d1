use std::fmt;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use super::cursor_file::{CursorFile, Record, Settings};
use super::error::ExportError;
use super::format::Format;
use super::output::{Output, OutputWriter};
use super::parts::{Part, Parts};
use super::report::ExportReport;
use crate::Error;
use crate::client::wait_for_call;
use crate::contacts::ListContacts;

impl ListContacts {
    /// Exports all contacts after the cursor to a file, newest first: see [`Export`].
    ///
    /// Unless a [`limit`](Self::limit) is set, pages have 200 contacts. Timeout, deadline and retries apply to each
    /// request.
    ///
    /// # Example: every contact in full, as JSON lines
    ///
    /// ```
    /// # #[cfg(feature = "mock")]
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # contacts.create_batch(["ada@example.com", "bob@example.com"]).await?;
    /// # let path = std::env::temp_dir().join(format!("audience-export-{}.jsonl", std::process::id()));
    /// use audience::export::JsonLines;
    ///
    /// let report = contacts.list().export(&path, JsonLines).full().await?;
    ///
    /// assert_eq!(report.contacts(), 2);
    /// # assert!(std::fs::read_to_string(&path).unwrap().contains("topics"));
    /// # std::fs::remove_file(&path).unwrap();
    /// # std::fs::remove_file(path.with_extension("jsonl.cursor")).unwrap();
    /// # Ok(()) }
    /// # #[cfg(not(feature = "mock"))] fn main() {}
    /// ```
    pub fn export(self, path: impl AsRef<Path>, format: impl Into<Format>) -> Export {
        let path = path.as_ref().to_owned();
        Export {
            list: self,
            cursor_path: CursorFile::path_for(&path),
            path,
            format: format.into(),
            is_full: false,
            max_in_flight: None,
            resumes: false,
            on_progress: None,
            on_malformed: None,
        }
    }
}

/// An export of a list to a file, run by `.await`: see [`ListContacts::export`].
///
/// # The cursor file
///
/// Beside the file, the export keeps a cursor file. After each page it appends the contacts, syncs the file, and then
/// replaces the cursor file as a whole: the cursor, the length of the file, and the counts. An export that is
/// [resumed](Self::resume) cuts off what is after that length and continues the list after that cursor. So whenever
/// the program or the machine stops, the finished file has every contact exactly once.
///
/// Keep both files until the export has finished. The cursor file has no contacts in it. Use a file for one export at
/// a time.
///
/// A list is not a snapshot. Contacts that were created after the export began are newer than its start and not in
/// the file; run another export for them.
///
/// # Errors
///
/// [`ExportError`], with what was written until then:
///
/// - [`ErrorKind::Input`](crate::ErrorKind::Input) if the filters, or the columns of a [`Csv`](super::Csv), are invalid.
/// - [`ErrorKind::Config`](crate::ErrorKind::Config) if a file cannot be written, or if the file to continue is that of
///   another export.
/// - The error of the list, or of a retrieve call, after three failures in a row.
///
/// A malformed contact does not stop the export: see [`on_malformed`](Self::on_malformed).
#[must_use = "an export runs only when it is awaited"]
pub struct Export {
    list: ListContacts,
    path: PathBuf,
    cursor_path: PathBuf,
    format: Format,
    is_full: bool,
    max_in_flight: Option<usize>,
    resumes: bool,
    on_progress: Option<OnProgress>,
    on_malformed: Option<OnMalformed>,
}

type OnProgress = Box<dyn FnMut(&ExportReport) + Send>;
type OnMalformed = Box<dyn FnMut(&Error) + Send>;

impl Export {
    /// Retrieves each contact, so that the export has the family names, the reasons of opt-outs and the topics.
    /// Default: contacts as lists return them.
    pub fn full(mut self) -> Self {
        self.is_full = true;
        self
    }

    /// Sets how many contacts a full export retrieves at once at the most. 0 means 1. Default: 8.
    pub fn max_in_flight(mut self, contacts: usize) -> Self {
        self.max_in_flight = Some(contacts);
        self
    }

    /// Continues the file where its cursor file says that it ends. Without a cursor file, the export begins at the
    /// beginning. If the export has finished, nothing is sent, and the report is the same.
    /// Default: the export begins anew, and overwrites the file.
    ///
    /// The list, the format and the service must be the same as before.
    pub fn resume(mut self) -> Self {
        self.resumes = true;
        self
    }

    /// Sets the path of the cursor file. Default: the path of the file, with `.cursor` appended.
    pub fn cursor_file(mut self, path: impl AsRef<Path>) -> Self {
        self.cursor_path = path.as_ref().to_owned();
        self
    }

    /// Sets a function to call whenever contacts were written and recorded.
    pub fn on_progress(mut self, show: impl FnMut(&ExportReport) + Send + 'static) -> Self {
        self.on_progress = Some(Box::new(show));
        self
    }

    /// Sets a function to call for each contact that is malformed and therefore left out. [`Error::body`] has its
    /// JSON. Default: [`ExportReport::malformed`] counts them.
    pub fn on_malformed(mut self, keep: impl FnMut(&Error) + Send + 'static) -> Self {
        self.on_malformed = Some(Box::new(keep));
        self
    }

    async fn run(mut self) -> Result<ExportReport, ExportError> {
        let output = OutputWriter::default();
        let record = self.open(&output).await?;
        let mut report = record.report;
        if record.finished {
            return Ok(report);
        }
        let list = self.list.clone().after(record.cursor).large_pages();
        let mut parts = match (self.is_full, self.max_in_flight) {
            (false, _) => Parts::pages(list, self.format.clone()),
            (true, None) => Parts::full(list.full(), self.format.clone()),
            (true, Some(most)) => Parts::full(list.full().max_in_flight(most), self.format.clone()),
        };
        while let Some(part) = parts.next().await {
            let part = match part {
                Ok(part) => part,
                Err(error) if parts.has_ended() => return Err(ExportError::new(report, error)),
                Err(_) => continue,
            };
            let next = self.counted(report, &part);
            let written = output.append(part.lines, part.cursor, next).await;
            written.map_err(|error| ExportError::new(report, error))?;
            report = next;
            if let Some(show) = &mut self.on_progress {
                show(&report);
            }
        }
        let finished = output.finish().await;
        finished.map_err(|error| ExportError::new(report, error))?;
        Ok(report)
    }

    /// Begins or continues the file.
    async fn open(&mut self, output: &OutputWriter) -> Result<Record, Error> {
        self.format.check(self.is_full)?;
        let settings = Settings::new(&self.list, self.format.description(), self.is_full)?;
        let (path, header) = (self.path.clone(), self.format.header());
        let cursor_file = CursorFile::new(self.cursor_path.clone());
        let (start, resumes) = (self.list.start(), self.resumes);
        let opened = output.open(move || {
            let found = match resumes {
                true => cursor_file.read(&settings)?,
                false => None,
            };
            match found {
                Some(record) => Output::resume(&path, cursor_file, record),
                None => Output::begin(&path, cursor_file, settings, &header, start),
            }
        });
        opened.await
    }

    /// Returns the report with a part added to it, and passes on the malformed contacts of the part.
    fn counted(&mut self, report: ExportReport, part: &Part) -> ExportReport {
        if let Some(keep) = &mut self.on_malformed {
            part.malformed.iter().for_each(keep);
        }
        ExportReport {
            contacts: report.contacts + part.contacts,
            vanished: report.vanished + part.vanished,
            malformed: report.malformed + part.malformed.len() as u64,
            ..report
        }
    }
}

wait_for_call!(Export => Result<ExportReport, ExportError>);

impl IntoFuture for Export {
    type Output = Result<ExportReport, ExportError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl fmt::Debug for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Export")
            .field("path", &self.path)
            .field("format", &self.format)
            .finish_non_exhaustive()
    }
}
