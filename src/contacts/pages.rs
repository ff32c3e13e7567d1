use std::iter::Peekable;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::{fmt, vec};

use bytes::Bytes;
use futures_core::Stream;
use futures_core::stream::FusedStream;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::task::{JoinError, JoinSet};

use super::model::ContactSummary;
use super::model::{optional_id, optional_text};
use crate::client::{
    Object, Operation, ResponseFuture, Success, decode_item, in_current_span, opaque_debug,
    wait_for_items,
};
use crate::{Error, ErrorKind, Outcome};

/// Returns all contacts of a list, newest first.
///
/// [`ListContacts::stream`](super::ListContacts::stream) creates it. The stream holds one page at most. It fetches the
/// next page when the caller has taken all contacts of this one, or [ahead](Self::prefetch). [`PageStream`] documents
/// its errors and its end.
///
/// If an item is malformed, which means that it does not have the form of [section 2.3](crate::interface#2.3), the
/// stream returns an [`ErrorKind::Decode`](crate::ErrorKind::Decode) in its place. [`Error::body`] has the JSON of the
/// item. The next poll continues after it. Malformed items never end the stream. But they end a loop that returns each
/// error, at the same place in each run: [`Error::is_malformed_contact`] shows a loop that leaves them out.
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
    /// The cursor within the page, while it has items left. Empty if there is none.
    within: String,
}

impl ContactStream {
    pub(super) fn new(pages: PageStream) -> Self {
        Self {
            pages,
            page: PageItems::new(Vec::new(), Vec::new()),
            within: String::new(),
        }
    }

    /// Fetches the next page while the caller works on this one: see [`PageStream::prefetch`].
    ///
    /// Order, cursor and errors do not change. The stream then holds two pages at most.
    ///
    /// # Example: slow work on each contact
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
            _ => Some(self.within.as_str()).filter(|cursor| !cursor.is_empty()),
        }
    }

    /// Polls for the next item of a page.
    pub(super) fn poll_item(&mut self, context: &mut Context<'_>) -> Poll<Option<PageItem>> {
        loop {
            if let Some(item) = self.page.next(&mut self.within) {
                return Poll::Ready(Some(item));
            }
            let start = self.pages.cursor().unwrap_or_default().to_owned();
            match ready!(Pin::new(&mut self.pages).poll_next(context)) {
                Some(Ok(page)) => {
                    self.page = page.into_items();
                    self.within = start;
                }
                Some(Err(error)) => return Poll::Ready(Some(PageItem::NoPage(error))),
                None => return Poll::Ready(None),
            }
        }
    }
}

impl Stream for ContactStream {
    type Item = Result<ContactSummary, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(ready!(self.poll_item(context)).map(|item| match item {
            PageItem::Contact(contact) => Ok(contact),
            PageItem::Malformed(error) | PageItem::NoPage(error) => Err(error),
        }))
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

/// Returns all pages of a list, newest contacts first. Each page has at least one item.
///
/// [`ListContacts::pages`](super::ListContacts::pages) creates it. A poll starts to fetch the next page unless the
/// stream is already fetching it. Timeout, deadline and retries apply to each page.
///
/// # Errors
///
/// If a page could not be fetched, the stream returns an error. The next poll then fetches the same page again, so no
/// contact is lost or returned twice.
///
/// # End
///
/// The stream ends when the service responds with an empty page. An empty page that reports an error, such as
/// `{"data": [], "error": "busy"}`, ends nothing: it is an [`ErrorKind::Decode`]. The stream also ends
///
/// - after [`ErrorKind::Pagination`] or [`ErrorKind::Input`], which another request cannot fix;
/// - after the third failure in a row, of any kind, so that a service that is down causes no endless loop. To retry for
///   longer, set a patient [`retry`](super::ListContacts::retry) policy, or start a new list
///   [`after`](super::ListContacts::after) the [`cursor`](Self::cursor).
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
    /// whenever the caller awaits something. A caller that computes without an `.await` gains nothing, unless it is
    /// outside the runtime and uses `wait`. The stream is at most one page ahead. Dropping it cancels the request.
    ///
    /// Order, cursor, errors and end do not change. In particular, [`cursor`](Self::cursor) counts only the pages that
    /// the stream has returned. If a page could not be fetched, the stream returns the error and fetches the page again
    /// at the next poll. If the caller stops early, the stream has sent one extra request.
    ///
    /// # Example: store each page while the next one arrives
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
    ///
    /// # Example: continue after the first page
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # contacts.create_batch(["ada@example.com", "bob@example.com"]).await?;
    /// use futures_util::TryStreamExt;
    ///
    /// let mut pages = contacts.list().limit(1).pages();
    /// pages.try_next().await?;
    /// let stored = pages.cursor().expect("a page was returned").to_owned();
    ///
    /// let rest = contacts.list().after(stored).await?;
    /// assert_eq!(rest.data[0].email, "ada@example.com");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn cursor(&self) -> Option<&str> {
        self.cursor.current()
    }

    /// Moves past a fetched page, and returns the item of the stream.
    fn advance(&mut self, fetched: Result<Page, Error>) -> Option<Result<Page, Error>> {
        let result = fetched.and_then(|page| {
            let step = self.cursor.advance(page.last_id(), page.cursor());
            match step {
                PageStep::Page => Ok(Some(page)),
                PageStep::End => Ok(None),
                PageStep::Cycle => Err(repeated_page()),
            }
        });
        self.failures = match &result {
            Ok(_) => 0,
            Err(_) => self.failures + 1,
        };
        // A loop that ignores errors must end, too, if the service stays down.
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
        // A `JoinSet` cancels its tasks when it is dropped; a `JoinHandle` does not.
        tasks.spawn(in_current_span(call));
        Self(tasks)
    }

    /// Polls the call. `None` means that the runtime in which it ran has shut down.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<T, Error>>> {
        self.0.poll_join_next(context).map(|joined| {
            match joined?.map_err(JoinError::try_into_panic) {
                Ok(result) => Some(result),
                // A panic in the task must reach the caller, as it would without a task.
                Err(Ok(panic)) => resume_unwind(panic),
                Err(Err(_)) => None,
            }
        })
    }
}

/// The operation of every request for a page.
pub(super) const LIST: Operation = Operation {
    name: "list",
    template: "/contacts",
};

/// The position in a list, updated with each page. It holds four texts, however long the list is.
#[derive(Clone, Debug)]
pub(super) struct PageCursor {
    cursors: CycleDetector,
    /// The last id of each page: a service may repeat a page, and send a new cursor with it.
    last_ids: CycleDetector,
}

/// The next step after a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageStep {
    /// Return the page; another may follow.
    Page,
    /// The page is empty: the list has ended.
    End,
    /// The service repeated a cursor or a page.
    Cycle,
}

impl PageCursor {
    pub(super) fn new(after: Option<String>) -> Self {
        Self {
            cursors: CycleDetector::new(after),
            last_ids: CycleDetector::new(None),
        }
    }

    /// Returns the value to send as `after`.
    pub(super) fn current(&self) -> Option<&str> {
        self.cursors.last.as_deref()
    }

    /// Moves past a page, given the id of its last item and the cursor that follows it.
    pub(super) fn advance(&mut self, last_id: Option<&str>, next: Option<&str>) -> PageStep {
        let Some(next) = next else {
            return PageStep::End;
        };
        let last_id = last_id.filter(|id| !id.is_empty());
        let is_repeated = last_id.is_some_and(|id| self.last_ids.is_repeated(id));
        match is_repeated || self.cursors.is_repeated(next) {
            true => PageStep::Cycle,
            false => PageStep::Page,
        }
    }
}

/// Creates the error for a cursor or a page that the service repeated.
pub(super) fn repeated_page() -> Error {
    let message =
        "the service repeated a cursor or a page; listing stopped to avoid an endless loop";
    let error = Error::new(ErrorKind::Pagination, Outcome::Unchanged, message).at(LIST.name);
    // It is found in a response.
    error.after(1, Outcome::Unchanged)
}

/// Brent's cycle detection. It compares each text with the one before, and with a checkpoint, which moves to the current
/// text after 1, 2, 4, 8, … steps. It finds a cycle of any length, wherever the cycle starts.
#[derive(Clone, Debug)]
struct CycleDetector {
    last: Option<String>,
    checkpoint: Option<String>,
    /// Steps since the checkpoint moved.
    steps: u64,
    /// Steps after which the checkpoint moves.
    interval: u64,
}

impl CycleDetector {
    fn new(start: Option<String>) -> Self {
        Self {
            checkpoint: start.clone(),
            last: start,
            steps: 0,
            interval: 1,
        }
    }

    /// Takes the next text, unless it equals the last one or the checkpoint. Returns whether it does.
    fn is_repeated(&mut self, text: &str) -> bool {
        let is_equal = |earlier: &Option<String>| earlier.as_deref() == Some(text);
        if is_equal(&self.last) || is_equal(&self.checkpoint) {
            return true;
        }
        self.last = Some(text.to_owned());
        self.steps += 1;
        if self.steps == self.interval {
            self.checkpoint.clone_from(&self.last);
            self.steps = 0;
            self.interval = self.interval.saturating_mul(2);
        }
        false
    }
}

/// A page of contacts, newest first.
///
/// An item is malformed if it does not have the form of [section 2.3](crate::interface#2.3). It does not make the page
/// fail: [`malformed`](Self::malformed) returns it, and the other items are in [`data`](Self::data). But a page with
/// more than 10,000 items does not come from the service, which sends at most 200 ([section 8](crate::interface#8)). If
/// one of them is malformed, the page fails.
///
/// # Example: the newest contacts
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
/// # let server = audience::mock::MockServer::start().await;
/// # let contacts = server.client().contacts();
/// # contacts.create_batch(["ada@example.com", "bob@example.com"]).await?;
/// let page = contacts.list().await?;
///
/// let addresses: Vec<&str> = page.data.iter().map(|contact| contact.email.as_str()).collect();
/// assert_eq!(addresses, ["bob@example.com", "ada@example.com"]);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Page {
    /// The contacts. Empty if the list has ended, or if every item is malformed.
    pub data: Vec<ContactSummary>,
    /// The cursor that the service sent, or `None` if it sent none or an empty one.
    ///
    /// `None` does not mean that the list has ended; only an empty page does. Continue with [`cursor`](Page::cursor).
    #[serde(default, with = "optional_text")]
    pub next: Option<String>,
    #[serde(skip)]
    malformed: Vec<MalformedItem>,
}

/// The largest number of items in a page with a malformed one. Such an item may take a hundred times as much memory as
/// its JSON, and a contact only a few times as much.
const MAX_ITEMS: usize = 10_000;

/// A page on the wire.
#[derive(Deserialize)]
struct WirePage {
    data: Vec<Object<ContactSummary>>,
    #[serde(default, deserialize_with = "optional_id")]
    next: Option<String>,
}

impl WirePage {
    /// Returns whether the page has items and a cursor. An empty cursor would request the first page again.
    fn has_cursor(&self) -> bool {
        let last = self.data.last();
        last.is_some_and(|Object(last)| self.next.is_some() || !last.id.is_empty())
    }
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
        }
    }

    /// Returns the cursor of the following page, to pass to [`after`](super::ListContacts::after). It is
    /// [`next`](Page::next) or, if the service sent none, the id of the last contact.
    ///
    /// `None` if the page has no items, because the list has ended. The last page with items has a cursor, too: the
    /// service does not say that it is the last one. For a "next" button, list one contact more than you show, which is
    /// 199 at most. If it comes, another page follows, which begins after the `id` of the last contact that you show. If
    /// your service sends short pages, show the button on each page that has a cursor.
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
    ///
    /// # Example: a page of 20 contacts, and where its "next" button leads
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # contacts.create_batch((0..21).map(|n| format!("{n}@example.com"))).await?;
    /// let mut page = contacts.list().limit(20 + 1).await?;
    /// let has_next = page.data.len() + page.malformed().len() > 20;
    /// page.data.truncate(20);
    /// let next = page.data.last().filter(|_| has_next).map(|last| last.id.clone());
    ///
    /// if let Some(next) = next {
    ///     println!("/contacts?after={next}"); // the next page: contacts.list().limit(20 + 1).after(next)
    /// #   assert_eq!(contacts.list().limit(20 + 1).after(next).await?.data.len(), 1);
    /// }
    /// # assert!(has_next);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn cursor(&self) -> Option<&str> {
        let has_items = !self.data.is_empty() || !self.malformed.is_empty();
        let next = self.next.as_deref().filter(|next| !next.is_empty());
        // Only an empty page ends a list (interface section 4.4); a short page does not.
        next.or_else(|| self.last_id()).filter(|_| has_items)
    }

    /// Returns the items that could not be decoded, each with its index in the page and its error.
    ///
    /// [`Error::body`] has the JSON of the item. Serializing a page drops these items.
    ///
    /// # Example: report the items that were left out
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # server.fault(audience::mock::Fault::wrong_body(r#"{"data": [{"id": "c_1"}], "next": "c_1"}"#));
    /// let page = contacts.list().await?;
    ///
    /// for (index, error) in page.malformed() {
    ///     println!("item {index} was left out: {error}");
    ///     // item 0 was left out: list: invalid response at $.data[0]
    /// #   assert_eq!((index, error.to_string().as_str()), (0, "list: invalid response at $.data[0]"));
    /// }
    /// # assert_eq!(page.malformed().count(), 1);
    /// # Ok(()) }
    /// ```
    pub fn malformed(&self) -> impl ExactSizeIterator<Item = (usize, Error)> {
        self.malformed.iter().map(MalformedItem::error)
    }

    /// Reads a page from a response, without its malformed items.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Decode` if the response is not a page, if it has items and no cursor, if it has no items and reports
    /// an error, or if it has more than [`MAX_ITEMS`] items and one of them is malformed.
    pub(super) fn read(success: &Success) -> Result<Self, Error> {
        // Decoding the items one by one takes longer, so only a page that fails is read that way.
        if let Some(page) = success
            .valid_object::<WirePage>()
            .filter(WirePage::has_cursor)
        {
            return Ok(Self::from_wire(page));
        }
        let page = RawPage::read(success)?;
        page.cursor()?;
        let count = page.data.len();
        if count > MAX_ITEMS {
            return Err(Error::decode(format!(
                "the page has {count} items, and at least one of them is malformed; a page with a malformed item may have at most {MAX_ITEMS}"
            )));
        }
        let (data, malformed) = decode_items(success, &page.data);
        Ok(Self {
            data,
            malformed,
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

    fn into_items(self) -> PageItems {
        PageItems::new(self.data, self.malformed)
    }

    /// Returns the id of the last item. `None` if the item is malformed and has none, or if the page has no items.
    fn last_id(&self) -> Option<&str> {
        let count = self.data.len() + self.malformed.len();
        match self.malformed.last() {
            Some(item) if item.index + 1 == count => item.id.as_deref(),
            _ => self.data.last().map(|contact| contact.id.as_str()),
        }
    }
}

/// A page whose items are not decoded yet.
pub(super) struct RawPage<'a> {
    pub(super) data: Vec<&'a RawValue>,
    pub(super) next: Option<String>,
}

impl<'a> RawPage<'a> {
    /// Reads a page from a response. If `data` is `null`, the page is empty.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Decode` if the response is not a page, or if it is empty and reports an error. Its items are not read.
    pub(super) fn read(success: &'a Success) -> Result<Self, Error> {
        #[derive(Deserialize)]
        struct AnyPage<'a> {
            // Without the attribute, a page without the member would be empty, too.
            #[serde(borrow, deserialize_with = "Option::deserialize")]
            data: Option<Vec<&'a RawValue>>,
            #[serde(default, deserialize_with = "optional_id")]
            next: Option<String>,
        }

        let Object(page): Object<AnyPage<'_>> = success.json()?;
        let data = page.data.unwrap_or_default();
        if data.is_empty() {
            // An empty page ends the list, and proves that it has no other contact.
            success.refuse_error()?;
        }
        Ok(Self {
            data,
            next: page.next,
        })
    }

    /// Returns the cursor that follows the page: `next`, or else the id of the last item. `None` if the page
    /// is empty, because the list has ended.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Decode` if there is neither: the list can neither continue nor end here.
    pub(super) fn cursor(&self) -> Result<Option<String>, Error> {
        if self.data.is_empty() {
            return Ok(None);
        }
        let cursor = self.next.clone().or_else(|| self.last_id());
        let cursor = cursor.map(Some);
        cursor.ok_or_else(|| {
            Error::decode("the page has no cursor: `next` is missing, and its last item has no id")
        })
    }

    /// Returns the id of the last item, even if the item is malformed.
    pub(super) fn last_id(&self) -> Option<String> {
        id_of(self.data.last()?)
    }
}

/// Returns the id of an item, even if the item is malformed.
fn id_of(item: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    struct Identified {
        #[serde(deserialize_with = "optional_id")]
        id: Option<String>,
    }

    let Object(Identified { id }) = serde_json::from_str(item.get()).ok()?;
    id
}

/// An item that could not be decoded.
#[derive(Clone, PartialEq)]
struct MalformedItem {
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
            .with_outcome(Outcome::Unchanged)
            .reading(self.json.clone())
            .malformed_contact();
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
fn decode_items(
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
                attempts: success.attempts,
                // A copy, so that an error that is kept does not keep the whole page in memory.
                json: Bytes::copy_from_slice(item.get().as_bytes()),
            }),
        }
    }
    (contacts, malformed)
}

/// The items of a page in the order of the response: a contact, or the error of a malformed item.
struct PageItems {
    contacts: vec::IntoIter<ContactSummary>,
    malformed: Peekable<vec::IntoIter<MalformedItem>>,
    index: usize,
}

pub(super) enum PageItem {
    Contact(ContactSummary),
    Malformed(Error),
    /// The page after the item before could not be fetched.
    NoPage(Error),
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

    /// Returns the next item, and sets `cursor` to the cursor after it.
    fn next(&mut self, cursor: &mut String) -> Option<PageItem> {
        let index = self.index;
        self.index += 1;
        // Both lists are in the order of the response, so the index alone says which one has the next item.
        if let Some(item) = self.malformed.next_if(|item| item.index == index) {
            let (_, error) = item.error();
            // An item without an id has no cursor, so the cursor stays before it.
            if let Some(id) = item.id {
                *cursor = id;
            }
            return Some(PageItem::Malformed(error));
        }
        let contact = self.contacts.next()?;
        if !contact.id.is_empty() {
            // This reuses the memory: a clone for each contact would cost an allocation.
            cursor.clone_from(&contact.id);
        }
        Some(PageItem::Contact(contact))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(last_id: &str, next: Option<&str>) -> Page {
        let mut page = Page::new([ContactSummary::new(last_id, "ada@example.com")]);
        page.next = next.map(str::to_owned);
        page
    }

    #[test]
    fn only_an_empty_page_ends_a_list() {
        let mut empty = Page::new([]);
        empty.next = Some("c1".to_owned());
        let mut cursor = PageCursor::new(None);

        assert_eq!(cursor.advance(Some("c9"), Some("c9")), PageStep::Page);
        assert_eq!(cursor.current(), Some("c9"));
        assert_eq!(empty.cursor(), None);
        assert_eq!(cursor.advance(None, empty.cursor()), PageStep::End);
    }

    #[test]
    fn if_next_is_missing_or_empty_the_last_id_is_the_cursor() {
        for next in [None, Some("")] {
            assert_eq!(page("c7", next).cursor(), Some("c7"));
        }
    }

    #[test]
    fn a_cursor_equal_to_the_one_sent_is_a_cycle_at_once() {
        let mut cursor = PageCursor::new(Some("c5".to_owned()));
        assert_eq!(cursor.advance(Some("c5"), Some("c5")), PageStep::Cycle);

        let mut cursor = PageCursor::new(None);
        for n in 0..1_000 {
            let n = n.to_string();
            assert_eq!(cursor.advance(Some(&n), Some(&n)), PageStep::Page);
        }
        assert_eq!(cursor.advance(Some("x"), Some("999")), PageStep::Cycle);
    }

    #[test]
    fn a_cycle_of_cursors_or_of_pages_is_found_whatever_its_length_and_its_start() {
        for tail in [0_usize, 1, 2, 7, 100] {
            for length in [1_usize, 2, 3, 10, 64, 333] {
                let repeats = |n: usize| match n < tail {
                    true => n,
                    false => tail + (n - tail) % length,
                };
                for is_page in [false, true] {
                    let mut cursor = PageCursor::new(None);
                    let found = (0..4 * (tail + length) + 4).position(|n| {
                        let (new, repeated) = (n.to_string(), repeats(n).to_string());
                        let step = match is_page {
                            true => cursor.advance(Some(&repeated), Some(&new)),
                            false => cursor.advance(Some(&new), Some(&repeated)),
                        };
                        step == PageStep::Cycle
                    });

                    assert!(found.is_some(), "tail {tail}, length {length}, {is_page}");
                }
            }
        }
    }

    #[test]
    fn pages_whose_last_items_have_no_id_are_no_cycle() {
        let mut cursor = PageCursor::new(None);

        for (id, next) in [(None, "1"), (Some(""), "2"), (None, "3"), (Some(""), "4")] {
            assert_eq!(cursor.advance(id, Some(next)), PageStep::Page);
        }
    }

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
