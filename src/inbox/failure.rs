use std::error::Error;
use std::fmt::Write;

/// The longest reason that is stored, in bytes.
const MAX_REASON: usize = 2_000;

/// Why a handler failed, as text.
#[derive(Debug)]
pub(super) struct Failure(String);

impl Failure {
    /// Reads the error of a handler, and its sources.
    pub(super) fn of_error(error: &(dyn Error + 'static)) -> Self {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(error) = source {
            let _ = write!(text, ": {error}");
            source = error.source();
        }
        Self::new(text)
    }

    /// Reads the message of a panic.
    pub(super) fn of_panic(payload: &(dyn std::any::Any + Send)) -> Self {
        let message = payload
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Self::new(match message {
            Some(message) => format!("the handler panicked: {message}"),
            None => "the handler panicked".to_owned(),
        })
    }

    fn new(mut text: String) -> Self {
        // Databases refuse it.
        text.retain(|c| c != '\0');
        if let Some((end, _)) = text.char_indices().find(|(at, _)| *at > MAX_REASON - 4) {
            text.truncate(end);
        }
        Self(text)
    }

    pub(super) fn reason(&self) -> &str {
        &self.0
    }
}
