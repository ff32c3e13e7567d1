use serde::{Deserialize, Serialize};

use super::ContactSummary;
use super::model::empty_is_none;
use super::paging::cursor_after;

/// A page of contacts, newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Page {
    /// The contacts. Empty on the page after the last contact.
    pub data: Vec<ContactSummary>,
    /// The cursor in the response, if there is one. An empty cursor is `None` too.
    ///
    /// `None` does not mean the end; only an empty page does. Continue with [`cursor`](Page::cursor).
    #[serde(default, with = "empty_is_none")]
    pub next: Option<String>,
}

impl Page {
    /// Returns the cursor of the next page, for [`after`](super::ListContacts::after):
    /// [`next`](Page::next) or, if that is `None`, the id of the last contact. Returns `None` at the end
    /// of the list, when the page is empty.
    ///
    /// # Example: read page by page
    ///
    /// ```
    /// # #[cfg(feature = "mock")]
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
    /// # #[cfg(not(feature = "mock"))] fn main() {}
    /// ```
    #[must_use]
    pub fn cursor(&self) -> Option<&str> {
        let last_id = self.data.last().map(|contact| contact.id.as_str());
        cursor_after(last_id, self.next.as_deref())
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
