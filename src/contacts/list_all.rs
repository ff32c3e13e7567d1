//! Reading a list past its first page.

use super::full::{FullContactStream, RetrieveEach};
use super::list::LARGEST_PAGE;
use super::page_items::RawPage;
use super::paging::{LIST, PageCursor, PageStep};
use super::{ContactStream, ListContacts, Page, PageStream};
use crate::Error;
use crate::client::{ResponseFuture, Success, opaque_debug, wait_for_call};

impl ListContacts {
    /// Returns a stream of all contacts after the cursor. It fetches one page at a time, when it is
    /// polled.
    ///
    /// A page that cannot be fetched is an error, and the next poll fetches it again. The stream ends
    /// after three failures in a row, of any kind: see [`PageStream`].
    /// A malformed item is one error, in its place; the contacts after it follow. It does not count as a
    /// failure.
    ///
    /// # Example: every address
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # contacts.create(audience::contacts::NewContact::new("ada@example.com")).await?;
    /// use futures_util::TryStreamExt;
    ///
    /// let mut stream = contacts.list().limit(200).stream();
    /// while let Some(contact) = stream.try_next().await? {
    ///     println!("{}", contact.email);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn stream(self) -> ContactStream {
        ContactStream::new(self.pages())
    }

    /// Returns a stream of all pages after the cursor. Each has at least one item; [`Page::malformed`] has
    /// those that are not contacts.
    ///
    /// A page that cannot be fetched is an error, and the next poll fetches it again. The stream ends
    /// after three failures in a row, of any kind: see [`PageStream`].
    pub fn pages(self) -> PageStream {
        PageStream::new(self.start(), move |cursor| self.fetch(cursor, Page::read))
    }

    /// Returns a stream of all contacts after the cursor in full: with family name, reason and topics, which
    /// lists lack (interface section 2.3).
    ///
    /// Each contact of the list is retrieved, 8 at a time, and returned in the order of the list: see
    /// [`FullContactStream`].
    ///
    /// # Example: who may get the newsletter
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # server.topic("news", true);
    /// # let contacts = server.client().contacts();
    /// # contacts.create_batch(["ada@example.com", "bob@example.com"]).await?;
    /// use futures_util::TryStreamExt;
    ///
    /// let mut readers = Vec::new();
    /// let mut stream = contacts.list().limit(200).full();
    /// while let Some(contact) = stream.try_next().await? {
    ///     if !contact.unsubscribed && contact.topics.get("news") == Some(&true) {
    ///         readers.push(contact.email);
    ///     }
    /// }
    /// assert_eq!(readers, ["bob@example.com", "ada@example.com"]);
    /// # Ok(()) }
    /// ```
    pub fn full(self) -> FullContactStream {
        let call = &self.call;
        let retrieve = RetrieveEach::new(&call.client, &call.options);
        FullContactStream::new(self.stream(), retrieve)
    }

    /// Counts the contacts that match, opted-out and malformed ones included.
    ///
    /// It fetches all pages, of 200 contacts unless a [`limit`](Self::limit) is set. Timeout, deadline
    /// and retries apply to each page.
    ///
    /// The number equals the audience of a broadcast to the same conditions (section 1). Such a
    /// broadcast then leaves out the contacts that have opted out.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Pagination`](crate::ErrorKind::Pagination) if the service repeated a cursor.
    /// - The error of the first page that cannot be fetched. No partial count is returned.
    ///
    /// # Example: the size of an audience
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # contacts.create(audience::contacts::NewContact::new("ada@example.com").property("plan", "pro")).await?;
    /// use audience::rule::{Condition, Rule};
    ///
    /// let on_pro = Rule::all([Condition::property("plan").is("pro")]);
    /// let total = contacts.list().rule(on_pro).count().await?;
    ///
    /// assert_eq!(total, 1);
    /// # Ok(()) }
    /// ```
    pub fn count(mut self) -> CountContacts {
        self.call.endpoint.limit_or_insert(LARGEST_PAGE);
        CountContacts { list: self }
    }
}

/// A count, sent by `.await`: see [`ListContacts::count`].
#[derive(Clone)]
#[must_use = "a call is sent only when it is awaited"]
pub struct CountContacts {
    list: ListContacts,
}

opaque_debug!(CountContacts);
wait_for_call!(CountContacts => Result<u64, Error>);

impl IntoFuture for CountContacts {
    type Output = Result<u64, Error>;
    type IntoFuture = ResponseFuture<u64>;

    fn into_future(self) -> Self::IntoFuture {
        ResponseFuture::new(count_all(self.list))
    }
}

async fn count_all(list: ListContacts) -> Result<u64, Error> {
    let mut cursor = PageCursor::new(list.start());
    let mut total = 0;
    loop {
        let page = list.fetch(cursor.current(), CountedPage::read).await?;
        match cursor.advance(page.cursor.as_deref(), None) {
            PageStep::Page => total += page.items,
            PageStep::End => return Ok(total),
            PageStep::Cycle => return Err(Error::pagination().at(LIST.name)),
        }
    }
}

/// The part of a page that a count needs.
struct CountedPage {
    items: u64,
    cursor: Option<String>,
}

impl CountedPage {
    fn read(success: &Success) -> Result<Self, Error> {
        let page = RawPage::read(success)?;
        Ok(Self {
            items: page.data.len() as u64,
            cursor: page.cursor()?,
        })
    }
}
