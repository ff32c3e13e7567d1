use std::fmt;
use std::iter::FusedIterator;
use std::pin::Pin;

use futures_core::Stream;

use super::runtime::Runtime;
use crate::Error;
use crate::contacts::{
    Contact, ContactStream, ContactSummary, FullContactStream, Page, PageStream,
};

/// An iterator over the contacts or pages of a list: see [`Call::iter`](super::Call::iter),
/// [`Call::pages`](super::Call::pages) and [`Call::full`](super::Call::full).
///
/// Each page is fetched when it is needed. After an error, the next call continues from the same place, or
/// after the malformed item that the error is about: see [`ContactStream`]. The iterator ends when an async
/// stream would, for example after three failures in a row of any kind: see [`PageStream`]. It also ends after
/// the error for a use in async code.
#[must_use = "an iterator fetches nothing until `next` is called"]
pub struct Iter<T: Listed> {
    /// `None` while the client's thread fetches an item with it.
    stream: Option<T::Stream>,
    runtime: Runtime,
}

impl<T: Listed> Iter<T> {
    pub(super) fn new(stream: T::Stream, runtime: Runtime) -> Self {
        Self {
            stream: Some(stream),
            runtime,
        }
    }

    fn map(mut self, change: impl FnOnce(T::Stream) -> T::Stream) -> Self {
        self.stream = self.stream.map(change);
        self
    }

    /// Returns the cursor after the last item returned: see [`ContactStream::cursor`].
    #[must_use]
    pub fn cursor(&self) -> Option<&str> {
        self.stream.as_ref().and_then(T::cursor)
    }
}

impl Iter<ContactSummary> {
    /// Fetches the next page while the caller works on this one: see [`ContactStream::prefetch`].
    ///
    /// # Example: a page ahead
    ///
    /// ```
    /// # #[cfg(feature = "mock")]
    /// # fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::builder().start_blocking();
    /// # let client = audience::blocking::Client::new(server.url(), server.full_key())?;
    /// # let contacts = client.contacts();
    /// for contact in contacts.list().limit(200).iter().prefetch() {
    ///     println!("{}", contact?.email);
    /// }
    /// # Ok(()) }
    /// # #[cfg(not(feature = "mock"))] fn main() {}
    /// ```
    pub fn prefetch(self) -> Self {
        self.map(ContactStream::prefetch)
    }
}

impl Iter<Page> {
    /// Fetches the next page while the caller works on this one: see [`PageStream::prefetch`].
    pub fn prefetch(self) -> Self {
        self.map(PageStream::prefetch)
    }
}

impl Iter<Contact> {
    /// Sets how many contacts are retrieved at once at the most. Default: 8. See
    /// [`FullContactStream::max_in_flight`].
    pub fn max_in_flight(self, contacts: usize) -> Self {
        self.map(|stream| stream.max_in_flight(contacts))
    }

    /// Returns how many contacts were skipped because they no longer existed: see
    /// [`FullContactStream::vanished`].
    #[must_use]
    pub fn vanished(&self) -> u64 {
        self.stream.as_ref().map_or(0, FullContactStream::vanished)
    }

    /// Returns how many of the errors were about malformed contacts: see [`FullContactStream::malformed`].
    #[must_use]
    pub fn malformed(&self) -> u64 {
        self.stream.as_ref().map_or(0, FullContactStream::malformed)
    }
}

impl<T: Listed> Iterator for Iter<T> {
    type Item = Result<T, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut stream = self.stream.take()?;
        let work = async move {
            let item =
                std::future::poll_fn(|context| Pin::new(&mut stream).poll_next(context)).await;
            (stream, item)
        };
        match self.runtime.wait(work) {
            Ok((stream, item)) => {
                self.stream = Some(stream);
                item
            }
            Err(error) => Some(Err(error)),
        }
    }
}

impl<T: Listed> FusedIterator for Iter<T> {}

impl<T: Listed> fmt::Debug for Iter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").finish_non_exhaustive()
    }
}

/// An item of an [`Iter`]: a contact, in short or in full, or a page. Sealed.
pub trait Listed: sealed::Listed {}

impl Listed for Contact {}
impl Listed for ContactSummary {}
impl Listed for Page {}

mod sealed {
    use super::{
        Contact, ContactStream, ContactSummary, Error, FullContactStream, Page, PageStream, Stream,
    };

    pub trait Listed: Sized + Send + 'static {
        type Stream: Stream<Item = Result<Self, Error>> + Unpin + Send + 'static;

        fn cursor(stream: &Self::Stream) -> Option<&str>;
    }

    impl Listed for Contact {
        type Stream = FullContactStream;

        fn cursor(stream: &FullContactStream) -> Option<&str> {
            stream.cursor()
        }
    }

    impl Listed for ContactSummary {
        type Stream = ContactStream;

        fn cursor(stream: &ContactStream) -> Option<&str> {
            stream.cursor()
        }
    }

    impl Listed for Page {
        type Stream = PageStream;

        fn cursor(stream: &PageStream) -> Option<&str> {
            stream.cursor()
        }
    }
}
