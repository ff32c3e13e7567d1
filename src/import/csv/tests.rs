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
    for long in ["z", "z,", ",", "\"\""] {
        let long = long.repeat(5 * MAX_RECORD / long.len());
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
fn a_line_of_the_longest_length_is_read_and_a_longer_one_is_not() {
    for (more, problem) in [(0, None), (1, Some(Problem::TooLong))] {
        let found = read("z".repeat(MAX_RECORD - 1 + more) + "\n");

        assert_eq!((found.len(), found[0].problem), (1, problem));
    }
}

#[test]
fn a_header_without_end_is_refused_after_the_longest_line() {
    let error = CsvRows::new(io::repeat(b'z')).unwrap_err();

    assert!(
        error.to_string().starts_with("the header is invalid: "),
        "{error}"
    );
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
fn text_after_a_closing_quote_is_found_across_the_edges_of_what_is_read_at_once() {
    for padding in CHUNK - 8..CHUNK + 8 {
        let padding = "p".repeat(padding);
        let text =
            format!("\"{padding}\",\"1\"\r\n\"{padding}\"x\r\n\"{padding}\"\"\"\r\n\"\r\n\"1");

        let found = read(text);

        let problems: Vec<_> = found.iter().map(|record| record.problem).collect();
        let text_after = |spans_lines| Some(Problem::TextAfterQuote { spans_lines });
        assert_eq!(problems, [None, text_after(false), None, text_after(true)]);
        assert_eq!(lines(&found), [1, 2, 3, 4]);
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

/// Returns every list of at most `length` of these parts.
fn lists<T: Clone>(parts: &[T], length: usize) -> Vec<Vec<T>> {
    let mut lists = vec![Vec::new()];
    let mut shorter = 0;
    for _ in 0..length {
        for list in std::mem::replace(&mut shorter, lists.len())..lists.len() {
            for part in parts {
                lists.push([&lists[list], std::slice::from_ref(part)].concat());
            }
        }
    }
    lists
}

fn texts(characters: &str, length: usize) -> Vec<String> {
    let characters: Vec<_> = characters.chars().collect();
    let texts = lists(&characters, length).into_iter();
    texts.map(String::from_iter).collect()
}

#[test]
fn every_cell_that_was_escaped_is_read_back_as_it_was() {
    for cell in texts("'=+@\t1a.-", 5) {
        let escaped = escape(&cell);

        assert_eq!(unescape(&escaped), cell);
    }
}

#[test]
fn every_line_that_was_written_is_read_back() {
    let characters = "ab ,;\"\r\n\u{feff}";
    for (cells, length) in [(1, 4), (2, 2), (3, 1)] {
        let mut lines = lists(&texts(characters, length), cells);
        lines.retain(|cells| !cells.is_empty());
        let written: String = lines.iter().map(|cells| line(cells.iter())).collect();

        let found = read(format!("x\n{written}"));

        assert_eq!(found.len(), lines.len() + 1);
        for (record, cells) in found[1..].iter().zip(lines) {
            let expected: Vec<_> = cells.into_iter().map(String::into_bytes).collect();
            assert_eq!(record.cells, expected);
        }
    }
}
