//! The text of a CSV file: its records, read in bounded memory, and the lines that this crate writes.

use std::borrow::Cow;
use std::io::{self, Read};

use csv_core::{ReadRecordResult, ReaderBuilder};

/// The bytes to read at once.
const CHUNK: usize = 64 * 1024;
/// The longest record. What follows in a longer one is read and forgotten.
const MAX_RECORD: usize = 1024 * 1024;

/// The columns of rejects before those of the input.
pub(in crate::import) const LEADING_COLUMNS: [&str; 4] = ["line", "code", "message", "retryable"];

/// A record, and the line on which it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) line: u64,
    /// Empty if there is a problem.
    pub(super) cells: Vec<Vec<u8>>,
    pub(super) problem: Option<Problem>,
}

/// Why the cells of a record are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    TooLong,
    /// The rest of the file is within the quotes, so this is the last record.
    UnclosedQuote,
}

impl Problem {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::TooLong => "the row is longer than 1 MiB, or a quote in it is not closed",
            Self::UnclosedQuote => {
                "a quote in this row is not closed, so the file could not be read from here on; close it, or write it twice"
            }
        }
    }
}

/// The records of a CSV file.
pub(super) struct Records {
    reader: Box<dyn Read + Send>,
    parser: csv_core::Reader,
    buffer: Vec<u8>,
    /// Where the next record begins in the buffer, and its line.
    start: usize,
    line: u64,
    /// Whether the byte before the next record is a CR, so that an LF belongs to it.
    is_after_cr: bool,
    is_at_end: bool,
    /// Where the header begins, while it may be read again.
    header: Option<(usize, u64)>,
    /// Room for the cells of one record, and where each of them ends.
    text: Vec<u8>,
    ends: Vec<usize>,
}

impl Records {
    /// Reads the first bytes.
    pub(super) fn new(reader: Box<dyn Read + Send>) -> io::Result<Self> {
        let mut records = Self {
            reader,
            parser: csv_core::Reader::new(),
            buffer: Vec::new(),
            start: 0,
            line: 1,
            is_after_cr: false,
            is_at_end: false,
            header: Some((0, 1)),
            text: vec![0; 1024],
            ends: vec![0; 32],
        };
        records.fill()?;
        Ok(records)
    }

    /// Returns the first bytes, for as long as no record was read.
    pub(super) fn head(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    /// Skips bytes before the header, in which this many lines end.
    pub(super) fn skip(&mut self, length: usize, lines: u64) {
        self.start += length;
        self.line += lines;
        self.header = Some((self.start, self.line));
    }

    /// Reads the header with this delimiter. It can be called again until [`begin`](Self::begin).
    pub(super) fn header(&mut self, delimiter: u8) -> io::Result<Option<Record>> {
        if let Some((start, line)) = self.header {
            (self.start, self.line, self.is_after_cr) = (start, line, false);
        }
        self.parser = ReaderBuilder::new().delimiter(delimiter).build();
        self.next()
    }

    /// Returns the line on which the next record begins.
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    /// Frees the header.
    pub(super) fn begin(&mut self) {
        self.header = None;
    }

    /// Reads the next record. Blank lines are skipped. After an error there are no more records.
    pub(super) fn next(&mut self) -> io::Result<Option<Record>> {
        if !self.skip_blank_lines()? {
            return Ok(None);
        }
        let line = self.line;
        let (mut taken, mut length, mut count) = (0, 0, 0);
        loop {
            if self.start == self.buffer.len() && !self.is_at_end {
                self.fill()?;
            }
            // The end of the file ends a record as a line ending does, unless that is within quotes.
            let is_last = self.start == self.buffer.len();
            let input = match is_last {
                true => b"\n",
                false => &self.buffer[self.start..],
            };
            let (text, ends) = (&mut self.text[length..], &mut self.ends[count..]);
            let (result, read, written, ended) = self.parser.read_record(input, text, ends);
            if !is_last {
                self.take(read);
            }
            taken += read;
            let is_too_long = taken > MAX_RECORD;
            (length, count) = match is_too_long {
                true => (0, 0),
                false => (length + written, count + ended),
            };
            let problem = match result {
                ReadRecordResult::InputEmpty if is_last => Some(Problem::UnclosedQuote),
                // All of the header is kept, so that another delimiter can be tried.
                _ if is_too_long && self.header.is_some() => Some(Problem::TooLong),
                ReadRecordResult::OutputFull if !is_too_long => {
                    self.text.resize(2 * self.text.len(), 0);
                    continue;
                }
                ReadRecordResult::OutputEndsFull if !is_too_long => {
                    self.ends.resize(2 * self.ends.len(), 0);
                    continue;
                }
                ReadRecordResult::InputEmpty
                | ReadRecordResult::OutputFull
                | ReadRecordResult::OutputEndsFull => continue,
                ReadRecordResult::Record | ReadRecordResult::End => {
                    is_too_long.then_some(Problem::TooLong)
                }
            };
            let cells = match problem {
                Some(_) => Vec::new(),
                None => self.cells(count),
            };
            return Ok(Some(Record {
                line,
                cells,
                problem,
            }));
        }
    }

    /// Returns the cells that were read last.
    fn cells(&self, count: usize) -> Vec<Vec<u8>> {
        let ends = &self.ends[..count];
        let starts = std::iter::once(&0).chain(ends);
        starts
            .zip(ends)
            .map(|(start, end)| self.text[*start..*end].to_vec())
            .collect()
    }

    /// Returns whether a record follows.
    fn skip_blank_lines(&mut self) -> io::Result<bool> {
        loop {
            let bytes = &self.buffer[self.start..];
            let endings = bytes.iter().take_while(|byte| is_line_ending(**byte));
            let (endings, available) = (endings.count(), bytes.len());
            self.take(endings);
            self.header = self.header.map(|_| (self.start, self.line));
            if endings < available {
                return Ok(true);
            }
            if self.is_at_end {
                return Ok(false);
            }
            self.fill()?;
        }
    }

    /// Goes past these bytes, and counts the lines that end in them as an editor does.
    fn take(&mut self, length: usize) {
        for byte in &self.buffer[self.start..self.start + length] {
            let ends_line = *byte == b'\r' || *byte == b'\n' && !self.is_after_cr;
            self.line += u64::from(ends_line);
            self.is_after_cr = *byte == b'\r';
        }
        self.start += length;
    }

    /// Reads more bytes, or to the end.
    fn fill(&mut self) -> io::Result<()> {
        let kept = self.header.map_or(self.start, |(start, _)| start);
        self.buffer.drain(..kept);
        self.start -= kept;
        self.header = self.header.map(|(_, line)| (0, line));
        let limited = (&mut self.reader).take(CHUNK as u64);
        let read = { limited }.read_to_end(&mut self.buffer);
        match read {
            Ok(length) => {
                self.is_at_end = length < CHUNK;
                Ok(())
            }
            Err(error) => {
                self.is_at_end = true;
                self.start = self.buffer.len();
                Err(error)
            }
        }
    }
}

fn is_line_ending(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}

/// Writes a line. A cell is in quotes if another program could read it as something else without them.
pub(crate) fn line(cells: impl ExactSizeIterator<Item: AsRef<str>>) -> String {
    let is_single = cells.len() == 1;
    let mut line = String::new();
    for (index, cell) in cells.enumerate() {
        if index > 0 {
            line.push(',');
        }
        let cell = cell.as_ref();
        // A line with one empty cell would be an empty line, which readers skip.
        if needs_quotes(cell) || (is_single && cell.is_empty()) {
            line.push('"');
            line.push_str(&cell.replace('"', "\"\""));
            line.push('"');
        } else {
            line.push_str(cell);
        }
    }
    line.push('\n');
    line
}

fn needs_quotes(cell: &str) -> bool {
    cell.contains([',', '"', '\n', '\r', ';', '\t', '|'])
        || cell.starts_with([' ', '\u{feff}'])
        || cell.ends_with(' ')
}

/// Puts an apostrophe before a cell that a spreadsheet would take for a formula. [`unescape`] is the reverse.
pub(crate) fn escape(cell: &str) -> Cow<'_, str> {
    match needs_apostrophe(cell) {
        true => format!("'{cell}").into(),
        false => cell.into(),
    }
}

/// Removes the apostrophe that [`escape`] added.
pub(super) fn unescape(cell: &str) -> &str {
    match cell.strip_prefix('\'') {
        Some(rest) if needs_apostrophe(rest) => rest,
        _ => cell,
    }
}

/// A number is no formula, although it may begin as one. A cell that has an apostrophe already gets another one, so
/// that none is lost when it is read again.
fn needs_apostrophe(cell: &str) -> bool {
    let begins_as_formula = cell
        .trim_start_matches('\'')
        .starts_with(['=', '+', '-', '@', '\t', '\r', '\n']);
    begins_as_formula && serde_json::from_str::<serde_json::Number>(cell).is_err()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: impl Into<Vec<u8>>) -> Vec<Record> {
        let reader = Box::new(io::Cursor::new(text.into()));
        let mut records = Records::new(reader).unwrap();
        records.begin();
        std::iter::from_fn(|| records.next().unwrap()).collect()
    }

    fn lines(records: &[Record]) -> Vec<u64> {
        records.iter().map(|record| record.line).collect()
    }

    #[test]
    fn a_record_has_the_line_on_which_it_begins_whatever_ends_a_line() {
        let found = read("a,b\r\n\r\n\"1\r\n2\",x\n\n\"\n\n\",y\rz\r\n");

        assert_eq!(lines(&found), [1, 3, 6, 9]);
    }

    #[test]
    fn a_quote_that_is_never_closed_is_one_problem_in_bounded_memory() {
        let rows = "x,y\n".repeat(2_000_000);
        for rest in ["", "c,d\n", &rows] {
            let found = read(format!("a,b\nc,\"open\n{rest}"));

            assert_eq!(lines(&found), [1, 2]);
            assert_eq!(found[0].problem, None);
            assert_eq!(found[1].problem, Some(Problem::UnclosedQuote));
        }
        let closed = read("a,\"b\"");
        assert_eq!(closed[0].cells, [b"a", b"b"]);
        assert_eq!(closed[0].problem, None);
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped_in_bounded_memory() {
        for long in ["z", "z,", "\"\""] {
            let long = long.repeat(3 * MAX_RECORD / long.len());
            let reader = Box::new(io::Cursor::new(format!("a,b\n\"{long}\"\nc,d\n{long}")));
            let mut records = Records::new(reader).unwrap();
            records.begin();

            let found: Vec<_> = std::iter::from_fn(|| records.next().unwrap()).collect();

            let problems: Vec<_> = found.iter().map(|record| record.problem).collect();
            let too_long = Some(Problem::TooLong);
            assert_eq!(problems, [None, too_long, None, too_long]);
            assert_eq!(found[2].cells, [b"c", b"d"]);
            assert!(records.text.len().max(records.ends.len()) <= 2 * MAX_RECORD);
            assert!(records.buffer.len() <= 2 * CHUNK);
        }
    }

    #[test]
    fn records_across_the_edges_of_what_is_read_at_once_are_whole() {
        for padding in CHUNK - 8..CHUNK + 8 {
            let text = format!("\"{}\",1\r\n\"2\r\n\",3\r\n", "p".repeat(padding));

            let found = read(text);

            assert_eq!(lines(&found), [1, 2], "{padding}");
            assert_eq!(found[1].cells, [&b"2\r\n"[..], b"3"]);
        }
    }

    #[test]
    fn formulas_get_an_apostrophe_and_numbers_do_not() {
        for cell in [
            "=1+1", "+49 351", "-", "@SUM(A1)", "\t=1", "\n=1", "'=1", "--1",
        ] {
            assert_eq!(escape(cell), format!("'{cell}"));
        }
        for cell in ["", "-5", "-0.5", "3", "a=b", "'s-Hertogenbosch", "O'Neill"] {
            assert_eq!(escape(cell), cell);
        }
    }

    proptest! {
        #[test]
        fn every_cell_that_was_escaped_is_read_back_as_it_was(cell in "['=+@\t1a.-]{0,6}") {
            let escaped = escape(&cell);

            prop_assert_eq!(unescape(&escaped), &cell);
        }

        #[test]
        fn every_line_that_was_written_is_read_back(cells in prop::collection::vec("[ab ,;\"\r\n\u{feff}]{0,4}", 1..4)) {
            let written = line(cells.iter());

            let found = read(format!("x\n{written}"));

            let expected: Vec<_> = cells.iter().map(|cell| cell.clone().into_bytes()).collect();
            prop_assert_eq!(&found[1].cells, &expected);
            prop_assert_eq!(found.len(), 2);
        }
    }
}
