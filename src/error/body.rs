//! Reads an error body of any common shape.

use http::StatusCode;
use serde_json::{Map, Value};

use super::code::ErrorCode;

/// The parts of an error body that are understood.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ErrorBody {
    pub(super) code: Option<ErrorCode>,
    pub(super) message: Option<String>,
}

/// The members of an error object that may hold a slug, the most likely first.
const SLUGS: [&str; 7] = [
    "code",
    "slug",
    "error_code",
    "error",
    "type",
    "name",
    "status",
];

/// The members of an error object that may hold a message.
const MESSAGES: [&str; 3] = ["message", "detail", "reason"];

/// Members that are a message unless they look like a slug.
const SENTENCES: [&str; 3] = ["error", "description", "title"];

/// Words that say only that there is an error.
const GENERIC: [&str; 5] = ["error", "errors", "fail", "failed", "failure"];

/// The longest body that is searched, in bytes. Parsed JSON takes many times the memory of its text.
const LONGEST: usize = 1024 * 1024;

type Object = Map<String, Value>;

impl ErrorBody {
    /// Reads the slug and the message. Returns `None` if the body is not a JSON object or is longer than
    /// 1 MiB.
    ///
    /// A slug that the interface document names takes precedence over any other. A status is not a
    /// slug, whether written in digits or as its HTTP reason phrase.
    pub(super) fn read(status: StatusCode, body: &[u8]) -> Option<Self> {
        if body.len() > LONGEST {
            return None;
        }
        let Ok(Value::Object(whole)) = serde_json::from_slice(body) else {
            return None;
        };
        let parts = parts(&whole);
        let slugs: Vec<ErrorCode> = texts(&whole, &SLUGS[..4])
            .chain(parts.iter().flat_map(|part| texts(part, &SLUGS)))
            .chain(texts(&whole, &SLUGS[4..]))
            .filter(|text| is_slug(text) && !is_status(text, status))
            .map(ErrorCode::from_slug)
            .collect();
        let documented = slugs.iter().find(|code| ErrorCode::KNOWN.contains(code));
        let message = texts(&whole, &MESSAGES)
            .chain(parts.iter().flat_map(|part| texts(part, &MESSAGES)))
            .chain(texts(&whole, &SENTENCES).filter(|text| !is_slug(text)))
            .next();
        Some(Self {
            code: documented.or(slugs.first()).cloned(),
            message: message.map(str::to_owned),
        })
    }
}

/// Returns the error objects inside the body: `error`, `detail`, and those in the array `errors`.
fn parts(whole: &Object) -> Vec<&Object> {
    let nested = ["error", "detail"]
        .iter()
        .filter_map(|name| whole.get(*name));
    let listed = whole.get("errors").and_then(Value::as_array);
    nested
        .chain(listed.into_iter().flatten())
        .filter_map(Value::as_object)
        .collect()
}

/// Returns the members with these names that hold non-empty text, in the order of the names.
fn texts<'a>(object: &'a Object, names: &[&str]) -> impl Iterator<Item = &'a str> + use<'a> {
    let found = names.iter().filter_map(|name| object.get(*name)?.as_str());
    let found: Vec<_> = found.filter(|text| !text.is_empty()).collect();
    found.into_iter()
}

/// Returns whether a text looks like a slug rather than a sentence or an address.
fn is_slug(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
        && !GENERIC.iter().any(|word| text.eq_ignore_ascii_case(word))
}

fn is_status(text: &str, status: StatusCode) -> bool {
    let phrase = status.canonical_reason().unwrap_or_default();
    text.eq_ignore_ascii_case(phrase) || text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unprocessable(body: &str) -> ErrorBody {
        ErrorBody::read(StatusCode::UNPROCESSABLE_ENTITY, body.as_bytes()).unwrap_or_default()
    }

    #[test]
    fn slug_and_message_are_found_in_every_common_shape() {
        for body in [
            r#"{"code": "not_found", "message": "m"}"#,
            r#"{"slug": "not_found", "message": "m"}"#,
            r#"{"error": "not_found", "message": "m"}"#,
            r#"{"error": {"code": "not_found", "message": "m"}}"#,
            r#"{"error": {"slug": "not_found", "message": "m"}}"#,
            r#"{"error": {"type": "not_found", "message": "m"}}"#,
            r#"{"error": {"name": "not_found", "detail": "m"}}"#,
            r#"{"type": "not_found", "detail": "m"}"#,
            r#"{"name": "not_found", "message": "m", "statusCode": 422}"#,
            r#"{"code": 422, "error": {"code": "not_found"}, "message": "m"}"#,
            r#"{"error_code": "not_found", "message": "m"}"#,
            r#"{"status": "not_found", "message": "m"}"#,
            r#"{"status": "error", "code": "NOT_FOUND", "message": "m"}"#,
            r#"{"errors": [{"code": "not_found", "message": "m"}]}"#,
            r#"{"errors": ["x", {"code": "other"}, {"status": "404", "code": "not-found", "detail": "m"}]}"#,
            r#"{"detail": {"code": "not_found", "message": "m"}}"#,
            r#"{"error": {"error": "not_found", "message": "m"}}"#,
            r#"{"error": {"code": 404, "status": "NOT_FOUND", "message": "m"}}"#,
        ] {
            let read = unprocessable(body);

            assert_eq!(read.code, Some(ErrorCode::NotFound), "{body}");
            assert_eq!(read.message.as_deref(), Some("m"), "{body}");
        }
    }

    #[test]
    fn no_code_is_read_from_a_body_without_a_slug() {
        for body in [
            r#"{"code": "422"}"#,
            r#"{"error": "Unprocessable Content", "message": "m"}"#,
            "",
            "null",
            "[]",
            "<html>422</html>",
            "{}",
            r#"{"code": 422}"#,
            r#"{"code": ""}"#,
            "{\"code",
            r#"{"status": "error", "errors": []}"#,
            r#"{"code": "Failed", "errors": [[], {}]}"#,
        ] {
            assert_eq!(unprocessable(body).code, None, "{body}");
        }
    }

    #[test]
    fn a_body_over_1_mib_is_not_searched() {
        let object = r#"{"code": "not_found"}"#;
        let body = |length: usize| object.to_owned() + &" ".repeat(length - object.len());

        assert_eq!(
            unprocessable(&body(LONGEST)).code,
            Some(ErrorCode::NotFound)
        );
        assert_eq!(unprocessable(&body(LONGEST + 1)), ErrorBody::default());
    }

    #[test]
    fn a_sentence_or_a_url_is_not_a_slug() {
        let sentence = unprocessable(r#"{"error": "Not Found"}"#);
        let problem = unprocessable(
            r#"{"type": "https://example.com/not-found", "title": "No such contact"}"#,
        );

        assert_eq!(
            (sentence.code, sentence.message.as_deref()),
            (None, Some("Not Found"))
        );
        assert_eq!(
            (problem.code, problem.message.as_deref()),
            (None, Some("No such contact"))
        );
    }
}
