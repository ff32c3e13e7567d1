use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;

use super::builder::{Import, Runner};
use super::error::ImportError;
use super::run::Keep;
use super::{ImportReport, ImportRow, RowOutcome};

/// All rows of an import with their outcomes, in input order.
///
/// Created by [`Import::outcomes`]. The import runs while the stream is polled. It ends when every row has
/// an outcome, or when the import stops; [`finish`](Self::finish) tells which.
#[must_use = "an import runs only while its outcomes are polled"]
pub struct Outcomes(State);

enum State {
    Working(Pin<Box<dyn Future<Output = Result<(Runner, bool), ImportError>> + Send>>),
    HandingOut(Box<Runner>, bool),
    Ended(Option<Result<ImportReport, ImportError>>),
}

impl Outcomes {
    pub(super) fn new(import: Import) -> Self {
        Self(State::Working(Box::pin(async move {
            let runner = Runner::start(import, Keep::All).await?;
            Ok((runner, true))
        })))
    }

    /// Returns the report. An import whose stream has not ended has not finished: its report counts what was
    /// done so far.
    ///
    /// # Errors
    ///
    /// [`ImportError`] if the import stopped before its end.
    pub fn finish(self) -> Result<ImportReport, ImportError> {
        match self.0 {
            State::Ended(Some(result)) => result,
            State::HandingOut(runner, _) => runner.finish(),
            State::Ended(None) | State::Working(_) => Ok(ImportReport::default()),
        }
    }
}

impl Stream for Outcomes {
    type Item = (ImportRow, RowOutcome);

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match &mut self.0 {
                State::Working(work) => {
                    self.0 = match ready!(work.as_mut().poll(context)) {
                        Ok((runner, goes_on)) => State::HandingOut(Box::new(runner), goes_on),
                        Err(error) => State::Ended(Some(Err(error))),
                    };
                }
                State::HandingOut(runner, goes_on) => {
                    if let Some(settled) = runner.run.next_settled() {
                        return Poll::Ready(Some(settled));
                    }
                    let goes_on = *goes_on;
                    let State::HandingOut(mut runner, _) =
                        std::mem::replace(&mut self.0, State::Ended(None))
                    else {
                        continue;
                    };
                    self.0 = match goes_on {
                        true => State::Working(Box::pin(async move {
                            let goes_on = runner.change().await;
                            Ok((*runner, goes_on))
                        })),
                        false => State::Ended(Some(runner.finish())),
                    };
                }
                State::Ended(_) => return Poll::Ready(None),
            }
        }
    }
}

impl fmt::Debug for Outcomes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outcomes").finish_non_exhaustive()
    }
}
