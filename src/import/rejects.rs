//! The rows that were not applied in full, as CSV.

use std::io::{self, BufWriter, Write};

use super::csv::{LEADING_COLUMNS, escape, line};
use super::report::RowOutcome;
use super::row::{ImportRow, OptOut};
use crate::contacts::NewContact;

/// The columns of rows that are not from CSV, in the text form of [`Column`](super::Column).
const OWN_COLUMNS: [&str; 9] = [
    "email",
    "first_name",
    "last_name",
    "properties",
    "on_conflict",
    "unsubscribed",
    "unsubscribe_reason",
    "topics",
    "import_key",
];

/// Writes rejects: `line, code, message, retryable`, then the columns of the input.
pub(super) struct Rejects {
    file: BufWriter<Box<dyn Write + Send>>,
    /// The columns after the leading ones; `None` before the first row.
    columns: Option<Vec<String>>,
    result: io::Result<()>,
}

impl Rejects {
    pub(super) fn new(file: Box<dyn Write + Send>) -> Self {
        Self {
            file: BufWriter::new(file),
            columns: None,
            result: Ok(()),
        }
    }

    pub(super) fn write(&mut self, row: &ImportRow, outcome: &RowOutcome) {
        if outcome.is_reject() && self.result.is_ok() {
            self.result = self.try_write(row, outcome);
        }
    }

    fn try_write(&mut self, row: &ImportRow, outcome: &RowOutcome) -> io::Result<()> {
        let (columns, mut cells) = layout(row);
        let header = match &mut self.columns {
            Some(header) => header,
            header @ None => {
                let leading = LEADING_COLUMNS.map(str::to_owned).to_vec();
                write_line(&mut self.file, &[leading, columns.clone()].concat())?;
                header.insert(columns.clone())
            }
        };
        // Rows of two inputs in one import: this one must not be read under the other's columns.
        if *header != columns && header.len() == cells.len() {
            cells.push(String::new());
        }
        let number = row.line_number().map(|number| number.to_string());
        let retryable = outcome.is_retryable().to_string();
        let leading = vec![
            number.unwrap_or_default(),
            outcome.code().to_owned(),
            outcome.message().unwrap_or_default().to_owned(),
            retryable,
        ];
        write_line(&mut self.file, &[leading, cells].concat())
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        self.result?;
        self.file.flush()
    }
}

fn write_line(file: &mut impl Write, cells: &[String]) -> io::Result<()> {
    let text = line(cells.iter().map(|cell| escape(cell)));
    file.write_all(text.as_bytes())
}

/// Returns the columns of a row, and its cells.
fn layout(row: &ImportRow) -> (Vec<String>, Vec<String>) {
    match row.input_cells() {
        Some(cells) => {
            let columns = row.input_column_names().map(<[String]>::to_vec);
            let numbered = || {
                (1..=cells.len())
                    .map(|number| format!("column {number}"))
                    .collect()
            };
            (columns.unwrap_or_else(numbered), cells.to_vec())
        }
        None => (OWN_COLUMNS.map(str::to_owned).to_vec(), own_cells(row)),
    }
}

fn own_cells(row: &ImportRow) -> Vec<String> {
    let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
    let members = row.contact().map(NewContact::members).unwrap_or_default();
    let everything = row.opt_outs().iter().find_map(|opt_out| match opt_out {
        OptOut::Everything(reason) => Some(*reason),
        OptOut::Topic(_) => None,
    });
    let topics: serde_json::Map<_, _> = row
        .opt_outs()
        .iter()
        .filter_map(|opt_out| match opt_out {
            OptOut::Topic(name) => Some((name.clone(), false.into())),
            OptOut::Everything(_) => None,
        })
        .collect();
    vec![
        text(row.contact().map(|contact| contact.email.as_str())),
        text(members.first_name),
        text(members.last_name),
        members.properties.map(json).unwrap_or_default(),
        members
            .on_conflict
            .map(|choice| unquoted(&choice))
            .unwrap_or_default(),
        everything.map(|_| "true".to_owned()).unwrap_or_default(),
        everything
            .map(|reason| unquoted(&reason))
            .unwrap_or_default(),
        match topics.is_empty() {
            true => String::new(),
            false => json(&topics),
        },
        text(row.key_text()),
    ]
}

/// Returns a value as JSON. A number that JSON cannot represent leaves the cell empty; the message of the
/// reject says so.
fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Returns the text of a value that serializes as text.
fn unquoted(value: &impl serde::Serialize) -> String {
    json(value).trim_matches('"').to_owned()
}
