use std::panic::resume_unwind;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_core::stream::FusedStream;
use tokio::task::{JoinError, JoinSet};

use super::page::Page;
use super::paging::{LIST, PageCursor, PageStep};
use crate::client::{ResponseFuture, in_current_span, opaque_debug, wait_for_items};
use crate::{Error, ErrorKind};

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
/// ```
#[must_use = "a stream fetches nothing unless polled"]
pub struct PageStream {
    fetch: FetchPage,
    cursor: PageCursor,
    state: State,
    /// Failures since the last page.
    failures: u32,
    is_prefetching: bool,
}

/// Starts to fetch the page after a cursor.
type FetchPage = Box<dyn Fn(Option<&str>) -> ResponseFuture<Page> + Send + Sync>;

/// The stream ends after this many failures in a row.
pub(super) const MAX_FAILURES: u32 = 3;

enum State {
    Idle,
    Fetching(ResponseFuture<Page>),
    FetchingAhead(SpawnedCall<Page>),
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
            is_prefetching: false,
        }
    }

    /// Fetches the next page while the caller works on this one.
    ///
    /// When a page arrives, the request for the next one starts as a task of the tokio runtime. It makes progress
    /// whenever the caller awaits something. A caller that computes without an await gains nothing, unless it is
    /// outside the runtime, as one that uses `wait` is. The stream is at most one page ahead. Dropping it cancels the
    /// request.
    ///
    /// Order, cursor, errors and end do not change. In particular, [`cursor`](Self::cursor) is that of the pages
    /// that the stream has returned, and a page that could not be fetched is fetched again only when the stream is
    /// polled after the error. If the caller stops early, one request more was sent.
    ///
    /// # Example: a page ahead
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # contacts.create("ada@example.com").await?;
    /// # async fn store(_: audience::contacts::Page) {}
    /// use futures_util::TryStreamExt;
    ///
    /// let mut pages = contacts.list().limit(200).pages().prefetch();
    /// while let Some(page) = pages.try_next().await? {
    ///     store(page).await;
    /// }
    /// # Ok(()) }
    /// ```
    pub fn prefetch(mut self) -> Self {
        self.is_prefetching = true;
        self
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
        self.state = match &result {
            _ if is_done => State::Done,
            Ok(_) if self.is_prefetching => {
                State::FetchingAhead(SpawnedCall::new((self.fetch)(self.cursor.current())))
            }
            _ => State::Idle,
        };
        result.transpose()
    }
}

impl Stream for PageStream {
    type Item = Result<Page, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match &mut self.state {
                State::Idle => {
                    self.state = State::Fetching((self.fetch)(self.cursor.current()));
                }
                State::Fetching(call) => {
                    let fetched = ready!(Pin::new(call).poll(context));
                    return Poll::Ready(self.advance(fetched));
                }
                State::FetchingAhead(call) => match ready!(call.poll(context)) {
                    Some(fetched) => return Poll::Ready(self.advance(fetched)),
                    // The runtime that fetched ahead has shut down, so this one fetches the page.
                    None => self.state = State::Idle,
                },
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

wait_for_items!(PageStream);
opaque_debug!(PageStream);

/// A call that makes progress by itself, as a task of the current runtime. Dropping it cancels the call.
pub(super) struct SpawnedCall<T>(JoinSet<Result<T, Error>>);

impl<T: Send + 'static> SpawnedCall<T> {
    pub(super) fn new(call: ResponseFuture<T>) -> Self {
        let mut tasks = JoinSet::new();
        tasks.spawn(in_current_span(call));
        Self(tasks)
    }

    /// Polls the call. `None` means that the runtime in which it ran has shut down.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<T, Error>>> {
        self.0.poll_join_next(context).map(|joined| {
            match joined?.map_err(JoinError::try_into_panic) {
                Ok(result) => Some(result),
                Err(Ok(panic)) => resume_unwind(panic),
                Err(Err(_)) => None,
            }
        })
    }
}
