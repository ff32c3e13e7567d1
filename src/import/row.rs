use std::collections::{HashSet, VecDeque};
use std::future::poll_fn;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use serde::{Deserialize, Serialize};

use super::report::RowOutcome;
use crate::contacts::{
    Contact, MAX_BATCH, NewContact, OptOutReason, UnsubscribeReason, normalized_address,
};

/// Why an import of rejects with such a row cannot be all that is left of the list. Rejects are recognized by it: if you
/// change it, keep the old text, too.
pub(super) const REST_NOT_READ: &str = "the rest of the original file was not read, because of this row; fix the \
     original file at the line that the column `line` of this row names, repeat or continue the run that wrote these \
     rejects, and import its new rejects";

/// One row of an import: a contact with its opt-outs, and where it came from.
///
/// A [`NewContact`] or an address converts to a row.
///
/// # Example: a row that carries an opt-out over
///
/// ```
/// use audience::contacts::{NewContact, OptOutReason};
/// use audience::import::{ImportRow, OptOut};
///
/// let row = ImportRow::new(NewContact::new("ada@example.com"))
///     .line(7)
///     .opt_out(OptOut::Everything(OptOutReason::Preferences));
///
/// assert_eq!(row.contact().map(|contact| &*contact.email), Some("ada@example.com"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ImportRow {
    content: Content,
    /// In a box, because a row is moved several times, and a plain row has none of these members.
    details: Option<Box<Details>>,
}

/// The members of a row besides its contact.
#[derive(Clone, Debug, Default, PartialEq)]
struct Details {
    line: Option<u64>,
    key: Option<String>,
    opt_outs: Vec<OptOut>,
    input: Option<Vec<String>>,
    input_columns: Option<Arc<[String]>>,
    task: Option<Box<SyncTask>>,
}

#[derive(Clone, Debug, PartialEq)]
enum Content {
    Contact(NewContact),
    /// A row that could not be read, with the reason.
    Unreadable(String),
    /// The place from which on the input could not be read, with the reason.
    CutOff(String),
}

/// An opt-out that an import records after the contact exists.
///
/// There is no opt-in: an import does not subscribe a contact.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OptOut {
    /// The contact opted out of all broadcasts, for this reason.
    Everything(OptOutReason),
    /// The contact opted out of the topic with this name.
    Topic(String),
}

impl ImportRow {
    /// Creates a row from a contact.
    ///
    /// # Example: a row with more than the address
    ///
    /// ```
    /// use audience::contacts::NewContact;
    /// use audience::import::ImportRow;
    ///
    /// let contact = NewContact::new("ada@example.com").first_name("Ada").property("plan", "pro");
    /// let row = ImportRow::new(contact).key("customer-7");
    ///
    /// assert_eq!(row.key_text(), Some("customer-7"));
    /// ```
    #[must_use]
    pub fn new(contact: NewContact) -> Self {
        Self::with(Content::Contact(contact))
    }

    /// Creates a row that could not be read. The import sends nothing for it and reports it as refused, for this
    /// reason. In a [sync](crate::contacts::Contacts::sync), a row that is not
    /// [subscribed](super::SyncRow::subscribed) still opts out the contact that its key had before, and
    /// [`deleted`](super::SyncRow::deleted) has no effect.
    ///
    /// # Example: a record that your own reader does not understand
    ///
    /// ```
    /// use audience::import::ImportRow;
    ///
    /// fn row(record: &str) -> ImportRow {
    ///     match record.split_once('\t') {
    ///         Some((address, _)) => ImportRow::from(address),
    ///         None => ImportRow::unreadable("the record has only one field"),
    ///     }
    /// }
    ///
    /// assert!(row("ada@example.com").contact().is_none());
    /// ```
    #[must_use]
    pub fn unreadable(reason: impl Into<String>) -> Self {
        Self::with(Content::Unreadable(reason.into()))
    }

    /// Creates the last row of an input that could not be read to its end. The import applies the rows before it
    /// and then ends with an error.
    pub(super) fn cut_off(reason: impl Into<String>) -> Self {
        Self::with(Content::CutOff(reason.into()))
    }

    fn with(content: Content) -> Self {
        Self {
            content,
            details: None,
        }
    }

    /// Sets the line of the input on which the row starts, counted from 1. Rejects, outcomes and error messages show
    /// it.
    ///
    /// # Example: rows with the lines of a file
    ///
    /// ```
    /// use audience::import::ImportRow;
    ///
    /// let file = "ada@example.com\nbob@example.com";
    /// let rows = (1..).zip(file.lines()).map(|(number, line)| ImportRow::from(line).line(number));
    ///
    /// assert_eq!(rows.last().and_then(|row| row.line_number()), Some(2));
    /// ```
    #[must_use]
    pub fn line(mut self, line: u64) -> Self {
        self.details_mut().line = Some(line);
        self
    }

    /// Sets your own key, such as a primary key. Outcomes and rejects show it.
    ///
    /// # Example: find the record of a row again
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::import::ImportRow;
    /// use futures_util::StreamExt;
    ///
    /// let records = [(7, "ada@example.com"), (8, "no address")];
    /// let rows = records.map(|(id, address)| ImportRow::from(address).key(id.to_string()));
    ///
    /// let mut outcomes = contacts.import(rows).outcomes();
    /// while let Some((row, outcome)) = outcomes.next().await {
    ///     println!("UPDATE customers SET import = '{}' WHERE id = {:?}", outcome.code(), row.key_text());
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.details_mut().key = Some(key.into());
        self
    }

    /// Adds an opt-out to record after the contact exists.
    ///
    /// The rejects of a row with [`input`](Self::input) have the cells of that input, not this opt-out. So add it to
    /// the rows of the rejects, too, or use [`CsvInput::opt_out_all`](super::CsvInput::opt_out_all).
    ///
    /// # Example: everything, or one topic
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::contacts::OptOutReason;
    /// use audience::import::{ImportRow, OptOut};
    ///
    /// # server.topic("news", true);
    /// let rows = [
    ///     ImportRow::from("ada@example.com").opt_out(OptOut::Everything(OptOutReason::Preferences)),
    ///     ImportRow::from("bob@example.com").opt_out(OptOut::Topic("news".to_owned())),
    /// ];
    /// println!("{}", contacts.import(rows).await?);
    ///
    /// assert!(contacts.retrieve("ada@example.com").await?.unsubscribed);
    /// assert!(!contacts.retrieve("bob@example.com").await?.topics["news"]);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn opt_out(mut self, opt_out: OptOut) -> Self {
        self.details_mut().opt_outs.push(opt_out);
        self
    }

    /// Sets the cells of the input that the row was read from. The rejects contain them, so that you can fix the
    /// cells and import them again.
    ///
    /// # Example: rejects that look like the file they come from
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # let path = std::env::temp_dir().join(format!("audience-cells-{}.csv", std::process::id()));
    /// use std::fs;
    ///
    /// use audience::import::ImportRow;
    ///
    /// let columns: Vec<_> = ["mail", "city"].map(str::to_owned).into();
    /// let row = ImportRow::from("no address").input(["no address", "Bonn"]).input_columns(columns);
    /// println!("{}", contacts.import([row]).rejects_file(&path).await?);
    ///
    /// let rejects = fs::read_to_string(&path)?;
    /// assert!(rejects.starts_with("line,code,message,retryable,mail,city\n"));
    /// assert!(rejects.ends_with(",no address,Bonn\n"));
    /// # fs::remove_file(path)?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn input(mut self, cells: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.details_mut().input = Some(cells.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the column names of the input, which become the header of the rejects. All rows of an input share
    /// them.
    ///
    /// # Example: share the names between all rows
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use audience::import::ImportRow;
    ///
    /// let columns: Arc<[String]> = Arc::from(["mail".to_owned(), "city".to_owned()]);
    /// let row = ImportRow::from("ada@example.com").input_columns(columns.clone());
    ///
    /// assert_eq!(row.input_column_names(), Some(&*columns));
    /// ```
    #[must_use]
    pub fn input_columns(mut self, names: impl Into<Arc<[String]>>) -> Self {
        self.details_mut().input_columns = Some(names.into());
        self
    }

    /// Returns the contact; `None` if the row could not be read.
    ///
    /// # Example: count the rows with a first name
    ///
    /// ```
    /// use audience::import::CsvRows;
    ///
    /// let rows = CsvRows::new("email,first_name\nada@example.com,Ada\nbob@example.com,\n".as_bytes())?;
    ///
    /// let named = rows.filter(|row| row.contact().is_some_and(|contact| contact.first_name.is_some()));
    /// assert_eq!(named.count(), 1);
    /// # Ok::<(), audience::Error>(())
    /// ```
    #[must_use]
    pub fn contact(&self) -> Option<&NewContact> {
        match &self.content {
            Content::Contact(contact) => Some(contact),
            Content::Unreadable(_) | Content::CutOff(_) => None,
        }
    }

    /// Returns why the row could not be read; `None` if it was read.
    ///
    /// # Example: look for unreadable rows before an import
    ///
    /// ```
    /// use audience::import::CsvRows;
    ///
    /// let rows = CsvRows::new("email,plan\nada@example.com,pro\nbob@example.com\n".as_bytes())?;
    /// let unreadable = rows.filter(|row| row.unreadable_reason().is_some());
    ///
    /// assert_eq!(unreadable.map(|row| row.line_number()).collect::<Vec<_>>(), [Some(3)]);
    /// # Ok::<(), audience::Error>(())
    /// ```
    #[must_use]
    pub fn unreadable_reason(&self) -> Option<&str> {
        match &self.content {
            Content::Contact(_) => None,
            Content::Unreadable(reason) | Content::CutOff(reason) => Some(reason),
        }
    }

    /// Returns the address as given. Empty if the row could not be read.
    pub(super) fn address(&self) -> &str {
        self.contact().map_or("", |contact| contact.email.as_str())
    }

    /// Returns whether rows after this one could not be read.
    pub(super) fn is_cut_off(&self) -> bool {
        matches!(self.content, Content::CutOff(_))
    }

    /// Returns whether the rows after this one can be read once this input is fixed. Rejects may not have them at all.
    pub(super) fn hides_rows(&self) -> bool {
        matches!(&self.content, Content::CutOff(reason) if reason != REST_NOT_READ)
    }

    /// Returns the line of the input, if it was set.
    #[must_use]
    pub fn line_number(&self) -> Option<u64> {
        self.details.as_ref()?.line
    }

    /// Returns your key, if one was set.
    #[must_use]
    pub fn key_text(&self) -> Option<&str> {
        self.details.as_ref()?.key.as_deref()
    }

    /// Returns the opt-outs to record, in the order they were added.
    ///
    /// # Example: count the opt-outs of a file
    ///
    /// ```
    /// use audience::import::CsvRows;
    ///
    /// let rows = CsvRows::new("email,unsubscribed\nada@example.com,yes\nbob@example.com,no\n".as_bytes())?;
    ///
    /// assert_eq!(rows.filter(|row| !row.opt_outs().is_empty()).count(), 1);
    /// # Ok::<(), audience::Error>(())
    /// ```
    #[must_use]
    pub fn opt_outs(&self) -> &[OptOut] {
        self.details
            .as_ref()
            .map_or(&[], |details| &details.opt_outs)
    }

    /// Returns the cells of the input, if they were set.
    #[must_use]
    pub fn input_cells(&self) -> Option<&[String]> {
        self.details.as_ref()?.input.as_deref()
    }

    /// Returns the column names of the input, if they were set. For rows from CSV, they are as in the
    /// [rejects](super::Import::rejects): a column that you mapped may have its meaning after its name.
    #[must_use]
    pub fn input_column_names(&self) -> Option<&[String]> {
        self.details.as_ref()?.input_columns.as_deref()
    }
}

impl ImportRow {
    pub(super) fn shared_input_columns(&self) -> Option<&Arc<[String]>> {
        self.details.as_ref()?.input_columns.as_ref()
    }

    fn details_mut(&mut self) -> &mut Details {
        self.details.get_or_insert_default()
    }

    /// Sets what a sync does with the row.
    pub(super) fn with_task(mut self, task: SyncTask) -> Self {
        self.details_mut().task = Some(Box::new(task));
        self
    }

    pub(super) fn task_kind(&self) -> Option<TaskKind> {
        self.task().map(|task| task.kind)
    }

    pub(super) fn task(&self) -> Option<&SyncTask> {
        self.details.as_ref()?.task.as_deref()
    }

    pub(super) fn task_mut(&mut self) -> Option<&mut SyncTask> {
        self.details.as_mut()?.task.as_deref_mut()
    }

    /// Replaces the contact of a row that was read.
    pub(super) fn with_contact(mut self, contact: NewContact) -> Self {
        if let Content::Contact(old) = &mut self.content {
            *old = contact;
        }
        self
    }

    /// Replaces the contact by the reason why it cannot be sent.
    pub(super) fn into_unreadable(mut self, reason: &str) -> Self {
        self.content = Content::Unreadable(reason.to_owned());
        self
    }

    /// Replaces all opt-outs.
    pub(super) fn with_opt_outs(mut self, opt_outs: Vec<OptOut>) -> Self {
        self.details_mut().opt_outs = opt_outs;
        self
    }

    /// Returns why the row cannot be sent; `None` if it can.
    pub(super) fn problem(&self) -> Option<String> {
        match &self.content {
            Content::Contact(contact) => contact.check().err().map(|error| error.to_string()),
            Content::Unreadable(reason) | Content::CutOff(reason) => Some(reason.clone()),
        }
    }
}

/// Creates a row from a contact, or from an address alone.
impl<T: Into<NewContact>> From<T> for ImportRow {
    fn from(contact: T) -> Self {
        Self::new(contact.into())
    }
}

/// Converts a contact of a full export to a row that creates it elsewhere.
///
/// The row has the contact's names and properties. An opt-out or a spam report becomes an [`OptOut::Everything`]: the
/// reason `preferences` is kept, and any other reason becomes `manual`, because a sender cannot declare a complaint
/// ([interface section 4.5](crate::interface#4.5)). Each topic that is `false` becomes an [`OptOut::Topic`], whether it
/// is the contact's answer or the topic's default. So does one whose answer is `null`, which may be a "no". A topic that is
/// `true` is left out: an import does not subscribe a contact.
///
/// # Example: the lines of an export
///
/// ```
/// use audience::contacts::Contact;
/// use audience::import::{ImportRow, OptOut};
///
/// let line = r#"{"id": "c_1", "email": "ada@example.com", "unsubscribed": false, "created_at": 0,
///     "topics": {"news": true, "offers": false}}"#;
/// let contact: Contact = serde_json::from_str(line).unwrap();
///
/// let row = ImportRow::from(contact);
/// assert_eq!(row.opt_outs(), [OptOut::Topic("offers".to_owned())]);
/// ```
impl From<Contact> for ImportRow {
    fn from(contact: Contact) -> Self {
        let is_opted_out = contact.is_opted_out();
        let topics: Vec<_> = contact.topic_opt_outs().cloned().collect();
        let mut new = NewContact::new(contact.email);
        new.first_name = contact.first_name;
        new.last_name = contact.last_name;
        if !contact.properties.is_empty() {
            new = new.properties(contact.properties);
        }
        let mut row = Self::new(new);
        if is_opted_out {
            let reason = match contact.unsubscribe_reason {
                Some(UnsubscribeReason::Preferences) => OptOutReason::Preferences,
                // `manual`, a complaint, or no reason: see the docs of the conversion.
                _ => OptOutReason::Manual,
            };
            row = row.opt_out(OptOut::Everything(reason));
        }
        for topic in topics {
            row = row.opt_out(OptOut::Topic(topic));
        }
        row
    }
}

/// The task of a sync for a row, besides its contact and its opt-outs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SyncTask {
    pub(super) kind: TaskKind,
    /// For [`TaskKind::Look`], the addresses to leave that this sync opts out for other rows.
    pub(super) opted_out: Vec<String>,
    /// For [`TaskKind::Look`], whether the row leaves the address later, because no other row that the state has at it
    /// keeps it.
    pub(super) is_to_leave: bool,
    /// For [`TaskKind::Leave`], the keys of the rows that leave the address.
    pub(super) leavers: Vec<String>,
    /// The opt-outs that the service has, or that were tried just before. They are sent again only if the contact no
    /// longer existed. For [`TaskKind::Check`], the opt-outs that the row no longer has; empty if they are not known.
    pub(super) recorded: Vec<OptOut>,
    /// The entry while it is not known whether the task was done; `None` if nothing is remembered of the row.
    pub(super) started: Option<Entry>,
    /// The entry when the contact is as it should be, but not its opt-outs.
    pub(super) applied: Option<Entry>,
    /// The entry when the contact was refused, and its opt-outs were sent nevertheless.
    pub(super) refused: Option<Entry>,
    /// The entry when the task is done.
    pub(super) done: Option<Entry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskKind {
    /// Records the opt-outs of a contact that exists, unless it has them already.
    OptOut,
    /// Sends the opt-outs that a contact of the list has just shown not to have.
    OptOutListed,
    /// Looks at the contact of an address that the row no longer has.
    Look(OldAddress),
    /// Creates or updates the contact.
    Upsert,
    /// Nothing: the contact would be new, and the plan allows no more.
    NotCreated,
    /// Opts out the contact of an address that the row had before, now that its new one is known to be usable.
    Leave,
    /// Finds out whether the contact has opted in at the service, as its row says.
    Check,
}

/// Who has an address that a row no longer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OldAddress {
    /// Another row got it in an earlier run.
    Taken,
    /// Another row got it in this run.
    Held,
    /// Nobody has it. Of the rows that had it, another one counts as the one that leaves it.
    LeftByAnother,
    /// Nobody has it.
    Left,
}

impl OldAddress {
    pub(super) fn is_held(self) -> bool {
        matches!(self, Self::Taken | Self::Held)
    }
}

/// What a sync remembers of a row of the caller's table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) address: String,
    /// The fingerprint of the names and properties that the service has; `None` while they are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) content: Option<u64>,
    /// The first name, the last name and the properties: whether the service may have them from the table.
    #[serde(default)]
    pub(super) members: [bool; 3],
    /// The opt-outs of the table that the service has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) opt_outs: Vec<OptOut>,
    /// The opt-outs that the service may not have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) left: Vec<OptOut>,
    /// The opt-outs of the contact of this address, which are for the next address of the row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) carried: Option<Vec<OptOut>>,
    /// Whether the next address was refused. Otherwise, a run was killed after it looked at the contact.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_waiting: bool,
    /// The next address, if its contact was sent and its outcome is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tried: Option<String>,
    /// Addresses whose contacts are opted out as soon as the row has another usable one. The current one is among them
    /// while the next one is not known to be usable. One that another row is to take stays among them until the state
    /// has that row there, because that row may never be sent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) to_leave: Vec<String>,
    /// The addresses to leave that a sync may have opted out since it looked at them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) maybe_out: Vec<String>,
    /// The opt-outs of the addresses to leave that were sent to the address of the row, or that other rows have sent to
    /// the addresses to leave.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) taken: Vec<OptOut>,
    /// The addresses that the row had before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) former: Vec<Former>,
    /// Whether the row is subscribed after an opt-out, and no finished run has reported it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_untold: bool,
    /// Whether the row was subscribed after an opt-out of everything, or a sync has opted out its contact itself, and the
    /// contact was not seen subscribed since. It counts only while the row is subscribed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_opt_in: bool,
    /// Whether the person has made the opt-out of everything in `carried` or, once the row has its next address, the one
    /// in `left` or `opt_outs`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_by_person: bool,
    /// Whether the row was deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_gone: bool,
}

/// An address that a row had before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Former {
    pub(super) address: String,
    /// Whether its contact is opted out. Otherwise, another row had the address then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_out: bool,
}

impl Entry {
    /// Returns whether an opt-out in `left` or `opt_outs` is not of the table: the person has made it at an address that
    /// the row had before.
    pub(super) fn is_of_person(&self, opt_out: &OptOut) -> bool {
        let is_everything = matches!(opt_out, OptOut::Everything(_));
        self.is_by_person && self.carried.is_none() && is_everything
    }

    /// Remembers an address that the row had before.
    pub(super) fn add_former(&mut self, address: &str, is_out: bool) {
        self.remove_former(address);
        self.former.push(Former {
            address: address.to_owned(),
            is_out,
        });
    }

    pub(super) fn remove_former(&mut self, address: &str) {
        let address = normalized_address(address);
        self.former
            .retain(|former| normalized_address(&former.address) != address);
    }

    pub(super) fn add_to_leave(&mut self, address: String) {
        if !is_among(&self.to_leave, &address) {
            self.to_leave.push(address);
        }
    }

    /// Forgets to leave an address that another row has: that row leaves it later.
    pub(super) fn hand_over(&mut self, address: &str) {
        self.remove_to_leave(address);
        self.add_former(address, false);
    }

    /// Returns the addresses that this row leaves when it gets another one: the one that it has, unless it is about to
    /// get another one or was deleted, and the one that it may have got.
    pub(super) fn holds(&self) -> impl Iterator<Item = &String> {
        let is_settled = self.carried.is_none() && !self.is_gone;
        let current = Some(&self.address).filter(|_| is_settled);
        current.into_iter().chain(&self.tried)
    }

    pub(super) fn remove_to_leave(&mut self, address: &str) {
        let address = normalized_address(address);
        let is_other = |left: &String| normalized_address(left) != address;
        self.to_leave.retain(is_other);
        self.maybe_out.retain(is_other);
        if self.to_leave.is_empty() {
            self.taken.clear();
        }
    }

    pub(super) fn is_maybe_out(&self, address: &str) -> bool {
        is_among(&self.maybe_out, address)
    }

    /// Remembers whether a sync may have opted out an address to leave.
    pub(super) fn set_maybe_out(&mut self, address: &str, is_maybe_out: bool) {
        if !is_maybe_out {
            let address = normalized_address(address);
            self.maybe_out
                .retain(|out| normalized_address(out) != address);
        } else if !self.is_maybe_out(address) {
            self.maybe_out.push(address.to_owned());
        }
    }
}

/// Returns whether an address is among these, in whatever spelling.
pub(super) fn is_among(addresses: &[String], address: &str) -> bool {
    let address = normalized_address(address);
    addresses
        .iter()
        .any(|other| normalized_address(other) == address)
}

/// The opt-out of a row that is not subscribed, or deleted.
pub(super) const EVERYTHING: OptOut = OptOut::Everything(OptOutReason::Manual);

impl OptOut {
    pub(super) fn is_topic(&self) -> bool {
        matches!(self, Self::Topic(_))
    }
}

/// Returns whether an opt-out of the same things is among these, for whatever reason.
pub(super) fn has(opt_outs: &[OptOut], wanted: &OptOut) -> bool {
    opt_outs.iter().any(|opt_out| match (opt_out, wanted) {
        (OptOut::Everything(_), OptOut::Everything(_)) => true,
        _ => opt_out == wanted,
    })
}

/// Adds the opt-outs that are not among these.
pub(super) fn add_missing<'a>(
    opt_outs: &mut Vec<OptOut>,
    more: impl IntoIterator<Item = &'a OptOut>,
) {
    for opt_out in more {
        if !has(opt_outs, opt_out) {
            opt_outs.push(opt_out.clone());
        }
    }
}

/// A row with its number, the hash of its address, and what is left to do.
#[derive(Clone, Debug)]
pub(super) struct NumberedRow {
    /// The number of the row in the input, counted from 0.
    pub(super) number: u64,
    pub(super) row: ImportRow,
    pub(super) to_do: ToDo,
    pub(super) address: AddressHash,
}

impl NumberedRow {
    pub(super) fn new(number: u64, row: ImportRow, to_do: ToDo) -> Self {
        // A task that looks at an address waits for the other rows with that address.
        let left = row
            .task()
            .filter(|task| matches!(task.kind, TaskKind::Look(_)));
        let left = left.and_then(|task| task.started.as_ref());
        let address = left.map_or(row.address(), |entry| &entry.address);
        Self {
            address: AddressHash::new(address),
            number,
            row,
            to_do,
        }
    }

    /// Returns the contact to send; `None` if only its opt-outs are left, or if nothing is sent.
    pub(super) fn contact_to_send(&self) -> Option<&NewContact> {
        match self.to_do {
            ToDo::Everything { .. } => self.row.contact(),
            ToDo::OptOuts(_) | ToDo::Verify => None,
        }
    }

    /// Returns whether the row needs requests of its own, one after another.
    pub(super) fn is_alone(&self) -> bool {
        self.contact_to_send().is_none()
    }

    /// Returns whether to send this opt-out after the contact got this outcome. If a request was retried, an outcome
    /// may hide that an earlier attempt created the contact.
    pub(super) fn sends(&self, opt_out: &OptOut, contact: &RowOutcome, was_retried: bool) -> bool {
        let is_old = match contact {
            RowOutcome::Updated => !was_retried,
            // The row was not accepted. If there is a contact, this run has not created it.
            RowOutcome::NotSent => true,
            _ => false,
        };
        let task = self.row.task().filter(|_| is_old);
        task.is_none_or(|task| !has(&task.recorded, opt_out))
    }

    /// Returns whether to look at the contact before these opt-outs are sent, because it may be opted out already.
    pub(super) fn looks_before(&self, to_send: &[OptOut], contact: &RowOutcome) -> bool {
        // An earlier run of an import may have created the contact.
        let is_resumed = matches!(self.to_do, ToDo::OptOuts(_));
        let is_new = *contact == RowOutcome::Created && !is_resumed;
        let is_listed = self.row.task_kind() == Some(TaskKind::OptOutListed);
        has(to_send, &EVERYTHING) && !is_new && !is_listed
    }

    /// Returns the outcome if nothing is sent for the row.
    pub(super) fn outcome_if_not_sent(&self) -> RowOutcome {
        match &self.to_do {
            ToDo::Everything { .. } | ToDo::Verify => RowOutcome::NotSent,
            ToDo::OptOuts(left) => left.now.clone(),
        }
    }

    /// Returns whether the row must not be sent twice.
    pub(super) fn fails_on_conflict(&self) -> bool {
        self.row
            .contact()
            .is_some_and(NewContact::fails_on_conflict)
    }
}

/// The hash of an address as the service normalizes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AddressHash(u64);

impl AddressHash {
    pub(super) fn new(address: &str) -> Self {
        // Most addresses are normalized already, and need no copy. Without a branch for each byte, this is faster.
        let is_normalized = |byte: u8| byte.is_ascii_graphic() & !byte.is_ascii_uppercase();
        match address
            .bytes()
            .fold(true, |all, byte| all & is_normalized(byte))
        {
            true => Self::of_normalized(address),
            false => Self::of_normalized(&normalized_address(address)),
        }
    }

    pub(super) fn number(self) -> u64 {
        self.0
    }

    fn of_normalized(address: &str) -> Self {
        // Unkeyed: whoever finds a collision only gains a row that waits, is reported as not sent, or counts as there in a
        // verification although its contact is missing, or a contact that is kept when it should be erased.
        let mut hasher = DefaultHasher::new();
        hasher.write(address.as_bytes());
        Self(hasher.finish())
    }
}

pub(super) fn number_of(address: &str) -> u64 {
    AddressHash::new(address).number()
}

impl Hash for AddressHash {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(self.0);
    }
}

/// Addresses, each as a hash, which takes less memory and time than the text.
///
/// Two addresses with the same hash count as the same. Among ten million addresses, the odds that this happens
/// by chance are 1 in 300,000. Then a row waits without need, is reported as not sent after the other address
/// has failed, is counted as a duplicate in a dry run, or counts as there in a verification although its contact is
/// missing. It is never lost, nor sent out of order.
pub(super) type AddressSet = HashSet<AddressHash, BuildHasherDefault<NoHasher>>;

/// Takes a hash as it is.
#[derive(Debug, Default)]
pub(super) struct NoHasher(u64);

impl Hasher for NoHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            // Never called for an `AddressHash`, which writes a `u64`, but the trait demands it.
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// The work that is left for a row.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ToDo {
    /// The contact and its opt-outs.
    Everything {
        /// Whether an earlier run may have sent the row.
        was_sent: bool,
    },
    /// Only its opt-outs, because an earlier run has sent the contact.
    OptOuts(Box<OptOutsLeft>),
    /// Nothing is sent: whether the service has its contact and its opt-outs is looked up.
    Verify,
}

/// The outcomes of a row whose contact was sent and whose opt-outs are not recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OptOutsLeft {
    /// The outcome when its opt-outs are recorded.
    pub(super) contact: RowOutcome,
    /// The outcome until then.
    pub(super) now: RowOutcome,
}

/// The source of the rows, in one part or in several.
pub(super) struct Source<T = ImportRow> {
    rows: Rows<T>,
    /// The parts after the current one.
    later: VecDeque<Rows<T>>,
    /// Rows that were read in advance, to be read again.
    head: std::vec::IntoIter<T>,
    /// Whether the last row of the part was read. An iterator or a stream must not be asked after its end.
    part_has_ended: bool,
}

enum Rows<T> {
    Iter(Box<dyn Iterator<Item = T> + Send>),
    Stream(Pin<Box<dyn Stream<Item = T> + Send>>),
    /// A part that is left out after a stop.
    Checks(Pin<Box<dyn Stream<Item = T> + Send>>),
}

impl<T: 'static> Source<T> {
    pub(super) fn from_iter<I>(rows: I) -> Self
    where
        I: IntoIterator<Item: Into<T> + 'static, IntoIter: Send + 'static>,
    {
        Self::new(Rows::Iter(Box::new(rows.into_iter().map(Into::into))))
    }

    pub(super) fn from_stream<S>(rows: S) -> Self
    where
        S: Stream<Item: Into<T>> + Send + 'static,
    {
        Self::new(Rows::Stream(Box::pin(Converted {
            rows: Box::pin(rows),
            to: PhantomData,
        })))
    }

    fn new(rows: Rows<T>) -> Self {
        Self {
            rows,
            later: VecDeque::new(),
            head: Vec::new().into_iter(),
            part_has_ended: false,
        }
    }

    /// Adds a part, which is read after [`start_next_part`](Self::start_next_part).
    pub(super) fn then(mut self, rows: impl Iterator<Item = T> + Send + 'static) -> Self {
        self.later.push_back(Rows::Iter(Box::new(rows)));
        self
    }

    /// Adds a part like [`then`](Self::then), which [`skip_checks`](Self::skip_checks) leaves out.
    pub(super) fn then_check(mut self, rows: impl Stream<Item = T> + Send + 'static) -> Self {
        self.later.push_back(Rows::Checks(Box::pin(rows)));
        self
    }

    pub(super) fn skip_checks(&mut self) {
        self.later.retain(|part| !matches!(part, Rows::Checks(_)));
        self.part_has_ended |= matches!(self.rows, Rows::Checks(_));
    }

    /// Puts back the rows that were read first.
    pub(super) fn put_back(&mut self, head: Vec<T>) {
        self.head = head.into_iter();
    }

    /// Reads this many of the first rows. Without a number, it reads at most a batch, and does not wait for further
    /// rows if there is one.
    pub(super) async fn read_head(&mut self, wanted: Option<usize>) -> Vec<T> {
        let mut head = Vec::new();
        poll_fn(|context| {
            while head.len() < wanted.unwrap_or(MAX_BATCH) {
                match self.poll_next(context) {
                    Poll::Ready(Some(row)) => head.push(row),
                    Poll::Ready(None) => break,
                    // A slow stream may give its next row in an hour. A new journal needs only the rows that are there.
                    Poll::Pending if wanted.is_none() && !head.is_empty() => break,
                    Poll::Pending => return Poll::Pending,
                }
            }
            Poll::Ready(())
        })
        .await;
        head
    }

    /// Returns whether the last row was read.
    pub(super) fn has_ended(&self) -> bool {
        self.part_has_ended && self.head.len() == 0 && self.later.is_empty()
    }

    /// Starts the next part after the end of the current one. Returns whether there is one.
    pub(super) fn start_next_part(&mut self) -> bool {
        match self.later.pop_front() {
            None => false,
            Some(rows) => {
                self.rows = rows;
                self.part_has_ended = false;
                true
            }
        }
    }

    /// Returns the number of rows that are left, if the source knows it.
    pub(super) fn total(&self) -> Option<u64> {
        let (least, most) = match &self.rows {
            _ if !self.later.is_empty() => return None,
            _ if self.part_has_ended => (0, Some(0)),
            Rows::Iter(rows) => rows.size_hint(),
            Rows::Stream(rows) | Rows::Checks(rows) => rows.size_hint(),
        };
        (most == Some(least)).then_some((least as u64).saturating_add(self.head.len() as u64))
    }

    /// Returns the next row of the current part.
    pub(super) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<T>> {
        if let Some(row) = self.head.next() {
            return Poll::Ready(Some(row));
        }
        if self.part_has_ended {
            return Poll::Ready(None);
        }
        let next = match &mut self.rows {
            Rows::Iter(rows) => Poll::Ready(rows.next()),
            Rows::Stream(rows) | Rows::Checks(rows) => rows.as_mut().poll_next(context),
        };
        self.part_has_ended = matches!(next, Poll::Ready(None));
        next
    }
}

/// A stream of rows, from a stream of what converts to them.
struct Converted<S, T> {
    rows: Pin<Box<S>>,
    to: PhantomData<fn() -> T>,
}

impl<S: Stream<Item: Into<T>>, T> Stream for Converted<S, T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        self.rows
            .as_mut()
            .poll_next(context)
            .map(|row| row.map(Into::into))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.rows.size_hint()
    }
}
