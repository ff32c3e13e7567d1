use std::borrow::{Borrow, Cow};
use std::collections::HashMap;
use std::fmt;

use http::Method;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::Contacts;
use super::new_contact::{NewContact, OnConflict};
use crate::address::{are_spellings_of_one, one_spelling};
#[cfg(feature = "import")]
use crate::client::{CallOptions, not_sent};
use crate::client::{Endpoint, Object, Operation, Request, RetrySafety, Success, endpoint_builder};
use crate::error::{Target, is_generic, refusal_in};
use crate::{Error, ErrorCode};

impl Contacts {
    /// Creates 1 to [`MAX_BATCH`] contacts in one request ([interface section 4.2](crate::interface#4.2)).
    ///
    /// It takes [`NewContact`]s, references to them, or addresses.
    ///
    /// The call succeeds even if entries fail. The [`BatchReport`] has one result for each entry, in
    /// the order of the entries. After the first entry that exceeds the plan's contact ceiling, every remaining entry
    /// reports `quota_exceeded`.
    ///
    /// Results in another order are matched with the entries by the addresses that they name. The outcome of an entry
    /// is [`BatchOutcome::Unknown`] if the service sends no usable result for it, or contradicts itself: for example,
    /// if two results name the address of one entry, or if its only result names an address that was not sent.
    ///
    /// If any entry has `OnConflict::Error`, the batch is retried only if it was certainly not
    /// applied.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Input`](crate::ErrorKind::Input) if the batch is empty or has more than
    ///   [`MAX_BATCH`] entries, or if a property is a number that JSON cannot represent. Nothing is
    ///   sent.
    /// - `key_not_permitted` (403) if the key is a sending-access key.
    /// - [`ErrorKind::Decode`](crate::ErrorKind::Decode) if the response is not a report, or does not
    ///   have one result for each entry.
    ///
    /// # Example: an import that reports failures
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::contacts::{MAX_BATCH, NewContact};
    ///
    /// let rows = [NewContact::new("ada@example.com").first_name("Ada"), NewContact::new("no address")];
    ///
    /// for batch in rows.chunks(MAX_BATCH) {
    ///     let report = contacts.create_batch(batch).await?;
    ///     for (index, entry) in report.failures() {
    ///         println!("{}: {}", batch[index].email, entry.outcome);
    ///     }
    /// #   assert_eq!(report.failures().count(), 1);
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// [`MAX_BATCH`]: super::MAX_BATCH
    pub fn create_batch(&self, contacts: impl IntoIterator<Item: Into<NewContact>>) -> CreateBatch {
        let entries = contacts.into_iter().map(Into::into).collect();
        CreateBatch::new(&self.client, Batch { entries })
    }
}

endpoint_builder! {
    /// Creates a batch of contacts when it is awaited: see [`Contacts::create_batch`].
    pub struct CreateBatch(Batch) -> BatchReport, idempotent;
}

#[derive(Clone)]
struct Batch {
    entries: Vec<NewContact>,
}

impl Endpoint for Batch {
    type Output = BatchReport;

    fn operation(&self) -> Operation {
        OPERATION
    }

    fn request(&self) -> Result<Request, Error> {
        batch_request(&self.entries)
    }

    fn decode(&self, success: Success) -> Result<BatchReport, Error> {
        let results = batch_results(&success, &self.entries)?;
        let entries = results
            .into_iter()
            .zip(&self.entries)
            .map(|(result, sent)| {
                let email = match result.email.is_empty() {
                    true => sent.email.clone(),
                    false => result.email.into_owned(),
                };
                BatchEntry {
                    email,
                    outcome: result.outcome,
                    fails_on_conflict: sent.fails_on_conflict(),
                }
            });
        Ok(BatchReport::new(entries).after_attempts(success.attempts))
    }
}

/// The results of a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[must_use = "some entries may have failed, although the call succeeded: see `failures`"]
#[non_exhaustive]
pub struct BatchReport {
    /// One result for each entry of the batch, in its order.
    pub entries: Vec<BatchEntry>,
    #[serde(default)]
    attempts: u32,
}

impl BatchReport {
    /// Creates the report of a call with one attempt, for example for a unit test.
    ///
    /// # Example: in a unit test
    ///
    /// ```
    /// use audience::ErrorCode;
    /// use audience::contacts::{BatchEntry, BatchOutcome, BatchReport};
    ///
    /// let refused = BatchOutcome::Failed { code: ErrorCode::QuotaExceeded, message: None };
    /// let report = BatchReport::new([
    ///     BatchEntry::new("ada@example.com", BatchOutcome::Created),
    ///     BatchEntry::new("bob@example.com", refused),
    /// ]);
    ///
    /// assert!(report.quota_exceeded());
    /// assert_eq!(report.failures().count(), 1);
    /// ```
    pub fn new(entries: impl IntoIterator<Item = BatchEntry>) -> Self {
        Self {
            entries: entries.into_iter().collect(),
            attempts: 1,
        }
    }

    /// Sets the number of [attempts](Self::attempts). Default: 1.
    ///
    /// # Example: a report of a batch that was retried, in a unit test
    ///
    /// ```
    /// use audience::contacts::{BatchEntry, BatchOutcome, BatchReport};
    ///
    /// let updated = BatchEntry::new("ada@example.com", BatchOutcome::Updated);
    /// let report = BatchReport::new([updated]).after_attempts(2);
    ///
    /// assert_eq!(report.attempts(), 2);
    /// ```
    pub fn after_attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }

    /// Returns whether an entry exceeded the plan's contact ceiling. Then every entry after it failed too
    /// ([section 4.2](crate::interface#4.2)), and further batches fail in the same way until the plan or the audience
    /// changes.
    ///
    /// # Example: stop an import
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::builder().contact_ceiling(150).start().await;
    /// # let contacts = server.client().contacts();
    /// # let addresses: Vec<String> = (0..300).map(|n| format!("{n}@example.com")).collect();
    /// let mut batches = addresses.chunks(100);
    ///
    /// for batch in &mut batches {
    ///     let report = contacts.create_batch(batch).await?;
    ///     if report.quota_exceeded() {
    ///         println!("the plan is full; {} batches were not sent", batches.len());
    ///         break;
    ///     }
    /// }
    /// # assert_eq!(batches.len(), 1);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn quota_exceeded(&self) -> bool {
        self.entries.iter().any(|entry| {
            matches!(&entry.outcome, BatchOutcome::Failed { code, .. } if *code == ErrorCode::QuotaExceeded)
        })
    }

    /// Returns the entries that failed or whose outcome is [unknown](BatchOutcome::Unknown), each with
    /// its index in the batch.
    ///
    /// # Example: the slug of each failure
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::ErrorCode;
    /// use audience::contacts::BatchOutcome;
    ///
    /// let report = contacts.create_batch(["no address"]).await?;
    ///
    /// for (index, entry) in report.failures() {
    ///     if let BatchOutcome::Failed { code, message } = &entry.outcome {
    ///         assert_eq!((index, code), (0, &ErrorCode::ValidationError));
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    pub fn failures(&self) -> impl Iterator<Item = (usize, &BatchEntry)> {
        self.entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| entry.outcome.is_failure())
    }

    /// Returns how many attempts the call made.
    ///
    /// If there was more than one, `Updated` or `Skipped` may mean that an earlier attempt created the
    /// contact.
    ///
    /// # Example: a batch that was applied twice
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # server.fault(audience::mock::Fault::close_after().times(1));
    /// use audience::contacts::BatchOutcome;
    ///
    /// // The service applies the batch, but the connection closes before the response arrives.
    /// let report = contacts.create_batch(["ada@example.com"]).await?;
    ///
    /// assert_eq!(report.attempts(), 2);
    /// assert_eq!(report.entries[0].outcome, BatchOutcome::Updated);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }
}

/// The result of one entry of a batch ([interface section 2.5](crate::interface#2.5)).
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "ResultEntry")]
#[non_exhaustive]
pub struct BatchEntry {
    /// The address of the entry as the response has it. If the response has no result for this address, the address as
    /// it was sent.
    pub email: String,
    /// The result of the entry.
    pub outcome: BatchOutcome,
    /// Whether the entry was sent with `OnConflict::Error`.
    fails_on_conflict: bool,
}

impl BatchEntry {
    /// Creates the result of an entry, for example for a unit test: see [`BatchReport::new`].
    ///
    /// # Example: an entry that the service refused
    ///
    /// ```
    /// use audience::ErrorCode;
    /// use audience::contacts::{BatchEntry, BatchOutcome};
    ///
    /// let message = Some("not an email address".to_owned());
    /// let refused = BatchOutcome::Failed { code: ErrorCode::ValidationError, message };
    /// let entry = BatchEntry::new("ada", refused);
    ///
    /// assert!(entry.outcome.is_failure() && !entry.is_retryable());
    /// ```
    pub fn new(email: impl Into<String>, outcome: BatchOutcome) -> Self {
        Self {
            email: email.into(),
            outcome,
            fails_on_conflict: false,
        }
    }

    /// Sets the [`on_conflict`](super::NewContact::on_conflict) that the entry was sent with. Default:
    /// [`OnConflict::Upsert`].
    ///
    /// # Example: an entry that must not be sent twice
    ///
    /// ```
    /// use audience::contacts::{BatchEntry, BatchOutcome, OnConflict};
    ///
    /// let entry = BatchEntry::new("ada@example.com", BatchOutcome::Unknown);
    /// assert!(entry.is_retryable());
    ///
    /// let must_be_new = entry.on_conflict(OnConflict::Error);
    /// assert!(!must_be_new.is_retryable());
    /// ```
    #[must_use]
    pub fn on_conflict(mut self, choice: OnConflict) -> Self {
        self.fails_on_conflict = choice == OnConflict::Error;
        self
    }

    /// Returns whether the entry may succeed if you send it once more, unchanged.
    ///
    /// - `false` if the entry was applied, and for every refusal that the interface document names: the
    ///   entry, the plan or the key must change first.
    /// - `true` for any other slug, because its cause may be temporary, and if the outcome is
    ///   [unknown](BatchOutcome::Unknown). But it is `false` if the entry was also sent with
    ///   [`OnConflict::Error`](super::OnConflict::Error): if the first batch did create the contact, the service would
    ///   refuse the second.
    ///
    /// # Example: the entries to retry
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// use audience::contacts::NewContact;
    ///
    /// let batch = ["ada@example.com", "no address"].map(NewContact::new);
    /// let report = contacts.create_batch(&batch).await?;
    ///
    /// let retryable = report.failures().filter(|(_, entry)| entry.is_retryable());
    /// let again: Vec<&NewContact> = retryable.map(|(index, _)| &batch[index]).collect();
    /// assert!(again.is_empty(), "an invalid address stays invalid");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.outcome.is_retryable() && !self.fails_on_conflict
    }
}

/// Serializes to the form of [section 2.5](crate::interface#2.5). An unknown outcome has no status. An entry that was
/// sent with `OnConflict::Error` has the member `on_conflict` too, so that [`is_retryable`](BatchEntry::is_retryable)
/// returns the same when the entry is read back.
impl Serialize for BatchEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct StoredEntry<'a> {
            email: &'a str,
            #[serde(flatten)]
            outcome: &'a BatchOutcome,
            #[serde(skip_serializing_if = "Option::is_none")]
            on_conflict: Option<OnConflict>,
        }
        StoredEntry {
            email: &self.email,
            outcome: &self.outcome,
            on_conflict: self.fails_on_conflict.then_some(OnConflict::Error),
        }
        .serialize(serializer)
    }
}

impl From<ResultEntry> for BatchEntry {
    fn from(entry: ResultEntry) -> Self {
        Self {
            email: entry.text("email").unwrap_or_default().to_owned(),
            fails_on_conflict: entry.fails_on_conflict(),
            outcome: entry.into(),
        }
    }
}

/// The result of one entry of a batch.
///
/// It serializes to the members of [section 2.5](crate::interface#2.5): `{"status": "created"}`, or
/// `{"status": "already_exists", "message": "…"}`. An unknown outcome has no status.
///
/// `Display` writes the status and, if there is one, the message: `created`, `already_exists: …`, `unknown`. The
/// message comes from the service, so it may name an address.
///
/// # Example: a line for each entry
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
/// # let server = audience::mock::MockServer::start().await;
/// # let contacts = server.client().contacts();
/// let report = contacts.create_batch(["ada@example.com", "no address"]).await?;
///
/// for entry in &report.entries {
///     println!("{:<20} {}", entry.email, entry.outcome);
/// }
/// # assert_eq!(report.entries[0].outcome.to_string(), "created");
/// # assert!(report.entries[1].outcome.to_string().starts_with("validation_error: "));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "ResultEntry")]
#[non_exhaustive]
pub enum BatchOutcome {
    /// The address was new.
    Created,
    /// The address existed and was updated.
    Updated,
    /// The address existed and was left unchanged.
    Skipped,
    /// The service sent a status other than the three above: the slug of a refusal. If the interface document does not
    /// name the status, but another member of the entry is a documented slug, then that slug counts.
    ///
    /// If the interface document names the slug ([`ErrorCode::KNOWN`]), the entry was not applied. Any other slug may
    /// also be a word for success that this version does not know, so the entry may have been applied:
    /// [`retrieve`](super::Contacts::retrieve) the contact to find out.
    Failed {
        /// The slug, as in the error of a whole request.
        code: ErrorCode,
        /// The service's message, if it sent one.
        message: Option<String>,
    },
    /// The service sent no usable status for the entry, so it may have been applied or not.
    ///
    /// [`retrieve`](super::Contacts::retrieve) the contact to find out.
    Unknown,
}

impl BatchOutcome {
    /// Returns whether the entry failed, or may have failed because its outcome is
    /// [unknown](Self::Unknown).
    ///
    /// # Example: outcomes that need attention
    ///
    /// ```
    /// use audience::contacts::BatchOutcome;
    ///
    /// assert!(BatchOutcome::Unknown.is_failure());
    /// assert!(!BatchOutcome::Skipped.is_failure());
    /// ```
    #[must_use]
    pub fn is_failure(&self) -> bool {
        matches!(self, Self::Failed { .. } | Self::Unknown)
    }

    /// Returns whether a second attempt may succeed, if the first one does not make it fail.
    pub(crate) fn is_retryable(&self) -> bool {
        self.is_failure() && self.may_be_applied()
    }

    /// Returns whether the entry was applied, or may have been.
    pub(crate) fn may_be_applied(&self) -> bool {
        match self {
            Self::Created | Self::Updated | Self::Skipped | Self::Unknown => true,
            Self::Failed { code, .. } => !ErrorCode::KNOWN.contains(code),
        }
    }

    /// Reads the status of an entry that was not refused (section 2.5), in upper or lower case.
    fn accepted(status: &str) -> Option<Self> {
        let outcomes = [Self::Created, Self::Updated, Self::Skipped];
        let is_status = |outcome: &Self| {
            let (known, _) = outcome.status();
            known.is_some_and(|known| status.eq_ignore_ascii_case(known))
        };
        outcomes.into_iter().find(is_status)
    }

    /// Returns the status and the message, as in section 2.5.
    fn status(&self) -> (Option<&str>, Option<&str>) {
        match self {
            Self::Created => (Some("created"), None),
            Self::Updated => (Some("updated"), None),
            Self::Skipped => (Some("skipped"), None),
            Self::Failed { code, message } => (Some(code.as_str()), message.as_deref()),
            Self::Unknown => (None, None),
        }
    }
}

impl fmt::Display for BatchOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status() {
            (Some(status), Some(message)) => f.pad(&format!("{status}: {message}")),
            (Some(status), None) => f.pad(status),
            (None, _) => f.pad("unknown"),
        }
    }
}

impl Serialize for BatchOutcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct StoredOutcome<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            status: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            message: Option<&'a str>,
        }
        let (status, message) = self.status();
        StoredOutcome { status, message }.serialize(serializer)
    }
}

/// An entry on the wire. Section 2.5 does not show the name of the message field, so an entry is read as error bodies
/// are. No member makes the entry invalid, even if its type is wrong.
#[derive(Default, Deserialize)]
#[serde(transparent)]
struct ResultEntry(Map<String, Value>);

impl ResultEntry {
    /// Returns a member that is text and not empty.
    fn text(&self, name: &str) -> Option<&str> {
        let text = self.0.get(name)?.as_str();
        text.filter(|text| !text.is_empty())
    }

    /// Returns whether the entry was sent with `OnConflict::Error`. The service does not send this member: it is only
    /// in an entry that was stored.
    fn fails_on_conflict(&self) -> bool {
        self.text("on_conflict") == Some("error")
    }

    /// Returns the slug of a refusal, and the message that the common members of an error hold.
    fn refusal(&self) -> (Option<ErrorCode>, Option<String>) {
        let status = self.text("status");
        let (found, message) = refusal_in(&self.0);
        let is_documented = |code: &ErrorCode| ErrorCode::KNOWN.contains(code);
        let code = match (found, status) {
            // The status is a word such as `failed`, and the slug is in another member.
            (Some(found), Some(status)) if is_documented(&found) || is_generic(status) => {
                Some(found)
            }
            (Some(found), None) if is_documented(&found) => Some(found),
            // Any other status is a slug, even one that this version does not know.
            (_, status) => status.map(ErrorCode::from_slug),
        };
        (code, message)
    }

    /// Returns the message, under any of its likely names, or else the one inside the error.
    fn message(&self, code: &ErrorCode, nested: Option<String>) -> Option<String> {
        let names = ["message", "error", "detail", "reason"];
        let texts = names.into_iter().filter_map(|name| self.text(name));
        let texts = texts.map(str::to_owned).chain(nested);
        // A text that is only a slug is no message.
        let is_slug = |slug: &ErrorCode| slug == code || ErrorCode::KNOWN.contains(slug);
        let mut messages = texts.filter(|text| !is_slug(&ErrorCode::from_slug(text)));
        messages.next()
    }
}

impl From<ResultEntry> for BatchOutcome {
    fn from(entry: ResultEntry) -> Self {
        if let Some(accepted) = entry.text("status").and_then(Self::accepted) {
            return accepted;
        }
        let (Some(code), nested) = entry.refusal() else {
            return Self::Unknown;
        };
        let message = entry.message(&code, nested);
        Self::Failed { code, message }
    }
}

/// The largest number of entries in a batch ([interface section 8](crate::interface#8)).
pub const MAX_BATCH: usize = 100;

const OPERATION: Operation = Operation {
    name: "create_batch",
    template: "/contacts/batch",
};

/// Creates the request.
///
/// # Errors
///
/// `ErrorKind::Input` if the number of entries or a property is invalid.
fn batch_request(entries: &[impl Borrow<NewContact> + Serialize]) -> Result<Request, Error> {
    match entries.len() {
        0 => {
            return Err(Error::input(format!(
                "the batch is empty; send 1 to {MAX_BATCH} entries"
            )));
        }
        1..=MAX_BATCH => {}
        count => {
            return Err(Error::input(format!(
                "the batch has {count} entries; send at most {MAX_BATCH} in one batch"
            )));
        }
    }
    let mut retry_safety = RetrySafety::Safe;
    for entry in entries.iter().map(Borrow::borrow) {
        entry.check()?;
        // A retry would report `already_exists` for every entry that the first attempt created.
        if entry.fails_on_conflict() {
            retry_safety = RetrySafety::OnlyIfNotApplied;
        }
    }
    Request::new(Method::POST, ["contacts", "batch"], retry_safety)?
        .about(Target::Batch)
        .json(entries)
}

/// A result: the address that it names, empty if it names none, and the outcome.
struct NamedResult<'a> {
    email: Cow<'a, str>,
    outcome: BatchOutcome,
}

/// Reads the results, and returns one for each entry, in the order of the entries.
///
/// # Errors
///
/// `ErrorKind::Decode` if the response does not have one result for each entry.
fn batch_results<'a>(
    success: &'a Success,
    sent: &[impl Borrow<NewContact>],
) -> Result<Vec<NamedResult<'a>>, Error> {
    // Nearly every response has the documented form, which is fast to read. Any other is read again, and a
    // result of any form is accepted.
    let results: Vec<_> = match success.valid_object() {
        Some(Results::<Object<DocumentedEntry<'_>>> { data }) => {
            check_count(data.len(), sent.len())?;
            data.into_iter().map(NamedResult::from).collect()
        }
        None => {
            let Object(Results::<&RawValue> { data }) = success.json()?;
            check_count(data.len(), sent.len())?;
            data.into_iter().map(NamedResult::from).collect()
        }
    };
    let is_in_place = |(result, entry): (&NamedResult<'_>, &_)| {
        let entry: &NewContact = Borrow::borrow(entry);
        is_same_address(&result.email, &entry.email)
    };
    Ok(match results.iter().zip(sent).all(is_in_place) {
        true => results,
        false => matched_by_address(results, sent),
    })
}

/// Fails unless there is one result for each entry. The results are counted before they are mapped, because a
/// `NamedResult` may take far more memory than its JSON.
fn check_count(count: usize, sent_count: usize) -> Result<(), Error> {
    match count == sent_count {
        true => Ok(()),
        false => Err(Error::decode(format!(
            "the response has {count} results for {sent_count} entries"
        ))),
    }
}

/// Returns whether the address of a result allows it to belong to the entry at its place.
fn is_same_address(named: &str, sent: &str) -> bool {
    if named == sent {
        return true;
    }
    let (named, sent) = (named.trim(), sent.trim());
    let is_ascii = named.is_ascii() && sent.is_ascii();
    named.is_empty()
        || named.eq_ignore_ascii_case(sent)
        || !is_ascii && are_spellings_of_one(named, sent)
}

/// Returns the results in the order of the entries whose addresses they name. A result without an address is for the
/// entry at its place.
///
/// The service promises the order of the entries (interface section 4.2). If a response has another one, a result must
/// not become the outcome of another entry: the opt-outs of an import depend on it. So an entry whose result is missing
/// or not certain has an unknown outcome.
fn matched_by_address<'a>(
    results: Vec<NamedResult<'a>>,
    sent: &[impl Borrow<NewContact>],
) -> Vec<NamedResult<'a>> {
    let mut places: HashMap<String, Vec<usize>> = HashMap::new();
    let mut named: HashMap<String, Vec<(usize, NamedResult<'a>)>> = HashMap::new();
    for (place, (result, entry)) in results.into_iter().zip(sent).enumerate() {
        let own = one_spelling(&entry.borrow().email);
        let name = match one_spelling(&result.email) {
            name if name.is_empty() => own.clone(),
            name => name,
        };
        places.entry(own).or_default().push(place);
        named.entry(name).or_default().push((place, result));
    }
    let unknown = || NamedResult {
        email: Cow::Borrowed(""),
        outcome: BatchOutcome::Unknown,
    };
    let mut matched: Vec<_> = sent.iter().map(|_| unknown()).collect();
    for (address, places) in places {
        let results = named.remove(&address).unwrap_or_default();
        let is_in_place = || places.iter().eq(results.iter().map(|(place, _)| place));
        // If several results of one address have moved, nobody can say which belongs to which entry, unless all are
        // equal.
        let is_one = || {
            let outcomes = results.windows(2);
            outcomes
                .into_iter()
                .all(|pair| pair[0].1.outcome == pair[1].1.outcome)
        };
        if places.len() == results.len() && (is_in_place() || is_one()) {
            for (place, (_, result)) in places.into_iter().zip(results) {
                matched[place] = result;
            }
        }
    }
    matched
}

#[derive(Deserialize)]
struct Results<T> {
    data: Vec<T>,
}

/// A result in the form of section 2.5, with the most likely name of the message.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DocumentedEntry<'a> {
    #[serde(borrow)]
    email: Cow<'a, str>,
    #[serde(borrow)]
    status: Cow<'a, str>,
    #[serde(borrow, default)]
    message: Option<Cow<'a, str>>,
}

impl<'a> From<Object<DocumentedEntry<'a>>> for NamedResult<'a> {
    fn from(Object(entry): Object<DocumentedEntry<'a>>) -> Self {
        let outcome = BatchOutcome::accepted(&entry.status).unwrap_or_else(|| {
            let message = entry.message.map(|message| ("message", message));
            // The address is among the members, as in an entry of any other form, although the outcome does not need
            // it.
            let members = [("email", entry.email.clone()), ("status", entry.status)];
            let members = members.into_iter().chain(message);
            let members = members.map(|(name, text)| (name.to_owned(), text.into_owned().into()));
            ResultEntry(members.collect()).into()
        });
        Self {
            email: entry.email,
            outcome,
        }
    }
}

/// Reads a result of any form. If it is not an object, its address is empty and its outcome unknown.
impl From<&RawValue> for NamedResult<'_> {
    fn from(result: &RawValue) -> Self {
        let entry = serde_json::from_str(result.get()).map(|Object(entry)| entry);
        let entry: ResultEntry = entry.unwrap_or_default();
        Self {
            email: Cow::Owned(entry.text("email").unwrap_or_default().to_owned()),
            outcome: entry.into(),
        }
    }
}

#[cfg(feature = "import")]
impl Contacts {
    /// Creates contacts like [`create_batch`](Self::create_batch), but borrows them and returns only their outcomes,
    /// because an import keeps the rows.
    pub(crate) async fn batch_outcomes(
        &self,
        contacts: &[&NewContact],
        options: CallOptions,
    ) -> Result<Vec<BatchOutcome>, Error> {
        let request = batch_request(contacts).map_err(|error| not_sent(OPERATION, error))?;
        let received = self.client.receive(OPERATION, &request, &options).await?;
        received.decode(|success| {
            let results = batch_results(&success, contacts)?;
            Ok(results.into_iter().map(|result| result.outcome).collect())
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{ErrorKind, Outcome};

    fn request(entries: impl IntoIterator<Item = NewContact>) -> Result<Request, Error> {
        let entries = entries.into_iter().collect();
        Batch { entries }.request()
    }

    fn many(count: usize) -> impl Iterator<Item = NewContact> {
        (0..count).map(|n| NewContact::new(format!("{n}@x.io")))
    }

    #[test]
    fn the_body_is_the_array_of_the_entries() {
        let request = request(many(2)).unwrap();

        assert_eq!(
            (request.method, request.path.as_str()),
            (Method::POST, "/contacts/batch")
        );
        assert_eq!(
            request.body.unwrap(),
            r#"[{"email":"0@x.io"},{"email":"1@x.io"}]"#
        );
    }

    #[test]
    fn a_batch_has_1_to_100_entries() {
        assert!(request(many(1)).is_ok());
        assert!(request(many(100)).is_ok());
        for count in [0, 101] {
            let error = request(many(count)).unwrap_err();

            assert_eq!(
                (error.kind(), error.outcome()),
                (ErrorKind::Input, Outcome::NotSent)
            );
        }
    }

    #[test]
    fn one_entry_that_fails_on_conflict_makes_a_retry_of_the_batch_unsafe() {
        let strict = NewContact::new("s@x.io").on_conflict(OnConflict::Error);

        assert_eq!(request(many(3)).unwrap().retry_safety, RetrySafety::Safe);
        assert_eq!(
            request(many(3).chain([strict])).unwrap().retry_safety,
            RetrySafety::OnlyIfNotApplied
        );
    }

    #[test]
    fn an_entry_that_is_stored_and_read_back_is_the_same() {
        for outcome in [BatchOutcome::Created, BatchOutcome::Unknown] {
            for choice in [OnConflict::Upsert, OnConflict::Error] {
                let entry = BatchEntry::new("a@x.io", outcome.clone()).on_conflict(choice);

                let text = serde_json::to_string(&entry).unwrap();
                let read: BatchEntry = serde_json::from_str(&text).unwrap();

                assert_eq!(read, entry);
                assert_eq!(read.is_retryable(), entry.is_retryable());
            }
        }
        let strict =
            BatchEntry::new("a@x.io", BatchOutcome::Unknown).on_conflict(OnConflict::Error);
        assert!(!strict.is_retryable());
    }

    #[test]
    fn the_quota_is_exceeded_if_it_stopped_any_entry() {
        let failed = |code| BatchOutcome::Failed {
            code,
            message: None,
        };
        let report = |outcomes: [BatchOutcome; 2]| {
            BatchReport::new(outcomes.map(|outcome| BatchEntry::new("a@x.io", outcome)))
        };

        let full = report([BatchOutcome::Created, failed(ErrorCode::QuotaExceeded)]);
        let refused = report([BatchOutcome::Unknown, failed(ErrorCode::ValidationError)]);

        assert!(full.quota_exceeded());
        assert!(!refused.quota_exceeded());
    }

    #[test]
    fn the_message_of_a_failed_entry_is_found_under_any_likely_name() {
        for name in ["message", "error", "detail", "reason"] {
            let entry = json!({"email": "a@x.io", "status": "quota_exceeded", name: "full"});

            let entry: BatchEntry = serde_json::from_value(entry).unwrap();

            let message = Some("full".to_owned());
            assert_eq!(
                entry.outcome,
                BatchOutcome::Failed {
                    code: ErrorCode::QuotaExceeded,
                    message
                }
            );
        }
        let bare: BatchEntry =
            serde_json::from_value(json!({"email": "a@x.io", "status": "new_slug"})).unwrap();
        assert_eq!(
            bare.outcome,
            BatchOutcome::Failed {
                code: "new_slug".into(),
                message: None
            }
        );
    }

    fn failed(message: Option<&str>) -> BatchOutcome {
        BatchOutcome::Failed {
            code: ErrorCode::AlreadyExists,
            message: message.map(str::to_owned),
        }
    }

    #[test]
    fn an_outcome_is_displayed_for_people_and_read_back_from_its_json() {
        for (outcome, text, json) in [
            (
                BatchOutcome::Created,
                "created",
                json!({"status": "created"}),
            ),
            (
                BatchOutcome::Updated,
                "updated",
                json!({"status": "updated"}),
            ),
            (
                BatchOutcome::Skipped,
                "skipped",
                json!({"status": "skipped"}),
            ),
            (BatchOutcome::Unknown, "unknown", json!({})),
            (
                failed(None),
                "already_exists",
                json!({"status": "already_exists"}),
            ),
            (
                failed(Some("it is there")),
                "already_exists: it is there",
                json!({"status": "already_exists", "message": "it is there"}),
            ),
        ] {
            assert_eq!(outcome.to_string(), text);
            assert_eq!(format!("{outcome:>40}|"), format!("{text:>40}|"));
            assert_eq!(serde_json::to_value(&outcome).unwrap(), json);
            assert_eq!(
                serde_json::from_value::<BatchOutcome>(json).unwrap(),
                outcome
            );
        }
    }

    #[test]
    fn a_result_belongs_to_its_entry_whichever_small_sigma_the_service_writes() {
        for stored in ["νίκος@x.gr", "νίκοσ@x.gr"] {
            let created = json!({"email": stored, "status": "created"});
            let updated = json!({"email": "ada@x.io", "status": "updated"});
            for data in [json!([created, updated]), json!([updated, created])] {
                let entries = vec![NewContact::new("ΝΊΚΟΣ@x.gr"), NewContact::new("ada@x.io")];
                let body = json!({"data": data}).to_string();

                let response = http::Response::new(body.into());
                let report = crate::client::result_of(&Batch { entries }, response).unwrap();

                assert_eq!(report.entries[0].outcome, BatchOutcome::Created, "{data}");
                assert_eq!(report.entries[1].outcome, BatchOutcome::Updated, "{data}");
            }
        }
    }

    #[test]
    fn a_result_in_the_documented_form_is_read_as_any_other_result_is() {
        for (text, is_documented) in [
            (r#"{"email": "a@x.io", "status": "created"}"#, true),
            (r#"{"status": "updated", "email": "\u00e4@x.io"}"#, true),
            (r#"{"email": "", "status": ""}"#, true),
            (
                r#"{"email": "a@x.io", "status": "Already-Exists", "message": "it is there"}"#,
                true,
            ),
            (
                r#"{"email": "a@x.io", "status": "new_slug", "message": ""}"#,
                true,
            ),
            (
                r#"{"email": "a@x.io", "status": "new_slug", "message": null}"#,
                true,
            ),
            (
                r#"{"email": "a@x.io", "status": "new_slug", "detail": "x"}"#,
                false,
            ),
            (r#"{"email": "a@x.io", "status": 5}"#, false),
            (r#"{"status": "created"}"#, false),
            (r#"["a@x.io", "created"]"#, false),
            (
                r#"{"email": "a@x.io", "status": "created", "status": "skipped"}"#,
                false,
            ),
        ] {
            let documented = serde_json::from_str::<Object<DocumentedEntry<'_>>>(text);
            let any: &RawValue = serde_json::from_str(text).unwrap();

            assert_eq!(documented.is_ok(), is_documented, "{text}");
            if let Ok(documented) = documented {
                let (fast, slow) = (NamedResult::from(documented), NamedResult::from(any));
                assert_eq!((fast.email, fast.outcome), (slow.email, slow.outcome));
            }
        }
    }
}
