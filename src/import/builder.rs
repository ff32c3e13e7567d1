use std::fmt;
use std::future::poll_fn;
use std::io::Write;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use futures_core::stream::FusedStream;

use super::batch::Sender;
use super::engine::{Keep, Progress, Run, Settings};
use super::journal::Journal;
use super::rejects::Rejects;
use super::report::{ImportError, ImportReport, RowOutcome};
use super::row::{ImportRow, Source};
use crate::client::{CallDeadline, CallOptions, wait_for_call, wait_for_items};
use crate::contacts::Contacts;
use crate::{Error, RetryPolicy};

impl Contacts {
    /// Imports contacts, however many: in batches of 100, several simultaneously.
    ///
    /// It takes any iterator of [`NewContact`](crate::contacts::NewContact)s, addresses or [`ImportRow`]s, and
    /// reads it as it goes. The [module](crate::import) says what an import does about duplicates, failures,
    /// opt-outs and crashes.
    ///
    /// Dropping the future cancels the import. Batches in flight may still be applied; with a
    /// [`journal`](Import::journal), the next import finds out.
    ///
    /// # Errors
    ///
    /// [`ImportError`] if the import stopped before its end. It has the report so far,
    /// and an [`Error`] that says why:
    ///
    /// - `unauthorized` (401) or `key_not_permitted` (403): the key was refused.
    /// - [`ErrorKind::Config`](crate::ErrorKind::Config): the journal could not be written, or another import
    ///   uses it; or the [`rejects`](Import::rejects) could not be written. Rows that the journal could not record
    ///   are reported as unknown.
    /// - [`ErrorKind::Input`](crate::ErrorKind::Input): the journal belongs to other rows or to another service, or
    ///   a CSV file could not be read to its end.
    /// - The error of the first batch that failed, with [`stop_on_failure`](Import::stop_on_failure).
    ///
    /// Refused rows, failed batches and the plan's ceiling are not errors: the
    /// [`ImportReport`] counts them.
    ///
    /// # Example: import a list of addresses
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// let report = contacts.import(["ada@example.com", "bob@example.com", "no address"]).await?;
    ///
    /// assert_eq!((report.created(), report.refused()), (2, 1));
    /// # Ok(()) }
    /// ```
    pub fn import<I>(&self, rows: I) -> Import
    where
        I: IntoIterator<Item: Into<ImportRow> + 'static, IntoIter: Send + 'static>,
    {
        Import::new(self.clone(), Source::from_iter(rows))
    }

    /// Imports contacts like [`import`](Self::import), from a stream.
    ///
    /// A batch is sent when it is full, or when no other is in flight and the stream has no more rows for
    /// now. So a slow stream does not keep back the rows that it has already given.
    ///
    /// # Errors
    ///
    /// Those of [`import`](Self::import).
    ///
    /// # Example: rows from a database or a channel
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// let rows = futures_util::stream::iter(["ada@example.com", "bob@example.com"]);
    ///
    /// let report = contacts.import_stream(rows).await?;
    ///
    /// assert_eq!(report.created(), 2);
    /// # Ok(()) }
    /// ```
    pub fn import_stream<S>(&self, rows: S) -> Import
    where
        S: Stream<Item: Into<ImportRow>> + Send + 'static,
    {
        Import::new(self.clone(), Source::from_stream(rows))
    }
}

/// The number of batches in flight, unless [`Import::concurrency`] sets it.
const DEFAULT_CONCURRENCY: usize = 16;

/// An import, run by `.await`, or by `.wait()` with the feature `blocking`: see [`Contacts::import`].
#[must_use = "an import runs only when it is awaited or waited for"]
pub struct Import {
    contacts: Contacts,
    source: Source,
    options: CallOptions,
    journal: Option<Journal>,
    settings: Settings,
    rejects: Option<Box<dyn Write + Send>>,
}

impl Import {
    fn new(contacts: Contacts, source: Source) -> Self {
        Self {
            contacts,
            source,
            options: CallOptions::default(),
            journal: None,
            settings: Settings {
                concurrency: DEFAULT_CONCURRENCY,
                stop_on_failure: false,
                stop_signal: None,
                dry_run: false,
                total: None,
                on_progress: None,
            },
            rejects: None,
        }
    }

    /// Sets how many batches may be in flight at most; 0 counts as 1. Default: 16.
    ///
    /// How many are in flight adapts to the service: see the [module](crate::import).
    pub fn concurrency(mut self, batches: usize) -> Self {
        self.settings.concurrency = batches;
        self
    }

    /// Stops the import at the first batch that fails for good. Default: the import continues with the next batch.
    ///
    /// The rows after it are reported as not sent, and the result is an [`ImportError`] with the error of the
    /// batch. Refused rows are no failure of their batch.
    ///
    /// Use it for rows with [`OnConflict::Error`](crate::contacts::OnConflict::Error): those with an unknown outcome
    /// are not sent by a resumed import, so a long outage should not reach many of them.
    ///
    /// # Example: stop when the service is down
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # server.fault(audience::mock::Fault::status(501));
    /// let rows = (0..1_000).map(|n| format!("{n}@example.com"));
    ///
    /// let stopped = contacts.import(rows).concurrency(1).stop_on_failure().await.unwrap_err();
    ///
    /// assert_eq!((stopped.report().unknown(), stopped.report().not_sent()), (100, 900));
    /// # }
    /// ```
    pub fn stop_on_failure(mut self) -> Self {
        self.settings.stop_on_failure = true;
        self
    }

    /// Stops the import when this future is ready, for example because somebody pressed Ctrl-C: no further batch
    /// is started, those in flight are finished, and the report counts all other rows as not sent. With a
    /// journal, the same import continues there. Default: it runs to its end.
    ///
    /// The rest of the rows is still read, so that the report and the rejects have them. Rows that never end must be
    /// made to end by the same signal, for example with `take_until` of the crate `futures-util`.
    ///
    /// A batch that waits for a retry is not retried: its rows are reported as not sent or unknown. Opt-outs of rows
    /// that were applied are still retried, which can take minutes if the service is down: see
    /// [`retry`](Self::retry). To stop immediately, drop the import. The outcome of the batches in flight is then
    /// unknown; with a journal, the next run sends them again.
    ///
    /// # Example: stop after a minute
    ///
    /// ```no_run
    /// # async fn run(contacts: audience::contacts::Contacts) -> Result<(), Box<dyn std::error::Error>> {
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
        self.settings.stop_signal = Some(Box::pin(signal));
        self
    }

    /// Checks all rows and sends nothing. A journal is neither read nor written.
    ///
    /// A row with an unusual address that the service might take is valid. A row that is certainly wrong is refused,
    /// with one of these codes:
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
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
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
    /// ```
    pub fn dry_run(mut self) -> Self {
        self.settings.dry_run = true;
        self
    }

    /// Sets how many rows there are, for [`Progress::total`]. Default: what the iterator says, if it knows.
    pub fn total(mut self, rows: u64) -> Self {
        self.settings.total = Some(rows);
        self
    }

    /// Records each finished batch in this journal, and continues after its last record. Default: nothing is recorded.
    ///
    /// To continue, the import needs the same rows in the same order. The first 100 rows are compared before
    /// anything is sent, and those of each finished batch as they are read.
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
    /// A cell that begins with `=`, `+`, `-`, `@`, a tab or a line break, and is not a number, gets an apostrophe in
    /// front: otherwise a spreadsheet would run it as a formula. `CsvRows` removes it from rejects, and from no
    /// other file.
    ///
    /// # Example: mend a row
    ///
    /// ```
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
    /// ```
    pub fn rejects(mut self, file: impl Write + Send + 'static) -> Self {
        self.rejects = Some(Box::new(file));
        self
    }

    /// Sets a function to call whenever a batch has ended, a request waits, or rows of a journal were read.
    /// Default: none.
    ///
    /// # Example: a line for each step
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// let rows = (0..1_000).map(|n| format!("{n}@example.com"));
    ///
    /// contacts
    ///     .import(rows)
    ///     .on_progress(|progress| {
    ///         let total = progress.total().unwrap_or_default();
    ///         println!("{} of {total}, {:.0} rows/s", progress.finished(), progress.rate());
    ///     })
    ///     .await?;
    /// # Ok(()) }
    /// ```
    pub fn on_progress(mut self, show: impl FnMut(&Progress) + Send + 'static) -> Self {
        self.settings.on_progress = Some(Box::new(show));
        self
    }

    /// Limits one attempt of each request, from connecting to the last byte of the response. Default: the
    /// client's [`timeout`](crate::ClientBuilder::timeout).
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.options.timeout = Some(limit);
        self
    }

    /// Limits each request with its retries and waits, not the import as a whole. Default: the client's
    /// [`deadline`](crate::ClientBuilder::deadline) or, if the client has the default deadline, 5 minutes.
    pub fn deadline(mut self, limit: Duration) -> Self {
        self.options.deadline = CallDeadline::After(limit);
        self
    }

    /// Lifts the deadline of the requests, even if the client has one. The timeout of each attempt still
    /// applies.
    pub fn no_deadline(mut self) -> Self {
        self.options.deadline = CallDeadline::Lifted;
        self
    }

    /// Sets the retry policy of each request. Default: the client's [`retry`](crate::ClientBuilder::retry) or, if
    /// the client has the default policy, up to 20 attempts, which wait out an outage of a minute or two and a
    /// `Retry-After` of up to 5 minutes. Once a request has failed for good nevertheless, the service counts
    /// as down: until one succeeds or is refused, the policy and the deadline of the client apply.
    ///
    /// The [`deadline`](Self::deadline) ends the retries, too.
    ///
    /// # Example: wait out an outage of some minutes
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use std::time::Duration;
    /// use audience::RetryPolicy;
    ///
    /// let patient = RetryPolicy::exponential()
    ///     .max_attempts(20)
    ///     .max_retry_after(Duration::from_secs(600));
    ///
    /// let import = contacts.import(["ada@example.com"]).retry(patient);
    /// import.deadline(Duration::from_secs(1_200)).await?;
    /// # Ok(()) }
    /// ```
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.options.retry = Some(policy);
        self
    }

    /// Returns a stream of all rows with their outcomes, in input order. The import runs while the stream is
    /// polled.
    ///
    /// [`rejects`](Self::rejects) are not written then.
    pub fn outcomes(self) -> Outcomes {
        Outcomes(OutcomesState::Starting(Box::pin(self.start(Keep::All))))
    }
}

impl Import {
    /// Runs the import to its end, and writes the rejects.
    async fn run(mut self) -> Result<ImportReport, ImportError> {
        let mut rejects = self.rejects.take().map(Rejects::new);
        let keep = match rejects {
            Some(_) => Keep::Rejects,
            None => Keep::Nothing,
        };
        let mut run = self.start(keep).await?;
        let mut has_ended = false;
        while !has_ended {
            has_ended = !poll_fn(|context| run.poll_change(context)).await;
            while let Some((row, outcome)) = run.next_settled() {
                if let Some(rejects) = &mut rejects {
                    rejects.write(&row, &outcome);
                }
            }
        }
        let written = rejects.map_or(Ok(()), Rejects::finish);
        let report = run.finish()?;
        match written {
            Ok(()) => Ok(report),
            Err(error) => {
                let error = Error::config("could not write the rejects").caused_by(error);
                Err(ImportError::new(report, error))
            }
        }
    }

    /// Checks the journal against the rows, and starts the import.
    async fn start(mut self, keep: Keep) -> Result<Run, ImportError> {
        let mut settings = self.settings;
        settings.total = settings.total.or_else(|| self.source.total());
        let journal = self.journal.filter(|_| !settings.dry_run);
        let (resumed, journal) = match journal {
            None => (None, None),
            Some(journal) => {
                let started = journal
                    .start(self.contacts.base_url(), &mut self.source)
                    .await;
                let (resumed, journal) = started.map_err(ImportError::not_started)?;
                (Some(resumed), Some(journal))
            }
        };
        let sender = Sender::new(self.contacts, self.options, journal);
        Ok(Run::new(self.source, resumed, sender, settings, keep))
    }
}

wait_for_call!(Import => Result<ImportReport, ImportError>);

impl IntoFuture for Import {
    type Output = Result<ImportReport, ImportError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl fmt::Debug for Import {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Import")
            .field("concurrency", &self.settings.concurrency)
            .finish_non_exhaustive()
    }
}

/// All rows of an import with their outcomes, in input order.
///
/// Created by [`Import::outcomes`](super::Import::outcomes). Batches are started while the stream is polled: a
/// slow reader slows the import down, and at most 10,000 rows with an outcome wait for it. The stream ends
/// when every row has an outcome, or when the import stops; [`finish`](Self::finish) tells which.
///
/// # Example: react to each row
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = audience::mock::MockServer::start().await;
/// # let contacts = server.client().contacts();
/// use futures_util::StreamExt;
///
/// let mut outcomes = contacts.import(["ada@example.com", "no address"]).outcomes();
/// while let Some((row, outcome)) = outcomes.next().await {
///     if !outcome.is_applied() {
///         println!("{:?}: {outcome}", row.key_text());
///     }
/// }
/// let report = outcomes.finish()?;
/// assert_eq!((report.created(), report.refused()), (1, 1));
/// # Ok(()) }
/// ```
#[must_use = "an import runs only while its outcomes are polled"]
pub struct Outcomes(OutcomesState);

enum OutcomesState {
    Starting(Pin<Box<dyn Future<Output = Result<Run, ImportError>> + Send>>),
    Running { run: Box<Run>, has_ended: bool },
    Failed(ImportError),
}

impl Outcomes {
    /// Returns the report. If the stream has not ended, the import is canceled, and its report counts what was
    /// done so far.
    ///
    /// # Errors
    ///
    /// [`ImportError`] if the import stopped before its end.
    pub fn finish(self) -> Result<ImportReport, ImportError> {
        match self.0 {
            OutcomesState::Starting(_) => Ok(ImportReport::default()),
            OutcomesState::Running { run, .. } => run.finish(),
            OutcomesState::Failed(error) => Err(error),
        }
    }
}

wait_for_items!(Outcomes);

impl Stream for Outcomes {
    type Item = (ImportRow, RowOutcome);

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match &mut self.0 {
                OutcomesState::Starting(start) => {
                    self.0 = match ready!(start.as_mut().poll(context)) {
                        Ok(run) => OutcomesState::Running {
                            run: Box::new(run),
                            has_ended: false,
                        },
                        Err(error) => OutcomesState::Failed(error),
                    };
                }
                OutcomesState::Running { run, has_ended } => {
                    if let Some(settled) = run.next_settled() {
                        return Poll::Ready(Some(settled));
                    }
                    if *has_ended {
                        return Poll::Ready(None);
                    }
                    *has_ended = !ready!(run.poll_change(context));
                }
                OutcomesState::Failed(_) => return Poll::Ready(None),
            }
        }
    }
}

impl FusedStream for Outcomes {
    fn is_terminated(&self) -> bool {
        match &self.0 {
            OutcomesState::Starting(_) => false,
            OutcomesState::Running { run, has_ended } => *has_ended && !run.has_settled(),
            OutcomesState::Failed(_) => true,
        }
    }
}

impl fmt::Debug for Outcomes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outcomes").finish_non_exhaustive()
    }
}
