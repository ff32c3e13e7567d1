//! Prints results: as text for people, or as JSON.

use std::io::{ErrorKind, Write as _};

use serde_json::Value;

/// How results are printed.
#[derive(Clone, Copy)]
pub(super) struct Output {
    json: bool,
}

impl Output {
    pub(super) fn new(json: bool) -> Self {
        Self { json }
    }

    /// Prints a result: its JSON, or its text.
    ///
    /// # Errors
    ///
    /// Fails if standard output cannot be written.
    pub(super) fn result(
        self,
        json: &Value,
        text: impl FnOnce(&Value) -> String,
    ) -> Result<(), String> {
        if self.json {
            print(&format!("{json:#}\n"))
        } else {
            print(&text(json))
        }
    }

    /// Prints that something was done. As JSON, that is an empty object unless the response has more.
    ///
    /// # Errors
    ///
    /// Fails if standard output cannot be written.
    pub(super) fn done(self, response: &Value, text: &str) -> Result<(), String> {
        let empty = Value::Object(serde_json::Map::new());
        let json = if response.is_null() { &empty } else { response };
        self.result(json, |_| format!("{text}\n"))
    }
}

/// Prints text to standard output. A reader that stops reading, such as `head`, is not an error.
///
/// # Errors
///
/// Fails if standard output cannot be written.
pub(super) fn print(text: &str) -> Result<(), String> {
    let mut stdout = std::io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(format!("could not print the result: {error}"))
        }
        _ => Ok(()),
    }
}
