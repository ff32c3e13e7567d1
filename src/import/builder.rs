use std::fmt;
use std::future::poll_fn;
use std::io::Write;
use std::pin::Pin;

use futures_core::Stream;

use super::ImportReport;
use super::batch::{Sender, unwritable};
use super::error::ImportError;
use super::journal::{Header, Journal, Record, Resumed, fingerprint};
use super::outcomes::Outcomes;
use super::progress::Progress;
use super::rejects::Rejects;
use super::row::ImportRow;
use super::run::{Keep, Run, Settings, StopSignal};
use super::source::Source;
use crate::Error;
use crate::client::{CallOptions, call_settings};
use crate::contacts::{Contacts, MAX_BATCH};

/// The number of batches in flight, unless [`Import::max_in_flight`] sets it.
const DEFAULT_MAX_IN_FLIGHT: usize = 16;

impl Contacts {
    /// Imports contacts, however many: in batches of 100, several at once.
    pub fn import<I>(&self, rows: I) -> Import
    where
        I: IntoIterator<Item: Into<ImportRow> + 'static, IntoIter: Send + 'static>,
    {
        Import::new(self.clone(), Source::from_iter(rows))
    }

    /// Imports contacts like [`import`](Self::import), from a stream.
    pub fn import_stream<S>(&self, rows: S) -> Import
    where
        S: Stream<Item: Into<ImportRow>> + Send + 'static,
    {
        Import::new(self.clone(), Source::from_stream(rows))
    }
}

/// An import, run by `.await`: see [`Contacts::import`].
#[must_use = "an import runs only when it is awaited"]
pub struct Import {
    contacts: Contacts,
    source: Source,
    options: CallOptions,
    max_in_flight: usize,
    stop_on_failure: bool,
    stop_signal: Option<StopSignal>,
    dry_run: bool,
    total: Option<u64>,
    journal: Option<Journal>,
    rejects: Option<Box<dyn Write + Send>>,
    on_progress: Option<Box<dyn FnMut(&Progress) + Send>>,
}

impl Import {
    fn new(contacts: Contacts, source: Source) -> Self {
        Self {
            contacts,
            source,
            options: CallOptions::default(),
            max_in_flight: DEFAULT_MAX_IN_FLIGHT,
            stop_on_failure: false,
            stop_signal: None,
            dry_run: false,
            total: None,
            journal: None,
            rejects: None,
            on_progress: None,
        }
    }

    /// Sets how many batches may be in flight at once at the most. Default: 16.
    pub fn max_in_flight(mut self, batches: usize) -> Self {
        self.max_in_flight = batches;
        self
    }

    /// Stops the import at the first batch that fails for good. Default: the rest goes on.
    pub fn stop_on_failure(mut self) -> Self {
        self.stop_on_failure = true;
        self
    }

    /// Stops the import when this future is ready, for example because somebody pressed Ctrl-C: no further batch
    /// is started, those in flight are finished, and the report counts all other rows as not sent. With a
    /// journal, the same import goes on there. Default: it runs to its end.
    ///
    /// To stop at once, drop the import. Then nobody learns what became of the batches in flight; with a journal,
    /// the next run sends them again.
    ///
    /// # Example: stop after a minute
    ///
    /// ```no_run
    /// # async fn run(contacts: audience::contacts::Contacts) -> Result<(), audience::Error> {
    /// use std::time::Duration;
    ///
    /// use audience::import::CsvRows;
    ///
    /// let rows = CsvRows::open("contacts.csv")?;
    /// let report = contacts.import(rows).stop_when(tokio::time::sleep(Duration::from_secs(60))).await?;
    /// println!("{} rows were not sent", report.not_sent());
    /// # Ok(()) }
    /// ```
    pub fn stop_when(mut self, signal: impl Future<Output = ()> + Send + 'static) -> Self {
        self.stop_signal = Some(Box::pin(signal));
        self
    }

    /// Checks all rows and sends nothing. A journal is neither read nor written.
    ///
    /// A row with an unusual address that the service might take is valid. What is certainly wrong is refused, with
    /// one of these codes:
    ///
    /// - `invalid_row`: the row could not be read.
    /// - `invalid_address`: no `@`, nothing before or after it, white space, two addresses in one, a character
    ///   that no address or domain has, an empty part of the domain, or more than 254 bytes.
    /// - `invalid_property`: a name that is empty, has white space around it or a control character in it, or a
    ///   value that is neither text nor a number (interface section 2.1).
    ///
    /// The report counts the other rows as [valid](ImportReport::valid), and among them the
    /// [duplicates](ImportReport::duplicates): rows whose address, compared as
    /// [`normalized_address`](crate::contacts::normalized_address) returns it, is that of an earlier row. For
    /// that, it keeps a few bytes for each address.
    ///
    /// # Example: look before an import
    ///
    /// ```
    /// # #[cfg(feature = "mock")]
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// let rows = ["ada@example.com", "ADA@example.com", "ada at example.com"].map(audience::contacts::NewContact::new);
    ///
    /// let report = contacts.import(rows).dry_run().await?;
    ///
    /// assert_eq!((report.valid(), report.duplicates()), (2, 1));
    /// assert_eq!(report.refused_by_code().next(), Some(("invalid_address", 1)));
    /// assert_eq!(server.contact_count(), 0);
    /// # Ok(()) }
    /// # #[cfg(not(feature = "mock"))] fn main() {}
    /// ```
    pub fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }

    /// Sets how many rows there are, for [`Progress::total`].
    pub fn total(mut self, rows: u64) -> Self {
        self.total = Some(rows);
        self
    }

    /// Records what is finished in this journal, and goes on where it ends.
    pub fn journal(mut self, journal: Journal) -> Self {
        self.journal = Some(journal);
        self
    }

    /// Writes every row that was not applied in full to this file, as CSV in UTF-8, in input order. Default: no
    /// rejects are written.
    ///
    /// The first line names the columns: `line`, `code`, `message` and `retryable`, then those of the input under
    /// their own names. So the mended file can be imported again: [`CsvRows`](super::CsvRows) leaves out the first
    /// four. Rows that are not from CSV have the columns `email`, `first_name`, `last_name`, `properties`,
    /// `on_conflict`, `unsubscribed`, `unsubscribe_reason`, `topics` and `import_key`, which it reads, too. The file
    /// is empty if every row was applied.
    ///
    /// A cell that begins with `=`, `+`, `-`, `@`, a tab or CR, and is not a number, gets an apostrophe in front:
    /// otherwise a spreadsheet would run it as a formula. `CsvRows` removes it from rejects, and from no
    /// other file.
    ///
    /// # Example: mend a row
    ///
    /// ```
    /// # #[cfg(feature = "mock")]
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # let path = std::env::temp_dir().join(format!("audience-rejects-{}.csv", std::process::id()));
    /// use std::fs::{self, File};
    ///
    /// use audience::import::CsvRows;
    ///
    /// let rows = CsvRows::new("email,plan\nada@example.com,pro\ngrace at example.com,free\n".as_bytes())?;
    /// let report = contacts.import(rows).rejects(File::create(&path)?).await?;
    /// assert_eq!((report.created(), report.refused()), (1, 1));
    ///
    /// let rejects = fs::read_to_string(&path)?;
    /// assert!(rejects.starts_with("line,code,message,retryable,email,plan\n3,validation_error,"));
    /// fs::write(&path, rejects.replace(" at ", "@"))?;
    ///
    /// let report = contacts.import(CsvRows::open(&path)?).await?;
    /// assert_eq!((report.created(), report.refused()), (1, 0));
    /// # fs::remove_file(&path)?;
    /// # Ok(()) }
    /// # #[cfg(not(feature = "mock"))] fn main() {}
    /// ```
    pub fn rejects(mut self, file: impl Write + Send + 'static) -> Self {
        self.rejects = Some(Box::new(file));
        self
    }

    /// Sets a function to call whenever there is progress.
    pub fn on_progress(mut self, show: impl FnMut(&Progress) + Send + 'static) -> Self {
        self.on_progress = Some(Box::new(show));
        self
    }

    /// Returns a stream of all rows with their outcomes, in input order. The import runs while the stream
    /// is polled.
    pub fn outcomes(self) -> Outcomes {
        Outcomes::new(self)
    }
}

call_settings!(Import, options);

/// Everything that the run of an import needs.
pub(super) struct Runner {
    pub(super) run: Run,
    on_progress: Option<Box<dyn FnMut(&Progress) + Send>>,
}

impl Runner {
    /// Checks the journal against the rows, and starts the import.
    pub(super) async fn start(import: Import, keep: Keep) -> Result<Self, ImportError> {
        let stopped = |error: Error| ImportError::new(ImportReport::default(), error);
        let Import {
            contacts,
            mut source,
            options,
            ..
        } = import;
        let total = import.total.or_else(|| source.total());
        let journal = import.journal.filter(|_| !import.dry_run);
        let (resumed, journal) = match journal {
            None => (None, None),
            Some(journal) => {
                let (resumed, writer) = journal
                    .into_parts()
                    .map_err(|error| stopped(unwritable(error.into())))?;
                let head = read_head(&mut source).await;
                let header = header(&contacts, &head);
                check_header(&resumed, &header).map_err(stopped)?;
                if resumed.is_empty() {
                    let appended = writer.append(&Record::Import(header)).await;
                    appended.map_err(|error| stopped(unwritable(error)))?;
                }
                source = source.after(head);
                (Some(resumed), Some(writer))
            }
        };
        let settings = Settings {
            max_in_flight: import.max_in_flight,
            stop_on_failure: import.stop_on_failure,
            stop_signal: import.stop_signal,
            dry_run: import.dry_run,
            total,
            keep,
        };
        let sender = Sender {
            contacts,
            options,
            journal,
        };
        Ok(Self {
            run: Run::new(source, resumed, sender, settings),
            on_progress: import.on_progress,
        })
    }

    /// Runs until something has changed. Returns whether there is more to do.
    pub(super) async fn change(&mut self) -> bool {
        let changed = poll_fn(|context| self.run.poll_change(context)).await;
        if let Some(show) = &mut self.on_progress {
            show(&self.run.progress());
        }
        changed.is_some()
    }

    pub(super) fn finish(self) -> Result<ImportReport, ImportError> {
        match self.run.finish() {
            (report, None) => Ok(report),
            (report, Some(error)) => Err(ImportError::new(report, error)),
        }
    }
}

/// Reads as many rows as a batch has at most.
async fn read_head(source: &mut Source) -> Vec<ImportRow> {
    let mut head = Vec::new();
    while head.len() < MAX_BATCH
        && let Some(row) = poll_fn(|context| source.poll_next(context)).await
    {
        head.push(row);
    }
    head
}

fn header(contacts: &Contacts, head: &[ImportRow]) -> Header {
    let first_rows = (0_u64..).zip(head).fold(0_u64, |sum, (number, row)| {
        sum.wrapping_add(fingerprint(number, row))
    });
    Header::new(contacts.base_url(), first_rows)
}

fn check_header(resumed: &Resumed, header: &Header) -> Result<(), Error> {
    match resumed.header().and_then(|found| found.mismatch(header)) {
        None => Ok(()),
        Some(problem) => Err(Error::input(format!(
            "the journal cannot continue this import: {problem}; choose another file for the journal"
        ))),
    }
}

impl IntoFuture for Import {
    type Output = Result<ImportReport, ImportError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(mut self) -> Self::IntoFuture {
        let rejects = self.rejects.take().map(Rejects::new);
        Box::pin(async move {
            let keep = match rejects {
                Some(_) => Keep::NotApplied,
                None => Keep::Nothing,
            };
            let mut runner = Runner::start(self, keep).await?;
            let mut rejects = rejects;
            loop {
                let goes_on = runner.change().await;
                while let Some((row, outcome)) = runner.run.next_settled() {
                    if let Some(rejects) = &mut rejects {
                        rejects.write(&row, &outcome);
                    }
                }
                if !goes_on {
                    break;
                }
            }
            let written = rejects.map_or(Ok(()), Rejects::finish);
            let report = runner.finish()?;
            match written {
                Ok(()) => Ok(report),
                Err(error) => {
                    let error = Error::config("could not write the rejects").caused_by(error);
                    Err(ImportError::new(report, error))
                }
            }
        })
    }
}

impl fmt::Debug for Import {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Import")
            .field("max_in_flight", &self.max_in_flight)
            .finish_non_exhaustive()
    }
}
