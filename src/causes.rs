use std::error::Error;

#[cfg(feature = "inbox-postgres")]
use tokio_postgres::error::DbError;

/// The length from which on no cause is added.
const LONG: usize = 10_000;

/// An error may be its own source.
const LONGEST_CHAIN: usize = 100;

type Cause<'a> = &'a (dyn Error + 'static);

/// Returns an error and its causes, the last one at the end.
pub(crate) fn causes<'a>(error: Cause<'a>) -> impl Iterator<Item = Cause<'a>> {
    std::iter::successors(Some(error), |&error| error.source()).take(LONGEST_CHAIN)
}

/// Returns the text of any error and of its causes, joined by `: `, for a log.
///
/// The rows that Postgres quotes are left out, because they may contain personal data.
///
/// # Example: an error of your own
///
/// ```
/// #[derive(Debug, thiserror::Error)]
/// #[error("a visitor could not sign up")]
/// struct SignUpError(#[from] audience::Error);
///
/// # let api = audience::ApiError::new(audience::StatusCode::FORBIDDEN, None, "");
/// # let failed: audience::Error = audience::Error::refused(api);
/// let error = SignUpError::from(failed);
/// assert!(audience::with_causes(&error).starts_with("a visitor could not sign up: "));
/// ```
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = text_of(error);
    for cause in causes(error).skip(1) {
        if text.len() >= LONG {
            break;
        }
        text.push_str(": ");
        text.push_str(&text_of(cause));
    }
    text
}

fn text_of(error: &(dyn Error + 'static)) -> String {
    #[cfg(feature = "inbox-postgres")]
    if let Some(error) = error.downcast_ref() {
        return text_of_postgres(error);
    }
    without_rows(error.to_string())
}

/// The `Display` of the error also has the detail and the hint.
#[cfg(feature = "inbox-postgres")]
fn text_of_postgres(error: &DbError) -> String {
    let (severity, code) = (error.severity(), error.code().code());
    let names = [("table", error.table()), ("constraint", error.constraint())];
    let names = names.map(|(kind, name)| name.map(|name| format!(", {kind} {name}")));
    let names: String = names.into_iter().flatten().collect();
    format!("{severity}: {} (SQLSTATE {code}{names})", error.message())
}

/// Where the rows begin that an error of Postgres quotes: in its `Display`, which another error may repeat, and in its
/// `Debug`, which the message of a panic has. The error of sqlx has the same `Debug`.
const ROWS: [&str; 3] = ["\nDETAIL: ", "\nHINT: ", " detail: Some("];

/// Cuts a text where it begins to quote rows.
pub(crate) fn without_rows(mut text: String) -> String {
    if let Some(end) = ROWS.iter().filter_map(|start| text.find(start)).min() {
        text.truncate(end);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_ends_where_it_begins_to_quote_a_row() {
        let rows = [
            ("ERROR: a\nDETAIL: Key (a)=(b)\nHINT: c", "ERROR: a"),
            ("ERROR: a\nHINT: c", "ERROR: a"),
            (
                r#"DbError { message: "a", detail: Some("b") }"#,
                r#"DbError { message: "a","#,
            ),
            ("ERROR: a\nb, detail: None", "ERROR: a\nb, detail: None"),
        ];

        for (text, expected) in rows {
            assert_eq!(without_rows(text.to_owned()), expected);
        }
    }
}
