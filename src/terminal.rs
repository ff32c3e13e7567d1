//! Prints tables and texts to a terminal, with all characters escaped that control it.

use std::io::{ErrorKind, Write as _};

use serde_json::Value;
use unicode_width::UnicodeWidthStr as _;

/// Prints text to standard output. Returns `false` if its reader, such as `head`, has stopped reading.
///
/// # Errors
///
/// Fails if standard output cannot be written for another reason.
pub(crate) fn print(text: &str) -> Result<bool, String> {
    let mut stdout = std::io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(format!("could not print the result: {error}")),
    }
}

/// Rows with the same number of cells, under a heading.
pub(crate) struct Table {
    /// The widest cell of each column.
    widths: Vec<usize>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(heading: &[&str]) -> Self {
        let mut table = Self::without_heading(heading.len());
        table.row(heading.iter().map(|name| (*name).to_owned()));
        table
    }

    pub(crate) fn without_heading(columns: usize) -> Self {
        Self {
            widths: vec![0; columns],
            rows: Vec::new(),
        }
    }

    /// Adds a row. An empty cell is shown as `-`.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().map(|cell| shown(&cell)).collect();
        for (width, cell) in self.widths.iter_mut().zip(&cells) {
            *width = (*width).max(cell.width());
        }
        self.rows.push(cells);
    }

    /// Returns the lines so far, and removes their rows. Later rows have the same column widths, unless a cell is
    /// wider.
    #[cfg(feature = "cli")]
    pub(crate) fn take_text(&mut self) -> String {
        let text = self.text();
        self.rows.clear();
        text
    }

    /// Returns a row without columns that are aligned with other rows.
    #[cfg(feature = "mock-server")]
    pub(crate) fn line(cells: impl IntoIterator<Item = String>) -> String {
        let cells: Vec<String> = cells.into_iter().map(|cell| shown(&cell)).collect();
        cells.join("  ")
    }

    /// Returns the lines. The last column is not padded.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (width, cell) in self.widths.iter().zip(row) {
                line += &padded(cell, width + 2);
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

/// Returns the text with spaces after it, so that it is this wide on a terminal. Most Chinese characters and emoji take
/// two columns there, and combining accents take none.
pub(crate) fn padded(text: &str, width: usize) -> String {
    let missing = width.saturating_sub(text.width());
    text.to_owned() + &" ".repeat(missing)
}

/// Returns the width of the widest text on a terminal.
#[cfg(feature = "cli")]
pub(crate) fn widest<'a>(texts: impl IntoIterator<Item = &'a str>) -> usize {
    let widths = texts.into_iter().map(str::width);
    widths.max().unwrap_or_default()
}

/// Returns a cell as a terminal can show it: one line without control characters, not too long.
fn shown(cell: &str) -> String {
    const MAX_CHARACTERS: usize = 100;
    if cell.is_empty() {
        return "-".to_owned();
    }
    match cell.char_indices().nth(MAX_CHARACTERS) {
        Some((end, _)) => format!("{}…", printable(&cell[..end])),
        None => printable(cell),
    }
}

/// Returns a JSON value as a cell: text without quotation marks, and nothing for `null`.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(text).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// Returns a text as a terminal can show it: the characters that control a terminal, or the direction of what follows,
/// are escaped.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if controls(character) {
            shown.extend(character.escape_debug());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Returns JSON as a terminal can show it: the characters that control a terminal are escaped. The line breaks between the
/// members stay.
pub(crate) fn printable_json(json: &str) -> String {
    let mut text = String::with_capacity(json.len() + 1);
    for character in json.chars() {
        if controls(character) && character != '\n' {
            // None of them is above U+FFFF.
            text += &format!("\\u{:04x}", u32::from(character));
        } else {
            text.push(character);
        }
    }
    text
}

/// Returns whether the character is a control character, ends a line, or changes the direction of text.
fn controls(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{61c}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_control_the_terminal() {
        assert_eq!(
            printable("Zo\u{eb} ❤\u{fe0f} 用户"),
            "Zo\u{eb} ❤\u{fe0f} 用户"
        );
        assert_eq!(printable("\u{1b}[2J\u{9b}2J\r\n"), r"\u{1b}[2J\u{9b}2J\r\n");
        assert_eq!(printable("\u{202e}moc"), r"\u{202e}moc");
    }

    #[test]
    fn a_table_has_its_columns_below_each_other_and_cells_of_one_line() {
        let mut table = Table::new(&["email", "first_name"]);
        table.row(["ada@example.com".to_owned(), "A\nda".to_owned()]);
        table.row(["bo@x.io".to_owned(), String::new()]);

        let lines = "email            first_name\nada@example.com  A\\nda\nbo@x.io          -\n";
        assert_eq!(table.text(), lines);
    }

    #[test]
    fn wide_characters_accents_and_emoji_do_not_shift_the_next_column() {
        let mut table = Table::without_heading(2);
        for name in ["Ada", "用户", "Zoe\u{308}", "👩‍🚀", "❤\u{fe0f}", "한글"] {
            table.row([name.to_owned(), "|".to_owned()]);
        }

        let lines = "Ada   |\n用户  |\nZoe\u{308}   |\n👩‍🚀    |\n❤\u{fe0f}    |\n한글  |\n";
        assert_eq!(table.text(), lines);
    }
}
