use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_core::stream::FusedStream;

use super::page_items::{PageItem, PageItems};
use super::page_stream::PageStream;
use super::short_forms::ContactSummary;
use crate::Error;
use crate::client::{opaque_debug, wait_for_items};

/// All contacts of a list, newest first.
///
/// Created by [`ListContacts::stream`](super::ListContacts::stream). It holds one page at most, and
/// fetches the next page when that one is used up, or [ahead](Self::prefetch). [`PageStream`] documents
/// its errors and its end.
///
/// A malformed item, which does not have the form of section 2.3, is an error in its place:
/// [`ErrorKind::Decode`](crate::ErrorKind::Decode), and [`Error::body`] has the JSON of the item. The next
/// poll continues after it. Malformed items never end the stream.
///
/// # Example: count the contacts that opted out
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
/// # let server = audience::mock::MockServer::start().await;
/// # let contacts = server.client().contacts();
/// # contacts.create(audience::contacts::NewContact::new("ada@example.com")).await?;
/// # contacts.unsubscribe("ada@example.com").await?;
/// use futures_util::TryStreamExt;
///
/// let mut opted_out = 0;
/// let mut stream = contacts.list().stream();
/// while let Some(contact) = stream.try_next().await? {
///     opted_out += u32::from(contact.unsubscribed);
/// }
/// # assert_eq!(opted_out, 1);
/// # Ok(()) }
/// ```
#[must_use = "a stream fetches nothing unless polled"]
pub struct ContactStream {
    pages: PageStream,
    page: PageItems,
    /// The cursor within the page, while it has items left.
    within: Option<String>,
}

impl ContactStream {
    pub(super) fn new(pages: PageStream) -> Self {
        Self {
            pages,
            page: PageItems::new(Vec::new(), Vec::new()),
            within: None,
        }
    }

    /// Fetches the next page while the caller works on this one: see [`PageStream::prefetch`].
    ///
    /// Order, cursor and errors do not change. The stream then holds two pages at most.
    ///
    /// # Example: a page ahead
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # contacts.create("ada@example.com").await?;
    /// # async fn work_on(_: audience::contacts::ContactSummary) {}
    /// use futures_util::TryStreamExt;
    ///
    /// let mut stream = contacts.list().limit(200).stream().prefetch();
    /// while let Some(contact) = stream.try_next().await? {
    ///     work_on(contact).await;
    /// }
    /// # Ok(()) }
    /// ```
    pub fn prefetch(mut self) -> Self {
        self.pages = self.pages.prefetch();
        self
    }

    /// Returns the cursor after the last contact that the stream returned.
    ///
    /// Pass it to [`after`](super::ListContacts::after) to continue later. `None` before the first
    /// contact, unless the list started after a cursor.
    ///
    /// # Example: continue after the first contact
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # contacts.create_batch(["ada@example.com", "bob@example.com"]).await?;
    /// use futures_util::TryStreamExt;
    ///
    /// let mut stream = contacts.list().stream();
    /// let newest = stream.try_next().await?.expect("the audience has two contacts");
    /// let cursor = stream.cursor().expect("a contact was returned").to_owned();
    ///
    /// let older = contacts.list().after(cursor).await?;
    /// assert_ne!(older.data[0].email, newest.email);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn cursor(&self) -> Option<&str> {
        match self.page.len() {
            0 => self.pages.cursor(),
            _ => self.within.as_deref(),
        }
    }

    /// Polls for the next item of a page, without its id. The error of a malformed item is in the item; any
    /// other is that of a page.
    pub(super) fn poll_item(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<PageItem, Error>>> {
        loop {
            if let Some(mut item) = self.page.next() {
                // An item without an id has no cursor, so the cursor stays before it.
                self.within = item.id.take().or(self.within.take());
                return Poll::Ready(Some(Ok(item)));
            }
            let start = self.pages.cursor().map(str::to_owned);
            match ready!(Pin::new(&mut self.pages).poll_next(context)) {
                Some(Ok(page)) => {
                    self.page = page.into_items();
                    self.within = start;
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
    }
}

impl Stream for ContactStream {
    type Item = Result<ContactSummary, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let item = ready!(self.poll_item(context));
        Poll::Ready(item.map(|item| item.and_then(|item| item.contact)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let buffered = self.page.len();
        (buffered, self.is_terminated().then_some(buffered))
    }
}

impl FusedStream for ContactStream {
    fn is_terminated(&self) -> bool {
        self.page.len() == 0 && self.pages.is_terminated()
    }
}

wait_for_items!(ContactStream);
opaque_debug!(ContactStream);
