use std::error::Error as StdError;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{ExitCode, Termination};
use std::sync::{Arc, Mutex};

use futures_core::stream::FusedStream;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::csv::{Format, next};
use crate::Error;
use crate::any_error::REFUSED;
use crate::client::wait_for_call;
use crate::contacts::{FullContactStream, ListContacts, PageStream};
use crate::import::{real_path, sync_directory, try_lock, unlock, with_suffix};
use crate::secret::for_owner_only;
use crate::signals::{StopSignal, unless_stopped};
use crate::sync::lock;

impl ListContacts {
    /// Exports all contacts after the cursor to a file, newest first: see [`Export`].
    ///
    /// Unless a [`limit`](Self::limit) is set, pages have 200 contacts. Timeout, deadline and retries apply to each
    /// request. Unless the list or the client has settings of its own, an export is as patient as an
    /// [import](crate::import::Import::retry): it survives an outage of minutes.
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
            at_least: 0,
            stop_signal: None,
            on_progress: None,
            on_malformed: None,
        }
    }
}

/// An export of a list to a file, created by [`ListContacts::export`].
///
/// It is run by `.await`, or by `.wait()` with the feature `blocking`.
///
/// # The files
///
/// The export writes to a part file, whose name is that of the file with `.part` appended. At its end, it renames the
/// part file to the file. So whoever reads the file finds either all contacts or the previous export. An existing file
/// with the name of the part file is overwritten only if an export has made it, as its start or the cursor file shows.
///
/// The cursor file holds the cursor, the length of the part file, and the counts, but no contacts. After each page, the
/// export appends the contacts to the part file, syncs it, and then replaces the cursor file. A [resumed](Self::resume)
/// export truncates the part file to that length and continues the list after that cursor. So the finished file has
/// every contact of the pages exactly once, even if the program or the machine stops at any moment. At its end, the
/// export removes the cursor file.
///
/// Only the owner can read a new file (on Unix). An existing file is replaced by a file with the same mode, but with
/// the group of a new file.
///
/// Only one export at a time can write to a file. It holds a lock on the part file while it runs, and another export to
/// the same file fails. On a file system without locks, an export fails if another one has changed its part file.
///
/// A list is not a snapshot. Contacts that are created after the export began are not in the file, also if the export
/// is resumed later; run another export for them.
///
/// # Errors
///
/// [`ExportError`], with the report up to the stop and one of these errors:
///
/// - [`ErrorKind::Input`](crate::ErrorKind::Input) if the filters or the columns of a [`Csv`](super::Csv) are invalid.
/// - [`ErrorKind::Config`](crate::ErrorKind::Config) if a file cannot be read or written, if the file to resume belongs
///   to another export, if the service refuses its cursor, if another export is writing to the file, or if the list has
///   too few contacts ([`at_least`](Self::at_least)).
/// - [`ErrorKind::Stopped`](crate::ErrorKind::Stopped) if [`stop_when`](Self::stop_when) ended the export.
/// - [`ErrorKind::Pagination`](crate::ErrorKind::Pagination) if the service repeats a page or a cursor. The part file may
///   have contacts twice then, so it is emptied and the cursor file removed: also a resumed export begins anew.
/// - The error of the list or of a retrieve call, if it fails three times in a row. Each of the three is retried for
///   minutes (see [`ListContacts::export`]).
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
    at_least: u64,
    stop_signal: Option<StopSignal>,
    on_progress: Option<OnProgress>,
    on_malformed: Option<OnMalformed>,
}

type OnProgress = Box<dyn FnMut(&ExportReport) + Send>;
type OnMalformed = Box<dyn FnMut(&Error) + Send>;

impl Export {
    /// Retrieves each contact, so that the export has the family names, the reasons of opt-outs and the topics.
    /// Default: contacts as lists return them.
    ///
    /// A contact that the service returns without `topics` counts as malformed, because its opt-outs are not known.
    ///
    /// # Example: the answers to a topic
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # server.topic("news", true);
    /// # contacts.create("ada@example.com").await?;
    /// # let path = std::env::temp_dir().join(format!("audience-full-{}", std::process::id()));
    /// use audience::export::Csv;
    ///
    /// let report = contacts.list().export(&path, Csv::new(["email", "topic:news"])).full().await?;
    ///
    /// assert!(report.is_complete());
    /// assert_eq!(std::fs::read_to_string(&path)?, "email,topic:news\nada@example.com,true\n");
    /// # std::fs::remove_file(path)?;
    /// # Ok(()) }
    /// ```
    pub fn full(mut self) -> Self {
        self.is_full = true;
        self
    }

    /// Sets how many contacts a full export retrieves simultaneously at most; 0 counts as 1. Default: 8.
    ///
    /// # Example: leave room for other callers of the service
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # contacts.create_batch(["ada@example.com", "bob@example.com"]).await?;
    /// # let path = std::env::temp_dir().join(format!("audience-two-{}", std::process::id()));
    /// use audience::export::JsonLines;
    ///
    /// let report = contacts.list().export(&path, JsonLines).full().concurrency(2).await?;
    ///
    /// assert_eq!(report.contacts(), 2);
    /// # std::fs::remove_file(path)?;
    /// # Ok(()) }
    /// ```
    pub fn concurrency(mut self, contacts: usize) -> Self {
        self.concurrency = Some(contacts);
        self
    }

    /// Sets how many contacts the export must have. Default: 0.
    ///
    /// If it has fewer, because the list is filtered, the key is that of another audience, or a gateway has sent an empty
    /// page, it ends with an error, and an earlier file stays as it is.
    ///
    /// # Example: an empty list does not replace the file of yesterday
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # let path = std::env::temp_dir().join(format!("audience-at-least-{}", std::process::id()));
    /// # std::fs::write(&path, "yesterday")?;
    /// use audience::export::JsonLines;
    ///
    /// let error = contacts.list().export(&path, JsonLines).at_least(1).await.unwrap_err();
    ///
    /// assert_eq!(error.report().contacts(), 0);
    /// assert_eq!(std::fs::read_to_string(&path)?, "yesterday");
    /// # std::fs::remove_file(path)?;
    /// # Ok(()) }
    /// ```
    pub fn at_least(mut self, contacts: u64) -> Self {
        self.at_least = contacts;
        self
    }

    /// Resumes an interrupted export from its cursor file. Default: the export starts from the beginning.
    ///
    /// If there is no cursor file or no part file, as after a finished export, it starts from the beginning, too. To
    /// resume, the path, the list, the format, the service and the audience of the key must be the same as before; the
    /// export cannot notice the key of another audience. With
    /// [all columns](super::Csv::all_columns), the file keeps those with which it was begun. If the last contact in the
    /// file was deleted since, the service may refuse the cursor. Then start the export without `resume`.
    ///
    /// A resumed export does not update the contacts that are already in the file. So do not resume an export of an
    /// earlier day: a contact who has opted out since then would be in the file as subscribed. A job that runs every
    /// night should start a new export.
    ///
    /// # Example: continue after an outage
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # contacts.create_batch(["ada@example.com", "bob@example.com", "eve@example.com"]).await?;
    /// # let path = std::env::temp_dir().join(format!("audience-outage-{}", std::process::id()));
    /// # server.fault(audience::mock::Fault::status(500).after(1));
    /// use audience::RetryPolicy;
    /// use audience::export::JsonLines;
    ///
    /// let list = contacts.list().limit(1).retry(RetryPolicy::none());
    /// let export = || list.clone().export(&path, JsonLines).resume();
    /// let stopped = export().await.unwrap_err();
    /// assert_eq!(stopped.report().contacts(), 1);
    /// # server.clear_faults();
    ///
    /// // Later, for example when the program is started again:
    /// let report = export().await?;
    /// assert_eq!((report.contacts(), report.resumed()), (3, 1));
    /// # std::fs::remove_file(path)?;
    /// # Ok(()) }
    /// ```
    pub fn resume(mut self) -> Self {
        self.resumes = true;
        self
    }

    /// Sets the path of the cursor file. Default: the path of the file, with `.cursor` appended.
    ///
    /// It must not be the file of the export or its part file. A file that is neither a cursor file nor empty is not
    /// replaced: then the export fails. The same is true for this path with `.new` appended, to which each cursor is
    /// written first.
    ///
    /// # Example: a file that other programs pick up from its folder
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # let path = std::env::temp_dir().join(format!("audience-picked-{}", std::process::id()));
    /// use audience::export::JsonLines;
    ///
    /// let cursor = std::env::temp_dir().join(format!("audience-cursor-{}", std::process::id()));
    /// let report = contacts.list().export(&path, JsonLines).cursor_file(&cursor).await?;
    ///
    /// assert!(report.is_complete());
    /// assert!(!cursor.exists()); // it is there only until the export has finished
    /// # std::fs::remove_file(path)?;
    /// # Ok(()) }
    /// ```
    pub fn cursor_file(mut self, path: impl AsRef<Path>) -> Self {
        self.cursor_path = path.as_ref().to_owned();
        self
    }

    /// Stops the export when this future is ready, for example after Ctrl-C. Default: the export runs to its end.
    ///
    /// The requests in flight are canceled, and the export ends with an [`ExportError`]. The part file and the cursor
    /// file stay, so that a [resumed](Self::resume) export can continue. A previous export in the file stays unchanged.
    ///
    /// # Example: stop when another part of the program says so
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # let path = std::env::temp_dir().join(format!("audience-stop-{}", std::process::id()));
    /// use audience::ErrorKind;
    /// use audience::export::JsonLines;
    ///
    /// let (stop, asked) = tokio::sync::oneshot::channel();
    /// stop.send(()).unwrap(); // for example in a handler of SIGTERM
    ///
    /// let export = contacts.list().export(&path, JsonLines).resume();
    /// let stopped = export.stop_when(async { asked.await.unwrap_or(()) }).await.unwrap_err();
    /// assert_eq!(stopped.error().kind(), ErrorKind::Stopped);
    ///
    /// let report = contacts.list().export(&path, JsonLines).resume().await?;
    /// assert!(report.is_complete());
    /// # std::fs::remove_file(path)?;
    /// # Ok(()) }
    /// ```
    pub fn stop_when(mut self, signal: impl Future<Output = ()> + Send + 'static) -> Self {
        self.stop_signal = Some(Box::pin(signal));
        self
    }

    /// Sets a function to call after each part of the list was written and recorded. Default: none.
    ///
    /// # Example: a line for each page
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # contacts.create_batch(["ada@example.com", "bob@example.com"]).await?;
    /// # let path = std::env::temp_dir().join(format!("audience-progress-{}", std::process::id()));
    /// use audience::export::JsonLines;
    ///
    /// let list = contacts.list().limit(1);
    /// let export = list.export(&path, JsonLines);
    /// export.on_progress(|report| println!("{} contacts", report.contacts())).await?;
    /// # std::fs::remove_file(path)?;
    /// # Ok(()) }
    /// ```
    pub fn on_progress(mut self, show: impl FnMut(&ExportReport) + Send + 'static) -> Self {
        self.on_progress = Some(Box::new(show));
        self
    }

    /// Sets a function to call for each malformed contact, which is left out of the file. [`Error::body`] returns its
    /// JSON. Default: malformed contacts are only [counted](ExportReport::malformed).
    ///
    /// # Example: keep the JSON of contacts that cannot be read
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # server.seed_contact(audience::mock::SeedContact::new("ada@example.com").id("c_1"));
    /// # server.fault(audience::mock::Fault::wrong_body(r#"{"data": [{"id": "c_1"}], "next": ""}"#).times(1));
    /// # let path = std::env::temp_dir().join(format!("audience-malformed-{}", std::process::id()));
    /// use audience::export::JsonLines;
    ///
    /// let export = contacts.list().export(&path, JsonLines);
    /// let export = export.on_malformed(|error| {
    ///     let json = String::from_utf8_lossy(error.body().unwrap_or_default());
    ///     eprintln!("{error}: {json}");
    /// });
    /// let report = export.await?;
    ///
    /// assert_eq!(report.malformed(), 1);
    /// assert!(!report.is_complete());
    /// # std::fs::remove_file(path)?;
    /// # Ok(()) }
    /// ```
    pub fn on_malformed(mut self, keep: impl FnMut(&Error) + Send + 'static) -> Self {
        self.on_malformed = Some(Box::new(keep));
        self
    }

    async fn run(mut self) -> Result<ExportReport, ExportError> {
        let output = OutputWriter::default();
        let mut stop_signal = self.stop_signal.take();
        let found = unless_stopped(&mut stop_signal, self.find_columns(&output)).await;
        match found {
            Some(found) => found.map_err(ExportError::not_started)?,
            None => return Err(stopped(ExportReport::default())),
        }
        let record = self.open(&output).await.map_err(ExportError::not_started)?;
        self.format = self.format.with_found_columns(record.columns.as_deref());
        let mut report = record.report;
        // Fewer requests for the whole list, unless the caller has set the length of a page.
        let mut list = self.list.clone().patient().large_pages();
        // Until the first part: whether the service must accept a cursor that an earlier run recorded.
        let mut is_continuing = record.cursor != self.list.start();
        if let Some(cursor) = record.cursor {
            list = list.after(cursor);
        }
        let mut parts = match (self.is_full, self.concurrency) {
            (false, _) => Parts::pages(list, self.format.clone()),
            (true, None) => Parts::full(list.full(), self.format.clone()),
            (true, Some(most)) => Parts::full(list.full().concurrency(most), self.format.clone()),
        };
        loop {
            let Some(next) = unless_stopped(&mut stop_signal, parts.next()).await else {
                return Err(stopped(report));
            };
            let Some(part) = next else {
                break;
            };
            let part = match part {
                Ok(part) => part,
                Err(error) if is_continuing && parts.has_ended() && is_refused_page(&error) => {
                    return Err(ExportError::new(report, refused_cursor(error)));
                }
                // The list itself ends after three failures in a row. Until then, the next call retries.
                Err(error) if parts.has_ended() => {
                    // Earlier pages may have been repetitions, too, and their contacts are in the file.
                    let forgotten = match error.kind() {
                        crate::ErrorKind::Pagination => output.forget().await,
                        _ => Ok(()),
                    };
                    let error = forgotten.err().unwrap_or(error);
                    return Err(ExportError::new(report, error));
                }
                Err(_) => continue,
            };
            is_continuing = false;
            // Counted before the write, because the record on disk contains the report.
            let next = self.counted(report, &part);
            let written = output.append(part.lines, part.cursor, next).await;
            written.map_err(|error| ExportError::new(report, error))?;
            report = next;
            if let Some(show) = &mut self.on_progress {
                show(&report);
            }
        }
        if report.contacts < self.at_least {
            let (found, least) = (report.contacts, self.at_least);
            let error = Error::config(format!(
                "the list has {found} contacts and not the {least} that the export must have, so the earlier file stays as it is; check the key and the filters"
            ));
            return Err(ExportError::new(report, error));
        }
        let finished = output.finish().await;
        finished.map_err(|error| ExportError::new(report, error))?;
        Ok(report)
    }

    /// Finds the columns, unless the file to continue has some.
    async fn find_columns(&mut self, output: &OutputWriter) -> Result<(), Error> {
        if !self.format.needs_columns() {
            return Ok(());
        }
        if self.resumes {
            let cursor_file = CursorFile::new(self.cursor_path.clone());
            let part = part_of(&self.path);
            let has_columns = move |_: &mut Slot| Ok(is_begun(&part) && cursor_file.has_columns());
            if output.run(has_columns).await? {
                return Ok(());
            }
        }
        let format = self.format.clone();
        let found = format.find_columns(self.list.clone(), self.is_full);
        self.format = found.await?;
        Ok(())
    }

    /// Begins or continues the file.
    async fn open(&mut self, output: &OutputWriter) -> Result<Record, Error> {
        // Before the file is opened: settings that are invalid must not truncate an earlier export.
        self.format.check(self.is_full)?;
        let (path, format) = (self.path.clone(), self.format.clone());
        let settings = Settings::new(&self.list, &path, format.description(), self.is_full)?;
        let part = part_of(&path);
        let cursor_file = CursorFile::new(self.cursor_path.clone());
        let (start, resumes) = (self.list.start(), self.resumes);
        let opened = output.open(move || {
            let find = || match resumes {
                true => cursor_file.read(&settings, &format),
                false => Ok(None),
            };
            check_regular(&path)?;
            // A record that does not fit is an error before a file is created.
            find()?;
            let paths = Paths { part, path };
            cursor_file.check(&paths)?;
            let file = open_locked(&paths.part)?;
            let is_begun = file.metadata().map_err(unwritable)?.len() > 0;
            // Again: another export may have written to the file until it was locked.
            match find()?.filter(|_| is_begun) {
                Some(record) => Output::resume(file, paths, cursor_file, record),
                None if format.needs_columns() => Err(Error::config(
                    "another program has changed the files of the export meanwhile; run it again",
                )
                .retryable()),
                None => {
                    check_part(&file, &cursor_file, &settings, &format)?;
                    Output::begin(file, paths, cursor_file, settings, &format, start)
                }
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

/// The progress or the result of an export.
///
/// Its `Display` is the summary line: `1205 exported, 0 vanished, 0 malformed`. The counts of a resumed export include
/// its earlier runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[must_use = "some contacts may have been left out, although the export succeeded: see `is_complete`"]
#[non_exhaustive]
pub struct ExportReport {
    contacts: u64,
    vanished: u64,
    malformed: u64,
    #[serde(skip)]
    resumed: u64,
}

impl ExportReport {
    /// Returns how many contacts are in the file.
    ///
    /// # Example: log the result
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # contacts.create("ada@example.com").await?;
    /// # let path = std::env::temp_dir().join(format!("audience-log-{}", std::process::id()));
    /// use audience::export::Csv;
    ///
    /// let report = contacts.list().export(&path, Csv::new(["email"])).await?;
    ///
    /// println!("{report}"); // "1 exported, 0 vanished, 0 malformed"
    /// # assert_eq!(report.to_string(), "1 exported, 0 vanished, 0 malformed");
    /// # std::fs::remove_file(path)?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn contacts(&self) -> u64 {
        self.contacts
    }

    /// Returns how many contacts were in the file when this run began.
    ///
    /// # Example: log a resumed export
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # contacts.create("ada@example.com").await?;
    /// # let path = std::env::temp_dir().join(format!("audience-again-{}", std::process::id()));
    /// use audience::export::JsonLines;
    ///
    /// let report = contacts.list().export(&path, JsonLines).resume().await?;
    ///
    /// println!("{} contacts, {} of them before the interruption", report.contacts(), report.resumed());
    /// # assert_eq!((report.contacts(), report.resumed()), (1, 0));
    /// # std::fs::remove_file(path)?;
    /// # Ok(()) }
    /// ```
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

    /// Returns whether every existing contact was written. Otherwise, some were malformed.
    ///
    /// # Example: check an export before the source is deleted
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # contacts.create("ada@example.com").await?;
    /// # let path = std::env::temp_dir().join(format!("audience-complete-{}", std::process::id()));
    /// use audience::export::JsonLines;
    ///
    /// let report = contacts.list().export(&path, JsonLines).full().await?;
    ///
    /// assert!(report.is_complete());
    /// # std::fs::remove_file(path)?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.malformed == 0
    }
}

/// As the result of a program: 0, or 3 if malformed contacts were left out.
impl Termination for ExportReport {
    fn report(self) -> ExitCode {
        match self.malformed {
            0 => ExitCode::SUCCESS,
            _ => REFUSED.into(),
        }
    }
}

impl fmt::Display for ExportReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            contacts,
            vanished,
            malformed,
            ..
        } = self;
        write!(
            f,
            "{contacts} exported, {vanished} vanished, {malformed} malformed"
        )
    }
}

/// An export that stopped before its end, with its report and the error that stopped it.
///
/// The part file and the cursor file stay, so that an export with [`resume`](super::Export::resume) can continue, unless the
/// service repeated a page. If the export stopped before it began, for example because a key was refused while it searched
/// for columns, these are the files of the export before it, if that was interrupted.
///
/// `Display` prints the count and then the error, and `{:#}` its causes, too. So `source()` returns the cause of that
/// error, not the error itself: [`error`](Self::error) does. It does not convert to an [`Error`], because an `Error`
/// cannot hold the report. Return it unchanged, or as a `Box<dyn std::error::Error>`.
pub struct ExportError(Box<Inner>);

struct Inner {
    report: ExportReport,
    error: Error,
}

impl ExportError {
    fn new(report: ExportReport, error: Error) -> Self {
        Self(Box::new(Inner { report, error }))
    }

    fn not_started(error: Error) -> Self {
        Self::new(ExportReport::default(), error)
    }

    /// Returns the report up to the stop.
    ///
    /// # Example: a file that cannot be written
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::export::JsonLines;
    ///
    /// let folder = std::env::temp_dir();
    /// let stopped = contacts.list().export(&folder, JsonLines).await.unwrap_err();
    ///
    /// assert_eq!(stopped.report().contacts(), 0);
    /// # Ok(()) }
    /// ```
    pub fn report(&self) -> &ExportReport {
        &self.0.report
    }

    /// Returns the error that stopped the export.
    ///
    /// # Example: a column that only a full export has
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::ErrorKind;
    /// use audience::export::Csv;
    ///
    /// let export = contacts.list().export("contacts.csv", Csv::new(["email", "topic:news"]));
    /// let stopped = export.await.unwrap_err();
    ///
    /// assert_eq!(stopped.error().kind(), ErrorKind::Input);
    /// assert!(stopped.error().to_string().contains("in full"));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn error(&self) -> &Error {
        &self.0.error
    }
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the export stopped after {} contacts: ",
            self.report().contacts()
        )?;
        // With `{:#}`, the error prints its causes.
        fmt::Display::fmt(self.error(), f)
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
        // `Display` has the error itself.
        self.error().source()
    }
}

/// Returns whether an export has written to this part file.
fn is_begun(part: &Path) -> bool {
    fs::metadata(part).is_ok_and(|part| part.len() > 0)
}

fn stopped(report: ExportReport) -> ExportError {
    ExportError::new(
        report,
        Error::stopped("the export was asked to stop; resume it to continue"),
    )
}

/// Returns whether the service refused the parameters of a list request.
fn is_refused_page(error: &Error) -> bool {
    error.is_at("list") && error.is_validation_error()
}

fn refused_cursor(error: Error) -> Error {
    Error::config(
        "the service refuses the recorded cursor, whose contact may have been deleted; start the export again without resuming it",
    )
    .caused_by(error)
}

/// How many contacts a part of full contacts covers, also those that it leaves out. A crash loses the work on one part.
const FULL_CONTACTS: u64 = 50;

/// The lines of consecutive contacts.
#[derive(Debug, Default)]
struct Part {
    lines: String,
    /// The cursor after the contacts.
    cursor: Option<String>,
    contacts: u64,
    vanished: u64,
    malformed: Vec<Error>,
}

struct Parts {
    source: Source,
    format: Format,
    /// The error that ended the previous part early.
    failed: Option<Error>,
}

enum Source {
    Pages(PageStream),
    Full(Box<FullContactStream>),
}

impl Parts {
    fn pages(list: ListContacts, format: Format) -> Self {
        Self {
            source: Source::Pages(list.pages().prefetch()),
            format,
            failed: None,
        }
    }

    fn full(contacts: FullContactStream, format: Format) -> Self {
        Self {
            source: Source::Full(Box::new(contacts)),
            format,
            failed: None,
        }
    }

    /// Returns the next part, or `None` at the end of the list. After an error, the next call retries, unless the list
    /// [has ended](Self::has_ended).
    async fn next(&mut self) -> Option<Result<Part, Error>> {
        match &mut self.source {
            Source::Pages(pages) => next_page(pages, &self.format).await,
            // The contacts before the failure were handed out as a separate part, so that they are on disk.
            Source::Full(stream) => match self.failed.take() {
                Some(error) => Some(Err(error)),
                None => next_full(stream, &self.format, &mut self.failed).await,
            },
        }
    }

    /// Returns whether the list has ended with the error that [`next`](Self::next) has just returned.
    fn has_ended(&self) -> bool {
        match &self.source {
            Source::Pages(pages) => pages.is_terminated(),
            Source::Full(stream) => stream.is_terminated(),
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
    while part.contacts + part.vanished + (part.malformed.len() as u64) < FULL_CONTACTS {
        let item = next(stream).await;
        let item = item.map(|contact| contact.and_then(|contact| format.check_contact(contact)));
        part.vanished = stream.vanished() - vanished;
        match item {
            Some(Ok(contact)) => {
                part.lines.push_str(&format.line(&contact));
                part.contacts += 1;
            }
            // A malformed contact is left out. After any other error, the next call retries at the same place.
            Some(Err(error)) if error.is_malformed_contact() => part.malformed.push(error),
            Some(Err(error)) => {
                *failed = Some(error);
                break;
            }
            None => break,
        }
    }
    part.cursor = stream.cursor().map(str::to_owned);
    let is_empty = part.contacts == 0 && part.vanished == 0 && part.malformed.is_empty();
    match is_empty {
        false => Some(Ok(part)),
        // Nothing was read before the failure, so it is the result of this call.
        true => failed.take().map(Err),
    }
}

/// Returns the path of the part file. If the path of the export is a link, the part file is beside the link's target,
/// so that the link stays.
pub(crate) fn part_of(path: &Path) -> PathBuf {
    with_suffix(&real_path(path), ".part")
}

#[derive(Debug)]
struct Paths {
    /// The path of the part file.
    part: PathBuf,
    /// The path of the finished file.
    path: PathBuf,
}

/// The part file, and the record of its cursor and length.
#[derive(Debug)]
struct Output {
    file: LockedFile,
    paths: Paths,
    cursor_file: CursorFile,
    record: Record,
}

/// The part file, which is unlocked before it is closed: another export may begin immediately, also after one that was
/// refused.
#[derive(Debug)]
struct LockedFile(File);

impl Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl DerefMut for LockedFile {
    fn deref_mut(&mut self) -> &mut File {
        &mut self.0
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        unlock(&self.0);
    }
}

impl Output {
    /// Begins a file, with the header of the format and the cursor that the list starts after.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Config` if a file cannot be written.
    fn begin(
        mut file: LockedFile,
        paths: Paths,
        cursor_file: CursorFile,
        settings: Settings,
        format: &Format,
        start: Option<String>,
    ) -> Result<Self, Error> {
        let header = format.header();
        let record = Record {
            export: settings,
            columns: format.found_columns(),
            cursor: start,
            length: header.len() as u64,
            report: ExportReport::default(),
        };
        // The old lines are removed first: without their record, the next export could not tell whose they are. The
        // record is removed before new lines are written, because it must not describe them.
        let begun = file.set_len(0).and_then(|()| {
            cursor_file.remove()?;
            file.write_all(header.as_bytes())?;
            file.sync_all()?;
            cursor_file.write(&record)?;
            // Last, because the cursor file nearly always is in the same folder.
            sync_directory(&paths.part);
            Ok(())
        });
        begun.map_err(unwritable)?;
        Ok(Self {
            file,
            paths,
            cursor_file,
            record,
        })
    }

    /// Continues a file, without what a crash has left after its recorded end.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Config` if the part file is shorter than recorded, or cannot be written.
    fn resume(
        mut file: LockedFile,
        paths: Paths,
        cursor_file: CursorFile,
        mut record: Record,
    ) -> Result<Self, Error> {
        record.report.resumed = record.report.contacts;
        let length = file.metadata().map_err(unwritable)?.len();
        if length < record.length {
            return Err(Error::config(
                "the part file is shorter than its cursor file says; to start from the beginning, do not resume it",
            ));
        }
        // These lines were written, but a crash came before their record. Their page is listed again.
        file.set_len(record.length).map_err(unwritable)?;
        file.seek(SeekFrom::Start(record.length))
            .map_err(unwritable)?;
        Ok(Self {
            file,
            paths,
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
        self.check_length()?;
        self.file.write_all(lines.as_bytes())?;
        // Lines before the record: a crash in between leaves lines that the next run cuts off and writes again.
        self.file.sync_data()?;
        self.record.length += lines.len() as u64;
        self.record.cursor = cursor;
        self.record.report = report;
        self.cursor_file.write(&self.record)
    }

    /// Removes the lines, and then their record: without it, the next export could not tell whose they are.
    fn forget(&mut self) -> io::Result<()> {
        self.check_length()?;
        self.file.set_len(0)?;
        self.cursor_file.remove()
    }

    /// Renames the part file, and removes the cursor file, so that the next export starts from the beginning. A crash
    /// in between leaves a cursor file without a part file. The next export then starts from the beginning, too.
    fn finish(&mut self) -> io::Result<()> {
        self.check_length()?;
        if !is_at(&self.file, &self.paths.part) {
            return Err(changed());
        }
        let path = real_path(&self.paths.path);
        if let Ok(before) = fs::metadata(&path) {
            self.file.set_permissions(before.permissions())?;
        }
        fs::rename(&self.paths.part, &path)?;
        sync_directory(&path);
        self.cursor_file.remove()
    }

    /// Fails if the file has another length than what was written to it. Not every file system has locks, so another
    /// export may have emptied it or written to it.
    fn check_length(&self) -> io::Result<()> {
        match self.file.metadata()?.len() == self.record.length {
            true => Ok(()),
            false => Err(changed()),
        }
    }
}

fn changed() -> io::Error {
    io::Error::other(
        "another program has changed the part file; wait for its end, then start the export again",
    )
}

/// Opens the part file of an export, and locks it until it is closed.
///
/// # Errors
///
/// `ErrorKind::Config` if the file cannot be opened or is locked.
fn open_locked(path: &Path) -> Result<LockedFile, Error> {
    check_regular(path)?;
    // Do not truncate: until the file is locked, its contents may belong to another export.
    let mut options = OpenOptions::new();
    options.read(true).write(true).truncate(false).create(true);
    let file = for_owner_only(&mut options)
        .open(path)
        .map_err(unwritable)?;
    // The other export may have renamed the part file between `open` and the lock.
    match try_lock(&file) && is_at(&file, path) {
        true => Ok(LockedFile(file)),
        false => Err(Error::config(
            "another export is writing to the file, in this process or another; wait for its end, or export to another file",
        )
        .retryable()),
    }
}

/// Fails if no export has made the part file: it may be the unfinished download of another program. A crash before the
/// record was written leaves no more than the header.
fn check_part(
    mut file: &File,
    cursor_file: &CursorFile,
    settings: &Settings,
    format: &Format,
) -> Result<(), Error> {
    let start = format.start();
    let mut found = Vec::new();
    let read = file.take(start.len() as u64).read_to_end(&mut found);
    // The export writes from the start of the file.
    read.and_then(|_| file.rewind()).map_err(unwritable)?;
    let is_recorded = |record: Record| record.export.output == settings.output;
    if start.as_bytes().starts_with(&found) || cursor_file.record().is_some_and(is_recorded) {
        return Ok(());
    }
    Err(Error::config(
        "another file has the path of the part file, and no export has made it; move it away, or export to another path",
    ))
}

/// Returns whether a file still has this path.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;

    let id = |metadata: &fs::Metadata| (metadata.dev(), metadata.ino());
    match (file.metadata(), fs::metadata(path)) {
        (Ok(file), Ok(found)) => id(&file) == id(&found),
        _ => false,
    }
}

#[cfg(not(unix))]
fn is_at(_: &File, path: &Path) -> bool {
    path.exists()
}

/// Fails if the path exists and is not a regular file. Opening a named pipe could wait forever.
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
struct OutputWriter(Arc<Mutex<Slot>>);

#[derive(Default)]
struct Slot {
    output: Option<Output>,
    is_closed: bool,
}

impl OutputWriter {
    /// Opens the output, and returns its record.
    async fn open(
        &self,
        open: impl FnOnce() -> Result<Output, Error> + Send + 'static,
    ) -> Result<Record, Error> {
        let opened =
            self.run(|slot| open().map(|output| slot.output.insert(output).record.clone()));
        opened.await
    }

    /// Appends lines, and records the cursor after them.
    async fn append(
        &self,
        lines: String,
        cursor: Option<String>,
        report: ExportReport,
    ) -> Result<(), Error> {
        self.write(move |output| output.append(&lines, cursor, report))
            .await
    }

    /// Removes what was written, so that nothing continues it.
    async fn forget(&self) -> Result<(), Error> {
        self.write(Output::forget).await
    }

    /// Removes the cursor file, because the list has ended.
    async fn finish(&self) -> Result<(), Error> {
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
        // The sync of each page waits for the disk, which must not hold up the runtime.
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
        // The lock waits for a write in progress. A task that starts later finds the flag.
        let mut slot = lock(&self.0);
        slot.is_closed = true;
        // Closes the file, which unlocks it for the export that continues this one.
        slot.output = None;
    }
}

/// The settings that an export must share with the one that it continues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Settings {
    /// A hash of the path of the file: two exports may have the same cursor file. 0 in a record without it.
    #[serde(default)]
    output: u64,
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
    fn new(list: &ListContacts, path: &Path, format: String, full: bool) -> Result<Self, Error> {
        // The start belongs to it: the same filters from another cursor are another list.
        let filters = (list.filters()?, list.start());
        Ok(Self {
            output: hash(real_path(path).as_os_str().as_encoded_bytes()),
            service: list.base_url(),
            list: hash(format!("{filters:?}").as_bytes()),
            format,
            full,
        })
    }

    /// Says which setting other than the path differs; `None` if an export with these settings can continue the other
    /// export.
    fn mismatch(&self, other: &Self) -> Option<&'static str> {
        match () {
            () if self.service != other.service => Some("from another service"),
            () if self.list != other.list => Some("from another list"),
            () if self.format != other.format => Some("in another format or with other columns"),
            () if self.full != other.full => Some("in the other form, summary or full"),
            () => None,
        }
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let digest = Sha256::digest(bytes);
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    u64::from_le_bytes(first)
}

/// The contents of a cursor file.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Record {
    export: Settings,
    /// The columns of the file, if they were found: a resumed export may find others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    columns: Option<Vec<String>>,
    /// The cursor after the last contact in the file.
    cursor: Option<String>,
    /// The length of the file in bytes. Bytes after it are left from a crash.
    length: u64,
    #[serde(flatten)]
    report: ExportReport,
}

/// The cursor file. It contains no contact: a cursor, a length and counts.
#[derive(Clone, Debug)]
struct CursorFile {
    path: PathBuf,
}

impl CursorFile {
    fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Returns the path of the cursor file for this output: `.cursor` is appended.
    fn path_for(output: &Path) -> PathBuf {
        with_suffix(output, ".cursor")
    }

    /// Returns whether the columns of the file were found.
    fn has_columns(&self) -> bool {
        self.record().is_some_and(|record| record.columns.is_some())
    }

    /// Returns the record of any export, if there is one.
    fn record(&self) -> Option<Record> {
        let json = fs::read(&self.path).ok()?;
        serde_json::from_slice(&json).ok()
    }

    /// Reads the record. `None` if there is no file.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Config` if the file cannot be read, is not a cursor file or belongs to another export.
    fn read(&self, settings: &Settings, format: &Format) -> Result<Option<Record>, Error> {
        let json = match fs::read(&self.path) {
            Ok(json) => json,
            // The export was never begun, or its cursor file was removed: both start from the beginning.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(Error::config("could not read the cursor file").caused_by(error));
            }
        };
        let record: Record = serde_json::from_slice(&json).map_err(|error| {
            Error::config(
                "the cursor file does not belong to an export; choose another path for it, or do not resume the export",
            )
            .caused_by(error)
        })?;
        if record.export.output != settings.output {
            return Err(Error::config(
                "the cursor file belongs to an export to another path; choose another cursor file, or do not resume the export",
            ));
        }
        let format = format.clone().with_found_columns(record.columns.as_deref());
        let settings = Settings {
            format: format.description(),
            ..settings.clone()
        };
        match record.export.mismatch(&settings) {
            None => Ok(Some(record)),
            Some(other) => Err(Error::config(format!(
                "the file cannot be continued: it was exported {other}; export to another file, or do not resume it"
            ))),
        }
    }

    /// Checks that the cursor file replaces neither a file of the export nor a file of somebody else.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Config` if it would.
    fn check(&self, paths: &Paths) -> Result<(), Error> {
        let of_export = [real_path(&paths.path), real_path(&paths.part)];
        let replaced = [real_path(&self.path), real_path(&self.temporary())];
        if replaced.iter().any(|path| of_export.contains(path)) {
            return Err(Error::config(
                "the cursor file would replace a file of the export; choose another path for it",
            ));
        }
        self.check_replaceable().map_err(unwritable)
    }

    /// Fails if the path of the cursor file or of the temporary file is that of another file.
    fn check_replaceable(&self) -> io::Result<()> {
        check_replaceable(&self.path)?;
        check_replaceable(&self.temporary())
    }

    /// Replaces the record. After a crash at any moment, the file holds either the old record or the new one.
    fn write(&self, record: &Record) -> io::Result<()> {
        let temporary = self.temporary();
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        let mut file = for_owner_only(&mut options).open(&temporary)?;
        file.write_all(&serde_json::to_vec(record)?)?;
        file.sync_data()?;
        // A rename replaces the file in one step. Writing into it could leave half a record.
        fs::rename(temporary, &self.path)
    }

    /// Removes the cursor file, and the temporary file that a crash may have left. If the directory can be synced, a later
    /// crash does not bring them back. Fails if another file is there.
    fn remove(&self) -> io::Result<()> {
        self.check_replaceable()?;
        for path in [&self.temporary(), &self.path] {
            match fs::remove_file(path) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                removed => removed?,
            }
        }
        sync_directory(&self.path);
        Ok(())
    }

    fn temporary(&self) -> PathBuf {
        with_suffix(&self.path, ".new")
    }
}

/// Fails if there is a file that is neither empty nor a record or the start of one.
fn check_replaceable(path: &Path) -> io::Result<()> {
    let is_replaceable = match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => true,
        Err(error) => return Err(error),
        Ok(found) if !found.is_file() => false,
        // A file of somebody else may be large, and is read only up to the first error. An empty file is the start of a
        // record.
        Ok(_) => {
            let mut file = BufReader::new(File::open(path)?);
            let mut start = file.fill_buf()?.iter().zip(RECORD_START);
            let is_start = start.all(|(found, expected)| found == expected);
            match serde_json::from_reader::<_, Record>(file) {
                Ok(_) => true,
                Err(error) => is_start && error.is_eof(),
            }
        }
    };
    match is_replaceable {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "another file has the path {}, to which the export writes its cursor; move it away, or choose another path",
            path.display()
        ))),
    }
}

/// How each record begins.
const RECORD_START: &[u8] = b"{\"export\":";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Client;
    use crate::export::Csv;

    #[tokio::test]
    async fn an_export_does_not_begin_without_the_columns_that_another_program_had_found() {
        let name = format!("audience-columns-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let client = Client::new("http://localhost", "key").unwrap();
        let mut export = client.contacts().list().export(&path, Csv::all_columns());

        // They were not searched for, because there was a part file that had some.
        let opened = export.open(&OutputWriter::default()).await;

        let error = opened.unwrap_err();
        assert!(error.is_retryable(), "{error}");
        assert_eq!(fs::read(part_of(&path)).unwrap(), b"");
        fs::remove_file(part_of(&path)).unwrap();
    }

    #[test]
    fn a_part_file_is_free_although_a_process_that_is_being_started_still_has_it_open() {
        let name = format!("audience-inherited-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let refused = open_locked(&path).unwrap();
        // As the other process has it until it runs its program.
        let inherited = refused.try_clone().unwrap();

        drop(refused);
        let next = open_locked(&path);

        fs::remove_file(&path).unwrap();
        drop(inherited);
        assert!(next.is_ok());
    }
}
