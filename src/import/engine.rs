//! Runs an import: reads rows, sends batches, and passes on the outcomes in input order.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::task::{self, JoinError, JoinSet};
use tokio::time::{Instant, Sleep};

use super::batch::{ListedAddresses, Sender, SentBatch, Stop};
use super::journal::{JournalWriter, Resumed, ResumedRow, fingerprint_of};
use super::pace::{Pace, Watch};
use super::report::{ImportError, ImportReport, RowOutcome};
use super::row::{
    AddressHash, AddressSet, ImportRow, NumberedRow, OptOutsLeft, Source, TaskKind, ToDo,
};
use crate::address::address_problem;
use crate::client::in_current_span;
use crate::contacts::{MAX_BATCH, NewContact, PropertyValue, normalized_address};
use crate::signals::StopSignal;
use crate::sync::lock;
use crate::{Error, ErrorCode, ErrorKind};

/// How many rows to read before other tasks get a turn.
const MAX_READ: usize = 1_000;

/// How often the progress is shown if nothing changes, such as during a long wait.
const SHOW_INTERVAL: Duration = Duration::from_secs(1);

/// The settings of an import. While it runs, only the signal changes: it ends.
pub(super) struct Settings {
    pub(super) concurrency: usize,
    pub(super) stop_on_failure: bool,
    /// Whether to stop when the plan allows no more contacts. A sync has other work then.
    pub(super) stop_at_ceiling: bool,
    /// Ready when the caller asks the import to stop.
    pub(super) stop_signal: Option<StopSignal>,
    pub(super) work: Work,
    pub(super) dry_run: Arc<Mutex<DryRun>>,
    pub(super) total: Option<u64>,
    pub(super) on_progress: Option<OnProgress>,
}

/// What a run does with its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Send,
    /// Checks the rows without a request.
    DryRun,
    /// Looks whether the service has the contacts of the rows, and their opt-outs.
    Verify,
}

impl Work {
    /// Returns the report of such a run before its first row.
    pub(super) fn report(self) -> ImportReport {
        let mut report = ImportReport::default();
        if self == Self::Verify {
            report.note_verification();
        }
        report
    }

    /// Creates the error of a run that has failed before its first row.
    pub(super) fn not_started(self, error: Error) -> ImportError {
        ImportError::new(self.report(), error)
    }
}

pub(super) type OnProgress = Box<dyn FnMut(&Progress) + Send>;

/// The progress of an import, for a progress bar or a log: see [`Import::on_progress`](super::Import::on_progress).
///
/// Its `Display` is a line for a log: `12000 of 22500 rows, 310/s, 33 s left`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Progress {
    finished: u64,
    resumed: u64,
    /// The rows that this run itself has finished, without those that it did not send.
    handled: u64,
    /// The time since the first row that no earlier run has finished.
    handling: Duration,
    total: Option<u64>,
    elapsed: Duration,
    in_flight: usize,
    limit: usize,
    retries: u64,
    waiting: usize,
    /// Whether the run starts no more batches, so that the remaining rows are left to another run.
    has_stopped: bool,
}

impl Progress {
    /// Returns how many rows were applied, refused or otherwise finished, including the rows that were finished in an
    /// earlier run. In a dry run, it is the number of rows that were checked.
    ///
    /// A row counts once its opt-outs were sent, each of which takes a request or two. Rows that were not sent, for
    /// example because the import was asked to stop, do not count. So the number may never reach the
    /// [total](Self::total).
    ///
    /// # Example: a percentage
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// let rows = (0..300).map(|n| format!("{n}@example.com"));
    ///
    /// let import = contacts.import(rows).on_progress(|progress| {
    ///     let total = progress.total().expect("the length of this iterator is known");
    ///     // Without any rows, it is 0.
    ///     println!("{} %", 100 * progress.finished() / total.max(1));
    /// });
    /// println!("{}", import.await?);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn finished(&self) -> u64 {
        self.finished
    }

    /// Returns how many of the finished rows were finished in an earlier run, according to the journal.
    ///
    /// # Example: say how much an earlier run has done
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// # let path = std::env::temp_dir().join(format!("audience-resumed-{}.journal", std::process::id()));
    /// use audience::import::Journal;
    ///
    /// let import = contacts.import(["ada@example.com"]).journal(Journal::open(&path)?);
    /// let report = import
    ///     .on_progress(|progress| println!("{} rows were finished before", progress.resumed()))
    ///     .await?;
    /// assert_eq!(report.created(), 1);
    /// # std::fs::remove_file(path)?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn resumed(&self) -> u64 {
        self.resumed
    }

    /// Returns the number of rows, if [`total`](super::Import::total) was set or the iterator knows its length.
    #[must_use]
    pub fn total(&self) -> Option<u64> {
        self.total
    }

    /// Returns how many rows per second this run has finished; 0 before the first one.
    ///
    /// Rows that an earlier run finished do not count, and neither does the time to skip them. Rows that were not sent,
    /// because the import stopped before them, do not count either.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a rate is not exact")]
    pub fn rate(&self) -> f64 {
        let seconds = self.handling.as_secs_f64();
        if seconds > 0.0 {
            self.handled as f64 / seconds
        } else {
            0.0
        }
    }

    /// Returns how long the remaining rows take at this rate. `None` if the total is unknown, before this run has
    /// finished a row, or if the import has stopped and does not send the remaining rows.
    ///
    /// # Example: when the import will end
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// let rows = (0..300).map(|n| format!("{n}@example.com"));
    ///
    /// let import = contacts.import(rows).on_progress(|progress| match progress.remaining() {
    ///     Some(time) => println!("{} s left", time.as_secs()),
    ///     None => println!("starting"),
    /// });
    /// println!("{}", import.await?);
    /// # Ok(()) }
    /// ```
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "an estimate is not exact")]
    pub fn remaining(&self) -> Option<Duration> {
        if self.has_stopped {
            return None;
        }
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

    /// Returns how many batches may be in flight now. The number adapts to the service.
    ///
    /// # Example: see how the import adapts
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// let rows = (0..1_000).map(|n| format!("{n}@example.com"));
    ///
    /// let import = contacts.import(rows).concurrency(4).on_progress(|progress| {
    ///     println!("{} of at most {} batches in flight", progress.in_flight(), progress.limit());
    ///     assert!(progress.limit() <= 4);
    /// });
    /// println!("{}", import.await?);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Returns how many requests were retried.
    ///
    /// # Example: notice a service in trouble
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// let import = contacts.import(["ada@example.com"]).on_progress(|progress| {
    ///     if progress.retries() > 0 {
    ///         eprintln!("{} retries, {} requests are waiting", progress.retries(), progress.waiting());
    ///     }
    /// });
    /// println!("{}", import.await?);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn retries(&self) -> u64 {
        self.retries
    }

    /// Returns how many requests wait for their next attempt, because the service failed or asked for a delay.
    ///
    /// # Example: tell people why nothing happens
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = audience::mock::MockServer::start().await;
    /// # let contacts = server.client().contacts();
    /// let import = contacts.import(["ada@example.com"]).on_progress(|progress| {
    ///     if progress.waiting() > 0 && progress.waiting() == progress.in_flight() {
    ///         println!("waiting for the service");
    ///     }
    /// });
    /// println!("{}", import.await?);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Returns the progress of several runs: of those before this one, which have ended, and of this one.
    pub(super) fn after(self, earlier: Option<Self>, total: Option<u64>) -> Self {
        let Some(earlier) = earlier else {
            return Self { total, ..self };
        };
        Self {
            finished: earlier.finished + self.finished,
            resumed: earlier.resumed + self.resumed,
            handled: earlier.handled + self.handled,
            handling: earlier.handling + self.handling,
            total,
            elapsed: earlier.elapsed + self.elapsed,
            retries: earlier.retries + self.retries,
            ..self
        }
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.finished)?;
        if let Some(total) = self.total {
            write!(f, " of {total}")?;
        }
        write!(f, " rows, {:.0}/s", self.rate())?;
        if let Some(left) = self.remaining() {
            write!(f, ", {} s left", left.as_secs())?;
        }
        match self.waiting > 0 && self.waiting == self.in_flight {
            true => f.write_str(", waiting for the service"),
            false => Ok(()),
        }
    }
}

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
    /// Why it is not known whether the key is that of another audience, until a batch is sent: its outcome says whether
    /// the service can be reached.
    unchecked: Option<Error>,
    /// Why the input could not be read to its end, with the line, and whether it can be once it is fixed.
    cut_off: Option<(String, bool)>,
    /// Whether something has changed since `poll_change` last said so.
    has_changed: bool,
    /// When to show the progress next, even if nothing has changed by then.
    next_show: Option<Pin<Box<Sleep>>>,
    /// Whether other tasks get a turn before the next step.
    yields: bool,
    started: Instant,
    /// When the first row was read that no earlier run has finished.
    first_own_row: Option<Instant>,
}

impl Run {
    pub(super) fn new(
        source: Source,
        resumed: Option<Resumed>,
        unchecked: Option<Error>,
        sender: Sender,
        settings: Settings,
        keep: Keep,
    ) -> Self {
        Self {
            checks: Checks::new(resumed, &settings, sender.listed.clone()),
            settled: Settled::new(keep, settings.work.report()),
            source,
            next_number: 0,
            grouping: Grouping::default(),
            sender,
            pace: Arc::new(Pace::new(settings.concurrency)),
            settings,
            batches: InFlightBatches::default(),
            stop: None,
            unchecked,
            cut_off: None,
            has_changed: false,
            next_show: None,
            yields: false,
            started: Instant::now(),
            first_own_row: None,
        }
    }

    /// Runs until something has changed, and shows the progress. Returns whether there is more to do.
    ///
    /// Take all [settled](Self::next_settled) rows before the next call.
    pub(super) fn poll_change(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        let has_more = ready!(self.poll_step(context));
        // Taken out for the call, because the progress borrows the whole run.
        if let Some(mut show) = self.settings.on_progress.take() {
            show(&self.progress());
            self.settings.on_progress = Some(show);
        }
        Poll::Ready(has_more)
    }

    fn poll_step(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        // Rows that are always ready would otherwise keep the thread for as long as there are any.
        if std::mem::take(&mut self.yields) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        // This comes first, so that every request that begins to wait later wakes the import.
        self.pace.set_waker(context.waker());
        // This comes before new batches: if the signal is ready, none is started.
        self.poll_stop_signal(context);
        // This comes before ended batches are polled: without a batch in flight, that poll registers no waker, and the
        // import would sleep forever.
        self.start_batches(context);
        match self.batches.poll_ended(context, self.settled.keep) {
            Poll::Ready(Some(ended)) => self.settle_batch(ended),
            // This waits for the batches in flight: the rest could not be handed out before their rows, and would pile
            // up.
            Poll::Ready(None) if self.stop.is_some() => self.read_rest(context),
            Poll::Ready(None) | Poll::Pending => {}
        }
        if self.is_finished() {
            return Poll::Ready(false);
        }
        let is_waiting_changed = self.pace.take_changed();
        let is_changed = std::mem::take(&mut self.has_changed) || is_waiting_changed;
        match is_changed || self.is_time_to_show(context) {
            true => Poll::Ready(true),
            false => Poll::Pending,
        }
    }

    /// Returns `true` once a second, for a progress that is shown.
    fn is_time_to_show(&mut self, context: &mut Context<'_>) -> bool {
        if self.settings.on_progress.is_none() {
            return false;
        }
        let sleep = || Box::pin(tokio::time::sleep(SHOW_INTERVAL));
        let next_show = self.next_show.get_or_insert_with(sleep);
        let is_time = next_show.as_mut().poll(context).is_ready();
        if is_time {
            // The next call starts the next second.
            self.next_show = None;
        }
        is_time
    }

    fn poll_stop_signal(&mut self, context: &mut Context<'_>) {
        if let Some(signal) = &mut self.settings.stop_signal
            && signal.as_mut().poll(context).is_ready()
        {
            self.settings.stop_signal = None;
            // Requests that wait for a retry give up. Otherwise the stop would wait for their delays.
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
            self.unchecked = None;
            let keep = self.settled.keep;
            self.batches.start(&self.sender, &self.pace, batch, keep);
        }
    }

    fn can_start(&self) -> bool {
        // Asked anew for each batch: congestion may have lowered it since the last one.
        let limit = self.pace.limit();
        self.stop.is_none() && self.batches.len() < limit
    }

    /// Reads rows until a batch is full, or no more rows can be read now.
    fn read(&mut self, context: &mut Context<'_>) -> Reading {
        for _ in 0..MAX_READ {
            // The stop is looked at for each row: `accept` stops the import if the journal belongs to other rows.
            if !self.grouping.needs_rows() || self.stop.is_some() {
                return Reading::Done;
            }
            // Rejects and outcomes are handed out in input order, so one slow batch keeps back all rows after it.
            if self.settled.is_full() {
                return Reading::Blocked;
            }
            match self.source.poll_next(context) {
                Poll::Ready(Some(row)) => self.accept(row),
                Poll::Ready(None) if self.start_next_part() => {}
                Poll::Ready(None) => return Reading::Done,
                Poll::Pending => return Reading::Blocked,
            }
        }
        Reading::Paused
    }

    /// Starts the next part of the input, if all rows before it have an outcome. Returns whether it did.
    fn start_next_part(&mut self) -> bool {
        let is_idle = self.batches.len() == 0 && self.grouping.pending() == 0;
        is_idle && self.source.start_next_part()
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

    /// Gives the caller a chance to hand out settled rows, and other tasks a turn, before the next step.
    fn pause(&mut self) {
        self.has_changed = true;
        self.yields = true;
    }

    fn accept(&mut self, row: ImportRow) {
        let number = self.next_number;
        self.next_number += 1;
        // This comes before the checks, which may settle the row: the import must end with an error in any case.
        if row.is_cut_off() {
            self.cut_off = Some((place_and_reason(&row), row.hides_rows()));
        }
        let verdict = self.checks.check(number, &row, self.stop.is_some());
        if !matches!(verdict, Verdict::Resumed(_)) {
            self.first_own_row.get_or_insert_with(Instant::now);
        }
        let to_do = match verdict {
            Verdict::Send(to_do) => to_do,
            Verdict::Resumed(outcome) => return self.settle(number, row, outcome),
            Verdict::Duplicate => {
                self.settled.report.note_duplicate();
                return self.settle(number, row, RowOutcome::Valid);
            }
            Verdict::Settle(outcome) => {
                if outcome == RowOutcome::Valid && self.settings.work == Work::Verify {
                    self.settled.report.note_without_opt_outs();
                }
                return self.settle(number, row, outcome);
            }
            Verdict::Mismatch => {
                self.settle(number, row, RowOutcome::NotSent);
                return self.stop(Stop::Fatal(other_rows()));
            }
        };
        let row = NumberedRow::new(number, row, to_do);
        // An earlier row of the address may be sent again, and would then overwrite this one.
        match self.grouping.is_given_up(&row) {
            true => self.settle_not_sent(row),
            false => self.grouping.push(row),
        }
    }

    fn settle_batch(&mut self, ended: EndedBatch) {
        let EndedBatch {
            addresses,
            counted,
            kept,
            stop,
            _counted_rows,
        } = ended;
        self.grouping.finish(&addresses);
        self.settled.report.merge(counted);
        self.has_changed = true;
        for (row, outcome, is_final) in kept {
            // A resumed import may send this row again. Later rows of its address must not be applied before it.
            if !is_final {
                if stop.is_none() {
                    self.settled.report.note_left();
                }
                for later in self.grouping.give_up(&row) {
                    self.settle_not_sent(later);
                }
            }
            self.settle(row.number, row.row, outcome);
        }
        if let Some(stop) = stop {
            self.stop(stop);
        }
    }

    fn settle_not_sent(&mut self, row: NumberedRow) {
        let outcome = row.outcome_if_not_sent();
        self.settle(row.number, row.row, outcome);
    }

    fn settle(&mut self, number: u64, row: ImportRow, outcome: RowOutcome) {
        self.settled.add(number, row, outcome);
        self.has_changed = true;
    }

    fn stop(&mut self, stop: Stop) {
        if let Stop::Failure(error) | Stop::Quota(Some(error)) = &stop {
            self.settled.report.note_failure(error);
        }
        if let Stop::Quota(_) = &stop {
            self.settled.report.note_ceiling();
        }
        let is_end = match &stop {
            Stop::Failure(_) => self.settings.stop_on_failure,
            Stop::Quota(None) => self.settings.stop_at_ceiling,
            Stop::Quota(Some(_)) => self.settings.stop_at_ceiling || self.settings.stop_on_failure,
            Stop::Asked | Stop::Fatal(_) => true,
        };
        if !is_end {
            return;
        }
        // The first reason counts, but after a refused key or a foreign journal nothing more may be read.
        if self.stop.is_none() || matches!(stop, Stop::Fatal(_)) && !self.is_fatal() {
            self.stop = Some(stop);
        }
    }

    /// Gives the rows after a stop their outcome.
    fn read_rest(&mut self, context: &mut Context<'_>) {
        // Rows that were read before the stop come first, in input order.
        self.give_pending_back();
        self.source.skip_checks();
        for _ in 0..MAX_READ {
            if self.is_fatal() || self.settled.is_full() {
                return;
            }
            match self.source.poll_next(context) {
                Poll::Ready(Some(row)) => self.accept(row),
                Poll::Ready(None) if self.start_next_part() => {}
                Poll::Ready(None) | Poll::Pending => return,
            }
            self.give_pending_back();
        }
        self.pause();
    }

    fn give_pending_back(&mut self) {
        for row in self.grouping.take_pending().collect::<Vec<_>>() {
            self.settle_not_sent(row);
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
        // Rows after the first open one wait, so that outcomes and rejects keep the order of the input.
        let end = self.first_unsettled();
        self.settled.take_first(end)
    }

    pub(super) fn has_settled(&self) -> bool {
        !self.settled.is_empty()
    }

    fn progress(&self) -> Progress {
        // The size hint covers the rows that are left, so the rows that were read are added.
        let left = || Some(self.next_number.saturating_add(self.source.total()?));
        let report = &self.settled.report;
        // A valid row of a dry run counts as not sent in the report, but it was checked.
        let not_sent = report.not_sent() - report.valid();
        let finished = report.total() - not_sent + self.batches.finished();
        Progress {
            finished,
            resumed: self.checks.resumed_rows(),
            handled: finished - self.checks.resumed_rows(),
            handling: self
                .first_own_row
                .map_or(Duration::ZERO, |first| first.elapsed()),
            total: self.settings.total.or_else(left),
            elapsed: self.started.elapsed(),
            in_flight: self.batches.len(),
            limit: self.pace.limit(),
            retries: self.pace.retries(),
            waiting: self.pace.waiting(),
            has_stopped: self.stop.is_some(),
        }
    }

    pub(super) fn journal(&self) -> Option<&JournalWriter> {
        self.sender.journal()
    }

    /// Returns whether the caller has asked to stop, or nothing more can be done.
    pub(super) fn has_stopped_early(&self) -> bool {
        matches!(self.stop, Some(Stop::Asked | Stop::Fatal(_)))
    }

    /// Returns the report: of the whole import, or of what was done so far.
    pub(super) fn finish(mut self) -> Result<ImportReport, ImportError> {
        if matches!(self.stop, Some(Stop::Asked)) {
            self.settled.report.note_stopped();
        }
        let has_ended = self.source.has_ended() && self.stop.is_none();
        // Only at the real end of the input: an import that stopped early has unread rows for another reason.
        let is_shorter = has_ended && self.checks.has_unread_rows();
        let error = match self.stop {
            Some(Stop::Fatal(error) | Stop::Failure(error)) => Some(error),
            // The report says it: these stops are results that the caller expects.
            Some(Stop::Quota(failure)) => failure.filter(|_| self.settings.stop_on_failure),
            Some(Stop::Asked) if leaves_rows(&self.settled.report) => None,
            // If no row that was read is left, nothing else says that there are more.
            Some(Stop::Asked) => cut_off_error(self.cut_off, &mut self.settled.report),
            // This comes last: the error of a batch explains more than the end of the file.
            None => cut_off_error(self.cut_off, &mut self.settled.report)
                .or_else(|| is_shorter.then(other_rows))
                .or(self.unchecked),
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

/// Returns the line of a row that cannot be read, and the reason.
fn place_and_reason(row: &ImportRow) -> String {
    let reason = row.unreadable_reason().unwrap_or_default();
    match row.line_number() {
        Some(line) => format!("line {line}: {reason}"),
        None => reason.to_owned(),
    }
}

/// Returns the error of an input that could not be read to its end. The report notes it if more rows can be read once
/// the input is fixed.
fn cut_off_error(cut_off: Option<(String, bool)>, report: &mut ImportReport) -> Option<Error> {
    let (reason, hides_rows) = cut_off?;
    if hides_rows {
        report.note_cut_off();
    }
    Some(Error::input(reason))
}

/// Returns whether the report of a run that was asked to stop says that rows are left.
fn leaves_rows(report: &ImportReport) -> bool {
    let reason = report.unfinished_rows();
    reason.is_some_and(|reason| reason.kind() == ErrorKind::Stopped)
}

fn other_rows() -> Error {
    Error::input(
        "the journal belongs to other rows or to another mapping of the columns; pass the same rows with the same mapping, or \
         fix and import the rejects, or begin with a new journal, which sends all rows again",
    )
}

/// How many rows may be kept before no more are read. A row that waits for long keeps back all rows after it.
const MAX_KEPT: usize = 10_000;

/// Which rows to hand out with their outcomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    Nothing,
    Rejects,
    All,
}

impl Keep {
    fn keeps(self, outcome: &RowOutcome) -> bool {
        match self {
            Self::Nothing => false,
            Self::Rejects => outcome.is_reject(),
            Self::All => true,
        }
    }
}

/// The rows that have an outcome.
#[derive(Debug)]
struct Settled {
    keep: Keep,
    rows: BTreeMap<u64, (ImportRow, RowOutcome)>,
    report: ImportReport,
}

impl Settled {
    fn new(keep: Keep, report: ImportReport) -> Self {
        Self {
            keep,
            rows: BTreeMap::new(),
            report,
        }
    }

    fn add(&mut self, number: u64, row: ImportRow, outcome: RowOutcome) {
        self.report.add(&outcome);
        if self.keep.keeps(&outcome) {
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

/// Decides about rows, by the journal of an earlier run or the checks of a dry run.
#[derive(Debug)]
struct Checks {
    resumed: Option<Resumed>,
    resumed_rows: u64,
    verifies: bool,
    listed: ListedAddresses,
    dry_run: Option<Arc<Mutex<DryRun>>>,
}

/// The decision about a row.
#[derive(Debug)]
enum Verdict {
    /// The row, or the part of it that is left, is to be sent.
    Send(ToDo),
    /// The row has this outcome.
    Settle(RowOutcome),
    /// An earlier run has finished the row with this outcome.
    Resumed(RowOutcome),
    /// The row is valid, and so is an earlier row with its address.
    Duplicate,
    /// The journal belongs to other rows.
    Mismatch,
}

impl Checks {
    fn new(resumed: Option<Resumed>, settings: &Settings, listed: ListedAddresses) -> Self {
        Self {
            resumed,
            resumed_rows: 0,
            verifies: settings.work == Work::Verify,
            listed,
            dry_run: (settings.work == Work::DryRun).then(|| settings.dry_run.clone()),
        }
    }

    /// Decides about the next row. A dry run that has stopped checks no more rows.
    fn check(&mut self, number: u64, row: &ImportRow, has_stopped: bool) -> Verdict {
        // This comes first: a dry run neither reads the journal nor sends the row.
        if let Some(dry_run) = self.dry_run.as_ref().filter(|_| !has_stopped) {
            let checked = lock(dry_run).check(row);
            return match checked {
                (_, true) => Verdict::Duplicate,
                (outcome, false) => Verdict::Settle(outcome),
            };
        }
        let mut was_sent = false;
        if let Some(resumed) = &mut self.resumed {
            match resumed.row(number, || fingerprint_of([(number, row)])) {
                ResumedRow::ToSend => {}
                ResumedRow::OptOutsLeft(left) => {
                    return Verdict::Send(ToDo::OptOuts(Box::new(left)));
                }
                // It would be refused because of its own first attempt.
                ResumedRow::Started if row.contact().is_some_and(NewContact::fails_on_conflict) => {
                    if row.opt_outs().is_empty() {
                        self.resumed_rows += 1;
                        return Verdict::Resumed(RowOutcome::Unknown);
                    }
                    return Verdict::Send(ToDo::OptOuts(Box::new(OptOutsLeft {
                        contact: RowOutcome::Unknown,
                        now: RowOutcome::Unknown,
                    })));
                }
                ResumedRow::Started => was_sent = true,
                ResumedRow::Finished(outcome) => {
                    self.resumed_rows += 1;
                    return Verdict::Resumed(outcome);
                }
                ResumedRow::Mismatch => return Verdict::Mismatch,
            }
        }
        // This comes last: a row that an earlier run finished keeps its outcome, even if the row is invalid.
        match row.problem() {
            // It needs no batch: an earlier one of these rows has listed all contacts.
            None if self.verifies
                && row.opt_outs().is_empty()
                && self.listed.has(row.address()) =>
            {
                Verdict::Settle(RowOutcome::Valid)
            }
            None if self.verifies => Verdict::Send(ToDo::Verify),
            None => Verdict::Send(to_do(row, was_sent)),
            Some(message) => Verdict::Settle(RowOutcome::Refused {
                code: ErrorCode::from("invalid_row"),
                message: Some(message),
                // The same row would be refused again, so the rejects say that a retry is useless.
                retryable: false,
            }),
        }
    }

    fn resumed_rows(&self) -> u64 {
        self.resumed_rows
    }

    /// Returns whether the journal knows rows that were not read.
    fn has_unread_rows(&self) -> bool {
        self.resumed.as_ref().is_some_and(Resumed::has_unread_rows)
    }
}

fn to_do(row: &ImportRow, was_sent: bool) -> ToDo {
    match row.task_kind() {
        None => ToDo::Everything { was_sent },
        // The row counts as sent before, so that its opt-outs are not lost if it is refused.
        Some(TaskKind::Upsert) => ToDo::Everything { was_sent: true },
        Some(TaskKind::OptOut | TaskKind::OptOutListed | TaskKind::Look(_) | TaskKind::Leave) => {
            ToDo::OptOuts(Box::new(OptOutsLeft {
                contact: RowOutcome::OptedOut,
                now: RowOutcome::NotSent,
            }))
        }
        Some(TaskKind::NotCreated) => ToDo::OptOuts(Box::new(OptOutsLeft {
            contact: RowOutcome::NotSent,
            now: RowOutcome::NotSent,
        })),
        // Nothing is left to do for it.
        Some(TaskKind::Check) => ToDo::OptOuts(Box::new(OptOutsLeft {
            contact: RowOutcome::Skipped,
            now: RowOutcome::Skipped,
        })),
    }
}

#[derive(Default)]
struct InFlightBatches {
    tasks: JoinSet<EndedBatch>,
    batches: HashMap<task::Id, Batch>,
    /// The number of the first row of each batch.
    first_rows: BTreeSet<u64>,
}

/// A batch in flight.
struct Batch {
    first_row: Option<u64>,
    rescued: Rescued,
    watch: Arc<Watch>,
}

/// The rows of a batch whose task has ended without a result, such as by a panic. Empty until then.
type Rescued = Arc<Mutex<Vec<NumberedRow>>>;

/// The rows of a batch in its task.
struct TaskRows {
    rows: Vec<NumberedRow>,
    rescued: Rescued,
}

impl Drop for TaskRows {
    fn drop(&mut self) {
        if !self.rows.is_empty() {
            *lock(&self.rescued) = std::mem::take(&mut self.rows);
        }
    }
}

/// A batch that has ended.
struct EndedBatch {
    addresses: Vec<AddressHash>,
    counted: ImportReport,
    /// The rows that nobody needs any more. They are dropped by the task of the import, which made them: glibc is slow
    /// to free the memory of another thread, and to allocate when others free.
    _counted_rows: Vec<NumberedRow>,
    /// The rows to hand out, and those that are not final: each with its outcome, and whether that is final.
    kept: Vec<(NumberedRow, RowOutcome, bool)>,
    stop: Option<Stop>,
}

impl EndedBatch {
    fn new(rows: Vec<NumberedRow>, mut sent: SentBatch, keep: Keep) -> Self {
        let outcomes = std::mem::take(&mut sent.outcomes);
        let addresses = rows.iter().map(|row| row.address).collect();
        let (mut counted, mut kept) = (ImportReport::default(), Vec::new());
        let mut counted_rows = Vec::with_capacity(rows.len());
        for (place, (row, outcome)) in rows.into_iter().zip(outcomes).enumerate() {
            if outcome == RowOutcome::Valid && row.row.opt_outs().is_empty() {
                counted.note_without_opt_outs();
            }
            let is_final = sent.is_final(place, &row, &outcome);
            if keep.keeps(&outcome) || !is_final {
                kept.push((row, outcome, is_final));
            } else {
                counted.add(&outcome);
                counted_rows.push(row);
            }
        }
        Self {
            addresses,
            counted,
            _counted_rows: counted_rows,
            kept,
            stop: sent.stop,
        }
    }
}

impl InFlightBatches {
    fn len(&self) -> usize {
        self.tasks.len()
    }

    fn first_row(&self) -> Option<u64> {
        self.first_rows.first().copied()
    }

    /// Returns how many rows are finished although their batch is not.
    fn finished(&self) -> u64 {
        let batches = self.batches.values();
        batches.map(|batch| batch.watch.finished() as u64).sum()
    }

    fn start(&mut self, sender: &Sender, pace: &Arc<Pace>, rows: Vec<NumberedRow>, keep: Keep) {
        let first_row = rows.first().map(|row| row.number);
        self.first_rows.extend(first_row);
        let rescued = Rescued::default();
        let watch = Arc::new(Watch::new(pace.clone()));
        let mut task_rows = TaskRows {
            rows,
            rescued: rescued.clone(),
        };
        let (sender, task_watch) = (sender.clone(), watch.clone());
        let work = async move {
            let sent = sender.send(&task_rows.rows, &task_watch).await;
            EndedBatch::new(std::mem::take(&mut task_rows.rows), sent, keep)
        };
        let task = self.tasks.spawn(in_current_span(work));
        let batch = Batch {
            first_row,
            rescued,
            watch,
        };
        self.batches.insert(task.id(), batch);
    }

    /// Waits until a batch has ended. `None` if none is in flight.
    fn poll_ended(&mut self, context: &mut Context<'_>, keep: Keep) -> Poll<Option<EndedBatch>> {
        loop {
            let Some(ended) = ready!(self.tasks.poll_join_next_with_id(context)) else {
                return Poll::Ready(None);
            };
            let (id, ended) = match ended {
                Ok((id, ended)) => (id, Ok(ended)),
                Err(error) => (error.id(), Err(error)),
            };
            let Some(batch) = self.batches.remove(&id) else {
                continue;
            };
            if let Some(first) = batch.first_row {
                self.first_rows.remove(&first);
            }
            let ended = ended.unwrap_or_else(|error| {
                let rows = std::mem::take(&mut *lock(&batch.rescued));
                let sent = lost(&rows, error);
                EndedBatch::new(rows, sent, keep)
            });
            batch.watch.finish(ended.stop.is_some());
            return Poll::Ready(Some(ended));
        }
    }
}

/// Returns the result of a batch whose task ended without one.
fn lost(rows: &[NumberedRow], error: JoinError) -> SentBatch {
    let message = match error.is_panic() {
        true => "a task of the import panicked",
        false => "the runtime stopped during the import",
    };
    SentBatch::lost(rows, Error::transport(message).caused_by(error))
}

/// The rows that may wait for an address before no more are read.
const MAX_WAITING: usize = 2 * MAX_BATCH;

/// Which rows go into the next batch: the rows that are read but not sent, and the addresses that are in flight. Pure.
///
/// Rows with the same address apply in input order: a batch applies its entries in order (interface section 4.2), and a
/// row waits while another batch with its address is in flight. A row that was not sent, or whose outcome is unknown,
/// may be sent again later. Then later rows with its address are not sent, because the earlier row would overwrite
/// them.
#[derive(Debug, Default)]
struct Grouping {
    /// In input order.
    pending: VecDeque<NumberedRow>,
    /// How many of the pending rows have an address in flight.
    waiting: usize,
    /// How many of the pending rows are sent alone.
    alone: usize,
    /// The addresses of the batches in flight. No two of them share one.
    in_flight: AddressSet,
    /// The addresses whose rows are not sent.
    given_up: AddressSet,
}

impl Grouping {
    /// Returns whether another row should be read before the next batch is taken.
    fn needs_rows(&self) -> bool {
        // Without the second limit, a file with the same address in each row would be read into memory as a whole while
        // its first batch is in flight.
        self.sendable() < MAX_BATCH && self.waiting < MAX_WAITING
    }

    fn sendable(&self) -> usize {
        self.pending.len() - self.waiting
    }

    /// Returns how many rows are read but not sent.
    fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Returns the number of the first row that is not sent.
    fn first_pending(&self) -> Option<u64> {
        self.pending.front().map(|row| row.number)
    }

    /// Returns whether a row is not to be sent, because of an earlier row of its address.
    fn is_given_up(&self, row: &NumberedRow) -> bool {
        self.given_up.contains(&row.address)
    }

    /// Gives up the address of a row, and removes its other rows that are not sent.
    fn give_up(&mut self, given_up: &NumberedRow) -> Vec<NumberedRow> {
        // For rows that are read later. The rows that wait already are taken out below.
        self.given_up.insert(given_up.address);
        let address = normalized_address(given_up.row.address());
        let (removed, left) = std::mem::take(&mut self.pending)
            .into_iter()
            // By the text too: a collision of hashes must not take out the rows of another address.
            .partition::<VecDeque<_>, _>(|row| {
                row.address == given_up.address && normalized_address(row.row.address()) == address
            });
        self.pending = left;
        self.count_waiting();
        removed.into()
    }

    fn push(&mut self, row: NumberedRow) {
        self.waiting += usize::from(self.in_flight.contains(&row.address));
        self.alone += usize::from(row.is_alone());
        self.pending.push_back(row);
    }

    /// Takes the rows of the next batch, and marks their addresses as in flight. Empty if every row has
    /// to wait.
    fn take_batch(&mut self) -> Vec<NumberedRow> {
        let takes_all = self.waiting + self.alone == 0 && self.pending.len() <= MAX_BATCH;
        let batch = match takes_all {
            // Nearly always. No row is moved.
            true => {
                let next = VecDeque::with_capacity(self.pending.len());
                std::mem::replace(&mut self.pending, next).into()
            }
            false => self.pick_batch(),
        };
        // Rows of one address in one batch are one entry here: the batch applies them in order.
        self.in_flight.extend(batch.iter().map(|row| row.address));
        self.count_waiting();
        batch
    }

    /// Takes the first rows that need not wait. A row with nothing but opt-outs makes a batch of its own, because the
    /// opt-outs of a batch are sent one after another.
    fn pick_batch(&mut self) -> Vec<NumberedRow> {
        let mut batch = Vec::with_capacity(self.sendable().min(MAX_BATCH));
        let mut waiting = Vec::new();
        while batch.len() < MAX_BATCH
            && let Some(row) = self.pending.pop_front()
        {
            match self.in_flight.contains(&row.address) {
                true => waiting.push(row),
                false if row.is_alone() && !batch.is_empty() => {
                    waiting.push(row);
                    break;
                }
                false => {
                    batch.push(row);
                    if batch.last().is_some_and(NumberedRow::is_alone) {
                        break;
                    }
                }
            }
        }
        // Back to the front, the last one first: they stay in input order.
        for row in waiting.into_iter().rev() {
            self.pending.push_front(row);
        }
        batch
    }

    /// Marks the addresses of a batch as no longer in flight.
    fn finish(&mut self, addresses: &[AddressHash]) {
        for address in addresses {
            self.in_flight.remove(address);
        }
        if self.waiting > 0 {
            self.count_waiting();
        }
    }

    /// Takes all rows that are not sent, in input order.
    fn take_pending(&mut self) -> impl Iterator<Item = NumberedRow> {
        (self.waiting, self.alone) = (0, 0);
        std::mem::take(&mut self.pending).into_iter()
    }

    fn count_waiting(&mut self) {
        self.alone = self.pending.iter().filter(|row| row.is_alone()).count();
        let pending = self.pending.iter();
        self.waiting = pending
            .filter(|row| self.in_flight.contains(&row.address))
            .count();
    }
}

/// What a dry run remembers. Those of several files share it.
#[derive(Debug, Default)]
pub(super) struct DryRun {
    /// The addresses of the valid rows so far.
    addresses: AddressSet,
}

impl DryRun {
    /// Returns the outcome of a row, and whether it is valid and an earlier valid row has its address.
    fn check(&mut self, row: &ImportRow) -> (RowOutcome, bool) {
        let refusal = match row.contact() {
            None => Some(("invalid_row", row.unreadable_reason().unwrap_or_default())),
            Some(contact) => check_contact(contact),
        };
        if let Some((code, message)) = refusal {
            let outcome = RowOutcome::Refused {
                code: ErrorCode::from(code),
                message: Some(message.to_owned()),
                retryable: false,
            };
            return (outcome, false);
        }
        let address = AddressHash::new(row.address());
        (RowOutcome::Valid, !self.addresses.insert(address))
    }
}

/// Returns the code and the reason if the service would refuse a contact.
pub(super) fn check_contact(contact: &NewContact) -> Option<(&'static str, &'static str)> {
    if let Some(problem) = address_problem(&contact.email) {
        return Some(("invalid_address", problem));
    }
    let properties = contact.members().properties;
    let problem = properties
        .into_iter()
        .flatten()
        .find_map(|(name, value)| check_property(name, value).err());
    problem.map(|problem| ("invalid_property", problem))
}

fn check_property(name: &str, value: &PropertyValue) -> Result<(), &'static str> {
    if name.is_empty() {
        return Err("a property has no name");
    }
    if name.trim() != name || name.chars().any(char::is_control) {
        return Err(
            "the name of a property has white space around it or a control character in it",
        );
    }
    if !value.is_valid_json() {
        return Err("a property is an infinite number or NaN, which JSON cannot represent");
    }
    match value {
        PropertyValue::Other(_) => Err("a property is neither text nor a number"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::ImportRow;
    use serde_json::json;

    fn row(number: u64, address: &str) -> NumberedRow {
        let to_do = ToDo::Everything { was_sent: false };
        NumberedRow::new(number, ImportRow::new(NewContact::new(address)), to_do)
    }

    fn numbers(batch: &[NumberedRow]) -> Vec<u64> {
        batch.iter().map(|row| row.number).collect()
    }

    fn grouping(rows: impl IntoIterator<Item = (u64, &'static str)>) -> Grouping {
        let mut grouping = Grouping::default();
        for (number, address) in rows {
            grouping.push(row(number, address));
        }
        grouping
    }

    #[test]
    fn a_batch_has_at_most_100_rows_in_input_order() {
        let mut grouping = Grouping::default();
        for number in 0..150 {
            grouping.push(row(number, &format!("{number}@x.io")));
        }

        assert_eq!(
            numbers(&grouping.take_batch()),
            (0..100).collect::<Vec<_>>()
        );
        assert_eq!(
            numbers(&grouping.take_batch()),
            (100..150).collect::<Vec<_>>()
        );
        assert!(grouping.take_batch().is_empty());
    }

    #[test]
    fn a_row_waits_while_its_address_is_in_flight_in_any_spelling() {
        let mut grouping = grouping([(0, "a@x.io")]);
        assert_eq!(numbers(&grouping.take_batch()), [0]);
        grouping.push(row(1, " A@X.io "));
        grouping.push(row(2, "b@x.io"));
        grouping.push(row(3, "a@x.io"));

        assert_eq!(numbers(&grouping.take_batch()), [2]);
        assert!(grouping.take_batch().is_empty());

        grouping.finish(&[AddressHash::new("a@x.io")]);
        assert_eq!(numbers(&grouping.take_batch()), [1, 3]);
    }

    #[test]
    fn the_same_address_twice_may_be_in_one_batch() {
        let mut grouping = grouping([(0, "a@x.io"), (1, "A@x.io")]);

        assert_eq!(numbers(&grouping.take_batch()), [0, 1]);
    }

    #[test]
    fn the_rows_of_an_address_that_was_given_up_are_taken_out() {
        let mut grouping = grouping([(0, "a@x.io")]);
        grouping.take_batch();
        grouping.push(row(1, "A@x.io"));
        grouping.push(row(2, "b@x.io"));

        grouping.finish(&[AddressHash::new("a@x.io")]);
        let removed = grouping.give_up(&row(0, "a@x.io"));

        assert_eq!(numbers(&removed), [1]);
        assert!(grouping.is_given_up(&row(3, "a@X.io")));
        assert!(!grouping.is_given_up(&row(4, "b@x.io")));
        assert_eq!(numbers(&grouping.take_batch()), [2]);
    }

    #[test]
    fn reading_stops_when_too_many_rows_wait_for_one_address() {
        let mut grouping = grouping([(0, "a@x.io")]);
        grouping.take_batch();
        let mut number = 0;

        while grouping.needs_rows() {
            number += 1;
            grouping.push(row(number, "a@x.io"));
        }

        assert_eq!((grouping.sendable(), grouping.pending()), (0, MAX_WAITING));
    }

    #[test]
    fn the_progress_of_several_runs_has_all_their_rows_retries_and_time() {
        let run = |handled: u64, resumed: u64, seconds, retries| Progress {
            finished: handled + resumed,
            resumed,
            handled,
            handling: Duration::from_secs(seconds),
            total: None,
            elapsed: Duration::from_secs(seconds + 1),
            in_flight: 0,
            limit: 1,
            retries,
            waiting: 0,
            has_stopped: false,
        };

        let progress = run(10, 3, 1, 4).after(Some(run(20, 5, 4, 7)), Some(68));

        assert_eq!(progress.to_string(), "38 of 68 rows, 6/s, 5 s left");
        assert_eq!((progress.resumed(), progress.retries()), (8, 11));
        assert_eq!(progress.elapsed(), Duration::from_secs(7));
    }

    #[test]
    fn a_property_is_text_or_a_number_and_has_a_name() {
        let row = |name: &str, value: PropertyValue| {
            DryRun::default().check(&NewContact::new("a@x.io").property(name, value).into())
        };

        for value in [json!("pro"), json!(3), json!(0.5)] {
            assert_eq!(row("plan", value.into()).0, RowOutcome::Valid);
        }
        for value in [json!(true), json!(null), json!([1]), json!({"a": 1})] {
            assert_eq!(row("plan", value.into()).0.code(), "invalid_property");
        }
        assert_eq!(row("plan", f64::NAN.into()).0.code(), "invalid_property");
        for name in ["", " plan", "pl\nan"] {
            assert_eq!(row(name, "pro".into()).0.code(), "invalid_property");
        }
    }
}
