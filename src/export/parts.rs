//! Reads a list in parts, each as the lines of a file.

use std::future::poll_fn;
use std::pin::Pin;

use futures_core::Stream;
use futures_core::stream::FusedStream;

use super::format::Format;
use crate::Error;
use crate::contacts::{FullContactStream, ListContacts, PageStream};

/// How many full contacts are in a part at the most. A crash loses the work on one part.
const FULL_CONTACTS: u64 = 50;

/// The lines of some contacts that follow each other.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) lines: String,
    /// The cursor after the contacts.
    pub(super) cursor: Option<String>,
    pub(super) contacts: u64,
    pub(super) vanished: u64,
    /// The errors of malformed contacts.
    pub(super) malformed: Vec<Error>,
}

/// The parts of a list.
pub(super) struct Parts {
    source: Source,
    format: Format,
    /// Why the part before ended early.
    failed: Option<Error>,
}

enum Source {
    Pages(PageStream),
    Full(Box<FullContactStream>),
}

impl Parts {
    /// Reads a list page by page.
    pub(super) fn pages(list: ListContacts, format: Format) -> Self {
        Self {
            source: Source::Pages(list.pages().prefetch()),
            format,
            failed: None,
        }
    }

    /// Reads contacts in full.
    pub(super) fn full(contacts: FullContactStream, format: Format) -> Self {
        Self {
            source: Source::Full(Box::new(contacts)),
            format,
            failed: None,
        }
    }

    /// Returns the next part, or `None` at the end of the list. After an error, the next call tries again,
    /// unless the list [has ended](Self::has_ended).
    pub(super) async fn next(&mut self) -> Option<Result<Part, Error>> {
        match &mut self.source {
            Source::Pages(pages) => next_page(pages, &self.format).await,
            Source::Full(stream) => match self.failed.take() {
                Some(error) => Some(Err(error)),
                None => next_full(stream, &self.format, &mut self.failed).await,
            },
        }
    }

    /// Returns whether there are no more parts.
    pub(super) fn has_ended(&self) -> bool {
        match &self.source {
            Source::Pages(pages) => pages.is_terminated(),
            Source::Full(stream) => stream.is_terminated() && self.failed.is_none(),
        }
    }
}

async fn next_page(pages: &mut PageStream, format: &Format) -> Option<Result<Part, Error>> {
    let page = match next(pages).await? {
        Ok(page) => page,
        Err(error) => return Some(Err(error)),
    };
    Some(Ok(Part {
        lines: page
            .data
            .iter()
            .map(|contact| format.line(contact))
            .collect(),
        cursor: pages.cursor().map(str::to_owned),
        contacts: page.data.len() as u64,
        vanished: 0,
        malformed: page.malformed().map(|(_, error)| error).collect(),
    }))
}

async fn next_full(
    stream: &mut FullContactStream,
    format: &Format,
    failed: &mut Option<Error>,
) -> Option<Result<Part, Error>> {
    let mut part = Part::default();
    let vanished = stream.vanished();
    while part.contacts < FULL_CONTACTS {
        let malformed = stream.malformed();
        match next(stream).await {
            Some(Ok(contact)) => {
                part.lines.push_str(&format.line(&contact));
                part.contacts += 1;
            }
            Some(Err(error)) if stream.malformed() > malformed => part.malformed.push(error),
            Some(Err(error)) => {
                *failed = Some(error);
                break;
            }
            None => break,
        }
    }
    part.cursor = stream.cursor().map(str::to_owned);
    part.vanished = stream.vanished() - vanished;
    let is_empty = part.contacts == 0 && part.vanished == 0 && part.malformed.is_empty();
    match is_empty {
        false => Some(Ok(part)),
        true => failed.take().map(Err),
    }
}

/// Returns the next item of a stream.
pub(super) async fn next<S: Stream + Unpin>(stream: &mut S) -> Option<S::Item> {
    poll_fn(|context| Pin::new(&mut *stream).poll_next(context)).await
}
