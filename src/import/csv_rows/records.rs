//! Reads the records of a CSV file with their lines, in bounded memory.

use std::io::{self, Read};

use super::cells::{Parsed, line_ending, lines, parse};

/// The bytes to read at once.
const CHUNK: usize = 64 * 1024;
/// The longest record. A quote that is never closed must not swallow the rest of the file.
const MAX_RECORD: usize = 1024 * 1024;
/// How many bytes may be parsed in vain, for quotes that are never closed. Each of them can cost the longest record, so
/// without a limit a file made of such lines would keep a program busy for hours.
const MAX_IN_VAIN: usize = 1024 * 1024 * 1024;
/// How much of a line that is too long is kept.
const KEPT_OF_LONG_LINE: usize = 1_000;

/// A record, and the line on which it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) line: u64,
    pub(super) cells: Vec<Vec<u8>>,
    /// Why the cells could not be told apart. Then the whole line is the only cell.
    pub(super) problem: Option<&'static str>,
}

/// The records of a CSV file.
pub(super) struct Records {
    reader: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    /// Where the next record begins in the buffer, and its line.
    start: usize,
    line: u64,
    is_at_end: bool,
    /// The bytes that were parsed in vain.
    in_vain: usize,
    delimiter: u8,
    /// Where the header begins, while it may be read again.
    header: Option<(usize, u64)>,
}

impl Records {
    /// Reads the first bytes.
    pub(super) fn new(reader: Box<dyn Read + Send>) -> io::Result<Self> {
        let mut records = Self {
            reader,
            buffer: Vec::new(),
            start: 0,
            line: 1,
            is_at_end: false,
            in_vain: 0,
            delimiter: b',',
            header: Some((0, 1)),
        };
        records.fill(CHUNK)?;
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
            (self.start, self.line) = (start, line);
        }
        self.delimiter = delimiter;
        self.next()
    }

    /// Returns the line on which the next record begins.
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    /// Lets go of the header.
    pub(super) fn begin(&mut self) {
        self.header = None;
    }

    /// Reads the next record. Blank lines are skipped. After an error there are no more records.
    pub(super) fn next(&mut self) -> io::Result<Option<Record>> {
        loop {
            let bytes = &self.buffer[self.start..];
            match line_ending(bytes, self.is_at_end) {
                Some(0) if !bytes.is_empty() => {}
                Some(length @ 1..) => {
                    self.start += length;
                    self.line += 1;
                    continue;
                }
                _ if self.is_at_end => return Ok(None),
                _ => {
                    self.fill(CHUNK)?;
                    continue;
                }
            }
            match parse(bytes, self.delimiter, self.is_at_end) {
                Parsed::Record { cells, length } => {
                    return Ok(Some(self.take(length, cells, None)));
                }
                Parsed::Unfinished if self.is_at_end || bytes.len() >= MAX_RECORD => {
                    self.in_vain += bytes.len();
                    if self.in_vain > MAX_IN_VAIN {
                        self.is_at_end = true;
                        self.start = self.buffer.len();
                        return Err(io::Error::other("too many quotes are not closed"));
                    }
                    return self.take_line().map(Some);
                }
                // Twice as much each time, so that a long record is not parsed often.
                Parsed::Unfinished => {
                    let more = bytes.len().max(CHUNK);
                    self.fill(more)?;
                }
            }
        }
    }

    fn take(
        &mut self,
        length: usize,
        cells: Vec<Vec<u8>>,
        problem: Option<&'static str>,
    ) -> Record {
        let line = self.line;
        self.line += lines(&self.buffer[self.start..self.start + length]);
        self.start += length;
        Record {
            line,
            cells,
            problem,
        }
    }

    /// Takes one line, because the record that begins on it does not end.
    fn take_line(&mut self) -> io::Result<Record> {
        let bytes = &self.buffer[self.start..];
        let end = bytes
            .iter()
            .position(|byte| matches!(byte, b'\r' | b'\n'))
            .filter(|end| *end <= MAX_RECORD);
        if let Some(end) = end {
            let cell = bytes[..end].to_vec();
            let problem = "a quote in this line is not closed; close it, or write it twice";
            return Ok(self.take(end, vec![cell], Some(problem)));
        }
        let cell = bytes[..bytes.len().min(KEPT_OF_LONG_LINE)].to_vec();
        let problem = match bytes.len() <= MAX_RECORD {
            true => "a quote in this line is not closed; close it, or write it twice",
            false => "the line is longer than 1 MiB",
        };
        let line = self.line;
        self.skip_line()?;
        Ok(Record {
            line,
            cells: vec![cell],
            problem: Some(problem),
        })
    }

    /// Skips what is left of a line, up to its ending.
    fn skip_line(&mut self) -> io::Result<()> {
        loop {
            let bytes = &self.buffer[self.start..];
            let end = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
            self.start += end.unwrap_or(bytes.len());
            if end.is_some() || self.is_at_end {
                return Ok(());
            }
            self.fill(CHUNK)?;
        }
    }

    /// Reads this many more bytes, or to the end.
    fn fill(&mut self, more: usize) -> io::Result<()> {
        if self.header.is_none() {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        let limited = (&mut self.reader).take(more as u64);
        let read = { limited }.read_to_end(&mut self.buffer);
        match read {
            Ok(length) => {
                self.is_at_end = length < more;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: impl Into<Vec<u8>>) -> Vec<Record> {
        let reader = Box::new(io::Cursor::new(text.into()));
        let mut records = Records::new(reader).unwrap();
        records.begin();
        std::iter::from_fn(|| records.next().unwrap()).collect()
    }

    #[test]
    fn an_unclosed_quote_costs_one_line_and_not_the_rest_of_the_file() {
        let rows = "x,y\n".repeat(400_000);
        for rest in ["c,d\n", &rows] {
            let found = read(format!("a,b\n\"open,\n{rest}"));

            assert!(found[0].problem.is_none());
            assert_eq!(found[1].line, 2);
            assert!(found[1].problem.unwrap().contains("quote"));
            assert_eq!(found[1].cells, [b"\"open,"]);
            assert_eq!(found[2].line, 3);
            assert_eq!(found.len(), 2 + rest.lines().count());
            assert!(found[2..].iter().all(|record| record.problem.is_none()));
        }
    }

    #[test]
    fn a_file_of_quotes_that_are_never_closed_is_given_up() {
        // Each line opens a quote, whether it begins a record or continues one.
        let text = "a\"a,\"b\n".repeat(200_000);
        let mut records = Records::new(Box::new(io::Cursor::new(text))).unwrap();
        records.begin();
        records.in_vain = MAX_IN_VAIN - 5 * MAX_RECORD;

        let found: Vec<_> = std::iter::from_fn(|| records.next().transpose()).collect();

        let (last, rest) = found.split_last().unwrap();
        assert!(last.is_err());
        assert!((1..10).contains(&rest.len()));
        assert!(
            rest.iter()
                .all(|record| record.as_ref().unwrap().problem.is_some())
        );
    }

    #[test]
    fn a_line_that_never_ends_is_skipped_in_bounded_memory() {
        let long = "z".repeat(3 * MAX_RECORD);

        let found = read(format!("a,b\n{long}\nc,d\n\"{long}"));

        let lines: Vec<u64> = found.iter().map(|record| record.line).collect();
        assert_eq!(lines, [1, 2, 3, 4]);
        assert_eq!(found[1].cells[0].len(), KEPT_OF_LONG_LINE);
        assert!(found[1].problem.is_some() && found[3].problem.is_some());
        assert_eq!(found[2].cells, [b"c", b"d"]);
    }

    #[test]
    fn records_across_the_edges_of_what_is_read_at_once_are_whole() {
        for padding in CHUNK - 8..CHUNK + 8 {
            let text = format!("\"{}\",1\r\n\"2\r\n\",3\r\n", "p".repeat(padding));

            let found = read(text);

            let lines: Vec<u64> = found.iter().map(|record| record.line).collect();
            assert_eq!(lines, [1, 2], "{padding}");
            assert_eq!(found[1].cells, [&b"2\r\n"[..], b"3"]);
        }
    }
}
