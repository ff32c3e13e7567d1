use std::fmt;
use std::fs::File;
use std::future::poll_fn;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use futures_core::stream::FusedStream;

use super::batch::{ListedAddresses, Log, Sender};
use super::csv::{LEADING_COLUMNS, escape, line};
use super::engine::{Keep, Progress, Run, Settings, Work};
use super::journal::Journal;
use super::other_audience::{SAMPLE, check_audience};
use super::record_file::{lock_in_time, try_lock, unlock};
use super::report::{ImportError, ImportReport, RowOutcome};
use super::row::{ImportRow, OptOut, Source};
use crate::client::{CallDeadline, CallOptions, TakesOptions, wait_for_call, wait_for_items};
use crate::contacts::{Contacts, NewContact};
use crate::secret::for_owner_only;
use crate::{Error, RetryPolicy};

impl Contacts {
    /// Imports any number of contacts, in batches of 100 that run in parallel.
    ///
    /// It takes any iterator of [`NewContact`]s, addresses or [`ImportRow`]s, and
    /// reads rows only as it needs them. The [module](crate::import) describes duplicates, failures, opt-outs and
    /// crashes.
    ///
    /// Dropping the future cancels the import. Batches in flight may still be applied; with a
    /// [`journal`](Import::journal), the next import resumes after the last batch that was recorded.
    ///
    /// # Errors
    ///
    /// [`ImportError`] if the import stopped before its end. It holds the report so far and the [`Error`]
    /// that stopped the import:
    ///
    /// - `unauthorized` (401) or `key_not_permitted` (403): the key was refused. A 403 that does not come from the service
    ///   only counts after 100 requests in a row that failed: see the [module](crate::import#what-an-import-does).
    /// - [`ErrorKind::Config`](crate::ErrorKind::Config): the journal could not be written, another import uses the
    ///   journal or the [`rejects_file`](Import::rejects_file), or the rejects could not be written. Rows that the
    ///   journal could not record are reported as unknown.
    /// - [`ErrorKind::Input`](crate::ErrorKind::Input): the journal belongs to other rows or to another service, the
    ///   service has none of the contacts that the journal records, or a CSV file could not be read to its end.
    /// - The error of the first batch that failed, with [`stop_on_failure`](Import::stop_on_failure).
    /// - The error of the request for a contact that the [`journal`](Import::journal) records, if nothing is left to send.
    ///
    /// If the rejects could not be written either, the text of any of these errors ends with that.
    ///
    /// Refused rows, failed batches and the plan's ceiling are not errors: the
    /// [`ImportReport`] counts them. Even if the service was down for every row, the result is `Ok`:
    /// [`finished`](ImportReport::finished) says whether everything was done.
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
    /// A batch is sent when it is full. If no batch is in flight and the stream has no further row yet, the rows so far
    /// are sent. So a slow stream does not delay the rows that have already arrived.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`import`](Self::import).
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
pub(super) const DEFAULT_CONCURRENCY: usize = 16;

/// An import, run by `.await`, or by `.wait()` with the feature `blocking`: see [`Contacts::import`].
#[must_use = "an import runs only when it is awaited or waited for"]
pub struct Import {
    contacts: Contacts,
    source: Source,
    options: CallOptions,
    journal: Option<Journal>,
    pub(super) settings: Settings,
    rejects: Option<RejectsTo>,
    listed: ListedAddresses,
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
                stop_at_ceiling: true,
                stop_signal: None,
                work: Work::Send,
                dry_run: Arc::default(),
                total: None,
                on_progress: None,
            },
            rejects: None,
            listed: ListedAddresses::default(),
        }
    }

    /// Sets how many batches may be in flight at most; 0 counts as 1. Default: 16.
    ///
    /// The actual number adapts to the service: see the [module](crate::import).
    ///
    /// # Example: leave room for other callers of the service
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// let rows = (0..300).map(|n| format!("{n}@example.com"));
    ///
    /// let import = contacts.import(rows).concurrency(1);
    /// let report = import.on_progress(|progress| assert!(progress.in_flight() <= 1)).await?;
    ///
    /// assert_eq!(report.created(), 300);
    /// # Ok(()) }
    /// ```
    pub fn concurrency(mut self, batches: usize) -> Self {
        self.settings.concurrency = batches;
        self
    }

    /// Stops the import at the first batch that fails permanently. Default: the import continues with the next batch.
    ///
    /// The rows after it are reported as not sent, and the result is an [`ImportError`] with the error of the
    /// batch. A batch with refused rows has not failed.
    ///
    /// Use it for rows with [`OnConflict::Error`](crate::contacts::OnConflict::Error): a resumed import
    /// does not send such a row again if its outcome is unknown, so a long outage should not affect many of them.
    ///
    /// # Example: stop when the service is down
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # server.fault(audience::mock::Fault::status(505));
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

    /// Stops the import when this future is ready. Default: the import runs to its end. For SIGTERM and Ctrl-C, pass
    /// [`shutdown_signal()`](crate::shutdown_signal).
    ///
    /// The import starts no further batch, finishes the batches in flight, and reports all other rows as not sent. With
    /// a journal, the next import resumes there.
    ///
    /// The remaining rows are still read, so that the report and the rejects include them. If the rows never end, end
    /// them with the same signal, for example with `take_until` of the crate `futures-util`.
    ///
    /// This takes up to the [`timeout`](Self::timeout) of one attempt, so set that below the time that your program has.
    ///
    /// The report says that the import [was stopped](ImportReport::is_stopped). A batch that waits for a retry is not
    /// retried: its rows are reported as not sent or unknown. With a journal, opt-outs of rows that were applied are
    /// neither begun nor retried any more, and count as failed: the next import sends them. Without a journal, none
    /// would. So then, they are still sent and retried, which can take minutes: see [`retry`](Self::retry).
    ///
    /// To stop immediately, drop the import. Then the outcome of the batches in flight is unknown; with a journal, the
    /// next run sends them again.
    ///
    /// # Example: stop when another part of the program says so
    ///
    /// The signal of this example comes before the first batch, so nothing is sent.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// let (stop, asked) = tokio::sync::oneshot::channel();
    /// stop.send(()).unwrap();
    ///
    /// let rows = (0..1_000).map(|n| format!("{n}@example.com"));
    /// let report = contacts.import(rows).stop_when(async { asked.await.unwrap_or(()) }).await?;
    ///
    /// assert_eq!((report.created(), report.not_sent()), (0, 1_000));
    /// # Ok(()) }
    /// ```
    pub fn stop_when(mut self, signal: impl Future<Output = ()> + Send + 'static) -> Self {
        self.settings.stop_signal = Some(Box::pin(signal));
        self
    }

    /// Checks all rows and sends nothing. A journal is neither read nor written.
    ///
    /// An unusual address that the service might accept is valid. A row that the service certainly refuses is reported
    /// as refused, with one of these codes:
    ///
    /// - `invalid_row`: the row could not be read.
    /// - `invalid_address`: no `@`, nothing before or after it, white space, two addresses in one, a character
    ///   that no address or domain has, an empty part of the domain, or more than 254 bytes.
    /// - `invalid_property`: a name that is empty, has white space around it or a control character in it, or a
    ///   value that is neither text nor a number ([interface section 2.1](crate::interface#2.1)).
    ///
    /// The last two are codes of the dry run only. In an import, the service refuses such a row as `validation_error`
    /// ([section 7](crate::interface#7)).
    ///
    /// The report counts the other rows as [valid](ImportReport::valid), and among them the
    /// [duplicates](ImportReport::duplicates): rows with the same
    /// [normalized address](crate::contacts::normalized_address) as an earlier row. To find them, the dry run keeps a
    /// few bytes for each address.
    ///
    /// # Example: check a list before the import
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// let rows = ["ada@example.com", "ADA@example.com", "ada at example.com"];
    ///
    /// let report = contacts.import(rows).dry_run().await?;
    ///
    /// assert_eq!((report.valid(), report.duplicates()), (2, 1));
    /// assert_eq!(report.refused_by_code().next(), Some(("invalid_address", 1)));
    /// assert_eq!(server.contact_count(), 0);
    /// # Ok(()) }
    /// ```
    pub fn dry_run(mut self) -> Self {
        self.settings.work = Work::DryRun;
        self
    }

    /// Looks whether the service has the contact of each row, and each opt-out, and changes nothing. A journal is neither
    /// read nor written. Run it after an import, before the first broadcast.
    ///
    /// Verify with the same mapping, and call [`CsvInput::opt_out_all`](super::CsvInput::opt_out_all) again if you did so for
    /// the import: otherwise the rows have no opt-out, and `verify` looks for none. The rejects then have the column
    /// `unsubscribed`, and need no `opt_out_all`.
    ///
    /// Each row with an opt-out takes one request, which retrieves its contact. So does each of the first 200 rows without
    /// one. The next of these lists all contacts, 200 in each request, and the others use the same list. Only a row whose
    /// address is not found takes further requests, which make sure that the contact is missing: usually one to retrieve it,
    /// and one to list it. So with the key of another audience, where every contact is missing, it takes about two requests
    /// for each row. The addresses of the list take about 20 MB of memory for a million contacts. Names and properties are
    /// not compared. The report counts these rows:
    ///
    /// - [`valid`](ImportReport::valid): the service has the contact of the row, and every opt-out of the row. For a topic,
    ///   the answer `false` is enough, even if it may be the topic's default ([interface section
    ///   2.1](crate::interface#2.1)).
    /// - [`opt_out_missing`](ImportReport::opt_out_missing): the contact can get broadcasts although the row opts it out.
    ///   [`finished`](ImportReport::finished) is an error then. The rejects have these rows: import them with
    ///   [`OnConflict::Skip`](crate::contacts::OnConflict::Skip), which changes nothing but the opt-outs.
    /// - refused with the code `not_found`: there is no contact. [`finished`](ImportReport::finished) is no error then, so
    ///   look at [`refused`](ImportReport::refused), too. It is 0 if everybody is there.
    /// - refused with another code: the row is unreadable, so nothing was looked for.
    ///
    /// The other rows could not be looked at. If the contacts cannot be listed, these are the rows that need the list.
    /// [`finished`](ImportReport::finished) is an error then, too, and none of them counts as missing.
    ///
    /// The rejects have the rows with `not_found`, too, and people who have opted in after the import are missing
    /// opt-outs. So look at the rejects before you import them, and delete the rows of people who have opted in or were
    /// deleted: for `not_found`, the import creates the contact.
    ///
    /// # Example: nothing is lost
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::import::CsvRows;
    ///
    /// let list = "email,unsubscribed\nada@example.com,yes\nbob@example.com,no\n";
    /// let rows = || CsvRows::new(list.as_bytes());
    ///
    /// println!("{}", contacts.import(rows()?).await?.finished()?);
    /// println!("{}", contacts.import(rows()?).verify().await?.finished()?);
    ///
    /// contacts.subscribe("ada@example.com").await?;
    /// let report = contacts.import(rows()?).verify().await?;
    /// assert_eq!((report.valid(), report.opt_out_missing()), (1, 1));
    /// assert!(report.finished().is_err());
    /// # Ok(()) }
    /// ```
    pub fn verify(mut self) -> Self {
        self.settings.work = Work::Verify;
        self
    }

    /// Sets the number of rows, for [`Progress::total`]. Default: the size hint of the iterator, if it is exact.
    ///
    /// # Example: a CSV file, which is read twice to count its rows
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::import::CsvRows;
    ///
    /// let file = "email\nada@example.com\nbob@example.com\n";
    /// let count = CsvRows::new(file.as_bytes())?.count();
    ///
    /// let import = contacts.import(CsvRows::new(file.as_bytes())?).total(count as u64);
    /// let report = import.on_progress(|progress| assert_eq!(progress.total(), Some(2))).await?;
    /// assert_eq!(report.created(), 2);
    /// # Ok(()) }
    /// ```
    pub fn total(mut self, rows: u64) -> Self {
        self.settings.total = Some(rows);
        self
    }

    /// Records each finished batch in this journal, and resumes after its last record. Default: nothing is recorded.
    ///
    /// If an earlier import ended because a 429 asked for a long wait, the resumed import sends nothing before the end
    /// of that wait, as if the client had received the 429 itself (see
    /// [`RetryPolicy`](crate::RetryPolicy#retry-after)).
    ///
    /// To resume, the import needs the same rows in the same order. It compares the first 100 rows before it sends
    /// anything, and the rows of each recorded batch as it reads them.
    ///
    /// It also needs the key of the same audience. With another key, it would send nothing of what is recorded, and
    /// report it as done. So it first looks for up to ten contacts that the journal records among these rows, and stops
    /// at the first that exists: usually, this takes one request. If there are at least five, and the service has none
    /// of them, the import ends with an error of the kind [`Input`](crate::ErrorKind::Input). If the key is refused,
    /// the import ends with that error. If the request fails for another reason, the import continues, and ends with that
    /// error only if it has nothing to send.
    ///
    /// # Example: continue after an outage
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # let path = std::env::temp_dir().join(format!("audience-outage-{}.journal", std::process::id()));
    /// # server.fault(audience::mock::Fault::status(505).after(1).times(1));
    /// use audience::import::Journal;
    ///
    /// let rows = || (0..300).map(|n| format!("{n}@example.com"));
    /// let import = || contacts.import(rows()).concurrency(1);
    ///
    /// let stopped = import().journal(Journal::open(&path)?).stop_on_failure().await.unwrap_err();
    /// assert_eq!(stopped.report().created(), 100);
    ///
    /// let report = import().journal(Journal::open(&path)?).await?;
    /// assert_eq!(report.created(), 300);
    /// # assert_eq!(server.requests().len(), 5);
    /// # std::fs::remove_file(path)?;
    /// # Ok(()) }
    /// ```
    pub fn journal(mut self, journal: Journal) -> Self {
        self.journal = Some(journal);
        self
    }

    /// Writes every row that was not applied in full to this file, as [`rejects`](Self::rejects) does. Default: no
    /// rejects are written.
    ///
    /// The run empties the file when it has locked its journal, if it has one, and the file itself. So a second run
    /// that is started by mistake cannot destroy the rejects of the first one: it waits 5 s for the locks, and then
    /// fails. Only the owner can read a new file (on Unix). On Windows, no other program can read the file until the
    /// run has ended.
    ///
    /// A run without rejects removes the file at its end (on Unix), also one that an earlier run has written. If the path
    /// is a symbolic link, the file stays and is empty. A dry run does the same, so give it another file.
    ///
    /// It must not be the file that the rows are read from.
    ///
    /// # Example: rejects beside the list
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # let path = std::env::temp_dir().join(format!("audience-beside-{}.csv", std::process::id()));
    /// let report = contacts.import(["ada@example.com", "no address"]).rejects_file(&path).await?;
    ///
    /// assert_eq!((report.created(), report.refused()), (1, 1));
    /// assert!(std::fs::read_to_string(&path)?.contains("no address"));
    /// # std::fs::remove_file(path)?;
    /// # Ok(()) }
    /// ```
    pub fn rejects_file(mut self, path: impl AsRef<Path>) -> Self {
        self.rejects = Some(RejectsTo::Path(path.as_ref().to_owned()));
        self
    }

    /// Writes every row that was not applied in full to this writer, as CSV in UTF-8, in input order. Default: no
    /// rejects are written. To write them to a file, use [`rejects_file`](Self::rejects_file): `File::create` would
    /// empty the file even if another run writes to it.
    ///
    /// The first line names the columns: `line`, `code`, `message` and `retryable`, then the columns of the input. You
    /// can fix the file and import it again, because [`CsvRows`](super::CsvRows) ignores the first four. Rows that are
    /// not from CSV have the columns `email`, `first_name`, `last_name`, `properties`, `on_conflict`, `unsubscribed`,
    /// `unsubscribe_reason`, `topics` and `import_key`, which `CsvRows` also reads. Nothing is written if every row was
    /// applied.
    ///
    /// A cell that begins with `=`, `+`, `-`, `@`, a tab or a line break, and is not a number, gets an apostrophe in
    /// front, because a spreadsheet would run it as a formula. `CsvRows` removes the apostrophe from rejects only.
    ///
    /// If you have mapped a column, its meaning stands after its name, such as `Weekly (topic:news)` or `Private (mapped to
    /// email)`. So it is read in the same way even if you do not map it again.
    ///
    /// # Example: fix a row
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # let path = std::env::temp_dir().join(format!("audience-rejects-{}.csv", std::process::id()));
    /// use std::fs;
    ///
    /// use audience::import::CsvRows;
    ///
    /// let rows = CsvRows::new("email,plan\nada@example.com,pro\ngrace at example.com,free\n".as_bytes())?;
    /// let report = contacts.import(rows).rejects_file(&path).await?;
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
    pub fn rejects(mut self, writer: impl Write + Send + 'static) -> Self {
        self.rejects = Some(RejectsTo::Writer(Box::new(writer)));
        self
    }

    /// Sets a function to call when a batch has ended, when a request starts or ends a wait, when rows were settled
    /// without a request, for example from a journal, and otherwise once a second. Default: none.
    ///
    /// # Example: a line every ten seconds
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use std::time::{Duration, Instant};
    ///
    /// let rows = (0..1_000).map(|n| format!("{n}@example.com"));
    /// let mut next = Instant::now();
    ///
    /// let report = contacts
    ///     .import(rows)
    ///     .on_progress(move |progress| {
    ///         if Instant::now() >= next {
    ///             println!("{progress}"); // "300 of 1000 rows, 9000/s, 0 s left"
    ///             next = Instant::now() + Duration::from_secs(10);
    ///         }
    ///     })
    ///     .await?;
    /// println!("{report}");
    /// # Ok(()) }
    /// ```
    pub fn on_progress(mut self, show: impl FnMut(&Progress) + Send + 'static) -> Self {
        self.settings.on_progress = Some(Box::new(show));
        self
    }

    /// Limits one attempt of each request, from connecting to the last byte of the response. Default: the
    /// client's [`timeout`](crate::ClientBuilder::timeout).
    ///
    /// # Example: a service that is slow on large batches
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use std::time::Duration;
    ///
    /// let import = contacts.import(["ada@example.com"]).timeout(Duration::from_secs(60));
    ///
    /// assert_eq!(import.await?.created(), 1);
    /// # Ok(()) }
    /// ```
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.options.timeout = Some(limit);
        self
    }

    /// Limits each request with its retries and waits, not the import as a whole. Default: the client's
    /// [`deadline`](crate::ClientBuilder::deadline) or, if the client has the default deadline, 5 minutes.
    ///
    /// # Example: try each batch for half an hour
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use std::time::Duration;
    /// use audience::RetryPolicy;
    ///
    /// let import = contacts.import(["ada@example.com"]).deadline(Duration::from_secs(1_800));
    /// let import = import.retry(RetryPolicy::exponential().max_attempts(100));
    ///
    /// assert_eq!(import.await?.created(), 1);
    /// # Ok(()) }
    /// ```
    pub fn deadline(mut self, limit: Duration) -> Self {
        self.options.deadline = CallDeadline::After(limit);
        self
    }

    /// Lifts the deadline of the requests, even if the client has one. The timeout of each attempt still
    /// applies.
    ///
    /// # Example: a job at night, with the client of a web application
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use std::time::Duration;
    ///
    /// // A visitor waits no longer than 5 seconds, but the job has time.
    /// let client = server.client_builder().deadline(Duration::from_secs(5)).build()?;
    /// let report = client.contacts().import(["ada@example.com"]).no_deadline().await?;
    ///
    /// assert_eq!(report.created(), 1);
    /// # Ok(()) }
    /// ```
    pub fn no_deadline(mut self) -> Self {
        self.options.deadline = CallDeadline::Lifted;
        self
    }

    /// Sets the retry policy of each request. Default: the client's [`retry`](crate::ClientBuilder::retry) or, if
    /// the client has the default policy, up to 20 attempts.
    ///
    /// The 20 attempts cover an outage of a minute or two and a `Retry-After` of up to 5 minutes. If a request fails
    /// permanently in spite of them, the client's own policy and deadline apply until a request gets a response. They also
    /// apply to the halves of a batch that failed with a 500.
    /// The [`deadline`](Self::deadline) also ends the retries.
    ///
    /// # Example: be patient for 20 minutes
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
    /// println!("{}", import.deadline(Duration::from_secs(1_200)).await?);
    /// # Ok(()) }
    /// ```
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.options.retry = Some(policy);
        self
    }

    /// Returns a stream of all rows with their outcomes, in input order. The import runs while the stream is
    /// polled.
    ///
    /// The stream writes no [`rejects`](Self::rejects).
    ///
    /// # Example: the outcome of every row
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::import::RowOutcome;
    /// use futures_util::StreamExt;
    ///
    /// let rows = ["ada@example.com", "ada@example.com"];
    /// let outcomes: Vec<_> = contacts.import(rows).outcomes().map(|(_, outcome)| outcome).collect().await;
    ///
    /// assert_eq!(outcomes, [RowOutcome::Created, RowOutcome::Updated]);
    /// # Ok(()) }
    /// ```
    pub fn outcomes(self) -> Outcomes {
        Outcomes(OutcomesState::Starting(Box::pin(self.start(Keep::All))))
    }
}

impl Import {
    /// Verifies with a list that several imports share, so that only the first of them lists the contacts.
    pub(super) fn listed(mut self, listed: ListedAddresses) -> Self {
        self.listed = listed;
        self
    }

    /// Runs the import to its end, and writes the rejects.
    async fn run(mut self) -> Result<ImportReport, ImportError> {
        let work = self.settings.work;
        let not_started = |error| work.not_started(error);
        let rejects = RejectsTo::open(self.rejects.take()).map_err(not_started)?;
        let keep = match rejects {
            Some(_) => Keep::Rejects,
            None => Keep::Nothing,
        };
        let mut run = self.start(keep).await?;
        let journal = run.journal().cloned();
        let begun = Rejects::begin(rejects, None).await;
        let mut rejects = begun.map_err(not_started)?;
        drive(&mut run, rejects.as_mut()).await;
        // Flushed even if the import has failed: the rejects then list the rows up to the stop.
        let written = rejects.map_or(Ok(()), Rejects::finish);
        let (report, error) = match run.finish() {
            Ok(report) => (report, None),
            Err(stopped) => {
                let (report, error) = stopped.into_parts();
                (report, Some(error))
            }
        };
        if let Some(error) = with_unwritten(error, written) {
            return Err(ImportError::new(report, error));
        }
        if let Some(journal) = journal.filter(|_| report.leaves_no_row()) {
            // Without this record, the next run only has to get to its end, too.
            let _ = journal.record_ended(report.total()).await;
        }
        Ok(report)
    }

    /// Checks the journal against the rows, and starts the import.
    async fn start(mut self, keep: Keep) -> Result<Run, ImportError> {
        let mut settings = self.settings;
        let work = settings.work;
        let not_started = |error| work.not_started(error);
        settings.total = settings.total.or_else(|| self.source.total());
        // Only what was sent may be marked as finished.
        let journal = self.journal.filter(|_| work == Work::Send);
        let (resumed, unchecked, log) = match journal {
            None => (None, None, Log::Nowhere),
            Some(journal) => {
                let started = journal
                    .start(self.contacts.client.base_url(), &mut self.source)
                    .await;
                let (resumed, journal) = started.map_err(not_started)?;
                // An earlier run may have ended because of a long `Retry-After`.
                self.contacts.client.hold_back(resumed.hold());
                let sample = resumed.sample(&mut self.source, SAMPLE).await;
                let find = |address| self.contacts.find(address).options(self.options.clone());
                let checked = check_audience(
                    sample,
                    find,
                    &mut settings.stop_signal,
                    "the journal records",
                    "begin with a new journal",
                );
                let unchecked = checked.await.map_err(not_started)?;
                let begun = journal.record_begun(&resumed).await;
                begun.map_err(not_started)?;
                (Some(resumed), unchecked, Log::Journal(journal))
            }
        };
        let mut sender = Sender::new(self.contacts, self.options, log);
        sender.listed = self.listed;
        let source = self.source;
        Ok(Run::new(source, resumed, unchecked, sender, settings, keep))
    }
}

/// Runs an import to its end, and writes its rejects.
pub(super) async fn drive(run: &mut Run, mut rejects: Option<&mut Rejects>) {
    let mut has_ended = false;
    while !has_ended {
        has_ended = !poll_fn(|context| run.poll_change(context)).await;
        while let Some((row, outcome)) = run.next_settled() {
            if let Some(rejects) = &mut rejects {
                rejects.write(&row, &outcome);
            }
        }
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
/// Created by [`Import::outcomes`](super::Import::outcomes). Batches are started while the stream is polled. A
/// slow reader slows the import down: at most 10,000 rows with an outcome wait for it. The stream ends when
/// every row has an outcome, or when the import stops; [`finish`](Self::finish) returns the report or the error.
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
    /// Returns the report. If the stream has not ended, this cancels the import, and the report counts the rows so
    /// far.
    ///
    /// # Errors
    ///
    /// [`ImportError`] if the import stopped before its end.
    ///
    /// # Example: stop at the first row that was not applied
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use futures_util::StreamExt;
    ///
    /// let rows = ["ada@example.com", "no address", "bob@example.com"];
    /// let mut outcomes = contacts.import(rows).outcomes();
    /// while let Some((_, outcome)) = outcomes.next().await {
    ///     if outcome.is_reject() {
    ///         break;
    ///     }
    /// }
    ///
    /// assert_eq!(outcomes.finish()?.refused(), 1);
    /// # Ok(()) }
    /// ```
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
                    // All settled rows first: `poll_change` expects that none is left.
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

/// The columns of rows that are not from CSV, in the text form of [`Column`](super::Column).
const OWN_COLUMNS: [&str; 9] = [
    "email",
    "first_name",
    "last_name",
    "properties",
    "on_conflict",
    "unsubscribed",
    "unsubscribe_reason",
    "topics",
    "import_key",
];

/// Where the rejects go, as the caller has set it.
pub(super) enum RejectsTo {
    Writer(Box<dyn Write + Send>),
    Path(PathBuf),
}

impl RejectsTo {
    /// Opens the file, if it is one, without changing it: it may belong to another run. A path that cannot be written
    /// is an error before anything is recorded.
    pub(super) fn open(rejects: Option<Self>) -> Result<Option<Opened>, Error> {
        Ok(match rejects {
            None => None,
            Some(Self::Writer(writer)) => Some(Opened::Writer(writer)),
            Some(Self::Path(path)) => Some(Opened::File(RejectsFile::open(path)?)),
        })
    }
}

pub(super) enum Opened {
    Writer(Box<dyn Write + Send>),
    File(RejectsFile),
}

fn unwritable(error: io::Error) -> Error {
    Error::config("could not write the rejects").caused_by(error)
}

/// Returns the error of a run with the failure to write its rejects, if they could not be written.
pub(super) fn with_unwritten(error: Option<Error>, written: io::Result<()>) -> Option<Error> {
    match (error, written) {
        (error, Ok(())) => error,
        (None, Err(failed)) => Some(unwritable(failed)),
        // Only the kind: the text of a writer of the caller may contain anything.
        (Some(error), Err(failed)) => {
            let failure = format!("and could not write the rejects ({})", failed.kind());
            Some(error.adding(failure))
        }
    }
}

/// The file of the rejects. When this is dropped, an empty file is removed (on Unix), and the lock ends. A file whose
/// path is a symbolic link stays: to remove the link would send the next rejects to another place.
pub(super) struct RejectsFile {
    path: PathBuf,
    file: File,
    is_locked: bool,
}

impl RejectsFile {
    fn open(path: PathBuf) -> Result<Self, Error> {
        let mut options = File::options();
        options.write(true).create(true).truncate(false);
        let file = for_owner_only(&mut options).open(&path);
        Ok(Self {
            path,
            file: file.map_err(unwritable)?,
            is_locked: false,
        })
    }

    /// Locks the file and empties it. A device, such as a terminal, is used as it is.
    async fn empty(mut self) -> Result<Self, Error> {
        while self.file.metadata().map_err(unwritable)?.is_file() {
            if !lock_in_time(&self.file).await {
                return Err(Error::config(
                    "another run is writing to the file of the rejects; wait for its end, or choose another file",
                )
                .retryable());
            }
            self.is_locked = true;
            // The run that had the lock may have removed the file.
            if cfg!(unix) && !self.is_in_place() {
                self = Self::open(self.path.clone())?;
                continue;
            }
            self.file.set_len(0).map_err(unwritable)?;
            break;
        }
        Ok(self)
    }

    /// Returns whether the path leads to this regular file, and to no other one since.
    #[cfg(unix)]
    fn is_in_place(&self) -> bool {
        use std::os::unix::fs::MetadataExt as _;

        let (Ok(open), Ok(found)) = (self.file.metadata(), std::fs::metadata(&self.path)) else {
            return false;
        };
        open.is_file() && (open.dev(), open.ino()) == (found.dev(), found.ino())
    }

    /// Returns `false`: a file that another program has open keeps its name on Windows when it is removed.
    #[cfg(not(unix))]
    fn is_in_place(&self) -> bool {
        false
    }
}

impl Drop for RejectsFile {
    fn drop(&mut self) {
        // Another run may be writing to it.
        if !self.is_locked && !try_lock(&self.file) {
            return;
        }
        let is_empty = self.file.metadata().is_ok_and(|file| file.len() == 0);
        let path = std::fs::symlink_metadata(&self.path);
        let is_link = path.is_ok_and(|path| path.is_symlink());
        if is_empty && !is_link && self.is_in_place() {
            // An empty file does no harm.
            let _ = std::fs::remove_file(&self.path);
        }
        unlock(&self.file);
    }
}

impl Write for RejectsFile {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.file.write(text)
    }

    /// At the end: after a power failure, the rejects must not have fewer rows than the journal has finished.
    fn flush(&mut self) -> io::Result<()> {
        match self.is_locked {
            true => self.file.sync_data(),
            // A device, such as a terminal.
            false => Ok(()),
        }
    }
}

/// Writes rejects: `line, code, message, retryable`, then the columns of the input.
pub(super) struct Rejects {
    file: BufWriter<Box<dyn Write + Send>>,
    /// The columns after the leading ones. If the caller does not know them, they are those of the first row.
    columns: Option<Vec<String>>,
    has_header: bool,
    result: io::Result<()>,
}

impl Rejects {
    /// Begins to write. Call it when the run has locked its other files. `columns` are those of the input, if rows
    /// without an input may come first.
    pub(super) async fn begin(
        rejects: Option<Opened>,
        columns: Option<&[String]>,
    ) -> Result<Option<Self>, Error> {
        let writer: Box<dyn Write + Send> = match rejects {
            None => return Ok(None),
            Some(Opened::Writer(writer)) => writer,
            Some(Opened::File(file)) => Box::new(file.empty().await?),
        };
        Ok(Some(Self {
            file: BufWriter::new(writer),
            columns: columns.map(<[String]>::to_vec),
            has_header: false,
            result: Ok(()),
        }))
    }

    pub(super) fn write(&mut self, row: &ImportRow, outcome: &RowOutcome) {
        if self.result.is_ok() {
            self.result = self.try_write(row, outcome);
        }
    }

    fn try_write(&mut self, row: &ImportRow, outcome: &RowOutcome) -> io::Result<()> {
        let (columns, mut cells) = layout(row);
        let header = self.columns.get_or_insert_with(|| columns.clone());
        if !std::mem::replace(&mut self.has_header, true) {
            let leading = LEADING_COLUMNS.map(str::to_owned).to_vec();
            write_line(&mut self.file, &[leading, header.clone()].concat())?;
        }
        // A row of another input, or of none: it must not be read under these columns, not even after a spreadsheet has
        // given every row the same length.
        if *header != columns {
            cells.splice(..0, vec![String::new(); header.len()]);
        }
        let number = row.line_number().map(|number| number.to_string());
        let retryable = outcome.is_retryable().to_string();
        let leading = vec![
            number.unwrap_or_default(),
            outcome.code().to_owned(),
            outcome.message().unwrap_or_default().to_owned(),
            retryable,
        ];
        write_line(&mut self.file, &[leading, cells].concat())
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        self.result?;
        self.file.flush()
    }
}

fn write_line(file: &mut impl Write, cells: &[String]) -> io::Result<()> {
    let text = line(cells.iter().map(|cell| escape(cell)));
    file.write_all(text.as_bytes())
}

fn layout(row: &ImportRow) -> (Vec<String>, Vec<String>) {
    match row.input_cells() {
        Some(cells) => {
            let columns = row.input_column_names().map(<[String]>::to_vec);
            let numbered = || {
                (1..=cells.len())
                    .map(|number| format!("column {number}"))
                    .collect()
            };
            (columns.unwrap_or_else(numbered), cells.to_vec())
        }
        None => (OWN_COLUMNS.map(str::to_owned).to_vec(), own_cells(row)),
    }
}

fn own_cells(row: &ImportRow) -> Vec<String> {
    let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
    let members = row.contact().map(NewContact::members).unwrap_or_default();
    let everything = row.opt_outs().iter().find_map(|opt_out| match opt_out {
        OptOut::Everything(reason) => Some(*reason),
        OptOut::Topic(_) => None,
    });
    let topics: serde_json::Map<_, _> = row
        .opt_outs()
        .iter()
        .filter_map(|opt_out| match opt_out {
            OptOut::Topic(name) => Some((name.clone(), false.into())),
            OptOut::Everything(_) => None,
        })
        .collect();
    vec![
        text(row.contact().map(|contact| contact.email.as_str())),
        text(members.first_name),
        text(members.last_name),
        members.properties.map(json).unwrap_or_default(),
        members
            .on_conflict
            .map(|choice| unquoted(&choice))
            .unwrap_or_default(),
        everything.map(|_| "true".to_owned()).unwrap_or_default(),
        everything
            .map(|reason| unquoted(&reason))
            .unwrap_or_default(),
        match topics.is_empty() {
            true => String::new(),
            false => json(&topics),
        },
        text(row.key_text()),
    ]
}

/// Returns a value as JSON. A number that JSON cannot represent leaves the cell empty; the message of the
/// reject says so.
fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Returns the text of a value that serializes as text.
fn unquoted(value: &impl serde::Serialize) -> String {
    json(value).trim_matches('"').to_owned()
}
