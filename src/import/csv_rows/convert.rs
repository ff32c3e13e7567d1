//! Converts the cells of a record to a contact and its opt-outs. Pure.

use super::super::reject_form::unescape;
use super::super::row::{ImportRow, OptOut};
use super::column::Column;
use super::consent::Consent;
use super::mapping::Mapping;
use crate::contacts::{NewContact, OnConflict, Properties, PropertyValue};

/// Returns the cells as text, without the leading ones of rejects, and whether all of them were UTF-8.
pub(super) fn texts(mapping: &Mapping, cells: &[Vec<u8>]) -> (Vec<String>, bool) {
    let cells = cells.get(mapping.leading..).unwrap_or_default();
    let is_utf8 = cells.iter().all(|cell| std::str::from_utf8(cell).is_ok());
    let texts = cells.iter().map(|cell| {
        let text = String::from_utf8_lossy(cell);
        match mapping.is_rejects() {
            true => unescape(&text).to_owned(),
            false => text.into_owned(),
        }
    });
    (texts.collect(), is_utf8)
}

/// Converts a row.
///
/// # Errors
///
/// Why it cannot be read. The text contains no cell.
pub(super) fn row(
    mapping: &Mapping,
    on_conflict: Option<OnConflict>,
    cells: &[String],
) -> Result<ImportRow, String> {
    let (found, expected) = (cells.len(), mapping.names.len());
    if found != expected {
        return Err(format!(
            "the row has {found} cells, but the file has {expected} columns"
        ));
    }
    let mut columns = mapping.columns().zip(cells);
    let email = columns.find(|((_, column), _)| **column == Column::Email);
    let email = email.map(|(_, cell)| cell.trim()).unwrap_or_default();
    if email.is_empty() {
        return Err("the row has no address".to_owned());
    }
    let mut contact = NewContact::new(email).on_conflict(on_conflict);
    let mut consent = Consent::default();
    let mut key = None;
    for ((name, column), cell) in mapping.columns().zip(cells) {
        let cell = cell.trim();
        let failed = |problem| format!("column {name:?}: {problem}");
        if column.is_consent() {
            consent.add(column, cell).map_err(failed)?;
            continue;
        }
        if cell.is_empty() {
            continue;
        }
        match column {
            Column::Key => key = Some(cell),
            column => contact = set(contact, column, cell).map_err(failed)?,
        }
    }
    let opt_outs = consent.opt_outs().map_err(str::to_owned)?;
    let row = ImportRow::new(contact);
    let row = key.into_iter().fold(row, ImportRow::key);
    Ok(opt_outs
        .into_iter()
        .fold(row, |row, opt_out: OptOut| row.opt_out(opt_out)))
}

fn set(contact: NewContact, column: &Column, cell: &str) -> Result<NewContact, &'static str> {
    Ok(match column {
        Column::FirstName => contact.first_name(cell),
        Column::LastName => contact.last_name(cell),
        Column::Property(name) => contact.property(name, number_or_text(cell)),
        Column::Properties => {
            let properties: Properties =
                serde_json::from_str(cell).map_err(|_| "the cell is not a JSON object")?;
            // An empty map clears the properties of an existing contact, so it is sent, too.
            let contact = match contact.members().properties {
                None => contact.properties(Properties::new()),
                Some(_) => contact,
            };
            let all = properties.into_iter();
            all.fold(contact, |contact, (name, value)| {
                contact.property(name, value)
            })
        }
        Column::OnConflict => contact.on_conflict(match cell.to_lowercase().as_str() {
            "upsert" => OnConflict::Upsert,
            "skip" => OnConflict::Skip,
            "error" => OnConflict::Error,
            _ => return Err("the cell is neither upsert nor skip nor error"),
        }),
        _ => contact,
    })
}

/// Returns a number only if it prints exactly as the cell. Postcodes, phone numbers and long ids stay text.
fn number_or_text(cell: &str) -> PropertyValue {
    serde_json::from_str::<serde_json::Number>(cell)
        .ok()
        .filter(|number| number.to_string() == cell)
        .map_or_else(|| cell.into(), PropertyValue::from)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_cells_that_a_number_prints_as_are_numbers() {
        for (cell, number) in [
            ("3", json!(3)),
            ("-7", json!(-7)),
            ("0.5", json!(0.5)),
            (
                "18446744073709551615",
                json!(18_446_744_073_709_551_615_u64),
            ),
        ] {
            assert_eq!(serde_json::to_value(number_or_text(cell)).unwrap(), number);
        }
        for text in [
            "01067",
            "+49",
            "1e5",
            "1.50",
            "1,5",
            "12345678901234567890123",
            "NaN",
            "-",
            "٣",
        ] {
            assert_eq!(number_or_text(text), PropertyValue::from(text));
        }
    }
}
