use std::sync::Arc;

use crate::contacts::{NewContact, OptOutReason};

/// One row of an import: a contact, and what the import should know beside it.
///
/// A [`NewContact`] is a row by itself.
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
/// assert_eq!(row.contact().map(NewContact::email), Some("ada@example.com"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ImportRow {
    content: Content,
    line: Option<u64>,
    key: Option<String>,
    opt_outs: Vec<OptOut>,
    input: Option<Vec<String>>,
    input_columns: Option<Arc<[String]>>,
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
/// There is no opt-in: an import does not subscribe anybody.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OptOut {
    /// The contact opted out of all broadcasts, for this reason.
    Everything(OptOutReason),
    /// The contact opted out of the topic with this name.
    Topic(String),
}

impl ImportRow {
    /// Creates a row from a contact.
    #[must_use]
    pub fn new(contact: NewContact) -> Self {
        Self::with(Content::Contact(contact))
    }

    /// Creates a row that could not be read. It is reported as refused for this reason, and nothing is
    /// sent for it.
    #[must_use]
    pub fn unreadable(reason: impl Into<String>) -> Self {
        Self::with(Content::Unreadable(reason.into()))
    }

    /// Creates the last row of an input that could not be read to its end. The import ends with an error, after
    /// the rows before it.
    pub(super) fn cut_off(reason: impl Into<String>) -> Self {
        Self::with(Content::CutOff(reason.into()))
    }

    fn with(content: Content) -> Self {
        Self {
            content,
            line: None,
            key: None,
            opt_outs: Vec::new(),
            input: None,
            input_columns: None,
        }
    }

    /// Sets the line of the input on which the row starts, counted from 1. Rejects and outcomes show it.
    #[must_use]
    pub fn line(mut self, line: u64) -> Self {
        self.line = Some(line);
        self
    }

    /// Sets a key of your own, such as a primary key. Outcomes show it.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Adds an opt-out to record after the contact exists.
    #[must_use]
    pub fn opt_out(mut self, opt_out: OptOut) -> Self {
        self.opt_outs.push(opt_out);
        self
    }

    /// Sets the cells of the input that the row was read from. The rejects show them, so that they can be
    /// mended and imported again.
    #[must_use]
    pub fn input(mut self, cells: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.input = Some(cells.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the names of the columns of the input. All rows of an input share them; the rejects have them as
    /// their header.
    #[must_use]
    pub fn input_columns(mut self, names: impl Into<Arc<[String]>>) -> Self {
        self.input_columns = Some(names.into());
        self
    }

    /// Returns the contact; `None` if the row could not be read.
    #[must_use]
    pub fn contact(&self) -> Option<&NewContact> {
        match &self.content {
            Content::Contact(contact) => Some(contact),
            Content::Unreadable(_) | Content::CutOff(_) => None,
        }
    }

    /// Returns why the row could not be read; `None` if it was read.
    #[must_use]
    pub fn unreadable_reason(&self) -> Option<&str> {
        match &self.content {
            Content::Contact(_) => None,
            Content::Unreadable(reason) | Content::CutOff(reason) => Some(reason),
        }
    }

    /// Returns whether rows after this one could not be read.
    pub(super) fn is_cut_off(&self) -> bool {
        matches!(self.content, Content::CutOff(_))
    }

    /// Returns the line, if one was set.
    #[must_use]
    pub fn line_number(&self) -> Option<u64> {
        self.line
    }

    /// Returns your key, if one was set.
    #[must_use]
    pub fn key_text(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// Returns the opt-outs to record, in the order they were added.
    #[must_use]
    pub fn opt_outs(&self) -> &[OptOut] {
        &self.opt_outs
    }

    /// Returns the cells of the input, if they were set.
    #[must_use]
    pub fn input_cells(&self) -> Option<&[String]> {
        self.input.as_deref()
    }

    /// Returns the names of the columns of the input, if they were set.
    #[must_use]
    pub fn input_column_names(&self) -> Option<&[String]> {
        self.input_columns.as_deref()
    }
}

impl ImportRow {
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

/// A row with its number and its address as the service normalizes it.
#[derive(Clone, Debug)]
pub(super) struct NumberedRow {
    /// The number of the row in the input, counted from 0.
    pub(super) number: u64,
    pub(super) row: ImportRow,
    /// Empty if the row could not be read.
    pub(super) address: String,
}

impl NumberedRow {
    pub(super) fn new(number: u64, row: ImportRow) -> Self {
        let address = row.contact().map(NewContact::email).unwrap_or_default();
        let address = crate::contacts::normalized_address(address);
        Self {
            number,
            row,
            address,
        }
    }
}
