use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;

use super::row::ImportRow;

/// Where the rows come from.
pub(super) struct Source {
    rows: Rows,
    /// Rows that were read in advance, to be read again.
    head: std::vec::IntoIter<ImportRow>,
    /// Whether the last row was read. An iterator or a stream must not be asked after its end.
    has_ended: bool,
}

enum Rows {
    Iter(Box<dyn Iterator<Item = ImportRow> + Send>),
    Stream(Pin<Box<dyn Stream<Item = ImportRow> + Send>>),
}

impl Source {
    pub(super) fn from_iter<I>(rows: I) -> Self
    where
        I: IntoIterator<Item: Into<ImportRow> + 'static, IntoIter: Send + 'static>,
    {
        Self::new(Rows::Iter(Box::new(rows.into_iter().map(Into::into))))
    }

    pub(super) fn from_stream<S>(rows: S) -> Self
    where
        S: Stream<Item: Into<ImportRow>> + Send + 'static,
    {
        Self::new(Rows::Stream(Box::pin(Converted(Box::pin(rows)))))
    }

    fn new(rows: Rows) -> Self {
        Self {
            rows,
            head: Vec::new().into_iter(),
            has_ended: false,
        }
    }

    /// Puts back the rows that were read first.
    pub(super) fn put_back(&mut self, head: Vec<ImportRow>) {
        self.head = head.into_iter();
    }

    /// Returns whether the last row was read.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended && self.head.len() == 0
    }

    /// Returns the number of rows that are left, if the source knows it.
    pub(super) fn total(&self) -> Option<u64> {
        let (least, most) = match &self.rows {
            _ if self.has_ended => (0, Some(0)),
            Rows::Iter(rows) => rows.size_hint(),
            Rows::Stream(rows) => rows.size_hint(),
        };
        (most == Some(least)).then_some((least as u64).saturating_add(self.head.len() as u64))
    }

    pub(super) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<ImportRow>> {
        if let Some(row) = self.head.next() {
            return Poll::Ready(Some(row));
        }
        if self.has_ended {
            return Poll::Ready(None);
        }
        let next = match &mut self.rows {
            Rows::Iter(rows) => Poll::Ready(rows.next()),
            Rows::Stream(rows) => rows.as_mut().poll_next(context),
        };
        self.has_ended = matches!(next, Poll::Ready(None));
        next
    }
}

/// A stream of rows, from a stream of what converts to them.
struct Converted<S>(Pin<Box<S>>);

impl<S: Stream<Item: Into<ImportRow>>> Stream for Converted<S> {
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
