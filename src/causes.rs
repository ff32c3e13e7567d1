use std::error::Error;
use std::fmt::Write;

/// The length from which on no cause is added: an error may be its own source.
const LONG: usize = 10_000;

/// Returns the text of an error and of what caused it, joined by `: `.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source
        && text.len() < LONG
    {
        // Writing to a `String` cannot fail.
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}
