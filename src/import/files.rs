//! Imports several files of one list, one after another.

use std::collections::HashSet;
use std::fmt;
use std::future::{poll_fn, ready};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use super::batch::ListedAddresses;
use super::builder::{DEFAULT_CONCURRENCY, Import};
use super::corrected::corrected_rows;
use super::csv::{CsvInput, CsvRows};
use super::engine::{DryRun, OnProgress, Progress, Work};
use super::journal::Journal;
use super::record_file::{real_path, with_suffix};
use super::report::{ImportError, ImportReport};
use super::row::ImportRow;
use crate::Error;
use crate::client::wait_for_call;
use crate::contacts::Contacts;
use crate::signals::StopSignal;
use crate::sync::lock;

impl Contacts {
    /// Imports several CSV files of one list, such as the three of a Mailchimp export, one after another. It takes what
    /// [`CsvInput::open_all`] returns. Each file is imported as by [`import`](Self::import).
    ///
    /// - **Order.** The files in which [everybody opted out](CsvInput::opts_out_all) come first. If a file is not finished,
    ///   the files after it are not sent. So no contact is created before an opt-out of an earlier file is recorded.
    /// - **Refused opt-outs.** If rows of a file in which everybody opted out are refused, only the other files of this kind
    ///   are sent: the same people may be in the rest as subscribed. [`finished`](ImportReport::finished) then returns an
    ///   error that names the files that are not sent. Correct the rejects, and run the same import with
    ///   [`corrected`](ImportFiles::corrected).
    /// - **Journals.** Each file has a [`Journal`] beside it, with `.journal` after its name, as in `list.csv.journal`. After
    ///   a crash or an outage, run the same import again: it continues, and its report covers all files. The program
    ///   `audience` uses the same journals.
    ///
    /// # Errors
    ///
    /// [`ImportError`] as for [`import`](Self::import), with the report of all files so far and the path of the file in the
    /// text. Before anything is sent, it fails with these errors:
    ///
    /// - [`ErrorKind::Input`](crate::ErrorKind::Input): a file is given twice, or one of the errors of
    ///   [`CsvInput::rows`].
    /// - [`ErrorKind::Config`](crate::ErrorKind::Config): a journal cannot be read, the
    ///   [rejects](ImportFiles::rejects_folder) would replace a file that the import reads or writes, or a file that
    ///   [corrected](ImportFiles::corrected) rejects would replace is not finished.
    ///
    /// # Example: contacts, and those who unsubscribed
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # let folder = std::env::temp_dir().join(format!("audience-import-files-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder)?;
    /// # let paths = ["a.csv", "b.csv"].map(|name| folder.join(name));
    /// # std::fs::write(&paths[0], "Email Address,LEID,EUID\nada@example.com,1,a\nbob@example.com,2,b\n")?;
    /// # std::fs::write(&paths[1], "Email Address,UNSUB_TIME,LEID,EUID\nbob@example.com,2026-01-01,2,b\n")?;
    /// use audience::import::CsvInput;
    ///
    /// let files = CsvInput::open_all(paths, &[])?;
    /// let report = contacts.import_files(files).await?.finished()?;
    ///
    /// assert_eq!((report.created(), report.updated()), (2, 1));
    /// assert!(contacts.retrieve("bob@example.com").await?.unsubscribed);
    /// # std::fs::remove_dir_all(folder)?;
    /// # Ok(()) }
    /// ```
    pub fn import_files(
        &self,
        files: impl IntoIterator<Item = (impl AsRef<Path>, CsvInput)>,
    ) -> ImportFiles {
        let files = files.into_iter();
        let files = files.map(|(path, input)| ListFile::new(path.as_ref().to_owned(), input));
        ImportFiles {
            contacts: self.clone(),
            files: files.collect(),
            corrected: Vec::new(),
            concurrency: DEFAULT_CONCURRENCY,
            work: Work::Send,
            dry_run: Arc::default(),
            stop_signal: None,
            progress: None,
            listed: ListedAddresses::default(),
        }
    }
}

/// An import of several files, run by `.await`, or by `.wait()` with the feature `blocking`: see
/// [`Contacts::import_files`].
#[must_use = "an import runs only when it is awaited or waited for"]
pub struct ImportFiles {
    contacts: Contacts,
    files: Vec<ListFile>,
    /// The folders of corrected rejects that are not in place of their files yet.
    corrected: Vec<PathBuf>,
    concurrency: usize,
    work: Work,
    dry_run: Arc<Mutex<DryRun>>,
    stop_signal: Option<Arc<Mutex<StopSignal>>>,
    progress: Option<Arc<Mutex<Overall>>>,
    listed: ListedAddresses,
}

struct ListFile {
    path: PathBuf,
    input: CsvInput,
    journal: Option<PathBuf>,
    /// The journal, once it is open.
    opened: Option<Journal>,
    rejects: Option<PathBuf>,
    /// The files that this one is in place of.
    replaced: Vec<PathBuf>,
    /// The corrected rejects that are verified, too, with the journal of this file.
    corrected: Option<(PathBuf, Journal)>,
    /// The numbers of the rows that are not verified, because corrected rows stand for them.
    left_out: HashSet<u64>,
}

impl ImportFiles {
    /// Sets how many batches may be in flight at most; 0 counts as 1. Default: 16. See [`Import::concurrency`].
    pub fn concurrency(mut self, batches: usize) -> Self {
        self.concurrency = batches;
        self
    }

    /// Stops the import when this future is ready. Default: the import runs to its end. For SIGTERM and Ctrl-C, pass
    /// [`shutdown_signal()`](crate::shutdown_signal). See [`Import::stop_when`].
    ///
    /// The other rows of the current file are reported as not sent, and the files after it are not read. The same import
    /// continues there when it is run again.
    ///
    /// # Example: a job that can be stopped
    ///
    /// ```no_run
    /// # async fn run(contacts: audience::contacts::Contacts) -> Result<(), Box<dyn std::error::Error>> {
    /// use audience::import::CsvInput;
    ///
    /// let files = CsvInput::open_all(["subscribed.csv", "unsubscribed.csv"], &[])?;
    /// let import = contacts.import_files(files).stop_when(audience::shutdown_signal());
    ///
    /// println!("{}", import.await?.finished()?); // after SIGTERM, an error of the kind `Stopped`
    /// # Ok(()) }
    /// ```
    pub fn stop_when(mut self, signal: impl Future<Output = ()> + Send + 'static) -> Self {
        self.stop_signal = Some(Arc::new(Mutex::new(Box::pin(signal))));
        self
    }

    /// Checks all rows of all files and sends nothing. No journal is written, and none is read but those of
    /// files that [`corrected`](Self::corrected) rejects replace. See [`Import::dry_run`].
    ///
    /// The report counts only the rows as [valid](ImportReport::valid) that the import would send. It also has the refused
    /// rows of the files that the import would not send, because rows before them are refused.
    ///
    /// [Duplicates](ImportReport::duplicates) are counted between the files, too: the other valid rows are the contacts that
    /// the import creates or updates.
    ///
    /// # Example: check the files before the import
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # let folder = std::env::temp_dir().join(format!("audience-dry-run-files-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder)?;
    /// # let paths = ["a.csv", "b.csv"].map(|name| folder.join(name));
    /// # std::fs::write(&paths[0], "Email Address,LEID,EUID\nada@example.com,1,a\n")?;
    /// # std::fs::write(&paths[1], "Email Address,UNSUB_TIME,LEID,EUID\nno address,2026-01-01,2,b\n")?;
    /// use audience::import::CsvInput;
    ///
    /// let files = CsvInput::open_all(&paths, &[])?;
    /// let report = contacts.import_files(files).dry_run().await?;
    ///
    /// assert_eq!((report.valid(), report.refused()), (0, 1));
    /// assert_eq!(report.files_not_sent().len(), 1);
    /// assert!(report.finished().is_err());
    /// # std::fs::remove_dir_all(folder)?;
    /// # Ok(()) }
    /// ```
    pub fn dry_run(mut self) -> Self {
        self.work = Work::DryRun;
        self
    }

    /// Looks whether the service has each contact of the files, and each opt-out, and changes nothing. No journal is
    /// written, and none is read but those of files that have [`corrected`](Self::corrected) rejects. All files
    /// together list the contacts at most once: the first 200 rows without an opt-out are those of all files. See
    /// [`Import::verify`].
    ///
    /// With the folders of the [`corrected`](Self::corrected) rejects, it looks at the files and at their corrected
    /// rejects. A row that a corrected one stands for is left out, and not counted. So if
    /// [`finished`](ImportReport::finished) returns no error and [`refused`](ImportReport::refused) is 0, everybody of
    /// the list is there, with every opt-out. A row is left out only if all of this is true:
    ///
    /// - A row of the corrected rejects has the line of this row in the column `line`. So leave that column as it is.
    /// - If this row opts out of everything, so does the corrected row. The corrected row opts out of at least as many
    ///   topics: their names are not compared, because one may have been misspelled. The opt-outs of a row that cannot
    ///   be read are unknown, so take care not to lose them in its corrected row.
    /// - If this row has an opt-out, and the corrected row has another address, the service refused this row for
    ///   another reason than that the contact existed. Otherwise, a contact with the old address may lack the opt-out.
    ///
    /// Any other row is looked for as it is, also a row that you deleted from the corrected rejects. Corrected rows
    /// have [rejects](Self::rejects_folder) of their own, such as `corrected-list.csv` for those of
    /// `corrected/list.csv`.
    ///
    /// # Example: before the first broadcast
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # let folder = std::env::temp_dir().join(format!("audience-verify-files-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder)?;
    /// # let paths = ["a.csv", "b.csv"].map(|name| folder.join(name));
    /// # std::fs::write(&paths[0], "Email Address,LEID,EUID\nada@example.com,1,a\n")?;
    /// # std::fs::write(&paths[1], "Email Address,UNSUB_TIME,LEID,EUID\nbob@example.com,2026-01-01,2,b\n")?;
    /// use audience::import::CsvInput;
    ///
    /// let import = || Ok::<_, audience::Error>(contacts.import_files(CsvInput::open_all(&paths, &[])?));
    ///
    /// println!("{}", import()?.await?.finished()?);
    /// let report = import()?.verify().await?.finished()?;
    /// assert_eq!((report.valid(), report.refused()), (2, 0));
    /// # std::fs::remove_dir_all(&folder)?;
    /// # Ok(()) }
    /// ```
    pub fn verify(mut self) -> Self {
        self.work = Work::Verify;
        self
    }

    /// Writes the rows of each file that were not applied in full to a file of the same name in this folder, which must
    /// exist. Default: no rejects are written. See [`Import::rejects_file`].
    ///
    /// It must not be the folder of the files. If two files have the same name, the import fails and sends nothing: rename
    /// one of them, or pass them in two runs with different folders.
    ///
    /// If a file is not sent because rows before it are refused, the import removes the rejects that an earlier run, such as
    /// a dry run, has written for this file.
    ///
    /// When nothing is left but refused rows and the files that were not sent because of them, one more call imports both:
    /// see [`corrected`](Self::corrected).
    ///
    /// # Example: a row to correct
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # let folder = std::env::temp_dir().join(format!("audience-rejects-files-{}", std::process::id()));
    /// # let rejects = folder.join("rejects");
    /// # std::fs::create_dir_all(&rejects)?;
    /// # let paths = ["a.csv", "b.csv"].map(|name| folder.join(name));
    /// # std::fs::write(&paths[0], "email\nada@example.com\n")?;
    /// # std::fs::write(&paths[1], "email\nno address\n")?;
    /// use audience::import::CsvInput;
    ///
    /// let files = CsvInput::open_all(&paths, &[])?; // a.csv and b.csv
    /// let report = contacts.import_files(files).rejects_folder(&rejects).await?;
    ///
    /// assert_eq!((report.created(), report.refused()), (1, 1));
    /// assert!(std::fs::read_to_string(rejects.join("b.csv"))?.contains("no address"));
    /// # std::fs::remove_dir_all(&folder)?;
    /// # Ok(()) }
    /// ```
    pub fn rejects_folder(mut self, folder: impl AsRef<Path>) -> Self {
        for file in &mut self.files {
            let name = file.path.file_name().unwrap_or_default();
            file.rejects = Some(folder.as_ref().join(name));
        }
        self
    }

    /// Imports the corrected rejects in this folder: each file is replaced by the file of the same name in the folder, if
    /// there is one that is not empty. Default: each file itself is imported.
    ///
    /// Run the import until nothing is left but refused rows and the files that were not sent because of them. Then rename
    /// the [`rejects_folder`](Self::rejects_folder), create it again for the next rejects, correct the rows in the renamed
    /// one, and run the same import with it. Delete a row that cannot be corrected, but not the first line: an empty
    /// file replaces nothing. If rows are refused again, do the same once more, and call this method for both folders,
    /// the newest one last: its files replace those of the earlier one.
    ///
    /// - **Only the rejects of the last run.** The rejects of a run that was killed or stopped may lack rows. So a file is
    ///   replaced only if its journal says that its last run into this service has read all its rows and has left none to the
    ///   next run. With [`no_journals`](Self::no_journals), this fails. It cannot see which run has written the rejects: put
    ///   those of an earlier run, a dry run or a verification away, and always pass all folders.
    /// - **Columns.** Everything that was said about a file also applies to its corrected rejects, such as its mapping and
    ///   [`opt_out_all`](CsvInput::opt_out_all), but not its delimiter. So correct the misspelled name of a topic in the
    ///   mapping, or in the first line of the rejects if there is no mapping. The four columns that say what was wrong are
    ///   ignored.
    /// - **Journals.** Corrected rejects have a journal of their own beside them. The report does not count the rows of the
    ///   files that they replace.
    /// - **At the end.** [`verify`](Self::verify) with the same folders looks at the original files, too.
    ///
    /// The import fails before anything is sent, with an error of the kind [`Config`](crate::ErrorKind::Config), if a file to
    /// replace is not finished, or if this is no folder. A [`dry_run`](Self::dry_run) and a verification fail in the
    /// same way. A verification also fails if the import has applied a row for which there is a corrected row: one of
    /// the folders may be missing.
    ///
    /// # Example: a row that was corrected
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # let folder = std::env::temp_dir().join(format!("audience-corrected-files-{}", std::process::id()));
    /// # let (rejects, corrected) = (folder.join("rejects"), folder.join("corrected"));
    /// # std::fs::create_dir_all(&rejects)?;
    /// # let paths = ["a.csv", "b.csv"].map(|name| folder.join(name));
    /// # std::fs::write(&paths[0], "email\nada@example.com\n")?;
    /// # std::fs::write(&paths[1], "email\nno address\n")?;
    /// use audience::import::CsvInput;
    ///
    /// let import = || {
    ///     let files = CsvInput::open_all(&paths, &[])?; // a.csv and b.csv
    ///     Ok::<_, audience::Error>(contacts.import_files(files).rejects_folder(&rejects))
    /// };
    /// assert_eq!(import()?.await?.finished()?.refused(), 1);
    ///
    /// std::fs::rename(&rejects, &corrected)?; // now correct the row in the renamed folder
    /// # let text = std::fs::read_to_string(corrected.join("b.csv"))?;
    /// # std::fs::write(corrected.join("b.csv"), text.replace("no address", "bob@example.com"))?;
    /// std::fs::create_dir(&rejects)?;
    /// let report = import()?.corrected(&corrected).await?.finished()?;
    ///
    /// assert_eq!((report.created(), report.refused()), (2, 0));
    /// # std::fs::remove_dir_all(&folder)?;
    /// # Ok(()) }
    /// ```
    pub fn corrected(mut self, folder: impl AsRef<Path>) -> Self {
        self.corrected.push(folder.as_ref().to_owned());
        self
    }

    /// Records nothing, so that each run sends all rows of all files. Default: each file has a journal beside it.
    ///
    /// Use it to try an import with a mock, which has forgotten its contacts at the next run.
    pub fn no_journals(mut self) -> Self {
        for file in &mut self.files {
            file.journal = None;
        }
        self
    }

    /// Sets a function to call as the import proceeds, as [`Import::on_progress`] does. Default: none.
    ///
    /// The progress is that of all files. To know its [total](Progress::total), the import first reads the files to their
    /// end. There is no total if one of the paths is not a regular file.
    pub fn on_progress(mut self, show: impl FnMut(&Progress) + Send + 'static) -> Self {
        self.progress = Some(Arc::new(Mutex::new(Overall {
            show: Box::new(show),
            total: None,
            earlier: None,
            current: None,
        })));
        self
    }
}

/// The methods with which the program `audience` asks its questions first, and imports a single file in the same way.
#[cfg(feature = "cli")]
impl ImportFiles {
    /// Records the finished rows of the only file in this journal.
    pub(crate) fn journal(mut self, path: &Path) -> Self {
        for file in &mut self.files {
            file.journal = Some(path.to_owned());
        }
        self
    }

    /// Writes the rejects of the only file to this file.
    pub(crate) fn rejects_file(mut self, path: &Path) -> Self {
        for file in &mut self.files {
            file.rejects = Some(path.to_owned());
        }
        self
    }

    /// Returns the files in the order of the import.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = (&Path, &CsvInput)> {
        let files = self.files.iter();
        files.map(|file| (file.path.as_path(), &file.input))
    }

    /// Opens the journals that the import writes. Returns them with their paths.
    ///
    /// # Errors
    ///
    /// The error of [`Journal::open`], with the path of the journal.
    pub(crate) fn open_journals(&mut self) -> Result<Vec<(&Path, &Journal)>, (PathBuf, Error)> {
        let work = self.work;
        let mut journals = Vec::new();
        for file in &mut self.files {
            let opened = file.open_journal(work);
            opened.map_err(|error| (file.journal.clone().unwrap_or_default(), error))?;
            journals.extend(file.journal.as_deref().zip(file.opened.as_ref()));
        }
        Ok(journals)
    }

    /// Returns the number of rows of all files. The import does not count them again.
    pub(crate) fn count(&self) -> Option<u64> {
        let total = count(&self.countable());
        if let Some(progress) = &self.progress {
            lock(progress).total = total;
        }
        total
    }

    /// Returns how many rows of all files opt their contacts out of everything, unless a file cannot be read twice.
    pub(crate) fn count_opt_outs(&self) -> Option<u64> {
        let files = self.files.iter();
        let counts = files.map(|file| file.input.count_opt_outs(&file.path));
        counts.sum()
    }
}

impl ImportFiles {
    /// Puts the corrected rejects in place of the files that they are from, and the files into the order of the import. A
    /// verification looks at both.
    pub(crate) fn replace_files(&mut self) -> Result<(), Error> {
        let mut originals: Vec<ListFile> = Vec::new();
        for folder in std::mem::take(&mut self.corrected) {
            if !folder.is_dir() {
                let folder = folder.display();
                return Err(Error::config(format!(
                    "{folder} is not a folder of corrected files"
                )));
            }
            let service = self.contacts.client.base_url();
            for file in &mut self.files {
                let original = file.replace(&folder, &service)?;
                originals.extend(original.filter(|_| self.work == Work::Verify));
            }
        }
        if !originals.is_empty() {
            originals.append(&mut self.files);
            self.files = originals;
            self.files.iter_mut().for_each(ListFile::rename_rejects);
        }
        // Again, because a caller may have opted out all of a file since it was opened. The sort is stable.
        self.files.sort_by_key(|file| !file.input.opts_out_all());
        Ok(())
    }

    /// Finds what can be found before a journal is created and before anything is sent.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        self.replace_files()?;
        for file in &mut self.files {
            let checked = file.input.check();
            checked.map_err(|error| error.about(&file.path.display().to_string()))?;
        }
        self.check_paths()
    }

    /// Checks that no file is given twice, and that the rejects replace no other file.
    pub(crate) fn check_paths(&self) -> Result<(), Error> {
        // A file may have two names, such as by a link.
        let mut used = HashSet::new();
        for file in &self.files {
            if !used.insert(real_path(&file.path)) {
                let path = file.path.display();
                return Err(Error::input(format!("{path} is given twice")));
            }
        }
        self.check_rejects(used)
    }

    /// Checks that the rejects replace nothing else that is `used`, and that they do not replace each other.
    fn check_rejects(&self, mut used: HashSet<PathBuf>) -> Result<(), Error> {
        let journals = self.files.iter().filter_map(|file| file.journal.as_deref());
        used.extend(journals.map(real_path));
        let replaced = self.files.iter().flat_map(|file| &file.replaced);
        used.extend(replaced.map(|path| real_path(path)));
        let mut written = HashSet::new();
        for rejects in self.rejects() {
            let path = real_path(rejects);
            if !written.insert(path.clone()) {
                let name = rejects.file_name().unwrap_or_default();
                return Err(Error::config(format!(
                    "two files are named {}, and both would write their rejects to {}; rename one of them, or pass them in two \
                     runs with different folders for the rejects",
                    name.display(),
                    rejects.display()
                )));
            }
            if used.contains(&path) {
                return Err(Error::config(format!(
                    "the rejects would replace {}, which this import reads or writes for something else; choose another place \
                     for the rejects",
                    rejects.display()
                )));
            }
        }
        Ok(())
    }

    pub(crate) fn rejects(&self) -> impl Iterator<Item = &Path> {
        let files = self.files.iter();
        files.filter_map(|file| file.rejects.as_deref())
    }

    /// Returns what is needed to count the rows.
    fn countable(&self) -> Vec<(PathBuf, char)> {
        let files = self.files.iter();
        let files = files.map(|file| (file.path.clone(), file.input.delimiter_char()));
        files.collect()
    }

    /// Finds the rows that a verification leaves out, because corrected rows stand for them.
    async fn leave_out_corrected(&mut self) -> Result<(), Error> {
        for file in &mut self.files {
            let Some((path, journal)) = file.corrected.take() else {
                continue;
            };
            let original = rows(file.input.open_again(&file.path), &file.path)?;
            let corrected = rows(file.input.open_corrected(&path), &path)?;
            let find = move || corrected_rows(original, corrected, &journal);
            file.left_out = match tokio::task::spawn_blocking(find).await {
                Ok(Ok(left_out)) => left_out,
                Ok(Err(line)) => return Err(file.applied(&path, line)),
                Err(error) => {
                    let message = "the runtime stopped before the verification";
                    return Err(Error::transport(message).caused_by(error));
                }
            };
        }
        Ok(())
    }

    /// Counts the rows, and opens the files with their journals.
    async fn open(&mut self) -> Result<Vec<OpenFile>, Error> {
        self.check()?;
        self.leave_out_corrected().await?;
        if let Some(progress) = self.progress.clone()
            && lock(&progress).total.is_none()
        {
            let files = self.countable();
            let total = tokio::task::spawn_blocking(move || count(&files)).await;
            let left_out = self.files.iter().map(|file| file.left_out.len() as u64);
            let left_out: u64 = left_out.sum();
            let total = total.ok().flatten();
            lock(&progress).total = total.map(|total| total.saturating_sub(left_out));
        }
        let files = std::mem::take(&mut self.files).into_iter();
        files.map(|file| file.open(self.work)).collect()
    }

    async fn run(mut self) -> Result<ImportReport, ImportError> {
        let work = self.work;
        let opened = self.open().await.map_err(|error| work.not_started(error))?;
        let mut files = opened.into_iter();
        let (mut report, mut lacks_opt_outs) = (work.report(), false);
        if work == Work::DryRun {
            report.note_dry_run();
        }
        while let Some(file) = files.next() {
            let (path, opts_out_all) = (file.path.clone(), file.opts_out_all);
            // Somebody whose opt-out was refused may be in this file, too, and would be subscribed.
            let is_left_out = lacks_opt_outs && !opts_out_all;
            if is_left_out {
                report.note_file_not_sent(path.clone());
            }
            let import = match is_left_out && self.work == Work::Send {
                true => self.removal_of_rejects(file),
                // A dry run still finds the rows that would be refused later.
                false => Some(self.import(file)),
            };
            let Some(import) = import else {
                continue;
            };
            let (mut done, error) = match import.await {
                Ok(done) => (done, None),
                Err(stopped) => {
                    let (done, error) = stopped.into_parts();
                    (done, Some(error))
                }
            };
            lacks_opt_outs |= opts_out_all && self.work != Work::Verify && done.refused() > 0;
            let is_unfinished = self.work == Work::Send && done.unfinished().is_some();
            if is_left_out {
                done.forget_valid();
            }
            done.name_failure(&path);
            report.merge(done);
            if is_unfinished || error.is_some() {
                files.for_each(|file| report.note_file_not_sent(file.path));
                return match error {
                    Some(error) => Err(ImportError::new(report, error.about(&path))),
                    None => Ok(report),
                };
            }
        }
        Ok(report)
    }

    /// Returns an import without rows, which removes the rejects of an earlier run, such as a dry run, of a file that is
    /// not sent: they would look like rejects of this run. `None` if there are none.
    fn removal_of_rejects(&self, file: OpenFile) -> Option<Import> {
        let rejects = file.rejects?;
        let is_there = CsvInput::open(&rejects).is_ok_and(|input| input.is_rejects());
        let import = self.contacts.import(Vec::<ImportRow>::new());
        is_there.then(|| import.rejects_file(rejects))
    }

    /// Returns the import of one of the files.
    fn import(&self, file: OpenFile) -> Import {
        let rows = (0_u64..).zip(file.rows);
        let rows = rows.filter(move |(number, _)| !file.left_out.contains(number));
        let mut import = self.contacts.import(rows.map(|(_, row)| row));
        import = import.concurrency(self.concurrency);
        import.settings.dry_run = self.dry_run.clone();
        import = match self.work {
            Work::Send => import,
            Work::DryRun => import.dry_run(),
            Work::Verify => import.verify().listed(self.listed.clone()),
        };
        if let Some(journal) = file.journal {
            import = import.journal(journal);
        }
        if let Some(rejects) = file.rejects {
            import = import.rejects_file(rejects);
        }
        if let Some(signal) = &self.stop_signal {
            import = import.stop_when(shared(signal.clone()));
        }
        if let Some(overall) = self.progress.clone() {
            lock(&overall).begin_file();
            import = import.on_progress(move |progress| lock(&overall).show(progress));
        }
        import
    }
}

wait_for_call!(ImportFiles => Result<ImportReport, ImportError>);

impl IntoFuture for ImportFiles {
    type Output = Result<ImportReport, ImportError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl fmt::Debug for ImportFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths = self.files.iter().map(|file| &file.path);
        f.debug_struct("ImportFiles")
            .field("files", &paths.collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// A file whose rows can be imported.
struct OpenFile {
    path: String,
    opts_out_all: bool,
    rows: CsvRows,
    left_out: HashSet<u64>,
    journal: Option<Journal>,
    rejects: Option<PathBuf>,
}

impl ListFile {
    fn new(path: PathBuf, input: CsvInput) -> Self {
        Self {
            journal: Some(with_suffix(&path, ".journal")),
            path,
            input,
            opened: None,
            rejects: None,
            replaced: Vec::new(),
            corrected: None,
            left_out: HashSet::new(),
        }
    }

    /// Puts the file of the same name in this folder in place of this one, and returns this one, if there is such a
    /// file.
    fn replace(&mut self, folder: &Path, service: &str) -> Result<Option<Self>, Error> {
        let corrected = folder.join(self.path.file_name().unwrap_or_default());
        // On Windows, the rejects of a file without any are an empty file.
        let has_rows =
            std::fs::metadata(&corrected).is_ok_and(|file| file.is_file() && file.len() > 0);
        if !has_rows {
            return Ok(None);
        }
        let Some(journal) = self.finished_journal(service)? else {
            return Err(self.not_finished(&corrected, folder));
        };
        let opened = self.input.open_corrected(&corrected);
        let input = opened.map_err(|error| error.about(&corrected.display().to_string()))?;
        let mut replacement = Self::new(corrected.clone(), input);
        replacement.rejects.clone_from(&self.rejects);
        replacement.replaced.clone_from(&self.replaced);
        replacement.replaced.push(self.path.clone());
        let mut original = std::mem::replace(self, replacement);
        original.corrected = Some((corrected, journal));
        Ok(Some(original))
    }

    /// Gives the rejects of a corrected file a name of their own, because the original file has the same name.
    fn rename_rejects(&mut self) {
        if let (false, Some(rejects)) = (self.replaced.is_empty(), &mut self.rejects) {
            let folder = self.path.parent().map(real_path).unwrap_or_default();
            let mut name = folder.file_name().unwrap_or_default().to_owned();
            name.push("-");
            name.push(rejects.file_name().unwrap_or_default());
            rejects.set_file_name(name);
        }
    }

    /// Returns the journal if the last run into this service has read all rows of the file, and has left none to the
    /// next one.
    fn finished_journal(&self, service: &str) -> Result<Option<Journal>, Error> {
        // A journal that does not exist would be created.
        let Some(path) = self.journal.as_deref().filter(|path| path.exists()) else {
            return Ok(None);
        };
        let opened = Journal::open(path);
        let journal = opened.map_err(|error| error.about(&self.path.display().to_string()))?;
        let Some(rows) = journal.rows_at_end(service) else {
            return Ok(None);
        };
        let count = CsvInput::count_rows(&self.path, self.input.delimiter_char());
        Ok((count == Some(rows)).then_some(journal))
    }

    /// Returns the error if there is a corrected row for a row that the import has applied.
    fn applied(&self, corrected: &Path, line: u64) -> Error {
        let (path, corrected) = (self.path.display(), corrected.display());
        Error::config(format!(
            "{corrected} has a row with {line} in the column `line`, but the import has applied line {line} of {path}; pass the \
             folders of all corrected rejects, the newest one last; if they are complete, remove that row from {corrected}"
        ))
    }

    fn not_finished(&self, corrected: &Path, folder: &Path) -> Error {
        let (path, corrected, folder) =
            (self.path.display(), corrected.display(), folder.display());
        Error::config(match self.journal {
            None => format!(
                "{corrected} cannot replace {path}, because no journal says that {path} is finished; import with journals"
            ),
            Some(ref journal) if !journal.exists() => format!(
                "{path} was not sent yet, so {corrected} is not from its import; remove {corrected}"
            ),
            Some(_) => format!(
                "{path} is not finished, so {corrected} cannot replace it: rows would be lost; put {folder} away, because its \
                 rejects may lack rows; run the import again without it until nothing is left but refused rows, and correct \
                 the rejects of that run"
            ),
        })
    }

    /// Opens the journal, unless it is open.
    fn open_journal(&mut self, work: Work) -> Result<(), Error> {
        // Only what was sent may be marked as finished.
        if let (Work::Send, None, Some(path)) = (work, &self.opened, &self.journal) {
            self.opened = Some(Journal::open(path)?);
        }
        Ok(())
    }

    fn open(mut self, work: Work) -> Result<OpenFile, Error> {
        let path = self.path.display().to_string();
        let opened = self.open_journal(work);
        opened.map_err(|error| error.about(&path))?;
        let opts_out_all = self.input.opts_out_all();
        let rows = rows(Ok(self.input), &self.path)?;
        Ok(OpenFile {
            opts_out_all,
            rows,
            left_out: self.left_out,
            journal: self.opened,
            rejects: self.rejects,
            path,
        })
    }
}

/// Returns the rows of a file with this path.
fn rows(input: Result<CsvInput, Error>, path: &Path) -> Result<CsvRows, Error> {
    let rows = input.and_then(CsvInput::rows);
    rows.map_err(|error| error.about(&path.display().to_string()))
}

/// Returns how many rows the files have together, unless one of them cannot be counted.
fn count(files: &[(PathBuf, char)]) -> Option<u64> {
    let files = files.iter();
    let counts = files.map(|(path, delimiter)| CsvInput::count_rows(path, *delimiter));
    counts.sum()
}

/// Returns a signal for the import of one file. It leaves the caller's signal ready for the next file.
fn shared(signal: Arc<Mutex<StopSignal>>) -> impl Future<Output = ()> + Send {
    poll_fn(move |context| {
        let mut signal = lock(&signal);
        if signal.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        *signal = Box::pin(ready(()));
        Poll::Ready(())
    })
}

/// Shows the progress of all files together.
struct Overall {
    show: OnProgress,
    total: Option<u64>,
    /// The progress at the end of the file before.
    earlier: Option<Progress>,
    current: Option<Progress>,
}

impl Overall {
    fn begin_file(&mut self) {
        self.earlier = self.current;
    }

    fn show(&mut self, progress: &Progress) {
        let progress = progress.after(self.earlier, self.total);
        self.current = Some(progress);
        (self.show)(&progress);
    }
}
