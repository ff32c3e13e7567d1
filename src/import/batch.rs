//! Sends one batch, and then the opt-outs of its rows.

use std::io;
use std::sync::Arc;

use super::journal::{Finished, JournalWriter, Record, RowNumbers};
use super::outcome::RowOutcome;
use super::row::{NumberedRow, OptOut};
use super::row_results::{
    Stop, fails_on_conflict, is_final, is_quota_exceeded, is_refused_key, name_of, opt_out_failed,
    outcome_of, outcome_of_failure, stop_of_failure,
};
use super::watch::Watch;
use crate::Error;
use crate::client::{CallOptions, TakesOptions};
use crate::contacts::Contacts;

/// What all batches of an import share.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    pub(super) contacts: Contacts,
    pub(super) retries: Retries,
    pub(super) journal: Option<JournalWriter>,
}

/// The settings of all requests of an import.
#[derive(Clone, Debug)]
pub(super) struct Retries {
    patient: CallOptions,
    /// Those while the service is down: one batch after another would otherwise wait for it in vain.
    when_down: CallOptions,
}

impl Retries {
    /// Makes these options patient. A retry policy that somebody has set is used for every request.
    pub(super) fn new(contacts: &Contacts, options: CallOptions) -> Self {
        let patient = contacts.patient(options.clone());
        let when_down = match patient.retry == options.retry {
            true => patient.clone(),
            false => options,
        };
        Self { patient, when_down }
    }
}

/// A batch that has ended.
#[derive(Debug)]
pub(super) struct SentBatch {
    /// One outcome for each row, in the order of the rows.
    pub(super) outcomes: Vec<RowOutcome>,
    pub(super) stop: Option<Stop>,
}

impl SentBatch {
    /// Creates the result of a batch whose rows all have the same outcome.
    pub(super) fn stopped(rows: &[NumberedRow], outcome: RowOutcome, error: Error) -> Self {
        Self {
            outcomes: vec![outcome; rows.len()],
            stop: Some(Stop::Fatal(error)),
        }
    }
}

impl Sender {
    /// Sends the rows and their opt-outs, and records the outcomes in the journal.
    pub(super) async fn send(&self, rows: &[NumberedRow], watch: &Arc<Watch>) -> SentBatch {
        if let Err(error) = self.record_start(rows).await {
            return SentBatch::stopped(rows, RowOutcome::NotSent, unwritable(error));
        }
        let mut sent = self.create(rows, watch).await;
        self.opt_out(rows, &mut sent, watch).await;
        if let Err(error) = self.record_end(rows, &sent).await {
            // The journal could not restore these outcomes, so they are not told.
            for outcome in &mut sent.outcomes {
                if outcome.is_applied() || matches!(outcome, RowOutcome::OptOutFailed { .. }) {
                    *outcome = RowOutcome::Unknown;
                }
            }
            sent.stop = Some(Stop::Fatal(unwritable(error)));
        }
        sent
    }

    fn options(&self, watch: &Arc<Watch>) -> CallOptions {
        let options = match watch.is_down() {
            true => &self.retries.when_down,
            false => &self.retries.patient,
        };
        CallOptions {
            watch: Some(watch.clone()),
            ..options.clone()
        }
    }

    async fn create(&self, rows: &[NumberedRow], watch: &Arc<Watch>) -> SentBatch {
        let batch: Vec<_> = rows.iter().filter_map(|row| row.row.contact()).collect();
        let call = self.contacts.create_kept_batch(&batch, self.options(watch));
        watch.set_repeated_later(true);
        let result = call.await;
        // An opt-out is not given up: a resumed import does not send it again.
        watch.set_repeated_later(false);
        watch.request_ended(result.as_ref().err());
        match result {
            Ok(report) => {
                let outcomes: Vec<_> = report.entries.into_iter().map(outcome_of).collect();
                let is_quota = outcomes.iter().any(is_quota_exceeded);
                SentBatch {
                    outcomes,
                    stop: is_quota.then_some(Stop::Quota),
                }
            }
            Err(error) => SentBatch {
                outcomes: vec![outcome_of_failure(&error); rows.len()],
                stop: Some(stop_of_failure(error.about(&name_of(rows)))),
            },
        }
    }

    /// Records the opt-outs of the rows that were applied, in their order. The first that fails becomes the
    /// outcome of its row; the others are tried nevertheless, unless the key was refused.
    async fn opt_out(&self, rows: &[NumberedRow], sent: &mut SentBatch, watch: &Arc<Watch>) {
        let mut refused_key = None;
        for (row, outcome) in rows.iter().zip(&mut sent.outcomes) {
            if !outcome.is_applied() {
                continue;
            }
            for opt_out in row.row.opt_outs() {
                let recorded = match refused_key.take() {
                    Some(error) => Err(error),
                    None => self.record_opt_out(&row.address, opt_out, watch).await,
                };
                if let Err(error) = recorded {
                    if outcome.is_applied() {
                        *outcome = opt_out_failed(opt_out, &error);
                    }
                    refused_key = Some(error).filter(is_refused_key);
                }
            }
        }
        if let Some(error) = refused_key {
            sent.stop = Some(Stop::Fatal(error.about(&name_of(rows))));
        }
    }

    async fn record_opt_out(
        &self,
        address: &str,
        opt_out: &OptOut,
        watch: &Arc<Watch>,
    ) -> Result<(), Error> {
        let call = self.contacts.unsubscribe(address);
        let call = match opt_out {
            OptOut::Everything(reason) => call.reason(*reason),
            OptOut::Topic(name) => call.topic(name),
        };
        let result = call.options(self.options(watch)).await;
        watch.request_ended(result.as_ref().err());
        result.map(drop)
    }

    /// Records that rows which must not be sent twice are about to be sent.
    async fn record_start(&self, rows: &[NumberedRow]) -> Result<(), Arc<io::Error>> {
        let strict = rows.iter().filter(|row| fails_on_conflict(row));
        self.record_numbers(strict, Record::Started).await
    }

    /// Records the outcomes that are final. A resumed import sends all other rows again.
    async fn record_end(
        &self,
        rows: &[NumberedRow],
        sent: &SentBatch,
    ) -> Result<(), Arc<io::Error>> {
        let Some(journal) = &self.journal else {
            return Ok(());
        };
        let (finished, open): (Vec<_>, Vec<_>) = rows
            .iter()
            .zip(&sent.outcomes)
            .partition(|(row, outcome)| is_final(row, outcome, sent.stop.as_ref()));
        let open = open.into_iter().map(|(row, _)| row);
        let not_applied = open.filter(|row| fails_on_conflict(row));
        self.record_numbers(not_applied, Record::NotApplied).await?;
        if finished.is_empty() {
            return Ok(());
        }
        let finished = finished
            .into_iter()
            .map(|(row, outcome)| (row.number, &row.row, outcome));
        let record = Record::Finished(Finished::new(finished));
        journal.append(&record).await
    }

    async fn record_numbers<'a>(
        &self,
        rows: impl Iterator<Item = &'a NumberedRow>,
        record: impl FnOnce(RowNumbers) -> Record,
    ) -> Result<(), Arc<io::Error>> {
        let numbers: Vec<u64> = rows.map(|row| row.number).collect();
        match &self.journal {
            Some(journal) if !numbers.is_empty() => {
                journal.append(&record(numbers.into_iter().collect())).await
            }
            _ => Ok(()),
        }
    }
}

fn unwritable(error: Arc<io::Error>) -> Error {
    Error::config("could not write the journal").caused_by(error)
}
