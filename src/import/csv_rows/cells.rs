//! Splits one record of CSV into its cells. Pure.
//!
//! It reads as the `csv` crate does, and a test compares the two. It exists because that reader gives a
//! line number that no editor shows if lines end with CR LF or are blank, and reads to the end of the file
//! for a quote that is never closed.

/// What is at the beginning of some bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    /// A record, and how many bytes it takes, its line ending included.
    Record { cells: Vec<Vec<u8>>, length: usize },
    /// The record does not end in these bytes.
    Unfinished,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    CellStart,
    Plain,
    Quoted,
    /// After a quote within a quoted cell: it ends the cell, unless another quote follows.
    QuoteInQuoted,
}

/// Splits the first record. The bytes must not begin with a line ending. `is_all` says that no bytes follow.
pub(super) fn parse(bytes: &[u8], delimiter: u8, is_all: bool) -> Parsed {
    let mut cells = Vec::new();
    let mut cell = Vec::new();
    let mut state = State::CellStart;
    for (index, &byte) in bytes.iter().enumerate() {
        state = match (state, byte) {
            (State::Quoted, b'"') => State::QuoteInQuoted,
            (State::Quoted, _) => {
                cell.push(byte);
                State::Quoted
            }
            (State::CellStart, b'"') => State::Quoted,
            (State::QuoteInQuoted, b'"') => {
                cell.push(byte);
                State::Quoted
            }
            (_, b'\r' | b'\n') => {
                let Some(ending) = line_ending(&bytes[index..], is_all) else {
                    return Parsed::Unfinished;
                };
                cells.push(cell);
                let length = index + ending;
                return Parsed::Record { cells, length };
            }
            (_, _) if byte == delimiter => {
                cells.push(std::mem::take(&mut cell));
                State::CellStart
            }
            (_, _) => {
                cell.push(byte);
                State::Plain
            }
        };
    }
    if !is_all || state == State::Quoted {
        return Parsed::Unfinished;
    }
    cells.push(cell);
    let length = bytes.len();
    Parsed::Record { cells, length }
}

/// Returns the length of the line ending at the beginning; 0 if there is none. `None` if that depends on the
/// bytes that follow.
pub(super) fn line_ending(bytes: &[u8], is_all: bool) -> Option<usize> {
    match bytes {
        [b'\r', b'\n', ..] => Some(2),
        [b'\r'] if !is_all => None,
        [b'\r' | b'\n', ..] => Some(1),
        _ => Some(0),
    }
}

/// Returns how many lines end in these bytes, as an editor counts them.
pub(super) fn lines(bytes: &[u8]) -> u64 {
    let endings = bytes.iter().enumerate().filter(|(index, byte)| match byte {
        b'\n' => true,
        b'\r' => bytes.get(index + 1) != Some(&b'\n'),
        _ => false,
    });
    endings.count() as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All records, and the line on which each begins.
    fn parse_all(mut bytes: &[u8]) -> Vec<(u64, Vec<Vec<u8>>)> {
        let mut records = Vec::new();
        let mut line = 1;
        loop {
            while let Some(ending @ 1..) = line_ending(bytes, true) {
                bytes = &bytes[ending..];
                line += 1;
            }
            if bytes.is_empty() {
                return records;
            }
            let Parsed::Record { cells, length } = parse(bytes, b',', true) else {
                return records;
            };
            records.push((line, cells));
            line += lines(&bytes[..length]);
            bytes = &bytes[length..];
        }
    }

    #[test]
    fn a_record_has_the_line_on_which_it_begins_whatever_ends_a_line() {
        let text = b"a,b\r\n\r\n\"1\r\n2\",x\n\n\"\n\n\",y\rz\r\n";

        let found = parse_all(text);

        let lines: Vec<u64> = found.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [1, 3, 6, 9]);
    }

    #[test]
    fn a_record_that_may_go_on_is_unfinished() {
        for text in [&b"a,b"[..], b"a,b\r", b"a,\"b\n", b"\"a\"", b"\"a\"\""] {
            assert_eq!(parse(text, b',', false), Parsed::Unfinished);
        }
        assert_eq!(parse(b"a,\"b\n", b',', true), Parsed::Unfinished);
    }

    proptest! {
        #[test]
        fn cells_are_those_that_the_csv_crate_reads(text in "[ab,\"\r\n]{0,24}") {
            let is_closed = text.matches('"').count() % 2 == 0;
            prop_assume!(is_closed);
            let mut reader = csv::ReaderBuilder::new();
            let mut reader = reader.has_headers(false).flexible(true).from_reader(text.as_bytes());
            let expected: Vec<Vec<Vec<u8>>> = reader
                .byte_records()
                .map(|record| record.unwrap().iter().map(<[u8]>::to_vec).collect())
                .collect();

            let found: Vec<_> = parse_all(text.as_bytes()).into_iter().map(|(_, cells)| cells).collect();

            // A cell in the middle of which quotes stand may leave one open.
            prop_assume!(found.len() >= expected.len());
            prop_assert_eq!(found, expected);
        }
    }
}
