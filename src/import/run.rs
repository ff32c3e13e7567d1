//! Runs an import: reads rows, sends batches, and passes on the outcomes in input order.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::batch::{Sender, SentBatch, Stop};
use super::dry_run::DryRun;
use super::grouping::Grouping;
use super::in_flight::InFlightLimit;
use super::journal::{Resumed, ResumedRow, fingerprint};
use super::progress::Progress;
use super::row::{ImportRow, NumberedRow};
use super::source::Source;
use super::watch::{Shared, Watch};
use super::{ImportReport, RowOutcome};
use crate::{Error, ErrorCode};

/// The rows to read at one go before other tasks get a turn.
const MAX_READ: usize = 10_000;

/// The settings of a run.
pub(super) struct Settings {
    pub(super) max_in_flight: usize,
    pub(super) stop_on_failure: bool,
    pub(super) dry_run: bool,
    pub(super) total: Option<u64>,
    pub(super) keep: Keep,
    pub(super) stop_signal: Option<StopSignal>,
}

/// Ready when the caller asks the import to stop.
pub(super) type StopSignal = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Which rows to hand out with their outcomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    Nothing,
    NotApplied,
    All,
}

impl Keep {
    /// Returns how far reading may be ahead of the first row without an outcome.
    fn window(self) -> u64 {
        match self {
            Self::Nothing => u64::MAX,
            Self::NotApplied => 1_000_000,
            Self::All => 20_000,
        }
    }
}

/// An import that is running.
pub(super) struct Run {
    settings: Settings,
    source: Source,
    is_exhausted: bool,
    next_number: u64,
    grouping: Grouping,
    resumed: Option<Resumed>,
    sender: Sender,
    shared: Arc<Shared>,
    batches: JoinSet<(SentBatch, Arc<Watch>)>,
    /// The number of the first row of each batch in flight.
    first_rows: BTreeSet<u64>,
    /// Rows with their outcomes, to be handed out in order.
    settled: BTreeMap<u64, (ImportRow, RowOutcome)>,
    stop: Option<Stop>,
    dry_run: Option<DryRun>,
    report: ImportReport,
    resumed_rows: u64,
    started: Instant,
}

impl Run {
    pub(super) fn new(
        source: Source,
        resumed: Option<Resumed>,
        sender: Sender,
        settings: Settings,
    ) -> Self {
        let limit = InFlightLimit::new(settings.max_in_flight);
        Self {
            source,
            is_exhausted: false,
            next_number: 0,
            grouping: Grouping::default(),
            resumed,
            sender,
            shared: Arc::new(Shared::new(limit)),
            batches: JoinSet::new(),
            first_rows: BTreeSet::new(),
            settled: BTreeMap::new(),
            stop: None,
            dry_run: settings.dry_run.then(DryRun::default),
            report: ImportReport::default(),
            resumed_rows: 0,
            started: Instant::now(),
            settings,
        }
    }

    /// Goes on until something has changed. `None` when all rows have an outcome.
    pub(super) fn poll_change(&mut self, context: &mut Context<'_>) -> Poll<Option<()>> {
        self.poll_stop_signal(context);
        if self.dry_run.is_some() && self.stop.is_none() {
            return self.poll_dry_run(context);
        }
        self.shared.wake(context.waker());
        while self.can_start() {
            let reading = self.read(context);
            let batch = match self.may_take(reading) {
                true => self.grouping.take_batch(),
                false => Vec::new(),
            };
            if batch.is_empty() {
                if reading == Reading::Paused {
                    context.waker().wake_by_ref();
                }
                break;
            }
            self.start(batch);
        }
        match ready!(self.batches.poll_join_next(context)) {
            Some(Ok((sent, watch))) => {
                watch.finish();
                self.settle_batch(sent);
                Poll::Ready(Some(()))
            }
            Some(Err(error)) => {
                let stopped = Error::transport("the runtime stopped during the import");
                self.stop(Stop::Fatal(stopped.caused_by(error)));
                Poll::Ready(Some(()))
            }
            None if self.stop.is_some() => self.poll_rest(context),
            None if self.is_exhausted && self.grouping.pending() == 0 => Poll::Ready(None),
            None => Poll::Pending,
        }
    }

    fn poll_stop_signal(&mut self, context: &mut Context<'_>) {
        if let Some(signal) = &mut self.settings.stop_signal
            && signal.as_mut().poll(context).is_ready()
        {
            self.settings.stop_signal = None;
            self.stop(Stop::Asked);
        }
    }

    fn can_start(&self) -> bool {
        let limit = self.shared.limit(|limit| limit.current());
        self.stop.is_none() && self.batches.len() < limit
    }

    /// Reads rows until a batch is full, or no more rows can be read now.
    fn read(&mut self, context: &mut Context<'_>) -> Reading {
        let ahead = self.next_number.saturating_sub(self.first_unsettled());
        if ahead >= self.settings.keep.window() {
            return Reading::Blocked;
        }
        for _ in 0..MAX_READ {
            if self.is_exhausted || !self.grouping.needs_rows() || self.stop.is_some() {
                return Reading::Done;
            }
            match self.source.poll_next(context) {
                Poll::Ready(Some(row)) => self.accept(row),
                Poll::Ready(None) => self.is_exhausted = true,
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
            Reading::Blocked => self.batches.is_empty(),
        }
    }

    fn accept(&mut self, row: ImportRow) {
        let number = self.next_number;
        self.next_number += 1;
        if let Some(resumed) = &mut self.resumed {
            match resumed.row(number, || fingerprint(number, &row)) {
                ResumedRow::ToSend => {}
                ResumedRow::Finished(outcome) => {
                    self.resumed_rows += 1;
                    return self.settle(number, row, outcome);
                }
                ResumedRow::Mismatch => {
                    self.settle(number, row, RowOutcome::NotSent);
                    return self.stop(Stop::Fatal(other_rows()));
                }
            }
        }
        match check(&row) {
            Ok(()) => self.grouping.push(NumberedRow::new(number, row)),
            Err(message) => {
                let outcome = RowOutcome::Refused {
                    code: ErrorCode::from("invalid_row"),
                    message: Some(message),
                    retryable: false,
                };
                self.settle(number, row, outcome);
            }
        }
    }

    fn start(&mut self, batch: Vec<NumberedRow>) {
        let watch = Arc::new(Watch::new(self.shared.clone()));
        let sender = self.sender.clone();
        self.first_rows.extend(batch.first().map(|row| row.number));
        self.batches.spawn(async move {
            let sent = sender.send(batch, watch.clone()).await;
            (sent, watch)
        });
    }

    fn settle_batch(&mut self, sent: SentBatch) {
        if let Some((first, _)) = sent.rows.first() {
            self.first_rows.remove(&first.number);
        }
        let addresses = sent.rows.iter().map(|(row, _)| row.address.as_str());
        self.grouping.finish(addresses);
        for (row, outcome) in sent.rows {
            self.settle(row.number, row.row, outcome);
        }
        if let Some(stop) = sent.stop {
            self.stop(stop);
        }
    }

    fn settle(&mut self, number: u64, row: ImportRow, outcome: RowOutcome) {
        self.report.add(&outcome);
        let keeps = match self.settings.keep {
            Keep::Nothing => false,
            Keep::NotApplied => outcome.is_reject(),
            Keep::All => true,
        };
        if keeps {
            self.settled.insert(number, (row, outcome));
        }
    }

    fn stop(&mut self, stop: Stop) {
        match stop {
            Stop::Failure(error) if !self.settings.stop_on_failure => {
                self.report.note_failure(&error);
            }
            stop if self.stop.is_none() => {
                if let Stop::Failure(error) = &stop {
                    self.report.note_failure(error);
                }
                self.stop = Some(stop);
            }
            _ => {}
        }
    }

    /// Gives the rows after a stop their outcome.
    fn poll_rest(&mut self, context: &mut Context<'_>) -> Poll<Option<()>> {
        let pending: Vec<_> = self.grouping.take_pending().collect();
        for row in pending {
            self.settle(row.number, row.row, RowOutcome::NotSent);
        }
        if matches!(self.stop, Some(Stop::Fatal(_))) {
            self.is_exhausted = true;
        }
        for _ in 0..MAX_READ {
            if self.is_exhausted {
                return Poll::Ready(None);
            }
            match ready!(self.source.poll_next(context)) {
                Some(row) => self.accept(row),
                None => self.is_exhausted = true,
            }
            for row in self.grouping.take_pending().collect::<Vec<_>>() {
                self.settle(row.number, row.row, RowOutcome::NotSent);
            }
        }
        Poll::Ready(Some(()))
    }

    /// Checks rows instead of sending them.
    fn poll_dry_run(&mut self, context: &mut Context<'_>) -> Poll<Option<()>> {
        let Some(mut dry_run) = self.dry_run.take() else {
            return Poll::Ready(None);
        };
        let mut checked = 0;
        let polled = dry_run.poll_turn(context).is_ready().then(|| {
            loop {
                match self.source.poll_next(context) {
                    Poll::Ready(Some(row)) => {
                        let found = dry_run.check(&row);
                        if found.is_duplicate {
                            self.report.note_duplicate();
                        }
                        self.settle(self.next_number, row, found.outcome);
                        self.next_number += 1;
                        checked += 1;
                        if checked == MAX_READ {
                            break Poll::Ready(Some(()));
                        }
                    }
                    Poll::Ready(None) => break Poll::Ready(None),
                    Poll::Pending if checked > 0 => break Poll::Ready(Some(())),
                    Poll::Pending => break Poll::Pending,
                }
            }
        });
        self.dry_run = Some(dry_run);
        polled.unwrap_or(Poll::Pending)
    }

    /// Returns the number of the first row that has no outcome yet.
    fn first_unsettled(&self) -> u64 {
        let pending = self.grouping.first_pending();
        let in_flight = self.first_rows.first().copied();
        pending
            .into_iter()
            .chain(in_flight)
            .min()
            .unwrap_or(self.next_number)
    }

    /// Returns the next row in input order, if it has an outcome.
    pub(super) fn next_settled(&mut self) -> Option<(ImportRow, RowOutcome)> {
        let first_unsettled = self.first_unsettled();
        let entry = self.settled.first_entry()?;
        (*entry.key() < first_unsettled).then(|| entry.remove())
    }

    pub(super) fn progress(&self) -> Progress {
        Progress {
            finished: self.report.total(),
            resumed: self.resumed_rows,
            total: self.settings.total.or_else(|| self.known_total()),
            elapsed: self.started.elapsed(),
            in_flight: self.batches.len(),
            limit: self.shared.limit(|limit| limit.current()),
            retries: self.shared.retries(),
            waiting: self.shared.waiting(),
        }
    }

    fn known_total(&self) -> Option<u64> {
        match self.is_exhausted {
            true => Some(self.next_number),
            false => Some(self.next_number + self.source.total()?),
        }
    }

    /// Returns the report, and the error that stopped the import before its end, if there was one.
    pub(super) fn finish(self) -> (ImportReport, Option<Error>) {
        let is_shorter = self.stop.is_none() && self.resumed.is_some_and(|r| r.has_unread_rows());
        let error = match self.stop {
            Some(Stop::Fatal(error) | Stop::Failure(error)) => Some(error),
            Some(Stop::Quota | Stop::Asked) => None,
            None => is_shorter.then(other_rows),
        };
        (self.report, error)
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

/// Returns why a row cannot be sent.
fn check(row: &ImportRow) -> Result<(), String> {
    match (row.contact(), row.unreadable_reason()) {
        (Some(contact), _) => contact.check().map_err(|error| error.to_string()),
        (None, reason) => Err(reason.unwrap_or_default().to_owned()),
    }
}

fn other_rows() -> Error {
    Error::input(
        "the journal belongs to other rows; give the import the same rows, or choose another file for the journal",
    )
}
