//! The batches in flight, each in a task of its own.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::task::{self, JoinError, JoinSet};

use super::batch::{Sender, SentBatch};
use super::outcome::RowOutcome;
use super::row::NumberedRow;
use super::watch::{Shared, Watch};
use crate::Error;
use crate::client::in_current_span;

/// The batches in flight.
#[derive(Default)]
pub(super) struct InFlightBatches {
    tasks: JoinSet<SentBatch>,
    batches: HashMap<task::Id, Batch>,
    /// The number of the first row of each batch.
    first_rows: BTreeSet<u64>,
}

/// A batch in flight. Its rows are kept here too, because its task may panic.
struct Batch {
    rows: Arc<Vec<NumberedRow>>,
    watch: Arc<Watch>,
}

impl InFlightBatches {
    pub(super) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Returns the number of the first row in flight.
    pub(super) fn first_row(&self) -> Option<u64> {
        self.first_rows.first().copied()
    }

    /// Starts to send a batch.
    pub(super) fn start(&mut self, sender: &Sender, shared: &Arc<Shared>, batch: Vec<NumberedRow>) {
        self.first_rows.extend(batch.first().map(|row| row.number));
        let rows = Arc::new(batch);
        let watch = Arc::new(Watch::new(shared.clone()));
        let (sender, task_rows, task_watch) = (sender.clone(), rows.clone(), watch.clone());
        let work = async move { sender.send(&task_rows, &task_watch).await };
        let task = self.tasks.spawn(in_current_span(work));
        self.batches.insert(task.id(), Batch { rows, watch });
    }

    /// Waits until a batch has ended. `None` if none is in flight.
    pub(super) fn poll_ended(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<(Vec<NumberedRow>, SentBatch)>> {
        loop {
            let Some(ended) = ready!(self.tasks.poll_join_next_with_id(context)) else {
                return Poll::Ready(None);
            };
            let (id, sent) = match ended {
                Ok((id, sent)) => (id, Ok(sent)),
                Err(error) => (error.id(), Err(error)),
            };
            let Some(Batch { rows, watch }) = self.batches.remove(&id) else {
                continue;
            };
            if let Some(first) = rows.first() {
                self.first_rows.remove(&first.number);
            }
            let sent = sent.unwrap_or_else(|error| lost(&rows, error));
            watch.finish(sent.stop.is_some());
            return Poll::Ready(Some((Arc::unwrap_or_clone(rows), sent)));
        }
    }
}

/// Returns the result of a batch whose task ended without one.
fn lost(rows: &[NumberedRow], error: JoinError) -> SentBatch {
    let message = match error.is_panic() {
        true => "a task of the import panicked",
        false => "the runtime stopped during the import",
    };
    let error = Error::transport(message).caused_by(error);
    SentBatch::stopped(rows, RowOutcome::Unknown, error)
}
