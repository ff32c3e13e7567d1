//! Files that the crate reads: CSV and the journal of an import.

use std::collections::{BTreeMap, BTreeSet};

use audience::contacts::{ContactSummary, OptOutReason, Properties};
use audience::export::{Csv, ExportColumn};
use audience::import::{Column, CsvInput, CsvRows, ImportRow, JournalText, OptOut};
use serde_json::{Number, Value};

/// Reads any CSV file, and splits it into cells once more. Then exports the contacts, and imports the export.
///
/// Input: the file.
pub fn csv(text: &[u8]) {
    let Ok(input) = CsvInput::new(std::io::Cursor::new(text.to_vec())) else {
        return;
    };
    let delimiter = u8::try_from(u32::from(input.delimiter_char())).expect("it is one byte");
    let columns: Vec<(String, Column)> = input
        .columns()
        .map(|(name, column)| (name.to_owned(), column.clone()))
        .collect();
    let Ok(rows) = input.rows() else {
        return;
    };
    let rows: Vec<ImportRow> = rows.collect();

    let plain = PlainRow::read_all(text, delimiter);
    let leading = ["line", "code", "message", "retryable"];
    let is_rejects = plain[0]
        .texts(0)
        .iter()
        .map(|name| name.trim())
        .take(4)
        .eq(leading);
    let leading = if is_rejects { 4 } else { 0 };
    let mut names = plain[0].texts(leading);
    let adds_opt_out = columns.len() > names.len();
    let opts_out = is_list_of_opt_outs(&names);
    assert!(opts_out || !adds_opt_out, "only then");
    if adds_opt_out {
        names.insert(0, "unsubscribed".to_owned());
    }
    assert_eq!(columns.len(), names.len());
    assert!(columns.iter().zip(&names).all(|((name, column), cell)| {
        let cell = unescaped(cell.trim(), leading);
        // In rejects, the meaning of a mapped column may stand after its name.
        let with = |meaning: String| format!("{name} ({meaning})").trim_start() == cell;
        let has_meaning = || with(column.to_string()) || with(format!("mapped to {column}"));
        name == cell || leading > 0 && has_meaning()
    }));
    let is_blank = |row: &&PlainRow| {
        row.is_readable && row.cells.iter().all(|cell| cell.trim_ascii().is_empty())
    };
    let plain = plain[1..].iter().filter(|row| !is_blank(row));
    let plain: Vec<&PlainRow> = plain.collect();
    assert_eq!(rows.len(), plain.len());
    for (row, plain) in rows.iter().zip(plain) {
        let mut texts: Vec<String> = match plain.is_readable {
            true => plain
                .texts(leading)
                .iter()
                .map(|text| unescaped(text, leading).to_owned())
                .collect(),
            false => Vec::new(),
        };
        if opts_out {
            let replaced = if adds_opt_out { 0 } else { texts.len().min(1) };
            texts.splice(..replaced, ["yes".to_owned()]);
            assert!(
                row.contact().is_none()
                    || row
                        .opt_outs()
                        .contains(&OptOut::Everything(OptOutReason::Manual))
            );
        } else if plain.is_readable && texts.len() != columns.len() {
            for (index, _) in columns
                .iter()
                .enumerate()
                .filter(|(_, (_, column))| column.is_consent())
            {
                let length = texts.len().max(index + 1);
                texts.resize(length, String::new());
                if texts[index].trim().is_empty() {
                    texts[index] = "?".to_owned();
                }
            }
        }
        assert_eq!(row.line_number(), Some(plain.line));
        assert_eq!(row.input_cells(), Some(&texts[..]));
        assert!(plain.is_readable || row.contact().is_none());
        if row.contact().is_some() {
            check_row(row, &columns, &texts);
        }
    }
    // One is enough, because an export takes longer than all else.
    if let Some(row) = rows.iter().rfind(|row| row.contact().is_some()) {
        check_export(row);
    }
}

/// Whether these are the columns of Mailchimp's file of unsubscribed or cleaned contacts.
fn is_list_of_opt_outs(names: &[String]) -> bool {
    let has = |wanted: &str| {
        let mut names = names.iter().map(|name| {
            let letters = name.chars().filter(|letter| letter.is_alphanumeric());
            letters.flat_map(char::to_lowercase).collect::<String>()
        });
        names.any(|name| name == wanted)
    };
    has("leid") && has("euid") && (has("unsubtime") || has("cleantime"))
}

/// A record of a CSV file, read byte by byte.
struct PlainRow {
    line: u64,
    cells: Vec<Vec<u8>>,
    /// Whether no quote is open at the end, and no text follows a closing one.
    is_readable: bool,
}

impl PlainRow {
    fn read_all(text: &[u8], delimiter: u8) -> Vec<Self> {
        let without_mark = |text| <[u8]>::strip_prefix(text, b"\xef\xbb\xbf").unwrap_or(text);
        let unmarked = without_mark(text);
        let (mut rest, mut line) = (unmarked, 1);
        if let [
            b's' | b'S',
            b'e' | b'E',
            b'p' | b'P',
            b'=',
            found,
            b'\r' | b'\n',
            ..,
        ] = unmarked
            && *found == delimiter
        {
            let ending = if unmarked[5..].starts_with(b"\r\n") {
                2
            } else {
                1
            };
            (rest, line) = (&unmarked[5 + ending..], 2);
        }
        let mut is_first = true;
        let mut rows = Vec::new();
        loop {
            while let [b'\r' | b'\n', after @ ..] = rest {
                let before = unmarked[..unmarked.len() - rest.len()].last();
                // The second half of CR LF ends no line of its own.
                line += u64::from(rest[0] != b'\n' || before != Some(&b'\r'));
                rest = after;
            }
            if rest.is_empty() {
                return rows;
            }
            // The first record may begin with a second mark, as in a file that was put together of others.
            if std::mem::take(&mut is_first) && rest.len() > without_mark(rest).len() {
                rest = without_mark(rest);
                continue;
            }
            let (row, length) = Self::read(rest, delimiter, line);
            let record = String::from_utf8_lossy(&rest[..length]).replace("\r\n", "\n");
            line += record
                .bytes()
                .filter(|byte| matches!(byte, b'\r' | b'\n'))
                .count() as u64;
            rest = &rest[length..];
            rows.push(row);
        }
    }

    /// Reads a record up to its line ending. Returns it with its length.
    fn read(text: &[u8], delimiter: u8, line: u64) -> (Self, usize) {
        let (mut cells, mut cell, mut at) = (Vec::new(), Vec::new(), 0);
        let mut is_readable = true;
        loop {
            // A cell is quoted only if it begins with a quote.
            if text.get(at) == Some(&b'"') {
                at += 1;
                loop {
                    match text[at..] {
                        [b'"', b'"', ..] => {
                            cell.push(b'"');
                            at += 2;
                        }
                        [b'"', ref after @ ..] => {
                            at += 1;
                            let next = after.first();
                            is_readable &= next
                                .is_none_or(|byte| *byte == delimiter || b"\r\n".contains(byte));
                            break;
                        }
                        [byte, ..] => {
                            cell.push(byte);
                            at += 1;
                        }
                        [] => {
                            let is_readable = false;
                            return (
                                Self {
                                    line,
                                    cells: Vec::new(),
                                    is_readable,
                                },
                                at,
                            );
                        }
                    }
                }
            }
            while let Some(byte) = text
                .get(at)
                .filter(|byte| **byte != delimiter && !b"\r\n".contains(byte))
            {
                cell.push(*byte);
                at += 1;
            }
            cells.push(std::mem::take(&mut cell));
            if text.get(at) != Some(&delimiter) {
                return (
                    Self {
                        line,
                        cells,
                        is_readable,
                    },
                    at,
                );
            }
            at += 1;
        }
    }

    fn texts(&self, leading: usize) -> Vec<String> {
        let cells = self.cells.iter().skip(leading);
        cells
            .map(|cell| String::from_utf8_lossy(cell).into_owned())
            .collect()
    }
}

/// Removes the apostrophe that rejects have before a formula.
fn unescaped(text: &str, leading: usize) -> &str {
    let rest = text.strip_prefix('\'').filter(|_| leading > 0);
    let is_formula = |rest: &&str| {
        let first = rest.trim_start_matches('\'').chars().next();
        first.is_some_and(|first| "=+-@\t\r\n".contains(first))
            && serde_json::from_str::<Number>(rest).is_err()
    };
    rest.filter(is_formula).unwrap_or(text)
}

/// Compares a row with its cells. Above all, no opt-out may be lost.
fn check_row(row: &ImportRow, columns: &[(String, Column)], cells: &[String]) {
    let contact = serde_json::to_value(row.contact()).expect("a contact is JSON");
    assert_eq!(cells.len(), columns.len());
    let opts_out_of = |wanted: &str| {
        let mut opt_outs = row.opt_outs().iter();
        opt_outs.any(|opt_out| {
            let topic = if let OptOut::Topic(name) = opt_out {
                name.as_str()
            } else {
                ""
            };
            topic == wanted
        })
    };
    let has_all_properties = columns
        .iter()
        .any(|(_, column)| *column == Column::Properties);
    for ((_, column), cell) in columns.iter().zip(cells) {
        let cell = cell.trim();
        let word = cell.to_lowercase();
        let is_yes = ["true", "yes", "y", "t", "1", "x"].contains(&word.as_str());
        let is_no = ["false", "no", "n", "f", "0"].contains(&word.as_str());
        match column {
            Column::Email => assert_eq!(contact["email"], cell),
            Column::FirstName if !cell.is_empty() => assert_eq!(contact["first_name"], cell),
            Column::LastName if !cell.is_empty() => assert_eq!(contact["last_name"], cell),
            Column::Property(name) if !cell.is_empty() && !has_all_properties => {
                match &contact["properties"][name] {
                    Value::String(text) => assert_eq!(text, cell),
                    number => assert_eq!(number.to_string(), cell),
                }
            }
            Column::Unsubscribed => assert!(!is_yes || opts_out_of("")),
            Column::Subscribed => assert!(!is_no || opts_out_of("")),
            Column::UnsubscribeReason => assert!(word != "manual" || opts_out_of("")),
            Column::Topic(name) => assert!(!is_no || opts_out_of(name)),
            Column::Topics => {
                let answers: BTreeMap<String, bool> =
                    serde_json::from_str(cell).unwrap_or_default();
                assert!(
                    answers
                        .iter()
                        .all(|(name, answer)| *answer || opts_out_of(name))
                );
            }
            Column::Key => assert_eq!(row.key_text().unwrap_or_default(), cell),
            _ => {}
        }
    }
}

/// Exports the contact of a row, and expects it in an import of the export.
fn check_export(row: &ImportRow) {
    let contact = row.contact().expect("the row has a contact");
    let json = serde_json::to_value(contact).expect("a contact is JSON");
    let mut exported = ContactSummary::new("con_1", &*contact.email);
    exported.first_name = json["first_name"].as_str().map(str::to_owned);
    let mut properties = json["properties"].as_object().cloned().unwrap_or_default();
    // White space around a cell is removed, in the header too.
    properties.retain(|name, _| !name.is_empty() && name.trim() == name);
    let own: Result<Properties, _> = serde_json::from_value(Value::from(properties.clone()));
    exported.properties = own.expect("they are JSON of properties");
    let names = properties
        .keys()
        .map(|name| ExportColumn::Property(name.clone()));
    let fixed = [
        ExportColumn::Email,
        ExportColumn::FirstName,
        ExportColumn::Unsubscribed,
    ];
    let csv = Csv::new(fixed.into_iter().chain(names));
    let file = format!("{}{}", csv.header(), csv.line(&exported));

    // A name may have delimiters in it, so the delimiter is not guessed.
    let Ok(input) =
        CsvInput::new(std::io::Cursor::new(file.clone())).and_then(|input| input.delimiter(','))
    else {
        // A file with zero bytes is not taken for text.
        assert!(file.contains('\0'), "{file}");
        return;
    };
    let mut rows: CsvRows = input
        .rows()
        .unwrap_or_else(|error| panic!("{error}: {file}"));
    let again = rows.next().expect("the export has a row");
    assert_eq!(rows.count(), 0, "{file}");
    let again = serde_json::to_value(again.contact()).expect("a contact is JSON");
    assert_eq!(again["email"], json["email"], "{file}");
    assert_eq!(again["first_name"], json["first_name"], "{file}");
    for (name, value) in &properties {
        let text = |value: &Value| {
            value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned)
        };
        let expected = text(value);
        if !expected.trim().is_empty() {
            assert_eq!(
                text(&again["properties"][name]).trim(),
                expected.trim(),
                "{file}"
            );
        }
    }
}

/// Reads any journal, and once more with `serde_json`. Then damages what the writer writes for it.
///
/// Input: the file.
pub fn journal(text: &[u8]) {
    let Ok(mut read) = JournalText::read(text) else {
        return;
    };
    let complete = text
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |end| end + 1);
    assert_eq!(read.records_length(), complete as u64);
    let records = read.records();
    let lines: Vec<&[u8]> = text[..complete]
        .split_inclusive(|byte| *byte == b'\n')
        .collect();
    check_rows(&mut read, &lines);

    let written = lines
        .iter()
        .map(|line| JournalText::rewritten(line).expect("each line is a record"));
    let written: Vec<Vec<u8>> = written.collect();
    let file = written.concat();
    let again = JournalText::read(&file).expect("a journal that was written can be read");
    assert_eq!(
        (again.records_length(), again.records()),
        (file.len() as u64, records)
    );
    for quarter in 1..4 {
        check_torn(&file, file.len() * quarter / 4);
    }
    // The first line of many: a line that ends too early is no torn end.
    if let [first, rest @ ..] = &written[..]
        && !rest.is_empty()
    {
        let damaged = [&first[..first.len() - 2], b" \n", &rest.concat()].concat();
        assert!(JournalText::read(&damaged).is_err());
    }
}

/// A crash cuts the file, or leaves zeros in it. Only the record that was being written may be lost.
fn check_torn(file: &[u8], length: usize) {
    let torn = &file[..length];
    let complete = torn
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |end| end + 1);
    let read = JournalText::read(torn).expect("a torn end is no damage");
    let expected = JournalText::read(&torn[..complete]).expect("complete records are no damage");
    assert_eq!(
        (read.records_length(), read.records()),
        (complete as u64, expected.records())
    );
    if complete > 0 {
        let read = JournalText::read(&[torn, &[0; 5]].concat()).expect("zeros are no damage");
        assert_eq!(
            (read.records_length(), read.records()),
            (complete as u64, expected.records())
        );
    }
}

/// What the records of a journal say about the rows.
#[derive(Default)]
struct PlainRows {
    started: BTreeSet<u64>,
    finished: BTreeMap<u64, u8>,
    opt_outs_left: BTreeMap<u64, u64>,
    /// The fingerprint of a batch, by its first row. All other rows count as 0.
    fingerprints: BTreeMap<u64, u64>,
}

/// Compares what is known about each row with a plain reading.
fn check_rows(read: &mut JournalText, lines: &[&[u8]]) {
    let mut rows = PlainRows::default();
    if lines.iter().any(|line| rows.add(line).is_none()) {
        // `serde` reads a record from an array too. The writer writes none.
        return;
    }
    let mut numbers: BTreeSet<u64> = rows.started.iter().copied().collect();
    numbers.extend(rows.finished.keys().chain(rows.opt_outs_left.keys()));
    numbers.extend([0, 1_000_000]);
    for number in numbers {
        let left = rows.opt_outs_left.get(&number);
        let fingerprint = left
            .or(rows.fingerprints.get(&number))
            .copied()
            .unwrap_or(0);
        let expected = match (left, rows.finished.get(&number)) {
            (Some(_), _) => "OptOutsLeft(",
            (_, Some(b'c')) => "Finished(Created)",
            (_, Some(b'u')) => "Finished(Updated)",
            (_, Some(b's')) => "Finished(Skipped)",
            (_, Some(b'x')) => "Finished(Unknown)",
            (_, Some(b'r')) => "Finished(Refused",
            (_, Some(b'o')) => "Finished(OptOutFailed",
            (_, Some(letter)) => panic!("an outcome {letter}"),
            _ if rows.started.contains(&number) => "Started",
            _ => "ToSend",
        };
        let found = read.row(number, fingerprint);
        assert!(
            found.starts_with(expected),
            "{number}: {found} in place of {expected}"
        );
    }
}

impl PlainRows {
    /// Adds a record. Returns `None` if it has another form than the writer gives it.
    fn add(&mut self, line: &[u8]) -> Option<()> {
        self.add_record(&serde_json::from_slice(line).ok()?)
    }

    fn add_record(&mut self, record: &Value) -> Option<()> {
        let (kind, value) = record.as_object()?.iter().next()?;
        match kind.as_str() {
            "started" => self.started.extend(numbers(value)?),
            "not_applied" => {
                let applied = numbers(value)?;
                self.started.retain(|number| !applied.contains(number));
            }
            "finished" => {
                let batch = value.as_object()?;
                let rows = numbers(batch.get("rows")?)?;
                let outcomes = batch.get("outcomes")?.as_str()?.as_bytes();
                for (number, letter) in rows.iter().zip(outcomes) {
                    self.started.remove(number);
                    self.opt_outs_left.remove(number);
                    self.finished.insert(*number, *letter);
                }
                let fingerprint = batch.get("fingerprint")?.as_u64()?;
                self.fingerprints
                    .extend(rows.first().map(|first| (*first, fingerprint)));
            }
            "batch" => {
                for record in value.as_array()? {
                    self.add_record(record)?;
                }
            }
            "opt_outs_left" => {
                for row in value.as_array()? {
                    let row = row.as_object()?;
                    let number = row.get("row")?.as_u64()?;
                    self.started.remove(&number);
                    self.opt_outs_left
                        .insert(number, row.get("fingerprint")?.as_u64()?);
                }
            }
            _ => {}
        }
        Some(())
    }
}

/// Returns the numbers in ranges, both ends included.
fn numbers(ranges: &Value) -> Option<Vec<u64>> {
    let mut numbers = Vec::new();
    for range in ranges.as_array()? {
        let (first, last) = (range.get(0)?.as_u64()?, range.get(1)?.as_u64()?);
        numbers.extend(first..=last);
    }
    Some(numbers)
}
