use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;

use futures_core::Stream;
use futures_core::stream::FusedStream;
use serde::Serialize;

use crate::client::{CallOptions, TakesOptions};
use crate::contacts::{
    Contact, ContactSummary, Contacts, ListContacts, Properties, PropertyValue, UnsubscribeReason,
    not_shown,
};
use crate::import::{escape, is_property_name, line};
use crate::{Error, Timestamp};

/// Contacts as CSV: a header, and a line for each contact.
///
/// # The text
///
/// The text is UTF-8 without a byte-order mark. Commas separate the cells, and lines end with a line feed (`\n`). A
/// cell is in quotes if it has a comma, a quote, a line break, a space at its start or end, or another delimiter that
/// an import recognizes; a quote in it is doubled. A missing value and an empty text are both an empty cell, and a
/// number looks like a text with the same digits. [`JsonLines`](super::JsonLines) keep them apart.
///
/// # Spreadsheets
///
/// A spreadsheet may run a cell that starts with `=`, `+`, `-`, `@`, a tab or a line break as a formula, even if a
/// stranger entered it as a name. By default, each cell is the exact text, so that an import restores it. If people
/// will open the file in a spreadsheet, use [`escape_formulas`](Self::escape_formulas).
///
/// # Import
///
/// [`CsvRows`](crate::import::CsvRows) reads the file: it restores names, properties and opt-outs, and ignores `id`
/// and `created_at`. It subscribes no contact. In the column of a property, text with the digits of a number becomes a
/// number, white space around text is removed, and empty text is left out. The column `properties`
/// ([`ExportColumn::OtherProperties`]) is exact, as JSON lines are. Do not import a file with
/// [escaped formulas](Self::escape_formulas): the apostrophes would become part of the text.
///
/// # Example: one line for each contact
///
/// ```
/// use audience::contacts::Contact;
/// use audience::export::Csv;
///
/// let mut ada = Contact::new("c_1", "ada@example.com");
/// ada.last_name = Some("King, Countess of Lovelace".to_owned());
/// ada.topics.insert("news".to_owned(), true);
///
/// let csv = Csv::new(["email", "last_name", "topic:news"]);
/// assert_eq!(csv.header(), "email,last_name,topic:news\n");
/// assert_eq!(csv.line(&ada), "ada@example.com,\"King, Countess of Lovelace\",true\n");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a format writes nothing by itself"]
pub struct Csv {
    columns: Vec<ExportColumn>,
    escape_formulas: bool,
    /// Whether the export finds the columns, so that they may differ the next time.
    is_found: bool,
}

impl Csv {
    /// Creates a format with these columns, in this order. Properties and topics without a column are left out.
    ///
    /// # Example: names and columns
    ///
    /// ```
    /// use audience::export::{Csv, ExportColumn};
    ///
    /// let csv = Csv::new(["email", "topic:news", "plan"]);
    /// assert_eq!(csv.columns()[2], ExportColumn::Property("plan".to_owned()));
    ///
    /// // A property whose name is also the name of another column:
    /// let csv = Csv::new([ExportColumn::Email, ExportColumn::Property("email".to_owned())]);
    /// assert_eq!(csv.header(), "email,property:email\n");
    /// ```
    pub fn new(columns: impl IntoIterator<Item = impl Into<ExportColumn>>) -> Self {
        Self {
            columns: columns.into_iter().map(Into::into).collect(),
            escape_formulas: false,
            is_found: false,
        }
    }

    /// Creates a format with all columns: the address, the names, the opt-out, when the contact was created, and one
    /// column for each property. A [full](super::Export::full) export also has the family name, the reason for an
    /// opt-out, and one column for each topic.
    ///
    /// The export finds the properties before it writes, so it reads the whole list once more. To find the topics, it
    /// retrieves the newest contact: a full contact has every topic, even if it never answered
    /// ([interface section 2.1](crate::interface#2.1)). A contact that says no to another topic, because the service does not
    /// show it or it was added later, counts as [malformed](super::Export::on_malformed) and is left out: without the column,
    /// an import elsewhere would subscribe it. A property that is added later has no column.
    ///
    /// Until the export, [`columns`](Self::columns), [`header`](Self::header) and [`line`](Self::line) return nothing.
    ///
    /// # Example: everything that can be carried over
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # server.topic("news", true);
    /// # contacts.create(audience::contacts::NewContact::new("ada@example.com").property("plan", "pro")).await?;
    /// # let path = std::env::temp_dir().join(format!("audience-columns-{}", std::process::id()));
    /// use audience::export::Csv;
    ///
    /// let report = contacts.list().export(&path, Csv::all_columns()).full().await?;
    ///
    /// assert!(report.is_complete());
    /// let file = std::fs::read_to_string(&path)?;
    /// assert_eq!(
    ///     file.lines().next(),
    ///     Some("email,first_name,last_name,unsubscribed,unsubscribe_reason,created_at,topic:news,plan")
    /// );
    /// # std::fs::remove_file(path)?;
    /// # Ok(()) }
    /// ```
    pub fn all_columns() -> Self {
        let is_found = true;
        Self {
            is_found,
            ..Self::new([""; 0])
        }
    }

    /// Puts an apostrophe before each cell that a spreadsheet would take for a formula, as the
    /// [rejects](crate::import::Import::rejects) of an import do. Numbers are left as they are. Default: the exact
    /// text.
    ///
    /// Open the file with the comma as the only delimiter. A spreadsheet that separates at semicolons, as some do by the
    /// language of the system, would see further cells inside a cell, and a formula in one of them.
    ///
    /// # Example: a name that is a formula
    ///
    /// ```
    /// use audience::contacts::Contact;
    /// use audience::export::Csv;
    ///
    /// let mut mallory = Contact::new("c_1", "m@example.com");
    /// mallory.first_name = Some("=HYPERLINK(\"http://evil.example\")".to_owned());
    ///
    /// let line = Csv::new(["first_name"]).escape_formulas().line(&mallory);
    /// assert_eq!(line, "\"'=HYPERLINK(\"\"http://evil.example\"\")\"\n");
    /// ```
    pub fn escape_formulas(mut self) -> Self {
        self.escape_formulas = true;
        self
    }

    /// Returns the columns.
    ///
    /// # Example: decide whether the export must be full
    ///
    /// ```
    /// use audience::export::{Csv, ExportColumn};
    ///
    /// let csv = Csv::new(["email", "topic:news"]);
    /// let has_topics = csv.columns().iter().any(|column| matches!(column, ExportColumn::Topic(_)));
    ///
    /// assert!(has_topics);
    /// ```
    #[must_use]
    pub fn columns(&self) -> &[ExportColumn] {
        &self.columns
    }

    /// Returns the first line, with the names of the columns.
    ///
    /// # Example: columns that are chosen at run time
    ///
    /// ```
    /// use audience::export::Csv;
    ///
    /// let chosen = vec!["email".to_owned(), "plan".to_owned()];
    ///
    /// assert_eq!(Csv::new(chosen).header(), "email,plan\n");
    /// ```
    #[must_use]
    pub fn header(&self) -> String {
        line(self.columns.iter().map(|column| {
            // A property may have a name that is a formula.
            let name = column.to_string();
            match self.escape_formulas {
                true => escape(&name).into_owned(),
                false => name,
            }
        }))
    }

    /// Returns the line of a contact.
    ///
    /// # Example: write the file yourself
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # contacts.create(audience::contacts::NewContact::new("ada@example.com").property("plan", "pro")).await?;
    /// use audience::export::Csv;
    /// use futures_util::TryStreamExt;
    ///
    /// let csv = Csv::new(["email", "plan"]);
    /// let lines: String = contacts.list().stream().map_ok(|contact| csv.line(&contact)).try_collect().await?;
    ///
    /// assert_eq!(csv.header() + &lines, "email,plan\nada@example.com,pro\n");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn line<'a>(&self, contact: impl Into<ExportedContact<'a>>) -> String {
        let contact = contact.into();
        line(self.columns.iter().map(|column| {
            let text = contact.text(column, &self.columns);
            match self.escape_formulas {
                true => escape(&text).into_owned().into(),
                false => text,
            }
        }))
    }

    /// Checks that an export can have these columns.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Input` if there is none, if one has no name, if one occurs twice, or if one needs a full export.
    pub(super) fn check(&self, is_full: bool) -> Result<(), Error> {
        if self.columns.is_empty() && !self.is_found {
            return Err(Error::input(
                "the export has no columns; give it at least `email`",
            ));
        }
        let mut earlier = HashSet::new();
        for column in &self.columns {
            // A property without a name may have been found.
            if !self.is_found && matches!(column.to_string().trim(), "" | TOPIC) {
                return Err(Error::input("a column has no name; leave it out"));
            }
            if !earlier.insert(column) {
                return Err(Error::input(format!(
                    "the column `{column}` is given twice; leave one of them out"
                )));
            }
            if column.needs_full() && !is_full {
                return Err(Error::input(format!(
                    "lists lack the column `{column}`; retrieve each contact in full, or leave the column out"
                )));
            }
        }
        Ok(())
    }

    /// Checks that a column was found for each topic to which a contact says no. Without the column, an import elsewhere
    /// would subscribe it.
    ///
    /// # Errors
    ///
    /// The error of a malformed contact, with the contact as its body.
    fn check_answers(&self, contact: &Contact) -> Result<(), Error> {
        let mut refused = contact.topic_opt_outs();
        match refused.find(|topic| !has_column(&self.columns, topic)) {
            None => Ok(()),
            Some(topic) => Err(not_shown(format!(
                "the contact says no to the topic `{topic}`, for which no column was found; export again, or choose the columns, with `topics`"
            ))
            .reading(json(contact).into())),
        }
    }

    /// Describes the format, so that a resumed export can be compared with it.
    pub(super) fn description(&self) -> String {
        let escaped = match self.escape_formulas {
            true => ", formulas escaped",
            false => "",
        };
        format!("CSV: {}{escaped}", self.header().trim_end())
    }
}

/// Contacts as JSON lines: a JSON object on each line, in the form of the interface document.
///
/// serde reads a line of a full export as a [`Contact`](crate::contacts::Contact), and a line of any other export as
/// a [`ContactSummary`](crate::contacts::ContactSummary). Nothing is lost. A `Contact` converts to an
/// [`ImportRow`](crate::import::ImportRow), so the file can be imported again, opt-outs included.
///
/// # Example: read an export
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = audience::mock::MockServer::builder().seed_contact("ada@example.com").start().await;
/// # let contacts = server.client().contacts();
/// # let path = std::env::temp_dir().join(format!("audience-json-lines-{}", std::process::id()));
/// use audience::contacts::Contact;
/// use audience::export::JsonLines;
///
/// let report = contacts.list().export(&path, JsonLines).full().await?;
///
/// assert_eq!(report.contacts(), 1);
/// for line in std::fs::read_to_string(&path)?.lines() {
///     let contact: Contact = serde_json::from_str(line)?;
///     assert_eq!(contact, contacts.retrieve("ada@example.com").await?);
/// }
/// # std::fs::remove_file(path)?;
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "a format writes nothing by itself"]
pub struct JsonLines;

/// The format of an export. [`Csv`] and [`JsonLines`] convert to it.
///
/// # Example: a format chosen at run time
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = audience::mock::MockServer::start().await;
/// # let contacts = server.client().contacts();
/// # let path = std::env::temp_dir().join(format!("audience-format-{}", std::process::id()));
/// use audience::export::{Csv, Format, JsonLines};
///
/// let as_csv = std::env::args().any(|argument| argument == "--csv");
/// let format = match as_csv {
///     true => Format::from(Csv::new(["email"])),
///     false => Format::from(JsonLines),
/// };
///
/// println!("{}", contacts.list().export(&path, format).await?);
/// # std::fs::remove_file(path)?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// A header, and a line for each contact.
    Csv(Csv),
    /// A JSON object on each line.
    JsonLines(JsonLines),
}

impl Format {
    /// Returns the first line. It is empty if the format has no header.
    pub(crate) fn header(&self) -> String {
        match self {
            Self::Csv(csv) => csv.header(),
            Self::JsonLines(_) => String::new(),
        }
    }

    /// Returns the line of a contact.
    pub(crate) fn line<'a>(&self, contact: impl Into<ExportedContact<'a>>) -> String {
        match self {
            Self::Csv(csv) => csv.line(contact),
            Self::JsonLines(_) => json(&contact.into()) + "\n",
        }
    }

    /// Checks that an export can have this format: see [`Csv::check`].
    pub(crate) fn check(&self, is_full: bool) -> Result<(), Error> {
        match self {
            Self::Csv(csv) => csv.check(is_full),
            Self::JsonLines(_) => Ok(()),
        }
    }

    /// Returns a contact that was retrieved, if its line has all its opt-outs.
    ///
    /// # Errors
    ///
    /// The error of a malformed contact, with the contact as its body.
    pub(crate) fn check_contact(&self, contact: Contact) -> Result<Contact, Error> {
        let contact = with_topics(contact)?;
        match self {
            Self::Csv(csv) if csv.is_found => csv.check_answers(&contact).map(|()| contact),
            _ => Ok(contact),
        }
    }

    /// Describes the format, so that a resumed export can be compared with it.
    pub(super) fn description(&self) -> String {
        match self {
            Self::Csv(csv) => csv.description(),
            Self::JsonLines(_) => "JSON lines".to_owned(),
        }
    }

    /// Returns the text that a file in this format begins with.
    pub(super) fn start(&self) -> String {
        match self {
            Self::Csv(csv) => csv.header(),
            // `id` is the first member of each form of a contact.
            Self::JsonLines(_) => "{\"id\":".to_owned(),
        }
    }

    /// Returns the names of the columns if they were found.
    pub(super) fn found_columns(&self) -> Option<Vec<String>> {
        match self {
            Self::Csv(csv) if csv.is_found => {
                Some(csv.columns.iter().map(ToString::to_string).collect())
            }
            Self::Csv(_) | Self::JsonLines(_) => None,
        }
    }

    /// Returns the format for a file whose columns were found earlier. Columns that the caller chose stay.
    pub(super) fn with_found_columns(self, names: Option<&[String]>) -> Self {
        match (self, names) {
            (Self::Csv(csv), Some(names)) if csv.is_found => Self::Csv(Csv {
                columns: names.iter().map(|name| ExportColumn::exact(name)).collect(),
                ..csv
            }),
            (format, _) => format,
        }
    }
}

impl From<Csv> for Format {
    fn from(csv: Csv) -> Self {
        Self::Csv(csv)
    }
}

impl From<JsonLines> for Format {
    fn from(json_lines: JsonLines) -> Self {
        Self::JsonLines(json_lines)
    }
}

/// A contact to export: in full, or as lists return it.
///
/// Pass `&Contact` or `&ContactSummary` to methods that take one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum ExportedContact<'a> {
    /// In full ([interface section 2.1](crate::interface#2.1)).
    Full(&'a Contact),
    /// As lists return it ([interface section 2.3](crate::interface#2.3)).
    Summary(&'a ContactSummary),
}

impl<'a> ExportedContact<'a> {
    /// Returns the text of a column. Empty if the contact lacks it. `columns` are all columns.
    pub(super) fn text(self, column: &ExportColumn, columns: &[ExportColumn]) -> Cow<'a, str> {
        match column {
            ExportColumn::Id => Cow::from(self.id()),
            ExportColumn::Email => self.email().into(),
            ExportColumn::FirstName => self.first_name().into(),
            ExportColumn::LastName => self.last_name().into(),
            ExportColumn::Unsubscribed => self.is_unsubscribed().to_string().into(),
            ExportColumn::UnsubscribeReason => self.reason().into(),
            ExportColumn::CreatedAt => self.created_at().to_string().into(),
            ExportColumn::Topic(name) => match self.topic(name) {
                Some(answer) => answer.to_string().into(),
                None => "".into(),
            },
            ExportColumn::OtherTopics => self.other_topics(columns).into(),
            ExportColumn::Property(name) => match self.properties().get(name) {
                // Without the quotes that JSON would put around text.
                Some(PropertyValue::String(text)) => text.as_str().into(),
                Some(value) => value.to_string().into(),
                None => "".into(),
            },
            ExportColumn::OtherProperties => self.other_properties(columns).into(),
        }
    }

    fn id(self) -> &'a str {
        match self {
            Self::Full(contact) => &contact.id,
            Self::Summary(contact) => &contact.id,
        }
    }

    fn email(self) -> &'a str {
        match self {
            Self::Full(contact) => &contact.email,
            Self::Summary(contact) => &contact.email,
        }
    }

    fn first_name(self) -> &'a str {
        let name = match self {
            Self::Full(contact) => &contact.first_name,
            Self::Summary(contact) => &contact.first_name,
        };
        name.as_deref().unwrap_or_default()
    }

    fn last_name(self) -> &'a str {
        match self {
            Self::Full(contact) => contact.last_name.as_deref().unwrap_or_default(),
            Self::Summary(_) => "",
        }
    }

    fn is_unsubscribed(self) -> bool {
        match self {
            Self::Full(contact) => contact.is_opted_out(),
            Self::Summary(contact) => contact.unsubscribed,
        }
    }

    fn reason(self) -> &'a str {
        match self {
            // After a re-subscription, the reason may still be there (interface section 3.2).
            Self::Full(contact) if contact.is_opted_out() => contact
                .unsubscribe_reason
                .as_ref()
                .map_or("", UnsubscribeReason::as_str),
            Self::Full(_) | Self::Summary(_) => "",
        }
    }

    fn created_at(self) -> Timestamp {
        match self {
            Self::Full(contact) => contact.created_at,
            Self::Summary(contact) => contact.created_at,
        }
    }

    fn topic(self, name: &str) -> Option<bool> {
        match self {
            Self::Full(contact) => match contact.topics.get(name) {
                Some(answer) => Some(*answer),
                // It may be a "no".
                None => contact.has_topic(name).then_some(false),
            },
            Self::Summary(_) => None,
        }
    }

    fn properties(self) -> &'a Properties {
        match self {
            Self::Full(contact) => &contact.properties,
            Self::Summary(contact) => &contact.properties,
        }
    }

    /// Returns the topics without a column of their own, as a JSON object.
    fn other_topics(self, columns: &[ExportColumn]) -> String {
        let Self::Full(contact) = self else {
            return String::new();
        };
        let without_answer = contact.null_topics().map(|name| (name, &false));
        let topics = contact.topics.iter().chain(without_answer);
        object(topics.filter(|(name, _)| !has_column(columns, name)))
    }

    /// Returns the properties without a column of their own, as a JSON object.
    fn other_properties(self, columns: &[ExportColumn]) -> String {
        let has_column = |property: &str| {
            let is_it = |column: &ExportColumn| matches!(column, ExportColumn::Property(name) if name == property);
            columns.iter().any(is_it)
        };
        object(
            self.properties()
                .into_iter()
                .filter(|(name, _)| !has_column(name)),
        )
    }
}

/// Returns whether a topic has a column of its own.
fn has_column(columns: &[ExportColumn], topic: &str) -> bool {
    let is_it =
        |column: &ExportColumn| matches!(column, ExportColumn::Topic(name) if name == topic);
    columns.iter().any(is_it)
}

/// Writes a JSON object. Empty if it has no members.
fn object<'a, V: Serialize + 'a>(members: impl Iterator<Item = (&'a String, &'a V)>) -> String {
    // Sorted, so that two exports of the same contact are the same text.
    let members: BTreeMap<_, _> = members.collect();
    if members.is_empty() {
        return String::new();
    }
    json(&members)
}

/// Writes JSON on one line.
pub(super) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value)
        .expect("a contact has text keys and values that JSON can represent")
}

impl<'a> From<&'a Contact> for ExportedContact<'a> {
    fn from(contact: &'a Contact) -> Self {
        Self::Full(contact)
    }
}

impl<'a> From<&'a ContactSummary> for ExportedContact<'a> {
    fn from(contact: &'a ContactSummary) -> Self {
        Self::Summary(contact)
    }
}

/// A column of a CSV export.
///
/// It converts from its name in the header, such as `"email"` or `"topic:news"`. White space around the name, and after a
/// prefix such as `topic:`, is removed. Any other name becomes a property, also one in another spelling, such as `Email`.
///
/// If a property has a name that would be read as another column, here or by
/// [`CsvRows`](crate::import::CsvRows), such as `email`, `Surname` or `Status`, the header names it `property:NAME`.
///
/// # Example: names of columns
///
/// ```
/// use audience::export::ExportColumn;
///
/// assert_eq!(ExportColumn::from("first_name"), ExportColumn::FirstName);
/// assert_eq!(ExportColumn::from("topic:news"), ExportColumn::Topic("news".to_owned()));
/// assert_eq!(ExportColumn::from("plan"), ExportColumn::Property("plan".to_owned()));
/// assert_eq!(ExportColumn::Property("email".to_owned()).to_string(), "property:email");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExportColumn {
    /// `id`. An import ignores it.
    Id,
    /// `email`: the address.
    Email,
    /// `first_name`.
    FirstName,
    /// `last_name`. Only in a full export.
    LastName,
    /// `unsubscribed`: `true` if the contact opted out of all broadcasts, otherwise `false`. In a full export, it is also
    /// `true` after every spam report, so that an import elsewhere does not subscribe the contact.
    Unsubscribed,
    /// `unsubscribe_reason`: empty if the contact did not opt out. Only in a full export.
    UnsubscribeReason,
    /// `created_at`: in the form of RFC 3339, in UTC. An import ignores it.
    CreatedAt,
    /// `topic:NAME`: `true` or `false`. If the contact never answered, it is the topic's default. It is also `false` if the
    /// answer is `null`, so that an import elsewhere does not subscribe the contact. Empty if there is no such
    /// topic. Only in a full export.
    Topic(String),
    /// `topics`: all topics without a column of their own, as a JSON object. Only in a full export.
    OtherTopics,
    /// The property with this name: its text, or its JSON if it is not text. Empty if the contact lacks it.
    Property(String),
    /// `properties`: all properties without a column of their own, as a JSON object.
    OtherProperties,
}

/// The columns that have a fixed name.
const FIXED: [(&str, ExportColumn); 9] = [
    ("id", ExportColumn::Id),
    ("email", ExportColumn::Email),
    ("first_name", ExportColumn::FirstName),
    ("last_name", ExportColumn::LastName),
    ("unsubscribed", ExportColumn::Unsubscribed),
    ("unsubscribe_reason", ExportColumn::UnsubscribeReason),
    ("created_at", ExportColumn::CreatedAt),
    ("topics", ExportColumn::OtherTopics),
    ("properties", ExportColumn::OtherProperties),
];

const TOPIC: &str = "topic:";
const PROPERTY: &str = "property:";

impl ExportColumn {
    /// Returns whether only a full export has the column.
    pub(super) fn needs_full(&self) -> bool {
        matches!(
            self,
            Self::LastName | Self::UnsubscribeReason | Self::Topic(_) | Self::OtherTopics
        )
    }

    /// Returns the column with this text in the header, white space included.
    fn exact(name: &str) -> Self {
        // A property with a fixed name is written as `property:NAME`, so the bare name is the fixed column.
        if let Some((_, column)) = FIXED.iter().find(|(fixed, _)| *fixed == name) {
            return column.clone();
        }
        if let Some(topic) = name.strip_prefix(TOPIC) {
            return Self::Topic(topic.to_owned());
        }
        Self::Property(name.strip_prefix(PROPERTY).unwrap_or(name).to_owned())
    }
}

impl From<&str> for ExportColumn {
    fn from(name: &str) -> Self {
        match Self::exact(name.trim()) {
            Self::Topic(name) => Self::Topic(name.trim().to_owned()),
            Self::Property(name) => Self::Property(name.trim().to_owned()),
            column => column,
        }
    }
}

impl From<String> for ExportColumn {
    fn from(name: String) -> Self {
        Self::from(name.as_str())
    }
}

impl From<&String> for ExportColumn {
    fn from(name: &String) -> Self {
        Self::from(name.as_str())
    }
}

/// Writes the name in the header.
impl fmt::Display for ExportColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((name, _)) = FIXED.iter().find(|(_, column)| column == self) {
            return f.write_str(name);
        }
        match self {
            Self::Topic(name) => write!(f, "{TOPIC}{name}"),
            Self::Property(name) if name.is_empty() => Ok(()),
            Self::Property(name) if Self::exact(name) == *self && is_property_name(name) => {
                f.write_str(name)
            }
            Self::Property(name) => write!(f, "{PROPERTY}{name}"),
            _ => Ok(()),
        }
    }
}

impl Format {
    /// Returns whether an export must find the columns before it can write a line.
    pub(super) fn needs_columns(&self) -> bool {
        matches!(self, Self::Csv(csv) if csv.is_found && csv.columns.is_empty())
    }

    /// Finds the columns of [`Csv::all_columns`]. Any other format stays as it is.
    ///
    /// # Errors
    ///
    /// The error of the list if it fails three times in a row, or that of the retrieve call.
    pub(crate) async fn find_columns(
        self,
        list: ListContacts,
        is_full: bool,
    ) -> Result<Self, Error> {
        let Self::Csv(csv) = self else {
            return Ok(self);
        };
        if !csv.is_found {
            return Ok(csv.into());
        }
        let list = list.patient();
        let (contacts, options) = (list.contacts(), list.call_options());
        let found = Found::read(list).await?;
        let (fixed, topics): (&[_], _) = match is_full {
            false => (
                &["email", "first_name", "unsubscribed", "created_at"],
                BTreeSet::new(),
            ),
            true => (
                &[
                    "email",
                    "first_name",
                    "last_name",
                    "unsubscribed",
                    "unsubscribe_reason",
                    "created_at",
                ],
                found_topics(&contacts, &options, found.newest).await?,
            ),
        };
        let fixed = fixed.iter().copied().map(ExportColumn::from);
        let columns = fixed
            .chain(topics.into_iter().map(ExportColumn::Topic))
            .chain(found.properties.into_iter().map(ExportColumn::Property))
            .collect();
        Ok(Self::Csv(Csv { columns, ..csv }))
    }
}

/// Returns the topics that the first of these contacts shows.
///
/// # Errors
///
/// The error of a retrieve call, or of a contact without topics if no contact has any. `ErrorKind::Config` if all
/// contacts were deleted since they were listed.
async fn found_topics(
    contacts: &Contacts,
    options: &CallOptions,
    newest: Vec<String>,
) -> Result<BTreeSet<String>, Error> {
    if newest.is_empty() {
        return Ok(BTreeSet::new());
    }
    let mut malformed = None;
    for address in newest {
        let found = contacts.find(address).options(options.clone()).await;
        match found.and_then(|contact| contact.map(with_topics).transpose()) {
            Ok(Some(contact)) => return Ok(contact.topic_names().cloned().collect()),
            // The contact was deleted since it was listed. The next one has the same topics.
            Ok(None) => {}
            // The export leaves this contact out.
            Err(error) if error.is_malformed_contact() => malformed = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(malformed.unwrap_or_else(|| {
        Error::config(
            "the topics could not be found, because the newest contacts were deleted since they were listed; run the export again",
        )
        .retryable()
    }))
}

/// Returns a retrieved contact if it has its topics. Without them, its line would lose its opt-outs.
///
/// # Errors
///
/// The error of a malformed contact, with the contact as its body.
fn with_topics(contact: Contact) -> Result<Contact, Error> {
    match contact.require_topics() {
        Ok(()) => Ok(contact),
        Err(error) => Err(error.reading(json(&contact).into())),
    }
}

/// How many of the newest contacts to try for the topics. One of them may vanish.
const NEWEST: usize = 10;

#[derive(Default)]
struct Found {
    properties: BTreeSet<String>,
    /// The addresses of the newest contacts.
    newest: Vec<String>,
}

impl Found {
    async fn read(list: ListContacts) -> Result<Self, Error> {
        let mut pages = list.large_pages().pages().prefetch();
        let mut found = Self::default();
        while let Some(page) = next(&mut pages).await {
            match page {
                Ok(page) => page.data.iter().for_each(|contact| found.add(contact)),
                Err(error) if pages.is_terminated() => return Err(error),
                Err(_) => {}
            }
        }
        Ok(found)
    }

    fn add(&mut self, contact: &ContactSummary) {
        if self.newest.len() < NEWEST {
            self.newest.push(contact.email.clone());
        }
        for (name, _) in &contact.properties {
            // A list has few names and many contacts, so the name is cloned only once.
            if !self.properties.contains(name) {
                self.properties.insert(name.clone());
            }
        }
    }
}

pub(super) async fn next<S: Stream + Unpin>(stream: &mut S) -> Option<S::Item> {
    poll_fn(|context| Pin::new(&mut *stream).poll_next(context)).await
}

#[cfg(test)]
mod tests {
    use crate::ErrorKind;

    use super::*;

    #[test]
    fn any_text_is_read_back_by_a_csv_reader() {
        let texts = [
            "",
            "plain",
            "a,b",
            "a\"b",
            "\"",
            "line\nbreak",
            "cr\r\nlf",
            " space ",
            "é\u{feff}",
            "\u{feff}x",
            "=1+1",
            "a;b",
            "\t",
            "\r",
            "'",
        ];
        for text in texts {
            for columns in [vec!["x"], vec!["email", "x"], vec!["x", "email"]] {
                let mut contact = Contact::new("c1", "a@x.io");
                contact.properties.insert("x", text);
                let csv = Csv::new(columns);

                let file = csv.header() + &csv.line(&contact);
                let mut reader = ::csv::Reader::from_reader(file.as_bytes());
                let position = reader
                    .headers()
                    .unwrap()
                    .iter()
                    .position(|name| name == "x");
                let records: Vec<_> = reader.records().map(Result::unwrap).collect();

                assert_eq!(records.len(), 1, "{text:?}");
                assert_eq!(&records[0][position.unwrap()], text);
            }
        }
    }

    #[test]
    fn what_has_no_column_is_in_the_json_of_the_rest() {
        let mut contact = Contact::new("c1", "a@x.io");
        contact.properties.insert("plan", "pro");
        contact.properties.insert("seats", 3);
        contact.topics.insert("news".to_owned(), true);
        contact.topics.insert("offers".to_owned(), false);

        let csv = Csv::new(["plan", "properties", "topic:news", "topics"]);

        assert_eq!(
            csv.line(&contact),
            "pro,\"{\"\"seats\"\":3}\",true,\"{\"\"offers\"\":false}\"\n"
        );
        assert_eq!(csv.line(&Contact::new("c2", "b@x.io")), ",,,\n");
    }

    #[test]
    fn a_topic_whose_answer_is_null_is_false() {
        let json = r#"{"id": "c1", "email": "a@x.io", "unsubscribed": false, "created_at": 5,
            "topics": {"news": null, "offers": null}}"#;
        let contact: Contact = serde_json::from_str(json).unwrap();

        let csv = Csv::new(["topic:news", "topics"]);

        assert_eq!(csv.line(&contact), "false,\"{\"\"offers\"\":false}\"\n");
    }

    #[test]
    fn formulas_are_escaped_only_if_asked_and_numbers_never() {
        let mut contact = ContactSummary::new("c1", "+a@x.io");
        contact.properties.insert("debt", -5);
        contact.properties.insert("note", "-5");
        let csv = Csv::new(["email", "debt", "note"]);

        assert_eq!(csv.line(&contact), "+a@x.io,-5,-5\n");
        assert_eq!(csv.escape_formulas().line(&contact), "'+a@x.io,-5,-5\n");
    }

    #[test]
    fn columns_that_an_export_cannot_have_are_refused() {
        for (columns, problem) in [
            (&[][..], "no columns"),
            (&["email", " "], "has no name"),
            (&["property:"], "has no name"),
            (&["topic:"], "has no name"),
            (&["email", "email"], "`email` is given twice"),
            (
                &["email", "topic:news"],
                "lists lack the column `topic:news`",
            ),
        ] {
            let error = Csv::new(columns.iter().copied()).check(false).unwrap_err();

            assert_eq!(error.kind(), ErrorKind::Input);
            assert!(error.to_string().contains(problem), "{error}");
        }
        assert!(Csv::new(["email", "topic:news"]).check(true).is_ok());
    }

    #[test]
    fn every_column_is_read_from_its_name() {
        let named = |name: &str| ExportColumn::Property(name.to_owned());
        let columns = FIXED.into_iter().map(|(_, column)| column).chain([
            ExportColumn::Topic("news".to_owned()),
            ExportColumn::Topic(String::new()),
            named("plan"),
            named("email"),
            named("topic:news"),
            named("property:plan"),
            named("topics"),
            named("Surname"),
            named("Status"),
            named(""),
        ]);

        for column in columns {
            assert_eq!(ExportColumn::from(column.to_string()), column);
        }
        for (name, column) in [
            (" unsubscribed", ExportColumn::Unsubscribed),
            (" topic: news ", ExportColumn::Topic("news".to_owned())),
            (" plan ", named("plan")),
        ] {
            assert_eq!(ExportColumn::from(name), column);
        }
        // A resumed export has the columns that were found, whatever their names.
        let spaced = named(" plan ");
        assert_eq!(ExportColumn::exact(&spaced.to_string()), spaced);
        // An import ignores a column without a name.
        assert_eq!(named("").to_string(), "");
    }
}
