use std::fmt;
use std::iter::FusedIterator;
use std::pin::Pin;

use futures_core::Stream;

use super::runtime::Runtime;
use crate::Error;
use crate::contacts::{ContactStream, ContactSummary, Page, PageStream};

/// An iterator over the contacts or pages of a list: see [`Call::iter`](super::Call::iter) and
/// [`Call::pages`](super::Call::pages).
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

    /// Returns the cursor after the last item returned: see [`ContactStream::cursor`].
    #[must_use]
    pub fn cursor(&self) -> Option<&str> {
        self.stream.as_ref().and_then(T::cursor)
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

/// An item of an [`Iter`]: a contact or a page. Sealed.
pub trait Listed: sealed::Listed {}

impl Listed for ContactSummary {}
impl Listed for Page {}

mod sealed {
    use super::{ContactStream, ContactSummary, Error, Page, PageStream, Stream};

    pub trait Listed: Sized + Send + 'static {
        type Stream: Stream<Item = Result<Self, Error>> + Unpin + Send + 'static;

        fn cursor(stream: &Self::Stream) -> Option<&str>;
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
