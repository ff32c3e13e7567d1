use std::fmt;
use std::iter::FusedIterator;
use std::pin::Pin;

use futures_core::Stream;

use super::Runtime;
use crate::Error;
use crate::contacts::{ContactStream, ContactSummary, Page, PageStream};

/// Contacts or pages of a list, fetched as they are asked for: what [`Call::iter`](super::Call::iter)
/// and [`Call::pages`](super::Call::pages) return.
///
/// After an error it can be asked again, and goes on from the same place; it ends where the streams
/// do ([`PageStream`]).
#[must_use = "an iterator fetches nothing unless asked"]
pub struct Iter<T: Listed> {
    /// Lent to the client's thread while an item is fetched.
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

    /// The cursor after the last item handed out: see [`ContactStream::cursor`].
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
        f.debug_struct("Iter")
            .field("cursor", &self.cursor())
            .finish_non_exhaustive()
    }
}

/// What a list can be walked by: contacts, or pages of them.
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
