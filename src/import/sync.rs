use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::error::Error as StdError;
use std::fmt;
use std::future::poll_fn;
use std::io::Write;
use std::path::Path;
use std::pin::Pin;
use std::process::{ExitCode, Termination};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::batch::{Log, Sender};
use super::builder::{DEFAULT_CONCURRENCY, Rejects, RejectsTo, drive, with_unwritten};
use super::engine::{Keep, Progress, Run, Settings, Work, check_contact};
use super::other_audience::{SMALLEST_SAMPLE, check_audience};
use super::report::{ImportError, ImportReport, RowOutcome};
use super::row::{
    AddressHash, EVERYTHING, Entry, ImportRow, OldAddress, OptOut, Source, SyncTask, TaskKind,
    add_missing, has, number_of,
};
use super::sync_state::{
    DELETED, EntryReader, Found, History, Place, Seen, StateWriter, SyncState, count, fingerprint,
};
use crate::any_error::{REFUSED, exit_after};
use crate::client::{CallDeadline, CallOptions, TakesOptions, is_path_segment, wait_for_call};
use crate::contacts::{
    Contact, ContactStream, Contacts, FullContactStream, NewContact, Properties, PropertyValue,
    normalized_address,
};
use crate::sync::lock;
use crate::{Error, ErrorCode, ErrorKind, Outcome, RetryPolicy};

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
    /// | is subscribed, and was not before | retrieves the contact, to see whether it has opted in at the service |
    /// | is new, or has other names or properties | an entry of a batch of 100, which creates or updates the contact |
    /// | is not subscribed, and was before | retrieves the contact, and opts it out if it is not opted out already |
    /// | has a new topic opt-out | one opt-out for each |
    /// | is new and not subscribed | the entry of a batch, then the opt-out; a contact that existed is retrieved before |
    /// | has another address | retrieves the contact of the old address, creates the new one with all its opt-outs, retrieves the old one again for opt-outs since, and then opts it out |
    /// | was deleted, or is missing with [`deletes_missing`](SyncContacts::deletes_missing) | retrieves the contact, and opts it out of everything if it is not opted out already: [the interface](crate::interface#4.7) shows no way to delete a contact. Sends nothing if another row has the address. Rows of earlier runs that are not in the table count as well, unless the run deletes missing rows |
    ///
    /// First come the opt-outs of rows that are known, then everything else, and at the end the opt-outs of old
    /// addresses. The requests of each part run in parallel, at the pace of an [import](Contacts::import).
    ///
    /// After a 404, one more request lists the contacts with the address. Only if the address is not among them, there
    /// is no contact to opt out. Otherwise, a gateway may have sent the 404: the opt-out failed, and the next run sends
    /// it.
    ///
    /// # Names and properties
    ///
    /// A name or all properties that a row does not have stay as the service has them, but what the row had before is
    /// cleared. If another row has or had the address, the service may have the data of another person. Then all names
    /// and properties are sent, and those that the row does not have are cleared. If two rows have one address, the
    /// contact has the names and properties of the one that was sent last; if that one gets another address or is
    /// deleted, those of the other are sent again.
    ///
    /// # Consent
    ///
    /// - **A sync never subscribes anybody.** If a row was not subscribed and is now, no opt-in is sent, because the
    ///   "yes" of the table may be older than an opt-out at the service. If the contact is still opted out at the
    ///   service, [`SyncReport::opt_ins_not_sent`] counts the row, and the [`rejects`](SyncContacts::rejects) have its
    ///   key. Call [`subscribe`](Contacts::subscribe) when the person asks for it, and then also
    ///   [`unsubscribe`](Contacts::unsubscribe) when the person opts out: nothing is sent for a row that is not
    ///   subscribed and was not in the last run, unless the sync [checks the list](SyncContacts::checks_list). A row
    ///   counts, too, if it has an address that an earlier run has opted out, such as one that the row has lost and
    ///   takes back.
    /// - **An opt-out that was read is sent, whatever happens afterwards.** It is written to the state file first. If
    ///   it fails, or the program is killed, the next run sends it, even if the row has changed or is missing. There
    ///   are three exceptions: the opt-out of a new row is written when its batch starts, that of a row whose old
    ///   address another row has when the old contact was retrieved, and that of a row whose key is empty or occurs
    ///   twice, or of a new row with a property that cannot be sent, is not written. If the run ends before it has sent
    ///   such an opt-out, pass the row again.
    /// - **A contact that is opted out already keeps its reason.** Another opt-out of everything would replace the reason
    ///   `preferences` by `manual`, and could lift the lock after a spam report. So the contact is retrieved first. If it
    ///   is opted out, only opt-outs of topics are sent, even if the row has a reason. Write an opt-out from a webhook into the
    ///   table: the sync does not send it again. If the contact cannot be retrieved, the opt-out failed, and the next
    ///   run tries it again. One request serves all opt-outs of a row.
    /// - If two rows have the same address, an opt-out of either counts. That one of them is deleted or missing is no
    ///   opt-out: the contact is the one of the other row. But a new opt-out that the deleted row has itself is sent,
    ///   unless an earlier run has opted out the contact for this row after it was deleted. If another row creates the
    ///   contact, the contact gets all opt-outs that the deleted row has itself.
    /// - If a row gets another address, an opt-out that arrives at the old one goes to the new one, too, until the sync
    ///   opts the old one out. If a run was interrupted when it may have done so, an opt-out of the old address counts
    ///   as the run's own, unless its reason says that the person made it.
    /// - An address that a row has lost is opted out, unless another row has it. But if the service refuses the new
    ///   address, the old one stays until the row has a usable one, and gets the opt-outs of the row.
    ///
    /// # Two runs, and old tables
    ///
    /// A run that was killed is simply started again, with the table as it is then. If the table is restored from a
    /// backup, the contacts get its older names and properties. Opt-outs since then stay, and count as
    /// [`opt_ins_not_sent`](SyncReport::opt_ins_not_sent).
    ///
    /// A table that lacks most rows, or the state file of another table, would opt out contacts by mistake. So the run
    /// ends with an error before it sends anything if more contacts than
    /// [`leave_at_most`](SyncContacts::leave_at_most) lost their row or their address. Rows that are no longer subscribed
    /// have no such limit: look at a dry run if your program may have changed many by mistake.
    ///
    /// # Errors
    ///
    /// [`SyncError`] if the sync stopped before its end. It holds the report so far and the [`Error`]:
    ///
    /// - `unauthorized` (401) or `key_not_permitted` (403): the key was refused.
    /// - [`ErrorKind::Config`]: the state file or the rejects could not be written, or
    ///   another sync uses the state file.
    /// - [`ErrorKind::Input`]: the state file belongs to another service, the service has none of
    ///   ten contacts of the last run, too many contacts would be opted out, a CSV file could not be read to its end, or
    ///   no contact shows a topic to [compare](SyncContacts::checks_topics).
    ///   The next run would fail in the same way, so a person has to look.
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
    /// If the table cannot be read to its end, pass a row with an empty key, as below: otherwise, the rows that were
    /// not read count as missing.
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
    /// use audience::import::{ImportRow, SyncRow, SyncState};
    /// use futures_util::StreamExt;
    ///
    /// let users = futures_util::stream::iter([Ok((7, "ada@example.com")), Err("connection lost")]);
    /// let rows = users.map(|user| match user {
    ///     Ok((id, address)) => SyncRow::new(id, address),
    ///     Err(error) => SyncRow::new("", ImportRow::unreadable(error)),
    /// });
    ///
    /// let report = contacts.sync_stream(rows, SyncState::open(&path)?).deletes_missing().await?;
    ///
    /// assert!(report.missing_ignored()); // nobody was opted out because a row is missing
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
    /// The key tells the sync that a row has another address now. It is text or a number that stays with the row and
    /// that no other row has, now or later. If you cannot read the key of a row, pass an empty one. The row is refused,
    /// but each run sends its opt-outs, and no row counts as missing: see
    /// [`deletes_missing`](SyncContacts::deletes_missing).
    ///
    /// All properties of the contact are sent, and replace those of the service. Without any, the service's stay,
    /// unless another row has or had the address: see [`Contacts::sync`]. A name that a row no longer has is cleared.
    /// [`on_conflict`](NewContact::on_conflict) is ignored.
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
    /// Default: `true`, unless the [`ImportRow`] has an opt-out of everything. An opt-out of the row stays, whether of
    /// everything or of a topic, also with `true`.
    #[must_use]
    pub fn subscribed(mut self, is_subscribed: bool) -> Self {
        if !is_subscribed && self.is_subscribed() {
            self.row = self.row.opt_out(EVERYTHING);
        }
        self
    }

    /// Sets whether the row is marked as deleted. `true` opts the contact out of everything, unless another row that is
    /// not deleted has its address. Rows of earlier runs that are not in the table count as well, unless the run
    /// [deletes missing rows](SyncContacts::deletes_missing). Default: `false`.
    ///
    /// The names and properties of a deleted row are not sent. It may have lost its address: the opt-out goes to the
    /// address that the row had before.
    ///
    /// If the service has no contact with the address, none is created. So to keep people who have never consented out of
    /// the service, pass their rows as deleted until they consent. If the row itself is not
    /// [subscribed](Self::subscribed), that opt-out is sent, also if another row has the address.
    #[must_use]
    pub fn deleted(mut self, is_deleted: bool) -> Self {
        self.is_deleted = is_deleted;
        self
    }

    /// Sets a text or number that changes whenever a name or a property changes, such as the time of the last change.
    /// Default: the sync compares names and properties.
    ///
    /// With a revision, a row can be compared before its properties are known. A new address or opt-out is noticed even
    /// if the revision is the same.
    #[expect(clippy::needless_pass_by_value, reason = "as in the constructor")]
    #[must_use]
    pub fn revision(mut self, revision: impl ToString) -> Self {
        self.revision = Some(revision.to_string());
        self
    }

    fn address(&self) -> &str {
        self.row.address().trim()
    }

    /// Returns why a sync cannot send the row, although it was read. A row that has lost its address needs none.
    fn problem(&self, has_lost_address: bool) -> Option<&'static str> {
        if self.key.is_empty() {
            return Some("the row has no key");
        }
        // With such an address, the service has no path.
        if !has_lost_address && !is_path_segment(self.address()) {
            return Some("the row has no usable address");
        }
        let contact = self.row.contact().filter(|_| !self.is_deleted);
        let properties = contact.and_then(|contact| contact.members().properties)?;
        let is_too_deep = |(_, value): (&str, &PropertyValue)| match value {
            PropertyValue::Other(value) => is_deeper(value, DEEPEST),
            _ => false,
        };
        properties.iter().any(is_too_deep).then_some(TOO_DEEP)
    }

    /// Returns whether the row has no opt-out of everything.
    fn is_subscribed(&self) -> bool {
        !has(self.row.opt_outs(), &EVERYTHING)
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

    /// Returns the names and properties to send, and which of them there are. Those that the row had before are
    /// cleared.
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
    rejects: Option<RejectsTo>,
    deletes_missing: bool,
    checks_list: bool,
    topics: BTreeSet<String>,
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
                stop_at_ceiling: false,
                stop_signal: None,
                work: Work::Send,
                dry_run: Arc::default(),
                total: None,
                on_progress: None,
            },
            rejects: None,
            deletes_missing: false,
            checks_list: false,
            topics: BTreeSet::new(),
            leave_at_most: None,
        }
    }

    /// Opts out the contacts whose rows are missing. Default: only the rows that are there count, so that you may pass
    /// only those that changed.
    ///
    /// A row that could not be read counts as present if it has a key. If a row has an empty key, any missing row may
    /// be that row: nobody is opted out because a row is missing, and [`SyncReport::missing_ignored`] returns `true`.
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
    /// println!("{}", contacts.sync(table, SyncState::open(&path)?).await?);
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

    /// Lists all contacts at the end of the run, and opts out each one that is subscribed although its row is not, or
    /// is deleted. Default: the sync compares the table with the last run only, so it does not notice an opt-in or an
    /// opt-out at the service that the table does not have.
    ///
    /// A contact that is opted out although its row is subscribed stays so: the person may have opted out by a link in
    /// a mail. [`SyncReport::opted_out_at_service`] returns the keys of such rows, and the
    /// [rejects](Self::rejects_file) have them with the code `opted_out_at_service`. Write these opt-outs into the
    /// table.
    ///
    /// A row whose "yes" came after an opt-out in the table counts under
    /// [`opt_ins_not_sent`](SyncReport::opt_ins_not_sent) instead, with the code `opt_in_not_sent`. It does so in every
    /// run that checks the list, until one finds the contact subscribed or the row is not subscribed any more. So does
    /// a row whose new address a sync has opted out because the old one was opted out, unless another row has the old one
    /// or the reason there says that the person did it: an earlier run may have made that opt-out.
    ///
    /// It takes one request for every 200 contacts, and one for the end of the list. If nothing has changed, it takes
    /// one more, to look for a contact of the last run: the key may be that of another audience. Only rows that are in
    /// the table count, and no contact is opted in. [A list does not have topics](crate::interface#2.3):
    /// [`checks_topics`](Self::checks_topics) compares them, too. A deleted row does not count if another row has its
    /// address, as in a run without this check.
    ///
    /// [`SyncReport::opted_out`] counts these contacts, too. A dry run also reads the list. If the list is not read to
    /// its end, for example because the run was [stopped](Self::stop_when), that counts as one row that was [not
    /// sent](ImportReport::not_sent). A list without any contact is an error, if earlier runs have sent at least five.
    ///
    /// A person who opts in while the sync runs, after the table was read, is opted out. The next run counts such a row
    /// under [`opt_ins_not_sent`](SyncReport::opt_ins_not_sent).
    ///
    /// # Example: somebody was subscribed by hand
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # let path = std::env::temp_dir().join(format!("audience-checks-list-{}.sync", std::process::id()));
    /// use audience::import::{SyncRow, SyncState};
    ///
    /// let table = || [SyncRow::new(7, "ada@example.com").subscribed(false)];
    /// println!("{}", contacts.sync(table(), SyncState::open(&path)?).await?);
    /// contacts.subscribe("ada@example.com").await?;
    ///
    /// let report = contacts.sync(table(), SyncState::open(&path)?).checks_list().await?;
    ///
    /// assert_eq!((report.unchanged(), report.opted_out()), (1, 1));
    /// assert!(contacts.retrieve("ada@example.com").await?.unsubscribed);
    /// # std::fs::remove_file(path)?;
    /// # Ok(()) }
    /// ```
    pub fn checks_list(mut self) -> Self {
        self.checks_list = true;
        self
    }

    /// Does what [`checks_list`](Self::checks_list) does, retrieves each contact of the list, and compares its answers
    /// for these topics with the table. Default: no topics are compared. Several calls add up.
    ///
    /// - If a row has an [`OptOut::Topic`] and its contact shows `true`, the opt-out is sent again.
    /// - If no row with the address has the opt-out and the contact shows `false`, the contact stays as it is.
    ///   [`SyncReport::opted_out_of`] returns the keys of such rows, and the [rejects](Self::rejects_file) have them with
    ///   the code `opted_out_of_topic`. Write these opt-outs into the table.
    ///
    /// It takes one more request for every contact, 8 at a time. A contact that has vanished since it was listed is left
    /// out.
    ///
    /// A contact also shows `false` in two cases in which the table is right:
    ///
    /// - **The topic's default is `false`**, and the person never answered ([interface section 2.1](crate::interface#2.1)).
    ///   No sync or import sends a "yes". So compare such a topic only if your program has sent each "yes" of the table
    ///   with [`subscribe`](Contacts::subscribe).
    /// - **The "yes" of the table is newer than the opt-out.** If the row had the opt-out in the last run, this run counts
    ///   it under [`opt_ins_not_sent`](SyncReport::opt_ins_not_sent), and later runs return its key. So save the "yes" of
    ///   a contact only after `subscribe` with the topic has succeeded.
    ///
    /// # Errors
    ///
    /// If no contact shows one of the topics, the run ends with an error of the kind [`Input`](ErrorKind::Input) after
    /// everything else was done: the name may be misspelled.
    ///
    /// # Example: somebody was subscribed to a topic by hand
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # server.topic("weekly", true);
    /// # let contacts = server.client().contacts();
    /// # let path = std::env::temp_dir().join(format!("audience-checks-topics-{}.sync", std::process::id()));
    /// use audience::import::{ImportRow, OptOut, SyncRow, SyncState};
    ///
    /// let ada = || ImportRow::from("ada@example.com").opt_out(OptOut::Topic("weekly".to_owned()));
    /// contacts.sync([SyncRow::new(7, ada())], SyncState::open(&path)?).await?;
    /// contacts.subscribe("ada@example.com").topic("weekly").await?;
    ///
    /// let sync = contacts.sync([SyncRow::new(7, ada())], SyncState::open(&path)?);
    /// let report = sync.checks_topics(["weekly"]).await?;
    ///
    /// assert_eq!((report.unchanged(), report.opted_out()), (1, 1));
    /// assert!(!contacts.retrieve("ada@example.com").await?.topics["weekly"]);
    /// # std::fs::remove_file(path)?;
    /// # Ok(()) }
    /// ```
    pub fn checks_topics(mut self, topics: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.topics.extend(topics.into_iter().map(Into::into));
        self.checks_list()
    }

    /// Sets how many contacts a run may opt out because their rows are missing, deleted or have another address. If
    /// there are more, the run sends nothing and ends with an error of the kind [`Input`](crate::ErrorKind::Input).
    /// Such opt-outs are hard to take back, because no opt-in is sent.
    ///
    /// Default: 100, or a tenth of all rows of the last run if that is more. But without this call, a run never opts
    /// out more than half of the rows, unless they are 10 or fewer. If the table has no row that is not deleted, it opts
    /// out nobody because a row is missing or has another address. Deleted rows have the usual limit then.
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
    /// println!("{}", contacts.sync(table(400), SyncState::open(&path)?).await?);
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

    /// Sends nothing, and counts what would be sent: see [`SyncReport::opted_out`] and [`ImportReport::valid`]. The
    /// state file is read, but not written. The [rejects](Self::rejects_file) are written as in any run, so name another
    /// file. With [`checks_list`](Self::checks_list) or [`checks_topics`](Self::checks_topics), the list is read, and
    /// [`SyncReport::opted_out_at_service`] and [`SyncReport::opted_out_of`] have their keys.
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
        self.settings.work = Work::DryRun;
        self
    }

    /// Sets how many requests may be in flight at most; 0 counts as 1. Default: 16. See
    /// [`Import::concurrency`](super::Import::concurrency).
    pub fn concurrency(mut self, requests: usize) -> Self {
        self.settings.concurrency = requests;
        self
    }

    /// Stops the sync when this future is ready. Default: it runs to its end. For SIGTERM and Ctrl-C, pass
    /// [`shutdown_signal()`](crate::shutdown_signal). See [`Import::stop_when`](super::Import::stop_when).
    ///
    /// The next run sends what was not sent. The table is read to its end before the signal is looked at.
    pub fn stop_when(mut self, signal: impl Future<Output = ()> + Send + 'static) -> Self {
        self.settings.stop_signal = Some(Box::pin(signal));
        self
    }

    /// Writes every row that was not applied in full to this file, as
    /// [`Import::rejects_file`](super::Import::rejects_file) does. Default: no rejects are written.
    ///
    /// The run empties the file when it has locked the state file and knows what to send. If it fails before that, the
    /// file has the rejects of an earlier run. The column `import_key` has the key. A row with an opt-in that is not sent
    /// has the code `opt_in_not_sent`.
    ///
    /// # Example: who has a "yes" in the table and an opt-out at the service
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # let path = std::env::temp_dir().join(format!("audience-opt-in-{}.sync", std::process::id()));
    /// # let rejects = path.with_extension("csv");
    /// use audience::import::{SyncRow, SyncState};
    ///
    /// let table = |is_subscribed| [SyncRow::new(7, "ada@example.com").subscribed(is_subscribed)];
    /// println!("{}", contacts.sync(table(false), SyncState::open(&path)?).await?);
    ///
    /// let sync = contacts.sync(table(true), SyncState::open(&path)?);
    /// let report = sync.rejects_file(&rejects).await?;
    ///
    /// assert_eq!(report.opt_ins_not_sent(), 1);
    /// assert!(std::fs::read_to_string(&rejects)?.contains("opt_in_not_sent"));
    /// # std::fs::remove_file(path)?;
    /// # std::fs::remove_file(rejects)?;
    /// # Ok(()) }
    /// ```
    pub fn rejects_file(mut self, path: impl AsRef<Path>) -> Self {
        self.rejects = Some(RejectsTo::Path(path.as_ref().to_owned()));
        self
    }

    /// Writes the rejects to this writer, as [`Import::rejects`](super::Import::rejects) does. Default: no rejects are
    /// written. To write them to a file, use [`rejects_file`](Self::rejects_file).
    pub fn rejects(mut self, writer: impl Write + Send + 'static) -> Self {
        self.rejects = Some(RejectsTo::Writer(Box::new(writer)));
        self
    }

    /// Sets a function to call as the sync proceeds, as [`Import::on_progress`](super::Import::on_progress) does.
    /// Default: none.
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
        let rejects = RejectsTo::open(self.rejects.take()).map_err(not_started)?;
        self.claim_state().await?;
        let mut plan = self.compare().await?;
        let sample = self.sample(&plan).map_err(not_started)?;
        let may_list_be_empty = sample.len() < SMALLEST_SAMPLE;
        self.check_audience(sample).await?;
        let begun = Rejects::begin(rejects, plan.columns.as_deref()).await;
        let mut rejects = begun.map_err(not_started)?;
        let keep = match rejects {
            Some(_) => Keep::Rejects,
            None => Keep::Nothing,
        };
        let report = self.begin_report(&plan);
        // How many contacts the list brings is not known.
        self.settings.total = (!self.checks_list).then(|| plan.total());
        let list = self.list_check(&mut plan, may_list_be_empty);
        let list_read = list.as_ref().map(|list| list.read.clone());
        let untold = plan.untold_keys();
        let uncounted = Arc::new(AtomicU64::new(0));
        let is_dry_run = self.is_dry_run();
        let (source, writer) = match is_dry_run {
            true => (plan.dry_run_source(), None),
            false => {
                let reader = state_reader(&self.state).map_err(not_started)?;
                let writer = self.record_start(&mut plan).await.map_err(not_started)?;
                let source = plan.source(reader, &writer, &untold, &uncounted);
                (source, Some(writer))
            }
        };
        let checks = Checks {
            opt_ins: match is_dry_run {
                true => Vec::new().into_iter(),
                false => plan.opt_ins.clone().into_iter(),
            },
            uncounted: uncounted.clone(),
            list,
        };
        let source = source.then_check(checks);
        let log = writer.clone().map_or(Log::Nowhere, Log::State);
        let sender = Sender::new(self.contacts, self.options, log);
        let mut run = Run::new(source, None, None, sender, self.settings, keep);
        drive(&mut run, rejects.as_mut()).await;
        let mut ended = Ended {
            plan,
            untold,
            writer,
            list: list_read.map(|list| std::mem::take(&mut *lock(&list))),
            uncounted: uncounted.load(Ordering::Relaxed),
            rejects,
            report,
        };
        ended.report_opt_ins();
        ended.report_opt_outs_at_service();
        ended.finish(run, self.state).await
    }

    fn is_dry_run(&self) -> bool {
        self.settings.work == Work::DryRun
    }

    /// Locks the state file. Holds back all requests for as long as the service has asked an earlier run to wait.
    async fn claim_state(&mut self) -> Result<(), SyncError> {
        let claimed = self.state.claim(&self.contacts.client.base_url()).await;
        claimed.map_err(|error| not_started(error).by(Safeguard::Service))?;
        self.contacts.client.hold_back(self.state.hold());
        Ok(())
    }

    /// Reads the table, and compares it with the state. Fails if too many contacts would be opted out.
    async fn compare(&mut self) -> Result<Plan, SyncError> {
        let reader = state_reader(&self.state).map_err(not_started)?;
        let mut plan = Plan::new(reader, self.state.known().history());
        plan.unwanted = self.checks_list.then(HashMap::new);
        plan.topics = self.topics.iter().cloned().collect();
        let read = plan.read(&mut self.rows, &mut self.state).await;
        read.map_err(not_started)?;
        let completed = plan.complete(&mut self.state, self.deletes_missing).await;
        completed.map_err(not_started)?;
        let checked = plan.check_limit(self.state.known().count(), self.leave_at_most);
        checked.map_err(|error| not_started(error).by(Safeguard::Limit))?;
        Ok(plan)
    }

    /// Returns the addresses of some contacts of the last run; none if this one sends nothing and reads no list.
    fn sample(&self, plan: &Plan) -> Result<Vec<String>, Error> {
        let sends = plan.total() > 0 || !plan.leavers.is_empty();
        match self.checks_list || sends && !self.is_dry_run() {
            true => self.state.sample(),
            false => Ok(Vec::new()),
        }
    }

    /// Makes sure that the service has one of these contacts of the last run.
    async fn check_audience(&mut self, sample: Vec<String>) -> Result<(), SyncError> {
        let find = |address: String| self.contacts.find(address).options(self.options.clone());
        let checked = check_audience(
            sample,
            find,
            &mut self.settings.stop_signal,
            "the last run had sent",
            "begin with a new state file",
        );
        match checked.await {
            // If the service cannot be reached, the requests of the sync say so: there are some if contacts were looked
            // for.
            Ok(_) => Ok(()),
            Err(error) => Err(not_started(error).by(Safeguard::Audience)),
        }
    }

    /// Returns the report before anything is sent.
    fn begin_report(&self, plan: &Plan) -> SyncReport {
        SyncReport {
            unchanged: plan.unchanged,
            opted_out: match self.is_dry_run() {
                true => plan.most_opt_outs(),
                false => 0,
            },
            missing_ignored: self.deletes_missing && plan.has_unknown_key,
            is_dry_run: self.is_dry_run(),
            ..SyncReport::default()
        }
    }

    /// Returns the check of the list, and takes from the plan the addresses that it looks for; `None` if the list is not
    /// checked.
    fn list_check(&self, plan: &mut Plan, may_be_empty: bool) -> Option<CheckList> {
        let unwanted = plan.unwanted.take()?;
        let call = self.contacts.list().options(self.options.clone());
        let call = call.patient().large_pages();
        Some(CheckList {
            contacts: match plan.topics.is_empty() {
                true => Listed::Short(Box::new(call.stream())),
                false => Listed::Full(Box::new(call.full())),
            },
            unwanted,
            topics: plan.topics.clone(),
            unwanted_topics: std::mem::take(&mut plan.unwanted_topics),
            hidden: None,
            off: std::mem::take(&mut plan.off),
            awaited: plan.opted_in.keys().copied().collect(),
            is_dry_run: self.is_dry_run(),
            may_be_empty,
            found: VecDeque::new(),
            read: Arc::default(),
        })
    }

    /// Starts to write the state, and records what is about to be sent.
    async fn record_start(&mut self, plan: &mut Plan) -> Result<StateWriter, Error> {
        let writer = self.state.start(&self.contacts.client.base_url()).await?;
        plan.record_start(&writer).await.map_err(unwritable)?;
        Ok(writer)
    }
}

fn not_started(error: Error) -> SyncError {
    SyncError::new(SyncReport::default(), error)
}

/// A sync whose requests have ended. It reports what they have found, and records the last entries.
struct Ended {
    plan: Plan,
    /// The keys of the rows that are subscribed after an opt-out, and whether it was one of everything.
    untold: Arc<HashMap<String, bool>>,
    /// `None` after a dry run.
    writer: Option<StateWriter>,
    /// `None` if the list was not checked.
    list: Option<ListRead>,
    /// How many skipped rows count elsewhere.
    uncounted: u64,
    rejects: Option<Rejects>,
    report: SyncReport,
}

impl Ended {
    /// Reports the rows that are subscribed after an opt-out, unless their contacts have opted in at the service.
    fn report_opt_ins(&mut self) {
        let writer = self.writer.as_ref();
        self.plan.opt_ins.retain(|row| {
            let is_subscribed = |writer: &StateWriter| Some(writer.is_subscribed(row.key_text()?));
            !writer.and_then(is_subscribed).unwrap_or(false)
        });
        self.report.opt_ins_not_sent = self.plan.opt_ins.len() as u64;
        let keys = self.plan.opt_ins.iter().filter_map(ImportRow::key_text);
        self.report.opt_ins_not_sent_keys = keys.map(str::to_owned).collect();
        if let Some(rejects) = &mut self.rejects {
            for row in &self.plan.opt_ins {
                rejects.write(row, &opt_in_not_sent());
            }
        }
    }

    /// Reports the rows that are subscribed, to everything or to a topic, although the list has shown that their contacts
    /// are not.
    fn report_opt_outs_at_service(&mut self) {
        let Some(list) = &mut self.list else { return };
        let mut opt_outs = OptOutsAtService::new(&self.plan, list);
        let topics = self.plan.topics.iter();
        self.report.opted_out_of = topics.map(|topic| (topic.clone(), Vec::new())).collect();
        let wanted = std::mem::take(&mut self.plan.wanted).filter_map(Result::ok);
        for row in wanted.map(|wanted| wanted.row) {
            for topic in opt_outs.topics_to_report(&row) {
                self.reject(&row, &opted_out_of_topic(&topic));
                let keys = self.report.opted_out_of.entry(topic).or_default();
                keys.push(row.key.clone());
            }
            if !opt_outs.is_to_report(&row) {
                continue;
            }
            let outcome = match opt_outs.is_older_than(&row) || self.has_opted_out(&row) {
                true => {
                    self.report.opt_ins_not_sent += 1;
                    self.report.opt_ins_not_sent_keys.push(row.key.clone());
                    opt_in_not_sent()
                }
                false => {
                    self.report.opted_out_at_service.push(row.key.clone());
                    opted_out_at_service()
                }
            };
            self.reject(&row, &outcome);
        }
    }

    /// Returns whether this sync has opted out the contact of a row itself, because of its old address or of another row.
    fn has_opted_out(&self, row: &SyncRow) -> bool {
        let writer = self.writer.as_ref();
        writer.is_some_and(|writer| writer.has_opted_out(&row.key, row.address()))
    }

    fn reject(&mut self, row: &SyncRow, outcome: &RowOutcome) {
        if let Some(rejects) = &mut self.rejects {
            rejects.write(&row.row, outcome);
        }
    }

    /// Completes the rejects, the report and the state.
    async fn finish(mut self, run: Run, state: SyncState) -> Result<SyncReport, SyncError> {
        let written = self.rejects.take().map_or(Ok(()), Rejects::finish);
        let is_told = written.is_ok() && !run.has_stopped_early();
        let mut error = self.complete_report(run.finish());
        if let Some(writer) = self.writer.take() {
            let failed = self.record_end(&writer, is_told).await;
            error = error.or(failed);
            state.shrink(&writer).await;
        }
        match with_unwritten(error, written) {
            None => Ok(self.report),
            Some(error) => Err(SyncError::new(self.report, error)),
        }
    }

    /// Adds the counts of the requests to the report. Returns the error that has stopped them or the list.
    fn complete_report(&mut self, ended: Result<ImportReport, ImportError>) -> Option<Error> {
        let (mut changes, mut error) = match ended {
            Ok(changes) => (changes, None),
            Err(stopped) => {
                let (changes, stopped) = stopped.into_parts();
                (changes, Some(stopped))
            }
        };
        self.report.opted_out += changes.opted_out();
        // A row that left an address was already counted when it looked at it, and a row that is checked counts
        // elsewhere.
        changes.uncount_skipped(self.uncounted);
        if let Some(list) = &mut self.list {
            self.report.opted_out += list.found;
            if !list.has_ended {
                changes.add(&RowOutcome::NotSent);
            }
            error = error.or_else(|| list.error.take());
        }
        self.report.changes = changes;
        error
    }

    /// Records the entries that depend on what the whole run has found. Returns the first error.
    async fn record_end(&mut self, writer: &StateWriter, is_told: bool) -> Option<Error> {
        let handed_over = writer.hand_over().await;
        let mut error = handed_over.err().map(unwritable);
        let mut last = self.silent_entries(writer, is_told);
        for entry in self.subscribed_entries() {
            match entry {
                Ok(entry) => last.push(entry),
                Err(failed) => error = error.or(Some(failed)),
            }
        }
        let recorded = writer.append(last.iter()).await;
        error.or_else(|| recorded.err().map(unwritable))
    }

    /// Returns the entries that change without a request. If the run has told everything, the rows that are subscribed
    /// after an opt-out count as reported from now on.
    fn silent_entries(&mut self, writer: &StateWriter, is_told: bool) -> Vec<Entry> {
        let mut entries = std::mem::take(&mut self.plan.silent);
        entries.retain(|entry| is_told || !entry.is_untold);
        if is_told {
            // This comes last: if the run is stopped or killed before, the next one reports these opt-ins again.
            let sent = self.untold.keys().filter_map(|key| writer.find_recent(key));
            entries.extend(sent.filter(|entry| entry.is_untold));
        }
        for entry in entries.iter_mut().filter(|entry| entry.is_untold) {
            entry.is_untold = false;
            entry.is_opt_in |= self.untold.get(&entry.key) == Some(&true);
            entry.is_opt_in &= !writer.is_reachable(&entry.key);
        }
        entries
    }

    /// Returns the entries of the rows whose contacts the list has shown to be subscribed after an opt-out.
    fn subscribed_entries(&self) -> impl Iterator<Item = Result<Entry, Error>> {
        let subscribed = self.list.iter().flat_map(|list| &list.subscribed);
        let unchanged = subscribed.filter_map(move |number| self.plan.opted_in.get(number));
        unchanged.flatten().map(move |place| {
            let read = self.plan.reader.read(*place);
            read.map(|entry| Entry {
                is_opt_in: false,
                ..entry
            })
        })
    }
}

/// The opt-outs that the list has shown, and those that were reported already.
struct OptOutsAtService {
    topics: Vec<String>,
    /// See [`ListRead::opted_out`].
    opted_out: HashSet<u64>,
    /// See [`ListRead::opted_out_of`].
    opted_out_of: HashSet<(u64, usize)>,
    /// The keys of the rows that were reported as opt-ins, with the opt-outs that they had, or none if these are not known.
    opt_ins: HashMap<String, Vec<OptOut>>,
    /// The addresses of the rows that are subscribed after an opt-out of everything, which is older than they are.
    older: HashSet<u64>,
    /// The keys of the rows that were reported as opted out of everything.
    told: HashSet<String>,
    /// The keys of the rows that were reported as opted out of a topic, with the place of the topic.
    told_topics: HashSet<(usize, String)>,
}

impl OptOutsAtService {
    fn new(plan: &Plan, list: &mut ListRead) -> Self {
        let named = |row: &ImportRow| {
            let lost = row.task()?.recorded.clone();
            Some((row.key_text()?.to_owned(), lost))
        };
        let of_everything = plan.opt_ins.iter().filter(|row| is_opt_in(row));
        let older = of_everything.map(|row| number_of(row.address()));
        Self {
            topics: plan.topics.clone(),
            opted_out: std::mem::take(&mut list.opted_out),
            opted_out_of: std::mem::take(&mut list.opted_out_of),
            opt_ins: plan.opt_ins.iter().filter_map(named).collect(),
            older: older.chain(plan.opted_in.keys().copied()).collect(),
            told: HashSet::new(),
            told_topics: HashSet::new(),
        }
    }

    /// Returns the topics of which the contact of a row is opted out, although the row is not. Returns each only once for
    /// a key.
    fn topics_to_report(&mut self, row: &SyncRow) -> Vec<String> {
        let number = number_of(row.address());
        let lost = self.opt_ins.get(&row.key);
        let mut topics = Vec::new();
        for (place, topic) in self.topics.iter().enumerate() {
            let opt_out = OptOut::Topic(topic.clone());
            let is_opt_in = lost.is_some_and(|lost| lost.is_empty() || has(lost, &opt_out));
            if !is_opt_in
                && self.opted_out_of.contains(&(number, place))
                && self.told_topics.insert((place, row.key.clone()))
            {
                topics.push(topic.clone());
            }
        }
        topics
    }

    /// Returns whether the contact of a row is opted out of everything, although the row is not. Returns `true` only once
    /// for a key.
    fn is_to_report(&mut self, row: &SyncRow) -> bool {
        self.opted_out.contains(&number_of(row.address()))
            && !self.opt_ins.contains_key(&row.key)
            && self.told.insert(row.key.clone())
    }

    /// Returns whether the table had the opt-out of everything before the "yes" of a row.
    fn is_older_than(&self, row: &SyncRow) -> bool {
        self.older.contains(&number_of(row.address()))
    }
}

/// What has kept a sync from sending anything, so that a person has to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Safeguard {
    /// The state belongs to another service.
    Service,
    /// The service has none of the contacts of the last run.
    Audience,
    /// More contacts than allowed would be opted out.
    Limit,
}

fn state_reader(state: &SyncState) -> Result<EntryReader, Error> {
    let reader = state.reader();
    reader.map_err(|error| Error::config("could not read the sync state").caused_by(error))
}

fn unwritable(error: Arc<std::io::Error>) -> Error {
    Error::config("could not write the sync state").caused_by(error)
}

/// Returns whether the contact of a row would be opted out, as far as a dry run can tell.
fn opts_out(row: &ImportRow) -> bool {
    match row.task_kind() {
        Some(TaskKind::OptOut) => true,
        Some(TaskKind::Look(OldAddress::Left)) => {
            let is_usable = |contact| check_contact(contact).is_none();
            has(row.opt_outs(), &EVERYTHING) || row.contact().is_some_and(is_usable)
        }
        _ => false,
    }
}

/// Returns whether a row of [`Plan::opt_ins`] is subscribed after an opt-out of everything, as far as that is known.
fn is_opt_in(row: &ImportRow) -> bool {
    let lost = row.task().map(|task| &*task.recorded).unwrap_or_default();
    lost.is_empty() || has(lost, &EVERYTHING)
}

fn opt_in_not_sent() -> RowOutcome {
    told(
        "opt_in_not_sent",
        "the row is subscribed, but a sync has recorded an opt-out; subscribe the contact when the person asks for it",
    )
}

fn opted_out_at_service() -> RowOutcome {
    told(
        "opted_out_at_service",
        "the row is subscribed, but the contact is opted out at the service; write the opt-out into the table",
    )
}

fn opted_out_of_topic(topic: &str) -> RowOutcome {
    let message = format!(
        "the row is not opted out of the topic {topic:?}, but the contact is; write the opt-out into the table"
    );
    told("opted_out_of_topic", &message)
}

/// Returns the outcome of a row for which nothing is sent.
fn told(code: &str, message: &str) -> RowOutcome {
    RowOutcome::Refused {
        code: ErrorCode::from(code),
        message: Some(message.to_owned()),
        retryable: false,
    }
}

impl SyncTask {
    /// Returns the entry of a row that looks at its old address.
    fn to_look(&self) -> Option<&Entry> {
        let looks = matches!(self.kind, TaskKind::Look(_));
        self.started.as_ref().filter(|_| looks)
    }

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
    /// Entries of rows in the table that change without a request. They are recorded at the end.
    silent: Vec<Entry>,
    /// Entries that change before the first request. The last part may depend on them.
    pending: Vec<Entry>,
    /// Entries of rows whose contacts have the names and properties of other rows.
    replaced: Vec<Entry>,
    leavers: Vec<Leaver>,
    /// The rows that are marked as deleted, with their entries. Whether another row has the address is known when the
    /// whole table was read.
    gone: Vec<(ImportRow, Entry)>,
    /// The rows that are marked as deleted and whose keys occur twice, with the opt-outs that they have themselves.
    gone_again: Vec<ImportRow>,
    opt_ins: Vec<ImportRow>,
    /// The addresses of the rows that are subscribed after an opt-out of everything which an earlier run has reported,
    /// with the places of their entries if these do not change.
    opted_in: HashMap<u64, Vec<Place>>,
    /// Known rows that are subscribed and take an address that another row had.
    takers: Vec<ImportRow>,
    history: History,
    /// The addresses of rows whose names and properties have not changed, but who share them with others, and the
    /// places of the entries if nothing else has changed either.
    sharing: Vec<(u64, Option<Place>)>,
    /// The addresses that rows had or may have had before this sync and no longer have.
    freed: HashSet<u64>,
    /// The addresses at which the service may have names and properties of other rows.
    shared_addresses: HashSet<u64>,
    /// How many known rows are deleted in this table, and were neither deleted nor opted out before. Without those whose
    /// address another row has.
    deleted: u64,
    /// How many contacts are opted out because their rows are missing or have another address.
    left: u64,
    /// Whether the table has no row that is not deleted.
    is_empty: bool,
    /// Keys that no sync has seen before this one.
    new_keys: HashSet<[u64; 2]>,
    addresses: Addresses,
    /// The addresses to leave that other rows are to take.
    to_be_taken: HashSet<u64>,
    /// Whether the key of a row could not be read. Any row that is missing may be that row.
    has_unknown_key: bool,
    /// The column names of the input, if the rows have any. The rejects have them, too.
    columns: Option<Arc<[String]>>,
    /// The entries of known rows that cannot be sent.
    refused: Vec<Entry>,
    /// The opt-outs of the rows that keep their address, and of those that are deleted. If another row creates the
    /// contact, they are sent.
    kept: KeptOptOuts,
    /// The addresses whose rows are not subscribed, with their keys and whether the rows are deleted. `None` if the
    /// list is not checked.
    unwanted: Option<HashMap<u64, (String, bool)>>,
    /// The rows that are subscribed, if the list is checked.
    wanted: Queue,
    /// The addresses that some row has which is not subscribed, if the list is checked. That a row is deleted does not
    /// count.
    off: HashSet<u64>,
    /// The names of the topics to compare.
    topics: Vec<String>,
    unwanted_topics: UnwantedTopics,
}

/// The addresses whose rows are opted out of a topic, with the place of the topic among those to compare. The value is
/// the key of such a row; `None` if the first part sends the opt-out, or if only deleted rows have it.
type UnwantedTopics = HashMap<(u64, usize), Option<String>>;

/// The addresses of all rows that are not deleted, by their numbers.
#[derive(Default)]
struct Addresses {
    all: Vec<u64>,
    /// Those of the rows that are new, or that have another address in the state.
    taken: Vec<u64>,
}

impl Addresses {
    /// Has to be called before anything is looked for.
    fn sort(&mut self) {
        self.all.sort_unstable();
        self.taken.sort_unstable();
    }

    fn has(&self, number: u64) -> bool {
        self.all.binary_search(&number).is_ok()
    }

    /// Returns whether a row has this address in the state, and keeps it.
    fn keeps(&self, number: u64) -> bool {
        count(&self.all, number) > count(&self.taken, number)
    }

    /// Returns whether rows are to take this address, and none that has it in the state keeps it.
    fn is_to_be_taken(&self, number: u64) -> bool {
        self.has(number) && !self.keeps(number)
    }

    /// Returns the addresses that several rows have.
    fn shared(&self) -> impl Iterator<Item = u64> {
        let pairs = self.all.windows(2).filter(|pair| pair[0] == pair[1]);
        pairs.map(|pair| pair[0])
    }
}

/// The opt-outs of many rows by the numbers of their addresses, in 16 bytes for each row that has any.
#[derive(Default)]
struct KeptOptOuts {
    rows: Vec<(u64, u32)>,
    /// All different ones. There are few.
    kinds: HashMap<Vec<OptOut>, u32>,
}

impl KeptOptOuts {
    fn note(&mut self, address: u64, opt_outs: &[OptOut]) {
        if opt_outs.is_empty() {
            return;
        }
        let kind = match self.kinds.get(opt_outs) {
            Some(kind) => *kind,
            None => {
                let next = u32::try_from(self.kinds.len()).unwrap_or(u32::MAX);
                *self.kinds.entry(opt_outs.to_vec()).or_insert(next)
            }
        };
        self.rows.push((address, kind));
    }

    /// Returns the opt-outs of these addresses.
    fn of(self, addresses: &HashSet<u64>) -> HashMap<u64, Vec<OptOut>> {
        let kinds: HashMap<_, _> = self.kinds.iter().map(|(all, kind)| (*kind, all)).collect();
        let mut found: HashMap<u64, Vec<OptOut>> = HashMap::new();
        for (address, kind) in self.rows {
            if addresses.contains(&address)
                && let Some(opt_outs) = kinds.get(&kind)
            {
                add_missing(found.entry(address).or_default(), *opt_outs);
            }
        }
        found
    }
}

/// A row that may have left addresses.
struct Leaver {
    row: ImportRow,
    /// Its entry, if no task records it.
    entry: Option<Entry>,
    /// The address that it lost in this run.
    looks_at: Option<String>,
}

/// A row of the second part, and the place of its entry.
struct Later {
    row: SyncRow,
    place: Option<Place>,
    /// Whether the row is sent only if another row had its address and no longer has it.
    is_unchanged: bool,
}

impl Later {
    fn is_sent(&self, freed: &HashSet<u64>) -> bool {
        !self.is_unchanged || freed.contains(&number_of(self.row.address()))
    }
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
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_unchanged: bool,
}

/// Large enough that a chunk costs little, and small enough to be freed while others are sent.
const CHUNK: usize = 1 << 18;

impl Queue {
    fn push(&mut self, row: &SyncRow, place: Option<Place>, is_unchanged: bool) {
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
            is_unchanged,
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
                is_unchanged: queued.is_unchanged,
            }
        });
        self.read += end + 1;
        Some(later)
    }
}

/// How many rows to read before other tasks get a turn.
const MAX_READ: usize = 1_000;

impl Plan {
    fn new(reader: EntryReader, history: History) -> Self {
        Self {
            reader,
            unchanged: 0,
            first: Vec::new(),
            second: Queue::default(),
            silent: Vec::new(),
            pending: Vec::new(),
            replaced: Vec::new(),
            leavers: Vec::new(),
            gone: Vec::new(),
            gone_again: Vec::new(),
            opt_ins: Vec::new(),
            opted_in: HashMap::new(),
            takers: Vec::new(),
            history,
            sharing: Vec::new(),
            freed: HashSet::new(),
            shared_addresses: HashSet::new(),
            deleted: 0,
            left: 0,
            is_empty: false,
            new_keys: HashSet::new(),
            addresses: Addresses::default(),
            to_be_taken: HashSet::new(),
            has_unknown_key: false,
            columns: None,
            refused: Vec::new(),
            kept: KeptOptOuts::default(),
            unwanted: None,
            wanted: Queue::default(),
            off: HashSet::new(),
            topics: Vec::new(),
            unwanted_topics: HashMap::new(),
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
        if self.columns.is_none() {
            self.columns = row.row.shared_input_columns().cloned();
        }
        let seen = state.known().see(&row.key);
        let has_lost_address = row.is_deleted && matches!(seen, Seen::Before(..));
        if row.row.problem().is_some() {
            return self.refuse(row, None, seen);
        }
        if let Some(problem) = row.problem(has_lost_address) {
            return self.refuse(row, Some(problem), seen);
        }
        self.note_unwanted(&row, seen);
        let is_again = match seen {
            Seen::Again => true,
            Seen::New(key) => !self.new_keys.insert(key),
            Seen::Before(..) => false,
        };
        if is_again {
            self.add_duplicate(&row);
            return Ok(());
        }
        match row.is_deleted {
            true => self.kept.note(number_at(&row, seen), row.row.opt_outs()),
            false => self.addresses.all.push(number_of(row.address())),
        }
        match seen {
            Seen::Before(found) if row.is_deleted => self.add_deleted(row.row, found),
            Seen::Before(found) => self.add_known(&row, found),
            _ if row.is_deleted => {
                // An import may have created the contact.
                let entry = Entry {
                    key: row.key.clone(),
                    address: row.address().to_owned(),
                    is_gone: true,
                    ..Entry::default()
                };
                self.gone.push((row.row, entry));
                Ok(())
            }
            _ => {
                self.addresses.taken.push(number_of(row.address()));
                if self.takes_opted_out(&row) {
                    self.add_opt_in(&row.row, vec![EVERYTHING]);
                }
                self.second.push(&row, None, false);
                Ok(())
            }
        }
    }

    /// Refuses a row that cannot be sent, because of this problem or of one that the row itself has. If its key is known,
    /// it keeps the address that it had before. Otherwise, no entry can keep its opt-outs, so they are sent to its
    /// address.
    fn refuse(&mut self, mut row: SyncRow, problem: Option<&str>, seen: Seen) -> Result<(), Error> {
        self.has_unknown_key |= row.key.is_empty() || row.row.is_cut_off();
        if let Seen::Before(Found { place, .. }) = seen {
            let mut entry = self.reader.read(place)?;
            entry.is_by_person &= row.is_subscribed();
            if entry.is_gone {
                self.add_bare_opt_outs(&row);
            } else {
                let number = number_of(&entry.address);
                self.addresses.all.push(number);
                let known = entry.opt_outs.clone();
                let opt_outs = row.row.opt_outs().iter();
                add_missing(
                    &mut entry.left,
                    opt_outs.filter(|opt_out| !has(&known, opt_out)),
                );
                self.kept.note(number, &[&known[..], &entry.left].concat());
            }
            self.refused.push(entry);
        } else {
            self.add_bare_opt_outs(&row);
        }
        if let Some(problem) = problem {
            row.row = row.row.into_unreadable(problem);
        }
        self.first.push(row.row);
        Ok(())
    }

    /// Adds the opt-outs of a row that no entry can keep. If another row creates the contact, it gets them, too.
    fn add_bare_opt_outs(&mut self, row: &SyncRow) {
        if row.row.opt_outs().is_empty() || !is_path_segment(row.address()) {
            return;
        }
        self.share_opt_outs(row);
        self.first.push(bare_opt_outs(row));
    }

    fn share_opt_outs(&mut self, row: &SyncRow) {
        let number = number_of(row.address());
        self.kept.note(number, row.row.opt_outs());
        self.shared_addresses.insert(number);
        if self.unwanted.is_some() && !row.is_subscribed() {
            self.off.insert(number);
        }
    }

    /// Notes that a row has an address that it did not have. Returns whether the row is subscribed, but the address is
    /// opted out.
    fn takes_opted_out(&mut self, row: &SyncRow) -> bool {
        if self.history.knows(row.address(), &row.key) {
            self.shared_addresses.insert(number_of(row.address()));
        }
        row.is_subscribed() && self.history.is_opted_out(row.address())
    }

    /// Notes that a known row takes the address of another one, which may be marked as deleted later in the table.
    fn note_taker(&mut self, row: &SyncRow) {
        if self.history.knows(row.address(), &row.key) && row.is_subscribed() {
            self.takers.push(row.row.clone());
        }
    }

    /// Notes the address of a row that is not subscribed, and its opt-outs from topics, if the list is checked.
    fn note_unwanted(&mut self, row: &SyncRow, seen: Seen) {
        let Some(unwanted) = &mut self.unwanted else {
            return;
        };
        let number = number_at(row, seen);
        let is_finished = matches!(seen, Seen::Before(found) if found.fingerprint == DELETED);
        // Otherwise, no later opt-out of the person who has the address now would be told.
        if !(row.is_deleted && is_finished) {
            if !row.is_subscribed() {
                self.off.insert(number);
            }
            for place in places(&self.topics, row.row.opt_outs()) {
                let key = self.unwanted_topics.entry((number, place)).or_default();
                if !row.is_deleted {
                    *key = Some(row.key.clone());
                }
            }
        }
        if !row.is_deleted && !row.is_subscribed() {
            unwanted.insert(number, (row.key.clone(), false));
        } else if row.is_deleted {
            let deleted = || (row.key.clone(), true);
            unwanted.entry(number).or_insert_with(deleted);
        } else {
            let contact = NewContact::new(row.address());
            let row = SyncRow::new(row.key.as_str(), row.row.clone().with_contact(contact));
            self.wanted.push(&row, None, false);
        }
    }

    /// Adds a row that is subscribed, and the opt-outs that it had, or none if they are not known.
    fn add_opt_in(&mut self, row: &ImportRow, lost: Vec<OptOut>) {
        let task = SyncTask {
            kind: TaskKind::Check,
            recorded: lost,
            ..opt_out_task(None, None)
        };
        self.opt_ins.push(row.clone().with_task(task));
    }

    /// Returns how many rows get an outcome, without those that the list brings.
    fn total(&self) -> u64 {
        let leaves = |row: &&ImportRow| row.task_kind() == Some(TaskKind::Look(OldAddress::Left));
        // Each address that is looked at is left later.
        let to_leave = self.first.iter().filter(leaves).count();
        (self.first.len() + to_leave + self.opt_ins.len()) as u64 + self.second.count
    }

    /// Returns how many contacts would be opted out, as far as a dry run can tell.
    fn most_opt_outs(&self) -> u64 {
        let opt_outs = self.first.iter().filter(|row| opts_out(row)).count();
        opt_outs as u64 + self.still_to_leave()
    }

    /// Takes the rows that a dry run checks.
    fn dry_run_source(&mut self) -> Source {
        let first = std::mem::take(&mut self.first).into_iter();
        let unreadable = first.filter(|row| row.task().is_none());
        let freed = std::mem::take(&mut self.freed);
        let rows = std::mem::take(&mut self.second).filter_map(Result::ok);
        let rows = rows.filter(move |later| later.is_sent(&freed));
        Source::from_iter(unreadable.chain(rows.map(|later| later.row.row)))
    }

    /// Records the opt-outs that were read, and what else the next run has to know if this one is killed.
    async fn record_start(&mut self, writer: &StateWriter) -> Result<(), Arc<std::io::Error>> {
        writer.note_to_be_taken(std::mem::take(&mut self.to_be_taken));
        writer.append(self.replaced.iter()).await?;
        let looks = self.first.iter().filter_map(|row| row.task()?.to_look());
        let looks = looks.filter(|entry| !entry.left.is_empty());
        writer.append(looks).await?;
        let started = self.first.iter().filter_map(|row| row.task()?.pending());
        let started = started.chain(std::mem::take(&mut self.pending));
        writer.record(started.collect()).await
    }

    /// Takes the rows to send, in four parts.
    fn source(
        &mut self,
        reader: EntryReader,
        writer: &StateWriter,
        untold: &Arc<HashMap<String, bool>>,
        uncounted: &Arc<AtomicU64>,
    ) -> Source {
        let second = Second {
            rows: std::mem::take(&mut self.second),
            reader,
            writer: writer.clone(),
            untold: untold.clone(),
            kept: std::mem::take(&mut self.kept).of(&self.shared_addresses),
            shared: std::mem::take(&mut self.shared_addresses),
            freed: std::mem::take(&mut self.freed),
        };
        let third = Third {
            leavers: std::mem::take(&mut self.leavers),
            held: std::mem::take(&mut self.addresses),
            writer: writer.clone(),
            tasks: None,
            uncounted: uncounted.clone(),
        };
        let (looks, opt_outs): (Vec<_>, Vec<_>) = std::mem::take(&mut self.first)
            .into_iter()
            .partition(|row| matches!(row.task_kind(), Some(TaskKind::Look(_))));
        // All rows look at the addresses that they had before one of these is opted out for another row.
        let first = Source::from_iter(looks).then(opt_outs.into_iter());
        first.then(second).then(third)
    }

    /// Returns the keys of the rows that are subscribed after an opt-out, and whether it was one of everything.
    fn untold_keys(&self) -> Arc<HashMap<String, bool>> {
        let rows = self.opt_ins.iter();
        let keys = rows.filter_map(|row| Some((row.key_text()?.to_owned(), is_opt_in(row))));
        Arc::new(keys.collect())
    }

    /// Refuses a row whose key another row has. Its opt-outs count nevertheless.
    fn add_duplicate(&mut self, row: &SyncRow) {
        let refused = row.row.clone();
        let refused = refused.into_unreadable("an earlier row has the same key");
        self.first.push(refused.with_opt_outs(Vec::new()));
        if !row.is_deleted {
            return self.add_bare_opt_outs(row);
        }
        if !row.row.opt_outs().is_empty() {
            self.share_opt_outs(row);
        }
        self.gone_again.push(bare_opt_outs(row));
    }

    /// Adds a known row that is deleted.
    fn add_deleted(&mut self, row: ImportRow, found: Found) -> Result<(), Error> {
        if found.fingerprint == DELETED {
            self.unchanged += 1;
            return Ok(());
        }
        let entry = self.reader.read(found.place)?;
        self.gone.push((row, entry));
        Ok(())
    }

    /// Opts out the contacts of the rows that are deleted. If another row has the address, only the opt-outs that the
    /// deleted row has itself are sent, because the contact is the one of the other row.
    fn decide_deleted(&mut self) {
        for (row, mut entry) in std::mem::take(&mut self.gone) {
            let is_out = has(&entry.opt_outs, &EVERYTHING);
            let number = number_of(&entry.address);
            if !self.addresses.has(number) {
                self.deleted += u64::from(!entry.is_gone && !is_out);
                self.delete(&row, entry);
                continue;
            }
            if !row.opt_outs().is_empty() {
                self.shared_addresses.insert(number);
            }
            let is_over = entry.is_gone && is_out;
            let new = row.opt_outs().iter();
            let new = new.filter(|opt_out| !is_over && !has(&entry.opt_outs, opt_out));
            add_missing(&mut entry.left, new);
            let is_done = entry.left.is_empty() && entry.to_leave.is_empty();
            match entry.is_gone && is_done && entry.tried.is_none() {
                true => self.unchanged += 1,
                false => self.finish_unseen(&row, entry, true),
            }
        }
        for row in std::mem::take(&mut self.gone_again) {
            let mut opt_outs = row.opt_outs().to_vec();
            if !self.addresses.has(number_of(row.address())) {
                add_missing(&mut opt_outs, [&EVERYTHING]);
            }
            if !opt_outs.is_empty() {
                self.first.push(row.with_opt_outs(opt_outs));
            }
        }
    }

    /// Adds a known row that is not deleted.
    fn add_known(&mut self, row: &SyncRow, found: Found) -> Result<(), Error> {
        let number = number_of(row.address());
        let is_opt_in = found.is_opt_in && row.is_subscribed();
        if is_opt_in {
            self.opted_in.entry(number).or_default();
        }
        let content = row.content();
        if found.fingerprint == fingerprint(row.address(), content, row.row.opt_outs()) {
            self.add_unchanged(row, found.place, is_opt_in);
            return Ok(());
        }
        let entry = self.reader.read(found.place)?;
        self.free(&entry, Some(row.address()));
        let is_of_table = !entry.is_of_person(&EVERYTHING);
        if has(&entry.left, &EVERYTHING) && is_of_table && row.is_subscribed() {
            // This run sends an opt-out that is older than the row, so nobody has opted out at the service.
            self.opted_in.entry(number).or_default();
        }
        match normalized_address(&entry.address) == normalized_address(row.address()) {
            true => self.add_changed(row, content, found.place, entry),
            false => self.add_moved(row, found.place, entry),
        }
        Ok(())
    }

    /// Adds a row that is as it was. If it shares its address, it is sent if another row no longer has the address.
    fn add_unchanged(&mut self, row: &SyncRow, place: Place, is_opt_in: bool) {
        let number = number_of(row.address());
        self.kept.note(number, row.row.opt_outs());
        if self.history.is_shared(row.address(), &row.key) {
            self.sharing.push((number, Some(place)));
            self.second.push(row, Some(place), true);
            return;
        }
        if is_opt_in {
            self.note_unchanged(number, place);
        }
        self.unchanged += 1;
    }

    /// Adds a row that has another address than in the last run.
    fn add_moved(&mut self, row: &SyncRow, place: Place, entry: Entry) {
        let opt_outs = row.row.opt_outs();
        // This run sends those that are left to the next address, although they are older than the row.
        let mut had = entry.opt_outs.iter().chain(&entry.left);
        let has_lost = had.any(|opt_out| !has(opt_outs, opt_out) && !entry.is_of_person(opt_out));
        let was_untold = entry.is_untold && row.is_subscribed();
        let takes_opted_out = self.takes_opted_out(row);
        if has_lost || was_untold {
            self.add_opt_in(&row.row, Vec::new());
        } else if takes_opted_out {
            self.add_opt_in(&row.row, vec![EVERYTHING]);
        } else {
            self.note_taker(row);
        }
        self.addresses.taken.push(number_of(row.address()));
        let looks_at = Some(entry.address.clone());
        let task = SyncTask {
            // Who has the old address is known when the whole table was read.
            kind: TaskKind::Look(OldAddress::Held),
            ..opt_out_task(Some(next_to_leave(entry, row.address())), None)
        };
        self.leave(&row.row, None, looks_at);
        self.first.push(row.row.clone().with_task(task));
        self.second.push(row, Some(place), false);
    }

    /// Adds a row that has its old address, and has changed or is not finished.
    fn add_changed(&mut self, row: &SyncRow, content: u64, place: Place, entry: Entry) {
        let number = number_of(row.address());
        let opt_outs = row.row.opt_outs();
        let is_untold = self.note_opt_in(row, &entry);
        self.kept.note(number, opt_outs);
        let is_shared = self.history.is_shared(row.address(), &row.key);
        if is_shared {
            self.shared_addresses.insert(number);
        }
        let is_changed = entry.content != Some(content) || entry.is_gone && is_shared;
        let mut to_send = entry.left.clone();
        let new = opt_outs.iter();
        let new = new.filter(|opt_out| !has(&entry.opt_outs, opt_out));
        add_missing(&mut to_send, new);
        let mut kept = entry.opt_outs.clone();
        kept.retain(|opt_out| has(opt_outs, opt_out) || is_for_later(&entry, opt_out));
        let was_by_person = entry.is_by_person;
        let has_opt_out = has(&kept, &EVERYTHING) || has(&entry.left, &EVERYTHING);
        let settled = settled(entry);
        let next = Entry {
            opt_outs: kept,
            is_gone: false,
            is_untold,
            is_by_person: settled.is_by_person && has_opt_out && row.is_subscribed(),
            ..settled
        };
        let leaves = !next.to_leave.is_empty();
        if leaves {
            self.leave(&row.row, None, None);
        }
        if !to_send.is_empty() {
            self.opt_out(&row.row, next, to_send);
        } else if leaves || (is_shared || was_by_person) && !is_changed {
            self.pending.push(next);
        } else if !is_changed {
            self.silent.push(next);
        }
        if is_changed || is_shared {
            self.second.push(row, Some(place), !is_changed);
        }
        if is_shared && !is_changed {
            self.sharing.push((number, None));
        }
    }

    /// Adds a row with its old address to those that are subscribed after an opt-out, if it is one. Returns whether it is.
    fn note_opt_in(&mut self, row: &SyncRow, entry: &Entry) -> bool {
        let was_untold = entry.is_untold && row.is_subscribed();
        let mut lost = entry.opt_outs.clone();
        lost.retain(|opt_out| !has(row.row.opt_outs(), opt_out) && !entry.is_of_person(opt_out));
        let is_untold = was_untold || !lost.is_empty();
        if is_untold {
            // Not all are known: the entry has lost those that no run has reported.
            if was_untold {
                lost.clear();
            }
            self.add_opt_in(&row.row, lost);
        }
        is_untold
    }

    /// Notes that the entry at this place does not change, if a row with the address is subscribed after an opt-out of
    /// everything.
    fn note_unchanged(&mut self, address: u64, place: Place) {
        if let Some(places) = self.opted_in.get_mut(&address) {
            places.push(place);
        }
    }

    fn leave(&mut self, row: &ImportRow, entry: Option<Entry>, looks_at: Option<String>) {
        self.leavers.push(Leaver {
            row: row.clone(),
            entry,
            looks_at,
        });
    }

    /// Notes which addresses a row no longer has, if it has this one now.
    fn free(&mut self, entry: &Entry, now: Option<&str>) {
        let had = Some(&entry.address).filter(|_| !entry.is_gone);
        // A batch without a response may have written the names of the row to the second one.
        let had = had.into_iter().chain(&entry.tried);
        let now = now.map(number_of);
        let had = had.map(|address| number_of(address));
        self.freed.extend(had.filter(|had| Some(*had) != now));
    }

    /// Opts out the contact of a row that was deleted or is missing.
    fn delete(&mut self, row: &ImportRow, entry: Entry) {
        self.free(&entry, None);
        let is_out = has(&entry.opt_outs, &EVERYTHING) && entry.left.is_empty();
        let mut opt_outs = entry.left.clone();
        let next = Entry {
            is_gone: true,
            is_untold: false,
            is_by_person: false,
            ..settled(entry)
        };
        if !next.to_leave.is_empty() {
            self.leave(row, None, None);
        }
        match is_out {
            true => self.pending.push(next),
            false => {
                add_missing(&mut opt_outs, [&EVERYTHING]);
                self.opt_out(row, next, opt_outs);
            }
        }
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

    /// Adds the rows that are missing, and decides what depends on the whole table.
    async fn complete(
        &mut self,
        state: &mut SyncState,
        deletes_missing: bool,
    ) -> Result<(), Error> {
        let deletes_missing = deletes_missing && !self.has_unknown_key;
        self.is_empty = self.addresses.all.is_empty();
        if !deletes_missing {
            let unseen = state.known().unseen_addresses();
            self.addresses.all.extend(unseen.map(AddressHash::number));
        }
        self.addresses.sort();
        self.shared_addresses.extend(self.addresses.shared());
        self.left = self.decide_old_addresses();
        self.decide_deleted();
        self.add_unseen(state, deletes_missing).await?;
        for entry in std::mem::take(&mut self.refused) {
            self.finish_unseen(&row_of(&entry), entry, false);
        }
        self.decide_sharing()?;
        if !deletes_missing {
            self.note_unseen_sharing(state)?;
        }
        self.note_own_opt_outs();
        self.add_opt_ins_of_takers();
        self.forget_wanted();
        self.update_entries();
        Ok(())
    }

    /// Opts out the contacts of the rows that are missing, if that was asked for, and plans what earlier runs have left to
    /// do for the others.
    async fn add_unseen(
        &mut self,
        state: &mut SyncState,
        deletes_missing: bool,
    ) -> Result<(), Error> {
        let unseen: Vec<_> = state.known().unseen(deletes_missing).collect();
        let mut handed_over = Vec::new();
        for (number, (place, address)) in (1..).zip(unseen) {
            if number % MAX_READ == 0 {
                tokio::task::yield_now().await;
            }
            let entry = self.reader.read(place)?;
            let is_out = has(&entry.opt_outs, &EVERYTHING);
            let is_missing = deletes_missing && !self.addresses.has(address.number());
            if is_missing && !entry.is_gone {
                self.left += u64::from(!is_out);
                self.delete(&row_of(&entry), entry);
            } else if is_missing && !is_out {
                handed_over.push(entry);
            } else {
                self.finish_unseen(&row_of(&entry), entry, deletes_missing);
            }
        }
        for entry in handed_over {
            // The row that took the address may have been removed before any run has sent it.
            match self.freed.contains(&number_of(&entry.address)) {
                true => self.finish_unseen(&row_of(&entry), entry, deletes_missing),
                false => {
                    self.left += 1;
                    self.delete(&row_of(&entry), entry);
                }
            }
        }
        Ok(())
    }

    /// Decides which of the rows that share their address, and have not changed, are sent: those whose contacts may have
    /// the names and properties of a row that no longer has the address.
    fn decide_sharing(&mut self) -> Result<(), Error> {
        for (address, place) in std::mem::take(&mut self.sharing) {
            if !self.freed.contains(&address) {
                self.second.count -= 1;
                self.unchanged += u64::from(place.is_some());
                if let Some(place) = place {
                    self.note_unchanged(address, place);
                }
                continue;
            }
            if let Some(place) = place {
                self.replaced.push(self.reader.read(place)?);
            }
            self.shared_addresses.insert(address);
        }
        Ok(())
    }

    /// Notes the opt-outs of the rows that were not passed and share their address with others: a row that creates the
    /// contact again sends them, too. If another row had the address and has lost it, the contact may have the names and
    /// properties of that row, so the entry is recorded again without its own.
    fn note_unseen_sharing(&mut self, state: &mut SyncState) -> Result<(), Error> {
        for (place, address) in state.known().unseen(true) {
            let number = address.number();
            let is_freed = self.freed.contains(&number);
            if !is_freed && !self.shared_addresses.contains(&number) {
                continue;
            }
            let entry = self.reader.read(place)?;
            if !entry.is_gone {
                let opt_outs = [&entry.opt_outs[..], &entry.left].concat();
                self.kept.note(number, &opt_outs);
                self.replaced.extend(Some(entry).filter(|_| is_freed));
            }
        }
        Ok(())
    }

    /// Fails if more contacts than allowed would be opted out because their rows are missing, deleted or have another
    /// address.
    fn check_limit(&self, known: u64, at_most: Option<u64>) -> Result<(), Error> {
        let most = at_most.unwrap_or_else(|| leave_at_most(known, self.is_empty));
        // A small table may have only deleted rows.
        let most_with_deleted = at_most.unwrap_or_else(|| leave_at_most(known, false));
        let leave = self.left + self.deleted;
        if self.left <= most && leave <= most_with_deleted {
            return Ok(());
        }
        Err(Error::input(format!(
            "{leave} contacts would be opted out because their rows are missing, deleted or have another address, and \
             the limit {limit}; nothing was sent; check the table and the state file, or raise the limit",
            limit = match self.left > most && self.is_empty && at_most.is_none() {
                true => "of a table without rows is 0".to_owned(),
                false => format!("is {most_with_deleted}"),
            }
        )))
    }

    /// Decides which addresses that rows have lost are opted out. Returns how many.
    fn decide_old_addresses(&mut self) -> u64 {
        let mut left_by = HashSet::new();
        // From the end: of several rows that had one address, the last opts it out.
        for row in self.first.iter_mut().rev() {
            let mut new_opt_outs = row.opt_outs().to_vec();
            let Some(task) = row.task_mut() else { continue };
            let (TaskKind::Look(old), Some(entry)) = (&mut task.kind, &mut task.started) else {
                continue;
            };
            let number = number_of(&entry.address);
            let was_shared = self.history.is_shared(&entry.address, &entry.key);
            *old = match self.addresses.has(number) {
                true if was_shared => OldAddress::Taken,
                true => OldAddress::Held,
                false if left_by.insert(number) => OldAddress::Left,
                false => OldAddress::LeftByAnother,
            };
            task.is_to_leave = !self.addresses.keeps(number);
            for address in entry.to_leave.clone() {
                if self.addresses.keeps(number_of(&address)) {
                    entry.hand_over(&address);
                }
            }
            let to_leave = entry.to_leave.iter().map(|address| number_of(address));
            let to_be_taken = to_leave.chain([number]);
            let to_be_taken = to_be_taken.filter(|number| self.addresses.is_to_be_taken(*number));
            self.to_be_taken.extend(to_be_taken);
            if !old.is_held() {
                new_opt_outs.retain(|opt_out| !has(&entry.opt_outs, opt_out));
                add_missing(&mut entry.left, &new_opt_outs);
            }
        }
        left_by.len() as u64
    }

    /// Updates the entries that are recorded, now that it is known who has which address.
    fn update_entries(&mut self) {
        // Of the rows with such an address, another one may have been sent last. The service then has its names and
        // properties.
        let tasks = self.first.iter_mut().filter_map(ImportRow::task_mut);
        let tasks = tasks.filter(|task| task.kind == TaskKind::OptOut);
        let in_tasks = tasks.flat_map(|task| task.started.iter_mut().chain(&mut task.done));
        let of_leavers = self.leavers.iter_mut().filter_map(|row| row.entry.as_mut());
        let pending = self.pending.iter_mut().chain(of_leavers);
        for entry in in_tasks.chain(pending).chain(&mut self.replaced) {
            if self.freed.contains(&number_of(&entry.address)) && !entry.is_gone {
                entry.content = entry.content.map(|_| 0);
            }
            for address in entry.to_leave.clone() {
                let number = number_of(&address);
                // The row itself may keep the one that it has.
                if self.addresses.keeps(number) && number != number_of(&entry.address) {
                    entry.hand_over(&address);
                }
                if self.addresses.is_to_be_taken(number) {
                    self.to_be_taken.insert(number);
                }
            }
        }
    }

    /// Returns how many addresses that rows have lost before this run nobody has or is to take.
    fn still_to_leave(&self) -> u64 {
        let tasks = self.first.iter().filter_map(ImportRow::task);
        let tasks = tasks.filter_map(|task| task.started.as_ref());
        let of_leavers = self.leavers.iter().filter_map(|row| row.entry.as_ref());
        let entries = tasks.chain(&self.pending).chain(of_leavers);
        let addresses = entries.flat_map(|entry| &entry.to_leave);
        let numbers = addresses.map(|address| number_of(address));
        let numbers = numbers.filter(|number| !self.addresses.has(*number));
        let mut numbers: HashSet<_> = numbers.collect();
        // An address that a row has just lost counts there.
        for row in &self.first {
            if let Some(entry) = row.task().and_then(SyncTask::to_look) {
                numbers.remove(&number_of(&entry.address));
            }
        }
        numbers.len() as u64
    }

    /// Leaves out of the list's check the opt-outs that the first part sends, and the addresses of deleted rows that
    /// other rows have.
    fn forget_wanted(&mut self) {
        let Some(unwanted) = &mut self.unwanted else {
            return;
        };
        unwanted.retain(|number, (_, is_deleted)| !*is_deleted || !self.addresses.has(*number));
        for row in &self.first {
            if row.task_kind() != Some(TaskKind::OptOut) {
                continue;
            }
            let number = number_of(row.address());
            if has(row.opt_outs(), &EVERYTHING) {
                unwanted.remove(&number);
            }
            for place in places(&self.topics, row.opt_outs()) {
                // Also if no row has it any more: an earlier table had it, so it was not made at the service.
                self.unwanted_topics.insert((number, place), None);
            }
        }
    }

    /// Adds the rows that are subscribed and take the address of a deleted or missing row whose opt-out of everything
    /// this run sends.
    fn add_opt_ins_of_takers(&mut self) {
        let opt_outs = self.first.iter();
        let opt_outs = opt_outs.filter(|row| has(row.opt_outs(), &EVERYTHING));
        let tasks = opt_outs.filter_map(ImportRow::task);
        let deleted = tasks.filter_map(|task| task.done.as_ref().filter(|entry| entry.is_gone));
        let deleted = deleted.map(|entry| number_of(&entry.address));
        let is_held = |number: &u64| self.addresses.has(*number);
        let deleted: HashSet<_> = deleted.filter(is_held).collect();
        let is_taker = |row: &ImportRow| {
            deleted.contains(&number_of(row.address())) && !has(row.opt_outs(), &EVERYTHING)
        };
        let mut takers = std::mem::take(&mut self.takers);
        takers.retain(is_taker);
        if !deleted.is_empty() {
            // A new row may come before the deleted one in the table.
            let count = self.second.count;
            for later in std::mem::take(&mut self.second).filter_map(Result::ok) {
                if later.place.is_none() && is_taker(&later.row.row) {
                    takers.push(later.row.row.clone());
                }
                let Later { row, place, .. } = &later;
                self.second.push(row, *place, later.is_unchanged);
            }
            self.second.count = count;
        }
        let told = self.opt_ins.iter().filter_map(ImportRow::key_text);
        let told: HashSet<_> = told.map(str::to_owned).collect();
        for row in takers {
            if row.key_text().is_some_and(|key| !told.contains(key)) {
                self.add_opt_in(&row, vec![EVERYTHING]);
            }
        }
    }

    /// Notes which of the addresses to leave this sync opts out for other rows. A person did not ask for these
    /// opt-outs.
    fn note_own_opt_outs(&mut self) {
        let opted_out = self.first.iter().filter(|row| {
            row.task_kind() == Some(TaskKind::OptOut) && has(row.opt_outs(), &EVERYTHING)
        });
        let opted_out: HashSet<_> = opted_out.map(|row| number_of(row.address())).collect();
        for task in self.first.iter_mut().filter_map(ImportRow::task_mut) {
            if let (TaskKind::Look(_), Some(entry)) = (task.kind, &task.started) {
                let addresses = entry.to_leave.iter().chain([&entry.address]);
                let own = addresses.filter(|address| opted_out.contains(&number_of(address)));
                task.opted_out = own.cloned().collect();
            }
        }
    }

    /// Plans what an earlier run has left to do for a row that this one has not seen, or whose address another row has.
    fn finish_unseen(&mut self, row: &ImportRow, entry: Entry, is_gone: bool) {
        let entry = match is_gone {
            true => {
                self.free(&entry, None);
                Entry {
                    is_gone: true,
                    is_opt_in: false,
                    is_by_person: false,
                    ..settled(entry)
                }
            }
            false => entry,
        };
        if !entry.to_leave.is_empty() {
            self.leave(row, Some(entry.clone()), None);
        }
        // An opt-out that was read is sent, even if nothing else is known of its row now.
        if !entry.left.is_empty() {
            let to_send = entry.left.clone();
            return self.opt_out(row, entry, to_send);
        }
        if let Some(tried) = entry.tried.clone() {
            let mut opt_outs = entry.carried.clone().unwrap_or_default();
            add_missing(&mut opt_outs, &entry.opt_outs);
            opt_outs.retain(|opt_out| !has(&entry.taken, opt_out));
            if !opt_outs.is_empty() {
                let mut done = entry.clone();
                add_missing(&mut done.taken, &opt_outs);
                let task = opt_out_task(Some(entry), Some(done));
                self.first.push(bare(row, &tried, opt_outs, task));
            }
        } else if is_gone {
            self.pending.push(entry);
        }
    }
}

/// How deep the JSON of a property may be. The queue has rows as JSON, which can be read up to 128 levels, and some of
/// these are its own.
const DEEPEST: usize = 100;

const TOO_DEEP: &str = "a property is nested more than 100 levels deep";

/// Returns whether a value has more than this many arrays and objects inside each other.
fn is_deeper(value: &serde_json::Value, levels: usize) -> bool {
    let inside = |inner| is_deeper(inner, levels - 1);
    match value {
        serde_json::Value::Array(values) => levels == 0 || values.iter().any(inside),
        serde_json::Value::Object(members) => levels == 0 || members.values().any(inside),
        _ => false,
    }
}

/// Returns a row that has only the opt-outs of this one, and that no entry is about.
fn bare_opt_outs(row: &SyncRow) -> ImportRow {
    let opt_outs = row.row.opt_outs().to_vec();
    bare(&row.row, row.address(), opt_outs, opt_out_task(None, None))
}

/// Returns the number of the address to which the opt-outs of a row go: a deleted row may have lost its address.
fn number_at(row: &SyncRow, seen: Seen) -> u64 {
    match seen {
        Seen::Before(found) if row.is_deleted => found.address.number(),
        _ => number_of(row.address()),
    }
}

/// Returns the places of the topics that are among these opt-outs.
fn places(topics: &[String], opt_outs: &[OptOut]) -> impl Iterator<Item = usize> {
    let is_out = |topic: &String| {
        let is_same = |opt_out: &OptOut| matches!(opt_out, OptOut::Topic(name) if name == topic);
        opt_outs.iter().any(is_same)
    };
    let topics = topics.iter().enumerate();
    topics.filter_map(move |(place, topic)| is_out(topic).then_some(place))
}

/// Returns the entry of a row that keeps its address, or has none any more. The other addresses, which it may have at
/// the service, are to leave.
fn settled(mut entry: Entry) -> Entry {
    let address = entry.address.clone();
    let carried = entry.carried.take();
    // They stay at the other address.
    entry.is_by_person &= carried.is_none();
    if let Some(tried) = entry.tried.take() {
        entry.add_to_leave(tried);
        // It has got them from this address.
        add_missing(&mut entry.taken, carried.iter().flatten());
    }
    entry.remove_to_leave(&address);
    entry.remove_former(&address);
    entry.is_waiting = false;
    entry
}

/// Returns the entry of a row that has this address now.
fn next_to_leave(mut entry: Entry, address: &str) -> Entry {
    let address = normalized_address(address);
    let is_other = |tried: &mut String| normalized_address(tried) != address;
    if let Some(tried) = entry.tried.take_if(is_other) {
        entry.add_to_leave(tried);
    }
    entry
}

/// Returns how many contacts of this many known rows a run may opt out because they have lost their row or their
/// address, if the caller has set no limit.
fn leave_at_most(known: u64, is_empty: bool) -> u64 {
    match is_empty {
        true => 0,
        false => 100.max(known / 10).min(10.max(known / 2)),
    }
}

/// Returns whether a contact must get this opt-out when it is created, because a crash may have come before that. An
/// opt-out of everything that was sent because the row was deleted ends with the deletion.
fn is_for_later(entry: &Entry, opt_out: &OptOut) -> bool {
    let by_deletion = entry.is_gone && matches!(opt_out, OptOut::Everything(_));
    entry.content.is_none() && !by_deletion
}

/// Returns the row of an entry that the table does not have now.
fn row_of(entry: &Entry) -> ImportRow {
    ImportRow::from(entry.address.as_str()).key(&entry.key)
}

fn opt_out_task(started: Option<Entry>, done: Option<Entry>) -> SyncTask {
    SyncTask {
        kind: TaskKind::OptOut,
        opted_out: Vec::new(),
        is_to_leave: false,
        leavers: Vec::new(),
        recorded: Vec::new(),
        started,
        applied: None,
        refused: None,
        done,
    }
}

/// Returns a row that has only opt-outs, so that nothing else of it can be refused.
fn bare(row: &ImportRow, address: &str, opt_outs: Vec<OptOut>, task: SyncTask) -> ImportRow {
    let row = row.clone().with_contact(NewContact::new(address));
    row.with_opt_outs(opt_outs).with_task(task)
}

/// The rows of the second part, which depend on the outcomes of the first.
struct Second {
    rows: Queue,
    reader: EntryReader,
    writer: StateWriter,
    /// The keys of the rows that are subscribed after an opt-out, and whether it was one of everything.
    untold: Arc<HashMap<String, bool>>,
    /// The opt-outs of the rows that keep an address which other rows have, too.
    kept: HashMap<u64, Vec<OptOut>>,
    /// The addresses at which the service may have names and properties of other rows.
    shared: HashSet<u64>,
    /// The addresses that rows had before this sync and no longer have.
    freed: HashSet<u64>,
}

impl Iterator for Second {
    type Item = ImportRow;

    fn next(&mut self) -> Option<ImportRow> {
        loop {
            let Ok(later) = self.rows.next()? else {
                // It was written as JSON a moment before.
                return Some(ImportRow::unreadable("the row could not be read again"));
            };
            if !later.is_sent(&self.freed) {
                continue;
            }
            let Later { row, place, .. } = later;
            let is_new = place.is_none() && row.row.opt_outs().is_empty();
            if is_new && self.writer.is_at_ceiling() {
                let task = SyncTask {
                    kind: TaskKind::NotCreated,
                    ..opt_out_task(None, None)
                };
                return Some(row.row.with_task(task));
            }
            let recent = self.writer.find_recent(&row.key);
            let is_recent = recent.is_some();
            let before = match (recent, place.map(|place| self.reader.read(place))) {
                (Some(entry), _) | (None, Some(Ok(entry))) => entry,
                (None, Some(Err(_))) => {
                    let reason = "the entry of the row in the sync state could not be read";
                    return Some(ImportRow::unreadable(reason).key(&row.key));
                }
                (None, None) => Entry {
                    address: row.address().to_owned(),
                    ..Entry::default()
                },
            };
            let has_moved =
                normalized_address(&before.address) != normalized_address(row.address());
            if has_moved && !is_recent {
                // Its old address could not be looked at. The report counts that.
                continue;
            }
            let number = number_of(row.address());
            let shared = self.shared.get(&number).map(|number| {
                let kept = self.kept.get(number);
                kept.map(Vec::as_slice).unwrap_or_default()
            });
            let upsert = Upsert {
                row: &row,
                shared,
                is_untold: self.untold.contains_key(&row.key),
            };
            if !has_moved {
                return Some(upsert.in_place(before));
            }
            let of_others = self.topics_of_others(&before);
            if let Some(row) = upsert.at_next_address(before, &of_others) {
                return Some(row);
            }
        }
    }
}

impl Second {
    /// Returns the opt-outs from topics that other rows have sent to the addresses that a row is to leave.
    fn topics_of_others(&self, entry: &Entry) -> Vec<OptOut> {
        let to_leave = entry.to_leave.iter();
        let of_others = to_leave.flat_map(|address| self.writer.sent_to(address));
        // An opt-out of everything has a reason, which says whether the person has made it since.
        let topics = of_others.filter(OptOut::is_topic);
        topics.collect()
    }
}

/// The last part: leaves the addresses that rows had, if their new ones are usable.
struct Third {
    leavers: Vec<Leaver>,
    held: Addresses,
    writer: StateWriter,
    /// `None` until the first row is read, when the other parts have ended.
    tasks: Option<std::vec::IntoIter<ImportRow>>,
    /// How many skipped rows count elsewhere: those of this part that were counted when they looked at their old
    /// address.
    uncounted: Arc<AtomicU64>,
}

impl Third {
    fn tasks(&mut self) -> Vec<ImportRow> {
        let mut rows = Vec::new();
        // The address of a row whose new one is refused, or was not sent, stays.
        let mut kept = HashSet::new();
        for leaver in self.leavers.drain(..) {
            let key = leaver.row.key_text();
            let recent = key.and_then(|key| self.writer.find_recent(key));
            let Some(entry) = recent.or_else(|| leaver.entry.clone()) else {
                // It could not look at its address, and takes the opt-outs from there later.
                kept.extend(leaver.looks_at.as_deref().map(number_of));
                continue;
            };
            // Also that of a row that was deleted, and is back with an address that is refused.
            if !entry.is_gone || leaver.looks_at.is_some() {
                kept.insert(number_of(&entry.address));
            }
            rows.push((leaver, entry));
        }
        let mut tasks: Vec<ImportRow> = Vec::new();
        let mut places = HashMap::new();
        let (mut leavers, mut looked) = (Vec::<Vec<String>>::new(), HashSet::new());
        for (leaver, entry) in rows {
            self.writer.keep(&entry);
            for address in &entry.to_leave {
                let number = number_of(address);
                if self.held.has(number) || kept.contains(&number) {
                    continue;
                }
                if leaver.looks_at.as_ref() == Some(address) {
                    looked.insert(number);
                }
                let place = *places.entry(number).or_insert(tasks.len());
                if place == tasks.len() {
                    let task = SyncTask {
                        kind: TaskKind::Leave,
                        ..opt_out_task(None, None)
                    };
                    tasks.push(bare(&leaver.row, address, Vec::new(), task));
                    leavers.push(Vec::new());
                }
                leavers[place].push(entry.key.clone());
            }
        }
        let looked = looked.len() as u64;
        self.uncounted.fetch_add(looked, Ordering::Relaxed);
        for (row, leavers) in tasks.iter_mut().zip(leavers) {
            if let Some(task) = row.task_mut() {
                task.leavers = leavers;
            }
        }
        tasks
    }
}

impl Iterator for Third {
    type Item = ImportRow;

    fn next(&mut self) -> Option<ImportRow> {
        if self.tasks.is_none() {
            self.tasks = Some(self.tasks().into_iter());
        }
        self.tasks.as_mut()?.next()
    }
}

/// The checks after all parts: of the rows that are subscribed after an opt-out, and of the list.
struct Checks {
    opt_ins: std::vec::IntoIter<ImportRow>,
    uncounted: Arc<AtomicU64>,
    list: Option<CheckList>,
}

impl Stream for Checks {
    type Item = ImportRow;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<ImportRow>> {
        if let Some(row) = self.opt_ins.next() {
            self.uncounted.fetch_add(1, Ordering::Relaxed);
            return Poll::Ready(Some(row));
        }
        match &mut self.list {
            Some(list) => Pin::new(list).poll_next(context),
            None => Poll::Ready(None),
        }
    }
}

/// Lists all contacts after everything else was sent, and sends the opt-outs of rows that they do not have. A dry run
/// only counts them.
struct CheckList {
    contacts: Listed,
    unwanted: HashMap<u64, (String, bool)>,
    topics: Vec<String>,
    unwanted_topics: UnwantedTopics,
    /// The topics that no contact has shown; `None` before the first contact.
    hidden: Option<Vec<String>>,
    off: HashSet<u64>,
    /// The addresses of the rows that are subscribed after an opt-out of everything.
    awaited: HashSet<u64>,
    is_dry_run: bool,
    /// Whether the list may have no contact at all.
    may_be_empty: bool,
    found: VecDeque<ImportRow>,
    read: Arc<Mutex<ListRead>>,
}

/// The contacts of the list.
enum Listed {
    Short(Box<ContactStream>),
    /// With their topics.
    Full(Box<FullContactStream>),
}

impl Stream for Listed {
    type Item = Result<Contact, Error>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.get_mut() {
            Self::Full(contacts) => Pin::new(&mut **contacts).poll_next(context),
            Self::Short(contacts) => Pin::new(contacts).poll_next(context).map_ok(|listed| {
                let mut contact = Contact::new(listed.id, listed.email);
                contact.unsubscribed = listed.unsubscribed;
                contact
            }),
        }
    }
}

/// How far the list was read.
#[derive(Default)]
struct ListRead {
    has_ended: bool,
    /// How many contacts a dry run has found.
    found: u64,
    /// The addresses of the contacts that are opted out, although no row with the address is.
    opted_out: HashSet<u64>,
    /// The addresses of the contacts that are opted out of a topic only, although no row with the address is, with the
    /// place of the topic.
    opted_out_of: HashSet<(u64, usize)>,
    /// The addresses of the contacts that are subscribed, as their rows have been since an opt-out of everything.
    subscribed: HashSet<u64>,
    error: Option<Error>,
}

const EMPTY_LIST: &str = "the list of the service is empty, although the last run had sent contacts, so the response most likely comes from a gateway; the list was not compared";

impl CheckList {
    fn add(&mut self, contact: &Contact) {
        self.may_be_empty = true;
        let number = number_of(&contact.email);
        let is_opted_out = contact.is_opted_out();
        let (mut key, mut to_send) = (None, Vec::new());
        let mut read = lock(&self.read);
        if is_opted_out {
            if !self.off.contains(&number) {
                read.opted_out.insert(number);
            }
        } else if let Some((unwanted, _)) = self.unwanted.get(&number) {
            key = Some(unwanted);
            to_send.push(EVERYTHING);
        } else if self.awaited.contains(&number) {
            read.subscribed.insert(number);
        }
        match contact.require_topics() {
            Ok(()) => {
                let hidden = self.hidden.get_or_insert_with(|| self.topics.clone());
                hidden.retain(|topic| !contact.has_topic(topic));
            }
            Err(error) => {
                read.error.get_or_insert(error);
            }
        }
        // Whoever is opted out of everything is told as such.
        let is_told = is_opted_out || self.off.contains(&number);
        for (place, topic) in self.topics.iter().enumerate() {
            let place = (number, place);
            let answer = contact.topics.get(topic);
            match (answer, self.unwanted_topics.get(&place)) {
                // `None`: the service shows `null`, which may be a yes.
                (Some(true) | None, Some(Some(unwanted))) if contact.has_topic(topic) => {
                    key = key.or(Some(unwanted));
                    to_send.push(OptOut::Topic(topic.clone()));
                }
                (Some(false), None) if !is_told => {
                    read.opted_out_of.insert(place);
                }
                _ => {}
            }
        }
        let Some(key) = key else { return };
        if self.is_dry_run {
            read.found += 1;
            return;
        }
        let row = ImportRow::from(contact.email.as_str()).key(key);
        let task = SyncTask {
            kind: TaskKind::OptOutListed,
            ..opt_out_task(None, None)
        };
        let row = bare(&row, &contact.email, to_send, task);
        self.found.push_back(row);
    }

    /// Notes that the list was read to its end.
    fn end(&self) {
        let mut read = lock(&self.read);
        if !self.may_be_empty {
            let error = Error::decode(EMPTY_LIST);
            read.error = Some(error.with_outcome(Outcome::Unchanged));
            return;
        }
        read.has_ended = true;
        // Each contact shows all topics (interface section 2.1).
        if let Some(topic) = self.hidden.iter().flatten().next() {
            let message = format!(
                "no contact shows the topic {topic:?}, so it was not compared; check its name"
            );
            read.error.get_or_insert(Error::input(message));
        }
    }
}

impl Stream for CheckList {
    type Item = ImportRow;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<ImportRow>> {
        loop {
            if let Some(row) = self.found.pop_front() {
                return Poll::Ready(Some(row));
            }
            match ready!(Pin::new(&mut self.contacts).poll_next(context)) {
                Some(Ok(contact)) => self.add(&contact),
                Some(Err(error)) if error.is_malformed_contact() => {
                    lock(&self.read).error.get_or_insert(error);
                }
                Some(Err(error)) => {
                    lock(&self.read).error = Some(error);
                    return Poll::Ready(None);
                }
                None => {
                    self.end();
                    return Poll::Ready(None);
                }
            }
        }
    }
}

/// A row that creates or updates its contact.
///
/// All names and properties are sent if the service may have those of another row. If that creates the contact again,
/// the opt-outs of all rows that have the address are sent, too.
struct Upsert<'a> {
    row: &'a SyncRow,
    /// The opt-outs of the rows that keep the address, if the service may have the names and properties of another row
    /// there.
    shared: Option<&'a [OptOut]>,
    is_untold: bool,
}

impl Upsert<'_> {
    /// Returns the row to send if its address has not changed.
    fn in_place(&self, before: Entry) -> ImportRow {
        let before = settled(before);
        let had = before.members;
        let (contact, members) = self.contact(had);
        let mut opt_outs = UpsertOptOuts {
            to_send: self.row.row.opt_outs().to_vec(),
            had: before.opt_outs.clone(),
            recorded: before.opt_outs.clone(),
            left: before.left.clone(),
        };
        add_missing(&mut opt_outs.recorded, &before.left);
        // After a crash, the contact may not have existed when the opt-outs were sent.
        if before.content.is_none() {
            let mut recorded = std::mem::take(&mut opt_outs.recorded);
            recorded.retain(|opt_out| is_for_later(&before, opt_out));
            add_missing(&mut opt_outs.to_send, &recorded);
        }
        opt_outs.complete(self.shared, false);
        let done = self.done(before, members);
        let applied = opt_outs.applied(&done);
        let is_shared = self.shared.is_some();
        let members = [0, 1, 2].map(|member| members[member] || had[member] || is_shared);
        let started = Entry {
            content: None,
            members,
            ..applied.clone()
        };
        let refused = Entry {
            content: None,
            members,
            ..done.clone()
        };
        let task = SyncTask {
            kind: TaskKind::Upsert,
            applied: Some(applied),
            refused: Some(refused),
            ..opt_out_task(Some(started), Some(done))
        };
        self.with_task(contact, opt_outs, task)
    }

    /// Returns the row to send if it has another address now; `None` if an opt-out of its old address failed.
    ///
    /// The opt-outs that other rows have brought to the old addresses count as taken, so that this row does not take them
    /// when it leaves.
    fn at_next_address(&self, before: Entry, of_others: &[OptOut]) -> Option<ImportRow> {
        let carried = before.carried.as_ref();
        let carried = carried.filter(|_| before.left.is_empty())?;
        // A run that was killed may have created the contact of the new address, without its opt-outs.
        let may_be_new = before.tried.is_some();
        let had = before.members;
        let (contact, members) = self.contact(match may_be_new {
            true => had,
            false => [false; 3],
        });
        let mut opt_outs = UpsertOptOuts {
            to_send: self.row.row.opt_outs().to_vec(),
            had: Vec::new(),
            recorded: Vec::new(),
            left: Vec::new(),
        };
        add_missing(&mut opt_outs.to_send, carried);
        // Addresses from before may still be to leave, and their opt-outs were taken along already.
        let mut next = before.clone();
        add_missing(&mut next.taken, carried);
        add_missing(&mut next.taken, of_others);
        opt_outs.complete(self.shared, may_be_new);
        let done = self.done(next, members);
        let is_of_others = self.shared.is_some_and(|shared| has(shared, &EVERYTHING));
        let is_of_table = self.is_untold || is_of_others || !self.row.is_subscribed();
        let applied = Entry {
            is_by_person: before.is_by_person && has(carried, &EVERYTHING) && !is_of_table,
            ..opt_outs.applied(&done)
        };
        // Until its new address is known to be usable, the row has the old one.
        let started = Entry {
            tried: Some(self.row.address().to_owned()),
            members: [0, 1, 2].map(|member| members[member] || had[member]),
            is_untold: self.is_untold,
            ..before.clone()
        };
        // An earlier run may have created a contact at the new address, although this one is refused.
        let refused = Entry {
            is_untold: self.is_untold,
            is_waiting: true,
            ..before
        };
        let task = SyncTask {
            kind: TaskKind::Upsert,
            applied: Some(applied),
            refused: Some(refused),
            ..opt_out_task(Some(started), Some(done))
        };
        Some(self.with_task(contact, opt_outs, task))
    }

    /// Returns the contact with its names and properties, and which of them the row has. Those that the row had before are
    /// cleared.
    fn contact(&self, before: [bool; 3]) -> (NewContact, [bool; 3]) {
        self.row.contact(match self.shared {
            Some(_) => [true; 3],
            None => before,
        })
    }

    /// Returns the entry when everything is done.
    fn done(&self, before: Entry, members: [bool; 3]) -> Entry {
        let address = self.row.address();
        let mut done = Entry {
            key: self.row.key.clone(),
            address: address.to_owned(),
            content: Some(self.row.content()),
            members,
            opt_outs: self.row.row.opt_outs().to_vec(),
            carried: None,
            is_waiting: false,
            tried: None,
            is_untold: self.is_untold,
            is_opt_in: before.is_opt_in && self.row.is_subscribed(),
            is_by_person: before.is_of_person(&EVERYTHING)
                && has(&before.left, &EVERYTHING)
                && self.row.is_subscribed(),
            is_gone: false,
            ..before
        };
        done.remove_to_leave(address);
        done.remove_former(address);
        done
    }

    fn with_task(&self, contact: NewContact, opt_outs: UpsertOptOuts, task: SyncTask) -> ImportRow {
        let task = SyncTask {
            recorded: opt_outs.recorded,
            ..task
        };
        let row = self.row.row.clone().with_contact(contact);
        row.with_opt_outs(opt_outs.to_send).with_task(task)
    }
}

/// The opt-outs of a row that creates or updates its contact.
struct UpsertOptOuts {
    to_send: Vec<OptOut>,
    /// Those that an earlier run has recorded.
    had: Vec<OptOut>,
    /// Those that are sent only if the contact did not exist: see [`SyncTask::recorded`].
    recorded: Vec<OptOut>,
    /// Those that the service may not have when the contact was sent.
    left: Vec<OptOut>,
}

impl UpsertOptOuts {
    /// Counts all opt-outs as left until the contact is known to have existed, also those that an earlier run has
    /// recorded, and adds those of the other rows that keep the address.
    fn complete(&mut self, shared: Option<&[OptOut]>, may_be_new: bool) {
        add_missing(&mut self.left, &self.to_send);
        let of_sharing = shared.unwrap_or_default().iter();
        let of_sharing: Vec<_> = of_sharing
            .filter(|opt_out| !has(&self.to_send, opt_out))
            .collect();
        add_missing(&mut self.left, of_sharing.iter().copied());
        if !may_be_new {
            add_missing(&mut self.recorded, of_sharing.iter().copied());
        }
        add_missing(&mut self.to_send, of_sharing);
    }

    /// Returns the entry when the contact was sent, but not its opt-outs.
    fn applied(&self, done: &Entry) -> Entry {
        let mut opt_outs = done.opt_outs.clone();
        // One that an earlier run has recorded is left only in case that the contact is a new one.
        opt_outs.retain(|opt_out| !has(&self.left, opt_out) || has(&self.had, opt_out));
        Entry {
            opt_outs,
            left: self.left.clone(),
            ..done.clone()
        }
    }
}

/// Counts what a sync has done.
///
/// Its `Display` is the summary line: `3 unchanged, 1 opted out, 0 opt-ins not sent; 1 created, 0 updated, …`. After a
/// dry run, it is `dry run: 3 unchanged, 1 to opt out, 0 opt-ins not sent; 1 to create or update, 0 refused`. If there
/// are any, it ends with `; 1 opted out at the service, but not in the table`, and with a part such as
/// `; 1 opted out of "weekly" at the service, but not in the table` for each topic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[must_use = "rows may be refused or not sent: call `finished`, and print the report, which counts the refused ones"]
#[non_exhaustive]
pub struct SyncReport {
    unchanged: u64,
    opted_out: u64,
    opt_ins_not_sent: u64,
    #[serde(default)]
    opt_ins_not_sent_keys: Vec<String>,
    #[serde(default)]
    opted_out_at_service: Vec<String>,
    /// The keys by the names of the topics.
    #[serde(default)]
    opted_out_of: BTreeMap<String, Vec<String>>,
    changes: ImportReport,
    #[serde(default)]
    missing_ignored: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_dry_run: bool,
}

impl SyncReport {
    /// Returns how many rows are as they were, so that nothing was sent for them.
    #[must_use]
    pub fn unchanged(&self) -> u64 {
        self.unchanged
    }

    /// Returns how many contacts that earlier runs have sent were opted out by this run: rows that are not subscribed
    /// any more, have a new topic opt-out, were deleted or are missing, and addresses that rows have lost. A contact
    /// that was opted out already, or does not exist, counts as [`skipped`](ImportReport::skipped) among the
    /// [`changes`](Self::changes).
    ///
    /// In a dry run, returns how many would be opted out at most: a run does not opt out a contact that is opted out
    /// already or does not exist, nor the old address of a row if the service refuses the new one. Only a request can
    /// tell.
    ///
    /// The opt-outs of new rows are not counted here, because [`changes`](Self::changes) counts those rows. A row with
    /// an opt-out and a change is counted in both.
    #[must_use]
    pub fn opted_out(&self) -> u64 {
        self.opted_out
    }

    /// Returns how many rows are subscribed, or subscribed to a topic, although an earlier run has recorded an opt-out,
    /// or a run has opted out the address for another row. Each counts in every run until one has ended without being
    /// stopped, and later in each run that [checks the list](SyncContacts::checks_list) and finds the contact opted out
    /// of everything.
    ///
    /// A row does not count if its contact has opted in at the service, because nothing is left to send. At its end, a
    /// run retrieves the contact to find out. A row whose contact was not retrieved counts, and so does each in a dry
    /// run.
    ///
    /// No opt-in was sent: see [`Contacts::sync`]. [`opt_ins_not_sent_keys`](Self::opt_ins_not_sent_keys) returns the keys
    /// of these rows, and the [`rejects`](SyncContacts::rejects) have the rows.
    #[must_use]
    pub fn opt_ins_not_sent(&self) -> u64 {
        self.opt_ins_not_sent
    }

    /// Returns the keys of the rows that [`opt_ins_not_sent`](Self::opt_ins_not_sent) counts. If the person has asked for
    /// mail, call [`subscribe`](Contacts::subscribe). Otherwise, write the opt-out into the table.
    ///
    /// # Example: a "yes" after a "no"
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # let path = std::env::temp_dir().join(format!("audience-yes-{}.sync", std::process::id()));
    /// use audience::import::{SyncRow, SyncState};
    ///
    /// let table = |is_subscribed| [SyncRow::new(7, "ada@example.com").subscribed(is_subscribed)];
    /// println!("{}", contacts.sync(table(false), SyncState::open(&path)?).await?);
    ///
    /// let report = contacts.sync(table(true), SyncState::open(&path)?).await?;
    ///
    /// assert_eq!(report.opt_ins_not_sent_keys(), ["7"]);
    /// # std::fs::remove_file(path)?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn opt_ins_not_sent_keys(&self) -> &[String] {
        &self.opt_ins_not_sent_keys
    }

    /// Returns the keys of the rows that are subscribed although their contacts are opted out at the service: the
    /// persons have clicked a link in a mail, or reported spam. Each key is there once, in the order of the table. There
    /// are none unless the sync [checks the list](SyncContacts::checks_list).
    ///
    /// Nothing is sent for them. Write these opt-outs into the table: the next run then finds the contacts opted out,
    /// and sends nothing. A row is not among them if another row with the address is not
    /// [subscribed](SyncRow::subscribed), even if that one is deleted, until a run has recorded its opt-out. Nor is it if
    /// its "yes" came after an opt-out in the table, if this run has opted out the contact for another row, or if a sync has taken an opt-out along to its
    /// new address that an earlier run may have made: then it counts under
    /// [`opt_ins_not_sent`](Self::opt_ins_not_sent). An opt-out for another row counts so in one run only: a later run
    /// that checks the list has the key, unless the other row is not deleted and not subscribed.
    ///
    /// # Example: a click in a mail
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # let path = std::env::temp_dir().join(format!("audience-click-{}.sync", std::process::id()));
    /// use audience::import::{SyncRow, SyncState};
    ///
    /// let table = || [SyncRow::new(7, "ada@example.com")];
    /// println!("{}", contacts.sync(table(), SyncState::open(&path)?).await?);
    /// contacts.unsubscribe("ada@example.com").await?;
    ///
    /// let report = contacts.sync(table(), SyncState::open(&path)?).checks_list().await?;
    ///
    /// assert_eq!(report.opted_out_at_service(), ["7"]);
    /// assert!(contacts.retrieve("ada@example.com").await?.unsubscribed);
    /// # std::fs::remove_file(path)?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn opted_out_at_service(&self) -> &[String] {
        &self.opted_out_at_service
    }

    /// Returns the keys of the rows without an opt-out from this topic whose contacts show the answer `false`: the persons
    /// have opted out of the topic at the service, or the topic's default is `false`. Each key is there once, in the order
    /// of the table. There are none unless the sync [checks the topic](SyncContacts::checks_topics). That method says when
    /// not to believe them.
    ///
    /// Nothing is sent for them. A row is not among them if it or another row with the address has the opt-out or is not
    /// subscribed, or if the contact is opted out of everything: see
    /// [`opted_out_at_service`](Self::opted_out_at_service). Nor is it if this run counts its "yes" to the topic under
    /// [`opt_ins_not_sent`](Self::opt_ins_not_sent).
    ///
    /// # Example: a click on a preference page
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # server.topic("weekly", true);
    /// # let contacts = server.client().contacts();
    /// # let path = std::env::temp_dir().join(format!("audience-topic-click-{}.sync", std::process::id()));
    /// use audience::import::{SyncRow, SyncState};
    ///
    /// let table = || [SyncRow::new(7, "ada@example.com")];
    /// contacts.sync(table(), SyncState::open(&path)?).await?;
    /// contacts.unsubscribe("ada@example.com").topic("weekly").await?;
    ///
    /// let report = contacts.sync(table(), SyncState::open(&path)?).checks_topics(["weekly"]).await?;
    ///
    /// assert_eq!(report.opted_out_of("weekly"), ["7"]);
    /// # std::fs::remove_file(path)?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn opted_out_of(&self, topic: impl AsRef<str>) -> &[String] {
        let keys = self.opted_out_of.get(topic.as_ref());
        keys.map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns whether [`deletes_missing`](SyncContacts::deletes_missing) opted out nobody, because the key of a row
    /// could not be read: any missing row may be that row. Correct the row, and run the sync again.
    ///
    /// # Example: a line that was cut off
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # let path = std::env::temp_dir().join(format!("audience-no-key-{}.sync", std::process::id()));
    /// use audience::import::{ImportRow, SyncRow, SyncState};
    ///
    /// println!("{}", contacts.sync([SyncRow::new(7, "ada@example.com")], SyncState::open(&path)?).await?);
    ///
    /// let table = [SyncRow::new("", ImportRow::unreadable("half a line"))];
    /// let report = contacts.sync(table, SyncState::open(&path)?).deletes_missing().await?;
    ///
    /// assert!(report.missing_ignored());
    /// assert!(!contacts.retrieve("ada@example.com").await?.unsubscribed);
    /// # std::fs::remove_file(path)?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn missing_ignored(&self) -> bool {
        self.missing_ignored
    }

    /// Returns the counts of all rows that were new or had changed, as an import counts them. A row whose opt-out
    /// failed counts as [`opt_out_failed`](ImportReport::opt_out_failed).
    ///
    /// A contact that was not opted out because it is opted out already, or does not exist, counts as
    /// [`skipped`](ImportReport::skipped). So does an old address that another row has, or whose row stays there because
    /// the service refuses the new one.
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
    pub fn changes(&self) -> &ImportReport {
        &self.changes
    }

    /// Returns whether the service has everything that the table says: no row was refused, every row was sent, and all
    /// outcomes are known. Otherwise, the next run tries the rest again. After a dry run, it is `false` if there is
    /// anything to send: use [`finished`](Self::finished).
    ///
    /// A row with an invalid address is refused every night. An alarm that should not sound because of it can call
    /// [`finished`](Self::finished) instead.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.changes.is_complete() && self.changes.refused() == 0
    }

    /// Returns whether [`stop_when`](SyncContacts::stop_when) ended the run. The next one sends the rest.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.changes.is_stopped()
    }

    /// Returns the report if the night is fine, and an error with it if not: the
    /// [changes are not finished](ImportReport::finished), or a [missing row was ignored](Self::missing_ignored). Print
    /// the report, or `drop` it if you have printed it before.
    ///
    /// Refused rows alone are no error, and neither are opt-ins that were not sent: they are the same every night until
    /// the table is corrected.
    ///
    /// # Errors
    ///
    /// A [`SyncError`] that says what to do. Its [`error`](SyncError::error) is that of [`ImportReport::finished`]. If
    /// there is none, and a missing row was ignored, it is not [retryable](Error::is_retryable): somebody has to correct
    /// the table first.
    ///
    /// # Example: end a nightly job with an error
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # let path = std::env::temp_dir().join(format!("audience-unfinished-{}.sync", std::process::id()));
    /// use audience::import::{SyncRow, SyncState};
    ///
    /// let table = || [SyncRow::new(7, "ada@example.com"), SyncRow::new(8, "no address")];
    /// println!("{}", contacts.sync(table(), SyncState::open(&path)?).await?.finished()?);
    ///
    /// # server.fault(audience::mock::Fault::status(501).path("/contacts/*/unsubscribe"));
    /// let table = table().map(|row| row.subscribed(false));
    /// let report = contacts.sync(table, SyncState::open(&path)?).await?;
    /// let error = report.finished().unwrap_err();
    /// assert!(error.to_string().contains("an opt-out failed"));
    /// # assert!(!error.error().is_retryable());
    /// # std::fs::remove_file(path)?;
    /// # Ok(()) }
    /// ```
    pub fn finished(self) -> Result<Self, SyncError> {
        match self.unfinished() {
            Some(error) => Err(SyncError::new(self, error)),
            None => Ok(self),
        }
    }

    /// Returns whether no row was refused, and none is subscribed, to everything or to a topic, although its contact is
    /// not.
    pub(crate) fn is_whole(&self) -> bool {
        self.changes.refused() + self.opt_ins_not_sent == 0
            && self.opted_out_at_service.is_empty()
            && self.opted_out_of.values().all(Vec::is_empty)
    }

    /// Returns why the run has to be repeated or the table corrected.
    pub(crate) fn unfinished(&self) -> Option<Error> {
        let ignored = "the key of a row cannot be read, so nobody was opted out because a row is missing; correct the \
                       table, and repeat the run";
        let changes = self.changes.unfinished();
        let ignored = self
            .missing_ignored
            .then(|| Error::unfinished(ignored, false));
        changes.or(ignored)
    }
}

/// As the result of a program: 0 if everything was done, 3 if a row was refused or is subscribed, to everything or to a
/// topic, although its contact is not, and otherwise the [`exit_status`](crate::exit_status) of the error that
/// [`finished`](SyncReport::finished) returns, which is printed.
impl Termination for SyncReport {
    fn report(self) -> ExitCode {
        match self.finished() {
            Ok(report) if report.is_whole() => ExitCode::SUCCESS,
            Ok(_) => REFUSED.into(),
            Err(error) => exit_after(&error),
        }
    }
}

impl fmt::Display for SyncReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_dry_run {
            f.write_str("dry run: ")?;
        }
        let opted_out = match self.is_dry_run {
            true => "to opt out",
            false => "opted out",
        };
        write!(
            f,
            "{} unchanged, {} {opted_out}, {} opt-ins not sent; ",
            self.unchanged,
            self.opted_out(),
            self.opt_ins_not_sent
        )?;
        let changes = &self.changes;
        match self.is_dry_run {
            true => write!(
                f,
                "{} to create or update, {} refused",
                changes.valid(),
                changes.refused()
            ),
            false => write!(f, "{changes}"),
        }?;
        if !self.opted_out_at_service.is_empty() {
            let count = self.opted_out_at_service.len();
            write!(
                f,
                "; {count} opted out at the service, but not in the table"
            )?;
        }
        for (topic, keys) in &self.opted_out_of {
            let count = keys.len();
            if count > 0 {
                write!(
                    f,
                    "; {count} opted out of {topic:?} at the service, but not in the table"
                )?;
            }
        }
        match self.missing_ignored {
            true => {
                f.write_str("; missing rows ignored, because the key of a row could not be read")
            }
            false => Ok(()),
        }
    }
}

/// A sync that stopped before its end, with its report and the error that stopped it. Or a sync that is not
/// [finished](SyncReport::finished).
///
/// `Display` prints the counts and then the error, and `{:#}` its causes, too. So `source()` returns the cause of that
/// error, not the error itself: [`error`](Self::error) does. It does not convert to an [`Error`], because an `Error`
/// cannot hold the report. Return it unchanged, or as a `Box<dyn std::error::Error>`.
#[derive(Debug)]
pub struct SyncError(Box<(SyncReport, Error, Option<Safeguard>)>);

impl SyncError {
    fn new(report: SyncReport, error: Error) -> Self {
        Self(Box::new((report, error, None)))
    }

    /// Notes the safeguard, unless the check itself has failed, for example because a file could not be read.
    fn by(mut self, safeguard: Safeguard) -> Self {
        self.0.2 = (self.error().kind() == ErrorKind::Input).then_some(safeguard);
        self
    }

    /// Returns the report up to the stop.
    pub fn report(&self) -> &SyncReport {
        &self.0.0
    }

    /// Returns the error that stopped the sync.
    #[must_use]
    pub fn error(&self) -> &Error {
        &self.0.1
    }

    /// Returns the safeguard that has stopped the sync, if it was one.
    #[cfg(feature = "cli")]
    pub(crate) fn safeguard(&self) -> Option<Safeguard> {
        self.0.2
    }
}

impl fmt::Display for SyncError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (report, error, _) = &*self.0;
        write!(f, "the sync {}: {report}: ", error.end_of_job())?;
        // With `{:#}`, the error prints its causes.
        fmt::Display::fmt(error, f)
    }
}

impl StdError for SyncError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        // `Display` has the error itself.
        self.error().source()
    }
}
