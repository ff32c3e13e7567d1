//! JSON to types, with an error that names the place and never quotes the body.

use std::fmt::Write as _;

use serde::de::DeserializeOwned;
use serde_path_to_error::{Path, Segment};

use crate::Error;

pub(crate) fn json<T: DeserializeOwned>(body: &[u8], operation: &'static str) -> Result<T, Error> {
    // The plain pass is the fast one; only a body that fails is read again to find out where.
    serde_json::from_slice(body).map_err(|error| explain::<T>(body, &error).at(operation))
}

fn explain<T: DeserializeOwned>(body: &[u8], error: &serde_json::Error) -> Error {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Error::decode("the answer has no body where the interface document shows JSON");
    }
    if !error.is_data() {
        let (line, column) = (error.line(), error.column());
        let message = format!("the answer is not JSON from line {line}, column {column} on");
        return Error::decode(message);
    }
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let message = match serde_path_to_error::deserialize::<_, T>(&mut deserializer) {
        Ok(_) => "the answer goes on after its JSON value".to_owned(),
        Err(error) => format!(
            "unexpected shape at {}: {}",
            place(error.path()),
            expectation(error.inner())
        ),
    };
    Error::decode(message)
}

/// The path, without any member name that may be data: only what looks like an identifier is shown.
fn place(path: &Path) -> String {
    let mut text = String::from("$");
    for segment in path {
        let _infallible = match segment {
            Segment::Seq { index } => write!(text, "[{index}]"),
            Segment::Map { key } if is_identifier(key) => write!(text, ".{key}"),
            _ => write!(text, ".*"),
        };
    }
    text
}

fn is_identifier(key: &str) -> bool {
    (1..=40).contains(&key.len())
        && key
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

/// What was wanted there. serde's own sentence quotes what it found instead, so only the part that
/// comes from our types is kept.
fn expectation(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text
        .rsplit_once(" at line ")
        .map_or(text.as_str(), |(sentence, _)| sentence);
    match text.rsplit_once(", expected ") {
        Some((_, wanted)) => format!("expected {wanted}"),
        None if text.starts_with("missing field `") => text.to_owned(),
        None => "a value that does not fit".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;
    use crate::ErrorKind;

    #[derive(Deserialize, Debug)]
    struct Shape {
        #[expect(dead_code, reason = "only its absence is looked at")]
        id: String,
        #[expect(dead_code, reason = "only its shape is looked at")]
        answers: BTreeMap<String, bool>,
    }

    fn failure(body: &str) -> String {
        let error = json::<Vec<Shape>>(body.as_bytes(), "list").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Decode);
        assert!(
            std::error::Error::source(&error).is_none(),
            "a source would quote the body"
        );
        error.to_string()
    }

    #[test]
    fn the_message_names_operation_and_path_and_quotes_nothing() {
        for (body, message) in [
            (
                "",
                "list: the answer has no body where the interface document shows JSON",
            ),
            (
                "<html>",
                "list: the answer is not JSON from line 1, column 1 on",
            ),
            (
                r#"[{"id": "#,
                "list: the answer is not JSON from line 1, column 8 on",
            ),
            (
                r#"[{"answers": {}}]"#,
                "list: unexpected shape at $[0]: missing field `id`",
            ),
            (
                r#"[{"id": 5}]"#,
                "list: unexpected shape at $[0].id: expected a string",
            ),
            (
                r#"[{"id": "x", "answers": {"ada@x.io": "ada@x.io"}}]"#,
                "list: unexpected shape at $[0].answers.*: expected a boolean",
            ),
            (
                r#"[] trailing"#,
                "list: the answer is not JSON from line 1, column 4 on",
            ),
        ] {
            assert_eq!(failure(body), message);
        }
    }
}
