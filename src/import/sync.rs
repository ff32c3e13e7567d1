use std::borrow::Cow;
use std::collections::{HashSet, VecDeque};
use std::error::Error as StdError;
use std::fmt;
use std::future::poll_fn;
use std::io::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_core::Stream;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::batch::{Log, Sender};
use super::builder::{DEFAULT_CONCURRENCY, Rejects, drive};
use super::engine::{Keep, Progress, Run, Settings};
use super::report::{ImportReport, RowOutcome};
use super::row::{
    AddressHash, EVERYTHING, Entry, ImportRow, OptOut, Source, SyncTask, TaskKind, add_missing, has,
};
use super::sync_state::{DELETED, EntryReader, Place, Seen, StateWriter, SyncState, fingerprint};
use crate::client::{CallDeadline, CallOptions, wait_for_call};
use crate::contacts::{Contacts, NewContact, Properties, normalized_address};
use crate::{Error, ErrorCode, RetryPolicy};

impl Contacts {
    /// Keeps the contacts in step with a table: sends what has changed since the last run, and nothing else.
    ///
    /// It takes the rows of the table, each with its primary key, and a file that remembers the last run. The guide
    /// [Keeping a list in step](crate::guides::keeping_in_step) shows it with a database.
    ///
    /// # What is sent
    ///
    /// | the row | requests |
    /// |---|---|
    /// | is as it was | none |
    /// | is new, or has other names or properties | an entry of a batch of 100, which creates or updates the contact |
    /// | is not subscribed, and was before, or has a new topic opt-out | one opt-out for each |
    /// | is new and not subscribed | the entry of a batch, then the opt-out |
    /// | has another address | retrieves the contact of the old address and opts it out; then creates the new one with all its opt-outs |
    /// | was deleted, or is missing with [`deletes_missing`](SyncContacts::deletes_missing) | one opt-out of everything: [the interface](crate::interface#4.7) shows no way to delete a contact |
    ///
    /// First come the opt-outs of contacts that are known, then everything else. Each part runs in parallel, at the pace of
    /// an [import](Contacts::import).
    ///
    /// # Consent
    ///
    /// - **A sync never subscribes anybody.** If a row was not subscribed and is now, no request is sent, because the
    ///   "yes" of the table may be older than an opt-out at the service. [`SyncReport::opt_ins_not_sent`] counts such
    ///   rows, and the [`rejects`](SyncContacts::rejects) have their keys. Call [`subscribe`](Contacts::subscribe) when the
    ///   person asks for it.
    /// - **An opt-out that was read is sent, whatever happens then.** It is written to the state file first. If it fails,
    ///   or the program is killed, the next run sends it, even if the row has changed or is missing.
    /// - If two rows have the same address, an opt-out of either counts. Names and properties are those of the row that
    ///   was sent last.
    /// - An address that a row has lost is opted out, unless another row has it.
    ///
    /// # Two runs, and old tables
    ///
    /// A run that was killed is simply started again, with the table as it is then. If the table is restored from a backup,
    /// the contacts get its older names and properties. Opt-outs since then stay, and count as
    /// [`opt_ins_not_sent`](SyncReport::opt_ins_not_sent).
    ///
    /// A table that lacks most rows, or the state file of another table, would opt out contacts by mistake. So the run
    /// ends with an error before it sends anything if more contacts than
    /// [`leave_at_most`](SyncContacts::leave_at_most) lost their row or their address.
    ///
    /// # Errors
    ///
    /// [`SyncError`] if the sync stopped before its end. It holds the report so far and the [`Error`]:
    ///
    /// - `unauthorized` (401) or `key_not_permitted` (403): the key was refused.
    /// - [`ErrorKind::Config`](crate::ErrorKind::Config): the state file or the rejects could not be written, or another
    ///   sync uses the state file.
    /// - [`ErrorKind::Input`](crate::ErrorKind::Input): the state file belongs to another service, too many contacts would
    ///   be left, or a CSV file could not be read to its end.
    ///
    /// Refused rows, failed batches and the plan's ceiling are not errors: the [`SyncReport`] counts them.
    ///
    /// # Example: two nights
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # let path = std::env::temp_dir().join(format!("audience-nights-{}.sync", std::process::id()));
    /// use audience::contacts::NewContact;
    /// use audience::import::{SyncRow, SyncState};
    ///
    /// let ada = || NewContact::new("ada@example.com").first_name("Ada").property("plan", "pro");
    /// let first = [SyncRow::new(7, ada()), SyncRow::new(8, "bob@example.com")];
    /// let report = contacts.sync(first, SyncState::open(&path)?).await?;
    /// assert_eq!(report.changes().created(), 2);
    ///
    /// let second = [SyncRow::new(7, ada()).subscribed(false), SyncRow::new(8, "bob@example.com")];
    /// let report = contacts.sync(second, SyncState::open(&path)?).await?;
    /// assert_eq!((report.opted_out(), report.unchanged()), (1, 1));
    /// assert!(contacts.retrieve("ada@example.com").await?.unsubscribed);
    /// # std::fs::remove_file(path)?;
    /// # Ok(()) }
    /// ```
    pub fn sync<I>(&self, rows: I, state: SyncState) -> SyncContacts
    where
        I: IntoIterator<Item = SyncRow, IntoIter: Send + 'static>,
    {
        SyncContacts::new(self.clone(), Source::from_iter(rows), state)
    }

    /// Keeps the contacts in step with a table like [`sync`](Self::sync), from a stream of its rows.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`sync`](Self::sync).
    ///
    /// # Example: rows from a database or a channel
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # let path = std::env::temp_dir().join(format!("audience-stream-{}.sync", std::process::id()));
    /// use audience::import::{SyncRow, SyncState};
    ///
    /// let rows = futures_util::stream::iter([SyncRow::new(7, "ada@example.com")]);
    ///
    /// let report = contacts.sync_stream(rows, SyncState::open(&path)?).await?;
    ///
    /// assert_eq!(report.changes().created(), 1);
    /// # std::fs::remove_file(path)?;
    /// # Ok(()) }
    /// ```
    pub fn sync_stream<S>(&self, rows: S, state: SyncState) -> SyncContacts
    where
        S: Stream<Item = SyncRow> + Send + 'static,
    {
        SyncContacts::new(self.clone(), Source::from_stream(rows), state)
    }
}

/// One row of the caller's table, for [`Contacts::sync`].
///
/// # Example: a row with everything
///
/// ```
/// use audience::contacts::NewContact;
/// use audience::import::SyncRow;
///
/// let ada = NewContact::new("ada@example.com").first_name("Ada").property("plan", "pro");
/// let row = SyncRow::new(7, ada).subscribed(true).deleted(false).revision("2026-11-23 06:45:33");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct SyncRow {
    key: String,
    row: ImportRow,
    is_deleted: bool,
    revision: Option<String>,
}

impl SyncRow {
    /// Creates a row from its primary key and its contact: an address, a [`NewContact`], or an [`ImportRow`] with topic
    /// opt-outs, for example from CSV.
    ///
    /// The key tells the sync that a row has another address now. It is text or a number that stays with the row and that
    /// no other row has, now or later.
    ///
    /// All properties of the contact are sent, and replace those of the service. Without any, the service's stay. A name
    /// that a row no longer has is cleared. [`on_conflict`](NewContact::on_conflict) is ignored.
    ///
    /// # Example: an address alone, and an opt-out from a topic
    ///
    /// ```
    /// use audience::import::{ImportRow, OptOut, SyncRow};
    ///
    /// let ada = SyncRow::new(7, "ada@example.com");
    /// let bob = ImportRow::from("bob@example.com").opt_out(OptOut::Topic("news".to_owned()));
    /// let bob = SyncRow::new("bob", bob);
    /// ```
    #[expect(clippy::needless_pass_by_value, reason = "as in other constructors")]
    #[must_use]
    pub fn new(key: impl ToString, contact: impl Into<ImportRow>) -> Self {
        let key = key.to_string();
        Self {
            row: contact.into().key(&key),
            key,
            is_deleted: false,
            revision: None,
        }
    }

    /// Sets whether the person may get mail. `false` opts the contact out of everything; `true` never opts it in.
    /// Default: `true`, unless the [`ImportRow`] has an opt-out.
    #[must_use]
    pub fn subscribed(mut self, is_subscribed: bool) -> Self {
        if !is_subscribed && !has(self.row.opt_outs(), &EVERYTHING) {
            self.row = self.row.opt_out(EVERYTHING);
        }
        self
    }

    /// Sets whether the row is marked as deleted. `true` opts the contact out of everything. Default: `false`.
    ///
    /// The names and properties of a deleted row are not sent. It may have lost its address: the opt-out goes to the
    /// address that the row had before.
    #[must_use]
    pub fn deleted(mut self, is_deleted: bool) -> Self {
        self.is_deleted = is_deleted;
        self
    }

    /// Sets a text or number that changes whenever a name or a property changes, such as the time of the last change.
    /// Default: the sync compares names and properties.
    ///
    /// With a revision, a row can be compared before its properties are known. A change of the address or an opt-out is
    /// noticed without another revision.
    #[expect(clippy::needless_pass_by_value, reason = "as in the constructor")]
    #[must_use]
    pub fn revision(mut self, revision: impl ToString) -> Self {
        self.revision = Some(revision.to_string());
        self
    }

    fn address(&self) -> &str {
        self.row.address().trim()
    }

    /// Returns the fingerprint of the names and properties, which is the same in every version and on every machine.
    fn content(&self) -> u64 {
        let mut hash = Sha256::new();
        match (&self.revision, self.row.contact()) {
            (Some(revision), _) => {
                hash.update(b"revision ");
                hash.update(revision);
            }
            (None, Some(contact)) => {
                let members = contact.members();
                let members = (members.first_name, members.last_name, members.properties);
                hash.update(serde_json::to_vec(&members).unwrap_or_default());
            }
            (None, None) => {}
        }
        let digest = hash.finalize();
        let mut first = [0; 8];
        first.copy_from_slice(&digest[..8]);
        u64::from_le_bytes(first)
    }

    /// Returns the names and properties to send, and which of them there are. Those that the row had before are cleared.
    fn contact(&self, before: [bool; 3]) -> (NewContact, [bool; 3]) {
        let mut contact = NewContact::new(self.address());
        let members = self
            .row
            .contact()
            .map(NewContact::members)
            .unwrap_or_default();
        let name = |name: Option<&str>, had: bool| {
            let name = name.map(str::to_owned);
            name.or_else(|| had.then(String::new))
        };
        contact.first_name = name(members.first_name, before[0]);
        contact.last_name = name(members.last_name, before[1]);
        contact.properties = members.properties.cloned();
        if before[2] && contact.properties.is_none() {
            contact.properties = Some(Properties::new());
        }
        let has = [
            members.first_name.is_some(),
            members.last_name.is_some(),
            members.properties.is_some(),
        ];
        (contact, has)
    }
}

/// A sync, run by `.await`, or by `.wait()` with the feature `blocking`: see [`Contacts::sync`].
#[must_use = "a sync runs only when it is awaited or waited for"]
pub struct SyncContacts {
    contacts: Contacts,
    rows: Source<SyncRow>,
    state: SyncState,
    options: CallOptions,
    settings: Settings,
    rejects: Option<Box<dyn Write + Send>>,
    deletes_missing: bool,
    leave_at_most: Option<u64>,
}

impl SyncContacts {
    fn new(contacts: Contacts, rows: Source<SyncRow>, state: SyncState) -> Self {
        Self {
            contacts,
            rows,
            state,
            options: CallOptions::default(),
            settings: Settings {
                concurrency: DEFAULT_CONCURRENCY,
                stop_on_failure: false,
                stop_signal: None,
                dry_run: false,
                total: None,
                on_progress: None,
            },
            rejects: None,
            deletes_missing: false,
            leave_at_most: None,
        }
    }

    /// Opts out the contacts whose rows are missing. Default: only the rows that are there count, so that you may pass
    /// only those that changed.
    ///
    /// If a row could not be read, none counts as missing.
    ///
    /// # Example: a table from which rows are removed
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # let path = std::env::temp_dir().join(format!("audience-missing-{}.sync", std::process::id()));
    /// use audience::import::{SyncRow, SyncState};
    ///
    /// let table = [SyncRow::new(7, "ada@example.com"), SyncRow::new(8, "bob@example.com")];
    /// contacts.sync(table, SyncState::open(&path)?).await?;
    ///
    /// let table = [SyncRow::new(7, "ada@example.com")];
    /// let report = contacts.sync(table, SyncState::open(&path)?).deletes_missing().await?;
    ///
    /// assert_eq!(report.opted_out(), 1);
    /// assert!(contacts.retrieve("bob@example.com").await?.unsubscribed);
    /// # std::fs::remove_file(path)?;
    /// # Ok(()) }
    /// ```
    pub fn deletes_missing(mut self) -> Self {
        self.deletes_missing = true;
        self
    }

    /// Sets how many contacts a run may opt out because their rows are missing or have another address. Default: 100, or a
    /// tenth of all rows of the last run if that is more.
    ///
    /// If there are more, the run sends nothing and ends with an error. Such opt-outs are hard to take back, because no
    /// opt-in is sent.
    ///
    /// # Example: half of the table was removed on purpose
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # let path = std::env::temp_dir().join(format!("audience-half-{}.sync", std::process::id()));
    /// use audience::import::{SyncRow, SyncState};
    ///
    /// let table = |rows| (0..rows).map(|key| SyncRow::new(key, format!("{key}@example.com")));
    /// contacts.sync(table(400), SyncState::open(&path)?).await?;
    ///
    /// let sync = || Ok::<_, audience::Error>(contacts.sync(table(200), SyncState::open(&path)?).deletes_missing());
    /// assert!(sync()?.await.is_err());
    /// assert_eq!(sync()?.leave_at_most(200).await?.opted_out(), 200);
    /// # std::fs::remove_file(path)?;
    /// # Ok(()) }
    /// ```
    pub fn leave_at_most(mut self, contacts: u64) -> Self {
        self.leave_at_most = Some(contacts);
        self
    }

    /// Sends nothing, and counts what would be sent: see [`SyncReport::opted_out`] and [`ImportReport::valid`]. The state
    /// file is read, but not written.
    ///
    /// # Example: look before the first night
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # let path = std::env::temp_dir().join(format!("audience-dry-{}.sync", std::process::id()));
    /// use audience::import::{SyncRow, SyncState};
    ///
    /// let table = [SyncRow::new(7, "ada@example.com"), SyncRow::new(8, "no address")];
    /// let report = contacts.sync(table, SyncState::open(&path)?).dry_run().await?;
    ///
    /// assert_eq!((report.changes().valid(), report.changes().refused()), (1, 1));
    /// assert!(server.requests().is_empty());
    /// # std::fs::remove_file(path)?;
    /// # Ok(()) }
    /// ```
    pub fn dry_run(mut self) -> Self {
        self.settings.dry_run = true;
        self
    }

    /// Sets how many requests may be in flight at most; 0 counts as 1. Default: 16. See
    /// [`Import::concurrency`](super::Import::concurrency).
    pub fn concurrency(mut self, requests: usize) -> Self {
        self.settings.concurrency = requests;
        self
    }

    /// Stops the sync when this future is ready, for example after Ctrl-C. Default: it runs to its end. See
    /// [`Import::stop_when`](super::Import::stop_when).
    ///
    /// The next run sends what was not sent. The table is read to its end before the signal is looked at.
    pub fn stop_when(mut self, signal: impl Future<Output = ()> + Send + 'static) -> Self {
        self.settings.stop_signal = Some(Box::pin(signal));
        self
    }

    /// Writes every row that was not applied in full to this file, as [`Import::rejects`](super::Import::rejects) does.
    /// Default: no rejects are written.
    ///
    /// The column `import_key` has the key. A row with an opt-in that is not sent has the code `opt_in_not_sent`.
    ///
    /// # Example: who has a "yes" in the table and an opt-out at the service
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # let path = std::env::temp_dir().join(format!("audience-opt-in-{}.sync", std::process::id()));
    /// # let rejects = path.with_extension("csv");
    /// use std::fs::{self, File};
    ///
    /// use audience::import::{SyncRow, SyncState};
    ///
    /// let table = |is_subscribed| [SyncRow::new(7, "ada@example.com").subscribed(is_subscribed)];
    /// contacts.sync(table(false), SyncState::open(&path)?).await?;
    ///
    /// let sync = contacts.sync(table(true), SyncState::open(&path)?);
    /// let report = sync.rejects(File::create(&rejects)?).await?;
    ///
    /// assert_eq!(report.opt_ins_not_sent(), 1);
    /// assert!(fs::read_to_string(&rejects)?.contains("opt_in_not_sent"));
    /// # fs::remove_file(path)?;
    /// # fs::remove_file(rejects)?;
    /// # Ok(()) }
    /// ```
    pub fn rejects(mut self, file: impl Write + Send + 'static) -> Self {
        self.rejects = Some(Box::new(file));
        self
    }

    /// Sets a function to call as the sync proceeds, as [`Import::on_progress`](super::Import::on_progress) does. Default:
    /// none.
    ///
    /// The progress begins after the table was read, and counts only what is sent.
    pub fn on_progress(mut self, show: impl FnMut(&Progress) + Send + 'static) -> Self {
        self.settings.on_progress = Some(Box::new(show));
        self
    }

    /// Limits one attempt of each request. Default: the client's [`timeout`](crate::ClientBuilder::timeout).
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.options.timeout = Some(limit);
        self
    }

    /// Limits each request with its retries and waits, not the sync as a whole. Default: as for an
    /// [import](super::Import::deadline).
    pub fn deadline(mut self, limit: Duration) -> Self {
        self.options.deadline = CallDeadline::After(limit);
        self
    }

    /// Lifts the deadline of the requests, even if the client has one.
    pub fn no_deadline(mut self) -> Self {
        self.options.deadline = CallDeadline::Lifted;
        self
    }

    /// Sets the retry policy of each request. Default: as for an [import](super::Import::retry).
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.options.retry = Some(policy);
        self
    }

    async fn run(mut self) -> Result<SyncReport, SyncError> {
        let service = self.contacts.base_url();
        let mut report = SyncReport::default();
        let not_started = |error| SyncError::new(SyncReport::default(), error);
        let mut state = self.state.claim(&service).await.map_err(not_started)?;
        let mut plan = Plan::new(state_reader(&state).map_err(not_started)?);
        plan.read(&mut self.rows, &mut state)
            .await
            .map_err(not_started)?;
        let most = self.leave_at_most;
        let planned = plan.complete(&mut state, self.deletes_missing, most);
        planned.map_err(not_started)?;
        report.unchanged = plan.unchanged;
        report.opt_ins_not_sent = plan.opt_ins.len() as u64;
        let mut rejects = self.rejects.take().map(Rejects::new);
        if let Some(rejects) = &mut rejects {
            for row in &plan.opt_ins {
                rejects.write(row, &opt_in_not_sent());
            }
        }
        let keep = match rejects {
            Some(_) => Keep::Rejects,
            None => Keep::Nothing,
        };
        self.settings.total = Some(plan.first.len() as u64 + plan.second.count);
        let (source, log, writer) = match self.settings.dry_run {
            true => {
                let opt_outs = plan.first.iter().filter(|row| opts_out(row)).count();
                report.planned_opt_outs = opt_outs as u64;
                let rows = plan.second.filter_map(|later| Some(later.ok()?.row.row));
                let unreadable = plan.first.into_iter().filter(|row| row.task().is_none());
                (
                    Source::from_iter(unreadable.chain(rows)),
                    Log::Nowhere,
                    None,
                )
            }
            false => {
                let reader = state_reader(&state).map_err(not_started)?;
                let writer = state.start(&service).await.map_err(not_started)?;
                let started = plan.first.iter().filter_map(|row| row.task()?.pending());
                let written = writer.record(started.collect()).await;
                written.map_err(|error| not_started(unwritable(error)))?;
                self.contacts.hold_back(state.hold());
                let second = Second {
                    rows: plan.second,
                    reader,
                    writer: writer.clone(),
                };
                let source = Source::from_iter(plan.first).then(second);
                (source, Log::State(writer.clone()), Some(writer))
            }
        };
        let sender = Sender::new(self.contacts, self.options, log);
        let mut run = Run::new(source, None, sender, self.settings, keep);
        drive(&mut run, rejects.as_mut()).await;
        let written = rejects.map_or(Ok(()), Rejects::finish);
        let ended = run.finish();
        let mut error = None;
        report.changes = match ended {
            Ok(changes) => changes,
            Err(stopped) => {
                let (changes, stopped) = stopped.into_parts();
                error = Some(stopped);
                changes
            }
        };
        if let Some(writer) = writer {
            // Last: a run that was killed before tells of these opt-ins again.
            let recorded = writer.append(plan.silent.iter()).await;
            error = error.or_else(|| recorded.err().map(unwritable));
            state.shrink(&writer);
        }
        if let Err(failed) = written {
            let failed = Error::config("could not write the rejects").caused_by(failed);
            error.get_or_insert(failed);
        }
        match error {
            None => Ok(report),
            Some(error) => Err(SyncError::new(report, error)),
        }
    }
}

fn state_reader(state: &SyncState) -> Result<EntryReader, Error> {
    let reader = state.reader();
    reader.map_err(|error| Error::config("could not read the sync state").caused_by(error))
}

fn unwritable(error: Arc<std::io::Error>) -> Error {
    Error::config("could not write the sync state").caused_by(error)
}

fn opts_out(row: &ImportRow) -> bool {
    let kind = row.task().map(|task| task.kind);
    matches!(
        kind,
        Some(TaskKind::OptOut | TaskKind::Leave { opts_out: true })
    )
}

fn opt_in_not_sent() -> RowOutcome {
    RowOutcome::Refused {
        code: ErrorCode::from("opt_in_not_sent"),
        message: Some(
            "the row is subscribed, but an earlier run has recorded an opt-out; subscribe the contact when the person asks for it"
                .to_owned(),
        ),
        retryable: false,
    }
}

impl SyncTask {
    /// Returns the entry to record before anything is sent.
    fn pending(&self) -> Option<Entry> {
        self.started
            .clone()
            .filter(|_| self.kind == TaskKind::OptOut)
    }
}

wait_for_call!(SyncContacts => Result<SyncReport, SyncError>);

impl IntoFuture for SyncContacts {
    type Output = Result<SyncReport, SyncError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl fmt::Debug for SyncContacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SyncContacts")
            .field("state", &self.state.path())
            .finish_non_exhaustive()
    }
}

/// What a sync has to do, found by a comparison of the table with the state.
struct Plan {
    reader: EntryReader,
    unchanged: u64,
    /// Opt-outs of contacts that are known, and rows that cannot be sent.
    first: Vec<ImportRow>,
    /// Contacts to create or update.
    second: Queue,
    /// Entries that change without a request.
    silent: Vec<Entry>,
    opt_ins: Vec<ImportRow>,
    /// Keys that no sync has seen before this one.
    new_keys: HashSet<[u64; 2]>,
    /// The addresses of all rows that are not deleted.
    addresses: Vec<u64>,
    has_unreadable: bool,
}

/// A row of the second part, and the place of its entry.
struct Later {
    row: SyncRow,
    place: Option<Place>,
}

/// The rows of the second part, as JSON, which takes a fourth of the memory of the rows themselves.
#[derive(Default)]
struct Queue {
    chunks: VecDeque<Vec<u8>>,
    /// How much of the first chunk was read.
    read: usize,
    count: u64,
    /// The column names of the inputs, which the rows of an input share.
    columns: Vec<Arc<[String]>>,
}

/// A row in the queue.
#[derive(Serialize, Deserialize)]
struct Queued<'a> {
    key: Cow<'a, str>,
    contact: Cow<'a, NewContact>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    revision: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "<[OptOut]>::is_empty")]
    opt_outs: Cow<'a, [OptOut]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    input: Option<Cow<'a, [String]>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    columns: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    place: Option<Place>,
}

/// Large enough that a chunk costs little, and small enough to be freed while others are sent.
const CHUNK: usize = 1 << 18;

impl Queue {
    fn push(&mut self, row: &SyncRow, place: Option<Place>) {
        let Some(contact) = row.row.contact() else {
            return;
        };
        let columns = row.row.shared_input_columns().map(|columns| {
            let is_last = |last: &Arc<[String]>| Arc::ptr_eq(last, columns);
            if !self.columns.last().is_some_and(is_last) {
                self.columns.push(columns.clone());
            }
            self.columns.len() - 1
        });
        let queued = Queued {
            key: row.key.as_str().into(),
            contact: Cow::Borrowed(contact),
            revision: row.revision.as_deref().map(Into::into),
            opt_outs: row.row.opt_outs().into(),
            line: row.row.line_number(),
            input: row.row.input_cells().map(Into::into),
            columns,
            place,
        };
        if self.chunks.back().is_none_or(|chunk| chunk.len() >= CHUNK) {
            self.chunks.push_back(Vec::with_capacity(CHUNK + CHUNK / 8));
        }
        if let Some(chunk) = self.chunks.back_mut() {
            serde_json::to_writer(&mut *chunk, &queued)
                .expect("a row without a problem can be written as JSON");
            chunk.push(b'\n');
            self.count += 1;
        }
    }
}

impl Iterator for Queue {
    type Item = serde_json::Result<Later>;

    fn next(&mut self) -> Option<Self::Item> {
        let chunk = self.chunks.front()?;
        let rest = &chunk[self.read..];
        let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
            self.chunks.pop_front();
            self.read = 0;
            return self.next();
        };
        let queued = serde_json::from_slice::<Queued<'_>>(&rest[..end]);
        let later = queued.map(|queued| {
            let mut row = ImportRow::new(queued.contact.into_owned());
            if !queued.opt_outs.is_empty() {
                row = row.with_opt_outs(queued.opt_outs.into_owned());
            }
            if let Some(line) = queued.line {
                row = row.line(line);
            }
            if let Some(cells) = queued.input {
                row = row.input(cells.into_owned());
            }
            if let Some(columns) = queued.columns {
                row = row.input_columns(self.columns[columns].clone());
            }
            let mut row = SyncRow::new(queued.key, row);
            row.revision = queued.revision.map(Cow::into_owned);
            Later {
                row,
                place: queued.place,
            }
        });
        self.read += end + 1;
        Some(later)
    }
}

/// The rows to read at one go before other tasks get a turn.
const MAX_READ: usize = 1_000;

impl Plan {
    fn new(reader: EntryReader) -> Self {
        Self {
            reader,
            unchanged: 0,
            first: Vec::new(),
            second: Queue::default(),
            silent: Vec::new(),
            opt_ins: Vec::new(),
            new_keys: HashSet::new(),
            addresses: Vec::new(),
            has_unreadable: false,
        }
    }

    async fn read(
        &mut self,
        rows: &mut Source<SyncRow>,
        state: &mut SyncState,
    ) -> Result<(), Error> {
        for number in 1.. {
            let Some(row) = poll_fn(|context| rows.poll_next(context)).await else {
                break;
            };
            self.add(row, state)?;
            if number % MAX_READ == 0 {
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    fn add(&mut self, row: SyncRow, state: &mut SyncState) -> Result<(), Error> {
        let seen = state.known().see(&row.key);
        if row.row.problem().is_some() {
            self.has_unreadable |= row.row.contact().is_none();
            self.first.push(row.row);
            return Ok(());
        }
        let is_again = match seen {
            Seen::Again => true,
            Seen::New(key) => !self.new_keys.insert(key),
            Seen::Before(..) => false,
        };
        if is_again {
            self.add_duplicate(&row);
            return Ok(());
        }
        if !row.is_deleted {
            self.addresses
                .push(AddressHash::new(row.address()).number());
        }
        match seen {
            Seen::Before(found, place) => self.add_known(&row, found, place),
            _ if row.is_deleted => {
                // An import may have created the contact.
                let entry = Entry {
                    key: row.key.clone(),
                    address: row.address().to_owned(),
                    ..Entry::default()
                };
                self.delete(&row.row, entry);
                Ok(())
            }
            _ => {
                self.second.push(&row, None);
                Ok(())
            }
        }
    }

    /// Refuses a row whose key another row has. Its opt-outs count nevertheless.
    fn add_duplicate(&mut self, row: &SyncRow) {
        let refused = ImportRow::unreadable("an earlier row has the same key").key(&row.key);
        self.first.push(match row.row.line_number() {
            Some(line) => refused.line(line),
            None => refused,
        });
        let mut opt_outs = row.row.opt_outs().to_vec();
        if row.is_deleted {
            add_missing(&mut opt_outs, [&EVERYTHING]);
        }
        if !opt_outs.is_empty() {
            let task = opt_out_task(None, None);
            self.first
                .push(bare(&row.row, row.address(), opt_outs, task));
        }
    }

    fn add_known(&mut self, row: &SyncRow, found: u64, place: Place) -> Result<(), Error> {
        let opt_outs = row.row.opt_outs();
        let (content, now) = match row.is_deleted {
            true => (0, DELETED),
            false => {
                let content = row.content();
                (content, fingerprint(row.address(), content, opt_outs))
            }
        };
        if found == now {
            self.unchanged += 1;
            return Ok(());
        }
        let entry = self.reader.read(place)?;
        if row.is_deleted {
            self.delete(&row.row, entry);
            return Ok(());
        }
        let lost = |opt_out: &&OptOut| !has(opt_outs, opt_out);
        if entry.opt_outs.iter().any(|opt_out| lost(&opt_out)) {
            self.opt_ins.push(row.row.clone());
        }
        if normalized_address(&entry.address) != normalized_address(row.address()) {
            let task = SyncTask {
                // Whether it opts out is known when the whole table was read.
                kind: TaskKind::Leave { opts_out: false },
                recorded: Vec::new(),
                started: Some(entry),
                done: None,
            };
            self.first.push(row.row.clone().with_task(task));
            self.second.push(row, Some(place));
            return Ok(());
        }
        let is_changed = entry.content != Some(content);
        // A run that was killed has maybe left this address. Now that the row has it again, only the wishes count.
        let mut to_send = entry.carried.as_ref().unwrap_or(&entry.left).clone();
        add_missing(
            &mut to_send,
            opt_outs
                .iter()
                .filter(|opt_out| !has(&entry.opt_outs, opt_out)),
        );
        let mut kept = entry.opt_outs.clone();
        kept.retain(|opt_out| has(opt_outs, opt_out) || is_for_later(&entry, opt_out));
        let next = Entry {
            opt_outs: kept,
            is_gone: false,
            carried: None,
            ..entry
        };
        if !to_send.is_empty() {
            self.opt_out(&row.row, next, to_send);
        } else if !is_changed {
            self.silent.push(next);
        }
        if is_changed {
            self.second.push(row, Some(place));
        }
        Ok(())
    }

    /// Opts out the contact of a row that was deleted or is missing.
    fn delete(&mut self, row: &ImportRow, entry: Entry) {
        let is_out = has(&entry.opt_outs, &EVERYTHING) && entry.left.is_empty();
        let mut opt_outs = entry.left.clone();
        let next = Entry {
            is_gone: true,
            carried: None,
            ..entry
        };
        if is_out {
            return self.silent.push(next);
        }
        add_missing(&mut opt_outs, [&EVERYTHING]);
        self.opt_out(row, next, opt_outs);
    }

    fn opt_out(&mut self, row: &ImportRow, entry: Entry, opt_outs: Vec<OptOut>) {
        let mut done = entry.clone();
        done.left.clear();
        add_missing(&mut done.opt_outs, &opt_outs);
        let address = entry.address.clone();
        let started = Entry {
            left: opt_outs.clone(),
            ..entry
        };
        let task = opt_out_task(Some(started), Some(done));
        self.first.push(bare(row, &address, opt_outs, task));
    }

    /// Adds the rows that are missing, and decides which addresses that rows have lost are opted out.
    fn complete(
        &mut self,
        state: &mut SyncState,
        deletes_missing: bool,
        at_most: Option<u64>,
    ) -> Result<(), Error> {
        let deletes_missing = deletes_missing && !self.has_unreadable;
        if !deletes_missing {
            self.addresses
                .extend(state.known().unseen_addresses().map(AddressHash::number));
        }
        self.addresses.sort_unstable();
        let mut left = 0;
        let mut opted_out = HashSet::new();
        // From the end: of several rows that had one address, all look at its contact before the last opts it out.
        for row in self.first.iter_mut().rev() {
            let Some(task) = row.task_mut() else { continue };
            if let (TaskKind::Leave { opts_out }, Some(entry)) = (&mut task.kind, &task.started) {
                let address = AddressHash::new(&entry.address).number();
                *opts_out =
                    self.addresses.binary_search(&address).is_err() && opted_out.insert(address);
                left += u64::from(*opts_out);
            }
        }
        let unseen: Vec<_> = state.known().unseen(deletes_missing).collect();
        for (place, address) in unseen {
            let entry = self.reader.read(place)?;
            let row = ImportRow::from(entry.address.as_str()).key(&entry.key);
            let is_held = self.addresses.binary_search(&address.number()).is_ok();
            if !deletes_missing || entry.is_gone || is_held {
                // An opt-out that was read is sent, even if nothing else is known of its row now.
                match entry.left.is_empty() {
                    false => {
                        let to_send = entry.left.clone();
                        let is_gone = entry.is_gone || deletes_missing;
                        self.opt_out(&row, Entry { is_gone, ..entry }, to_send);
                    }
                    true if deletes_missing && !entry.is_gone => {
                        self.silent.push(Entry {
                            is_gone: true,
                            ..entry
                        });
                    }
                    true => {}
                }
                continue;
            }
            left += u64::from(!has(&entry.opt_outs, &EVERYTHING));
            self.delete(&row, entry);
        }
        let most = at_most.unwrap_or_else(|| MIN_LEFT.max(state.known().count() / 10));
        if left > most {
            return Err(Error::input(format!(
                "{left} contacts would be opted out because their rows are missing or have another address, and the limit is \
                 {most}; nothing was sent; check the table and the state file, or raise the limit"
            )));
        }
        // Rows that leave an address look at it before it is opted out for another row.
        self.first.sort_by_key(|row| {
            !matches!(
                row.task().map(|task| task.kind),
                Some(TaskKind::Leave { .. })
            )
        });
        Ok(())
    }
}

/// How many contacts may be left in any case.
const MIN_LEFT: u64 = 100;

/// Returns whether a contact that may not exist yet, after a crash, must get an opt-out when it is created: one that it
/// takes from its old address. The opt-out of everything by a deletion ends with the deletion.
fn is_for_later(entry: &Entry, opt_out: &OptOut) -> bool {
    let by_deletion = entry.is_gone && matches!(opt_out, OptOut::Everything(_));
    entry.content.is_none() && !by_deletion
}

fn opt_out_task(started: Option<Entry>, done: Option<Entry>) -> SyncTask {
    SyncTask {
        kind: TaskKind::OptOut,
        recorded: Vec::new(),
        started,
        done,
    }
}

/// Returns a row that has only opt-outs, so that nothing else of it can be refused.
fn bare(row: &ImportRow, address: &str, opt_outs: Vec<OptOut>, task: SyncTask) -> ImportRow {
    let row = row.clone().with_contact(NewContact::new(address));
    row.with_opt_outs(opt_outs).with_task(task)
}

/// The rows of the second part, which depend on what became of the first.
struct Second {
    rows: Queue,
    reader: EntryReader,
    writer: StateWriter,
}

impl Iterator for Second {
    type Item = ImportRow;

    fn next(&mut self) -> Option<ImportRow> {
        loop {
            let Ok(Later { row, place }) = self.rows.next()? else {
                // It was written as JSON a moment before.
                return Some(ImportRow::unreadable("the row could not be read again"));
            };
            let before = match self.writer.find_recent(&row.key) {
                Some(entry) => entry,
                None => match place.map(|place| self.reader.read(place)) {
                    Some(Ok(entry)) => entry,
                    Some(Err(_)) => {
                        let reason = "the entry of the row in the sync state could not be read";
                        return Some(ImportRow::unreadable(reason).key(&row.key));
                    }
                    None => Entry {
                        address: row.address().to_owned(),
                        ..Entry::default()
                    },
                },
            };
            if let Some(row) = upsert(&row, before) {
                return Some(row);
            }
        }
    }
}

/// Returns the row that creates or updates the contact; `None` if its old address could not be left.
fn upsert(row: &SyncRow, before: Entry) -> Option<ImportRow> {
    let has_moved = normalized_address(&before.address) != normalized_address(row.address());
    let (contact, members) = row.contact(match has_moved {
        true => [false; 3],
        false => before.members,
    });
    let wanted = row.row.opt_outs();
    let (opt_outs, recorded, left) = match has_moved {
        false => {
            let mut recorded = before.opt_outs.clone();
            add_missing(&mut recorded, &before.left);
            let mut opt_outs = wanted.to_vec();
            // After a crash, the contact may not have existed when they were sent.
            if before.content.is_none() {
                recorded.retain(|opt_out| is_for_later(&before, opt_out));
                add_missing(&mut opt_outs, &recorded);
                recorded.clear();
            }
            (opt_outs, recorded, before.left)
        }
        true => {
            let carried = before.carried.filter(|_| before.left.is_empty())?;
            let mut opt_outs = wanted.to_vec();
            add_missing(&mut opt_outs, &carried);
            (opt_outs, Vec::new(), Vec::new())
        }
    };
    let done = Entry {
        key: row.key.clone(),
        address: row.address().to_owned(),
        content: Some(row.content()),
        members,
        opt_outs: wanted.to_vec(),
        left: left.clone(),
        carried: None,
        is_gone: false,
    };
    let mut maybe_left = left;
    add_missing(
        &mut maybe_left,
        opt_outs.iter().filter(|opt_out| !has(&recorded, opt_out)),
    );
    let mut sure = wanted.to_vec();
    sure.retain(|opt_out| !has(&maybe_left, opt_out));
    let had = before.members;
    let started = Entry {
        content: None,
        members: [0, 1, 2].map(|member| members[member] || had[member] && !has_moved),
        opt_outs: sure,
        left: maybe_left,
        ..done.clone()
    };
    let task = SyncTask {
        kind: TaskKind::Upsert,
        recorded,
        started: Some(started),
        done: Some(done),
    };
    let row = row.row.clone().with_contact(contact);
    Some(row.with_opt_outs(opt_outs).with_task(task))
}

/// Counts what a sync has done.
///
/// Its `Display` is the summary line: `3 unchanged, 1 opted out, 0 opt-ins not sent; 1 created, 0 updated, …`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SyncReport {
    unchanged: u64,
    #[serde(default)]
    planned_opt_outs: u64,
    opt_ins_not_sent: u64,
    changes: ImportReport,
}

impl SyncReport {
    /// Returns how many rows are as they were, so that nothing was sent for them.
    #[must_use]
    pub fn unchanged(&self) -> u64 {
        self.unchanged
    }

    /// Returns how many contacts that earlier runs have sent were opted out: rows that are not subscribed any more, have a
    /// new topic opt-out, were deleted or are missing, and addresses that rows have lost. In a dry run, how many would be.
    ///
    /// The opt-outs of new rows are not counted here, because [`changes`](Self::changes) counts those rows. A row with an
    /// opt-out and a change is counted in both.
    #[must_use]
    pub fn opted_out(&self) -> u64 {
        self.planned_opt_outs + self.changes.opted_out()
    }

    /// Returns how many rows are subscribed, or subscribed to a topic, although an earlier run has recorded an opt-out. Each
    /// counts once, in the run that notices it.
    ///
    /// No opt-in was sent: see [`Contacts::sync`]. The [`rejects`](SyncContacts::rejects) have the keys.
    #[must_use]
    pub fn opt_ins_not_sent(&self) -> u64 {
        self.opt_ins_not_sent
    }

    /// Returns the counts of all rows that were new or had changed, as an import counts them. A row whose opt-out failed
    /// counts as [`opt_out_failed`](ImportReport::opt_out_failed).
    ///
    /// An old address that was not opted out, because another row has it or because it was opted out already, counts as
    /// [`skipped`](ImportReport::skipped).
    ///
    /// # Example: fail a job if a row was refused
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # let path = std::env::temp_dir().join(format!("audience-changes-{}.sync", std::process::id()));
    /// use audience::import::{SyncRow, SyncState};
    ///
    /// let table = [SyncRow::new(7, "ada@example.com"), SyncRow::new(8, "no address")];
    /// let report = contacts.sync(table, SyncState::open(&path)?).await?;
    ///
    /// let changes = report.changes();
    /// assert_eq!((changes.created(), changes.refused()), (1, 1));
    /// # std::fs::remove_file(path)?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn changes(&self) -> &ImportReport {
        &self.changes
    }

    /// Returns whether the service has everything that the table says: no row was refused, every row was sent, and all
    /// outcomes are known. Otherwise, the next run tries the rest again.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.changes.is_complete() && self.changes.refused() == 0
    }
}

impl fmt::Display for SyncReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} unchanged, {} opted out, {} opt-ins not sent; {}",
            self.unchanged,
            self.opted_out(),
            self.opt_ins_not_sent,
            self.changes
        )
    }
}

/// A sync that stopped before its end, with its report and the error that stopped it.
///
/// `Display` prints the counts and then the error. So `source()` returns the cause of that error, not the error itself:
/// [`error`](Self::error) does. It does not convert to an [`Error`], because an `Error` cannot hold the report. Return it unchanged, or as a
/// `Box<dyn std::error::Error>`.
#[derive(Debug)]
pub struct SyncError(Box<(SyncReport, Error)>);

impl SyncError {
    fn new(report: SyncReport, error: Error) -> Self {
        Self(Box::new((report, error)))
    }

    /// Returns the report up to the stop.
    #[must_use]
    pub fn report(&self) -> &SyncReport {
        &self.0.0
    }

    /// Returns the error that stopped the sync.
    #[must_use]
    pub fn error(&self) -> &Error {
        &self.0.1
    }
}

impl fmt::Display for SyncError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (report, error) = &*self.0;
        write!(f, "the sync stopped before its end: {report}: {error}")
    }
}

impl StdError for SyncError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        // `Display` has the error itself.
        self.error().source()
    }
}
