use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_core::stream::FusedStream;

use super::Contact;
use super::pages::ContactStream;
use super::pages::{MAX_FAILURES, SpawnedCall};
use crate::client::{CallOptions, ResponseFuture, TakesOptions, opaque_debug, wait_for_items};
use crate::{Client, Error, ErrorKind};

/// The number of contacts retrieved ahead, unless [`FullContactStream::concurrency`] sets it.
const DEFAULT_MAX_IN_FLIGHT: usize = 8;

/// All contacts of a list in full, newest first.
///
/// Created by [`ListContacts::full`](super::ListContacts::full). It reads the list
/// [a page ahead](super::PageStream::prefetch), and retrieves several contacts at once, as tasks of the tokio
/// runtime: they make progress while the caller works on a contact. Dropping the stream cancels them. Timeout,
/// deadline and retries of the list apply to each page and to each retrieve call.
///
/// # Contacts that vanish
///
/// A contact that the list has and that no longer exists when it is retrieved (`not_found`) is skipped, as if it
/// had vanished before it was listed. [`vanished`](Self::vanished) counts such contacts.
///
/// # Errors
///
/// An error is in the place of the contact or the page that it is about, and the order never changes.
///
/// - A page that could not be fetched, or a contact that could not be retrieved: the next poll tries again, so no
///   contact is lost or returned twice. The stream ends after three such failures in a row: see
///   [`PageStream`](super::PageStream#end).
/// - A malformed contact, in the list or when retrieved, is [`ErrorKind::Decode`]. One with an address that cannot
///   be retrieved, such as `.`, is [`ErrorKind::Input`]. The next poll continues after it, and such errors
///   never end the stream. [`malformed`](Self::malformed) counts them.
#[must_use = "a stream fetches nothing unless polled"]
pub struct FullContactStream {
    list: ContactStream,
    retrieve: RetrieveEach,
    max_in_flight: usize,
    /// What follows in the list, in its order.
    ahead: VecDeque<Ahead>,
    cursor: Option<String>,
    /// Failed retrieve calls since the last contact.
    failures: u32,
    has_failed: bool,
    vanished: u64,
    malformed: u64,
}

/// An item of the list that was read, but not returned.
struct Ahead {
    /// The cursor after the item.
    cursor: Option<String>,
    item: Item,
}

enum Item {
    Contact(Retrieval),
    Malformed(Error),
    /// The page after the item before could not be fetched.
    NoPage(Error),
}

impl FullContactStream {
    pub(super) fn new(list: ContactStream, retrieve: RetrieveEach) -> Self {
        Self {
            cursor: list.cursor().map(str::to_owned),
            list: list.prefetch(),
            retrieve,
            max_in_flight: DEFAULT_MAX_IN_FLIGHT,
            ahead: VecDeque::new(),
            failures: 0,
            has_failed: false,
            vanished: 0,
            malformed: 0,
        }
    }

    /// Sets how many contacts are retrieved at once at the most; they are held until their turn comes. 0 means 1.
    /// Default: 8.
    pub fn concurrency(mut self, contacts: usize) -> Self {
        self.max_in_flight = contacts;
        self
    }

    /// Returns the cursor after the last contact that the stream returned.
    ///
    /// Pass it to [`after`](super::ListContacts::after) to continue later. Contacts that were retrieved ahead are
    /// after the cursor. `None` before the first contact, unless the list started after a cursor.
    #[must_use]
    pub fn cursor(&self) -> Option<&str> {
        self.cursor.as_deref()
    }

    /// Returns how many contacts were skipped because they no longer existed when they were retrieved.
    #[must_use]
    pub fn vanished(&self) -> u64 {
        self.vanished
    }

    /// Returns how many of the errors were about malformed contacts.
    #[must_use]
    pub fn malformed(&self) -> u64 {
        self.malformed
    }

    /// Reads the list and starts to retrieve its contacts, as far ahead as is allowed.
    fn read_ahead(&mut self, context: &mut Context<'_>) {
        while self.ahead.len() < self.max_in_flight.max(1) {
            // The caller learns of an error before more is fetched.
            if matches!(
                self.ahead.back(),
                Some(Ahead {
                    item: Item::NoPage(_),
                    ..
                })
            ) {
                return;
            }
            let Poll::Ready(Some(item)) = self.list.poll_item(context) else {
                return;
            };
            let item = match item.map(|item| item.contact) {
                Ok(Ok(contact)) => Item::Contact(Retrieval::start(contact.email, &self.retrieve)),
                Ok(Err(error)) => Item::Malformed(error),
                Err(error) => Item::NoPage(error),
            };
            let cursor = self.list.cursor().map(str::to_owned);
            self.ahead.push_back(Ahead { cursor, item });
        }
    }

    /// Moves past a contact that was retrieved, that has vanished or that is malformed. Any other failure keeps it.
    /// Returns the item of the stream, unless the contact has vanished.
    fn advance(
        &mut self,
        cursor: Option<String>,
        retrieval: Retrieval,
        retrieved: Result<Contact, Error>,
    ) -> Option<Result<Contact, Error>> {
        let fate = retrieved.as_ref().map_or_else(fate_of, |_| Fate::Returned);
        if fate == Fate::NotRetrieved {
            self.failures += 1;
            self.has_failed = self.failures == MAX_FAILURES;
            let item = Item::Contact(retrieval);
            self.ahead.push_front(Ahead { cursor, item });
            return Some(retrieved);
        }
        self.failures = 0;
        self.cursor = cursor;
        match fate {
            Fate::Vanished => self.vanished += 1,
            Fate::Malformed => self.malformed += 1,
            Fate::Returned | Fate::NotRetrieved => {}
        }
        (fate != Fate::Vanished).then_some(retrieved)
    }
}

impl Stream for FullContactStream {
    type Item = Result<Contact, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        while !this.is_terminated() {
            this.read_ahead(context);
            let Some(Ahead { cursor, item }) = this.ahead.pop_front() else {
                match this.list.is_terminated() {
                    true => break,
                    false => return Poll::Pending,
                }
            };
            let mut retrieval = match item {
                Item::Contact(retrieval) => retrieval,
                Item::NoPage(error) => return Poll::Ready(Some(Err(error))),
                Item::Malformed(error) => {
                    this.cursor = cursor;
                    this.malformed += 1;
                    return Poll::Ready(Some(Err(error)));
                }
            };
            let Poll::Ready(retrieved) = retrieval.poll(&this.retrieve, context) else {
                let item = Item::Contact(retrieval);
                this.ahead.push_front(Ahead { cursor, item });
                return Poll::Pending;
            };
            if let Some(item) = this.advance(cursor, retrieval, retrieved) {
                return Poll::Ready(Some(item));
            }
        }
        Poll::Ready(None)
    }
}

impl FusedStream for FullContactStream {
    fn is_terminated(&self) -> bool {
        self.has_failed || (self.ahead.is_empty() && self.list.is_terminated())
    }
}

wait_for_items!(FullContactStream);
opaque_debug!(FullContactStream);

/// What becomes of a contact of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Returned,
    Vanished,
    Malformed,
    /// It may be retrieved by another call.
    NotRetrieved,
}

fn fate_of(error: &Error) -> Fate {
    match error.kind() {
        _ if error.is_not_found() => Fate::Vanished,
        ErrorKind::Decode | ErrorKind::Input => Fate::Malformed,
        _ => Fate::NotRetrieved,
    }
}

/// A contact that is being retrieved.
struct Retrieval {
    address: String,
    /// `None` if the call has ended.
    call: Option<SpawnedCall<Contact>>,
}

impl Retrieval {
    fn start(address: String, retrieve: &RetrieveEach) -> Self {
        let call = Some(SpawnedCall::new(retrieve.call(&address)));
        Self { address, call }
    }

    /// Polls the call. If it has ended, or its runtime has shut down, polls another one instead.
    fn poll(
        &mut self,
        retrieve: &RetrieveEach,
        context: &mut Context<'_>,
    ) -> Poll<Result<Contact, Error>> {
        loop {
            let call = self
                .call
                .get_or_insert_with(|| SpawnedCall::new(retrieve.call(&self.address)));
            let ended = ready!(call.poll(context));
            self.call = None;
            if let Some(retrieved) = ended {
                return Poll::Ready(retrieved);
            }
        }
    }
}

/// Creates retrieve calls with the settings of the list.
pub(super) struct RetrieveEach {
    client: Client,
    options: CallOptions,
}

impl RetrieveEach {
    pub(super) fn new(client: &Client, options: &CallOptions) -> Self {
        Self {
            client: client.clone(),
            options: options.clone(),
        }
    }

    fn call(&self, address: &str) -> ResponseFuture<Contact> {
        let retrieve = self.client.contacts().retrieve(address);
        retrieve.options(self.options.clone()).into_future()
    }
}
