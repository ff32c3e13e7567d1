//! What a case found.

use std::error::Error;
use std::fmt::{Debug, Display};

use crate::inbox::error::StoreError;

/// What a case found: nothing, or what was expected and what happened.
pub(super) type Verdict = Result<(), Failed>;

/// What was expected and what happened.
#[derive(Debug)]
pub(super) struct Failed(pub(super) String);

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        let cause = error
            .source()
            .map_or_else(String::new, |source| format!(": {source}"));
        Self(format!("a call failed: {error}{cause}"))
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "cases compare values that they do not keep"
)]
pub(super) fn expect_eq<T: PartialEq + Debug>(
    what: impl Display,
    actual: T,
    expected: T,
) -> Verdict {
    expect(actual == expected, || {
        format!("{what}: expected {expected:?}, got {actual:?}")
    })
}

pub(super) fn expect(holds: bool, message: impl FnOnce() -> String) -> Verdict {
    if holds {
        Ok(())
    } else {
        Err(Failed(message()))
    }
}

/// Compares bodies without printing them.
pub(super) fn expect_body(what: impl Display, actual: &[u8], expected: &[u8]) -> Verdict {
    expect(actual == expected, || {
        format!(
            "{what}: expected the {} bytes that were stored, got {} bytes that differ",
            expected.len(),
            actual.len()
        )
    })
}
