use serde::{Deserialize, Serialize};

use super::model::ContactSummary;
use super::optional_text;
use super::paging::cursor_after;

/// A page of contacts, newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Page {
    /// The contacts. Empty only if the list has ended.
    pub data: Vec<ContactSummary>,
    /// The cursor that the service sent, or `None` if it sent none or an empty one.
    ///
    /// `None` does not mean the end; only an empty page does. Continue with [`cursor`](Page::cursor).
    #[serde(default, with = "optional_text")]
    pub next: Option<String>,
}

impl Page {
    /// Returns the cursor for the following page, to pass to
    /// [`after`](super::ListContacts::after): [`next`](Page::next), or else the id of the last contact.
    ///
    /// `None` if the page is empty, because the list has ended.
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
        cursor_after(self.last_id(), self.next.as_deref())
    }

    pub(super) fn last_id(&self) -> Option<&str> {
        self.data.last().map(|contact| contact.id.as_str())
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
