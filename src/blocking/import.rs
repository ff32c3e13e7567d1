use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::io::Write;
use std::iter::FusedIterator;
use std::pin::Pin;
use std::task::Poll;

use futures_core::Stream;

use super::runtime::Runtime;
use super::settings::call_settings;
use super::{Call, Contacts};
use crate::import::{Import, ImportError, ImportReport, ImportRow, Journal, Progress, RowOutcome};

/// How many rows are handed over from the client's thread at once.
const MAX_HANDED_OVER: usize = 1_000;

impl Contacts {
    /// Imports contacts, however many: see [`Contacts::import`](crate::contacts::Contacts::import).
    ///
    /// The rows are read on the client's thread, and progress is shown there. If the iterator or the function that
    /// shows progress panics, the import ends with an [`ErrorKind::Transport`](crate::ErrorKind::Transport), and the
    /// client can still be used.
    ///
    /// # Example: import a list of addresses
    ///
    /// ```
    /// # #[cfg(feature = "mock")]
    /// # fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::builder().start_blocking();
    /// # let client = audience::blocking::Client::new(server.url(), server.full_key())?;
    /// # let contacts = client.contacts();
    /// let report = contacts.import(["ada@example.com", "bob@example.com"]).send()?;
    ///
    /// assert_eq!(report.created(), 2);
    /// # Ok(()) }
    /// # #[cfg(not(feature = "mock"))] fn main() {}
    /// ```
    pub fn import<I>(&self, rows: I) -> Call<Import>
    where
        I: IntoIterator<Item: Into<ImportRow> + 'static, IntoIter: Send + 'static>,
    {
        Call::new(self.contacts.import(rows), self.runtime.clone())
    }
}

call_settings!(Import);

impl Call<Import> {
    /// Does the same as [`Import::max_in_flight`].
    pub fn max_in_flight(self, batches: usize) -> Self {
        self.map(|import| import.max_in_flight(batches))
    }

    /// Does the same as [`Import::stop_on_failure`].
    pub fn stop_on_failure(self) -> Self {
        self.map(Import::stop_on_failure)
    }

    /// Does the same as [`Import::stop_when`]. The future runs on the client's thread.
    pub fn stop_when(self, signal: impl Future<Output = ()> + Send + 'static) -> Self {
        self.map(|import| import.stop_when(signal))
    }

    /// Does the same as [`Import::dry_run`].
    pub fn dry_run(self) -> Self {
        self.map(Import::dry_run)
    }

    /// Does the same as [`Import::total`].
    pub fn total(self, rows: u64) -> Self {
        self.map(|import| import.total(rows))
    }

    /// Does the same as [`Import::journal`].
    pub fn journal(self, journal: Journal) -> Self {
        self.map(|import| import.journal(journal))
    }

    /// Does the same as [`Import::rejects`].
    pub fn rejects(self, file: impl Write + Send + 'static) -> Self {
        self.map(|import| import.rejects(file))
    }

    /// Does the same as [`Import::on_progress`].
    pub fn on_progress(self, show: impl FnMut(&Progress) + Send + 'static) -> Self {
        self.map(|import| import.on_progress(show))
    }

    /// Returns an iterator over all rows with their outcomes, in input order: see [`Import::outcomes`]. Batches
    /// are started while `next` is called.
    ///
    /// # Example: the rows that were not applied
    ///
    /// ```
    /// # #[cfg(feature = "mock")]
    /// # fn main() -> Result<(), audience::Error> {
    /// # let server = audience::mock::MockServer::builder().start_blocking();
    /// # let client = audience::blocking::Client::new(server.url(), server.full_key())?;
    /// # let contacts = client.contacts();
    /// let mut outcomes = contacts.import(["ada@example.com", "no address"]).outcomes();
    /// for (row, outcome) in &mut outcomes {
    ///     if !outcome.is_applied() {
    ///         println!("{:?}: {outcome}", row.line_number());
    ///     }
    /// }
    /// assert_eq!(outcomes.finish()?.refused(), 1);
    /// # Ok(()) }
    /// # #[cfg(not(feature = "mock"))] fn main() {}
    /// ```
    pub fn outcomes(self) -> Outcomes {
        Outcomes {
            state: Ok(self.call.outcomes()),
            ready: VecDeque::new(),
            has_ended: false,
            runtime: self.runtime,
        }
    }
}

/// An iterator over all rows of an import with their outcomes, in input order: see
/// [`Call::outcomes`](Call#method.outcomes).
///
/// It ends at once if it is used in async code, if the client's thread has stopped, or if the rows panic;
/// [`finish`](Self::finish) returns the error.
#[must_use = "an import runs only while `next` is called"]
pub struct Outcomes {
    state: Result<crate::import::Outcomes, ImportError>,
    ready: VecDeque<(ImportRow, RowOutcome)>,
    has_ended: bool,
    runtime: Runtime,
}

impl Outcomes {
    /// Returns the report. If the iterator has not ended, the import is canceled, and its report counts what was
    /// done so far.
    ///
    /// # Errors
    ///
    /// [`ImportError`] if the import stopped before its end.
    pub fn finish(self) -> Result<ImportReport, ImportError> {
        self.state?.finish()
    }

    /// Gets the next rows from the client's thread: at least one, unless the import has ended.
    fn fill(&mut self) -> Result<(), ImportError> {
        let lost = || crate::Error::transport("the client's thread has stopped").not_retryable();
        let mut outcomes = std::mem::replace(&mut self.state, Err(lost().into()))?;
        let work = async move {
            let mut rows = VecDeque::new();
            let has_ended = poll_fn(|context| {
                while rows.len() < MAX_HANDED_OVER {
                    match Pin::new(&mut outcomes).poll_next(context) {
                        Poll::Ready(Some(row)) => rows.push_back(row),
                        Poll::Ready(None) => return Poll::Ready(true),
                        Poll::Pending if rows.is_empty() => return Poll::Pending,
                        Poll::Pending => break,
                    }
                }
                Poll::Ready(false)
            })
            .await;
            (outcomes, rows, has_ended)
        };
        let (outcomes, rows, has_ended) = self.runtime.wait(work)?;
        (self.state, self.ready, self.has_ended) = (Ok(outcomes), rows, has_ended);
        Ok(())
    }
}

impl Iterator for Outcomes {
    type Item = (ImportRow, RowOutcome);

    fn next(&mut self) -> Option<Self::Item> {
        if self.ready.is_empty()
            && !self.has_ended
            && let Err(error) = self.fill()
        {
            self.has_ended = true;
            self.state = Err(error);
        }
        self.ready.pop_front()
    }
}

impl FusedIterator for Outcomes {}

impl fmt::Debug for Outcomes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outcomes").finish_non_exhaustive()
    }
}
