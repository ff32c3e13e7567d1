//! Runs an import: reads rows, sends batches, and passes on the outcomes in input order.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::time::Instant;

use super::batch::{Sender, SentBatch};
use super::checks::{Checks, Verdict};
use super::grouping::Grouping;
use super::in_flight::InFlightLimit;
use super::in_flight_batches::InFlightBatches;
use super::journal::Resumed;
use super::outcome::RowOutcome;
use super::progress::Progress;
use super::report::ImportReport;
use super::row::{ImportRow, NumberedRow};
use super::row_results::{Stop, is_final};
use super::settled::{Keep, Settled};
use super::source::Source;
use super::watch::Shared;
use crate::Error;

/// The rows to read at one go before other tasks get a turn.
const MAX_READ: usize = 1_000;

/// The settings of a run.
pub(super) struct Settings {
    pub(super) max_in_flight: usize,
    pub(super) stop_on_failure: bool,
    pub(super) stop_signal: Option<StopSignal>,
    pub(super) dry_run: bool,
    pub(super) total: Option<u64>,
}

/// Ready when the caller asks the import to stop.
pub(super) type StopSignal = Pin<Box<dyn Future<Output = ()> + Send>>;

/// An import that is running.
pub(super) struct Run {
    settings: Settings,
    source: Source,
    next_number: u64,
    grouping: Grouping,
    checks: Checks,
    sender: Sender,
    shared: Arc<Shared>,
    batches: InFlightBatches,
    settled: Settled,
    stop: Option<Stop>,
    /// Whether the input could not be read to its end.
    is_cut_off: bool,
    /// Whether something has changed since `poll_change` last said so.
    has_changed: bool,
    /// Whether other tasks get a turn before the next step.
    yields: bool,
    started: Instant,
}

impl Run {
    pub(super) fn new(
        source: Source,
        resumed: Option<Resumed>,
        sender: Sender,
        settings: Settings,
        keep: Keep,
    ) -> Self {
        let limit = InFlightLimit::new(settings.max_in_flight);
        Self {
            checks: Checks::new(resumed, settings.dry_run),
            settings,
            source,
            next_number: 0,
            grouping: Grouping::default(),
            sender,
            shared: Arc::new(Shared::new(limit)),
            batches: InFlightBatches::default(),
            settled: Settled::new(keep),
            stop: None,
            is_cut_off: false,
            has_changed: false,
            yields: false,
            started: Instant::now(),
        }
    }

    /// Goes on until something has changed. `None` when all rows have an outcome.
    pub(super) fn poll_change(&mut self, context: &mut Context<'_>) -> Poll<Option<()>> {
        if std::mem::take(&mut self.yields) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.shared.set_waker(context.waker());
        self.poll_stop_signal(context);
        self.start_batches(context);
        match self.batches.poll_ended(context) {
            Poll::Ready(Some((rows, sent))) => self.settle_batch(rows, sent),
            Poll::Ready(None) if self.stop.is_some() => self.read_rest(context),
            Poll::Ready(None) | Poll::Pending => {}
        }
        if self.is_finished() {
            return Poll::Ready(None);
        }
        let is_waiting_changed = self.shared.take_changed();
        match std::mem::take(&mut self.has_changed) || is_waiting_changed {
            true => Poll::Ready(Some(())),
            false => Poll::Pending,
        }
    }

    fn poll_stop_signal(&mut self, context: &mut Context<'_>) {
        if let Some(signal) = &mut self.settings.stop_signal
            && signal.as_mut().poll(context).is_ready()
        {
            self.settings.stop_signal = None;
            self.shared.stop_waiting();
            self.stop(Stop::Asked);
        }
    }

    fn is_finished(&self) -> bool {
        let reads_more = !self.source.has_ended() && !self.is_fatal();
        !reads_more && self.batches.len() == 0 && self.grouping.pending() == 0
    }

    fn is_fatal(&self) -> bool {
        matches!(self.stop, Some(Stop::Fatal(_)))
    }

    /// Starts as many batches as may run and as there are rows for.
    fn start_batches(&mut self, context: &mut Context<'_>) {
        while self.can_start() {
            let reading = self.read(context);
            if reading == Reading::Paused {
                self.pause();
            }
            // Reading may have found out that the journal belongs to other rows.
            if !self.may_take(reading) || !self.can_start() {
                return;
            }
            let batch = self.grouping.take_batch();
            if batch.is_empty() {
                return;
            }
            self.batches.start(&self.sender, &self.shared, batch);
        }
    }

    fn can_start(&self) -> bool {
        let limit = self.shared.limit(|limit| limit.current());
        self.stop.is_none() && self.batches.len() < limit
    }

    /// Reads rows until a batch is full, or no more rows can be read now.
    fn read(&mut self, context: &mut Context<'_>) -> Reading {
        for _ in 0..MAX_READ {
            if !self.grouping.needs_rows() || self.stop.is_some() {
                return Reading::Done;
            }
            if self.settled.is_full() {
                return Reading::Blocked;
            }
            match self.source.poll_next(context) {
                Poll::Ready(Some(row)) => self.accept(row),
                Poll::Ready(None) => return Reading::Done,
                Poll::Pending => return Reading::Blocked,
            }
        }
        Reading::Paused
    }

    /// Returns whether to take a batch, even if it is not full.
    fn may_take(&self, reading: Reading) -> bool {
        match reading {
            Reading::Done => true,
            Reading::Paused => false,
            // A slow stream must not keep the rows that it has already given.
            Reading::Blocked => self.batches.len() == 0,
        }
    }

    /// Lets the caller hand out what is settled, and other tasks run, before the next step.
    fn pause(&mut self) {
        self.has_changed = true;
        self.yields = true;
    }

    fn accept(&mut self, row: ImportRow) {
        let number = self.next_number;
        self.next_number += 1;
        self.is_cut_off |= row.is_cut_off();
        match self.checks.check(number, &row, self.stop.is_some()) {
            Verdict::Send => {}
            Verdict::Duplicate => {
                self.settled.report.note_duplicate();
                return self.settle(number, row, RowOutcome::Valid);
            }
            Verdict::Settle(outcome) => return self.settle(number, row, outcome),
            Verdict::Mismatch => {
                self.settle(number, row, RowOutcome::NotSent);
                return self.stop(Stop::Fatal(other_rows()));
            }
        }
        let row = NumberedRow::new(number, row);
        match self.grouping.is_given_up(&row) {
            true => self.settle(number, row.row, RowOutcome::NotSent),
            false => self.grouping.push(row),
        }
    }

    fn settle_batch(&mut self, rows: Vec<NumberedRow>, sent: SentBatch) {
        let SentBatch { outcomes, stop } = sent;
        self.grouping
            .finish(rows.iter().map(|row| row.address.as_str()));
        for (row, outcome) in rows.into_iter().zip(outcomes) {
            if !is_final(&row, &outcome, stop.as_ref()) {
                for later in self.grouping.give_up(&row.address) {
                    self.settle(later.number, later.row, RowOutcome::NotSent);
                }
            }
            self.settle(row.number, row.row, outcome);
        }
        if let Some(stop) = stop {
            self.stop(stop);
        }
    }

    fn settle(&mut self, number: u64, row: ImportRow, outcome: RowOutcome) {
        self.settled.add(number, row, outcome);
        self.has_changed = true;
    }

    fn stop(&mut self, stop: Stop) {
        if let Stop::Failure(error) = &stop {
            self.settled.report.note_failure(error);
            if !self.settings.stop_on_failure {
                return;
            }
        }
        if self.stop.is_none() || matches!(stop, Stop::Fatal(_)) && !self.is_fatal() {
            self.stop = Some(stop);
        }
    }

    /// Gives the rows after a stop their outcome.
    fn read_rest(&mut self, context: &mut Context<'_>) {
        self.give_pending_back();
        for _ in 0..MAX_READ {
            if self.is_fatal() || self.settled.is_full() {
                return;
            }
            match self.source.poll_next(context) {
                Poll::Ready(Some(row)) => self.accept(row),
                Poll::Ready(None) | Poll::Pending => return,
            }
            self.give_pending_back();
        }
        self.pause();
    }

    fn give_pending_back(&mut self) {
        for row in self.grouping.take_pending().collect::<Vec<_>>() {
            self.settle(row.number, row.row, RowOutcome::NotSent);
        }
    }

    /// Returns the number of the first row that has no outcome yet.
    fn first_unsettled(&self) -> u64 {
        let pending = self.grouping.first_pending();
        let in_flight = self.batches.first_row();
        pending
            .into_iter()
            .chain(in_flight)
            .min()
            .unwrap_or(self.next_number)
    }

    /// Returns the next row in input order, if it has an outcome.
    pub(super) fn next_settled(&mut self) -> Option<(ImportRow, RowOutcome)> {
        let end = self.first_unsettled();
        self.settled.take_first(end)
    }

    pub(super) fn has_settled(&self) -> bool {
        !self.settled.is_empty()
    }

    pub(super) fn progress(&self) -> Progress {
        let left = || Some(self.next_number.saturating_add(self.source.total()?));
        Progress {
            finished: self.settled.report.total(),
            resumed: self.checks.resumed_rows(),
            total: self.settings.total.or_else(left),
            elapsed: self.started.elapsed(),
            in_flight: self.batches.len(),
            limit: self.shared.limit(|limit| limit.current()),
            retries: self.shared.retries(),
            waiting: self.shared.waiting(),
        }
    }

    /// Returns the report, and the error that stopped the import before its end, if there was one.
    pub(super) fn finish(self) -> (ImportReport, Option<Error>) {
        let has_ended = self.source.has_ended() && self.stop.is_none();
        let is_shorter = has_ended && self.checks.has_unread_rows();
        let error = match self.stop {
            Some(Stop::Fatal(error) | Stop::Failure(error)) => Some(error),
            Some(Stop::Quota | Stop::Asked) => None,
            None if self.is_cut_off => Some(cut_off()),
            None => is_shorter.then(other_rows),
        };
        (self.settled.report, error)
    }
}

/// Why reading rows has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    /// A batch is full, or there are no more rows.
    Done,
    /// Other tasks should run first.
    Paused,
    /// The next row is not there yet, or too many rows wait for an earlier one.
    Blocked,
}

fn cut_off() -> Error {
    Error::input(
        "the input could not be read to its end, so the rows after the last reject are missing; mend the input and import it again",
    )
}

fn other_rows() -> Error {
    Error::input(
        "the journal belongs to other rows; give the import the same rows, or choose another file for the journal",
    )
}
