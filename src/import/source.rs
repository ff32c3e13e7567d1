use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;

use super::row::ImportRow;

/// Where the rows come from.
pub(super) enum Source {
    Iter(Box<dyn Iterator<Item = ImportRow> + Send>),
    Stream(Pin<Box<dyn Stream<Item = ImportRow> + Send>>),
}

impl Source {
    pub(super) fn from_iter<I>(rows: I) -> Self
    where
        I: IntoIterator<Item: Into<ImportRow> + 'static, IntoIter: Send + 'static>,
    {
        Self::Iter(Box::new(rows.into_iter().map(Into::into)))
    }

    pub(super) fn from_stream<S>(rows: S) -> Self
    where
        S: Stream<Item: Into<ImportRow>> + Send + 'static,
    {
        Self::Stream(Box::pin(Rows(Box::pin(rows))))
    }

    /// Returns a source that begins with these rows.
    pub(super) fn after(self, head: Vec<ImportRow>) -> Self {
        match self {
            Self::Iter(rows) => Self::Iter(Box::new(head.into_iter().chain(rows))),
            Self::Stream(rows) => Self::Stream(Box::pin(After {
                head: head.into_iter(),
                rows,
            })),
        }
    }

    /// Returns the number of rows, if the source knows it.
    pub(super) fn total(&self) -> Option<u64> {
        let (least, most) = match self {
            Self::Iter(rows) => rows.size_hint(),
            Self::Stream(rows) => rows.size_hint(),
        };
        (most == Some(least)).then_some(least as u64)
    }

    pub(super) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<ImportRow>> {
        match self {
            Self::Iter(rows) => Poll::Ready(rows.next()),
            Self::Stream(rows) => rows.as_mut().poll_next(context),
        }
    }
}

/// A stream of what converts to rows.
struct Rows<S>(Pin<Box<S>>);

impl<S: Stream<Item: Into<ImportRow>>> Stream for Rows<S> {
    type Item = ImportRow;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<ImportRow>> {
        self.0
            .as_mut()
            .poll_next(context)
            .map(|row| row.map(Into::into))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

/// Rows that were already read, and then the rest of the stream.
struct After {
    head: std::vec::IntoIter<ImportRow>,
    rows: Pin<Box<dyn Stream<Item = ImportRow> + Send>>,
}

impl Stream for After {
    type Item = ImportRow;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<ImportRow>> {
        match self.head.next() {
            Some(row) => Poll::Ready(Some(row)),
            None => self.rows.as_mut().poll_next(context),
        }
    }
}
