//! What a batch that has ended means for each of its rows. Pure.

use super::outcome::RowOutcome;
use super::row::{NumberedRow, OptOut};
use crate::contacts::{BatchEntry, BatchOutcome, NewContact};
use crate::{Error, ErrorCode, Outcome};

/// Why no further batch is started.
#[derive(Debug)]
pub(super) enum Stop {
    /// The plan's contact ceiling is crossed.
    Quota,
    /// The caller asked for it.
    Asked,
    /// Nothing more can be done: the key was refused, or the journal cannot be used.
    Fatal(Error),
    /// A batch failed for good. It stops the import only if that was asked for.
    Failure(Error),
}

/// Returns what the result of an entry means for its row.
pub(super) fn outcome_of(entry: BatchEntry) -> RowOutcome {
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
pub(super) fn outcome_of_failure(error: &Error) -> RowOutcome {
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

/// Returns what the failure of a batch means for the import.
pub(super) fn stop_of_failure(error: Error) -> Stop {
    if is_refused_key(&error) {
        Stop::Fatal(error)
    } else if error.is_quota_exceeded() {
        Stop::Quota
    } else {
        Stop::Failure(error)
    }
}

pub(super) fn is_refused_key(error: &Error) -> bool {
    error.is_unauthorized() || error.is_key_not_permitted() || error.is_forbidden()
}

pub(super) fn is_quota_exceeded(outcome: &RowOutcome) -> bool {
    matches!(outcome, RowOutcome::Refused { code, .. } if *code == ErrorCode::QuotaExceeded)
}

/// Returns the outcome of a row whose opt-out failed.
pub(super) fn opt_out_failed(opt_out: &OptOut, error: &Error) -> RowOutcome {
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
pub(super) fn fails_on_conflict(row: &NumberedRow) -> bool {
    row.row.contact().is_some_and(NewContact::fails_on_conflict)
}

/// Returns whether an outcome is final. If it is not, a resumed import sends the row again.
///
/// `stop` is what the batch of the row means for the import.
pub(super) fn is_final(row: &NumberedRow, outcome: &RowOutcome, stop: Option<&Stop>) -> bool {
    match outcome {
        RowOutcome::Created | RowOutcome::Updated | RowOutcome::Skipped => true,
        RowOutcome::NotSent | RowOutcome::Valid => false,
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

/// Returns the slug of a refusal, or a word for any other failure.
fn code_of(error: &Error) -> ErrorCode {
    match (error.code(), error.status()) {
        (Some(code), _) => code.clone(),
        (None, Some(status)) => ErrorCode::from(format!("http_{}", status.as_u16())),
        (None, None) => ErrorCode::from("no_response"),
    }
}

/// Returns the name of a batch for people: the rows it covers, or their lines if they are known.
pub(super) fn name_of(rows: &[NumberedRow]) -> String {
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
        return String::new();
    };
    match (first.row.line_number(), last.row.line_number()) {
        (Some(first), Some(last)) => format!("batch of lines {first} to {last}"),
        _ => format!("batch of rows {} to {}", first.number + 1, last.number + 1),
    }
}
