use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_core::stream::FusedStream;

use super::Contact;
use super::pages::{ContactStream, MAX_FAILURES, PageItem, SpawnedCall};
use crate::client::{CallOptions, ResponseFuture, opaque_debug, wait_for_items};
use crate::{Client, Error};

/// The number of contacts retrieved ahead, unless [`FullContactStream::concurrency`] sets it.
const DEFAULT_MAX_IN_FLIGHT: usize = 8;

/// Returns all contacts of a list in full, newest first.
///
/// [`ListContacts::full`](super::ListContacts::full) creates it. The stream reads the list
/// [a page ahead](super::PageStream::prefetch). It retrieves several contacts simultaneously, as tasks of the tokio
/// runtime, so they make progress while the caller works on a contact. Dropping the stream cancels them. The list's
/// timeout, deadline and retries apply to each page and to each retrieve call.
///
/// So a contact may have been retrieved before your loop worked on the contacts before it: if the loop waits for a
/// minute, the next contact is more than a minute old. To decide whether to send a mail, list the contacts with
/// [`stream`](super::ListContacts::stream), and retrieve each contact directly before its mail, as
/// `UnsubscribeService::may_send` does.
///
/// # Contacts that vanish
///
/// A listed contact may no longer exist when the stream retrieves it (`not_found`). The stream skips it, as if it had
/// vanished before it was listed. [`vanished`](Self::vanished) counts such contacts. A 404 without the code
/// `not_found` may come from a gateway: then the contact is skipped only if no list has it.
///
/// # Errors
///
/// Each error takes the place of the contact or the page that it is about, and the order never changes.
///
/// - If a page could not be fetched, or a contact could not be retrieved, the next poll retries it. So no contact is
///   lost or returned twice. The stream ends after three such failures in a row: see
///   [`PageStream`](super::PageStream#end).
/// - If a contact is malformed, in the list or when retrieved, or another contact is retrieved in its place, the error is
///   [`ErrorKind::Decode`](crate::ErrorKind::Decode). If its address cannot be sent, such as `.`, the error is
///   [`ErrorKind::Input`](crate::ErrorKind::Input). [`Error::is_malformed_contact`] is then true. The next poll
///   continues after the contact, and such errors never end the stream.
///
/// # Example: the family names, which lists do not have
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
/// # let server = audience::mock::MockServer::start().await;
/// # let contacts = server.client().contacts();
/// # contacts.create(audience::contacts::NewContact::new("ada@example.com").last_name("Lovelace")).await?;
/// use futures_util::TryStreamExt;
///
/// let mut stream = contacts.list().full();
/// while let Some(contact) = stream.try_next().await? {
///     println!("{} {:?}", contact.email, contact.last_name);
/// #   assert_eq!(contact.last_name.as_deref(), Some("Lovelace"));
/// }
/// # Ok(()) }
/// ```
#[must_use = "a stream fetches nothing unless polled"]
pub struct FullContactStream {
    list: ContactStream,
    retrieve: RetrieveEach,
    max_in_flight: usize,
    /// The items of the list that come next, in its order.
    ahead: VecDeque<Ahead>,
    cursor: Option<String>,
    /// Failed retrieve calls since the last contact.
    failures: u32,
    has_failed: bool,
    vanished: u64,
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
        }
    }

    /// Sets how many contacts are retrieved simultaneously at most. 0 counts as 1. Default: 8.
    ///
    /// The stream keeps them in memory until it returns them in the order of the list.
    ///
    /// # Example: a large list over a fast connection
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # contacts.create_batch(["ada@example.com", "bob@example.com"]).await?;
    /// use futures_util::TryStreamExt;
    ///
    /// let stream = contacts.list().limit(200).full().concurrency(32);
    /// let all: Vec<_> = stream.try_collect().await?;
    ///
    /// assert_eq!(all.len(), 2);
    /// # Ok(()) }
    /// ```
    pub fn concurrency(mut self, contacts: usize) -> Self {
        self.max_in_flight = contacts;
        self
    }

    /// Returns the cursor after the last contact that the stream returned.
    ///
    /// Pass it to [`after`](super::ListContacts::after) to continue later. A later list then returns the contacts that
    /// this stream has retrieved ahead. `None` before the first contact, unless the list started after a cursor.
    ///
    /// # Example: stop after the first contact and continue later
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # contacts.create_batch(["ada@example.com", "bob@example.com"]).await?;
    /// use futures_util::TryStreamExt;
    ///
    /// let mut stream = contacts.list().full();
    /// let newest = stream.try_next().await?.expect("the audience has two contacts");
    /// let stored = stream.cursor().expect("a contact was returned").to_owned();
    ///
    /// let rest: Vec<_> = contacts.list().after(stored).full().try_collect().await?;
    /// assert_eq!((newest.email.as_str(), rest[0].email.as_str()), ("bob@example.com", "ada@example.com"));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn cursor(&self) -> Option<&str> {
        self.cursor.as_deref()
    }

    /// Returns how many contacts were skipped because they no longer existed when they were retrieved.
    #[must_use]
    pub fn vanished(&self) -> u64 {
        self.vanished
    }

    /// Reads the list and starts to retrieve its contacts, as far ahead as is allowed.
    fn read_ahead(&mut self, context: &mut Context<'_>) {
        // The limit counts contacts that wait to be returned, too, so memory is bounded.
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
            let item = match item {
                PageItem::Contact(contact) => {
                    Item::Contact(Retrieval::start(contact.email, &self.retrieve))
                }
                PageItem::Malformed(error) => Item::Malformed(error),
                PageItem::NoPage(error) => Item::NoPage(error),
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
            // The contact stays first, so that the order does not change.
            let item = Item::Contact(retrieval);
            self.ahead.push_front(Ahead { cursor, item });
            return Some(retrieved);
        }
        self.failures = 0;
        self.cursor = cursor;
        self.vanished += u64::from(fate == Fate::Vanished);
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
                    // `read_ahead` has polled the list, which wakes this task.
                    false => return Poll::Pending,
                }
            };
            let mut retrieval = match item {
                Item::Contact(retrieval) => retrieval,
                Item::NoPage(error) => return Poll::Ready(Some(Err(error))),
                Item::Malformed(error) => {
                    this.cursor = cursor;
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

/// The result of retrieving a listed contact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Returned,
    Vanished,
    Malformed,
    /// The retrieve call failed, and a retry may succeed.
    NotRetrieved,
}

fn fate_of(error: &Error) -> Fate {
    if error.is_not_found() {
        Fate::Vanished
    } else if error.is_malformed_contact() {
        Fate::Malformed
    } else {
        Fate::NotRetrieved
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

    /// Polls the call. If there is none, or its runtime has shut down, starts another one.
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
        let contacts = self.client.contacts();
        let (address, options) = (address.to_owned(), self.options.clone());
        // The list has the contact, so a gateway's 404 or another contact must not replace it.
        ResponseFuture::new(async move {
            let options = contacts.client.start_reads(options);
            contacts.retrieve_or_missing(&address, &options).await
        })
    }
}
