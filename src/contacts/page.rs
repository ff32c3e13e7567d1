use serde::{Deserialize, Serialize};

use super::optional_text;
use super::page_items::{MalformedItem, PageItems, RawPage, decode_items};
use super::paging::cursor_after;
use super::short_forms::ContactSummary;
use crate::Error;
use crate::client::{Object, Success};

/// A page of contacts, newest first.
///
/// An item is malformed if it does not have the form of section 2.3. It does not make the page fail:
/// [`malformed`](Self::malformed) returns it, and the other items are in [`data`](Self::data).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Page {
    /// The contacts. Empty if the list has ended, or if every item is malformed.
    pub data: Vec<ContactSummary>,
    /// The cursor that the service sent, or `None` if it sent none or an empty one.
    ///
    /// `None` does not mean the end; only an empty page does. Continue with [`cursor`](Page::cursor).
    #[serde(default, with = "optional_text")]
    pub next: Option<String>,
    #[serde(skip)]
    malformed: Vec<MalformedItem>,
    /// The cursor that follows a page with malformed items.
    #[serde(skip)]
    cursor: Option<String>,
}

/// A page on the wire.
#[derive(Deserialize)]
struct WirePage {
    data: Vec<Object<ContactSummary>>,
    #[serde(default, deserialize_with = "optional_text::deserialize")]
    next: Option<String>,
}

impl Page {
    /// Creates a page without `next`, for example for a unit test. Assign to [`next`](Self::next) to set it.
    ///
    /// # Example: in a unit test
    ///
    /// ```
    /// use audience::contacts::{ContactSummary, Page};
    ///
    /// let mut page = Page::new([ContactSummary::new("c_1", "ada@example.com")]);
    /// page.next = Some("c_1".to_owned());
    ///
    /// assert_eq!(page.data[0].email, "ada@example.com");
    /// ```
    pub fn new(data: impl IntoIterator<Item = ContactSummary>) -> Self {
        Self {
            data: data.into_iter().collect(),
            next: None,
            malformed: Vec::new(),
            cursor: None,
        }
    }

    /// Returns the cursor for the following page, to pass to
    /// [`after`](super::ListContacts::after): [`next`](Page::next), or else the id of the last contact.
    ///
    /// `None` if the page has no items, because the list has ended.
    ///
    /// # Example: read page by page
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # contacts.create(audience::contacts::NewContact::new("ada@example.com")).await?;
    /// let mut page = contacts.list().await?;
    /// while let Some(cursor) = page.cursor() {
    ///     for contact in &page.data {
    ///         println!("{}", contact.email);
    ///     }
    ///     page = contacts.list().after(cursor).await?;
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn cursor(&self) -> Option<&str> {
        cursor_after(self.last_id(), self.next.as_deref())
    }

    /// Returns the items that could not be decoded, each with its index in the page and its error.
    ///
    /// [`Error::body`] of such an error is the JSON of the item. A page that is serialized and read back
    /// does not have them.
    ///
    /// # Example: report what was left out
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// let page = contacts.list().await?;
    ///
    /// for (index, error) in page.malformed() {
    ///     eprintln!("item {index} was left out: {error}");
    /// }
    /// # assert_eq!(page.malformed().count(), 0);
    /// # Ok(()) }
    /// ```
    pub fn malformed(&self) -> impl ExactSizeIterator<Item = (usize, Error)> {
        self.malformed.iter().map(MalformedItem::error)
    }

    /// Reads a page from a response, without its malformed items.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Decode` if the response is not a page, or if it has items and no cursor.
    pub(super) fn read(success: &Success) -> Result<Self, Error> {
        // Decoding the items one by one takes longer, so only a page that fails is read that way.
        if let Some(page) = success.valid_object() {
            return Ok(Self::from_wire(page));
        }
        let page = RawPage::read(success)?;
        let (data, malformed) = decode_items(success, &page.data);
        Ok(Self {
            data,
            malformed,
            cursor: page.cursor()?,
            next: page.next,
        })
    }

    fn from_wire(WirePage { data, next }: WirePage) -> Self {
        let data = data.into_iter().map(|Object(contact)| contact);
        Self {
            next,
            ..Self::new(data)
        }
    }

    pub(super) fn into_items(self) -> PageItems {
        PageItems::new(self.data, self.malformed)
    }

    /// Returns the cursor after the last item. `None` if the page has no items.
    pub(super) fn last_id(&self) -> Option<&str> {
        let last = || self.data.last().map(|contact| contact.id.as_str());
        self.cursor.as_deref().or_else(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_null_or_empty_next_is_none() {
        for text in [
            r#"{"data": []}"#,
            r#"{"data": [], "next": null}"#,
            r#"{"data": [], "next": ""}"#,
        ] {
            assert_eq!(serde_json::from_str::<Page>(text).unwrap().next, None);
        }
    }
}
