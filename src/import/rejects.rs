//! The rows that were not applied in full, as CSV.

use std::io::{self, Write};

use super::outcome::RowOutcome;
use super::row::ImportRow;

/// Writes rejects: `line, code, message, retryable`, then the cells of the input.
pub(super) struct Rejects {
    writer: csv::Writer<Box<dyn Write + Send>>,
    result: io::Result<()>,
}

impl Rejects {
    pub(super) fn new(file: Box<dyn Write + Send>) -> Self {
        let writer = csv::WriterBuilder::new().flexible(true).from_writer(file);
        Self {
            writer,
            result: Ok(()),
        }
    }

    pub(super) fn write(&mut self, row: &ImportRow, outcome: &RowOutcome) {
        if outcome.is_applied() || self.result.is_err() {
            return;
        }
        let line = row.line_number().map(|line| line.to_string());
        let mut cells = vec![
            line.unwrap_or_default(),
            outcome.code().to_owned(),
            outcome.message().unwrap_or_default().to_owned(),
            outcome.is_retryable().to_string(),
        ];
        match (row.input_cells(), row.contact()) {
            (Some(input), _) => cells.extend_from_slice(input),
            (None, Some(contact)) => cells.push(contact.email().to_owned()),
            (None, None) => {}
        }
        self.result = self.writer.write_record(&cells).map_err(io::Error::from);
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        self.result?;
        self.writer.flush()
    }
}
