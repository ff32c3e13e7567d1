//! The error for a choice that a dialect does not have.

use std::fmt;

use super::json::quoted_list;
use super::printable::printable;

/// A field or a choice that [`Dialect::choose`](crate::mock::Dialect::choose) does not know.
///
/// # Example: the message lists the known choices
///
/// ```
/// use audience::mock::Dialect;
///
/// let error = Dialect::default().choose("missing_name", "nil").unwrap_err();
///
/// assert_eq!(
///     error.to_string(),
///     "`missing_name` has no choice `nil`; its choices: `empty`, `null`, `absent`"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownChoice {
    /// The field that was named, and the choice if the field is known.
    given: (String, Option<String>),
    known: Vec<String>,
}

impl UnknownChoice {
    /// Creates the error for a field that does not exist.
    pub(super) fn name(name: &str, known: impl IntoIterator<Item = String>) -> Self {
        Self {
            given: (printable(name), None),
            known: known.into_iter().collect(),
        }
    }

    /// Creates the error for a field that has no such choice.
    pub(super) fn choice(
        name: &str,
        choice: &str,
        known: impl IntoIterator<Item = String>,
    ) -> Self {
        Self {
            given: (printable(name), Some(printable(choice))),
            known: known.into_iter().collect(),
        }
    }
}

impl fmt::Display for UnknownChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<_> = self.known.iter().map(String::as_str).collect();
        let known = quoted_list(&known);
        match &self.given {
            (name, Some(choice)) => {
                write!(f, "`{name}` has no choice `{choice}`; its choices: {known}")
            }
            (name, None) => write!(f, "a dialect has no `{name}`; its names: {known}"),
        }
    }
}

impl std::error::Error for UnknownChoice {}
