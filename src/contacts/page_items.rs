//! The items of a page, read one by one if any of them is malformed.

use std::fmt;
use std::iter::Peekable;
use std::vec;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::optional_text;
use super::paging::LIST;
use super::short_forms::ContactSummary;
use crate::client::{Object, Success, decode_item};
use crate::properties::PropertyValue;
use crate::{Error, Outcome};

/// A page whose items are not decoded yet.
#[derive(Deserialize)]
pub(super) struct RawPage<'a> {
    #[serde(borrow)]
    pub(super) data: Vec<&'a RawValue>,
    #[serde(default, deserialize_with = "optional_text::deserialize")]
    pub(super) next: Option<String>,
}

impl<'a> RawPage<'a> {
    /// Reads a page from a response.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Decode` if the response is not a page. Its items are not read.
    pub(super) fn read(success: &'a Success) -> Result<Self, Error> {
        success.json().map(|Object(page)| page)
    }

    /// Returns the cursor that follows the page: `next`, or else the id of the last item. `None` if the page
    /// is empty, because the list has ended.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Decode` if there is neither: the list can neither continue nor end here.
    pub(super) fn cursor(&self) -> Result<Option<String>, Error> {
        let Some(last) = self.data.last() else {
            return Ok(None);
        };
        let cursor = self.next.clone().or_else(|| id_of(last));
        let cursor = cursor.map(Some);
        cursor.ok_or_else(|| {
            Error::decode("the page has no cursor: `next` is missing, and its last item has no id")
        })
    }
}

/// Returns the id of an item, even if the item is malformed.
fn id_of(item: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    struct Identified {
        id: PropertyValue,
    }

    let Object(Identified { id }) = serde_json::from_str(item.get()).ok()?;
    let is_id = match &id {
        PropertyValue::String(text) => !text.is_empty(),
        PropertyValue::Integer(_) | PropertyValue::Unsigned(_) => true,
        _ => false,
    };
    is_id.then(|| id.to_string())
}

/// An item that could not be decoded.
#[derive(Clone, PartialEq)]
pub(super) struct MalformedItem {
    index: usize,
    id: Option<String>,
    message: String,
    attempts: u32,
    json: Bytes,
}

impl MalformedItem {
    /// Returns the index of the item in its page, and why it could not be decoded.
    pub(super) fn error(&self) -> (usize, Error) {
        let error = Error::decode(self.message.clone())
            .at(LIST.name)
            .after(self.attempts, Outcome::NotSent)
            .reading(self.json.clone());
        (self.index, error)
    }
}

/// Prints neither the JSON nor the id of the item.
impl fmt::Debug for MalformedItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MalformedItem")
            .field("index", &self.index)
            .field("message", &self.message)
            .finish_non_exhaustive()
    }
}

/// Decodes the items of a page one by one.
pub(super) fn decode_items(
    success: &Success,
    items: &[&RawValue],
) -> (Vec<ContactSummary>, Vec<MalformedItem>) {
    let (mut contacts, mut malformed) = (Vec::with_capacity(items.len()), Vec::new());
    for (index, item) in items.iter().enumerate() {
        match decode_item(item, &format!("$.data[{index}]")) {
            Ok(contact) => contacts.push(contact),
            Err(message) => malformed.push(MalformedItem {
                index,
                id: id_of(item),
                message,
                attempts: success.attempts(),
                json: Bytes::copy_from_slice(item.get().as_bytes()),
            }),
        }
    }
    (contacts, malformed)
}

/// The items of a page in the order of the response: a contact, or the error of a malformed item.
pub(super) struct PageItems {
    contacts: vec::IntoIter<ContactSummary>,
    malformed: Peekable<vec::IntoIter<MalformedItem>>,
    index: usize,
}

/// An item of a page.
pub(super) struct PageItem {
    /// The id; of a malformed item only if it can be read.
    pub(super) id: Option<String>,
    pub(super) contact: Result<ContactSummary, Error>,
}

impl PageItems {
    pub(super) fn new(contacts: Vec<ContactSummary>, malformed: Vec<MalformedItem>) -> Self {
        Self {
            contacts: contacts.into_iter(),
            malformed: malformed.into_iter().peekable(),
            index: 0,
        }
    }

    /// Returns how many items are left.
    pub(super) fn len(&self) -> usize {
        self.contacts.len() + self.malformed.len()
    }
}

impl Iterator for PageItems {
    type Item = PageItem;

    fn next(&mut self) -> Option<PageItem> {
        let index = self.index;
        self.index += 1;
        if let Some(item) = self.malformed.next_if(|item| item.index == index) {
            let (_, error) = item.error();
            return Some(PageItem {
                id: item.id,
                contact: Err(error),
            });
        }
        self.contacts.next().map(|contact| PageItem {
            id: Some(contact.id.clone()),
            contact: Ok(contact),
        })
    }
}
