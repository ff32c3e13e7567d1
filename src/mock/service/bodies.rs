//! The content of requests: JSON read by serde, refused with a message that names the invalid member, and email
//! addresses.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::dialect::{Dialect, PropertyValues, UnknownMembers};
use crate::mock::text::{printable, printable_name};

/// The values that a property may have by default.
pub(super) const PROPERTY_VALUE: &str = "a string or a number";

/// Returns the first property whose value the dialect does not allow, with its name as a message shows it.
pub(super) fn unsupported_property(
    properties: &Map<String, Value>,
    dialect: Dialect,
) -> Option<(String, &Value)> {
    if dialect.property_values == PropertyValues::Any {
        return None;
    }
    let (key, value) = properties
        .iter()
        .find(|(_, value)| !value.is_string() && !value.is_number())?;
    Some((format!("properties.{}", printable_name(key)), value))
}

/// The members of a body that its type does not have. The dialect decides whether they are refused or ignored.
pub(super) type Unknown = BTreeMap<String, IgnoredAny>;

/// Checks that a body has no unknown members, unless the dialect ignores them.
pub(super) fn refuse_unknown(unknown: &Unknown, dialect: Dialect) -> Result<(), String> {
    match unknown.keys().next() {
        Some(name) if dialect.unknown_members == UnknownMembers::Refused => {
            Err(format!("`{}` is not a known member", printable_name(name)))
        }
        _ => Ok(()),
    }
}

/// Reads an optional member that must not be `null`. Serde takes `null` for a member that is missing.
pub(super) fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// A type that is read from an object. Serde reads a struct from an array too.
pub(super) struct Object<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(members)).map(Object)
    }
}

/// The members of an object with any names, each of which it has once.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct UniqueMembers<T>(pub(super) BTreeMap<String, T>);

impl<T> Default for UniqueMembers<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for UniqueMembers<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(UniqueMembersVisitor(PhantomData))
    }
}

struct UniqueMembersVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for UniqueMembersVisitor<T> {
    type Value = UniqueMembers<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut unique = BTreeMap::new();
        while let Some(name) = members.next_key::<String>()? {
            if unique.contains_key(&name) {
                let name = printable_name(&name);
                return Err(A::Error::custom(format_args!("`{name}` is given twice")));
            }
            unique.insert(name, members.next_value()?);
        }
        Ok(UniqueMembers(unique))
    }
}

/// Parses JSON text. Messages call the whole of it `what`.
///
/// # Errors
///
/// Fails if the text is not JSON, or not an object that a `T` can be read from. The message names the member.
pub(super) fn parse<T: DeserializeOwned>(text: &[u8], what: &str) -> Result<T, String> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let parsed: Object<T> = match serde_path_to_error::deserialize(&mut deserializer) {
        Ok(parsed) => parsed,
        Err(error) => {
            // The value is looked up in the text, since an error of serde says only of which kind it is.
            return Err(match serde_json::from_slice::<Value>(text) {
                Ok(whole) => explain(&error, lookup(&whole, error.path()), what),
                Err(error) => invalid_json(&error),
            });
        }
    };
    deserializer.end().map_err(|error| invalid_json(&error))?;
    Ok(parsed.0)
}

pub(super) fn invalid_json(error: &serde_json::Error) -> String {
    printable(&format!("invalid JSON: {error}"))
}

fn lookup<'a>(whole: &'a Value, path: &serde_path_to_error::Path) -> Option<&'a Value> {
    use serde_path_to_error::Segment;
    path.iter().try_fold(whole, |value, segment| match segment {
        Segment::Seq { index } => value.get(index),
        Segment::Map { key } => value.get(key),
        Segment::Enum { .. } | Segment::Unknown => None,
    })
}

/// Returns the message for a value that is JSON but not what is expected.
fn explain(
    error: &serde_path_to_error::Error<serde_json::Error>,
    found: Option<&Value>,
    what: &str,
) -> String {
    let path = error.path().to_string();
    let is_whole = path == ".";
    let member = |name: &str| match is_whole {
        true => format!("`{name}`"),
        false => format!("`{path}.{name}`"),
    };
    let subject = match is_whole {
        true => what.to_owned(),
        false => format!("`{path}`"),
    };
    let problem = error.inner().to_string();
    let problem = match problem.rsplit_once(" at line ") {
        Some((problem, _)) => problem,
        None => &problem,
    };
    let message = if let Some(name) = problem.strip_prefix("missing field ") {
        format!("{} is missing", member(name.trim_matches('`')))
    } else if let Some(name) = problem.strip_prefix("duplicate field ") {
        format!("{} is given twice", member(name.trim_matches('`')))
    } else if let Some((_, known)) = unknown_field(problem) {
        format!("{subject} is not a known member; known members: {known}")
    } else if let Some((_, expected)) = problem.rsplit_once(", expected ") {
        let expected = match expected {
            "a boolean" => "`true` or `false`",
            "a sequence" => "an array",
            "i64" => "whole Unix seconds",
            other => other,
        };
        must(&subject, &path, &format!("must be {expected}"), found)
    } else if problem.starts_with("must be ") {
        must(&subject, &path, problem, found)
    } else if problem.starts_with("needs ") {
        format!("{subject} {problem}")
    } else {
        format!("{subject}: {problem}")
    };
    printable(&message)
}

/// Splits serde's message for an unknown member into its name and the known names.
fn unknown_field(problem: &str) -> Option<(&str, String)> {
    let (name, known) = problem
        .strip_prefix("unknown field ")?
        .split_once(", expected ")?;
    let known = known.trim_start_matches("one of ").replace(" or ", ", ");
    Some((name, known))
}

fn must(subject: &str, path: &str, problem: &str, found: Option<&Value>) -> String {
    let is_secret = path.starts_with("keys") || path.ends_with(".secret");
    match found {
        Some(found) if !is_secret => format!("{subject} {problem}, not {}", abbreviated(found)),
        _ => format!("{subject} {problem}"),
    }
}

/// Returns the message for an invalid value at `path`: `what` it must be, and what was `found`.
pub(super) fn must_be(path: &str, what: &str, found: &Value) -> String {
    format!("`{path}` must be {what}, not {}", abbreviated(found))
}

/// Returns a value as a message shows it: as JSON if it is short, otherwise only its kind.
fn abbreviated(value: &Value) -> String {
    let text = printable(&value.to_string());
    if text.len() <= 60 {
        return text;
    }
    match value {
        Value::String(_) => "a long string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
        Value::Null | Value::Bool(_) | Value::Number(_) => "another value",
    }
    .to_owned()
}

/// Returns the form in which an address is stored and shown: lowercased and trimmed (section 2.1). It identifies a
/// contact (section 1).
pub(super) fn normalized(address: &str) -> String {
    address.trim().to_lowercase()
}

/// Returns whether a normalized address is valid.
///
/// The document says only "must be an email address" (section 2.4). The mock accepts `local@domain` without white
/// space and control characters:
///
/// - The local part has none of `@<>()[],:\"`, or is a quoted string without quotation marks and backslashes inside.
/// - The domain consists of labels with a dot between them, and no label is empty. A label has no ASCII punctuation
///   other than `-` and `_`. An address literal such as `[192.0.2.1]` is also a domain.
/// - Letters beyond ASCII are valid in both.
///
/// The local part may have dots anywhere: some providers issued such addresses.
pub(super) fn is_address(normalized: &str) -> bool {
    let forbidden = |c: char| c.is_whitespace() || c.is_control();
    match normalized.rsplit_once('@') {
        Some((local, domain)) => {
            is_local_part(local) && is_domain(domain) && !normalized.contains(forbidden)
        }
        None => false,
    }
}

fn is_local_part(local: &str) -> bool {
    let quoted = local
        .strip_prefix('"')
        .and_then(|local| local.strip_suffix('"'));
    match quoted {
        Some(quoted) => !quoted.is_empty() && !quoted.contains(['"', '\\']),
        None => {
            !local.is_empty()
                && !local.contains(['@', '<', '>', '(', ')', '[', ']', ',', ':', '\\', '"'])
        }
    }
}

fn is_domain(domain: &str) -> bool {
    let literal = domain
        .strip_prefix('[')
        .and_then(|domain| domain.strip_suffix(']'));
    if let Some(literal) = literal {
        let in_literal = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == ':';
        return !literal.is_empty() && literal.chars().all(in_literal);
    }
    let in_label = |c: char| !c.is_ascii_punctuation() || c == '-' || c == '_';
    domain
        .split('.')
        .all(|label| !label.is_empty() && label.chars().all(in_label))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_every_digit() {
        let text = br#"{"a": 18446744073709551615, "b": -9223372036854775808, "c": 0.1, "d": 1e3}"#;

        let read: Map<String, Value> = parse(text, "the body").unwrap();

        assert_eq!(read, serde_json::from_slice(text).unwrap());
    }

    #[test]
    fn a_message_has_only_the_beginning_of_a_long_name() {
        let (long, shown) = ("n".repeat(1_000_000), "n".repeat(200));
        let properties = Map::from_iter([(long.clone(), Value::Null)]);
        let unknown = Unknown::from([(long.clone(), IgnoredAny)]);
        let twice = format!(r#"{{"{long}": 1, "{long}": 2}}"#);

        let (name, _) = unsupported_property(&properties, Dialect::default()).unwrap();
        let not_known = refuse_unknown(&unknown, Dialect::default()).unwrap_err();
        let twice = parse::<UniqueMembers<Value>>(twice.as_bytes(), "the body").unwrap_err();

        assert_eq!(name, format!("properties.{shown}…"));
        assert_eq!(not_known, format!("`{shown}…` is not a known member"));
        let twice_ends = format!("`{shown}…` is given twice");
        assert!(twice.ends_with(&twice_ends) && twice.len() < 500);
    }

    #[test]
    fn invalid_json_is_reported_as_invalid_json() {
        for text in [
            "",
            "{",
            "nul",
            "{}x",
            "{\"a\": [1,]}",
            "{\"a\": \"\\ud800\"}",
            "{\"a\": 1e999}",
        ] {
            let error = parse::<Map<String, Value>>(text.as_bytes(), "the body").unwrap_err();

            assert!(error.starts_with("invalid JSON: "), "{text}: {error}");
        }
        let deep = format!("{{\"a\": {}", "[".repeat(100_000));
        assert!(parse::<Map<String, Value>>(deep.as_bytes(), "the body").is_err());
        assert!(parse::<Map<String, Value>>(b"{\"a\": \"\xff\"}", "the body").is_err());
    }

    #[test]
    fn a_valid_address_has_a_local_part_and_a_domain_of_allowed_characters() {
        for good in [
            "ada@example.com",
            "ada+news@example.com",
            "a/b@example.com",
            "a;b@example.com",
            ".a..b.@example.com",
            "!#$%&'*+-/=?^_`{|}~@example.com",
            "\"a,b\"@example.com",
            "\"a@b\"@x.io",
            "ürsel@exämple.de",
            "हिन्दी@उदाहरण.भारत",
            "a@b",
            "a@x_y.io",
            "a@[192.0.2.1]",
        ] {
            assert!(is_address(good), "{good}");
        }
        for bad in [
            "",
            "@",
            "ada",
            "ada@",
            "@b",
            "a@b@c",
            "@a@b",
            "\"a@b@c",
            "\"a\"@b@c",
            "a b@c",
            "a@b\tc",
            "a\u{0}@b",
            "a@b\u{a0}",
            "a@.",
            "a@.b",
            "a@b.",
            "a@b..c",
            "<a@b>",
            "a@b>",
            "ada <a@b>",
            "a@b,",
            "a@b;",
            "a,b@c",
            "mailto:a@b",
            "a@b?c",
            "a@b/c",
            "a\\b@c",
            "\"a@c",
            "\"@c",
            "\"\"@c",
            "\"a\"b\"@c",
            "\"a b\"@c",
            "a@[]",
            "a@[192.0.2.1",
        ] {
            assert!(!is_address(bad), "{bad:?}");
        }
    }

    #[test]
    fn an_address_is_stored_lowercased_and_trimmed() {
        assert_eq!(normalized(" \tAda@Example.COM\n"), "ada@example.com");
        assert_eq!(
            normalized(&normalized("ΟΔΟΣ@İ.gr")),
            normalized("ΟΔΟΣ@İ.gr")
        );
    }
}
