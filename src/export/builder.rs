use std::error::Error as StdError;
use std::fmt;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use futures_core::stream::FusedStream;
use serde::{Deserialize, Serialize};

use super::columns::next;
use super::csv::Format;
use super::output::{CursorFile, Output, OutputWriter, Record, Settings};
use crate::Error;
use crate::client::wait_for_call;
use crate::contacts::{FullContactStream, ListContacts, PageStream};

impl ListContacts {
    /// Exports all contacts after the cursor to a file, newest first: see [`Export`].
    ///
    /// Unless a [`limit`](Self::limit) is set, pages have 200 contacts. Timeout, deadline and retries apply to each
    /// request.
    ///
    /// # Example: every contact in full, as JSON lines
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
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
    /// ```
    pub fn export(self, path: impl AsRef<Path>, format: impl Into<Format>) -> Export {
        let path = path.as_ref().to_owned();
        Export {
            list: self,
            cursor_path: CursorFile::path_for(&path),
            path,
            format: format.into(),
            is_full: false,
            concurrency: None,
            resumes: false,
            on_progress: None,
            on_malformed: None,
        }
    }
}

/// An export of a list to a file, run by `.await`, or by `.wait()` with the feature `blocking`: see [`ListContacts::export`].
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
#[must_use = "an export runs only when it is awaited or waited for"]
pub struct Export {
    list: ListContacts,
    path: PathBuf,
    cursor_path: PathBuf,
    format: Format,
    is_full: bool,
    concurrency: Option<usize>,
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

    /// Sets how many contacts a full export retrieves simultaneously at most; 0 counts as 1. Default: 8.
    pub fn concurrency(mut self, contacts: usize) -> Self {
        self.concurrency = Some(contacts);
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
        let record = self.open(&output).await.map_err(ExportError::not_started)?;
        let mut report = record.report;
        if record.finished {
            return Ok(report);
        }
        let mut list = self.list.clone().large_pages();
        if let Some(cursor) = record.cursor {
            list = list.after(cursor);
        }
        let mut parts = match (self.is_full, self.concurrency) {
            (false, _) => Parts::pages(list, self.format.clone()),
            (true, None) => Parts::full(list.full(), self.format.clone()),
            (true, Some(most)) => Parts::full(list.full().concurrency(most), self.format.clone()),
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

/// How far an export is, or what it has written.
///
/// Of a resumed export, it counts the contacts of the earlier runs too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ExportReport {
    pub(super) contacts: u64,
    pub(super) vanished: u64,
    pub(super) malformed: u64,
    #[serde(skip)]
    pub(super) resumed: u64,
}

impl ExportReport {
    /// Returns how many contacts are in the file.
    #[must_use]
    pub fn contacts(&self) -> u64 {
        self.contacts
    }

    /// Returns how many of them were there when this run began.
    #[must_use]
    pub fn resumed(&self) -> u64 {
        self.resumed
    }

    /// Returns how many contacts were left out because they no longer existed when they were retrieved: see
    /// [`FullContactStream`](crate::contacts::FullContactStream#contacts-that-vanish).
    #[must_use]
    pub fn vanished(&self) -> u64 {
        self.vanished
    }

    /// Returns how many contacts were left out because they are malformed: see
    /// [`Export::on_malformed`](super::Export::on_malformed).
    #[must_use]
    pub fn malformed(&self) -> u64 {
        self.malformed
    }

    /// Returns whether every contact that exists was written: none is malformed.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.malformed == 0
    }
}

/// An export that stopped before its end, with what it has written.
///
/// The file and the cursor file are those of an export in progress: [`resume`](super::Export::resume) continues it.
/// It does not convert to an [`Error`], which has no place for the report: return it as it is, or as a
/// `Box<dyn std::error::Error>`.
pub struct ExportError(Box<Inner>);

struct Inner {
    report: ExportReport,
    error: Error,
}

impl ExportError {
    fn new(report: ExportReport, error: Error) -> Self {
        Self(Box::new(Inner { report, error }))
    }

    /// An export that could not begin.
    fn not_started(error: Error) -> Self {
        Self::new(ExportReport::default(), error)
    }

    /// Returns what the export had written when it stopped.
    #[must_use]
    pub fn report(&self) -> &ExportReport {
        &self.0.report
    }

    /// Returns why it stopped.
    #[must_use]
    pub fn error(&self) -> &Error {
        &self.0.error
    }
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the export stopped after {} contacts",
            self.report().contacts()
        )
    }
}

impl fmt::Debug for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExportError")
            .field("report", self.report())
            .field("error", self.error())
            .finish()
    }
}

impl StdError for ExportError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(self.error())
    }
}

/// How many full contacts are in a part at the most. A crash loses the work on one part.
const FULL_CONTACTS: u64 = 50;

/// The lines of some contacts that follow each other.
#[derive(Debug, Default)]
struct Part {
    lines: String,
    /// The cursor after the contacts.
    cursor: Option<String>,
    contacts: u64,
    vanished: u64,
    /// The errors of malformed contacts.
    malformed: Vec<Error>,
}

/// The parts of a list.
struct Parts {
    source: Source,
    format: Format,
    /// Why the part before ended early.
    failed: Option<Error>,
}

enum Source {
    Pages(PageStream),
    Full(Box<FullContactStream>),
}

impl Parts {
    /// Reads a list page by page.
    fn pages(list: ListContacts, format: Format) -> Self {
        Self {
            source: Source::Pages(list.pages().prefetch()),
            format,
            failed: None,
        }
    }

    /// Reads contacts in full.
    fn full(contacts: FullContactStream, format: Format) -> Self {
        Self {
            source: Source::Full(Box::new(contacts)),
            format,
            failed: None,
        }
    }

    /// Returns the next part, or `None` at the end of the list. After an error, the next call tries again,
    /// unless the list [has ended](Self::has_ended).
    async fn next(&mut self) -> Option<Result<Part, Error>> {
        match &mut self.source {
            Source::Pages(pages) => next_page(pages, &self.format).await,
            Source::Full(stream) => match self.failed.take() {
                Some(error) => Some(Err(error)),
                None => next_full(stream, &self.format, &mut self.failed).await,
            },
        }
    }

    /// Returns whether there are no more parts.
    fn has_ended(&self) -> bool {
        match &self.source {
            Source::Pages(pages) => pages.is_terminated(),
            Source::Full(stream) => stream.is_terminated() && self.failed.is_none(),
        }
    }
}

async fn next_page(pages: &mut PageStream, format: &Format) -> Option<Result<Part, Error>> {
    let page = match next(pages).await? {
        Ok(page) => page,
        Err(error) => return Some(Err(error)),
    };
    Some(Ok(Part {
        lines: page
            .data
            .iter()
            .map(|contact| format.line(contact))
            .collect(),
        cursor: pages.cursor().map(str::to_owned),
        contacts: page.data.len() as u64,
        vanished: 0,
        malformed: page.malformed().map(|(_, error)| error).collect(),
    }))
}

async fn next_full(
    stream: &mut FullContactStream,
    format: &Format,
    failed: &mut Option<Error>,
) -> Option<Result<Part, Error>> {
    let mut part = Part::default();
    let vanished = stream.vanished();
    while part.contacts < FULL_CONTACTS {
        let malformed = stream.malformed();
        match next(stream).await {
            Some(Ok(contact)) => {
                part.lines.push_str(&format.line(&contact));
                part.contacts += 1;
            }
            Some(Err(error)) if stream.malformed() > malformed => part.malformed.push(error),
            Some(Err(error)) => {
                *failed = Some(error);
                break;
            }
            None => break,
        }
    }
    part.cursor = stream.cursor().map(str::to_owned);
    part.vanished = stream.vanished() - vanished;
    let is_empty = part.contacts == 0 && part.vanished == 0 && part.malformed.is_empty();
    match is_empty {
        false => Some(Ok(part)),
        true => failed.take().map(Err),
    }
}
