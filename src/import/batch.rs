//! Sends one batch, and then the opt-outs of its rows.

use std::io;
use std::sync::Arc;

use super::journal::JournalWriter;
use super::pace::Watch;
use super::report::RowOutcome;
use super::row::{NumberedRow, OptOut};
use crate::client::{CallOptions, TakesOptions};
use crate::contacts::{BatchOutcome, Contacts, NewContact};
use crate::{Error, ErrorCode, Missing, Outcome};

/// The parts that all batches of an import share.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    contacts: Contacts,
    retries: Retries,
    journal: Option<JournalWriter>,
}

/// The settings of all requests of an import.
#[derive(Clone, Debug)]
struct Retries {
    patient: CallOptions,
    /// The options while the service is down: otherwise one batch after another would wait in vain.
    when_down: CallOptions,
}

impl Retries {
    /// Makes these options patient. A retry policy that the caller has set is used for every request.
    fn new(contacts: &Contacts, options: CallOptions) -> Self {
        let patient = contacts.patient(options.clone());
        // Equal policies mean that the caller has set one: it then applies to every request.
        let when_down = match patient.retry == options.retry {
            true => patient.clone(),
            false => options,
        };
        Self { patient, when_down }
    }
}

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
    pub(super) fn new(
        contacts: Contacts,
        options: CallOptions,
        journal: Option<JournalWriter>,
    ) -> Self {
        Self {
            retries: Retries::new(&contacts, options),
            contacts,
            journal,
        }
    }

    /// Sends the rows and their opt-outs, and records the outcomes in the journal.
    pub(super) async fn send(&self, rows: &[NumberedRow], watch: &Arc<Watch>) -> SentBatch {
        // On disk before the request: after a crash, a row with `OnConflict::Error` that may have been applied must not
        // be sent again, because it would be refused as a duplicate of itself.
        if let Err(error) = self.record_start(rows).await {
            return SentBatch::stopped(rows, RowOutcome::NotSent, unwritable(error));
        }
        let (mut sent, may_exist) = self.create(rows, watch).await;
        // Before the record: a row is finished only if its opt-outs are. A crash in between sends the row again.
        self.opt_out(rows, &may_exist, &mut sent, watch).await;
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
        // Asked for each request: another batch may have found out since that the service is back.
        let options = match watch.is_down() {
            true => &self.retries.when_down,
            false => &self.retries.patient,
        };
        CallOptions {
            watch: Some(watch.clone()),
            ..options.clone()
        }
    }

    /// Creates the contacts. Also returns, for each row, whether the service may have its contact now.
    async fn create(&self, rows: &[NumberedRow], watch: &Arc<Watch>) -> (SentBatch, Vec<bool>) {
        let batch: Vec<_> = rows.iter().filter_map(|row| row.row.contact()).collect();
        // Until the contacts exist, an import that is asked to stop may give up the request.
        watch.set_repeated_later(true);
        let result = self
            .contacts
            .batch_outcomes(&batch, self.options(watch))
            .await;
        // An opt-out is not given up: a resumed import does not send it again.
        watch.set_repeated_later(false);
        watch.request_ended(result.as_ref().err());
        self.record_hold(result.as_ref().err()).await;
        match result {
            Ok(results) => {
                let may_exist = results.iter().map(BatchOutcome::may_be_applied).collect();
                let results = rows.iter().zip(results);
                let outcomes: Vec<_> = results
                    .map(|(row, result)| outcome_of(row, result))
                    .collect();
                // One refused entry is enough: every later row would be refused, too.
                let is_quota = outcomes.iter().any(is_quota_exceeded);
                let stop = is_quota.then_some(Stop::Quota);
                (SentBatch { outcomes, stop }, may_exist)
            }
            Err(error) => {
                let sent = SentBatch {
                    outcomes: vec![outcome_of_failure(&error); rows.len()],
                    stop: Some(stop_of_failure(error.about(&name_of(rows)))),
                };
                (sent, vec![false; rows.len()])
            }
        }
    }

    /// Records the opt-outs of the rows whose contacts may exist, in their order. The first that fails becomes the
    /// outcome of its row; the others are tried nevertheless, unless the key was refused.
    async fn opt_out(
        &self,
        rows: &[NumberedRow],
        may_exist: &[bool],
        sent: &mut SentBatch,
        watch: &Arc<Watch>,
    ) {
        let mut refused_key = None;
        let rows_and_outcomes = rows.iter().zip(&mut sent.outcomes);
        for ((row, outcome), may_exist) in rows_and_outcomes.zip(may_exist) {
            // An opt-out must not get lost only because the service's status of the row is not known.
            if !may_exist {
                continue;
            }
            // As given: the call converts it, as in every other path.
            let address = row.row.contact().map_or("", |contact| &contact.email);
            for opt_out in row.row.opt_outs() {
                let recorded = match refused_key.take() {
                    // Another request with a refused key would be refused, too.
                    Some(error) => Err(error),
                    None => self.record_opt_out(address, opt_out, watch).await,
                };
                if let Err(error) = recorded {
                    // The service does not have the contact, as the status of the row says.
                    let is_refused_row = !outcome.is_applied()
                        && error.is_not_found()
                        && error.missing() != Some(Missing::Topic);
                    if !is_refused_row && !matches!(outcome, RowOutcome::OptOutFailed { .. }) {
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
        let result = call.options(self.options(watch)).apply().await;
        watch.request_ended(result.as_ref().err());
        self.record_hold(result.as_ref().err()).await;
        result.map(drop)
    }

    /// Records that a request failed because the service has asked to wait.
    async fn record_hold(&self, error: Option<&Error>) {
        // A request that an earlier 429 held back has the outcome `NotSent`. That 429 is recorded already.
        let refused = error.filter(|error| error.outcome() != Outcome::NotSent);
        let Some(wait) = refused
            .filter(|error| error.is_rate_limited())
            .and_then(Error::retry_after)
        else {
            return;
        };
        if let Some(journal) = &self.journal {
            // If the journal cannot be written, the record of the outcomes fails as well and ends the import.
            let _ = journal.record_hold(wait).await;
        }
    }

    /// Records that rows which must not be sent twice are about to be sent.
    async fn record_start(&self, rows: &[NumberedRow]) -> Result<(), Arc<io::Error>> {
        let Some(journal) = &self.journal else {
            return Ok(());
        };
        let strict = rows.iter().filter(|row| fails_on_conflict(row));
        journal
            .record_started(strict.map(|row| row.number).collect())
            .await
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
        // Otherwise a resumed import would report these rows as unknown instead of sending them.
        let not_applied = open.filter(|row| fails_on_conflict(row));
        journal
            .record_not_applied(not_applied.map(|row| row.number).collect())
            .await?;
        let finished = finished
            .into_iter()
            .map(|(row, outcome)| (row.number, &row.row, outcome));
        journal.record_finished(finished.collect()).await
    }
}

fn unwritable(error: Arc<io::Error>) -> Error {
    Error::config("could not write the journal").caused_by(error)
}

/// Why no further batch is started.
#[derive(Debug)]
pub(super) enum Stop {
    /// The plan's contact ceiling is crossed.
    Quota,
    /// The caller asked for it.
    Asked,
    /// Nothing more can be done: the key was refused, or the journal cannot be used.
    Fatal(Error),
    /// A batch failed permanently. It stops the import only if that was asked for.
    Failure(Error),
}

/// Returns what the result of an entry means for its row.
fn outcome_of(row: &NumberedRow, result: BatchOutcome) -> RowOutcome {
    let retryable = result.is_retryable() && !fails_on_conflict(row);
    match result {
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
        // The key was refused, not the rows: with another key they can be sent.
        Outcome::Refused if is_refused_key(error) => RowOutcome::NotSent,
        Outcome::NotSent => RowOutcome::NotSent,
        Outcome::Unchanged | Outcome::Unknown | Outcome::Applied => RowOutcome::Unknown,
        Outcome::Refused => RowOutcome::Refused {
            code: code_of(error),
            message: error.api().and_then(|api| api.message()).map(str::to_owned),
            retryable: error.is_retryable(),
        },
    }
}

/// Returns what the failure of a batch means for the import.
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

fn is_quota_exceeded(outcome: &RowOutcome) -> bool {
    matches!(outcome, RowOutcome::Refused { code, .. } if *code == ErrorCode::QuotaExceeded)
}

fn opt_out_failed(opt_out: &OptOut, error: &Error) -> RowOutcome {
    let what = match opt_out {
        OptOut::Everything(_) => "the opt-out of everything".to_owned(),
        OptOut::Topic(name) => format!("the opt-out of the topic {name:?}"),
    };
    RowOutcome::OptOutFailed {
        code: code_of(error),
        message: Some(format!("{what} was not recorded: {error}")),
    }
}

/// Returns whether a row must not be sent twice.
fn fails_on_conflict(row: &NumberedRow) -> bool {
    row.row.contact().is_some_and(NewContact::fails_on_conflict)
}

/// Returns whether an outcome is final. If it is not, a resumed import sends the row again.
///
/// `stop` is what the batch of the row means for the import.
pub(super) fn is_final(row: &NumberedRow, outcome: &RowOutcome, stop: Option<&Stop>) -> bool {
    match outcome {
        RowOutcome::Created | RowOutcome::Updated | RowOutcome::Skipped => true,
        RowOutcome::NotSent | RowOutcome::Valid => false,
        // Sending an upsert or a skip twice does no harm. A strict row would be refused because of its own first
        // attempt.
        RowOutcome::Unknown => fails_on_conflict(row),
        // A batch that was refused as a whole, for example by a rate limit.
        RowOutcome::Refused {
            retryable: true, ..
        } => !matches!(stop, Some(Stop::Failure(_))),
        refused @ RowOutcome::Refused { .. } => !is_quota_exceeded(refused),
        // With another key, it may be recorded.
        RowOutcome::OptOutFailed { .. } => {
            fails_on_conflict(row) || !matches!(stop, Some(Stop::Fatal(_)))
        }
    }
}

/// Returns the code of a refusal, or a word for any other failure.
fn code_of(error: &Error) -> ErrorCode {
    match (error.code(), error.status()) {
        (Some(code), _) => code.clone(),
        (None, Some(status)) => ErrorCode::from(format!("http_{}", status.as_u16())),
        (None, None) => ErrorCode::from("no_response"),
    }
}

/// Returns the name of a batch for people: the rows it covers, or their lines if they are known.
fn name_of(rows: &[NumberedRow]) -> String {
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
        return String::new();
    };
    match (first.row.line_number(), last.row.line_number()) {
        (Some(first), Some(last)) => format!("batch of lines {first} to {last}"),
        _ => format!("batch of rows {} to {}", first.number + 1, last.number + 1),
    }
}
