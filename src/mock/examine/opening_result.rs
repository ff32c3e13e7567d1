//! What the first deliveries have shown.

use super::check::Check;
use super::grade::Grade;

/// Results, and whether the examination goes on.
pub(super) struct Opening {
    pub(super) grades: Vec<(Check, Grade)>,
    pub(super) goes_on: bool,
}

impl Opening {
    pub(super) fn end(grades: impl IntoIterator<Item = (Check, Grade)>) -> Self {
        Self {
            grades: grades.into_iter().collect(),
            goes_on: false,
        }
    }
}
