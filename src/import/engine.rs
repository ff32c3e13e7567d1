//! Runs an import: reads rows, sends batches, and passes on the outcomes in input order.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::task::{self, JoinError, JoinSet};
use tokio::time::Instant;

use super::batch::{Sender, SentBatch, Stop, is_final};
use super::dry_run::DryRun;
use super::grouping::Grouping;
use super::journal::{Resumed, ResumedRow, fingerprint_of};
use super::pace::{Pace, Watch};
use super::report::{ImportError, ImportReport, RowOutcome};
use super::row::{ImportRow, NumberedRow, Source};
use crate::client::in_current_span;
use crate::{Error, ErrorCode};

/// The rows to read at one go before other tasks get a turn.
const MAX_READ: usize = 1_000;

/// The settings of an import that do not change while it runs, but for the signal, which ends.
pub(super) struct Settings {
    pub(super) concurrency: usize,
    pub(super) stop_on_failure: bool,
    /// Ready when the caller asks the import to stop.
    pub(super) stop_signal: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    pub(super) dry_run: bool,
    pub(super) total: Option<u64>,
    pub(super) on_progress: Option<OnProgress>,
}

type OnProgress = Box<dyn FnMut(&Progress) + Send>;

/// How far an import is: enough to draw a progress bar.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Progress {
    finished: u64,
    resumed: u64,
    total: Option<u64>,
    elapsed: Duration,
    in_flight: usize,
    limit: usize,
    retries: u64,
    waiting: usize,
}

impl Progress {
    /// Returns how many rows have an outcome, those of a resumed journal included.
    #[must_use]
    pub fn finished(&self) -> u64 {
        self.finished
    }

    /// Returns how many of the finished rows come from the journal of an earlier run.
    #[must_use]
    pub fn resumed(&self) -> u64 {
        self.resumed
    }

    /// Returns how many rows there are, if the iterator or [`total`](super::Import::total) says so.
    #[must_use]
    pub fn total(&self) -> Option<u64> {
        self.total
    }

    /// Returns how many rows per second this run has finished; 0 before the first one.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a rate is not exact")]
    pub fn rate(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 {
            (self.finished - self.resumed) as f64 / seconds
        } else {
            0.0
        }
    }

    /// Returns how long the rest takes at this rate. `None` if the total is not known, or before this run has
    /// finished a row.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "an estimate is not exact")]
    pub fn remaining(&self) -> Option<Duration> {
        let left = self.total?.saturating_sub(self.finished);
        Duration::try_from_secs_f64(left as f64 / self.rate()).ok()
    }

    /// Returns how long this run has taken so far.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// Returns how many batches are in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Returns how many batches may be in flight now. It follows what the service can take.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Returns how many requests were retried.
    #[must_use]
    pub fn retries(&self) -> u64 {
        self.retries
    }

    /// Returns how many requests are waiting before their next attempt, because the service asked for it or failed.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting
    }
}

/// An import that is running.
pub(super) struct Run {
    settings: Settings,
    source: Source,
    next_number: u64,
    grouping: Grouping,
    checks: Checks,
    sender: Sender,
    pace: Arc<Pace>,
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
        Self {
            checks: Checks::new(resumed, settings.dry_run),
            source,
            next_number: 0,
            grouping: Grouping::default(),
            sender,
            pace: Arc::new(Pace::new(settings.concurrency)),
            settings,
            batches: InFlightBatches::default(),
            settled: Settled::new(keep),
            stop: None,
            is_cut_off: false,
            has_changed: false,
            yields: false,
            started: Instant::now(),
        }
    }

    /// Runs until something has changed, and shows the progress. Returns whether there is more to do.
    ///
    /// Take all [settled](Self::next_settled) rows before the next call.
    pub(super) fn poll_change(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        let has_more = ready!(self.poll_step(context));
        if let Some(mut show) = self.settings.on_progress.take() {
            show(&self.progress());
            self.settings.on_progress = Some(show);
        }
        Poll::Ready(has_more)
    }

    fn poll_step(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        if std::mem::take(&mut self.yields) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.pace.set_waker(context.waker());
        self.poll_stop_signal(context);
        self.start_batches(context);
        match self.batches.poll_ended(context) {
            Poll::Ready(Some((rows, sent))) => self.settle_batch(rows, sent),
            Poll::Ready(None) if self.stop.is_some() => self.read_rest(context),
            Poll::Ready(None) | Poll::Pending => {}
        }
        if self.is_finished() {
            return Poll::Ready(false);
        }
        let is_waiting_changed = self.pace.take_changed();
        match std::mem::take(&mut self.has_changed) || is_waiting_changed {
            true => Poll::Ready(true),
            false => Poll::Pending,
        }
    }

    fn poll_stop_signal(&mut self, context: &mut Context<'_>) {
        if let Some(signal) = &mut self.settings.stop_signal
            && signal.as_mut().poll(context).is_ready()
        {
            self.settings.stop_signal = None;
            self.pace.stop_waiting();
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
            self.batches.start(&self.sender, &self.pace, batch);
        }
    }

    fn can_start(&self) -> bool {
        let limit = self.pace.limit();
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

    fn progress(&self) -> Progress {
        let left = || Some(self.next_number.saturating_add(self.source.total()?));
        Progress {
            finished: self.settled.report.total(),
            resumed: self.checks.resumed_rows(),
            total: self.settings.total.or_else(left),
            elapsed: self.started.elapsed(),
            in_flight: self.batches.len(),
            limit: self.pace.limit(),
            retries: self.pace.retries(),
            waiting: self.pace.waiting(),
        }
    }

    /// Returns the report: of the whole import, or of what was done so far.
    pub(super) fn finish(self) -> Result<ImportReport, ImportError> {
        let has_ended = self.source.has_ended() && self.stop.is_none();
        let is_shorter = has_ended && self.checks.has_unread_rows();
        let error = match self.stop {
            Some(Stop::Fatal(error) | Stop::Failure(error)) => Some(error),
            Some(Stop::Quota | Stop::Asked) => None,
            None if self.is_cut_off => Some(cut_off()),
            None => is_shorter.then(other_rows),
        };
        match error {
            None => Ok(self.settled.report),
            Some(error) => Err(ImportError::new(self.settled.report, error)),
        }
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

/// How many rows may be kept before no more are read.
const MAX_KEPT: usize = 10_000;

/// Which rows to hand out with their outcomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    Nothing,
    Rejects,
    All,
}

/// The rows that have an outcome.
#[derive(Debug)]
struct Settled {
    keep: Keep,
    rows: BTreeMap<u64, (ImportRow, RowOutcome)>,
    report: ImportReport,
}

impl Settled {
    fn new(keep: Keep) -> Self {
        Self {
            keep,
            rows: BTreeMap::new(),
            report: ImportReport::default(),
        }
    }

    /// Adds the outcome of a row.
    fn add(&mut self, number: u64, row: ImportRow, outcome: RowOutcome) {
        self.report.add(&outcome);
        let keeps = match self.keep {
            Keep::Nothing => false,
            Keep::Rejects => outcome.is_reject(),
            Keep::All => true,
        };
        if keeps {
            self.rows.insert(number, (row, outcome));
        }
    }

    /// Returns whether so many rows wait for an earlier one that no more should be read.
    fn is_full(&self) -> bool {
        self.rows.len() >= MAX_KEPT
    }

    fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Takes the first row, if its number is below this one.
    fn take_first(&mut self, end: u64) -> Option<(ImportRow, RowOutcome)> {
        let entry = self.rows.first_entry()?;
        (*entry.key() < end).then(|| entry.remove())
    }
}

/// What decides about rows: the journal of an earlier run, or the checks of a dry run.
#[derive(Debug)]
struct Checks {
    resumed: Option<Resumed>,
    resumed_rows: u64,
    dry_run: Option<DryRun>,
}

/// What happens to a row.
#[derive(Debug)]
enum Verdict {
    /// It is sent.
    Send,
    /// It has this outcome.
    Settle(RowOutcome),
    /// It is valid, and so is an earlier row with its address.
    Duplicate,
    /// The journal belongs to other rows.
    Mismatch,
}

impl Checks {
    fn new(resumed: Option<Resumed>, is_dry_run: bool) -> Self {
        Self {
            resumed,
            resumed_rows: 0,
            dry_run: is_dry_run.then(DryRun::default),
        }
    }

    /// Decides about the next row. A dry run that has stopped checks no more rows.
    fn check(&mut self, number: u64, row: &ImportRow, has_stopped: bool) -> Verdict {
        if let Some(dry_run) = self.dry_run.as_mut().filter(|_| !has_stopped) {
            return match dry_run.check(row) {
                (_, true) => Verdict::Duplicate,
                (outcome, false) => Verdict::Settle(outcome),
            };
        }
        if let Some(resumed) = &mut self.resumed {
            match resumed.row(number, || fingerprint_of([(number, row)])) {
                ResumedRow::ToSend => {}
                ResumedRow::Finished(outcome) => {
                    self.resumed_rows += 1;
                    return Verdict::Settle(outcome);
                }
                ResumedRow::Mismatch => return Verdict::Mismatch,
            }
        }
        match row.problem() {
            None => Verdict::Send,
            Some(message) => Verdict::Settle(RowOutcome::Refused {
                code: ErrorCode::from("invalid_row"),
                message: Some(message),
                retryable: false,
            }),
        }
    }

    /// Returns how many rows the journal knew.
    fn resumed_rows(&self) -> u64 {
        self.resumed_rows
    }

    /// Returns whether the journal knows rows that were not read.
    fn has_unread_rows(&self) -> bool {
        self.resumed.as_ref().is_some_and(Resumed::has_unread_rows)
    }
}

/// The batches in flight.
#[derive(Default)]
struct InFlightBatches {
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
    fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Returns the number of the first row in flight.
    fn first_row(&self) -> Option<u64> {
        self.first_rows.first().copied()
    }

    /// Starts to send a batch.
    fn start(&mut self, sender: &Sender, pace: &Arc<Pace>, batch: Vec<NumberedRow>) {
        self.first_rows.extend(batch.first().map(|row| row.number));
        let rows = Arc::new(batch);
        let watch = Arc::new(Watch::new(pace.clone()));
        let (sender, task_rows, task_watch) = (sender.clone(), rows.clone(), watch.clone());
        let work = async move { sender.send(&task_rows, &task_watch).await };
        let task = self.tasks.spawn(in_current_span(work));
        self.batches.insert(task.id(), Batch { rows, watch });
    }

    /// Waits until a batch has ended. `None` if none is in flight.
    fn poll_ended(
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
