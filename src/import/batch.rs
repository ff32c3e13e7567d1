//! Sends one batch, and then the opt-outs of its rows.

use std::io;
use std::sync::Arc;

use super::RowOutcome;
use super::journal::{Finished, JournalWriter, Record, fingerprint};
use super::row::{NumberedRow, OptOut};
use super::watch::Watch;
use crate::client::CallOptions;
use crate::contacts::{BatchEntry, BatchOutcome, Contacts, NewContact};
use crate::{Error, ErrorCode, Outcome};

/// What all batches of an import share.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    pub(super) contacts: Contacts,
    pub(super) options: CallOptions,
    pub(super) journal: Option<JournalWriter>,
}

/// A batch that has ended.
#[derive(Debug)]
pub(super) struct SentBatch {
    pub(super) rows: Vec<(NumberedRow, RowOutcome)>,
    pub(super) stop: Option<Stop>,
}

/// Why no further batch is started.
#[derive(Debug)]
pub(super) enum Stop {
    /// The plan's contact ceiling is crossed.
    Quota,
    /// Nothing more can be done: the key was refused, or the journal cannot be used.
    Fatal(Error),
    /// A batch failed for good. It stops the import only if that was asked for.
    Failure(Error),
}

impl Sender {
    /// Sends the rows and their opt-outs, and records the outcomes in the journal.
    pub(super) async fn send(self, rows: Vec<NumberedRow>, watch: Arc<Watch>) -> SentBatch {
        if let Err(error) = self.record_start(&rows).await {
            let rows = with_outcome(rows, &RowOutcome::NotSent);
            let stop = Some(Stop::Fatal(unwritable(error)));
            return SentBatch { rows, stop };
        }
        let (outcomes, mut stop) = self.create(&rows, &watch).await;
        let mut rows: Vec<_> = rows.into_iter().zip(outcomes).collect();
        for (row, outcome) in &mut rows {
            if outcome.is_applied() {
                self.opt_out(row, outcome, &watch).await;
            }
        }
        if let Err(error) = self.record_end(&rows).await {
            stop = Some(Stop::Fatal(unwritable(error)));
        }
        SentBatch { rows, stop }
    }

    async fn create(
        &self,
        rows: &[NumberedRow],
        watch: &Arc<Watch>,
    ) -> (Vec<RowOutcome>, Option<Stop>) {
        let batch: Vec<_> = rows.iter().filter_map(|row| row.row.contact()).collect();
        let options = CallOptions {
            watch: Some(watch.clone()),
            ..self.options.clone()
        };
        match self.contacts.create_kept_batch(&batch, options).await {
            Ok(report) => {
                let outcomes: Vec<_> = report.entries.into_iter().map(outcome_of).collect();
                let is_quota = outcomes.iter().any(is_quota_exceeded);
                (outcomes, is_quota.then_some(Stop::Quota))
            }
            Err(error) => {
                let outcome = outcome_of_failure(&error);
                (vec![outcome; rows.len()], Some(stop_of_failure(error)))
            }
        }
    }

    /// Records the opt-outs of a row, in their order. The first that fails becomes the outcome; the others
    /// are tried nevertheless.
    async fn opt_out(&self, row: &NumberedRow, outcome: &mut RowOutcome, watch: &Arc<Watch>) {
        for opt_out in row.row.opt_outs() {
            let call = self.contacts.unsubscribe(&row.address);
            let call = match opt_out {
                OptOut::Everything(reason) => call.reason(*reason),
                OptOut::Topic(name) => call.topic(name),
            };
            let options = CallOptions {
                watch: Some(watch.clone()),
                ..self.options.clone()
            };
            if let Err(error) = call.with_options(options).await
                && outcome.is_applied()
            {
                *outcome = RowOutcome::OptOutFailed {
                    code: code_of(&error),
                    message: Some(message_of(opt_out, &error)),
                };
            }
        }
    }

    /// Records that rows which must not be sent twice are about to be sent.
    async fn record_start(&self, rows: &[NumberedRow]) -> Result<(), Arc<io::Error>> {
        let Some(journal) = &self.journal else {
            return Ok(());
        };
        let strict = rows.iter().filter(|row| fails_on_conflict(row));
        let numbers: Vec<u64> = strict.map(|row| row.number).collect();
        if numbers.is_empty() {
            return Ok(());
        }
        let record = Record::Started(numbers.into_iter().collect());
        journal.append(&record).await
    }

    /// Records the outcomes that are final. A resumed import sends all other rows again.
    async fn record_end(&self, rows: &[(NumberedRow, RowOutcome)]) -> Result<(), Arc<io::Error>> {
        let Some(journal) = &self.journal else {
            return Ok(());
        };
        let is_final = |row: &NumberedRow, outcome: &RowOutcome| match outcome {
            RowOutcome::NotSent => false,
            RowOutcome::Unknown => fails_on_conflict(row),
            outcome => !is_quota_exceeded(outcome),
        };
        let finished: Vec<_> = rows
            .iter()
            .filter(|(row, outcome)| is_final(row, outcome))
            .collect();
        if finished.is_empty() {
            return Ok(());
        }
        let sum = finished.iter().fold(0_u64, |sum, (row, _)| {
            sum.wrapping_add(fingerprint(row.number, &row.row))
        });
        let outcomes = finished.iter().map(|(row, outcome)| (row.number, outcome));
        let record = Record::Finished(Finished::new(outcomes, sum));
        journal.append(&record).await
    }
}

fn with_outcome(rows: Vec<NumberedRow>, outcome: &RowOutcome) -> Vec<(NumberedRow, RowOutcome)> {
    rows.into_iter().map(|row| (row, outcome.clone())).collect()
}

fn fails_on_conflict(row: &NumberedRow) -> bool {
    row.row.contact().is_some_and(NewContact::fails_on_conflict)
}

fn is_quota_exceeded(outcome: &RowOutcome) -> bool {
    matches!(outcome, RowOutcome::Refused { code, .. } if *code == ErrorCode::QuotaExceeded)
}

/// Returns what the result of an entry means for its row.
fn outcome_of(entry: BatchEntry) -> RowOutcome {
    let retryable = entry.is_retryable();
    match entry.outcome {
        BatchOutcome::Created => RowOutcome::Created,
        BatchOutcome::Updated => RowOutcome::Updated,
        BatchOutcome::Skipped => RowOutcome::Skipped,
        BatchOutcome::Failed { code, message } => RowOutcome::Refused {
            code,
            message,
            retryable,
        },
        BatchOutcome::Unknown => RowOutcome::Unknown,
    }
}

/// Returns what a batch that failed as a whole means for each of its rows.
fn outcome_of_failure(error: &Error) -> RowOutcome {
    match error.outcome() {
        Outcome::Refused if is_refused_key(error) => RowOutcome::NotSent,
        Outcome::NotSent => RowOutcome::NotSent,
        Outcome::Unknown => RowOutcome::Unknown,
        Outcome::Refused => RowOutcome::Refused {
            code: code_of(error),
            message: error.api().and_then(|api| api.message()).map(str::to_owned),
            retryable: error.is_retryable(),
        },
    }
}

fn stop_of_failure(error: Error) -> Stop {
    if is_refused_key(&error) {
        Stop::Fatal(error)
    } else if error.is_quota_exceeded() {
        Stop::Quota
    } else {
        Stop::Failure(error)
    }
}

fn is_refused_key(error: &Error) -> bool {
    error.is_unauthorized() || error.is_key_not_permitted() || error.is_forbidden()
}

pub(super) fn unwritable(error: Arc<io::Error>) -> Error {
    Error::config("could not write the journal").caused_by(error)
}

/// Returns the slug of a refusal, or a word for any other failure.
fn code_of(error: &Error) -> ErrorCode {
    match (error.code(), error.status()) {
        (Some(code), _) => code.clone(),
        (None, Some(status)) => ErrorCode::from(format!("http_{}", status.as_u16())),
        (None, None) => ErrorCode::from("no_response"),
    }
}

fn message_of(opt_out: &OptOut, error: &Error) -> String {
    let what = match opt_out {
        OptOut::Everything(_) => "the opt-out of everything".to_owned(),
        OptOut::Topic(name) => format!("the opt-out of the topic {name:?}"),
    };
    format!("{what} was not recorded: {error}")
}
