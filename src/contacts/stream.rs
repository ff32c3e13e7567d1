use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_core::stream::FusedStream;

use super::page::Page;
use super::page_items::PageItems;
use super::paging::{LIST, PageCursor, PageStep};
use super::short_forms::ContactSummary;
use crate::client::{ResponseFuture, opaque_debug};
use crate::{Error, ErrorKind};

/// All contacts of a list, newest first.
///
/// Created by [`ListContacts::stream`](super::ListContacts::stream). It holds one page at most, and
/// fetches the next page when that one is used up. [`PageStream`] documents its errors and its end.
///
/// A malformed item, which does not have the form of section 2.3, is an error in its place:
/// [`ErrorKind::Decode`], and [`Error::body`] has the JSON of the item. The next poll continues after it.
/// Malformed items never end the stream.
///
/// # Example: count the contacts that opted out
///
/// ```
/// # #[cfg(feature = "mock")]
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
/// # #[cfg(not(feature = "mock"))] fn main() {}
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

    /// Returns the cursor after the last contact that the stream returned.
    ///
    /// Pass it to [`after`](super::ListContacts::after) to continue later. `None` before the first
    /// contact, unless the list started after a cursor.
    ///
    /// # Example: continue after the first contact
    ///
    /// ```
    /// # #[cfg(feature = "mock")]
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
    /// # #[cfg(not(feature = "mock"))] fn main() {}
    /// ```
    #[must_use]
    pub fn cursor(&self) -> Option<&str> {
        match self.page.len() {
            0 => self.pages.cursor(),
            _ => self.within.as_deref(),
        }
    }
}

impl Stream for ContactStream {
    type Item = Result<ContactSummary, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(item) = self.page.next() {
                // An item without an id has no cursor, so the cursor stays before it.
                self.within = item.id.or(self.within.take());
                return Poll::Ready(Some(item.contact));
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

opaque_debug!(ContactStream);

/// All pages of a list, newest contacts first. Each has at least one item.
///
/// Created by [`ListContacts::pages`](super::ListContacts::pages). Each poll fetches the next page if
/// none is being fetched. Timeout, deadline and retries apply to each page.
///
/// # Errors
///
/// An item is an error if its page could not be fetched. The next poll then fetches the same page
/// again, so no contact is lost or returned twice.
///
/// # End
///
/// The stream ends when the service responds with an empty page. It also ends
///
/// - after [`ErrorKind::Pagination`] or [`ErrorKind::Input`], which another request cannot fix;
/// - after the third failure in a row, of any kind. A service that is down, for example, does not
///   make an endless loop. To try longer, set a patient [`retry`](super::ListContacts::retry) policy, or
///   start a new list [`after`](super::ListContacts::after) the [`cursor`](Self::cursor).
///
/// # Example: one page at a time
///
/// ```
/// # #[cfg(feature = "mock")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
/// # let server = audience::mock::MockServer::start().await;
/// # let contacts = server.client().contacts();
/// # contacts.create_batch(["ada@example.com", "bob@example.com"]).await?;
/// use futures_util::TryStreamExt;
///
/// let mut pages = contacts.list().limit(200).pages();
/// while let Some(page) = pages.try_next().await? {
///     println!("{} contacts", page.data.len());
/// #   assert_eq!(page.data.len(), 2);
/// }
/// # Ok(()) }
/// # #[cfg(not(feature = "mock"))] fn main() {}
/// ```
#[must_use = "a stream fetches nothing unless polled"]
pub struct PageStream {
    fetch: FetchPage,
    cursor: PageCursor,
    state: State,
    /// Failures since the last page.
    failures: u32,
}

/// Starts to fetch the page after a cursor.
type FetchPage = Box<dyn Fn(Option<&str>) -> ResponseFuture<Page> + Send + Sync>;

/// The stream ends after this many failures in a row.
const MAX_FAILURES: u32 = 3;

enum State {
    Idle,
    Fetching(ResponseFuture<Page>),
    Done,
}

impl PageStream {
    pub(super) fn new(
        after: Option<String>,
        fetch: impl Fn(Option<&str>) -> ResponseFuture<Page> + Send + Sync + 'static,
    ) -> Self {
        Self {
            fetch: Box::new(fetch),
            cursor: PageCursor::new(after),
            state: State::Idle,
            failures: 0,
        }
    }

    /// Returns the cursor after the last page that the stream returned.
    ///
    /// Pass it to [`after`](super::ListContacts::after) to continue later. `None` before the first page,
    /// unless the list started after a cursor.
    #[must_use]
    pub fn cursor(&self) -> Option<&str> {
        self.cursor.current()
    }

    /// Moves past a fetched page, and returns the item of the stream.
    fn advance(&mut self, fetched: Result<Page, Error>) -> Option<Result<Page, Error>> {
        let result = fetched.and_then(|page| {
            match self.cursor.advance(page.last_id(), page.next.as_deref()) {
                PageStep::Page => Ok(Some(page)),
                PageStep::End => Ok(None),
                PageStep::Cycle => Err(Error::pagination().at(LIST.name)),
            }
        });
        self.failures = match &result {
            Ok(_) => 0,
            Err(_) => self.failures + 1,
        };
        let is_done = match &result {
            Ok(page) => page.is_none(),
            Err(error) => {
                matches!(error.kind(), ErrorKind::Pagination | ErrorKind::Input)
                    || self.failures == MAX_FAILURES
            }
        };
        self.state = if is_done { State::Done } else { State::Idle };
        result.transpose()
    }
}

impl Stream for PageStream {
    type Item = Result<Page, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match &mut self.state {
                State::Idle => self.state = State::Fetching((self.fetch)(self.cursor.current())),
                State::Fetching(call) => {
                    let fetched = ready!(Pin::new(call).poll(context));
                    return Poll::Ready(self.advance(fetched));
                }
                State::Done => return Poll::Ready(None),
            }
        }
    }
}

impl FusedStream for PageStream {
    fn is_terminated(&self) -> bool {
        matches!(self.state, State::Done)
    }
}

opaque_debug!(PageStream);
