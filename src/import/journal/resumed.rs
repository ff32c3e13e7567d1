//! What the records of a journal add up to. Pure.

use std::collections::BTreeMap;

use super::super::RowOutcome;
use super::fingerprint::Fingerprint;
use super::record::{Finished, Header, Record, RowNumbers};

/// What a journal says about the rows of an import.
#[derive(Clone, Debug, Default)]
pub(in crate::import) struct Resumed {
    header: Option<Header>,
    /// By the number of the first row.
    spans: BTreeMap<u64, Span>,
    batches: Vec<Batch>,
    /// Ranges of rows that were about to be sent and must not be sent twice, by their first row.
    started: BTreeMap<u64, u64>,
}

/// Rows that follow each other in the input and in a batch.
#[derive(Clone, Copy, Debug)]
struct Span {
    last: u64,
    batch: usize,
    /// The place of the first row in its batch.
    offset: usize,
}

#[derive(Clone, Debug)]
struct Batch {
    finished: Finished,
    /// The sum of the fingerprints of the rows read so far.
    read: Fingerprint,
    rows_left: u64,
}

/// What a journal says about one row.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::import) enum ResumedRow {
    /// The row is to be sent.
    ToSend,
    /// The row is finished.
    Finished(RowOutcome),
    /// The journal belongs to another input: the rows of this batch are not those that it recorded.
    Mismatch,
}

impl Resumed {
    /// Adds the next record.
    ///
    /// # Errors
    ///
    /// What is wrong, if the record does not fit those before it.
    pub(super) fn add(&mut self, record: Record) -> Result<(), &'static str> {
        match record {
            Record::Import(_) if self.header.is_some() => Err("it has two headers"),
            Record::Import(header) => {
                self.header = Some(header);
                Ok(())
            }
            _ if self.header.is_none() => Err("it has no header"),
            Record::Started(rows) => {
                for (first, last) in rows.ranges() {
                    let end = self.started.entry(*first).or_insert(*last);
                    *end = (*end).max(*last);
                }
                Ok(())
            }
            Record::Finished(finished) => self.add_finished(finished),
        }
    }

    fn add_finished(&mut self, finished: Finished) -> Result<(), &'static str> {
        let batch = self.batches.len();
        let mut offset = 0_usize;
        for (first, last) in finished.rows.ranges().to_vec() {
            let before = self.spans.range(..=last).next_back();
            if last < first || before.is_some_and(|(_, span)| span.last >= first) {
                return Err("it contains a row twice");
            }
            let length = usize::try_from(last - first).map_err(|_| "a range is too long")? + 1;
            self.spans.insert(
                first,
                Span {
                    last,
                    batch,
                    offset,
                },
            );
            offset += length;
        }
        let is_valid = (0..offset.min(finished.outcomes.len() + 1))
            .all(|index| finished.outcome(index).is_some());
        if !is_valid || finished.outcomes.len() != offset {
            return Err("the outcomes of a batch are invalid");
        }
        self.batches.push(Batch {
            finished,
            read: 0,
            rows_left: offset as u64,
        });
        Ok(())
    }

    pub(in crate::import) fn header(&self) -> Option<&Header> {
        self.header.as_ref()
    }

    /// Returns whether nothing is recorded.
    pub(in crate::import) fn is_empty(&self) -> bool {
        self.header.is_none()
    }

    /// Returns what is known about the next row of the input. Rows must be asked for in order, once each.
    pub(in crate::import) fn row(
        &mut self,
        number: u64,
        fingerprint: impl FnOnce() -> Fingerprint,
    ) -> ResumedRow {
        let span = self.spans.range(..=number).next_back();
        let Some((first, span)) = span.filter(|(_, span)| number <= span.last) else {
            let started = self.started.range(..=number).next_back();
            return match started.is_some_and(|(_, last)| number <= *last) {
                true => ResumedRow::Finished(RowOutcome::Unknown),
                false => ResumedRow::ToSend,
            };
        };
        let index = span.offset + usize::try_from(number - first).unwrap_or(usize::MAX);
        let batch = &mut self.batches[span.batch];
        batch.read = batch.read.wrapping_add(fingerprint());
        batch.rows_left = batch.rows_left.saturating_sub(1);
        if batch.rows_left == 0 && batch.read != batch.finished.fingerprint {
            return ResumedRow::Mismatch;
        }
        match batch.finished.outcome(index) {
            Some(outcome) => ResumedRow::Finished(outcome),
            None => ResumedRow::Mismatch,
        }
    }

    /// Returns whether a finished row was not read: the input is shorter than the one the journal belongs to.
    pub(in crate::import) fn has_unread_rows(&self) -> bool {
        self.batches.iter().any(|batch| batch.rows_left > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resumed(records: impl IntoIterator<Item = Record>) -> Result<Resumed, &'static str> {
        let mut resumed = Resumed::default();
        resumed.add(Record::Import(Header::new("s".to_owned(), 0)))?;
        for record in records {
            resumed.add(record)?;
        }
        Ok(resumed)
    }

    fn finished(rows: &[u64]) -> Record {
        let outcomes = rows.iter().map(|number| (*number, &RowOutcome::Created));
        Record::Finished(Finished::new(outcomes, rows.iter().sum()))
    }

    #[test]
    fn finished_rows_are_not_sent_again_and_all_others_are() {
        let mut resumed = resumed([finished(&[0, 1, 4]), finished(&[2])]).unwrap();

        let rows: Vec<_> = (0..6)
            .map(|number| resumed.row(number, || number))
            .collect();

        let done = ResumedRow::Finished(RowOutcome::Created);
        let to_send = ResumedRow::ToSend;
        assert_eq!(
            rows,
            [&done, &done, &done, &to_send, &done, &to_send].map(Clone::clone)
        );
        assert!(!resumed.has_unread_rows());
    }

    #[test]
    fn rows_of_another_input_are_a_mismatch_at_the_end_of_their_batch() {
        let mut resumed = resumed([finished(&[0, 1])]).unwrap();

        assert!(matches!(resumed.row(0, || 77), ResumedRow::Finished(_)));
        assert_eq!(resumed.row(1, || 1), ResumedRow::Mismatch);
    }

    #[test]
    fn rows_that_were_started_but_not_finished_are_unknown() {
        let started = Record::Started([3, 4].into_iter().collect::<RowNumbers>());
        let mut resumed = resumed([started, finished(&[3])]).unwrap();

        assert_eq!(
            resumed.row(3, || 3),
            ResumedRow::Finished(RowOutcome::Created)
        );
        assert_eq!(
            resumed.row(4, || 4),
            ResumedRow::Finished(RowOutcome::Unknown)
        );
        assert_eq!(resumed.row(5, || 5), ResumedRow::ToSend);
    }

    #[test]
    fn a_row_that_is_recorded_twice_makes_the_journal_invalid() {
        for records in [[&[0, 1][..], &[1]], [&[5], &[4, 5, 6]], [&[3, 4, 5], &[4]]] {
            assert!(resumed(records.map(finished)).is_err(), "{records:?}");
        }
    }
}
