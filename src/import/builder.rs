use std::fmt;
use std::future::poll_fn;
use std::io::Write;
use std::pin::Pin;
use std::time::Duration;

use futures_core::Stream;

use super::error::ImportError;
use super::journal::Journal;
use super::outcomes::Outcomes;
use super::progress::Progress;
use super::rejects::Rejects;
use super::report::ImportReport;
use super::row::ImportRow;
use super::run::Settings;
use super::runner::Job;
use super::settled::Keep;
use super::source::Source;
use crate::client::{CallDeadline, CallOptions};
use crate::contacts::Contacts;
use crate::{Error, RetryPolicy};

/// The number of batches in flight, unless [`Import::max_in_flight`] sets it.
const DEFAULT_MAX_IN_FLIGHT: usize = 16;

impl Contacts {
    /// Imports contacts, however many: in batches of 100, several at once.
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
    /// [`ImportError`] if the import stopped before its end. It has the report so far, and an [`Error`] that
    /// says why:
    ///
    /// - `unauthorized` (401) or `key_not_permitted` (403): the key was refused.
    /// - [`ErrorKind::Config`](crate::ErrorKind::Config): the journal could not be written, or another import
    ///   uses it. Rows that it could not record are reported as unknown.
    /// - [`ErrorKind::Input`](crate::ErrorKind::Input): the journal belongs to other rows or to another service.
    /// - The error of the first batch that failed, with [`stop_on_failure`](Import::stop_on_failure).
    ///
    /// Refused rows, failed batches and the plan's ceiling are no errors: the [`ImportReport`] counts them.
    ///
    /// # Example: import a list of addresses
    ///
    /// ```
    /// # #[cfg(feature = "mock")]
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// let report = contacts.import(["ada@example.com", "bob@example.com", "no address"]).await?;
    ///
    /// assert_eq!((report.created(), report.refused()), (2, 1));
    /// # Ok(()) }
    /// # #[cfg(not(feature = "mock"))] fn main() {}
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
    /// # #[cfg(feature = "mock")]
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// let rows = futures_util::stream::iter(["ada@example.com", "bob@example.com"]);
    ///
    /// let report = contacts.import_stream(rows).await?;
    ///
    /// assert_eq!(report.created(), 2);
    /// # Ok(()) }
    /// # #[cfg(not(feature = "mock"))] fn main() {}
    /// ```
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
    job: Job,
    rejects: Option<Box<dyn Write + Send>>,
}

impl Import {
    fn new(contacts: Contacts, source: Source) -> Self {
        Self {
            job: Job {
                contacts,
                source,
                options: CallOptions::default(),
                journal: None,
                settings: Settings {
                    max_in_flight: DEFAULT_MAX_IN_FLIGHT,
                    stop_on_failure: false,
                    dry_run: false,
                    total: None,
                },
                on_progress: None,
            },
            rejects: None,
        }
    }

    /// Sets how many batches may be in flight at once at the most; 0 counts as 1. Default: 16.
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

    /// Checks all rows and sends nothing.
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

    /// Writes every row that was not applied in full to this file, as CSV.
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
    /// [`deadline`](crate::ClientBuilder::deadline).
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

    /// Sets the retry policy of each request. Default: the client's [`retry`](crate::ClientBuilder::retry).
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
    /// contacts.import(["ada@example.com"]).retry(patient).await?;
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

impl IntoFuture for Import {
    type Output = Result<ImportReport, ImportError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(run(self))
    }
}

async fn run(import: Import) -> Result<ImportReport, ImportError> {
    let mut rejects = import.rejects.map(Rejects::new);
    let keep = match rejects {
        Some(_) => Keep::NotApplied,
        None => Keep::Nothing,
    };
    let mut runner = import.job.start(keep).await?;
    let mut has_ended = false;
    while !has_ended {
        has_ended = !poll_fn(|context| runner.poll_change(context)).await;
        while let Some((row, outcome)) = runner.next_settled() {
            if let Some(rejects) = &mut rejects {
                rejects.write(&row, &outcome);
            }
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
}

impl fmt::Debug for Import {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Import")
            .field("settings", &self.job.settings)
            .finish_non_exhaustive()
    }
}
