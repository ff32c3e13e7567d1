use std::collections::HashSet;

use super::column::ExportColumn;
use super::contact::ExportedContact;
use crate::Error;
use crate::import::{escape, line};

/// Contacts as CSV: a header, and a line for each contact.
///
/// # The text
///
/// It is UTF-8 without a byte-order mark, separated by commas, and lines end with a line feed (`\n`). A cell is in
/// quotes if it has a comma, a quote, a line break, a space at its start or end, or another delimiter that an import
/// recognizes; a quote in it is doubled. A
/// missing value is an empty cell, as is an empty text. A number looks like a text with the same digits:
/// [`JsonLines`](super::JsonLines) keep them apart.
///
/// # Spreadsheets
///
/// A spreadsheet takes a cell that starts with `=`, `+`, `-`, `@`, a tab or a line break for a formula, even if it
/// comes from a name that a stranger has entered. By default each cell is the exact text, so that an import restores
/// it. If people will open the file in a spreadsheet, use [`escape_formulas`](Self::escape_formulas).
///
/// # Import
///
/// [`CsvRows`](crate::import::CsvRows) reads the file as it is: names, properties, opt-outs and topics are restored,
/// `id` and `created_at` are ignored, and nobody is subscribed. Three things are lost in a column for one property: text
/// with the digits of a number becomes a number, white space around text is removed, and empty text is left out. The
/// column `properties` ([`ExportColumn::OtherProperties`]) is exact, as JSON lines are. Do not import a file with
/// [escaped formulas](Self::escape_formulas): the apostrophes would become part of the text.
///
/// # Example: one line for each contact
///
/// ```
/// use audience::contacts::Contact;
/// use audience::export::Csv;
///
/// let mut ada = Contact::new("c_1", "ada@example.com");
/// ada.last_name = Some("King, Countess of Lovelace".to_owned());
/// ada.topics.insert("news".to_owned(), true);
///
/// let csv = Csv::new(["email", "last_name", "topic:news"]);
/// assert_eq!(csv.header(), "email,last_name,topic:news\n");
/// assert_eq!(csv.line(&ada), "ada@example.com,\"King, Countess of Lovelace\",true\n");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a format writes nothing by itself"]
pub struct Csv {
    columns: Vec<ExportColumn>,
    escape_formulas: bool,
}

impl Csv {
    /// Creates the format with these columns, in this order. Properties and topics without a column are left out.
    pub fn new(columns: impl IntoIterator<Item = impl Into<ExportColumn>>) -> Self {
        Self {
            columns: columns.into_iter().map(Into::into).collect(),
            escape_formulas: false,
        }
    }

    /// Puts an apostrophe before each cell that a spreadsheet would take for a formula, as the
    /// [rejects](crate::import::Import::rejects) of an import do. Numbers are left as they are. Default: the exact
    /// text.
    ///
    /// # Example: a name that is a formula
    ///
    /// ```
    /// use audience::contacts::Contact;
    /// use audience::export::Csv;
    ///
    /// let mut mallory = Contact::new("c_1", "m@example.com");
    /// mallory.first_name = Some("=HYPERLINK(\"http://evil.example\")".to_owned());
    ///
    /// let line = Csv::new(["first_name"]).escape_formulas().line(&mallory);
    /// assert_eq!(line, "\"'=HYPERLINK(\"\"http://evil.example\"\")\"\n");
    /// ```
    pub fn escape_formulas(mut self) -> Self {
        self.escape_formulas = true;
        self
    }

    /// Returns the columns.
    #[must_use]
    pub fn columns(&self) -> &[ExportColumn] {
        &self.columns
    }

    /// Returns the first line, with the names of the columns.
    #[must_use]
    pub fn header(&self) -> String {
        line(self.columns.iter().map(|column| {
            let name = column.to_string();
            match self.escape_formulas {
                true => escape(&name).into_owned(),
                false => name,
            }
        }))
    }

    /// Returns the line of a contact.
    #[must_use]
    pub fn line<'a>(&self, contact: impl Into<ExportedContact<'a>>) -> String {
        let contact = contact.into();
        line(self.columns.iter().map(|column| {
            let text = contact.text(column, &self.columns);
            match self.escape_formulas {
                true => escape(&text).into_owned().into(),
                false => text,
            }
        }))
    }

    /// Checks that an export can have these columns.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Input` if there is none, if one occurs twice, or if one needs a full export.
    pub(super) fn check(&self, is_full: bool) -> Result<(), Error> {
        if self.columns.is_empty() {
            return Err(Error::input(
                "the export has no columns; give it at least `email`",
            ));
        }
        let mut earlier = HashSet::new();
        for column in &self.columns {
            if !earlier.insert(column) {
                return Err(Error::input(format!(
                    "the column `{column}` is given twice; leave one of them out"
                )));
            }
            if column.needs_full() && !is_full {
                return Err(Error::input(format!(
                    "lists lack the column `{column}`; set `full()` to retrieve each contact, or leave the column out"
                )));
            }
        }
        Ok(())
    }

    /// Describes the format, so that a resumed export can be compared with it.
    pub(super) fn description(&self) -> String {
        let escaped = match self.escape_formulas {
            true => ", formulas escaped",
            false => "",
        };
        format!("CSV: {}{escaped}", self.header().trim_end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use crate::contacts::{Contact, ContactSummary};

    #[test]
    fn any_text_is_read_back_by_a_csv_reader() {
        let texts = [
            "",
            "plain",
            "a,b",
            "a\"b",
            "\"",
            "line\nbreak",
            "cr\r\nlf",
            " space ",
            "é\u{feff}",
            "\u{feff}x",
            "=1+1",
            "a;b",
            "\t",
            "\r",
            "'",
        ];
        for text in texts {
            for columns in [vec!["x"], vec!["email", "x"], vec!["x", "email"]] {
                let mut contact = Contact::new("c1", "a@x.io");
                contact.properties.insert("x", text);
                let csv = Csv::new(columns);

                let file = csv.header() + &csv.line(&contact);
                let mut reader = ::csv::Reader::from_reader(file.as_bytes());
                let position = reader
                    .headers()
                    .unwrap()
                    .iter()
                    .position(|name| name == "x");
                let records: Vec<_> = reader.records().map(Result::unwrap).collect();

                assert_eq!(records.len(), 1, "{text:?}");
                assert_eq!(&records[0][position.unwrap()], text);
            }
        }
    }

    #[test]
    fn what_has_no_column_is_in_the_json_of_the_rest() {
        let mut contact = Contact::new("c1", "a@x.io");
        contact.properties.insert("plan", "pro");
        contact.properties.insert("seats", 3);
        contact.topics.insert("news".to_owned(), true);
        contact.topics.insert("offers".to_owned(), false);

        let csv = Csv::new(["plan", "properties", "topic:news", "topics"]);

        assert_eq!(
            csv.line(&contact),
            "pro,\"{\"\"seats\"\":3}\",true,\"{\"\"offers\"\":false}\"\n"
        );
        assert_eq!(csv.line(&Contact::new("c2", "b@x.io")), ",,,\n");
    }

    #[test]
    fn formulas_are_escaped_only_if_asked_and_numbers_never() {
        let mut contact = ContactSummary::new("c1", "+a@x.io");
        contact.properties.insert("debt", -5);
        contact.properties.insert("note", "-5");
        let csv = Csv::new(["email", "debt", "note"]);

        assert_eq!(csv.line(&contact), "+a@x.io,-5,-5\n");
        assert_eq!(csv.escape_formulas().line(&contact), "'+a@x.io,-5,-5\n");
    }

    #[test]
    fn columns_that_an_export_cannot_have_are_refused() {
        for (columns, problem) in [
            (&[][..], "no columns"),
            (&["email", "email"], "`email` is given twice"),
            (
                &["email", "topic:news"],
                "lists lack the column `topic:news`",
            ),
        ] {
            let error = Csv::new(columns.iter().copied()).check(false).unwrap_err();

            assert_eq!(error.kind(), ErrorKind::Input);
            assert!(error.to_string().contains(problem), "{error}");
        }
        assert!(Csv::new(["email", "topic:news"]).check(true).is_ok());
    }
}
