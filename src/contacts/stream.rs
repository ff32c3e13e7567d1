use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::vec;

use futures_core::Stream;
use futures_core::stream::FusedStream;

use super::paging::{Step, Walk};
use super::{ContactSummary, ListContacts, Page};
use crate::client::ResponseFuture;
use crate::{ApiError, Error, ErrorKind};

/// All pages of a list, each fetched when it is polled for: see
/// [`ListContacts::pages`](super::ListContacts::pages).
///
/// The walk ends when the service answers with empty data. After an error it goes on: the next poll
/// asks again for the same page, so that nothing is lost and nothing comes twice. It ends after
/// [`ErrorKind::Pagination`] and [`ErrorKind::Input`], which asking again cannot mend, and where it is
/// refused (a 3xx or 4xx other than 408 and 429) or cannot be read for the third time in a row, so
/// that a wrong key does not make a loop without end.
///
/// Timeout, deadline and retries hold for each page.
#[must_use = "a stream fetches nothing unless polled"]
pub struct PageStream {
    list: ListContacts,
    walk: Walk,
    state: State,
    /// How often in a row a page was refused, or could not be read.
    refusals: u32,
}

/// As many refusals in a row end a walk.
const REFUSALS: u32 = 3;

enum State {
    Idle,
    Fetching(ResponseFuture<Page>),
    Over,
}

impl PageStream {
    pub(super) fn new(list: ListContacts) -> Self {
        Self {
            walk: Walk::new(list.start()),
            list,
            state: State::Idle,
            refusals: 0,
        }
    }

    /// The cursor after the last page handed out: give it to
    /// [`after`](super::ListContacts::after) to go on from here on another day. `None` before the
    /// first page, unless the list was started after a cursor.
    #[must_use]
    pub fn cursor(&self) -> Option<&str> {
        self.walk.cursor()
    }

    fn settle(&mut self, fetched: Result<Page, Error>) -> Option<Result<Page, Error>> {
        let result = fetched.and_then(|page| {
            match self.walk.step(
                page.data.last().map(|contact| contact.id.as_str()),
                page.next.as_deref(),
            ) {
                Step::Page => Ok(Some(page)),
                Step::End => Ok(None),
                Step::Circle => Err(Error::pagination().at("list")),
            }
        });
        let refused = result.as_ref().is_err_and(is_refusal);
        self.refusals = if refused { self.refusals + 1 } else { 0 };
        let over = match &result {
            Ok(page) => page.is_none(),
            Err(error) => {
                let hopeless = matches!(error.kind(), ErrorKind::Pagination | ErrorKind::Input);
                hopeless || self.refusals == REFUSALS
            }
        };
        self.state = if over { State::Over } else { State::Idle };
        result.transpose()
    }
}

/// Whether asking again will most likely come to the same.
fn is_refusal(error: &Error) -> bool {
    match error.api().map(ApiError::status) {
        Some(status) => !(status.is_server_error() || matches!(status.as_u16(), 408 | 429)),
        None => error.kind() == ErrorKind::Decode,
    }
}

impl Stream for PageStream {
    type Item = Result<Page, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match &mut self.state {
                State::Idle => self.state = State::Fetching(self.list.fetch(self.walk.cursor())),
                State::Fetching(call) => {
                    let fetched = ready!(Pin::new(call).poll(context));
                    return Poll::Ready(self.settle(fetched));
                }
                State::Over => return Poll::Ready(None),
            }
        }
    }
}

impl FusedStream for PageStream {
    fn is_terminated(&self) -> bool {
        matches!(self.state, State::Over)
    }
}

impl fmt::Debug for PageStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageStream")
            .field("cursor", &self.cursor())
            .finish_non_exhaustive()
    }
}

/// All contacts of a list, newest first: see [`ListContacts::stream`](super::ListContacts::stream).
///
/// It holds one page at the most, and fetches the next when that is used up. Errors and the end are
/// those of [`PageStream`].
#[derive(Debug)]
#[must_use = "a stream fetches nothing unless polled"]
pub struct ContactStream {
    pages: PageStream,
    page: vec::IntoIter<ContactSummary>,
    /// The last contact handed out, while its page is not used up.
    last_id: Option<String>,
}

impl ContactStream {
    pub(super) fn new(pages: PageStream) -> Self {
        Self {
            pages,
            page: Vec::new().into_iter(),
            last_id: None,
        }
    }

    /// The cursor after the last contact handed out: give it to
    /// [`after`](super::ListContacts::after) to go on from here on another day. `None` before the
    /// first contact, unless the list was started after a cursor.
    #[must_use]
    pub fn cursor(&self) -> Option<&str> {
        self.last_id.as_deref().or(self.pages.cursor())
    }
}

impl Stream for ContactStream {
    type Item = Result<ContactSummary, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(contact) = self.page.next() {
                self.last_id = (self.page.len() > 0).then(|| contact.id.clone());
                return Poll::Ready(Some(Ok(contact)));
            }
            match ready!(Pin::new(&mut self.pages).poll_next(context)) {
                Some(Ok(page)) => self.page = page.data.into_iter(),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let at_hand = self.page.len();
        (at_hand, self.is_terminated().then_some(at_hand))
    }
}

impl FusedStream for ContactStream {
    fn is_terminated(&self) -> bool {
        self.page.len() == 0 && self.pages.is_terminated()
    }
}
