//! What the records of a journal add up to. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::super::outcome::RowOutcome;
use super::fingerprint::Fingerprint;
use super::record::{Finished, Header, Record, RowNumbers};
use crate::contacts::MAX_BATCH;

/// What a journal says about the rows of an import.
#[derive(Clone, Debug, Default)]
pub(in crate::import) struct Resumed {
    header: Option<Header>,
    /// By the number of the first row.
    spans: BTreeMap<u64, Span>,
    batches: Vec<Batch>,
    /// Rows that were about to be sent, must not be sent twice, and are not finished.
    started: BTreeSet<u64>,
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
    rows_left: usize,
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
            Record::Import(header) if header.first_rows() > MAX_BATCH => {
                Err("the header is invalid")
            }
            Record::Import(header) => {
                self.header = Some(header);
                Ok(())
            }
            _ if self.header.is_none() => Err("it has no header"),
            Record::Started(rows) => {
                self.started.extend(numbers(&rows)?);
                Ok(())
            }
            Record::NotApplied(rows) => {
                for number in numbers(&rows)? {
                    self.started.remove(&number);
                }
                Ok(())
            }
            Record::Finished(finished) => self.add_finished(finished),
        }
    }

    fn add_finished(&mut self, finished: Finished) -> Result<(), &'static str> {
        let mut count = 0;
        for number in numbers(&finished.rows)? {
            if self.span(number).is_some() {
                return Err("it contains a row twice");
            }
            if finished.outcome(count).is_none() {
                return Err("the outcomes of a batch are invalid");
            }
            self.started.remove(&number);
            count += 1;
        }
        if finished.outcomes.len() != count {
            return Err("the outcomes of a batch are invalid");
        }
        let batch = self.batches.len();
        let mut offset = 0;
        for (first, last) in finished.rows.ranges() {
            let last = *last;
            let span = Span {
                last,
                batch,
                offset,
            };
            self.spans.insert(*first, span);
            offset += usize::try_from(last - first).map_or(0, |length| length + 1);
        }
        self.batches.push(Batch {
            finished,
            read: 0,
            rows_left: count,
        });
        Ok(())
    }

    /// Returns the span of a finished row with the number of its first row.
    fn span(&self, number: u64) -> Option<(u64, Span)> {
        let (first, span) = self.spans.range(..=number).next_back()?;
        (number <= span.last).then_some((*first, *span))
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
        let Some((first, span)) = self.span(number) else {
            return match self.started.contains(&number) {
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

/// Returns the numbers of a record's rows.
fn numbers(rows: &RowNumbers) -> Result<impl Iterator<Item = u64>, &'static str> {
    match rows.count() {
        None => Err("a range of rows is invalid"),
        Some(count) if count > MAX_BATCH as u64 => Err("a batch has too many rows"),
        Some(_) => Ok(rows
            .ranges()
            .iter()
            .flat_map(|(first, last)| *first..=*last)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fingerprint::fingerprint_of;
    use super::*;
    use crate::import::ImportRow;

    fn row() -> ImportRow {
        ImportRow::from("a@x.io")
    }

    fn fingerprint(number: u64) -> u64 {
        fingerprint_of([(number, &row())])
    }

    fn resumed(records: impl IntoIterator<Item = Record>) -> Result<Resumed, &'static str> {
        let mut resumed = Resumed::default();
        resumed.add(Record::Import(Header::new("s".to_owned(), &[])))?;
        for record in records {
            resumed.add(record)?;
        }
        Ok(resumed)
    }

    fn finished(rows: &[u64]) -> Record {
        let row = row();
        let outcomes = rows
            .iter()
            .map(|number| (*number, &row, &RowOutcome::Created));
        Record::Finished(Finished::new(outcomes))
    }

    #[test]
    fn finished_rows_are_not_sent_again_and_all_others_are() {
        let mut resumed = resumed([finished(&[0, 1, 4]), finished(&[2])]).unwrap();

        let rows: Vec<_> = (0..6)
            .map(|number| resumed.row(number, || fingerprint(number)))
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

        let mut row = |number| resumed.row(number, || fingerprint(number));
        assert_eq!(row(3), ResumedRow::Finished(RowOutcome::Created));
        assert_eq!(row(4), ResumedRow::Finished(RowOutcome::Unknown));
        assert_eq!(row(5), ResumedRow::ToSend);
    }

    #[test]
    fn started_rows_that_were_not_applied_are_sent_until_they_are_started_again() {
        let rows = || [3, 4].into_iter().collect::<RowNumbers>();
        let not_applied = [Record::Started(rows()), Record::NotApplied(rows())];
        let mut first = resumed(not_applied.clone()).unwrap();
        let again = not_applied.into_iter().chain([Record::Started(rows())]);
        let mut second = resumed(again).unwrap();

        assert_eq!(first.row(3, || 3), ResumedRow::ToSend);
        let unknown = ResumedRow::Finished(RowOutcome::Unknown);
        assert_eq!(second.row(3, || 3), unknown);
    }

    #[test]
    fn ranges_that_no_batch_can_have_make_the_journal_invalid() {
        for range in [
            "[0,18446744073709551615]",
            "[5,4]",
            "[0,100]",
            "[0,1],[1,2]",
        ] {
            for kind in ["started", "not_applied"] {
                let line = format!("{{\"{kind}\":[{range}]}}");
                let record: Record = serde_json::from_str(&line).unwrap();

                assert!(resumed([record]).is_err(), "{line}");
            }
            let finished =
                format!(r#"{{"finished":{{"rows":[{range}],"fingerprint":1,"outcomes":"c"}}}}"#);
            let record: Record = serde_json::from_str(&finished).unwrap();

            assert!(resumed([record]).is_err(), "{finished}");
        }
    }

    #[test]
    fn a_row_that_is_recorded_twice_makes_the_journal_invalid() {
        for records in [[&[0, 1][..], &[1]], [&[5], &[4, 5, 6]], [&[3, 4, 5], &[4]]] {
            assert!(resumed(records.map(finished)).is_err(), "{records:?}");
        }
    }
}
