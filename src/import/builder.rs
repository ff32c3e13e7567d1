use std::fmt;
use std::io::Write;
use std::pin::Pin;
use std::time::Duration;

use super::error::ImportError;
use super::journal::Journal;
use super::outcomes::Outcomes;
use super::progress::Progress;
use super::report::ImportReport;
use super::run::Settings;
use super::runner::{Job, run};
use super::source::Source;
use crate::RetryPolicy;
use crate::client::{CallDeadline, CallOptions, wait_for_call};
use crate::contacts::Contacts;

/// The number of batches in flight, unless [`Import::max_in_flight`] sets it.
const DEFAULT_MAX_IN_FLIGHT: usize = 16;

/// An import, run by `.await`: see [`Contacts::import`].
#[must_use = "an import runs only when it is awaited"]
pub struct Import {
    job: Job,
    rejects: Option<Box<dyn Write + Send>>,
}

impl Import {
    pub(super) fn new(contacts: Contacts, source: Source) -> Self {
        Self {
            job: Job {
                contacts,
                source,
                options: CallOptions::default(),
                journal: None,
                settings: Settings {
                    max_in_flight: DEFAULT_MAX_IN_FLIGHT,
                    stop_on_failure: false,
                    stop_signal: None,
                    dry_run: false,
                    total: None,
                },
                on_progress: None,
            },
            rejects: None,
        }
    }

    /// Sets how many batches may be in flight at most; 0 counts as 1. Default: 16.
    ///
    /// How many are in flight adapts to the service: see the [module](crate::import).
    pub fn max_in_flight(mut self, batches: usize) -> Self {
        self.job.settings.max_in_flight = batches;
        self
    }

    /// Stops the import at the first batch that fails for good. Default: the rest goes on.
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
    /// # #[cfg(feature = "mock")]
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # server.fault(audience::mock::Fault::status(501));
    /// let rows = (0..1_000).map(|n| format!("{n}@example.com"));
    ///
    /// let stopped = contacts.import(rows).max_in_flight(1).stop_on_failure().await.unwrap_err();
    ///
    /// assert_eq!((stopped.report().unknown(), stopped.report().not_sent()), (100, 900));
    /// # }
    /// # #[cfg(not(feature = "mock"))] fn main() {}
    /// ```
    pub fn stop_on_failure(mut self) -> Self {
        self.job.settings.stop_on_failure = true;
        self
    }

    /// Stops the import when this future is ready, for example because somebody pressed Ctrl-C: no further batch
    /// is started, those in flight are finished, and the report counts all other rows as not sent. With a
    /// journal, the same import goes on there. Default: it runs to its end.
    ///
    /// The rest of the rows is still read, so that the report and the rejects have them. Rows that never end must be
    /// made to end by the same signal, for example with `take_until` of the crate `futures-util`.
    ///
    /// A batch that waits for a retry is not retried: its rows are reported as not sent or unknown. Opt-outs of rows
    /// that were applied are still retried, which can take minutes if the service is down: see
    /// [`retry`](Self::retry). To stop at once, drop the import. The outcome of the batches in flight is then
    /// unknown; with a journal, the next run sends them again.
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
        self.job.settings.stop_signal = Some(Box::pin(signal));
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
        self.job.settings.dry_run = true;
        self
    }

    /// Sets how many rows there are, for [`Progress::total`]. Default: what the iterator says, if it knows.
    pub fn total(mut self, rows: u64) -> Self {
        self.job.settings.total = Some(rows);
        self
    }

    /// Records what is finished in this journal, and goes on where it ends. Default: nothing is recorded.
    ///
    /// To go on, the import needs the same rows in the same order. The first 100 rows are compared before
    /// anything is sent, and those of each finished batch as they are read.
    pub fn journal(mut self, journal: Journal) -> Self {
        self.job.journal = Some(journal);
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

    /// Sets a function to call whenever a batch has ended, a request waits, or rows of a journal were read.
    /// Default: none.
    ///
    /// # Example: a line for each step
    ///
    /// ```
    /// # #[cfg(feature = "mock")]
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
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
    /// # #[cfg(not(feature = "mock"))] fn main() {}
    /// ```
    pub fn on_progress(mut self, show: impl FnMut(&Progress) + Send + 'static) -> Self {
        self.job.on_progress = Some(Box::new(show));
        self
    }

    /// Limits one attempt of each request, from connecting to the last byte of the response. Default: the
    /// client's [`timeout`](crate::ClientBuilder::timeout).
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.job.options.timeout = Some(limit);
        self
    }

    /// Limits each request with its retries and waits, not the import as a whole. Default: the client's
    /// [`deadline`](crate::ClientBuilder::deadline) or, if the client has the default deadline, 5 minutes.
    pub fn deadline(mut self, limit: Duration) -> Self {
        self.job.options.deadline = CallDeadline::After(limit);
        self
    }

    /// Lifts the deadline of the requests, even if the client has one. The timeout of each attempt still
    /// applies.
    pub fn no_deadline(mut self) -> Self {
        self.job.options.deadline = CallDeadline::Lifted;
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
    /// # #[cfg(feature = "mock")]
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
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
    /// # #[cfg(not(feature = "mock"))] fn main() {}
    /// ```
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.job.options.retry = Some(policy);
        self
    }

    /// Returns a stream of all rows with their outcomes, in input order. The import runs while the stream is
    /// polled.
    ///
    /// [`rejects`](Self::rejects) are not written then.
    pub fn outcomes(self) -> Outcomes {
        Outcomes::new(self.job)
    }
}

wait_for_call!(Import => Result<ImportReport, ImportError>);

impl IntoFuture for Import {
    type Output = Result<ImportReport, ImportError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(run(self.job, self.rejects))
    }
}

impl fmt::Debug for Import {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Import")
            .field("max_in_flight", &self.job.settings.max_in_flight)
            .finish_non_exhaustive()
    }
}
