//! The form of the rejects: what their writer and the reader of CSV files share.

/// The columns before those of the input.
pub(super) const LEADING_COLUMNS: [&str; 4] = ["line", "code", "message", "retryable"];

/// Writes a cell so that no spreadsheet takes it for a formula: with an apostrophe in front, if it begins as a
/// formula does. [`unescape`] is the reverse.
pub(super) fn escape(cell: &str) -> String {
    match needs_apostrophe(cell) {
        true => format!("'{cell}"),
        false => cell.to_owned(),
    }
}

/// Removes the apostrophe that [`escape`] added.
pub(super) fn unescape(cell: &str) -> &str {
    match cell.strip_prefix('\'') {
        Some(rest) if needs_apostrophe(rest) => rest,
        _ => cell,
    }
}

fn needs_apostrophe(cell: &str) -> bool {
    let begins_as_formula = cell
        .trim_start_matches('\'')
        .starts_with(['=', '+', '-', '@', '\t', '\r']);
    begins_as_formula && serde_json::from_str::<serde_json::Number>(cell).is_err()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn formulas_get_an_apostrophe_and_numbers_do_not() {
        for cell in ["=1+1", "+49 351", "-", "@SUM(A1)", "\t=1", "'=1", "--1"] {
            assert_eq!(escape(cell), format!("'{cell}"));
        }
        for cell in ["", "-5", "-0.5", "3", "a=b", "'s-Hertogenbosch", "O'Neill"] {
            assert_eq!(escape(cell), cell);
        }
    }

    proptest! {
        #[test]
        fn every_cell_is_read_back_as_it_was(cell in "['=+@\t1a.-]{0,6}") {
            let escaped = escape(&cell);

            prop_assert_eq!(unescape(&escaped), cell);
        }
    }
}
