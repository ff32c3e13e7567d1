use super::contact::ExportedContact;
use super::csv::Csv;
use super::json_lines::JsonLines;
use crate::Error;

/// The format of an export. [`Csv`] and [`JsonLines`] convert to it.
///
/// # Example: a format chosen at run time
///
/// ```
/// use audience::contacts::ContactSummary;
/// use audience::export::{Csv, Format, JsonLines};
///
/// let as_csv = std::env::args().any(|argument| argument == "--csv");
/// let format = match as_csv {
///     true => Format::from(Csv::new(["email"])),
///     false => Format::from(JsonLines),
/// };
///
/// let ada = ContactSummary::new("c_1", "ada@example.com");
/// print!("{}{}", format.header(), format.line(&ada));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// A header, and a line for each contact.
    Csv(Csv),
    /// A JSON object on each line.
    JsonLines(JsonLines),
}

impl Format {
    /// Returns the first line. Empty if the format has none.
    #[must_use]
    pub fn header(&self) -> String {
        match self {
            Self::Csv(csv) => csv.header(),
            Self::JsonLines(_) => String::new(),
        }
    }

    /// Returns the line of a contact.
    #[must_use]
    pub fn line<'a>(&self, contact: impl Into<ExportedContact<'a>>) -> String {
        match self {
            Self::Csv(csv) => csv.line(contact),
            Self::JsonLines(json_lines) => json_lines.line(contact),
        }
    }

    /// Checks that an export can have this format: see [`Csv::check`].
    pub(super) fn check(&self, is_full: bool) -> Result<(), Error> {
        match self {
            Self::Csv(csv) => csv.check(is_full),
            Self::JsonLines(_) => Ok(()),
        }
    }

    /// Describes the format, so that a resumed export can be compared with it.
    pub(super) fn description(&self) -> String {
        match self {
            Self::Csv(csv) => csv.description(),
            Self::JsonLines(_) => "JSON lines".to_owned(),
        }
    }
}

impl From<Csv> for Format {
    fn from(csv: Csv) -> Self {
        Self::Csv(csv)
    }
}

impl From<JsonLines> for Format {
    fn from(json_lines: JsonLines) -> Self {
        Self::JsonLines(json_lines)
    }
}
