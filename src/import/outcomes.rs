use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_core::stream::FusedStream;

use super::error::ImportError;
use super::outcome::RowOutcome;
use super::report::ImportReport;
use super::row::ImportRow;
use super::runner::{Job, Runner};
use super::settled::Keep;
use crate::client::wait_for_items;

/// All rows of an import with their outcomes, in input order.
///
/// Created by [`Import::outcomes`](super::Import::outcomes). Batches are started while the stream is polled: a
/// slow reader slows the import down, and at most 10,000 rows with an outcome wait for it. The stream ends
/// when every row has an outcome, or when the import stops; [`finish`](Self::finish) tells which.
///
/// # Example: react to each row
///
/// ```
/// # #[cfg(feature = "mock")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), audience::Error> {
/// # let server = audience::mock::MockServer::start().await;
/// # let contacts = server.client().contacts();
/// use futures_util::StreamExt;
///
/// let mut outcomes = contacts.import(["ada@example.com", "no address"]).outcomes();
/// while let Some((row, outcome)) = outcomes.next().await {
///     if !outcome.is_applied() {
///         println!("{:?}: {outcome}", row.key_text());
///     }
/// }
/// let report = outcomes.finish()?;
/// assert_eq!((report.created(), report.refused()), (1, 1));
/// # Ok(()) }
/// # #[cfg(not(feature = "mock"))] fn main() {}
/// ```
#[must_use = "an import runs only while its outcomes are polled"]
pub struct Outcomes(State);

enum State {
    Starting(Pin<Box<dyn Future<Output = Result<Runner, ImportError>> + Send>>),
    Running {
        runner: Box<Runner>,
        has_ended: bool,
    },
    Failed(ImportError),
}

impl Outcomes {
    pub(super) fn new(job: Job) -> Self {
        Self(State::Starting(Box::pin(job.start(Keep::All))))
    }

    /// Returns the report. If the stream has not ended, the import is canceled, and its report counts what was
    /// done so far.
    ///
    /// # Errors
    ///
    /// [`ImportError`] if the import stopped before its end.
    pub fn finish(self) -> Result<ImportReport, ImportError> {
        match self.0 {
            State::Starting(_) => Ok(ImportReport::default()),
            State::Running { runner, .. } => runner.finish(),
            State::Failed(error) => Err(error),
        }
    }
}

wait_for_items!(Outcomes);

impl Stream for Outcomes {
    type Item = (ImportRow, RowOutcome);

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match &mut self.0 {
                State::Starting(start) => {
                    self.0 = match ready!(start.as_mut().poll(context)) {
                        Ok(runner) => State::Running {
                            runner: Box::new(runner),
                            has_ended: false,
                        },
                        Err(error) => State::Failed(error),
                    };
                }
                State::Running { runner, has_ended } => {
                    if let Some(settled) = runner.next_settled() {
                        return Poll::Ready(Some(settled));
                    }
                    if *has_ended {
                        return Poll::Ready(None);
                    }
                    *has_ended = !ready!(runner.poll_change(context));
                }
                State::Failed(_) => return Poll::Ready(None),
            }
        }
    }
}

impl FusedStream for Outcomes {
    fn is_terminated(&self) -> bool {
        match &self.0 {
            State::Starting(_) => false,
            State::Running { runner, has_ended } => *has_ended && !runner.has_settled(),
            State::Failed(_) => true,
        }
    }
}

impl fmt::Debug for Outcomes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outcomes").finish_non_exhaustive()
    }
}
