//! Rows from a CSV file.

mod cells;
mod column;
mod consent;
mod convert;
mod guess;
mod input;
mod mapping;
mod records;
mod rows;

pub use column::Column;
pub(crate) use guess::is_property_name;
pub use input::CsvInput;
pub use rows::CsvRows;
