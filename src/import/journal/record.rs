//! The lines of a journal: one JSON object each.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::super::outcome::RowOutcome;
use super::super::row::ImportRow;
use super::fingerprint::{Fingerprint, fingerprint_of};
use crate::ErrorCode;

/// The version of the format.
const VERSION: u32 = 1;

/// One line of a journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::import) enum Record {
    /// The first line: which import the journal belongs to.
    Import(Header),
    /// Rows that must not be sent twice are about to be sent.
    Started(RowNumbers),
    /// Started rows were certainly not applied, so they may be sent again.
    NotApplied(RowNumbers),
    /// A batch is finished.
    Finished(Finished),
}

/// Which import a journal belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::import) struct Header {
    version: u32,
    /// The base URL of the service.
    service: String,
    /// How many of the first rows the fingerprint covers.
    first_rows: usize,
    fingerprint: Fingerprint,
}

impl Header {
    /// Creates the header for an import into this service that begins with these rows.
    pub(in crate::import) fn new(service: String, first_rows: &[ImportRow]) -> Self {
        Self {
            version: VERSION,
            service,
            first_rows: first_rows.len(),
            fingerprint: fingerprint_of((0..).zip(first_rows)),
        }
    }

    /// Returns how many of the first rows the header covers.
    pub(in crate::import) fn first_rows(&self) -> usize {
        self.first_rows
    }

    /// Returns why a journal with this header cannot continue the import with the other; `None` if it can.
    pub(in crate::import) fn mismatch(&self, import: &Self) -> Option<&'static str> {
        if self.version != import.version {
            Some("it was written by another version of this crate")
        } else if self.service != import.service {
            Some("it belongs to an import into another service")
        } else if (self.first_rows, self.fingerprint) != (import.first_rows, import.fingerprint) {
            Some("it belongs to other rows")
        } else {
            None
        }
    }
}

/// The numbers of rows: ranges from a first to a last one, both included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(in crate::import) struct RowNumbers(Vec<(u64, u64)>);

impl RowNumbers {
    pub(super) fn ranges(&self) -> &[(u64, u64)] {
        &self.0
    }

    /// Returns how many rows there are; `None` if a range is invalid or they are not in order.
    pub(super) fn count(&self) -> Option<u64> {
        let is_ordered = self.0.windows(2).all(|pair| pair[0].1 < pair[1].0);
        let count = self.0.iter().try_fold(0_u64, |sum, (first, last)| {
            let length = last.checked_sub(*first)?.checked_add(1)?;
            sum.checked_add(length)
        });
        count.filter(|_| is_ordered)
    }
}

impl FromIterator<u64> for RowNumbers {
    fn from_iter<I: IntoIterator<Item = u64>>(numbers: I) -> Self {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for number in numbers {
            match ranges.last_mut() {
                Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
                _ => ranges.push((number, number)),
            }
        }
        Self(ranges)
    }
}

/// The outcomes of the rows of a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::import) struct Finished {
    pub(super) rows: RowNumbers,
    pub(super) fingerprint: Fingerprint,
    /// One letter for each row, in the order of the rows.
    pub(super) outcomes: String,
    /// What the letter alone does not say, by the place of the row in the batch.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) details: BTreeMap<usize, Detail>,
}

/// Why a row was not applied in full.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Detail {
    code: ErrorCode,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(default)]
    retryable: bool,
}

impl Finished {
    pub(in crate::import) fn new<'a>(
        rows: impl IntoIterator<Item = (u64, &'a ImportRow, &'a RowOutcome)>,
    ) -> Self {
        let mut outcomes = String::new();
        let mut details = BTreeMap::new();
        let mut numbers = Vec::new();
        let mut fingerprint: Fingerprint = 0;
        for (index, (number, row, outcome)) in rows.into_iter().enumerate() {
            numbers.push(number);
            fingerprint = fingerprint.wrapping_add(fingerprint_of([(number, row)]));
            let (letter, detail) = write(outcome);
            outcomes.push(letter);
            if let Some(detail) = detail {
                details.insert(index, detail);
            }
        }
        Self {
            rows: numbers.into_iter().collect(),
            fingerprint,
            outcomes,
            details,
        }
    }

    /// Returns the outcome of the row at this place; `None` if the record is not valid.
    pub(super) fn outcome(&self, index: usize) -> Option<RowOutcome> {
        let letter = *self.outcomes.as_bytes().get(index)?;
        let detail = self.details.get(&index).cloned();
        Some(match letter {
            b'c' => RowOutcome::Created,
            b'u' => RowOutcome::Updated,
            b's' => RowOutcome::Skipped,
            b'x' => RowOutcome::Unknown,
            b'r' => {
                let detail = detail?;
                RowOutcome::Refused {
                    code: detail.code,
                    message: detail.message,
                    retryable: detail.retryable,
                }
            }
            b'o' => {
                let detail = detail?;
                RowOutcome::OptOutFailed {
                    code: detail.code,
                    message: detail.message,
                }
            }
            _ => return None,
        })
    }
}

fn write(outcome: &RowOutcome) -> (char, Option<Detail>) {
    match outcome {
        RowOutcome::Created => ('c', None),
        RowOutcome::Updated => ('u', None),
        RowOutcome::Skipped => ('s', None),
        RowOutcome::Unknown | RowOutcome::NotSent | RowOutcome::Valid => ('x', None),
        RowOutcome::Refused {
            code,
            message,
            retryable,
        } => {
            let detail = Detail {
                code: code.clone(),
                message: message.clone(),
                retryable: *retryable,
            };
            ('r', Some(detail))
        }
        RowOutcome::OptOutFailed { code, message } => {
            let detail = Detail {
                code: code.clone(),
                message: message.clone(),
                retryable: true,
            };
            ('o', Some(detail))
        }
    }
}
