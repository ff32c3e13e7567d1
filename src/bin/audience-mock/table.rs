//! Tables for a terminal.

/// Rows with the same number of cells, under a heading.
pub(crate) struct Table {
    /// The widest cell of each column, in characters.
    widths: Vec<usize>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(heading: &[&str]) -> Self {
        let mut table = Self {
            widths: vec![0; heading.len()],
            rows: Vec::new(),
        };
        table.row(heading.iter().map(|name| (*name).to_owned()));
        table
    }

    /// Adds a row. An empty cell is shown as `-`.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().map(|cell| shown(&cell)).collect();
        for (width, cell) in self.widths.iter_mut().zip(&cells) {
            *width = (*width).max(cell.chars().count());
        }
        self.rows.push(cells);
    }

    /// Returns the lines. The last column is not padded.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (width, cell) in self.widths.iter().zip(row) {
                line += cell;
                let padding = width - cell.chars().count() + 2;
                line.extend(std::iter::repeat_n(' ', padding));
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

/// Returns a cell as a terminal can show it: one line without control characters, not too long.
fn shown(cell: &str) -> String {
    const MAX_CHARACTERS: usize = 100;
    let mut shown = String::new();
    for (index, character) in cell.chars().enumerate() {
        if index == MAX_CHARACTERS {
            shown.push('…');
            break;
        }
        if character.is_control() {
            shown.extend(character.escape_debug());
        } else {
            shown.push(character);
        }
    }
    if shown.is_empty() {
        "-".to_owned()
    } else {
        shown
    }
}
